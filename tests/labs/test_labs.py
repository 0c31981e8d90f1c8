"""What the checks of every lab accept and refuse: known answers, and what no check may take."""

import contextlib
import copy
import os
from typing import Any

import numpy as np
import pytest
import torch

from common.paths import compared_with
from grading import classroom, score
from grading.source import build, holes, labs, notebook
from grading.source.holes import Answer
from grading.worker import ranks as worker_ranks
from grading.worker.fork_server import ForkServer
from grading.worker.remote import Remote
from grading.worker.session import Session
from tests import known_answers
from tests.in_one_process import by_seed, score_together

NAMES = labs.names()
SEEDS = range(20)  # with each of which a known wrong answer is refused
ALL = bool(os.environ.get("COURSE_ALL_SEEDS"))  # set by `make seeds`
# What the gate tries. The first seed is the grader's. A check that draws a rare case only with
# some seeds would refuse a right answer: two seeds and the nightly `make seeds` look for that.
TRIED = SEEDS if ALL else SEEDS[:3]
OF_RIGHT = SEEDS[:6] if ALL else SEEDS[:2]
HOSTILE = {  # what every check must refuse, whatever it asks for
    "an empty list": "[]",
    "NaN": "float('nan')",
    "zero": "0.0",
    "None": "None",
    "equal to everything": "type('Equal', (), {'__eq__': lambda self, other: True, "
    "'__ne__': lambda self, other: False, '__hash__': lambda self: 0})()",
    "the first argument": "args[0] if args else None",
}
SLY = {  # title: (the solution's call, changed; the same, but failing where it would be changed)
    "the input zeroed and the answer for zeros": (
        "[zero(a) for a in args]; return solved(*args, **kwargs)",
        "assert not any(map(full, args)); return solved(*args, **kwargs)",
    ),
    "one element expanded": (
        "result = solved(*args, **kwargs); return one(result) if full(result) else result",
        "result = solved(*args, **kwargs); assert not full(result); return result",
    ),
}
SLY_NAMES = """
import numpy as np, torch

def full(a):
    if not isinstance(a, (np.ndarray, torch.Tensor)):
        return False
    return len(set(np.asarray(a.float() if hasattr(a, "float") else a).ravel().tolist())) > 1

def zero(a):
    if full(a):
        a[...] = 0

def one(a):
    if isinstance(a, torch.Tensor):
        return a.flatten()[:1].expand(a.shape)
    return np.broadcast_to(a.ravel()[:1], a.shape).copy()
"""


@pytest.fixture(scope="session")
def fork_server():
    """One for all labs, which has imported what they import."""
    with contextlib.closing(_fork_server()) as fork_server:
        yield fork_server


@pytest.fixture(scope="session")
def notebook_server():
    """The same for `by_seed`, whose workers execute the checks, too: they need `expected`."""
    modules = compared_with()
    with contextlib.closing(_fork_server("tests.in_one_process", *modules)) as fork_server:
        yield fork_server


def _fork_server(*more):
    modules = classroom.modules(NAMES, classroom.IN_WORKER)
    return ForkServer(*modules, "triton.experimental.gluon", *more)  # a driver imports Gluon


def solution(lab):
    return {name: Answer(text) for name, text in lab.solution.items()}


def with_answer(lab, exercise, text):
    """The solutions of a lab, with this text as the answer to one exercise."""
    return solution(lab) | {exercise: Answer(text)}


def known(kind):
    """The parameters of a test of known answers: the name of the lab and the answer."""
    return [
        pytest.param(name, answer, id=f"{name} {answer.title}")
        for name in NAMES
        for answer in known_answers.read(name, kind)
    ]


def exercises(wanted=lambda exercise: True):
    """The parameters of a test of each exercise: the name of the lab and that of the exercise."""
    return [
        pytest.param(name, exercise.name, id=f"{name} {exercise.name}")
        for name in NAMES
        for exercise in labs.read(name).exercises
        if wanted(exercise)
    ]


@pytest.mark.sampled(1, per="lab")
@pytest.mark.parametrize("name, answer", known("right"))
def test_a_right_answer_in_another_style_is_accepted_both_ways(
    fork_server, notebook_server, name, answer
):
    lab = labs.read(name)
    answers = with_answer(lab, answer.exercise, answer_text(lab, answer))
    (result,) = score.score(lab, answers, fork_server, only=[answer.exercise])
    assert (result.points, result.message) == (result.max_points, ""), result.message
    together = by_seed(lab, answers, notebook_server, answer.exercise, OF_RIGHT)
    assert not any(together), together


