"""What a worker may use: limits, and a jail of namespaces or of Landlock, as the warm process and its workers take them on.

The grader chooses (grading.jail.choice), and the warm process is told by JSON on its command line.
"""

import contextlib
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass

from grading.jail import syscalls

MEMORY_BYTES = 4 << 30  # of a worker and its children, beyond what the warm process has mapped
FILE_BYTES = 64 << 20  # of one file
SCRATCH_BYTES = 256 << 20  # of all the files of a worker
SCRATCH_FILES = 10_000
OPEN_FILES = 256
PROCESSES = 64 + (os.cpu_count() or 1)  # of a worker, threads included: Numba starts one a core
WATCH_S = 0.1  # between two looks at what the workers take

# Refused in each jail: a way to other processes, to the network, to what nothing counts, or to the kernel's back rooms.
REFUSED = [
    "socket",
    "io_uring_setup",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "pidfd_getfd",
    "kcmp",
    "shmget",
    "semget",
    "msgget",
    "mq_open",
    "memfd_create",
    "memfd_secret",
    "add_key",
    "request_key",
    "keyctl",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "unshare",
    "setns",
    "mount",
    "umount2",
    "open_tree",
    "move_mount",
    "fsopen",
    "mount_setattr",
    "open_by_handle_at",
    "name_to_handle_at",
]
# Where Landlock alone stands between a worker and the user's files and processes, it does not see these.
REFUSED_WITHOUT_NAMESPACES = [
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "truncate",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "setxattrat",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "removexattrat",
    "pidfd_send_signal",
    "setpriority",
    "ioprio_set",
]
ON_ONESELF = [
    "kill",
    "tkill",
    "tgkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "prlimit64",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
]
# What CUDA's driver does at its start, or fails: it maps files without a name, and listens on a socket for processes that share
# its memory. With a GPU a worker may do so, but nobody is reached from there, nor let in.
OF_CUDA = ("memfd_create", "socket")
CUDA_SOCKETS = [
    kind | flags for kind in (1, 5) for flags in (0, 1 << 11, 1 << 19, 1 << 11 | 1 << 19)
]  # of streams, of packets
AF_UNIX, SOCK_DGRAM, SOCK_RAW, SOCK_TYPE = 1, 2, 3, 0xF
F_SETOWN, F_SETOWN_EX, FIOSETOWN, SIOCSPGRP = (
    8,
    15,
    0x8901,
    0x8902,
)  # whom the kernel sends a signal on input


def from_json(text):
    """The confinement that as_json wrote."""
    settings = json.loads(text)
    kind = {"none": Confinement, "bubblewrap": Namespaces, "landlock": Landlocked}[
        settings.pop("kind")
    ]
    return kind(**settings)


@dataclass
class Confinement:
    """No jail: a process group, limits of one process, nothing to read or to flood."""

    uid: int = None  # to become, from root
    processes: int = None  # the most that this user may have, threads included
    memory_bytes: int = MEMORY_BYTES
    has_gpu: bool = False  # CUDA maps more addresses than any limit
    scratch: str = None  # the folder to write in
    readable: tuple = ()
    devices: tuple = ()
    capabilities: tuple = ()  # what to keep from root

    kind = "none"

    def as_json(self):
        return json.dumps({"kind": self.kind, **asdict(self)})

    def enter(self) -> None:
        """What the warm process does first."""

    def fork(self):
        """Forks a worker: its process id, and 0 in the worker."""
        return os.fork()

    def shut_in(self) -> None:
        """What a worker does before it takes any request."""
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)
        with contextlib.suppress(OSError):  # Linux alone
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write(
                    "1000"
                )  # where memory is short, the largest worker goes before any other program
        mapped = None
        if os.path.exists("/proc/self/statm"):
            mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        for what, limit in (
            (
                resource.RLIMIT_AS,
                mapped + self.memory_bytes if mapped and not self.has_gpu else None,
            ),
            (resource.RLIMIT_NPROC, self.processes),
            (resource.RLIMIT_NOFILE, OPEN_FILES if self.kind != "none" else None),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, FILE_BYTES),
        ):
            if limit is not None:
                resource.setrlimit(what, (limit, limit))

    def watch(self, workers) -> None:
        """Looks at what the workers take together with their children."""

    def leave(self) -> None:
        """What the warm process does last."""

    def end(self, pid, workers):
        """Kills a worker and its children; returns how it had ended: an exit code, or minus a signal.

        workers: the process ids of the others.
        """
        done, status = os.waitpid(pid, os.WNOHANG)
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        if not done:
            _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)


