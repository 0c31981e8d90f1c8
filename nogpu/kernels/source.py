"""The text of a kernel, with the line where it begins, and its syntax tree."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Never

from nogpu.kernels.errors import KernelError

# (kernel, the Python function it was made from) → (text, name), or None: see `text_elsewhere`.
Reader = Callable[[object, object], tuple[str, str] | None]
readers: list[Reader] = []

ANOTHER_CELL = "# From another cell:"  # the line above what a text has of another cell


@dataclass(frozen=True)
class Source:
    """The text of a function and the line where it begins, for messages."""

    name: str
    text: str
    first_line: int = 1

    def line(self, number: int) -> str:
        """The text of one line, without its indentation."""
        lines = self.text.splitlines()
        index = number - self.first_line
        return lines[index].strip() if 0 <= index < len(lines) else ""

    def where(self, number: int) -> str:
        """'window_average, line 7 (`x = [1, 2]`)'. The line is counted in its own cell."""
        text = self.line(number)
        above = self.text.splitlines()[: max(0, number - self.first_line)]
        starts = [place for place, line in enumerate(above, 1) if line == ANOTHER_CELL]
        return f"{self.name}, line {number - max(starts, default=0)}" + (
            f" (`{text}`)" if text else ""
        )

    def refuse(self, node: ast.AST, sentence: str) -> Never:
        """Raise KernelError with this sentence about the line of this node."""
        raise KernelError(f"{self.where(getattr(node, 'lineno', self.first_line))}: {sentence}")

    def tree(self) -> ast.Module:
        """The syntax tree, with the line numbers of the source; KernelError if it is not Python."""
        above = self.first_line - 1
        try:
            return ast.parse("\n" * above + self.text)
        except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f"{self.name}, line {line - above}" if line else self.name
            raise KernelError(f"{where}: this is not Python: {error.args[0]}") from None


def text_elsewhere(kernel: object, function: object) -> tuple[str, str] | None:
    """(text, name) of a kernel from the first of `readers` that knows it; None if none does.

    A program that keeps the texts of kernels itself adds its reader there: a course whose grader
    takes a kernel from a notebook's cells, and wants the same here.
    """
    found = (reader(kernel, function) for reader in readers)
    return next(filter(None, found), None)


def source_of(function: Callable[..., Any], package: str) -> Source:
    """The Source of a Python function. package: simt or tiles, to name its compile_source."""
    try:
        lines, first_line = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise KernelError(
            f"the source of {function.__name__} cannot be found: a magic such as %%time hides it; "
            f"define it in a notebook's cell or in a file, or use {package}.compile_source"
        ) from error
    return Source(function.__name__, textwrap.dedent("".join(lines)), max(first_line, 1))
