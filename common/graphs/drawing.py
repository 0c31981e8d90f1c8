"""A graph on paper: the forward graph above, from left to right; the backward graph below it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from common.graphs import layout
from common.graphs.backward import Walk
from common.graphs.layout import Point
from common.graphs.rows import LEAVES, Row, ancestors, inputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIGNS = {
    "add": "+",
    "subtract": "−",
    "multiply": "×",
    "divide": "÷",
    "negative": "neg",
    "matmul": "@",
    "detach": "de-\ntach",
    "transpose": "T",
    "sum": "Σ",
    "row_sum": "row\nsum",
    "row_max": "row\nmax",
    "sum_like": "Σ",
    "broadcast_like": "copy",
    "greater": ">",
    "ones_like": "1",
    "zeros_like": "0",
    "random": "rand",
    "switch_true": "true",
    "switch_false": "false",
}
# Operators that read only the shape of their last input.
SHAPES_ONLY = ("sum_like", "broadcast_like", "ones_like", "zeros_like", "size")
PAGE_IN, LAYER_IN = 10, 0.62  # a graph that is wider than the page is drawn smaller
TEXT_SIZES = {1: 11, 2: 11, 3: 9}  # by the length of a node's sign; others have the smallest
SMALLEST = 8  # points, of all text
LETTER, LINE = 0.56, 0.9  # a letter's width and a line's height, over the size of text
ROOM = 1.5  # between the heights where nodes have adjoints above and values below
FORWARD, BACKWARD, KEPT, WRONG, DEAD = "C0", "C1", "#b5b5b5", "#c8102e", "#cfcfcf"


def draw(
    rows: Sequence[Row],
    outputs: Sequence[int],
    *,
    names: Mapping[int, str] | None = None,
    values: Sequence[Any] | None = None,
    adjoints: Mapping[int, str] | None = None,
    current: int | None = None,
    title: str = "",
) -> Axes:
    """Axes with the graph in layers: what the first output needs above, what the others add below.

    outputs: numbers of rows. names: {row: what to write beside it}. values: one for each row; a
    number or a shape is written under the node, what is not finite is drawn in red, what did not
    run (None, "DEAD") is faded. adjoints: {row: what to write above it}. current: the row that is
    marked. Grey edges carry values of the forward graph to the backward graph. Edges that carry
    only a shape are left out.
    """
    edges = {
        i: inputs(row)[:-1] if row[0] in SHAPES_ONLY else inputs(row) for i, row in enumerate(rows)
    }
    forward = ancestors(rows, outputs[:1])
    place = _spread(layout.places(edges, forward, outputs), ROOM if adjoints else 1.0)
    labels = [("", None)] * len(rows) if values is None else [_label(value) for value in values]
    ax, scale = _canvas(list(place.values()), title)
    for i, row in enumerate(rows):
        text, special = labels[i]
        color = special or (FORWARD if i in forward else BACKWARD)
        for j in edges[i]:
            if j in forward and i not in forward:
                _kept_edge(ax, place[j], place[i], _radius(row))
            else:
                route = [place[j], *_passed(place, j, i), place[i]]
                ink = DEAD if labels[j][1] == DEAD else color
                _edge(ax, route, _radius(rows[j]), _radius(row), ink)
        beneath = _node(ax, place[i], row, color, scale)
        _value(ax, place[i], _radius(row), "\n".join(filter(None, [beneath, text])), color, scale)
        _name(ax, place[i], (names or {}).get(i, ""), 1 if i in forward else -1, scale)
        _adjoint(ax, place[i], (adjoints or {}).get(i, ""), i == current, scale)
    return ax


def _spread(place: Mapping[layout.Node, Point], factor: float) -> dict[layout.Node, Point]:
    """The same places, with this factor between the heights."""
    return {node: (x, factor * y) for node, (x, y) in place.items()}


def _passed(place: Mapping[layout.Node, Point], j: int, i: int) -> list[Point]:
    """Where the edge from row j to row i passes a layer."""
    return [
        point for node, point in place.items() if isinstance(node, tuple) and node[:2] == (j, i)
    ]


def draw_walk(rows: Sequence[Row], walk: Walk, steps: int) -> Axes:
    """Axes with a graph and all its values, and the adjoints after this many steps backward."""
    arrived = walk.arrived[steps]
    adjoints = {i: f"{sum(came):.2f}".replace("-", "−") for i, came in arrived.items()}
    current = walk.visited[steps - 1] if steps else None
    outputs = [len(rows) - 1]
    title = "adjoints above, values below"
    return draw(rows, outputs, values=walk.values, adjoints=adjoints, current=current, title=title)


def _canvas(points: Sequence[Point], title: str) -> tuple[Axes, float]:
    """Axes for these points, and how large to draw a node: 1 if the graph fits the page."""
    import matplotlib.pyplot as plt

    right = max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    layer_in = min(LAYER_IN, PAGE_IN / (right + 2))
    size_in = layer_in * max(right + 2, 3), layer_in * (high - low + 1.3) + 0.4
    _, ax = plt.subplots(figsize=size_in)
    ax.set(xlim=(-1, right + 1), ylim=(low - 0.7, high + 0.6), aspect="equal", title=title)
    ax.axis("off")
    return ax, layer_in / LAYER_IN


def _label(value: Any) -> tuple[str, str | None]:
    """What is written under a node of this value, and the colour that the value gives the node."""
    import numpy as np

    if value is None or isinstance(value, str):
        return "", DEAD
    array = np.asarray(value)
    number = array.size == 1
    text = f"{array.item():.3g}".replace("-", "−") if number else "×".join(map(str, array.shape))
    return text, None if np.isfinite(array).all() else WRONG


def _radius(row: Row) -> float:
    return 0.17 if row[0] == "sum_like" else 0.31  # most sum_like only pass their input on


def _edge(
    ax: Axes, route: Sequence[Point], start_radius: float, end_radius: float, color: str
) -> None:
    """An arrow along a route of points, level where it passes one."""
    side = math.copysign(1, route[-1][0] - route[0][0])
    (x, y), (u, v) = route[0], route[-1]
    route = [(x + side * start_radius, y), *route[1:-1], (u - side * end_radius, v)]
    points = [route[0]]
    for (x, y), (u, v) in itertools.pairwise(route):
        points += [((x + u) / 2, y), ((x + u) / 2, v), (u, v)]
    _arrow(ax, points, color, linewidth=1.4, zorder=1.5 if color == DEAD else 2)


def _kept_edge(ax: Axes, start: Point, end: Point, end_radius: float) -> None:
    """A thin arrow down from the forward graph. It arrives from the side, so no node hides it."""
    (x, y), (u, v) = start, end
    side = math.copysign(math.sqrt(0.5), x - u)
    points = [
        (x, y),
        (x, y - 0.4 * (y - v)),
        (u + side, v + 1),
        (u + side * end_radius, v + abs(side) * end_radius),
    ]
    _arrow(ax, points, KEPT, linewidth=0.9, zorder=1)


def _arrow(ax: Axes, points: Iterable[Point], color: str, **style: Any) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    points = list(points)
    path = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
    arrow = FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=8, color=color, **style)
    ax.add_patch(arrow)


def _node(ax: Axes, point: Point, row: Row, color: str, scale: float) -> str:
    """A circle with the operator's sign, filled if it is a leaf; the sign, if it does not fit."""
    from matplotlib.patches import Circle

    op, content = row
    leaf = op in LEAVES
    text = _content(op, content) if leaf else SIGNS.get(op, op)
    lines = text.split("\n")
    size = _points(7 if op == "sum_like" else TEXT_SIZES.get(len(text), SMALLEST), scale)
    fill = color if leaf else "white"
    circle = Circle(point, _radius(row), facecolor=fill, edgecolor=color, linewidth=1.4, zorder=3)
    ax.add_patch(circle)
    diagonal = size * math.hypot(LETTER * max(map(len, lines)), LINE * len(lines))
    if diagonal > 2 * _radius(row) * LAYER_IN * scale * 72:
        return text.replace("-\n", "").replace("\n", " ")
    ink = "white" if leaf else DEAD if color == DEAD else "black"
    style: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": LINE, "zorder": 4}
    ax.annotate(text, point, size=size, color=ink, **style)
    return ""


