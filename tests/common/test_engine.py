"""What an engine is made of, as far as no student writes it: operators, arithmetic, trials."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from common import graphs
from common.graphs.trials import COMPARISONS, LOOKS
from common.lessons.autodiff import widget

matplotlib.use("agg")

F = [("placeholder", "x"), ("placeholder", "y")]
F += [("multiply", (0, 1)), ("sin", (0,)), ("add", (2, 3))]


class Node(graphs.Arithmetic):
    """A node that records, and never computes."""

    def __init__(self, op, *inputs, value=None, name=None):
        self.op, self.value, self.name = op, value, name
        self.inputs = tuple(x if isinstance(x, Node) else Node("constant", value=x) for x in inputs)


def in_order(outputs):
    order = []

    def visit(node):
        if node not in order:
            for x in node.inputs:
                visit(x)
            order.append(node)

    for node in outputs:
        visit(node)
    return order


@pytest.mark.parametrize("op", sorted(set(graphs.OPERATORS) - {"size"}))
def test_an_operator_is_pytorch_s(op):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.5, 2, (3, 3)), rng.uniform(0.5, 2, (1, 3))
    count = {"matmul": 2, "merge": 3}.get(op) or (
        2 if op in ("add", "subtract", "multiply", "divide", "greater") or "_like" in op else 1
    )
    inputs = [True, x, y][:count] if op == "merge" else [x, x if op == "matmul" else y][:count]
    inputs = [True, x] if op.startswith("switch") else inputs
    inputs = [y, x] if op == "broadcast_like" else inputs
    inputs = [x] if op in ("zeros_like", "ones_like") else inputs
    images = rng.uniform(0.5, 2, (2, 3, 5, 5))
    if op == "convolve":
        inputs = [images, rng.normal(size=(4, 3, 2, 2)), rng.normal(size=4)]
    if op == "batch_norm":
        inputs = [images, *rng.uniform(0.5, 2, (4, 3))]
    got = graphs.evaluate(op, *inputs)
    want = graphs.torch_operator(op)(*(torch.tensor(value) for value in inputs))
    if want is None:
        assert got is graphs.DEAD
    else:
        np.testing.assert_allclose(got, want.numpy())


def test_what_reads_a_dead_value_is_dead_unless_it_merges():
    assert graphs.evaluate("sin", graphs.DEAD) is graphs.DEAD
    assert graphs.evaluate("merge", True, 1.0, graphs.DEAD) == 1.0


def test_linear_operators_are_linear_and_flat_ones_are_known():
    rng = np.random.default_rng(0)
    for op in graphs.LINEAR:
        count = 2 if op in ("add", "subtract") else 1
        a, b = ([rng.normal(size=(2, 3)) for _ in range(count)] for _ in range(2))
        both = graphs.evaluate(op, *(x + y for x, y in zip(a, b, strict=True)))
        np.testing.assert_allclose(both, graphs.evaluate(op, *a) + graphs.evaluate(op, *b))
    assert set(graphs.FLAT) <= set(graphs.OPERATORS)


def test_arithmetic_makes_nodes_and_says_what_is_missing():
    x, y = Node("placeholder", name="x"), Node("placeholder", name="y")
    rows, outputs = graphs.as_rows(in_order([x * y + x.sin()]), [x])
    assert (rows, outputs) == ([F[0], F[1], ("multiply", (0, 1)), ("sin", (0,)), F[4]], [0])
    for node, op in [
        *((2.0 - x, "subtract"), (2.0 / x, "divide"), (-x, "negative"), (x > 0.0, "greater")),
        *((np.ones(2) + x, "add"), (np.ones(2) * x, "multiply"), (x @ y, "matmul")),
    ]:
        assert node.op == op
    with pytest.raises(AttributeError, match="no operator 'sqrt'"):
        x.sqrt()
    with pytest.raises(TypeError, match="can't choose"):
        bool(x)
    with pytest.raises(AttributeError, match="has not set self.value"):
        _ = Node.__new__(Node).value


def test_rows_become_nodes_and_rows_again():
    for rows in (F, [("constant", 2.0), ("exp", (0,))]):
        made = graphs.as_nodes(rows, Node)
        assert graphs.as_rows(made, made[-1:]) == (rows, [len(rows) - 1])


def test_a_formula_reads_as_a_program():
    assert graphs.formula(F, [4]) == "(x * y) + sin(x)"
    assert graphs.formula([*F, ("divide", (4, 4))], [5]) == "v4 = (x * y) + sin(x); v4 / v4"
    doubled = [F[0], *(("add", (i, i)) for i in range(60))]
    assert graphs.formula(doubled, [60]) == "a graph of 61 nodes"
    assert "..." in graphs.formula(doubled[:41], [40])


def test_a_slow_order_is_refused_by_what_it_looks_at():
    doubled = [F[0], *(("add", (i, i)) for i in range(60))]
    chain = [F[0], *(("sin", (i,)) for i in range(500))]

    def by_paths(outputs):
        stack, order = list(outputs), []
        while stack:
            order.append(stack.pop())
            stack += order[-1].inputs
        return order

    def run_by_paths(outputs, feeds, evaluate):
        by_paths(outputs)

    with pytest.raises(AssertionError, match="^topological_order looked.*follows every path"):
        graphs.order_of(doubled, [60], Node, by_paths)
    with pytest.raises(AssertionError, match="^run, or the topological_order.*every path"):
        graphs.values_of(doubled, [60], [{"x": 1.0}], Node, run_by_paths)
    last = graphs.walked(doubled, Node, "gradients")[-1]
    with pytest.raises(AssertionError, match="^gradients looked .* of 61 nodes"):
        by_paths([last])
    with pytest.raises(AssertionError, match="of 62 nodes"):
        by_paths([last * last])  # what an answer makes of nodes counts, too

    def with_a_list(outputs):
        node, seen = outputs[0], []
        while node.inputs and node not in seen:
            seen.append(node)
            node = node.inputs[0]
        return seen[::-1]

    with pytest.raises(AssertionError, match="in a set"):
        graphs.order_of(chain, [500], Node, with_a_list)
    assert graphs.order_of(F, [4], Node, in_order) == [0, 1, 2, 3, 4]
    assert min(LOOKS, COMPARISONS) >= 20


def test_operations_on_counted_arrays_are_counted():
    x = graphs.counted([1.0, 2.0])
    assert graphs.operations(lambda: x.reshape(2, 1)) == 0
    assert graphs.operations(lambda: np.sin(x) * x + 1.0) == 3
    assert graphs.operations(lambda: np.sum(x)) == 1
    assert type(np.sin(x)) is graphs.Counted


def test_pytorch_s_tape_is_read_after_its_inputs():
    x, y = (torch.tensor(value, requires_grad=True) for value in (2.0, 3.0))
    rows = graphs.torch_tape(x * y + x.sin(), {"x": x, "y": y})
    assert [op for op, _ in rows if "Backward" in op] == [
        "MulBackward0",
        "SinBackward0",
        "AddBackward0",
    ]
    assert all(j < i for i, row in enumerate(rows) for j in graphs.inputs(row))


@pytest.mark.slow
def test_a_walk_backward_gives_each_contribution():
    walk = graphs.walk(F, {"x": 2.0, "y": 3.0})
    assert walk.visited == [4, 3, 2]
    assert [set(arrived) for arrived in walk.arrived] == [
        {4},
        {2, 3, 4},
        {0, 2, 3, 4},
        {0, 1, 2, 3, 4},
    ]
    assert walk.arrived[-1][0] == pytest.approx([np.cos(2.0), 3.0])
    for steps in range(4):
        graphs.draw_walk(F, walk, steps).figure.canvas.draw()
        plt.close("all")


@pytest.mark.parametrize(
    "x, y, arrived, says",
    [
        (2, 3, [1.0], "1 of 2"),
        (2, 3, [-0.4, 3.0], "Wanted"),
        (0, -1, [1.0, -1.0], "neither"),
        (1, -0.5, [0.54, -0.5], "reached"),
    ],
)
def test_the_widget_says_when_its_target_is_reached(x, y, arrived, says):
    assert says in widget.about_x(x, y, arrived)
