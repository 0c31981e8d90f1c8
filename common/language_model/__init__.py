"""The small language model that runs through all labs: 836,736 weights, one novel, 128 characters.

It predicts the next character of *Pride and Prejudice*. A transformer in its usual form: embedding
and positions; four blocks of attention and of a hidden layer with GELU, each after an RMS norm and
added to its input; a last norm; the scores of all characters. There are no biases. The weights that
ship with the course were trained by benchmarks/train_language_model.py on all but the last tenth of
the text.
"""

import functools
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from common import samples

if TYPE_CHECKING:
    from torch import nn

Arrays = dict[str, np.ndarray]
EPSILON = 1e-5  # of the norms


@dataclass(frozen=True)
class Config:
    """The sizes of the model."""

    vocabulary: int = 128  # ASCII: a token is a character's code
    context: int = 128  # tokens that it sees at once
    width: int = 128
    layers: int = 4
    heads: int = 4
    hidden: int = 512

    @property
    def head(self) -> int:
        """Numbers per head."""
        return self.width // self.heads


CONFIG = Config()


def shapes(config: Config = CONFIG) -> dict[str, tuple[int, ...]]:
    """{name: shape} of the weights. A matrix is (outputs, inputs), as in torch.nn.Linear."""
    width, hidden = config.width, config.hidden
    named: dict[str, tuple[int, ...]] = {
        "embedding": (config.vocabulary, width),
        "positions": (config.context, width),
    }
    for layer in range(config.layers):
        block = {
            "norm_attention": (width,),
            "query_key_value": (3 * width, width),
            "projection": (width, width),
            "norm_hidden": (width,),
            "up": (hidden, width),
            "down": (width, hidden),
        }
        named |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
    return named | {"norm": (width,), "scores": (config.vocabulary, width)}


def parameter_count(config: Config = CONFIG) -> int:
    return sum(math.prod(shape) for shape in shapes(config).values())


@functools.cache
def text() -> str:
    """The novel: 684,768 ASCII characters."""
    return samples.novel()


def tokens(start: int, count: int) -> np.ndarray:
    """(count,) int64: the codes of the novel's characters from this one on."""
    return np.frombuffer(text()[start : start + count].encode("ascii"), np.uint8).astype(np.int64)


def weights() -> Arrays:
    """{name: float32 array} of the trained model; fresh arrays at each call."""
    return {name: array.astype(np.float32) for name, array in samples.language_model().items()}


def activations(tokens: np.ndarray, weights: Arrays | None = None) -> Arrays:
    """Every intermediate result for one text, in the order in which it is computed.

    tokens: (n,), n ≤ 128. weights: as `weights` gives them, or changed (by default the trained
    ones). Per block: its `input` (n, 128); `normed` (n, 128), `scores` and `attention` (heads, n,
    n), `mixed` (n, 128), `normed_hidden` (n, 128), `hidden` before GELU and `active` after it (n,
    512). Then `normed` and `logits` (n, 128).
    """
    w = weights or _trained()
    kept: Arrays = {}
    x = w["embedding"][tokens] + w["positions"][: len(tokens)]
    for layer in range(CONFIG.layers):
        name = f"blocks.{layer}."
        block = {key.removeprefix(name): w[key] for key in w if key.startswith(name)}
        x = _block(x, block, kept, name)
    kept["normed"] = _normed(x, w["norm"])
    kept["logits"] = kept["normed"] @ w["scores"].T
    return kept


def _block(x: np.ndarray, w: Arrays, kept: Arrays, name: str) -> np.ndarray:
    """The block's output (n, width); puts its intermediate results into `kept`."""
    n, heads = len(x), CONFIG.heads
    normed = _normed(x, w["norm_attention"])
    query, key, value = (
        part.reshape(n, heads, -1).transpose(1, 0, 2)
        for part in np.split(normed @ w["query_key_value"].T, 3, axis=1)
    )
    scores = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(CONFIG.head))
    scores = np.where(np.tri(n, dtype=bool), scores, np.float32(-np.inf))
    attention = np.exp(scores - scores.max(-1, keepdims=True))
    attention /= attention.sum(-1, keepdims=True)
    mixed = (attention @ value).transpose(1, 0, 2).reshape(n, -1)
    between = x + mixed @ w["projection"].T
    normed_hidden = _normed(between, w["norm_hidden"])
    hidden = normed_hidden @ w["up"].T
    active = _gelu(hidden)
    results = {"input": x, "normed": normed, "scores": scores, "attention": attention}
    results |= {"mixed": mixed, "normed_hidden": normed_hidden, "hidden": hidden, "active": active}
    kept |= {name + key: array for key, array in results.items()}
    return between + active @ w["down"].T


def logits(tokens: np.ndarray, weights: Arrays | None = None) -> np.ndarray:
    """(n, 128): after each token, the scores of all characters that could come next."""
    return activations(tokens, weights)["logits"]


def loss(tokens: np.ndarray, weights: Arrays | None = None) -> float:
    """Mean cross-entropy, in nats per character, of predicting each token but the first."""
    scores = logits(tokens[:-1], weights).astype(np.float64)
    most = scores.max(1, keepdims=True)
    normalizer = most[:, 0] + np.log(np.exp(scores - most).sum(1))
    return float((normalizer - scores[np.arange(len(scores)), tokens[1:]]).mean())


def module(*, trained: bool = True, **changed: Any) -> "nn.Sequential":
    """The same model in PyTorch: int64 tokens (batch, n) to scores (batch, n, 128).

    A list of layers: the embedding, the blocks, the scores. An untrained one may have other sizes
    (fields of Config), and `linear`, a class to use in place of torch.nn.Linear.
    """
    import torch

    from common.language_model import transformer

    sizes: dict[str, Any] = asdict(CONFIG) | changed
    model = transformer.transformer(**sizes)
    if trained:
        arrays = weights()
        with torch.no_grad():
            for name, parameter in transformer.named(model):
                parameter.copy_(torch.from_numpy(arrays[name]))
    return model


@functools.cache
def _trained() -> Arrays:
    return weights()


def _normed(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(EPSILON)) * gain


def _gelu(x: np.ndarray) -> np.ndarray:
    """By tanh, as torch's gelu(approximate="tanh")."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (1 + np.tanh(inner))
