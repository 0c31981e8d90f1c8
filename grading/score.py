"""Points: a lab's checks against a student's holes."""

import contextlib
import io
import json
import linecache
import signal
import threading
import traceback
import zlib
from dataclasses import dataclass

import numpy as np

from grading import holes
from grading.run import CELL_S, Session, WorkerEnded, names_in
from grading.worker import MEMORY_BYTES

MAX_NOTEBOOK_BYTES = 50 << 20


@dataclass(frozen=True)
class Result:
    """What one exercise of one student got, and why. status: passed, partly passed, failed, not attempted, missing, error
    (the cell can't be read or executed), timeout, died."""

    exercise: str  # "1.1 row_major_strides"
    points: int
    max_points: int
    status: str
    message: str = ""


class CheckTimeout(BaseException):
    """A check went on in the grader itself for too long."""


def read_answers(lab, path):
    """{exercise: Answer} from a student's notebook; ValueError says in a sentence why the file is none."""
    if path.stat().st_size > MAX_NOTEBOOK_BYTES:
        raise ValueError(
            f"{path.name} has {path.stat().st_size / 1e6:.0f} MB; {MAX_NOTEBOOK_BYTES / 1e6:.0f} are allowed: clear its outputs"
        )
    text = path.read_text(encoding="utf-8", errors="replace")
    if not text.strip():
        raise ValueError(f"{path.name} is empty")
    try:
        notebook = json.loads(text)
        if notebook["nbformat"] < 4:
            import nbformat

            notebook = nbformat.convert(nbformat.reader.reads(text), 4)
        cells = [source for cell in notebook["cells"] if (source := _code(cell)) is not None]
    except Exception as error:  # a file of any kind may lie there
        reason = " ".join(str(error).split())[:100]
        raise ValueError(f"{path.name} is no notebook ({type(error).__name__}: {reason})") from None
    return {exercise.name: holes.find(cells, exercise) for exercise in lab.exercises}


def _code(cell):
    """The text of a code cell, None for others: one odd cell must not cost the notebook."""
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return None
    source = cell.get("source")
    return source if isinstance(source, str) else "".join(line for line in source or () if isinstance(line, str))


def score(lab, answers, nursery, seed=0, only=None):
    """The results of a lab's exercises, in order.

    answers: {name of the exercise: Answer}. seed: of the checks' generators. only: the names of the exercises to check.
    """
    session = Session(nursery, worker_cells(lab, answers))
    try:
        exercises = [exercise for exercise in lab.exercises if only is None or exercise.name in only]
        if not any(answers[exercise.name].attempted for exercise in exercises):
            return [_unchecked(exercise, answers[exercise.name]) for exercise in exercises]
        names = check_names(lab, session)
        return [
            _unchecked(exercise, answers[exercise.name]) or _checked(lab, exercise, session, names, seed)
            for exercise in exercises
        ]
    finally:
        session.close()


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
            exec(compile(cell.source, "<setup>", "exec"), names)  # noqa: S102
    for i, cell in enumerate(lab.cells):
        if cell in exercises or "driver" in cell.tags:
            names |= names_in(session, exercises.get(cell) or _name(cell, i), cell)
    return names


def _name(cell, place):
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
        problem = not_there or _run(check, session, names, seed)
        if problem is None:
            points += check.points
        elif message is None:
            limit_s, tried = (CELL_S, f"The cell of `{exercise.name}`") if not_there else (check.limit_s, exercise.name)
            status, message = explain(problem, lab, exercise, getattr(problem, "tried", tried), limit_s)
    if message is None:
        status, message = "passed", ""
    elif points:
        status = "partly passed"
    return Result(f"{exercise.number} {exercise.name}", points, exercise.points, status, message)


def _run(check, session, names, seed):
    """Runs one check; returns what it raised, or None."""
    names["rng"] = np.random.default_rng([seed, zlib.crc32(check.source.encode())])
    session.allow(check.limit_s)
    linecache.cache["<check>"] = (len(check.source), None, check.source.splitlines(keepends=True), "<check>")
    try:
        with _alarm(2 * check.limit_s), contextlib.redirect_stdout(io.StringIO()):
            exec(compile(check.source, "<check>", "exec"), names)  # noqa: S102
    except (Exception, WorkerEnded, CheckTimeout) as problem:
        return problem
    return None


@contextlib.contextmanager
def _alarm(seconds):
    """Ends what runs in the grader itself for too long: a check that chokes on what came."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_):
        raise CheckTimeout(f"the check was still busy with what came after {seconds:.0f} s")

    old = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def explain(problem, lab, exercise, tried, limit_s):
    """(status, message) for what a check raised: what was tried, what came, what was wanted."""
    if isinstance(problem, WorkerEnded):
        limit = f" (the limit is {limit_s:g} s)" if problem.status == "timeout" else ""
        return problem.status, f"{tried} {problem}{limit}."
    if isinstance(problem, CheckTimeout):
        return "timeout", f"{exercise.name}: {problem}."
    if isinstance(problem, NotImplementedError):
        other = next((e for e in lab.exercises if f"Exercise {e.number}:" in str(problem)), exercise)
        if other != exercise:
            return "failed", f"{tried} needs `{other.name}` (exercise {other.number}), which is not there yet."
        return "not attempted", f"{tried} is not there yet: {problem}."
    if told := getattr(problem, "remote", None):
        if told["text"].startswith(f"{tried}, line "):  # a simulator's own sentence
            return "failed", told["text"]
        line = f" (line {told['line']}: `{told['code']}`)" if told["line"] else ""
        hint = " What should count stands in the hole's cell." if isinstance(problem, NameError) else ""
        hint = f" {MEMORY_BYTES >> 30} GB are allowed." if isinstance(problem, MemoryError) else hint
        text = f": {told['text']}" if told["text"] else ""
        return "failed" if hasattr(problem, "tried") else "error", f"{tried} raised {told['type']}{text}{line}.{hint}"
    if isinstance(problem, AssertionError):
        return "failed", str(problem) or f"{exercise.name}: this does not hold: `{_line(problem)}`."
    return (
        "failed",
        f"{exercise.name}: the check can't use what came: {type(problem).__name__}: {problem} (at `{_line(problem)}`).",
    )


def _line(problem):
    """The line of the check that a problem came from."""
    lines = [frame.line for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == "<check>"]
    return lines[-1] if lines else "?"


def score_together(lab, answers, nursery, only):
    """{exercise: what its check raised, as text, or None}, with checks and holes in one process as in a notebook.

    The gate wants the same verdict from both ways.
    """
    problems = {}
    for exercise in lab.exercises:
        if exercise.name not in only:
            continue
        session = Session(nursery, worker_cells(lab, answers))
        try:
            problem = session.ready_problem(exercise.name)
            for check in exercise.checks:
                session.allow(check.limit_s)
                if problem is None:
                    session.execute(check.source, "check")
        except (Exception, WorkerEnded) as raised:
            problem = raised
        finally:
            session.close()
        problems[exercise.name] = problem and f"{type(problem).__name__}: {problem}"
    return problems
