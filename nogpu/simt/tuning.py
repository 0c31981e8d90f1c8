"""Two signs of a tuned kernel, in the accesses of one block: wide loads, and early ones.

A GPU's thread can load 16 bytes by one instruction, and its compiler merges loads of neighbouring
words into one. A load from global memory that is under way while the block works on what it has
costs no waiting.
"""

from collections.abc import Sequence

import numpy as np

from nogpu.simt import dtypes
from nogpu.simt.accesses import READ, Accesses, select
from nogpu.simt.lanes import WARP
from nogpu.simt.program import Site

THREADS, WIDE_BYTES = 1024, 16  # the most threads of a block


def wide_loads(trace: Accesses | None, sites: Sequence[Site]) -> int:
    """Loads of 16 bytes with which the block's warps can read what they read of shared memory.

    Each aligned piece of 16 bytes counts once per warp between two barriers, if the busiest of the
    warp's threads reads any of it.
    """
    if trace is None:
        return 0
    rows = _loads(trace, sites, "shared")
    size = np.array([dtypes.itemsize(site.dtype) if site.dtype else 1 for site in sites])
    piece = rows.place * size[rows.site] // WIDE_BYTES
    pieces = int(piece.max(initial=0)) + 1
    read = np.unique((rows.epoch * THREADS + rows.thread) * pieces + piece)
    threads, count = np.unique(read // pieces, return_counts=True)
    warps, which = np.unique(threads // WARP, return_inverse=True)
    most = np.zeros(len(warps), np.int64)
    np.maximum.at(most, which, count)
    return int(most.sum())


def early_loads(trace: Accesses | None, sites: Sequence[Site]) -> int:
    """The block's requests to global memory between two barriers where it reads shared memory."""
    if trace is None:
        return 0
    busy = np.unique(_loads(trace, sites, "shared").epoch)
    rows = _loads(trace, sites, "global")
    rows = select(rows, np.isin(rows.epoch, busy))
    requests = np.unique(rows.key // WARP * len(sites) + rows.site)
    return len(requests)


def _loads(trace: Accesses, sites: Sequence[Site], space: str) -> Accesses:
    chosen = [site.number for site in sites if site.space == space]
    return select(trace, np.isin(trace.site, chosen) & (trace.kind == READ))
