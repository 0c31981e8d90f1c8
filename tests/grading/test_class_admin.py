"""A course: deadlines, late policy, roster, overrides, written answers, changes, the class page."""

import argparse
import csv
import dataclasses
import json
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grading import __main__ as command
from grading import classroom, feedback, grade, report, similar, submissions
from grading.course import changes, look, marks, overrides, page, settings, statistics, written
from grading.errors import InputError
from grading.lms import canvas_submissions
from grading.report import CheckResult, Graded, Result
from grading.source import labs, notebook
from grading.source.holes import Answer
from grading.store import Store
from grading.submissions import Submission
from tests.mini_lab import mini_lab

LAB = mini_lab()
ADAS = ("ada", "written 1")
ROSTER = "student,name,section\nada,Ada,A\nbob,Bob,A\nzoe,Zoe,A\neve,Eve,A\n"
FIRST = labs.read(labs.names()[0])
DUE = datetime(2026, 11, 20, 17, tzinfo=UTC).timestamp()
TOML = """\
timezone = "UTC"
roster = "roster.csv"

[deadlines]
01 = 2026-11-20T17:00:00

[extensions.ada]
01 = 2026-11-22T17:00:00

[late]
grace_minutes = 15
percent_per_day = 10
at_most_percent = 50

[written]
01 = 2
"""


def course(tmp_path, text=TOML, **files):
    (tmp_path / "roster.csv").write_text("student,name,section\nada,Ada Lovelace,A\nbob,Bob,B\n")
    for name, content in files.items():
        (tmp_path / f"{name}.csv").write_text(content)
    path = tmp_path / "course.toml"
    path.write_text(text)
    return settings.read(path)


def graded(
    student,
    points=1,
    late_s=0,
    answers=None,
    status: report.Status = "failed",
    text="because",
    **more,
):
    """The first lab of a student who has `points` in each exercise."""
    results = [
        Result(
            e.label,
            min(points, e.points),
            e.points,
            "passed" if points >= e.points else status,
            "" if points >= e.points else "wrong",
            **more,
        )
        for e in FIRST.exercises
    ]
    one = Submission(student, FIRST.name, Path("x.ipynb"), DUE + late_s, 1, late_s)
    return Graded(one, FIRST, results, answers or {}, [("Why?", text)])


@pytest.mark.parametrize(
    "late_s, percent",
    [(0, 0), (900, 0), (901, 10), (86_400, 10), (86_401, 20), (10 * 86_400, 50)],
)
def test_the_late_policy_has_grace_and_a_limit(tmp_path, late_s, percent):
    assert course(tmp_path).late.percent(late_s) == percent


def test_an_extension_replaces_the_deadline_of_one_student(tmp_path):
    of = course(tmp_path)
    for student, late_s in (("ada", 0), ("bob", 3600)):
        one = Submission(student, FIRST.name, Path("x"), DUE + 3600)
        due_s = of.due_s(student, FIRST.name)
        assert submissions.with_deadline(one, due_s).late_s == late_s
    assert of.due_s("bob", labs.names()[1]) is None
    assert submissions.with_deadline(one, None).late_s is None


