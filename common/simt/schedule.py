"""Who runs when: blocks one after another, the threads of a block as greenlets that switch at barriers.

A thread runs until it waits (at a barrier, or for the other lanes of its warp) or ends. The order of the blocks, and after
each barrier that of the warps, is drawn at random from a seed: a GPU promises none, so a kernel that needs one is wrong.
"""

import random

from greenlet import getcurrent, greenlet

from common.kernels.errors import BarrierError, OutOfBoundsError, ThreadError, UnwrittenError
from common.simt import arithmetic
from common.simt.program import FILENAME

WARP = 32
ALL_LANES = 2**32 - 1


class OutsideError(Exception):
    """An index outside of an array; `explain` turns it into a sentence that names the thread."""


class UnwrittenReadError(Exception):
    """A read of what nothing wrote."""


class Schedule:
    """Runs a translated kernel over a grid."""

    def __init__(self, program, kernel, arguments, shared_cells, seed, recorder=None) -> None:
        self.program, self.kernel, self.arguments, self.recorder = (
            program,
            kernel,
            arguments,
            recorder,
        )
        self.shared_cells, self.blank = shared_cells, [None] * program.memory.shared_size
        self.random = random.Random(seed)
        width, height, depth = program.block
        self.threads = [
            (x, y, z) for z in range(depth) for y in range(height) for x in range(width)
        ]
        count = len(self.threads)
        self.warps = [range(first, min(first + WARP, count)) for first in range(0, count, WARP)]
        self.block = self.thread = None

    def run(self) -> None:
        """Runs all blocks, in a random order."""
        width, height, depth = self.program.grid
        blocks = [(x, y, z) for z in range(depth) for y in range(height) for x in range(width)]
        numbers = list(range(len(blocks)))
        self.random.shuffle(numbers)
        run_block = self._run_together if self.program.suspends else self._run_straight
        if self.program.suspends:
            self._start_workers()
        for number in numbers:
            self.block = blocks[number]
            self.shared_cells[:] = self.blank
            try:
                run_block()
            except Exception as error:
                raise self.explain(error) from None
            if self.recorder:
                self.recorder.end_of_block(number)

    @property
    def block_number(self):
        """Of the block that runs, in the order of the grid."""
        (x, y, z), (width, height, _) = self.block, self.program.grid
        return x + width * (y + height * z)

    def _context(self, thread):
        return (thread, *self.threads[thread], *self.block, [None] * self.program.memory.local_size)

    def _shuffled(self, warps):
        warps = list(warps)
        if len(warps) > 1:
            self.random.shuffle(warps)
        return warps

    def _run_straight(self) -> None:
        """A block whose threads never wait: each runs from beginning to end."""
        kernel, arguments = self.kernel, self.arguments
        for warp in self._shuffled(self.warps):
            for self.thread in warp:
                kernel(self._context(self.thread), 0, *arguments)

    # --- threads that wait for each other

    def _start_workers(self) -> None:
        """A greenlet for each thread of a block; it serves the same thread of every block."""
        hub = getcurrent()

        def work(context) -> None:
            while True:
                self.kernel(context, 0, *self.arguments)
                context = hub.switch(None)

        self.workers = [greenlet(work, hub) for _ in self.threads]

    def _run_together(self) -> None:
        """A block with barriers. tokens: where each thread waits, as (site, path, ...); None once it has returned."""
        self.tokens = [None] * len(self.threads)
        self.results = [self._context(thread) for thread in range(len(self.threads))]
        while True:
            for warp in self._shuffled(self.warps):
                self._run_warp(warp)
            if not any(self.tokens):
                return
            self._pass_barrier()

    def _run_warp(self, warp) -> None:
        """Runs the lanes of a warp until each one has returned or waits at a barrier of the block."""
        ready, workers, tokens, results = warp, self.workers, self.tokens, self.results
        while ready:
            for self.thread in ready:
                tokens[self.thread] = workers[self.thread].switch(results[self.thread])
            ready = self._exchange(warp) if self.program.exchanges else ()

    def _pass_barrier(self) -> None:
        """Lets the block go on if all of its threads wait at the same barrier."""
        waiting = next(thread for thread, token in enumerate(self.tokens) if token)
        place = self.tokens[waiting][:2]
        for thread, token in enumerate(self.tokens):
            if token is None or token[:2] != place:
                raise self._missing(waiting, thread, "barrier", "block")
        name = self.program.sites[place[0]].function
        if name == "syncthreads":
            result = None
        else:
            votes = [token[2] != 0 for token in self.tokens]
            result = (
                sum(votes)
                if name == "syncthreads_count"
                else int((all if name == "syncthreads_and" else any)(votes))
            )
        self.results = [result] * len(self.tokens)
        if self.recorder:
            self.recorder.end_of_epoch()

    def _missing(self, waiting, absent, what, group):
        """The error of a wait that one thread never joins."""
        sites = self.program.sites
        site, token = sites[self.tokens[waiting][0]], self.tokens[absent]
        if token is None:
            fate = "has returned"
        elif token[0] != site.number:
            fate = f"waits in line {sites[token[0]].line} (`{sites[token[0]].source.line(sites[token[0]].line)}`)"
        elif token[1] != self.tokens[waiting][1]:
            fate = "waits there in another iteration of the loop"
        else:
            fate = "waits there with another mask"
        return BarrierError(
            f"{site.source.where(site.line)}: thread {self.threads[waiting]} of block {self.block} waits at "
            f"this {what}, and thread {self.threads[absent]} {fate}; every thread of the {group} must come to "
            f"the same {what}"
        )

    def _exchange(self, warp):
        """Completes what lanes of this warp do together, where all lanes of its mask have come; the lanes that go on."""
        tokens, sites, ready = self.tokens, self.program.sites, []
        groups = {}
        for thread in warp:
            token = tokens[thread]
            if token and not sites[token[0]].function.startswith("syncthreads"):
                groups.setdefault(token[:3], []).append(thread)
        for (number, _, mask), lanes in groups.items():
            wanted = [
                thread
                for thread in warp
                if mask >> (thread - warp[0]) & 1 and tokens[thread] is not None
            ]
            if any(thread not in wanted for thread in lanes):
                thread = next(thread for thread in lanes if thread not in wanted)
                raise ThreadError(
                    f"{sites[number].source.where(sites[number].line)}: thread {self.threads[thread]} of block "
                    f"{self.block} is not in its own mask {mask:#010x}"
                )
            if lanes == wanted:
                self._complete(sites[number], mask, warp[0], lanes)
                if mask == ALL_LANES and sites[number].function == "syncwarp" and self.recorder:
                    self.recorder.end_of_phase()
                ready += lanes
        if groups and not ready:
            (_, _, mask), lanes = next(iter(groups.items()))
            absent = next(
                thread
                for thread in warp
                if mask >> (thread - warp[0]) & 1
                and tokens[thread] is not None
                and thread not in lanes
            )
            raise self._missing(lanes[0], absent, "exchange", "mask")
        return ready

    def _complete(self, site, mask, first, lanes) -> None:
        """What each lane gets from a shuffle, a vote, a match or syncwarp."""
        values = {thread - first: self.tokens[thread][3:] for thread in lanes}
        for thread in lanes:
            self.thread = thread
            self.results[thread] = together(site.function, thread - first, values)

    # --- errors

    def explain(self, error):
        """The error of a thread as a sentence: where, who, what."""
        if isinstance(error, (BarrierError, ThreadError)):
            return error
        where = self._where(error)
        if where is None:
            return error
        who = f"{where}: thread {self.threads[self.thread]} of block {self.block}"
        if isinstance(error, OutsideError):
            name, index, shape = error.args
            shown = ", ".join(
                f"{i[0]}:{i[1]}" if isinstance(i, tuple) else str(arithmetic.wrap(i)) for i in index
            )
            silent = (
                "; Numba counts a negative index from the end, without a word"
                if "-" in shown
                else ""
            )
            return OutOfBoundsError(
                f"{who} reaches {name}[{shown}], outside of its shape {_shape(shape)}{silent}"
            )
        if isinstance(error, UnwrittenReadError):
            return UnwrittenError(
                f"{who} reads {error.args[0]} in {error.args[1]} memory, which nothing has written; is "
                "a barrier or a store missing?"
            )
        if isinstance(error, ZeroDivisionError):
            return ThreadError(f"{who} divides a whole number by zero")
        if isinstance(error, ValueError) and "range()" in str(error):
            return ThreadError(f"{who} counts in steps of zero")
        if isinstance(error, UnboundLocalError):
            return ThreadError(f"{who} uses {_variable(error)} before it has a value")
        if isinstance(error, NoSourceError):
            return ThreadError(
                f"{who} asks lane {error.args[0]} for a value, and that lane takes no part"
            )
        return error

    def _where(self, error):
        """The kernel's line in which the error arose."""
        if isinstance(error, NoSourceError):
            site = self.program.sites[self.tokens[self.thread][0]]
            return site.source.where(site.line)
        traceback, where = error.__traceback__, None
        while traceback:
            if traceback.tb_frame.f_code.co_filename == FILENAME:
                function, line = self.program.lines[traceback.tb_lineno - 1]
                where = function.source.where(line)
            traceback = traceback.tb_next
        return where


