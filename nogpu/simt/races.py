"""Races: two threads access one word, one of them writes, and nothing orders them."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from nogpu.simt.accesses import ATOMIC, READ, WRITE, Accesses, joined, narrowed, select
from nogpu.simt.lanes import WARP
from nogpu.simt.order import Fence, HandOvers
from nogpu.simt.program import Program

MAX_EXAMPLES = 5000  # words in conflict that are looked at one by one
MAX_ACCESSES = 500  # of a word, if there are fences: each is compared with each

Rows = tuple[np.ndarray, np.ndarray]  # of the first and the second access of each conflict


class Races:
    """The races of one launch."""

    def __init__(self, program: Program) -> None:
        self.sites = program.sites
        self.several_blocks = program.grid != (1, 1, 1)
        self.fences: list[Fence] = []
        # (between blocks, pair of sites): an example's two accesses, and the words' places
        self.examples: dict[tuple[bool, int], tuple[Accesses, set[int]]] = {}
        self._in_global_memory: list[Accesses] = []

    def add(self, tables: Sequence[Accesses], first_time: int, phases: np.ndarray) -> None:
        """Find the races inside blocks, of blocks that have ended.

        phases: the phase of each time, from first_time on.
        """
        fences = [fence for fence in self.fences if fence.time >= first_time]
        hand_overs = self._hand_overs(fences, tables)
        for space in ("shared", "global"):
            chosen = [
                table
                for table in tables
                if len(table.site) and self.sites[table.site[0]].space == space
            ]
            if chosen:
                table = joined(chosen)
                self._in_blocks(space, table, first_time, phases, hand_overs)
                if space == "global" and self.several_blocks:
                    self._in_global_memory.append(narrowed(table))

    def _in_blocks(
        self,
        space: str,
        table: Accesses,
        first_time: int,
        phases: np.ndarray,
        hand_overs: HandOvers | None,
    ) -> None:
        """Two threads of a block, with no barrier between them.

        They are of two warps, or of one warp without a syncwarp between them.
        """
        written = np.zeros(1 + int(table.epoch.max()), bool)
        written[table.epoch[table.kind != READ]] = True
        table = select(table, written[table.epoch])
        if space == "global":
            table = select(table, _is_written(table))
        warp, phase = table.thread // WARP, phases[table.time - first_time]
        same_word = (table.epoch, table.place)
        self._keep(table, conflicts(table, same_word, warp, hand_overs))
        same_phase = (*same_word, warp, phase)
        self._keep(table, conflicts(table, same_phase, table.thread, hand_overs))

    def finish(self) -> None:
        """Find the races of threads of different blocks, at any time."""
        if not self._in_global_memory:
            return
        table = joined(self._in_global_memory)
        table = select(table, _is_written(table))
        fences = [fence for fence in self.fences if fence.reaches_all]
        hand_overs = self._hand_overs(fences, [table])
        pairs = conflicts(table, (table.place,), table.block, hand_overs)
        self._keep(table, pairs, between_blocks=True)

    def _hand_overs(self, fences: list[Fence], tables: Sequence[Accesses]) -> HandOvers | None:
        """What these fences and the atomic ones of these accesses hand over."""
        if not fences or not tables:
            return None
        updates = joined([select(table, table.kind == ATOMIC) for table in tables])
        shared = np.array([site.space == "shared" for site in self.sites])[updates.site]
        words = 2 * updates.place.astype(np.int64) + shared
        return HandOvers(fences, updates, words) if len(words) else None

    def _keep(self, table: Accesses, conflicting: Rows, between_blocks: bool = False) -> None:
        """Keep one example for each pair of lines."""
        first, second = conflicting
        pairs = table.site[first].astype(np.int64) * len(self.sites) + table.site[second]
        for pair, example in zip(*np.unique(pairs, return_index=True), strict=True):
            rows = select(table, [first[example], second[example]])
            _, words = self.examples.setdefault((between_blocks, int(pair)), (rows, set()))
            words.update(table.place[first[pairs == pair]].tolist())


def _is_written(table: Accesses) -> np.ndarray:
    """For each access, whether any of them writes the same place."""
    written = np.zeros(1 + int(table.place.max(initial=0)), bool)
    written[table.place[table.kind != READ]] = True
    return written[table.place]


def conflicts(
    table: Accesses,
    word: Sequence[np.ndarray],
    actor: np.ndarray,
    hand_overs: HandOvers | None = None,
) -> Rows:
    """For each word (of the first 5,000) with a conflict of two actors, one access of each.

    In conflict: one of the two writes, or one is atomic and the other is not, and the first is not
    handed over to the second. word: the columns that are equal for accesses of the same word at
    the same time. actor: the column that must differ.
    """
    first: list[int] = []
    second: list[int] = []
    if len(table.place):
        order = np.lexsort((actor, *word))
        kind, actor = table.kind[order], actor[order]
        for low, high in _suspects([column[order] for column in word], actor, kind):
            rows = np.arange(low, high)
            ordered = None
            if hand_overs:
                step = np.linspace(0, len(rows) - 1, min(len(rows), MAX_ACCESSES))
                rows = rows[step.astype(int)]
                ordered = hand_overs.among(select(table, order[rows]))
            pair = _pair(kind[rows], actor[rows], ordered)
            if pair:
                first.append(order[rows[pair[0]]])
                second.append(order[rows[pair[1]]])
            if len(first) == MAX_EXAMPLES:
                break
    return np.array(first, np.int64), np.array(second, np.int64)


def _suspects(
    word: Sequence[np.ndarray], actor: np.ndarray, kind: np.ndarray
) -> Iterator[tuple[int, int]]:
    """(first row, row after the last) of each word that several actors access, and one changes.

    The rows are sorted by word, and of one word by actor.
    """
    new = np.ones(len(actor), bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in word])
    start = np.flatnonzero(new)
    end = np.append(start[1:], len(actor))
    read, write, atomic = (
        np.add.reduceat(kind == which, start) > 0 for which in (READ, WRITE, ATOMIC)
    )
    suspect = (actor[start] != actor[end - 1]) & (write | (read & atomic))
    return zip(start[suspect], end[suspect], strict=True)


def _pair(
    kind: np.ndarray, actor: np.ndarray, ordered: Callable[[int], np.ndarray] | None
) -> tuple[int, int] | None:
    """Two accesses in conflict, by different actors: a write and another, or an atomic and a read.

    ordered: for one access, which others are ordered with it.
    """
    for strong in (WRITE, ATOMIC):
        for one in np.flatnonzero(kind == strong).tolist():
            others = (actor != actor[one]) & ((kind != ATOMIC) | (strong == WRITE))
            if ordered and others.any():
                others &= ~ordered(one)
            if others.any():
                reads = others & (kind == READ)
                return one, int(np.argmax(reads if reads.any() else others))
    return None
