"""The kernels of labs 03, 04 and 05 on a GPU, compared with the libraries that users would take.

    python benchmarks/kernels.py [FILE]    prints the table and writes it (benchmarks/kernels.md)

Ours are the solutions' own functions. The data is random. Times are medians of seven rounds, in
which ours and the peer take turns; each is first compared with float64. The ceiling of a product
is the data sheet's, that of softmax is a copy of the same tensor.
"""

import functools
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import triton
from torch.nn import functional as F

from benchmarks.solved import solved
from common.hardware import device, timing
from common.ledger import machine

FILE = Path(__file__).with_suffix(".md")
SHAPES = [
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4000, 4096, 4096),
    (8192, 2048, 4096),
    (4096, 11008, 4096),
    (1000, 5000, 3000),
]  # M, N, K
WIDTHS, ELEMENTS = (1024, 4096, 16384, 65536), 2**28
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


class Row(NamedTuple):
    """A line of the table. ours, ceiling, theirs: speeds in this unit."""

    kernel: str
    shape: str
    ours: float
    ceiling: float
    unit: str
    peer: str
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def share(self) -> float:
        return self.ours / self.ceiling


def in_a_row_s(call: Callable[[], object], calls: int = 8) -> float:
    """Seconds per call, of several on data larger than the GPU's caches.

    The host is ahead of the GPU, as in a program.
    """

    def several() -> None:
        for _ in range(calls):
            call()

    time_ms: Any = triton.testing.do_bench(several, warmup=5, rep=40, return_mode="median")
    return 1e-3 / calls * time_ms


def require_close(got: torch.Tensor, want: torch.Tensor, tolerance: float, what: str) -> None:
    """Ends the run if ours is wrong."""
    error = float((got.double() - want).norm() / want.norm())
    if not error < tolerance:
        sys.exit(f"{what}: relative error {error:.1e}, {tolerance:.0e} allowed")