@pytest.mark.parametrize(
    "text, says",
    [
        ("[deadlins]\n01 = 2026-11-20", "deadlins is unknown: did you mean deadlines?"),
        ("[late]\npercent = 3", "[late] percent is unknown: did you mean percent_per_day?"),
        ("[deadlines]\n77 = 2026-11-20", "there is no lab '77'"),
        ('[deadlines]\n01 = "2026-11-20"', "is no time: write it without quotes"),
        ("[deadlines]\n01 = 2026-13-20", "course.toml"),
        ("deadlines = 3", "deadlines is a table"),
        ('timezone = "Mars/Olympus"', 'give a name like "Europe/Berlin"'),
        ("[late]\npercent_per_day = -1", "a number from 0 to 100 is allowed"),
        ("[late]\npercent_per_day = 200", "percent_per_day = 200: a number from 0 to 100"),
        ("[late]\nat_most_percent = 150", "at_most_percent = 150: a number from 0 to 100"),
        ("[written]\n02 = 2", "[written] 02: lab 02_arithmetic_intensity asks for no written"),
        ('roster = "roster.csv"\n[extensions.adda]\n01 = 2026-11-22', "did you mean ada?"),
        ('roster = "absent.csv"', "absent.csv does not exist: make it"),
        ('overrides = "o.csv"', "no column exercise"),
        ("[deadlines]\n01 = 2026-11-20\n1 = 2026-11-21", "01 and 1 are both lab"),
        ("[deadlines]\n01 = 0001-01-01T00:00:00", "is no time of this course"),
        ("[deadlines]\n01 = 18:00:00", "deadlines.01 = 18:00:00 has no day: write it so"),
        ("[deadlines]\n01 = 2026-13-20T18:00:00", "there is no such day or time"),
        ("[deadlines]\n01 = 2026-02-30", "01 = 2026-02-30: there is no such day or time"),
        ("[deadlines]\n01 = 2026-11-20T24:00:00", "there is no such day or time"),
        ("[late]\ngrace_minutes = nan", "a number of 0 or more"),
        ("[late]\npercent_per_day = inf", "a number from 0 to 100"),
        ("[late]\ngrace_minutes = inf", "a number of 0 or more"),
        ("[written]\n01 = 1\nstrides = 2", "01 and strides are both lab"),
        ("roster = 3", 'give the name of a file, "roster.csv"'),
        ('roster = ""', 'give the name of a file, "roster.csv"'),
        ('timezone = "Europe"', "timezone = 'Europe' is unknown"),
        (f'timezone = "{"x" * 300}"', "is unknown: give a name like"),
        (f"[late]\ngrace_minutes = {'9' * 5000}", "a number in it has too many digits"),
        (
            "[deadlines]\n01 = 2026-11-20\n[extensions.ada]\n01 = 2025-11-25",
            "ends before the deadline of all",
        ),
        ("[extensions]\nada = 2026-11-25", "write [extensions.ada] above its lines"),
        ("[extensions.a@uni.edu]\n01 = 2026-11-25", 'needs quotes: [extensions."a@uni.edu"]'),
        ("[extensions.Ada L]\n01 = 2026-11-25", 'needs quotes: [extensions."Ada L"]'),
        ("[extensions.a.b]\n01 = 2026-11-25", 'with a dot needs quotes: [extensions."a.b"]'),
        ("[extensions]\na@b.de = 2026-11-25", 'write [extensions."a@b.de"] above the times'),
        ("[deadlines\n01 = 2026-11-20", "stands between [ and ]: [deadlines]"),
        ("[deadlines]\n01 = 2026-11-20 18:00", "line 2, 01 = 2026-11-20 18:00: a time has"),
        ("[deadlines]\n01 = 20.11.2026", "has seconds: 2026-11-20T18:00:00"),
        ("[deadlines]\n01: 2026-11-20", "write NAME = VALUE, with = between them"),
        ("[deadlines]\n01 = 2026-11-20, 02 = 2026-11-21", "in a line of its own"),
        ("deadlines = { 01 = 2026-11-20 02 = 2026-11-21 }", "between two values stands a comma"),
        ("[deadlines]\n01 = 2026-11-20\n01 = 2026-11-21", "line 3, 01 = 2026-11-21: this is there"),
        ("[late]\ngrace_minutes = 1\n[late]", "[late] is there twice: put its lines together"),
        ("01 = 2026-11-20", "stands in no table: write [deadlines] above it"),
        ("roster = roster.csv", 'a text needs quotation marks: roster = "roster.csv"'),
        ("roster = “roster.csv”", 'use plain quotation marks: roster = "roster.csv"'),
        ("roster = 'roster.csv", "line 1, roster = 'roster.csv: a quotation mark is missing"),
        (r'roster = "C:\Users\r.csv"', "write / in place of"),
        (
            "[late]\npercent_per_day = 7,5",
            "a number has a point, not a comma: percent_per_day = 7.5",
        ),
        ("[late]\npercent_per_day = 10 %", "write the number alone: percent_per_day = 10"),
        ('[late]\npercent_per_day = "10"', "from 0 to 100 is allowed, without quotation marks"),
        ("// a comment", "a comment begins with #"),
        ("roster = " + "[" * 9999, "course.toml"),
    ],
)
def test_a_course_file_that_can_not_be_used_says_where_and_what_to_write(tmp_path, text, says):
    with pytest.raises(InputError) as problem:
        course(tmp_path, text, o="student,lab\n")
    assert says in str(problem.value)


def test_a_course_file_in_utf_16_is_to_be_saved_as_utf_8(tmp_path):
    path = tmp_path / "course.toml"
    path.write_text(TOML, encoding="utf-16")
    with pytest.raises(InputError, match="is not text in UTF-8: save it as UTF-8"):
        settings.read(path)


def test_the_example_that_the_command_shows_can_be_read(tmp_path):
    course(
        tmp_path,
        settings.EXAMPLE.replace("lovelaceada", "ada"),
        overrides="student,lab,exercise,points,reason\n",
    )


@pytest.mark.parametrize("lab, day", [("01", 20), ("02", 28), ("03", 0)])
def test_an_extension_takes_no_time_away(tmp_path, lab, day):
    """`all` is before the deadline of lab 02; lab 03 has none; and --deadline may come later."""
    text = 'timezone = "UTC"\n[deadlines]\n01 = 2026-11-10\n02 = 2026-11-28\n[extensions.ada]\n'
    of = course(tmp_path, text + "all = 2026-11-20\n")
    due_s = of.due_s("ada", labs.resolve(lab))
    assert (datetime.fromtimestamp(due_s, UTC).day if due_s else 0) == day
    later = dataclasses.replace(of, deadlines={FIRST.name: DUE + 9e6})
    assert later.due_s("ada", FIRST.name) == DUE + 9e6


def test_a_name_in_other_capitals_or_another_form_is_the_same_student(tmp_path):
    people = "student,name,section\nandr\u00e9,Andr\u00e9,A\n"
    of = course(tmp_path, 'roster = "roster.csv"', roster=people)
    for folder in ("andr\u00e9", "Andre\u0301"):
        assert of.for_folders({folder}).roster.name(folder) == "Andr\u00e9"
        assert not of.for_folders({folder}).strangers([folder])
    with pytest.raises(InputError, match="is there twice"):
        course(tmp_path, 'roster = "roster.csv"', roster=people + "andre\u0301,B,B\n")


def test_a_date_without_a_time_is_due_at_its_end(tmp_path):
    of = course(tmp_path, 'timezone = "UTC"\n[deadlines]\nall = 2026-11-20\n02 = 2026-11-21\n')
    due = [datetime.fromtimestamp(of.due_s("x", name) or 0, UTC) for name in labs.names()[:2]]
    assert [f"{time:%d %H:%M:%S}" for time in due] == ["20 23:59:59", "21 23:59:59"]


def test_canvas_s_export_serves_as_a_roster(tmp_path):
    export = (
        "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,01_strides (12)\n"
        "    Points Possible,,,,,21\n"
        '"Lovelace, Ada",11,s11,ada,A,\n"Student, Test",99,,abc,A,\n'
    )
    of = course(tmp_path, 'roster = "canvas.csv"', canvas=export)
    assert list(of.roster.people) == ["11"] and of.roster.name("11") == "Lovelace, Ada"
    semicolons = course(tmp_path, 'roster = "de.csv"', de="Student;Name;Section\nx;Ö;1\n")
    assert semicolons.roster.name("x") == "Ö" and semicolons.roster.section("x") == "1"


CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section\n"
    '"Lovelace, Ada",11,s11,ada,A\n"Babbage, Charles",12,s12,cb,A\n'
)


def test_a_folder_may_have_any_of_the_roster_s_names(tmp_path):
    """A login in place of Canvas's id: still one student, with their name and extension."""
    text = 'roster = "canvas.csv"\n[deadlines]\n01 = 2026-11-20\n[extensions.11]\n01 = 2026-11-25'
    for word in ("11", "ada", "s11"):
        of = course(
            tmp_path, text.replace("[extensions.11]", f"[extensions.{word}]"), canvas=CANVAS
        )
        for folder in ("11", "ada", "s11"):
            here = of.for_folders({folder})
            assert list(here.roster.people) == [folder, "12"]
            assert here.roster.name(folder) == "Lovelace, Ada"
            due = [here.due_s(student, FIRST.name) or 0 for student in (folder, "12")]
            assert due[0] - due[1] == 5 * 86_400


def test_two_folders_of_one_student_or_one_of_two_are_an_error(tmp_path):
    of = course(tmp_path, 'roster = "canvas.csv"', canvas=CANVAS)
    with pytest.raises(InputError, match="11 and ada are both Lovelace, Ada"):
        of.for_folders({"11", "ada"})
    of = course(tmp_path, 'roster = "canvas.csv"', canvas=CANVAS.replace(",cb,", ",11,"))
    with pytest.raises(InputError, match="name all folders by the student's Canvas id"):
        of.for_folders({"11", "s12"})
    assert list(of.for_folders({"11", "12"}).roster.people) == ["11", "12"]
    with pytest.raises(InputError, match="line 3: ADA is there twice"):
        course(tmp_path, 'roster = "r.csv"', r="student,name\nada,A\nADA,B\n")


def test_an_address_is_proposed_as_toml_reads_it(tmp_path):
    text = 'roster = "roster.csv"\n[extensions.{}]\n01 = 2026-11-25'
    people = "student,name,section\nada@uni.edu,Ada,A\n"
    with pytest.raises(InputError, match="did you mean .ada@uni.edu.") as problem:
        course(tmp_path, text.format('"adda@uni.edu"'), roster=people)
    proposed = str(problem.value).partition("did you mean ")[2].removesuffix("?")
    assert list(course(tmp_path, text.format(proposed), roster=people).extensions)


def test_an_extension_for_nobody_is_said(tmp_path, capsys):
    of = course(tmp_path, "[extensions.lovelacada]\n01 = 2026-11-25")
    grade._with_deadlines([Submission("lovelaceada", FIRST.name, Path("x"))], of, Path(), None)
    said = " ".join(capsys.readouterr().out.split())
    assert "an extension is for lovelacada" in said and "did you mean lovelaceada?" in said


def test_who_is_chosen_and_handed_in_nothing_is_named(tmp_path):
    of = course(tmp_path, 'roster = "canvas.csv"', canvas=CANVAS)
    handed_in = [Submission("11", FIRST.name, Path("x"))]
    handed_in += [Submission("13", labs.names()[1], Path("x"))]

    def chosen(only=(), student=()):
        options = argparse.Namespace(what="class", only=only, student=student)
        return [one.student for one in handed_in if grade._chosen(options, handed_in, of)(one)]

    assert chosen(student=["ada"]) == ["11"] and chosen(only=["2"]) == ["13"]
    for more, says in (
        ({"student": ["12"]}, "12: Babbage, Charles is on the roster and handed in nothing"),
        ({"student": ["cb"]}, "12: Babbage, Charles is on the roster and handed in nothing"),
        ({"student": ["111"]}, "111: no folder in class has this name: did you mean 11?"),
        ({"student": ["ada"], "only": ["02"]}, "--only with --student: 11 handed in nothing for"),
    ):
        with pytest.raises(InputError) as problem:
            chosen(**more)
        assert says in str(problem.value)


def test_a_folder_of_nobody_and_a_page_of_somebody_who_left_are_said(tmp_path):
    of = course(tmp_path)
    assert look.at([graded("ada", 9), graded("eve", 9)], of.strangers({"ada", "eve"})) == [
        look.Look("eve", FIRST.name, ("not on the roster",))
    ]
    feedback.write_students([graded("ada"), graded("dan")], tmp_path / "feedback")
    here = [graded(name).submission for name in ("ada", "eve")]
    strangers, pages = grade._of_nobody(here, of, tmp_path)
    assert strangers == "not on the roster: eve"
    assert pages.endswith("has pages of an earlier run, for nobody here: dan.html")
    assert not list(grade._of_nobody(here[:1], settings.Settings(), tmp_path / "none"))


def test_who_handed_in_nothing_gets_rows_of_zero_points(tmp_path):
    rows = marks.rows([graded("ada")], course(tmp_path), tmp_path)
    of_bob = [row for row in rows if row["student"] == "bob"]
    assert {row["status"] for row in of_bob} == {"not handed in"}
    assert len(of_bob) == len(FIRST.exercises) + 1  # and the written answer
    marks.write(rows, course(tmp_path), tmp_path)
    with (tmp_path / "marks.csv").open(newline="") as file:
        table = {row["student"]: row for row in csv.DictReader(file)}
    assert table["bob"]["note"] == "nothing handed in" and table["ada"]["section"] == "A"


def test_an_extension_that_still_runs_is_no_missing_lab(tmp_path):
    later = TOML + "\n[extensions.bob]\n01 = 2126-11-22T17:00:00\n"
    rows = marks.rows([graded("ada")], course(tmp_path, later), tmp_path)
    assert {row["student"] for row in rows} == {"ada"}


