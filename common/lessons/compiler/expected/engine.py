"""Lab 07's engine: the student's own, if their notebook has it, or else ours.

Later labs take graphs from it. It stands here because it answers lab 07's exercises.
"""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import graphs, paths
from common.checks import clinic
from common.graphs import DEAD, FLAT, LINEAR, evaluate

NAMES = ("Node", "topological_order", "run", "vjp", "gradients")
FILE = paths.LABS / "07_autodiff.ipynb"


class Node(graphs.Arithmetic):
    """One value of a dataflow graph: the operator that makes it and the nodes that it reads."""

    def __init__(self, op: str, *inputs: Any, value: Any = None, name: str | None = None) -> None:
        self.op, self.name, self.value = op, name, value
        self.inputs = tuple(x if isinstance(x, Node) else Node("constant", value=x) for x in inputs)
        values = [x.value for x in self.inputs]
        if inputs and all(x is not None for x in values):
            self.value = evaluate(op, *values)


def topological_order(outputs: list[Node]) -> list[Node]:
    """The nodes that these outputs need, each once and after its inputs."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(node, False) for node in outputs]
    while stack:
        node, inputs_are_listed = stack.pop()
        if inputs_are_listed:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((x, False) for x in node.inputs)
    return order


def vjp(node: Node, g: Node) -> tuple[Any, ...]:
    """The adjoint of each input of node, as new nodes, where g is node's own; None for none."""
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x: Any = node.inputs[0]
    y: Any = node.inputs[-1]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    return rules[node.op]()


def gradients(output: Node, inputs: list[Node]) -> list[Node]:
    """The derivatives of the sum of output by each of the inputs, as new nodes of the graph."""
    adjoints: dict[Node, Any] = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node]), strict=True):
                if g is not None:
                    g = g.sum_like(x)
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]


OURS = {"Node": Node, "topological_order": topological_order, "gradients": gradients}


def engine(file: Path = FILE) -> tuple[dict[str, Any], str]:
    """{name: the engine's} and whose it is: "yours" if the notebook has a whole one, or "ours"."""
    try:
        names = _own(json.loads(file.read_text(encoding="utf-8")))
        x = names["Node"]("placeholder", name="x")
        rows, outputs = training_like(names, x)
        if graphs.operators(rows) > 0 and outputs:
            return names, "yours"
    except Exception:  # noqa: S110 - whatever an unfinished notebook raises: then it is not whole
        pass
    return OURS, "ours"


def training_like(names: dict[str, Any], x: Any) -> graphs.Program:
    """A gradient that only a whole engine makes, as rows."""
    f = (x * x).tanh().sum()
    found = [f, *names["gradients"](f, [x])]
    return graphs.as_rows(names["topological_order"](found), found)


def _own(notebook: Any) -> dict[str, Any]:
    """What the cells of a notebook define that define an engine."""
    names: dict[str, Any] = {
        **{"graphs": graphs, "evaluate": evaluate, "np": np, "functools": functools},
        **{"DEAD": DEAD, "FLAT": FLAT, "LINEAR": LINEAR, "clinic": clinic, "time": time},
    }
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        starts = [f"class {name}" for name in NAMES] + [f"def {name}(" for name in NAMES]
        hole = "hole" in cell.get("metadata", {}).get("tags", [])
        if hole and any(start in text for start in starts):
            exec(compile(text, "<your lab 07>", "exec"), names)  # noqa: S102 - the reader's own
    return names


def training_step(names: dict[str, Any], rate: float = 0.5) -> graphs.Program:
    """Lab 07's step of gradient descent as rows: a network of two layers on (B, 64) images."""
    leaves = ("images", "labels", "w1", "b1", "w2", "b2")
    images, labels, *p = (names["Node"]("placeholder", name=name) for name in leaves)
    z = (images @ p[0] + p[1]).relu() @ p[2] + p[3]
    z = z - z.row_max().detach()
    loss = (z.exp().row_sum().log() - (labels * z).row_sum()).mean()
    found = names["gradients"](loss, p)
    outputs = [loss, *(w - rate * g for w, g in zip(p, found, strict=True))]
    return graphs.as_rows(names["topological_order"](outputs), outputs)
