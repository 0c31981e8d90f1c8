"""What the reports of both kernel languages share: tables as text, and data read back."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def plain_text(table: Table) -> str:
    """A table as text without colours."""
    from rich.console import Console

    text = io.StringIO()
    Console(
        file=text, width=200, highlight=False, markup=False, color_system=None, force_jupyter=False
    ).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).rstrip("\n")


def size_text(lengths: Sequence[int]) -> str:
    """A grid or block as people write it, without lengths of 1 at the end: 2 × 3."""
    while len(lengths) > 1 and lengths[-1] == 1:
        lengths = lengths[:-1]
    return " × ".join(map(str, lengths))


def tuples(value: Any) -> Any:
    """A value with tuples in place of lists, which JSON makes of them."""
    return tuple(tuples(item) for item in value) if isinstance(value, (list, tuple)) else value
