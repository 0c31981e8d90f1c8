"""Counts of Triton kernels against counts by hand; races, errors, bf16, and the other processes."""

import json
import os
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import torch

from common.hardware import device
from common.paths import ROOT

device.prepare_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from nogpu import tiles  # noqa: E402
from nogpu.tiles import costs, dtypes, triton_interpreter  # noqa: E402

matplotlib.use("Agg")
INTERPRETED = pytest.mark.skipif(
    not triton_interpreter.interprets(),
    reason="Triton compiles here, and takes no tensor of the CPU",
)
TWO = tl.constexpr(2.0)
PLAIN = 2.0


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(x + i, mask=mask)
    b = tl.load(y + i, mask=mask)
    tl.store(out + i, a + b, mask=mask)


@triton.jit
def copy(x, out, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + step * i))


@triton.jit
def softmax(x, out, stride, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    numbers = tl.load(x + row * stride + i, mask=i < n, other=-float("inf"))
    numbers = tl.exp(numbers - tl.max(numbers, axis=0))
    tl.store(out + row * stride + i, numbers / tl.sum(numbers, axis=0), mask=i < n)


@triton.jit
def swish(x):
    return x * tl.sigmoid(x)


@triton.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SWISH: tl.constexpr = False,  # pyrefly: ignore[bad-function-definition] - Triton takes it
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        k = step * BK + tl.arange(0, BK)
        left = tl.load(
            a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0
        )
        right = tl.load(
            b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0
        )
        total = tl.dot(left, right, total)
    if SWISH:
        total = swish(total)
    tl.store(
        c + m[:, None] * N + n[None, :],
        total.to(c.dtype.element_ty),
        mask=(m[:, None] < M) & (n[None, :] < N),
    )


def traffic(requests, elements, masked, bytes, sectors):
    return costs.Traffic(requests, elements, masked, bytes, sectors)


# --- counts by hand


@pytest.mark.parametrize(
    "n, programs, sectors", [(1000, 8, 125), (1, 1, 1), (0, 1, 0), (128, 1, 16), (129, 2, 17)]
)
def test_a_vector_is_moved_once(n, programs, sectors):
    x, y, out = torch.randn(n), torch.randn(n), torch.zeros(n)
    counted = tiles.count(
        add, lambda meta: (programs,), x, y, out, n, BLOCK=128, num_warps=4, num_stages=2
    )
    assert torch.equal(out, x + y)
    want = traffic(programs, n, 128 * programs - n, 4 * n, sectors)
    assert [counted.array(name).loads for name in "xy"] == [want, want] and counted.array(
        "out"
    ).stores == want
    assert counted.loads == traffic(2 * programs, 2 * n, 2 * want.masked, 8 * n, 2 * sectors)
    assert (counted.programs, counted.atomics.requests, counted.races) == (programs, 0, [])


def test_a_grid_of_no_programs_costs_nothing():
    out = torch.zeros(4)
    counted = tiles.count(add, (0,), out, out, out, 4, BLOCK=4)
    assert counted.programs == 0 and counted.loads == traffic(0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "step, dtype, sectors",
    [
        (1, torch.float32, 8),
        (2, torch.float32, 16),
        (8, torch.float32, 64),
        (9, torch.float32, 64),
        (1, torch.bfloat16, 4),
        (1, torch.float64, 16),
        (1, torch.int8, 2),
        (0, torch.float32, 1),
    ],
)
def test_sectors_are_the_distinct_pieces_of_32_bytes(step, dtype, sectors):
    x, out = torch.arange(64 * max(step, 1)).to(dtype), torch.zeros(64, dtype=dtype)
    counted = tiles.count(copy, (1,), x, out, step, BLOCK=64)
    assert counted.loads.sectors == sectors
    assert counted.stores.sectors == 64 * x.element_size() // 32
    assert torch.equal(out, x[::step] if step else x[:1].expand(64))


def test_a_block_that_begins_within_a_sector_takes_one_more():
    x, out = torch.arange(65.0), torch.zeros(64)
    assert tiles.count(copy, (1,), x[1:], out, 1, BLOCK=64).loads.sectors == 9
    assert torch.equal(out, x[1:])


def test_numpy_arrays_count_as_tensors_do():
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    assert tiles.count(copy, (2,), x, out, 1, BLOCK=32).loads == traffic(2, 64, 0, 256, 8)
    assert np.array_equal(x, out)


def test_a_softmax_reads_once_and_writes_once():
    x, out = torch.randn(33, 100), torch.empty(33, 100)
    counted = tiles.count(softmax, (33,), x, out, 100, 100, BLOCK=128)
    torch.testing.assert_close(out, x.softmax(1))
    rows_within = sum(
        (100 * row % 8 != 0) for row in range(33)
    )  # 100 floats are 12.5 sectors: 13 either way
    assert rows_within == 16 and counted.loads == traffic(33, 3300, 33 * 28, 13200, 33 * 13)


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0), (torch.float16, 0)]
)
def test_a_matmul_loads_each_tile_once_a_tile_of_the_result(dtype, tolerance):
    M, N, K, B = 70, 50, 90, 32
    a, b, c = (
        torch.randn(M, K).to(dtype),
        torch.randn(K, N).to(dtype),
        torch.zeros(M, N, dtype=dtype),
    )
    counted = tiles.count(matmul, (3, 2), a, b, c, M, N, K, B, B, B)
    want = a.double() @ b.double()
    spacing = (
        want.abs().clamp_min(2**-6) * torch.finfo(dtype).eps
    )  # half of it at most is lost by rounding the result
    assert ((c.double() - want).abs() <= 0.51 * spacing + 1e-4).all()
    assert (
        counted.array("a").loads.elements == 2 * M * K
        and counted.array("b").loads.elements == 3 * K * N
    )
    assert counted.array("a").loads.requests == 3 * 2 * 3 and counted.stores.elements == M * N
    assert (counted.dots, counted.dot_flops) == (18, 18 * 2 * B**3)
    name = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]
    assert counted.dot_formats == {f"{name} × {name} + fp32"}
    line = next(access.line for access in counted.accesses if access.array == "a")
    assert counted.line(line).loads == counted.array("a").loads
    assert "left = tl.load" in str(counted) and "18 tl.dot" in str(counted)


