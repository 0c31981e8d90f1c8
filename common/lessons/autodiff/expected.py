"""Cases for the engine of lab 07, with values, tangents and adjoints by PyTorch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import graphs, samples
from common.checks import expect, static_names
from common.figures import memory_drawings
from common.graphs import Row

BINARY = ("add", "subtract", "multiply", "divide", "matmul")
ELEMENTWISE = ("multiply", "divide", "log", "tanh", "relu")
MIXING = ("matmul", "transpose", "sum", "row_sum", "mean")
TRAINED = ("x", "labels", "w1", "b1", "w2", "b2", "rate")
SHAPES = ((1, 1), (3, 3), (0, 0))


@dataclass(frozen=True)
class Case:
    """One question: what is asked, in words, and the answer.

    mistakes: {sentence: the answer that this mistake gives}.
    """

    text: str
    args: tuple[Any, ...]
    want: Any
    mistakes: Mapping[str, Any] = field(default_factory=dict)


def node_cases(rng: np.random.Generator) -> Iterator[Case]:
    """What Node(op, *inputs, value, name) records, as lab 07's driver describes it."""
    a, b = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    for value in (None, 0.0, 2.5, a):
        text = f"Node('leaf', value={'array' if value is a else value}, name='v')"
        lost = {
            "A node without inputs keeps the value that it is given.": ("leaf", "v", [], None, True)
        }
        mistakes = {} if value is None else lost
        yield Case(text, ("leaf", [], value, "v"), ("leaf", "v", [], value, True), mistakes)
    for op, inputs, value in _recorded_cases(a, b):
        text = f"Node({op!r}, {', '.join(_shown(x) for x in inputs)})"
        came = [_recorded(x) for x in inputs]
        copies = "Read the very nodes that you are given, not copies."
        mistakes = {copies: (op, None, came, value, False)}
        if value is not None:
            missed = (
                "DEAD is a value, too: hand it to evaluate, which knows it."
                if graphs.DEAD in text
                else "The inputs have values, so the operator has one. (0.0 is a value, too; so is "
                "NaN.)"
            )
            mistakes |= {missed: (op, None, came, None, True)}
        if len(inputs) == 2 and all(isinstance(x, str) for x in inputs):
            twice = "An operator that reads a node twice has it among its inputs twice."
            mistakes |= {twice: (op, None, came[:1], value, True)}
        if inputs[0] is a:
            bare = "An array among the inputs becomes a constant, too."
            mistakes |= {bare: (op, None, [a, *came[1:]], value, True)}
        yield Case(text, (op, inputs), (op, None, came, value, True), mistakes)


def _recorded_cases(a: np.ndarray, b: np.ndarray) -> list[tuple[str, list[Any], Any]]:
    """[(op, inputs, the value that the Node has)]; "x" is a placeholder, a tuple a leaf's value."""
    return [
        ("multiply", ["x", 2.0], None),
        ("multiply", [2.0, "x"], None),
        ("subtract", [(3.0,), 2.0], 1.0),
        ("add", [0.0, (0.0,)], 0.0),
        ("add", [(a,), 0.0], a),
        ("multiply", ["x", 0.0], None),
        ("matmul", [(a,), (b,)], a @ b),
        ("exp", ["x"], None),
        ("sum", [(a,)], a.sum()),
        ("merge", [True, 1.0, 2.0], 1.0),
        ("merge", [False, "x", 2.0], None),
        ("switch_true", [(False,), 1.0], graphs.DEAD),
        ("merge", [(False,), (graphs.DEAD,), 2.0], 2.0),
        ("multiply", ["x", "x"], None),
        ("multiply", [a, "x"], None),
        ("add", [1.0, a], 1.0 + a),
        ("add", [(np.nan,), 1.0], np.nan),
    ]


def _recorded(x: Any) -> tuple[str, str | None, Any]:
    """The (op, name, value) of an input: a placeholder's name, (a value,) or a number."""
    if isinstance(x, str):
        return "placeholder", x, None
    return "constant", None, x[0] if isinstance(x, tuple) else x


def _shown(x: Any) -> str:
    value = x[0] if isinstance(x, tuple) else x
    text = "array" if isinstance(value, np.ndarray) else str(value)
    return f"Node('constant', value={text})" if isinstance(x, tuple) else text


def order_cases(rng: np.random.Generator) -> Iterator[tuple[list[Row], list[int]]]:
    """(rows, outputs): random graphs, a long chain, and many paths."""
    for _ in range(40):
        rows = graphs.random_graph(rng, 12, 3)
        yield rows, rng.choice(len(rows), 2, replace=False)[[0, 1, 0]].tolist()  # one twice
    yield [("placeholder", "x"), ("placeholder", "y"), ("add", (0, 1))], [2, 1, 0, 2]
    chain = [("sin", (i,)) for i in range(5000)]
    yield [("placeholder", "x"), *chain], [5000]
    yield [("placeholder", "x"), *(("add", (i, i)) for i in range(60))], [60]


def own_stack(function: Callable[..., Any]) -> None:
    """Raise AssertionError if topological_order lets Python nest more calls than it does."""
    limits = {"setrecursionlimit", "getrecursionlimit"}
    static_names.expect_none("topological_order", function, limits, "Keep your own stack.")


def too_early(rows: Sequence[Row], order: Sequence[int]) -> tuple[int, ...]:
    """(a row, one of its inputs) where the row stands before that input; () if there is none."""
    place = {i: n for n, i in enumerate(order)}
    for i in order:
        for j in graphs.inputs(rows[i]):
            if place.get(j, len(rows)) > place[i]:
                return i, j
    return ()


