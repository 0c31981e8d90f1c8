"""What lab 02's checks compare with: counts by PyTorch or by brute force, and times of fakes."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from common.lessons.arithmetic_intensity.fake_device import FakeDevice
from common.lessons.arithmetic_intensity.operations import product_flops


def product(m: int, n: int, p: int, itemsize: int) -> tuple[int, int]:
    """(FLOPs by PyTorch's counter, bytes of the three matrices) of a product."""
    import torch

    dtypes = {1: torch.int8, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
    with torch.device("meta"):
        a = torch.empty(m, n, dtype=dtypes[itemsize])
        b = torch.empty(n, p, dtype=dtypes[itemsize])
    return product_flops(lambda: a @ b), a.nbytes + b.nbytes + (a @ b).nbytes


OVERFLOW = "32 bits are too few for this number. Count with Python's ints."


def flops_mistakes(m: int, n: int, p: int) -> dict[str, int]:
    """{sentence: what matmul_flops counts with this mistake}."""
    return {
        "Additions count, too.": m * n * p,
        "Count n additions per element: the first one adds to zero.": m * p * (2 * n - 1),
        "That is one column of the result. It has p.": 2 * m * n,
        "The result has m × p elements. That counts m × n of them.": 2 * m * n * n,
        OVERFLOW: _in_32_bits(2 * m * n * p),
    }


def _in_32_bits(count: int) -> int:
    return (count + 2**31) % 2**32 - 2**31


def bytes_mistakes(m: int, n: int, p: int, itemsize: int) -> dict[str, int]:
    """{sentence: what matmul_bytes counts with this mistake}."""
    inputs, output = itemsize * (m * n + n * p), itemsize * m * p
    least = inputs + output
    return {
        "That counts elements; each takes itemsize bytes.": least // itemsize,
        "itemsize counts bytes already. That counts bits.": 8 * least,
        "The output's elements take itemsize bytes, too.": inputs + m * p,
        "Each of the three matrices has elements of itemsize bytes.": (
            itemsize * m * n + n * p + m * p
        ),
        "The output has m rows and p columns.": inputs + itemsize * m * n,
        "The inputs are missing: they must be read.": output,
        "A matrix has two sides: m × n, n × p and m × p elements.": itemsize * m * n * p,
        "The output is missing: it must be written.": inputs,
        "The output is written, but never read.": inputs + 2 * output,
        "An element has itemsize bytes, not always 4.": 4 * (m * n + n * p + m * p),
        "Least bytes: each input is read once, not for every multiplication.": (
            itemsize * 2 * m * n * p + output
        ),
        OVERFLOW: _in_32_bits(least),
    }


WORK = {  # per element of x: FLOPs, numbers read, numbers written
    "add": (1, 2, 1),
    "dot product": (2, 2, 0),  # the one result is nothing next to x and y
    "scale in place": (1, 1, 1),
    "softmax of rows": (5, 1, 1),
    "layer norm of rows": (7, 1, 1),
}


def operation_counts(n: int, itemsize: int) -> dict[str, tuple[float, float]]:
    """{operation: (FLOPs, least bytes)}."""
    return {
        name: (float(flops * n), float(itemsize * (read + written) * n))
        for name, (flops, read, written) in WORK.items()
    }


def operation_mistakes(name: str, n: int, itemsize: int) -> dict[str, tuple[float, float]]:
    """{sentence: what operation_counts says of this operation with this mistake}."""
    flops, read, written = (float(count * n) for count in WORK[name])
    moved = itemsize * (read + written)
    return {
        "Count bytes: each element has itemsize of them.": (flops, read + written),
        "What is written counts, too.": (flops, itemsize * read),
        "What is read counts, too.": (flops, itemsize * written),
        "Multiplications and additions both count.": (flops / 2, moved),
        "An addition of two numbers is one FLOP.": (2 * flops, moved),
        "One FLOP of each element is missing.": (flops - n, moved),
        (
            "At least: one pass can do it, with one read and one write."
            if written
            else "One result is written, not n."
        ): (flops, moved + itemsize * n),
        "The two numbers are exchanged.": (moved, flops),
        "Count all n elements, not one.": (flops / n, moved / n),
        "x and y are both read.": (flops, moved - itemsize * n),
        "An element has itemsize bytes, not always 4.": (flops, 4 * (read + written)),
    }


def tile_traffic(n: int, tile: int, itemsize: int) -> tuple[int, int]:
    """(bytes of A and B, bytes of C) that the tiled loop moves, added up tile by tile."""
    sides = [len(range(n)[start : start + tile]) for start in range(0, n, tile)]
    inputs = sum(i * k + k * j for i in sides for j in sides for k in sides)
    return itemsize * inputs, itemsize * n * n


def tile_mistakes(n: int, tile: int, itemsize: int) -> dict[str, float]:
    """{sentence: what a program with this mistake counts}."""
    inputs, output = tile_traffic(n, tile, itemsize)
    up, down, matrix = -(-n // tile), n // tile, itemsize * n * n
    return {
        "That counts elements, not bytes.": (inputs + output) // itemsize,
        "The bytes of C are missing: it is stored.": inputs,
        "C stays in fast memory: it is stored once, not at every step.": inputs + output * up,
        "C starts at 0 in fast memory: it is stored, but never loaded.": inputs + 2 * output,
        "Tiles at the edge are smaller than the rest.": itemsize * tile**2 * (2 * up**3 + up**2),
        "Both A and B pass once for each tile; one of them is counted once only.": matrix
        * (up + 2),
        "The last tile passes, too: round the number of tiles up.": 2 * matrix * down + output,
        "These are the least bytes. In the tiled loop, A and B pass several times.": 3 * matrix,
        "A and B both pass; that counts one of them.": inputs // 2 + output,
        "Where tiles divide n, there is no smaller last one: round up, don't add one.": (
            2 * matrix * (down + 1) + output
        ),
        "A number of tiles is whole: round n / tile up before you multiply.": (
            itemsize * (2 * n**3 // tile + n * n)
        ),
        "All of A passes once per tile of columns, not once per tile of C.": (
            2 * matrix * up**2 + output
        ),
        "An element has itemsize bytes, not always 4.": 4 * (inputs + output) // itemsize,
        "C stays in fast memory: it is stored once, and never loaded.": inputs + 2 * output * up,
    } | _more_tile_mistakes(n, tile, itemsize)


def _more_tile_mistakes(n: int, tile: int, itemsize: int) -> dict[str, float]:
    inputs, output = tile_traffic(n, tile, itemsize)
    up = -(-n // tile)
    whole = itemsize * tile**2  # bytes of a whole tile
    return {
        "The tiles of A and B at the edge are smaller, too.": 2 * whole * up**3 + output,
        "The tiles of C at the edge are smaller, too.": inputs + whole * up**2,
        "C's elements take itemsize bytes, too.": inputs + n * n,
        "A number of tiles is not negative: -(-n // tile), with two minus signs, rounds up.": (
            output - inputs
        ),
        "Here n / tile is not whole. The last, smaller tile passes, too: round up.": (
            2 * output * n / tile + output
        ),
        "A passes once for each tile of columns: n / tile times, rounded up, not tile times.": (
            2 * output * tile + output
        ),
        "That is a loop without tiles, which loads A and B for each multiplication.": (
            2 * output * n + output
        ),
    }


def roofline(
    flops: float, moved: float, peak: float, bandwidth: float
) -> tuple[float, dict[str, float]]:
    """(FLOP/s of an operation whose slower half decides, {sentence: FLOP/s by this mistake})."""
    compute_s, memory_s = flops / peak, moved / bandwidth
    return flops / max(compute_s, memory_s), {
        "That breaks one of the two limits: the lower one holds.": flops / min(compute_s, memory_s),
        "The times don't add: arithmetic goes on while memory moves.": flops
        / (compute_s + memory_s),
        "That is a part of the peak. Want FLOP/s.": flops / max(compute_s, memory_s) / peak,
        "Bytes per second × FLOPs per byte are FLOP/s: multiply, don't divide.": min(
            peak, bandwidth * moved / flops
        ),
        "Bandwidth counts bytes: times FLOPs per byte it is FLOP/s.": min(peak, bandwidth),
    }


def ridge(peak: float, bandwidth: float) -> tuple[float, dict[str, float]]:
    """(the intensity at which both take equally long, {sentence: the answer by this mistake})."""
    seconds_per_byte, seconds_per_flop = 1 / bandwidth, 1 / peak
    return seconds_per_byte / seconds_per_flop, {
        "That is in bytes per FLOP: turn the fraction round.": bandwidth / peak,
        "FLOPs per byte are FLOP/s divided by bytes per second. That multiplies them.": (
            peak * bandwidth
        ),
        "An intensity need not be whole: divide with /, not with //.": peak // bandwidth,
    }


def balanced(
    in_balance: float, element_s: float, itemsize: int, slowdown: float
) -> tuple[float, float, dict[str, float]]:
    """(multiplications per second, bytes per second, {sentence: answer by this mistake}).

    Of a machine on which one element takes element_s to read and write, and which multiplies
    in_balance times in that time.
    """
    want = in_balance * slowdown
    return (
        in_balance / element_s,
        2 * itemsize / element_s,
        {
            "Each element is read and written: two transfers.": want / 2,
            "slowdown is left out.": in_balance,
            "Count bytes: an element has itemsize of them.": want / itemsize,
            "The times don't add: arithmetic goes on while memory moves.": in_balance
            * max(1, slowdown - 1),
            "More multiplications fit into a longer time: multiply by slowdown.": (
                in_balance / slowdown
            ),
            "Count multiplications, without an addition for each.": 2 * want,
            "That fits into twice memory's time. Want slowdown times.": 2 * in_balance,
            "An element has itemsize bytes, not always 4.": 4 * want / itemsize,
            "Two transfers per element: one read, one write.": 1.5 * want,
            "itemsize counts bytes already. That counts bits.": 8 * want,
            "The answer is a float: don't round it.": float(int(want)),
            "Multiply the seconds by the multiplications per second.": (
                element_s**2 * slowdown / in_balance
            ),
        },
    )


def multiplied(x: np.ndarray, factor: float, repeat: int) -> np.ndarray:
    """x after repeat passes over it, each rounded to float32."""
    result = x.copy()
    for _ in range(repeat):
        np.multiply(result, np.float32(factor), out=result)
    return result


def fused_mistakes(x: np.ndarray, factor: float, repeat: int) -> dict[str, np.ndarray]:
    """{sentence: what becomes of x by this mistake}."""
    power, multiplied_up = float(np.float32(factor)) ** repeat, np.float32(1)
    for _ in range(repeat):
        multiplied_up *= np.float32(factor)
    rounded_once = (x.astype(np.float64) * power).astype(np.float32)
    return {
        "Nothing was stored: write the value back to x[i].": x.copy(),
        "That multiplies once.": multiplied(x, factor, 1),
        "That multiplies once too often.": multiplied(x, factor, repeat + 1),
        "One multiplication is missing.": multiplied(x, factor, repeat - 1),
        "The factors alone were multiplied: begin with x[i].": multiplied(
            np.ones_like(x), factor, repeat
        ),
        "That multiplies the factor up first. Multiply the value: each product is rounded.": (
            x * multiplied_up
        ),
        "That multiplies by a power. Multiply `repeat` times: each product is rounded.": x
        * np.float32(power),
        "Multiply `repeat` times in float32: each product is rounded.": rounded_once,
    }


# The model and the diagnosis of exercise 5.1.

MACHINE = PEAK, BANDWIDTH, OVERHEAD_S = 1e12, 1e11, 1e-5
PARTS = "compute", "memory", "overhead"


def slowest(
    compute_s: float, memory_s: float, overhead_s: float, ridge: float
) -> tuple[float, dict[str, float]]:
    """(the time of an operation of these parts, {sentence: its time by this mistake}).

    ridge: the machine's peak / bandwidth, in FLOP/byte.
    """
    fastest, middle, last = sorted((compute_s, memory_s, overhead_s))
    return last, {
        "The three overlap: don't add them.": fastest + middle + last,
        "The slowest decides, not the fastest.": fastest,
        "Overhead overlaps, too: don't add it.": max(compute_s, memory_s) + overhead_s,
        "Overhead is left out.": max(compute_s, memory_s),
        "Compute and memory overlap: don't add them.": max(compute_s + memory_s, overhead_s),
        "FLOPs belong to the peak, and bytes to the bandwidth: they are exchanged.": max(
            compute_s * ridge, memory_s / ridge, overhead_s
        ),
        "Seconds are FLOPs / (FLOP/s): turn the fractions round.": max(
            1 / compute_s, 1 / memory_s, overhead_s
        ),
    }


STORIES = [  # (story, FLOPs, bytes, seconds, diagnosis) on MACHINE
    ("a large product", 1e9, 1e6, 1.2e-3, "compute"),
    ("a vector addition", 1e7, 1e8, 1.3e-3, "memory"),
    ("an addition of one number", 1, 12, 1.1e-5, "overhead"),
    ("a softmax in five passes", 5e7, 1e8, 5e-3, "none"),
    ("an addition hardly longer than its launch", 1e5, 1.3e6, 1.5e-5, "memory"),
    ("a product that nobody waited for", 1e9, 1e6, 2e-5, "impossible"),
    ("an addition that stayed in a cache", 1e7, 2e8, 1.85e-3, "impossible"),
    ("a launch that was not measured", 1, 12, 5e-6, "impossible"),
    ("a rather slow addition", 1e7, 1e8, 1.9e-3, "memory"),
    ("a slower addition", 1e6, 1e7, 2.06e-4, "none"),
    ("a product by a clock 3 % off", 1e9, 9e7, 0.97e-3, "compute"),
    ("a product at exactly half of its speed", 2**-10 * PEAK, 1e6, 2**-9, "compute"),
    # In these, a part that is not the slowest explains half of the time, too.
    ("a product of narrow matrices", 7e8, 9e7, 1e-3, "memory"),
    ("a product hardly longer than its launch", 1.4e7, 1e4, 1.6e-5, "compute"),
    ("a product hardly shorter than its launch", 7e6, 1e4, 1.1e-5, "overhead"),
    ("an addition hardly shorter than its launch", 1e4, 7e5, 1.1e-5, "overhead"),
]


def patients(rng: np.random.Generator) -> list[tuple[str, float, float, float, str]]:
    """(story, FLOPs, bytes, seconds, diagnosis) on MACHINE: 16 by hand, then sixty random."""
    found = [*STORIES]
    for _ in range(60):
        limit, factor = PARTS[rng.integers(3)], rng.choice([0.4, 0.9, 0.97, 1.1, 1.9, 2.1, 9])
        most_s = OVERHEAD_S if limit == "overhead" else 10 ** rng.uniform(-4, -1)
        small_s = most_s * 10 ** rng.uniform(-3, -0.1, 2)
        compute_s = most_s if limit == "compute" else small_s[0]
        memory_s = most_s if limit == "memory" else small_s[1]
        word = "impossible" if factor < 0.95 else limit if factor < 2 else "none"
        found.append(
            (
                "an operation",
                float(compute_s * PEAK),
                float(memory_s * BANDWIDTH),
                float(most_s * factor),
                word,
            )
        )
    return found


def parts_s(flops: float, bytes_moved: float) -> dict[str, float]:
    """{part: the seconds that MACHINE needs for it}."""
    return dict(zip(PARTS, (flops / PEAK, bytes_moved / BANDWIDTH, OVERHEAD_S), strict=True))


def parts(flops: float, bytes_moved: float) -> str:
    """The parts of an operation on MACHINE, for a message."""
    seconds = parts_s(flops, bytes_moved).items()
    return ", ".join(f"{name} {time_s:.2g} s" for name, time_s in seconds)


def diagnosis_mistakes(flops: float, bytes_moved: float, time_s: float) -> dict[str, str]:
    """{sentence: the word that this mistake gives}."""
    seconds = parts_s(flops, bytes_moved)
    limit = max(seconds, key=lambda part: seconds[part])
    share = seconds[limit] / time_s
    if share > 1.05:
        return {
            f"Its {limit} part alone takes {share:.2f} times as long as was measured: no machine "
            "can do that.": limit
        }
    if share < 0.5:
        return {f"Its {limit} part explains {share:.0%} of the time, less than half.": limit}
    return {
        f"Its {limit} part explains {share:.0%} of the time, half or more.": "none",
        f"Its {limit} part takes {share:.2f} times as long as was measured. Up to 1.05 is the "
        "clock's error.": "impossible",
    } | {f"The slowest part is {limit}, not {part}.": part for part in PARTS if part != limit}


# The harness of exercise 6.1: the right one, and those with one slip.


def _harness(
    fake: FakeDevice,
    repeats: int,
    *,
    warm: bool = True,
    wait_before: bool = True,
    wait_after: bool = True,
    late: bool = False,
    early: bool = False,
    all_of: bool = False,
    summary: Callable[[Sequence[float]], float] = statistics.median,
) -> float:
    """Seconds per call as a harness finds them. The options leave out one of its parts each."""
    times_s = []
    if warm:
        fake.call()
        if wait_before:
            fake.synchronize()
    for _ in range(repeats + all_of):
        start_s = fake.clock()
        if early:
            fake.synchronize()
        fake.call()
        if late:
            start_s = fake.clock()
        if wait_after and not early:
            fake.synchronize()
        times_s.append(fake.clock() - start_s)
    return summary(times_s)


def _low_median(times_s: Sequence[float]) -> float:
    return statistics.median_low(times_s)


def _high_median(times_s: Sequence[float]) -> float:
    return statistics.median_high(times_s)


def _below_the_middle(times_s: Sequence[float]) -> float:
    return sorted(times_s)[len(times_s) // 2 - 1]


def _above_the_middle(times_s: Sequence[float]) -> float:
    half, in_order = len(times_s) // 2, sorted(times_s)
    return statistics.mean(in_order[half : half + 2])


def _from_one_start(times_s: Sequence[float]) -> float:
    return statistics.median(itertools.accumulate(times_s))


def _whole(times_s: Sequence[float]) -> float:
    return int(statistics.median(times_s))


def _negative(times_s: Sequence[float]) -> float:
    return -statistics.median(times_s)


def _milliseconds(times_s: Sequence[float]) -> float:
    return 1000 * statistics.median(times_s)


def _middle_unsorted(times_s: Sequence[float]) -> float:
    return times_s[len(times_s) // 2]


SLIPS: Mapping[str, dict[str, Any]] = {
    "The first call is slow: call once before you measure.": {"warm": False},
    "The warm-up is still running when the clock starts: synchronize before.": {
        "wait_before": False
    },
    "call() returns at once: synchronize before you read the clock again.": {"wait_after": False},
    "That is the mean: one interrupted call spoils it. Take the median.": {
        "summary": statistics.fmean
    },
    "That is the fastest call, not the median.": {"summary": min},
    "That is the slowest call, not the median.": {"summary": max},
    "That is the sum of all times.": {"summary": sum},
    "Of an even number of times, the median is the mean of the middle two.": {
        "summary": _low_median
    },
    "The median needs the times in order: sort them.": {"summary": _middle_unsorted},
    "That is the upper of the middle two. Of an even number of times, the median is their mean.": {
        "summary": _high_median
    },
    "The time of the first call is among the times. Warm up before.": {
        "warm": False,
        "all_of": True,
    },
    "A launch takes time, too: read the clock before call().": {"late": True},
    "In seconds, please, not in milliseconds.": {"summary": _milliseconds},
    "Wait for the call itself: synchronize after call(), not between clock() and call().": {
        "early": True
    },
    "That is the first time alone: return after the loop.": {"summary": operator.itemgetter(0)},
    "That is the last time alone: keep a time in each turn of the loop.": {
        "summary": operator.itemgetter(-1)
    },
    "Each time contains those before it: read the clock anew before each call.": {
        "summary": _from_one_start
    },
    "That is one place below the middle of the sorted times.": {"summary": _below_the_middle},
    "The middle two of an even number of sorted times lie one place lower.": {
        "summary": _above_the_middle
    },
    "The answer is a float: don't round it.": {"summary": _whole},
    "Later minus earlier: the difference is turned round.": {"summary": _negative},
}


def fake_devices(rng: np.random.Generator) -> Iterator[tuple[float, list[float], float]]:
    """(first_s, later_s, launch_s) of 13 fake devices, with 1 to 11 later times."""
    yield 4.0, [2.5, 40.0, 3.0, 1.0, 12.0, 8.0, 1.5, 9.5], 0.25  # each slip gives another number
    yield 9.0, [2.0, 7.5, 1.0, 3.0], 0.0
    yield 9.0, [4e3], 0.25
    for count in range(2, 12):
        later_s = rng.permutation(rng.choice(999, count, replace=False) / 64 + 1).tolist()
        yield 1e4, later_s, int(rng.integers(1, 60)) / 64


def median_s(
    first_s: float, later_s: Sequence[float], launch_s: float
) -> tuple[float, dict[str, float]]:
    """(the median of one round of calls, {sentence: what a harness with this slip finds})."""
    found = {}
    for sentence, options in SLIPS.items():
        fake = FakeDevice(first_s, later_s, launch_s)
        found[sentence] = _harness(fake, len(later_s), **options)
    return statistics.median(later_s) + launch_s, found


# The transformer of exercise 7.1.


@functools.cache
def training_flops(
    batch: int,
    sequence: int,
    layers: int,
    width: int,
    feedforward: int,
    vocabulary: int,
    heads: int = 1,
) -> int:
    """FLOPs of a forward and a backward pass, by PyTorch's counter. feedforward 0: attention."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def step() -> None:
        x = torch.empty(batch, sequence, width, requires_grad=True)
        if not feedforward:
            for _ in range(layers):
                attention = torch.nn.MultiheadAttention(width, heads, batch_first=True)
                x = attention(x, x, x)[0]
        else:
            layer = torch.nn.TransformerEncoderLayer(
                width, heads, feedforward, dropout=0.0, batch_first=True
            )
            x = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)(x)
        if vocabulary:
            x = torch.nn.Linear(width, vocabulary)(x)
        x.sum().backward()

    with torch.device("meta"), sdpa_kernel(SDPBackend.MATH):
        return product_flops(step)


def transformer_mistakes(
    batch: int, sequence: int, layers: int, width: int, feedforward: int, vocabulary: int
) -> dict[str, float]:
    """{sentence: what a program with this mistake counts}."""
    b, s, n, d, f, v = batch, sequence, layers, width, feedforward, vocabulary
    want = training_flops(*(b, s, n, d, f, v))
    attention = 6 * n * b * s * s * d  # of the scores alone, forward and backward
    return {
        "The backward pass is missing: it costs two forward passes.": want // 3,
        "A backward pass costs two forward passes, not one.": 2 * want // 3,
        "Two projections are missing: queries, keys, values and output are four.": (
            want - 12 * n * b * s * d * d
        ),
        "Four projections: queries, keys, values and output.": want - 6 * n * b * s * d * d,
        "The feedforward network has two matrices.": want - 6 * n * b * s * d * f,
        "Half of attention's two products is missing. Count the scores and the scores times the "
        "values, and count all pairs of a query and a key, masked or not.": want - attention,
        "Attention's own two products are missing: scores, and scores times values.": want
        - 2 * attention,
        "Each query meets the keys of its own sequence only.": want + 2 * attention * (b - 1),
        "The vocabulary's matrix is missing: it comes once, at the end.": want - 6 * b * s * d * v,
        "The vocabulary's matrix comes once, not in each layer.": want
        + (n - 1) * 6 * b * s * d * v,
        "The embedding is a lookup, not a product: no FLOPs.": want + 6 * b * s * d * v,
        "Forward and backward are three forward passes in all.": 4 * want // 3,
        "Multiplications and additions both count.": want // 2,
        "Each sequence of the batch has scores of its own.": want - 12 * n * (b - 1) * s * s * d,
        "Each layer has a feedforward network of its own.": want - 12 * (n - 1) * b * s * d * f,
        "Every token gets a score for each word, not only the last one.": want
        - 6 * b * (s - 1) * d * v,
        "The feedforward network is as wide as the argument says, not 4 times the width.": want
        + 12 * n * b * s * d * (4 * d - f),
    } | _more_transformer_mistakes(want, *(b, s, n, d, f, v))


def _more_transformer_mistakes(
    want: int, b: int, s: int, n: int, d: int, f: int, v: int
) -> dict[str, float]:
    attention, vocabulary = 12 * n * b * s * s * d, 6 * b * s * d * v
    return {
        "Three projections are missing: queries, keys, values and output are four.": (
            want - 18 * n * b * s * d * d
        ),
        "A batch has several sequences: count the tokens of all of them.": want // b,
        "The batch is missing from all products but the scores.": (
            (want - attention) // b + attention
        ),
        "A sequence has several tokens: every matrix is applied to each.": (
            (want - attention) // s + attention
        ),
        "There are as many layers as the argument says.": (want - vocabulary) // n + vocabulary,
        "Multiplications and additions are counted twice: matmul_flops counts both.": 2 * want,
        "The network's matrices are (width, feedforward) and (feedforward, width).": (
            want + 12 * n * b * s * f * (f - d)
        ),
        "A query meets all keys of its sequence once. That counts the sequence once too often.": (
            want + attention * (s - 1)
        ),
        "A query and a key are width long: (sequence, width) times (width, sequence).": (
            want + 12 * n * b * s * s * (s - d)
        ),
    }


@functools.cache
def language_model_flops(batch: int) -> tuple[int, tuple[int, ...]]:
    """(FLOPs of a training step of the course's language model, the arguments of its shape)."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from common.language_model import CONFIG, module

    model = module(trained=False).to("meta")
    tokens = torch.zeros(batch, CONFIG.context, dtype=torch.int64, device="meta")
    with sdpa_kernel(SDPBackend.MATH):
        flops = product_flops(lambda: model(tokens).sum().backward())
    shape = batch, CONFIG.context, CONFIG.layers, CONFIG.width, CONFIG.hidden, CONFIG.vocabulary
    return flops, shape


# Utilisation and latency, exercises 8.1 and 8.2.

PUT_RIGHT = {  # FLOP/s, and what mistakes give
    "a100_at_60_percent": (
        187.2e12,
        {
            "160 TFLOP/s are 51 % of 312.": 160e12,
            "In FLOP/s, please, not in TFLOP/s.": 187.2,
            "312 is dense already: it needs no halving.": 93.6e12,
        },
    ),
    "h100_dense_peak": (
        989.5e12,
        {
            "That is the rate with sparsity: half of the products are skipped.": 1979e12,
            "In FLOP/s, please, not in TFLOP/s.": 989.5,
        },
    ),
}


@functools.cache
def recomputing(layers: int, batch: int, width: int, again: int) -> tuple[int, int, int]:
    """(FLOPs of a forward pass, of a whole step, of a step that recomputes `again` layers)."""
    import torch
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    recompute = inspect.unwrap(checkpoint)  # around it, PyTorch would import its compiler
    x, linear = torch.rand(batch, width, requires_grad=True), torch.nn.Linear(width, width)

    def forward(recomputed: int) -> torch.Tensor:
        y = x
        for i in range(layers):
            y = recompute(linear, y, use_reentrant=False) if i < recomputed else linear(y)
        return y

    with set_checkpoint_early_stop(False):
        step, longer = (
            product_flops(lambda count=count: forward(count).sum().backward())
            for count in (0, again)
        )
    return product_flops(lambda: forward(0)), step, longer


def mfu_mistakes(forward: float, part: float, most: float) -> dict[str, float]:
    """{sentence: MFU by this mistake}. most: the FLOPs that the machine could do."""
    return {
        "Recomputing counts in HFU only: the model didn't ask for it.": (3 + part) * forward / most,
        "The backward pass is missing: it costs two forward passes.": forward / most,
        "The backward pass costs two forward passes, not one.": 2 * forward / most,
        "As a fraction, not in percent.": 300 * forward / most,
        "Needed FLOPs / possible FLOPs: turn the fraction round.": most / (3 * forward),
    }


def hfu_mistakes(forward: float, part: float, most: float) -> dict[str, float]:
    """{sentence: HFU by this mistake}."""
    return {
        "Recomputation is missing: the hardware does it, and HFU counts it.": 3 * forward / most,
        "Only a part of the *forward* pass is computed again, not of all three passes.": 3
        * (1 + part)
        * forward
        / most,
        "As a fraction, not in percent.": 100 * (3 + part) * forward / most,
    }


def arriving(
    in_flight: float, latency_s: float, bandwidth: float
) -> tuple[float, dict[str, float]]:
    """(bytes per second that arrive, {sentence: by this mistake})."""
    per_second = in_flight * (1 / latency_s)
    return sorted((per_second, bandwidth))[0], {
        "The memory's bandwidth is a limit, too.": per_second,
        "With few bytes in flight, memory waits: they arrive once per latency.": bandwidth,
        "Divide by the latency: that many bytes arrive in that time.": in_flight * latency_s,
    }


def loads(
    bandwidth: float, latency_s: float, threads: int, itemsize: int
) -> tuple[int, dict[str, float]]:
    """(the least number of loads per thread, {sentence: by this mistake}), by trying."""
    needed = bandwidth * latency_s
    count = 1
    while count * threads * itemsize < needed:
        count += 1
    return count, {
        "Round up: fewer would leave memory waiting.": count - 1,
        "A number of loads is whole: round up.": needed / threads / itemsize,
        "Count loads, not bytes: each brings itemsize bytes.": -int(-needed // threads),
        "All threads load: divide by threads and by itemsize.": -int(-needed // threads * itemsize),
        "All threads load together: divide by their number, too.": -int(-needed // itemsize),
    }
