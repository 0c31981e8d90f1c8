"""The gate: what every lab must hold."""

import ast
import re

import jupytext
import nbformat
import pytest

from common.paths import ROOT
from grading import score
from grading.source import build, holes, labs, notebook
from grading.source.holes import Answer
from grading.worker.client import ForkServer
from tests.in_one_process import score_together

NAMES = labs.names()
HOSTILE = {  # what every check must refuse, whatever it asks for
    "an empty list": "[]",
    "NaN": "float('nan')",
    "zero": "0.0",
    "None": "None",
    "equal to everything": "type('Yes', (), {'__eq__': lambda s, o: True, '__ne__': lambda s, o: False, '__hash__': lambda s: 0})()",
    "the first argument": "args[0] if args else None",
}
SLY = {  # the same for answers that look at what they are given: (the solution's call changed, one that fails if there is anything to change)
    "the input zeroed and the answer for zeros": (
        "[zero(a) for a in args]; return solved(*args, **kwargs)",
        "assert not any(map(full, args)); return solved(*args, **kwargs)",
    ),
    "one element expanded": (
        "got = solved(*args, **kwargs); return one(got) if full(got) else got",
        "got = solved(*args, **kwargs); assert not full(got); return got",
    ),
}
SLY_NAMES = """
def full(a):
    return isinstance(a, (np.ndarray, torch.Tensor)) and len(set(np.asarray(a.float() if hasattr(a, "float") else a).ravel().tolist())) > 1
def zero(a):
    if full(a):
        a[...] = 0
def one(a):
    return a.flatten()[:1].expand(a.shape) if isinstance(a, torch.Tensor) else np.broadcast_to(a.ravel()[:1], a.shape).copy()
"""
SIZES = {"setup": 12, "demo": 8, "check": 12}  # lines of code, comments and blank lines left out
PROSE_WORDS = 110
LINE = 104  # columns of code that JupyterLab shows at 1280 pixels, its file browser open
CELLS = range(30, 61)
EXCEPTIONS = {  # (lab, "cells" or the first words of a cell): why it may be longer
    (
        "02_arithmetic_intensity",
        "cells",
    ): "eight exercises, and a measurement on the reader's machine after each",
    ("03_cuda_kernels", "cells"): "nine exercises, and kernels of eight lines need a cell each",
    (
        "04_triton_softmax",
        "cells",
    ): "seven exercises, six of them kernels, checked for their values and for their costs",
    ("05_triton_matmul", "cells"): "eight exercises, from one tile to the speed of the library",
    ("07_autodiff", "cells"): "the engine is built twice, run first and then while building",
    (
        "10_quantization",
        "cells",
    ): "five number formats, three granularities, a network and a kernel",
    (
        "11_collectives",
        "cells",
    ): "ten exercises, most of two collectives, each checked for values and for costs",
    (
        "12_data_parallel",
        "cells",
    ): "eight exercises, each step once on simulated ranks and once on real processes",
    (
        "14_tensor_parallel",
        "cells",
    ): "eight exercises, each checked for its values, its bytes and its gradients",
}


@pytest.fixture(scope="module")
def fork_server():
    fork_server = ForkServer(
        "torch._dynamo"
    )  # PyTorch's FLOP counter would import it in each of hundreds of workers
    yield fork_server
    fork_server.close()


@pytest.fixture(scope="module", params=NAMES)
def lab(request):
    return labs.read(request.param)


def solution(lab):
    return {name: Answer(text) for name, text in lab.solution.items()}


def wrong_answers(name):
    """[(exercise, title, promised words, text)] of tests/wrong."""
    path = ROOT / "tests" / "wrong" / f"{name}.py"
    found = []
    for cell in jupytext.read(path, fmt="py:percent").cells:
        if cell.cell_type == "code":
            title = cell.metadata["title"]
            says = re.match(r"# says: (.+)\n", cell.source)
            assert says, (
                f"{path.name}, {title!r}: its first line must be '# says: words of the message'"
            )
            found.append((title.split(":")[0], title, says[1].strip(), cell.source))
    return found