def run_cases(rng: np.random.Generator) -> Iterator[Case]:
    """((rows, outputs, feeds), values): many paths, then random graphs, each run twice."""
    rows = [("placeholder", "x"), *(("add", (i, i)) for i in range(60)), ("subtract", (0, 60))]
    x, f = np.array(1.5), np.array(1.5 - 1.5 * 2**60)
    turned = {"Hand evaluate the inputs in their order.": [[x, np.array(-f)]]}
    text = "run of x and x - (x doubled 60 times), x = 1.5"
    yield Case(text, (rows, [0, 61], [{"x": 1.5}]), [[x, f]], turned)
    for size in (1, 2, 3, 0):
        rows = [*graphs.random_graph(rng, 10, 2), ("constant", 0.5)]
        rows.append(("divide", (len(rows) - 2, len(rows) - 1)))
        feeds = [{"x0": rng.normal(size=(size, 3)), "x1": rng.normal(size=3)} for _ in range(2)]
        outputs = [len(rows) - 1, len(rows) - 5, len(rows) - 2, len(rows) - 1]
        tensors = [{name: torch.tensor(x) for name, x in feed.items()} for feed in feeds]
        want = [[_array(x) for x in graphs.evaluated(rows, outputs, feed)] for feed in tensors]
        kept = {
            "Both runs gave the same: a run must leave nothing in the nodes.": [want[0], want[0]]
        }
        last = [dict.fromkeys(feed, feed["x1"]) for feed in tensors]
        by_name = [[_array(x) for x in graphs.evaluated(rows, outputs, feed)] for feed in last]
        same = {"All placeholders have one name here: feeds are by node, not by name.": by_name}
        text = f"run of {graphs.formula(rows, outputs)}"
        yield Case(text, (rows, outputs, feeds), want, kept | same)
    rows = [("placeholder", "x"), ("placeholder", "unused"), ("sin", (0,))]
    feed = {"x": rng.normal(size=3), "unused": 0.0}
    text = (
        "run of sin(x), twice on the same feeds, with one for a placeholder that it does not need"
    )
    yield Case(text, (rows, [2], [feed, feed]), [[np.sin(feed["x"])]] * 2)


def _array(value: Tensor | None) -> np.ndarray:
    assert value is not None  # noqa: S101
    return value.numpy()


def dual_cases(rng: np.random.Generator) -> Iterator[Case]:
    """dual(op, *pairs): every operator on pairs, on pairs and plain numbers, and at zeros."""
    for op in ("multiply", "divide", "matmul", "exp", "log", "tanh"):
        for shape in SHAPES:
            inputs, ways = ([rng.uniform(0.5, 2, shape) for _ in range(2)] for _ in range(2))
            count = 2 if op in BINARY else 1
            yield _dual(op, inputs[:count], ways[:count], f"on arrays of shape {shape}")
    for op in ("multiply", "divide"):
        for a, b in (((2, 1), (2, 3)), ((2, 3), 3), ((), 3)):
            inputs, ways = ([rng.uniform(0.5, 2, s) for s in (a, b)] for _ in range(2))
            yield _dual(op, inputs, ways, f"on arrays of shapes {np.shape(inputs[0])} and {b}")
    zero, one = np.array([0.0, 2.0]), np.array([3.0, 4.0])
    yield _dual("multiply", [zero, one], [one, one], "with a factor 0")
    yield _dual("divide", [zero, one], [one, one], "of 0 by 3")
    yield _dual("divide", [one, -one], [one, zero], "by a negative number")
    yield _dual("tanh", [np.array([-800.0, 0.0, 800.0])], [np.ones(3)], "at -800, 0 and 800")


def by_own_rules(name: str, function: Callable[..., Any]) -> None:
    """Raise AssertionError if PyTorch differentiates for this function, or the course by it."""
    used = static_names.names_in(function, {"torch", "autograd", "tangent", "gradient"})
    expect(
        not used,
        f"{name} uses {static_names.listed(used)}: write it by your own rules, without PyTorch.",
    )


def constant_cases() -> Iterator[Case]:
    """dual with a plain number, which has the tangent 0, in either place."""
    x, dx = np.array([3.0, 4.0]), np.array([1.0, -2.0])
    for op, value, tangent, moved in (
        ("multiply", x * 2.5, dx * 2.5, dx * 2.5 + x),
        ("divide", x / 2.5, dx / 2.5, (dx - x / 2.5) / 2.5),
        ("add", x + 2.5, dx, dx + 1),
    ):
        moving = {"A plain number is a constant: its tangent is 0, not 1.": (value, moved)}
        yield Case(f"dual({op!r}, (x, dx), 2.5)", (op, (x, dx), 2.5), (value, tangent), moving)
    yield Case(
        "dual('divide', 2.5, (x, dx))", ("divide", 2.5, (x, dx)), (2.5 / x, -2.5 * dx / x**2)
    )
    yield Case("dual('subtract', 2.5, (x, dx))", ("subtract", 2.5, (x, dx)), (2.5 - x, -dx))
    yield Case("dual('exp', 0.0)", ("exp", 0.0), (1.0, 0.0))


