"""Says in a sentence why a check did not pass: what was tried, what came, what was wanted."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from types import MappingProxyType

from grading.jail.limits import MEMORY_BYTES
from grading.report import Status
from grading.source.labs import Exercise, Lab
from grading.worker.errors import StudentError, WorkerEnded, student_error, tried_by

# A simulator's own sentence about a line of a kernel, or of a device function that it calls.
OF_SIMULATOR = re.compile(r"\w+, line \d+ \(`")
NOTHING: Mapping[str, BaseException] = MappingProxyType({})


class CheckTimeout(BaseException):
    """A check computed in the grader itself for too long."""


def explain(
    problem: BaseException,
    lab: Lab,
    exercise: Exercise,
    tried: str,
    limit_s: float,
    other_cells: Mapping[str, BaseException] = NOTHING,
) -> tuple[Status, str]:
    """(status, message) for what a check raised.

    tried: what was tried, unless the problem says which call it came from. other_cells: what those
    of the student's other cells raised that an answer needs.
    """
    tried = tried_by(problem) or tried
    if isinstance(problem, WorkerEnded):
        text = f"{tried} {problem}"
        if problem.status == "timeout" and not problem.is_whole:
            return "timeout", f"{text} (the limit is {limit_s:g} s). Does a loop never end?"
        return problem.status, f"{text}."
    if isinstance(problem, CheckTimeout):
        return "timeout", f"{exercise.name}: {problem}."
    if isinstance(problem, NotImplementedError):
        return _missing(problem, lab, exercise, tried)
    if report := student_error(problem):
        if isinstance(problem, AssertionError) and _is_of_driver(report, lab):
            return "failed", report.text
        return "failed" if report.tried else "error", _raised(problem, report, tried, other_cells)
    if isinstance(problem, AssertionError):
        wrong = f"{exercise.name}: this does not hold: `{_line(problem)}`."
        return "failed", str(problem) or wrong
    came = f"{type(problem).__name__}: {problem} (at `{_line(problem)}`)"
    return "failed", f"{exercise.name}: the check can't use the answer's values: {came}."


def _is_of_driver(report: StudentError, lab: Lab) -> bool:
    """Whether a driver has raised this: its sentence is ours, and its line no student's."""
    line = report.code or ""
    drivers = (cell.source for cell in lab.cells if "driver" in cell.tags)
    return bool(report.text and line) and any(line in text for text in drivers)


def _missing(
    problem: NotImplementedError, lab: Lab, exercise: Exercise, tried: str
) -> tuple[Status, str]:
    """The message for a hole that still has its stub: this exercise's, or one that it needs."""
    named = (other for other in lab.exercises if f"Exercise {other.number}:" in str(problem))
    needed = next(named, exercise)
    if needed != exercise:
        needs = f"`{needed.name}` (exercise {needed.number}), which is not there yet"
        return "failed", f"{tried} needs {needs}."
    reason = f": {problem}" if str(problem) else ": it raises NotImplementedError"
    return "not attempted", f"{tried} is not there yet{reason}."


def _raised(
    problem: BaseException,
    report: StudentError,
    tried: str,
    other_cells: Mapping[str, BaseException],
) -> str:
    """The message for what the student's code raised."""
    if OF_SIMULATOR.match(report.text):
        return report.text
    text = f": {report.text}" if report.text else ""
    line = f" (line {report.line}: `{report.code}`)" if report.line else ""
    hint = ""
    if report.kind == "NameError":  # not an UnboundLocalError, which no other cell heals
        hint = _why_unknown(other_cells)
    elif isinstance(problem, MemoryError):
        hint = f" {MEMORY_BYTES >> 30} GB are allowed."
    return f"{tried} raised {report.kind}{text}{line}.{hint}"


def _why_unknown(other_cells: Mapping[str, BaseException]) -> str:
    """Why a name may be there in the notebook and not here."""
    for problem in other_cells.values():
        report = student_error(problem)
        what = f"raised {report.kind}: {report.text}" if report else str(problem)
        return f" The cell of yours that sets it {what}."
    return " No import, function, class or assignment of a cell above the check sets this name."


def _line(problem: BaseException) -> str:
    """The line of the check that a problem came from."""
    frames = traceback.extract_tb(problem.__traceback__)
    lines = [frame.line for frame in frames if frame.filename == "<check>" and frame.line]
    return lines[-1] if lines else "?"
