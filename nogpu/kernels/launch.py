"""What both kernel languages check of a launch."""

import numpy as np

from nogpu.kernels.errors import LaunchError

MAX_GRID = 2**31 - 1, 65535, 65535

Lengths = int | tuple[int, ...] | list[int]
Size = tuple[int, int, int]


def three_lengths(name: str, given: Lengths, least: int, most: Size) -> Size:
    """A grid or block as three lengths, each between least and most; LaunchError otherwise."""
    lengths = given if isinstance(given, (tuple, list)) else [given]
    whole = all(
        isinstance(length, (int, np.integer)) and not isinstance(length, bool) for length in lengths
    )
    if not 1 <= len(lengths) <= 3 or not whole:
        raise LaunchError(
            f"{name} is a whole number or a tuple of up to three, and {given!r} is not"
        )
    x, y, z = (*map(int, lengths), 1, 1)[:3]
    size = x, y, z
    if not all(least <= length <= limit for length, limit in zip(size, most, strict=True)):
        raise LaunchError(
            f"{name} {size} is not possible: each length is at least {least}, and at most {most}"
        )
    return size
