"""Real machines: a process a rank, on gloo or NCCL, started here or by torchrun."""

import contextlib
import linecache
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import time
import types
from typing import Never

import cloudpickle
import torch

from common.ranks import process, replay
from common.ranks.copies import Returns
from common.ranks.errors import RankFailed

START_S = 120.0  # for PyTorch's import on a busy machine
PRELOADED = [
    "numpy",
    "cloudpickle",
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "common.ranks.process",
]
GRACE_S = 0.3  # in which the failure that came first may still be on its way


def run(function, args_by_rank, *, backend, timeout_s, **options):
    """(returns by rank, Trace) of a run on processes; raises what a rank raised, or RankFailed."""
    __tracebackhide__ = True
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return _under_torchrun(function, args_by_rank, backend, timeout_s, options)
    if multiprocessing.current_process().daemon:
        raise ValueError(
            f"machine={backend!r}: this is a rank's process already, which starts no others"
        )
    world_size = len(args_by_rank)
    if backend == "nccl" and torch.cuda.device_count() < world_size:
        raise ValueError(
            f"machine='nccl': there are {torch.cuda.device_count()} GPUs for {world_size} ranks, one each"
        )
    with tempfile.TemporaryDirectory() as folder:
        job = {
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


def _result(answers, backend):
    columns = ([answer[key] for answer in answers] for key in ("notes", "report", "end_s"))
    return [answer["value"] for answer in answers], replay.trace(*columns, backend)


@contextlib.contextmanager
def _started(jobs):
    """[(process, connection)] of the ranks; whatever happens, they are ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ranks = []
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
def _no_main():
    """Children would import the program that is run here once more; what they need of it comes with the function."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _sources():
    """The texts of cells, which no file holds: for tracebacks there."""
    return {
        name: entry
        for name, entry in linecache.cache.items()
        if len(entry) == 4 and not os.path.exists(name)
    }


class RankTraceback(Exception):
    """The traceback of a rank, as text: the cause of what is raised here."""

    def __str__(self) -> str:
        return self.args[0]


class Watch:
    """What the ranks of one run tell, until all are done or one has failed."""

    def __init__(self, ranks, timeout_s) -> None:
        self.children = [child for child, _ in ranks]
        self.connections = [connection for _, connection in ranks]
        self.timeout_s = timeout_s
        self.done, self.failed, self.places, self.ready, self.gone = {}, {}, {}, set(), set()

    def answers(self):
        """What each rank came back with; raises the failure that came first."""
        __tracebackhide__ = True
        deadline = time.monotonic() + START_S
        while len(self.done) < len(self.children):
            everyone = len(self.ready) == len(self.children)
            self._listen(deadline)
            if not everyone and len(self.ready) == len(self.children):
                deadline = time.monotonic() + self.timeout_s
            if self.failed or self.gone:
                self._listen(time.monotonic() + GRACE_S, until_silence=True)
                self._fail()
            if time.monotonic() > deadline:
                limit_s = self.timeout_s if len(self.ready) == len(self.children) else START_S
                raise RankFailed(f"not over after {limit_s:g} s:{self._places()}")
        return [Returns(self.done[rank]).load() for rank in range(len(self.children))]

    def _listen(self, deadline, until_silence=False) -> None:
        """Takes what the ranks tell; returns after the first message, or at the deadline."""
        while True:
            waited_for = [
                self.connections[rank]
                for rank in range(len(self.children))
                if rank not in self.gone
            ]
            heard = multiprocessing.connection.wait(
                waited_for, max(0.0, deadline - time.monotonic())
            )
            for connection in heard:
                rank = self.connections.index(connection)
                try:
                    self._take(rank, *connection.recv())
                except (EOFError, OSError):
                    self.gone.add(rank)
            if not heard or not until_silence:
                return

    def _take(self, rank, kind, *content) -> None:
        if kind == "output":
            print(f"[rank {rank}] {content[0]}")
        elif kind == "done":
            self.done[rank] = content[0]
        elif kind == "failed":
            self.failed.setdefault(rank, content)
        elif kind == "ready":
            self.ready.add(rank)
        else:
            self.places[rank] = content[0]

    def _fail(self) -> Never:
        """Raises for the rank that ended by itself, if one did: the others then only saw it go; else for the first to fail."""
        __tracebackhide__ = True
        if self.gone:
            rank = min(self.gone)
            self.children[rank].join(10.0)
            raise RankFailed(
                f"rank {rank} ended its process ({_ending(self.children[rank].exitcode)})"
            )
        rank, (packed, text) = next(iter(self.failed.items()))
        try:
            error = Returns(packed).load()
        except Exception:
            error = None
        if not isinstance(error, Exception):
            raise RankFailed(f"rank {rank}: {text.strip().splitlines()[-1]}\n\n{text}")
        raise error from RankTraceback(f"rank {rank}:\n{text}")

    def _places(self):
        """A line a rank: where it is."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.send("where")
        deadline = time.monotonic() + 2.0
        while len(self.places) < len(self.children) and time.monotonic() < deadline:
            self._listen(deadline)
        told = (
            "has returned"
            if rank in self.done
            else self.places.get(rank, "is busy outside of Python")
            for rank in range(len(self.children))
        )
        return "".join(f"\n  rank {rank} {place}" for rank, place in enumerate(told))


def _ending(code) -> str:
    return f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"


def _under_torchrun(function, args_by_rank, backend, timeout_s, options):
    """The run on the processes that torchrun has started, of which this is one; each of them returns the whole result."""
    rank, world_size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    if len(args_by_rank) != world_size:
        raise ValueError(
            f"world_size: {len(args_by_rank)}; torchrun has started {world_size} processes"
        )
    if not torch.distributed.is_initialized():
        process.join(rank, world_size, backend, timeout_s)
    function, args = cloudpickle.loads(cloudpickle.dumps((function, args_by_rank[rank])))
    answers = [None] * world_size
    torch.distributed.all_gather_object(
        answers, process.run(rank, world_size, backend, function, args, options)
    )
    return _result(answers, backend)
