"""What happened on p ranks in one run: messages, collectives, compute, live bytes. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from nogpu.ranks.events import Collective, Message, Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nogpu.ranks.recorder import Report


@dataclass
class Trace:
    """What happened on the ranks of one run. Times are virtual if it was simulated, else measured.

    end_s: when each rank returned. live_bytes: by rank, (time_s, bytes) at each change.
    live_by_category: by rank, (time_s, {category: bytes}). peak_by_category: by rank.
    held_bytes: by rank, what it held when it began each of its calls.
    self_reported: the names of what the ranks themselves reported, which may be wrong.
    """

    world_size: int
    machine: str = "simulated"
    end_s: list[float] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    compute: list[Span] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    live_bytes: list[list[tuple[float, int]]] = field(default_factory=list)
    live_by_category: list[list[tuple[float, dict[str, int]]]] = field(default_factory=list)
    peak_by_category: list[dict[str, int]] = field(default_factory=list)
    held_bytes: list[list[int]] = field(default_factory=list)
    self_reported: list[str] = field(default_factory=list)

    @property
    def time_s(self) -> float:
        """Seconds until the last rank returned."""
        return max(self.end_s, default=0.0)

    @property
    def rounds(self) -> int:
        """Messages in the longest chain; one rank's successive sends, or receives, are one too."""
        return max((message.depth for message in self.messages), default=0)

    @property
    def bytes(self) -> int:
        """Bytes of all messages."""
        return sum(message.bytes for message in self.messages)

    @property
    def bytes_sent(self) -> list[int]:
        """Bytes that each rank sent: a list by rank."""
        return self._by_rank("src")

    @property
    def bytes_received(self) -> list[int]:
        """Bytes that each rank received: a list by rank."""
        return self._by_rank("dst")

    @property
    def peak_live_bytes(self) -> list[int]:
        """The most bytes that live tensors had at once: a list by rank."""
        return [max((count for _, count in points), default=0) for points in self.live_bytes]

    @property
    def compute_s(self) -> list[float]:
        """Seconds that each rank computed: a list by rank."""
        return [
            sum(span.duration_s for span in self.compute if span.rank == rank)
            for rank in range(self.world_size)
        ]

    @property
    def idle_share(self) -> list[float]:
        """The share of the run's time in which a rank does not compute: a list by rank."""
        return [1 - busy_s / self.time_s if self.time_s else 0.0 for busy_s in self.compute_s]

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they do not compute, from 0 to 1."""
        return sum(self.idle_share) / self.world_size

    def live_bytes_at(self, rank: int, time_s: float) -> int:
        """Bytes of the rank's live tensors at this time, after all that happened at it."""
        return next((count for at_s, count in reversed(self.live_bytes[rank]) if at_s <= time_s), 0)

    def bytes_between_nodes(self, per_node: int) -> int:
        """Bytes of the messages between ranks of different nodes, with per_node ranks in each."""
        if per_node < 1 or self.world_size % per_node:
            raise ValueError(f"per_node: {per_node}; it must divide the {self.world_size} ranks")
        return sum(
            message.bytes
            for message in self.messages
            if message.src // per_node != message.dst // per_node
        )

    def calls(self, rank: int) -> list[Collective]:
        """The rank's calls of collectives, in the order in which it made them."""
        mine = [call for call in self.collectives if call.rank == rank]
        return sorted(mine, key=lambda call: call.start_s)

    def spans_named(self, name: str, rank: int | None = None) -> list[Span]:
        """The spans of this name ("F*": all that begin with F), of one rank or all, by time."""
        return _named(self.spans, name, rank)

    def compute_named(self, name: str, rank: int | None = None) -> list[Span]:
        """The compute of this name ("F*": all that begin with F), of one rank or all, by time."""
        return _named(self.compute, name, rank)

    def bytes_during_compute(self, name: str | None = None) -> list[float]:
        """Bytes that each rank sent while it computed: a list by rank.

        A message counts by the share of its time that lies within the rank's compute. name: of the
        compute that counts; any if None.
        """
        busy: list[list[tuple[float, float]]] = [[] for _ in range(self.world_size)]
        for span in self.compute if name is None else self.compute_named(name):
            busy[span.rank].append((span.start_s, span.end_s))
        counts = [0.0] * self.world_size
        for message in self.messages:
            length_s = message.end_s - message.start_s
            within_s = sum(
                max(0.0, min(end_s, message.end_s) - max(start_s, message.start_s))
                for start_s, end_s in busy[message.src]
            )
            counts[message.src] += message.bytes * within_s / length_s if length_s else 0.0
        return counts

    def add_reports(self, reports: Sequence[Report]) -> None:
        """Adds what each rank recorded of itself, by rank."""
        for rank, report in enumerate(reports):
            self.compute += [Span(rank, *named) for named in report["compute"]]
            self.spans += [Span(rank, *named) for named in report["spans"]]
            self.live_bytes.append(report["live_bytes"])
            self.live_by_category.append(
                [(time_s, _named_counts(counts)) for time_s, counts in report["live_by_category"]]
            )
            self.peak_by_category.append(_named_counts(report["peak_by_category"]))
            self.held_bytes.append(report["held_bytes"])

    def as_dict(self) -> dict[str, Any]:
        """The trace as numbers, strings, lists and dicts."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The trace that as_dict made this of."""
        trace = cls(**data)
        trace.messages = [Message(**item) for item in data["messages"]]
        trace.collectives = [Collective(**item) for item in data["collectives"]]
        trace.compute = [Span(**item) for item in data["compute"]]
        trace.spans = [Span(**item) for item in data["spans"]]
        trace.live_bytes = [
            [(time_s, count) for time_s, count in points] for points in data["live_bytes"]
        ]
        trace.live_by_category = [
            [(time_s, counts) for time_s, counts in points] for points in data["live_by_category"]
        ]
        return trace

    def draw(self, **options: Any) -> Axes:
        """Axes with one row per rank: what it computes, sends and receives; see `draw.timeline`."""
        from nogpu.ranks import draw

        return draw.timeline(self, **options)

    def draw_beside(self, wanted: Trace, **options: Any) -> Sequence[Axes]:
        """This timeline above the one that was wanted; see `draw.beside`."""
        from nogpu.ranks import draw

        return draw.beside(self, wanted, **options)

    def draw_chunks(self, given: Sequence[Any], *results: Any, **options: Any) -> Axes | None:
        """What each round brought each rank; see `chunks.rounds`."""
        from nogpu.ranks import chunks

        return chunks.rounds(self, given, *results, **options)

    def _by_rank(self, side: Literal["src", "dst"]) -> list[int]:
        counts = [0] * self.world_size
        for message in self.messages:
            counts[getattr(message, side)] += message.bytes
        return counts


def _named_counts(counts: Sequence[int]) -> dict[str, int]:
    """{category: bytes}."""
    from nogpu.ranks.recorder import CATEGORIES

    return dict(zip(CATEGORIES, counts, strict=True))


def _named(spans: list[Span], name: str, rank: int | None) -> list[Span]:
    def fits(span: Span) -> bool:
        same = span.name.startswith(name[:-1]) if name.endswith("*") else span.name == name
        return same and rank in (None, span.rank)

    return sorted(filter(fits, spans), key=lambda span: (span.start_s, span.rank))
