"""The arrays and tensors of a launch: where their storages stand in this process's memory, wherever they came from."""

from dataclasses import dataclass

import numpy as np

from common.kernels.errors import KernelError
from common.tiles.memory import Argument


@dataclass
class Placed:
    """Stands for an array among the values of a launch; with a shape, for a tensor descriptor on it."""

    number: int
    shape: list = None
    strides: list = None
    block_shape: list = None
    padding: str = "zero"


class Arrays:
    """The arrays of a launch. Tensors on a GPU are copied here, and copied back by write_back."""

    def __init__(self) -> None:
        self._arguments = []
        self._copies = {}  # address of a storage on a GPU: that storage, and its copy here
        self._kept = []

    def place(self, name, thing):
        """What stands for an array, a tensor or a tensor descriptor; None for another thing."""
        if type(thing).__name__ == "TensorDescriptor":
            self._arguments.append(self._argument(name, thing.base))
            return Placed(
                len(self._arguments) - 1,
                [int(size) for size in thing.shape],
                [int(step) for step in thing.strides],
                [int(size) for size in thing.block_shape],
                thing.padding,
            )
        if not isinstance(thing, np.ndarray) and not hasattr(thing, "untyped_storage"):
            return None
        self._arguments.append(self._argument(name, thing))
        return Placed(len(self._arguments) - 1)

    def _argument(self, name, thing):
        self._kept.append(thing)
        if isinstance(thing, np.ndarray):
            start = thing.ctypes.data
            low, high = np.lib.array_utils.byte_bounds(thing) if thing.size else (start, start)
            strides = tuple(step // max(1, thing.itemsize) for step in thing.strides)
            return Argument(
                name,
                str(thing.dtype),
                thing.shape,
                thing.itemsize,
                low,
                high - low,
                start,
                strides,
                thing.flags.writeable,
            )
        plain = str(thing.layout) == "torch.strided" and not thing.is_neg() and not thing.is_conj()
        if not plain or thing.device.type not in ("cpu", "cuda"):
            raise KernelError(
                f"{name} is a tensor whose elements do not lie in memory as they are ({thing.device.type}, "
                f"{thing.layout}); give a copy: {name}.to_dense(), .resolve_neg(), .cpu()"
            )
        storage = thing.untyped_storage()
        begin = storage.data_ptr()
        if thing.is_cuda:
            if begin not in self._copies:
                self._copies[begin] = storage, storage.cpu()
            low = self._copies[begin][1].data_ptr()
        else:
            low = begin
        return Argument(
            name,
            str(thing.dtype).removeprefix("torch."),
            tuple(thing.shape),
            thing.element_size(),
            low,
            storage.nbytes(),
            low + thing.data_ptr() - begin,
            thing.stride(),
        )

    def arguments(self):
        """The Arguments, in the order of their numbers."""
        return self._arguments

    def write_back(self) -> None:
        """Copies what the kernel did to copies back to a GPU."""
        for storage, copy in self._copies.values():
            storage.copy_(copy)
