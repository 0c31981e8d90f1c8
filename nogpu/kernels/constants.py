"""The values of a cell's constants, from their syntax trees alone."""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from nogpu.kernels.language import check_bits
from nogpu.kernels.module import Module

ARITHMETIC: dict[type[ast.operator] | type[ast.unaryop], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
MAX_EXPONENT = 64  # a number of a billion digits is never computed
HUGE = {"factorial", "comb", "perm"}  # of which it could be the result
NUMBERS = {f"math.{name}": getattr(math, name) for name in ("pi", "e", "tau", "inf", "nan")}
NUMBERS |= {name.replace("math", "numpy"): value for name, value in NUMBERS.items()}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{function.__name__: function for function in (abs, bool, float, int, len, max, min)},
    **{
        f"{module.__name__}.{name}": getattr(module, name)
        for module in (math, np)
        for name, function in vars(math).items()
        if callable(function) and not name.startswith("_") and name not in HUGE
        if hasattr(module, name)
    },
}
OF_TEXTS = ("float", "int")  # float("inf")

OtherConstant = Callable[[ast.expr], tuple[Any] | None]


def value_of(node: ast.expr, module: Module, other: OtherConstant) -> Any:
    """The value of a constant's expression; KernelError if it is not one.

    It is made of numbers, operators, min, max, abs, int, float, bool, len, math's functions, and
    tuples. other: gives (value,) of anything else that a language takes as a constant, such as a
    dtype or another constant's name, or None.
    """
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        check_bits(node.value, node, module.whole)
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(value_of(item, module, other) for item in node.elts)
    if known := other(node):
        return known[0]
    number = NUMBERS.get(module.dotted(node))
    if isinstance(node, (ast.UnaryOp, ast.BinOp)) and type(node.op) in ARITHMETIC:
        number = _operation(node, module, other)
    elif isinstance(node, ast.Call):
        number = _result(node, module, other)
    if isinstance(number, (int, float)):  # and not complex, as (-1) ** 0.5 is
        check_bits(number, node, module.whole)
        return number
    module.whole.refuse(
        node,
        f"`{ast.unparse(node)}` is not a constant; a constant is a number, a dtype, or computed "
        "from numbers by operators, min, max, abs, int, float and math's functions",
    )


def _operation(node: ast.BinOp | ast.UnaryOp, module: Module, other: OtherConstant) -> Any:
    sides = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
    numbers = [_number(side, module, other) for side in sides]
    if isinstance(node.op, (ast.Pow, ast.LShift)) and abs(numbers[1]) > MAX_EXPONENT:
        module.whole.refuse(node, f"a constant's exponent is at most {MAX_EXPONENT}")
    return _computed(ARITHMETIC[type(node.op)], numbers)


def _result(node: ast.Call, module: Module, other: OtherConstant) -> Any:
    """What a call of a function of numbers gives; None for other calls."""
    name = module.dotted(node.func)
    if name not in FUNCTIONS or node.keywords:
        return None
    if name in OF_TEXTS and [type(part) for part in node.args] == [ast.Constant]:
        return _computed(FUNCTIONS[name], [ast.literal_eval(node.args[0])])
    return _computed(FUNCTIONS[name], [_argument(part, module, other) for part in node.args])


def _argument(node: ast.expr, module: Module, other: OtherConstant) -> Any:
    """A number, or several: max([1, 2])."""
    is_list = isinstance(node, ast.List)
    return value_of(ast.Tuple(node.elts, ast.Load()) if is_list else node, module, other)


def _computed(function: Callable[..., Any], arguments: list[Any]) -> Any:
    try:
        return function(*arguments)
    except (ArithmeticError, TypeError, ValueError):  # 1 / 0, 1e300 ** 2, 1.5 << 1, 1 << -1
        return None


def _number(node: ast.expr, module: Module, other: OtherConstant) -> Any:
    number = value_of(node, module, other)
    if type(number) not in (int, float, bool):
        module.whole.refuse(node, f"`{ast.unparse(node)}` is not a number")
    return number
