"""Results on the screen and in files."""

import contextlib
import csv
import io
import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

from rich import box
from rich.markup import escape
from rich.table import Table

from common.files import replace
from grading import mistakes
from grading.errors import InputError
from grading.source.holes import Answer
from grading.source.labs import Lab
from grading.submissions import Submission, escaped

Status = Literal[
    "passed",
    "visible checks passed",  # where the held-out ones are not there: a student's own copy
    "partly passed",
    "failed",
    "not attempted",
    "missing",  # no cell of the notebook defines the name
    "error",  # the cell can't be read or executed
    "timeout",
    "died",  # the process that executed the cell
    "changed by hand",  # in overrides.csv
    "marked",  # a written answer
    "not marked yet",
    "changed since it was marked",
    "late",  # points taken off
    "not handed in",
]
COLOURS = {
    "passed": "green",
    "visible checks passed": "green",
    "not attempted": "dim",
    "partly passed": "yellow",
}
OTHER_CASES = "Your instructor's grader draws other random cases and may run held-out checks, too."


@dataclass(frozen=True)
class CheckResult:
    """What a student got for one check of an exercise."""

    points: int
    max_points: int
    status: Status
    held_out: bool = False


# Characters: results, pages and tables hold each message again.
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r]")
FORMULA_INSIDE = re.compile(r"([;\t\r\n][ \t]*)([=@＝＠]|[+\-＋－](?![\d.\s]))")
# A sign that begins a part; numbers stay, and so does an item of a list, in a line of its own.
SIGN_INSIDE = re.compile(r"([;\t][ \t]*)([+\-＋－])(?![\d.]+[ \t]*(?:[;\t\r\n]|\Z))")
MAX_MESSAGE, HEAD, TAIL = 4000, 3500, 400
STUDENT_WIDTH = 24
MOST_NAMED = 3  # exercises that a reason to look at a submission names
MOST_ROWS, MOST_REASON = 200, 400  # of a table of the summary; characters of a reason in it


def cut(message: str) -> str:
    """The message with its middle left out, if it is too long; without control characters."""
    spaces = "\n\t\u00a0\u202f"
    if len(message) <= MAX_MESSAGE:
        message = escaped(message, keep=spaces)
    if len(message) <= MAX_MESSAGE:
        return message
    head = escaped(message[:HEAD], keep=spaces)[:HEAD]
    tail = escaped(message[-TAIL:], keep=spaces)[-TAIL:]
    return f"{head} [... {len(message) - MAX_MESSAGE:,} characters left out ...] {tail}"


@dataclass(frozen=True)
class Result:
    """What a student got for one exercise, and why."""

    exercise: str  # "1.1 row_major_strides"
    points: float
    max_points: int
    status: Status
    message: str = ""
    checks: tuple[CheckResult, ...] = ()
    seconds: float = field(default=0.0, compare=False)  # that the answer took in its checks
    restarts: int = 0  # how often its process ended
    told: str | None = None  # what the student reads; None: the message

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", cut(self.message))

    @property
    def to_student(self) -> str:
        """What the student may read: the message may say what a secret case was."""
        return self.message if self.told is None else self.told


class Row(TypedDict):
    """A Result with its student: a line of results.csv, and an object of results.json."""

    student: str
    lab: str
    exercise: str
    points: float
    max_points: float
    status: Status
    message: str
    attempt: int
    late_s: int | None  # seconds after the deadline; None without a deadline
    told: str  # what the student reads in place of the message; "": the message itself
    grader_gave: float | None  # the grader's points, where a person gave others


FIELDS = list(Row.__annotations__)


@dataclass(frozen=True)
class Graded:
    """A submission with its results."""

    submission: Submission
    lab: Lab
    results: list[Result]  # one per exercise
    answers: Mapping[str, Answer] | None = None  # None if the notebook could not be read
    written: Sequence[tuple[str, str]] = ()  # (question, text)
    kept: bool = False  # whether an earlier run graded it

    @property
    def points(self) -> float:
        return sum(result.points for result in self.results)

    @property
    def rows(self) -> list[Row]:
        """The results as rows of results.json."""
        one = self.submission
        return rows(one.student, one.lab, self.results, one.attempt, one.late_s)

    @property
    def order(self) -> tuple[str, str, int]:
        return self.submission.student, self.submission.lab, self.submission.attempt


