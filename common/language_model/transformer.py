"""The course's language model in PyTorch: a list of layers, so that labs can cut it into stages."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPSILON = 1e-5  # of the norms
Linear = Callable[..., nn.Module]  # as torch.nn.Linear: (inputs, outputs, bias=False)


class Embedding(nn.Module):
    """A vector for each token, and one for each place."""

    def __init__(self, vocabulary: int, context: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(vocabulary, width))
        self.positions = nn.Parameter(torch.empty(context, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 (batch, n) to (batch, n, width)."""
        return self.embedding[tokens] + self.positions[: tokens.shape[-1]]


class Block(nn.Module):
    """Attention, then a hidden layer; each after a norm, and added to its input."""

    def __init__(self, width: int, heads: int, hidden: int, linear: Linear = nn.Linear) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.Parameter(torch.ones(width))
        self.query_key_value = linear(width, 3 * width, bias=False)
        self.projection = linear(width, width, bias=False)
        self.norm_hidden = nn.Parameter(torch.ones(width))
        self.up = linear(width, hidden, bias=False)
        self.down = linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n, width) to the same shape."""
        normed = F.rms_norm(x, x.shape[-1:], self.norm_attention, EPSILON)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.query_key_value(normed).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).flatten(2))
        normed = F.rms_norm(x, x.shape[-1:], self.norm_hidden, EPSILON)
        return x + self.down(F.gelu(self.up(normed), approximate="tanh"))


class Scores(nn.Module):
    """The last norm, and the score of each character that could come next."""

    def __init__(self, vocabulary: int, width: int, linear: Linear = nn.Linear) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.ones(width))
        self.scores = linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n, width) to (batch, n, vocabulary)."""
        return self.scores(F.rms_norm(x, x.shape[-1:], self.norm, EPSILON))


def transformer(
    *,
    vocabulary: int,
    context: int,
    width: int,
    layers: int,
    heads: int,
    hidden: int,
    linear: Linear = nn.Linear,
) -> nn.Sequential:
    """The embedding, the blocks, the scores. Its matrices are random (Radford et al. 2019)."""
    model = nn.Sequential(
        Embedding(vocabulary, context, width),
        *(Block(width, heads, hidden, linear) for _ in range(layers)),
        Scores(vocabulary, width, linear),
    )
    for name, parameter in named(model):
        if parameter.ndim == 2:
            into_the_sum = name.endswith(("projection", "down"))  # 2 per layer are added up
            scale = (2 * layers) ** -0.5 if into_the_sum else 1.0
            nn.init.normal_(parameter, std=0.02 * scale)
    return model


def named(model: nn.Sequential) -> Iterator[tuple[str, nn.Parameter]]:
    """The weights with their names in `language_model.shapes`."""
    for key, parameter in model.named_parameters():
        layer, _, name = key.removesuffix(".weight").partition(".")
        in_a_block = 0 < int(layer) < len(model) - 1
        yield f"blocks.{int(layer) - 1}.{name}" if in_a_block else name, parameter
