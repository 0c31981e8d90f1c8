"""The trace of a measured run, from what its processes noted.

The notes are replayed through the network: so messages are matched, and rounds counted, as in the simulated machine. Then
each gets its measured times: a message, from when both its sides had posted it until its receiver had waited for it; the
messages of a collective (those that the simulated machine makes it of) the time of the collective itself.
"""

from common.ranks.network import Network
from common.ranks.trace import Trace


class Replay(Network):
    """A network without payloads, whose requests know when they began and were over."""

    def __init__(self, world_size) -> None:
        super().__init__(world_size, 1.0, 0.0)
        self.sides = []  # of each message: the sender's and the receiver's request

    def _result(self, call, rank) -> None:
        return None

    def _commit(self, start_s, key, send, receive) -> None:
        self.sides.append((send.request, receive.request))
        super()._commit(start_s, key, send, receive)


def trace(notes, reports, end_s, machine):
    """The Trace of a measured run.

    notes: by rank, [(kind, time_s, what)] as real.Notes has them. reports: by rank, as Stopwatch.report has them.
    """
    network = Replay(len(notes))
    mine = [_replayed(network, rank, events) for rank, events in enumerate(notes)]
    while any([next(each, True) is None for each in mine]) or network.step():
        pass
    made = Trace(len(notes), machine, list(end_s), network.messages)
    for message, (sent, received) in zip(network.messages, network.sides, strict=True):
        message.start_s = max(sent.began_s, received.began_s)
        message.end_s = max(message.start_s, received.over_s)
    made.messages.sort(key=lambda message: (message.start_s, message.src, message.dst))
    for call, request in zip(network.collectives, network.collective_requests, strict=True):
        call.start_s, call.end_s = request.began_s, max(request.began_s, request.over_s)
        made.collectives.append(call)
    made.collectives.sort(key=lambda call: (call.start_s, call.rank))
    made.add_reports(reports)
    return made


def _replayed(network, rank, events):
    """Goes through a rank's events; yields None at each step forward, True while it waits."""
    numbers = []
    for kind, time_s, what in events:
        if kind == "group":
            network.new_group(rank, sorted(range(network.world_size)) if what is None else what)
        elif kind == "post":
            for number in network.post(rank, network.time_s[rank], what):
                numbers.append(number)
                network.requests[number].began_s = network.requests[number].over_s = time_s
        else:
            awaited = [numbers[each] for each in what]
            while not network.finished(rank, awaited):
                yield True
            network.collect(rank, network.time_s[rank], awaited)
            for number in awaited:
                network.requests[number].over_s = time_s
        yield None
