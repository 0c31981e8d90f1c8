"""Counters over Triton's interpreter: what a kernel's programs load and store, where they race, where they go out of bounds.

    from common import tiles
    report = tiles.count(kernel, grid, x, out, n, BLOCK=1024)     # as kernel[grid](x, out, n, BLOCK=1024)
    report.loads.sectors                  # 32 bytes each, requested of the first-level cache: not DRAM traffic
    report.array("x").loads.bytes
    report.busiest.loads.requests         # of the program that moves most; report.imbalance: its bytes over the mean's
    print(report)                         # by line of the kernel
    report.draw("x")                      # which program loads what

Programs run in another order each time, so that a kernel which relies on their order is caught; report.races tells where.
What a masked-off load without other= leaves undefined may not reach memory: the error names both lines.

Read it in this order: `language` (what a kernel may be written in) and `functions` (what one is made of), `build` (what
Triton's interpreter runs) and `attach` (all that we use of what is private to it), `undefined` (elements that hold no value),
`arrays` and `memory` (which element of which array an address is, and who touched it), `counters`, `report` and `draw`,
`kernel` (how it all comes together), `child` (the same where Triton compiles), `compiler` (PTX with no GPU).
"""

from common.kernels.errors import KernelError, LaunchError, OutOfBoundsError
from common.remote import CountedRemotely
from common.tiles.report import Report

__all__ = [
    "KernelError",
    "LaunchError",
    "OutOfBoundsError",
    "Report",
    "compile_source",
    "compiled",
    "count",
]


def count(kernel, grid, *arguments, seed=None, **constants):
    """The Report of a launch: what its programs load and store, by array and line, and where they race.

    kernel, grid, arguments, constants: as in kernel[grid](*arguments, **constants); a tensor descriptor may be what it
    is made of, the tuple (tensor, shape, strides, block_shape). The arrays are changed as by a launch.
    seed: of the order in which programs run, another one each time if None; a kernel's own parameter of that name is given by
    position.
    """
    if isinstance(kernel, CountedRemotely):
        grid = grid(constants) if callable(grid) else grid
        return Report.from_dict(
            kernel.count_remotely("tiles", grid, *arguments, seed=seed, **constants)
        )
    from common.tiles import kernel as kernels

    return kernels.count(kernel, grid, arguments, constants, seed)


def compile_source(text, name, constants=None):
    """The kernel called name in a text of functions and constants, for tiles.count; nothing in the text is run as Python.

    text: what a student's cell holds: @triton.jit functions, and constants that they use, NAME = tl.constexpr(a number).
    constants: {name: number, tuple or dtype} that the text may use, beside tl. What the kernel does not use may be any Python:
    it is never run.
    """
    from common.tiles import functions
    from common.tiles.kernel import Kernel

    try:
        return Kernel(functions.of_text(text, name, constants))
    except RecursionError:
        raise KernelError(f"{name}: this is nested too deeply") from None


def compiled(kernel, *arguments, num_warps=4, num_stages=3, capability=90, **constants):
    """What Triton's compiler makes of a kernel for these arguments: .ptx, .ttir, .registers, .spilled_bytes, .shared_bytes.

    No GPU is needed: it is compiled for one of this compute capability (90: Hopper). .instructions("wgmma") counts in the PTX.
    """
    from common.tiles import compiler, process
    from common.tiles.kernel import as_kernel

    function = as_kernel(kernel).function
    options = {"num_warps": num_warps, "num_stages": num_stages}
    return process.process_for(interpret=False).call(
        compiler.compile_here,
        function,
        *compiler.signature(function, arguments, constants),
        options,
        capability,
    )
