"""Real machines: one process per rank, on gloo or NCCL, started here or by torchrun."""

import contextlib
import linecache
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Never

import cloudpickle
import torch

from nogpu.ranks import process, replay
from nogpu.ranks.copies import Returns
from nogpu.ranks.errors import RankFailedError
from nogpu.ranks.trace import Trace

START_S = 120.0  # for PyTorch's import on a busy machine
PRELOADED = [
    "numpy",
    "cloudpickle",
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "nogpu.ranks.process",
]
Children = Sequence[tuple[BaseProcess, Connection]]
GRACE_S = 0.3  # in which the failure that came first may still be on its way


def run(
    function: Callable[..., Any],
    args_by_rank: Sequence[Sequence[Any]],
    *,
    backend: str,
    timeout_s: float,
    **options: Any,
) -> tuple[list[Any], Trace]:
    """What each rank returned, and the Trace; raises what a rank raised, or RankFailedError."""
    __tracebackhide__ = True
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return _under_torchrun(function, args_by_rank, backend, timeout_s, options)
    if multiprocessing.current_process().daemon:
        raise ValueError(
            f"machine={backend!r}: this is a rank's process already, which starts no others"
        )
    world_size = len(args_by_rank)
    if backend == "nccl" and torch.cuda.device_count() < world_size:
        gpus = torch.cuda.device_count()
        raise ValueError(f"machine='nccl': there are {gpus} GPUs for {world_size} ranks, one each")
    with tempfile.TemporaryDirectory() as folder:
        job = {  # all but what differs by rank
            "world_size": world_size,
            "backend": backend,
            "timeout_s": timeout_s,
            "options": options,
            "rendezvous": f"file://{folder}/rendezvous",
            "dtype": torch.get_default_dtype(),
            "sources": _sources(),
            "environment": {"OMP_NUM_THREADS": "1"},
        }
        jobs = [{**job, "packed": cloudpickle.dumps((function, args))} for args in args_by_rank]
        with _started(jobs) as ranks:
            answers = Watch(ranks, timeout_s).answers()
    return _result(answers, backend)


def _result(answers: Sequence[process.Answer], backend: str) -> tuple[list[Any], Trace]:
    trace = replay.trace(
        [answer["notes"] for answer in answers],
        [answer["report"] for answer in answers],
        [answer["end_s"] for answer in answers],
        backend,
    )
    return [answer["value"] for answer in answers], trace


@contextlib.contextmanager
def _started(jobs: Sequence[process.Job]) -> Iterator[Children]:
    """The ranks' processes, and connections to them; whatever happens, they are ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ranks: list[tuple[BaseProcess, Connection]] = []
    try:
        with _no_main():
            for rank, job in enumerate(jobs):
                ours, theirs = context.Pipe()
                child = context.Process(target=process.main, args=(rank, theirs, job), daemon=True)
                child.start()
                theirs.close()
                ranks.append((child, ours))
        yield ranks
    finally:
        for child, _ in ranks:
            child.kill()
        for child, connection in ranks:
            child.join()
            connection.close()


@contextlib.contextmanager
def _no_main() -> Iterator[None]:
    """Keep children from importing the program that runs here.

    What they need of it comes with the function.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _sources() -> dict[str, Any]:
    """The texts of cells, which are in no file, for tracebacks there."""
    return {
        name: entry
        for name, entry in linecache.cache.items()
        if len(entry) == 4 and not os.path.exists(name)
    }


class RankTracebackError(Exception):
    """The traceback of a rank, as text: the cause of what is raised here."""

    def __str__(self) -> str:
        return self.args[0]


