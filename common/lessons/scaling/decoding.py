"""The course's language model that writes: int4 weights, keys and values kept, one token per step.

A position is a learned vector, and the model has 128 of them. When 128 tokens are there, all but
the last 64 are forgotten, and these take the positions from 0 on. Both ways to write do this.
"""

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from common import language_model
from common.language_model import CONFIG, EPSILON

GROUP, KEPT, TEMPERATURE = 32, 64, 0.5
PROMPT = "It is a truth universally acknowledged, that "
MATRICES = ("query_key_value", "projection", "up", "down", "scores")
Arrays = dict[str, np.ndarray]


def is_matrix(name: str) -> bool:
    """Whether this weight is multiplied with, and so has 4 bits."""
    return name.rpartition(".")[2] in MATRICES


def quantized(quantize_groups: Callable[..., Any]) -> dict[str, Any]:
    """{name: (codes, scales)} of the matrices, and float32 arrays of all else."""
    return {
        name: tuple(np.asarray(part) for part in quantize_groups(torch.from_numpy(w), 4, GROUP))
        if is_matrix(name)
        else w
        for name, w in language_model.weights().items()
    }


def dequantized(weights: Mapping[str, Any], dequantize_groups: Callable[..., Any]) -> Arrays:
    """{name: float32 array}: the weights that codes stand for."""
    return {
        name: np.asarray(dequantize_groups(*map(torch.from_numpy, w), GROUP), np.float32)
        if is_matrix(name)
        else w
        for name, w in weights.items()
    }


def pack(codes: np.ndarray) -> np.ndarray:
    """(columns / 2, rows) bytes: of each 32 columns, column i low, and column i + 16 high.

    Rows stand side by side, so that one instruction multiplies many of them.
    """
    halves = (codes.astype(np.int16) + 8).astype(np.uint8).reshape(len(codes), -1, 2, GROUP // 2)
    packed = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(len(codes), -1)
    return np.ascontiguousarray(packed.T)


@functools.cache
def _kernel() -> Callable[..., None]:
    import numba

    half = GROUP // 2

    @numba.njit(fastmath=True)
    def int4_product(packed: Any, scales: Any, x: Any, y: Any) -> None:
        rows = packed.shape[1]
        part = np.empty(rows, np.float32)
        for i in range(x.shape[0]):
            y[i] = 0
            for group in range(scales.shape[0]):
                part[:] = 0
                for j in range(half):
                    low, high = x[i, group * GROUP + j], x[i, group * GROUP + half + j]
                    for row in range(rows):
                        byte = np.int32(packed[group * half + j, row])
                        part[row] += low * np.float32((byte & 15) - 8)
                        part[row] += high * np.float32((byte >> 4) - 8)
                for row in range(rows):
                    y[i, row] += part[row] * scales[group, row]

    return int4_product


class Writer:
    """The model with 4-bit matrices and a cache of keys and values."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.plain: Arrays = {n: w for n, w in weights.items() if not is_matrix(n)}
        self.packed = {
            name: (pack(w[0]), np.ascontiguousarray(w[1].T, np.float32))
            for name, w in weights.items()
            if is_matrix(name)
        }
        self.product = _kernel()
        shape = CONFIG.layers, 2, CONFIG.heads, CONFIG.context, CONFIG.head
        self.cache, self.length = np.zeros(shape, np.float32), 0
        self._times("scores", np.zeros((1, CONFIG.width), np.float32))  # compiles it

    @property
    def weight_bytes(self) -> int:
        """Bytes of the matrices, with their scales."""
        return sum(part.nbytes for parts in self.packed.values() for part in parts)

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        """The scores (128,) of the character after these, which are added to the cache."""
        start, n = self.length, len(tokens)
        self.length += n
        x = self.plain["embedding"][list(tokens)] + self.plain["positions"][start : start + n]
        for layer in range(CONFIG.layers):
            x = self._block(x, layer, start)
        return self._times("scores", _normed(x[-1:], self.plain["norm"]))[0]

    def _block(self, x: np.ndarray, layer: int, start: int) -> np.ndarray:
        name, n, end = f"blocks.{layer}.", len(x), self.length
        normed = _normed(x, self.plain[name + "norm_attention"])
        parts = self._times(name + "query_key_value", normed)
        query, key, value = parts.reshape(n, 3, CONFIG.heads, -1).transpose(1, 2, 0, 3)
        keys, values = self.cache[layer]
        keys[:, start:end], values[:, start:end] = key, value
        scores = query @ keys[:, :end].transpose(0, 2, 1) / np.float32(math.sqrt(CONFIG.head))
        if n > 1:
            seen = np.arange(end) <= np.arange(start, end)[:, None]
            scores = np.where(seen, scores, np.float32(-np.inf))
        odds = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (odds / odds.sum(-1, keepdims=True)) @ values[:, :end]
        mixed = np.ascontiguousarray(mixed.transpose(1, 0, 2)).reshape(n, -1)
        x = x + self._times(name + "projection", mixed)
        hidden = self._times(name + "up", _normed(x, self.plain[name + "norm_hidden"]))
        return x + self._times(name + "down", _gelu(hidden))

    def _times(self, name: str, x: np.ndarray) -> np.ndarray:
        packed, scales = self.packed[name]
        y = np.empty((len(x), packed.shape[1]), np.float32)
        self.product(packed, scales, np.ascontiguousarray(x, np.float32), y)
        return y


def _normed(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(EPSILON)) * gain


def _gelu(x: np.ndarray) -> np.ndarray:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


def _luck(count: int) -> np.ndarray:
    """(count, 128): Gumbel noise, so that the largest score plus noise is a draw."""
    return np.random.default_rng(16).gumbel(size=(count, CONFIG.vocabulary))


def write_cached(
    weights: Mapping[str, Any], count: int, prompt: str = PROMPT
) -> tuple[list[int], float]:
    """(the codes of the characters that follow, seconds): each token is computed once."""
    writer, luck = Writer(weights), _luck(count)
    tokens = list(prompt.encode("ascii"))
    start_s = time.perf_counter()
    window, scores = list(tokens), writer.read(tokens)
    for draw in luck:
        window.append(int((scores / TEMPERATURE + draw).argmax()))
        tokens.append(window[-1])
        if len(window) == CONFIG.context:
            window, writer.length = window[-KEPT:], 0
            scores = writer.read(window)
        else:
            scores = writer.read(window[-1:])
    return tokens[-count:], time.perf_counter() - start_s


def write_again(weights: Arrays, count: int, prompt: str = PROMPT) -> tuple[list[int], float]:
    """The same by the plain model in float32, which computes the whole window for each token."""
    from common.language_model import transformer

    torch.set_num_threads(1)  # as the other way to write has
    model = language_model.module(trained=False).float()
    with torch.no_grad():
        for name, parameter in transformer.named(model):
            parameter.copy_(torch.from_numpy(weights[name]))
    tokens = list(prompt.encode("ascii"))
    start_s, window = time.perf_counter(), list(tokens)
    with torch.inference_mode():
        for draw in _luck(count):
            scores = model(torch.tensor(window)[None])[0, -1].numpy()
            window.append(int((scores / TEMPERATURE + draw).argmax()))
            tokens.append(window[-1])
            if len(window) == CONFIG.context:
                window = window[-KEPT:]
    return tokens[-count:], time.perf_counter() - start_s
