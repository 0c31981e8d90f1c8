"""The simulator under numba.cuda's name: what `from common.device import cuda` gives on a machine with no GPU.

In a kernel cuda.grid, cuda.shared.array and all the others are known by name and never called here; outside of a kernel
they say so.
"""

from typing import Never

import numpy as np

from common.simt.kernel import jit
from common.simt.memory import DeviceArray

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


def to_device(array):
    """A copy of an array, as if in the GPU's memory."""
    return np.array(array).view(DeviceArray)


def device_array(shape, dtype=np.float64):
    """An array of this shape, its contents undefined: NaN, or the largest number."""
    dtype = np.dtype(dtype)
    poison = {"f": np.nan, "b": True}.get(dtype.kind) or np.iinfo(dtype).max
    return np.full(shape, poison, dtype).view(DeviceArray)


def device_array_like(array):
    """An array of the same shape and dtype, its contents undefined."""
    return device_array(array.shape, array.dtype)


def synchronize() -> None:
    """Nothing: a launch in the simulator ends before it returns."""


def __getattr__(name) -> Never:
    if (
        name in IN_KERNELS
        or name.startswith(("sync", "shfl_", "threadfence"))
        or name.endswith("_sync")
    ):
        raise AttributeError(f"cuda.{name} has a meaning only inside a kernel")
    raise AttributeError(f"cuda.{name} is not known to the simulator")
