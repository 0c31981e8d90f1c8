"""Plans of buffers whose sizes grow with the batch: one plan for every number of texts.

A size is (fixed, per_text): a batch of b texts takes fixed + per_text · b bytes. Offsets have the
same form. b is at least 1. A lifetime is (size, first, last), as in `arena`.
"""

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from common.graphs import inputs
from common.graphs.rows import LEAVES
from common.lessons.memory import arena

Size = tuple[int, int]
Lifetime = tuple[Size, int, int]
BATCHES = (1, 4, 16, 64, 256)  # for which a plan's arena is compared with the live bytes


def nbytes(size: Size, texts: int) -> int:
    """The size's bytes for this batch."""
    return size[0] + size[1] * texts


def is_below(a: Size, b: Size) -> bool:
    """Whether a is at most b for every batch: for one text, and as the batch grows."""
    return sum(a) <= sum(b) and a[1] <= b[1]


def upper(a: Size, b: Size) -> Size:
    """The least size of this form that is never below a or b."""
    slope = max(a[1], b[1])
    return max(sum(a), sum(b)) - slope, slope


def sized(lifetimes: Sequence[Lifetime], texts: int) -> list[arena.Lifetime]:
    """The lifetimes for this batch, in bytes."""
    return [(nbytes(size, texts), first, last) for size, first, last in lifetimes]


def placed(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> list[Size]:
    """Offsets of first fit in this order. A gap that is taken is large enough for every batch."""
    offsets: dict[int, Size] = {}
    for i in order:
        size, first, last = lifetimes[i]
        spans = [
            (at, (at[0] + lifetimes[j][0][0], at[1] + lifetimes[j][0][1]))
            for j, at in offsets.items()
            if lifetimes[j][1] <= last and first <= lifetimes[j][2]
        ]
        at = (0, 0)
        while True:
            end = (at[0] + size[0], at[1] + size[1])
            hit = [b for a, b in spans if not (is_below(end, a) or is_below(b, at))]
            if not hit:
                break
            at = upper(at, min(hit, key=sum))
        offsets[i] = at
    return [offsets[i] for i in range(len(lifetimes))]


def plan(lifetimes: Sequence[Lifetime], tries: int = 300) -> list[Size]:
    """Offsets for every batch: the best of first fit in many orders, over BATCHES."""
    live = [max(arena.live_bytes(sized(lifetimes, texts))) for texts in BATCHES]

    def waste(offsets: Sequence[Size]) -> float:
        pairs = zip(BATCHES, live, strict=True)
        return sum(arena_bytes(lifetimes, offsets, texts) / low for texts, low in pairs)

    rng = np.random.default_rng(0)
    keys = np.array([nbytes(size, BATCHES[2]) for size, _, _ in lifetimes], dtype=float)
    best = placed(lifetimes, np.argsort(-keys).tolist())
    for _ in range(tries):
        changed = keys * rng.uniform(0.5, 1.5, len(keys)) ** rng.integers(0, 2, len(keys))
        offsets = placed(lifetimes, np.argsort(-changed).tolist())
        if waste(offsets) <= waste(best):
            keys, best = changed, offsets
    return best


def arena_bytes(lifetimes: Sequence[Lifetime], offsets: Sequence[Size], texts: int) -> int:
    """Where the arena of this batch ends."""
    return arena.arena_bytes(sized(lifetimes, texts), [nbytes(at, texts) for at in offsets])


def training(widths: Sequence[int]) -> list[Lifetime]:
    """Buffers of a training step of layers tanh(x @ w), in the order in which it is written."""
    rows, one = arena.training_graph(widths, 1)
    _, two = arena.training_graph(widths, 2)
    order = [i for i, (op, _) in enumerate(rows) if op not in LEAVES]
    last = {i: place for place, i in enumerate(order)}
    last |= {j: place for place, i in enumerate(order) for j in inputs(rows[i])}
    gradients = [
        i for i in order if rows[i][0] == "matmul" and rows[rows[i][1][0]][0] == "transpose"
    ]
    last |= dict.fromkeys(gradients, len(order) - 1)
    sizes = [(2 * a - b, b - a) for a, b in zip(one, two, strict=True)]
    return [(sizes[i], place, last[i]) for place, i in enumerate(order)]


# Pictures


def draw(
    lifetimes: Sequence[Lifetime],
    offsets: Sequence[Size],
    plan_buffers: Callable[[list[arena.Lifetime]], list[int]],
    title: str,
) -> Axes:
    """Axes with the arena per live byte: of one plan for all batches, and of a plan for each."""
    batches = [2**i for i in range(11)]
    low = [max(arena.live_bytes(sized(lifetimes, texts))) for texts in batches]
    one = [arena_bytes(lifetimes, offsets, texts) for texts in batches]
    each = [
        arena.arena_bytes(known, plan_buffers(list(known)))
        for known in (sized(lifetimes, texts) for texts in batches)
    ]
    ax = plt.subplots(figsize=(7.4, 3.0))[1]
    for place, (name, found) in enumerate(
        {"one plan for all": one, "a plan for each": each}.items()
    ):
        ratios = [a / b for a, b in zip(found, low, strict=True)]
        ax.plot(batches, ratios, "o-" if place else "s-", color=f"C{place}", label=name)
    ax.axhline(1, color="black", linestyle="--", linewidth=0.9)
    ax.set(xlabel="texts in a batch", ylabel="arena / most live bytes", title=title)
    ax.set_xscale("log", base=2)
    ax.set_xticks(batches[::2], labels=[f"{texts:,}" for texts in batches[::2]])
    ax.set_ylim(0.95, None)
    ax.legend()
    return ax
