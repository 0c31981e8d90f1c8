"""Counting: from a log of who touched what, and when, to requests, sectors, wavefronts, races.

The translated kernel logs each access as two numbers: a key (which thread, in which iterations of the loops around it) and
a place in memory. Nothing is decided while threads run; now and then the logs become NumPy arrays and are grouped at once.

A *request* is one warp instruction that accesses memory: the accesses of the threads of one warp at one place in the source,
in the same iterations of all loops around it. A *sector* is 32 bytes, the least that global memory delivers; a request costs
the distinct sectors that it touches. Shared memory has 32 banks, each of which delivers one word of 4 bytes at a time; a
request takes as many *wavefronts* as the most words that any one bank must deliver. Of 8-byte elements, threads 0 to 15 and
16 to 31 are served one after the other, unless they form pairs that want the same element: see `halves`.
"""

from array import array
from collections import namedtuple
from dataclasses import dataclass

import numpy as np

from common.kernels.errors import ThreadError
from common.kernels.memory import SECTOR_BYTES
from common.simt import dtypes
from common.simt.program import STRETCHES, Kind
from common.simt.order import Fence, HandOvers

WORD_BYTES, BANKS, WARP = 4, 32, 32
THREADS = 1024  # the most that a block has; a key is path * THREADS + thread
MAX_PATHS = 2_000_000
FLUSH_AT = 1 << 20  # log entries
MAX_EXAMPLES = 5000  # words in conflict that are looked at one by one
MAX_ACCESSES = 500  # of a word, where fences are there, which are compared each with each
READ, WRITE, ATOMIC = 0, 1, 2
KINDS = {Kind.LOAD: READ, Kind.STORE: WRITE, Kind.ATOMIC: ATOMIC}


class Paths(dict):
    """A number for each vector of iteration numbers: paths[7][2] is iteration 2 of a loop entered on path 7."""

    def __init__(self) -> None:
        self.count = 1

    def __missing__(self, path):
        self[path] = Iterations(self)
        return self[path]


class Iterations(dict):
    """The paths of the iterations of loops that were entered on one path."""

    def __init__(self, paths) -> None:
        self.paths = paths

    def __missing__(self, iteration):
        if self.paths.count >= MAX_PATHS:
            raise ThreadError(
                f"more than {MAX_PATHS:,} different iterations of loops: does a loop of this kernel never end?"
            )
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


Accesses = namedtuple(
    "Accesses", "place thread block epoch time kind site key"
)  # equally long arrays


class Marked(array):
    """A log of atomic updates, of a kernel with fences: it calls `mark` at each entry, before or after it is made."""

    def append(self, number) -> None:
        if self.before:
            self.mark()
        super().append(number)
        if not self.before:
            self.mark()


