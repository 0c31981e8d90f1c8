"""The simulated machine: one thread per rank, one of them running at a time, and virtual time."""

import contextlib
import ctypes
import gc
import io
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cloudpickle
import torch

from nogpu.ranks.call_site import CallSite, user_frame
from nogpu.ranks.conductor import Conductor, ConductorLink, StoppedError, with_rank
from nogpu.ranks.copies import Copies, returned
from nogpu.ranks.dist import Dist, restricted
from nogpu.ranks.errors import RankFailedError
from nogpu.ranks.network import Network
from nogpu.ranks.ports import Cost
from nogpu.ranks.recorder import Recorder, Report
from nogpu.ranks.trace import Trace

QUIET_S = 8.0  # a rank of a lab computes for less than a second between two messages
SMALL_BYTES = 1 << 20  # of all ranks' arguments together: each rank may unpack all of them


class ThreadLink(ConductorLink):
    """The link of a rank that is a thread.

    It restores the state of PyTorch's generator, which all threads share, after others have run.
    """

    def begin(self) -> None:
        super().begin()
        # As each process of a real run begins. torch.manual_seed would note a call for CUDA, too.
        torch.default_generator.manual_seed(0)

    def wait(self, time_s: float, numbers: Sequence[int]) -> tuple[float, list[Any]]:
        with _generator_kept():
            return super().wait(time_s, numbers)

    def test(self, time_s: float, number: int) -> bool:
        with _generator_kept():
            return super().test(time_s, number)


class Rank(threading.Thread):
    """One rank: calls the function with its own copies of everything, as a process would."""

    def __init__(self, link: ConductorLink, world_size: int, packed: bytes, options: dict) -> None:
        super().__init__(name=f"rank {link.rank}", daemon=True)
        self.link, self.rank, self.world_size = link, link.rank, world_size
        self.packed, self.only = packed, options["only"]
        costs = options["flops_per_s"], options["live_bytes"], options["held"]
        self.recorder = Recorder(*costs)
        self.value: Any = None

    def run(self) -> None:
        __tracebackhide__ = True
        copies, failure = Copies(self.packed), None
        try:
            self.link.begin()
            function, args_by_rank = copies.load()
            args = args_by_rank.pop(self.rank)
            args_by_rank.clear()
            dist = Dist(self.rank, self.world_size, self.link, self.recorder)
            with self.recorder.watching(args):
                value = function(restricted(dist, self.only), *args)
                self.value = returned(value, copies.originals)
        except StoppedError:
            return
        except BaseException as error:
            failure = with_rank(self.rank, returned(error, copies.originals))
        self.link.finish(self.recorder.clock_s, failure)


