"""The simulator's counters compared with the hardware's, for the kernels of lab 03 and others.

    python benchmarks/simt_hardware.py [--output benchmarks/simt_hardware.md]

needs an NVIDIA GPU, numba.cuda, and Nsight Compute's `ncu` with access to the counters. It launches
every kernel once under ncu, counts the same launches in the simulator, and writes the table kernel,
counter, simulator, hardware, why. It ends with an error if two figures differ and WHY does not say
what the compiler did.
"""

import argparse
import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from common.hardware import ncu
from common.hardware.ncu import SIMT as COUNTERS

TILE, THREADS, STRIDE = 16, 128, 3
cuda: Any = None  # numba.cuda or the simulator: set by use(), with Numba's dtypes
float32: Any = None
float64: Any = None
int16: Any = None

METRICS = [metric for _, metrics in COUNTERS.values() for metric in metrics]

MERGED = "four loads along a row of a_tile become one of 16 bytes"
FOURS = "a thread's four neighbouring loads become one of 16 bytes"
WHY = {  # what the compiler did to the accesses as written, if the figures differ
    (f"{kernel}{shape}", f"shared load {figure}"): why
    for kernel, why, shapes in (
        ("matmul_tiled", MERGED, ("", ", 37 × 45 × 29")),
        ("matmul_register_tiled", FOURS, (", 128 × 256 × 32", ", 130 × 100 × 27")),
    )
    for shape in shapes
    for figure in ("requests", "wavefronts")
}


# The kernels of lab 03, from its source


def lab_kernels(cuda_module: Any) -> dict[str, Any]:
    """{name: kernel} of lab 03, the students' solved, jitted by numba.cuda or by the simulator."""
    import numba

    from grading.source import holes, labs
    from nogpu.kernels import linecache_text

    functions = [
        ast.unparse(node)
        for cell in labs.read("03").cells
        if cell.kind == "code"
        for node in ast.parse(holes.solved(cell.source)).body
        if isinstance(node, ast.FunctionDef)
        and any("cuda.jit" in ast.unparse(d) for d in node.decorator_list)
    ]
    text, file = "\n\n\n".join(functions), "<lab 03>"
    linecache_text.remember(file, text)
    names = {"cuda": cuda_module, "TILE": TILE}
    names |= {name: getattr(numba, name) for name in ("float32", "int32", "uint32")}
    exec(compile(text, file, "exec"), names)  # noqa: S102 (the course's own solution)
    return names


# Other kernels, for which the simulator was not made


def block_sum_interleaved(x: np.ndarray, out: np.ndarray) -> None:
    s, t = cuda.shared.array(256, float32), cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    for level in range(8):
        cuda.syncthreads()
        if t % (2 << level) == 0:
            s[t] += s[t + (1 << level)]
    if t == 0:
        cuda.atomic.add(out, 0, s[0])


def warp_sum(x: np.ndarray, out: np.ndarray) -> None:
    value, step = x[cuda.grid(1)], 16
    while step > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        step //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)


def strided(x: np.ndarray, out: np.ndarray) -> None:
    i = cuda.grid(1)
    out[i] = x[i * STRIDE]


def shifted(x: np.ndarray, out: np.ndarray) -> None:
    i = cuda.grid(1)
    out[i + 1] = x[i + 5]


