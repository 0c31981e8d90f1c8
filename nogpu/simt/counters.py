"""Counting: from a log of who accessed what, and when, to requests, sectors and wavefronts.

The translated kernel logs each access as two numbers: a key (which thread, in which iterations of
the loops around it) and a place in memory. Nothing is decided while threads run. Now and then the
logs become NumPy arrays, which are counted at once.

A *request* is one warp instruction that accesses memory: the accesses of the threads of one warp
at one place in the source, in the same iterations of all loops around it.

Time is counted in *marks*: the logs' lengths are noted whenever threads have waited for each other,
at each fence, and (in a kernel with fences) before and after each atomic update. An *epoch* of a
block lasts from one barrier to the next, a *phase* of a warp from one syncwarp to the next.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from nogpu.kernels.memory import WARP, sectors
from nogpu.simt import dtypes, traffic
from nogpu.simt.accesses import KINDS, Accesses, select
from nogpu.simt.order import Fence
from nogpu.simt.program import ACCESSES, STRETCHES, Kind, Program, Site
from nogpu.simt.races import Races

THREADS = 1024  # the most threads of a block; a key is path * THREADS + thread
MAX_PATHS = 2_000_000
FLUSH_AT = 1 << 20  # log entries


class EndlessError(Exception):
    """The kernel's loops have more than MAX_PATHS different iterations."""


class Paths(dict[int, "Iterations"]):
    """A number for each vector of iteration numbers.

    paths[7][2] is the path in iteration 2 of a loop that was entered on path 7.
    """

    def __init__(self) -> None:
        self.count = 1

    def __missing__(self, path: int) -> "Iterations":
        self[path] = Iterations(self)
        return self[path]


