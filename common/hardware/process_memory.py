"""The most memory that a call takes, as the kernel counts it."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

FORGET = Path("/proc/self/clear_refs")


class Resident(NamedTuple):
    """The bytes in memory of a process: now, and the most that it has had so far."""

    now: int
    most: int


def beyond(before: Resident, after: Resident) -> int:
    """The most bytes that a process took between these two, beyond those that it had before.

    0 if it has had more at some earlier time: then the kernel does not say.
    """
    return after.most - before.now if after.most > before.most else 0


def of_call(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What a function returns, and the most bytes that this process took meanwhile.

    0 bytes where the system does not count them, as on macOS.
    """
    with contextlib.suppress(OSError):
        FORGET.write_text("5")  # the most so far becomes what there is now
    before = resident("self")
    result = function(*arguments)
    return result, beyond(before, resident("self"))


def resident(pid: int | str) -> Resident:
    """What a process has in memory, and the most that it has had; zeros if it has ended."""
    sizes = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("VmRSS:", "VmHWM:")):
                name, kib, _ = line.split()
                sizes[name] = int(kib) << 10
    return Resident(sizes.get("VmRSS:", 0), sizes.get("VmHWM:", 0))
