"""What grading costs: 20 submissions of a lab beside nbgrader's autograder, and a class of four labs: make bench-grading

    benchmarks/grading_speed.py [LAB]      seconds a submission after the warm start, and nbgrader's on the same cells
    benchmarks/grading_speed.py class      300 submissions of four labs: time, processors, memory

Both grade the same solved notebooks in this run, one after the other, twice in turn; no two are equal, so that none is graded
for another. nbgrader gets only the cells that we run (setup, holes, drivers, checks), not the demos and figures that a
student's notebook also holds, and the same Python for its kernels; it lives in an environment of its own.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import jupytext
import nbformat
import psutil
from rich import print

from common.paths import ROOT
from grading.source import build, labs

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


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds by the clock, seconds of processors, and the most memory, of all its processes."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def cost(arguments, **run):
    """The Cost of a command and of all that it starts, looked at four times a second."""
    start, cpu_s, peak_bytes = time.perf_counter(), 0.0, 0
    with (
        tempfile.TemporaryFile() as said,
        psutil.Popen(arguments, stdout=said, stderr=said, **run) as process,
    ):
        while process.poll() is None:
            times, pss = [], 0
            for one in [process, *_children(process)]:
                try:
                    times.append(
                        sum(one.cpu_times()[:4])
                    )  # its own and those of the children it has waited for
                    pss += one.memory_full_info().pss
                except psutil.Error:
                    pass
            cpu_s, peak_bytes = max(cpu_s, sum(times)), max(peak_bytes, pss)
            time.sleep(0.25)
        if process.returncode:
            said.seek(0)
            raise SystemExit(
                f"{arguments[0]} failed: {said.read()[-2000:].decode(errors='replace')}"
            )
    return Cost(time.perf_counter() - start, cpu_s, peak_bytes)


def _children(process):
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def after_warm_start_s(results, processes):
    """Seconds a submission from the first result to the last, by the times of the results' files."""
    times = sorted(path.stat().st_mtime for path in (results / "graded").glob("*.json"))
    return (times[-1] - times[0]) / max(1, len(times) - processes)


def hand_in(lab, answers, path) -> None:
    """The lab as a student hands it in. answers: {name: text}; no two students' are equal."""
    mark = f"\n# {path.parent.name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(
        build.lab_notebook(lab.filled({name: text + mark for name, text in answers.items()})), path
    )


def mixed(lab, choose):
    """Answers as they come: most right, some with a known mistake, some untouched. choose: a random.Random."""
    wrong = {}
    for cell in jupytext.read(ROOT / "tests" / "wrong" / f"{lab.name}.py", fmt="py:percent").cells:
        if cell.cell_type == "code":
            wrong.setdefault(cell.metadata["title"].split(":")[0], []).append(cell.source)
    answers = {}
    for exercise in lab.exercises:
        dice = choose.random()
        if dice < 0.75:
            answers[exercise.name] = lab.solution[exercise.name]
        elif dice < 0.95 and exercise.name in wrong:
            answers[exercise.name] = choose.choice(wrong[exercise.name])
    return answers


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
        os.environ,
        PATH=path,
        PYTHONPATH=str(ROOT),
        JUPYTER_PATH=str(folder / "jupyter"),
        COURSE_FOLDER=str(folder),
    )
    course = folder / "course"
    for place in [
        course / "source" / lab.name,
        *(course / "submitted" / student / lab.name for student in students),
    ]:
        place.mkdir(parents=True)
        notebook = for_nbgrader(lab)
        if "submitted" in place.parts:
            for cell in notebook.cells:
                cell.source = "\n".join(
                    line for line in cell.source.splitlines() if "### " not in line
                )
                if cell.metadata["nbgrader"]["solution"]:
                    cell.source += f"\n# {place.parent.name}"
        nbformat.write(notebook, place / f"{lab.name}.ipynb")
    run = {"cwd": course, "env": environment}
    cost([command, "generate_assignment", lab.name, "--create"], **run)
    return [command, "autograde", lab.name, "--force", "--log-level=WARN"], run


def check_marks(course, lab, students) -> None:
    """nbgrader must have given full marks: else the two did not do the same."""
    import sqlite3

    with sqlite3.connect(course / "gradebook.db") as book:
        scores = [
            row[0]
            for row in book.execute("select auto_score from grade where auto_score is not null")
        ]
    want = len(students) * sum(
        check.points for e in lab.exercises for check in e.checks if "held-out" not in check.tags
    )
    if sum(scores) != want:
        raise SystemExit(f"nbgrader gave {sum(scores)} of {want} points")


def beside_nbgrader(lab, count, runs) -> None:
    """Prints what a submission of one lab costs, and costs nbgrader, each run."""
    students = [f"student{i:02}" for i in range(count)]
    command, processes = nbgrader_command(), len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        for student in students:
            hand_in(lab, lab.solution, scratch / "submissions" / student / f"{lab.name}.ipynb")
        theirs, where = nbgrader_course(lab, scratch, students, command)
        for run in range(runs):
            results = scratch / f"results{run}"
            our_cost = cost(
                [sys.executable, "-m", "grading", scratch / "submissions", "--out", results],
                cwd=ROOT,
            )
            their_cost = cost(theirs, **where)
            ours_s, theirs_s = after_warm_start_s(results, processes), their_cost.wall_s / count
            print(
                f"run {run + 1}: {count} of {lab.name} on {processes} cores: {ours_s:.2f} s a submission after the warm start, "
                f"nbgrader {theirs_s:.2f} s, {theirs_s / ours_s:.1f} times; whole commands {our_cost.wall_s:.1f} s and "
                f"{their_cost.wall_s:.1f} s, processor seconds {our_cost.cpu_s:.1f} and {their_cost.cpu_s:.1f}, "
                f"peak memory {our_cost.peak_bytes / 1e9:.2f} GB and {their_cost.peak_bytes / 1e9:.2f} GB"
            )
            rows = json.loads((results / "results.json").read_text())
            assert all(row["points"] == row["max_points"] for row in rows)
        check_marks(where["cwd"], lab, students)


def a_class(names, count) -> None:
    """Prints what a class costs. count: submissions of all the labs together."""
    choose = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        for i in range(count):
            lab = labs.read(names[i % len(names)])
            hand_in(
                lab,
                mixed(lab, choose),
                scratch / "submissions" / f"student{i // len(names):03}" / f"{lab.name}.ipynb",
            )
        first = [
            sys.executable,
            "-m",
            "grading",
            scratch / "submissions",
            "--out",
            scratch / "results",
        ]
        for what in ("graded", "all kept from before"):
            took = cost(first, cwd=ROOT)
            print(
                f"{count} submissions of {', '.join(names)}, {what}: {took.wall_s / 60:.1f} min, "
                f"{took.cpu_s:.0f} processor seconds, peak memory {took.peak_bytes / 1e9:.2f} GB"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="01", help="a lab, or class")
    parser.add_argument("--labs", nargs="+", default=["01", "02", "07", "10"], help="of the class")
    parser.add_argument("--submissions", type=int, help="20 of a lab, 300 of a class")
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    if options.what == "class":
        a_class([labs.resolve(word) for word in options.labs], options.submissions or 300)
    else:
        beside_nbgrader(labs.read(options.what), options.submissions or 20, options.runs)


if __name__ == "__main__":
    main()
