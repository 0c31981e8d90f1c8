"""nbgrader: write the points into its gradebook, for its formgrader, feedback and export.

The points go into COURSE/gradebook.db, the students' notebooks into COURSE/autograded. Points of
written answers and what lateness takes off are left out: nbgrader has late penalties of its own.
"""

import argparse
import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from grading import classroom, report, submissions
from grading.classroom import GRADER_BYTES
from grading.course.marks import LATE
from grading.course.written import LABEL
from grading.errors import CommandError, InputError
from grading.jail.usage import limit_memory
from grading.lms import folders
from grading.report import Row
from grading.source import build, notebook
from grading.source.labs import Exercise, Lab
from grading.submissions import Submission

Key = tuple[str, str, int]  # student, lab, attempt
Gradebook = Any  # nbgrader.api.Gradebook; nbgrader is optional

SCHEMA = 3  # of nbgrader's metadata


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command `nbgrader` accepts."""
    parser.add_argument(
        "submissions", type=Path, metavar="SUBMISSIONS", help="the folder that was graded"
    )
    parser.add_argument(
        "results", type=Path, metavar="RESULTS", help="the folder that the grader wrote"
    )
    parser.add_argument("course", type=Path, metavar="COURSE", help="nbgrader's folder")
    parser.add_argument(
        "--deadline",
        action="append",
        default=[],
        metavar="[LAB=]TIME",
        help="when a lab (or every lab) is due, for example 2026-11-20T18:00; may be repeated",
    )
    parser.add_argument(
        "--times",
        choices=["files", "names"],
        default="files",
        help="when a notebook was handed in: the time of its file (default), or what its name or "
        "nbgrader's timestamp.txt says, which a student may choose",
    )


def run(options: argparse.Namespace) -> int:
    """The command `nbgrader`."""
    warnings.filterwarnings("ignore", module="nbgrader")  # SQLAlchemy warns about its queries
    limit_memory(GRADER_BYTES)  # it reads notebooks that may hold anything
    folders.expect_results(options.results)
    rows = report.read(options.results)
    due = submissions.deadlines(options.deadline)
    handed_in, _ = submissions.find(options.submissions, due, times=options.times)
    by_key = {(one.student, one.lab, one.attempt): one for one in handed_in}
    count = write(rows, by_key, options.course, due)
    for sentence in not_carried_over(rows):
        print(sentence)
    print(f"{count} submissions: {options.course / 'gradebook.db'}")
    return 0


def not_carried_over(rows: Iterable[Row]) -> Iterator[str]:
    """A sentence for each kind of row that nbgrader's gradebook does not get."""
    labels = [row["exercise"] for row in rows if row["points"]]
    if count := sum(label.startswith(LABEL) for label in labels):
        answers = "1 written answer" if count == 1 else f"{count} written answers"
        yield f"Not in nbgrader's gradebook: the points of {answers}"
    if count := labels.count(LATE):
        times = "once" if count == 1 else f"{count} times"
        yield (
            f"Not in nbgrader's gradebook: what lateness took off, {times}, and extensions: "
            "nbgrader has late penalties of its own, and one due date for all (--deadline)"
        )


def write(
    rows: Iterable[Row],
    handed_in: Mapping[Key, Submission],
    course: Path,
    deadlines: Mapping[str, float] | None = None,
) -> int:
    """Write each submission's points, and the notebook that nbgrader shows and comments.

    Marks and comments that were given by hand stay. Returns the number of submissions.

    course: nbgrader's folder.
    deadlines: {lab: seconds since 1970}.
    """
    # pyrefly: ignore[missing-import]: nbgrader is optional
    from nbgrader.api import Gradebook

    _put_on_path(os.path.dirname(sys.executable))  # nbgrader calls alembic by its name
    if not shutil.which("alembic"):
        raise CommandError(
            "nbgrader needs the command alembic, which is not installed: "
            "pip install 'ml-systems-labs[gradebook]'"
        )
    course.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{(course / 'gradebook.db').resolve()}"
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        if row["exercise"][:1].isdecimal() and row["status"] != "not handed in":
            groups.setdefault((row["student"], row["lab"], row["attempt"]), []).append(row)
    with Gradebook(url) as book:
        for name in sorted({lab for _, lab, _ in groups}):
            _assignment(book, classroom.lab(name), (deadlines or {}).get(name), course)
        for key, theirs in sorted(groups.items()):
            _submission(book, classroom.lab(key[1]), theirs, handed_in.get(key), course)
    for student, name, _ in groups:
        _penalty(student, name, course, url)
    return len(groups)


def _put_on_path(folder: str) -> None:
    folders = os.environ.get("PATH", "").split(os.pathsep)
    if folder not in folders:
        os.environ["PATH"] = os.pathsep.join([folder, *folders])


def _ids(exercise: Exercise) -> tuple[str, str]:
    """The ids of an exercise's two cells in nbgrader: letters, digits and dashes."""
    name = f"{exercise.number.replace('.', '-')}-{exercise.name}"
    return f"hole-{name}", f"check-{name}"


