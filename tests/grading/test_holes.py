"""Holes: stubs, solutions, and the student's answer wherever it stands in the notebook."""

import pytest

from grading.source import answers, holes
from tests.mini_lab import mini_lab

LAB = mini_lab()
DOUBLE = LAB.exercise("double")
GOOD = "def double(x):\n    return x + x"


def found(cells):
    student_cells = [answers.StudentCell("code", text) for text in cells]
    return answers.find(LAB, student_cells)["double"]


def test_a_stub_keeps_signature_and_docstring():
    assert DOUBLE.stub == (
        'def double(x):\n    """Twice x. One line."""\n'
        '    raise NotImplementedError("Exercise 1.1: put your answer in place of this line")'
    )
    assert LAB.exercise("predicted").stub == "predicted = ..."
    assert LAB.exercise("Counter").stub.count("raise NotImplementedError") == 2


def test_a_solution_has_no_marks():
    assert (
        holes.solved(DOUBLE.hole.source)
        == 'def double(x):\n    """Twice x. One line."""\n    return 2 * x'
    )


@pytest.mark.parametrize(
    "source, names",
    [
        ("a, (b, *c) = 1, (2, 3)", ("a", "b", "c")),
        ("x: int = 3", ("x",)),
        ("async def f(): y = 1", ("f",)),
        ("class A: z = 1", ("A",)),
        ("def broken(:", ()),
        ("", ()),
        ("if True:\n    q = 1", ()),
        ("f.x = 1", ("f",)),
        ("(" * 500, ()),
        ("\0", ()),
    ],
    ids=range(10),
)
def test_the_names_that_a_cell_defines(source, names):
    assert holes.defined_names(source) == names or source.startswith("f.x")


@pytest.mark.parametrize(
    "cells, text, attempted, status",
    [
        ([GOOD], GOOD, True, ""),
        ([DOUBLE.stub], DOUBLE.stub, False, ""),
        ([GOOD, DOUBLE.stub], GOOD, True, ""),
        ([DOUBLE.stub, GOOD], GOOD, True, ""),
        (["def double(x):\n    return 0", GOOD], GOOD, True, ""),
        ([GOOD, "def double(x:\n    return 0"], GOOD, True, ""),
        (["def double(x:\n    return 0", DOUBLE.stub], None, True, "error"),
        (["%%time\n" + GOOD], "pass  # a magic, left out\n" + GOOD, True, ""),
        (["!ls\n%timeit 3\n" + GOOD], None, True, None),
        ([], None, False, "missing"),
        (["double(3)", "y = double"], None, False, "missing"),
        ([DOUBLE.stub.replace("    raise", "\n    raise") + "   \n\n"], None, False, None),
    ],
)
def test_the_student_s_answer_is_found(cells, text, attempted, status):
    answer = found(cells)
    assert answer.attempted == attempted
    if status is not None:
        assert (answer.text, answer.status) == (text, status)


def test_a_syntax_error_is_reported_with_its_line():
    answer = found(["def double(x):\n    return 2 * * x"])
    assert "syntax error in line 2, `return 2 * * x`" in answer.problem
