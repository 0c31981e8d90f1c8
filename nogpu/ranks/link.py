"""How a rank reaches the network: the questions that it may ask, here or over the grader's wire."""

from collections.abc import Sequence
from typing import Any, Protocol

from nogpu.ranks.operations import Operation


class Link(Protocol):
    """One rank's connection to the conductor. Times are the rank's own clock, in seconds."""

    def post(self, time_s: float, operations: Sequence[Operation]) -> list[int]:
        """Post operations that the rank begins now; return the numbers of their requests."""
        ...

    def wait(self, time_s: float, numbers: Sequence[int]) -> tuple[float, list[Any]]:
        """Block until these requests are done; return the clock then, and what each one brought."""
        ...

    def test(self, time_s: float, number: int) -> bool:
        """Return whether this request is done by now."""
        ...

    def sender(self, number: int) -> int:
        """Return the rank whose message this request received."""
        ...

    def new_group(self, ranks: list[int]) -> int:
        """Make a group of these ranks; return its number."""
        ...

    def race(self, text: str) -> None:
        """End the run with a RaceError of this text: a tensor changed while it was being sent."""
        ...


QUESTIONS = frozenset(
    name for name, member in vars(Link).items() if callable(member) and not name.startswith("_")
)
