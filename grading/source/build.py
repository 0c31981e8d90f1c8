"""Build notebooks from sources: the labs that students open, and the executed solutions."""

import argparse
import ast
import base64
import contextlib
import hashlib
import io
import os
import queue
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from common import files
from common.paths import LABS, ROOT
from common.setup import colab
from grading.source import holes, labs
from grading.source.labs import Cell, Exercise, Lab

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
WIDGET_TEXT = "A widget: it shows where the notebook runs."  # what a file shows of one
# What the lab ends with. It is not in the solutions, which have no answers of a student's to grade.
ENDING = """## Your results

The first cell shows how good your predictions were. The second cell saves this notebook and grades
it, which takes about ten seconds. In a terminal, `make grade LAB={number}` does the same."""
RESULTS = """from common import course, ledger

ledger.figure(lab="{number}");"""
GO_ON = "raises-exception"  # JupyterLab's Run All continues after such a cell fails
CELL_TIMEOUT_S = 120
WIDGET = "application/vnd.jupyter.widget-view+json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command `build` accepts."""
    parser.add_argument("what", choices=["labs", "solutions"], help="which notebooks to build")
    parser.add_argument(
        "only",
        nargs="*",
        metavar="LAB",
        help="the labs to build, for example 01 02 (default: all)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="also rebuild what is up to date, and labs with work in them (a copy is kept)",
    )


def run(options: argparse.Namespace) -> int:
    """The command `build`. A lab with work in it is left alone, which is no failure."""
    if options.what == "solutions":
        build_solutions(options.force, names=[labs.resolve(word) for word in options.only])
        return 0
    build_labs(options.force, names=[labs.resolve(word) for word in options.only])
    return 0


def lab_notebook(lab: Lab) -> NotebookNode:
    """What the student opens: stubs in the holes, no held-out checks. Each build is identical."""

    def text(cell: Cell, exercise: Exercise | None) -> str:
        return exercise.stub if exercise else holes.stub(cell.source)

    notebook = _notebook(lab, text, lab.visible.cells)
    _add_colab(notebook)
    _add_ending(notebook, lab.name[:2])
    is_hole = ["hole" in _tags(cell) for cell in notebook.cells]
    for cell in notebook.cells[is_hole.index(True) if any(is_hole) else 0 :]:
        if cell.cell_type == "code":
            cell.metadata["tags"] = [*_tags(cell), GO_ON]
    notebook.metadata["built_sha256"] = content_hash(notebook)
    return notebook


def _add_colab(notebook: NotebookNode) -> None:
    """Add the cell that prepares Google Colab, below the title."""
    cell = nbformat.v4.new_code_cell(colab.cell())
    cell.metadata["jupyter"] = {"source_hidden": True}
    notebook.cells.insert(1, cell)


def _add_ending(notebook: NotebookNode, number: str) -> None:
    """Add the cells with which a student sees the results."""
    notebook.cells.append(nbformat.v4.new_markdown_cell(ENDING.format(number=number)))
    for text in (RESULTS.format(number=number), "course.grade()"):
        notebook.cells.append(nbformat.v4.new_code_cell(text))
    _set_ids(notebook)


def solution_notebook(lab: Lab) -> NotebookNode:
    """The lab with its answers, not yet executed."""
    notebook = _notebook(lab, lambda cell, _: holes.solved(cell.source), lab.cells)
    for cell in notebook.cells:
        if "check" in _tags(cell):
            cell.metadata["tags"].append("nbval-check-output")
    return notebook


def _notebook(
    lab: Lab, text: Callable[[Cell, Exercise | None], str], cells: Iterable[Cell]
) -> NotebookNode:
    exercises = {exercise.hole: exercise for exercise in lab.exercises}
    points = {exercise.number: exercise.points for exercise in lab.exercises}
    titles = _titles(lab)
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    for cell in cells:
        source = text(cell, exercises.get(cell))
        if cell.kind == "markdown":
            source = labs.HEADING.sub(
                lambda heading: f"{heading[0]} · {_plural(points[heading[1]], 'point')}", source
            )
            notebook.cells.append(nbformat.v4.new_markdown_cell(source))
        else:
            title = titles.get(cell, "")
            notebook.cells.append(nbformat.v4.new_code_cell(title + source))
            if title:  # JupyterLab shows its first line
                notebook.cells[-1].metadata["jupyter"] = {"source_hidden": True}
        if cell.tags:
            notebook.cells[-1].metadata["tags"] = sorted(cell.tags)
    _set_ids(notebook)
    return notebook


