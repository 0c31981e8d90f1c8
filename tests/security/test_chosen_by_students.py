"""What students choose (names, files, links, times, texts) earns nothing and harms nobody."""

import csv
import io
import os
import zipfile
from datetime import datetime

import pytest

from grading import grade, report, submissions
from grading.course import tables
from grading.errors import InputError
from grading.lms import canvas_submissions, github
from grading.lms.github import Repository
from grading.report import Graded, Result
from grading.source import labs

LAB = labs.names()[0]
DUE = datetime(2026, 11, 20).timestamp()


def hand_in(folder, name=f"{LAB}.ipynb", time_s=DUE - 3600.0):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("{}")
    os.utime(path, (time_s, time_s))
    return path


def make_pipe(path):
    os.mkfifo(path)


def link_to_zeros(path):
    path.symlink_to("/dev/zero")


def write_much(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # without a byte on the disk


@pytest.mark.parametrize("make", [make_pipe, link_to_zeros, write_much, os.mkdir])
def test_a_timestamp_that_never_ends_is_not_read(tmp_path, make):
    path = hand_in(tmp_path / "ada")
    make(path.with_name("timestamp.txt"))
    for times in ("files", "names"):
        ((one,), _) = submissions.find(tmp_path, {LAB: DUE}, times=times)
        assert (one.time_s, one.late_s) == (DUE - 3600, 0)


def test_a_thousand_attempts_are_twenty(tmp_path):
    for number in range(1000):
        hand_in(tmp_path / "ada", f"{LAB}-{number}.ipynb", DUE + number)
    found, _ = submissions.find(tmp_path, count="best")
    assert len(found) == submissions.MAX_ATTEMPTS
    assert found[-1].path.name == f"{LAB}-999.ipynb" and found[-1].attempt == len(found)


@pytest.mark.parametrize(
    "names, later_s, is_clear",
    [
        (("", "-2"), 3600, True),
        (("", "-2"), 0, True),  # unpacked together
        (("-3", ""), 3600, False),
        (("", "-Copy1"), 3600, False),
        (("", " lab01"), 0, False),
        (("", " lab01"), 3600, True),
        (("_2026-11-01T09-30", "_2026-11-02T09-30"), 0, True),
    ],
)
def test_attempts_whose_order_nobody_can_tell_need_a_look(tmp_path, names, later_s, is_clear):
    """names: in the order of their files' times, the second one later_s later."""
    for place, name in enumerate(names):
        hand_in(tmp_path / "ada", f"{LAB}{name}.ipynb", DUE - 86_400 + place * later_s)
    for count in ("first", "last"):
        (one,) = (one for one in submissions.find(tmp_path, count=count)[0] if one.counts)
        other = next(LAB + name for name in names if one.path.stem != LAB + name)
        assert one.rivals == ("" if is_clear else f"{other}.ipynb")
        graded = Graded(one, labs.read(LAB), [Result("1.1 x", 1, 1, "passed")], {})
        assert ("which one counts?" in str(report.to_look_at([graded]))) != is_clear
    assert not any(one.rivals for one in submissions.find(tmp_path, count="best")[0])


def test_thousands_of_notebooks_of_no_lab_are_counted(tmp_path):
    for number in range(150):
        hand_in(tmp_path / "ada", f"notes{number}.ipynb")
    lines = list(grade._left_out(tmp_path, [], submissions.find(tmp_path)[1]))
    assert len(lines) < 110 and "50 more" in lines[100]


@pytest.mark.parametrize("year", [1970, 1980, 2024])
def test_a_file_s_time_of_long_ago_needs_a_look(tmp_path, year):
    hand_in(tmp_path / "ada", time_s=datetime(year, 1, 2).timestamp())
    ((one,), _) = submissions.find(tmp_path, {LAB: DUE})
    assert one.claims.startswith(f"{year}-01-02")


@pytest.mark.parametrize("names", [("Ada", "ada"), ("STRASSE", "straße")])
def test_two_names_for_one_page_are_an_error(tmp_path, names):
    for name in names:
        hand_in(tmp_path / name)
    if len(list(tmp_path.iterdir())) < 2:
        pytest.skip("this file system does not tell these names apart")
    with pytest.raises(InputError, match="would have one page: rename"):
        submissions.find(tmp_path)


def test_a_cut_name_s_own_number_is_long():
    """Of a checksum, another name with the same number is found in no time."""
    names = {submissions.shown("a" * 100 + str(i))[-11:] for i in range(1000)}
    assert len(names) == 1000 and all(name[0] == "~" for name in names)


def clone(folder, name, student):
    hand_in(folder / name / "labs")
    return Repository(name, student, DUE)


@pytest.mark.parametrize("what", ["labs", "repository", "notebook"])
def test_a_link_to_a_fellow_student_s_clone_is_not_collected(tmp_path, what):
    clones, out = tmp_path / "clones", tmp_path / "out"
    ada = clone(clones, "lab-ada", "ada")
    mallory = Repository("lab-mallory", "mallory", DUE)
    if what == "repository":
        (clones / "lab-mallory").symlink_to(clones / "lab-ada")
    elif what == "labs":
        (clones / "lab-mallory").mkdir()
        (clones / "lab-mallory" / "labs").symlink_to("../lab-ada/labs")
    else:
        (clones / "lab-mallory" / "labs").mkdir(parents=True)
        link = clones / "lab-mallory" / "labs" / f"{LAB}.ipynb"
        link.symlink_to(f"../../lab-ada/labs/{LAB}.ipynb")
    collected = github.collect(LAB, clones, [ada, mallory], out)
    copied = {one.repository.student: one.there for one in collected}
    assert len(copied["ada"]) == 1 and copied["mallory"] == []


@pytest.mark.parametrize("linked", ["student", "folder", "notebook"])
def test_a_link_in_a_folder_of_submissions_is_not_followed(tmp_path, linked):
    folder = tmp_path / "class"
    hand_in(folder / "ada" / "inner")
    if linked == "student":
        (folder / "mallory").symlink_to(folder / "ada")
    else:
        (folder / "mallory").mkdir()
        target = folder / "ada" / "inner"
        if linked == "folder":
            (folder / "mallory" / "mine").symlink_to(target)
        else:
            (folder / "mallory" / f"{LAB}.ipynb").symlink_to(target / f"{LAB}.ipynb")
    found, _ = submissions.find(folder)
    assert [one.student for one in found] == ["ada"]


@pytest.mark.parametrize(
    "name, student",
    [
        ("mallory_5_6_ada_99_77_01_strides.ipynb", None),  # or the file of a mallory_5_6_ada
        ("mallory_LATE_5_6_01_strides.ipynb", "5"),
        ("mallory_5_6_..\\..\\99\\01_strides.ipynb", "5"),
        ("../99/mallory_5_6_01_strides.ipynb", None),
        ("mallory_5_6_/etc/01_strides.ipynb", None),
    ],
)
def test_a_file_s_name_in_canvas_s_zip_names_nobody_else(tmp_path, name, student):
    path = tmp_path / "submissions.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "{}")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("ada_1_2_01_strides.ipynb", "[]")
    done = canvas_submissions.unpack(path, tmp_path / "out")
    assert done.students - {"1"} == ({student} if student else set())
    assert len(done.left_out) == (student is None)
    ours = (path, tmp_path / "out" / submissions.WITHOUT_TIMES)
    written = [p for p in tmp_path.rglob("*") if p.is_file() and p not in ours]
    assert all(p.parent.parent == tmp_path / "out" for p in written)
    assert {p.parent.name for p in written} == {"1", *filter(None, [student])}


def test_a_link_in_canvas_s_zip_is_a_file(tmp_path):
    path, info = tmp_path / "submissions.zip", zipfile.ZipInfo("mallory_5_6_01_strides.ipynb")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    canvas_submissions.unpack(path, tmp_path / "out")
    unpacked = tmp_path / "out" / "5" / "01_strides.ipynb"
    assert not unpacked.is_symlink() and unpacked.read_text() == "/etc/passwd"


FORMULAS = [
    "=cmd|'/c calc'!A1",
    "＝cmd|'/c calc'!A1",
    "＋1+1",
    "－2",
    "＠SUM(1)",
    " =1+1",
    "\u00a0=1+1",
    "\t=1",
    "+1",
    "@x",
    "wrong;=cmd|'/c calc'!A1",
    "wrong; =1+1",
    "wrong;＝1",
    "wrong\n=1+1",
    "wrong\r@x",
    "wrong;+cmd",
    "wrong;-cmd",
]


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("separator", [",", ";"])
def test_no_cell_of_a_table_is_a_formula_whatever_separates_cells(tmp_path, text, separator):
    path = tmp_path / "x.csv"
    tables.write(path, ["student", "answer"], [{"student": "ada", "answer": text}])
    cells = list(csv.reader(io.StringIO(path.read_text(), newline=""), delimiter=separator))
    for cell in (cell for row in cells for cell in row):
        assert cell.lstrip()[:1] not in tuple("=@＝＠＋－"), cells
        assert not (cell.lstrip()[:1] in "+-" and cell.strip()), cells


@pytest.mark.parametrize("text", ["gave -1; want -2.5", "x\n- 3", "a = 1", "want [1, -2]"])
def test_what_is_no_formula_stays_as_it_is(text):
    assert report.plain(text) == text
