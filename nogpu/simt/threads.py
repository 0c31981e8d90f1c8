"""Who a thread is: cuda.grid, cuda.threadIdx, cuda.blockDim, cuda.laneid and the others."""

from collections.abc import Callable

from nogpu.simt.calls import Builtins, Call
from nogpu.simt.program import Program
from nogpu.simt.values import Number, Value, constant, integer, tuple_of

builtin = Builtins()

AXES = "xyz"


@builtin("cuda.grid")
def grid(call: Call) -> Value:
    grids, blocks = call.frame.program.grid, call.frame.program.block
    return _over_axes(
        call,
        lambda axis, i: integer(
            f"(b{axis} * {blocks[i]} + t{axis})", span=(0, grids[i] * blocks[i] - 1)
        ),
    )


@builtin("cuda.gridsize")
def gridsize(call: Call) -> Value:
    program = call.frame.program
    sizes = [grid * block for grid, block in zip(program.grid, program.block, strict=True)]
    return _over_axes(call, lambda axis, i: integer(str(sizes[i]), span=(sizes[i], sizes[i])))


def _over_axes(call: Call, value: Callable[[str, int], Number]) -> Value:
    (count,) = call.numbers(1)
    if type(count.constant) is not int or not 1 <= count.constant <= 3:
        call.refuse(f"`{call.text}` takes 1, 2 or 3, written as a number")
    values = [value(axis, i) for i, axis in enumerate(AXES[: count.constant])]
    return values[0] if len(values) == 1 else tuple_of(values)


def coordinate(program: Program, dotted: str) -> Number | None:
    """The value of cuda.laneid, cuda.warpsize, cuda.threadIdx.x, ...; None for another name."""
    _, _, rest = dotted.partition("cuda.")
    if rest == "laneid":
        return integer("(t & 31)", "int32", (0, 31))
    if rest == "warpsize":
        return constant(32, "int32")
    name, _, axis = rest.rpartition(".")
    if len(axis) != 1 or axis not in AXES:
        return None
    block, grid = program.block[AXES.index(axis)], program.grid[AXES.index(axis)]
    coordinates = {
        "threadIdx": (f"t{axis}", (0, block - 1)),
        "blockIdx": (f"b{axis}", (0, grid - 1)),
        "blockDim": (str(block), (block, block)),
        "gridDim": (str(grid), (grid, grid)),
    }
    if name not in coordinates:
        return None
    code, span = coordinates[name]
    return integer(code, "int32", span)
