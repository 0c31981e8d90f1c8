"""A launch counted in another process, where Triton interprets; in this one it compiles."""

import ctypes
from dataclasses import replace

from nogpu.tiles.arrays import Arrays
from nogpu.tiles.launch import Launch, run
from nogpu.tiles.memory import Argument, Memory
from nogpu.tiles.process import process_for
from nogpu.tiles.report import Report

ALIGNED = 256  # bytes; what a GPU's memory comes in, at least
Sent = tuple[
    Argument, int
]  # with addresses counted from the beginning of the buffer of this number


def count(launch: Launch, arrays: Arrays) -> Report:
    """The Report of a launch that another process runs; the arrays are changed in this one."""
    memory = Memory(arrays.arguments())
    buffers, contents = memory.distinct_buffers(), memory.contents()
    sent = []
    for argument in memory.arguments:
        buffer = memory.buffers[argument]
        sent.append((_moved(argument, -buffer.low), buffers.index(buffer)))
    report, changed = process_for(interpret=True).call(_count_there, launch, sent, contents)
    for buffer, content in zip(buffers, changed, strict=True):
        if content is not None:
            ctypes.memmove(buffer.low, content, len(content))
    arrays.write_back()
    return report


def _count_there(
    launch: Launch, sent: list[Sent], contents: list[bytes]
) -> tuple[Report, list[bytes | None]]:
    """The Report, and the new contents of each buffer, or None if they did not change."""
    room = [ctypes.create_string_buffer(len(content) + ALIGNED) for content in contents]
    lows = [-(-ctypes.addressof(space) // ALIGNED) * ALIGNED for space in room]
    for low, content in zip(lows, contents, strict=True):
        ctypes.memmove(low, content, len(content))
    report = run(launch, _Received([_moved(argument, lows[number]) for argument, number in sent]))
    after = [
        ctypes.string_at(low, len(content)) for low, content in zip(lows, contents, strict=True)
    ]
    return report, [new if new != old else None for new, old in zip(after, contents, strict=True)]


def _moved(argument: Argument, distance: int) -> Argument:
    """The argument at addresses that are greater by this distance."""
    return replace(argument, storage=argument.storage + distance, start=argument.start + distance)


class _Received(Arrays):
    """Arrays that came from another process, which takes back what the kernel did to them."""

    def __init__(self, arguments: list[Argument]) -> None:
        super().__init__()
        self._arguments = arguments
