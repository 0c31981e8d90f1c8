"""What the checks of lab 14 want: the same layers on one device, from PyTorch's own modules."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common import language_model
from common.checks import expect
from common.checks.rank_messages import sums_fault as sums_fault
from common.language_model import transformer
from common.lessons.tensor_parallel.sharding import pieces, sequence_shards, slopes_of

Mistakes = dict[str, Any]
SEQUENCE = slopes_of("gain", "offset", "w1", "b1", "w2", "b2")  # gradients of two blocks
BY_ERF = "That is the GELU with erf. Use `gelu`, of the set-up cell."
ADDED = "The ranks' terms are added: the sum, not the mean."
GATHERED = ["output", "∂x, added over ranks", "∂w1", "∂w2", "∂w3"]  # what `joined_layers` gives
EXPERTS = ["output", "∂x", "∂w1", "∂w2", "x after", "choice after"]  # what `experts` gives
GROUPED = ["output", "∂x", "∂w_q", "∂w_k", "∂w_v", "∂w_out"]  # what `grouped` gives
SIZES = {"width": 16, "layers": 2, "heads": 4, "hidden": 64, "context": 16}


def differentiated(
    function: Callable[..., Tensor], *values: Tensor, **options: Any
) -> list[Tensor]:
    """[y = function(*values), gradient by each value of half the sum of y²]."""
    leaves = [value.clone().requires_grad_() for value in values]
    y = function(*leaves, **options)
    return [y.detach(), *torch.autograd.grad(y, leaves, y.detach())]


class Returned(torch.autograd.Function):
    """x as it is, whose gradient comes back through a function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, back: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.back = back
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.back(gradients[0]), None


def gathered_layers(
    x: Tensor, a: Tensor, b: Tensor, c: Tensor, seen: Callable[[Tensor], Tensor] = torch.clone
) -> Tensor:
    """Three layers on one device; seen: what the next layer sees of a layer's columns."""
    for w in (a, b):
        x = seen((x @ w.T).tanh())
    return x @ c.T


gelu = functools.partial(F.gelu, approximate="tanh")


def mlps(
    x: Tensor,
    *weights: Tensor,
    times: int = 1,
    normed: bool = False,
    activation: Callable[[Tensor], Tensor] = gelu,
    residual: float = 1.0,
    entrance: Callable[[Tensor], Tensor] = torch.clone,
    exit: Callable[[Tensor], Tensor] = torch.clone,
) -> Tensor:
    """Blocks x + mlp(x), or x + mlp(norm(x)), with the last bias added so many times.

    entrance, exit: what happens where ranks share their tokens, and where they add their terms.
    """
    for *norm, w1, b1, w2, b2 in zip(*[iter(weights)] * (6 if normed else 4), strict=True):
        z = entrance(F.layer_norm(x, x.shape[1:], *norm) if normed else x)
        terms = F.linear(activation(F.linear(z, w1, b1)), w2)
        x = residual * x + exit(terms) + times * b2
    return x


def attention(
    x: Tensor,
    w_in: Tensor,
    b_in: Tensor,
    w_out: Tensor,
    b_out: Tensor,
    times: int = 1,
    causal: bool = True,
    heads: int = 4,
) -> Tensor:
    """x + PyTorch's attention (T, D), with the last bias added so many times."""
    mask = torch.ones(len(x), len(x), dtype=torch.bool).triu(1) if causal else None
    options: Any = {"attn_mask": mask, "need_weights": False}
    last = (w_in, b_in, None, None, False, 0.0, w_out, times * b_out)
    return x + F.multi_head_attention_forward(x, x, x, x.shape[1], heads, *last, **options)[0]


def own_heads(w: Tensor, p: int) -> list[Tensor]:
    """The rows (3·D/p, D) of w (3·D, D) that belong to each rank's heads, by rank."""
    return [torch.cat([part.chunk(p)[r] for part in w.chunk(3)]) for r in range(p)]


