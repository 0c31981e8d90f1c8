"""A class: attempts and deadlines, what a second run keeps, what is gathered for reading."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import nbformat
import psutil
import pytest

from common.paths import ROOT
from grading import __main__ as command
from grading import classroom, feedback, grade, report, similar, store, submissions
from grading.errors import InputError
from grading.jail import choice
from grading.report import Result
from grading.source import build
from grading.source import labs as lab
from grading.source.holes import BLANK, Answer
from grading.submissions import Submission
from tests.processes import alive, until

FIRST = lab.names()[0]
LAB = lab.read(FIRST)
NOWHERE = Path("none.ipynb")


def hand_in(path, texts=None, edit=None):
    """A submission of the first lab: solved but for some holes."""
    built = build.lab_notebook(LAB.filled(LAB.solution | (texts or {})))
    if edit:
        edit(built)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(built, path)
    return path


def wrong(number):
    """A wrong answer to an exercise that is worth one point; another text for each number."""
    return f"def broadcasted(view, shape):\n    return {number}"


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def seconds(text):
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    "names",
    [
        [f"{FIRST}-Copy1.ipynb", f"{FIRST}.ipynb"],
        [f"{FIRST}.ipynb", f"{FIRST}_1.ipynb", f"{FIRST}-2.ipynb", f"{FIRST} (10).ipynb"],
        [f"{FIRST}-7.ipynb", f"{FIRST}-550e8400-e29b-41d4-a716-446655440000.ipynb"],
        [
            f"{FIRST}_2026-11-01T09-30-00.ipynb",
            f"{FIRST}_2026-11-02T08-00.ipynb",
            f"{FIRST}_2026-11-02 18:00:00.ipynb",
        ],
        [f"20261101-093000/{FIRST}.ipynb", f"20261102-080000/{FIRST}.ipynb"],
    ],
    ids=["copies", "numbers", "canvas", "times", "folders"],
)
def test_attempts_are_distinguished(tmp_path, names):
    touch(tmp_path / "ada", *reversed(names))
    attempts, strays = submissions.find(tmp_path)
    assert [str(one.path.relative_to(tmp_path / "ada")) for one in attempts] == names and not strays
    assert [one.attempt for one in attempts] == list(range(1, len(names) + 1))
    assert [one.counts for one in attempts] == [False] * (len(names) - 1) + [True]
    assert [one.counts for one in submissions.find(tmp_path, count="first")[0]] == [True] + [
        False
    ] * (len(names) - 1)
    assert all(one.counts for one in submissions.find(tmp_path, count="best")[0])


def test_capitals_in_a_notebook_s_name_change_nothing(tmp_path):
    capitals = f"{FIRST.upper()}-2.IPYNB"
    touch(tmp_path / "ada", f"{FIRST}.ipynb", capitals, f"{FIRST}_2026-11-02T08-00.Ipynb")
    attempts, strays = submissions.find(tmp_path)
    assert not strays and {one.lab for one in attempts} == {FIRST} and len(attempts) == 3
    assert [one.path.name for one in attempts][-1] == capitals


def test_a_student_s_number_is_not_a_time(tmp_path):
    touch(tmp_path / "202611010930", f"{FIRST}.ipynb")
    assert submissions.find(tmp_path)[0][0].time_s > time.time() - 60


def test_late_is_after_the_deadline(tmp_path):
    touch(tmp_path / "ada", f"{FIRST}_2026-11-01T10-00.ipynb", f"{FIRST}_2026-11-01T12-30.ipynb")
    touch(tmp_path / "bob", f"{FIRST}/{FIRST}.ipynb")
    (tmp_path / "bob" / FIRST / "timestamp.txt").write_text("2026-11-01 13:00:00.000 UTC")
    due = {FIRST: seconds("2026-11-01T12:00")}
    late = {
        (one.student, one.attempt): one.late_s
        for one in submissions.find(tmp_path, due, times="names")[0]
    }
    assert late["ada", 1] == 0 and late["ada", 2] == 1800
    assert late["bob", 1] == max(
        0, round(seconds("2026-11-01T13:00+00:00") - due[FIRST])
    )  # by this machine's zone
    assert submissions.find(tmp_path)[0][0].late_s is None


def test_deadlines_are_read(monkeypatch):
    deadlines = submissions.deadlines([f"{FIRST[:2]}=2026-11-02T12:00", "2026-11-01"])
    assert deadlines[FIRST] == seconds("2026-11-02T12:00")
    assert deadlines[lab.names()[1]] == seconds("2026-11-01T23:59:59"), "a day ends at its end"
    for word in ("tomorrow", "99=2026-11-01", "01=0001-01-01T00:00", "10000-01-01"):
        with pytest.raises(InputError, match="--deadline"):
            submissions.deadlines([word])


def test_of_several_attempts_the_best_counts():
    def one(attempt, points):
        return classroom.Graded(
            Submission("ada", FIRST, NOWHERE, attempt=attempt),
            LAB,
            [Result("1.1 x", points, 3, "passed")],
        )

    assert [
        graded.submission.attempt
        for graded in classroom.counting([one(1, 1), one(2, 3), one(3, 3)])
    ] == [2]


def test_a_late_attempt_is_best_only_if_it_is_worth_more():
    def one(attempt, points, late_s):
        submission = Submission("ada", FIRST, NOWHERE, attempt=attempt, late_s=late_s)
        return classroom.Graded(submission, LAB, [Result("1.1 x", points, 20, "passed")])

    both = [one(1, 19, 0), one(2, 20, 60)]
    for percent, best in ((0, 2), (5, 1), (10, 1)):
        (counts,) = classroom.counting(both, lambda late_s, off=percent: off if late_s else 0)
        assert counts.submission.attempt == best


@pytest.mark.parametrize("time_s", [-1e12, -1, 0, 1e11, 1e15])
def test_any_time_that_a_file_may_have_is_shown(tmp_path, monkeypatch, time_s):
    touch(tmp_path, f"ada/{FIRST}.ipynb")
    monkeypatch.setattr(submissions, "_modified_s", lambda path: time_s)
    (one,), _ = submissions.find(tmp_path, submissions.deadlines(["2026-11-01"]))
    assert bool(one.claims) == (time_s < 1), "a file from 1970 is asked about"
    assert "handed in" in feedback._handed_in(one)


@pytest.mark.parametrize(
    "text",
    ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00", "0001-01-01", "x" * 99, "\0", "²"],
)
@pytest.mark.parametrize("times", ["files", "names"])
def test_a_timestamp_may_hold_anything(tmp_path, text, times):
    touch(tmp_path, f"ada/{FIRST}.ipynb", f"bob/{FIRST}.ipynb")
    (tmp_path / "ada" / "timestamp.txt").write_text(text)
    found, _ = submissions.find(tmp_path, submissions.deadlines(["2026-11-01"]), times=times)
    assert len(found) == 2 and all(feedback._handed_in(one) for one in found)


def run_grader(folder, out, *more):
    return subprocess.run(
        [sys.executable, "-m", "grading", str(folder), "--out", str(out), "--unsafe", *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow
def test_a_second_run_grades_what_is_new_and_equal_answers_once(tmp_path):
    for student in ("ada", "bob"):
        hand_in(tmp_path / "class" / student / f"{FIRST}.ipynb")
    hand_in(
        tmp_path / "class" / "cyd" / f"{FIRST}.ipynb",
        {"broadcasted": wrong(3)},
    )
    first = run_grader(tmp_path / "class", tmp_path / "out")
    assert first.returncode == 0, first.stderr
    kept = set((tmp_path / "out" / "graded").glob("*.json"))
    assert len(kept) == 2 and "3 submissions of 3 students:" in first.stdout
    hand_in(
        tmp_path / "class" / "cyd" / f"{FIRST}.ipynb",
        {"broadcasted": f"{LAB.solution['broadcasted']}\n# another style"},
    )
    second = run_grader(tmp_path / "class", tmp_path / "out")
    assert "3 submissions of 3 students, 2 of them kept from before" in second.stdout
    assert len(set((tmp_path / "out" / "graded").glob("*.json")) - kept) == 1
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(rows) == 3 * len(LAB.exercises) and all(row["status"] == "passed" for row in rows)


def killed_after_two(folder, out):
    """Kills a grader that has graded two submissions; returns its child processes."""
    arguments = ["-m", "grading", str(folder), "--out", str(out), "--unsafe", "--jobs", "2"]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, **silent)
    children = set()
    while run.poll() is None and len(list(out.glob("graded/*.json"))) < 2:
        children |= set(psutil.Process(run.pid).children(recursive=True))
        time.sleep(0.02)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    return children


@pytest.mark.slow
def test_a_grader_that_is_killed_goes_on_where_it_was(tmp_path):
    """kill -9: no mark lost, none counted twice."""
    for i in range(7):
        hand_in(
            tmp_path / "class" / f"student{i}" / f"{FIRST}.ipynb",
            {"broadcasted": wrong(i)},
        )
    waits = (
        "import os, time\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
        f"{wrong(7)}"
    )
    hand_in(tmp_path / "class" / "student7" / f"{FIRST}.ipynb", {"broadcasted": waits})
    children = killed_after_two(tmp_path / "class", tmp_path / "out")
    before = len(list((tmp_path / "out").glob("graded/*.json")))
    assert 2 <= before < 8 and not (tmp_path / "out" / "results.json").exists()
    until(lambda: not any(map(alive, children)))  # no process is left
    (tmp_path / "go").touch()
    again = run_grader(tmp_path / "class", tmp_path / "out")
    assert f"8 submissions of 8 students, {before} of them kept from before" in again.stdout, (
        again.stderr
    )
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (
        len(rows)
        == len({(row["student"], row["exercise"]) for row in rows})
        == 8 * len(LAB.exercises)
    )
    others = [
        row for row in rows if row["student"] != "student7"
    ]  # whose cell may have had its time, on a busy machine
    assert sum(row["points"] for row in others) == 7 * sum(e.points for e in LAB.exercises) - 7


@pytest.mark.slow
def test_what_a_lost_fork_server_took_along_is_graded_again(tmp_path):
    """A machine short of memory may end it; here the answer does so, once."""
    ended = str(tmp_path / "ended")
    ends = (
        "import os, signal\n"
        f"if not os.path.exists({ended!r}):\n"
        f"    open({ended!r}, 'w').close()\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
    )
    answers = {name: Answer(text) for name, text in LAB.solution.items()}
    answers["broadcasted"] = Answer(ends + LAB.solution["broadcasted"])
    results = classroom.grade(classroom.Job(FIRST, answers))
    assert (tmp_path / "ended").exists() and isinstance(results, list)
    assert {result.status for result in results} == {"passed"}


def test_a_file_is_read_by_the_process_s_own_time(tmp_path, monkeypatch):
    """On a busy machine, no notebook counts as one on which Python's parser hangs."""
    limits = []
    monkeypatch.setattr(classroom.signal, "setitimer", lambda *limit: limits.append(limit))
    classroom.read(Submission("ada", FIRST, hand_in(tmp_path / f"{FIRST}.ipynb")))
    assert limits == [(signal.ITIMER_PROF, classroom.READ_S), (signal.ITIMER_PROF, 0)]


