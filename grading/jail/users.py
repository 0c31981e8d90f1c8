"""The user that a worker runs as. From root, it is one that owns nothing on this machine."""

import contextlib
import glob
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from common.paths import ROOT
from grading.jail import limits, syscalls

FIRST_UID, LAST_UID = 61184, 65279  # systemd's range for users that exist for one run


def uid_from_root() -> int | None:
    """The user that the fork server becomes; None if the grader isn't root and can't choose."""
    return free_uid() if os.geteuid() == 0 else None


def free_uid() -> int:
    """A user id that no account and no process has: what the kernel counts per user is its own."""
    taken = {account.pw_uid for account in pwd.getpwall()} | {uid for _, uid in _processes()}
    # Two containers don't see each other's processes. The number of this process and that of its
    # namespace make it unlikely that both choose the same user.
    offset = os.getpid() + 64 * os.stat("/proc/self/ns/pid").st_ino
    first = FIRST_UID + offset % (LAST_UID + 1 - FIRST_UID)
    candidates = (*range(first, LAST_UID + 1), *range(FIRST_UID, first))
    return next(uid for uid in candidates if uid not in taken)


def process_limit(namespaced: bool) -> int:
    """The most processes and threads that the worker's user may have.

    The kernel also counts those that this user has outside of the sandbox, unless the worker
    has a user of its own, or a user namespace that counts by itself (from Linux 5.14).
    """
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    counts_by_itself = release is not None and tuple(map(int, release.groups())) >= (5, 14)
    if os.geteuid() == 0 or (namespaced and counts_by_itself):
        return limits.PROCESSES
    own = 0
    for path, uid in _processes():
        if uid == os.getuid():
            with contextlib.suppress(OSError):  # it has ended
                own += len(os.listdir(f"{path}/task"))
    return own + limits.PROCESSES


def _processes() -> Iterator[tuple[str, int]]:
    """The folder in /proc and the user of each process; not of those that end meanwhile."""
    for path in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError):
            yield path, os.stat(path).st_uid


def capabilities_to_read_python(uid: int | None) -> tuple[int, ...]:
    """The capability that this user needs to read Python, if only root may, as in /root.

    Landlock still refuses it all other files.
    """
    if uid is None or _reads_python(uid):
        return ()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    effective = int(status["CapEff"], 16)
    for capability in (syscalls.CAP_DAC_READ_SEARCH, syscalls.CAP_DAC_OVERRIDE):
        if effective >> capability & 1:
            return (capability,)
    return ()


def _reads_python(uid: int) -> bool:
    file = ROOT / "grading" / "worker" / "process.py"
    command = [sys.executable, "-I", "-S", "-c", f"open({str(file)!r})"]
    try:
        trial = subprocess.run(command, user=uid, group=uid, extra_groups=[], capture_output=True)
    except PermissionError:  # it may not even start Python
        return False
    return trial.returncode == 0
