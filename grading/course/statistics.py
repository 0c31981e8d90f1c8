"""How hard each exercise was, how well it tells students apart, and which mistakes were made."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from grading import mistakes
from grading.report import Graded
from grading.source.labs import Exercise

FEW = 20  # students: fewer say nothing about an exercise
SOME = 8  # who passed, and who failed: with fewer, a correlation is chance


@dataclass(frozen=True)
class ExerciseStatistics:
    """An exercise in a class."""

    label: str
    max_points: int
    students: int  # whose notebook could be read
    attempted: int
    passed: int
    mean: float  # points
    # Correlation with the lab's other exercises; None if few students, or if unknown.
    discrimination: float | None
    mistakes: list[tuple[str, int]]  # (known mistake, how many students), the most frequent first

    @property
    def advice(self) -> str:
        """What the numbers ask of the instructor, or ""."""
        if self.students < FEW or self.discrimination is None:
            return ""
        if self.discrimination < 0.1 and SOME <= self.passed <= self.students - SOME:
            return "strong students fail it as often as weak ones: is the task clear?"
        return "few solve it" if self.passed < 0.3 * self.students else ""


def of_lab(group: Sequence[Graded]) -> list[ExerciseStatistics]:
    """The exercises of a lab, in order. group: the graded submissions of this lab.

    A notebook that can't be read has 0 points in all, and says nothing of how they go together.
    """
    exercises = group[0].lab.exercises
    read = [one.results for one in group if one.answers is not None]
    shares = [[r.points / max(1, r.max_points) for r in results] for results in read]
    return [_of(exercise, i, group, shares) for i, exercise in enumerate(exercises)]


def _of(
    exercise: Exercise, place: int, group: Sequence[Graded], shares: Sequence[Sequence[float]]
) -> ExerciseStatistics:
    results = [one.results[place] for one in group]
    found = Counter(filter(None, (mistakes.known(exercise, r.message) for r in results)))
    return ExerciseStatistics(
        exercise.label,
        exercise.points,
        len(shares),
        sum(result.status not in ("not attempted", "missing") for result in results),
        sum(result.status == "passed" for result in results),
        statistics.mean(result.points for result in results),
        _correlation(
            [share[place] for share in shares],
            [sum(share[:place]) + sum(share[place + 1 :]) for share in shares],
        ),
        found.most_common(),
    )


def _correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    if len(x) < FEW or len(set(x)) < 2 or len(set(y)) < 2:
        return None
    return statistics.correlation(x, y)
