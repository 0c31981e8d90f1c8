"""The widget of lab autodiff: walk backward through a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ipywidgets


WALKED = [
    ("placeholder", "x"),
    ("placeholder", "y"),
    ("multiply", (0, 1)),
    ("sin", (0,)),
    ("add", (2, 3)),
]


def backward_walk() -> ipywidgets.VBox:
    """Backward through f = x·y + sin x, step by step; the target is an adjoint of x near 0."""
    import ipywidgets

    ends: dict[str, Any] = {"min": -3, "max": 3, "step": 0.1, "continuous_update": False}
    x = ipywidgets.FloatSlider(value=2, description="x", **ends)
    y = ipywidgets.FloatSlider(value=3, description="y", **ends)
    steps = ipywidgets.IntSlider(value=0, min=0, max=3, description="step back")
    says = ipywidgets.HTML()

    def draw(x: float, y: float, steps: int) -> None:
        import matplotlib.pyplot as plt

        from common import graphs

        walk = graphs.walk(WALKED, {"x": x, "y": y})
        graphs.draw_walk(WALKED, walk, steps)
        says.value = about_x(x, y, walk.arrived[steps].get(0, []))
        plt.show()

    chosen = {"x": x, "y": y, "steps": steps}
    picture = ipywidgets.interactive_output(draw, chosen)
    picture.layout.min_height = "250px"
    return ipywidgets.VBox([ipywidgets.HBox([x, y, steps]), says, picture])


def about_x(x: float, y: float, arrived: Sequence[float]) -> str:
    """What has arrived at x, and whether the target is reached."""
    if len(arrived) < 2:
        return f"At x, {len(arrived)} of 2 adjoints have arrived: step back."
    text = f"x̄ = {arrived[0]:.2f} + {arrived[1]:.2f} = {sum(arrived):.2f}"
    if abs(sum(arrived)) >= 0.05 or not (x and y):
        return f"{text}. Wanted: less than 0.05 in size, where neither x nor y is 0."
    return f"<b>{text}: reached.</b> Two paths cancel: f does not feel a small move of x."
