"""The process that holds the student's work, and the warm one that it is forked from.

python -m grading.worker.process FD JAIL [MODULE ...]    the warm process: it goes to jail (a confinement, as JSON), imports modules,
                                                 and on a control socket is told to fork workers and to end them

A worker executes cells in one namespace and calls what they define, as it is told over its wire. It knows no check, no
expected value and no solution. It is forked, not started, since importing torch takes over a second and a fork 10 ms.
"""

import builtins
import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback

from common import device, sources
from grading.jail import confinement, syscalls
from grading.worker.wire import MAX_TEXT, Table, Wire, WireClosed

WARM = [
    "numpy",
    "torch",
    "numba",
    "matplotlib.pyplot",
    "ipywidgets",
    "common.checks",
    "common.simt",
]  # what labs import


def main() -> None:
    control, jail = socket.socket(fileno=int(sys.argv[1])), confinement.from_json(sys.argv[2])
    jail.enter()
    warm_up(sys.argv[3:])
    gc.freeze()  # a collection in a worker would copy every page that it looks at
    workers = set()
    try:
        serve(control, jail, workers)
    finally:
        for pid in set(workers):
            end(pid, jail, workers)
        jail.leave()
    os._exit(0)


def serve(control, jail, workers) -> None:
    """Forks and ends workers as the grader asks, and looks after them, until the grader is gone."""
    seen_s = time.monotonic()
    while True:
        ready, _, _ = select.select([control], [], [], confinement.WATCH_S if workers else None)
        if time.monotonic() > seen_s + confinement.WATCH_S:
            jail.watch(workers)
            seen_s = time.monotonic()
        if not ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(control, 32, 1)
        if not request:
            return
        verb, *number = request.decode().split()
        answer = (
            fork(descriptors[0], control, jail, workers)
            if verb == "fork"
            else end(int(number[0]), jail, workers)
        )
        control.sendall(f"{answer}\n".encode())


def warm_up(names) -> None:
    """Imports these modules, without running any of it: a process with threads can't be forked."""
    os.environ.setdefault("MPLBACKEND", "agg")
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = (
        "1"  # to look for a GPU without starting CUDA, which no fork survives
    )
    device.prepare_triton()  # on a GPU it stays out: workers that count have it interpret, the others compile
    for name in names:
        with contextlib.suppress(
            ModuleNotFoundError
        ):  # a lab's `from a import b` may name what is no module
            importlib.import_module(name)


def fork(descriptor, control, jail, workers):
    """A new worker that serves the socket of this descriptor; returns its process id."""
    parent, pid = os.getpid(), jail.fork()
    if pid:
        os.close(descriptor)
        workers.add(pid)
        return pid
    try:
        if sys.platform == "linux":
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() not in (parent, 0):  # 0: it has processes of its own
            os._exit(0)
        control.close()
        jail.shut_in()
        Worker(Wire(socket.socket(fileno=descriptor))).serve()
    finally:
        os._exit(0)


def end(pid, jail, workers):
    """Kills a worker and all that it started; returns how it had ended: an exit code, or minus a signal."""
    workers.discard(pid)
    return jail.end(pid, workers)


class Worker:
    """One namespace, and the requests that come in for it."""

    def __init__(self, wire) -> None:
        self.wire = wire
        self.namespace = {"__name__": "__main__", "__ask__": self.ask}

    def serve(self) -> None:
        """Answers until the grader closes the wire."""
        while True:
            try:
                kind, frame = self.wire.receive()
            except WireClosed:
                return
            table = Table()
            request = table.unpack(*frame)
            try:
                if kind not in ("execute", "call", "fetch", "apart"):
                    raise ValueError(f"no request {kind!r}")
                reply = "value", table.pack(getattr(self, kind)(*request))
            except BaseException as error:  # whatever it is, SystemExit too, it is the student's
                reply = failure(error, table)
            try:
                self.wire.send(*reply)
            except (
                ValueError
            ) as problem:  # too large, or a number of too many digits: nothing has been sent
                self.wire.send(*failure(problem))

    def execute(self, source, name) -> None:
        """Executes a cell. name stands in tracebacks; its text is there for Triton and inspect."""
        filename = f"<{name}>"
        sources.remember(filename, source)
        exec(compile(source, filename, "exec"), self.namespace)  # noqa: S102

    def call(self, name, args, kwargs):
        """Calls what a cell defined."""
        return self.namespace[name](*args, **dict(kwargs))

    def fetch(self, name):
        """What a cell assigned."""
        return self.namespace[name]

    def apart(self, machine, text, name, constants, args, options):
        """The report, as data, of a kernel in common.simt or common.tiles; nothing of its text is run as Python."""
        os.environ["TRITON_INTERPRET"] = "1"
        simulator = importlib.import_module(f"common.{machine}")
        return simulator.count(
            simulator.compile_source(text, name, constants), *args, **options
        ).as_dict()

    def ask(self, what, *args):
        """Asks the grader something in the middle of a call (a rank's messages go this way) and returns its answer."""
        self.wire.send("ask", Table().pack((what, args)))
        kind, frame = self.wire.receive()
        answer = Table().unpack(*frame)
        if kind == "error":
            raise getattr(builtins, answer["type"])(answer["text"])
        return answer


def failure(error, table=None):
    """The kind and frame that tell of an exception.

    table: the call's, so that what changed in place is written back, unless it is what can't cross.
    """
    told = description(error)
    if table:
        try:
            return "error", table.pack(told)
        except (TypeError, ValueError):
            pass
    return "refused", Table().pack(told)


def description(error):
    """An exception as data: its nearest builtin, its text, and the line of the student's cell that it came from."""
    kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins")
    try:
        text = str(error)[:MAX_TEXT].encode(errors="replace").decode()
    except BaseException:  # an exception can be the student's own class
        text = ""
    line = code = None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith("<") and frame.line:
            line, code = frame.lineno, frame.line[:200]
    return {"type": kind, "text": text, "line": line, "code": code}


if __name__ == "__main__":
    main()
