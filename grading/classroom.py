"""A class graded: in processes on all cores, or by the workers of a Dask scheduler."""

import ast
import atexit
import functools
import gc
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import forkserver, get_all_start_methods, get_context, parent_process

from common.paths import ROOT
from grading import report
from grading.jail.choice import JAILS, JailError
from grading.source import labs, notebook
from grading.submissions import Submission

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before PyTorch is imported: the cores are for several notebooks at once

READ_S = 20
FIRST_USE = {  # modules, with hundreds more, that are imported when what these words name is first used
    "numpy.random": re.compile(r"\bnp\.random\b"),
    "torch.fx.experimental.symbolic_shapes": re.compile(r"\b(autograd|backward|requires_grad)\b"),
    "torch._dynamo": re.compile(r"\bFlopCounterMode\(|\bTorchDispatchMode\b"),
}
IN_WORKER, IN_GRADER = (
    {"setup", "hole", "driver"},
    {"setup", "check"},
)  # the tags of the cells that run there
UNPARSABLE = "Python gave up on the text of this notebook's cells: please look at it."
DIED = "The grading process itself died on this notebook: please look at it."


class NoWorkers(ValueError):
    """A Dask scheduler can't be used; the text says why."""


@dataclass(frozen=True)
class Graded:
    """A submission with its results, one an exercise. answers: None where the notebook could not be read.
    written: [(question, text)]. kept: whether an earlier run graded it."""

    submission: Submission
    lab: labs.Lab
    results: list
    answers: dict | None = None
    written: list = ()
    kept: bool = False

    @property
    def points(self):
        return sum(result.points for result in self.results)

    @property
    def rows(self):
        """One dict an exercise, with the fields of results.json."""
        one = self.submission
        return report.rows(one.student, one.lab, self.results, one.attempt, one.late_s)


@dataclass(frozen=True, eq=False)
class Job:
    """What a grading process needs: no path, so that it may be on another machine.

    jail: its name. modules: that the warm process imports for all the jobs of this run.
    """

    lab: str
    answers: dict
    seed: int = 0
    jail: str = "none"
    modules: tuple = ()


def grade_class(
    handed_in,
    kept,
    seeds,
    processes,
    jail,
    *,
    hidden=(),
    scheduler=None,
    progress=lambda done, of: None,
):
    """[Graded], one a submission. What an earlier run graded, or equal answers did in this one, is not graded again.

    handed_in: [Submission]. kept: a store.Store. seeds: {lab: of its checks' random cases}. jail: its name; it is proved before
    anything is graded, also that what lies at the paths hidden is so (JailError). scheduler: a Dask scheduler's address,
    instead of processes here (NoWorkers).
    """
    names = {submission.lab for submission in handed_in}
    texts = dict(each(read, handed_in, processes, names))
    warm, alike, graded = modules(names, IN_WORKER), {}, []
    for submission, text in texts.items():
        if isinstance(text, tuple):
            job = Job(submission.lab, text[0], seeds[submission.lab], jail, warm)
            alike.setdefault(kept.key(job), (job, []))[1].append(submission)
        else:
            graded.append(
                Graded(
                    submission,
                    lab(submission.lab),
                    _all_alike(submission, "error", text or UNPARSABLE),
                )
            )
    results = {key: kept.get(key) for key in alike}
    left = {job: key for key, (job, _) in alike.items() if results[key] is None}
    progress(0, len(left))
    if scheduler:
        run = grade_on(scheduler, left, jail)
    else:
        if left and jail != "none":
            _prove_apart(jail, hidden, names)
        run = each(grade, left, processes, names)
    for done, (job, found) in enumerate(run, 1):
        results[left[job]] = found
        if isinstance(found, list):
            kept.put(left[job], found)
        progress(done, len(left))
    for key, (job, group) in alike.items():
        for submission in group:
            found = results[key] or DIED
            found = _all_alike(submission, "died", found) if isinstance(found, str) else found
            graded.append(
                Graded(submission, lab(job.lab), found, *texts[submission], kept=job not in left)
            )
    return sorted(
        graded, key=lambda one: (one.submission.student, one.submission.lab, one.submission.attempt)
    )


