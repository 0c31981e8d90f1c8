"""Where the rows of a graph are drawn: in layers, with few crossings."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

# A row, or where the edge from row j to row i passes layer n: (j, i, n).
Node = int | tuple[int, int, int]
Point = tuple[float, float]
SWEEPS = 30  # over the layers, each of which moves near its neighbours


def places(
    edges: Mapping[int, Sequence[int]], forward: Collection[int], outputs: Collection[int]
) -> dict[Node, Point]:
    """The forward graph from left to right; everything else below it, from right to left.

    edges: for each row, the rows that it reads.
    """
    above = _layered(edges, forward, ())
    below = _layered(edges, set(edges) - set(forward), outputs)
    width = max(layer for layer, _ in [*above.values(), *below.values()])
    lowest = min(height for _, height in above.values())
    drop = max([height for _, height in below.values()], default=0) - lowest + 1.5
    return _stretched(above, 0, width, 0) | _stretched(below, width, 0, -drop)


def _layered(
    edges: Mapping[int, Sequence[int]], chosen: Collection[int], last: Collection[int]
) -> dict[Node, Point]:
    """(layer, height) of the chosen rows: each after its inputs, near its neighbours' height."""
    edges = {i: [j for j in edges[i] if j in chosen] for i in sorted(chosen)}
    rows = _layers(edges, last)
    layers: dict[Node, int] = {**rows}
    neighbours: dict[Node, list[Node]] = {i: [] for i in edges}
    for j, i in [(j, i) for i, before in edges.items() for j in before]:
        passed: dict[Node, int] = {(j, i, n): n for n in range(rows[j] + 1, rows[i])}
        layers |= passed
        for a, b in itertools.pairwise([j, *passed, i]):
            neighbours.setdefault(a, []).append(b)
            neighbours.setdefault(b, []).append(a)
    heights = _heights(layers, neighbours)
    return {node: (layers[node], heights[node]) for node in layers}


def _layers(edges: Mapping[int, Sequence[int]], last: Collection[int]) -> dict[int, int]:
    """The layer of each row, after its inputs'; those of `last` that nothing reads come last."""
    users = {i: [j for j in edges if i in edges[j]] for i in edges}
    layers: dict[int, int] = {}
    for i, before in edges.items():
        layers[i] = 1 + max((layers[j] for j in before), default=-1)
    for i in reversed(list(edges)):
        if users[i] and not edges[i]:  # it waits for nothing: just before its first user
            layers[i] = min(layers[j] for j in users[i]) - 1
        elif not users[i] and i in last:
            layers[i] = max(layers.values())
    return layers


def _heights(
    layers: Mapping[Node, int], neighbours: Mapping[Node, Sequence[Node]]
) -> dict[Node, float]:
    """Heights for which neighbours are level, as far as those of one layer leave room."""
    depth = 1 + max(layers.values(), default=-1)
    columns = [[node for node in layers if layers[node] == n] for n in range(depth)]
    heights: dict[Node, float] = {
        node: (len(column) - 1) / 2 - y for column in columns for y, node in enumerate(column)
    }
    for column in itertools.chain(*[columns, columns[::-1]] * (SWEEPS // 2)):
        wishes = {node: _mean(heights, neighbours[node] or [node]) for node in column}
        heights |= _spread(sorted(column, key=wishes.__getitem__), wishes)
    return heights


def _mean(heights: Mapping[Node, float], nodes: Sequence[Node]) -> float:
    return sum(heights[node] for node in nodes) / len(nodes)


def _spread(column: Iterable[Node], wishes: Mapping[Node, float]) -> dict[Node, float]:
    """Heights in this order, 1 or more between two, nearest to the wishes (isotonic regression)."""
    blocks: list[tuple[float, int]] = []  # of nodes that touch: (sum of wishes less places, number)
    column = list(column)
    for n, node in enumerate(column):
        total, count = wishes[node] - n, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            above, more = blocks.pop()
            total, count = total + above, count + more
        blocks.append((total, count))
    levels = [total / count for total, count in blocks for _ in range(count)]
    return {node: n + level for n, (node, level) in enumerate(zip(column, levels, strict=True))}


def _stretched(
    points: Mapping[Node, Point], start: float, end: float, rise: float
) -> dict[Node, Point]:
    """The same points, raised, with the layers from x = start to x = end."""
    depth = max([x for x, _ in points.values()], default=0) or 1
    return {node: (start + (end - start) * x / depth, y + rise) for node, (x, y) in points.items()}
