"""Lab 04's softmax of rows that begin anywhere: right, and with few requests of 16 bytes."""

from typing import Any

import pytest
import torch

from common.hardware import device

device.prepare_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from benchmarks.solved import solved  # noqa: E402
from nogpu import tiles  # noqa: E402


@pytest.fixture(scope="module")
def lab() -> dict[str, Any]:
    return solved("04")


def random(rows, columns, dtype, gap=0):
    x = torch.randn(rows, columns + gap, generator=torch.Generator().manual_seed(1)).to(dtype)
    return x[:, :columns]


@pytest.mark.parametrize("columns", [5, 37, 100, 250, 1001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_any_length(lab, dtype, columns):
    x = random(9, columns, dtype)
    x[2, : columns // 2], x[4] = -torch.inf, 1e4
    room = torch.full((11, columns), 7.0, dtype=dtype)
    each, whole = lab["vectors"](x)
    lab["launch_anywhere"](x, room[1:10], each, whole)
    torch.testing.assert_close(room[1:10], torch.softmax(x, 1))
    assert (room[0] == 7).all() and (room[10] == 7).all()


def test_rows_with_gaps(lab):
    x = random(9, 104, torch.bfloat16, gap=24)
    assert lab["vectors"](x) == (8, True)
    y = torch.empty(9, 104).bfloat16()
    lab["launch_anywhere"](x, y, 8, True)
    torch.testing.assert_close(y, torch.softmax(x, 1))


@triton.jit
def power_of_2(x, FAST: tl.constexpr):
    return tl.exp2(x)


@triton.jit
def joined(told, part, maximum, total, parts, WIDE: tl.constexpr, EARLY: tl.constexpr):
    return maximum, total


def test_loads_of_16_bytes_are_few(lab, monkeypatch):
    # What the counter does not know: machine instructions, and programs that wait for each other.
    monkeypatch.setitem(lab, "power_of_2", power_of_2)
    monkeypatch.setitem(lab, "joined", joined)
    x, y = random(16, 1001, torch.bfloat16), torch.empty(16, 1001).bfloat16()
    assert lab["vectors"](x) == (8, False)
    assert lab["split"](1000, 2, 8, False) == (1, 1, 256, 4, 1)
    sizes = {"WIDE": 1, "ROWS": 1, "BLOCK": 256, "PIECES": 4, "EACH": 8, "EDGES": True}
    given = x, y, x, 1001, 1001, 16, 1001, 1
    kernels: dict[str, tuple[tuple, dict[str, Any]]] = {
        "softmax_anywhere": (given, {**sizes, "EARLY": False, "FAST": False, "num_warps": 1}),
        "softmax_tile": ((x, y, 1001, 1001, 16, 1001), {"ROWS": 1, "BLOCK": 1024, "num_warps": 4}),
    }
    anywhere, tile = (
        tiles.count(lab[name], (16,), *given, **constants).compiled
        for name, (given, constants) in kernels.items()
    )
    assert tile.loads.requests == tile.stores.requests == 16 * 32
    assert anywhere.stores.requests == 16 * (4 + 1)  # middle and edges
    edges = 2 if triton.__version__.startswith("3.6.") else 1  # Triton 3.6 loads them twice
    assert anywhere.loads.requests == 16 * (4 + edges)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_programs_and_pieces_hold_the_whole_row_and_little_more(lab, dtype):
    for columns in (*range(1, 3000), *range(3000, 300_000, 97)):
        size = dtype.itemsize
        each, whole = (16 // size, False) if columns % 2 else (2, True)
        if whole and columns * size > 1024:
            each = 8 // size
        elements = columns // each * each
        parts, rows, block, pieces, warps = lab["split"](elements, size, each, whole)
        room = parts * pieces * block
        assert room >= elements and (parts == 1 or rows == 1) and warps <= 8
        assert rows * pieces * block * size <= 256 * 32 * warps  # bytes of registers per program
        if elements > 1024 // size:
            assert room <= 1.5 * elements


def test_what_can_be_loaded_at_once(lab):
    for columns, dtype, expected in (
        (3000, torch.bfloat16, (8, True)),
        (100, torch.bfloat16, (4, True)),
        (50, torch.bfloat16, (2, True)),
        (250, torch.bfloat16, (2, True)),
        (1002, torch.bfloat16, (8, False)),
        (50_257, torch.bfloat16, (8, False)),
        (1001, torch.float32, (4, False)),
        (1002, torch.float32, (2, True)),
    ):
        assert lab["vectors"](random(2, columns, dtype)) == expected, columns