def counting(graded):
    """Of these, those that count: of several attempts that may, the one with the most points, of equals the earliest."""
    groups = {}
    for one in graded:
        if one.submission.counts:
            groups.setdefault((one.submission.student, one.submission.lab), []).append(one)
    return [
        max(group, key=lambda one: (one.points, -one.submission.attempt))
        for group in groups.values()
    ]


def grade_one(submission, seed=0, jail="none"):
    """A Graded, of a notebook graded in this process."""
    try:
        answers = notebook.read_answers(lab(submission.lab), submission.path)
    except (ValueError, OSError) as problem:
        return Graded(
            submission,
            lab(submission.lab),
            _all_alike(submission, "error", _reason(problem, submission)),
        )
    results = grade(Job(submission.lab, answers, seed, jail, modules([submission.lab], IN_WORKER)))
    results = _all_alike(submission, "died", results) if isinstance(results, str) else results
    return Graded(submission, lab(submission.lab), results, answers)


def _reason(problem, submission):
    return (
        str(problem)
        if isinstance(problem, ValueError)
        else f"{submission.path.name} can't be read: {problem.strerror}"
    )


def _all_alike(submission, status, reason):
    exercises = lab(submission.lab).exercises
    return [report.Result(f"{e.number} {e.name}", 0, e.points, status, reason) for e in exercises]


def cores():
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def read(submission):
    """({exercise: Answer}, written answers) of a submission, or a sentence that says why there is none."""
    if hasattr(
        signal, "setitimer"
    ):  # it ends the process: what Python's own parser chokes on, no exception stops
        signal.setitimer(
            signal.ITIMER_PROF, READ_S
        )  # of its own time: another program's load is nobody's fault
    try:
        path, of = submission.path, lab(submission.lab)
        return notebook.read_answers(of, path), notebook.written_answers(of, path)
    except (ValueError, OSError) as problem:
        return _reason(problem, submission)
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0)


def each(function, items, processes, names):
    """Yields (item, function(item)) as each is done, in processes of their own; (item, None) for an item whose process died.

    names: of the labs that the items belong to.
    """
    left = list(items)
    while left:
        with _pool(function, min(processes, len(left)), names) as pool:
            futures = {pool.submit(function, item): item for item in left}
            try:
                for future in as_completed(futures):
                    result = future.result()
                    left.remove(futures[future])
                    yield futures[future], result
                continue
            except BrokenProcessPool:
                pass
        for item in left[
            :processes
        ]:  # those that may have been in work go alone, so that the culprit is known
            left.remove(item)
            yield item, _alone(function, item, names)


def _alone(function, item, names):
    with _pool(function, 1, names) as pool:
        pool.submit(
            os.getpid
        ).result()  # a process that can't even start is no student's fault, and raises here
        try:
            return pool.submit(function, item).result()
        except BrokenProcessPool:
            return None


def grade_on(scheduler, jobs, jail):
    """Yields (job, results) as each is done by the workers of a Dask scheduler; None for one that ends its worker each time.

    scheduler: its address, tcp://host:8786. NoWorkers where it does not answer, has no workers, or other code than here.
    """
    from distributed import Client
    from distributed import as_completed as completed
    from distributed.scheduler import KilledWorker

    from grading import store

    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError) as problem:
        raise NoWorkers(
            f"no Dask scheduler answers at {scheduler} ({type(problem).__name__})"
        ) from None
    with client:
        codes = set(client.run(store.code).values())
        if codes != {store.code()}:
            raise NoWorkers(
                f"the workers at {scheduler} have another version of the course than this machine: update them"
                if codes
                else f"the scheduler at {scheduler} has no workers: start some with `dask worker {scheduler} --nthreads 1`"
            )
        for told in client.run(_proved, jail).values():
            if told:
                raise NoWorkers(told)
        futures = {client.submit(grade, job, pure=False): job for job in jobs}
        for future in completed(futures):
            try:
                yield futures[future], future.result()
            except KilledWorker:
                yield futures[future], None


