"""A function of one element, made into a program that runs it for every element of a tensor."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from common.hardware import timing

THREADS = 256


def element(function: Any) -> Callable[..., None]:
    """A program of (x, a, b) that calls function(x, i, a, b) for every index i of x.

    function: decorated with @cuda.jit(device=True). x: a vector. On a CPU tensor, Numba compiles a
    loop over all cores; on a CUDA tensor, a kernel with one thread per element. The numbers a and b
    are compiled in, so a new value compiles anew, as torch.compile does.
    """
    programs: dict[tuple[bool, Any, Any], Callable[[Any], None]] = {}

    def run(x: Any, a: Any, b: Any) -> None:
        key = x.is_cuda, a, b
        if key not in programs:
            programs[key] = (_on_gpu if x.is_cuda else _on_cpu)(function, a, b)
        programs[key](x)

    return run


def _on_cpu(function: Any, a: Any, b: Any) -> Callable[[Any], None]:
    import numba

    inner = numba.njit(function.py_func)

    @numba.njit(parallel=True)
    def loop(x: Any) -> None:
        for i in numba.prange(x.size):  # with (*numbers), it computes one element at a time
            inner(x, i, a, b)

    return lambda x: loop(x.numpy())


def _on_gpu(function: Any, a: Any, b: Any) -> Callable[[Any], None]:
    import numba.cuda

    cuda: Any = numba.cuda

    @cuda.jit
    def kernel(x: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            function(x, i, a, b)

    return lambda x: kernel[-(-x.numel() // THREADS), THREADS](x)


def compared(function: Any, x: Any, factor: Any, repeats: Sequence[int]) -> dict[str, list[float]]:
    """Seconds of `repeat` multiplications of x, for each number: "fused", and "unfused" in passes.

    On a CPU, where many passes take long, unfused is NaN from 32 multiplications on, and above 32
    fused is eight times the time of an eighth of x: memory is no limit there. On a GPU there is
    also what "torch.compile" makes of the passes.
    """
    import torch

    program, number = element(function), float(factor)

    def passes(repeat: int) -> None:
        for _ in range(repeat):
            x.mul_(number)

    most = max(repeats) if x.is_cuda else 16
    measured: dict[str, list[float]] = {"fused": [], "unfused": []}
    for repeat in repeats:
        parts = 1 if x.is_cuda or repeat <= 32 else 8
        part = x[: len(x) // parts]
        fused_s = parts * timing.measure(program, part, factor, repeat, min_time_s=0.1).median_s
        some = repeat <= most
        unfused_s = timing.measure(passes, repeat, min_time_s=0.05).median_s if some else math.nan
        measured["fused"].append(fused_s)
        measured["unfused"].append(unfused_s)
        if x.is_cuda:
            torch.compiler.reset()  # it compiles a function anew for few numbers only
            compiled = torch.compile(passes, dynamic=False)
            compiled_s = timing.measure(compiled, repeat, min_time_s=0.1).median_s
            measured.setdefault("torch.compile", []).append(compiled_s)
    return measured


def doubling(repeats: Sequence[int], times_s: Sequence[float]) -> float:
    """For how many repeats the time is twice the first one; extrapolated from the last two dots."""
    import numpy as np

    times, twice = np.maximum.accumulate(times_s), 2 * times_s[0]
    if times[-1] >= twice:
        return float(np.interp(twice, times, repeats))
    (before, last), (before_s, last_s) = repeats[-2:], times[-2:]
    return float(last + (twice - last_s) * (last - before) / (last_s - before_s))
