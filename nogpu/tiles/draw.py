"""Figures of an array's elements: which program touches which, how often, and in what order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap

from nogpu.pictures import QUIET

if TYPE_CHECKING:
    from nogpu.tiles.costs import Kind, Program, Request, Trace

COLOURS = "viridis"
UNTOUCHED = "#efefef"
DONE = {"load": "loaded", "store": "stored", "atomic": "updated"}
MOST_ROWS = 64
MOST_TICKS = 12


def array(
    trace: "Trace",
    name: str,
    shape: tuple[int, ...],
    grid: "Program",
    kind: "Kind" = "load",
    program: int | tuple | None = None,
) -> Axes:
    """Axes with the elements of one array that programs load, store or update.

    A one-dimensional array has one row per program. Another array is shown itself, with its leading
    axes one below the other; colour says which program touches an element or, if several do, how
    many. program: show only this one, (x, y, z) or shorter; colour says in which of its requests.
    """
    only = None if program is None else (*np.atleast_1d(program).tolist(), 0, 0)[:3]
    requests = _requests(trace, name, kind, only)
    places = _places(shape, trace.strides[name])
    title = f"{name}: {DONE[kind]} by"
    if only is not None:
        order = _last(requests, range(1, len(requests) + 1), places)
        return _picture(order, f"{title} program {_short(only, grid)}", "request")
    if len(shape) == 1:
        return _rows(grid, title, requests, places)
    times = _times(requests, places)
    if times.max() > 1:
        return _picture(times, f"{name}: how many programs {kind} each element", "programs")
    numbers = {number: index for index, number in enumerate(_programs(requests), 1)}
    values = _last(requests, [numbers[request.program] for request in requests], places)
    return _picture(values, f"{title} which program", "program, in the grid's order", first=1)


def _requests(trace: "Trace", name: str, kind: "Kind", only: "Program | None") -> "list[Request]":
    """The requests to draw: of an array, of a kind, of one program or of all."""
    if not trace.complete:
        raise ValueError(
            "there is no trace to draw: the launch touches too many elements, or the report came "
            "from elsewhere"
        )
    if kind not in DONE:
        raise ValueError(f"kind is one of {', '.join(DONE)}, and {kind!r} is not")
    requests = [
        request
        for request in trace.requests
        if request.array == name and request.kind == kind and only in (None, request.program)
    ]
    if not requests:
        by = "" if only is None else f" by program {only}"
        raise ValueError(f"no element of {name} is {DONE[kind]}{by}")
    return requests


def _programs(requests: "Sequence[Request]") -> "list[Program]":
    """The programs of these requests, x fastest."""
    return sorted({request.program for request in requests}, key=lambda program: program[::-1])


def _places(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Each element's distance from the first, as a picture: rows and columns."""
    grid = np.zeros(shape, np.int64)
    for axis, (size, step) in enumerate(zip(shape, strides, strict=True)):
        grid += step * np.arange(size).reshape([-1] + [1] * (len(shape) - axis - 1))
    return grid.reshape(-1, shape[-1]) if shape else grid.reshape(1, 1)


def _last(requests: "Sequence[Request]", values: Sequence[int], places: np.ndarray) -> np.ndarray:
    """A picture of the value of the last request that touches each element; 0 if none does."""
    low = min(int(places.min()), *(int(request.elements.min()) for request in requests))
    high = max(int(places.max()), *(int(request.elements.max()) for request in requests))
    line = np.zeros(high - low + 1, np.int64)
    for request, value in zip(requests, values, strict=True):
        line[request.elements - low] = value
    return line[places - low]


def _times(requests: "Sequence[Request]", places: np.ndarray) -> np.ndarray:
    """A picture of how many programs touch each element."""
    by_program: dict[Program, list[Request]] = {}
    for request in requests:
        by_program.setdefault(request.program, []).append(request)
    times = np.zeros_like(places)
    for own in by_program.values():
        times += _last(own, [1] * len(own), places)
    return times


def _rows(grid: "Program", title: str, requests: "Sequence[Request]", places: np.ndarray) -> Axes:
    """Axes with a row per program, and in it the elements that it touches, and how often."""
    programs = _programs(requests)
    shown = {program: row for row, program in enumerate(programs[:MOST_ROWS])}
    rows = np.zeros((len(shown), places.size), np.int64)
    for request in requests:
        if request.program in shown:
            rows[shown[request.program]] += _last([request], [1], places)[0]
    some = len(shown) < len(programs)
    which = f", the first {MOST_ROWS} of {len(programs):,} programs" if some else ""
    ax = _picture(rows, f"{title} which program{which}", "requests")
    ax.set(xlabel="element", ylabel="program")
    labels = [_short(program, grid) for program in shown]
    step = -(-len(labels) // MOST_TICKS)
    ax.set_yticks(range(0, len(labels), step), labels[::step])
    return ax


def _short(program: "Program", grid: "Program") -> str:
    """A program's number, or as many of its numbers as the grid has axes."""
    axes = max((axis + 1 for axis, length in enumerate(grid) if length > 1), default=1)
    return str(program[0]) if axes == 1 else str(program[:axes])


def _picture(values: np.ndarray, title: str, meaning: str, first: int = 0) -> Axes:
    """Axes with a cell per element, coloured by its value; 0 is untouched.

    meaning: of a value. first: what to subtract from the values for the labels.
    """
    most = int(values.max())
    rows, columns = values.shape
    height = min(5.0, max(1.2, 5.0 * rows / columns)) if rows > 1 else 0.9
    figure, ax = plt.subplots(figsize=(6.2, height + 0.9))
    colours = plt.get_cmap(COLOURS)(np.linspace(0.15, 0.95, most) if most > 1 else [0.35])
    cells = ax.imshow(
        values,
        cmap=ListedColormap([UNTOUCHED, *colours]),
        norm=BoundaryNorm(np.arange(-0.5, most + 1), most + 1),
        aspect="auto",
        interpolation="nearest",
    )
    ax.set_title(title)
    ax.set(xlabel="column", ylabel="row")
    ax.grid(visible=False)
    if most > 1:
        bar = figure.colorbar(cells, ax=ax, boundaries=np.arange(0.5, most + 1), pad=0.02)
        ticks = list(range(1, most + 1, -(-most // 8)))
        bar.set_ticks(ticks, labels=[str(tick - first) for tick in ticks])
        bar.set_label(meaning, color=QUIET)
        bar.ax.minorticks_off()
    return ax