def test_a_folder_that_is_gone_by_now_holds_nothing(tmp_path, monkeypatch):
    touch(tmp_path, f"ada/{FIRST}.ipynb", f"bob/{FIRST}.ipynb", f"cyd/deeper/{FIRST}.ipynb")
    listed = type(tmp_path).iterdir

    def without(path):
        if path.name in ("bob", "deeper"):
            raise FileNotFoundError(path)
        return listed(path)

    monkeypatch.setattr(type(tmp_path), "iterdir", without)
    assert [one.student for one in submissions.find(tmp_path)[0]] == ["ada"]


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_end_is_reported(tmp_path, monkeypatch, capsys):
    hand_in(tmp_path / "class" / "ada" / f"{FIRST}.ipynb", {"reshaped": "reshaped = None"})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(grade.feedback, "write_students", full)
    monkeypatch.setattr(
        classroom, "each", lambda function, items, *_: ((item, function(item)) for item in items)
    )
    assert command.main([str(tmp_path / "class"), "--out", str(tmp_path / "out"), "--unsafe"]) == 2
    assert "can't be written" in capsys.readouterr().err


@pytest.mark.slow
def test_the_process_of_a_class_needs_no_pytorch(tmp_path):
    """It would hold 150 MB as long as the class is graded."""
    hand_in(tmp_path / "class" / "ada" / f"{FIRST}.ipynb")
    code = (
        "import sys; from grading.__main__ import main; main(sys.argv[1:]); "
        "print(sorted({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    works = any(choice.JAILS[name].problem() is None for name in ("bubblewrap", "landlock"))
    sandbox = [] if works else ["--unsafe"]
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "class", "--out", tmp_path / "out", *sandbox],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "1 submission of 1 student:" in run.stdout and run.stdout.endswith("[]\n"), (
        run.stdout + run.stderr
    )


