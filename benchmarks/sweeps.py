"""Matmul and softmax on shapes drawn at random, compared with the libraries', on one GPU.

    python benchmarks/sweeps.py [--part matmul fp32] [--limit 240] [--output FILE.md]
                                [--raw FILE.json] [--figure FILE.png] [--from FILE.json]

Matmul: 200 shapes in bf16, M, N and K log-uniform from 16 to 16,384, a quarter of them with odd
sizes; lab 05's `matmul` against cuBLAS, and every tenth with bias and GELU against torch.compile.
Softmax: 100 widths, log-uniform from 16 to 262,144, in fp32, bf16 and fp16; lab 04's `fast_softmax`
against a copy and torch.softmax, and every tenth against torch.compile. fp32: 20 products, M, N and
K log-uniform from 1,000 to 8,192; lab 03's `matmul_register_tiled` against cuBLAS without tf32.
int4: 30 layers of real models, one vector; lab 10's kernel and the one on tensor cores against
cuBLAS in bf16, with a cold cache. The shapes are those of SEED. Times are medians of rounds in
which ours and the peers take turns, in CUDA graphs where numba does not launch. --limit: seconds
after which no shape is begun; as their order is random, those that were measured are a fair sample.
--from: draw and sum up what an earlier run has measured. --plans N: also time every plan of
common.lessons.triton_matmul.any_shape_matmul for N of the shapes.
"""

import argparse
import functools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
from torch.nn import functional

from common.hardware import device

SEED, SHAPES, WIDTHS, EVERY = 21, 200, 100, 10
ROUNDS, GRAPH_S = 5, 1e-3  # rounds of turns; seconds that a graph of one's calls takes
ELEMENTS = 2**27  # of a softmax
TICKS = 0.25, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 4
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Call = Callable[[], Any]


def matmul_shapes() -> list[tuple[int, int, int]]:
    """M, N, K of 200 products: log-uniform, and odd in a quarter of them; else multiples of 8."""
    rng = np.random.default_rng(SEED)
    drawn = np.exp(rng.uniform(math.log(16), math.log(16384), (SHAPES, 3)))
    sizes = np.where(
        (rng.permutation(SHAPES) % 4 == 0)[:, None],
        drawn.astype(int) // 2 * 2 + 1,
        np.maximum(16, np.rint(drawn / 8).astype(int) * 8),
    )
    return [(m, n, k) for m, n, k in sizes.tolist()]


