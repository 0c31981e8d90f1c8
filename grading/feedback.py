"""Pages to read: one per student with what went wrong and what helps, one per lab with prose."""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from common.files import replace
from grading import mistakes
from grading.report import Graded, Result, Row, Status, duration
from grading.source import notebook
from grading.source.labs import Exercise, Lab
from grading.submissions import Submission

HERE = Path(__file__).parent
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
HEADING = "### Exercise"
STROKES = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i"})
MAX_LINES, MAX_LINE = 300, 300  # lines of an answer on a page, characters of a line
MAX_PAGE = 1_000_000  # characters of a student's page; beyond it, no code is shown
MAX_WRITTEN = 4_000_000  # characters of the written answers on a lab's page together


@dataclass(frozen=True)
class ExercisePart:
    """What feedback.html shows of an exercise."""

    name: str
    points: float
    max_points: float
    status: Status
    message: str
    mistake: str  # the sentence of a known mistake, or ""
    lines: Sequence[str]  # the student's code, if it did not pass
    failed_line: int | None  # counted from 1
    hint: str

    @property
    def colour(self) -> str:
        """The class of its border: by the points, whoever gave them."""
        if self.points >= self.max_points:
            return "passed"
        if self.points > 0:
            return "partly-passed"
        return "not-attempted" if self.status == "not attempted" else "failed"


@dataclass(frozen=True)
class LabPart:
    """What feedback.html shows of a lab."""

    title: str
    points: float
    max_points: float
    handed_in: str
    exercises: Sequence[ExercisePart]
    others: Sequence[Row] = ()  # what is no exercise: written answers, lateness
    problem: str = ""  # why the notebook can't be read

    @property
    def unmarked(self) -> int:
        """How many written answers wait for points."""
        return sum(row["status"] == "not marked yet" for row in self.others)


@dataclass(frozen=True)
class WrittenAnswer:
    """What answers.html shows of a student's answer to a question."""

    student: str
    name: str
    text: str
    mark: str  # "1.5 of 2", "not marked yet", or "" where no points are given
    comment: str
    changed: bool  # since it was marked


@functools.cache
def template(name: str) -> jinja2.Template:
    """A page, to be rendered. What students wrote is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([HERE, HERE / "course"]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["inline_code"] = inline_code
    environment.filters["by_name"] = by_name
    return environment.get_template(name)


def inline_code(text: str) -> Markup:
    """The text with `words` between backticks as code. All else in it, and in them, is escaped."""
    shown = CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(shown)  # noqa: S704  (escaped above)


def by_name(names: Iterable[str]) -> list[str]:
    return sorted(names, key=alphabetical)


def alphabetical(name: str) -> str:
    """What names are sorted by: case and accents don't count, so that Åström is among the A."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    return "".join(c for c in letters if not unicodedata.combining(c)).translate(STROKES)


def write_students(
    graded: Iterable[Graded],
    folder: Path,
    rows: Iterable[Row] = (),
    name: Callable[[str], str] = str,
    zone: tzinfo | None = None,
) -> None:
    """One page per student. A page needs no server and no other file.

    It shows exercise, points and message, and for a failed exercise also the code, the known
    mistake that it looks like, and the hint.

    rows: the results with what a person changed or added. name: of a student's folder. zone: of
    the times on the page; None: this machine's.
    """
    given: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        given.setdefault((row["student"], row["lab"]), []).append(row)
    folder.mkdir(parents=True, exist_ok=True)
    by_student: dict[str, list[Graded]] = {}
    for one in sorted(graded, key=lambda one: one.order):
        by_student.setdefault(one.submission.student, []).append(one)
    for student, labs in by_student.items():
        parts = [_lab(one, given.get((student, one.lab.name), one.rows), zone) for one in labs]
        replace(folder / page_name(student), _page(name(student), parts))


def _page(student: str, parts: Sequence[LabPart]) -> str:
    """A student's page; without their code if it would be too long."""
    for has_code in (True, False):
        page = template("feedback.html").render(
            student=student, labs=parts, has_code=has_code, graded=f"{datetime.now():%Y-%m-%d}"
        )
        if len(page) <= MAX_PAGE:
            break
    return page


def page_name(student: str) -> str:
    """The name of a student's page."""
    return f"{student}.html"


def write_answers(
    graded: Iterable[Graded],
    folder: Path,
    rows: Iterable[Row] = (),
    name: Callable[[str], str] = str,
) -> None:
    """One page per lab that asks for prose: each question with what each student wrote.

    rows, name: as for write_students; a page shows the points and comments that are given.
    """
    given = {(row["lab"], row["student"], row["exercise"]): row for row in rows}
    by_lab: dict[str, list[Graded]] = {}
    for one in sorted(graded, key=lambda one: one.order):
        by_lab.setdefault(one.lab.name, []).append(one)
    for lab_name, group in by_lab.items():
        lab = group[0].lab
        questions = [
            (question, [_answer(one, number, question, given, name) for one in group])
            for number, question in enumerate(notebook.questions(lab), 1)
        ]
        longest = MAX_WRITTEN // max(1, len(questions) * len(group))
        if questions:
            folder.mkdir(parents=True, exist_ok=True)
            page = template("answers.html").render(
                title=title(lab), questions=questions, longest=longest, table=f"{lab_name}.csv"
            )
            replace(folder / f"{lab_name}.html", page)