def test_importing_it_changes_nothing_of_the_importing_program():
    code = """
import os, sys
before = dict(os.environ)
import grading.classroom, grading.grade, grading.source.labs
print(before == dict(os.environ), None in sys.modules.values())"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},
    )
    assert run.stdout == "True False\n", run.stdout + run.stderr


def test_what_pytorch_imports_late_is_imported_where_a_lab_uses_it(monkeypatch):
    source = """\
# %% tags=["setup"]
import math
from torch.utils.flop_counter import FlopCounterMode
# %% [markdown]
# ### Exercise 1.1 · f
# %% tags=["hole"]
def f(x):
    return x.backward()
# %% tags=["driver"]
def shown():
    torch.optim.Adam([])
# %% tags=["check"]
with FlopCounterMode(display=False):
    f(1)
# %%
shown()
"""
    monkeypatch.setattr(classroom, "lab", lambda name: lab.parse(source, name))
    worker, grader = (
        set(classroom.modules(["99_late"], tags))
        for tags in (classroom.IN_WORKER, classroom.IN_GRADER)
    )
    assert worker & grader >= {"math", "torch.utils.flop_counter"}
    assert worker - grader == {"torch.fx.experimental.symbolic_shapes"} and grader - worker == {
        "torch._dynamo"
    }


def test_one_grader_at_a_time(tmp_path):
    first = store.Store(tmp_path)
    with pytest.raises(store.BusyError):
        store.Store(tmp_path)
    del first
    store.Store(tmp_path)


def test_a_disk_without_locks_does_not_count_as_another_grader(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(OSError, match="No locks available"):
        store.Store(tmp_path)


def test_a_key_changes_with_all_that_the_points_follow_from():
    job = classroom.Job(FIRST, {"x": Answer("1")}, 0)
    others = [
        classroom.Job(FIRST, {"x": Answer("2")}, 0),
        classroom.Job(FIRST, {"x": Answer("1")}, 1),
        classroom.Job(lab.names()[1], job.answers, 0),
    ]
    assert store.Store.key(job) == store.Store.key(classroom.Job(FIRST, {"x": Answer("1")}, 0))
    assert len({store.Store.key(one) for one in (job, *others)}) == 4


def test_what_is_damaged_is_graded_again(tmp_path):
    kept = store.Store(tmp_path)
    kept.put("a", [Result("1.1 x", 1, 1, "passed")])
    assert kept.get("a") == [Result("1.1 x", 1, 1, "passed")]
    (tmp_path / "graded" / "a.json").write_text('[{"exercise": "1.1')
    assert kept.get("a") is None


def test_written_answers_are_gathered(tmp_path):
    from grading.source import notebook

    question = next(cell for cell in LAB.cells if "answer" in cell.tags).source.splitlines()[0]

    def in_place(built):
        cell = next(cell for cell in built.cells if BLANK in cell.source)
        cell.source = cell.source.replace(BLANK, "`one` is wrong.\n<b>So.</b>")

    def below(built):
        place = next(i for i, cell in enumerate(built.cells) if BLANK in cell.source)
        built.cells.insert(place + 1, nbformat.v4.new_markdown_cell("`two` is wrong."))

    def over_the_question(built):
        next(cell for cell in built.cells if BLANK in cell.source).source = "`three` copies."

    for edit, want in (
        (over_the_question, "`three` copies."),
        (in_place, "`one` is wrong.\n<b>So.</b>"),
        (below, "`two` is wrong."),
        (None, ""),
        (lambda built: built.cells.clear(), ""),
    ):
        (asked, text), *_ = notebook.written_answers(LAB, hand_in(tmp_path / "x.ipynb", edit=edit))
        assert question in asked and text == want


def test_the_screen_says_what_was_hard_and_who_needs_a_look():
    def one(student, *statuses, **more):
        results = [
            Result(f"{e.number} {e.name}", e.points * (s == "passed"), e.points, s, "")
            for e, s in zip(LAB.exercises, statuses, strict=True)
        ]
        return classroom.Graded(Submission(student, FIRST, NOWHERE, **more), LAB, results, {})

    count = len(LAB.exercises)
    graded = [
        one("ada", *["passed"] * count, late_s=7200),
        one("bob", "died", *["passed"] * (count - 1)),
        one("cyd", *["error"] * 4, *["passed"] * (count - 4)),
        one("dan", *["not attempted"] * count),
    ]
    assert report.to_look_at(graded) == [
        ("ada", FIRST[:2], "2 h 0 min late"),
        ("bob", FIRST[:2], f"died: {LAB.exercises[0].label}"),
        ("cyd", FIRST[:2], f"error: {', '.join(e.label for e in LAB.exercises[:3])} and 1 more"),
        ("dan", FIRST[:2], "nothing was attempted: is it the right file?"),
    ]
    rows = [row for one in graded for row in one.rows]
    assert rows[0]["late_s"] == 7200 and set(rows[0]) == set(report.FIELDS)
    assert report.class_table(rows).row_count == count and report.distribution(rows).row_count == 10


def test_similar_submissions_are_found_past_renaming():
    solution = LAB.solution["reshaped"]
    own = """\