def _dual(op: str, inputs: Sequence[Any], ways: Sequence[Any], where: str) -> Case:
    tensors = [[torch.tensor(x) for x in group] for group in (inputs, ways)]
    value, tangent = (x.numpy()[()] for x in graphs.tangent(graphs.torch_operator(op), *tensors))
    args = (op, *zip(inputs, ways, strict=True))
    mistakes = (_unary_mistakes if len(inputs) == 1 else _binary_mistakes)(op, inputs, ways, value)
    return Case(f"dual({op!r}, ...) {where}", args, (value, tangent), mistakes)


def _unary_mistakes(op: str, inputs: Any, ways: Any, value: Any) -> dict[str, Any]:
    (a,), (da,) = inputs, ways
    with np.errstate(divide="ignore"):  # exp and tanh are tried at 0, too
        slope = {"tanh": 1 - value**2, "exp": value, "log": 1 / np.asarray(a)}[op]
    own = {"Multiply by a's own tangent, ȧ.": (value, slope)}
    return (
        own
        | {
            "tanh": {
                "The derivative of tanh a is 1 - tanh² a.": (value, (1 - value) * da),
                "The square is of tanh a, not of a.": (value, (1 - a**2) * da),
            },
            "exp": {"The derivative of exp a is exp a.": (value, a * da)},
            "log": {"The derivative of log a is 1/a.": (value, a * da)},
        }[op]
    )


def _binary_mistakes(op: str, inputs: Any, ways: Any, value: Any) -> dict[str, Any]:
    (a, b), (da, db) = inputs, ways
    with np.errstate(all="ignore"):
        return {
            "multiply": lambda: {
                "da * db goes with ε² and vanishes: each tangent meets the other's value.": (
                    value,
                    da * db,
                ),
                "The term da * db goes with ε² and vanishes.": (value, da * b + a * db + da * db),
                "The second factor moves, too: there are two terms.": (value, da * b),
                "Each tangent meets the *other* number's value.": (value, da * a + db * b),
            },
            "divide": lambda: {
                "The sign is turned: the numerator moves by ȧ b - a ḃ.": (
                    value,
                    (value * db - da) / b,
                ),
                "The quotient's second term must be subtracted.": (value, (da + value * db) / b),
                "Divide by b once more: (a/b)˙ = (ȧ - (a/b) ḃ) / b.": (value, da - value * db),
            },
            "matmul": lambda: {
                "A matrix product has two terms, da @ b and a @ db: mind the order.": (
                    value,
                    da @ b + db @ a,
                ),
                "A matrix product keeps its order: da @ b + a @ db.": (value, b @ da + db @ a),
                "The second term is missing: b moves too.": (value, da @ b),
                "Here the product rule is of matrices (@), not of their elements.": (
                    value,
                    da * b + a * db,
                ),
                "Transposes belong to reverse mode: da @ b + a @ db.": (value, da @ b.T + a.T @ db),
            },
        }[op]()


def engine_graphs(rng: np.random.Generator) -> Iterator[Case]:
    """jvp through graphs of many operators: ((rows, values, tangents), (value, tangent))."""
    for _ in range(8):
        rows = graphs.random_graph(rng, 10, 3)
        yield _jvp(rows, [rng.normal(size=s) for s in ((2, 3), 3, ())], rng)
    half = [("placeholder", "x0"), ("constant", 0.5), ("multiply", (1, 0)), ("divide", (2, 1))]
    for more in (
        [("negative", (3,)), ("relu", (4,)), ("mean", (5,)), ("cos", (6,))],
        [("row_sum", (3,)), ("transpose", (4,)), ("sum_like", (5, 1)), ("broadcast_like", (6, 3))],
        [("detach", (3,)), ("multiply", (4, 0)), ("step", (0,)), ("multiply", (5, 6))],
    ):
        yield _jvp([*half, *more], [rng.normal(size=(2, 2))], rng)
    branch = [
        *(("placeholder", "x0"), ("constant", 0.0), ("greater", (0, 1))),
        *(("switch_true", (2, 0)), ("switch_false", (2, 0)), ("exp", (3,)), ("tanh", (4,))),
        ("merge", (2, 5, 6)),
    ]
    for x in (1.5, -1.5):
        yield _jvp(branch, [np.array(x)], rng)


def _jvp(rows: Sequence[Row], inputs: Sequence[Any], rng: np.random.Generator) -> Case:
    ways = [rng.normal(size=np.shape(x)) for x in inputs]

    def last(*xs: Tensor) -> Tensor:
        (value,) = graphs.evaluated(rows, [len(rows) - 1], {f"x{i}": x for i, x in enumerate(xs)})
        assert value is not None  # noqa: S101
        return value

    tensors = [[torch.tensor(x) for x in group] for group in (inputs, ways)]
    value, tangent = (
        x.numpy()[()] for x in torch.autograd.functional.jvp(last, *map(tuple, tensors))
    )
    text = f"jvp of {graphs.formula(rows, [len(rows) - 1])}"
    mistakes = {
        "Where a value has several users, each path adds to the tangent.": None,
        "A constant does not move: its tangent is 0.": None,
    }
    return Case(text, (rows, list(inputs), ways), (value, tangent), mistakes)


