"""What all pictures of the simulators share: quiet notes, readable ink, and words for the blind."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUIET = "#666666"  # for annotations: the colours belong to the data
DESCRIPTIONS: weakref.WeakKeyDictionary[Figure, str] = weakref.WeakKeyDictionary()


def describe(drawn: Axes | Figure | Sequence[Axes], text: str) -> None:
    """Gives a figure its alternative text: what a reader who can't see it should know.

    Who shows the figure finds it in `DESCRIPTIONS`. text: one or two whole sentences.
    """
    from matplotlib.figure import Figure

    if isinstance(drawn, (Sequence, np.ndarray)):
        drawn = np.ravel(np.asarray(drawn, dtype=object))[0]
    figure = drawn if isinstance(drawn, Figure) else drawn.get_figure(root=True)
    if figure is not None:
        DESCRIPTIONS[figure] = text


def ink(colour: Any) -> str:
    """The colour of text that can be read on this colour: white or almost black."""
    from matplotlib.colors import to_rgb

    return "white" if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.48 else "#333333"
