"""Graphs as data: what they compute, what is refused, and that a drawing can be read."""

from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from common import graphs
from common.graphs import layout

matplotlib.use("agg")

SWITCH = [
    ("placeholder", "x"),
    ("constant", 0.0),
    ("greater", (0, 1)),
    ("switch_true", (2, 0)),
    ("switch_false", (2, 0)),
    ("multiply", (3, 3)),
    ("sin", (4,)),
    ("merge", (2, 5, 6)),
]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def alive(values):
    """The same values, none of which is dead."""
    assert all(value is not None for value in values)
    return values


def random_graphs(rng, count=20):
    for placeholders in rng.integers(1, 5, count).tolist():
        yield placeholders, graphs.random_graph(rng, 15, placeholders)


def test_values_are_computed_row_by_row():
    rows = [
        ("placeholder", "x"),
        ("constant", 2.0),
        ("multiply", (0, 1)),
        ("sum", (2,)),
        ("sum_like", (0, 3)),
    ]
    results = graphs.evaluated(rows, range(5), {"x": torch.tensor([1.0, 2.0])})
    assert [value.tolist() for value in alive(results)] == [[1, 2], 2, [2, 4], 6, 3]
    assert alive(results)[2].dtype == torch.float32, "a number takes the dtype of what it meets"


@pytest.mark.parametrize("x, want", [(3.0, 9.0), (-3.0, np.sin(-3.0))])
def test_a_branch_that_is_not_taken_is_dead(x, want):
    results = graphs.values(SWITCH, {"x": torch.tensor(x, dtype=torch.float64)})
    assert alive(results[-1:])[0].item() == want
    assert [value is None for value in results] == [False] * 3 + [x < 0, x > 0] * 2 + [False]


@pytest.mark.parametrize(
    "row, says",
    [
        (("sqrt", (0,)), "no operator 'sqrt'"),
        (("sin", (1,)), "earlier rows"),
        (("sin", (-1,)), "earlier rows"),
        (("sin", (0.0,)), "earlier rows"),
        (("constant", None), "detached"),
    ],
)
def test_an_invalid_row_is_refused(row, says):
    with pytest.raises(ValueError, match=says):
        graphs.values([("placeholder", "x"), row], {"x": torch.zeros(1)})


def test_random_graphs_are_finite_and_use_all_placeholders(rng):
    for placeholders, rows in random_graphs(rng):
        feeds = {f"x{i}": torch.tensor(rng.normal(size=(2, 3))) for i in range(placeholders)}
        assert all(torch.isfinite(value).all() for value in alive(graphs.values(rows, feeds)))
        assert set(range(placeholders)) <= graphs.ancestors(rows, [len(rows) - 1])


def test_ancestors_and_operators():
    assert graphs.ancestors(SWITCH, [5]) == {0, 1, 2, 3, 5}
    assert graphs.operators(SWITCH) == 6


def test_an_oracle_that_differences_do_not_confirm_is_refused():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin()

        @staticmethod
        def backward(ctx, *g):
            return g

    x = torch.linspace(0.5, 1, 3, dtype=torch.float64)
    assert torch.allclose(graphs.gradient(torch.sin, [x], 2.0)[0], 2 * x.cos())
    assert torch.allclose(graphs.tangent(torch.sin, [x], [x])[1], x * x.cos())
    with pytest.raises(AssertionError):
        graphs.gradient(Wrong.apply, [x])


def test_adjoints_have_their_inputs_shapes():
    rows = [
        ("placeholder", "x0"),
        ("placeholder", "x1"),
        ("placeholder", "g"),
        ("multiply", (2, 1)),
        ("multiply", (2, 0)),
    ]
    x = [torch.ones(2, 3), torch.ones(3)]
    shapes = [v.shape for v in alive(graphs.adjoints(rows, [3, 4], x, torch.ones(2, 3)))]
    assert shapes == [(2, 3), (3,)]
    assert graphs.adjoints(rows, [None, 4], x, torch.ones(2, 3))[0] is None


def test_in_a_drawing_rows_follow_their_inputs_and_no_two_overlap(rng):
    for _, rows in random_graphs(rng):
        middle = len(rows) // 2
        place = layout.places(
            {i: graphs.inputs(row) for i, row in enumerate(rows)},
            graphs.ancestors(rows, [middle]),
            [middle],
        )
        points = np.array([place[i] for i in range(len(rows))])
        distances = np.linalg.norm(points[:, None] - points, axis=-1)[np.triu_indices(len(rows), 1)]
        assert distances.min() > 2 * 0.31
        forward = graphs.ancestors(rows, [middle])
        for i in forward:
            assert all(place[j][0] < place[i][0] for j in graphs.inputs(rows[i]))


def test_every_graph_can_be_drawn(rng):
    values = graphs.values(SWITCH, {"x": torch.tensor(3.0)})
    cases: list[tuple[list, list[int], dict[str, Any]]] = [
        ([("placeholder", "x")], [0], {}),
        (SWITCH, [7], {"values": values, "names": {7: "f"}}),
        (SWITCH, [2, 7], {"title": "two outputs", "values": [float("nan")] * 8}),
    ]
    for rows, outputs, options in cases:
        graphs.draw(rows, outputs, **options).figure.canvas.draw()
        plt.close("all")
