"""Diagrams of a storage: the cell of each element of a view, and the cache lines of a walk.

And `compare`, which draws what a program gave next to what was wanted.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter

from common import figures
from common.figures import QUIET, ink, views
from common.figures.views import View

COLOURS = "viridis"
UNREAD = (0.94, 0.94, 0.94, 1.0)
LINE_BYTES = 64
WIDTH_IN, CELL_IN, GAP_IN = 7.2, 0.34, 0.4
MOST_BARS = 25  # one per cache line
CAPTION_IN = 0.62  # three lines of text above a grid


def buffer(
    drawn: Mapping[str, View | None],
    *,
    cells: int | None = None,
    text: Sequence[object] | None = None,
) -> Axes:
    """Axes with the storage as a strip of cells, and above it the grid of each view.

    Equal colours are the same cell. drawn: {title: view}, with up to four axes per view, all of one
    storage. cells: how many the storage has (by default up to the last one that is read). text:
    what is written in each cell of the storage (by default its position).
    """
    read = _read(drawn)
    used = np.concatenate(list(read.values()))
    cells = cells or 1 + int(used.max(initial=0))
    text = range(cells) if text is None else text
    colours = plt.get_cmap(COLOURS)(np.linspace(0.06, 0.98, cells))

    grids = [_Grid(title, view) for title, view in drawn.items() if view]
    cell_in = _cell_in(grids, cells)
    grids_in = _side_by_side_in(grids, cell_in)
    top_in = (2.9 + max(_last(grid.ys) for grid in grids)) * cell_in  # the strip is one cell high
    ax = _canvas(max(grids_in, cells * cell_in), top_in + CAPTION_IN)
    left_in = 0.0
    for grid, positions in zip(grids, read.values(), strict=True):
        _captions(ax, left_in, top_in, grid)
        xs, ys = left_in + cell_in * grid.xs, top_in - cell_in * (grid.ys + 1)
        _cells(ax, xs, ys, cell_in, colours[positions], [text[p] for p in positions])
        left_in += grid.width_in(cell_in) + GAP_IN
    strip = np.where(np.isin(np.arange(cells), used)[:, None], colours, UNREAD)
    _cells(ax, cell_in * np.arange(cells), np.zeros(cells), cell_in, strip, text)
    ax.text(0, cell_in + 0.03, "storage", size=8, color=QUIET, va="bottom")
    return ax


def permuted_and_sliced(
    shape: Sequence[int] = (3, 4), order: Sequence[int] = (1, 0), start: int = 0, step: int = 1
) -> Axes:
    """Axes of `buffer` for x = arange(...).view(shape) and x.permute(order)[start::step]."""
    x = torch.arange(math.prod(shape)).view(list(shape))
    begin = start or ""
    taken = f"[{begin}::{step}]" if step != 1 else f"[{begin}:]" if start else ""
    title = f"x.permute{tuple(order)}{taken}".replace(",)", ")")
    taken_view = views.of(x.permute(list(order))[start::step])
    return buffer({"x": views.of(x), title: taken_view}, cells=x.numel())


def wanted_and_yours(want: View | None, got: View | None) -> Axes:
    """Axes of `buffer` for the view that a check wanted and the one that came, where they exist."""
    drawn = {"wanted": want, "yours": got}
    return buffer({title: view for title, view in drawn.items() if view is not None})


def walk(
    drawn: Mapping[str, View | None], *, itemsize: int = 4, rooms: Sequence[int] = ()
) -> Sequence[Axes]:
    """Axes, one per view, with the cache line that each step of a walk reads, last axis innermost.

    drawn: {title: view}, all of one storage, which begins at the start of a line of 64 bytes.
    itemsize: bytes per element. Colours are positions in the storage. rooms: for each view how many
    lines the cache keeps; then coloured steps are fetches, and grey ones find their line.
    """
    read = _read(drawn)
    last = max(int(positions.max()) for positions in read.values())
    axes = _axes_of_lines(len(drawn), 1 + last * itemsize // LINE_BYTES)
    for i, (ax, (title, positions)) in enumerate(zip(axes, read.items(), strict=True)):
        lines = (positions * itemsize // LINE_BYTES).tolist()
        fetched = _fetched(lines, rooms[i]) if rooms else [True] * len(lines)
        _visits(ax, lines, positions, fetched)
        ax.set(title=f"{title}\n{sum(fetched)} fetches" if rooms else title)
    return axes


def visits(lines: Sequence[int], room: int, *, sets: int = 1) -> Axes:
    """Axes with the line that each step visits; fetches are coloured, steps that find it are grey.

    room: how many lines each set of the cache keeps, the least recently used goes.
    """
    ax = _axes_of_lines(1, 1 + max(lines))[0]
    parts = [[line if line % sets == k else -1 for line in lines] for k in range(sets)]
    fetched = [False] * len(lines)
    for part in parts:
        steps = [step for step, line in enumerate(part) if line >= 0]
        for step, new in zip(steps, _fetched([part[s] for s in steps], room), strict=True):
            fetched[step] = new
    _visits(ax, lines, np.asarray(lines), fetched)
    of = f" in each of {sets} sets" if sets > 1 else ""
    ax.set(title=f"{sum(fetched)} fetches with room for {room} lines{of}")
    return ax


def lines_per_set(drawn: Mapping[str, Sequence[int]], sets: int, ways: int) -> Sequence[Axes]:
    """Axes side by side: how many different lines fall into each set of a cache, and its limit.

    drawn: {title: lines}. Line k falls into set k mod sets, which has room for `ways` lines. Lines
    beyond that are drawn in another colour.
    """
    axes = plt.subplots(1, len(drawn), figsize=(7.2, 2.6), sharey=True, squeeze=False)[1][0]
    for ax, (title, lines) in zip(axes, drawn.items(), strict=True):
        counts = np.bincount(np.unique(lines) % sets, minlength=sets)
        ax.bar(range(sets), np.minimum(counts, ways), width=1, linewidth=0, color="C0")
        over = np.maximum(counts - ways, 0)
        ax.bar(range(sets), over, width=1, linewidth=0, bottom=ways, color="C1")
        ax.axhline(ways, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)))
        style: dict[str, Any] = {"ha": "right", "va": "bottom", "size": 8, "color": QUIET}
        ax.text(sets - 0.5, ways, f"room for {ways}", **style)
        ax.set(title=title, xlabel="set", xlim=(-0.02 * sets - 0.5, sets - 0.3))
        ax.yaxis.get_major_locator().set_params(integer=True)
        ax.grid(visible=False, axis="x")
    axes[0].set(ylabel="different lines")
    return axes


def times(times_s: Mapping[str, float], *, title: str) -> Axes:
    """Axes with a bar per line of code, on a logarithmic axis, each with its time."""
    ax = plt.subplots(figsize=(7.2, 1.2 + 0.4 * len(times_s)))[1]
    seconds, exact = EngFormatter("s"), EngFormatter("s", places=1)
    values = list(times_s.values())
    ax.barh(list(times_s), values, height=0.6, color="C0")
    for place, value in enumerate(values):
        style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "size": 9}
        ax.annotate(exact(value), (value, place), (5, 0), **style)
    ax.set(title=title, xscale="log", xlabel="time of one call (each mark is ten times the last)")
    ax.set_xlim(min(values) / 5, max(values) * 6)
    ax.xaxis.set_major_formatter(seconds)
    ax.xaxis.set_minor_locator(plt.NullLocator())
    ax.tick_params(axis="y", labelfontfamily="monospace")
    ax.grid(visible=False, axis="y")
    ax.invert_yaxis()
    said = ", ".join(f"{line} {exact(time_s)}" for line, time_s in times_s.items())
    figures.describe(ax, f"Bars on a logarithmic axis: {said}.")
    return ax


def by_block(
    counts: Mapping[int, float], times_s: Mapping[int, float], straight_s: float, n: int
) -> Sequence[Axes]:
    """Axes side by side, for a copy of a transpose in blocks: fetches counted, and time measured.

    counts: {block: fetches per element}. times_s: {block: seconds for n × n elements}. straight_s:
    the time of a copy without a transpose. The least of each is marked, or all that share it.
    """
    per_ns = 1e9 / n**2
    times_ns = {block: time_s * per_ns for block, time_s in times_s.items()}
    axes = plt.subplots(1, 2, figsize=(7.2, 3.4))[1]
    for ax, values in zip(axes, (counts, times_ns), strict=True):
        ax.plot(list(values), list(values.values()), "o", color="C0")
        best = _least(values)
        label = f"least: {_joined(best)}"
        ax.plot(best, [values[b] for b in best], "o", color="C1", markersize=10, label=label)
        ax.set(xscale="log", yscale="log", xlabel="side of a block")
        ax.set_xticks([4**i for i in range(7) if min(values) <= 4**i <= max(values)])
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_locator(plt.NullLocator())
    axes[1].axhline(straight_s * per_ns, color=QUIET, linestyle=(0, (4, 3)), label="straight copy")
    axes[0].axhline(2 / 16, color=QUIET, linestyle=(0, (4, 3)), label="straight copy")
    axes[0].set_yticks([0.1, 0.2, 0.5, 1, 2])
    axes[1].set_yticks([y for y in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if _within(y, axes[1])])
    axes[0].set(title="Counted: 256 × 256, room for 64", ylabel="fetches per element")
    axes[1].set(title=f"Measured: {n} × {n}", ylabel="ns per element")
    for ax in axes:
        ax.legend()
    best, fastest = (_joined(_least(values)) for values in (counts, times_ns))
    figures.describe(
        axes,
        f"Against the side of a block, the counted fetches are least at {best}, and the measured "
        f"time is least at {fastest}. Both rise towards both ends.",
    )
    return axes


def _least(values: Mapping[int, float]) -> list[int]:
    """The keys of the least value: several if they share it."""
    least = min(values.values())
    return [key for key, value in values.items() if value == least]


def _joined(numbers: Sequence[int]) -> str:
    return " and ".join(map(str, numbers))


def pictures(drawn: Mapping[str, Any], *, bar: str = "") -> Sequence[Axes]:
    """Axes side by side. drawn: {title: (rows, columns) numbers}, the smallest in black.

    bar: what the numbers are. With it, one scale from 0 on serves all pictures, and a bar shows it.
    """
    width_in = min(2.1, WIDTH_IN / len(drawn))
    size = (width_in * len(drawn), width_in + 0.3)
    figure, ((*axes,),) = plt.subplots(1, len(drawn), figsize=size, squeeze=False)
    limits = {
        "vmin": 0,
        "vmax": max(float(np.asarray(picture).max()) for picture in drawn.values()),
    }
    for ax, (title, picture) in zip(axes, drawn.items(), strict=True):
        ax.imshow(picture, cmap="gray", **(limits if bar else {}))
        ax.set_title(title, size=11.5 if len(drawn) < 4 else 9)
        ax.axis("off")
    if bar:
        figure.colorbar(axes[-1].images[0], ax=axes, label=bar, shrink=0.85)
    return axes


def _within(y: float, ax: Axes) -> bool:
    low, high = ax.get_ylim()
    return low / 1.5 <= y <= high * 1.5


def _axes_of_lines(number: int, lines: int) -> Sequence[Axes]:
    """Empty axes side by side, with a grey bar behind the visits to each line."""
    size = (7.2, 1.3 + min(0.2 * lines, 5))
    axes = plt.subplots(1, number, figsize=size, sharey=True, squeeze=False)[1][0]
    for ax in axes:
        ax.set(xlabel="step of the walk", ylim=(lines - 0.4, -0.6))
        if lines <= MOST_BARS:
            ax.set(yticks=range(lines))
        ax.margins(x=0.01)
        ax.grid(visible=False)
    axes[0].set_ylabel("cache line")
    return axes


def _visits(ax: Axes, lines: Sequence[int], positions: np.ndarray, fetched: Sequence[bool]) -> None:
    """A dot for each step of a walk: large and coloured if the line is fetched, else small."""
    steps, last = np.arange(len(lines)), max(1, int(positions.max(initial=0)))
    reached = 1 + max(lines, default=0)
    if reached <= MOST_BARS:
        ax.barh(range(reached), len(lines), height=0.86, left=-0.5, color=UNREAD)
    ax.plot(steps, lines, color="#999999", linewidth=0.5, zorder=1)
    limits: dict[str, Any] = {"vmin": -0.06 * last, "vmax": 1.02 * last}
    new = np.asarray(fetched, dtype=bool)
    line = np.asarray(lines)
    ax.scatter(steps[~new], line[~new], color="#bbbbbb", s=4, zorder=2)
    ax.scatter(steps[new], line[new], c=positions[new], cmap=COLOURS, s=11, zorder=3, **limits)


def _fetched(lines: Sequence[int], room: int) -> list[bool]:
    """Which steps find their line no longer, or not yet, in a cache with this room (LRU)."""
    load = functools.lru_cache(maxsize=room)(lambda line: line)
    misses = [load.cache_info().misses for line in lines if load(line) or True]
    return [bool(after - before) for before, after in itertools.pairwise([0, *misses])]


class _Grid:
    """A view's grid: the place of each element, in cells, and its caption."""

    def __init__(self, title: str, view: View) -> None:
        shape, strides, offset = view
        self.title, self.xs, self.ys = title, *_places(shape)
        self.caption = f"shape {shape}\nstrides {strides}" + (
            f", offset {offset}" if offset else ""
        )

    def width_in(self, cell_in: float) -> float:
        """In inches: the width of its cells, or of its caption if that is wider."""
        letters = max(1.25 * len(self.title), *map(len, self.caption.split("\n")))
        return max((1 + _last(self.xs)) * cell_in, 0.066 * letters)


