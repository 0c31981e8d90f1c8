"""What happened on p ranks: messages, collectives, compute, live bytes. Plain data, for checks and for drawing."""

from dataclasses import asdict, dataclass, field


@dataclass
class Message:
    """One message, from when it begins to move to when it has arrived. depth: messages in the longest chain ending here."""

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


@dataclass
class Collective:
    """One rank's call of a collective, from the call until its result is there. bytes: of the tensor it is about."""

    name: str
    rank: int
    group: int
    number: int  # within the group: the same on all ranks that take part
    bytes: int
    start_s: float
    end_s: float
    line: int = 0


@dataclass
class Span:
    """A time in which a rank computed, or what `ranks.span` named."""

    rank: int
    name: str
    start_s: float
    end_s: float

    @property
    def duration_s(self):
        """Seconds from start to end."""
        return self.end_s - self.start_s


@dataclass
class Trace:
    """What happened on the ranks of one run; times in virtual seconds if it was simulated, measured otherwise.

    live_bytes: by rank, [(time_s, bytes)] at each change. self_reported: the names of what the ranks told of themselves,
    which a grader can't vouch for.
    """

    world_size: int
    machine: str = "simulated"
    end_s: list = field(default_factory=list)  # when each rank returned
    messages: list = field(default_factory=list)
    collectives: list = field(default_factory=list)
    compute: list = field(default_factory=list)  # Span
    spans: list = field(default_factory=list)  # Span
    live_bytes: list = field(default_factory=list)
    self_reported: list = field(default_factory=list)

    @property
    def time_s(self):
        """Seconds until the last rank returned."""
        return max(self.end_s, default=0.0)

    @property
    def rounds(self):
        """Messages in the longest chain; those that one rank sends, or receives, one after another make a chain too."""
        return max((message.depth for message in self.messages), default=0)

    @property
    def bytes(self):
        """Bytes of all messages."""
        return sum(message.bytes for message in self.messages)

    @property
    def bytes_sent(self):
        """Bytes that each rank sent: a list by rank."""
        return self._by_rank("src")

    @property
    def bytes_received(self):
        """Bytes that each rank received: a list by rank."""
        return self._by_rank("dst")

    @property
    def peak_live_bytes(self):
        """The most bytes that live tensors had at once: a list by rank."""
        return [max((count for _, count in points), default=0) for points in self.live_bytes]

    @property
    def compute_s(self):
        """Seconds that each rank computed: a list by rank."""
        return [
            sum(span.duration_s for span in self.compute if span.rank == rank)
            for rank in range(self.world_size)
        ]

    @property
    def idle_share(self):
        """The share of its time, until the last rank returns, in which a rank does not compute: a list by rank."""
        return [1 - busy_s / self.time_s if self.time_s else 0.0 for busy_s in self.compute_s]

    @property
    def bubble(self):
        """The share of all ranks' time in which they do not compute, from 0 to 1."""
        return sum(self.idle_share) / self.world_size

    def live_bytes_at(self, rank, time_s):
        """Bytes of the rank's live tensors at this time, after all that happened at it."""
        return next((count for at_s, count in reversed(self.live_bytes[rank]) if at_s <= time_s), 0)

    def spans_named(self, name, rank=None):
        """The spans of this name ("F*": all that begin with F), of one rank or of all, in order of time."""
        return _named(self.spans, name, rank)

    def compute_named(self, name, rank=None):
        """The computation of this name ("F*": all that begin with F), of one rank or of all, in order of time."""
        return _named(self.compute, name, rank)

    def bytes_during_compute(self, name=None):
        """Bytes that each rank sent while it computed: a list by rank.

        A message counts by the share of its time that lies within the rank's compute. name: only compute of this name.
        """
        busy = [[] for _ in range(self.world_size)]
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

    def add_reports(self, reports) -> None:
        """Adds what each rank noted about itself, by rank: {"compute", "spans", "live_bytes"}."""
        for rank, report in enumerate(reports):
            self.compute += [Span(rank, *each) for each in report["compute"]]
            self.spans += [Span(rank, *each) for each in report["spans"]]
            self.live_bytes.append(report["live_bytes"])

    def as_dict(self):
        """The trace as numbers, strings, lists and dicts."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data):
        """The trace that as_dict made this of."""
        kinds = {"messages": Message, "collectives": Collective, "compute": Span, "spans": Span}
        made = {
            name: [kinds[name](**item) for item in items]
            for name, items in data.items()
            if name in kinds
        }
        points = [[tuple(point) for point in rank] for rank in data["live_bytes"]]
        return cls(**{**data, **made, "live_bytes": points})

    def draw(self, **options):
        """Axes with a line a rank: what it computes, sends and receives, and when it idles; see `draw.timeline`."""
        from common.ranks import draw

        return draw.timeline(self, **options)

    def _by_rank(self, side):
        counts = [0] * self.world_size
        for message in self.messages:
            counts[getattr(message, side)] += message.bytes
        return counts


def _named(spans, name, rank):
    def fits(span):
        same = span.name.startswith(name[:-1]) if name.endswith("*") else span.name == name
        return same and rank in (None, span.rank)

    return sorted(filter(fits, spans), key=lambda span: (span.start_s, span.rank))
