"""The proof that a jail holds, before it grades: a worker in it tries to get out."""

import contextlib
import os
import signal
import socket
import tempfile
import time
from pathlib import Path

from common.paths import ROOT
from grading.jail import confinement, escape
from grading.jail.choice import TRIAL_S, JailError
from grading.worker.client import ForkServer
from grading.worker.errors import WorkerEnded


def prove(jail, hidden=()) -> None:
    """Has a worker try to get out: to read, to write, to reach the network and the grader, to multiply.

    hidden: paths besides this project's that no worker may read: the submissions, the results. JailError names what worked.
    """
    if jail.name == "none":
        return
    fork_server, caught = ForkServer(jail=jail, bare=True), []
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mailbox,
        tempfile.TemporaryDirectory() as outside,
        _heard(signal.SIGUSR1, caught),
        contextlib.closing(fork_server),
    ):
        secret = Path(outside) / "secret"
        secret.write_text("secret")
        mailbox.bind(f"{outside}/mailbox")
        mailbox.setblocking(False)
        for path in (outside, secret, f"{outside}/mailbox"):
            os.chmod(path, 0o777)  # so that nothing but the jail stands before it
        paths = [
            *map(str, hidden),
            str(secret),
            outside,
            str(ROOT / "solutions"),
            str(ROOT / "tests"),
        ]
        try:
            worker = fork_server.fork()
            warm, deadline = fork_server.process, time.monotonic() + TRIAL_S
            worker.request(
                "execute", Path(escape.__file__).read_text(), "escape", deadline=deadline
            )
            arguments = (paths, outside, server.getsockname()[1], confinement.PROCESSES)
            escaped = worker.request("call", "escapes", arguments, (), deadline=deadline)
            try:
                worker.request("call", "call_out", (os.getpid(),), (), deadline=deadline)
            except WorkerEnded:  # as the warm process did, if it ended that
                fork_server.fork().end()
                if fork_server.process is warm:
                    raise
            worker.end()
            fork_server.fork().end()
        except (WorkerEnded, RuntimeError) as problem:
            raise JailError(
                f"the jail {jail.name} could not be proved ({problem}); nothing is graded"
            ) from None
        escaped += ["end the warm process"] if fork_server.process is not warm else []
        escaped += ["signal the grader"] if caught else []
        escaped += (
            ["write outside"]
            if Path(outside, "written").exists() or secret.read_text() != "secret"
            else []
        )
        with contextlib.suppress(BlockingIOError):
            escaped += ["reach a socket"] if mailbox.recv(1) else []
    if escaped:
        raise JailError(
            f"the jail {jail.name} does not hold: a worker could {', '.join(escaped)}; nothing is graded"
        )


@contextlib.contextmanager
def _heard(number, caught):
    """Notes a signal that comes in the meantime instead of dying of it."""
    old = signal.signal(number, lambda *_: caught.append(number))
    try:
        yield
    finally:
        signal.signal(number, old)
