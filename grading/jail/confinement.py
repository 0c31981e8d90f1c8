"""The limits of the fork server and its workers, and the ways to end what they start.

The grader writes it as JSON on the command line of the fork server (grading.worker.process).
"""

import contextlib
import json
import os
import resource
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from common.hardware import process_memory
from grading.jail import limits, processes, syscalls, usage


@dataclass(kw_only=True)
class Confinement(ABC):
    """A worker's life, from its fork to its end. Each method says which process calls it."""

    jail: ClassVar[str]
    has_gpu: bool  # CUDA maps more addresses than any limit
    memory_bytes: int = limits.MEMORY_BYTES

    def as_json(self) -> str:
        return json.dumps({"jail": self.jail, **asdict(self)})

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The grader: variables that the fork server needs besides the jail's."""

    @abstractmethod
    def enter(self) -> None:
        """The fork server, first of all."""

    @abstractmethod
    def fork(self) -> int:
        """The fork server: forks a worker. Returns its process id, and 0 in the worker."""

    def shut_in(self) -> None:
        """The worker, before any request: from here on it runs the student's code."""
        os.setsid()  # no terminal, and a group of its own that can be killed as a whole
        _close_streams()  # nothing to read, and no screen to fill
        processes.end_first(os.getpid())
        for kind, limit in self.resource_limits().items():
            resource.setrlimit(kind, (limit, limit))

    def resource_limits(self) -> dict[int, int]:
        """The limits that the kernel holds each process of a worker to."""
        most = {
            resource.RLIMIT_CORE: 0,  # a crash leaves no copy of the memory on the disk
            resource.RLIMIT_FSIZE: limits.FILE_BYTES,
        }
        if not self.has_gpu and (mapped := usage.mapped_bytes()):
            most[resource.RLIMIT_AS] = mapped + self.memory_bytes
        return most

    @abstractmethod
    def watch(self, workers: Iterable[int]) -> None:
        """The fork server, every WATCH_S: ends workers that take too much in all."""

    def held_bytes(self, pid: int) -> int:
        """The fork server: the memory of a worker and all that it started, beyond what it was
        forked with. They may write no file afterwards, which would be in no count."""
        family = processes.tree(pid)
        usage.no_more_files(family)
        return usage.held_bytes(family)

    def resident(self, pid: int) -> process_memory.Resident:
        """The fork server: what a worker has in memory, and the most that it has had."""
        return process_memory.resident(pid)

    def processor_ms(self, pid: int) -> int | None:
        """The fork server: what a worker and all that it started have computed."""
        return usage.processor_ms(processes.tree(pid))

    def is_asleep(self, pid: int) -> bool:
        """The fork server: whether neither a worker nor what it started wants a processor."""
        return usage.are_asleep(processes.tree(pid))

    @abstractmethod
    def end(self, pid: int, workers: Iterable[int]) -> int:
        """The fork server: kills a worker and all that it started.

        workers: the process ids of the others. Returns the exit code, or minus the signal.
        """

    @abstractmethod
    def leave(self) -> None:
        """The fork server, last of all."""


def _close_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


class Unconfined(Confinement):
    """No sandbox: only limits on each process, against mistakes."""

    jail = "none"

    def environment(self) -> dict[str, str]:
        return {}

    def enter(self) -> None:
        pass

    def fork(self) -> int:
        return os.fork()

    def watch(self, workers: Iterable[int]) -> None:
        pass

    def end(self, pid: int, workers: Iterable[int]) -> int:
        done, status = os.waitpid(pid, os.WNOHANG)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if not done:
            _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)

    def leave(self) -> None:
        pass


@dataclass(kw_only=True)
class Sandboxed(Confinement):
    """What both sandboxes share: all that a worker starts counts with it, and ends with it."""

    uid: int | None  # the user to become, from root
    processes: int  # the most that this user may have, threads included
    scratch: str  # the folder to write in
    capabilities: Sequence[int]  # what to keep of root's rights

    def environment(self) -> dict[str, str]:
        return {"HOME": self.scratch}

    def become_user(self, children: bool) -> None:
        """Gives up root, and all its rights but the capabilities; children: they keep these too."""
        if self.uid is not None:
            syscalls.become(self.uid, self.capabilities, children)

    def shut_in(self) -> None:
        super().shut_in()
        os.environ.update(HOME=self.scratch, TMPDIR=self.scratch, COURSE_FOLDER=self.scratch)
        tempfile.tempdir = None  # tempfile looks it up again, in TMPDIR
        os.chdir(self.scratch)

    def resource_limits(self) -> dict[int, int]:
        return super().resource_limits() | {
            resource.RLIMIT_NPROC: self.processes,  # a fork bomb stops here
            resource.RLIMIT_NOFILE: limits.OPEN_FILES,
        }

    def watch(self, workers: Iterable[int]) -> None:
        for pid in workers:
            if not self._fits(pid):
                processes.kill([pid])
        self._end_orphans(workers)

    def _fits(self, pid: int) -> bool:
        """Whether a worker and its children together stay within memory and disk."""
        family = processes.tree(pid)
        try:
            if usage.memory_bytes(family, self.memory_bytes) > self.memory_bytes:
                return False
            return self.disk_bytes(pid, family) <= limits.SCRATCH_BYTES
        except OSError:  # it hides what it takes, or nests folders too deep to count
            return False

    @abstractmethod
    def disk_bytes(self, pid: int, family: list[int]) -> int:
        """What the files of a worker take that no file system limits."""

    def end(self, pid: int, workers: Iterable[int]) -> int:
        processes.kill([pid])
        _, status = os.waitpid(pid, 0)
        self._end_orphans(workers)
        return os.waitstatus_to_exitcode(status)

    def _end_orphans(self, workers: Iterable[int]) -> None:
        """Kills what a worker started and left behind, so that it outlives neither it nor us.

        A process whose parent has ended becomes a child of the fork server.
        """
        while orphans := set(processes.children(os.getpid())) - set(workers):
            processes.kill(orphans)
            for pid in orphans:
                os.waitpid(pid, 0)
