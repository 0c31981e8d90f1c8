"""What PyTorch's operations move, observed while they are executed."""

from collections.abc import Callable
from typing import Any

import torch

from nogpu.ranks.dispatch import DispatchMode


class _BytesMoved(DispatchMode):
    """Adds up the bytes of inputs and result of each operation that PyTorch executes meanwhile."""

    total = 0

    def executed(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        tensors = (thing for thing in (*args, result) if isinstance(thing, torch.Tensor))
        self.total += sum(tensor.nbytes for tensor in tensors)


def bytes_moved(function: Callable[..., Any], *arguments: Any) -> int:
    """Bytes that PyTorch's operations in function(*arguments) read and write."""
    with _BytesMoved() as moved:
        function(*arguments)
    return moved.total
