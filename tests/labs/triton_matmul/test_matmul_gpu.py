"""Lab 05's kernel in Gluon, which nothing interprets, on a GPU that it is for."""

import pytest
import torch

from benchmarks.solved import solved
from common.hardware import device

device.prepare_triton()
pytestmark = pytest.mark.skipif(
    device.compute_capability()[0] != 9, reason="it runs on an H100 or H200"
)


@pytest.fixture(scope="module")
def lab():
    return solved("05")


@pytest.mark.parametrize(
    "shape",
    [
        (1, 8, 8),
        (130, 264, 72),
        (24, 648, 200),
        (128, 320, 256),
        (1000, 41_000, 264),
        (1000, 5000, 3000),
    ],
)
def test_the_kernel_in_gluon_agrees_with_float64(lab, shape):
    m, n, k = shape
    torch.manual_seed(m)
    for dtype in (torch.bfloat16, torch.float16):
        a, b, bias = (torch.randn(size, device="cuda").to(dtype) for size in ((m, k), (k, n), (n,)))
        want, config = (
            a.double() @ b.double(),
            dict(zip(lab["CONFIG"], (128, 256, 64, 16, 8, 4), strict=True)),
        )
        fused = torch.nn.functional.gelu(want + bias.double(), approximate="tanh")
        for alike in (divisor for divisor in (1, 2, 4, 8) if m % divisor == 0):
            for added, wanted in ((None, want), (bias, fused)):
                c = torch.full((m, n), torch.nan, dtype=dtype, device="cuda")
                lab["launch_specialized"](a, b, added, c, config, 64, alike)
                torch.testing.assert_close(c.double(), wanted, rtol=0.02, atol=0.01 * k**0.5)
