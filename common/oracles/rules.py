"""What the search for identities must find, and a judge of each rule: lab 08's part 4."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from common.checks import expect, show
from common.lessons import identities
from common.lessons.identities import ARITY, Expression, Rule

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


def _is_expression(x: Any) -> bool:
    if isinstance(x, str):
        return x in ("x", "y", "z")
    if not isinstance(x, (tuple, list)) or not x or x[0] not in OPERATORS:
        return False
    return len(x) == 1 + ARITY[x[0]] and all(map(_is_expression, x[1:]))


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
