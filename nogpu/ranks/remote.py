"""A rank that is a worker of the grader: its link leads over the wire to the grader's network."""

import contextlib
import ctypes
import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nogpu.ranks.dist import Dist, restricted
from nogpu.ranks.operations import Operation, as_data
from nogpu.ranks.recorder import Recorder

MMAP_THRESHOLD, MAPPED_BYTES = -3, 1 << 20  # mallopt: from this size on, a piece by itself


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
    if options["held"]:
        _free_at_once()
    torch.manual_seed(0)
    gc.collect()
    gc.disable()
    try:
        with recorder.watching(args):
            value = function(dist, *args)
    finally:
        gc.enable()
    return {"value": value, "report": recorder.report()}


def _free_at_once() -> None:
    """From now on, the memory of a tensor of a megabyte or more goes back to the system when freed.

    Otherwise the C library would keep it for later, and the grader counted it as held.
    """
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, MAPPED_BYTES)
