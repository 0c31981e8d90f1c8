"""Points and comments for written answers: a CSV per lab next to the page that shows them.

The grader writes answers/<lab>.csv with a line per answer. A person fills in points and comment.
Each later run keeps what was filled in, and puts it into the results.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grading import classroom
from grading.course import tables
from grading.course.settings import Settings
from grading.errors import InputError
from grading.report import Graded, Row, Status
from grading.source import notebook

COLUMNS = ("student", "question", "points", "max_points", "comment", "note", "answer")
CHANGED = "the answer has changed since it was marked"
LABEL = "written "  # an exercise in the results: "written 1"


def rows(graded: Sequence[Graded], settings: Settings, folder: Path) -> list[Row]:
    """The rows of the written answers of all labs; renews the tables in a folder."""
    by_lab: dict[str, list[Graded]] = {}
    for one in sorted(graded, key=lambda one: one.order):
        by_lab.setdefault(one.lab.name, []).append(one)
    found: list[Row] = []
    for name, group in by_lab.items():
        if notebook.questions(group[0].lab):
            lines = _lines(group, settings.written.get(name, 0.0), folder / f"{name}.csv")
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.csv"
            tables.write(path, COLUMNS, [*lines, *_of_others(lines, path)])
            found += [_row(name, line) for line in lines if line["max_points"]]
    return found


def _lines(group: Iterable[Graded], most: float, path: Path) -> list[dict[str, Any]]:
    """A line per student and question, with what was filled in before."""
    before = _filled_in(path) if path.exists() else {}
    lines = []
    for one in group:
        unread = [(question, "") for question in notebook.questions(one.lab)]
        for number, (_, text) in enumerate(one.written or unread, 1):
            old = before.get((one.submission.student, str(number)), {})
            is_marked = bool(old.get("points") or old.get("comment"))
            changed = is_marked and old.get("answer", "") != tables.as_read(_flat(text))
            lines.append(
                {
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


def _of_others(lines: Iterable[Mapping[str, Any]], path: Path) -> list[dict[str, str]]:
    """What was filled in for students who are not graded in this run: it stays in the table."""
    here = {line["student"] for line in lines}
    before = _filled_in(path).values() if path.exists() else ()
    return [
        row for row in before if (row["points"] or row["comment"]) and row["student"] not in here
    ]


def _filled_in(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    found = {}
    for line, row in tables.read(path, COLUMNS):
        if row["points"]:
            where = f"{path}, line {line}"
            points = tables.number(row["points"], where)
            if row["max_points"] and points > tables.number(row["max_points"], where):
                most = row["max_points"]
                raise InputError(f"{where}: {row['points']} points exceed max_points, {most}")
        found[row["student"], row["question"]] = row
    return found


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
