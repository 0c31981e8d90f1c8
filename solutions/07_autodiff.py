# %% [markdown]
# # 07 · Autodiff
#
# **What is a gradient, as a program?**
#
# At the end of this lab you can
#
# - write a program as a graph, run it before or after its numbers are there, and say what an `if` does to it;
# - differentiate any such program, forwards or backwards, to any order, and predict what that costs;
# - train a network with an engine of which you wrote every rule.
#
# You need lab 01, and the chain rule from a first course in calculus; no GPU. About 120 minutes.
#
# Where a cell ends in `raise NotImplementedError`, you write; the cell below it checks. What you want counted stands in
# the hole's cell.

# %% tags=["setup"]
import functools
import time

import matplotlib.pyplot as plt
import numpy as np
import torch

from common import figures, graphs, ledger, samples, timing
from common.checks import agree

figures.use_style()
rng = np.random.default_rng()

# %% [markdown]
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 01: ten numbers, an array of shape (10,), are added to each of 64 rows of ten. Which strides does
# the broadcast array have, and how many bytes are copied?</summary>
#
# (0, 1), and none: 64 rows read the same ten numbers. Part 3 asks what that means backwards.
# </details>
#
# <details><summary>Calculus: y = sin(x²). What is dy/dx, and in which order did you take the factors?</summary>
#
# cos(x²) · 2x. Any order gives the same number; the order decides what a long program of many inputs costs. From the
# inside out is part 2, from the outside in is part 3.
# </details>

# %% [markdown]
# ## A thousand derivatives for the price of a few
#
# Here is a function of n inputs. A derivative says how much it changes when one input moves a little, so the plain way
# to n derivatives is to move each input in turn and call the function again: n + 1 calls. `torch` also has
# `backward()`. Time both, against one call.

# %%
def function(x):
    for _ in range(10):
        x = torch.sin(1.1 * x)
    return x.sum()

def all_differences(x, step=1e-3):
    return (torch.stack([function(x + step * way) for way in torch.eye(len(x))]) - function(x)) / step

def backward(x):
    return torch.autograd.grad(function(x), x)

# %% tags=["nbval-ignore-output"]
sizes = [1, 10, 100, 1_000]
inputs = [torch.rand(n, requires_grad=True) for n in sizes]
call_s = np.array([timing.measure(function, x.detach(), min_time_s=0.02).median_s for x in inputs])
backward_s = [timing.measure(backward, x, min_time_s=0.02).median_s for x in inputs]
moved_s = [timing.measure(all_differences, x.detach(), min_time_s=0.02).median_s for x in inputs[:3]]
figures.predicted_and_measured(sizes, {"n + 1 calls": (np.array(sizes) + 1) * call_s},
    {"n + 1 calls": [*moved_s, np.nan], "backward()": backward_s, "one call": call_s},
    xlabel="inputs n", ylabel="time", title="All n derivatives of one function", log="xy", yunit="s");

# %% [markdown]
# `backward()` costs a few calls, for one input and for a thousand, and its derivatives are exact but for rounding. It
# runs *another program*, made from yours. This lab makes such programs; to do so it must see yours as data.
#
# ## Part 1 · A graph first, its numbers later
#
# A **dataflow graph** has a node for each operator and an edge for each value that one operator hands to the next. As
# data it is a list of rows, *operator and inputs*, each input the number of an earlier row. Such a list is called a
# *Wengert list* (1964), or a *tape*.

# %%
rows = [("placeholder", "x"), ("placeholder", "y"),
        ("multiply", (0, 1)), ("sin", (0,)), ("add", (2, 3))]
graphs.draw(rows, [4], names={4: "f"}, title="f = x·y + sin x");

# %% [markdown]
# A *placeholder* is an input that has no value yet. Nothing has been computed; there is only the plan.
#
# Our engine is two cells. First its operators, on NumPy arrays. `DEAD` stands for the value of a branch that was not
# taken: it will serve us for `if`. An operator that reads it is dead too, except for `merge`.

# %% tags=["driver"]
DEAD = "DEAD"
OPERATORS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "negative": np.negative, "greater": np.greater,
    "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0), "step": lambda x: np.heaviside(x, 0), "detach": lambda x: x,
    "matmul": np.matmul, "transpose": lambda x: x.swapaxes(-1, -2),
    "sum": np.sum, "mean": np.mean, "size": lambda x: float(np.size(x)),
    "row_sum": lambda x: x.sum(-1, keepdims=True), "row_max": lambda x: x.max(-1, keepdims=True),
    "broadcast_like": lambda x, like: np.broadcast_to(x, np.shape(like)),
    "zeros_like": np.zeros_like, "ones_like": np.ones_like,
    "switch_true": lambda p, x: x if p else DEAD, "switch_false": lambda p, x: DEAD if p else x,
    "merge": lambda p, a, b: a if p else b,
}

def evaluate(op, *values):
    """The operator's value."""
    if op != "merge" and any(value is DEAD for value in values):
        return DEAD
    return OPERATORS[op](*values)

# %% [markdown]
# Then the node. `x * y` makes a node that remembers `multiply`, x and y. Every operator is a method too: `x.sin()`.
#
# On placeholders nothing is computed: the graph is built first and run later. That is **define-then-run** (TensorFlow
# 1, and what `jax.jit` traces). One line makes a second engine of it: if all inputs of a new node *have* values, its own
# is computed at once. So with constants this is **define-by-run** (PyTorch): the same operators, the same graph, only
# the numbers are there already.
#
# The cell after it makes graphs of rows. The checks need it; you may skip it.

# %% tags=["driver"]
class Node:
    """One value of a dataflow graph: the operator that makes it and the nodes that it reads."""
    __array_ufunc__ = None  # array * node asks the node

    def __init__(self, op, *inputs, value=None, name=None):
        self.op, self.name = op, name
        self.inputs = tuple(x if isinstance(x, Node) else Node("constant", value=x) for x in inputs)
        if inputs and all(x.value is not None for x in self.inputs):
            value = evaluate(op, *(x.value for x in self.inputs))  # define-by-run
        self.value = value

    def __getattr__(self, op):
        if op not in OPERATORS:
            raise AttributeError(f"there is no operator {op!r}")
        return lambda *others: Node(op, self, *others)

    def __bool__(self):
        if self.value is None:
            raise TypeError("this node has no value before run(): Python's `if` can't choose")
        return bool(self.value)

    def __neg__(self): return Node("negative", self)
    def __add__(self, other): return Node("add", self, other)
    def __radd__(self, other): return Node("add", other, self)
    def __sub__(self, other): return Node("subtract", self, other)
    def __rsub__(self, other): return Node("subtract", other, self)
    def __mul__(self, other): return Node("multiply", self, other)
    def __rmul__(self, other): return Node("multiply", other, self)
    def __truediv__(self, other): return Node("divide", self, other)
    def __rtruediv__(self, other): return Node("divide", other, self)
    def __matmul__(self, other): return Node("matmul", self, other)
    def __gt__(self, other): return Node("greater", self, other)

# %% tags=["driver"]
def placeholders(*names):
    """A node without a value for each name."""
    return [Node("placeholder", name=name) for name in names]

def nodes(rows):
    """The graph of these rows as nodes, one for each row."""
    made = []
    for op, inputs in rows:
        if op in graphs.LEAVES:
            made.append(Node(op, name=inputs) if op == "placeholder" else Node(op, value=inputs))
        else:
            made.append(Node(op, *(made[i] for i in inputs)))
    return made

