"""Chains of fetches from memory: what a fetch brings is the address of the next one."""

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from common.hardware import timing

LINE = 8  # int64 per cache line of 64 bytes
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
LEAST_LINES, MOST_LINES = 2**20, 2**25  # 64 MiB to 2 GiB


def time_per_round_s(chains: int, rounds: int = 20_000) -> float:
    """Seconds for one fetch in each of so many chains that don't depend on each other."""
    order = _order()
    first = np.linspace(0, order.size, chains, endpoint=False).astype(np.int64)
    places = order[first] * LINE
    return min(timing.measure(_walk(), _cycle(), places, rounds, min_time_s=0.1).times_s) / rounds


def last_cache_bytes() -> int:
    """Bytes of the largest cache that Linux describes; a usual size (32 MiB) elsewhere."""
    sizes = [2**25]
    for description in CACHES.glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(1024 * int(description.read_text().strip().removesuffix("K")))
    return max(sizes)


@functools.cache
def _order() -> np.ndarray:
    """The lines in random order: four times as many as the last cache holds."""
    lines = 4 * last_cache_bytes() // (8 * LINE)
    return np.random.default_rng(0).permutation(min(max(lines, LEAST_LINES), MOST_LINES))


@functools.cache
def _cycle() -> np.ndarray:
    """At the start of each line stands where the next line starts; all lines are one cycle."""
    order = _order()
    following = np.zeros(order.size * LINE, np.int64)
    following[order * LINE] = np.roll(order, -1) * LINE
    return following


@functools.cache
def _walk() -> Callable[..., Any]:
    import numba

    @numba.njit
    def walk(following: np.ndarray, places: np.ndarray, rounds: int) -> None:
        for _ in range(rounds):
            for chain in range(places.size):
                places[chain] = following[places[chain]]

    return walk
