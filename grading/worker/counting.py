"""Counts what a student's work costs, where the student's Python can't change the counts.

A check counts a kernel with simt.count(kernel, ...) or tiles.count(kernel, ...), and runs a
function on ranks with ranks.run(function, ...). In the grader these are Remotes, whose
count_remotely comes here. A kernel is counted from its text alone, in a worker that executes no
cell. For ranks the grader is the network (see grading.worker.ranks).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from grading.source import holes
from grading.worker.session import Cells, Session

Package = Literal["simt", "tiles", "ranks"]
Constants = dict[str, int | float | bool | tuple[int | float | bool, ...]]
DECORATORS = {"simt": "@cuda.jit", "tiles": "@triton.jit"}


def run(
    session: Session,
    package: Package,
    name: str,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> Any:
    """The report, as data, of a student's kernel (simt, tiles); the Result of a function (ranks).

    session: of the student's cells. name: what a cell of theirs defines. arguments: of the launch,
    or of the function; a kernel's arrays are changed as by a launch.
    """
    if package == "ranks":
        from grading.worker import ranks

        with session.waiting():
            return ranks.run(session, name, arguments, **options)
    text, constants = kernel_text(tuple(session.cells), name, DECORATORS[package])
    worker = session.counting_worker()
    with session.waiting() as deadline:
        given = list(arguments)
        request = package, text, name, constants, given, dict(options)
        return worker.request("count", *request, deadline=deadline, in_place=given)


@functools.lru_cache(maxsize=100)  # a check launches its kernel many times
def kernel_text(cells: Cells, name: str, decorator: str) -> tuple[str, Constants]:
    """(text, constants) of a kernel: its own cell, and the kernels and constants of other cells.

    cells: ours and the student's, in the lab's order. decorator: that kernels have.
    """
    own = next(text for _, text in reversed(cells) if text is not None and name in _functions(text))
    others: dict[str, str] = {}
    constants: Constants = {}
    for _, text in cells:
        if text is not None and text is not own:
            functions = _functions(text).items()
            others |= {key: source for key, source in functions if source.startswith(decorator)}
            constants |= _constants(text)
    stored = {
        node.id
        for node in ast.walk(ast.parse(own))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    for function in _functions(own):
        others.pop(function, None)
    hidden = stored | others.keys()
    constants = {key: value for key, value in constants.items() if key not in hidden}
    return "\n\n".join([own, *others.values()]), constants


def _functions(text: str) -> dict[str, str]:
    """{name: source with its decorators} of the functions at the top level of a cell."""
    return {
        node.name: ast.unparse(node)
        for node in holes.statements(text)
        if isinstance(node, ast.FunctionDef)
    }


def _constants(text: str) -> Constants:
    """The numbers, and tuples of them, that a cell assigns as literals or tl.constexpr(literal)."""
    constants: Constants = {}
    for node in holes.statements(text):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name):
            try:
                value = ast.literal_eval(_without_constexpr(node.value))
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            items = value if isinstance(value, tuple) else (value,)
            if all(type(item) in (int, float, bool) for item in items):
                constants[target.id] = value
    return constants


def _without_constexpr(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.constexpr" and node.args:
        return node.args[0]
    return node
