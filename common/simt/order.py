"""What fences and atomic updates order.

A *hand-over* goes from thread p to thread q by a word of memory: p calls a fence; later p, or any thread of its block after
the next barrier, updates the word atomically; later still q updates it atomically. What p did before its fence, and its block
before the barrier before that, then comes before what q does after its update, and its block after the next barrier. So the
last block that takes a ticket may add up what the others wrote, and a lock keeps what it guards. That q calls a fence, too,
is not asked for. (CUDA C++ Programming Guide, memory fence functions.)
"""

import functools
import math
from collections import defaultdict, namedtuple

import numpy as np

Fence = namedtuple(
    "Fence", "block thread epoch time reaches_all"
)  # reaches_all: not its block alone


class HandOvers:
    """The hand-overs of a launch. fences: Fence rows. updates: the atomic Accesses; words: a number for the word of each.

    Time is counters.Recorder's: accesses before a fence have at most its time, and an atomic update is alone in its own.
    """

    def __init__(self, fences, updates, words) -> None:
        self.fences, self.updates = (
            defaultdict(list),
            defaultdict(list),
        )  # by block, fences also by block and thread
        for fence in fences:  # in the order of time
            self.fences[fence.block].append(fence)
            self.fences[fence.block, fence.thread].append(fence)
        for block, *update in zip(
            *map(np.ndarray.tolist, (*_who_and_when(updates), words)), strict=True
        ):
            self.updates[block].append(update)
        self.known, self.in_later_epochs = (
            functools.cache(self._known),
            functools.cache(self._in_later_epochs),
        )

    def among(self, rows):
        """A function of one row of a table of accesses: whether it and each of them are handed over, either to the other."""
        known = [
            self.known(*access)
            for access in zip(*map(np.ndarray.tolist, _who_and_when(rows)), strict=True)
        ]

        def ordered(one):
            given, had = known[one]
            return np.array(
                [
                    _before(given, other_had) or _before(other_given, had)
                    for other_given, other_had in known
                ]
            )

        return ordered

    def _known(self, block, thread, epoch, time):
        """({word: when it first gave the access away}, {word: when it last gave something to its thread before the access})."""
        own = _first([fence for fence in self.fences[block, thread] if fence.time >= time])
        given, had = {}, {}
        for updater, update_epoch, at, word in self.updates[block]:
            itself = at == time
            covered_by = (
                [self.in_later_epochs(block, -1)]
                if itself
                else [own, self.in_later_epochs(block, epoch)]
            )
            if any(
                first_epoch < update_epoch or times.get(updater, at) < at
                for times, first_epoch in covered_by
            ):
                given[word] = min(at, given.get(word, at))
            if update_epoch < epoch or updater == thread and at <= time:
                had[word] = max(at, had.get(word, at))
        return given, had

    def _in_later_epochs(self, block, epoch):
        return _first([fence for fence in self.fences[block] if fence.epoch > epoch])


def _who_and_when(table):
    return table.block, table.thread, table.epoch, table.time


def _first(fences):
    """({thread: time of its first one}, epoch of the first of all) of Fence rows in the order of time."""
    return {fence.thread: fence.time for fence in reversed(fences)}, min(
        (fence.epoch for fence in fences), default=math.inf
    )


def _before(given, had):
    return any(word in had and at < had[word] for word, at in given.items())
