"""Holes: the names that a cell defines, its stub and its solution, and a student's answer."""

import ast
import functools
import re
from dataclasses import dataclass
from typing import Literal

from common.notebook import magics, slices
from common.notebook.magics import MAX_CELL

ANSWER = re.compile(
    r"^([ \t]*)(?:#|<!--) BEGIN SOLUTION.*?\n(.*?)^[ \t]*(?:#|<!--) END SOLUTION[^\n]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
MAX_ANSWER = 2_000_000  # characters of an answer with what it needs of other cells
QUOTED = 100  # characters of a line that a message quotes
BLANK = "*Double-click here and write your answer.*"


@functools.lru_cache(maxsize=1000)  # each exercise looks through the same cells
def _parsed(source: str) -> tuple[tuple[ast.stmt, ...], str]:
    """(the statements of a cell, why it can't be parsed): one of the two is empty."""
    if len(source) > MAX_CELL:
        size, most = len(source) / 1e6, MAX_CELL / 1e6
        return (), f"The cell has {size:.1f} million characters; at most {most:.0f} are allowed."
    try:
        return tuple(ast.parse(source).body), ""
    except SyntaxError as error:
        line = (error.text or "").strip()[:QUOTED]
        return (), f"The cell has a syntax error in line {error.lineno}, `{line}`: {error.msg}."
    except (ValueError, RecursionError, MemoryError) as error:
        return (), f"The cell can't be read as Python: {str(error) or type(error).__name__}."


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


@functools.lru_cache(maxsize=1000)
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
    """A student's cells for one hole: their text, or why there is no text (status and problem)."""

    text: str | None
    attempted: bool = True
    status: Literal["", "missing", "error"] = ""
    problem: str = ""
    needed: tuple[str, ...] = ()  # what it needs of other cells, to be executed before it
    unknown: tuple[str, ...] = ()  # names that it reads and no cell sets
    whole: tuple[str, ...] = ()  # all cells below the last exercise's check and above its own one
    left_out: bool = False  # whether a cell above its check is neither needed nor an answer


def forget() -> None:
    """Frees what was parsed: the next notebook must not pay for this one's memory."""
    _parsed.cache_clear()
    slices.statements.cache_clear()
    magics.is_python.cache_clear()


def syntax_problem(text: str) -> str:
    """Why the text can't be parsed as Python, in a sentence; "" if it can."""
    return _parsed(text)[1]
