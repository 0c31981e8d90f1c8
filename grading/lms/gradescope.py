"""Gradescope: the zip that its autograder is made of, and what runs in it.

python -m grading.lms.gradescope zip 01 --out autograder.zip [--seed N]   for the assignment of lab 01
python -m grading.lms.gradescope grade                                    there: /autograder/submission to /autograder/results
"""

import argparse
import contextlib
import json
import secrets
import sys
import zipfile
from datetime import datetime
from pathlib import Path

from common.files import replace, whole
from common.paths import ROOT
from grading import classroom, proof, seeds, submissions
from grading.jail import choice as jail
from grading.source import labs

SETTINGS = "gradescope.json"  # in the zip: which lab, which seed
CODE = ("common", "grading", "solutions")
LEFT_OUT = {".ipynb", ".pyc"}
PASSED = {True: "passed", False: "failed"}

# Gradescope runs it once, as root, when the image is built: Ubuntu with its own Python, which may be too old.
SETUP = """\
#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
if command -v apt-get > /dev/null; then
    apt-get update
    apt-get install -y --no-install-recommends bubblewrap python3-venv
fi
export UV_PYTHON_INSTALL_DIR=/opt/python  # not root's own folder, which a jailed worker can't read
python3 -m venv /opt/uv
/opt/uv/bin/pip install -q uv
/opt/uv/bin/uv venv -q --python 3.11 .venv
/opt/uv/bin/uv pip install -q --python .venv/bin/python --torch-backend cpu -r requirements.lock
"""

RUN = """\
#!/usr/bin/env bash
# Gradescope runs it for each submission, in the folder /autograder.
cd "$(dirname "$0")/source" && exec .venv/bin/python -m grading.lms.gradescope grade
"""


def write_zip(name, path, seed, unsafe=False) -> None:
    """The zip for one lab: set-up, the course's code, the lab's source, the seed. It holds the solution: it is no student's."""
    settings = {"lab": name, "seed": seed, "unsafe": unsafe}
    files = {"setup.sh": SETUP, "run_autograder": RUN, SETTINGS: json.dumps(settings) + "\n"}
    with whole(path) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, text in files.items():
            about = zipfile.ZipInfo(inside, (1980, 1, 1, 0, 0, 0))
            about.external_attr = (0o755 if inside != SETTINGS else 0o644) << 16
            archive.writestr(about, text, zipfile.ZIP_DEFLATED)
        for file in sorted(_files(name)):
            archive.write(file, file.relative_to(ROOT))


def _files(name):
    yield ROOT / "requirements.lock"
    for folder in CODE:
        for path in (ROOT / folder).rglob("*"):
            ours = folder != "solutions" or path.stem == name
            if (
                ours
                and path.is_file()
                and path.suffix not in LEFT_OUT
                and "__pycache__" not in path.parts
            ):
                yield path


def grade(home) -> None:
    """Grades the submission under home (/autograder) and writes results/results.json, whatever was handed in."""
    settings = json.loads((home / "source" / SETTINGS).read_text(encoding="utf-8"))
    name, (path, problem) = settings["lab"], _submitted(home / "submission", settings["lab"])
    if problem:
        outcome = {"score": 0, "output": problem, "tests": []}
    else:
        chosen = jail.choose("none" if settings["unsafe"] else None)
        hidden = [
            path
            for path in (home / "results", home / "submission", home / "source" / SETTINGS)
            if path.exists()
        ]
        proof.prove(chosen, hidden)
        one = classroom.grade_one(
            submissions.Submission("student", name, path), settings["seed"], chosen.name
        )
        outcome = results(one)
    (home / "results").mkdir(exist_ok=True)
    replace(home / "results" / "results.json", json.dumps(outcome, indent=1) + "\n")


def _submitted(folder, name):
    """(path, "") of the notebook that was handed in, or (None, why there is none)."""
    found = sorted(
        path
        for path in folder.rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts and not path.is_symlink()
    )
    named = []
    for path in found:
        with contextlib.suppress(ValueError):
            named += [path] if labs.resolve(path) == name else []
    if len(found) == 1 or named:
        return min(named or found, key=lambda path: len(path.name)), ""
    told = ", ".join(path.name for path in found[:5]) or "no notebook"
    return None, f"Hand in {name}.ipynb: there is {told}."


def results(one):
    """A Graded in Gradescope's form: all that comes of the student's work is text, never HTML."""
    tests = [
        {
            "number": result.exercise.partition(" ")[0],
            "name": result.exercise.partition(" ")[2],
            "score": result.points,
            "max_score": result.max_points,
            "status": PASSED[result.status == "passed"],
            "output": "" if result.status == "passed" else f"{result.status}: {result.message}",
            "output_format": "text",
            "name_format": "text",
            "visibility": "visible",
        }
        for result in one.results
    ]
    return {
        "score": one.points,
        "output": f"Lab {one.lab.name}, graded {datetime.now():%Y-%m-%d %H:%M}",
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def _seed(name, options):
    if options.seed is not None:
        return options.seed
    return seeds.of(
        seeds.secret(options.seed_file) if options.seed_file else secrets.randbits(127), name
    )


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m grading.lms.gradescope",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    zipping = verbs.add_parser("zip", help="make the zip for one lab")
    zipping.add_argument("lab")
    zipping.add_argument("--out", type=Path, default=Path("autograder.zip"))
    zipping.add_argument(
        "--seed", type=int, help="of the checks' random cases (one that only the zip has)"
    )
    zipping.add_argument(
        "--seed-file",
        type=Path,
        metavar="FILE",
        help="as for a class: the same cases there and here",
    )
    zipping.add_argument(
        "--unsafe",
        action="store_true",
        help="no jail but Gradescope's container, which holds the solution",
    )
    verbs.add_parser("grade", help="grade what was handed in").add_argument(
        "--home", type=Path, default=Path("/autograder")
    )
    options = parser.parse_args(arguments)
    try:
        if options.verb == "zip":
            name = labs.resolve(options.lab)
            write_zip(name, options.out, _seed(name, options), options.unsafe)
            print(
                f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB, for lab {name}; it holds the solution"
            )
        else:
            grade(options.home)
    except (ValueError, jail.JailError) as problem:
        print(f"grading: {problem}", file=sys.stderr)
        return 2
    except OSError as problem:
        print(f"grading: {problem.filename}: {problem.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
