"""What grading costs, compared with nbgrader's autograder: make bench-grading

    benchmarks/grading_speed.py [LAB]    20 submissions of one lab, graded here and by nbgrader
    benchmarks/grading_speed.py class    300 submissions of four labs: time, processors, memory

Both grade the same solved notebooks in the same run, one after the other, twice. No two notebooks
are equal: otherwise one would be graded for both. nbgrader gets only the cells that we run (setup,
holes, drivers, checks), without the demos and figures of a student's notebook. Its kernels use the
same Python; nbgrader itself has its own environment.
"""

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import nbformat
import psutil
from nbformat import NotebookNode
from rich import print

from common.hardware import device
from common.paths import ROOT
from grading import report
from grading.source import build, labs
from grading.source.labs import Lab
from tests import known_answers

NBGRADER = "nbgrader==0.9.6"
HOME = ROOT / "build" / "nbgrader"
GRADED = {"setup", "hole", "driver", "check"}  # the tags of the cells that are executed
GRADE = [sys.executable, "-m", "grading"]
RIGHT, WRONG = 0.75, 0.2  # the shares of a class's answers; the rest are not attempted


def nbgrader_command() -> Path:
    """nbgrader in its own environment, which is made if it does not exist."""
    command = HOME / "bin" / "nbgrader"
    if not command.exists():
        print(f"making an environment for {NBGRADER} in {HOME.relative_to(ROOT)}")
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        subprocess.run([HOME / "bin" / "pip", "install", "-q", NBGRADER], check=True)
    return command


@dataclass(frozen=True)
class Cost:
    """What a command and its child processes took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def cost(arguments: Sequence[str | Path], **options: Any) -> Cost:
    """Run a command, and look at its processes four times per second.

    options: as for subprocess.Popen.
    """
    start, cpu_s, peak_bytes = time.perf_counter(), 0.0, 0
    with (
        tempfile.TemporaryFile() as output,
        psutil.Popen(list(map(str, arguments)), stdout=output, stderr=output, **options) as process,
    ):
        while process.poll() is None:
            now_s, now_bytes = _usage(process)
            cpu_s, peak_bytes = max(cpu_s, now_s), max(peak_bytes, now_bytes)
            time.sleep(0.25)
        if process.returncode:
            output.seek(0)
            text = output.read()[-2000:].decode(errors="replace")
            raise SystemExit(f"{arguments[0]} failed: {text}")
    return Cost(time.perf_counter() - start, cpu_s, peak_bytes)


def _usage(process: psutil.Popen) -> tuple[float, int]:
    """(seconds of processors, bytes of memory) of a process and its children, up to now."""
    try:
        processes = [process, *process.children(recursive=True)]
    except psutil.Error:
        processes = [process]
    cpu_s, total_bytes = 0.0, 0
    for one in processes:
        try:
            cpu_s += sum(one.cpu_times()[:4])  # its own, and those of children that have ended
            total_bytes += one.memory_full_info().pss
        except psutil.Error:  # it has just ended
            continue
    return cpu_s, total_bytes


def after_warm_start_s(results: Path, processes: int) -> float:
    """Seconds per submission from the first result to the last, by the times of their files."""
    times = sorted(path.stat().st_mtime for path in (results / "graded").glob("*.json"))
    return (times[-1] - times[0]) / max(1, len(times) - processes)


def hand_in(lab: Lab, answers: Mapping[str, str], path: Path) -> None:
    """Write the lab as a student hands it in. No two students' answers are equal."""
    mark = f"\n# {path.parent.name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    filled = lab.filled({name: text + mark for name, text in answers.items()})
    nbformat.write(build.lab_notebook(filled), path)


def mixed(lab: Lab, choose: random.Random) -> dict[str, str]:
    """A class's answers: most are right, some have a known mistake, some are missing."""
    wrong = known_wrong(lab)
    answers = {}
    for exercise in lab.exercises:
        dice = choose.random()
        if dice < RIGHT:
            answers[exercise.name] = lab.solution[exercise.name]
        elif dice < RIGHT + WRONG and exercise.name in wrong:
            answers[exercise.name] = choose.choice(wrong[exercise.name])
    return answers


def known_wrong(lab: Lab) -> dict[str, list[str]]:
    """{exercise: its known wrong answers}."""
    wrong: dict[str, list[str]] = {}
    for answer in known_answers.read(lab.name):
        solved = lab.solution[answer.exercise]
        wrong.setdefault(answer.exercise, []).append(answer.text(solved))
    return wrong


