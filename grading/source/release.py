"""What students get: the labs and what they need, with no solution, no held-out check, no history; and the proof of it.

python -m grading.source.release [--out FOLDER]    FOLDER/ml-systems-labs and FOLDER/ml-systems-labs.zip (build/release)
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

import jupytext
import nbformat

from common.files import replace
from common.paths import ROOT
from grading.source import build, holes, labs

NAME = "ml-systems-labs"
FILES = [
    "LICENSE",
    "README.png",
    "environment.yml",
    "pyproject.toml",
    "requirements.lock",
    ".gitignore",
]
SHOWN = ["benchmarks/simt_hardware.md"]  # what a lab reads and draws
FOLDERS = ["common", "grading"]
KNOWN = {
    *FILES,
    *FOLDERS,
    *(name.partition("/")[0] for name in SHOWN),
    "labs",
    "Makefile",
    "README.md",
}
INSTRUCTOR = {
    "build.py",
    "canvas.py",
    "gradebook.py",
    "gradescope.py",
    "mutants.py",
    "release.py",
}  # of grading/
TARGETS = ("help", "lab", "grade", "doctor")  # of the Makefile
SHORT = 20  # an answer's line of fewer characters may stand anywhere
IDIOMS = 1  # as many of an answer's longer lines may stand in any file but its own lab
HELD_OUT = 'raise AssertionError("A held-out check: your instructor runs it.")\n'
DATE = (1980, 1, 1, 0, 0, 0)  # of the zip's files, so that a release is the same twice


class Leak(Exception):
    """Something of the solutions is in the release; the text says what and where."""


def write(folder):
    """Builds the release in a folder, whole or not at all, proves it, and zips it; returns the path of the zip."""
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


def _fill(new) -> None:
    new.mkdir()
    for name in [*FILES, *SHOWN]:
        (new / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, new / name)
    for name in FOLDERS:
        left_out = shutil.ignore_patterns(
            "__pycache__", "*.pyc", *(INSTRUCTOR if name == "grading" else ())
        )
        shutil.copytree(ROOT / name, new / name, ignore=left_out)
    (new / "labs" / ".source").mkdir(parents=True)
    for name in labs.names():
        lab = labs.read(name)
        nbformat.write(build.lab_notebook(lab), new / "labs" / f"{name}.ipynb")
        replace(new / "labs" / ".source" / f"{name}.py", stripped(lab))
    replace(new / "Makefile", _makefile((ROOT / "Makefile").read_text(encoding="utf-8")))
    replace(new / "README.md", readme((ROOT / "README.md").read_text(encoding="utf-8")))


def stripped(lab):
    """The lab's source as the student's own grading needs it: stubs for answers, a sentence for a held-out check."""
    stubs = {exercise.hole: exercise.stub for exercise in lab.exercises}
    notebook = nbformat.v4.new_notebook()
    for cell in lab.cells:
        source = HELD_OUT if "held-out" in cell.tags else stubs.get(cell) or holes.stub(cell.source)
        new = (
            nbformat.v4.new_code_cell(source)
            if cell.kind == "code"
            else nbformat.v4.new_markdown_cell(source)
        )
        new.metadata |= {"tags": sorted(cell.tags)} if cell.tags else {}
        new.metadata |= (
            {"points": cell.points, "limit_s": cell.limit_s} if "check" in cell.tags else {}
        )
        notebook.cells.append(new)
    text = jupytext.writes(notebook, fmt="py:percent")
    return re.sub(r"\A# ---\n.*?\n# ---\n+", "", text, flags=re.DOTALL)  # jupytext's own header


def _makefile(text):
    """The Makefile with the students' targets alone."""
    parts = re.split(r"\n(?=[\w.-]+:)", text)
    kept = [part.rstrip() for part in parts[1:] if part.split(":")[0] in TARGETS]
    head = "\n".join(line for line in parts[0].splitlines() if "test" not in line.lower())
    return "\n\n".join([head.rstrip(), *kept, f".PHONY: {' '.join(TARGETS)}"]) + "\n"


