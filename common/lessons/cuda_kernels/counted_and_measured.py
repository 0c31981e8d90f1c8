"""The simulator's counters next to those of a GPU, as benchmarks/simt_hardware.py compared them."""

from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from common import figures
from common.paths import ROOT

TABLE = ROOT / "benchmarks" / "simt_hardware.md"


class Row(NamedTuple):
    """One counter of one kernel."""

    kernel: str
    counter: str
    simulator: int
    hardware: int
    why: str


def rows() -> list[Row]:
    """The table of the comparison."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    cells = [line.strip("| ").split(" | ") for line in lines[2:]]
    return [
        Row(kernel, counter, _number(simulator), _number(hardware), why)
        for kernel, counter, simulator, hardware, why in cells
    ]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def draw() -> Axes:
    """Axes with hardware over simulator for each counter; those that differ are named."""
    table = rows()
    ax = plt.subplots(figsize=(7.2, 4))[1]
    ratios = [row.hardware / row.simulator for row in table]
    ax.plot([row.simulator for row in table], ratios, "o", alpha=0.35, markeredgewidth=0)
    groups: dict[float, list[Row]] = {}
    for row, ratio in zip(table, ratios, strict=True):
        if ratio != 1:
            groups.setdefault(ratio, []).append(row)
    for ratio, members in groups.items():
        names = {row.kernel.split(",")[0] for row in members}
        name = f"{' and '.join(sorted(names))}: {members[0].counter}"
        left = min(row.simulator for row in members)
        style: dict[str, Any] = {
            "textcoords": "offset points",
            "ha": "right",
            "va": "center",
            "size": 9,
        }
        ax.annotate(name, (left, ratio), (-8, 0), **style)
    equal = sum(row.simulator == row.hardware for row in table)
    ax.set(
        xscale="log",
        ylim=(0, 1.15),
        xlabel="counted by the simulator (requests, sectors or wavefronts)",
        ylabel="hardware / simulator",
        title=f"{equal} of {len(table)} counters are equal",
    )
    different = len(table) - equal
    figures.describe(
        ax,
        f"Hardware over simulator for {len(table)} counters: {equal} lie at 1, and {different}, "
        "all shared loads of the two tiled products, lie below.",
    )
    return ax
