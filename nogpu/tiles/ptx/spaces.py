"""The memory that instructions of PTX read and write: what it holds, as far as it is known."""

from typing import NamedTuple

import numpy as np

from nogpu.tiles.costs import Kind
from nogpu.tiles.memory import Argument, Memory
from nogpu.tiles.ptx.arithmetic import Value


class Lanes(NamedTuple):
    """Threads that access memory: their addresses, and their places in (programs, threads)."""

    addresses: np.ndarray
    programs: np.ndarray
    threads: np.ndarray


class Global:
    """The arrays of a launch, as copies; a launch changes the copies."""

    def __init__(self, memory: Memory, contents: list[bytes]) -> None:
        self.memory = memory
        held = {
            buffer: np.frombuffer(bytearray(content), np.uint8)
            for buffer, content in zip(memory.distinct_buffers(), contents, strict=True)
        }
        unknown = {buffer: np.zeros(content.size, bool) for buffer, content in held.items()}
        self.held = {a: held[buffer] for a, buffer in memory.buffers.items()}
        self.unknown = {a: unknown[buffer] for a, buffer in memory.buffers.items()}
        self.begins = {a: a.storage - buffer.low for a, buffer in memory.buffers.items()}

    def parts(
        self, kind: Kind, addresses: np.ndarray, size: int
    ) -> list[tuple[Argument, np.ndarray, np.ndarray]]:
        """[(argument, places of their first byte in its buffer, their indices)] of addresses."""
        return [
            (argument, offsets + self.begins[argument], np.arange(addresses.size)[indices])
            for argument, offsets, indices in self.memory.resolve(
                kind, addresses.astype(np.uint64), size
            )
        ]

    def read(self, addresses: np.ndarray, size: int) -> np.ndarray | None:
        """The bytes (addresses, size); None if one of them is not known."""
        result = np.zeros((addresses.size, size), np.uint8)
        if not addresses.size:
            return result
        for argument, places, indices in self.parts("load", addresses, size):
            each = places[:, None] + np.arange(size)
            if self.unknown[argument][each].any():
                return None
            result[indices] = self.held[argument][each]
        return result

    def write(
        self, kind: Kind, addresses: np.ndarray, values: np.ndarray | None, size: int
    ) -> None:
        """Store bytes (addresses, size); None: they are not known."""
        if not addresses.size:
            return
        for argument, places, indices in self.parts(kind, addresses, size):
            each = places[:, None] + np.arange(size)
            self.unknown[argument][each] = values is None
            if values is not None:
                self.held[argument][each] = values[indices]


class Shared:
    """The shared memory of some programs: a row of bytes for each."""

    def __init__(self, programs: int, size: int) -> None:
        self.held = np.zeros((programs, size), np.uint8)
        self.unknown = np.zeros((programs, size), bool)

    def of(self, chosen: np.ndarray) -> "Shared":
        """That of some of the programs."""
        part = Shared(0, 0)
        part.held, part.unknown = self.held[chosen], self.unknown[chosen]
        return part

    def read(self, lanes: Lanes, size: int) -> np.ndarray | None:
        """The bytes (lanes, size); None if one of them is not known."""
        each = lanes.programs[:, None], lanes.addresses[:, None] + np.arange(size)
        return None if self.unknown[each].any() else self.held[each]

    def write(self, lanes: Lanes, values: np.ndarray | None, size: int) -> None:
        """Store bytes (lanes, size); None: they are not known."""
        each = lanes.programs[:, None], lanes.addresses[:, None] + np.arange(size)
        self.unknown[each] = values is None
        if values is not None:
            self.held[each] = values


def as_bytes(values: Value, size: int) -> np.ndarray | None:
    """Numbers of `size` bytes, one per lane, as bytes (lanes, size)."""
    if values is None:
        return None
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, size)
