"""What both kernel languages know of memory."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

SECTOR_BYTES = 32
WARP = 32  # threads

A = TypeVar("A")


def overlapping(arrays: Iterable[A], extent: Callable[[A], tuple[int, int]]) -> list[list[A]]:
    """The arrays in groups that share memory, sorted by address.

    extent: gives the address of an array's first byte and the address after its last byte.
    """
    groups: list[list[A]] = []
    end = 0
    for array in sorted(arrays, key=lambda array: extent(array)[0]):
        first, after = extent(array)
        if groups and first < end:
            groups[-1].append(array)
        else:
            groups.append([array])
        end = max(end, after)
    return groups


def sectors(instructions: np.ndarray, places: np.ndarray, size: int) -> tuple[int, int]:
    """(requests, sectors) of warp instructions that access global memory.

    A *sector* is 32 bytes, the least that global memory delivers. A request costs the distinct
    sectors that it touches. instructions, places: of each access, the number of its instruction and
    of its element. size: of an element, in bytes.
    """
    groups, _ = distinct(instructions, places * size // SECTOR_BYTES)
    return changes(groups), len(groups)


def distinct(groups: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct pairs (group, unit), sorted by group."""
    order = np.lexsort((units, groups))
    groups, units = groups[order], units[order]
    new = np.ones(len(groups), bool)
    new[1:] = (groups[1:] != groups[:-1]) | (units[1:] != units[:-1])
    return groups[new], units[new]


def changes(groups: np.ndarray) -> int:
    """How many different groups there are in a sorted array."""
    return int(np.count_nonzero(groups[1:] != groups[:-1])) + 1 if len(groups) else 0