def rows(
    student: str,
    lab_name: str,
    results: Iterable[Result],
    attempt: int = 1,
    late_s: int | None = None,
) -> list[Row]:
    """One Row per exercise."""
    return [
        Row(
            student=student,
            lab=lab_name,
            exercise=result.exercise,
            points=result.points,
            max_points=result.max_points,
            status=result.status,
            message=result.message,
            attempt=attempt,
            late_s=late_s,
            told="" if result.to_student == result.message else result.to_student,
            grader_gave=None,
        )
        for result in results
    ]


def lab_table(lab_name: str, results: Sequence[Result]) -> Table:
    """A student's own lab, one line per exercise."""
    table = Table(
        title=f"Lab {lab_name}", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    table.add_column("exercise", no_wrap=True)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("what the check says")
    for result in results:
        colour = COLOURS.get(result.status, "red")
        silent = result.status == "not attempted"
        message = "" if silent else f"  {escape(result.message)}"
        points = f"{result.points}/{result.max_points}"
        table.add_row(result.exercise, points, f"[{colour}]{result.status}[/]{message}".rstrip())
    table.add_section()
    points, max_points = (sum(r.points for r in results), sum(r.max_points for r in results))
    table.add_row("all", f"{points}/{max_points}", "")
    table.caption, table.caption_justify = OTHER_CASES, "left"
    return table


def class_table(all_rows: Iterable[Row]) -> Table:
    """A class, one line per exercise: how many passed, mean points, the hardest of each lab."""
    table = _table(
        ["lab", "exercise", "passed", "mean points", ""], right=["passed", "mean points"]
    )
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in all_rows:
        groups.setdefault((row["lab"], row["exercise"]), []).append(row)
    shares: dict[str, dict[str, float]] = {}
    for (lab_name, exercise), group in groups.items():
        shares.setdefault(lab_name, {})[exercise] = _share(group)
    for (lab_name, exercise), group in groups.items():
        passed = sum(row["status"] == "passed" for row in group)
        mean = sum(row["points"] for row in group) / len(group)
        of_lab = shares[lab_name]
        is_hardest = of_lab[exercise] == min(of_lab.values()) < max(of_lab.values())
        table.add_row(
            lab_name[:2],
            exercise,
            f"{passed}/{len(group)}",
            f"{mean:.1f}/{group[0]['max_points']}",
            "hardest" if is_hardest else "",
        )
    return table


def _share(group: Sequence[Row]) -> float:
    """The share of the possible points that these rows have."""
    most = sum(row["max_points"] for row in group)
    return sum(row["points"] for row in group) / most if most else 1.0


def distribution(all_rows: Iterable[Row]) -> Table:
    """How many students got which share of each lab's points, as bars, with mean and median."""
    table = _table(["lab", "points", "students", ""], right=["students"])
    totals: dict[str, dict[str, tuple[float, float]]] = {}
    for row in all_rows:
        points, most = totals.setdefault(row["lab"], {}).get(row["student"], (0, 0))
        totals[row["lab"]][row["student"]] = points + row["points"], most + row["max_points"]
    for lab_name, students in totals.items():
        shares = [points / most if most else 0.0 for points, most in students.values()]
        mean, median = statistics.mean(shares), statistics.median(shares)
        headings = [lab_name[:2], f"mean {mean:.0%}", f"median {median:.0%}", *[""] * 7]
        counts = Counter(min(int(10 * share), 9) for share in shares)
        for heading, tenth in zip(headings, range(9, -1, -1), strict=True):
            interval = f"{10 * tenth:3} to {10 * tenth + (9 if tenth < 9 else 10):3} %"
            bar = "█" * -(-36 * counts[tenth] // max(counts.values()))  # fits 80 columns
            table.add_row(heading, interval, str(counts[tenth]), bar)
        table.add_section()
    return table


def mistakes_table(graded: Iterable[Graded]) -> Table:
    """How many students made which known mistake, the most frequent first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in graded:
        for exercise, result in zip(one.lab.exercises, one.results, strict=True):
            if mistake := mistakes.known(exercise, result.message):
                counts[one.lab.name[:2], result.exercise, mistake] += 1
    table = _table(
        ["students", "lab", "exercise", "known mistake"], right=["students"], wrap="known mistake"
    )
    for (lab_name, exercise, mistake), count in counts.most_common(MOST_ROWS):
        table.add_row(str(count), lab_name, exercise, escape(mistake[:MOST_REASON]))
    if (more := len(counts) - MOST_ROWS) > 0:
        table.add_row("", "", "", f"{more:,} more")
    return table


def duration(seconds: int) -> str:
    """How long this is, for people: "34 h 5 min", "5 min"."""
    hours, minutes = divmod(-(-seconds // 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def to_look_at(graded: Iterable[Graded]) -> list[tuple[str, str, str]]:
    """Which submissions need a look, and why: [(student, the lab's number, reason)]."""
    looks = []
    for one in graded:
        reasons = _ended_badly(one.results)
        if one.answers is None:
            reasons = [one.results[0].message]
        elif one.points == 0 and any(a.attempted and a.text for a in one.answers.values()):
            reasons.append("attempted, but no points")
        elif all(result.status == "not attempted" for result in one.results):
            reasons.append("nothing was attempted: is it the right file?")
        if one.submission.claims:
            reasons.append(f"its name or its file says {one.submission.claims}: is that so?")
        if one.submission.rivals:
            reasons.append(f"there is {one.submission.rivals}, too: which one counts?")
        if one.submission.late_s:
            reasons.append(f"{duration(one.submission.late_s)} late")
        if reasons:
            looks.append((one.submission.student, one.submission.lab[:2], "; ".join(reasons)))
    return looks


def _ended_badly(results: Iterable[Result]) -> list[str]:
    """ "timeout: 2.1 sliced" and the like, with the first exercises by name."""
    reasons = []
    notable: tuple[Status, ...] = ("died", "timeout", "error", "missing")
    results = list(results)
    for status in notable:
        of = [result.exercise for result in results if result.status == status]
        if of:
            more = f" and {len(of) - MOST_NAMED} more" if len(of) > MOST_NAMED else ""
            reasons.append(f"{status}: {', '.join(of[:MOST_NAMED])}{more}")
    return reasons


def look_table(looks: Iterable[tuple[str, str, str]]) -> Table:
    """Which submissions need a look, as a table: (student, the lab's number, reason)."""
    table = _table(["student", "lab", "needs a look"], wrap="needs a look")
    looks = list(looks)
    for student, lab_name, reason in looks[:MOST_ROWS]:
        table.add_row(escape(student), lab_name, escape(reason[:MOST_REASON]))
    if (more := len(looks) - MOST_ROWS) > 0:
        table.add_row("", "", f"{more:,} more")
    return table


def _table(headings: Iterable[str], right: Iterable[str] = (), wrap: str | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        justify = "right" if heading in right else "left"
        most = STUDENT_WIDTH if heading == "student" else None  # the reasons need room
        table.add_column(heading, justify=justify, no_wrap=heading != wrap, max_width=most)
    return table


def write(all_rows: Sequence[Row], folder: Path) -> None:
    """results.json and results.csv, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / "results.json", json.dumps(all_rows, indent=1, ensure_ascii=False) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    writer.writerows(_plain_row(row) for row in all_rows)
    replace(folder / "results.csv", text.getvalue())


def write_checks(graded: Iterable[Graded], folder: Path) -> None:
    """checks.csv: a line per check. The checks of an exercise have its number and their place."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        ["student", "lab", "exercise", "check", "kind", "points", "max_points", "status"]
    )
    for one in graded:
        for result in one.results:
            for place, check in enumerate(result.checks, 1):
                who = plain(one.submission.student), one.submission.lab, result.exercise, place
                kind = "held-out" if check.held_out else "visible"
                writer.writerow([*who, kind, check.points, check.max_points, check.status])
    replace(folder / "checks.csv", text.getvalue())


def read(folder: Path) -> list[Row]:
    """The rows in results.json of a folder of results; InputError if they can't be read."""
    path = folder / "results.json"
    with contextlib.suppress(ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, list) and all(
            isinstance(r, dict) and r.keys() >= {*FIELDS} for r in found
        ):
            return found
    raise InputError(f"{path} is not as the grader wrote it: grade again")


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: plain(value) for key, value in row.items()}


def plain(value: Any) -> Any:
    """The value as a table has it: a whole number without a point, and text that a spreadsheet
    does not take for a formula.

    Where a semicolon separates cells, as in many countries, a part of the text is a cell as well.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str):
        return value
    text = SIGN_INSIDE.sub(r"\1'\2", FORMULA_INSIDE.sub(r"\1'\2", value))
    return f"'{text}" if FORMULA.match(text) else text
