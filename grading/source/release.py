"""Make what students get: the labs and what they need, and prove that no solution is in it.

The result is FOLDER/ml-systems-labs and FOLDER/ml-systems-labs.zip. The labs hold stubs, and no
held-out checks. Everything else is copied as whole files.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from common.checks import obfuscated
from common.files import replace
from common.paths import ROOT, of_checks
from grading.source import build, holes, labs
from grading.source.labs import Lab

NAME = "ml-systems-labs"
COPIED = [
    "LICENSE",
    "Makefile",
    "environment.yml",
    "pyproject.toml",
    "requirements.lock",
    ".gitignore",
    ".devcontainer",
    "common",
    "nogpu",
    "grading",
    "docs/sources.md",  # a lab links to it
    "benchmarks/simt_hardware.md",  # a lab reads it and draws its figures
]
RENAMED = {  # the course's own README speaks of what is not there
    "docs/students.md": "README.md",
    "docs/sources.md": "sources.md",  # to which it links
}
LEFT_OUT = [  # of these folders: the instructor's and the author's commands
    "grading/lms",
    "grading/mutants.py",
    "grading/source/build.py",
    "grading/source/release.py",
]
MIN_SECRET = 20  # an answer's line with fewer characters may be in any file
IDIOMS = 1  # this many of an answer's longer lines may be in a file other than its own lab
DATE = (1980, 1, 1, 0, 0, 0)  # of the files in the zip, so that equal releases have equal bytes


class LeakError(Exception):
    """A part of the solutions is in the release. The text says which part, and where."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command `release` accepts."""
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        default=ROOT / "build" / "release",
        help="the folder to write to (default: build/release)",
    )


def run(options: argparse.Namespace) -> int:
    """The command `release`."""
    try:
        path = write(options.out)
    except LeakError as problem:
        print(f"grading: the release was not made: {problem}", file=sys.stderr)
        return 1
    size_mb, count = path.stat().st_size / 1e6, len(labs.names())
    print(f"{path}: {size_mb:.1f} MB, {count} labs; untouched labs score 0, and no answer is in it")
    return 0


