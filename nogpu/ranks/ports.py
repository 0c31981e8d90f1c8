"""The ports of the simulated machine: which send meets which receive, and when their message moves.

A rank sends one message at a time and receives one at a time. A message starts when both its sides
are posted and both ports are free; it takes α + β·bytes.
"""

import math
import numbers
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from nogpu.ranks.errors import MismatchError
from nogpu.ranks.events import Message
from nogpu.ranks.operations import Operation

MOST_VALUES = 64  # that a message's record keeps
Cost = float | Sequence[Sequence[float]]  # of every pair of ranks, or a matrix [src][dst]


@dataclass
class Request:
    """What became of an operation that a rank posted."""

    rank: int
    operation: Operation  # without its payload
    number: int = 0  # of a collective, within its group
    done: bool = False
    waited: bool = False
    end_s: float = 0.0
    depth: int = 0  # messages in the longest chain that ends here
    value: Any = None  # what arrived
    sender: int | None = None  # of the message that arrived
    began_s: float = 0.0  # measured, in a replay
    over_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.operation.what} ({self.operation.call_site})"

    def complete(self, end_s: float, depth: int, value: Any) -> None:
        """Note that it is done."""
        self.done, self.end_s, self.depth, self.value = True, end_s, depth, value


@dataclass
class Post:
    """One side of a message."""

    request: Request
    bytes: int
    time_s: float
    depth: int
    payload: torch.Tensor | None = None
    content: tuple[int, torch.dtype] | None = None  # elements and dtype, of no collective's message
    part: Any = None  # the Part (progress.py) of the collective that the message belongs to
    order: int = 0  # of posting, within the rank


class Channel(NamedTuple):
    """Sends and receives of one channel match: those of a group, or of one of its collectives."""

    group: int
    collective: int | None = None


class Match(NamedTuple):
    """A send and a receive that fit.

    Matches are ordered by when their messages could start; the posts' orders decide ties.
    """

    start_s: float
    ready_s: float
    orders: tuple[int, int]
    src: int
    dst: int
    channel: Channel
    tag: int
    receives: deque[Post]


class Moved(NamedTuple):
    """A message that has moved, and its two sides."""

    message: Message
    send: Post
    receive: Post


class Ports:
    """All ranks' ports, and what is posted to them."""

    def __init__(self, world_size: int, alpha_s: Cost, beta_s_per_byte: Cost) -> None:
        self.alpha_s = _matrix("alpha_s", alpha_s, world_size)
        self.beta_s_per_byte = _matrix("beta_s_per_byte", beta_s_per_byte, world_size)
        # By (src, dst, channel, tag); receives from any rank by (dst, channel, tag).
        self.sends: defaultdict[tuple, deque[Post]] = defaultdict(deque)
        self.receives: defaultdict[tuple, deque[Post]] = defaultdict(deque)
        self.receives_from_any: defaultdict[tuple, deque[Post]] = defaultdict(deque)
        self.out_free_s = [0.0] * world_size
        self.in_free_s = [0.0] * world_size
        self.out_depth = [0] * world_size
        self.in_depth = [0] * world_size
        self.posted = [0] * world_size

    def add_send(self, post: Post, dst: int, channel: Channel, tag: int = 0) -> None:
        """Post the sending side of a message."""
        self._number(post)
        self.sends[post.request.rank, dst, channel, tag].append(post)

    def add_receive(self, post: Post, src: int | None, channel: Channel, tag: int = 0) -> None:
        """Post the receiving side of a message; src is None for a message from any rank."""
        self._number(post)
        if src is None:
            self.receives_from_any[post.request.rank, channel, tag].append(post)
        else:
            self.receives[src, post.request.rank, channel, tag].append(post)

    def first(self) -> Match | None:
        """The match whose message can start first; None if there is no match."""
        return min(self._matches(), default=None)

    def move(self, match: Match) -> Moved:
        """Move the message of a match: both ports are busy until it has arrived."""
        start_s, src, dst = match.start_s, match.src, match.dst
        send = self.sends[src, dst, match.channel, match.tag].popleft()
        receive = match.receives.popleft()
        end_s = start_s + self.alpha_s[src][dst] + self.beta_s_per_byte[src][dst] * send.bytes
        depth = 1 + max(send.depth, receive.depth, self.out_depth[src], self.in_depth[dst])
        self.out_free_s[src] = self.in_free_s[dst] = end_s
        self.out_depth[src] = self.in_depth[dst] = depth
        operation = send.request.operation
        message = Message(
            src,
            dst,
            send.bytes,
            start_s,
            end_s,
            operation.what,
            match.tag,
            operation.call_site.line,
            depth,
            match.channel.group,
            short_values(send.payload),
        )
        return Moved(message, send, receive)

    def _number(self, post: Post) -> None:
        self.posted[post.request.rank] += 1
        post.order = self.posted[post.request.rank]

    def _matches(self) -> Iterator[Match]:
        """The first match of each queue of sends."""
        for key in [key for key, sends in self.sends.items() if not sends]:
            del self.sends[key]
        for key, sends in self.sends.items():
            src, dst, channel, tag = key
            exact, any_rank = (
                self.receives.get(key),
                self.receives_from_any.get((dst, channel, tag)),
            )
            if exact and any_rank:
                receives = min(exact, any_rank, key=lambda queue: queue[0].order)
            else:
                receives = exact or any_rank
            if receives:
                send, receive = sends[0], receives[0]
                ready_s = max(send.time_s, receive.time_s)
                start_s = max(ready_s, self.out_free_s[src], self.in_free_s[dst])
                orders = send.order, receive.order
                yield Match(start_s, ready_s, orders, src, dst, channel, tag, receives)


def short_values(payload: Any) -> list[float] | None:
    """The numbers of a short tensor; None if it has no tensor, or a long one."""
    if type(payload) is not torch.Tensor or payload.numel() > MOST_VALUES:
        return None
    dense = payload.layout == torch.strided and payload.device.type == "cpu"
    real = payload.dtype in (torch.float32, torch.float64, torch.int32, torch.int64)
    return payload.detach().flatten().tolist() if dense and real else None


def size_mismatch(send: Post, receive: Post) -> MismatchError | None:
    """The error of a message whose two sides expect different contents; None if they agree."""
    same = send.content is None or send.content == receive.content
    if same and send.bytes == receive.bytes:
        return None
    sides = [(send, "sends"), (receive, "receives")]
    return MismatchError(
        ", ".join(
            f"rank {post.request.rank} {verb} {_content(post)} ({post.request.operation.call_site})"
            for post, verb in sides
        )
    )


def _content(post: Post) -> str:
    if post.content is None:
        return f"{post.bytes:,} bytes"
    elements, dtype = post.content
    return f"{elements:,} elements of {str(dtype).removeprefix('torch.')}"


def _matrix(name: str, cost: Cost, world_size: int) -> list[list[float]]:
    """A cost for each pair of ranks, from one number or a matrix."""
    try:
        matrix: Any = [[cost] * world_size] * world_size if isinstance(cost, numbers.Real) else cost
        rows = [[float(cell) for cell in row] for row in matrix]
    except (TypeError, ValueError):
        rows = []
    if len(rows) != world_size or any(len(row) != world_size for row in rows):
        raise ValueError(f"{name}: {cost!r}; give a number or {world_size} rows of {world_size}")
    if any(not 0 <= cell < math.inf for row in rows for cell in row):
        raise ValueError(f"{name}: {cost!r}; a cost must be a number of seconds from 0 on")
    return rows