def rule_cases(rng: np.random.Generator) -> Iterator[Case]:
    """vjp of each operator: ((op, inputs, g), adjoints), also at zeros and where a is broadcast."""
    for op in ELEMENTWISE:
        for n in (1, 3, 0):
            a, b = (torch.tensor(rng.uniform(1, 2, shape)) for shape in ((2, n), n))
            signs = rng.choice([-1.0, 1.0], (2, n))
            a = a if op == "log" else a * torch.tensor(signs)
            yield _rule(op, [a, b][: 1 + (op in BINARY)], rng, f"{n} columns")
    zero, one = torch.tensor([0.0, 2.0, 0.0]).double(), torch.tensor([0.0, 3.0, 4.0]).double()
    yield _rule("multiply", [zero, one], rng, "factors 0")
    yield _rule("divide", [zero, one + 1], rng, "0 divided by 1")
    yield _rule("tanh", [torch.tensor([-40.0, 0.0, 40.0]).double()], rng, "x = -40, 0 and 40")
    yield _rule("relu", [torch.tensor([-1.0, 0.0, 1.0]).double()], rng, "x = -1, 0 and 1")


def matrix_cases(rng: np.random.Generator) -> Iterator[Case]:
    """The same for operators that mix elements."""
    for op in MIXING:
        for m, n in ((1, 1), (3, 3), (2, 4)):
            a, b = (torch.tensor(rng.normal(size=shape)) for shape in ((m, n), (n, m + (m < n))))
            yield _rule(op, [a, b][: 1 + (op in BINARY)], rng, f"a matrix of {m} by {n}")
    a, b = (torch.tensor(rng.normal(size=shape)) for shape in ((3, 2), (4, 2, 3)))
    yield _rule("matmul", [a, b], rng, "one matrix times each of four")


def _rule(op: str, inputs: list[Tensor], rng: np.random.Generator, where: str) -> Case:
    function = graphs.torch_operator(op)
    g = torch.tensor(rng.normal(size=function(*inputs).shape))
    want, text = _adjoints(function, inputs, g), f"vjp of {op}, {where}"
    ones = _adjoints(function, inputs, torch.ones_like(g))
    mistakes = _rule_mistakes(op, inputs, g, want) | {"The factor g is missing.": ones}
    return Case(text, (op, inputs, g), want, mistakes)


def _adjoints(function: Callable[..., Tensor], inputs: Sequence[Tensor], g: Tensor) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    return list(torch.autograd.grad(function(*leaves), leaves, g, materialize_grads=True))


def _rule_mistakes(op: str, inputs: Any, g: Tensor, want: Sequence[Tensor]) -> dict[str, Any]:
    if op in MIXING:
        return _matrix_mistakes(op, inputs, g)
    a, b = (*inputs, inputs[0])[:2]
    y = graphs.torch_operator(op)(*inputs)

    def both(by_a: Tensor, by_b: Tensor) -> list[Tensor]:
        return [by_a.sum_to_size(a.shape), by_b.sum_to_size(b.shape)]

    return {
        "multiply": lambda: {
            "Each factor's adjoint meets the other factor.": both(g * a, g * b),
            "0/0 is NaN where a factor is 0: do not divide by the factor.": both(
                g * y / a, g * y / b
            ),
        },
        "divide": lambda: {
            "The divisor's adjoint has a minus sign.": [want[0], -want[1]],
            "The divisor's adjoint is -g (a/b) / b: divide once more.": both(want[0], -g * y),
        },
        "log": lambda: {"The derivative of log x is 1/x.": [g * a]},
        "tanh": lambda: {
            "The derivative of tanh x is 1 - tanh² x.": [g - g * y],
            "The square is of tanh x, not of x.": [g * (1 - a * a)],
        },
        "relu": lambda: {
            "The derivative of relu x is 0 or 1: it steps at 0.": [g * y],
            "The derivative of relu x is a step, not x.": [g * a],
            "The slope of relu at 0 is 0, as in PyTorch: x.step() is 0 there.": [g * (a >= 0)],
            "relu is cut off where x is below 0, not where g is.": [g.clamp(min=0)],
            "0/0 is NaN at x = 0: use x.step().": [g * y / a],
        },
    }[op]()


def _matrix_mistakes(op: str, inputs: Any, g: Tensor) -> dict[str, Any]:
    a, b = (*inputs, inputs[0])[:2]
    if op == "matmul" and a.shape == b.shape == g.shape:
        return {
            "The first adjoint is the left factor's, the second the right factor's.": [
                a.T @ g,
                g @ b.T,
            ],
            "The transposes are missing: shapes leave one way.": [g @ b, a @ g],
            "The right factor's adjoint begins with x.transpose().": [g @ b.T, g @ a.T],
            "The product is of matrices (@), not of their elements.": [g * b, g * a],
        }
    narrow = "The adjoint has fewer elements than x: g.broadcast_like(x) lends it to all of them."
    if op in ("sum", "row_sum"):
        no_factor = "A sum hands each element the same adjoint; x is no factor."
        return {no_factor: [g * a], narrow: [g]}
    if op == "transpose":
        return {"What was transposed must be transposed back.": [g]}
    if op == "mean":
        divides = "mean divides by the number of elements, and so does its adjoint."
        return {divides: [g.expand(a.shape)], narrow: [g / a.numel()]}
    return {}


