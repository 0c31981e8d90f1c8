"""Says below a check what the grader will not see of the answer that the check used."""

import ast
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import slices

CHECK = re.compile(r"\b(agree|expect)\(")
THERE = ("display", "get_ipython")  # the grader has them, too


def watch(shell: Any) -> None:
    """From now on, says it below each check that passes in this shell of IPython's."""

    def look(result: Any) -> None:
        if result.success and CHECK.search(result.info.raw_cell or ""):
            for sentence in sentences(shell.user_ns.get("In", []), shell.user_ns, sys.modules):
                print(sentence)

    shell.events.register("post_run_cell", look)


def sentences(
    cells: Sequence[str], names: Container[str], modules: Mapping[str, Any]
) -> Iterator[str]:
    """What the grader will not see of all that the last cell used.

    cells: as they were executed. names: of the notebook's variables. modules: {name: module} of
    those that are imported.
    """
    notebook = slices.Notebook(cells)
    start = notebook.places([len(cells) - 1])
    needed = notebook.needed(start, len(notebook.statements), THERE)
    for name in filter(names.__contains__, needed.unknown):
        yield (
            f"The grader will not see `{name}`, which this check used: no import, def, class or "
            "assignment of a cell sets it."
        )
    nodes = [notebook.statements[place].node for place in (*start, *needed.places)]
    for node in nodes:
        yield from _not_run(node)
        yield from _own_modules(node, modules)


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