def _assignment(book: Gradebook, lab: Lab, deadline: float | None, course: Path) -> None:
    """The lab's rows, with the points of each exercise; and the lab, which nbgrader lists."""
    more = {} if deadline is None else {"duedate": _utc(deadline)}
    book.update_or_create_assignment(lab.name, **more)
    book.update_or_create_notebook(lab.name, lab.name)
    for exercise in lab.exercises:
        hole, check = _ids(exercise)
        book.update_or_create_grade_cell(
            check, lab.name, lab.name, max_score=exercise.points, cell_type="code"
        )
        book.update_or_create_solution_cell(hole, lab.name, lab.name)
        for cell, locked, source in (
            (hole, False, exercise.stub),
            (check, True, exercise.checks[0].source),
        ):
            book.update_or_create_source_cell(
                cell, lab.name, lab.name, cell_type="code", locked=locked, source=source
            )
    if not (course / "source" / lab.name).exists():  # or else it is the instructor's own
        _write(_marked_up(lab, {}), course / "source" / lab.name)


def _write(shown: NotebookNode, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(shown, folder / f"{folder.name}.ipynb")


def _student(book: Gradebook, name: str) -> None:
    """The student's row. Without another name, it gets their folder's: "Lovelace, Ada"."""
    student = book.update_or_create_student(name)
    if student.last_name is None and student.first_name is None:
        student.last_name, _, student.first_name = (part.strip() for part in name.partition(","))


def _submission(
    book: Gradebook, lab: Lab, rows: list[Row], submission: Submission | None, course: Path
) -> None:
    """One student's rows, and the notebook."""
    student = rows[0]["student"]
    exercises = {exercise.label: exercise for exercise in lab.exercises}
    _student(book, student)
    when = {} if submission is None else {"timestamp": _utc(submission.time_s)}
    book.update_or_create_submission(lab.name, student, **when)
    for row in rows:
        hole, check = _ids(exercises[row["exercise"]])
        grade = book.find_grade(check, lab.name, lab.name, student)
        grade.auto_score = row["points"]
        grade.needs_manual_grade = grade.manual_score is not None
        comment = book.find_comment(hole, lab.name, lab.name, student)
        comment.auto_comment = None if row["status"] == "passed" else as_code(_outcome(row))
    book.db.commit()
    _write(_shown(lab, rows, submission), course / "autograded" / student / lab.name)


def _outcome(row: Row) -> str:
    message = row["told"] or row["message"]  # nbgrader's feedback shows it to the student
    return "passed" if row["status"] == "passed" else f"{row['status']}: {message}"


def as_code(text: str) -> str:
    """The text as a block of code in Markdown: nbgrader turns comments into HTML."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _shown(lab: Lab, rows: Iterable[Row], submission: Submission | None) -> NotebookNode:
    """Our notebook with the student's answers and what each check said, marked up for nbgrader."""
    try:
        answers = notebook.read_answers(lab, submission.path) if submission else {}
    except (InputError, OSError, MemoryError):
        answers = {}
    texts = {name: answer.text for name, answer in answers.items() if answer.text is not None}
    return _marked_up(lab, texts, {row["exercise"]: _outcome(row) for row in rows})


def _marked_up(
    lab: Lab, texts: Mapping[str, str], outcomes: Mapping[str, str] | None = None
) -> NotebookNode:
    """Our notebook with these answers; its holes and checks are marked up for nbgrader.

    outcomes: {exercise: what its check said}.
    """
    shown = build.lab_notebook(lab.filled(texts))
    cells: Iterator[Any] = iter(shown.cells)
    for exercise in lab.exercises:
        hole = next(cell for cell in cells if "hole" in cell.metadata.get("tags", []))
        check = next(cells)
        names = _ids(exercise)
        hole.metadata["nbgrader"] = _marks(names[0], solution=True, locked=False)
        check.metadata["nbgrader"] = _marks(names[1], grade=True, points=exercise.points)
        if outcomes:
            check.outputs = [nbformat.v4.new_output("stream", text=outcomes[exercise.label])]
    return shown


def _marks(
    name: str, *, grade: bool = False, solution: bool = False, locked: bool = True, **points: int
) -> dict[str, Any]:
    marks = {
        "grade_id": name,
        "grade": grade,
        "solution": solution,
        "locked": locked,
        "task": False,
        "schema_version": SCHEMA,
    }
    return {**marks, "cell_type": "code", **points}


def _penalty(student: str, name: str, course: Path, url: str) -> None:
    """What the course's own plugin in nbgrader_config.py takes off for a late submission."""
    # pyrefly: ignore[missing-import]: nbgrader is optional
    from nbgrader.preprocessors import AssignLatePenalties
    from traitlets.config import Config, PyFileConfigLoader

    own = course / "nbgrader_config.py"
    config = (
        PyFileConfigLoader(own.name, path=str(course)).load_config() if own.exists() else Config()
    )
    which = {"notebook": name, "assignment": name, "student": student, "db_url": url}
    penalties = AssignLatePenalties(config=config)
    penalties.preprocess(nbformat.v4.new_notebook(), {"nbgrader": which})


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
