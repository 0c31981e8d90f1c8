"""Lab 05's matmul, which chooses tiles and programs, in Triton's interpreter; on a GPU benchmarks/kernels.py compares it."""
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.solved import solved
from common import device

device.prepare_triton()


@pytest.fixture(scope="module")
def lab():
    return solved("05")


@settings(max_examples=500, deadline=None)
@given(m=st.integers(1, 5000), k=st.integers(1, 1000).map(lambda eighths: 8 * eighths))
def test_rows_that_are_alike_begin_at_the_same_place_of_a_line_and_make_no_more_tiles(lab, m, k):
    alike = lab["rows_alike"](m, k)
    assert m % alike == 0
    assert alike * math.ceil(m / alike / 128) <= math.ceil(m / 128)
    assert alike == 1 or 2 * alike * k % 128 == 0
    assert all(2 * rows * k % 128 for rows in range(1, alike)), "fewer would do"


def test_rows_of_the_last_shape_are_alike_eight_apart(lab):
    assert [lab["rows_alike"](m, k) for m, k in [(1000, 3000), (1000, 3008), (1000, 3040), (4096, 4096), (1001, 3000)]] == [8, 1, 2, 1, 1]


@pytest.mark.parametrize("tiles", [1, 100, 128, 129, 132, 133, 160, 256, 260, 264, 512, 528, 1376, 2048])
def test_programs_are_as_many_as_need_the_fewest_waves(lab, tiles):
    programs = lab["persistent_programs"](tiles)
    assert programs in (128, 132)
    assert math.ceil(tiles / programs) == math.ceil(tiles / 132)
    assert programs == 128 or math.ceil(tiles / 128) > math.ceil(tiles / 132)


@pytest.mark.skipif(device.has_gpu(), reason="there is a GPU: benchmarks/kernels.py compares the product there")
@pytest.mark.parametrize("shape", [(130, 264, 72), (1, 8, 8), (24, 41_000, 72), (1000, 5000, 40)])  # the last two in tiles of 320
def test_it_is_the_product_with_either_width(lab, shape):
    m, n, k = shape
    torch.manual_seed(m)
    a, b, bias = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16(), torch.randn(n).bfloat16()
    want = a.float() @ b.float()
    torch.testing.assert_close(lab["matmul"](a, b).float(), want, rtol=0.01, atol=0.02)
    fused = torch.nn.functional.gelu(want + bias.float(), approximate="tanh")
    torch.testing.assert_close(lab["matmul_bias_gelu"](a, b, bias).float(), fused, rtol=0.01, atol=0.02)
