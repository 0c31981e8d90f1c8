"""Matrix products of any shape on a GPU: a model chooses tiles and parts, a kernel computes them.

Import it after device.prepare_triton(): it imports Triton. Lab 05 builds a kernel for products with
many tiles; these are the others. Where tiles are few, they become smaller, or several programs
share one: each sums a part of K, and a second kernel adds the parts (split-K). Rows that begin
anywhere are copied to where the copy engine (TMA) can fetch them, or loaded number by number.
"""

# ruff: noqa: ANN001, ANN201

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch.nn import functional
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from common.hardware import device
from common.hardware.gpu_limits import LIMITS

PROCESSORS, SHARED_BYTES = 132, 232_448  # of an H200, as the rates below
PEAK, MEMORY, L2, COPY = 700e12, 4.28e12, 7e12, 2e12  # FLOP/s and bytes/s; COPY: of odd rows
LATENCY_S, START_S, SUM_S = 1.2e-6, 2e-6, 1.5e-6
ALIGNED = 16  # bytes: where rows begin that the copy engine fetches
AS_IS, TURNED, BY_NUMBER = 1, 2, 0  # how a kernel gets an operand's tiles


class Plan(NamedTuple):
    """How a product is computed: tiles of C, steps along K, and parts of K."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    parts: int
    by_number: bool  # operands that TMA can't fetch are loaded number by number, not copied before
    rest: int = 0  # columns of C that a tile has beside block_n: 128 + 64 are 192
    turned: bool = False  # C's transpose is computed, as B's times A's


class Shape(NamedTuple):
    """M, N, K, and the bytes of operands that the copy engine can't fetch as they are."""

    m: int
    n: int
    k: int
    odd_bytes: int = 0


TILES = (  # BLOCK_M, BLOCK_N, BLOCK_K, warps, rest
    *((128, 256, 64, 8, 0), (128, 128, 64, 8, 64), (128, 128, 64, 8, 32), (128, 128, 64, 8, 16)),
    *((128, 128, 64, 8, 0), (128, 128, 64, 4, 0), (64, 256, 64, 4, 0), (64, 128, 64, 4, 64)),
    *((128, 64, 64, 4, 0), (64, 128, 64, 4, 0), (64, 64, 64, 4, 0), (64, 64, 128, 4, 0)),
    *((128, 32, 64, 4, 0), (128, 32, 128, 4, 0), (64, 32, 64, 4, 0), (64, 32, 128, 4, 0)),
    (64, 16, 128, 4, 0),
)


def plans(shape: Shape, shared_bytes: int = SHARED_BYTES) -> Iterator[Plan]:
    """The plans for a shape that fit into this shared memory, once or twice."""
    for (block_m, block_n, block_k, warps, rest), turned in itertools.product(TILES, (False, True)):
        pair_bytes = 2 * (block_m + block_n + rest) * block_k
        steps = math.ceil(shape.k / block_k)
        once, twice = (
            min(6, (room - 4096) // pair_bytes) for room in (shared_bytes, shared_bytes // 2)
        )
        small = block_m * block_n <= 64 * 128  # else registers don't suffice for addresses
        for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32):
            if parts > 1 and (steps < 2 * parts or block_m * block_n < 64 * 64):
                break
            for stages in {once, twice}:
                for by_number in (False, True)[: 1 + (small and shape.odd_bytes > 0 and not rest)]:
                    if stages >= 2:
                        yield Plan(
                            *(block_m, block_n, block_k, warps, stages, parts, by_number),
                            rest=rest, turned=turned,
                        )  # fmt: skip


