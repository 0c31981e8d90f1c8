"""Canvas: its zip of submissions laid out, and the CSV that its gradebook imports."""

import csv
import json
import unicodedata
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
    said = capsys.readouterr().out
    assert "left out: eve" in said and "makes a new one" not in said


def test_a_lab_without_an_assignment_of_its_name_is_said(tmp_path, capsys):
    roster = tmp_path / "export.csv"
    roster.write_text(EXPORT.replace("01_strides", "Lab 1"))
    results(tmp_path, "ada")
    assert table(tmp_path, "--roster", roster)[0][5] == "01_strides"
    assert capsys.readouterr().out.count("makes a new one") == 1


def test_without_one_the_folders_are_logins(tmp_path):
    results(tmp_path, "ada", "=cmd()")
    header, _, *people = table(tmp_path)
    assert header[-2:] == ["01_strides", "02_arithmetic_intensity"]
    assert [person[3] for person in people] == ["'=cmd()", "ada"]


def test_points_are_written_as_people_write_them(tmp_path):
    rows = report.rows("ada", "01_strides", [Result("1.1 x", 3, 4, "partly passed")])
    rows += report.rows("ada", "01_strides", [Result("written 1", 1.5, 2, "marked")])
    rows[-1]["max_points"] = 2.0
    rows += report.rows("bob", "01_strides", [Result("1.1 x", 2.0, 4, "partly passed")])
    report.write(rows, tmp_path)
    _, possible, ada, bob = table(tmp_path)
    assert (possible[-1], ada[-1], bob[-1]) == ("6", "4.5", "2")


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


def zipped(folder, *names):
    """What Canvas's Download Submissions gives: an archive in which each file is a notebook."""
    archive = folder / "submissions.zip"
    with zipfile.ZipFile(archive, "w") as files:
        for name in names:
            files.writestr(name, "{}")
    return archive


def test_what_canvas_collected_is_laid_out_for_the_grader(tmp_path, capsys):
    folder = tmp_path / "class"
    archive = zipped(
        tmp_path,
        "lovelaceada_11_345678_01_strides.ipynb",
        "o_neillzofia_LATE_12_345679_01_strides-2 (1).ipynb",
        "lovelaceada_11_345680_02_arithmetic_intensity.ipynb",
        "babbagecharles_13_345681_essay.pdf",
        "x_14_1_../01_strides.ipynb",
        "01_strides.ipynb",
    )
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


def roster(tmp_path, *people, header=f"{COLUMNS},{LABS}", encoding="utf-8"):
    path = tmp_path / "export.csv"
    path.write_bytes("\n".join([header, *people, ""]).encode(encoding))
    return path


def given(tmp_path, path):
    """{Canvas's id: the points of the first lab}."""
    _, _, *people = table(tmp_path, "--roster", path)
    return {person[1]: person[5] for person in people}


def refused(tmp_path, path, capsys):
    assert command.main(["canvas", "marks", str(tmp_path), "--roster", str(path)]) == 2
    assert not (tmp_path / "canvas.csv").exists()
    return capsys.readouterr().err


ADA, MALLORY = '"Lovelace, Ada",11,s11,ada,A,,', '"{}",66,s66,mal,A,,'


def test_a_name_that_a_student_chose_never_goes_before_an_id_or_a_login(tmp_path):
    results(tmp_path, "ada")
    for chosen in ("11", "s11", "ada", "ADA"):
        assert given(tmp_path, roster(tmp_path, MALLORY.format(chosen), ADA)) == {"11": "18"}
    results(tmp_path, "ADA")  # a file system without case
    assert given(tmp_path, roster(tmp_path, MALLORY.format("ADA"), ADA)) == {"11": "18"}


def test_who_chooses_anothers_name_stops_the_run(tmp_path, capsys):
    results(tmp_path, "Ada Lovelace")
    for chosen in ("Ada Lovelace", "LOVELACE ada", "Ｌovelace, Ada"):
        said = refused(tmp_path, roster(tmp_path, ADA, MALLORY.format(chosen)), capsys)
        assert "2 people of the roster have this Student" in said


