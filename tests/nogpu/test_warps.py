"""What the warps of a compiled kernel request, and whether running its PTX does what it does."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from common.hardware import device

device.prepare_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from nogpu import tiles  # noqa: E402
from nogpu.kernels.errors import KernelError  # noqa: E402
from nogpu.tiles import warps  # noqa: E402


@triton.jit
def shifted(x, out, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i + SHIFT))


@triton.jit
def strided(x, out, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + STEP * i))


@triton.jit
def gathered(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.load(index + i, mask=i < n, other=0)), mask=i < n)


@triton.jit
def rows(x, y, columns, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + j, mask=j < columns, other=0)
    total = tl.sum(v, 0)
    most = tl.max(v, 0)
    where = tl.argmax(v, 0)
    tl.store(y + row * columns + j, tl.cumsum(v, 0) * 3 + total - most + where, mask=j < columns)


@triton.jit
def turned(x, y, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (i < m)[:, None] & (j < n)[None, :]
    tile = tl.load(x + i[:, None] * n + j[None, :], mask=inside, other=0)
    tl.store(y + j[:, None] * m + i[None, :], tl.trans(tile), mask=tl.trans(inside))


@triton.jit
def counted(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(out + v % 7, v, mask=i < n)
    tl.atomic_max(out + 7, tl.max(v, 0))


@triton.jit
def mixed(a, b):
    return (a ^ (b << 3)) + a // (b | 1) - (a % (b | 1)) * tl.where(a > b, a, -b)


@triton.jit
def looped(x, y, out, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    for k in range(program, n, 2):
        a, b = tl.load(x + k * BLOCK + i), tl.load(y + k * BLOCK + i)
        total += mixed(a, b)
        if k % 3 == 1:
            total = tl.flip(total, 0) + (a >> 1)
    tl.store(out + program * BLOCK + i, tl.sort(total))


@triton.jit
def numbers(x, y, out, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    c = a * scale + tl.maximum(a, b) / 8 - tl.abs(b)
    place = i ^ (c.to(tl.int32) & 3)
    tl.store(out + place, c.to(tl.int32).to(tl.float32) + (a < b).to(tl.float32))


@triton.jit
def product(
    a, b, c, M, N, K, stride_am, stride_bk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(
            a + m[:, None] * stride_am + (start + k)[None, :],
            mask=(m < M)[:, None] & (start + k < K)[None, :],
            other=0.0,
        )
        y = tl.load(
            b + (start + k)[:, None] * stride_bk + n[None, :],
            mask=(start + k < K)[:, None] & (n < N)[None, :],
            other=0.0,
        )
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def copied_rows(x, y, columns, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + j, mask=j < columns, other=0)
    tl.store(y + row * columns + j, v, mask=j < columns)


@triton.jit
def permuted_in_place(index, x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    j = tl.load(index + i)
    tl.store(index + i, (tl.load(x + j)).to(tl.int32))


@triton.jit
def addressed_by_dot(a, x, out):
    i = tl.arange(0, 16)
    tile = tl.load(a + i[:, None] * 16 + i[None, :])
    place = tl.dot(tile, tile).to(tl.int32)
    tl.store(out + i[:, None] * 16 + i[None, :], tl.load(x + place))


@triton.jit
def by_descriptor(x, out):
    i = tl.arange(0, 16)
    tl.store(out + i[:, None] * 16 + i[None, :], x.load([0, 0]))


def whole(
    *shape: int, low: int = -1000, high: int = 1000, dtype: Any = torch.int32
) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def zeros(*shape: int, dtype: Any = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def sectors(addresses: np.ndarray, lanes: int = 32) -> int:
    """The distinct sectors of each warp, from the bytes that its lanes' instruction begins at."""
    return sum(len(np.unique(warp // 32)) for warp in addresses.reshape(-1, lanes))


CASES: dict[str, tuple[Any, tuple[int, ...], list[Any], dict[str, Any]]] = {
    "shifted": (shifted, (3,), [whole(800), zeros(768)], {"BLOCK": 256, "SHIFT": 5}),
    "bytes": (strided, (2,), [whole(2048, low=0, high=99, dtype=torch.int8),
                              zeros(1024, dtype=torch.int8)], {"BLOCK": 512, "STEP": 2}),
    "wide": (strided, (2,), [whole(512, dtype=torch.int64), zeros(512, dtype=torch.int64)],
             {"BLOCK": 256, "STEP": 1}),
    "gathered": (gathered, (2,), [whole(500), whole(300, low=0, high=500), zeros(300), 300],
                 {"BLOCK": 256}),
    "rows": (rows, (5,), [whole(5, 100), zeros(5, 100), 100], {"BLOCK": 128}),
    "turned": (turned, (2, 3), [whole(40, 70), zeros(70, 40), 40, 70],
               {"BLOCK_M": 32, "BLOCK_N": 32}),
    "counted": (counted, (3,), [whole(700, low=0), zeros(8), 700], {"BLOCK": 256}),
    "looped": (looped, (3,), [whole(6, 64), whole(6, 64), zeros(3, 64), 6], {"BLOCK": 64}),
    "numbers": (numbers, (2,), [whole(512).float(), whole(512, high=9).float(),
                                zeros(512).float(), 2.5], {"BLOCK": 256}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 120])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("name", CASES)
def test_running_the_ptx_leaves_what_the_kernel_leaves(
    name: str, num_warps: int, capability: int
) -> None:
    kernel, grid, arguments, constants = CASES[name]
    arguments = [each.clone() if torch.is_tensor(each) else each for each in arguments]
    constants = constants | {"num_warps": num_warps, "capability": capability}
    report = tiles.count(kernel, grid, *arguments, seed=1, **constants)
    launched: warps.Launched = report.compile.__self__  # type: ignore[union-attr]
    _, _, held = launched.run()
    tensors = [each for each in arguments if torch.is_tensor(each)]
    for argument, tensor in zip(held.memory.arguments, tensors, strict=True):
        assert not held.unknown[argument].any()
        assert held.held[argument].tobytes() == tensor.numpy().tobytes(), argument.name


def test_an_offset_of_one_element_costs_four_times_the_requests() -> None:
    x, out = torch.zeros(4097), torch.zeros(4096)
    aligned, shift = (
        tiles.count(shifted, (4,), x, out, BLOCK=1024, SHIFT=shift).compiled for shift in (0, 1)
    )
    assert (aligned.loads.requests, aligned.loads.sectors) == (32, 512)
    # Nsight Compute on an H200 counts 2,080 sectors, too.
    assert (shift.loads.requests, shift.loads.sectors) == (128, 2080)
    assert shift.stores == aligned.stores


def test_a_view_that_begins_one_element_later_is_not_aligned() -> None:
    x, out = torch.zeros(4097), torch.zeros(4096)
    view = tiles.count(shifted, (4,), x[1:], out, BLOCK=1024, SHIFT=0).compiled
    assert (view.loads.requests, view.loads.sectors) == (128, 2080)


def test_a_stride_of_three_needs_a_sector_per_element() -> None:
    x, out = torch.zeros(3 * 4096), torch.zeros(4096)
    report = tiles.count(strided, (4,), x, out, STEP=3, BLOCK=1024).compiled
    assert (report.loads.requests, report.loads.sectors) == (128, 4096)  # as Nsight Compute counts


def test_rows_that_are_not_aligned() -> None:
    x, y = torch.zeros(8, 1001), torch.zeros(8, 1001)
    report = tiles.count(copied_rows, (8,), x, y, 1001, BLOCK=1024).compiled
    assert report.loads.sectors == 1225  # as Nsight Compute counts
    assert report.array("x").loads == report.loads


def test_each_warp_requests_what_its_threads_hold() -> None:
    """A gather by a random index: the sectors, counted from the index alone."""
    x, out = torch.zeros(4096), torch.zeros(4096)
    index = torch.randperm(4096, generator=torch.Generator().manual_seed(3)).to(torch.int32)
    report = tiles.count(gathered, (4,), x, index, out, 4096, BLOCK=1024).compiled
    # A thread holds four neighbours, at 4 t and at 512 + 4 t; each neighbour is a request.
    lanes = index.numpy().reshape(4, 2, 4, 32, 4).transpose(0, 1, 2, 4, 3)
    assert report.array("x").loads.sectors == sectors(lanes * 4)
    assert report.array("index").loads.requests == 32


@pytest.mark.parametrize("num_warps", [4, 8])
def test_the_tiles_of_a_product_are_copied_ahead(num_warps: int) -> None:
    a, b, c = torch.zeros(128, 64).half(), torch.zeros(64, 128).half(), torch.zeros(128, 128)
    sizes = {"BM": 64, "BN": 64, "BK": 32, "num_warps": num_warps}
    report = tiles.count(product, (2, 2), a, b, c, 128, 128, 64, 64, 128, **sizes).compiled
    assert report.loads.requests == 0
    assert report.copies.bytes == 4 * 2 * 2 * 64 * 32 * 2  # programs, steps, operands
    assert report.copies.requests * 32 * 16 == report.copies.bytes
    assert report.stores.sectors * 32 == c.nbytes
    odd = torch.zeros(128, 65).half()  # rows that begin anywhere: element by element
    report = tiles.count(product, (2, 2), odd, b, c, 128, 128, 64, 65, 128, **sizes).compiled
    assert report.array("a").copies.requests == 0
    assert report.array("a").loads.requests * 32 * 2 == report.array("a").loads.bytes


def test_lines_are_those_of_the_text_as_written() -> None:
    x, y, z = whole(6, 64), whole(6, 64), zeros(3, 64)
    report = tiles.count(looped, (3,), x, y, z, 6, BLOCK=64)
    assert {(each.line, each.array, each.kind) for each in report.compiled.accesses} == {
        (each.line, each.array, each.kind) for each in report.accesses
    }


def test_the_counts_cross_as_data() -> None:
    x, out = torch.zeros(800), torch.zeros(768)
    options = {"BLOCK": 256, "SHIFT": 5, "num_warps": 2, "capability": 80}
    report = tiles.count(shifted, (3,), x, out, compiled=True, **options)
    again = tiles.Report.from_dict(json.loads(json.dumps(report.as_dict())))
    assert again.compiled == report.compiled
    assert (report.compiled.num_warps, report.compiled.capability) == (2, 80)
    assert "3 programs of 2 warps" in str(report.compiled)
    lazy = tiles.Report.from_dict(tiles.count(shifted, (3,), x, out, **options).as_dict())
    with pytest.raises(ValueError, match="does not hold its launch"):
        _ = lazy.compiled


def test_what_the_kernel_did_does_not_change_the_count() -> None:
    index = torch.arange(512, dtype=torch.int32)
    report = tiles.count(permuted_in_place, (1,), index, torch.zeros(512), BLOCK=512)
    assert (index == 0).all()
    assert report.compiled.array("x").loads.sectors == 256  # and not 4: j is not 0


def test_an_address_made_of_a_product_is_refused() -> None:
    a = torch.zeros(16, 16).half()
    report = tiles.count(addressed_by_dot, (1,), a, torch.zeros(256), torch.zeros(256))
    with pytest.raises(
        KernelError, match=r"addressed_by_dot, line \d+ .*compiled: an address depends"
    ):
        _ = report.compiled


def test_a_tensor_descriptor_is_refused() -> None:
    a = torch.zeros(64, 64)
    described = (a, [64, 64], [64, 1], [16, 16])
    report = tiles.count(by_descriptor, (1,), described, torch.zeros(16, 16))
    with pytest.raises(KernelError, match="x is a tensor descriptor: the GPU's copy engine"):
        _ = report.compiled


@triton.jit
def logged(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.log(tl.sum(tl.load(x + i), 0)) + i)


def test_a_branch_that_only_computes_need_not_be_known():
    report = tiles.count(logged, (1,), torch.ones(256), torch.zeros(256), BLOCK=256)
    assert (report.compiled.loads.sectors, report.compiled.stores.sectors) == (32, 32)


def test_lanes_that_update_one_address_take_turns():
    """As on the hardware: an address that three lanes update counts for three."""
    x = whole(256, low=0, high=700)
    report = tiles.count(counted, (1,), x, zeros(8), 256, BLOCK=256, num_warps=1).compiled
    line = next(each for each in report.accesses if each.kind == "atomic")
    turns = [np.bincount(warp % 7).max() for warp in x.numpy().reshape(-1, 32)]
    assert line.traffic.requests == len(turns)
    assert line.traffic.sectors == sum(turns)  # all seven lie in one sector


def test_16_bit_floats_are_added_by_compare_and_swap():
    x, out = torch.ones(300).half(), torch.zeros(300).half()
    report = tiles.count(added_to, (1,), x, out, 299, BLOCK=512, num_warps=8).compiled
    assert report.array("out").loads.requests == report.atomics.requests > 0


@triton.jit
def added_to(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + i, mask=i < n), mask=i < n)


def test_copies_that_are_masked_off_are_instructions_and_no_requests():
    a, b, c = torch.zeros(128, 32).half(), torch.zeros(32, 128).half(), torch.zeros(128, 128)
    sizes = {"BM": 64, "BN": 64, "BK": 32, "num_stages": 3}  # one step; two more are fetched ahead
    report = tiles.count(product, (2, 2), a, b, c, 128, 128, 32, 32, 128, **sizes).compiled
    assert (report.copies.requests, report.copies.empty) == (64, 2 * 64)
