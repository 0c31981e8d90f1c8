"""A simulator of GPU threads that counts what they cost.

It runs kernels written for numba.cuda, unchanged, on a machine with no GPU. It reports what Nsight
Compute would report: requests, sectors, wavefronts, divergent branches. It also reports races, and
reads of memory that nothing wrote, which Nsight Compute does not.

    from nogpu import simt
    from nogpu.simt import cuda

    @cuda.jit
    def add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + y[i]

    add[4, 256](x, y, out)                        # as on a GPU
    report = simt.count(add, 4, 256, x, y, out)
    report.global_loads.sectors                   # of 32 bytes, requested from the L1 cache
    print(report)                                 # by line of the kernel

Sectors are not DRAM traffic: a cache may already hold them.

The counts are those of the source as written. A GPU's compiler may merge loads (sixteen
neighbouring ones into four of 16 bytes), move them out of a loop, or leave out those whose values
are not used. Two threads' accesses don't race if there is a barrier between them, or both are
atomic, or a fence and an atomic update order them.

Read it in this order:

- `language`: what a kernel may be written in. `dtypes`: Numba's rules for types. `values`: what an
  expression stands for.
- A small compiler from a kernel to Python, from its parts to the whole: `code` (lines being
  written), `spaces` and `program` (what is written), `frame` (the state of one function being
  translated), `operators`, `elements` (of arrays), `calls` and the functions that a kernel may
  call (`functions`, `threads`, `waits`, `atomics`, `arrays`), `names` (from outside),
  `expressions`, `joins` (where paths meet), `statements`, `translate`. To find what translates
  cuda.syncthreads, search for "cuda.syncthreads".
- What runs: `arithmetic` (on a GPU's numbers), `memory`, `lanes` (of a warp, together),
  `schedule` (who runs when).
- From a log of accesses to what they cost: `accesses`, `traffic`, `order` (what fences order),
  `races`, `counters`, `costs`, `findings`, `tuning`, `report`, `draw`.
- `kernel`: how it all comes together. `cuda`: the same under numba.cuda's name. `text`: for a
  grader. `occupancy`: how many blocks fit on a GPU.
"""

from typing import Any

import numpy as np

from nogpu.kernels.errors import (
    BarrierError,
    KernelError,
    LaunchError,
    OutOfBoundsError,
    ThreadError,
    UnwrittenError,
)
from nogpu.kernels.launch import Lengths
from nogpu.remote import CountedRemotely
from nogpu.simt.kernel import Kernel, jit
from nogpu.simt.report import Report
from nogpu.simt.text import as_graded, compile_source

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
    "side_by_side",
]


def count(
    kernel: Any,
    grid: Lengths,
    block: Lengths,
    *arguments: Any,
    shared_bytes: int = 0,
    seed: int | None = None,
    traced_block: int = 0,
) -> Report:
    """The Report of a launch: what it cost, by memory space and line, and its races.

    kernel: the simulator's or numba.cuda's; in a notebook it is read from the cells, as the grader
    reads it. grid, block: as in kernel[grid, block]. The arrays are changed as by a launch. seed:
    of the order in which blocks and warps run; a different one each time if None. traced_block:
    number of the block whose accesses report.draw() can show.
    """
    arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
    before = [array.copy() for array in arrays]
    if isinstance(kernel, CountedRemotely):
        report = Report.from_dict(
            kernel.count_remotely(
                "simt", grid, block, *arguments, shared_bytes=shared_bytes, seed=seed
            )
        )
    else:
        report = as_graded(kernel).count(
            grid, block, *arguments, shared_bytes=shared_bytes, seed=seed, traced_block=traced_block
        )
    report.changed_arrays = sum(
        old.tobytes() != new.tobytes() for old, new in zip(before, arrays, strict=True)
    )
    return report


def side_by_side(*reports: Report) -> Any:
    """A figure of what one warp instruction of each kernel asks for: see draw.side_by_side."""
    from nogpu.simt import draw

    return draw.side_by_side(*reports)
