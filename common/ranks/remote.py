"""A rank that is a worker of the grader: its link leads over the wire to the grader's network."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch

from common.ranks.dist import Dist, restricted
from common.ranks.operations import Operation, as_data
from common.ranks.recorder import Recorder


class WireLink:
    """The grader's conductor. ask(question, *arguments) returns its answer."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self.ask = ask

    def post(self, time_s: float, operations: Sequence[Operation]) -> list[int]:
        return self.ask("post", time_s, [as_data(operation) for operation in operations])

    def wait(self, time_s: float, numbers: Sequence[int]) -> tuple[float, list[Any]]:
        return self.ask("wait", time_s, numbers)

    def test(self, time_s: float, number: int) -> bool:
        return self.ask("test", time_s, number)

    def sender(self, number: int) -> int:
        return self.ask("sender", number)

    def new_group(self, ranks: list[int]) -> int:
        return self.ask("new_group", ranks)

    def race(self, text: str) -> None:
        self.ask("race", text)


def call(
    function: Callable[..., Any],
    ask: Callable[..., Any],
    rank: int,
    world_size: int,
    args: Sequence[Any],
    options: dict[str, Any],
) -> dict[str, Any]:
    """{"value": what the function returned, "report": what the rank recorded of itself}."""
    recorder = Recorder(options["flops_per_s"], options["live_bytes"])
    dist = restricted(Dist(rank, world_size, WireLink(ask), recorder), options["only"])
    torch.manual_seed(0)
    gc.collect()
    gc.disable()
    try:
        with recorder.watching(args):
            value = function(dist, *args)
    finally:
        gc.enable()
    return {"value": value, "report": recorder.report()}