def reshaped(view, shape):
    import torch
    try:
        x = torch.empty(99).as_strided(*view).view(shape)
    except RuntimeError:
        return None
    return tuple(x.shape), x.stride(), view[2]"""

    def one(student, text):
        answers = {e.name: Answer(e.stub, False) for e in LAB.exercises} | {
            "reshaped": Answer(text)
        }
        return classroom.Graded(Submission(student, FIRST, NOWHERE), LAB, [], answers)

    copied = (
        solution.replace("runs", "pieces").replace("stride", "jump").replace("elements", "many")
    )
    found = similar.pairs(
        [
            one("ada", solution),
            one("bob", copied),
            one("cyd", own),
            one("dan", LAB.exercise("reshaped").stub),
        ]
    )
    ours = "(our solution)"
    assert {pair.students for pair in found} == {(ours, "ada"), (ours, "bob"), ("ada", "bob")}
    assert all(pair.share > 0.9 and len(pair.lines[0]) > 5 for pair in found)
    everybody = [one(f"student{i}", solution) for i in range(10)]
    assert not similar.pairs(everybody), "what all wrote says nothing"


def test_a_missing_scheduler_is_reported(tmp_path):
    hand_in(tmp_path / "class" / "ada" / f"{FIRST}.ipynb")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        run = run_grader(
            tmp_path / "class",
            tmp_path / "out",
            "--scheduler",
            f"tcp://127.0.0.1:{taken.getsockname()[1]}",
        )
    assert run.returncode == 2 and "Traceback" not in run.stderr
    assert "no Dask scheduler answers" in run.stderr or "ml-systems-labs[class]" in run.stderr
