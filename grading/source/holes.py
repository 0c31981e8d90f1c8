"""Holes: the names that a cell defines, the stub in the lab, and the answer in a notebook."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from grading.source.labs import Exercise

ANSWER = re.compile(
    r"^([ \t]*)(?:#|<!--) BEGIN SOLUTION.*?\n(.*?)^[ \t]*(?:#|<!--) END SOLUTION[^\n]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
BLANK = "*Double-click here and write your answer.*"


@functools.lru_cache(maxsize=1000)  # each exercise looks through the same cells
def _parsed(source: str) -> tuple[tuple[ast.stmt, ...], str]:
    """(the statements of a cell, why it can't be parsed): one of the two is empty."""
    try:
        return tuple(ast.parse(source).body), ""
    except SyntaxError as error:
        line = (error.text or "").strip()
        return (), f"The cell has a syntax error in line {error.lineno}, `{line}`: {error.msg}."
    except (ValueError, RecursionError, MemoryError) as error:
        return (), f"The cell can't be read as Python: {error or type(error).__name__}."


def statements(source: str) -> tuple[ast.stmt, ...]:
    """The statements at the top level of a cell; empty if it does not parse."""
    return _parsed(source)[0]


def defined_names(source: str) -> tuple[str, ...]:
    """What a cell defines at its top level, in order; empty if it does not parse."""
    names: list[str] = []
    for node in statements(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = (part for target in targets for part in ast.walk(target))
            names += [part.id for part in parts if isinstance(part, ast.Name)]
    return tuple(dict.fromkeys(names))


def callable_names(source: str) -> tuple[str, ...]:
    """The functions and classes that a cell defines: what a check calls rather than reads."""
    return tuple(
        node.name
        for node in ast.parse(source).body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    )


def stub(source: str, label: str = "") -> str:
    """The cell as the student gets it: a raise for an answer in a function, `...` at the top level.

    label: what the NotImplementedError says.
    """

    def replacement(match: re.Match[str]) -> str:
        indent, answer = match[1], match[2]
        if "<!--" in match[0]:
            return f"{BLANK}\n"
        if indent:
            text = f'("{label}")' if label else ""
            return f"{indent}raise NotImplementedError{text}\n"
        return "".join(f"{name} = ...\n" for name in defined_names(answer))

    return ANSWER.sub(replacement, source).rstrip("\n")


def solved(source: str) -> str:
    """The cell with its answer, without the two lines that mark it."""
    return ANSWER.sub(lambda match: match[2], source).rstrip("\n")


@dataclass(frozen=True)
class Answer:
    """A student's cell for one hole: its text, or why there is no text (status and problem)."""

    text: str | None
    attempted: bool = True
    status: Literal["", "missing", "error"] = ""
    problem: str = ""


def find(cells: Iterable[str], exercise: Exercise) -> Answer:
    """The student's answer to an exercise.

    cells: the texts of the notebook's code cells. The last cell that defines the name counts. An
    untouched stub counts only if there is nothing else. So does a cell that does not parse, if its
    text starts to define the name; it goes before a stub.
    """
    meant = re.compile(
        rf"^(?:(?:async\s+)?def|class)\s+{exercise.name}\b|^{exercise.name}\s*(?::[^=\n]*)?=(?!=)",
        re.MULTILINE,
    )
    stubs, broken, answers = [], [], []
    for text in map(without_magics, cells):
        if exercise.name in defined_names(text):
            untouched = _squeezed(text) == _squeezed(exercise.stub)
            (stubs if untouched else answers).append(Answer(text, not untouched))
        elif meant.search(text) and (problem := syntax_problem(text)):
            broken.append(Answer(None, True, "error", problem))
    missing = Answer(
        None,
        False,
        "missing",
        f"No cell of the notebook defines `{exercise.name}` at its top level: "
        "copy its cell from a fresh lab and fill it in.",
    )
    return (answers or broken or stubs or [missing])[-1]


def without_magics(text: str) -> str:
    """The cell with a `pass` for each magic and shell line, so that the line numbers stay."""
    if not syntax_problem(text):
        return text
    return re.sub(r"^([ \t]*)[%!?].*$", r"\1pass  # a magic, left out", text, flags=re.MULTILINE)


def syntax_problem(text: str) -> str:
    """Why the text can't be parsed as Python, in a sentence; "" if it can."""
    return _parsed(text)[1]


def _squeezed(text: str) -> str:
    """The text without what an editor changes on its own: trailing spaces and blank lines."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