def wengert_list(outputs):
    """The graph of these nodes as data: its rows, and the numbers of the outputs' rows."""
    order = topological_order(outputs)
    number = {node: i for i, node in enumerate(order)}
    leaf = {"placeholder": lambda node: node.name, "constant": lambda node: node.value}
    rows = [(node.op, leaf[node.op](node) if node.op in leaf else tuple(number[x] for x in node.inputs))
            for node in order]
    return rows, [number[node] for node in outputs]

def ordered(rows, outputs):
    """topological_order() of the graph of these rows, as numbers of rows."""
    made = nodes(rows)
    number = {node: i for i, node in enumerate(made)}
    topological_order(made[:1])  # an earlier call leaves nothing behind
    order = topological_order([made[i] for i in outputs])
    assert isinstance(order, list), f"topological_order gave a {type(order).__name__}, want a list"
    return [number[node] for node in order]

def computed(rows, outputs, feeds):
    """run() on the graph of these rows, once for each of the feeds: lists of arrays."""
    made, results = nodes(rows), []
    needed = graphs.operators([rows[i] for i in graphs.ancestors(rows, outputs)])
    for feed in feeds:
        ran = []
        def once(op, *values, ran=ran):
            ran.append(op)
            assert len(ran) <= needed, "run evaluates an operator twice, or once for each of its users"
            return evaluate(op, *values)
        named = {made[i]: feed[name] for i, (op, name) in enumerate(rows) if op == "placeholder"}
        values = run([made[i] for i in outputs], named, once)
        assert isinstance(values, (list, tuple)), f"run gave a {type(values).__name__}, want a list"
        assert ran or results, "run never calls the evaluate that it is given"
        assert len(named) == len(feed), "run writes into feeds: they are the caller's, copy them"
        results.append([np.asarray(value) for value in values])
    return results

# %% [markdown]
# ### Exercise 1.1 · topological_order
#
# To run a graph, its nodes must stand in an order in which nothing is read before it is there. List all nodes that the
# outputs are computed from, each once, each after its inputs. A node with two users is met twice on the way down.
# Python stops at about 1,000 nested calls, and a recurrent network unrolled over a text has longer chains than that:
# keep your own stack.

# %% tags=["hole"]
def topological_order(outputs):
    """The nodes that these outputs need, outputs included: a list, each node once and after its inputs.

    outputs: list of Nodes; a node's inputs are node.inputs. Chains of 5,000 nodes must pass.
    About ten lines.
    """
    # BEGIN SOLUTION
    order, seen = [], set()
    stack = [(node, False) for node in outputs]
    while stack:
        node, inputs_are_listed = stack.pop()
        if inputs_are_listed:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((x, False) for x in node.inputs)
    return order
    # END SOLUTION

# %% tags=["check"] points=2
for _ in range(40):
    rows = graphs.random_graph(rng, 12, 3)
    outputs = rng.choice(len(rows), 2, replace=False)[[0, 1, 0]].tolist()  # one is asked for twice
    order, needed = ordered(rows, outputs), graphs.ancestors(rows, outputs)
    gave = f"topological_order of rows {outputs} of {rows} gave {order}"
    assert len(order) == len(set(order)), f"{gave}: it lists a node twice"
    assert set(order) == needed, f"{gave}, want what the outputs need, in each call: {sorted(needed)}"
    early = [(i, j) for n, i in enumerate(order) for j in graphs.inputs(rows[i]) if j not in order[:n]]
    assert not early, f"{gave}: row {early[0][0]} stands before its input, row {early[0][1]}"
chain = [("placeholder", "x")] + [("sin", (i,)) for i in range(5000)]
assert ordered(chain, [5000]) == list(range(5001)), "a chain of 5,000 sines came out of order"
print("topological_order: 40 random graphs and a chain of 5,000 nodes")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Put pairs on the stack: a node, and whether its inputs have been dealt with. A node that comes up for the first time
# goes back on the stack, marked, with its inputs above it. When it comes up marked, everything above it is in the list.
# Mark a node as seen when you take it *off* the stack, not when you put it on: its first sighting may be too early.
# </details>

# %% [markdown]
# ### Exercise 1.2 · run
#
# Run a graph: walk it in order and keep each node's value in a dictionary of this run. The graph itself stays a plan,
# free to be run on other numbers. `evaluate` is an argument because part 2 will run the same graph on other things than
# numbers.

# %% tags=["hole"]
def run(outputs, feeds, evaluate=evaluate):
    """The values of these nodes: a list.

    feeds: {placeholder: value}. A constant's value is node.value; an operator's is
    evaluate(node.op, *values of its inputs). Each operator is evaluated once; nodes and feeds stay as
    they are.
    About six lines.
    """
    # BEGIN SOLUTION
    values = dict(feeds)
    for node in topological_order(outputs):
        if node.op == "constant":
            values[node] = node.value
        elif node not in values:
            values[node] = evaluate(node.op, *(values[x] for x in node.inputs))
    return [values[node] for node in outputs]
    # END SOLUTION

# %% tags=["check"] limit_s=3
rows = [("placeholder", "x"), *[("add", (i, i)) for i in range(60)], ("subtract", (0, 60))]
x, f = np.array(1.5), np.array(1.5 - 1.5 * 2**60)
agree(computed(rows, [0, 61], [{"x": 1.5}]), [[x, f]], "run of x and x - (x doubled 60 times), x = 1.5",
    mistakes={"Hand evaluate the inputs in their order.": [[x, np.array(-f)]]})
print("run evaluates each operator once")

# %% tags=["check"]
for size in (1, 2, 3, 0):
    rows = [*graphs.random_graph(rng, 10, 2), ("constant", 0.5)]
    rows.append(("divide", (len(rows) - 2, len(rows) - 1)))
    feeds = [{"x0": rng.normal(size=(size, 3)), "x1": rng.normal(size=3)} for _ in range(2)]
    outputs = [len(rows) - 1, len(rows) - 5, len(rows) - 2, len(rows) - 1]
    tensors = [{name: torch.tensor(x) for name, x in feed.items()} for feed in feeds]
    want = [[value.numpy() for value in graphs.evaluated(rows, outputs, feed)] for feed in tensors]
    agree(computed(rows, outputs, feeds), want, f"run of {outputs} of {rows}", rtol=1e-9, mistakes={
        "Both runs gave the same: a run must leave nothing in the nodes.": [want[0], want[0]]})
print("run agrees with PyTorch on random graphs")

# %%
x, y = placeholders("x", "y")
f = x * y + x.sin()  # built once, run twice
print("define-then-run:", f.value, *run([f], {x: 2.0, y: 3.0}), *run([f], {x: 0.0, y: 3.0}))
x, y = Node("constant", value=2.0), Node("constant", value=3.0)
print("define-by-run:  ", (x * y + x.sin()).value)

# %% [markdown]
# ### What an `if` does to a graph
#
# `f = x² if x > 0, else sin x`. Define-by-run has the number, so Python's `if` works, and the graph holds the branch
# that was taken: another input, perhaps another graph. Define-then-run has no number to decide on.

# %%
def branchy(x):
    return x * x if x > 0 else x.sin()

print([branchy(Node("constant", value=v)).op for v in (3.0, -3.0)])
try:
    branchy(placeholders("x")[0])
except TypeError as error:
    print("TypeError:", error)

# %% [markdown]
# A graph that is to choose when it *runs* needs the choice as an operator. The dataflow machines of the 1970s had two,
# and TensorFlow took them over: **Switch** hands its input to one of two sides, and the other side gets nothing
# (`DEAD`); **Merge** hands on what arrived. Both branches are in the graph; one is computed.

