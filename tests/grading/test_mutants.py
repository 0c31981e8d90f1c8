"""What counts as a mutant of a solution, and what does not."""

import pytest

from grading import mutants
from grading.classroom import lab
from grading.source import holes

HOLE = '''def time_s(flops, peak=2.0):
    """Seconds, 3 or more. About five lines."""
    # BEGIN SOLUTION
    if flops < 7:
        flops = 3
    elif flops > 9:
        flops = 5
    else:
        flops = 8
    return flops / 1979e12
    # END SOLUTION'''
SOLVED = holes.solved(HOLE)


@pytest.fixture(scope="module")
def texts():
    return [text.rstrip() for text in mutants.mutants(HOLE)]


@pytest.mark.parametrize(
    "old, new",
    [
        ("< 7", "<= 7"),
        ("flops / 1979e12", "flops * 1979e12"),
        ("flops = 3", "flops = 4"),
        ("if flops < 7", "if not flops < 7"),
        ("flops = 3", "pass"),
        ("flops = 8", "pass"),
        ("return flops / 1979e12", "pass"),
        ("elif flops > 9:\n        flops = 5\n    else:\n        flops = 8", "pass"),
    ],
)
def test_an_operator_a_number_a_condition_or_a_statement_is_changed(texts, old, new):
    assert SOLVED.replace(old, new) in texts


def test_mutants_are_distinct_and_keep_signature_and_docstring(texts):
    assert len(texts) == len(set(texts)) > 30 and SOLVED not in texts
    assert all(text.splitlines()[:2] == HOLE.splitlines()[:2] for text in texts)


def test_a_float_moved_by_its_rounding_is_not_a_mutant(texts):
    assert not [text for text in texts if "return flops /" in text and "1979e12" not in text]


def test_a_test_that_a_clinic_scores_has_no_mutants():
    scored = [exercise for exercise in lab("01_strides").exercises if mutants._scored(exercise)]
    assert [exercise.name for exercise in scored] == ["test_fetches"]
