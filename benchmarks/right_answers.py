"""Which known right answers teach the gate nothing new: what each adds is measured.

    benchmarks/right_answers.py measure [LAB ...]    runs each answer's checks, about a second each
    benchmarks/right_answers.py choose [LAB ...]     the table: what stays, what goes, what is lost
    benchmarks/right_answers.py prune [LAB ...]      the same, and right.py keeps what stays

`measure` records per answer, and for the solution, what answer_traces lists, in build/. An
answer's features are the arcs (from line to line) of checks, common/ and grading/; the kinds of
values that its functions return, and of changed arguments; a kernel's operations and a rank's
collectives; and each count that a check names, if it is the largest or smallest of all answers.
Arcs of what all checks share (simulators, readers of texts) and operations count once per lab.

`choose` keeps what a check once refused (once_refused.json), then the cheapest answers that cover
all features of the exercise, then answers in a style unlike all that are kept, up to STYLES.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from benchmarks import answer_choice, answer_traces
from benchmarks.answer_choice import Choice, union
from benchmarks.answer_features import AGAIN, SOLUTION, Known, features, own, problem_of, shared
from common.paths import ROOT, compared_with
from grading import classroom, score
from grading.score import check_seed, worker_cells
from grading.source import holes, labs
from grading.source.holes import Answer
from grading.source.labs import Lab
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.session import Session
from tests import known_answers
from tests.in_one_process import by_seed

HOME = ROOT / "build" / "right_answers"
ONCE_REFUSED = Path(__file__).with_name("once_refused.json")  # {lab: [titles]}
SEEDS = range(3)
MOST_S = 0.3  # processor seconds of an answer after which no further seed is tried
SLOWER = 20  # times as long as without coverage, at most

# Measure


def server() -> ForkServer:
    """Its workers have imported what labs, checks and the recording need."""
    modules = classroom.modules(labs.names(), classroom.IN_WORKER)
    ours = "tests.in_one_process", "benchmarks.answer_traces", "triton.experimental.gluon"
    return ForkServer(*modules, *ours, *compared_with())


def traced(lab: Lab, text: str, exercise: str, fork_server: ForkServer) -> dict[str, Any]:
    """What answer_traces.record gives for this answer, or {"problem": why there is nothing}."""
    answers = {name: Answer(each) for name, each in lab.solution.items()}
    checks = lab.exercise(exercise).checks
    above = replace(lab, cells=lab.cells[: lab.cells.index(checks[-1])])
    cells = worker_cells(above, answers | {exercise: Answer(text)})
    first, last = answer_traces.CELLS
    session = Session(fork_server, [("setup of traces", first), *cells, ("record", last)])
    try:
        if problem := session.ready_problem(exercise):
            return {"problem": repr(problem)}
        session.allow(SLOWER * len(SEEDS) * sum(check.limit_s for check in checks))
        rounds = [(check.source, [check_seed(check, s) for s in SEEDS]) for check in checks]
        return session.call("__record__", (rounds, MOST_S))
    except (Exception, WorkerEnded) as problem:
        return {"problem": repr(problem)}
    finally:
        session.close()


def measure(lab: Lab, fork_server: ForkServer) -> None:
    """Writes what all answers of a lab do to HOME."""
    found: dict[str, dict[str, Any]] = {}
    for exercise in lab.exercises:
        solved = holes.solved(exercise.hole.source)
        texts = {SOLUTION: solved, AGAIN: solved} | {
            each.title: each.text(solved)
            for each in known_answers.read(lab.name, "right")
            if each.exercise == exercise.name
        }
        found[exercise.name] = {}
        for title, text in texts.items():
            trace = traced(lab, text, exercise.name, fork_server)
            if problem := problem_of(trace):
                print(f"{lab.name} {title}: {problem}"[:300])
            found[exercise.name][title] = trace
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / f"{lab.name}.json").write_text(json.dumps(found))


def time_gate(lab: Lab, fork_server: ForkServer) -> None:
    """Writes the processor seconds that the gate takes for each right answer to HOME."""
    seconds: dict[str, float] = {}
    solution = {name: Answer(each) for name, each in lab.solution.items()}
    for each in known_answers.read(lab.name, "right"):
        text = each.text(holes.solved(lab.exercise(each.exercise).hole.source))
        answers = solution | {each.exercise: Answer(text)}
        began_s = _processor_s(fork_server)
        score.score(lab, answers, fork_server, only=[each.exercise])
        by_seed(lab, answers, fork_server, each.exercise, SEEDS)
        seconds[each.title] = _processor_s(fork_server) - began_s
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / f"{lab.name}_seconds.json").write_text(json.dumps(seconds))


def _processor_s(fork_server: ForkServer) -> float:
    """Of this process, of the fork server and of its workers that have ended."""
    fork_server.start()
    assert fork_server.process
    return time.process_time() + sum(psutil.Process(fork_server.process.pid).cpu_times()[:4])


# Choose


def choose(lab: Lab) -> list[Choice]:
    """What stays of each exercise. Reads what `measure` wrote."""
    found = _read(HOME / f"{lab.name}.json")
    seconds = _read(HOME / f"{lab.name}_seconds.json")
    refused = set(_read(ONCE_REFUSED).get(lab.name, ()))
    answers = list(zip(known_answers.read(lab.name, "right"), _sizes(lab), strict=True))
    if unknown := refused - {each.title for each, _ in answers}:
        raise SystemExit(f"{ONCE_REFUSED.name} names no answer of {lab.name}: {sorted(unknown)}")
    choices = []
    for exercise in lab.exercises:
        solved = holes.solved(exercise.hole.source)
        known = [Known(SOLUTION, solved), Known(AGAIN, solved)]
        known += [
            Known(each.title, each.text(solved), lines, seconds.get(each.title, 0.0))
            for each, lines in answers
            if each.exercise == exercise.name
        ]
        checks = [check.source for check in exercise.checks]
        by_title = features(found[exercise.name], known, checks)
        for each in known:
            each.features = by_title[each.title]
        choices.append(Choice(exercise.name, known[0], known[2:]))
    answer_choice.choose(choices, refused)
    return choices


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


# Report


def _sizes(lab: Lab) -> list[int]:
    """The lines of each answer's cell in right.py."""
    _, *parts = known_answers.TITLE.split(_path(lab).read_text(encoding="utf-8"))
    return [1 + body.count("\n") for body in parts[1::2]]


