"""Drawings show what PyTorch reads; widgets only choose their arguments."""

import itertools
import math
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from common import figures
from common.figures import memory_drawings, views
from common.lessons.strides import widget


@pytest.fixture(autouse=True)
def close_figures():
    matplotlib.use("agg")
    yield
    plt.close("all")


def written(ax):
    """The texts in the cells of a buffer's drawing: of the views, then of the storage."""
    return [text.get_text() for text in ax.texts if text.get_horizontalalignment() == "center"]


def test_a_buffer_shows_each_element_by_its_position():
    x = torch.arange(6).view(2, 3)
    ax = memory_drawings.buffer({"x": views.of(x), "x.T": views.of(x.T)})
    assert written(ax) == [*"012345", *"031425", *"012345"]
    grid, transposed, storage = (np.asarray(cells.get_facecolor()) for cells in ax.collections)
    assert np.allclose(grid, storage), "one cell, one colour"
    assert np.allclose(transposed, storage[[0, 3, 1, 4, 2, 5]])


def test_cells_that_no_view_reads_are_grey():
    ax = memory_drawings.buffer({"x[::2]": ((2,), (2,), 0)}, cells=4, text="abcd")
    assert written(ax) == [*"ac", *"abcd"]
    strip = np.asarray(ax.collections[-1].get_facecolor())
    assert [tuple(colour) == memory_drawings.UNREAD for colour in strip] == [
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    "view",
    [
        ((), (), 3),
        ((2, 0), (1, 1), 0),
        ((3,), (0,), 0),
        ((2, 2, 3, 3), (4, 1, 4, 1), 0),
        ((100,), (1,), 0),
        ((2, 3, 4), (12, 4, 1), 0),
    ],
)
def test_any_view_up_to_four_axes_fits_the_page(view):
    ax = memory_drawings.buffer({"view": view})
    figure: Any = ax.figure
    width_in, height_in = figure.get_size_inches()
    assert width_in <= memory_drawings.WIDTH_IN + 0.2 and height_in < 8
    places = np.array([path.get_extents().p0 for path in ax.collections[0].get_paths()]).round(3)
    assert len(np.unique(places, axis=0)) == len(places), "cells lie on each other"
    ax.figure.canvas.draw()


@pytest.mark.parametrize("view, says", [(7, "a view is"), (None, "'mine' is None")])
def test_what_is_not_a_view_is_refused(view, says):
    with pytest.raises(ValueError, match=says):
        memory_drawings.buffer({"mine": view})


def lines_read(ax):
    return np.asarray(ax.lines[0].get_ydata()).tolist()


