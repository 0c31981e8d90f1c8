"""Functions that torch.compile captures as one graph or as several, and its reasons."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


def straight(x: Tensor) -> Tensor:
    """Operators alone."""
    return (2 * x).tanh() + 1


def asks_for_data(x: Tensor) -> Tensor:
    """A branch that depends on the data."""
    y = 2 * x
    if y.sum() > 0:
        return y.tanh()
    return y + 1


def asks_for_shape(x: Tensor) -> Tensor:
    """A branch that depends on the shape: it becomes a guard."""
    y = 2 * x
    if x.shape[0] > 2:
        return y.tanh()
    return y + 1


def selects(x: Tensor) -> Tensor:
    """The branch of asks_for_data, as an operator."""
    y = 2 * x
    return torch.where(y.sum() > 0, y.tanh(), y + 1)


def reads_a_number(x: Tensor) -> Tensor:
    """A number that Python reads from a tensor."""
    scale = x.abs().max().item()
    return (x / scale).tanh()


def prints(x: Tensor) -> Tensor:
    """A message in the middle."""
    y = 2 * x
    print("", end="")
    return y.tanh()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    f.__name__: f
    for f in (straight, asks_for_data, asks_for_shape, selects, reads_a_number, prints)
}


def text(*names: str) -> str:
    """The source of these functions, without their docstrings."""
    return "\n\n".join(
        re.sub(r'\n +""".*"""', "", inspect.getsource(FUNCTIONS[name])).rstrip() for name in names
    )


class Breaks(NamedTuple):
    """Into how many graphs a function falls, and why the first one ends ("" if there is one)."""

    graphs: int
    reason: str


def breaks(name: str) -> Breaks:
    """What torch.compile makes of a function of FUNCTIONS, on 4 × 4 ones."""
    torch.compiler.reset()
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the reason is returned, so it need not be logged
    try:
        said = torch._dynamo.explain(FUNCTIONS[name])(torch.ones(4, 4))
    finally:
        logger.setLevel(level)
        torch.compiler.reset()
    reasons = [str(reason.reason).strip().splitlines()[0] for reason in said.break_reasons]
    return Breaks(said.graph_count, reasons[0] if reasons else "")
