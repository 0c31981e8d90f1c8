"""Points: a student's answers against a lab's checks.

The checks run here, in the grader; what they call runs in a worker.
"""

from __future__ import annotations

import contextlib
import functools
import io
import signal
import threading
import zlib
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any, Never

import numpy as np
import torch

from common.checks import Remarks
from common.hardware import device
from grading import mistakes
from grading.explain import CheckTimeout, explain
from grading.report import CheckResult, Result, Status
from grading.source import holes, labs
from grading.source.holes import Answer
from grading.source.labs import Cell, Exercise, Lab
from grading.worker.client import WorkerClient
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.packing import Packer
from grading.worker.remote import names_in
from grading.worker.repeatable import check_globals, repeatable
from grading.worker.replay import Diverged, Prompting, Prompts, Recording, replay
from grading.worker.session import CELL_S, Session
from nogpu.kernels import linecache_text

REMARK = "Remark (it costs no points): "
PASSED: dict[bool, tuple[Status, str]] = {  # by whether the held-out checks are here, too
    True: ("passed", ""),
    False: ("visible checks passed", "The held-out ones run when you are graded."),
}
NO_REMARK = "The checks have no remark on the cases that your own copy draws."
PUBLIC_SEED = 0  # of the cases that a student's own copy draws
ALL_PASSED = {status for status, _ in PASSED.values()}
NEEDS = " needs "  # in the name of a cell that an answer needs besides its own


def score(
    lab: Lab,
    answers: Mapping[str, Answer],
    fork_server: ForkServer,
    seed: int = 0,
    only: Collection[str] | None = None,
) -> list[Result]:
    """The results of a lab's exercises, in order.

    answers: by the names of the exercises. seed: of the checks' generators. only: the names of the
    exercises to check.
    """
    exercises = [exercise for exercise in lab.exercises if only is None or exercise.name in only]
    unchecked = [_unchecked(exercise, answers[exercise.name]) for exercise in exercises]
    if all(unchecked):
        return [result for result in unchecked if result]
    pairs = list(zip(exercises, unchecked, strict=True))
    to_check = [exercise for exercise, result in pairs if not result]
    checked = _checked(lab, answers, fork_server, seed, to_check)
    return [result or checked[exercise.label] for exercise, result in pairs]


def _checked(
    lab: Lab,
    answers: Mapping[str, Answer],
    fork_server: ForkServer,
    seed: int,
    exercises: Sequence[Exercise],
    taken_s: float = 0.0,
) -> dict[str, Result]:
    """{label: the result} of these exercises.

    What an answer needs of other cells is read from their texts, and the texts do not show all that
    a cell changes. So an exercise that does not pass is checked once more after all the student's
    cells above its check, as the notebook executes them. The better result counts.

    taken_s: how many seconds of the notebook's time have gone.
    """
    session = Session(fork_server, worker_cells(lab, answers))
    session.notebook.charge(taken_s)
    results = _run(lab, session, seed, exercises)
    again = [
        exercise
        for exercise in exercises
        if answers[exercise.name].left_out and results[exercise.label].status not in ALL_PASSED
    ]
    if again:
        whole = Session(fork_server, worker_cells(lab, answers, whole=True))
        whole.notebook, whole.cells_together = session.notebook, session.cells_together
        for label, second in _run(lab, whole, seed, again).items():
            first = results[label]
            better = second if second.points > first.points else first
            results[label] = replace(better, seconds=first.seconds + second.seconds)
    return results


def _run(lab: Lab, session: Session, seed: int, exercises: Sequence[Exercise]) -> dict[str, Result]:
    """{label: the result} of these exercises, in this session, which ends."""
    with contextlib.closing(session), own_settings():
        run = CheckRun(lab, session, seed)
        return {exercise.label: run.result(exercise) for exercise in exercises}