def predicted_s(plan: Plan, shape: Shape, processors: int = PROCESSORS) -> float:
    """Seconds that a product is predicted to take: lab 05's cost model, with parts and memory."""
    m, n, k, _, stages, parts, by_number, rest, turned = plan
    high, wide = (shape.n, shape.m) if turned else shape[:2]
    n += rest
    tiles = math.ceil(high / m) * math.ceil(wide / n)
    steps = math.ceil(math.ceil(shape.k / k) / parts)
    pair_bytes = 2 * (m + n) * k
    resident = max(
        1, min(SHARED_BYTES // (stages * pair_bytes + 1024), 65_536 // (m * n * 3 // 2), 2)
    )
    together = max(1, min(resident, math.ceil(tiles * parts / processors)))
    waves = math.ceil(tiles * parts / (processors * together))
    product_s = 2 * m * max(n, 32) * k / (PEAK / PROCESSORS)
    load_s = pair_bytes / (L2 / PROCESSORS) * (3 if by_number else 1)
    own_s = (LATENCY_S + load_s + product_s) / (1 if by_number else stages)
    step_s = max(together * product_s, together * load_s, own_s)
    moved = 2 * (shape.m * shape.k + shape.k * shape.n + shape.m * shape.n)
    time_s = max(waves * steps * step_s, moved / MEMORY) + waves * START_S
    if parts > 1:
        time_s += SUM_S + 4 * shape.m * shape.n * (2 * parts + 0.5) / L2
    if shape.odd_bytes and not by_number:
        time_s += SUM_S + 2 * shape.odd_bytes / COPY
    return time_s


@functools.lru_cache(4096)
def plan_for(
    shape: Shape, processors: int = PROCESSORS, shared_bytes: int = SHARED_BYTES
) -> tuple[Plan, float]:
    """The plan that is predicted to be fastest, and its seconds."""
    best, *_ = ranked(shape, processors, shared_bytes)
    return best, predicted_s(best, shape, processors)


@functools.lru_cache(4096)
def ranked(
    shape: Shape, processors: int = PROCESSORS, shared_bytes: int = SHARED_BYTES
) -> list[Plan]:
    """All plans, from the one that is predicted to be fastest."""
    return sorted(plans(shape, shared_bytes), key=lambda plan: predicted_s(plan, shape, processors))


def different(best: list[Plan], most: int = 8) -> list[Plan]:
    """What is worth measuring: the best two plans, and the best of other tiles, copied or not."""

    def kind(plan: Plan) -> tuple:
        return plan.block_m, plan.block_n, plan.block_k, plan.warps, plan.rest, plan.by_number

    chosen = best[:2]
    for by_number in (True, False):  # neither may be missing: the model knows them least
        chosen += [plan for plan in best if plan.by_number == by_number][:1]
    chosen = list(dict.fromkeys(chosen))
    for plan in best:
        if len(chosen) < most and kind(plan) not in map(kind, chosen):
            chosen.append(plan)
    return chosen


@functools.lru_cache(4096)
def shortlist(
    shape: Shape, processors: int = PROCESSORS, shared_bytes: int = SHARED_BYTES
) -> list[Plan]:
    """The plans of a shape that are worth measuring."""
    return different(ranked(shape, processors, shared_bytes))


def measured_s(call: Callable[[], Any], calls: int = 8) -> float:
    """Seconds per call on a GPU, of calls that wait in its queue, without the host's part."""
    call()  # compiles
    calls = max(1, min(calls, int(4e-3 / _timed_s(call))))

    def several() -> None:
        for _ in range(calls):
            call()

    return min(_timed_s(several, late=True) for _ in range(2)) / calls


def _timed_s(call: Callable[[], Any], late: bool = False) -> float:
    """Seconds of a call. late: the GPU waits for about 5 ms before it, and the host goes on."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if late:
        torch.cuda._sleep(10_000_000)  # clock cycles
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return 1e-3 * start.elapsed_time(end)


KEPT: dict[tuple, Any] = {}  # the way that was fastest, by the product


def fastest(key: tuple, ways: Mapping[Any, Callable[[], Any]]) -> Any:
    """The result of the fastest of several ways to compute a product.

    They are measured once, when a product of this key is computed for the first time; while a CUDA
    graph is captured, nothing can be measured, and the first way is taken. A way that needs more
    registers or shared memory than the GPU has is left out.
    """
    if key not in KEPT and not torch.cuda.is_current_stream_capturing():
        times_s = {}
        for way, call in ways.items():
            with contextlib.suppress(triton.runtime.errors.OutOfResources):
                times_s[way] = measured_s(call)
        KEPT[key] = min(times_s or ways, key=lambda way: times_s.get(way, 0.0))
    return ways[KEPT.get(key, next(iter(ways)))]()


@triton.jit
def tile_of(x, row, column, rows, columns, row_stride, column_stride,
            HOW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """A tile of a matrix from (row, column) on, with zeros outside of the matrix."""
    if HOW == 1:
        tile = x.load([row, column])
    elif HOW == 2:
        tile = tl.trans(x.load([column, row]))
    else:
        i, j = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
        place = i[:, None].to(tl.int64) * row_stride + j[None, :].to(tl.int64) * column_stride
        tile = tl.load(x + place, mask=(i < rows)[:, None] & (j < columns)[None, :], other=0.0)
    return tile


@triton.jit
def gelu(x):
    """gelu(x), by its formula with tanh."""
    return x / (1 + tl.exp2(x * (-2.3022082 - 0.10294324 * x * x)))


@triton.jit
def keep(total, bias, out, part, m, n, M, N, out_stride, ALIGN: tl.constexpr,
         EPILOGUE: tl.constexpr, TURNED: tl.constexpr):  # fmt: skip
    """Stores a tile of (M, N) at (m, n), or its transpose; out's rows are multiples of ALIGN."""
    ROWS: tl.constexpr = total.shape[0]
    COLUMNS: tl.constexpr = total.shape[1]
    i, j = m + tl.arange(0, ROWS), n + tl.arange(0, COLUMNS)
    stride = (out_stride // ALIGN * ALIGN).to(tl.int64)
    if TURNED:
        if EPILOGUE:
            total = gelu(total + tl.load(bias + i, mask=i < M, other=0.0)[:, None])
        place = i[:, None] + ((part * N + j).to(tl.int64) * stride)[None, :]
        inside = (i < M // ALIGN * ALIGN)[:, None] & (j < N)[None, :]
    else:
        if EPILOGUE:
            total = gelu(total + tl.load(bias + j, mask=j < N, other=0.0)[None, :])
        place = ((part * M + i).to(tl.int64) * stride)[:, None] + j[None, :]
        inside = (i < M)[:, None] & (j < N // ALIGN * ALIGN)[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["M", "N", "K", "steps", "out_stride"])
def part_kernel(a, b, more, bias, out, M, N, K, steps, am, ak, bk, bn, out_stride,
                HOW_A: tl.constexpr, HOW_B: tl.constexpr, ALIGN: tl.constexpr,
                BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, REST: tl.constexpr,
                BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr,
                TURNED: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """A tile of C, or a part of its sum: program (tile, part) sums `steps` steps along K.

    HOW_A, HOW_B: AS_IS, by a descriptor; TURNED, by one of the transpose; or BY_NUMBER. more: B,
    in tiles of REST columns. out: (parts, M, N), rows of out_stride elements, or with TURNED
    (parts, N, M). A row and out_stride are multiples of ALIGN.
    """
    if EARLY:
        gdc_launch_dependents()  # the next kernel may start when all programs of this one run
        gdc_wait()  # until A and B are there
    high, wide = (M + BLOCK_M - 1) // BLOCK_M, (N + BLOCK_N + REST - 1) // (BLOCK_N + REST)
    top = tl.program_id(0) // (GROUP * wide) * GROUP
    tall = min(high - top, GROUP)
    rest = tl.program_id(0) % (GROUP * wide)
    m, n = (top + rest % tall) * BLOCK_M, rest // tall * (BLOCK_N + REST)
    part = tl.program_id(1)
    begin = part * steps * BLOCK_K
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    beside = total
    if REST:
        beside = tl.zeros((BLOCK_M, REST), tl.float32)
    for k in range(begin, min(begin + steps * BLOCK_K, K), BLOCK_K):
        left = tile_of(a, m, k, M, K, am, ak, HOW_A, BLOCK_M, BLOCK_K)
        right = tile_of(b, k, n, K, N, bk, bn, HOW_B, BLOCK_K, BLOCK_N)
        total = tl.dot(left, right, total)
        if REST:
            right = tile_of(more, k, n + BLOCK_N, K, N, bk, bn, HOW_B, BLOCK_K, REST)
            beside = tl.dot(left, right, beside)
    keep(total, bias, out, part, m, n, M, N, out_stride, ALIGN, EPILOGUE, TURNED)
    if REST:
        keep(beside, bias, out, part, m, n + BLOCK_N, M, N, out_stride, ALIGN, EPILOGUE, TURNED)


@triton.jit(do_not_specialize=["size", "N"])
def sum_kernel(parts, bias, out, size, N, PARTS: tl.constexpr, ALIGN: tl.constexpr,
               EPILOGUE: tl.constexpr, EARLY: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """out = the sum of the parts, (PARTS, size); size is a multiple of ALIGN."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()  # until the parts are there
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    size = size // ALIGN * ALIGN
    inside = at < size
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(parts + part * size.to(tl.int64) + at, mask=inside, other=0.0)
    if EPILOGUE:
        total = gelu(total + tl.load(bias + at % N, mask=inside, other=0.0))
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def shared_bytes() -> int:
    """How much shared memory a block may take on the GPU that kernels are compiled for."""
    major, minor = device.compute_capability()
    known = [number for number in LIMITS if number <= 10 * major + minor]
    return LIMITS[max(known)].shared_bytes if known else SHARED_BYTES


def refuse(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> None:
    """ValueError, in one sentence, if A B (+ bias) is not a product that is computed here."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"A {(*a.shape,)} and B {(*b.shape,)} have no product")
    if a.dtype != b.dtype or a.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"A is {a.dtype} and B is {b.dtype}; both must be fp16, or both bf16")
    if bias is not None and bias.shape != (b.shape[1],):
        raise ValueError(f"bias is {(*bias.shape,)}; it has a number per column, ({b.shape[1]},)")


def how(x: torch.Tensor) -> int:
    """AS_IS if the copy engine can fetch a matrix's tiles, TURNED if its transpose's; else 0."""
    for turned, matrix in ((AS_IS, x), (TURNED, x.T)):
        begins = matrix.data_ptr() % ALIGNED or matrix.stride(0) * matrix.itemsize % ALIGNED
        if matrix.stride(1) == 1 and not begins and matrix.stride(0) >= matrix.shape[1]:
            return turned
    return BY_NUMBER


@triton.jit
def aligned_tile(x, copy, number, rows, columns, row_stride, column_stride, copy_stride,
                 BLOCK: tl.constexpr):  # fmt: skip
    """Copies a tile of BLOCK x BLOCK to where rows are multiples of 16 bytes."""
    wide = (columns + BLOCK - 1) // BLOCK
    i = number // wide * BLOCK + tl.arange(0, BLOCK)[:, None]
    j = number % wide * BLOCK + tl.arange(0, BLOCK)[None, :]
    place = i.to(tl.int64) * row_stride + j.to(tl.int64) * column_stride
    tile = tl.load(x + place, mask=(i < rows) & (j < columns), other=0.0)
    room = copy_stride // 8 * 8
    tl.store(copy + i.to(tl.int64) * room + j, tile, mask=(i < rows) & (j < room))


@triton.jit(do_not_specialize=["a_tiles", "a_rows", "a_columns", "b_rows", "b_columns"])
def align_kernel(a, b, a_copy, b_copy, a_tiles, a_rows, a_columns, a_row, a_column, a_stride,
                 b_rows, b_columns, b_row, b_column, b_stride, BLOCK: tl.constexpr,
                 EARLY: tl.constexpr):  # fmt: skip
    """Copies two matrices; the first a_tiles programs have a tile of A each, the others of B."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    number = tl.program_id(0)
    if number < a_tiles:
        aligned_tile(a, a_copy, number, a_rows, a_columns, a_row, a_column, a_stride, BLOCK)
    else:
        aligned_tile(
            b, b_copy, number - a_tiles, b_rows, b_columns, b_row, b_column, b_stride, BLOCK
        )


def with_aligned_rows(*matrices: torch.Tensor) -> list[torch.Tensor]:
    """Copies of one or two matrices whose rows begin at multiples of 16 bytes."""
    block, early, copies = 64, device.starts_early(), []
    for x in matrices:
        each = ALIGNED // x.itemsize
        copies.append(x.new_empty(len(x), -(-x.shape[1] // each) * each))
    tiles = [math.prod(math.ceil(size / block) for size in x.shape) for x in matrices]
    some = [
        (*x.shape, *x.stride(), copy.stride(0)) for x, copy in zip(matrices, copies, strict=True)
    ]
    kernel: Any = align_kernel
    kernel[(sum(tiles),)](
        matrices[0], matrices[-1], copies[0], copies[-1], tiles[0], *some[0], *some[-1],
        BLOCK=block, EARLY=early, num_warps=4, launch_pdl=early,
    )  # fmt: skip
    return [copy[:, : x.shape[1]] for x, copy in zip(matrices, copies, strict=True)]


def shape_of(a: torch.Tensor, b: torch.Tensor) -> Shape:
    """The Shape of a product."""
    odd = sum(x.numel() * x.itemsize for x in (a, b) if how(x) == BY_NUMBER)
    return Shape(len(a), b.shape[1], a.shape[1], odd)


def product(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, plan: Plan | None = None
) -> torch.Tensor:
    """A B, or gelu(A B + bias), in 16 bits, of any shape and strides, on an H100 or later."""
    refuse(a, b, bias)
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    if not c.numel():
        return c
    if not k:
        return c.zero_() if bias is None else c.copy_(functional.gelu(bias, approximate="tanh"))
    plan = plan or plan_for(shape_of(a, b), device.multiprocessors(), shared_bytes())[0]
    if not plan.by_number:
        odd = [x for x in (a, b) if not how(x)]
        copies = iter(with_aligned_rows(*odd) if odd else odd)
        a, b = (x if how(x) else next(copies) for x in (a, b))
    parts = torch.empty(plan.parts, m, n, device=a.device) if plan.parts > 1 else c
    bias_ = c if bias is None else bias.contiguous()
    high, wide = m, n
    if plan.turned:
        a, b, high, wide = b.T, a.T, n, m
    ways = how(a), how(b)
    strides = [0 if how(x) else stride for x in (a, b) for stride in x.stride()]
    given = [_described(a, ways[0], (plan.block_m, plan.block_k))]
    for width in plan.block_n, plan.rest or plan.block_n:
        given.append(_described(b, ways[1], (plan.block_k, width)))
    steps = math.ceil(math.ceil(k / plan.block_k) / plan.parts)
    tiles = math.ceil(high / plan.block_m) * math.ceil(wide / (plan.block_n + plan.rest))
    kernel: Any = part_kernel
    kernel[(tiles, plan.parts)](
        *given, bias_, parts, high, wide, k, steps, *strides, n,
        HOW_A=ways[0], HOW_B=ways[1], ALIGN=math.gcd(n, 8), BLOCK_M=plan.block_m,
        BLOCK_N=plan.block_n, REST=plan.rest, BLOCK_K=plan.block_k, GROUP=8,
        num_warps=plan.warps, num_stages=plan.stages, TURNED=plan.turned,
        EPILOGUE=bias is not None and plan.parts == 1,
        EARLY=device.starts_early(), launch_pdl=device.starts_early(),
    )  # fmt: skip
    if plan.parts > 1:
        _add(parts, bias_, c, plan.parts, bias is not None)
    return c


def _described(x: torch.Tensor, way: int, tile: tuple[int, int]) -> Any:
    """What the kernel takes for an operand: a descriptor of its tiles, or itself."""
    if way == BY_NUMBER:
        return x
    matrix, block = (x, tile) if way == AS_IS else (x.T, tile[::-1])
    return TensorDescriptor(matrix, [*matrix.shape], [*matrix.stride()], [*block])


def _add(
    parts: torch.Tensor, bias: torch.Tensor, c: torch.Tensor, count: int, epilogue: bool
) -> None:
    block, early = 1024, device.starts_early()
    kernel: Any = sum_kernel
    kernel[(math.ceil(c.numel() / block),)](
        parts, bias, c, c.numel(), c.shape[1], PARTS=count, ALIGN=math.gcd(c.numel(), 8),
        EPILOGUE=epilogue, EARLY=early, BLOCK=block, num_warps=4, launch_pdl=early,
    )  # fmt: skip
