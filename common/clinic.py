"""Clinics: a student's test is judged by programs that are right, or wrong in a known way.

A file `clinics/NAME.py` holds functions named `right_...` and `wrong_...` with the same parameters.
The docstring of a wrong one says what is wrong with it. The student writes `test_NAME(candidate)`,
which raises AssertionError for a wrong candidate. In the lab, a driver calls `verdict`, and the
check calls `score`.
"""

import ast
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common import sealed, sources
from common.checks import expect

FOLDER = Path(__file__).parent / "clinics"
TEST = "a test returns nothing: it raises AssertionError if the candidate is wrong"


@dataclass(frozen=True)
class Program:
    """One program of a clinic: its text, which defines `program`, and its fault ("" if right)."""

    source: str
    fault: str


def programs(name: str) -> list[Program]:
    """The programs of clinics/NAME.py, in an order that says nothing about them."""
    module = ast.parse(sealed.read(FOLDER / f"{name}.py"))
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

    A test that is not written yet raises NotImplementedError here, too.
    """
    name = f"<program {zlib.crc32(source.encode()):08x}>"
    sources.remember(name, source)
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


def score(name: str, judged: Callable[[str], str], par: int) -> str:
    """A line that says how many wrong programs the student's test refuses.

    judged: gives the verdict of the student's test on a text. Raises AssertionError unless the test
    accepts all right programs and refuses at least `par` wrong ones.
    """
    all_programs = programs(name)
    for program in all_programs:
        if not program.fault:
            said = judged(program.source)
            expect(
                said == "",
                f"test_{name} refuses a program that is right. It said: {said}\n"
                f"The program:\n{program.source}",
            )
    wrong = [program for program in all_programs if program.fault]
    accepted = [program for program in wrong if judged(program.source) == ""]
    count = f"{len(wrong) - len(accepted)} of {len(wrong)} wrong programs"
    expect(
        len(wrong) - len(accepted) >= par,
        f"test_{name} refuses {count}; par is {par}. "
        f"One that it accepts: {accepted[0].fault if accepted else ''}",
    )
    return f"test_{name} refuses {count} (par {par}) and accepts every right one."
