"""Pages to read: one per student with what went wrong and what helps, one per lab with prose."""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import jinja2

from common.files import replace
from grading import mistakes
from grading.report import Graded, Result, Status
from grading.source import notebook
from grading.source.labs import Exercise, Lab
from grading.submissions import Submission

SHORT_MESSAGE = 4000


@dataclass(frozen=True)
class ExercisePart:
    """What feedback.html shows of an exercise."""

    name: str
    points: int
    max_points: int
    status: Status
    message: str
    mistake: str  # the sentence of a known mistake, or ""
    lines: Sequence[str]  # the student's code, if it did not pass
    failed_line: int | None  # counted from 1
    hint: str


@dataclass(frozen=True)
class LabPart:
    """What feedback.html shows of a lab."""

    title: str
    points: int
    max_points: int
    handed_in: str
    exercises: Sequence[ExercisePart]


@functools.cache
def template(name: str) -> jinja2.Template:
    """A page in this folder, to be rendered. What students wrote is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def write_students(graded: Iterable[Graded], folder: Path) -> None:
    """One page per student. A page needs no server and no other file.

    It shows exercise, points and message, and for a failed exercise also the code, the known
    mistake that it looks like, and the hint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_student: dict[str, list[Graded]] = {}
    for one in sorted(graded, key=lambda one: one.order):
        by_student.setdefault(one.submission.student, []).append(one)
    for student, labs in by_student.items():
        page = template("feedback.html").render(student=student, labs=[_lab(one) for one in labs])
        replace(folder / f"{student}.html", page)


def write_answers(graded: Iterable[Graded], folder: Path) -> None:
    """One page per lab that asks for prose: each question with what each student wrote."""
    by_lab: dict[str, list[Graded]] = {}
    for one in sorted(graded, key=lambda one: one.order):
        by_lab.setdefault(one.lab.name, []).append(one)
    for name, group in by_lab.items():
        lab = group[0].lab
        questions = [
            (
                question,
                [(one.submission.student, dict(one.written).get(question, "")) for one in group],
            )
            for question in notebook.questions(lab)
        ]
        if questions:
            folder.mkdir(parents=True, exist_ok=True)
            page = template("answers.html").render(title=title(lab), questions=questions)
            replace(folder / f"{name}.html", page)


def title(lab: Lab) -> str:
    """The lab's title, for example "01 · Strides"."""
    heading = re.search(r"^# (.+)$", lab.cells[0].source, re.MULTILINE)
    return heading[1] if heading else lab.name


def _lab(one: Graded) -> LabPart:
    exercises = {exercise.label: exercise for exercise in one.lab.exercises}
    return LabPart(
        title=title(one.lab),
        points=one.points,
        max_points=sum(result.max_points for result in one.results),
        handed_in=_handed_in(one.submission),
        exercises=[_exercise(one, exercises[result.exercise], result) for result in one.results],
    )


def _handed_in(submission: Submission) -> str:
    time = f"{datetime.fromtimestamp(submission.time_s):%Y-%m-%d %H:%M}"
    late = f", {_duration(submission.late_s)} late" if submission.late_s else ""
    return f"Attempt {submission.attempt}, handed in {time}{late}"


def _duration(seconds: int) -> str:
    hours, minutes = divmod(-(-seconds // 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _exercise(one: Graded, exercise: Exercise, result: Result) -> ExercisePart:
    passed = result.status == "passed"
    mistake = mistakes.known(exercise, result.message)
    answer = (one.answers or {}).get(exercise.name)
    code = answer.text if answer and answer.attempted and not passed else None
    line = re.search(r"\(line (\d+): `", result.message)
    return ExercisePart(
        name=result.exercise,
        points=result.points,
        max_points=result.max_points,
        status=result.status,
        message=result.message.removesuffix(mistake).rstrip()[:SHORT_MESSAGE],
        mistake=mistake,
        lines=code.splitlines() if code else [],
        failed_line=int(line[1]) if code and line else None,
        hint="" if passed else hint(one.lab, exercise),
    )


def hint(lab: Lab, exercise: Exercise) -> str:
    """The text of the folded hint that follows an exercise, or ""."""
    after = lab.cells[lab.cells.index(exercise.hole) + 1 :]
    prose = next((cell.source for cell in after if cell.kind == "markdown"), "")
    fold = re.search(r"<summary>Hint.*?</summary>(.*?)</details>", prose, re.DOTALL)
    return re.sub(r"(?<!\n)\n(?!\n)", " ", fold[1].strip()) if fold else ""