def switch_cases(rng: np.random.Generator) -> Iterator[Case]:
    """vjp of Switch and Merge on either side: ((op, inputs, g or None), adjoints)."""
    x, g = torch.tensor(rng.normal(size=3)), torch.tensor(rng.normal(size=3))
    for p in (torch.tensor(True), torch.tensor(False)):
        for op, taken in (("switch_true", p), ("switch_false", ~p)):
            text = f"vjp of {op} at p = {bool(p)}, where g {'lives' if taken else 'is DEAD'}"
            dead = {
                "This side was not taken and g is DEAD: take zeros here, like x and not like g.": [
                    None,
                    None,
                ],
                "Zeros have the shape of their input: use zeros_like().": [None, 0 * x.sum()],
            }
            yield Case(
                text, (op, [p, x], g if taken else None), [None, g if taken else 0 * x], dead
            )
        want, other, product = [None, g, None], [None, None, g], [None, g, 0 * g]
        if not p:
            want, other, product = other, want, [None, 0 * g, g]
        yield Case(
            f"vjp of merge at p = {bool(p)}",
            ("merge", [p, x, x], g),
            want,
            {
                "The adjoint goes where the value came from.": other,
                "The branch not taken gets no adjoint, not zeros: switch g, do not multiply.": (
                    product
                ),
                "The branch not taken gets no adjoint: the gradient of Merge switches g.": [
                    None,
                    g,
                    g,
                ],
            },
        )


def second_cases(rng: np.random.Generator) -> Iterator[Case]:
    """The derivatives of the sum of the sines of a rule's adjoints by g and by the inputs."""
    for op in (*ELEMENTWISE, *MIXING):
        a, b = (torch.tensor(rng.uniform(1, 2, (3, 3)), requires_grad=True) for _ in range(2))
        inputs, f = [a, b] if op in BINARY else [a], graphs.torch_operator(op)
        g = torch.tensor(rng.normal(size=f(*inputs).shape), requires_grad=True)

        def slopes(g: Tensor, *inputs: Tensor, f: Callable[..., Tensor] = f) -> Tensor:
            return torch.stack([v.sin().sum() for v in torch.func.vjp(f, *inputs)[1](g)]).sum()

        want = graphs.gradient(slopes, [g, *inputs])
        yield Case(
            f"derivatives by g and the inputs of the vjp of {op} (through detach there are none)",
            (op, inputs, g),
            want,
        )


def gradient_cases(rng: np.random.Generator) -> Iterator[Case]:
    """((rows, inputs), derivatives by these rows): a case for each step of the walk."""
    x, y = torch.tensor(rng.normal(size=(2, 3))), torch.tensor(rng.normal(size=3))
    feeds, leaves = {"x": x, "y": y}, [("placeholder", "x"), ("placeholder", "y")]
    for more, mistakes in [*_walks_to_one(x, y), *_walks_to_both(x, y)]:
        rows = [*leaves, *more]
        want = _by_torch(rows, [0, 1], feeds)
        twice = {
            "A second call adds to what the first has left: start afresh.": [2 * g for g in want]
        }
        text = f"gradients by x and y of {graphs.formula(rows, [len(rows) - 1])}"
        yield Case(text, (rows, [0, 1], feeds), want, mistakes | twice)


Walk = tuple[list[Row], dict[str, Any]]  # rows after x and y, and what mistakes give


def _walks_to_one(x: Tensor, y: Tensor) -> list[Walk]:
    """Functions of x alone, used once or more often."""
    return [
        (
            [("multiply", (0, 0))],
            {
                "x feeds two inputs: their adjoints are added.": [x, 0 * y],
                "Adjoints that meet are added, not multiplied.": [x * x, 0 * y],
                "The output's own adjoint is ones.": [2 * x**3, 0 * y],
                "No adjoint reached x: start at the output.": [0 * x, 0 * y],
                "These are the inputs: return a list of their derivatives.": [x, y],
            },
        ),
        (
            [("sin", (0,)), ("multiply", (2, 0)), ("add", (2, 3))],
            {
                "sin x passed its adjoint on before it was complete: go backwards.": [
                    x.cos() + x.sin(),
                    0 * y,
                ],
                "Only the output's own inputs got an adjoint: start at the output and walk to the "
                "leaves, in the reversed order.": [0 * x, 0 * y],
            },
        ),
    ]


def _walks_to_both(x: Tensor, y: Tensor) -> list[Walk]:
    """Functions of x, y, or both, where adjoints are summed."""
    sine, both = x.sin(), y.expand(2, 3)
    return [
        (
            [("multiply", (0, 1))],
            {"y's adjoint must be summed to y's shape (sum_like).": [both, x]},
        ),
        (
            [("sum", (0,)), ("multiply", (0, 2))],
            {"The adjoint of sum(x) is a number: sum_like.": [x.sum() + x, 0 * y]},
        ),
        (
            [("multiply", (0, 1)), ("sin", (1,)), ("add", (2, 3))],
            {"Give an adjoint its shape before you add it.": [both, x.sum(0) + 4 * y.cos()]},
        ),
        (
            [("multiply", (0, 1)), ("sin", (0,)), ("multiply", (3, 1)), ("add", (2, 4))],
            {
                "Give the second adjoint its shape, too, before you add it.": [
                    both + x.cos() * y,
                    x.sum(0) + sine,
                ],
                "Give an adjoint its shape before you add it, the second one, too.": [
                    both + x.cos() * y,
                    x + sine.sum(0),
                ],
            },
        ),
        ([("row_max", (0,)), ("detach", (2,)), ("subtract", (0, 3)), ("exp", (4,))], {}),
        ([("constant", 2.0), ("multiply", (1, 2))], {}),
    ]


