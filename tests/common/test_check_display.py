"""common.notebook.check_display: what a notebook shows of a check that passed, and of an error."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from common.notebook import check_display, grader_preview
from grading.source import build, labs


@pytest.fixture(scope="module")
def notebook():
    """A shell that shows errors as a notebook of the course does; what it showed is collected."""
    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance()
    check_display.install()
    shell.shown = []
    shell._showtraceback = lambda kind, error, lines: shell.shown.append("\n".join(lines))
    shell.run_cell("from nogpu import ranks\nfrom common.checks import agree\nimport torch")
    yield shell
    shell.set_custom_exc((), None)
    shell.events.unregister("pre_run_cell", check_display._alone)
    shell.events.unregister("post_run_cell", check_display._tick)
    InteractiveShell.clear_instance()


def shown(notebook, *cells):
    notebook.shown.clear()
    for cell in cells:
        notebook.run_cell(cell)
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(notebook.shown))


CHECK = "# Check of 1.1 f (1 point): run me\n"
IN_RANKS = {
    "dist has no sendd": "dist.sendd(x, 1)",
    "name 'nobody' is not defined": "nobody",
    "deadlock: rank 0 → rank 1 → rank 0": "dist.recv(x, 1 - dist.get_rank())",
}


@pytest.mark.parametrize("line", IN_RANKS.values(), ids=IN_RANKS)
def test_an_error_in_a_rank_is_a_few_lines_that_name_the_student_s(notebook, line):
    text = shown(
        notebook,
        f"def f(dist):\n    x = torch.zeros(2)\n    {line}",
        f"{CHECK}ranks.run(f, world_size=2)",
    )
    assert len(text.splitlines()) <= 6 and f"line 3: {line}" in text, text
    assert "simulated.py" not in text and "Traceback" not in text


def test_an_error_in_a_function_that_a_check_calls_names_its_line(notebook):
    text = shown(notebook, "def f(x):\n    return y", f"{CHECK}agree(f(1), 2, 'f(1)')")
    assert text.splitlines()[:2] == [
        "NameError: name 'y' is not defined",
        "  in f, line 2: return y",
    ]


def test_a_failed_check_and_an_open_hole_are_the_message_alone(notebook):
    check = f"{CHECK}agree(f(1), 2, 'f(1)')"
    assert shown(notebook, "def f(x):\n    return 1", check) == (
        "AssertionError: f(1) gave 1, want 2."
    )
    hole = "def f(x):\n    raise NotImplementedError('1.1 is open')"
    assert shown(notebook, hole, check) == "NotImplementedError: 1.1 is open"


def test_a_check_says_that_a_cell_was_no_python_and_the_name_is_the_older_one(notebook, capsys):
    check, broken = f"{CHECK}agree(f(1), 2, 'f(1)')", "def f(x)\n    return 1"
    says = "  The cell of `f` is no valid Python. This check used what it was before."
    text = shown(notebook, "def f(x):\n    raise NotImplementedError('1.1 is open')", broken, check)
    assert text.splitlines()[-2:] == ["NotImplementedError: 1.1 is open", says]
    shown(notebook, "def f(x):\n    return 2", broken)
    capsys.readouterr()
    assert shown(notebook, check) == ""
    assert capsys.readouterr().out.splitlines() == [says]  # and no tick
    shown(notebook, "def f(x):\n    return 2", check)
    assert "✓ 1.1 f · 1 point" in capsys.readouterr().out


def test_a_check_runs_in_one_thread_and_other_cells_do_not(notebook):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for check in (
            "counts = torch.get_num_threads()",
            "counts = torch.get_num_threads(); 1 / 0",
        ):
            shown(notebook, f"{CHECK}{check}")
            assert (notebook.user_ns["counts"], torch.get_num_threads()) == (1, 3)
    finally:
        torch.set_num_threads(before)


def test_an_error_of_the_student_s_own_cell_keeps_its_traceback(notebook):
    text = shown(notebook, "def g(x):\n    return nobody\ng(1)")
    assert "Traceback" in text and "g(1)" in text


def test_a_check_that_passed_has_a_tick_with_its_points(capsys):
    result = SimpleNamespace(success=True, info=SimpleNamespace(raw_cell=CHECK + "pass"))
    check_display._tick(result)
    assert "✓ 1.1 f · 1 point" in capsys.readouterr().out
    for other in (
        SimpleNamespace(success=False, info=result.info),
        SimpleNamespace(success=True, info=SimpleNamespace(raw_cell="pass")),
        SimpleNamespace(success=True, info=None),
    ):
        check_display._tick(other)
    assert not capsys.readouterr().out


def test_what_a_check_took_is_shown_and_is_no_output_that_nbval_compares(
    notebook, capsys, monkeypatch
):
    """nbval compares streams and displays, and passes over the changes of a display."""
    told = []
    seconds = iter([0.0, 7.0])
    monkeypatch.setattr(grader_preview, "_computed_s", lambda: next(seconds, 7.0))
    monkeypatch.setattr(
        notebook.display_pub,
        "publish",
        lambda data, *_, update=False, **__: told.append((update, data["text/plain"])),
    )
    callbacks = notebook.events.callbacks
    monkeypatch.setattr(notebook.events, "callbacks", {k: [*v] for k, v in callbacks.items()})
    monkeypatch.setattr(notebook, "ast_transformers", [*notebook.ast_transformers])
    grader_preview.watch(notebook)
    assert shown(notebook, f"{CHECK}print('passes')") == ""
    assert capsys.readouterr().out.strip() == "passes"
    tick = "✓ 1.1 f · 1 point"
    says = "This check computed for 7.0 s here. The grader stops an answer after 10 s"
    assert told[0] == (False, tick) and len(told) == 2
    assert told[1][0] and told[1][1].startswith(f"{tick}\n{says}")


def test_every_check_of_a_lab_has_the_title_that_makes_the_tick():
    lab = labs.read("01")
    cells = [
        cell for cell in build.lab_notebook(lab).cells if "check" in cell.metadata.get("tags", ())
    ]
    assert all(check_display.TITLE.match(cell.source) for cell in cells) and len(cells) >= len(
        lab.exercises
    )
    assert all(cell.metadata["jupyter"]["source_hidden"] for cell in cells)


def test_a_name_whose_cell_has_not_run_names_that_cell(notebook, tmp_path, monkeypatch):
    lab = labs.read("01")
    path = tmp_path / f"{lab.name}.ipynb"
    build.write(build.lab_notebook(lab), path)
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    name = lab.exercises[0].name
    text = shown(notebook, f"{CHECK}agree({name}((2, 3)), (3, 1), 'it')")
    assert "has not run yet" in text and f"    def {name}(" in text and "Traceback" not in text
    assert "# Imports: run me first" in shown(notebook, "np.zeros(3)")
    assert "has not run yet" not in shown(notebook, f"{name}s((2, 3))")  # a slip of the pen


def test_an_endless_loop_that_is_stopped_is_a_few_lines(notebook):
    text = shown(
        notebook,
        "def f(x):\n    raise KeyboardInterrupt",
        f"{CHECK}agree(f(1), 2, 'f(1)')",
    )
    assert text.startswith("KeyboardInterrupt: the cell was stopped") and "in f, line 2" in text, (
        text
    )
