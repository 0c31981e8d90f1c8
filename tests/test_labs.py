"""The gate: the rules that every lab must keep."""

import ast
import contextlib
import copy
import functools
import math
import os
import pkgutil
import re
from typing import Any

import nbformat
import numpy as np
import pytest
import torch

from common.oracles import __path__ as oracle_path
from common.paths import ROOT
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
# Processor seconds of an answer after which the gate tries no further seed; `make seeds` tries all.
MOST_S = math.inf if os.environ.get("COURSE_ALL_SEEDS") else 0.25
LEAST = 3  # of a known wrong answer, whatever they take
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
SIZES = {"setup": 12, "demo": 8, "check": 12}  # lines of code, without comments and blank lines
PROSE_WORDS = 110  # of a cell with its folds closed, and of each fold
FOLD = r"(?s)<details>.*?</details>"
LINE = 104  # columns of code that JupyterLab shows at 1280 pixels with its file browser open
CORE_CELLS, CORE_WORDS, CORE_EXERCISES = 70, 2500, 8  # from the title to "Done"
DONE, FURTHER = "## Done", "## Further"


@pytest.fixture(scope="session")
def fork_server():
    """One for all labs, which has imported what they import."""
    with contextlib.closing(_fork_server()) as fork_server:
        yield fork_server


@pytest.fixture(scope="session")
def notebook_server():
    """The same for `by_seed`, whose workers execute the checks, too: they need the oracles."""
    oracles = [f"common.oracles.{module.name}" for module in pkgutil.iter_modules(oracle_path)]
    with contextlib.closing(_fork_server("tests.in_one_process", *oracles)) as fork_server:
        yield fork_server


def _fork_server(*more):
    modules = classroom.modules(NAMES, classroom.IN_WORKER)
    return ForkServer(*modules, "triton.experimental.gluon", *more)  # a driver imports Gluon


read = functools.cache(labs.read)


@pytest.fixture(scope="module", params=NAMES)
def lab(request):
    return read(request.param)


def solution(lab):
    return {name: Answer(text) for name, text in lab.solution.items()}


WRONG = [
    pytest.param(name, wrong, id=f"{name} {wrong.title}")
    for name in NAMES
    for wrong in known_answers.read(name)
]

RIGHT = [
    pytest.param(name, right, id=f"{name} {right.title}")
    for name in NAMES
    for right in known_answers.read(name, "right")
]


def test_the_notebook_of_the_lab_is_built_from_its_source(lab):
    path = ROOT / "labs" / f"{lab.name}.ipynb"
    built = build.lab_notebook(lab)
    assert nbformat.writes(built) == nbformat.writes(build.lab_notebook(labs.read(lab.name))), (
        "a second build differs"
    )
    assert path.exists(), "make labs has not been run"
    if build.has_work(path):
        pytest.skip(f"{path.name} has work in it")
    on_disk: Any = nbformat.read(path, as_version=4)
    assert on_disk.metadata["built_sha256"] == built.metadata["built_sha256"], (
        "make labs has not been run since the source changed"
    )
    if not any(cell.get("execution_count") for cell in on_disk.cells):  # a student may have run it
        assert nbformat.writes(on_disk) == nbformat.writes(built)
    nbformat.validate(built)


def test_the_executed_solution_is_of_this_source(lab):
    executed: Any = nbformat.read(ROOT / "solutions" / f"{lab.name}.ipynb", as_version=4)
    built = build.solution_notebook(lab)
    assert [cell.source for cell in executed.cells] == [cell.source for cell in built.cells], (
        "make solutions has not been run"
    )
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")
    errors = [
        output.ename
        for cell in executed.cells
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    ]
    assert not errors


@pytest.mark.parametrize("name, right", RIGHT)
def test_a_right_answer_in_another_style_is_accepted_both_ways(
    fork_server, notebook_server, name, right
):
    lab = read(name)
    text = right.text(holes.solved(lab.exercise(right.exercise).hole.source))
    answers = solution(lab) | {right.exercise: Answer(text)}
    (result,) = score.score(lab, answers, fork_server, only=[right.exercise])
    assert (result.points, result.message) == (result.max_points, ""), result.message
    together = by_seed(lab, answers, notebook_server, right.exercise, SEEDS[:3], MOST_S)
    assert not any(together), together


