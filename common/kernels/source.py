"""The text of a kernel: where it stands, for messages; and its syntax tree, within limits."""

import ast
from dataclasses import dataclass
from typing import Never

from common.kernels.errors import KernelError

MAX_NODES, MAX_DEPTH, MAX_NESTED = 20_000, 60, 12


@dataclass(frozen=True)
class Source:
    """The text of a function and where it stands, for messages."""

    name: str
    text: str
    first_line: int = 1

    def line(self, number):
        """The text of one line, without its indentation."""
        lines = self.text.splitlines()
        index = number - self.first_line
        return lines[index].strip() if 0 <= index < len(lines) else ""

    def where(self, number) -> str:
        """'window_average, line 7 (`x = [1, 2]`)'."""
        text = self.line(number)
        return f"{self.name}, line {number}" + (f" (`{text}`)" if text else "")

    def refuse(self, node, sentence) -> Never:
        """Raise KernelError with this sentence about the line of this node."""
        raise KernelError(f"{self.where(getattr(node, 'lineno', self.first_line))}: {sentence}")


def parsed(text, name):
    """The syntax tree of a text; KernelError where it is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise KernelError(
            f"{name}"
            + (f", line {line}" if line else "")
            + f": this is not Python: {error.args[0]}"
        ) from None


def is_elif(node, parent):
    """Whether a node is an elif of its parent, which stands in the tree a level below it, and in the text beside it."""
    return isinstance(node, ast.If) and isinstance(parent, ast.If) and parent.orelse == [node]
