"""A lab's solved code, executed on this machine: what the benchmarks time is the solutions' own."""

from typing import Any

import matplotlib

from grading.score import own_settings, worker_cells
from grading.source import labs
from grading.source.holes import Answer
from nogpu.kernels import linecache_text


def solved(word: str, **answers: str) -> dict[str, Any]:
    """{name: value} of all that a lab's set-up, drivers and solved holes define.

    answers: texts to execute instead of some of the solved holes.
    """
    lab = labs.read(word)
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = {name: Answer(text) for name, text in (lab.solution | answers).items()}
    with matplotlib.rc_context(), own_settings():  # a lab's set-up changes style and dtype
        for name, text in worker_cells(lab, cells):
            file = f"<lab {lab.name}, {name}>"
            linecache_text.remember(file, text or "")
            exec(compile(text or "", file, "exec"), names)  # noqa: S102  (our own code)
    return names
