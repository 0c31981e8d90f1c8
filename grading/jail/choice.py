"""The sandbox of a class's submissions: bubblewrap, or Landlock and seccomp. choose() gives the best that this machine has."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common.paths import ROOT
from grading.jail import cgroups, confinement, syscalls

TRIAL_S = 60.0
GROUP_BYTES = (
    3 * confinement.MEMORY_BYTES
)  # of the warm process and all its workers, of which a check of ranks has several
GROUP_PROCESSES = 1024
SYSTEM = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/mime.types",
    "/etc/fonts",
    "/sys",
]
# Of /proc, where it can't be mounted anew: nothing of other processes.
PROC = [
    "cpuinfo",
    "meminfo",
    "stat",
    "filesystems",
    "version",
    "loadavg",
    "uptime",
    "sys",
    "driver",
    "devices",
    "modules",
]
DEVICES = ["/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dxg"]
ENVIRONMENT = [
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "TRITON_LIBCUDA_PATH",
    "NUMBA_CUDA_USE_NVIDIA_BINDING",
    "VIRTUAL_ENV",
]  # no token or key of the user's


class JailError(Exception):
    """There is no jail here, or it does not hold; the text is a sentence for the instructor."""


@dataclass(frozen=True)
class Jail:
    """None: for one's own notebook, and where the instructor says that there shall be none."""

    name = "none"

    def problem(self) -> None:
        """Why this machine can't have it, in a few words; None where it can."""

    def command(self, command):
        """The command line that runs a command inside."""
        return command

    def environment(self):
        """The environment of what runs inside."""
        return dict(os.environ)

    def group(self):
        """A control group for all that runs inside: what to put before the command line, while it lasts."""
        return contextlib.nullcontext([])

    @contextlib.contextmanager
    def confinement(self):
        """What the warm process and its workers take on; at the end, what they left is removed."""
        yield confinement.Confinement(has_gpu=has_gpu())


class _Tried(Jail):
    """A jail that is tried before it is used."""

    def problem(self):
        if not syscalls.known_machine():
            return "only Linux on x86-64 or arm64 has it"
        try:
            with self.confinement() as inside:
                command = [sys.executable, "-I", "-S", "-c", _TRIAL, str(ROOT), inside.as_json()]
                trial = subprocess.run(
                    self.command(command),
                    env=self.environment(),
                    capture_output=True,
                    text=True,
                    timeout=TRIAL_S,
                )
        except subprocess.TimeoutExpired:
            return "it did not start in time"
        except OSError as problem:
            return problem.strerror or str(problem)
        lines = trial.stderr.strip().splitlines()
        return None if trial.returncode == 0 else (lines or [f"exit code {trial.returncode}"])[-1]

    def environment(self):
        own = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        return own | {"USER": "worker", "LOGNAME": "worker", "MPLBACKEND": "agg"}

    def group(self):
        return cgroups.group(GROUP_BYTES, GROUP_PROCESSES)


_TRIAL = "import sys; sys.path.insert(0, sys.argv.pop(1)); from grading.jail import confinement; sys.exit(confinement.main())"


@dataclass(frozen=True)
class Bubblewrap(_Tried):
    """Namespaces: a file system of a few folders, no network, no other process; each worker for itself."""

    name = "bubblewrap"

    def problem(self):
        return super().problem() if shutil.which("bwrap") else "bubblewrap is not installed"

    def command(self, command):
        root = os.geteuid() == 0
        options = [
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
        ]
        options += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
        options += (
            ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user"]
        )
        paths = [path for path in readable() if os.path.exists(path)]
        for parent in sorted(
            {str(parent) for path in paths for parent in Path(path).parents} - {"/"}
        ):
            options += ["--perms", "0755", "--dir", parent]  # bubblewrap's own choice is 0700
        for path in paths:
            if os.path.islink(path) and Path(path).parent == Path(
                "/"
            ):  # /lib, where it is a part of /usr
                options += ["--symlink", os.readlink(path), path]
            else:
                options += ["--ro-bind", path, path]
        options += [
            "--proc",
            "/proc",
            "--perms",
            "1777",
            "--tmpfs",
            scratch(),
            "--chdir",
            scratch(),
        ]
        options += ["--perms", "0755", "--tmpfs", "/dev", "--perms", "1777", "--dir", "/dev/shm"]
        options += [
            "--symlink",
            "/proc/self/fd",
            "/dev/fd",
        ]  # --dev would bring terminals, and a user namespace for them
        for name in ("null", "zero", "full", "random", "urandom"):
            options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        for path in devices():
            options += ["--perms", "0755", "--dir", os.path.dirname(path), "--dev-bind", path, path]
        return ["bwrap", *options, "--", *command]

    @contextlib.contextmanager
    def confinement(self):
        uid = free_uid() if os.geteuid() == 0 else None
        yield confinement.Namespaces(
            uid=uid,
            processes=process_limit(namespaced=True),
            has_gpu=has_gpu(),
            scratch=scratch(),
            capabilities=(syscalls.CAP_SYS_ADMIN,),
        )


