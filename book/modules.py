"""The page of all modules: each with the first sentence of its docstring, by folder."""

import ast
from pathlib import Path

from common.paths import CODE, ROOT
from docs.generate import table


def write(folder: Path) -> None:
    """Write modules.md."""
    packages = sorted(path.parent for top in CODE for path in (ROOT / top).rglob("__init__.py"))
    parts = ["# All modules", *map(_of_folder, packages)]
    (folder / "modules.md").write_text("\n\n".join(parts) + "\n", "utf-8")


def _of_folder(folder: Path) -> str:
    rows = [(f"`{path.name}`", _summary(path)) for path in sorted(folder.glob("*.py"))]
    return f"## {folder.relative_to(ROOT)}/\n\n" + table("| file | what it is |", rows)


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
