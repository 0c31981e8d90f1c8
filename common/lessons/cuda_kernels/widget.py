"""The widget of lab cuda_kernels: choose the pitch of a tile in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ipywidgets


def bank_conflicts(read_column: Any) -> ipywidgets.VBox:
    """Choose how many words a row of a tile takes; see what a load of its column costs.

    read_column(pitch): a kernel in which each lane reads one number of the column. The target is
    the smallest pitch with room for 32 numbers, and one wavefront.
    """
    import ipywidgets

    pitch = ipywidgets.IntSlider(
        value=30, min=28, max=40, description="pitch", continuous_update=False
    )
    said = ipywidgets.HTML()

    def draw(pitch: int) -> None:
        import matplotlib.pyplot as plt

        from nogpu import simt

        report = simt.count(read_column, 1, 32, pitch)
        report.draw()
        plt.show()
        said.value = _judged(pitch, report.shared_loads.wavefronts)

    picture = ipywidgets.interactive_output(draw, {"pitch": pitch})
    picture.layout.min_height = "130px"
    return ipywidgets.VBox([pitch, said, picture])


def _judged(pitch: int, wavefronts: int) -> str:
    """What the widget says about a column of a tile with this pitch."""
    if pitch < 32:
        return f"A row of 32 numbers does not fit into {pitch} words."
    if wavefronts > 1:
        return f"{wavefronts} wavefronts: lanes wait for each other. Not yet."
    if pitch > 33:
        return "One wavefront, but a smaller pitch would do."
    return f"<b>Reached:</b> with {pitch} words per row, a column takes one wavefront."
