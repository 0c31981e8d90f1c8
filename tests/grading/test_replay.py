"""A replayed check gives the verdict and message of one that runs, and calls no more often."""

import socket

import numpy as np
import pytest

from grading import score
from grading.source.holes import Answer
from grading.source.labs import parse
from grading.worker.fork_server import ForkServer
from grading.worker.limits import MAX_TAPE_BYTES
from grading.worker.repeatable import repeatable
from grading.worker.replay import Recording, Tapes
from grading.worker.transport import Frame, SocketTransport

SOURCE = """\
# %% tags=["setup"]
import random
import numpy as np
from common.checks import agree
rng = np.random.default_rng()

# %% [markdown]
# ### Exercise 1.1 · add_one

# %% tags=["hole"]
def add_one(x):
    # BEGIN SOLUTION
    return x + 1
    # END SOLUTION

# %% tags=["check"] limit_s=2
for x in [*range(10), rng.standard_normal(3)]:
    want = x + 1
    agree(add_one(x), want, f"add_one({x})", mistakes={"That is x itself.": x})

# %% tags=["check"] limit_s=2
x = np.arange(3)
agree(add_one(x), x + 1, "add_one(x)")

# %% [markdown]
# ### Exercise 1.2 · number

# %% tags=["hole"]
# BEGIN SOLUTION
number = 3
# END SOLUTION

# %% tags=["check"]
agree(number, 3, "number")
"""
LAB = parse(SOURCE, "99_replay")
SOLUTION = {name: Answer(text) for name, text in LAB.solution.items()}
AT = """\
count = 0
def add_one(x):
    global count
    count += 1
    if count == {at}:
        {does}
    return x + 1"""


@pytest.fixture(scope="module")
def fork_server():
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def executed(monkeypatch, fork_server):
    """The sources of the checks that were executed and not replayed, with fresh tapes."""
    monkeypatch.setattr(fork_server, "tapes", Tapes())
    sources, execute = [], score.CheckRun._execute

    def noted(run, check):
        sources.append(check.source)
        return execute(run, check)

    monkeypatch.setattr(score.CheckRun, "_execute", noted)
    return sources


def run(fork_server, text=None, number=None, seed=0, lab=LAB):
    answers = (
        SOLUTION
        | ({"add_one": Answer(text)} if text else {})
        | ({"number": Answer(f"number = {number}")} if number else {})
    )
    return score.score(lab, answers, fork_server, seed)


@pytest.mark.slow
def test_a_right_answer_is_replayed(fork_server, executed):
    first = run(fork_server)
    assert len(executed) == 3 and all(result.status == "passed" for result in first)
    assert run(fork_server, "def add_one(x):\n    return 1 + x") == first and len(executed) == 3
    run(fork_server, seed=1)
    assert len(executed) == 6, "another seed is another check"


@pytest.mark.parametrize("at", [1, 2, 7, 11, 12])
@pytest.mark.parametrize(
    "does",
    [
        "return x",
        "return 1 / 0",
        "import os; os._exit(3)",
        "return object()",
        "return np.zeros(100_000)",
        "return np.zeros(400_000)",
        "return np.int64(x + 1)",
        "count += 1",
    ],
)
def test_what_goes_wrong_in_the_middle_is_reported_alike(fork_server, executed, at, does):
    text = AT.format(at=at, does=does)
    plain = run(fork_server, text)
    run(fork_server)
    again = run(fork_server, text)
    assert [(result.points, result.status, result.message) for result in again] == [
        (result.points, result.status, result.message) for result in plain
    ]


def test_an_answer_of_megabytes_passes(fork_server, executed):
    """The limit on what a cell answers is none on what a call answers."""
    lab = parse(SOURCE.replace("np.arange(3)", "np.zeros(400_000)"), "99_replay")
    first = run(fork_server, lab=lab)
    assert [result.status for result in first] == ["passed", "passed"], first[0].message
    assert run(fork_server, "def add_one(x):\n    return 1 + x", lab=lab) == first


