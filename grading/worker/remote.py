"""The names that a check sees: what a student's cells define, called in the worker."""

from common.checks import show
from grading.source import holes
from grading.worker import counting
from grading.worker.errors import WorkerEnded, set_tried


class Remote:
    """A student's function, as a check sees it: it is called in the worker."""

    def __init__(self, session, name, source) -> None:
        self.__name__, self.source = name, source
        self._session = session

    def __call__(self, *args, **kwargs):
        try:
            return self._session.call(self.__name__, args, kwargs)
        except (Exception, WorkerEnded) as error:
            shown = [*map(show, args), *(f"{key}={show(value)}" for key, value in kwargs.items())]
            set_tried(error, f"{self.__name__}({', '.join(shown)})")
            raise

    def count_remotely(self, package, /, *args, **options):
        """What simt, tiles or ranks gives for it (see common.remote)."""
        try:
            return counting.run(self._session, package, self.__name__, args, options)
        except (Exception, WorkerEnded) as error:
            set_tried(error, self.__name__)
            raise

    def __repr__(self) -> str:
        return f"<{self.__name__}, in the worker>"


def names_in(session, name, cell):
    """{name: Remote or value} of what a hole or driver of ours defines; values are fetched now, missing ones left out."""
    functions = holes.callable_names(cell.source)
    found = {
        function: Remote(session, function, dict(session.cells)[name]) for function in functions
    }
    for value in set(cell.names) - set(functions):
        try:
            found[value] = session.fetch(value)
        except (Exception, WorkerEnded):
            pass  # the check that reads it meets a NameError, and the score knows why
    return found
