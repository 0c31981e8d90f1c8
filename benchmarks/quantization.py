"""The int4 matrix-vector product of lab 10 against cuBLAS in bf16, one vector, on a GPU. Goal: 3 times at 8192 × 8192.

    python common/setup/environment.py benchmarks/quantization.py

Every product runs over many copies of its weights, together several times the L2, in one CUDA graph: the cache is cold,
and a launch costs what it costs in a graph. Times are medians over replays, a product each. The limit is the bytes of
weights, scales, x and y over the copy bandwidth of the same run. Each kernel is first compared with float64. "Started
early": a product's kernel starts while the one before ends, loads its first weights, and reads x once that one has ended
(programmatic dependent launch). cuBLAS's kernels do not.
"""

import itertools
import statistics
import sys

import torch
import triton
import triton.language as tl

from benchmarks.solved import solved
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
]  # rows a program, words of a row a step, warps
TENSOR_CORES = {"tensor cores": False, "tensor cores, started early": True}
KERNEL, LOOP = "int4_matvec_kernel", "in range(0, GROUPS * WORDS, CELLS)"
CHANGES = {  # variants of the lab's own kernel: {name: (text, what stands in its place)}
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
    packed,
    scales,
    x,
    y,
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


def lab_names(old="", new=""):
    """{name: value} of lab 10, solved, with one piece of its kernel's text changed."""
    kernel = labs.read("10").solution[KERNEL]
    if old not in kernel:
        raise ValueError(f"lab 10's kernel has no {old!r}")
    return solved("10", **{KERNEL: kernel.replace(old, new)})


class Product:
    """Copies of one int4 matrix with its scales, and the vector that it is multiplied by."""

    def __init__(self, rows, columns, group) -> None:
        self.rows, self.groups, self.words = rows, columns // group, group // 8
        codes = torch.randint(-8, 8, (rows, columns), device="cuda", dtype=torch.int8)
        scales = torch.rand(rows, self.groups, device="cuda").add_(0.5).bfloat16()
        self.x, self.y = (
            torch.randn(columns, device="cuda").bfloat16(),
            torch.empty(rows, device="cuda"),
        )
        real = codes.view(rows, self.groups, group) * scales.double()[:, :, None]
        self.want = real.view(rows, columns) @ self.x.double()
        self.lab = lab_names()
        packed = self.lab["pack_int4"](codes, group)
        self.bytes = sum(tensor.nbytes for tensor in (packed, scales, self.x, self.y))
        self.copies = self.copies_of(packed, scales)
        self.tiles = [] if group % 128 else self.copies_of(*self.lab["pack_tiles"](codes, scales))

    def copies_of(self, packed, scales):
        """What a product takes, as often as the caches need."""
        return [
            (packed.clone(), scales.clone(), self.x, self.y)
            for _ in range(max(2, 2**29 // packed.nbytes))
        ]

    def calls(self, kernel, config):
        """One launch for each copy; none where the configuration does not fit the shape."""
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

    def tensor_core_calls(self, early):
        """One launch of the lab's last step for each copy; none where the groups are too small for it."""
        return [
            lambda args=args: self.lab["launch_tiles"](*args, early=early) for args in self.tiles
        ]

    def error(self, calls):
        """Largest error of the result after three calls in a row, in units of its root mean square."""
        self.y.fill_(float("nan"))
        for call in calls[:3]:
            call()
        return ((self.y - self.want).abs().max() / self.want.square().mean().sqrt()).item()


def time_us(calls, replays=30):
    """Microseconds a call: median over replays of one CUDA graph that holds all the calls, some times over."""
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


def copy_gb_s():
    """GB/s of a copy of 4 GiB, what is read and what is written both counted."""
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


def bf16_us(rows, columns):
    """{peer: microseconds} of the same product with bf16 weights, by three ways to reach cuBLAS."""
    copies = max(2, 2**30 // (2 * rows * columns))
    weights = [torch.randn(rows, columns, device="cuda").bfloat16() for _ in range(copies)]
    x, y = (
        torch.randn(columns, device="cuda").bfloat16(),
        torch.empty(rows, device="cuda").bfloat16(),
    )
    peers = {
        "torch.mv": lambda weight: torch.mv(weight, x, out=y),
        "torch.mm": lambda weight: torch.mm(weight, x[:, None], out=y[:, None]),
        "linear": lambda weight: torch.nn.functional.linear(x[None], weight),
    }
    return {
        name: time_us([lambda weight=weight, peer=peer: peer(weight) for weight in weights])
        for name, peer in peers.items()
    }


def pytorch_int4_us(rows, columns, group):
    """Microseconds of PyTorch's own int4 product, on random codes (for its speed alone)."""
    codes = torch.randint(0, 256, (rows, columns // 2), device="cuda", dtype=torch.uint8)
    packed, x = (
        torch._convert_weight_to_int4pack(codes, 8),
        torch.randn(1, columns, device="cuda").bfloat16(),
    )
    scales = torch.rand(columns // group, rows, 2, device="cuda").bfloat16()
    weights = [(packed.clone(), scales.clone()) for _ in range(16)]
    return time_us(
        [
            lambda args=args: torch._weight_int4pack_mm(x, args[0], group, args[1])
            for args in weights
        ]
    )


def report(name, us, size_bytes, bf16, bandwidth) -> None:
    """Prints one line of the table: microseconds, GB/s, speed beside bf16 and beside the limit that bandwidth sets."""
    gb_s = size_bytes / us / 1e3
    print(
        f"{name:60}{us:8.2f} µs{gb_s:7.0f} GB/s{bf16 / us:7.2f} × bf16{gb_s / bandwidth:8.1%} of the limit",
        flush=True,
    )


def variants(product):
    """{(name, configuration): calls} of every kernel in every configuration that fits the product's shape."""
    kernels = {name: lab_names(*change)[KERNEL] for name, change in CHANGES.items()}
    kernels["usual unpacking"] = usual_kernel
    found = {
        (name, config): product.calls(kernels[name], config)
        for name, config in itertools.product(kernels, CONFIGS)
    }
    found |= {(name, ""): product.tensor_core_calls(early) for name, early in TENSOR_CORES.items()}
    return {key: calls for key, calls in found.items() if calls}


def compare_variants(product, bf16, bandwidth):
    """{(name, configuration): microseconds} of every variant, each right and reported."""
    found = {}
    for (name, config), calls in variants(product).items():
        try:
            error = product.error(calls)
        except (
            triton.TritonError
        ) as problem:  # does not compile, or needs more registers or shared memory
            print(f"{name} {config}: {type(problem).__name__}")
            continue
        assert error < 1e-4, f"{name} {config} is {error:.1e} off"
        found[name, config] = time_us(calls)
        report(f"{name} {config}", found[name, config], product.bytes, bf16, bandwidth)
    return found


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("benchmarks/quantization.py needs a GPU")
    torch.manual_seed(0)
    bandwidth, peers, product = copy_gb_s(), bf16_us(SIZE, SIZE), Product(SIZE, SIZE, GROUP)
    bf16, bf16_bytes, limit_us = (
        min(peers.values()),
        2 * (SIZE * SIZE + 2 * SIZE),
        product.bytes / bandwidth / 1e3,
    )
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    print(f"{torch.cuda.get_device_name()}, {versions}, copies at {bandwidth:.0f} GB/s")
    print(
        f"{SIZE} × {SIZE}, groups of {GROUP}: the limit is {limit_us:.2f} µs, {bf16 / limit_us:.2f} × bf16\n"
    )
    for peer, us in peers.items():
        report(f"bf16, {peer}", us, bf16_bytes, bf16, bandwidth)
    try:
        report(
            "PyTorch's _weight_int4pack_mm",
            pytorch_int4_us(SIZE, SIZE, GROUP),
            product.bytes,
            bf16,
            bandwidth,
        )
    except (AttributeError, RuntimeError) as problem:  # private operators come and go
        print(f"PyTorch's _weight_int4pack_mm: {str(problem)[:100]}")
    found = compare_variants(product, bf16, bandwidth)
    ranked = sorted(found, key=found.get)
    best, plain = ranked[0], next(key for key in ranked if key[0] == "lab")
    for what, key in (("best", best), ("the lab's own text", plain)):
        print(f"{what}: {key}, {bf16 / found[key]:.2f} × bf16 (goal {GOAL})")
    for rows, columns, group in MORE:
        product, bf16 = Product(rows, columns, group), min(bf16_us(rows, columns).values())
        fitting = variants(product)
        key = next(key for key in ranked if key in fitting)
        calls = fitting[key]
        assert product.error(calls) < 1e-4, f"{rows} × {columns}, groups of {group}"
        name = f"{rows} × {columns}, groups of {group}, {key[0]} (limit {bf16 * bandwidth / product.bytes * 1e3:.2f})"
        report(name, time_us(calls), product.bytes, bf16, bandwidth)


if __name__ == "__main__":
    main()
