"""What lab 12's checks compare with: one device, which sees the whole batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common import ranks
from common.lessons.replicas import MODELS, Shard, flattened, mean_loss, sgd

Mistakes = dict[str, Any]


def one_device(
    model: nn.Module,
    shards: Sequence[Shard],
    shares: Any,
    steps: int = 3,
    rate: float = 0.1,
) -> Tensor:
    """Flat weights after some steps on one device: each shard's mean loss counts by its share.

    shares: numbers, one per shard. A shard without rows counts nothing.
    """
    for _ in range(steps):
        parts = [
            float(share) * mean_loss(model, shard)
            for share, shard in zip(shares, shards, strict=True)
            if len(shard[0])
        ]
        torch.stack(parts).sum().backward()
        sgd(model.parameters(), rate)
    return flattened(model.parameters())


def step_s(
    ready_s: Sequence[float], bucket_bytes: Sequence[int], p: int, wire: Mapping[str, float]
) -> float:
    """Seconds of a step on p simulated ranks that send each bucket once it is ready."""

    def step(dist: Any) -> None:
        works, now_s = [], 0.0
        for until_s, size in zip(ready_s, bucket_bytes, strict=True):
            ranks.compute(until_s - now_s)
            now_s = until_s
            works.append(
                dist.all_reduce(torch.zeros(size // 8, dtype=torch.float64), async_op=True)
            )
        for work in works:
            work.wait()

    costs: dict[str, Any] = dict(wire)
    return ranks.run(step, world_size=p, live_bytes=False, **costs).time_s


def averaged(seed: int, shards: Sequence[Shard], rows: Sequence[int]) -> tuple[Tensor, Mistakes]:
    """(the weights of one device, what mistakes give) for shards of the perceptron's batch."""
    factors: dict[str, Any] = {
        "": np.divide(rows, sum(rows)),
        "Each is the sum of the ranks' means: the step is p times too long.": [1] * len(rows),
        "It is the mean of the ranks' means, but their numbers of rows differ.": [1 / len(rows)]
        * len(rows),
        "Weighted by rows, but not divided by the total number of rows.": rows,
    }
    weights = {
        says: one_device(MODELS["perceptron"](seed), shards, share)
        for says, share in factors.items()
    }
    return weights.pop(""), weights


def overlapped(
    kind: str, seed: int, shards: Sequence[Shard], rows: Sequence[int]
) -> tuple[Tensor, list[Mistakes]]:
    """(the weights of one device, by rank what mistakes give) after three steps."""
    n, p = sum(rows), len(rows)
    want, mean = (
        one_device(MODELS[kind](seed), shards, np.divide(rows, total)) for total in (n, n * p)
    )
    return want, [
        {
            "The sum is wanted, not the mean: each loss is a share already.": mean,
            "Each rank used its own gradients: cut the sum up, into p.grad, before update.": (
                one_device(MODELS[kind](seed), [shard], [count / n])
            ),
        }
        for shard, count in zip(shards, rows, strict=True)
    ]


def plan(rng: np.random.Generator, kind: str) -> list[list[int]]:
    """Numbers of a model's parameters in five buckets of random sizes, the last parameters first.

    Within a bucket, a perceptron's are in the order of forward, and a transformer's in the other.
    """
    number = np.arange(len([*MODELS[kind](0).parameters()]))[::-1]
    parts = np.split(number, [1, *sorted(rng.choice(number[:-2], 3, False))])
    return [part[:: -1 if kind == "perceptron" else 1].tolist() for part in parts]


def summed_over_ranks(xs: Tensor, gs: Tensor) -> tuple[list[list[Tensor]], list[Mistakes]]:
    """By rank: [sum, x afterwards, gradient of x, adjoint afterwards], and what mistakes give.

    xs, gs: (ranks, n), each rank's x and the adjoint of its sum.
    """
    total, adjoint = xs.sum(0), gs.sum(0)
    wants = [[total, x, adjoint, g] for x, g in zip(xs.clone(), gs.clone(), strict=True)]
    return wants, [
        {
            "forward overwrites x: sum a copy.": [total, total, adjoint, g],
            "backward overwrites the adjoint, which others may hold: sum a copy.": [
                total,
                x,
                adjoint,
                adjoint,
            ],
        }
        for _, x, _, g in wants
    ]


