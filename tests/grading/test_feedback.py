"""The pages that students and instructors read. A student's text is never HTML."""

import re
import time
from pathlib import Path

import pytest

from common.checks import obfuscated
from common.paths import ROOT
from grading import classroom, feedback, mistakes, similar
from grading.course import overrides
from grading.course import page as class_page
from grading.course.page import Alike
from grading.course.settings import Settings
from grading.report import Result, Status
from grading.source import labs as lab
from grading.source.holes import Answer
from grading.submissions import Submission

LAB = lab.read(lab.names()[0])
NOWHERE = Path("none.ipynb")
EVIL = "</pre><script>alert(1)</script>"


def graded(student, *, status: Status = "failed", message="", text="", written=(), **more):
    first = LAB.exercises[0]
    results = [Result(f"{e.number} {e.name}", e.points, e.points, "passed") for e in LAB.exercises]
    results[0] = Result(results[0].exercise, 0, first.points, status, message)
    answers = {e.name: Answer(e.stub, False) for e in LAB.exercises} | {first.name: Answer(text)}
    return classroom.Graded(
        Submission(student, LAB.name, NOWHERE, time_s=1.8e9, **more), LAB, results, answers, written
    )


def page(folder, *all_graded):
    feedback.write_students(all_graded, folder)
    return (folder / f"{all_graded[0].submission.student}.html").read_text(encoding="utf-8")


def sentence():
    """A sentence of the expected values that the first exercise's checks import."""
    text = obfuscated.read(ROOT / "common" / "lessons" / LAB.name[3:] / "expected.py")
    match = re.search(r'"([A-Z][^"{}]{20,}\.)"', text)
    assert match
    return match[1]


def test_a_page_says_what_failed_and_what_it_looks_like(tmp_path):
    text = page(
        tmp_path,
        graded(
            "ada",
            message=f"f(2) gave 3, want 4.\n{sentence()}",
            text="def f(x):\n    return x + 1",
            late_s=5400,
        ),
    )
    assert (
        "f(2) gave 3, want 4." in text
        and f"<b>It looks like a known mistake.</b> {sentence()}" in text
    )
    assert "return x + 1" in text and "20 of 21" in text and "1 h 30 min late" in text
    assert "src=" not in text and "href=" not in text, "a page needs nothing but itself"


@pytest.mark.parametrize("message", ["{0}\nf(2) gave 3, want 4.", "f(2) gave 3, want 4.\n{0}"])
def test_a_page_says_a_known_mistake_once(tmp_path, message):
    text = page(tmp_path, graded("ada", message=message.format(sentence())))
    assert text.count(sentence()) == 1 and '<pre class="message">f(2) gave 3, want 4.</pre>' in text


def test_the_line_that_raised_is_marked(tmp_path):
    text = page(
        tmp_path,
        graded(
            "ada",
            message="f(2) raised ZeroDivisionError (line 2: `return 1 / 0`).",
            text="def f(x):\n    return 1 / 0",
        ),
    )
    assert "<pre>def f(x):\n<mark>    return 1 / 0</mark>\n</pre>" in text, (
        "line by line, as it was written"
    )


def test_student_text_is_never_html(tmp_path):
    one = graded(
        f"ada {EVIL[6:14]}".replace("/", ""),
        message=EVIL,
        text=f"# {EVIL}",
        written=[(question(), EVIL)],
    )
    text = page(tmp_path, one)
    feedback.write_answers([one], tmp_path / "answers")
    similar.write(
        [similar.Pair(LAB.name, (EVIL, "bob"), 0.9, (((1, EVIL),), ((1, EVIL),)))], tmp_path
    )
    for html in (
        text,
        (tmp_path / "answers" / f"{LAB.name}.html").read_text(),
        (tmp_path / "similar.html").read_text(),
    ):
        assert "<script" not in html and "&lt;script&gt;" in html
        assert "default-src 'none'" in html


def test_long_answers_are_compared_and_shown_up_to_a_limit(tmp_path):
    text = "".join(f"def f{i}(x):\n    return [x * {i}, (x - {i}) ** 2]\n" for i in range(1_000))
    pair = [graded("ada", text=text), graded("bob", text=text + "# mine\n")]
    found = similar.pairs(pair)
    assert [one.students for one in found] == [("ada", "bob")]
    similar.write(found, tmp_path)
    page = (tmp_path / "similar.html").read_text()
    assert (
        len(page) < 200_000 and "50,000 characters are compared, the shortest answers first" in page
    )


