"""The text of a kernel with what it needs of a notebook's cells, as a grader reads it."""

import ast
import functools
import re
from collections.abc import Iterator
from typing import Any

from common.notebook import notebook_file as notebooks
from common.notebook import slices
from nogpu.kernels import source
from nogpu.kernels.source import ANOTHER_CELL

RUN_IN_PLACE = ("time", "capture", "prun")  # cell magics whose cell is executed like any other
CHECK = re.compile(r"\A# Check\b.*: run me")  # the first line of a check's cell


@functools.lru_cache(maxsize=100)  # a check launches its kernel many times
def text_of(cells: tuple[str | None, ...], name: str) -> str | None:
    """What a kernel needs of these cells, itself included; None if none of them sets its name.

    Its own cell comes first, each statement in the line that it has there. A cell that is None is
    left out.
    """
    notebook = slices.Notebook(cells)
    end = len(notebook.statements)
    _, start = notebook.setters(name, end, slices.NONE)
    if not start:
        return None
    needed = {*start, *notebook.needed(start, end).places}
    # What sets no name changes none of a kernel's constants: they are numbers.
    places = [place for place in needed if notebook.statements[place].sets]
    own = notebook.cell_of[start[0]]
    texts = dict(notebook.text(places))
    return f"\n\n{ANOTHER_CELL}\n".join([texts.pop(own), *texts.values()])


def text_here(kernel: object, function: object) -> tuple[str, str] | None:
    """(text, name) of a kernel, from what this notebook has executed.

    None outside of a notebook, or if no name of it stands for the kernel, as after the cell was
    executed anew. function: the Python function that the kernel was made from.
    """
    shell = notebooks.shell()
    if not shell or getattr(function, "__globals__", None) is not shell.user_ns:
        return None
    own_name = getattr(function, "__name__", "")
    for name in (own_name, *shell.user_ns):
        if shell.user_ns.get(name) is kernel:
            text = text_of(tuple(_executed(shell)), name)
            return (text, name) if text else None
    return None


# The simulators then take a kernel from the cells, as a grader does.
source.readers.append(text_here)


def _executed(shell: Any) -> Iterator[str]:
    """The cells that were executed, in this order, without the checks."""
    for text in shell.user_ns.get("In", []):
        if not CHECK.match(text):
            yield _without_magic(text)


def _without_magic(text: str) -> str:
    """What a cell executes under a magic such as %%time, each line in its place."""
    match slices.parsed(text):
        case [slices.Statement(node=ast.Expr(value=ast.Call(args=[magic, _, cell]) as call))]:
            if ast.unparse(call.func) == "get_ipython().run_cell_magic":
                name, inner = ast.literal_eval(magic), ast.literal_eval(cell)
                return f"pass\n{inner}" if name in RUN_IN_PLACE else ""
    return text
