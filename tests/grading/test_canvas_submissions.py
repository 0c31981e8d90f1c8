"""Canvas's zip of submissions laid out for the grader, and the zip of pages that goes back.

The names are those that Canvas writes: https://github.com/instructure/canvas-lms, the methods
add_upload_submission, get_filename and sanitize_user_name of lib/content_zipper.rb. A file that is
handed in again under its old name gets -1 to -7, and then a random word: make_unique_filename of
app/models/attachment.rb. How Canvas reads the names of files that come back:
infer_comment_context_from_filename of app/models/abstract_assignment.rb.
"""

import re
import zipfile

import pytest

from grading import __main__ as command
from grading import classroom, report, submissions
from grading.errors import InputError
from grading.lms import canvas_names, canvas_submissions
from grading.source import notebook

FIRST, SEVENTH = "01_strides", "07_autodiff"


def zipped(folder, *names, text="{}", archive="submissions.zip"):
    """What Canvas's Download Submissions gives: an archive in which each file is a notebook."""
    with zipfile.ZipFile(folder / archive, "w") as files:
        for name in names:
            files.writestr(name, text)
    return folder / archive


def unpack(archive, folder, *more):
    return command.main(["canvas", "unpack", str(archive), str(folder), *more])


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
    assert unpack(archive, folder, "--lab", "01", "--lab", "02") == 0
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
        assert unpack(tmp_path / name, tmp_path / "class") == 2
        assert says in capsys.readouterr().err


def pages(results, *students):
    """A folder of results with a page for each student."""
    report.write([], results)
    (results / "feedback").mkdir()
    for student in students:
        (results / "feedback" / f"{student}.html").write_text(f"page of {student}")


def test_feedback_goes_back_under_the_names_that_canvas_knows(tmp_path, capsys):
    """Canvas takes the first two numbers between underscores for the ids of student and file."""
    pages(tmp_path, "11", "12")
    archive = zipped(
        tmp_path,
        "lovelaceada_11_345678_01_strides.ipynb",
        "lovelaceada_11_345690_01_strides-1.ipynb",
        "o_neillzofia_LATE_12_345679_01_strides-2 (1).ipynb",
        "babbagecharles_13_345681_01_strides.ipynb",
        "babbagecharles_13_345681_essay.pdf",
    )
    assert command.main(["canvas", "feedback", str(tmp_path), str(archive)]) == 0
    with zipfile.ZipFile(tmp_path / "canvas_feedback_01.zip") as files:
        found = {tuple(_numbers(name)): files.read(name) for name in files.namelist()}
        assert all(name.endswith(".html") for name in files.namelist())
    assert found == {("11", "345690"): b"page of 11", ("12", "345679"): b"page of 12"}
    assert "left out: 13" in capsys.readouterr().out


def _numbers(name):
    """As Canvas reads a name (Assignment#infer_comment_context_from_filename)."""
    return [part for part in name.split("_") if part.isdecimal()][:2]


def test_a_name_like_canvas_s_own_hands_in_for_nobody_else(tmp_path, capsys):
    """Mallory's name in Canvas is "x_11_5_01_strides": her file begins as one of student 11."""
    folder = tmp_path / "class"
    archive = zipped(
        tmp_path,
        "x_11_5_66_777_01_strides.ipynb",
        "x_11_5_01_strides_66_777_01_strides.ipynb",
        "lovelaceada_11_345678_01_strides_2026_11_20_last.ipynb",
    )
    assert unpack(archive, folder) == 0
    (one,) = submissions.find(folder)[0]
    assert (one.student, one.path.name) == ("11", "01_strides_2026_11_20_last.ipynb")
    assert capsys.readouterr().out.count("left out: x_11_5") == 2


@pytest.mark.parametrize("name", ["lab01", "my01_strides", "01-strides", "Copy of 01_strides"])
def test_a_name_that_ends_in_an_id_hands_in_for_nobody_else(name):
    """Mallory, of id 66, is called "x_11" in Canvas."""
    with pytest.raises(InputError, match="two students' ids can be read"):
        canvas_names.parsed(f"x_11_66_777_{name}.ipynb")
    assert canvas_names.parsed(f"x_66_777_{name}.ipynb") == ("66", f"{name}.ipynb")


def test_a_name_without_letters_keeps_its_owner():
    """Of the name "?!", Canvas leaves nothing."""
    for late in ("", "LATE_"):
        given = canvas_names.parsed(f"_{late}11_345678_01_strides.ipynb")
        assert given == ("11", "01_strides.ipynb")


