"""Figures of an array's elements: which program touches which, how often, and in what order."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap

from common.figures import QUIET

COLOURS = "viridis"
UNTOUCHED = "#efefef"
DONE = {"load": "loaded", "store": "stored", "atomic": "updated"}
MOST_ROWS = 64


def array(report, name, kind="load", program=None):
    """Axes with the elements of one array that programs load, store or update.

    Of a one-dimensional array: a row a program. Of others: the array itself (leading axes one below the other), where colour
    tells which program touches an element or, where several do, how many. program: of this one alone, (x, y, z) or shorter;
    colour then tells the order of its requests.
    """
    report.array(name)  # refuses another name
    shape = report.arrays[name]
    if not report.trace.complete:
        raise ValueError(
            "there is no trace to draw: the launch touches too many elements, or the report came from elsewhere"
        )
    if kind not in DONE:
        raise ValueError(f"kind is one of {', '.join(DONE)}, and {kind!r} is not")
    requests = [each for each in report.trace.requests if each.array == name and each.kind == kind]
    if program is not None:
        program = (*np.atleast_1d(program).tolist(), 0, 0)[:3]
        requests = [each for each in requests if each.program == program]
    if not requests:
        raise ValueError(
            f"no element of {name} is {DONE[kind]}"
            + ("" if program is None else f" by program {program}")
        )
    places = _places(shape, report.trace.strides[name])
    if program is not None:
        values = _last(requests, range(1, len(requests) + 1), places)
        return _picture(
            values,
            f"{name}: {DONE[kind]} by program {_short(program, report.grid)}",
            "request",
            _steps(values),
        )
    programs = sorted({each.program for each in requests}, key=lambda each: each[::-1])
    if len(shape) == 1:
        return _rows(report, name, kind, requests, programs, places)
    numbers = {each: number for number, each in enumerate(programs)}
    times = _times(requests, places)
    if times.max() > 1:
        return _picture(
            times, f"{name}: how many programs {kind} each element", "programs", _steps(times)
        )
    values = _last(requests, [1 + numbers[each.program] for each in requests], places)
    return _picture(
        values,
        f"{name}: {DONE[kind]} by which program",
        "program, in the grid's order",
        _steps(values),
        first=1,
    )


def _places(shape, strides):
    """Of each element of the array, its place counted from the first, as a picture: rows and columns."""
    grid = np.zeros(shape, np.int64)
    for axis, (size, step) in enumerate(zip(shape, strides, strict=True)):
        grid += step * np.arange(size).reshape([-1] + [1] * (len(shape) - axis - 1))
    return grid.reshape(-1, shape[-1]) if shape else grid.reshape(1, 1)


def _last(requests, values, places):
    """A picture of the value of the last request that touches each element, 0 where there is none."""
    low = min(int(places.min()), *(int(each.elements.min()) for each in requests))
    high = max(int(places.max()), *(int(each.elements.max()) for each in requests))
    line = np.zeros(high - low + 1, np.int64)
    for each, value in zip(requests, values, strict=True):
        line[each.elements - low] = value
    return line[places - low]


def _times(requests, places):
    """A picture of how many programs touch each element."""
    by_program = {}
    for each in requests:
        by_program.setdefault(each.program, []).append(each)
    return sum(_last(each, [1] * len(each), places) for each in by_program.values())


def _rows(report, name, kind, requests, programs, places):
    """Axes with a row a program, and in it the elements that it touches; colour tells in how many requests."""
    shown = programs[:MOST_ROWS]
    rows = np.concatenate(
        [
            sum(_last([each], [1], places) for each in requests if each.program == program)
            for program in shown
        ]
    )
    left = (
        ""
        if len(shown) == len(programs)
        else f", the first {MOST_ROWS} of {len(programs):,} programs"
    )
    ax = _picture(rows, f"{name}: {DONE[kind]} by which program{left}", "requests", _steps(rows))
    ax.set(xlabel="element", ylabel="program")
    ax.set_yticks(*_ticks([_short(program, report.grid) for program in shown]))
    return ax


def _ticks(labels, most=12):
    step = -(-len(labels) // most)
    return range(0, len(labels), step), labels[::step]


def _short(program, grid):
    """A program's number, or as many of its numbers as the grid has axes."""
    axes = max((axis + 1 for axis, length in enumerate(grid) if length > 1), default=1)
    return str(program[0]) if axes == 1 else str(program[:axes])


def _steps(values):
    return int(values.max())


def _picture(values, title, meaning, most, first=None):
    """Axes with a cell an element, coloured by its value from 1 to `most`; 0 is untouched."""
    height = (
        min(5.0, max(1.2, 5.0 * values.shape[0] / values.shape[1])) if values.shape[0] > 1 else 0.9
    )
    figure, ax = plt.subplots(figsize=(6.2, height + 0.9))
    colours = (
        plt.get_cmap(COLOURS)(np.linspace(0.15, 0.95, most))
        if most > 1
        else [plt.get_cmap(COLOURS)(0.35)]
    )
    norm = BoundaryNorm(np.arange(-0.5, most + 1), most + 1)
    cells = ax.imshow(
        values,
        cmap=ListedColormap([UNTOUCHED, *colours]),
        norm=norm,
        aspect="auto",
        interpolation="nearest",
    )
    ax.set_title(title)
    ax.set(xlabel="column", ylabel="row")
    ax.grid(visible=False)
    if most > 1:
        bar = figure.colorbar(cells, ax=ax, boundaries=np.arange(0.5, most + 1), pad=0.02)
        step = -(-most // 8)
        ticks = list(range(1, most + 1, step))
        bar.set_ticks(ticks, labels=[str(tick - (first or 0)) for tick in ticks])
        bar.set_label(meaning, color=QUIET)
        bar.ax.minorticks_off()
    return ax
