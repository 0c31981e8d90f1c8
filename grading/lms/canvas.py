"""Canvas: prepare what it collected for the grader, and write the points as it imports them.

unpack lays the zip file of "Download Submissions" out as FOLDER/<Canvas id>/NN_noun.ipynb.
marks writes RESULTS/canvas.csv, which Canvas's gradebook imports.
feedback writes RESULTS/canvas_feedback_NN.zip, which Canvas's "Upload Submissions" takes.
Run unpack and feedback once for each assignment, and marks once for all.
"""

import argparse
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from common.files import replace
from grading import report
from grading.course import settings, tables
from grading.course.roster import POSSIBLE, canvas_id, expect_whole_names, is_student
from grading.errors import InputError
from grading.lms import canvas_feedback, canvas_submissions, folders
from grading.source import labs
from grading.submissions import count_of, escaped, unified

Person = dict[str, str]  # a line of Canvas's gradebook, by its columns

WHO = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command `canvas` accepts."""
    verbs = parser.add_subparsers(required=True, metavar="{unpack,marks,feedback}")
    unpacking = verbs.add_parser("unpack", help="lay out what Canvas collected for the grader")
    unpacking.add_argument(
        "archive", type=Path, metavar="SUBMISSIONS.zip", help="what Download Submissions gives"
    )
    unpacking.add_argument("folder", type=Path, metavar="FOLDER", help="the folder to write to")
    unpacking.add_argument(
        "--lab",
        action="append",
        default=[],
        help="the lab of the assignment, for example 07: files for other labs are left out; may be "
        "repeated (default: the only lab that the zip file has)",
    )
    unpacking.set_defaults(act=_unpack)
    marking = verbs.add_parser("marks", help="write the points as Canvas imports them")
    marking.add_argument(
        "results", type=Path, metavar="RESULTS", help="the folder that the grader wrote"
    )
    marking.add_argument(
        "--roster",
        type=Path,
        metavar="EXPORT.csv",
        help="the gradebook as Canvas exports it, to match the folders' names with students "
        "(default: the roster in course.toml, if it is one)",
    )
    marking.set_defaults(act=_mark)
    returning = verbs.add_parser("feedback", help="write the zip file that returns the pages")
    add = returning.add_argument
    add("results", type=Path, metavar="RESULTS", help="the folder that the grader wrote")
    add("archive", type=Path, metavar="SUBMISSIONS.zip", help="what Download Submissions gave")
    returning.set_defaults(act=_return)


def run(options: argparse.Namespace) -> int:
    """The command `canvas`."""
    options.act(options)
    return 0


def _unpack(options: argparse.Namespace) -> None:
    wanted = {labs.resolve(word) for word in options.lab}
    done = canvas_submissions.unpack(options.archive, options.folder, wanted)
    for name, why in done.left_out:
        print(f"left out: {name} ({why})")
    for path in done.nameless:
        print(
            f"not graded: {escaped(str(path))} (no lab has this name: if it is the lab, rename it "
            "to NN_noun.ipynb)"
        )
    print(f"{count_of(done.students)}: {options.folder}")


def _return(options: argparse.Namespace) -> None:
    folders.expect_results(options.results)
    path, count, missing = canvas_feedback.write(options.archive, options.results)
    for student in missing:
        page = options.results / "feedback" / f"{student}.html"
        print(f"left out: {student} (no page {page}: grade again, then repeat this)")
    print(f"{count} pages: {path}")


def _mark(options: argparse.Namespace) -> None:
    folders.expect_results(options.results)
    path = options.roster or _of_course()
    roster = _roster(path) if path else []
    rows = report.read(options.results)
    header, lines, unknown = table(rows, roster)
    if len(lines) == 1:
        who = f"none of its {count_of(unknown)} is in {path}" if unknown else "there are no marks"
        raise InputError(f"{options.results}: {who}, so nothing was written")
    text = io.StringIO()
    csv.writer(text).writerows([header, *(map(_cell, line) for line in lines)])
    replace(options.results / "canvas.csv", text.getvalue())
    if unmarked := sum(row["status"] == "not marked yet" for row in rows):
        print(f"written answers that are not marked yet, and count as 0: {unmarked}")
    for student in unknown:
        print(f"left out: {student} (nobody in {path} has this login, id or name)")
    if not roster:
        print(
            "Without --roster the folders' names are used as logins: Canvas matches them by SIS "
            "Login ID."
        )
    for sentence in _about_assignments(header, lines[0], roster):
        print(sentence)
    print(f"{count_of(lines[1:])}: {options.results / 'canvas.csv'}")


def _about_assignments(
    header: Sequence[str], possible: Sequence[str | float], roster: Sequence[Person]
) -> Iterator[str]:
    """A sentence for each lab that Canvas has no assignment for, or one with other points."""
    in_canvas = next((row for row in roster if row["Student"].strip() == POSSIBLE), {})
    for lab, most in list(zip(header, possible, strict=True))[len(WHO) :]:
        points = in_canvas.get(lab, "").strip().replace(",", ".")
        if roster and lab not in roster[0]:
            yield f"{lab}: the export has no such assignment, so the import makes a new one"
        elif re.fullmatch(r"\d+(\.\d+)?", points) and float(points) != most:
            yield (
                f"{lab}: the assignment has {float(points):g} points in Canvas, and the lab has "
                f"{_cell(most)}: change the assignment's points to {_cell(most)}"
            )


def _cell(value: str | float) -> str:
    """A cell of the table: 23 points are 23, not 23.0."""
    return report.plain(value) if isinstance(value, str) else f"{round(value, 2):g}"


def _of_course() -> Path | None:
    """The roster that course.toml names, if it is Canvas's export."""
    course = Path("course.toml")
    if not course.is_file():
        return None
    path = settings.read(course).roster_file
    return path if path and _is_export(tables.opened(path)) else None