def heads_otherwise(w: Tensor, p: int) -> Mistakes:
    """Of the rows of w (3·D, D) that belong to each rank's heads, by rank."""
    heads = w.unflatten(0, (3, 4, -1))
    return {
        "Rank 0 has queries and no values: cut each of q, k, v by heads.": pieces(w, p),
        "Heads are dealt out in turn. Rank r has neighbours: r·heads/p to (r + 1)·heads/p − 1.": [
            heads[:, r::p].flatten(0, 2) for r in range(p)
        ],
    }


def terms_of(want: Sequence[Tensor], rank: int, returned: Sequence[Any]) -> Mistakes:
    """A rank's gradients where all ranks' add up to the one that is wanted, None elsewhere."""
    by_name = zip(*(gradients for _, *gradients in returned), strict=True)
    terms = [
        terms[rank] if torch.allclose(torch.stack(terms).sum(0), w) else None
        for terms, w in zip(by_name, want, strict=True)
        if len({term.shape for term in terms}) == 1
    ]
    says = "Its own tokens only: a replicated weight's gradient is partial, too."
    return {says: terms} if len(terms) == len(want) else {}


def _heads(x: Tensor, w: Tensor, d: int) -> Tensor:
    """(heads, T, d) of x (T, D) and w (heads·d, D)."""
    return torch.einsum("td,hed->hte", x, w.unflatten(0, (-1, d)))


