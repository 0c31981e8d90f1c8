"""Lab 04's softmax of rows that begin anywhere: right, and with few requests of 16 bytes."""

from typing import Any

import pytest
import torch

from common import device

device.prepare_triton()

from benchmarks.solved import solved  # noqa: E402
from common import tiles  # noqa: E402


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


def test_loads_of_16_bytes_are_few(lab):
    x, y = random(17, 1001, torch.bfloat16), torch.empty(17, 1001).bfloat16()
    assert lab["vectors"](x) == (8, False)
    sizes = {"ROWS": 2, "BLOCK": 1024, "num_warps": 4}
    kernels: dict[str, dict[str, Any]] = {
        "softmax_anywhere": {"EACH": 8, "WHOLE": False},
        "softmax_tile": {},
    }
    anywhere, tile = (
        tiles.count(lab[name], (9,), x, y, 1001, 1001, 17, 1001, **sizes, **more).compiled
        for name, more in kernels.items()
    )
    assert tile.loads.requests == 17 * 32
    assert anywhere.loads.requests == 16 * 4 + 32  # the last row is loaded element by element
    assert anywhere.stores.requests < tile.stores.requests / 3


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
