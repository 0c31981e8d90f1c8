"""The sandbox by namespaces: what a worker may not use does not exist for it.

bubblewrap makes the outer one, for the fork server. Inside, each worker gets its own processes
and its own scratch space, so that workers don't see each other.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grading.jail import limits, seccomp, syscalls, usage, users, visible
from grading.jail.confinement import Confinement, Sandboxed
from grading.jail.sandbox import Sandbox

COUNTERS = ("/proc/sys", "/proc/pressure")  # exact, of the whole machine: covered
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (a fresh file system of each worker)


class Bubblewrap(Sandbox):
    """A file system of a few folders, no network, no other process."""

    name = "bubblewrap"

    def missing(self) -> str | None:
        return None if shutil.which("bwrap") else "bubblewrap is not installed"

    def command(self, command: list[str]) -> list[str]:
        options = [*_namespaces(), *_readable_files(), *_own_files(), *_devices()]
        return ["bwrap", *options, "--", *command]

    @contextlib.contextmanager
    def confinement(self) -> Iterator[Confinement]:
        yield Namespaces(
            has_gpu=visible.has_gpu(),
            uid=users.uid_from_root(),
            processes=users.process_limit(namespaced=True),
            scratch=visible.scratch_folder(),
            capabilities=(syscalls.CAP_SYS_ADMIN,),
        )


def _namespaces() -> list[str]:
    """No other process, no network, no shared memory or message queue of another program."""
    options = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    options += ["--unshare-cgroup-try"]
    # The fork server keeps the rights of root that it needs to give each worker its own namespaces
    # and user. The worker itself keeps none (Namespaces.shut_in).
    options += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    if os.geteuid() == 0:
        return [*options, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*options, "--unshare-user"]


def _readable_files() -> list[str]:
    """The paths of visible.readable(), and no others, for reading only."""
    options = []
    paths = [path for path in visible.readable() if os.path.exists(path)]
    parents = {str(parent) for path in paths for parent in Path(path).parents} - {"/"}
    for parent in sorted(parents):
        options += ["--perms", "0755", "--dir", parent]  # bubblewrap's own choice is 0700
    for path in paths:
        if os.path.islink(path) and os.path.dirname(path) == "/":  # /lib, a part of /usr
            options += ["--symlink", os.readlink(path), path]
        else:
            options += ["--ro-bind", path, path]
    return options


def _own_files() -> list[str]:
    scratch = visible.scratch_folder()
    options = ["--proc", "/proc", "--perms", "1777", "--tmpfs", scratch, "--chdir", scratch]
    options += ["--perms", "0755", "--tmpfs", "/dev", "--perms", "1777", "--dir", SHARED_MEMORY]
    return options


def _devices() -> list[str]:
    """bubblewrap's --dev would bring terminals, and a user namespace for them."""
    options = ["--symlink", "/proc/self/fd", "/dev/fd"]
    for name in ("null", "zero", "full", "random", "urandom"):
        options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for path in visible.devices():
        options += ["--perms", "0755", "--dir", os.path.dirname(path), "--dev-bind", path, path]
    return options


@dataclass(kw_only=True)
class Namespaces(Sandboxed):
    """What the fork server and its workers do inside bubblewrap."""

    jail = Bubblewrap.name

    def enter(self) -> None:
        self.become_user(children=False)
        self.warm_processes = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        # bubblewrap covers these. As long as it does, a worker can't mount its own /proc.
        for covered in ("sys", "sysrq-trigger", "irq", "bus"):
            with contextlib.suppress(OSError):
                syscalls.call("umount2", f"/proc/{covered}".encode(), syscalls.MNT_DETACH)

    def fork(self) -> int:
        # The worker is the first process of a namespace: when it ends, the kernel ends the rest.
        syscalls.call("unshare", syscalls.CLONE_NEWPID)
        pid = None
        try:
            pid = os.fork()
            return pid
        finally:
            if pid != 0:
                syscalls.call("setns", self.warm_processes, syscalls.CLONE_NEWPID)

    def shut_in(self) -> None:
        self._mount()
        if not self.has_gpu:
            with contextlib.suppress(OSError):  # not everywhere allowed, and no limit depends on it
                syscalls.count_alone()
        super().shut_in()
        if not self.has_gpu:  # CUDA's driver names its threads in /proc, or fails
            with contextlib.suppress(OSError):  # a kernel before 5.12
                syscalls.make_read_only("/proc")  # nobody takes back what end_first has set
        syscalls.keep_capabilities(())  # the student's code has no right of root's at all
        seccomp.install(seccomp.worker_rules(self.has_gpu))

    def _mount(self) -> None:
        """A /proc that shows this worker alone, and scratch space that no other worker has."""
        syscalls.call("unshare", syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET)
        syscalls.mount(None, "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
        with contextlib.suppress(OSError):  # a kernel before 5.12; this worker owns none of it
            syscalls.make_read_only("/")  # else the times of /dev/null would be a message
        os.close(self.warm_processes)
        safe = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("proc", "/proc", "proc", safe | syscalls.MS_NOEXEC)
        size = f"size={limits.SCRATCH_BYTES},nr_inodes={limits.SCRATCH_FILES},mode=700"
        for folder in (self.scratch, SHARED_MEMORY):
            syscalls.mount("tmpfs", folder, "tmpfs", safe, size)
        for folder in () if self.has_gpu else COUNTERS:
            with contextlib.suppress(OSError):  # a kernel without it
                syscalls.mount("tmpfs", folder, "tmpfs", safe | syscalls.MS_RDONLY, "size=4k")

    def disk_bytes(self, pid: int, family: list[int]) -> int:
        """The scratch space has its own limit. Without a GPU, nameless files are refused."""
        return usage.unlinked_bytes(family) if self.has_gpu else 0

    def leave(self) -> None:
        pass  # its files were in memory