def any_node_cases(rng: np.random.Generator) -> Iterator[Case]:
    """The same by operators and by the output, on placeholders and on constants."""
    x, y = torch.tensor(rng.normal(size=(2, 3))), torch.tensor(rng.normal(size=3))
    one = torch.ones_like(x)
    by_x, by_y = graphs.gradient(lambda x, y: x.sin() * x + y, [x, y])
    for leaf, leaves in (
        ("placeholders", (("placeholder", "x"), ("placeholder", "y"))),
        ("constants", (("constant", x.numpy()), ("constant", y.numpy()))),
    ):
        rows = [*leaves, ("sin", (0,)), ("multiply", (2, 0)), ("add", (3, 1))]
        text = f"gradients of f = x sin x + y by x, y, sin x, f, on {leaf}"
        want = [by_x, by_y, x, one]
        mistakes = {
            "An operator's adjoint may be asked for too: keep it.": [by_x, by_y, 0 * x, 0 * x],
            "Walk on through a node that is asked for.": [0 * x, 0 * y, 0 * x, one],
            "The output's own adjoint is ones.": [by_x, by_y, x, 0 * x],
        }
        yield Case(text, (rows, [0, 1, 2, 4], {"x": x, "y": y}), want, mistakes)
    rows, once = (
        [("placeholder", "x"), ("sin", (0,))],
        {"One derivative for each of inputs.": [x.cos()]},
    )
    yield Case("gradients of sin x by x and x", (rows, [0, 0], {"x": x}), [x.cos()] * 2, once)
    rows = [("placeholder", "x"), ("placeholder", "y"), ("sin", (0,))]
    feeds = {"x": x, "y": torch.full((3,), torch.inf).double()}
    nothing = {"0 times infinity is NaN: use zeros_like().": [x.cos(), 0 * feeds["y"]]}
    text = "gradients of sin x by x and by y, which is infinite"
    yield Case(text, (rows, [0, 1], feeds), [x.cos(), torch.zeros(3).double()], nothing)
    rows, zero = [("placeholder", "x"), ("log", (0,))], torch.zeros(2, dtype=torch.float64)
    text = "gradients of log x at x = 0 by x and log x"
    infinite = {
        "The output is infinite here, and 0 times infinity is NaN: use ones_like().": [
            0 * zero / 0,
            0 * zero / 0,
        ]
    }
    yield Case(text, (rows, [0, 1], {"x": zero}), [1 / zero, zero + 1], infinite)


def _by_torch(
    rows: Sequence[Row], inputs: Sequence[int], feeds: Mapping[str, Tensor]
) -> list[Tensor]:
    """The derivatives of the last row's sum by placeholders, through PyTorch's own tape."""
    leaves = {name: x.clone().requires_grad_() for name, x in feeds.items()}
    output = _last(rows, leaves)
    wanted = [leaves[rows[i][1]] for i in inputs]
    return list(torch.autograd.grad(output.sum(), wanted, materialize_grads=True))


def _last(rows: Sequence[Row], feeds: Mapping[str, Tensor]) -> Tensor:
    value = graphs.values(rows, feeds)[-1]
    assert value is not None  # noqa: S101
    return value


def large_cases() -> Iterator[Case]:
    """((rows, inputs, feeds), derivatives) where a walk per path or per input takes too long."""
    names = [f"x{i}" for i in range(50)]
    product = [("placeholder", x) for x in names]
    product += [("multiply", (2 * i, 2 * i + 1)) for i in range(49)]
    squares = product[:1] + [("multiply", (i, i)) for i in range(10)]
    for text, rows, n in (
        ("a product of 50 inputs", product, 50),
        ("x squared 10 times", squares, 1),
    ):
        feeds = {x: torch.tensor(1 + i / 1e4).double() for i, x in enumerate(names[:n])}
        want = _by_torch(rows, range(n), feeds)
        yield Case(f"gradients of {text}", (rows, list(range(n)), feeds), want)


def higher_cases(rng: np.random.Generator) -> Iterator[Case]:
    """((rows, inputs, feeds, order), derivative): up to the third, and through an if."""
    smooth = [
        *(("placeholder", "x"), ("sin", (0,)), ("exp", (1,))),
        *(("multiply", (0, 2)), ("divide", (3, 1)), ("tanh", (4,))),
    ]
    branch = [
        *(("placeholder", "x"), ("sum", (0,)), ("constant", 0.0), ("greater", (1, 2))),
        *(("switch_true", (3, 0)), ("switch_false", (3, 0)), ("exp", (4,)), ("sin", (5,))),
        *(("merge", (3, 6, 7)), ("multiply", (0, 8))),
    ]
    for sign, rows, orders in ((1, smooth, (1, 2, 3)), (1, branch, (1, 2)), (-1, branch, (1, 2))):
        for order in orders:
            x = sign * torch.tensor(rng.uniform(0.5, 2.5, 4))
            want = _derivative(rows, x, order)
            text = f"derivative {order} of {graphs.formula(rows, [len(rows) - 1])}"
            mistakes = {"Is a value or an adjoint detached?": [0 * want]}
            yield Case(text, (rows, [0], {"x": x}, order), [want], mistakes)


def _derivative(rows: Sequence[Row], x: Tensor, order: int) -> Tensor:
    x = x.clone().requires_grad_()
    y = _last(rows, {"x": x})
    for _ in range(order):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y.detach()


def _loss(x: Tensor, digits: Tensor, activation: str, *p: Tensor) -> Tensor:
    hidden = getattr(torch, activation)(x @ p[0] + p[1])
    return torch.nn.functional.cross_entropy(hidden @ p[2] + p[3], digits)


