"""Canvas: prepare what it collected for the grader, and write the points as it imports them.

unpack lays the zip file of "Download Submissions" out as FOLDER/<Canvas id>/NN_noun.ipynb.
marks writes RESULTS/canvas.csv, which Canvas's gradebook imports.
feedback writes RESULTS/canvas_feedback.zip, which Canvas's "Upload Submissions" takes.
"""

import argparse
import csv
import io
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from common.files import replace
from grading import report
from grading.course import tables
from grading.errors import InputError
from grading.lms import archives, canvas_feedback
from grading.source.notebook import MAX_NOTEBOOK_BYTES
from grading.submissions import WITHOUT_TIMES, count_of, escaped

Person = dict[str, str]  # a line of Canvas's gradebook, by its columns

WHO = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
NO_TIMES = "Canvas's zip file does not say when a notebook was handed in.\n"
PIECE_BYTES = 1 << 20  # of a file that is unpacked
POSSIBLE = "Points Possible"
# lovelaceada_LATE_11_345678_01_strides-2.ipynb: 11 is the student's id.
DOWNLOADED = re.compile(r"[^/]+?_([0-9]+)_[0-9]+_([^/]+\.ipynb)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command `canvas` accepts."""
    verbs = parser.add_subparsers(required=True, metavar="{unpack,marks,feedback}")
    unpacking = verbs.add_parser("unpack", help="lay out what Canvas collected for the grader")
    unpacking.add_argument(
        "archive", type=Path, metavar="SUBMISSIONS.zip", help="what Download Submissions gives"
    )
    unpacking.add_argument("folder", type=Path, metavar="FOLDER", help="the folder to write to")
    unpacking.set_defaults(act=_unpack)
    marking = verbs.add_parser("marks", help="write the points as Canvas imports them")
    marking.add_argument(
        "results", type=Path, metavar="RESULTS", help="the folder that the grader wrote"
    )
    marking.add_argument(
        "--roster",
        type=Path,
        metavar="EXPORT.csv",
        help="the gradebook as Canvas exports it, to match the folders' names with students",
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
    students, strays = unpack(options.archive, options.folder)
    for name in strays:
        print(
            f"left out: {name} (not a notebook with a name that Canvas gives, not the only one, "
            "damaged, or too large)"
        )
    print(f"{count_of(students)}: {options.folder}")


def unpack(archive: Path, folder: Path) -> tuple[set[str], list[str]]:
    """Write each notebook of Canvas's zip file to folder/<Canvas id>/<its own name>.

    Returns (the students' Canvas ids, the files left out).
    """
    students, strays = set(), []
    written: set[Path] = set()
    with archives.opened(archive) as files:
        for info in files.infolist():
            match = DOWNLOADED.fullmatch(info.filename)
            student, notebook = match.groups() if match else ("", "")
            path = folder / student / notebook
            is_one = (
                match and not canvas_feedback.has_two_readings(notebook) and path not in written
            )
            if is_one and _extract(files, info, path):
                students.add(student)
                written.add(path)
            else:
                strays.append(escaped(info.filename))
    if students:
        (folder / WITHOUT_TIMES).write_text(NO_TIMES, encoding="utf-8")
    return students, strays


def _extract(files: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> bool:
    """Writes a file of the archive piece by piece; False if it can't be read, or is too large."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with files.open(info) as packed, open(path, "wb") as unpacked:
            while piece := packed.read(PIECE_BYTES):
                unpacked.write(piece)
                if unpacked.tell() > MAX_NOTEBOOK_BYTES:
                    break
            else:
                return True
    except (*archives.BROKEN, OSError):
        pass  # encrypted, broken, packed in an unknown way, or with a name that no file can have
    path.unlink(missing_ok=True)
    return False


def _return(options: argparse.Namespace) -> None:
    path = options.results / "canvas_feedback.zip"
    pages = options.results / "feedback"
    count, missing = canvas_feedback.write(options.archive, pages, path, DOWNLOADED)
    for student in missing:
        print(
            f"left out: {student} (no page {pages / student}.html: grade again, then repeat this)"
        )
    print(f"{count} pages: {path}")


def _mark(options: argparse.Namespace) -> None:
    roster = _roster(options.roster) if options.roster else []
    header, lines, unknown = table(report.read(options.results), roster)
    text = io.StringIO()
    csv.writer(text).writerows([header, *(map(_cell, line) for line in lines)])
    replace(options.results / "canvas.csv", text.getvalue())
    for student in unknown:
        print(f"left out: {student} (nobody in {options.roster} has this login, id or name)")
    if not roster:
        print(
            "Without --roster the folders' names are used as logins: Canvas matches them by SIS "
            "Login ID."
        )
    for lab in header[len(WHO) :]:
        if roster and lab not in roster[0]:
            print(f"{lab}: {options.roster} has no such assignment, so the import makes a new one")
    print(f"{len(lines) - 1} students: {options.results / 'canvas.csv'}")


def _cell(value: str | float) -> str:
    """A cell of the table: 23 points are 23, not 23.0."""
    return report.plain(value) if isinstance(value, str) else f"{round(value, 2):g}"


def _roster(path: Path) -> list[Person]:
    lines = tables.opened(path)
    columns = [name.strip() for name in lines.fieldnames or []]
    if "Student" not in columns or "ID" not in columns:
        raise InputError(
            f"{path} is not a gradebook that Canvas exported: it has no columns Student and ID"
        )
    lines.fieldnames = columns
    people = [{key: line.get(key) or "" for key in columns} for line in lines]
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
    nobody = ("", POSSIBLE, "Student, Test")
    people = [person for person in roster if person.get("Student", "").strip() not in nobody]
    are_ids = {person["ID"] for person in people} >= set(folders)

    def find(folder: str) -> Person | None:
        found: dict[str, Person] = {}
        for key, same in [*((key, _plain) for key in WHO[1:4]), ("Student", _folded)]:
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


def _plain(word: str) -> str:
    """An id or a login, as no two people have it: without case, and in one way of writing."""
    return unicodedata.normalize("NFKC", word).strip().casefold()


def _folded(name: str) -> str:
    """A name without case, punctuation and order: "Lovelace, Ada" becomes "ada lovelace"."""
    return " ".join(sorted(re.findall(r"\w+", _plain(name))))
