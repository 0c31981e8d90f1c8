"""Lab 10's int4 matrix-vector product and cuBLAS in bf16. Goal: 3 times as fast at 8192 × 8192.

    python common/setup/environment.py benchmarks/quantization.py          (on a GPU)

Each product runs over many copies of its weights, several times the L2 together, in one CUDA graph:
the cache is cold, and a launch costs what it costs in a graph. Times are medians over replays, per
product. The limit is the bytes of weights, scales, x and y over the copy bandwidth of the same run.
Each kernel is first compared with float64. "Started early": a product's kernel starts before the
previous one ends, loads its first weights, and reads x once the previous one has ended
(programmatic dependent launch). cuBLAS's kernels do not.
"""

import itertools
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import triton
import triton.language as tl

from benchmarks.solved import solved
from common.lessons.quantization import int4
from grading.source import labs

SIZE, GROUP, GOAL = 8192, 128, 3.0
MORE = [
    (8192, 8192, 32),
    (8192, 8192, 64),
    (8192, 8192, 256),
    (8192, 8192, 512),
    (4096, 4096, 128),
    (4096, 14336, 128),
    (28672, 8192, 128),
]  # rows, columns, group
CONFIGS = [
    (8, 128, 1),
    (16, 128, 1),
    (4, 256, 2),
    (8, 256, 2),
    (16, 256, 2),
    (4, 512, 4),
    (8, 512, 4),
    (16, 512, 4),
    (4, 1024, 8),
    (8, 1024, 8),
    (16, 1024, 8),
]  # rows per program, words of a row per step, warps
Call = Callable[[], object]
Config = tuple[int, int, int]
TENSOR_CORES = {"tensor cores": False, "tensor cores, started early": True}
KERNEL, LOOP = "int4_matvec_kernel", "in range(0, GROUPS * WORDS, CELLS)"
CHANGES = {  # variants of the lab's own kernel: {name: (text, its replacement)}
    "lab": ("", ""),
    "lab, two steps in flight": (LOOP, "in tl.range(0, GROUPS * WORDS, CELLS, num_stages=2)"),
    "lab, three steps in flight": (LOOP, "in tl.range(0, GROUPS * WORDS, CELLS, num_stages=3)"),
    "lab, weights kept in the cache": (
        ',\n                        eviction_policy="evict_first")',
        ")",
    ),
}


