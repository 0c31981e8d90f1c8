"""Drawings show what PyTorch reads; widgets only choose their arguments."""

from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from common import drawings, views, widgets


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
    ax = drawings.buffer({"x": views.of(x), "x.T": views.of(x.T)})
    assert written(ax) == [*"012345", *"031425", *"012345"]
    grid, transposed, storage = (np.asarray(cells.get_facecolor()) for cells in ax.collections)
    assert np.allclose(grid, storage), "one cell, one colour"
    assert np.allclose(transposed, storage[[0, 3, 1, 4, 2, 5]])


def test_cells_that_no_view_reads_are_grey():
    ax = drawings.buffer({"x[::2]": ((2,), (2,), 0)}, cells=4, text="abcd")
    assert written(ax) == [*"ac", *"abcd"]
    strip = np.asarray(ax.collections[-1].get_facecolor())
    assert [tuple(colour) == drawings.UNREAD for colour in strip] == [False, True, False, True]


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
    ax = drawings.buffer({"view": view})
    figure: Any = ax.figure
    width_in, height_in = figure.get_size_inches()
    assert width_in <= drawings.WIDTH_IN + 0.2 and height_in < 8
    places = np.array([path.get_extents().p0 for path in ax.collections[0].get_paths()]).round(3)
    assert len(np.unique(places, axis=0)) == len(places), "cells lie on each other"
    ax.figure.canvas.draw()


@pytest.mark.parametrize("view, says", [(7, "a view is"), (None, "'mine' is None")])
def test_what_is_not_a_view_is_refused(view, says):
    with pytest.raises(ValueError, match=says):
        drawings.buffer({"mine": view})


def lines_read(ax):
    return np.asarray(ax.lines[0].get_ydata()).tolist()


def test_a_walk_goes_from_line_to_line():
    rows, columns = drawings.walk(
        {"by rows": ((4, 16), (16, 1), 0), "by columns": ((16, 4), (1, 16), 0)}
    )
    assert lines_read(rows) == [step // 16 for step in range(64)]
    assert lines_read(columns) == [step % 4 for step in range(64)]


def test_a_walk_counts_bytes():
    (ax,) = drawings.walk({"float64": ((16,), (1,), 0)}, itemsize=8)
    assert lines_read(ax) == [0] * 8 + [1] * 8


def test_permuted_and_sliced_is_pytorchs():
    ax = drawings.permuted_and_sliced((2, 3), (1, 0), start=1, step=2)
    assert written(ax)[6:8] == [*"14"]
    assert any(text.get_text() == "x.permute(1, 0)[1::2]" for text in ax.texts)


def test_pictures_stand_side_by_side():
    axes = drawings.pictures({"a": np.zeros((2, 2)), "b": [[0, 1]]})
    assert [ax.get_title(loc="left") or ax.get_title() for ax in axes] == ["a", "b"]


def test_the_widget_draws_whatever_is_chosen(monkeypatch):
    drawn = []
    monkeypatch.setattr(drawings, "permuted_and_sliced", lambda *choice: drawn.append(choice))
    box = widgets.permuted_and_sliced()
    (shape, order), (start, step) = box.children[0].children, box.children[1].children
    assert drawn[-1] == ((3, 4), (1, 0), 0, 1)
    start.value, step.value = 1, 2
    assert drawn[-1] == ((3, 4), (1, 0), 1, 2)
    shape.value = (2, 3, 4)
    order.value = (0, 2, 1)
    assert drawn[-1] == ((2, 3, 4), (0, 2, 1), 1, 2)
    assert all(len(shape) == len(order) for shape, order, *_ in drawn), (
        "an order of another shape was drawn"
    )
