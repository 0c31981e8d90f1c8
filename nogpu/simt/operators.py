"""Conversions and operators: code for one number, from code for others.

Operations that must happen in order (loads, calls, roundings) get their own lines, so that the
code of a value can be used anywhere. A whole number may have more than 64 bits inside one
expression, because + - * & | ^ and ~ do not mind. Before anything else uses the number, `exact`
reduces it to its register.
"""

import ast
from dataclasses import replace

from nogpu.simt import arithmetic, dtypes
from nogpu.simt.frame import Frame
from nogpu.simt.values import Number, constant, converted, integer, within

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
ANY_SHIFT = -(2**128), 2**128  # the span of a shift by a number that only the run knows
MAX_SQUARED_POWER = 0x10000  # Numba writes out smaller constant powers as multiplications


# Conversions


def exact(frame: Frame, value: Number) -> Number:
    """The same number in the range of its type: a whole number that outgrew its register wraps."""
    if value.span is None or within(value.span, dtypes.limits(value.type)):
        return value
    writer = frame.writer
    name = writer.temporary(value.code)
    if value.type == "uint64":
        low, high, rest = 0, arithmetic.SPAN, ", 64, False"
    else:
        low, high, rest = arithmetic.LOW, arithmetic.HIGH, ""
    writer.emit(f"if not {low} <= {name} < {high}: {name} = wrap({name}{rest})")
    return integer(name, value.type)


def atom(frame: Frame, value: Number) -> Number:
    """The same number, exact, as a name or a literal."""
    value = exact(frame, value)
    return replace(value, code=frame.writer.simple(value.code))


def rounded(frame: Frame, code: str, kind: str) -> Number:
    """The result of a floating-point operation of this type, done in 64 bits."""
    if kind == "float64":
        return Number(kind, f"({code})")
    if kind == "float16":
        return Number(kind, frame.writer.temporary(f"to_float16({code})"))
    frame.writer.emit(f"f32[0] = {code}")
    return Number(kind, frame.writer.temporary("f32[0]"))


def cast(frame: Frame, value: Number, kind: str) -> Number:
    """The number converted to another type."""
    if value.constant is not None:
        return constant(value.constant, kind)
    value = exact(frame, value)
    if value.type == kind:
        return value
    if kind in dtypes.FLOATS:
        return _cast_to_float(frame, value, kind)
    if kind == "bool":
        return integer(f"({value.code} != 0)", "bool")
    width, signed = dtypes.itemsize(kind) * 8, not kind.startswith("u")
    if value.type in dtypes.FLOATS:
        code = f"truncated({value.code}, {width}, {signed})"
        return integer(frame.writer.temporary(code), kind)
    if within(value.span, dtypes.limits(kind)):
        return replace(value, type=kind)
    return integer(frame.writer.temporary(f"wrap({value.code}, {width}, {signed})"), kind)


def _cast_to_float(frame: Frame, value: Number, kind: str) -> Number:
    order = dtypes.FLOATS.index
    if value.type in dtypes.FLOATS and order(value.type) < order(kind):
        return Number(kind, value.code)
    if kind == "float64":
        return Number(kind, f"float({value.code})")
    if kind == "float32" and value.span and not within(value.span, (-(2**53), 2**53)):
        return Number(kind, frame.writer.temporary(f"to_float32({value.code})"))
    return rounded(frame, value.code, kind)


# Operators


def operate(frame: Frame, operator: str, left: Number, right: Number, node: ast.AST) -> Number:
    """The number `left operator right`."""
    frame.step()
    if operator in ("&", "|", "^", "<<", ">>"):
        return _bitwise(frame, operator, left, right, node)
    kind = dtypes.arithmetic(operator, left.type, right.type)
    if dtypes.is_integer(kind):
        return _integer_operation(frame, operator, kind, left, right)
    frame.count_flop()
    return _float_operation(frame, operator, kind, left, right)


