"""A dataflow graph as data, a list of rows (op, inputs): evaluated by PyTorch, drawn at random, and drawn on paper.

A row's inputs are the numbers of earlier rows; a placeholder has its name there, a constant its value.
"""

import itertools
import math

LEAVES = ("placeholder", "constant")


def values(rows, feeds):
    """A tensor for each row, computed by PyTorch; None for an operator that did not run, its branch not being taken.

    feeds: {name of a placeholder: tensor}. ValueError names a row that is none.
    """
    import torch

    found = []
    for number, (op, inputs) in enumerate(rows):
        if op == "placeholder":
            found.append(feeds[inputs])
        elif op == "constant":
            if inputs is None:
                raise ValueError(
                    f"row {number} is a constant without a value: detached from a graph that has not run"
                )
            found.append(
                torch.as_tensor(
                    inputs, dtype=torch.float64 if isinstance(inputs, (int, float)) else None
                )
            )
        elif not all(isinstance(i, int) and 0 <= i < number for i in inputs):
            raise ValueError(f"row {number} is {(op, inputs)}: its inputs must be earlier rows")
        else:
            arguments = [found[i] for i in inputs]
            dead = op != "merge" and any(value is None for value in arguments)
            try:
                found.append(None if dead else torch_operator(op)(*arguments))
            except RuntimeError as error:
                shapes = [None if x is None else tuple(x.shape) for x in arguments]
                raise ValueError(f"row {number}, {op} of shapes {shapes}: {error}") from None
    return found


def evaluated(rows, outputs, feeds):
    """The values of these outputs, numbers of rows, computed by PyTorch: a list of tensors."""
    found = values(rows, feeds)
    return [found[i] for i in outputs]


def adjoints(rows, outputs, inputs, g):
    """The values of these outputs of a graph of placeholders g, x0, x1, ...: a list of tensors.

    Each is summed down to its input's shape; None where there is no output, or where its branch was not taken.
    ValueError where that is not possible.
    """
    import torch

    found = values(rows, {"g": g} | {f"x{i}": x for i, x in enumerate(inputs)})
    given = [None if output is None else found[output] for output in outputs]
    for i, (v, x) in enumerate(zip(given, inputs, strict=True)):
        if v is not None and torch.broadcast_shapes(v.shape, x.shape) != v.shape:
            raise ValueError(
                f"the adjoint of input {i} has shape {tuple(v.shape)}: the input's, {tuple(x.shape)}, "
                "is not expandable to that"
            )
    return [v if v is None else v.sum_to_size(x.shape) for v, x in zip(given, inputs, strict=True)]


def torch_operator(op):
    """The operator of that name as PyTorch has it, a function of tensors; None stands for a value that is dead."""
    import torch

    operators = {
        "add": torch.add,
        "subtract": torch.sub,
        "multiply": torch.mul,
        "divide": torch.div,
        "negative": torch.neg,
        "exp": torch.exp,
        "log": torch.log,
        "sin": torch.sin,
        "cos": torch.cos,
        "tanh": torch.tanh,
        "relu": torch.relu,
        "step": lambda x: (x > 0).to(x.dtype),
        "greater": torch.gt,
        "matmul": torch.matmul,
        "transpose": lambda x: x.mT,
        "sum": torch.sum,
        "mean": torch.mean,
        "size": lambda x: torch.tensor(float(x.numel()), dtype=x.dtype),
        "row_sum": lambda x: x.sum(-1, keepdim=True),
        "row_max": lambda x: x.amax(-1, keepdim=True),
        "sum_like": lambda g, like: g.sum_to_size(like.shape),
        "broadcast_like": lambda x, like: x.expand_as(like),
        "detach": torch.detach,
        "zeros_like": torch.zeros_like,
        "ones_like": torch.ones_like,
        "switch_true": lambda p, x: x if p else None,
        "switch_false": lambda p, x: None if p else x,
        "merge": lambda p, a, b: a if p else b,
    }
    if op not in operators:
        raise ValueError(f"there is no operator {op!r}: there are {', '.join(operators)}")
    return operators[op]


