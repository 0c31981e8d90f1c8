"""Expected values of lab 04, and the values that well-known mistakes give.

The softmaxes here are PyTorch's, in float64. What bytes a chain of operations moves is not derived
but observed, operation by operation, while PyTorch executes the chain.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from common.checks import agree, expect, near_miss
from common.checks.launches import plain
from common.figures import memory_drawings
from common.hardware.operation_bytes import bytes_moved
from nogpu.tiles import Report

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
# Allowed, relative: some steps of fp32, one of a format of 16 bits.
ROUNDING = {F32: 2e-5, BF16: 2.0**-7, F16: 2.0**-10}
SUBNORMAL_STEP = {F16: 2.0**-24}  # fp16 has few exponents: small weights are rounded to this
SCALED = {F32: 2e-4, BF16: 2.0**-7}  # of scores in the hundreds
LOGARITHMS = {F32: 1e-3, BF16: 2.0**-7}  # of scores in the thousands, as e^(x - log of the sum)
LEAST = torch.finfo(F32).min  # with which libraries fill what is masked
NOTHING = "All is NaN: either nothing was stored (it was NaN before), or NaN was computed."
DIGITS = (
    "The numbers are nearly right, as if rounded to 16 bits: compute in float32, and round only "
    "in the store."
)
COLUMNS = "These are columns that add up to 1, and rows should: reduce over axis 1."
Mistakes = dict[str, Any]  # {sentence: the value that this mistake gives}


# --- bytes


def eager_bytes(
    eager: Callable[[torch.Tensor], torch.Tensor], rows: int, columns: int, itemsize: int
) -> tuple[int, Mistakes]:
    """What the operations of `eager` move for a matrix of this size, and what mistakes give."""
    moved = bytes_moved(eager, torch.zeros(rows, columns, dtype={4: F32, 2: BF16}[itemsize]))
    matrix, vector = rows * columns * itemsize, rows * itemsize
    return moved, {
        "That counts elements; each takes itemsize bytes.": moved // itemsize,
        "The vectors are missing: two are written, and two are read.": moved - 4 * vector,
        "maximum and total move twice each: a kernel writes it, and a later one reads it.": (
            moved - 2 * vector
        ),
        "One vector moves once here: a kernel writes it, and a later one reads it.": moved - vector,
        "maximum and total have one number per row, not one per column.": (
            moved + 4 * (columns - rows) * itemsize
        ),
        "exp is missing: it reads a matrix and writes one.": moved - 2 * matrix,
        "One matrix is missing: all five kernels read one, and three write one.": moved - matrix,
        "Those are the reads: each kernel also writes its result.": moved - 3 * matrix - 2 * vector,
        "Those are the writes: each kernel also reads its inputs.": moved - 5 * matrix - 2 * vector,
    }


def least_bytes(rows: int, columns: int, itemsize: int) -> tuple[int, Mistakes]:
    """What any softmax moves, and what mistakes give."""
    matrix = torch.empty(rows, columns, dtype={4: F32, 2: BF16}[itemsize])
    return matrix.nbytes + matrix.softmax(1).nbytes, {
        "x is read, and y is written: two transfers.": matrix.nbytes,
        "That counts elements; each takes itemsize bytes.": 2 * matrix.numel(),
        "x needs to be read only once: a row can stay in registers.": 3 * matrix.nbytes,
    }


# --- costs


def expect_requests(report: Report, loads: int, stores: int) -> None:
    """Raise AssertionError if a kernel makes more requests than these, or atomic updates."""
    made = [each.requests for each in (report.loads, report.stores, report.atomics)]
    expect(
        made[0] <= loads and made[1] <= stores and not made[2],
        f"{report.kernel}: {made[0]} loads, {made[1]} stores and {made[2]} atomic updates by "
        f"{report.programs} programs; {loads} loads and {stores} stores will do, each of a whole "
        "block.",
        draw=lambda: draw_accesses(report),
    )


def expect_own_share(report: Report, most: int, what: str) -> None:
    """Raise AssertionError if one program moves more than this many bytes, or calls tl.softmax."""
    plain(report)
    expect_by_hand(report)
    busiest = report.busiest
    longest = (
        f"; load imbalance {report.imbalance:.3g}: a launch lasts as long as its busiest program"
        if report.imbalance > 1
        else ""
    )
    expect(
        busiest.bytes <= most,
        f"{report.kernel}: program {busiest.program[0]} moves {busiest.bytes} bytes, and {most} "
        f"will do: {what}{longest}.",
        draw=lambda: draw_accesses(report),
    )


def expect_two_reads(report: Report, x: torch.Tensor, block: int) -> None:
    """Raise AssertionError if x is read more than twice, y written twice, or a load too wide."""
    plain(report)
    reads, writes = report.loads.bytes / x.nbytes, report.stores.bytes / x.nbytes
    expect(
        reads <= 2 and writes <= 1,
        f"{report.kernel}: x is read {reads:g} times, and y is written {writes:g} times; two reads "
        "and one write will do.",
        draw=lambda: draw_accesses(report),
    )
    _expect_blocks(report, block)


def expect_loss_reads(report: Report, x: torch.Tensor, block: int) -> None:
    """Raise AssertionError if cross_entropy reads x more than twice, or writes more than once."""
    plain(report)
    loaded, stored = (costs.elements for costs in (report.array("x").loads, report.stores))
    expect(
        loaded <= 2 * x.numel() + len(x) and stored <= x.numel() + len(x),
        f"{report.kernel}: {loaded} scores are loaded and {stored} numbers stored, for {x.numel()} "
        f"scores in {len(x)} rows; two reads and one write will do.",
        draw=lambda: draw_accesses(report),
    )
    _expect_blocks(report, block)


def _expect_blocks(report: Report, block: int) -> None:
    loads = report.array("x").loads
    lanes = (loads.elements + loads.masked) / max(1, loads.requests)
    expect(
        lanes <= block,
        f"{report.kernel}: a load of x takes {lanes:g} elements, and a block has {block}: a row "
        "need not fit into the registers.",
    )


def expect_only_visible(report: Report, want: torch.Tensor) -> None:
    """Raise AssertionError if hidden scores are loaded, or elements stored twice."""
    plain(report)
    loaded, visible = report.loads.elements, int((want > 0).sum())
    expect(
        loaded <= visible,
        f"{report.kernel}: {loaded} scores are loaded, and only {visible} are visible.",
        draw=lambda: draw_accesses(report),
    )
    stored = report.stores.elements
    expect(stored <= want.numel(), f"{report.kernel}: {stored} stores for {want.numel()} elements.")


def expect_whole_tiles(report: Report, x: torch.Tensor, many: int) -> None:
    """Raise AssertionError unless each sector is loaded once, in one load per program."""
    sectors, least = report.loads.sectors, x.nbytes // 32
    shape = " × ".join(map(str, x.shape))
    expect(
        sectors <= least,
        f"{report.kernel}: {sectors} sectors are loaded for {shape} floats, {many} rows per "
        f"program; at once, neighbouring rows need {least}.",
        draw=lambda: draw_accesses(report),
    )
    expect_requests(report, report.programs, report.programs)
    expect_own_share(report, 2 * x[:many].nbytes, f"its own {many} rows")


def draw_accesses(report: Report) -> None:
    """Draw which program loads which element of the first array, or of the first that is."""
    for name in report.arrays:
        if report.array(name).loads.elements:
            report.draw(name)
            return


# --- the first kernel


def differences(x: torch.Tensor, block: int) -> tuple[torch.Tensor, Mistakes]:
    """Each element minus the one before it, and what mistakes give."""
    want = torch.diff(x, prepend=x.new_zeros(1))
    first_block = torch.full_like(x, torch.nan)
    first_block[:block] = want[:block]
    own = want.clone()
    own[::block] = x[::block]
    around = x - x.roll(1)
    zero, unstored, near = want.clone(), want.clone(), torch.full_like(x, torch.nan)
    zero[0], unstored[0] = 0, torch.nan
    near[: block + -(-len(x) // block) - 1] = want[: block + -(-len(x) // block) - 1]
    return want, {
        "Every program did the first block: where does program_id come in?": first_block,
        "Program p begins with element p * BLOCK, not with element p.": near,
        "out[0] is x[0], and nothing was stored there.": unstored,
        "out[i] is x[i] - x[i - 1]; this is x[i + 1] - x[i].": torch.diff(x, append=x.new_zeros(1)),
        "The first element of a block has one before it, in the block of the program before.": own,
        "The first element has none before it: take 0 for that one.": around,
        "out[0] is x[0] - 0.": zero,
        "Subtract the element before, not from it.": -want,
        "That adds the element before.": 2 * x - want,
    }


# --- softmaxes


def random_rows(
    rng: np.random.Generator, rows: int, columns: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random rows out of a wider matrix, whose stride is not the number of columns; an empty y."""
    wide = torch.from_numpy(3 * rng.standard_normal((rows, columns + 2)) - 1).to(dtype)
    return wide[:, :columns], torch.full((rows, columns), torch.nan, dtype=dtype)


