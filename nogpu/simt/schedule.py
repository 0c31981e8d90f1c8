"""Who runs when: blocks one after another, the threads of a block as greenlets.

A thread runs until it waits (at a barrier, or for the other lanes of its warp) or ends. The order
of the blocks, and after each barrier that of the warps, is drawn at random from a seed: a GPU
promises no order, so a kernel that needs one is wrong.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from greenlet import getcurrent, greenlet

from nogpu.kernels.errors import BarrierError, OutOfBoundsError, ThreadError, UnwrittenError
from nogpu.simt import arithmetic
from nogpu.simt.counters import MAX_PATHS, EndlessError, Recorder
from nogpu.simt.lanes import ALL_LANES, WARP, NoSourceError, together
from nogpu.simt.program import FILENAME, Program, element

POISON = 0xCDCDCDCD  # what a read of unwritten memory gives while counting; NaN of a float's type

Index = tuple[int, int, int]  # of a block or thread
# Where a thread waits: (site, path), of an exchange (site, path, mask), and its values. None once
# the thread has returned.
Token = tuple[Any, ...] | None


class OutsideError(Exception):
    """An index outside of an array: (array's name, index, shape)."""


class UnwrittenReadError(Exception):
    """A read of an element that nothing has written: (element, memory space)."""


class Schedule:
    """Runs a translated kernel over a grid."""

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Any],
        shared_cells: list[Any],
        seed: int,
        recorder: Recorder | None = None,
    ) -> None:
        self.program, self.arguments, self.recorder = program, arguments, recorder
        self.shared_cells = shared_cells
        self.blank = [None] * program.memory.shared_size
        self.random = random.Random(seed)  # noqa: S311 (an order, not a secret)
        self.threads = indices(program.block)
        self.blocks = indices(program.grid)
        count = len(self.threads)
        self.warps = [range(first, min(first + WARP, count)) for first in range(0, count, WARP)]
        self.block = self.thread = 0  # that run, by their numbers
        self.tokens: list[Token] = []  # by thread
        self.results: list[Any] = []  # by thread: what it gets when it goes on
        self.workers: list[greenlet] = []

    def run(self, kernel: Callable[..., Any]) -> None:
        """Run all blocks, in a random order."""
        numbers = list(range(len(self.blocks)))
        self.random.shuffle(numbers)
        if self.program.suspends:
            self._start_workers(kernel)
        for self.block in numbers:
            self.shared_cells[:] = self.blank
            try:
                if self.program.suspends:
                    self._run_together()
                else:
                    self._run_straight(kernel)
            except Exception as error:
                raise self.explain(error) from None
            if self.recorder:
                self.recorder.end_of_block(self.block)

    def _context(self, thread: int) -> tuple[Any, ...]:
        local_cells = [None] * self.program.memory.local_size
        return (thread, *self.threads[thread], *self.blocks[self.block], local_cells)

    def _shuffled_warps(self) -> list[range]:
        warps = list(self.warps)
        if len(warps) > 1:
            self.random.shuffle(warps)
        return warps

    def _run_straight(self, kernel: Callable[..., Any]) -> None:
        """A block whose threads never wait: each runs from beginning to end."""
        arguments = self.arguments
        for warp in self._shuffled_warps():
            for self.thread in warp:
                kernel(self._context(self.thread), 0, *arguments)

    # Threads that wait for each other

    def _start_workers(self, kernel: Callable[..., Any]) -> None:
        """A greenlet for each thread of a block; it serves the same thread of every block."""
        hub, arguments = getcurrent(), self.arguments

        def work(context: tuple[Any, ...]) -> None:
            while True:
                kernel(context, 0, *arguments)
                context = hub.switch(None)

        self.workers = [greenlet(work, hub) for _ in self.threads]

    def _run_together(self) -> None:
        """A block whose threads wait for each other."""
        self.tokens = [None] * len(self.threads)
        self.results = [self._context(thread) for thread in range(len(self.threads))]
        while True:
            for warp in self._shuffled_warps():
                self._run_warp(warp)
            if not any(self.tokens):
                return
            self._pass_barrier()

    def _run_warp(self, warp: Sequence[int]) -> None:
        """Run the lanes of a warp until each has returned or waits at a barrier of the block."""
        ready, workers, tokens, results = warp, self.workers, self.tokens, self.results
        while ready:
            for self.thread in ready:
                tokens[self.thread] = workers[self.thread].switch(results[self.thread])
            ready = self._exchange(warp) if self.program.exchanges else ()

    def _pass_barrier(self) -> None:
        """Let the block go on if all of its threads wait at the same barrier."""
        waiting, first = next((i, token) for i, token in enumerate(self.tokens) if token)
        for thread, token in enumerate(self.tokens):
            if token is None or token[:2] != first[:2]:
                raise self._missing(waiting, thread, "barrier", "block")
        name, result = self.program.sites[first[0]].function, None
        if name != "syncthreads":
            votes = [token[2] != 0 for token in self.tokens if token]
            count = {"syncthreads_count": sum, "syncthreads_and": all, "syncthreads_or": any}[name]
            result = int(count(votes))
        self.results = [result] * len(self.tokens)
        if self.recorder:
            self.recorder.end_of_epoch()

    def _exchange(self, warp: Sequence[int]) -> list[int]:
        """Complete exchanges that all lanes of a mask have joined; return the lanes that go on."""
        groups: dict[tuple[int, int, int], list[int]] = {}
        for thread in warp:
            token = self.tokens[thread]
            if token and not self.program.sites[token[0]].function.startswith("syncthreads"):
                groups.setdefault(token[:3], []).append(thread)
        ready: list[int] = []
        for (number, _, mask), lanes in groups.items():
            if lanes == self._wanted(warp, mask, lanes, number):
                self._complete(number, mask, warp[0], lanes)
                ready += lanes
        if groups and not ready:
            (number, _, mask), lanes = next(iter(groups.items()))
            wanted = self._wanted(warp, mask, lanes, number)
            absent = next(thread for thread in wanted if thread not in lanes)
            raise self._missing(lanes[0], absent, "exchange", "mask")
        return ready

    def _wanted(
        self, warp: Sequence[int], mask: int, lanes: Sequence[int], number: int
    ) -> list[int]:
        """The threads of a mask that have not returned; those that have come must be in it."""
        wanted = [
            thread
            for thread in warp
            if mask >> (thread - warp[0]) & 1 and self.tokens[thread] is not None
        ]
        for thread in lanes:
            if thread not in wanted:
                raise ThreadError(
                    f"{self.program.sites[number].where}: {self._named(thread)} is not in its own "
                    f"mask {mask:#010x}"
                )
        return wanted

    def _complete(self, number: int, mask: int, first: int, lanes: Sequence[int]) -> None:
        """Give each lane what it gets from a shuffle, a vote, a match or syncwarp."""
        name = self.program.sites[number].function
        given = {thread - first: (self.tokens[thread] or ())[3:] for thread in lanes}
        for self.thread in lanes:
            self.results[self.thread] = together(name, self.thread - first, given)
        if mask == ALL_LANES and name == "syncwarp" and self.recorder:
            self.recorder.end_of_phase()

    # What a thread of the translated kernel calls

    def fence(self, reaches_all: bool) -> None:
        """A thread calls a fence while the kernel is counted."""
        if self.recorder:
            self.recorder.fence(self.block, self.thread, reaches_all)

    def unwritten(self, number: int, place: int) -> int | float:
        """A thread reads an element that nothing has written.

        While counting, this is noted, and the thread goes on with a number that is easy to see.
        """
        site = self.program.sites[number]
        if self.recorder:
            self.recorder.note_unwritten(site, place, self.block, self.thread)
            return arithmetic.cast(
                float("nan") if site.dtype.startswith("float") else POISON, site.dtype
            )
        shared = site.space == "shared"
        what = element(*self.program.memory.shared_element(place)) if shared else site.array
        raise UnwrittenReadError(what, site.space)

    # Errors

    def _named(self, thread: int) -> str:
        return f"thread {self.threads[thread]} of block {self.blocks[self.block]}"

    def _missing(self, waiting: int, absent: int, what: str, group: str) -> BarrierError:
        """The error of a wait that one thread never joins."""
        sites = self.program.sites
        here, there = self.tokens[waiting] or (), self.tokens[absent]
        site = sites[here[0]]
        if there is None:
            fate = "has ended without it"
        elif there[0] != site.number:
            other = sites[there[0]]
            fate = f"waits in line {other.line} (`{other.source.line(other.line)}`)"
        elif there[1] != here[1]:
            fate = "waits there in another iteration of the loop"
        else:
            fate = "waits there with another mask"
        message = (
            f"{site.where}: {self._named(waiting)} waits at this {what}, and thread "
            f"{self.threads[absent]} {fate}; every thread of the {group} must come to the same "
            f"{what}"
        )
        # CUDA's guide: since compute capability 7.0 a barrier waits for "all non-exited threads".
        # Refused here all the same: the kernel would hang on older cards, and what the threads
        # that left should have stored for the others is missing on all of them.
        if there is None and group == "block":
            message += ". GPUs since Volta go on without a thread that has ended; older ones hang"
        return BarrierError(message)

    def explain(self, error: Exception) -> Exception:
        """The error of a thread as a sentence: where, who, what."""
        if isinstance(error, (BarrierError, ThreadError)):
            return error
        where, explained = self._where(error), _sentence(error)
        if where is None or explained is None:
            return error
        kind, sentence = explained
        return kind(f"{where}: {self._named(self.thread)} {sentence}")

    def _where(self, error: Exception) -> str | None:
        """The kernel's line in which the error arose."""
        token = self.tokens[self.thread] if self.tokens else None
        if isinstance(error, NoSourceError) and token:
            return self.program.sites[token[0]].where
        traceback, where = error.__traceback__, None
        while traceback:
            if traceback.tb_frame.f_code.co_filename == FILENAME:
                function, line = self.program.lines[traceback.tb_lineno - 1]
                where = function.source.where(line)
            traceback = traceback.tb_next
        return where


