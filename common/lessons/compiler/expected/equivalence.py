"""Pairs of programs that are equal or not, and programs to be minified: lab 08's part 2."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common import graphs
from common.checks import expect, show
from common.graphs import (
    LEAVES,
    Program,
    Row,
    execute,
    names,
    random_program,
    same_bits,
    without,
)
from common.lessons.compiler import buggy_passes
from common.lessons.compiler.expected.passes import (
    expect_program,
    reference_dead_code,
    reference_subexpressions,
)

X, Y, B = ("placeholder", "x"), ("placeholder", "y"), ("buffer", "b")
MOST_ELEMENTS = 100_000


@dataclass(frozen=True)
class Pair:
    """Two programs. `differ` says where they differ; it is "" if they are equal."""

    first: Program
    second: Program
    differ: str = ""


def pairs(rng: np.random.Generator) -> Iterator[Pair]:
    """Pairs that differ only at hard inputs, then pairs that are equal."""
    for differ, first, second in [*_ordinary(), *_hard(), *_unseen()]:
        yield Pair(_program(first), _program(second), differ)
    for _ in range(20):
        program = random_program(rng)
        yield Pair(program, reference_subexpressions(*reference_dead_code(*program)))
    same = [X, Y, ("multiply", (0, 1))], [X, Y, ("multiply", (1, 0))]
    yield Pair(_program(same[0]), _program(same[1]))
    signs = [X, ("step", (0,)), ("negative", (0,)), ("step", (2,)), ("add", (1, 3))]
    yield Pair(_program([*signs, ("multiply", (0, 4))]), _program([X]))


def _program(rows: Sequence[Row]) -> Program:
    return list(rows), [len(rows) - 1]


def _c(value: float) -> Row:
    return "constant", value


def _ordinary() -> list[tuple[str, list[Row], list[Row]]]:
    return [
        ("at almost any input", [X, ("sin", (0,))], [X, ("cos", (0,))]),
        ("in the last bit of some inputs",
         [X, _c(3.0), ("divide", (0, 1))], [X, _c(1 / 3), ("multiply", (0, 1))]),
        ("in the last bit of some inputs",
         [X, _c(0.1), ("add", (0, 1)), _c(0.2), ("add", (2, 3))],
         [X, _c(0.1 + 0.2), ("add", (0, 1))]),
        ("where x and y differ", [X, Y, ("subtract", (0, 1))], [X, Y, ("subtract", (1, 0))]),
    ]  # fmt: skip


def _hard() -> list[tuple[str, list[Row], list[Row]]]:
    product = ("multiply", (0, 1))
    return [
        ("at x = -0.0 alone", [X, _c(0.0), ("add", (0, 1))], [X]),
        ("where x is infinite", [X, ("subtract", (0, 0))], [X, _c(0.0), ("step", (0,)),
         _c(0.0), ("multiply", (2, 3))]),
        ("at x = -infinity alone",
         [X, ("negative", (0,)), ("relu", (1,)), ("add", (0, 2))], [X, ("relu", (0,))]),
        ("where 2 x overflows", [X, _c(2.0), product, ("divide", (2, 1))], [X]),
        ("where x is as small as 5e-324",
         [X, _c(2.0), ("divide", (0, 1)), ("multiply", (2, 1))], [X]),
        ("where x and y are equal", [X, Y, ("subtract", (0, 1)), ("step", (2,))],
         [X, Y, ("subtract", (1, 0)), ("step", (2,)), _c(1.0), ("subtract", (4, 3))]),
    ]  # fmt: skip


def _unseen() -> list[tuple[str, list[Row], list[Row]]]:
    drawn = ("random", (0,))
    return [
        ("in what b holds afterwards", [X, B, ("write", (1, 0)), ("sin", (0,))],
         [X, B, ("sin", (0,))]),
        ("in how often the generator was used", [X, drawn, drawn, ("sin", (0,))],
         [X, drawn, ("sin", (0,))]),
        ("where b and x differ", [X, B, ("read", (1,)), ("write", (1, 0)), ("add", (0, 2))],
         [X, B, ("write", (1, 0)), ("read", (1,)), ("add", (0, 3))]),
    ]  # fmt: skip


def judge_pair(pair: Pair, feeds: Any) -> None:
    """Expects feeds at which the two programs differ, or None if they are equal."""
    first, second = (graphs.formula(*program) for program in (pair.first, pair.second))
    case = f"counterexample of `{first}` and `{second}`"
    draw = functools.partial(_draw_pair, pair)
    if not pair.differ:
        expect(
            feeds is None,
            f"{case} gave {show(feeds)}, but the programs are equal: "
            "want None. (0.0 == -0.0, and NaN is not equal to itself: compare by same_bits.)",
        )
        return
    missed = f"{case} gave None, but they differ {pair.differ}."
    expect(feeds is not None, missed, draw=draw)
    expect(isinstance(feeds, dict), f"{case} gave {show(feeds)}, want a dict {{name: array}}.")
    wanted = names(pair.first, pair.second)
    expect(sorted(feeds) == wanted, f"{case} gave arrays for {sorted(feeds)}, want {wanted}.")
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    shapes = {x.shape for x in arrays.values()}
    good = all(x.dtype == np.float64 for x in arrays.values()) and len(shapes) == 1
    expect(good, f"{case} gave {show(feeds)}, want float64 arrays of one shape.")
    expect(sum(x.size for x in arrays.values()) <= MOST_ELEMENTS, f"{case}: the arrays are huge.")
    differ = not same_bits(execute(*pair.first, arrays), execute(*pair.second, arrays))
    expect(differ, f"{case} gave {show(feeds)}, but there the two agree bit for bit.", draw=draw)


def _draw_pair(pair: Pair) -> None:
    for title, program in (("first", pair.first), ("second", pair.second)):
        graphs.draw(*program, title=title)


@dataclass(frozen=True)
class Failing:
    """A program on which a pass with this bug changes a bit."""

    bug: str
    program: Program


def failing_programs(rng: np.random.Generator) -> Iterator[Failing]:
    """Programs on which each bug shows, and on which leaving out one operator is not enough."""
    for bug in buggy_passes.BUGS:
        found = 0
        while found < 4:
            rows, _ = random_program(rng, 12, effects=False)
            program = reference_dead_code(rows, [len(rows) - 1])
            if graphs.operators(program[0]) > 2 and buggy_passes.fails(bug, *program):
                found += 1
                yield Failing(bug, program)
    for ops in (("sin", "cos", "exp"), ("cos", "sin", "exp"), ("cos", "tanh", "sin", "exp", "sin")):
        chain = [X, *((op, (i,)) for i, op in enumerate(ops))]
        yield Failing(buggy_passes.CRASH, (chain, [len(ops)]))
    yield Failing(buggy_passes.CRASH, ([X, ("exp", (0,))], [1]))


def judge_minified(failing: Failing, answer: Any) -> int:
    """The operators that are left; expects a program that fails and is 1-minimal."""
    before = graphs.formula(*failing.program)
    case = f"minify of `{before}`, where a pass {failing.bug},"
    program = expect_program(case, answer)
    text = graphs.formula(*program)
    draw = functools.partial(graphs.draw, *program, title="your smallest program")
    passing = f"{case} gave `{text}`: this program does not fail."
    expect(len(program[1]) == 1 and buggy_passes.fails(failing.bug, *program), passing, draw=draw)
    for i, (op, _) in enumerate(program[0]):
        smaller: list[Program] = [] if op in LEAVES else without(*program, i)
        fails = next((less for less in smaller if buggy_passes.fails(failing.bug, *less)), None)
        less = "" if fails is None else graphs.formula(*fails)
        expect(
            fails is None,
            f"{case} gave `{text}`, which is not 1-minimal: without its {op} it is `{less}`, and "
            "that fails, too.",
            draw=draw,
        )
    strange = f"{case} gave `{text}`, which is not what is left of it: only leave out operators."
    expect(_is_left_of(failing.program, program), strange, draw=draw)
    return graphs.operators(program[0])


def _is_left_of(program: Program, smaller: Program) -> bool:
    """Whether operators of a program were left out, and nothing else.

    Then each operator of the smaller one is one of the program's. What it reads is what that one
    reads, or stands above it.
    """
    (rows, (output,)), (less, (end,)) = program, smaller
    above = [graphs.ancestors(rows, [i]) for i in range(len(rows))]

    def fits(i: int, old: int, places: dict[int, int]) -> bool:
        (op, content), (old_op, old_content) = less[i], rows[old]
        if op != old_op or (op in LEAVES and not _same_leaf(content, old_content)):
            return False
        if op in LEAVES:
            return True
        pairs = zip(content, old_content, strict=True)
        return all(places[new] in above[read] for new, read in pairs)

    def placed(places: dict[int, int]) -> bool:
        if (i := len(places)) == len(less):
            return places[end] in above[output]
        candidates = (old for old in range(len(rows)) if fits(i, old, places))
        return any(placed({**places, i: old}) for old in candidates)

    return placed({})


def _same_leaf(first: Any, second: Any) -> bool:
    if isinstance(first, str) or isinstance(second, str):
        return first == second
    return same_bits(np.asarray(first, float), np.asarray(second, float))
