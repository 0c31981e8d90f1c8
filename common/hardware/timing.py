"""How long a function takes: median and spread, after a warm-up, until the GPU has finished."""

import dataclasses
import functools
import statistics
import timeit
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

# Several times the last-level cache of the machines that the course expects.
EVICTION_BYTES = 256 * 2**20


Timed = TypeVar("Timed")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Seconds per call. Each entry is one call, or the mean over a block of fast calls."""

    times_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median ignores a call that the operating system interrupted; a mean would not."""
        return float(np.median(self.times_s))

    @property
    def spread_s(self) -> float:
        """The interquartile range: the middle half of the times lies within it."""
        low, high = np.percentile(self.times_s, [25, 75])
        return float(high - low)

    def __str__(self) -> str:
        from matplotlib.ticker import EngFormatter

        seconds = EngFormatter("s", places=2)
        spread = f"half of the calls within {seconds(self.spread_s)} of each other"
        return f"{seconds(self.median_s)} ({spread})"


def measure(
    function: Callable[..., Any], *args: Any, min_time_s: float = 0.2, cold_cache: bool = False
) -> Measurement:
    """`Measurement` of function(*args): at least three calls, about min_time_s, after a warm-up.

    By default calls follow each other, with warm caches, and the host's part of a call counts.
    cold_cache=True empties the caches before each call. With a CUDA tensor among args it then
    measures the GPU's own time, without the launch.
    """
    import torch

    call = functools.partial(function, *args)
    call()  # compilers, allocators and caches do here what they do only once
    if not cold_cache:
        return Measurement(tuple(_warm_times_s(call, min_time_s)))
    if not any(isinstance(arg, torch.Tensor) and arg.is_cuda for arg in args):
        return Measurement(tuple(_cold_times_s(call, min_time_s)))
    from triton.testing import do_bench

    times_ms: Any = do_bench(call, rep=1e3 * min_time_s, return_mode="all")
    return Measurement(tuple(1e-3 * time_ms for time_ms in times_ms))


def in_graph_s(call: Callable[[], object]) -> float:
    """Seconds per call on a GPU, in a CUDA graph with warm caches: a launch costs nothing."""
    from triton.testing import do_bench_cudagraph

    time_ms: Any = do_bench_cudagraph(call, rep=40, return_mode="median")
    return 1e-3 * time_ms


def in_turns(clock: Callable[[Timed], float], *calls: Timed, rounds: int = 7) -> list[float]:
    """The median clock(call) of each call. They take turns, so that heat slows all alike."""
    rounds_s = [[clock(call) for call in calls] for _ in range(rounds)]
    return [statistics.median(times_s) for times_s in zip(*rounds_s, strict=True)]


Rung = tuple[Any, int, Any]  # a kernel c = a @ b, the side of its block's tile, its block


def matmul_tflops(rungs: Mapping[str, Rung], n: int = 4096) -> dict[str, float]:
    """{name: 10¹² FLOP per second} of kernels that multiply n × n matrices of fp32 on a GPU."""
    import torch

    from nogpu import cuda

    arrays = [cuda.as_cuda_array(matrix) for matrix in torch.randn(3, n, n, device="cuda")]
    return {
        name: 2e-12
        * n**3
        / measure(kernel[(-(-n // tile), -(-n // tile)), block], *arrays).median_s
        for name, (kernel, tile, block) in rungs.items()
    }


def cublas_tflops(n: int = 4096) -> float:
    """The same of torch.mm, which calls NVIDIA's library cuBLAS."""
    import torch

    return 2e-12 * n**3 / measure(torch.mm, *torch.randn(2, n, n, device="cuda")).median_s


def _warm_times_s(call: Callable[[], object], min_time_s: float) -> list[float]:
    """Seconds per call, for some twenty blocks of calls that follow each other."""
    from torch.utils import benchmark

    # PyTorch's clock waits for the GPU before it is read.
    timer = timeit.Timer(call, timer=benchmark.timer)
    single_s = timer.repeat(3, number=1)
    if sum(single_s) >= min_time_s:
        return single_s
    number = max(1, int(min_time_s / 20 / min(single_s)))
    repeat = max(3, int(min_time_s / number / min(single_s)))
    return [block_s / number for block_s in timer.repeat(repeat, number)]


def _cold_times_s(call: Callable[[], object], min_time_s: float) -> list[float]:
    """Seconds of at least three single calls; other data fills the caches before each."""
    import torch
    from torch.utils import benchmark

    eviction = torch.ones(EVICTION_BYTES // 4)
    times_s, deadline_s = [], timeit.default_timer() + min_time_s
    while len(times_s) < 3 or timeit.default_timer() < deadline_s:
        eviction.sum()  # reads only: written data would have to leave the cache during the call
        times_s += timeit.repeat(call, number=1, repeat=1, timer=benchmark.timer)
    return times_s
