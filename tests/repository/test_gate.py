"""Which tests `make test` runs: nothing that a change can break is left out."""

import datetime
import os
import subprocess
import sys

import pytest

from common.paths import ROOT
from grading.source import labs
from tests.gate import changes, selection, subjects, verdicts
from tests.gate.selection import Case, Plan
from tests.gate.subjects import Subject

LAB = Subject("answers of a lab", frozenset({"lab.py"}), frozenset({"wrong.py"}))
NOTHING: frozenset[str] = frozenset()
READER = "grading/source/notebook.py"  # of a student's file


def answer(number, exercise="a"):
    return Case(LAB, f"verdict {exercise} {number}", f"{exercise} {number}", exercise, 2)


def reasons(cases, changed=(), known=(), seed="a commit"):
    return Plan(frozenset(changed), frozenset(known), seed).reasons(cases)


# The rule


def test_a_test_without_a_subject_always_runs():
    assert reasons([Case(None)]) == ["fast"]


@pytest.mark.parametrize("changed", ["lab.py", "wrong.py"])
def test_what_has_changed_runs_whole(changed):
    assert reasons([answer(n) for n in range(9)], [changed]) == ["changed"] * 9


def test_what_passed_before_with_the_same_text_does_not_run_again():
    cases = [answer(n) for n in range(3)]
    known = [case.verdict for case in cases[:2]]
    assert reasons(cases, ["lab.py"], known) == ["known", "known", "changed"]


def test_without_a_seed_all_runs_that_is_not_known():
    cases = [answer(n) for n in range(9)]
    found = reasons(cases, known=[cases[0].verdict], seed=None)
    assert found == ["known"] + ["new"] * 8


def test_of_each_exercise_a_sample_is_drawn_from_what_is_not_known():
    cases = [answer(n, exercise) for exercise in "ab" for n in range(9)]
    known = [case.verdict for case in cases[:3]]
    found = reasons(cases, known=known)
    assert found[:3] == ["known"] * 3
    assert [found[:9].count("drawn"), found[9:].count("drawn")] == [2, 2]
    assert found == reasons(cases, known=known), "two processes would run different tests"


def test_a_week_of_commits_meets_every_answer():
    """Of 16 answers two are drawn: 50 commits leave one out with a probability of 2 %."""
    cases, met = [answer(n) for n in range(16)], set()
    for commit in range(50):
        met |= {n for n, r in enumerate(reasons(cases, seed=str(commit))) if r == "drawn"}
    assert met == set(range(16))


@pytest.mark.parametrize("count, runs", [(selection.MANY, 9), (selection.MANY + 1, 3)])
def test_of_what_concerns_many_labs_a_part_of_each_runs(count, runs):
    files = frozenset({"grader.py"})
    of = [Subject(f"answers of {n}", files, frozenset({f"{n}/wrong.py"})) for n in range(count)]
    cases = [Case(s, f"{s.name} {n}", f"{s.name} {n}", s.name, 0) for s in of for n in range(9)]
    found = reasons(cases, files)
    by_lab = [found[start : start + 9].count("changed") for start in range(0, len(found), 9)]
    assert by_lab == [runs] * count
    assert set(reasons(cases, files, seed=None)) == {"new"}


def test_a_notebook_runs_whole_or_not_at_all():
    books = [Subject(f"notebook {n}", frozenset({f"{n}.ipynb"})) for n in range(6)]
    cells = [Case(b, f"{b.name} {n}", b.name, "books", 2) for b in books for n in range(3)]
    found = reasons(cells, ["0.ipynb"], known=[cell.verdict for cell in cells[3:6]])
    by_book = [set(found[start : start + 3]) for start in range(0, 18, 3)]
    assert by_book[:2] == [{"changed"}, {"known"}]
    assert sorted(map(sorted, by_book[2:])) == [["drawn"]] * 2 + [["left out"]] * 2
    one_cell_unknown = reasons(cells, ["0.ipynb"], known=[cell.verdict for cell in cells[:2]])
    assert one_cell_unknown[:3] == ["changed"] * 3


def test_an_account_names_what_runs_and_why():
    cases = [Case(None), answer(1), answer(2)]
    lines = selection.account(cases, reasons(cases, ["lab.py"], [cases[1].verdict]))
    assert lines == [
        "1 test is fast, and always run.",
        "1 test is run because of a change: answers of a lab.",
        "1 test is not run again, because the same text passed before.",
    ]


# What a verdict depends on


def depend_on(path, kind=subjects.answers):
    return [lab for lab in labs.names() if kind(lab).changed(frozenset({path}))]


@pytest.mark.parametrize("lab", labs.names())
def test_a_lab_s_answers_depend_on_its_text_its_helpers_its_answers_and_the_grader(lab):
    needed = subjects.answers(lab)
    for path in (
        f"solutions/{lab}.py",
        f"tests/labs/{lab[3:]}/wrong.py",
        "grading/score.py",
        READER,
    ):
        assert needed.changed(frozenset({path})), path
    checks = "\n".join(c.source for e in labs.read(lab).exercises for c in e.checks)
    for module in subjects.imported(checks):
        path = f"{module.replace('.', '/')}.py"
        assert not (ROOT / path).is_file() or path in needed.files or "common" not in path, path