def _read(drawn: Mapping[str, View | None]) -> dict[str, np.ndarray]:
    """{title: positions in the storage, in the order of the indices}."""
    missing = [title for title, view in drawn.items() if view is None]
    if missing:
        raise ValueError(
            f"{missing[0]!r} is None, and there is nothing to draw: "
            "give a view, (shape, strides, offset)"
        )
    return {title: views.positions(view).numpy().reshape(-1) for title, view in drawn.items()}


def _places(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """x and y of each element, in cells: the last axis runs right, the one before it down.

    Further axes run in pages.
    """
    places = [np.zeros(shape), np.zeros(shape)]
    for depth, axis in enumerate(reversed(range(len(shape)))):
        place = places[depth % 2]
        step = 1 if depth < 2 else 1.5 + _last(place)
        place += step * np.arange(shape[axis]).reshape([-1] + [1] * depth)
    return places[0].reshape(-1), places[1].reshape(-1)


def _last(places: np.ndarray) -> float:
    return float(places.max(initial=0.0))


def _side_by_side_in(grids: Sequence[_Grid], cell_in: float) -> float:
    return sum(grid.width_in(cell_in) for grid in grids) + GAP_IN * (len(grids) - 1)


def _cell_in(grids: Sequence[_Grid], cells: int) -> float:
    """The largest cell, in inches, with which the grids fit side by side, and the strip below."""
    for cell_in in np.arange(CELL_IN, 0.04, -0.01).tolist():
        if max(_side_by_side_in(grids, cell_in), cells * cell_in) <= WIDTH_IN:
            break
    return cell_in


def _captions(ax: Axes, left_in: float, top_in: float, grid: _Grid) -> None:
    ax.text(left_in, top_in + 0.38, grid.title, weight="bold", size=10, va="bottom")
    style: dict[str, Any] = {"size": 8, "color": QUIET, "va": "bottom", "linespacing": 1.25}
    ax.text(left_in, top_in + 0.07, grid.caption, **style)


def _canvas(width_in: float, height_in: float) -> Axes:
    """Axes without a frame, in inches."""
    figure = plt.figure(figsize=(width_in + 0.1, height_in + 0.1))
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(-0.05, width_in + 0.05), ylim=(-0.05, height_in + 0.05))
    ax.axis("off")
    return ax


