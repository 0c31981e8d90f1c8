"""What tests that start processes ask about them."""

import contextlib
import os
import time
from pathlib import Path

import psutil

# Seconds, by which a test knows its own processes: other gates may run on this machine.
SLEEP = f"12345.{os.getpid()}"


def sleeping():
    """The command lines in /proc of the processes that sleep so."""
    sleeping = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", SLEEP.encode()]:
                sleeping.append(path)
    return sleeping


def dies_on_bob(name):
    """The name in capitals. It is here, where nothing imports PyTorch: a process that reads
    notebooks has no memory for the libraries of its CUDA build."""
    if name == "bob":
        os._exit(1)
    return name.upper()


def alive(process):
    """Whether a psutil.Process runs: the same one, not another that has its number by now."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(holds, within_s=60):
    """Waits until holds() is true; fails if it is not in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
