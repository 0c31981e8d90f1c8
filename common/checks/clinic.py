"""Clinics: a student's test is judged by programs that are right, or wrong in a known way.

A file `clinic_NAME.py` in a lab's folder of common/lessons holds functions named `right_...` and
`wrong_...` with the same parameters. The docstring of a wrong one says what is
wrong with it. The student writes `test_NAME(candidate)`, which raises AssertionError for a wrong
candidate. In the lab, a driver calls `verdict`, and the check calls `score`.
"""

import ast
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.checks import expect, obfuscated, static_names
from common.paths import LESSONS

# Ways to a program's text: a test that goes one of them judges no behaviour.
LOOKS = static_names.INSIDE | {
    *("sealed", "src", "raw_src", "cache_key", "py_func", "symbolic_trace", "make_fx", "getrepr"),
    *("script", "fx", "compile", "export", "formatwarning", "showwarning", "tb_locals"),
    *("open", "memmap", "open_memmap", "fromfile", "from_file"),  # the process's memory is a file
}
TEST = "a test returns nothing: it raises AssertionError if the candidate is wrong"


@dataclass(frozen=True)
class Program:
    """One program of a clinic: its text, which defines `program`, and its fault ("" if right)."""

    source: str
    fault: str


def programs(name: str) -> list[Program]:
    """The programs of clinic_NAME.py, in an order that says nothing about them."""
    (path,) = LESSONS.glob(f"*/clinic_{name}.py")
    module = ast.parse(obfuscated.read(path))
    body = module.body[1:] if ast.get_docstring(module) else module.body
    judged = [node for node in body if _is_judged(node)]
    shared = [node for node in body if not _is_judged(node)]
    found = [_program(node, shared) for node in judged if isinstance(node, ast.FunctionDef)]
    return sorted(found, key=lambda program: zlib.crc32(program.source.encode()))


def _is_judged(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith(("right_", "wrong_"))


def _program(function: ast.FunctionDef, shared: list[ast.stmt]) -> Program:
    """The function alone, under the name `program`, without what tells whether it is right."""
    words = ast.get_docstring(function) or ""
    right = function.name.startswith("right_")
    if not (right or words):
        raise ValueError(f"{function.name} needs a docstring that says what is wrong with it")
    function.name = "program"
    if words:
        del function.body[0]
    source = "\n\n".join(ast.unparse(node) for node in (*shared, function))
    return Program(f"{source}\n", "" if right else " ".join(words.split()))


def verdict(test: Callable[[Callable[..., object]], object], source: str) -> str:
    """Why this test refuses the program with this text; "" if it accepts it.

    A test that is not written yet raises NotImplementedError here, too. The text is not remembered
    as that of a cell is, so that no traceback shows it.
    """
    name = "<program>"  # of all programs, so that it says nothing about this one
    names: dict[str, Any] = {"__name__": "__main__"}  # else pickle looks for it in all modules
    exec(compile(source, name, "exec"), names)  # noqa: S102 (a program of ours)
    try:
        with np.errstate(all="ignore"):
            returned = test(names["program"])
    except NotImplementedError:
        raise
    except Exception as problem:  # whatever a candidate causes is a reason to refuse it
        return f"{type(problem).__name__}: {problem}"
    return "" if returned is None else f"it returned {returned!r:.60}, but {TEST}"


def score(name: str, judged: Callable[[str], str], par: int, rng: np.random.Generator) -> str:
    """A line that says how many wrong programs the student's test refuses.

    judged: gives the verdict of the student's test on a text. rng: draws the order and the words of
    the programs. Raises AssertionError unless the test accepts all right programs and refuses at
    least `par` wrong ones.
    """
    ways = static_names.listed(static_names.names_in(judged, LOOKS))
    expect(
        not ways, f"test_{name} looks at a program's text ({ways}). Judge what the program does."
    )
    all_programs = programs(name)
    said = _verdicts(judged, all_programs, rng)
    for program in all_programs:
        expect(not said[program].endswith(TEST), f"test_{name}: {said[program]}.")
    for program in all_programs:
        expect(
            program.fault or said[program] == "",
            f"test_{name} refuses a program that is right. It said: {said[program]}\n"
            f"The program:\n{program.source}",
        )
    wrong = [program for program in all_programs if program.fault]
    accepted = [program for program in wrong if said[program] == ""]
    count = f"{len(wrong) - len(accepted)} of {len(wrong)} wrong programs"
    expect(
        len(wrong) - len(accepted) >= par,
        f"test_{name} refuses {count}; par is {par}. "
        f"One that it accepts: {accepted[0].fault if accepted else ''}",
    )
    return f"test_{name} refuses {count} (par {par}) and accepts every right one."


def _verdicts(
    judged: Callable[[str], str], asked: Sequence[Program], rng: np.random.Generator
) -> dict[Program, str]:
    """What the test says of each program.

    The programs come in a random order, and each in words of its own: a test that counts its calls,
    or that knows the programs' texts, does not know which program it judges.
    """
    order = [asked[i] for i in rng.permutation(len(asked))]
    return {program: judged(reworded(program.source, rng)) for program in order}


def reworded(source: str, rng: np.random.Generator) -> str:
    """The same program with other names for its functions' variables, and with idle statements.

    Parameters keep their names, as a test may give them by name.
    """
    module = ast.parse(source)
    nodes = list(ast.walk(module))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    own = {name for function in functions for name in _stored(function)}
    own -= {name for node in nodes for name in _kept(node)}
    fresh = {name: _word(rng) for name in sorted(own)}
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = fresh.get(node.id, node.id)
    for function in functions:
        idle = [f"{_word(rng)} = {rng.integers(10**9)}" for _ in range(rng.integers(1, 4))]
        function.body[:0] = ast.parse("\n".join(idle)).body
    return f"{ast.unparse(module)}\n"


def _word(rng: np.random.Generator) -> str:
    return f"v{rng.integers(16**8):08x}"


def _stored(part: ast.AST) -> Iterator[str]:
    """The variables that a piece of text assigns."""
    for node in ast.walk(part):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _kept(node: ast.AST) -> Iterator[str]:
    """Names that are more than a function's variables: parameters, globals, attributes, errors."""
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from node.names
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, (ast.FunctionDef, ast.ExceptHandler)) and node.name:
        yield node.name
    elif isinstance(node, (ast.Module, ast.ClassDef)):
        for part in node.body:
            if not isinstance(part, (ast.FunctionDef, ast.ClassDef)):
                yield from _stored(part)
