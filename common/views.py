"""Views as lab 01 writes them, (shape, strides, offset) in elements: drawn at random, and what they read.

PyTorch stands behind both, so that checks and drawings have a witness that is not the student's own arithmetic.
"""

import math
import operator

import torch

CELLS = 1 << 14
STORAGE = torch.arange(CELLS)  # every cell holds its own position
SIZES = [0] * 4 + [1] * 20 + [2, 3, 4, 5] * 19  # of which one is drawn: 4 % are 0, 20 % are 1


def positions(view):
    """Where in the storage a view reads: int64 tensor of its shape, itself such a view of `STORAGE`; None for None.

    ValueError says what is no view, and which one leaves the storage of 16,384 cells.
    """
    if view is None:
        return None
    shape, strides, offset = _parts(view)
    if 0 not in shape:
        reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        low, high = offset + sum(r for r in reach if r < 0), offset + sum(r for r in reach if r > 0)
        if low < 0 or high >= CELLS or min(strides, default=0) < 0:
            raise ValueError(
                f"{view} reads the positions {low:,} to {high:,}: "
                f"strides must be at least 0, positions 0 to {CELLS - 1:,}"
            )
    else:
        strides, offset = (
            [max(stride, 0) for stride in strides],
            max(offset, 0),
        )  # nothing is read, wherever that is
    return STORAGE.as_strided(shape, strides, offset)


def of(tensor):
    """The view that a PyTorch tensor is: (shape, strides, offset), in elements."""
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def viewed(x, shape):
    """x.view(shape), or None where PyTorch says that only a copy has that shape."""
    try:
        return x.view(shape)
    except RuntimeError:
        return None


def case(call, got, want) -> str:
    """What `agree` calls the reading of a view: the call, the view that it gave, and PyTorch's.

    want: what PyTorch reads, one of STORAGE's tensors, or None.
    """
    return f"{call} gave {got}, PyTorch {None if want is None else of(want)}: reading it"


def random_view(rng, axes, *, smallest=0):
    """A view with that many axes: row-major at first, then, each by the toss of a coin, permuted, sliced, broadcast.

    Sizes run from smallest, 0 or 1, to 5, the offset from 0; with up to four axes it reads no position beyond 627.
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


def random_slice(rng, view, *, smallest=0):
    """(axis, start, stop, step) of a slice of one axis, at least smallest long, at random; a step of 1 to 3."""
    axis = int(rng.integers(len(view[0])))
    start = int(rng.integers(view[0][axis] + 1 - smallest))
    return (
        axis,
        start,
        int(rng.integers(start + smallest, view[0][axis] + 1)),
        int(rng.integers(1, 4)),
    )


def random_shape(rng, elements):
    """A shape with that many elements, up to five axes of it, at random."""
    if elements == 0:
        return tuple(
            rng.permutation([0, *rng.integers(0, 4, int(rng.integers(3))).tolist()]).tolist()
        )
    shape = [1] * int(rng.integers(2))
    while elements > 1 and len(shape) < 4:
        divisors = [d for d in range(2, elements + 1) if elements % d == 0]
        shape.append(int(rng.choice(divisors)))
        elements //= shape[-1]
    return tuple(shape + [elements] if elements > 1 else shape)


def _parts(view):
    """Shape, strides and offset as ints; ValueError unless it is a view."""
    try:
        shape, strides, offset = view
        shape, strides = (
            [operator.index(size) for size in shape],
            [operator.index(stride) for stride in strides],
        )
        offset = operator.index(offset)
    except (TypeError, ValueError):
        shape = strides = None
    if shape is None or len(shape) != len(strides) or min(shape, default=0) < 0:
        raise ValueError(
            "a view is (shape, strides, offset): two tuples of ints, equally long, and an int; "
            f"this is {view!r:.200}"
        )
    return shape, strides, offset
