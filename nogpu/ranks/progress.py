"""Collectives on their way: each rank's part posts its messages round by round.

The rank itself goes on meanwhile. A group's collectives follow each other, as on one stream.
"""

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from nogpu.ranks import collectives
from nogpu.ranks.errors import MismatchError
from nogpu.ranks.events import Collective as CollectiveRecord
from nogpu.ranks.operations import Collective
from nogpu.ranks.ports import Channel, Ports, Post, Request, short_values


@dataclass
class GroupCall:
    """One collective of one group: what each rank brought to it."""

    group: int
    number: int
    operations: dict[int, Collective] = field(default_factory=dict)  # by rank
    requests: dict[int, Request] = field(default_factory=dict)
    reduced: dict[int | None, torch.Tensor] = field(default_factory=dict)


@dataclass
class Part:
    """A rank's part in a collective."""

    request: Request
    call: GroupCall
    rounds: Iterator[collectives.Round]
    record: CollectiveRecord
    time_s: float
    depth: int
    pending: int = 0  # messages of this round that have not arrived


class Progress:
    """All collectives of a run. has_data: whether operations bring tensors."""

    def __init__(self, ports: Ports, groups: dict[int, list[int]], has_data: bool) -> None:
        self.ports, self.groups, self.has_data = ports, groups, has_data
        self.counts: defaultdict[tuple[int, int], int] = defaultdict(int)  # by (group, rank)
        self.calls: dict[tuple[int, int], GroupCall] = {}  # by (group, number)
        self.parts: defaultdict[tuple[int, int], deque[Part]] = defaultdict(deque)  # (group, rank)
        self.records: list[tuple[CollectiveRecord, Request]] = []

    def start(self, operation: Collective, request: Request, time_s: float, depth: int) -> None:
        """Begin a rank's part; it waits for the rank's part in the group's collective before."""
        rank, group = request.rank, operation.group
        request.number = self.counts[group, rank]
        self.counts[group, rank] += 1
        call = self.calls.setdefault((group, request.number), GroupCall(group, request.number))
        call.operations[rank], call.requests[rank] = operation, request
        record = CollectiveRecord(
            operation.name,
            rank,
            group,
            request.number,
            operation.bytes,
            time_s,
            math.inf,
            operation.call_site.line,
            short_values(operation.payload),
        )
        self.records.append((record, request))
        rounds = collectives.plan(operation, self.groups[group], rank)
        queue = self.parts[group, rank]
        queue.append(Part(request, call, rounds, record, time_s, depth))
        if len(queue) == 1:
            self._next_round(queue[0])

    def arrived(self, part: Part, end_s: float, depth: int) -> None:
        """Note that one message of the part's round has arrived."""
        part.pending -= 1
        part.time_s, part.depth = max(part.time_s, end_s), max(part.depth, depth)
        if not part.pending:
            self._next_round(part)

    def missing(self, request: Request) -> list[int]:
        """The ranks that have not called this collective, or an earlier one that it waits for."""
        first = self.parts[request.operation.group, request.rank][0].call
        return [rank for rank in self.groups[first.group] if rank not in first.requests]

    def mismatch(self) -> MismatchError | None:
        """The first disagreement between ranks, in the collectives' order; None if they agree."""
        for _, call in sorted(self.calls.items()):
            first, *others = sorted(call.operations)
            for other in others:
                words = collectives.disagreement(call.operations[first], call.operations[other])
                if words:
                    sides = [
                        f"rank {rank} calls {what} ({call.operations[rank].call_site})"
                        for rank, what in zip((first, other), words, strict=True)
                    ]
                    number = _ordinal(call.number + 1)
                    return MismatchError(f"{number} collective of the group: {', '.join(sides)}")
        self.calls = {
            key: call
            for key, call in self.calls.items()
            if len(call.operations) < len(self.groups[call.group])
        }
        return None

    def _next_round(self, part: Part) -> None:
        """Post the part's next round of messages, or end it."""
        channel = Channel(part.call.group, part.call.number)
        for transfers in part.rounds:
            part.pending = len(transfers)
            for kind, peer, size in transfers:
                post = Post(part.request, size, part.time_s, part.depth, part=part)
                add = self.ports.add_send if kind == "send" else self.ports.add_receive
                add(post, peer, channel)
            if transfers:
                return
        self._end(part)

    def _end(self, part: Part) -> None:
        call, request = part.call, part.request
        try:
            result = self._result(call, request.rank)
        except Exception as error:  # of the op, which this dtype does not have
            error.add_note(f"in {request}")
            raise
        request.complete(part.time_s, part.depth, result)
        part.record.end_s = part.time_s
        queue = self.parts[call.group, request.rank]
        queue.popleft()
        if queue:
            queue[0].time_s = max(queue[0].time_s, part.time_s)
            queue[0].depth = max(queue[0].depth, part.depth)
            self._next_round(queue[0])

    def _result(self, call: GroupCall, rank: int) -> collectives.Result:
        if not self.has_data:
            return None
        return collectives.result(call.operations, self.groups[call.group], rank, call.reduced)


def _ordinal(number: int) -> str:
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else last}"
