"""The ranks of a check, each a worker of its own; the grader is the network between them.

The grader carries the messages, keeps clocks and bytes, and reports a deadlock, with the code of
the simulated machine. A rank reaches another rank only by messages. What it reports of itself
(compute, spans, live bytes) is marked so in the trace.
"""

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

from common import ranks
from common.ranks import groups, operations, simulated
from common.ranks.conductor import Conductor, ConductorLink, StoppedError
from common.ranks.link import QUESTIONS
from common.ranks.network import Network
from common.ranks.ports import Cost
from common.ranks.recorder import CATEGORIES, Report
from grading.worker.errors import StudentError, WorkerEnded, student_error
from grading.worker.session import Session

# What else lets a rank post such an operation: another function, or another name for it.
CALLED_BY = {
    "isend": ("batch_isend_irecv",),
    "irecv": ("batch_isend_irecv",),
    "all_gather_into_tensor": ("all_gather_single",),
    "reduce_scatter_tensor": ("reduce_scatter_single",),
}
SELF_REPORTED = ["compute", "spans", "live_bytes", "live_by_category", "peak_by_category"]
MAX_RUN_BYTES = 256 << 20  # that the ranks of a run may send
MAX_TIMES = 1_000_000  # that a rank may report


def run(
    session: Session,
    name: str,
    args: Sequence[Any],
    *,
    world_size: int,
    seed: int | None,
    only: Sequence[str] | None,
    alpha_s: Cost,
    beta_s_per_byte: Cost,
    flops_per_s: float | None,
    live_bytes: bool,
    timeout_s: float,
) -> ranks.Result:
    """The Result of the student's function of this name on world_size workers.

    session: of the student's cells; the ranks' workers stay with it for its next run. The other
    arguments: of ranks.run.
    """
    while len(session.ranks) < world_size:
        session.ranks.append(Session(session.fork_server, session.cells))
    network = Network(world_size, alpha_s, beta_s_per_byte)
    conductor = Conductor(network, one_at_a_time=False)
    options = {"flops_per_s": flops_per_s, "live_bytes": live_bytes, "only": only}
    members, budget = [], Budget()
    for link in conductor.links:
        own = [arg.values[link.rank] if isinstance(arg, ranks.Each) else arg for arg in args]
        arguments = link.rank, world_size, own, options
        members.append(Member(link, session, name, arguments, only, budget))
    for member in members:
        member.start()
    conductor.start()
    for member in members:
        member.join()
    if conductor.problem is not None:
        raise _as_student_error(conductor.problem)
    trace = simulated.trace(network, [member.report for member in members])
    trace.self_reported = list(SELF_REPORTED)
    return ranks.Result([member.value for member in members], trace)


class Budget:
    """The bytes that the ranks of one run may still send: the grader holds what is on its way."""

    def __init__(self) -> None:
        self.left, self.lock = MAX_RUN_BYTES, threading.Lock()

    def take(self, count: int) -> None:
        with self.lock:
            self.left -= count
            if self.left < 0:
                raise ValueError(f"the ranks sent more than {MAX_RUN_BYTES >> 20} MB in one run")


def _payload_bytes(operation: operations.Operation) -> int:
    payload = getattr(operation, "payload", None)
    parts = payload if isinstance(payload, list) else [payload]
    return sum(part.untyped_storage().nbytes() for part in parts if part is not None)


class Member(threading.Thread):
    """One rank: calls the function in its worker, and answers what it asks on the way."""

    def __init__(
        self,
        link: ConductorLink,
        session: Session,
        name: str,
        arguments: tuple[Any, ...],
        only: Sequence[str] | None,
        budget: Budget,
    ) -> None:
        super().__init__(daemon=True)
        self.link, self.name, self.arguments = link, name, arguments
        self.only, self.budget = only, budget
        self.session = session.ranks[link.rank]
        self.session.reached = session.reached
        self.session.deadline, self.session.answered = session.deadline, time.monotonic()
        self.value: Any = None
        self.report: Report = {
            "compute": [],
            "spans": [],
            "live_bytes": [],
            "live_by_category": [],
            "peak_by_category": [0] * len(CATEGORIES),
        }

    def run(self) -> None:
        try:
            self.link.begin()
            answer = self.session.call_as_rank(self.name, self.arguments, self.serve)
            self.value, self.report = answer["value"], _validated_report(answer["report"])
            self.link.finish()
        except StoppedError:
            pass  # another rank ended the run, and this one's worker was ended
        except (Exception, WorkerEnded) as error:
            if reported := student_error(error):
                reported.text += f" (on rank {self.link.rank})"
            self.link.finish(failure=error)

    def serve(self, question: str, *arguments: Any) -> Any:
        """What the conductor answers to the worker's question."""
        if question not in QUESTIONS:
            raise ValueError(f"a rank asks nothing called {question!r}")
        arguments = self._validated(question, arguments)
        self._require_allowed(question, arguments)
        if question == "post":
            self.budget.take(sum(map(_payload_bytes, arguments[1])))
        return getattr(self.link, question)(*arguments)

    def _require_allowed(self, question: str, arguments: tuple[Any, ...]) -> None:
        """ValueError for what the check did not allow: a rank can change its own dist's list."""
        if self.only is None:
            return
        if question == "new_group" and "new_group" not in self.only:
            raise ValueError("this dist has no new_group")
        for operation in arguments[1] if question == "post" else ():
            if not {operation.what, *CALLED_BY.get(operation.what, ())} & set(self.only):
                raise ValueError(f"this dist has no {operation.what}")

    def _validated(self, question: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The question's arguments. Numbers of requests and clocks are checked by the network."""
        network = self.link.network
        match question, arguments:
            case "post", (float(time_s), list(posted)):
                groups_now, rank = dict(network.groups), self.link.rank
                return time_s, [operations.from_data(data, rank, groups_now) for data in posted]
            case "new_group", (list(members),):
                return (groups.sorted_members(members, network.world_size),)
            case "wait", (float(), list(numbers)) if all(type(number) is int for number in numbers):
                return arguments
            case ("test", (float(), int())) | ("sender", (int(),)) | ("race", (str(),)):
                return arguments
        raise ValueError(f"malformed question: {question} with other arguments than the link's")


def _validated_report(report: Any) -> Report:
    """What a worker reported of itself, as the plain data that it has to be."""
    compute, spans = (
        [(str(name), float(start_s), float(end_s)) for name, start_s, end_s in report[key]]
        for key in ("compute", "spans")
    )
    live_bytes = [(float(time_s), int(count)) for time_s, count in report["live_bytes"]]
    times_s = [time_s for _, *both in compute + spans for time_s in both]
    by_category = [
        (float(time_s), _counts(counts)) for time_s, counts in report["live_by_category"]
    ]
    times_s += [time_s for time_s, _ in [*live_bytes, *by_category]]
    if len(times_s) > MAX_TIMES or not all(map(math.isfinite, times_s)):
        raise ValueError(f"a rank reports more than {MAX_TIMES:,} times, or one that is not finite")
    return {
        "compute": compute,
        "spans": spans,
        "live_bytes": live_bytes,
        "live_by_category": by_category,
        "peak_by_category": _counts(report["peak_by_category"]),
    }


def _counts(counts: Any) -> list[int]:
    if len(counts) != len(CATEGORIES):
        raise ValueError(f"a rank reports {len(counts)} categories of live bytes")
    return [int(count) for count in counts]


def _as_student_error(problem: BaseException) -> BaseException:
    """What ended the run, as a check's message shows it."""
    if isinstance(problem, ranks.RanksError):
        problem.__cause__ = StudentError(type(problem).__name__, str(problem))
    return problem