def _is_export(table: "csv.DictReader[str]") -> bool:
    return {"Student", "ID"} <= {name.strip() for name in table.fieldnames or []}


def _roster(path: Path) -> list[Person]:
    if not path.is_file():
        raise InputError(f"{path} does not exist: export the gradebook from Canvas")
    table = tables.opened(path)
    expect_whole_names(table.fieldnames or (), path)
    if not _is_export(table):
        raise InputError(
            f"{path} is not a gradebook that Canvas exported: it has no columns Student and ID"
        )
    table.fieldnames = columns = [name.strip() for name in table.fieldnames or []]
    people = []
    for number, line in tables.lines(table, path):
        person = {key: line.get(key) or "" for key in columns}
        if is_student(person["Student"]):
            canvas_id(person["ID"], person["Student"], f"{path}, line {number}")
        people.append(person)
    if not any(is_student(person["Student"]) for person in people):
        raise InputError(f"{path} names no student: export the gradebook of this course")
    ids = Counter(person["ID"].strip() for person in people if person["ID"].strip())
    for person, count in ids.items():
        if count > 1:
            raise InputError(f"{path}: {count} lines have the ID {person}: which is right?")
    return people


def table(
    rows: Iterable[report.Row], roster: Sequence[Person]
) -> tuple[list[str], list[list[str | float]], list[str]]:
    """(header, lines, the students who are not in the roster) for Canvas.

    A student's folder is named by their login, SIS id, Canvas id or name. A lab goes into the
    column that begins with its name, "01_strides (1234)", or else into a new one.

    roster: Canvas's export of its gradebook; [] to use the folders' names as logins.
    """
    points: dict[str, dict[str, float]] = {}
    most: dict[str, dict[str, float]] = {}
    for row in rows:
        mine = points.setdefault(row["student"], {})
        mine[row["lab"]] = mine.get(row["lab"], 0) + row["points"]
        most.setdefault(row["lab"], {})[row["exercise"]] = row["max_points"]
    labs = sorted(most)
    find = _finder(roster, points)
    owners: dict[str, str] = {}  # by Canvas's id
    lines: list[list[str | float]] = []
    lines.append([f"    {POSSIBLE}", "", "", "", "", *(sum(most[lab].values()) for lab in labs)])
    unknown = []
    for student, mine in sorted(points.items()):
        person = find(student)
        if person is None and roster:
            unknown.append(student)
            continue
        if person and (other := owners.setdefault(person["ID"], student)) != student:
            raise InputError(
                f"{other} and {student} are both {person['Student']} in the roster: which is it? "
                "Name each folder by the student's Canvas id"
            )
        who = [person.get(key, "") for key in WHO] if person else [student, "", "", student, ""]
        lines.append([*who, *(mine.get(lab, "") for lab in labs)])
    columns = list(roster[0]) if roster else []
    return [*WHO, *(_column(lab, columns) for lab in labs)], lines, unknown


def _column(lab: str, columns: Iterable[str]) -> str:
    """Canvas's column for a lab, or the lab's name for a new one."""
    named = [column for column in columns if re.fullmatch(rf"{lab}( \(\d+\))?", column.strip())]
    if len(named) > 1:
        raise InputError(f"{' and '.join(named)} are both columns of {lab}: remove one of them")
    return named[0] if named else lab


def _finder(roster: Iterable[Person], folders: Collection[str]) -> Callable[[str], Person | None]:
    """A function from a folder's name to the one person whom it means, None if nobody.

    An id goes before a SIS id, that before a login, and only then comes a name: a student may
    choose it. InputError if two people have the same one, or if a folder is the id of one and the
    login of another, unless all folders are named by Canvas's ids.
    """
    people = [person for person in roster if is_student(person.get("Student", ""))]
    are_ids = {person["ID"] for person in people} >= set(folders)

    def find(folder: str) -> Person | None:
        found: dict[str, Person] = {}
        for key, same in [*((key, unified) for key in WHO[1:4]), ("Student", _folded)]:
            word = same(folder)
            meant = [p for p in people if word and same(p.get(key, "")) == word]
            if len(meant) > 1 and not found:
                raise InputError(
                    f"{folder}: {len(meant)} people of the roster have this {key}: name the "
                    "folder by the student's Canvas id"
                )
            if meant and (key != "Student" or not found):  # anybody may choose such a name
                found[key] = meant[0]
        if len({person["ID"] for person in found.values()}) > 1 and not are_ids:
            keys = ", ".join(f"the {key} of {person['Student']}" for key, person in found.items())
            raise InputError(f"{folder} is {keys}: name all folders by the students' Canvas ids")
        return next(iter(found.values()), None)

    return find


def _folded(name: str) -> str:
    """A name without case, punctuation and order: "Lovelace, Ada" becomes "ada lovelace"."""
    return " ".join(sorted(re.findall(r"\w+", unified(name))))
