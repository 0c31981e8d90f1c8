"""Pictures of what limits an operation: common.lessons.arithmetic_intensity.rooflines."""

from typing import Any

import matplotlib.pyplot as plt
import pytest

from common.lessons.arithmetic_intensity import rooflines


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.mark.parametrize("got", [3e9, float("nan"), None, 0, -1.0])
def test_whatever_came_can_be_drawn(got):
    assert "2 FLOP/byte" in rooflines.roof(1e12, 1e10, 2.0, got, 2e10).get_title()
    assert rooflines.calls([3.0, 1.0, 2.0], 0.5, got, 2.5).get_xlabel() == "call after the warm-up"


def test_the_parts_of_an_operation_stand_beside_its_time():
    ax = rooflines.parts({"compute": 1e-3, "memory": 1e-5}, 2e-3, "Parts of a product")
    bars: Any = ax.patches
    assert [bar.get_width() for bar in bars] == [1e-3, 1e-5]


@pytest.mark.parametrize("n, tile, count", [(15, 4, 4), (1, 1, 1), (5, 9, 1), (9, 1, 9)])
def test_the_tiles_of_three_matrices(n, tile, count):
    axes = rooflines.tiles(n, tile)
    assert f"{count} of A and {count} of B" in axes[0].figure.get_suptitle()
