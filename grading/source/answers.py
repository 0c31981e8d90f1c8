"""From a student's cells to the answers: an exercise's own cells, and what they need of the others.

The cells are read from top to bottom, as Run All executes them. What counts is the definition that
the exercise's check saw: the last one above it, or if there is none, the last one of the notebook.

What they need is read from their texts, which do not show all that a cell changes. So an answer
also has the whole cells, as they stand above its check: the grader executes them if what is needed
was not enough.
"""

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from common.notebook import slices
from common.notebook.magics import as_python
from common.paths import COURSE
from grading.source import holes
from grading.source.holes import Answer
from grading.source.labs import HEADING, TITLE, Exercise, Lab

ANY_HEADING = re.compile(r"^#{1,3} ", re.MULTILINE)
FROM_JUPYTER = ("display", "get_ipython")  # every cell has them
# For those who ask IPython for its shell.
SHELL = "from common.notebook import ipython_names\n\nipython_names.install()"
# What the cells begin with that a build adds.
ADDED = re.compile(r"# COLAB: |from common import course, ledger\n|course\.grade\(\)\Z")


@dataclass(frozen=True)
class StudentCell:
    """A cell of a student's notebook."""

    kind: str
    text: str


def find(lab: Lab, cells: Sequence[StudentCell]) -> dict[str, Answer]:
    """{exercise: the student's answer}."""
    return _Finder(lab, cells).answers()


@dataclass(frozen=True)
class _Ours:
    """What a lab itself has, as texts without what an editor changes."""

    stubs: frozenset[str]
    checks: frozenset[str]
    shown: frozenset[str]  # all code but the holes
    names: frozenset[str]  # that the set-up and the drivers set
    statements: frozenset[str]  # of them
    asks: frozenset[str]  # the checks' statements that can't run beside an answer
    demonstrations: frozenset[str]  # statements of cells that only show something
    guessed: frozenset[str]  # the names that a student fills in there


@functools.cache
def _ours(lab: Lab) -> _Ours:
    given, checks = _sources(lab, "setup") | _sources(lab, "driver"), _sources(lab, "check")
    statements = [statement for text in given for statement in slices.parsed(text)]
    asking = [s for text in checks for s in slices.parsed(text) if _is_of_the_course(s)]
    imported = frozenset(name for statement in asking for name in statement.sets)
    shown = [c.source for c in lab.cells if c.kind == "code" and "hole" not in c.tags]
    demonstrations = [text for text in shown if _squeezed(text) not in given | checks]
    asked = [s for text in demonstrations for s in slices.parsed(holes.stub(text))]
    solved = [s for text in demonstrations for s in slices.parsed(holes.solved(text))]
    known = {statement.text for statement in solved}
    return _Ours(
        frozenset(_squeezed(exercise.stub) for exercise in lab.exercises),
        frozenset(checks),
        frozenset(map(_squeezed, shown)),
        frozenset(name for statement in statements for name in statement.sets),
        frozenset(statement.text for statement in statements),
        frozenset(asking for text in checks for asking in _asks(text, imported)),
        frozenset(known),
        frozenset(name for s in asked if s.text not in known for name in s.sets),
    )


def _asks(check: str, imported: frozenset[str]) -> Iterator[str]:
    """A check's statements that import something of the course, or read what these set.

    A student may have merged the check into the answer's cell. Others in it do no harm there, and
    the student may need the same: an import of a library, x = 3. imported: the names of the course
    that some check of the lab imports; the checks share them.
    """
    tainted = set(imported)
    for statement in slices.parsed(check):
        is_course = _is_of_the_course(statement)
        if is_course or tainted & (statement.reads | statement.reads_later):
            tainted |= statement.sets
            yield statement.text


def _is_of_the_course(statement: slices.Statement) -> bool:
    """Whether a statement imports something of the course."""
    return any(module.startswith(COURSE) for module in _modules(statement.node))


