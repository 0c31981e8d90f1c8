"""Counts what a student's work costs, where the student's Python can't change the counts.

A check counts a kernel with simt.count(kernel, ...) or tiles.count(kernel, ...), and runs a
function on ranks with ranks.run(function, ...). In the grader these are Remotes, whose
count_remotely comes here. A kernel is counted from its text alone, in a worker that executes no
cell. For ranks the grader is the network (see grading.worker.ranks).
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from common import slices, tiles
from grading.source import holes
from grading.worker.session import Cells, Session

Package = Literal["simt", "tiles", "ranks"]
Constants = dict[str, int | float | bool | tuple[int | float | bool, ...]]
MOST = 1 << 64  # of the numbers that constants are computed from
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
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
    given, settings = list(arguments), dict(options)
    emitted = settings.pop("emitted", None)  # a kernel's text, which the function has returned
    if emitted is not None:
        text, name, constants = str(emitted), tiles.EMITTED, {}
    else:
        cells = tuple(session.cells[: session.reached])
        text, constants = kernel_text(cells, name, DECORATORS[package])
    worker = session.counting_worker()
    with session.waiting() as deadline:
        request = package, text, name, constants, given, settings
        return worker.request("count", *request, deadline=deadline, in_place=given)


@functools.lru_cache(maxsize=100)  # a check launches its kernel many times
def kernel_text(cells: Cells, name: str, decorator: str) -> tuple[str, Constants]:
    """(text, constants) of a kernel: what it needs of its own cell, and the kernels and constants
    of other cells.

    cells: ours and the student's, in the lab's order. decorator: that kernels have.
    """
    cell = next(text for _, text in reversed(cells) if text and name in _functions(text))
    own = _needed(cell, name)
    others: dict[str, str] = {}
    constants: Constants = {}
    for _, text in cells:
        if text is not None and text is not cell:
            functions = _functions(text).items()
            others |= {key: source for key, source in functions if source.startswith(decorator)}
            constants |= _constants(text, constants)
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


@functools.lru_cache(maxsize=500)  # our own cells are in every notebook
def _functions(text: str) -> Mapping[str, str]:
    """{name: source with its decorators} of the functions at the top level of a cell."""
    return {
        node.name: ast.unparse(node)
        for node in holes.statements(text)
        if isinstance(node, ast.FunctionDef)
    }


def _needed(cell: str, name: str) -> str:
    """The cell with what a kernel in it needs alone: what stands beside it is not its fault."""
    own = slices.Notebook([cell])
    end = len(own.statements)
    start = [place for place in own.sets.get(name, ()) if place < end]
    places = [*start, *own.needed(start, end).places]
    return dict(own.text(places)).get(0, cell)


def _constants(text: str, known: Constants) -> Constants:
    """The numbers, and tuples of them, that a cell assigns, computed from literals and constants.

    known: of the cells above.
    """
    constants: Constants = {}
    for node in holes.statements(text):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name):
            try:
                value = _value(_without_constexpr(node.value), known | constants)
            except (ValueError, TypeError, ArithmeticError, MemoryError, RecursionError):
                continue
            items = value if isinstance(value, tuple) else (value,)
            if all(type(item) in (int, float, bool) for item in items):
                constants[target.id] = value
    return constants


def _value(node: ast.expr, known: Constants) -> Any:
    """The value of an expression of literals, constants and arithmetic; ValueError for others."""
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.Tuple):
        return tuple(_value(part, known) for part in node.elts)
    if isinstance(node, ast.BinOp) and (operation := ARITHMETIC.get(type(node.op))):
        left, right = _value(node.left, known), _value(node.right, known)
        if all(type(side) in (int, float) and abs(side) < MOST for side in (left, right)):
            return operation(left, right)
        raise ValueError("not arithmetic of small numbers")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _power(_value(node.left, known), _value(node.right, known))
    return ast.literal_eval(node)


def _power(base: float, exponent: float) -> float:
    if all(type(side) in (int, float) for side in (base, exponent)) and abs(exponent) <= 64:
        return base**exponent if abs(base) < MOST else float(base) ** exponent
    raise ValueError("not a power of small numbers")


def _without_constexpr(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.constexpr" and node.args:
        return node.args[0]
    return node
