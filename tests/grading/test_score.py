"""Scoring in two processes: each answer gets its points or its reason, and the rest goes on."""

import contextlib
import json
import signal
import socket
import threading
import time

import psutil
import pytest
import torch

from grading import score
from grading.explain import explain
from grading.source import notebook
from grading.source.holes import Answer
from grading.source.labs import parse
from grading.worker.allowance import Allowance, Meter
from grading.worker.client import WorkerClient
from grading.worker.errors import StudentError, WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.session import Session
from grading.worker.transport import SocketTransport
from tests.in_one_process import score_together
from tests.mini_lab import SOURCE, mini_lab

LAB = mini_lab()
SOLUTION = {name: Answer(text) for name, text in LAB.solution.items()}


@pytest.fixture(scope="module")
def fork_server():
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


def results(fork_server, **texts):
    answers = SOLUTION | {name: Answer(text) for name, text in texts.items()}
    return {result.exercise.split()[1]: result for result in score.score(LAB, answers, fork_server)}


@pytest.mark.slow
def test_the_solution_scores_everything(fork_server):
    assert all(
        result.status == "passed" and result.points == result.max_points
        for result in results(fork_server).values()
    )


@pytest.mark.parametrize(
    "text, status, says",
    [
        ("def double(x):\n    return x * x", "failed", "That is the square."),
        (
            "def double(x):\n    while True: pass",
            "timeout",
            "took too long and was stopped (the limit is 3 s). Does a loop never end?",
        ),
        ("import os\ndef double(x):\n    os._exit(3)", "died", "ended its process (exit code 3)"),
        (
            "import os, signal\ndef double(x):\n    os.kill(os.getpid(), signal.SIGSEGV)",
            "died",
            "segmentation fault",
        ),
        (
            "def double(x):\n    return [0] * 10**10",
            "failed",
            "raised MemoryError (line 2: `return [0] * 10**10`). 4 GB are allowed",
        ),
        ("def double(x):\n    return torch.empty(10**10)", "failed", "raised RuntimeError"),
        (
            "def double(x):\n    return object()",
            "failed",
            "an object can't cross: return plain data",
        ),
        ("def double(x):\n    return torch.zeros(1).expand(10**9)", "failed", "too large to cross"),
        (
            "def double(x):\n    return helper(x)",
            "failed",
            "name 'helper' is not defined (line 2: `return helper(x)`). "
            "No import, function, class or assignment of a cell above the check sets this name.",
        ),
        ("def double(x):\n    raise SystemExit(0)", "failed", "raised SystemExit"),
        ("def double(x):\n    raise KeyboardInterrupt", "failed", "raised KeyboardInterrupt"),
        (
            "class Odd(Exception):\n    def __str__(self): raise ValueError\n"
            "def double(x):\n    raise Odd",
            "failed",
            "raised Exception",
        ),
        (
            "def double(x):\n    raise NotImplementedError",
            "not attempted",
            "is not there yet: it raises NotImplementedError.",
        ),
        ("def double(x):\n    return double(x)", "failed", "RecursionError"),
        (
            "1 / 0\ndef double(x):\n    return 2 * x",
            "error",
            "The cell of `double` raised ZeroDivisionError: division by zero (line 1: `1 / 0`)",
        ),
        (
            "def double(x):\n    return 2 * x\nassert double(1) == 3",
            "passed",
            "Remark (it costs no points): The cell of `double` raised AssertionError (line 3: ",
        ),
        ("import sys\ndef double(x):\n    return 2 * x\nsys.exit()", "passed", "raised SystemExit"),
        (
            "def double(x):\n    return x * x\nassert double(1) == 3",
            "failed",
            "That is the square.",
        ),
        ("def double(x):\n    print('x' * 10**7)\n    return 2 * x", "passed", ""),
        (
            "import warnings\nwarnings.warn('careful')\ndef double(x):\n    return 2 * x",
            "passed",
            "",
        ),
        (
            "import multiprocessing\ndef twice(x): return 2 * x\n"
            "with multiprocessing.Pool(1) as pool:\n    assert pool.map(twice, [3]) == [6]\n"
            "def double(x):\n    return 2 * x",
            "passed",
            "",
        ),
        ("def double(x):\n    x *= 2\n    return x", "passed", ""),
        ("def double(x):\n    x *= 0\n    return x", "failed", "want"),
        ("double = 3", "failed", "not callable"),
    ],
)
def test_an_answer_gets_its_points_or_its_reason(fork_server, text, status, says):
    graded = results(fork_server, double=text)
    assert graded["double"].status == status, graded["double"]
    assert says in graded["double"].message
    assert graded["scale_"].status == graded["predicted"].status == "passed"