def softmax_widths() -> list[tuple[str, int]]:
    """(dtype, columns) of 100 softmaxes: log-uniform; every other has rows of whole 16 bytes."""
    rng = np.random.default_rng(SEED + 1)
    drawn = np.exp(rng.uniform(math.log(16), math.log(262_144), WIDTHS))
    names = list(DTYPES)
    return [
        (names[number % 3], round(width / 8) * 8 if number // 3 % 2 else int(width) // 2 * 2 + 1)
        for number, width in enumerate(drawn)
    ]


def fp32_shapes() -> list[tuple[int, int, int]]:
    """M, N, K of 20 products in fp32: log-uniform from 1,000 to 8,192."""
    rng = np.random.default_rng(SEED + 2)
    drawn = np.exp(rng.uniform(math.log(1000), math.log(8193), (20, 3)))
    return [(m, n, k) for m, n, k in drawn.astype(int).tolist()]


# (rows, columns) of the layers of language models whose widths are from 4,096 to 28,672.
INT4 = {
    "Llama 2 7B": [(4096, 4096), (12288, 4096), (11008, 4096), (22016, 4096), (4096, 11008)],
    "Llama 3 8B": [(6144, 4096), (14336, 4096), (28672, 4096), (4096, 14336)],
    "Llama 2 13B": [(5120, 5120), (15360, 5120), (13824, 5120), (27648, 5120), (5120, 13824)],
    "Qwen 2.5 32B": [(5120, 27648)],
    "GPT-NeoX 20B": [(6144, 6144), (18432, 6144), (24576, 6144), (6144, 24576)],
    "Llama 1 30B": [(6656, 6656), (17920, 6656), (6656, 17920)],
    "Yi 34B": [(7168, 7168), (20480, 7168), (7168, 20480)],
    "Llama 1 65B": [(22016, 8192), (8192, 22016)],
    "Llama 3 70B": [(8192, 8192), (28672, 8192), (8192, 28672)],
}


def int4_shapes() -> list[tuple[int, int]]:
    """(rows, columns) of 30 layers of real models."""
    return [shape for shapes in INT4.values() for shape in shapes]


def times_s(calls: dict[str, Call]) -> dict[str, float]:
    """Seconds per call of each, in CUDA graphs that take turns."""
    graphs = {}
    for name, call in calls.items():
        once_s = _replayed_s(_graph(call, 1))
        count = max(1, min(100, int(GRAPH_S / once_s)))
        graphs[name] = _graph(call, count), count
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, (graph, count) in graphs.items():
            rounds[name].append(_replayed_s(graph) / count)
    return {name: statistics.median(found) for name, found in rounds.items()}


def _graph(call: Call, count: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of so many calls, which has run once."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
        torch.cuda.synchronize()
        graph.capture_begin(capture_error_mode="relaxed")
        for _ in range(count):
            call()
        graph.capture_end()
    torch.cuda.synchronize()
    _replayed_s(graph)
    return graph


def _replayed_s(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return 1e-3 * start.elapsed_time(end)


def compared(kind: str, shape: Any, ours: Call, peers: dict[str, Call], tolerance: float) -> dict:
    """What was measured at a shape: the seconds of ours and of peers, the error, or what failed."""
    row: dict[str, Any] = {"kind": kind, "shape": shape}
    torch.cuda.empty_cache()  # a graph that is being captured can't free memory
    try:
        got, want = ours().double(), next(iter(peers.values()))().double()
        row["error"] = float((got - want).norm() / want.norm())
        if not row["error"] < tolerance:
            return row | {"failed": f"the relative error is {row['error']:.1e}"}
        del got, want
        return row | {"times_s": times_s({"ours": ours} | peers)}
    except Exception as error:
        torch.cuda.synchronize()
        return row | {"failed": " ".join(f"{type(error).__name__}: {error}".split())[:300]}


def matmuls(names: dict[str, Any], until: float, plans: int) -> Iterator[dict]:
    """A row for each shape that was begun before `until`."""
    from common.lessons.triton_matmul import any_shape_matmul

    def eager(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.gelu(a @ b + bias, approximate="tanh")

    compiled = torch.compile(eager, dynamic=True)
    for number, (m, n, k) in enumerate(matmul_shapes()):
        if time.monotonic() > until:
            return
        a, b, bias = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (k, n), (n,)))
        ours = functools.partial(names["matmul"], a, b)
        row = compared("matmul", (m, n, k), ours, {"cuBLAS": lambda a=a, b=b: a @ b}, 4e-3)
        shape = any_shape_matmul.shape_of(a, b)
        row["way"] = next(
            (way for key, way in any_shape_matmul.KEPT.items() if key[0] == shape), None
        )
        if number < plans:
            row["plans"] = list(_planned(a, b, shape))
        yield row
        if number % EVERY == 0:
            fused = functools.partial(names["matmul_bias_gelu"], a, b, bias)
            peers = {"torch.compile": functools.partial(compiled, a, b, bias)}
            yield compared("fused", (m, n, k), fused, peers, 1e-2)


def _planned(a: torch.Tensor, b: torch.Tensor, shape: Any) -> Iterator[tuple[Any, float, float]]:
    """(a plan, its predicted seconds, its seconds), of all that the model does not rule out."""
    from common.lessons.triton_matmul import any_shape_matmul

    best = any_shape_matmul.plan_for(shape)[1]
    for plan in any_shape_matmul.plans(shape):
        predicted = any_shape_matmul.predicted_s(plan, shape)
        if predicted < 2 * best:
            call = functools.partial(any_shape_matmul.product, a, b, None, plan)
            yield plan, predicted, any_shape_matmul.measured_s(call)


def softmaxes(names: dict[str, Any], until: float) -> Iterator[dict]:
    """A row for each width that was begun before `until`."""
    for number, (short, width) in enumerate(softmax_widths()):
        if time.monotonic() > until:
            return
        x = torch.randn(ELEMENTS // width, width, device="cuda").to(DTYPES[short])
        y = torch.empty_like(x)
        peers: dict[str, Call] = {
            "torch.softmax": lambda x=x: torch.softmax(x, 1),
            # A kernel: a graph's own copies are slower, and not what a program gets.
            "copy": lambda x=x, y=y: torch.neg(x, out=y),
        }
        if number % EVERY == 0:
            torch._dynamo.reset()
            compiled = torch.compile(lambda x: torch.softmax(x, 1), dynamic=False)
            peers["torch.compile"] = functools.partial(compiled, x)
        ours = functools.partial(names["fast_softmax"], x)
        aligned = width * x.itemsize % 16 == 0
        yield compared("softmax", (short, width), ours, peers, 4e-3) | {"aligned": aligned}


def fp32_matmuls(names: dict[str, Any], until: float) -> Iterator[dict]:
    """A row for each product in fp32 that was begun before `until`."""
    from numba import cuda

    from benchmarks.kernels import in_a_row_s
    from common.hardware import timing

    torch.backends.cuda.matmul.allow_tf32 = False
    on_gpu: Any = cuda.as_cuda_array
    for m, n, k in fp32_shapes():
        if time.monotonic() > until:
            return
        a, b, c = (torch.randn(*size, device="cuda") for size in ((m, k), (k, n), (m, n)))
        kernel = names["matmul_register_tiled"][(math.ceil(n / 128), math.ceil(m / 128)), 256]
        ours = functools.partial(kernel, *map(on_gpu, (a, b, c)))
        peer = functools.partial(torch.mm, a, b)
        ours()
        error = float((c.double() - a.double() @ b.double()).norm() / c.double().norm())
        row: dict[str, Any] = {"kind": "fp32", "shape": (m, n, k), "error": error}
        if not error < 1e-5:
            yield row | {"failed": f"the relative error is {error:.1e}"}
            continue
        calls = 8 if 2 * m * n * k < 1e11 else 2
        timer = functools.partial(in_a_row_s, calls=calls)
        ours_s, peer_s = timing.in_turns(timer, ours, peer)
        yield row | {"times_s": {"ours": ours_s, "cuBLAS": peer_s}}


def int4_products(names: dict[str, Any], until: float) -> Iterator[dict]:
    """A row for each layer in int4 that was begun before `until`."""
    from benchmarks import quantization

    bandwidth = 1e9 * quantization.copy_gb_s()
    for rows, columns in int4_shapes():
        if time.monotonic() > until:
            return
        product = quantization.Product(rows, columns, 128)
        bf16_us = min(quantization.bf16_us(rows, columns).values())
        times = {"ours": 0.0, "cuBLAS bf16": 1e-6 * bf16_us}
        times["bytes / bandwidth"] = product.bytes / bandwidth
        row: dict[str, Any] = {"kind": "int4", "shape": (rows, columns)}
        ways = {"ours": product.tensor_core_calls(early=True), "lab 10": product.lab_calls()}
        for name, calls in ways.items():
            error = product.error(calls)
            if not error < 1e-4:
                row["failed"] = f"{name}: the error is {error:.1e} of the result's spread"
                break
            times[name] = 1e-6 * quantization.time_us(calls)
        yield row if "failed" in row else row | {"times_s": times}
        del product
        torch.cuda.empty_cache()


def summary(rows: list[dict]) -> str:
    """A line for each kind and peer, as Markdown."""
    lines = [
        "| kernel | peer | shapes | geometric mean | share ≥ 0.85 | least | at |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, peer, some in _groups(rows):
        ratios = {_text(row): row["times_s"][peer] / row["times_s"]["ours"] for row in some}
        least = min(ratios, key=lambda shape: ratios[shape])
        mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
        share = sum(ratio >= 0.85 for ratio in ratios.values()) / len(ratios)
        numbers = f"{len(ratios)} | {mean:.3f} | {share:.0%} | {ratios[least]:.2f} | {least}"
        lines.append(f"| {name} | {peer} | {numbers} |")
    failed = [f"- {row['kind']} {_text(row)}: {row['failed']}" for row in rows if "failed" in row]
    return "\n".join([*lines, *(["", "What failed:", "", *failed] if failed else [])])


def _groups(rows: list[dict]) -> Iterator[tuple[str, str, list[dict]]]:
    """(name, peer, rows) of each line."""
    done = [row for row in rows if "times_s" in row]
    odd = [row for row in done if row["kind"] == "matmul" and row["shape"][0] % 2]
    kinds = {
        "bf16 matmul": [row for row in done if row["kind"] == "matmul"],
        "bf16 matmul, odd sizes": odd,
        "matmul + bias + GELU": [row for row in done if row["kind"] == "fused"],
        "softmax, aligned rows": [row for row in done if row.get("aligned") is True],
        "softmax, other rows": [row for row in done if row.get("aligned") is False],
        "fp32 matmul": [row for row in done if row["kind"] == "fp32"],
        "int4 matrix-vector": [row for row in done if row["kind"] == "int4"],
    }
    for name, some in kinds.items():
        for peer in dict.fromkeys(peer for row in some for peer in row["times_s"]):
            if peer != "ours":
                yield name, peer, [row for row in some if peer in row["times_s"]]


def _text(row: dict) -> str:
    first, *rest = row["shape"]
    if row["kind"] == "softmax":
        return f"{first}, rows of {rest[0]:,}"
    return " × ".join(map(str, row["shape"]))


def table(rows: list[dict]) -> str:
    """All rows as Markdown."""
    lines = ["| kernel | shape | ours (µs) | peers' time / ours |", "| --- | --- | ---: | --- |"]
    for row in rows:
        if times := row.get("times_s"):
            others = [(peer, each / times["ours"]) for peer, each in times.items()][1:]
            peers = ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in others)
            lines.append(f"| {row['kind']} | {_text(row)} | {1e6 * times['ours']:,.1f} | {peers} |")
    return "\n".join(lines)


PARTS = {  # {part: (its lab, its share of the time)}
    "matmul": ("05", 0.5), "softmax": ("04", 0.2), "fp32": ("03", 0.15), "int4": ("10", 0.15),
}  # fmt: skip


def measured(ends: dict[str, float], plans: int) -> Iterator[dict]:
    """All rows. ends: {part: the time of time.monotonic() at which it ends}."""
    from benchmarks.solved import solved

    runs: dict[str, Callable[..., Iterator[dict]]] = {
        "matmul": functools.partial(matmuls, plans=plans),
        "softmax": softmaxes,
        "fp32": fp32_matmuls,
        "int4": int4_products,
    }
    for part, until in ends.items():
        yield from runs[part](solved(PARTS[part][0]), until)


def size_of(row: dict) -> float:
    """What a row's dot stands at in the figure: the FLOPs of a product, a softmax's columns."""
    if row["kind"] == "softmax":
        return row["shape"][1]
    return 2.0 * math.prod(row["shape"])


def draw(rows: list[dict], file: Path) -> None:
    """Our share of the peer's speed by size, a panel for each kernel and its first peer."""
    import matplotlib.pyplot as plt

    from common import figures

    figures.use_style()
    groups: dict[str, tuple[str, list[dict]]] = {}
    for name, peer, some in _groups(rows):
        if "odd" not in name:
            groups.setdefault(name, (peer, some))
    axes = plt.subplots(
        math.ceil(len(groups) / 2), 2, figsize=(9, 2.5 * math.ceil(len(groups) / 2)), squeeze=False
    )[1].flat
    for ax, (name, (peer, some)) in zip(axes, groups.items(), strict=False):
        ratios = [row["times_s"][peer] / row["times_s"]["ours"] for row in some]
        ax.axhline(1, color="C7", linewidth=1)
        ax.plot([size_of(row) for row in some], ratios, "o", markersize=3, alpha=0.6)
        unit = "elements per row" if some[0]["kind"] == "softmax" else "FLOP"
        ax.set(xscale="log", yscale="log", xlabel=unit, ylabel="times its speed")
        ax.set_title(f"{name}, and {peer}", fontsize=9)
        ticks = [tick for tick in TICKS if min(ratios) / 1.2 < tick < max(ratios) * 1.2]
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    for ax in list(axes):  # panels that are left
        ax.set_visible(False)
    plt.savefig(file, dpi=110)
    plt.close()


def shown(row: dict) -> str:
    """A row in a line, as it is measured."""
    times = (f"{name} {1e6 * each:.1f} µs" for name, each in row.get("times_s", {}).items())
    return " ".join([row["kind"], _text(row), row.get("failed", ""), *times])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="only these")
    parser.add_argument("--limit", type=float, default=240, help="seconds in all")
    parser.add_argument("--plans", type=int, default=0, help="shapes to time every plan of")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--raw", type=Path, default=ROOT / "build" / "sweeps.json")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "sweeps.png")
    parser.add_argument("--from", dest="earlier", type=Path, help="draw what this file holds")
    options = parser.parse_args()
    if options.earlier:
        rows = json.loads(options.earlier.read_text(encoding="utf-8"))
        draw(rows, options.figure)
        print(summary(rows))
        return
    if not device.has_gpu():
        sys.exit("benchmarks/sweeps.py measures on a GPU, and this machine has no GPU")
    rows = run(options.part, options.limit, options.plans)
    options.raw.parent.mkdir(parents=True, exist_ok=True)
    options.raw.write_text(json.dumps(rows, default=str), encoding="utf-8")
    import triton

    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    origin = f"{device.name()}, {versions}. Made by `python benchmarks/sweeps.py`, seed {SEED}."
    text = "\n\n".join([origin, summary(rows), table(rows)]) + "\n"
    options.output.write_text(text, encoding="utf-8")
    print(summary(rows))
    draw(rows, options.figure)


def run(parts: list[str], limit_s: float, plans: int) -> list[dict]:
    """The rows of these parts; each part has its share of the time."""
    whole, end, ends = sum(PARTS[part][1] for part in parts), time.monotonic(), {}
    started, rows = end, []
    for part in parts:
        end += limit_s * PARTS[part][1] / whole
        ends[part] = end
    try:
        for row in measured(ends, plans):
            rows.append(row)
            print(f"{time.monotonic() - started:6.1f} s", shown(row), flush=True)
    except RuntimeError as error:  # the GPU answers no more: keep what was measured
        print(f"It ended early: {error}", file=sys.stderr)
    return rows


if __name__ == "__main__":
    main()
