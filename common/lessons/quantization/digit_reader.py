"""A small network that reads handwritten digits, and what it reads after its weights change."""

import copy
import functools
from collections.abc import Callable, Iterable

import numpy as np
import torch
import torch.nn.functional as F

from common import samples

TRAINING = 1297  # images; the other 500 are for the test
Change = Callable[[torch.Tensor], torch.Tensor]
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Rewire = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Three]


@functools.cache
def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels (1797, 64), float32 from 0 to 1, and digits (1797,), int64, in a random order."""
    images, digits = samples.digits()
    order = np.random.default_rng(0).permutation(len(digits))
    pixels = torch.from_numpy(images[order]).reshape(-1, 64) / 16
    return pixels, torch.from_numpy(digits[order])


def network() -> torch.nn.Sequential:
    """64 pixels, 128 and 64 hidden units, ten scores; not trained."""
    first, middle, last = (torch.nn.Linear(*size) for size in ((64, 128), (128, 64), (64, 10)))
    return torch.nn.Sequential(first, torch.nn.ReLU(), middle, torch.nn.ReLU(), last)


def linear(net: torch.nn.Sequential) -> list[torch.nn.Linear]:
    """The network's three layers with weights."""
    return [layer for layer in net if isinstance(layer, torch.nn.Linear)]


def trained(seed: int = 0) -> torch.nn.Sequential:
    """The network after 300 steps of Adam, with initial weights and batches drawn by this seed."""
    pixels, digits = data()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = network()
        optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
        for _ in range(300):
            batch = torch.randint(TRAINING, (128,))
            optimizer.zero_grad()
            F.cross_entropy(net(pixels[batch]), digits[batch]).backward()
            optimizer.step()
    return net.requires_grad_(requires_grad=False)


def accuracy(net: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """Percent of the 500 test images whose largest score is the right digit's."""
    pixels, digits = data()
    right = net(pixels[TRAINING:]).argmax(1) == digits[TRAINING:]
    return 100 * right.float().mean().item()


def with_weights(net: torch.nn.Sequential, change: Change) -> torch.nn.Sequential:
    """A copy of the network with change(weight) in place of each weight matrix."""
    changed = copy.deepcopy(net)
    for layer in linear(changed):
        layer.weight.data = change(layer.weight.data)
    return changed


def rescaled(
    net: torch.nn.Sequential, units: Iterable[int] = (3, 17), factor: float = 30.0
) -> torch.nn.Sequential:
    """A copy in which these units of both hidden layers are measured in another unit.

    Their incoming weights and biases are multiplied by the factor, and their outgoing weights are
    divided by it. The copy computes the same function.
    """
    chosen = list(units)

    def change(incoming: torch.Tensor, bias: torch.Tensor, outgoing: torch.Tensor) -> Three:
        factors = torch.ones(len(bias))
        factors[chosen] = factor
        return incoming * factors[:, None], bias * factors, outgoing / factors

    return rewired(net, change)


def accuracies(nets: Iterable[torch.nn.Sequential], change: Change) -> list[float]:
    """The accuracy of each network with change(weight) in place of each weight matrix."""
    return [accuracy(with_weights(net, change)) for net in nets]


def rewired(net: torch.nn.Sequential, change: Rewire) -> torch.nn.Sequential:
    """A copy with change(incoming, bias, outgoing) in place of these three, for each hidden layer.

    incoming, bias: the weights (units, inputs) and biases of the layer. outgoing: the weights of
    the layer that follows, (outputs, units).
    """
    changed = copy.deepcopy(net)
    first, middle, last = linear(changed)
    for layer, following in ((first, middle), (middle, last)):
        parts = change(layer.weight.data, layer.bias.data, following.weight.data)
        layer.weight.data, layer.bias.data, following.weight.data = parts
    return changed
