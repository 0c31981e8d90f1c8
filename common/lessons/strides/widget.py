"""The widget of lab strides: a shape, an order of axes, a slice, and three puzzles to solve."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from common.figures import memory_drawings, views

if TYPE_CHECKING:
    import ipywidgets


SHAPES = ((12,), (3, 4), (2, 3, 4))


PUZZLES = (((8, 1), 4), ((2, 4), 1), ((3, 12, 4), 1))  # (strides, offset) to be found


def permuted_and_sliced() -> ipywidgets.VBox:
    """Choose a shape, the order of its axes, and a slice of the first, for the drawing.

    Each of PUZZLES gets a mark as soon as the settings give its strides and offset.
    """
    import ipywidgets

    solved: set[int] = set()
    puzzles = ipywidgets.HTML()

    names = [(" × ".join(map(str, shape)), shape) for shape in SHAPES]
    shape = ipywidgets.Dropdown(options=names, value=(3, 4), description="shape")
    order = ipywidgets.Dropdown(description="order")
    start = ipywidgets.IntSlider(value=0, min=0, max=2, description="start")
    step = ipywidgets.IntSlider(value=1, min=1, max=3, description="step")

    def offer_orders(_: object = None) -> None:
        orders = list(itertools.permutations(range(len(shape.value))))
        order.options, order.value = [(str(o).replace(",)", ")"), o) for o in orders], orders[-1]

    def draw(order: tuple[int, ...], start: int, step: int) -> None:
        import matplotlib.pyplot as plt

        memory_drawings.permuted_and_sliced(shape.value, order, start, step)
        plt.show()
        x = views.STORAGE[: math.prod(shape.value)].view(shape.value)
        reached = views.of(x.permute(order)[start::step])[1:]
        solved.update(i for i, puzzle in enumerate(PUZZLES) if puzzle == reached)
        puzzles.value = puzzle_list(solved)

    offer_orders()
    shape.observe(offer_orders, names="value")
    picture = ipywidgets.interactive_output(draw, {"order": order, "start": start, "step": step})
    picture.layout.min_height = (
        "335px"  # of the tallest picture, so that the page below does not jump
    )
    return ipywidgets.VBox(
        [puzzles, ipywidgets.HBox([shape, order]), ipywidgets.HBox([start, step]), picture]
    )


def puzzle_list(solved: Collection[int]) -> str:
    """The puzzles as HTML, with a mark on each that is solved."""
    items = (
        f"{'✅' if i in solved else '⬜'} strides {strides}, offset {offset}"
        for i, (strides, offset) in enumerate(PUZZLES)
    )
    done = " &nbsp; <b>All three found.</b>" if len(solved) == len(PUZZLES) else ""
    return " &nbsp; ".join(items) + done
