"""Similar submissions: with whom students are compared, what is found, and how much work it is."""

import ast
import re
import time
from dataclasses import replace

import pytest

from grading import __main__ as command
from grading import classroom, similar, submissions
from grading.report import Graded, Result
from grading.source import labs
from grading.source.holes import Answer
from grading.submissions import Submission
from tests.grading.test_class_admin import hand_in

LAB = labs.read(labs.names()[0])
ANSWER = """
def row_major_strides(shape):
    found = [1] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        found[place] = found[place + 1] * shape[place + 1]
    if len(shape) == 0:
        found = []
    for place, one in enumerate(found):
        if one < 0 or shape[place] < 0 and found[place] != shape[place] - one:
            raise TypeError(f"{one} at {place} of {shape}: {found}")
        if place + 1 < len(found) and found[place] < found[place + 1] * min(1, shape[place]):
            raise ValueError(place, one, found)
    if any(type(one) is not int for one in found):
        found = [int(one) for one in found]
    whole = math.prod(shape) if len(shape) > 0 and all(size > 0 for size in shape) else 0
    if whole != 0 and found[0] * shape[0] != whole:
        raise ValueError(whole, found[0] * shape[0], len(found) - len(shape))
    while len(found) < len(shape) + shape.count(0) - shape.count(-1):
        found.append(found[-1] * max(1, shape[len(found) - 1]))
    return tuple(found)
"""


def renamed(text):
    for old, new in (("found", "steps"), ("place", "i"), ("one", "value")):
        text = re.sub(rf"\b{old}\b", new, text)
    return f"# my own work\n{text}"


def written(student, text):
    return Graded(
        Submission(student, LAB.name, None),  # type: ignore[arg-type]
        LAB,
        [],
        {LAB.exercises[0].name: Answer(text)},
    )


def students(found):
    return {one.students for one in found}


def test_a_copy_of_an_earlier_answer_is_found_and_names_whose_it_was():
    new, old = [written("ada", ANSWER)], [written("2025/eve", renamed(ANSWER))]
    assert students(similar.pairs(new, old)) == {("2025/eve", "ada")}
    assert students(similar.rings(new, old)) == {("ada", "2025/eve")}
    assert not similar.pairs(new) and not similar.rings(new)


def test_earlier_answers_are_not_compared_with_each_other():
    old = [written(f"2025/s{i}", ANSWER) for i in range(2)]
    new = [written("ada", "def row_major_strides(shape):\n    return 3")]
    assert not similar.pairs(new, old) and not similar.rings(new, old)
    assert not similar.pairs([], old) and not similar.rings([], old)


def test_a_renamed_copy_of_our_solution_is_found():
    copied = {
        name: Answer(re.sub(r"\bshape\b", "sizes", text) + "\n# mine\n")
        for name, text in LAB.solution.items()
    }
    one = Graded(Submission("ada", LAB.name, None), LAB, [], copied)  # type: ignore[arg-type]
    assert students(similar.pairs([one])) == {(similar.SOLUTION, "ada")}
    assert students(similar.rings([one])) == {("ada", similar.SOLUTION)}


def test_of_a_large_class_the_pairs_with_most_in_common_are_compared(monkeypatch):
    monkeypatch.setattr(similar, "MOST_COMPARISONS", 3)
    lines = [
        [f"    k{j}(shape[{i}] + {i} * k{i % 7} - k{j}(shape))" for i in range(40)] for j in "ab"
    ]
    texts = ["\n".join(["def row_major_strides(shape):", *both]) for both in lines]
    new = [written(f"s{i}", texts[0] + f"\n    return {i}") for i in range(3)]
    new += [written("t", texts[1]), written("u", ANSWER)]
    began_s = time.process_time()
    assert len(similar.pairs(new, [written(f"x/{i}", ANSWER) for i in range(20)])) <= 3
    assert time.process_time() - began_s < 20


def test_earlier_submissions_are_folders_of_students_or_notebooks(tmp_path):
    folder = tmp_path / "2025"
    hand_in(folder / "eve", LAB.name, a=ANSWER)
    hand_in(folder, LAB.name, a=ANSWER)
    hand_in(folder / "eve", "notes", a=ANSWER)
    (folder / f"{LAB.name}-link.ipynb").symlink_to(folder / f"{LAB.name}.ipynb")
    found = submissions.earlier(folder)
    name = submissions.shown(str(folder))
    assert [one.student for one in found] == [f"{name}/eve", f"{name}/{LAB.name}.ipynb"]


