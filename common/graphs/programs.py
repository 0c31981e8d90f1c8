"""Graphs that do more than compute: rows that read and write buffers, and that draw at random.

The rows run in order. Besides lab 07's operators there are
- ("buffer", name): a leaf, memory that outlives the run. Only read and write may take it;
- ("read", (buffer,)): what the buffer holds now;
- ("write", (buffer, x)): puts x into the buffer; its value is x;
- ("random", (x,)): new numbers from [0, 1) in x's shape. The generator moves on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from common.graphs.operators import OPERATORS
from common.graphs.rows import LEAVES, Row, ancestors, inputs

EFFECTS = ("write", "random")  # what others can see, even if nobody reads the value
COMMUTATIVE = ("add", "multiply")  # a + b is b + a, bit for bit
ELEMENTWISE = (
    *("add", "subtract", "multiply", "divide", "negative"),
    *("exp", "log", "sin", "cos", "tanh", "relu", "step"),
)

Program = tuple[list[Row], list[int]]
Feeds = dict[str, np.ndarray]


def execute(rows: Sequence[Row], outputs: Sequence[int], feeds: Mapping[str, Any]) -> list[Any]:
    """All that can be seen from outside, as arrays: outputs, then what is in memory afterwards.

    The latter is one array per name of feeds, in alphabetical order, and the number of draws that
    the generator has made. feeds: {name of a placeholder or buffer: its value}. ValueError if the
    rows are no program.
    """
    rows, outputs = valid(rows, outputs)
    memory = {name: np.asarray(value) for name, value in feeds.items()}
    values: list[Any] = []
    draws = 0
    with np.errstate(all="ignore"):
        for kind, content in rows:
            if kind == "constant":
                number = isinstance(content, (int, float))  # adopts the dtype of an array
                values.append(content if number else np.asarray(content))
            elif kind in LEAVES:
                values.append(feeds[content] if kind == "placeholder" else content)
            elif kind == "random":
                values.append(_drawn(draws, np.shape(values[content[0]])))
                draws += 1
            else:
                values.append(_value(kind, [values[i] for i in content], memory))
    return [
        *(np.asarray(values[i]) for i in outputs),
        *(memory[name] for name in sorted(memory)),
        np.asarray(draws),
    ]


def _value(op: str, arguments: list[Any], memory: dict[str, Any]) -> Any:
    if op == "read":
        return memory[arguments[0]]
    if op == "write":
        memory[arguments[0]] = np.asarray(arguments[1])
        return arguments[1]
    return OPERATORS[op](*arguments)


def _drawn(draws: int, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of this draw, in [0, 1): the same in each run."""
    steps = np.arange(1, int(np.prod(shape)) + 1)
    return (43758.5453 * np.abs(np.sin(12.9898 * steps + 78.233 * (draws + 1))) % 1).reshape(shape)


def same_bits(first: Any, second: Any) -> bool:
    """Whether two arrays, or lists of arrays, agree bit for bit: 0.0 is not -0.0.

    NaN agrees with NaN, whatever bits it has.
    """
    if isinstance(first, (list, tuple)):
        if not isinstance(second, (list, tuple)) or len(first) != len(second):
            return False
        return all(same_bits(a, b) for a, b in zip(first, second, strict=True))
    a, b = np.asarray(first), np.asarray(second)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    return bool((equal | (np.isnan(a) & np.isnan(b))).all())


def valid(rows: Any, outputs: Any) -> tuple[list[Row], list[int]]:
    """The same rows and outputs; ValueError says what is wrong with them."""
    if not isinstance(rows, (list, tuple)) or not isinstance(outputs, (list, tuple)):
        raise ValueError(f"a program is a list of rows and a list of outputs, not {rows!r:.60}")
    for number, row in enumerate(rows):
        if not (isinstance(row, (list, tuple)) and len(row) == 2 and isinstance(row[0], str)):
            raise ValueError(f"row {number} is {row!r:.60}: a row is (operator, inputs)")
        _check(number, (row[0], row[1]), rows)
    for i in outputs:
        if not _is_row(i, len(rows)):
            raise ValueError(f"an output is row {i!r:.20}, but there are {len(rows)} rows")
    return [(row[0], row[1]) for row in rows], [int(i) for i in outputs]


def _check(number: int, row: Row, rows: Sequence[Row]) -> None:
    op, content = row
    if op in LEAVES:
        return
    if op not in OPERATORS and op not in ("read", "write", "random"):
        raise ValueError(f"row {number} is {row!r:.60}: there is no operator {op!r}")
    if not isinstance(content, (list, tuple)) or not all(_is_row(i, number) for i in content):
        raise ValueError(f"row {number} is {row!r:.60}: its inputs must be earlier rows")
    memory = op in ("read", "write")
    for place, i in enumerate(inputs(row)):
        if (rows[i][0] == "buffer") != (memory and place == 0):
            raise ValueError(f"row {number} is {row!r:.60}: a buffer goes to read and write alone")


def names(*programs: Program) -> list[str]:
    """The names of all placeholders and buffers of these programs, each once."""
    leaves = [row for rows, _ in programs for row in rows if row[0] in ("placeholder", "buffer")]
    return sorted({name for _, name in leaves})


def chosen(rows: Sequence[Row], outputs: Sequence[int], numbers: Iterable[int]) -> Program:
    """The rows of these numbers alone, renumbered, and the outputs' new numbers.

    numbers: with each row, the rows that it reads, and the outputs.
    """
    place = {old: new for new, old in enumerate(sorted(set(numbers)))}
    for old in place:
        for i in inputs(rows[old]):
            if i not in place:
                raise ValueError(f"row {old} stays, but row {i}, which it reads, is left out")
    kept = [
        (op, content if op in LEAVES else tuple(place[i] for i in content))
        for op, content in (rows[old] for old in place)
    ]
    return kept, [place[i] for i in outputs]


def without(rows: Sequence[Row], outputs: Sequence[int], operator: int) -> list[Program]:
    """The program without the operator in this row: one for each value that it reads.

    What read the operator reads that value instead, and what nobody needs any more is left out.
    """
    others = [i for i in dict.fromkeys(inputs(rows[operator])) if rows[i][0] != "buffer"]
    effects = [i for i, (op, _) in enumerate(rows) if op in EFFECTS and i != operator]
    found = []
    for other in others:
        place = [other if i == operator else i for i in range(len(rows))]
        less = [
            (op, content if op in LEAVES else tuple(place[i] for i in content))
            for op, content in rows
        ]
        ends = [place[i] for i in outputs]
        found.append(chosen(less, ends, ancestors(less, [*ends, *effects])))
    return found


def _is_row(i: Any, below: int) -> bool:
    return isinstance(i, (int, np.integer)) and type(i) is not bool and bool(0 <= i < below)
