"""The pass over a row in blocks, its drawing, and the widget whose target can be reached."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from common import figures
from common.lessons.triton_softmax import rescaling, widget


@pytest.fixture(autouse=True)
def close_figures():
    matplotlib.use("agg")
    yield
    plt.close("all")


@pytest.mark.parametrize("row", rescaling.ROWS)
@pytest.mark.parametrize("block", rescaling.BLOCKS)
def test_a_pass_ends_with_the_row_s_own_maximum_and_sum(row, block):
    values = rescaling.ROWS[row]
    taken = rescaling.run(values, block)
    assert taken.maxima[-1] == values.max()
    np.testing.assert_allclose(taken.sums[-1], np.exp(values - values.max()).sum())
    assert len(taken.sums) == rescaling.LENGTH / block > taken.rescaled


def test_a_sum_is_rescaled_where_the_maximum_moves_after_a_first_number():
    nothing = [-np.inf] * 4
    assert rescaling.run(np.array([*nothing, 1.0, 0, 0, 0]), 4).rescaled == 0
    assert rescaling.run(np.array([0.0, 0, 0, 0, 1, 0, 0, 0]), 4).rescaled == 1
    assert rescaling.run(np.array([1.0, 0, 0, 0, 1, 0, 0, 0]), 4).rescaled == 0


def test_the_drawing_says_in_words_what_it_shows():
    taken = rescaling.draw("rising", 8)
    assert f"rescaled {taken.rescaled} times" in figures.DESCRIPTIONS[plt.gcf()]


def test_the_widget_says_when_its_target_is_reached():
    box = widget.rescaling()
    (row, _, backwards), said = box.children[0].children, box.children[1]
    assert "Target:" in said.value
    row.value = "rising"
    assert "Target:" in said.value
    backwards.value = True
    assert "Target reached" in said.value
