"""The collectives of the simulated machine: which messages each is made of, and what each rank holds afterwards.

| collective | messages | rounds | bytes that a rank sends |
| --- | --- | --- | --- |
| broadcast, reduce | binomial tree | ⌈log₂ p⌉ | n a child (reduce: n to the parent) |
| scatter, gather | binomial tree, halving | ⌈log₂ p⌉ | the shards of the subtree: n/p·(p−1) at most |
| all_gather, reduce_scatter | ring | p − 1 | (p − 1)·n/p |
| all_reduce | ring: reduce-scatter, then all-gather | 2(p − 1) | 2(p − 1)·n/p |
| all_to_all | pairwise | p − 1 | (p − 1)·n/p |
| barrier | dissemination | ⌈log₂ p⌉ | 0 |

n: bytes of the whole vector; p: ranks of the group.
"""

import torch

REDUCTIONS = {
    "sum": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}


def plan(operation, members, rank):
    """Rounds of messages, each a list of ("send" | "recv", rank, bytes) that go at once.

    operation: name, shape and itemsize of the tensor that the collective is about, root (a rank), for all_to_all in_splits
    and out_splits (bytes). members: the group's ranks in order.
    """
    p, me = len(members), members.index(rank)
    if p == 1:
        return iter(())
    name, count = operation["name"], operation["bytes"]
    root = members.index(operation["root"]) if operation.get("root") is not None else 0
    if name in ("broadcast", "reduce", "scatter", "gather"):
        rounds = _down_a_tree(p, (me - root) % p, count, name in ("scatter", "gather"))
        rounds = ([(kind, (peer + root) % p, size) for kind, peer, size in each] for each in rounds)
        if name in ("reduce", "gather"):
            swap = {"send": "recv", "recv": "send"}
            rounds = [
                [(swap[kind], peer, size) for kind, peer, size in each]
                for each in reversed(list(rounds))
            ]
    elif name in ("all_gather", "reduce_scatter"):
        rounds = _round_a_ring(p, me, [count] * p, {"all_gather": 0, "reduce_scatter": -1}[name])
    elif name == "all_reduce":
        elements, size = operation["elements"], operation["itemsize"]
        chunks = [(elements // p + (i < elements % p)) * size for i in range(p)]
        rounds = [*_round_a_ring(p, me, chunks, 0), *_round_a_ring(p, me, chunks, 1)]
    elif name == "all_to_all":
        ins, outs = operation["in_splits"], operation["out_splits"]
        rounds = (
            [("send", (me + k) % p, ins[(me + k) % p]), ("recv", (me - k) % p, outs[(me - k) % p])]
            for k in range(1, p)
        )
    else:
        rounds = (
            [("send", (me + (1 << k)) % p, 0), ("recv", (me - (1 << k)) % p, 0)]
            for k in range((p - 1).bit_length())
        )
    return ([(kind, members[peer], size) for kind, peer, size in each] for each in rounds)


def _down_a_tree(p, me, count, halves):
    """Rounds of a binomial tree from index 0: each that has it passes it on, half as far each time.

    halves: what is passed on are the shards (of count bytes) of the receiver's subtree, not the whole.
    """
    span = me & -me or 1 << (p - 1).bit_length()  # indices me .. me + span - 1 are below me
    if me:
        yield [("recv", me - span, count * (min(me + span, p) - me) if halves else count)]
    while span := span >> 1:
        if me + span < p:
            yield [
                (
                    "send",
                    me + span,
                    count * (min(me + 2 * span, p) - me - span) if halves else count,
                )
            ]


def _round_a_ring(p, me, chunks, shift):
    """Rounds of a ring: chunk me + shift goes first, then each that came."""
    for k in range(p - 1):
        sent, came = (me + shift - k) % p, (me + shift - k - 1) % p
        yield [("send", (me + 1) % p, chunks[sent]), ("recv", (me - 1) % p, chunks[came])]


def result(call, members, rank):
    """What the rank holds afterwards: a tensor, a list of tensors, or None where it gets nothing."""
    operation = call.operations[rank]
    name, me = operation["name"], members.index(rank)
    if name == "barrier":
        return None
    if name in ("broadcast", "scatter"):
        root = call.operations[operation["root"]]["payload"]
        return root if name == "broadcast" else root[me]
    if name in ("reduce", "gather") and operation["root"] != rank:
        return None
    payloads = [call.operations[member]["payload"] for member in members]
    if name in ("all_gather", "gather"):
        return payloads
    if name == "all_to_all":
        return [payload[me] for payload in payloads]
    key = me if name == "reduce_scatter" else "all"
    if key not in call.results:
        parts = [payload[me] for payload in payloads] if name == "reduce_scatter" else payloads
        call.results[key] = _reduced(operation["op"], parts)
    return call.results[key]


def _reduced(op, parts):
    """Sum, or another op, of tensors, from the first rank's on."""
    total = parts[0].clone()
    for part in parts[1:]:
        REDUCTIONS["sum" if op == "avg" else op](total, part, out=total)
    return total.div_(len(parts)) if op == "avg" else total


SIGNATURE = ("name", "shape", "dtype", "op", "root")


def disagreement(call, first, other) -> str | None:
    """A sentence on how two ranks differ about what the group's next collective is; None if they agree."""
    mine, theirs = call.operations[first], call.operations[other]
    for what in SIGNATURE:
        if mine.get(what) != theirs.get(what):
            sides = [
                f"rank {rank} calls {_told(call.operations[rank], what)} ({call.requests[rank].place})"
                for rank in (first, other)
            ]
            return f"{_ordinal(call.number + 1)} collective of the group: {sides[0]}, {sides[1]}"
    return None


def _told(operation, what):
    name = operation["name"]
    return (
        name
        if what == "name"
        else f"{name} with {what} {str(operation.get(what)).removeprefix('torch.')}"
    )


def _ordinal(number) -> str:
    return f"{number}{'th' if number % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
