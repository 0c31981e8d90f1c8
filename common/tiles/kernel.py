"""From a kernel, a grid and arguments to a Report."""

import random
from dataclasses import dataclass, replace
from typing import Any

from common.kernels.errors import KernelError, LaunchError, OutOfBoundsError
from common.kernels.launch import MAX_GRID, Size, three_lengths
from common.tiles import jitted, launch, remote_launch, warps
from common.tiles.arrays import Arrays
from common.tiles.binding import bound, defaults
from common.tiles.functions import Function
from common.tiles.launch import Launch
from common.tiles.report import Report
from common.tiles.triton_interpreter import interprets

MAX_PROGRAMS = 1_000_000


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
        launched = warps.Launched.of(request, arrays, constants)
        run = launch.run if interprets() else remote_launch.count
        return replace(run(request, arrays), compile=launched.warps)
    except (KernelError, LaunchError, OutOfBoundsError, NotImplementedError) as error:
        raise error.with_traceback(None) from None


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
