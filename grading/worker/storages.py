"""Storages: the pieces of memory that arrays and tensors are views of. They cross as raw bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from grading.worker.transport import WireError

NUMBERS = "biufc"  # the kinds of NumPy dtypes that cross
TORCH_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in [
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e5m2",
    ]
    if hasattr(torch, name)
}
TORCH_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


class Storage:
    """A piece of memory, as bytes."""

    def __init__(
        self,
        memory: np.ndarray,
        torch_storage: torch.UntypedStorage | None = None,
        writeable: bool = True,
    ) -> None:
        self.bytes = memory
        self.torch_storage = torch_storage
        self.writeable = writeable
        self.address: int = memory.ctypes.data
        self.sent: np.ndarray | None = None  # the bytes as the other side last saw them

    @classmethod
    def of(cls, value: np.ndarray | torch.Tensor) -> Storage:
        """The storage below an array or a tensor."""
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            return cls(np.asarray(_Memory(storage.data_ptr(), storage.nbytes(), storage)), storage)
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if isinstance(owner.base, torch.Tensor):
            return cls.of(owner.base)
        low, high = np.lib.array_utils.byte_bounds(owner)
        return cls(
            np.asarray(_Memory(low, high - low if owner.size else 0, owner)),
            writeable=owner.flags.writeable,
        )

    def array(
        self, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> np.ndarray:
        """A NumPy view; strides and offset in bytes."""
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, buffer=self.bytes, offset=offset, strides=strides)

    def tensor(
        self, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> torch.Tensor:
        """A PyTorch view; strides and offset in elements."""
        if self.torch_storage is None:
            self.torch_storage = torch.from_numpy(self.bytes).untyped_storage()
        return torch.empty(0, dtype=dtype).set_(self.torch_storage, offset, shape, strides)


class _Memory:
    """Lets NumPy see an owner's memory as bytes, and keeps the owner alive."""

    def __init__(self, address: int, size: int, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def reach(
    itemsize: int, shape: Sequence[int], strides: Sequence[int], offset: int
) -> tuple[int, int]:
    """(first byte, byte after the last) of a view; strides and offset in bytes."""
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    low = offset + sum(min(step, 0) for step in steps)
    return low, offset + sum(max(step, 0) for step in steps) + itemsize


def integer(number: Any) -> int:
    """This number, if it is an int; WireError if not: a text times a number can fill the memory."""
    if type(number) is not int:
        raise WireError(f"{number!r} is not an integer")
    return number


def natural(number: Any) -> int:
    """This number, if it is an int of at least 0; WireError if not."""
    if integer(number) < 0:
        raise WireError(f"{number!r} is not a natural number")
    return number


def numpy_dtype(text: Any) -> np.dtype:
    """The native dtype of numbers that a text names; WireError for any other."""
    dtype = np.dtype(text) if type(text) is str and len(text) < 8 else None
    if dtype is None or dtype.kind not in NUMBERS or not dtype.isnative:
        raise WireError(f"a dtype {text!r}")
    return dtype