def test_an_answer_that_is_too_long_to_compare_takes_no_time():
    text = "".join(f"def f{i}(x):\n    return x * {i} + {i % 7}\n" for i in range(20_000))
    began_s = time.process_time()
    assert similar.pairs([graded("ada", text=text), graded("bob", text=text)]) == []
    assert time.process_time() - began_s < 30


def test_the_class_page_lists_rings_with_the_solution_unlinked(tmp_path):
    ring = Alike(LAB.name, ("(our solution)", "ada", "bob"), 1.0)
    two = [graded("ada"), graded("bob")]
    rows = [row for one in two for row in one.rows]
    class_page.write(two, rows, Settings(), tmp_path, alike=[ring])
    text = (tmp_path / "index.html").read_text()
    assert "(our solution); <a href" in text and "feedback/%28our" not in text


def test_a_border_shows_the_points_whoever_gave_them(tmp_path):
    one, label = graded("ada", message="wrong"), LAB.exercises[0].label
    for points, colour in ((1, "passed"), (0.5, "partly-passed"), (0, "failed")):
        rows = overrides.apply(
            one.rows, [overrides.Override("ada", LAB.name, label, points, "Shown", 2, NOWHERE)]
        )
        feedback.write_students([one], tmp_path, rows)
        shown = (tmp_path / "ada.html").read_text()
        assert re.search(rf'<section class="exercise {colour}">\s*<h3>{label}', shown)


def test_an_unreadable_notebook_says_so_once(tmp_path):
    results = [Result(e.label, 0, e.points, "error", "x is empty") for e in LAB.exercises]
    one = classroom.Graded(Submission("ada", LAB.name, NOWHERE), LAB, results)
    by_hand = overrides.Override("ada", LAB.name, results[0].exercise, 1, "Shown", 2, NOWHERE)
    for rows in (one.rows, overrides.apply(one.rows, [by_hand])):
        feedback.write_students([one], tmp_path, rows)
        text = (tmp_path / "ada.html").read_text()
        assert text.count('<pre class="message">x is empty</pre>') == 1 and "Hint" not in text
    assert "Shown" in text


def test_names_are_sorted_as_people_do():
    names = ["Åström", "Becker", "Çelik", "Łukasiewicz", "Meyer", "Øre", "Pan", "van Ek", "Zoe"]
    assert feedback.by_name(reversed(names)) == names


def question():
    return next(cell for cell in LAB.cells if "answer" in cell.tags).source.split("\n\n")[0].strip()


def test_written_answers_stand_by_question(tmp_path):
    feedback.write_answers(
        [graded("ada", written=[(question(), "Both.")]), graded("bob", written=[(question(), "")])],
        tmp_path,
    )
    text = (tmp_path / f"{LAB.name}.html").read_text()
    assert "<dt>ada</dt><dd>Both.</dd>" in text and "No answer: bob" in text
    assert "Why does <code>two</code> raise?" in text and "`" not in text


@pytest.mark.parametrize(
    "text, shown",
    [
        ("`x < 1` and $x_1$", "<code>x &lt; 1</code> and $x_1$"),
        ("`<script>alert(1)</script>`", "<code>&lt;script&gt;alert(1)&lt;/script&gt;</code>"),
        ("<code>`a` </code>", "&lt;code&gt;<code>a</code> &lt;/code&gt;"),
        ("one ` alone\nand ` another", "one ` alone\nand ` another"),
        ("```python\nx\n```", "```python\nx\n```"),
        ('`" onload="x`', "<code>&#34; onload=&#34;x</code>"),
    ],
)
def test_code_between_backticks_is_shown_as_code_and_nothing_else_is_html(text, shown):
    assert feedback.inline_code(text) == shown


@pytest.mark.parametrize(
    "message, known",
    [
        ("f gave 1, want 2.\nToo few by one.", ""),
        ("f gave 1.\n{sentence}", "{sentence}"),
        ("{sentence}", "{sentence}"),
        ("", ""),
        ("The shape should be (2, 3, 2, 2).", ""),  # true of many mistakes
        ("blocked agrees with PyTorch on 60 matrices", ""),  # what was tried
    ],
)
def test_a_known_mistake_is_one_of_the_checks_sentences(message, known):
    message, known = message.format(sentence=sentence()), known.format(sentence=sentence())
    assert mistakes.known(LAB.exercises[0], message) == known


def test_the_hint_is_the_lab_s():
    assert "how many cells does one step" in feedback.hint(LAB, LAB.exercises[0])


@pytest.mark.parametrize("name", lab.names())
def test_each_exercise_has_a_hint(name):
    read = lab.read(name)
    without = [exercise.label for exercise in read.exercises if not feedback.hint(read, exercise)]
    assert not without
