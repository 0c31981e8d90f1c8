"""What lab 05's checks expect: products in float64, orders of tiles, pipelines, costs."""

import copy
import functools
import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from common.checks import expect, static_names
from common.checks.grader_link import in_place, weighed
from common.checks.launches import plain
from nogpu import tiles
from nogpu.tiles import Report

Tile = tuple[int, int]
Step = tuple[float, float]
Shape = tuple[int, int, int]


def product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A B, computed in float64 and rounded once."""
    return (a.double() @ b.double()).to(dtype)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU in its tanh form, in float64."""
    x = x.double()
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FORMATS = {  # how a kernel's tl.dot multiplies and adds
    torch.float16: {"fp16 × fp16 + fp32"},
    torch.bfloat16: {"bf16 × bf16 + fp32"},
}
STORED = {  # by which matrices are transposed: (dtype of all three, size of their numbers)
    "a": (torch.float16, 1),
    "b": (torch.float16, 1),
    "c": (torch.bfloat16, 300),
    "abc": (torch.bfloat16, 300),
}
SHAPES = [  # (M, N, K, BLOCK_M, BLOCK_N, BLOCK_K)
    (16, 32, 16, 16, 32, 16),
    (32, 32, 64, 32, 16, 32),
    (48, 64, 40, 16, 32, 16),
    (33, 20, 47, 32, 16, 16),
    (5, 40, 70, 16, 16, 32),
    (20, 40, 49, 16, 32, 16),
]


