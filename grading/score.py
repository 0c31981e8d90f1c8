"""Points: a lab's checks against a student's holes."""

import contextlib
import functools
import io
import signal
import threading
import traceback
import zlib
from typing import Never

import numpy as np
import torch

from common import sources
from grading.jail.confinement import MEMORY_BYTES
from grading.report import Result
from grading.source import holes
from grading.worker import replay
from grading.worker.errors import WorkerEnded, student_error, tried_by
from grading.worker.remote import names_in
from grading.worker.session import CELL_S, Session


class CheckTimeout(BaseException):
    """A check went on in the grader itself for too long."""


def score(lab, answers, fork_server, seed=0, only=None):
    """The results of a lab's exercises, in order.

    answers: {name of the exercise: Answer}. seed: of the checks' generators. only: the names of the exercises to check.
    """
    session = Session(fork_server, worker_cells(lab, answers))
    try:
        exercises = [
            exercise for exercise in lab.exercises if only is None or exercise.name in only
        ]
        if not any(answers[exercise.name].attempted for exercise in exercises):
            return [_unchecked(exercise, answers[exercise.name]) for exercise in exercises]
        with own_default_dtype():
            names = check_names(lab, session)
            return [
                _unchecked(exercise, answers[exercise.name])
                or _checked(lab, exercise, session, names, seed)
                for exercise in exercises
            ]
    finally:
        session.close()


@contextlib.contextmanager
def own_default_dtype():
    """A lab's set-up may change PyTorch's default dtype: for its own checks, not for those of the next notebook."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def worker_cells(lab, answers):
    """[(name, text)] of what a worker executes: our setup and drivers, the student's holes."""
    exercises = {exercise.hole: exercise.name for exercise in lab.exercises}
    cells = []
    for i, cell in enumerate(lab.cells):
        if cell in exercises:
            cells.append((exercises[cell], answers[exercises[cell]].text))
        elif cell.tags & {"setup", "driver"}:
            cells.append((_name(cell, i), cell.source))
    return cells


def check_names(lab, session):
    """What a check sees: what our setup makes, here; what holes and drivers define, over there."""
    exercises = {exercise.hole: exercise.name for exercise in lab.exercises}
    names = {"__name__": "__main__"}
    for cell in lab.cells:
        if "setup" in cell.tags:
            exec(_compiled(cell.source, "<setup>"), names)  # noqa: S102
    for i, cell in enumerate(lab.cells):
        if cell in exercises or "driver" in cell.tags:
            names |= names_in(session, exercises.get(cell) or _name(cell, i), cell)
    return names


@functools.cache
def _compiled(source, filename):
    """Our own cells, compiled once for all the submissions that this process grades."""
    return compile(source, filename, "exec")


def _name(cell, place) -> str:
    return f"{'setup' if 'setup' in cell.tags else 'driver'} {place}"


def _unchecked(exercise, answer):
    """The result of a hole that there is nothing to check in; None for the others."""
    label = f"{exercise.number} {exercise.name}"
    if answer.text is None:
        return Result(label, 0, exercise.points, answer.status, answer.problem)
    if not answer.attempted:
        return Result(
            label,
            0,
            exercise.points,
            "not attempted",
            f"Not attempted yet: write your answer in the cell of `{exercise.name}`, then run its check.",
        )
    return None


def _checked(lab, exercise, session, names, seed):
    """Runs the checks of one exercise."""
    points, status, message = 0, None, None
    for check in exercise.checks:
        not_there = session.ready_problem(exercise.name)
        problem = not_there or _run(lab, check, session, names, seed)
        if problem is None:
            points += check.points
        elif message is None:
            limit_s, tried = (
                (CELL_S, f"The cell of `{exercise.name}`")
                if not_there
                else (check.limit_s, exercise.name)
            )
            status, message = explain(problem, lab, exercise, tried_by(problem) or tried, limit_s)
    if message is None:
        status, message = "passed", ""
    elif points:
        status = "partly passed"
    return Result(f"{exercise.number} {exercise.name}", points, exercise.points, status, message)


