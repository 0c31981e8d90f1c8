"""What students read tells them no secret case, whatever their code does with it."""

from dataclasses import replace
from pathlib import Path

import pytest

from grading import feedback, score
from grading.course import overrides
from grading.jail import choice
from grading.lms import gradescope, nbgrader
from grading.report import Graded, Result
from grading.source.holes import Answer
from grading.source.labs import parse
from grading.submissions import Submission
from grading.worker.fork_server import ForkServer
from tests.mini_lab import SOURCE

SECRET = 987654321
SEED = 7  # the class's: it draws another number than a student's own copy does
LAB = parse(
    SOURCE.replace("double(21), 42,", f"double({SECRET}), {2 * SECRET},")
    .replace(
        'agree(count(3), [2, 4, 6], "count(3)")',
        'remark(count(3) == [2, 4, 6], f"count(3) gave {count(3)}.")\n'
        'agree(count(3), [2, 4, 6], "count(3)")\n'
        'number = int(rng.integers(1 << 50))\nagree(double(number), 2 * number, "a number")',
    )
    .replace("import agree", "import agree, remark"),
    "99_mini",
)
SOLUTION = {name: Answer(text) for name, text in LAB.solution.items()}
PLAIN = "def double(x):\n    return 2 * x\n"
REMEMBERS = "seen = []\ndef double(x):\n    seen.append(x)\n    {}\n    return 2 * x\n"
IF_SECRET = "def double(x):\n    if isinstance(x, int) and x > 99:\n        {}\n    return 2 * x\n"
# {what the student's code does: (the cell of double, the cell of Counter or "")}
ATTACKS = {
    "an exception's text": (IF_SECRET.format("raise ValueError(f'it was {x}')"), ""),
    "an unsolved part's text": (IF_SECRET.format("raise NotImplementedError(str(x))"), ""),
    "a returned value": (IF_SECRET.format("return [str(x)]"), ""),
    "printed output": (IF_SECRET.format("print(x); raise SystemExit(x)"), ""),
    "a warning": (
        IF_SECRET.format("import warnings; warnings.warn(str(x)); raise UserWarning(x)"),
        "",
    ),
    "the function's name": (
        IF_SECRET.format("double.__name__ = double.__qualname__ = f'f{x}'; return 0"),
        "",
    ),
    "an exit code": (IF_SECRET.format("import os; os._exit(x % 256)"), ""),
    "a malformed answer": (IF_SECRET.format("return type(f'T{x}', (), {})()"), ""),
    "an exception's notes": (
        IF_SECRET.format("e = ValueError(); e.add_note(str(x)); raise e"),
        "",
    ),
    "an exception of a later check": (
        REMEMBERS.format("pass"),
        "class Counter:\n    def step(self):\n        raise ValueError(str(seen))",
    ),
    "a value of a later check": (
        REMEMBERS.format("pass"),
        "class Counter:\n    def step(self):\n        return str(seen)",
    ),
    "a remark": (
        REMEMBERS.format("pass"),
        "class Counter:\n    n = 0\n    def step(self):\n        self.n += 2\n"
        "        return self.n + (max(s for s in seen if isinstance(s, int)) if seen else 0)",
    ),
    "a later cell": (
        REMEMBERS.format("pass"),
        "assert not seen, str(seen)\nclass Counter:\n    pass",
    ),
    "a cell that fails below its answer": (
        REMEMBERS.format("pass"),
        "class Counter:\n    n = 0\n    def step(self):\n        self.n += 2\n"
        "        return self.n\nassert not seen, str(seen)",
    ),
    "a file": (
        REMEMBERS.format(
            "import os, tempfile\n"
            "    with open(os.path.join(tempfile.gettempdir(), 'seen'), 'a') as f:\n"
            "        f.write(str(x))"
        ),
        "import os, tempfile\nclass Counter:\n    def step(self):\n"
        "        raise ValueError(open(os.path.join(tempfile.gettempdir(), 'seen')).read())",
    ),
}


def sandboxes():
    return [name for name in ("bubblewrap", "landlock") if not choice.JAILS[name].problem()]


@pytest.fixture(scope="module")
def fork_server():
    server = ForkServer(bare=True, jail=choice.JAILS[[*sandboxes(), "none"][0]])
    yield server
    server.close()


