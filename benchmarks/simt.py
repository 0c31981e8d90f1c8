"""The simulator's speed compared with Numba's: a matmul in 16×16 blocks through shared memory.

    python benchmarks/simt.py

The matrices are 64×64 of float32. Each simulator runs in its own process, because Numba reads
NUMBA_ENABLE_CUDASIM when it is imported. The time is the best of a few launches after a first one.
Goals: 15 times as fast as Numba's simulator without counting, 5 times with counting.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

GOALS = {"run": 15, "count": 5}
LAUNCHES = {"numba": 1, "run": 7, "count": 5}
SIZE, TILE = 64, 16
cuda: Any = None  # Numba's simulator or ours: set by time_s()
float32: Any = None


def matmul_tiled(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """c = a @ b, a tile of each operand at a time in shared memory."""
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    total = float32(0)
    for tile in range(a.shape[1] // TILE):
        a_tile[ty, tx] = a[y, tile * TILE + tx]
        b_tile[ty, tx] = b[tile * TILE + ty, x]
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    c[y, x] = total


def launcher(what: str) -> Callable[..., object]:
    """A function of a, b and c that launches the kernel: in Numba's simulator or in ours."""
    global cuda, float32
    import numba
    import numba.cuda

    from nogpu import simt
    from nogpu.simt import cuda as simt_cuda

    float32, cuda = numba.float32, numba.cuda if what == "numba" else simt_cuda
    kernel: Any = cuda.jit(matmul_tiled)
    grid, block = (SIZE // TILE, SIZE // TILE), (TILE, TILE)
    if what == "count":
        return partial(simt.count, kernel, grid, block)
    return kernel[grid, block]


def time_s(what: str) -> float:
    """Seconds of one launch: in Numba's simulator, or in ours without or with counting."""
    launch = launcher(what)
    a, b = np.random.default_rng(0).standard_normal((2, SIZE, SIZE)).astype(np.float32)
    c = np.zeros_like(a)
    times = []
    for _ in range(LAUNCHES[what] + (what != "numba")):
        start = time.perf_counter()
        launch(a, b, c)
        times.append(time.perf_counter() - start)
        assert np.allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    return min(times)


def main() -> None:
    root = Path(__file__).parents[1]
    seconds = {}
    for what in LAUNCHES:
        environment = os.environ | {
            "PYTHONPATH": str(root),
            "NUMBA_ENABLE_CUDASIM": str(int(what == "numba")),
        }
        child = subprocess.run(
            [sys.executable, __file__, what],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        seconds[what] = float(child.stdout)
    numba = seconds["numba"]
    print(f"{SIZE}×{SIZE} tiled matmul, {TILE}×{TILE} blocks   time        against Numba's   goal")
    print(f"Numba's simulator                  {numba:7.2f} s")
    for what, goal in GOALS.items():
        ratio = numba / seconds[what]
        missed = "" if ratio >= goal else "missed"
        name = "ours" if what == "run" else "ours, counting"
        print(f"{name:34s} {seconds[what]:7.3f} s   {ratio:8.1f} ×       ≥ {goal} ×  {missed}")
    sys.exit(any(numba / seconds[what] < goal for what, goal in GOALS.items()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(time_s(sys.argv[1]))
    else:
        main()
