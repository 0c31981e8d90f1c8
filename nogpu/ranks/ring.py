"""Partial sums that travel round a ring of ranks: the table that the lab's widget steps through."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from nogpu.ranks import chunks


def after(p: int, first: int, step: int, rounds: int) -> list[chunks.Row]:
    """What each rank holds after this many rounds, by rank and chunk.

    In round k = 0, 1, ... rank r sends chunk r + first + k · step to rank r + 1, which adds it to
    its own. All chunk numbers are modulo p.
    """
    table = [[frozenset({(chunk, rank)}) for chunk in range(p)] for rank in range(p)]
    for k in range(rounds):
        sent = [(rank + first + k * step) % p for rank in range(p)]
        moving = [table[rank][sent[rank]] for rank in range(p)]
        for rank in range(p):
            table[rank][sent[rank - 1]] |= moving[rank - 1]
    return [list(row) for row in table]


def own_chunks_complete(table: list[chunks.Row]) -> int:
    """How many ranks r hold the sum of all ranks' chunk r."""
    return sum(len(row[rank] or ()) == len(table) for rank, row in enumerate(table))


def draw(p: int, first: int, step: int, rounds: int) -> Axes:
    """Axes with the table before the first round, after this many rounds, and what is wanted."""
    wanted = [
        [frozenset((c, r) for r in range(p)) if c == rank else chunks.EMPTY for c in range(p)]
        for rank in range(p)
    ]
    now = f"after {rounds} round{'s' * (rounds != 1)}"
    arrows = [f"←{(rank - 1) % p}" if rounds else "" for rank in range(p)]
    panels = {"before": after(p, first, step, 0), now: after(p, first, step, rounds)}
    axes = chunks.draw({**panels, "wanted at least": wanted}, notes={now: arrows})
    plt.setp(axes.texts, fontsize=9)
    return axes
