"""The widget of lab compiler: choose which rewrites are applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ipywidgets


def rewrites() -> ipywidgets.VBox:
    """Choose rewritings of a program: how few operators are left before an input refutes one?"""
    import ipywidgets

    from common.lessons.compiler import rewriting

    boxes = [
        ipywidgets.Checkbox(value=False, description=name, indent=False) for name in rewriting.RULES
    ]
    verdict = ipywidgets.HTML()

    def draw(**chosen: bool) -> None:
        import matplotlib.pyplot as plt

        rules = [name for name in rewriting.RULES if chosen[name]]
        verdict.value = f"<b>{rewriting.verdict(rules)}</b>"
        rewriting.draw(rules)
        plt.show()

    picture = ipywidgets.interactive_output(draw, {box.description: box for box in boxes})
    picture.layout.min_height = "240px"
    return ipywidgets.VBox(
        [ipywidgets.HBox(boxes[:4]), ipywidgets.HBox(boxes[4:]), verdict, picture]
    )
