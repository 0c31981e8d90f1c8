"""The processes that a worker starts: found, whatever they do, and killed."""

import contextlib
import os
import signal
from collections.abc import Iterable


def children(pid: int) -> list[int]:
    """The process ids of a process's children."""
    pids: list[int] = []
    ended = contextlib.suppress(FileNotFoundError, ProcessLookupError)
    with ended:
        for task in os.listdir(f"/proc/{pid}/task"):
            # A thread may end while others go on.
            with ended, open(f"/proc/{pid}/task/{task}/children") as file:
                pids += map(int, file.read().split())
    return pids


def tree(pid: int) -> list[int]:
    """A process id and those of all its descendants."""
    pids = [pid]
    for parent in pids:  # the list grows meanwhile
        pids += children(parent)
    return pids


def end_first(pid: int) -> None:
    """When memory runs out, this process and its descendants end before any other.

    What a process with the rights of root sets is also the least that the process may set itself.
    It may have started others before this is set, which do not inherit it: a process is set before
    its children are looked for.
    """
    pids = [pid]
    for one in pids:  # the list grows meanwhile
        with contextlib.suppress(OSError), open(f"/proc/{one}/oom_score_adj", "w") as file:
            file.write("1000")  # only Linux has this file
        pids += children(one)


def kill(roots: Iterable[int]) -> None:
    """Kills processes and their descendants.

    All are stopped before any is killed. Otherwise a fork bomb outruns the search.
    """
    stopped: set[int] = set()
    while running := {pid for root in roots for pid in tree(root)} - stopped:
        for pid in running:
            _signal(pid, signal.SIGSTOP)
        stopped |= running
    for pid in stopped:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    # It may have ended, and another user's process may have its number by now.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
