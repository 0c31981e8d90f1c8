"""A row that arrives in blocks: its maximum and sum so far, and how often the sum is rescaled."""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from common import figures

LENGTH = 64
NOISE = np.random.default_rng(4).standard_normal(LENGTH)
ROWS = {
    "rising": NOISE + np.linspace(-4, 4, LENGTH),
    "random": NOISE,
    "begins with 16 × -inf": np.r_[[-np.inf] * 16, NOISE[16:]],
}
BLOCKS = (4, 8, 16, 32)


class Pass(NamedTuple):
    """One pass over a row. maxima, sums: after each block. rescaled: how often the sum was."""

    maxima: np.ndarray
    sums: np.ndarray
    rescaled: int


def run(values: np.ndarray, block: int) -> Pass:
    """The pass over these values in blocks of this length."""
    maxima = np.maximum.accumulate(values.reshape(-1, block).max(1))
    sums = np.array(
        [
            np.exp(values[: (i + 1) * block] - maximum).sum() if np.isfinite(maximum) else 0.0
            for i, maximum in enumerate(maxima)
        ]
    )
    moved = (maxima[1:] > maxima[:-1]) & np.isfinite(maxima[:-1])
    return Pass(maxima, sums, int(moved.sum()))


def draw(
    row: str = "rising", block: int = 8, backwards: bool = False, arrived: int | None = None
) -> Pass:
    """Draw the pass over one of ROWS, and return it. arrived: over how many blocks (None: all)."""
    values = ROWS[row][::-1] if backwards else ROWS[row]
    taken = run(values[: arrived and arrived * block], block)
    above, below = plt.subplots(2, 1, sharex=True, figsize=(7.2, 3.8))[1]
    _draw_row(above, values, taken, block)
    _draw_sums(below, values, taken, block)
    figures.describe(
        above,
        f"The row '{row}' arrives in blocks of {block}. Above: its numbers and the maximum so far. "
        f"Below: the sum so far after each block. The sum was rescaled {taken.rescaled} times.",
    )
    return taken


def _draw_row(ax: Axes, values: np.ndarray, taken: Pass, block: int) -> None:
    edges = np.arange(0, LENGTH, block)[: len(taken.maxima)]
    ax.plot(values, "o", color=figures.QUIET, markersize=4, zorder=3, label="x")
    ax.hlines(
        taken.maxima, edges - 0.5, edges + block - 0.5, color="C0", lw=2.5, label="maximum so far"
    )
    ax.set(title="A maximum and a sum, as elements arrive", ylabel="x")
    _legend(ax)


def _draw_sums(ax: Axes, values: np.ndarray, taken: Pass, block: int) -> None:
    middles = np.arange(block / 2, LENGTH, block)[: len(taken.sums)] - 0.5
    blocks = values.reshape(-1, block)[: len(taken.sums)]
    with np.errstate(invalid="ignore"):
        parts = np.nan_to_num(np.exp(blocks - taken.maxima[:, None])).sum(1)
    wanted = np.exp(values - values.max()).sum()
    ax.bar(middles, taken.sums, 0.85 * block, color="C0", alpha=0.4, label="sum so far")
    ax.plot(middles, parts.cumsum(), "x", color="C1", mec="C1", label="never rescaled")
    ax.axhline(wanted, color="C0", linestyle=":", label="sum of the whole row")
    ax.set(xlabel="elements, as they arrive", ylabel="sum", xlim=(-1, LENGTH), ylim=(0, None))
    ax.set_xticks(_ticks(block))
    _legend(ax)


def _ticks(block: int) -> Sequence[int]:
    return range(0, LENGTH + 1, max(block, 8))


def _legend(ax: Axes) -> None:
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
