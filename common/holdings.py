"""What each rank holds before and after a collective, as data and as a picture."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from common import ranks
from common.figures import QUIET

COLLECTIVES = (
    "broadcast",
    "scatter",
    "gather",
    "reduce",
    "all_to_all",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
)
NOTHING = "#ececec"
WIDTH_IN = 7.2
ROW, CELL, GAP = 0.7, 0.62, 1.2  # heights of a row and a cell, space between panels, in cell widths

# By rank: a tensor of chunks, or None if a rank holds nothing.
Held = list[torch.Tensor | None]


def after(x: torch.Tensor, root: int) -> dict[str, Held]:
    """{collective: what it leaves on each rank}, on simulated ranks, by torch.distributed's names.

    x: (p, p). Row r is rank r's vector of p chunks. For gather and all_gather, rank r brings its
    chunk r.
    """
    by_rank = ranks.run(_after, x, root, world_size=len(x)).returns
    return {name: [results[name] for results in by_rank] for name in COLLECTIVES}


def _after(dist: Any, x: torch.Tensor, root: int) -> dict[str, torch.Tensor | None]:
    """{collective: what it leaves on this rank}."""
    me = dist.get_rank()
    x, chunk, is_root = x[me], x[me, me : me + 1], me == root
    results = {
        name: (chunk if name in ("scatter", "reduce_scatter") else x).clone()
        for name in COLLECTIVES
    }
    dist.broadcast(results["broadcast"], root)
    dist.scatter(results["scatter"], list(x.split(1)) if is_root else None, root)
    dist.gather(chunk, list(results["gather"].split(1)) if is_root else None, root)
    dist.reduce(results["reduce"], root)
    dist.all_to_all_single(results["all_to_all"], x)
    dist.all_gather_into_tensor(results["all_gather"], chunk)
    dist.reduce_scatter_tensor(results["reduce_scatter"], x)
    dist.all_reduce(results["all_reduce"])
    return dict(results) if is_root else results | {"gather": None, "reduce": None}


def marked(p: int) -> torch.Tensor:
    """(p, p) integers whose sums show their terms: rank r's chunk c has one bit, number r + p·c."""
    return 1 << torch.arange(p)[:, None] + p * torch.arange(p)


def draw(held: Mapping[str, Sequence[torch.Tensor | None]], *, columns: int = 3) -> Axes:
    """Axes with one panel per title, one row per rank and one cell per chunk.

    A cell has one stripe for each rank whose numbers it sums, in that rank's colour. held: {title:
    by rank, a tensor of `marked` integers and their sums, or None if a rank holds nothing}.
    """
    p = len(next(iter(held.values())))
    rows = -(-len(held) // columns)
    width, height = columns * (p + GAP) - GAP + 1.6, rows * (ROW * p + GAP)
    ax = plt.subplots(figsize=(WIDTH_IN, WIDTH_IN * height / width))[1]
    for place, (title, by_rank) in enumerate(held.items()):
        left, top = place % columns * (p + GAP), place // columns * (ROW * p + GAP)
        ax.text(left, top - 0.12, title, weight="bold", size=10, va="bottom")
        for rank, pieces in enumerate(by_rank):
            y = top + ROW * rank
            ax.add_patch(Rectangle((left, y), p - 0.06, CELL, color=NOTHING))
            _row(ax, left, y, p, [] if pieces is None else pieces.tolist())
            if not place % columns:
                style: dict[str, Any] = {"size": 8, "color": QUIET, "ha": "right", "va": "center"}
                ax.text(left - 0.2, y + CELL / 2, f"rank {rank}", **style)
    ax.set(xlim=(-1.6, width - 1.6), ylim=(height - GAP, -0.8), aspect="equal")
    ax.axis("off")
    return ax


def _row(ax: Axes, left: float, y: float, p: int, pieces: Sequence[int]) -> None:
    """One rank's chunks: all p of them in their order, a single one in its own place."""
    for place, bits in enumerate(pieces):
        parts = [divmod(bit, p) for bit in range(p * p) if bits >> bit & 1]  # (chunk, rank)
        x = left + (place if len(pieces) > 1 or not parts else parts[0][0])
        for i, (_, rank) in enumerate(parts):
            height = CELL / len(parts)
            corner = x, y + height * i
            ax.add_patch(Rectangle(corner, 0.94, height, color=f"C{rank}", linewidth=0))
        text = "".join(sorted({"abcdefgh"[chunk] for chunk, _ in parts}))
        style: dict[str, Any] = {"weight": "bold", "ha": "center", "va": "center"}
        ax.text(x + 0.47, y + CELL / 2, text, size=9, color="white", **style)