TRAININGS = {
    ("relu", 1000): "training_step, one image 1,000 times as bright (each row has its own maximum)",
    ("tanh", 1): "training_step with another network(), of tanh (derivatives come from gradients)",
}


def training_cases(rng: np.random.Generator) -> Iterator[Case]:
    """((activation, feeds), the loss and the parameters after a step), with logits up to 5,000."""
    for lift, activation, bright in (
        *((0.0, "relu", 1), (1000.0, "relu", 1), (5000.0, "relu", 1), (0.0, "relu", 1000)),
        (0.0, "tanh", 1),
    ):
        n, rate = int(rng.integers(2, 9)), torch.tensor(rng.uniform(0.1, 1)).double()
        images, digits = torch.tensor(rng.random((n, 64))), torch.tensor(rng.integers(0, 10, n))
        p = [torch.tensor(rng.normal(size=s)) for s in ((64, 20), 20, (20, 10), 10)]
        p[3][0] += lift  # exp overflows at 710, and exp(-1000) is 0
        images[0] *= bright  # its logits are thousands apart from the others'
        feeds = dict(zip(TRAINED, [images, _one_hot(digits), *p, rate], strict=True))

        loss = functools.partial(_loss, images, digits, activation)
        slopes = graphs.gradient(loss, p) if activation == "tanh" else _slopes(loss, p)
        steps = {
            k: [abs(k) * loss(*p)] + [w - k * rate * g for w, g in zip(p, slopes, strict=True)]
            for k in (1, -1, n, 0.1, 0)
        }
        mistakes = {
            "Go downhill: subtract.": steps[-1],
            "Take the mean over the images, not the sum.": steps[n],
            "Divide by the number of images, not of logits: 10 times too small.": steps[0.1],
            "The sign is turned: the loss is log Σ exp(z) minus z at the label.": (
                [-steps[1][0], *steps[-1][1:]]
            ),
            "These are the derivatives: new parameters are p - rate · derivative.": (
                [steps[1][0], *slopes]
            ),
        }
        hidden = (images @ p[0] + p[1]).relu()
        top = (hidden @ p[2] + p[3]).amax(1).mean()  # it is detached: the derivatives stay right
        says = "z at the label is not shifted: subtract the maximum there, too."
        mistakes[says] = [steps[1][0] - top, *steps[1][1:]]
        text = f"training_step, a logit {lift:g} up (exp overflow? log 0?)"
        text = TRAININGS.get((activation, bright), text)
        yield Case(text, (activation, feeds), steps[1], mistakes)


