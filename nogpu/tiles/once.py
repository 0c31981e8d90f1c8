"""What Triton's interpreter works out anew for every operation, worked out once.

The blocks of our kernels are small: without this, most of a launch is spent on the types of blocks,
not on their numbers. No result depends on it.

- A block's type checks its shape and writes its name, each time that one is made.
- A tensor makes a Triton constant of each length of its shape.
- The shapes of two operands are compared as tuples of Triton's constants.

Only `fixes` imports this module.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import triton.language as tl

_block_init = tl.core.block_type.__init__
_tensor_init = tl.core.tensor.__init__


class Shaped(NamedTuple):
    """What follows from the name of a block's element type and from its shape."""

    sizes: Any  # as Triton holds them in a block's type
    numel: int
    name: str
    of_tensor: Any  # the shape, as Triton holds it in a tensor
    numel_of_tensor: Any


_shaped: dict[tuple[str, tuple[int, ...]], Shaped] = {}


def install(semantic: Any) -> None:
    """Put the functions below where Triton's interpreter finds its own."""
    tl.core.block_type.__init__ = block_init
    tl.core.tensor.__init__ = tensor_init
    semantic.broadcast_impl_value = functools.partial(
        broadcast, semantic.broadcast_impl_value, semantic
    )


def block_init(self: Any, element_ty: Any, shape: Any) -> None:
    """What Triton's block_type does with an element type and a shape."""
    sizes = (*shape,)
    known = _shaped.get((element_ty.name, sizes)) if set(map(type, sizes)) == {int} else None
    if known is None:
        _block_init(self, element_ty, shape)
        known = _of(self)
        _shaped[element_ty.name, (*self.shape.values,)] = known
    self.element_ty = element_ty
    self.shape, self.numel, self.name, *_ = known
    self.course_shaped = known


def _of(block: Any) -> Shaped:
    shape = tl.core.tuple([tl.constexpr(size) for size in block.shape])
    return Shaped(block.shape, block.numel, block.name, shape, tl.constexpr(block.numel))


_no_shape = tl.core.tuple([])
_one = tl.constexpr(1)


def tensor_init(self: Any, handle: Any, type: Any) -> None:
    """What Triton's tensor does with a handle and a type."""
    if not type.is_block():
        self.shape, self.numel = _no_shape, _one
    elif known := getattr(type, "course_shaped", None):
        self.shape, self.numel = known.of_tensor, known.numel_of_tensor
    else:  # a type that was made before these functions were in place
        _tensor_init(self, handle, type)
    self.handle, self.type, self.dtype = handle, type, type.scalar


def broadcast(original: Callable[..., Any], semantic: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
    """Two operands, of which a number or a side of length 1 is repeated until the shapes agree."""
    left, right = lhs.type, rhs.type
    if not left.is_block():
        return (_splat(semantic, lhs, right) if right.is_block() else lhs), rhs
    if not right.is_block():
        return lhs, _splat(semantic, rhs, left)
    sizes = left.shape.values, right.shape.values
    if sizes[0] == sizes[1]:
        return lhs, rhs
    pairs = list(zip(*sizes, strict=False))
    both = [max(pair) for pair in pairs]
    if len(sizes[0]) != len(sizes[1]) or any({1, *pair} != {1, max(pair)} for pair in pairs):
        return original(lhs, rhs)  # which makes them of one rank, or says why that fails
    return _grown(semantic, lhs, sizes[0], both), _grown(semantic, rhs, sizes[1], both)


def _splat(semantic: Any, number: Any, block: Any) -> Any:
    """A number as a block of this other one's shape."""
    kind = block.with_element_ty(number.type.scalar)
    return semantic.tensor(semantic.builder.create_splat(kind, number.handle), kind)


def _grown(semantic: Any, block: Any, sizes: list[int], wanted: list[int]) -> Any:
    """A block of these sizes, repeated along its sides of length 1."""
    if sizes == wanted:
        return block
    handle = semantic.builder.create_broadcast(block.handle, wanted)
    return semantic.tensor(handle, tl.block_type(block.type.scalar, wanted))
