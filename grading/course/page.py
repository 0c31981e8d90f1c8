"""The class page: results/index.html, one file that needs no server."""

import io
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path

from markupsafe import Markup

from common.files import replace
from grading import feedback
from grading.course import look, marks
from grading.course.changes import Change
from grading.course.settings import Settings
from grading.course.statistics import ExerciseStatistics, of_lab
from grading.report import Graded, Row
from grading.source import notebook

SHOWN = 100  # changes, looks and similar answers; the rest is counted


@dataclass(frozen=True)
class LabPart:
    """What the page shows of a lab."""

    name: str
    title: str
    handed_in: int
    missing: int
    late: int
    mean: str
    median: str
    histogram: Markup
    exercises: Sequence[ExerciseStatistics]
    max_points: float
    has_answers: bool  # whether there is a page of written answers
    unmarked: int  # written answers that count as 0 so far


@dataclass(frozen=True)
class StudentLine:
    """What the page shows of a student. labs: the points by lab, "" where there are none."""

    student: str
    name: str
    section: str
    page: str
    labs: Sequence[str]
    total: str
    note: str


@dataclass(frozen=True)
class Alike:
    """Students whose answers to a lab are alike."""

    lab: str
    students: tuple[str, ...]
    share: float
    equal: bool = False  # but for names, comments and a few lines
    identical: bool = False  # letter by letter
    has_lines: bool = True  # whether similar.html shows them side by side


def write(
    graded: Sequence[Graded],
    rows: Sequence[Row],
    settings: Settings,
    folder: Path,
    changes: Sequence[Change] = (),
    alike: Sequence[Alike] = (),
) -> None:
    """Write the page. graded: the submissions that count. rows: all of the class."""
    by_lab: dict[str, list[Graded]] = {}
    for one in sorted(graded, key=lambda one: one.lab.name):
        by_lab.setdefault(one.lab.name, []).append(one)
    all_marks = marks.of(rows)
    unmarked = Counter(row["lab"] for row in rows if row["status"] == "not marked yet")
    here = {one.submission.student for one in graded}
    looks = look.at(graded, settings.strangers(here))
    looks = sorted(looks, key=lambda one: (one.only_late, one.lab, one.student))
    page = feedback.template("class.html").render(
        time=f"{datetime.now():%Y-%m-%d %H:%M}",
        labs=_labs(by_lab, all_marks, unmarked),
        students=_students(all_marks, settings, list(by_lab)),
        looks=looks[:SHOWN],
        more_looks=len(looks) - SHOWN,
        changes=changes[:SHOWN],
        more_changes=len(changes) - SHOWN,
        alike=alike[:SHOWN],
        more_alike=len(alike) - SHOWN,
        here=here,
        link=feedback.page_name,
        person=settings.person,
        sections=any(person.section for person in settings.roster.people.values()),
    )
    replace(folder / "index.html", page)


def _labs(
    by_lab: Mapping[str, Sequence[Graded]],
    all_marks: Sequence[marks.Mark],
    unmarked: Mapping[str, int],
) -> list[LabPart]:
    """The labs. A process of its own draws: matplotlib's memory ends with it."""
    marks_of = {name: [mark for mark in all_marks if mark.lab == name] for name in by_lab}
    shares = [[m.share for m in group if m.handed_in] for group in marks_of.values()]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        drawn = list(pool.map(histogram, shares))
    return [
        _lab(name, group, marks_of[name], of_these, picture, unmarked.get(name, 0))
        for (name, group), of_these, picture in zip(by_lab.items(), shares, drawn, strict=True)
    ]


def _lab(
    name: str,
    group: Sequence[Graded],
    of_this: Sequence[marks.Mark],
    shares: Sequence[float],
    picture: Markup,
    unmarked: int,
) -> LabPart:
    return LabPart(
        name=name,
        title=feedback.title(group[0].lab),
        handed_in=len(shares),
        missing=len(of_this) - len(shares),
        late=sum(bool(mark.late_s) for mark in of_this),
        mean=f"{100 * statistics.mean(shares):.0f} %",
        median=f"{100 * statistics.median(shares):.0f} %",
        histogram=picture,
        exercises=of_lab(group),
        max_points=max(mark.max_points for mark in of_this),
        has_answers=bool(notebook.questions(group[0].lab)),
        unmarked=unmarked,
    )


def _students(
    all_marks: Iterable[marks.Mark], settings: Settings, names: Sequence[str]
) -> list[StudentLine]:
    by_student: dict[str, dict[str, marks.Mark]] = {}
    for mark in all_marks:
        by_student.setdefault(mark.student, {})[mark.lab] = mark
    for student in settings.roster.people:
        by_student.setdefault(student, {})
    roster = settings.roster
    order = sorted(
        by_student, key=lambda s: (roster.section(s), feedback.alphabetical(roster.name(s)), s)
    )
    return [_student(student, by_student[student], settings, names) for student in order]


def _student(
    student: str, theirs: Mapping[str, marks.Mark], settings: Settings, names: Sequence[str]
) -> StudentLine:
    here = [theirs.get(name) for name in names]
    return StudentLine(
        student,
        settings.person(student),
        settings.roster.section(student),
        feedback.page_name(student) if any(m and m.handed_in for m in here) else "",
        [f"{mark.points:g}" if mark and mark.handed_in else "" for mark in here],
        f"{sum(mark.points for mark in theirs.values()):g}",
        "; ".join(f"{m.lab[:2]}: {m.note}" for m in theirs.values() if m.note and m.handed_in),
    )


def histogram(shares: Sequence[float]) -> Markup:
    """How many students got which tenth of the points, as SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "class", "font.size": 9}):
        figure = Figure(figsize=(3.4, 1.35), layout="constrained")
        axes = figure.add_subplot()
        counts = [0] * 10
        for share in shares:
            counts[min(9, max(0, int(10 * share + 1e-9)))] += 1
        bars = axes.bar([10 * i + 5 for i in range(10)], counts, width=9, color="#2a7f62")
        axes.bar_label(bars, labels=[str(count or "") for count in counts], color="#5b6570")
        axes.set(xlim=(0, 100), xticks=range(0, 101, 20), yticks=[], xlabel="% of the points")
        axes.margins(y=0.25)
        axes.spines[["top", "right", "left"]].set_visible(False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    return Markup(svg[svg.index("<svg") :])  # noqa: S704  (matplotlib's, of numbers alone)
