"""The worker, a process that holds the student's work, and the fork server that makes it.

python -m grading.worker.process FD JAIL [MODULE ...]

starts the fork server. It enters its jail (a confinement, as JSON) and imports modules. Then it
forks workers and ends them, as the grader asks over the control socket FD. Workers are forked, not
started: importing PyTorch takes over a second, and a fork takes 10 ms.

A worker executes cells in one namespace and calls what they define, as its wire asks. It knows no
check, no expected value and no solution.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import importlib
import inspect
import os
import select
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from common.hardware import device
from common.notebook import gc_control
from grading.jail import limits, syscalls
from grading.jail.choice import confinement_from_json
from grading.jail.confinement import Confinement
from grading.worker.drivers import BUILTINS, OWN_BUILTINS, compiled
from grading.worker.limits import MAX_TEXT
from grading.worker.originals import Originals, names_set
from grading.worker.packing import Packed, Packer
from grading.worker.transport import SocketTransport, WireClosed
from grading.worker.wire import Wire
from nogpu.kernels import linecache_text

Cells = Sequence[tuple[str, str]]  # (text, name)
UNKNOWN = -1  # milliseconds


def main() -> None:
    control, jail = socket.socket(fileno=int(sys.argv[1])), confinement_from_json(sys.argv[2])
    jail.enter()
    with gc_control.not_collected():  # a collection in a worker would copy each page it looks at
        warm_up(sys.argv[3:])
    workers: set[int] = set()
    try:
        serve(control, jail, workers)
    finally:
        for pid in set(workers):
            end(pid, jail, workers)
        jail.leave()
    os._exit(0)


def serve(control: socket.socket, jail: Confinement, workers: set[int]) -> None:
    """Forks, measures and ends workers as the grader asks, and watches them, until it is gone."""
    watched_s = time.monotonic()
    while True:
        ready, _, _ = select.select([control], [], [], limits.WATCH_S if workers else None)
        if time.monotonic() > watched_s + limits.WATCH_S:
            jail.watch(workers)
            watched_s = time.monotonic()
        if not ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(control, 32, 1)
        if not request:
            return
        verb, *number = request.decode().split()
        if verb == "fork":
            answer = fork(descriptors[0], control, jail, workers)
        elif verb == "end":
            answer = end(int(number[0]), jail, workers)
        else:
            answer = measure(verb, int(number[0]), jail)
        control.sendall(f"{answer}\n".encode())


def measure(what: str, pid: int, jail: Confinement) -> int:
    """What the kernel says of a worker and all that it started; UNKNOWN if it says nothing."""
    if what == "held":
        return jail.held_bytes(pid)
    if what in ("now", "most"):
        return getattr(jail.resident(pid), what)
    if what == "asleep":
        return int(jail.is_asleep(pid))
    computed_ms = jail.processor_ms(pid)
    return UNKNOWN if computed_ms is None else computed_ms


def warm_up(names: Iterable[str]) -> None:
    """Imports these modules and runs nothing of them: a process with threads can't be forked."""
    os.environ.setdefault("MPLBACKEND", "agg")
    # It looks for a GPU without starting CUDA, which does not survive a fork.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # With a GPU, too, Triton interprets: a grade is the same on each machine, and it is counted.
    os.environ["TRITON_INTERPRET"] = "1"
    device.prepare_triton()
    if "triton" in sys.modules:
        importlib.import_module("nogpu.tiles.kernel")  # which `count` calls
    for name in names:
        # A lab's `from a import b` may name what is not a module.
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)


def fork(descriptor: int, control: socket.socket, jail: Confinement, workers: set[int]) -> int:
    """A new worker that serves the socket of this descriptor; returns its process id."""
    parent, pid = os.getpid(), jail.fork()
    if not pid:
        _become_worker(descriptor, control, jail, parent)
    os.close(descriptor)
    workers.add(pid)
    return pid


def _become_worker(descriptor: int, control: socket.socket, jail: Confinement, parent: int) -> None:
    """It never returns."""
    try:
        if sys.platform == "linux":
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() not in (parent, 0):  # 0: in a process namespace of its own
            os._exit(0)
        control.close()
        jail.shut_in()
        server = WorkerServer(Wire(SocketTransport(socket.socket(fileno=descriptor))))
        sys.modules["__main__"] = server.main  # pickle looks there for what a cell defines
        server.serve()
    finally:
        os._exit(0)


def end(pid: int, jail: Confinement, workers: set[int]) -> int:
    """Kills a worker and all that it started; returns its exit code, or minus its signal."""
    workers.discard(pid)
    return jail.end(pid, workers)


