"""Backward through a graph of numbers, one operator after the other, with what each step adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.graphs.evaluation import torch_operator, values
from common.graphs.rows import LEAVES, Row


@dataclass(frozen=True)
class Walk:
    """All values of a graph, and the adjoints after each step of the walk."""

    values: list[float]
    visited: list[int]  # the operator of each step
    arrived: list[
        dict[int, list[float]]
    ]  # {row: what has arrived}, before the first step and after


def walk(rows: Sequence[Row], feeds: Mapping[str, float]) -> Walk:
    """Backward from the last row, by PyTorch's derivative of each operator."""
    import torch

    tensors = {name: torch.tensor(x, dtype=torch.float64) for name, x in feeds.items()}
    results = [x for x in values(rows, tensors) if x is not None]
    last = len(rows) - 1
    visited: list[int] = []
    arrived: list[dict[int, list[float]]] = [{last: [1.0]}]
    for i in reversed(range(len(rows))):
        op, inputs = rows[i]
        if op in LEAVES:
            continue
        adjoint = torch.tensor(sum(arrived[-1][i]), dtype=torch.float64)
        pullback = torch.func.vjp(torch_operator(op), *(results[j] for j in inputs))[1]
        now = {j: list(came) for j, came in arrived[-1].items()}
        for j, came in zip(inputs, pullback(adjoint), strict=True):
            now.setdefault(j, []).append(float(came))
        visited.append(i)
        arrived.append(now)
    return Walk([float(x) for x in results], visited, arrived)
