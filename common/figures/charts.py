"""Charts of the course, in one style: a prediction is a line, a measurement is dots."""

import math
import os
import pathlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator
from matplotlib.transforms import offset_copy

from common.notebook import gc_control
from nogpu.pictures import DESCRIPTIONS, QUIET, describe

STYLE = pathlib.Path(__file__).with_name("course.mplstyle")
MARKS = "osD^vP"  # one per series, because on grey paper two colours look the same
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


# A function of one x, or values at every x.
Line = Callable[[float], float] | Sequence[float]


def use_style() -> None:
    """Applies the course's style to every figure that follows, and keeps its description beside it.

    A lab calls it after its imports, so collections of garbage need not look at these from then on:
    one took 0.15 s, which a widget's step or a check had to wait for.
    """
    plt.style.use(STYLE)
    ipython: Any = sys.modules.get("IPython")
    if shell := ipython and ipython.get_ipython():
        shell.display_formatter.formatters["image/png"].for_type(Figure, _described_png)
    gc_control.keep_what_is_imported()


def _described_png(figure: Figure) -> Any:
    """What a notebook shows of a figure: the picture, with its description as metadata.

    It has two points per pixel, so that it is sharp on every screen; one in the solutions' files,
    which the environment variable COURSE_FIGURES asks for.
    """
    from IPython.core.pylabtools import print_figure, retina_figure

    if os.environ.get("COURSE_FIGURES") == "small":
        shown: Any = print_figure(figure, fmt="png", base64=True), {}
    else:
        shown = retina_figure(figure, base64=True)
    if shown is None or shown[0] is None:  # an empty figure
        return None
    picture, about = shown
    alt = {"alt": DESCRIPTIONS[figure]} if figure in DESCRIPTIONS else {}
    return (picture, {**about, **alt}) if about or alt else picture


def predicted_and_measured(
    x: Sequence[float],
    predicted: Line | Mapping[str, Line],
    measured: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    log: str = "",
    xunit: str = "",
    yunit: str = "",
    dots_are: str = "measured",
    apart: float = 0,
    ax: Axes | None = None,
) -> Axes:
    """Axes with the prediction drawn as a line and the measurement as dots.

    x: where it was measured. predicted: a function of one x, or values at x. measured: values at x,
    or None before there are any. Several series: dicts {label: ...}; a line and dots with the same
    label share a colour. log: "x", "y", "xy" or "". xunit, yunit: the ticks' unit, written with its
    prefix (10 µs, 64 MB); without one, the label names it. dots_are: the legend's word. apart: how
    many points to the right of each other the dots of several series stand, where they would cover
    each other.
    """
    ax = ax or plt.subplots()[1]
    lines, dots = _series(predicted), _series({} if measured is None else measured)
    labels = list(dict.fromkeys([*lines, *dots]))
    for i, label in enumerate(labels):
        if label in lines:
            ax.plot(*_line(x, lines[label], log), color=f"C{i}")
        if label in dots:
            _dots(ax, x, dots[label], i, len(labels), apart)
    if apart:
        ax.margins(x=0.09)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    scale(ax, "x", "x" in log, xunit)
    scale(ax, "y", "y" in log, yunit)
    _legend(ax, lines, dots, dots_are)
    return ax


def _dots(
    ax: Axes, x: Sequence[float], values: Sequence[float], number: int, of: int, apart: float
) -> None:
    """Draws the dots of one series of several, so many points to the right of those before."""
    mark = MARKS[number % len(MARKS)]
    (drawn,) = ax.plot(x, values, mark, color=f"C{number}", zorder=3)
    if apart:  # a diamond is wider than its size
        drawn.set(markersize=(0.7 if mark == "D" else 0.9) * apart, markeredgewidth=0.6)
    # Only now: the axes' limits are those of the data.
    figure = ax.get_figure(root=True)
    shift = (number - (of - 1) / 2) * apart
    drawn.set_transform(offset_copy(ax.transData, figure, x=shift, units="points"))