def test_lateness_takes_points_off_after_what_people_gave(tmp_path):
    of = course(tmp_path, TOML.replace("[written]\n01 = 2", ""))
    rows = marks.rows([graded("bob", points=9, late_s=90_000)], of, tmp_path)
    most = sum(e.points for e in FIRST.exercises)
    last = rows[-1]
    assert (last["student"], last["status"], last["points"]) == ("bob", "late", -0.2 * most)
    assert last["message"] == "20 % off: 25 h 0 min late"
    assert {m.student: m.points for m in marks.of(rows)}["bob"] == pytest.approx(0.8 * most)


def test_overrides_are_applied_at_each_run_and_say_why(tmp_path):
    exercise = FIRST.exercises[1]
    line = f"ada,1,{exercise.number},1,Accepted in the office hour\n"
    text = TOML.replace("roster =", 'overrides = "o.csv"\nroster =')
    of = course(tmp_path, text, o="student,lab,exercise,points,reason\n" + line)
    for _ in range(2):
        rows = marks.rows([graded("ada", points=0)], of, tmp_path)
        row = next(r for r in rows if r["exercise"] == exercise.label and r["student"] == "ada")
        assert (row["points"], row["status"]) == (1, "changed by hand")
        assert row["message"] == "Accepted in the office hour\n(The grader gave 0: wrong)"
        assert row["grader_gave"] == 0
    note = marks.of(rows)[0].note
    assert "by hand: Accepted" in note and "the grader gave" not in note
    later = marks.rows([graded("ada", points=2)], of, tmp_path)
    assert "by hand: Accepted in the office hour (the grader gave 2)" in marks.of(later)[0].note
    feedback.write_students([graded("ada", points=0)], tmp_path / "f", rows, of.roster.name)
    shown = (tmp_path / "f" / "ada.html").read_text()
    assert "Accepted in the office hour" in shown and "<h1>Ada Lovelace</h1>" in shown


@pytest.mark.parametrize(
    "line, says",
    [
        ("ada,77,1.1,1,x", "line 2: there is no lab '77'"),
        ("ada,01,written 1,1,x", "line 2: written answers are marked in answers/01_strides.csv"),
        ("ada,01,9.9,1,x", "line 2: lab 01_strides has no exercise '9.9': it has 1.1"),
        ("ada,01,1.1,99,x", "line 2: 99 points are more than the 1 of 1.1"),
        ("ada,01,1.1,much,x", "line 2: 'much' is no number of points"),
        ("ada,01,1.1,-1,x", "points are 0 or more"),
        ("ada,01,1.1,1,", "line 2: give a reason"),
        ("ada,01,1.1,1,x\nada,01,row_major_strides,0,y", "line 3: line 2 is for the same exercise"),
    ],
)
def test_an_override_that_can_not_be_used_names_its_line(tmp_path, line, says):
    path = tmp_path / "overrides.csv"
    path.write_text(f"student,lab,exercise,points,reason\n{line}\n")
    with pytest.raises(InputError) as problem:
        overrides.read(path)
    assert says in str(problem.value)


@pytest.mark.parametrize(
    "line, says",
    [
        ("eve,01,1.1,1,x", "o.csv, line 2: no folder has the name 'eve'"),
        ("adda,01,1.1,1,x", "o.csv, line 2: no folder has the name 'adda': did you mean ada?"),
        ("Ada,01,1.1,1,x", ""),
        ("bob,01,1.1,1,x", "bob handed in nothing for lab 01_strides, and has no points there to"),
        ("ada,02,1.1,1,x", "ada handed in nothing for lab 02_"),
        ("ada,01,1.1,1,x", ""),
    ],
)
def test_an_override_that_changes_nothing_stops_before_grading(tmp_path, line, says):
    text = TOML.replace("roster =", 'overrides = "o.csv"\nroster =')
    text = text.replace("[deadlines]", "[extensions.bob]\n01 = 2126-11-20\n[deadlines]")
    of = course(tmp_path, text, o=f"student,lab,exercise,points,reason\n{line}\n")
    try:
        marks.check({("ada", FIRST.name)}, of, tmp_path)
        said = ""
    except InputError as problem:
        said = str(problem)
    assert says in said and bool(says) == bool(said)


def test_an_override_and_a_choice_may_have_any_of_the_roster_s_names(tmp_path):
    text = 'roster = "canvas.csv"\noverrides = "o.csv"'
    for word, folder in (("ada", "11"), ("11", "ada"), ("s11", "11")):
        lines = f"student,lab,exercise,points,reason\n{word},01,1.1,1,x\n"
        of = course(tmp_path, text, canvas=CANVAS, o=lines)
        assert of.folders_of([word], {folder}) == {folder}
        (one,) = of.for_folders({folder}).overrides
        assert one.student == folder
    with pytest.raises(InputError, match="line 3: line 2 is for the same exercise"):
        course(tmp_path, text, canvas=CANVAS, o=f"{lines}ada,01,1.1,0,y\n")
    of = course(tmp_path, text, canvas=CANVAS, o=lines.replace("s11", "adda"))
    with pytest.raises(InputError, match="no folder has the name 'adda': did you mean ada?"):
        marks.check({("11", FIRST.name)}, of, tmp_path)


def test_written_answers_are_marked_in_a_table_that_later_runs_keep(tmp_path):
    of = course(tmp_path)
    table = tmp_path / "answers" / f"{FIRST.name}.csv"

    def run(text="because"):
        rows = marks.rows([graded("ada", text=text)], of, tmp_path / "answers")
        return next(row for row in rows if (row["student"], row["exercise"]) == ADAS)

    assert (run()["points"], run()["status"]) == (0, "not marked yet")
    table.write_text(table.read_text().replace("ada,1,,2,,,", "ada,1,1.5,2,Say more,,"))
    for _ in range(2):
        row = run()
        assert (row["points"], row["max_points"], row["message"]) == (1.5, 2, "Say more")
    run("=because; =it")
    table.write_text(table.read_text().replace(written.CHANGED, ""))
    run("=because; =it")
    assert written.CHANGED not in table.read_text()
    run("because of this")
    assert written.CHANGED in table.read_text() and "because of this" in table.read_text()
    table.write_text(table.read_text().replace("ada,1,1.5,", "ada,1,3,"))
    with pytest.raises(InputError, match="line 2: 3 points exceed max_points, 2"):
        run()


