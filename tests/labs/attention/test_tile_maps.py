"""Tiles of a mask: pictures, the widget's verdict, and what a block_mask may hold."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from common.lessons.attention import expected as oracle
from common.lessons.attention import tile_maps

CAUSAL = oracle.Case(64, 64, mask="causal")


def kinds_by(make, queries=64, keys=64, block=16):
    with tile_maps.few_tiles(queries, keys, block, block) as limit:
        return make(limit(oracle.MASKS["causal"]), queries, keys, block)


def spans(count, block):
    return [torch.arange(start, min(count, start + block)) for start in range(0, count, block)]


def kind(tile):
    return int(tile.any()) + int(tile.all())


def tile_after_tile(mask, queries, keys, block):
    rows = [
        [kind(mask(0, 0, i[:, None], j[None, :])) for j in spans(keys, block)]
        for i in spans(queries, block)
    ]
    return torch.tensor(rows, dtype=torch.int32)


def row_after_row(mask, queries, keys, block):
    rows = []
    for i in spans(queries, block):
        row = [mask(0, 0, i[:, None], j[None, :]) for j in spans(keys, block)]
        rows.append([kind(tile) for tile in row])
    return torch.tensor(rows, dtype=torch.int32)


def all_pairs_at_once(mask, queries, keys, block):
    seen = mask(0, 0, torch.arange(queries)[:, None], torch.arange(keys)[None, :])
    return seen.unfold(0, block, block).unfold(1, block, block).any(-1).any(-1).int()


def tiles_kept(mask, queries, keys, block):
    kept = [
        [mask(0, 0, i[:, None], j[None, :]) for j in spans(keys, block)]
        for i in spans(queries, block)
    ]
    return torch.tensor([[kind(tile) for tile in row] for row in kept], dtype=torch.int32)


def a_matrix_filled_tile_by_tile(mask, queries, keys, block):
    whole = torch.zeros(queries, keys, dtype=torch.bfloat16)
    for i in spans(queries, block):
        for j in spans(keys, block):
            whole[i[0] : i[-1] + 1, j[0] : j[-1] + 1] = mask(0, 0, i[:, None], j[None, :])
    return whole


@pytest.mark.parametrize("make", [tile_after_tile, row_after_row])
def test_few_tiles_are_allowed(make):
    assert torch.equal(kinds_by(make), oracle.kinds(CAUSAL))


@pytest.mark.parametrize(
    "make, words",
    [
        (all_pairs_at_once, "about one tile at a time, 64 pairs at most"),
        (tiles_kept, "pairs are still kept: together they are the matrix that nobody asked for"),
        (a_matrix_filled_tile_by_tile, r"a tensor of 4,096 numbers \(torch.bfloat16\) is made"),
    ],
)
def test_the_matrix_of_all_pairs_is_refused_in_each_form(make, words):
    with pytest.raises(ValueError, match=words):
        kinds_by(make, block=8)


def test_small_problems_may_be_one_tile():
    for size in (1, 5, 16):
        assert torch.equal(kinds_by(tile_after_tile, size, size), torch.tensor([[2 - (size > 1)]]))


def test_what_is_computed_is_drawn_and_said():
    made = oracle.kinds(CAUSAL)
    assert tile_maps.share(made) == 10 / 16
    axes = tile_maps.draw({"causal": made, "all": torch.full((2, 2), 2)})
    assert [ax.get_title() for ax in axes] == ["causal\n62% computed", "all\n100% computed"]
    image = axes[0].get_images()[0]
    assert np.array_equal(np.asarray(image.get_array()), made) and image.get_clim() == (0, 2)
    plt.close("all")


@pytest.mark.parametrize(
    "width, block, computed, reached",
    [
        (128, 64, 0.18, True),
        (256, 64, 0.21, False),
        (64, 64, 0.1, False),
        (128, 32, 0.1, False),
    ],
)
def test_the_target_of_the_widget(width, block, computed, reached):
    kinds = torch.zeros(100, dtype=torch.int32)
    kinds[: round(100 * computed)] = 1
    said = tile_maps.verdict(width, block, kinds)
    assert ("Target reached!" in said) == reached and f"{computed:.1%} of the tiles" in said


def test_the_widget_draws_what_is_chosen(monkeypatch):
    asked = []

    def kinds_of(width, block):
        asked.append((width, block))
        return torch.ones(2, 2, dtype=torch.int32)

    monkeypatch.setattr(plt, "show", lambda: None)
    box = tile_maps.widget(kinds_of)
    choices, said, _ = box.children
    choices.children[0].value = 128
    choices.children[1].value = 64
    assert asked[0] == (256, 128) and asked[-1] == (128, 64) and "Not yet" in said.value
    plt.close("all")


def test_the_widget_counts_by_itself_until_its_exercise_is_solved():
    def is_open(width, block):
        raise NotImplementedError("Exercise 3.2: put your answer in place of this line")

    for width, block in ((32, 16), (256, 128), (512, 32), (64, 256)):
        window = lambda b, h, i, j, width=width: (i >= j) & (i - j < width)  # noqa: E731
        want = tile_after_tile(window, tile_maps.TOKENS, tile_maps.TOKENS, block)
        kinds, says = tile_maps.window_kinds(is_open, width, block)
        assert np.array_equal(kinds, want) and says.endswith("these tiles are the course's.")
        assert tile_maps.window_kinds(lambda *_, want=want: want, width, block) == (want, "")
