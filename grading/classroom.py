"""Grading a class: in processes on all cores, or by the workers of a Dask scheduler."""

import ast
import atexit
import functools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, get_all_start_methods, get_context, parent_process
from multiprocessing.sharedctypes import Synchronized
from typing import TYPE_CHECKING, Self, TypeVar

from common.notebook import gc_control
from common.paths import ROOT
from grading.errors import CommandError, InputError
from grading.jail.choice import JAILS, JailError
from grading.jail.sandbox import NoJail
from grading.jail.usage import limit_memory
from grading.report import Graded, Result, Status
from grading.source import holes, labs, notebook
from grading.source.holes import Answer
from grading.source.labs import Cell, Lab
from grading.store import Job, Store, code
from grading.submissions import Submission

if TYPE_CHECKING:
    from pathlib import Path

    from grading.worker.fork_server import ForkServer

Item = TypeVar("Item")
Value = TypeVar("Value")

READ_S = 20
LARGE_BYTES = 2 << 20  # of a notebook: what Python makes of it may take a thousand times as much
READER_BYTES, GRADER_BYTES = 3 << 29, 3 << 30  # beyond what each has at its start: 2 and 4 GB
TOO_LARGE = "This notebook needs more memory to read than is allowed: please look at it."
FIRST_USE = {  # modules that are imported late, most with hundreds more, when these words are used
    "nogpu.ranks.remote": re.compile(r"\branks\b"),
    "numpy.random": re.compile(r"\bnp\.random\b"),
    "torch.fx.experimental.symbolic_shapes": re.compile(r"\b(autograd|backward|requires_grad)\b"),
    "torch._dynamo": re.compile(r"\bFlopCounterMode\(|\bTorchDispatchMode\b|\btorch\.optim\b"),
}
IN_WORKER = {"setup", "hole", "driver"}  # the tags of the cells that run in a worker
IN_GRADER = {"setup", "check"}  # the tags of the cells that run in the grader
UNPARSABLE = "Python can't parse the text of this notebook's cells: please look at it."
DIED = "The grading process itself died on this notebook: please look at it."
PROVE = (
    "import sys; from grading import proof; from grading.jail import choice; "
    "proof.prove(choice.choose(sys.argv[1]))"
)


class SchedulerError(CommandError):
    """A Dask scheduler can't be used."""


Read = tuple[dict[str, Answer], list[tuple[str, str]]]  # the answers, and the written ones
Outcome = list[Result] | str | None  # a sentence if the grader failed; None if its process died


def grade_class(
    handed_in: Sequence[Submission],
    kept: Store,
    seeds: Mapping[str, int],
    processes: int,
    jail: str,
    *,
    hidden: "Iterable[str | Path]" = (),
    scheduler: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    chosen: Callable[[Submission], bool] = lambda one: True,
) -> list[Graded]:
    """One Graded per submission, sorted. Equal answers, and those of earlier runs, are reused.

    seeds: {lab: the seed of its checks}.
    jail: its name. JailError unless a proof shows that it holds and hides the paths in `hidden`.
    scheduler: the address of a Dask scheduler whose workers grade (SchedulerError).
    chosen: what to grade now. Of the others, those that an earlier run graded are in the result.
    """
    names = {submission.lab for submission in handed_in}
    with _Graders(processes, names, jail, hidden) as graders:
        if not scheduler and (kept.fresh or kept.is_empty()):
            graders.begin()  # meanwhile the notebooks are read
        texts = dict(each(read, handed_in, processes, names))
        jobs = dict(_jobs(texts, seeds, jail, graders.modules))
        unread = {one: _unread(one, text) for one, text in texts.items() if one not in jobs}
        keys = _keys(jobs, unread, kept)
        before: dict[str, Outcome] = {key: kept.get(key) for key in keys.values()}
        known = {} if kept.fresh else {k: found for k, found in before.items() if found is not None}
        wanted = {keys[one]: job for one, job in jobs.items() if chosen(one)}
        key_of = {job: key for key, job in wanted.items() if key not in known}
        run = grade_on(scheduler, key_of, jail) if scheduler else graders.run(key_of)
        now = before | dict(_keep_each(run, key_of, kept, progress))
        now |= _keep_unread({keys[one]: unread[one] for one in filter(chosen, unread)}, kept)
    graded = [
        _graded(one, texts[one], (now if mine else before)[key], not mine or key in known)
        for one, key in keys.items()
        if (mine := chosen(one)) or before[key] is not None  # else it waits, like an equal new one
    ]
    return sorted(graded, key=lambda graded: graded.order)


