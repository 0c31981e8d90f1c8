"""Who runs when: ranks that are threads, each with a link to the conductor of one network.

With one_at_a_time one rank runs at a time: the lowest that can, or one drawn from a seed. Without
it, all that can run do. When no rank can go on, the network moves its next message. When it has
none, that is a deadlock.
"""

import math
import random
import threading
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

from nogpu.ranks.deadlock import deadlock, unfinished
from nogpu.ranks.errors import RaceError, RankFailedError, RanksError
from nogpu.ranks.network import Network
from nogpu.ranks.operations import Operation
from nogpu.ranks.ports import Request


class State(Enum):
    """What a rank does."""

    READY = auto()
    RUNNING = auto()
    BLOCKED = auto()  # until its requests are done
    POLLING = auto()  # until it is known whether a request is done at a given time
    RETURNED = auto()


class StoppedError(BaseException):
    """Ends a rank's thread because the run is over.

    A student's `except Exception` does not catch it.
    """


class ConductorLink:
    """One rank's link, and its turn to run."""

    def __init__(self, conductor: "Conductor", rank: int) -> None:
        self.conductor, self.network, self.rank = conductor, conductor.network, rank
        self.state = State.READY
        self.awaited: list[Request] = []  # while BLOCKED
        self.poll_at_s = math.inf  # while POLLING
        self.turn = threading.Lock()  # free while the rank may take its turn
        self.turn.acquire()

    def begin(self) -> None:
        """Return when it is this rank's turn to start."""
        self._take_turn()

    def finish(self, time_s: float = 0.0, failure: BaseException | None = None) -> None:
        """Note that the rank has returned, or failed."""
        with self.conductor.lock:
            if failure is not None:
                self.conductor.failures[self.rank] = time_s, failure
            self._pass_turn(State.RETURNED)

    def post(self, time_s: float, operations: Sequence[Operation]) -> list[int]:
        with self.conductor.lock:
            self.conductor.check_running()
            return self.network.post(self.rank, time_s, operations)

    def wait(self, time_s: float, numbers: Sequence[int]) -> tuple[float, list[Any]]:
        with self.conductor.lock:
            self.conductor.check_running()
            self.awaited = requests = self.network.requests_of(self.rank, numbers)
            blocked = not all(request.done for request in requests)
            if blocked:
                self._pass_turn(State.BLOCKED)
        if blocked:
            self._take_turn()
        with self.conductor.lock:
            self.conductor.check_running()
            return self.network.collect(self.rank, time_s, requests)

    def test(self, time_s: float, number: int) -> bool:
        with self.conductor.lock:
            self.conductor.check_running()
            self.network.advance(self.rank, time_s)
            self.poll_at_s = time_s
            self._pass_turn(State.POLLING)
        self._take_turn()
        with self.conductor.lock:
            self.conductor.check_running()
            return self.network.done_at(self.rank, time_s, number)

    def sender(self, number: int) -> int:
        with self.conductor.lock:
            self.conductor.check_running()
            return self.network.sender(self.rank, number)

    def new_group(self, ranks: list[int]) -> int:
        with self.conductor.lock:
            self.conductor.check_running()
            return self.network.new_group(self.rank, ranks)

    def race(self, text: str) -> None:
        with self.conductor.lock:
            self.conductor.check_running()
            self.network.problems.append(RaceError(text))
            self._pass_turn(State.RETURNED)
        self._take_turn()  # raises, once the others have stopped too

    def _pass_turn(self, state: State) -> None:
        self.state = state
        self.conductor.go_on()

    def _take_turn(self) -> None:
        self.turn.acquire()
        self.conductor.check_running()


class Conductor:
    """Runs the ranks of a network until all have returned, or one fails, or none can go on."""

    def __init__(
        self,
        network: Network,
        *,
        one_at_a_time: bool = True,
        seed: int | None = None,
        link: type[ConductorLink] = ConductorLink,
    ) -> None:
        self.network, self.one_at_a_time = network, one_at_a_time
        self.random: random.Random | None = None
        if seed is not None:
            self.random = random.Random(seed)  # noqa: S311 - an order, not a secret
        self.lock = threading.RLock()
        self.over = threading.Event()
        self.problem: BaseException | None = None  # what ended the run early
        self.calls = 0  # of all ranks: while it grows, none of them is in an endless loop
        self.failures: dict[int, tuple[float, BaseException]] = {}  # of each rank, its clock then
        self.links = [link(self, rank) for rank in range(network.world_size)]

    def start(self) -> None:
        """Let the ranks' threads go, which wait in `begin`."""
        with self.lock:
            self.go_on()

    def stop(self, problem: BaseException) -> None:
        """End the run: every rank's thread gets StoppedError at its next call."""
        with self.lock:
            if not self.over.is_set():
                self.problem = problem
                self.over.set()
                for link in self.links:
                    if link.turn.locked():
                        link.turn.release()

    def check_running(self) -> None:
        """Raise StoppedError if the run was ended. Every call of a rank comes by here."""
        self.calls += 1
        if self.problem is not None:
            raise StoppedError

    def go_on(self) -> None:
        """Give turns to ranks that can run, after one has stopped running.

        If none can, messages move, or the run ends.
        """
        while not self.over.is_set():
            running = State.RUNNING in [link.state for link in self.links]
            if running and self.one_at_a_time:
                return
            if ready := [link for link in self.links if link.state is State.READY]:
                if self.one_at_a_time:
                    ready = [self.random.choice(ready) if self.random else ready[0]]
                for link in ready:
                    link.state = State.RUNNING
                    link.turn.release()
                return
            if running:
                return
            try:
                self._advance()
            except Exception as error:  # a rank posted nonsense: the others must not wait for ever
                self.stop(error)

    def _advance(self) -> None:
        """No rank runs or can run: move messages until one can, or end the run."""
        if self.failures:
            first_failed = min(self.failures, key=lambda rank: (self.failures[rank][0], rank))
            return self.stop(self.failures[first_failed][1])
        problem = self.network.check()
        while problem is None and not self._wake():
            polling = [link for link in self.links if link.state is State.POLLING]
            first = min(polling, key=lambda link: link.poll_at_s, default=None)
            if self.network.step(before_s=first.poll_at_s if first else math.inf):
                problem = self.network.check() if self.network.problems else None
            elif first:
                first.state = State.READY
                return None
            else:
                return self._end()
        return self.stop(problem) if problem else None

    def _wake(self) -> bool:
        """Make ready the ranks whose requests are done; return whether there were any."""
        woken = [
            link
            for link in self.links
            if link.state is State.BLOCKED and all(request.done for request in link.awaited)
        ]
        for link in woken:
            link.state = State.READY
        return bool(woken)

    def _end(self) -> None:
        """No message can move any more: the run is over, or stuck."""
        waiting = {link.rank: link.awaited for link in self.links if link.state is State.BLOCKED}
        returned = [link.rank for link in self.links if link.state is State.RETURNED]
        if waiting:
            self.stop(deadlock(self.network, waiting, returned))
        elif problem := unfinished(self.network):
            self.stop(problem)
        else:
            self.over.set()


def with_rank(rank: int, error: BaseException) -> Exception:
    """The exception of a rank, with a note that says which rank it was."""
    note = f"on rank {rank}"
    if not isinstance(error, RanksError) and note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    if isinstance(error, Exception):
        return error
    reason = ": ".join(filter(None, [type(error).__name__, str(error)]))
    return RankFailedError(f"rank {rank} ended by {reason}")
