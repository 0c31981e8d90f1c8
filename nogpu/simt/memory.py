"""Global memory: the arrays that a kernel is given, as one list of numbers.

A pointer is a place in that list. Every allocation begins at a multiple of 256 places, as one on a
GPU begins at a multiple of 256 bytes, so that its sectors begin where they do on a GPU. Arrays that
share memory share places: what is written through one is read through the other.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nogpu.kernels.errors import KernelError
from nogpu.kernels.memory import overlapping
from nogpu.simt import dtypes
from nogpu.simt.dtypes import Array, Type
from nogpu.simt.spaces import ALIGNMENT


class DeviceArray(np.ndarray):
    """What cuda.to_device and cuda.device_array return: an array as if in a GPU's memory."""

    def copy_to_host(self, ary: np.ndarray | None = None) -> np.ndarray:
        """The contents as a NumPy array (copied into ary, if given)."""
        if ary is None:
            return np.array(self, subok=False)
        ary[...] = self
        return ary

    def copy_to_device(self, ary: Any) -> None:
        """Copies ary into this array."""
        self[...] = ary


@dataclass
class Argument:
    """An array that a kernel was given: its bytes, and how far into its allocation they begin."""

    name: str
    array: np.ndarray
    offset_bytes: int  # from the beginning of the allocation, modulo the alignment
    low: int = 0  # address of its first byte
    high: int = 0  # address after its last
    pointer: int = 0  # place of its element [0, ..., 0] in global memory

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements."""
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def index_of(self, place: int) -> tuple[int, ...] | None:
        """The index of the element at this place, or None if this array has no element there."""
        rest = place - self.pointer
        index: dict[int, int] = {}
        for axis in sorted(range(self.array.ndim), key=lambda axis: -abs(self.strides[axis])):
            stride = self.strides[axis]
            index[axis] = min(max(rest // stride, 0), self.array.shape[axis] - 1) if stride else 0
            rest -= index[axis] * stride
        return (
            tuple(index[axis] for axis in range(self.array.ndim))
            if rest == 0 and self.array.size
            else None
        )


class GlobalMemory:
    """The numbers of all arrays of one launch, and where each array begins."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.arguments = arguments
        self.cells: list[Any] = []
        # (first place, memory as a flat array, writable)
        self._regions: list[tuple[int, np.ndarray, bool]] = []
        stored = [argument for argument in arguments if argument.array.size]
        for group in overlapping(stored, lambda argument: (argument.low, argument.high)):
            self._allocate(group)

    def _allocate(self, group: Sequence[Argument]) -> None:
        first, last = group[0], max(argument.high for argument in group)
        dtype = first.array.dtype
        for argument in group:
            if argument.array.dtype != dtype or (argument.low - first.low) % dtype.itemsize:
                raise KernelError(
                    f"{first.name} and {argument.name} share memory, but not their dtype: {dtype} "
                    f"and {argument.array.dtype}"
                )
        pad = -len(self.cells) % ALIGNMENT + first.offset_bytes // dtype.itemsize
        self.cells += [0] * pad
        start = len(self.cells)
        stored: Any = (ctypes.c_char * (last - first.low)).from_address(first.low)
        memory = np.frombuffer(stored, dtype)
        self.cells += memory.tolist()
        self._regions.append(
            (start, memory, any(argument.array.flags.writeable for argument in group))
        )
        for argument in group:
            origin = argument.array.__array_interface__["data"][0]
            argument.pointer = start + (origin - first.low) // dtype.itemsize

    def write_back(self) -> None:
        """Copies what the kernel left in memory into the arrays."""
        for start, memory, writable in self._regions:
            if writable:
                memory[:] = np.array(self.cells[start : start + len(memory)], memory.dtype)

    def name_of(self, place: int) -> tuple[str, tuple[int, ...]]:
        """(array's name, index) of a place."""
        for argument in self.arguments:
            index = argument.index_of(place)
            if index is not None:
                return argument.name, index
        return "memory", (place,)


def argument_of(name: str, thing: Any) -> tuple[Type, Argument | int | float]:
    """The type of what a kernel was given for this parameter, and the Argument or the number."""
    if type(thing).__module__.startswith("torch") and hasattr(thing, "data_ptr"):
        return _tensor(name, thing)
    if isinstance(thing, np.ndarray):
        return _array(name, thing, _offset_in_allocation(thing))
    if isinstance(thing, (bool, np.bool_)):
        return "bool", bool(thing)
    if isinstance(thing, (np.integer, np.floating)) and thing.dtype.name in dtypes.SCALARS:
        return thing.dtype.name, thing.item()
    if isinstance(thing, int) and -(2**63) <= thing < 2**64:
        return ("int64" if thing < 2**63 else "uint64"), int(thing)
    if isinstance(thing, float):
        return "float64", float(thing)
    raise KernelError(
        f"{name} is a {type(thing).__name__}; a kernel takes NumPy arrays, PyTorch tensors and "
        "64-bit numbers"
    )


def _tensor(name: str, tensor: Any) -> tuple[Type, Argument]:
    if tensor.device.type != "cpu":
        raise KernelError(
            f"{name} is on {tensor.device}; the simulator works on the CPU's memory, call "
            f"{name}.cpu()"
        )
    try:
        array = tensor.detach().numpy()
    except (TypeError, RuntimeError) as error:  # bfloat16; a sparse tensor; a lazy negation
        raise KernelError(
            f"{name} is a tensor of {tensor.dtype}, which NumPy (and Numba) cannot hold: {error}"
        ) from error
    return _array(name, array, tensor.data_ptr() - tensor.untyped_storage().data_ptr())


def _array(name: str, array: np.ndarray, offset_bytes: int) -> tuple[Type, Argument]:
    dtype = array.dtype
    if dtype.name not in dtypes.SCALARS or not dtype.isnative:
        raise KernelError(f"{name} holds {dtype}; arrays may hold {', '.join(dtypes.SCALARS)}")
    if array.ndim == 0:
        raise KernelError(f"{name} has no dimension; give an array of shape (1,), or a number")
    if any(stride % dtype.itemsize for stride in array.strides) or not array.flags.aligned:
        raise KernelError(
            f"{name} does not lie on multiples of its element's {dtype.itemsize} bytes; copy it "
            "first"
        )
    low, high = np.lib.array_utils.byte_bounds(array)
    argument = Argument(name, array, offset_bytes % ALIGNMENT, low, high)
    return Array(
        dtype.name, "global", array.shape, argument.strides, array.flags.writeable
    ), argument


def _offset_in_allocation(array: np.ndarray) -> int:
    """How far into its allocation an array begins, in bytes.

    A part of a device array keeps its place. A NumPy array is copied to a GPU by itself, and
    begins an allocation of its own.
    """
    root = array
    while isinstance(root.base, DeviceArray):
        root = root.base
    if not isinstance(root, DeviceArray):
        return 0
    return np.lib.array_utils.byte_bounds(array)[0] - np.lib.array_utils.byte_bounds(root)[0]
