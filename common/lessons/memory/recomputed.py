"""Programs that lab 09 computes again, accumulates, or fuses: by name, as functions of tensors."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-5  # of the norms


def _dropout(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.dropout(torch.tanh(x @ w), 0.5) @ v


def _two_masks(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout(torch.sin(F.dropout(x, 0.3) @ w), 0.6)


def _smooth(x: Tensor) -> Tensor:
    return torch.tanh(x * torch.sin(x)).exp()


AGAIN: dict[str, Callable[..., Tensor]] = {
    "dropout": _dropout,
    "two masks": _two_masks,
    "no random numbers": _smooth,
}


class Scaled:
    """A program of AGAIN that multiplies its first input by `scale`, which changes between calls.

    If it is computed again in backward, its gradients are others than those of forward's graph.
    """

    def __init__(self, kind: str) -> None:
        self.program, self.scale = AGAIN[kind], torch.tensor(1.0)  # which autograd saves, as x

    def __call__(self, x: Tensor, *others: Tensor) -> Tensor:
        return self.program(self.scale * x, *others)


def token_loss(weights: Sequence[Tensor], x: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy per token of a small network."""
    return F.cross_entropy(torch.tanh(x @ weights[0]) @ weights[1], targets)


def norm(x: Tensor, gain: Tensor) -> Tensor:
    """An RMS norm over the last axis."""
    return F.rms_norm(x, x.shape[-1:], gain, EPSILON)


def block_loss(x: Tensor, *weights_and_targets: Tensor) -> Tensor:
    """Norm, gated hidden layer, norm, cross-entropy, by PyTorch's operators.

    After x: gain, gate, up, down, last_gain, scores, targets.
    """
    gain, gate, up, down, last_gain, scores, targets = weights_and_targets
    normed = norm(x, gain)
    h = x + (F.silu(normed @ gate) * (normed @ up)) @ down
    return F.cross_entropy(norm(h, last_gain) @ scores, targets)
