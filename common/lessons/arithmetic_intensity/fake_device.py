"""A device with a clock of its own, for testing benchmarks: its times are known in advance."""

import itertools
from collections.abc import Sequence


class FakeDevice:
    """Works like a GPU: call() queues some work and returns before the work is done.

    first_s: what the first call's work takes (it compiles something). later_s: what the work of the
    later calls takes, one after another, and then from the start again. launch_s: what every call
    takes before it returns.
    """

    def __init__(self, first_s: float, later_s: Sequence[float], launch_s: float = 0.0) -> None:
        self._now_s = 1000.0
        self._idle_from_s = self._now_s
        self._launch_s = launch_s
        self._work_s = itertools.chain([first_s], itertools.cycle(later_s))

    def call(self) -> None:
        """Queue the next piece of work."""
        self._now_s += self._launch_s
        self._idle_from_s = max(self._now_s, self._idle_from_s) + next(self._work_s)

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        self._now_s = max(self._now_s, self._idle_from_s)

    def clock(self) -> float:
        """The seconds that have passed, from an arbitrary start."""
        return self._now_s