def gradient(function, inputs, weight=1.0):
    """The gradients of sum(weight * function(*inputs)): PyTorch's, confirmed by central differences.

    inputs: float64 tensors.
    """
    import torch

    def weighted(*xs):
        return (weight * function(*xs)).sum()

    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    found = torch.autograd.grad(weighted(*leaves), leaves, materialize_grads=True)
    ways = [torch.arange(x.numel(), dtype=x.dtype).cos().reshape(x.shape) for x in inputs]  # any do
    slope = sum((g * way).sum() for g, way in zip(found, ways, strict=True))
    torch.testing.assert_close(
        _central_difference(weighted, inputs, ways), slope, rtol=1e-6, atol=1e-6
    )
    return list(found)


def tangent(function, inputs, ways):
    """(value, derivative along these ways) of function(*inputs): PyTorch's, confirmed by central differences.

    inputs, ways: float64 tensors of the same shapes.
    """
    import torch

    value, found = torch.autograd.functional.jvp(function, tuple(inputs), tuple(ways))
    torch.testing.assert_close(
        _central_difference(function, inputs, ways), found, rtol=1e-6, atol=1e-6
    )
    return value, found


def _central_difference(function, inputs, ways, step=1e-6):
    ahead, behind = (
        function(*[x + s * way for x, way in zip(inputs, ways, strict=True)]) for s in (step, -step)
    )
    return (ahead - behind) / (2 * step)


def operators(rows):
    """How many rows are operators, not leaves."""
    return sum(op not in LEAVES for op, _ in rows)


def inputs(row):
    """The numbers of the rows that a row reads: a tuple, empty for a leaf."""
    op, inputs = row
    return () if op in LEAVES else tuple(inputs)


def ancestors(rows, outputs):
    """The numbers of the rows that these outputs are computed from, themselves included: a set."""
    found = set(outputs)
    for i in reversed(range(len(rows))):
        found.update(inputs(rows[i]) if i in found else ())
    return found


def random_graph(rng, size, placeholders):
    """Rows of a graph of about `size` smooth element-wise operators on placeholders x0, x1, ..., ending in a sum.

    Inputs are drawn among all earlier rows, so that values fan out; sines keep every value and divisor in range.
    """
    rows = [("placeholder", f"x{i}") for i in range(placeholders)]
    while len(rows) < placeholders + size:
        a, b = rng.integers(0, len(rows), 2).tolist()
        op = str(rng.choice(["add", "subtract", "multiply", "divide", "sin", "cos", "tanh"]))
        if op in ("sin", "cos", "tanh"):
            rows.append((op, (a,)))
        elif op == "divide":
            rows += [
                ("sin", (b,)),
                ("exp", (len(rows),)),
                ("divide", (a, len(rows) + 1)),
                ("sin", (len(rows) + 2,)),
            ]
        else:
            rows += [(op, (a, b)), ("sin", (len(rows),))]
    for leaf in range(placeholders):  # no placeholder is left out
        rows.append(("multiply", (len(rows) - 1, leaf)))
    return [*rows, ("sum", (len(rows) - 1,))]


# The drawing: the forward graph above, from left to right; the backward graph below, from right to left.

SIGNS = {
    "add": "+",
    "subtract": "−",
    "multiply": "×",
    "divide": "÷",
    "negative": "neg",
    "matmul": "@",
    "transpose": "T",
    "sum": "Σ",
    "row_sum": "row\nsum",
    "row_max": "row\nmax",
    "sum_like": "Σ",
    "broadcast_like": "copy",
    "greater": ">",
    "ones_like": "1",
    "zeros_like": "0",
    "switch_true": "switch\ntrue",
    "switch_false": "switch\nfalse",
}
SHAPES_ONLY = (
    "sum_like",
    "broadcast_like",
    "ones_like",
    "zeros_like",
    "size",
)  # they read their last input's shape
PAGE_IN = 10  # a wider graph is drawn smaller
FORWARD, BACKWARD, KEPT, WRONG, DEAD = "C0", "C1", "#b5b5b5", "#c8102e", "#cfcfcf"