def readme(text):
    """The README of an unpacked zip: without the sections on what is not in it and the links to solutions."""
    text = re.sub(
        r"\n## (?:Measured|For instructors|Layout)\n.*?(?=\n## )", "", text, flags=re.DOTALL
    )
    for old, new in {
        "](solutions/": "](labs/",
        f"git clone <address of this repository> {NAME}": f"unzip {NAME}.zip",
    }.items():
        text = text.replace(old, new)
    return "\n\n".join(
        part for part in text.split("\n\n") if "solutions/" not in part and "make labs" not in part
    )


# The proof


def prove(release) -> None:
    """Raises Leak unless an untouched release scores 0 and holds no line of an answer or of a held-out check."""
    strangers = {path.name for path in release.iterdir()} - KNOWN
    if strangers:
        raise Leak(f"{', '.join(sorted(strangers))}: nothing of that belongs into a release")
    if told := [
        path for path in release.rglob("*") if path.name == "seed" or path.suffix == ".seed"
    ]:
        raise Leak(
            f"{told[0].relative_to(release)}: a course's seed is nobody's but the instructor's"
        )
    texts = {path: _text(path) for path in sorted(release.rglob("*")) if path.is_file()}
    for name in labs.names():
        for exercise, lines in _secret_lines(labs.read(name)).items():
            for path, text in texts.items():
                if len(found := sorted(lines & text)) > (0 if path.stem == name else IDIOMS):
                    raise Leak(
                        f"{path.relative_to(release)} holds of the answer to {name}, {exercise}: {found[0]!r}"
                    )
    for name in labs.names():
        for row in _graded(release, name):
            if row["points"] or row["status"] != "not attempted":
                raise Leak(
                    f"{name}, {row['exercise']}: an untouched lab got {row['points']} points ({row['status']})"
                )


def _text(path):
    """A file's lines, stripped, as a set; a notebook's those of its cells."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return frozenset()
    if path.suffix == ".ipynb":
        text = "\n".join(cell.source for cell in nbformat.reads(text, as_version=4).cells)
    return frozenset(line.strip().removeprefix("# ") for line in text.splitlines())


def _secret_lines(lab):
    """{exercise: the lines that stand in its answer or held-out checks, and nowhere in what the lab shows}."""
    shown = {
        line.strip()
        for cell in lab.cells
        if "held-out" not in cell.tags
        for line in holes.stub(cell.source).splitlines()
    }
    found = {}
    for exercise in lab.exercises:
        answers = [match[2] for match in holes.ANSWER.finditer(exercise.hole.source)]
        held_out = [check.source for check in exercise.checks if "held-out" in check.tags]
        lines = {
            line.strip() for text in [*answers, *held_out] for line in text.splitlines()
        } - shown
        found[exercise.name] = {
            line for line in lines if len(line) >= SHORT and not line.startswith("#")
        }
    return found


def _graded(release, name):
    """The rows of an untouched lab, graded by the release itself, as a student does it."""
    with tempfile.TemporaryDirectory() as out:
        environment = {**os.environ, "PYTHONPATH": str(release), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "grading", name[:2], "--out", out]
        run = subprocess.run(command, cwd=release, env=environment, capture_output=True, text=True)
        if run.returncode:
            raise Leak(
                f"{name} can't be graded in the release: {(run.stderr.strip() or '?').splitlines()[-1]}"
            )
        return json.loads((Path(out) / "results.json").read_text(encoding="utf-8"))


def _zip(folder, path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                about = zipfile.ZipInfo(str(Path(NAME) / file.relative_to(folder)), DATE)
                about.external_attr = 0o644 << 16
                archive.writestr(about, file.read_bytes(), zipfile.ZIP_DEFLATED)


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m grading.source.release",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    options = parser.parse_args(arguments)
    try:
        path = write(options.out)
    except Leak as problem:
        print(f"release: not made: {problem}", file=sys.stderr)
        return 1
    except OSError as problem:
        print(f"release: {problem.filename} can't be written: {problem.strerror}", file=sys.stderr)
        return 2
    size_mb = path.stat().st_size / 1e6
    print(
        f"{path}: {size_mb:.1f} MB, {len(labs.names())} labs; untouched they score 0, and no answer is in it"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