def test_an_id_that_is_anothers_login_is_an_error_unless_all_folders_are_ids(tmp_path, capsys):
    path = roster(tmp_path, ADA, '"Babbage, Charles",12,s12,11,A,,')
    results(tmp_path, "11", "ada")
    said = refused(tmp_path, path, capsys)
    assert "11 is the ID of Lovelace, Ada, the SIS Login ID of Babbage, Charles" in said
    results(tmp_path, "11", "12")
    assert given(tmp_path, path) == {"11": "18", "12": "18"}


def test_two_lines_or_columns_for_one_are_an_error(tmp_path, capsys):
    results(tmp_path, "ada")
    said = refused(tmp_path, roster(tmp_path, ADA, MALLORY.format("M").replace("66", "11")), capsys)
    assert "2 lines have the ID 11" in said
    header = f"{COLUMNS},01_strides (1234),01_strides (1299)"
    said = refused(tmp_path, roster(tmp_path, ADA, header=header), capsys)
    assert "01_strides (1234) and 01_strides (1299) are both columns" in said


def test_names_may_be_written_in_any_way(tmp_path):
    names = ('Müller, Zoë "Zo"', "O'Neill, Séan", "李, 小龙")
    people = [
        '"{}",{},,l{},A,,'.format(name.replace('"', '""'), i, i) for i, name in enumerate(names)
    ]
    decomposed = unicodedata.normalize("NFD", 'Zoë "Zo" Müller')  # as macOS names a folder
    results(tmp_path, decomposed, "séan o'neill", "小龙 李")
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path = roster(tmp_path, *people, encoding=encoding)
        assert given(tmp_path, path) == {"0": "18", "1": "18", "2": "18"}
    path = roster(tmp_path, *people[:2], encoding="cp1252")
    results(tmp_path, decomposed)
    assert given(tmp_path, path) == {"0": "18"}


def test_a_roster_that_a_spreadsheet_saved_again_is_read(tmp_path):
    results(tmp_path, "ada", "...")
    rows = [",,,,,Muted,", "    Points Possible,,,,,21,19", ADA, "?!,13", ",,,,,,"]
    for separator in ",;\t":
        text = [row.replace('"Lovelace, Ada"', "Ada").replace(",", separator) for row in rows]
        path = roster(tmp_path, *text, header=f"{COLUMNS},{LABS}".replace(",", separator))
        assert given(tmp_path, path) == {"11": "18"}


def test_a_name_like_canvas_s_own_hands_in_for_nobody_else(tmp_path, capsys):
    """Mallory's name in Canvas is "x_11_5_01_strides": her file begins as one of student 11."""
    folder = tmp_path / "class"
    archive = zipped(
        tmp_path,
        "x_11_5_66_777_01_strides.ipynb",
        "x_11_5_01_strides_66_777_01_strides.ipynb",
        "lovelaceada_11_345678_01_strides_2026_11_20_last.ipynb",
    )
    assert command.main(["canvas", "unpack", str(archive), str(folder)]) == 0
    (one,) = submissions.find(folder)[0]
    assert (one.student, one.path.name) == ("11", "01_strides_2026_11_20_last.ipynb")
    assert capsys.readouterr().out.count("left out: x_11_5") == 2


def test_a_second_file_does_not_replace_the_first(tmp_path, capsys):
    archive, folder = tmp_path / "submissions.zip", tmp_path / "class"
    with zipfile.ZipFile(archive, "w") as files:
        for name, text in (("ada_11_1_01_strides.ipynb", "a"), ("eve_11_2_01_strides.ipynb", "b")):
            files.writestr(name, text)
    assert command.main(["canvas", "unpack", str(archive), str(folder)]) == 0
    assert (folder / "11" / "01_strides.ipynb").read_text() == "a"
    assert "left out: eve_11_2" in capsys.readouterr().out
