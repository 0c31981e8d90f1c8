"""Which checks can be replayed: those that share no variables with other checks."""

from __future__ import annotations

import ast
import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T", bound=ast.AST)


def repeatable(checks: Sequence[str]) -> frozenset[str]:
    """The checks that read nothing an earlier check sets, and set nothing a later one reads."""
    shared = set()
    for i, first in enumerate(checks):
        for later in checks[i + 1 :]:
            if check_globals(later).read_unset & (check_globals(first).written - {"_"}):
                shared |= {first, later}
    return frozenset(checks) - shared


@dataclass
class Globals:
    """The names of the global variables that a check uses."""

    read: set[str] = field(default_factory=set)
    read_unset: set[str] = field(default_factory=set)  # of these, those it has not written before
    written: set[str] = field(default_factory=set)


PARSING = threading.Lock()  # the ranks of a check ask at once; Python 3.11 may then fail to parse


@functools.cache
def check_globals(source: str) -> Globals:
    names = Globals()
    with PARSING:
        tree = ast.parse(source)
    for name, is_set in _names(tree, frozenset()):
        if is_set:
            names.written.add(name)
        else:
            names.read.add(name)
            if name not in names.written:
                names.read_unset.add(name)
    return names


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.withitem)
TARGETS = {
    "targets",
    "target",
    "optional_vars",
}  # of an assignment: set after its value is computed


def _names(node: ast.AST, local: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """(name, whether it is set) of each use of a global, in the order of execution.

    local: the names that belong to the functions and comprehensions around this node.
    """
    if isinstance(node, ast.Name) and node.id not in local:
        yield node.id, isinstance(node.ctx, ast.Store)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, False
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (((alias.asname or alias.name).partition(".")[0], True) for alias in node.names)
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name, True
    elif isinstance(node, COMPREHENSIONS):
        yield from _names(node.generators[0].iter, local)
    elif isinstance(node, ast.For):
        yield from _names(node.iter, local)  # before its target
    local |= _own_names(node)
    for child in _in_order(node):
        yield from _names(child, local)


def _own_names(node: ast.AST) -> set[str]:
    """The names that a function or a comprehension has for itself."""
    if isinstance(node, COMPREHENSIONS):
        return {name.id for part in node.generators for name in _all(ast.Name, part.target)}
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        shared = {name for statement in _all(ast.Global, node) for name in statement.names}
        stored = {name.id for name in _all(ast.Name, node) if isinstance(name.ctx, ast.Store)}
        return {arg.arg for arg in _all(ast.arg, node.args)} | stored - shared
    return set()


def _all(kind: type[T], node: ast.AST) -> Iterator[T]:
    return (inner for inner in ast.walk(node) if isinstance(inner, kind))


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node; what an assignment sets comes last."""
    late = isinstance(node, ASSIGNMENTS)
    for _, part in sorted(ast.iter_fields(node), key=lambda item: late and item[0] in TARGETS):
        for child in part if isinstance(part, list) else [part]:
            if isinstance(child, ast.AST):
                yield child
