"""The ranks of a check, each a worker of its own; the grader is the network between them.

The grader carries the messages, keeps clocks and bytes, and reports a deadlock, with the code of
the simulated machine. A rank reaches another rank only by messages. What it reports of itself
(compute, spans, live bytes) is marked so in the trace. What it holds is measured from outside, at
each of its calls, while it waits for the answer.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from grading.worker.errors import StudentError, WorkerEnded, student_error
from grading.worker.session import Session
from grading.worker.transport import OverLimitError
from nogpu import ranks
from nogpu.ranks import groups, operations, simulated
from nogpu.ranks.conductor import Conductor, ConductorLink, StoppedError
from nogpu.ranks.link import QUESTIONS
from nogpu.ranks.network import Network
from nogpu.ranks.ports import Cost
from nogpu.ranks.recorder import CATEGORIES, Report

# What else lets a rank post such an operation: another function, or another name for it.
CALLED_BY = {
    "isend": ("batch_isend_irecv",),
    "irecv": ("batch_isend_irecv",),
    "all_gather_into_tensor": ("all_gather_single",),
    "reduce_scatter_tensor": ("reduce_scatter_single",),
}
SELF_REPORTED = ["compute", "spans", "live_bytes", "live_by_category", "peak_by_category"]
MAX_RUN_BYTES = 256 << 20  # that the ranks of a run may send
MAX_BACK_BYTES = 512 << 20  # that they may get: what one sends may go to all
MAX_PLAIN_BYTES = 2 << 20  # of what a rank sends at once without its tensors
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
    held: bool = False,
    timeout_s: float,
) -> ranks.Result:
    """The Result of the student's function of this name on world_size workers.

    session: of the student's cells; the ranks' workers stay with it for its next run. The other
    arguments: of ranks.run.
    """
    _start_ranks(session, world_size, fresh=held)
    network = Network(world_size, alpha_s, beta_s_per_byte)
    conductor = Conductor(network, one_at_a_time=False)
    costs = {"flops_per_s": flops_per_s, "live_bytes": live_bytes}
    options = {**costs, "only": only, "held": held}
    members, budget = [], Budget()
    for link in conductor.links:
        own = [arg.values[link.rank] if isinstance(arg, ranks.Each) else arg for arg in args]
        arguments = link.rank, world_size, own, options
        members.append(Member(link, session, name, arguments, only, budget))
    _run_all(conductor, members)
    _charge(session, members)
    if conductor.problem is not None:
        raise _as_student_error(conductor.problem)
    trace = simulated.trace(network, [member.report for member in members])
    trace.self_reported = list(SELF_REPORTED)
    return ranks.Result([member.value for member in members], trace)


def _start_ranks(session: Session, world_size: int, fresh: bool) -> None:
    """Makes sure that there are so many ranks. fresh: none of them of an earlier run."""
    if fresh:
        for rank in session.ranks:
            rank.close()
        session.ranks.clear()
    while len(session.ranks) < world_size:
        session.ranks.append(Session(session.fork_server, session.cells))


def _run_all(conductor: Conductor, members: Sequence[Member]) -> None:
    for member in members:
        member.start()
    conductor.start()
    for member in members:
        member.join()


def _charge(session: Session, members: Sequence[Member]) -> None:
    """Charges a run's check with what the rank took that took most: ranks run side by side."""
    for member in members:
        member.session.settle()
    if session.check:
        checks = [member.session.check for member in members]
        session.check.charge(max(check.taken_s for check in checks if check))