def digits_read(
    rows: Sequence[Row], outputs: Sequence[int], rng: np.random.Generator, steps: int = 150
) -> int:
    """How many of 360 unseen digits a network reads right after so many of these training steps.

    rows, outputs: of a training step by the placeholders TRAINED. The steps run here, on pixels in
    a random order: an answer that knows the file of digits, or weights for it, gains nothing. The
    pixels are centred, so that half of the steps are enough.
    """
    images, digits = samples.digits()
    pixels = images.reshape(-1, 64)[:, rng.permutation(64)] / 8
    x = torch.tensor(pixels - pixels.mean(0)).float()
    labels = torch.eye(10)[digits]
    seen, unseen = np.split(rng.permutation(len(x)), [-360])
    p = [torch.tensor(rng.normal(0, 1 / 8, shape)).float() for shape in ((64, 64), (64, 10))]
    p = [p[0], torch.zeros(64), p[1], torch.zeros(10)]
    with _one_thread():
        for batch in rng.choice(seen, (steps, 128)):
            feeds = [x[batch], labels[batch], *p, torch.tensor(1.0)]
            found = graphs.evaluated(rows, outputs, dict(zip(TRAINED, feeds, strict=True)))
            loss, *p = (torch.tensor(torch.nan) if value is None else value for value in found)
            if not torch.isfinite(loss).all():
                return 0
        read = torch.relu(x[unseen] @ p[0] + p[1]) @ p[2] + p[3]
    return int((read.argmax(1).numpy() == digits[unseen]).sum())


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Keeps PyTorch on one thread: for matrices this small, threads mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _slopes(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    return list(torch.autograd.grad(function(*leaves), leaves))


def _one_hot(digits: Tensor) -> Tensor:
    return torch.eye(10).double()[digits]


def random_cases(rng: np.random.Generator) -> Iterator[Case]:
    """((rows, inputs, feeds), derivatives) of random graphs with broadcasts, some empty."""
    for n in [0, 1, 2, 3] * 5:
        rows = graphs.random_graph(rng, 10, 3)
        shapes = {"x0": (2, n), "x1": (n,), "x2": (2, 1)}
        feeds = {name: torch.tensor(rng.normal(size=shape)) for name, shape in shapes.items()}
        text = f"gradients by x0, x1, x2 of {graphs.formula(rows, [len(rows) - 1])}"
        yield Case(text, (rows, [0, 1, 2], feeds), _by_torch(rows, [0, 1, 2], feeds))


def hessian_cases(rng: np.random.Generator) -> Iterator[Case]:
    """((rows, values, direction), H·v by input): mixed derivatives, a broadcast, an if, a corner.

    The corner of relu is so close on both sides that differences step over it, or round too much.
    """
    two = [("placeholder", "x0"), ("placeholder", "x1")]
    for more, shapes in [
        ([("multiply", (0, 1)), ("sin", (0,)), ("add", (2, 3))], ((), ())),
        ([("multiply", (0, 1)), ("tanh", (2,)), ("exp", (3,))], ((2, 3), (3,))),
        ([("matmul", (0, 1)), ("tanh", (2,)), ("mean", (3,))], ((2, 3), (3, 2))),
        (
            [
                *(("sum", (0,)), ("constant", 0.0), ("greater", (2, 3)), ("switch_true", (4, 0))),
                *(("switch_false", (4, 0)), ("exp", (5,)), ("sin", (6,)), ("merge", (4, 7, 8))),
                ("multiply", (9, 1)),
            ],
            ((2,), (2,)),
        ),
    ]:
        values, ways = ([rng.normal(size=shape) for shape in shapes] for _ in range(2))
        yield _hessian([*two, *more], values, ways)
    corner = [("constant", 1.0), ("subtract", (0, 2)), ("relu", (3,)), ("multiply", (4, 4))]
    near, x1 = np.array([1 + 1e-9, 1 - 1e-9]), rng.normal(size=2)
    ways = list(1 + rng.random((2, 2)))
    yield _hessian([*two, *corner, ("multiply", (5, 1))], [near, x1], ways)


def _hessian(rows: Sequence[Row], values: Sequence[np.ndarray], ways: Sequence[np.ndarray]) -> Case:
    """H·v of the last row, by PyTorch, and what it is not."""
    tensors = [torch.tensor(x, requires_grad=True) for x in values]
    output = _last(rows, {"x0": tensors[0], "x1": tensors[1]}).sum()
    slopes = torch.autograd.grad(output, tensors, create_graph=True)
    products = [(g * torch.tensor(v)).sum() for g, v in zip(slopes, ways, strict=True)]
    along = torch.stack(products).sum()
    want = torch.autograd.grad(along, tensors, retain_graph=True, materialize_grads=True)
    own = [
        torch.autograd.grad(product, x, retain_graph=True, materialize_grads=True)
        for product, x in zip(products, tensors, strict=True)
    ]
    mistakes = {
        "This is the gradient, not how it moves.": [_number(g.detach()) for g in slopes],
        "Move all inputs together: each part of H·v needs the whole of v.": [
            _number(g) for (g,) in own
        ],
    }
    text = f"hessian_product of {graphs.formula(rows, [len(rows) - 1])}"
    return Case(text, (rows, values, ways), [_number(g) for g in want], mistakes)


def _number(value: Tensor) -> Any:
    """The same as NumPy gives it: a scalar for no axes."""
    return value.numpy()[()]


def difference_cases(rng: np.random.Generator) -> Iterator[Case]:
    """difference_errors(step, f, f″, f‴): the errors of one-sided and of central differences."""
    for _ in range(100):
        step = 2.0 ** -int(rng.integers(1, 50))
        value, second, third = rng.normal(size=3).tolist()
        one, two = step / 2 * abs(second), step**2 / 6 * abs(third)
        noise = 2**-52 * abs(value) / step
        half = noise / 2
        yield Case(
            f"difference_errors({step}, {value:.3}, {second:.3}, {third:.3})",
            (step, value, second, third),
            (one + noise, two + half),
            {
                "Rounding counts: without it a step of 0 would be best.": (one, two),
                "Taylor's term is ε² f″/2, and the difference is divided by ε.": (
                    2 * one + noise,
                    two + half,
                ),
                "Taylor's term ε³ f‴/6 comes twice, and is divided by 2ε.": (
                    one + noise,
                    2 * two + half,
                ),
                "Each of the two values of f is off by 2**-53 of it.": (one + half, two + half / 2),
                "The central difference divides by 2ε, its rounding error too.": (
                    one + noise,
                    two + noise,
                ),
                "One-sided differences err by O(ε), not O(ε²): ε f″/2 stays.": (
                    two + noise,
                    two + half,
                ),
            },
        )


def draw_order(rows: Sequence[Row], outputs: Sequence[int], order: Sequence[int]) -> None:
    """The graph, with each node's place in the answer's order beside it."""
    if len(rows) <= 40:
        names = {i: f"{n + 1}." for n, i in enumerate(order) if 0 <= i < len(rows)}
        graphs.draw(rows, outputs[:1], names=names, title="your order")


def draw_values(rows: Sequence[Row], outputs: Sequence[int], got: Any, want: Any) -> None:
    """The graph, with the sums of what came and of what was wanted beside its outputs."""
    if len(rows) <= 40:
        names = {
            i: f"{float(np.sum(a)):.3g}, not {float(np.sum(b)):.3g}"
            for i, a, b in zip(outputs, got[0], want[0], strict=True)
        }
        graphs.draw(rows, outputs[:1], names=names, title="sums of your outputs")


def draw_last(got: Any, case: Case) -> None:
    """What came and what was wanted, for the first parts that differ."""
    for a, b in zip(got, case.want, strict=True):
        if b is not None and not np.array_equal(a, b):
            memory_drawings.compare(a, b, title=case.text)
            return


def draw_gradients(
    rows: Sequence[Row], outputs: Sequence[int], feeds: Mapping[str, Tensor], title: str
) -> None:
    """The answer's graph of a function and its derivatives, with all values."""
    if len(rows) <= 60:
        names = {i: f"derivative {n}" for n, i in enumerate(outputs[1:], 1)} | {outputs[0]: "f"}
        values = [None if x is None else x.detach().numpy() for x in graphs.values(rows, feeds)]
        graphs.draw(rows, outputs, values=values, names=names, title=title[:80])
