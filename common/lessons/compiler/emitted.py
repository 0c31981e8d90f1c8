"""Kernels that a program has emitted as text: launched, counted, and compared with PyTorch.

The kernel of a text is called `fused`. Its parameters are a pointer for each array that it reads,
one for its result, the number n of the result's elements, and the constants COLUMNS (of the result)
and BLOCK. Import it after device.prepare_triton().
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import graphs
from common.graphs import ELEMENTWISE, LEAVES, Row
from common.hardware import device
from nogpu import tiles
from nogpu.kernels import linecache_text

BLOCK = 1024


@functools.cache
def kernel(text: str) -> Any:
    """The @triton.jit function `fused` of a text."""
    import triton
    import triton.language as tl

    file = f"<emitted {zlib.crc32(text.encode()):08x}>"
    linecache_text.remember(file, text)
    names: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": "emitted"}
    exec(compile(text, file, "exec"), names)  # noqa: S102 - the reader's own text, in their process
    return names["fused"]


def launch(text: str, arrays: Sequence[Tensor], out: Tensor) -> None:
    """Runs the kernel of this text on a GPU, or in Triton's interpreter."""
    n = out.numel()
    grid = (-(-n // BLOCK),)
    kernel(text)[grid](*arrays, out, n, COLUMNS=out.shape[-1] if out.dim() else 1, BLOCK=BLOCK)


def count(emitter: Any, text: str, arrays: Sequence[Tensor], out: Tensor, block: int = 64) -> Any:
    """The Report of a launch of this text under the counters.

    emitter: the function that returned the text; in the grader, the text is counted in a worker.
    """
    n, columns = out.numel(), out.shape[-1] if out.dim() else 1
    grid, sizes = (-(-n // block),), {"COLUMNS": columns, "BLOCK": block}
    return tiles.count(emitter, grid, *arrays, out, n, emitted=text, **sizes)


def shapes_of(rows: Sequence[Row], feeds: dict[str, Tensor]) -> list[tuple[int, ...]]:
    """The shape of each row's value: of element-wise operators and of reductions of rows."""
    found: list[tuple[int, ...]] = []
    for op, content in rows:
        if op in LEAVES:
            shape = feeds[content].shape if op == "placeholder" else np.shape(content)
            found.append(tuple(shape))
        elif op in ELEMENTWISE:
            found.append(np.broadcast_shapes(*(found[i] for i in content)))
        elif op in ("row_sum", "row_max"):
            found.append((*found[content[0]][:-1], 1))
        else:
            raise ValueError(f"{op} is neither element-wise nor a reduction of rows")
    return found


def elementwise_chain(operators: int) -> list[Row]:
    """So many element-wise operators on x (N, M), with a row b (M,), a column s (N, 1), constants.

    It mixes what a layer's end has: scale, bias, activation, residual.
    """
    rows: list[Row] = [("placeholder", name) for name in ("x", "b", "s")] + [("constant", 0.5)]
    pattern = ["multiply s", "add b", "tanh", "add x", "multiply c", "relu", "subtract b", "sin",
               "multiply s", "exp", "add c", "tanh"]  # fmt: skip
    last, leaf = 0, {"x": 0, "b": 1, "s": 2, "c": 3}
    for step in pattern[:operators]:
        op, _, other = step.partition(" ")
        rows.append((op, (last, leaf[other]) if other else (last,)))
        last = len(rows) - 1
    return rows


def torch_function(rows: Sequence[Row], output: int) -> Callable[..., Tensor]:
    """The same program as a function of tensors in PyTorch's operators, for torch.compile."""
    names = [content for op, content in rows if op == "placeholder"]

    def function(*tensors: Tensor) -> Tensor:
        feeds, values = dict(zip(names, tensors, strict=True)), []
        for op, content in rows:
            if op in LEAVES:
                values.append(feeds[content] if op == "placeholder" else content)
            else:
                values.append(graphs.torch_operator(op)(*(values[i] for i in content)))
        return values[output]

    return function


def requested(
    emitter: Callable[..., str],
    rows: Sequence[Row],
    groups: Sequence[Sequence[int]],
    shapes: Sequence[tuple[int, ...]],
    feeds: dict[str, Tensor],
) -> int:
    """Bytes that the kernels which `emitter` makes of these groups load and store, counted."""
    values = {i: feeds[name] for i, (op, name) in enumerate(rows) if op == "placeholder"}
    total = 0
    for group in groups:
        outside = {j for i in group for j in rows[i][1] if j not in group}
        arrays = [values[j] for j in sorted(outside) if rows[j][0] != "constant"]
        out = torch.empty(shapes[group[-1]])
        report = count(emitter, emitter(rows, group, shapes), arrays, out, BLOCK)
        values[group[-1]] = out
        total += report.loads.bytes + report.stores.bytes
    return total


def feeds(rows_count: int, columns: int, seed: int = 0) -> dict[str, Tensor]:
    """x (N, M), b (M,) and s (N, 1), float32, on the GPU if there is one."""
    where = "cuda" if device.has_gpu() else "cpu"
    draw = torch.Generator(where).manual_seed(seed)
    sizes = {"x": (rows_count, columns), "b": (columns,), "s": (rows_count, 1)}
    return {name: torch.randn(*size, generator=draw, device=where) for name, size in sizes.items()}
