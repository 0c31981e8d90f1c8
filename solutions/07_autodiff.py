# %% [markdown]
# # 07 · Autodiff
#
# **What is a gradient, as a program?**
#
# At the end of this lab you can
#
# - record a program as a graph, and run it;
# - differentiate it forwards and backwards, to any order, and predict the cost;
# - test gradients, and train a network with your own engine.
#
# You need lab 01 and the chain rule; no GPU. About 150 minutes, estimated at two minutes per line of the solution:
#
# | 1.1 | 1.2 | 1.3 | 2.1 | 3.1 | 3.2 | 3.3 | 4.1 | reading |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | 12 | 20 | 12 | 12 | 25 | 20 | 25 | 10 | 15 |
#
# Write your answers in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
import functools
import time

import matplotlib.pyplot as plt
import numpy as np
import torch

from common import figures, graphs, language_model, ledger, samples
from common.checks import agree, clinic, expect
from common.graphs import DEAD, FLAT, LINEAR, evaluate
from common.hardware import timing
from common.lessons.autodiff import widget

figures.use_style()
rng = np.random.default_rng()

# %% tags=["driver"]
# Through these functions our checks hand graphs, as rows, to your functions. You may skip this cell.
def placeholders(*names):
    """A node without a value for each name."""
    return [Node("placeholder", name=name) for name in names]

def wengert_list(outputs):
    """The graph of these nodes as rows, and the numbers of the outputs' rows."""
    return graphs.as_rows(topological_order(outputs), outputs)

def number(value):
    """An array of no dimensions as a number; anything else as it is."""
    return value[()] if isinstance(value, np.ndarray) else value

def node_on_data(op, inputs, value=None, name=None):
    """What a node records: op, name, inputs, value, and whether it reads the very nodes it was given.

    A str among the inputs stands for a placeholder of that name, a tuple for a constant.
    """
    named = {x: Node("placeholder", name=x) for x in inputs if isinstance(x, str)}
    def constant(value):  # what came from the grader is a copy of DEAD
        return Node("constant", value=DEAD if isinstance(value, str) else value)
    given = [named[x] if isinstance(x, str) else constant(*x) if isinstance(x, tuple) else x
             for x in inputs]
    node = Node(op, *given, value=value, name=name)
    same = all(x is y for x, y in zip(node.inputs, given) if isinstance(y, Node))
    came = [(x.op, x.name, number(x.value)) if isinstance(x, Node) else x for x in node.inputs]
    return node.op, node.name, came, number(node.value), same

def topological_order_on_rows(rows, outputs):
    """topological_order() of the graph of these rows, as numbers of rows."""
    return graphs.order_of(rows, outputs, Node, topological_order)

def run_on_rows(rows, outputs, feeds):
    """run() on the graph of these rows, once for each of the feeds: lists of arrays."""
    return graphs.values_of(rows, outputs, feeds, Node, run)

def jvp_on_rows(rows, values, tangents):
    """jvp() of the last row by the placeholders."""
    made = graphs.as_nodes(rows, Node)
    return jvp(made[-1], [x for x in made if x.op == "placeholder"], values, tangents)

def vjp_on_rows(op, count):
    """vjp(node, g) of op(x0, x1, ...) as rows, and the row of each adjoint (or None)."""
    inputs = placeholders(*(f"x{i}" for i in range(count)))
    adjoints = vjp(Node(op, *inputs), *placeholders("g"))
    came = len(adjoints) if isinstance(adjoints, (tuple, list)) else f"a {type(adjoints).__name__}"
    assert came == count, f"vjp of {op} gave {came}, want a tuple of {count}: adjoints, or None"
    rows, outputs = wengert_list([adjoint for adjoint in adjoints if adjoint is not None])
    return rows, [outputs.pop(0) if adjoint is not None else None for adjoint in adjoints]

def gradients_on_rows(rows, inputs, order=1):
    """The last row's value and its derivatives by these rows, as rows, and the outputs' rows.

    order 2 differentiates the first of the first derivatives, and so on.
    """
    made = graphs.walked(rows, Node, "gradients, or the topological_order that it calls,")
    gradients(made[-1], [made[i] for i in reversed(inputs)])  # an earlier call leaves nothing behind
    found = [made[-1]]
    for _ in range(order):
        found = gradients(found[0], [made[i] for i in inputs])
        are_nodes = found is not None and all(isinstance(x, Node) for x in found)
        assert are_nodes, f"gradients gave {found}, want a list of nodes"
    return wengert_list([made[-1], *found])

def test_gradient_on_source(source):
    """What test_gradient says of a program: "" if it accepts it."""
    return clinic.verdict(test_gradient, source)

def picture(outputs, feeds, names, title):
    """The graph of these nodes, drawn with its values."""
    rows, numbers = wengert_list(outputs)
    values = run(topological_order(outputs), feeds)
    return graphs.draw(rows, numbers, values=values, names=dict(zip(numbers, names)), title=title)

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
# cos(x²) · 2x. Any order gives the same number. In a long program of many inputs the order decides the cost: part 2
# goes from the inside out, part 3 from the outside in.
# </details>

# %% [markdown]
# ## A thousand derivatives for the price of a few
#
# Here is a function of n inputs. A derivative says how much it changes when one input moves a little. The plain way to n
# derivatives is to move each input in turn and call the function again: n + 1 calls. PyTorch also has `backward()`.
# Guess: for a thousand inputs, how many calls' time does it take?

# %%
def function(x):
    for _ in range(10):
        x = torch.sin(1.1 * x)
    return x.sum()

def differences(x, step=1e-3):
    return (torch.stack([function(x + step * way) for way in torch.eye(len(x))]) - function(x)) / step

def backward(x):
    return torch.autograd.grad(function(x.requires_grad_()), x)

# %% tags=["nbval-ignore-output"]
sizes, programs = np.array([1, 10, 100, 1_000]), [differences, backward, function]
times = np.array([[timing.measure(program, torch.rand(n), min_time_s=0.02).median_s for n in sizes]
                  for program in programs])
ax = figures.predicted_and_measured(sizes, {"n + 1 calls": (sizes + 1) * times[2]},
    {"n + 1 calls": times[0], "backward()": times[1], "one call": times[2]},
    xlabel="inputs n", ylabel="time", title="All n derivatives of one function", log="xy", yunit="s")
moved, backwards = times[:2, -1] / times[2, -1]  # calls of the function, for the most inputs
figures.describe(ax, f"1,000 inputs: moving each takes {moved:,.0f} calls, backward() {backwards:.1f}.")

# %% [markdown]
# On an H200's host, dots lie a tenth to a third above the line: moving inputs and stacking results costs the
# rest. `backward()` takes about four calls, at n = 1 and at 1,000, and is exact but for rounding. It runs *another
# program*, made from yours. You will make such programs, so your program must become data.
#
# ## Part 1 · A graph first, its numbers later
#
# A **dataflow graph** has a node for each operator and an edge for each value that it hands to the next. As data it is a
# list of rows, *operator and inputs*, where an input is the number of an earlier row: a *tape*.