def _float_operation(frame: Frame, operator: str, kind: str, left: Number, right: Number) -> Number:
    power = right.constant
    if operator == "**" and isinstance(power, int) and abs(power) <= MAX_SQUARED_POWER:
        base = cast(frame, left, kind)
        code = f"power_by_squaring({base.code}, {power}, {kind!r})"
        return Number(kind, frame.writer.temporary(code))
    if kind != "float16":  # float16 is computed in float64 too, and rounded once
        left, right = (
            side if side.type == "float16" else cast(frame, side, kind) for side in (left, right)
        )
    left, right = exact(frame, left), exact(frame, right)
    if operator in "+-*":
        return rounded(frame, f"{left.code} {operator} {right.code}", kind)
    if operator == "/" and right.constant:
        return rounded(frame, f"{left.code} / {right.code}", kind)
    if operator == "/":
        over, under = atom(frame, left).code, atom(frame, right).code
        return rounded(frame, f"{over} / {under} if {under} else divide({over}, {under})", kind)
    name = {"//": "floor_divide", "%": "modulo", "**": "math_pow"}[operator]
    return rounded(frame, f"{name}({left.code}, {right.code})", kind)


def _span(operator: str, left: Number, right: Number) -> dtypes.Span | None:
    if left.span is None or right.span is None:
        return None
    return dtypes.span(operator, left.span, right.span)


def _integer_operation(
    frame: Frame, operator: str, kind: str, left: Number, right: Number
) -> Number:
    if operator in "+-*":
        code = f"({left.code} {operator} {right.code})"
        return integer(code, kind, _span(operator, left, right))
    left, right = cast(frame, left, kind), cast(frame, right, kind)
    if operator == "**":
        code = frame.writer.temporary(f"power_of_integers({left.code}, {right.code})")
        return integer(code, kind, (0, 2**64))
    # Python rounds toward minus infinity, as Numba does. Division by zero raises an error here,
    # which Schedule.explain turns into a sentence.
    name = frame.writer.temporary(f"{left.code} {operator} {right.code}")
    return integer(name, kind, _span(operator, left, right))


def _bitwise(frame: Frame, operator: str, left: Number, right: Number, node: ast.AST) -> Number:
    shift = operator in ("<<", ">>")
    kind = dtypes.bitwise(left.type, right.type, shift)
    if kind is None:
        frame.refuse(
            node, f"{operator} works on whole numbers; these are {left.type} and {right.type}"
        )
    if not shift:
        code = f"({left.code} {operator} {right.code})"
        return integer(code, kind, _span(operator, left, right))
    left, right = cast(frame, left, kind), exact(frame, right)
    if right.constant is not None and 0 <= right.constant < 64:
        code = f"({left.code} {operator} {right.constant})"
        return integer(code, kind, _span(operator, left, right))
    name = "shift_left" if operator == "<<" else "shift_right"
    code = frame.writer.temporary(f"{name}({left.code}, {right.code})")
    return integer(code, kind, ANY_SHIFT)


def negated(frame: Frame, value: Number, node: ast.UnaryOp) -> Number:
    """The number -value, +value, ~value or `not value`."""
    if isinstance(node.op, ast.Not):
        frame.step()
        return integer(f"(not {exact(frame, value).code})", "bool")
    whole = dtypes.is_integer(value.type)
    kind = ("uint64" if value.type.startswith("u") else "int64") if whole else value.type
    if isinstance(node.op, ast.USub) and value.constant is not None:
        return constant(-value.constant, kind)
    if isinstance(node.op, ast.UAdd):
        return replace(value, type=kind)
    frame.step()
    if value.span is None:
        if isinstance(node.op, ast.Invert):
            frame.refuse(node, f"~ works on whole numbers; this is {value.type}")
        return Number(kind, f"(-{value.code})")
    if isinstance(node.op, ast.Invert) and value.type == "bool":
        return integer(f"(not {value.code})", "bool")
    sign, shift = ("-", 0) if isinstance(node.op, ast.USub) else ("~", 1)
    span = -value.span[1] - shift, -value.span[0] - shift
    result = integer(f"({sign}{value.code})", kind, span)
    if value.type in ("bool", kind):
        return result
    # Numba does this before it widens: -uint8(1) is 255
    return replace(cast(frame, result, value.type), type=kind)


def extreme(frame: Frame, name: str, first: Number, second: Number) -> Number:
    """The minimum or maximum of two numbers."""
    frame.step()
    kind = dtypes.common(first.type, second.type)
    codes = [joined(frame, side, kind) for side in (first, second)]
    span = None
    if dtypes.is_integer(kind) and first.span and second.span:
        choose = min if name == "minimum" else max
        span = choose(first.span[0], second.span[0]), choose(first.span[1], second.span[1])
    return Number(kind, frame.writer.temporary(f"{name}({', '.join(codes)})"), None, span)


def joined(frame: Frame, value: Number, kind: str) -> str:
    """Code of a number where two branches meet in this type."""
    value = exact(frame, value)
    return converted(value.code, value.type, kind)
