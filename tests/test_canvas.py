"""Canvas: its zip of submissions laid out, and the CSV that its gradebook imports."""

import csv
import json
import zipfile

from grading import __main__ as command
from grading import report, submissions
from grading.report import Result

COLUMNS = "Student,ID,SIS User ID,SIS Login ID,Section"
LABS = "01_strides (1234),02_arithmetic_intensity (1235)"
EXPORT = f"""\
{COLUMNS},{LABS},Final Score
    Points Possible,,,,,21,19,
"Lovelace, Ada",11,s11,ada,A,,,
"Babbage, Charles",12,s12,cb,A,,,
"Student, Test",99,,abcdef,A,,,
"""


def results(tmp_path, *students):
    rows = [
        row
        for student in students
        for name, most in (("01_strides", 21), ("02_arithmetic_intensity", 19))
        for row in report.rows(student, name, [Result("1.1 x", most - 3, most, "partly passed")])
    ]
    report.write(rows, tmp_path)


def table(tmp_path, *more):
    assert command.main(["canvas", "marks", str(tmp_path), *map(str, more)]) == 0
    with (tmp_path / "canvas.csv").open(newline="") as file:
        return list(csv.reader(file))


def test_with_a_roster_each_gets_their_own_row_and_column(tmp_path, capsys):
    roster = tmp_path / "export.csv"
    roster.write_text("\ufeff" + EXPORT, encoding="utf-8")
    results(tmp_path, "ada", "Charles Babbage", "eve")
    header, possible, *people = table(tmp_path, "--roster", roster)
    assert header == [
        "Student",
        "ID",
        "SIS User ID",
        "SIS Login ID",
        "Section",
        "01_strides (1234)",
        "02_arithmetic_intensity (1235)",
    ]
    assert possible == ["    Points Possible", "", "", "", "", "21", "19"]
    assert people == [
        ["Babbage, Charles", "12", "s12", "cb", "A", "18", "16"],
        ["Lovelace, Ada", "11", "s11", "ada", "A", "18", "16"],
    ]
    assert "left out: eve" in capsys.readouterr().out


def test_without_one_the_folders_are_logins(tmp_path):
    results(tmp_path, "ada", "=cmd()")
    header, _, *people = table(tmp_path)
    assert header[-2:] == ["01_strides", "02_arithmetic_intensity"]
    assert [person[3] for person in people] == ["'=cmd()", "ada"]


def test_bad_input_gets_one_sentence(tmp_path, capsys):
    assert command.main(["canvas", "marks", str(tmp_path)]) == 2
    results(tmp_path, "ada")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert (
        command.main(["canvas", "marks", str(tmp_path), "--roster", str(tmp_path / "x.csv")]) == 2
    )
    (tmp_path / "results.json").write_text(json.dumps([]))
    assert command.main(["canvas", "marks", str(tmp_path)]) == 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 2 and "not a gradebook that Canvas exported" in lines[1]


def test_what_canvas_collected_is_laid_out_for_the_grader(tmp_path, capsys):
    archive, folder = tmp_path / "submissions.zip", tmp_path / "class"
    with zipfile.ZipFile(archive, "w") as files:
        for name in (
            "lovelaceada_11_345678_01_strides.ipynb",
            "o_neillzofia_LATE_12_345679_01_strides-2 (1).ipynb",
            "lovelaceada_11_345680_02_arithmetic_intensity.ipynb",
            "babbagecharles_13_345681_essay.pdf",
            "x_14_1_../01_strides.ipynb",
            "01_strides.ipynb",
        ):
            files.writestr(name, "{}")
    assert command.main(["canvas", "unpack", str(archive), str(folder)]) == 0
    assert {(one.student, one.lab) for one in submissions.find(folder)[0]} == {
        ("11", "01_strides"),
        ("11", "02_arithmetic_intensity"),
        ("12", "01_strides"),
    }
    said = capsys.readouterr().out
    assert said.count("left out: ") == 3 and said.endswith(f"2 students: {folder}\n")


def test_a_file_that_is_not_a_zip_is_reported(tmp_path, capsys):
    (tmp_path / "submissions.zip").write_text("no")
    for name, says in (("submissions.zip", "is not a zip file"), ("absent.zip", "No such file")):
        assert (
            command.main(["canvas", "unpack", str(tmp_path / name), str(tmp_path / "class")]) == 2
        )
        assert says in capsys.readouterr().err


def test_feedback_goes_back_under_the_names_that_canvas_knows(tmp_path, capsys):
    """Canvas takes the first two numbers between underscores for the ids of student and file."""
    archive, pages = tmp_path / "submissions.zip", tmp_path / "feedback"
    pages.mkdir()
    for student in ("11", "12"):
        (pages / f"{student}.html").write_text(f"page of {student}")
    with zipfile.ZipFile(archive, "w") as files:
        for name in (
            "lovelaceada_11_345678_01_strides.ipynb",
            "lovelaceada_11_345690_01_strides-1.ipynb",
            "o_neillzofia_LATE_12_345679_01_strides-2 (1).ipynb",
            "babbagecharles_13_345681_01_strides.ipynb",
            "babbagecharles_13_345681_essay.pdf",
        ):
            files.writestr(name, "{}")
    assert command.main(["canvas", "feedback", str(tmp_path), str(archive)]) == 0
    with zipfile.ZipFile(tmp_path / "canvas_feedback.zip") as files:
        found = {tuple(_numbers(name)): files.read(name) for name in files.namelist()}
        assert all(name.endswith(".html") for name in files.namelist())
    assert found == {("11", "345690"): b"page of 11", ("12", "345679"): b"page of 12"}
    assert "left out: 13" in capsys.readouterr().out


def _numbers(name):
    """As Canvas reads a name (Assignment#infer_comment_context_from_filename)."""
    return [part for part in name.split("_") if part.isdecimal()][:2]