# %%
rows = [("placeholder", "x"), ("placeholder", "y"),
        ("multiply", (0, 1)), ("sin", (0,)), ("add", (2, 3))]
ax = graphs.draw(rows, [4], names={4: "f"}, title="f = x·y + sin x")
figures.describe(ax, "x and y feed a product, x also feeds a sine, and both feed the sum f.")

# %% [markdown]
# A *placeholder* is an input that has no value yet. Nothing has been computed: there is only the plan.
#
# ### Exercise 1.1 · Node
#
# Who writes the rows? Your program does, while it runs. `graphs.Arithmetic` makes `x * y` call `Node("multiply", x, y)`
# and `x.sin()` call `Node("sin", x)`. You write what a node then *records*.
#
# On placeholders, nothing is computed: the graph is built first and run later. That is **define-then-run** (TensorFlow
# 1, `jax.jit`). If all inputs of a new node *have* values, compute its value at once. That is **define-by-run**
# (PyTorch): the same operators and the same graph, but the numbers are there already.

# %% tags=["hole"]
class Node(graphs.Arithmetic):
    """One value of a dataflow graph: the operator that makes it and the nodes that it reads."""

    def __init__(self, op, *inputs, value=None, name=None):
        """Sets self.op, self.name, self.value, and self.inputs: a tuple of Nodes.

        A number or an array among the inputs becomes Node("constant", value=...). Without inputs,
        the node keeps the value that it is given. With inputs, its value is evaluate(op, *values of
        the inputs) if all of them have one, else None. About six lines.
        """
        # BEGIN SOLUTION
        self.op, self.name, self.value = op, name, value
        self.inputs = tuple(x if isinstance(x, Node) else Node("constant", value=x) for x in inputs)
        values = [x.value for x in self.inputs]
        if inputs and all(x is not None for x in values):
            self.value = evaluate(op, *values)
        # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.autodiff import expected as oracle

for case in oracle.node_cases(rng):
    agree(node_on_data(*case.args), case.want, case.text, rtol=1e-12, mistakes=case.mistakes)
print("Node records operators and inputs, with numbers and without")

# %% [markdown]
# <details><summary>Hint</summary>
#
# None marks a missing value. What if an input's value is 0?
# </details>
#
# ### Exercise 1.2 · topological_order
#
# To run a graph, its nodes must stand in an order in which nothing is read before it is there. A node with two users is
# met twice on the way down. Python stops at about 1,000 nested calls, and networks that read texts make longer chains:
# keep your own stack.
#
# <details><summary>Hint 1</summary>
#
# Does a node count as *seen* when you put it on the stack, or when you take it off?
# </details>
# <details><summary>Hint 2</summary>
#
# Put pairs on the stack: a node, and whether its inputs have been dealt with. When a node comes up for the first time,
# put it back, marked, with its inputs above it.
# </details>

