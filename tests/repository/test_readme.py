"""The claims of the README and the documents are true; test_style.py checks their tables."""

import base64
import re
import subprocess
import sys
from typing import Any

import nbformat

from common.paths import ROOT
from common.setup import environment
from grading.source import build, labs

README = (ROOT / "README.md").read_text(encoding="utf-8")


def match_of(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    assert match is not None, pattern
    return match


def test_the_tree_is_that_of_the_disk():
    folders = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith((".", "_"))
    }
    ignored = {line.strip("/\n") for line in (ROOT / ".gitignore").read_text().splitlines()}
    architecture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = match_of(r"<!-- tree:.*?-->\n(.*?)<!-- end -->", architecture)[1]
    named = re.findall(r"^(\w+)/", tree, re.MULTILINE)
    assert set(named) == {name for name in folders - ignored if not name.endswith(".egg-info")}


def test_the_commands_are_targets_of_make():
    makefile = "".join((ROOT / name).read_text() for name in ("Makefile", "developer.mk"))
    texts = [README, *(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))]
    named = {name for text in texts for name in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)}
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_versions_named_are_those_that_are_tested():
    for title, name in (("PyTorch", "torch"), ("Triton", "triton")):
        oldest, newest = environment.tested(name)
        assert f"{title} {oldest} to {newest.rpartition('.')[0]}" in README
    assert f"({environment.CPU_SIZE_GB} to {environment.SIZE_GB} GB" in README


def test_the_table_of_points_is_what_the_grader_says(tmp_path):
    lab, notebook = labs.read("01"), tmp_path / "01_strides.ipynb"
    right, wrong = (
        lab.solution["row_major_strides"],
        lab.solution["sliced"].replace("offset += start * strides[axis]", ""),
    )
    build.write(
        build.lab_notebook(lab.filled({"row_major_strides": right, "sliced": wrong})),
        notebook,
    )
    said = subprocess.check_output([sys.executable, "-m", "grading", notebook], cwd=ROOT, text=True)
    shown = match_of(r"^ exercise .*?\n(?=```)", README)[0]
    assert " ".join(shown.split()) in " ".join(said.replace("─", "").split())


def test_the_figure_is_one_of_an_executed_solution():
    figure = (ROOT / "README.png").read_bytes()
    notebooks: list[Any] = [
        nbformat.read(ROOT / "solutions" / f"{name}.ipynb", as_version=4) for name in labs.names()
    ]
    images = [
        base64.b64decode(output.data["image/png"])
        for notebook in notebooks
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert figure in images
