"""Functions to be captured as graphs, and what torch.compile does with the same calls."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from common.checks import expect

Function = Callable[..., Any]


def scaled(x: Any, scale: Any, unused: Any) -> Any:
    """A Python number that becomes a part of the program, and an argument that does not matter."""
    return (x * scale).tanh()


def gated(x: Any, y: Any) -> Any:
    """A branch that depends on the data."""
    if x.sum() > 0.0:
        return x * y
    return x - y


def gated_twice(x: Any, y: Any) -> Any:
    """Two branches that depend on the data."""
    a = x if x.sum() > 0.0 else -x
    b = y if y.sum() > 0.0 else -y
    return a + b


def mean_by_hand(x: Any) -> Any:
    """A shape that Python reads and that becomes a number of the program."""
    return x.sum() / float(x.shape[0])


def repeated(x: Any, times: Any) -> Any:
    """A loop that Python unrolls."""
    y = x
    for _ in range(times):
        y = y * x + 1.0
    return y


def normalized(x: Any, weight: Any) -> Any:
    """Nothing but operators: one program for all sizes."""
    return x / (x * x).row_sum() * weight


def chosen_by_number(x: Any, mode: Any) -> Any:
    """A branch that depends on a Python number."""
    if mode > 2:
        return x.sin()
    return x.cos()


def mean_of_products(x: Any, y: Any) -> Any:
    """A shape that Python reads of a computed value."""
    product = x * y
    return product.sum() / float(product.shape[0])


FUNCTIONS: dict[str, Function] = {
    f.__name__: f
    for f in (
        *(scaled, gated, gated_twice, mean_by_hand, repeated, normalized, chosen_by_number),
        mean_of_products,
    )
}


@contextmanager
def traceable(name: str) -> Iterator[Function]:
    """The function of this name, which can be called until the context ends.

    So a lookup that comes later has only the guards.
    """
    ended = False

    def function(*arguments: Any) -> Any:
        expect(not ended, "the function is called after its trace: lookup has only the guards")
        return FUNCTIONS[name](*arguments)

    try:
        yield function
    finally:
        ended = True


@contextmanager
def _recompile_log() -> Iterator[io.StringIO]:
    """What torch.compile logs about its recompilations meanwhile."""
    import torch

    text, logger = io.StringIO(), logging.getLogger("torch._dynamo")
    handler = logging.StreamHandler(text)
    torch._logging.set_logs(recompiles=True)  # PyTorch documents torch._logging
    recompiles = logging.getLogger("torch.__recompiles")
    for one in (logger, recompiles):
        one.addHandler(handler)
    before = [(one, one.propagate, list(one.handlers)) for one in (logger, recompiles)]
    for one, _, handlers in before:
        one.propagate = False
        one.handlers = [h for h in handlers if h is handler]
    try:
        yield text
    finally:
        for one, propagate, handlers in before:
            one.propagate, one.handlers = propagate, [h for h in handlers if h is not handler]
        torch._logging.set_logs()


def torch_calls(
    function: Function, calls: Sequence[tuple[Any, ...]], *, dynamic: bool | None = None
) -> list[str]:
    """For each call in turn: "compiles", "runs", or the guard that failed before it recompiled.

    The compiler behind torch.compile is left out: its backend runs the captured graph as it is.
    """
    import torch

    torch.compiler.reset()
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(function, backend=backend, dynamic=dynamic)
    said = []
    with _recompile_log() as log:
        for call in calls:
            before = len(graphs), len(log.getvalue())
            compiled(*(torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in call))
            if len(graphs) == before[0]:
                said.append("runs")
            else:
                said.append(_reason(log.getvalue()[before[1] :]) or "compiles")
    torch.compiler.reset()
    return said


def _reason(logged: str) -> str:
    """The guard that failed, of what torch.compile logged about a recompilation."""
    lines = [line.strip() for line in logged.splitlines()]
    reasons = [line.partition(": ")[2] for line in lines if line.startswith("- ")]
    return f"recompiles: {reasons[0].split('  #')[0]}" if reasons else ""
