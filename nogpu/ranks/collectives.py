"""The collectives of the simulated machine: their messages, and what each rank holds afterwards.

| collective | messages | rounds | bytes that a rank sends |
| --- | --- | --- | --- |
| broadcast, reduce | binomial tree | ⌈log₂ p⌉ | n per child (reduce: n to the parent) |
| scatter, gather | binomial tree, halving | ⌈log₂ p⌉ | its subtree's shards: at most n/p·(p−1) |
| all_gather, reduce_scatter | ring | p − 1 | (p − 1)·n/p |
| all_reduce | ring: reduce-scatter, then all-gather | 2(p − 1) | 2(p − 1)·n/p |
| all_to_all | pairwise | p − 1 | (p − 1)·n/p |
| barrier | dissemination | ⌈log₂ p⌉ | 0 |

n: bytes of the whole vector; p: ranks of the group.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch

from nogpu.ranks.operations import Collective

REDUCTIONS: dict[str | None, Callable[..., torch.Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,  # and divided in the end
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}


class Transfer(NamedTuple):
    """One side of one message of a collective, as a rank sees it."""

    kind: Literal["send", "recv"]
    peer: int
    bytes: int


Round = list[Transfer]  # what a rank sends and receives at once
Result = torch.Tensor | list[torch.Tensor] | None


def plan(call: Collective, members: Sequence[int], rank: int) -> Iterator[Round]:
    """The rounds of messages that a rank takes part in. members: the group's ranks, in order."""
    p, me = len(members), members.index(rank)
    rounds = () if p == 1 else _rounds(call, p, me, members)
    return (
        [Transfer(kind, members[peer], size) for kind, peer, size in transfers]
        for transfers in rounds
    )


def _rounds(call: Collective, p: int, me: int, members: Sequence[int]) -> Iterable[Round]:
    """The same, with a rank's place in the group in place of the rank."""
    name = call.name
    if name in ("broadcast", "reduce", "scatter", "gather"):
        return _tree_from_root(call, p, me, members.index(call.root))
    if name in ("all_gather", "reduce_scatter"):
        return _ring(p, me, [call.bytes] * p, 0 if name == "all_gather" else -1)
    if name == "all_reduce":
        chunks = [(call.elements // p + (i < call.elements % p)) * call.itemsize for i in range(p)]
        return [*_ring(p, me, chunks, 0), *_ring(p, me, chunks, 1)]
    if name == "all_to_all":
        return _pairs(p, me, call.in_bytes, call.out_bytes)
    if name == "barrier":
        return (
            [Transfer("send", (me + (1 << k)) % p, 0), Transfer("recv", (me - (1 << k)) % p, 0)]
            for k in range((p - 1).bit_length())
        )
    raise ValueError(f"there is no collective {name!r}")


def _tree_from_root(call: Collective, p: int, me: int, root: int) -> Iterable[Round]:
    """A binomial tree from the root to all, or back to the root for reduce and gather."""
    rounds = (
        [Transfer(kind, (peer + root) % p, size) for kind, peer, size in transfers]
        for transfers in _tree(p, (me - root) % p, call.bytes, call.name in ("scatter", "gather"))
    )
    if call.name in ("broadcast", "scatter"):
        return rounds
    return [
        [
            Transfer("send" if kind == "recv" else "recv", peer, size)
            for kind, peer, size in transfers
        ]
        for transfers in reversed(list(rounds))
    ]


def _tree(p: int, me: int, count: int, halves: bool) -> Iterator[Round]:
    """Rounds of a binomial tree from place 0: who has the data sends it on, half as far each time.

    halves: a message carries the shards (of count bytes each) of the receiver's subtree only.
    """
    # Places me to me + span - 1 are below me: of p = 8, span is 8 at place 0, 4 at 4, 2 at 6.
    span = me & -me or 1 << (p - 1).bit_length()
    if me:
        yield [Transfer("recv", me - span, count * (min(me + span, p) - me) if halves else count)]
    while span := span >> 1:
        if me + span < p:
            shards = min(me + 2 * span, p) - me - span if halves else 1
            yield [Transfer("send", me + span, count * shards)]


def _ring(p: int, me: int, chunks: Sequence[int], shift: int) -> Iterator[Round]:
    """Rounds of a ring: chunk me + shift goes first, then the chunk that arrived last."""
    for k in range(p - 1):
        sent, arrives = (me + shift - k) % p, (me + shift - k - 1) % p
        yield [
            Transfer("send", (me + 1) % p, chunks[sent]),
            Transfer("recv", (me - 1) % p, chunks[arrives]),
        ]


def _pairs(p: int, me: int, sent: Sequence[int], received: Sequence[int]) -> Iterator[Round]:
    """Rounds in which each rank sends k places ahead and receives from k places behind."""
    for k in range(1, p):
        ahead, behind = (me + k) % p, (me - k) % p
        yield [Transfer("send", ahead, sent[ahead]), Transfer("recv", behind, received[behind])]


def result(
    calls: Mapping[int, Collective],
    members: Sequence[int],
    rank: int,
    reduced: dict[int | None, torch.Tensor],
) -> Result:
    """What the rank holds afterwards; None if it gets nothing.

    calls: of each member. reduced: what was reduced before for other ranks, by their place; by
    None if all ranks get the same.
    """
    name, op, root = calls[rank].name, calls[rank].op, calls[rank].root
    me = members.index(rank)
    payload_of: dict[Any, Any] = {member: call.payload for member, call in calls.items()}
    if name == "barrier" or name in ("reduce", "gather") and root != rank:
        return None
    if name in ("broadcast", "scatter"):
        return payload_of[root] if name == "broadcast" else payload_of[root][me]
    payloads = [payload_of[member] for member in members]
    if name in ("all_gather", "gather"):
        return payloads
    if name == "all_to_all":
        return [payload[me] for payload in payloads]
    key = me if name == "reduce_scatter" else None
    if key not in reduced:
        parts = payloads if key is None else [payload[me] for payload in payloads]
        reduced[key] = _reduced(op, parts)
    return reduced[key]


def _reduced(op: str | None, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum (or op) of tensors, the first rank's first."""
    total = parts[0].clone()
    for part in parts[1:]:
        REDUCTIONS[op](total, part, out=total)
    return total.div_(len(parts)) if op == "avg" else total


def disagreement(first: Collective, other: Collective) -> tuple[str, str] | None:
    """What two ranks call as a group's next collective, if they disagree; None if they agree."""
    for field in ("name", "shape", "dtype", "op", "root"):
        if getattr(first, field) != getattr(other, field):
            return _with(first, field), _with(other, field)
    return None


def _with(call: Collective, field: str) -> str:
    if field == "name":
        return call.name
    return f"{call.name} with {field} {str(getattr(call, field)).removeprefix('torch.')}"
