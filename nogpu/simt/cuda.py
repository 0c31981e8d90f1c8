"""The simulator as numba.cuda: `from nogpu import cuda` on a machine with no GPU.

In a kernel cuda.grid, cuda.shared.array and all the others are known by name and never called
here. Outside of a kernel they raise an error that says so.
"""

from collections.abc import Sequence
from typing import Any, Never

import numpy as np

from nogpu.simt.kernel import jit
from nogpu.simt.memory import DeviceArray

IN_KERNELS = {
    "grid",
    "gridsize",
    "threadIdx",
    "blockIdx",
    "blockDim",
    "gridDim",
    "laneid",
    "warpsize",
    "shared",
    "local",
    "const",
    "atomic",
}
__all__ = ["device_array", "device_array_like", "is_available", "jit", "synchronize", "to_device"]


def is_available() -> bool:
    """True: kernels can be launched."""
    return True


def to_device(array: Any) -> DeviceArray:
    """A copy of an array, as if in the GPU's memory."""
    return np.array(array).view(DeviceArray)


def device_array(shape: int | Sequence[int], dtype: Any = np.float64) -> DeviceArray:
    """An array of this shape, its contents undefined: NaN, or the largest number."""
    dtype = np.dtype(dtype)
    poison = {"f": np.nan, "b": True}.get(dtype.kind) or np.iinfo(dtype).max
    return np.full(shape, poison, dtype).view(DeviceArray)


def device_array_like(array: np.ndarray) -> DeviceArray:
    """An array of the same shape and dtype, its contents undefined."""
    return device_array(array.shape, array.dtype)


def synchronize() -> None:
    """Nothing: a launch in the simulator ends before it returns."""


def __getattr__(name: str) -> Never:
    if (
        name in IN_KERNELS
        or name.startswith(("sync", "shfl_", "threadfence"))
        or name.endswith("_sync")
    ):
        raise AttributeError(f"cuda.{name} has a meaning only inside a kernel")
    raise AttributeError(f"cuda.{name} is not known to the simulator")