def _jobs(
    texts: Mapping[Submission, Read | str | None],
    seeds: Mapping[str, int],
    jail: str,
    modules: tuple[str, ...],
) -> Iterator[tuple[Submission, Job]]:
    """(submission, its job) of those that could be read."""
    for one, text in texts.items():
        if isinstance(text, tuple):
            yield one, Job(one.lab, text[0], seeds[one.lab], jail, modules, for_students=True)


def read_earlier(handed_in: Sequence[Submission], processes: int) -> list[Graded]:
    """Submissions of earlier classes, which are read to be compared and not graded."""
    texts = each(read, handed_in, processes, {one.lab for one in handed_in})
    found = [Graded(one, lab(one.lab), [], *text) for one, text in texts if isinstance(text, tuple)]
    return sorted(found, key=lambda graded: graded.order)


def _unread(one: Submission, text: Read | str | None) -> list[Result]:
    """The results of a notebook that can't be read. text: the reason, or None."""
    return _all_alike(one, "error", text if isinstance(text, str) else UNPARSABLE)


def _keys(
    jobs: Mapping[Submission, Job], unread: Mapping[Submission, list[Result]], kept: Store
) -> dict[Submission, str]:
    """{submission: the key of its outcome in the store}."""
    keys = {one: kept.key(job) for one, job in jobs.items()}
    return keys | {one: kept.key_unread(one.lab, found) for one, found in unread.items()}


def _keep_unread(found: Mapping[str, list[Result]], kept: Store) -> Mapping[str, list[Result]]:
    """Keep the results of notebooks that can't be read: a later run must know that it had them."""
    for key, results in found.items():
        kept.put(key, results)
    return found


def _keep_each(
    run: Iterable[tuple[Job, Outcome]],
    key_of: Mapping[Job, str],
    kept: Store,
    progress: Callable[[int, int], None],
) -> Iterator[tuple[str, Outcome]]:
    """(key, outcome) of each job of a run, which is kept as soon as it is there."""
    progress(0, len(key_of))
    for done, (job, outcome) in enumerate(run, 1):
        if isinstance(outcome, list):
            kept.put(key_of[job], outcome)
        progress(done, len(key_of))
        yield key_of[job], outcome


def _graded(one: Submission, text: Read | str | None, outcome: Outcome, kept: bool) -> Graded:
    if isinstance(text, tuple):
        return Graded(one, lab(one.lab), _results(one, outcome), *text, kept=kept)
    return Graded(one, lab(one.lab), _results(one, outcome), kept=kept)


def counting(
    graded: Iterable[Graded], percent_off: Callable[[float], float] = lambda late_s: 0.0
) -> list[Graded]:
    """The attempts that count: of several, the one with most points; of equals, the earliest.

    percent_off: what so many seconds after the deadline cost: a late attempt may be worth less.
    """

    def worth(one: Graded) -> tuple[float, int]:
        percent = percent_off(one.submission.late_s or 0)
        return one.points * (1 - percent / 100), -one.submission.attempt

    groups: dict[tuple[str, str], list[Graded]] = {}
    for one in graded:
        if one.submission.counts:
            groups.setdefault((one.submission.student, one.submission.lab), []).append(one)
    return [max(group, key=worth) for group in groups.values()]


