"""Counters over Triton's interpreter: what programs load and store, and where they race.

    from nogpu import tiles
    report = tiles.count(kernel, grid, x, out, n, BLOCK=64)   # as kernel[grid](x, out, n, BLOCK=64)
    report.loads.sectors            # of 32 bytes, requested from the L1 cache: not DRAM traffic
    report.array("x").loads.bytes
    report.busiest.loads.requests   # of the program that moves most bytes
    report.imbalance                # that program's bytes over the mean of all programs
    print(report)                   # by line of the kernel
    report.compiled.loads.sectors   # as the compiled kernel's warps request them (see Warps)
    report.draw("x")                # which program loads what

Programs run in another order each time, so that a kernel which relies on their order is caught;
report.races says where. An access out of bounds is an error that names the line. Elements
that a masked-off load without other= leaves undefined must not reach memory: the error names both
lines.

Read it in this order:
- `dtypes`, `language` (what a kernel may be written in), `constants` and `functions` (what it is
  made of), `jitted` and `text` (where it comes from);
- `build` (what Triton's interpreter runs) and `runtime` (what that calls);
- `arrays` and `memory` (which element of which array an address is, and who touched it),
  `counters`, `costs`, `report` and `draw`;
- `triton_interpreter` with `fixes` (what the interpreter gets wrong), `undefined` (elements that
  hold no value) and `counting_builder` (what is counted);
- `binding`, `launch` and `kernel` (how it all comes together);
- `process` and `remote_launch` (the same where Triton compiles), `compiler` (PTX without a GPU);
- `ptx` and `warps` (what the warps of the compiled kernel request).
"""

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nogpu.kernels.errors import KernelError, LaunchError, OutOfBoundsError
from nogpu.remote import CountedRemotely
from nogpu.tiles.report import Report, Warps

if TYPE_CHECKING:
    from nogpu.tiles.compiler import Compiled
    from nogpu.tiles.jitted import Kernel

EMITTED = "fused"  # the name of a kernel that a student's program emits as text

__all__ = [
    "EMITTED",
    "KernelError",
    "LaunchError",
    "OutOfBoundsError",
    "Report",
    "Warps",
    "compile_source",
    "compiled",
    "count",
]


def count(
    kernel: Any,
    grid: Any,
    *arguments: Any,
    seed: int | None = None,
    compiled: bool = False,
    emitted: str | None = None,
    **constants: Any,
) -> Report:
    """The Report of a launch: what its programs load and store, and where they race.

    kernel, grid, arguments, constants: as in kernel[grid](*arguments, **constants). In place of a
    tensor descriptor, the tuple (tensor, shape, strides, block_shape) is taken, too. The arrays are
    changed as by a launch. seed: of the order in which programs run; a different one each time if
    None. compiled: make report.compiled at once, and not when it is first asked for. emitted: text
    that the function `kernel` has returned; its kernel `fused` is counted. A kernel's own parameter
    of one of these names is given by position.
    """
    if isinstance(kernel, CountedRemotely):
        grid = grid(constants) if callable(grid) else grid
        again, remote = copy.deepcopy(arguments), kernel
        if emitted is not None:
            constants["emitted"] = emitted
        data = kernel.count_remotely("tiles", grid, *arguments, seed=seed, **constants)

        def warps() -> Warps:
            options = {"seed": seed, "compiled": True, **constants}
            return Report.from_dict(
                remote.count_remotely("tiles", grid, *again, **options)
            ).compiled

        return replace(Report.from_dict(data), compile=warps)
    from nogpu.tiles import kernel as kernels

    if emitted is not None:
        kernel = compile_source(emitted, EMITTED)
    report = kernels.count(kernel, grid, arguments, constants, seed)
    if compiled:
        report.warps = report.compiled
    return report


def compile_source(text: str, name: str, constants: dict[str, Any] | None = None) -> "Kernel":
    """The kernel called name in a text, for tiles.count; nothing in the text is run as Python.

    text: what a student's cell holds: @triton.jit functions, and constants that they use,
    NAME = tl.constexpr(a number). What the kernel does not use may be any Python: it is never run.
    constants: {name: number, tuple or dtype} that the text may use, besides tl.
    """
    from nogpu.tiles import text as texts
    from nogpu.tiles.jitted import Kernel

    return Kernel(texts.of_text(text, name, constants))


def compiled(
    kernel: Any,
    *arguments: Any,
    num_warps: int = 4,
    num_stages: int = 3,
    capability: int = 90,
    **constants: Any,
) -> "Compiled":
    """What Triton's compiler makes of a kernel for these arguments, without a GPU.

    It has .ptx, .ttir, .registers, .spilled_bytes, .shared_bytes, and .instructions("wgmma") counts
    in the PTX. capability: the compute capability to compile for (90: Hopper).
    """
    from nogpu.tiles import compiler, process
    from nogpu.tiles.jitted import as_kernel

    function = as_kernel(kernel).function
    options = {"num_warps": num_warps, "num_stages": num_stages}
    types, fixed, aligned = compiler.signature(function, arguments, constants)
    return process.process_for(interpret=False).call(
        compiler.compile_here, function, types, fixed, aligned, options, capability
    )
