"""Two levels of tiles on an A100: common.lessons.arithmetic_intensity.memory_hierarchy."""

import matplotlib.pyplot as plt
import pytest

from common.lessons.arithmetic_intensity import memory_hierarchy


def test_the_target_is_reached_by_one_smallest_pair_of_tiles():
    found = {
        (l2, shared): memory_hierarchy.verdict(l2, shared)
        for l2 in memory_hierarchy.SIDES["L2"]
        for shared in memory_hierarchy.SIDES["shared memory"]
    }
    reached = {pair for pair, (ok, _) in found.items() if ok}
    assert reached == {(512, 128), (1024, 128), (2048, 128)}
    assert [pair for pair in reached if "no smaller" in found[pair][1]] == [(512, 128)]
    assert "do not fit" in found[512, 256][1]
    assert "can't be larger" in found[64, 128][1]


def test_a_tiled_product_counts_what_it_takes():
    assert memory_hierarchy.counted_bytes(4, 2) == 4 * (2 * 16 * 2 + 16)
    assert memory_hierarchy.counted_bytes(3, 2) == 4 * (2 * 9 * 2 + 9)


@pytest.mark.parametrize("sides", [(64, 64), (512, 128), (8192, 512)])
def test_the_picture_says_what_limits(sides):
    ax = memory_hierarchy.draw(*sides)
    assert ax.get_title() == memory_hierarchy.verdict(*sides)[1]
    plt.close("all")