@pytest.mark.sampled(1, per="exercise")
@pytest.mark.parametrize("name, answer", known("wrong"))
def test_a_known_wrong_answer_is_refused_with_its_message_both_ways(
    fork_server, notebook_server, name, answer
):
    """In the grader with the first seed; in one process with each that is tried."""
    lab = labs.read(name)
    answers = with_answer(lab, answer.exercise, answer_text(lab, answer))
    (result,) = score.score(lab, answers, fork_server, only=[answer.exercise])
    noticed = result.points < result.max_points or result.message.startswith(score.REMARK)
    assert noticed, "passed in the grader"
    assert answer.says.lower() in words(result.message), f"promised {answer.says!r}"
    together = by_seed(lab, answers, notebook_server, answer.exercise, TRIED)
    passed = [seed for seed, problem in zip(TRIED, together, strict=True) if problem is None]
    assert not passed, f"passed in the notebook with the seeds {passed}"
    assert answer.says.lower() in words(together[0]), f"promised {answer.says!r}"


def answer_text(lab, answer):
    return answer.text(holes.solved(lab.exercise(answer.exercise).hole.source))


@pytest.mark.sampled(4, per="course")
@pytest.mark.parametrize("name", NAMES)
def test_an_untouched_lab_scores_nothing_and_says_so_kindly(name, fork_server, tmp_path):
    lab, path = labs.read(name), tmp_path / f"{name}.ipynb"
    build.write(build.lab_notebook(lab), path)
    for result in score.score(lab, notebook.read_answers(lab, path), fork_server):
        assert (result.points, result.status) == (0, "not attempted"), result
        assert "Not attempted yet" in result.message


@pytest.mark.sampled(4, per="course")
@pytest.mark.parametrize("name", NAMES)
def test_an_untouched_hole_fails_its_check_in_the_notebook(name, notebook_server):
    lab = labs.read(name)
    stubs = {exercise.name: Answer(exercise.stub) for exercise in lab.exercises}
    problems = score_together(lab, stubs, notebook_server, [e.name for e in lab.exercises])
    assert all((text or "").startswith("NotImplementedError") for text in problems.values()), (
        problems
    )


@pytest.mark.sampled(2, per="course")
@pytest.mark.parametrize("name", NAMES)
def test_the_solution_scores_everything_in_the_grader(name, fork_server):
    lab = labs.read(name)
    for result in score.score(lab, solution(lab), fork_server):
        assert (result.points, result.message) == (result.max_points, ""), result


@pytest.mark.sampled(8, per="course")
@pytest.mark.parametrize("name, exercise", exercises())
def test_the_solution_passes_in_the_notebook(name, exercise, notebook_server):
    lab = labs.read(name)
    problems = by_seed(lab, solution(lab), notebook_server, exercise, OF_RIGHT)
    assert not any(problems), problems


def words(message):
    """The message in one line: where it is broken depends on how long its values are."""
    return " ".join(str(message).lower().split())


@pytest.mark.sampled(2, per="lab")
@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name, exercise", exercises())
def test_no_check_takes_a_hostile_answer(name, exercise, value, fork_server):
    text = hostile_text(labs.read(name).exercise(exercise), value)
    result = _result(name, fork_server, exercise, text)
    assert result.points == 0, result


def hostile_text(exercise, value):
    """A cell in which each function of the exercise returns this value, or each name has it."""
    return "\n".join(
        f"def {function}(*args, **kwargs):\n    return {value}"
        for function in holes.callable_names(exercise.hole.source)
    ) or "\n".join(f"args = ()\n{name} = {value}" for name in exercise.hole.names)


def sly_text(exercise, body):
    """A cell in which this body calls the solution of the exercise."""
    name, solved = exercise.name, holes.solved(exercise.hole.source)
    start = f"{SLY_NAMES}\n{solved}\nsolved = {name}\n"
    return f"{start}def {name}(*args, **kwargs):\n    {body}\n"


def takes_arguments(exercise):
    """Whether an exercise is one function, whose arguments and result can be tampered with."""
    source = exercise.hole.source
    return exercise.name in holes.callable_names(source) and "class " not in source


