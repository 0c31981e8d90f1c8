"""What lab 12's checks compare with: one device, which sees the whole batch."""

import functools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common.checks import WhenWrong, agree, near_miss, nearly, remark
from common.checks.rank_messages import COLLECTIVES as COLLECTIVES
from common.checks.rank_messages import sums_fault as sums_fault
from common.training.replicas import MODELS, Shard, flattened, mean_loss, sgd
from nogpu import ranks

Mistakes = Mapping[str, Any]


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


def agree_step(got: Sequence[Tensor], shards: Sequence[Shard]) -> None:
    """Raise unless each rank has the weights of perceptron(1) after a step on all these shards."""
    rows = np.array([len(images) for images, _ in shards])
    want = one_device(MODELS["perceptron"](1), shards, rows / rows.sum(), steps=1)
    for rank, own in enumerate(got):
        agree(own, want, f"weights of rank {rank} after a step", rtol=1e-8, atol=1e-10)


def remark_overlap(trace: ranks.Trace, draw: Callable[[], object]) -> None:
    """Remarks on a step whose messages, or whose updates, wait for all that comes before."""
    share = sum(trace.bytes_during_compute("backward")) / trace.bytes
    said = f"{share:.0%} of the bytes went while backward computed, want 80 %"
    remark(share >= 0.8, said, draw=draw)
    last_s = max(message.end_s for message in trace.messages)
    early = any(update.start_s < last_s for update in trace.compute_named("update", 0))
    remark(early, "No update began before the last bucket had arrived.", draw=draw)


