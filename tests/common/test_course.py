"""common.course: which notebook this is, what of it is not saved, and its grade as a table."""

import nbformat
import pytest

from common import course
from common.notebook import notebook_file
from grading.source import build, labs

LAB = labs.read("01")


@pytest.fixture
def path(tmp_path, monkeypatch):
    path = tmp_path / "01_strides.ipynb"
    build.write(build.lab_notebook(LAB), path)
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    return path


def test_a_notebook_knows_its_file_and_its_lab(path, monkeypatch):
    assert (notebook_file.notebook(), course.lab()) == (path, "01")
    path.rename(path.with_name("mine.ipynb"))
    assert (notebook_file.notebook(), course.lab()) == (None, "")
    monkeypatch.setenv("JPY_SESSION_NAME", str(path.with_name("mine.ipynb")))
    assert course.lab() == ""


def test_what_was_run_and_is_not_in_the_file_is_unsaved(path):
    name = LAB.exercises[0].name
    answer = LAB.solution[name]
    assert course.unsaved(path, ["x = 1", "def not_in_the_lab(): pass"]) == []
    assert course.unsaved(path, [LAB.exercises[0].stub, answer]) == [name]
    build.write(build.lab_notebook(LAB.filled({name: answer})), path)
    assert course.unsaved(path, [LAB.exercises[0].stub, answer, "%timeit 1", "f("]) == []
    path.write_text('{"cells": [')
    assert course.unsaved(path, []) == [path.name], "just being written"


@pytest.mark.slow
def test_a_grade_has_a_tick_or_a_message_for_each_exercise(path):
    right, wrong = LAB.exercises[0].name, LAB.exercises[1].name
    bad = f"def {wrong}(*args):\n    return '<b>'"
    build.write(build.lab_notebook(LAB.filled({right: LAB.solution[right], wrong: bad})), path)
    rows, problem = course._graded(path)
    assert not problem
    table = course._table(path, rows)
    assert f"✓ {LAB.exercises[0].label}" in table and f"✗ {LAB.exercises[1].label}" in table
    assert table.count("not attempted") == len(LAB.exercises) - 2
    assert "01_strides.ipynb, saved " in table and "'<b>'" not in table
    nbformat.write(nbformat.v4.new_notebook(), path.with_name("99_none.ipynb"))
    assert (
        "neither its name nor its title says which lab it is"
        in course._graded(path.with_name("99_none.ipynb"))[1]
    )
