"""A simulator of GPU threads that counts what they cost.

It runs kernels written for numba.cuda, unchanged, on a machine with no GPU, and reports what Nsight Compute would: requests,
sectors, wavefronts, divergent branches; and what that does not see: races, reads of what nothing wrote.

    from common import simt
    from common.simt import cuda

    @cuda.jit
    def add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + y[i]

    add[4, 256](x, y, out)                        # as on a GPU
    report = simt.count(add, 4, 256, x, y, out)
    report.global_loads.sectors                   # 32 bytes each, requested of the first-level cache: not DRAM traffic
    print(report)                                 # by line of the kernel

Read it in this order: `language` (what a kernel may be written in), `translate` with `dtypes`, `expressions` and `calls` (a
small compiler from a kernel to Python; what it writes is a `program`), `schedule` (who runs when), `memory`, `counters` (from
a log of accesses to what they cost), `order` (what fences order), `report` and `draw`, `kernel` (how it all comes together),
`text` (the same for a grader).

What is counted is what the source says. A GPU's compiler may merge loads (sixteen neighbouring ones into four of 16 bytes),
move them out of a loop, or leave out those whose values are not used. Two threads' accesses don't race where a barrier stands
between them, or both are atomic, or a fence and an atomic update hand over the one to the other.
"""

from common.kernels.errors import (
    BarrierError,
    KernelError,
    LaunchError,
    OutOfBoundsError,
    ThreadError,
    UnwrittenError,
)
from common.remote import CountedRemotely
from common.simt.kernel import Kernel, as_kernel, jit
from common.simt.report import Report
from common.simt.text import compile_source

__all__ = [
    "BarrierError",
    "Kernel",
    "KernelError",
    "LaunchError",
    "OutOfBoundsError",
    "Report",
    "ThreadError",
    "UnwrittenError",
    "compile_source",
    "count",
    "jit",
]


def count(kernel, grid, block, *arguments, shared_bytes=0, seed=None, traced_block=0):
    """The Report of a launch: what it cost, by memory space and line, and where its threads race.

    kernel: the simulator's or numba.cuda's. grid, block: as in kernel[grid, block]. The arrays are changed as by a launch.
    seed: of the order in which blocks and warps run, another one each time if None. traced_block: number of the block whose
    accesses report.draw() can show.
    """
    if isinstance(kernel, CountedRemotely):
        return Report.from_dict(
            kernel.count_remotely(
                "simt", grid, block, *arguments, shared_bytes=shared_bytes, seed=seed
            )
        )
    return as_kernel(kernel).count(
        grid, block, *arguments, shared_bytes=shared_bytes, seed=seed, traced_block=traced_block
    )