def _cells(
    ax: Axes,
    xs: np.ndarray,
    ys: np.ndarray,
    cell_in: float,
    colours: np.ndarray,
    text: Iterable[object],
) -> None:
    """Draws squares, each with its text in black or white, whichever can be read on its colour."""
    squares = [Rectangle((x, y), cell_in, cell_in) for x, y in zip(xs, ys, strict=True)]
    style: dict[str, Any] = {"edgecolors": "white", "linewidths": 4 * cell_in}
    ax.add_collection(PatchCollection(squares, facecolors=colours, **style))
    size = min(9, 30 * cell_in)
    style = {"size": size, "ha": "center", "va": "center"}
    for x, y, colour, label in zip(xs, ys, colours, text, strict=True):
        ax.text(x + cell_in / 2, y + 0.47 * cell_in, str(label), color=ink(colour), **style)


def compare(got: Any, want: Any, *, title: str = "") -> Sequence[Axes]:
    """Axes with what came, what was wanted, and where they differ; [] if these are no numbers.

    Arrays, tensors or lists of numbers. One axis: curves in one picture. More axes: pictures, with
    all axes but the last one below each other. Arrays of other shapes are drawn without difference.
    """
    try:
        rows, wanted = _rows(got), _rows(want)
    except (TypeError, ValueError, RuntimeError):
        return []
    if rows.size == 0 or wanted.size == 0:
        return []
    if len(rows) == len(wanted) == 1:
        return [_curves(rows[0], wanted[0], title)]
    return _pictures(rows, wanted, title)


