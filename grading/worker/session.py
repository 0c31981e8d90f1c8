"""A student's cells in workers: executed in order, called by name; a dead worker is replaced."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from common.checks import static_names as uses
from grading.worker.allowance import Allowance
from grading.worker.client import Request, Serve, WorkerClient
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.repeatable import check_globals
from grading.worker.transport import Admit

CELL_S = 30.0
SLOW_S = 5.0  # a cell that took longer is not executed again: the others need the time
CELLS_S = 60.0  # of all cells of a notebook together, however often they are executed
NOTEBOOK_S = 300.0  # of all calls and cells of a notebook together

Cells = Sequence[tuple[str, str | None]]
Fact = tuple[str, frozenset[str], frozenset[str]]  # (function, names, those of them that it uses)


@functools.lru_cache(maxsize=1000)  # a check calls a driver many times
def _drivers_for(cells: Cells, name: str) -> tuple[tuple[str, str], ...]:
    """See Session._drivers."""
    drivers = [(key, text) for key, text in cells if text is not None and key.startswith("driver ")]
    needed, wanted = set(), {name}
    for _ in drivers:
        for key, text in drivers:
            uses = check_globals(text)
            if key not in needed and wanted & uses.written:
                needed.add(key)
                wanted |= uses.read
    return tuple((text, key) for key, text in drivers if key in needed)


class Session:
    """A student's cells in workers: a worker that ends is replaced at the next call.

    cells: our setup and drivers and the student's holes, in the lab's order, as (name, text); a
    text of None is left out.
    """

    def __init__(self, fork_server: ForkServer, cells: Cells) -> None:
        self.fork_server = fork_server
        self.cells = cells
        self.reached = len(cells)  # how many of the cells are executed
        self._executed = 0  # how many of them the worker has executed
        self.forks = 0  # how many workers were started
        self.facts: list[Fact] = []  # that checks have asked for
        self.problems: dict[str, Exception | WorkerEnded] = {}  # by the name of the cell
        self.slow: dict[str, float] = {}  # cells that took more than SLOW_S, and how long
        self.worker: WorkerClient | None = None
        self.ranks: list[Session] = []  # of the same cells, one per rank
        self.notebook = Allowance(NOTEBOOK_S)
        self.cells_together = Allowance(CELLS_S, within=self.notebook)
        self.check: Allowance | None = None  # of the check that runs now
        self._counting_worker: WorkerClient | None = None

    def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        serve: Serve | None = None,
        in_place: Sequence[Any] = (),
    ) -> Any:
        """Calls a function of the student's, or a driver.

        in_place: the arguments that it may change here. Of all others it gets copies.
        """
        pairs, ours = tuple((kwargs or {}).items()), self._drivers(name)
        return self._request("call", name, tuple(args), pairs, ours, serve=serve, in_place=in_place)

    def call_as_rank(self, name: str, args: Sequence[Any], serve: Serve, admit: Admit) -> Any:
        """Calls a function as a rank. args: what ranks.remote.call takes after its question.

        admit: is asked before anything that the rank sends is read.
        """
        drivers = self._drivers(name)
        return self._request("rank", name, tuple(args), drivers, serve=serve, admit=admit)

    def fetch(self, name: str) -> Any:
        """The value that a cell assigned."""
        return self._request("fetch", name, self._drivers(name))

    def execute(self, source: str, name: str) -> None:
        """Executes one more cell."""
        self._request("execute", source, name)

    def ready_problem(self, name: str) -> Exception | WorkerEnded | None:
        """What the cell of this name raised when it was executed; None if it is there."""
        self.running_worker()
        return self.problems.get(name)

    def allow(self, seconds: float) -> None:
        """Sets how long the calls from now on may take together."""
        self.settle()
        self.check = Allowance(seconds, within=self.notebook)

    def settle(self) -> None:
        """Charges what the workers have taken up to now, but for SHORT_S."""
        for worker in (self.worker, self._counting_worker):
            if worker:
                worker.meter.settle()

    def running_worker(self) -> WorkerClient:
        """The worker that has executed the reached cells: a fresh one if the last one ended."""
        if self.worker and self.worker.pid is not None and self.worker.wire.transport.has_unread():
            self.worker.end()  # what it sent unasked would be taken for its next answer
        while True:
            if self.worker is None or self.worker.pid is None:
                self.worker, self._executed = WorkerClient(self.fork_server), 0
                self.forks += 1
            # A cell that ends its worker is not executed again.
            with contextlib.suppress(WorkerEnded):
                return self._caught_up(self.worker)

    def names_used(self, name: str, of: frozenset[str]) -> frozenset[str]:
        """Those of these names that a function uses, as the text of the cells says."""
        cells = tuple(source for _, source in self.cells[: self.reached] if source)
        found = frozenset(uses.chosen(uses.names_used(cells, name), of))
        self.facts.append((name, of, found))
        return found

    def begin_afresh(self) -> None:
        """Ends the worker: the next call goes to one that has seen none.

        The answer is not to blame for it: it counts as no restart, and slow cells run once more.
        """
        if self.worker and self.worker.end() is not None:
            self.forks -= 1
            self.slow.clear()

    def counting_worker(self) -> WorkerClient:
        """The worker that counts what kernels cost. It executes no cell."""
        if self._counting_worker is None or self._counting_worker.pid is None:
            self._counting_worker = WorkerClient(self.fork_server)
        return self._counting_worker

    def asked_only(self, worker: WorkerClient) -> bool:
        """Whether this is the worker that runs, and no other one was started to count."""
        return self.worker is worker and self._counting_worker is None and not self.ranks

    def close(self) -> None:
        for worker in (self.worker, self._counting_worker):
            if worker:
                worker.end()
        for session in self.ranks:
            session.close()

    def _drivers(self, name: str) -> tuple[tuple[str, str], ...]:
        """(text, name) of the drivers that define this name and what it uses; none for a hole."""
        return _drivers_for(tuple(self.cells[: self.reached]), name)

    def _request(
        self,
        kind: Request,
        *request: Any,
        serve: Serve | None = None,
        in_place: Sequence[Any] = (),
        admit: Admit | None = None,
    ) -> Any:
        worker = self.running_worker()
        if self.cells_together.left_s <= 0:
            reason = f"was not called: the cells of this notebook took {CELLS_S:.0f} s together"
            raise WorkerEnded("timeout", reason, is_whole=True)
        if self.notebook.left_s <= 0:
            reason = f"was not called: this notebook took its {NOTEBOOK_S / 60:.0f} minutes"
            raise WorkerEnded("timeout", reason, is_whole=True)
        return worker.request(
            kind, *request, allowance=self.check, serve=serve, in_place=in_place, admit=admit
        )

    def _may_execute(self, name: str) -> bool:
        """Whether there is time for a cell that has not ended a worker."""
        if name in self.slow and name not in self.problems:
            reason = f"took {self.slow[name]:.0f} s, and is not executed again in a new process"
            self.problems[name] = WorkerEnded("timeout", reason, is_whole=True)
        return self.cells_together.left_s > 0 and not isinstance(
            self.problems.get(name), WorkerEnded
        )

    def _caught_up(self, worker: WorkerClient) -> WorkerClient:
        """The worker, after the reached cells; WorkerEnded if one of them ends it."""
        while self._executed < self.reached:
            name, text = self.cells[self._executed]
            self._executed += 1
            if text is None or not self._may_execute(name):
                continue
            together = self.cells_together
            allowance = Allowance(min(CELL_S, together.left_s), within=together)
            try:
                worker.request("execute", text, name, allowance=allowance)
            except (Exception, WorkerEnded) as problem:
                self.problems[name] = problem
                if isinstance(problem, WorkerEnded):
                    raise
            finally:
                worker.meter.settle()
                if allowance.taken_s > SLOW_S:
                    self.slow[name] = allowance.taken_s
        return worker