def test_a_function_called_and_a_default_overridden():
    a, b, c = torch.randn(16, 16), torch.randn(16, 16), torch.zeros(16, 16)
    tiles.count(matmul, 1, a, b, c, 16, 16, 16, BM=16, BN=16, BK=16, SWISH=True)
    torch.testing.assert_close(c, torch.nn.functional.silu(a @ b))


@triton.jit
def histogram(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(out + bins, 1, mask=i < n)


def test_atomics_are_counted_and_do_not_race():
    x, out = torch.arange(100, dtype=torch.int32) % 16, torch.zeros(16, dtype=torch.int32)
    counted = tiles.count(histogram, (4,), x, out, 100, BLOCK=32)
    assert torch.equal(out, x.bincount().int())
    assert counted.atomics == traffic(4, 100, 28, 400, 2 + 2 + 2 + 1) and not counted.races


@triton.jit
def doubled_by_descriptor(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    # Triton takes an int for a tensor.
    # pyrefly: ignore[bad-argument-type]
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    # pyrefly: ignore[bad-argument-type]
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    place = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(place, source.load(place) * 2)


@triton.jit
def doubled_by_host_descriptor(source, target, BM: tl.constexpr, BN: tl.constexpr):
    place = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(place, source.load(place) * 2)


@pytest.mark.parametrize("kernel", [doubled_by_descriptor, doubled_by_host_descriptor])
def test_descriptors_count_what_is_inside(kernel):
    x, out = torch.randn(20, 24), torch.zeros(20, 24)
    arrays = (x, out, 20, 24)
    if kernel is doubled_by_host_descriptor:
        arrays = [TensorDescriptor.from_tensor(array, [16, 16]) for array in (x, out)]
    counted = tiles.count(kernel, (2, 2), *arrays, BM=16, BN=16)
    assert torch.equal(out, 2 * x)
    want = traffic(4, 480, 4 * 256 - 480, 1920, 20 * 3)  # a row of 24 floats is three sectors
    assert counted.loads == counted.stores == want


def test_the_parts_of_a_descriptor_can_replace_it():
    x, out = torch.arange(120.0).view(6, 20), torch.zeros(6, 20)
    strided = [
        (array, [2, 3, 20], [20, 40, 1], [1, 4, 16]) for array in (x, out)
    ]  # rows 0, 2, 4 and rows 1, 3, 5
    counted = tiles.count(doubled_apart, (2,), *strided, BM=4, BN=16)
    assert torch.equal(out, 2 * x)
    assert counted.loads.bytes == counted.stores.bytes == x.nbytes


@triton.jit
def doubled_apart(source, target, BM: tl.constexpr, BN: tl.constexpr):
    for column in range(0, 20, BN):
        target.store([tl.program_id(0), 0, column], source.load([tl.program_id(0), 0, column]) * 2)


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (torch.zeros(4, 4),),
        (torch.zeros(4, 4), [4, 4], [4, 1], [16]),
        (3, [4], [1], [4]),
        (torch.zeros(4, 4), [4, 4], [1, 4], [4, 4]),
        (torch.zeros(4, 4), [4, 4], [4, 1], [4, 3]),
    ],
)
def test_a_tuple_that_makes_no_descriptor_is_refused(parts):
    with pytest.raises(
        tiles.KernelError,
        match=r"source is a tuple, but not a tensor descriptor \(tensor, shape, strides, block",
    ):
        tiles.count(doubled_apart, (1,), parts, torch.zeros(4, 4), BM=4, BN=16)


# --- what a kernel may be written in


@triton.jit
def language(x, out, n, scale, nothing, N: tl.constexpr):
    i = tl.arange(0, N)
    numbers = tl.load(x + i)
    large = (numbers > 3) and (numbers < 60) or not (numbers > 1)
    numbers = tl.where(large, numbers * TWO, numbers)
    steps = 0
    while steps < n:
        steps += 1
    for k in tl.range(0, n):
        numbers += k.to(tl.float32)
    for k in tl.static_range(2):
        numbers += k
    HALF: tl.constexpr = N // 2
    if nothing is None and scale > 1:  # noqa: SIM108 - one of the statements that are tested
        numbers = tl.where(i < HALF, numbers * scale, numbers)
    else:
        numbers = 0.0
    tl.store(out + i, numbers + min(steps, 3) + max(numbers, 2.0) * 0 + -7 // 2)


def test_the_kernel_language_means_what_the_compiler_makes_of_it():
    x, out = torch.arange(64.0), torch.zeros(64)
    tiles.count(language, (1,), x, out, 4, 1.5, None, N=64)
    want = torch.where(((x > 3) & (x < 60)) | ~(x > 1), x * 2, x) + 6 + 1
    want = torch.where(torch.arange(64) < 32, want * 1.5, want) + 3 + -4
    assert torch.equal(out, want)


@triton.jit
def takes_numbers(out, yes, no, large, small, fraction, nothing):
    if yes and not no:
        tl.store(out, large)
    if nothing is None:
        tl.store(out + 1, small + fraction.to(tl.float64))


def test_numbers_of_every_kind_are_taken():
    out = torch.zeros(2, dtype=torch.float64)
    tiles.count(takes_numbers, (1,), out, True, np.bool_(False), 2**40, np.int32(-3), 0.5, None)
    assert out.tolist() == [2.0**40, -2.5]


@triton.jit
def not_written(x):
    raise NotImplementedError("write me")


@triton.jit
def uses_plain(x):
    tl.store(x, PLAIN)


@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=[])
@triton.jit
def tuned(x, BLOCK: tl.constexpr):
    tl.store(x, 1)


