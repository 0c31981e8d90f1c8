"""How long a worker may take: the seconds in which it computes or sleeps.

Where other programs need the processors too, a worker waits for one. That costs nobody marks: a
right answer passes on a busy machine, and an endless loop ends on each. So the clock does not
decide. The fork server reads from the kernel what a worker and all that it started have computed,
and whether they sleep; the worker has no say in it.
"""

from __future__ import annotations

from collections.abc import Callable

LOOK_S = 0.25  # between two looks at a worker that does not answer
LEAST_S = 0.02  # the same when little is left
SHORT_S = 0.02  # that may be charged to what comes next: a look takes a tenth of a millisecond
# A worker is never given more than ten times its seconds by the clock: a program can look as if it
# waited for a processor (at the lowest priority, or in a call that the kernel can't interrupt).
BUSIEST = 10.0


class Allowance:
    """Seconds that may still be taken. within: another one, of which they are a part."""

    def __init__(self, seconds: float, within: Allowance | None = None) -> None:
        self.seconds = self.left_s = seconds
        self.within = within

    @property
    def taken_s(self) -> float:
        return self.seconds - self.left_s

    def charge(self, seconds: float) -> None:
        self.left_s -= seconds
        if self.within:
            self.within.charge(seconds)


class Meter:
    """Charges an allowance with what a worker takes while the grader waits for it.

    processor_s: the seconds that the worker has computed; None where the system does not say, as
    on macOS: then the clock decides. is_asleep: whether nothing of it wants a processor.

    A notebook's checks wait thousands of times, so what is read then are attributes.
    """

    def __init__(
        self, processor_s: Callable[[], float | None], is_asleep: Callable[[], bool]
    ) -> None:
        self.processor_s, self.is_asleep = processor_s, is_asleep
        self.allowance: Allowance | None = None  # no limit
        self.patience_s: float | None = None  # to the next look; 0 if the time is up
        self.computed_s = 0.0  # up to the last look
        self.waited_s = 0.0  # for the worker, since then

    def begin(self, allowance: Allowance | None) -> None:
        """From now on, this allowance is charged. None: there is no limit."""
        self.allowance = allowance
        left_s = allowance.left_s if allowance else LOOK_S
        self.patience_s = max(LEAST_S, min(LOOK_S, left_s)) if left_s > 0 else 0.0

    def look(self) -> None:
        """Charges what the worker took, while it still does not answer.

        What it did not compute, it slept or it waited for a processor: it shows which.
        """
        # At a late look, nobody knows how long it has been asleep.
        asleep_s = min(self.waited_s, LOOK_S) if self.is_asleep() else 0.0
        self._charge(asleep_s)

    def settle(self, beyond_s: float = SHORT_S) -> None:
        """The same after it has answered, if the grader waited for longer than this."""
        if self.waited_s > beyond_s:
            self._charge(0.0)

    def _charge(self, asleep_s: float) -> None:
        waited_s, self.waited_s = self.waited_s, 0.0
        computed_s = self.processor_s()
        if computed_s is None:
            took_s = waited_s
        else:
            took_s = max(computed_s - self.computed_s, asleep_s, waited_s / BUSIEST)
            self.computed_s = max(computed_s, self.computed_s)
        if self.allowance:
            self.allowance.charge(took_s)
            self.begin(self.allowance)