# %% tags=["driver"]
def branching(x):
    """x² if x > 0 else sin x, as a graph."""
    p = x > 0.0
    taken, other = p.switch_true(x), p.switch_false(x)
    return p.merge(taken * taken, other.sin())

def counted_run(outputs, feeds, evaluate=evaluate):
    """run()'s values, and how many operators were evaluated: those on a dead branch are not."""
    alive = []
    def counting(op, *values):
        value = evaluate(op, *values)
        alive.extend([op] if value is not DEAD else [])
        return value
    return run(outputs, feeds, counting), len(alive)

# %%
x, = placeholders("x")
f = branching(x)
operators = graphs.operators(wengert_list([f])[0])
for value in (3.0, -3.0):
    (got,), alive = counted_run([f], {x: value})
    print(f"x = {value}: f = {got:.4f}, {alive} of {operators} operators evaluated")

# %% [markdown]
# The lecture notes that this course grew from say that compiled graphs "cannot work with conditionals or loops". They
# can, with Switch and Merge (and for loops three more operators), or by *guards*: compile the branch that was taken,
# note the condition, compile again when it fails. Lab 08 does that. The notes also ask: what is the gradient of Switch?
# Part 3 answers.
#
# **A graph is a program that another program can read; whether its numbers come first or last is a matter of
# convenience.**

# %% [markdown]
# ## Part 2 · Forwards: carry a derivative along
#
# Write every number as a pair, its value and how fast it moves: a + ȧε, with ε² = 0, so small that its square is
# nothing. These are **dual numbers**, and arithmetic on them is differentiation:
#
# (a + ȧε)(b + ḃε) = ab + (ȧb + aḃ)ε
#
# The product rule was not put in; it came out. So forward mode is a *run of the same graph on other numbers*. ȧ is
# called the **tangent** of a.

# %% [markdown]
# ### Exercise 2.1 · dual
#
# Apply one operator to dual numbers. Two rules are there; add the others. For a matrix product the order matters, as it
# does in `a @ b`.

# %% tags=["hole"]
def dual(op, *pairs):
    """(value, tangent) of an operator on such pairs.

    A plain number among the pairs is a constant: its tangent is 0. op: add, subtract, multiply, divide,
    exp, log, sin, tanh, matmul or sum (over all elements). About ten lines.
    """
    pairs = [pair if isinstance(pair, tuple) else (pair, np.zeros_like(pair)) for pair in pairs]
    value = evaluate(op, *(value for value, _ in pairs))
    (a, da), (b, db) = pairs if len(pairs) == 2 else (pairs[0], (None, None))
    if op == "add":
        return value, da + db
    if op == "sin":
        return value, np.cos(a) * da
    # BEGIN SOLUTION
    tangents = {
        "subtract": lambda: da - db,
        "multiply": lambda: da * b + a * db,
        "divide": lambda: (da - value * db) / b,
        "exp": lambda: value * da,
        "log": lambda: da / a,
        "tanh": lambda: (1 - value**2) * da,
        "matmul": lambda: da @ b + a @ db,
        "sum": lambda: np.sum(da),
    }
    return value, tangents[op]()
    # END SOLUTION

# %% tags=["check"] points=2
binary = ["add", "subtract", "multiply", "divide", "matmul"]
for op, n in [(op, n) for op in [*binary, "exp", "log", "sin", "tanh", "sum"] for n in (1, 3, 0)]:
    (a, b), (da, db) = inputs, ways = [[rng.uniform(1, 2, (n, n)) for _ in range(2)] for _ in range(2)]
    count = 2 if op in binary else 1
    tensors = [[torch.tensor(x) for x in group[:count]] for group in (inputs, ways)]
    value, tangent = (t.numpy()[()] for t in graphs.tangent(graphs.torch_operator(op), *tensors))
    got = [dual(op, *[(a, da), (b, db)][:count]) for _ in range(2)][1]
    agree(got, (value, tangent), f"dual({op!r}, ...) on {n} by {n} arrays, twice", rtol=1e-9, mistakes={
        "da * db goes with ε² and vanishes: each tangent meets the other's value.": (value, da * db),
        "The quotient's second term must be subtracted.": (value, (da + value * db) / b),
        "A matrix product has two terms, da @ b and a @ db: mind the order.": (value, da @ b + db @ a)})
print("dual agrees with PyTorch and central differences on 10 operators")

# %% [markdown]
# Forward mode is then your `run` with your `dual`. The tangents that go in say which derivative comes out: 1 at one
# input and 0 at all others gives the derivative with respect to that input, of every output at once. (The notes have it
# the other way round.)

# %% tags=["driver"]
def jvp(output, inputs, values, tangents):
    """(value, tangent) of the output, where each input moves as fast as its tangent says."""
    pairs = zip(values, tangents, strict=True)
    return run([output], dict(zip(inputs, pairs, strict=True)), evaluate=dual)[0]

# %%
x, y = placeholders("x", "y")
f = x * y + x.sin()
print("df/dx:", jvp(f, [x, y], [2.0, 3.0], [1.0, 0.0])[1], "and by hand", 3 + np.cos(2.0))
print("df/dy:", jvp(f, [x, y], [2.0, 3.0], [0.0, 1.0])[1], "and by hand", 2.0)

# %% [markdown]
# A thousand inputs are a thousand runs: as many as by moving one input at a time, but exact. How inexact are
# differences?
#
# Taylor: f(x + ε) = f + ε f′ + ε² f″/2 + ε³ f‴/6 + … The *one-sided* difference (f(x + ε) − f(x))/ε is therefore off by
# ε f″/2. In the *central* one, (f(x + ε) − f(x − ε))/2ε, the even terms cancel.
#
# The notes say that one-sided differences are "error prone θ(ε²)". Show where that fails: predict both errors, then
# look.

# %% [markdown]
# ### Exercise 2.2 · difference_errors
#
# Two errors add up: what Taylor leaves out, and rounding. float64 has each value of f right to within 2⁻⁵³ of it, and
# the difference of two such values is then divided by a small number.

# %% tags=["hole"]
def difference_errors(step, value, second, third):
    """(one-sided, central): predicted size of the errors of the two differences, in float64.

    value, second, third: f(x), f''(x), f'''(x). Take the first term that Taylor's formula leaves,
    and add the worst case of rounding: each of the two values of f is off by 2**-53 * |value|.
    About three lines.
    """
    # BEGIN SOLUTION
    rounding = 2 * 2**-53 * abs(value)
    return step / 2 * abs(second) + rounding / step, step**2 / 6 * abs(third) + rounding / (2 * step)
    # END SOLUTION

# %% tags=["check"]
for _ in range(100):
    step, (value, second, third) = 2.0 ** -int(rng.integers(1, 50)), rng.normal(size=3).tolist()
    one, two = step / 2 * abs(second), step**2 / 6 * abs(third)
    noise = 2**-52 * abs(value) / step
    case, half = f"difference_errors({step}, {value:.3}, {second:.3}, {third:.3})", noise / 2
    got = difference_errors(step, value, second, third)
    agree(got, (one + noise, two + half), case, rtol=1e-9, mistakes={
        "Rounding counts: without it a step of 0 would be best.": (one, two),
        "Each of the two values of f is off by 2**-53 of it.": (one + half, two + half / 2),
        "The central difference divides by 2ε, its rounding error too.": (one + noise, two + noise),
        "One-sided differences err by O(ε), not O(ε²): ε f″/2 stays.": (two + noise, two + half)})
print("difference_errors agrees with Taylor's formula and 2**-53")