def test_an_untouched_lab_scores_nothing_and_says_so_kindly(lab, fork_server, tmp_path):
    path = tmp_path / f"{lab.name}.ipynb"
    build.write(build.lab_notebook(lab), path)
    for result in score.score(lab, notebook.read_answers(lab, path), fork_server):
        assert (result.points, result.status) == (0, "not attempted"), result
        assert "Not attempted yet" in result.message


def test_an_untouched_hole_fails_its_check_in_the_notebook(lab, notebook_server):
    stubs = {exercise.name: Answer(exercise.stub) for exercise in lab.exercises}
    problems = score_together(lab, stubs, notebook_server, [e.name for e in lab.exercises])
    assert all((text or "").startswith("NotImplementedError") for text in problems.values()), (
        problems
    )


def test_the_solution_scores_everything_both_ways(lab, fork_server, notebook_server):
    for result in score.score(lab, solution(lab), fork_server):
        assert (result.points, result.message) == (result.max_points, ""), result
    for exercise in lab.exercises:
        problems = by_seed(lab, solution(lab), notebook_server, exercise.name, SEEDS[:3], MOST_S)
        assert not any(problems), problems


@pytest.mark.parametrize("name, wrong", WRONG)
def test_a_known_wrong_answer_is_refused_with_its_message_both_ways(
    fork_server, notebook_server, name, wrong
):
    """In the grader once; in one process for each of SEEDS, whose first is the grader's."""
    lab = read(name)
    text = wrong.text(holes.solved(lab.exercise(wrong.exercise).hole.source))
    answers = solution(lab) | {wrong.exercise: Answer(text)}
    (result,) = score.score(lab, answers, fork_server, only=[wrong.exercise])
    noticed = result.points < result.max_points or result.message.startswith(score.REMARK)
    assert noticed, "passed in the grader"
    assert wrong.says.lower() in words(result.message), f"promised {wrong.says!r}"
    together = by_seed(lab, answers, notebook_server, wrong.exercise, SEEDS, MOST_S, LEAST)
    assert len(together) >= LEAST
    tried = SEEDS[: len(together)]
    passed = [seed for seed, problem in zip(tried, together, strict=True) if problem is None]
    assert not passed, f"passed in the notebook with the seeds {passed}"
    assert wrong.says.lower() in words(together[0]), f"promised {wrong.says!r}"


def words(message):
    """The message in one line: where it is broken depends on how long its values are."""
    return " ".join(str(message).lower().split())


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_no_check_takes_a_hostile_answer(lab, fork_server, value):
    for exercise in lab.exercises:
        functions = holes.callable_names(exercise.hole.source)
        text = "\n".join(
            f"def {name}(*args, **kwargs):\n    return {value}" for name in functions
        ) or "\n".join(f"args = ()\n{name} = {value}" for name in exercise.hole.names)
        (result,) = score.score(
            lab, solution(lab) | {exercise.name: Answer(text)}, fork_server, only=[exercise.name]
        )
        assert result.points == 0, f"{exercise.name} = {value}: {result}"


@pytest.mark.parametrize("body, probing", SLY.values(), ids=SLY)
def test_no_check_takes_a_sly_answer(lab, fork_server, body, probing):
    for exercise in lab.exercises:
        name = exercise.name
        functions = holes.callable_names(exercise.hole.source)
        if name not in functions or "class " in exercise.hole.source:
            continue
        start = f"{SLY_NAMES}\n{holes.solved(exercise.hole.source)}\n"
        start += f"solved = {name}\ndef {name}(*args, **kwargs):\n"
        if not _passes(lab, fork_server, name, f"{start}    {probing}\n"):
            assert not _passes(lab, fork_server, name, f"{start}    {body}\n"), name


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