# %% tags=["hole"]
def topological_order(outputs):
    """The nodes that these outputs need, outputs included: a list, each node once and after its inputs.

    outputs: list of Nodes, which stays as it is; a node's inputs are node.inputs. Chains of 5,000
    nodes must pass, without sys.setrecursionlimit. The work must grow with the number of nodes, not
    with its square, nor with the number of paths: keep what you have seen in a set. About ten lines.
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
from common.lessons.autodiff import expected as oracle

for rows, outputs in oracle.order_cases(rng):
    order, needed = topological_order_on_rows(rows, outputs), graphs.ancestors(rows, outputs)
    draw = functools.partial(oracle.draw_order, rows, outputs, order)
    gave = f"topological_order of {graphs.formula(rows, outputs)} gave the rows {order!r:.150}"
    expect(len(order) == len(set(order)), f"{gave}: it lists a node twice", draw=draw)
    expect(set(order) == needed, f"{gave}, want what the outputs need, in each call", draw=draw)
    early = oracle.too_early(rows, order)
    expect(not early, f"{gave}: row {early[:1]} stands before its input, row {early[1:]}", draw=draw)
oracle.own_stack(topological_order)
print("topological_order: 40 random graphs, a chain of 5,000 nodes, and 60 doublings")

# %% [markdown]
# ### Exercise 1.3 · run
#
# Run a graph: walk it in order and keep each node's value in a dictionary of this run. The graph itself stays a plan,
# free to be run on other numbers. `evaluate` is an argument because part 2 runs the same graph on something other than
# numbers.
#
# <details><summary>Hint</summary>
#
# Which nodes have a value before any operator runs?
# </details>

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

# %% tags=["check"] points=2 limit_s=5
from common.lessons.autodiff import expected as oracle

for case in oracle.run_cases(rng):
    rows, outputs, feeds = case.args
    got = run_on_rows(rows, outputs, feeds)
    agree(got, case.want, case.text, rtol=1e-9, mistakes=case.mistakes,
          draw=functools.partial(oracle.draw_values, rows, outputs, got, case.want))
print("run agrees with PyTorch and evaluates each operator once")

# %%
x, y = placeholders("x", "y")
f = x * y + x.sin()  # built once, run twice
print("define-then-run:", f.value, *run([f], {x: 2.0, y: 3.0}), *run([f], {x: 0.0, y: 3.0}))
print("define-by-run:  ", (Node("constant", value=2.0) * 3.0 + Node("constant", value=2.0).sin()).value)
print("our tape:       ", *wengert_list([f])[0])
a, b = (torch.tensor(value, requires_grad=True) for value in (2.0, 3.0))
print("PyTorch's tape: ", *graphs.torch_tape(a * b + a.sin(), {"x": a, "y": b}))

# %% [markdown]
# PyTorch records as you do, in another order.
#
# ### What an `if` does to a graph
#
# Take `f = x² if x > 0, else sin x`. Define-by-run has the number, so Python's `if` works, and the graph holds only the
# branch that was taken. Define-then-run has no number, and a node without a value refuses `if`.
#
# A graph that chooses while it *runs* needs operators for it. **Switch** hands its input to one of two sides. The other
# side is `DEAD`, with everything computed from it. **Merge** joins the sides. (TensorFlow's Switch is one operator with
# two outputs. Ours have one output, so Switch is two operators, and Merge is told p.)

# %%
def branching(x):
    p = x > 0.0
    taken, other = p.switch_true(x), p.switch_false(x)
    return p.merge(taken * taken, other.sin())

x, = placeholders("x")
for value in (3.0, -3.0):
    (got,), count = graphs.counted_run(run, [branching(x)], {x: value})
    print(f"x = {value}: {got:.4f}, {count} of 6 operators evaluated")

# %% [markdown]
# Someone writes: "compiled graphs cannot work with conditionals." True? No: they can contain both branches, as here. Or a
# compiler notes the condition as a *guard*, and compiles again when the guard fails.
#
# **A graph is a program that another program can read; whether its numbers come first or last is a matter of
# convenience.**
#
# ## Part 2 · Forwards: carry a derivative along
#
# Write every number as a pair, its value and how fast it moves: a + ȧε, with ε² = 0. These are **dual numbers**, and
# ȧ is the **tangent** of a. Then
#
# (a + ȧε)(b + ḃε) = ab + (ȧb + aḃ)ε
#
# The product rule was not put in; it came out.

# %% [markdown]
# ### Exercise 2.1 · dual
#
# Apply one operator to dual numbers. A *linear* operator moves as its inputs do: the tangent of a sum is the sum of the
# tangents. The scaffold has every operator of the engine but six. For a matrix product the order matters. Write the
# rules yourself: PyTorch's derivatives are not allowed.
#
# Forward mode is then your `run` with your `dual`: see `jvp` below the rules. The tangents that go in choose the
# derivative: 1 at one input and 0 at the others gives the derivative by that input.
#
# <details><summary>Hint 1</summary>
#
# Which of the six derivatives can be written with `value`, which you have already?
# </details>
# <details><summary>Hint 2</summary>
#
# exp, tanh and the quotient. The product rule serves multiply and matmul, with the factors in their order.
# </details>

# %% tags=["hole"]
def dual(op, *pairs):
    """(value, tangent) of an operator on such pairs. A plain number is a constant: its tangent is 0.

    Missing are multiply, divide, exp, log, tanh and matmul. Values and tangents that come in stay as
    they are. About six lines.
    """
    pairs = [pair if isinstance(pair, tuple) else (pair, np.zeros_like(pair)) for pair in pairs]
    values, tangents = zip(*pairs)
    value = evaluate(op, *values)
    if value is DEAD:
        return DEAD
    if op in LINEAR:
        return value, evaluate(op, *tangents)
    if op in FLAT:  # as a step: its derivative is 0
        return value, np.zeros_like(value)
    (a, da), (b, db) = pairs[0], pairs[-1]
    rules = {
        "sin": lambda: np.cos(a) * da,
        "cos": lambda: -np.sin(a) * da,
        "relu": lambda: (a > 0) * da,
        "row_max": lambda: np.take_along_axis(da, a.argmax(-1, keepdims=True), -1),
        "sum_like": lambda: evaluate(op, da, b),
        "broadcast_like": lambda: evaluate(op, da, b),
        "switch_true": lambda: db,
        "switch_false": lambda: db,
        "merge": lambda: tangents[1] if a else tangents[2],
    }
    # BEGIN SOLUTION
    rules |= {
        "multiply": lambda: da * b + a * db,
        "divide": lambda: (da - value * db) / b,
        "exp": lambda: value * da,
        "log": lambda: da / a,
        "tanh": lambda: (1 - value**2) * da,
        "matmul": lambda: da @ b + a @ db,
    }
    # END SOLUTION
    if op not in rules:
        raise ValueError(f"dual has no rule for {op!r}")
    return value, rules[op]()

def jvp(output, inputs, values, tangents):
    """(value, tangent) of the output, where each input moves as fast as its tangent says."""
    pairs = zip(values, tangents, strict=True)
    return run([output], dict(zip(inputs, pairs, strict=True)), evaluate=dual)[0]

# %% tags=["check"] points=2
from common.checks.grader_link import in_place
from common.lessons.autodiff import expected as oracle

for case in [*oracle.dual_cases(rng), *oracle.constant_cases()]:
    got = [in_place(dual, *case.args)(*case.args) for _ in range(2)][1]
    agree(got, case.want, f"{case.text}, twice,", rtol=1e-9, atol=1e-12, mistakes=case.mistakes,
          draw=functools.partial(oracle.draw_last, got, case))
for case in oracle.engine_graphs(rng):
    agree(jvp_on_rows(*case.args), case.want, case.text, rtol=1e-7, atol=1e-9)
oracle.by_own_rules("dual", dual)
print("dual and jvp agree with PyTorch, operator by operator and on whole graphs")

# %%
x, y = placeholders("x", "y")
f = x * y + x.sin()
print("df/dx:", jvp(f, [x, y], [2.0, 3.0], [1.0, 0.0])[1], "and by hand", 3 + np.cos(2.0))
print("df/dy:", jvp(f, [x, y], [2.0, 3.0], [0.0, 1.0])[1], "and by hand", 2.0)

# %% [markdown]
# **Forward mode is a run of the same graph on other numbers: exact, and one run per input.**
#
# ## Part 3 · Backwards: a graph that computes the gradient
#
# We want the derivatives by all inputs from one run. So ask the other way round: not "if x moves, how fast does everything
# move?" but "if v moves, how fast does the *output* move?" The answer, an array of v's shape, is v's **adjoint**,
# v̄ = ∂f/∂v. If v is only used in w = sin v, then v̄ = w̄ · cos v: adjoints travel from the output to the inputs.

# %% [markdown]
# ### Exercise 3.1 · vjp
#
# The rule by which an operator turns its own adjoint into its inputs' is its **vjp** (vector-Jacobian product). Ours
# *adds nodes to the graph*. Use a node's inputs and the node itself, never their values: what is made of nodes can be
# drawn, run on other inputs, and differentiated again.
#
# `sum` hands each element the same adjoint, and `mean` hands each of n elements an n-th of it. A Switch sends the adjoint back if its side was taken, else zeros of its input's shape.
# A Merge sends it only to the side that was taken.

# %% tags=["hole"]
def vjp(node, g):
    """The adjoint of each input of node, as new nodes, where g is node's own: a tuple.

    None stands for an input that has none. An adjoint may be wider than an input that was broadcast:
    gradients() will sum it. Missing are multiply, divide, log, tanh, relu (use
    x.step(), which is 0 at 0), matmul, transpose, sum, row_sum, mean (use x.size()), switch_true(p, x),
    switch_false(p, x) and merge(p, a, b). About thirteen lines, one per rule.
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
        "row_max": lambda: (g * (1.0 - (node - x).step()),),
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
    # END SOLUTION
    if node.op not in rules:
        raise ValueError(f"vjp has no rule for {node.op!r}")
    return rules[node.op]()

# %% tags=["check"] points=2
from common.lessons.autodiff import expected as oracle

for case in oracle.rule_cases(rng):
    op, inputs, g = case.args
    got = graphs.adjoints(*vjp_on_rows(op, len(inputs)), inputs, g)
    agree(got, case.want, case.text, rtol=1e-9, atol=1e-12, mistakes=case.mistakes,
          draw=functools.partial(oracle.draw_last, got, case))
print("vjp agrees with PyTorch on 5 element-wise operators, also at 0")

# %% tags=["check"] points=2
from common.lessons.autodiff import expected as oracle

for case in [*oracle.matrix_cases(rng), *oracle.switch_cases(rng)]:
    op, inputs, g = case.args
    got = graphs.adjoints(*vjp_on_rows(op, len(inputs)), inputs, g)
    agree(got, case.want, case.text, rtol=1e-9, atol=1e-12, mistakes=case.mistakes,
          draw=functools.partial(oracle.draw_last, got, case))
print("vjp agrees with PyTorch on 5 operators that mix elements; Switch merges, and Merge switches")