def draw(rows, outputs, *, names=None, values=None, title=""):
    """Axes with the graph in layers: what the first output needs above, what the other outputs add below.

    outputs: numbers of rows. names: {row: what to write beside it}. values: one for each row; a number or a shape is
    written under the node, what is not finite is drawn in red, what did not run (None, "DEAD") is faded.
    Grey edges carry values of the forward graph to the backward graph. Edges that give only a shape are left out.
    """
    import matplotlib.pyplot as plt

    edges = {
        i: inputs(row)[:-1] if row[0] in SHAPES_ONLY else inputs(row) for i, row in enumerate(rows)
    }
    forward = ancestors(rows, outputs[:1])
    place = _places(edges, forward, outputs)
    x_range, y_range = (
        [f(point[axis] for point in place.values()) for f in (min, max)] for axis in (0, 1)
    )
    layer_in = min(0.62, PAGE_IN / (x_range[1] + 2))
    _, ax = plt.subplots(
        figsize=(
            layer_in * max(x_range[1] + 2, 3),
            layer_in * (y_range[1] - y_range[0] + 1.3) + 0.4,
        )
    )
    for i, row in enumerate(rows):
        text, color = _label(values[i]) if values is not None else ("", None)
        color = color or (FORWARD if i in forward else BACKWARD)
        for j in edges[i]:
            if j in forward and i not in forward:
                _kept_edge(ax, place[j], place[i], _radius(row))
            else:
                passed = [
                    point
                    for key, point in place.items()
                    if isinstance(key, tuple) and key[:2] == (j, i)
                ]
                dead = values is not None and _label(values[j])[1] == DEAD
                _edge(
                    ax,
                    [place[j], *passed, place[i]],
                    _radius(rows[j]),
                    _radius(row),
                    DEAD if dead else color,
                )
        _node(ax, place[i], row, color, layer_in / 0.62)
        name, side = (names or {}).get(i, ""), 1 if i in forward else -1
        _texts(ax, place[i], _radius(row), text, name, side, color, layer_in / 0.62)
    ax.set(
        xlim=(-1, x_range[1] + 1),
        ylim=(y_range[0] - 0.7, y_range[1] + 0.6),
        aspect="equal",
        title=title,
    )
    ax.axis("off")
    return ax


def _label(value):
    """(what is written under a node of this value, the colour that the value gives the node or None)."""
    import numpy as np

    if value is None or isinstance(value, str):
        return "", DEAD
    array = np.asarray(value)
    text = (
        f"{array.item():.3g}".replace("-", "−")
        if array.size == 1
        else "×".join(map(str, array.shape))
    )
    return text, None if np.isfinite(array).all() else WRONG


def _places(edges, forward, outputs):
    """{row: (x, y)}: the forward graph from left to right, all else below it, from right to left."""
    above, below = _layers(edges, forward, ()), _layers(edges, set(edges) - forward, outputs)
    width = max(x for x, _ in [*above.values(), *below.values()])
    drop = max([y for _, y in below.values()], default=0) - min(y for _, y in above.values()) + 1.5
    return _stretched(above, 0, width, 0) | _stretched(below, width, 0, -drop)


def _layers(edges, chosen, last):
    """{row: (layer, height)}: a row after its inputs, at a height near its neighbours'; `last` in the last layer.

    An edge from j to i that passes a layer n has a place there too, {(j, i, n): (n, height)}.
    """
    edges = {i: [j for j in edges[i] if j in chosen] for i in sorted(chosen)}
    users = {i: [j for j in edges if i in edges[j]] for i in edges}
    layer = {}
    for i, before in edges.items():
        layer[i] = 1 + max((layer[j] for j in before), default=-1)
    for i in reversed(edges):  # what waits for nothing stands just before its first user
        if users[i] and not edges[i]:
            layer[i] = min(layer[j] for j in users[i]) - 1
        elif not users[i] and i in last:
            layer[i] = max(layer.values())
    near = {i: [] for i in edges}
    for j, i in [(j, i) for i, before in edges.items() for j in before]:
        passed = {(j, i, n): n for n in range(layer[j] + 1, layer[i])}
        layer |= passed
        for a, b in itertools.pairwise([j, *passed, i]):
            near.setdefault(a, []).append(b)
            near.setdefault(b, []).append(a)
    columns = [
        [i for i in layer if layer[i] == n] for n in range(max(layer.values(), default=-1) + 1)
    ]
    height = {i: (len(column) - 1) / 2 - y for column in columns for y, i in enumerate(column)}
    for column in itertools.chain(*[columns, columns[::-1]] * 15):
        wish = {
            i: sum(height[j] for j in near[i]) / len(near[i]) if near[i] else height[i]
            for i in column
        }
        height |= _spread(sorted(column, key=wish.get), wish)
    return {i: (layer[i], height[i]) for i in layer}


