"""A course's marks: what the grader gave, with overrides, written answers, lateness, and nothing
handed in."""

import itertools
import time
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from grading import classroom
from grading.course import overrides, tables, written
from grading.course.settings import Settings
from grading.report import Graded, Result, Row, duration
from grading.report import rows as rows_of

LATE = "late"  # the exercise of the row that takes points off
Waiting = Mapping[tuple[str, str], Sequence[Row]]  # {(student, lab): rows of an earlier run}
NOBODY: Waiting = types.MappingProxyType({})
COLUMNS = ("student", "name", "section", "lab", "points", "max_points", "percent", "late_h", "note")


@dataclass(frozen=True)
class Mark:
    """A student's lab, all rows together."""

    student: str
    lab: str
    points: float
    max_points: float
    late_s: int | None
    handed_in: bool
    note: str  # what is not from the grader

    @property
    def share(self) -> float:
        return self.points / self.max_points if self.max_points else 0.0


def rows(
    graded: Sequence[Graded], settings: Settings, answers: Path, waiting: Waiting = NOBODY
) -> list[Row]:
    """All rows of a class.

    answers: the folder of the written answers' tables. waiting: the submissions that this run did
    not grade.
    InputError if a table of written answers can't be used.
    """
    found = [row for one in graded for row in one.rows]
    found += nothing_handed_in(graded, settings, waiting)
    found += written.rows(graded, settings, answers, waiting)
    found = overrides.apply(found, settings.overrides)
    kept = itertools.chain.from_iterable(waiting.values())
    return [*found, *_deductions(found, settings), *kept]


def check(there: Set[tuple[str, str]], settings: Settings, answers: Path) -> None:
    """InputError for what a person entered and what would count for nobody.

    there: (student, lab) of what was handed in. answers: as for `rows`.
    """
    due = there | {*_missing(there, settings)}
    overrides.check(settings.overrides, due, settings.roster)
    written.check(there, answers)


def nothing_handed_in(
    graded: Iterable[Graded], settings: Settings, waiting: Waiting = NOBODY
) -> list[Row]:
    """Rows of 0 points for the students on the roster who handed in nothing and are due."""
    there = {(one.submission.student, one.submission.lab) for one in graded}
    rows = []
    for student, name in _missing(there | waiting.keys(), settings):
        exercises = classroom.lab(name).exercises
        results = [Result(e.label, 0, e.points, "not handed in") for e in exercises]
        rows += rows_of(student, name, results)
        rows += written.absent(student, name, settings)
    return rows


def _missing(there: Set[tuple[str, str]], settings: Settings) -> Iterator[tuple[str, str]]:
    """(student, lab) of those on the roster who are due, in the labs that others handed in.

    there: (student, lab) of what was handed in.
    """
    now = time.time()
    for name in sorted({lab for _, lab in there}):
        for student in settings.roster.people:
            due_s = settings.due_s(student, name)
            if (student, name) not in there and (due_s is None or due_s < now):
                yield student, name


def _deductions(found: Iterable[Row], settings: Settings) -> list[Row]:
    """A row per late lab that takes points off. Points that a person gave count like others."""
    taken_off = []
    for mark in of(found):
        percent = settings.late.percent(mark.late_s or 0)
        if percent and mark.points:
            off = -round(mark.points * percent / 100, 2)
            why = f"{percent:g} % off: {duration(mark.late_s or 0)} late"
            result = Result(LATE, off, 0, "late", why)
            taken_off += rows_of(mark.student, mark.lab, [result], late_s=mark.late_s)
    return taken_off


def of(found: Iterable[Row]) -> list[Mark]:
    """The marks, by student and lab."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row["student"], row["lab"]), []).append(row)
    return [
        Mark(
            student,
            lab,
            round(sum(row["points"] for row in group), 2),
            sum(row["max_points"] for row in group),
            next((row["late_s"] for row in group if row["late_s"] is not None), None),
            any(row["status"] != "not handed in" for row in group),
            _note(group),
        )
        for (student, lab), group in sorted(groups.items())
    ]


def _note(group: Collection[Row]) -> str:
    exercises = {(row["status"], row["message"]) for row in group if row["exercise"][0].isdigit()}
    # The same error in all exercises is one of the notebook: it can't be read.
    notes = [message for status, message in exercises if len(exercises) == 1 and status == "error"]
    for row in group:
        if row["status"] == "changed by hand":
            reason, gave = row["message"].partition("\n")[0], row.get("grader_gave") or 0
            less = f" (the grader gave {gave:g})" if gave > row["points"] else ""
            notes.append(f"{row['exercise']} by hand: {reason}{less}")
        elif row["status"] == "late":
            notes.append(row["message"])
        elif row["status"] == "not marked yet":
            notes.append(f"{row['exercise']} is not marked yet")
        elif row["status"] == "changed since it was marked":
            notes.append(f"{row['exercise']} has changed since it was marked")
    return "; ".join(notes)


def write(found: Iterable[Row], settings: Settings, folder: Path) -> None:
    """marks.csv: a line per student and lab."""
    tables.write(
        folder / "marks.csv",
        COLUMNS,
        (
            {
                "student": mark.student,
                "name": settings.roster.name(mark.student),
                "section": settings.roster.section(mark.student),
                "lab": mark.lab,
                "points": mark.points,
                "max_points": mark.max_points,
                "percent": round(100 * mark.share),
                "late_h": "" if mark.late_s is None else round(mark.late_s / 3600, 1),
                "note": mark.note if mark.handed_in else "nothing handed in",
            }
            for mark in of(found)
        ),
    )
