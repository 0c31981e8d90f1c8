"""overrides.csv: points that a person gives in place of the grader's, with a reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grading import classroom
from grading.course import tables
from grading.errors import InputError
from grading.report import Row
from grading.source import labs

COLUMNS = ("student", "lab", "exercise", "points", "reason")


@dataclass(frozen=True)
class Override:
    """A line of overrides.csv."""

    student: str
    lab: str
    exercise: str  # the label in results: "1.1 row_major_strides"
    points: float
    reason: str
    line: int


def read(path: Path) -> list[Override]:
    """The overrides; InputError names the line of one that can't be used."""
    found: dict[tuple[str, str, str], Override] = {}
    for line, row in tables.read(path, COLUMNS):
        where = f"{path}, line {line}"
        try:
            lab = classroom.lab(labs.resolve(row["lab"]))
        except InputError as problem:
            raise InputError(f"{where}: {problem}") from None
        points = tables.number(row["points"], where)
        if not row["reason"]:
            raise InputError(f"{where}: give a reason: the student reads it")
        exercise = _exercise(lab, row["exercise"], points, where)
        key = row["student"], lab.name, exercise
        if key in found:
            raise InputError(f"{where}: line {found[key].line} is for the same exercise")
        found[key] = Override(*key, points, row["reason"], line)
    return list(found.values())


def _exercise(lab: labs.Lab, word: str, points: float, where: str) -> str:
    """The label of an exercise that is given by number, name or both."""
    for exercise in lab.exercises:
        if word in (exercise.number, exercise.name, exercise.label):
            if points > exercise.points:
                raise InputError(
                    f"{where}: {points:g} points are more than the {exercise.points} of "
                    f"{exercise.label}"
                )
            return exercise.label
    known = ", ".join(exercise.label for exercise in lab.exercises)
    raise InputError(f"{where}: lab {lab.name} has no exercise {word!r}: it has {known}")


def apply(rows: Sequence[Row], overrides: Iterable[Override]) -> tuple[list[Row], list[Override]]:
    """(the rows with the given points and the reasons, the overrides that fit no row)."""
    waiting = {(one.student, one.lab, one.exercise): one for one in overrides}
    new = []
    for row in rows:
        one = waiting.pop((row["student"], row["lab"], row["exercise"]), None)
        if one:
            message = _with_reason(one, row, row["message"])
            told = _with_reason(one, row, row["told"]) if row["told"] else ""
            row = row.copy()
            row["grader_gave"] = row["points"]
            row["points"], row["status"] = one.points, "changed by hand"
            row["message"], row["told"] = message, told
        new.append(row)
    return new, list(waiting.values())


def _with_reason(one: Override, row: Row, message: str) -> str:
    said = f": {message}" if message else ""
    return f"{one.reason}\n(The grader gave {row['points']:g}{said})"
