"""A control group: limits on what all the processes of a jail take together, where the system lets this user make one.

Of version 2, or of version 1 where a controller still has its own tree; where both are mounted, each limit where it is had.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
LIMITS = {  # the files of version 2 and of version 1
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max", "pids.max"),
}
SWAP = (
    "memory.swap.max"  # of version 2, where there is swap: what memory.max forbids would go there
)
JOIN = (
    'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'
)
ENDING_S = 20.0


@contextlib.contextmanager
def group(memory_bytes, processes):
    """What to put before a command so that it runs under these limits; nothing where there are no groups to be had.

    At the end, what is left of the command ends, whoever its parent is by now.
    """
    made, command = [], []
    try:
        limits = {"memory": memory_bytes, "pids": processes}
        for parent, names in parents().items():
            old = parent.glob(f"{_prefix()}*")
            remove(
                [each for each in old if not Path("/proc", each.name.split("-")[2]).exists()]
            )  # of a grader that was killed
            folder = parent / f"{_prefix()}{os.getpid()}-{time.monotonic_ns()}"
            folder.mkdir()
            made.append(folder)
            for name, file in names.items():
                (folder / file).write_text(str(limits[name]))
            if (folder / SWAP).exists():
                (folder / SWAP).write_text("0")
        command = ["sh", "-c", JOIN, "sh", *map(str, made), "--"] if made else []
        subprocess.run(
            [*command, "true"], check=True, stderr=subprocess.DEVNULL
        )  # who may make a group may not always join it
    except (OSError, subprocess.CalledProcessError):
        remove(made)
        made, command = [], []
    try:
        yield command
    finally:
        remove(made)


def _prefix() -> str:
    """What the names of these groups begin with, in which the number of a process means what it means here."""
    return f"grading-{os.stat('/proc/self/ns/pid').st_ino}-"


def parents():
    """{folder to make a group in: {limit: its file}}; OSError where some limit can't be had."""
    own = dict(
        line.split(":", 2)[1:] for line in OWN.read_text().splitlines()
    )  # {controllers: path}
    found, together = {}, {}
    for name, (unified, separate) in LIMITS.items():
        path = next((path for names, path in own.items() if name in names.split(",")), None)
        if path is None:
            together[name] = unified
        else:  # version 1: each controller has its own tree
            folder = MOUNT / name / path.strip("/")
            found.setdefault(folder if folder.is_dir() else MOUNT / name, {})[name] = separate
    if together:  # version 2: a process is in one group
        found[_delegating(MOUNT / own.get("", "/").strip("/"), set(together))] = together
    return found


def _delegating(folder, names):
    """The nearest folder from here upwards that hands these controllers to the groups in it, and lets this user make one.

    There a group breaks no rule: where controllers are handed on there are no processes.
    """
    for each in (folder, *folder.parents):
        control = each / "cgroup.subtree_control"
        if (
            control.exists()
            and names <= set(control.read_text().split())
            and os.access(each, os.W_OK)
        ):
            return each
    raise OSError(f"no control group for {', '.join(names)}")


def remove(folders) -> None:
    """Ends what runs in groups, and removes them, which takes a moment after the last process has ended."""
    for folder in folders:
        deadline = time.monotonic() + ENDING_S
        while folder.is_dir() and time.monotonic() < deadline:
            try:
                _end(folder)
                folder.rmdir()
            except PermissionError:  # another user's
                break
            except OSError:  # something has not ended yet, or another grader was faster
                time.sleep(0.02)


def _end(folder) -> None:
    """Kills all processes of a group."""
    if (folder / "cgroup.kill").exists():  # version 2, Linux 5.14 or newer
        (folder / "cgroup.kill").write_text("1")
        return
    for pid in map(int, (folder / "cgroup.procs").read_text().split()):
        if pid:  # 0 stands for one that is not to be seen from here
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
