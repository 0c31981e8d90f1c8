"""What lab 12's checks compare with: one device, which sees the whole batch."""

from collections.abc import Sequence
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


def shard(batch: Tensor, rank: int, p: int) -> tuple[Tensor, Mistakes]:
    """(a rank's rows of a batch, what mistakes give), all of them copies."""
    n, (rows, more) = len(batch), divmod(len(batch), p)
    late = rank * rows + max(0, rank - (p - more))
    mistakes = {
        "With n // p rows for each rank, the last rows of the batch belong to nobody.": batch[
            rank * rows :
        ][:rows],
        "All the rows left over went to the last rank: the others will wait for it.": batch[
            rank * rows :
        ][: n if rank == p - 1 else rows],
        "These rows are dealt out like cards, but a shard is contiguous.": batch[rank::p],
        "The first ranks take one more row each, not the last ones.": batch[late:][
            : rows + (rank >= p - more)
        ],
        "The rows left over lie between the shards: the first n % p ranks take one more each.": (
            batch[round(n * rank / p) : round(n * (rank + 1) / p)]
        ),
        "Rounded up, the first shards leave too few rows for the last.": batch[rank * -(-n // p) :][
            : -(-n // p)
        ],
    }
    want = batch.clone().tensor_split(p)[rank].clone()
    return want, {says: wrong.clone() for says, wrong in mistakes.items()}


def broadcast(seed: int, p: int) -> tuple[Tensor, list[Mistakes]]:
    """(rank 0's parameters and its count of steps, by rank what mistakes give)."""
    own = [
        flattened([*MODELS["perceptron"](seed + rank).parameters(), torch.tensor([10 + rank])])
        for rank in range(p)
    ]
    mean = torch.stack(own).mean(0)
    return own[0], [
        {
            "They are still this rank's own.": each,
            "They are rank p − 1's.": own[-1],
            "The count of steps is still this rank's own.": torch.cat([own[0][:-1], each[-1:]]),
            "They are the mean over all ranks.": torch.cat([mean[:-1], mean[-1:] // 1]),
        }
        for each in own
    ]


def step(
    rng: np.random.Generator, p: int, waits: Sequence[float]
) -> tuple[list[float], list[int], dict[str, float]]:
    """(ready_s, bucket_bytes, costs of the wire) of a step, in numbers that are short to read.

    waits: between the times at which buckets are ready, in the times of their all-reduces.
    """
    wire = {"alpha_s": int(rng.integers(1, 9)), "beta_s_per_byte": int(rng.integers(1, 9)) / 8}
    sizes = 8 * rng.integers(11, 20, len(waits))
    each_s = 2 * (p - 1) * (wire["alpha_s"] + wire["beta_s_per_byte"] * sizes / p)
    return np.rint(np.cumsum(waits * each_s)).tolist(), sizes.tolist(), wire


def step_s(
    ready_s: Sequence[float],
    bucket_bytes: Sequence[int],
    p: int,
    alpha_s: float,
    beta_s_per_byte: float,
) -> float:
    """Seconds of a step on p simulated ranks that send each bucket once it is ready.

    A bucket is sent as p times its bytes on a wire that is p times faster: p divides these.
    """

    def step(dist: Any) -> None:
        works, now_s = [], 0.0
        for until_s, size in zip(ready_s, bucket_bytes, strict=True):
            ranks.compute(until_s - now_s)
            now_s = until_s
            tensor = torch.zeros(p * size // 8, dtype=torch.float64)
            works.append(dist.all_reduce(tensor, async_op=True))
        for work in works:
            work.wait()

    costs: dict[str, Any] = {"alpha_s": alpha_s, "beta_s_per_byte": beta_s_per_byte / p}
    return ranks.run(step, world_size=p, live_bytes=False, **costs).time_s


def step_times(
    ready_s: Sequence[float], sizes: Sequence[int], p: int, alpha_s: float, beta_s_per_byte: float
) -> tuple[float, Mistakes]:
    """(seconds of a step, what mistakes give)."""

    def step(alpha: float = 1, beta: float = 1) -> float:
        return step_s(ready_s, sizes, p, alpha * alpha_s, beta * beta_s_per_byte)

    each_s = [step_s([0.0], [size], p, alpha_s, beta_s_per_byte) for size in sizes]
    ends_s = [ready + own for ready, own in zip(ready_s, each_s, strict=True)]
    return step(), {
        "Two buckets can't be on the wire at once.": max(ends_s),
        "Nothing is hidden here: backward and wire are added up.": ready_s[-1] + sum(each_s),
        "An all-reduce has 2(p − 1) rounds: p − 1 to add up, p − 1 to give out.": step(0.5, 0.5),
        "A round sends 1/p of the bucket, not all of it.": step(1, p),
        "α is paid in each round, not once per bucket.": step(1 / (2 * (p - 1)), 1),
    }


def averaged(
    seed: int, shards: Sequence[Sequence[Shard]], rows: Sequence[Sequence[int]]
) -> tuple[Tensor, list[Mistakes]]:
    """(weights of one device after a step on each batch, by rank what mistakes give).

    shards: of a perceptron's batches, rows: how many are in each shard, batch by batch.
    """

    def weights(shares_of: Any) -> Tensor:
        model = MODELS["perceptron"](seed)
        for parts, counts in zip(shards, rows, strict=True):
            one_device(model, parts, shares_of(np.array(counts)), steps=1)
        return flattened(model.parameters())

    p = len(rows[0])
    mistakes = {
        "Each is the sum of the ranks' means: the step is p times too long.": weights(np.ones_like),
        "It is the mean of the ranks' means, but their numbers of rows differ.": weights(
            lambda counts: np.ones(p) / p
        ),
        "Weighted by rows, but not divided by the total number of rows.": weights(lambda n: n),
        "The total number of rows is that of the first step: it can change.": weights(
            lambda counts: counts / sum(rows[0])
        ),
    }
    return weights(lambda counts: counts / counts.sum()), [
        mistakes
        | {
            "Only this rank's own gradients are in it.": weights(
                lambda counts, rank=rank: (np.arange(p) == rank) * 1.0
            )
            if all(counts[rank] for counts in rows)
            else None
        }
        for rank in range(p)
    ]


def summed(seed: int, shards: Sequence[Shard]) -> tuple[Tensor, list[Mistakes]]:
    """(a transformer's gradients, summed over the ranks, by rank what mistakes give)."""
    own, total = [], sum(len(inputs) for inputs, _ in shards)
    for shard in shards:
        model = MODELS["transformer"](seed)
        (mean_loss(model, shard) * len(shard[0]) / total).backward()
        own.append(flattened(parameter.grad for parameter in model.parameters()))
    want = torch.stack(own).sum(0)
    return want, [
        {
            "The sum is wanted: each loss was divided by all rows before.": want / len(own),
            "These are still this rank's own gradients: cut the sum up, into p.grad.": each,
        }
        for each in own
    ]


def accumulated(seed: int, shards: Sequence[Shard], k: int) -> tuple[Tensor, Mistakes]:
    """(the perceptron's weights after two steps over k microbatches, what mistakes give)."""
    micro = [
        pair for x, y in shards for pair in zip(x.tensor_split(k), y.tensor_split(k), strict=True)
    ]
    shares = np.array([len(part) for _, part in micro]) / sum(len(part) for _, part in micro)
    number = np.arange(len(shards) * k) % k
    times: dict[str, Any] = {
        "": 1,
        "Summed over ranks before all were in, they are summed again.": 3.0 ** (k - 1 - number),
        "Only the last microbatch counts here.": number == k - 1,
        "The last one counts twice.": 1 + (number == k - 1),
        "The first one counts twice.": 1 + (number == 0),
        "The first microbatch is left out.": number > 0,
        "Only the first and the last microbatch count here.": (number == 0) | (number == k - 1),
        "Divided by k? Shares add up.": 1 / k,
    }
    weights = {
        says: one_device(MODELS["perceptron"](seed), micro, shares * factor, steps=2)
        for says, factor in times.items()
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


def summed_over_ranks(xs: Tensor, gs: Tensor) -> tuple[list[list[Tensor]], list[list[Mistakes]]]:
    """By rank: [sum, x afterwards, gradient of x, adjoint afterwards], and what mistakes give.

    xs, gs: (ranks, ...), each rank's x and the adjoint of its sum.
    """
    total, adjoint = xs.sum(0), gs.sum(0)
    pairs = list(zip(xs.clone(), gs.clone(), strict=True))
    return [[total, x, adjoint, g] for x, g in pairs], [
        [
            {
                "This is still the rank's own x.": x,
                "The sum is wanted, not the mean.": total / len(xs),
            },
            {"forward overwrites x: sum a copy.": total},
            {
                "It is this rank's adjoint alone, but all ranks' totals depend on this x.": g,
                "The adjoints of the ranks add up: do not divide by p.": adjoint / len(xs),
            },
            {"backward overwrites the adjoint, which others may hold: sum a copy.": adjoint},
        ]
        for x, g in pairs
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
    deviation = x - x.mean(0)
    return deviation / (deviation.square().mean(0) + eps).sqrt()


def clipped(gradients: Sequence[Tensor], most: float) -> list[Tensor]:
    """The gradients, scaled so that the norm of all their numbers together is at most this."""
    norm = float(flattened(gradients).norm())
    return [gradient * min(1.0, most / norm) if norm else gradient for gradient in gradients]


def weighted(parts: Sequence[Sequence[Tensor]], shares: Sequence[float]) -> list[Tensor]:
    """The gradients of all ranks, weighted by these shares and added up."""
    return [
        torch.stack([share * own[i] for share, own in zip(shares, parts, strict=True)]).sum(0)
        for i in range(len(parts[0]))
    ]


def clip(
    parts: Sequence[Sequence[Tensor]], rows: Sequence[int], most: float
) -> tuple[float, list[Tensor], Mistakes, Mistakes]:
    """(the global norm, the clipped gradients, norms and gradients that mistakes give).

    parts: gradients by rank.
    """
    shares = [n / sum(rows) for n in rows]
    whole = weighted(parts, shares)
    norm = float(flattened(whole).norm())
    clipped_before = weighted([clipped(own, most) for own in parts], shares)
    clip_first = "Clip after the sum: a rank's own gradient may be long where the mean is short."
    lengths = {
        clip_first: float(flattened(clipped_before).norm()),
        "It is the norm after clipping.": min(norm, most),
        "It is the square of the norm.": norm**2,
        "Average the gradients by rows first.": float(
            flattened(weighted(parts, [1 / len(rows)] * len(rows))).norm()
        ),
        "It is the norm of one tensor, not of all together.": float(whole[0].norm()),
    }
    gradients = {
        clip_first: clipped_before,
        "Each tensor is clipped by its own norm: take the norm of all together.": [
            clipped([gradient], most)[0] for gradient in whole
        ],
        "They are not clipped: their norm is above the limit.": whole,
        "Gradients whose norm is below the limit stay as they are.": [
            gradient * (most / norm if norm else 1) for gradient in whole
        ],
        "Each number is clipped by itself, which changes the direction.": [
            gradient.clamp(-most, most) for gradient in whole
        ],
    }
    return norm, clipped(whole, most), lengths, gradients


def close(norm: float) -> dict[str, float]:
    """How exact clipped gradients must be. PyTorch adds 10⁻⁶ to the norm that it divides by."""
    return {"rtol": 1e-9 + 2e-6 / max(norm, 1), "atol": 1e-15}
