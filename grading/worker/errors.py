"""What goes wrong in a worker, as the grader sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ending = Literal["timeout", "died"]


class WorkerEnded(BaseException):
    """The worker is gone, or was ended. It is not an Exception, so no check can catch it as one.

    status: how it ended. tried: the call that it was asked for, as a student would type it.
    is_whole: whether the limit that was reached is the whole notebook's.
    """

    def __init__(self, status: Ending, message: str, is_whole: bool = False) -> None:
        super().__init__(message)
        self.is_whole = is_whole
        self.status: Ending = status
        self.tried: str | None = None


@dataclass(eq=False)
class StudentError(Exception):
    """What a student's code raised in a worker, as the worker reported it.

    A check sees the builtin exception of that kind, as it would in a notebook (`except ValueError`
    works). This report is that exception's `__cause__`, as `raise ValueError(text) from
    StudentError(...)` would set it, and `student_error` gets it back.
    """

    kind: str  # the name of its type
    text: str
    line: int | None = None  # of the student's cell
    code: str | None = None  # that line's text
    tried: str | None = None  # the call that raised it, as a student would type it


def student_error(error: BaseException) -> StudentError | None:
    """The report of an exception that came from a worker; None for any other exception."""
    return error.__cause__ if isinstance(error.__cause__, StudentError) else None


def set_tried(error: Exception | WorkerEnded, tried: str) -> None:
    """Notes in an exception from a worker which call led to it."""
    report = error if isinstance(error, WorkerEnded) else student_error(error)
    if report is not None:
        report.tried = tried


def tried_by(error: BaseException) -> str | None:
    """The call that led to this exception, if it came from one in a worker."""
    report = error if isinstance(error, WorkerEnded) else student_error(error)
    return report.tried if report is not None else None