def test_a_name_that_no_file_can_have_is_read_in_no_time():
    with pytest.raises(InputError, match="no file can have this name"):
        canvas_names.parsed(f"bob_12_3457_{'1_' * 30_000}01_strides.ipynb")


def test_a_second_file_does_not_replace_the_first(tmp_path, capsys):
    archive, folder = tmp_path / "submissions.zip", tmp_path / "class"
    with zipfile.ZipFile(archive, "w") as files:
        for name, text in (("ada_11_1_01_strides.ipynb", "a"), ("eve_11_2_01_strides.ipynb", "b")):
            files.writestr(name, text)
    assert unpack(archive, folder) == 0
    assert (folder / "11" / "01_strides.ipynb").read_text() == "a"
    assert "left out: eve_11_2" in capsys.readouterr().out


def test_a_later_assignment_brings_no_new_work_for_an_earlier_lab(tmp_path, capsys):
    folder = tmp_path / "class"
    first = zipped(tmp_path, "ada_1001_1_01_strides.ipynb", text="first", archive="a01.zip")
    names = ("ada_1001_3_07_autodiff.ipynb", "ada_1001_4_01_strides-2.ipynb")
    later = zipped(tmp_path, *names, text="later", archive="a07.zip")
    assert unpack(first, folder) == 0
    assert unpack(later, folder) == 2, "which lab is the assignment's?"
    assert "several labs, 01_strides, 07_autodiff" in capsys.readouterr().err
    assert unpack(later, folder, "--lab", "07") == 0
    assert "left out: ada_1001_4_01_strides-2.ipynb (it is for lab" in capsys.readouterr().out
    found = {one.lab: one.path.read_text() for one in submissions.find(folder)[0]}
    assert found == {FIRST: "first", SEVENTH: "later"}
    assert unpack(first, folder, "--lab", "07") == 2
    assert "no notebook for lab 07_autodiff: it holds 01_strides" in capsys.readouterr().err


def test_a_file_that_is_there_stays_and_a_resubmission_comes_beside_it(tmp_path, capsys):
    folder, name = tmp_path / "class", "ada_1001_{}_01_strides{}.ipynb"
    path = folder / "1001" / "01_strides.ipynb"
    archive = zipped(tmp_path, name.format(1, ""), text="first")
    assert unpack(archive, folder) == 0
    before = path.stat().st_mtime_ns
    assert unpack(archive, folder) == 0
    assert path.stat().st_mtime_ns == before, "the same file keeps its time"
    assert "left out" not in capsys.readouterr().out
    assert unpack(zipped(tmp_path, name.format(9, ""), text="other"), folder) == 0
    said = capsys.readouterr().out
    assert path.read_text() == "first" and "there already with other content, and stays" in said
    assert unpack(zipped(tmp_path, name.format(9, "-1"), text="second"), folder) == 0
    found, _ = submissions.find(folder)
    assert [(one.path.read_text(), one.counts) for one in found] == [
        ("first", False),
        ("second", True),
    ]


def damaged(archive):
    content = archive.read_bytes().replace(b"in the zip file", b"in the zip fly")
    archive.write_bytes(content)


def encrypted(archive):
    """The bit that says so, in the file's own header and in the archive's list."""
    content = bytearray(archive.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + place] |= 1
    archive.write_bytes(content)


def packed_oddly(archive):
    content = bytearray(archive.read_bytes())
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(mark) + place] = 9  # Deflate64
    archive.write_bytes(content)


@pytest.mark.parametrize(
    "spoil, why",
    [
        (damaged, notebook.DAMAGED),
        (encrypted, notebook.ENCRYPTED),
        (packed_oddly, notebook.UNKNOWN_PACKING),
        (None, notebook.TOO_LARGE),
    ],
)
def test_what_can_t_be_unpacked_is_handed_in_and_unreadable(
    spoil, why, tmp_path, capsys, monkeypatch
):
    text, folder = "This is in the zip file." * 9, tmp_path / "class"
    archive = zipped(tmp_path, "ada_1001_1_01_strides.ipynb", text=text)
    if spoil:
        spoil(archive)
    else:
        monkeypatch.setattr(canvas_submissions, "MAX_NOTEBOOK_BYTES", 100)
        monkeypatch.setattr(canvas_submissions, "PIECE_BYTES", 64)
    assert unpack(archive, folder) == 0
    assert f"left out: ada_1001_1_01_strides.ipynb (it {why})" in capsys.readouterr().out
    (one,) = submissions.find(folder)[0]
    assert classroom.read(one) == f"01_strides.ipynb {why}"
    monkeypatch.undo()
    assert unpack(zipped(tmp_path, "ada_1001_1_01_strides.ipynb", text="{}"), folder) == 0
    assert one.path.read_text() == "{}", "a whole file replaces what stood in for it"