def _titles(lab: Lab) -> dict[Cell, str]:
    """The first line of each cell that is collapsed: it says what the cell is."""
    titles = {}
    for cell in lab.cells:
        if "shown" not in cell.tags and cell.tags & {"setup", "driver"}:
            kind = "Set-up" if "setup" in cell.tags else "Helper code"
            titles[cell] = f"# {kind} ({', '.join(cell.names[:3]) or 'imports'}): run me\n"
    first = next((cell for cell in lab.cells if "setup" in cell.tags), None)
    if first:
        titles[first] = "# Imports: run me first, it takes about ten seconds\n"
    for exercise in lab.exercises:
        for number, check in enumerate(exercise.checks, 1):
            nth = f" {number}" if len(exercise.checks) > 1 else ""
            points = _plural(check.points, "point")
            titles[check] = f"# Check{nth} of {exercise.label} ({points}): run me\n"
    return titles


def _untitled(source: str) -> str:
    """A cell's text without its title, which changes nothing that the cell does."""
    return labs.TITLE.sub("", source)


def _set_ids(notebook: NotebookNode) -> None:
    """Derive the cells' ids from their texts: a build is repeatable, and an edit changes one id."""
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        name = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:10]
        seen[name] = seen.get(name, 0) + 1
        cell["id"] = name if seen[name] == 1 else f"{name}-{seen[name]}"


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def content_hash(notebook: NotebookNode) -> str:
    """A hash of what a student may have changed: the cells' kinds and texts, not their outputs."""
    text = "\0".join(f"{cell.cell_type}\n{cell.source}" for cell in notebook.cells)
    return hashlib.sha256(text.encode()).hexdigest()


def has_work(path: Path) -> bool:
    """Whether a lab was changed since it was built. An unreadable file counts as changed."""
    try:
        notebook = read(path)
    except Exception:  # nbformat raises many kinds; whatever the file is, it belongs to somebody
        return True
    return notebook.metadata.get("built_sha256") != content_hash(notebook)


def read(path: Path) -> NotebookNode:
    """The notebook in a file."""
    notebook: Any = nbformat.read(path, as_version=4)  # nbformat can't say which version it gives
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write the notebook whole or not at all."""
    with files.whole(path) as new:
        nbformat.write(notebook, new)


def build_labs(force: bool = False, folder: Path = LABS, names: Iterable[str] = ()) -> list[Path]:
    """Build these labs, or all; returns the paths left alone because there is work in them."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.ipynb" for name in names or labs.names()]
    return [path for path in paths if not _build_lab(path, force)]


def _build_lab(path: Path, force: bool) -> bool:
    """Build one lab and say so; False if it was left alone."""
    notebook = lab_notebook(labs.read(path.stem))
    new = nbformat.writes(notebook).strip()
    if path.exists() and new == path.read_text(encoding="utf-8").strip():
        print(f"{path.name}: up to date")
        return True
    if path.exists() and has_work(path):
        if not force:
            print(
                f"{path.name}: has work in it and was left alone "
                f"(make labs LAB={path.stem[:2]} FORCE=1 keeps a copy and builds a fresh one)"
            )
            return False
        copy = files.set_aside(path, path.stem, ".ipynb", folder=path.parent / "backups")
        print(
            f"{path.name}: your work is kept in backups/{copy.name}; close its tab, open it again"
        )
    write(notebook, path)
    print(f"{path.name}: built")
    return True


