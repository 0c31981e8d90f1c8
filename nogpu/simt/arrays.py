"""Arrays that a kernel makes: cuda.shared.array, cuda.local.array and cuda.const.array_like."""

import ast
import operator
from collections.abc import Callable, Sequence

from nogpu.simt import dtypes
from nogpu.simt.calls import Builtins, Call
from nogpu.simt.dtypes import Array
from nogpu.simt.names import dtype_name
from nogpu.simt.values import ArrayValue, Builtin, Dtype, Number, Table, TupleValue, Value

builtin = Builtins()
FOLDED: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@builtin("cuda.shared.array")
def shared(call: Call) -> Value:
    shape, dtype = _shape_and_dtype(call)
    frame = call.frame
    memory, name = frame.program.memory, frame.target or "shared"
    if shape == (0,):
        place, length = memory.reserve_dynamic(_where(call), name, dtype)
        return _fresh(dtype, "shared", (length,), place)
    place = memory.reserve_shared(_key(call), _where(call), name, shape, dtype)
    return _fresh(dtype, "shared", shape, place)


@builtin("cuda.local.array")
def local(call: Call) -> Value:
    shape, dtype = _shape_and_dtype(call)
    place = call.frame.program.memory.reserve_local(_key(call), _where(call), shape, dtype)
    return _fresh(dtype, "local", shape, place)


@builtin("cuda.const.array_like")
def constant_like(call: Call) -> Value:
    (argument,) = call.arguments(["ary"])
    table = call.evaluator.meaning(argument)
    if not isinstance(table, Table) or table.array.dtype.name not in dtypes.SCALARS:
        call.refuse("cuda.const.array_like takes a NumPy array from outside of the kernel")
    place = call.frame.program.memory.reserve_constant(table.name, table.array)
    return _fresh(table.array.dtype.name, "constant", table.array.shape, place)


def _shape_and_dtype(call: Call) -> tuple[tuple[int, ...], str]:
    shape_node, dtype_node = call.arguments(["shape", "dtype"])
    meaning = call.evaluator.meaning(dtype_node)
    dtype = dtype_name(meaning.name) if isinstance(meaning, (Dtype, Builtin)) else ""
    if not dtype:
        call.refuse(f"`{ast.unparse(dtype_node)}` is not a dtype; name one, such as float32")
    shape = _constants(call.evaluator.expression(folded(shape_node)))
    if shape is None:
        call.refuse(
            f"the shape `{ast.unparse(shape_node)}` must be numbers known before the run, each "
            "written out or a constant's name; Numba computes nothing from names here, so write "
            "PITCH = TILE + 1 before the kernel"
        )
    return shape, dtype


def folded(node: ast.expr) -> ast.expr:
    """The node with 32 * 33 in place of the product: Python folds literals before Numba looks."""
    if isinstance(node, ast.Tuple):
        return ast.Tuple([folded(item) for item in node.elts], node.ctx)
    if not isinstance(node, ast.BinOp) or type(node.op) not in FOLDED:
        return node
    sides = [folded(side) for side in (node.left, node.right)]
    values = [side.value for side in sides if isinstance(side, ast.Constant)]
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) < 2:
        return node
    if type(node.op) in (ast.FloorDiv, ast.Mod) and not numbers[1]:
        return node
    return ast.copy_location(ast.Constant(FOLDED[type(node.op)](*numbers)), node)


def _constants(value: Value) -> tuple[int, ...] | None:
    items = value.items if isinstance(value, TupleValue) else (value,)
    numbers: list[int] = []
    for item in items:
        number = item.constant if isinstance(item, Number) else None
        if type(number) is not int or number < 0:
            return None
        numbers.append(number)
    return tuple(numbers)


def _fresh(dtype: str, space: str, shape: Sequence[int], place: int) -> ArrayValue:
    strides = [1]
    for length in reversed(shape[1:]):
        strides.insert(0, strides[0] * length)
    return ArrayValue(Array(dtype, space, tuple(shape), tuple(strides)), str(place))


def _key(call: Call) -> tuple[int, int]:
    return call.frame.version, id(call.node)


def _where(call: Call) -> str:
    return call.frame.function.source.where(call.node.lineno)