def told(
    lab: Lab, answers: Mapping[str, Answer], fork_server: ForkServer, results: Sequence[Result]
) -> list[Result]:
    """The results, with what their student may read.

    Once it has seen a secret case, the student's code can put it into an exception's text, into a
    value that a message quotes, or into a file for later. So the student reads what the visible
    checks say of the cases that every copy draws, in workers that have seen no others.
    """
    ran = {e.label: e for e in lab.exercises if not _unchecked(e, answers[e.name])}
    to_tell = {result.exercise: result for result in results if result.message}
    again = [
        exercise
        for exercise in lab.visible.exercises
        if exercise.label in to_tell.keys() & ran and not _is_late(to_tell[exercise.label])
    ]
    if not to_tell.keys() & ran:
        return list(results)
    taken_s = sum(result.seconds for result in results)
    public = _checked(lab.visible, answers, fork_server, PUBLIC_SEED, again, taken_s)
    return [
        replace(one, told=_told(one, ran[one.exercise], public.get(one.exercise)))
        if one.message and one.exercise in ran
        else one
        for one in results
    ]


def _failed(result: Result) -> CheckResult | None:
    """The first check that did not pass; None if all did."""
    return next((check for check in result.checks if check.status != "passed"), None)


def _is_late(result: Result) -> bool:
    """Whether a check took too long: it would take as long again."""
    failed = _failed(result)
    return failed is not None and failed.status == "timeout"


def _told(result: Result, exercise: Exercise, public: Result | None) -> str:
    """What a student may read of a result. public: of the visible checks; None if it is late."""
    failed = _failed(result)
    if public is None:
        return f"{exercise.name}: a check took too long and was stopped."
    if failed is None or public.status != "passed":
        return public.message or NO_REMARK  # "" would let the student read the result's message
    which = "a held-out case" if failed.held_out else "another random case"
    ended = "ended the process" if failed.status == "died" else "failed"
    mistake = mistakes.constant(exercise, result.message)
    text = f"{exercise.name}: {which} {ended}. The cases that your own copy draws pass."
    return f"{text}\n{mistake}" if mistake else text


@contextlib.contextmanager
def own_settings() -> Iterator[None]:
    """Restores PyTorch's default dtype after a lab: other labs follow in this process.

    For the same reason, Triton must not be imported as if there were a GPU.
    """
    device.interpret_without_gpu()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def worker_cells(
    lab: Lab, answers: Mapping[str, Answer], whole: bool = False
) -> list[tuple[str, str | None]]:
    """[(name, text)] of what a worker executes: our set-up and drivers, the student's holes.

    Before a hole comes what its answer needs of the student's other cells. whole: in place of both,
    all the student's cells above the exercise's check, each with a name of its own. So what one of
    them raises does not stop the others.
    """
    exercises = {exercise.hole: exercise.name for exercise in lab.exercises}
    cells = []
    for i, cell in enumerate(lab.cells):
        if cell in exercises:
            name, answer = exercises[cell], answers[exercises[cell]]
            needed = answer.whole if whole else answer.needed
            text = None if whole and answer.attempted else answer.text
            names = needed_names(name, len(needed))
            cells += [*zip(names, needed, strict=True), (name, text)]
        elif cell.tags & {"setup", "driver"}:
            cells.append((_name(cell, i), cell.source))
    return cells


def needed_names(exercise: str, count: int) -> list[str]:
    """What the cells are called that an answer needs besides its own."""
    return [f"{exercise}{NEEDS}{number}" for number in range(1, count + 1)]


def setup_names(lab: Lab) -> dict[str, Any]:
    """What our set-up makes in the grader."""
    names = {"__name__": "__main__"}
    for cell in lab.cells:
        if "setup" in cell.tags:
            exec(_compiled(cell.source, "<setup>"), names)  # noqa: S102
    return names


def check_seed(check: Cell, seed: int) -> list[int]:
    """What a check's generator is seeded with."""
    return [seed, zlib.crc32(check.source.encode())]


