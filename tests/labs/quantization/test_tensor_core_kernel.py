"""Lab 10's last step, ours, in Triton's interpreter against float64.

On a GPU benchmarks/quantization.py compares it.
"""

import pytest
import torch

from common.hardware import device

device.prepare_triton()

from common.lessons.quantization import int4  # noqa: E402  (it imports Triton)

pytestmark = pytest.mark.skipif(
    device.has_gpu(), reason="there is a GPU: benchmarks/quantization.py compares the product there"
)


@pytest.mark.parametrize(
    "rows, columns, group",
    [
        *((16, 1024, 128), (32, 2048, 256), (16, 3072, 128), (48, 4096, 512)),
        *((16, 1152, 128), (32, 2176, 128), (16, 2560, 256), (16, 11008, 128)),
    ],
)
def test_it_is_the_product(rows, columns, group, monkeypatch):
    """With each number of steps that may be on their way."""
    for ahead in (1, 4):
        monkeypatch.setattr(int4, "way_of", lambda *_, ahead=ahead, **__: (ahead, None))
        require_product(rows, columns, group)


def require_product(rows, columns, group):
    torch.manual_seed(rows * group)
    codes = torch.randint(-8, 8, (rows, columns), dtype=torch.int8)
    scales, x = torch.rand(rows, columns // group) + 0.5, torch.randn(columns).bfloat16()
    x[3::7] = 0
    want = (codes * scales.bfloat16().double().repeat_interleave(group, 1)) @ x.double()
    y = torch.full((rows,), torch.nan)
    int4.launch_tiles(*int4.pack_tiles(codes, scales), x, y)
    torch.testing.assert_close(
        y.double(), want, rtol=0, atol=1e-6 * float(want.square().mean().sqrt())
    )


@pytest.mark.parametrize(
    "programs, way",
    [(1, (4, None)), (264, (4, None)), (265, (1, None)), (396, (1, None)), (397, (1, 64))],
)
def test_fewest_waves_then_fewest_programs_at_a_time(programs, way):
    assert int4.way_of(programs, 132, whole=True) == way
