"""The form in which known wrong answers are written."""

import ast

import pytest

from common.paths import ROOT
from grading.source import holes, labs
from tests import known_answers

SOLVED = '''\
def total(numbers, start):
    """Their sum."""
    for number in numbers:
        if number < start:
            start += number
    return start


def twice(start):
    return total([start], start)
'''


def edited(lines):
    """The cell that edits make of SOLVED."""
    return known_answers.parse("total: a title", f"# says: words\n{lines}\n").text(SOLVED)


def test_an_answer_has_an_exercise_a_title_and_words():
    answer = known_answers.parse("total: a title", "# says: two words\ndef total(): pass\n")
    assert (answer.exercise, answer.title, answer.says) == ("total", "total: a title", "two words")
    assert answer.text(SOLVED) == "def total(): pass"


@pytest.mark.parametrize(
    "lines, old, new",
    [
        ("# edit: number < start  ->  number <= start", "number < start", "number <= start"),
        ("# edit (2 places): numbers  ->  items", "numbers", "items"),
        ("# -     start += number\n# +     pass", "start += number", "pass"),
        (
            "#   for number in numbers:\n# +     print(number)",
            "in numbers:\n",
            "in numbers:\n        print(number)\n",
        ),
        (
            "# - if number < start:\n# -     start += number\n# + start += number",
            "        if number < start:\n            start += number",
            "        start += number",
        ),
        ("# -\n# -\n#   def twice(start):", "\n\n\ndef twice", "\ndef twice"),
    ],
)
def test_an_edit_changes_the_solution(lines, old, new):
    without = known_answers.without_docstrings(SOLVED)
    assert edited(lines) == without.replace(old, new)


def test_edits_apply_one_after_another():
    text = edited(
        "# edit: number < start  ->  number\n# - if number:\n# + if True:\n# ...\n# - return start"
    )
    assert "if True:" in text and "return start" not in text


@pytest.mark.parametrize(
    "lines, problem",
    [
        ("# edit: number > start  ->  0", "`number > start` stands in 0 places"),
        ("# edit: start  ->  0", "`start` stands in 7 places of the solution, not in 1"),
        (
            "# edit (2 places): number < start  ->  0",
            "stands in 1 places of the solution, not in 2",
        ),
        ("# edit: umber < start  ->  0", "0 places"),
        ("# - return starts", "the block that begins with `return starts` stands in 0 places"),
        ("# - if number < start:\n# - start += number", "0 places"),
        ("# + return start", "does not say where"),
        ("# edit: number < start -> 0", "is no edit"),
        ("# a comment", "is no edit"),
        ("", "neither an edit nor a cell"),
    ],
)
def test_an_edit_that_does_not_fit_says_so(lines, problem):
    with pytest.raises(ValueError) as raised:
        edited(lines)
    assert str(raised.value).startswith("total: a title: ") and problem in str(raised.value)


def test_an_answer_must_promise_words():
    with pytest.raises(ValueError, match="total: a title: its first line must be"):
        known_answers.parse("total: a title", "# edit: a  ->  b\n")


@pytest.mark.parametrize("name", labs.names())
def test_each_known_wrong_answer_fits_its_lab_and_differs_from_the_solution(name):
    lab, texts = labs.read(name), set()
    for answer in known_answers.read(name):
        solved = holes.solved(lab.exercise(answer.exercise).hole.source)
        texts.add((answer.exercise, ast.unparse(ast.parse(answer.text(solved)))))
    for exercise in lab.exercises:
        solution = known_answers.without_docstrings(holes.solved(exercise.hole.source))
        assert (exercise.name, ast.unparse(ast.parse(solution))) not in texts
    assert len(texts) == len(known_answers.read(name)), "the same answer twice"


@pytest.mark.parametrize("name", labs.names())
def test_a_line_of_a_known_answer_is_hardly_wider_than_a_lab_s(name):
    """An edit holds two pieces of a line, and a line of a diff is longer by its sign."""
    for kind in ("wrong", "right"):
        path = known_answers.path_of(name, kind)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        assert not [line for line in lines if len(line) > (220 if line[0:1] == "#" else 140)]


def test_a_right_answer_promises_no_message():
    answer = known_answers.parse("total: by a loop", "def total(): pass\n", "right")
    assert (answer.exercise, answer.says, answer.cell) == ("total", "", "def total(): pass")
