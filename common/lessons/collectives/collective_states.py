"""What each rank holds before and after a collective, as data and as a picture."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes

from nogpu import ranks
from nogpu.ranks import chunks

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
    panels = {title: [_cells(pieces, p) for pieces in by_rank] for title, by_rank in held.items()}
    return chunks.draw(panels, columns=columns)


def _cells(pieces: torch.Tensor | None, p: int) -> list[chunks.Cell]:
    """One rank's chunks: all p of them in their order, a single one in its own place."""
    row: list[chunks.Cell] = [chunks.EMPTY] * p
    numbers = [] if pieces is None else pieces.tolist()
    for place, bits in enumerate(numbers):
        cell = frozenset(divmod(bit, p) for bit in range(p * p) if bits >> bit & 1)
        own = min(cell)[0] if cell else place  # the chunk
        row[place if len(numbers) > 1 else own] = cell
    return row