def _path(lab: Lab) -> Path:
    return known_answers.path_of(lab.name, "right")


def row(lab: Lab, choices: Sequence[Choice]) -> str:
    """Answers, lines, processor seconds and arcs of a lab, before and after; what is lost."""
    cells = [lab.name]
    sides = [[k for c in choices for k in c.known], [k for c in choices for k in c.kept]]
    for some in sides:
        seconds = sum(each.seconds for each in some)
        cells += [f"{len(some)}", f"{sum(each.lines for each in some):,}", f"{seconds:.0f}"]
    solutions = [choice.solution for choice in choices]
    before, after = (union([*solutions, *some]) for some in sides)
    for found in (before, after):
        cells.append(f"{sum(each.startswith('arc ') for each in found):,}")
    lost = Counter(each.split()[0] for each in shared(before - after))
    for choice in choices:
        kept = union([choice.solution, *choice.kept])
        lost.update(each.split()[0] for each in own(union(choice.known)) - kept)
    return f"| {' | '.join([*cells, str(dict(lost) or 'nothing')])} |"


def prune(lab: Lab, choices: Sequence[Choice]) -> None:
    """Rewrites the lab's right.py: what stays, in its order."""
    kept = {each.title for choice in choices for each in choice.kept}
    head, *parts = known_answers.TITLE.split(_path(lab).read_text(encoding="utf-8"))
    pairs = zip(parts[::2], parts[1::2], strict=True)
    cells = [f"# %% {title}\n{body}" for title, body in pairs if title in kept]
    _path(lab).write_text(head + "".join(cells).rstrip("\n") + "\n", encoding="utf-8")


HEAD = """| lab | answers | lines | seconds | kept | lines | seconds | arcs | arcs kept | lost |
| --- | --: | --: | --: | --: | --: | --: | --: | --: | --- |"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["measure", "time", "choose", "prune"])
    parser.add_argument("labs", nargs="*", default=labs.names())
    parser.add_argument("--why", action="store_true", help="say of each answer why it stays")
    options = parser.parse_args()
    chosen_labs = [labs.read(word) for word in options.labs]
    if options.what in ("measure", "time"):
        with closing(server()) as fork_server:
            for lab in chosen_labs:
                (measure if options.what == "measure" else time_gate)(lab, fork_server)
        return
    print(HEAD)
    for lab in chosen_labs:
        choices = choose(lab)
        print(row(lab, choices))
        for choice in choices if options.why else ():
            print(f"  {choice.exercise}: {len(choice.kept)} of {len(choice.known)}")
            for each in choice.kept:
                print(f"    {each.title.partition(': ')[2]}: {choice.why[each.title]}")
        if options.what == "prune":
            prune(lab, choices)


if __name__ == "__main__":
    main()
