"""What both kernel languages know of memory."""

from collections.abc import Callable, Iterable
from typing import TypeVar

SECTOR_BYTES = 32

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
