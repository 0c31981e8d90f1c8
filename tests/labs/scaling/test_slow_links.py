"""slow_links.py of lab 16: its gradient, its counted bytes, and a rank that is away."""

from typing import Any

import numpy as np
import pytest
import torch

from common.lessons.scaling import slow_links
from nogpu import ranks


def averaged(dist: Any, shared: Any, own: Any, momentum: Any, present: bool) -> None:
    """The weights become the mean of those who are here."""
    change = torch.cat([(own - shared) * present, own.new_tensor([float(present)])])
    dist.all_reduce(change)
    shared += change[:-1] / change[-1]


def test_gradient_is_autograds() -> None:
    """The written gradient agrees with autograd's, with a character that stands twice."""
    flat = slow_links.initial().double()
    inputs, following = slow_links._windows(np.arange(12) * 5)
    got = slow_links.slope(flat, inputs, following)
    leaf = flat.clone().requires_grad_()
    table = leaf[: slow_links.SIZES[0]].view(-1, slow_links.HIDDEN)
    out = leaf[slow_links.SIZES[0] :].view(slow_links.HIDDEN, -1)
    scores = table[inputs].sum(1).tanh() @ out
    torch.nn.functional.cross_entropy(scores, following).backward()
    assert leaf.grad is not None and torch.allclose(got, leaf.grad, rtol=1e-10, atol=1e-14)


def test_bytes_and_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of H steps sends one all-reduce; one rank alone sends nothing."""
    monkeypatch.setattr(slow_links, "STEPS", 40)
    told = slow_links.run(slow_links.diloco, averaged, 20, p=2)
    assert told["bytes"] == pytest.approx(2 * 4 * slow_links.SIZE, rel=1e-3)
    alone = slow_links.run(slow_links.diloco, averaged, 20, p=1)
    assert alone["bytes"] == 0 and alone["loss"] < slow_links.loss(slow_links.initial()) - 0.5
    every = slow_links.run(slow_links.data_parallel, p=2)
    assert every["bytes"] == pytest.approx(40 * 4 * slow_links.SIZE, rel=1e-3)


def test_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is away in all rounds changes nothing for the others."""
    monkeypatch.setattr(slow_links, "STEPS", 20)
    options: dict[str, Any] = {"live_bytes": False}
    with_it = ranks.run(
        slow_links.diloco, averaged, 10, 20, 8, {1: [0, 1]}, world_size=2, **options
    )
    alone = ranks.run(slow_links.diloco, averaged, 10, 20, 4, world_size=1, **options)
    assert torch.allclose(with_it.returns[1], alone.returns[0])
