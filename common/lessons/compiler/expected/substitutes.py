"""Where a substitute differs from its program, and a judge of boxes that cover it: lab 08."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from common.checks import expect, is_whole, show
from common.lessons.compiler import identities, partial_equivalence

ALIKE = "Which inputs hide this? Zeros, ones, equal and symmetric ones may; few random ones do"


def pairs(rng: np.random.Generator) -> Iterator[tuple[str, tuple[int, int]]]:
    """(a name in partial_equivalence.PAIRS, a shape): small ones, edges, and random ones."""
    for name in partial_equivalence.PAIRS:
        for shape in ((3, 40), (5, 9), (1, 17), (4, 1), (2, 8)):
            yield name, shape
        for _ in range(2):
            rows, columns = rng.integers([2, 18], [9, 60]).tolist()
            yield name, (rows, columns)


def places(name: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Where the two programs of a pair differ, at one of two random inputs."""
    original, substitute = partial_equivalence.PAIRS[name]
    differ = np.zeros(shape, bool)
    for _ in range(2):
        x = rng.integers(0, identities.PRIME, shape, dtype=np.uint64)
        differ |= original(x) != substitute(x)
    return differ


def judge_boxes(name: str, shape: tuple[int, int], boxes: Any, rng: np.random.Generator) -> None:
    """Expects boxes that cover each wrong place once, and no other, and that can't be joined."""
    case = f"corrections of the pair {name!r} on {shape[0]} rows, {shape[1]} columns"
    listed = isinstance(boxes, (list, tuple))
    expect(listed, f"{case} gave {show(boxes)}, want a list of boxes.")
    for box in boxes:
        four = isinstance(box, (list, tuple)) and len(box) == 4 and all(map(is_whole, box))
        expect(four, f"{case} gave {show(box)}, want (top, bottom, left, right) in whole numbers.")
        top, bottom, left, right = box
        inside = 0 <= top < bottom <= shape[0] and 0 <= left < right <= shape[1]
        expect(inside, f"{case}: the box {show(box)} is empty, or outside.")
    differ, covered = places(name, shape, rng), np.zeros(shape, int)
    for top, bottom, left, right in boxes:
        covered[top:bottom, left:right] += 1
    draw = functools.partial(_draw, differ, covered)
    _expect_none(differ & (covered == 0), f"{case} misses", f"the programs differ. {ALIKE}", draw)
    _expect_none((covered > 0) & ~differ, f"{case} covers", "the programs agree", draw)
    _expect_none(covered > 1, f"{case} covers more than once", "one box is enough", draw)
    for i, first in enumerate(boxes):
        for second in boxes[:i]:
            both = f"{case}: {tuple(first)} and {tuple(second)} are one box, and so one launch."
            expect(not _joined(first, second), both, draw=draw)


def _expect_none(bad: np.ndarray, case: str, why: str, draw: Any) -> None:
    where = np.argwhere(bad).tolist()
    row, column = where[0] if where else (0, 0)
    expect(not where, f"{case} row {row}, column {column}, where {why}.", draw=draw)


def _joined(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two boxes touch along a whole side of both."""
    (top, bottom, left, right), (top_2, bottom_2, left_2, right_2) = first, second
    if (top, bottom) == (top_2, bottom_2):
        return left == right_2 or right == left_2
    return (left, right) == (left_2, right_2) and (top == bottom_2 or bottom == top_2)


def _draw(differ: np.ndarray, covered: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    axes = plt.subplots(1, 2, figsize=(7.2, 2.2))[1]
    for ax, title, image in zip(
        axes, ("the programs differ", "your boxes"), (differ, covered), strict=True
    ):
        ax.imshow(image, aspect="auto", vmin=0, vmax=2, interpolation="none")
        ax.set(title=title, xlabel="column", ylabel="row")