def _answer(
    one: Graded,
    number: int,
    question: str,
    given: Mapping[tuple[str, str, str], Row],
    name: Callable[[str], str],
) -> WrittenAnswer:
    student = one.submission.student
    row = given.get((one.lab.name, student, f"written {number}"))
    mark = ""
    if row and row["status"] in ("marked", "changed since it was marked"):
        mark = f"{row['points']:g} of {row['max_points']:g}"
    return WrittenAnswer(
        student=student,
        name=name(student),
        text=dict(one.written).get(question, ""),
        mark=mark or (row["status"] if row else ""),
        comment=row["message"] if row else "",
        changed=bool(row and row["status"] == "changed since it was marked"),
    )


def title(lab: Lab) -> str:
    """The lab's title, for example "01 · Strides"."""
    heading = re.search(r"^# (.+)$", lab.cells[0].source, re.MULTILINE)
    return heading[1] if heading else lab.name


def _lab(one: Graded, rows: Sequence[Row], zone: tzinfo | None) -> LabPart:
    exercises = {exercise.label: exercise for exercise in one.lab.exercises}
    by_label = {row["exercise"]: row for row in rows}
    results = [_given(result, by_label[result.exercise]) for result in one.results]
    parts = [_exercise(one, exercises[result.exercise], result) for result in results]
    problem = one.results[0].to_student if one.answers is None else ""
    if problem:  # which is said once
        parts = [_without(part, problem) for part in parts]
    return LabPart(
        title=title(one.lab),
        points=round(sum(row["points"] for row in rows), 2),
        max_points=sum(row["max_points"] for row in rows),
        handed_in=_handed_in(one.submission, zone),
        exercises=parts,
        others=[row for row in rows if row["exercise"] not in exercises],
        problem=problem,
    )


def _without(part: ExercisePart, problem: str) -> ExercisePart:
    """The part without this message, and without a hint: nobody knows what was tried."""
    said = "" if part.message == problem else part.message
    return dataclasses.replace(part, message=said, hint="")


def _given(result: Result, row: Row) -> Result:
    """The result, or what a person gave in its place."""
    if row["status"] != "changed by hand":
        return result
    points, status, message = row["points"], row["status"], row["message"]
    told = row["told"] or None
    return dataclasses.replace(result, points=points, status=status, message=message, told=told)


def _handed_in(submission: Submission, zone: tzinfo | None = None) -> str:
    time = f"{datetime.fromtimestamp(submission.time_s, zone):%Y-%m-%d %H:%M}"
    late = f", {duration(submission.late_s)} late" if submission.late_s else ""
    return f"Attempt {submission.attempt}, handed in {time}{late}"


def _exercise(one: Graded, exercise: Exercise, result: Result) -> ExercisePart:
    passed = result.status == "passed" or result.points == result.max_points
    message = result.to_student
    mistake = mistakes.known(exercise, message)
    answer = (one.answers or {}).get(exercise.name)
    code = answer.text if answer and answer.attempted and not passed else None
    line = re.search(r"\(line (\d+): `", message)
    return ExercisePart(
        name=result.exercise,
        points=result.points,
        max_points=result.max_points,
        status=result.status,
        message=message.removeprefix(mistake).removesuffix(mistake).lstrip("\n").rstrip(),
        mistake=mistake,
        lines=shown_lines(code) if code else [],
        failed_line=int(line[1]) if code and line else None,
        hint="" if passed else hint(one.lab, exercise),
    )


def shown_lines(code: str) -> list[str]:
    """The lines of an answer that a page shows."""
    lines = code.splitlines()
    more = len(lines) - MAX_LINES
    cut = [line[:MAX_LINE] + (" [...]" if len(line) > MAX_LINE else "") for line in lines]
    return [*cut[:MAX_LINES], *([f"[... {more:,} more lines ...]"] if more > 0 else [])]


def hint(lab: Lab, exercise: Exercise) -> str:
    """The text of the first folded hint in an exercise's heading, or behind its checks."""
    place = lab.cells.index(exercise.hole)
    after = next((cell.source for cell in lab.cells[place:] if cell.kind == "markdown"), "")
    prose = lab.cells[place - 1].source.rpartition(HEADING)[2] + after.partition(HEADING)[0]
    fold = re.search(r"<summary>Hint.*?</summary>(.*?)</details>", prose, re.DOTALL)
    return re.sub(r"(?<!\n)\n(?!\n)", " ", fold[1].strip()) if fold else ""