def shard(batch: Tensor, rank: int, p: int) -> tuple[Tensor, Mistakes]:
    """(a rank's rows of a batch, what mistakes give), all of them copies."""
    n, (rows, more) = len(batch), divmod(len(batch), p)
    early, late = (rank * rows + count for count in (min(rank, more), max(0, rank - (p - more))))
    up = -(-n // p)

    def ends(rounded: Callable[[Fraction], int]) -> slice:
        return slice(*(rounded(Fraction(n * r, p)) for r in (rank, rank + 1)))

    mistakes = {
        "Rank n % p is the first that takes no row more: compare with <, not <=.": slice(
            early, early + rows + (rank <= more)
        ),
        "It begins at rank · (n // p), as if no rank before it had a row more: so the last rows of "
        "the batch belong to nobody.": slice(rank * rows, rank * rows + rows),
        "All the rows left over went to the last rank: the others will wait for it.": slice(
            rank * rows, n if rank == p - 1 else rank * rows + rows
        ),
        "These rows are dealt out like cards, but a shard is contiguous.": slice(rank, n, p),
        "The first ranks take one more row each, not the last ones. (Ends such as n·rank // p put "
        "the longer shards there, or anywhere.)": slice(late, late + rows + (rank >= p - more)),
        "The rows left over lie between the shards: the first n % p ranks take one more each.": (
            slice(early, early + rows)
        ),
        "It begins as if all ranks before it had n / p rows, rounded up, but only the first n % p "
        "have a row more. Too few rows are left for the last ranks.": slice(
            rank * up, rank * up + up
        ),
        "The ends are n·rank/p, rounded down: the longer shards should come first.": ends(floor),
        "The ends are n·rank/p, rounded up: the longer shards should come first.": ends(ceil),
        "The ends are n·rank/p, rounded: the longer shards should come first.": ends(round),
    }
    want = batch.clone().tensor_split(p)[rank].clone()
    return want, {says: batch[wrong].clone() for says, wrong in mistakes.items()}


def broadcast(seeds: Sequence[int]) -> tuple[tuple[Tensor, int], list[Mistakes]]:
    """((rank 0's parameters and count of steps, its large number), by rank what mistakes give).

    seeds: by rank.
    """
    own = [
        flattened([*MODELS["perceptron"](seed).parameters(), torch.tensor([seed])])
        for seed in seeds
    ]
    mean, narrow = torch.stack(own).mean(0), own[0].float().double()
    return (own[0], 2**60 + 1 + 2 * seeds[0]), [
        {
            "They are still this rank's own.": each,
            "They are rank p − 1's.": own[-1],
            "The count of steps is still this rank's own.": torch.cat([own[0][:-1], each[-1:]]),
            "They are the mean over all ranks.": torch.cat([mean[:-1], mean[-1:] // 1]),
            "They are the sum over all ranks.": len(seeds) * mean,
            "Digits are lost on the way: send each tensor in its own dtype.": narrow,
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
    case = [*ready_s], [*sizes], p, alpha_s, beta_s_per_byte
    return step_s(*case), WhenWrong(lambda: _wrong_step_times(*case))


def _wrong_step_times(
    ready_s: Sequence[float], sizes: Sequence[int], p: int, alpha_s: float, beta_s_per_byte: float
) -> Mistakes:
    def step(alpha: float = 1, beta: float = 1) -> float:
        return step_s(ready_s, sizes, p, alpha * alpha_s, beta * beta_s_per_byte)

    each_s = [step_s([0.0], [size], p, alpha_s, beta_s_per_byte) for size in sizes]
    ends_s = [ready + own for ready, own in zip(ready_s, each_s, strict=True)]
    earlier_s = 0.0
    for ready, own in zip(ready_s, each_s, strict=True):
        earlier_s = min(earlier_s, ready) + own
    return {
        "Two buckets can't be on the wire at once.": max(ends_s),
        "Nothing is hidden here: backward and wire are added up.": ready_s[-1] + sum(each_s),
        "ready_s are times on a clock, not waits: do not add them up.": sum(ready_s) + sum(each_s),
        "A bucket that is not ready makes the wire wait: that time is missing.": (
            ready_s[0] + sum(each_s)
        ),
        "The first bucket has arrived by then, not the last: does `return` stand in the loop?": (
            ends_s[0]
        ),
        "A bucket begins at the later of the two times, not at the earlier.": earlier_s,
        "An all-reduce has 2(p − 1) rounds: p − 1 to add up, p − 1 to give out.": step(0.5, 0.5),
        "An all-reduce has 2(p − 1) rounds, not 2p.": step(p / (p - 1), p / (p - 1)),
        "A round sends 1/p of the bucket, not all of it.": step(1, p),
        "A round sends 1/p of the bucket: divide by p.": step(1, p * p),
        "A round pays all of α: divide only the bytes by p.": step(1 / p, 1),
        "A round sends 1/p of the bucket: p ranks have p chunks.": step(1, p / (p - 1)),
        "α is paid in each round, not once per bucket.": step(1 / (2 * (p - 1)), 1),
    }


def averaged(
    seed: int, shards: Sequence[Sequence[Shard]], rows: Sequence[Sequence[int]]
) -> tuple[Tensor, list[Mistakes]]:
    """(weights of one device after a step on each batch, by rank what mistakes give).

    shards: of a perceptron's batches, rows: how many are in each shard, batch by batch.
    """
    model, p = MODELS["perceptron"](seed), len(rows[0])
    for parts, counts in zip(shards, rows, strict=True):
        one_device(model, parts, np.array(counts) / sum(counts), steps=1)
    wrong = functools.cache(lambda: _wrongly_averaged(seed, shards, rows))
    return flattened(model.parameters()), [
        WhenWrong(lambda rank=rank: {says: by_rank[rank] for says, by_rank in wrong().items()})
        for rank in range(p)
    ]


def averaging_fault(trace: ranks.Trace, gradient_bytes: int) -> str:
    """What is wrong with the bytes of two steps of average_gradients; "" if nothing."""
    p = trace.world_size
    more = trace.bytes - 2 * 2 * (p - 1) * gradient_bytes
    # One number per step, of 4 or 8 bytes, which may be gathered or summed.
    if more in [2 * (p - 1) * size * times for size in (4, 8) for times in (p, 2)]:
        return ""
    return f"{trace.bytes:,} bytes in 2 steps: more than one all-reduce per parameter, or less"


def _wrongly_averaged(
    seed: int, shards: Sequence[Sequence[Shard]], rows: Sequence[Sequence[int]]
) -> dict[str, list[Tensor]]:
    """{sentence: weights by rank}."""
    p, one = len(rows[0]), np.ones(len(rows[0]))
    tables: dict[str, Callable[[np.ndarray], Any]] = {
        "Each is the sum of the ranks' means: the step is p times too long.": lambda n: [one] * p,
        "It is the mean of the ranks' means, but their numbers of rows differ.": lambda n: (
            np.ones((p, p)) / p
        ),
        "Weighted by rows, but not divided by the total number of rows.": lambda n: [n] * p,
        "The total number of rows is that of the first step: it can change.": lambda n: (
            [n / sum(rows[0])] * p
        ),
        "The shares of the rows add up to 1 already: do not divide by p as well.": lambda n: (
            [n / n.sum() / p] * p
        ),
        "Weight before the sum: each rank's gradient has a share of its own.": lambda n: np.outer(
            n / n.sum(), one
        ),
        "Each rank has its own share alone: the all-reduce belongs after the weighting.": (
            lambda n: np.diag(n / n.sum())
        ),
        "Only this rank's own gradients are in it.": lambda n: np.eye(p),
        "No weight has changed: are the gradients zeros now?": lambda n: np.zeros((p, p)),
    }
    return {says: _on_ranks(seed, shards, rows, table) for says, table in tables.items()}


def _on_ranks(
    seed: int,
    shards: Sequence[Sequence[Shard]],
    rows: Sequence[Sequence[int]],
    table: Callable[[np.ndarray], Any],
) -> list[Tensor]:
    """Each rank's weights after a step on each batch.

    table: of the rows by rank, how much of each rank's gradient (a column) each rank (a row) takes.
    """
    models = [MODELS["perceptron"](seed) for _ in rows[0]]
    for parts, counts in zip(shards, rows, strict=True):
        pairs = list(zip(models, parts, strict=True))
        own = torch.stack([_slope(model, shard) for model, shard in pairs])
        steps = 0.1 * torch.tensor(np.array(table(np.array(counts))), dtype=own.dtype) @ own
        for model, step in zip(models, steps, strict=True):
            weights = list(model.parameters())
            nn.utils.vector_to_parameters(flattened(weights) - step, weights)
    return [flattened(model.parameters()) for model in models]


def _slope(model: nn.Module, shard: Shard) -> Tensor:
    """The gradient of the shard's mean loss by all weights, flat; zeros without rows."""
    weights = list(model.parameters())
    if not len(shard[0]):
        return torch.zeros_like(flattened(weights))
    return flattened(torch.autograd.grad(mean_loss(model, shard), weights))


def rounded(got: Any, want: Tensor, kind: str, seed: int) -> Mistakes:
    """{sentence: got} if weights changed as wanted, but for digits that their gradients lost."""
    start = flattened(MODELS[kind](seed).parameters())
    if not isinstance(got, Tensor) or got.shape != want.shape:
        return {}
    digits = "Digits are lost on the way: gradients keep their dtype, float64 here."
    return {digits: got} if nearly(got - start, want - start, 0.003) else {}


def lost(got: Any, want: Any) -> Mistakes:
    """{sentence: got} if the numbers are nearly the ones that are wanted."""
    digits = "Digits are lost on the way: all numbers keep their dtype, float64 here."
    return near_miss(got, want, digits, 0.003)


def summed(seed: int, shards: Sequence[Shard]) -> tuple[Tensor, list[Mistakes]]:
    """(a transformer's gradients, summed over the ranks, by rank what mistakes give)."""
    own, total = [], sum(len(inputs) for inputs, _ in shards)
    for shard in shards:
        model = MODELS["transformer"](seed)
        (mean_loss(model, shard) * len(shard[0]) / total).backward()
        own.append(flattened(parameter.grad for parameter in model.parameters()))
    want = torch.stack(own).sum(0)
    weights = flattened(MODELS["transformer"](seed).parameters())
    return want, [
        {
            "These are sums of the ranks' weights: flatten p.grad, not p.": len(own) * weights,
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
        "Summed over ranks before all were in, they are summed again.": 3.0 ** (k - 1 - number),
        "Only the last microbatch counts here.": number == k - 1,
        "The last one counts twice.": 1 + (number == k - 1),
        "The first one counts twice.": 1 + (number == 0),
        "The first microbatch is left out.": number > 0,
        "Only the first and the last microbatch count here.": (number == 0) | (number == k - 1),
        "Divided by k? Shares add up.": 1 / k,
        "The last one counts k times: the parts add up to the rank's share already.": np.where(
            number == k - 1, k, 1
        ),
        "No weight has changed: is backward called?": 0.0,
    }

    def weights(factor: Any) -> Tensor:
        return one_device(MODELS["perceptron"](seed), micro, shares * factor, steps=2)

    return weights(1), WhenWrong(lambda: {says: weights(times[says]) for says in times})


def overlapped(
    kind: str, seed: int, shards: Sequence[Shard], rows: Sequence[int]
) -> tuple[Tensor, list[Mistakes]]:
    """(the weights of one device, by rank what mistakes give) after three steps."""
    n, p = sum(rows), len(rows)

    def weights(parts: Sequence[Shard], shares: Any) -> Tensor:
        return one_device(MODELS[kind](seed), parts, shares)

    def wrong(rank: int) -> Mistakes:
        return {
            "The sum is wanted, not the mean: each loss is a share already.": (
                weights(shards, np.divide(rows, n * p))
            ),
            "Each rank used its own gradients: cut the sum up, into p.grad, before update.": (
                weights([shards[rank]], [rows[rank] / n])
            ),
            "No weight has changed: is backward called?": flattened(
                MODELS[kind](seed).parameters()
            ),
        }

    return weights(shards, np.divide(rows, n)), [
        WhenWrong(lambda rank=rank: wrong(rank)) for rank in range(p)
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
        "eps is missing: add it to the variance.": _normed(x, 0.0),
        "Divide by the root of the variance.": (x - x.mean(0)) / (x.var(0, correction=0) + eps),
        "Divide by the root, do not multiply.": (x - x.mean(0))
        * (x.var(0, correction=0) + eps).sqrt(),
        "The ranks' numbers of rows differ: sum these, too.": _by_own_rows(x, rows, eps),
        "Add eps to the variance, under the root.": (x - x.mean(0))
        / (x.std(0, correction=0) + eps),
        "Divide the variance by the number of rows, not by one less.": (x - x.mean(0))
        / (x.var(0) + eps).sqrt(),
        "Σx²/n − mean² cancels where the mean is large: subtract the mean first.": (x - x.mean(0))
        / (squares + eps).sqrt(),
    }
    return _normed(x, eps), mistakes


def blurred(got: Any, want: Tensor) -> Mistakes:
    """{sentence: got} if batch norm gave nearly the numbers that are wanted."""
    digits = "Digits are lost: keep the dtype, and subtract the mean before you square."
    return near_miss(got, want, digits)


def batch_norm_gradients(
    x: Tensor, slopes: Tensor, rows: Sequence[int], eps: float
) -> tuple[list[Tensor], list[Mistakes]]:
    """By rank: the gradient by x of the sum of slopes · y, and what mistakes give."""
    x, sizes = x.clone().requires_grad_(), list(rows)
    y = _normed(x, eps)
    lone = [
        torch.autograd.grad(part.sum(), x, retain_graph=True)[0]
        for part in (y * slopes).split(sizes)
    ]
    fixed = (slopes / (x.detach().var(0, correction=0) + eps).sqrt()).split(sizes)
    own = "Only this rank's own loss is in it, but the other ranks' losses saw its x, too."
    constant = "Mean and variance depend on x, and here they are constants."
    wants = [want.clone() for want in torch.stack(lone).sum(0).split(sizes)]
    return wants, [
        {own: lone[rank].split(sizes)[rank], constant: fixed[rank]} for rank in range(len(rows))
    ]


def _by_own_rows(x: Tensor, rows: Sequence[int], eps: float) -> Tensor:
    """x normalised on ranks that all take p times their own rows for the number of all rows."""
    counts = torch.tensor([len(rows) * n for n in rows for _ in range(n)])[:, None]
    deviation = x - x.sum(0) / counts
    return deviation / (deviation.square().sum(0) / counts + eps).sqrt()


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
) -> tuple[float, list[Tensor], list[Mistakes], Mistakes]:
    """(the global norm, the clipped gradients, norms by rank and gradients that mistakes give).

    parts: gradients by rank.
    """
    shares = [n / sum(rows) for n in rows]
    whole = weighted(parts, shares)
    norm = float(flattened(whole).norm())
    clipped_before = weighted([clipped(own, most) for own in parts], shares)
    clip_first = "Clip after the sum: a rank's own gradient may be long where the mean is short."
    lengths = {clip_first: float(flattened(clipped_before).norm())} | _lengths(whole, parts, most)
    own = "It is the norm of this rank's own gradients: average over ranks first."
    lengths_by_rank: list[Mistakes] = [
        lengths | {own: float(flattened(part).norm())} for part in parts
    ]
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
        "Scale by most / norm, not by norm / most.": [
            gradient * max(1.0, norm / most) for gradient in whole
        ],
    }
    return norm, clipped(whole, most), lengths_by_rank, gradients


def _lengths(
    whole: Sequence[Tensor], parts: Sequence[Sequence[Tensor]], most: float
) -> dict[str, float]:
    """The norms that mistakes give. whole: the gradients averaged by rows, parts: by rank."""
    norm, p = float(flattened(whole).norm()), len(parts)
    mean, total = (float(flattened(weighted(parts, [share] * p)).norm()) for share in (1 / p, 1.0))
    return {
        "It is the norm after clipping.": min(norm, most),
        "It is the square of the norm.": norm**2,
        "Average the gradients by rows first.": mean,
        "It is the norm of one tensor, not of all together.": float(whole[0].norm()),
        "It is the sum of the tensors' norms. Add up squares, and take one root.": sum(
            float(gradient.norm()) for gradient in whole
        ),
        "It is the norm of the ranks' sum: average by rows.": total,
    }


def close(norm: float) -> dict[str, float]:
    """How exact clipped gradients must be. PyTorch adds 10⁻⁶ to the norm that it divides by."""
    return {"rtol": 1e-9 + 2e-6 / max(norm, 1), "atol": 1e-15}
