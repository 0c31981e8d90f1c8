"""Canvas: the CSV that its gradebook imports, matched with the one that it exports.

The export is what https://github.com/instructure/canvas-lms writes in lib/gradebook_exporter.rb:
the first row, "Points Possible", an assignment's title with its id. Its lib/gradebook_importer.rb
reads the CSV that we write, by row_has_student_headers?, process_pp and process_student.
"""

import csv
import json
import unicodedata

import pytest

from grading import __main__ as command
from grading import report
from grading.course.roster import Roster
from grading.errors import InputError
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


def test_marks_that_are_not_final_are_said(tmp_path, capsys):
    results(tmp_path, "ada")
    unmarked = report.rows("ada", "01_strides", [Result("written 1", 0, 2, "not marked yet")])
    report.write([*report.read(tmp_path), *unmarked], tmp_path)
    table(tmp_path)
    assert "not marked yet, and count as 0: 1\n" in capsys.readouterr().out


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
    assert command.main(["canvas", "marks", str(tmp_path)]) == 2
    assert command.main(["canvas", "marks", str(tmp_path), "--roster", "none.csv"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    says = ("grade first", "not a gradebook that Canvas exported", "there are no marks")
    for line, text in zip(lines, [*says, "none.csv does not exist"], strict=True):
        assert text in line


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


def test_an_assignment_with_other_points_than_the_lab_is_said(tmp_path, capsys):
    results(tmp_path, "ada")
    for points, says in (("10.00", True), ("10,00", True), ("21.0", False), ("", False)):
        row = f'    Points Possible,,,,,"{points}",19'
        assert given(tmp_path, roster(tmp_path, row, ADA)) == {"11": "18"}
        said = capsys.readouterr().out
        sentence = "01_strides (1234): the assignment has 10 points in Canvas, and the lab has 21"
        assert (sentence in said) == says and "02_arithmetic" not in said


@pytest.mark.parametrize("odd", ["11.0", "1E+13", ""])
def test_an_id_that_a_spreadsheet_changed_stops_the_run(tmp_path, capsys, odd):
    results(tmp_path, "ada")
    path = roster(tmp_path, "    Points Possible,,,,,21,19", ADA.replace(",11,", f",{odd},"))
    said = refused(tmp_path, path, capsys)
    assert f"export.csv, line 3: the ID of Lovelace, Ada is '{odd}'" in said
    with pytest.raises(InputError, match="line 3: the ID of Lovelace, Ada"):
        Roster.read(path)


def test_where_nobody_is_read_or_matched_nothing_is_written(tmp_path, capsys):
    results(tmp_path, "eve", "zoe")
    assert "none of its 2 students is in" in refused(tmp_path, roster(tmp_path, ADA), capsys)
    for rows in ([], ["    Points Possible,,,,,21,19", '"Student, Test",99,,x,A,,']):
        path = roster(tmp_path, *rows)
        assert "names no student" in refused(tmp_path, path, capsys)
        with pytest.raises(InputError, match="names no student"):
            Roster.read(path)


def test_names_in_two_columns_get_a_sentence(tmp_path, capsys):
    results(tmp_path, "ada")
    header = f"{COLUMNS},{LABS}".replace("Student", "LastName,FirstName")
    path = roster(tmp_path, "Lovelace,Ada,11,s11,ada,A,,", header=header)
    assert "Split Student Names" in refused(tmp_path, path, capsys)
    with pytest.raises(InputError, match="Split Student Names"):
        Roster.read(path)


def test_the_roster_of_the_course_serves_without_naming_it_again(tmp_path, monkeypatch, capsys):
    results(tmp_path, "ada")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "course.toml").write_text('roster = "roster.csv"\n')
    (tmp_path / "roster.csv").write_text(EXPORT)
    assert [person[1] for person in table(tmp_path)[2:]] == ["11"]
    (tmp_path / "roster.csv").write_text("student,name\nada,Ada\n")
    assert [person[3] for person in table(tmp_path)[2:]] == ["ada"]
    assert "Without --roster" in capsys.readouterr().out
