"""Pictures of what limits an operation, next to what an answer says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np

from common import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN = 7.2


def roof(peak: float, bandwidth: float, intensity: float, got: float, want: float) -> Axes:
    """Axes with a roof, and two dots at an operation's intensity: what came, what was wanted."""
    ax = plt.subplots(figsize=(WIDTH_IN, 3))[1]
    ridge = peak / bandwidth
    x = np.geomspace(min(intensity, ridge) / 30, max(intensity, ridge) * 30, 200)
    ax.plot(x, np.minimum(peak, x * bandwidth), color="C0", label="roof")
    ax.plot(intensity, want, "o", color="C0", markersize=9, label="wanted")
    if _is_positive(got):
        ax.plot(intensity, got, "s", color="C1", markersize=9, label="got")
    ax.set(xscale="log", yscale="log", xlabel="intensity (FLOP/byte)", ylabel="FLOP/s")
    ax.set_title(f"An operation of {intensity:.3g} FLOP/byte under the roof")
    ax.legend()
    return ax


def parts(parts_s: Mapping[str, float], time_s: float, title: str) -> Axes:
    """Axes with a bar for each part of an operation, and lines at its time and at half of it."""
    ax = plt.subplots(figsize=(WIDTH_IN, 2.2))[1]
    ax.barh(list(parts_s), list(parts_s.values()), height=0.6, color="C0")
    for share, style in ((1, "-"), (0.5, ":")):
        label = "measured" if share == 1 else "half of it"
        ax.axvline(share * time_s, color="C1", linestyle=style, label=label)
    ax.set(xscale="log", xlabel="seconds", title=title)
    ax.set_xlim(min([*parts_s.values(), time_s]) / 3, 3 * max([*parts_s.values(), time_s]))
    ax.invert_yaxis()
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def calls(later_s: Sequence[float], launch_s: float, got: float, want: float) -> Axes:
    """Axes with the time of each call after the warm-up, and lines at what came and was wanted."""
    ax = plt.subplots(figsize=(WIDTH_IN, 3))[1]
    places = range(1, len(later_s) + 1)
    ax.bar(places, launch_s, color="C2", label="launch")
    ax.bar(places, later_s, bottom=launch_s, color="C0", alpha=0.5, label="work")
    ax.axhline(want, color="C0", label="median, wanted")
    if _is_positive(got):
        ax.axhline(got, color="C1", linestyle="--", label="got")
    ax.set(xlabel="call after the warm-up", ylabel="seconds", title="The fake device's calls")
    ax.set_xticks(list(places))
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def tiles(n: int, tile: int) -> Sequence[Axes]:
    """Axes of A, B and C in tiles: one tile of C, and the tiles of A and B that pass for it."""
    axes = plt.subplots(1, 3, figsize=(WIDTH_IN, 2.8))[1]
    here = (-(-n // tile) - 1) // 2 * tile
    marked = {"A": (here, 0, tile, n), "B": (0, here, n, tile), "C": (here, here, tile, tile)}
    for ax, (name, (top, left, height, width)) in zip(axes, marked.items(), strict=True):
        shown = np.zeros((n, n))
        shown[top : top + height, left : left + width] = 1
        ax.imshow(shown, cmap="Blues", vmin=0, vmax=2, extent=(0, n, n, 0))
        ax.set_xticks([*range(0, n, tile), n])
        ax.set_yticks([*range(0, n, tile), n])
        ax.grid(color=figures.QUIET, linewidth=0.8)
        ax.set_title(name)
    count = -(-n // tile)
    axes[0].figure.suptitle(
        f"n = {n}, tiles of {tile}: for one of the {count * count} tiles of C, "
        f"{count} of A and {count} of B pass",
        size=11,
    )
    return axes


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and bool(0 < value < np.inf)
