"""A lab's checks in the process that holds the answers, as in a notebook.

The gate compares their verdict with the grader's.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch

from common.checks import Pictures, Remarks, WhenWrong
from common.hardware import device
from grading.score import check_seed, worker_cells
from grading.source.holes import Answer
from grading.source.labs import Lab
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.session import Session
from nogpu import simt
from nogpu.kernels import linecache_text

device.interpret_without_gpu()  # before a lab's optimizer imports Triton

CELL = """
def __problems__(*arguments):
    from tests.in_one_process import problems
    return problems(globals(), *arguments)
"""
REMARK = "Remark: "
Checks = list[tuple[str, list[list[int]]]]  # (text, what seeds its generator, round by round)


def score_together(
    lab: Lab, answers: Mapping[str, Answer], fork_server: ForkServer, only: Collection[str]
) -> dict[str, str | None]:
    """{exercise: what its check raised, as text, or None}, on the cases of the grader's seed 0."""
    return {
        exercise.name: by_seed(lab, answers, fork_server, exercise.name, [0])[0]
        for exercise in lab.exercises
        if exercise.name in only
    }


def by_seed(
    lab: Lab,
    answers: Mapping[str, Answer],
    fork_server: ForkServer,
    exercise: str,
    seeds: Sequence[int],
) -> list[str | None]:
    """What the checks of one exercise raised for each seed, as text, or None if they passed.

    The cells above the last check are executed once for all seeds.
    """
    checks = lab.exercise(exercise).checks
    above = replace(lab, cells=lab.cells[: lab.cells.index(checks[-1])])
    session = Session(fork_server, [*worker_cells(above, answers), ("problems", CELL)])
    try:
        problem = session.ready_problem(exercise)
        if problem is None:
            session.allow(len(seeds) * sum(check.limit_s for check in checks))
            rounds = [
                (check.source, [check_seed(check, seed) for seed in seeds]) for check in checks
            ]
            return session.call("__problems__", (rounds,))
    except (Exception, WorkerEnded) as raised:
        problem = raised
    finally:
        session.close()
    return [_text(problem)] * len(seeds)


def problems(names: dict[str, object], checks: Checks) -> list[str | None]:
    """What the checks raise in each round, as text, or None if all pass. names: the notebook's.

    From the second round on, the check that failed in the first one comes first. If it had drawn
    nothing random before it failed, all other rounds would be the same, and are not run. Which
    mistake it was is asked in the first round alone.
    """
    rounds = len(checks[0][1])
    Pictures.wanted = Pictures.must_work = True
    raised: list[str | None] = []
    for number in range(rounds):
        problem = remark = None
        for check in checks:
            problem, drawn = _run(names, check[0], check[1][number])
            if problem and problem.startswith(REMARK):  # it ends nothing
                remark, problem = remark or problem, None
            if problem is not None:
                if not drawn:
                    return [*raised, *[problem] * (rounds - number)]
                checks = [check, *(other for other in checks if other is not check)]
                break
        raised.append(problem or remark)
        Pictures.wanted = WhenWrong.named = False
        simt.Report.draw = lambda *_, **__: []  # a failed check draws a picture: once is enough
    return raised


def _run(names: dict[str, object], check: str, seed: list[int]) -> tuple[str | None, bool]:
    """(What a check raised, as text, or None; whether anything random was drawn)."""
    linecache_text.remember("<check>", check)
    Remarks.said.clear()
    generator = names["rng"] = np.random.default_rng(seed)
    before = list(_random_states(generator))
    problem = None
    try:
        exec(compile(check, "<check>", "exec"), names)
    except BaseException as raised:  # an answer may raise SystemExit
        problem = _text(raised)
    if problem is None and Remarks.said:
        problem = f"{REMARK}{' '.join(Remarks.said)}"
    plt.close("all")  # as a notebook does after each cell
    return problem, before != list(_random_states(generator))


def _random_states(generator: np.random.Generator) -> Iterator[object]:
    """Of all generators that a check or an answer draws from."""
    yield generator.bit_generator.state
    name, keys, *rest = np.random.get_state()
    yield name, np.asarray(keys).tobytes(), *rest
    yield random.getstate()
    yield torch.get_rng_state().numpy().tobytes()


def _text(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"
