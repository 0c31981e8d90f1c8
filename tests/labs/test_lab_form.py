"""The form that every lab keeps: its notebooks, its sizes, its cells."""

import ast
import re
from typing import Any

import nbformat
import pytest

from common.paths import ROOT
from grading.source import build, holes, labs
from tests import known_answers

NAMES = labs.names()
SIZES = {"setup": 12, "demo": 8, "check": 12}  # lines of code, without comments and blank lines
PROSE_WORDS = 110  # of a cell with its folds closed, and of each fold
FOLD = r"(?s)<details>.*?</details>"
LINE = 104  # columns of code that JupyterLab shows at 1280 pixels with its file browser open
CORE_CELLS, CORE_WORDS, CORE_EXERCISES = 70, 2500, 8  # from the title to "Done"
DONE, FURTHER = "## Done", "## Further"


@pytest.fixture(scope="module", params=NAMES)
def lab(request):
    return labs.read(request.param)


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


def test_known_wrong_answers_are_many_and_each_names_an_exercise(lab):
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