@triton.jit
def usual_kernel(
    packed: tl.tensor,
    scales: tl.tensor,
    x: tl.tensor,
    y: tl.tensor,
    GROUPS: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """The same product, unpacked the usual way: shift, mask, subtract 8, convert."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, STEP), tl.float32)
    for first in range(0, GROUPS, STEP):
        group = first + tl.arange(0, STEP)
        cell = first * WORDS + tl.arange(0, STEP * WORDS)
        words = tl.load(packed + row[:, None] * (GROUPS * WORDS) + cell[None, :])
        scale = tl.load(scales + row[:, None] * GROUPS + group[None, :]).to(tl.float32)
        columns = x + cell // WORDS * (8 * WORDS) + cell % WORDS
        products = tl.zeros((ROWS, STEP * WORDS), tl.float32)
        for i in tl.static_range(8):
            x_i = tl.load(columns + i * WORDS).to(tl.float32)
            products += (((words >> 4 * i) & 15) - 8).to(tl.float32) * x_i[None, :]
        total += tl.sum(tl.reshape(products, (ROWS, STEP, WORDS)), 2) * scale
    tl.store(y + row, tl.sum(total, 1))


def lab_names(old: str = "", new: str = "") -> dict[str, Any]:
    """{name: value} of lab 10, solved, with one piece of its kernel's text replaced."""
    kernel = labs.read("10").solution[KERNEL]
    if old not in kernel:
        raise ValueError(f"lab 10's kernel has no {old!r}")
    return solved("10", **{KERNEL: kernel.replace(old, new)})


class Product:
    """Copies of one int4 matrix with its scales, and the vector that it is multiplied by."""

    def __init__(self, rows: int, columns: int, group: int) -> None:
        self.rows, self.groups, self.words = rows, columns // group, group // 8
        codes = torch.randint(-8, 8, (rows, columns), device="cuda", dtype=torch.int8)
        scales = torch.rand(rows, self.groups, device="cuda").add_(0.5).bfloat16()
        self.x = torch.randn(columns, device="cuda").bfloat16()
        self.y = torch.empty(rows, device="cuda")
        real = codes.view(rows, self.groups, group) * scales.double()[:, :, None]
        self.want = real.view(rows, columns) @ self.x.double()
        self.lab = lab_names()
        packed = self.lab["pack_int4"](codes, group)
        self.bytes = sum(tensor.nbytes for tensor in (packed, scales, self.x, self.y))
        self.copies = self.copies_of(packed, scales)
        self.tiles = [] if group % 128 else self.copies_of(*int4.pack_tiles(codes, scales))

    def copies_of(
        self, packed: torch.Tensor, scales: torch.Tensor
    ) -> list[tuple[torch.Tensor, ...]]:
        """Copies of a product's arguments, too many to fit in the caches."""
        copies = max(2, 2**29 // packed.nbytes)
        return [(packed.clone(), scales.clone(), self.x, self.y) for _ in range(copies)]

    def calls(self, kernel: Any, config: Config) -> list[Call]:
        """One launch for each copy; none if the configuration does not fit the shape."""
        rows, cells, warps = config
        if cells % self.words or self.groups * self.words % cells or self.rows % rows:
            return []
        sizes = {
            "GROUPS": self.groups,
            "WORDS": self.words,
            "ROWS": rows,
            "STEP": cells // self.words,
            "num_warps": warps,
        }
        return [
            lambda args=args: kernel[(self.rows // rows,)](*args, **sizes) for args in self.copies
        ]

    def tensor_core_calls(self, early: bool) -> list[Call]:
        """One launch of the lab's last step for each copy; none if the groups are too small."""
        return [lambda args=args: int4.launch_tiles(*args, early=early) for args in self.tiles]

    def lab_calls(self) -> list[Call]:
        """One launch of lab 10's kernel, as the lab launches it, for each copy."""
        kernel = self.lab[KERNEL]
        return [lambda args=args: int4.launch(kernel, *args) for args in self.copies]

    def error(self, calls: Sequence[Call]) -> float:
        """The largest error after three calls in a row, over the root mean square of the result."""
        self.y.fill_(float("nan"))
        for call in calls[:3]:
            call()
        return ((self.y - self.want).abs().max() / self.want.square().mean().sqrt()).item()


def time_us(calls: Sequence[Call], replays: int = 30) -> float:
    """Microseconds per call: median over replays of a CUDA graph that repeats all the calls."""
    calls = list(itertools.islice(itertools.cycle(calls), max(64, len(calls))))
    calls[0]()  # compiles
    torch.cuda.synchronize()
    graph, times_us = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    for _ in range(3 + replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times_us.append(1e3 * start.elapsed_time(end) / len(calls))
    return statistics.median(times_us[3:])


def copy_gb_s() -> float:
    """GB/s of a copy of 4 GiB; bytes read and bytes written both count."""
    source = torch.empty(2**32, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    times_ms = []
    for _ in range(6):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(4):
            target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times_ms.append(start.elapsed_time(end) / 4)
    return 2 * source.nbytes / min(times_ms) / 1e6


def bf16_us(rows: int, columns: int) -> dict[str, float]:
    """{peer: microseconds} of the same product with bf16 weights, by three ways to call cuBLAS."""
    copies = max(2, 2**30 // (2 * rows * columns))
    weights = [torch.randn(rows, columns, device="cuda").bfloat16() for _ in range(copies)]
    x = torch.randn(columns, device="cuda").bfloat16()
    y = torch.empty(rows, device="cuda").bfloat16()
    peers: dict[str, Callable[[torch.Tensor], object]] = {
        "torch.mv": lambda weight: torch.mv(weight, x, out=y),
        "torch.mm": lambda weight: torch.mm(weight, x[:, None], out=y[:, None]),
        "linear": lambda weight: torch.nn.functional.linear(x[None], weight),
    }
    return {
        name: time_us([lambda weight=weight, peer=peer: peer(weight) for weight in weights])
        for name, peer in peers.items()
    }


def pytorch_int4_us(rows: int, columns: int, group: int) -> float:
    """Microseconds of PyTorch's own int4 product, on random codes: only its speed matters."""
    codes = torch.randint(0, 256, (rows, columns // 2), device="cuda", dtype=torch.uint8)
    packed = torch._convert_weight_to_int4pack(codes, 8)
    x = torch.randn(1, columns, device="cuda").bfloat16()
    scales = torch.rand(columns // group, rows, 2, device="cuda").bfloat16()
    weights = [(packed.clone(), scales.clone()) for _ in range(16)]
    return time_us(
        [
            lambda args=args: torch._weight_int4pack_mm(x, args[0], group, args[1])
            for args in weights
        ]
    )


def report(name: str, us: float, size_bytes: int, bf16: float, bandwidth: float) -> None:
    """Prints one line of the table: microseconds, GB/s, speed over bf16's and over the limit."""
    gb_s = size_bytes / us / 1e3
    speeds = f"{bf16 / us:7.2f} × bf16{gb_s / bandwidth:8.1%} of the limit"
    print(f"{name:60}{us:8.2f} µs{gb_s:7.0f} GB/s{speeds}", flush=True)


def variants(product: Product) -> dict[tuple[str, Config | None], list[Call]]:
    """{(name, configuration): calls}: all kernels in all configurations that fit the shape."""
    kernels: dict[str, Any] = {name: lab_names(*change)[KERNEL] for name, change in CHANGES.items()}
    kernels["usual unpacking"] = usual_kernel
    all_calls: dict[tuple[str, Config | None], list[Call]] = {
        (name, config): product.calls(kernels[name], config)
        for name, config in itertools.product(kernels, CONFIGS)
    }
    for name, early in TENSOR_CORES.items():
        all_calls[name, None] = product.tensor_core_calls(early)
    return {key: calls for key, calls in all_calls.items() if calls}


def compare_variants(
    product: Product, bf16: float, bandwidth: float
) -> dict[tuple[str, Config | None], float]:
    """{(name, configuration): microseconds}, each checked and reported."""
    times_us = {}
    for (name, config), calls in variants(product).items():
        label = f"{name} {config or ''}"
        try:
            error = product.error(calls)
        except triton.TritonError as problem:  # it does not compile, or needs too many resources
            print(f"{label}: {type(problem).__name__}")
            continue
        assert error < 1e-4, f"{label} is {error:.1e} off"
        times_us[name, config] = time_us(calls)
        report(label, times_us[name, config], product.bytes, bf16, bandwidth)
    return times_us


def compare_peers(peers: dict[str, float], product: Product, bf16: float, bandwidth: float) -> None:
    bf16_bytes = 2 * (SIZE * SIZE + 2 * SIZE)
    for peer, us in peers.items():
        report(f"bf16, {peer}", us, bf16_bytes, bf16, bandwidth)
    name = "PyTorch's _weight_int4pack_mm"
    try:
        report(name, pytorch_int4_us(SIZE, SIZE, GROUP), product.bytes, bf16, bandwidth)
    except (AttributeError, RuntimeError) as problem:  # private operators come and go
        print(f"{name}: {str(problem)[:100]}")


def compare_shapes(ranked: Sequence[tuple[str, Config | None]], bandwidth: float) -> None:
    """Reports other shapes, with the first of these variants that fits the shape."""
    for rows, columns, group in MORE:
        product, bf16 = Product(rows, columns, group), min(bf16_us(rows, columns).values())
        fitting = variants(product)
        key = next(key for key in ranked if key in fitting)
        calls, shape = fitting[key], f"{rows} × {columns}, groups of {group}"
        assert product.error(calls) < 1e-4, shape
        limit = bf16 * bandwidth / product.bytes * 1e3
        label = f"{shape}, {key[0]} (limit {limit:.2f})"
        report(label, time_us(calls), product.bytes, bf16, bandwidth)


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("benchmarks/quantization.py needs a GPU")
    torch.manual_seed(0)
    bandwidth, peers, product = copy_gb_s(), bf16_us(SIZE, SIZE), Product(SIZE, SIZE, GROUP)
    bf16, limit_us = min(peers.values()), product.bytes / bandwidth / 1e3
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    print(f"{torch.cuda.get_device_name()}, {versions}, copies at {bandwidth:.0f} GB/s")
    limit = f"{limit_us:.2f} µs, {bf16 / limit_us:.2f} × bf16"
    print(f"{SIZE} × {SIZE}, groups of {GROUP}: the limit is {limit}\n")
    compare_peers(peers, product, bf16, bandwidth)
    times_us = compare_variants(product, bf16, bandwidth)
    ranked = sorted(times_us, key=times_us.__getitem__)
    plain = next(key for key in ranked if key[0] == "lab")
    for what, key in (("best", ranked[0]), ("the lab's own text", plain)):
        print(f"{what}: {key}, {bf16 / times_us[key]:.2f} × bf16 (goal {GOAL})")
    compare_shapes(ranked, bandwidth)


if __name__ == "__main__":
    main()