def _points(size: float, scale: float) -> float:
    """The size of text in a graph that is drawn at this scale."""
    return max(SMALLEST, size * scale)


def _content(op: str, content: Any) -> str:
    """What a leaf's circle says: its name, its number, or an array's shape."""
    import numpy as np

    if op != "constant":
        return content
    return f"{content:g}" if np.ndim(content) == 0 else "×".join(map(str, np.shape(content)))


def _value(ax: Axes, point: Point, radius: float, text: str, color: str, scale: float) -> None:
    """A node's value, beneath it."""
    if text:
        ax.annotate(
            text,
            (point[0], point[1] - radius - 0.05),
            ha="center",
            va="top",
            size=_points(7.5, scale),
            zorder=4,
            color=WRONG if color == WRONG else "#444444",
            bbox=dict(boxstyle="square,pad=0.05", facecolor="white", edgecolor="none", alpha=0.8),
        )


def _adjoint(ax: Axes, point: Point, text: str, is_current: bool, scale: float) -> None:
    """A node's adjoint, above it; a node that hands its adjoint on now has a ring."""
    from matplotlib.patches import Circle

    place = point[0], point[1] + 0.36
    style: dict[str, Any] = {"color": BACKWARD, "zorder": 5}
    ax.annotate(text, place, ha="center", va="bottom", size=_points(9, scale), **style)
    if is_current:
        ax.add_patch(Circle(point, 0.38, fill=False, edgecolor=BACKWARD, linewidth=2, zorder=4))


def _name(ax: Axes, point: Point, name: str, side: int, scale: float) -> None:
    """A node's name, on one side of it."""
    place = point[0] + side * 0.45, point[1]
    size = _points(10, scale)
    ax.annotate(name, place, ha="left" if side > 0 else "right", va="center", size=size)
