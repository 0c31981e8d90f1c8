"""Who runs when: ranks that are threads or workers, over one network.

The ranks' links (see `dist`) lead to the `Conductor`, each from a thread of its own. With one_at_a_time a baton goes from rank
to rank, the lowest first or in an order drawn from a seed; without, all that can go on do. When none can, the network commits
its next message; when it has none, that is a deadlock.
"""

import math
import random
import threading

from common.ranks.deadlock import deadlock, unfinished
from common.ranks.errors import RaceError, RankFailed, RanksError

READY, RUNNING, BLOCKED, RETURNED = "ready", "running", "blocked", "returned"


class Stopped(BaseException):
    """Ends a rank's thread because the run is over; the student's `except Exception` does not catch it."""


class Conductor:
    """Runs the ranks of a network until all have returned, or one fails, or none can go on."""

    def __init__(self, network, *, one_at_a_time=True, seed=None) -> None:
        self.network, self.one_at_a_time = network, one_at_a_time
        self.random = None if seed is None else random.Random(seed)
        self.lock = threading.RLock()
        self.over = threading.Event()
        self.problem = None  # what ended the run early
        p = network.world_size
        self.state, self.batons = [READY] * p, [threading.Lock() for _ in range(p)]
        for baton in self.batons:
            baton.acquire()
        self.awaited = [()] * p
        self.failures = {}  # rank: (its clock, exception)

    # ------------------------------------------------------------------ from outside

    def start(self) -> None:
        """Lets the ranks' threads, which wait in `begin`, go."""
        with self.lock:
            self._go_on()

    def stop(self, problem) -> None:
        """Ends the run: every rank's thread gets Stopped at its next call."""
        with self.lock:
            if not self.over.is_set():
                self.problem = problem
                self.over.set()
                for baton in self.batons:
                    if baton.locked():
                        baton.release()

    # ------------------------------------------------------------------ from a rank's thread

    def begin(self, rank) -> None:
        """Returns when it is this rank's turn to start."""
        self._take(rank)

    def post(self, rank, time_s, operations):
        """The numbers of new requests."""
        with self.lock:
            self._check_over()
            return self.network.post(rank, time_s, operations)

    def new_group(self, rank, ranks):
        """The number of a group."""
        with self.lock:
            self._check_over()
            return self.network.new_group(rank, ranks)

    def sender(self, rank, number):
        """Who sent the message that this request received."""
        with self.lock:
            return self.network.sender(rank, number)

    def wait(self, rank, time_s, numbers):
        """(the rank's clock, values) when these requests are done."""
        with self.lock:
            self._check_over()
            if not self.network.finished(rank, numbers):
                self.state[rank], self.awaited[rank] = BLOCKED, tuple(numbers)
                self._go_on()
        if self.awaited[rank]:
            self._take(rank)
        with self.lock:
            self._check_over()
            self.awaited[rank] = ()
            return self.network.collect(rank, time_s, numbers)

    def race(self, rank, text) -> None:
        """Ends the run: this rank changed a tensor that was on its way."""
        with self.lock:
            self._check_over()
            self.network.problems.append(RaceError(text))
        self.wait(rank, self.network.time_s[rank], self.network.never(rank))

    def test(self, rank, time_s, number):
        """Whether this request is done at this time."""
        with self.lock:
            self._check_over()
            self.network.poll(rank, time_s)
            self.state[rank], self.awaited[rank] = BLOCKED, (time_s,)
            self._go_on()
        self._take(rank)
        with self.lock:
            self._check_over()
            self.awaited[rank] = ()
            return self.network.done_at(rank, time_s, number)

    def finish(self, rank, time_s=0.0, failure=None) -> None:
        """The rank has returned, or failed."""
        with self.lock:
            if failure is not None:
                self.failures[rank] = time_s, failure
            self.state[rank] = RETURNED
            self._go_on()

    # ------------------------------------------------------------------ turns

    def _take(self, rank) -> None:
        self.batons[rank].acquire()
        self._check_over()

    def _check_over(self) -> None:
        if self.problem is not None:
            raise Stopped

    def _go_on(self) -> None:
        """Hands out turns after a rank has stopped running; looks for what ends the run when none is left to hand out."""
        while not self.over.is_set():
            running = RUNNING in self.state
            if running and self.one_at_a_time:
                return
            if ready := [rank for rank, state in enumerate(self.state) if state is READY]:
                if self.one_at_a_time:
                    ready = [self.random.choice(ready) if self.random else ready[0]]
                for rank in ready:
                    self.state[rank] = RUNNING
                    self.batons[rank].release()
                return
            if running:
                return
            try:
                self._advance()
            except Exception as error:  # what a rank posted was none: no other may be left waiting
                self.stop(error)

    def _advance(self):
        """All ranks are blocked or have returned: something comes of it."""
        if self.failures:
            return self.stop(
                min(self.failures.items(), key=lambda item: (item[1][0], item[0]))[1][1]
            )
        problem = self.network.check()
        while problem is None and not self._wake():
            polls = self._polls()
            if self.network.step(before_s=min(polls.values(), default=math.inf)):
                problem = self.network.check() if self.network.problems else None
            elif polls:
                self.state[min(polls, key=lambda rank: (polls[rank], rank))] = READY
                return None
            else:
                return self._end()
        return self.stop(problem) if problem else None

    def _end(self):
        """Nothing moves any more: the run is over, or stuck."""
        waiting = {
            rank: self.awaited[rank] for rank, state in enumerate(self.state) if state is BLOCKED
        }
        if waiting:
            return self.stop(
                deadlock(
                    self.network, waiting, [r for r, s in enumerate(self.state) if s is RETURNED]
                )
            )
        if problem := unfinished(self.network):
            return self.stop(problem)
        return self.over.set()

    def _polls(self):
        """{rank: time} of those that ask whether something is done by now."""
        return {
            rank: self.awaited[rank][0]
            for rank, state in enumerate(self.state)
            if state is BLOCKED and type(self.awaited[rank][0]) is float
        }

    def _wake(self):
        """Makes ready those whose requests are done; whether there were any."""
        polls = self._polls()
        woken = [
            rank
            for rank, state in enumerate(self.state)
            if state is BLOCKED
            and rank not in polls
            and self.network.finished(rank, self.awaited[rank])
        ]
        for rank in woken:
            self.state[rank] = READY
        return bool(woken)


def told(rank, error):
    """The exception of a rank with a note that says which rank it was."""
    if not isinstance(error, RanksError) and f"on rank {rank}" not in getattr(
        error, "__notes__", ()
    ):
        error.add_note(f"on rank {rank}")
    why = ": ".join(filter(None, [type(error).__name__, str(error)]))
    return error if isinstance(error, Exception) else RankFailed(f"rank {rank} ended by {why}")
