"""Expressions of square matrices: their values modulo a prime, their rewriting, their proofs.

An expression is a name, or (operator, expressions...): ("add", "x", ("transpose", "y")). The
operators are add, multiply (element by element), matmul and transpose.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

PRIME = 2**31 - 1
ARITY = {"add": 2, "multiply": 2, "matmul": 2, "transpose": 1}
SIGNS = {"add": "+", "multiply": "*", "matmul": "@"}
COSTS = {"matmul": 16, "add": 1, "multiply": 1, "transpose": 1}  # of 16 × 16 matrices, in n²

Expression = Any  # str | tuple[str, ...]
Rule = tuple[Expression, Expression]

_calls_left: float = math.inf  # of rewrites


def apply(op: str, *values: np.ndarray) -> np.ndarray:
    """The operator's value modulo PRIME; values: uint64 arrays (..., n, n) with n at most 4."""
    if op == "transpose":
        return np.swapaxes(values[0], -1, -2)
    a, b = values
    result = a @ b if op == "matmul" else a + b if op == "add" else a * b
    return result % np.uint64(PRIME)


def random_matrices(rng: np.random.Generator, draws: int, n: int = 3) -> np.ndarray:
    """So many random n × n matrices modulo PRIME: (draws, n, n)."""
    return rng.integers(0, PRIME, (draws, n, n), dtype=np.uint64)