class Jailed(Confinement):
    """What both jails share: a worker's children and what escapes from it end with it, and count with it."""

    def enter(self) -> None:
        if self.uid is not None:
            syscalls.become(self.uid, *self.capabilities, children=self.kind == "landlock")

    def shut_in(self) -> None:
        super().shut_in()
        os.environ.update(HOME=self.scratch, TMPDIR=self.scratch, COURSE_FOLDER=self.scratch)
        tempfile.tempdir = None  # is found again, in TMPDIR
        os.chdir(self.scratch)

    def watch(self, workers) -> None:
        for pid in workers:
            family = tree(pid)
            try:
                fits = memory_bytes(family, self.memory_bytes) <= self.memory_bytes
                fits = fits and self.disk_bytes(pid, family) <= SCRATCH_BYTES
            except OSError:  # it hides what it has, or nests too deep
                fits = False
            if not fits:
                kill([pid])
        self.clear(workers)

    def disk_bytes(self, pid, family):
        """What a worker's files take that no file system limits: those without a name, which a GPU's driver needs."""
        return unlinked_bytes(family) if self.has_gpu else 0

    def end(self, pid, workers):
        kill([pid])
        _, status = os.waitpid(pid, 0)
        self.clear(workers)
        return os.waitstatus_to_exitcode(status)

    def clear(self, workers) -> None:
        """Kills the children of the warm process that are no workers: a worker's, whose own parents have ended."""
        while escaped := set(children(os.getpid())) - set(workers):
            kill(escaped)
            for pid in escaped:
                os.waitpid(pid, 0)


class Namespaces(Jailed):
    """Inside bubblewrap: each worker has its own processes, its own /proc and its own /tmp besides."""

    kind = "bubblewrap"

    def enter(self) -> None:
        super().enter()
        self.own_processes = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        for covered in (
            "sys",
            "sysrq-trigger",
            "irq",
            "bus",
        ):  # by bubblewrap; a /proc in parts can't be mounted anew
            try:
                syscalls.call("umount2", f"/proc/{covered}".encode(), syscalls.MNT_DETACH)
            except OSError:
                pass

    def fork(self):
        syscalls.call(
            "unshare", syscalls.CLONE_NEWPID
        )  # of the children: the worker is the first, and all die with it
        pid = None
        try:
            pid = os.fork()
            return pid
        finally:
            if pid != 0:
                syscalls.call("setns", self.own_processes, syscalls.CLONE_NEWPID)

    def shut_in(self) -> None:
        syscalls.call("unshare", syscalls.CLONE_NEWNS)
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        safe = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("proc", "/proc", "proc", safe | syscalls.MS_NOEXEC)
        for folder in (self.scratch, "/dev/shm"):
            syscalls.mount(
                "tmpfs",
                folder,
                "tmpfs",
                safe,
                f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode=700",
            )
        super().shut_in()
        syscalls.keep_capabilities()
        syscalls.seccomp(rules(has_gpu=self.has_gpu))


class Landlocked(Jailed):
    """Landlock and seccomp, and a folder a worker."""

    kind = "landlock"

    def enter(self) -> None:
        super().enter()
        self.folders = {}  # of a worker, by its process id
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)

    def fork(self):
        folder = tempfile.mkdtemp(dir=self.scratch)
        if pid := os.fork():
            self.folders[pid] = folder
        else:
            self.scratch = folder
        return pid

    def shut_in(self) -> None:
        super().shut_in()
        own = f"/proc/{os.getpid()}"
        threads = [f"{own}/task"] if self.has_gpu else []  # CUDA's driver names its own, or fails
        devices = [*self.devices, "/dev/null", "/dev/zero", "/dev/full"]
        syscalls.landlock([*self.readable, own], [self.scratch, *threads], devices)
        syscalls.seccomp(rules(os.getpid(), self.has_gpu))

    def disk_bytes(self, pid, family):
        return folder_bytes(self.folders[pid]) + unlinked_bytes(family)

    def end(self, pid, workers):
        code = super().end(pid, workers)
        remove(self.folders.pop(pid))
        return code

    def leave(self) -> None:
        remove(self.scratch)  # a grader that was killed can't


