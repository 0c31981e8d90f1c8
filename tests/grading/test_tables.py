"""Tables that people save from a spreadsheet, and the sentence for each that can't be read."""

import zipfile

import pytest

from grading.course import overrides, tables
from grading.course.roster import Roster
from grading.errors import InputError

HEADER = "student,name,section\n"


def saved(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text, says",
    [
        (HEADER, "names no student"),
        ("", "names no student"),
        ("pupil,name\nada,Ada\n", "has no column student"),
        (HEADER + "ada,Lovelace, Ada,A\n", "line 2 has 4 cells for 3 columns"),
        (HEADER.replace(",", ";") + "ada;Love;lace;A\n", 'holds ";" needs quotation marks'),
    ],
)
def test_a_roster_that_can_t_be_read_gets_a_sentence(tmp_path, text, says):
    with pytest.raises(InputError, match=says):
        Roster.read(saved(tmp_path, text))


LINES = "student,lab,exercise,points,reason\nada,01,1.1,1,{}\nbob,01,1.1,1,fine\n"


@pytest.mark.parametrize(
    "reason, says",
    [
        ('"said ok', 'line 2: a cell that begins with " ends with "'),
        ('"said" ok', 'line 2: a cell that begins with " ends with "'),
        ("x" * 200_000, "line 2: a cell has more than 131,072 characters"),
    ],
)
def test_a_quotation_mark_that_is_not_closed_takes_no_line_away(tmp_path, reason, says):
    with pytest.raises(InputError, match=says):
        overrides.read(saved(tmp_path, LINES.format(reason)))
    for honest in ('5" more', ' "a, b"', '"two\nlines"', '"he said ""ok"""'):
        assert len(overrides.read(saved(tmp_path, LINES.format(honest)))) == 2


@pytest.mark.parametrize(
    "text, says",
    [
        ("\n" + HEADER + "ada,Ada,A\n", "its first line is empty"),
        ("student,name,Student\nada,Ada,bob\n", "has 2 columns student: remove or rename"),
        ('"student,name\nada,Ada\n', "line 1: a cell that begins"),
    ],
)
def test_the_first_line_names_each_column_once(tmp_path, text, says):
    with pytest.raises(InputError, match=says):
        Roster.read(saved(tmp_path, text))


def test_commas_in_a_column_s_name_are_not_between_cells(tmp_path):
    text = 'Student;Name;"Quiz 1, 2, 3, 4";A Final Score;A Final Score\nada;Ada;1;2;3\n'
    assert list(Roster.read(saved(tmp_path, text)).people) == ["ada"]


def test_a_reason_with_a_comma_needs_quotation_marks(tmp_path):
    text = "student,lab,exercise,points,reason\nada,01,1.1,1,{}\n"
    with pytest.raises(InputError, match="line 2 has 6 cells for 5 columns"):
        overrides.read(saved(tmp_path, text.format("explained, at the board")))
    (one,) = overrides.read(saved(tmp_path, text.format('"explained, at the board"')))
    assert one.reason == "explained, at the board"


def test_empty_cells_at_the_end_of_a_line_are_no_mistake(tmp_path):
    assert list(Roster.read(saved(tmp_path, HEADER + "ada,Ada,A,, ,\n,,,,\n")).people) == ["ada"]


def test_a_workbook_is_no_csv(tmp_path):
    path = tmp_path / "roster.csv"
    with zipfile.ZipFile(path, "w") as workbook:
        workbook.writestr("xl/workbook.xml", "")
    with pytest.raises(InputError, match="a zip file or an Excel workbook: save the table as CSV"):
        tables.read(path, ())
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99))
    with pytest.raises(InputError, match="is an Excel workbook"):
        tables.read(path, ())