def test_each_file_that_is_left_out_has_its_own_reason(tmp_path, capsys):
    archive = zipped(
        tmp_path,
        "ada_1001_1_01_strides.ipynb",
        "ada_1001_2_essay.pdf",
        "essay.ipynb",
        "anon_4fGh7_345_01_strides.ipynb",
        f"eve_1002_5_{'x' * 300}.ipynb",
        "x_11_5_66_777_01_strides.ipynb",
        "zoe_1003_6_final.ipynb",
        "bob_1004_7_01_Strides.IPYNB",
    )
    assert unpack(archive, tmp_path / "class") == 0
    said = capsys.readouterr().out
    for name, why in (
        ("ada_1001_2_essay.pdf", "it is not a notebook"),
        ("essay.ipynb", "Canvas gives no such name"),
        ("anon_4fGh7_345_01_strides.ipynb", "the assignment is anonymous"),
        ("eve_1002_5_x+.ipynb", "no file can have this name"),
        ("x_11_5_66_777_01_strides.ipynb", "two students' ids"),
    ):
        assert re.search(rf"left out: {name} \({why}", said)
    assert "final.ipynb (no lab has this name" in said
    found, strays = submissions.find(tmp_path / "class")
    assert {(one.student, one.lab) for one in found} == {("1001", FIRST), ("1004", FIRST)}
    assert [path.name for path in strays] == ["final.ipynb"]


def test_who_handed_in_no_notebook_did_not_hand_in_nothing(tmp_path):
    folder = tmp_path / "class"
    names = (
        "ada_1001_1_01_strides.ipynb",
        "ada_1001_2_a.pdf",
        "bob_1002_3_b.pdf",
        "x_9_5_6_7_c.pdf",
    )
    for _ in range(2):
        assert unpack(zipped(tmp_path, *names), folder) == 0
        ada, bob = submissions.find(folder)[0]
        assert ada.path.read_text() == "{}" and bob.student == "1002"
        assert classroom.read(bob) == f"01_strides.ipynb {notebook.OTHER_KIND}"
    assert unpack(zipped(tmp_path, names[0], "ada_1001_9_a.pdf"), folder) == 0
    assert unpack(zipped(tmp_path, "eve_1_1_01_strides.ipynb", names[1]), folder) == 0
    assert submissions.find(folder)[0][1].path.read_text() == "{}", "what they handed in before"
    typed = "cyd_LATE_1003_text.html", "dan_1004_link.html"
    assert unpack(zipped(tmp_path, names[0], *typed), folder) == 0
    assert {"1003", "1004"} <= {one.student for one in submissions.find(folder)[0]}
    assert unpack(zipped(tmp_path, "bob_1002_4_01_strides.ipynb"), folder) == 0
    assert bob.path.read_text() == "{}"


def test_a_zip_that_is_not_canvas_s_is_refused(tmp_path, capsys):
    assert unpack(zipped(tmp_path, "01_strides.ipynb", "essay.pdf"), tmp_path / "class") == 2
    assert "has no notebook with a name that Canvas gives" in capsys.readouterr().err
    assert not (tmp_path / "class").exists()


def test_each_assignment_has_its_own_zip_of_pages(tmp_path, capsys):
    pages(tmp_path, "11", "12")
    first = ("a_11_1_01_strides.ipynb", "b_12_2_01_strides.ipynb")
    seventh = ("a_11_3_07_autodiff.ipynb", "b_12_4_07_autodiff.ipynb", "b_12_5_01_strides.ipynb")
    for names in (first, seventh):
        archive = zipped(tmp_path, *names)
        assert command.main(["canvas", "feedback", str(tmp_path), str(archive)]) == 0
    found = {path.name for path in tmp_path.glob("canvas_feedback*")}
    assert found == {"canvas_feedback_01.zip", "canvas_feedback_07.zip"}
    assert command.main(["canvas", "feedback", str(tmp_path / "none"), str(archive)]) == 2
    assert "none does not exist: grade first" in capsys.readouterr().err
