"""Constants of a kernel's cell: what their expressions come to, from the syntax tree alone."""

import ast
import operator

ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


def value_of(node, source, other):
    """The value of a constant's expression: a number, + - * // / ** << of numbers, tuples of them; else KernelError.

    source: whose refuse() says where. other(node): (value,) of what else a constant may be, a dtype or another's name, or None.
    """
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        return _bounded(node.value, node, source)
    if isinstance(node, ast.Tuple):
        return tuple(value_of(item, source, other) for item in node.elts)
    if found := other(node):
        return found[0]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _bounded(-_number(node.operand, source, other), node, source)
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left, right = (_number(side, source, other) for side in (node.left, node.right))
        if (
            isinstance(node.op, (ast.Pow, ast.LShift)) and abs(right) > 64
        ):  # a number of a billion digits is never computed
            source.refuse(node, "a constant's exponent is at most 64")
        try:
            number = ARITHMETIC[type(node.op)](left, right)
        except (ArithmeticError, TypeError, ValueError):  # 1 / 0, 1e300 ** 2, 1.5 << 1, 1 << -1
            number = None
        if isinstance(number, (int, float)):  # and not complex, as (-1) ** 0.5 is
            return _bounded(number, node, source)
    source.refuse(
        node,
        f"`{ast.unparse(node)}` is no constant; one is a number, a dtype, or + - * // / ** << of numbers",
    )


def _number(node, source, other):
    number = value_of(node, source, other)
    if type(number) not in (int, float, bool):
        source.refuse(node, f"`{ast.unparse(node)}` is no number")
    return number


def _bounded(number, node, source):
    if isinstance(number, int) and not -(2**63) <= number < 2**64:
        source.refuse(node, "an integer has 64 bits at most")
    return number
