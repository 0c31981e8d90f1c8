"""Fuzzed tables: whatever a person saves from a spreadsheet is read, or refused with a sentence.

And no table that we write holds a formula. FUZZ=10000 tries that many of each.
"""

import codecs
import csv
import io
import os
import random
import re
from pathlib import Path

import pytest

from grading import __main__ as command
from grading.course import changes, marks, overrides, settings, tables, written
from grading.course.roster import Roster
from grading.errors import InputError
from grading.lms import canvas, github
from grading.report import Graded, Result, Row, rows, write, write_checks
from grading.source import labs
from grading.submissions import Submission

COUNT = int(os.environ.get("FUZZ", 1000))
LAB = labs.read(labs.names()[0])
CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,01_strides (12)
    Points Possible,,,,,21
"Lovelace, Ada",11,s11,ada,A,
"Student, Test",99,,abc,A,
"""
GITHUB = """\
"assignment_name","github_username","roster_identifier","student_repository_name",\
"submission_timestamp","points_awarded","points_available"
"lab","ada","ada@uni.edu","lab-ada","2026-11-20T17:58:03Z","",""
"""
FORMULAS = [
    "=1+1",
    "+1",
    "-x",
    "@SUM(A1)",
    "\t=1",
    " =1",
    "＝1",
    "a;=1",
    "\r=1",
    "=cmd|' /C'!A0",
    "-",
    "a;+1+cmd|x!A0",
]
ODD = [
    *("", "  ", "'", "''", '"', '""', "\0", "\x1b[2J", "\ud7ff", "ada", "Ada", "ÄÖÜ", "\u202e"),
    *("1e999", "nan", "inf", "-1", "1,5", "1.5", "１", "٣", "0x1", "1_0", "9" * 400, "1e-320"),
    *("01", "1", "77", "1.1", "1.1 row_major_strides", "../x", "a/b", ".x", "x" * 300, "None"),
    *("2026-11-20", "2026-11-20T17:58:03Z", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59Z"),
    *FORMULAS,
]


def fuzzed(text: str, rng: random.Random) -> bytes:
    """The table with cells, lines or bytes changed, as some program may have saved it."""
    lines = list(csv.reader(io.StringIO(text)))
    for _ in range(rng.randint(0, 4)):
        line = rng.choice(lines)
        act = rng.randrange(7)
        if act < 3 and line:
            line[rng.randrange(len(line))] = rng.choice(ODD)
        elif act == 3:
            lines.insert(rng.randrange(len(lines) + 1), list(line))  # twice
        elif act == 4:
            place = rng.randrange(len(line) + 1)
            for other in lines:  # another column, perhaps empty
                other.insert(min(place, len(other)), rng.choice(["", "", rng.choice(ODD)]))
        elif act == 5:
            del line[rng.randrange(len(line) + 1) :]
        elif len(lines) > 1:
            lines.remove(line)
    end, made = rng.choice(["\n", "\r\n", "\r", "\n\n"]), io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if rng.random() < 0.5 else csv.QUOTE_MINIMAL
    csv.writer(
        made, delimiter=rng.choice(",,;\t"), lineterminator=end, quoting=quoting, escapechar="\\"
    ).writerows(lines)
    encoding = rng.choice(["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1", "mac-roman"])
    content = made.getvalue().encode(encoding, errors="replace")
    if rng.random() < 0.2:
        place = rng.randrange(len(content) + 1)
        noise = rng.choice([b"\0", b'"', b"\xff\xfe", codecs.BOM_UTF8, b"\n", rng.randbytes(3)])
        content = content[:place] + noise + content[place + rng.choice([0, 1, 30]) :]
    return content


def refusal(path: Path, content: bytes, use) -> str:
    """The sentence with which a table is refused; "" if it is read. Anything else is raised."""
    path.write_bytes(content)
    try:
        use(path)
    except InputError as problem:
        said = str(problem)
        assert len(said) > 20 and len(said) < 2500, said
        return said
    return ""


def with_written(path: Path) -> None:
    one = Submission("ada", LAB.name, Path("x"))
    results = [Result(e.label, 0, e.points, "failed", "no") for e in LAB.exercises]
    graded = Graded(one, LAB, results, {}, [("Why?", "because")])
    course = settings.Settings(written={LAB.name: 2})
    found = written.rows([graded], course, path.parent)
    assert all(0 <= row["points"] <= row["max_points"] for row in found)


def with_marks(path: Path) -> None:
    found = rows("ada", LAB.name, [Result("1.1 x", 1, 1, "passed")])
    header, lines, _ = canvas.table(found, canvas._roster(path))
    assert len(set(map(len, [header, *lines]))) == 1


USES = {
    "roster": ("student,name,section\nada,Ada,A\nbob,Bob,B\n", Roster.read),
    "roster of Canvas": (CANVAS, Roster.read),
    "overrides": (
        "student,lab,exercise,points,reason\nada,01,1.1,1,Accepted\nbob,2,1.1,0.5,Late train\n",
        overrides.read,
    ),
    "written answers": (
        "student,question,points,max_points,comment,note,answer\nada,1,1.5,2,Good,,because\n",
        with_written,
    ),
    "Canvas's gradebook": (CANVAS, with_marks),
    "GitHub's grades": (GITHUB, github.read),
}


@pytest.mark.parametrize("text, use", USES.values(), ids=USES)
def test_a_fuzzed_table_is_read_or_refused_with_a_sentence(text, use, tmp_path):
    path, read = tmp_path / f"{LAB.name}.csv", 0
    for seed in range(COUNT):
        read += refusal(path, fuzzed(text, random.Random(seed)), use) == ""
    assert 0.05 * COUNT < read < 0.99 * COUNT  # both kinds were tried


def test_a_fuzzed_course_file_is_read_or_refused_with_a_sentence(tmp_path):
    (tmp_path / "roster.csv").write_text("student,name,section\nlovelaceada,Ada,A\n")
    (tmp_path / "overrides.csv").write_text("student,lab,exercise,points,reason\n")
    noise = ['"', "'", "[", "]", "=", ",", "\\", "#", ".", "@", "\0", "“", "\n", "9", " ", "{", "é"]
    for seed in range(COUNT):
        rng, text = random.Random(seed), settings.EXAMPLE
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(text))
            text = text[:place] + rng.choice([*noise, ""]) + text[place + rng.choice([0, 1, 9]) :]
        refusal(tmp_path / "course.toml", text.encode(), settings.read)


def test_the_terminal_gets_no_control_characters_of_a_table(tmp_path, capsys):
    table = tmp_path / "grades.csv"
    table.write_text(GITHUB.replace("ada@uni.edu", "\x1b]0;a/b\x07"))
    assert command.main(["github", "collect", "1", str(tmp_path), str(table), str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "can't be a folder's name" in said and "\x1b" not in said and "\x07" not in said


def cells(path: Path) -> list[str]:
    """The cells of a table as any program may split it."""
    text = path.read_text(encoding="utf-8")
    return [
        cell
        for delimiter in ",;\t"
        for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        for cell in line
    ]


def is_number(text: str) -> bool:
    """Whether a cell, up to what another delimiter would end, is a number."""
    return bool(re.match(r'\s*[+-]?[\d.]+(?:"|\s|;|,|$)', text))


def test_no_table_that_we_write_holds_a_formula(tmp_path):
    for seed in range(COUNT // 10):
        rng = random.Random(seed)

        def text(rng: random.Random = rng) -> str:
            joined = rng.choice(["", ";", "\t", "\n", ",", ' "'])
            return joined.join(rng.choices(ODD, k=rng.randint(1, 3)))

        student, why = text(), text()
        result = Result("1.1 x", 0.5, 1, "failed", why, told=text())
        graded = Graded(Submission(student, LAB.name, Path("x")), LAB, [result])
        found: list[Row] = graded.rows
        write(found, tmp_path)
        write_checks([graded], tmp_path)
        marks.write(found, settings.Settings(), tmp_path)
        changed = changes.between([], found) or [changes.Change((student, why, text()), None, None)]
        changes.write(changed, tmp_path)
        tables.write(
            tmp_path / "answers.csv", written.COLUMNS, [{"comment": why, "answer": text()}]
        )
        header, lines, _ = canvas.table(found, [])
        with (tmp_path / "canvas.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *(map(canvas._cell, line) for line in lines)])
        for path in tmp_path.glob("*.csv"):
            for cell in cells(path):
                begins = cell.lstrip(" \n\0\t\r")[:1]
                assert begins not in "=+-@＝＋－＠" or not begins or is_number(cell), (
                    path,
                    cell,
                )
