"""Four programs that gather weights, for the clinic of lab 13: three of them are sick."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from common.lessons.sharded_data_parallel import fsdp_units
from common.training.replicas import Shard
from nogpu import ranks

PROGRAMS = {"A": (99, True), "B": (1, False), "C": (1, True), "D": (2, True)}  # ahead, releases


def traces(data: Sequence[Shard], machine: Mapping[str, Any]) -> dict[str, ranks.Trace]:
    """{program: the trace of a step of the eight layers}. data: by rank."""
    return {name: fsdp_units.run(_program(*how), data, machine) for name, how in PROGRAMS.items()}


def _program(ahead: int, releases: bool) -> Any:
    """A step that gathers so many units ahead, and releases each one that has computed, or none."""

    def step(dist: Any, kind: str, shards: Any, batches: Any, *_: Any) -> None:
        parts = fsdp_units.units(dist, kind, shards)
        inputs, targets, total = batches[0]
        kept = []
        for unit in _gathered(dist, parts, ahead, releases):
            kept.append(inputs)
            with torch.no_grad():
                inputs = unit(inputs)
        y = inputs.requires_grad_()
        loss = nn.functional.cross_entropy(y, targets) * len(y) / total
        slope = torch.autograd.grad(loss, y)[0]
        for unit in _gathered(dist, parts[::-1], ahead, releases):
            x, full = kept.pop().requires_grad_(), unit.full.requires_grad_()
            slope = torch.autograd.grad(unit(x), [full, x], slope)[1]
            del full

    return step


def _gathered(dist: Any, parts: Sequence[fsdp_units.Unit], ahead: int, releases: bool) -> Any:
    """Each unit, once its weights are there, with those of the next ones on their way."""
    works: list[Any] = []
    for place, unit in enumerate(parts):
        for other in parts[len(works) : place + 1 + ahead]:
            work = None
            if other.full is None:
                other.full = other.shard.new_empty(dist.get_world_size() * len(other.shard))
                work = dist.all_gather_into_tensor(other.full, other.shard, async_op=True)
            works.append(work)
        if works[place]:
            works[place].wait()
        yield unit
        if releases:
            unit.full = None
