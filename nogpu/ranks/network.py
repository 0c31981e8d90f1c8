"""The network: groups, requests and clocks of the ranks. It knows nothing of threads or processes.

A rank posts operations and waits for their requests. When no rank can go on by itself, `step` moves
the message that can start first. No rank can then post one that starts earlier, so the outcome does
not depend on the order in which ranks ran.
"""

import math
from collections.abc import Sequence
from typing import Any

from nogpu.ranks.errors import MismatchError, RanksError
from nogpu.ranks.events import Collective as CollectiveRecord
from nogpu.ranks.events import Message
from nogpu.ranks.operations import WORLD, Collective, Operation, Send
from nogpu.ranks.ports import Channel, Cost, Moved, Ports, Post, Request, size_mismatch
from nogpu.ranks.progress import Progress


class Network:
    """What p ranks have asked of each other. Its caller lets in one thread at a time.

    has_data: whether operations bring tensors, which arrive.
    """

    def __init__(
        self, world_size: int, alpha_s: Cost, beta_s_per_byte: Cost, has_data: bool = True
    ) -> None:
        self.world_size = world_size
        self.groups = {WORLD: list(range(world_size))}
        self.group_calls: list[list[list[int]]] = [[] for _ in range(world_size)]  # by rank
        self.ports = Ports(world_size, alpha_s, beta_s_per_byte)
        self.progress = Progress(self.ports, self.groups, has_data)
        self.requests: list[Request] = []
        self.time_s = [0.0] * world_size
        self.depth = [0] * world_size
        self.messages: list[Message] = []
        self.problems: list[RanksError] = []

    @property
    def collectives(self) -> list[CollectiveRecord]:
        """The ranks' calls of collectives."""
        return [record for record, _ in self.progress.records]

    def post(self, rank: int, time_s: float, operations: Sequence[Operation]) -> list[int]:
        """The numbers of new requests, one per operation."""
        self.advance(rank, time_s)
        return [self._post(rank, time_s, operation) for operation in operations]

    def advance(self, rank: int, time_s: float) -> None:
        """Set the rank's clock."""
        if not (type(time_s) is float and self.time_s[rank] <= time_s < math.inf):
            raise ValueError(f"rank {rank}'s clock goes from {self.time_s[rank]} to {time_s}")
        self.time_s[rank] = time_s

    def new_group(self, rank: int, ranks: list[int]) -> int:
        """The number of the group that this rank's next call of new_group makes."""
        number = 1 + len(self.group_calls[rank])
        self.group_calls[rank].append(ranks)
        self.groups.setdefault(number, ranks)
        return number

    def requests_of(self, rank: int, numbers: Sequence[int]) -> list[Request]:
        """The requests of these numbers, which must be the rank's own."""
        try:
            requests = [self.requests[number] for number in numbers]
        except IndexError:
            raise ValueError(f"rank {rank} asks for a request that does not exist") from None
        if any(request.rank != rank for request in requests):
            raise ValueError(f"rank {rank} asks for another rank's request")
        return requests

    def collect(
        self, rank: int, time_s: float, requests: Sequence[Request]
    ) -> tuple[float, list[Any]]:
        """The rank's clock after waiting for these requests, and what they brought."""
        self.advance(rank, time_s)
        values = [request.value for request in requests]
        for request in requests:
            request.waited, request.value = True, None
            self.depth[rank] = max(self.depth[rank], request.depth)
        ends_s = (request.end_s for request in requests)
        self.time_s[rank] = max([time_s, *ends_s])
        return self.time_s[rank], values

    def done_at(self, rank: int, time_s: float, number: int) -> bool:
        """Whether this request is done at this time, as far as messages have moved."""
        (request,) = self.requests_of(rank, [number])
        return request.done and request.end_s <= time_s

    def sender(self, rank: int, number: int) -> int:
        """The rank whose message this request received."""
        (request,) = self.requests_of(rank, [number])
        if request.sender is None:
            raise ValueError(f"rank {rank} asks who sent what it has not received")
        return request.sender

    def step(self, before_s: float = math.inf) -> bool:
        """Move the message that can start first, and before this time; False if none can."""
        match = self.ports.first()
        if match is None or match.start_s >= before_s:
            return False
        self._deliver(self.ports.move(match))
        return True

    def check(self) -> RanksError | None:
        """The first disagreement between ranks; None if they agree."""
        return (
            self.progress.mismatch()
            or self._group_mismatch()
            or min(self.problems, key=str, default=None)
        )

    def _post(self, rank: int, time_s: float, operation: Operation) -> int:
        request = Request(rank, operation.without_payload())
        self.requests.append(request)
        if isinstance(operation, Collective):
            self.progress.start(operation, request, time_s, self.depth[rank])
            return len(self.requests) - 1
        size, channel = operation.elements * operation.dtype.itemsize, Channel(operation.group)
        post = Post(
            request,
            size,
            time_s,
            self.depth[rank],
            content=(operation.elements, operation.dtype),
        )
        if isinstance(operation, Send):
            post.payload = operation.payload
            self.ports.add_send(post, operation.peer, channel, operation.tag)
        else:
            self.ports.add_receive(post, operation.peer, channel, operation.tag)
        return len(self.requests) - 1

    def _deliver(self, moved: Moved) -> None:
        """Tell both sides of a message that it has arrived."""
        message, send, receive = moved
        if problem := size_mismatch(send, receive):
            self.problems.append(problem)
        self.messages.append(message)
        receive.request.sender = message.src
        for post, value in ((send, None), (receive, send.payload)):
            if post.part:
                self.progress.arrived(post.part, message.end_s, message.depth)
            else:
                post.request.complete(message.end_s, message.depth, value)

    def _group_mismatch(self) -> MismatchError | None:
        for number, calls in enumerate(zip(*self.group_calls, strict=False), 1):
            for rank, ranks in enumerate(calls):
                if ranks != calls[0]:
                    return MismatchError(
                        f"call {number} of new_group: rank 0 gives {calls[0]}, "
                        f"rank {rank} {ranks}; every rank calls new_group for every group, "
                        "in the same order"
                    )
        return None