def fp32_matmul(peaks: machine.Peaks) -> Iterator[Row]:
    """Lab 03's last version and cuBLAS, which may not use tf32."""
    from numba import cuda

    kernel: Any = solved("03")["matmul_register_tiled"]
    n = 4096
    a, b, c = torch.randn(3, n, n, device="cuda")
    arrays = [cuda.as_cuda_array(matrix) for matrix in (a, b, c)]

    def ours() -> None:
        kernel[(n // 128, n // 128), 256](*arrays)

    ours()
    require_close(c, a.double() @ b.double(), 1e-5, "fp32 matmul")
    ours_s, theirs_s = timing.in_turns(in_a_row_s, ours, lambda: torch.mm(a, b))
    work, ceiling = 2e-12 * n**3, peaks.flops_per_s["fp32"] / 1e12
    speeds = work / ours_s, ceiling, "TFLOP/s", "cuBLAS", work / theirs_s
    yield Row("fp32 matmul, numba.cuda", "4096³", *speeds)


def softmax() -> Iterator[Row]:
    """Lab 04's softmax and PyTorch's, eager and compiled."""
    ours: Any = solved("04")["fast_softmax"]
    compiled = torch.compile(lambda x: torch.softmax(x, 1), dynamic=False)
    for dtype, width in itertools.product((torch.float32, torch.bfloat16), WIDTHS):
        x = torch.randn(ELEMENTS // width, width, device="cuda").to(dtype)
        y = torch.empty_like(x)
        tolerance = 1e-6 if dtype == torch.float32 else 3e-3
        want = torch.softmax(x[-64:].double(), 1)
        require_close(ours(x)[-64:], want, tolerance, f"softmax, {width}")
        functions = ours, y.copy_, functools.partial(torch.softmax, dim=1), compiled
        calls = [functools.partial(function, x) for function in functions]
        ours_s, copy_s, *peers_s = timing.in_turns(in_a_row_s, *calls)
        work, shape = 2e-9 * x.nbytes, f"{NAMES[dtype]}, rows of {width:,}"
        for peer, peer_s in zip(("torch.softmax", "torch.compile"), peers_s, strict=True):
            speeds = work / ours_s, work / copy_s, "GB/s", peer, work / peer_s
            yield Row("softmax, Triton", shape, *speeds)


def bf16_matmul(peaks: machine.Peaks) -> Iterator[Row]:
    """Lab 05's product and cuBLAS; with bias and GELU, it and torch.compile of the same."""
    names: dict[str, Any] = solved("05")
    compiled = torch.compile(
        lambda a, b, bias: F.gelu(a @ b + bias, approximate="tanh"), dynamic=False
    )
    product, fused = "bf16 matmul, Triton", "matmul + bias + GELU, Triton"
    for m, n, k in SHAPES:
        a, b, bias = (
            torch.randn(*shape, device="cuda").bfloat16() for shape in ((m, k), (k, n), (n,))
        )
        want, shape = a.double() @ b.double(), f"{m} × {n} × {k}"
        require_close(names["matmul"](a, b), want, 3e-3, f"matmul, {shape}")
        with_gelu = F.gelu(want + bias.double(), approximate="tanh")
        require_close(names["matmul_bias_gelu"](a, b, bias), with_gelu, 5e-3, f"fused, {shape}")
        for kernel, peer, ours, theirs, given in (
            (product, "cuBLAS", names["matmul"], torch.mm, (a, b)),
            (fused, "torch.compile", names["matmul_bias_gelu"], compiled, (a, b, bias)),
        ):
            theirs(*given)  # compiles
            calls = (functools.partial(function, *given) for function in (ours, theirs))
            ours_s, theirs_s = timing.in_turns(timing.in_graph_s, *calls)
            work, ceiling = 2e-12 * m * n * k, peaks.flops_per_s["bf16"] / 1e12
            yield Row(kernel, shape, work / ours_s, ceiling, "TFLOP/s", peer, work / theirs_s)


def by_kernel_and_peer(rows: Iterable[Row]) -> list[tuple[tuple[str, str], list[Row]]]:
    def key(row: Row) -> tuple[str, str]:
        return row.kernel, row.peer

    return [(pair, list(group)) for pair, group in itertools.groupby(sorted(rows, key=key), key)]


def mean(ratios: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def summary(rows: Iterable[Row]) -> str:
    """A line for each kernel and peer, as Markdown: its ratios, and its share of the ceiling."""
    lines = [
        "| kernel | shapes | peer | times its speed, geometric mean | least | "
        "share of the ceiling |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for (kernel, peer), group in by_kernel_and_peer(rows):
        ratios, shares = [row.ratio for row in group], [row.share for row in group]
        span = f"{min(shares):.0%} to {max(shares):.0%}" if len(group) > 1 else f"{shares[0]:.0%}"
        ratio = f"{mean(ratios):.2f} | {min(ratios):.2f}"
        lines.append(f"| {kernel} | {len(group)} | {peer} | {ratio} | {span} |")
    return "\n".join(lines)


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| kernel | shape | ours | ceiling | unit | peer | its | ratio |",
        "| --- | --- | ---: | ---: | --- | --- | ---: | ---: |",
    ]
    lines += [
        f"| {row.kernel} | {row.shape} | {row.ours:,.4g} | {row.ceiling:,.4g} | {row.unit} | "
        f"{row.peer} | {row.theirs:,.4g} | {row.ratio:.2f} |"
        for _, group in by_kernel_and_peer(rows)
        for row in group
    ]
    return "\n".join(lines)


def main() -> None:
    if not device.has_gpu():
        sys.exit(
            "benchmarks/kernels.py measures on a GPU, and this machine has no GPU; "
            "benchmarks/kernels.md has an H200's results."
        )
    sheets = (peaks for key, peaks in machine.DATA_SHEETS.items() if key in device.name())
    peaks = next(sheets, None) or machine.profile()
    rows = [*fp32_matmul(peaks), *softmax(), *bf16_matmul(peaks)]
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    origin = f"{device.name()}, {versions}. Made by `make bench`."
    text = "\n\n".join([origin, summary(rows), table(rows)]) + "\n"
    print(text)
    (Path(sys.argv[1]) if len(sys.argv) > 1 else FILE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
