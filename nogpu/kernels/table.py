"""What the reports of both kernel languages share: tables as text, and data read back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

GAP = "   "  # between columns


@dataclass(frozen=True)
class Column:
    """head: above it. most: characters of a cell; a longer one is cut. 0: a column of numbers."""

    head: str
    most: int = 0

    def cell(self, text: str) -> str:
        return text if not 0 < self.most < len(text) else f"{text[: self.most - 1]}…"

    def aligned(self, text: str, width: int) -> str:
        return text.ljust(width) if self.most else text.rjust(width)


Rows = Iterable[Sequence[str]]


# Ours, and no library's: a report prints where there is nothing but NumPy and greenlet.
def text_table(title: str, columns: Sequence[Column], *sections: Rows) -> str:
    """A table in plain text: a title, a line of heads, and sections with a blank line between."""
    cut = [[[c.cell(x) for c, x in zip(columns, row, strict=True)] for row in s] for s in sections]
    heads = [column.head for column in columns]
    rows = [heads, *(row for section in cut for row in section)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        parts = [c.aligned(x, w) for c, x, w in zip(columns, row, widths, strict=True)]
        return f" {GAP.join(parts)}".rstrip()

    rule = " " + "─" * (sum(widths) + len(GAP) * (len(widths) - 1))
    blocks = ["\n".join(map(line, section)) for section in cut if section]
    return "\n".join([title, "", line(heads), rule, "\n\n".join(blocks)])


def size_text(lengths: Sequence[int]) -> str:
    """A grid or block as people write it, without lengths of 1 at the end: 2 × 3."""
    while len(lengths) > 1 and lengths[-1] == 1:
        lengths = lengths[:-1]
    return " × ".join(map(str, lengths))


def tuples(value: Any) -> Any:
    """A value with tuples in place of lists, which JSON makes of them."""
    return tuple(tuples(item) for item in value) if isinstance(value, (list, tuple)) else value