class ByRank(io.TextIOBase):
    """A standard output that says which rank a line is from."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.rests: dict[Rank, str] = {}  # of lines that have not ended

    def write(self, text: str) -> int:
        """The number of characters: all are taken."""
        thread = threading.current_thread()
        if not isinstance(thread, Rank):
            return self.stream.write(text)
        *lines, self.rests[thread] = (self.rests.get(thread, "") + text).split("\n")
        for line in lines:
            self.stream.write(f"[rank {thread.rank}] {line}\n")
        return len(text)

    def flush(self) -> None:
        """Flush the lines that have ended."""
        self.stream.flush()

    def end(self) -> None:
        """Write the lines that have not ended, by rank."""
        for thread, rest in sorted(self.rests.items(), key=lambda item: item[0].rank):
            if rest:
                self.stream.write(f"[rank {thread.rank}] {rest}\n")


def run(
    function: Callable[..., Any],
    args_by_rank: Sequence[Sequence[Any]],
    *,
    seed: int | None,
    alpha_s: Cost,
    beta_s_per_byte: Cost,
    timeout_s: float,
    **options: Any,
) -> tuple[list[Any], Trace]:
    """What each rank returned, and the Trace; raises what a rank raised, or a RanksError."""
    __tracebackhide__ = True
    world_size = len(args_by_rank)
    network = Network(world_size, alpha_s, beta_s_per_byte)
    conductor = Conductor(network, seed=seed, link=ThreadLink)
    packed = _packed(function, args_by_rank)
    ranks = [
        Rank(link, world_size, own, options)
        for link, own in zip(conductor.links, packed, strict=True)
    ]
    with _surroundings_kept(), contextlib.redirect_stdout(ByRank(sys.stdout)) as output:
        try:
            for rank in ranks:
                rank.start()
            conductor.start()
            if problem := _too_long(conductor, timeout_s):
                conductor.stop(RankFailedError(f"{problem}{_where(ranks)}"))
        except BaseException as interrupt:
            conductor.stop(interrupt)
            raise
        finally:
            _end(ranks)
            output.end()
    if conductor.problem is not None:
        raise conductor.problem
    reports = [rank.recorder.report() for rank in ranks]
    return [rank.value for rank in ranks], trace(network, reports)


def _too_long(conductor: Conductor, timeout_s: float) -> str:
    """Wait until the run is over; why it should be stopped, "" if it is over.

    It is stopped after timeout_s, and earlier if it computes for QUIET_S without a call of dist.
    That time is the processor's, so that a busy machine stops no honest run.
    """
    deadline, calls, quiet_since_s = time.monotonic() + timeout_s, -1, 0.0
    while not conductor.over.wait(min(0.25, timeout_s)):
        if time.monotonic() > deadline:
            return f"not over after {timeout_s:g} s:"
        if conductor.calls != calls:
            calls, quiet_since_s = conductor.calls, time.process_time()
        elif time.process_time() - quiet_since_s > QUIET_S:
            return f"no rank has sent, received or returned for {QUIET_S:g} s. Is a loop endless?"
    return ""


def _packed(function: Callable[..., Any], args_by_rank: Sequence[Sequence[Any]]) -> list[bytes]:
    """What each rank unpacks: (the function, {rank: its arguments}).

    To pack a function takes a millisecond, because cloudpickle looks through all modules. So it is
    packed once for all ranks if their arguments are small, which those of the first rank suggest.
    """
    everything = dict(enumerate(args_by_rank))
    if len(cloudpickle.dumps(everything[0])) * len(everything) <= SMALL_BYTES:
        once = cloudpickle.dumps((function, everything))
        if len(once) <= SMALL_BYTES:
            return [once] * len(everything)
    return [cloudpickle.dumps((function, {rank: args})) for rank, args in everything.items()]


def trace(network: Network, reports: Sequence[Report]) -> Trace:
    """The Trace of a run that is over."""
    ends_s = [
        max([clock_s, *(end_s for _, _, end_s in report["compute"])])
        for clock_s, report in zip(network.time_s, reports, strict=True)
    ]
    # The sort keeps the order of a rank's calls at one time, whatever their groups are.
    collectives = sorted(network.collectives, key=lambda call: (call.start_s, call.rank))
    made = Trace(len(reports), "simulated", ends_s, network.messages, collectives)
    made.add_reports(reports)
    return made


@contextlib.contextmanager
def _generator_kept() -> Iterator[None]:
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


@contextlib.contextmanager
def _surroundings_kept() -> Iterator[None]:
    """Restore PyTorch's generator and default dtype.

    No cycles are collected, so that memory is freed at the same points in every run.
    """
    state, dtype, collects = torch.get_rng_state(), torch.get_default_dtype(), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        torch.set_default_dtype(dtype)
        if collects:
            gc.enable()


def _end(ranks: Sequence[Rank]) -> None:
    """End the threads; one that is still busy gets a StoppedError where it is."""
    for patience_s in (0.2, 1.0, 1.0, 1.0):
        deadline = time.monotonic() + patience_s
        for rank in ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        for rank in ranks:
            if rank.is_alive():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(rank.ident or 0), ctypes.py_object(StoppedError)
                )


def _where(ranks: Sequence[Rank]) -> str:
    """One line per rank: where it is."""
    frames, lines = sys._current_frames(), []
    for rank in ranks:
        frame = user_frame(frames.get(rank.ident or 0))
        waits = "waits for its turn, or has ended"
        where = waits if frame is None else f"is in {CallSite.of(frame)}"
        lines.append(f"\n  rank {rank.rank} {where}")
    return "".join(lines)