def _prove_apart(jail, hidden, names) -> None:
    """Proves the jail in a process like those that will grade: this one needs neither PyTorch nor the signals."""
    with _pool(_prove, 1, names) as pool:
        try:
            pool.submit(_prove, jail, hidden).result()
        except BrokenProcessPool:
            raise JailError(
                f"the jail {jail} does not hold: the process that tried it was ended; nothing is graded"
            ) from None


def _prove(jail, hidden) -> None:
    from grading.proof import (
        prove,
    )  # and with it PyTorch, which the process of a class does without

    prove(JAILS[jail], hidden)


def _pool(function, processes, names):
    """Processes for a function: to grade, forked from one that has imported what grading takes, and nothing else."""
    forked = function in (grade, _prove) and "forkserver" in get_all_start_methods()
    context = get_context("forkserver" if forked else "spawn")
    if forked:
        _prepare(names)
    return ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=_begin,
        initargs=(context.Value("i", 0), processes, sorted(names)),
    )


def _prepare(names) -> None:
    """Starts the process that the grading ones are forked from."""
    if "forkserver" in get_all_start_methods():
        forkserver.set_forkserver_preload(["grading.score", "jupytext", *modules(names, IN_GRADER)])
        forkserver.ensure_running()


def _proved(jail):
    """What is wrong with the jail on this machine, in a sentence; "" if it holds. In a process of its own: it needs signals."""
    command = "import sys; from grading import proof; from grading.jail import choice; proof.prove(choice.choose(sys.argv[1]))"
    tried = subprocess.run(
        [sys.executable, "-c", command, jail], cwd=ROOT, capture_output=True, text=True
    )
    return tried.stderr.strip().splitlines()[-1].partition(": ")[2] if tried.returncode else ""


def _begin(count, processes, names) -> None:
    """A grading process: it ends with the class's, keeps to a core with its workers, and is quiet."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (the checks' own warnings are not the instructor's)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        with count.get_lock():
            mine, count.value = count.value, count.value + 1
        if processes <= len(cores):  # a call and its answer then take 20 µs, across cores 50
            os.sched_setaffinity(0, {cores[mine % len(cores)]})
    for name in names:
        lab(name)


def _end_with_parent() -> None:
    parent_process().join()  # however it ends
    os._exit(1)


def grade(job):
    """The results of one job, or a sentence where the grader itself failed."""
    from grading import score

    try:
        warm = fork_server(job.jail, job.modules)
        for _ in range(
            2
        ):  # again where the warm process came to harm: a machine short of memory is no student's fault
            lost = warm.lost
            results = score.score(lab(job.lab), job.answers, warm, job.seed)
            if warm.lost == lost:
                break
        return results
    except Exception as problem:  # one notebook never stops a class
        return f"The grader itself failed on this notebook ({type(problem).__name__}: {problem}): please look at it."


@functools.cache
def lab(name):
    """The lab of this name, read once a process."""
    return labs.read(name)


@functools.cache
def fork_server(jail="none", modules=()):
    """One warm process for all the notebooks that this process grades."""
    from grading.worker.client import ForkServer

    warm = ForkServer(*modules, jail=JAILS[jail], bare=True)
    atexit.register(warm.close)
    gc.freeze()  # what is imported by now lives for ever: no collection needs to look at it
    return warm


def modules(names, tags):
    """What these labs' cells of these tags import, or make PyTorch import: once for all the processes that are forked.

    Where a cell says `from a import b`, a.b is among them; it may be no module.
    """
    found = set()
    for name in names:
        cells = [cell.source for cell in lab(name).cells if cell.tags & tags]
        found |= {module for module, words in FIRST_USE.items() if any(map(words.search, cells))}
        for node in ast.walk(
            ast.parse("\n".join(cell.source for cell in lab(name).cells if "setup" in cell.tags))
        ):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return tuple(sorted(found))