def test_a_walk_goes_from_line_to_line():
    rows, columns = memory_drawings.walk(
        {"by rows": ((4, 16), (16, 1), 0), "by columns": ((16, 4), (1, 16), 0)}
    )
    assert lines_read(rows) == [step // 16 for step in range(64)]
    assert lines_read(columns) == [step % 4 for step in range(64)]


def test_a_walk_counts_bytes():
    (ax,) = memory_drawings.walk({"float64": ((16,), (1,), 0)}, itemsize=8)
    assert lines_read(ax) == [0] * 8 + [1] * 8


def test_permuted_and_sliced_is_pytorchs():
    ax = memory_drawings.permuted_and_sliced((2, 3), (1, 0), start=1, step=2)
    assert written(ax)[6:8] == [*"14"]
    assert any(text.get_text() == "x.permute(1, 0)[1::2]" for text in ax.texts)


def test_pictures_stand_side_by_side():
    axes = memory_drawings.pictures({"a": np.zeros((2, 2)), "b": [[0, 1]]})
    assert [ax.get_title(loc="left") or ax.get_title() for ax in axes] == ["a", "b"]


def test_the_widget_draws_whatever_is_chosen(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        memory_drawings, "permuted_and_sliced", lambda *choice: drawn.append(choice)
    )
    box = widget.permuted_and_sliced()
    puzzles, above, below, _ = box.children
    (shape, order), (start, step) = above.children, below.children
    assert drawn[-1] == ((3, 4), (1, 0), 0, 1)
    assert "✅" not in puzzles.value
    start.value, step.value = 1, 2
    assert drawn[-1] == ((3, 4), (1, 0), 1, 2)
    assert "✅ strides (2, 4), offset 1" in puzzles.value
    shape.value = (2, 3, 4)
    order.value = (0, 2, 1)
    assert drawn[-1] == ((2, 3, 4), (0, 2, 1), 1, 2)
    assert all(len(shape) == len(order) for shape, order, *_ in drawn), (
        "an order of another shape was drawn"
    )


@pytest.mark.parametrize(
    "got, want, axes",
    [
        (torch.ones(3, 4), torch.zeros(3, 4), 3),
        (np.ones(5), np.zeros(5), 1),
        ([1, 2], [3, 4], 1),
        (torch.full((2, 2), torch.nan), torch.zeros(2, 2), 3),
        (torch.ones(2, 3, 4, dtype=torch.bfloat16), torch.ones(3, 4), 2),
        (None, torch.ones(3), 0),
        ("abc", 1, 0),
        (torch.ones(0, 3), torch.ones(0, 3), 0),
    ],
)
def test_what_came_is_drawn_beside_what_was_wanted_whatever_came(got, want, axes):
    assert len(memory_drawings.compare(got, want, title="f(x)")) == axes
    plt.close("all")


def test_a_walk_shows_which_steps_fetch():
    rows, columns = ((8, 16), (16, 1), 0), ((16, 8), (1, 16), 0)
    axes = memory_drawings.walk({"rows": rows, "a": columns, "b": columns}, rooms=[7, 8, 7])
    assert [ax.get_title().split("\n")[1] for ax in axes] == [
        "8 fetches",
        "8 fetches",
        "128 fetches",
    ]


@pytest.mark.parametrize(
    "lines, room, sets, title",
    [
        ([0, 1, 0, 2, 0, 1], 2, 1, "4 fetches with room for 2 lines"),
        ([0, 2, 4, 0, 2, 4], 2, 2, "6 fetches with room for 2 lines in each of 2 sets"),
        ([0, 2, 5, 0, 2, 5], 2, 2, "3 fetches with room for 2 lines in each of 2 sets"),
    ],
)
def test_visits_count_their_fetches(lines, room, sets, title):
    assert memory_drawings.visits(lines, room, sets=sets).get_title() == title


def test_lines_beyond_the_ways_of_a_set_stand_out():
    (ax,) = memory_drawings.lines_per_set({"column": [8 * row for row in range(5)]}, sets=8, ways=3)
    have_room, too_many = ([bar.get_height() for bar in bars] for bars in ax.containers)
    assert (have_room[0], too_many[0]) == (3, 2) and sum(have_room[1:] + too_many[1:]) == 0


def test_a_view_that_is_missing_is_left_out():
    ax = memory_drawings.wanted_and_yours(None, ((2,), (1,), 0))
    assert "yours" in [text.get_text() for text in ax.texts]
    assert "wanted" not in [text.get_text() for text in ax.texts]


def described(ax):
    figure: Any = ax.figure
    return figures.DESCRIPTIONS[figure]


def test_times_and_blocks_say_in_words_what_they_show():
    ax = memory_drawings.times({"a": 1e-6, "b": 0.05}, title="two")
    assert "a 1.0 µs, b 50.0 ms" in described(ax)
    axes = memory_drawings.by_block(
        {1: 1.0, 16: 0.1, 32: 0.1, 64: 1}, {4: 0.3, 64: 0.1, 256: 0.2}, 0.05, 1024
    )
    assert "least: 16 and 32" in axes[0].get_legend_handles_labels()[1]
    assert "least at 16 and 32" in described(axes[0])
    assert "least at 64" in described(axes[0])


def test_every_puzzle_of_the_widget_has_a_solution():
    settings = itertools.product(widget.SHAPES, range(3), range(1, 4))
    found = {
        views.of(torch.arange(math.prod(shape)).view(shape).permute(order)[start::step])[1:]
        for shape, start, step in settings
        for order in itertools.permutations(range(len(shape)))
    }
    assert set(widget.PUZZLES) <= found
    assert widget.puzzle_list({0, 1, 2}).count("✅") == 3
    assert "All three" not in widget.puzzle_list({1})
