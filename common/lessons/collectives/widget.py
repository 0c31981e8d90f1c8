"""The widget of lab collectives: step through the rounds of a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ipywidgets


def ring_by_rounds(p: int = 4) -> ipywidgets.VBox:
    """Choose which chunk each rank sends first and next, and step through the rounds of a ring."""
    import ipywidgets

    from nogpu.ranks import ring

    firsts = [
        (f"chunk r {sign} {shift}" if shift else "chunk r", shift if sign == "+" else -shift)
        for sign, shift in (("+", 1), ("+", 0), ("−", 1), ("−", 2))
    ]
    first = ipywidgets.Dropdown(options=firsts, value=0, description="first")
    steps = [("the one after it", 1), ("the one before it", -1)]
    step = ipywidgets.Dropdown(options=steps, value=1, description="next")
    rounds = ipywidgets.IntSlider(value=0, min=0, max=p - 1, description="rounds")
    verdict = ipywidgets.HTML()

    def draw(first: int, step: int, rounds: int) -> None:
        import matplotlib.pyplot as plt

        complete = ring.own_chunks_complete(ring.after(p, first, step, rounds))
        reached = "Target reached!" if complete == p else "The target is not reached yet."
        verdict.value = (
            f"<b>{reached}</b> After {rounds} of {p - 1} rounds, {complete} of {p} ranks hold "
            "their own chunk of the sum."
        )
        ring.draw(p, first, step, rounds)
        plt.show()

    chosen = {"first": first, "step": step, "rounds": rounds}
    picture = ipywidgets.interactive_output(draw, chosen)
    picture.layout.min_height = "190px"
    return ipywidgets.VBox([ipywidgets.HBox([first, step, rounds]), verdict, picture])
