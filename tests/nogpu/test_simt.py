"""What kernels compute and cost in the simulator, compared with NumPy and known figures."""

import json
import math
from itertools import product

import matplotlib
import matplotlib.pyplot as plt
import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda as numba_cuda
from numba import float32, float64, int32, int64

from nogpu import simt
from nogpu.simt import cuda

TILE, PITCH, THREADS, HALO = 16, 33, 128, 130
SHAPE = (4, 8)
TABLE = np.array([2.0, 3.0, 5.0, 7.0], np.float32)
rng = np.random.default_rng(0)
matplotlib.use("Agg")


def random(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def run(kernel, grid, block, *arguments, **options):
    """The report of a kernel, run plainly and then counted, each on fresh copies of the arrays.

    Both must leave the same numbers in them.
    """
    plain = [
        argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments
    ]
    kernel.launch(grid, block, *plain, seed=3, **options)
    report = simt.count(kernel, grid, block, *arguments, seed=3, **options)
    for one, other in zip(plain, arguments, strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
    assert not report.unwritten
    return report


# --- the kernels of lab 03


@cuda.jit
def vector_add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit(device=True)
def doubled(value):
    return 2 * value


@cuda.jit
def matrix_add_doubled(a, b, c):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    j = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    c[j, i] = a[j, i] + doubled(b[j, i])


@cuda.jit
def window_average(x, out):
    i = cuda.grid(1)
    out[i] = (x[i] + x[i + 1] + x[i + 2]) / float32(3)


@cuda.jit
def window_average_shared(x, out):
    support = cuda.shared.array(HALO, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    support[t] = x[i]
    if t < 2:
        support[THREADS + t] = x[i + THREADS]
    cuda.syncthreads()
    total = float32(0)
    for k in range(3):
        total += support[t + k]
    out[i] = total / float32(3)


@cuda.jit
def block_sum_interleaved(x, out):
    s = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 1
    while step < 256:
        if t % (2 * step) == 0:  # interleaved
            s[t] += s[t + step]
        cuda.syncthreads()
        step *= 2
    if t == 0:
        cuda.atomic.add(out, 0, s[0])


@cuda.jit
def block_sum_sequential(x, out):
    s = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 128
    while step > 0:
        if t < step:  # sequential
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, s[0])


@cuda.jit
def block_sum_shuffled(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    value = x[cuda.grid(1)]
    step = 16
    while step > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        step //= 2
    if t % 32 == 0:
        s[t // 32] = value
    cuda.syncthreads()
    if t < 32:
        value = s[t] if t < cuda.blockDim.x // 32 else float32(0)
        step = 16
        while step > 0:
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
            step //= 2
        if t == 0:
            cuda.atomic.add(out, 0, value)


@cuda.jit
def transpose(x, out):
    i, j = cuda.grid(2)
    out[i, j] = x[j, i]


@cuda.jit
def transpose_shared(x, out):
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0, y0 = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    tile[ty, tx] = x[y0 + ty, x0 + tx]
    cuda.syncthreads()
    out[x0 + ty, y0 + tx] = tile[tx, ty]


@cuda.jit
def transpose_padded(x, out):
    tile = cuda.shared.array((32, PITCH), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0, y0 = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    tile[ty, tx] = x[y0 + ty, x0 + tx]
    cuda.syncthreads()
    out[x0 + ty, y0 + tx] = tile[tx, ty]


@cuda.jit
def matmul_naive(a, b, c):
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


@cuda.jit
def matmul_swapped(a, b, c):
    row, column = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


@cuda.jit
def matmul_tiled(a, b, c):
    a_tile, b_tile = (
        cuda.shared.array((TILE, TILE), float32),
        cuda.shared.array((TILE, TILE), float32),
    )
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for tile in range((a.shape[1] + TILE - 1) // TILE):
        k = tile * TILE
        a_tile[ty, tx] = a[row, k + tx] if row < a.shape[0] and k + tx < a.shape[1] else float32(0)
        b_tile[ty, tx] = (
            b[k + ty, column] if k + ty < b.shape[0] and column < b.shape[1] else float32(0)
        )
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1000])
def test_vector_add(n):
    x, y, out = random(n), random(n), np.zeros(n, np.float32)
    report = run(vector_add, (n + 127) // 128, 128, x, y, out)
    np.testing.assert_array_equal(out, x + y)
    warps = -(-n // 32)
    assert report.global_loads.requests == 2 * warps and report.global_loads.bytes == 8 * n
    assert report.global_loads.sectors == 2 * -(-n // 8) == 2 * report.global_stores.sectors
    assert report.divergent_branches == (n % 32 > 0) and not report.races
    assert report.flops == n


def test_matrix_add_doubled_on_72_threads():
    a, b, c = random(6, 12), random(6, 12), np.zeros((6, 12), np.float32)
    report = run(matrix_add_doubled, (3, 2), (4, 3), a, b, c)
    np.testing.assert_array_equal(c, (a.astype(float) + 2 * b.astype(float)).astype(np.float32))
    assert report.global_loads.bytes == 2 * 72 * 4


def test_window_average_from_56_sectors_to_17():
    x, out = random(8 * THREADS + 2), np.zeros(8 * THREADS, np.float32)
    want = (x[:-2] + x[1:-1] + x[2:]) / np.float32(3)
    naive = run(window_average, 8, THREADS, x, out)
    np.testing.assert_array_equal(out, want)
    shared = run(window_average_shared, 8, THREADS, x, out)
    np.testing.assert_array_equal(out, want)
    assert naive.global_loads.sectors == 8 * 56 and shared.global_loads.sectors == 8 * 17
    assert (
        not shared.races
        and shared.shared_loads.wavefronts == shared.shared_loads.requests == 8 * 12
    )


def test_block_sum_diverges_in_47_5_and_no_steps():
    x = random(1024)
    for kernel, branch, divergent in (
        (block_sum_interleaved, "# interleaved", 47),
        (block_sum_sequential, "# sequential", 5),
        (block_sum_shuffled, "while step > 0", 0),
    ):
        out = np.zeros(1, np.float32)
        report = run(kernel, 4, 256, x, out)
        np.testing.assert_allclose(out[0], x.sum(), rtol=1e-5)
        assert (
            sum(line.divergent_branches for line in report.lines if branch in line.text)
            == 4 * divergent
        )
        assert report.atomics == report.global_atomics.requests == 4 and not report.races
        assert report.shared_loads.wavefronts == report.shared_loads.requests


def test_transposes_of_64_by_64():
    x, out = random(64, 64), np.zeros((64, 64), np.float32)
    for kernel, store_sectors, load_wavefronts in (
        (transpose, 4096, 0),
        (transpose_shared, 512, 4096),
        (transpose_padded, 512, 128),
    ):
        report = run(kernel, (2, 2), (32, 32), x, out)
        np.testing.assert_array_equal(out, x.T)
        assert (
            report.global_stores.sectors == store_sectors
            and report.shared_loads.wavefronts == load_wavefronts
        )
        assert report.global_loads.sectors == 512 and not report.races


def test_matmuls_of_64_by_64():
    a, b, c = random(64, 64), random(64, 64), np.zeros((64, 64), np.float32)
    reports = [
        run(kernel, (4, 4), (16, 16), a, b, c)
        for kernel in (matmul_naive, matmul_swapped, matmul_tiled)
    ]
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert [report.global_loads.requests for report in reports] == [16384, 16384, 1024]
    assert [report.global_loads.sectors for report in reports] == [32768, 139264, 4096]
    assert [report.global_loads.bytes for report in reports] == [
        2 * 64**3 * 4,
        2 * 64**3 * 4,
        2 * 64**3 // TILE * 4,
    ]
    assert all(report.flops == 2 * 64**3 and not report.races for report in reports)


def test_swapped_indices_cost_6_6_times_in_blocks_of_32():
    a, b, c = random(64, 64), random(64, 64), np.zeros((64, 64), np.float32)
    naive, swapped = (
        run(kernel, (2, 2), (32, 32), a, b, c) for kernel in (matmul_naive, matmul_swapped)
    )
    assert swapped.global_loads.sectors / naive.global_loads.sectors == 6.6


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (17, 33, 5), (40, 16, 37)])
def test_matmul_of_odd_sizes(m, n, k):
    a, b = random(m, k), random(k, n)
    for kernel in (matmul_naive, matmul_tiled):
        c = np.full((m, n), np.nan, np.float32)
        report = run(kernel, (-(-n // TILE), -(-m // TILE)), (TILE, TILE), a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
        assert not report.races


# --- indices, control flow, arrays


def test_indices_in_three_dimensions():
    @cuda.jit
    def kernel(out, place):
        x, y, z = cuda.grid(3)
        width, height, depth = cuda.gridsize(3)
        if x < out.shape[2] and y < out.shape[1] and z < out.shape[0]:
            out[z, y, x] = x + width * (y + height * z)
            place[z, y, x] = (
                cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y
            ) * cuda.gridDim.x + cuda.blockIdx.x

    out, place = np.zeros((2, 3, 4, 5), np.int32)[:, :, :, :]
    run(kernel, (3, 2, 2), (2, 2, 2), out, place)
    z, y, x = np.indices(out.shape)
    np.testing.assert_array_equal(out, x + 6 * (y + 4 * z))
    np.testing.assert_array_equal(place, (z // 2 * 2 + y // 2) * 3 + x // 2)


def test_grid_stride_loop():
    @cuda.jit
    def kernel(x, out):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            out[i] = 2 * x[i]

    x, out = np.arange(1000), np.zeros(1000, np.int64)
    report = run(kernel, 2, 64, x, out)
    np.testing.assert_array_equal(out, 2 * x)
    assert report.global_loads.requests == 32 and report.divergent_branches == 1


def test_one_thread():
    @cuda.jit
    def kernel(x, out):
        for i in range(x.size):
            out[0] += x[i]

    x, out = np.arange(10.0), np.zeros(1)
    report = run(kernel, 1, 1, x, out)
    assert out[0] == 45 and report.global_loads.requests == report.global_loads.sectors == 20
    assert report.steps == report.all_steps


def test_work_on_one_thread_shows_in_the_steps_of_the_busiest_warp():
    @cuda.jit
    def serial(x, out):
        if cuda.grid(1) == 0:
            for i in range(x.size):
                out[i] = x[i]

    x, out = random(512), np.zeros(512, np.float32)
    assert run(serial, 4, 128, x, out).steps > 20 * run(vector_add, 4, 128, x, x, out).steps


def test_accesses_are_grouped_by_the_iterations_of_the_loops_around_them():
    @cuda.jit
    def one_by_one(x, out):
        i = cuda.grid(1)
        for q in range(32):
            if q == i:
                out[i] = x[i]

    @cuda.jit
    def late(x, out):
        i = cuda.grid(1)
        k = 0
        while k < i % 4:
            k += 1
        out[i] = x[i]

    x, out = random(32), np.zeros(32, np.float32)
    report = run(one_by_one, 1, 32, x, out)
    assert (
        report.global_loads.requests
        == report.global_stores.sectors
        == report.divergent_branches
        == 32
    )
    report = run(late, 1, 32, x, out)
    assert report.global_loads.requests == 1 and report.divergent_branches == 3


def test_loops_with_break_continue_and_early_return():
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i >= out.size:
            return
        total, k = 0, 0
        while True:
            k += 1
            if k % 2 == 0:
                continue
            if k > x[i]:
                break
            total += k
        for j in range(10, 0, -3):
            if j < 5:
                break
            total += j
        out[i] = total

    x = np.arange(20, dtype=np.int32)
    out = np.zeros(20, np.int64)
    report = run(kernel, 2, 16, x, out)
    assert out.tolist() == [sum(range(1, n + 1, 2)) + 17 for n in range(20)]
    assert report.global_stores.requests == 2


STEPS = (16, 8, 4, 2, 1)


def test_loops_over_tuples():
    @cuda.jit
    def warp_sum(x, out):
        value = x[cuda.grid(1)]
        for step in STEPS:
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        if cuda.threadIdx.x % 32 == 0:
            cuda.atomic.add(out, 0, value)

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        total = 0.0
        for length in x.shape:
            total += length
        for weight in (0.5, 0.25, 2.0, 4.0):
            if weight > 1:
                break
            total += weight * x[i, 0]
        places = (i, i + 1, 3)
        for k in places:
            if k == 2:
                continue
            places = (0, 0, 0)
            total += x[k, 1]
        out[i] = total

    x, out = np.arange(128, dtype=np.float32), np.zeros(1, np.float32)
    run(warp_sum, 2, 64, x, out)
    assert out[0] == 127 * 64
    x, out = rng.standard_normal((5, 7)), np.zeros(4)
    report = run(kernel, 1, 4, x, out)
    np.testing.assert_allclose(
        out, [12 + 0.75 * x[i, 0] + sum(x[k, 1] for k in (i, i + 1, 3) if k != 2) for i in range(4)]
    )
    assert report.global_loads.requests == 2 + 3


def test_short_circuits_do_not_load():
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size and x[i] > 0 or i == 70:
            out[0 if i == 70 else i] = x[i] if i < x.size else 5

    x, out = np.arange(64.0) - 32, np.zeros(64)
    report = run(kernel, 1, 128, x, out)
    assert out[0] == 5 and (out[33:] == x[33:]).all() and not out[1:33].any()
    assert report.line(report.lines[0].number).global_loads.requests == 2


def test_chained_comparison_and_boolean_arrays():
    @cuda.jit
    def kernel(x, inside, count):
        i = cuda.grid(1)
        inside[i] = 3 <= x[i] < 7
        flag = not inside[i]
        if flag & (i > 2) | False:
            cuda.atomic.add(count, 0, 1)

    x, inside, count = np.arange(10), np.zeros(10, bool), np.zeros(1, np.int32)
    run(kernel, 1, 10, x, inside, count)
    assert inside.tolist() == [3 <= i < 7 for i in range(10)] and count[0] == 3


def test_a_variable_set_on_one_path_only():
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            value = x[i]
        cuda.syncthreads()
        if i < x.size:
            out[i] = value  # pyrefly: ignore[unbound-name] - the same threads as above

    x, out = random(50), np.zeros(50, np.float32)
    run(kernel, 1, 64, x, out)
    np.testing.assert_array_equal(out, x)


def test_local_arrays_are_each_threads_own():
    @cuda.jit(device=True)
    def reverse(items, count):
        scratch = cuda.local.array(4, float64)
        for k in range(count):
            scratch[k] = items[count - 1 - k]
        for k in range(count):
            items[k] = scratch[k]

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        mine, other = cuda.local.array(4, float64), cuda.local.array((2, 2), int32)
        for k in range(4):
            mine[k] = x[i, k]
        other[1, 0] = i
        reverse(mine, 4)
        for k in range(4):
            out[i, k] = mine[k] + other[1, 0]

    x, out = random(40, 4, dtype=float), np.zeros((40, 4))
    report = run(kernel, 2, 20, x, out)
    np.testing.assert_array_equal(out, x[:, ::-1] + np.arange(40)[:, None])
    assert report.global_loads.requests == 8 and report.shared_loads.requests == 0


def test_dynamic_shared_memory_in_two_parts():
    @cuda.jit
    def kernel(x, out):
        everything = cuda.shared.array(0, float32)
        n, t = cuda.blockDim.x, cuda.threadIdx.x
        left, right = everything[:n], everything[n : 2 * n]
        left[t] = x[t]
        right[n - 1 - t] = x[t]
        cuda.syncthreads()
        out[t] = left[t] - right[t] + len(right) - right.shape[0] + everything.size

    x, out = random(48), np.zeros(48, np.float32)
    run(kernel, 1, 48, x, out, shared_bytes=2 * 48 * 4)
    np.testing.assert_allclose(out, x - x[::-1] + 96)
    out[:] = 0
    kernel[1, 48, 0, 2 * 48 * 4](x, out)
    np.testing.assert_allclose(out, x - x[::-1] + 96)


def test_pointers_swap_and_rows_are_arrays():
    @cuda.jit
    def kernel(x, out, steps):
        buffers = cuda.shared.array((2, 64), float32)
        now, then = buffers[0], buffers[1]
        t = cuda.threadIdx.x
        now[t] = x[t]
        cuda.syncthreads()
        for _ in range(steps):
            then[t] = now[t] + now[(t + 1) % 64]
            cuda.syncthreads()
            now, then = then, now
        out[t] = now[t]

    x = random(64)
    want = x.copy()
    for _ in range(5):
        want = want + np.roll(want, -1)
    out = np.zeros(64, np.float32)
    assert not run(kernel, 1, 64, x, out, 5).races
    np.testing.assert_array_equal(out, want)


def test_device_functions_return_numbers_and_tuples():
    @cuda.jit(device=True)
    def divided(a, b):
        if b == 0:
            return 0, a
        return a // b, a % b

    @cuda.jit(device=True)
    def store(out, i, value):
        out[i] = value

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        quotient, rest = divided(x[i], i % 5)
        store(out, (i, 0), quotient)
        store(out, (i, 1), rest)
        out[i, 2] = divided(x[i], 7)[1]

    x, out = np.arange(100, 140), np.zeros((40, 3), np.int64)
    run(kernel, 1, 40, x, out)
    assert out.tolist() == [
        [a // (i % 5) if i % 5 else 0, a % (i % 5) if i % 5 else a, a % 7]
        for i, a in enumerate(x.tolist())
    ]


def test_constants_scalars_and_constant_arrays():
    @cuda.jit
    def kernel(out, scale, shift, flag):
        table = cuda.const.array_like(TABLE)
        grid = cuda.shared.array(SHAPE, int32)
        i = cuda.grid(1)
        grid[i // 8, i % 8] = i
        out[i] = (
            table[i % 4] * scale
            + shift
            + (1 if flag else 0)
            + grid[i // SHAPE[1], i % SHAPE[1]]
            + math.pi * 0
        )

    out = np.zeros(32)
    report = run(kernel, 1, 32, out, np.float32(0.5), 3, True)
    np.testing.assert_allclose(out, np.resize(TABLE, 32) * 0.5 + 4 + np.arange(32))
    assert report.constant_loads.requests == 1 and report.constant_loads.bytes == 128


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ],
)
def test_arrays_of_every_dtype(dtype):
    @cuda.jit
    def copy(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i]

    x = (
        np.frombuffer(rng.bytes(8 * 100), dtype)[:100]
        if dtype[0] in "iu"
        else random(100).astype(dtype)
    )
    out = np.zeros_like(x)
    report = run(copy, 1, 128, x, out)
    np.testing.assert_array_equal(out, x)
    assert report.global_loads.sectors == -(-100 * x.itemsize // 32)


def test_torch_tensors_and_strides():
    @cuda.jit
    def copy(x, out):
        column, row = cuda.grid(2)
        out[row, column] = x[row, column]

    x, out = torch.randn(32, 32), torch.zeros(32, 32)
    report = simt.count(copy, 1, (32, 32), x, out)
    assert torch.equal(x, out) and report.global_loads.sectors == 128
    report = simt.count(copy, 1, (32, 32), x.t(), out)
    assert torch.equal(x.t(), out) and report.global_loads.sectors == 1024
    longer = torch.randn(33 * 32 + 1)
    report = simt.count(copy, 1, (32, 32), longer[1 : 1 + 32 * 32].view(32, 32), out)
    assert (
        report.global_loads.sectors == 32 * 5
    )  # a view keeps its place in its allocation: each row straddles a sector
    copy[1, (32, 32)](torch.ones(1, 32).expand(32, 32), out)
    assert (out == 1).all()


def test_a_part_of_a_device_array_keeps_its_place_and_a_part_of_a_numpy_array_begins_anew():
    @cuda.jit
    def copy(x, out):
        i = cuda.grid(1)
        out[i] = x[i]

    x, out = np.arange(33, dtype=np.float32), cuda.device_array(32, np.float32)
    assert simt.count(copy, 1, 32, x[1:], out).global_loads.sectors == 4
    assert simt.count(copy, 1, 32, cuda.to_device(x)[1:], out).global_loads.sectors == 5
    assert (
        out.copy_to_host().tolist() == x[1:].tolist()
        and np.isnan(cuda.device_array_like(out).copy_to_host()).all()
    )


def test_arrays_that_share_memory():
    @cuda.jit
    def shift(x, out):
        i = cuda.grid(1)
        value = x[i]
        cuda.syncthreads()
        out[i] = value

    x = np.arange(33.0)
    report = simt.count(shift, 1, 32, x[:-1], x[1:])
    assert x.tolist() == [0, *range(32)] and not report.races
    x = np.arange(8.0)
    vector_add[1, 8](x, x[::-1], x)  # threads of one warp run in order
    assert x[0] == 7


def test_numbas_own_dispatcher():
    @numba_cuda.jit(device=True)
    def twice(value):
        return value + value

    @numba_cuda.jit
    def kernel(x, out):
        i = numba_cuda.grid(1)  # pyrefly: ignore[missing-argument] - Numba's stub is wrong
        if i < out.size:
            out[i] = twice(x[i]) * numba.float32(3)

    x, out = random(40), np.zeros(40, np.float32)
    report = simt.count(kernel, 2, 32, x, out)
    np.testing.assert_array_equal(out, 2 * x * 3)
    assert report.global_loads.sectors == 5


# --- barriers, warps, atomics


def test_counting_barriers():
    @cuda.jit
    def kernel(x, out):
        t = cuda.threadIdx.x
        out[t, 0] = cuda.syncthreads_count(int(x[t] > 0))
        out[t, 1] = cuda.syncthreads_and(int(x[t] > -9))
        out[t, 2] = cuda.syncthreads_or(int(x[t] > 9))

    x, out = random(70), np.zeros((70, 3), np.int32)
    run(kernel, 1, 70, x, out)
    assert (out == [(x > 0).sum(), 1, 0]).all()


def test_shuffles():
    @cuda.jit
    def kernel(x, out):
        t = cuda.threadIdx.x
        out[0, t] = cuda.shfl_sync(0xFFFFFFFF, x[t], 5)
        out[1, t] = cuda.shfl_up_sync(0xFFFFFFFF, x[t], 2)
        out[2, t] = cuda.shfl_down_sync(-1, x[t], 3)
        out[3, t] = cuda.shfl_xor_sync(-1, x[t], 1)
        if t % 32 < 8:
            out[4, t] = cuda.shfl_xor_sync(0xFF, x[t], 4)

    x, out = random(64), np.zeros((5, 64), np.float32)
    run(kernel, 1, 64, x, out)
    t = np.arange(64)
    lane, base = t % 32, t - t % 32
    for row, source in enumerate(
        (
            0 * lane + 5,
            np.where(lane < 2, lane, lane - 2),
            np.where(lane > 28, lane, lane + 3),
            lane ^ 1,
        )
    ):
        np.testing.assert_array_equal(out[row], x[base + source])
    np.testing.assert_array_equal(out[4], np.where(lane < 8, x[base + (lane ^ 4)], 0))


def test_votes_matches_and_bits():
    @cuda.jit
    def kernel(x, out):
        t = cuda.threadIdx.x
        out[0, t] = cuda.ballot_sync(0xFFFFFFFF, x[t] > 2)
        out[1, t] = cuda.any_sync(0xFFFFFFFF, x[t] > 2)
        out[2, t] = cuda.all_sync(0xFFFFFFFF, x[t] < 4)
        out[3, t] = cuda.eq_sync(0xFFFFFFFF, x[t] > 9)
        out[4, t] = cuda.match_any_sync(0xFFFFFFFF, x[t])
        mask, same = cuda.match_all_sync(0xFFFFFFFF, x[t])
        out[5, t] = mask + same
        cuda.syncwarp()
        out[6, t] = (
            cuda.popc(x[t])
            + 10 * cuda.ffs(x[t])
            + 100 * cuda.clz(x[t])
            + cuda.laneid * 1000
            + cuda.warpsize
        )

    x, out = np.resize(np.arange(5, dtype=np.int32), 32), np.zeros((7, 32), np.int64)
    run(kernel, 1, 32, x, out)
    ballot = sum(1 << i for i in range(32) if x[i] > 2)
    assert (
        (out[0].astype(np.uint32) == ballot).all()
        and (out[1:4] == [[1], [0], [1]]).all()
        and (out[5] == 0).all()
    )
    assert out[4].astype(np.uint32).tolist() == [
        sum(1 << j for j in range(32) if x[j] == x[i]) for i in range(32)
    ]
    assert out[6].tolist() == [
        v.bit_count() + 10 * (v & -v).bit_length() + 100 * (32 - v.bit_length()) + 1000 * i + 32
        for i, v in enumerate(x.tolist())
    ]


@pytest.mark.parametrize("dtype", ["int32", "uint64", "float32"])
def test_atomics(dtype):
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        cuda.atomic.add(out, 0, x[i])
        cuda.atomic.sub(out, 1, x[i])
        cuda.atomic.max(out, 2, x[i])
        cuda.atomic.min(out, (3,), x[i])

    x = rng.integers(1, 100, 96).astype(dtype)
    out = np.array([0, 50_000, 3, 40], dtype)
    report = run(kernel, 3, 32, x, out)
    assert out.tolist() == [x.sum(), 50_000 - x.sum(), x.max(), min(40, x.min())]
    assert report.atomics == 4 * 96 and report.global_atomics.requests == 12 and not report.races


def test_atomics_on_bits_and_returned_values():
    @cuda.jit
    def kernel(out, tickets, swapped):
        s = cuda.shared.array(1, int32)
        t = cuda.threadIdx.x
        if t == 0:
            s[0] = 0
        cuda.syncthreads()
        tickets[t] = cuda.atomic.add(s, 0, 1)
        cuda.atomic.or_(out, 0, 1 << (t % 8))
        cuda.atomic.and_(out, 1, ~(1 << (t % 4)))
        cuda.atomic.xor(out, 2, t)
        cuda.atomic.inc(out, 3, 9)
        cuda.atomic.dec(out, 4, 9)
        cuda.atomic.exch(out, 5, t)
        cuda.atomic.cas(out, 6, 7, t + 100)
        cuda.atomic.compare_and_swap(swapped, 3, t)

    swapped = np.array([3], np.int32)
    out, tickets = np.array([0, 255, 0, 0, 3, 0, 7], np.uint32), np.zeros(64, np.int64)
    report = run(kernel, 1, 64, out, tickets, swapped)
    assert sorted(tickets) == list(range(64)) and report.shared_atomics.requests == 2
    assert swapped[0] != 3
    assert out[:5].tolist() == [255, 240, 0, 4, 9] and out[5] < 64 and 100 <= out[6] < 164


@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_warps_is_drawn_from_a_seed(seed):
    @cuda.jit
    def kernel(order, ticket):
        if cuda.threadIdx.x % 32 == 0:
            order[cuda.atomic.add(ticket, 0, 1)] = cuda.grid(1) // 32

    orders = []
    for _ in range(2):
        order, ticket = np.zeros(16, np.int64), np.zeros(1, np.int64)
        kernel.launch(4, 128, order, ticket, seed=seed)
        orders.append(order.tolist())
    assert orders[0] == orders[1] != list(range(16)) and sorted(orders[0]) == list(range(16))


# --- counts against a count by hand


@cuda.jit
def gather(index, x, out):
    s = cuda.shared.array(4096, int64)
    t = cuda.threadIdx.x
    for k in range(t, 4096, cuda.blockDim.x):
        s[k] = k
    cuda.syncthreads()
    out[t] = x[index[t]] + s[index[t]]


@cuda.jit
def gather_32_bits(index, x, out):
    s = cuda.shared.array(4096, int32)
    t = cuda.threadIdx.x
    for k in range(t, 4096, cuda.blockDim.x):
        s[k] = k
    cuda.syncthreads()
    out[t] = x[index[t]] + s[index[t]]


def wavefronts_by_hand(places, words):
    """The wavefronts of a warp instruction whose thread i accesses element places[i].

    words: how many an element has, one or two.
    """

    def passes(places):
        touched = {int(place) * words + half for place, half in product(places, range(words))}
        return max(sum(word % 32 == bank for word in touched) for bank in range(32))

    paired = any(
        all(i ^ bit >= len(places) or places[i] == places[i ^ bit] for i in range(len(places)))
        for bit in (1, 2)
    )
    if words == 1 or paired or len(places) <= 16:
        return passes(places)
    return passes(places[:16]) + passes(places[16:])


@given(
    st.lists(st.integers(0, 4095), min_size=1, max_size=100),
    st.sampled_from(["int16", "float32", "float64"]),
    st.sampled_from([0, 1, 2]),
)
@settings(max_examples=25)
def test_sectors_and_wavefronts_of_any_pattern(index, dtype, shared_bit):
    index = np.array(index)[
        np.arange(len(index)) & ~shared_bit
    ]  # threads i and i ^ shared_bit want the same element
    x, out = np.zeros(4096, dtype), np.zeros(len(index))
    warps = [index[first : first + 32] for first in range(0, len(index), 32)]
    sectors = sum(len({int(i) * x.itemsize // 32 for i in warp}) for warp in warps)
    for kernel, words in ((gather_32_bits, 1), (gather, 2)):
        report = simt.count(kernel, 1, len(index), index, x, out)
        line = report.lines[-1]
        assert line.shared_loads.wavefronts == sum(
            wavefronts_by_hand(warp, words) for warp in warps
        )
        assert (
            line.global_loads.sectors - sum(-(-len(warp) * 8 // 32) for warp in warps) * 2
            == sectors
        )


def test_counts_do_not_depend_on_the_seed_nor_on_when_logs_are_counted(monkeypatch):
    a, b, c = random(32, 48), random(48, 32), np.zeros((32, 32), np.float32)
    one = simt.count(matmul_tiled, (2, 2), (16, 16), a, b, c, seed=1)
    monkeypatch.setattr("nogpu.simt.counters.FLUSH_AT", 0)
    other = simt.count(matmul_tiled, (2, 2), (16, 16), a, b, c, seed=2)
    assert one.lines == other.lines and one.steps == other.steps and one.races == other.races == []


def test_the_report_is_a_table():
    x, out = random(258), np.zeros(256, np.float32)
    text = str(simt.count(window_average_shared, 2, THREADS, x, out))
    assert "window_average_shared: grid 2, blocks of 128 threads" in text and "no races" in text
    assert "support[t] = x[i]" in text and "shared loads" in text and "2 divergent branches" in text
    report = simt.count(window_average_shared, 2, THREADS, x, out)
    number = report.lines[0].number
    assert (
        report.line(number).global_loads.sectors == 32
        and report.line(number).shared_stores.requests == 8
    )
    with pytest.raises(ValueError, match="line 1 accesses no memory"):
        report.line(1)


def test_a_kernel_from_its_text_alone():
    text = '''
import math
from numba import cuda, float32
import numpy as np

SCALE = 2 * 3 - 1
HALF = np.float32
ROW = (2, SCALE)

@cuda.jit(device=True)
def scaled(value):
    """A device function."""
    return value * float32(SCALE)

@cuda.jit
def kernel(x, out):
    """Five times x, and what the grader says."""
    s = cuda.shared.array(ROW, HALF)
    i = cuda.grid(1)
    if i < out.size:
        s[0, i % 5] = 0
        out[i] = scaled(x[i]) + EXTRA
'''
    kernel = simt.compile_source(text, "kernel", {"EXTRA": 7})
    x, out = random(5), np.zeros(5, np.float32)
    report = simt.count(kernel, 1, 32, x, out)
    np.testing.assert_allclose(out, 5 * x + 7, rtol=1e-6)
    assert report.global_loads.requests == 1 and report.lines[0].number == 20


def test_an_int64_and_a_uint64_meet_as_a_float64():
    @cuda.jit
    def kernel(out, i, u):
        out[0] = i if out[0] > 0 else u
        out[1] = min(i, u)
        out[2] = i and u

    out = np.ones(3)
    kernel[1, 1](out, -3, np.uint64(5))
    assert out.tolist() == [-3, -3, 5]


def test_a_changed_constant_is_seen():
    text = "def kernel(out):\n    out[0] = STEP\n"
    constants = {"STEP": 1}
    kernel, out = simt.compile_source(text, "kernel", constants), np.zeros(1)
    kernel[1, 1](out)
    # pyrefly: ignore[missing-attribute] - a bound method
    kernel.function.lookup.__self__.constants["STEP"] = 2
    kernel[1, 1](out)
    assert out[0] == 2


def test_the_translated_kernel_can_be_read():
    x = random(40)
    text = vector_add.translated(2, 32, x, x, x)
    assert "v_i" in text and "places" in text and text.startswith("def call0(")


def test_a_report_crosses_to_another_process():
    @cuda.jit
    def kernel(x, out):
        s = cuda.shared.array(64, float32)
        s[cuda.threadIdx.x] = x[cuda.grid(1)]
        out[cuda.grid(1)] = s[63 - cuda.threadIdx.x]

    report = simt.count(kernel, 2, 64, random(128), np.zeros(128))
    other = simt.Report.from_dict(json.loads(json.dumps(report.as_dict())))
    assert (
        other.as_dict() == report.as_dict()
        and str(other) == str(report)
        and other.races == report.races
    )
    assert other.lines == report.lines and other.global_loads == report.global_loads
    assert str(report).count(" total ") == 1


def test_figures_of_sectors_banks_and_addresses():
    x, out = random(64, 64), np.zeros((64, 64), np.float32)
    report = simt.count(transpose_shared, (2, 2), (32, 32), x, out, traced_block=3)
    load = next(line.number for line in report.lines if "= tile[tx, ty]" in line.text)
    bank_axes, sector_axes = report.draw(load)
    assert "takes 32 wavefronts" in texts(bank_axes) and "touches 4 sectors" in texts(sector_axes)
    assert "byte 8,320" in texts(sector_axes)  # block 3 begins at out[32, 32]
    assert "128 of 128 bytes used" in texts(sector_axes)
    naive = simt.count(transpose, (2, 2), (32, 32), x, out)
    assert "touches 32 sectors" in texts(naive.draw()[1]) and "128 of 1024 bytes used" in texts(
        naive.draw()[1]
    )
    assert [ax.get_title() for ax in naive.draw(whole_block=True)] == [
        "x: loads of a block",
        "out: stores of a block",
    ]
    doubles = simt.count(gather, 1, 32, np.arange(32), random(64, dtype=float), np.zeros(32))
    assert any("takes 2 wavefronts" in texts(ax) for ax in doubles.draw(doubles.lines[-1].number))
    pairs = simt.count(gather, 1, 32, np.arange(32) // 2, random(64, dtype=float), np.zeros(32))
    assert any("takes 1 wavefront " in texts(ax) for ax in pairs.draw(pairs.lines[-1].number))
    with pytest.raises(ValueError, match="line 1 accesses no memory in the traced block"):
        report.draw(1)
    with pytest.raises(ValueError, match="there is no request 5"):
        report.draw(load, request=5)
    plt.close("all")


def texts(ax):
    return " | ".join(text.get_text() for text in ax.texts)


def test_a_device_functions_accesses_belong_to_the_place_it_is_called_from():
    @cuda.jit(device=True)
    def total(x, first, count):
        result = float32(0)
        for k in range(count):
            result += x[first + k]
        return result

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        for q in range(2):
            out[i] = total(x, i, 3) + total(x, q, 2)

    x, out = random(40), np.zeros(32, np.float32)
    report = run(kernel, 1, 32, x, out)
    np.testing.assert_allclose(out, x[:32] + x[1:33] + x[2:34] + x[1] + x[2], rtol=1e-5)
    assert report.global_loads.requests == 2 * (3 + 2) and report.global_loads.sectors == 2 * (
        4 + 5 + 5 + 1 + 1
    )
    assert report.lines[0].function == "kernel" and report.lines[-1].function == "total"


def test_accesses_in_the_condition_of_a_loop():
    @cuda.jit
    def lower_bound(x, wanted, out):
        i = cuda.grid(1)
        k = 0
        while k < x.size and x[k] < wanted[i]:
            k += 1
        out[i] = k

    x, wanted, out = np.arange(10.0), np.array([0.0, 3.5, 99.0]), np.zeros(3)
    report = run(lower_bound, 1, 3, x, wanted, out)
    assert (
        out.tolist() == [0, 4, 10]
        and report.line(report.lines[0].number).global_loads.requests == 2 * 10
    )
