"""A launch that is counted: from a kernel and its arguments to a Report."""

import ast
import random
from dataclasses import dataclass

import numpy as np

from common.kernels.errors import KernelError, LaunchError, OutOfBoundsError
from common.kernels.launch import MAX_GRID, three_lengths
from common.tiles import attach, build, functions
from common.tiles.arrays import Arrays, Placed
from common.tiles.counters import Recorder
from common.tiles.functions import Function
from common.tiles.memory import Memory

LAUNCH_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
ADVICE = {  # what Triton's interpreter says: what to write
    "for ** or pow()": "a power is x * x, or tl.exp2(y * tl.log2(x))",
    "'int' object is not iterable": "an element of an array is tl.load(x + i); a block is indexed by None and : alone, "
    "x[:, None], and its elements have no numbers",
    "data-type of size 32 to data-type of size 1": "`not` is for bools; compare with 0",
    "unexpected type fp": "// and the operators of bits are for whole numbers; tl.floor(x / y)",
    "has no len()": "x.shape[0]",
    "must have type `constexpr": "a block's shape is made of constants: NAME: tl.constexpr = ...",
}
MAX_PROGRAMS = 1_000_000


@dataclass(frozen=True)
class Kernel:
    """A kernel whose text has been checked; tiles.count runs it."""

    function: Function

    @property
    def __name__(self):
        return self.function.name


@dataclass
class Launch:
    """A launch as plain data, beside the arrays: it can cross to another process."""

    function: Function
    values: dict  # parameter: number, constant, or a Placed or PlacedDescriptor (see arrays)
    grid: tuple
    seed: int


def as_kernel(kernel):
    """The Kernel of a @triton.jit function, or of what compile_source gives."""
    if isinstance(kernel, Kernel):
        return kernel
    if functions.is_jitted(kernel):
        return Kernel(functions.of_python(kernel))
    inner = getattr(kernel, "fn", None)
    if functions.is_jitted(inner):
        raise KernelError(
            f"the kernel is wrapped by {type(kernel).__name__}; give the @triton.jit function itself (.fn) and "
            "the constants of one configuration"
        )
    raise KernelError(f"{kernel!r} is no @triton.jit function")


def count(kernel, grid, arguments, constants, seed):
    """The Report of a launch."""
    try:
        function = as_kernel(kernel).function
        arrays = Arrays()
        values = bound(function, arguments, constants, arrays.place)
        launch = Launch(
            function,
            values,
            _grid(grid, function, arguments, constants),
            random.randrange(2**32) if seed is None else seed,
        )
        if attach.interprets():
            return run(launch, arrays)
        from common.tiles import child

        return child.count(launch, arrays)
    except (KernelError, LaunchError, OutOfBoundsError, NotImplementedError) as error:
        raise error.with_traceback(None) from None


def bound(function, arguments, constants, place):
    """{parameter: value} of a launch, where place makes a value of what is an array. Options of the launch are left out."""
    parameters, name = function.parameters(), function.name
    named = {
        key: value
        for key, value in constants.items()
        if key not in LAUNCH_OPTIONS or key in parameters
    }
    if len(arguments) > len(parameters):
        raise LaunchError(
            f"{name} takes {len(parameters)} arguments ({', '.join(parameters)}), and {len(arguments)} were "
            "given"
        )
    given = dict(zip(parameters, arguments, strict=False))
    for key, value in named.items():
        if key in given or key not in parameters:
            raise LaunchError(
                f"{name} is given {key} twice"
                if key in given
                else f"{name} has no parameter {key}; its parameters are {', '.join(parameters)}"
            )
        given[key] = value
    given = defaults(function) | given
    if missing := [key for key in parameters if key not in given]:
        raise LaunchError(f"{name} needs {', '.join(missing)}")
    return {key: _value(key, given[key], parameters[key], place) for key in parameters}


def defaults(function):
    """{parameter: its default}, of those that have one."""
    arguments = function.definition().args
    names = [argument.arg for argument in arguments.args]
    values = [ast.literal_eval(each) for each in arguments.defaults]
    return dict(zip(names[len(names) - len(values) :], values, strict=True))


def _value(name, value, constant, place):
    if constant:
        return value if isinstance(value, str) else functions.plain(name, value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise KernelError(f"{name} is {value}; an integer has 64 bits at most")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    placed = place(name, _described(name, value) if isinstance(value, tuple) else value)
    if placed is None:
        raise KernelError(
            f"{name} is a {type(value).__name__}; a kernel takes arrays, tensors, tensor descriptors and numbers"
        )
    return placed


def _described(name, parts):
    """The tensor descriptor made of (tensor, shape, strides, block_shape): a check has no other, as it runs without Triton."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    try:
        return TensorDescriptor(*parts)
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        what = f"{name} is a tuple, and no tensor descriptor, (tensor, shape, strides, block_shape)"
        raise KernelError(f"{what}: {error}") from None


def _grid(grid, function, arguments, constants):
    """A grid as three whole numbers, within what a GPU takes."""
    if callable(grid):
        grid = grid(
            {
                **defaults(function),
                **dict(zip(function.parameters(), arguments, strict=False)),
                **constants,
            }
        )
    size = three_lengths("grid", grid, 0, MAX_GRID)
    if size[0] * size[1] * size[2] > MAX_PROGRAMS:
        raise LaunchError(
            f"grid {size} has {size[0] * size[1] * size[2]:,} programs; the interpreter, which runs about a "
            f"thousand a second, is given {MAX_PROGRAMS:,} at most"
        )
    return size


def run(launch, arrays):
    """The Report of a launch, run here by Triton's interpreter."""
    function, grid = launch.function, launch.grid
    built = build.Built(function)
    memory = Memory(arrays.arguments())
    recorder = Recorder(memory, grid)
    programs = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    random.Random(launch.seed).shuffle(programs)
    values = _values(launch, memory)
    try:
        attach.run(built, values, grid, programs, recorder)
    except Exception as error:
        raise _told(error, built, recorder) from None
    finally:
        arrays.write_back()
    return recorder.report(function.name, launch.seed)


def _values(launch, memory):
    """{parameter: what Triton's interpreter takes}."""
    import triton.language as tl

    values = {}
    for name, constant in launch.function.parameters().items():
        value = launch.values[name]
        if constant:
            values[name] = functions.resolved(value, tl)
        elif isinstance(value, Placed):
            pointer = attach.pointer(memory.arguments[value.number])
            values[name] = (
                pointer
                if value.shape is None
                else attach.descriptor(
                    pointer, value.shape, value.strides, value.block_shape, value.padding
                )
            )
        else:
            values[name] = attach.number(value)
    return values


def _told(error, built, recorder):
    """The error that tells where in the kernel another one happened, and in which program."""
    place = built.place(error.__traceback__)
    where = (
        f"{place[0].where(place[1])}, program {recorder.program}: "
        if place
        else f"program {recorder.program}: "
    )
    text = (
        str(error.args[0])
        if isinstance(error, (KernelError, OutOfBoundsError))
        else _sentence(error)
    )
    return (OutOfBoundsError if isinstance(error, OutOfBoundsError) else KernelError)(where + text)


def _sentence(error):
    text = str(error)
    text += next((f" ({advice})" for words, advice in ADVICE.items() if words in text), "")
    if isinstance(error, (AssertionError, ValueError, TypeError)) and text:
        return text
    return f"{type(error).__name__}" + (f": {text}" if text else "")
