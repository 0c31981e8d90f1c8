"""The grader's side of the worker: starting, calling and ending it; the names that a check sees."""

import builtins
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from common.checks import show
from grading import apart, holes
from grading.lab import ROOT
from grading.wire import Table, Wire, WireClosed, WireError, WireTimeout

WARM_UP_S = 120
CELL_S = 30.0


class WorkerEnded(BaseException):
    """The worker is gone or was ended; no check may catch this as an Exception. status says how: "timeout" or "died"."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Nursery:
    """The warm process, which starts with the first worker, and the workers forked from it.

    also: names of modules to import there besides what labs import.
    """

    def __init__(self, *also):
        self.also = also
        self.process, self.control, self.lock = None, None, threading.Lock()

    def _start(self):
        ours, theirs = socket.socketpair()
        environment = dict(
            os.environ,
            PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            PYTHONSAFEPATH="1",
            OMP_NUM_THREADS="1",  # the arrays are small, and on a busy machine threads mostly wait for each other
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grading.worker", str(theirs.fileno()), *self.also],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
        )
        theirs.close()
        ours.settimeout(WARM_UP_S)
        self.control = ours

    def fork(self):
        """A fresh worker that has executed nothing."""
        ours, theirs = socket.socketpair()
        with self.lock, theirs:
            if self.process is None:
                self._start()
            socket.send_fds(self.control, [b"fork"], [theirs.fileno()])
            pid = self._answer()
        return Worker(self, pid, Wire(ours))

    def end(self, pid):
        """Ends a worker; returns its exit code, or minus the signal that ended it."""
        with self.lock:
            self.control.sendall(f"end {pid}".encode())
            return self._answer()

    def close(self):
        """Ends the warm process; its workers end with it."""
        if self.process:
            self.control.close()
            self.process.kill()
            self.process.wait()

    def _answer(self):
        text = b""
        while not text.endswith(b"\n"):
            if not (part := self.control.recv(32)):
                raise RuntimeError("the grader's warm process ended; its reason stands above")
            text += part
        return int(text)


class Worker:
    """A process that holds cells: execute them, call what they define."""

    def __init__(self, nursery, pid, wire):
        self.nursery, self.pid, self.wire = nursery, pid, wire

    def request(self, kind, *request, deadline, serve=None):
        """What the worker answers; it raises what the worker raised, as a builtin with the attribute `remote`.

        kind: "execute" (source, name), "call" (name, args, kwargs) or "fetch" (name).
        serve: a function that answers what the worker asks in the middle of it, serve(what, *args).
        """
        table = Table()
        frame = table.pack(request)  # an argument that can't cross is the check's mistake, and raises here
        try:
            self.wire.send(kind, frame, deadline)
            answer, frame = self.wire.receive(deadline)
            while answer == "ask":
                self.wire.send(*_served(serve, *Table().unpack(*frame)), deadline)
                answer, frame = self.wire.receive(deadline)
            value = table.unpack(*frame)
            error = _error(value) if answer == "error" else None
        except WireTimeout:
            self.end()
            raise WorkerEnded("timeout", "took too long and was stopped") from None
        except WireClosed:
            raise WorkerEnded("died", f"ended its process ({_ending(self.end())})") from None
        except (WireError, LookupError, TypeError) as problem:
            self.end()
            raise WorkerEnded("died", f"sent a malformed answer ({problem})") from None
        if error:
            raise error
        return value

    def end(self):
        """Ends the process; returns its exit code, or minus the signal that ended it."""
        if self.pid is None:
            return None
        self.wire.close()
        pid, self.pid = self.pid, None
        return self.nursery.end(pid)


def _served(serve, what, args):
    """The frame that answers a worker's question."""
    try:
        if serve is None:
            raise ValueError(f"nothing answers {what!r} here")
        return "value", Table().pack(serve(what, *args))
    except Exception as error:
        return "error", Table().pack(
            {"type": type(error).__name__ if type(error).__module__ == "builtins" else "ValueError", "text": str(error)}
        )