def test_no_check_wants_what_a_kernel_may_have_changed(lab, fork_server, monkeypatch):
    for exercise in lab.exercises:
        if not any("s.count(" in c.source or "simt.count(" in c.source for c in exercise.checks):
            continue
        passed = []
        for forget in (False, True):
            sly = Sly(forget)
            monkeypatch.setattr(Remote, "count_remotely", lambda *a, sly=sly, **o: sly(*a, **o))
            (result,) = score.score(lab, solution(lab), fork_server, only=[exercise.name])
            passed.append([check.status == "passed" for check in result.checks])
            monkeypatch.undo()
        believed = [by_zeros and not by_none for by_zeros, by_none in zip(*passed, strict=True)]
        assert not any(believed) or not sly.zeroed, exercise.name


def test_no_check_of_ranks_is_content_with_messages(lab, fork_server, monkeypatch):
    """With the right messages, and zeros for all numbers that an answer gives, none passes."""
    run, call, runs = worker_ranks.run, Session.call, []

    def run_to_zeros(*args, **options):
        runs.append(result := run(*args, **options))
        result.returns = _zeroed(result.returns)
        return result

    monkeypatch.setattr(worker_ranks, "run", run_to_zeros)
    monkeypatch.setattr(Session, "call", lambda *a, **o: _zeroed(call(*a, **o)))
    monkeypatch.setattr(score, "_repeatable", lambda lab: frozenset())  # a replay has no zeros
    for exercise in lab.exercises:
        if any(
            "ranks" in check.source or "oracle.run" in check.source for check in exercise.checks
        ):
            runs.clear()
            (result,) = score.score(lab, solution(lab), fork_server, only=[exercise.name])
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


def _passes(lab, fork_server, name, text):
    answers = solution(lab) | {name: Answer(text)}
    (result,) = score.score(lab, answers, fork_server, only=[name])
    return result.status == "passed"


def test_known_known_answers_are_many_and_each_names_an_exercise(lab):
    wrong = known_answers.read(lab.name)
    assert len(wrong) >= 6
    assert {answer.exercise for answer in wrong} <= {exercise.name for exercise in lab.exercises}


def test_no_solution_text_is_in_the_lab(lab):
    built = build.lab_notebook(lab)
    text = "\n".join(cell.source for cell in built.cells)
    assert "SOLUTION" not in text
    given = {line.strip() for cell in built.cells for line in cell.source.splitlines()}
    for exercise in lab.exercises:
        for answer in holes.ANSWER.finditer(exercise.hole.source):
            for line in map(str.strip, answer[2].splitlines()):
                assert len(line) < 20 or line.startswith("#") or line not in given, (
                    f"{exercise.name}: {line!r} stands in the lab"
                )


def core_path(lab):
    """The cells from the title to "Done": what every student does."""
    cells = [cell for cell in lab.cells if "held-out" not in cell.tags]
    done = [i for i, cell in enumerate(cells) if _is_headed(cell, DONE)]
    assert len(done) == 1, f"one cell begins with {DONE!r}"
    return cells[: done[0] + 1]


def _is_headed(cell, heading):
    return cell.kind == "markdown" and cell.source.startswith(heading)


def test_the_core_path_is_as_long_as_promised(lab):
    built = build.lab_notebook(lab).cells  # as students see it: with Colab's cell, and with points
    shown = built[: [cell.source.startswith(DONE) for cell in built].index(True) + 1]
    words = sum(len(cell.source.split()) for cell in shown if cell.cell_type == "markdown")
    exercises = sum("hole" in cell.tags for cell in core_path(lab))
    assert len(shown) <= CORE_CELLS, f"{len(shown)} cells"
    assert words <= CORE_WORDS, f"{words} words"
    assert 5 <= exercises <= CORE_EXERCISES, f"{exercises} exercises"


def test_what_follows_done_is_further_and_optional(lab):
    core = core_path(lab)
    rest = [cell for cell in lab.cells if cell not in core and "held-out" not in cell.tags]
    assert not rest or _is_headed(rest[0], FURTHER), f"after {DONE!r} comes {FURTHER!r}"
    for cell in rest:
        if cell.kind == "markdown" and (heading := labs.HEADING.search(cell.source)):
            assert "(optional)" in heading[0], heading[0]


def test_at_least_ten_right_answers_are_known(lab):
    right = known_answers.read(lab.name, "right")
    assert len(right) >= 10
    assert {answer.exercise for answer in right} <= {e.name for e in lab.exercises}