def grouped(
    x: Tensor, weights: Sequence[Tensor], key_heads: int, p: int
) -> tuple[list[list[Tensor]], list[Mistakes]]:
    """(x + grouped attention and its gradients, by rank; the same after mistakes, by rank).

    weights: w_q, w_k, w_v, w_out. Each of p ranks has a copy of its own of the key heads that it
    needs, so a copy's gradient is what comes of this rank's query heads alone.
    """
    w_q, w_k, w_v, w_out = weights
    d = len(w_k) // key_heads
    share = max(p // key_heads, 1)

    def forward(x: Tensor, w_q: Tensor, keys: Tensor, values: Tensor, w_out: Tensor) -> Tensor:
        q, k, v = (_heads(x, w, d) for w in (w_q, keys, values))
        k, v = (t.repeat_interleave(len(q) // len(k), 0) for t in (k, v))
        scores = (q @ k.mT / d**0.5).masked_fill(torch.ones(len(x), len(x)).triu(1) > 0, -1e30)
        return x + (scores.softmax(2) @ v).transpose(0, 1).flatten(1) @ w_out.T

    copies = [w.unflatten(0, (-1, d)).repeat_interleave(share, 0).flatten(0, 1) for w in (w_k, w_v)]
    y, dx, dq, *dkv, dout = differentiated(forward, x, w_q, *copies, w_out)
    own = [slope.chunk(p) for slope in dkv]
    added = [
        [torch.stack(terms[r // share * share :][:share]).sum(0) for r in range(p)] for terms in own
    ]
    everywhere = [p * [torch.stack(terms).sum(0)] for terms in own]

    def result(by_rank: Sequence[Sequence[Tensor]], r: int) -> list[Tensor]:
        return [y, dx, dq.chunk(p)[r], *(terms[r] for terms in by_rank), dout.chunk(p, 1)[r]]

    only = "Its own query heads only: other ranks use this key head, too."
    over_all = "Added over all ranks: other ranks hold other key heads. Add over the group."
    y_exchanged = forward(x, w_q, copies[1], copies[0], w_out)
    exchanged = {"k and v are exchanged.": [y_exchanged, *5 * [None]]}
    alone = [{only: result(own, r), over_all: result(everywhere, r)} | exchanged for r in range(p)]
    return [result(added, r) for r in range(p)], alone


def experts(
    xs: Sequence[Tensor], choices: Sequence[Tensor], w1: Tensor, w2: Tensor
) -> list[list[Tensor]]:
    """[output, gradients by x and by this rank's w1 and w2, x, choice], by rank.

    w1, w2: of all experts, (p, H, D) and (p, D, H).
    """

    def forward(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        own = torch.cat(list(choices))
        h = F.gelu(torch.einsum("nd,nhd->nh", x, w1[own]), approximate="tanh")
        return torch.einsum("nh,ndh->nd", h, w2[own])

    y, dx, d1, d2 = differentiated(forward, torch.cat(list(xs)), w1, w2)
    sizes = [len(x) for x in xs]
    given = [x.clone() for x in xs], [choice.clone() for choice in choices]
    by_rank = zip(y.split(sizes), dx.split(sizes), d1, d2, *given, strict=True)
    return [list(rank) for rank in by_rank]


def rows_sent(choices: Sequence[Tensor]) -> int:
    """The most rows that a rank sends to other ranks: its tokens, and what its expert returns."""
    return max(
        int((choices[r] != r).sum())
        + sum(int((choice == r).sum()) for q, choice in enumerate(choices) if q != r)
        for r in range(len(choices))
    )


def drawn_model(rng: np.random.Generator) -> dict[str, Tensor]:
    """The weights of a small language model, by name."""
    model = language_model.module(trained=False, **SIZES)
    return {
        name: torch.from_numpy(rng.normal(w.ndim == 1, 0.1, w.shape))
        for name, w in transformer.named(model)
    }


def trained(
    texts: Sequence[Tensor], weights: dict[str, Tensor], rate: float
) -> tuple[list[float], dict[str, Tensor]]:
    """(losses, weights) after a step of gradient descent on each text, on one device."""
    model = language_model.module(trained=False, **SIZES).double()
    named = dict(transformer.named(model))
    with torch.no_grad():
        for name, w in named.items():
            w.copy_(weights[name])
    losses = []
    for tokens in texts:
        loss = F.cross_entropy(model(tokens[None, :-1])[0], tokens[1:])
        losses.append(loss.item())
        slopes = torch.autograd.grad(loss, list(named.values()))
        with torch.no_grad():
            for w, slope in zip(named.values(), slopes, strict=True):
                w -= rate * slope
    return losses, {name: w.detach().clone() for name, w in named.items()}


# What a rank holds of the gradients: those of the weights that the student's function gave it.


def cut(
    shard: Callable[..., Any],
    weights: Sequence[Tensor],
    slopes: Sequence[Tensor],
    p: int,
    *heads: int,
) -> tuple[list[Any], list[Any]]:
    """(the weights, their slopes) by rank, as shard(w1, b1, w2, b2, *heads, rank, p) cuts them.

    With several blocks of four weights, each rank has a list of blocks.
    """
    firsts = range(0, len(weights), 4)
    parts = [[list(shard(*weights[i : i + 4], *heads, r, p)) for i in firsts] for r in range(p)]
    want = [
        [alike(part, weights[i:], slopes[i:]) for i, part in zip(firsts, blocks, strict=True)]
        for blocks in parts
    ]
    if len(firsts) == 1:
        return [blocks[0] for blocks in parts], [blocks[0] for blocks in want]
    return parts, want


def cut_model(
    shard: Callable[..., Any],
    weights: dict[str, Tensor],
    want: dict[str, Tensor],
    heads: int,
    p: int,
) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """(the weights, what they should become) by rank and name, as shard(...) cuts the weights."""
    parts = [dict(shard(weights, heads, r, p)) for r in range(p)]
    goal = []
    for part in parts:
        wholes, others = [weights[name] for name in part], [want[name] for name in part]
        goal.append(dict(zip(part, alike([*part.values()], wholes, others), strict=True)))
    return parts, goal


def alike(
    shards: Sequence[Tensor], wholes: Sequence[Tensor], others: Sequence[Tensor]
) -> list[Tensor]:
    """The elements of each other tensor at the places that a shard's elements have in the whole.

    No two elements of a whole are equal. AssertionError if a shard holds anything else: then what
    the student's function gives for the weights would decide what is wanted.
    """
    found = []
    for own, whole, other in zip(shards, wholes, others, strict=False):
        values, order = whole.flatten().sort()
        place = torch.searchsorted(values, own.flatten()).clamp(max=len(values) - 1)
        same = torch.equal(values[place], own.flatten())
        expect(
            same, f"a shard of {tuple(whole.shape)} weights holds numbers that are not among them"
        )
        found.append(other.flatten()[order[place]].view(own.shape))
    return found


def joined_layers(returns: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """One device's results from the ranks': [output, gradient of x, gradient of each weight]."""
    outputs, added, *slopes = zip(*returns, strict=True)
    total = torch.stack(added).sum(0)
    return [torch.cat(outputs, 1), total, *(torch.cat(parts) for parts in slopes)]


# What known mistakes give: {sentence: values by rank or by name}


def gathered_otherwise(
    x: Tensor, weights: Sequence[Tensor], want: Sequence[Tensor], p: int
) -> Mistakes:
    """Of gather_columns in three layers."""
    d = x.shape[1]

    def forward(seen: Callable[[Tensor], Tensor]) -> list[Tensor]:
        return differentiated(gathered_layers, x, *weights, seen=seen)

    def backward(back: Callable[[Tensor], Tensor]) -> list[Tensor]:
        return forward(lambda x: Returned.apply(x, back))

    def reversed_ranks(x: Tensor) -> Tensor:
        return torch.cat(x.chunk(p, 1)[::-1], 1)

    return {
        "No gradient comes back: does x pass through two_way, and does its way back return it?": [
            want[0],
            *(0 * slope for slope in want[1:4]),
            want[4],
        ],
        "The parts of a gradient are added: the sum, not the mean.": [
            slope / p**k for slope, k in zip(want, (0, 2, 2, 1, 0), strict=True)
        ],
        "The columns are in reversed order of the ranks.": forward(reversed_ranks),
        "The parts of the gradient are in reversed order of the ranks: part r goes to rank r.": (
            backward(reversed_ranks)
        ),
        "The columns of the ranks alternate: put all of rank 0's first, then rank 1's.": (
            forward(lambda x: in_turn(x.T, (p, -1)).T)
        ),
        "The gradient is dealt out in turn. The columns of rank r are neighbours, from d·r on.": (
            backward(lambda gradient: in_turn(gradient.T, (-1, p)).T)
        ),
        "These are the ranks' rows, one below the other: a view moves no number.": (
            forward(lambda x: torch.cat(x.chunk(p, 1)).view(-1, d))
        ),
    }


def gathers_otherwise(n: int) -> Mistakes:
    """Of the bytes that gather_columns sends."""
    return {
        "Nobody adds the ranks' parts: the gradient of what you gathered is a partial sum.": (n, 0),
        "All-reduce, then cut? It adds columns which are then thrown away.": (n, 2 * n),
        "The columns are gathered twice.": (2 * n, n),
    }


def copied(x: Tensor, gs: Sequence[Tensor]) -> tuple[list[Tensor], Mistakes]:
    """(what the last rank has of `copied`, the same after mistakes); gs: gradients by rank."""
    p, total, own = len(gs), torch.stack(list(gs)).sum(0), gs[-1]
    changed = "The gradient that came must stay as it was: all-reduce a copy of it."
    return [x, total, x, own], {
        "Each rank's gradient is that of its own use of x only. What do the others know?": (
            [x, own, x, own]
        ),
        "Add x over ranks and you have p of it: it is there already.": [p * x, own, x, own],
        "The sum of the ranks' gradients, not their mean.": [x, total / p, x, own],
        changed: [x, total, x, total],
    }


def summed(xs: Sequence[Tensor], g: Tensor) -> tuple[list[Tensor], Mistakes]:
    """(what the last rank has of `summed`, the same after mistakes); xs: terms by rank."""
    p, total, own = len(xs), torch.stack(list(xs)).sum(0), xs[-1]
    return [total, g, own, g], {
        "x must stay as it was: autograd and others may hold it.": [total, g, total, g],
        "All ranks have the whole gradient: added, it is p times too large.": [
            total,
            p * g,
            own,
            p * g,
        ],
        "The sum over ranks, not the mean.": [total / p, g, own, g],
        "Each term's gradient is all of the sum's, not a p-th of it.": [total, g / p, own, g],
    }


def mlps_otherwise(x: Tensor, weights: Sequence[Tensor], p: int) -> Mistakes:
    """Of two blocks of mlp."""
    return {
        "b2 is added p times: once on each rank before the sum.": p * [mlps(x, *weights, times=p)],
        "b2 is missing.": p * [mlps(x, *weights, times=0)],
        BY_ERF: p * [mlps(x, *weights, activation=F.gelu)],
        "b1 is missing.": p * [mlps(x, *without(weights, 1, 4))],
        "GELU is missing: without it, the two layers are one.": p
        * [mlps(x, *weights, activation=torch.clone)],
        "That is ReLU. Use `gelu`, of the set-up cell.": p * [mlps(x, *weights, activation=F.relu)],
        "x is added twice: mlp returns no x, because the block is x + mlp(x).": p
        * [mlps(x, *weights, residual=2.0)],
        "The ranks' shares are added: the sum, not the mean.": p
        * [mlps(x, *weights, exit=lambda terms: terms / p)],
    }


def without(weights: Sequence[Tensor], place: int, size: int) -> list[Tensor]:
    """Weights of blocks of this size, with zeros for the one at this place of each block."""
    return [w * float(i % size != place) for i, w in enumerate(weights)]


def mlp_bytes(n: int) -> Mistakes:
    """Of the bytes that two blocks of mlp send forward."""
    return {
        "Hidden units cross? GELU(a + b) is not GELU(a) + GELU(b): cut w1 by units.": 9 * n // 2,
        "Nothing crosses: each rank has its own units' share, and nobody adds the shares.": 0,
        "x crosses, too: all ranks have it already, and `copied` sends nothing forward.": 2 * n,
    }


def sequence(
    x: Tensor, weights: Sequence[Tensor], p: int
) -> tuple[list[Tensor], list[list[Tensor]], Mistakes]:
    """By rank: (tokens after two blocks of sequence_mlp, gradients of x and weights, mistakes)."""
    y, *slopes = differentiated(mlps, x, *weights, normed=True)
    cut = zip(*sequence_shards(slopes[0], slopes[1:], p), strict=True)
    return pieces(y, p), [[slope, *own] for slope, own in cut], _sequence_otherwise(x, weights, p)


def live_whole(live: float, p: int) -> str:
    """What to say of so many live numbers per token and feature, where p ranks need fewer."""
    return (
        f"sequence_mlp, p = {p}: {live:.1f} T·D numbers are live at once, {3 + 20 / p:.0f} are "
        "enough. What is whole outside the region? Norm before you gather."
    )


def _sequence_otherwise(x: Tensor, weights: Sequence[Tensor], p: int) -> Mistakes:
    """Of the tokens after two blocks of sequence_mlp."""

    def result(weights: Sequence[Tensor], **options: Any) -> Any:
        return mlps(x, *weights, **options).chunk(p)

    blocks = [list(weights[i : i + 6]) for i in range(0, len(weights), 6)]
    swapped = [w for gain, offset, *rest in blocks for w in (offset, gain, *rest)]
    no_norm = [w for block in blocks for w in block[2:]]
    plain = [w for gain, offset, *rest in blocks for w in (gain**0, 0 * offset, *rest)]
    added = [w * (p if i % 6 in (0, 1, 5) else 1) for i, w in enumerate(weights)]
    return {
        "b2 is missing.": result(without(weights, 5, 6), normed=True),
        "b1 is missing.": result(without(weights, 3, 6), normed=True),
        "gain multiplies and offset is added: here they are exchanged.": result(
            swapped, normed=True
        ),
        "The norm is missing.": result(no_norm),
        "The norm's gain and offset are missing.": result(plain, normed=True),
        "gain, offset and b2 are on all ranks already: they enter by `copied`, not by `summed`.": (
            result(added, normed=True)
        ),
        BY_ERF: result(weights, normed=True, activation=F.gelu),
        ADDED: result(weights, normed=True, exit=lambda terms: terms / p),
        "gathered: the ranks' tokens alternate. Put all of rank 0's first, then all of rank 1's.": (
            result(weights, normed=True, entrance=lambda z: in_turn(z, (p, -1)))
        ),
        "scattered: tokens are dealt out in turn. Rank r's tokens are neighbours.": result(
            weights, normed=True, exit=lambda terms: in_turn(terms, (-1, p))
        ),
        "The block adds to x: x + MLP(norm(x)).": result(weights, normed=True, residual=0.0),
        "b2 is added p times: once on each rank before the sum.": result(
            weights, normed=True, times=p
        ),
    }


def in_turn(x: Tensor, axes: tuple[int, int]) -> Tensor:
    """x with its rows, which have these two axes, in the order of the exchanged axes."""
    return x.unflatten(0, axes).transpose(0, 1).flatten(0, 1)


def sequence_back(x: Tensor, weights: Sequence[Tensor], p: int, rank: int) -> Mistakes:
    """Of a rank's gradient of x in two blocks of sequence_mlp."""

    def averaged(x: Tensor) -> Tensor:
        return Returned.apply(x, lambda gradient: gradient / p)

    slope = differentiated(mlps, x, *weights, normed=True, entrance=averaged)[1]
    says = "On their ways back, gathered adds and scattered gathers: neither takes a mean."
    return {says: [pieces(slope, p)[rank], *len(weights) * [None]]}


def attention_otherwise(x: Tensor, weights: Sequence[Tensor], p: int) -> Mistakes:
    """Of x + attention."""
    w_in, b_in, w_out, b_out = weights

    def result(q: int, k: int, v: int, scale: float = 1.0) -> list[Tensor]:
        """For w_in's thirds in this order, and larger queries."""
        w, b = ([t.chunk(3)[i] for i in (q, k, v)] for t in (w_in, b_in))
        w, b = (torch.cat([scale * t[0], *t[1:]]) for t in (w, b))
        return p * [attention(x, w, b, w_out, b_out)]

    own = torch.arange(w_out.shape[1]) * p // w_out.shape[1]  # the rank of each column
    want = attention(x, w_in, b_in, w_out, b_out)
    w_heads, b_heads = (
        t.unflatten(0, (4, 3, -1)).transpose(0, 1).flatten(0, 2) for t in (w_in, b_in)
    )
    dealt = in_turn(w_out.T, (-1, p)).T
    return {
        "k and v are exchanged: w_in holds queries, keys, values.": result(0, 2, 1),
        "q and k are exchanged: w_in holds queries, keys, values.": result(1, 0, 2),
        "The scores are not divided by √d.": result(0, 1, 2, (x.shape[1] / 4) ** 0.5),
        "b_in is missing.": p * [attention(x, w_in, 0 * b_in, w_out, b_out)],
        "It is this rank's heads alone: sum over ranks.": [
            attention(x, w_in, b_in, w_out * (own == r), b_out) for r in range(p)
        ],
        "b_out is added p times.": p * [attention(x, w_in, b_in, w_out, b_out, times=p)],
        "b_out is missing.": p * [attention(x, w_in, b_in, w_out, b_out, times=0)],
        "x is added twice: attention returns no x, because the block is x + attention(x).": p
        * [want + x],
        ADDED: p * [attention(x, w_in, b_in, w_out / p, b_out)],
        "The columns of w_out are dealt out in turn: rank r has those of its own heads.": p
        * [attention(x, w_in, b_in, dealt, b_out)],
        "The axes of what w_in gives are (3, heads, d): here they are taken as (heads, 3, d).": p
        * [attention(x, w_heads, b_heads, w_out, b_out)],
        "The mask is the wrong way round: token t looks at the tokens up to t.": p
        * [attention(x.flip(0), w_in, b_in, w_out, b_out).flip(0)],
        "Token t may not look at t + 1: causal.": p
        * [attention(x, w_in, b_in, w_out, b_out, causal=False)],
    }


def hard_logits(z: Tensor, y: Tensor) -> Tensor:
    """z (8, 24) with 800 more in whole rows, and in the words of the rank that has the target.

    Rows of the first rank's targets, and of the last one's, have their maximum there.
    """
    rows = torch.tensor(4 * [[-800.0], [800.0]])
    first = (y[:, None] < 6) & (torch.arange(24) < 6)
    last = (y[:, None] > 17) & (torch.arange(24) > 17)
    return z + rows + 800.0 * (first | last)


def entropy_fault(sent: int, back: int, p: int) -> str:
    """What is wrong with the bytes that a rank sends for the loss of 8 tokens; "" if nothing is."""
    want = 3 * 2 * (p - 1) * 64 // p  # three sums; below: one, and a logarithm from each rank
    if sent + back in (want, want // 3 + (p - 1) * 64):
        return ""
    said = f"cross_entropy: a rank sends {sent} + {back} bytes, want {want} on {p} ranks: "
    if back:
        return f"{said}nothing crosses backward."
    if sent > 3 * want:
        return f"{said}no logit need cross."
    return f"{said}an all-reduce of each of three numbers per token, and no other collective."


def entropy_otherwise(z: Tensor, y: Tensor, p: int) -> Mistakes:
    """Of the loss of logits z (T, V), cut by words."""
    want, parts = F.cross_entropy(z, y), z.chunk(p, 1)
    own_max = torch.cat([part - part.max(1, keepdim=True).values for part in parts], 1)
    target, most = z.gather(1, y[:, None])[:, 0], z.max(1).values
    totals = [(part - most[:, None]).exp().sum(1).log() + most for part in parts]
    found = [(target - most) * (y * p // z.shape[1] == r) + most for r in range(p)]
    return {
        "The rank's own words only: the sum of a softmax runs over all words.": [
            (part.logsumexp(1) - target).mean() for part in parts
        ],
        "The sum of exp is this rank's own: sum it over ranks.": [
            (total - target).mean() for total in totals
        ],
        "The target's logit is on one rank alone: sum it over ranks.": [
            (z.logsumexp(1) - own).mean() for own in found
        ],
        "The maximum is the rank's own: all must subtract the same.": p
        * [F.cross_entropy(own_max, y)],
        "Subtract the maximum from the target's logit, too.": p * [want - z.max(1).values.mean()],
        "The sum over tokens, not the mean.": p * [len(z) * want],
        "The sign is reversed: it is the logarithm minus the target's logit.": p * [-want],
        "The logarithm of the sum is missing.": p
        * [((z - most[:, None]).exp().sum(1) - target + most).mean()],
        "Without the largest logit of all ranks, exp overflows or all of it vanishes.": p
        * [want * float("nan")],
        "Without the largest logit of all ranks, exp overflows or vanishes.": p
        * [want * float("inf")],
        "Without the largest logit of all ranks, exp vanishes or overflows.": p
        * [-want * float("inf")],
    } | _without_mask(z, y, p)


def _without_mask(z: Tensor, y: Tensor, p: int) -> Mistakes:
    """Of the loss, if each rank adds a logit for each token."""
    width, most = z.shape[1] // p, z.max(1).values
    firsts = torch.arange(p) * width  # the first word of each rank

    def added(places: Tensor) -> list[Tensor]:
        """For the logits at one place per rank and token."""
        own = z.gather(1, places) - most[:, None]
        return p * [(z.logsumexp(1) - most - own.sum(1)).mean()]

    return {
        "Ranks without the target add another word's logit: they must add 0.": added(
            (y[:, None] - firsts).clamp(0, width - 1) + firsts
        ),
        "Each rank adds a logit, but one rank has the target: the others must add 0.": added(
            (y % width)[:, None] + firsts
        ),
    }


def slopes_otherwise(z: Tensor, y: Tensor, slope: Tensor, p: int) -> Mistakes:
    """Of the gradient of half the loss's square by logits z (T, V), cut by words."""
    scale = F.cross_entropy(z, y) / len(z)
    return {
        "p times too large: all ranks have the loss's whole gradient.": pieces(p * slope, p, 1),
        "The target's part is missing: no gradient comes back through its logit.": pieces(
            scale * z.softmax(1), p, 1
        ),
        "The softmax is missing: no gradient comes back through the sum of exp.": pieces(
            -scale * F.one_hot(y, z.shape[1]), p, 1
        ),
    }


def lowered(z: Tensor, p: int) -> list[Tensor]:
    """The logits by rank, minus the maximum over all words."""
    return list((z - z.max(1, keepdim=True).values).chunk(p, 1))


def crossing(p: int) -> Mistakes:
    """Of the bytes that two blocks of mlp send backward."""
    return {
        "Nothing crosses: each rank has its own units' part of x's gradient, and nobody adds.": 0,
        "More than ∂x crosses: after the sum, b2's gradient is whole.": 4 * (p - 1) * 256 // p,
    }


def heads_crossing(n: int, p: int) -> Mistakes:
    """Of the bytes (forward, backward) that attention sends."""
    return {
        "Nothing crosses backward: x is copied, so its gradient is a partial sum.": (n, 0),
        "More than ∂x crosses: after the sum, b_out's gradient is whole.": (
            n,
            n + 2 * (p - 1) * 16 * 8 // p,
        ),
    }


def a_pth(want: Sequence[Tensor], p: int) -> Mistakes:
    """Of a bias that is added in terms."""
    return {"It is 1/p of that: b_out / p before the sum? Add it after.": [w / p for w in want]}


def linear_otherwise(want: Sequence[Sequence[Tensor]], w: Tensor, b: Tensor) -> list[Mistakes]:
    """Of GatheredLinear, by rank; want: [output, ∂x, ∂w, ∂b] by rank."""
    p = len(want)
    ws, bs = w.chunk(p), b.chunk(p)
    own = [(y @ ws[r]).chunk(p)[r] for r, (y, *_) in enumerate(want)]
    outputs, _, *slopes = (torch.stack(each).sum(0) for each in zip(*want, strict=True))
    return [
        {
            "b is missing.": [y - bs[r], None, None, None],
            "backward writes zeros into the gradient that it is given: others may hold it.": (
                [0 * y, None, None, None]
            ),
            "backward sums into the gradient that it is given: sum a copy, others may hold it.": (
                [outputs, None, None, None]
            ),
            "It is the part of this rank's units: the reduce-scatter adds the parts of all.": (
                [None, own[r], None, None]
            ),
            "Were the gathered tokens there? wait() before you use them.": (
                [None, 0 * dx, 0 * dw, None]
            ),
            "It is whole already: a rank has all tokens for its own units. Nothing to add.": (
                [None, None, *slopes]
            ),
            "The sum over tokens, not the mean.": [None, None, dw / len(y), db / len(y)],
        }
        for r, (y, dx, dw, db) in enumerate(want)
    ]


def kept(n: int) -> Mistakes:
    """Of the bytes that GatheredLinear sends."""
    return {"The gathered x was kept: keep the shard, and gather it again.": (n, n)}
