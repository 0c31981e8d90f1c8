"""Whose numbers are in which chunk, round by round: the picture of a collective.

A vector is cut into p chunks, as x.tensor_split(p) cuts it. A cell of the picture is a chunk. It
has one stripe for each rank whose numbers were added up in it, in that rank's colour, and the
chunk's letter. What a message or a result holds is found from its numbers: the sum of which ranks'
numbers, and of which chunk, is this? So vectors of random numbers make the clearest pictures.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from nogpu.pictures import QUIET
from nogpu.ranks.events import Message

NOTHING, UNKNOWN, WRONG = "#ececec", "#333333", "#c0392b"
WIDTH_IN = 7.2
ROW, CELL, GAP = 0.7, 0.62, 1.4  # heights of a row and a cell, space between panels, in cell widths
MOST_ROUNDS = 8  # that are drawn
MOST_RANKS = 6  # for which there are colours

# (chunk, rank) of all numbers that a cell sums; None if its numbers fit no such sum.
Cell = frozenset[tuple[int, int]] | None
Row = Sequence[Cell]  # by place: p cells
EMPTY: Cell = frozenset()


class Messages(Protocol):
    """What is drawn of a Trace."""

    world_size: int
    messages: list[Message]

    @property
    def rounds(self) -> int: ...


class Decoder:
    """Finds out whose numbers are summed in a piece of a vector. given: each rank's vector."""

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        self.p = len(given)
        vectors = np.stack([np.asarray(x.detach().double()).ravel() for x in given])
        self.subsets = np.array(list(itertools.product((0, 1), repeat=self.p)))[:, ::-1]
        self.sums = self.subsets @ vectors  # a row per subset of the ranks
        sizes = [len(chunk) for chunk in torch.arange(vectors.shape[1]).tensor_split(self.p)]
        self.starts = [0, *itertools.accumulate(sizes)]

    def row(self, values: Any) -> Row:
        """The p cells that these numbers fill, a part of a vector or all of it."""
        piece = _flat(values)
        n = self.starts[-1]
        if piece is None or not len(piece):
            return [EMPTY] * self.p
        places = dict.fromkeys([*self.starts[:-1], *range(n)])  # chunks' starts come first
        for start in places:
            if start + len(piece) <= n and (row := self._row_at(piece, start, own=True)):
                return row
        whole = self._row_at(piece, 0, own=False) if len(piece) == n else None
        return whole or [None if chunk == 0 else EMPTY for chunk in range(self.p)]

    def _row_at(self, piece: np.ndarray, start: int, own: bool) -> Row | None:
        """The cells if the piece begins at this place. own: None unless every part fits there."""
        row: list[Cell] = [EMPTY] * self.p
        for chunk in range(self.p):
            low, high = (
                max(start, self.starts[chunk]),
                min(start + len(piece), self.starts[chunk + 1]),
            )
            if low < high:
                part = piece[low - start : high - start]
                offset = low - self.starts[chunk]
                others = [] if own else [other for other in range(self.p) if other != chunk]
                fits = (self._sum(part, other, offset) for other in (chunk, *others))
                row[chunk] = next((cell for cell in fits if cell is not None), None)
                if own and row[chunk] is None:
                    return None
        return row

    def _sum(self, part: np.ndarray, chunk: int, offset: int) -> Cell:
        """Whose sum this part of a chunk is; None if it is no such sum."""
        start = self.starts[chunk] + offset
        if start + len(part) > self.starts[chunk + 1]:
            return None
        wrong = np.abs(self.sums[:, start : start + len(part)] - part) > 1e-4
        fits = np.flatnonzero(~wrong.any(axis=1))
        if not len(fits):
            return None
        return frozenset((chunk, rank) for rank in range(self.p) if self.subsets[fits[0], rank])