def test_why_a_notebook_can_t_be_read_is_noted_in_the_marks():
    results = [Result(e.label, 0, e.points, "error", "x.ipynb is empty") for e in FIRST.exercises]
    (mark,) = marks.of(report.rows("ada", FIRST.name, results))
    assert mark.note == "x.ipynb is empty"
    results[0] = Result(FIRST.exercises[0].label, 0, 1, "error", "x is not defined")
    assert marks.of(report.rows("ada", FIRST.name, results))[0].note == ""


@pytest.mark.parametrize(
    "lines, says",
    [
        (["ada,2,2,2,long comment,,"], "line 2: there is no question '2': the lab has questions 1"),
        (["ada,1.5,,2,comment,,"], "line 2: there is no question '1.5'"),
        (["adda,1,1,2,,,"], "'adda' handed in nothing for this lab"),
        (["Ada,1,1,2,,,"], "so this line counts for nobody: did you mean ada?"),
        (["123,1,,,Good,,"], "did you mean 00123?"),
        (["ada,1,1,2,one,,", "ada,1,,2,,,"], "line 3: line 2 is for the same answer"),
        (["ada,1,,2,,,", "ada,1.0,1,2,one,,"], "line 3: line 2 is for the same answer"),
        (["ada,1,,two,,,"], "line 2: 'two' is no number of points"),
        (["ada,1,,2,,,", "ada,1,,2,,,", "adda,1,,2,,,", "ada,7,,2,,,"], ""),
    ],
)
def test_a_filled_in_line_that_would_count_for_nobody_stops_before_a_table_is_written(
    tmp_path, lines, says
):
    of, path = course(tmp_path), tmp_path / f"{FIRST.name}.csv"
    path.write_text("\n".join([",".join(written.COLUMNS), *lines]))
    before = path.read_text()
    group = [graded("ada"), graded("00123")]
    if not says:
        marks.check({("ada", FIRST.name)}, of, tmp_path)
        assert len(written.rows(group, of, tmp_path)) == 2 and "adda" not in path.read_text()
        return
    for use in (
        lambda: written.rows(group, of, tmp_path),
        lambda: marks.check({("ada", FIRST.name), ("00123", FIRST.name)}, of, tmp_path),
    ):
        with pytest.raises(InputError) as problem:
            use()
        assert says in str(problem.value) and str(path) in str(problem.value)
        assert path.read_text() == before


def test_what_a_spreadsheet_makes_of_a_table_and_a_column_of_one_s_own_are_kept(tmp_path):
    of, path = course(tmp_path), tmp_path / f"{FIRST.name}.csv"
    columns = ",".join([*written.COLUMNS, "By"])
    path.write_text(f"{columns}\nada,1.0,1,2,one,,because,TA 3\neve,1,,,,,why,\nbob,1,,2,,,,\n")
    for _ in range(2):
        (row,) = written.rows([graded("ada")], of, tmp_path, waiting=[("eve", FIRST.name)])
        assert (row["points"], row["message"], row["status"]) == (1, "one", "marked")
    lines = path.read_text().splitlines()
    assert lines[1:] == ["ada,1,1,2,one,,because,TA 3", "eve,1,,,,,why,"]


def test_who_wrote_nothing_waits_for_no_mark_and_all_have_the_same_maximum(tmp_path):
    of = course(tmp_path, TOML.replace("[extensions.ada]", "[extensions.zoe]"), roster=ROSTER)
    broken = Graded(graded("eve").submission, FIRST, graded("eve", 0).results, None, [])
    rows = marks.rows([graded("ada"), graded("zoe", text=""), broken], of, tmp_path / "answers")
    status = {row["student"]: row["status"] for row in rows if row["exercise"] == "written 1"}
    assert status == {
        "ada": "not marked yet",
        "zoe": "not attempted",
        "eve": "not attempted",
        "bob": "not handed in",
    }
    assert len({mark.max_points for mark in marks.of(rows)}) == 1


@pytest.mark.slow
def test_a_change_after_the_mark_is_seen_on_the_pages_and_in_the_marks(tmp_path):
    of = course(tmp_path)
    folder = tmp_path / "answers"
    table = folder / f"{FIRST.name}.csv"

    def run(text):
        question = notebook.questions(FIRST)[0]
        one = dataclasses.replace(graded("ada"), written=[(question, text)])
        rows = marks.rows([one], of, folder)
        feedback.write_answers([one], folder, rows, of.roster.name)
        page.write([one], rows, of, tmp_path)
        (mark,) = (mark for mark in marks.of(rows) if mark.student == "ada")
        return mark.note, (folder / f"{FIRST.name}.html").read_text()

    note, shown = run("because")
    assert "not marked yet" in note and "Ada Lovelace" in shown and "not marked yet" in shown
    table.write_text(table.read_text().replace("ada,1,,2,,,", "ada,1,1.5,2,Say <more>,,"))
    note, shown = run("because")
    assert note == "" and "1.5 of 2" in shown and "Say &lt;more&gt;" in shown
    note, shown = run("because of this")
    assert note == "written 1 has changed since it was marked" and "has changed since" in shown
    link = f'href="answers/{FIRST.name}.html"'
    assert link in (tmp_path / "index.html").read_text()