def softmax(x: torch.Tensor, block: int) -> tuple[torch.Tensor, Mistakes]:
    """Softmax of each row in x's format, and what mistakes give in a block of this width."""
    exact = x.double()
    numerator = (exact - exact.amax(1, keepdim=True)).exp()
    padded = F.pad(exact, (0, -x.shape[1] % block)).softmax(1)[:, : x.shape[1]]
    unstrided = x.as_strided(x.shape, (x.shape[1], 1)).double()
    whole = exact.flatten().softmax(0).view(x.shape)
    first_row = exact.softmax(1)
    first_row[1:] = torch.nan
    outside = exact.exp() - exact.amax(1, keepdim=True)
    lanes = outside.sum(1, keepdim=True) - exact.amax(1, keepdim=True) * (-x.shape[1] % block)
    wrong = {
        "A masked lane must not count: e^0 is 1.": padded,
        "Rows of x are x_stride elements apart, not columns.": unstrided.softmax(1),
        "Row p of x begins at x + p * x_stride, not at x + p.": (
            x.as_strided(x.shape, (1, 1)).double().softmax(1)
        ),
        "Only row 0 was stored: where does program_id come in?": first_row,
        "Subtract the maximum inside of exp: e^(x - m), not e^x - m.": outside / lanes,
        "Divide by the sum of the row.": numerator,
        "Each row has its own sum: reduce over its axis only.": whole,
        COLUMNS: exact.softmax(0),
    }
    return exact.softmax(1).to(x.dtype), {text: value.to(x.dtype) for text, value in wrong.items()}


