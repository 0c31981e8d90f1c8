"""Seconds that functions of ranks take on real processes, for vectors of several sizes."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from nogpu import ranks

SHORT_BYTES = 2**20  # vectors below it are timed four times as often: noisy, and cheap


def machine_here(most: int = 8) -> tuple[ranks.Machine, int]:
    """("nccl", ranks) where several GPUs exchange messages, ("gloo", 4) elsewhere."""
    gpus = min(most, torch.cuda.device_count())
    if gpus > 1:
        try:
            seconds({"barrier": _barrier}, [4], "nccl", gpus)
            return "nccl", gpus
        except (ranks.RanksError, RuntimeError, OSError) as error:
            print(f"NCCL fails here, so gloo: {error}")
    return "gloo", 4


def seconds(
    functions: Mapping[str, Callable[..., Any]],
    sizes: Sequence[int],
    machine: ranks.Machine,
    world_size: int,
    *,
    calls: int = 1,
    repeats: int = 5,
) -> dict[str, list[float]]:
    """{name: seconds of function(dist, x), for x of each size in bytes}, on the slowest rank.

    Each is the best of `repeats` or more, and each of these the mean of `calls` in a row. What is
    not written yet (NotImplementedError) is left out.
    """
    by_rank = ranks.run(
        _seconds,
        dict(functions),
        list(sizes),
        calls,
        repeats,
        world_size=world_size,
        machine=machine,
        noted=False,
        timeout_s=90,
    ).returns
    return {
        name: [max(times) for times in zip(*(found[name] for found in by_rank), strict=True)]
        for name in by_rank[0]
    }


def _seconds(
    dist: Any,
    functions: Mapping[str, Callable[..., Any]],
    sizes: Sequence[int],
    calls: int,
    repeats: int,
) -> dict[str, list[float]]:
    """One rank's times."""
    wait = torch.cuda.synchronize if dist.get_backend() == "nccl" else int
    found: dict[str, list[float]] = {}
    for name, size in ((name, size) for name in functions for size in sizes):
        x, times_s = torch.zeros(size // 4), []
        try:
            for _ in range(1 + repeats * (4 if size < SHORT_BYTES else 1)):
                dist.barrier()
                wait()
                start_s = time.perf_counter()
                for _ in range(calls):
                    functions[name](dist, x)
                wait()
                times_s.append((time.perf_counter() - start_s) / calls)
        except NotImplementedError:
            continue
        found.setdefault(name, []).append(min(times_s[1:]))  # the first is for warming up
    return found


def _barrier(dist: Any, x: torch.Tensor) -> None:
    dist.all_reduce(x)
