"""What p replicas train: two small models, shards of digits and of text, and plain SGD."""

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from common import language_model, samples
from common.checks import expect, static_names
from common.checks.grader_link import ReadRemotely, in_place

if TYPE_CHECKING:
    import ipywidgets

Shard = tuple[Tensor, Tensor]  # inputs and targets, rows along the first dimension


def digit_shards(rng: np.random.Generator, rows: Sequence[int]) -> list[Shard]:
    """[(images (n, 64), digits (n,))], one pair for each n of rows, no image twice."""
    (images, digits), ends = map(torch.tensor, samples.digits()), np.cumsum(rows)
    parts = np.split(rng.permutation(len(digits))[: ends[-1]], ends[:-1])
    pixels = images.flatten(1).to(torch.get_default_dtype()) / 16
    return [(pixels[part], digits[part]) for part in parts]


def text_shards(rng: np.random.Generator, rows: Sequence[int], context: int = 16) -> list[Shard]:
    """[(characters (n, context), the ones that follow each)], one pair for each n of rows."""
    text = torch.from_numpy(language_model.tokens(0, len(language_model.text())))
    starts = [torch.tensor(rng.integers(0, len(text) - context, (n, 1))) for n in rows]
    places = [start + torch.arange(context) for start in starts]
    return [(text[place], text[place + 1]) for place in places]


def perceptron(seed: int, width: int = 64, layers: int = 8) -> nn.Sequential:
    """Linear layers with tanh between them, from 64 pixels to the scores of ten digits."""
    torch.manual_seed(seed)
    sizes = [64] + [width] * (layers - 1) + [10]
    made = [layer for n, m in itertools.pairwise(sizes) for layer in (nn.Linear(n, m), nn.Tanh())]
    return nn.Sequential(*made[:-1])


def transformer(seed: int) -> nn.Sequential:
    """The course's language model, untrained, with two blocks of width 32."""
    torch.manual_seed(seed)
    return language_model.module(trained=False, layers=2, width=32, heads=2, hidden=128)


MODELS = {"perceptron": perceptron, "transformer": transformer}


def flattened(tensors: Iterable[Any]) -> Tensor:
    """All their numbers in one tensor."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def splits(function: FunctionType | ReadRemotely) -> list[str]:
    """The library's functions that cut a batch into shards and that a function uses."""
    return names_in(function, {"tensor_split", "array_split", "chunk", "unsafe_chunk"})


def names_in(function: FunctionType | ReadRemotely, of: Collection[str]) -> list[str]:
    """Which of these names a function uses, or which of the ways to a name that no text shows."""
    return static_names.names_in(function, {*of, *static_names.BY_TEXT})


def clips(function: FunctionType | ReadRemotely) -> list[str]:
    """The library's functions that clip gradients and that a function uses."""
    theirs = {name for name in dir(nn.utils.clip_grad) if name.startswith("clip_")}
    return names_in(function, theirs)


def same_storage(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are views of one storage."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def sharded(shard: Callable[..., Tensor], batch: Tensor, rank: int, p: int) -> tuple[Tensor, bool]:
    """(shard(batch, rank, p), whether it is a view of what it was given). batch stays as it is."""
    given = batch.clone()
    got = in_place(shard, given)(given, rank, p)
    expect(torch.equal(given, batch), "shard_batch wrote into the batch: cut it, and change no row")
    return got, not isinstance(got, Tensor) or not len(got) or same_storage(got, given)


def mean_loss(model: nn.Module, shard: Shard) -> Tensor:
    """Cross-entropy, averaged over the shard's rows (and characters)."""
    inputs, targets = shard
    return nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def sgd(parameters: Iterable[Any], rate: float) -> None:
    """One step downhill; the gradients are used up."""
    with torch.no_grad():
        for parameter in parameters:
            parameter -= rate * parameter.grad
            parameter.grad = None


# The widget: when buckets of a size would be on the wire


WIRE = {"alpha_s": 1e-4, "beta_s_per_byte": 6e-9}  # a wire whose messages cost much
LAYER_S = 2.6e-4 * 2  # backward of a layer of 64 × 64 with 32 rows at 10⁹ FLOP/s
LAYER_BYTES = 8 * (64 * 64 + 64)


def bucket_spans(
    bucket_bytes: int, world_size: int = 4, layers: int = 8
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """((start, length) of each layer's backward, (start, length) of each bucket on the wire)."""
    per_bucket = max(1, bucket_bytes // LAYER_BYTES)
    backward = [(i * LAYER_S, LAYER_S) for i in range(layers)]
    wire, free_s = [], 0.0
    for first in range(0, layers, per_bucket):
        count = min(per_bucket, layers - first)
        message_s = WIRE["alpha_s"] + WIRE["beta_s_per_byte"] * count * LAYER_BYTES / world_size
        start_s = max(free_s, (first + count) * LAYER_S)
        wire.append((start_s, 2 * (world_size - 1) * message_s))
        free_s = sum(wire[-1])
    return backward, wire


def draw_buckets(bucket_bytes: int, target_s: float) -> Axes:
    """The backward pass and the wire, one row each, and whether the step is as short as wanted."""
    backward, wire = bucket_spans(bucket_bytes)
    end_s = sum(wire[-1])
    ax = plt.subplots(figsize=(7.2, 1.9))[1]
    ax.broken_barh(backward, (0.6, 0.8), facecolor="C0", edgecolor="white")
    ax.broken_barh(wire, (-0.4, 0.8), facecolor="C1", edgecolor="white")
    ax.axvline(target_s, color="C2", linestyle="--")
    reached = "target reached" if end_s <= target_s else f"target: at most {target_s * 1e3:.2f} ms"
    title = (
        f"{len(wire)} buckets of at most {bucket_bytes:,} bytes: {end_s * 1e3:.2f} ms, {reached}"
    )
    ax.set(yticks=(0, 1), yticklabels=("wire", "backward"), xlim=(0, 9e-3), title=title)
    ax.set_xlabel("virtual time (s)")
    ax.grid(visible=False)
    return ax


def explorer(target_s: float = 5.9e-3) -> "ipywidgets.VBox":
    """Choose the size of a bucket; the widget says when the step is as short as the target."""
    import ipywidgets

    sizes = [LAYER_BYTES * count for count in range(1, 9)]
    size = ipywidgets.SelectionSlider(
        options=sizes, value=sizes[-1], description="bucket, bytes", continuous_update=False
    )
    size.style.description_width = "initial"

    def draw(size: int) -> None:
        draw_buckets(size, target_s)
        plt.show()

    return ipywidgets.VBox([size, ipywidgets.interactive_output(draw, {"size": size})])
