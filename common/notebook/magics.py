"""What Jupyter accepts in a cell and Python does not: magics, shell lines, help, prompts."""

import ast
import functools
import re

MAX_CELL = 1_000_000  # characters: Python's parser takes a thousand times as many bytes
RUN_IN_PLACE = {"time", "capture", "prun"}  # cell magics whose cell is executed like any other
LEFT_OUT = "pass  # a magic, left out"
CELL_MAGIC = re.compile(r"\A\s*%%(\w+)[^\n]*\n?")
TIMED = re.compile(r"^([ \t]*)get_ipython\(\)\.run_line_magic\('time', (.+)\)$", re.MULTILINE)
ALONE = re.compile(r"^([ \t]*)get_ipython\(\)\.\w+\(.*\)$", re.MULTILINE)


def as_python(text: str) -> str:
    """The cell as Python: IPython's own translation, with a `pass` for what has no effect here.

    `files = !ls` becomes a call of get_ipython(). A text that can't be translated stays as it is.
    """
    if len(text) > MAX_CELL or is_python(text):
        return text
    if magic := CELL_MAGIC.match(text):
        lines = "\n" * magic[0].rstrip("\n").count("\n") + LEFT_OUT + "\n"
        return lines + as_python(text[magic.end() :]) if magic[1] in RUN_IN_PLACE else lines
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        python = TransformerManager().transform_cell(text).removesuffix("\n")
    except Exception:  # the text may hold anything
        return text
    python = TIMED.sub(_timed, python)
    return ALONE.sub(rf"\1{LEFT_OUT}", python)


@functools.lru_cache(maxsize=1000)  # each exercise, and each check in a notebook, asks again
def is_python(text: str) -> bool:
    """Whether the text can be parsed as Python."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _timed(match: re.Match[str]) -> str:
    """The statement that %time executes. In a function it sets no variable."""
    if match[1]:
        return f"{match[1]}{LEFT_OUT}"
    try:
        statement = ast.literal_eval(match[2])
    except (SyntaxError, ValueError):
        return match[0]
    return f"{match[1]}{statement}"
