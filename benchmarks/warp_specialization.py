"""Lab 05's persistent product with warps that specialize, to be measured: on a GPU of compute capability 9.0,

    python common/environment.py benchmarks/warp_specialization.py

One warp group only loads, two only multiply, each with registers to its need. Triton does so where it is asked to
(`warp_specialize=True`), with 4 warps, rows of 128 and more, and descriptors made in the kernel: of those made by the host
it ignores the wish, or fails. Beside each form: cuBLAS, or what torch.compile makes of the product with bias and GELU, and
the lab's own, which take turns. Every form is first compared with float64. With `--interpret` it only compares, on the CPU.
"""

import argparse
import functools
import itertools

import torch
from torch.nn import functional as F

from common import device

device.prepare_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from benchmarks import kernels  # noqa: E402
from benchmarks.solved import solved  # noqa: E402

ONE = [(128, 256, 0, 8, 3), (128, 256, 0, 16, 3), (256, 128, 0, 4, 3), (256, 128, 0, 8, 3)]
# rows, columns, columns of a second sum, band, stages
TWO = [(256, 128, 32, 4, 3), (256, 128, 32, 4, 2), (256, 128, 64, 4, 2), (128, 256, 64, 8, 2), (128, 128, 64, 8, 4)]


@triton.jit
def gelu(x):
    """gelu(x), as x / a = x · (1/√a)²: one operation of 16 a cycle less than a division."""
    root = tl.rsqrt(1 + tl.exp2(x * (-2.3022082 - 0.10294324 * x * x)))
    return x * (root * root)


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    column = n + tl.arange(0, COLUMNS)
    return gelu(total + tl.load(bias + column, mask=column < N, other=0.0)[None, :])


@triton.jit
def corner(tile, rows, columns, GROUP: tl.constexpr):
    """Row and column of a tile, in bands of GROUP rows."""
    first = tile // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    place = tile % (GROUP * columns)
    return first + place % height, place // height


@triton.jit
def one_sum_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                   GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_tiles = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    c_tiles = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), warp_specialize=True):
        row, column = corner(tile, rows, columns, GROUP)
        m, n = row * BLOCK_M, column * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a_tiles.load([m, k]), b_tiles.load([k, n]), total)
        if EPILOGUE:
            total = biased_gelu(total, bias, n, N, BLOCK_N)
        c_tiles.store([m, n], total.to(c_tiles.dtype))


@triton.jit
def two_sums_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, MORE: tl.constexpr,
                    BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_tiles = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BLOCK_K, BLOCK_N])
    b_more = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BLOCK_K, MORE])
    c_tiles = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    c_more = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK_M, MORE])
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), warp_specialize=True):
        row, column = corner(tile, rows, columns, GROUP)
        m, n = row * BLOCK_M, column * (BLOCK_N + MORE)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        more = tl.zeros((BLOCK_M, MORE), tl.float32)
        for k in range(0, K, BLOCK_K):
            x = a_tiles.load([m, k])
            total = tl.dot(x, b_tiles.load([k, n]), total)
            more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
        if EPILOGUE:
            total = biased_gelu(total, bias, n, N, BLOCK_N)
            more = biased_gelu(more, bias, n + BLOCK_N, N, MORE)
        c_tiles.store([m, n], total.to(c_tiles.dtype))
        c_more.store([m, n + BLOCK_N], more.to(c_more.dtype))


def product(a, b, bias, c, config, block_k=64, programs=None):
    """c = A B, or gelu(A B + bias) where bias is not None; 16-bit numbers, rows that begin at multiples of 16 bytes."""
    rows, columns, more, group, stages = config
    tiles = triton.cdiv(c.shape[0], rows) * triton.cdiv(c.shape[1], columns + more)
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": block_k, "GROUP": group, "EPILOGUE": bias is not None}
    kernel, sizes = (two_sums_kernel, sizes | {"MORE": more}) if more else (one_sum_kernel, sizes)
    grid = min(programs or torch.cuda.get_device_properties(0).multi_processor_count, tiles)
    kernel[(grid,)](a, b, a if bias is None else bias, c, *c.shape, a.shape[1], **sizes, num_warps=4, num_stages=stages)
    return c


def compare_on_cpu():
    """Both kernels in the interpreter, with small tiles, against float64."""
    for (m, n, k), more, fused in itertools.product([(32, 96, 64), (70, 56, 40)], (0, 16), (False, True)):
        a, b, bias = (torch.randn(*shape).half() for shape in ((m, k), (k, n), (n,)))
        want = a.double() @ b.double()
        want = F.gelu(want + bias.double(), approximate="tanh") if fused else want
        c = torch.full((m, n), torch.nan).half()
        kernels.insist(product(a, b, bias if fused else None, c, (16, 32, more, 2, 1), 16, 3), want, 2e-3, f"{m, n, k, more}")
    print("both kernels agree with float64")


def race(shape, fused, lab, compiled):
    """A line for each configuration that compiles: the peer's time over its own and over the lab's, in turns."""
    m, n, k = shape
    a, b, bias = (torch.randn(*size, device="cuda").bfloat16() for size in ((m, k), (k, n), (n,)))
    c, bias = torch.empty(m, n, device="cuda", dtype=a.dtype), bias if fused else None
    want = a.double() @ b.double()
    want = F.gelu(want + bias.double(), approximate="tanh") if fused else want
    peer = functools.partial(compiled, a, b, bias) if fused else functools.partial(torch.mm, a, b)
    peer()
    for config in ONE + (TWO if m < 2048 else []):
        ours = functools.partial(product, a, b, bias, c, config)
        try:
            c.fill_(torch.nan)
            kernels.insist(ours(), want, 5e-3, f"{shape}, {config}")
            times_s = kernels.in_turns(kernels.in_graph_s, ours, functools.partial(lab, a, b, bias), peer)
        except (triton.TritonError, RuntimeError) as problem:  # does not fit, or Triton can't compile it
            print(f"{shape} {'fused' if fused else 'plain'} {config}: {type(problem).__name__}", flush=True)
            continue
        ours_s, lab_s, peer_s = times_s
        print(f"{shape} {'fused' if fused else 'plain'} {config}: {peer_s / ours_s:.3f}, the lab's {peer_s / lab_s:.3f} "
              f"({1e6 * ours_s:.1f}, {1e6 * lab_s:.1f}, {1e6 * peer_s:.1f} µs)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interpret", action="store_true", help="only compare, on the CPU")
    if parser.parse_args().interpret:
        return compare_on_cpu()
    if not device.has_gpu():
        parser.error("this measures on a GPU, and there is none here; --interpret compares on the CPU")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    kernels.ROUNDS = 3  # the winner goes through benchmarks/kernels.py
    lab = solved("05")["matmul"]
    compiled = torch.compile(lambda a, b, bias: F.gelu(a @ b + bias, approximate="tanh"), dynamic=False)
    for shape, fused in itertools.product(kernels.SHAPES, (False, True)):
        race(shape, fused, lab, compiled)


if __name__ == "__main__":
    main()