def gather(x: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    i = cuda.grid(1)
    out[i] = x[index[i]]


def volume(x: np.ndarray, out: np.ndarray) -> None:
    i, j, k = cuda.grid(3)
    if i < x.shape[2] and j < x.shape[1] and k < x.shape[0]:
        out[k, j, i] = x[k, i, j]


def every_fourth_thread(x: np.ndarray, out: np.ndarray) -> None:
    i = cuda.grid(1)
    if i % 4 == 1:
        out[i] = x[i]


def one_by_one(x: np.ndarray, out: np.ndarray) -> None:
    i = cuda.grid(1)
    for q in range(32):
        if q == i % 32:
            out[i] = x[i]


def shared_64_bits(x: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    s = cuda.shared.array(1024, float64)
    t = cuda.threadIdx.x
    for k in range(t, 1024, cuda.blockDim.x):
        s[k] = x[k]
    cuda.syncthreads()
    out[t] = s[index[t]]


def shared_32_bits(x: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    s = cuda.shared.array(1024, float32)
    t = cuda.threadIdx.x
    for k in range(t, 1024, cuda.blockDim.x):
        s[k] = x[k]
    cuda.syncthreads()
    out[t] = s[index[t]]


def shared_16_bits(x: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    s = cuda.shared.array(1024, int16)
    t = cuda.threadIdx.x
    for k in range(t, 1024, cuda.blockDim.x):
        s[k] = x[k]
    cuda.syncthreads()
    out[t] = s[index[t]]


def shared_64_bits_alternate(x: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    s = cuda.shared.array(1024, float64)
    t = cuda.threadIdx.x
    for k in range(t, 1024, cuda.blockDim.x):
        s[k] = x[k]
    cuda.syncthreads()
    if t % 2 == 0:
        out[t] = s[index[t]]


def histogram(x: np.ndarray, out: np.ndarray) -> None:
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, x[i], 1)


class Launch(NamedTuple):
    """A launch, with its name in the table."""

    name: str
    kernel: Any
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    arguments: tuple[np.ndarray, ...]


def launches(lab: dict[str, Any]) -> Iterator[Launch]:
    """Every launch, in order: the same ones in both processes. lab: the kernels of lab 03."""
    rng = np.random.default_rng(0)
    yield from _launches_of_the_lab(lab, rng)
    yield from _launches_in_global_memory(rng)
    yield from _launches_in_shared_memory(rng)
    bins = zeros(40, dtype=np.int32)
    yield Launch("histogram", histogram, 4, 100, (rng.integers(0, 40, 390), bins))


def floats(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def _launches_of_the_lab(lab: dict[str, Any], rng: np.random.Generator) -> Iterator[Launch]:
    for name, inputs, outputs in (
        ("vector_add", (1000, 1000), 1000),
        ("window_average_naive", (1026,), 1024),
        ("window_average", (1026,), 1024),
    ):
        given = *(floats(rng, count) for count in inputs), zeros(outputs)
        yield Launch(name, lab[name], 8, THREADS, given)
    name, given = "matrix_add_doubled", (floats(rng, 11, 30), floats(rng, 11, 30), zeros(11, 30))
    yield Launch(name, lab[name], (3, 2), (12, 6), given)
    sums = {
        "block_sum_interleaved": block_sum_interleaved,
        "block_sum": lab["block_sum"],
        "warp_sum": warp_sum,
    }
    for name, kernel in sums.items():
        yield Launch(name, kernel, 4, 256, (floats(rng, 1024), zeros(1)))
    for name in ("transpose_naive", "transpose"):
        yield Launch(name, lab[name], (2, 2), (32, 32), (floats(rng, 64, 64), zeros(64, 64)))
    for name in ("matmul_naive", "matmul_swapped", "matmul_tiled"):
        given = floats(rng, 64, 64), floats(rng, 64, 64), zeros(64, 64)
        yield Launch(name, lab[name], (4, 4), (TILE, TILE), given)
    given = floats(rng, 37, 29), floats(rng, 29, 45), zeros(37, 45)
    tiled = lab["matmul_tiled"]
    yield Launch("matmul_tiled, 37 × 45 × 29", tiled, (3, 3), (TILE, TILE), given)
    for m, n, k in ((128, 256, 32), (130, 100, 27)):
        name = "matmul_register_tiled"
        grid = -(-n // 128), -(-m // 128)
        given = floats(rng, m, k), floats(rng, k, n), zeros(m, n)
        yield Launch(f"{name}, {m} × {n} × {k}", lab[name], grid, 256, given)


def _launches_in_global_memory(rng: np.random.Generator) -> Iterator[Launch]:
    yield Launch("strided", strided, 4, THREADS, (floats(rng, 1536), zeros(512)))
    yield Launch("shifted", shifted, 3, 96, (floats(rng, 300), zeros(300)))
    double = floats(rng, 300, dtype=np.float64), zeros(300, dtype=np.float64)
    yield Launch("shifted, float64", shifted, 3, 96, double)
    for dtype in (np.float32, np.float64, np.int16, np.int8):
        index = rng.integers(0, 4096, 333)
        x = floats(rng, 4096, dtype=np.float64).astype(dtype)
        given = x, index, zeros(333, dtype=dtype)
        yield Launch(f"gather, {np.dtype(dtype)}", gather, 1, 333, given)
    yield Launch("volume", volume, (2, 3, 2), (8, 4, 4), (floats(rng, 7, 9, 9), zeros(7, 9, 9)))
    for kernel in (every_fourth_thread, one_by_one):
        yield Launch(kernel.__name__, kernel, 2, 64, (floats(rng, 128), zeros(128)))


def _launches_in_shared_memory(rng: np.random.Generator) -> Iterator[Launch]:
    t = np.arange(128)
    patterns = {
        "random": rng.integers(0, 1024, 128),
        "one word": np.full(128, 7),
        "stride 2": t * 2,
        "stride 32": t * 32 % 1024,
        "reversed": t[::-1].copy(),
        "12 threads": t[:12] * 16,
        "pairs": t // 2 * 5 % 1024,
        "pairs two apart": (t & ~2) * 3 % 1024,
        "fours": t // 4 * 7 % 1024,
    }
    for kernel, dtype in (
        (shared_32_bits, np.float32),
        (shared_64_bits, np.float64),
        (shared_16_bits, np.int16),
        (shared_64_bits_alternate, np.float64),
    ):
        for pattern, index in patterns.items():
            n = len(index)
            x = floats(rng, 1024, dtype=np.float64).astype(dtype)
            given = x, index, zeros(n, dtype=dtype)
            yield Launch(f"{kernel.__name__}, {pattern}", kernel, 1, n, given)


def use(cuda_module: Any) -> None:
    """Make the names that the kernels use."""
    import numba

    globals().update(
        cuda=cuda_module, **{name: getattr(numba, name) for name in ("float32", "float64", "int16")}
    )


def launch_on_the_gpu() -> None:
    """The process that ncu watches: each launch once, on device arrays."""
    import numba.cuda

    numba_cuda: Any = numba.cuda
    use(numba_cuda)
    for _, function, grid, block, arguments in launches(lab_kernels(numba_cuda)):
        kernel = numba_cuda.jit(function) if inspect.isfunction(function) else function
        kernel[grid, block](*(numba_cuda.to_device(array) for array in arguments))
        numba_cuda.synchronize()


def simulated() -> list[tuple[str, dict[str, int]]]:
    """[(name, {counter: figure})] of every launch, from the simulator."""
    from nogpu import simt
    from nogpu.simt import cuda as simt_cuda

    use(simt_cuda)
    figures = []
    for name, function, grid, block, arguments in launches(lab_kernels(simt_cuda)):
        kernel = simt_cuda.jit(function) if inspect.isfunction(function) else function
        report = simt.count(kernel, grid, block, *arguments, seed=0)
        figures.append(
            (
                name,
                {counter: _attribute(report, path) for counter, ((path,), _) in COUNTERS.items()},
            )
        )
    return figures


def _attribute(thing: Any, path: str) -> Any:
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing


def measured(count: int) -> list[dict[str, int | None]]:
    """{counter: figure} of every launch, from Nsight Compute; None for what it cannot measure."""
    metrics = list(METRICS)
    while True:
        text, output = _profile(metrics)
        unknown = "\n".join(re.findall("find metric.*", output + text))
        missing = [metric for metric in metrics if metric.split(".")[0] in unknown]
        if not missing:
            break
        print(f"this ncu does not know {', '.join(missing)}", file=sys.stderr)
        metrics = [metric for metric in metrics if metric not in missing]
    values = [values for _, values in ncu.parsed(text, METRICS)]
    if len(values) != count:
        sys.exit(
            f"ncu shows {len(values)} kernels, and {count} were launched:\n{output[-3000:]}\n"
            f"{text[:2000]}"
        )
    return [
        {counter: ncu.added(row, names) for counter, (_, names) in COUNTERS.items()}
        for row in values
    ]


def _profile(metrics: list[str]) -> tuple[str, str]:
    """(the CSV that ncu writes, everything else that was printed)."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        command = [
            "ncu",
            "--clock-control",
            "none",
            "--csv",
            "--print-units",
            "base",
            "--metrics",
            ",".join(metrics),
            "--log-file",
            str(log),
            sys.executable,
            __file__,
            "--launch",
        ]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0",
        }
        child = subprocess.run(command, env=environment, capture_output=True, text=True)
        text = log.read_text() if log.exists() else ""
    output = child.stdout + child.stderr
    if child.returncode and "metric" not in (output + text):
        sys.exit(f"ncu failed:\n{output[-3000:]}\n{text[-3000:]}")
    return text, output


def table(
    ours: list[tuple[str, dict[str, int]]], theirs: list[dict[str, int | None]]
) -> tuple[list[str], int]:
    """(lines of a Markdown table, the number of differences that nothing explains)."""
    lines = [
        "| kernel | counter | simulator | hardware | why |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    unexplained = 0
    for (name, counted), hardware in zip(ours, theirs, strict=True):
        for counter, figure in counted.items():
            value = hardware[counter]
            if not figure and not value:
                continue
            if value is None:
                shown, why = "not measured", ""
            else:
                why = "equal" if value == figure else WHY.get((name, counter), "")
                unexplained += not why
                shown = f"{value:,}"
            lines.append(
                f"| {name} | {counter} | {figure:,} | {shown} | {why or 'NOT EXPLAINED'} |"
            )
    return lines, unexplained


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument(
        "--launch", action="store_true", help="launch the kernels on the GPU (what ncu watches)"
    )
    options = parser.parse_args()
    if options.launch:
        launch_on_the_gpu()
        return
    if not shutil.which("ncu"):
        sys.exit("Nsight Compute's ncu is not on the path; it comes with the CUDA toolkit")
    ours = simulated()
    theirs = measured(len(ours))
    from numba import cuda as numba_cuda

    device = numba_cuda.get_current_device()
    name = device.name.decode() if isinstance(device.name, bytes) else device.name
    lines, unexplained = table(ours, theirs)
    title = f"# The simulator's counters and those of an {name}"
    made = "Made by `python benchmarks/simt_hardware.py`."
    summary = f"Differences: {unexplained} that nothing explains."
    text = "\n".join([title, "", f"{made} {summary}", "", *lines, ""])
    options.output.write_text(text)
    print(text)
    sys.exit(unexplained > 0)


if __name__ == "__main__":
    main()
