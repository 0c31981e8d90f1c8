"""Lab 05's matmul, which chooses tiles and programs, in Triton's interpreter.

On a GPU benchmarks/kernels.py compares it.
"""

from common.paths import ROOT
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.solved import solved
from common.hardware import device

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


def test_rows_of_the_last_shape_repeat_every_eight(lab):
    assert [
        lab["rows_alike"](m, k)
        for m, k in [(1000, 3000), (1000, 3008), (1000, 3040), (4096, 4096), (1001, 3000)]
    ] == [8, 1, 2, 1, 1]


@pytest.mark.parametrize(
    "tiles", [1, 100, 128, 129, 132, 133, 160, 256, 260, 264, 512, 528, 1376, 2048]
)
def test_programs_are_as_many_as_need_the_fewest_waves(lab, tiles):
    programs = lab["persistent_programs"](tiles)
    assert programs in (128, 132)
    assert math.ceil(tiles / programs) == math.ceil(tiles / 132)
    assert programs == 128 or math.ceil(tiles / 128) > math.ceil(tiles / 132)


@pytest.mark.slow
@pytest.mark.skipif(
    device.has_gpu(), reason="there is a GPU: benchmarks/kernels.py compares the product there"
)
@pytest.mark.parametrize(
    "shape", [(130, 264, 72), (1, 8, 8), (24, 41_000, 72), (1000, 5000, 40)]
)  # the last two in tiles of 320
def test_it_is_the_product_with_either_width(lab, shape):
    m, n, k = shape
    torch.manual_seed(m)
    a, b, bias = (
        torch.randn(m, k).bfloat16(),
        torch.randn(k, n).bfloat16(),
        torch.randn(n).bfloat16(),
    )
    want = a.float() @ b.float()
    torch.testing.assert_close(lab["matmul"](a, b).float(), want, rtol=0.01, atol=0.02)
    fused = torch.nn.functional.gelu(want + bias.float(), approximate="tanh")
    torch.testing.assert_close(
        lab["matmul_bias_gelu"](a, b, bias).float(), fused, rtol=0.01, atol=0.02
    )


COMPILED = """
import json
import torch
from common.hardware import device
device.has_gpu = lambda: True  # then the lab compiles, and doesn't interpret
from benchmarks.solved import solved
from nogpu.tiles import compiler
from triton.experimental.gluon._runtime import GluonASTSource
lab = solved("05")
sizes = (1000, 3000), (3000, 5000), (5000,), (1000, 5000)
a, b, bias, c = (torch.empty(size).bfloat16() for size in sizes)
config = dict(zip(lab["CONFIG"], (128, 256, 64, 16, 8, 4)))
_, arguments, options = lab["wide_launch"](a, b, BIAS, c, config, 64, 8)
compiled_with = {name: options.pop(name) for name in ("num_warps", "num_stages")}
kernel, fixed = lab["specialized_matmul_kernel"], options | {"SLOTS": config["num_stages"]}

def type_of(given):
    if isinstance(given, tuple):
        return f"tensordesc<bf16{given[3]},{lab['layout'](*given[3])!r}>"
    return "*bf16" if isinstance(given, torch.Tensor) else "i32"

types = dict(zip(kernel.arg_names, map(type_of, arguments))) | dict.fromkeys(fixed, "constexpr")
place = kernel.arg_names.index
source = GluonASTSource(kernel, types, {(place(name),): value for name, value in fixed.items()},
                        {(place("bias"),): [["tt.divisibility", 16]]})
made = compiler.of_source(source, compiled_with, 90)
products = made.instructions("wgmma.mma_async")
print(json.dumps([products, made.shared_bytes, made.registers, made.spilled_bytes]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("bias", ["None", "bias"])
def test_the_kernel_in_gluon_compiles_for_an_h100_and_spills_nothing(bias):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    child = subprocess.run(
        [sys.executable, "-c", COMPILED.replace("BIAS", bias)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr
    products, shared_bytes, registers, spilled_bytes = json.loads(child.stdout)
    assert products == 4 * 2, "64 numbers of K, 16 at a time, for two sums"
    assert 4 * 2 * 64 * (128 + 256 + 64) <= shared_bytes <= 227 * 1024
    assert spilled_bytes == 0
    assert registers == 168, (
        "65,536 registers of a multiprocessor, for 12 warps: nine that work, and three idle"
    )
