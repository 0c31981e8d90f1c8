"""Charts of the course, in one style: a prediction is a line, a measurement is dots."""

import math
import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator
from matplotlib.transforms import offset_copy

STYLE = pathlib.Path(__file__).with_name("course.mplstyle")
QUIET = "#666666"  # for annotations: the colours belong to the data
MARKS = "osD^vP"  # one a series: on grey paper two colours are one
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def use_style() -> None:
    """Applies the course's style to every figure that follows."""
    plt.style.use(STYLE)


def ink(colour) -> str:
    """The colour of text that can be read on this one: white or almost black."""
    return "white" if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.48 else "#333333"


def predicted_and_measured(
    x,
    predicted,
    measured=None,
    *,
    xlabel,
    ylabel,
    title,
    log="",
    xunit="",
    yunit="",
    dots_are="measured",
    ax=None,
):
    """Axes with the prediction drawn as a line and the measurement as dots.

    x: where it was measured. predicted: a function of one x, or values at x. measured: values at x, or None before
    there are any. Several series: dicts {label: ...}; what has one label gets one colour and one mark.
    log: "x", "y", "xy" or "". xunit, yunit: the ticks' unit, written with its prefix (10 µs, 64 MB); without one, the
    label names it. dots_are: what the legend calls the dots.
    """
    ax = ax or plt.subplots()[1]
    lines, dots = _series(predicted), _series({} if measured is None else measured)
    for i, label in enumerate(dict.fromkeys([*lines, *dots])):
        if label in lines:
            ax.plot(*_line(x, lines[label], log), color=f"C{i}")
        if label in dots:
            ax.plot(x, dots[label], MARKS[i % len(MARKS)], color=f"C{i}", zorder=3)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    _scale(ax, "x", "x" in log, xunit)
    _scale(ax, "y", "y" in log, yunit)
    _legend(ax, lines, dots, dots_are)
    return ax