def softmax_in_blocks(x: torch.Tensor, block: int) -> tuple[torch.Tensor, Mistakes]:
    """Softmax of each row, and what mistakes give in blocks of this width."""
    want, mistakes = softmax(x, block)
    exact = x.double()
    shifted = (exact - exact.amax(1, keepdim=True)).exp()
    total, whole = shifted.sum(1, keepdim=True), x.shape[1] // block * block
    first = (x.shape[1] - 1) // block * block  # of the last block
    short = torch.full_like(exact, torch.nan)
    short[:, :whole] = exact[:, :whole].softmax(1)
    wrong = {
        "Multiply the old sum by e^(old - new).": _unscaled(x, block),
        "The second pass subtracts the maximum, too: e^(x - m) / s.": exact.exp() / total,
        "Divide by the sum; this multiplies by it.": shifted * total,
        "This divides by the sum of the last block alone: add up the sums of all blocks.": (
            shifted / shifted[:, first:].sum(1, keepdim=True)
        ),
        "The last block, which is not full, is missing.": short,
    }
    more = {text: value.to(x.dtype) for text, value in wrong.items()}
    if block > x.shape[1]:
        more["-inf - (-inf) is NaN: some lanes see nothing but -inf."] = torch.full_like(
            x, torch.nan
        )
    return want, mistakes | more


def _unscaled(x: torch.Tensor, block: int) -> torch.Tensor:
    """Softmax in blocks, but the sum so far is never multiplied when the maximum moves."""
    exact = x.double()
    padded = F.pad(exact, (0, -x.shape[1] % block), value=-torch.inf)
    parts = padded.unflatten(1, (-1, block))
    total = (parts - parts.amax(2, keepdim=True).cummax(1).values).exp().sum((1, 2))
    return ((exact - exact.amax(1, keepdim=True)).exp() / total[:, None]).to(x.dtype)


