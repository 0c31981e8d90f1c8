"""Results on the screen and in files."""

import csv
import io
import json
import statistics
from collections import Counter
from dataclasses import asdict, dataclass

from rich import box
from rich.markup import escape
from rich.table import Table

from common.files import replace
from grading import mistakes

FIELDS = [
    "student",
    "lab",
    "exercise",
    "points",
    "max_points",
    "status",
    "message",
    "attempt",
    "late_s",
]
COLOURS = {"passed": "green", "not attempted": "dim", "partly passed": "yellow"}


@dataclass(frozen=True)
class Result:
    """What one exercise of one student got, and why. status: passed, partly passed, failed, not attempted, missing, error
    (the cell can't be read or executed), timeout, died."""

    exercise: str  # "1.1 row_major_strides"
    points: int
    max_points: int
    status: str
    message: str = ""


def rows(student, lab_name, results, attempt=1, late_s=None):
    """One dict an exercise, with the fields of results.json. late_s: seconds after the deadline, None where there is none."""
    return [
        {
            "student": student,
            "lab": lab_name,
            **asdict(result),
            "attempt": attempt,
            "late_s": late_s,
        }
        for result in results
    ]


def lab_table(lab_name, results):
    """A student's own lab: an exercise a line."""
    table = Table(
        title=f"Lab {lab_name}", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    table.add_column("exercise", no_wrap=True)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("what the check says")
    for result in results:
        colour = COLOURS.get(result.status, "red")
        message = (
            "" if result.status in ("passed", "not attempted") else f"  {escape(result.message)}"
        )
        table.add_row(
            result.exercise,
            f"{result.points}/{result.max_points}",
            f"[{colour}]{result.status}[/]{message}",
        )
    table.add_section()
    table.add_row(
        "all", f"{sum(r.points for r in results)}/{sum(r.max_points for r in results)}", ""
    )
    return table


def class_table(all_rows):
    """A class: an exercise a line, with how many passed and the mean of the points; the hardest of each lab is marked."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("lab", "exercise", "passed", "mean points", ""):
        table.add_column(
            heading,
            justify="right" if heading in ("passed", "mean points") else "left",
            no_wrap=True,
        )
    groups, shares = {}, {}
    for row in all_rows:
        groups.setdefault((row["lab"], row["exercise"]), []).append(row)
    for (lab_name, exercise), group in groups.items():
        got, most = sum(row["points"] for row in group), sum(row["max_points"] for row in group)
        shares.setdefault(lab_name, {})[exercise] = got / most if most else 1.0
    for (lab_name, exercise), group in groups.items():
        passed = sum(row["status"] == "passed" for row in group)
        mean = sum(row["points"] for row in group) / len(group)
        share = shares[lab_name][exercise]
        hardest = (
            "hardest"
            if share == min(shares[lab_name].values()) < max(shares[lab_name].values())
            else ""
        )
        numbers = f"{passed}/{len(group)}", f"{mean:.1f}/{group[0]['max_points']}"
        table.add_row(lab_name[:2], exercise, *numbers, hardest)
    return table


def distribution(all_rows):
    """How many students got how much of each lab's points, as bars, with the mean and the median."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("lab", "points", "students", ""):
        table.add_column(
            heading, justify="right" if heading == "students" else "left", no_wrap=True
        )
    totals = {}
    for row in all_rows:
        got, most = totals.setdefault(row["lab"], {}).get(row["student"], (0, 0))
        totals[row["lab"]][row["student"]] = got + row["points"], most + row["max_points"]
    for lab_name, students in totals.items():
        shares = [got / most if most else 0.0 for got, most in students.values()]
        counts = [
            sum(min(int(10 * share), 9) == tenth for share in shares) for tenth in range(9, -1, -1)
        ]
        mean, median = statistics.mean(shares), statistics.median(shares)
        for tenth, count in zip(range(9, -1, -1), counts, strict=True):
            name = (
                [lab_name[:2], f"mean {mean:.0%}", f"median {median:.0%}"][9 - tenth]
                if tenth > 6
                else ""
            )
            bar = "█" * -(-36 * count // max(counts))  # fits 80 columns
            table.add_row(
                name,
                f"{10 * tenth:3} to {10 * tenth + (9 if tenth < 9 else 10):3} %",
                str(count),
                bar,
            )
        table.add_section()
    return table


def mistakes_table(graded):
    """Known mistakes, the most frequent first. graded: [classroom.Graded]."""
    counts = Counter()
    for one in graded:
        for exercise, result in zip(one.lab.exercises, one.results, strict=True):
            if mistake := mistakes.known(exercise, result.message):
                counts[one.lab.name[:2], result.exercise, mistake] += 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("students", "lab", "exercise", "known mistake"):
        table.add_column(
            heading,
            justify="right" if heading == "students" else "left",
            no_wrap=heading != "known mistake",
        )
    for (*place, mistake), count in counts.most_common():
        table.add_row(str(count), *place, escape(mistake))
    return table


def to_look_at(graded):
    """Who needs a look, and why: [(student, the lab's number, reason)]."""
    found = []
    for one in graded:
        statuses = Counter(result.status for result in one.results)
        odd = [
            f"{statuses[status]} {status}"
            for status in ("died", "timeout", "error", "missing")
            if statuses[status]
        ]
        if one.answers is None:
            odd = [one.results[0].message]
        elif one.points == 0 and any(
            answer.attempted and answer.text for answer in one.answers.values()
        ):
            odd.append("attempted, and no point")
        if one.submission.late_s:
            odd.append(f"{one.submission.late_s / 3600:.1f} h late")
        if odd:
            found.append((one.submission.student, one.submission.lab[:2], ", ".join(odd)))
    return found


def look_table(found):
    """What to_look_at found, as a table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("student", "lab", "needs a look"):
        table.add_column(heading, no_wrap=heading != "needs a look")
    for row in found:
        table.add_row(*map(escape, row))
    return table


def write(all_rows, folder) -> None:
    """results.json and results.csv, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / "results.json", json.dumps(all_rows, indent=1, ensure_ascii=False) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    writer.writerows({key: plain(value) for key, value in row.items()} for row in all_rows)
    replace(folder / "results.csv", text.getvalue())


def plain(value):
    """Text that a spreadsheet does not take for a formula."""
    return (
        f"'{value}"
        if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
        else value
    )