# %% tags=["check"]
from common.lessons.autodiff import expected as oracle

for case in oracle.second_cases(rng):
    op, inputs, g = case.args
    theirs = sum(v.sin().sum() for v in graphs.adjoints(*vjp_on_rows(op, len(inputs)), inputs, g))
    got = torch.autograd.grad(theirs + 0 * g.sum(), [g, *inputs], materialize_grads=True)
    agree(list(got), case.want, case.text, rtol=1e-7, atol=1e-9)
print("vjp gives graphs whose derivatives agree with PyTorch")

# %% [markdown]
# <details><summary>Hint</summary>
#
# For `a @ b`, shapes leave only one way to multiply.
# </details>
#
# ### Exercise 3.2 · gradients
#
# Now the walk. A node hands its adjoint on when it is complete. So in which order do you take the nodes? Start with the
# output's adjoint: ones, for the derivatives of an array are those of the sum of its elements. Where a value was used
# twice, *add* what comes back. And where ten numbers were lent to 64 rows (lab 01's stride 0), sum what comes back:
# `g.sum_like(x)` sums g down to x's shape.
#
# The check counts operators, and allows 12 times the function's. For a product of 50 inputs, the solution turns 49 into 246.

# %% tags=["hole"]
def gradients(output, inputs):
    """The derivatives of the sum of output by each of the inputs, as new nodes of the graph: a list.

    inputs: any nodes of the graph, and others: one that the output does not depend on gets
    x.zeros_like(). vjp gives None for an input without an adjoint. Call it once per operator, and
    give each adjoint its input's shape before you add it. About ten lines.
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

# %% tags=["check"] points=3
from common.lessons.autodiff import expected as oracle

for case in [*oracle.gradient_cases(rng), *oracle.any_node_cases(rng)]:
    rows, inputs, feeds = case.args
    graph, outputs = gradients_on_rows(rows, inputs)
    got = graphs.evaluated(graph, outputs[1:], feeds)
    agree(got, case.want, case.text, rtol=1e-9, mistakes=case.mistakes,
          draw=functools.partial(oracle.draw_gradients, graph, outputs, feeds, case.text))
print("gradients: fan-out adds, the order holds, broadcasts are summed, any node may be asked for")

# %% tags=["check"] points=2
from common.lessons.autodiff import expected as oracle

for case in oracle.large_cases():
    rows, inputs, feeds = case.args
    (graph, outputs), before = gradients_on_rows(rows, inputs), graphs.operators(rows)
    after, too_many = graphs.operators(graph), "not once for each path or each input."
    expect(after <= 12 * before, f"{case.text} took {after} operators of {before}: {too_many}")
    agree(graphs.evaluated(graph, outputs[1:], feeds), case.want, case.text, rtol=1e-9)
print("f and its gradient take at most 12 times the operators of f, for 1 input and for 50")

# %% tags=["check"] points=2
from common.lessons.autodiff import expected as oracle

for case in oracle.higher_cases(rng):
    rows, inputs, feeds, order = case.args
    graph, outputs = gradients_on_rows(rows, inputs, order)
    got = graphs.evaluated(graph, outputs[1:], feeds)
    agree(got, case.want, case.text, rtol=1e-7, atol=1e-9, mistakes=case.mistakes,
          draw=functools.partial(oracle.draw_gradients, graph, outputs, feeds, case.text))
print("gradients of gradients, and of an if on either side, agree with PyTorch")

# %% tags=["check", "held-out"]
from common.lessons.autodiff import expected as oracle

for case in oracle.random_cases(rng):
    rows, inputs, feeds = case.args
    graph, outputs = gradients_on_rows(rows, inputs)
    got = graphs.evaluated(graph, outputs[1:], feeds)
    agree(got, case.want, case.text, rtol=1e-7, atol=1e-9)
print("gradients agrees with PyTorch on 20 random graphs")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# When is a node's adjoint complete? In which order do you meet all users of a node before the node?
# </details>
# <details><summary>Hint 2</summary>
#
# Walk the topological order backwards, with the adjoints so far in a dict. Give each its input's shape, then store or
# add it.
# </details>
#
# Look at what you made. Blue is the function, orange is what `gradients` added. A small Σ is a `sum_like`. Edges that
# only carry a shape are left out.

# %%
x, y = placeholders("x", "y")
f = x * y + x.sin()
ax = picture([f, *gradients(f, [x, y])], {x: 2.0, y: 3.0},
             ["f", "∂f/∂x", "∂f/∂y"], "f = x·y + sin x and its gradient at (2, 3)")
figures.describe(ax, "Above, left to right, the graph of f; below, right to left, its gradient.")

# %% [markdown]
# The backward graph is the forward graph turned round. The edges into + become copies of one adjoint. And x, which fans
# out to two operators, becomes a sum. The grey edges carry *values of the forward graph*: backward needs last what
# forward made first, so all of them must be kept. They are what fills a GPU's memory in training.
#
# **Your turn, with numbers.** Step backward. Then find x and y, neither of them 0, at which f does not change when x
# moves a little.

# %% tags=["nbval-ignore-output"]
widget.backward_walk()

# %% [markdown]
# ### A gradient that is a graph can be differentiated
#
# `gradients` returned nodes like any others, so call it on them. (PyTorch walks its tape and computes numbers, which have
# no history, unless you ask for nodes: `create_graph=True`.) And what is the gradient of Switch? You wrote it: a Merge.
# The side that ran sends back its adjoint, the other side sends zeros. (*true* and *false* are the sides of Switch. What
# did not run is faded.)

# %%
x = Node("constant", value=np.linspace(-3, 3, 200))
y, (_, ax) = x.tanh(), plt.subplots()
for name, line in {"f = tanh": "-", "f′": "--", "f″": "-.", "f‴": ":"}.items():
    ax.plot(x.value, y.value, line, label=name)
    y, = gradients(y, [x])
ax.set(xlabel="x", title="tanh, and gradients of gradients of it")
ax.legend()
figures.describe(ax, "tanh rises from -1 to 1; f′ is a hill, f″ a wave, f‴ a valley between two hills.")

# %%
x, = placeholders("x")
f = branching(x)
title = "x² if x > 0 else sin x, and its gradient, at x = 3"
ax = picture([f, *gradients(f, [x])], {x: 3.0}, ["f", "df/dx"], title)
figures.describe(ax, "At x = 3 the branch of x² and its adjoint ran; the branch of sin x is faded.")

# %% [markdown]
# ### A loss that is right and a gradient that is not
#
# A training run added the length of a vector, √(Σx²), to its loss. After days, all weights were NaN, though the loss was
# fine. The vector had become 0. Find the place in the graph below (red: infinite or NaN), then unfold.
#
# <details><summary>Diagnosis</summary>
#
# Read the backward graph from the right. Up to ÷ the adjoint is 0, since exp(−∞) = 0. There it is divided by Σx² = 0:
# NaN. `where(Σx² > 0, length, 0)` does not help: backwards it sends 0 into both sides, and 0/0 is NaN again. That side
# must not run: put it behind a Switch.
# </details>

# %%
def length(x):
    return (0.5 * (x * x).sum().log()).exp()

x, = placeholders("x")
f = length(x)
with np.errstate(all="ignore"):
    title = "The length of 0, and its gradient"
    ax = picture([f, *gradients(f, [x])], {x: 0.0}, ["length", "gradient"], title)
figures.describe(ax, "The length's graph above, its gradient below; red: infinite or NaN.")

# %% [markdown]
# ### Exercise 3.3 · test_gradient
#
# PyTorch judged your rules. Now you are the judge, of gradients of a *residual block*, as in a language model but with one
# matrix: y = x + tanh(x @ w + b). x goes two ways, and b is lent to all rows. We have 6 right programs and 16 wrong ones.
# Accept all right ones, and refuse many wrong ones: par is 13.
#
# A judge needs something to compare with: central differences, (f(v + ε) − f(v − ε))/2ε with ε = 10⁻⁶, are right to
# about nine digits.

# %% tags=["hole"]
def block(x, w, b):
    """x + tanh(x @ w + b): x (n, k), w (k, k), b (k,)."""
    return x + np.tanh(x @ w + b)

def test_gradient(candidate):
    """Raises AssertionError if candidate(x, w, b, g) is wrong. It returns nothing.

    A right candidate gives a tuple: the adjoints of x, w and b, with their shapes, where g (n, k) is
    the adjoint of y = block(x, w, b). They are exact but for rounding, for float64 arrays of any
    finite values, n and k of at least 1, at each call. Arguments stay as they are. About fifteen lines.
    """
    # BEGIN SOLUTION
    draw = np.random.default_rng(0)
    for n, k, scale in [(1, 1, 1), (4, 3, 1), (4, 3, 0), (1, 3, 1), (6, 2, 1e3)]:
        arguments = [draw.normal(size=shape) for shape in ((n, k), (k, k), k, (n, k))]
        arguments[0] *= scale
        arguments[2] *= scale
        before = [a.copy() for a in arguments]
        adjoints = candidate(*arguments)
        assert all(np.array_equal(a, c) for a, c in zip(arguments, before)), "it changed an argument"
        *point, g = before
        for i, (values, adjoint) in enumerate(zip(point, adjoints)):
            assert np.shape(adjoint) == values.shape, f"adjoint {i} has shape {np.shape(adjoint)}"
            for where in np.ndindex(values.shape):
                ends = []
                for step in (1e-6, -1e-6):
                    moved = [a.copy() for a in point]
                    moved[i][where] += step
                    ends.append((g * block(*moved)).sum())
                slope = (ends[0] - ends[1]) / 2e-6
                close = abs(adjoint[where] - slope) < 1e-5 * (1 + abs(slope))
                assert close, f"adjoint {i} is {adjoint[where]} at {where}, not {slope}"
    # END SOLUTION

# %% tags=["check"] points=3
print(clinic.score("gradient", test_gradient_on_source, par=13, rng=rng))

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which shapes, values and g would a wrong program survive?
# </details>
#
# **Reverse mode turns a graph round: adjoints are added where values fanned out, and summed where they were broadcast.
# The result is a graph again.**
#
# ## Part 4 · Read digits
#
# 1,797 handwritten digits of 8×8 pixels, from 1998. We keep 360 apart; the others train a network of 64 inputs, 64
# hidden units and 10 outputs, with nothing but what you wrote. The outputs, one per digit, are called **logits**: the
# largest is the digit that the network reads.

# %% tags=["driver"]
activation = "relu"

def network(images, parameters):
    """Logits (B, 10) of B images (B, 64), as a node."""
    w1, b1, w2, b2 = parameters
    return getattr(images @ w1 + b1, activation)() @ w2 + b2

def training_step_on_rows(used):
    """training_step() of a network with this activation, as rows, and the outputs' rows."""
    global activation
    images, labels, *parameters, rate = placeholders("x", "labels", "w1", "b1", "w2", "b2", "rate")
    activation, before = used, activation
    try:
        return wengert_list(training_step(images, labels, parameters, rate))
    finally:
        activation = before

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

