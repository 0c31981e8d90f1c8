"""Pairs of programs that agree at most places, and what it costs to correct the others: lab 08.

A program takes integers modulo PRIME, uint64 (rows, columns), and gives an array of this shape. In
a pair, the second program is a substitute for the first: cheaper, but wrong at some places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from common.lessons.compiler.identities import PRIME

Program = Callable[[np.ndarray], np.ndarray]
Box = tuple[int, int, int, int]  # top, bottom, left, right; bottom and right are outside
WIDTH = 16  # of the window that is summed
TAPS = (3, 5, 7)  # of the filter


class Additions:
    """How many additions and subtractions of two numbers were made."""

    made = 0


def add(*terms: np.ndarray) -> np.ndarray:
    """The sum modulo PRIME."""
    Additions.made += (len(terms) - 1) * terms[0].size
    return np.sum(terms, axis=0) % np.uint64(PRIME)


def subtract(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The difference modulo PRIME."""
    Additions.made += x.size
    return (x + np.uint64(PRIME) - y) % np.uint64(PRIME)


def before(x: np.ndarray, steps: int) -> np.ndarray:
    """At each place what stands so many columns before it, and 0 where nothing does."""
    steps = min(steps, x.shape[1])
    return np.pad(x, ((0, 0), (steps, 0)))[:, : x.shape[1]]


def running_sum(x: np.ndarray) -> np.ndarray:
    """The sum of each row up to each place."""
    Additions.made += x.size
    return np.cumsum(x, axis=1) % np.uint64(PRIME)


def window_sum(x: np.ndarray, width: int = WIDTH) -> np.ndarray:
    """The sum of each place and the width - 1 places before it."""
    return add(*(before(x, steps) for steps in range(width)))


def rolled_sum(x: np.ndarray) -> np.ndarray:
    """The same from running sums; np.roll brings the end of a row to its beginning."""
    total = running_sum(x)
    return subtract(total, np.roll(total, WIDTH, axis=1))


def filtered(x: np.ndarray) -> np.ndarray:
    """Each row by itself: a sum of three neighbours with weights, and zeros around the row."""
    left, middle, right = (np.uint64(tap) for tap in TAPS)
    after = before(x[:, ::-1], 1)[:, ::-1]
    return add(left * before(x, 1), middle * x, right * after)


def filtered_as_one(x: np.ndarray) -> np.ndarray:
    """All rows laid into one long row, so that one launch does for all."""
    return filtered(x.reshape(1, -1)).reshape(x.shape)


def summed_in_blocks(x: np.ndarray) -> np.ndarray:
    """Running sums that begin again every 8 columns, so that all blocks run at once."""
    blocks = [running_sum(x[:, first : first + 8]) for first in range(0, x.shape[1], 8)]
    return np.concatenate(blocks, axis=1)


def squared(x: np.ndarray) -> np.ndarray:
    return x * x % np.uint64(PRIME)


def squared_below(x: np.ndarray) -> np.ndarray:
    """Squares from the second row and column on; above and to the left, x itself."""
    result = x.copy()
    result[1:, 1:] = squared(x[1:, 1:])
    return result


def mirrored_sum(x: np.ndarray) -> np.ndarray:
    """x plus x read from the end of each row."""
    return add(x, x[:, ::-1])


def doubled(x: np.ndarray) -> np.ndarray:
    return add(x, x)


PAIRS: dict[str, tuple[Program, Program]] = {
    "window": (window_sum, rolled_sum),
    "filter": (filtered, filtered_as_one),
    "blocks": (running_sum, summed_in_blocks),
    "squares": (squared, squared_below),
    "mirror": (mirrored_sum, doubled),
    "same": (doubled, lambda x: add(subtract(x, x), x, x)),
}


def corrected(x: np.ndarray, boxes: Sequence[Box]) -> np.ndarray:
    """The sums of windows from running sums, where those in boxes are added up term by term."""
    result = rolled_sum(x)
    for top, bottom, left, right in boxes:
        first = max(0, left - WIDTH + 1)
        again = window_sum(x[top:bottom, first:right])
        result[top:bottom, left:right] = again[:, left - first :]
    return result


def sums(x: np.ndarray, boxes: Sequence[Box]) -> list[str]:
    """A line for each way to sum windows: additions per element, and how many results are wrong."""
    lines, want = [], window_sum(x)
    ways = {"term by term": window_sum, "running sums": rolled_sum}
    for name, way in (ways | {"corrected": lambda x: corrected(x, boxes)}).items():
        earlier = Additions.made
        wrong = int((way(x) != want).sum())
        additions = (Additions.made - earlier) / x.size
        lines.append(f"{name:13} {additions:6.2f} additions per element, {wrong:5} results wrong")
    return lines
