"""What to report of ranks that wait for ever, or return before what they began is over."""

import graphlib
from collections.abc import Collection, Mapping, Sequence

from nogpu.ranks.errors import DeadlockError, UnfinishedError
from nogpu.ranks.network import Network
from nogpu.ranks.operations import Collective, Send
from nogpu.ranks.ports import Request


def deadlock(
    network: Network, waiting: Mapping[int, Sequence[Request]], returned: Collection[int]
) -> DeadlockError:
    """The DeadlockError of ranks that wait for these requests, while others have returned."""
    lines: dict[int, str] = {}
    peers: dict[int, list[int]] = {}  # whom a rank waits for
    for rank, requests in sorted(waiting.items()):
        request = next(request for request in requests if not request.done)
        peers[rank], words = _wants(network, request)
        lines[rank] = f"rank {rank} waits {words} ({request.operation.call_site})"
    cycle = _cycle(peers)
    if cycle:
        path = " → ".join(f"rank {rank}" for rank in [*cycle, cycle[0]])
        title = f"deadlock: {path}, each waits for the next"
    else:
        title = "deadlock: what these ranks wait for never comes"
    order = [*cycle, *(rank for rank in lines if rank not in cycle)]
    awaited = {peer for rank in order for peer in peers[rank]}
    over = [f"rank {rank} has returned" for rank in sorted(awaited & set(returned))]
    return DeadlockError("\n  ".join([title, *(lines[rank] for rank in order), *over]))


def unfinished(network: Network) -> UnfinishedError | None:
    """The UnfinishedError of what is left when all ranks have returned; None if nothing is."""
    for request in sorted(network.requests, key=lambda request: request.rank):
        if not request.done or not request.waited:
            return UnfinishedError(f"rank {request.rank}'s {request}{_left(network, request)}")
    counts = [len(calls) for calls in network.group_calls]
    most, least = max(counts), min(counts)
    if most == least:
        return None
    return UnfinishedError(
        f"calls of new_group: {most} by rank {counts.index(most)}, {least} by rank "
        f"{counts.index(least)}; every rank calls it for every group"
    )


def _left(network: Network, request: Request) -> str:
    if request.done:
        return " is never waited for: call wait() on its handle"
    operation = request.operation
    if isinstance(operation, Collective):
        missing = network.progress.missing(request)
        return f": {_ranks(missing)} never {'calls' if len(missing) == 1 else 'call'} it"
    verb = "receives" if isinstance(operation, Send) else "sends"
    return f": {_peer(operation.peer)} never {verb} that message"


def _wants(network: Network, request: Request) -> tuple[list[int], str]:
    """The ranks that this request waits for, and a text that says for what."""
    operation = request.operation
    if isinstance(operation, Collective):
        missing = network.progress.missing(request)
        return missing, f"in {operation.what} for {_ranks(missing)}"
    tag = f" with tag {operation.tag}" if operation.tag else ""
    if isinstance(operation, Send):
        return [operation.peer], f"for rank {operation.peer} to receive its message{tag}"
    if operation.peer is not None:
        return [operation.peer], f"for a message{tag} from rank {operation.peer}"
    others = [rank for rank in network.groups[operation.group] if rank != request.rank]
    return others, f"for a message{tag} from any rank"


def _peer(peer: int | None) -> str:
    return "any rank" if peer is None else f"rank {peer}"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _cycle(peers: Mapping[int, Sequence[int]]) -> list[int]:
    """Ranks that wait for each other in a circle, from the lowest on; [] if there are none."""
    try:
        graphlib.TopologicalSorter(peers).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1][:0:-1]  # there the next waits, and the last is the first
        start = cycle.index(min(cycle))
        return cycle[start:] + cycle[:start]
    return []
