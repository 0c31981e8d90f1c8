"""A student's test is judged by programs, and the verdict says what it needs."""

import ast

import pytest

from common import clinic

TEXT = '''"""Absolute values."""
import numpy as np

def right_numpy(x):
    return np.abs(x)

def wrong_sign(x):
    """Forgets the sign of negative numbers."""
    return x  # as it came

def wrong_zero(x):
    """Is wrong for zero only."""
    return np.where(x == 0, 1, np.abs(x))
'''
FILES = sorted(path.stem for path in clinic.FOLDER.glob("*.py"))


@pytest.fixture
def absolute(monkeypatch, tmp_path):
    monkeypatch.setattr(clinic, "FOLDER", tmp_path)
    (tmp_path / "absolute.py").write_text(TEXT)


def test_a_program_s_text_does_not_say_whether_it_is_right(absolute):
    programs = clinic.programs("absolute")
    assert sorted(program.fault for program in programs) == [
        "",
        "Forgets the sign of negative numbers.",
        "Is wrong for zero only.",
    ]
    for program in programs:
        assert "def program(x):" in program.source and "import numpy" in program.source
        assert not any(word in program.source for word in ("right", "wrong", "Forgets", "as it"))


def test_the_score_counts_refused_programs_and_names_the_fault_of_one(absolute):
    def test_absolute(candidate):
        assert candidate(-2.0) == 2.0, "of -2"

    def judged(source):
        return clinic.verdict(test_absolute, source)

    assert "refuses 1 of 2 wrong programs (par 1)" in clinic.score("absolute", judged, par=1)
    with pytest.raises(AssertionError, match=r"1 of 2 .* par is 2\. .*wrong for zero only"):
        clinic.score("absolute", judged, par=2)


def refuses(candidate):
    assert candidate(3.0) == 4.0, "I want 4"


@pytest.mark.parametrize(
    "test, says",
    [
        (refuses, "AssertionError: I want 4"),
        (lambda candidate: True, "it returned True, but a test returns nothing"),
        (lambda candidate: candidate.nothing, "AttributeError"),
    ],
)
def test_a_test_that_refuses_a_right_program_hears_what_it_said_and_sees_the_program(
    absolute, test, says
):
    with pytest.raises(AssertionError, match=r"np\.abs\(x\)") as failed:
        clinic.score("absolute", lambda source: clinic.verdict(test, source), par=1)
    assert says in str(failed.value)


def test_a_test_that_is_not_written_yet_says_so(absolute):
    def test_absolute(candidate):
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        clinic.score("absolute", lambda source: clinic.verdict(test_absolute, source), par=1)


@pytest.mark.parametrize("name", FILES)
def test_a_clinic_has_right_programs_and_enough_wrong_ones(name):
    faults = [program.fault for program in clinic.programs(name)]
    assert faults.count("") >= 2, "right programs in two styles"
    assert len(faults) - faults.count("") >= 6
    for program in clinic.programs(name):
        ast.parse(program.source)
