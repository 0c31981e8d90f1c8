"""Which known answers are refused only by a limit of memory or of time?

    python benchmarks/limits_found.py [LAB ...]        the answers that meet a limit, graded again
    python benchmarks/limits_found.py --all [LAB ...]  all answers, graded both ways

A verdict must be the same on every machine, so something counted has to refuse an answer: a limit
of memory does not hold where there is a GPU, and a limit of time is met sooner where a machine is
slow. The answers are the known wrong ones, those of tests/security/test_cheats.py, and the hostile
and sly ones of tests/labs/test_labs.py. Without limits means: --gigabytes of memory per worker,
twenty times the time of a check, and at most a minute for an answer. Printed are the answers whose
points or status differ, and those that took their minute: they may never end.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common.hardware import device

device.interpret_without_gpu()  # before anything imports Triton

from grading import classroom, score
from grading.jail.confinement import Unconfined
from grading.jail.sandbox import NoJail
from grading.source import holes, labs
from grading.source.labs import Exercise, Lab
from grading.worker import session
from grading.worker.fork_server import ForkServer
from tests import known_answers
from tests.labs.test_labs import HOSTILE, SLY, hostile_text, sly_text, takes_arguments, with_answer
from tests.security.test_cheats import CHEATS

TIMES = 20  # the time of a check, without limits
MOST_S = 60.0  # of an answer, without limits
OF_A_LIMIT = ("allocate", "MemoryError", "Cannot allocate", "too long and was", "needed more than")

Verdict = tuple[float, str, str]  # points, status, message


@dataclass(frozen=True)
class Tried:
    """One answer and the two verdicts on it. without: None if it met no limit."""

    lab: str
    exercise: str
    title: str
    within: Verdict
    without: Verdict | None = None

    @property
    def differs(self) -> bool:
        """Messages may quote other numbers: those of a race, or of what an answer draws."""
        return self.without is not None and self.without[:2] != self.within[:2]


class Generous(NoJail):
    """No sandbox, and as much memory as is given."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes

    def confinement(self) -> contextlib.AbstractContextManager[Unconfined]:
        return contextlib.nullcontext(Unconfined(has_gpu=False, memory_bytes=self.memory_bytes))


def answers(lab: Lab) -> Iterator[tuple[str, str, str]]:
    """(exercise, title, the text of its cell) of all wrong answers to a lab that we know."""
    for wrong in known_answers.read(lab.name):
        solved = holes.solved(lab.exercise(wrong.exercise).hole.source)
        yield wrong.exercise, wrong.title, wrong.text(solved)
    for title, (of, exercise, text, _) in CHEATS.items():
        if labs.resolve(of) == lab.name:
            yield exercise, f"cheat: {title}", text
    for exercise in lab.exercises:
        yield from _hostile(exercise)


def _hostile(exercise: Exercise) -> Iterator[tuple[str, str, str]]:
    """What every check must refuse, as tests/labs/test_labs.py writes it."""
    name = exercise.name
    for title, value in HOSTILE.items():
        yield name, f"{name}: {title}", hostile_text(exercise, value)
    if takes_arguments(exercise):
        for title, (body, _) in SLY.items():
            yield name, f"{name}: {title}", sly_text(exercise, body)


def verdict(
    lab: Lab, exercise: str, text: str, fork_server: ForkServer, seconds: float = 0.0
) -> Verdict:
    """(points, status, message) of an answer. seconds: of a check in place of its own limit."""
    if seconds:
        cells = tuple(
            replace(cell, limit_s=min(TIMES * cell.limit_s, seconds)) for cell in lab.cells
        )
        lab = replace(lab, cells=cells)
    given = with_answer(lab, exercise, text)
    (result,) = score.score(lab, given, fork_server, only=[exercise])
    return result.points, result.status, result.message


def met_a_limit(found: Verdict) -> bool:
    """Whether a verdict may be that of a limit."""
    _, status, message = found
    return status in ("timeout", "died") or any(words in message for words in OF_A_LIMIT)


@contextlib.contextmanager
def more_time() -> Iterator[None]:
    """Meanwhile cells have more time, too, and a notebook has what an answer may take."""
    names = ("CELL_S", "CELLS_S", "NOTEBOOK_S")
    before = [getattr(session, name) for name in names]
    for name in names:
        setattr(session, name, MOST_S)
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(session, name, value)


def of_lab(work: tuple[str, bool, int]) -> list[Tried]:
    """The answers of one lab that met a limit. work: (lab, whether all are tried both ways,
    bytes)."""
    name, every, memory_bytes = work
    lab, found = labs.read(name), []
    modules = [*classroom.modules([name], classroom.IN_WORKER), "triton.experimental.gluon"]
    with (
        contextlib.closing(ForkServer(*modules)) as usual,
        contextlib.closing(ForkServer(*modules, jail=Generous(memory_bytes))) as generous,
    ):
        for exercise, title, text in answers(lab):
            tried = Tried(name, exercise, title, verdict(lab, exercise, text, usual))
            if every or met_a_limit(tried.within):
                with more_time():
                    without = verdict(lab, exercise, text, generous, MOST_S)
                tried = replace(tried, without=without)
            if tried.without and (tried.differs or met_a_limit(tried.within)):
                found.append(tried)
    return found


def show(one: Tried) -> str:
    """An answer, and what it got under the usual limits and without."""
    lines = [f"{one.lab} · {one.title}"]
    for way, got in (("within the limits", one.within), ("without", one.without or one.within)):
        points, status, message = got
        lines.append(f"    {way}: {points} points, {status}: {' '.join(message.split())[:300]}")
    return "\n".join(lines)


def report(found: Sequence[Tried]) -> None:
    """Prints the answers by what a limit did to them."""
    late = [one for one in found if one.without and one.without[1] == "timeout"]
    passed = [one for one in found if one.without and one.without[1] == "passed"]
    groups = {
        "Refused by a limit alone": passed,
        "Took their minute, and may never end": late,
        "Another verdict without limits": [
            one for one in found if one.differs and one not in late and one not in passed
        ],
        "Met a limit, with the same verdict without": [
            one for one in found if not one.differs and one not in late and one not in passed
        ],
    }
    for title, group in groups.items():
        print(f"\n## {title}: {len(group)}")
        for one in group:
            print(show(one))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("labs", nargs="*", help="labs (default: all)")
    parser.add_argument("--all", action="store_true", help="grade each answer both ways")
    parser.add_argument(
        "--gigabytes", type=int, default=16, help="of memory per worker (default: 16)"
    )
    parser.add_argument("--processes", type=int, default=1, help="labs at once (default: 1)")
    parser.add_argument("--output", type=Path, help="a file for what was found, as JSON")
    options = parser.parse_args()
    names = [labs.resolve(word) for word in options.labs] or labs.names()
    work = [(name, options.all, options.gigabytes << 30) for name in names]
    found: list[Tried] = []
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for name, of_one in zip(names, pool.imap(of_lab, work), strict=True):
            print(f"{name}: {len(of_one)} met a limit", flush=True)
            found += of_one
            if options.output:
                options.output.write_text(json.dumps([asdict(one) for one in found], indent=1))
    report(found)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # for the processes of the pool
    main()