def rounds(
    trace: Messages,
    given: Sequence[torch.Tensor],
    got: Sequence[Any] | None = None,
    want: Sequence[Any] | None = None,
    *,
    title: str = "",
) -> Axes | None:
    """Axes with what each rank receives in each round, and what it returned beside what it should.

    given: each rank's vector before the run. got, want: by rank, vectors or chunks; None if a rank
    holds nothing. A row that differs is marked. Rounds are left out where no message has values
    (in collectives). None if there are too many ranks to draw.
    """
    if not 1 < trace.world_size <= MOST_RANKS or not given[0].numel():
        return None
    decoder = Decoder(given)
    panels: dict[str, list[Row]] = {"before": [decoder.row(x) for x in given]}
    notes: dict[str, list[str]] = {}
    known = any(message.values is not None for message in trace.messages)
    for number in range(1, 1 + min(trace.rounds, MOST_ROUNDS)) if known else ():
        arrives = {m.dst: m for m in trace.messages if m.depth == number}
        name = f"round {number} brings"
        values = [m.values if (m := arrives.get(rank)) else None for rank in range(decoder.p)]
        panels[name] = list(map(decoder.row, values))
        notes[name] = [f"←{m.src}" if (m := arrives.get(r)) else "" for r in range(decoder.p)]
    if known and trace.rounds > MOST_ROUNDS:
        panels[f"... {trace.rounds} rounds"] = [[EMPTY] * decoder.p] * decoder.p
    for name, by_rank in (("returned", got), ("wanted", want)):
        if by_rank is not None:
            panels[name] = [decoder.row(by_rank[r]) for r in range(min(decoder.p, len(by_rank)))]
    if got is not None and want is not None:
        notes["returned"] = ["" if _same(a, b) else "✗" for a, b in zip(got, want, strict=False)]
    return draw(panels, notes=notes, title=title)


def draw(
    panels: Mapping[str, Sequence[Row]],
    *,
    columns: int = 3,
    notes: Mapping[str, Sequence[str]] | None = None,
    title: str = "",
) -> Axes:
    """Axes with one panel per title, one row per rank and one cell per chunk.

    notes: {title of a panel: a short text beside each row}; ✗ marks a wrong row.
    """
    p = len(next(iter(panels.values())))
    rows = -(-len(panels) // columns)
    width, height = columns * (p + GAP) - GAP + 2.4, rows * (ROW * p + GAP)
    ax = plt.subplots(figsize=(WIDTH_IN, WIDTH_IN * (height + 0.6) / width))[1]
    for place, (name, by_rank) in enumerate(panels.items()):
        left, top = place % columns * (p + GAP), place // columns * (ROW * p + GAP)
        ax.text(left, top - 0.12, name, weight="bold", size=10, va="bottom")
        for rank, row in enumerate(by_rank):
            y = top + ROW * rank
            ax.add_patch(Rectangle((left, y), p - 0.06, CELL, color=NOTHING))
            _row(ax, left, y, row)
            side: dict[str, Any] = {"size": 8, "va": "center"}
            if not place % columns:
                ax.text(left - 0.2, y + CELL / 2, f"rank {rank}", ha="right", color=QUIET, **side)
            note = (notes or {}).get(name, [""] * p)[rank]
            colour = WRONG if note == "✗" else QUIET
            ax.text(left + p + 0.02, y + CELL / 2, note, color=colour, **side)
    ax.set(xlim=(-1.6, width - 1.6), ylim=(height - GAP, -0.9), aspect="equal", title=title)
    ax.axis("off")
    return ax


def _row(ax: Axes, left: float, y: float, row: Row) -> None:
    style: dict[str, Any] = {"weight": "bold", "ha": "center", "va": "center", "size": 9}
    for place, cell in enumerate(row):
        x = left + place
        if cell is None:
            ax.add_patch(Rectangle((x, y), 0.94, CELL, color=UNKNOWN, linewidth=0))
        parts = sorted(cell or ())
        for i, (_, rank) in enumerate(parts):
            height = CELL / len(parts)
            corner = x, y + height * i
            ax.add_patch(Rectangle(corner, 0.94, height, color=f"C{rank}", linewidth=0))
        text = "?" if cell is None else "".join(sorted({"abcdefgh"[chunk] for chunk, _ in parts}))
        ax.text(x + 0.47, y + CELL / 2, text, color="white", **style)


def _flat(values: Any) -> np.ndarray | None:
    """The numbers as a flat array; None if these are no numbers."""
    if isinstance(values, torch.Tensor):
        return np.asarray(values.detach().double()).ravel()
    return np.asarray(values, dtype=float) if isinstance(values, list) else None


def _same(got: Any, want: Any) -> bool:
    mine, theirs = _flat(got), _flat(want)
    if mine is None or theirs is None:
        return theirs is None  # nothing is wanted of this rank
    return mine.shape == theirs.shape and bool(np.allclose(mine, theirs))