def batch_norm(x: Tensor, rows: Sequence[int], eps: float = 1e-5) -> tuple[Tensor, Mistakes]:
    """(x normalised over all rows, what mistakes give); rows: of each rank."""
    squares = (x * x).mean(0) - x.mean(0) ** 2
    mistakes = {
        "Each rank used the mean and variance of its own rows.": torch.cat(
            [_normed(part, eps) for part in x.split(list(rows))]
        ),
        "The mean is that of all rows, but the variance is that of the rank's own rows.": torch.cat(
            [
                part / ((part * part).mean(0) + eps).sqrt()
                for part in (x - x.mean(0)).split(list(rows))
            ]
        ),
        "eps is an argument: add it to the variance.": _normed(x, 1e-5),
        "Add eps to the variance, under the root.": (x - x.mean(0))
        / (x.std(0, correction=0) + eps),
        "Divide the variance by the number of rows, not by one less.": (x - x.mean(0))
        / (x.var(0) + eps).sqrt(),
        "Σx²/n − mean² cancels where the mean is large: subtract the mean first.": (x - x.mean(0))
        / (squares + eps).sqrt(),
    }
    return _normed(x, eps), mistakes


def batch_norm_gradients(
    x: Tensor, slopes: Tensor, rows: Sequence[int]
) -> tuple[list[Tensor], list[Mistakes]]:
    """By rank: the gradient by x of the sum of slopes · y, and what mistakes give."""
    x, sizes = x.clone().requires_grad_(), list(rows)
    y = _normed(x, 1e-5)
    lone = [
        torch.autograd.grad(part.sum(), x, retain_graph=True)[0]
        for part in (y * slopes).split(sizes)
    ]
    fixed = (slopes / (x.detach().var(0, correction=0) + 1e-5).sqrt()).split(sizes)
    own = "Only this rank's own loss is in it, but the other ranks' losses saw its x, too."
    constant = "Mean and variance depend on x, and here they are constants."
    wants = [want.clone() for want in torch.stack(lone).sum(0).split(sizes)]
    return wants, [
        {own: lone[rank].split(sizes)[rank], constant: fixed[rank]} for rank in range(len(rows))
    ]


def _normed(x: Tensor, eps: float) -> Tensor:
    return nn.functional.batch_norm(x, None, None, training=True, eps=eps)


def clipped(gradients: Sequence[Tensor], most: float) -> list[Tensor]:
    """The gradients, scaled so that the norm of all their numbers together is at most this."""
    norm = float(flattened(gradients).norm())
    return [gradient * min(1.0, most / norm) if norm else gradient for gradient in gradients]


def clip(
    parts: Sequence[Sequence[Tensor]], rows: Sequence[int], most: float
) -> tuple[float, list[Tensor], Mistakes]:
    """(the global norm, the clipped gradients, what mistakes give). parts: gradients by rank."""
    shares = [n / sum(rows) for n in rows]
    tensors = range(len(parts[0]))

    def mean(gradients: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        weighted = [
            [share * own[i] for i in tensors] for share, own in zip(shares, gradients, strict=True)
        ]
        return [torch.stack([own[i] for own in weighted]).sum(0) for i in tensors]

    whole = mean(parts)
    mistakes = {
        "Clip after the sum: a rank's own gradient may be long where the mean is short.": mean(
            [clipped(own, most) for own in parts]
        ),
        "Each tensor is clipped by its own norm: take the norm of all together.": [
            clipped([gradient], most)[0] for gradient in whole
        ],
    }
    return float(flattened(whole).norm()), clipped(whole, most), mistakes