@pytest.mark.sampled(1, per="lab")
@pytest.mark.parametrize("body, probing", SLY.values(), ids=SLY)
@pytest.mark.parametrize("name, exercise", exercises(takes_arguments))
def test_no_check_takes_a_sly_answer(name, exercise, body, probing, fork_server):
    of = labs.read(name).exercise(exercise)
    if _result(name, fork_server, exercise, sly_text(of, probing)).status != "passed":
        result = _result(name, fork_server, exercise, sly_text(of, body))
        assert result.status != "passed", result


class Sly:
    """Launches of a right kernel whose inputs are zeroed, and whose outputs are those of zeros.

    A kernel may write into every array of its launch. So a check that computes what it wants from
    such an array afterwards takes anything.
    """

    def __init__(self, forget: bool) -> None:
        self.forget = forget  # whether the outputs stay as they were: then values do not count
        self.count, self.zeroed = Remote.count_remotely, False

    def __call__(self, remote: Remote, package: Any, /, *args: Any, **options: Any) -> Any:
        if package == "ranks":
            return self.count(remote, package, *args, **options)
        arrays = [a for a in args if isinstance(a, (np.ndarray, torch.Tensor)) and len(a)]
        before: list[Any] = [copy.deepcopy(a) for a in arrays]
        report = self.count(remote, package, *args, **options)
        pairs = list(zip(arrays, before, strict=True))
        inputs = [a for a, b in pairs if _same_numbers(a, b)]
        for a, b in pairs:
            a[...] = 0 * b if any(a is each for each in inputs) else b
        self.zeroed = self.zeroed or bool(inputs)
        if not self.forget:
            self.count(remote, package, *args, **options)
        return report


def _same_numbers(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return np.array_equal(a, b)


def counts_kernels(exercise):
    return any("s.count(" in c.source or "simt.count(" in c.source for c in exercise.checks)


@pytest.mark.sampled(4, per="course")
@pytest.mark.parametrize("name, exercise", exercises(counts_kernels))
def test_no_check_wants_what_a_kernel_may_have_changed(name, exercise, fork_server, monkeypatch):
    passed, lab = [], labs.read(name)
    for forget in (False, True):
        sly = Sly(forget)
        monkeypatch.setattr(Remote, "count_remotely", lambda *a, sly=sly, **o: sly(*a, **o))
        (result,) = score.score(lab, solution(lab), fork_server, only=[exercise])
        passed.append([check.status == "passed" for check in result.checks])
        monkeypatch.undo()
    believed = [by_zeros and not by_none for by_zeros, by_none in zip(*passed, strict=True)]
    assert not any(believed) or not sly.zeroed


def runs_ranks(exercise):
    return any("ranks" in c.source or "expected.run" in c.source for c in exercise.checks)


@pytest.mark.sampled(4, per="course")
@pytest.mark.parametrize("name, exercise", exercises(runs_ranks))
def test_no_check_of_ranks_is_content_with_messages(name, exercise, fork_server, monkeypatch):
    """With the right messages, and zeros for all numbers that an answer gives, none passes."""
    lab, run, call, runs = labs.read(name), worker_ranks.run, Session.call, []

    def run_to_zeros(*args, **options):
        runs.append(result := run(*args, **options))
        result.returns = _zeroed(result.returns)
        return result

    monkeypatch.setattr(worker_ranks, "run", run_to_zeros)
    monkeypatch.setattr(Session, "call", lambda *a, **o: _zeroed(call(*a, **o)))
    monkeypatch.setattr(score, "_repeatable", lambda lab: frozenset())  # a replay has no zeros
    (result,) = score.score(lab, solution(lab), fork_server, only=[exercise])
    assert not runs or result.points == 0, result


def _zeroed(value):
    if isinstance(value, (list, tuple)):
        return type(value)(map(_zeroed, value))
    if isinstance(value, dict):
        return {key: _zeroed(part) for key, part in value.items()}
    if isinstance(value, (torch.Tensor, np.ndarray)):
        value = value.copy() if isinstance(value, np.ndarray) else value.clone()
        value[...] = 0
        return value
    return type(value)() if type(value) in (int, float) else value


def _result(name, fork_server, exercise, text):
    """The grader's result of one exercise, with this text as its answer and solutions above it."""
    lab = labs.read(name)
    answers = with_answer(lab, exercise, text)
    (result,) = score.score(lab, answers, fork_server, only=[exercise])
    return result