def kept(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns for these arrays or tensors, which it must leave as they are."""
    given = [copy.deepcopy(each) for each in arguments]
    got = in_place(function, *given)(*given)
    for number, (after, before) in enumerate(zip(given, arguments, strict=True), 1):
        same = np.array_equal(np.asarray(after), np.asarray(before), equal_nan=True)
        says = (
            f"{function.__name__} changed its argument number {number}: the caller needs it again"
        )
        expect(same, says)
    return got


def formats(kernel: str, got: set[str], dtype: torch.dtype) -> str:
    """What to say of a kernel whose tl.dot has other formats than its arguments."""
    if not got:
        return f"{kernel} has no tl.dot: nothing of it runs on tensor cores"
    found, name = ", ".join(sorted(got)), min(FORMATS[dtype])[:4]
    return (
        f"{kernel}: tl.dot computes {found}, and these matrices are {name}. Leave the tiles in 16 "
        "bits, as they were loaded: tensor cores multiply these fast. And keep the sum in float32"
    )


def expect_format(report: Report, kernel: str, dtype: torch.dtype) -> None:
    """Raise AssertionError unless a kernel's tl.dot multiplies tiles of this dtype, in 16 bits."""
    expect(report.dot_formats == FORMATS[dtype], formats(kernel, report.dot_formats, dtype))


def expect_one_dot(report: Report, dtype: str, precision: str) -> None:
    """Raise AssertionError unless tl.dot multiplies in this format, and gets this precision."""
    plain(report)
    want = {f"{dtype} × {dtype} + fp32"}
    expect(report.dot_formats == want, f"want one tl.dot of {want}, not {report.dot_formats}")
    expect(
        report.dot_precisions == {precision},
        f"PRECISION is {precision!r}, and tl.dot got {report.dot_precisions}: give it PRECISION as "
        "its input_precision",
    )


def expect_products(
    report: Report,
    kernel: str,
    shape: Shape,
    tile: Sequence[int],
    split: int | None = None,
    dtype: torch.dtype = torch.float16,
) -> None:
    """Raise AssertionError unless a kernel multiplies each pair of tiles once, in 16 bits.

    shape, tile: (M, N, K) of the product and of a tile. split: programs that share the steps along
    K, as evenly as they can, and add their parts atomically; None: one program per tile. dtype: of
    the tiles.
    """
    if split is None:
        plain(report)
        split = 1
    expect_format(report, kernel, dtype)
    rows, columns, steps = (-(-size // side) for size, side in zip(shape, tile, strict=True))
    flops = 2 * math.prod(tile) * rows * columns * split * -(-steps // split)
    expect(
        report.dot_flops <= flops,
        f"{kernel}: tl.dot does {report.dot_flops:,} floating-point operations for (M, N, K) = "
        f"{shape}, and {flops:,} will do: multiply each pair of tiles once",
    )


def among_nan(x: torch.Tensor) -> torch.Tensor:
    """The same matrix as every second element of a larger one, whose other elements are NaN."""
    around = torch.full((2 * len(x) + 32, 2 * x.shape[1] + 32), torch.nan, dtype=x.dtype)
    part = around[::2, ::2][: len(x), : x.shape[1]]
    part.copy_(x)
    return part


def pair(a: torch.Tensor, b: torch.Tensor, *, bf16: bool) -> list[torch.Tensor]:
    """Both `among_nan`, in bf16 or as they are."""
    return [among_nan(x.bfloat16() if bf16 else x) for x in (a, b)]


def squares(a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
    """{sentence: result} of likely mistakes in the product of two square matrices."""
    return {
        "This is the transpose of the product.": product(a, b).T,
        "a is transposed.": product(a.T, b),
        "b is transposed.": product(a, b.T),
        "This multiplies element by element.": (a.double() * b.double()).float(),
        "This is b a: the first argument of tl.dot is the tile of a.": product(b, a),
        "This is a a: load the second tile from b.": product(a, a),
        "This was rounded to 16 bits before the store: c is float32.": product(a, b).half().float(),
        "c held 7s before: store the product, do not add to them.": product(a, b) + 7,
    }


def wrong_strides(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, stored: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """{sentence: C of this dtype} of likely mistakes. stored: the matrices as in their memory.

    C has two tiles of 16 rows, each of which holds all columns.
    """
    dtype = c.dtype
    want = product(a, b, dtype)
    missing, moved_by_one = c.clone(), c.clone()
    missing[:16], moved_by_one[:17] = want[:16], want[:17]
    return {
        "Program 1 should compute the tile that begins in row BLOCK_M: nothing is stored there.": (
            missing
        ),
        "A tile begins BLOCK_M rows after the one above it, not one row.": moved_by_one,
        "This takes a and b as they are stored, row by row: use their strides.": product(
            stored[0], stored[1], dtype
        ),
        "This is the transpose of the result: use the strides of c.": want.T,
        "This was rounded to fp16 before the store: sum in float32, store in c's format.": (
            product(a, b).half().to(dtype)
        ),
    }


def wrong_steps(
    wide_a: torch.Tensor, wide_b: torch.Tensor, k: int, tile: Sequence[int]
) -> dict[str, torch.Tensor]:
    """{sentence: result} of likely mistakes in a loop along K, with tiles of this (M, N, K).

    wide_a, wide_b: matrices whose first k columns and rows are A and B. C holds 7s before.
    """
    _, width, depth = tile
    a, b = wide_a[:, :k], wide_b[:k]
    pairs = zip(a.split(depth, 1), b.split(depth), strict=True)
    parts = [(x.float(), y.float()) for x, y in pairs]
    steps = [x @ y for x, y in parts]  # in float32: what is rounded again, is alike
    doubled = functools.reduce(lambda total, step: 2 * total + step, steps)
    right = sum(steps, torch.zeros_like(steps[0]))
    results = _misplaced(parts, right, width) | {
        "tl.dot(x, y, total) adds to total already: write total = ..., not total += ....": doubled,
        "The last step is missing; it may be shorter than the others.": sum(
            steps[:-1], torch.zeros_like(steps[0])
        ),
        "This is the product of the last step alone: add up all of them.": steps[-1],
        "Every step multiplies the first two tiles: move on along K.": len(steps) * steps[0],
    }
    rounded = torch.zeros_like(steps[0]).half()
    for step in steps:
        rounded = (rounded + step.half()).half()
    at_the_end = right.half()
    results["This was rounded to fp16 before the store: sum in float32, store in c's format."] = (
        at_the_end
    )
    results["This was rounded to bf16 before the store: sum in float32, store in c's format."] = (
        right.bfloat16()
    )
    results["This was rounded to fp16 at every step: sum in float32."] = rounded
    end = -(-k // depth) * depth
    beyond = wide_a[:, :end].float() @ wide_b[:end].float()
    if end > k:
        results |= dict.fromkeys(unmasked(beyond), beyond)
    return {says: result.float() for says, result in results.items()}


def _misplaced(
    parts: Sequence[tuple[torch.Tensor, torch.Tensor]], right: torch.Tensor, width: int
) -> dict[str, torch.Tensor]:
    """{sentence: result} of mistakes in where tiles of A, B and C are. parts: A's and B's."""
    (first, second), whole = parts[0], right.shape[1] // width * width
    narrow, one_column = torch.full((2, *right.shape), 7.0)
    narrow[:, :whole], one_column[:, :width] = right[:, :whole], right[:, :width]
    return {
        "The pointers to B stay where they are: move them along K.": (
            sum((x @ second[: x.shape[1]] for x, _ in parts), 0 * right)
        ),
        "The pointers to A stay where they are: move them along K.": (
            sum((first[:, : len(y)] @ y for _, y in parts), 0 * right)
        ),
        "The last, narrower tile of each row is missing: round N / BLOCK_N up.": narrow,
        "Only the first tile of each row came: number all tiles by tl.program_id(0).": one_column,
    }


def constant(
    size: float, a: tuple[int, int], b: tuple[int, int], bias: tuple[int], c: tuple[int, int]
) -> tuple[torch.Tensor, ...]:
    """A and B with this number everywhere, in fp16; a bias of ones or, if it is large, zeros; C."""
    ones = torch.ones(bias) * (size == 1)
    return torch.full(a, size).half(), torch.full(b, size).half(), ones.half(), torch.zeros(c)


def of_constant(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, fused: bool
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """(C, {sentence: C of a likely mistake}) for `constant`, in two steps along K."""
    x = product(a, b, torch.float64)
    want = (gelu(x + bias) if fused else x).float()
    none = "The bias is missing, and perhaps GELU, too: GELU leaves large numbers as they are."
    likely = {"GELU multiplies by x: x / (1 + ...).": torch.ones_like(want), none: x.float()}
    return want, likely | overflown(want) | wrong_epilogues(x, bias, 2)


def unmasked(c: torch.Tensor) -> dict[str, torch.Tensor]:
    """{sentence: result} where NaN stands beyond K."""
    says = "The last step reaches beyond K: mask it, in both matrices."
    return {says: torch.full_like(c, torch.nan)}


def overflown(c: torch.Tensor) -> dict[str, torch.Tensor]:
    """{sentence: result} where numbers become too large."""
    return {
        "65,504 is the largest number of fp16: stay in float32.": torch.full_like(c, torch.inf),
        "This overflows to inf / inf; x / (1 + exp(-z)) does not.": torch.full_like(c, torch.nan),
    }


def as_pairs(values: Any) -> Any:
    """A list of pairs, each as a tuple, whatever holds two numbers; any other value as it is."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        values = values.tolist()
    if not isinstance(values, (list, tuple)):
        return values
    return [tuple(each) if isinstance(each, list) else each for each in values]


def bands(rows: int, columns: int, group: int) -> list[Tile]:
    """(row, column) of all tiles, in bands of group rows, each column by column."""
    tiles = [(row, column) for row in range(rows) for column in range(columns)]
    return sorted(tiles, key=lambda tile: (tile[0] // group, tile[1], tile[0]))


def wrong_bands(rows: int, columns: int, group: int) -> dict[str, list[Tile]]:
    """{sentence: order} of likely mistakes."""
    tiles = bands(rows, columns, group)
    along = sorted(tiles, key=lambda tile: (tile[0] // group, tile))
    programs, whole = range(len(tiles)), group * columns  # tiles of a whole band
    firsts = [program // whole * group for program in programs]
    heights = [min(rows - first, group) for first in firsts]
    at = list(zip(programs, firsts, heights, strict=True))
    results = {
        "The place within the band is program % (group * columns): bands above it are whole.": [
            (first + p % (high * columns) % high, p % (high * columns) // high)
            for p, first, high in at
        ],
        "The place within the band is missing: count from the band's first tile.": [
            (first + p % high, p // high) for p, first, high in at
        ],
        "A band begins at its number times group rows.": [
            (first // group + p % whole % high, p % whole // high) for p, first, high in at
        ],
        "A whole band has group * columns tiles, not group * rows.": _bands_of(
            group * rows, rows, len(tiles), group
        ),
        "The last band may have fewer rows: this skips tiles, and makes up others.": whole_bands(
            rows, columns, group
        )[: len(tiles)],
        "Go down a column of the band, then down the next: this goes along its rows.": along,
        "These are (column, row).": [(column, row) for row, column in tiles],
        "This is a snake: every column of a band is gone down, from its first row.": sorted(
            tiles, key=lambda at: (at[0] // group, at[1], at[0] * (1 - at[1] % 2 * 2))
        ),
        "This is a snake of bands: every band goes from its first column to its last.": sorted(
            tiles, key=lambda at: (at[0] // group, at[1] * (1 - at[0] // group % 2 * 2), at[0])
        ),
        "This is the row within the band: add the band's first row.": [
            (row % group, column) for row, column in tiles
        ],
    }
    return {says: order for says, order in results.items() if order != tiles}


def _bands_of(size: int, rows: int, tiles: int, group: int) -> list[Tile]:
    """The order if a whole band had so many tiles."""
    firsts = [(program, program // size * group) for program in range(tiles)]
    return [
        (first + p % size % height, p % size // height)
        for p, first in firsts
        if (height := min(rows - first, group)) > 0
    ]


def whole_bands(rows: int, columns: int, group: int) -> list[Tile]:
    """The order if the last band had as many rows as the others: a mistake."""
    starts = range(0, rows, group)
    return [
        (start + i, column) for start in starts for column in range(columns) for i in range(group)
    ]


def number(rows: int, columns: int, *, down: bool) -> torch.Tensor:
    """Each tile's number (rows, columns), row by row or down the columns."""
    return (
        torch.arange(rows * columns).view(columns, rows).T
        if down
        else (torch.arange(rows * columns).view(rows, columns))
    )


def first_tiles(rows: int, columns: int, group: int, programs: int) -> torch.Tensor:
    """16 for each tile (rows, columns) that the first programs compute in bands, 0 for others."""
    return 16.0 * _done(bands(rows, columns, group)[:programs], rows, columns)


def wrong_first_tiles(
    rows: int, columns: int, group: int, programs: int
) -> dict[str, torch.Tensor]:
    """{sentence: the same} for likely mistakes."""
    by_rows, whole = sorted(bands(rows, columns, group)), whole_bands(rows, columns, group)
    fused = first_tiles(rows, columns, group, programs) * 17 / 16  # with a bias of ones
    return {
        "EPILOGUE is False here: store A B, without bias and GELU.": fused,
        "They went row by row.": 16.0 * _done(by_rows[:programs], rows, columns),
        "The last band may have fewer rows: this skips tiles.": 16.0
        * _done(whole[:programs], rows, columns),
    }


def _done(tiles: Sequence[Tile], rows: int, columns: int) -> torch.Tensor:
    done = torch.zeros(rows, columns)
    for row, column in tiles:
        if row < rows:
            done[row, column] = 1
    return done


def own(function: Callable[..., Any]) -> None:
    """Raise AssertionError if `pipeline` is what draws pipelines."""
    static_names.expect_none(
        "pipeline", function, {"steps_of", "settled"}, "Write a pipeline of your own."
    )


def pipeline(steps: int, stages: int, load_s: float, compute_s: float) -> list[Step]:
    """When each step's load and its product begin: played event by event."""
    events = [(load_s, "load", step) for step in range(min(steps, stages))]
    loads, products = dict.fromkeys(range(min(steps, stages)), 0.0), {}
    arrived: set[int] = set()
    free_s, following = 0.0, 0
    heapq.heapify(events)
    while events:
        now, kind, step = heapq.heappop(events)
        if kind == "load":
            arrived.add(step)
        elif step + stages < steps:
            loads[step + stages] = now
            heapq.heappush(events, (now + load_s, "load", step + stages))
        while following in arrived and following not in products:
            products[following] = max(now, free_s)
            free_s = products[following] + compute_s
            heapq.heappush(events, (free_s, "product", following))
            following += 1
    return [(loads[step], products[step]) for step in range(steps)]


def regret(times_s: np.ndarray, predicted_s: np.ndarray) -> float:
    """The time of the configuration with the best prediction, over the least time."""
    return float(times_s[predicted_s.argmin()] / times_s.min())


def constant_regret(measured: Sequence[tuple[list[dict[str, int]], np.ndarray]]) -> float:
    """The least mean regret of one configuration for all shapes.

    measured: (configurations, their seconds) of each shape.
    """
    tables = [
        dict(zip((str(config) for config in configs), times_s / times_s.min(), strict=True))
        for configs, times_s in measured
    ]
    everywhere = set.intersection(*(set(table) for table in tables))
    return min(_mean([table[config] for table in tables]) for config in everywhere)


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(float(np.mean(np.log(ratios))))


@dataclass(frozen=True)
class Score:
    """How well a model orders the configurations of several shapes."""

    regret: float  # geometric mean
    worst_regret: float
    worst_shape: Shape
    rank: float  # mean rank correlation


def scores(times: Mapping[Shape, np.ndarray], predicted: Mapping[Shape, np.ndarray]) -> Score:
    """The Score of predicted seconds, {shape: seconds by configuration}."""
    regrets = {shape: regret(times[shape], predicted[shape]) for shape in times}
    ranks = [rank_correlation(times[shape], predicted[shape]) for shape in times]
    worst = max(regrets, key=lambda shape: regrets[shape])
    return Score(_mean(list(regrets.values())), regrets[worst], worst, float(np.mean(ranks)))


def corrected(
    features: np.ndarray, model_s: np.ndarray, measured_s: np.ndarray, free_intercept: bool
) -> np.ndarray:
    """A model's seconds, corrected by a ridge regression of the logarithm of its error.

    free_intercept: whether the weight of the column of ones goes without a penalty.
    """
    x = np.column_stack([np.ones(len(features)), features])
    penalty = np.full(x.shape[1], 0.1)
    penalty[0] *= not free_intercept
    error = np.log(measured_s) - np.log(model_s)
    return model_s * np.exp(_fitted(x, error, penalty))


def _fitted(x: np.ndarray, y: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """x w for all rows, with w of a ridge regression of y where it is no NaN."""
    known = np.isfinite(y)
    rows = np.vstack([x[known], np.diag(np.sqrt(penalty))])  # ridge as least squares
    target = np.concatenate([y[known], np.zeros(x.shape[1])])
    return x @ np.linalg.lstsq(rows, target, rcond=None)[0]


def is_coarse(got: Any, want: np.ndarray) -> bool:
    """Whether an answer has the first digits right and not the others, as float32 has."""
    if type(got) is not np.ndarray or got.shape != want.shape or got.dtype.kind != "f":
        return False
    return np.allclose(got, want, rtol=1e-5, atol=0) and not np.allclose(
        got, want, rtol=3e-8, atol=0
    )


def wrongly_corrected(
    features: np.ndarray, model_s: np.ndarray, measured_s: np.ndarray, want: np.ndarray
) -> dict[str, np.ndarray]:
    """{sentence: seconds} of likely mistakes."""
    x = np.column_stack([np.ones(len(features)), features])
    ratio, d = measured_s / model_s, x.shape[1]
    y, penalty = np.log(ratio), np.full(d, 0.1)
    powers = {
        "y is the logarithm of measured / model; here it is the ratio itself.": (
            _fitted(x, ratio, penalty)
        ),
        "y is the natural logarithm, not that to base 2.": _fitted(x, np.log2(ratio), penalty),
        "y is log(measured / model); here the model is missing.": (
            _fitted(x, np.log(measured_s), penalty)
        ),
        "y is log(measured / model), not the difference of both.": (
            _fitted(x, measured_s - model_s, penalty)
        ),
        "The penalty is 0.1 times I; here it is I, as if the factor were 1.": (
            _fitted(x, y, np.ones(d))
        ),
        "The penalty is missing: add 0.1 times I to the product of X with itself.": (
            _fitted(x, y, np.zeros(d))
        ),
        "X begins with a column of ones, which is missing.": _fitted(x[:, 1:], y, penalty[1:]),
    }
    log_correction, known = np.log(want / model_s), np.isfinite(measured_s)
    return {says: model_s * np.exp(power) for says, power in powers.items()} | {
        "NaN came: fit with the rows where measured_s is no NaN.": np.full(len(x), np.nan),
        "Multiply the model by the correction; this adds it.": model_s + want / model_s,
        "This is the model's own prediction: correct it.": model_s,
        "This is the correction alone: multiply the model by it.": want / model_s,
        "This is the correction upside down.": model_s * model_s / want,
        "X w is the logarithm of the correction: multiply by exp(X w).": model_s * log_correction,
        "Fit with what was measured, but correct all, not only those.": want[known],
        "Correct what was measured, too: all follow one formula.": (
            np.where(known, measured_s, want)
        ),
    }


def wrong_logsumexp(
    a: torch.Tensor, b: torch.Tensor, want: torch.Tensor
) -> dict[str, torch.Tensor]:
    """{sentence: logsumexp product} of likely mistakes."""
    row, column = a.amax(1, keepdim=True), b.amax(0)
    bare, one_shift = torch.exp(a) @ torch.exp(b), torch.exp(a - a.max()) @ torch.exp(b - b.max())
    shifted = want - row - column
    return {
        "exp overflows, and underflows: shift first.": bare.log(),
        "Each row and each column needs a shift of its own.": one_shift.log() + a.max() + b.max(),
        "Undo the shifts.": shifted,
        "Undo both shifts; that of b's columns is still in it.": shifted + row,
        "Undo both shifts; that of a's rows is still in it.": shifted + column,
        "To undo a shift, add it.": shifted - row - column,
        "The logarithm is missing.": shifted.exp() + row + column,
        "Take the logarithm of the product, before you undo the shifts.": (
            (shifted.exp() + row + column).log()
        ),
    }


def large_logsumexp(
    rng: np.random.Generator, m: int, k: int, n: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n), float32, and their logsumexp product: sums of a column and a row."""
    row, left, right, column = (torch.from_numpy(rng.uniform(-9, 9, size)) for size in (m, k, k, n))
    a, b = row[:, None] + left, right[:, None] + column
    want = row[:, None] + column + torch.logsumexp(left + right, 0)
    return a.float(), b.float(), want.float()


def expect_room(function: Callable[..., Any], a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise AssertionError if a product of a (M, K) and b (K, N) takes room for M × N × K numbers.

    The operating system counts it (see grader_link.weighed). Half of it is allowed: whoever
    multiplies some rows at a time stays below.
    """
    numbers = a.shape[0] * a.shape[1] * b.shape[1]
    _, took = weighed(function, a, b)
    share = took / (4 * numbers)  # in float32
    expect(
        share < 0.5,
        f"{function.__name__} took room for {max(1, round(share))} × M × N × K numbers, and its "
        "result has M × N. Don't keep a number for each row of a, column of b and k: exp(x + y) is "
        "exp(x) exp(y), and a matmul adds such products as it makes them",
    )


def wrong_splits(a: torch.Tensor, b: torch.Tensor, split: int) -> dict[str, torch.Tensor]:
    """{sentence: C} of likely mistakes of a kernel that adds parts of A B to a C of fives."""
    whole = product(a, b, torch.float64)
    results = {
        "C had other numbers before: add to them, with tl.atomic_add.": whole,
        "Every program adds all of K: each should add a part.": 5 + split * whole,
        "Each program adds one step: go on along K.": 5
        + product(a[:, : 16 * split], b[: 16 * split], torch.float64),
    }
    k, near, summed, overlap = a.shape[1], *torch.zeros(3, *whole.shape, dtype=torch.float64)
    steps = -(-k // 16)
    each = -(-(k // split) // 16) * 16  # elements along K that whole steps take
    for part in range(split):
        start = part * (k // split)
        overlap += product(a[:, start : start + each], b[start : start + each], torch.float64)
        for turn, step in enumerate(range(part, steps, split)):
            first, last = 16 * step, 16 * step + 16
            later = -(-(steps - step) // split)  # steps of this part from this one on
            summed += later * product(a[:, first:last], b[first:last], torch.float64)
            first, last = (
                16 * (part + turn),
                min(16 * (part + turn + 1), k - 16 * turn * (split - 1)),
            )
            near += product(a[:, first:last], b[first:last], torch.float64)
    results |= {
        "A part is whole steps: K // SPLIT is no multiple of BLOCK_K, and parts overlap.": (
            5 + overlap
        ),
        "This adds the sum so far at every step: add it once, after the loop.": 5 + summed,
        "Each part moves by SPLIT * BLOCK_K after a step, not by BLOCK_K.": 5 + near,
    }
    right = 5 + whole
    return {says: c.float() for says, c in results.items() if not torch.allclose(c, right)}


def share_bytes(m: int, n: int, k: int, split: int) -> int:
    """The most bytes that one program of a split product in tiles of 16 × 32 × 16 has to move."""
    rows, columns, steps = min(m, 16), min(n, 32), -(-k // 16)
    return 2 * 16 * -(-steps // split) * (rows + columns) + 4 * rows * columns


def exact(
    a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, ...]:
    """Both in multiples of 1/128, in this dtype: float32 adds up their products exactly.

    So what a mistake rounds to 16 bits afterwards is known to the bit.
    """
    return tuple(((128 * x).round() / 128).to(dtype or x.dtype) for x in (a, b))


def wrong_epilogues(
    x: torch.Tensor, bias: torch.Tensor, steps: int, width: int = 16
) -> dict[str, torch.Tensor]:
    """{sentence: float32 result} of likely mistakes after the product x, float64.

    steps: along K. width: columns of a tile.
    """
    bias = bias.double()
    both = x + bias
    column = torch.arange(len(bias))
    row = torch.arange(len(x))[:, None]
    beside = column // width * width + row % 16  # in tiles of 16 rows
    turned = torch.where(beside < len(bias), bias[beside.clamp(max=len(bias) - 1)], 0.0)
    results = {
        "Column n has bias[n]: here each tile has that of the first columns.": (
            gelu(x + bias[column % width])
        ),
        "The bias goes along a row of C: [None, :], not [:, None].": gelu(x + turned),
        "The inner sum has x³, not x².": both
        * torch.sigmoid(1.5957691 * (both + 0.044715 * both**2)),
        "The factor in the exponent is 1.5957691, twice 0.79788456.": (
            both * torch.sigmoid(0.79788456 * (both + 0.044715 * both**3))
        ),
        "GELU multiplies by x: x / (1 + ...).": gelu(both) / both,
        "This is max(0, x), not GELU.": both.clamp(min=0),
        "Add the bias once, not at every step along K.": gelu(x + steps * bias),
        "First the bias, then GELU.": gelu(x) + bias,
        "GELU is missing.": both,
        "The bias is missing.": gelu(x),
        "Bias and GELU are missing.": x,
        "The exponent has a minus.": -gelu(-both),
        "This is the GELU with erf: use the formula above.": torch.nn.functional.gelu(both),
        "Stay in float32 until the store: this was rounded before GELU.": gelu(both.half()),
        "Stay in float32: this was rounded before the bias.": gelu(x.half().double() + bias),
        "c is float32 here: store in the format of c.": gelu(both).half(),
    }
    if len(x) <= len(bias):
        results["bias is for the columns of C, not for its rows."] = gelu(x + bias[: len(x), None])
    return {says: result.float() for says, result in results.items()}


def wrong_pipelines(
    steps: int, stages: int, load_s: float, compute_s: float
) -> dict[str, list[Step]]:
    """{sentence: timeline} of likely mistakes."""
    case = steps, stages, load_s, compute_s
    want = pipeline(*case)
    results = {
        "Each pair is (load, product), in this order.": [pair[::-1] for pair in want],
        "Say when a load begins; this is when it has arrived.": [
            (load + load_s, product) for load, product in want
        ],
        "These are the ends: say when load and product begin.": [
            (load + load_s, product + compute_s) for load, product in want
        ],
        "A product waits until its own load has arrived.": _played(
            *case, product=lambda arrived, free: free
        ),
        "A product begins at the later of two times, not at their sum.": _played(
            *case, product=lambda arrived, free: arrived + free
        ),
        "A load waits for the product of step i - stages, not for that of step i - 1.": _played(
            *case, back=1
        ),
        "A place is free only when its product has ended.": _played(*case, held_s=0.0),
        "A place is free when its product has ended, not when its load has arrived.": _played(
            *case, by_load=True
        ),
        "This has room for one step more than stages.": pipeline(
            steps, stages + 1, load_s, compute_s
        ),
        "A load needs no other load to end, only a free place.": queued(*case),
        "A product waits for the product before it, too.": unordered(*case),
        "The first loads begin at 0, and nothing else does.": [
            (0.0, max((step + 1) * load_s, 0.0)) for step in range(steps)
        ],
    }
    return {says: timeline for says, timeline in results.items() if timeline != want}


def _played(
    steps: int,
    stages: int,
    load_s: float,
    compute_s: float,
    *,
    product: Callable[[float, float], float] = max,
    back: int | None = None,
    held_s: float | None = None,
    by_load: bool = False,
) -> list[Step]:
    """A pipeline with one mistake.

    product: when it begins, from when its load has arrived and the product before has ended. back:
    which step a load waits for. held_s: how long a place is taken from its product's begin on.
    by_load: a place is free once its load has arrived.
    """
    if held_s is None:
        held_s = compute_s
    if back is None:
        back = stages
    timeline: list[Step] = []
    for step in range(steps):
        earlier = timeline[step - back] if step >= stages else None
        load = 0.0
        if earlier:
            load = earlier[0] + load_s if by_load else earlier[1] + held_s
        timeline.append((load, product(load + load_s, _free(timeline, compute_s))))
    return timeline


def queued(steps: int, stages: int, load_s: float, compute_s: float) -> list[Step]:
    """A pipeline in which only one load is on its way at a time: a mistake."""
    timeline: list[Step] = []
    for step in range(steps):
        place = timeline[step - stages][1] + compute_s if step >= stages else 0.0
        load = max(place, timeline[-1][0] + load_s if timeline else 0.0)
        timeline.append((load, max(load + load_s, _free(timeline, compute_s))))
    return timeline


def unordered(steps: int, stages: int, load_s: float, compute_s: float) -> list[Step]:
    """A pipeline in which products don't wait for each other: a mistake."""
    timeline: list[Step] = []
    for step in range(steps):
        load = timeline[step - stages][1] + compute_s if step >= stages else 0.0
        timeline.append((load, load + load_s))
    return timeline


def _free(timeline: Sequence[Step], compute_s: float) -> float:
    return timeline[-1][1] + compute_s if timeline else 0.0


Values = tuple[int, int, int, int, int, int]  # BLOCK_M, BLOCK_N, BLOCK_K, GROUP, warps, stages
H200 = {"processors": 132, "flops": 800e12, "l2": 10e12, "latency_s": 1.2e-6, "start_s": 2e-6}


def cost_us(
    values: Values,
    shape: Shape,
    *,
    programs: int | None = None,
    together: Callable[..., float] = max,
    other: Mapping[str, float] | None = None,
) -> float:
    """Microseconds by lab 05's cost model. programs: on a multiprocessor, if not as many as fit.

    other: numbers in place of those of H200.
    """
    numbers = {**H200, **(other or {})}
    m, n, k, _, _, stages = values
    tiles = -(-shape[0] // m) * -(-shape[1] // n)
    r = min(_resident(values), -(-tiles // 132)) if programs is None else programs
    product_us = 1e6 * 2 * m * n * k * 132 / numbers["flops"]
    load_us = 1e6 * 2 * (m + n) * k * 132 / numbers["l2"]
    own_us = (1e6 * numbers["latency_s"] + load_us + product_us) / stages
    step_us = together(r * product_us, r * load_us, own_us)
    waves = -(-tiles // (132 * r))
    return waves * (-(-shape[2] // k) * step_us + 1e6 * numbers["start_s"])


def _resident(values: Values) -> int:
    """Programs per multiprocessor: one is added while all fit."""
    m, n, k, _, warps, stages = values
    shared, sums = 2 * stages * k * (m + n) + 1024, m * n // (32 * warps)
    registers, programs = (sums + sums // 2 + 30) * 32 * warps, 0
    while (programs + 1) * shared <= 233_472 and (programs + 1) * registers <= 65_536:
        programs += 1
    return programs


def alone(values: Values, shape: Shape) -> float:
    """The cost if each of the resident programs had a multiprocessor's speed: a mistake."""
    tiles = -(-shape[0] // values[0]) * -(-shape[1] // values[1])
    together = 132 * min(_resident(values), -(-tiles // 132))
    return -(-tiles // together) * cost_us(values, (*values[:2], shape[2]), programs=1)


def crowded(values: Values, shape: Shape) -> float:
    """The cost with all programs that fit, whether or not there are tiles for them: a mistake."""
    return cost_us(values, shape, programs=_resident(values))


def summed(values: Values, shape: Shape) -> float:
    """The cost with the sum of the three times: a mistake."""
    return cost_us(values, shape, together=lambda *times: sum(times))


def wrong_costs(values: Values, shape: Shape, got: Any) -> dict[str, float]:
    """{sentence: microseconds} of likely mistakes. got: the answer's microseconds."""
    m, n, k, _, _, _ = values
    return {
        "R programs share a multiprocessor's speed; this gives it to each.": alone(values, shape),
        "R is no more than there are tiles for each multiprocessor.": crowded(values, shape),
        "The three times overlap: take the longest, not the sum.": summed(values, shape),
        "A wave that is not full takes as long as a full one.": (
            cost_us(values, shape) * shape[0] * shape[1] / (m * n * _places(values, shape))
        ),
        "START_S is paid once per wave, not per step.": cost_us(values, shape)
        + (shape[2] // k - 1) * 1e6 * H200["start_s"],
    } | {
        says: microseconds
        for says, microseconds in _slips(values, shape).items()
        if isinstance(got, (int, float)) and math.isclose(got, microseconds, rel_tol=1e-3)
    }


def _slips(values: Values, shape: Shape) -> dict[str, float]:
    """{sentence: microseconds} of mistakes whose results lie close to each other."""
    m, n, k, _, _, stages = values
    tiles = -(-shape[0] // m) * -(-shape[1] // n)
    changed: dict[str, dict[str, float]] = {
        "A product has 2 m n k FLOPs, at a 132nd of PEAK.": {"flops": 2 * H200["flops"]},
        "A multiprocessor has a 132nd of PEAK, and a product 2 m n k FLOPs.": {
            "flops": 132 * H200["flops"]
        },
        "A number has 16 bits, which are 2 bytes, not 4.": {"l2": H200["l2"] / 2},
        "Two tiles have (m + n) k numbers.": {"l2": H200["l2"] * (m + n) / (m * n)},
        "Loads share L2, not MEMORY.": {"l2": 4.28e12},
        "START_S is missing: each wave takes it once.": {"start_s": 0.0},
        "LATENCY_S is divided by num_stages, too.": {"latency_s": stages * H200["latency_s"]},
    }
    right_us, wave = cost_us(values, shape), 132 * min(_resident(values), -(-tiles // 132))
    return {says: cost_us(values, shape, other=other) for says, other in changed.items()} | {
        "Return seconds; these are microseconds.": 1e6 * right_us,
        "A wave has 132 R programs, not 132.": right_us / -(-tiles // wave) * -(-tiles // 132),
        "The longest of the three times decides, not the shortest.": cost_us(
            values, shape, together=min
        ),
    }


def _places(values: Values, shape: Shape) -> int:
    """Tiles that there is room for in whole waves."""
    tiles = -(-shape[0] // values[0]) * -(-shape[1] // values[1])
    wave = 132 * min(_resident(values), -(-tiles // 132))
    return -(-tiles // wave) * wave


LARGE, SMALL = (128, 256, 64, 8, 8, 4), (64, 64, 64, 8, 4, 3)


def costs(rng: np.random.Generator) -> Iterator[tuple[Values, Shape, float, str]]:
    """(configuration, shape, microseconds, what it is). The lengths of the sums are random."""
    long, short = (64 * int(n) for n in rng.integers([700, 1], [1100, 3]))
    for values, shape, what in [
        (LARGE, (132 * 128, 256, long), "one program per multiprocessor, and products decide"),
        (LARGE, (132 * 128 + 1, 256, long), "one row more than a wave has: a second wave"),
        (LARGE, (132 * 128, 256, short), "a step or two, and the start"),
        (LARGE, (3 * 132 * 128, 256, short), "three short waves, each with its start"),
        (LARGE, (132 * 128, 256, short + 1), "one step more, which is almost empty"),
        (SMALL, (132 * 64, 64, long), "one program per multiprocessor, and its own wait decides"),
        (SMALL, (4 * 132 * 64, 64, long), "four programs per multiprocessor, and loads decide"),
        (SMALL, (200 * 64, 64, long), "two programs on some multiprocessors"),
        (SMALL, (4 * 132 * 64 + 1, 64, long), "one row more than a wave of four programs each"),
        ((128, 128, 64, 8, 8, 1), (132 * 128, 128, long), "one stage"),
        ((128, 128, 64, 1, 8, 2), (132 * 128, 128, long), "two stages, GROUP = 1"),
        (LARGE, (11 * 128 + 1, 11 * 256 + 1, long), "12 × 12 tiles, most of the last ones empty"),
    ]:
        yield values, shape, cost_us(values, shape), what


def expect_a_model(
    cost_model: Callable[..., float], configs: Sequence[dict[str, int]], rng: np.random.Generator
) -> None:
    """Raise AssertionError unless it also orders configurations for shapes that nobody measured.

    What was measured can be looked up.
    """
    for _ in range(3):
        m, n, k = (int(size) for size in 2 ** rng.uniform(8, 13, 3))
        tried = [config for config in configs if _resident(_values(config))]
        predicted = np.array([cost_model(dict(config), (m, n, k)) for config in tried])
        ours = np.array([cost_us(_values(config), (m, n, k)) for config in tried])
        rank = rank_correlation(ours, predicted)
        expect(
            rank >= 0.9,
            f"cost_model for {(m, n, k)}, which nobody has measured: rank correlation {rank:.2f} "
            "with our own model, want 0.9. A table of measured times is no model.",
        )


def _values(config: Mapping[str, int]) -> Values:
    m, n, k, group, warps, stages = config.values()
    return m, n, k, group, warps, stages


def rank_correlation(times_s: np.ndarray, predicted_s: np.ndarray) -> float:
    """Spearman's, over the configurations with a finite prediction; 0 if all are equal."""
    fits = np.isfinite(predicted_s)
    ranks = [_ranks(values[fits]) for values in (times_s, predicted_s)]
    if fits.sum() < 2 or min(np.ptp(each) for each in ranks) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks, and for equal values their mean."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def configurations(rng: np.random.Generator, count: int) -> list[dict[str, int]]:
    """Configurations in which no two numbers can be taken for each other."""
    found = []
    for _ in range(count):
        m, n, k = (int(size) for size in rng.permutation([16, 32, 64, 128, 256])[:3])
        numbers = (
            m,
            n,
            k,
            int(rng.integers(5, 9)),
            int(rng.choice([1, 8])),
            int(rng.choice([2, 4])),
        )
        found.append(dict(zip((*CONSTANTS, "num_warps", "num_stages"), numbers, strict=True)))
    return found


Tried = tuple[str, int, int]  # constants as text, warps, stages
CONSTANTS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP")


def tried(configs: Sequence[Mapping[str, int]]) -> list[Tried]:
    """What an autotuned kernel tries, sorted: (constants, num_warps, num_stages)."""
    return sorted(
        (
            str(sorted((name, config[name]) for name in CONSTANTS)),
            *_beside(config),
        )
        for config in configs
    )


def _beside(config: Mapping[str, int]) -> tuple[int, int]:
    return config["num_warps"], config["num_stages"]


def wrongly_tried(configs: Sequence[Mapping[str, int]]) -> dict[str, list[Tried]]:
    """{sentence: the same} for likely mistakes."""
    return {
        "num_warps and num_stages stand beside the dict: they are no constants of the kernel.": (
            sorted((str(sorted(config.items())), 4, 3) for config in configs)
        ),
        "Triton's defaults, 4 warps and 3 stages, were not replaced.": (
            [(constants, 4, 3) for constants, _, _ in tried(configs)]
        ),
        "num_warps is missing: Triton's default is 4.": (
            [(constants, 4, stages) for constants, _, stages in tried(configs)]
        ),
        "num_stages is missing: Triton's default is 3.": (
            [(constants, warps, 3) for constants, warps, _ in tried(configs)]
        ),
        "num_warps and num_stages are swapped.": (
            [(constants, stages, warps) for constants, warps, stages in tried(configs)]
        ),
        "GROUP is missing: it is a constant of the kernel, too.": sorted(
            (str(sorted((name, config[name]) for name in CONSTANTS[:3])), *_beside(config))
            for config in configs
        ),
    }


def persistent(
    kernel: Any,
    launch: Callable[..., tuple[Sequence[Any], dict[str, Any]]],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    programs: int,
    config: Mapping[str, int],
) -> torch.Tensor:
    """A B, or gelu(A B + bias), by so many programs of a kernel, as its text says."""
    c = torch.full((len(a), b.shape[1]), torch.nan, dtype=a.dtype)
    arguments, options = launch(*_copies(a, b, bias), c, config)
    plain(tiles.count(kernel, (programs,), *arguments, **options))
    return c


def _copies(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """A kernel may store wherever it has a pointer; what is wanted of it is computed from these."""
    return [None if tensor is None else tensor.clone() for tensor in tensors]


def wide(
    kernel: Any,
    launch: Callable[..., tuple[tuple[int], Sequence[Any], dict[str, Any]]],
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    config: Mapping[str, int],
    more: int,
    alike: int,
) -> torch.Tensor:
    """A B, or gelu(A B + bias), by a program for each tile, as the kernel's text says."""
    c = torch.full((len(a), b.shape[1]), torch.nan, dtype=a.dtype)
    programs, arguments, options = launch(*_copies(a, b, bias), c, config, more, alike)
    plain(tiles.count(kernel, programs, *arguments, **options))
    return c


def wrong_wide(a: torch.Tensor, b: torch.Tensor, alike: int) -> dict[str, torch.Tensor]:
    """{sentence: A B in fp16} of likely mistakes, in tiles of 32 + 16 columns and steps of 16."""
    (m, k), whole = a.shape, product(a, b)
    column = torch.arange(b.shape[1])
    starts = torch.arange(m)[:, None] % alike * k % 16
    late = (a * (torch.arange(k) >= starts)).float() @ b.float()
    results = {
        "The columns of MORE are missing.": whole.masked_fill(column % 48 >= 32, torch.nan),
        "k begins after 0: the first numbers of a row are missing.": late,
        "b_more begins at column n + BLOCK_N; these are the tile's first columns once more.": (
            whole[:, column - 32 * (column % 48 >= 32)]
        ),
    }
    return {says: c.half() for says, c in results.items()}


def wrong_wide_epilogues(product: torch.Tensor, bias: torch.Tensor) -> dict[str, torch.Tensor]:
    """{sentence: gelu(A B + bias) in fp16} of likely mistakes, in tiles of 32 + 16 columns."""
    column = torch.arange(len(bias))
    more, want = column % 48 >= 32, gelu(product + bias)
    results = {
        "The columns of MORE have a bias of their own.": gelu(product + bias[column - 32 * more]),
        "The columns of MORE get their bias and GELU, too.": torch.where(more, product, want),
        "GELU is missing.": (product + bias).double(),
        "First the bias, then GELU.": gelu(product) + bias,
    }
    return {says: c.half() for says, c in results.items()}


def sums_otherwise(
    order: Sequence[tuple[int, int]], programs: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(each program's first tile alone, sums that go on from tile to tile) of products of 16."""
    once, summed = torch.zeros(2, 5, 3).half()
    for number, tile in enumerate(order):
        once[tile] = 16 if number < programs else torch.nan
        summed[tile] = 16 * (1 + number // programs)
    return once, summed