# %% [markdown]
# ### Exercise 4.1 · training_step
#
# One step of gradient descent *as one graph*: the loss, its gradients, and the new parameters, p − rate · ∂loss/∂p. The
# loss is the cross-entropy log Σⱼ exp(zⱼ) − z_label, averaged over the images, where z are an image's logits. exp
# overflows float32 above 88.7, so first subtract each row's maximum from z: `z - z.row_max().detach()`. The loss stays
# the same. Its derivative does too, so nothing has to flow back through the maximum, and `detach` stops it.
#
# <details><summary>Hint</summary>
#
# With labels as rows of 0 and 1, which sum gives z_label?
# </details>

# %% tags=["hole"]
def cross_entropy(z, labels):
    """The mean over all rows of log(sum of exp(z)) - z at the label, as a node.

    z (n, classes), any finite numbers; labels (n, classes): 1 at the right class, else 0. About three
    lines.
    """
    # BEGIN SOLUTION
    z = z - z.row_max().detach()
    return (z.exp().row_sum().log() - (labels * z).row_sum()).mean()
    # END SOLUTION

def training_step(images, labels, parameters, rate):
    """[loss, new w1, new b1, new w2, new b2] as nodes: one step of gradient descent.

    images (B, 64); labels (B, 10); parameters [w1, b1, w2, b2]. The logits are network(images,
    parameters), whatever network() is, so the derivatives come from gradients(). About three lines.
    """
    # BEGIN SOLUTION
    loss = cross_entropy(network(images, parameters), labels)
    return [loss] + [p - rate * g for p, g in zip(parameters, gradients(loss, parameters))]
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.autodiff import expected as oracle

for case in oracle.training_cases(rng):
    used, feeds = case.args
    rows, outputs = training_step_on_rows(used)
    got = graphs.evaluated(rows, outputs, feeds)
    agree(got, case.want, case.text, rtol=1e-6, atol=1e-9, mistakes=case.mistakes,
          draw=functools.partial(oracle.draw_gradients, rows, outputs, feeds, case.text))
print("training_step agrees with PyTorch, for two networks and for logits of 1,000")

# %% tags=["check"] points=2
rows, outputs = training_step_on_rows("relu")
for _ in range(2):  # one split in a few hundred is unlucky
    right = oracle.digits_read(rows, outputs, rng)  # trains here: your steps, our loop
    if right >= 342:
        break
expect(right >= 342, f"{right} of 360 held-out digits are read right, want 342. Does the loss fall?")
print("at least 95 % of 360 held-out digits are read right")

# %% tags=["nbval-ignore-output"]
images, labels = samples.digits()
images = images.reshape(-1, 64) / 16
train, held_out = np.split(np.random.default_rng(7).permutation(len(images)), [-360])
start_s = time.perf_counter()
parameters, losses = fit(images[train], labels[train])
answers = read(parameters, images[held_out])
print(f"{(answers == labels[held_out]).mean():.1%} of {len(held_out)} held-out digits are read right, "
      f"after {len(losses):,} steps in {time.perf_counter() - start_s:.2f} s")

