"""nbgrader's gradebook, read back through its own API. Needs nbgrader, which students don't."""

import subprocess
import sys
import types

import nbformat
import pytest

from grading import __main__ as command
from grading import report
from grading.lms import nbgrader as gradebook
from grading.report import Result
from grading.source import build
from grading.source import labs as lab
from grading.submissions import Submission

FIRST = lab.names()[0]
LAB = lab.read(FIRST)
SLICED = LAB.exercise("sliced").points
EVIL = "<script>alert(1)</script>"
CONFIG = """\
from nbgrader.plugins import BasePlugin
class Tenth(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return score / 10
c = get_config()
c.AssignLatePenalties.plugin_class = Tenth
"""


def rows(student, **failed):
    results = [
        Result(
            f"{e.number} {e.name}",
            0 if e.name in failed else e.points,
            e.points,
            "failed" if e.name in failed else "passed",
            failed.get(e.name, ""),
        )
        for e in LAB.exercises
    ]
    return report.rows(student, FIRST, results)


def test_a_comment_is_shown_letter_by_letter():
    assert gradebook.as_code(f"gave {EVIL}\nwant 3") == f"    gave {EVIL}\n    want 3"


def test_the_notebook_that_nbgrader_shows_is_ours_with_their_answers(tmp_path):
    path = tmp_path / "x.ipynb"
    nbformat.write(build.lab_notebook(LAB.filled(LAB.solution)), path)
    shown = gradebook._shown(LAB, rows("ada", sliced="gave 1"), Submission("ada", FIRST, path))
    marked = [cell.metadata["nbgrader"] for cell in shown.cells if "nbgrader" in cell.metadata]
    assert len({mark["grade_id"] for mark in marked}) == 2 * len(LAB.exercises)
    assert sum(mark.get("points", 0) for mark in marked) == sum(e.points for e in LAB.exercises)
    assert LAB.solution["sliced"] in [cell.source for cell in shown.cells]
    assert "failed: gave 1" in [
        output.text for cell in shown.cells for output in cell.get("outputs", [])
    ]


@pytest.fixture
def course(tmp_path):
    """nbgrader's API, its folder of a course with our points, and the function that wrote them."""
    api = pytest.importorskip("nbgrader.api")
    (tmp_path / "nbgrader_config.py").write_text(CONFIG)
    handed_in = {
        (student, FIRST, 1): Submission(student, FIRST, tmp_path / "none.ipynb", time_s=time_s)
        for student, time_s in (("ada", 1.8e9), ("bob", 1.8e9 + 60))
    }
    all_rows = rows("ada") + rows("bob", sliced=EVIL) + rows("Lovelace, Ada")

    def write():
        return gradebook.write(all_rows, handed_in, tmp_path, {FIRST: 1.8e9})

    assert [write(), write()] == [3, 3]  # a second time changes nothing
    return lambda: api.Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}"), tmp_path, write


def test_the_rows_are_right_in_nbgrader_s_own_eyes(course):
    open_book, folder, _ = course
    # The formgrader lists the assignments in this folder.
    listed = build.read(folder / "source" / FIRST / f"{FIRST}.ipynb")
    ours = build.lab_notebook(LAB)
    assert [cell.source for cell in listed.cells] == [cell.source for cell in ours.cells]
    most = sum(e.points for e in LAB.exercises)
    with open_book() as book:
        ada, bob = (book.find_submission(FIRST, student) for student in ("ada", "bob"))
        assert (ada.score, ada.max_score) == (most, most)
        assert (ada.total_seconds_late, ada.late_submission_penalty) == (0, 0)
        assert (bob.score, bob.total_seconds_late) == (most - SLICED, 60)
        assert bob.late_submission_penalty == pytest.approx(bob.score / 10)
        assert not ada.needs_manual_grade
        lovelace = book.find_student("Lovelace, Ada")
        assert (lovelace.last_name, lovelace.first_name) == ("Lovelace", "Ada")


def test_what_a_person_wrote_stays(course):
    open_book, _, write = course
    with open_book() as book:
        book.find_student("bob").first_name = "Robert"
        grade = book.find_grade("check-2-1-sliced", FIRST, FIRST, "bob")
        grade.manual_score = SLICED
        book.db.commit()
    write()
    with open_book() as book:
        most = sum(e.points for e in LAB.exercises)
        assert book.find_submission(FIRST, "bob").score == most, "a grader's own mark stays"
        assert book.find_student("bob").first_name == "Robert"


def test_a_message_is_text_in_nbgrader_s_feedback(course):
    _, folder, _ = course
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_feedback", FIRST, "--course", "x"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    page = (folder / "feedback" / "bob" / FIRST / f"{FIRST}.html").read_text()
    assert EVIL not in page and "&lt;script&gt;alert(1)" in page


def test_without_alembic_it_says_what_to_install_and_writes_nothing(tmp_path, monkeypatch, capsys):
    api = types.ModuleType("nbgrader.api")
    api.Gradebook = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nbgrader", types.ModuleType("nbgrader"))
    monkeypatch.setitem(sys.modules, "nbgrader.api", api)
    monkeypatch.setattr(gradebook.shutil, "which", lambda name: None)
    for name in ("submissions", "results"):
        (tmp_path / name).mkdir()
    report.write(rows("ada"), tmp_path / "results")
    folders = [str(tmp_path / name) for name in ("submissions", "results", "course")]
    assert command.main(["nbgrader", *folders]) == 2
    said = capsys.readouterr().err
    assert "alembic, which is not installed: pip install 'ml-systems-labs[gradebook]'" in said
    assert not (tmp_path / "course").exists()


def test_without_nbgrader_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "nbgrader", None)
    monkeypatch.setitem(sys.modules, "nbgrader.api", None)
    report.write(rows("ada"), tmp_path)
    assert command.main(["nbgrader", *[str(tmp_path)] * 3]) == 2
    assert "pip install 'ml-systems-labs[gradebook]'" in capsys.readouterr().err


def test_it_says_what_of_the_marks_nbgrader_does_not_get():
    written, off = (Result("written 1", 1, 2, "marked"), Result("late", -2, 0, "late"))
    absent = report.rows("bob", FIRST, [Result("written 1", 0, 2, "not handed in")])
    more = report.rows("ada", FIRST, [written, off])
    said = list(gradebook.not_carried_over([*rows("ada"), *more, *absent]))
    assert len(said) == 2
    assert "the points of 1 written answer" in said[0] and "lateness took off, once" in said[1]
    assert not list(gradebook.not_carried_over(rows("ada")))


def test_bad_input_gets_one_sentence(tmp_path, capsys):
    assert command.main(["nbgrader", *[str(tmp_path)] * 3]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
