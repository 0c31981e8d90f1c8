"""Holes: the names that a cell defines, the stub that a student gets, the student's answer in a notebook."""

import ast
import functools
import re
from dataclasses import dataclass

ANSWER = re.compile(
    r"^([ \t]*)(?:#|<!--) BEGIN SOLUTION.*?\n(.*?)^[ \t]*(?:#|<!--) END SOLUTION[^\n]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
BLANK = "*Double-click here and write your answer.*"


@functools.lru_cache(maxsize=1000)  # each exercise looks through the same cells
def _parsed(source):
    """(the statements of a cell, why it is no Python): one of the two is None."""
    try:
        return ast.parse(source).body, None
    except SyntaxError as error:
        line = (error.text or "").strip()
        return None, f"The cell has a syntax error in line {error.lineno}, `{line}`: {error.msg}."
    except (ValueError, RecursionError, MemoryError) as error:
        return None, f"The cell can't be read as Python: {error or type(error).__name__}."


def statements(source):
    """The statements at the top level of a cell; none if it does not parse."""
    return _parsed(source)[0] or ()


def defined_names(source):
    """The functions, classes and variables that a cell defines at its top level, in order; none if it does not parse."""
    names = []
    for node in statements(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [
                n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)
            ]
    return tuple(dict.fromkeys(names))


def callable_names(source):
    """Of these, the functions and classes: what a check calls rather than reads."""
    return tuple(
        node.name
        for node in ast.parse(source).body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    )


def stub(source, label=""):
    """The cell as the student gets it: the answer replaced by a raise in a function, by ... at the top level.

    label: what the NotImplementedError says.
    """

    def replacement(match):
        indent, answer = match[1], match[2]
        if "<!--" in match[0]:
            return f"{BLANK}\n"
        if indent:
            return (
                f'{indent}raise NotImplementedError("{label}")\n'
                if label
                else f"{indent}raise NotImplementedError\n"
            )
        return "".join(f"{name} = ...\n" for name in defined_names(answer))

    return ANSWER.sub(replacement, source).rstrip("\n")


def solved(source):
    """The cell with its answer, without the two lines that mark it."""
    return ANSWER.sub(lambda match: match[2], source).rstrip("\n")


@dataclass(frozen=True)
class Answer:
    """A student's cell for one hole: its text, or why there is none (status: missing or error)."""

    text: str | None
    attempted: bool = True
    status: str = ""
    problem: str = ""


def find(cells, exercise):
    """The student's answer to an exercise.

    cells: the texts of the notebook's code cells. Of the cells that define the name the last one counts, an untouched stub
    only where there is nothing else; a cell that does not parse counts where its text says that it was meant.
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
        elif meant.search(text) and syntax_problem(text):
            broken.append(Answer(None, True, "error", syntax_problem(text)))
    missing = Answer(
        None,
        False,
        "missing",
        f"No cell of the notebook defines `{exercise.name}` at its top level: "
        "copy its cell from a fresh lab and fill it in.",
    )
    return (answers or broken or stubs or [missing])[-1]


def without_magics(text):
    """The cell with its magics and shell lines blanked, which only a notebook understands; line numbers stay."""
    if _parsed(text)[1] is None:
        return text
    return re.sub(r"^([ \t]*)[%!?].*$", r"\1pass  # a magic, left out", text, flags=re.MULTILINE)


def syntax_problem(text):
    """Why the text is no Python, in a sentence; None where it is."""
    return _parsed(text)[1]


def _squeezed(text):
    """Text without what an editor changes on its own: white space at the ends of lines, blank lines."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
