"""The rows of a graph: what they are, what they read, and random ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

LEAVES = ("placeholder", "constant", "buffer")

# (op, inputs): the numbers of earlier rows; a leaf has its name there, a constant its value.
Row = tuple[str, Any]


def operators(rows: Iterable[Row]) -> int:
    """How many rows are operators, not leaves."""
    return sum(op not in LEAVES for op, _ in rows)


def inputs(row: Row) -> tuple[int, ...]:
    """The numbers of the rows that a row reads, none for a leaf."""
    op, inputs = row
    return () if op in LEAVES else tuple(inputs)


def ancestors(rows: Sequence[Row], outputs: Iterable[int]) -> set[int]:
    """The numbers of the rows that these outputs are computed from, themselves included."""
    reached = set(outputs)
    for i in reversed(range(len(rows))):
        reached.update(inputs(rows[i]) if i in reached else ())
    return reached


def random_graph(rng: np.random.Generator, size: int, placeholders: int) -> list[Row]:
    """A graph of about `size` smooth element-wise operators on x0, x1, ..., ending in a sum.

    Inputs are drawn among all earlier rows, so that values fan out. Sines keep every value and
    every divisor in range.
    """
    rows: list[Row] = [("placeholder", f"x{i}") for i in range(placeholders)]
    while len(rows) < placeholders + size:
        a, b = rng.integers(0, len(rows), 2).tolist()
        op = str(rng.choice(["add", "subtract", "multiply", "divide", "sin", "cos", "tanh"]))
        n = len(rows)
        if op in ("sin", "cos", "tanh"):
            rows.append((op, (a,)))
        elif op == "divide":
            rows += [("sin", (b,)), ("exp", (n,)), ("divide", (a, n + 1)), ("sin", (n + 2,))]
        else:
            rows += [(op, (a, b)), ("sin", (n,))]
    for leaf in range(placeholders):  # every placeholder is used
        rows.append(("multiply", (len(rows) - 1, leaf)))
    return [*rows, ("sum", (len(rows) - 1,))]
