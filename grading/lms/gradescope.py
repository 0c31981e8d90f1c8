"""Gradescope: make the zip file of an autograder, and grade in its container.

zip makes the file for the assignment of one lab. It holds the lab's solution.
grade runs in Gradescope's container, on /autograder/submission.
"""

import argparse
import json
import secrets
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from common.files import replace, whole
from common.paths import CODE, ROOT
from grading import classroom, proof, seeds
from grading.errors import InputError
from grading.jail import choice as jail
from grading.jail.usage import limit_memory
from grading.report import Graded, Result
from grading.source import labs
from grading.submissions import Submission, is_notebook, lab_of, shown

SETTINGS = "gradescope.json"  # in the zip: which lab, which seed
FOLDERS = (*CODE, "solutions")
LEFT_OUT = {".ipynb", ".pyc"}
DATE = (1980, 1, 1, 0, 0, 0)

# Gradescope runs it once, as root, when it builds the image: Ubuntu, whose Python may be too old.
SETUP = """\
#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
if command -v apt-get > /dev/null; then
    apt-get update
    apt-get install -y --no-install-recommends bubblewrap python3-venv
fi
export UV_PYTHON_INSTALL_DIR=/opt/python  # a sandboxed worker can't read root's own folder
python3 -m venv /opt/uv
/opt/uv/bin/pip install -q uv
/opt/uv/bin/uv venv -q --python 3.11 .venv
/opt/uv/bin/uv pip install -q --python .venv/bin/python --torch-backend cpu -r requirements.lock
"""

RUN = """\
#!/usr/bin/env bash
# Gradescope runs it for each submission, in the folder /autograder.
cd "$(dirname "$0")/source" && exec .venv/bin/python -m grading gradescope grade
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command `gradescope` accepts."""
    verbs = parser.add_subparsers(required=True, metavar="{zip,grade}")
    zipping = verbs.add_parser("zip", help="make the zip file for the assignment of one lab")
    add = zipping.add_argument
    add("lab", help="the lab, for example 01")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path("autograder.zip"),
        help="the file to write (default: autograder.zip)",
    )
    add(
        "--seed",
        type=int,
        help="the seed of the checks' random cases (default: one that only the zip file holds)",
    )
    add(
        "--seed-file",
        type=Path,
        metavar="FILE",
        help="the file with the course's secret seed, for the same cases as grading a class here",
    )
    add(
        "--unsafe",
        action="store_true",
        help="run the students' code without a sandbox; it can then read the solution",
    )
    zipping.set_defaults(act=_zip)
    grading = verbs.add_parser("grade", help="grade what was handed in; Gradescope runs it")
    grading.add_argument(
        "--home",
        type=Path,
        metavar="FOLDER",
        default=Path("/autograder"),
        help="the folder of the autograder (default: /autograder)",
    )
    grading.set_defaults(act=lambda options: grade(options.home))


def run(options: argparse.Namespace) -> int:
    """The command `gradescope`."""
    options.act(options)
    return 0


def _zip(options: argparse.Namespace) -> None:
    name = labs.resolve(options.lab)
    if not options.out.parent.is_dir():
        raise InputError(f"--out {options.out}: there is no folder {options.out.parent}")
    seed = options.seed
    if seed is None:
        secret = seeds.secret(options.seed_file) if options.seed_file else secrets.randbits(127)
        seed = seeds.of(secret, name)
    write_zip(name, options.out, seed, options.unsafe)
    size_mb = options.out.stat().st_size / 1e6
    print(f"{options.out}: {size_mb:.1f} MB, for lab {name}; it holds the solution")


def write_zip(name: str, path: Path, seed: int, unsafe: bool = False) -> None:
    """The zip file for one lab: set-up, the course's code, the lab's solved source, the seed."""
    settings = {"lab": name, "seed": seed, "unsafe": unsafe}
    texts = {"setup.sh": SETUP, "run_autograder": RUN, SETTINGS: json.dumps(settings) + "\n"}
    with whole(path) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, text in texts.items():
            info = zipfile.ZipInfo(inside, DATE)
            info.external_attr = (0o755 if inside != SETTINGS else 0o644) << 16
            archive.writestr(info, text, zipfile.ZIP_DEFLATED)
        for file in sorted(_files(name)):
            archive.write(file, file.relative_to(ROOT))


def _files(name: str) -> Iterator[Path]:
    yield ROOT / "requirements.lock"
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if folder == "solutions" and path.stem != name:
                continue
            if path.is_file() and path.suffix not in LEFT_OUT and "__pycache__" not in path.parts:
                yield path


def grade(home: Path) -> None:
    """Grade the submission and write results/results.json, whatever was handed in."""
    settings = json.loads((home / "source" / SETTINGS).read_text(encoding="utf-8"))
    try:
        path = _submitted(home / "submission", settings["lab"])
    except InputError as problem:
        outcome = {"score": 0, "output": str(problem), "tests": []}
    else:
        chosen = jail.choose("none" if settings["unsafe"] else None)
        private = [home / "results", home / "submission", home / "source" / SETTINGS]
        proof.prove(chosen, [path for path in private if path.exists()])
        submission = Submission("student", settings["lab"], path)
        limit_memory(classroom.GRADER_BYTES)
        seed, name = settings["seed"], chosen.name
        outcome = results(classroom.grade_one(submission, seed, name, for_students=True))
    (home / "results").mkdir(exist_ok=True)
    replace(home / "results" / "results.json", json.dumps(outcome, indent=1) + "\n")


def _submitted(folder: Path, name: str) -> Path:
    """The notebook that was handed in; InputError if there is none, or more than one."""
    notebooks = sorted(
        path
        for path in folder.rglob("*")
        if is_notebook(path) and ".ipynb_checkpoints" not in path.parts and not path.is_symlink()
    )
    named = [path for path in notebooks if lab_of(path.name) == name]
    if len(notebooks) == 1 or named:
        return min(named or notebooks, key=lambda path: len(path.name))
    there = ", ".join(path.name for path in notebooks[:5]) or "no notebook"
    raise InputError(f"Hand in {name}.ipynb: there is {there}.")


def results(one: Graded) -> dict[str, Any]:
    """A Graded in Gradescope's form. What comes from the student's work is text, never HTML."""
    file = shown(one.submission.path.name)  # of several notebooks
    return {
        "score": one.points,
        "output": f"Lab {one.lab.name}: {file}, graded {datetime.now():%Y-%m-%d %H:%M}",
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [_test(result) for result in one.results],
    }


def _test(result: Result) -> dict[str, Any]:
    passed = result.status == "passed"
    number, _, name = result.exercise.partition(" ")
    return {
        "number": number,
        "name": name,
        "score": result.points,
        "max_score": result.max_points,
        "status": "passed" if passed else "failed",
        "output": "" if passed else f"{result.status}: {result.to_student}",
        "output_format": "text",
        "name_format": "text",
        "visibility": "visible",
    }