class NoSourceError(Exception):
    """A lane asked for the value of a lane that takes no part."""


def together(name, lane, values):
    """What one lane gets when the lanes of a warp act together. values: {lane: (value, source or offset)}."""
    if name == "syncwarp":
        return None
    if name.startswith("shfl"):
        return _shuffled(name, lane, values)
    ballot = sum(1 << other for other, (value, *_) in values.items() if value)
    if name == "ballot_sync":
        return arithmetic.wrap(ballot, 32)
    if name == "any_sync":
        return ballot != 0
    if name == "all_sync":
        return all(value for value, *_ in values.values())
    if name == "eq_sync":
        return len({bool(value) for value, *_ in values.values()}) == 1
    mine = values[lane][0]
    same = arithmetic.wrap(
        sum(1 << other for other, (value, *_) in values.items() if value == mine), 32
    )
    if name == "match_any_sync":
        return same
    everyone = arithmetic.wrap(sum(1 << other for other in values), 32)
    return (same, True) if same == everyone else (0, False)


def _shuffled(name, lane, values):
    value, other = values[lane]
    source = {
        "shfl_sync": other % WARP,
        "shfl_up_sync": lane - other,
        "shfl_down_sync": lane + other,
        "shfl_xor_sync": lane ^ (other % WARP),
    }[name]
    if not 0 <= source < WARP:
        return value  # past the end of the warp a lane keeps its own value
    if source not in values:
        raise NoSourceError(source)
    return values[source][0]


def _shape(lengths) -> str:
    return f"({lengths[0]},)" if len(lengths) == 1 else f"({', '.join(map(str, lengths))})"


def _variable(error):
    """The kernel's name of the variable that an UnboundLocalError is about."""
    return str(error).split("'")[1].partition("_")[2]
