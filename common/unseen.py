"""Says below a check what the grader will not see of the answer that the check used."""

import ast
import json
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import cells as notebooks
from common import slices

CHECK = re.compile(r"\b(agree|expect)\(")
GIVEN = re.compile(r"\A# (?:Imports|Set-up|Helper code)\b.*: run me")  # a cell's first line
THERE = ("display", "get_ipython")  # the grader has them, too


def watch(shell: Any) -> None:
    """From now on, says it below each check that passes in this shell of IPython's."""

    def look(result: Any) -> None:
        if result.success and CHECK.search(result.info.raw_cell or ""):
            history = shell.user_ns.get("In", [])
            for sentence in sentences(history, shell.user_ns, sys.modules, given_cells()):
                print(sentence)

    shell.events.register("post_run_cell", look)


def given_cells() -> set[str]:
    """The texts of this notebook's cells of set-up and helper code; none if its file is unknown."""
    path = notebooks.notebook()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["cells"] if path else []
        tagged = [c for c in found if {"setup", "driver"} & set(c["metadata"].get("tags", ()))]
        return {"".join(cell["source"]) for cell in tagged}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()


def sentences(
    cells: Sequence[str],
    names: Container[str],
    modules: Mapping[str, Any],
    given: Container[str] = (),
) -> Iterator[str]:
    """What the grader will not see of all that the last cell used.

    cells: as they were executed. names: of the notebook's variables. modules: {name: module} of
    those that are imported. given: the texts of cells that the lab gives, besides those that say
    so in their first line.
    """
    notebook = slices.Notebook(cells)
    start = notebook.places([len(cells) - 1])
    needed = notebook.needed(start, len(notebook.statements), THERE)
    for name in filter(names.__contains__, needed.unknown):
        yield (
            f"The grader will not see `{name}`, which this check used: no import, def, class or "
            "assignment of a cell sets it."
        )
    for place in needed.places:
        yield from _patches(notebook, place, given)
    nodes = [notebook.statements[place].node for place in (*start, *needed.places)]
    for node in nodes:
        yield from _not_run(node)
        yield from _own_modules(node, modules)


def _patches(notebook: slices.Notebook, place: int, given: Container[str]) -> Iterator[str]:
    """A statement that sets an attribute or an item of what the lab imports or defines."""
    statement = notebook.statements[place]
    for name in sorted(statement.patches):
        setter = max((p for p in notebook.sets.get(name, ()) if p < place), default=None)
        text = "" if setter is None else notebook.cells[notebook.cell_of[setter]] or ""
        if GIVEN.match(text) or text in given:
            line = statement.text.splitlines()[0]
            yield (
                f"The grader will not see `{line[:80]}`, which this check may have used: `{name}` "
                "is the lab's. Do it inside of your answer's function."
            )


def _not_run(node: ast.stmt) -> Iterator[str]:
    """Outputs of the shell, of magics and of the keyboard."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        name = ast.unparse(part.func)
        if name == "input":
            yield "The grader types nothing where this answer asks for `input`."
        elif name.startswith("get_ipython().") and not isinstance(node, ast.Expr):
            yield (
                f"The grader runs no magic and no shell command: `{ast.unparse(node)}` will have "
                "no value there."
            )


def _own_modules(node: ast.stmt, modules: Mapping[str, Any]) -> Iterator[str]:
    """Modules that stand beside the notebook."""
    for name in _imported(node):
        file = getattr(modules.get(name), "__file__", None)
        if file and Path(file).parent == Path.cwd():
            yield (
                f"The grader does not have {Path(file).name}: copy what you need of it into a cell."
            )


def _imported(node: ast.stmt) -> Iterable[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in part.names)
        elif isinstance(part, ast.ImportFrom) and part.module and not part.level:
            yield part.module.partition(".")[0]
