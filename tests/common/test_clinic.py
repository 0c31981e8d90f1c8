"""A student's test is judged by programs, and the verdict says what it needs."""

import ast
import zlib

import numpy as np
import pytest

from common.checks import clinic
from common.paths import LESSONS
from nogpu.kernels import linecache_text

RNG = np.random.default_rng(0)

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
FILES = sorted(path.stem.removeprefix("clinic_") for path in LESSONS.glob("*/clinic_*.py"))


@pytest.fixture
def absolute(monkeypatch, tmp_path):
    monkeypatch.setattr(clinic, "LESSONS", tmp_path)
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "clinic_absolute.py").write_text(TEXT)


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

    assert "refuses 1 of 2 wrong programs (par 1)" in clinic.score(
        "absolute", judged, par=1, rng=RNG
    )
    with pytest.raises(AssertionError, match=r"1 of 2 .* par is 2\. .*wrong for zero only"):
        clinic.score("absolute", judged, par=2, rng=RNG)


def refuses(candidate):
    assert candidate(3.0) == 4.0, "I want 4"


@pytest.mark.parametrize(
    "test, says",
    [
        (refuses, "AssertionError: I want 4"),
        (lambda candidate: candidate.nothing, "AttributeError"),
    ],
)
def test_a_test_that_refuses_a_right_program_hears_what_it_said_and_sees_the_program(
    absolute, test, says
):
    with pytest.raises(AssertionError, match=r"np\.abs\(x\)") as failed:
        clinic.score("absolute", lambda source: clinic.verdict(test, source), par=1, rng=RNG)
    assert says in str(failed.value)


@pytest.mark.parametrize(
    "test", [lambda candidate: True, lambda candidate: None if candidate(-1) == 1 else "wrong"]
)
def test_a_test_that_returns_its_verdict_is_told_to_raise_it(absolute, test):
    with pytest.raises(
        AssertionError, match="test_absolute: it returned .*, but a test returns no"
    ):
        clinic.score("absolute", lambda source: clinic.verdict(test, source), par=1, rng=RNG)


def test_a_test_that_is_not_written_yet_says_so(absolute):
    def test_absolute(candidate):
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        clinic.score(
            "absolute", lambda source: clinic.verdict(test_absolute, source), par=1, rng=RNG
        )


@pytest.mark.parametrize("name", FILES)
def test_a_clinic_has_right_programs_and_enough_wrong_ones(name):
    faults = [program.fault for program in clinic.programs(name)]
    assert faults.count("") >= 2, "right programs in two styles"
    assert len(faults) - faults.count("") >= 6
    for program in clinic.programs(name):
        ast.parse(program.source)


@pytest.mark.parametrize("name", FILES)
def test_a_program_in_other_words_is_the_same_program(name):
    for program in clinic.programs(name):
        first, second = (clinic.reworded(program.source, RNG) for _ in range(2))
        compile(first, "<program>", "exec")
        assert first != second != program.source
        given = [ast.unparse(node.args) for node in _functions(first)]
        assert given == [ast.unparse(node.args) for node in _functions(program.source)]


def _functions(text):
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]


def test_other_words_change_no_value():
    text = """
SIZE = 3
def helper(x, *, times=2):
    y = x
    for _ in range(times):
        y = y + x
    return y

class Kept:
    count = 0

def program(x):
    def inner():
        nonlocal total
        total += SIZE
    total, kept = 0, Kept()
    kept.count = [y for y in range(4) if (z := y) > 1]
    try:
        inner()
        raise ValueError(f"{z}")
    except ValueError as error:
        return helper(x, times=total), kept.count, str(error), z
"""
    results = []
    for each in (text, clinic.reworded(text, RNG)):
        names = {}
        exec(each, names)
        results.append(names["program"](5))
    assert results[0] == results[1] == (20, [2, 3], "3", 3)


def knows(candidate):
    assert zlib.crc32(candidate.__code__.co_code) == 0


def judged_by_knowing(source):
    return clinic.verdict(knows, source)


def counts():
    calls = []

    def test(candidate):
        calls.append(1)
        assert len(calls) <= 1, "the first is the right one"

    return test


def test_a_test_that_counts_its_calls_or_looks_at_the_text_earns_nothing(absolute):
    luck = 0
    for seed in range(20):
        test = counts()
        try:
            clinic.score(
                "absolute",
                lambda source, test=test: clinic.verdict(test, source),
                par=2,
                rng=np.random.default_rng(seed),
            )
            luck += 1
        except AssertionError:
            pass
    assert 0 < luck < 14  # one order in three is the one that it counts on

    with pytest.raises(
        AssertionError, match=r"a program's text \(__code__, co_code, import zlib; allowed"
    ):
        clinic.score("absolute", judged_by_knowing, par=1, rng=RNG)


@pytest.mark.parametrize(
    "body, ways",
    [
        ("import inspect\n    inspect.findsource(candidate)", "findsource, inspect"),
        ("import marshal", "import marshal; allowed imports: __future__, abc, .*"),
        ("assert candidate.src", "src"),
        ("assert candidate.__doc__ == candidate.__defaults__", "__defaults__"),
        ("try: candidate(1)\n    except TypeError as e: e.__traceback__", "__traceback__"),
        ("assert open('/proc/self/mem').read(1)", "open"),
        ("import sys\n    sys.exc_info()[2].tb_frame", "tb_frame"),
    ],
)
def test_a_test_may_not_look_at_the_candidate_s_text(absolute, body, ways):
    cell = f"def test_absolute(candidate):\n    {body}\n"
    cell += "def judged(source):\n    return test_absolute(source)\n"
    names: dict = {"__name__": "__main__"}
    linecache_text.remember("<a test>", cell)
    exec(compile(cell, "<a test>", "exec"), names)
    with pytest.raises(AssertionError, match=rf"looks at a program's text \({ways}\)\. Judge"):
        clinic.score("absolute", names["judged"], par=1, rng=RNG)