def test_an_endless_loop_is_one_in_a_replay(fork_server, executed, tmp_path):
    run(fork_server)
    note = f"print('begun', file=open({str(tmp_path / 'loops')!r}, 'a'), flush=True)"
    text = AT.format(at=5, does=f"{note}\n        while True: pass")
    result = run(fork_server, text)[0]
    assert (result.points, result.status) == (1, "partly passed")
    assert "add_one(4) took too long" in result.message
    assert (tmp_path / "loops").read_text() == "begun\n", "the limit of 2 s is waited for once"


def test_the_answer_is_called_as_often_as_without(fork_server, executed):
    """The call whose answer differs is not made again."""
    run(fork_server)
    text = (
        "calls = []\ndef add_one(x):\n    calls.append(x)\n"
        "    if len(calls) in (3, 4):\n        return 'call %d' % len(calls)\n    return x + 1"
    )
    assert "add_one(2) gave 'call 3'" in run(fork_server, text)[0].message


def test_a_value_is_part_of_what_is_compared(fork_server, executed):
    run(fork_server)
    assert run(fork_server, number=4)[1].status == "failed"
    assert run(fork_server, number=3.0)[1] == run(fork_server, number="int('3') + 0.0")[1]


def test_a_check_that_draws_from_elsewhere_is_run(fork_server, executed):
    lab = parse(SOURCE.replace("rng.standard_normal(3)", "random.random()"), "99_replay")
    run(fork_server, lab=lab)
    result = run(
        fork_server,
        "def add_one(x):\n    return x + 1 if type(x) is int or type(x) is np.ndarray else x",
        lab=lab,
    )[0]
    assert result.status == "partly passed" and "That is x itself." in result.message
    assert run(fork_server, lab=lab)[0].status == "passed"


@pytest.mark.parametrize(
    "first, later, replayed",
    [
        ("x = 1", "print(x)", False),
        ("x = 1", "x = 2\nprint(x)", True),
        ("x = 1", "x = x + 1", False),
        ("x = 1", "x += 1", False),
        ("x = 1", "print([x for x in range(3)])", True),
        ("x = 1", "print([y for y in x])", False),
        ("print([x for x in 'a'])", "print(x)", True),
        ("def f(): x = 1", "print(x)", True),
        ("def f(): pass", "f()", False),
        ("import math", "math.pi", False),
        ("for i in 'a': pass", "for i in i: pass", False),
        ("def f():\n    global x\n    x = 1", "print(x)", False),
        ("x = 1", "def f():\n    return x", False),
        ("x = 1", "(lambda x: x)(2)", True),
        ("with open('a') as x: pass", "print(x)", False),
        ("x = 1", "f(x := 2)", True),
    ],
)
def test_checks_that_share_names_are_not_replayed(first, later, replayed):
    assert repeatable([first, later]) == (frozenset([first, later]) if replayed else frozenset())
    assert repeatable([later, "unlike = 1"])


def test_tapes_have_an_end():
    tapes = Tapes()
    long = [(Frame(b"x" * MAX_TAPE_BYTES, []), Frame(b"y", []))]
    short = [(Frame(b"x", []), Frame(b"y", []))]
    tapes.keep("long", long)
    tapes.keep("short", short)
    assert tapes.get("long") is None and tapes.get("short") is short
    tapes.spoil("short")
    tapes.keep("short", short)
    assert tapes.get("short") is None


def test_what_goes_in_parts_is_noted_as_one():
    ours, theirs = socket.socketpair()
    here, there = SocketTransport(ours), SocketTransport(theirs)
    large = np.arange(100_000) % 251
    with ours, theirs:
        recording = Recording(here)
        recording.send(Frame(b"request", [large.astype(np.uint8)]))  # a large buffer goes alone
        there.receive()
        there.send(Frame(b"answer", []))
        came = recording.receive()
    ((sent, kept),) = recording.tape
    assert sent.header == b"request" and sent.buffers[0].tolist() == large.tolist()
    assert kept.header == came.header == b"answer"
