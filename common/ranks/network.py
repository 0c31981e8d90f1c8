"""The network: matches messages, keeps ports and clocks. It knows nothing of threads or processes.

A rank posts operations (dicts of plain data, made by `dist`) and waits for them. A message starts when both its sender and
its receiver have posted it and both ports are free; it takes α + β·bytes. When no rank can go on by itself, `step` commits
the message that can start first: no rank can then post one that starts earlier, so the outcome does not depend on the order
in which ranks ran.
"""

import math
import numbers
from collections import defaultdict, deque
from dataclasses import dataclass, field

from common.ranks import collectives
from common.ranks.errors import MismatchError
from common.ranks.place import in_words
from common.ranks.trace import Collective, Message

WORLD = 0  # the number of the group of all ranks


@dataclass
class Request:
    """Something posted: a send, a receive or a collective, as one rank sees it."""

    rank: int
    kind: str
    what: str  # as in torch.distributed: "isend"
    where: tuple  # (line, text) of the rank's function
    peer: int | None = None
    tag: int = 0
    group: int = WORLD
    number: int = 0  # of a collective, within its group
    done: bool = False
    waited: bool = False
    end_s: float = 0.0
    depth: int = 0  # messages in the longest chain that ends here
    value: object = None
    began_s: float = 0.0  # measured, in a replay
    over_s: float = 0.0

    @property
    def place(self):
        """Where it was called: "line 3: dist.send(x, 1)"."""
        return in_words(*self.where)


@dataclass
class Post:
    """One side of a message."""

    rank: int
    bytes: int
    time_s: float
    depth: int
    order: int  # of posting, within the rank
    request: Request
    payload: object = None
    form: tuple = ()  # (elements, dtype); empty within a collective
    agent: object = None


@dataclass
class Agent:
    """A rank's part in a collective, which goes on by itself."""

    request: Request
    plan: object  # iterator over rounds of ("send" | "recv", rank, bytes)
    collective: object
    time_s: float = 0.0
    depth: int = 0
    pending: int = 0
    record: object = None


@dataclass
class Call:
    """One collective of one group: what each rank brought to it."""

    group: int
    number: int
    operations: dict = field(default_factory=dict)  # rank: operation
    requests: dict = field(default_factory=dict)
    results: dict = field(default_factory=dict)


