"""What lab 07's drivers do with a student's engine: graphs go in as rows, and data come out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from common.graphs.nodes import as_nodes
from common.graphs.operators import DEAD, evaluate
from common.graphs.rows import Row, ancestors, operators

LOOKS = 20  # per node: a walk that looks at a node's inputs more often follows every path
LOOKS_OF_ALL = 200  # the same for an answer that walks the graph several times
COMPARISONS = 50  # per node: a search in a list makes many more
FEW = 50  # nodes: a smaller graph is no trouble
NESTED_CALLS = 1000  # Python's own limit


class Effort:
    """How often an answer looked at the inputs of nodes, and compared two nodes.

    who: looked, in words. looks: per node, that are allowed.
    """

    def __init__(self, who: str, looks: int) -> None:
        self.who, self.looks_per_node = who, looks
        self.nodes = self.looks = self.comparisons = 0

    def look(self) -> None:
        self.looks += 1
        if self.looks > self.looks_per_node * max(self.nodes, FEW):
            raise AssertionError(
                f"{self.who} looked {self.looks:,} times at the inputs of {self.nodes:,} "
                "nodes: it follows every path. A node that was seen is not walked again."
            )

    def compare(self) -> None:
        self.comparisons += 1
        if self.comparisons > COMPARISONS * max(self.nodes, FEW):
            raise AssertionError(
                f"{self.who} compared nodes {self.comparisons:,} times for {self.nodes:,} "
                "nodes: `in` searches a list from its start. Keep what you have seen in a set."
            )


def watched(node: Any, effort: Effort) -> Any:
    """A subclass of an engine's node class that notes the looks at the inputs of its nodes."""

    class Watched(node):
        @property
        def inputs(self) -> Any:
            effort.look()
            if "inputs" not in self.__dict__:
                raise AttributeError  # and the node says what is missing
            return self.__dict__["inputs"]

        @inputs.setter
        def inputs(self, inputs: Any) -> None:
            effort.nodes += "inputs" not in self.__dict__
            self.__dict__["inputs"] = inputs

    return Watched


def compared(node: Any, effort: Effort) -> Any:
    """A subclass of a node class that notes when two of its nodes are compared."""

    class Compared(node):
        def __eq__(self, other: object) -> bool:
            effort.compare()
            return self is other

        def __hash__(self) -> int:
            return id(self) // 16

    return Compared


def walked(rows: Sequence[Row], node: Any, who: str) -> list[Any]:
    """The graph of these rows as nodes of this class; a walk along all its paths is ended.

    who: walks, in words. AssertionError, when the inputs of nodes were looked at too often.
    """
    return as_nodes(rows, watched(node, Effort(who, LOOKS_OF_ALL)))


def order_of(
    rows: Sequence[Row], outputs: Sequence[int], node: Any, topological_order: Callable[..., Any]
) -> list[int]:
    """The rows in the order that topological_order gives, for nodes of this class."""
    effort = Effort("topological_order", LOOKS)
    made = as_nodes(rows, compared(watched(node, effort), effort))
    number = {id(x): i for i, x in enumerate(made)}
    topological_order(made[:1])  # an earlier call leaves nothing behind
    effort.looks = effort.comparisons = 0
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(NESTED_CALLS)
    try:
        asked = [made[i] for i in outputs]
        order = topological_order(asked)
        if [id(x) for x in asked] != [id(made[i]) for i in outputs]:
            raise AssertionError("topological_order changed the list of outputs: copy it first")
        if sys.getrecursionlimit() != NESTED_CALLS:
            raise AssertionError("sys.setrecursionlimit is not allowed: keep your own stack")
    finally:
        sys.setrecursionlimit(before)
    if not isinstance(order, list):
        raise AssertionError(f"topological_order gave a {type(order).__name__}, want a list")
    return [number.get(id(x), -1) for x in order]


def values_of(
    rows: Sequence[Row],
    outputs: Sequence[int],
    feeds: Sequence[Mapping[str, Any]],
    node: Any,
    run: Callable[..., Any],
) -> list[list[np.ndarray]]:
    """What run gives on the graph of these rows, once for each of the feeds."""
    unnamed = [(op, "x" if op == "placeholder" else inputs) for op, inputs in rows]
    made, results = walked(unnamed, node, "run, or the topological_order that it calls,"), []
    needed = operators([rows[i] for i in ancestors(rows, outputs)])
    for feed in feeds:
        ran = []

        def once(op: str, *values: Any, ran: list[str] = ran) -> Any:
            ran.append(op)
            if len(ran) > needed:
                raise AssertionError(
                    f"run evaluated {len(ran)} operators of {needed}: one of them twice, or once "
                    "for each of its users"
                )
            return evaluate(op, *values)

        named = {made[i]: feed[name] for i, (op, name) in enumerate(rows) if op == "placeholder"}
        values = run([made[i] for i in outputs], named, once)
        if not isinstance(values, (list, tuple)):
            raise AssertionError(f"run gave a {type(values).__name__}, want a list")
        if needed and not ran and not results:
            raise AssertionError("run never calls the evaluate that it is given")
        if needed and not ran and _same(feed, feeds[0]):
            raise AssertionError("run kept what an earlier run computed: compute it anew each time")
        if len(named) != len(feed):
            raise AssertionError("run writes into feeds: they are the caller's, so copy them")
        results.append([np.asarray(value) for value in values])
    return results


def _same(feed: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(np.array_equal(feed[name], other[name]) for name in feed)


def counted_run(
    run: Callable[..., Any], outputs: Sequence[Any], feeds: Mapping[Any, Any]
) -> tuple[list[Any], int]:
    """run's values, and how many operators it evaluated: those on a dead branch do not count."""
    alive = []

    def counting(op: str, *values: Any) -> Any:
        value = evaluate(op, *values)
        alive.extend([op] if value is not DEAD else [])
        return value

    return run(outputs, feeds, counting), len(alive)
