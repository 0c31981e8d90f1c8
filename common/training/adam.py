"""Adam on flat weights, as the parallel labs take its steps."""

import torch
from torch import Tensor

ADAM = {"rate": 0.01, "first": 0.9, "second": 0.99, "eps": 1e-8}


def adam(
    weights: Tensor,
    gradient: Tensor,
    m: Tensor,
    v: Tensor,
    step: int,
    rate: float = ADAM["rate"],
) -> None:
    """One step of Adam, in place: weights, m and v change. step: 1, 2, ..."""
    with torch.no_grad():
        m.lerp_(gradient, 1 - ADAM["first"])
        v.lerp_(gradient * gradient, 1 - ADAM["second"])
        mean, square = m / (1 - ADAM["first"] ** step), v / (1 - ADAM["second"] ** step)
        weights -= rate * mean / (square.sqrt() + ADAM["eps"])
