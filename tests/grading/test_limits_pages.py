"""The limits of what people read: pages, tables and summaries stay small, whatever came in."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from grading import classroom, feedback, report, similar
from grading.course import page
from grading.course.settings import Settings
from grading.report import Graded, Result
from grading.source import answers, holes, labs, notebook
from grading.source.holes import Answer
from grading.submissions import Submission
from tests.mini_lab import mini_lab

LAB = labs.read(labs.names()[0])
MINI = mini_lab()
NOWHERE = Path("none.ipynb")
QUESTION = next(cell for cell in LAB.cells if "answer" in cell.tags).source


def graded(student, text="x", message="wrong", written=()):
    results = [Result(e.label, 0, e.points, "failed", message) for e in LAB.exercises]
    texts = {e.name: Answer(text) for e in LAB.exercises}
    return Graded(Submission(student, LAB.name, NOWHERE), LAB, results, texts, written)


@pytest.mark.parametrize(
    "text", ["<\n" * 400_000, "<" * 900_000, "\n".join(["&" * 300] * 300)], ids=str.__len__
)
def test_a_student_s_page_stays_small(tmp_path, text):
    feedback.write_students([graded("ada", text, "<" * 10**6)], tmp_path)
    shown = (tmp_path / "ada.html").read_text()
    assert len(shown) <= feedback.MAX_PAGE
    assert "more lines ..." in shown or "[...]" in shown or "too long to be shown" in shown


def test_the_page_of_written_answers_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(feedback, "MAX_WRITTEN", 100_000)
    question = notebook.questions(LAB)[0]
    group = [graded(f"s{i}", written=[(question, "y" * 20_000)]) for i in range(50)]
    feedback.write_answers(group, tmp_path)
    assert (tmp_path / f"{LAB.name}.html").stat().st_size < 150_000


def test_a_written_answer_is_cut_where_it_is_read(tmp_path):
    cell = {"cell_type": "markdown", "source": QUESTION + "\n" + "long " * 10**6}
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "cells": [cell]}))
    ((_, text),) = notebook.written_answers(LAB, path)[:1]
    assert len(text) < notebook.MAX_WRITTEN + 100 and "characters left out" in text


def test_the_page_of_similar_answers_stays_small(tmp_path):
    lines = tuple((n, "z" * 5_000) for n in range(300))
    pairs = [similar.Pair(LAB.name, ("a", f"b{i}"), 0.9, (lines, lines)) for i in range(200)]
    similar.write(pairs, tmp_path)
    assert (tmp_path / "similar.html").stat().st_size < 8_000_000


def test_the_class_page_lists_so_many_and_counts_the_rest(tmp_path):
    group = [graded(f"s{i:03}") for i in range(page.SHOWN + 7)]
    rows = [row for one in group for row in one.rows]
    alike = [page.Alike(LAB.name, ("s001", "s002"), 0.9)] * (page.SHOWN + 3)
    page.write(group, rows, Settings(), tmp_path, alike=alike)
    text = (tmp_path / "index.html").read_text()
    assert "7 more: results.csv" in text and "3 more share less" in text
    assert f"Needs a look ({page.SHOWN + 7})" in text
    assert f"Similar answers ({page.SHOWN + 3})" in text


def test_the_tables_of_the_summary_have_so_many_rows():
    looks = [(f"s{i}", "01", "r" * 10_000) for i in range(report.MOST_ROWS + 5)]
    screen = Console(file=io.StringIO(), width=120)
    screen.print(report.look_table(looks))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "5 more" in text and len(text) < 200 * report.MOST_ROWS * 5


def test_an_answer_with_all_that_it_reads_has_a_limit():
    names = [f"a{i}" for i in range(4)]
    cells = [answers.StudentCell("code", f"{name} = '{'x' * 900_000}'") for name in names]
    own = f"def double(x):\n    return {' + '.join(names)}"
    answer = answers.find(MINI, [*cells, answers.StudentCell("code", own)])["double"]
    assert (answer.text, answer.status) == (None, "error")
    assert "has 3.6 million characters; at most 2 are allowed" in answer.problem


def test_a_large_notebook_leaves_nothing_behind_for_the_next(tmp_path, monkeypatch):
    freed = []
    monkeypatch.setattr(holes, "forget", lambda: freed.append(True))
    path = tmp_path / f"{LAB.name}.ipynb"
    for source, times in (("x = 1", 0), ("#" * 3 * 10**6, 1)):
        cell = {"cell_type": "code", "source": source}
        path.write_text(json.dumps({"nbformat": 4, "cells": [cell]}))
        classroom.read(Submission("ada", LAB.name, path))
        assert len(freed) == times
