"""What collectives leave, and the picture of it."""

import matplotlib
import matplotlib.pyplot as plt
import torch

from common.lessons.collectives import collective_states
from nogpu.ranks import chunks

matplotlib.use("agg")


def test_after_is_what_the_words_say():
    x = torch.tensor([[1, 2, 3], [10, 20, 30], [100, 200, 300]])
    left = {
        name: [None if pieces is None else pieces.tolist() for pieces in by_rank]
        for name, by_rank in collective_states.after(x, 1).items()
    }
    total = [111, 222, 333]
    assert tuple(left) == collective_states.COLLECTIVES
    assert left["broadcast"] == [[10, 20, 30]] * 3 and left["scatter"] == [[10], [20], [30]]
    assert left["gather"] == [None, [1, 20, 300], None] and left["all_gather"] == [[1, 20, 300]] * 3
    assert left["reduce"] == [None, total, None] and left["all_reduce"] == [total] * 3
    assert left["reduce_scatter"] == [[111], [222], [333]]
    assert left["all_to_all"] == [[1, 10, 100], [2, 20, 200], [3, 30, 300]]


def test_the_picture_has_a_stripe_for_each_rank_whose_numbers_are_in_a_chunk():
    x = collective_states.marked(4)
    ax = collective_states.draw({"before": list(x), **collective_states.after(x, 0)})
    stripes = [
        patch
        for patch in ax.patches
        if patch.get_facecolor() != matplotlib.colors.to_rgba(chunks.NOTHING)
    ]
    of_one_rank, of_four_ranks = 16 + 16 + 4 + 4 + 16 + 16, 4 * (4 + 4 + 16)
    assert len(stripes) == of_one_rank + of_four_ranks
    assert {text.get_text() for text in ax.texts} >= {
        "before",
        "reduce_scatter",
        "rank 3",
        "a",
        "d",
    }
    plt.close("all")