def test_what_changed_between_two_runs_is_listed():
    before = graded("ada", points=0).rows + graded("bob").rows
    now = graded("ada", points=1).rows + graded("bob").rows + graded("eve").rows
    found = changes.between(before, now)
    assert {one.key[0] for one in found} == {"ada"} and len(found) == len(FIRST.exercises)
    assert changes.between(now, now) == []


def test_what_needs_a_look_says_why():
    sly = Answer("def f():\n    import sys\n    return sys._getframe(1).f_back.f_locals['want']")
    name = FIRST.exercises[0].name
    reasons = {
        "names _getframe, f_back, f_locals": graded("a", answers={name: sly}),
        "has 21,000 characters": graded("b", answers={name: Answer("x" * 21_000)}),
        "took": graded("c", seconds=30.0),
        "its process ended": graded("d", restarts=2),
        "uses arena, plan of common, which the lab does not show": graded(
            "g", answers={name: Answer("from common.lessons.memory import arena\nx = arena.plan()")}
        ),
        "sets m.pi, torch.Tensor.stride, torch.empty": graded(
            "h",
            answers={
                name: Answer(
                    "import math as m\nm.pi = 3\ntorch.empty = None\ntorch.Tensor.stride = 1"
                )
            },
        ),
        "2 h 0 min late": graded("e", late_s=7200),
    }
    for reason, one in reasons.items():
        (found,) = look.at([one])
        assert any(reason in text for text in found.reasons), found
    solution = {e: Answer(text) for e, text in FIRST.solution.items()}
    assert look.at([graded("f", answers=solution)]) == []


@pytest.mark.parametrize(
    "text, words",
    [
        ("from gc import get_objects as o\ns = WorkerServer", "WorkerServer, gc, get_objects"),
        ("[t.tb_frame, g.gi_frame, f_builtins, walk_stack]", "f_builtins, gi_frame, tb_frame"),
        ("[resolve_name, s.get_field, StackSummary]", "StackSummary, get_field, resolve_name"),
        ("import os, gc as g", "gc"),
        ("inspect.findsource(f)", "findsource"),
    ],
)
def test_all_that_is_executed_is_looked_at(text, words):
    open_hole = Answer("raise NotImplementedError", attempted=False, needed=(text,))
    (found,) = look.at([graded("a", answers={FIRST.exercises[0].name: open_hole})])
    assert f"names {words}" in found.reasons[0]


def test_no_solution_needs_a_look():
    for name in labs.names():
        lab = labs.read(name)
        solution = {e: Answer(text) for e, text in lab.solution.items()}
        results = [Result(e.label, e.points, e.points, "passed") for e in lab.exercises]
        one = Graded(Submission("a", name, Path("x")), lab, results, solution)
        assert look.at([one]) == []


def test_statistics_tell_a_task_that_all_fail_alike():
    group = [graded(f"s{i}", points=9 if i < 15 else 0) for i in range(30)]
    found = statistics.of_lab(group)
    assert found[0].passed == 15 and found[0].discrimination == pytest.approx(1)

    def first(passed):
        """The first exercise, passed by these and by nobody else."""
        label, each = FIRST.exercises[0].label, enumerate(group)
        results = [
            [Result(label, i in passed, 1, "passed" if i in passed else "failed"), *one.results[1:]]
            for i, one in each
        ]
        both = zip(group, results, strict=True)
        return statistics.of_lab([dataclasses.replace(one, results=r) for one, r in both])[0]

    assert "is the task clear?" in first(range(1, 30, 2)).advice
    few = first(range(4, 30))
    assert (few.discrimination or 0) < 0.1 and few.advice == "", "4 failures are chance"


