"""Canvas: the CSV that its gradebook imports."""
import csv
import json

from grading import canvas, report
from grading.report import Result

EXPORT = """\
Student,ID,SIS User ID,SIS Login ID,Section,01_strides (1234),02_arithmetic_intensity (1235),Final Score
    Points Possible,,,,,21,19,
"Lovelace, Ada",11,s11,ada,A,,,
"Babbage, Charles",12,s12,cb,A,,,
"Student, Test",99,,abcdef,A,,,
"""


def results(tmp_path, *students):
    rows = [row for student in students for name, most in (("01_strides", 21), ("02_arithmetic_intensity", 19))
            for row in report.rows(student, name, [Result("1.1 x", most - 3, most, "partly passed")])]
    report.write(rows, tmp_path)


def table(tmp_path, *more):
    assert canvas.main([str(tmp_path), *map(str, more)]) == 0
    with (tmp_path / "canvas.csv").open(newline="") as file:
        return list(csv.reader(file))


def test_with_a_roster_each_gets_their_own_row_and_column(tmp_path, capsys):
    roster = tmp_path / "export.csv"
    roster.write_text("\ufeff" + EXPORT, encoding="utf-8")
    results(tmp_path, "ada", "Charles Babbage", "eve")
    header, possible, *people = table(tmp_path, "--roster", roster)
    assert header == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "01_strides (1234)", "02_arithmetic_intensity (1235)"]
    assert possible == ["    Points Possible", "", "", "", "", "21", "19"]
    assert people == [["Babbage, Charles", "12", "s12", "cb", "A", "18", "16"], ["Lovelace, Ada", "11", "s11", "ada", "A", "18", "16"]]
    assert "left out: eve" in capsys.readouterr().out


def test_without_one_the_folders_are_logins(tmp_path):
    results(tmp_path, "ada", "=cmd()")
    header, _, *people = table(tmp_path)
    assert header[-2:] == ["01_strides", "02_arithmetic_intensity"]
    assert [person[3] for person in people] == ["'=cmd()", "ada"]


def test_bad_input_gets_one_sentence(tmp_path, capsys):
    assert canvas.main([str(tmp_path)]) == 2
    results(tmp_path, "ada")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert canvas.main([str(tmp_path), "--roster", str(tmp_path / "x.csv")]) == 2
    (tmp_path / "results.json").write_text(json.dumps([]))
    assert canvas.main([str(tmp_path)]) == 0
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 2 and "no gradebook that Canvas exported" in told[1]
