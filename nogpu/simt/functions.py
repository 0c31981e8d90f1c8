"""Functions of numbers: Python's built-in ones, those of math, and cuda.popc, clz, ffs and brev."""

import ast

from nogpu.simt import arithmetic, dtypes
from nogpu.simt.calls import Builtins, Call
from nogpu.simt.elements import lengths
from nogpu.simt.operators import cast, exact, extreme, operate, rounded
from nogpu.simt.values import ArrayValue, Number, TupleValue, Value, constant, integer

builtin = Builtins()

BITS = {
    "popc": "count_ones",
    "clz": "leading_zeros",
    "ffs": "first_one",
    "brev": "reversed_bits",
}


@builtin("len")
def length(call: Call) -> Value:
    (argument,) = call.arguments(["array"])
    value = call.evaluator.expression(argument)
    if isinstance(value, TupleValue):
        return constant(len(value.items), "int64")
    if not isinstance(value, ArrayValue):
        call.refuse("len is for arrays")
    return lengths(value)[0]


@builtin("range")
def range_(call: Call) -> Value:
    call.refuse("range belongs in `for name in range(...)`")


@builtin("int")
def int_(call: Call) -> Value:
    (value,) = call.numbers(1)
    return cast(call.frame, value, value.type if value.type in dtypes.INTEGERS else "int64")


@builtin("float")
def float_(call: Call) -> Value:
    (value,) = call.numbers(1)
    return value if value.type in dtypes.FLOATS else cast(call.frame, value, "float64")


@builtin("bool")
def bool_(call: Call) -> Value:
    (value,) = call.numbers(1)
    return cast(call.frame, value, "bool")


@builtin("abs")
def absolute(call: Call) -> Value:
    (value,) = call.numbers(1)
    call.frame.step()
    if value.type in dtypes.FLOATS:
        return Number(value.type, f"abs({value.code})")
    kind = "int64" if value.type == "bool" else value.type
    value = exact(call.frame, value)
    low, high = value.span or dtypes.limits(value.type)
    result = integer(f"abs({value.code})", "int64", (0, max(abs(low), abs(high))))
    return cast(call.frame, result, kind)


@builtin("round")
def round_(call: Call) -> Value:
    (value,) = call.numbers(1)
    call.frame.step()
    code = exact(call.frame, value).code
    return integer(call.frame.writer.temporary(f"rounded({code})"))


@builtin("pow")
def power(call: Call) -> Value:
    left, right = call.numbers(2)
    return operate(call.frame, "**", left, right, call.node)


@builtin("min", "max")
def extreme_of_several(call: Call) -> Value:
    if len(call.node.args) < 2:
        call.refuse(f"{call.name} takes two numbers or more; over an array, write a loop")
    result, *others = call.numbers(len(call.node.args))
    for other in others:
        result = extreme(call.frame, f"{call.name}imum", result, other)
    return result


@builtin(*(f"math.{name}" for name in (*arithmetic.FUNCTIONS, *arithmetic.TESTS)))
def function_of_math(call: Call) -> Value:
    frame, name = call.frame, call.name
    values = call.numbers(2 if name in arithmetic.OF_TWO else 1)
    frame.step()
    first = values[0].type
    if name in arithmetic.TESTS:
        return integer(f"{name}({cast(frame, values[0], 'float64').code})", "bool")
    frame.count_flop()
    if len(values) == 1 and first == "float16":
        text = ast.unparse(call.node.args[0])
        call.refuse(f"math.{name} does not take a float16; convert it, float32({text})")
    kind = first if first == "float32" else "float64"
    if len(values) == 2:
        kind = dtypes.of_function(name, first, values[1].type)
    codes = ", ".join(cast(frame, value, kind).code for value in values)
    return rounded(frame, f"math_{name}({codes})", kind)


@builtin(*(f"cuda.{name}" for name in BITS))
def function_of_bits(call: Call) -> Value:
    (value,) = call.numbers(1)
    call.frame.step()
    code = call.whole(value, f"the argument of cuda.{call.name}")
    width = dtypes.itemsize(value.type) * 8
    kind = value.type
    if call.name == "brev":  # Numba's takes a uint64, or the 32 low bits of anything else
        width = 64 if value.type == "uint64" else 32
        kind = f"uint{width}"
    elif call.name == "ffs":
        kind = "uint32"
    return integer(call.frame.writer.temporary(f"{BITS[call.name]}({code}, {width})"), kind)
