"""The operators of an engine, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

DEAD = "DEAD"  # the value on a branch that was not taken


def _sum_like(g: Any, like: Any) -> Any:
    """g summed down to the shape of `like`: what undoes a broadcast of `like` to g's shape."""
    shape = np.shape(like)
    if np.shape(g) == shape:
        return g
    front = np.ndim(g) - len(shape)
    stretched = [axis for axis, size in enumerate(shape, start=front) if size == 1]
    return np.sum(g, axis=(*range(front), *stretched)).reshape(shape)


BATCH_NORM_EPSILON = 1e-5


def _convolve(x: Any, weight: Any, bias: Any) -> Any:
    """x (N, C, H, W), weight (O, C, k, k), bias (O,): (N, O, H - k + 1, W - k + 1), no padding."""
    size = np.shape(weight)[-1]
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight) + np.reshape(bias, (-1, 1, 1))


def _batch_norm(x: Any, gain: Any, shift: Any, mean: Any, variance: Any) -> Any:
    """x (N, C, H, W), by statistics (C,) that are given, as after training."""
    gain, shift, mean, variance = (np.reshape(v, (-1, 1, 1)) for v in (gain, shift, mean, variance))
    return gain * (x - mean) / np.sqrt(variance + BATCH_NORM_EPSILON) + shift


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "negative": np.negative,
    "greater": np.greater,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "step": lambda x: np.heaviside(x, 0),
    "detach": lambda x: x,
    "matmul": np.matmul,
    "transpose": lambda x: np.swapaxes(x, -1, -2),
    "sum": np.sum,
    "mean": np.mean,
    "size": lambda x: float(np.size(x)),
    "row_sum": lambda x: np.sum(x, axis=-1, keepdims=True),
    "row_max": lambda x: np.max(x, axis=-1, keepdims=True),
    "sum_like": _sum_like,
    "broadcast_like": lambda x, like: np.broadcast_to(x, np.shape(like)),
    "zeros_like": np.zeros_like,
    "ones_like": np.ones_like,
    "switch_true": lambda p, x: x if p else DEAD,
    "switch_false": lambda p, x: DEAD if p else x,
    "merge": lambda p, a, b: a if p else b,
    "convolve": _convolve,
    "batch_norm": _batch_norm,
}
# f(a + b) = f(a) + f(b), and f(0) = 0, in all inputs together.
LINEAR = ("add", "subtract", "negative", "transpose", "sum", "mean", "row_sum")
# The derivative is 0, or said to be.
FLAT = ("step", "greater", "size", "zeros_like", "ones_like", "detach")


def evaluate(op: str, *values: Any) -> Any:
    """The operator's value. An operator that reads DEAD is dead too, except for merge."""
    if op != "merge" and any(value is DEAD for value in values):
        return DEAD
    return OPERATORS[op](*values)
