"""A lab's checks in the process that holds the answers, as in a notebook.

The gate compares their verdict with the grader's.
"""

from collections.abc import Collection, Mapping

from grading.score import check_seed, worker_cells
from grading.source.holes import Answer
from grading.source.labs import Exercise, Lab
from grading.worker.client import ForkServer
from grading.worker.errors import WorkerEnded
from grading.worker.session import Session


def score_together(
    lab: Lab, answers: Mapping[str, Answer], fork_server: ForkServer, only: Collection[str]
) -> dict[str, str | None]:
    """{exercise: what its check raised, as text, or None}, on the cases of the grader's seed 0."""
    return {
        exercise.name: _problem(Session(fork_server, worker_cells(lab, answers)), exercise)
        for exercise in lab.exercises
        if exercise.name in only
    }


def _problem(session: Session, exercise: Exercise) -> str | None:
    try:
        problem = session.ready_problem(exercise.name)
        for check in exercise.checks:
            session.allow(check.limit_s)
            if problem is None:
                rng = f"rng = __import__('numpy').random.default_rng({check_seed(check, 0)})"
                session.execute(rng, "rng")
                session.execute(check.source, "check")
    except (Exception, WorkerEnded) as raised:
        problem = raised
    finally:
        session.close()
    return None if problem is None else f"{type(problem).__name__}: {problem}"