def graded(fork_server, double, counter="", lab=LAB):
    answers = SOLUTION | {"double": Answer(double)}
    if counter:
        answers["Counter"] = Answer(counter)
    results = score.score(lab, answers, fork_server, SEED)
    submission = Submission("ada", lab.name, Path("none.ipynb"))
    return Graded(submission, lab, score.told(lab, answers, fork_server, results), answers)


def read_by_students(one, folder):
    """All that leaves the grader for the student: the page, Gradescope's JSON, nbgrader's text."""
    by_hand = [
        overrides.Override("ada", one.lab.name, row["exercise"], 1, "It was close.", 1, folder)
        for row in one.rows
        if row["message"]
    ]
    rows = overrides.apply(one.rows, by_hand)
    feedback.write_students([one], folder)
    feedback.write_students([one], folder / "by hand", rows)
    pages = [path.read_text() for path in folder.rglob("ada.html")]
    outcomes = [nbgrader._outcome(row) for row in (*one.rows, *rows)]
    return "\n".join([*pages, str(gradescope.results(one)), *outcomes])


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_secret_case_is_told(fork_server, tmp_path, attack):
    if attack == "a file" and not sandboxes():
        pytest.skip("without a sandbox, students' processes share the folder of temporary files")
    double, counter = ATTACKS[attack]
    one = graded(fork_server, double, counter)
    told = read_by_students(one, tmp_path)
    assert not numbers(told) & secrets(), told


def numbers(text):
    digits = "".join(c if c.isdigit() else " " for c in text)
    return {int(word) for word in digits.split() if len(word) > 6}


def secrets():
    import numpy as np

    check = LAB.exercises[-1].checks[0]
    drawn = int(np.random.default_rng(score.check_seed(check, SEED)).integers(1 << 50))
    return {k * n + d for n in (SECRET, drawn) for k in (1, 2) for d in (0, 2, 4, 6)}


def test_the_attacks_say_the_secret_to_the_instructor(fork_server):
    said = [
        attack
        for attack, texts in ATTACKS.items()
        if any(numbers(r.message) & secrets() for r in graded(fork_server, *texts).results)
    ]
    assert len(said) >= 9, said  # else the test above would prove nothing


def test_a_visible_mistake_is_told_with_its_values(fork_server):
    (first, *_) = graded(fork_server, "def double(x):\n    return x * x").results
    assert "That is the square." in first.to_student and "gave" in first.to_student
    own = score.score(
        LAB, SOLUTION | {"double": Answer("def double(x):\n    return x * x")}, fork_server
    )
    assert first.to_student == own[0].message, "as in the student's own copy"


def test_a_held_out_case_is_told_as_such(fork_server, tmp_path):
    one = graded(fork_server, IF_SECRET.format("return 0"))
    first = one.results[0]
    assert str(2 * SECRET) in first.message and first.points == 2
    assert first.to_student == (
        "double: a held-out case failed. The cases that your own copy draws pass."
    )
    assert "a held-out case failed" in read_by_students(one, tmp_path)


def test_a_named_mistake_is_told_without_values(fork_server):
    source = SOURCE.replace(
        'agree(double(21), 42, "double(21)")',
        'agree(double(21), 42, "double(21)", mistakes={"That is one too many.": 43})',
    )
    lab = parse(source, "99_mini")
    text = "def double(x):\n    return 2 * x + (isinstance(x, int) and x == 21)"
    one = graded(fork_server, text, lab=lab)
    assert one.results[0].to_student.endswith("\nThat is one too many.")
    assert "42" not in one.results[0].to_student


def test_another_random_case_is_told_as_such(fork_server):
    text = (
        "def double(x):\n"
        "    if isinstance(x, int) and 99 < x != {}: raise ValueError(x)\n    return 2 * x"
    )
    import numpy as np

    check = LAB.exercises[-1].checks[0]
    public = int(np.random.default_rng(score.check_seed(check, 0)).integers(1 << 50))
    lab = replace(LAB, cells=tuple(c for c in LAB.cells if "held-out" not in c.tags))
    last = graded(fork_server, text.format(public), lab=lab).results[-1]
    assert "another random case failed" in last.to_student and "raised" in last.message


@pytest.mark.slow
def test_what_took_too_long_is_not_tried_again(fork_server):
    one = graded(fork_server, IF_SECRET.format("import time; time.sleep(99)"))
    assert one.results[0].to_student == "double: a check took too long and was stopped."
    assert Result("1.1 double", 0, 1, "failed", "why").to_student == "why"
