"""make docs: writes what the documentation says about the code, from the code itself.

Each block lies between `<!-- NAME: made by make docs -->` and `<!-- end -->`. The gate fails where
a block on disk differs from what is made here, so that no table or map goes stale.
"""

import ast
import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import grimp

from common import capabilities
from common.paths import ROOT
from grading.source import labs

DOCUMENTS = ("README.md", "docs/students.md", "docs/architecture.md", "docs/measured.md")
BLOCK = re.compile(r"(<!-- (\w+): made by make docs -->\n)(.*?)(<!-- end -->)", re.DOTALL)
GROUND = "grading.errors"  # every package may import it, as it may the ground of common/
UPPER = "common/above"  # the modules of common/ that build on simt, tiles and ranks
PACKAGES = {  # in the order of the map: a package and the label that it has there
    "grading": "grading<br>score, report, classroom",
    "grading.lms": "grading/lms<br>Canvas, Gradescope, nbgrader, GitHub",
    "grading.course": "grading/course<br>deadlines, roster, class page",
    "grading.source": "grading/source<br>text to notebooks",
    "grading.worker": "grading/worker<br>the student's process",
    "grading.jail": "grading/jail<br>the sandbox",
    "common.setup": "common/setup<br>before anything is installed",
    "common.lessons": "common/lessons<br>what one lab shows",
    "common": "common<br>figures, ledger, timing, ...",
    "common.simt": "common/simt<br>CUDA kernels, counted",
    "common.tiles": "common/tiles<br>Triton kernels, counted",
    "common.tiles.ptx": "common/tiles/ptx<br>compiled kernels, run thread by thread",
    "common.ranks": "common/ranks<br>p ranks, counted",
    "common.graphs": "common/graphs<br>programs as graphs",
    "common.samples": "common/samples<br>real data",
    "common.language_model": "common/language_model<br>the model in all labs",
    "common.oracles": "common/oracles<br>what checks compare with",
    "common.kernels": "common/kernels<br>shared by simt and tiles",
}


def main() -> int:
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        path.write_text(renewed(text), encoding="utf-8")
    return 0