def _modules(node: ast.stmt) -> list[str]:
    """The modules that a statement imports; none if it is no import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


class _Finder:
    """One notebook, whose cells serve all exercises."""

    def __init__(self, lab: Lab, cells: Sequence[StudentCell]) -> None:
        self.lab, self.cells, ours = lab, cells, _ours(lab)
        squeezed = [_squeezed(cell.text) if cell.kind == "code" else "" for cell in cells]
        self.is_stub = [text in ours.stubs for text in squeezed]
        self.holes = {name for exercise in lab.exercises for name in exercise.hole.names}
        self.is_ours = [  # a demonstration is no answer
            text in ours.shown or bool(ADDED.match(text)) and self.holes.isdisjoint(_set_by(text))
            for text in squeezed
        ]
        self.texts = [
            _imports(cell.text)
            if text in ours.checks
            else as_python(cell.text)
            if cell.kind == "code"
            else None
            for cell, text in zip(cells, squeezed, strict=True)
        ]
        self.notebook = slices.Notebook(
            [
                None if is_stub or holes.syntax_problem(text or "") else text
                for text, is_stub in zip(self.texts, self.is_stub, strict=True)
            ]
        )
        self.given = ours.names
        self.ours = {
            place
            for place, statement in enumerate(self.notebook.statements)
            if statement.sets & self.given and statement.text in ours.statements
        }
        self._sort(ours)

    def _sort(self, ours: _Ours) -> None:
        """Which statements are the student's, and which of a check or a guess."""
        self.asks = {
            place
            for place, statement in enumerate(self.notebook.statements)
            if statement.text in ours.asks
        }
        self.mine = {
            place
            for place, cell in enumerate(self.notebook.cell_of)
            if not self.is_ours[cell] and place not in self.asks
            if self.notebook.statements[place].text not in ours.demonstrations
        }
        self.guesses = {
            place
            for place in self.mine
            if (sets := self.notebook.statements[place].sets) and sets <= ours.guessed
        }

    def answers(self) -> dict[str, Answer]:
        """{exercise: Answer}, in the lab's order."""
        answers, ends = {}, self._ends()
        self.done: set[int] = set()  # the student's places that are executed for earlier exercises
        self.earlier: set[str] = set()  # the names of earlier exercises
        self.taken: set[int] = set()  # the places of answers and of what they need
        self.whole: dict[str, set[int]] = {}  # {exercise: the places above its check, in no other}
        for exercise in self.lab.exercises:
            end = ends.get(exercise.name, len(self.cells)) + 1
            own = self._own(exercise, end)
            answer = self._answer(exercise, own, end)
            limit = self.notebook.first(max([end, *(number + 1 for number in own)]))
            above = {place for place in self.mine if place < limit}
            left_out = not above <= self.taken | self.ours | self.guesses
            answers[exercise.name] = replace(answer, left_out=left_out)
            self.whole[exercise.name] = (above | self.taken).difference(*self.whole.values())
            self.done |= set(self.notebook.places(own))
            self.earlier |= set(exercise.hole.names)
        if not any(answer.left_out for answer in answers.values()):
            return answers
        return self._with_whole(answers)

    def _with_whole(self, answers: dict[str, Answer]) -> dict[str, Answer]:
        """The answers with their whole cells, unless these are too large."""
        whole = {name: self._whole_cells(name) for name in answers}
        first = next(iter(answers))
        whole[first] = [*_shell(FROM_JUPYTER, sum(whole.values(), [])), *whole[first]]
        size = sum(len(text) for texts in whole.values() for text in texts)
        if size > holes.MAX_ANSWER or self.notebook.is_cut:
            return {name: replace(answer, left_out=False) for name, answer in answers.items()}
        return {name: replace(answer, whole=tuple(whole[name])) for name, answer in answers.items()}

    def _whole_cells(self, name: str) -> list[str]:
        """An exercise's cells in the notebook's order. An untouched stub is overridden by them."""
        stub = self._stub_of(self.lab.exercise(name))
        stubs = [] if stub is None else [self.cells[stub].text]
        return [*stubs, *(text for _, text in self.notebook.text(self.whole[name]))]

    def _ends(self) -> dict[str, int]:
        """{exercise: the number of the last cell that its check sees}: its check, or its part's."""
        checks = {
            _squeezed(check.source): exercise.name
            for exercise in self.lab.exercises
            for check in exercise.checks
            if "held-out" not in check.tags
        }
        ends: dict[str, int] = {}
        parts: dict[str, int] = {}
        now = None
        for i, cell in enumerate(self.cells):
            if cell.kind != "code" and ANY_HEADING.search(cell.text):
                heading = HEADING.search(cell.text)
                now = heading[2] if heading else None
            elif now:
                parts[now] = i
            if name := checks.get(_squeezed(cell.text)):
                ends[name] = i
        return parts | ends

    def _own(self, exercise: Exercise, end: int) -> list[int]:
        """The numbers of the cells that define the exercise's names; [] if none does."""
        own = {self._definer(name, end) for name in exercise.hole.names} - {None}
        if self._definer(exercise.name, end) is None:  # at most a part of it is there
            stub = self._stub_of(exercise)
            own = own | {stub} if own and stub is not None else set()
        return sorted(number for number in own if number is not None)

    def _definer(self, name: str, end: int) -> int | None:
        """The last cell above `end` that defines a name, or else the last of all."""
        cells = [self.notebook.cell_of[place] for place in self.notebook.sets.get(name, ())]
        cells = [number for number in cells if not self.is_ours[number]]
        above = [number for number in cells if number < end]
        return (above or cells or [None])[-1]

    def _stub_of(self, exercise: Exercise) -> int | None:
        stub = _squeezed(exercise.stub)
        return next((i for i, c in enumerate(self.cells) if _squeezed(c.text) == stub), None)

    def _answer(self, exercise: Exercise, own: list[int], end: int) -> Answer:
        if not own:
            return self._unanswered(exercise)
        limit = self.notebook.first(max(end, own[-1] + 1))
        start = [place for place in self.notebook.places(own) if place not in self.asks]
        there = self.ours | self.done | self.asks
        given, fixed = self.given | self.holes, self.earlier - set(exercise.hole.names)
        needed = self.notebook.needed(start, limit, given, there, fixed, self.done)
        self.taken |= {*start, *needed.places}
        self.done |= {
            place for place in needed.places if self.holes & self.notebook.statements[place].patches
        }
        late = [place for place in needed.places if self._changes(place, own, exercise)]
        before = [place for place in needed.places if place not in late]
        texts = [text for _, text in self.notebook.text(before)]
        parts = [self._text(number) for number in self._in_order(own)]
        text = "\n\n".join([*parts, *(part for _, part in self.notebook.text(late))])
        jupyter = [name for name in needed.unknown if name in FROM_JUPYTER]
        texts = [*_shell(jupyter, [*texts, text]), *texts]
        if (size := len(text) + sum(map(len, texts))) > holes.MAX_ANSWER:
            most = holes.MAX_ANSWER / 1e6
            problem = (
                f"The answer, with what it reads of your other cells, has {size / 1e6:.1f} million "
                f"characters; at most {most:g} are allowed."
            )
            return Answer(None, True, "error", problem)
        return Answer(
            text,
            needed=tuple(texts),
            unknown=tuple(name for name in needed.unknown if name not in FROM_JUPYTER),
        )

    def _changes(self, place: int, own: list[int], exercise: Exercise) -> bool:
        """Whether a statement below the answer changes what it defines: f.calls = 0."""
        changes = self.notebook.statements[place].changes
        below = self.notebook.cell_of[place] > own[-1]
        return below and not changes.isdisjoint(exercise.hole.names)

    def _text(self, number: int) -> str:
        """A cell's text without the statements of a check that was merged into it."""
        places = self.notebook.places([number])
        if self.asks.isdisjoint(places):
            return self.texts[number] or ""
        return dict(self.notebook.text(set(places) - self.asks)).get(number, "")

    def _in_order(self, own: list[int]) -> list[int]:
        """Untouched stubs first: what else defines their names overrides them."""
        return sorted(own, key=lambda number: (not self.is_stub[number], number))

    def _unanswered(self, exercise: Exercise) -> Answer:
        """What to say if no cell defines the exercise's name."""
        meant = re.compile(
            rf"^\s*(?:(?:async\s+)?def|class)\s+{exercise.name}\b|"
            rf"^\s*{exercise.name}\s*(?::[^=\n]*)?=(?!=)",
            re.MULTILINE,
        )
        for text in reversed(self.texts):
            if text and meant.search(text) and (problem := self._problem(text)):
                return Answer(None, True, "error", problem)
        stub = self._stub_of(exercise)
        if stub is not None:
            return Answer(self.cells[stub].text, False)
        return Answer(
            None,
            False,
            "missing",
            f"No cell of the notebook defines `{exercise.name}` at its top level: "
            "copy its cell from a fresh lab and fill it in.",
        )

    def _problem(self, text: str) -> str:
        """Why a cell that seems to define an answer was not read; "" if there is no reason."""
        if (problem := holes.syntax_problem(text)) or not self.notebook.is_cut:
            return problem
        return (
            f"The notebook has more than {slices.MOST:,} statements, and the grader reads no more: "
            "begin with a fresh lab and copy your answers."
        )


def _shell(names: Sequence[str], texts: Iterable[str]) -> list[str]:
    """What gives cells these names of Jupyter's, if any, and the shell if the texts ask for it."""
    given = [f"from common.notebook.ipython_names import {', '.join(names)}"] if names else []
    return given + [SHELL] * any("IPython" in text for text in texts)


def _imports(check: str) -> str:
    """What a check imports of libraries: in the notebook, the cells below it have that, too."""
    return "\n".join(
        statement.text
        for statement in slices.parsed(check)
        if isinstance(statement.node, slices.IMPORTS)
        and not any(module.startswith(COURSE) for module in _modules(statement.node))
    )


def _sources(lab: Lab, tag: str) -> dict[str, None]:
    """The texts of our cells with a tag, without what an editor changes."""
    return dict.fromkeys(_squeezed(cell.source) for cell in lab.cells if tag in cell.tags)


def _set_by(text: str) -> tuple[str, ...]:
    """The names that a cell defines: a student may have merged one of ours with an answer."""
    return holes.defined_names(as_python(text))


def _squeezed(text: str) -> str:
    """The text without its title, and without trailing spaces and blank lines: editors change
    these on their own."""
    return "\n".join(line.rstrip() for line in TITLE.sub("", text).splitlines() if line.strip())
