"""The widget of lab quantization: choose the bits of a number format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import ipywidgets


def format_report(
    magnitudes: np.ndarray, exponent_bits: int, fraction_bits: int, power: int
) -> tuple[float, float, float]:
    """(share that becomes 0, share that becomes infinite, relative error of the others).

    magnitudes: positive numbers, which are first multiplied by 2**power. The format has infinity,
    as those of IEEE 754. The error is the root of the mean square.
    """
    least = 2 - 2 ** (exponent_bits - 1) - fraction_bits
    steps = 2.0 ** (least + np.maximum(np.arange(2**exponent_bits - 1) - 1, 0))
    numbers = np.concatenate([[0.0], np.cumsum(np.repeat(steps, 2**fraction_bits))])
    scaled = magnitudes * 2.0**power
    nearest = numbers[np.searchsorted((numbers[1:] + numbers[:-1]) / 2, scaled)]
    kept = (nearest > 0) & (nearest < numbers[-1])
    error = nearest[kept] / scaled[kept] - 1
    root = float(np.sqrt(np.mean(error**2))) if kept.any() else 1.0
    return float(np.mean(nearest == 0)), float(np.mean(nearest == numbers[-1])), root


def number_format(
    magnitudes: np.ndarray, *, most_bits: int, lost: float, error: float
) -> ipywidgets.VBox:
    """Choose a format and a power of two: which of these numbers does the format keep?

    The target: at most most_bits bits, at most these shares of lost numbers and of relative error,
    and no number that becomes infinite.
    """
    import ipywidgets

    calm = {"continuous_update": False}  # one drawing per move, not one per step of it
    exponent = ipywidgets.IntSlider(value=2, min=2, max=6, description="exponent", **calm)
    fraction = ipywidgets.IntSlider(value=5, min=0, max=10, description="fraction", **calm)
    power = ipywidgets.IntSlider(value=0, min=0, max=24, description="scale 2^", **calm)
    verdict = ipywidgets.HTML()

    def draw(exponent: int, fraction: int, power: int) -> None:
        bits, shares = 1 + exponent + fraction, format_report(magnitudes, exponent, fraction, power)
        good = bits <= most_bits and shares[0] < lost and shares[1] == 0 and shares[2] < error
        verdict.value = (
            f"<b>{'Target reached!' if good else 'The target is not reached yet.'}</b> "
            f"{bits} bits: {shares[0]:.1%} become 0, {shares[1]:.2%} infinite; "
            f"the others are {shares[2]:.1%} off."
        )
        _draw_range(magnitudes * 2.0**power, exponent, fraction)

    chosen = {"exponent": exponent, "fraction": fraction, "power": power}
    picture = ipywidgets.interactive_output(draw, chosen)
    picture.layout.min_height = "230px"
    return ipywidgets.VBox([ipywidgets.HBox([exponent, fraction, power]), verdict, picture])


def _draw_range(scaled: np.ndarray, exponent_bits: int, fraction_bits: int) -> None:
    """Shows the numbers' powers of two, and between which of them the format has numbers."""
    import matplotlib.pyplot as plt

    from common import figures

    bias = 2 ** (exponent_bits - 1) - 1
    ax = plt.subplots(figsize=(7.2, 2.1))[1]
    ax.hist(np.log2(scaled), bins=list(range(-45, 21)), color="C0")
    normal, lowest = 1 - bias, -bias - fraction_bits
    ax.axvspan(normal, bias + 1, color="C1", alpha=0.25, label="normal numbers")
    ax.axvspan(lowest, normal, color="C2", alpha=0.25, label="subnormals")
    ax.set(title="What the format keeps", xlabel="power of two of the gradient times the scale")
    ax.set(xlim=(-45, 20), ylabel="gradients")
    ax.legend(loc="upper left")
    figures.describe(
        ax,
        "A histogram of the gradients' powers of two, and the ranges of normal numbers and of "
        "subnormals of the chosen format.",
    )
    plt.show()