def test_an_exercise_that_needs_one_that_is_missing_says_so(fork_server):
    graded = results(fork_server, double=LAB.exercise("double").stub)
    assert (
        graded["Counter"].message
        == "count(3) needs `double` (exercise 1.1), which is not there yet."
    )


def test_points_are_partial_where_there_are_several_checks(fork_server):
    result = results(
        fork_server,
        double="def double(x):\n    return 2 * x if isinstance(x, torch.Tensor) else 41",
    )["double"]
    assert (result.points, result.max_points, result.status) == (2, 3, "partly passed")


def test_an_endless_loop_at_the_top_of_a_cell_costs_that_cell(fork_server, monkeypatch):
    monkeypatch.setattr("grading.worker.session.CELL_S", 1.0)
    graded = results(fork_server, scale_="while True: pass\ndef scale_(x, f): ...")
    assert graded["scale_"].status == "timeout"
    assert "The cell of `scale_`" in graded["scale_"].message
    assert graded["double"].status == graded["Counter"].status == "passed"


NEVER_FETCHED = """
import sys, time
frame = sys._getframe()
while not hasattr(frame.f_locals.get("self"), "answers"):
    frame = frame.f_back
frame.f_locals["self"].answers["fetch"] = lambda name: time.sleep(1e6)
def double(x):
    return 2 * x
"""


def test_a_worker_that_never_gives_a_value_is_not_waited_for(fork_server, monkeypatch):
    monkeypatch.setattr("grading.score.CELL_S", 1.0)
    graded = results(fork_server, double=NEVER_FETCHED)
    assert graded["double"].status == graded["scale_"].status == "passed"
    assert graded["predicted"].points == 0 and "predicted" in graded["predicted"].message


def test_counts_can_not_be_patched_in_the_worker(fork_server):
    """The checks run elsewhere: what a student does to agree or builtins changes nothing."""
    text = (
        "import common.checks, builtins\ncommon.checks.agree = lambda *a, **k: None\n"
        "builtins.AssertionError = ValueError\n"
        "agree = lambda *a, **k: None\ndef double(x):\n    return 0 * x"
    )
    assert results(fork_server, double=text)["double"].points == 0


def test_random_cases_follow_the_seed(fork_server):
    text = "def double(x):\n    if len(x) > 1: raise ValueError(x.tolist())\n    return 2 * x"
    messages = [
        score.score(LAB, SOLUTION | {"double": Answer(text)}, fork_server, seed=seed)[0].message
        for seed in (1, 1, 2)
    ]
    assert messages[0] == messages[1] != messages[2]