# %%
# Steps that are powers of 2: 1 + step is exact. And exp at 1: f = f' = f'' = f''' = e.
steps, e = 2.0 ** -np.arange(1, 50), np.e
lines = difference_errors(steps, e, e, e)
one_sided = np.abs((np.exp(1 + steps) - e) / steps - e)
central = np.abs((np.exp(1 + steps) - np.exp(1 - steps)) / (2 * steps) - e)
one_sided[1::2] = central[::2] = np.nan  # by turns, so that no dot hides another
figures.predicted_and_measured(steps, {"one-sided": lines[0], "central": lines[1]},
    {"one-sided": one_sided, "central": central}, log="xy", xlabel="step ε",
    ylabel="error of the derivative", title="The derivative of exp at 1, by differences");

# %% [markdown]
# Slope 1 on the right for one-sided differences, 2 for central ones: errors of O(ε) and O(ε²). On the left both drown
# in rounding. Best are some 8 digits one-sided (ε near 2·10⁻⁸) and 10 or 11 central (ε near 7·10⁻⁶).
#
# So differences are too slow and too coarse to train with. But they know nothing of our rules. That makes central
# differences in float64 an excellent *judge*: every gradient in this lab has to satisfy them, and PyTorch besides.
#
# **Forward mode is exact and costs one run an input; differences cost as much and are not exact.**

# %% [markdown]
# ## Part 3 · Backwards: a graph that computes the gradient
#
# We want all inputs from one run. So ask the other way round: not "if x moves, how fast does everything move?" but "if
# v moves, how fast does the *output* move?" The answer, an array of v's shape, is v's **adjoint**, v̄ = ∂f/∂v. The
# output's own is 1. If v is only used in w = sin v, then v̄ = w̄ · cos v: adjoints travel from the output to the
# inputs.
#
# The rule by which an operator turns its output's adjoint into its inputs' is its **vjp** (vector-Jacobian product).
# Ours will not compute numbers: it *adds nodes to the graph*.

# %% [markdown]
# ### Exercise 3.1 · sum_like
#
# First a new operator. In `x + b` with x of shape (64, 10) and b of shape (10,), lab 01's stride 0 lends b to 64 rows.
# An adjoint of shape (64, 10) arrives, and b's must have shape (10,): the 64 contributions are added. Undo any
# broadcast.

# %% tags=["hole"]
def sum_like(g, like):
    """g summed down to the shape of like: the adjoint of broadcasting like to g's shape.

    Broadcasting added axes in front and stretched axes of size 1. Same dtype as g, an array; like may
    be a plain number, whose shape is (). About four lines.
    """
    # BEGIN SOLUTION
    shape = np.shape(like)
    g = np.sum(g, axis=tuple(range(np.ndim(g) - len(shape))))
    return np.sum(g, axis=tuple(axis for axis, size in enumerate(shape) if size == 1), keepdims=True)
    # END SOLUTION

# %% tags=["check"] points=2
for i in range(200):
    wide = tuple(rng.integers(int(i < 100), 4, rng.integers(0, 4)).tolist())
    narrow = tuple(size if rng.random() < 0.5 else 1 for size in wide)[rng.integers(len(wide) + 1):]
    g, like = rng.normal(size=wide).astype(rng.choice(["float32", "float64"])), np.zeros(narrow)
    want, front = torch.tensor(g).sum_to_size(narrow).numpy(), tuple(range(len(wide) - len(narrow)))
    case = f"sum_like(g of shape {wide}, like of shape {narrow}), twice,"
    got = [np.asarray(sum_like(g, like if narrow else 1.0)) for _ in range(2)][1]  # g is others', too
    agree(got, want, case, rtol=1e-5, atol=1e-6, mistakes={
        "Axes that were stretched from size 1 must be summed, and stay.": np.asarray(g.sum(axis=front)),
        "A stretched axis stays, with size 1 (keepdims).": want.squeeze(),
        "The adjoint adds, it does not take the mean.": np.asarray(want * want.size / max(1, g.size))})
print("sum_like agrees with torch.Tensor.sum_to_size on 200 shapes")

# %% tags=["driver"]
OPERATORS["sum_like"] = sum_like
FLAT = {"step", "greater", "size", "zeros_like", "ones_like", "detach"}  # derivative 0, or said to be

def pullback(op, count):
    """vjp(node, g) of op(x0, x1, ...) as data: rows, and each adjoint's row (or None)."""
    inputs = placeholders(*(f"x{i}" for i in range(count)))
    adjoints = vjp(Node(op, *inputs), *placeholders("g"))
    came = len(adjoints) if isinstance(adjoints, (tuple, list)) else f"a {type(adjoints).__name__}"
    assert came == count, f"vjp of {op} gave {came}, want a tuple of {count}: adjoints, or None"
    rows, outputs = wengert_list([adjoint for adjoint in adjoints if adjoint is not None])
    return rows, [outputs.pop(0) if adjoint is not None else None for adjoint in adjoints]

def derivative_graph(rows, inputs, order=1):
    """The last row's value and its derivatives by these inputs, as data: rows, and the outputs' rows.

    order 2 differentiates the first of the first derivatives, and so on.
    """
    made = nodes(rows)
    gradients(made[-1], [made[i] for i in reversed(inputs)])  # an earlier call leaves nothing behind
    found = [made[-1]]
    for _ in range(order):
        found = gradients(found[0], [made[i] for i in inputs])
    return wengert_list([made[-1], *found])

# %% [markdown]
# ### Exercise 3.2 · vjp
#
# One rule an operator. Write each with nodes, never with a node's value: what is made of nodes can be drawn, run on
# other inputs, and differentiated once more. An adjoint has its input's shape, or a wider one if the input was
# broadcast: `gradients` will call `sum_like`.
#
# For matrices `c = a @ b`, shapes leave only one way to multiply. `sum` hands each element the same adjoint, `mean` the
# n-th part. The input of a Switch gets the adjoint if its side was taken, and else *nothing*: in a sum, zeros of the
# input's shape. Of a Merge, only the input that was taken gets it.

# %% tags=["hole"]
def vjp(node, g):
    """The adjoint of each input of node, as new nodes, where g is node's own: a tuple.

    None stands for an input that has none. Operators: those below, and multiply, divide, log, tanh,
    relu (use x.step()), matmul, transpose, sum, row_sum, mean (use x.size()),
    switch_true(p, x), switch_false(p, x) and merge(p, a, b). About fifteen lines, one a rule.
    """
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    # BEGIN SOLUTION
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()
    # END SOLUTION

# %% tags=["check"] points=2
for op, n in [(op, n) for op in ["multiply", "divide", "log", "tanh", "relu"] for n in (1, 3, 0)]:
    a, b, g = (torch.tensor(rng.uniform(1, 2, shape)) for shape in ((2, n), n, (2, n)))
    a = a * torch.tensor(rng.choice([-1.0, 1.0], (2, n))) if op == "relu" else a
    inputs, f = [a, b] if op in ("multiply", "divide") else [a], graphs.torch_operator(op)
    y, want, bare = f(*inputs), graphs.gradient(f, inputs, g), graphs.gradient(f, inputs)
    got = graphs.adjoints(*pullback(op, len(inputs)), inputs, g)
    agree(got, want, f"vjp of {op}, {n} columns", rtol=1e-9, atol=1e-12, mistakes={
        "Each factor's adjoint meets the other factor.": [g * a, (g * b).sum_to_size(n)],
        "The divisor's adjoint has a minus sign.": [g / b, (g * y / b).sum_to_size(n)],
        "The derivative of relu x steps from 0 to 1.": [g * y], "That of log x is 1/x.": [g * a],
        "That of tanh x is 1 - tanh² x.": [g - g * y], "The factor g is missing.": bare})
