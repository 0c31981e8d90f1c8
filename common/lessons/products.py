"""Matrix products of any shape on a GPU: a model chooses tiles and parts, a kernel computes them.

Import it after device.prepare_triton(): it imports Triton. Lab 05 builds a kernel for products with
many tiles; these are the others. Where tiles are few, they become smaller, or several programs
share one: each sums a part of K, and a second kernel adds the parts (split-K). Rows that begin
anywhere are copied to where the copy engine (TMA) can fetch them, or loaded number by number.
"""

# ruff: noqa: ANN001, ANN201

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch.nn import functional
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from common import device
from common.capabilities import LIMITS

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


class Shape(NamedTuple):
    """M, N, K, and the bytes of operands that the copy engine can't fetch as they are."""

    m: int
    n: int
    k: int
    odd_bytes: int = 0


TILES = (  # BLOCK_M, BLOCK_N, BLOCK_K, warps
    *((128, 256, 64, 8), (128, 128, 64, 4), (64, 256, 64, 4), (128, 64, 64, 4), (64, 128, 64, 4)),
    *((64, 64, 64, 4), (128, 32, 64, 4), (64, 32, 64, 4)),
)


def plans(shape: Shape, shared_bytes: int = SHARED_BYTES) -> Iterator[Plan]:
    """The plans for a shape that fit into this shared memory, once or twice."""
    for block_m, block_n, block_k, warps in TILES:
        pair_bytes = 2 * (block_m + block_n) * block_k
        steps = math.ceil(shape.k / block_k)
        once, twice = (
            min(6, (room - 4096) // pair_bytes) for room in (shared_bytes, shared_bytes // 2)
        )
        small = block_m * block_n <= 64 * 128  # else registers don't suffice for addresses
        for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32):
            if parts > 1 and (steps < 2 * parts or block_m * block_n < 64 * 64):
                break
            for stages in {once, twice}:
                for by_number in (False, True)[: 1 + (small and shape.odd_bytes > 0)]:
                    if stages >= 2:
                        yield Plan(block_m, block_n, block_k, warps, stages, parts, by_number)


def predicted_s(plan: Plan, shape: Shape, processors: int = PROCESSORS) -> float:
    """Seconds that a product is predicted to take: lab 05's cost model, with parts and memory."""
    m, n, k, _, stages, parts, by_number = plan
    tiles = math.ceil(shape.m / m) * math.ceil(shape.n / n)
    steps = math.ceil(math.ceil(shape.k / k) / parts)
    pair_bytes = 2 * (m + n) * k
    resident = max(
        1, min(SHARED_BYTES // (stages * pair_bytes + 1024), 65_536 // (m * n * 3 // 2), 2)
    )
    together = max(1, min(resident, math.ceil(tiles * parts / processors)))
    waves = math.ceil(tiles * parts / (processors * together))
    product_s = 2 * m * max(n, 64) * k / (PEAK / PROCESSORS)
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


def different(best: list[Plan], most: int = 5) -> list[Plan]:
    """What is worth measuring: the first two of the plans, and the first of each other tile."""
    chosen = best[:2]
    for plan in best:
        if len(chosen) < most and all(plan[:4] != other[:4] for other in chosen):
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
    """Seconds of a call. late: the GPU waits for about 2 ms before it, and the host goes on."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if late:
        torch.cuda._sleep(4_000_000)  # clock cycles
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


@triton.jit(do_not_specialize=["M", "N", "K", "steps", "out_stride"])
def part_kernel(a, b, bias, out, M, N, K, steps, am, ak, bk, bn, out_stride,
                HOW_A: tl.constexpr, HOW_B: tl.constexpr, ALIGN: tl.constexpr,
                BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                GROUP: tl.constexpr, EPILOGUE: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """A tile of C, or a part of its sum: program (tile, part) sums `steps` steps along K.

    HOW_A, HOW_B: AS_IS, by a descriptor; TURNED, by one of the transpose; or BY_NUMBER. out:
    (parts, M, N), rows of out_stride elements. N and out_stride are multiples of ALIGN.
    """
    if EARLY:
        gdc_launch_dependents()  # the next kernel may start when all programs of this one run
        gdc_wait()  # until A and B are there
    high, wide = (M + BLOCK_M - 1) // BLOCK_M, (N + BLOCK_N - 1) // BLOCK_N
    top = tl.program_id(0) // (GROUP * wide) * GROUP
    tall = min(high - top, GROUP)
    rest = tl.program_id(0) % (GROUP * wide)
    m, n = (top + rest % tall) * BLOCK_M, rest // tall * BLOCK_N
    part = tl.program_id(1)
    begin = part * steps * BLOCK_K
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(begin, min(begin + steps * BLOCK_K, K), BLOCK_K):
        left = tile_of(a, m, k, M, K, am, ak, HOW_A, BLOCK_M, BLOCK_K)
        right = tile_of(b, k, n, K, N, bk, bn, HOW_B, BLOCK_K, BLOCK_N)
        total = tl.dot(left, right, total)
    i, j = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
    if EPILOGUE:
        total = gelu(total + tl.load(bias + j, mask=j < N, other=0.0)[None, :])
    row = (part * M + i).to(tl.int64)[:, None] * (out_stride // ALIGN * ALIGN)
    inside = (i < M)[:, None] & (j < N // ALIGN * ALIGN)[None, :]
    tl.store(out + row + j[None, :], total.to(out.dtype.element_ty), mask=inside)


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


def with_aligned_rows(x: torch.Tensor) -> torch.Tensor:
    """A copy of a matrix whose rows begin at multiples of 16 bytes."""
    each = ALIGNED // x.itemsize
    room = torch.empty(len(x), -(-x.shape[1] // each) * each, dtype=x.dtype, device=x.device)
    return room[:, : x.shape[1]].copy_(x)


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
        a, b = (x if how(x) else with_aligned_rows(x) for x in (a, b))
    parts = torch.empty(plan.parts, m, n, device=a.device) if plan.parts > 1 else c
    bias_ = c if bias is None else bias.contiguous()
    ways = how(a), how(b)
    strides = [
        0 if way else stride for x, way in zip((a, b), ways, strict=True) for stride in x.stride()
    ]
    tiles = (plan.block_m, plan.block_k), (plan.block_k, plan.block_n)
    given = (_described(x, way, tile) for x, way, tile in zip((a, b), ways, tiles, strict=True))
    steps = math.ceil(math.ceil(k / plan.block_k) / plan.parts)
    grid = math.ceil(m / plan.block_m) * math.ceil(n / plan.block_n), plan.parts
    kernel: Any = part_kernel
    kernel[grid](
        *given, bias_, parts, m, n, k, steps, *strides, n,
        HOW_A=ways[0], HOW_B=ways[1], ALIGN=math.gcd(n, 8), BLOCK_M=plan.block_m,
        BLOCK_N=plan.block_n, BLOCK_K=plan.block_k, GROUP=8, num_warps=plan.warps,
        num_stages=plan.stages, EPILOGUE=bias is not None and plan.parts == 1,
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
