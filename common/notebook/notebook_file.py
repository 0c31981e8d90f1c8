"""The notebook's own file: which it is, and which of its cells defines a name."""

import ast
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def shell() -> Any:
    """The notebook's IPython; None outside of one."""
    ipython: Any = sys.modules.get("IPython")
    found = ipython and ipython.get_ipython()
    return (
        found if hasattr(type(found), "run_cell") else None
    )  # else it is common.notebook.ipython_names's


def notebook() -> Path | None:
    """The file of this notebook; None if it is unknown, as outside of a notebook."""
    here = shell()
    names = [os.environ.get("JPY_SESSION_NAME")]  # Jupyter's server
    names += [here.user_ns.get("__vsc_ipynb_file__")] if here else []  # VS Code
    return next((Path(name) for name in names if name and Path(name).is_file()), None)


def defined_by(name: str) -> str:
    """The first line of the cell of this notebook's file that defines the name; "" if none does."""
    path = notebook()
    try:
        found = texts(path) if path else []
    except (OSError, ValueError):
        return ""
    return next((text.splitlines()[0] for text in found if name in _bound(text)), "")


def texts(path: Path) -> list[str]:
    """The texts of a notebook's code cells."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def defined(text: str) -> Iterator[str]:
    """The functions and classes that a cell defines; none if it is no plain Python."""
    for node in _statements(text):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name


def _bound(text: str) -> set[str]:
    """All names that a cell's statements define, import or assign, outside of functions."""
    names = set(defined(text))
    for node in _statements(text):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            inside = itertools.chain.from_iterable(map(ast.walk, targets))
            names |= {part.id for part in inside if isinstance(part, ast.Name)}
    return names


def _statements(text: str) -> list[ast.stmt]:
    """The statements of a cell; none if it is no plain Python."""
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):
        return []
