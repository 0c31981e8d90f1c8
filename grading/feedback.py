"""Pages to read: one a student, with what went wrong and what helps; one a lab, with the answers in prose."""

import functools
import re
from datetime import datetime
from pathlib import Path

import jinja2

from common.files import replace
from grading import mistakes
from grading.source import holes

SHORT_MESSAGE = 4000


@functools.cache
def template(name):
    """A page of this folder, to be rendered."""
    # What students wrote is escaped; the pages allow no scripts besides.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def write_students(graded, folder) -> None:
    """One page a student: exercise, points, message, their code where it failed, the mistake it looks like, the hint.

    graded: [classroom.Graded]. The pages need no server and nothing but themselves.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for student in sorted({one.submission.student for one in graded}):
        theirs = sorted(
            (one for one in graded if one.submission.student == student),
            key=lambda one: one.lab.name,
        )
        page = template("feedback.html").render(student=student, labs=[_lab(one) for one in theirs])
        replace(folder / f"{student}.html", page)


def write_answers(graded, folder) -> None:
    """One page a lab that asks for prose: each question with what each student wrote."""
    for lab in {one.lab.name: one.lab for one in graded}.values():
        written = {one.submission.student: one.written for one in graded if one.lab is lab}
        questions = [
            holes.stub(cell.source).replace(holes.BLANK, "").strip()
            for cell in lab.cells
            if "answer" in cell.tags
        ]
        if not questions:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        by_question = [
            (
                question,
                [
                    (student, dict(texts).get(question, ""))
                    for student, texts in sorted(written.items())
                ],
            )
            for question in questions
        ]
        replace(
            folder / f"{lab.name}.html",
            template("answers.html").render(title=title(lab), questions=by_question),
        )


def title(lab):
    """The lab's title, "01 · Strides"."""
    found = re.search(r"^# (.+)$", lab.cells[0].source, re.MULTILINE)
    return found[1] if found else lab.name


def _lab(one):
    exercises = {f"{e.number} {e.name}": e for e in one.lab.exercises}
    return {
        "title": title(one.lab),
        "points": sum(result.points for result in one.results),
        "max_points": sum(result.max_points for result in one.results),
        "handed_in": _handed_in(one.submission),
        "exercises": [_exercise(one, exercises[result.exercise], result) for result in one.results],
    }


def _handed_in(submission):
    when = f"Attempt {submission.attempt}, handed in {datetime.fromtimestamp(submission.time_s):%Y-%m-%d %H:%M}"
    return when + (f", {_duration(submission.late_s)} late" if submission.late_s else "")


def _duration(seconds) -> str:
    hours, minutes = divmod(-(-seconds // 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _exercise(one, exercise, result):
    passed = result.status == "passed"
    mistake = mistakes.known(exercise, result.message)
    answer = (one.answers or {}).get(exercise.name)
    code = answer.text if answer and answer.attempted and not passed else None
    line = re.search(r"\(line (\d+): `", result.message)
    return {
        "name": result.exercise,
        "points": result.points,
        "max_points": result.max_points,
        "status": result.status,
        "message": result.message.removesuffix(mistake).rstrip()[:SHORT_MESSAGE],
        "mistake": mistake,
        "lines": code.splitlines() if code else [],
        "failed_line": int(line[1]) if code and line else None,
        "hint": "" if passed else hint(one.lab, exercise),
    }


def hint(lab, exercise):
    """The text of the folded hint that follows an exercise, "" if there is none."""
    for cell in lab.cells[lab.cells.index(exercise.hole) + 1 :]:
        if cell.kind == "markdown":
            found = re.search(r"<summary>Hint.*?</summary>(.*?)</details>", cell.source, re.DOTALL)
            return re.sub(r"(?<!\n)\n(?!\n)", " ", found[1].strip()) if found else ""
    return ""
