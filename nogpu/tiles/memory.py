"""The arrays that a kernel may touch: which element an address is, and which programs touched it.

Every argument has an address space of its own, far from the others: an address shows by itself from
which argument it was computed, however wrong it is, and it is the same in each run. It becomes an
address of this process only once it is known to be inside.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Never

import numpy as np

from nogpu.kernels.errors import KernelError, OutOfBoundsError
from nogpu.kernels.memory import SECTOR_BYTES, overlapping
from nogpu.tiles.costs import Kind

SPACE_BITS = 44
MIDDLE = 1 << (SPACE_BITS - 1)  # a storage begins there in its space: negative offsets stay in it
SECTOR_BITS = SECTOR_BYTES.bit_length() - 1
VERBS = {"load": "loads", "store": "stores", "atomic": "updates", "copy": "copies"}
HARMLESS = {("load", "load"), ("atomic", "atomic")}
Part = tuple["Argument", np.ndarray, "np.ndarray | slice"]


@dataclass(eq=False)
class Argument:
    """An array that a kernel was given: its storage, and where it begins, in this process."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    itemsize: int
    storage: int  # address of the storage's first byte
    storage_bytes: int
    start: int  # address of element 0
    strides: tuple[int, ...]  # in elements
    writable: bool = True
    space: int = 0

    @property
    def address(self) -> int:
        """The address of element 0 that the kernel is given."""
        return (self.space << SPACE_BITS) + MIDDLE + self.start - self.storage

    @property
    def storage_end(self) -> int:
        """The address after the storage's last byte."""
        return self.storage + self.storage_bytes

    @property
    def elements(self) -> int:
        """The number of elements of the array."""
        return int(np.prod(self.shape, dtype=np.int64))


class Conflict(NamedTuple):
    """An earlier access that races with this one. elements: as indices in their buffer."""

    kind: Kind
    program: int
    site: int
    elements: np.ndarray


class Touches:
    """The program that touched each element of a buffer, or -1, and the site of its access."""

    def __init__(self, elements: int) -> None:
        self.programs = np.full(elements, -1, np.int32)
        self.sites = np.zeros(elements, np.int32)

    def set(self, elements: np.ndarray, program: int, site: int) -> None:
        """Note that this access touched these elements."""
        self.programs[elements] = program
        self.sites[elements] = site


class Buffer:
    """The elements of arguments that overlap, and two programs per element and kind of access."""

    def __init__(self, arguments: list[Argument]) -> None:
        self.low = min(argument.storage for argument in arguments)
        self.high = max(argument.storage_end for argument in arguments)
        self.itemsize = min(argument.itemsize for argument in arguments)
        self.touches: dict[Kind, tuple[Touches, Touches]] = {}

    def touch(
        self, kind: Kind, program: int, site: int, elements: np.ndarray
    ) -> Iterator[Conflict]:
        """Note that an access touches these elements, and yield what races with it."""
        for other, pair in self.touches.items():
            if (kind, other) not in HARMLESS:
                for touches in pair:
                    programs = touches.programs[elements]
                    racing = (programs >= 0) & (programs != program)
                    if racing.any():
                        racing = elements[racing]
                        first = racing[0]
                        earlier = int(touches.programs[first]), int(touches.sites[first])
                        yield Conflict(other, *earlier, racing)
                        break
        if kind not in self.touches:
            size = -(-(self.high - self.low) // self.itemsize)
            self.touches[kind] = Touches(size), Touches(size)
        first, second = self.touches[kind]
        programs = first.programs[elements]
        first.set(elements[programs < 0], program, site)
        others = elements[(programs >= 0) & (programs != program)]
        if others.size:
            second.set(others, program, site)


class Memory:
    """The arguments of one launch, and the buffer of each."""

    def __init__(self, arguments: list[Argument]) -> None:
        self.arguments = arguments
        self.buffers: dict[Argument, Buffer] = {}
        for number, argument in enumerate(arguments):
            argument.space = number + 1
        for group in overlapping(arguments, lambda array: (array.storage, array.storage_end)):
            self.buffers |= dict.fromkeys(group, Buffer(group))

    def distinct_buffers(self) -> list[Buffer]:
        """The buffers, each once."""
        return list(dict.fromkeys(self.buffers.values()))

    def contents(self) -> list[bytes]:
        """What each of the distinct buffers holds now: a copy, from this process's memory."""
        return [
            ctypes.string_at(buffer.low, buffer.high - buffer.low)
            for buffer in self.distinct_buffers()
        ]

    def resolve(self, kind: Kind, addresses: np.ndarray, itemsize: int) -> list[Part]:
        """[(Argument, offsets in bytes into its storage, their indices)] of addresses.

        addresses: of the elements that are not masked off, as the kernel computed them.
        OutOfBoundsError if one is outside.
        """
        low, high = int(addresses.min()), int(addresses.max())
        space = low >> SPACE_BITS
        if high >> SPACE_BITS != space:
            return self._resolve_apart(kind, addresses, itemsize)
        argument = self.owner(low)
        if argument is None:
            raise OutOfBoundsError(
                f"{VERBS[kind]} memory at an address that was computed from no argument"
            )
        begin = (space << SPACE_BITS) + MIDDLE
        if low < begin or high + itemsize > begin + argument.storage_bytes:
            _refuse(kind, argument, addresses, begin, itemsize)
        offsets = (addresses - np.uint64(begin)).view(np.int64)
        if itemsize > 1 and (offsets & (itemsize - 1)).any():
            raise KernelError(
                f"{VERBS[kind]} elements of {itemsize} bytes of {argument.name} at an address that "
                f"is not a multiple of {itemsize}: a GPU refuses that"
            )
        return [(argument, offsets, slice(None))]

    def _resolve_apart(self, kind: Kind, addresses: np.ndarray, itemsize: int) -> list[Part]:
        """The same for addresses that were computed from several arguments."""
        spaces = addresses >> np.uint64(SPACE_BITS)
        parts: list[Part] = []
        for space in np.unique(spaces):
            group = np.flatnonzero(spaces == space)
            [(argument, offsets, _)] = self.resolve(kind, addresses[group], itemsize)
            parts.append((argument, offsets, group))
        return parts

    def owner(self, address: int) -> Argument | None:
        """The Argument that this address was computed from, or None."""
        number = int(address) >> SPACE_BITS
        return self.arguments[number - 1] if 1 <= number <= len(self.arguments) else None


def _refuse(
    kind: Kind, argument: Argument, addresses: np.ndarray, begin: int, itemsize: int
) -> Never:
    offsets = addresses.astype(np.int64) - begin
    outside = (offsets < 0) | (offsets + itemsize > argument.storage_bytes)
    first = int(offsets[outside][0]) - (argument.start - argument.storage)
    shape = "" if len(argument.shape) == 1 else f" (shape {argument.shape})"
    raise OutOfBoundsError(
        f"{VERBS[kind]} element {first // argument.itemsize:,} of {argument.name}, which has "
        f"{argument.elements:,} elements{shape}; {int(outside.sum()):,} of the {outside.size:,} "
        "elements that this request asks for are outside. "
        "None was read or written; mask them off"
    )


def sector_count(offsets: np.ndarray) -> int:
    """The number of distinct 32-byte sectors that these offsets, in bytes, are in."""
    sectors = offsets >> SECTOR_BITS
    steps = np.diff(sectors)
    if (steps >= 0).all():
        return 1 + int(np.count_nonzero(steps))
    starts = np.concatenate([sectors[:1], sectors[1:][steps != 0]])
    return len(np.unique(starts))