@pytest.mark.parametrize(
    "kernel, arguments, options, error, words",
    [
        (not_written, [torch.zeros(1)], {}, NotImplementedError, "not_written is not written yet"),
        (uses_plain, [torch.zeros(1)], {}, tiles.KernelError, "write PLAIN = tl.constexpr(2.0)"),
        (
            tuned,
            [torch.zeros(1)],
            {},
            tiles.KernelError,
            "wrapped by Autotuner; give the @triton.jit function itself",
        ),
        (len, [], {}, tiles.KernelError, "is not a @triton.jit function"),
        (copy, [torch.zeros(8)], {}, tiles.LaunchError, "copy needs out, step, BLOCK"),
        (copy, [torch.zeros(8)] * 5, {}, tiles.LaunchError, "takes 4 arguments"),
        (
            copy,
            [torch.zeros(8)] * 2,
            {"step": 1, "BLOCKS": 8},
            tiles.LaunchError,
            "has no parameter BLOCKS",
        ),
        (copy, ["text", torch.zeros(8), 1, 8], {}, tiles.KernelError, "x is a str"),
        (
            copy,
            [torch.zeros(8, dtype=torch.complex64), torch.zeros(8), 1, 8],
            {},
            tiles.KernelError,
            "x has dtype complex64",
        ),
        (copy, [torch.zeros(8), torch.zeros(8), 1, 6], {}, tiles.KernelError, "power of 2"),
        (
            copy,
            [torch.zeros(8), torch.zeros(8), 2**64, 8],
            {},
            tiles.KernelError,
            "64 bits at most",
        ),
        (
            copy,
            [torch.zeros(8, device="meta"), torch.zeros(8), 1, 8],
            {},
            tiles.KernelError,
            "do not lie in memory as they are (meta",
        ),
        (
            copy,
            [torch.zeros(2, 4).to_sparse(), torch.zeros(8), 1, 8],
            {},
            tiles.KernelError,
            "do not lie in memory as they are (cpu",
        ),
        (
            copy,
            [torch._neg_view(torch.zeros(8)), torch.zeros(8), 1, 8],
            {},
            tiles.KernelError,
            "resolve_neg",
        ),
    ],
)
def test_a_refused_launch_says_why(kernel, arguments, options, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(").replace(")", r"\)")):
        tiles.count(kernel, (1,), *arguments, **options)


@pytest.mark.parametrize("grid", [(1, 1, 1, 1), (), (1.5,), (-1,), (1, 70000), "1"])
def test_a_grid_that_a_gpu_would_refuse_is_refused(grid):
    with pytest.raises(tiles.LaunchError, match="grid"):
        tiles.count(copy, grid, torch.zeros(8), torch.zeros(8), 1, BLOCK=8)


# --- out of bounds


def test_a_load_beyond_the_end_is_named_before_it_happens():
    x, out = torch.zeros(100), torch.full((128,), 7.0)
    with pytest.raises(tiles.OutOfBoundsError) as caught:
        tiles.count(copy, (4,), x, out, 1, BLOCK=32, seed=0)
    said = str(caught.value)
    assert "program (3, 0, 0)" in said and "loads element 100 of x, which has 100 elements" in said
    assert "28 of the 32 elements" in said and "tl.store(out + i, tl.load(x + step * i))" in said


def test_a_store_beyond_the_end_writes_nothing():
    both = torch.zeros(256)
    x, out = both[:128], torch.zeros(100)
    with pytest.raises(tiles.OutOfBoundsError, match="stores element 100 of out"):
        tiles.count(copy, (1,), x, out, 1, BLOCK=128)
    assert not out.any()


def test_an_address_from_one_array_within_another_is_out_of_bounds():
    x, out = np.zeros(8, np.float32), np.zeros(8, np.float32)
    step = (out.ctypes.data - x.ctypes.data) // 4
    with pytest.raises(
        tiles.OutOfBoundsError, match="of x, which has 8 elements|computed from no argument"
    ):
        tiles.count(copy, (2,), x, out, step, BLOCK=4, seed=1)


@pytest.mark.parametrize(
    "x, step, want",
    [
        (np.arange(32, dtype=np.float32)[::-1], -1, np.arange(32)[::-1]),
        (np.arange(64, dtype=np.float32)[::-2], -2, np.arange(64)[::-2]),
        (np.broadcast_to(np.float32(3), (32,)), 0, np.full(32, 3)),
        (torch.tensor(3.0).expand(32), 0, np.full(32, 3)),
        (torch.arange(40.0)[8:], 1, np.arange(8, 40)),
    ],
)
def test_an_element_is_found_by_its_stride_and_no_other_way(x, step, want):
    out = torch.zeros(32)
    tiles.count(copy, (2,), x, out, step, BLOCK=16)
    assert np.array_equal(out, want)
    with pytest.raises(tiles.OutOfBoundsError, match=f"of x, which has {len(x)} elements"):
        tiles.count(copy, (2,), x, out, 33, BLOCK=16)