# %% tags=["nbval-ignore-output"]
_, (left, *axes) = plt.subplots(1, 9, figsize=(7.2, 1.7), width_ratios=[4] + [1] * 8)
left.semilogy(losses, linewidth=0.8)
left.set(xlabel="step", title="loss")
for ax, i in zip(axes, np.flatnonzero(answers != labels[held_out])):
    ax.imshow(images[held_out[i]].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{labels[held_out[i]]}, read\nas {answers[i]}", size=8, weight="normal", loc="center")
    ax.axis("off")
figures.describe(left, "The loss falls by two powers of ten; beside it, digits that are read wrong.")

# %%
named = placeholders("x", "labels", "w1", "b1", "w2", "b2")
step = training_step(named[0], named[1], named[2:], Node("constant", value=0.5))
rows, outputs = wengert_list(step)
names = dict(zip(outputs, ["loss", "new w1", "new b1", "new w2", "new b2"], strict=True))
ax = graphs.draw(rows, outputs, names=names, title="All that ran, 1,500 times: one step, as one graph")
figures.describe(ax, "The network and its loss above; below, the gradients and the new parameters.")

# %% [markdown]
# ### The same functions on the language model
#
# The course's language model ends in a matrix of 128 × 128, which turns the features of a character into the logits of
# the next one. Here your engine computes its loss on 128 characters of the novel, and the gradient by the logits.

# %%
text, w = language_model.tokens(100_000, 129), language_model.weights()["scores"]
h, one_hot = language_model.activations(text[:-1])["normed"], np.eye(128, dtype=np.float32)[text[1:]]
w, h = Node("constant", value=w), Node("constant", value=h)
z = h @ w.transpose()
loss = cross_entropy(z, one_hot)
by_z, = gradients(loss, [z])
known = (torch.softmax(torch.tensor(z.value), 1).numpy() - one_hot) / 128
print(f"loss {loss.value:.3f}; by z: (softmax - labels)/128 within {abs(by_z.value - known).max():.0e}")

# %% [markdown]
# The gradient of log Σ exp is the softmax. You did not put it in: it came out of your rules for log, Σ and exp.
#
# **Training is one more graph: loss, gradients and update are one program, and whoever reads its rows can run it.**

# %% [markdown]
# ## Predict, then measure
#
# How many NumPy operations do *all* n derivatives of sin x₁ · sin x₂ · … · sin xₙ take? The function takes m of them,
# about half products and half sines. Central differences take 2·n·m. Look at your rules: how many operations does
# `dual` spend on a product, and on a sine, their values included? That gives forward mode, c·n·m. And how many operations
# does reverse mode add per product and per sine? That gives reverse mode, d·m, function included. (A `sum_like` that has
# nothing to sum does no operation.)

# %%
# BEGIN SOLUTION
# Dual: a product takes 3 products and a sum, a sine takes a sine, a cosine and a product.
forward_per_operation = 3.5
# Reverse: a product adds 2 products, a sine adds a cosine and a product, and there is the function.
reverse_per_operation = 3
# END SOLUTION
ledger.guess("operations: f and its gradient / f", reverse_per_operation, "times")

# %%
def counts(n):
    xs, point, count = placeholders(*map(str, range(n))), [graphs.counted(0.5)] * n, graphs.operations
    f, feeds = functools.reduce(Node.__mul__, [x.sin() for x in xs]), dict(zip(xs, point))
    central = sum(count(run, [f], feeds) for _ in range(2 * n))
    forward = sum(count(jvp, f, xs, point, way) for way in np.eye(n))
    return count(run, [f], feeds), central, forward, count(run, [f, *gradients(f, xs)], feeds)

sizes = np.array([1, 2, 5, 10, 20, 50])
m, central, forward, reverse = np.array([counts(n) for n in sizes]).T

# %%
ledger.counted("operations: f and its gradient / f", reverse[-1] / m[-1], "times")
ax = figures.predicted_and_measured(sizes,
    {"central differences": 2 * sizes * m, "forward mode": forward_per_operation * sizes * m,
     "reverse mode": reverse_per_operation * m},
    {"central differences": central, "forward mode": forward, "reverse mode": reverse},
    dots_are="counted", log="xy", xlabel="inputs n", ylabel="NumPy operations",
    title="All n derivatives of sin x₁ · sin x₂ · … · sin xₙ")
figures.describe(ax, "Central differences and forward mode grow with n squared, reverse mode with n.")

# %% [markdown]
# <details><summary>What you should see, and why</summary>
#
# c is 3.5: a dual product takes 4 operations, a dual sine 3. So forward mode takes *more* operations than differences,
# but is exact. Its line is 17 % too high at n = 1 (no product; reverse's dot hides it), and 0.1 % at 50. d is 3,
# and hits every dot. Reverse wins from n = 2.
#
# The clock disagrees (H200's host): c is 2.3 to 2.8, d 3.6 to 4.5. Python's bookkeeping costs more than the
# arithmetic. A dual run walks the same nodes: c is smaller. Reverse evaluates 446 nodes instead of 99; 148
# are uncounted `sum_like`s.
# </details>

# %% tags=["nbval-ignore-output"]
xs, point, way = placeholders(*map(str, range(50))), np.full(50, 0.5), np.eye(50)[0]
f = functools.reduce(Node.__mul__, [x.sin() for x in xs])
both, feeds = [f, *gradients(f, xs)], dict(zip(xs, point, strict=True))
call_s = timing.measure(run, [f], feeds).median_s
forward_s = timing.measure(jvp, f, xs, point, way).median_s
reverse_s = timing.measure(run, both, feeds).median_s
print(f"forward, per input: {forward_s / call_s:.1f} calls of f")
print(f"reverse, for all 50 inputs: {reverse_s / call_s:.1f} calls of f")

# %% [markdown]
# Each rule adds a fixed number of nodes, each edge one sum and at most one addition. So backward costs at most a constant
# times forward: the *cheap gradient principle* (Baur and Strassen, 1983). For k outputs it takes k runs.
#
# **All derivatives of one number cost a few times the number, however many inputs there are.**
#
# ## Where it is used
#
# - **PyTorch**: the rules are in `tools/autograd/derivatives.yaml`; `sum_to_size` is our `sum_like`.
# - **JAX** has forward rules only. It *transposes* what they give to get reverse mode.
#
# *Limits of ours*: nothing in place, no operator for loops, and every value kept to the end.

# %% [markdown]
# ## Done
#
# Grade your lab with `make grade LAB=07`. What follows is optional.

# %% [markdown]
# ## Further
#
# What an operator costs this engine besides its arithmetic goes into your ledger.

# %% tags=["nbval-ignore-output"]
tiny = dict.fromkeys(named, np.ones((1, 1), np.float32))
ran = graphs.counted_run(run, step, tiny)[1]
time_s = timing.measure(run, step, tiny).median_s
source = "lab 07, measured: a training step on 1 × 1 arrays"
ledger.constant("overhead of an operator, NumPy engine", time_s / ran, "s", source)
ledger.table()

# %% [markdown]
# ### Forward over reverse
#
# The second derivatives of a function of n numbers form a matrix of n² numbers, the *Hessian* H. Nobody stores it for
# a network of a million weights. But H·v, for one direction v, is one more derivative: how the gradient moves along
# v.

# %% tags=["driver"]
def hessian_product_on_rows(rows, values, direction):
    """hessian_product() of the last row by all placeholders, and how often gradients() was called."""
    global gradients
    made, calls, solved = graphs.as_nodes(rows, Node), [], gradients
    def noted(output, inputs):
        calls.append(output)
        return solved(output, inputs)
    gradients = noted
    try:
        inputs = [x for x in made if x.op == "placeholder"]
        return list(hessian_product(made[-1], inputs, values, direction)), len(calls)
    finally:
        gradients = solved

# %% [markdown]
# ### Exercise 5.1 · hessian_product (optional)
#
# You have a gradient that is a graph, and a forward mode that runs any graph on dual numbers. Put one into the other.
# The check takes functions of several arrays; H·v then has a part for each of them. One call of `gradients` is enough.
# PyTorch's derivatives are not allowed.

# %% tags=["hole"]
def hessian_product(output, inputs, values, direction):
    """H·v as a list of arrays, one per input: H is the Hessian of the sum of output, v the direction.

    inputs: placeholders; values and direction: an array for each. Call gradients() once. About four
    lines.
    """
    # BEGIN SOLUTION
    by_inputs = gradients(output, inputs)
    pairs = dict(zip(inputs, zip(values, direction)))
    return [tangent for _, tangent in run(by_inputs, pairs, evaluate=dual)]
    # END SOLUTION

# %% tags=["check"] points=2
from common.checks import remark
from common.lessons.autodiff import expected as oracle

for case in oracle.hessian_cases(rng):
    got, calls = hessian_product_on_rows(*case.args)
    agree(got, case.want, case.text, rtol=1e-7, atol=1e-9, mistakes=case.mistakes)
    remark(calls == 1, f"{case.text}: gradients was called {calls} times, and once is enough.")
oracle.by_own_rules("hessian_product", hessian_product)
print("hessian_product agrees with PyTorch's second derivatives")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Forward mode gives, for each output of a graph, the value and the derivative along a direction. Which outputs
# should this graph have?
# </details>
# <details><summary>Hint: the idea</summary>
#
# The gradients. Feed each input with the pair of its value and its direction, and evaluate with `dual`.
# </details>
#
# The largest eigenvalue λ of H is the sharpest curvature of the loss. Multiply any v by H again and again, and v turns
# into that direction (*power iteration*). On a bowl of curvature λ, gradient descent diverges at rates above 2/λ: each
# step overshoots by more than it corrects. So λ predicts the largest learning rate that your trained network bears.

# %%
seen = Node("constant", value=images[train].astype(np.float32))
digits_seen = Node("constant", value=np.eye(10, dtype=np.float32)[labels[train]])
loss = cross_entropy(network(seen, weights := placeholders("w1", "b1", "w2", "b2")), digits_seen)
v, size = parameters, lambda arrays: np.sqrt(sum((x * x).sum() for x in arrays))
for _ in range(15):
    v = hessian_product(loss, weights, parameters, [x / size(v) for x in v])
largest_rate = float(2 / size(v))
print(f"λ = {size(v):.3f}, so descent should bear rates up to {largest_rate:.2f}")

# %% tags=["nbval-ignore-output"]
def loss_after(rate):
    step, values = training_step(seen, digits_seen, weights, rate), parameters
    for _ in range(50):
        _, *values = run(step, dict(zip(weights, values)))
    return float(run([loss], dict(zip(weights, values)))[0])

factors = np.array([0.1, 0.4, 0.8, 0.95, 1.05, 1.2, 1.6])
after = [loss_after(factor * largest_rate) for factor in factors]

# %% tags=["nbval-ignore-output"]
_, ax = plt.subplots()
ax.semilogy(factors * largest_rate, after, "o", label="measured: the loss after 50 steps")
ax.axvline(largest_rate, color="C1", linestyle="--", label="predicted: the largest rate, 2/λ")
ax.set(xlabel="learning rate", ylabel="loss", title="Where does the trained network diverge?")
ax.legend()
figures.describe(ax, "Left of the predicted rate the loss stays small; right of it, it is far larger.")

# %% [markdown]
# The prediction is right within 5 %: the nearest dots are at 0.95 and 1.05 times 2/λ. Beyond, the loss does not grow for
# ever: it leaps to hundreds, then settles near ln 10 = 2.3, the loss of a blind guess, because almost all ReLUs are off.
#
# The prediction is so good because the network is trained: around it, the loss is almost a bowl. After 20 steps of
# training it misses: 2/λ is 0.5, yet descent still works at 0.8. (Each step here takes all images. The training above took
# 64 at a time, at a rate of 0.5.)

# %% [markdown]
# ### How wrong are differences?
#
# Taylor: f(x + ε) = f + ε f′ + ε² f″/2 + ε³ f‴/6 + … The *one-sided* difference is (f(x + ε) − f(x))/ε, the *central*
# one (f(x + ε) − f(x − ε))/2ε. Someone writes that one-sided differences are "error prone θ(ε²)". True?
#
# And as ε shrinks, rounding grows: float64 has each value of f right to within a relative error of 2⁻⁵³, at best.

# %% [markdown]
# ### Exercise 5.2 · difference_errors (optional)
#
# Predict the errors of both differences. Two errors add up: what Taylor's formula leaves, and rounding.
#
# <details><summary>Hint: a question</summary>
#
# Write f(x + ε) and f(x − ε) as Taylor series up to ε³. Which terms are left in each difference after the division?
# </details>
# <details><summary>Hint: the idea</summary>
#
# In the central difference the even terms cancel. Two values of f are subtracted, so in the worst case both of their
# roundings add up. By what are they divided in each of the two?
# </details>

# %% tags=["hole"]
def difference_errors(step, value, second, third):
    """(one-sided, central): predicted sizes of the errors of the two differences, in float64.

    value, second, third: f(x), f″(x), f‴(x). Take the first term that the difference leaves of
    Taylor's formula, and the worst case of rounding: each value of f may be off by 2**-53 * |value|.
    About three lines.
    """
    # BEGIN SOLUTION
    rounding = 2 * 2**-53 * abs(value)
    return step / 2 * abs(second) + rounding / step, step**2 / 6 * abs(third) + rounding / (2 * step)
    # END SOLUTION

# %% tags=["check"]
from common.lessons.autodiff import expected as oracle

for case in oracle.difference_cases(rng):
    agree(difference_errors(*case.args), case.want, case.text, rtol=1e-9, mistakes=case.mistakes)
print("difference_errors agrees with Taylor's formula and 2**-53")

# %%
# Steps that are powers of 2: 1 + step is exact. And exp at 1: f = f′ = f″ = f‴ = e.
steps, e = 2.0 ** -np.arange(1, 50), np.e
lines = difference_errors(steps, e, e, e)
one_sided = np.abs((np.exp(1 + steps) - e) / steps - e)
central = np.abs((np.exp(1 + steps) - np.exp(1 - steps)) / (2 * steps) - e)
one_sided[1::2] = central[::2] = np.nan  # by turns, so that no dot hides another

# %%
ax = figures.predicted_and_measured(steps, {"one-sided": lines[0], "central": lines[1]},
    {"one-sided": one_sided, "central": central}, log="xy", xlabel="step ε",
    ylabel="error of the derivative", title="The derivative of exp at 1, by differences")
figures.describe(ax, "Both errors fall with the step, then rounding raises them; central falls lower.")

# %% [markdown]
# No: one-sided errors are O(ε). On the right, the dots follow slopes 1 and 2. Only at ε = ½ is one visibly off:
# Taylor's next terms add 19 %. On the left, rounding drowns both, and the dots lie below their lines, by up to 45
# times, because the lines are the worst case. Best are some 8 digits one-sided (ε near 2·10⁻⁸) and 10 or 11 central
# (ε near 7·10⁻⁶). Differences are too coarse to train with, but they know nothing of our rules. That makes them good
# judges.

# %% [markdown]
# ### The branch that must not run
#
# The length of a vector, with its dangerous side behind a Switch:

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
# ### Built once, or built each time?
#
# Define-then-run built the graph of a training step once. Define-by-run builds it anew in each step, as PyTorch does.
# Someone writes that the former "can be 10x faster". Time a step of 64 images each way, and in PyTorch.

# %% tags=["nbval-ignore-output"]
batch = [images[train[:64]], np.eye(10, dtype=np.float32)[labels[train[:64]]], *parameters]
def define_then_run():
    return run(step, dict(zip(named, batch, strict=True)))
def define_by_run():
    x, y, *p = [Node("constant", value=value) for value in batch]
    return [node.value for node in training_step(x, y, p, 0.5)]

# %% tags=["nbval-ignore-output"]
x, y, *p = [torch.tensor(value, requires_grad=i > 1) for i, value in enumerate(batch)]
def in_pytorch():
    loss = torch.nn.functional.cross_entropy(torch.relu(x @ p[0] + p[1]) @ p[2] + p[3], y)
    return [w.detach() - 0.5 * g for w, g in zip(p, torch.autograd.grad(loss, p))]
torch.set_num_threads(1)  # on matrices this small a second thread would only wait
for trained_by in (define_then_run, define_by_run, in_pytorch):
    print(f"{trained_by.__name__:16} {timing.measure(trained_by)}")

# %% [markdown]
# It is not ten times. A step in three runs on an H200's host, in ms:
#
# | | run 1 | run 2 | run 3 |
# | --- | --- | --- | --- |
# | built once | 0.22 | 0.27 | 0.39 |
# | built each time | 0.37 | 0.51 | 0.40 |
#
# Even on arrays this small, building costs no more than running. PyTorch also builds each time, but in C++, and took 0.2 ms.
# If a graph is there before it runs, a compiler can improve it: that is what you gain.

# %% [markdown]
# ### What backward keeps, in bytes
#
# The grey edges of part 3 fill a GPU's memory in training. Count them: which values of the function does its gradient
# read? (An operator that reads only a shape needs no value.) PyTorch calls a *hook* for each tensor that it keeps.
#
# **Predict** for a step of 64 images: which arrays does your engine keep, and how many KB are they together?

# %%
def kept(output, inputs):
    """The nodes of a function whose values its gradient reads."""
    forward, order = set(topological_order([output])), topological_order(gradients(output, inputs))
    shapes = ("sum_like", "broadcast_like", "zeros_like", "ones_like", "size")  # read no values
    readers = [node for node in order if node not in forward and node.op not in shapes]
    return list(dict.fromkeys(x for node in readers for x in node.inputs if x in forward))

# %% tags=["nbval-ignore-output"]
nodes, saved = kept(step[0], named[2:]), {}
arrays = run(nodes, dict(zip(named, batch, strict=True)))
print({node.name or node.op: array.nbytes / 1024 for node, array in zip(nodes, arrays)})
def keep(tensor):
    return saved.update({tensor.data_ptr(): tensor.nbytes}) or tensor
with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
    in_pytorch()
print(f"{sum(array.nbytes for array in arrays) / 1024} KB; PyTorch {sum(saved.values()) / 1024} KB")

# %% [markdown]
# Three arrays of 64 × 64 make up most of 55.75 KB: the images, the sum before `relu`, and `relu`'s result. PyTorch
# keeps 39.5 KB. One word in a rule of yours makes the difference. Which?
#
# <details><summary>Answer</summary>
#
# `"relu": (g * node.step(),)` instead of `x.step()`: relu x is above 0 exactly where x is, and the next product keeps
# relu's result anyway. That leaves 39.75 KB. (If you wrote it so, you saw this number above.) The rules of exp and tanh
# read their results, too.
#
# All of these arrays but w2 grow with the batch. So a GPU's memory limits the batch.
# </details>

# %% [markdown]
# ### A loop in a program
#
# Newton's method finds a root in as many turns as it needs. Can you differentiate it?

# %%
def root(x):
    y = x
    while (y * y - x) * (y * y - x) > 1e-20:
        y = (y + x / y) / 2.0
    return y

for x in (Node("constant", value=2.0), Node("constant", value=1000.0)):
    y, want = root(x), 0.5 / x.value**0.5
    print(f"{len(wengert_list([y])[0])} rows; slope {gradients(y, [x])[0].value:.9f}, want {want:.9f}")

# %% [markdown]
# Define-by-run has the numbers, so Python's `while` works. The tape holds every turn: 17 rows for √2, and 37 for √1000.
# Backward walks through all of them, and keeps their values until then.
#
# Define-then-run refuses: a placeholder has no number to compare. A graph that repeats while it runs needs more
# operators. TensorFlow 1 had Enter, NextIteration and Exit beside Switch and Merge. JAX's `lax.while_loop` has forward
# mode only: its compiler reserves memory before the run, and nobody knows yet how many turns backward would need. `lax.scan`
# makes a known number of turns, and has both modes.

# %% [markdown]
# **A harder question.** Build forward mode from reverse mode: a graph for the derivative of y along ẋ, with `gradients`
# alone and no rule of `dual`.
#
# <details><summary>Hint, then answer</summary>
#
# The gradient of Σ u·y by x is *linear* in u. What is its derivative by u?
#
# ```python
# u = y.zeros_like()                         # any u will do
# g, = gradients((u * y).sum(), [x])         # g = Jᵀu
# tangent, = gradients((g * dx).sum(), [u])  # the derivative of dx·Jᵀu by u is J dx
# ```
# `torch.autograd.functional.jvp` does exactly that: the double-backward trick.
# </details>
