"""Mutate the solution of a lab, and report which mutants the checks catch.

A mutant is the solution with one change inside an answer: an operator is swapped, a constant moved
by one, a condition negated, a loop emptied (these are Cosmic Ray's operators), or a statement is
dropped (ours). A mutant that passes either does the same as the solution or shows what no check
asks for. Each of them is printed. Tests that a clinic scores are left out: a weaker test that
still reaches the par is a right answer.
"""

import argparse
import ast
import difflib
import math
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context

from rich.console import Console
from rich.progress import track

from grading.classroom import fork_server, lab
from grading.source import holes, labs
from grading.source.labs import Exercise

# Operators whose mutants say nothing: `is` for `==`, and `|` or `^` for the `+` of numbers that
# share no bit, as in `block * 128 + thread`.
SAME = ("Variable", "Decorator", "_Is", "Add_BitOr", "Add_BitXor")


@dataclass(frozen=True)
class Mutant:
    """A lab's solution with one change in one exercise."""

    lab: str
    exercise: str
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command `mutants` accepts."""
    parser.add_argument("lab", help="the lab, for example 01")
    parser.add_argument(
        "--most",
        type=int,
        default=60,
        help="try at most this many mutants per hole, drawn at random (default: 60)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of the draw (default: 0)")


def run(options: argparse.Namespace) -> int:
    """The command `mutants`."""
    name = labs.resolve(options.lab)
    console = Console(highlight=False, soft_wrap=True)
    draw = random.Random(options.seed)  # noqa: S311  (not a secret)
    jobs: list[Mutant] = []
    exercises = [exercise for exercise in lab(name).exercises if not _scored(exercise)]
    for exercise in exercises:
        texts = mutants(exercise.hole.source)
        drawn = draw.sample(texts, options.most) if len(texts) > options.most else texts
        jobs += [Mutant(name, exercise.name, text) for text in drawn]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        survivals = track(
            pool.map(survives, jobs),
            total=len(jobs),
            description=f"mutants of {name}",
            console=console,
        )
        alive = [job for job, lives in zip(jobs, survivals, strict=True) if lives]
    for exercise in exercises:
        for line in _report(exercise, jobs, alive):
            console.print(line, markup=False)
    caught = len(jobs) - len(alive)
    share = caught / max(len(jobs), 1)
    console.print(f"{name}: {caught} of {len(jobs)} mutants caught ({share:.1%})", markup=False)
    return 0


def _scored(exercise: Exercise) -> bool:
    """Whether a clinic scores the answer, which is a test, against a par."""
    return any("clinic.score(" in check.source for check in exercise.checks)


def _report(exercise: Exercise, jobs: list[Mutant], alive: list[Mutant]) -> Iterator[str]:
    """How many mutants of an exercise were caught, and the change of each that was not."""
    total = sum(job.exercise == exercise.name for job in jobs)
    passing = [job for job in alive if job.exercise == exercise.name]
    yield f"{exercise.label}: {total - len(passing)} of {total} caught"
    solution = holes.solved(exercise.hole.source).splitlines()
    for mutant in passing:
        diff = difflib.ndiff(solution, mutant.text.splitlines())
        changed = [" ".join(line.split()) for line in diff if line[:2] in ("- ", "+ ")]
        yield f"    passes: {'  ->  '.join(changed)}"


def survives(mutant: Mutant) -> bool:
    """Whether the checks pass a mutant."""
    from grading import score

    texts = lab(mutant.lab).solution | {mutant.exercise: mutant.text}
    answers = {name: holes.Answer(text) for name, text in texts.items()}
    (result,) = score.score(lab(mutant.lab), answers, fork_server(), only=[mutant.exercise])
    return result.status == "passed"


def mutants(source: str) -> list[str]:
    """The distinct mutants of a hole's cell: solved cells that differ in the answer alone.

    source: the cell, with the marks of its answer.
    """
    solution = holes.solved(source)
    given = set(holes.stub(source).splitlines())  # the signature and the docstring stay
    texts: dict[str, None] = {}
    for text in [*_swapped(solution), *_dropped(solution)]:
        diff = difflib.ndiff(solution.splitlines(), text.splitlines())
        changed = [line[2:] for line in diff if line.startswith("- ")]
        if changed and not given.intersection(changed) and _compiles(text):
            texts[text] = None
    return list(texts)


def _swapped(solution: str) -> Iterator[str]:
    """The solution with one operator, constant or condition changed."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    for name in operator_names():
        if any(word in name for word in SAME):
            continue
        operator = get_operator(name)()
        for occurrence in count():
            text = mutate_code(solution, operator, occurrence)
            if text is None:
                break
            if "Number" not in name or not _rounded(solution, text):
                yield text


def _rounded(solution: str, text: str) -> bool:
    """Whether the numbers differ at most in a float's last digits: 1979e12 - 1 is not a mutant."""
    pairs = zip(_numbers(solution), _numbers(text), strict=True)
    return all(a == b or (isinstance(a, float) and math.isclose(a, b)) for a, b in pairs)


def _numbers(text: str) -> list[int | float]:
    constants = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return [node.value for node in constants if isinstance(node.value, (int, float))]


def _dropped(solution: str) -> Iterator[str]:
    """The solution with one statement replaced by `pass`."""
    lines = solution.splitlines()
    for node in ast.walk(ast.parse(solution)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.Lambda, ast.IfExp)):
            continue
        for statement in [*getattr(node, "body", []), *getattr(node, "orelse", [])]:
            if not isinstance(statement, (ast.Pass, ast.FunctionDef)):
                before, after = lines[: statement.lineno - 1], lines[statement.end_lineno :]
                yield "\n".join([*before, f"{' ' * statement.col_offset}pass", *after])


def _compiles(text: str) -> bool:
    try:
        compile(text, "<mutant>", "exec")
    except SyntaxError:
        return False
    return True
