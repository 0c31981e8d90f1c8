"""Canvas: what it collected laid out for the grader, and the class's points as the CSV that its gradebook imports.

python -m grading.lms.canvas unpack SUBMISSIONS.zip FOLDER        "Download Submissions" as FOLDER/<Canvas id>/NN_noun.ipynb
python -m grading.lms.canvas marks RESULTS --roster EXPORT.csv    RESULTS/canvas.csv; EXPORT.csv is what Canvas' gradebook exports
"""

import argparse
import csv
import io
import json
import re
import sys
import zipfile
from pathlib import Path

from common.files import replace
from grading.report import plain

WHO = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
POSSIBLE = "Points Possible"
DOWNLOADED = re.compile(
    r"[^/]+?_(\d+)_\d+_([^/]+\.ipynb)"
)  # lovelaceada_LATE_11_345678_01_strides-2.ipynb: 11 is her id


def unpack(archive, folder):
    """({Canvas ids}, [files left out]): writes each notebook of Canvas' zip to folder/<Canvas id>/<its own name>."""
    students, strays = set(), []
    with zipfile.ZipFile(archive) as files:
        for name in files.namelist():
            if told := DOWNLOADED.fullmatch(name):
                (folder / told[1]).mkdir(parents=True, exist_ok=True)
                (folder / told[1] / told[2]).write_bytes(files.read(name))
                students.add(told[1])
            else:
                strays.append(name)
    return students, strays


def table(rows, roster):
    """(header, lines, students of whom the roster knows nothing) for Canvas.

    rows: of results.json. roster: [dict] of Canvas' export. A student's folder is named by their login, SIS id, Canvas id or
    name. A lab goes into the roster's column that begins with its name, "01_strides (1234)", else into a new one.
    """
    names = sorted({row["lab"] for row in rows})
    there = list(roster[0]) if roster else []
    columns = {
        name: next((column for column in there if re.match(rf"{name}( \(\d+\))?$", column)), name)
        for name in names
    }
    points, most = {}, {}
    for row in rows:
        mine = points.setdefault(row["student"], {})
        mine[row["lab"]] = mine.get(row["lab"], 0) + row["points"]
        most.setdefault(row["lab"], {})[row["exercise"]] = row["max_points"]
    people = [
        person
        for person in roster
        if person.get("Student", "").strip() not in ("", POSSIBLE, "Student, Test")
    ]
    known = {
        person[key]: person for key in reversed(WHO[:4]) for person in people if person.get(key)
    }
    known |= {_folded(key): person for key, person in known.items()}
    lines, unknown = [], []
    for student, mine in sorted(points.items()):
        person = known.get(student) or known.get(_folded(student))
        if person is None and roster:
            unknown.append(student)
            continue
        who = [person.get(key, "") for key in WHO] if person else [student, "", "", student, ""]
        lines.append([*who, *(mine.get(name, "") for name in names)])
    possible = [f"    {POSSIBLE}", "", "", "", "", *(sum(most[name].values()) for name in names)]
    return [*WHO, *columns.values()], [possible, *lines], unknown


def _folded(name):
    """A name without case, accents of punctuation and order: "Lovelace, Ada" is "ada lovelace"."""
    return " ".join(sorted(re.findall(r"\w+", str(name).lower())))


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m grading.lms.canvas",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    unpacking = verbs.add_parser("unpack", help="lay out what Canvas collected")
    unpacking.add_argument("archive", type=Path, metavar="SUBMISSIONS.zip")
    unpacking.add_argument("folder", type=Path, metavar="FOLDER")
    marking = verbs.add_parser("marks", help="write the points as Canvas imports them")
    marking.add_argument(
        "results", type=Path, metavar="RESULTS", help="the folder that the grader wrote"
    )
    marking.add_argument(
        "--roster", type=Path, help="the gradebook as Canvas exports it: who is who"
    )
    options = parser.parse_args(arguments)
    try:
        _unpack(options) if options.verb == "unpack" else _mark(options)
    except OSError as problem:
        print(
            f"grading: {problem.filename} can't be read or written: {problem.strerror}",
            file=sys.stderr,
        )
        return 2
    except zipfile.BadZipFile:
        print(f"grading: {options.archive} is no zip file", file=sys.stderr)
        return 2
    except ValueError as problem:
        print(f"grading: {problem}", file=sys.stderr)
        return 2
    return 0


def _unpack(options) -> None:
    students, strays = unpack(options.archive, options.folder)
    for name in strays:
        print(f"left out: {name} (no notebook that Canvas named)")
    print(f"{len(students)} students: {options.folder}")


def _mark(options) -> None:
    rows = json.loads((options.results / "results.json").read_text(encoding="utf-8"))
    roster = _roster(options.roster) if options.roster else []
    header, lines, unknown = table(rows, roster)
    text = io.StringIO()
    csv.writer(text).writerows([header, *([plain(value) for value in line] for line in lines)])
    replace(options.results / "canvas.csv", text.getvalue())
    for student in unknown:
        print(f"left out: {student} (nobody in {options.roster} has that login, id or name)")
    if not roster:
        print(
            "Without --roster the folders' names stand for logins: Canvas matches them by SIS Login ID."
        )
    print(f"{len(lines) - 1} students: {options.results / 'canvas.csv'}")


def _roster(path):
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    people = list(csv.DictReader(io.StringIO(text, newline="")))
    if not people or "Student" not in people[0] or "ID" not in people[0]:
        raise ValueError(
            f"{path} is no gradebook that Canvas exported: it has no columns Student and ID"
        )
    return people


if __name__ == "__main__":
    sys.exit(main())
