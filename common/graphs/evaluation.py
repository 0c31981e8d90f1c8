"""The values and the gradients of a graph, by PyTorch: what the checks compare with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from common.graphs.operators import BATCH_NORM_EPSILON
from common.graphs.rows import Row

if TYPE_CHECKING:
    from torch import Tensor

SAME_IN_TORCH = (
    *("add", "multiply", "divide", "negative", "matmul", "greater"),
    *("exp", "log", "sin", "cos", "tanh", "relu", "sum", "mean"),
    *("detach", "zeros_like", "ones_like"),
)


def values(rows: Iterable[Row], feeds: Mapping[str, Tensor | None]) -> list[Tensor | None]:
    """A tensor for each row; None for an operator whose branch was not taken.

    feeds: {name of a placeholder: its value}. A row that is not valid raises a ValueError.
    """
    results: list[Tensor | None] = []
    for number, row in enumerate(rows):
        results.append(_value(number, row, results, feeds))
    return results


def _value(
    number: int, row: Row, results: Sequence[Tensor | None], feeds: Mapping[str, Tensor | None]
) -> Tensor | None:
    """The value of row `number`, given the results of the earlier rows."""
    op, inputs = row
    if op == "placeholder":
        return feeds[inputs]
    if op == "constant":
        return _constant(number, inputs)
    if not all(isinstance(i, int) and 0 <= i < number for i in inputs):
        raise ValueError(f"row {number} is {row}: its inputs must be earlier rows")
    arguments = [results[i] for i in inputs]
    if op != "merge" and any(value is None for value in arguments):
        return None
    try:
        return torch_operator(op)(*arguments)
    except RuntimeError as error:
        shapes = [None if x is None else tuple(x.shape) for x in arguments]
        raise ValueError(f"row {number}, {op} of shapes {shapes}: {error}") from None


def _constant(number: int, value: Any) -> Tensor:
    import torch

    if value is None:
        raise ValueError(
            f"row {number} is a constant without a value: detached from a graph that has not run"
        )
    dtype = torch.float64 if isinstance(value, (int, float)) else None
    return torch.as_tensor(value, dtype=dtype)


def evaluated(
    rows: Iterable[Row], outputs: Iterable[int], feeds: Mapping[str, Tensor | None]
) -> list[Tensor | None]:
    """The values of these outputs, which are numbers of rows."""
    results = values(rows, feeds)
    return [results[i] for i in outputs]


def adjoints(
    rows: Iterable[Row], outputs: Sequence[int | None], inputs: Sequence[Tensor], g: Tensor | None
) -> list[Tensor | None]:
    """The values of these outputs of a graph of placeholders g, x0, x1, ..., by input.

    An output that is wider than its input is summed down to the input's shape. An input without
    an output, or on a branch that was not taken, has None.
    """
    results = values(rows, {"g": g} | {f"x{i}": x for i, x in enumerate(inputs)})
    given = [None if output is None else results[output] for output in outputs]
    return [_summed(v, x.shape) for v, x in zip(given, inputs, strict=True)]


def _summed(v: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """v summed down to this shape; as it is if that is impossible, and None for None."""
    if v is None:
        return None
    try:
        return v.sum_to_size(shape)
    except RuntimeError:
        return v


def torch_operator(op: str) -> Callable[..., Any]:
    """PyTorch's operator of that name, a function of tensors; None stands for a dead value."""
    if op not in (operators := _operators()):
        raise ValueError(f"there is no operator {op!r}: there are {', '.join(operators)}")
    return operators[op]


@functools.cache
def _operators() -> dict[str, Callable[..., Any]]:
    import torch

    return {op: getattr(torch, op) for op in SAME_IN_TORCH} | {
        "subtract": lambda a, b: torch.add(a, b, alpha=-1),  # 1 - p of a bool, as NumPy allows it
        "step": lambda x: (x > 0).to(x.dtype),
        "transpose": lambda x: x.mT,
        "size": lambda x: torch.tensor(float(x.numel()), dtype=x.dtype),
        "row_sum": lambda x: x.sum(-1, keepdim=True),
        "row_max": lambda x: x.amax(-1, keepdim=True),
        "sum_like": lambda g, like: g.sum_to_size(like.shape),
        "broadcast_like": lambda x, like: x.expand_as(like),
        "switch_true": lambda p, x: x if p else None,
        "switch_false": lambda p, x: None if p else x,
        "merge": lambda p, a, b: a if p else b,
        "convolve": torch.conv2d,
        "batch_norm": lambda x, gain, shift, mean, variance: torch.nn.functional.batch_norm(
            x, mean, variance, gain, shift, eps=BATCH_NORM_EPSILON
        ),
    }


def gradient(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], weight: Tensor | float = 1.0
) -> list[Tensor]:
    """The gradients of sum(weight * function(*inputs)): PyTorch's, confirmed by differences.

    inputs: float64 tensors.
    """
    import torch

    def weighted(*xs: Tensor) -> Tensor:
        return (weight * function(*xs)).sum()

    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    gradients = torch.autograd.grad(weighted(*leaves), leaves, materialize_grads=True)
    ways = [torch.arange(x.numel(), dtype=x.dtype).cos().reshape(x.shape) for x in inputs]  # any do
    slope = sum((g * way).sum() for g, way in zip(gradients, ways, strict=True))
    difference = _central_difference(weighted, inputs, ways)
    torch.testing.assert_close(difference, slope, rtol=1e-6, atol=1e-6)
    return list(gradients)


def tangent(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], ways: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """(value, derivative along these ways) of function(*inputs): PyTorch's, confirmed likewise.

    inputs, ways: float64 tensors of the same shapes.
    """
    import torch

    value, derivative = torch.autograd.functional.jvp(function, tuple(inputs), tuple(ways))
    difference = _central_difference(function, inputs, ways)
    torch.testing.assert_close(difference, derivative, rtol=1e-6, atol=1e-6)
    return value, derivative


def _central_difference(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    ways: Sequence[Tensor],
    step: float = 1e-6,
) -> Tensor:
    ahead, behind = (
        function(*[x + s * way for x, way in zip(inputs, ways, strict=True)]) for s in (step, -step)
    )
    return (ahead - behind) / (2 * step)
