"""The API: the modules of common/ that labs import, one page for each."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.paths import COURSE, ROOT
from grading.source import labs

AUTO, MEMBERS = ".. auto", "   :members:\n"


def write(folder: Path) -> list[str]:
    """Write the pages; their names."""
    folder.mkdir()
    modules = sorted({module for name in labs.names() for module in imported(labs.read(name))})
    known: set[Any] = set()  # what other packages' pages describe
    for module in modules:
        is_package = (ROOT / module.replace(".", "/")).is_dir()
        text = _of_package(module, known) if is_package else f"{AUTO}module:: {module}\n{MEMBERS}"
        page = f"# {module}\n\n```{{eval-rst}}\n{text}```\n"
        (folder / f"{module}.md").write_text(page, encoding="utf-8")
    return modules


def _of_package(name: str, known: set[Any]) -> str:
    """The directives of a package: what two packages have is on both pages, and in the index once.

    known: what pages before this one describe; it grows.
    """
    package = importlib.import_module(name)
    mine = {member: getattr(package, member) for member in getattr(package, "__all__", ())}
    again = [member for member, thing in mine.items() if isinstance(thing, type) and thing in known]
    known |= {thing for thing in mine.values() if isinstance(thing, type)}
    options = f"{MEMBERS}   :imported-members:\n"
    options += f"   :exclude-members: {', '.join(again)}\n" if again else ""
    others = [f"\n{AUTO}class:: {name}.{member}\n   :no-index:\n" for member in again]
    return f"{AUTO}module:: {name}\n{options}{''.join(others)}"


def imported(lab: labs.Lab) -> Iterator[str]:
    """The modules of common/ and nogpu/ that a lab's code imports."""
    for cell in lab.cells:
        for node in ast.walk(ast.parse(cell.source if cell.kind == "code" else "")):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(COURSE):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (name for name in [node.module or "", *names] if is_public(name))


def is_public(name: str) -> bool:
    """Whether this is a module, or a package with an API of its own, that readers may see."""
    if name in {"common", "common.lessons", "nogpu"} or ".expected" in name:
        return False
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
