"""What a streaming multiprocessor (SM) has room for, and a picture of the blocks that fill it."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from nogpu import pictures

# CUDA programming guide, compute capabilities 5.2 and 9.0; NVIDIA's cuda_occupancy.h for portions.
SMS: dict[str, dict[str, int]] = {
    "GTX 980": {
        "threads": 2048,
        "blocks": 32,
        "registers": 2**16,
        "shared_bytes": 96 << 10,
        "reserved_bytes": 0,  # of shared memory, per block
        "register_portion": 256,  # registers are handed out to a warp in multiples of this
        "shared_portion": 256,  # and bytes of shared memory to a block in multiples of this
    },
    "H200": {
        "threads": 2048,
        "blocks": 32,
        "registers": 2**16,
        "shared_bytes": 228 << 10,
        "reserved_bytes": 1024,
        "register_portion": 256,
        "shared_portion": 128,
    },
}


def draw(takes: Mapping[str, int], sm: Mapping[str, int], blocks: int, title: str) -> Axes:
    """Axes with a bar per resource: what each resident block takes of what the SM has.

    takes: {resource: of one block}, with the names of sm. blocks: how many are resident.
    """
    ax = plt.subplots(figsize=(7.2, 2.4))[1]
    for name, taken in takes.items():
        share = 100 * taken / sm[name]
        for block in range(blocks):
            colour = f"C{0 if block % 2 else 5}"
            ax.barh(name.replace("_", " "), share, left=block * share, height=0.6, color=colour)
        ax.annotate(
            f"{blocks * taken:,} of {sm[name]:,}",
            (min(blocks * share, 100), name.replace("_", " ")),
            (5, 0),
            textcoords="offset points",
            va="center",
            size=9,
        )
    ax.axvline(100, color="C1")
    ax.set(xlim=(0, 135), xlabel="share of what the SM has (%)", title=title)
    ax.set_xticks(range(0, 101, 25))
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    used = ", ".join(f"{100 * blocks * n / sm[name]:.0f} % of {name}" for name, n in takes.items())
    pictures.describe(ax, f"Bars that show what {blocks} resident blocks take of an SM: {used}.")
    return ax
