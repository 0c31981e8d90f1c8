"""One rank that is a process: what it does from its start to its end."""

import contextlib
import ctypes
import datetime
import faulthandler
import io
import linecache
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypedDict

import cloudpickle
import torch
import torch.distributed
from torch.utils._pytree import tree_map

from nogpu.ranks.call_site import CallSite, user_frame
from nogpu.ranks.dist import restricted
from nogpu.ranks.real import Real
from nogpu.ranks.recorder import Report
from nogpu.ranks.replay import Note
from nogpu.ranks.stopwatch import CudaStopwatch, Stopwatch

KILL_ON_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


class Answer(TypedDict):
    """What a rank's process gives back."""

    value: Any
    notes: list[Note]
    report: Report
    end_s: float


class Job(TypedDict):
    """What a rank's process needs to know."""

    world_size: int
    backend: str
    timeout_s: float
    options: dict[str, Any]
    rendezvous: str
    dtype: torch.dtype
    sources: dict[str, Any]
    environment: dict[str, str]
    packed: bytes  # the function and this rank's arguments


def main(rank: int, connection: Connection, job: Job) -> None:
    """The life of a rank's process. connection: to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us handles Ctrl-C, and ends us
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(KILL_ON_PARENT_DEATH, signal.SIGKILL)
    faulthandler.enable()
    reporter = Reporter(connection)
    sys.stdout = sys.stderr = Lines(reporter)
    try:
        answer = _do(rank, job, reporter)
    except BaseException as error:
        reporter("failed", *failure(error))
    else:
        sys.stdout.flush()
        reporter("done", answer)
    reporter.stay()


def _do(rank: int, job: Job, reporter: "Reporter") -> bytes:
    """The rank's Answer, pickled."""
    os.environ |= job["environment"]
    linecache.cache.update(job["sources"])
    torch.set_num_threads(1)
    torch.set_default_dtype(job["dtype"])
    world_size, backend = job["world_size"], job["backend"]
    join(rank, world_size, backend, job["timeout_s"], init_method=job["rendezvous"])
    function, args = cloudpickle.loads(job["packed"])
    reporter("ready")
    return cloudpickle.dumps(run(rank, world_size, backend, function, args, job["options"]))


def join(rank: int, world_size: int, backend: str, timeout_s: float, **where: Any) -> None:
    """Starts torch.distributed in this process."""
    if sys.platform in ("linux", "darwin") and "init_method" in where:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", {"linux": "lo", "darwin": "lo0"}[sys.platform])
    if backend == "nccl":
        # A shared host may have no NVLink multicast left; the warning has ten lines per rank.
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        os.environ.setdefault("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false")
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
        where["device_id"] = torch.device("cuda", torch.cuda.current_device())
    torch.distributed.init_process_group(
        backend,
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=timeout_s + 60),
        **where,
    )


def run(
    rank: int,
    world_size: int,
    backend: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    options: dict[str, Any],
) -> Answer:
    """The Answer of function(dist, *args) on this rank, which has joined."""
    on_gpu = backend == "nccl"
    clock = (CudaStopwatch if on_gpu else Stopwatch)(options["live_bytes"])
    real = Real(rank, world_size, clock) if options["noted"] else None
    dist = restricted(real, options["only"]) if real else torch.distributed
    if on_gpu:
        args = tree_map(_to_gpu, args)
    torch.manual_seed(0)
    torch.distributed.barrier()
    clock.start(_same_instant(on_gpu))
    with (
        clock.watching(args),
        torch.device("cuda", torch.cuda.current_device()) if on_gpu else contextlib.nullcontext(),
    ):
        value = function(dist, *args)
    if on_gpu:
        torch.cuda.synchronize()
    end_s = clock.now_s()
    report = clock.report()
    notes = real._notes.report() if real else []
    return {"value": tree_map(_to_host, value), "notes": notes, "report": report, "end_s": end_s}


def _same_instant(on_gpu: bool) -> float:
    """An instant on the host's clock that all ranks agree on: when the last one arrived here."""
    now_s = torch.tensor([time.time()], dtype=torch.float64, device="cuda" if on_gpu else "cpu")
    torch.distributed.all_reduce(now_s, torch.distributed.ReduceOp.MAX)
    return now_s.item()


def _to_gpu(value: Any) -> Any:
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(value.detach().cuda(), value.requires_grad)
    if isinstance(value, torch.Tensor):
        return value.detach().cuda().requires_grad_(value.requires_grad)
    return value.cuda() if isinstance(value, torch.nn.Module) else value


def _to_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def failure(error: BaseException) -> tuple[bytes | None, str]:
    """The exception, pickled if it can be; and its traceback from the student's own code on."""
    tb = error.__traceback__
    while tb is not None and user_frame(tb.tb_frame) is not tb.tb_frame:
        tb = tb.tb_next
    text = "".join(traceback.format_exception(type(error), error, tb or error.__traceback__))
    text = re.sub(r'File "[^"]*ipykernel_[^"]*"', "In a cell", text)
    try:
        packed = cloudpickle.dumps(error.with_traceback(None))
    except Exception:
        packed = None
    return packed, text


class Reporter:
    """Sends reports to the process that started this one, and answers where this one is."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.lock = connection, threading.Lock()
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def __call__(self, kind: str, *content: Any) -> None:
        with self.lock:
            self.connection.send((kind, *content))

    def stay(self) -> None:
        """Keeps this process until it is ended: its connections to other ranks must not break."""
        self.thread.join()

    def _listen(self) -> None:
        try:
            while self.connection.recv() == "where":
                self("where", self._where())
        except (EOFError, OSError):
            pass
        os._exit(0)

    def _where(self) -> str:
        frame = user_frame(sys._current_frames()[threading.main_thread().ident or 0])
        return "has not begun or has returned" if frame is None else f"is in {CallSite.of(frame)}"


class Lines(io.TextIOBase):
    """A standard output whose lines go to the process that started this one."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter, self.rest, self.lock = reporter, "", threading.Lock()

    def write(self, text: str) -> int:
        """The number of characters: all are taken."""
        with self.lock:
            *lines, self.rest = (self.rest + text).split("\n")
            for line in lines:
                self.reporter("output", line)
        return len(text)

    def flush(self) -> None:
        """Sends the line that has not ended."""
        with self.lock:
            if self.rest:
                self.reporter("output", self.rest)
                self.rest = ""
