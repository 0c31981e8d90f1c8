"""The names that a check sees: what a student's cells define, called in the worker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from common.checks import show
from common.hardware import process_memory
from grading.source import holes
from grading.source.labs import Cell
from grading.worker import counting
from grading.worker.errors import WorkerEnded, set_tried, student_error
from grading.worker.session import Session

LONGEST_CALL = 240  # characters of a call in a message; more would hide what it raised


class Remote:
    """A student's function, as a check sees it: it is called in the worker."""

    def __init__(self, session: Session, name: str, source: str | None) -> None:
        self.__name__ = name
        self.source = source
        self._session = session

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call_in_place((), *args, **kwargs)

    def call_in_place(self, changed: Sequence[Any], /, *args: Any, **kwargs: Any) -> Any:
        """The same, where the call may change these arguments (see grader_link.in_place)."""
        try:
            return self._session.call(self.__name__, args, kwargs, in_place=changed)
        except (Exception, WorkerEnded) as error:
            shown = [*map(show, args), *(f"{key}={show(value)}" for key, value in kwargs.items())]
            text = f"{self.__name__}({', '.join(shown)})"
            set_tried(error, text if len(text) <= LONGEST_CALL else f"{self.__name__}(...)")
            raise

    def call_afresh(self, /, *args: Any, **kwargs: Any) -> Any:
        """The same, in a worker that has seen no earlier call (see grader_link.afresh)."""
        self._session.begin_afresh()
        try:
            return self(*args, **kwargs)
        except Exception as error:
            if report := student_error(error):
                report.text += " (in a new process: what an earlier call kept is not there)"
            raise

    def call_weighed(self, /, *args: Any) -> tuple[Any, int]:
        """The same, and the most bytes that the worker took for it (see grader_link.weighed)."""
        self._session.begin_afresh()
        before = self._session.running_worker().resident()
        result = self(*args)
        return result, process_memory.beyond(before, self._session.running_worker().resident())

    def names_used(self, of: Collection[str]) -> set[str]:
        """What of this is in its text, or in what it uses of its notebook (see static_names)."""
        return set(self._session.names_used(self.__name__, frozenset(of)))

    def count_remotely(self, package: counting.Package, /, *args: Any, **options: Any) -> Any:
        """What simt, tiles or ranks gives for it (see common.checks.grader_link)."""
        try:
            return counting.run(self._session, package, self.__name__, args, options)
        except (Exception, WorkerEnded) as error:
            set_tried(error, self.__name__)
            raise

    def __repr__(self) -> str:
        return f"<{self.__name__}, in the worker>"


def names_in(session: Session, name: str, cell: Cell) -> dict[str, Any]:
    """{name: Remote or value} of what a hole or driver of ours defines. Values are fetched now.

    A value that can't be fetched is left out: the check that reads it raises a NameError.
    """
    functions = holes.callable_names(cell.source)
    source = dict(session.cells)[name]
    names: dict[str, Any] = {function: Remote(session, function, source) for function in functions}
    for value in set(cell.names) - set(functions):
        try:
            names[value] = session.fetch(value)
        except (Exception, WorkerEnded):  # noqa: S112
            continue
    return names
