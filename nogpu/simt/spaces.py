"""Where a program's shared, local and constant arrays begin in their memory spaces."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nogpu.kernels.errors import KernelError, LaunchError
from nogpu.simt import dtypes

# CUDA C++ Programming Guide, compute capabilities
SHARED_LIMIT_BYTES = 48 * 1024  # of a block, without asking for more
LOCAL_LIMIT_BYTES = 512 * 1024  # of a thread
ALIGNMENT = 256  # elements; an allocation on a GPU begins at a multiple of 256 bytes

Key = tuple[int, int]  # of a call that makes an array: the function's version, the node's id


@dataclass(frozen=True)
class Region:
    """An array in shared memory: where it begins."""

    start: int
    name: str
    shape: tuple[int, ...]


@dataclass(eq=False)
class Spaces:
    """The layout of shared, local and constant memory. A place counts elements."""

    dynamic_bytes: int = 0
    shared: list[Region] = field(default_factory=list)
    shared_size: int = 0
    shared_bytes: int = 0
    local_size: int = 0
    local_bytes: int = 0
    constants: list[int | float] = field(default_factory=list)  # the numbers in constant memory
    places: dict[Any, int] = field(default_factory=dict)  # of a Key, or of a constant's name
    dynamic: tuple[str, int] | None = None  # dtype and place of dynamic shared memory

    def reserve_shared(
        self, key: Key, where: str, name: str, shape: tuple[int, ...], dtype: str
    ) -> int:
        """Where a shared array begins: one array for each call of cuda.shared.array in the text."""
        if key not in self.places:
            size = math.prod(shape)
            self.places[key] = self._region(name, shape, size)
            self.shared_bytes += size * dtypes.itemsize(dtype)
            total = self.shared_bytes + self.dynamic_bytes
            if total > SHARED_LIMIT_BYTES:
                raise LaunchError(
                    f"{where}: with this array a block uses {total:,} bytes of shared memory; it "
                    f"may have {SHARED_LIMIT_BYTES:,}"
                )
        return self.places[key]

    def reserve_dynamic(self, where: str, name: str, dtype: str) -> tuple[int, int]:
        """(place, length) of dynamic shared memory: as on a GPU, the same for all its arrays."""
        length = self.dynamic_bytes // dtypes.itemsize(dtype)
        if self.dynamic is None:
            self.dynamic = dtype, self._region(name, (length,), length)
        taken, place = self.dynamic
        if taken != dtype:
            raise KernelError(
                f"{where}: the dynamic shared memory already holds {taken}; the simulator keeps "
                "one dtype in it"
            )
        return place, length

    def reserve_local(self, key: Key, where: str, shape: tuple[int, ...], dtype: str) -> int:
        """Where a local array begins in its thread's memory.

        Without recursion, one place for each call of cuda.local.array is enough.
        """
        if key not in self.places:
            size = math.prod(shape)
            self.places[key] = self.local_size
            self.local_size += size
            self.local_bytes += size * dtypes.itemsize(dtype)
            if self.local_bytes > LOCAL_LIMIT_BYTES:
                raise LaunchError(
                    f"{where}: a thread's local arrays hold {self.local_bytes:,} bytes with this "
                    f"one; they may hold {LOCAL_LIMIT_BYTES:,}"
                )
        return self.places[key]

    def reserve_constant(self, name: str, table: np.ndarray) -> int:
        """Where a constant array begins."""
        if name not in self.places:
            self.places[name] = len(self.constants)
            values = table.reshape(-1).tolist()
            self.constants += values + [0] * (-len(values) % ALIGNMENT)
        return self.places[name]

    def shared_element(self, place: int) -> tuple[str, tuple[int, ...]]:
        """(array's name, index) of a place in shared memory."""
        region = next(region for region in reversed(self.shared) if region.start <= place)
        index: list[int] = []
        rest = place - region.start
        for length in reversed(region.shape):
            index.insert(0, rest % length)
            rest //= length
        return region.name, tuple(index)

    def _region(self, name: str, shape: tuple[int, ...], size: int) -> int:
        start = self.shared_size
        self.shared.append(Region(start, name, shape))
        self.shared_size += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        return start
