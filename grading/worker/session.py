"""A student's cells in workers: executed in order, called by name, replaced where they end."""

import contextlib
import time

from grading.worker.errors import WorkerEnded

CELL_S = 30.0


class Session:
    """A student's cells in workers, one after another: a worker that ends is replaced at the next call.

    cells: our setup and drivers and the student's holes, in the lab's order, as (name, text); a text of None is left out.
    """

    def __init__(self, fork_server, cells) -> None:
        self.fork_server, self.cells = fork_server, cells
        self.problems = {}  # name of the cell: the exception it raised, or the WorkerEnded it caused
        self.worker = None
        self.kernels = None  # a worker for kernels' texts, which executes no cell
        self.ranks = []  # sessions of the same cells, one a rank
        self.deadline = None  # of the check that runs now
        self.answered = None  # when its last call was, or when it began

    def call(self, name, args=(), kwargs=None, serve=None):
        """Calls a function of the student's, or a driver."""
        return self._request("call", name, tuple(args), tuple((kwargs or {}).items()), serve=serve)

    def fetch(self, name):
        """The value that a cell assigned."""
        return self._request("fetch", name)

    def execute(self, source, name) -> None:
        """Executes one more cell."""
        self._request("execute", source, name)

    def ready_problem(self, name):
        """What the cell of this name raised when it was executed; None if it is there."""
        self._start_if_needed()
        return self.problems.get(name)

    def allow(self, seconds) -> None:
        """Sets how long the calls from now on may take together."""
        self.answered = time.monotonic()
        self.deadline = self.answered + seconds

    @contextlib.contextmanager
    def waiting(self):
        """Gives the time by which what is asked now must be answered: what passed since the last answer was the check's own."""
        if self.deadline is not None:
            self.deadline += time.monotonic() - self.answered
        try:
            yield self.deadline
        finally:
            self.answered = time.monotonic()

    def apart(self):
        """The worker that runs kernels apart from the student's Python."""
        if self.kernels is None or self.kernels.pid is None:
            self.kernels = self.fork_server.fork()
        return self.kernels

    def close(self) -> None:
        for worker in (self.worker, self.kernels):
            if worker:
                worker.end()
        for session in self.ranks:
            session.close()

    def _request(self, *request, serve=None):
        self._start_if_needed()
        with self.waiting() as deadline:
            return self.worker.request(*request, deadline=deadline, serve=serve)

    def _start_if_needed(self) -> None:
        if (
            self.worker is not None
            and self.worker.pid is not None
            and self.worker.wire.has_unread()
        ):
            self.worker.end()  # what it says unasked would stand for its next answer
        if self.worker is None or self.worker.pid is None:
            self._start()

    def _start(self):
        """A fresh worker with all cells executed; a cell that ends its worker is left out of the next one."""
        self.worker = self.fork_server.fork()
        for name, text in self.cells:
            ended = isinstance(self.problems.get(name), WorkerEnded)
            if text is None or ended:
                continue
            try:
                self.worker.request("execute", text, name, deadline=time.monotonic() + CELL_S)
            except WorkerEnded as problem:
                self.problems[name] = problem
                return self._start()
            except Exception as problem:
                self.problems[name] = problem
