"""benchmarks/tensor_core_int4.py in Triton's interpreter, against float64; on a GPU benchmarks/quantization.py compares it."""
import pytest
import torch

from common import device

device.prepare_triton()

from benchmarks import tensor_core_int4  # noqa: E402

pytestmark = pytest.mark.skipif(device.has_gpu(), reason="there is a GPU: benchmarks/quantization.py compares the product there")


@pytest.mark.parametrize("rows, columns, group, tiles", [
    (16, 1024, 128, 1), (32, 1024, 32, 2), (32, 1024, 64, 1), (16, 3072, 512, 1)])
def test_it_is_the_product(rows, columns, group, tiles):
    torch.manual_seed(rows * group)
    codes = torch.randint(-8, 8, (rows, columns), dtype=torch.int8)
    scales, x = (torch.rand(rows, columns // group) + 0.5).bfloat16(), torch.randn(columns).bfloat16()
    x[3::7] = 0
    want = (codes * scales.double().repeat_interleave(group, 1)) @ x.double()
    y = torch.full((rows,), torch.nan)
    tensor_core_int4.matvec_kernel[(rows // (16 * tiles),)](
        tensor_core_int4.pack(codes), scales, x, y, COLUMNS=columns, GROUP=group, PARTS=tensor_core_int4.PARTS,
        TILES=tiles, UNROLL=1, STAGES=1)
    torch.testing.assert_close(y.double(), want, rtol=0, atol=1e-6 * float(want.square().mean().sqrt()))