def hard_rows(rng: np.random.Generator, columns: int) -> tuple[torch.Tensor, list[str]]:
    """Rows of fp32 that break a careless softmax, and what is special about each."""
    noise = torch.from_numpy(rng.standard_normal((12, columns))).float()
    ramp = torch.linspace(0, 1, columns)
    masked = noise[3].clone()
    masked[columns // 8 : -columns // 4] = -torch.inf
    rows = {
        "rises from 0 to 8000": 8000 * ramp,
        "lies around 10,000": 1e4 + 3 * noise[1],
        "is -10,000 everywhere": torch.full((columns,), -1e4),
        "is -inf in part": masked,
        "lies around -200": noise[4] - 200,
        "lies around -2,000": noise[5] - 2000,
        "falls from 90 to -90": 90 - 180 * ramp,
        "is torch.finfo(torch.float32).min everywhere": torch.full((columns,), LEAST),
        "is a single number among -inf": torch.where(ramp == 1, noise[7], -torch.inf),
        "begins with a half of -inf": torch.where(ramp < 0.5, -torch.inf, noise[8]),
        "is -inf everywhere": torch.full((columns,), -torch.inf),
    }
    return torch.stack(list(rows.values())), list(rows)


def softmax_of_tiles(x: torch.Tensor, many: int, block: int) -> tuple[torch.Tensor, Mistakes]:
    """Softmax of each row, and what mistakes give in tiles of this many rows."""
    want, mistakes = softmax(x, block)
    parts = x.float().split(many)
    shared = torch.cat([(part - part.max()).exp() for part in parts])
    shared /= shared.sum(1, keepdim=True)
    powers = [(part - part.amax(1, keepdim=True)).exp() for part in parts]
    missing = [torch.nan if len(part) < many else 0.0 for part in parts]  # rows of -inf
    one_sum = torch.cat([p / (p.sum() + nan) for p, nan in zip(powers, missing, strict=True)])
    by_column = torch.cat([part.double().softmax(0) for part in parts])
    missed, begun = torch.full_like(x, torch.nan), -(-len(x) // many) - 1 + many
    missed[:begun] = want[:begun]
    by_sums = torch.cat([p / (p.sum(0) + nan) for p, nan in zip(powers, missing, strict=True)])
    return want, mistakes | {
        "Program p begins with row p * ROWS, not with row p.": missed,
        "The sum goes along a row, over axis 1, as the maximum does.": by_sums.to(x.dtype),
        "Each row has its own maximum: reduce over axis 1 only.": shared.to(x.dtype),
        "Each row has its own sum: reduce over axis 1 only.": one_sum.to(x.dtype),
        COLUMNS: by_column.to(x.dtype),
    }


def row_sums(x: torch.Tensor, start: int, columns: int, rows: int) -> tuple[torch.Tensor, Mistakes]:
    """The sums of rows that lie behind each other in x from `start` on, and what mistakes give."""

    def sums(down: int, up: int, first: int = start) -> torch.Tensor:
        """Sums from a multiple of `down` on, or from the row's own begin, to a multiple of `up`."""
        begins = [first + row * columns for row in range(rows)]
        parts = [
            x[begin // down * down : -(-(begin + columns) // up) * up].double() for begin in begins
        ]
        return torch.stack([part.sum() for part in parts]).float()

    begins = [start + row * columns for row in range(rows)]
    late = [x[-(-begin // 4) * 4 : begin + columns].sum() for begin in begins]
    ends = [begin // 4 * 4 + -(-columns // 4) * 4 for begin in begins]
    early = [x[b : min(b + columns, end)].sum() for b, end in zip(begins, ends, strict=True)]
    return sums(1, 1), {
        "Round the row's begin down to a multiple of four, not up.": torch.stack(late),
        "Round begin + columns up, not columns: these rows end too early.": torch.stack(early),
        "A row's first 16 bytes may hold elements of the row before: leave them out.": sums(4, 1),
        "A row's last 16 bytes may hold elements of the next row: leave them out.": sums(1, 4),
        "Both ends of these sums hold elements of other rows: leave them out.": sums(4, 4),
        "The first row begins at element `start`.": sums(1, 1, 0),
    }


def expect_fours(report: Report, columns: int, start: int) -> None:
    """Raise AssertionError if row_sums does not load 16 bytes per thread, or loads too much."""
    plain(report)
    begins = [start + row * columns for row in range(report.programs)]
    most = sum(-(-(begin + columns) // 4) * 4 - begin // 4 * 4 for begin in begins) * 4
    case = f"{report.kernel}: {report.programs} rows of {columns} elements from {start} on"
    expect(
        report.loads.bytes <= most,
        f"{case}: {report.loads.bytes:,} bytes loaded; the rows, with the rest of their first and "
        f"last 16 bytes, are {most:,}.",
    )
    made = report.compiled.loads.requests + report.compiled.copies.requests
    enough = report.programs * (math.ceil(columns / 128) + 8)
    expect(
        made <= enough,
        f"{case}: the compiled kernel's warps make {made} load requests, and {enough} will do, of "
        "16 bytes per thread. Do the first address, and the limits of the load's mask, lie at "
        "multiples of four elements? Write n // 4 * 4, not n - n % 4 or n & -4: in the product, "
        "the compiler sees the four.",
    )


def agree_drawn(
    got: torch.Tensor,
    want: torch.Tensor,
    case: str,
    rtol: float,
    atol: float = 0.0,
    mistakes: Mistakes | None = None,
) -> None:
    """What `agree` does; in a notebook, a difference is drawn."""
    wrong = (mistakes or {}) | {NOTHING: torch.full_like(want, torch.nan)}
    if want.dtype == F32:
        wrong |= near_miss(got, want, DIGITS, 0.003)
    agree(
        got,
        want,
        case,
        rtol=rtol,
        atol=max(atol, SUBNORMAL_STEP.get(want.dtype, 0.0)),
        mistakes=wrong,
        draw=lambda: memory_drawings.compare(got, want, title=case),
    )


def expect_by_hand(report: Report) -> None:
    """Raise AssertionError if a kernel calls Triton's own softmax."""
    expect(
        "softmax" not in report.operations,
        f"{report.kernel} calls tl.softmax. Write it with tl.max, tl.exp and tl.sum: that is the "
        "exercise.",
    )


def agree_row_by_row(
    name: str, got: torch.Tensor, x: torch.Tensor, kinds: list[str], padded: int = 0, block: int = 0
) -> None:
    """Compare the softmax of each hard row; a row of nothing but -inf may be NaN or 0.

    x: as it was before the kernel ran.
    padded: how many lanes of a row's block are masked off. block: of an online softmax.
    """
    want = x.double().softmax(1).float()
    for row, kind in enumerate(kinds):
        if (x[row] == -torch.inf).all() and (got[row] == 0).all():
            continue
        agree_drawn(
            got[row],
            want[row],
            f"{name}: y of a row that {kind}",
            rtol=2e-3,  # 10,000 times log2(e) is rounded in fp32
            atol=1e-30,
            mistakes=_mistakes_of(x[row], want[row], padded, block),
        )


TOO_LOW = (
    "This row's numbers, times log2(e), are below the least of float32. Subtract the maximum "
    "first, then multiply."
)


def _mistakes_of(x: torch.Tensor, want: torch.Tensor, padded: int, block: int) -> Mistakes:
    """What mistakes give for one hard row."""
    none, zero = torch.full_like(want, torch.nan), torch.zeros_like(want)
    finite = (x > -torch.inf).any()
    mistakes: Mistakes = {}
    if block and finite and (x[:block] == -torch.inf).all():
        mistakes["-inf - (-inf) is NaN: the first block is all -inf."] = none
    elif block and finite and (x == -torch.inf).any():
        mistakes["-inf - (-inf) is NaN: some lanes see nothing but -inf."] = none
    elif block and x.max() < -100:
        begin = "The maximum begins at -inf: any finite start is above some row."
        mistakes[begin] = none
        mistakes[f"{begin} Then the sum is 0."] = zero
    if x.max() == LEAST and padded:
        masked = "A masked lane must be -inf: any other number may be larger than the row's."
        count = len(x)
        mistakes |= {masked: torch.full_like(want, 1 / (count + padded)), f"{masked} ": zero}
    if x.max() == LEAST:
        mistakes["m + log(s) rounds the logarithm off: keep maximum and sum apart."] = zero + 1
        if not block:  # a row whose maximum is not subtracted fails before
            mistakes[TOO_LOW] = none
    naive = x.exp() / x.exp().sum()
    far = "e^1000 overflows and e^-1000 is 0: first subtract the row's own maximum."
    filled = F.pad(x, (0, padded), value=-1e4).softmax(0)[: len(x)]
    return mistakes | {far: naive, "A masked lane must be -inf.": filled}


# --- pairs (m, s)

PAIRS = [
    ((2.0, 1.5), (3.0, 2.0)),
    ((3.0, 2.0), (2.0, 1.5)),
    ((5.0, 1.25), (5.0, 3.0)),
    ((-math.inf, 0.0), (1.0, 2.0)),
    ((1.0, 2.0), (-math.inf, 0.0)),
    ((-math.inf, 0.0), (-math.inf, 0.0)),
    ((-200.0, 3.0), (-math.inf, 0.0)),
    ((-math.inf, 0.0), (-1e30, 1.0)),
    ((-3000.0, 2.0), (-3001.0, 2.5)),
    ((800.0, 1.0), (-800.0, 7.0)),
    ((-800.0, 7.0), (800.0, 1.0)),
    ((1000.5, 4.0), (1000.0, 4.0)),
]


def power(x: float) -> float:
    """e^x, or infinity."""
    return math.exp(x) if x < 700 else math.inf


def merge(
    left: tuple[float, float], right: tuple[float, float]
) -> tuple[tuple[float, float], Mistakes]:
    """Maximum and sum of two parts together, by logarithms; and what mistakes give."""
    (m, s), (n, t) = left, right
    top = max(m, n)
    if top == -math.inf:
        none = (-math.inf, math.nan)
        return (top, 0.0), {
            "-inf - (-inf) is NaN: both parts are empty, and so is the result.": none,
            "-inf - (-inf) is NaN, and so is e to it.": (math.nan, math.nan),
        }
    logs = [value + math.log(count) if count else -math.inf for value, count in (left, right)]
    total = math.exp(float(np.logaddexp.reduce(logs)) - top)
    inverted = sum(count * power(top - value) if count else 0.0 for value, count in (left, right))
    return (top, total), {
        "Each sum stands for e^(x - m) with its part's own m: multiply it by e^(m - the new m).": (
            top,
            s + t,
        ),
        "The factor is e^(old - new), which is at most 1, not e^(new - old).": (top, inverted),
        "Each sum is multiplied by the factor of its own part; these are swapped.": (
            top,
            s * power(n - top) + t * power(m - top),
        ),
        "Rescale the sum of the part with the smaller maximum, not the other one.": (
            top,
            (s + t * power(n - m)) if m < n else (s * power(m - n) + t),
        ),
        "The maximum is the larger of the two.": (min(m, n), total),
        "Both parts count, also the one with the smaller maximum: add the two rescaled sums.": (
            (top, s if m >= n else t)
        ),
        "The pair is (m, s), in this order.": (total, top),
        "s is the sum itself, not m plus its logarithm.": (top, top + math.log(total)),
        "The base of the powers is e, not 2.": (
            top,
            s * 2.0 ** max(m - top, -1000) + t * 2.0 ** max(n - top, -1000),
        ),
    }


def rows_in_parts(
    rng: np.random.Generator,
) -> list[tuple[str, list[tuple[float, float]], tuple[float, float]]]:
    """(what is special about a row, the pairs of its parts, the pair of the whole row)."""
    noise, slope = rng.standard_normal(60), np.linspace(-40, 40, 60)
    nothing = np.full(60, -np.inf)
    rows = {
        "rises": noise + slope,
        "falls": noise - slope,
        "lies around -2,000": noise - 2000,
        "begins with -inf": np.where(np.arange(60) < 25, -np.inf, noise),
        "ends with -inf": np.where(np.arange(60) > 30, -np.inf, noise + slope),
        "is -inf everywhere": nothing,
    }
    cuts = [0, 1, *sorted(rng.integers(2, 58, 4).tolist()), 59, 60]
    return [
        (title, [_pair_of(row[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)], _pair_of(row))
        for title, row in rows.items()
    ]


def _pair_of(values: np.ndarray) -> tuple[float, float]:
    if not np.isfinite(values).any():
        return -math.inf, 0.0
    return float(values.max()), float(np.exp(values - values.max()).sum())


def pair(value: Any) -> Any:
    """Two numbers as a tuple of floats, whatever holds them; any other value as it is."""
    if isinstance(value, (tuple, list, np.ndarray, torch.Tensor)) and len(value) == 2:
        numbers = [item.item() if hasattr(item, "item") else item for item in value]
        if all(isinstance(number, (int, float)) for number in numbers):
            return tuple(float(number) for number in numbers)
    return value


# --- the causal mask


def causal(x: torch.Tensor, scale: float, block: int) -> tuple[torch.Tensor, Mistakes]:
    """Causal softmax of scale * x, (heads, queries, keys), and what mistakes give in blocks."""
    queries, keys = x.shape[1:]
    exact, seen = x.double(), torch.ones(queries, keys).tril(keys - queries).bool()
    scaled, none = exact * scale, torch.full_like(exact, torch.nan)
    wrong: Mistakes = {
        "Fill with -inf before the softmax, not with 0 after it.": scaled.softmax(2) * seen,
        "Masked scores must be -inf: a score of 0 counts.": (scaled * seen).softmax(2) * seen,
        "Multiply by the scale, don't divide by it.": (
            (exact / scale).masked_fill(~seen, -torch.inf).softmax(2)
        ),
        "The scale is missing.": exact.masked_fill(~seen, -torch.inf).softmax(2),
        "The last query sees all keys: there are keys - queries more.": (
            scaled.masked_fill(~seen.tril(), -torch.inf).softmax(2)
        ),
        "The scale belongs to the scores, not to the weights.": (
            scale * exact.masked_fill(~seen, -torch.inf).softmax(2)
        ),
        "Where a query sees nothing, y is 0: store that, too.": (
            scaled.masked_fill(~seen, -torch.inf).softmax(2).masked_fill(~seen, torch.nan)
        ),
        "The maximum is that of the scaled scores: a negative scale turns the order.": (
            _late_scale(x.float(), scale, seen)
        ),
        "Subtract the maximum of what the query sees.": _no_maximum(x.float(), scale, seen),
    }
    if scale < 0:
        wrong["-inf times a negative scale is inf: mask after scaling."] = none
    for says, sees in _wrong_queries(len(x), queries, keys).items():
        wrong[says] = scaled.masked_fill(~sees, -torch.inf).softmax(2)
    for space, fill in enumerate((-1000.0, -1e4, -1e9)):
        hidden = scaled.masked_fill(~seen, fill)
        padded = F.pad(hidden, (0, block - keys), value=fill).softmax(2)[..., :keys]
        wrong[f"Masked scores must be -inf: any other number can be the largest.{space * ' '}"] = (
            padded
        )
    want = scaled.masked_fill(~seen, -torch.inf).softmax(2)
    return want.to(x.dtype), {text: value.to(x.dtype) for text, value in wrong.items()}


def _wrong_queries(heads: int, queries: int, keys: int) -> Mistakes:
    """{sentence: which key (heads, queries, keys) a query sees} of likely mistakes."""
    head, query = torch.arange(heads)[:, None, None], torch.arange(queries)[:, None]
    key, more = torch.arange(keys), keys - queries
    return {
        "A query sees its own key, too: key <= ..., not key < ....": key + 0 * head < query + more,
        "Query i sees keys up to i + keys - queries; this shows one more.": (
            key + 0 * head <= query + more + 1
        ),
        "Row r is query r % queries; r // queries is its head.": key + 0 * query <= head + more,
        "Heads lie below each other: row r is query r % queries.": (
            key <= head * queries + query + more
        ),
        "A query sees what came before it; this shows what comes after it.": (
            key + 0 * head >= query + more
        ),
    }


def _late_scale(x: torch.Tensor, scale: float, seen: torch.Tensor) -> torch.Tensor:
    top = x.masked_fill(~seen, -torch.inf).amax(2, keepdim=True)
    weight = torch.where(seen, ((x - top) * scale).exp(), 0.0)
    return weight / weight.sum(2, keepdim=True)


def _no_maximum(x: torch.Tensor, scale: float, seen: torch.Tensor) -> torch.Tensor:
    weight = torch.where(seen, (x * scale).exp(), 0.0)
    return weight / weight.sum(2, keepdim=True)


# --- gradients


def softmax_gradient(y: torch.Tensor, given: torch.Tensor) -> tuple[torch.Tensor, Mistakes]:
    """Gradient of x from y = softmax(x) and y's gradient, and what mistakes give."""
    weight, wide = y.double(), given.double()
    # pyrefly: ignore[missing-attribute]
    want = torch._softmax_backward_data(wide, weight, 1, wide.dtype)
    wrong = {
        "The row's sum is missing: all outputs depend on x_j.": weight * wide,
        "That is the Jacobian's diagonal only.": weight * (1 - weight) * wide,
        "Sum y times its gradient, not the gradient.": weight * (wide - wide.sum(1, keepdim=True)),
        "The sign is wrong: x_j raises y_j, and lowers the other outputs.": -want,
        "Subtract the row's sum from y's gradient; this adds it.": (
            weight * (wide + (weight * wide).sum(1, keepdim=True))
        ),
        "Both terms are multiplied by the element's own y, also the row's sum.": (
            weight * wide - (weight * wide).sum(1, keepdim=True)
        ),
        "Each element's difference is multiplied by its own y.": (
            wide - (weight * wide).sum(1, keepdim=True)
        ),
        "Take the sum of y times its gradient; don't divide it by the columns.": (
            weight * (wide - (weight * wide).mean(1, keepdim=True))
        ),
    }
    return want.to(y.dtype), {text: value.to(y.dtype) for text, value in wrong.items()}


LOSSES = [  # rows, columns, block, dtype, around which number, how far from it
    (3, 5, 8, F32, 0, 3),
    (4, 99, 16, F32, -2000, 3),
    (3, 64, 16, BF16, 0, 3),
    (2, 40, 16, F32, 2000, 3),
    (9, 20, 8, F32, 0, 400),
    (1, 1, 1, F32, 0, 3),
]


def cross_entropy(
    x: torch.Tensor, target: torch.Tensor
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[Mistakes, Mistakes]]:
    """Loss of each row and its gradient, and what mistakes give for both."""
    exact = x.double().requires_grad_()
    loss = F.cross_entropy(exact, target, reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), exact)
    loss, exact = loss.detach(), exact.detach()
    of_loss = _wrong_losses(exact, target, loss)
    of_gradient = _wrong_gradients(exact.softmax(1), target, gradient)
    return (loss.float(), gradient.to(x.dtype)), (
        {text: value.float() for text, value in of_loss.items()},
        {text: value.to(x.dtype) for text, value in of_gradient.items()},
    )


def _wrong_losses(exact: torch.Tensor, target: torch.Tensor, loss: torch.Tensor) -> Mistakes:
    """{sentence: the loss of each row} of likely mistakes."""
    top, chosen = exact.amax(1), exact.gather(1, target[:, None])[:, 0]
    logarithm = loss + chosen  # of the sum
    tiny = exact.softmax(1).float().gather(1, target[:, None])[:, 0].log()
    return {
        "That is the logarithm of the sum; the target's score is subtracted from it.": logarithm,
        "Row p has a target of its own: target + p.": logarithm - exact[:, target[0]],
        "The target's score is in row p: x + p * columns + target.": logarithm - exact[0, target],
        "Each row has a loss of its own: don't divide by the rows.": loss / len(exact),
        "e^(x - m) of the target may be 0 in float32: subtract before you take the logarithm.": (
            -tiny
        ),
        "The sum was taken of e^(x - m): add m to its logarithm.": loss - top,
        "The loss is -log(softmax), so it is positive.": -loss,
        "The loss takes the natural logarithm, not that to base 2.": (
            top - chosen + (logarithm - top) / math.log(2)
        ),
        "The loss of a row is no mean: don't divide it by the columns.": loss / exact.shape[1],
    }


def _wrong_gradients(
    weight: torch.Tensor, target: torch.Tensor, gradient: torch.Tensor
) -> Mistakes:
    """{sentence: the gradient} of likely mistakes. weight: of each score, by softmax."""
    return {
        "Subtract 1 at the target.": weight,
        "Subtract 1 at the target alone.": weight - 1,
        "Subtract 1 at the target, not the target's own weight.": weight.scatter(
            1, target[:, None], 0.0
        ),
        "The sign is wrong: a larger score of the target lowers the loss.": -gradient,
        "At the target, the gradient is its weight minus 1, not -1.": (
            weight.scatter(1, target[:, None], -1.0)
        ),
        "Each row's gradient is that of its own loss: don't divide by the rows.": gradient
        / len(weight),
    }
