"""The fork server, as the grader sees it: a process that imports what labs need, and forks workers.

This module imports no PyTorch, so that the fork server can import its own while the grader does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from common.hardware.process_memory import Resident
from common.paths import ROOT
from grading.jail import processes, usage
from grading.jail.sandbox import Jail, NoJail
from grading.worker.replay import Tapes

WARM_UP_S = 120
ENDING_S = 10  # for the fork server to end by itself
WARM = [  # what labs import
    "numpy",
    "torch",
    "numba",
    "matplotlib.pyplot",
    "ipywidgets",
    "common.checks",
    "nogpu.simt",
]


class Forked(NamedTuple):
    """A worker's process, our end of its socket, and the process that forked it."""

    pid: int
    socket: socket.socket
    parent: subprocess.Popen | None


class ForkServer:
    """The fork server, which starts with the first worker if not before, and what it forks.

    also: names of modules to import there besides those that labs import (WARM). bare: import only
    these. jail: what both run in (grading.jail.sandbox).
    """

    control: socket.socket  # to the fork server, while there is one

    def __init__(self, *also: str, jail: Jail | None = None, bare: bool = False) -> None:
        self.modules = also if bare else (*WARM, *also)
        self.jail = jail or NoJail()
        self.process: subprocess.Popen | None = None
        self.lock = threading.Lock()
        self.lost = 0  # how many fork servers died or hung
        self.tapes = Tapes()  # of the checks that answers in these workers passed
        self._inside = contextlib.ExitStack()

    def start(self) -> None:
        """Starts the process, which goes on by itself, unless it runs already."""
        with self.lock:
            if self.process is None:
                self._start()

    def fork(self) -> Forked:
        """A fresh worker that has executed nothing."""
        ours, theirs = socket.socketpair()
        with self.lock, theirs, _alarm_postponed():
            for _ in range(2):  # again if the fork server was lost
                if self.process is None:
                    self._start()
                pid = self._ask(b"fork", [theirs.fileno()])
                if pid is not None:
                    return Forked(pid, ours, self.process)
        raise RuntimeError("The grader's fork server ended; the reason is printed above.")

    def end(self, pid: int, parent: subprocess.Popen | None) -> int:
        """Ends a worker; returns its exit code, or minus the signal that ended it."""
        with self.lock, _alarm_postponed():
            code = self._ask(f"end {pid}".encode()) if parent is self.process else None
        return -signal.SIGKILL if code is None else code

    def held_bytes(self, pid: int) -> int:
        """The memory that a worker and what it started hold, beyond what it was forked with.

        The fork server reads it from the kernel: what a worker says of itself does not matter.
        Where the system does not say, as on macOS, it is 0.
        """
        with self.lock, _alarm_postponed():
            return self._ask(f"held {pid}".encode()) or 0

    def resident(self, pid: int) -> Resident:
        """What a worker has in memory, as the kernel counts it; zeros if it does not say."""
        with self.lock, _alarm_postponed():
            return Resident(*(self._ask(f"{what} {pid}".encode()) or 0 for what in ("now", "most")))

    def processor_s(self, pid: int, parent: subprocess.Popen | None) -> float | None:
        """What a worker and all that it started have computed; None if nobody knows."""
        computed_ms = self._measured(f"computed {pid}", parent)
        return None if computed_ms is None or computed_ms < 0 else computed_ms / 1000

    def is_asleep(self, pid: int, parent: subprocess.Popen | None) -> bool:
        """Whether a worker and all that it started want no processor."""
        return bool(self._measured(f"asleep {pid}", parent))

    def _measured(self, what: str, parent: subprocess.Popen | None) -> int | None:
        """None if the worker's fork server is gone, and the worker with it."""
        with self.lock, _alarm_postponed():
            return self._ask(what.encode()) if parent is self.process else None

    def close(self) -> None:
        """Ends the fork server; its workers end with it."""
        if self.process:
            self.control.close()
            try:
                self.process.wait(timeout=ENDING_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        self._inside.close()

    def _start(self) -> None:
        confinement = self._inside.enter_context(self.jail.confinement())
        ours, theirs = socket.socketpair()
        module, descriptor = "grading.worker.process", str(theirs.fileno())
        command = [sys.executable, "-m", module, descriptor, confinement.as_json(), *self.modules]
        self.process = subprocess.Popen(
            [*self._inside.enter_context(self.jail.group()), *self.jail.command(command)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=self._environment() | confinement.environment(),
            start_new_session=True,  # Ctrl-C is the grader's to handle
        )
        usage.no_memory_limit(self.process.pid)
        processes.end_first(self.process.pid)
        theirs.close()
        ours.settimeout(WARM_UP_S)
        self.control = ours

    def _environment(self) -> dict[str, str]:
        return {
            **self.jail.environment(),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            # The arrays are small, and on a busy machine threads mostly wait for each other.
            "OMP_NUM_THREADS": "1",
        }

    def _ask(self, request: bytes, descriptors: Sequence[int] = ()) -> int | None:
        """What the fork server answers; None if it is gone, or hangs and is ended."""
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
def _alarm_postponed() -> Iterator[None]:
    """Lets a check's alarm ring only afterwards.

    An interrupted request would leave a partial message that corrupts the next one. This exchanges
    the handler, which only the main thread runs. A signal mask would not do: it belongs to one
    thread, and the system may deliver the signal to any.
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
