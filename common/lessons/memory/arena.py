"""Buffers in one arena: lifetimes of random graphs, replay with poisoned memory, pictures.

A lifetime is (bytes, first, last): the buffer is live while steps first to last run, both included.
"""

import itertools
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from common.checks import is_whole
from common.graphs import inputs, random_graph
from common.graphs.rows import LEAVES, Row

Lifetime = tuple[int, int, int]
POISON = -1  # what a byte holds that belongs to nobody
MLP = ("matmul", "tanh")


def drawn_graph(rng: np.random.Generator, size: int) -> tuple[list[Row], list[int]]:
    """A random graph, and the bytes of each row's value."""
    rows = random_graph(rng, size, 2)
    return rows, (8 * rng.integers(1, 20, len(rows))).tolist()


def drawn_order(rng: np.random.Generator, rows: Sequence[Row]) -> list[int]:
    """The operators of a graph in a random order that respects what they read."""
    left = [i for i, (op, _) in enumerate(rows) if op not in LEAVES]
    order: list[int] = []
    while left:
        done = {i for i, (op, _) in enumerate(rows) if op in LEAVES} | set(order)
        ready = [i for i in left if done.issuperset(inputs(rows[i]))]
        order.append(int(rng.choice(ready)))
        left.remove(order[-1])
    return order


def drawn_lifetimes(rng: np.random.Generator, buffers: int) -> list[Lifetime]:
    """Buffers as a random graph has them: most die soon, some live long, sizes differ widely."""
    found = []
    for step in range(buffers):
        length = (
            int(rng.geometric(0.3)) if rng.random() < 0.7 else int(rng.integers(1, max(buffers, 2)))
        )
        size = int(2 ** rng.uniform(0, 7))
        found.append((size, step, min(step + length, buffers)))
    return [found[i] for i in rng.permutation(buffers)]


def live_bytes(lifetimes: Sequence[Lifetime]) -> list[int]:
    """How many bytes are live in each step: no arena is smaller than the most."""
    steps = 1 + max((last for _, _, last in lifetimes), default=-1)
    return [
        sum(size for size, first, last in lifetimes if first <= step <= last)
        for step in range(steps)
    ]


def arena_bytes(lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> int:
    """Where the last byte of the arena ends."""
    return max((at + one[0] for at, one in zip(offsets, lifetimes, strict=True)), default=0)


def replay(lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> str:
    """What goes wrong when a program uses this plan; "" if nothing does.

    Each buffer writes its number into all its bytes at its first step, reads them at each step
    until its last, and leaves poison behind.
    """
    if len(offsets) != len(lifetimes):
        return f"{len(offsets)} offsets came for {len(lifetimes)} buffers"
    bad = [at for at in offsets if not is_whole(at) or at < 0]
    if bad:
        return f"the offset {bad[0]!r} is not a whole number of bytes from 0 on"
    arena = np.full(arena_bytes(lifetimes, offsets), POISON)
    places = [slice(at, at + one[0]) for at, one in zip(offsets, lifetimes, strict=True)]
    steps = 1 + max((last for _, _, last in lifetimes), default=-1)
    for step in range(steps):
        for number, (_, first, _) in enumerate(lifetimes):
            if first == step:
                arena[places[number]] = number
        for number, (size, first, last) in enumerate(lifetimes):
            if first <= step <= last:
                found = arena[places[number]]
                if (found != number).any():
                    other = int(found[found != number][0])
                    whose = f"buffer {other} {lifetimes[other]}" if other >= 0 else "poison"
                    return (
                        f"step {step}: buffer {number} {(size, first, last)} at {offsets[number]} "
                        f"reads what {whose} left there"
                    )
        for number, (_, _, last) in enumerate(lifetimes):
            if last == step:
                arena[places[number]] = POISON
    return ""


# Pictures


def draw(lifetimes: Sequence[Lifetime], offsets: Sequence[int], title: str) -> Axes:
    """Axes with each buffer as a rectangle: steps to the right, bytes of the arena upwards."""
    ax = plt.subplots(figsize=(7.4, 3.4))[1]
    for number, (at, (size, first, last)) in enumerate(zip(offsets, lifetimes, strict=True)):
        style = {"facecolor": f"C{number % 8}", "edgecolor": "white", "alpha": 0.85}
        ax.add_patch(plt.Rectangle((first, at), last + 1 - first, size, **style))
    counts = live_bytes(lifetimes)
    end = arena_bytes(lifetimes, offsets)
    ax.step(range(len(counts) + 1), [*counts, 0], where="post", color="black", label="live bytes")
    ax.axhline(end, color="C3", linestyle="--", label=f"arena: {end:,} bytes")
    ax.set(xlim=(0, len(counts)), ylim=(0, 1.25 * end), xlabel="step", ylabel="bytes", title=title)
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.legend(loc="upper right", ncols=2)
    return ax


def training_graph(widths: Sequence[int], batch: int) -> tuple[list[Row], list[int]]:
    """Forward and backward of a chain of layers tanh(x @ w), as rows, and each row's bytes.

    Row by row: x and the weights, then per layer its product and its tanh, then backward.
    """
    rows: list[Row] = [("placeholder", "x")]
    sizes = [4 * batch * widths[0]]

    def add(op: str, read: object, *shape: int) -> int:
        rows.append((op, read))
        sizes.append(4 * int(np.prod(shape)))
        return len(rows) - 1

    pairs = list(itertools.pairwise(widths))
    weights = [add("placeholder", f"w{i}", n, m) for i, (n, m) in enumerate(pairs)]
    values = [0]
    for weight, (_, m) in zip(weights, pairs, strict=True):
        product = add("matmul", (values[-1], weight), batch, m)
        values.append(add("tanh", (product,), batch, m))
    slope = add("ones_like", (values[-1],), batch, widths[-1])
    for i, (n, m) in reversed(list(enumerate(pairs))):
        squared = add("multiply", (values[i + 1], values[i + 1]), batch, m)
        scaled = add("multiply", (slope, squared), batch, m)
        slope = add("subtract", (slope, scaled), batch, m)
        turned = add("transpose", (values[i],), n, batch)
        add("matmul", (turned, slope), n, m)
        if i:
            back = add("transpose", (weights[i],), m, n)
            slope = add("matmul", (slope, back), batch, n)
    return rows, sizes
