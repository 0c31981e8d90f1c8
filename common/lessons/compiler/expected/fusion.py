"""Graphs to fuse, the number of kernels that is enough, and judges of emitted kernels: lab 08."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import graphs
from common.checks import agree, expect, show
from common.graphs import ELEMENTWISE, LEAVES, Row
from common.lessons.compiler import emitted

Shape = tuple[int, ...]
Graph = tuple[list[Row], list[int], list[Shape]]
SAFE = ("negative", "sin", "cos", "tanh", "relu", "step", "add", "subtract", "multiply")
BINARY = ("add", "subtract", "multiply")
REDUCTIONS = ("row_sum", "row_max")
ROWS, COLUMNS = 6, 20


def graph(rows: Sequence[Row], outputs: Sequence[int]) -> Graph:
    return list(rows), list(outputs), emitted.shapes_of(rows, feeds(np.random.default_rng(0)))


def feeds(rng: np.random.Generator, rows: int = ROWS, columns: int = COLUMNS) -> dict[str, Tensor]:
    """x, y (N, M), b (M,) and s (N, 1), float32."""
    sizes = {"x": (rows, columns), "y": (rows, columns), "b": (columns,), "s": (rows, 1)}
    return {name: torch.tensor(rng.normal(size=size)).float() for name, size in sizes.items()}


LEAF_ROWS: list[Row] = [
    *(("placeholder", name) for name in ("x", "y", "b", "s")),
    *(("constant", 0.5), ("constant", -2.0)),
]


def group_cases(rng: np.random.Generator) -> Iterator[tuple[str, Graph]]:
    """(sentence, graph): by hand for one mistake each, then 300 random ones."""
    leaves, n = LEAF_ROWS, len(LEAF_ROWS)
    chain = [*leaves, ("multiply", (0, 3)), ("add", (n, 2)), ("tanh", (n + 1,))]
    yield "a chain of three operators is one kernel", graph(chain, [n + 2])
    across = [*leaves, ("tanh", (0,)), ("row_sum", (n,)), ("multiply", (0, n + 1))]
    yield (
        "a reduction is no element-wise operator: nothing is fused with it",
        graph(across, [n + 2]),
    )
    twice = [*leaves, ("tanh", (0,)), ("sin", (n,)), ("cos", (n,))]
    sentence = "tanh has two readers: fused into both, it would be computed twice"
    yield sentence, graph(twice, [n + 1, n + 2])
    square = [*leaves, ("tanh", (0,)), ("multiply", (n, n))]
    yield "one reader that reads twice is one reader", graph(square, [n + 1])
    shown = [*leaves, ("tanh", (0,)), ("sin", (n,))]
    yield "an output has to be stored, so another kernel can't swallow it", graph(shown, [n, n + 1])
    narrow = [*leaves, ("tanh", (3,)), ("multiply", (0, n))]
    yield "tanh of a column has N elements, the product N·M: two kernels", graph(narrow, [n + 1])
    for _ in range(300):
        yield "", random_graph(rng)


def random_graph(rng: np.random.Generator, operators: int = 9) -> Graph:
    """Element-wise operators on arrays, rows, columns and constants, and reductions."""
    rows = list(LEAF_ROWS)
    for _ in range(operators):
        wide = [i for i, (op, _) in enumerate(rows) if op != "constant"]
        a = int(rng.choice(wide[-4:] if rng.random() < 0.7 else wide))
        op = str(rng.choice(SAFE if rng.random() < 0.85 or _is_row(rows, a) else REDUCTIONS))
        binary = op in BINARY
        rows.append((op, (a, int(rng.integers(len(rows)))) if binary else (a,)))
    outputs = [len(rows) - 1]
    if rng.random() < 0.3:
        outputs.append(int(rng.integers(len(LEAF_ROWS), len(rows))))
    rows, outputs = graphs.chosen(rows, outputs, graphs.ancestors(rows, outputs))
    return graph(rows, outputs)


def _is_row(rows: Sequence[Row], i: int) -> bool:
    """Whether this value may be a row (M,), along which we do not reduce."""
    op, content = rows[i]
    if op in LEAVES:
        return content == "b"
    return all(_is_row(rows, j) or rows[j][0] == "constant" for j in content)


def reference_groups(given: Graph) -> int:
    """How many kernels are enough: an operator joins its only reader if both are fusible."""
    rows, outputs, shapes = given
    joined = 0
    for i, (op, _) in enumerate(rows):
        readers = {j for j, row in enumerate(rows) if i in graphs.inputs(row)}
        if op in ELEMENTWISE and len(readers) == 1 and i not in outputs:
            (reader,) = readers
            joined += rows[reader][0] in ELEMENTWISE and shapes[reader] == shapes[i]
    return graphs.operators(rows) - joined


def judge_groups(sentence: str, given: Graph, groups: Any) -> None:
    """Expects groups that can run one after the other, each a kernel, and few enough."""
    rows, outputs, shapes = given
    text = graphs.formula(rows, outputs)
    case = f"{sentence and sentence + '.'}\nfusion_groups of `{text}` gave {show(groups)}"
    draw = functools.partial(draw_groups, given, groups)
    made = [i for i, (op, _) in enumerate(rows) if op not in LEAVES]
    known = isinstance(groups, list) and all(isinstance(group, (list, tuple)) for group in groups)
    expect(known, f"{case.strip()}, want a list of lists of rows.")
    listed = sorted(i for group in groups for i in group)
    expect(listed == made, f"{case.strip()}: want each operator once, {made}.", draw=draw)
    done: set[int] = set()
    for group in groups:
        _judge_group(case.strip(), given, group, done, draw)
        done.update(group)
    enough = reference_groups(given)
    few = len(groups) <= enough
    expect(few, f"{case.strip()}: {len(groups)} kernels, want at most {enough}.", draw=draw)


def _judge_group(case: str, given: Graph, group: Sequence[int], done: set[int], draw: Any) -> None:
    rows, outputs, shapes = given
    members = set(group)
    for i in group:
        early = [j for j in graphs.inputs(rows[i])
                 if rows[j][0] not in LEAVES and j not in done and j not in members]  # fmt: skip
        expect(not early, f"{case}: group {[*group]} runs before row {early[:1]}.", draw=draw)
    if len(group) == 1:
        return
    alone = [rows[i][0] for i in group if rows[i][0] not in ELEMENTWISE]
    expect(not alone, f"{case}: {alone[:1]} is fused with other operators.", draw=draw)
    same = len({shapes[i] for i in group}) == 1
    expect(same, f"{case}: group {[*group]} has results of several shapes.", draw=draw)
    readers = {i: {j for j in range(len(rows)) if i in graphs.inputs(rows[j])} for i in group}
    stored = [i for i in group if i in outputs or readers[i] - members or not readers[i]]
    one = stored == [max(group)]
    expect(one, f"{case}: group {[*group]} has to store {stored}, not one value.", draw=draw)


def draw_groups(given: Graph, groups: Any) -> None:
    """The graph, with the number of its kernel beside each operator."""
    rows, outputs, _ = given
    marks = {i: f"kernel {n}" for n, group in enumerate(groups, 1) for i in group}
    graphs.draw(rows, outputs[:1], names=marks, title="your kernels")


def kernel_cases(rng: np.random.Generator) -> Iterator[tuple[Graph, list[int]]]:
    """(graph, group): element-wise graphs that are one kernel."""
    leaves, n = LEAF_ROWS, len(LEAF_ROWS)
    for ops in (
        [("negative", (0,))],
        [("subtract", (0, 2)), ("divide", (n, 4)), ("relu", (n + 1,))],
        [("multiply", (0, 3)), ("add", (n, 2)), ("tanh", (n + 1,)), ("add", (n + 2, 0))],
        [("subtract", (4, 0)), ("multiply", (n, n)), ("subtract", (n + 1, 1))],
        [("tanh", (3,))],
        [("multiply", (2, 5)), ("step", (n,))],
        [("exp", (0,)), ("add", (n, 4)), ("log", (n + 1,)), ("cos", (n + 2,)), ("sin", (n + 3,))],
    ):
        rows = [*leaves, *ops]
        rows, outputs = graphs.chosen(
            rows, [len(rows) - 1], graphs.ancestors(rows, [len(rows) - 1])
        )
        yield graph(rows, outputs), [i for i, (op, _) in enumerate(rows) if op not in LEAVES]
    for _ in range(3):
        yield random_kernel(rng)


def random_kernel(rng: np.random.Generator) -> tuple[Graph, list[int]]:
    """(graph, group): a random chain that reads leaves on its way; its values stay near 1."""
    rows: list[Row] = [*LEAF_ROWS[:4], *(("constant", float(x)) for x in rng.normal(size=2))]
    last, leaves = 0, len(rows)
    for _ in range(3):
        pair = last, int(rng.integers(leaves))
        rows.append((str(rng.choice(BINARY)), pair if rng.random() < 0.5 else pair[::-1]))
        rows.append((str(rng.choice(("sin", "cos", "tanh"))), (len(rows) - 1,)))
        last = len(rows) - 1
    rows, outputs = graphs.chosen(rows, [last], graphs.ancestors(rows, [last]))
    return graph(rows, outputs), [i for i, (op, _) in enumerate(rows) if op not in LEAVES]


def judge_kernel(
    emitter: Any, given: Graph, group: Sequence[int], text: Any, rng: np.random.Generator
) -> None:
    """Expects that an emitted kernel is right, and moves each byte once."""
    rows, _, shapes = given
    formula = graphs.formula(rows, [group[-1]])
    case = f"The kernel that fuse_elementwise emits for `{formula}`"
    expect(isinstance(text, str), f"{case} is {show(text)}, want a str.")
    given_feeds = feeds(rng)
    values = graphs.values(rows, {name: x.double() for name, x in given_feeds.items()})
    want = values[group[-1]]
    reads = sorted({j for i in group for j in rows[i][1]} - set(group))
    arrays = [given_feeds[rows[j][1]] for j in reads if rows[j][0] == "placeholder"]
    out = torch.full(shapes[group[-1]], torch.nan)
    before = [x.clone() for x in arrays]
    report = emitted.count(emitter, text, arrays, out, block=16)
    stepped = {"A masked load and store: the last program has fewer elements.": None}
    assert want is not None  # noqa: S101
    agree(out, want.float(), f"{case}: out", rtol=2e-5, atol=2e-5, mistakes=stepped)
    agree(arrays, before, f"{case}: its inputs afterwards")
    programs = -(-out.numel() // 16)
    loads = report.loads.requests, report.stores.requests
    expect(
        loads == (len(arrays) * programs, programs),
        f"{case} makes {loads[0] / programs:g} loads and {loads[1] / programs:g} stores per "
        f"program, want {len(arrays)} and 1: each array once, and the result.",
    )
