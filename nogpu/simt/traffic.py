"""What a GPU's shared memory does for warp instructions: wavefronts.

Shared memory has 32 banks, each of which delivers one word of 4 bytes at a time.
A request takes as many *wavefronts* as the most words that any one bank must deliver. Of 8-byte
elements, threads 0 to 15 and 16 to 31 are served one after the other, unless they form pairs that
access the same element: see `halves`.
"""

import numpy as np

from nogpu.kernels.memory import WARP, changes, distinct

WORD_BYTES, BANKS = 4, 32


def wavefronts(
    instructions: np.ndarray, lanes: np.ndarray, places: np.ndarray, size: int
) -> tuple[int, int]:
    """(requests, wavefronts) of accesses to shared memory."""
    groups, words = distinct(halves(instructions, lanes, places, size), places * size // WORD_BYTES)
    requests = changes(groups // 2)
    if size > WORD_BYTES:  # an element of 8 bytes is two words, in neighbouring banks
        groups, words = np.repeat(groups, 2), np.repeat(words, 2)
        words[1::2] += 1
    group = np.cumsum(np.concatenate(([0], groups[1:] != groups[:-1])))
    load = np.bincount(group * BANKS + words % BANKS, minlength=(group[-1] + 1) * BANKS)
    return requests, int(load.reshape(-1, BANKS).max(1).sum())


def halves(
    instructions: np.ndarray, lanes: np.ndarray, places: np.ndarray, size: int
) -> np.ndarray:
    """The group in which each access is served: 2 * instruction, 1 more for a second half-warp.

    A warp instruction on 8-byte elements is served by half-warps. But it is served as a whole if
    every thread i that takes part and thread i ^ 1, or every one and thread i ^ 2, access the same
    element or only one of the two takes part. (As an H200 counts: benchmarks/simt_hardware.md.)
    """
    if size <= WORD_BYTES:
        return 2 * instructions
    unpaired = np.ones(len(lanes), bool)
    for bit in (1, 2):
        pairs, _ = distinct(instructions * WARP + (lanes & ~bit), places)
        differing = pairs[1:][pairs[1:] == pairs[:-1]]
        unpaired &= np.isin(instructions, differing // WARP)
    return 2 * instructions + (unpaired & (lanes >= WARP // 2))
