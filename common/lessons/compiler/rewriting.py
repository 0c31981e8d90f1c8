"""A program, and rewritings of it to choose from: some change no bit, some do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from common import graphs
from common.graphs import LEAVES, Program, Row, ancestors, chosen, execute, same_bits
from common.lessons.compiler.buggy_passes import edge_feeds

# What the rows made so far and the next operator become: the number of a row, or None.
Rule = Callable[[list[Row], str, tuple[int, ...]], int | None]


def program() -> Program:
    """((((x - 0) * 1) + 0) / 4) * -(-((x + 3) + 4)) - (x - x)."""
    rows: list[Row] = [("placeholder", "x")]
    rows += [("constant", value) for value in (0.0, 1.0, 3.0, 4.0)]
    rows += [("subtract", (0, 1)), ("multiply", (5, 2)), ("add", (6, 1)), ("divide", (7, 4))]
    rows += [("add", (0, 3)), ("add", (9, 4)), ("negative", (10,)), ("negative", (11,))]
    rows += [("multiply", (8, 12)), ("subtract", (0, 0)), ("subtract", (13, 14))]
    return rows, [len(rows) - 1]


def _neutral(operator: str, number: float) -> Rule:
    """x op number becomes x."""

    def rule(new: list[Row], op: str, content: tuple[int, ...]) -> int | None:
        constant = op == operator and new[content[1]][0] == "constant"
        return content[0] if constant and new[content[1]][1] == number else None

    return rule


def _double_negative(new: list[Row], op: str, content: tuple[int, ...]) -> int | None:
    inner = new[content[0]]
    return inner[1][0] if op == "negative" and inner[0] == "negative" else None


def _difference_of_one(new: list[Row], op: str, content: tuple[int, ...]) -> int | None:
    if op != "subtract" or content[0] != content[1]:
        return None
    new.append(("constant", 0.0))
    return len(new) - 1


def _sum_of_constants(new: list[Row], op: str, content: tuple[int, ...]) -> int | None:
    if op != "add" or new[content[0]][0] != "add" or new[content[1]][0] != "constant":
        return None
    x, a = new[content[0]][1]
    if new[a][0] != "constant":
        return None
    new.append(("constant", new[a][1] + new[content[1]][1]))
    new.append(("add", (x, len(new) - 1)))
    return len(new) - 1


def _reciprocal(new: list[Row], op: str, content: tuple[int, ...]) -> int | None:
    if op != "divide" or new[content[1]][0] != "constant":
        return None
    new.append(("constant", 1 / new[content[1]][1]))
    new.append(("multiply", (content[0], len(new) - 1)))
    return len(new) - 1


RULES: dict[str, Rule] = {
    "x − 0 → x": _neutral("subtract", 0.0),
    "x · 1 → x": _neutral("multiply", 1.0),
    "x + 0 → x": _neutral("add", 0.0),
    "(x + a) + b → x + (a + b)": _sum_of_constants,
    "x / 4 → x · 0.25": _reciprocal,
    "−(−x) → x": _double_negative,
    "x − x → 0": _difference_of_one,
}
FEWEST = 7  # operators that are left by the rules that change no bit


def rewritten(rules: Collection[str]) -> Program:
    """The program after these rules, without what has become dead."""
    rows, outputs = program()
    made: list[Row] = []
    place: list[int] = []
    for kind, read in rows:
        found = None
        if kind not in LEAVES:
            read = tuple(place[i] for i in read)
            tries = (RULES[name](made, kind, read) for name in rules)
            found = next((row for row in tries if row is not None), None)
        if found is None:
            made.append((kind, read))
            found = len(made) - 1
        place.append(found)
    ends = [place[i] for i in outputs]
    return chosen(made, ends, ancestors(made, ends))


def counterexample(rules: Collection[str]) -> tuple[float, float, float] | None:
    """(x, before, after) where these rules change a bit, if they do."""
    feeds = edge_feeds(["x"])
    (before, *_), (after, *_) = (execute(*made, feeds) for made in (program(), rewritten(rules)))
    for x, a, b in zip(feeds["x"], before, np.broadcast_to(after, before.shape), strict=True):
        if not same_bits(a, b):
            return float(x), float(a), float(b)
    return None


def verdict(rules: Collection[str]) -> str:
    """What to say about a choice of rules."""
    left, found = graphs.operators(rewritten(rules)[0]), counterexample(rules)
    if found is not None:
        x, before, after = found
        return f"Counterexample: at x = {x!r} it was {before!r} and is now {after!r}."
    reached = "Target reached!" if left <= FEWEST else f"The target is {FEWEST}."
    return f"{left} operators, and no bit has changed. {reached}"


def draw(rules: Sequence[str]) -> Any:
    """Axes with the program after these rules."""
    made = rewritten(rules)
    return graphs.draw(*made, title=f"{graphs.operators(made[0])} operators")
