"""A page for each lab: the executed solution, with answers, checks and set-up folded."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from book import address, texts
from common.paths import ROOT
from grading.source import build, labs
from grading.source.labs import Cell, Lab

FOLDED = {  # a cell's tag: what is folded
    "hole": "an answer",
    "check": "the check",
    "driver": "the code that runs it",
    "setup": "the set-up",
}
STILL = "The page shows no widget: open the notebook to move it."


def write(folder: Path, moving: Callable[[str], Mapping[str, str]]) -> list[str]:
    """Write the pages; the labs' names, in teaching order.

    moving: of a lab, {words of a cell: the figure that moves, to stand below this cell}.
    """
    folder.mkdir()
    for name in labs.names():
        nbformat.write(page(labs.read(name), moving(name)), folder / f"{name}.ipynb")
    return labs.names()


def page(lab: Lab, moving: Mapping[str, str]) -> NotebookNode:
    """The lab's executed solution, as MyST-NB reads it, with the figures that move."""
    solved = build.read(ROOT / "solutions" / f"{lab.name}.ipynb")
    stubs = {exercise.hole: exercise.stub for exercise in lab.exercises}
    cells = [
        cell
        for source, executed in zip(lab.cells, solved.cells, strict=True)
        for cell in _cells(source, executed, stubs.get(source))
    ]
    for words, figure in moving.items():
        place = next(i for i, cell in enumerate(cells) if words in cell.source)
        cells.insert(place + 1, nbformat.v4.new_markdown_cell(figure))
    cells.insert(1, nbformat.v4.new_markdown_cell(_launches(lab.name)))
    metadata = {"kernelspec": build.KERNEL, "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def _launches(name: str) -> str:
    links = address.launches(f"labs/{name}.ipynb").items()
    return "{.launch}\n" + " · ".join(f"[{label}]({link})" for label, link in links)


def _cells(source: Cell, executed: NotebookNode, stub: str | None) -> Iterator[NotebookNode]:
    """The cells of the page that stand for one cell of the lab. stub: of a hole."""
    if executed.cell_type == "markdown":
        text = texts.linked(executed.source, "labs", pages=labs.names())
        yield nbformat.v4.new_markdown_cell(text)
        return
    if stub:
        yield nbformat.v4.new_markdown_cell(f"```python\n{stub.rstrip()}\n```")
    cell = nbformat.v4.new_code_cell(executed.source, outputs=[*map(_shown, executed.outputs)])
    for tag in source.tags & set(FOLDED):
        cell.metadata["tags"] = ["hide-input"]
        prompts = {
            "code_prompt_show": f"Show {FOLDED[tag]}",
            "code_prompt_hide": f"Hide {FOLDED[tag]}",
        }
        cell.metadata["mystnb"] = prompts
    if alternative := _alternative(cell.outputs):
        cell.metadata.setdefault("mystnb", {})["image"] = {"alt": alternative}
    yield cell


def _shown(output: NotebookNode) -> NotebookNode:
    """The output without what only a running notebook can show."""
    data = output.get("data", {})
    if build.WIDGET in data:
        return nbformat.v4.new_output("stream", text=STILL)
    if "image/png" in data or "text/html" in data:
        data.pop("text/plain", None)
    return output


def _alternative(outputs: list[NotebookNode]) -> str:
    """The alternative text of a cell's first picture; "" if it has none."""
    found = (output.get("metadata", {}).get("image/png", {}).get("alt", "") for output in outputs)
    return re.sub(r"\s+", " ", next(filter(None, found), ""))
