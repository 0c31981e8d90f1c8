"""Chains of fetches from memory: what a fetch brings is the address of the next one."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from common import timing

LINE = 8  # int64 per cache line of 64 bytes
LINES = 2**20  # 64 MiB: more than most last-level caches


def time_per_round_s(chains: int, rounds: int = 20_000) -> float:
    """Seconds for one fetch in each of so many chains that don't depend on each other."""
    first = np.linspace(0, LINES, chains, endpoint=False).astype(np.int64)
    places = _order()[first] * LINE
    return min(timing.measure(_walk(), _cycle(), places, rounds, min_time_s=0.1).times_s) / rounds


@functools.cache
def _order() -> np.ndarray:
    return np.random.default_rng(0).permutation(LINES)


@functools.cache
def _cycle() -> np.ndarray:
    """At the start of each line stands where the next line starts; all lines are one cycle."""
    order = _order()
    following = np.zeros(LINES * LINE, np.int64)
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