def value(expression: Expression, leaves: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value of an expression modulo PRIME."""
    if isinstance(expression, str):
        return leaves[expression]
    op, *inputs = expression
    return apply(op, *(value(x, leaves) for x in inputs))


def size(expression: Expression) -> int:
    """How many operators an expression has."""
    return 0 if isinstance(expression, str) else 1 + sum(map(size, expression[1:]))


def cost(expression: Expression) -> int:
    """What an expression costs, where what occurs twice is computed once: the sum of COSTS."""
    seen: set[Expression] = set()
    ahead = [expression]
    while ahead:
        part = ahead.pop()
        if not isinstance(part, str) and part not in seen:
            seen.add(part)
            ahead += part[1:]
    return sum(COSTS[part[0]] for part in seen)


def parts(expression: Expression) -> Iterator[Expression]:
    """The expression and all expressions in it."""
    yield expression
    if not isinstance(expression, str):
        for x in expression[1:]:
            yield from parts(x)


def text(expression: Expression) -> str:
    """The expression as a mathematician would write it: (x + y)ᵀ @ z."""
    if isinstance(expression, str):
        return expression
    op, *inputs = expression
    inner = [
        text(x) if isinstance(x, str) or x[0] == "transpose" else f"({text(x)})" for x in inputs
    ]
    return f"{inner[0]}ᵀ" if op == "transpose" else f"{inner[0]} {SIGNS[op]} {inner[1]}"


def names_in(expression: Expression) -> list[str]:
    """The names in an expression, each once, from left to right."""
    return list(dict.fromkeys(part for part in parts(expression) if isinstance(part, str)))


def renamed(expression: Expression, names: Mapping[str, Expression]) -> Expression:
    """The expression with other names, or expressions, in place of its names."""
    if isinstance(expression, str):
        return names.get(expression, expression)
    return (expression[0], *(renamed(x, names) for x in expression[1:]))


def proved(rule: Rule) -> bool:
    """Whether both sides have one normal form: they are then equal for matrices of every size.

    The normal form multiplies out, since add, matmul, multiply and transpose are linear in each
    input: a sum of products of names and transposed names.
    """
    left, right = rule
    return normal_form(left) == normal_form(right)


def normal_form(expression: Expression) -> Counter:
    """{product: how often it is added}. A product is a tuple of factors of a matrix product.

    A factor is (name, transposed) or a sorted tuple of products, multiplied element by element.
    """
    if isinstance(expression, str):
        return Counter([((expression, False),)])
    op, *inputs = expression
    forms = [normal_form(x) for x in inputs]
    if op == "add":
        return forms[0] + forms[1]
    if op == "transpose":
        return Counter({_transposed(word): n for word, n in forms[0].items()})
    joined = _concatenated if op == "matmul" else _multiplied
    total: Counter = Counter()
    for (a, m), (b, n) in itertools.product(forms[0].items(), forms[1].items()):
        total[joined(a, b)] += m * n
    return total


def _concatenated(a: tuple, b: tuple) -> tuple:
    return a + b


def _multiplied(a: tuple, b: tuple) -> tuple:
    """The element-wise product of two products: one factor, which holds both in sorted order."""
    return (("*", *sorted([*_factors(a), *_factors(b)], key=repr)),)


def _factors(word: tuple) -> list[tuple]:
    return list(word[0][1:]) if len(word) == 1 and word[0][0] == "*" else [word]


def _transposed(word: tuple) -> tuple:
    return tuple(_flipped(factor) for factor in reversed(word))


def _flipped(factor: tuple) -> tuple:
    if factor[0] == "*":
        return ("*", *sorted(map(_transposed, factor[1:]), key=repr))
    return factor[0], not factor[1]


@contextlib.contextmanager
def at_most(calls: int) -> Iterator[None]:
    """While it is open, `rewrites` raises AssertionError if it is called more often than that."""
    global _calls_left
    before, _calls_left = _calls_left, calls
    try:
        yield
    finally:
        _calls_left = before


def rewrites(expression: Expression, rules: Iterable[Rule]) -> Iterator[Expression]:
    """All expressions that one rule, in either direction, makes of one place in the expression."""
    global _calls_left
    _calls_left -= 1
    if _calls_left < 0:
        raise AssertionError(
            "identities.rewrites is called more than `most` times: look at each expression once"
        )
    return _rewrites(expression, rules)


def _rewrites(expression: Expression, rules: Iterable[Rule]) -> Iterator[Expression]:
    rules = list(rules)
    for left, right in [*rules, *((right, left) for left, right in rules)]:
        if set(names_in(right)) <= set(names_in(left)):
            yield from _everywhere(expression, left, right)


def _everywhere(expression: Expression, left: Expression, right: Expression) -> Iterator[Any]:
    found = _matched(left, expression, {})
    if found is not None:
        yield renamed(right, found)
    if not isinstance(expression, str):
        op, *inputs = expression
        for i, x in enumerate(inputs):
            for new in _everywhere(x, left, right):
                yield (op, *inputs[:i], new, *inputs[i + 1 :])


def _matched(
    pattern: Expression, expression: Expression, names: dict[str, Expression]
) -> dict[str, Expression] | None:
    """What the names of a pattern stand for, if the expression has its form."""
    if isinstance(pattern, str):
        if names.get(pattern, expression) != expression:
            return None
        return names | {pattern: expression}
    if isinstance(expression, str) or expression[0] != pattern[0]:
        return None
    found: dict[str, Expression] | None = names
    for a, b in zip(pattern[1:], expression[1:], strict=True):
        found = None if found is None else _matched(a, b, found)
    return found


def greedy(expression: Expression, rules: Sequence[Rule]) -> Expression:
    """The expression after cheapening rewrites, always the cheapest next one, until none helps."""
    while True:
        best = min(_rewrites(expression, rules), key=cost, default=expression)
        if cost(best) >= cost(expression):
            return expression
        expression = best


def essential(rules: Iterable[Rule]) -> list[Rule]:
    """A few of these rules, which imply the others in a few steps."""
    kept: list[Rule] = []
    for left, right in sorted(rules, key=_general):
        if right not in rewrites(left, kept) and left not in rewrites(right, kept):
            kept.append((left, right))
    for rule in reversed(kept[:]):
        others = [other for other in kept if other != rule]
        if _implied(rule, others):
            kept = others
    return kept


def _general(rule: Rule) -> tuple[int, int]:
    """Small rules first, and among them those of many names."""
    return size(rule[0]) + size(rule[1]), -len(names_in(rule[0]))


def _implied(rule: Rule, rules: Sequence[Rule], most: int = 40) -> bool:
    """Whether a few steps by these rules lead from one side to the other."""
    left, right = rule
    seen, waiting = {left}, [left]
    while waiting and len(seen) < most:
        for new in rewrites(waiting.pop(0), rules):
            if new == right:
                return True
            if new not in seen and size(new) <= size(left) + 1:
                seen.add(new)
                waiting.append(new)
    return False