def averages(
    x: Sequence[float] | Mapping[str, Sequence[float]],
    runs: Mapping[str, Any],
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    alt: str,
    log: str = "",
    falling: bool = False,
) -> Axes:
    """Axes with the mean of several runs at each x as a dot, and their spread as a bar.

    x: where it was measured, for all series or {label: ...}. runs: {label: the values of all runs,
    for each x}. The spread is the standard deviation; one run has none. log: "x", "y", "xy" or "".
    (A logarithmic x has its ticks where it was measured.) falling: the largest x is on the left.
    alt: the figure's alternative text.
    """
    ax = plt.subplots(figsize=(7.2, 3.8))[1]
    for mark, (label, values) in zip(MARKS, runs.items(), strict=False):
        place, table = x[label] if isinstance(x, Mapping) else x, np.asarray(values, float)
        spread = table.std(1) if table.shape[1] > 1 else None
        ax.errorbar(place, table.mean(1), spread, marker=mark, capsize=3, label=label)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    scale(ax, "x", "x" in log, "")
    scale(ax, "y", "y" in log, "")
    if "x" in log and not isinstance(x, Mapping):
        ax.set_xticks(x, [str(value) for value in x])
    if falling:
        ax.invert_xaxis()
    ax.legend()
    describe(ax, alt)
    return ax


def roofline(
    attainable: Callable[[float], float],
    points: Mapping[str, tuple[float, float]] | None = None,
    *,
    title: str,
    ridge: float | None = None,
    intensities: tuple[float, float] = (0.05, 5000),
    ax: Axes | None = None,
) -> Axes:
    """Axes with the roofline as a line and measured operations as numbered dots, named beside it.

    attainable: a function from intensity, in FLOP/byte, to FLOP/s. points: {name: (intensity,
    measured FLOP/s)}. ridge: the intensity where the two roofs meet; it separates memory-bound
    operations from compute-bound ones.
    """
    ax = ax or plt.subplots()[1]
    ax.plot(*_line(intensities, attainable, "x"), color="C0")
    for point in (points or {}).values():
        ax.plot(*point, "o", color="C1", markersize=5, markeredgewidth=0, zorder=4)
    ax.set(xlabel="arithmetic intensity (FLOP/byte)", ylabel="FLOP/s", title=title)
    ax.set_xlim(intensities)
    scale(ax, "x", True, "")
    scale(ax, "y", True, "")
    ax.set_ylim(bottom=ax.get_ylim()[0] / 2)  # room for the words below
    if ridge is not None:
        _ridge(ax, ridge)
    if points:
        _key(ax, points)
        _number(ax, points.values())
    return ax


def _ridge(ax: Axes, ridge: float) -> None:
    """A dashed line with the two words that it separates."""
    ax.axvline(ridge, color=QUIET, linewidth=0.8, linestyle=(0, (4, 4)))
    style: dict[str, Any] = {"va": "bottom", "size": 9, "color": QUIET}
    for name, side, shift in (("memory-bound", "right", -6), ("compute-bound", "left", 6)):
        ax.annotate(
            name,
            (ridge, 0),
            (shift, 6),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            bbox={"fc": "white", "lw": 0, "pad": 1},
            **style,
        )


def _key(ax: Axes, names: Collection[str]) -> None:
    """The numbers' names, beside the axes."""
    key = "\n".join(f"{number:\u2007>2}  {name}" for number, name in enumerate(names, start=1))
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    ax.annotate(key, (1, 0.5), (14, 0), va="center", size=9, linespacing=1.7, **place)


def _number(ax: Axes, points: Collection[tuple[float, float]]) -> None:
    """Puts each point's number on its dot, or below it if it would cover an earlier number."""
    figure: Any = ax.figure
    figure.draw_without_rendering()  # the layout decides what covers what
    taken: list[tuple[float, float]] = []
    for number, point in enumerate(points, start=1):
        x, y = ax.transData.transform(point) * 72 / figure.dpi
        drop = 0
        while any(math.hypot(x - u, y - drop - v) < 11 for u, v in taken):
            drop += 14
        taken.append((x, y - drop))
        below = offset_copy(ax.transData, figure, y=-drop, units="points")
        ax.plot(*point, "o", color="C1", markersize=14, zorder=3, transform=below)
        line = {"arrowstyle": "-", "color": "C1", "shrinkB": 0} if drop else None
        style: dict[str, Any] = {"color": "white", "size": 8, "weight": "bold", "zorder": 5}
        ax.annotate(
            str(number),
            point,
            (0, -drop),
            textcoords="offset points",
            ha="center",
            va="center",
            arrowprops=line,
            **style,
        )