class Recorder:
    """The logs of one launch, and what has been counted from them so far."""

    def __init__(self, program, traced_block=0) -> None:
        self.program, self.paths, self.traced_block = program, Paths(), traced_block
        self.warps = -(-(program.block[0] * program.block[1] * program.block[2]) // WARP)
        self.keys, self.places = (
            [self._log(site, before) for site in program.sites] for before in (True, False)
        )
        self.counts = [Counts() for _ in program.sites]
        self.steps = np.zeros(
            program.grid[0] * program.grid[1] * program.grid[2] * self.warps, np.int64
        )
        self.races = {}  # (between blocks, pair of sites): (an example's two accesses, the words' places)
        self.global_accesses, self.trace, self.unwritten = [], [], {}
        self.epoch = self.phase = self.time = 0  # time: how many marks were counted
        self.marks, self.ends = (
            [],
            [],
        )  # (epoch, phase) of each stretch between two marks; how long each log was at its end
        self.fences = []
        self.blocks = []  # (block, number of marks at its end)
        self.logging = [site.number for site in program.sites if site.kind in (*STRETCHES, *KINDS)]

    def _log(self, site, before):
        if not self.program.fences or site.kind is not Kind.ATOMIC:
            return array("q")
        log = Marked("q")
        log.before, log.mark = before, self._mark
        return log

    def namespace(self):
        """The names under which the translated kernel finds its logs."""
        logs = {"paths": self.paths}
        for number in self.logging:
            logs |= {f"keys{number}": self.keys[number], f"places{number}": self.places[number]}
        return logs

    # --- told by the schedule

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

    def fence(self, block, thread, reaches_all) -> None:
        """A thread has called a fence; for its block alone, or reaches_all."""
        self.fences.append(
            Fence(block, thread, self.epoch, self.time + len(self.marks), reaches_all)
        )
        self._mark()

    def end_of_block(self, block) -> None:
        """A block has ended."""
        self.end_of_epoch()
        self.blocks.append((block, len(self.marks)))
        if sum(self.ends[-1]) + len(self.marks) * len(self.logging) > FLUSH_AT:
            self.flush()

    # --- counting

    def flush(self) -> None:
        """Counts what is in the logs, and empties them."""
        if not self.marks:
            return
        ends = np.array(self.ends)
        stretches = np.diff(ends, axis=0, prepend=0)
        until = np.array([end for _, end in self.blocks])
        block_of_mark = np.repeat([block for block, _ in self.blocks], np.diff(until, prepend=0))
        epoch_of_mark, phase_of_mark = np.array(self.marks).T
        time_of_mark = self.time + np.arange(len(self.marks))
        branches, accesses = {}, []
        for column, number in enumerate(self.logging):
            site, stretch = self.program.sites[number], stretches[:, column]
            keys = np.array(self.keys[number], np.int64)
            del self.keys[number][:]
            instructions = np.repeat(block_of_mark, stretch) * (self.paths.count * WARP) + (
                keys >> 5
            )
            if site.kind in KINDS:
                places = np.array(self.places[number], np.int64)
                del self.places[number][:]
                self._count_accesses(site, instructions, keys % WARP, places)
                accesses.append(
                    Accesses(
                        places,
                        keys % THREADS,
                        *(
                            np.repeat(of_mark, stretch)
                            for of_mark in (block_of_mark, epoch_of_mark, time_of_mark)
                        ),
                        np.full(len(keys), KINDS[site.kind]),
                        np.full(len(keys), number),
                        keys,
                    )
                )
            else:
                branches[number] = self._count_run(site, instructions, len(keys))
        self._count_divergence(branches)
        self._find_races(accesses, phase_of_mark)
        self.time += len(self.marks)
        self.marks, self.ends, self.blocks = [], [], []

    def _count_accesses(self, site, instructions, lanes, places) -> None:
        counts, size = self.counts[site.number], dtypes.itemsize(site.dtype)
        counts.threads += len(places)
        if not len(places):
            return
        if site.space == "global":
            groups, _ = distinct(instructions, places * size // SECTOR_BYTES)
            counts.sectors += len(groups)
            counts.requests += changes(groups)
        else:
            groups, words = distinct(
                halves(instructions, lanes, places, size), places * size // WORD_BYTES
            )
            counts.requests += changes(groups // 2)
            if size > WORD_BYTES:  # an element of 8 bytes is two words, in neighbouring banks
                groups, words = np.repeat(groups, 2), np.repeat(words, 2)
                words[1::2] += 1
            counts.wavefronts += wavefronts(groups, words)

    def _count_run(self, site, instructions, threads):
        """Counts a stretch of instructions; which warp instructions it was."""
        unique = np.unique(instructions)
        counts = self.counts[site.number]
        counts.requests += len(unique)
        counts.threads += threads
        warp = unique // (self.paths.count * WARP) * self.warps + unique % WARP
        np.add.at(self.steps, warp, site.steps)
        return unique

    def _count_divergence(self, branches) -> None:
        for number, stay in branches.items():
            partner = self.program.sites[number].partner
            if partner is not None:
                both = np.intersect1d(stay, branches[partner.number], assume_unique=True)
                self.counts[number].divergent += len(both)

    # --- races

    def _find_races(self, accesses, phase_of_mark) -> None:
        hand_overs = self._hand_overs(
            [fence for fence in self.fences if fence.time >= self.time], accesses
        )
        for space in ("shared", "global"):
            chosen = [
                each
                for each in accesses
                if len(each.site) and self.program.sites[each.site[0]].space == space
            ]
            if not chosen:
                continue
            table = joined(chosen)
            self._keep_trace(table)
            self._races_in_blocks(space, table, phase_of_mark, hand_overs)
            if space == "global" and len(self.steps) > self.warps:
                self.global_accesses.append(Accesses(*(_narrow(column) for column in table)))

    def _races_in_blocks(self, space, table, phase_of_mark, hand_overs) -> None:
        """Two threads of a block, with no barrier between them: of two warps, or of one without a syncwarp between."""
        written = np.zeros(self.epoch + 1, bool)
        written[table.epoch[table.kind != READ]] = True
        table = select(table, written[table.epoch])
        if space == "global":
            table = self._only_written(table)
        warp, phase = table.thread // WARP, phase_of_mark[table.time - self.time]
        same_word = (table.epoch, table.place)
        self._add_races(table, conflicts(table, same_word, warp, hand_overs))
        self._add_races(
            table, conflicts(table, (*same_word, warp, phase), table.thread, hand_overs)
        )

    def _hand_overs(self, fences, tables):
        """What these fences and the atomic ones of these accesses hand over; None where there are none."""
        if not fences or not tables:
            return None
        updates = joined([select(table, table.kind == ATOMIC) for table in tables])
        shared = np.array([site.space == "shared" for site in self.program.sites])[updates.site]
        return (
            HandOvers(fences, updates, 2 * updates.place.astype(np.int64) + shared)
            if len(updates.place)
            else None
        )

    def _only_written(self, table):
        written = np.zeros(1 + int(table.place.max(initial=0)), bool)
        written[table.place[table.kind != READ]] = True
        return select(table, written[table.place])

    def races_between_blocks(self) -> None:
        """Two threads of different blocks, at any time."""
        if not self.global_accesses or len(self.steps) == self.warps:
            return
        table = self._only_written(joined(self.global_accesses))
        hand_overs = self._hand_overs(
            [fence for fence in self.fences if fence.reaches_all], [table]
        )
        self._add_races(
            table, conflicts(table, (table.place,), table.block, hand_overs), between_blocks=True
        )

    def _add_races(self, table, found, between_blocks=False) -> None:
        """Keeps one example for each pair of lines among the conflicts found: (first, second) row numbers."""
        first, second = found
        pairs = table.site[first].astype(np.int64) * len(self.keys) + table.site[second]
        for pair, example in zip(*np.unique(pairs, return_index=True), strict=True):
            rows = select(table, [first[example], second[example]])
            _, words = self.races.setdefault((between_blocks, int(pair)), (rows, set()))
            words.update(table.place[first[pairs == pair]].tolist())

    def _keep_trace(self, table) -> None:
        """Keeps the accesses of one block, for drawing."""
        mine = table.block == self.traced_block
        if mine.any():
            self.trace.append(select(table, mine))


def _narrow(column):
    """The same numbers in as few bytes as they need: these are kept until the launch ends."""
    return column.astype(np.min_scalar_type(int(column.max(initial=0))))


def select(table, rows):
    return Accesses(*(column[rows] for column in table))


def joined(tables):
    return Accesses(*map(np.concatenate, zip(*tables, strict=True)))


def distinct(groups, units):
    """The distinct pairs (group, unit), sorted by group."""
    order = np.lexsort((units, groups))
    groups, units = groups[order], units[order]
    new = np.ones(len(groups), bool)
    new[1:] = (groups[1:] != groups[:-1]) | (units[1:] != units[:-1])
    return groups[new], units[new]


def changes(groups):
    """How many different groups there are in a sorted array."""
    return int(np.count_nonzero(groups[1:] != groups[:-1])) + 1 if len(groups) else 0


def halves(instructions, lanes, places, size):
    """For each access to shared memory the group that is served together: 2 * instruction, or 1 more for the second half.

    A warp instruction on 8-byte elements is served by half-warps; but as a whole if every thread i that takes part and
    thread i ^ 1, or every one and thread i ^ 2, want the same element or only one of the two takes part. (As an H200 counts:
    benchmarks/simt_hardware.md.)
    """
    if size <= WORD_BYTES:
        return 2 * instructions
    unpaired = np.ones(len(lanes), bool)
    for bit in (1, 2):
        pairs, _ = distinct(instructions * WARP + (lanes & ~bit), places)
        differing = pairs[1:][pairs[1:] == pairs[:-1]]
        unpaired &= np.isin(instructions, differing // WARP)
    return 2 * instructions + (unpaired & (lanes >= WARP // 2))


def wavefronts(groups, words):
    """Sum over groups (sorted) of the most distinct words that one bank must deliver; words are distinct in a group."""
    number = np.cumsum(np.concatenate(([0], groups[1:] != groups[:-1])))
    load = np.bincount(number * BANKS + words % BANKS, minlength=(number[-1] + 1) * BANKS)
    return int(load.reshape(-1, BANKS).max(1).sum())


def conflicts(table, word, actor, hand_overs=None):
    """(rows, rows): for each word (of the first 5,000) that two actors touched in conflict, one access of each of two.

    In conflict: one of the two writes, or one is atomic and the other is not, and the first is not handed over to the second.
    word: the columns that make an access one of the same word at the same time; actor: the column that must differ.
    """
    nothing = np.zeros(0, np.int64)
    if not len(table.place):
        return nothing, nothing
    order = np.lexsort((actor, *word))
    word, actor, kind = [column[order] for column in word], actor[order], table.kind[order]
    new = np.ones(len(order), bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in word])
    start = np.flatnonzero(new)
    end = np.append(start[1:], len(order))
    has = [np.add.reduceat(kind == which, start) > 0 for which in (READ, WRITE, ATOMIC)]
    several = actor[start] != actor[end - 1]
    found = several & (has[WRITE] | (has[READ] & has[ATOMIC]))
    first, second = [], []
    for low, high in zip(start[found], end[found], strict=True):
        rows = np.arange(low, high)
        if hand_overs:
            rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MAX_ACCESSES)).astype(int)]
        pair = _pair(
            kind[rows], actor[rows], hand_overs and hand_overs.among(select(table, order[rows]))
        )
        if pair:
            first.append(order[rows[pair[0]]])
            second.append(order[rows[pair[1]]])
        if len(first) == MAX_EXAMPLES:
            break
    return np.array(first, np.int64), np.array(second, np.int64)


def _pair(kind, actor, ordered=None):
    """Places of two accesses in conflict, by different actors: a write and another one, or an atomic and a read; or None."""
    for strong in (WRITE, ATOMIC):
        for one in np.flatnonzero(kind == strong):
            others = (actor != actor[one]) & ((kind != ATOMIC) | (strong == WRITE))
            if ordered and others.any():
                others &= ~ordered(one)
            if others.any():
                reads = others & (kind == READ)
                return one, np.argmax(reads if reads.any() else others)
    return None