def _run(lab, check, session, names, seed):
    """Runs one check, or replays the calls of one that passed; returns what it raised, or None."""
    if check.source not in _repeatable(lab):
        return _execute(check, session, names, seed)
    key = lab, check.source, seed, replay.values(check.source, names, _fetched(lab))
    tape, before = TAPES.get(key), []
    session.allow(check.limit_s)
    if tape is not None:
        before = replay.replay(session.worker.wire, tape, session.deadline)
        if before is None:
            return None
    worker = session.worker
    plain = worker.wire.socket
    stand_in = worker.wire.socket = (
        replay.Prompter(plain, before) if before else replay.Recorder(plain)
    )
    try:
        problem = _execute(check, session, names, seed)
    except replay.Diverged:
        TAPES.spoil(key)
        return _execute(check, session, names, seed)
    finally:
        worker.wire.socket = plain
    if before:
        if stand_in.tape and worker.pid is not None:  # an answer is left over
            worker.end()
    elif (
        problem is None
        and session.worker is worker
        and session.kernels is None
        and not session.ranks
    ):
        TAPES.keep(key, stand_in.tape)
    return problem


TAPES = replay.Tapes()


@functools.cache
def _repeatable(lab):
    return replay.repeatable(
        [check.source for exercise in lab.exercises for check in exercise.checks]
    )


@functools.cache
def _fetched(lab):
    """The names of values, not functions, that holes and drivers define."""
    cells = [cell for cell in lab.cells if cell.tags & {"hole", "driver"}]
    return frozenset(
        name for cell in cells for name in set(cell.names) - set(holes.callable_names(cell.source))
    )


def _execute(check, session, names, seed):
    """Runs one check; returns what it raised, or None."""
    names["rng"] = np.random.default_rng(check_seed(check, seed))
    session.allow(check.limit_s)
    sources.remember("<check>", check.source)
    try:
        with _alarm(2 * check.limit_s), contextlib.redirect_stdout(io.StringIO()):
            exec(_compiled(check.source, "<check>"), names)  # noqa: S102
    except (Exception, WorkerEnded, CheckTimeout) as problem:
        return problem
    return None


def check_seed(check, seed):
    """What a check's generator is seeded with."""
    return [seed, zlib.crc32(check.source.encode())]


@contextlib.contextmanager
def _alarm(seconds):
    """Ends what computes in the grader itself for too long: a check that chokes on what came.

    By this process's own time: what it waits for has deadlines, and another program's load is nobody's fault.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_) -> Never:
        raise CheckTimeout(f"the check was still busy with what came after {seconds:.0f} s")

    old = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def explain(problem, lab, exercise, tried, limit_s):
    """(status, message) for what a check raised: what was tried, what came, what was wanted."""
    if isinstance(problem, WorkerEnded):
        limit = f" (the limit is {limit_s:g} s)" if problem.status == "timeout" else ""
        return problem.status, f"{tried} {problem}{limit}."
    if isinstance(problem, CheckTimeout):
        return "timeout", f"{exercise.name}: {problem}."
    if isinstance(problem, NotImplementedError):
        other = next(
            (e for e in lab.exercises if f"Exercise {e.number}:" in str(problem)), exercise
        )
        if other != exercise:
            return (
                "failed",
                f"{tried} needs `{other.name}` (exercise {other.number}), which is not there yet.",
            )
        return "not attempted", f"{tried} is not there yet: {problem}."
    if report := student_error(problem):
        if report.text.startswith(f"{tried}, line "):  # a simulator's own sentence
            return "failed", report.text
        line = f" (line {report.line}: `{report.code}`)" if report.line else ""
        hint = (
            " What should count stands in the hole's cell."
            if isinstance(problem, NameError)
            else ""
        )
        hint = (
            f" {MEMORY_BYTES >> 30} GB are allowed." if isinstance(problem, MemoryError) else hint
        )
        text = f": {report.text}" if report.text else ""
        status = "failed" if report.tried else "error"
        return status, f"{tried} raised {report.kind}{text}{line}.{hint}"
    if isinstance(problem, AssertionError):
        return "failed", str(problem) or f"{exercise.name}: this does not hold: `{_line(problem)}`."
    return (
        "failed",
        f"{exercise.name}: the check can't use what came: {type(problem).__name__}: {problem} (at `{_line(problem)}`).",
    )


def _line(problem):
    """The line of the check that a problem came from."""
    lines = [
        frame.line
        for frame in traceback.extract_tb(problem.__traceback__)
        if frame.filename == "<check>"
    ]
    return lines[-1] if lines else "?"
