"""Notebooks from sources: the student's labs, and the executed solutions.

python -m grading.source.build labs [--force]        labs/*.ipynb; a lab with work in it is left alone, or with --force kept aside
python -m grading.source.build solutions [LAB ...] [--force]   solutions/*.ipynb, executed where the code changed (--force: all)
"""

import argparse
import base64
import contextlib
import hashlib
import io
import os
import queue
import re
import sys
import time

import nbformat

from common.files import whole
from common.paths import LABS, ROOT
from grading.source import holes, labs

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
GO_ON = "raises-exception"  # JupyterLab's Run All goes on after such a cell fails: a fresh lab shows all that is to do
CELL_TIMEOUT_S = 120


def lab_notebook(lab):
    """What the student opens: stubs in the holes, no held-out checks; identical at each build."""
    notebook = _notebook(
        lab,
        lambda cell, exercise: exercise.stub if exercise else holes.stub(cell.source),
        [cell for cell in lab.cells if "held-out" not in cell.tags],
    )
    first_hole = next(
        (i for i, cell in enumerate(notebook.cells) if "hole" in cell.metadata.get("tags", [])), 0
    )
    for cell in notebook.cells[first_hole:]:
        if cell.cell_type == "code":
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), GO_ON]
    notebook.metadata["built_sha256"] = content_hash(notebook)
    return notebook


def solution_notebook(lab):
    """The lab with its answers, not yet executed."""
    notebook = _notebook(lab, lambda cell, exercise: holes.solved(cell.source), lab.cells)
    for cell in notebook.cells:
        if "check" in cell.metadata.get("tags", []):
            cell.metadata["tags"].append("nbval-check-output")
    return notebook


def _notebook(lab, text, cells):
    exercises = {exercise.hole: exercise for exercise in lab.exercises}
    points = {exercise.number: exercise.points for exercise in lab.exercises}
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
            notebook.cells.append(nbformat.v4.new_code_cell(source))
        if cell.tags:
            notebook.cells[-1].metadata["tags"] = sorted(cell.tags)
    _set_ids(notebook)
    return notebook


def _set_ids(notebook) -> None:
    """Cell ids that depend on nothing but the text, so that a build is the same twice and an edit changes one id."""
    seen = {}
    for cell in notebook.cells:
        name = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:10]
        seen[name] = seen.get(name, 0) + 1
        cell["id"] = name if seen[name] == 1 else f"{name}-{seen[name]}"


def content_hash(notebook):
    """A hash of what a student could have changed: the cells' kinds and texts, not their outputs."""
    text = "\0".join(f"{cell.cell_type}\n{cell.source}" for cell in notebook.cells)
    return hashlib.sha256(text.encode()).hexdigest()


def has_work(path):
    """Whether a lab on disk was changed since it was built; a file that can't be read is taken for work."""
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except Exception:  # whatever nbformat makes of it, it is somebody's file
        return True
    return notebook.metadata.get("built_sha256") != content_hash(notebook)


def write(notebook, path) -> None:
    """Writes the notebook whole or not at all."""
    with whole(path) as new:
        nbformat.write(notebook, new)


def keep_aside(path):
    """Moves a file to a name that is free, and returns it."""
    number = 1
    while (copy := path.with_name(f"{path.stem}.backup-{number}.ipynb")).exists():
        number += 1
    return path.rename(copy)


def build_labs(force=False, folder=LABS):
    """Builds every lab; returns the paths left alone because there is work in them."""
    left = []
    folder.mkdir(exist_ok=True)
    for name in labs.names():
        path = folder / f"{name}.ipynb"
        notebook = lab_notebook(labs.read(name))
        if (
            path.exists()
            and nbformat.writes(notebook).strip() == path.read_text(encoding="utf-8").strip()
        ):
            print(f"{path.name}: up to date")
            continue
        if path.exists() and has_work(path):
            if not force:
                print(
                    f"{path.name}: has work in it, left alone (make labs FORCE=1 keeps a copy and builds a fresh one)"
                )
                left.append(path)
                continue
            print(f"{path.name}: your work is kept in {keep_aside(path).name}")
        write(notebook, path)
        print(f"{path.name}: built")
    return left


