"""Diagrams of a storage: which of its cells each element of a view is, and which cache lines a walk passes."""

import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from common import views
from common.figures import QUIET, ink

COLOURS = "viridis"
UNREAD = (0.94, 0.94, 0.94, 1.0)
LINE_BYTES = 64
WIDTH_IN, CELL_IN, GAP_IN, CAPTION_IN = (
    7.2,
    0.34,
    0.4,
    0.62,
)  # caption: three lines of text above a grid


def buffer(drawn, *, cells=None, text=None):
    """Axes with the storage as a strip of cells and, above it, the grid of each view: equal colours are the same cell.

    drawn: {title: view}, up to four axes a view, all of one storage. cells: how many the storage has (by default up to
    the last one that is read). text: what stands in each cell of the storage (by default its position).
    """
    read = _read(drawn)
    grids = {title: _grid(view[0]) for title, view in drawn.items()}
    captions = {title: _caption(view) for title, view in drawn.items()}
    cells = cells or 1 + max(
        (int(positions.max()) for positions in read.values() if positions.size), default=0
    )
    text = range(cells) if text is None else text
    colours = plt.get_cmap(COLOURS)(np.linspace(0.06, 0.98, cells))

    columns = [
        (1 + _last(xs), 0.066 * max(1.25 * len(title), *map(len, captions[title].split("\n"))))
        for title, (xs, _) in grids.items()
    ]  # a grid's width in cells, its caption's in inches
    cell_in = _cell_in(columns, cells)
    rooms_in = [max(cells_wide * cell_in, caption_in) for cells_wide, caption_in in columns]
    width_in = max(sum(rooms_in) + GAP_IN * (len(rooms_in) - 1), cells * cell_in)
    top_in = (
        2.9 + max(_last(ys) for _, ys in grids.values())
    ) * cell_in  # of the grids; the strip is one cell high
    ax = _canvas(width_in, top_in + CAPTION_IN)

    left_in = 0.0
    for (title, (xs, ys)), room_in in zip(grids.items(), rooms_in, strict=True):
        ax.text(left_in, top_in + 0.38, title, weight="bold", size=10, va="bottom")
        ax.text(
            left_in,
            top_in + 0.07,
            captions[title],
            size=8,
            color=QUIET,
            va="bottom",
            linespacing=1.25,
        )
        _cells(
            ax,
            left_in + cell_in * xs,
            top_in - cell_in * (ys + 1),
            cell_in,
            colours[read[title]],
            [text[p] for p in read[title]],
        )
        left_in += room_in + GAP_IN
    is_read = np.isin(np.arange(cells), np.concatenate(list(read.values())))
    _cells(
        ax,
        cell_in * np.arange(cells),
        np.zeros(cells),
        cell_in,
        np.where(is_read[:, None], colours, UNREAD),
        text,
    )
    ax.text(0, cell_in + 0.03, "storage", size=8, color=QUIET, va="bottom")
    return ax


def permuted_and_sliced(shape=(3, 4), order=(1, 0), start=0, step=1):
    """Axes of `buffer` for x = arange(...).view(shape) and x.permute(order)[start::step], as PyTorch has them."""
    x = torch.arange(math.prod(shape)).view(shape)
    taken = (
        ""
        if (start, step) == (0, 1)
        else f"[{start or ''}::{step}]"
        if step != 1
        else f"[{start}:]"
    )
    title = f"x.permute{tuple(order)}{taken}".replace(",)", ")")
    return buffer(
        {"x": views.of(x), title: views.of(x.permute(order)[start::step])}, cells=x.numel()
    )


def walk(drawn, *, itemsize=4):
    """Axes, one a view, with the cache line that each step of a walk reads, the last axis innermost.

    drawn: {title: view}, all of one storage, which begins where a line of 64 bytes does; colours are positions in it.
    itemsize: bytes an element.
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
        ax.scatter(
            steps,
            line,
            c=positions,
            cmap=COLOURS,
            s=9,
            vmin=-0.06 * last,
            vmax=1.02 * last,
            zorder=2,
        )
        ax.set(
            title=title, xlabel="step of the walk", ylim=(lines - 0.4, -0.6), yticks=range(lines)
        )
        ax.margins(x=0.01)
        ax.grid(visible=False)
    axes[0, 0].set_ylabel("cache line")
    return axes[0]


def pictures(drawn):
    """Axes, one a picture, side by side. drawn: {title: (rows, columns) numbers}, black where they are smallest."""
    axes = plt.subplots(1, len(drawn), figsize=(2.1 * len(drawn), 2.4), squeeze=False)[1][0]
    for ax, (title, picture) in zip(axes, drawn.items(), strict=True):
        ax.imshow(picture, cmap="gray")
        ax.set_title(title)
        ax.axis("off")
    return axes


def _read(drawn):
    """{title: positions in the storage, in the order of the indices}."""
    none = [title for title, view in drawn.items() if view is None]
    if none:
        raise ValueError(
            f"{none[0]!r} is None, and there is nothing to draw: give a view, (shape, strides, offset)"
        )
    return {title: views.positions(view).numpy().reshape(-1) for title, view in drawn.items()}


def _grid(shape):
    """x and y of each element, in cells: the last axis runs right, the one before it down, further ones in pages."""
    places = [np.zeros(shape), np.zeros(shape)]
    for depth, axis in enumerate(reversed(range(len(shape)))):
        place = places[depth % 2]
        step = 1 if depth < 2 else 1.5 + _last(place)
        place += step * np.arange(shape[axis]).reshape([-1] + [1] * depth)
    return places[0].reshape(-1), places[1].reshape(-1)


def _last(places):
    return float(places.max()) if places.size else 0.0


def _caption(view) -> str:
    shape, strides, offset = view
    return f"shape {shape}\nstrides {strides}" + (f", offset {offset}" if offset else "")


def _cell_in(columns, cells):
    """The largest cell, in inches, with which the grids stand side by side and the strip fits below."""
    for cell_in in np.arange(CELL_IN, 0.04, -0.01):
        grids_in = sum(max(cells_wide * cell_in, caption_in) for cells_wide, caption_in in columns)
        if max(grids_in + GAP_IN * (len(columns) - 1), cells * cell_in) <= WIDTH_IN:
            break
    return cell_in


def _canvas(width_in, height_in):
    """Axes without a frame that measure in inches."""
    figure = plt.figure(figsize=(width_in + 0.1, height_in + 0.1))
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(-0.05, width_in + 0.05), ylim=(-0.05, height_in + 0.05))
    ax.axis("off")
    return ax


def _cells(ax, xs, ys, cell_in, colours, text) -> None:
    """Draws squares, each with its text in black or white, whichever can be read on its colour."""
    squares = [Rectangle((x, y), cell_in, cell_in) for x, y in zip(xs, ys, strict=True)]
    ax.add_collection(
        PatchCollection(squares, facecolors=colours, edgecolors="white", linewidths=4 * cell_in)
    )
    size = min(9, 30 * cell_in)
    for x, y, colour, label in zip(xs, ys, colours, text, strict=True):
        ax.text(
            x + cell_in / 2,
            y + 0.47 * cell_in,
            str(label),
            size=size,
            color=ink(colour),
            ha="center",
            va="center",
        )