class Budget:
    """The bytes that the ranks of one run may still send and get: the grader holds them all."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.left = {"sent": MAX_RUN_BYTES, "brought": MAX_RUN_BYTES, "got": MAX_BACK_BYTES}

    def admit(self, header_bytes: int, frame_bytes: int) -> None:
        """Before a message of a rank is read; OverLimitError if there must not be so much."""
        if header_bytes > MAX_PLAIN_BYTES:
            raise OverLimitError(
                f"sent {header_bytes / 1e6:.0f} MB of plain values at once, and a rank may send "
                f"{MAX_PLAIN_BYTES >> 20}"
            )
        try:
            self._take("sent", frame_bytes)
        except ValueError as problem:
            raise OverLimitError(f"was stopped: {problem}") from None

    def bring(self, operation: operations.Operation) -> None:
        """Before the tensors of an operation are copied: a stride of 0 costs nothing to send."""
        self._take("brought", sum(map(_dense_bytes, _payload(operation))))

    def get(self, values: Sequence[Any]) -> None:
        """Before what requests brought is sent to the rank that waited for them."""
        parts = [part for value in values for part in (value if type(value) is list else [value])]
        self._take("got", sum(_dense_bytes(x) for x in parts if isinstance(x, torch.Tensor)))

    def _take(self, what: str, count: int) -> None:
        with self.lock:
            self.left[what] -= count
            if self.left[what] < 0:
                most, verb = MAX_RUN_BYTES, "sent"
                if what == "got":
                    most, verb = MAX_BACK_BYTES, "were sent"
                raise ValueError(f"the ranks {verb} more than {most >> 20} MB in one run")


def _dense_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _payload(operation: operations.Operation) -> list[torch.Tensor]:
    payload = getattr(operation, "payload", None)
    parts = payload if isinstance(payload, list) else [payload]
    return [part for part in parts if part is not None]


def _alone(operation: operations.Operation) -> operations.Operation:
    """The operation with its elements and nothing else.

    A view's storage, strides and flags would reach another rank, and are in no count of bytes.
    """
    if isinstance(operation, operations.Send) and operation.payload is not None:
        return replace(operation, payload=_own(operation.payload))
    if isinstance(operation, operations.Collective) and operation.payload is not None:
        payload = operation.payload
        parts = list(map(_own, payload)) if isinstance(payload, list) else _own(payload)
        return replace(operation, payload=parts)
    return operation


def _own(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


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
        if session.check:
            self.session.allow(session.check.left_s)
        self.value: Any = None
        self.report: Report = {
            "compute": [],
            "spans": [],
            "live_bytes": [],
            "live_by_category": [],
            "peak_by_category": [0] * len(CATEGORIES),
            "held_bytes": [],
        }
        self.held_bytes: list[int] = []  # at each call

    def run(self) -> None:
        try:
            self.link.begin()
            answer = self.session.call_as_rank(
                self.name, self.arguments, self.serve, self.budget.admit
            )
            self.value, self.report = answer["value"], _validated_report(answer["report"])
            self.report["held_bytes"] = self.held_bytes
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
            if self.arguments[-1]["held"] and (worker := self.session.worker):
                self.held_bytes.append(worker.held_bytes())
            for operation in arguments[1]:
                self.budget.bring(operation)
            arguments = arguments[0], list(map(_alone, arguments[1]))
        answer = getattr(self.link, question)(*arguments)
        if question == "wait":
            self.budget.get(answer[1])
        return answer

    def _require_allowed(self, question: str, arguments: tuple[Any, ...]) -> None:
        """ValueError for what the check did not allow: a rank can change its own dist's list."""
        if self.only is None:
            return
        if question == "new_group" and "new_group" not in self.only:
            raise ValueError("this dist has no new_group")
        for operation in arguments[1] if question == "post" else ():
            if not {operation.what, *CALLED_BY.get(operation.what, ())} & set(self.only):
                raise ValueError(f"this dist has no {operation.what}")

    def _own_groups(self) -> dict[int, list[int]]:
        """The members of the groups that this rank made: those of others would tell it something
        without a message."""
        network = self.link.network
        calls = network.group_calls[self.link.rank]
        return {operations.WORLD: network.groups[operations.WORLD], **dict(enumerate(calls, 1))}

    def _validated(self, question: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The question's arguments. Numbers of requests and clocks are checked by the network."""
        network = self.link.network
        match question, arguments:
            case "post", (float(time_s), list(posted)):
                rank, own = self.link.rank, self._own_groups()
                return time_s, [operations.from_data(data, rank, own) for data in posted]
            case "new_group", (list(members),):
                return (groups.sorted_members(members, network.world_size),)
            case "wait", (float(), list(numbers)) if all(type(number) is int for number in numbers):
                return arguments
            case ("test", (float(), int())) | ("sender", (int(),)) | ("race", (str(),)):
                return arguments
        raise ValueError(f"malformed question: {question} with other arguments than the link's")


def _validated_report(report: Any) -> Report:
    """What a worker reported of itself, as the plain data that it has to be; else ValueError."""
    try:
        return _plain_report(report)
    except (LookupError, TypeError, OverflowError):
        raise ValueError("a rank's report on itself is not what a rank reports") from None


def _plain_report(report: Any) -> Report:
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
        "held_bytes": [],  # measured, not reported
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
