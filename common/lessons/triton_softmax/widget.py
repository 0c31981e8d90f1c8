"""The widget of lab triton_softmax: watch an online softmax rescale its sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ipywidgets


def rescaling() -> ipywidgets.VBox:
    """Find a pass over a row, in small blocks, that rescales the sum at most once."""
    import ipywidgets

    from common.lessons.triton_softmax import rescaling

    row = ipywidgets.Dropdown(options=list(rescaling.ROWS), value="random", description="row")
    block = ipywidgets.SelectionSlider(options=rescaling.BLOCKS, value=8, description="block")
    backwards = ipywidgets.Checkbox(description="from the end")
    said = ipywidgets.HTML()

    def draw(row: str, block: int, backwards: bool) -> None:
        import matplotlib.pyplot as plt

        times = rescaling.draw(row, block, backwards).rescaled
        plt.show()
        said.value = f"The sum was rescaled {times} times. " + (
            "<b>Target reached.</b> Why does this setting need so little?"
            if row == "rising" and block <= 8 and times <= 1
            else "<b>Target:</b> the rising row, in blocks of 8 or 4, rescaled at most once."
        )

    controls = {"row": row, "block": block, "backwards": backwards}
    picture = ipywidgets.interactive_output(draw, controls)
    picture.layout.min_height = "380px"
    return ipywidgets.VBox([ipywidgets.HBox([row, block, backwards]), said, picture])