print("vjp agrees with PyTorch and central differences on 5 element-wise operators")

# %% tags=["check"] points=2
for op, n in [(op, n) for op in ["matmul", "transpose", "sum", "row_sum", "mean"] for n in (1, 3)]:
    a, b = inputs = [torch.tensor(rng.normal(size=shape)) for shape in ((n, n), (2, n, n))]
    inputs, f = inputs if op == "matmul" else [a], graphs.torch_operator(op)
    g = torch.tensor(rng.normal(size=f(*inputs).shape))
    want, wide = graphs.gradient(f, inputs, g), g.expand(2, n, n)
    got = graphs.adjoints(*pullback(op, len(inputs)), inputs, g)
    agree(got, want, f"vjp of {op} of {n} by {n} matrices", rtol=1e-9, atol=1e-12, mistakes={
        "The transposes are missing: g @ b.T and a.T @ g.": [(wide @ b).sum(0), a @ wide],
        "What was transposed must be transposed back.": [wide[0]] if op == "transpose" else None,
        "mean divides by the number of elements, and so does its adjoint.": [wide[0]],
        "The factor g is missing.": graphs.gradient(f, inputs)})
print("vjp agrees with PyTorch and central differences on 5 operators that mix elements")

# %% tags=["check"]
x, g = torch.tensor(rng.normal(size=3)), torch.tensor(rng.normal(size=3))
for p in (torch.tensor(True), torch.tensor(False)):
    for op, taken in (("switch_true", p), ("switch_false", ~p)):
        case = f"vjp of {op} at p = {bool(p)}, where g {'lives' if taken else 'died'}"
        got = graphs.adjoints(*pullback(op, 2), [p, x], g if taken else None)
        agree(got, [None, g if taken else 0 * x], case, mistakes={
            "A side not taken sends back 0: merge g with zeros like x, not like g.": [None, None]})
    got = graphs.adjoints(*pullback("merge", 3), [p, x, x], g)
    agree(got, [None, g, None] if p else [None, None, g], f"vjp of merge at p = {bool(p)}", mistakes={
        "The adjoint goes where the value came from.": [None, None, g] if p else [None, g, None],
        "The branch not taken may get no adjoint: the gradient of Merge switches g.": [None, g, g]})
print("vjp of Switch merges, vjp of Merge switches")

# %% tags=["check"]
for op in "multiply divide log tanh relu matmul transpose sum row_sum mean".split():
    a, b = (torch.tensor(rng.uniform(1, 2, (3, 3)), requires_grad=True) for _ in range(2))
    inputs, f = [a, b] if op in ("multiply", "divide", "matmul") else [a], graphs.torch_operator(op)
    g = torch.tensor(rng.normal(size=f(*inputs).shape), requires_grad=True)
    def slopes(g, *inputs, f=f):
        return sum(v.sin().sum() for v in torch.func.vjp(f, *inputs)[1](g))
    theirs = sum(v.sin().sum() for v in graphs.adjoints(*pullback(op, len(inputs)), inputs, g))
    got = torch.autograd.grad(theirs + 0 * g.sum(), [g, *inputs], materialize_grads=True)
    agree(list(got), graphs.gradient(slopes, [g, *inputs]), rtol=1e-7, atol=1e-9,
        case=f"derivatives by g and the inputs of the vjp of {op} (through detach there are none)")
print("vjp gives graphs whose derivatives agree with PyTorch and central differences")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `y = a/b` is its own friend: ∂y/∂b = −a/b² = −y/b, and `node` is y. For Switch: `p.merge(a, b)` is a where p is true.
# For Merge: its adjoint goes where the value came from.
# </details>

# %% [markdown]
# ### Exercise 3.3 · gradients
#
# Now the walk. Start with the output's adjoint, ones. Take the nodes in *reverse* topological order, so that a node's
# adjoint is complete before it is handed on. Let `vjp` make the inputs' adjoints, bring each to its input's shape, and
# **add** it to what is there: a value that is used twice moves the output in two ways. The check counts operators, the
# function's own included, and allows 9 times those of the function: the solution makes 246 of 49 for a product of 50
# inputs, and 61 of 10 for 10 squarings.

# %% tags=["hole"]
def gradients(output, inputs):
    """The derivatives of the sum of output by each of the inputs, as new nodes of the graph: a list.

    inputs: any nodes of the graph, and others: one that the output does not depend on gets
    x.zeros_like(). Each operator is passed once. About ten lines.
    """
    # BEGIN SOLUTION
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node])):
                if g is not None:
                    g = g.sum_like(x)
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]
    # END SOLUTION

# %% tags=["check"]
x, y = torch.tensor(rng.normal(size=(2, 3))), torch.tensor(rng.normal(size=3))
for more, mistake, wrong in [
    ([("multiply", (0, 0))], "x feeds two inputs: their adjoints are added.", [x, 0 * y]),
    ([("sin", (0,)), ("multiply", (2, 0)), ("add", (2, 3))],
     "sin x passed its adjoint on before it was complete: go backwards.", [x.cos() + x.sin(), 0 * y]),
]:
    rows = [("placeholder", "x"), ("placeholder", "y"), *more]
    want = graphs.gradient(lambda x, y, rows=rows: graphs.values(rows, {"x": x, "y": y})[-1], [x, y])
    got = graphs.evaluated(*derivative_graph(rows, [0, 1]), {"x": x, "y": y})[1:]
    agree(got, want, f"gradients by x and y of {rows}", rtol=1e-9, mistakes={mistake: wrong,
        "A second call adds to what the first has left: start afresh.": [2 * g for g in want]})
print("gradients: fan-out adds, the order holds")

# %% tags=["check"]
x, y = torch.tensor(rng.normal(size=(2, 3))), torch.tensor(rng.normal(size=3))
for more, mistake, wrong in [
    ([("multiply", (0, 1))], "y's adjoint must be summed to its shape.", [y.expand(2, 3), x]),
    ([("sum", (0,)), ("multiply", (0, 2))], "The adjoint of sum x is a number.", [x.sum() + x, 0 * y]),
    ([("multiply", (0, 1)), ("sin", (1,)), ("add", (2, 3))],
     "Give an adjoint its shape before you add it.", [y.expand(2, 3), x.sum(0) + 4 * y.cos()]),
]:
    rows = [("placeholder", "x"), ("placeholder", "y"), *more]
    want = graphs.gradient(lambda x, y, rows=rows: graphs.values(rows, {"x": x, "y": y})[-1], [x, y])
    got = graphs.evaluated(*derivative_graph(rows, [0, 1]), {"x": x, "y": y})[1:]
    agree(got, want, f"gradients by x and y of {rows}", rtol=1e-9, mistakes={mistake: wrong})
print("gradients: broadcasts are summed")

# %% tags=["check"]
x, y = torch.tensor(rng.normal(size=(2, 3))), torch.tensor(rng.normal(size=3))
by_x, by_y = graphs.gradient(lambda x, y: x.sin() * x + y, [x, y])
by_sine, = graphs.gradient(lambda s: s * x + y, [x.sin()])
for x_row, y_row in ((("placeholder", "x"), ("placeholder", "y")),
                     (("constant", x.numpy()), ("constant", y.numpy()))):
    rows = [x_row, y_row, ("sin", (0,)), ("multiply", (2, 0)), ("add", (3, 1))]
    got = graphs.evaluated(*derivative_graph(rows, [0, 1, 2, 4]), {"x": x, "y": y})[1:]
    case, one = f"gradients of f = x sin x + y by x, y, sin x, f, on {x_row[0]}s", torch.ones_like(x)
    agree(got, [by_x, by_y, by_sine, one], case, rtol=1e-9, mistakes={
        "An operator's adjoint may be asked for too: keep it.": [by_x, by_y, 0 * x, 0 * x],
        "Walk on through a node that is asked for.": [0 * x, 0 * y, 0 * x, one]})
