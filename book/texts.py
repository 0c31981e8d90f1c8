"""The pages that are not notebooks: the front page, the guides, and their links."""

import posixpath
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from book import address
from common.paths import ROOT
from docs import generate
from grading.source import build, labs

GUIDES = {  # page: the file it is made from
    "students": "docs/students.md",
    "instructors": "docs/instructors.md",
    "contributing": "CONTRIBUTING.md",
    "architecture": "docs/architecture.md",
    "nogpu": "nogpu/README.md",
    "simulators": "nogpu/CONTRIBUTING.md",
    "measured": "docs/measured.md",
    "newcomer": "docs/newcomer.md",
    "sources": "docs/sources.md",
    "errata": "docs/errata.md",
}
PAGES = {file: page for page, file in GUIDES.items()}
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
DRAWN = re.compile(r"```mermaid\n.*?```", re.DOTALL)


def write(folder: Path, names: Collection[str], modules: Collection[str]) -> None:
    """Write the front page and the guides. names: the labs. modules: what has a page in api/."""
    for page, file in GUIDES.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        text = DRAWN.sub("*(The repository draws this map.)*", text)
        (folder / f"{page}.md").write_text(linked(text, posixpath.dirname(file), names), "utf-8")
    (folder / "index.md").write_text(_front(names, modules), "utf-8")
    for picture in ("README.png", "docs/sweeps.png"):
        shutil.copy(ROOT / picture, folder)


def linked(text: str, folder: str, pages: Collection[str]) -> str:
    """The text, with links that work on the site.

    folder: the text's folder in the repository. pages: the labs' names. A link to a file that is
    no page leads to the repository, or is left out if its address is not known.
    """

    def link(found: re.Match[str]) -> str:
        label, target, part = found[1], found[2], found[3] or ""
        file = posixpath.normpath(posixpath.join(folder, target))
        stem = posixpath.splitext(posixpath.basename(file))[0]
        if file in PAGES:
            return f"[{label}]({_up(folder)}{PAGES[file]}.md{part})"
        if stem in pages and file.endswith(".ipynb"):
            return f"[{label}]({_up(folder)}labs/{stem}.ipynb{part})"
        found_at = address.of_file(file)
        return f"[{label}]({found_at})" if found_at else label

    return LINK.sub(link, text)


def _up(folder: str) -> str:
    """From the site's page of a file in this folder to the site's root."""
    return "../" if folder == "labs" else ""


def _front(names: Collection[str], modules: Collection[str]) -> str:
    words = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0]
    tree = "```{{toctree}}\n:hidden:\n:caption: {}\n\n{}\n```"
    trees = [
        tree.format("Labs", "\n".join(f"labs/{name}" for name in names)),
        tree.format("Figures that move", "moving"),
        tree.format("Guides", "\n".join([*GUIDES, "modules"])),
        tree.format("The library", "\n".join(f"api/{module}" for module in modules)),
    ]
    return "\n\n".join([linked(words, "", names), "## The labs", status(names), *trees]) + "\n"


def status(names: Collection[str]) -> str:
    """The table of the labs: what they ask, where they run, and how their checks were tried."""
    head = (
        "| lab | minutes | CPU | one GPU | several | checks | known wrong answers | mutants caught "
        "| executed on |"
    )
    caught = generate.mutants_caught()
    return generate.table(head, (_row(name, caught.get(name, "")) for name in names))


def _row(name: str, caught: str) -> tuple[str, ...]:
    lab = labs.read(name)
    noun, _, minutes, _ = generate.facts(name)
    code = "\n".join(cell.source for cell in lab.cells if cell.kind == "code")
    checks = sum(len(exercise.checks) for exercise in lab.exercises)
    wrong = generate.known_mistakes(name)
    several = "✓" if "nccl" in code or "clock.machine_here" in code else ""
    one = "✓" if "has_gpu" in code or "cuda.is_available" in code else ""
    solved = build.read(ROOT / "solutions" / f"{name}.ipynb")
    machine = solved.metadata.get("executed_on", "")
    link = f"[{noun}](labs/{name}.ipynb)"
    return link, minutes, "✓", one or several, several, str(checks), str(wrong), caught, machine