def build_solutions(force=False, folder=ROOT / "solutions", names=None) -> None:
    """Executes every solution, or these, whose code changed since it was executed; new prose is taken over without a run.

    Where checks alone changed, what other cells printed and drew stays: a check's line is the same on a laptop and on a GPU.
    """
    for name in names or labs.names():
        path = folder / f"{name}.ipynb"
        notebook = solution_notebook(labs.read(name))
        old = nbformat.read(path, as_version=4) if path.exists() else None
        changed = _changed(notebook, old) if old and not force else None
        if changed is None or changed:
            print(f"{path.name}: executing{', for its checks' if changed else ''}", flush=True)
            execute(notebook, folder)
        if changed is not None:
            _take_outputs(notebook, old, but=changed)
        _name_widgets(notebook)
        write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


def execute(notebook, folder) -> None:
    """Runs the notebook in place, in a kernel whose profile and ledger are not the student's; keeps no time stamps."""
    import tempfile

    from nbclient import NotebookClient

    from common import device

    with tempfile.TemporaryDirectory() as scratch:
        environment = dict(
            os.environ,
            COURSE_FOLDER=scratch,
            PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        )
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )
        client.create_kernel_manager().transport_encryption = (
            "auto"  # without it the kernel warns of its ports
        )
        client.on_notebook_start = lambda notebook: _look_often(client)
        client.execute(env=environment)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata["executed_on"] = device.name()


def _look_often(client) -> None:
    """nbclient misses a reply that comes while it sends a widget's state on the same socket: look again each second."""
    channel = client.kc.shell_channel
    wait = channel.get_msg

    async def get_msg(timeout):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                return await wait(timeout=1)
        raise queue.Empty

    channel.get_msg = get_msg


def _smaller(png):
    """The same picture with a palette of 128 colours, which a drawing does not miss: a third of the bytes. png: base64."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    small = io.BytesIO()
    picture.quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def _code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _changed(notebook, old):
    """The numbers of the code cells that are not the old ones, if they are checks; None where there are others."""
    cells, before = _code(notebook), _code(old)
    if len(cells) != len(before):
        return None
    changed = [number for number, cell in enumerate(cells) if cell.source != before[number].source]
    return (
        changed
        if all("check" in cells[number].metadata.get("tags", []) for number in changed)
        else None
    )


def _take_outputs(notebook, old, but) -> None:
    """The old outputs go to the new notebook, which has as many code cells, but those of these numbers."""
    for number, (cell, before) in enumerate(zip(_code(notebook), _code(old), strict=True)):
        cell.execution_count = before.execution_count
        if number not in but:
            cell.outputs = before.outputs
    for key in ("widgets", "executed_on"):
        if key in old.metadata:
            notebook.metadata[key] = old.metadata[key]


def _name_widgets(notebook) -> None:
    """Where no kernel runs, a page shows a widget's text, a dump of its parts: one sentence takes its place."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
                output.data["text/plain"] = "A widget: it shows where the notebook runs."


def _plural(count, noun) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def main(arguments=None) -> int | None:
    parser = argparse.ArgumentParser(
        prog="python -m grading.source.build",
        description=re.sub(r"\n.*", "", __doc__, flags=re.DOTALL),
    )
    parser.add_argument("what", choices=["labs", "solutions"])
    parser.add_argument(
        "only",
        nargs="*",
        metavar="LAB",
        help="the solutions to execute, as in 01 02; all if none is given",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="build also what has work in it (a copy is kept) or is up to date",
    )
    options = parser.parse_args(arguments)
    if options.only and options.what == "labs":
        parser.error("labs are built all at once: it takes seconds")
    try:
        if options.what == "solutions":
            build_solutions(options.force, names=[labs.resolve(word) for word in options.only])
            return 0
        return 1 if build_labs(options.force) else 0
    except ValueError as problem:  # a lab that there is not
        print(problem, file=sys.stderr)
        return 2
    except OSError as problem:  # a full disk, no permission: the old files are still there
        print(
            f"{options.what} can't be written: {problem.strerror} ({problem.filename})",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
