"""The widget of lab triton_matmul: choose a tile that feeds the tensor cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from common.lessons.triton_matmul import pictures

if TYPE_CHECKING:
    import ipywidgets


def fed_tensor_cores(
    machine: Callable[[int, int, int], tuple[float, float]], target: float, most_kb: int
) -> ipywidgets.VBox:
    """Choose tiles and stages so that the tensor cores are busy, with little shared memory.

    machine: (seconds of a load, seconds of a product) for BLOCK_M, BLOCK_N and BLOCK_K. target: the
    part of the time in which they have to multiply. most_kb: how many KiB may be used.
    """
    import ipywidgets

    sizes = [(64, 64), (128, 128), (128, 256)]
    names = [(f"{m} × {n}", (m, n)) for m, n in sizes]
    tile = ipywidgets.Dropdown(options=names, value=(128, 128), description="tile")
    depth = ipywidgets.Dropdown(options=[32, 64, 128], value=64, description="BLOCK_K")
    stages = ipywidgets.IntSlider(value=2, min=1, max=8, description="stages")
    says = ipywidgets.HTML()

    def draw(tile: tuple[int, int], depth: int, stages: int) -> None:
        import matplotlib.pyplot as plt

        load_s, compute_s = machine(*tile, depth)
        share = pictures.settled(stages, load_s, compute_s)
        kb = 2 * sum(tile) * depth * stages / 1024
        reached = share >= target and kb <= most_kb
        says.value = (
            f"<b>{'Reached!' if reached else 'Not yet.'}</b> The tensor cores multiply {share:.0%} "
            f"of the time, with {kb:.0f} KiB (target: {target:.0%}, with at most {most_kb} KiB)."
        )
        title = f"Tiles of {tile[0]} × {tile[1]}, {depth} deep, {stages} stages"
        steps = pictures.steps_of(12, stages, load_s, compute_s)
        pictures.pipeline({title: steps}, load_s, compute_s)
        plt.show()

    chosen = {"tile": tile, "depth": depth, "stages": stages}
    picture = ipywidgets.interactive_output(draw, chosen)
    picture.layout.min_height = "300px"  # so that the page below does not jump
    return ipywidgets.VBox([ipywidgets.HBox([tile, depth, stages]), says, picture])
