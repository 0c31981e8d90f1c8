"""What a worker tries before each class, so that its sandbox is proved: see grading.proof.

This text is executed in a worker, as a student's cell would be. Afterwards the grader
looks at what this text cannot see itself, such as whether a message arrived.
"""

import contextlib
import os
import signal
import socket


def escapes(hidden: list[str], outside: str, port: int, processes: int) -> list[str]:
    """What the worker could do, in words.

    hidden: files and folders that no worker may read. outside: a folder in which anyone may write.
    port: at which the grader listens on 127.0.0.1. processes: how many a worker may start.
    """
    worked = [f"read {path}" for path in hidden if read(path)]
    for name in ("secret", "written"):
        write(os.path.join(outside, name))
    send_datagrams(os.path.join(outside, "mailbox"))
    if connect(port):
        worked.append("reach the network")
    too_many = processes + 8
    if fork(too_many) == too_many:
        worked.append(f"start {too_many} processes")
    return worked


def send_signals(grader: int) -> None:
    """Sends a signal to the grader, by its process id, and to the fork server."""
    for pid in (grader, os.getppid()):
        if pid not in (os.getpid(), 0):  # 0: the fork server is not visible from here
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)


def read(path: str) -> bool:
    """Whether there is anything to read."""
    try:
        if os.path.isdir(path):
            return bool(os.listdir(path))
        with open(path, "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def write(path: str) -> None:
    with contextlib.suppress(OSError), open(path, "w") as file:
        file.write("written")


def connect(port: int) -> bool:
    """Whether the grader's port can be reached."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except OSError:
        return False


def send_datagrams(path: str) -> None:
    """Sends to a socket of the file system, from a new socket and from one of a pair."""
    with contextlib.suppress(OSError):
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"written", path)
    with contextlib.suppress(OSError):
        socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"written", path)


def fork(most: int) -> int:
    """How many children there can be at once, up to this many. They end by themselves."""
    children = 0
    with contextlib.suppress(OSError):
        while children < most:
            if not os.fork():
                os.closerange(0, 256)  # with the worker's connection: its end must be seen
                signal.alarm(20)
                signal.pause()
                os._exit(0)
            children += 1
    return children