def grade_one(
    submission: Submission, seed: int = 0, jail: str = "none", *, for_students: bool = False
) -> Graded:
    """Grade one notebook in this process. for_students: see Job."""
    of = lab(submission.lab)
    try:
        answers = notebook.read_answers(of, submission.path)
    except (InputError, OSError) as problem:
        return Graded(submission, of, _all_alike(submission, "error", _reason(problem, submission)))
    except MemoryError:
        return Graded(submission, of, _all_alike(submission, "error", TOO_LARGE))
    modules_of_workers = modules([submission.lab], IN_WORKER)
    job = Job(submission.lab, answers, seed, jail, modules_of_workers, for_students)
    outcome = grade(job)
    return Graded(submission, of, _results(submission, outcome), answers)


def _reason(problem: InputError | OSError, submission: Submission) -> str:
    if isinstance(problem, InputError):
        return str(problem)
    return f"{submission.path.name} can't be read: {problem.strerror}"


def _results(submission: Submission, outcome: Outcome) -> list[Result]:
    if isinstance(outcome, list):
        return outcome
    return _all_alike(submission, "died", outcome or DIED, told=DIED)


def _all_alike(
    submission: Submission, status: Status, reason: str, told: str | None = None
) -> list[Result]:
    return [
        Result(exercise.label, 0, exercise.points, status, reason, told=told)
        for exercise in lab(submission.lab).exercises
    ]


def read(submission: Submission) -> Read | str:
    """The answers of a submission, or a sentence that says why it can't be read."""
    has_timer = hasattr(signal, "setitimer")  # Windows has none
    if has_timer:
        # The timer ends the process, because no exception stops Python's parser. It counts this
        # process's own time, so that a busy machine costs nobody marks.
        signal.setitimer(signal.ITIMER_PROF, READ_S)
    try:
        path, of = submission.path, lab(submission.lab)
        return notebook.read_answers(of, path), notebook.written_answers(of, path)
    except (InputError, OSError) as problem:
        return _reason(problem, submission)
    except MemoryError:
        return TOO_LARGE
    finally:
        if size_bytes(submission) > LARGE_BYTES:
            holes.forget()
        if has_timer:
            signal.setitimer(signal.ITIMER_PROF, 0)


def size_bytes(submission: Submission) -> int:
    """The size of a submission's file; 0 if there is none."""
    try:
        return submission.path.stat().st_size
    except OSError:
        return 0


def each(
    function: Callable[[Item], Value],
    items: Iterable[Item],
    processes: int,
    names: Iterable[str],
    begun: ProcessPoolExecutor | None = None,
) -> Iterator[tuple[Item, Value | None]]:
    """Yield (item, function(item)) as each is done, in other processes; None if the process died.

    names: the labs that the items belong to. begun: the processes to begin with.
    """
    left = list(items)
    while left:
        with begun or _pool(function, min(processes, len(left)), names) as pool:
            futures = {pool.submit(function, item): item for item in left}
            try:
                for future in as_completed(futures):
                    result = future.result()
                    left.remove(futures[future])
                    yield futures[future], result
                continue
            except BrokenProcessPool:
                pass
        begun = None
        # Any of the first items may have ended its process. Running each one alone shows which.
        for item in left[:processes]:
            left.remove(item)
            yield item, _alone(function, item, names)


def _alone(function: Callable[[Item], Value], item: Item, names: Iterable[str]) -> Value | None:
    with _pool(function, 1, names) as pool:
        pool.submit(os.getpid).result()  # raises if a process can't even start
        try:
            return pool.submit(function, item).result()
        except BrokenProcessPool:
            return None


