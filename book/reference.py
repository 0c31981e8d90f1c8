"""The API: the modules of common/ that labs import, one page for each."""

import ast
from collections.abc import Iterator
from pathlib import Path

from common.paths import ROOT
from grading.source import labs

HIDDEN = {"common.oracles", "common.clinics"}  # what checks compare with


def write(folder: Path) -> list[str]:
    """Write the pages; their names."""
    folder.mkdir()
    modules = sorted({module for name in labs.names() for module in imported(labs.read(name))})
    for module in modules:
        is_package = (ROOT / module.replace(".", "/")).is_dir()
        options = "   :members:\n" + is_package * "   :imported-members:\n   :no-index:\n"
        text = f"# {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n{options}```\n"
        (folder / f"{module}.md").write_text(text, encoding="utf-8")
    return modules


def imported(lab: labs.Lab) -> Iterator[str]:
    """The modules of common/ that a lab's code imports."""
    for cell in lab.cells:
        for node in ast.walk(ast.parse(cell.source if cell.kind == "code" else "")):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("common"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (name for name in [node.module or "", *names] if is_public(name))


def is_public(name: str) -> bool:
    """Whether this is a module, or a package with an API of its own, that readers may see."""
    if name.rpartition(".")[0] in HIDDEN or name in HIDDEN | {"common", "common.lessons"}:
        return False
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
