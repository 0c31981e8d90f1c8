"""Points and comments for written answers: a CSV per lab next to the page that shows them.

The grader writes answers/<lab>.csv with a line per answer. A person fills in points and comment.
Each later run keeps what was filled in, and puts it into the results.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grading import classroom
from grading.course import tables
from grading.course.settings import Settings
from grading.errors import InputError, did_you_mean
from grading.report import Graded, Row, Status
from grading.source import notebook

COLUMNS = ("student", "question", "points", "max_points", "comment", "note", "answer")
CHANGED = "the answer has changed since it was marked"
LABEL = "written "  # an exercise in the results: "written 1"
Place = tuple[str, str]  # (student, lab)
Filled = dict[tuple[str, int], dict[str, str]]  # a table's lines, by student and question


def check(there: Collection[Place], folder: Path) -> None:
    """InputError for a line that is filled in and would count for nobody.

    there: (student, lab) of what was handed in.
    """
    for name in sorted({lab for _, lab in there}):
        _filled_in(name, there, folder)


def rows(
    graded: Sequence[Graded],
    settings: Settings,
    folder: Path,
    waiting: Collection[Place] = (),
) -> list[Row]:
    """The rows of the written answers of all labs; renews the tables in a folder.

    waiting: (student, lab) of what this run did not grade: its lines stay as they are.
    InputError, before anything is written, as for `check`.
    """
    by_lab: dict[str, list[Graded]] = {}
    for one in sorted(graded, key=lambda one: one.order):
        by_lab.setdefault(one.lab.name, []).append(one)
    there = {(one.submission.student, one.lab.name) for one in graded} | {*waiting}
    asking = {name: group for name, group in by_lab.items() if notebook.questions(group[0].lab)}
    before = {name: _filled_in(name, there, folder) for name in asking}
    found: list[Row] = []
    for name, group in asking.items():
        lines = _lines(group, settings.written.get(name, 0.0), before[name])
        others = [student for student, lab in waiting if lab == name]
        _write(lines, before[name], others, folder / f"{name}.csv")
        found += [_row(name, line) for line in lines if line["max_points"]]
    return found


def _lines(group: Iterable[Graded], most: float, before: Filled) -> list[dict[str, Any]]:
    """A line per student and question, with what was filled in before."""
    lines = []
    for one in group:
        unread = [(question, "") for question in notebook.questions(one.lab)]
        for number, (_, text) in enumerate(one.written or unread, 1):
            old = before.get((tables.as_read(one.submission.student), number), {})
            is_marked = bool(old.get("points") or old.get("comment"))
            changed = is_marked and old.get("answer", "") != tables.as_read(_flat(text))
            lines.append(
                {
                    **old,
                    "student": one.submission.student,
                    "question": number,
                    "points": old.get("points", ""),
                    "max_points": old.get("max_points") or (f"{most:g}" if most else ""),
                    "comment": old.get("comment", ""),
                    "note": CHANGED if changed else old.get("note", ""),  # a person clears it
                    "answer": _flat(text),
                }
            )
    return lines


def _write(
    lines: Iterable[Mapping[str, Any]], before: Filled, waiting: Iterable[str], path: Path
) -> None:
    """The table of a lab, with the lines of those who wait and the columns that a person added."""
    path.parent.mkdir(parents=True, exist_ok=True)
    others = {tables.as_read(student) for student in waiting}
    kept = [row for (student, _), row in before.items() if student in others]
    columns = dict.fromkeys([*COLUMNS, *filter(None, next(iter(before.values()), {}))])
    tables.write(path, columns, [*lines, *kept])


def _filled_in(name: str, there: Collection[Place], folder: Path) -> Filled:
    """The lines of a lab's table that belong to an answer; {} without a table.

    InputError for a line that has points or a comment and belongs to no answer, or has points that
    can't be. Other lines without an answer are left out.
    """
    path = folder / f"{name}.csv"
    if not path.exists():
        return {}
    count = len(notebook.questions(classroom.lab(name)))
    students = {tables.as_read(student) for student, lab in there if lab == name}
    found: Filled = {}
    lines: dict[tuple[str, int], int] = {}
    for line, row in tables.read(path, COLUMNS):
        where, is_filled = f"{path}, line {line}", bool(row["points"] or row["comment"])
        _check_points(row, where)
        key = row["student"], _question(row["question"], count)
        if problem := _problem(row, key, students, count):
            if is_filled:
                raise InputError(f"{where}: {problem}")
            continue
        old = found.setdefault(key, row)
        if old is not row and (is_filled or old["points"] or old["comment"]):
            raise InputError(f"{where}: line {lines[key]} is for the same answer")
        lines.setdefault(key, line)
    return found


def _problem(
    row: Mapping[str, str], key: tuple[str, int], students: Collection[str], count: int
) -> str:
    """Why a line belongs to no answer; "" if it does."""
    student, question = key
    if student not in students:
        hint = did_you_mean(student, students) or ": remove it"
        return f"{student!r} handed in nothing for this lab, so this line counts for nobody{hint}"
    if not question:
        return f"there is no question {row['question']!r}: the lab has questions 1 to {count}"
    return ""


def _check_points(row: Mapping[str, str], where: str) -> None:
    """InputError unless the points of a line are numbers, and not too many."""
    points, most = (
        tables.number(row[column], where) if row[column] else None
        for column in ("points", "max_points")
    )
    if points is not None and most is not None and points > most:
        raise InputError(f"{where}: {points:g} points exceed max_points, {most:g}")


def _question(text: str, count: int) -> int:
    """The number of a question, which a spreadsheet may write as 1.0; 0 if there is none."""
    with contextlib.suppress(ValueError):
        number = float(text.replace(",", "."))
        return int(number) if number in range(1, count + 1) else 0
    return 0


def _flat(text: str) -> str:
    """The answer in one line of a table."""
    return " ".join(text.split())[:4000]


def absent(student: str, name: str, settings: Settings) -> list[Row]:
    """The rows of somebody who handed in nothing: 0 points of as many as the others have."""
    most = settings.written.get(name, 0.0)
    count = len(notebook.questions(classroom.lab(name))) if most else 0
    line = {"student": student, "points": "", "max_points": f"{most:g}", "note": ""}
    line |= {"comment": "", "answer": ""}
    found = [_row(name, line | {"question": number}) for number in range(1, count + 1)]
    for row in found:
        row["status"] = "not handed in"
    return found


def _status(line: Mapping[str, Any]) -> Status:
    if line["points"]:
        return "changed since it was marked" if line["note"] == CHANGED else "marked"
    return "not marked yet" if line["answer"] or line["comment"] else "not attempted"


def _row(lab: str, line: Mapping[str, Any]) -> Row:
    points = tables.number(line["points"], "points") if line["points"] else 0.0
    most = tables.number(line["max_points"], "max_points")
    return Row(
        student=line["student"],
        lab=lab,
        exercise=f"{LABEL}{line['question']}",
        points=points,
        max_points=most,
        status=_status(line),
        message=line["comment"],
        attempt=1,
        late_s=None,
        told="",
        grader_gave=None,
    )
