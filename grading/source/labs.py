"""A lab as its source tells it: cells, exercises, points."""

import functools
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from common.paths import LABS, ROOT
from grading.source import holes

STRIPPED = LABS / ".source"  # in a release: the sources without answers and held-out checks
SOURCES = STRIPPED if STRIPPED.is_dir() else ROOT / "solutions"
HEADING = re.compile(r"^### Exercise (\d+\.\d+) · `?(\w+)`?(?: .*)?$", re.MULTILINE)
TAGS = {"setup", "hole", "driver", "check", "held-out", "answer"}

# What jupytext imports, for over a second and 30 MB, and does without: a grammar of addresses, Jupyter's server.
for unused in ("rfc3987_syntax", "jupytext.sync_contentsmanager", "jupytext.async_contentsmanager"):
    sys.modules.setdefault(unused, None)


@dataclass(frozen=True)
class Cell:
    """One cell of a source. points and limit_s belong to checks."""

    kind: str  # "code" or "markdown"
    source: str
    tags: frozenset = frozenset()
    points: int = 1
    limit_s: float = 10.0

    @property
    def names(self):
        """What the cell defines at its top level; nothing for prose."""
        return holes.defined_names(self.source) if self.kind == "code" else ()


@dataclass(frozen=True)
class Exercise:
    """A hole and what is asked of it."""

    number: str  # "1.1": part and place
    name: str  # what the hole defines
    hole: Cell
    checks: tuple

    @property
    def points(self):
        return sum(check.points for check in self.checks)

    @property
    def stub(self):
        """The hole as the student gets it."""
        return holes.stub(
            self.hole.source, f"Exercise {self.number}: put your answer in place of this line"
        )


@dataclass(frozen=True)
class Lab:
    """A source, read: name is NN_noun."""

    name: str
    cells: tuple

    @functools.cached_property
    def exercises(self):
        return tuple(_exercises(self))

    @property
    def solution(self):
        """{name of the exercise: the text of its cell, solved}."""
        return {exercise.name: holes.solved(exercise.hole.source) for exercise in self.exercises}

    def exercise(self, name):
        """The exercise whose hole defines this name; ValueError names those there are."""
        for exercise in self.exercises:
            if exercise.name == name:
                return exercise
        raise ValueError(
            f"lab {self.name} has no exercise {name!r}: it has {', '.join(e.name for e in self.exercises)}"
        )

    def filled(self, answers):
        """The same lab with other text in some holes. answers: {name of the hole: text of its cell}."""
        for name in answers:
            self.exercise(name)
        swap = {
            exercise.hole: answers[exercise.name]
            for exercise in self.exercises
            if exercise.name in answers
        }
        return replace(
            self,
            cells=tuple(
                replace(cell, source=swap[cell]) if cell in swap else cell for cell in self.cells
            ),
        )


def names(folder=SOURCES):
    """The labs there are, in teaching order."""
    return sorted(path.stem for path in folder.glob("[0-9][0-9]_*.py"))


def resolve(word):
    """The lab's full name from "1", "01", "strides", "01_strides" or a path to its notebook."""
    stem = Path(str(word)).stem
    number = stem.zfill(2) if stem.isdecimal() else stem[:2] if re.match(r"\d\d_", stem) else None
    for name in names():
        if stem in (name, name[3:]) or (
            number == name[:2] and (stem.isdecimal() or stem.startswith(name))
        ):
            return name
    raise ValueError(f"there is no lab {str(word)!r}: the labs are {', '.join(names())}")


def read(word):
    """The lab of that number or name."""
    name = resolve(word)
    return parse((SOURCES / f"{name}.py").read_text(encoding="utf-8"), name)


def parse(text, name):
    """A lab from the text of its source (jupytext's percent format); ValueError names the cell that is off."""
    import jupytext

    cells = []
    for number, cell in enumerate(jupytext.reads(text, fmt="py:percent").cells, 1):
        tags = frozenset(cell.metadata.get("tags", ()))
        unknown = {tag for tag in tags - TAGS if not tag.startswith("nbval-")}
        if unknown:
            raise ValueError(
                f"{name}, cell {number}: unknown tag {', '.join(sorted(unknown))}; there are {', '.join(sorted(TAGS))}"
            )
        options = {key: cell.metadata[key] for key in ("points", "limit_s") if key in cell.metadata}
        cells.append(Cell(cell.cell_type, cell.source, tags, **options))
    lab = Lab(name, tuple(cells))
    _insist(lab)
    return lab


def _exercises(lab):
    """Each hole with the heading before it and the checks after it, up to the next heading of an exercise."""
    for i, cell in enumerate(lab.cells):
        heading = HEADING.search(cell.source) if cell.kind == "markdown" else None
        if not heading:
            continue
        checks = []
        for later in lab.cells[i + 2 :]:
            if later.kind == "markdown" and re.search(r"^#{1,3} ", later.source, re.MULTILINE):
                break
            if "check" in later.tags:
                checks.append(later)
        yield Exercise(heading[1], heading[2], lab.cells[i + 1], tuple(checks))


def _insist(lab) -> None:
    """A source keeps the form that everything else relies on."""
    exercises = lab.exercises
    for exercise in exercises:
        where = f"{lab.name}, exercise {exercise.number}"
        if "hole" not in exercise.hole.tags:
            raise ValueError(f"{where}: the cell after the heading is no hole")
        if exercise.name not in exercise.hole.names:
            raise ValueError(
                f"{where}: its hole defines {exercise.hole.names}, not {exercise.name}"
            )
        if not exercise.checks:
            raise ValueError(f"{where}: no check follows the hole")
    twice = [e.name for e in exercises if sum(e.name == other.name for other in exercises) > 1]
    if twice:
        raise ValueError(f"{lab.name}: two exercises named {twice[0]}")
    orphans = {c for c in lab.cells if "hole" in c.tags} - {e.hole for e in exercises}
    if orphans:
        raise ValueError(
            f"{lab.name}: a hole without a heading: {orphans.pop().source.splitlines()[0]!r}"
        )
