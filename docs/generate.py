"""make docs: writes what the documentation says about the code, from the code itself.

Each block lies between `<!-- NAME: made by make docs -->` and `<!-- end -->`. The gate fails where
a block on disk differs from what is made here, so that no table or map goes stale.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable

import grimp

from common.hardware import gpu_limits
from common.paths import CODE, ROOT
from grading.source import labs

DOCUMENTS = ("README.md", "docs/students.md", "docs/architecture.md", "docs/measured.md")
BLOCK = re.compile(r"(<!-- (\w+): made by make docs -->\n)(.*?)(<!-- end -->)", re.DOTALL)
ROOMS = {  # in the order of the map: a package and the label that it has there
    "grading.lms": "grading/lms<br>Canvas, Gradescope, nbgrader, GitHub",
    "grading": "grading<br>score, report, classroom, course",
    "grading.source": "grading/source<br>text to notebooks",
    "grading.worker": "grading/worker<br>the student's process",
    "grading.jail": "grading/jail<br>the sandbox",
    "common.lessons": "common/lessons<br>a folder for each lab",
    "common": "common<br>checks, figures, graphs, hardware, notebook, ...",
    "nogpu": "nogpu<br>simt, tiles, ranks: the simulators",
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
    text = (ROOT / "tests" / "labs" / name[3:] / "wrong.py").read_text(encoding="utf-8")
    return len(re.findall(r"^# %% \w+: ", text, re.MULTILINE))


def mutants_caught() -> dict[str, str]:
    """{lab: the share caught}, from docs/mutants.csv: a line per whole run of `make mutants`."""
    with (ROOT / "docs" / "mutants.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["lab"]: f"{int(row['caught']) / int(row['tried']):.1%}" for row in rows}


# The map


def import_map() -> str:
    """A Mermaid chart of the rooms; an arrow's number says how many imports it stands for."""
    graph = grimp.build_graph(*CODE)
    arrows = Counter(
        (_room(importer), _room(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    )
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {_node(room)}["{label}"]' for room, label in ROOMS.items()]
    for (importer, imported), count in sorted(arrows.items()):
        if importer != imported:
            lines.append(f"    {_node(importer)} -->|{count}| {_node(imported)}")
    return "\n".join([*lines, "```"])


def _room(module: str) -> str:
    """The room of the map that a module belongs to."""
    while module not in ROOMS:
        module = module.rpartition(".")[0]
    return module


def _node(room: str) -> str:
    return room.replace(".", "_")


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
    for number, limits in gpu_limits.LIMITS.items():
        room = f"{limits.shared_bytes >> 10} KB"
        products = "your kernel of exercise 3.1, by pointers"
        if limits.copy_engine:
            large = limits.shared_bytes >= gpu_limits.LIMITS[90].shared_bytes
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
    "kernels": kernels,
    "requests": requests,
    "sweeps": sweeps,
    "cards": gpus_of_students,
    "gpus": gpus,
    "memory": memory,
}

if __name__ == "__main__":
    sys.exit(main())
