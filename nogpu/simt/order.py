"""What fences and atomic updates order.

A *hand-over* goes from thread p to thread q through a word of memory: p calls a fence. Later p, or
any thread of its block after the next barrier, updates the word atomically. Still later q updates
it atomically. Then what p did before its fence, and its block before the barrier before that,
comes before what q does after its update, and its block after the next barrier. So the last block
that takes a ticket may add up what the others wrote, and a lock keeps what it guards. Thread q
need not call a fence. (CUDA C++ Programming Guide, memory fence functions.)
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nogpu.simt.accesses import Accesses


class Fence(NamedTuple):
    """A call of a fence. Epoch and time are the Recorder's."""

    block: int
    thread: int
    epoch: int
    time: int
    reaches_all: bool  # not only its own block


class Update(NamedTuple):
    """An atomic update, by a thread of a block that is known."""

    thread: int
    epoch: int
    time: int
    word: int


class Covered(NamedTuple):
    """What a block's fences cover: the accesses before them."""

    times: dict[int, int]  # thread: time of its first fence
    epoch: float  # of the first of all fences


Times = dict[int, int]  # by word
Who = tuple[int, int, int, int]  # an access's block, thread, epoch and time


class HandOvers:
    """The hand-overs of a launch.

    fences: in the order of time. updates: the atomic accesses. words: a number for the word of
    each. An access before a fence has at most the fence's time, and an atomic update is the only
    one at its time.
    """

    def __init__(self, fences: Iterable[Fence], updates: Accesses, words: np.ndarray) -> None:
        self._of_block: dict[int, list[Fence]] = defaultdict(list)
        self._of_thread: dict[tuple[int, int], list[Fence]] = defaultdict(list)
        for fence in fences:
            self._of_block[fence.block].append(fence)
            self._of_thread[fence.block, fence.thread].append(fence)
        self._updates: dict[int, list[Update]] = defaultdict(list)  # by block
        for (block, thread, epoch, time), word in zip(_who(updates), words.tolist(), strict=True):
            self._updates[block].append(Update(thread, epoch, time, word))
        # Each is asked for many times.
        self._of_access: dict[Who, tuple[Times, Times]] = {}
        self._of_epoch: dict[tuple[int, int], Covered] = {}

    def among(self, rows: Accesses) -> Callable[[int], np.ndarray]:
        """A function of one row: for each row, whether one of the two is handed to the other."""
        times = [self._times(access) for access in _who(rows)]

        def ordered(row: int) -> np.ndarray:
            given, received = times[row]
            return np.array(
                [
                    _before(given, other_received) or _before(other_given, received)
                    for other_given, other_received in times
                ]
            )

        return ordered

    def _times(self, access: Who) -> tuple[Times, Times]:
        """({word: when the access was first passed on}, {word: when its thread last received})."""
        if access not in self._of_access:
            self._of_access[access] = self._compute_times(*access)
        return self._of_access[access]

    def _compute_times(self, block: int, thread: int, epoch: int, time: int) -> tuple[Times, Times]:
        own = _covered(fence for fence in self._of_thread[block, thread] if fence.time >= time)
        given: Times = {}
        received: Times = {}
        for update in self._updates[block]:
            at, word = update.time, update.word
            if at == time:  # the access itself
                covers = [self._in_later_epochs(block, -1)]
            else:
                covers = [own, self._in_later_epochs(block, epoch)]
            if any(
                covered.epoch < update.epoch or covered.times.get(update.thread, at) < at
                for covered in covers
            ):
                given[word] = min(at, given.get(word, at))
            if update.epoch < epoch or update.thread == thread and at <= time:
                received[word] = max(at, received.get(word, at))
        return given, received

    def _in_later_epochs(self, block: int, epoch: int) -> Covered:
        key = block, epoch
        if key not in self._of_epoch:
            self._of_epoch[key] = _covered(
                fence for fence in self._of_block[block] if fence.epoch > epoch
            )
        return self._of_epoch[key]


def _who(table: Accesses) -> Iterable[Who]:
    columns: Sequence[list[int]] = [
        column.tolist() for column in (table.block, table.thread, table.epoch, table.time)
    ]
    return zip(*columns, strict=True)


def _covered(fences: Iterable[Fence]) -> Covered:
    """fences: in the order of time."""
    times: dict[int, int] = {}
    first = math.inf
    for fence in fences:
        times.setdefault(fence.thread, fence.time)
        first = min(first, fence.epoch)
    return Covered(times, first)


def _before(given: Times, received: Times) -> bool:
    return any(word in received and at < received[word] for word, at in given.items())