def test_the_command_compares_with_earlier_classes(tmp_path, monkeypatch, capsys):
    def each(function, items, *_):
        for item in items:
            if function is classroom.grade:
                of = classroom.lab(item.lab)
                yield item, [Result(e.label, 0, e.points, "failed", "no") for e in of.exercises]
            else:
                yield item, function(item)

    monkeypatch.setattr(classroom, "each", each)
    monkeypatch.chdir(tmp_path)
    hand_in(tmp_path / "class" / "ada", LAB.name, a=ANSWER)
    hand_in(tmp_path / "2025" / "eve", LAB.name, a=renamed(ANSWER))
    grade = ["class", "--out", "out", "--unsafe"]
    assert command.main([*grade, "--compare", "2025"]) == 0
    page = (tmp_path / "out" / "similar.html").read_text()
    assert "with the 1 earlier submissions in 2025" in page and "2025/eve" in page
    text = (tmp_path / "out" / "index.html").read_text()
    assert re.search(r'2025/eve; <a href="feedback/ada.html">ada</a>|ada</a>; 2025/eve', text)
    (tmp_path / "empty").mkdir()
    for wrong, says in (("2024", "no such folder"), ("empty", "it holds no notebook of 01_str")):
        assert command.main([*grade, "--compare", wrong]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("count", [similar.MOST_PAIRS + 5])
def test_the_page_says_how_many_pairs_it_does_not_show(tmp_path, count):
    lines = ((1, "x"),)
    found = [similar.Pair(LAB.name, ("a", f"b{i}"), 0.9, (lines, lines)) for i in range(count)]
    similar.write(found, tmp_path)
    assert "5 more pairs share less" in (tmp_path / "similar.html").read_text()


def test_the_page_names_people_and_does_not_deny_equal_answers(tmp_path):
    ring = similar.Ring(LAB.name, ("11", "12"))
    similar.write([], tmp_path, [ring], name={"11": "Ada", "12": "<Bob>"}.__getitem__)
    text = (tmp_path / "similar.html").read_text()
    assert "Ada; &lt;Bob&gt;" in text and "There are no similar submissions" not in text
    similar.write([], tmp_path)
    assert "There are no similar submissions" in (tmp_path / "similar.html").read_text()


def padded(text, wraps=False):
    """The text with an idle statement after each, or with each result through a function."""
    idle = [
        "assert True",
        "None",
        "pass",
        "_ = 0",
        "if not 1:\n    pass",
        "~0",
        "u: int = len('x')",
    ]

    class Noise(ast.NodeTransformer):
        def visit_Return(self, node):
            self.generic_visit(node)
            name = ast.Name("z", ast.Store())
            return [
                *ast.parse("z = None").body,
                ast.Assign([name], node.value),
                *ast.parse("return z").body,
            ]

        def visit_BinOp(self, node):
            self.generic_visit(node)
            return ast.Call(ast.Name("same", ast.Load()), [node], [])

        visit_Compare = visit_BinOp

    tree = Noise().visit(ast.parse(renamed(text))) if wraps else ast.parse(renamed(text))
    for node in list(ast.walk(tree)):
        for field in ("body", "orelse"):
            lines = getattr(node, field, None)
            if isinstance(lines, list) and not isinstance(node, ast.Module):
                more = [ast.parse(one).body[0] for one in (idle * len(lines))[: len(lines)]]
                both = [part for two in zip(more, lines, strict=True) for part in two]
                setattr(node, field, both)
    head = "def same(x):\n    return x\n" if wraps else ""
    return head + ast.unparse(ast.fix_missing_locations(tree))


HIDDEN = {
    "other names": renamed,
    "a docstring": lambda text: text.replace("):\n", '):\n    """All mine."""\n', 1),
    "annotations": lambda text: text.replace("(shape):", "(shape: tuple) -> tuple:"),
    "pass and a remark": lambda text: text.replace("found = []\n", "found = []\n        pass\n"),
    "an import and a constant": lambda text: f"import math\nUNUSED = 3\n{text}",
    "a line that prints": lambda text: text.replace("    if any", "    print(1)\n    if any"),
    "a list around it": lambda text: text.replace("tuple(found)", "tuple([*found])"),
    "a helper that nobody calls": lambda text: f"{text}\ndef helper(x):\n    return x\n",
    "idle statements": lambda text: padded(text),
    "a function around expressions": lambda text: padded(text, wraps=True),
    "nothing but `if` around it": lambda text: text.replace(
        "    while", "    if 1 < 2:\n     while"
    ),
    "a variable for each result": lambda text: (
        text.replace("return tuple(found)", "a = found\n    b = tuple(a)\n    return b")
        .replace("math.prod(shape) if", "c if")
        .replace("whole =", "c = math.prod(shape)\n    whole =")
    ),
    "a while for a for": lambda text: text.replace(
        "for place in range(len(shape) - 2, -1, -1):",
        "place = len(shape) - 2\n    while place > -1:",
    ).replace("shape[place + 1]\n", "shape[place + 1]\n        place += -1\n", 1),
    "statements in another order": lambda text: text.replace(
        "    if len(shape) == 0:\n        found = []\n", ""
    ).replace("    if any", "    if len(shape) == 0:\n        found = []\n    if any"),
}


@pytest.mark.parametrize("change", HIDDEN.values(), ids=HIDDEN)
def test_a_changed_copy_stays_in_its_ring(change):
    assert change(ANSWER) != ANSWER
    new = [written("ada", ANSWER), written("bob", change(ANSWER))]
    assert students(similar.rings(new)) == students(similar.pairs(new)) == {("ada", "bob")}


HIDING = {
    "an answer that does not parse": "def (",
    "a long answer": "x = 0\n" * similar.MOST_COMPARED,
    "a deep answer": f"def f(x):\n    return {'+'.join(['x'] * 900)}",
    "a number of 9,000 digits": "def f(x):\n    return g(x + 0x" + 7500 * "f" + ", x, x, x)",
    "deep blocks": "\n".join(f"{' ' * i}if x({i}):" for i in range(90)) + f"\n{' ' * 90}x = y",
    "a chain of variables": "def f(x):\n" + "    x = g(x)\n" * 250 + "    return x",
}


@pytest.mark.parametrize("text", HIDING.values(), ids=HIDING)
def test_one_answer_does_not_hide_the_others(text):
    ada, bob = written("ada", ANSWER), written("bob", padded(ANSWER))
    both = {**(bob.answers or {}), LAB.exercises[1].name: Answer(text)}
    (pair,) = similar.pairs([ada, replace(bob, answers=both)])
    assert pair.students == ("ada", "bob")
    assert any("raise ValueError" in line for _, line in pair.lines[1])


def test_a_ring_of_most_of_the_class_is_found_though_each_changed_a_line():
    new = [
        written(f"s{i:02}", ANSWER.replace("    if any", f"    print({i})\n    if any"))
        for i in range(32)
    ]
    new += [written(f"t{i}", f"def row_major_strides(shape):\n    return {i}") for i in range(8)]
    assert [len(ring.students) for ring in similar.rings(new)] == [32]


def test_two_rings_stay_two_and_one_may_hold_last_years_answer():
    other = "def row_major_strides(shape):\n" + "\n".join(
        f"    use(shape[{i}] * {i} if len(shape) > {i} + {i % 3} else shape)" for i in range(20)
    )
    new = [written(f"s{i}", text) for i, text in enumerate([ANSWER, other] * 2)]
    old = [written("2025/eve", renamed(ANSWER))]
    assert [ring.students for ring in similar.rings(new, old) if not ring.identical] == [
        ("s0", "s2", "2025/eve")
    ]


def test_identical_answers_come_first_though_a_larger_ring_hides_them():
    """The one true copy among 14 who share an idea."""
    new = [written(f"s{i:02}", f"{renamed(ANSWER)}# {min(i, 12)}") for i in range(14)]
    first, second = similar.rings(new)
    assert (first.students, first.identical) == (("s12", "s13"), True)
    assert len(second.students) == 14 and not second.identical


def test_functions_of_one_statement_make_no_ring():
    """There may be one natural way to write them, and our solution has it too."""
    text = "\n".join(f"def f{i}(x, y):\n    return x * {i} + y\n" for i in range(30))
    assert not similar.rings([written("ada", text), written("bob", text)])


def test_many_different_answers_are_compared_in_seconds():
    texts = ["\n".join(f"use(shape[{i * k}] + {k})" for i in range(40)) for k in range(1, 301)]
    began_s = time.process_time()
    assert not similar.rings([written(f"s{i}", text) for i, text in enumerate(texts)])
    assert time.process_time() - began_s < 20