print("gradients by any node, on placeholders and on numbers")

# %% tags=["check"]
names = [f"x{i}" for i in range(50)]
product = [("placeholder", x) for x in names] + [("multiply", (2 * i, 2 * i + 1)) for i in range(49)]
squares = product[:1] + [("multiply", (i, i)) for i in range(10)]
for name, rows, n in (("a product of 50 inputs", product, 50), ("x squared 10 times", squares, 1)):
    xs = [torch.tensor(1 + i / 1e4, dtype=torch.float64) for i in range(n)]
    want = graphs.gradient(lambda *xs, rows=rows: graphs.values(rows, dict(zip(names, xs)))[-1], xs)
    (graph, outputs), before = derivative_graph(rows, list(range(n))), graphs.operators(rows)
    assert (after := graphs.operators(graph)) <= 9 * before + 1, (f"gradients of {name} took {after} "
        f"operators, want at most 9 times {before}: not once for each path or each input.")
    got = graphs.evaluated(graph, outputs[1:], dict(zip(names, xs)))
    agree(got, want, f"gradients of {name}", rtol=1e-9)
print("f and its gradient take at most 9 times the operators of f, for 1 input and for 50")

# %% tags=["check"]
rows = [("placeholder", "x"), ("sin", (0,)), ("exp", (1,)),
        ("multiply", (0, 2)), ("divide", (3, 1)), ("tanh", (4,))]
def derivative(x, order):
    y = derivative(x, order - 1) if order else graphs.values(rows, {"x": x})[-1]
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0] if order else y
for order, x in enumerate(torch.tensor(rng.uniform(0.5, 2.5, (3, 4)), requires_grad=True), start=1):
    want, case = derivative(x, order), f"derivative {order} of {rows}"
    slope = (derivative(x + 1e-5, order - 1) - derivative(x - 1e-5, order - 1)) / 2e-5
    got = graphs.evaluated(*derivative_graph(rows, [0], order), {"x": x})[-1]
    agree(got, want, case, rtol=1e-7, atol=1e-9, mistakes={"Is a value or adjoint detached?": 0 * want})
    agree(got, slope, f"{case}, by differences", rtol=1e-4, atol=1e-5)
print("gradients of gradients of gradients agree with PyTorch and central differences")

# %% tags=["check"]
rows = [("placeholder", "x"), ("sum", (0,)), ("constant", 0.0), ("greater", (1, 2)),
        ("switch_true", (3, 0)), ("switch_false", (3, 0)),
        ("exp", (4,)), ("sin", (5,)), ("merge", (3, 6, 7)), ("multiply", (0, 8))]
def f(x): return graphs.values(rows, {"x": x})[-1]
def slope(x): return torch.func.vjp(f, x)[1](torch.ones_like(x))[0]
for x in [sign * torch.tensor(rng.uniform(0.5, 2.5, 4)) for sign in (1, -1)]:
    for order, antiderivative in ((1, f), (2, slope)):
        want, = graphs.gradient(antiderivative, [x])
        got = graphs.evaluated(*derivative_graph(rows, [0], order), {"x": x})[-1]
        agree(got, want, f"derivative {order} of x exp x if sum(x) > 0, else x sin x", rtol=1e-9)
print("gradients of an if agree with PyTorch and central differences, on either side")

# %% tags=["check", "held-out"]
for n in [0, 1, 2, 3] * 5:
    rows = graphs.random_graph(rng, 10, 3)
    shapes = {"x0": (2, n), "x1": n, "x2": (2, 1)}
    feeds = {name: torch.tensor(rng.normal(size=shape)) for name, shape in shapes.items()}
    def last(*xs, rows=rows, names=tuple(feeds)):
        return graphs.values(rows, dict(zip(names, xs)))[-1]
    got = graphs.evaluated(*derivative_graph(rows, [0, 1, 2]), feeds)[1:]
    want = graphs.gradient(last, list(feeds.values()))
    agree(got, want, f"gradients by x0, x1, x2 of {rows}", rtol=1e-7, atol=1e-9)
print("gradients agrees with PyTorch and central differences on 20 random graphs")

# %% [markdown]
# Look at what you made: blue is the function, orange what `gradients` added. A small Σ is a `sum_like`; edges that only
# tell it a shape are left out.

# %%
def picture(outputs, feeds, names, title):
    rows, numbers = wengert_list(outputs)
    values = run(topological_order(outputs), feeds)
    return graphs.draw(rows, numbers, values=values, names=dict(zip(numbers, names)), title=title)

x, y = placeholders("x", "y")
f = x * y + x.sin()
picture([f, *gradients(f, [x, y])], {x: 2.0, y: 3.0},
        ["f", "∂f/∂x", "∂f/∂y"], "f = x·y + sin x and its gradient at (2, 3)");

# %% [markdown]
# The backward graph is the forward graph turned round. The edges into + become a copy (both branches get 1), and x,
# which fans out to two operators, becomes a sum (the + on the left).
#
# The grey edges carry *values of the forward graph* into the backward graph. Backward needs last what forward made
# first, so all of them must be kept. They are what fills a GPU's memory in training; lab 09 is about them.
#
# ### A gradient that is a graph can be differentiated
#
# `gradients` returned nodes like any others: call it on them. Here with numbers that are there already (define-by-run),
# on 200 points at once:

# %%
x = Node("constant", value=np.linspace(-3, 3, 200))
y, (_, ax) = x.tanh(), plt.subplots()
for order in range(4):
    ax.plot(x.value, y.value, label=["tanh", "first", "second", "third derivative"][order])
    y, = gradients(y, [x])
ax.set(xlabel="x", title="tanh, and gradients of gradients of it")
ax.legend();

# %% [markdown]
# Older frameworks (Caffe) had no backward graph. Each layer had two functions, and training walked the *forward* graph
# from its end, writing numbers into arrays beside the activations. Same rules, same cost. But a number has no history:

# %%
x = Node("constant", value=2.0)
first, = gradients(x * x * x, [x])
number = Node("constant", value=first.value)  # all that Caffe keeps
print("first derivative of x³ at 2:", first.value, "=", number.value)
print("second, from the graph: ", gradients(first, [x])[0].value)
print("second, from the number:", gradients(number, [x])[0].value)

# %% [markdown]
# An explicit backward graph can be drawn, differentiated, optimised together with the forward graph (lab 08), cut over
# devices (lab 15), and run on other inputs; the weight update can be part of it (part 4). TensorFlow and JAX build it.
# PyTorch walks the graph that it recorded and, like Caffe, computes numbers, unless you ask for the nodes:
# `create_graph=True`.
#
# ### The gradient of an `if`
#
# The notes ask: what is the gradient of Switch? You wrote it: a Merge of what came back along the side that was taken
# with zeros for the other. And the gradient of Merge is Switch. Faded is what was not computed.

# %%
x, = placeholders("x")
f = branching(x)
title = "x² if x > 0 else sin x, and its gradient, at x = 3"
picture([f, *gradients(f, [x])], {x: 3.0}, ["f", "df/dx"], title);

