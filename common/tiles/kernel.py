"""From a kernel, a grid and arguments to a Report."""

import ast
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.kernels.errors import KernelError, LaunchError, OutOfBoundsError
from common.kernels.launch import MAX_GRID, Size, three_lengths
from common.tiles import jitted, launch, remote_launch
from common.tiles.arrays import Arrays
from common.tiles.constants import plain
from common.tiles.functions import Function
from common.tiles.launch import Launch
from common.tiles.report import Report
from common.tiles.triton_interpreter import interprets

LAUNCH_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
MAX_PROGRAMS = 1_000_000
Place = Callable[[str, Any], Any]  # (parameter, thing) -> what stands for an array; None for others


@dataclass(frozen=True)
class Kernel:
    """A kernel whose text has been checked; tiles.count runs it."""

    function: Function

    @property
    def __name__(self) -> str:
        return self.function.name


def as_kernel(kernel: Any) -> Kernel:
    """The Kernel of a @triton.jit function, or of what compile_source gives."""
    if isinstance(kernel, Kernel):
        return kernel
    if jitted.is_jitted(kernel):
        return Kernel(jitted.of_python(kernel))
    if jitted.is_jitted(getattr(kernel, "fn", None)):
        raise KernelError(
            f"the kernel is wrapped by {type(kernel).__name__}; give the @triton.jit function "
            "itself (.fn) and the constants of one configuration"
        )
    raise KernelError(f"{kernel!r} is not a @triton.jit function")


def count(
    kernel: Any, grid: Any, arguments: tuple, constants: dict[str, Any], seed: int | None
) -> Report:
    """The Report of a launch."""
    try:
        function = as_kernel(kernel).function
        arrays = Arrays()
        request = Launch(
            function,
            bound(function, arguments, constants, arrays.place),
            _grid(grid, function, arguments, constants),
            random.randrange(2**32) if seed is None else seed,  # noqa: S311 - an order, not a secret
        )
        return launch.run(request, arrays) if interprets() else remote_launch.count(request, arrays)
    except (KernelError, LaunchError, OutOfBoundsError, NotImplementedError) as error:
        raise error.with_traceback(None) from None


def bound(
    function: Function, arguments: tuple, constants: dict[str, Any], place: Place
) -> dict[str, Any]:
    """{parameter: value} of a launch, without the launch's options."""
    parameters, name = function.parameters(), function.name
    if len(arguments) > len(parameters):
        raise LaunchError(
            f"{name} takes {len(parameters)} arguments ({', '.join(parameters)}), and "
            f"{len(arguments)} were given"
        )
    given = dict(zip(parameters, arguments, strict=False))
    for key, value in constants.items():
        if key in given:
            raise LaunchError(f"{name} is given {key} twice")
        if key in parameters:
            given[key] = value
        elif key not in LAUNCH_OPTIONS:
            raise LaunchError(
                f"{name} has no parameter {key}; its parameters are {', '.join(parameters)}"
            )
    given = defaults(function) | given
    if missing := [key for key in parameters if key not in given]:
        raise LaunchError(f"{name} needs {', '.join(missing)}")
    return {
        key: _constant(key, given[key]) if constant else _argument(key, given[key], place)
        for key, constant in parameters.items()
    }


def defaults(function: Function) -> dict[str, Any]:
    """{parameter: its default}, of those that have one."""
    arguments = function.definition().args
    names = [argument.arg for argument in arguments.args]
    values = [ast.literal_eval(default) for default in arguments.defaults]
    return dict(zip(names[len(names) - len(values) :], values, strict=True))


def _constant(name: str, value: Any) -> Any:
    return value if isinstance(value, str) else plain(name, value)


def _argument(name: str, value: Any, place: Place) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise KernelError(f"{name} is {value}; an integer has 64 bits at most")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    placed = place(name, _described(name, value) if isinstance(value, tuple) else value)
    if placed is None:
        raise KernelError(
            f"{name} is a {type(value).__name__}; a kernel takes arrays, tensors, "
            "tensor descriptors and numbers"
        )
    return placed


def _described(name: str, parts: tuple) -> Any:
    """The descriptor of (tensor, shape, strides, block_shape), which checks without Triton give."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    try:
        return TensorDescriptor(*parts)
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        what = (
            f"{name} is a tuple, but not a tensor descriptor (tensor, shape, strides, block_shape)"
        )
        raise KernelError(f"{what}: {error}") from None


def _grid(grid: Any, function: Function, arguments: tuple, constants: dict[str, Any]) -> Size:
    """A grid as three whole numbers, within what a GPU takes."""
    if callable(grid):
        given = dict(zip(function.parameters(), arguments, strict=False))
        grid = grid(defaults(function) | given | constants)
    size = three_lengths("grid", grid, 0, MAX_GRID)
    programs = size[0] * size[1] * size[2]
    if programs > MAX_PROGRAMS:
        raise LaunchError(
            f"grid {size} has {programs:,} programs; the interpreter, which runs about a "
            f"thousand per second, is given {MAX_PROGRAMS:,} at most"
        )
    return size
