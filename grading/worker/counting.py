"""Counts what a student's work costs, where the student's Python can't change the counts.

A check counts a kernel with simt.count(kernel, ...) or tiles.count(kernel, ...), and runs a
function on ranks with ranks.run(function, ...). In the grader these are Remotes, whose
count_remotely comes here. A kernel is counted from its text alone, in a worker that executes no
cell. For ranks the grader is the network (see grading.worker.ranks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from common.notebook.kernel_text import text_of
from grading.worker.session import Session
from nogpu import tiles

Package = Literal["simt", "tiles", "ranks"]


def run(
    session: Session,
    package: Package,
    name: str,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> Any:
    """The report, as data, of a student's kernel (simt, tiles); the Result of a function (ranks).

    session: of the student's cells. name: what a cell of theirs defines. arguments: of the launch,
    or of the function; a kernel's arrays are changed as by a launch.
    """
    if package == "ranks":
        from grading.worker import ranks

        return ranks.run(session, name, arguments, **options)
    given, settings = list(arguments), dict(options)
    emitted = settings.pop("emitted", None)  # a kernel's text, which the function has returned
    if emitted is not None:
        text, name = str(emitted), tiles.EMITTED
    else:
        found = text_of(tuple(text for _, text in session.cells[: session.reached]), name)
        if found is None:
            raise NameError(f"no cell defines `{name}`")
        text = found
    request = package, text, name, given, settings
    worker = session.counting_worker()
    return worker.request("count", *request, allowance=session.check, in_place=given)
