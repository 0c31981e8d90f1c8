"""python -m grading 01                      grades your own labs/01_*.ipynb
python -m grading FOLDER --out RESULTS    grades FOLDER/<student>/NN_noun.ipynb, all cores
"""
import argparse
import atexit
import functools
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from grading import lab as labs
from grading import report
from grading.lab import ROOT

console = Console(highlight=False)


class BadInput(Exception):
    """What the caller gave can't be used; the text says what was given and what is allowed."""


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m grading", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", help="a lab (01, strides), a notebook, or a folder of submissions")
    parser.add_argument("--out", type=Path, metavar="RESULTS", help="the folder for results.json and results.csv")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
                        help="processes that grade (all cores)")
    parser.add_argument("--seed", type=int, default=0, help="of the checks' random cases")
    options = parser.parse_args(arguments)
    try:
        if options.jobs < 1 or options.seed < 0:
            raise BadInput(f"--jobs {options.jobs} --seed {options.seed}: --jobs takes 1 or more, --seed 0 or more")
        if Path(options.what).is_dir():
            grade_class(Path(options.what), options.out, options.jobs, options.seed)
        else:
            grade_own(options.what, options.out, options.seed)
    except BadInput as problem:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"grading: {problem}", markup=False)
        return 2
    return 0


def grade_own(word, out, seed):
    """Grades one notebook and shows an exercise a line."""
    path = Path(word)
    try:
        name = labs.resolve(word)
    except ValueError as problem:
        kind = "no such folder or notebook, and " if os.sep in word or path.suffix else ""
        raise BadInput(f"{kind}{problem}; or give a folder of submissions") from None
    if path.suffix != ".ipynb":
        path = ROOT / "labs" / f"{name}.ipynb"
    if not path.is_file():
        raise BadInput(f"there is no notebook {os.path.relpath(path)}: make labs builds the labs")
    rows, results = grade_notebook(name, path, "me", seed)
    console.print(report.lab_table(name, results))
    if out:
        write(rows, out)


def grade_class(folder, out, jobs, seed):
    """Grades every submission of a folder and writes the results."""
    if out is None:
        raise BadInput(f"{folder} is a folder of submissions: say where the results go (--out RESULTS)")
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file: give a folder, which is made if it is not there")
    todo, strays = submissions(folder)
    if not todo:
        raise BadInput(f"{folder} holds no submission: they are {folder}/<student>/NN_noun.ipynb, with NN_noun one of "
                       f"{', '.join(labs.names())}")
    rows = []
    with Progress(console=console) as progress:
        task = progress.add_task("grading", total=len(todo))
        for done in in_processes(todo, jobs, seed):
            rows += done
            progress.advance(task)
    rows.sort(key=lambda row: (row["student"], row["lab"]))
    write(rows, out)
    console.print(report.class_table(sorted(rows, key=lambda row: (row["lab"], [int(n) for n in row["exercise"].split()[0].split(".")]))))
    for stray in strays:
        console.print(f"left out: {stray} (no lab has that name)", markup=False, soft_wrap=True)
    students = len({row["student"] for row in rows})
    console.print(f"{len(todo)} submissions of {students} students: {out / 'results.json'}, {out / 'results.csv'}", soft_wrap=True)


def submissions(folder):
    """[(student, lab, path)] of a folder, and the notebooks that are of no lab. Of several copies the plain name counts."""
    found, strays = {}, []
    try:
        students = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        for student in students:
            for path in sorted(student.glob("*.ipynb"), key=lambda path: len(path.stem)):
                try:
                    found.setdefault((student.name, labs.resolve(path)), path)
                except ValueError:
                    strays.append(path)
    except PermissionError as problem:
        raise BadInput(f"no permission to read {problem.filename}") from None
    return [(student, name, path) for (student, name), path in found.items()], strays


def write(rows, out):
    try:
        report.write(rows, out)
    except OSError as problem:
        raise BadInput(f"the results can't be written to {out}: {problem.strerror}") from None


def in_processes(todo, jobs, seed):
    """Yields the rows of each submission. A grading process that dies takes down one submission, not the class."""
    left = {job: 0 for job in todo}  # the times that a process died while it was in work
    while left:
        with ProcessPoolExecutor(min(jobs, len(left)), mp_context=get_context("spawn"), initializer=_quiet) as pool:
            futures = {pool.submit(grade_submission, job, seed): job for job in left}
            for future in as_completed(futures):
                job = futures[future]
                try:
                    yield future.result()
                    del left[job]
                except BrokenProcessPool:
                    break
        if left:  # broken: those that may have been in work go alone, so that the culprit is known
            suspects = list(left)[:jobs]
            for job in suspects:
                try:
                    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_quiet) as alone:
                        yield alone.submit(grade_submission, job, seed).result()
                except BrokenProcessPool:
                    yield _all_alike(job[1], job[0], "died", "The grading process itself died on this notebook: please look at it.")[0]
                del left[job]


def _quiet():
    """The checks' own warnings are not the instructor's."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def grade_submission(job, seed):
    """The rows of one submission."""
    student, name, path = job
    return grade_notebook(name, path, student, seed)[0]


def grade_notebook(name, path, student, seed):
    """(rows, results) of one notebook; a file that can't be read gives each exercise its reason."""
    from grading import score
    lab = _lab(name)
    try:
        answers = score.read_answers(lab, path)
    except (ValueError, OSError) as problem:
        reason = str(problem) if isinstance(problem, ValueError) else f"{path.name} can't be read: {problem.strerror}"
        return _all_alike(name, student, "error", reason)
    results = score.score(lab, answers, _nursery(), seed)
    return report.rows(student, name, results), results


def _all_alike(name, student, status, reason):
    from grading.score import Result
    results = [Result(f"{e.number} {e.name}", 0, e.points, status, reason) for e in _lab(name).exercises]
    return report.rows(student, name, results), results


@functools.cache
def _lab(name):
    return labs.read(name)


@functools.cache
def _nursery():
    """One warm process for all the notebooks that this process grades."""
    from grading.run import Nursery
    nursery = Nursery()
    atexit.register(nursery.close)
    return nursery


if __name__ == "__main__":
    sys.exit(main())