def _rows(value: Any) -> np.ndarray:
    """The numbers as (rows, columns) in float64; formats that NumPy lacks are converted."""
    tensor = torch.as_tensor(value).detach().cpu().to(torch.float64)
    return tensor.reshape(-1, tensor.shape[-1] if tensor.ndim else 1).numpy()


def _curves(got: np.ndarray, want: np.ndarray, title: str) -> Axes:
    ax = plt.subplots(figsize=(WIDTH_IN, 2.4))[1]
    alone = "s" if want.size == 1 else ""  # a curve through one point would not be seen
    ax.plot(want, alone, color="C0", label="wanted", drawstyle="steps-mid", markersize=8)
    missing = int(np.isnan(got).sum())
    label = f"got ({missing:,} NaN not drawn)" if missing else "got"
    ax.plot(got, "o", color="C1", markersize=4, label=label)
    ax.set(title=title, xlabel="element")
    ax.locator_params(axis="x", integer=True)
    ax.legend()
    return ax


def _pictures(got: np.ndarray, want: np.ndarray, title: str) -> Sequence[Axes]:
    drawn = {"got": got, "wanted": want}
    if got.shape == want.shape:
        with np.errstate(invalid="ignore"):
            drawn["wrong by"] = np.where(got == want, 0, abs(got - want))
    finite = want[np.isfinite(want)]
    limits: dict[str, Any] = {"vmin": finite.min(initial=0), "vmax": finite.max(initial=0)}
    figure, axes = plt.subplots(1, len(drawn), figsize=(WIDTH_IN, 2.6), layout="constrained")
    for ax, (name, array) in zip(axes, drawn.items(), strict=True):
        scale: dict[str, Any] = {} if name == "wrong by" else limits
        colours = "magma" if name == "wrong by" else COLOURS
        picture = ax.imshow(array, aspect="auto", cmap=colours, interpolation="nearest", **scale)
        ax.set_title(f"{name}: {' × '.join(map(str, array.shape))}", size=9)
        ax.grid(visible=False)
        ax.locator_params(integer=True)
        figure.colorbar(picture, ax=ax, shrink=0.8)
    figure.suptitle(title)
    return list(axes)
