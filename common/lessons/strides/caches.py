"""The processor's first cache: its sets and ways, and how long walks and copies take."""

from __future__ import annotations

import functools
import statistics
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.figures.views import View
from common.hardware import timing

LINE_BYTES = 64
USUAL = 64, 8  # sets and ways of 32 KiB, where the system does not say
DESCRIPTIONS = Path("/sys/devices/system/cpu/cpu0/cache")
AXES = 4  # of the loop that copies
OTHER_STORAGE = 10**9  # its first line
STEPS = 200_000


def first() -> tuple[int, int]:
    """(sets, ways) of the first data cache: it holds sets × ways lines of 64 bytes.

    Linux describes it. Elsewhere this gives the usual 64 sets of 8 ways.
    """
    for cache in sorted(DESCRIPTIONS.glob("index*")):
        try:
            level, kind, line, sets, ways = (
                (cache / name).read_text().strip()
                for name in (
                    "level",
                    "type",
                    "coherency_line_size",
                    "number_of_sets",
                    "ways_of_associativity",
                )
            )
        except OSError:
            continue
        if (level, line) == ("1", str(LINE_BYTES)) and kind in ("Data", "Unified"):
            return int(sets), int(ways)
    return USUAL


def step_ns(lines: Sequence[int]) -> float:
    """Nanoseconds per step of a walk that visits these lines in turn, again and again.

    The lines are all different. Each holds the place of the next one, so that a step must wait for
    the one before it. This is the shortest of seven measurements: nothing else disturbed it.
    """
    words = LINE_BYTES // 8
    places = words * np.asarray(lines)
    following = np.zeros(words * (max(lines) + 1), dtype=np.int64)
    following[places] = np.roll(places, -1)
    start = int(places[0])
    chased = compiled(_chased)
    chased(following, start, STEPS)  # compiles it, and fills the cache
    times_s = timeit.repeat(lambda: chased(following, start, STEPS), number=1, repeat=7)
    return 1e9 * min(times_s) / STEPS


def lines_of(view: View, itemsize: int) -> list[int]:
    """The cache line that each step of a walk of the view visits. itemsize: bytes per element."""
    shape, strides, offset = view
    position = np.array(offset)
    for size, stride in zip(shape, strides, strict=True):
        position = position[..., None] + np.arange(size) * stride
    return (position.ravel() * itemsize // LINE_BYTES).tolist()


def copy_lines(to: View, by: View, itemsize: int) -> list[int]:
    """The lines that a copy visits: in turn one of the view `by`, read, and one of `to`, written.

    The two views are of different storages.
    """
    pairs = zip(lines_of(by, itemsize), lines_of(to, itemsize), strict=True)
    return [line for read, written in pairs for line in (read, OTHER_STORAGE + written)]


def copy_s(n: int, to: View, by: View) -> float:
    """Median seconds to copy n × n float32: in the order of the view `by`, to the places of `to`.

    One compiled loop does it for all views of up to four axes.
    """
    source, target = _storages(n)
    views = _padded(to), _padded(by)
    (shape, *places), (_, *sources) = views
    return timing.measure(compiled(_copied), target, source, shape, *places, *sources).median_s


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Numba compiles it. Numba takes half a second to import."""
    import numba

    return numba.njit(function)


@functools.lru_cache(maxsize=1)
def _storages(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.ones(n * n, dtype=np.float32), np.zeros(n * n, dtype=np.float32)


def hit_and_miss_ns() -> tuple[float, float]:
    """Nanoseconds per step, first if the cache holds all lines of a walk, then if it holds none.

    The first walk has eight lines. The second has four times the lines of the cache, in a random
    order, which no processor can guess: nearly all its steps go to the second cache. Where its data
    lie changes its time a little, so this is the median of five.
    """
    sets, ways = first()
    random = np.random.default_rng(0)
    walks = [random.permutation(4 * sets * ways).tolist() for _ in range(5)]
    return step_ns(range(8)), statistics.median(map(step_ns, walks))


def _padded(view: View) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    shape, strides, offset = view
    missing = AXES - len(shape)
    return (1,) * missing + tuple(shape), (0,) * missing + tuple(strides), offset


def _chased(following: Any, start: int, steps: int) -> int:
    place = start
    for _ in range(steps):
        place = following[place]
    return place


def _copied(
    target: Any, source: Any, shape: Any, to: Any, to_offset: int, by: Any, by_offset: int
) -> None:
    for i in range(shape[0]):
        for j in range(shape[1]):
            for k in range(shape[2]):
                to_start = to_offset + i * to[0] + j * to[1] + k * to[2]
                by_start = by_offset + i * by[0] + j * by[1] + k * by[2]
                for m in range(shape[3]):
                    target[to_start + m * to[3]] = source[by_start + m * by[3]]