def rules(alone=None, has_gpu=False):
    """The seccomp rules of a worker. alone: its process id, where it shares processes and files with the user."""
    rule = syscalls.filter_rule
    found = [rule(name) for name in REFUSED if not (has_gpu and name in OF_CUDA)]
    found += [
        rule("socketpair", argument=1, bits=(SOCK_TYPE, kind)) for kind in (SOCK_DGRAM, SOCK_RAW)
    ]  # send anywhere
    if has_gpu:
        found += [
            rule("socket", argument=0, unless=(AF_UNIX,)),
            rule("socket", argument=1, unless=CUDA_SOCKETS),
        ]
        found += [rule(name) for name in ("connect", "accept", "accept4")]
    found += [
        rule("clone3", syscalls.ENOSYS),
        rule("clone", argument=0, bits=(syscalls.CLONE_NEW_ANY, None)),
    ]
    if alone:
        empties = (os.O_TRUNC | os.O_ACCMODE, os.O_TRUNC)  # Landlock sees that from version 3 on
        found += [rule(name) for name in REFUSED_WITHOUT_NAMESPACES]
        found += [rule(name, argument=0, unless=(alone, 0)) for name in ON_ONESELF]
        found += [
            rule("openat2", syscalls.ENOSYS),
            rule("open", argument=1, bits=empties),
            rule("openat", argument=2, bits=empties),
            rule("fcntl", argument=1, equal=(F_SETOWN, F_SETOWN_EX)),
            rule("ioctl", argument=1, equal=(FIOSETOWN, SIOCSPGRP)),
        ]
    return found


# What processes take, and their end


def children(pid):
    """The process ids of a process's children."""
    found, gone = [], contextlib.suppress(FileNotFoundError, ProcessLookupError)
    with gone:
        for task in os.listdir(f"/proc/{pid}/task"):
            with (
                gone,
                open(f"/proc/{pid}/task/{task}/children") as file,
            ):  # a thread may end while others go on
                found += map(int, file.read().split())
    return found


def tree(pid):
    """A process id and those of all its descendants."""
    found = [pid]
    for each in found:  # which grows
        found += children(each)
    return found


def kill(roots) -> None:
    """Kills processes and their descendants. All are stopped first: what forks faster than it is found would go on."""
    stopped = set()
    while fresh := {pid for root in roots for pid in tree(root)} - stopped:
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in stopped:
        _signal(pid, signal.SIGKILL)


def _signal(pid, number) -> None:
    with contextlib.suppress(
        ProcessLookupError, PermissionError
    ):  # it has ended; its number may be another user's by now
        os.kill(pid, number)


def memory_bytes(pids, limit):
    """What processes hold beyond what they were forked with; beyond the limit, a page that several share counts once."""
    forked_with = _resident_bytes("self")
    upper = sum(
        max(0, own - before)
        for pid in pids
        for own, before in zip(_resident_bytes(pid), forked_with, strict=True)
    )
    return upper if upper <= limit else min(upper, sum(map(_proportional_bytes, pids)))


def _resident_bytes(pid):
    """What a process holds without a file, of files, and of shared memory."""
    try:
        with open(f"/proc/{pid}/status") as file:
            found = {
                line.split()[0]: int(line.split()[1]) << 10
                for line in file
                if line.startswith("Rss")
            }
    except (FileNotFoundError, ProcessLookupError):
        found = {}
    return [
        found.get(name, 0) for name in ("RssAnon:", "RssFile:", "RssShmem:")
    ]  # a zombie has none


def _proportional_bytes(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) << 10
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:  # it hides what it has
        return sys.maxsize


def folder_bytes(folder):
    """What the files below a folder take on the disk; more than any limit where there are too many to count."""
    total, count, folders = 0, 0, [folder]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except (FileNotFoundError, NotADirectoryError):  # gone, or something else by now
            continue
        count += len(entries)
        if count > SCRATCH_FILES:
            return SCRATCH_BYTES + 1
        for entry in entries:
            total += _blocks_bytes(entry.path, follow_symlinks=False)
        folders += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return total


def unlinked_bytes(pids):
    """What the files take that processes hold open without a name."""
    total = 0
    for pid in pids:
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
            total += sum(
                _blocks_bytes(f"/proc/{pid}/fd/{number}", unlinked=True) for number in numbers
            )
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            if any(
                _resident_bytes(pid)
            ):  # it hides what it has; a zombie, which is root's, has nothing
                raise
    return total


def _blocks_bytes(path, follow_symlinks=True, unlinked=False):
    try:
        file = os.stat(path, follow_symlinks=follow_symlinks)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (
        0
        if unlinked and (file.st_nlink or not stat.S_ISREG(file.st_mode))
        else file.st_blocks * 512
    )


def remove(folder) -> None:
    """Removes what a worker left, however deep and whatever its modes."""
    try:
        os.rmdir(folder)
    except OSError:
        subprocess.run(["chmod", "-R", "u+rwX", folder], stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", folder], stderr=subprocess.DEVNULL)


def main():
    """Tries the confinement that the command line tells: the first thing that fails goes to stderr."""
    confinement = from_json(sys.argv[1])
    errors = os.dup(2)
    try:
        confinement.enter()
        pid = confinement.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        confinement.shut_in()
        open(__file__).close()  # Python can still be read
    except OSError as problem:
        os.write(errors, str(problem).encode())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
