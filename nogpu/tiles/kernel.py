"""From a kernel, a grid and arguments to a Report."""

import random
from dataclasses import replace
from typing import Any

from nogpu.kernels.errors import KernelError, LaunchError, OutOfBoundsError
from nogpu.kernels.launch import MAX_GRID, Size, three_lengths
from nogpu.tiles import launch, remote_launch, warps
from nogpu.tiles.arrays import Arrays
from nogpu.tiles.binding import bound, defaults
from nogpu.tiles.functions import Function
from nogpu.tiles.jitted import as_kernel
from nogpu.tiles.launch import Launch
from nogpu.tiles.report import Report
from nogpu.tiles.triton_interpreter import interprets

MAX_PROGRAMS = 1_000_000


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
