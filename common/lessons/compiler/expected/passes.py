"""Cases for the passes of lab 08, references that say how few operators are left, and judges."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common import graphs
from common.checks import expect, show
from common.graphs import (
    COMMUTATIVE,
    EFFECTS,
    LEAVES,
    Feeds,
    Program,
    Row,
    chosen,
    evaluate,
    execute,
    names,
    random_feeds,
    random_program,
    same_bits,
    valid,
    without,
)
from common.lessons.compiler.buggy_passes import edge_feeds

Pass = Callable[[list[Row], list[int]], Program]
X, Y, B = ("placeholder", "x"), ("placeholder", "y"), ("buffer", "b")
RANDOM = 300  # programs
ANY_RANDOM = "An operator more than needed is left"


@dataclass(frozen=True)
class Case:
    """A program for a pass. `differs` is said if a bit changes, `lazy` if operators are left over.

    fewest: how many operators a right pass can leave; with only_live, of those that are needed.
    """

    program: Program
    fewest: int
    differs: str = ""
    lazy: str = ""
    only_live: bool = False


def case(
    rows: Sequence[Row], outputs: Sequence[int], fewest: int, differs: str = "", lazy: str = ""
) -> Case:
    return Case((list(rows), list(outputs)), fewest, differs, lazy)


def constant(value: Any) -> Row:
    return "constant", value


# Cases by hand, each for one mistake


def dead_code_cases(rng: np.random.Generator) -> Iterator[Case]:
    """For eliminate_dead_code."""
    product, total = ("multiply", (0, 1)), ("add", (0, 1))
    yield case([X, Y, total, product], [3], 1, "", "No output needs this operator")
    chain = [X, Y, total, ("sin", (2,)), ("exp", (3,)), product]
    yield case(chain, [5], 1, "", "What only dead operators read is dead, too")
    kept = "A write changes memory that outlives the run, even if nobody reads its value"
    yield case([X, Y, B, ("write", (2, 0)), product], [4], 2, kept)
    needs = "What a write reads is needed"
    yield case([X, Y, B, product, ("write", (2, 3)), total], [5], 3, needs)
    moves = "A draw moves the generator: the next random operator gets other numbers"
    draws = [X, Y, ("random", (0,)), ("random", (1,))]
    yield case(draws, [3], 2, moves)
    yield case([X, Y, ("negative", (0,)), ("random", (2,)), total], [4], 3, moves)
    read = "A read changes nothing: if nobody needs it, it is dead"
    yield case([X, Y, B, ("read", (2,)), ("sin", (3,)), total], [5], 1, "", read)
    order = "The outputs keep their order and number"
    yield case([X, Y, total, product], [3, 2, 3, 0], 2, order)
    yield case([X, Y, total], [1], 0, "An output may be a leaf", "No output needs this operator")
    yield from _random_cases(rng, reference_dead_code)


def subexpression_cases(rng: np.random.Generator) -> Iterator[Case]:
    """For eliminate_common_subexpressions."""
    yield from _equal_cases()
    yield from _unequal_cases()
    yield from _memory_cases()
    yield from _random_cases(rng, reference_subexpressions)


def _equal_cases() -> Iterator[Case]:
    total = ("add", (0, 1))
    twice = "The same operator on the same inputs is computed twice"
    yield case([X, Y, total, total, ("multiply", (2, 3))], [4], 2, "", twice)
    deep = "Inputs that have become one are the same: look them up before you compare"
    rows = [X, Y, total, total, ("sin", (2,)), ("sin", (3,)), ("multiply", (4, 5))]
    yield case(rows, [6, 2, 3], 3, "An output that was replaced has a new number", deep)
    swapped = "a + b is b + a, and a * b is b * a, bit for bit"
    yield case([X, Y, total, ("add", (1, 0))], [2, 3], 1, "", swapped)
    yield case([X, Y, ("multiply", (0, 1)), ("multiply", (1, 0))], [2, 3], 1, "", swapped)
    same = "Two constants with the same bits are one value"
    rows = [X, constant(2.0), ("multiply", (0, 1)), constant(2.0), ("multiply", (0, 3))]
    yield case(rows, [2, 4], 1, "", same)
    array = np.array([1.0, 2.0])
    rows = [constant(array), ("sin", (0,)), constant(array.copy()), ("sin", (2,))]
    yield case(rows, [1, 3], 1, "", same)
    again = "Two placeholders of one name are one value"
    yield case([X, X, ("sin", (0,)), ("sin", (1,))], [2, 3], 1, "", again)


def _unequal_cases() -> Iterator[Case]:
    for op in ("subtract", "divide"):
        swapped = f"{op} does not commute"
        yield case([X, Y, (op, (0, 1)), (op, (1, 0))], [2, 3], 2, swapped)
    zeros = "0.0 == -0.0, but x / 0.0 is not x / -0.0: compare the bits of constants"
    rows = [X, constant(0.0), constant(-0.0), ("divide", (0, 1)), ("divide", (0, 2))]
    yield case(rows, [3, 4], 2, zeros)
    shapes = "A number and an array of one number have different shapes"
    rows = [constant(2.0), constant(np.array([2.0])), ("sin", (0,)), ("sin", (1,))]
    yield case(rows, [2, 3], 2, shapes)
    arrays = "Two arrays of one shape can hold different numbers"
    rows = [
        constant(np.array([1.0, 2.0])),
        constant(np.array([1.0, 3.0])),
        *(("sin", (0,)), ("sin", (1,))),
    ]
    yield case(rows, [2, 3], 2, arrays)


def _memory_cases() -> Iterator[Case]:
    random = "Two random operators draw different numbers"
    yield case([X, ("random", (0,)), ("random", (0,))], [1, 2], 2, random)
    between = "A write lies between the two reads"
    rows = [X, B, ("read", (1,)), ("write", (1, 0)), ("read", (1,))]
    yield case(rows, [2, 4], 3, between)
    yield case([X, B, ("read", (1,)), ("read", (1,))], [2, 3], 1, "", "Nothing is written between")
    other = [Y, X, B, ("write", (2, 1)), ("write", (2, 0)), ("write", (2, 1))]
    yield case(other, [3], 3, "A write that is made again undoes the one between")
    two = "Two buffers are two memories"
    rows = [B, ("buffer", "c"), ("read", (0,)), ("read", (1,))]
    yield case(rows, [2, 3], 2, two)


def constant_cases(rng: np.random.Generator) -> Iterator[Case]:
    """For fold_constants, which may leave dead operators to the pass that removes them."""
    for made in (*_foldable_cases(), *_tempting_cases()):
        yield replace(made, only_live=True)
    for _ in range(RANDOM):
        program = random_program(rng)
        needed = reference_dead_code(*reference_constants(*program))
        yield Case(program, graphs.operators(needed[0]), only_live=True)


def _foldable_cases() -> Iterator[Case]:
    known = "All inputs of this operator are constants: compute it now"
    rows = [X, constant(3.0), constant(4.0), ("add", (1, 2)), ("multiply", (0, 3))]
    yield case(rows, [4], 1, "", known)
    deep = "An operator on what has become a constant can be folded, too"
    rows = [X, constant(3.0), ("exp", (1,)), ("negative", (2,)), ("sin", (3,)), ("add", (0, 4))]
    yield case(rows, [5], 1, "", deep)
    yield case([constant(-1.0), ("log", (0,))], [1], 0, "NaN is a value like any other", known)
    yield case([constant(np.array([1.0, 2.0])), ("sum", (0,))], [1], 0, "", known)
    for op, number in (("multiply", 1.0), ("divide", 1.0), ("subtract", 0.0), ("add", -0.0)):
        lazy = f"{op} by {number:g} gives its input back, bit for bit"
        yield case([X, constant(number), (op, (0, 1))], [2], 0, "", lazy)
        if op in COMMUTATIVE:
            yield case([X, constant(number), (op, (1, 0))], [2], 0, "", lazy)
    twice = "The second negative undoes the first"
    yield case([X, ("negative", (0,)), ("negative", (1,))], [2], 1, "", twice)
    yield from _shifted_cases()
    hidden = "A constant that was computed can be the 1 of a product"
    rows = [X, constant(2.0), ("divide", (1, 1)), ("multiply", (0, 2))]
    yield case(rows, [3], 0, "", hidden)


def _shifted_cases() -> Iterator[Case]:
    """Rows after an operator that gave its input back: their inputs have moved."""
    shifted = "After an operator that is left out, each row still needs its own new place"
    undone = [X, Y, ("negative", (0,)), ("negative", (2,)), ("sin", (1,)), ("add", (3, 4))]
    yield case(undone, [5, 4, 3], 2, shifted)
    again = [X, *(("negative", (i,)) for i in range(4)), ("sin", (3,)), ("exp", (4,))]
    yield case(again, [5, 6], 3, shifted)
    rows = [X, Y, constant(1.0), ("multiply", (2, 0)), ("sin", (1,)), ("subtract", (3, 4))]
    yield case(rows, [5, 4, 3], 2, shifted)


def _tempting_cases() -> Iterator[Case]:
    c = constant
    twice = "(x + 3) + 4 rounds twice, x + 7 once"
    yield case([X, c(3.0), ("add", (0, 1)), c(4.0), ("add", (2, 3))], [4], 2, twice)
    yield case(
        [X, c(0.1), ("multiply", (0, 1)), c(3.0), ("multiply", (2, 3))], [4], 2, "rounds twice"
    )
    yield case([X, c(0.0), ("add", (0, 1))], [2], 1, "-0.0 + 0.0 is 0.0")
    yield case([X, c(0.0), ("add", (1, 0))], [2], 1, "0.0 + -0.0 is 0.0")
    yield case([X, c(-0.0), ("subtract", (0, 1))], [2], 1, "-0.0 - -0.0 is 0.0")
    yield case([X, c(0.0), ("subtract", (1, 0))], [2], 1, "0.0 - x is not x, and not -x at 0.0")
    yield case([X, c(1.0), ("divide", (1, 0))], [2], 1, "1 / x is not x")
    yield case([X, c(0.0), ("multiply", (0, 1))], [2], 1, "0 times infinity is NaN")
    yield case([X, c(-1.0), ("multiply", (0, 1))], [2], 1, "x * -1 is not x")
    yield case([X, ("subtract", (0, 0))], [1], 1, "infinity minus infinity is NaN")
    yield case([X, ("divide", (0, 0))], [1], 1, "0 / 0 is NaN")
    rows = [X, c(2.0), ("multiply", (0, 1)), ("divide", (2, 1))]
    yield case(rows, [3], 2, "2 * 1e308 overflows before it is halved")
    yield case([X, c(3.0), ("divide", (0, 1))], [2], 1, "x / 3 rounds once, x * (1 / 3) twice")
    ones = "An array of ones stretches its other factor"
    yield case([c(np.ones((2, 1))), X, ("multiply", (1, 0))], [2], 1, ones)
    yield case([c(2.0), ("random", (0,))], [1], 1, "A random operator draws anew in each run")
    yield case([B, c(2.0), ("write", (0, 1))], [2], 1, "A write of a constant is still a write")
    yield case([B, ("read", (0,))], [1], 1, "What a buffer holds is known in the run only")
    alone = "Only a second negative undoes a negative"
    yield case([X, ("relu", (0,)), ("negative", (1,))], [2], 2, alone)
    yield case([X, ("log", (0,)), ("exp", (1,))], [2], 2, "exp(log(x)) rounds, and fails below 0")


def _random_cases(rng: np.random.Generator, reference: Pass) -> Iterator[Case]:
    """RANDOM programs; a right pass leaves as few operators as the reference, or fewer."""
    for _ in range(RANDOM):
        program = random_program(rng)
        yield Case(program, graphs.operators(reference(*program)[0]))


# References


def reference_dead_code(rows: Sequence[Row], outputs: Sequence[int]) -> Program:
    ends = [*outputs, *(i for i, (op, _) in enumerate(rows) if op in EFFECTS)]
    return chosen(rows, outputs, graphs.ancestors(rows, ends))


def reference_subexpressions(rows: Sequence[Row], outputs: Sequence[int]) -> Program:
    place: list[int] = []
    known: dict[Any, int] = {}
    for i, (op, content) in enumerate(rows):
        key: Any = (op, repr(content))
        if op not in LEAVES:
            read = [place[j] for j in content]
            version = sum(row[0] == "write" for row in rows[:i]) if op == "read" else 0
            unique = i if op in EFFECTS else -1
            key = op, tuple(sorted(read) if op in COMMUTATIVE else read), version, unique
        place.append(known.setdefault(key, i))
    new = [(op, c if op in LEAVES else tuple(place[j] for j in c)) for op, c in rows]
    ends = [place[i] for i in outputs]
    return chosen(new, ends, {*known.values()})


def reference_constants(rows: Sequence[Row], outputs: Sequence[int]) -> Program:
    new: list[Row] = []
    place: list[int] = []
    for op, content in rows:
        if op not in LEAVES:
            content = tuple(place[i] for i in content)
            values = [new[i][1] for i in content if new[i][0] == "constant"]
            if len(values) == len(content) and op not in (*EFFECTS, "read"):
                with np.errstate(all="ignore"):
                    op, content = "constant", evaluate(op, *values)
            elif (same := _given_back(new, op, content)) is not None:
                place.append(same)
                continue
        new.append((op, content))
        place.append(len(new) - 1)
    return new, [place[i] for i in outputs]


def _given_back(new: Sequence[Row], op: str, content: tuple[int, ...]) -> int | None:
    """The input that this operator gives back, bit for bit, if there is one."""
    neutral = {"multiply": 1.0, "divide": 1.0, "subtract": 0.0, "add": -0.0}
    if op == "negative" and new[content[0]][0] == "negative":
        return new[content[0]][1][0]
    if op not in neutral:
        return None
    a, b = content
    for kept, number in ((a, b), (b, a)) if op in COMMUTATIVE else ((a, b),):
        kind, value = new[number]
        if kind == "constant" and same_bits(np.float64(neutral[op]), np.asarray(value, float)):
            return kept
    return None


# Judges


def judge(title: str, transform: Pass, given: Case, rng: np.random.Generator) -> None:
    """Expects that a pass keeps every bit of a program, and leaves few enough operators."""
    after = _after(title, transform, given.program)
    found = difference(given.program, after, rng)
    if found is not None:
        before, feeds = smallest(transform, given.program, found, rng)
        _refuse(title, before, _after(title, transform, before), feeds, given.differs)
    after = reference_dead_code(*after) if given.only_live else after
    left = graphs.operators(after[0])
    text = _formula(given.program)
    lazy = given.lazy or ANY_RANDOM
    expect(
        left <= given.fewest,
        f"{lazy}.\n{title} of {text} leaves {left} operators, want at most {given.fewest}: "
        f"{_formula(after)}",
        draw=functools.partial(graphs.draw, *after, title=f"after {title}"),
    )


def expect_program(case: str, answer: Any) -> Program:
    """The answer, if it is a program."""
    expect(
        isinstance(answer, (tuple, list)) and len(answer) == 2,
        f"{case} gave {show(answer)}, want (rows, outputs).",
    )
    try:
        return valid(*answer)
    except ValueError as problem:
        raise AssertionError(f"{case} gave no program: {problem}") from None


def _after(title: str, transform: Pass, program: Program) -> Program:
    rows, outputs = program
    given = list(rows), list(outputs)
    after = transform(*given)
    if not isinstance(after, (tuple, list)) or len(after) != 2:
        raise AssertionError(f"{title} gave {show(after)}, want (rows, outputs)")
    try:
        return valid(*after)
    except ValueError as problem:
        text = _formula(program)
        raise AssertionError(f"{title} of {text} gave no program: {problem}") from None


def difference(first: Program, second: Program, rng: np.random.Generator) -> Feeds | None:
    """Feeds at which the two programs differ in a bit, if some are found."""
    wanted = names(first, second)
    for feeds in (edge_feeds(wanted), random_feeds(rng, wanted)):
        try:
            if not same_bits(execute(*first, feeds), execute(*second, feeds)):
                return feeds
        except ValueError:  # shapes that do not fit, which those of the first program did
            return feeds
    return None


def smallest(
    transform: Pass, program: Program, feeds: Feeds, rng: np.random.Generator
) -> tuple[Program, Feeds]:
    """A smallest program that the pass changes, found by leaving out operators, and the feeds."""
    for _ in range(20):
        for number, (op, _) in enumerate(program[0]):
            if op in LEAVES:
                continue
            for less in without(*program, number):
                changed = difference(less, _after("the pass", transform, less), rng)
                if changed is not None:
                    break
            else:
                continue
            program, feeds = less, changed
            break
        else:
            break
    return program, feeds


def _refuse(title: str, before: Program, after: Program, feeds: Feeds, sentence: str) -> None:
    at, got, want = one_difference(before, after, feeds)
    place = ", ".join(f"{name} = {value!r}" for name, value in at.items())
    said = f"{sentence}.\n" if sentence else "A bit has changed.\n"
    expect(
        False,
        f"{said}{title} of {_formula(before)} gave {_formula(after)}: at {place} "
        f"that is {got}, want {want}.",
        draw=functools.partial(draw_counterexample, before, after, feeds),
    )


def one_difference(before: Program, after: Program, feeds: Feeds) -> tuple[dict, str, str]:
    """(inputs, what came, what was wanted) of the first element that differs."""
    try:
        want, got = execute(*before, feeds), execute(*after, feeds)
    except ValueError as problem:
        return {}, f"an error ({problem})", "a value"
    for a, b in zip(want, got, strict=False):
        if same_bits(a, b):
            continue
        if a.shape != b.shape or a.ndim != 1:
            wide = np.broadcast_to(b, a.shape) if b.ndim == 0 and a.ndim == 1 else a
            if same_bits(wide, a):
                return {}, show(b), show(a)
            b = wide
        place = next(i for i in range(len(a)) if not same_bits(a[i], b[i]))
        at = {name: float(x[place]) for name, x in feeds.items() if len(x) > place}
        return at, repr(float(b[place])), repr(float(a[place]))
    return {}, f"{len(got)} arrays", f"{len(want)} arrays"


def draw_counterexample(before: Program, after: Program, feeds: Feeds) -> None:
    """Both graphs with the values of one element at which they differ."""
    at, _, _ = one_difference(before, after, feeds)
    single = {name: np.array([value]) for name, value in at.items()} or feeds
    for title, (rows, outputs) in (("before", before), ("after the pass", after)):
        computed = [i for i, (op, _) in enumerate(rows) if op != "buffer"]
        found = execute(rows, computed, single)
        values: list[Any] = ["DEAD"] * len(rows)
        for i, value in zip(computed, found, strict=False):
            values[i] = value
        ends = [*outputs, *(i for i, (op, _) in enumerate(rows) if op in EFFECTS)]
        marks = {i: "output" for i in outputs}
        graphs.draw(rows, ends, values=values, names=marks, title=title)


def _formula(program: Program) -> str:
    rows, outputs = program
    effects = [i for i, (op, _) in enumerate(rows) if op in EFFECTS]
    return graphs.formula(rows, [*dict.fromkeys([*outputs, *effects])])
