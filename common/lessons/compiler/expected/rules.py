"""What the search for identities must find, a judge of each rule, and search with rules: lab 08."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.checks import expect, show
from common.lessons.compiler import identities
from common.lessons.compiler.identities import ARITY, Expression, Rule

REQUIRED: dict[str, Rule] = {
    "add commutes": (("add", "x", "y"), ("add", "y", "x")),
    "add is associative": (("add", "x", ("add", "y", "z")), ("add", ("add", "x", "y"), "z")),
    "matmul is associative": (
        ("matmul", "x", ("matmul", "y", "z")),
        ("matmul", ("matmul", "x", "y"), "z"),
    ),
    "matmul distributes from the left": (
        ("add", ("matmul", "x", "y"), ("matmul", "x", "z")),
        ("matmul", "x", ("add", "y", "z")),
    ),
    "matmul distributes from the right": (
        ("add", ("matmul", "x", "z"), ("matmul", "y", "z")),
        ("matmul", ("add", "x", "y"), "z"),
    ),
    "two transposes cancel": (("transpose", ("transpose", "x")), "x"),
    "the transpose of a sum": (
        ("transpose", ("add", "x", "y")),
        ("add", ("transpose", "x"), ("transpose", "y")),
    ),
    "the transpose of a product": (
        ("transpose", ("matmul", "x", "y")),
        ("matmul", ("transpose", "y"), ("transpose", "x")),
    ),
}
OPERATORS = ("add", "matmul", "transpose")
ALL = 265  # rules of at most three operators, but for names, sides and the order of sums
ENOUGH = 150  # what can be written down from memory is no search


def judge_rules(rules: Any, most: int = 3) -> None:
    """Expects rules that are proved, pruned of renamings, and include REQUIRED."""
    case = "discover()"
    expect(isinstance(rules, list) and rules, f"{case} gave {show(rules)}, want a list of rules.")
    for rule in rules:
        pair = isinstance(rule, (tuple, list)) and len(rule) == 2
        good = pair and all(_is_expression(side) for side in rule)
        expect(good, f"{case} gave {show(rule)}, want (expression, expression) on x, y, z.")
    known: dict[Any, Rule] = {}
    for rule in (_as_tuple(rule) for rule in rules):
        _judge_rule(rule, most)
        key = _canonical(rule)
        other = known.get(key, rule)
        text = f"`{shown(rule)}` and `{shown(other)}`"
        expect(key not in known, f"{case}: {text} are one rule with other names.")
        known[key] = rule
    found = {_up_to_order(rule) for rule in known.values()}
    for name, rule in REQUIRED.items():
        missing = _up_to_order(rule) not in found
        expect(not missing, f"{case} misses a rule: {name}, `{shown(rule)}`.")
    expect(
        len(found) >= ENOUGH,
        f"{case} gave {len(found)} rules, but for names and order. A search among all expressions "
        f"of at most {most} operators finds {ALL}; {ENOUGH} will do.",
    )


def _judge_rule(rule: Rule, most: int) -> None:
    left, right = rule
    expect(left != right, f"discover(): `{shown(rule)}` says nothing.")
    large = max(map(identities.size, rule)) > most
    expect(not large, f"discover(): `{shown(rule)}` has more than {most} operators on a side.")
    expect(identities.proved(rule), f"discover(): `{shown(rule)}` is wrong. {_why(rule)}")


def _why(rule: Rule) -> str:
    left, right = (_without_order(side) for side in rule)
    if left == right:
        return "It takes matmul for commutative: did you use matrices of 2 × 2 or more?"
    if _without_transposes(rule[0]) == _without_transposes(rule[1]):
        return "It takes a matrix for its transpose: are your matrices symmetric, or 1 × 1?"
    return "Its sides agree on your inputs by chance: are they random, and modulo a large prime?"


def _without_order(expression: Expression) -> Any:
    form = identities.normal_form(expression)
    return sorted((sorted(word, key=repr), n) for word, n in form.items())


def _without_transposes(expression: Expression) -> Any:
    if isinstance(expression, str):
        return expression
    op, *inputs = expression
    inner = [_without_transposes(x) for x in inputs]
    return inner[0] if op == "transpose" else (op, *inner)


def shown(rule: Rule) -> str:
    return f"{identities.text(rule[0])} = {identities.text(rule[1])}"


def _is_expression(x: Any, names: Collection[str] = ("x", "y", "z")) -> bool:
    if isinstance(x, str):
        return x in names
    if not isinstance(x, (tuple, list)) or not x or x[0] not in OPERATORS:
        return False
    return len(x) == 1 + ARITY[x[0]] and all(_is_expression(part, names) for part in x[1:])


def _as_tuple(x: Any) -> Any:
    return x if isinstance(x, str) else tuple(_as_tuple(part) for part in x)


def _renamings(rule: Rule) -> Iterable[Rule]:
    for order in itertools.permutations("xyz"):
        names: dict[str, Expression] = dict(zip("xyz", order, strict=True))
        yield identities.renamed(rule[0], names), identities.renamed(rule[1], names)


def _canonical(rule: Rule) -> Any:
    """The same for a rule and for the rule with other names."""
    return min(repr(new) for new in _renamings(rule))


def _up_to_order(rule: Rule) -> Any:
    """The same for rules that differ in names, in the sides, and in the order of sums."""
    if rule[0] == _mirrored(rule[1]) and _sorted(rule[0]) == _sorted(rule[1]):
        return _canonical(rule)  # commutativity itself
    sides: Sequence[Rule] = (rule, (rule[1], rule[0]))
    return min(repr(tuple(map(_sorted, new))) for pair in sides for new in _renamings(pair))


def _mirrored(expression: Expression) -> Expression:
    return expression if isinstance(expression, str) else (expression[0], *expression[:0:-1])


def _sorted(expression: Expression) -> Expression:
    if isinstance(expression, str):
        return expression
    op, *inputs = expression
    inner = [_sorted(x) for x in inputs]
    return (op, *(sorted(inner, key=repr) if op == "add" else inner))


# Search with rules


def cheapest(
    expression: Expression, rules: Sequence[Rule], most: int = 2_000, slack: float = 1.0
) -> tuple[Expression, int]:
    """(the cheapest expression found, how many were looked at), cheap ones first.

    slack: how many times the best cost a step may lead to.
    """
    waiting = [(identities.cost(expression), 0, expression)]
    seen, found, price = {expression}, expression, identities.cost(expression)
    looked = 0
    while waiting and looked < most:
        cost, _, current = heapq.heappop(waiting)
        looked += 1
        if cost < price:
            found, price = current, cost
        for near in identities.rewrites(current, rules):
            if near not in seen and identities.cost(near) <= slack * price:
                seen.add(near)
                heapq.heappush(waiting, (identities.cost(near), len(seen), near))
    return found, looked


LAWS = [rule for rule in REQUIRED.values() if "transpose" not in str(rule)]  # of add and matmul
UPHILL: Expression = (
    "add",
    ("add", ("matmul", ("add", "x", "y"), "z"), ("matmul", "x", "w")),
    ("matmul", "y", "v"),
)


@dataclass(frozen=True)
class Task:
    """An expression to make cheaper, the cost that is enough, and what the search has to do."""

    expression: Expression
    par: int
    about: str


def tasks(rng: np.random.Generator) -> Iterator[Task]:
    """Expressions that greedy rewriting leaves more expensive than they can be.

    Names, the order of each sum, and the side from which products are read are random: a table of
    the best expressions is no search.
    """
    for made, par, about in TASKS:
        names = rng.permutation(["a", "b", "c", "d", "e"]).tolist()
        to: dict[str, Expression] = dict(zip("xyzvw", names, strict=True))
        mirrored = bool(rng.integers(2))
        yield Task(_rearranged(identities.renamed(made, to), rng, mirrored), par, about)


def _rearranged(expression: Expression, rng: np.random.Generator, mirrored: bool) -> Expression:
    """Each sum in a random order; mirrored: the factors of all products are exchanged."""
    if isinstance(expression, str):
        return expression
    op, *inputs = expression
    inner = [_rearranged(x, rng, mirrored) for x in inputs]
    exchanged = mirrored if op == "matmul" else rng.integers(2)
    return (op, *(inner[::-1] if exchanged else inner))


def _sum(*terms: Expression) -> Expression:
    total, *others = terms
    for term in others:
        total = ("add", total, term)
    return total


def _product(a: Expression, b: Expression) -> Expression:
    return "matmul", a, b


ALIKE = "Two terms must become neighbours first, and that step saves nothing"
HIGHER = "Every way to the best one leads through a more expensive one"
AGAIN = "One step that saves is not the end"
TASKS: list[tuple[Expression, int, str]] = [
    (_sum(_product("x", "z"), "w", _product("y", "z")), 18, ALIKE),
    (_sum(_product("x", "w"), "v", _product("y", "w"), _product("z", "w")), 19, AGAIN),
    (_sum(_product(_product("x", "y"), "z"), "v", _product("x", "w")), 34, ALIKE),
    (
        _sum(*(_product(a, b) for a, b in ("xx", "xy", "yx", "yy"))),
        17,
        "What occurs twice is computed once: (x + y) @ (x + y) has one sum",
    ),
    (UPHILL, 35, HIGHER),
    (
        _sum(
            _product("x", ("add", "z", "w")), _product(("add", "x", "y"), "v"), _product("y", "w")
        ),
        35,
        HIGHER,
    ),
]


def judge_search(task: Task, answer: Any) -> None:
    """Expects an expression that is equal, by proof, and cheap enough."""
    given = task.expression
    case = f"cheapest of {identities.text(given)}"
    known = set(identities.names_in(given))
    sound = _is_expression(answer, known)
    expect(sound, f"{case} gave {show(answer)}, want an expression of {sorted(known)}.")
    found = _as_tuple(answer)
    text = f"{case} gave {identities.text(found)}"
    expect(identities.proved((given, found)), f"{text}, which is not equal to it.")
    cost = identities.cost(found)
    stuck = identities.cost(identities.greedy(given, LAWS))
    expect(
        cost <= task.par,
        f"{text}, of cost {cost}; want {task.par} or less, greedy rewriting gives {stuck}. "
        f"{task.about}.",
    )