def test_workers_leave_nothing_running(fork_server, tmp_path):
    place = tmp_path / "pid"
    text = (
        "import subprocess\npid = subprocess.Popen(['sleep', '12345']).pid\n"
        f"open({str(place)!r}, 'w').write(str(pid))\n"
        "def double(x):\n    return 2 * x"
    )
    assert results(fork_server, double=text)["double"].status == "passed"
    deadline = time.monotonic() + 60
    with contextlib.suppress(psutil.NoSuchProcess):
        left = psutil.Process(int(place.read_text()))
        while left.name() == "sleep" and left.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_worker_asks_and_several_work_at_once(fork_server):
    """What ranks need: p workers, each of which asks the grader in the middle of a call."""
    source = (
        "def rank(me, n):\n    __ask__('put', me, np.full(2, me))\n"
        "    return sum(__ask__('get', other).sum() for other in range(n))"
    )
    box, ready = {}, threading.Barrier(3)

    def serve(what, *args):
        if what == "put":
            box[args[0]] = args[1]
            ready.wait(timeout=600)
            return None
        return box[args[0]]

    sessions = [
        Session(fork_server, [("setup", "import numpy as np"), ("rank", source)]) for _ in range(3)
    ]
    got = [None] * 3

    def run(me):
        sessions[me].allow(60)
        got[me] = sessions[me].call("rank", (me, 3), serve=serve)

    threads = [threading.Thread(target=run, args=(me,)) for me in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session in sessions:
        session.close()
    assert got == [6, 6, 6]


def test_a_refused_question_raises_in_the_worker(fork_server):
    source = (
        "def f():\n    try:\n        __ask__('time')\n"
        "    except ValueError as e:\n        return str(e)"
    )
    session = Session(fork_server, [("f", source)])
    session.allow(60)
    assert session.call("f") == "nothing answers 'time' here"
    session.close()


def test_a_kernel_can_run_in_a_worker_that_executes_no_cell_of_the_student(fork_server):
    """What counted kernels need: the text of the student's cell, in a worker of ours."""
    session = Session(fork_server, score.worker_cells(LAB, SOLUTION))
    run = score.CheckRun(LAB, session, 0)
    run.reach(LAB.exercise("double").checks[0])
    names = run.names
    assert names["double"].source == SOLUTION["double"].text
    worker = WorkerClient(fork_server)
    assert (
        worker.request("execute", names["double"].source, "kernel", allowance=Allowance(60)) is None
    )
    assert worker.request("call", "double", [4], {}, allowance=Allowance(60)) == 8
    worker.end()
    session.close()


def test_a_dead_worker_is_not_an_exception_that_a_check_could_catch():
    assert not issubclass(WorkerEnded, Exception)


def test_a_flood_of_answers_on_the_wire_ends_that_worker_only(fork_server):
    text = (
        "import socket, os\ndef double(x):\n    for fd in range(3, 64):\n"
        "        try: os.write(fd, b'\\xff' * 64)\n"
        "        except OSError: pass\n    return 2 * x"
    )
    graded = results(fork_server, double=text)
    assert graded["double"].status == "died" and graded["scale_"].status == "passed"


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"{", "is not a notebook"),
        (b"null", "it has no list of cells"),
        (b'{"cells": {"a": 1}, "nbformat": "4"}', "it has no list of cells"),
        (b"[" * 100_000 + b"]" * 100_000, "its JSON is nested too deeply"),
        (b"\x89PNG\r\n", "is not a notebook"),
        (b"[]", "is not a notebook"),
        (b'{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "is not a notebook"),
        (b"{}", "is not a notebook"),
        (
            b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, '
            b'"cells": [{"cell_type": "code", "source": {"a": 1}}]}',
            None,
        ),
    ],
)
def test_a_file_that_is_not_a_notebook_has_a_reason(tmp_path, content, says):
    path = tmp_path / "99_mini.ipynb"
    path.write_bytes(content)
    if says is None:
        assert {answer.status for answer in notebook.read_answers(LAB, path).values()} == {
            "missing"
        }
    else:
        with pytest.raises(ValueError, match=says):
            notebook.read_answers(LAB, path)


def test_odd_notebooks_are_read(tmp_path):
    path = tmp_path / "99_mini.ipynb"
    cell = {
        "cell_type": "code",
        "source": ["def double(x):\n", "    return 2 * x"],
        "metadata": {"tags": 3},
        "id": "same",
        "outputs": "none",
    }
    cells = [cell, cell, {"cell_type": "raw"}, {}, 7]
    form = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}}
    path.write_text(json.dumps({**form, "cells": cells}))
    assert notebook.read_answers(LAB, path)["double"].text == "def double(x):\n    return 2 * x"


