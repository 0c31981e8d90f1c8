"""The arrays and tensors of a launch: where their storages are in this process's memory."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu.kernels.errors import KernelError
from nogpu.tiles.memory import Argument

if TYPE_CHECKING:
    import torch


@dataclass
class Described:
    """What a tensor descriptor adds to its tensor."""

    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str


@dataclass
class Placed:
    """Stands for an array, or for a tensor descriptor, among the values of a launch."""

    number: int  # of its Argument
    descriptor: Described | None = None


class Arrays:
    """The arrays of a launch. Tensors on a GPU are copied here; write_back copies them back."""

    def __init__(self) -> None:
        self._arguments: list[Argument] = []
        self._copies: dict[int, tuple[Any, Any]] = {}  # address on a GPU: storage, its copy here
        self._kept: list[Any] = []  # so that their memory is not freed

    def place(self, name: str, thing: Any) -> Placed | None:
        """What stands for an array, a tensor or a tensor descriptor; None for another thing."""
        if type(thing).__name__ == "TensorDescriptor":
            described = Described(
                [int(size) for size in thing.shape],
                [int(step) for step in thing.strides],
                [int(size) for size in thing.block_shape],
                thing.padding,
            )
            return Placed(self._add(name, thing.base), described)
        if isinstance(thing, np.ndarray) or hasattr(thing, "untyped_storage"):
            return Placed(self._add(name, thing))
        return None

    def _add(self, name: str, array: Any) -> int:
        self._kept.append(array)
        make = _of_numpy if isinstance(array, np.ndarray) else self._of_torch
        self._arguments.append(make(name, array))
        return len(self._arguments) - 1

    def _of_torch(self, name: str, tensor: "torch.Tensor") -> Argument:
        plain = (
            str(tensor.layout) == "torch.strided" and not tensor.is_neg() and not tensor.is_conj()
        )
        if not plain or tensor.device.type not in ("cpu", "cuda"):
            raise KernelError(
                f"{name} is a tensor whose elements do not lie in memory as they are "
                f"({tensor.device.type}, {tensor.layout}); give a copy: "
                f"{name}.to_dense(), .resolve_neg(), .cpu()"
            )
        storage = tensor.untyped_storage()
        begin = low = storage.data_ptr()
        if tensor.is_cuda:
            if begin not in self._copies:
                self._copies[begin] = storage, storage.cpu()
            low = self._copies[begin][1].data_ptr()
        return Argument(
            name=name,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            itemsize=tensor.element_size(),
            storage=low,
            storage_bytes=storage.nbytes(),
            start=low + tensor.data_ptr() - begin,
            strides=tensor.stride(),
        )

    def arguments(self) -> list[Argument]:
        """The Arguments, in the order of their numbers."""
        return self._arguments

    def write_back(self) -> None:
        """Copy to the GPU what the kernel did to the copies of its tensors."""
        for storage, copy in self._copies.values():
            storage.copy_(copy)


def _of_numpy(name: str, array: np.ndarray) -> Argument:
    start = array.ctypes.data
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (start, start)
    return Argument(
        name=name,
        dtype=str(array.dtype),
        shape=array.shape,
        itemsize=array.itemsize,
        storage=low,
        storage_bytes=high - low,
        start=start,
        strides=tuple(step // max(1, array.itemsize) for step in array.strides),
        writable=array.flags.writeable,
    )
