"""The values of a cell's constants, from their syntax trees alone."""

import ast
import operator
from collections.abc import Callable
from typing import Any

from common.kernels.language import check_bits
from common.kernels.source import Source

ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
MAX_EXPONENT = 64  # a number of a billion digits is never computed

OtherConstant = Callable[[ast.expr], tuple[Any] | None]


def value_of(node: ast.expr, source: Source, other: OtherConstant) -> Any:
    """The value of a constant's expression; KernelError if it is not one.

    It is made of numbers, + - * // / ** <<, and tuples. other: gives (value,) of anything
    else that a language takes as a constant, such as a dtype or another constant's name, or None.
    """
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        check_bits(node.value, node, source)
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(value_of(item, source, other) for item in node.elts)
    if known := other(node):
        return known[0]
    number = None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = -_number(node.operand, source, other)
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        number = _operation(node, source, other)
    if isinstance(number, (int, float)):  # and not complex, as (-1) ** 0.5 is
        check_bits(number, node, source)
        return number
    source.refuse(
        node,
        f"`{ast.unparse(node)}` is not a constant; a constant is a number, a dtype, or "
        "+ - * // / ** << of numbers",
    )


def _operation(node: ast.BinOp, source: Source, other: OtherConstant) -> Any:
    left, right = (_number(side, source, other) for side in (node.left, node.right))
    if isinstance(node.op, (ast.Pow, ast.LShift)) and abs(right) > MAX_EXPONENT:
        source.refuse(node, f"a constant's exponent is at most {MAX_EXPONENT}")
    try:
        return ARITHMETIC[type(node.op)](left, right)
    except (ArithmeticError, TypeError, ValueError):  # 1 / 0, 1e300 ** 2, 1.5 << 1, 1 << -1
        return None


def _number(node: ast.expr, source: Source, other: OtherConstant) -> Any:
    number = value_of(node, source, other)
    if type(number) not in (int, float, bool):
        source.refuse(node, f"`{ast.unparse(node)}` is not a number")
    return number