def test_every_figure_says_in_words_what_it_shows(lab):
    executed: Any = nbformat.read(ROOT / "solutions" / f"{lab.name}.ipynb", as_version=4)
    silent = [
        cell.source.splitlines()[0]
        for cell in executed.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
        and len(output.metadata.get("image/png", {}).get("alt", "").split()) < 6
    ]
    assert not silent, silent


def test_a_lab_has_a_widget(lab):
    executed: Any = nbformat.read(ROOT / "solutions" / f"{lab.name}.ipynb", as_version=4)
    done = next(i for i, cell in enumerate(executed.cells) if cell.source.startswith(DONE))
    shown = [
        output
        for cell in executed.cells[:done]
        for output in cell.get("outputs", [])
        if output.get("data", {}).get("text/plain") == build.WIDGET_TEXT
    ]
    assert shown


def test_a_cell_keeps_to_the_pleasant_sizes(lab):
    too_long = []
    for cell in lab.cells:
        if "held-out" in cell.tags:
            continue
        first = " ".join(cell.source.split()[:4])
        if cell.kind == "markdown":
            sizes, allowed = map(_words, _texts(cell.source)), PROSE_WORDS
        else:
            sizes, allowed = [_lines_of_code(cell.source)], SIZES.get(_kind(cell), 1000)
        too_long += [f"{size} > {allowed}: {first}" for size in sizes if size > allowed]
    assert not too_long, "\n".join(too_long)
    assert (ROOT / "solutions" / f"{lab.name}.ipynb").stat().st_size <= 500 * 1024


def _kind(cell):
    kinds = ("setup", "check", "hole", "driver")
    return next((tag for tag in kinds if tag in cell.tags), "demo")


def _texts(prose):
    """What a reader sees at once: the cell with its folds closed, and each fold."""
    return [re.sub(FOLD, "", prose), *re.findall(FOLD, prose)]


def _words(prose):
    return len(re.findall(r"\w[\w'’-]*", re.sub(r"<[^>]+>", "", prose)))


def _lines_of_code(text):
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines()
    )


def test_code_fits_a_laptop_s_screen(lab):
    too_wide = [
        f"{len(line)} > {LINE}: {line.strip()[:60]}"
        for cell in lab.cells
        if cell.kind == "code"
        for line in cell.source.splitlines()
        if len(line) > LINE
    ]
    assert not too_wide, "\n".join(too_wide)


def test_a_lab_keeps_to_its_form(lab):
    assert re.match(rf"# {lab.name[:2]} · ", lab.cells[0].source), "the title: '# NN · ...'"
    setups = [i for i, cell in enumerate(lab.cells) if "setup" in cell.tags]
    assert setups and setups[0] == 1, "setup is the second cell"
    for i, cell in enumerate(lab.cells):
        if cell.kind == "markdown" and labs.HEADING.search(cell.source):
            assert "hole" in lab.cells[i + 1].tags and "check" in lab.cells[i + 2].tags, (
                f"between {cell.source.splitlines()[0]!r} and its check"
            )
    assert "**" in "".join(cell.source for cell in lab.cells if cell.kind == "markdown"), (
        "each part ends in a bold sentence"
    )


FORBIDDEN = {
    "Exception",
    "RuntimeError",
    "BaseException",
    "inspect",
    "tracemalloc",
    "manual_seed",
    "raises",
    "capsys",
    "mock",
}


def test_checks_keep_to_the_rules(lab):
    """CONTRIBUTING.md, Checks: what would pass a stub, or could not work across two processes."""
    for exercise in lab.exercises:
        for check in exercise.checks:
            for node in ast.walk(ast.parse(check.source)):
                name = getattr(node, "id", None) or getattr(node, "attr", None)
                assert name not in FORBIDDEN, f"{exercise.name}: {name}"
                assert not isinstance(node, (ast.Is, ast.IsNot)), f"{exercise.name}: `is`"
            assert "held-out" in check.tags or "print(" in check.source, (
                f"{exercise.name}: a check prints a line when it passes"
            )