class CheckRun:
    """The checks of a lab on the answers of one student, which the session holds."""

    def __init__(self, lab: Lab, session: Session, seed: int) -> None:
        self.lab = lab
        self.session = session
        self.seed = seed
        self.tapes = session.fork_server.tapes
        self.names = setup_names(lab)
        self._cells = iter(enumerate(lab.cells))
        self._places = {name: place for place, (name, _) in enumerate(session.cells)}
        session.reached = 0

    def reach(self, check: Cell) -> None:
        """Goes on to a check: what stands above it is executed, and what is below it is not yet.

        So an answer may set a name that another answer uses in another way, as in the notebook.
        """
        exercises = {exercise.hole: exercise.name for exercise in self.lab.exercises}
        self.session.allow(CELL_S)  # for fetching values
        for i, cell in self._cells:
            if cell is check:
                return
            if cell in exercises or cell.tags & {"setup", "driver"}:
                name = exercises.get(cell) or _name(cell, i)
                self.session.reached = self._places[name] + 1
                if "setup" not in cell.tags:
                    self.names |= names_in(self.session, name, cell)

    def result(self, exercise: Exercise) -> Result:
        """Runs the checks of one exercise, in the lab's order."""
        Remarks.said.clear()
        took_s, forks = self.session.notebook.taken_s, max(1, self.session.forks)
        here = [check for check in exercise.checks if check.source != labs.HELD_OUT]
        checked = [(check, self._explained(exercise, check)) for check in here]
        checks = tuple(
            CheckResult(
                0 if why else check.points,
                check.points,
                why[0] if why else "passed",
                "held-out" in check.tags,
            )
            for check, why in checked
        )
        self.session.settle()
        points = sum(check.points for check in checks)
        first = next((why for _, why in checked if why), None)  # the one that is reported
        remarks = " ".join(dict.fromkeys(Remarks.said))
        passed, says = PASSED[len(here) == len(exercise.checks)]
        says = " ".join(filter(None, [f"{REMARK}{remarks}" if remarks else "", says]))
        status, message = first or (passed, says)
        if first and points:
            status = "partly passed"
        return Result(
            exercise.label,
            points,
            exercise.points,
            status,
            message,
            checks,
            round(self.session.notebook.taken_s - took_s, 2),
            max(0, self.session.forks - forks),
        )

    def _explained(self, exercise: Exercise, check: Cell) -> tuple[Status, str] | None:
        """Why a check did not pass; None if it did."""
        self.reach(check)
        of_cell = self.session.ready_problem(exercise.name)
        problem = of_cell if isinstance(of_cell, WorkerEnded) else self._problem(check)
        others = self._other_cells(exercise)
        why = functools.partial(explain, lab=self.lab, exercise=exercise, other_cells=others)
        if of_cell is None:
            tried, limit_s = exercise.name, check.limit_s
            return why(problem, tried=tried, limit_s=limit_s) if problem else None
        raised = why(of_cell, tried=f"The cell of `{exercise.name}`", limit_s=CELL_S)
        if problem is None:  # what it set before was enough
            Remarks.said.append(raised[1])
            return None
        if problem is of_cell or _is_unset(problem, exercise):
            return raised
        status, message = why(problem, tried=exercise.name, limit_s=check.limit_s)
        return status, f"{message} {raised[1]}"

    def _other_cells(self, exercise: Exercise) -> dict[str, BaseException]:
        """What those of the student's other cells raised that an answer needs: its own first."""
        raised = {n: p for n, p in self.session.problems.items() if NEEDS in n}
        return dict(sorted(raised.items(), key=lambda item: not item[0].startswith(exercise.name)))

    def _problem(self, check: Cell) -> BaseException | None:
        """What a check raised; None if it passed. It is replayed if an answer passed it before."""
        if check.source not in _repeatable(self.lab):
            return self._execute(check)
        key = self.lab, check.source, self.seed, self._values(check)
        worker, tape, prompts = self.session.running_worker(), self.tapes.get(key), ()
        if tape is not None and self._same_facts(self.tapes.facts(key)):
            self.session.allow(check.limit_s)
            worker.meter.begin(self.session.check)
            prompts = replay(worker.wire.transport, tape, worker.meter)
            if prompts is None:
                return None
        if prompts:
            return self._prompted(check, key, worker, prompts)
        self.session.facts.clear()
        recording, remarks = Recording(worker.wire.transport), len(Remarks.said)
        with worker.wire.over(recording):
            problem = self._execute(check)
        silent = problem is None and len(Remarks.said) == remarks
        if silent and self.session.asked_only(worker):
            self.tapes.keep(key, recording.tape, self.session.facts)
        return problem

    def _same_facts(self, facts: Sequence[Any]) -> bool:
        """Whether what a check asked of another answer's text is so for this one, too."""
        return all(self.session.names_used(name, of) == found for name, of, found in facts)

    def _prompted(
        self, check: Cell, key: Hashable, worker: WorkerClient, prompts: Prompts
    ) -> BaseException | None:
        """Runs a check whose replay met another answer; it first gets the recorded answers."""
        prompting = Prompting(worker.wire.transport, prompts)
        try:
            with worker.wire.over(prompting):
                problem = self._execute(check)
        except Diverged:  # it has ended the worker
            self.tapes.spoil(key)
            return self._execute(check)
        if prompting.left:
            worker.end()  # an answer is left over
        return problem

    def _execute(self, check: Cell) -> BaseException | None:
        """Runs a check; returns what it raised, None if it passed."""
        self.names["rng"] = np.random.default_rng(check_seed(check, self.seed))
        self.session.allow(check.limit_s)
        linecache_text.remember("<check>", check.source)
        try:
            with alarm(2 * check.limit_s), contextlib.redirect_stdout(io.StringIO()):
                exec(_compiled(check.source, "<check>"), self.names)  # noqa: S102
        except (Exception, WorkerEnded, CheckTimeout) as problem:
            return problem
        return None

    def _values(self, check: Cell) -> Hashable:
        """What a check reads of the student's values, as bytes: its verdict depends on them."""
        read = check_globals(check.source).read & _fetched(self.lab) & self.names.keys()
        packed = [(name, *Packer().pack(self.names[name])) for name in sorted(read)]
        return tuple((name, repr(header), *map(bytes, buffers)) for name, header, buffers in packed)


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Ends a check that computes in the grader for too long: the values may be too large for it.

    It counts this process's own processor time: a worker has its own, and a busy machine
    costs nobody marks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> Never:
        raise CheckTimeout(
            f"the check needed more than {seconds:.0f} s to examine the answer's values"
        )

    old = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def _unchecked(exercise: Exercise, answer: Answer) -> Result | None:
    """The result of an answer in which there is nothing to check; None for any other answer."""
    label = exercise.label
    if answer.text is None:
        return Result(label, 0, exercise.points, answer.status or "missing", answer.problem)
    if not answer.attempted:
        message = (
            f"Not attempted yet: write your answer in the cell of `{exercise.name}`, "
            "then run its check."
        )
        return Result(label, 0, exercise.points, "not attempted", message)
    return None


def _is_unset(problem: BaseException, exercise: Exercise) -> bool:
    """Whether a check found no name of the exercise."""
    names = exercise.hole.names
    return isinstance(problem, NameError) and any(name in str(problem) for name in names)


def _name(cell: Cell, place: int) -> str:
    return f"{'setup' if 'setup' in cell.tags else 'driver'} {place}"


# What follows from a lab alone is computed once per process: it grades many submissions.


@functools.cache
def _compiled(source: str, filename: str) -> CodeType:
    return compile(source, filename, "exec")


@functools.cache
def _repeatable(lab: Lab) -> frozenset[str]:
    """The sources of the checks that can be replayed."""
    return repeatable([check.source for exercise in lab.exercises for check in exercise.checks])


@functools.cache
def _fetched(lab: Lab) -> frozenset[str]:
    """The names of values, not functions, that holes and drivers define."""
    cells = [cell for cell in lab.cells if cell.tags & {"hole", "driver"}]
    return frozenset(
        name for cell in cells for name in set(cell.names) - set(holes.callable_names(cell.source))
    )
