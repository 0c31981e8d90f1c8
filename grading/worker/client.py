"""The grader's side of the workers: the fork server that they come from, and the client that asks one of them."""

import builtins
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

from common.paths import ROOT
from grading.jail.choice import Jail
from grading.worker.errors import StudentError, WorkerEnded
from grading.worker.process import WARM
from grading.worker.wire import MAX_TEXT, Table, Wire, WireClosed, WireError, WireTimeout

WARM_UP_S = 120
ENDING_S = 10  # for the warm process to end by itself


class ForkServer:
    """The warm process, which starts with the first worker, and the workers forked from it.

    also: names of modules to import there besides what labs import, which are left out where it is bare.
    jail: what both run in (grading.jail.choice).
    """

    def __init__(self, *also, jail=None, bare=False) -> None:
        self.modules, self.jail = (also if bare else (*WARM, *also)), jail or Jail()
        self.process, self.control, self.lock = None, None, threading.Lock()
        self.lost = 0  # how many warm processes came to harm
        self.inside = contextlib.ExitStack()

    def _start(self) -> None:
        confinement = self.inside.enter_context(self.jail.confinement())
        ours, theirs = socket.socketpair()
        environment = (
            self.jail.environment()
            | ({"HOME": confinement.scratch} if confinement.scratch else {})
            | {
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                "PYTHONSAFEPATH": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "1",  # the arrays are small, and on a busy machine threads mostly wait for each other
            }
        )
        command = [
            sys.executable,
            "-m",
            "grading.worker.process",
            str(theirs.fileno()),
            confinement.as_json(),
            *self.modules,
        ]
        self.process = subprocess.Popen(
            [*self.inside.enter_context(self.jail.group()), *self.jail.command(command)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is the grader's to handle
        )
        theirs.close()
        ours.settimeout(WARM_UP_S)
        self.control = ours

    def fork(self):
        """A fresh worker that has executed nothing."""
        ours, theirs = socket.socketpair()
        with self.lock, theirs, _undisturbed():
            for _ in range(2):  # again where the warm process has come to harm
                if self.process is None:
                    self._start()
                pid = self._ask(b"fork", [theirs.fileno()])
                if pid is not None:
                    return Worker(self, pid, Wire(ours))
        raise RuntimeError("the grader's warm process ended; its reason stands above")

    def end(self, pid, parent):
        """Ends a worker of this warm process; returns its exit code, or minus the signal that ended it."""
        with self.lock, _undisturbed():
            code = self._ask(f"end {pid}".encode()) if parent is self.process else None
        return -signal.SIGKILL if code is None else code

    def close(self) -> None:
        """Ends the warm process; its workers end with it."""
        if self.process:
            self.control.close()
            try:
                self.process.wait(timeout=ENDING_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        self.inside.close()

    def _ask(self, request, descriptors=()):
        """What the warm process answers; None where it is gone, or hangs and is ended."""
        text = b""
        try:
            socket.send_fds(self.control, [request], descriptors)
            while not text.endswith(b"\n"):
                part = self.control.recv(32)
                if not part:
                    break
                text += part
            else:
                return int(text)
        except OSError:
            pass
        self.close()
        self.lost += 1
        return None


@contextlib.contextmanager
def _undisturbed():
    """Puts the alarm of a check off: half a word to the warm process would be taken for half of the next one.

    By its handler, which the main thread alone runs: a mask is one thread's, and the system gives a signal to any.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    rung = []
    old = signal.signal(signal.SIGPROF, lambda *_: rung.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, old)
        if rung:
            signal.raise_signal(signal.SIGPROF)


class Worker:
    """A process that holds cells: execute them, call what they define."""

    def __init__(self, fork_server, pid, wire) -> None:
        self.fork_server, self.pid, self.wire = fork_server, pid, wire
        self.parent = fork_server.process

    def request(self, kind, *request, deadline, serve=None):
        """What the worker answers; it raises what the worker raised, as a builtin (see StudentError).

        kind: "execute" (source, name), "call" (name, args, kwargs as pairs) or "fetch" (name).
        serve: a function that answers what the worker asks in the middle of it, serve(what, *args).
        """
        table = Table()
        frame = table.pack(
            request
        )  # an argument that can't cross is the check's mistake, and raises here
        try:
            self.wire.send(kind, frame, deadline)
            answer, frame = self.wire.receive(deadline)
            while answer == "ask":
                what, args = Table().unpack(*frame)
                self.wire.send(*_served(serve, what, args), deadline)
                answer, frame = self.wire.receive(deadline)
            if answer not in ("value", "error", "refused"):
                raise WireError(f"an answer of kind {answer!r}")
            value = (table if answer != "refused" else Table()).unpack(*frame)
            error = _rebuilt(value) if answer != "value" else None
        except WireTimeout:
            self.end()
            raise WorkerEnded("timeout", "took too long and was stopped") from None
        except WireClosed:
            raise WorkerEnded("died", f"ended its process ({_ending(self.end())})") from None
        except (ValueError, LookupError, TypeError) as problem:
            self.end()
            raise WorkerEnded("died", f"sent a malformed answer ({problem})") from None
        except BaseException:  # the check was stopped: this answer would stand for the next one
            self.end()
            raise
        if error:
            raise error
        return value

    def end(self):
        """Ends the process; returns its exit code, or minus the signal that ended it."""
        if self.pid is None:
            return None
        self.wire.close()
        pid, self.pid = self.pid, None
        return self.fork_server.end(pid, self.parent)


def _served(serve, what, args):
    """The frame that answers a worker's question."""
    try:
        if serve is None:
            raise ValueError(f"nothing answers {what!r} here")
        return "value", Table().pack(serve(what, *args))
    except Exception as error:
        return "error", Table().pack(
            {
                "type": type(error).__name__
                if type(error).__module__ == "builtins"
                else "ValueError",
                "text": str(error),
            }
        )


def _rebuilt(report: dict) -> Exception:
    """The exception that a worker reported; WireError if the report is malformed."""
    error = StudentError(report["type"], report["text"], report["line"], report["code"])
    texts = (error.kind, error.text, error.code or "")
    if not all(type(text) is str and len(text) <= MAX_TEXT for text in texts) or type(
        error.line
    ) not in (int, type(None)):
        raise WireError("a malformed report of an exception")
    kind = getattr(builtins, error.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise WireError(f"an exception {error.kind!r}")
    if not issubclass(kind, Exception) or issubclass(kind, (StopIteration, StopAsyncIteration)):
        kind = RuntimeError  # sys.exit() must not end the grader, nor StopIteration a check's loop
    try:
        raised = kind(error.text)
    except TypeError:  # UnicodeDecodeError, for one, takes more than a text
        raised = ValueError(error.text)
    raised.__cause__ = error
    return raised


def _ending(code):
    """How a process ended, in words."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return {
            "SIGSEGV": "segmentation fault: an access outside of an array?",
            "SIGKILL": "killed: out of memory?",
            "SIGABRT": "aborted: a corrupted heap?",
        }.get(name, name)
    return f"exit code {code}"
