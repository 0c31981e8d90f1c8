"""How long a function takes: median and spread, after a warm-up, with the GPU waited for."""

import dataclasses
import functools
import statistics
import timeit

import numpy as np

EVICTION_BYTES = (
    256 * 2**20
)  # several times the last-level cache of the machines the course expects


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Seconds a call; each entry is one call, or the mean over a block of fast ones."""

    times_s: tuple[float, ...]

    @property
    def median_s(self):
        """Median in seconds; unlike a mean, it ignores the call that the operating system interrupted."""
        return float(np.median(self.times_s))

    @property
    def spread_s(self):
        """Interquartile range in seconds: the middle half of the times lies within it."""
        low, high = np.percentile(self.times_s, [25, 75])
        return float(high - low)

    def __str__(self) -> str:
        from matplotlib.ticker import EngFormatter

        seconds = EngFormatter("s", places=2)
        return f"{seconds(self.median_s)} (middle half within {seconds(self.spread_s)})"


def measure(function, *args, min_time_s=0.2, cold_cache=False):
    """`Measurement` of function(*args), over about min_time_s of calls and three at least, after one to warm up.

    By default calls follow each other, with caches warm; what a call costs the host is part of it. cold_cache=True
    empties the caches before each call; with a CUDA tensor among args it is the GPU's own time, without the launch.
    """
    import torch

    call = functools.partial(function, *args)
    call()  # compilers, allocators and caches do their once-only work here
    if not cold_cache:
        return Measurement(tuple(_warm_times_s(call, min_time_s)))
    if not any(isinstance(arg, torch.Tensor) and arg.is_cuda for arg in args):
        return Measurement(tuple(_cold_times_s(call, min_time_s)))
    from triton.testing import do_bench

    times_ms = do_bench(call, rep=1e3 * min_time_s, return_mode="all")
    return Measurement(tuple(1e-3 * time_ms for time_ms in times_ms))


def in_graph_s(call):
    """Seconds of a call on a GPU in a CUDA graph, caches warm: no launch to pay."""
    from triton.testing import do_bench_cudagraph

    return 1e-3 * do_bench_cudagraph(call, rep=40, return_mode="median")


def in_turns(clock, *calls, rounds=7):
    """Median clock(call) of each call, over rounds in which they take turns: a GPU's clocks and heat are the same for all."""
    rounds_s = [[clock(call) for call in calls] for _ in range(rounds)]
    return [statistics.median(times_s) for times_s in zip(*rounds_s, strict=True)]


def _warm_times_s(call, min_time_s):
    """Seconds a call, for some twenty blocks of calls that follow each other."""
    from torch.utils import benchmark

    timer = timeit.Timer(
        call, timer=benchmark.timer
    )  # PyTorch's clock: it waits for the GPU before it is read
    single_s = timer.repeat(3, number=1)
    if sum(single_s) >= min_time_s:
        return single_s
    number = max(1, int(min_time_s / 20 / min(single_s)))
    repeat = max(3, int(min_time_s / number / min(single_s)))
    return [block_s / number for block_s in timer.repeat(repeat, number)]


def _cold_times_s(call, min_time_s):
    """Seconds of single calls, the caches filled with something else before each; at least three calls."""
    import torch
    from torch.utils import benchmark

    eviction = torch.ones(EVICTION_BYTES // 4)
    times_s, deadline_s = [], timeit.default_timer() + min_time_s
    while len(times_s) < 3 or timeit.default_timer() < deadline_s:
        eviction.sum()  # reads only: what was written would have to leave the cache during the call
        times_s += timeit.repeat(call, number=1, repeat=1, timer=benchmark.timer)
    return times_s
