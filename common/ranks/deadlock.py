"""What is told of ranks that wait for what never comes, or return before what they began is over."""

from common.ranks.errors import DeadlockError, UnfinishedError


def deadlock(network, waiting, returned):
    """The DeadlockError of ranks that wait. waiting: {rank: numbers of requests}; returned: ranks that are over."""
    lines, edges = {}, {}
    for rank, numbers in sorted(waiting.items()):
        request = next(
            network.requests[number] for number in numbers if not network.requests[number].done
        )
        edges[rank], words = _wants(network, request)
        lines[rank] = f"rank {rank} waits {words} ({request.place})"
    cycle = _cycle(edges)
    if cycle:
        title = (
            "deadlock: "
            + " → ".join(f"rank {rank}" for rank in [*cycle, cycle[0]])
            + ", each waits for the next"
        )
    else:
        title = "deadlock: what these ranks wait for never comes"
    order = cycle + [rank for rank in lines if rank not in cycle]
    awaited = {peer for rank in order for peer in edges[rank]}
    over = [f"rank {rank} has returned" for rank in sorted(awaited & set(returned))]
    return DeadlockError("\n  ".join([title, *(lines[rank] for rank in order), *over]))


def unfinished(network):
    """The UnfinishedError of what is left when all ranks have returned; None if all is in order."""
    for request in sorted(network.requests, key=lambda request: request.rank):
        if request.done and request.waited:
            continue
        begun = f"rank {request.rank}'s {request.what} ({request.place})"
        if request.done:
            return UnfinishedError(f"{begun} is never waited for: call wait() on its handle")
        if request.kind == "collective":
            missing = network.missing(request)
            return UnfinishedError(
                f"{begun}: {_ranks(missing)} never {'calls' if len(missing) == 1 else 'call'} it"
            )
        verb = "receives" if request.kind == "send" else "sends"
        return UnfinishedError(f"{begun}: {_peer(request.peer)} never {verb} that message")
    counts = [len(calls) for calls in network.group_calls]
    if len(set(counts)) > 1:
        most, least = max(counts), min(counts)
        return UnfinishedError(
            f"calls of new_group: {most} by rank {counts.index(most)}, {least} by rank "
            f"{counts.index(least)}; every rank calls it for every group"
        )
    return None


def _wants(network, request):
    """(ranks that this request waits for, in words)."""
    if request.kind == "collective":
        missing = network.missing(request)
        return missing, f"in {request.what} for {_ranks(missing)}"
    tag = f" with tag {request.tag}" if request.tag else ""
    if request.kind == "send":
        return [request.peer], f"for rank {request.peer} to receive its message{tag}"
    peers = (
        [request.peer]
        if request.peer is not None
        else [r for r in network.groups[request.group] if r != request.rank]
    )
    return peers, f"for a message{tag} from {_peer(request.peer)}"


def _peer(peer) -> str:
    return "any rank" if peer is None else f"rank {peer}"


def _ranks(ranks):
    return (
        f"rank {ranks[0]}"
        if len(ranks) == 1
        else "ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"
    )


def _cycle(edges):
    """The ranks of one cycle among edges {rank: ranks it waits for}, from its smallest; [] if there is none."""
    for first in edges:
        before, stack = {first: None}, [first]
        while stack:
            rank = stack.pop()
            for peer in edges.get(rank, ()):
                if peer == first:
                    return _way_back(before, rank)
                if peer not in before:
                    before[peer] = rank
                    stack.append(peer)
    return []


def _way_back(before, rank):
    path = []
    while rank is not None:
        path.insert(0, rank)
        rank = before[rank]
    return path