class Watch:
    """What the ranks of one run report, until all are done or one has failed."""

    def __init__(self, ranks: Children, timeout_s: float) -> None:
        self.children = [child for child, _ in ranks]
        self.connections = [connection for _, connection in ranks]
        self.timeout_s = timeout_s
        self.ready: set[int] = set()
        self.done: dict[int, bytes] = {}  # the answer, pickled
        self.failed: dict[int, tuple[bytes | None, str]] = {}  # as process.failure gives it
        self.gone: set[int] = set()  # their processes have ended
        self.where: dict[int, str] = {}

    def answers(self) -> list[process.Answer]:
        """What each rank came back with; raises the failure that came first."""
        __tracebackhide__ = True
        deadline = time.monotonic() + START_S
        while len(self.done) < len(self.children):
            started = self._all_ready()
            self._listen(deadline)
            if not started and self._all_ready():
                deadline = time.monotonic() + self.timeout_s
            if self.failed or self.gone:
                self._listen(time.monotonic() + GRACE_S, until_silence=True)
                self._fail()
            if time.monotonic() > deadline:
                limit_s = self.timeout_s if self._all_ready() else START_S
                raise RankFailedError(f"not over after {limit_s:g} s:{self._all_where()}")
        return [Returns(self.done[rank]).load() for rank in range(len(self.children))]

    def _all_ready(self) -> bool:
        return len(self.ready) == len(self.children)

    def _listen(self, deadline: float, until_silence: bool = False) -> None:
        """Takes what the ranks report; returns after the first message, or at the deadline."""
        while True:
            left = [
                connection
                for rank, connection in enumerate(self.connections)
                if rank not in self.gone
            ]
            wait_s = max(0.0, deadline - time.monotonic())
            heard = multiprocessing.connection.wait(left, wait_s)
            for rank, connection in enumerate(self.connections):
                if connection not in heard:
                    continue
                try:
                    self._take(rank, *connection.recv())
                except (EOFError, OSError):
                    self.gone.add(rank)
            if not heard or not until_silence:
                return

    def _take(self, rank: int, kind: str, *content: Any) -> None:
        if kind == "output":
            print(f"[rank {rank}] {content[0]}")
        elif kind == "done":
            self.done[rank] = content[0]
        elif kind == "failed":
            self.failed.setdefault(rank, content)
        elif kind == "ready":
            self.ready.add(rank)
        else:
            self.where[rank] = content[0]

    def _fail(self) -> Never:
        """Raises for the rank that ended by itself, which made others fail; else for the first."""
        __tracebackhide__ = True
        if self.gone:
            rank = min(self.gone)
            self.children[rank].join(10.0)
            ending = _ending(self.children[rank].exitcode)
            raise RankFailedError(f"rank {rank} ended its process ({ending})")
        rank, (packed, text) = next(iter(self.failed.items()))
        error = None
        with contextlib.suppress(Exception):  # its class may not exist here
            error = Returns(packed or b"").load()
        if not isinstance(error, Exception):
            raise RankFailedError(f"rank {rank}: {text.strip().splitlines()[-1]}\n\n{text}")
        raise error from RankTracebackError(f"rank {rank}:\n{text}")

    def _all_where(self) -> str:
        """One line per rank: where it is."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.send("where")
        deadline = time.monotonic() + 2.0
        while len(self.where) < len(self.children) and time.monotonic() < deadline:
            self._listen(deadline)
        lines = []
        for rank in range(len(self.children)):
            where = self.where.get(rank, "is busy outside of Python")
            lines.append(f"\n  rank {rank} {'has returned' if rank in self.done else where}")
        return "".join(lines)


def _ending(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"


def _under_torchrun(
    function: Callable[..., Any],
    args_by_rank: Sequence[Sequence[Any]],
    backend: str,
    timeout_s: float,
    options: dict[str, Any],
) -> tuple[list[Any], Trace]:
    """The run on the processes that torchrun has started, of which this is one.

    Each of them returns the whole result.
    """
    rank, world_size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    if len(args_by_rank) != world_size:
        raise ValueError(
            f"world_size: {len(args_by_rank)}; torchrun has started {world_size} processes"
        )
    if not torch.distributed.is_initialized():
        process.join(rank, world_size, backend, timeout_s)
    function, args = cloudpickle.loads(cloudpickle.dumps((function, args_by_rank[rank])))
    answers: list[Any] = [None] * world_size
    own = process.run(rank, world_size, backend, function, args, options)
    torch.distributed.all_gather_object(answers, own)
    return _result(answers, backend)
