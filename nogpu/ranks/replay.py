"""The trace of a measured run, from what its processes noted.

The notes are replayed through a network, which matches messages and counts rounds as in the
simulated machine. Then the messages get their measured times: a message lasts from when both its
sides had posted it until its receiver had waited for it. The messages of a collective are the
simulated machine's, and last as long as the collective.
"""

from collections.abc import Sequence

from nogpu.ranks.network import Network
from nogpu.ranks.operations import Operation
from nogpu.ranks.ports import Moved, Request
from nogpu.ranks.recorder import Report
from nogpu.ranks.trace import Trace

Note = tuple[str, float, Sequence]  # what was done, when, and the operations, numbers or ranks


class ReplayedNetwork(Network):
    """A network without tensors that remembers both sides of each message."""

    def __init__(self, world_size: int) -> None:
        super().__init__(world_size, 1.0, 0.0, has_data=False)
        self.sides: list[tuple[Request, Request]] = []

    def _deliver(self, moved: Moved) -> None:
        self.sides.append((moved.send.request, moved.receive.request))
        super()._deliver(moved)


class ReplayedRank:
    """One rank's notes, posted to the network again."""

    def __init__(self, network: Network, rank: int, notes: Sequence[Note]) -> None:
        self.network, self.rank, self.notes = network, rank, list(notes)
        self.next = 0  # which note
        self.requests: list[Request] = []  # by the operations' numbers in the notes

    def advance(self) -> bool:
        """Replay the next note; return False if there is none, or if it has to wait."""
        if self.next == len(self.notes):
            return False
        kind, time_s, content = self.notes[self.next]
        if kind == "group":
            self.network.new_group(self.rank, list(content))
        elif kind == "post":
            self._post(time_s, content)
        elif not self._wait(time_s, content):
            return False
        self.next += 1
        return True

    def _post(self, time_s: float, operations: Sequence[Operation]) -> None:
        numbers = self.network.post(self.rank, self.network.time_s[self.rank], operations)
        for request in self.network.requests_of(self.rank, numbers):
            self.requests.append(request)
            request.began_s = request.over_s = time_s

    def _wait(self, time_s: float, operations: Sequence[int]) -> bool:
        requests = [self.requests[operation] for operation in operations]
        if not all(request.done for request in requests):
            return False
        self.network.collect(self.rank, self.network.time_s[self.rank], requests)
        for request in requests:
            request.over_s = time_s
        return True


def trace(
    notes: Sequence[Sequence[Note]],
    reports: Sequence[Report],
    ends_s: Sequence[float],
    machine: str,
) -> Trace:
    """The Trace of a measured run. notes, reports (of the stopwatches) and ends_s are by rank."""
    network = ReplayedNetwork(len(notes))
    ranks = [ReplayedRank(network, rank, own) for rank, own in enumerate(notes)]
    while any([rank.advance() for rank in ranks]) or network.step():
        pass
    for message, (sent, received) in zip(network.messages, network.sides, strict=True):
        message.start_s = max(sent.began_s, received.began_s)
        message.end_s = max(message.start_s, received.over_s)
    for call, request in network.progress.records:
        call.start_s, call.end_s = request.began_s, max(request.began_s, request.over_s)
    messages = sorted(network.messages, key=lambda each: (each.start_s, each.src, each.dst))
    collectives = sorted(network.collectives, key=lambda call: (call.start_s, call.rank))
    made = Trace(len(notes), machine, list(ends_s), messages, collectives)
    made.add_reports(reports)
    return made
