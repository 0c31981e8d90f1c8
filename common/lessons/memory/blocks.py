"""Layers of the language model as rows (op, inputs), as PyTorch computes them on a CPU.

A placeholder is an input, a constant a weight. `view` is the same memory seen in another way.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from common.graphs.rows import Row

Sized = tuple[list[Row], list[int]]  # rows, and the bytes of each row's value
TORCH: dict[str, Callable[..., Any]] = {
    "matmul": torch.matmul,
    "multiply": torch.mul,
    "add": torch.add,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "square": lambda x: x.pow(2),
    "view": lambda x: x.mT,
}


class _Rows:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.sizes: list[int] = []

    def add(self, op: str, inputs: Any, count: int) -> int:
        self.rows.append((op, inputs))
        self.sizes.append(count)
        return len(self.rows) - 1

    def norm(self, x: int, gain: str, width: int, *, fused: bool) -> int:
        """An RMS norm of x, of five operators. fused: one operator, which keeps x and a root."""
        size, row = self.sizes[x], self.sizes[x] // width
        square = self.add("square", (x,), size)
        root = self.add("rsqrt", (self.add("mean", (square,), row),), row)
        weight = self.add("constant", gain, 4 * width)
        if fused:
            return self.add("add", (x, weight), size)
        normed = self.add("multiply", (x, root), size)
        return self.add("multiply", (normed, weight), size)

    def linear(self, x: int, weight: str, n: int, m: int) -> int:
        """x @ weight, from n to m numbers."""
        matrix = self.add("constant", weight, 4 * n * m)
        return self.add("matmul", (x, matrix), self.sizes[x] // n * m)


def block(
    batch: int, n: int, width: int, heads: int, hidden: int, *, fused_norm: bool = False
) -> Sized:
    """A block of the language model in float32: attention, then a hidden layer.

    fused_norm: as on a GPU, where a norm is one operator.
    """
    made = _Rows()
    x = made.add("placeholder", "x", 4 * batch * n * width)
    normed = made.norm(x, "norm_attention", width, fused=fused_norm)
    joined = made.linear(normed, "query_key_value", width, 3 * width)
    parts = tuple(made.add("view", (joined,), made.sizes[x]) for _ in range(3))
    mixed = made.add("attention", parts, made.sizes[x])
    made.add("log_sum_exp", parts, 4 * batch * n * heads)
    joined = made.add("view", (mixed,), made.sizes[x])
    x = made.add("add", (x, made.linear(joined, "projection", width, width)), made.sizes[x])
    normed = made.norm(x, "norm_hidden", width, fused=fused_norm)
    up = made.linear(normed, "up", width, hidden)
    active = made.add("gelu", (up,), made.sizes[up])
    made.add("add", (x, made.linear(active, "down", hidden, width)), made.sizes[x])
    return made.rows, made.sizes


def scores(batch: int, n: int, width: int, vocabulary: int) -> Sized:
    """The last layer and its loss: norm, scores, cross-entropy against the targets."""
    made = _Rows()
    x = made.add("placeholder", "x", 4 * batch * n * width)
    normed = made.norm(x, "norm", width, fused=False)
    values = made.linear(normed, "scores", width, vocabulary)
    logs = made.add("log_softmax", (values,), made.sizes[values])
    targets = made.add("placeholder", "targets", 8 * batch * n)
    made.add("pick", (logs, targets), 4 * batch * n)
    return made.rows, made.sizes