def indices(size: Index) -> list[Index]:
    """The indices of all blocks of a grid, or of all threads of a block, in order."""
    width, height, depth = size
    return [(x, y, z) for z in range(depth) for y in range(height) for x in range(width)]


def _sentence(error: Exception) -> tuple[type[Exception], str] | None:
    """The class of the error that a kernel's author sees, and what its thread did."""
    if isinstance(error, OutsideError):
        return OutOfBoundsError, _outside(*error.args)
    if isinstance(error, UnwrittenReadError):
        what, space = error.args
        return UnwrittenError, (
            f"reads {what} in {space} memory, which nothing has written; is a barrier or a store "
            "missing?"
        )
    if isinstance(error, NoSourceError):
        lane = error.args[0]
        return ThreadError, f"asks lane {lane} for a value, and that lane takes no part"
    if isinstance(error, EndlessError):
        return ThreadError, f"is in a loop after {MAX_PATHS:,} iterations: does it never end?"
    if isinstance(error, ZeroDivisionError):
        return ThreadError, "divides a whole number by zero"
    if isinstance(error, ValueError) and "range()" in str(error):
        return ThreadError, "counts in steps of zero"
    if isinstance(error, UnboundLocalError):
        variable = str(error).split("'")[1].partition("_")[2]
        return ThreadError, f"uses {variable} before it has a value"
    return None


def _outside(name: str, index: Iterable[Any], shape: tuple[int, ...]) -> str:
    shown = ", ".join(
        f"{i[0]}:{i[1]}" if isinstance(i, tuple) else str(arithmetic.wrap(i)) for i in index
    )
    negative = "; Numba counts a negative index from the end, without a warning"
    return f"reaches {name}[{shown}], outside of its shape {shape}" + negative * ("-" in shown)
