"""The sandbox by Landlock: the kernel refuses files that still exist.

It needs no program and no namespaces, so it also works in containers such as Gradescope's. seccomp
refuses what Landlock does not cover: the network and other processes.
"""

import contextlib
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from grading.jail import seccomp, syscalls, usage, users, visible
from grading.jail.confinement import Confinement, Sandboxed
from grading.jail.sandbox import Sandbox

# Rights to files, one bit each, as in the kernel's linux/landlock.h.
EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, CONTROL_DEVICE = 1 << 14, 1 << 15
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | CONTROL_DEVICE  # the others: on folders
# All the rights that a version of Landlock knows.
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
BIND_AND_CONNECT_TCP = 3  # from version 4 on
ABSTRACT_SOCKETS_AND_SIGNALS = 3  # from version 6 on
RULE_ON_PATH = 1


def version() -> int:
    """The kernel's version of Landlock; 0 if it has none."""
    try:
        return syscalls.syscall("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def restrict(
    readable: Iterable[str],
    writable: Iterable[str],
    devices: Iterable[str],
    listed: Iterable[str] = (),
) -> None:
    """Refuses this process and its children, for good, all files but these.

    readable: files and folders to read and execute. writable: folders to do anything in.
    devices: files to read, write and control. listed: folders whose names may be read. Where the
    kernel can, it also refuses TCP, and signals and abstract sockets to processes outside.
    """
    known = RIGHTS[min(version(), max(RIGHTS))]
    device = READ_FILE | WRITE_FILE | CONTROL_DEVICE
    ruleset = _ruleset(known)
    for path in readable:
        _allow(ruleset, path, known & (EXECUTE | READ_FILE | READ_FOLDER))
    for path in listed:
        _allow(ruleset, path, known & READ_FOLDER)
    for path in writable:
        _allow(ruleset, path, known & ~CONTROL_DEVICE)
    for path in devices:
        _allow(ruleset, path, known & device)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)  # no set-user-ID program gives rights back
    syscalls.syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def _ruleset(rights: int) -> int:
    """A new ruleset that refuses all this, as a file descriptor."""
    fields = [rights]
    if version() >= 4:
        fields.append(BIND_AND_CONNECT_TCP)
    if version() >= 6:
        fields.append(ABSTRACT_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    return syscalls.syscall("landlock_create_ruleset", attributes, len(attributes), 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not every machine has every path
        return
    rights &= ~0 if os.path.isdir(path) else ON_FILES
    rule = struct.pack("=Qi", rights, file)
    syscalls.syscall("landlock_add_rule", ruleset, RULE_ON_PATH, rule, 0)
    os.close(file)


class Landlock(Sandbox):
    """Landlock for files, seccomp for the network and for other processes, limits for the rest."""

    name = "landlock"

    def missing(self) -> str | None:
        if not version():
            return "this kernel has no Landlock"
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return "this kernel does not list a process's children"
        return None

    def command(self, command: list[str]) -> list[str]:
        return command

    @contextlib.contextmanager
    def confinement(self) -> Iterator[Confinement]:
        uid = users.uid_from_root()
        scratch = tempfile.mkdtemp(prefix="grading-")
        if uid is not None:
            os.chown(scratch, uid, uid)
        try:
            yield Landlocked(
                has_gpu=visible.has_gpu(),
                uid=uid,
                processes=users.process_limit(namespaced=False),
                scratch=scratch,
                capabilities=users.capabilities_to_read_python(uid),
                readable=(*visible.readable(), "/dev/urandom", "/dev/random", *visible.proc()),
                devices=("/dev/null", "/dev/zero", "/dev/full", *visible.devices()),
            )
        finally:
            usage.remove(scratch)


@dataclass(kw_only=True)
class Landlocked(Sandboxed):
    """What the fork server and its workers do under Landlock."""

    jail = Landlock.name
    readable: Sequence[str]
    devices: Sequence[str]

    def enter(self) -> None:
        self.become_user(children=True)
        self.folders: dict[int, str] = {}  # by the worker's process id
        # What a worker leaves behind becomes a child of this process, which ends it.
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)

    def fork(self) -> int:
        folder = tempfile.mkdtemp(dir=self.scratch)
        if pid := os.fork():
            self.folders[pid] = folder
        else:
            self.scratch = folder
        return pid

    def shut_in(self) -> None:
        super().shut_in()
        own = visible.own_proc(
            os.getpid(), self.has_gpu
        )  # of /proc, this worker and no other process
        writable = [self.scratch]
        if self.has_gpu:
            writable.append(f"{own[0]}/task")  # CUDA's driver names its threads, or fails
        restrict([*self.readable, *own], writable, self.devices, visible.listed())
        rules = seccomp.worker_rules(self.has_gpu)
        seccomp.install([*rules, *seccomp.rules_without_namespaces(os.getpid())])

    def disk_bytes(self, pid: int, family: list[int]) -> int:
        return usage.folder_bytes(self.folders[pid]) + usage.unlinked_bytes(family)

    def end(self, pid: int, workers: Iterable[int]) -> int:
        code = super().end(pid, workers)
        usage.remove(self.folders.pop(pid))
        return code

    def leave(self) -> None:
        usage.remove(self.scratch)  # in case the grader was killed and can't
