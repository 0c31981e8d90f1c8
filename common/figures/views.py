"""Views as lab 01 writes them, (shape, strides, offset) in elements: what they read, random ones.

PyTorch computes both, so that checks and drawings do not depend on the student's own arithmetic.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import torch

from common.checks import static_names
from common.checks.grader_link import ReadRemotely

if TYPE_CHECKING:
    import numpy as np

View = tuple[tuple[int, ...], tuple[int, ...], int]

LIBRARIES = {
    "torch",
    "numpy",
    "np",
    "common",
    "nogpu",
    "matplotlib",
    "triton",
    "numba",
    "memoryview",
}
ANSWERS = {"stride", "strides", "storage_offset", "is_contiguous", "data_ptr", "expand"}
ANSWERS |= {"expand_as", "as_strided", "empty_strided", "broadcast_to", "broadcast_tensors"}
ANSWERS |= {"broadcast_arrays", "unfold", "sliding_window_view", "of", "positions", "viewed"}
ANSWERS |= {"make_contiguous_strides_for", "is_non_overlapping_and_dense", "untyped_storage"}
ANSWERS |= {"ndarray", "info", "flags", "dim_order"}
ANSWERS |= {"__array_interface__", "__array_struct__", "__dlpack__", "__reduce__", "__reduce_ex__"}
# What finds a function by a text that is put together: then its name is not there to be read.
OTHERS = {"lru_cache", "_lru_cache_wrapper", *static_names.BY_TEXT}
CELLS = 1 << 14
STORAGE = torch.arange(CELLS)  # each cell holds its own position
SIZES = [0] * 4 + [1] * 20 + [2, 3, 4, 5] * 19  # 4 % are 0, 20 % are 1


@overload
def positions(view: None) -> None: ...
@overload
def positions(view: object) -> torch.Tensor: ...
def positions(view: Any) -> torch.Tensor | None:
    """Where a view reads in the storage: an int64 tensor, itself this view of `STORAGE`.

    None gives None. ValueError if this is not a view, or leaves the storage of 16,384 cells.
    """
    if view is None:
        return None
    shape, strides, offset = parts(view)
    if 0 not in shape:
        reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        low, high = offset + sum(r for r in reach if r < 0), offset + sum(r for r in reach if r > 0)
        if low < 0 or high >= CELLS or min(strides, default=0) < 0:
            raise ValueError(
                f"{view} reads the positions {low:,} to {high:,}: "
                f"strides must be at least 0, positions 0 to {CELLS - 1:,}"
            )
    else:  # nothing is read, so any strides and any offset are valid
        strides, offset = tuple(max(stride, 0) for stride in strides), max(offset, 0)
    return STORAGE.as_strided(shape, strides, offset)


def of(tensor: torch.Tensor) -> View:
    """The view of a PyTorch tensor: (shape, strides, offset), in elements."""
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())


def viewed(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor | None:
    """x.view(shape), or None where PyTorch says that only a copy has that shape."""
    try:
        return x.view(shape)
    except RuntimeError:
        return None


def case(call: str, got: object, want: torch.Tensor | None) -> str:
    """What `agree` calls the reading of a view: the call, the view that it gave, and PyTorch's.

    want: the positions that PyTorch reads, a view of STORAGE, or None.
    """
    return f"{call} gave {got}, PyTorch {None if want is None else of(want)}: reading it"


def shortcuts(function: Callable[..., object] | ReadRemotely) -> list[str]:
    """Which of a library's answers the text of a function, or of those that it calls, asks for.

    It asks for one if it uses a library and reads an attribute like `strides` (one of `ANSWERS`) of
    what it did not make of a class of its own, or if it uses functools.lru_cache or one of
    `BY_TEXT`.
    """
    found = set(static_names.names_in(function, LIBRARIES | ANSWERS | OTHERS))
    return sorted(static_names.chosen(found, ANSWERS | OTHERS if found & LIBRARIES else OTHERS))


def random_view(rng: np.random.Generator, axes: int, *, smallest: int = 0) -> View:
    """A row-major view with that many axes that is then permuted, sliced and broadcast, or not.

    Sizes run from smallest, 0 or 1, to 5. With up to four axes it reads no position beyond 627.
    """
    shape = [max(smallest, SIZES[draw]) for draw in rng.integers(len(SIZES), size=axes).tolist()]
    x = STORAGE[int(rng.integers(4)) :][: math.prod(shape)].view(shape)
    permuting, slicing, broadcasting = rng.integers(2, size=3).tolist()
    if permuting:
        x = x.permute(rng.permutation(axes).tolist())
    if slicing and axes:
        axis, start, stop, step = random_slice(rng, of(x), smallest=smallest)
        x = x[(slice(None),) * axis + (slice(start, stop, step),)]
    if broadcasting:
        x = x.expand([size if size != 1 else int(rng.integers(1, 4)) for size in x.shape])
    return of(x)


def random_slice(
    rng: np.random.Generator, view: View, *, smallest: int = 0
) -> tuple[int, int, int, int]:
    """(axis, start, stop, step) of a random slice, at least smallest long; the step is 1 to 3."""
    axis = int(rng.integers(len(view[0])))
    size = view[0][axis]
    start = int(rng.integers(size + 1 - smallest))
    return axis, start, int(rng.integers(start + smallest, size + 1)), int(rng.integers(1, 4))


def random_shape(rng: np.random.Generator, elements: int) -> tuple[int, ...]:
    """A random shape with that many elements and up to five axes."""
    if elements == 0:
        others = rng.integers(0, 4, int(rng.integers(3))).tolist()
        return tuple(rng.permutation([0, *others]).tolist())
    shape = [1] * int(rng.integers(2))
    while elements > 1 and len(shape) < 4:
        divisors = [d for d in range(2, elements + 1) if elements % d == 0]
        shape.append(int(rng.choice(divisors)))
        elements //= shape[-1]
    return tuple(shape + [elements] if elements > 1 else shape)


def parts(view: Any) -> View:
    """Shape, strides and offset as ints; ValueError unless it is a view."""
    try:
        sizes, steps, offset = view
        shape, strides = tuple(map(operator.index, sizes)), tuple(map(operator.index, steps))
        if len(shape) == len(strides) and min(shape, default=0) >= 0:
            return shape, strides, operator.index(offset)
    except (TypeError, ValueError):
        pass
    raise ValueError(
        "a view is (shape, strides, offset): two tuples of ints, equally long, and an int; "
        f"this is {view!r:.200}"
    )
