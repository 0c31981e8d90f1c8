"""python -m grading.mutants 01    mutates the solution of a lab and reports the share of mutants that the checks catch

A mutant is the solution with one thing changed inside an answer: an operator swapped, a constant moved by one, a condition
negated, a loop left empty (Cosmic Ray's operators), or a line dropped (ours). A mutant that passes is either equal to the
solution or shows what no check asks: each is printed.
"""

import argparse
import ast
import difflib
import math
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context

from rich.console import Console
from rich.progress import track

from grading.classroom import fork_server, lab
from grading.source import holes, labs


def mutants(source):
    """The distinct mutants of a hole's cell (its text with marks): texts of solved cells that differ in the answer alone."""
    solution = holes.solved(source)
    kept = set(holes.stub(source).splitlines())  # signature and docstring are the student's to keep
    found = {}
    for text in [*_swapped(solution), *_dropped(solution)]:
        changed = [
            line[2:]
            for line in difflib.ndiff(solution.splitlines(), text.splitlines())
            if line.startswith("- ")
        ]
        if changed and not kept.intersection(changed) and _compiles(text):
            found[text] = None
    return list(found)


def _swapped(solution):
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    for name in operator_names():
        if any(
            word in name for word in ("Variable", "Decorator", "_Is")
        ):  # `is` for `==` changes nothing on small ints
            continue
        operator = get_operator(name)()
        for occurrence in count():
            text = mutate_code(solution, operator, occurrence)
            if text is None:
                break
            if "Number" not in name or not _rounded(solution, text):
                yield text


def _rounded(solution, text):
    """Whether the numbers of two texts are the same but for a float's last digits: one less than 1979e12 is no mutant."""
    pairs = zip(_numbers(solution), _numbers(text), strict=True)
    return all(a == b or (isinstance(a, float) and math.isclose(a, b)) for a, b in pairs)


def _numbers(text):
    nodes = ast.walk(ast.parse(text))
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float))
    ]


def _dropped(solution):
    """The solution with one statement replaced by pass."""
    lines = solution.splitlines()
    for node in ast.walk(ast.parse(solution)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.Lambda, ast.IfExp)):
            continue
        for statement in [*getattr(node, "body", []), *getattr(node, "orelse", [])]:
            if not isinstance(statement, (ast.Pass, ast.FunctionDef)):
                indent = " " * statement.col_offset
                yield "\n".join(
                    [
                        *lines[: statement.lineno - 1],
                        f"{indent}pass",
                        *lines[statement.end_lineno :],
                    ]
                )


def _compiles(text) -> bool:
    try:
        compile(text, "<mutant>", "exec")
    except SyntaxError:
        return False
    return True


def survives(job):
    """Whether the checks of an exercise pass a mutant."""
    from grading import score

    name, exercise, text = job
    answers = {
        hole: holes.Answer(solved)
        for hole, solved in (lab(name).solution | {exercise: text}).items()
    }
    (result,) = score.score(lab(name), answers, fork_server(), only=[exercise])
    return result.status == "passed"


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m grading.mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument("lab")
    parser.add_argument(
        "--most",
        type=int,
        default=60,
        help="mutants of one hole, drawn where it has more (default: 60)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    options = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    try:
        name = labs.resolve(options.lab)
    except ValueError as problem:
        console.print(f"mutants: {problem}", markup=False)
        return 2
    draw, jobs = random.Random(options.seed), []
    for exercise in lab(name).exercises:
        texts = mutants(exercise.hole.source)
        drawn = draw.sample(texts, options.most) if len(texts) > options.most else texts
        jobs += [(name, exercise.name, text) for text in drawn]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        alive = list(
            track(
                pool.map(survives, jobs),
                total=len(jobs),
                description=f"mutants of {name}",
                console=console,
            )
        )
    for exercise in lab(name).exercises:
        of = [
            (text, lives)
            for (_, hole, text), lives in zip(jobs, alive, strict=True)
            if hole == exercise.name
        ]
        console.print(
            f"{exercise.number} {exercise.name}: {sum(not lives for _, lives in of)} of {len(of)} caught",
            markup=False,
        )
        solution = holes.solved(exercise.hole.source).splitlines()
        for text in (text for text, lives in of if lives):
            change = [
                line
                for line in difflib.ndiff(solution, text.splitlines())
                if line[:2] in ("- ", "+ ")
            ]
            console.print(
                "    passes: " + "  ->  ".join(" ".join(line.split()) for line in change),
                markup=False,
            )
    caught = len(jobs) - sum(alive)
    console.print(
        f"{name}: {caught} of {len(jobs)} mutants caught ({caught / max(len(jobs), 1):.1%})",
        markup=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
