"""What PyTorch's operations move, observed while they are executed."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from common.dispatch import DispatchMode


class _BytesMoved(DispatchMode):
    """Adds up the bytes of inputs and result of each operation that PyTorch executes meanwhile."""

    total = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = (thing for thing in (*args, result) if isinstance(thing, torch.Tensor))
        self.total += sum(tensor.nbytes for tensor in tensors)
        return result


def bytes_moved(function: Callable[..., Any], *arguments: Any) -> int:
    """Bytes that PyTorch's operations in function(*arguments) read and write."""
    with _BytesMoved() as moved:
        function(*arguments)
    return moved.total
