"""What a trace is made of: a message, one rank's call of a collective, a span of time."""

from dataclasses import dataclass, field


@dataclass
class Message:
    """One message, from when it begins to move to when it has arrived.

    depth: messages in the longest chain that ends here. values: the numbers of a short message,
    for pictures; None if it was long, part of a collective, or measured on a real machine.
    """

    src: int
    dst: int
    bytes: int
    start_s: float
    end_s: float
    what: str  # the call it belongs to: "send", "isend", "all_reduce", ...
    tag: int = 0
    line: int = 0  # of the sender's call
    depth: int = 0
    group: int = 0
    values: list[float] | None = field(default=None, compare=False, repr=False)


@dataclass
class Collective:
    """One rank's call of a collective, from the call until its result is there.

    bytes: of the tensor that it is about. values: the numbers of the tensor that the rank brings,
    if it is short; see Message.
    """

    name: str
    rank: int
    group: int
    number: int  # within the group: the same on all ranks that take part
    bytes: int
    start_s: float
    end_s: float
    line: int = 0
    values: list[float] | None = field(default=None, compare=False, repr=False)


@dataclass
class Span:
    """A time in which a rank computed, or that `ranks.span` named."""

    rank: int
    name: str
    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s
