"""Norms of sharded vectors, for the clinic of lab 13: program(dist, shards, sizes) on each rank.

shards: by unit, this rank's (⌈n/p⌉,), with anything in the padding; sizes: by unit, n.
"""

import math

import torch


def real(dist, shard, size, rank=None):
    rank = dist.get_rank() if rank is None else rank
    return shard[: max(0, size - rank * len(shard))]


def summed(dist, value):
    total = torch.as_tensor(value, dtype=torch.float64).reshape(1).clone()
    dist.all_reduce(total)
    return total.item()


def right_one_number(dist, shards, sizes):
    squares = sum(float((real(dist, s, n) ** 2).sum()) for s, n in zip(shards, sizes, strict=True))
    return math.sqrt(summed(dist, squares))


def right_a_number_per_unit(dist, shards, sizes):
    squares = torch.stack(
        [real(dist, s, n).square().sum() for s, n in zip(shards, sizes, strict=True)]
    )
    dist.all_reduce(squares)
    return squares.sum().sqrt().item()


def right_gathered(dist, shards, sizes):
    total = 0.0
    for shard, size in zip(shards, sizes, strict=True):
        whole = torch.empty(dist.get_world_size() * len(shard), dtype=shard.dtype)
        dist.all_gather_into_tensor(whole, shard)
        total += float(whole[:size].square().sum())
    return total**0.5


def right_masked(dist, shards, sizes):
    total = 0.0
    for shard, size in zip(shards, sizes, strict=True):
        place = torch.arange(len(shard)) + dist.get_rank() * len(shard)
        total += float(torch.where(place < size, shard, 0.0).square().sum())
    return math.sqrt(summed(dist, total))


def wrong_own_shard(dist, shards, sizes):
    """It is the norm of the local shard alone."""
    return math.sqrt(
        sum(float(real(dist, s, n).square().sum()) for s, n in zip(shards, sizes, strict=True))
    )


def wrong_padding(dist, shards, sizes):
    """It counts the padding."""
    return math.sqrt(summed(dist, sum(float(s.square().sum()) for s in shards)))


def wrong_sum_of_norms(dist, shards, sizes):
    """It adds the ranks' norms, not their squares."""
    squares = sum(
        float(real(dist, s, n).square().sum()) for s, n in zip(shards, sizes, strict=True)
    )
    return summed(dist, math.sqrt(squares))


def wrong_no_root(dist, shards, sizes):
    """It forgets the root."""
    return summed(
        dist,
        sum(float(real(dist, s, n).square().sum()) for s, n in zip(shards, sizes, strict=True)),
    )


def wrong_mean(dist, shards, sizes):
    """It averages the squares over ranks."""
    squares = sum(
        float(real(dist, s, n).square().sum()) for s, n in zip(shards, sizes, strict=True)
    )
    return math.sqrt(summed(dist, squares) / dist.get_world_size())


def wrong_first_unit(dist, shards, sizes):
    """It looks at the first unit only."""
    return math.sqrt(summed(dist, real(dist, shards[0], sizes[0]).square().sum()))


def wrong_norms_of_units(dist, shards, sizes):
    """It adds the units' norms."""
    return sum(
        math.sqrt(summed(dist, real(dist, s, n).square().sum()))
        for s, n in zip(shards, sizes, strict=True)
    )


def wrong_only_rank_0(dist, shards, sizes):
    """Only rank 0 has the norm of all."""
    squares = torch.stack(
        [real(dist, s, n).square().sum() for s, n in zip(shards, sizes, strict=True)]
    ).sum()
    dist.reduce(squares, 0)
    return squares.sqrt().item()


def wrong_last_rank_alone(dist, shards, sizes):
    """It takes padding away on the last rank only, but several ranks may have some."""
    last = dist.get_rank() == dist.get_world_size() - 1
    kept = [real(dist, s, n) if last else s for s, n in zip(shards, sizes, strict=True)]
    return math.sqrt(summed(dist, sum(float(s.square().sum()) for s in kept)))


def wrong_float32(dist, shards, sizes):
    """It adds in float32 and loses digits."""
    squares = sum(
        real(dist, s, n).float().square().sum() for s, n in zip(shards, sizes, strict=True)
    )
    return math.sqrt(summed(dist, squares))


def wrong_largest(dist, shards, sizes):
    """It is the largest of the ranks' norms."""
    squares = torch.stack(
        [real(dist, s, n).square().sum() for s, n in zip(shards, sizes, strict=True)]
    ).sum()
    dist.all_reduce(squares, op=dist.ReduceOp.MAX)
    return squares.sqrt().item()


def wrong_absolute_values(dist, shards, sizes):
    """It adds absolute values."""
    return summed(
        dist, sum(float(real(dist, s, n).abs().sum()) for s, n in zip(shards, sizes, strict=True))
    )


def wrong_sizes_of_the_first(dist, shards, sizes):
    """It takes the first unit's size for all units."""
    squares = sum(float(real(dist, s, sizes[0]).square().sum()) for s in shards)
    return math.sqrt(summed(dist, squares))


def wrong_whole_shards_only(dist, shards, sizes):
    """It drops the shard of a rank that has padding."""
    kept = [
        s if sizes[i] - dist.get_rank() * len(s) >= len(s) else s[:0] for i, s in enumerate(shards)
    ]
    return math.sqrt(summed(dist, sum(float(s.square().sum()) for s in kept)))
