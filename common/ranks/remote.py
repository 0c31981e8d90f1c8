"""A rank that is a worker of the grader: its link leads over the wire, and the grader is the network."""

import gc

import torch

from common.ranks.dist import Dist
from common.ranks.recorder import Recorder


class Link:
    """The grader's conductor, asked over the wire. ask(what, *args) returns its answer."""

    def __init__(self, ask) -> None:
        self.ask = ask

    def post(self, time_s, operations):
        """The numbers of new requests."""
        return self.ask("post", time_s, operations)

    def wait(self, time_s, numbers):
        """(time, values) when these requests are done."""
        return self.ask("wait", time_s, numbers)

    def test(self, time_s, number):
        """Whether this request is done at this time."""
        return self.ask("test", time_s, number)

    def race(self, text) -> None:
        """Ends the run: a tensor was changed on its way."""
        self.ask("race", text)

    def new_group(self, ranks):
        """The number of a new group."""
        return self.ask("new_group", ranks)

    def sender(self, number):
        """Who sent the message that this request received."""
        return self.ask("sender", number)


def call(function, ask, rank, world_size, args, options):
    """{"value": what the function returned, "clock_s": ..., "report": what the rank noted about itself}."""
    recorder = Recorder(options["flops_per_s"], options["live_bytes"])
    dist = Dist(rank, world_size, Link(ask), recorder, options["only"])
    torch.manual_seed(0)
    gc.collect()
    gc.disable()
    try:
        with recorder.watching(args):
            value = function(dist, *args)
    finally:
        gc.enable()
    return {"value": value, "clock_s": recorder.clock_s, "report": recorder.report()}