def test_arrays_without_elements_are_not_touched():
    x, out = torch.zeros(0), torch.zeros(0)
    assert tiles.count(add, (1,), x, x, out, 0, BLOCK=16).loads.bytes == 0
    with pytest.raises(tiles.OutOfBoundsError, match="element 0 of x, which has 0 elements"):
        tiles.count(add, (1,), x, x, out, 1, BLOCK=16)


# --- races and the order of programs


@triton.jit
def neighbour(x, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    tl.store(x + program + 1, tl.load(x + program) + 1)


@triton.jit
def same_place(out):
    tl.store(out, tl.program_id(0))


@triton.jit
def updated_and_read(x, out):
    tl.atomic_add(x, 1)
    tl.store(out + tl.program_id(0), tl.load(x))


def test_a_kernel_that_relies_on_the_order_of_programs_is_caught():
    results = set()
    for seed in range(5):
        x = torch.zeros(9)
        counted = tiles.count(neighbour, (8,), x, BLOCK=1, seed=seed)
        results.add(tuple(x.tolist()))
        assert len(counted.races) in (1, 2) and counted.seed == seed
        assert all(
            {"load", "store"} == set(race.kinds) and race.array == "x" for race in counted.races
        )
        assert sum(race.elements for race in counted.races) == 7
    assert len(results) > 1


def test_one_seed_gives_one_report():
    x = torch.zeros(9)
    first, second = (tiles.count(neighbour, (8,), x.clone(), BLOCK=1, seed=3) for _ in range(2))
    assert first == second and first.as_dict() == second.as_dict()


def test_two_programs_that_store_one_element_race():
    (race,) = tiles.count(same_place, (4,), torch.zeros(1), seed=0).races
    assert (
        race.array == "out"
        and race.element == 0
        and race.elements == 1
        and race.kinds == ("store", "store")
    )
    assert "race on element 0 of out" in str(race) and "programs run in any order" in str(race)


def test_a_load_races_with_an_atomic_update():
    counted = tiles.count(updated_and_read, (3,), torch.zeros(1), torch.zeros(3), seed=0)
    assert {frozenset(race.kinds) for race in counted.races} == {frozenset(("load", "atomic"))}


def test_arguments_that_overlap_race_as_one_array():
    x = torch.zeros(64)
    assert tiles.count(copy, (2,), x, x, 1, BLOCK=32).races == []
    counted = tiles.count(copy, (2,), x[:64], x, 0, BLOCK=32)
    assert {race.array for race in counted.races} <= {"x", "out"} and counted.races


# --- elements that hold no value

UNDEFINED = """
import triton
import triton.language as tl

@triton.jit
def best(a, is_a, b, is_b):
    return tl.where(is_b > 0, b, a), is_a + is_b

@triton.jit
def kernel(x, places, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    inside = i < n
    v = tl.load(x + i, mask=inside)
    place = tl.load(places + i, mask=inside)
    STATEMENT
"""
CHOSEN = [  # what is defined, or stays in registers
    "tl.store(out + i, v, mask=inside)",
    "tl.store(out + i, tl.where(inside, v, 0))",
    "tl.store(out + i, tl.erf(v) * tl.sigmoid(v) - tl.sqrt(tl.abs(v)) % 3, mask=inside)",
    "tl.store(out + i, tl.clamp(v, 0.0, 6.0) + tl.zeros_like(v) + tl.fma(v, v, -v), mask=inside)",
    "tl.store(out + i, v.to(tl.bfloat16).to(tl.float8e5).to(tl.float32), mask=inside)",
    "tl.store(out + i, tl.load(x + place, mask=inside), mask=inside)",
    "tl.store(out + i, tl.load(x + i, mask=inside, other=tl.where(inside, v, 0)))",
    "tl.store(out + i, 1.0, mask=inside & (v > 0) & (v < 9))",
    "tl.store(out + i, tl.where(v > 0, 1.0, 0.0), mask=~((v < 0.0) | (i >= n)))",
    "tl.store(out + i, 1.0, mask=(v > 0) | (i >= 0))",
    "a = tl.argmax(tl.where(inside, float('nan'), v), 0)",
    "tl.store(out + i, place * inside.to(tl.int32) + tl.where(inside, place, 1) // 2)",
    "tl.store(out + i, tl.cumsum(v, 0), mask=inside)",
    "tl.store(out + i[None, :], tl.broadcast_to(v[None, :], (1, N)), mask=inside[None, :])",
    "tl.store(out + i, tl.gather(v, tl.where(inside, place, 0), 0), mask=inside)",
    "tl.store(out + tl.arange(0, 16), tl.histogram(place, 16, mask=inside))",
    "tl.store(out + i, tl.reshape(tl.trans(tl.reshape(v, (2, N // 2))), (N,)), mask=i < 0)",
    "tl.store(out, tl.reduce((v, inside.to(tl.int32)), 0, best)[0])",
    "tl.atomic_add(out + i, v, mask=inside)",
    "tl.device_print('v', v)",
    "a, b = tl.split(tl.reshape(v, (N // 2, 2))); "
    "tl.store(out + i, tl.interleave(a, b), mask=inside)",
]
USED = [  # (what the message says that they do, statement)
    ("what goes to memory here", "tl.store(out + i, v)"),
    ("what goes to memory here", "tl.store(out + i, v + 1, mask=i <= n)"),
    ("what goes to memory here", "tl.store(out, tl.sum(v, 0))"),
    ("what goes to memory here", "tl.store(out, tl.sum(v.to(tl.bfloat16), 0))"),
    ("what goes to memory here", "tl.store(out + i, v - tl.max(v, 0), mask=inside)"),
    ("what goes to memory here", "tl.store(out, tl.argmax(v, 0))"),
    ("what goes to memory here", "tl.store(out + i, tl.cumsum(v, 0))"),
    ("what goes to memory here", "tl.store(out + i, tl.cumsum(v, 0, reverse=True), mask=inside)"),
    ("what goes to memory here", "tl.store(out + i, tl.sort(v), mask=inside)"),
    ("what goes to memory here", "tl.store(out + i, tl.where(v > 0, 1.0, 2.0))"),
    ("what goes to memory here", "tl.store(out + i, tl.erf(v).to(tl.float8e5).to(tl.float32))"),
    ("what goes to memory here", "tl.store(out + i, tl.gather(v, i, 0))"),
    ("what goes to memory here", "tl.store(out + i, tl.fma(x=v, y=v, z=v))"),
    ("what goes to memory here", "tl.store(out + i, tl.where((v > 1) | (i < 0), 1.0, 2.0))"),
    ("what goes to memory here", "tl.store(out + tl.arange(0, 16), tl.histogram(place, 16))"),
    ("what goes to memory here", "tl.store(out + i, tl.load(x + i, mask=inside, other=v))"),
    (
        "what goes to memory here",
        "tl.store(out + i, tl.reshape("
        "tl.dot(tl.reshape(v, (16, 16)), tl.zeros((16, 16), tl.float32)), (N,)))",
    ),
    ("what goes to memory here", "tl.atomic_add(out + i, v)"),
    ("what goes to memory here", "tl.atomic_cas(out, tl.sum(v, 0), 1.0)"),
    ("the address of this store", "tl.store(out + place, 1.0)"),
    ("the address of this load", "tl.load(x + tl.max(place, 0))"),
    (
        "what goes to memory here",
        "tl.store(out + i, tl.join(v, v).sum(1) + tl.interleave(v, v).reshape((2, N)).sum(0))",
    ),
    (
        "what goes to memory here",
        "tl.store(out + i, tl.softmax(v) + tl.umulhi(place, place), mask=inside)",
    ),
    ("the mask of this store", "tl.store(out + i, 1.0, mask=v > 0)"),
    ("a branch, a loop or an assertion", "if tl.sum(place, 0) > 3: tl.store(out, 1)"),
    ("a branch, a loop or an assertion", "for k in range(tl.max(place, 0)): tl.store(out, k)"),
]


def count_undefined(statement):
    """out of a launch of UNDEFINED with this statement: 200 of 256 elements are loaded."""
    kernel = tiles.compile_source(UNDEFINED.replace("STATEMENT", statement), "kernel")
    x, places, out = torch.rand(256), torch.arange(256, dtype=torch.int32) % 16, torch.zeros(256)
    tiles.count(kernel, (1,), x, places, out, 200, N=256)
    return x, out


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("statement", CHOSEN)
def test_a_kernel_that_does_not_use_what_is_undefined_passes(statement):
    assert count_undefined(statement)[1].isfinite().all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("what, statement", USED)
def test_what_is_undefined_does_not_reach_memory(what, statement):
    with pytest.raises(
        tiles.KernelError, match=f"line 15 .*{what} depends on undefined elements: line 1[34] "
    ) as caught:
        count_undefined(statement)
    cause = "loads masked-off elements without other="
    assert f"{cause}; their value is undefined, on a GPU it can be anything" in str(caught.value)


def test_what_a_masked_off_update_gives_is_undefined():
    with pytest.raises(
        tiles.KernelError,
        match="line 15 .* updates no masked-off element, and gives nothing for it",
    ):
        count_undefined("tl.store(out + i, tl.atomic_add(out + i, 1.0, mask=inside))")


def test_what_a_kernels_own_function_reduces_is_not_followed_but_shows():
    x, out = count_undefined(
        "tl.store(out, tl.reduce(v, 0, plus))\n\n@triton.jit\ndef plus(a, b):\n    return a + b"
    )
    assert out[0].isnan()


@triton.jit
def total_of_int32(x, out, N: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, N)), 0))


