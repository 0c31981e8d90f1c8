"""What each rank holds, before and after a collective: as data from torch.distributed's own, and as a picture."""

import matplotlib.pyplot as plt
import torch
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
WIDTH_IN, ROW, GAP = (
    7.2,
    0.7,
    1.2,
)  # a row's height, and what is between panels, in widths of a cell
CELL = 0.62  # its height


def after(x, root):
    """{collective: what it leaves on each rank, a list by rank}, on simulated ranks, by torch.distributed's names.

    x: (p, p); row r is rank r's vector of p chunks. For gather and all_gather, rank r brings its chunk r. None on a rank that
    gets nothing.
    """
    by_rank = ranks.run(_after, x, root, world_size=len(x)).returns
    return {name: [left[name] for left in by_rank] for name in COLLECTIVES}


def _after(dist, x, root):
    me = dist.get_rank()
    x, chunk, is_root = x[me], x[me, me : me + 1], me == root
    left = {
        name: (chunk if name in ("scatter", "reduce_scatter") else x).clone()
        for name in COLLECTIVES
    }
    dist.broadcast(left["broadcast"], root)
    dist.scatter(left["scatter"], list(x.split(1)) if is_root else None, root)
    dist.gather(chunk, list(left["gather"].split(1)) if is_root else None, root)
    dist.reduce(left["reduce"], root)
    dist.all_to_all_single(left["all_to_all"], x)
    dist.all_gather_into_tensor(left["all_gather"], chunk)
    dist.reduce_scatter_tensor(left["reduce_scatter"], x)
    dist.all_reduce(left["all_reduce"])
    return left if is_root else left | {"gather": None, "reduce": None}


def marked(p):
    """(p, p) integers to follow: rank r's chunk c has one bit, r + p·c, so a sum shows what is in it."""
    return 1 << torch.arange(p)[:, None] + p * torch.arange(p)


def draw(held, *, columns=3):
    """Axes with a panel a title: a row a rank, a cell a chunk, striped in the colours of the ranks whose numbers it sums.

    held: {title: by rank, a tensor of `marked` integers and their sums, or None where a rank holds nothing}.
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
                ax.text(
                    left - 0.2,
                    y + CELL / 2,
                    f"rank {rank}",
                    size=8,
                    color=QUIET,
                    ha="right",
                    va="center",
                )
    ax.set(xlim=(-1.6, width - 1.6), ylim=(height - GAP, -0.8), aspect="equal")
    ax.axis("off")
    return ax


def _row(ax, left, y, p, pieces) -> None:
    """One rank's chunks: all p of them in their order, a single one in its own place."""
    for place, bits in enumerate(pieces):
        parts = [divmod(bit, p) for bit in range(p * p) if bits >> bit & 1]  # (chunk, rank)
        x = left + (place if len(pieces) > 1 or not parts else parts[0][0])
        for i, (_, rank) in enumerate(parts):
            ax.add_patch(
                Rectangle(
                    (x, y + CELL * i / len(parts)),
                    0.94,
                    CELL / len(parts),
                    color=f"C{rank}",
                    linewidth=0,
                )
            )
        ax.text(
            x + 0.47,
            y + CELL / 2,
            "".join(sorted({"abcdefgh"[chunk] for chunk, _ in parts})),
            size=9,
            color="white",
            weight="bold",
            ha="center",
            va="center",
        )
