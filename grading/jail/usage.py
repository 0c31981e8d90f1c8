"""What a worker's processes take together: memory, and files on the disk."""

import contextlib
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterable

from grading.jail import limits

TOO_MUCH = sys.maxsize  # more than any limit
ENDED = (FileNotFoundError, ProcessLookupError)
AWAKE = ("R", "D")  # a thread that computes or waits for a processor; one that waits for a disk


def mapped_bytes() -> int | None:
    """The addresses that this process has mapped; None if the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except FileNotFoundError:
        return None


def limit_memory(count: int) -> None:
    """Lets this process map so many bytes more; beyond that, it gets a MemoryError.

    Processes that it starts have the same limit, until no_memory_limit is called for them.
    """
    if mapped := mapped_bytes():
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (mapped + count, most))


def no_memory_limit(pid: int) -> None:
    """Lifts the limit that a process of ours has from its parent: it sets its own."""
    if hasattr(resource, "prlimit"):
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        with contextlib.suppress(OSError):  # it has ended, or is another user's by now
            resource.prlimit(pid, resource.RLIMIT_AS, (most, most))


def memory_bytes(pids: Iterable[int], limit: int) -> int:
    """What processes hold beyond what they were forked with.

    Up to the limit, a page that several share counts for each. Only beyond it, when the exact
    figure decides, does it count once, because that takes long to find out.
    """
    pids = list(pids)
    forked_with = _resident_bytes("self")
    upper_bound = sum(
        max(0, own - before)
        for pid in pids
        for own, before in zip(_resident_bytes(pid), forked_with, strict=True)
    )
    if upper_bound <= limit:
        return upper_bound
    return min(upper_bound, sum(map(_proportional_bytes, pids)))


def held_bytes(pids: Iterable[int]) -> int:
    """What processes hold beyond what they were forked with, on no disk or swapped out.

    Pages of files do not count: which of them are in memory depends on other programs, too.
    """
    forked_with = sum(_held_bytes("self"))
    return sum(max(0, sum(_held_bytes(pid)) - forked_with) for pid in pids)


def _held_bytes(pid: int | str) -> list[int]:
    sizes = _sizes(pid)
    return [sizes.get(name, 0) for name in ("RssAnon:", "RssShmem:", "VmSwap:")]


def processor_ms(pids: Iterable[int]) -> int | None:
    """What processes have computed, with those that they started and that have ended.

    None if the system does not say.
    """
    ticks, known = 0, False
    for pid in pids:
        if fields := _status_of(f"/proc/{pid}/stat"):
            known = True
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks * 1000 // os.sysconf("SC_CLK_TCK") if known else None


def are_asleep(pids: Iterable[int]) -> bool:
    """Whether no thread of these processes runs, waits for a processor, or for a disk."""
    for pid in pids:
        with contextlib.suppress(*ENDED):
            for task in os.listdir(f"/proc/{pid}/task"):
                fields = _status_of(f"/proc/{pid}/task/{task}/stat")
                if fields and fields[0] in AWAKE:
                    return False
    return True


def _status_of(path: str) -> list[str]:
    """The fields of a process or thread after its name, which may hold anything; [] at its end."""
    with contextlib.suppress(*ENDED), open(path, errors="replace") as file:
        return file.read().rpartition(")")[2].split()
    return []


def no_more_files(pids: Iterable[int]) -> None:
    """From now on, these processes can write no file: what is on the disk is in no count."""
    if hasattr(resource, "prlimit"):
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


def _resident_bytes(pid: int | str) -> list[int]:
    """What a process holds without a file, of files, and of shared memory."""
    sizes = _sizes(pid)
    return [sizes.get(name, 0) for name in ("RssAnon:", "RssFile:", "RssShmem:")]


def _sizes(pid: int | str) -> dict[str, int]:
    """{"RssAnon:": bytes, ...} of a process, as the kernel counts them; {} if it has ended."""
    sizes = {}
    with contextlib.suppress(*ENDED), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(("Rss", "VmSwap")):
                name, kib, _ = line.split()
                sizes[name] = int(kib) << 10
    return sizes


def _proportional_bytes(pid: int) -> int:
    """What a process holds; of a page that n processes share, an n-th."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) << 10
    except ENDED:
        return 0
    except PermissionError:  # it hides what it has
        return TOO_MUCH


def folder_bytes(folder: str | os.PathLike[str]) -> int:
    """What the files below a folder take on the disk; TOO_MUCH if there are too many to count."""
    total = count = 0
    folders = [os.fspath(folder)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except (FileNotFoundError, NotADirectoryError):  # the worker removed or replaced it
            continue
        count += len(entries)
        if count > limits.SCRATCH_FILES:
            return TOO_MUCH
        for entry in entries:
            # Never follow a link: it could lead to the instructor's files, or in a circle.
            if file := _stat(entry.path, follow_symlinks=False):
                total += _disk_bytes(file)
        folders += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return total


def unlinked_bytes(pids: Iterable[int]) -> int:
    """What the open files without a name take; no folder shows them. OSError if one is hidden."""
    total = 0
    for pid in pids:
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                file = _stat(f"/proc/{pid}/fd/{number}")
                if file and stat.S_ISREG(file.st_mode) and not file.st_nlink:
                    total += _disk_bytes(file)
        except ENDED:
            continue
        except PermissionError:
            if any(_resident_bytes(pid)):  # not for a zombie, which belongs to root and has nothing
                raise
    return total


def _stat(path: str, follow_symlinks: bool = True) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow_symlinks)
    except ENDED:
        return None


def _disk_bytes(file: os.stat_result) -> int:
    return file.st_blocks * 512


def remove(folder: str) -> None:
    """Removes what a worker left, however deep it is and whoever may read it."""
    try:
        os.rmdir(folder)
    except OSError:
        subprocess.run(["chmod", "-R", "u+rwX", folder], stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", folder], stderr=subprocess.DEVNULL)