def write(folder: Path) -> Path:
    """Build, prove and zip the release in a folder, whole or not at all; returns the zip's path."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        new = Path(scratch) / NAME
        _fill(new)
        prove(new)
        archive = Path(scratch) / f"{NAME}.zip"
        _zip(new, archive)
        shutil.rmtree(folder / NAME, ignore_errors=True)
        os.replace(new, folder / NAME)
        os.replace(archive, folder / archive.name)
    return folder / f"{NAME}.zip"


def _fill(new: Path) -> None:
    def ignored(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(ROOT)
        return {name for name in names if name == "__pycache__" or str(inside / name) in LEFT_OUT}

    for name, copy in [*((name, name) for name in COPIED), *RENAMED.items()]:
        (new / copy).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, new / copy, ignore=ignored)
        else:
            shutil.copy(ROOT / name, new / copy)
    for path in of_checks():  # right answers in other styles
        if path.name != "__init__.py":
            sealed = obfuscated.seal(path.read_text(encoding="utf-8"))
            replace(new / path.relative_to(ROOT), sealed)
    (new / "labs" / ".source").mkdir(parents=True)
    for name in labs.names():
        lab = labs.read(name)
        nbformat.write(build.lab_notebook(lab), new / "labs" / f"{name}.ipynb")
        replace(new / "labs" / ".source" / f"{name}.py", stripped(lab))


def stripped(lab: Lab) -> str:
    """The lab's source as a student's own grader needs it: stubs, and no held-out checks."""
    stubs = {exercise.hole: exercise.stub for exercise in lab.exercises}
    notebook = nbformat.v4.new_notebook()
    for cell in lab.cells:
        source = (
            labs.HELD_OUT if "held-out" in cell.tags else stubs.get(cell) or holes.stub(cell.source)
        )
        is_code = cell.kind == "code"
        new_cell = nbformat.v4.new_code_cell if is_code else nbformat.v4.new_markdown_cell
        new = new_cell(source)
        if cell.tags:
            new.metadata["tags"] = sorted(cell.tags)
        if "check" in cell.tags:
            new.metadata |= {"points": cell.points, "limit_s": cell.limit_s}
        notebook.cells.append(new)
    text = jupytext.writes(notebook, fmt="py:percent")
    return re.sub(r"\A# ---\n.*?\n# ---\n+", "", text, flags=re.DOTALL)  # jupytext's own header


def prove(release: Path) -> None:
    """Raise LeakError unless untouched labs score 0 and no line of an answer is in the release."""
    expected = {name.partition("/")[0] for name in [*COPIED, *RENAMED.values()]} | {"labs"}
    if strangers := {path.name for path in release.iterdir()} - expected:
        raise LeakError(f"{', '.join(sorted(strangers))}: this does not belong in a release")
    for path in release.rglob("*"):
        if path.name == "seed" or path.suffix == ".seed":
            name = path.relative_to(release)
            raise LeakError(f"{name}: only the instructor may have a course's seed")
    texts = {path: _text(path) for path in sorted(release.rglob("*")) if path.is_file()}
    for name in labs.names():
        _prove_secret(release, labs.read(name), texts)
    for name in labs.names():
        for row in _graded(release, name):
            if row["points"] or row["status"] != "not attempted":
                raise LeakError(
                    f"{name}, {row['exercise']}: an untouched lab got {row['points']} points "
                    f"({row['status']})"
                )


def _prove_secret(release: Path, lab: Lab, texts: dict[Path, frozenset[str]]) -> None:
    for exercise, lines in _secret_lines(lab).items():
        for path, text in texts.items():
            leaked = sorted(lines & text)
            if len(leaked) > (0 if path.stem == lab.name else IDIOMS):
                name = path.relative_to(release)
                raise LeakError(
                    f"{name} holds a part of the answer to {lab.name}, {exercise}: {leaked[0]!r}"
                )


def _text(path: Path) -> frozenset[str]:
    """The stripped lines of a file, or of a notebook's cells; empty if it is not text."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return frozenset()
    if path.suffix == ".ipynb":
        text = "\n".join(cell.source for cell in build.read(path).cells)
    return frozenset(line.strip().removeprefix("# ") for line in text.splitlines())


def _secret_lines(lab: Lab) -> dict[str, set[str]]:
    """{exercise: the lines of its answer and held-out checks that the lab does not show}."""
    cells = (holes.stub(cell.source) for cell in lab.visible.cells)
    shown = {line.strip() for text in cells for line in text.splitlines()}
    secret = {}
    for exercise in lab.exercises:
        answers = [match[2] for match in holes.ANSWER.finditer(exercise.hole.source)]
        held_out = [check.source for check in exercise.checks if "held-out" in check.tags]
        lines = {line.strip() for text in [*answers, *held_out] for line in text.splitlines()}
        secret[exercise.name] = {
            line for line in lines - shown if len(line) >= MIN_SECRET and not line.startswith("#")
        }
    return secret


def _graded(release: Path, name: str) -> list[dict[str, Any]]:
    """The rows of an untouched lab, graded by the release itself, as a student does it."""
    with tempfile.TemporaryDirectory() as out:
        environment = {**os.environ, "PYTHONPATH": str(release), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "grading", name[:2], "--out", out]
        grading = subprocess.run(
            command, cwd=release, env=environment, capture_output=True, text=True
        )
        if grading.returncode:
            reason = (grading.stderr.strip() or "?").splitlines()[-1]
            raise LeakError(f"{name} can't be graded in the release: {reason}")
        return json.loads((Path(out) / "results.json").read_text(encoding="utf-8"))


def _zip(folder: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                info = zipfile.ZipInfo(str(Path(NAME) / file.relative_to(folder)), DATE)
                info.external_attr = 0o644 << 16
                archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)
