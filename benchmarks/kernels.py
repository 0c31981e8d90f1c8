"""The kernels of labs 03, 04 and 05 on a GPU against the libraries that a user would take instead.

    python benchmarks/kernels.py [FILE]        prints the table, and writes it (benchmarks/kernels.md, or FILE)

Ours are the solutions' own functions. Random data; medians of seven rounds in which ours and the peer take turns, each
compared with float64 first. The ceiling of a product is the data sheet's, that of softmax a copy of the same tensor.
"""

import functools
import itertools
import math
import operator
import statistics
import sys
from pathlib import Path

import torch
import triton
from torch.nn import functional as F

from benchmarks.solved import solved
from common import device, machine, timing

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


def in_a_row_s(call, calls=8):
    """Seconds a call, of several on data larger than the GPU's caches: the host is ahead, as in a program."""
    several = lambda: [call() for _ in range(calls)]  # noqa: E731
    return 1e-3 / calls * triton.testing.do_bench(several, warmup=5, rep=40, return_mode="median")


def insist(got, want, tolerance, what) -> None:
    """Ends the run where ours is wrong."""
    error = float((got.double() - want).norm() / want.norm())
    if not error < tolerance:
        sys.exit(f"{what}: relative error {error:.1e}, {tolerance:.0e} allowed")


def fp32_matmul(peaks):
    """Lab 03's last rung against cuBLAS, tf32 not allowed."""
    from numba import cuda

    kernel, n = solved("03")["matmul_register_tiled"], 4096
    a, b, c = torch.randn(3, n, n, device="cuda")
    arrays = [cuda.as_cuda_array(matrix) for matrix in (a, b, c)]

    def ours() -> None:
        kernel[(n // 128, n // 128), 256](*arrays)

    ours()
    insist(c, a.double() @ b.double(), 1e-5, "fp32 matmul")
    times_s = timing.in_turns(in_a_row_s, ours, lambda: torch.mm(a, b))
    yield row(
        "fp32 matmul, numba.cuda",
        "4096³",
        times_s,
        2e-12 * n**3,
        peaks.flops_per_s["fp32"] / 1e12,
        "TFLOP/s",
        "cuBLAS",
    )


def softmax():
    """Lab 04's softmax against PyTorch's, eager and compiled."""
    ours = solved("04")["fast_softmax"]
    compiled = torch.compile(lambda x: torch.softmax(x, 1), dynamic=False)
    for dtype, width in itertools.product((torch.float32, torch.bfloat16), WIDTHS):
        x = torch.randn(ELEMENTS // width, width, device="cuda").to(dtype)
        y = torch.empty_like(x)
        insist(
            ours(x)[-64:],
            torch.softmax(x[-64:].double(), 1),
            1e-6 if dtype == torch.float32 else 3e-3,
            f"softmax, {width}",
        )
        functions = ours, y.copy_, functools.partial(torch.softmax, dim=1), compiled
        calls = [functools.partial(function, x) for function in functions]
        ours_s, copy_s, *peers_s = timing.in_turns(in_a_row_s, *calls)
        for peer, peer_s in zip(("torch.softmax", "torch.compile"), peers_s, strict=True):
            yield row(
                "softmax, Triton",
                f"{name(dtype)}, rows of {width:,}",
                (ours_s, peer_s),
                2e-9 * x.nbytes,
                2e-9 * x.nbytes / copy_s,
                "GB/s",
                peer,
            )


def bf16_matmul(peaks):
    """Lab 05's product against cuBLAS, and with bias and GELU against what torch.compile makes of them."""
    names = solved("05")
    compiled = torch.compile(
        lambda a, b, bias: F.gelu(a @ b + bias, approximate="tanh"), dynamic=False
    )
    for m, n, k in SHAPES:
        a, b, bias = (
            torch.randn(*shape, device="cuda").bfloat16() for shape in ((m, k), (k, n), (n,))
        )
        want, shape = a.double() @ b.double(), f"{m} × {n} × {k}"
        insist(names["matmul"](a, b), want, 3e-3, f"matmul, {shape}")
        fused = F.gelu(want + bias.double(), approximate="tanh")
        insist(names["matmul_bias_gelu"](a, b, bias), fused, 5e-3, f"fused, {shape}")
        for what, peer, ours, theirs, given in (
            ("bf16 matmul, Triton", "cuBLAS", names["matmul"], torch.mm, (a, b)),
            (
                "matmul + bias + GELU, Triton",
                "torch.compile",
                names["matmul_bias_gelu"],
                compiled,
                (a, b, bias),
            ),
        ):
            theirs(*given)  # compiles
            times_s = timing.in_turns(
                timing.in_graph_s,
                functools.partial(ours, *given),
                functools.partial(theirs, *given),
            )
            yield row(
                what,
                shape,
                times_s,
                2e-12 * m * n * k,
                peaks.flops_per_s["bf16"] / 1e12,
                "TFLOP/s",
                peer,
            )


def name(dtype):
    return {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]


def row(kernel, shape, times_s, work, ceiling, unit, peer):
    """One line of the table: times_s of ours and of the peer, for this much work in units a second."""
    ours_s, peer_s = times_s
    return kernel, shape, work / ours_s, ceiling, unit, peer, work / peer_s, peer_s / ours_s


KIND = operator.itemgetter(0, 5)  # kernel, peer


def kinds(rows):
    """[((kernel, peer), its rows)]."""
    return [
        (kind, list(group)) for kind, group in itertools.groupby(sorted(rows, key=KIND), key=KIND)
    ]


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def summary(rows):
    """A line for each kernel and peer, as Markdown: its ratios, and its share of the ceiling."""
    lines = [
        "| kernel | shapes | beside | times its speed, geometric mean | least | share of the ceiling |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for (kernel, peer), group in kinds(rows):
        ratios, shares = [r[7] for r in group], [r[2] / r[3] for r in group]
        span = f"{min(shares):.0%} to {max(shares):.0%}" if len(group) > 1 else f"{shares[0]:.0%}"
        lines.append(
            f"| {kernel} | {len(group)} | {peer} | {mean(ratios):.2f} | {min(ratios):.2f} | {span} |"
        )
    return "\n".join(lines)


def table(rows):
    """The rows as Markdown."""
    lines = [
        "| kernel | shape | ours | ceiling | unit | peer | its | ratio |",
        "| --- | --- | ---: | ---: | --- | --- | ---: | ---: |",
    ]
    lines += [
        f"| {kernel} | {shape} | {ours:,.4g} | {ceiling:,.4g} | {unit} | {peer} | {its:,.4g} | {ratio:.2f} |"
        for _, group in kinds(rows)
        for kernel, shape, ours, ceiling, unit, peer, its, ratio in group
    ]
    return "\n".join(lines)


def main() -> None:
    if not device.has_gpu():
        sys.exit(
            "benchmarks/kernels.py measures on a GPU, and there is none here; benchmarks/kernels.md has an H200's."
        )
    peaks = (
        next((peaks for key, peaks in machine.DATA_SHEETS.items() if key in device.name()), None)
        or machine.profile()
    )
    rows = [*fp32_matmul(peaks), *softmax(), *bf16_matmul(peaks)]
    machine_line = f"{device.name()}, torch {torch.__version__}, triton {triton.__version__}. Made by `make bench`."
    text = "\n\n".join([machine_line, summary(rows), table(rows)]) + "\n"
    print(text)
    (Path(sys.argv[1]) if len(sys.argv) > 1 else FILE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