class Network:
    """p ports, and the messages between them. Its caller sees to it that one thread at a time is in it."""

    def __init__(self, world_size, alpha_s, beta_s_per_byte) -> None:
        self.world_size = world_size
        self.alpha_s = _matrix("alpha_s", alpha_s, world_size)
        self.beta_s_per_byte = _matrix("beta_s_per_byte", beta_s_per_byte, world_size)
        self.requests = []
        self.sends, self.receives = (
            defaultdict(deque),
            defaultdict(deque),
        )  # (src, dst, channel, tag): posts
        self.anyone = defaultdict(deque)  # (dst, channel, tag): receives from whoever comes first
        self.out_free_s, self.in_free_s = [0.0] * world_size, [0.0] * world_size
        self.out_depth, self.in_depth = [0] * world_size, [0] * world_size
        self.depth, self.time_s, self.orders = (
            [0] * world_size,
            [0.0] * world_size,
            [0] * world_size,
        )
        self.groups = {WORLD: list(range(world_size))}
        self.group_calls = [[] for _ in range(world_size)]  # of each rank: the ranks it gave
        self.counts = defaultdict(int)  # (group, rank): collectives called
        self.calls = {}  # (group, number): Call
        self.agents = defaultdict(deque)  # (group, rank): those not over, in order
        self.messages, self.collectives, self.collective_requests = [], [], []
        self.problems = []

    # ------------------------------------------------------------------ what ranks ask

    def post(self, rank, time_s, operations):
        """The numbers of new requests, one an operation."""
        if not (type(time_s) is float and self.time_s[rank] <= time_s < math.inf):
            raise ValueError(f"rank {rank}'s clock goes from {self.time_s[rank]} to {time_s}")
        self.time_s[rank] = time_s
        return [self._post(rank, time_s, operation) for operation in operations]

    def poll(self, rank, time_s) -> None:
        """The rank's clock has come to this time."""
        self.post(rank, time_s, ())

    def never(self, rank):
        """The number of a request that is never done."""
        self.requests.append(Request(rank, "never", "", (0, "")))
        return [len(self.requests) - 1]

    def new_group(self, rank, ranks):
        """The number of the group that this rank's next call of new_group makes."""
        number = 1 + len(self.group_calls[rank])
        self.group_calls[rank].append(ranks)
        self.groups.setdefault(number, ranks)
        return number

    def finished(self, rank, numbers):
        """Whether all these requests are done."""
        return all(request.done for request in self._of(rank, numbers))

    def collect(self, rank, time_s, numbers):
        """(time, values): the rank's clock after waiting for these requests, and what they brought."""
        requests = self._of(rank, numbers)
        for request in requests:
            request.waited = True
            self.depth[rank] = max(self.depth[rank], request.depth)
        self.time_s[rank] = max(
            [self.time_s[rank], time_s, *(request.end_s for request in requests)]
        )
        values = [request.value for request in requests]
        for request in requests:
            request.value = None
        return self.time_s[rank], values

    def done_at(self, rank, time_s, number):
        """Whether this request is done at this time, so far as messages are committed."""
        (request,) = self._of(rank, [number])
        return request.done and request.end_s <= time_s

    def sender(self, rank, number):
        """Who sent the message that this request received."""
        return self._of(rank, [number])[0].peer

    def _of(self, rank, numbers):
        """The requests of these numbers, which must be the rank's own."""
        found = [self.requests[number] for number in numbers]
        if any(request.rank != rank for request in found):
            raise ValueError(f"rank {rank} asks for what is another rank's")
        return found

    # ------------------------------------------------------------------ what the machine asks when all ranks are blocked

    def step(self, before_s=math.inf) -> bool:
        """Commits the message that can start first, and before this time; False if none can."""
        best = min(self._candidates(), key=lambda candidate: candidate[0], default=None)
        if best is None or best[0][0] >= before_s:
            return False
        (start_s, *_), key, receives = best
        self._commit(start_s, key, self.sends[key].popleft(), receives.popleft())
        return True

    # ------------------------------------------------------------------ messages

    def _post(self, rank, time_s, operation):
        kind = operation["kind"]
        request = Request(
            rank,
            kind,
            operation["what"],
            tuple(operation["where"]),
            operation.get("peer"),
            operation.get("tag", 0),
            operation.get("group", WORLD),
        )
        self.requests.append(request)
        if kind == "collective":
            self._call(rank, time_s, operation, request)
        else:
            if (
                request.peer == rank
                or request.peer is not None
                and request.peer not in range(self.world_size)
            ):
                raise ValueError(f"rank {rank} can't exchange a message with rank {request.peer}")
            elements, itemsize = operation["elements"], operation["itemsize"]
            side = Post(
                rank,
                elements * itemsize,
                time_s,
                self.depth[rank],
                self._order(rank),
                request,
                operation.get("payload"),
                (elements, operation["dtype"]),
            )
            self._queue(kind, request.peer, ("messages", request.group), request.tag, side)
        return len(self.requests) - 1

    def _order(self, rank):
        self.orders[rank] += 1
        return self.orders[rank]

    def _queue(self, kind, peer, channel, tag, side) -> None:
        if kind == "send":
            self.sends[side.rank, peer, channel, tag].append(side)
        elif peer is None:
            self.anyone[side.rank, channel, tag].append(side)
        else:
            self.receives[peer, side.rank, channel, tag].append(side)

    def _candidates(self):
        """((start, ...), key, queue of receives) of each message that could start next, the first of each queue."""
        for key in [key for key, sends in self.sends.items() if not sends]:
            del self.sends[key]
        for key, sends in self.sends.items():
            src, dst, channel, tag = key
            queues = [self.receives.get(key), self.anyone.get((dst, channel, tag))]
            queues = [queue for queue in queues if queue]
            if not queues:
                continue
            receives = min(queues, key=lambda queue: queue[0].order)
            ready_s = max(sends[0].time_s, receives[0].time_s)
            start_s = max(ready_s, self.out_free_s[src], self.in_free_s[dst])
            yield (start_s, ready_s, sends[0].order, receives[0].order, src, dst), key, receives

    def _commit(self, start_s, key, send, receive) -> None:
        src, dst, channel, tag = key
        if send.form and send.form != receive.form or send.bytes != receive.bytes:
            self.problems.append(_size_mismatch(send, receive))
        end_s = start_s + self.alpha_s[src][dst] + self.beta_s_per_byte[src][dst] * send.bytes
        depth = 1 + max(send.depth, receive.depth, self.out_depth[src], self.in_depth[dst])
        self.out_free_s[src] = self.in_free_s[dst] = end_s
        self.out_depth[src] = self.in_depth[dst] = depth
        line = send.request.where[0]
        self.messages.append(
            Message(
                src,
                dst,
                send.bytes,
                start_s,
                end_s,
                send.request.what,
                tag,
                line,
                depth,
                channel[1],
            )
        )
        for side in (send, receive):
            if side.agent:
                self._advance(side.agent, end_s, depth)
            else:
                self._done(side.request, end_s, depth, send.payload if side is receive else None)
        if receive.request.peer is None and not receive.agent:
            receive.request.peer = src

    @staticmethod
    def _done(request, end_s, depth, value) -> None:
        request.done, request.end_s, request.depth, request.value = True, end_s, depth, value

    # ------------------------------------------------------------------ collectives

    def _call(self, rank, time_s, operation, request) -> None:
        group = operation["group"]
        if rank not in self.groups[group]:
            raise ValueError(f"rank {rank} is not in the group {self.groups[group]}")
        request.number = self.counts[group, rank]
        self.counts[group, rank] += 1
        call = self.calls.setdefault((group, request.number), Call(group, request.number))
        call.operations[rank], call.requests[rank] = operation, request
        plan = collectives.plan(operation, self.groups[group], rank)
        agent = Agent(request, plan, call, time_s, self.depth[rank])
        agent.record = Collective(
            operation["name"],
            rank,
            group,
            request.number,
            operation["bytes"],
            time_s,
            math.inf,
            request.where[0],
        )
        self.collectives.append(agent.record)
        self.collective_requests.append(request)
        queue = self.agents[group, rank]
        queue.append(agent)
        if len(queue) == 1:
            self._go_on(agent)

    def _advance(self, agent, end_s, depth) -> None:
        agent.pending -= 1
        agent.time_s, agent.depth = max(agent.time_s, end_s), max(agent.depth, depth)
        if not agent.pending:
            self._go_on(agent)

    def _go_on(self, agent) -> None:
        """Posts the agent's next round of messages, or ends its collective."""
        request, call = agent.request, agent.collective
        for exchange in agent.plan:
            if not exchange:
                continue
            agent.pending = len(exchange)
            for kind, peer, count in exchange:
                side = Post(
                    request.rank,
                    count,
                    agent.time_s,
                    agent.depth,
                    self._order(request.rank),
                    request,
                    agent=agent,
                )
                self._queue(kind, peer, ("collective", call.group, call.number), 0, side)
            return
        try:
            self._done(request, agent.time_s, agent.depth, self._result(call, request.rank))
        except Exception as error:  # of the op, for this dtype
            error.add_note(f"in {request.what} ({request.place})")
            raise
        agent.record.end_s = agent.time_s
        queue = self.agents[call.group, request.rank]
        queue.popleft()
        if queue:  # collectives of one group follow each other, as on one stream
            queue[0].time_s = max(queue[0].time_s, agent.time_s)
            queue[0].depth = max(queue[0].depth, agent.depth)
            self._go_on(queue[0])

    def _result(self, call, rank):
        return collectives.result(call, self.groups[call.group], rank)

    def missing(self, request):
        """The ranks that have not called this collective, or one before it that holds it up."""
        first = self.agents[request.group, request.rank][0].collective
        return [rank for rank in self.groups[first.group] if rank not in first.requests]

    def check(self):
        """The first disagreement there is between ranks, by the collectives' order; None if they agree."""
        for _, call in sorted(self.calls.items()):
            ranks = sorted(call.operations)
            for rank in ranks[1:]:
                problem = collectives.disagreement(call, ranks[0], rank)
                if problem:
                    return MismatchError(problem)
        for number, calls in enumerate(zip(*self.group_calls, strict=False), 1):
            rank = next((rank for rank, given in enumerate(calls) if given != calls[0]), None)
            if rank is not None:
                return MismatchError(
                    f"call {number} of new_group: rank 0 gives {calls[0]}, rank {rank} {calls[rank]}; every "
                    "rank calls new_group for every group, in the same order"
                )
        self.calls = {
            key: call
            for key, call in self.calls.items()
            if len(call.operations) < len(self.groups[key[0]])
        }
        return min(self.problems, key=str, default=None)


def _matrix(name, value, world_size):
    """A cost for each pair of ranks, from one number or a matrix."""
    try:
        rows = [
            [float(cell) for cell in row]
            for row in (
                [[value] * world_size] * world_size if isinstance(value, numbers.Real) else value
            )
        ]
    except (TypeError, ValueError):
        rows = []
    if len(rows) != world_size or any(len(row) != world_size for row in rows):
        raise ValueError(f"{name}: {value!r}; give a number or {world_size} rows of {world_size}")
    if any(not 0 <= cell < math.inf for row in rows for cell in row):
        raise ValueError(f"{name}: {value!r}; a cost is a number of seconds from 0 on")
    return rows


def _size_mismatch(send, receive):
    sent, wanted = (
        f"{form[0]:,} elements of {str(form[1]).removeprefix('torch.')}"
        if form
        else f"{side.bytes:,} bytes"
        for form, side in ((send.form, send), (receive.form, receive))
    )
    return MismatchError(
        f"rank {send.rank} sends {sent} ({send.request.place}), "
        f"rank {receive.rank} receives {wanted} ({receive.request.place})"
    )
