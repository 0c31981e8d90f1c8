"""Widgets for the course's drawings. Each only chooses arguments: the drawing works without it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from common import drawings

if TYPE_CHECKING:
    import ipywidgets

SHAPES = ((12,), (3, 4), (2, 3, 4))


def permuted_and_sliced() -> ipywidgets.VBox:
    """Choose a shape, the order of its axes, and a slice of the first, for the drawing."""
    import ipywidgets

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

        drawings.permuted_and_sliced(shape.value, order, start, step)
        plt.show()

    offer_orders()
    shape.observe(offer_orders, names="value")
    picture = ipywidgets.interactive_output(draw, {"order": order, "start": start, "step": step})
    picture.layout.min_height = (
        "335px"  # of the tallest picture, so that the page below does not jump
    )
    return ipywidgets.VBox(
        [ipywidgets.HBox([shape, order]), ipywidgets.HBox([start, step]), picture]
    )
