"""Control groups: limits on what all processes of a sandbox take together.

They need root, or a part of the system's groups that is delegated to this user; without them the
other limits still hold. Linux has two versions. In version 1 each controller (memory, pids) has a
tree of its own; both versions may be mounted, each with some of the controllers.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
# The file of each limit, in version 2 and in version 1.
LIMITS = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max", "pids.max"),
}
# Version 2, if the machine has swap: without this, what memory.max refuses would go there.
SWAP = "memory.swap.max"
# A shell joins the groups, then becomes the command: the command never runs outside of them.
JOIN = (
    'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'
)
ENDING_S = 20.0


@contextlib.contextmanager
def group(memory_bytes: int, processes: int) -> Iterator[list[str]]:
    """What to put before a command so that it runs under these limits; [] if none is possible.

    At the end, what is left of the command is killed, whoever its parent is by now.
    """
    made: list[Path] = []
    try:
        for parent, files in parents().items():
            _remove_abandoned(parent)
            made.append(_make(parent, files, {"memory": memory_bytes, "pids": processes}))
        command = ["sh", "-c", JOIN, "sh", *map(str, made), "--"] if made else []
        # A user who may make a group may not always join it.
        subprocess.run([*command, "true"], check=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        remove(made)
        made, command = [], []
    try:
        yield command
    finally:
        remove(made)


def _make(parent: Path, files: dict[str, str], most: dict[str, int]) -> Path:
    folder = parent / f"{_prefix()}{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        for name, file in files.items():
            (folder / file).write_text(str(most[name]))
        if (folder / SWAP).exists():
            (folder / SWAP).write_text("0")
    except OSError:
        remove([folder])
        raise
    return folder


def _prefix() -> str:
    """The prefix of our groups' names: the namespace to which the process id after it belongs."""
    return f"grading-{os.stat('/proc/self/ns/pid').st_ino}-"


def _remove_abandoned(parent: Path) -> None:
    """Removes the groups of graders that were killed."""
    groups = parent.glob(f"{_prefix()}*")
    remove([path for path in groups if not Path("/proc", path.name.split("-")[2]).exists()])


def parents() -> dict[Path, dict[str, str]]:
    """{folder to make a group in: {limit: its file}}. OSError if some limit is not available."""
    lines = OWN.read_text().splitlines()
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    files: dict[Path, dict[str, str]] = {}
    together: dict[str, str] = {}
    for name, (version_2, version_1) in LIMITS.items():
        path = next((path for names, path in own.items() if name in names.split(",")), None)
        if path is None:
            together[name] = version_2
        else:
            folder = MOUNT / name / path.strip("/")
            files.setdefault(folder if folder.is_dir() else MOUNT / name, {})[name] = version_1
    if together:  # in version 2 a process is in one group, which has all the limits
        files[_delegating(MOUNT / own.get("", "/").strip("/"), set(together))] = together
    return files


def _delegating(folder: Path, names: set[str]) -> Path:
    """The nearest folder upwards that delegates these controllers and that this user may write.

    In version 2 a group that delegates controllers holds no processes: ours can be made there.
    """
    for parent in (folder, *folder.parents):
        control = parent / "cgroup.subtree_control"
        if not control.exists() or not names <= set(control.read_text().split()):
            continue
        if os.access(parent, os.W_OK):
            return parent
    raise OSError(f"no control group for {', '.join(names)}")


def remove(folders: Iterable[Path]) -> None:
    """Kills what runs in groups, and removes them, soon after the last process has ended."""
    for folder in folders:
        deadline = time.monotonic() + ENDING_S
        while folder.is_dir() and time.monotonic() < deadline:
            try:
                _kill(folder)
                folder.rmdir()
            except PermissionError:  # another user's
                break
            except OSError:  # a process has not ended yet, or another grader was faster
                time.sleep(0.02)


def _kill(folder: Path) -> None:
    if (folder / "cgroup.kill").exists():  # version 2, from Linux 5.14
        (folder / "cgroup.kill").write_text("1")
        return
    for pid in map(int, (folder / "cgroup.procs").read_text().split()):
        if pid:  # 0 stands for a process of another namespace
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