def for_nbgrader(lab: Lab) -> NotebookNode:
    """The cells that are graded, with nbgrader's metadata and its marks around the answers."""
    kernel = {"name": "course", "display_name": "course", "language": "python"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    for i, cell in enumerate(lab.cells):
        if not cell.tags & GRADED or "held-out" in cell.tags:
            continue
        is_check, is_hole = "check" in cell.tags, "hole" in cell.tags
        source = cell.source
        for mark in ("BEGIN SOLUTION", "END SOLUTION"):
            source = source.replace(f"# {mark}", f"### {mark}")
        metadata = {
            "schema_version": 3,
            "grade": is_check,
            "solution": is_hole,
            "locked": not is_hole,
            "task": False,
            "grade_id": f"cell-{i}",
        }
        metadata |= {"points": cell.points} if is_check else {}
        notebook.cells.append(nbformat.v4.new_code_cell(source, metadata={"nbgrader": metadata}))
    return notebook


@dataclass(frozen=True)
class Course:
    """A course of nbgrader with one assignment."""

    folder: Path
    environment: Mapping[str, str]
    command: Sequence[str | Path]  # it grades all submissions

    def grade(self) -> Cost:
        return cost(self.command, cwd=self.folder, env=self.environment)


def nbgrader_course(lab: Lab, folder: Path, students: Iterable[str], command: Path) -> Course:
    """A course with the lab as its assignment, and the students' submissions."""
    kernel = folder / "jupyter" / "kernels" / "course"
    kernel.mkdir(parents=True)
    launch = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification = {"display_name": "course", "language": "python", "argv": launch}
    (kernel / "kernel.json").write_text(json.dumps(specification))
    environment = dict(
        os.environ,
        PATH=f"{command.parent}{os.pathsep}{os.environ['PATH']}",  # it calls alembic by its name
        PYTHONPATH=str(ROOT),
        JUPYTER_PATH=str(folder / "jupyter"),
        COURSE_FOLDER=str(folder),
    )
    course = folder / "course"
    _write(for_nbgrader(lab), course / "source" / lab.name)
    for student in students:
        notebook = for_nbgrader(lab)
        for cell in notebook.cells:
            lines = [line for line in cell.source.splitlines() if "### " not in line]
            is_hole = cell.metadata["nbgrader"]["solution"]
            cell.source = "\n".join([*lines, f"# {student}"] if is_hole else lines)
        _write(notebook, course / "submitted" / student / lab.name)
    cost([command, "generate_assignment", lab.name, "--create"], cwd=course, env=environment)
    grade = [command, "autograde", lab.name, "--force", "--log-level=WARN"]
    return Course(course, environment, grade)


def _write(notebook: NotebookNode, folder: Path) -> None:
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{folder.name}.ipynb")


def check_marks(course: Path, lab: Lab, submissions: int) -> None:
    """nbgrader must have given full marks: otherwise the two graders did different work."""
    with sqlite3.connect(course / "gradebook.db") as book:
        query = "select auto_score from grade where auto_score is not null"
        points = sum(row[0] for row in book.execute(query))
    checks = [check for exercise in lab.exercises for check in exercise.checks]
    most = sum(check.points for check in checks if "held-out" not in check.tags)
    if points != submissions * most:
        raise SystemExit(f"nbgrader gave {points} of {submissions * most} points")


def beside_nbgrader(lab: Lab, count: int, runs: int) -> None:
    """Print what a submission of one lab costs here and in nbgrader, for each run."""
    students = [f"student{i:02}" for i in range(count)]
    processes = device.cores()
    with tempfile.TemporaryDirectory() as scratch:
        submissions = Path(scratch) / "submissions"
        for student in students:
            hand_in(lab, lab.solution, submissions / student / f"{lab.name}.ipynb")
        course = nbgrader_course(lab, Path(scratch), students, nbgrader_command())
        for run in range(runs):
            results = Path(scratch) / f"results{run}"
            ours = cost([*GRADE, submissions, "--out", results], cwd=ROOT)
            theirs = course.grade()
            ours_s, theirs_s = after_warm_start_s(results, processes), theirs.wall_s / count
            print(
                f"run {run + 1}: {count} of {lab.name} on {processes} cores: {ours_s:.2f} s per "
                f"submission after the warm start, nbgrader {theirs_s:.2f} s, "
                f"{theirs_s / ours_s:.1f} times; whole commands {ours.wall_s:.1f} s and "
                f"{theirs.wall_s:.1f} s, processor seconds {ours.cpu_s:.1f} and "
                f"{theirs.cpu_s:.1f}, peak memory {ours.peak_bytes / 1e9:.2f} GB and "
                f"{theirs.peak_bytes / 1e9:.2f} GB"
            )
            assert all(row["points"] == row["max_points"] for row in report.read(results))
        check_marks(course.folder, lab, count)


def a_class(names: Sequence[str], count: int) -> None:
    """Print what a class costs. count: the submissions of all labs together."""
    choose = random.Random(0)  # noqa: S311  (not a secret)
    with tempfile.TemporaryDirectory() as scratch:
        submissions = Path(scratch) / "submissions"
        for i in range(count):
            lab = labs.read(names[i % len(names)])
            student = f"student{i // len(names):03}"
            hand_in(lab, mixed(lab, choose), submissions / student / f"{lab.name}.ipynb")
        for what in ("graded", "all kept from before"):
            took = cost([*GRADE, submissions, "--out", Path(scratch) / "results"], cwd=ROOT)
            print(
                f"{count} submissions of {', '.join(names)}, {what}: {took.wall_s / 60:.1f} min, "
                f"{took.cpu_s:.0f} processor seconds, peak memory {took.peak_bytes / 1e9:.2f} GB"
            )


def main() -> None:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("what", nargs="?", default="01", help="a lab, or `class`")
    parser.add_argument(
        "--labs",
        nargs="+",
        default=["01", "02", "07", "10"],
        help="the labs of the class (default: 01 02 07 10)",
    )
    parser.add_argument(
        "--submissions", type=int, help="how many (default: 20 of a lab, 300 of a class)"
    )
    parser.add_argument("--runs", type=int, default=2, help="how many runs (default: 2)")
    options = parser.parse_args()
    if options.what == "class":
        a_class([labs.resolve(word) for word in options.labs], options.submissions or 300)
    else:
        beside_nbgrader(labs.read(options.what), options.submissions or 20, options.runs)


if __name__ == "__main__":
    main()