def test_what_a_lab_says_of_strong_and_weak_students_is_not_of_few_or_unreadable_ones():
    group = [graded(f"s{i}", points=9 if i < 12 else 0) for i in range(24)]
    mixed = [
        dataclasses.replace(one, results=[*one.results[:1], *group[-1 - i // 2 * 2].results[1:]])
        for i, one in enumerate(group)
    ]
    unread = [dataclasses.replace(graded(f"u{i}", points=0), answers=None) for i in range(2)]
    without, both = statistics.of_lab(mixed), statistics.of_lab([*mixed, *unread])
    assert [e.discrimination for e in both] == [e.discrimination for e in without]
    assert without[0].discrimination is not None and both[0].students == 24
    assert {e.discrimination for e in statistics.of_lab(mixed[:19])} == {None}
    assert statistics.of_lab(unread)[0].advice == ""


def test_two_people_of_one_name_are_told_apart(tmp_path):
    people = 'student,name\n5,"Smith, John"\n6,"Smith, John"\n7,"Ång, Bo"\n8,"van Ek, Li"\n9,Zoe\n'
    of = course(tmp_path, 'roster = "r.csv"', r=people)
    assert [of.person(s) for s in "568x"] == [
        "Smith, John (5)",
        "Smith, John (6)",
        "van Ek, Li",
        "x",
    ]
    group = [graded(student, restarts=9, text="") for student in "56789"]
    rows = marks.rows(group, of, tmp_path / "answers")
    changed = changes.between([graded(s, points=0).rows[0] for s in "56"], rows)
    alike = [page.Alike(FIRST.name, ("5", "6"), 1.0, equal=True, identical=True)]
    page.write(group, rows, of, tmp_path, changed, alike)
    similar.write([], tmp_path, [similar.Ring(FIRST.name, ("5", "6"), True)], name=of.person)
    feedback.write_answers(group, tmp_path, rows, of.person)
    text = (tmp_path / "index.html").read_text()
    parts = re.split(r'<h2 id="(?:looks|alike|changes|students)">', text)[1:]
    assert all("Smith, John (5)" in part and "Smith, John (6)" in part for part in parts)
    assert "Smith, John (5)</a>; <a" in parts[1] and ">identical<" in parts[1]
    order = [parts[3].index(name) for name in ("Ång", "(5)", "(6)", "van Ek", "Zoe")]
    assert order == sorted(order)
    assert "Smith, John (5); Smith, John (6)" in (tmp_path / "similar.html").read_text()
    silent = (tmp_path / f"{FIRST.name}.html").read_text()
    assert "No answer: Ång, Bo; Smith, John (5); Smith, John (6); van Ek, Li; Zoe" in silent


def test_points_are_called_provisional_until_written_answers_are_marked(tmp_path):
    of = course(tmp_path)
    group = [graded("ada", 9), graded("bob", 9)]
    rows = marks.rows(group, of, tmp_path / "answers")
    page.write(group, rows, of, tmp_path)
    feedback.write_students(group, tmp_path, rows)
    assert (
        "so far: <b>2 written answers are not marked yet" in (tmp_path / "index.html").read_text()
    )
    text = (tmp_path / "ada.html").read_text()
    assert "of 23 so far</span>" in text and "the written answer is not marked yet" in text
    assert "– of 2</span>" in text
    table = tmp_path / "answers" / f"{FIRST.name}.csv"
    table.write_text(table.read_text().replace("ada,1,,", "ada,1,1,"))
    rows = marks.rows(group, of, tmp_path / "answers")
    feedback.write_students(group, tmp_path, rows)
    assert "so far" not in (tmp_path / "ada.html").read_text()
    page.write(group, rows, of, tmp_path)
    assert "so far: <b>1 written answer is not marked" in (tmp_path / "index.html").read_text()


def test_marks_are_numbers_and_whole_ones_have_no_point(tmp_path):
    before = [graded(student, points=0).rows[0] for student in "ab"]
    rows = [graded(s, points, 5400).rows[0] for s, points in (("a", 0.5), ("b", 1.0))]
    rows += report.rows("a", FIRST.name, [Result("late", -1.25, 0, "late")], late_s=5400)
    marks.write(rows, settings.Settings(), tmp_path)
    changes.write(changes.between(before, rows), tmp_path)
    report.write(rows, tmp_path)
    read = {
        name: list(csv.DictReader((tmp_path / name).open(newline="")))
        for name in ("marks.csv", "changes.csv", "results.csv")
    }
    assert [row["points"] for row in read["marks.csv"]] == ["-0.75", "1"]
    assert read["marks.csv"][0]["late_h"] == "1.5" and read["marks.csv"][1]["percent"] == "100"
    assert [row["now"] for row in read["changes.csv"]] == ["0.5", "-1.25", "1"]
    assert [row["points"] for row in read["results.csv"]] == ["0.5", "1", "-1.25"]


def test_the_class_page_is_one_file_that_shows_everyone(tmp_path):
    of = course(tmp_path)
    evil = graded("<script>alert(1)</script>")
    group = [graded("ada", points=9, late_s=7200), evil]
    rows = marks.rows(group, of, tmp_path / "answers")
    changed = changes.between(graded("ada", points=0).rows, rows)
    alike = [page.Alike(FIRST.name, ("ada", "<script>alert(1)</script>"), 0.9)]
    page.write(group, rows, of, tmp_path, changed, alike)
    text = (tmp_path / "index.html").read_text()
    assert "<script>" not in text and "default-src 'none'" in text
    for words in ("Ada Lovelace", "Bob", "nothing handed in", "min late", "<svg", "90 %", "→"):
        assert words in text, words
    assert 'href="feedback/ada.html"' in text and "src=" not in text


@pytest.mark.slow
def test_who_is_only_late_comes_last_and_equal_answers_are_called_so(tmp_path):
    group = [graded("ada", points=9, late_s=7200), graded("bob", restarts=9), graded("eve")]
    rows = [row for one in group for row in one.rows]
    alike = [page.Alike(FIRST.name, ("ada", "bob"), 1.0, equal=True)]
    alike += [page.Alike(FIRST.name, ("ada", "eve"), 1.0)]
    page.write(group, rows, settings.Settings(), tmp_path, alike=alike)
    looks, _, rest = (tmp_path / "index.html").read_text().partition('id="alike"')
    looks = looks[looks.index('id="looks"') :]
    assert looks.index(">bob<") < looks.index(">ada<")
    assert ">equal<" in rest and ">100 %<" in rest
    for has_lines, says in ((True, "The lines side by side"), (False, "All groups")):
        one = page.Alike(FIRST.name, ("ada", "bob"), 1.0, equal=True, has_lines=has_lines)
        page.write(group, rows, settings.Settings(), tmp_path, alike=[one])
        assert f">{says}</a>" in (tmp_path / "index.html").read_text()


def test_the_screen_and_the_page_give_the_same_reasons_to_look(tmp_path, capsys):
    answers = {FIRST.exercises[0].name: Answer("import math\nmath.pi = 3")}
    one = dataclasses.replace(graded("ada", late_s=7200), answers=answers)
    grade._write([one], one.rows, settings.Settings(), tmp_path)
    page.write([one], one.rows, settings.Settings(), tmp_path)
    reasons = f"2 h 0 min late; {FIRST.exercises[0].name} sets math.pi"
    for name in ("summary.txt", "index.html"):
        assert reasons in (tmp_path / name).read_text(), name


def test_a_student_reads_times_in_the_zone_of_the_deadlines(tmp_path):
    one = graded("ada", late_s=7200)
    one = dataclasses.replace(one, submission=dataclasses.replace(one.submission, time_s=DUE))
    for zone, says in (("UTC", "17:00"), ("Asia/Tokyo", "02:00")):
        of = course(tmp_path, f'timezone = "{zone}"\n')
        feedback.write_students([one], tmp_path, one.rows, zone=of.zone)
        assert f"{says}, 2 h 0 min late" in (tmp_path / "ada.html").read_text()


def test_results_by_check_are_kept_and_written(tmp_path):
    checks = (CheckResult(2, 2, "passed"), CheckResult(0, 1, "failed", held_out=True))
    result = Result("1.1 x", 2, 3, "partly passed", "no", checks, 0.5, 1)
    store = Store(tmp_path)
    store.put("k", [result])
    assert store.get("k") == [result]
    one = Graded(Submission("=ada", FIRST.name, Path("x")), FIRST, [result])
    report.write_checks([one], tmp_path)
    lines = (tmp_path / "checks.csv").read_text().splitlines()
    assert lines[1:] == [
        "'=ada,01_strides,1.1 x,1,visible,2,2,passed",
        "'=ada,01_strides,1.1 x,2,held-out,0,1,failed",
    ]


def hand_in(path, name, **texts):
    cells = [{"cell_type": "code", "source": text} for text in texts.values()]
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))


def of_others_nothing_is_taken(run, folder, out, capsys):
    """--student ada: bob's equal new attempt is not graded, and what was known of him stays."""
    first = labs.names()[0]
    everyone = {(student, lab) for student in ("ada", "bob") for lab in labs.names()[:2]}
    exercise = labs.read(first).exercises[0].name
    for student in ("ada", "bob"):  # two equal new attempts, of which one is asked for
        hand_in(folder / student, first, a=f"def {exercise}():\n    return 'new'")
    before = {row["exercise"]: row for row in report.read(out) if row["student"] == "bob"}
    table = out / "answers" / f"{first}.csv"
    table.write_text(table.read_text().replace("bob,1,,,,", "bob,1,,,Well said,"))
    assert run("--student", "ada") == (1, everyone)
    after = {row["exercise"]: row for row in report.read(out) if row["student"] == "bob"}
    assert after == before and "Well said" in table.read_text()
    waits = "1 new or changed, and not graded now (what was known is kept): bob 01"
    assert waits in capsys.readouterr().out
    (folder / "bob" / f"{first}.ipynb").write_text("{")
    run("--student", "ada")
    assert {row["exercise"]: row for row in report.read(out) if row["student"] == "bob"} == before
    assert "Well said" in table.read_text()
    unread_is_kept(run, out, table, capsys)


def unread_is_kept(run, out, table, capsys):
    """Bob's notebook can't be read: where nothing changed, no later run says that it did."""
    run()
    found, lines = report.read(out), table.read_text()
    assert "is not a notebook" in (out / "summary.txt").read_text()
    for more in (("--only", "02"), ("--student", "ada"), ()):
        capsys.readouterr()
        run(*more)
        said = capsys.readouterr().out
        assert "new or changed" not in said and "0/0" not in said
        assert (report.read(out), table.read_text()) == (found, lines)
        assert "is not a notebook" in (out / "summary.txt").read_text()


@pytest.fixture
def runs(monkeypatch):
    """The labs that a grader graded. It gives a point per run, so that it shows who was graded."""
    runs = []

    def each(function, items, *_):
        for item in items:
            if function is classroom.grade:
                runs.append(item.lab)
                results = [
                    Result(e.label, min(len(runs), e.points), e.points, "failed")
                    for e in classroom.lab(item.lab).exercises
                ]
                yield item, results
            else:
                yield item, function(item)

    monkeypatch.setattr(classroom, "each", each)
    return runs


@pytest.mark.slow
def test_one_lab_or_student_is_graded_again_and_the_others_are_kept(tmp_path, runs, capsys):
    folder, out = tmp_path / "class", tmp_path / "out"
    for student in ("ada", "bob"):
        for name in labs.names()[:2]:
            exercise = labs.read(name).exercises[0].name
            hand_in(folder / student, name, a=f"def {exercise}():\n    return '{student}'")
    grade = [str(folder), "--out", str(out), "--unsafe"]

    def run(*more):
        runs.clear()
        assert command.main([*grade, *more]) == 0
        rows = report.read(out)
        return len(runs), {(row["student"], row["lab"]) for row in rows}

    first, second = labs.names()[:2]
    assert run("--only", "01") == (2, {("ada", first), ("bob", first)})
    everyone = {(student, lab) for student in ("ada", "bob") for lab in (first, second)}
    assert run() == (2, everyone)
    assert run("--fresh", "--student", "bob", "--only", "2") == (1, everyone)
    assert "1 results changed" in capsys.readouterr().out or (out / "changes.csv").exists()
    assert (out / "index.html").is_file() and (out / "marks.csv").is_file()
    of_others_nothing_is_taken(run, folder, out, capsys)
    for more, says in (
        ("--student=Adda", "did you mean ada?"),
        ("--only=5", "nobody handed in 05_"),
    ):
        assert command.main([*grade, more]) == 2 and says in capsys.readouterr().err


def test_deadlines_need_times_that_canvas_does_not_give(tmp_path):
    """Its zip file has none: the files are as old as their unpacking."""
    archive = tmp_path / "submissions.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr(f"lovelaceada_11_12_{FIRST.name}.ipynb", "{}")
    canvas_submissions.unpack(archive, tmp_path / "class")
    found, strays = submissions.find(tmp_path / "class")
    assert [one.student for one in found] == ["11"] and not strays
    course = settings.Settings(deadlines={FIRST.name: 1e9})
    with pytest.raises(InputError, match="--times none to grade without lateness"):
        grade._with_deadlines(found, course, tmp_path / "class", None)
    for times, is_late in (("none", False), ("files", True)):
        (one,) = grade._with_deadlines(found, course, tmp_path / "class", times)
        assert bool(one.late_s) == is_late
    (one,) = grade._with_deadlines(found, settings.Settings(), tmp_path / "class", None)
    assert one.late_s is None