class Iterations(dict[int, int]):
    """The paths of the iterations of loops that were entered on one path."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths

    def __missing__(self, iteration: int) -> int:
        if self.paths.count >= MAX_PATHS:
            raise EndlessError
        self[iteration] = self.paths.count * THREADS
        self.paths.count += 1
        return self[iteration]


@dataclass
class Counts:
    """What one place in a kernel cost."""

    requests: int = 0  # warp instructions
    threads: int = 0  # thread instructions: the lanes that took part
    sectors: int = 0
    wavefronts: int = 0
    divergent: int = 0  # of a branch: warp instructions whose lanes went both ways


class Unwritten(NamedTuple):
    """A read of an element that nothing has written: the first one, and how many there are."""

    site: Site
    place: int
    block: int
    thread: int
    times: int


class MarkedLog(array):
    """A log of atomic updates, of a kernel with fences: a mark is set at each entry."""

    def __new__(cls, before: bool, mark: Callable[[], None]) -> Self:
        # pyrefly: ignore[bad-return]: array.__new__ makes an object of cls
        return array.__new__(cls, "q")

    def __init__(self, before: bool, mark: Callable[[], None]) -> None:
        """before: whether the mark is set before the entry is made, or after it."""
        self.before, self.mark = before, mark

    def append(self, value: int) -> None:
        if self.before:
            self.mark()
        super().append(value)
        if not self.before:
            self.mark()


class Recorder:
    """The logs of one launch, and what has been counted from them so far."""

    def __init__(self, program: Program, traced_block: int = 0) -> None:
        self.program, self.traced_block = program, traced_block
        self.paths, self.races = Paths(), Races(program)
        blocks, threads = (x * y * z for x, y, z in (program.grid, program.block))
        self.warps = -(-threads // WARP)
        # Of each site
        self.keys = [self._log(site, before=True) for site in program.sites]
        self.places = [self._log(site, before=False) for site in program.sites]
        self.counts = [Counts() for _ in program.sites]
        self.steps = np.zeros(blocks * self.warps, np.int64)  # of each warp
        self.trace: list[Accesses] = []  # of one block, for drawing
        self.unwritten: dict[int, Unwritten] = {}  # by site
        self.epoch = self.phase = 0
        self.time = 0  # how many marks were counted
        self.marks: list[tuple[int, int]] = []  # (epoch, phase) that ends with each mark
        self.ends: list[list[int]] = []  # the logs' lengths at each mark
        self.blocks: list[tuple[int, int]] = []  # (block, number of marks at its end)
        self.logging = [
            site.number for site in program.sites if site.kind in (*STRETCHES, *ACCESSES)
        ]

    def _log(self, site: Site, before: bool) -> array:
        if not self.program.fences or site.kind is not Kind.ATOMIC:
            return array("q")
        return MarkedLog(before, self._mark)

    def namespace(self) -> dict[str, Any]:
        """The names under which the translated kernel finds its logs."""
        logs: dict[str, Any] = {"paths": self.paths}
        for number in self.logging:
            logs |= {f"keys{number}": self.keys[number], f"places{number}": self.places[number]}
        return logs

    # Events, reported by the schedule

    def _mark(self) -> None:
        self.marks.append((self.epoch, self.phase))
        self.ends.append([len(self.keys[number]) for number in self.logging])

    def end_of_phase(self) -> None:
        """The lanes of a warp have waited for each other."""
        self._mark()
        self.phase += 1

    def end_of_epoch(self) -> None:
        """The threads of a block have waited for each other."""
        self.end_of_phase()
        self.epoch += 1

    def fence(self, block: int, thread: int, reaches_all: bool) -> None:
        """A thread has called a fence, for its block alone or for all."""
        time = self.time + len(self.marks)
        self.races.fences.append(Fence(block, thread, self.epoch, time, reaches_all))
        self._mark()

    def note_unwritten(self, site: Site, place: int, block: int, thread: int) -> None:
        """A thread has read an element that nothing has written."""
        first = self.unwritten.get(site.number, Unwritten(site, place, block, thread, 0))
        self.unwritten[site.number] = first._replace(times=first.times + 1)

    def end_of_block(self, block: int) -> None:
        """A block has ended."""
        self.end_of_epoch()
        self.blocks.append((block, len(self.marks)))
        if sum(self.ends[-1]) + len(self.marks) * len(self.logging) > FLUSH_AT:
            self.flush()

    # Counting

    def finish(self) -> None:
        """Count what is left when the launch has ended."""
        self.flush()
        self.races.finish()

    def flush(self) -> None:
        """Count what is in the logs, and empty them."""
        if not self.marks:
            return
        stretches = np.diff(np.array(self.ends), axis=0, prepend=0)
        last = np.array([end for _, end in self.blocks])
        block = np.repeat([block for block, _ in self.blocks], np.diff(last, prepend=0))
        epoch, phase = np.array(self.marks).T
        time = self.time + np.arange(len(self.marks))
        runs: dict[int, np.ndarray] = {}
        tables: list[Accesses] = []
        for number, stretch in zip(self.logging, stretches.T, strict=True):
            site = self.program.sites[number]
            keys = _emptied(self.keys[number])
            blocks = np.repeat(block, stretch)
            instructions = blocks * (self.paths.count * WARP) + (keys >> 5)
            if site.kind in KINDS:
                table = Accesses(
                    place=_emptied(self.places[number]),
                    thread=keys % THREADS,
                    block=blocks,
                    epoch=np.repeat(epoch, stretch),
                    time=np.repeat(time, stretch),
                    kind=np.full(len(keys), KINDS[site.kind]),
                    site=np.full(len(keys), number),
                    key=keys,
                )
                self._count_accesses(site, instructions, table)
                tables.append(table)
            else:
                runs[number] = self._count_run(site, instructions)
        self._count_divergence(runs)
        self.races.add(tables, self.time, phase)
        self.time += len(self.marks)
        self.marks, self.ends, self.blocks = [], [], []

    def _count_accesses(self, site: Site, instructions: np.ndarray, table: Accesses) -> None:
        counts, size = self.counts[site.number], dtypes.itemsize(site.dtype)
        if not len(instructions):
            return
        counts.threads += len(instructions)
        if site.space == "global":
            requests, touched = sectors(instructions, table.place, size)
            counts.sectors += touched
        else:
            lanes = table.key % WARP
            requests, wavefronts = traffic.wavefronts(instructions, lanes, table.place, size)
            counts.wavefronts += wavefronts
        counts.requests += requests
        traced = table.block == self.traced_block
        if site.space != "constant" and traced.any():
            self.trace.append(select(table, traced))

    def _count_run(self, site: Site, instructions: np.ndarray) -> np.ndarray:
        """Count a stretch of instructions; return which warp instructions it was."""
        unique = np.unique(instructions)
        counts = self.counts[site.number]
        counts.requests += len(unique)
        counts.threads += len(instructions)
        warp = unique // (self.paths.count * WARP) * self.warps + unique % WARP
        np.add.at(self.steps, warp, site.steps)
        return unique

    def _count_divergence(self, runs: dict[int, np.ndarray]) -> None:
        for number, stay in runs.items():
            partner = self.program.sites[number].partner
            if partner is not None:
                both = np.intersect1d(stay, runs[partner.number], assume_unique=True)
                self.counts[number].divergent += len(both)


def _emptied(log: array) -> np.ndarray:
    """The numbers in a log, which is empty afterwards."""
    numbers = np.array(log, np.int64)
    del log[:]
    return numbers