def roofline(attainable, points=None, *, title, ridge=None, intensities=(0.05, 5000), ax=None):
    """Axes with the roofline as a line and measured operations as numbered dots, named beside the figure.

    attainable: a function from intensity, in FLOP/byte, to FLOP/s. points: {name: (intensity, FLOP/s measured)}.
    ridge: the intensity where the two roofs meet; it parts what is memory-bound from what is compute-bound.
    """
    ax = ax or plt.subplots()[1]
    ax.plot(*_line(intensities, attainable, "x"), color="C0")
    for point in (points or {}).values():
        ax.plot(*point, "o", color="C1", markersize=5, markeredgewidth=0, zorder=4)
    ax.set(
        xlabel="arithmetic intensity (FLOP/byte)", ylabel="FLOP/s", title=title, xlim=intensities
    )
    _scale(ax, "x", True, "")
    _scale(ax, "y", True, "")
    ax.set_ylim(bottom=ax.get_ylim()[0] / 2)  # room for the words below
    if ridge is not None:
        ax.axvline(ridge, color=QUIET, linewidth=0.8, linestyle=(0, (4, 4)))
        for name, side, shift in (("memory-bound", "right", -6), ("compute-bound", "left", 6)):
            ax.annotate(
                name,
                (ridge, 0),
                (shift, 6),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha=side,
                va="bottom",
                size=9,
                color=QUIET,
                bbox={"fc": "white", "lw": 0, "pad": 1},
            )
    if points:
        key = "\n".join(f"{number:\u2007>2}  {name}" for number, name in enumerate(points, start=1))
        ax.annotate(
            key,
            (1, 0.5),
            (14, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            size=9,
            linespacing=1.7,
        )
        _number(ax, points.values())
    return ax


def _number(ax, points) -> None:
    """Puts each point's number on its dot or, where it would cover an earlier number, below, with a line to its dot."""
    ax.figure.draw_without_rendering()  # the layout decides what lies on what
    taken = []
    for number, point in enumerate(points, start=1):
        x, y = ax.transData.transform(point) * 72 / ax.figure.dpi
        drop = 0
        while any(math.hypot(x - u, y - drop - v) < 11 for u, v in taken):
            drop += 14
        taken.append((x, y - drop))
        below = offset_copy(ax.transData, ax.figure, y=-drop, units="points")
        line = {"arrowstyle": "-", "color": "C1", "shrinkB": 0} if drop else None
        ax.plot(*point, "o", color="C1", markersize=14, zorder=3, transform=below)
        ax.annotate(
            str(number),
            point,
            (0, -drop),
            textcoords="offset points",
            color="white",
            size=8,
            weight="bold",
            ha="center",
            va="center",
            zorder=5,
            arrowprops=line,
        )


def ladder(rungs, *, xlabel, title, ceiling=None, ax=None):
    """Axes with a bar for each version of a program, the first on top, and the ceiling as a line.

    rungs: {name: value}. ceiling: (name, value) that no version can pass, or that a peer reaches; each bar is then labelled
    with its share of it, too.
    """
    ax = ax or plt.subplots(figsize=(7.2, 1.3 + 0.38 * len(rungs)))[1]
    name, most = ceiling or ("", 0)
    right = 1.08 * max([*rungs.values(), most])
    ax.barh(list(rungs), list(rungs.values()), height=0.62, color="C0")
    for place, value in enumerate(rungs.values()):
        label = _short(value) + (f" ({value / most:.0%})" if ceiling else "")
        style = (
            {"color": "white", "ha": "right"} if value > 0.7 * right else {"ha": "left"}
        )  # inside a long bar
        shift = -5 if "color" in style else 5
        end = min(
            value, most or value
        )  # the ceiling's line would cross the label of a bar that passes it
        ax.annotate(
            label,
            (end, place),
            (shift, 0),
            textcoords="offset points",
            va="center",
            size=9,
            **style,
        )
    if ceiling:
        ax.axvline(most, color="C1")
        ax.annotate(
            f"{name}: {_short(most)}",
            (most, 1),
            (0, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right",
            va="bottom",
            size=9,
            color="C1",
        )
    ax.set(xlabel=xlabel, title=title, xlim=(0, right))
    ax.xaxis.set_major_formatter(lambda value, _: _short(value))
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    return ax


def _short(value):
    """A count exactly, any other number in three digits, as people say it: 0.139, 13.7, 4,140, 33 M."""
    if isinstance(value, int) and value < 1e6:
        return f"{value:,}"
    value = float(f"{value:.3g}")
    return f"{value:,g}" if abs(value) < 1e6 else EngFormatter()(value)


def _series(values):
    """{label: values}, the empty label for one series."""
    return values if isinstance(values, dict) else {"": values}


def _line(x, predicted, log):
    """(x, y) of a line: a function is evaluated between the smallest and the largest x, values stand where x is."""
    if not callable(predicted):
        return x, predicted
    grid = (np.geomspace if "x" in log else np.linspace)(min(x), max(x), 400)
    return grid, [predicted(value) for value in grid.tolist()]


def _scale(ax, name, is_log, unit) -> None:
    """Makes the axis called "x" or "y" logarithmic where wanted, with ticks as people say them: 0.1, 20, 5 k, 10 µs."""
    axis = getattr(ax, f"{name}axis")
    if is_log:
        getattr(ax, f"set_{name}scale")("log")
        low, high = axis.get_view_interval()
        axis.set_major_locator(
            LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,), numticks=12)
        )
        axis.set_minor_locator(NullLocator())
    if is_log or unit:
        prefixed = EngFormatter(unit)
        plain = not unit  # "100 m" of nothing is 0.1
        axis.set_major_formatter(
            lambda value, _: _fraction(value) if plain and value < 1 else prefixed(value)
        )


def _fraction(value):
    """A number below one as people write it: 0.02, 10⁻⁵, 2·10⁻⁵."""
    digits, power = f"{value:.0e}".split("e")
    if value == 0 or int(power) >= -3:
        return f"{value:g}"
    return ("" if digits == "1" else f"{digits}·") + "10" + f"{int(power)}".translate(SUPERSCRIPTS)


def _legend(ax, lines, dots, dots_are) -> None:
    """One series: which mark is which. Several: their colours, and what lines and dots are."""
    if set(lines) | set(dots) == {""}:
        marks = [Line2D([], [], color="C0", label="predicted")]
        marks += (
            [Line2D([], [], color="C0", linestyle="", marker=MARKS[0], label=dots_are)]
            if dots
            else []
        )
        ax.legend(handles=marks)
        return
    marks = [
        Line2D(
            [],
            [],
            color=f"C{i}",
            label=label,
            linestyle="-" if label in lines else "",
            marker=MARKS[i % len(MARKS)] if label in dots else "",
        )
        for i, label in enumerate(dict.fromkeys([*lines, *dots]))
    ]
    aside = (
        {"loc": "upper left", "bbox_to_anchor": (1, 1)} if len(marks) > 3 else {}
    )  # inside, it lay on the data
    ax.legend(
        handles=marks,
        title=f"line: predicted, dots: {dots_are}" if dots else "predicted",
        title_fontsize=9,
        alignment="left",
        handlelength=2.4,
        **aside,
    )
