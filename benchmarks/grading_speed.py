"""Seconds to grade 20 submissions of a lab, beside nbgrader's autograder on the same cells: make bench-grading

Both grade the same solved notebooks in this run, one after the other, twice in turn. nbgrader gets only the cells that we
run (setup, holes, drivers, checks), not the demos and figures that a student's notebook also holds, and the same Python for
its kernels; it lives in an environment of its own, which is made at the first call. Both are timed as whole commands.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from rich import print

from grading import build
from grading import lab as labs
from grading.lab import ROOT

NBGRADER = "nbgrader==0.9.6"
HOME = ROOT / "build" / "nbgrader"


def nbgrader_command():
    """The nbgrader of an environment of its own, made if it is not there."""
    command = HOME / "bin" / "nbgrader"
    if not command.exists():
        print(f"making an environment for {NBGRADER} in {HOME.relative_to(ROOT)}")
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        subprocess.run([HOME / "bin" / "pip", "install", "-q", NBGRADER], check=True)
    return command


def solved(lab):
    """The lab as a perfect student hands it in."""
    return build.lab_notebook(lab.filled(lab.solution))


def for_nbgrader(lab):
    """The cells that are graded, as nbgrader marks them up, with the answers between its own marks."""
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "course", "display_name": "course", "language": "python"}}
    )
    for i, cell in enumerate(lab.cells):
        if not cell.tags & {"setup", "hole", "driver", "check"} or "held-out" in cell.tags:
            continue
        is_check, is_hole = "check" in cell.tags, "hole" in cell.tags
        source = cell.source.replace("# BEGIN SOLUTION", "### BEGIN SOLUTION").replace(
            "# END SOLUTION", "### END SOLUTION"
        )
        marks = {
            "schema_version": 3,
            "grade": is_check,
            "solution": is_hole,
            "locked": not is_hole,
            "task": False,
            "grade_id": f"cell-{i}",
        }
        marks |= {"points": cell.points} if is_check else {}
        notebook.cells.append(nbformat.v4.new_code_cell(source, metadata={"nbgrader": marks}))
    return notebook


def nbgrader_course(lab, folder, students, command):
    """A course with its submissions in it; returns the environment and the command that grades them."""
    kernel = folder / "jupyter" / "kernels" / "course"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(
        json.dumps(
            {
                "display_name": "course",
                "language": "python",
                "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            }
        )
    )
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic by name
    environment = dict(
        os.environ, PATH=path, PYTHONPATH=str(ROOT), JUPYTER_PATH=str(folder / "jupyter"), COURSE_FOLDER=str(folder)
    )
    course = folder / "course"
    for place in [course / "source" / lab.name, *(course / "submitted" / student / lab.name for student in students)]:
        place.mkdir(parents=True)
        notebook = for_nbgrader(lab)
        if "submitted" in place.parts:
            for cell in notebook.cells:
                cell.source = "\n".join(line for line in cell.source.splitlines() if "### " not in line)
        nbformat.write(notebook, place / f"{lab.name}.ipynb")
    run = {"cwd": course, "env": environment}
    seconds([command, "generate_assignment", lab.name, "--create"], **run)
    return [command, "autograde", lab.name, "--force", "--log-level=WARN"], run


def seconds(arguments, **run):
    start = time.perf_counter()
    done = subprocess.run(arguments, capture_output=True, text=True, **run)
    if done.returncode:
        raise SystemExit(f"{arguments[0]} failed: {done.stderr[-2000:]}")
    return time.perf_counter() - start


def check_marks(course, lab, students):
    """nbgrader must have given full marks: else the two did not do the same."""
    import sqlite3

    with sqlite3.connect(course / "gradebook.db") as book:
        scores = [row[0] for row in book.execute("select auto_score from grade where auto_score is not null")]
    want = len(students) * sum(
        check.points for e in lab.exercises for check in e.checks if "held-out" not in check.tags
    )
    if sum(scores) != want:
        raise SystemExit(f"nbgrader gave {sum(scores)} of {want} points")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lab", nargs="?", default="01")
    parser.add_argument("--students", type=int, default=20)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    lab, students = labs.read(options.lab), [f"student{i:02}" for i in range(options.students)]
    command = nbgrader_command()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        for student in students:
            (scratch / "submissions" / student).mkdir(parents=True)
            nbformat.write(solved(lab), scratch / "submissions" / student / f"{lab.name}.ipynb")
        theirs, where = nbgrader_course(lab, scratch, students, command)
        ours = [sys.executable, "-m", "grading", scratch / "submissions", "--out", scratch / "results"]
        ours_s, theirs_s = [], []
        for run in range(options.runs):
            ours_s.append(seconds(ours, cwd=ROOT))
            theirs_s.append(seconds(theirs, **where))
            print(
                f"run {run + 1}: {lab.name}, {len(students)} submissions: {ours_s[-1]:.1f} s, nbgrader {theirs_s[-1]:.1f} s"
            )
        rows = json.loads((scratch / "results" / "results.json").read_text())
        assert all(row["points"] == row["max_points"] for row in rows)
        check_marks(where["cwd"], lab, students)
    ratio = statistics.median(b / a for a, b in zip(ours_s, theirs_s, strict=True))
    ours_each_s, theirs_each_s = min(ours_s) / len(students), min(theirs_s) / len(students)
    print(f"{ours_each_s:.2f} s a submission, nbgrader {theirs_each_s:.2f} s: {ratio:.1f} times its speed")


if __name__ == "__main__":
    main()
