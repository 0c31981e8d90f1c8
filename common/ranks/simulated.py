"""The simulated machine: a thread a rank, one of them running at a time, and virtual time."""

import contextlib
import ctypes
import gc
import io
import sys
import threading
import time

import cloudpickle
import torch

from common.ranks.conductor import Conductor, Stopped, told
from common.ranks.copies import Copies, returned
from common.ranks.dist import Dist
from common.ranks.errors import RankFailed
from common.ranks.network import Network
from common.ranks.place import in_words, outer, place
from common.ranks.recorder import Recorder
from common.ranks.trace import Trace


class Link:
    """The conductor as one rank reaches it."""

    def __init__(self, conductor, rank) -> None:
        self.conductor, self.rank = conductor, rank
        self.state = None  # of PyTorch's generator, which all threads share, while others run

    def begin(self) -> None:
        """Returns when it is this rank's turn to start."""
        self.conductor.begin(self.rank)
        torch.manual_seed(0)  # as each process of a real run begins

    def post(self, time_s, operations):
        """The numbers of new requests."""
        return self.conductor.post(self.rank, time_s, operations)

    def wait(self, time_s, numbers):
        """(time, values) when these requests are done."""
        with self._generator_kept():
            return self.conductor.wait(self.rank, time_s, numbers)

    def test(self, time_s, number):
        """Whether this request is done at this time."""
        with self._generator_kept():
            return self.conductor.test(self.rank, time_s, number)

    def race(self, text) -> None:
        """Ends the run: a tensor was changed on its way."""
        self.conductor.race(self.rank, text)

    def new_group(self, ranks):
        """The number of a new group."""
        return self.conductor.new_group(self.rank, ranks)

    def sender(self, number):
        """Who sent the message that this request received."""
        return self.conductor.sender(self.rank, number)

    @contextlib.contextmanager
    def _generator_kept(self):
        state = torch.get_rng_state()
        yield
        torch.set_rng_state(state)


class Rank(threading.Thread):
    """One rank: calls the function with its own copies of everything, as a process would."""

    def __init__(self, rank, world_size, conductor, packed, options) -> None:
        super().__init__(name=f"rank {rank}", daemon=True)
        self.rank, self.world_size, self.conductor, self.packed, self.options = (
            rank,
            world_size,
            conductor,
            packed,
            options,
        )
        self.recorder = Recorder(options["flops_per_s"], options["live_bytes"])
        self.value = None

    def run(self) -> None:
        __tracebackhide__ = True
        link, copies, failure = Link(self.conductor, self.rank), Copies(self.packed), None
        try:
            link.begin()
            function, args = copies.load()
            dist = Dist(self.rank, self.world_size, link, self.recorder, self.options["only"])
            with self.recorder.watching(args):
                self.value = returned(function(dist, *args), copies.originals)
        except Stopped:
            return
        except BaseException as error:
            failure = told(self.rank, returned(error, copies.originals))
        self.conductor.finish(self.rank, self.recorder.clock_s, failure)


class ByRank(io.TextIOBase):
    """A standard output that says which rank a line is from."""

    def __init__(self, stream) -> None:
        self.stream, self.rests = stream, {}

    def write(self, text):
        """The number of characters, all of them taken."""
        thread = threading.current_thread()
        if not isinstance(thread, Rank):
            return self.stream.write(text)
        *lines, self.rests[thread] = (self.rests.get(thread, "") + text).split("\n")
        for line in lines:
            self.stream.write(f"[rank {thread.rank}] {line}\n")
        return len(text)

    def flush(self) -> None:
        """Nothing: a line that has been begun waits for its end."""
        self.stream.flush()

    def end(self) -> None:
        """Writes the lines that have no end, by rank."""
        for thread, rest in sorted(self.rests.items(), key=lambda item: item[0].rank):
            if rest:
                self.stream.write(f"[rank {thread.rank}] {rest}\n")


def run(function, args_by_rank, *, seed, alpha_s, beta_s_per_byte, timeout_s, **options):
    """(returns by rank, Trace) of a simulated run; raises what a rank raised, or what the network found."""
    __tracebackhide__ = True
    world_size = len(args_by_rank)
    network = Network(world_size, alpha_s, beta_s_per_byte)
    conductor = Conductor(network, seed=seed)
    packed = [cloudpickle.dumps((function, args)) for args in args_by_rank]
    ranks = [Rank(rank, world_size, conductor, packed[rank], options) for rank in range(world_size)]
    with _quiet(), contextlib.redirect_stdout(ByRank(sys.stdout)) as output:
        try:
            for rank in ranks:
                rank.start()
            conductor.start()
            if not conductor.over.wait(timeout_s):
                conductor.stop(RankFailed(f"not over after {timeout_s:g} s:{_places(ranks)}"))
        except BaseException as interrupt:
            conductor.stop(interrupt)
            raise
        finally:
            _end(ranks)
            output.end()
    if conductor.problem is not None:
        raise conductor.problem
    return [rank.value for rank in ranks], trace(
        network, [rank.recorder.report() for rank in ranks], "simulated"
    )


def trace(network, reports, machine):
    """The Trace of a run that is over."""
    made = Trace(
        len(reports),
        machine,
        [
            max(clock_s, *_ends(report))
            for clock_s, report in zip(network.time_s, reports, strict=True)
        ],
        network.messages,
        sorted(
            network.collectives, key=lambda call: (call.start_s, call.rank, call.group, call.number)
        ),
    )
    made.add_reports(reports)
    return made


def _ends(report):
    return [0.0, *(end_s for _, _, end_s in report["compute"])]


@contextlib.contextmanager
def _quiet():
    """PyTorch's generator and default dtype as they were, and no collection of cycles: when memory is freed is no chance."""
    state, dtype, collects = torch.get_rng_state(), torch.get_default_dtype(), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        torch.set_default_dtype(dtype)
        if collects:
            gc.enable()


def _end(ranks) -> None:
    """Ends the threads; one that is still busy gets Stopped where it is."""
    for patience_s in (0.2, 1.0, 1.0, 1.0):
        deadline = time.monotonic() + patience_s
        for rank in ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        for rank in ranks:
            if rank.is_alive():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(rank.ident), ctypes.py_object(Stopped)
                )


def _places(ranks):
    """A line a rank: where it is."""
    frames, lines = sys._current_frames(), []
    for rank in ranks:
        frame = outer(frames.get(rank.ident))
        lines.append(
            f"\n  rank {rank.rank} is not running"
            if frame is None
            else f"\n  rank {rank.rank} is in {in_words(*place(frame))}"
        )
    return "".join(lines)
