"""nbgrader's gradebook: our points in it, so that its formgrader, feedback, export and late penalties go on from there.

python -m grading.lms.nbgrader SUBMISSIONS RESULTS COURSE    into COURSE/gradebook.db and COURSE/autograded; needs nbgrader
"""

import argparse
import json
import os
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path

import nbformat

from grading import submissions
from grading.source import build, labs, notebook

SCHEMA = 3  # of nbgrader's metadata


def write(rows, handed_in, course, deadlines=None):
    """Writes each submission's points into the gradebook, and the notebook that nbgrader shows and comments.

    rows: of results.json. handed_in: {(student, lab, attempt): submissions.Submission}. course: nbgrader's folder.
    deadlines: {lab: seconds since 1970}. What a grader gave or wrote by hand stays. Returns how many submissions.
    """
    from nbgrader.api import Gradebook

    beside = os.path.dirname(
        sys.executable
    )  # nbgrader calls alembic by its name, whether or not the environment is active
    if beside not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([beside, os.environ.get("PATH", "")])
    course.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{(course / 'gradebook.db').resolve()}"
    groups = {}
    for row in rows:
        groups.setdefault((row["student"], row["lab"], row["attempt"]), []).append(row)
    with Gradebook(url) as book:
        for name in sorted({lab for _, lab, _ in groups}):
            _assignment(book, labs.read(name), (deadlines or {}).get(name), course)
        for key, theirs in sorted(groups.items()):
            _submission(book, labs.read(key[1]), theirs, handed_in.get(key), course)
    for student, name, _ in groups:
        _penalty(student, name, course, url)
    return len(groups)


def _ids(exercise):
    """The names of an exercise's two cells in nbgrader: letters, digits, dashes."""
    name = f"{exercise.number.replace('.', '-')}-{exercise.name}"
    return f"hole-{name}", f"check-{name}"


def _assignment(book, lab, deadline, course) -> None:
    """The lab's rows: its points an exercise; and the lab itself, without which nbgrader lists no assignment."""
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
    if not (course / "source" / lab.name).exists():  # else it is the instructor's own
        _write(_marked_up(lab, {}), course / "source" / lab.name)


def _write(shown, folder) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(shown, folder / f"{folder.name}.ipynb")


def _student(book, name) -> None:
    """The student's row; their folder's name stands where nobody gave a name: "Lovelace, Ada", or all of it."""
    student = book.update_or_create_student(name)
    if student.last_name is None and student.first_name is None:
        student.last_name, _, student.first_name = (part.strip() for part in name.partition(","))


def _submission(book, lab, rows, submission, course) -> None:
    """One student's rows, and the notebook."""
    student, exercises = rows[0]["student"], {f"{e.number} {e.name}": e for e in lab.exercises}
    _student(book, student)
    when = {} if submission is None else {"timestamp": _utc(submission.time_s)}
    book.update_or_create_submission(lab.name, student, **when)
    for row in rows:
        hole, check = _ids(exercises[row["exercise"]])
        grade = book.find_grade(check, lab.name, lab.name, student)
        grade.auto_score = row["points"]
        grade.needs_manual_grade = grade.manual_score is not None
        comment = book.find_comment(hole, lab.name, lab.name, student)
        comment.auto_comment = (
            None if row["status"] == "passed" else as_code(f"{row['status']}: {row['message']}")
        )
    book.db.commit()
    _write(_shown(lab, rows, submission), course / "autograded" / student / lab.name)


def as_code(text):
    """Text as Markdown shows it letter by letter: nbgrader turns comments into HTML."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _shown(lab, rows, submission):
    """Our notebook with the student's answers, marked up for nbgrader, and with what each check said."""
    try:
        answers = notebook.read_answers(lab, submission.path) if submission else {}
    except (ValueError, OSError):
        answers = {}
    texts = {name: answer.text for name, answer in answers.items() if answer.text is not None}
    told = {
        row["exercise"]: "passed"
        if row["status"] == "passed"
        else f"{row['status']}: {row['message']}"
        for row in rows
    }
    return _marked_up(lab, texts, told)


def _marked_up(lab, texts, told=None):
    """Our notebook with these answers, its holes and checks marked up for nbgrader. told: what each exercise's check said."""
    shown = build.lab_notebook(lab.filled(texts))
    cells = iter(shown.cells)
    for exercise in lab.exercises:
        hole = next(cell for cell in cells if "hole" in cell.metadata.get("tags", []))
        check = next(cells)
        names = _ids(exercise)
        hole.metadata["nbgrader"] = _marks(names[0], solution=True, locked=False)
        check.metadata["nbgrader"] = _marks(names[1], grade=True, points=exercise.points)
        if told:
            check.outputs = [
                nbformat.v4.new_output("stream", text=told[f"{exercise.number} {exercise.name}"])
            ]
    return shown


def _marks(name, *, grade=False, solution=False, locked=True, **points):
    marks = {
        "grade_id": name,
        "grade": grade,
        "solution": solution,
        "locked": locked,
        "task": False,
        "schema_version": SCHEMA,
    }
    return {**marks, "cell_type": "code", **points}


def _penalty(student, name, course, url) -> None:
    """What the course's own plugin takes off for a late submission (nbgrader_config.py; none by default)."""
    from nbgrader.preprocessors import AssignLatePenalties
    from traitlets.config import Config, PyFileConfigLoader

    own = course / "nbgrader_config.py"
    config = (
        PyFileConfigLoader(own.name, path=str(course)).load_config() if own.exists() else Config()
    )
    told = {"nbgrader": {"notebook": name, "assignment": name, "student": student, "db_url": url}}
    AssignLatePenalties(config=config).preprocess(nbformat.v4.new_notebook(), told)


def _utc(seconds):
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def main(arguments=None) -> int:
    from grading.__main__ import BadInput, deadlines

    parser = argparse.ArgumentParser(
        prog="python -m grading.lms.nbgrader",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("submissions", type=Path, help="the folder that was graded")
    parser.add_argument("results", type=Path, help="what came of it")
    parser.add_argument("course", type=Path, help="nbgrader's folder")
    parser.add_argument(
        "--deadline", action="append", default=[], metavar="[LAB=]TIME", help="as for grading"
    )
    options = parser.parse_args(arguments)
    warnings.filterwarnings(
        "ignore", module="nbgrader"
    )  # its own queries, of which SQLAlchemy warns
    try:
        rows = json.loads((options.results / "results.json").read_text(encoding="utf-8"))
        handed_in, _ = submissions.find(options.submissions, due := deadlines(options.deadline))
        count = write(
            rows,
            {(one.student, one.lab, one.attempt): one for one in handed_in},
            options.course,
            due,
        )
    except ModuleNotFoundError as problem:
        print(
            f"grading: this needs {problem.name}, which is not installed: pip install nbgrader",
            file=sys.stderr,
        )
        return 2
    except OSError as problem:
        print(
            f"grading: {problem.filename} can't be read or written: {problem.strerror}",
            file=sys.stderr,
        )
        return 2
    except (BadInput, ValueError) as problem:
        print(f"grading: {problem}", file=sys.stderr)
        return 2
    print(f"{count} submissions: {options.course / 'gradebook.db'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