def _spread(column, wish):
    """{row: height}: at least one apart, in this order, and nearest to what is wished for (isotonic regression)."""
    blocks = []  # of rows that touch: [sum of their wishes, each less its place in the column, how many]
    for n, i in enumerate(column):
        blocks.append([wish[i] - n, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    levels = [total / count for total, count in blocks for _ in range(count)]
    return {i: n + level for n, (i, level) in enumerate(zip(column, levels, strict=True))}


def _stretched(place, start, end, rise):
    """The same places, raised, with the layers from x = start to x = end."""
    depth = max([x for x, _ in place.values()], default=0) or 1
    return {i: (start + (end - start) * x / depth, y + rise) for i, (x, y) in place.items()}


def _radius(row) -> float:
    return (
        0.14 if row[0] == "sum_like" else 0.31
    )  # most of these only pass on what has its shape already


def _edge(ax, route, start_radius, end_radius, color) -> None:
    """An arrow along a route of points, level where it passes one."""
    side = math.copysign(1, route[-1][0] - route[0][0])
    (x, y), (u, v) = route[0], route[-1]
    route = [(x + side * start_radius, y), *route[1:-1], (u - side * end_radius, v)]
    points = [route[0]]
    for (x, y), (u, v) in itertools.pairwise(route):
        points += [((x + u) / 2, y), ((x + u) / 2, v), (u, v)]
    _arrow(ax, points, color, linewidth=1.4, zorder=1.5 if color == DEAD else 2)


def _kept_edge(ax, start, end, end_radius) -> None:
    """A thin arrow that comes down from the forward graph and arrives from the side, where no node can hide it."""
    (x, y), (u, v) = start, end
    side = math.copysign(math.sqrt(0.5), x - u)
    points = [
        (x, y),
        (x, y - 0.4 * (y - v)),
        (u + side, v + 1),
        (u + side * end_radius, v + abs(side) * end_radius),
    ]
    _arrow(ax, points, KEPT, linewidth=0.9, zorder=1)


def _arrow(ax, points, color, **style) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    path = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
    ax.add_patch(
        FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=8, color=color, **style)
    )


def _node(ax, point, row, color, scale) -> None:
    """A circle with the operator's sign, filled where it is a leaf."""
    from matplotlib.patches import Circle

    op, content = row
    leaf = op in LEAVES
    text = f"{content:g}" if op == "constant" else content if leaf else SIGNS.get(op, op)
    size = 7 if op == "sum_like" else {1: 11, 2: 11, 3: 9, 4: 8, 5: 7.5}.get(len(text), 6.5)
    fill = color if leaf else "white"
    ax.add_patch(
        Circle(point, _radius(row), facecolor=fill, edgecolor=color, linewidth=1.4, zorder=3)
    )
    ax.annotate(
        text,
        point,
        ha="center",
        va="center",
        size=size * scale,
        linespacing=0.9,
        zorder=4,
        color="white" if leaf else DEAD if color == DEAD else "black",
    )


def _texts(ax, point, radius, value, name, side, color, scale) -> None:
    """A node's value beneath it and its name on one side."""
    x, y = point
    if value:
        ax.annotate(
            value,
            (x, y - radius - 0.05),
            ha="center",
            va="top",
            size=7.5 * scale,
            zorder=4,
            color=WRONG if color == WRONG else "#444444",
            bbox=dict(boxstyle="square,pad=0.05", facecolor="white", edgecolor="none", alpha=0.8),
        )
    ax.annotate(
        name, (x + side * 0.45, y), ha="left" if side > 0 else "right", va="center", size=10 * scale
    )
