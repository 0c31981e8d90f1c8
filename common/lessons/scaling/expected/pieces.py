"""The course's own versions of what readers write in earlier labs, for those who skipped one."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common.lessons.tensor_parallel.sharding import same, two_way

Part = tuple[np.ndarray, np.ndarray, np.ndarray]  # m, s and o of some queries


def merge(left: Part, right: Part) -> Part:
    """Lab 06: (m, s, o) of some queries over both parts of the keys."""
    (m, s, o), (n, t, u) = left, right
    top = np.maximum(m, n)
    shift = np.where(top == -np.inf, 0.0, top)
    old, new = np.exp(m - shift), np.exp(n - shift)
    return top, s * old + t * new, o * old[:, None] + u * new[:, None]


def checkpoint_every(n: int, k: int) -> list[tuple[str, int]]:
    """Lab 09: the tasks of n layers of which only activations 0, k, 2k, ... are kept."""
    tasks = [task for i in range(n) for task in (("F", i), ("D", i))[: 2 if i % k else 1]]
    for start in reversed(range(0, n, k)):
        stop = min(start + k, n)
        tasks += [("F", i) for i in range(start, stop - 1)]
        tasks += [("B", i) for i in reversed(range(start, stop))]
    return tasks


def own_shard(flat: Tensor, rank: int, world_size: int) -> Tensor:
    """Lab 13: this rank's part of a vector, and zeros after its end."""
    size = -(-len(flat) // world_size)
    part = flat[rank * size : (rank + 1) * size]
    return F.pad(part, (0, size - len(part))).clone()


def gather_parameters(dist: Any, unit: Any) -> Any:
    """Lab 13: starts to gather a unit's weights."""
    unit.full = unit.shard.new_empty(dist.get_world_size() * len(unit.shard))
    return dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)


def release(unit: Any) -> None:
    """Lab 13: frees the gathered weights."""
    unit.full.untyped_storage().resize_(0)
    unit.full = None


def ring_all_reduce(dist: Any, x: Tensor) -> Tensor:
    """Lab 11: the sum of all ranks' x, in p − 1 rounds each way."""
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])
    for turn in range(2 * (p - 1)):
        sent, got = chunks[(me - turn) % p], chunks[(me - turn - 1) % p]
        into = inbox[: len(got)] if turn < p - 1 else got
        _exchange(dist, sent, (me + 1) % p, into, (me - 1) % p)
        if turn < p - 1:
            got += into
    return x


