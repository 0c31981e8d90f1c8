"""Diagrams of a storage: the cell of each element of a view, and the cache lines of a walk."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from common import views
from common.figures import QUIET, ink
from common.views import View

COLOURS = "viridis"
UNREAD = (0.94, 0.94, 0.94, 1.0)
LINE_BYTES = 64
WIDTH_IN, CELL_IN, GAP_IN = 7.2, 0.34, 0.4
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


def walk(drawn: Mapping[str, View | None], *, itemsize: int = 4) -> Sequence[Axes]:
    """Axes, one per view, with the cache line that each step of a walk reads, last axis innermost.

    drawn: {title: view}, all of one storage, which begins at the start of a line of 64 bytes.
    Colours are positions in the storage. itemsize: bytes per element.
    """
    read = _read(drawn)
    last = max(int(positions.max()) for positions in read.values())
    lines = 1 + last * itemsize // LINE_BYTES
    _, axes = plt.subplots(
        1, len(drawn), figsize=(7.2, 1.1 + 0.2 * lines), sharey=True, squeeze=False
    )
    for ax, (title, positions) in zip(axes[0], read.items(), strict=True):
        steps, line = np.arange(len(positions)), positions * itemsize // LINE_BYTES
        ax.barh(range(lines), len(positions), height=0.86, left=-0.5, color=UNREAD)
        ax.plot(steps, line, color="#999999", linewidth=0.5, zorder=1)
        limits: dict[str, Any] = {"vmin": -0.06 * last, "vmax": 1.02 * last}
        ax.scatter(steps, line, c=positions, cmap=COLOURS, s=9, zorder=2, **limits)
        ax.set(title=title, xlabel="step of the walk")
        ax.set(ylim=(lines - 0.4, -0.6), yticks=range(lines))
        ax.margins(x=0.01)
        ax.grid(visible=False)
    axes[0, 0].set_ylabel("cache line")
    return axes[0]


def pictures(drawn: Mapping[str, Any]) -> Sequence[Axes]:
    """Axes side by side. drawn: {title: (rows, columns) numbers}, the smallest in black."""
    axes = plt.subplots(1, len(drawn), figsize=(2.1 * len(drawn), 2.4), squeeze=False)[1][0]
    for ax, (title, picture) in zip(axes, drawn.items(), strict=True):
        ax.imshow(picture, cmap="gray")
        ax.set_title(title)
        ax.axis("off")
    return axes


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
