"""Passes with a bug, and the question that minify asks: is this program still changed by it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from common.graphs import LEAVES, Feeds, Program, Row, execute, names, same_bits
from common.graphs.random_programs import EDGES

Rewrite = Callable[[list[Row], str, tuple[int, ...]], tuple[str, tuple[int, ...]]]


def edge_feeds(wanted: Sequence[str]) -> Feeds:
    """All pairs of hard numbers for the first two names; more names get them in other orders."""
    values = np.array([*EDGES, *np.sin(np.arange(1, 12)), 7.25, 1e-9, 123456.789])
    grid = np.meshgrid(values, values)
    pairs = [grid[0].ravel(), grid[1].ravel(), grid[0].ravel()[::-1], grid[1].ravel()[::-1]]
    return {name: pairs[i % 4].copy() for i, name in enumerate(wanted)}


def rewritten(program: Program, rewrite: Rewrite) -> Program:
    """The program after one rewriting of each operator, which may add rows."""
    rows, outputs = program
    made: list[Row] = []
    place: list[int] = []
    for kind, read in rows:
        if kind not in LEAVES:
            kind, read = rewrite(made, kind, tuple(place[i] for i in read))
        made.append((kind, read))
        place.append(len(made) - 1)
    return made, [place[i] for i in outputs]


def _sums_regrouped(
    new: list[Row], op: str, content: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """(a + b) + c becomes a + (b + c)."""
    if op == "add" and new[content[0]][0] == "add":
        a, b = new[content[0]][1]
        new.append(("add", (b, content[1])))
        return "add", (a, len(new) - 1)
    return op, content


def _by_reciprocal(
    new: list[Row], op: str, content: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """a / b becomes a * (1 / b)."""
    if op == "divide":
        new += [("constant", 1.0), ("divide", (len(new), content[1]))]
        return "multiply", (content[0], len(new) - 1)
    return op, content


def _zero_added(new: list[Row], op: str, content: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """-a becomes 0 - a."""
    if op == "negative":
        new.append(("constant", 0.0))
        return "subtract", (len(new) - 1, content[0])
    return op, content


BUGS: dict[str, Rewrite] = {
    "regroups sums": _sums_regrouped,
    "divides by multiplying": _by_reciprocal,
    "subtracts from zero": _zero_added,
}
CRASH = "crashes on an exp, unless there is a sin without a cos"


def fails(bug: str, rows: Sequence[Row], outputs: Sequence[int]) -> bool:
    """Whether the pass with this bug changes a bit of what the program computes, or crashes."""
    if bug == CRASH:
        made = {op for op, _ in rows}
        return "exp" in made and not ("sin" in made and "cos" not in made)
    program = list(rows), list(outputs)
    feeds = edge_feeds(names(program))
    return not same_bits(execute(*program, feeds), execute(*rewritten(program, BUGS[bug]), feeds))