# %% [markdown]
# ### Clinic: a loss that is right and a gradient that is not
#
# A training run added the length of a vector, √(Σx²), to its loss. It ran for days. Then all weights were NaN, though
# the loss just before was perfectly fine. The vector had become 0. Find the place in the graph, and say why, before you
# unfold.

# %%
def length(x):
    return (0.5 * (x * x).sum().log()).exp()

x, = placeholders("x")
f = length(x)
with np.errstate(all="ignore"):
    title = "The length of 0, and its gradient"
    picture([f, *gradients(f, [x])], {x: 0.0}, ["length", "gradient"], title);

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# Read the backward graph from the right. Up to ÷ the adjoint is 0, since exp(−∞) = 0. There it is divided by Σx², which
# is 0 too: 0/0 is NaN, and everything after it is NaN. Mathematically, the slope of the length at 0 is undefined; the
# rules met it as ∞ · 0.
#
# `where(Σx² > 0, length, 0)` does not help: it computes both sides and picks one; backwards it sends 0 into the other,
# where 0/0 makes it NaN again. (JAX's documentation has an entry on this trap.) The dangerous branch must not run, or
# must be fed a harmless number. Switch keeps it from running.
# </details>

# %%
def safe_length(x):
    total = (x * x).sum()
    p = total > 0.0
    return p.merge((0.5 * p.switch_true(total).log()).exp(), p.switch_false(total))

x, = placeholders("x")
f = safe_length(x)
for value in (np.zeros(3), np.array([3.0, 4.0, 0.0])):
    print("x =", value, " length and gradient:", *run([f, *gradients(f, [x])], {x: value}))

# %% [markdown]
# **Reverse mode turns a graph round: adjoints are added where values fanned out, and summed where they were broadcast.
# The result is a graph again.**
#
# ## Part 4 · Read digits
#
# 1,797 handwritten digits of 8×8 pixels, from 1998. We keep 360 apart; the others train a network of 64 inputs, 64
# hidden units and 10 outputs, with nothing but what you wrote. The outputs, one a digit, are called **logits**: the
# largest is the digit that the network reads.

# %%
images, labels = samples.digits()
images = images.reshape(-1, 64) / 16
shuffled = np.random.default_rng(7).permutation(len(images))
train, held_out = shuffled[:-360], shuffled[-360:]
_, axes = plt.subplots(2, 10, figsize=(7.2, 1.7))
for ax, i in zip(axes.flat, train):
    ax.imshow(images[i].reshape(8, 8), cmap="gray_r")
    ax.axis("off")

# %% tags=["driver"]
def network(images, parameters):
    """Logits (B, 10) of B images (B, 64), as a node."""
    w1, b1, w2, b2 = parameters
    return (images @ w1 + b1).relu() @ w2 + b2

def training_graph():
    """training_step() as data: rows, and the numbers of the outputs' rows."""
    images, labels, *parameters, rate = placeholders("x", "labels", "w1", "b1", "w2", "b2", "rate")
    return wengert_list(training_step(images, labels, parameters, rate))

def fit(images, labels, steps=1500, batch=64, hidden=64, rate=0.5):
    """Parameters trained on these images (N, 64) and labels (N,), and the loss of each step."""
    draw, one_hot = np.random.default_rng(0), np.eye(10, dtype=np.float32)[labels]
    shapes = [(64, hidden), (hidden,), (hidden, 10), (10,)]
    scales = [shape[0] ** -0.5 if len(shape) == 2 else 0 for shape in shapes]  # a bias starts at 0
    values = [draw.normal(0, *pair).astype(np.float32) for pair in zip(scales, shapes)]
    named = placeholders("images", "labels", "w1", "b1", "w2", "b2")
    step, losses = training_step(named[0], named[1], named[2:], rate), []
    for _ in range(steps):
        some = draw.integers(0, len(images), batch)
        loss, *values = run(step, dict(zip(named, [images[some], one_hot[some], *values], strict=True)))
        losses.append(float(loss))
    return values, losses

def read(parameters, images):
    """The digits that a network of these parameters takes the images for: an int array."""
    constants = [Node("constant", value=value) for value in [images, *parameters]]
    return network(constants[0], constants[1:]).value.argmax(1)

def trained_and_read(images, labels, unseen):
    """The digits that the network takes unseen images for, trained on the others."""
    return read(fit(images, labels)[0], unseen)

# %% [markdown]
# ### Exercise 4.1 · training_step
#
# One step of gradient descent *as one graph*: the loss, its gradients, and the new parameters, p − rate · ∂loss/∂p. The
# loss is the cross-entropy log Σⱼ exp(zⱼ) − z_label, averaged over the images, where z are an image's logits. Subtract
# each row's maximum from z first, `z - z.row_max().detach()`: exp overflows float32 above 88.7. The loss stays the same,
# so nothing need flow back through the maximum (it has no rule), and `detach` stops it. With labels as rows of 0 and 1,
# z_label is a sum over a row.

# %% tags=["hole"]
def training_step(images, labels, parameters, rate):
    """[loss, new w1, new b1, new w2, new b2] as nodes: one step of gradient descent.

    images (B, 64); labels (B, 10): 1 at the right digit, else 0; parameters [w1, b1, w2, b2], as
    network() takes them. About six lines.
    """
    # BEGIN SOLUTION
    z = network(images, parameters)
    z = z - z.row_max().detach()
    cross_entropy = z.exp().row_sum().log() - (labels * z).row_sum()
    loss = cross_entropy.mean()
    return [loss] + [p - rate * g for p, g in zip(parameters, gradients(loss, parameters))]
    # END SOLUTION

# %% tags=["check"] points=2
for lift in (np.zeros(10), 1000 * np.eye(10)[0]):  # exp overflows at 710, and exp(-1000) is 0
    n, rate = int(rng.integers(2, 9)), torch.tensor(rng.uniform(0.1, 1), dtype=torch.float64)
    images, digits = torch.tensor(rng.random((n, 64))), torch.tensor(rng.integers(0, 10, n))
    p = [torch.tensor(rng.normal(size=s) + (s == 10 and lift)) for s in ((64, 20), 20, (20, 10), 10)]
    def loss(w1, b1, w2, b2, images=images, digits=digits):
        return torch.nn.functional.cross_entropy(torch.relu(images @ w1 + b1) @ w2 + b2, digits)
    slopes, feeds = graphs.gradient(loss, p), [images, torch.eye(10)[digits].double(), *p, rate]
    steps = {k: [abs(k) * loss(*p)] + [w - k * rate * g for w, g in zip(p, slopes)] for k in (1, -1, n)}
    got = graphs.evaluated(*training_graph(), dict(zip("x labels w1 b1 w2 b2 rate".split(), feeds)))
    agree(got, steps[1], f"a step, a logit {lift[0]:g} up (exp overflow? log 0?)", rtol=1e-6, atol=1e-9,
          mistakes={"Go downhill: subtract.": steps[-1], "Take the mean, not the sum.": steps[n]})
print("training_step agrees with PyTorch and central differences")

# %% tags=["check"] points=2
images, digits = samples.digits()
images = images.reshape(-1, 64) / 16
for _ in range(2):  # one split in a few hundred is unlucky
    seen, unseen = np.split(rng.permutation(len(images)), [-360])
    got = trained_and_read(images[seen], digits[seen], images[unseen])
    assert isinstance(got, np.ndarray) and got.shape == (360,), f"read gave {got!r}, want 360 digits"
    right = int((got == digits[unseen]).sum())
    if right >= 342:
        break
assert right >= 342, f"{right} of 360 held-out digits are read right; 95 % are 342. Does the loss fall?"
print("at least 95 % of 360 held-out digits are read right")

