"""Values that write down what a Python function does with them, and what Python learned of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.graphs.nodes import Arithmetic
from common.graphs.operators import evaluate
from common.graphs.rows import Row


class Tape:
    """What a function did, as rows, and what Python asked meanwhile.

    branches: (row, truth) for each value that an `if` or `while` asked for. shapes: rows whose
    shape, and numbers: rows whose number, Python has read. A row is its number.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.branches: list[tuple[int, bool]] = []
        self.shapes: set[int] = set()
        self.numbers: set[int] = set()

    def placeholder(self, name: str, value: Any) -> Traced:
        """An array that the function is given."""
        return self.record("placeholder", name, np.asarray(value))

    def constant(self, value: Any) -> Traced:
        """A number that becomes a part of the program."""
        return self.record("constant", value, value)

    def record(self, op: str, content: Any, value: Any) -> Traced:
        """A new row, and the value that stands for it."""
        self.rows.append((op, content))
        return Traced(self, len(self.rows) - 1, value)


class Traced(Arithmetic):
    """The value of a row: it computes with its example, and everything goes onto the tape."""

    def __init__(self, op: Any, *inputs: Any, value: Any = None, name: str | None = None) -> None:
        if isinstance(op, Tape):
            self.tape, (self.row, self.value) = op, inputs
            return
        tape = next(x.tape for x in inputs if isinstance(x, Traced))
        read = [x if isinstance(x, Traced) else tape.constant(x) for x in inputs]
        with np.errstate(all="ignore"):
            found = evaluate(op, *(x.value for x in read))
        made = tape.record(op, tuple(x.row for x in read), found)
        self.tape, self.row, self.value = tape, made.row, found

    def __bool__(self) -> bool:
        truth = bool(self.value)
        self.tape.branches.append((self.row, truth))
        return truth

    def __index__(self) -> int:
        self.tape.numbers.add(self.row)
        return int(self.value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The example's shape; from now on it is a part of the program."""
        self.tape.shapes.add(self.row)
        return np.shape(self.value)
