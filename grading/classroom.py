"""Notebooks of a class: found, read, graded in all processes."""

import atexit
import functools
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from grading import lab as labs
from grading import report

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported: the cores are for several notebooks at once


def submissions(folder):
    """[(student, lab, path)] of a folder, and the notebooks that are of no lab. Of several copies the plain name counts."""
    found, strays = {}, []
    for student in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        for path in sorted(
            (path for path in student.iterdir() if path.suffix == ".ipynb"), key=lambda path: len(path.stem)
        ):
            try:
                found.setdefault((student.name, labs.resolve(path)), path)
            except ValueError:
                strays.append(path)
    return [(student, name, path) for (student, name), path in found.items()], strays


def grade_all(todo, jobs, seed):
    """Yields the rows of each submission as it is done. A grading process that dies takes down one submission, not the class.

    todo: [(student, lab, path)], as submissions gives them. jobs: processes. seed: of the checks' random cases.
    """
    left = list(todo)
    while left:
        with _pool(min(jobs, len(left))) as pool:
            futures = {pool.submit(grade_submission, job, seed): job for job in left}
            try:
                for future in as_completed(futures):
                    yield future.result()
                    left.remove(futures[future])
                continue
            except BrokenProcessPool:
                pass
        for job in left[:jobs]:  # those that may have been in work go alone, so that the culprit is known
            yield _grade_alone(job, seed)
            left.remove(job)


def _grade_alone(job, seed):
    with _pool(1) as pool:
        pool.submit(_ready).result()  # a process that can't even start is no student's fault, and raises here
        try:
            return pool.submit(grade_submission, job, seed).result()
        except BrokenProcessPool:
            student, name, _ = job
            return _all_alike(
                name, student, "died", "The grading process itself died on this notebook: please look at it."
            )[0]


def _ready():
    nursery().fork().end()


def _pool(processes):
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_quiet)


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

    try:
        answers = score.read_answers(lab(name), path)
    except (ValueError, OSError) as problem:
        reason = str(problem) if isinstance(problem, ValueError) else f"{path.name} can't be read: {problem.strerror}"
        return _all_alike(name, student, "error", reason)
    results = score.score(lab(name), answers, nursery(), seed)
    return report.rows(student, name, results), results


def _all_alike(name, student, status, reason):
    from grading.score import Result

    results = [Result(f"{e.number} {e.name}", 0, e.points, status, reason) for e in lab(name).exercises]
    return report.rows(student, name, results), results


@functools.cache
def lab(name):
    """The lab of this name, read once a process."""
    return labs.read(name)


@functools.cache
def nursery():
    """One warm process for all the notebooks that this process grades."""
    from grading.run import Nursery

    warm = Nursery()
    atexit.register(warm.close)
    return warm