def test_what_one_lab_compares_with_concerns_this_lab_alone():
    assert depend_on("common/lessons/strides/expected.py") == ["01_strides"]
    assert depend_on("common/lessons/strides/caches.py", subjects.notebook) == ["01_strides"]


def test_a_simulator_concerns_the_labs_that_use_it():
    with_threads = depend_on("nogpu/simt/races.py")
    assert "03_cuda_kernels" in with_threads and "01_strides" not in with_threads
    assert depend_on("nogpu/simt/report.py") == with_threads, "all modules of it, or none"
    ranks = depend_on("nogpu/ranks/clock.py")
    assert set(ranks) >= {name for name in labs.names() if "11" <= name[:2] <= "15"}


def test_what_serves_a_class_concerns_no_lab():
    for path in ("grading/lms/canvas.py", "grading/feedback.py", "README.md", "book/texts.py"):
        assert depend_on(path) == [], path


def test_data_beside_a_module_counts():
    assert depend_on("common/samples/digits.npz", subjects.notebook) or depend_on(
        "common/figures/course.mplstyle", subjects.notebook
    )


def test_a_new_text_or_a_new_package_is_a_new_key(monkeypatch):
    subject = Subject("one", frozenset({"README.md"}))
    assert subject.key == Subject("two", frozenset({"README.md"})).key
    assert subject.key != Subject("one", frozenset({"LICENSE"})).key
    before = subject.key
    monkeypatch.setattr(subjects, "_machine", lambda: "another Python")
    assert Subject("one", frozenset({"README.md"})).key != before


def test_a_slow_test_depends_on_what_it_imports_and_on_what_it_names():
    files = subjects.slow("tests/repository/test_gate.py", ("solutions/01_*.py",)).files
    assert files >= {"tests/gate/selection.py", "grading/source/labs.py", "solutions/01_strides.py"}
    assert "grading/lms/canvas.py" not in files


def test_a_test_file_belongs_to_the_lab_in_whose_folder_it_lies():
    assert subjects.labs_of_test("tests/labs/strides/test_expected_strides.py") == {"01_strides"}
    for path in ("tests/grading/test_wire.py", "tests/labs/test_labs.py"):
        assert subjects.labs_of_test(path) == NOTHING


# What git says


def test_what_has_changed_is_what_git_does_not_find_in_the_base(tmp_path, monkeypatch):
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    monkeypatch.delenv("COURSE_BASE", raising=False)
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text("old")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "First"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    first = changes.commit()
    assert (changes.base(), changes.files(first)) == (first, NOTHING)
    (tmp_path / "one").write_text("new")
    subprocess.run([*git, "commit", "-qam", "Second"], cwd=tmp_path, check=True)
    (tmp_path / "two").write_text("new")
    (tmp_path / "four").write_text("new")
    assert changes.files(changes.base()) == {"two", "four"}
    monkeypatch.setenv("COURSE_BASE", first)
    assert changes.files(changes.base()) == {"one", "two", "four"}
    monkeypatch.setenv("COURSE_BASE", "nowhere")
    with pytest.raises(SystemExit, match="'nowhere', which is no commit"):
        changes.base()


def test_outside_of_git_nothing_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    monkeypatch.delenv("COURSE_BASE", raising=False)
    assert (changes.base(), changes.files(""), changes.commit()) == ("", NOTHING, "")


# What passed before


def test_a_verdict_is_remembered_for_a_month(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_VERDICTS", str(tmp_path / "kept"))
    assert verdicts.known() == NOTHING
    verdicts.remember(["a", "b"])
    verdicts.remember(["c"])
    assert verdicts.known() == {"a", "b", "c"}
    (path,) = (tmp_path / "kept").iterdir()
    long_ago = datetime.date.today() - datetime.timedelta(verdicts.DAYS + 1)
    path.rename(path.with_name(f"{long_ago}.txt"))
    assert verdicts.known() == NOTHING and not list((tmp_path / "kept").iterdir())


def test_where_nothing_can_be_kept_a_run_goes_on(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_VERDICTS", str(tmp_path / "file"))
    verdicts.remember(["a"])
    assert "could not be kept" in capsys.readouterr().out


# Together


@pytest.mark.slow("tests/gate/plugin.py", "tests/labs/test_labs.py")
def test_what_passed_in_processes_is_not_run_again_without_them(tmp_path):
    def gate(*options):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--new", *options]
        chosen = ["tests/labs/test_labs.py", "-k", "untouched_lab and (01_strides or 02_arith)"]
        env = os.environ | {"COURSE_VERDICTS": str(tmp_path)}
        env.pop("PYTEST_XDIST_WORKER_COUNT", None)
        done = subprocess.run(
            [*command, *chosen], cwd=ROOT, env=env, capture_output=True, text=True
        )
        return done.stdout

    assert "2 passed" in gate("-n", "2")
    assert "2 tests are not run again" in gate("-n", "0")