def grade_on(scheduler: str, jobs: Iterable[Job], jail: str) -> Iterator[tuple[Job, Outcome]]:
    """Yield (job, outcome) as each is done by the workers of a Dask scheduler.

    scheduler: its address, tcp://host:8786. SchedulerError if it does not answer, or if it has no
    workers, or if their version of the course is not the one here.
    """
    # pyrefly: ignore[missing-import]: distributed is optional
    from distributed import Client

    # pyrefly: ignore[missing-import]: distributed is optional
    from distributed import as_completed as completed

    # pyrefly: ignore[missing-import]: distributed is optional
    from distributed.scheduler import KilledWorker

    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError) as problem:
        kind = type(problem).__name__
        raise SchedulerError(f"no Dask scheduler answers at {scheduler} ({kind})") from None
    with client:
        codes = set(client.run(code).values())
        if not codes:
            raise SchedulerError(
                f"the scheduler at {scheduler} has no workers: start some with "
                f"`dask worker {scheduler} --nthreads 1`"
            )
        if codes != {code()}:
            raise SchedulerError(
                f"the workers at {scheduler} have another version of the course than this "
                "machine: update them"
            )
        for problem in filter(None, client.run(_jail_problem, jail).values()):
            raise SchedulerError(problem)
        futures = {client.submit(grade, job, pure=False): job for job in jobs}
        for future in completed(futures):
            try:
                yield futures[future], future.result()
            except KilledWorker:  # the job ended its worker each time
                yield futures[future], None


