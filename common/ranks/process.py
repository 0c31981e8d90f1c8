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

import cloudpickle
import torch
import torch.distributed
from torch.utils._pytree import tree_map

from common.ranks.place import in_words, outer, place
from common.ranks.real import Real
from common.ranks.stopwatch import CudaStopwatch, Stopwatch

KILL_ON_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


def main(rank, connection, job) -> None:
    """The life of a rank's process. connection: to the one that started it; job: see processes.run."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the one that started us, which ends us
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(KILL_ON_PARENT_DEATH, signal.SIGKILL)
    faulthandler.enable()
    report = Reporter(connection)
    sys.stdout = sys.stderr = Lines(report)
    try:
        os.environ |= job["environment"]
        linecache.cache.update(job["sources"])
        torch.set_num_threads(1)
        torch.set_default_dtype(job["dtype"])
        join(
            rank, job["world_size"], job["backend"], job["timeout_s"], init_method=job["rendezvous"]
        )
        function, args = cloudpickle.loads(job["packed"])
        report("ready")
        answer = run(rank, job["world_size"], job["backend"], function, args, job["options"])
        answer = cloudpickle.dumps(answer)
    except BaseException as error:
        report("failed", *failure(error))
    else:
        sys.stdout.flush()
        report("done", answer)
    report.until_told_to_end()


def join(rank, world_size, backend, timeout_s, **where) -> None:
    """Starts torch.distributed on this process."""
    if sys.platform in ("linux", "darwin") and "init_method" in where:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", {"linux": "lo", "darwin": "lo0"}[sys.platform])
    if backend == "nccl":
        os.environ.setdefault(
            "NCCL_NVLS_ENABLE", "0"
        )  # a host that is shared may not have NVLink's multicast to spare
        os.environ.setdefault(
            "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false"
        )  # ten lines a rank, each time
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
        where["device_id"] = torch.device("cuda", torch.cuda.current_device())
    torch.distributed.init_process_group(
        backend,
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=timeout_s + 60),
        **where,
    )


def run(rank, world_size, backend, function, args, options):
    """{"value", "notes", "report", "end_s"} of function(dist, *args) on this rank, which has joined."""
    on_gpu = backend == "nccl"
    clock = (CudaStopwatch if on_gpu else Stopwatch)(options["live_bytes"])
    dist = Real(rank, world_size, clock, options["only"]) if options["noted"] else torch.distributed
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
    notes = dist._notes.report() if options["noted"] else []
    return {"value": tree_map(_to_host, value), "notes": notes, "report": report, "end_s": end_s}


def _same_instant(on_gpu):
    """An instant, on the host's clock, that all ranks agree on: the last one's arrival here."""
    now_s = torch.tensor([time.time()], dtype=torch.float64, device="cuda" if on_gpu else "cpu")
    torch.distributed.all_reduce(now_s, torch.distributed.ReduceOp.MAX)
    return now_s.item()


def _to_gpu(value):
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(value.detach().cuda(), value.requires_grad)
    if isinstance(value, torch.Tensor):
        return value.detach().cuda().requires_grad_(value.requires_grad)
    return value.cuda() if isinstance(value, torch.nn.Module) else value


def _to_host(value):
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def failure(error):
    """(exception, pickled, or None; its traceback from the student's own code on)."""
    tb = error.__traceback__
    while tb is not None and outer(tb.tb_frame) is not tb.tb_frame:
        tb = tb.tb_next
    text = "".join(traceback.format_exception(type(error), error, tb or error.__traceback__))
    text = re.sub(r'File "[^"]*ipykernel_[^"]*"', "In a cell", text)
    try:
        packed = cloudpickle.dumps(error.with_traceback(None))
    except Exception:
        packed = None
    return packed, text


class Reporter:
    """The way to the process that started this one: told anything, asked where this one is."""

    def __init__(self, connection) -> None:
        self.connection, self.lock = connection, threading.Lock()
        self.main = threading.main_thread().ident
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def __call__(self, *told):
        with self.lock:
            self.connection.send(told)

    def until_told_to_end(self) -> None:
        """Stays, so that the others' connections do: what they then see broken is their own."""
        self.thread.join()

    def _listen(self) -> None:
        try:
            while self.connection.recv() == "where":
                self("where", self._where())
        except (EOFError, OSError):
            pass
        os._exit(0)

    def _where(self) -> str:
        frame = outer(sys._current_frames()[self.main])
        return (
            "has not begun or has returned" if frame is None else f"is in {in_words(*place(frame))}"
        )


class Lines(io.TextIOBase):
    """A standard output whose lines go to the process that started this one."""

    def __init__(self, report) -> None:
        self.report, self.rest, self.lock = report, "", threading.Lock()

    def write(self, text):
        """The number of characters, all of them taken."""
        with self.lock:
            *lines, self.rest = (self.rest + text).split("\n")
            for line in lines:
                self.report("output", line)
        return len(text)

    def flush(self) -> None:
        """Sends the line that has been begun."""
        with self.lock:
            if self.rest:
                self.report("output", self.rest)
                self.rest = ""