def build_solutions(
    force: bool = False, folder: Path = ROOT / "solutions", names: Iterable[str] = ()
) -> None:
    """Execute the solutions whose code changed since the last execution (of these names, or all).

    Changed prose is copied without executing. If only checks changed, the other cells keep their
    outputs: what a check prints is the same on a laptop and on a GPU.
    """
    for name in names or labs.names():
        path = folder / f"{name}.ipynb"
        notebook = solution_notebook(labs.read(name))
        old = read(path) if path.exists() else None
        changed = _changed_checks(notebook, old) if old and not force else None
        if changed is None or changed:
            print(f"{path.name}: executing{', for its checks' if changed else ''}", flush=True)
            execute(notebook, folder)
        if old and changed is not None:
            _take_outputs(notebook, old, but=changed)
        _describe_widgets(notebook)
        write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run the notebook in place, without time stamps, with its own ledger and machine profile."""
    from nbclient import NotebookClient

    from common.hardware import device

    with tempfile.TemporaryDirectory() as scratch:
        environment = dict(
            os.environ,
            COURSE_FOLDER=scratch,
            COURSE_FIGURES="small",  # an executed notebook has at most 500 KB
            PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        )
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )
        manager: Any = client.create_kernel_manager()
        manager.transport_encryption = "auto"  # otherwise the kernel warns about its ports
        client.on_notebook_start = lambda notebook: _receive_replies(client)
        client.execute(env=environment)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata["executed_on"] = device.name()


def _receive_replies(client: Any) -> None:
    """Look for a reply every second. Where a cell shows a widget, nbclient may not notice it.

    nbclient sends the widget's state on the socket on which it waits for the cell's reply. Sending
    consumes the event that announces the reply: https://github.com/jupyter/nbclient/issues/312
    """
    channel = client.kc.shell_channel
    wait = channel.get_msg

    async def get_msg(timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                return await wait(timeout=1)
        raise queue.Empty

    channel.get_msg = get_msg


def _smaller(png: str) -> str:
    """The picture with 128 colours, which are enough for a drawing: a third of the bytes.

    png: base64, as a notebook holds it.
    """
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    small = io.BytesIO()
    picture.quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _changed_checks(notebook: NotebookNode, old: NotebookNode) -> list[int] | None:
    """The indices of the code cells that changed, if no other's outputs can change; else None.

    They are checks, and helper code whose changed functions checks alone call.
    """
    cells, before = _code(notebook), _code(old)
    if len(cells) != len(before):
        return None
    changed = [
        i for i, cell in enumerate(cells) if _untitled(cell.source) != _untitled(before[i].source)
    ]
    others = [cell.source for cell in cells if "check" not in _tags(cell)]
    return changed if all(_is_for_checks(cells[i], before[i], others) for i in changed) else None


def _is_for_checks(cell: NotebookNode, before: NotebookNode, others: Iterable[str]) -> bool:
    """Whether a cell is a check, or if only functions changed in it that checks alone call.

    others: the texts of all cells that are no checks.
    """
    if "check" in _tags(cell):
        return True
    if "driver" not in _tags(cell):
        return False
    old, new = ({ast.unparse(n): n for n in ast.parse(c.source).body} for c in (before, cell))
    changed = [n for text, n in (old | new).items() if (text in old) != (text in new)]
    if not all(isinstance(node, ast.FunctionDef) for node in changed):
        return False
    names = {node.name for node in changed if isinstance(node, ast.FunctionDef)}
    words = [word for text in others for word in set(re.findall(r"\w+", text))]
    return all(words.count(name) == 1 for name in names)  # where it is defined


def _take_outputs(notebook: NotebookNode, old: NotebookNode, but: list[int]) -> None:
    """Copy the old outputs, except those of the code cells with these indices."""
    for i, (cell, before) in enumerate(zip(_code(notebook), _code(old), strict=True)):
        cell.execution_count = before.execution_count
        if i not in but:
            cell.outputs = before.outputs
    for key in ("widgets", "executed_on"):
        if key in old.metadata:
            notebook.metadata[key] = old.metadata[key]


def _describe_widgets(notebook: NotebookNode) -> None:
    """Replace a widget's text, a dump of its parts, which a page without a kernel would show."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if WIDGET in output.get("data", {}):
                output.data["text/plain"] = WIDGET_TEXT


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
