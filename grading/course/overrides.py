"""overrides.csv: points that a person gives in place of the grader's, with a reason."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from grading import classroom
from grading.course import tables
from grading.course.roster import Roster
from grading.errors import InputError, did_you_mean
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
    path: Path

    @property
    def where(self) -> str:
        return f"{self.path}, line {self.line}"


def read(path: Path, folder: Callable[[str], str] = str) -> list[Override]:
    """The overrides; InputError names the line of one that can't be used.

    folder: the name of the student's folder, from any name that the roster has for it.
    """
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
        key = folder(row["student"]), lab.name, exercise
        if key in found:
            raise InputError(f"{where}: line {found[key].line} is for the same exercise")
        found[key] = Override(*key, points, row["reason"], line, path)
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
    if word.startswith("written"):
        table = f"answers/{lab.name}.csv"
        raise InputError(f"{where}: written answers are marked in {table}, beside the results")
    known = ", ".join(exercise.label for exercise in lab.exercises)
    raise InputError(f"{where}: lab {lab.name} has no exercise {word!r}: it has {known}")


def check(
    overrides: Iterable[Override], there: Collection[tuple[str, str]], roster: Roster
) -> None:
    """InputError for an override that would change nothing.

    there: (student, lab) of what was handed in, and of what was due and is missing.
    """
    students = {student for student, _ in there} | roster.people.keys()
    others = {other for person in roster.people.values() for other in person.others}
    for one in overrides:
        if one.student not in students:
            hint = did_you_mean(one.student, students | others)
            raise InputError(f"{one.where}: no folder has the name {one.student!r}{hint}")
        if (one.student, one.lab) not in there:
            raise InputError(
                f"{one.where}: {one.student} handed in nothing for lab {one.lab}, and has no "
                "points there to change: remove the line until then"
            )


def apply(rows: Iterable[Row], overrides: Iterable[Override]) -> list[Row]:
    """The rows with the given points and the reasons."""
    by_key = {(one.student, one.lab, one.exercise): one for one in overrides}
    new = []
    for row in rows:
        one = by_key.get((row["student"], row["lab"], row["exercise"]))
        if one:
            message = _with_reason(one, row, row["message"])
            told = _with_reason(one, row, row["told"]) if row["told"] else ""
            row = row.copy()
            row["grader_gave"] = row["points"]
            row["points"], row["status"] = one.points, "changed by hand"
            row["message"], row["told"] = message, told
        new.append(row)
    return new


def _with_reason(one: Override, row: Row, message: str) -> str:
    said = f": {message}" if message else ""
    return f"{one.reason}\n(The grader gave {row['points']:g}{said})"