def _error(told):
    """The exception that a worker told of; what is none is a malformed answer."""
    kind = getattr(builtins, told["type"])
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise WireError(f"an exception {told['type']!r}")
    if not issubclass(kind, Exception):  # sys.exit() and its kin must not end the grader
        kind = RuntimeError
    try:
        error = kind(told["text"])
    except TypeError:  # UnicodeDecodeError and its kin take more than a text
        error = ValueError(told["text"])
    error.remote = told
    return error


def _ending(code):
    """How a process ended, in words."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return {
            "SIGSEGV": "segmentation fault: an access outside of an array?",
            "SIGKILL": "killed: out of memory?",
            "SIGABRT": "aborted: a corrupted heap?",
        }.get(name, name)
    return f"exit code {code}"


class Session:
    """A student's cells in workers, one after another: a worker that ends is replaced at the next call.

    cells: our setup and drivers and the student's holes, in the lab's order, as (name, text); a text of None is left out.
    """

    def __init__(self, nursery, cells):
        self.nursery, self.cells = nursery, cells
        self.problems = {}  # name of the cell: the exception it raised, or the WorkerEnded it caused
        self.worker = None
        self.kernels = None  # a worker for kernels' texts, which executes no cell
        self.deadline = None  # of the check that runs now

    def call(self, name, args=(), kwargs=None, serve=None):
        """Calls a function of the student's, or a driver."""
        return self._request("call", name, list(args), kwargs or {}, serve=serve)

    def fetch(self, name):
        """The value that a cell assigned."""
        return self._request("fetch", name)

    def execute(self, source, name):
        """Executes one more cell."""
        self._request("execute", source, name)

    def ready_problem(self, name):
        """What the cell of this name raised when it was executed; None if it is there."""
        self._start_if_needed()
        return self.problems.get(name)

    def allow(self, seconds):
        """Sets the time by which the calls from now on must be answered."""
        self.deadline = time.monotonic() + seconds

    def apart(self):
        """The worker that runs kernels apart from the student's Python."""
        if self.kernels is None or self.kernels.pid is None:
            self.kernels = self.nursery.fork()
        return self.kernels

    def close(self):
        for worker in (self.worker, self.kernels):
            if worker:
                worker.end()

    def _request(self, *request, serve=None):
        self._start_if_needed()
        return self.worker.request(*request, deadline=self.deadline, serve=serve)

    def _start_if_needed(self):
        if self.worker is None or self.worker.pid is None:
            self._start()

    def _start(self):
        """A fresh worker with all cells executed; a cell that ends its worker is left out of the next one."""
        self.worker = self.nursery.fork()
        for name, text in self.cells:
            ended = isinstance(self.problems.get(name), WorkerEnded)
            if text is None or ended:
                continue
            started = time.monotonic()
            try:
                self.worker.request("execute", text, name, deadline=started + CELL_S)
            except WorkerEnded as problem:
                self.problems[name] = problem
                return self._start()
            except Exception as problem:
                self.problems[name] = problem
            if self.deadline:  # starting again is not the check's time
                self.deadline += time.monotonic() - started


class Remote:
    """A student's function, as a check sees it: it is called in the worker."""

    def __init__(self, session, name, source):
        self.__name__, self.source = name, source
        self._session = session

    def __call__(self, *args, **kwargs):
        try:
            return self._session.call(self.__name__, args, kwargs)
        except (Exception, WorkerEnded) as error:
            error.tried = (
                f"{self.__name__}({', '.join([*map(show, args), *(f'{k}={show(v)}' for k, v in kwargs.items())])})"
            )
            raise

    def run_apart(self, machine, *args, **options):
        """What the kernel costs in the simulator of this name, which calls this in place of counting here: see apart."""
        try:
            return apart.count(self._session, machine, self.__name__, args, options)
        except (Exception, WorkerEnded) as error:
            error.tried = self.__name__
            raise

    def __repr__(self):
        return f"<{self.__name__}, in the worker>"


def names_in(session, name, cell):
    """{name: Remote or value} of what a hole or driver of ours defines; values are fetched now, missing ones left out."""
    functions = holes.callable_names(cell.source)
    found = {function: Remote(session, function, dict(session.cells)[name]) for function in functions}
    for value in set(cell.names) - set(functions):
        try:
            found[value] = session.fetch(value)
        except (Exception, WorkerEnded):
            pass  # the check that reads it meets a NameError, and the score knows why
    return found