def _exchange(dist: Any, sent: Tensor, dst: int, received: Tensor, src: int) -> None:
    ops = [dist.P2POp(dist.isend, sent, dst), dist.P2POp(dist.irecv, received, src)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def shard_batch(batch: Tensor, rank: int, world_size: int) -> Tensor:
    """Lab 12: this rank's rows."""
    ends = [len(batch) * place // world_size for place in (rank, rank + 1)]
    return batch[slice(*ends)]


def _all_reduced(dist: Any, x: Tensor) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def copied(dist: Any, x: Tensor) -> Tensor:
    """Lab 14: into a region that is cut."""
    return two_way(x, same, functools.partial(_all_reduced, dist))


def summed(dist: Any, x: Tensor) -> Tensor:
    """Lab 14: out of it."""
    return two_way(x, functools.partial(_all_reduced, dist), same)


def shard_attention(
    w_in: Tensor, b_in: Tensor, w_out: Tensor, b_out: Tensor, heads: int, rank: int, world_size: int
) -> list[Tensor]:
    """Lab 14: the weights of this rank's heads."""
    rows = torch.arange(len(b_in)).view(3, heads, -1).chunk(world_size, 1)[rank].flatten()
    columns = w_out.chunk(world_size, 1)[rank]
    return [w_in[rows], b_in[rows], columns.contiguous().clone(), b_out.clone()]


def shard_mlp(
    w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, rank: int, world_size: int
) -> list[Tensor]:
    """Lab 14: the weights of this rank's hidden units."""
    parts = w1.chunk(world_size)[rank], b1.chunk(world_size)[rank], w2.chunk(world_size, 1)[rank]
    return [part.contiguous().clone() for part in (*parts, b2)]


def mlp(dist: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Lab 14: the hidden layer."""
    h = F.gelu(F.linear(copied(dist, x), w1, b1), approximate="tanh")
    return summed(dist, F.linear(h, w2)) + b2


def cross_entropy(dist: Any, logits: Tensor, targets: Tensor) -> Tensor:
    """Lab 14: the mean loss, from this rank's words."""
    most = logits.detach().amax(1)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    z = logits - most[:, None]
    first = dist.get_rank() * z.shape[1]
    hit = F.one_hot((targets - first).clamp(0, z.shape[1] - 1), z.shape[1]).to(z.dtype)
    hit = hit * ((targets >= first) & (targets < first + z.shape[1]))[:, None]
    right = summed(dist, (z * hit).sum(1))
    return (summed(dist, z.exp().sum(1)).log() - right).mean()


def partition_layers(costs: Sequence[int], stages: int) -> list[tuple[int, int]]:
    """Lab 15: layers of each stage, so that the most expensive stage costs least."""
    layers = len(costs)
    cuts = itertools.combinations(range(1, layers), stages - 1)
    ends = ((0, *cut, layers) for cut in cuts)

    def most(cut: tuple[int, ...]) -> int:
        return max(sum(costs[a:b]) for a, b in itertools.pairwise(cut))

    return list(itertools.pairwise(min(ends, key=most)))


class Stage:
    """Lab 15: some layers, and what backward needs of the microbatches on their way."""

    def __init__(self, layers: Any, microbatches: int, loss: Any = None) -> None:
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def forward(self, i: int, x: Tensor, target: Tensor | None = None) -> Tensor:
        """The output without its graph; on the last stage a share of the loss."""
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target) / self.microbatches
        self.kept[i] = x, y
        return y.detach()

    def backward(self, i: int, dy: Tensor | None = None) -> Tensor | None:
        """The gradient of the input."""
        x, y = self.kept.pop(i)
        y.backward(dy)
        return x.grad

    def local(self, kind: str, i: int) -> None:
        """Nothing is put off."""


def run_stage(
    dist: Any, stage: Any, tasks: Any, inputs: Any, targets: Any, like: Tensor, links: Any = None
) -> Any:
    """Lab 15: a rank's tasks in order."""
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    works, loss = [], None

    def received(src: int) -> Tensor:
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                works.append((dist.isend(y, me + 1, group=links.get((me, me + 1))), y))
            else:
                loss = y if loss is None else loss + y
        else:
            dx = stage.backward(i, None if me == last else received(me + 1))
            if me > 0:
                works.append((dist.isend(dx, me - 1, group=links.get((me, me - 1))), dx))
    for work, _ in works:
        work.wait()
    return loss


def one_f_one_b(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """Lab 15: one forward, one backward."""
    early = min(microbatches, stages - 1 - stage)
    forwards = [("F", i) for i in range(microbatches)]
    pairs = itertools.zip_longest(forwards[early:], [("B", i) for i in range(microbatches)])
    return forwards[:early] + [task for pair in pairs for task in pair if task]


def quantize_groups(weight: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    """Lab 10: codes and scales of groups of columns."""
    groups = weight.unflatten(1, (-1, group))
    scales = groups.abs().amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    return torch.round(groups / scales[..., None]).to(torch.int8).flatten(1), scales


def dequantize_groups(codes: Tensor, scales: Tensor, group: int) -> Tensor:
    """Lab 10: the weights that codes and scales stand for."""
    return (codes.unflatten(1, (-1, group)) * scales[..., None]).flatten(1)


OURS: dict[str, dict[str, Any]] = {  # by lab
    "06": {"merge": merge},
    "09": {"checkpoint_every": checkpoint_every},
    "10": {"quantize_groups": quantize_groups, "dequantize_groups": dequantize_groups},
    "11": {"ring_all_reduce": ring_all_reduce},
    "12": {"shard_batch": shard_batch},
    "13": {
        "own_shard": own_shard,
        "gather_parameters": gather_parameters,
        "release": release,
    },
    "14": {
        "copied": copied,
        "summed": summed,
        "shard_attention": shard_attention,
        "shard_mlp": shard_mlp,
        "mlp": mlp,
        "cross_entropy": cross_entropy,
    },
    "15": {
        "partition_layers": partition_layers,
        "Stage": Stage,
        "run_stage": run_stage,
        "one_f_one_b": one_f_one_b,
    },
}
