"""Atomic updates: cuda.atomic.add and the others."""

import ast

from nogpu.simt.calls import Builtins, Call
from nogpu.simt.elements import Element, accessed, check_written, indices
from nogpu.simt.operators import cast, operate
from nogpu.simt.program import Kind
from nogpu.simt.values import ArrayValue, Number, Value, constant, number

builtin = Builtins()

WHOLE = ("int32", "int64", "uint32", "uint64")
TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("add", "sub", "max", "min", "nanmax", "nanmin"), (*WHOLE, "float32", "float64")
    ),
    **dict.fromkeys(("and_", "or_", "xor", "exch", "cas", "compare_and_swap"), WHOLE),
    **dict.fromkeys(("inc", "dec"), ("uint32", "uint64")),
}
PARAMETERS = {"cas": ["ary", "idx", "old", "val"], "compare_and_swap": ["ary", "old", "val"]}
OPERATORS = {"add": "+", "sub": "-", "and_": "&", "or_": "|", "xor": "^"}


@builtin(*(f"cuda.atomic.{name}" for name in TYPES))
def atomic(call: Call) -> Value:
    names = PARAMETERS.get(call.name, ["ary", "idx", "val"])
    given = dict(zip(names, call.arguments(names), strict=True))
    frame, evaluator = call.frame, call.evaluator
    array = _array(call, evaluator.expression(given["ary"]))
    index = evaluator.expression(given["idx"]) if "idx" in given else constant(0, "int64")
    text = ast.unparse(given["idx"]) if "idx" in given else "0"
    places = indices(frame, call.node, array, index, text)
    if len(places) != len(array.type.shape):
        call.refuse(
            f"cuda.atomic.{call.name} needs {len(array.type.shape)} indices here, as a tuple"
        )
    dtype = array.type.dtype
    operands = [
        cast(frame, evaluator.number(given[key]), dtype) for key in ("old", "val") if key in given
    ]
    element = Element(call.node, ast.unparse(given["ary"]), array, places)
    place = accessed(frame, element, Kind.ATOMIC)
    cell = f"{array.type.space}_cells[{place}]"
    code = frame.writer.temporary(cell)
    check_written(frame, element, place, code)
    old = number(dtype, code)
    new = cast(frame, _updated(call, old, operands), dtype)
    frame.writer.emit(f"{cell} = {new.code}")
    return old


def _array(call: Call, value: Value) -> ArrayValue:
    if (
        not isinstance(value, ArrayValue)
        or value.type.space not in ("global", "shared")
        or not value.type.writable
    ):
        call.refuse(f"cuda.atomic.{call.name} works on an array in global or shared memory")
    if value.type.dtype not in TYPES[call.name]:
        call.refuse(
            f"cuda.atomic.{call.name} works on {', '.join(TYPES[call.name])}, and this array holds "
            f"{value.type.dtype}"
        )
    return value


def _updated(call: Call, old: Number, operands: list[Number]) -> Number:
    """The value that an update leaves behind."""
    name, value, kind = call.name, operands[-1], old.type
    if name in OPERATORS:
        return operate(call.frame, OPERATORS[name], old, value, call.node)
    code = {
        "max": f"maximum({old.code}, {value.code})",
        "nanmax": f"maximum({old.code}, {value.code})",
        "min": f"minimum({old.code}, {value.code})",
        "nanmin": f"minimum({old.code}, {value.code})",
        "cas": f"({value.code} if {old.code} == {operands[0].code} else {old.code})",
        "compare_and_swap": f"({value.code} if {old.code} == {operands[0].code} else {old.code})",
        "inc": f"(0 if {old.code} >= {value.code} else {old.code} + 1)",
        "dec": f"({value.code} if not 0 < {old.code} <= {value.code} else {old.code} - 1)",
    }.get(name)
    return Number(kind, code, None, old.span) if code else value  # exch leaves the value itself
