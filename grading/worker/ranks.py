"""The ranks of a check, each a worker of its own; the grader is the network between them.

It carries the messages, keeps clocks and bytes and tells a deadlock by the code of the simulated machine. A rank reaches
nothing of another but by messages. What it tells of itself (compute, spans, live bytes) is marked so in the trace.
"""

import copy
import math
import threading
import time

import torch

from common import ranks
from common.ranks import simulated
from common.ranks.conductor import Conductor, Stopped
from common.ranks.network import Network
from grading.worker.errors import StudentError, WorkerEnded, student_error
from grading.worker.session import Session

CELL = """
def __rank__(name, *arguments):
    from common.ranks import remote
    return remote.call(globals()[name], __ask__, *arguments)
"""
SELF_REPORTED = ["compute", "spans", "live_bytes"]
MAX_POINTS = 1_000_000  # spans or changes of live bytes that a rank may tell of


def run(
    session,
    name,
    args,
    *,
    world_size,
    seed,
    only,
    alpha_s,
    beta_s_per_byte,
    flops_per_s,
    live_bytes,
    timeout_s,
):
    """The ranks.Result of the student's function of this name on world_size workers.

    session: of the student's cells; the ranks' workers stay with it for its next run. The other arguments: of ranks.run.
    """
    while len(session.ranks) < world_size:
        session.ranks.append(Session(session.fork_server, [*session.cells, ("ranks", CELL)]))
    network = Network(world_size, alpha_s, beta_s_per_byte)
    conductor = Conductor(network, one_at_a_time=False)
    options = {"flops_per_s": flops_per_s, "live_bytes": live_bytes, "only": only}
    members = []
    for rank in range(world_size):
        own = copy.deepcopy(
            [arg.values[rank] if isinstance(arg, ranks.Each) else arg for arg in args]
        )
        members.append(Member(rank, session, conductor, name, (rank, world_size, own, options)))
    for member in members:
        member.start()
    conductor.start()
    for member in members:
        member.join()
    if conductor.problem is not None:
        raise _told(conductor.problem)
    trace = simulated.trace(network, [member.report for member in members], "simulated")
    trace.self_reported = list(SELF_REPORTED)
    return ranks.Result([member.value for member in members], trace)


class Member(threading.Thread):
    """One rank: calls the function in its worker, and answers what it asks on the way."""

    def __init__(self, rank, session, conductor, name, arguments) -> None:
        super().__init__(daemon=True)
        self.rank, self.conductor, self.name_, self.arguments = rank, conductor, name, arguments
        self.session = session.ranks[rank]
        self.session.deadline, self.session.answered = session.deadline, time.monotonic()
        self.value = self.report = None

    def run(self) -> None:
        try:
            self.conductor.begin(self.rank)
            self._take(
                self.session.call("__rank__", (self.name_, *self.arguments), serve=self.serve)
            )
        except (
            Stopped
        ):  # another rank's doing: the worker, which still waited for an answer, has ended
            pass
        except (Exception, WorkerEnded) as error:
            self.conductor.finish(self.rank, failure=_on(self.rank, error))

    def serve(self, what, *args):
        """What the conductor answers."""
        if what not in ("post", "wait", "test", "race", "new_group", "sender"):
            raise ValueError(f"a rank asks nothing called {what!r}")
        if what == "post":
            args = args[0], [_checked(operation) for operation in args[1]]
        return getattr(self.conductor, what)(self.rank, *args)

    def _take(self, answer) -> None:
        """What came back: a student's process sent it, whatever it is."""
        report = {
            key: [
                (str(name), float(start_s), float(end_s))
                for name, start_s, end_s in answer["report"][key]
            ]
            for key in ("compute", "spans")
        }
        report["live_bytes"] = [
            (float(time_s), int(count)) for time_s, count in answer["report"]["live_bytes"]
        ]
        times_s = [time_s for rows in report.values() for row in rows for time_s in row[-2:]]
        if len(times_s) > MAX_POINTS or not all(map(math.isfinite, times_s)):
            raise ValueError(f"rank {self.rank} tells of times that are none")
        self.value, self.report = answer["value"], report
        self.conductor.finish(self.rank, float(answer["clock_s"]))


def _checked(operation):
    """An operation whose bytes are those of the tensors that it brings."""
    payload = operation.get("payload")
    if operation["kind"] == "collective":
        _check_collective(operation, payload)
    elif operation["kind"] == "send":
        operation["elements"], operation["itemsize"], operation["dtype"] = (
            payload.numel(),
            payload.element_size(),
            payload.dtype,
        )
    operation["payload"] = payload
    return operation


def _check_collective(operation, payload) -> None:
    """What a collective brings has the shape and dtype that it says."""
    parts = payload if type(payload) is list else [] if payload is None else [payload]
    if operation["name"] == "all_to_all":
        sizes = [part.numel() * part.element_size() for part in parts]
        same = sizes == operation["in_splits"] and all(
            part.dtype == operation["dtype"] for part in parts
        )
    else:
        same = all(
            part.shape == torch.Size(operation["shape"]) and part.dtype == operation["dtype"]
            for part in parts
        )
        count = math.prod(operation["shape"] or ())
        itemsize = operation["dtype"].itemsize if operation["dtype"] else 0
        same &= operation["name"] == "barrier" or (operation["elements"], operation["bytes"]) == (
            count,
            count * itemsize,
        )
    if not same:
        raise ValueError(
            f"{operation['name']}: what came is not of the shape and dtype that were told"
        )


def _on(rank, error):
    """The exception of a rank, which says which rank it was."""
    if report := student_error(error):
        report.text += f" (on rank {rank})"
    return error


def _told(problem):
    """What ended the run, as a check's message tells it."""
    if isinstance(problem, ranks.RanksError):
        problem.__cause__ = StudentError(type(problem).__name__, str(problem))
    return problem