class WorkerServer:
    """A worker's end of its wire: one namespace, and the requests that it answers."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.main = types.ModuleType("__main__")
        self.namespace: dict[str, Any] = vars(self.main)
        self.namespace |= {"__ask__": self.ask, OWN_BUILTINS: builtins}
        self.answers = {
            "execute": self.execute,
            "call": self.call,
            "rank": self.rank,
            "fetch": self.fetch,
            "count": self.count,
        }
        self.setup: dict[str, Any] = {}  # what our set-up cells defined
        self.drivers: dict[str, Any] = {}  # what our drivers defined last
        self.originals: Originals | None = None  # None until a student's cell may change some

    def serve(self) -> None:
        """Answers until the grader closes the wire."""
        while True:
            try:
                kind, packed = self.wire.receive()
            except WireClosed:
                return
            try:
                self.wire.send(*self.reply(kind, packed))
            except (
                ValueError
            ) as problem:  # too large, or an int of too many digits: nothing was sent
                self.wire.send(*failure(problem))

    def reply(self, kind: str, packed: Packed) -> tuple[str, Packed]:
        """The kind and value that answer a request."""
        packer = Packer()
        request = packer.unpack(*packed)
        try:
            if kind not in self.answers:
                raise ValueError(f"no request {kind!r}")
            value = self.answers[kind](*request)
        except BaseException as error:  # the student's, whatever it is: SystemExit, too
            return failure(error, packer)
        try:
            return "value", packer.pack(value)
        except BaseException as error:  # it can't cross; the student's own classes have a say
            return failure(error)

    def execute(self, source: str, name: str) -> None:
        """Executes a cell. Its name is shown in tracebacks; Triton and inspect find its text."""
        filename = f"<{name}>"
        linecache_text.remember(filename, source)
        kind = name.partition(" ")[0]  # a hole's cell has the name of its exercise
        before = dict(self.namespace)
        code = compile(source, filename, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        is_ours = kind in ("setup", "driver")
        if not is_ours and (names := names_set(code)):
            self.originals = self.originals or Originals()
            self.originals.watch(names, [*self.setup.values(), *self.drivers.values()])
        if code.co_flags & inspect.CO_COROUTINE:  # notebooks allow await at the top level
            asyncio.run(eval(code, self.namespace))  # noqa: S307
        else:
            exec(code, self.namespace)  # noqa: S102  (what it is for)
        if is_ours:
            kept = self.setup if kind == "setup" else self.drivers
            kept |= (new := _changes(before, self.namespace))
            if self.originals and kind == "setup":
                self.originals.add(new.values())

    def call(
        self,
        name: str,
        args: Sequence[Any],
        kwargs: Sequence[tuple[str, Any]],
        drivers: Cells = (),
    ) -> Any:
        """Calls what a cell defined. drivers: see `ours`."""
        with self.ours(drivers):
            return self._defined(name)(*args, **dict(kwargs))

    def rank(self, name: str, args: Sequence[Any], drivers: Cells = ()) -> Any:
        """Calls a function as one of several ranks. args: what ranks.remote.call takes after it."""
        from nogpu.ranks import remote

        with self.ours(drivers):
            return remote.call(self._defined(name), self.ask, *args)

    def fetch(self, name: str, drivers: Cells = ()) -> Any:
        """What a cell assigned. drivers: see `ours`."""
        with self.ours(drivers):
            return self._defined(name)

    @contextlib.contextmanager
    def ours(self, drivers: Cells) -> Iterator[None]:
        """While a driver runs, our own names mean what they meant, whatever the student bound.

        drivers: [(text, name)] of the drivers that define what is called and what it uses; none
        for a hole. They are executed again. Afterwards the student's names are theirs again.
        """
        if not drivers:
            yield
            return
        before = dict(self.namespace)
        self.namespace |= {**self.setup, OWN_BUILTINS: builtins}
        if self.originals:
            self.originals.restore()
        hidden = BUILTINS.intersection(before).difference(self.setup, self.drivers)
        for source, cell in drivers:
            exec(compiled(source, f"<{cell}>", hidden), self.namespace)  # noqa: S102
        known, ours = self.setup | self.drivers, _changes(before, self.namespace)
        self.drivers |= {key: value for key, value in ours.items() if key not in self.setup}
        try:
            yield
        finally:
            theirs = {key: before[key] for key in ours.keys() & before.keys()}
            self.namespace |= {k: v for k, v in theirs.items() if known.get(k) is not v}

    def _defined(self, name: str) -> Any:
        if name not in self.namespace:
            raise NameError(f"no cell defines `{name}`")
        return self.namespace[name]

    def count(
        self,
        package: str,
        text: str,
        name: str,
        args: Sequence[Any],
        options: dict[str, Any],
    ) -> dict[str, Any]:
        """The report, as data, of a kernel; nothing of its text is run as Python."""
        simulator = importlib.import_module(f"nogpu.{package}")
        kernel = simulator.compile_source(text, name)
        return simulator.count(kernel, *args, **options).as_dict()

    def ask(self, what: str, *args: Any) -> Any:
        """The grader's answer to a question in the middle of a call, such as a rank's message."""
        self.wire.send("ask", Packer().pack((what, args)))
        kind, packed = self.wire.receive()
        answer = Packer().unpack(*packed)
        if kind == "error":
            raise getattr(builtins, answer["type"])(answer["text"])
        return answer


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The names that mean something else than before, or are new."""
    missing = object()
    return {name: value for name, value in after.items() if before.get(name, missing) is not value}


def failure(error: BaseException, packer: Packer | None = None) -> tuple[str, Packed]:
    """The kind and value that report an exception.

    packer: the call's, so that what changed in place is written back, unless that is what can't
    cross.
    """
    report = description(error)
    if packer:
        try:
            return "error", packer.pack(report)
        except (TypeError, ValueError):
            pass
    return "refused", Packer().pack(report)


def description(error: BaseException) -> dict[str, str | int | None]:
    """An exception as data: its nearest builtin, its text, and the line of the student's cell."""
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