def renewed(text: str) -> str:
    """The document with every block made anew."""
    return BLOCK.sub(lambda block: f"{block[1]}{BLOCKS[block[2]]()}\n{block[4]}", text)


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    lines = [head, "|" + " --- |" * head.count(" | ") + " --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


# The labs


def lab_table() -> str:
    """Question, minutes, system and number of known wrong answers of each lab."""
    rows = []
    for name in labs.names():
        noun, question, minutes, system = facts(name)
        link, solved = f"[{noun}](labs/{name}.ipynb)", f"[solved](solutions/{name}.ipynb)"
        rows.append((link, question, minutes, system, str(known_mistakes(name)), solved))
    head = "| lab | the question it answers | minutes | system | wrong answers refused | |"
    return table(head, rows)


def student_table() -> str:
    """The same for students, who have no solutions."""
    head = "| lab | the question it answers | minutes | system |"
    return table(head, (facts(name) for name in labs.names()))


def facts(name: str) -> tuple[str, str, str, str]:
    """(number and noun, question, minutes, system) of a lab, from its title cell and its code."""
    title = labs.read(name).cells[0].source
    noun = _first(r"# (\d\d · .+)", title)
    question = _first(r"[*][*](.+?)[*][*]", title)
    return noun, question, _first(r"bout (\d+) minutes", title), _system(name)


def _first(pattern: str, title: str) -> str:
    match = re.search(pattern, title)
    if match is None:
        raise ValueError(f"the title cell of a lab has nothing like {pattern!r}: {title!r}")
    return match[1]


def _system(name: str) -> str:
    """Triton exists only for Linux."""
    code = "\n".join(cell.source for cell in labs.read(name).cells if cell.kind == "code")
    marks = "import triton", "tiles.count", "prepare_triton"
    return "Linux" if any(mark in code for mark in marks) else "any"


def known_mistakes(name: str) -> int:
    """How many known wrong answers the checks of a lab are held to."""
    text = (ROOT / "tests" / "wrong" / f"{name}.py").read_text(encoding="utf-8")
    return len(re.findall(r"^# %% \w+: ", text, re.MULTILINE))


def mutants_caught() -> dict[str, str]:
    """{lab: the share caught}, from docs/mutants.csv: a line per whole run of `make mutants`."""
    with (ROOT / "docs" / "mutants.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["lab"]: f"{int(row['caught']) / int(row['tried']):.1%}" for row in rows}


# The map


def import_map() -> str:
    """A Mermaid chart of the packages; an arrow's number says how many imports it stands for.

    Arrows to the ground are left out: every package has some.
    """
    graph = grimp.build_graph("common", "grading")
    imports = [
        (module, imported)
        for module in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(module) - {GROUND})
    ]
    upper = {name for name in graph.find_children("common") if _is_above_packages(name, graph)}
    arrows = Counter(
        (_place(importer, upper), _place(imported, upper)) for importer, imported in imports
    )
    labels = PACKAGES | {UPPER: _names(upper), "common": "common<br>figures, ledger, paths, ..."}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {_node(place)}["{label}"]' for place, label in labels.items()]
    for (importer, imported), count in sorted(arrows.items()):
        if importer != imported and imported != "common":
            lines.append(f"    {_node(importer)} -->|{count}| {_node(imported)}")
    return "\n".join([*lines, "```"])


def _is_above_packages(module: str, graph: grimp.ImportGraph) -> bool:
    """Whether a module of common/ itself imports simt, tiles or ranks, directly or not."""
    return module not in PACKAGES and any(
        graph.chain_exists(importer=module, imported=package, as_packages=True)
        for package in ("common.simt", "common.tiles", "common.ranks")
    )


def _place(module: str, upper: set[str]) -> str:
    return UPPER if module in upper else _package(module)


def _package(module: str) -> str:
    """The package of the map that a module belongs to."""
    while module not in PACKAGES:
        module = module.rpartition(".")[0]
    return module


def _names(modules: set[str]) -> str:
    return "common<br>" + ", ".join(sorted(module.partition(".")[2] for module in modules))


def _node(place: str) -> str:
    return place.replace(".", "_").replace("/", "_")


def module_table() -> str:
    """Every module of common/ and grading/ with the first line of its docstring, by folder."""
    parts = []
    on_disk = {
        path.parent for top in ("common", "grading") for path in (ROOT / top).rglob("__init__.py")
    }
    if unknown := on_disk - {ROOT / package.replace(".", "/") for package in PACKAGES}:
        raise ValueError(f"PACKAGES lacks {', '.join(map(str, unknown))}: give each a label")
    for package in sorted(PACKAGES):
        folder = ROOT / package.replace(".", "/")
        rows = [(f"`{path.name}`", _summary(path)) for path in sorted(folder.glob("*.py"))]
        link = f"[{folder.relative_to(ROOT)}/](../{folder.relative_to(ROOT)})"
        parts.append(f"**{link}**\n\n" + table("| file | what it is |", rows))
    return "\n\n".join(parts)


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


# What was measured


def _parts(name: str) -> list[str]:
    """The paragraphs and tables of a benchmark's report, benchmarks/NAME.md."""
    text = (ROOT / "benchmarks" / f"{name}.md").read_text(encoding="utf-8")
    return text.strip().split("\n\n")


def kernels() -> str:
    machine, *tables = _parts("kernels")
    return "\n\n".join([*tables, machine])


def gpus() -> str:
    machine, *tables = _parts("multi_gpu")
    return "\n\n".join([*tables, machine])


def sweeps() -> str:
    """The figure, and a line for each kernel and peer; the shapes are in benchmarks/sweeps.md."""
    machine, summary = _parts("sweeps")[:2]
    figure = "![Each dot is a shape: our speed over the library's, by size.](sweeps.png)"
    return "\n\n".join([figure, summary, machine])


def memory() -> str:
    machine, *parts = _parts("memory")
    return "\n\n".join([*parts, machine])


def requests() -> str:
    return _parts("tiles_hardware")[1]


def gpus_of_students() -> str:
    """What runs where, by compute capability, and what benchmarks/cards.py found of each."""
    rows = []
    for number, limits in capabilities.LIMITS.items():
        room = f"{limits.shared_bytes >> 10} KB"
        products = "your kernel of exercise 3.1, by pointers"
        if limits.copy_engine:
            large = limits.shared_bytes >= capabilities.LIMITS[90].shared_bytes
            products = "tiles by the copy engine" + ("" if large else ", without the largest tiles")
        half = "fp16 or bf16" if limits.bf16 else "fp16 (bf16 without tensor cores)"
        early = "yes" if number >= 90 else "no"
        rows.append((f"{number / 10:.1f}", limits.cards, room, half, products, early))
    head = "| capability | cards | shared memory | 16 bits | lab 05's matmul | starts early |"
    return "\n\n".join([table(head, rows), *_parts("cards")[::-1]])


BLOCKS = {
    "labs": lab_table,
    "students": student_table,
    "map": import_map,
    "modules": module_table,
    "kernels": kernels,
    "requests": requests,
    "sweeps": sweeps,
    "cards": gpus_of_students,
    "gpus": gpus,
    "memory": memory,
}

if __name__ == "__main__":
    sys.exit(main())
