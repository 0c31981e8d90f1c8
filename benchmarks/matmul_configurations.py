"""Times of lab 05's matmul kernel in many configurations, as shipped with the course. On a GPU,

    python benchmarks/matmul_configurations.py

measures each configuration at each shape (bf16, random data, medians) and compares the result with
PyTorch's. Then the best configuration and cuBLAS take turns, on random data and on zeros, which
need less power. It writes common/samples/matmul_configurations.json and prints the file's hash for
common/samples. It first compiles in parallel processes, because a compilation takes about a second
and a measurement 60 ms: four minutes in all on 16 cores.
"""

import contextlib
import datetime
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import triton
import triton.language as tl

from common.hardware import timing
from nogpu.kernels import linecache_text

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / "solutions" / "05_triton_matmul.py"
FILE = ROOT / "common" / "samples" / "matmul_configurations.json"
KERNEL = "matmul_bias_gelu_kernel"
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
SHAPES = [
    (4096, 4096, 4096),
    (8192, 2048, 4096),
    (4096, 11008, 4096),
    (2048, 2048, 2048),
    (1024, 5120, 3072),
    (512, 8192, 4096),
    (16, 8192, 8192),  # few rows: a language model that writes for 16 readers
    (64, 8192, 4096),
    (256, 4096, 4096),
    (8192, 64, 4096),  # few columns
    (4096, 512, 4096),
    (512, 512, 16384),  # few tiles, long sums
    (128, 2048, 16384),
    (8192, 8192, 128),  # short sums
    (16384, 512, 128),  # the course's language model: 128 texts of 128 tokens, into a hidden layer
    (16384, 128, 512),  # and out of it
]  # M, N, K
Shape = tuple[int, int, int]  # M, N, K
Config = dict[str, int]  # what the kernel's launch takes
TILES = [  # rows, columns, depth of a step, warps, stages
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (128, 256, 64, 8, 2),
    (128, 256, 64, 4, 3),
    (128, 256, 32, 8, 4),
    (128, 256, 128, 8, 2),
    (128, 256, 128, 8, 3),
    (256, 128, 64, 8, 3),
    (256, 128, 64, 8, 4),
    (256, 128, 128, 8, 2),
    (256, 256, 32, 8, 3),
    (256, 256, 64, 8, 2),
    (256, 256, 64, 8, 3),
    (256, 256, 64, 16, 3),
    (128, 128, 64, 4, 2),
    (128, 128, 64, 4, 3),
    (128, 128, 64, 4, 4),
    (128, 128, 64, 8, 3),
    (128, 128, 64, 8, 4),
    (128, 128, 64, 8, 1),
    (128, 128, 32, 4, 4),
    (128, 128, 32, 8, 5),
    (128, 128, 128, 4, 2),
    (128, 128, 128, 8, 2),
    (128, 128, 128, 8, 3),
    (128, 64, 64, 4, 3),
    (128, 64, 64, 4, 4),
    (128, 64, 64, 8, 4),
    (128, 64, 128, 4, 3),
    (64, 128, 64, 4, 3),
    (64, 128, 64, 4, 4),
    (64, 128, 128, 4, 3),
    (64, 256, 64, 4, 3),
    (64, 256, 64, 4, 4),
    (64, 256, 64, 8, 4),
    (256, 64, 64, 4, 3),
    (256, 64, 64, 8, 4),
    (64, 64, 64, 4, 3),
    (64, 64, 64, 4, 5),
    (64, 64, 128, 4, 3),
    (64, 64, 32, 4, 4),
    (64, 64, 32, 2, 4),
    (64, 32, 64, 4, 4),
    (128, 32, 64, 4, 4),
    (32, 64, 64, 4, 4),
    (32, 128, 64, 4, 4),
    (32, 32, 64, 2, 4),
    (32, 32, 32, 4, 3),
    (16, 64, 64, 4, 4),
    (16, 16, 64, 1, 3),
    (16, 32, 128, 2, 4),
    (16, 32, 256, 2, 3),
    (16, 64, 128, 4, 4),
    (16, 64, 256, 4, 3),
    (16, 128, 64, 4, 4),
    (16, 128, 128, 4, 4),
    (16, 256, 64, 4, 4),
    (32, 32, 128, 4, 5),
    (32, 64, 128, 4, 4),
    (32, 128, 128, 4, 4),
    (32, 256, 64, 4, 4),
    (64, 16, 128, 4, 4),
    (64, 32, 128, 4, 4),
    (64, 64, 64, 4, 1),
    (64, 64, 64, 4, 2),
    (64, 64, 64, 4, 8),
    (64, 64, 128, 4, 5),
    (64, 64, 256, 4, 3),
    (64, 128, 64, 4, 2),
    (64, 128, 128, 4, 4),
    (64, 256, 64, 4, 2),
    (128, 64, 64, 4, 1),
    (128, 64, 64, 4, 2),
    (128, 64, 64, 4, 6),
    (128, 64, 128, 4, 4),
    (128, 128, 64, 4, 1),
    (128, 128, 64, 8, 2),
    (128, 128, 64, 8, 6),
    (128, 128, 128, 4, 1),
    (128, 128, 128, 8, 1),
    (128, 256, 64, 8, 1),
]
GROUP = 8
PIPELINE = (1536, 1408, 8192)  # 12 × 11 tiles of 128 × 128: one for each multiprocessor of an H200
STAGES = [(128, 128, depth, 8, stages) for depth in (32, 64) for stages in range(1, 9)]
LOGITS = (4096, 65536, 4096)  # a language model's last product: 4096 tokens, 65536 words
ORDERS = [
    (tile, group)
    for tile in ((128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (64, 64, 64, 4, 5))
    for group in (1, 2, 4, 8, 16, 32, 64)
]


def lab_kernel() -> Any:
    """The lab's kernel, from the text of its cell."""
    cells = ["# " + cell for cell in LAB.read_text(encoding="utf-8").split("\n# %%")]
    text = next(cell for cell in cells if f"\ndef {KERNEL}(" in cell)
    linecache_text.remember("<lab 05>", text)
    names: dict[str, Any] = {"triton": triton, "tl": tl}
    exec(compile(text, "<lab 05>", "exec"), names)  # noqa: S102  (the lab's own cell)
    return names[KERNEL]


# The configuration needs too much shared memory, or too many registers.
REFUSED = (triton.runtime.errors.OutOfResources, triton.runtime.errors.PTXASError)


def with_group(tiles: Iterable[tuple[int, ...]]) -> list[Config]:
    return [dict(zip(NAMES, tile, strict=True), GROUP=GROUP) for tile in tiles]


def configurations() -> dict[Shape, list[Config]]:
    """{shape: the configurations that are measured there}."""
    orders = [dict(zip(NAMES, tile, strict=True), GROUP=group) for tile, group in ORDERS]
    every = dict.fromkeys(SHAPES, with_group(TILES))
    return every | {LOGITS: orders, PIPELINE: with_group(STAGES)}


def operands(shape: Shape) -> tuple[torch.Tensor, ...]:
    """a, b, c of this shape in bf16."""
    m, n, k = shape
    return tuple(torch.randn(size, device="cuda").bfloat16() for size in ((m, k), (k, n), (m, n)))


def arguments(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[Any, ...]:
    """The kernel's arguments before its constants; without the epilogue, the bias is not read."""
    return a, b, c, c, *c.shape, a.shape[1], *a.stride(), *b.stride(), *c.stride()


def compile_time_s(config: Config) -> float:
    """Seconds that this process takes to compile a configuration, into Triton's cache on disk."""
    bf16, (m, n, k) = torch.bfloat16, SHAPES[0]
    start = time.perf_counter()
    with contextlib.suppress(*REFUSED):
        lab_kernel().warmup(
            bf16, bf16, bf16, bf16, m, n, k, k, 1, n, 1, n, 1, EPILOGUE=False, grid=(1,), **config
        )
    return time.perf_counter() - start


def launch(kernel: Any, config: Config, tensors: tuple[torch.Tensor, ...]) -> Any:
    """Launches a configuration; returns what Triton compiled."""
    rows, columns = tensors[2].shape
    grid = (triton.cdiv(rows, config["BLOCK_M"]) * triton.cdiv(columns, config["BLOCK_N"]),)
    return kernel[grid](*arguments(*tensors), EPILOGUE=False, **config)


def measured(
    kernel: Any, shape: Shape, configs: Iterable[Config], compile_s: dict[str, float]
) -> list[dict[str, Any]]:
    """Rows of the table for one shape; a configuration that the GPU refuses has no time."""
    tensors = operands(shape)
    want, rows = tensors[0] @ tensors[1], []
    results = "time_us", "registers", "spills", "shared_bytes", "compile_s"
    for config in configs:
        row = dict(zip("MNK", shape, strict=True)) | config
        try:
            compiled = launch(kernel, config, tensors)
        except REFUSED:
            rows.append(row | dict.fromkeys(results))
            continue
        torch.testing.assert_close(
            tensors[2], want, rtol=2e-2, atol=2.0, msg=lambda text, row=row: f"{row}: {text}"
        )
        time_us = median_us(lambda config=config: launch(kernel, config, tensors))
        memory = compiled.n_regs, compiled.n_spills, compiled.metadata.shared
        numbers = time_us, *memory, round(compile_s[str(config)], 2)
        rows.append(row | dict(zip(results, numbers, strict=True)))
    return rows


def median_us(call: Callable[[], object]) -> float:
    time_ms: Any = triton.testing.do_bench(call, warmup=10, rep=40, return_mode="median")
    return round(1e3 * time_ms, 2)


def in_turns(kernel: Any, shape: Shape, config: Config) -> list[float]:
    """Median microseconds of a configuration and of torch.mm: random data, then zeros."""
    tensors = operands(shape)
    times_us: list[float] = []
    for a, b, c in (tensors, tuple(map(torch.zeros_like, tensors))):
        calls = (
            lambda a=a, b=b, c=c: launch(kernel, config, (a, b, c)),
            lambda a=a, b=b, c=c: torch.mm(a, b, out=c),
        )
        times_us += timing.in_turns(median_us, *calls)
    return times_us


def compiled_in_parallel(configs: list[Config]) -> dict[str, float]:
    """{configuration: seconds that its compilation took}."""
    cores = min(16, os.cpu_count() or 1)
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        return dict(zip(map(str, configs), pool.map(compile_time_s, configs), strict=True))


def compared(kernel: Any, shape: Shape, rows: list[dict[str, Any]]) -> list[float]:
    """The shape, and the times of its best configuration and of cuBLAS, taken in turns."""
    best = min((row for row in rows if row["time_us"]), key=lambda row: row["time_us"])
    config = {name: best[name] for name in (*NAMES, "GROUP")}
    times_us = in_turns(kernel, shape, config)
    print(
        f"{shape}: best {best['time_us']} µs with {tuple(config.values())}; in turns with cuBLAS, "
        f"ours and cuBLAS on random data, then on zeros: {times_us} µs",
        flush=True,
    )
    return [*shape, *times_us]


def write(rows: list[dict[str, Any]], turns: list[list[float]]) -> None:
    """Writes the file, with one line per row."""
    record = {
        "device": torch.cuda.get_device_name(),
        "date": str(datetime.date.today()),
        "versions": {
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
        },
        "what": f"{KERNEL} of lab 05 without its epilogue, bf16, random data; "
        "medians of triton.testing.do_bench; turns: M, N, K, and the times of our best and of "
        "cuBLAS in turns, on random data and on zeros",
    }
    head = json.dumps(record, indent=1)[:-2]
    tables = {
        "cublas_us": [[*row[:3], row[4]] for row in turns],
        "turns": turns,
        "rows": [list(row.values()) for row in rows],
    }
    text = f'{head},\n "columns": {json.dumps(list(rows[0]))}'
    for name, table in tables.items():
        text += f',\n "{name}": [\n' + ",\n".join(map(json.dumps, table)) + "\n]"
    FILE.write_text(text + "}\n", encoding="utf-8")


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("benchmarks/matmul_configurations.py needs a GPU")
    torch.manual_seed(0)
    configs, start = configurations(), time.perf_counter()
    each = {str(config): config for of_shape in configs.values() for config in of_shape}
    compile_s = compiled_in_parallel(list(each.values()))
    compiling_s = time.perf_counter() - start
    print(f"{len(each)} configurations compiled in {compiling_s:.0f} s", flush=True)
    kernel, rows, turns = lab_kernel(), [], []
    for shape, of_shape in configs.items():
        measured_rows = measured(kernel, shape, of_shape, compile_s)
        turns.append(compared(kernel, shape, measured_rows))
        rows += measured_rows
    write(rows, turns)
    sha256 = hashlib.sha256(FILE.read_bytes()).hexdigest()
    print(f"{FILE.name}: {len(rows)} rows, sha256 {sha256}, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
