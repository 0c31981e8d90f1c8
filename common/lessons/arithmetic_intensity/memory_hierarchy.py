"""A matrix product tiled twice, for the L2 cache and for one multiprocessor, on an A100."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from common import figures
from common.ledger.machine import DATA_SHEETS

if TYPE_CHECKING:
    import ipywidgets
    from matplotlib.axes import Axes

N, ITEMSIZE = 8192, 2  # of the matrices: bf16
PEAK_FLOPS_PER_S = DATA_SHEETS["A100"].flops_per_s["bf16"]
SIDES = {"L2": [64 * 2**i for i in range(8)], "shared memory": [16 * 2**i for i in range(6)]}


@dataclasses.dataclass(frozen=True)
class Level:
    """A fast memory that holds three tiles, and the slower memory that fills it."""

    name: str
    holds_bytes: float
    filled_from: str
    bandwidth_bytes_per_s: float  # of the slower memory


# NVIDIA's A100 whitepaper: 40 MB of L2, which deliver 5,120 bytes per clock (1.41 GHz) to all 108
# multiprocessors; each of these has 164 KB of shared memory.
LEVELS = (
    Level("L2", 40e6, "memory", DATA_SHEETS["A100"].bandwidth_bytes_per_s),
    Level("shared memory", 164 * 1024, "L2", 5120 * 1.41e9),
)


@dataclasses.dataclass(frozen=True)
class Tiling:
    """What one level of tiles allows."""

    level: Level
    side: int

    @property
    def tile_bytes(self) -> int:
        """A tile of each of the three matrices."""
        return 3 * self.side**2 * ITEMSIZE

    @property
    def fits(self) -> bool:
        """Whether the fast memory holds three tiles."""
        return self.tile_bytes <= self.level.holds_bytes

    @property
    def intensity(self) -> float:
        """FLOPs per byte of the slower memory."""
        side = min(self.side, N)
        return 2 * N**3 / (ITEMSIZE * (2 * N**3 / side + N * N))

    @property
    def flops_per_s(self) -> float:
        """The most that the slower memory can feed."""
        return self.intensity * self.level.bandwidth_bytes_per_s


def counted_bytes(n: int, side: int) -> int:
    """Bytes that a product of n × n float32 matrices takes and stores, run tile by tile."""
    import itertools

    import torch

    a, b, moved = torch.rand(n, n), torch.rand(n, n), 0
    for rows, columns in itertools.product(a.split(side), b.split(side, dim=1)):
        pairs = list(zip(rows.split(side, dim=1), columns.split(side), strict=True))
        products = [a_tile @ b_tile for a_tile, b_tile in pairs]
        loaded = sum(a_tile.nbytes + b_tile.nbytes for a_tile, b_tile in pairs)
        moved += loaded + torch.stack(products).sum(0).nbytes
    return moved


def verdict(l2_side: int, shared_side: int) -> tuple[bool, str]:
    """(whether the target is reached, one sentence that says what limits)."""
    tilings = [Tiling(*pair) for pair in zip(LEVELS, (l2_side, shared_side), strict=True)]
    for tiling in tilings:
        if not tiling.fits:
            size, holds = tiling.tile_bytes / 1024, tiling.level.holds_bytes / 1024
            return False, (
                f"Three tiles of {tiling.side} take {size:,.0f} KiB. "
                f"{tiling.level.name.capitalize()} has {holds:,.0f} KiB: they do not fit."
            )
    if shared_side > l2_side:
        return False, "A tile in shared memory is a part of the tile in L2: it can't be larger."
    slowest = min(tilings, key=lambda tiling: tiling.flops_per_s)
    if slowest.flops_per_s < PEAK_FLOPS_PER_S:
        rate = slowest.flops_per_s / 1e12
        return False, f"{slowest.level.filled_from.capitalize()} limits: {rate:.0f} of 312 TFLOP/s."
    tight = all(tiling.flops_per_s / 2 < PEAK_FLOPS_PER_S for tiling in tilings)
    return True, "Target reached: all 312 TFLOP/s." + (
        " And no smaller tiles would do." if tight else " Would smaller tiles do?"
    )


def draw(l2_side: int = 64, shared_side: int = 64) -> Axes:
    """Axes with the two slopes and the peak of an A100, and a dot for each level of tiles."""
    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(7.2, 3.6))[1]
    tilings = [Tiling(*pair) for pair in zip(LEVELS, (l2_side, shared_side), strict=True)]
    low, high = 4, 8192
    for i, tiling in enumerate(tilings):
        bandwidth = tiling.level.bandwidth_bytes_per_s
        ridge, colour = PEAK_FLOPS_PER_S / bandwidth, f"C{i}"
        ax.plot([low, ridge], [low * bandwidth, PEAK_FLOPS_PER_S], color=colour)
        ax.plot([ridge, high], [PEAK_FLOPS_PER_S] * 2, color=figures.QUIET, zorder=1)
        reached = min(tiling.flops_per_s, PEAK_FLOPS_PER_S)
        label = f"bytes from {tiling.level.filled_from}: tiles of {tiling.side} in "
        marker: dict[str, Any] = {"markersize": 9, "zorder": 3, "linestyle": "-"}
        name = label + tiling.level.name
        ax.plot(tiling.intensity, reached, figures.MARKS[i], color=colour, label=name, **marker)
    reached, sentence = verdict(l2_side, shared_side)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(1e13, 6e14))
    ax.set(xlabel="FLOPs per byte of that memory", title=sentence)
    ax.set_yticks([1e13, 3e13, 1e14, 3.12e14], ["10 T", "30 T", "100 T", "312 T"])
    ax.set_ylabel("attainable FLOP/s")
    ax.minorticks_off()
    ax.title.set_color("C2" if reached else ax.title.get_color())
    ax.legend(loc="lower right")
    figures.describe(ax, f"Two rooflines of an A100, for bytes from memory and from L2. {sentence}")
    return ax


def widget() -> ipywidgets.VBox:
    """Choose both tiles. Target: the A100's whole peak with the smallest tiles that reach it."""
    import ipywidgets
    import matplotlib.pyplot as plt

    def slider(name: str) -> ipywidgets.SelectionSlider:
        description = f"tile in {name}"
        style = {"description_width": "initial"}
        return ipywidgets.SelectionSlider(
            options=SIDES[name], value=64, description=description, style=style
        )

    def show(l2_side: int, shared_side: int) -> None:
        draw(l2_side, shared_side)
        plt.show()

    sides = {"l2_side": slider("L2"), "shared_side": slider("shared memory")}
    picture = ipywidgets.interactive_output(show, sides)
    picture.layout.min_height = "380px"  # so that the page below does not jump
    return ipywidgets.VBox([*sides.values(), picture])