WRONG = [
    pytest.param(name, *answer, id=f"{name} {answer[1]}")
    for name in NAMES
    for answer in wrong_answers(name)
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
    on_disk = nbformat.read(path, as_version=4)
    assert on_disk.metadata["built_sha256"] == built.metadata["built_sha256"], (
        "make labs has not been run since the source changed"
    )
    if not any(cell.get("execution_count") for cell in on_disk.cells):  # a student may have run it
        assert nbformat.writes(on_disk) == nbformat.writes(built)
    nbformat.validate(built)


def test_the_executed_solution_is_of_this_source(lab):
    executed = nbformat.read(ROOT / "solutions" / f"{lab.name}.ipynb", as_version=4)
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


def test_an_untouched_lab_scores_nothing_and_says_so_kindly(lab, fork_server, tmp_path):
    path = tmp_path / f"{lab.name}.ipynb"
    build.write(build.lab_notebook(lab), path)
    for result in score.score(lab, notebook.read_answers(lab, path), fork_server):
        assert (result.points, result.status) == (0, "not attempted"), result
        assert "Not attempted yet" in result.message


def test_an_untouched_hole_fails_its_check_in_the_notebook(lab, fork_server):
    stubs = {exercise.name: Answer(exercise.stub) for exercise in lab.exercises}
    problems = score_together(lab, stubs, fork_server, [e.name for e in lab.exercises])
    assert all(problem.startswith("NotImplementedError") for problem in problems.values()), problems


def test_the_solution_scores_everything_both_ways(lab, fork_server):
    for seed in range(3):
        for result in score.score(lab, solution(lab), fork_server, seed=seed):
            assert result.points == result.max_points, result
    problems = score_together(lab, solution(lab), fork_server, [e.name for e in lab.exercises])
    assert not any(problems.values()), problems


@pytest.mark.parametrize("name, exercise, title, says, text", WRONG)
def test_a_known_wrong_answer_is_refused_with_its_message_both_ways(
    fork_server, name, exercise, title, says, text
):
    lab = labs.read(name)
    lab.exercise(exercise)
    answers = solution(lab) | {exercise: Answer(text)}
    (result,) = score.score(lab, answers, fork_server, only=[exercise])
    assert result.points < result.max_points, f"{title}: passed"
    assert says.lower() in result.message.lower(), (
        f"{title}: promised {says!r}, got {result.message!r}"
    )
    together = score_together(lab, answers, fork_server, only=[exercise])[exercise]
    assert together, f"{title}: passed in the notebook"
    assert says.lower() in together.lower(), (
        f"{title}: promised {says!r}, in the notebook got {together!r}"
    )


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
        start = f"import numpy as np, torch\n{SLY_NAMES}\n{holes.solved(exercise.hole.source)}\nsolved = {name}\ndef {name}(*args, **kwargs):\n"
        probe = Answer(f"{start}    {probing}\n")
        sly = Answer(f"{start}    {body}\n")
        if (
            name not in holes.callable_names(exercise.hole.source)
            or "class " in exercise.hole.source
        ):
            continue
        (there_is_nothing_to_change,) = score.score(
            lab, solution(lab) | {name: probe}, fork_server, only=[name]
        )
        if there_is_nothing_to_change.status != "passed":
            (result,) = score.score(lab, solution(lab) | {name: sly}, fork_server, only=[name])
            assert result.status != "passed", f"{name}: {result}"


def test_known_wrong_answers_are_many_and_each_names_an_exercise(lab):
    wrong = wrong_answers(lab.name)
    assert len(wrong) >= 6
    assert {exercise for exercise, *_ in wrong} <= {exercise.name for exercise in lab.exercises}


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


def test_a_lab_keeps_to_the_pleasant_sizes(lab):
    cells = [cell for cell in lab.cells if "held-out" not in cell.tags]
    assert len(cells) in CELLS or (lab.name, "cells") in EXCEPTIONS, f"{len(cells)} cells"
    too_long = []
    for cell in cells:
        first = " ".join(cell.source.split()[:4])
        if cell.kind == "markdown":
            size, allowed = (
                len(re.findall(r"\w[\w'’-]*", re.sub(r"<[^>]+>", "", cell.source))),
                PROSE_WORDS,
            )
        else:
            kind = next(
                (tag for tag in ("setup", "check", "hole", "driver") if tag in cell.tags), "demo"
            )
            size = sum(
                bool(line.strip()) and not line.strip().startswith("#")
                for line in cell.source.splitlines()
            )
            allowed = SIZES.get(kind, 1000)
        if size > allowed and (lab.name, first) not in EXCEPTIONS:
            too_long.append(f"{size} > {allowed}: {first}")
    assert not too_long, "\n".join(too_long)
    assert (ROOT / "solutions" / f"{lab.name}.ipynb").stat().st_size <= 500 * 1024


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
    assert (
        5
        <= sum(
            "optional" not in cell.source for cell in lab.cells if labs.HEADING.search(cell.source)
        )
        <= 12
    )
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
