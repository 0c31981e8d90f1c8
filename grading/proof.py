"""The proof that a sandbox holds, before each class: a worker inside tries to get out."""

import contextlib
import os
import signal
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from common.paths import ROOT
from grading.jail import escape, limits
from grading.jail.choice import JailError
from grading.jail.sandbox import TRIAL_S, Jail, NoJail
from grading.worker.allowance import Allowance
from grading.worker.client import WorkerClient
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import ForkServer


def prove(jail: Jail, hidden: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Has a worker try to read, write, reach the network and the grader, and start processes.

    hidden: paths that no worker may read, besides our own: the submissions, the results. JailError
    names what worked.
    """
    if jail.name == NoJail.name:
        return
    fork_server = ForkServer(jail=jail, bare=True)
    with Targets() as targets, contextlib.closing(fork_server):
        paths = [*map(str, hidden), *targets.hidden, str(ROOT / "solutions"), str(ROOT / "tests")]
        try:
            worked = _attempts(fork_server, targets, paths)
        except (WorkerEnded, RuntimeError) as problem:
            raise JailError(
                f"The sandbox {jail.name} could not be proved ({problem}); nothing is graded."
            ) from None
        worked += targets.hits()
    if worked:
        raise JailError(
            f"The sandbox {jail.name} does not hold: a worker could {', '.join(worked)}; "
            "nothing is graded."
        )


def _attempts(fork_server: ForkServer, targets: "Targets", paths: list[str]) -> list[str]:
    """What a worker said that it could do, and whether it ended the fork server."""
    worker = WorkerClient(fork_server)
    before, allowance = fork_server.process, Allowance(TRIAL_S)
    worker.request("execute", Path(escape.__file__).read_text(), "escape", allowance=allowance)
    arguments = (paths, targets.folder, targets.port, limits.PROCESSES)
    worked = worker.request("call", "escapes", arguments, (), allowance=allowance)
    try:
        worker.request("call", "send_signals", (os.getpid(),), (), allowance=allowance)
    except WorkerEnded:  # it ends with the fork server, if that was ended by its signal
        WorkerClient(fork_server).end()
        if fork_server.process is before:
            raise
    worker.end()
    WorkerClient(fork_server).end()  # starts another fork server if this one has ended
    return worked + ["end the fork server"] * (fork_server.process is not before)


class Targets:
    """What the worker tries to hit: a file, a folder, a mailbox, a port and this process.

    Only the sandbox stands before them: all users may read and write them.
    """

    def __enter__(self) -> Self:
        self._open = contextlib.ExitStack()
        self.folder = self._open.enter_context(tempfile.TemporaryDirectory())
        self.secret = Path(self.folder, "secret")
        self.secret.write_text("secret")
        server = self._open.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port: int = server.getsockname()[1]
        mailbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.mailbox = self._open.enter_context(mailbox)
        mailbox.bind(f"{self.folder}/mailbox")
        mailbox.setblocking(False)
        for path in (self.folder, self.secret, f"{self.folder}/mailbox"):
            os.chmod(path, 0o777)  # noqa: S103 (as the class says)
        self.signals: list[int] = []
        handler = signal.signal(signal.SIGUSR1, lambda number, _: self.signals.append(number))
        self._open.callback(signal.signal, signal.SIGUSR1, handler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def hidden(self) -> list[str]:
        return [str(self.secret), self.folder]

    def hits(self) -> list[str]:
        """What was hit, in words."""
        hits = []
        if self.signals:
            hits.append("signal the grader")
        if Path(self.folder, "written").exists() or self.secret.read_text() != "secret":
            hits.append("write outside")
        with contextlib.suppress(BlockingIOError):
            if self.mailbox.recv(1):
                hits.append("reach a socket")
        return hits
