"""A lab as its source defines it: cells, exercises, points."""

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common.paths import LABS, ROOT
from grading.errors import InputError
from grading.source import holes

STRIPPED = LABS / ".source"  # in a release: the sources without answers and held-out checks
SOURCES = STRIPPED if STRIPPED.is_dir() else ROOT / "solutions"
HEADING = re.compile(r"^### Exercise (\d+\.\d+) · `?(\w+)`?(?: .*)?$", re.MULTILINE)
# The first line that a built notebook adds to a cell that is collapsed.
TITLE = re.compile(r"\A# (?:Imports|Set-up|Helper code|Check)\b.*: run me.*\n")
TAGS = {"setup", "hole", "driver", "check", "held-out", "answer", "shown"}

# What a release has in place of each held-out check.
HELD_OUT = 'raise AssertionError("A held-out check: your instructor runs it.")'


def light_jupytext() -> None:
    """Keep jupytext, in this process, from importing what we don't use: 30 MB, over a second.

    Without these modules (a grammar of addresses, and Jupyter's server) it still reads texts.
    """
    modules: dict[str, Any] = sys.modules
    for name in (
        "rfc3987_syntax",
        "jupytext.sync_contentsmanager",
        "jupytext.async_contentsmanager",
    ):
        modules.setdefault(name, None)


@dataclass(frozen=True)
class Cell:
    """One cell of a source. points and limit_s belong to checks."""

    kind: str  # "code" or "markdown"
    source: str
    tags: frozenset[str] = frozenset()
    points: int = 1
    limit_s: float = 10.0

    @property
    def names(self) -> tuple[str, ...]:
        """What the cell defines at its top level; empty for prose."""
        return holes.defined_names(self.source) if self.kind == "code" else ()


@dataclass(frozen=True)
class Exercise:
    """A hole and its checks."""

    number: str  # "1.1": the part of the lab, and the exercise in it
    name: str  # what the hole defines
    hole: Cell
    checks: tuple[Cell, ...]

    @property
    def points(self) -> int:
        return sum(check.points for check in self.checks)

    @property
    def label(self) -> str:
        """The exercise's name in results: "1.1 row_major_strides"."""
        return f"{self.number} {self.name}"

    @property
    def stub(self) -> str:
        """The hole as the student gets it."""
        return holes.stub(
            self.hole.source, f"Exercise {self.number}: put your answer in place of this line"
        )


@dataclass(frozen=True)
class Lab:
    """A lab, read from its source."""

    name: str  # NN_noun
    cells: tuple[Cell, ...]

    def __hash__(self) -> int:
        """Of the name alone: a lab is the key of many caches, and it has a hundred cells."""
        return hash(self.name)

    @functools.cached_property
    def exercises(self) -> tuple[Exercise, ...]:
        return tuple(_exercises(self))

    @property
    def solution(self) -> dict[str, str]:
        """{name of the exercise: the text of its solved cell}."""
        return {exercise.name: holes.solved(exercise.hole.source) for exercise in self.exercises}

    @functools.cached_property
    def visible(self) -> "Lab":
        """The same lab without its held-out checks, as students have it."""
        return replace(
            self, cells=tuple(cell for cell in self.cells if "held-out" not in cell.tags)
        )

    def exercise(self, name: str) -> Exercise:
        """The exercise whose hole defines this name."""
        for exercise in self.exercises:
            if exercise.name == name:
                return exercise
        known = ", ".join(exercise.name for exercise in self.exercises)
        raise InputError(f"lab {self.name} has no exercise {name!r}: it has {known}")

    def filled(self, answers: Mapping[str, str]) -> "Lab":
        """The same lab with other text in some holes. answers: {name of the hole: its text}."""
        texts = {self.exercise(name).hole: text for name, text in answers.items()}
        cells = (replace(cell, source=texts.get(cell, cell.source)) for cell in self.cells)
        return replace(self, cells=tuple(cells))


@functools.cache  # a class may hand in thousands of files, and each one's name is resolved
def names() -> list[str]:
    """The names of all labs, in teaching order."""
    return sorted(path.stem for path in SOURCES.glob("[0-9][0-9]_*.py"))


def resolve(word: str | Path) -> str:
    """The lab's full name from "1", "01", "strides", "01_strides" or a path to its notebook.

    A file's name may hold more than the lab's, and in capitals: "Copy of 01_Strides (1).ipynb".
    """
    stem = re.sub(r"[\s_-]+", "_", Path(str(word)).stem).casefold()
    exact = [name for name in names() if stem in (name, name[3:])]
    if stem.isdecimal():
        exact = [name for name in names() if name[:2] == stem.zfill(2)]
    found = exact or [name for name in names() if _names(stem, name)]
    if len(found) > 1:
        raise InputError(f"{str(word)!r} names two labs, {' and '.join(found[:2])}: rename it")
    if not found:
        raise InputError(f"there is no lab {str(word)!r}: the labs are {', '.join(names())}")
    return found[0]


def _names(stem: str, name: str) -> bool:
    """Whether a file's name, in small letters, holds a lab's name, or "lab" and its number."""
    pattern = rf"(?<!\d){name}(?![a-z])|(?<![a-z])lab_?0*{int(name[:2])}(?!\d)"
    return re.search(pattern, stem) is not None


def read(word: str) -> Lab:
    """The lab with that number or name."""
    name = resolve(word)
    return parse((SOURCES / f"{name}.py").read_text(encoding="utf-8"), name)


@functools.lru_cache(maxsize=64)  # a lab can't be changed, and reading one takes 0.1 s
def parse(text: str, name: str) -> Lab:
    """A lab from the text of its source, which is in jupytext's percent format."""
    import jupytext

    cells = []
    notebook: Any = jupytext.reads(text, fmt="py:percent")
    for number, cell in enumerate(notebook.cells, 1):
        tags = frozenset(cell.metadata.get("tags", ()))
        unknown = {tag for tag in tags - TAGS if not tag.startswith("nbval-")}
        if unknown:
            raise InputError(
                f"{name}, cell {number}: unknown tag {', '.join(sorted(unknown))}; "
                f"allowed are {', '.join(sorted(TAGS))}"
            )
        options = {key: cell.metadata[key] for key in ("points", "limit_s") if key in cell.metadata}
        cells.append(Cell(cell.cell_type, cell.source, tags, **options))
    lab = Lab(name, tuple(cells))
    _validate(lab)
    return lab


def _exercises(lab: Lab) -> Iterator[Exercise]:
    """Each hole with the heading before it and the checks after it, up to the next heading."""
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


def _validate(lab: Lab) -> None:
    """Raise InputError unless the source has the form that everything else relies on."""
    exercises = lab.exercises
    for exercise in exercises:
        where = f"{lab.name}, exercise {exercise.number}"
        if "hole" not in exercise.hole.tags:
            raise InputError(f"{where}: the cell after the heading is not a hole")
        if exercise.name not in exercise.hole.names:
            raise InputError(
                f"{where}: its hole defines {exercise.hole.names}, not {exercise.name}"
            )
        if not exercise.checks:
            raise InputError(f"{where}: no check follows the hole")
    twice = [e.name for e in exercises if sum(e.name == other.name for other in exercises) > 1]
    if twice:
        raise InputError(f"{lab.name}: two exercises named {twice[0]}")
    orphans = {c for c in lab.cells if "hole" in c.tags} - {e.hole for e in exercises}
    if orphans:
        raise InputError(
            f"{lab.name}: a hole without a heading: {orphans.pop().source.splitlines()[0]!r}"
        )
