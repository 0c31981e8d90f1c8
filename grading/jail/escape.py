"""What a worker tries to prove its jail: this text is executed in one as a student's cell would be."""

import os
import signal
import socket


def escapes(hidden, outside, port, processes):
    """What of all this worked, in words; whether a write or a datagram came out, the grader sees itself.

    hidden: files and folders not to be read. outside: a folder that anyone may write in. port: on which the grader listens at
    127.0.0.1. processes: how many there may be at once.
    """
    found = [f"read {path}" for path in hidden if read(path)]
    for name in ("secret", "written"):
        write(os.path.join(outside, name))
    post(os.path.join(outside, "mailbox"))
    if reach(port):
        found.append("reach the network")
    if multiply(processes + 8) >= processes + 8:
        found.append(f"start {processes + 8} processes")
    return found


def call_out(grader) -> None:
    """Sends a signal to the grader, by its process id, which listens; then to the process that this one is forked from."""
    for pid in (grader, os.getppid()):
        if pid not in (os.getpid(), 0):
            hail(pid)


def read(path):
    """Whether there is anything to read."""
    try:
        return bool(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
    except OSError:
        return False


def write(path) -> None:
    try:
        with open(path, "w") as file:
            file.write("written")
    except OSError:
        pass


def reach(port) -> bool | None:
    """Whether anything can be reached."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except OSError:
        return False


def post(path) -> None:
    """Sends a datagram to a socket of the file system: from a new socket, and from one of a pair."""
    for make in (socket.socket, lambda *kind: socket.socketpair(*kind)[0]):
        try:
            make(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"written", path)
        except OSError:
            pass


def hail(pid) -> None:
    try:
        os.kill(pid, signal.SIGUSR1)
    except OSError:
        pass


def multiply(count):
    """How many children there can be at once, up to count; they end by themselves where nothing else ends them."""
    children = 0
    try:
        while children < count:
            if not os.fork():
                os.closerange(0, 256)  # the wire, too: the grader shall see the worker's end
                signal.alarm(20)
                signal.pause()
                os._exit(0)
            children += 1
    except OSError:
        pass
    return children
