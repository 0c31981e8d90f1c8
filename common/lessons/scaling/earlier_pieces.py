"""What a reader wrote in earlier labs, ready to be used in a later one; the course's where missing.

An answer is taken from the notebook in labs/ with the statements that it depends on, and nothing
else of the notebook is executed.
"""

import functools
import json
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import paths
from common.notebook import slices

ROLES = ("setup", "driver", "hole")  # of the cells that an answer may depend on
UNSOLVED = "raise NotImplementedError"


@dataclass(frozen=True)
class Pieces:
    """Functions and classes by name, and of each lab whose they are."""

    use: dict[str, Any]
    origin: dict[str, str]  # {lab: "yours", or "the course's" and why}

    @property
    def yours(self) -> list[str]:
        """The labs of which the reader's own pieces are used."""
        return [lab for lab, whose in self.origin.items() if whose == "yours"]


def collect(
    ours: Mapping[str, Mapping[str, Any]],
    accept: Callable[[str, Mapping[str, Any]], object],
    folder: Path = paths.LABS,
) -> Pieces:
    """The reader's pieces of each lab that has all of them and that `accept` accepts, else ours.

    ours: {lab: {name: piece}}. accept: takes a lab and the pieces of all labs, by name; it raises,
    or returns something false, if they don't work together.
    """
    use = {name: piece for own in ours.values() for name, piece in own.items()}
    origin: dict[str, str] = {}
    for lab, own in ours.items():
        theirs, origin[lab] = _theirs(lab, own, folder)
        if not theirs:
            continue
        tried = use | theirs
        try:
            works = bool(accept(lab, tried))
        except Exception as error:
            works, why = False, f"{type(error).__name__}: {error}".splitlines()[0][:80]
        else:
            why = "yours gives another result"
        origin[lab] = "yours" if works else f"the course's ({why})"
        use = tried if works else use
    return Pieces(use, origin)


def _theirs(lab: str, names: Collection[str], folder: Path) -> tuple[dict[str, Any], str]:
    """(the reader's pieces of a lab, ""), or ({}, whose are used and why)."""
    files = sorted(folder.glob(f"{lab}_*.ipynb"))
    if not files:
        return {}, "the course's (there is no such notebook)"
    texts = _cells(files[0])
    try:
        space = _executed(texts, names)
    except Exception as error:
        return {}, f"the course's ({type(error).__name__}: {error})".splitlines()[0][:100]
    if space is None:
        return {}, "the course's (yours is not written yet)"
    return {name: space[name] for name in names}, ""


def _cells(file: Path) -> list[str]:
    """The texts of the cells on which an answer may depend."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return [
        "".join(cell["source"])
        for cell in cells
        if cell["cell_type"] == "code" and set(cell["metadata"].get("tags", ())) & set(ROLES)
    ]


def _executed(texts: list[str], names: Collection[str]) -> dict[str, Any] | None:
    """The namespace in which these names are defined; None if one of them is not written yet."""
    notebook = slices.Notebook(texts)
    start = sorted({place for name in names for place in notebook.sets.get(name, [])})
    needed = notebook.needed(start, len(notebook.statements))
    parts = [text for _, text in notebook.text([*start, *needed.places])]
    if not start or any(UNSOLVED in part for part in parts):
        return None
    module = types.ModuleType("a_reader_of_the_course")  # no file: ranks get its text, not its name
    for part in parts:
        exec(compile(part, "<a lab>", "exec"), module.__dict__)  # noqa: S102, the reader's own text
    return module.__dict__


@functools.cache
def of_the_course() -> dict[str, dict[str, Any]]:
    """{lab: {name: piece}}: ours."""
    from common.lessons.scaling.expected import pieces

    return pieces.OURS
