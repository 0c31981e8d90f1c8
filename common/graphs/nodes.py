"""Nodes that an engine makes: their arithmetic, and graphs of them as rows and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from common.graphs.operators import OPERATORS
from common.graphs.rows import LEAVES, Row

FIELDS = ("op", "inputs", "value", "name")


class Arithmetic:
    """The methods of a node: `x * y`, `-x`, `2 / x` and `x.sin()` make a new node.

    A subclass writes `__init__(self, op, *inputs, value=None, name=None)`, which records these
    four. `x * y` calls it with "multiply", x and y, and `x.sin()` with "sin" and x. An input may be
    a plain number or an array.
    """

    __array_ufunc__ = None  # array * node asks the node
    op: str
    inputs: tuple[Any, ...]
    value: Any
    name: str | None

    def __init__(self, op: str, *inputs: Any, value: Any = None, name: str | None = None) -> None:
        raise NotImplementedError

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op in FIELDS:
            raise AttributeError(f"Node.__init__ has not set self.{op}")
        if op not in OPERATORS:
            raise AttributeError(f"there is no operator {op!r}")
        return lambda *others: type(self)(op, self, *others)

    def __bool__(self) -> bool:
        if self.value is None:
            raise TypeError("this node has no value before run(): Python's `if` can't choose")
        return bool(self.value)

    def __repr__(self) -> str:
        return f"Node({self.op!r}, {len(self.inputs)} inputs, value={self.value!r})"

    def __neg__(self) -> Any:
        return type(self)("negative", self)

    def __add__(self, other: Any) -> Any:
        return type(self)("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return type(self)("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return type(self)("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return type(self)("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return type(self)("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return type(self)("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return type(self)("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return type(self)("divide", other, self)

    def __matmul__(self, other: Any) -> Any:
        return type(self)("matmul", self, other)

    def __gt__(self, other: Any) -> Any:
        return type(self)("greater", self, other)


def as_nodes(rows: Iterable[Row], node: Callable[..., Any]) -> list[Any]:
    """The graph of these rows as nodes, one per row. node: the engine's class."""
    made: list[Any] = []
    for op, inputs in rows:
        if op == "placeholder":
            made.append(node(op, name=inputs))
        elif op == "constant":
            made.append(node(op, value=inputs))
        else:
            made.append(node(op, *(made[i] for i in inputs)))
    return made


def _value_of_constant(node: Any) -> Any:
    if isinstance(node.value, np.ndarray) and node.value.dtype.hasobject:
        raise ValueError(
            f"a constant has the value {node.value!r}: it was made of a node that has no value "
            "before run(). Make a node instead, as with x.ones_like()"
        )
    return node.value


def as_rows(order: Iterable[Any], outputs: Sequence[Any]) -> tuple[list[Row], list[int]]:
    """The graph of these nodes as rows, and the numbers of the outputs' rows.

    order: all nodes that the outputs need, each after its inputs.
    """
    order = list(order)
    number: Mapping[Any, int] = {node: i for i, node in enumerate(order)}
    leaf = {"placeholder": lambda node: node.name, "constant": _value_of_constant}
    rows = [
        (
            node.op,
            leaf[node.op](node) if node.op in LEAVES else tuple(number[x] for x in node.inputs),
        )
        for node in order
    ]
    return rows, [number[node] for node in outputs]