class _Graders:
    """The processes that grade a class; none runs before it is needed.

    In one of them the jail is proved: this process has no PyTorch, and handles no signals.
    Meanwhile all of them start what their workers are forked from. names: of the labs.
    """

    def __init__(
        self, processes: int, names: Iterable[str], jail: str, hidden: "Iterable[str | Path]"
    ) -> None:
        self.processes, self.names, self.jail, self.hidden = processes, names, jail, hidden
        self.modules = modules(names, IN_WORKER)
        self.pool = _pool(grade, processes, names)
        self.trials: list[Future[None]] = []
        self.thread = threading.Thread(target=self._submit)
        self.has_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.has_begun:
            self.thread.join()
        self.pool.shutdown()

    def begin(self) -> None:
        """Go on with the proof while this process does something else."""
        if self.jail != NoJail.name and not self.has_begun:
            self.has_begun = True
            self.thread.start()  # to start a process takes until the imports for all are done

    def run(self, jobs: Collection[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Yield (job, outcome) as each is done. JailError unless the jail holds."""
        if jobs and self.jail != NoJail.name:
            self._end_proof()
        return each(grade, jobs, self.processes, self.names, self.pool)

    def _end_proof(self) -> None:
        self.begin()
        self.thread.join()
        if not self.trials:
            raise JailError(f"The sandbox {self.jail} could not be tried; nothing is graded.")
        try:
            self.trials[0].result()
        except BrokenProcessPool:
            raise JailError(
                f"The sandbox {self.jail} does not hold: the process that tried it was ended; "
                "nothing is graded."
            ) from None

    def _submit(self) -> None:
        self.trials.append(self.pool.submit(_prove, self.jail, self.hidden, self.modules))
        for _ in range(1, self.processes):
            self.pool.submit(_start_fork_server, self.jail, self.modules)


def _prove(jail: str, hidden: "Iterable[str | Path]", modules: tuple[str, ...]) -> None:
    from grading.proof import prove

    _start_fork_server(jail, modules)
    prove(JAILS[jail], hidden)


def _start_fork_server(jail: str, modules: tuple[str, ...]) -> None:
    fork_server(jail, modules)


def _jail_problem(jail: str) -> str:
    """Why the jail does not hold on this machine, or "". It is tried in a process with signals."""
    trial = subprocess.run(
        [sys.executable, "-c", PROVE, jail], cwd=ROOT, capture_output=True, text=True
    )
    return trial.stderr.strip().splitlines()[-1].partition(": ")[2] if trial.returncode else ""


def _pool(function: Callable, processes: int, names: Iterable[str]) -> ProcessPoolExecutor:
    """A pool of processes for a function. Grading processes are forked with all imports done."""
    names = sorted(names)
    forked = function is grade and "forkserver" in get_all_start_methods()
    context = get_context("forkserver" if forked else "spawn")
    if forked:
        imported = ["grading.preload", "grading.score", "jupytext", *modules(names, IN_GRADER)]
        forkserver.set_forkserver_preload(imported)
    return ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=_begin,
        initargs=(context.Value("i", 0), processes, [lab(name) for name in names]),
    )


def _begin(count: "Synchronized[int]", processes: int, known: Iterable[Lab]) -> None:
    """Start a grading process: it has little memory, is silent, stays on one core, and ends with
    its parent.

    count: how many processes have started so far. known: labs that it need not read.
    """
    import grading.preload  # noqa: F401  (its import has the effect)

    limit_memory(GRADER_BYTES if "torch" in sys.modules else READER_BYTES)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (open until this process ends)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        with count.get_lock():
            mine, count.value = count.value, count.value + 1
        if processes <= len(cores):  # a call to a worker takes 20 µs on one core, 50 across cores
            os.sched_setaffinity(0, {cores[mine % len(cores)]})
    _labs.update((one.name, one) for one in known)


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
    os._exit(1)


def grade(job: Job) -> list[Result] | str:
    """The results of one job, or a sentence if the grader itself failed."""
    import grading.preload  # noqa: F401  (its import has the effect)

    try:
        server = fork_server(job.jail, job.modules)
        with gc_control.not_collected():
            from grading import score  # meanwhile the fork server imports PyTorch, too

        for _ in range(2):
            lost = server.lost
            results = score.score(lab(job.lab), job.answers, server, job.seed)
            if job.for_students:
                results = score.told(lab(job.lab), job.answers, server, results)
            if server.lost == lost:
                break  # else again: a machine without memory must not cost the student marks
        return results
    except Exception as problem:  # one notebook never stops a class
        kind = type(problem).__name__
        return f"The grader itself failed on this notebook ({kind}: {problem}): please look at it."


_labs: dict[str, Lab] = {}


def lab(name: str) -> Lab:
    """The lab of this name, read once per process, or by the process that started this one."""
    if name not in _labs:
        _labs[name] = labs.read(name)
    return _labs[name]


@functools.cache
def fork_server(jail: str = "none", modules: tuple[str, ...] = ()) -> "ForkServer":
    """The one fork server for all the notebooks that this process grades."""
    from grading.worker.fork_server import ForkServer

    server = ForkServer(*modules, jail=JAILS[jail], bare=True)
    server.start()
    atexit.register(server.close)
    return server


def _only_shown(driver: Cell, of: Lab) -> bool:
    """Whether a driver's functions are called by the demonstrations alone, which nobody grades."""
    defined = re.findall(r"^def (\w+)", driver.source, re.MULTILINE)
    graded = [
        cell.source
        for cell in of.cells
        if cell is not driver and cell.tags & {"check", "driver", "hole"}
    ]
    called = re.compile(rf"\b({'|'.join(defined)})\b")
    return bool(defined) and not any(map(called.search, graded))


def modules(names: Iterable[str], tags: set[str]) -> tuple[str, ...]:
    """The modules that these labs' cells with these tags import, or make a library import.

    For `from a import b`, the result has a.b, even if it is not a module.
    """
    imported: set[str] = set()
    for of in map(lab, names):
        cells = [
            cell.source
            for cell in of.cells
            if cell.tags & tags and not ("driver" in cell.tags and _only_shown(cell, of))
        ]
        imported |= {module for module, words in FIRST_USE.items() if any(map(words.search, cells))}
        setup = "\n".join(cell.source for cell in of.cells if "setup" in cell.tags)
        for node in ast.walk(ast.parse(setup)):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return tuple(sorted(imported))
