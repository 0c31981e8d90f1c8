"""The labs' Triton kernels, in the largest configurations that the labs choose, fit on every GPU.

They are compiled for each compute capability; no GPU is needed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from common import device

device.prepare_triton()

from benchmarks.solved import solved  # noqa: E402
from common import tiles  # noqa: E402
from common.capabilities import LIMITS  # noqa: E402

Launch = tuple[str, Any, tuple[Any, ...], dict[str, Any]]


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return solved("04") | solved("05") | solved("10")


def launches(kernels: dict[str, Any]) -> Iterator[Launch]:
    """(name, kernel, arguments, constants): a lab's kernels where they take most."""
    for dtype in (torch.float32, torch.bfloat16):
        x, y = torch.zeros(2, 8, 16384, dtype=dtype)
        warps = kernels["warps"](16384 * x.itemsize)
        whole = {"ROWS": 1, "BLOCK": 16384, "num_warps": warps}
        rows = x, y, 16384, 16384
        yield f"softmax_tile, {dtype}", kernels["softmax_tile"], (*rows, 8, 16384), whole
        online = {"BLOCK": 16384, "num_warps": warps}
        yield f"softmax_online, {dtype}", kernels["softmax_online"], (*rows, 16384), online
    anywhere = {"ROWS": 1, "BLOCK": 16384, "EACH": 8, "WHOLE": False, "num_warps": 32}
    x, y = torch.zeros(2, 8, 16001).bfloat16()
    given = x, y, 16001, 16001, 8, 16001
    yield "softmax_anywhere", kernels["softmax_anywhere"], given, anywhere
    a, b, c = torch.zeros(3, 256, 256).half()
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP": 8, "EPILOGUE": True}
    tile |= {"num_warps": 8, "num_stages": 3}  # matmul_by_pointers
    given = a, b, a[0], c, 256, 256, 256, *a.stride(), *b.stride(), *c.stride()
    yield "matmul by pointers, fp16", kernels["matmul_bias_gelu_kernel"], given, tile
    packed, scales = torch.zeros(8, 1024, dtype=torch.int32), torch.zeros(8, 64).bfloat16()
    given = packed, scales, torch.zeros(8192).bfloat16(), torch.zeros(8)
    sizes = {"GROUPS": 64, "WORDS": 16, "ROWS": 8, "STEP": 16, "num_warps": 2}
    yield "int4_matvec_kernel", kernels["int4_matvec_kernel"], given, sizes


@pytest.mark.parametrize("capability", LIMITS)
def test_the_kernels_fit(kernels, capability):
    limits = LIMITS[capability]
    for name, kernel, arguments, constants in launches(kernels):
        made = tiles.compiled(kernel, *arguments, capability=capability, **constants)
        threads = 32 * constants["num_warps"]
        assert threads <= limits.threads, name
        assert made.shared_bytes <= limits.shared_bytes, name
        assert made.registers <= limits.registers_per_thread, name
        assert made.registers * threads <= limits.registers, name


def test_plans_for_any_shape_fit_where_there_is_a_copy_engine():
    from common.lessons import products

    for limits in LIMITS.values():
        for plan in products.plans(products.Shape(512, 512, 4096, 1), limits.shared_bytes):
            pairs = plan.stages * 2 * (plan.block_m + plan.block_n) * plan.block_k
            assert pairs + 2048 < limits.shared_bytes