# %% tags=["nbval-ignore-output"]
# The aim: 95 % of the held-out digits, in 20 seconds on two cores.
start_s = time.perf_counter()
parameters, losses = fit(images[train], labels[train])
elapsed_s = time.perf_counter() - start_s
answers = read(parameters, images[held_out])
accuracy = (answers == labels[held_out]).mean()
print(f"{accuracy:.1%} of {len(held_out)} held-out digits, {len(losses):,} steps in {elapsed_s:.2f} s")

# %% tags=["nbval-ignore-output"]
wrong = np.flatnonzero(answers != labels[held_out])[:8]
_, (left, *axes) = plt.subplots(1, 9, figsize=(7.2, 1.7), width_ratios=[4] + [1] * 8)
left.plot(losses, linewidth=0.8)
left.set(xlabel="step", title="loss", ylim=(0, None))
for ax, i, answer in zip(axes, held_out[wrong], answers[wrong]):
    ax.axis("off")
    ax.imshow(images[i].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{labels[i]}, read\nas {answer}", size=8, weight="normal", loc="center")

# %% [markdown]
# And this is all that ran, 1,500 times: one graph that takes images, labels and parameters, and gives the loss and the
# new parameters. Another process can run it. The check did: it took the graph as rows, and PyTorch evaluated them.

# %%
named = placeholders("x", "labels", "w1", "b1", "w2", "b2")
step = training_step(named[0], named[1], named[2:], 0.5)
rows, outputs = wengert_list(step)
names = dict(zip(outputs, ["loss", "new w1", "new b1", "new w2", "new b2"], strict=True))
graphs.draw(rows, outputs, names=names, title="One step of training, as a graph");

# %% [markdown]
# ### Built once or built each time?
#
# Define-then-run built this graph once; define-by-run builds it anew in each step, as PyTorch does. The notes say that
# the former "can be 10x faster". Time a step of 64 images each way, and in PyTorch.

# %% tags=["nbval-ignore-output"]
batch = [images[train[:64]], np.eye(10, dtype=np.float32)[labels[train[:64]]], *parameters]
def define_then_run():
    return run(step, dict(zip(named, batch, strict=True)))
def define_by_run():
    x, y, *p = [Node("constant", value=value) for value in batch]
    return [node.value for node in training_step(x, y, p, 0.5)]

# %% tags=["nbval-ignore-output"]
x, y, *weights = [torch.tensor(value, requires_grad=i > 1) for i, value in enumerate(batch)]
def in_pytorch():
    w1, b1, w2, b2 = weights
    loss = torch.nn.functional.cross_entropy(torch.relu(x @ w1 + b1) @ w2 + b2, y)
    return [w.detach() - 0.5 * g for w, g in zip(weights, torch.autograd.grad(loss, weights))]
torch.set_num_threads(1)  # on matrices this small a second thread would only wait
for trained_by in (define_then_run, define_by_run, in_pytorch):
    print(f"{trained_by.__name__:16} {timing.measure(trained_by)}")

# %% [markdown]
# Ten times it is not: even on arrays this small, building costs no more than running. The gain of a graph that stands
# before it runs is what a compiler may then do to it (lab 08). Define-by-run also pays for what nobody asked for: it
# computed the gradient by the images, which the other run never reached.
#
# **Training is one more graph: loss, gradients and update are one program, and whoever reads its rows can run it.**

# %% [markdown]
# ## Predict, then measure
#
# How many operators must be evaluated for *all* n derivatives of a function of m operators? Central differences: 2·n·m.
# Forward mode: n·m, on dual numbers. Reverse mode: some number of times m. Look at your rules, count the nodes that a
# product and a sine add (with `sum_like`, and with the function itself), and guess the number for sin x₁ · sin x₂ · … ·
# sin xₙ.

# %%
# BEGIN SOLUTION
# A product adds 2 products and 2 sums; a sine adds a cosine, a product and a sum: 3.5 on average.
# With the function itself, 4.5.
times_m = 4.5
# END SOLUTION
ledger.predict("operators: f and its gradient / f", times_m, "times")

# %%
def counts(n):
    xs, point = placeholders(*map(str, range(n))), np.full(n, 0.5)
    f = functools.reduce(Node.__mul__, [x.sin() for x in xs])
    feeds, ways = dict(zip(xs, point, strict=True)), np.eye(n)
    forward = sum(counted_run([f], dict(zip(xs, zip(point, way))), evaluate=dual)[1] for way in ways)
    return counted_run([f], feeds)[1], forward, counted_run([f, *gradients(f, xs)], feeds)[1]

sizes = [1, 2, 5, 10, 20, 50, 100]
m, forward, reverse = np.array([counts(n) for n in sizes]).T

# %%
ledger.counted("operators: f and its gradient / f", reverse[-1] / m[-1], "times")
figures.predicted_and_measured(sizes,
    {"central differences": sizes * m * 2, "forward mode": sizes * m, "reverse mode": times_m * m},
    {"forward mode": forward, "reverse mode": reverse}, dots_are="counted", log="xy", xlabel="inputs n",
    ylabel="operators evaluated", title="All n derivatives of sin x₁ · sin x₂ · … · sin xₙ");

# %% [markdown]
# The notes ask how large the backward graph can be. No larger than a constant times the forward graph: each rule adds a
# fixed number of nodes, each edge one sum and at most one addition. The check allowed 9. Counted in arithmetic instead
# of nodes the constant is between 3 and 5, depending on what counts (Baur and Strassen, 1983); Griewank and Walther
# call it the *cheap gradient principle*.
#
# All this is for one output and many inputs. For k outputs reverse mode takes k runs, and for k far above n forward
# mode wins.

# %% [markdown]
# ## Where it is used
#
# - **PyTorch**: the rules are in `tools/autograd/derivatives.yaml`; `sum_to_size` is your `sum_like`.
# - **JAX**: rules for forward mode only; *transposing* what they give is reverse mode (Radul et al., *You only linearize
#   once*, 2023).
# - **TensorFlow 1**: Switch and Merge, and the gradients of both, in `control_flow_grad.py` (Yu et al., *Dynamic
#   control flow in large-scale machine learning*, 2018).
# - Griewank and Walther, *Evaluating derivatives* (2008). Karpathy's micrograd does this lab with scalars.
#
# *Limits of ours*: nothing in place, no loops, and every value kept to the end (lab 09).
#
# ## Done
#
# What an operator costs this engine besides its arithmetic goes into your ledger.

# %% tags=["nbval-ignore-output"]
tiny = dict.fromkeys(named, np.ones((1, 1), np.float32))
ran = counted_run(step, tiny)[1]
time_s = timing.measure(run, step, tiny).median_s
source = "lab 07, measured: a training step on 1 × 1 arrays"
ledger.constant("overhead of an operator, NumPy engine", time_s / ran, "s", source)
ledger.table()

# %% [markdown]
# Grade your lab with `python -m grading 07`.
#
# **A harder question.** Build forward mode from reverse mode: a graph for the derivative of y along ẋ, with `gradients`
# alone and no rule of `dual`.
#
# <details><summary>Hint, then answer</summary>
#
# The gradient of Σ u·y by x is *linear* in u. What is its derivative by u?
#
# ```python
# u = y.zeros_like()                       # any u will do
# g, = gradients((u * y).sum(), [x])       # g = Jᵀu
# tangent, = gradients((g * dx).sum(), [u])  # the derivative of dx·Jᵀu by u is J dx
# ```
# PyTorch's `torch.autograd.functional.jvp` does exactly that, and calls it the double-backward trick. How many
# operators does it take, against `dual`?
# </details>

