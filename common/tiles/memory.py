"""The arrays that a kernel may touch: where each stands, which of them an address belongs to, and who touched which element.

Every argument stands in an address space of its own, far from the others: an address tells by itself from which argument it
was computed, however wrong it is, and it is the same in each run. Addresses become the machine's own only after they have
been found to be inside.
"""

from dataclasses import dataclass
from typing import Never

import numpy as np

from common.kernels.errors import KernelError, OutOfBoundsError
from common.kernels.memory import SECTOR_BYTES, overlapping

SPACE_BITS = 44
MIDDLE = 1 << (
    SPACE_BITS - 1
)  # where an argument's storage begins in its space: negative offsets stay in it, too
VERBS = {"load": "loads", "store": "stores", "atomic": "updates"}


@dataclass(eq=False)
class Argument:
    """An array that a kernel was given: where its storage and its first element stand in this process."""

    name: str
    dtype: str
    shape: tuple
    itemsize: int
    storage: int  # address of the storage's first byte
    storage_bytes: int
    start: int  # address of element 0
    strides: tuple  # in elements
    writable: bool = True
    space: int = 0
    buffer: object = None  # a Buffer, shared by arguments that overlap

    @property
    def address(self):
        """The address of element 0 that the kernel is given."""
        return (self.space << SPACE_BITS) + MIDDLE + self.start - self.storage

    @property
    def storage_end(self):
        """The address after the storage's last byte."""
        return self.storage + self.storage_bytes

    @property
    def elements(self):
        """The number of elements of the array."""
        return int(np.prod(self.shape, dtype=np.int64))


class Buffer:
    """The elements of arguments that overlap: which program last loaded, stored or updated each."""

    def __init__(self, arguments) -> None:
        self.low = min(argument.storage for argument in arguments)
        self.high = max(argument.storage_end for argument in arguments)
        self.itemsize = min(argument.itemsize for argument in arguments)
        self.touched = {}  # kind of access: two arrays of marks, of the first program and of another one

    def touch(self, kind, mark, index):
        """Notes that the access `mark` touches the elements at `index`, and yields (kind, marks, index) of what races with it.

        A mark is a program's number and a site's, (program << 16) + site.
        """
        program = mark >> 16
        for other, pair in self.touched.items():
            if (kind, other) not in HARMLESS:
                for marks in pair:
                    found = marks[index]
                    racing = (found >= 0) & (found >> 16 != program)
                    if racing.any():
                        yield other, found[racing], index[racing]
                        break
        if kind not in self.touched:
            count = -(-(self.high - self.low) // self.itemsize)
            self.touched[kind] = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        first, second = self.touched[kind]
        found = first[index]
        first[index] = np.where(found < 0, mark, found)
        others = (found >= 0) & (found >> 16 != program)
        if others.any():
            second[index[others]] = mark


HARMLESS = {("load", "load"), ("atomic", "atomic")}


class Memory:
    """The arguments of one launch."""

    def __init__(self, arguments) -> None:
        self.arguments = arguments
        for number, argument in enumerate(arguments):
            argument.space = number + 1
        for group in overlapping(arguments, lambda each: (each.storage, each.storage_end)):
            buffer = Buffer(group)
            for argument in group:
                argument.buffer = buffer

    def resolve(self, kind, addresses, itemsize):
        """[(Argument, offsets in bytes into its storage, their indices)] of addresses; OutOfBoundsError if one is outside.

        addresses: of the elements that are not masked off, as the kernel computed them.
        """
        low, high = int(addresses.min()), int(addresses.max())
        space = low >> SPACE_BITS
        if high >> SPACE_BITS != space:
            spaces = addresses >> np.uint64(SPACE_BITS)
            groups = [np.flatnonzero(spaces == number) for number in np.unique(spaces)]
            return [
                (*self.resolve(kind, addresses[group], itemsize)[0][:2], group) for group in groups
            ]
        argument = self.owner(low)
        if argument is None:
            raise OutOfBoundsError(
                f"{VERBS[kind]} what an address points to that was computed from no argument"
            )
        begin = (space << SPACE_BITS) + MIDDLE
        if low < begin or high + itemsize > begin + argument.storage_bytes:
            self._refuse(kind, argument, addresses, begin, itemsize)
        offsets = (addresses - np.uint64(begin)).view(np.int64)
        if itemsize > 1 and (offsets & (itemsize - 1)).any():
            raise KernelError(
                f"{VERBS[kind]} elements of {itemsize} bytes of {argument.name} at an address that is no "
                f"multiple of {itemsize}: a GPU refuses that"
            )
        return [(argument, offsets, slice(None))]

    def owner(self, address):
        """The Argument that this address was computed from, or None."""
        number = int(address) >> SPACE_BITS
        return self.arguments[number - 1] if 1 <= number <= len(self.arguments) else None

    def _refuse(self, kind, argument, addresses, begin, itemsize) -> Never:
        places = addresses.astype(np.int64) - begin
        outside = (places < 0) | (places + itemsize > argument.storage_bytes)
        element = (
            int(places[outside][0]) - (argument.start - argument.storage)
        ) // argument.itemsize
        shape = "" if len(argument.shape) == 1 else f" (shape {argument.shape})"
        raise OutOfBoundsError(
            f"{VERBS[kind]} element {element:,} of {argument.name}, which has {argument.elements:,} elements{shape}; "
            f"{int(outside.sum()):,} of the {outside.size:,} elements that this request asks for are outside. "
            "None was read or written; mask them off"
        )


def sector_count(offsets):
    """The number of distinct 32-byte sectors that these offsets, in bytes, are in."""
    sectors = offsets // SECTOR_BYTES
    steps = np.diff(sectors)
    if (steps >= 0).all():
        return 1 + int(np.count_nonzero(steps))
    starts = np.concatenate([sectors[:1], sectors[1:][steps != 0]])
    return len(np.unique(starts))
