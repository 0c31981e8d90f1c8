"""Widgets over the course's drawings. Each only chooses the arguments of a drawing that can be called without it."""

import itertools

from common import drawings

SHAPES = ((12,), (3, 4), (2, 3, 4))


def permuted_and_sliced():
    """The widget of `drawings.permuted_and_sliced`: choose a shape, the order of its axes, and a slice of the first."""
    import ipywidgets

    names = [(" × ".join(map(str, shape)), shape) for shape in SHAPES]
    shape = ipywidgets.Dropdown(options=names, value=(3, 4), description="shape")
    order = ipywidgets.Dropdown(description="order")
    start = ipywidgets.IntSlider(value=0, min=0, max=2, description="start")
    step = ipywidgets.IntSlider(value=1, min=1, max=3, description="step")

    def offer_orders(_=None) -> None:
        orders = list(itertools.permutations(range(len(shape.value))))
        order.options, order.value = [(str(o).replace(",)", ")"), o) for o in orders], orders[-1]

    def draw(order, start, step) -> None:
        import matplotlib.pyplot as plt

        drawings.permuted_and_sliced(shape.value, order, start, step)
        plt.show()

    offer_orders()
    shape.observe(offer_orders, names="value")
    picture = ipywidgets.interactive_output(draw, {"order": order, "start": start, "step": step})
    picture.layout.min_height = "335px"  # the tallest: what stands below does not jump
    return ipywidgets.VBox(
        [ipywidgets.HBox([shape, order]), ipywidgets.HBox([start, step]), picture]
    )