@dataclass(frozen=True)
class Landlock(_Tried):
    """Landlock for files, seccomp for the network and for other processes, limits for the rest."""

    name = "landlock"

    def problem(self):
        if not (syscalls.known_machine() and syscalls.landlock_version()):
            return "this kernel has no Landlock"
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return "this kernel does not tell a process's children"
        return super().problem()

    @contextlib.contextmanager
    def confinement(self):
        uid = free_uid() if os.geteuid() == 0 else None
        scratch = tempfile.mkdtemp(prefix="grading-")
        if uid is not None:
            os.chown(scratch, uid, uid)
        try:
            yield confinement.Landlocked(
                uid=uid,
                processes=process_limit(namespaced=False),
                has_gpu=has_gpu(),
                scratch=scratch,
                readable=(
                    *readable(),
                    "/dev/urandom",
                    "/dev/random",
                    *(f"/proc/{name}" for name in PROC),
                ),
                devices=tuple(devices()),
                capabilities=_to_read_python(uid),
            )
        finally:
            confinement.remove(scratch)


JAILS = {jail.name: jail for jail in (Bubblewrap(), Landlock(), Jail())}


def choose(word=None):
    """The jail of this name (bubblewrap, landlock, none), or the best that works here; JailError says why there is none."""
    if word is not None:
        if word not in JAILS:
            raise JailError(f"there is no jail {word!r}: there are {', '.join(JAILS)}")
        if problem := JAILS[word].problem():
            raise JailError(f"the jail {word} can't be had here ({problem})")
        return JAILS[word]
    if not syscalls.known_machine():
        raise JailError(
            "No sandbox is available on this machine: only Linux on x86-64 or arm64 has one. Grade "
            "there, or without a sandbox where nothing can be harmed (--unsafe)."
        )
    problems = {}
    for name in ("bubblewrap", "landlock"):
        problems[name] = JAILS[name].problem()
        if problems[name] is None:
            return JAILS[name]
    told = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    raise JailError(
        f"this machine has no jail for code that nobody trusts ({told}): install bubblewrap (Debian, Ubuntu: apt-get install "
        "bubblewrap), or grade without one where nothing can be harmed (--unsafe)"
    )


def readable():
    """The files and folders that a worker may read: the system's, Python's, and of this project what the worker needs."""
    of_python = {sys.prefix, sys.base_prefix, *filter(_is_packages, sys.path)}
    of_python |= {os.path.realpath(path) for path in of_python}
    outside = {
        path
        for path in of_python
        if not Path(path).is_relative_to(ROOT) and not ROOT.is_relative_to(path)
    }
    outside = {
        path
        for path in outside
        if not any(Path(path).is_relative_to(folder) for folder in ("/usr", "/lib"))
    }
    inside = {path for path in of_python if Path(path).is_relative_to(ROOT) and Path(path) != ROOT}
    return [*SYSTEM, *sorted(outside), *sorted(inside), str(ROOT / "common"), str(ROOT / "grading")]


def scratch() -> str:
    """The folder that a worker writes to, in a file system of its own: /tmp, unless the course or its Python lies there."""
    return "/scratch" if any(Path(path).is_relative_to("/tmp") for path in readable()) else "/tmp"


def _is_packages(path):
    """Whether an entry of sys.path is a folder of packages; the project's own and the present folder are none."""
    named = path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.path.isdir(path) and (
        named or os.path.basename(path) in ("site-packages", "dist-packages")
    )


def devices():
    """The device files of GPUs."""
    return sorted(
        path for pattern in DEVICES for path in glob.glob(pattern) if not os.path.isdir(path)
    )


def has_gpu():
    return bool(devices())


def free_uid():
    """A user id that no account and no process has, so that limits a user count for one warm process alone."""
    taken = {account.pw_uid for account in pwd.getpwall()} | {uid for _, uid in _processes()}
    apart = (
        os.getpid() + 64 * os.stat("/proc/self/ns/pid").st_ino
    )  # two containers don't see each other's processes
    first = 61184 + apart % 4096  # systemd's range for users of one run
    return next(uid for uid in (*range(first, 65280), *range(61184, first)) if uid not in taken)


def process_limit(namespaced):
    """The most processes and threads that the workers' user may have, counting those it has already where the kernel does."""
    release = tuple(
        int("".join(filter(str.isdigit, part)) or 0) for part in os.uname().release.split(".")[:2]
    )
    if os.geteuid() == 0 or (
        namespaced and release >= (5, 14)
    ):  # then a user namespace has its own count
        return confinement.PROCESSES
    own = 0
    for path, uid in _processes():
        with contextlib.suppress(OSError):
            own += len(os.listdir(f"{path}/task")) if uid == os.getuid() else 0
    return own + confinement.PROCESSES


def _processes():
    """The folder and the user of each process; one that ends while they are listed is left out."""
    for path in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError):
            yield path, os.stat(path).st_uid


def _to_read_python(uid):
    """The capability without which this user can't read Python (root's own, say): Landlock still bounds what it opens."""
    if uid is None:
        return ()
    try:
        trial = subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"open({str(ROOT / 'grading' / 'worker' / 'process.py')!r})"],
            user=uid, group=uid, extra_groups=[], capture_output=True,
        )  # fmt: skip
        if trial.returncode == 0:
            return ()
    except PermissionError:
        pass
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    has = int(status["CapEff"], 16)
    wanted = (syscalls.CAP_DAC_READ_SEARCH, syscalls.CAP_DAC_OVERRIDE)
    return tuple(capability for capability in wanted if has >> capability & 1)[:1]
