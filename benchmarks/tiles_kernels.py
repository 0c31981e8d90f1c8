"""Launches of Triton kernels whose requests benchmarks/tiles_hardware.py compares with a GPU's.

They are kernels of labs 04, 05 and 10, and others for which the counters were not made.
"""

# ruff: noqa: ANN001, ANN201

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from benchmarks.solved import solved

FLOATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Launch(NamedTuple):
    """A launch, with its name in the table. The arguments are on the CPU."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


@triton.jit
def copied(x, out, n, SHIFT: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i + OUT, tl.load(x + i + SHIFT, mask=i < n), mask=i < n)


@triton.jit
def copied_whole(x, out, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i + SHIFT))


@triton.jit
def strided(x, out, step, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + STEP * step * i))


@triton.jit
def gathered(x, index, out, n, EACH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.load(index + i // EACH, mask=i < n, other=0)
    tl.store(out + i, tl.load(x + j, mask=i < n), mask=i < n)


@triton.jit
def scattered(x, index, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.load(index + i), tl.load(x + i))


@triton.jit
def embedded(table, index, out, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    chosen = tl.load(index + row)
    values = tl.load(table + chosen * columns + column, mask=column < columns)
    tl.store(out + row * columns + column, values, mask=column < columns)


@triton.jit
def rows(x, y, stride, columns, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + j, mask=j < columns)
    tl.store(y + row * columns + j, v, mask=j < columns)


@triton.jit
def outer_sum(x, y, out, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    left = tl.load(x + i, mask=i < m, other=0)
    right = tl.load(y + j, mask=j < n, other=0)
    inside = (i < m)[:, None] & (j < n)[None, :]
    tl.store(out + i[:, None] * n + j[None, :], left[:, None] + right[None, :], mask=inside)


@triton.jit
def transposed(x, y, m, n, TRANS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (i < m)[:, None] & (j < n)[None, :]
    tile = tl.load(x + i[:, None] * n + j[None, :], mask=inside)
    if TRANS:
        tl.store(y + j[:, None] * m + i[None, :], tl.trans(tile), mask=tl.trans(inside))
    else:
        tl.store(y + j[None, :] * m + i[:, None], tile, mask=inside)


@triton.jit
def reduced(x, out, m, n, AXIS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    i, j = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    inside = (i < m)[:, None] & (j < n)[None, :]
    tile = tl.load(x + i[:, None] * n + j[None, :], mask=inside, other=0)
    if AXIS == 1:
        tl.store(out + i, tl.sum(tile, 1), mask=i < m)
    else:
        tl.store(out + tl.program_id(0) * n + j, tl.sum(tile, 0), mask=j < n)


@triton.jit
def scanned(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, tl.cumsum(v, 0) + tl.argmax(v, 0))


@triton.jit
def neighbours(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x + i - 1, mask=(i > 0) & (i < n), other=0)
    right = tl.load(x + i + 1, mask=i + 1 < n, other=0)
    tl.store(out + i, left + right + tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def one_number(x, y, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(y + tl.program_id(0)) * tl.load(x + i * 0))


@triton.jit
def every_other(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i % 2 == 1, other=0), mask=i // 64 % 2 == 0)


@triton.jit
def by_programs(x, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for block in range(tl.program_id(0), n, tl.num_programs(0)):
        total += tl.load(x + block * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def added(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def histogram(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def greatest(x, out, before, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.atomic_max(out, tl.max(v, 0))
    tl.store(before + i, tl.atomic_xchg(out + 1 + i, v))


@triton.jit
def product(
    a, b, c, M, N, K, am, ak, bk, bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), c.dtype.element_ty)
    for start in range(0, K, BK):
        here = start + k < K
        x = tl.load(a + m[:, None] * am + (start + k)[None, :] * ak,
                    mask=(m < M)[:, None] & here[None, :], other=0)  # fmt: skip
        y = tl.load(b + (start + k)[:, None] * bk + n[None, :] * bn,
                    mask=here[:, None] & (n < N)[None, :], other=0)  # fmt: skip
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=c.dtype.element_ty)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


def launches() -> Iterator[Launch]:
    """Every launch, in order: the same ones in all processes."""
    random = torch.Generator().manual_seed(0)
    yield from _copies(random)
    yield from _indices(random)
    yield from _tiles(random)
    yield from _updates(random)
    yield from _products(random)
    yield from _softmaxes(random)
    yield from _lab_products(random)


def numbers(random: torch.Generator, *shape: int, dtype: Any = torch.float32) -> torch.Tensor:
    """Whole numbers from -9 to 9."""
    return torch.randint(-9, 10, shape, generator=random).to(dtype)


def zeros(*shape: int, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def _copies(random: torch.Generator) -> Iterator[Launch]:
    dtypes = FLOATS | {"int8": torch.int8, "int64": torch.int64}
    for short, dtype in dtypes.items():
        for num_warps in (1, 4, 8) if short in ("fp32", "bf16", "int8") else (4,):
            for shift in (0, 1):
                given = numbers(random, 4200, dtype=dtype), zeros(4096, dtype=dtype)
                constants = {"SHIFT": shift, "BLOCK": 1024, "num_warps": num_warps}
                name = f"copy, {short}, {num_warps} warps" + ", from element 1" * shift
                yield Launch(name, copied_whole, (4,), given, constants)
    view = numbers(random, 4200)[1:]
    constants = {"SHIFT": 0, "BLOCK": 1024}
    yield Launch(
        "copy of a view from element 1", copied_whole, (4,), (view, zeros(4096)), constants
    )
    for short, n in (("fp32", 4000), ("fp32", 4001), ("bf16", 4001), ("int8", 4008)):
        dtype = dtypes[short]
        given = numbers(random, 4200, dtype=dtype), zeros(4200, dtype=dtype), n
        for shift, out in ((0, 0), (0, 3), (4, 4)):
            constants = {"SHIFT": shift, "OUT": out, "BLOCK": 1024}
            name = f"copy, mask i < {n:,}, {short}, from {shift} to {out}"
            yield Launch(name, copied, (4,), given, constants)
    for short, step, constant in (
        ("fp32", 1, 3), ("fp32", 2, 1), ("fp32", 16, 1), ("bf16", 1, 2), ("int8", 1, 4),
        ("int8", 7, 1),
    ):  # fmt: skip
        given = numbers(random, 1024 * step * constant, dtype=dtypes[short])
        constants = {"STEP": constant, "BLOCK": 512}
        kind = "constant " if constant > 1 else ""
        name = f"{kind}stride {step * constant}, {short}"
        given = given, zeros(1024, dtype=dtypes[short]), step
        yield Launch(name, strided, (2,), given, constants)


def _indices(random: torch.Generator) -> Iterator[Launch]:
    index = torch.randint(0, 3000, (2000,), generator=random)
    for short, dtype, each, num_warps in (
        ("fp32", torch.float32, 1, 4),
        ("fp32", torch.float32, 4, 8),
        ("bf16", torch.bfloat16, 1, 1),
        ("int8", torch.int8, 2, 4),
    ):
        x, out = numbers(random, 3000, dtype=dtype), zeros(2048, dtype=dtype)
        constants = {"EACH": each, "BLOCK": 512, "num_warps": num_warps}
        name = f"gather, {short}, {num_warps} warps" + (f", {each} of each" if each > 1 else "")
        given = x, index.to(torch.int32 if each > 1 else torch.int64), out, 2000
        yield Launch(name, gathered, (4,), given, constants)
    order = torch.randperm(1024, generator=random).to(torch.int32)
    given = numbers(random, 1024), order, zeros(1024)
    yield Launch("scatter", scattered, (2,), given, {"BLOCK": 512})
    for columns, short in ((96, "bf16"), (100, "fp32"), (33, "int8")):
        dtype = {"int8": torch.int8}.get(short) or FLOATS[short]
        table, chosen = numbers(random, 50, columns, dtype=dtype), order[:64] % 50
        given = table, chosen, zeros(64, columns, dtype=dtype), columns
        name = f"embedding, rows of {columns}, {short}"
        yield Launch(name, embedded, (4,), given, {"ROWS": 16, "BLOCK": 128})
    yield Launch(
        "neighbours", neighbours, (4,), (numbers(random, 999), zeros(999), 999), {"BLOCK": 256}
    )
    given = numbers(random, 8), numbers(random, 4), zeros(1024)
    yield Launch("one number for all", one_number, (4,), given, {"BLOCK": 256})
    given = numbers(random, 1024), zeros(1024)
    yield Launch("every other element", every_other, (2,), given, {"BLOCK": 512})


def _tiles(random: torch.Generator) -> Iterator[Launch]:
    for columns, short, num_warps in (
        (1000, "fp32", 4), (1001, "fp32", 4), (1001, "bf16", 8), (1001, "fp32", 1),
    ):  # fmt: skip
        x, y = (numbers(random, 8, columns, dtype=FLOATS[short]) for _ in range(2))
        name, constants = f"rows of {columns}, {short}, {num_warps} warps", {"BLOCK": 1024}
        given = x, y, columns, columns
        yield Launch(name, rows, (8,), given, constants | {"num_warps": num_warps})
    wide = numbers(random, 8, 512)[:, 3:403]
    yield Launch("rows of a view", rows, (8,), (wide, zeros(8, 400), 512, 400), {"BLOCK": 512})
    sizes = {"BLOCK_M": 32, "BLOCK_N": 64}
    given = numbers(random, 70), numbers(random, 90), zeros(70, 90), 70, 90
    yield Launch("outer sum", outer_sum, (3, 2), given, sizes)
    for trans, (m, n), num_warps, short in (
        (False, (96, 128), 4, "fp32"), (True, (96, 128), 4, "fp32"), (True, (70, 90), 1, "fp32"),
        (True, (96, 128), 8, "bf16"), (False, (70, 90), 8, "bf16"),
    ):  # fmt: skip
        x, y = numbers(random, m, n, dtype=FLOATS[short]), zeros(n, m, dtype=FLOATS[short])
        name = f"transpose{' by tl.trans' * trans}, {m} × {n}, {short}, {num_warps} warps"
        constants = sizes | {"TRANS": trans, "num_warps": num_warps}
        yield Launch(name, transposed, (-(-m // 32), -(-n // 64)), (x, y, m, n), constants)
    for axis, (m, n), num_warps in ((1, (60, 128), 4), (0, (60, 128), 1), (1, (60, 99), 8)):
        x = numbers(random, m, n, dtype=torch.int32)
        out = zeros(m if axis else 4 * n, dtype=torch.int32)
        constants = {"AXIS": axis, "BLOCK_M": 16, "BLOCK_N": 128, "num_warps": num_warps}
        name = f"sums of {'rows' if axis else 'columns'}, {m} × {n}, {num_warps} warps"
        yield Launch(name, reduced, (4,), (x, out, m, n), constants)
    given = numbers(random, 2048, dtype=torch.int32), zeros(2048, dtype=torch.int32)
    yield Launch("cumsum and argmax", scanned, (2,), given, {"BLOCK": 1024})
    given = numbers(random, 20 * 512), zeros(3), 20
    yield Launch("sums by three programs", by_programs, (3,), given, {"BLOCK": 512})


def _updates(random: torch.Generator) -> Iterator[Launch]:
    for short, num_warps, n in (
        ("fp32", 4, 1024), ("fp32", 4, 1001), ("fp16", 4, 1024), ("fp16", 8, 1001),
        ("bf16", 1, 1024), ("int32", 4, 1024),
    ):  # fmt: skip
        dtype = FLOATS.get(short, torch.int32)
        given = numbers(random, 1024, dtype=dtype), zeros(1024, dtype=dtype), n
        name = f"atomic_add, {short}, {num_warps} warps, {n:,} elements"
        yield Launch(name, added, (2,), given, {"BLOCK": 512, "num_warps": num_warps})
    x = torch.randint(0, 40, (1000,), generator=random, dtype=torch.int32)
    given = x, zeros(40, dtype=torch.int32), 1000
    yield Launch("histogram of atomics", histogram, (4,), given, {"BLOCK": 256})
    x, out, before = numbers(random, 1024, dtype=torch.int32), *zeros(2, 1040, dtype=torch.int32)
    yield Launch("atomic_max and atomic_xchg", greatest, (2,), (x, out, before), {"BLOCK": 512})


def _products(random: torch.Generator) -> Iterator[Launch]:
    for short, num_warps, stages, (m, n, k), turned in (
        ("bf16", 4, 3, (128, 128, 256), False),
        ("bf16", 8, 4, (128, 128, 256), True),
        ("fp16", 4, 1, (128, 128, 128), False),
        ("fp16", 1, 2, (64, 64, 128), False),
        ("bf16", 4, 3, (100, 90, 120), False),
        ("bf16", 4, 3, (100, 91, 121), False),
        ("fp32, tf32", 4, 3, (128, 128, 128), False),
        ("fp32, tf32", 8, 2, (100, 92, 100), True),
        ("fp32, ieee", 4, 2, (64, 64, 64), False),
        ("int8", 4, 3, (128, 128, 256), True),
        ("int8", 8, 3, (128, 128, 250), False),
    ):
        dtype, sums = torch.int8, torch.int32
        precision = "ieee" if "ieee" in short else "tf32"
        if short != "int8":
            dtype, sums = FLOATS[short.split(",")[0]], torch.float32
        a, b = numbers(random, m, k, dtype=dtype), numbers(random, k, n, dtype=dtype)
        if turned:
            b = b.T.contiguous().T
        given = a, b, zeros(m, n, dtype=sums), m, n, k, *a.stride(), *b.stride()
        block = {"BM": 64, "BN": 64, "BK": 64 if short == "int8" else 32, "PRECISION": precision}
        constants = block | {"num_warps": num_warps, "num_stages": stages}
        name = f"product, {short}, {m} × {n} × {k}, {num_warps} warps, {stages} stages"
        name += ", B by columns" * turned
        yield Launch(name, product, (-(-m // 64), -(-n // 64)), given, constants)


def _softmaxes(random: torch.Generator) -> Iterator[Launch]:
    names = solved("04")
    given = numbers(random, 1000), zeros(1000), 1000
    yield Launch("lab 04, differences", names["differences"], (4,), given, {"BLOCK": 256})
    for kernel, columns, short, constants in (
        ("softmax_rows", 1000, "fp32", {"BLOCK": 1024}),
        ("softmax_rows", 1001, "bf16", {"BLOCK": 1024, "num_warps": 8}),
        ("softmax_three_reads", 1001, "fp32", {"BLOCK": 256}),
        ("softmax_online", 1000, "fp32", {"BLOCK": 256}),
        ("softmax_online", 1001, "bf16", {"BLOCK": 512, "num_warps": 1}),
    ):
        x, y = (numbers(random, 6, columns, dtype=FLOATS[short]) for _ in range(2))
        name = f"lab 04, {kernel}, rows of {columns}, {short}"
        yield Launch(name, names[kernel], (6,), (x, y, columns, columns, columns), constants)
    for columns, short in ((100, "fp32"), (33, "bf16"), (96, "fp16")):
        x, y = (numbers(random, 30, columns, dtype=FLOATS[short]) for _ in range(2))
        given = x, y, columns, columns, 30, columns
        name = f"lab 04, softmax_tile, rows of {columns}, {short}"
        yield Launch(name, names["softmax_tile"], (4,), given, {"ROWS": 8, "BLOCK": 128})
    x, y, z = (numbers(random, 24, 200) for _ in range(3))
    kernel, given = names["softmax_masked_scaled"], (x, y, 12, 200, 0.5)
    yield Launch("lab 04, softmax_masked_scaled", kernel, (24,), given, {"BLOCK": 256})
    kernel, given = names["softmax_backward"], (x.bfloat16(), y.bfloat16(), z.bfloat16(), 200)
    yield Launch("lab 04, softmax_backward, bf16", kernel, (24,), given, {"BLOCK": 256})
    target = torch.randint(0, 200, (24,), generator=random)
    given = x, target, zeros(24), y, 200
    kernel = names["cross_entropy"]
    yield Launch("lab 04, cross_entropy", kernel, (24,), given, {"BLOCK": 64})
    x, y = (numbers(random, 4, 1000, dtype=torch.int32).view(torch.uint32) for _ in range(2))
    constants = {"BLOCK": 1024, "EACH": 4, "FAST": False, "num_warps": 8}
    given = x, y, 1000, 1000, 1000, 16, 16
    yield Launch("lab 04, softmax_pairs", names["softmax_pairs"], (4,), given, constants)


def _lab_products(random: torch.Generator) -> Iterator[Launch]:
    names = solved("05")
    for precision, dtype in (("ieee", torch.float32), ("tf32", torch.bfloat16)):
        a, b = (numbers(random, 64, 64, dtype=dtype) for _ in range(2))
        constants = {"SIZE": 64, "PRECISION": precision}
        name, given = f"lab 05, one_tile_kernel, {dtype}", (a, b, zeros(64, 64))
        yield Launch(name.replace("torch.", ""), names["one_tile_kernel"], (1,), given, constants)
    for kernel, (m, n, k), extra, more in (
        ("matmul_kernel", (128, 128, 128), {}, {}),
        ("matmul_kernel", (100, 75, 90), {}, {"num_warps": 8, "num_stages": 4}),
        ("matmul_bias_gelu_kernel", (192, 128, 128), {"GROUP": 2, "EPILOGUE": True}, {}),
        ("split_k_kernel", (128, 96, 256), {"SPLIT": 4}, {}),
    ):
        a, b = (numbers(random, *shape, dtype=torch.float16) for shape in ((m, k), (k, n)))
        c = zeros(m, n, dtype=torch.float32 if "SPLIT" in extra else torch.float16)
        bias = [numbers(random, n, dtype=torch.float16)] * ("EPILOGUE" in extra)
        given = a, b, *bias, c, m, n, k, *a.stride(), *b.stride(), *c.stride()
        constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32} | extra | more
        grid = -(-m // 64) * -(-n // 64), *[extra[name] for name in extra if name == "SPLIT"]
        yield Launch(f"lab 05, {kernel}, {m} × {n} × {k}", names[kernel], grid, given, constants)
    x, y = numbers(random, 24, 64), numbers(random, 24, 128)
    given = x, y, zeros(64, 128), 64, 128, 24
    yield Launch("lab 05, l1_kernel", names["l1_kernel"], (2, 4), given, {"BLOCK": 32})
    packed = torch.randint(-(2**31), 2**31 - 1, (16, 128), generator=random).to(torch.int32)
    scales, x = (numbers(random, *shape, dtype=torch.bfloat16) for shape in ((16, 8), (1024,)))
    constants = {"GROUPS": 8, "WORDS": 16, "ROWS": 4, "STEP": 8}
    kernel, given = solved("10")["int4_matvec_kernel"], (packed, scales, x, zeros(16))
    yield Launch("lab 10, int4_matvec_kernel", kernel, (4,), given, constants)