def test_notebooks_of_the_former_format_are_read(tmp_path):
    path = tmp_path / "99_mini.ipynb"
    text = "def double(x): return 2 * x"
    cell = {"cell_type": "code", "input": text, "language": "python", "outputs": []}
    form = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}}
    path.write_text(json.dumps({**form, "worksheets": [{"cells": [cell]}]}))
    assert notebook.read_answers(LAB, path)["double"].text == text


def test_a_default_dtype_is_that_of_one_lab(fork_server):
    other = parse(
        SOURCE.replace("rng = np", "torch.set_default_dtype(torch.float64)\nrng = np", 1),
        "97_double",
    )
    answers = {name: Answer(text) for name, text in other.solution.items()}
    assert all(result.status == "passed" for result in score.score(other, answers, fork_server))
    assert torch.get_default_dtype() == torch.float32


def test_a_check_s_own_time_is_not_the_student_s(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    ours, theirs = socket.socketpair()
    transport, meter = SocketTransport(ours), Meter(lambda: None, lambda: True)  # as on macOS
    meter.begin(allowance := Allowance(0.5))

    def answer(_count):
        now[0] += 0.1  # the answer's
        return b"x"

    with ours, theirs:
        for _ in range(3):
            now[0] += 0.4  # the check's
            assert transport._on_time(meter, answer, 1) == b"x"
            meter.settle()
    assert allowance.left_s == pytest.approx(0.2), "what the three answers left"


CHOKES = """
# %% tags=["check"] limit_s=0.2
import time
while time.process_time() >= 0:
    pass
"""


def test_a_check_that_chokes_is_ended_by_its_own_time(fork_server):
    choking = parse(SOURCE.split("# %% [markdown]\n# ### Exercise 1.2")[0] + CHOKES, "99_chokes")
    (result,) = score.score(choking, {"double": SOLUTION["double"]}, fork_server)
    assert (
        result.status == "partly passed"
        and "double: the check needed more than 0 s to examine the answer's values"
        in result.message
    )


def test_a_check_that_only_waits_is_not_ended_by_its_alarm():
    with score.alarm(0.05):
        time.sleep(0.2)


def test_an_answer_that_nobody_waited_for_is_not_the_next_one_s(fork_server, monkeypatch):
    """The alarm rings in the middle of a call."""

    def ring(*_):
        raise score.CheckTimeout("the check was still busy")

    session = Session(fork_server, [("f", "def f(x):\n    return __ask__('what') or x")])
    session.allow(60)
    old = signal.signal(signal.SIGPROF, ring)
    try:
        with pytest.raises(score.CheckTimeout):
            session.call("f", (1,), serve=lambda what: signal.raise_signal(signal.SIGPROF))
    finally:
        signal.signal(signal.SIGPROF, old)
    assert session.call("f", (2,), serve=lambda what: 0) == 2
    session.close()


def test_both_ways_draw_the_same_cases(fork_server):
    text = "def double(x):\n    if len(x) > 1: raise ValueError(x.tolist())\n    return 2 * x"
    answers = SOLUTION | {"double": Answer(text)}
    problem = score_together(LAB, answers, fork_server, ["double"])["double"]
    assert problem and problem.startswith("ValueError: ")
    cases = problem.removeprefix("ValueError: ")
    assert cases in score.score(LAB, answers, fork_server)[0].message


@pytest.mark.parametrize("code, begins", [("DRIVER", "f gave None"), ("assert x", "driven(1) rai")])
def test_a_sentence_of_a_driver_stands_alone(code, begins):
    """The student has not written this sentence, nor the line that raises it."""
    driver = next(cell.source for cell in LAB.cells if "driver" in cell.tags)
    line = driver.splitlines()[-1].strip() if code == "DRIVER" else code
    problem = AssertionError("f gave None, want a list")
    problem.__cause__ = StudentError("AssertionError", str(problem), 3, line, "driven(1)")
    status, message = explain(problem, LAB, LAB.exercises[0], "f", 10)
    assert status == "failed" and message.startswith(begins), message