def test_a_sum_wraps_as_on_a_gpu():
    x, out = torch.full((4,), 2**30, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    tiles.count(total_of_int32, (1,), x, out, N=4)
    assert out.item() == 0


# --- types in loops, and what to write instead

CARRIED = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    total = BEGIN
    LOOP:
        total = TURN
    tl.store(out, tl.sum(v, 0))
"""


@pytest.mark.parametrize(
    "begin, loop, turn, words",
    [
        (
            "0",
            "for k in range(n)",
            "total + 1.5",
            "total is int32 before this loop and fp32 after a turn of it",
        ),
        ("0", "for k in tl.range(n)", "total + tl.sum(v, 0)", "begin with fp32"),
        ("0", "while tl.sum(v, 0) > total", "total + 1.5", "line 10 (`while tl.sum"),
        (
            "tl.zeros((N,), tl.float16)",
            "for k in range(n)",
            "total + v",
            "total is a block of fp16 of shape [64] before this loop",
        ),
        (
            "tl.zeros((N,), tl.float32)",
            "for k in range(n)",
            "tl.sum(v, 0)",
            "and fp32 after a turn",
        ),
        ("tl.program_id(0)", "for k in range(n)", "total + k.to(tl.int64)", "begin with int64"),
        ("0.0", "for k in range(n)", "total + k", None),
        ("0.0", "for k in range(n)", "tl.maximum(total, tl.max(v, 0)) * 2 + 1", None),
        ("tl.zeros((N,), tl.float16)", "for k in range(n)", "total * 0.5 + 1", None),
        ("tl.zeros((N,), tl.bfloat16)", "for k in range(n)", "total + v.to(tl.bfloat16)", None),
        ("0", "for k in tl.static_range(3)", "total + 1.5", None),
        ("x", "for k in range(n)", "total + 1", None),
    ],
)
def test_a_loop_keeps_the_types_of_what_it_changes_as_triton_demands(begin, loop, turn, words):
    text = CARRIED.replace("BEGIN", begin).replace("LOOP", loop).replace("TURN", turn)
    kernel = tiles.compile_source(text, "kernel")
    arguments = torch.ones(64), torch.zeros(1), 4, 64
    compiles, counts = (tiles.compiled, []), (tiles.count, [(1,)])
    message = ""
    for run, grid in (compiles, counts):  # the compiler and the interpreter are of one mind
        if words is None:
            run(kernel, *grid, *arguments)
        else:
            with pytest.raises(tiles.KernelError) as caught:
                run(kernel, *grid, *arguments)
            message = str(caught.value)
    assert words is None or words in message


@pytest.mark.parametrize(
    "line, words",
    [
        ("y = tl.tanh(x)", "write 2 * tl.sigmoid(2 * x) - 1"),
        ("y = tl.math.pow(v, 2.0)", "write x * x, or tl.exp2"),
        ("y = abs(v)", "abs, which is not defined; write tl.abs(x)"),
        ("y = v ** 2", "a power is x * x"),
        ("y = tl.make_block_ptr(x, (n,), (1,), (0,), (4,), (0,))", "no block pointers from vers"),
        ("y = v.advance((4,))", "write tl.make_tensor_descriptor(...), or pointers and a mask"),
        ("y = x[0]", "an element of an array is tl.load(x + i)"),
        ("y = v // 2", "tl.floor(x / y)"),
        ("y = tl.float32(n)", "write x.to(tl.float32)"),
        ("y = float(n)", "x.to(tl.float32)"),
        ("y = len(v)", "x.shape[0]"),
        ("y = tl.zeros((n,), tl.float32)", "NAME: tl.constexpr = ..."),
        ("y = triton.cdiv(n, 3)", "tl.cdiv(x, y)"),
        ("if not n: pass", "compare with 0"),
        ("y = math.exp(1.0)", "math.exp: a kernel has no math; write tl.exp"),
        ("y = -np.inf", "np.inf: a kernel has no np; write float('inf')"),
        ("y = np.maximum(v, 0)", "write tl.maximum"),
        ("y = tl.any(v > 0)", "tl.max(mask.to(tl.int32), axis)"),
        ("if v.dtype.is_fp32(): pass", "x.dtype == tl.float32"),
    ],
)
def test_a_refusal_says_what_to_write(line, words):
    text = (
        f"import math\n{CARRIED}".replace("BEGIN", "0")
        .replace("LOOP:", line)
        .replace("        total = TURN\n", "")
    )
    with pytest.raises(tiles.KernelError) as caught:
        tiles.count(
            tiles.compile_source(text, "kernel"), (1,), torch.ones(64), torch.zeros(1), 4, N=64
        )
    assert words in str(caught.value)


def test_many_elifs_are_not_deep_nesting():
    arms = "".join(
        f"    elif p == {k}:\n        tl.store(out + p, {k * k})\n" for k in range(1, 32)
    )
    first = "    p = tl.program_id(0)\n    if p == 0:\n        tl.store(out, 0)\n"
    text = f"@triton.jit\ndef kernel(out):\n{first}{arms}"
    out = torch.ones(32)
    tiles.count(tiles.compile_source(text, "kernel"), (32,), out)
    assert torch.equal(out, torch.arange(32.0) ** 2)


def test_constants_are_computed_from_powers_and_shifts():
    text = (
        "A = tl.constexpr(2 ** 10)\nB = tl.constexpr(1 << 4)\nC = tl.constexpr(2.0 ** -1)\n"
        "@triton.jit\ndef kernel(out):\n    tl.store(out, A + B + C)\n"
    )
    out = torch.zeros(1, dtype=torch.float64)
    tiles.count(tiles.compile_source(text, "kernel"), (1,), out)
    assert out.item() == 1024 + 16 + 0.5


# --- load imbalance


@triton.jit
def in_shares(x, out, n, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    """Program 0 copies FIRST blocks, the others one each."""
    program = tl.program_id(0)
    blocks = tl.where(program == 0, FIRST, 1)
    first = tl.where(program == 0, 0, program + FIRST - 1)
    for block in range(first, first + blocks):
        i = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("seed", range(3))
def test_the_busiest_program_is_reported(seed):
    x, out = torch.rand(8 * 16), torch.zeros(8 * 16)
    counted = tiles.count(in_shares, (4,), x, out, 128, FIRST=5, BLOCK=16, seed=seed)
    assert torch.equal(x, out) and counted.busiest.program == (0, 0, 0)
    assert counted.busiest.loads == traffic(5, 80, 0, 320, 10) and counted.busiest.bytes == 640
    assert counted.imbalance == 5 / 2
    assert (
        "load imbalance 2.5: program (0, 0, 0) moves 640 bytes, 2.5 times the mean of the 4"
        in str(counted)
    )
    back = tiles.Report.from_dict(json.loads(json.dumps(counted.as_dict())))
    assert back.busiest == counted.busiest and back.imbalance == 2.5 and back == counted


def test_even_work_is_balanced():
    x, out = torch.rand(100), torch.zeros(100)
    counted = tiles.count(in_shares, (4,), x[:96], out[:96], 96, FIRST=1, BLOCK=32)
    assert (
        counted.imbalance == 4 / 3
        and counted.busiest.program == (0, 0, 0)
        and "imbalance" not in str(counted)
    )
    assert tiles.count(in_shares, (3,), x[:96], out[:96], 96, FIRST=1, BLOCK=32).imbalance == 1
    assert tiles.count(in_shares, (4,), x, out, 0, FIRST=1, BLOCK=32).imbalance == 1
    assert tiles.count(in_shares, (0,), x, out, 100, FIRST=1, BLOCK=32).imbalance == 1


# --- the report


def test_a_report_crosses_as_data():
    x = torch.zeros(9)
    counted = tiles.count(neighbour, (8,), x, BLOCK=1)
    back = tiles.Report.from_dict(json.loads(json.dumps(counted.as_dict())))
    assert back == counted and str(back) == str(counted) and back.loads.sectors == 8
    with pytest.raises(ValueError, match="no trace"):
        back.draw("x")
    with pytest.raises(ValueError, match="y is not an array of neighbour; its arrays are x"):
        counted.array("y")
    with pytest.raises(ValueError, match="line 3 accesses no memory"):
        counted.line(3)


def picture(ax):
    return np.asarray(ax.get_images()[0].get_array())


def test_a_drawing_shows_which_program_touches_what():
    x = torch.randn(100)
    ax = tiles.count(add, (4,), x, x, torch.zeros(100), 100, BLOCK=32).draw("x")
    assert picture(ax).shape == (4, 100) and np.array_equal(picture(ax).sum(0), np.ones(100))
    a, b, c = torch.randn(40, 64), torch.randn(64, 48), torch.zeros(40, 48)
    counted = tiles.count(matmul, (2, 3), a, b, c, 40, 48, 64, 32, 16, 16)
    assert (picture(counted.draw("a")) == 3).all() and (picture(counted.draw("b")) == 2).all()
    stored = picture(counted.draw("c", "store"))
    assert stored[0, 0] == 1 and stored[39, 0] == 2 and stored[0, 47] == 5
    mine = picture(counted.draw("a", program=(1, 2)))
    assert not mine[:32].any() and np.array_equal(np.unique(mine[32:]), [1, 2, 3, 4])
    with pytest.raises(ValueError, match="no element of a is stored"):
        counted.draw("a", "store")
    matplotlib.pyplot.close("all")


# --- text alone

TEXT = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(3)

def host(x):
    return open("anything")

@triton.jit
def scaled(x):
    return x * FACTOR * GIVEN

@triton.jit
def kernel(x, out, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, scaled(tl.load(x + i)).to(KIND))
"""


def test_a_kernel_from_text_alone():
    kernel = tiles.compile_source(TEXT, "kernel", {"GIVEN": 2, "KIND": torch.float32})
    x, out = torch.arange(64.0), torch.zeros(64)
    counted = tiles.count(kernel, (2,), x, out, N=32)
    assert torch.equal(out, 6 * x) and counted.line(17).loads == counted.line(17).stores
    with pytest.raises(
        tiles.KernelError, match="other is not defined; the text defines host, scaled, kernel"
    ):
        tiles.compile_source(TEXT, "other")
    with pytest.raises(tiles.KernelError, match="scaled uses GIVEN, which is not defined"):
        tiles.compile_source(TEXT, "kernel")
    with pytest.raises(ValueError, match="a kernel's constant is a number, a dtype, or a tuple"):
        tiles.compile_source(TEXT, "kernel", {"GIVEN": [1], "KIND": torch.float32})


# --- bf16, in the fixed interpreter


@triton.jit
def in_bf16(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(out + i, a * a)
    tl.store(out + N + i, tl.where(a > 0, a, -a))
    tl.store(out + 2 * N + i, a + 1.0)
    tl.store(out + 3 * N + i, tl.exp(a.to(tl.float32)).to(tl.bfloat16))
    tl.store(out + 4 * N + i, a.to(tl.int32).to(tl.bfloat16))
    tl.store(out + 5 * N + i, a.to(tl.float16).to(tl.bfloat16))
    tl.store(out + 6 * N + i, a.to(tl.int16, bitcast=True).to(tl.bfloat16, bitcast=True))
    tl.store(out + 7 * N + i, tl.zeros((N,), tl.bfloat16) + tl.sum(a, axis=0))
    # tl.max and tl.argmax give a tuple only with return_indices.
    # pyrefly: ignore[missing-attribute]
    tl.store(out + 8 * N + i, tl.full((N,), 1.5, tl.bfloat16) + tl.max(a, axis=0).to(tl.bfloat16))
    tl.store(
        out + 9 * N + i,
        # pyrefly: ignore[missing-attribute]
        tl.argmax(a, axis=0).to(tl.bfloat16) + tl.min(a, axis=0).to(tl.bfloat16) * 0,
    )


def in_bf16_by_torch(x):
    one = torch.ones_like(x)
    return torch.cat(
        [
            x * x,
            x.abs(),
            x + 1,
            x.float().exp().bfloat16(),
            x.int().bfloat16(),
            x,
            x,
            x.float().sum().bfloat16() * one,
            (x.max() + 1.5) * one,
            x.argmax().bfloat16() * one,
        ]
    )


@INTERPRETED
@pytest.mark.parametrize("launch", ["count", "plain"])
def test_bf16_is_computed_with_as_such(launch):
    x, out = (
        ((torch.randperm(64) - 30) / 8).bfloat16(),
        torch.zeros(640, dtype=torch.bfloat16),
    )  # whose sum is exact
    if launch == "count":
        tiles.count(in_bf16, (1,), x, out, 64)
    else:
        triton_interpreter.interpreter()
        in_bf16[(1,)](x, out, N=64)  # pyrefly: ignore[bad-argument-type] - a constexpr
    want, is_exp = in_bf16_by_torch(x), torch.arange(640) // 64 == 3
    assert torch.equal(out[~is_exp], want[~is_exp])
    torch.testing.assert_close(
        out[is_exp], want[is_exp], rtol=2**-7, atol=0
    )  # exp differs by one float32, and its bf16 may


def test_every_float32_rounds_to_bf16_as_torch_rounds_it():
    bits = torch.randint(-(2**31), 2**31, (100_000,), dtype=torch.int32)
    numbers = torch.cat(
        [
            bits.view(torch.float32),
            torch.tensor([float("inf"), -float("inf"), 0.0, -0.0, 3.4e38, 1e-45]),
        ]
    )
    numbers = numbers[~numbers.isnan()]
    got = torch.from_numpy(dtypes.to_bf16(numbers.numpy()).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(got, numbers.bfloat16())
    assert np.isnan(dtypes.from_bf16(dtypes.to_bf16(np.array([np.nan], np.float32)))).all()


@INTERPRETED
def test_a_plain_launch_of_a_bf16_matmul_is_right():
    triton_interpreter.interpreter()
    a, b, c = torch.randn(32, 32).bfloat16(), torch.randn(32, 32).bfloat16(), torch.zeros(32, 32)
    # pyrefly: ignore[bad-argument-type] - constexprs
    matmul[(2, 2)](a, b, c, 32, 32, 32, BM=16, BN=16, BK=16)
    torch.testing.assert_close(c, a.float() @ b.float())


@triton.jit
def atomic_bf16(x):
    tl.atomic_add(x, tl.load(x))


def test_the_interpreter_s_limits_are_reported():
    with pytest.raises(tiles.KernelError, match="no atomic operations on bf16"):
        tiles.count(atomic_bf16, (1,), torch.zeros(1, dtype=torch.bfloat16))


def test_another_interpreter_is_refused_in_one_sentence(monkeypatch):
    from triton.runtime import interpreter

    monkeypatch.delattr(interpreter, "_implicit_cvt")
    with pytest.raises(RuntimeError, match="cannot attach to Triton .*: it has no _implicit_cvt"):
        tiles.count(same_place, (1,), torch.zeros(1))


def test_the_language_is_left_as_it_was():
    builder = triton_interpreter.interpreter().interpreter_builder
    before = tl.load, tl.sum, dict(vars(tl.tensor)), builder.codegen_fns["min_dot_size"]
    tiles.count(softmax, (1,), torch.zeros(8), torch.zeros(8), 8, 8, BLOCK=8)
    with pytest.raises(tiles.OutOfBoundsError):
        tiles.count(softmax, (2,), torch.zeros(8), torch.zeros(8), 8, 8, BLOCK=8)
    assert before == (tl.load, tl.sum, dict(vars(tl.tensor)), builder.codegen_fns["min_dot_size"])
    assert not any(name.startswith("create") for name in vars(builder))
    module = triton_interpreter.interpreter()
    assert module.interpreter_builder is module.interpreter_semantic.builder is builder


# --- other processes

COMPILING = """
import sys
sys.path.insert(0, {tests!r})
import torch, triton, triton.language as tl
from nogpu import tiles

@triton.jit
def copy(x, out, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.device_print("block", tl.program_id(0))
    tl.store(out + i, tl.load(x + i))

x, out = torch.arange(64.0), torch.zeros(128)
both = tiles.count(copy, (2,), x, out[32:96], N=32)
assert torch.equal(out[32:96], x) and not out[:32].any() and not out[96:].any()
assert both.loads.sectors == 8 and both.draw("x") is not None
alias = torch.arange(64.0)
assert tiles.count(copy, (2,), alias, alias, N=32).races == []
try:
    tiles.count(copy, (3,), x, out, N=32)
except tiles.OutOfBoundsError as error:
    print("line" in str(error), "element 64 of x" in str(error))
print(type(copy).__name__)
"""


@pytest.mark.slow
def test_where_triton_compiles_another_process_counts(tmp_path):
    script = tmp_path / "compiling.py"
    script.write_text(COMPILING.format(tests=str(tmp_path)))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=600,
        env={**environment, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.splitlines()[-2:] == ["True True", "JITFunction"]
    assert "block" in run.stdout


def test_a_kernel_is_compiled_with_no_gpu():
    a, b, c = (torch.zeros(256, 256, dtype=torch.bfloat16) for _ in range(3))
    made = tiles.compiled(matmul, a, b, c, 256, 256, 256, 64, 64, 64)
    assert made.instructions("wgmma.mma_async") > 0 and made.instructions("mma.sync") == 0
    assert (
        made.shared_bytes >= 2 * 2 * 64 * 64
        and made.spilled_bytes == 0
        and 32 < made.registers <= 255
    )
    assert ".target sm_90a" in made.ptx and "tt.dot" in made.ttir
    with_a_call = tiles.compiled(matmul, a, b, c, 256, 256, 256, 64, 64, 64, SWISH=True)
    assert with_a_call.instructions("ex2") > made.instructions("ex2") == 0
    older = tiles.compiled(matmul, a, b, c, 256, 256, 256, 64, 64, 64, capability=80)
    assert older.instructions("mma.sync") > 0 and older.instructions("wgmma") == 0
    by_descriptor = tiles.compiled(
        doubled_by_host_descriptor,
        *(TensorDescriptor.from_tensor(array, [64, 64]) for array in (a, b)),
        64,
        64,
    )
    assert by_descriptor.instructions("cp.async.bulk.tensor") > 0
    with pytest.raises(tiles.KernelError, match=r"(?s)matmul does not compile: .*K >= 16"):
        tiles.compiled(matmul, a, b, c, 256, 256, 256, 64, 64, 8)
