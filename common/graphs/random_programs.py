"""Random programs and inputs on which a compiler's pass must not change a bit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from common.graphs.programs import Feeds, Program
from common.graphs.rows import LEAVES, Row

if TYPE_CHECKING:
    import numpy as np

CONSTANTS = (0.0, -0.0, 1.0, 2.0, 3.0, 0.1, -1.0)
UNARY = ("negative", "sin", "exp", "relu")
BINARY = ("add", "subtract", "multiply", "divide")
EDGES = (0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e308, 5e-324, 0.1, 3.0)
REPEATED = 0.3  # the share of operators that repeat an earlier one


def random_program(rng: np.random.Generator, size: int = 10, *, effects: bool = True) -> Program:
    """A program of this many operators on x and y, with repetitions, constants and dead code.

    effects: whether it also reads and writes a buffer b, and draws random numbers.
    """
    rows: list[Row] = [("placeholder", "x"), ("placeholder", "y")]
    rows += [("buffer", "b")] if effects else []
    rows += [("constant", float(c)) for c in rng.choice(CONSTANTS, 3)]
    leaves = len(rows)
    while len(rows) < leaves + size:
        rows.append(_row(rng, rows, effects))
    made = [i for i, (op, _) in enumerate(rows) if op not in LEAVES]
    outputs = rng.choice(made, min(2, len(made)), replace=False).tolist()
    return rows, outputs


def _row(rng: np.random.Generator, rows: Sequence[Row], effects: bool) -> Row:
    """One more operator: a repetition of an earlier one, a known one on any values, an effect."""
    made = [row for row in rows if row[0] not in LEAVES]
    chance = rng.random()
    if made and chance < REPEATED:
        op, content = _one_of(rng, made)
        return op, tuple(content[::-1]) if op in BINARY and rng.random() < 0.3 else tuple(content)
    values = [i for i, (op, _) in enumerate(rows) if op != "buffer"]
    a, b = _one_of(rng, values), _one_of(rng, values)
    if effects and chance < 0.5:
        x = _one_of(rng, [i for i in values if not _is_scalar(rows, i)])
        return _one_of(rng, [("read", (2,)), ("write", (2, x)), ("random", (x,))])
    if chance < 0.65:
        return _one_of(rng, UNARY), (a,)
    return _one_of(rng, BINARY), (a, b)


def _one_of(rng: np.random.Generator, items: Sequence[Any]) -> Any:
    """What rng.choice gives, much quicker for a few items: it first makes them an array."""
    return items[int(rng.integers(len(items)))]


def _is_scalar(rows: Sequence[Row], i: int) -> bool:
    """Whether this value is computed from constants alone, so that it has no axis."""
    op, content = rows[i]
    if op in LEAVES:
        return op == "constant"
    return op != "read" and all(_is_scalar(rows, j) for j in content)


def random_feeds(rng: np.random.Generator, names: Iterable[str], size: int = 24) -> Feeds:
    """Arrays of numbers of all magnitudes, and of EDGES: NaN, infinities, -0.0 and the like."""
    import numpy as np

    feeds: dict[str, Any] = {}
    for name in names:
        plain = rng.normal(size=size) * 10.0 ** rng.integers(-3, 4, size)
        feeds[name] = np.where(rng.random(size) < 0.5, rng.choice(EDGES, size), plain)
    return feeds
