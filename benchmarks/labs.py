"""Seconds, peak memory and size of each solved lab, and its slowest check: make bench-labs

    benchmarks/labs.py [LAB ...]    all labs, or these

Each solution is executed in a fresh kernel, as a student's Run All does. Then the grader times the
checks one by one.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import nbformat
from rich import print
from rich.table import Table

from grading import classroom, score
from grading.source import build, labs
from grading.source.holes import Answer
from grading.source.labs import Lab

PEAK = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"  # KB on Linux


def execution(lab: Lab) -> tuple[float, float, float]:
    """(seconds, peak memory in GB, size in KB) of the solved notebook."""
    notebook = build.solution_notebook(lab)
    notebook.cells.append(nbformat.v4.new_code_cell(PEAK))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        build.execute(notebook, Path(folder))
    peak_kb = int(notebook.cells.pop().outputs[-1].text)
    return time.perf_counter() - start, peak_kb / 1e6, len(nbformat.writes(notebook)) / 1024


def slowest_check(lab: Lab) -> tuple[float, str]:
    """(seconds per check, exercise) of the exercise with the slowest checks in the grader."""
    answers = {name: Answer(text) for name, text in lab.solution.items()}
    score.score(lab, answers, classroom.fork_server())  # to warm up
    times = []
    for exercise in lab.exercises:
        start = time.perf_counter()
        score.score(lab, answers, classroom.fork_server(), only=[exercise.name])
        times.append(((time.perf_counter() - start) / len(exercise.checks), exercise.name))
    return max(times)


def main() -> None:
    table = Table(
        "lab",
        "solved, s (goal 60)",
        "peak memory, GB (goal 2)",
        "executed, KB (goal 500)",
        "slowest check, s",
    )
    for name in [labs.resolve(word) for word in sys.argv[1:]] or labs.names():
        lab = labs.read(name)
        time_s, peak_gb, size_kb = execution(lab)
        check_s, exercise = slowest_check(lab)
        table.add_row(
            name, f"{time_s:.0f}", f"{peak_gb:.2f}", f"{size_kb:.0f}", f"{check_s:.1f} {exercise}"
        )
    print(table)


if __name__ == "__main__":
    main()
