"""Which operations PyTorch runs during a call, and how much each of them computes and moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

COPIES = {"copy_", "clone", "_to_copy", "fill_", "zero_", "cat", "embedding", "gather", "where"}
NOTHING = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach"}


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation: its FLOPs, and the bytes of the tensors that it reads and writes."""

    name: str
    flops: int
    bytes_moved: int


def recorded(call: Callable[[], object]) -> list[Operation]:
    """The operations that PyTorch runs during call(), backward passes included.

    Matrix products have the FLOPs of PyTorch's own counter. Any other operation has one FLOP per
    element of its largest tensor, and a copy has none. Views are left out: they move nothing.
    """
    from nogpu.ranks.dispatch import DispatchMode

    found: list[Operation] = []

    class Recorder(DispatchMode):
        def executed(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
            if not _is_view(func) and (name := func.overloadpacket.__name__) not in NOTHING:
                read, written = list(_tensors((args, kwargs))), list(_tensors(result))
                flops = _flops(func, name, args, kwargs, result, [*read, *written])
                moved = sum(map(_bytes, [*read, *written]))
                found.append(Operation(name, flops, moved))

    with Recorder():
        call()
    return found


def product_flops(call: Callable[[], object]) -> int:
    """FLOPs of the matrix products that PyTorch runs during call(), backward passes included.

    It is what PyTorch's FlopCounterMode counts, which imports PyTorch's compiler.
    """
    from torch.utils.flop_counter import flop_registry

    products = {packet.__name__ for packet in flop_registry}
    return sum(operation.flops for operation in recorded(call) if operation.name in products)


def _is_view(func: Any) -> bool:
    returns = [value.alias_info for value in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in returns)


def _flops(
    func: Any, name: str, args: Any, kwargs: Any, result: Any, tensors: list[torch.Tensor]
) -> int:
    from torch.utils.flop_counter import flop_registry

    if func.overloadpacket in flop_registry:
        return int(flop_registry[func.overloadpacket](*args, **kwargs, out_val=result))
    return 0 if name in COPIES else max((tensor.numel() for tensor in tensors), default=0)


def _bytes(tensor: torch.Tensor) -> int:
    """Of the elements, or of the storage if the same elements are seen several times."""
    return min(tensor.numel() * tensor.itemsize, tensor.untyped_storage().nbytes())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