def ladder(
    rungs: Mapping[str, float],
    *,
    xlabel: str,
    title: str,
    ceiling: tuple[str, float] | None = None,
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Axes with a bar for each version of a program, the first on top, and the ceiling as a line.

    rungs: {name: value}. ceiling: (name, value) that no version can pass, or that a peer reaches;
    the label of each bar then also gives its share of the ceiling. log: on a logarithmic axis, if
    a bar would be too short to see.
    """
    ax = ax or plt.subplots(figsize=(7.2, 1.3 + 0.38 * len(rungs)))[1]
    name, most = ceiling or ("", 0)
    left, right = 0.0, 1.08 * max([*rungs.values(), most])
    if log:
        left = min(rungs.values()) / 4
        right *= (right / left) ** 0.15  # room for the label of the longest bar
        ax.set_xscale("log")
    ax.barh(list(rungs), list(rungs.values()), height=0.62, color="C0")
    _bar_labels(ax, rungs, most, right)
    if ceiling:
        ax.axvline(most, color="C1")
        style: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "bottom"}
        style |= {"xycoords": ("data", "axes fraction"), "color": "C1", "size": 9}
        ax.annotate(f"{name}: {_short(most)}", (most, 1), (0, 3), **style)
    ax.set(xlabel=xlabel, title=title, xlim=(left, right))
    ax.xaxis.set_major_formatter(lambda value, _: _short(value))
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    known = [*rungs.items(), *([ceiling] if ceiling else [])]
    values = ", ".join(f"{rung} {_short(value)}" for rung, value in known)
    describe(ax, f"{title}. Bars of {xlabel}: {values}.")
    return ax


def _bar_labels(ax: Axes, rungs: Mapping[str, float], most: float, right: float) -> None:
    """Writes each bar's value beside it, or in it if it is long. most: the ceiling, or 0."""
    for place, value in enumerate(rungs.values()):
        label = _short(value) + (f" ({value / most:.0%})" if most else "")
        # The label of a long bar is in the bar.
        inside = ax.get_xscale() != "log" and value > 0.7 * right
        # The label of a bar that passes the ceiling ends before the ceiling's line.
        end = min(value, most or value)
        style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "size": 9}
        style |= {"color": "white", "ha": "right"} if inside else {"ha": "left"}
        ax.annotate(label, (end, place), (-5 if inside else 5, 0), **style)


def _short(value: float) -> str:
    """A count exactly, any other number in three digits: 0.139, 13.7, 4,140, 33 M."""
    if isinstance(value, int) and value < 1e6:
        return f"{value:,}"
    value = float(f"{value:.3g}")
    return f"{value:,g}" if abs(value) < 1e6 else EngFormatter()(value)


def _series(values: Any) -> Mapping[str, Any]:
    """{label: values}, with an empty label for a single series."""
    return values if isinstance(values, dict) else {"": values}


def _line(x: Sequence[float], predicted: Line, log: str) -> tuple[Sequence[float], Sequence[float]]:
    """(x, y) of a line. A function is evaluated between the smallest and the largest x."""
    if not callable(predicted):
        return x, predicted
    space = np.geomspace if "x" in log else np.linspace
    grid = space(min(x), max(x), 400).tolist()
    return grid, [predicted(value) for value in grid]


def scale(ax: Axes, name: Literal["x", "y"], is_log: bool, unit: str) -> None:
    """Makes an axis logarithmic if wanted, with ticks as people say them: 0.1, 5 k, 10 µs."""
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
        plain = not unit  # without a unit, "100 m" is written 0.1
        axis.set_major_formatter(
            lambda value, _: _fraction(value) if plain and value < 1 else prefixed(value)
        )


def _fraction(value: float) -> str:
    """A number below one as people write it: 0.02, 10⁻⁵, 2·10⁻⁵."""
    digits, power = f"{value:.0e}".split("e")
    if value == 0 or int(power) >= -3:
        return f"{value:g}"
    return ("" if digits == "1" else f"{digits}·") + "10" + f"{int(power)}".translate(SUPERSCRIPTS)


def _legend(ax: Axes, lines: Collection[str], dots: Collection[str], dots_are: str) -> None:
    """One series: what the line and the dots are. Several: also the colour of each."""
    if set(lines) | set(dots) == {""}:
        marks = [Line2D([], [], color="C0", label="predicted")]
        if dots:
            dot: dict[str, Any] = {"linestyle": "", "marker": MARKS[0]}
            marks.append(Line2D([], [], color="C0", label=dots_are, **dot))
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
    # Inside the axes, a long legend would cover the data.
    outside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
    ax.legend(
        handles=marks,
        title=f"line: predicted, dots: {dots_are}" if dots else "predicted",
        title_fontsize=9,
        alignment="left",
        handlelength=2.4,
        **(outside if len(marks) > 3 else {}),
    )
