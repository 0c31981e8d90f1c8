"""A small network that reads digits, trained in several precisions."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

from common import samples

FACTOR = 1e-5  # of the loss of `curves`: its gradients are too small for float16
SCALE = 2.0**44  # at which `curves` begins: too large


class Momentum:
    """SGD with momentum: update(gradients) changes the weights and the moments."""

    def __init__(self, weights: Sequence[Tensor], rate: float = 0.1) -> None:
        self.weights, self.rate = weights, rate
        self.moments = [torch.zeros_like(w) for w in weights]

    def update(self, gradients: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for weight, moment, gradient in zip(self.weights, self.moments, gradients, strict=True):
                moment.mul_(0.9).add_(gradient)
                weight.sub_(self.rate * moment)


def loss(x: Tensor, targets: Tensor, factor: float, weights: Sequence[Tensor]) -> Tensor:
    """The mean cross-entropy times a factor, in float32, of a network in the weights' precision."""
    hidden = torch.tanh(x.to(weights[0].dtype) @ weights[0])
    return F.cross_entropy((hidden @ weights[1]).float(), targets) * factor


def weights(seed: int, *widths: int) -> list[Tensor]:
    """Two matrices in float32."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(n, m, generator=generator) * n**-0.5
        for n, m in zip(widths, widths[1:], strict=False)
    ]


@dataclasses.dataclass(frozen=True)
class Curve:
    """The losses of a training run, divided by FACTOR, and how many steps were skipped."""

    losses: list[float]
    skipped: int


def _plain_step(
    kind: torch.dtype, loss: Any, master: Sequence[Tensor], update: Any, *_: Any
) -> bool:
    """A step in this precision, with master weights and without scaling."""
    own = [w.to(kind, copy=True).requires_grad_() for w in master]
    update([g.float() for g in torch.autograd.grad(loss(own), own)])
    return True


def curves(scaled_step: Callable[..., bool], steps: int) -> dict[str, Curve]:
    """{precision: Curve} of the same training; scaled_step: the student's loss_scaled_step."""
    images, digits = samples.digits()
    x, targets = (
        torch.tensor(images[:512]).float().flatten(1) / 16,
        torch.tensor(digits[:512]).long(),
    )
    steppers: Mapping[str, Callable[..., bool]] = {
        "fp32": functools.partial(_plain_step, torch.float32),
        "bf16": functools.partial(_plain_step, torch.bfloat16),
        "fp16": functools.partial(_plain_step, torch.float16),
        "fp16, scaled": scaled_step,
    }
    found = {}
    for name, step in steppers.items():
        master, state = weights(0, 64, 32, 10), {"scale": SCALE, "good": 0}
        update = Momentum(master, 0.1 / FACTOR).update
        call = functools.partial(loss, x, targets, FACTOR)
        losses, skipped = [], 0
        for _ in range(steps):
            losses.append(float(call(master)) / FACTOR)
            skipped += not step(call, master, update, state, 2000)
        found[name] = Curve(losses, skipped)
    return found


def draw(curves: Mapping[str, Curve]) -> Axes:
    """Axes with the loss of each run."""
    ax = plt.subplots(figsize=(7.4, 3.2))[1]
    for place, (name, curve) in enumerate(curves.items()):
        style = ["-", "--", "-.", ":"][place]
        label = f"{name} ({curve.skipped} steps skipped)"
        ax.plot(curve.losses, style, color=f"C{place}", label=label)
    ax.set(xlabel="step", ylabel="loss (nats)", title="The same training in four precisions")
    ax.legend()
    return ax
