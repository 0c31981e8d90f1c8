# %% [markdown]
# # 08 · Compiler
#
# **What may a compiler change, and how does it know that the change is allowed?**
#
# At the end of this lab you can
#
# - rewrite a graph without changing a bit, and refute a wrong rewrite;
# - emit one Triton kernel for a chain of operators, and count what it saves;
# - find rewrite rules by search, and guard a compiled program.
#
# You need labs 04 and 07; no GPU. About 210 minutes: 20 to read, and 14, 24, 30, 16, 14, 40, 26 and 26 for the
# exercises.
#
# Write your answers in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
import functools

import matplotlib.pyplot as plt
import numpy as np
import torch

from common import figures, graphs, ledger, samples
from common.checks import clinic, expect
from common.graphs import COMMUTATIVE, EFFECTS, ELEMENTWISE, LEAVES, evaluate, execute, same_bits
from common.hardware import device
from common.lessons.compiler import buggy_passes, capture, identities, partial_equivalence, widget
figures.use_style()
device.prepare_triton()
rng = np.random.default_rng()

# %% tags=["driver"]
# Through these functions our checks call yours. You may skip this cell.
def minify_on(rows, outputs, bug):
    """minify() of a program, where a pass with this bug fails."""
    return minify(rows, outputs, functools.partial(buggy_passes.fails, bug))

def trace_on(name, arguments):
    """trace() of a function of capture.FUNCTIONS, which can be called as long as this takes."""
    with capture.traceable(name) as function:
        return trace(function, list(arguments))

# %% [markdown]
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 07: what is a row of a graph?</summary>
#
# An operator and its inputs, as numbers of earlier rows: `("multiply", (0, 2))`. A placeholder holds its name there, a
# constant its value.
# </details>
#
# <details><summary>Lab 04: softmax in five kernels moved four times the bytes of one kernel. Why?</summary>
#
# A kernel can't leave anything in registers for the next one. Each writes its result to memory, and the next one reads
# it again.
# </details>

# %% [markdown]
# ## We asked for a division
#
# Here is one function, and an excerpt of what XLA, the compiler of JAX, made of it on a CPU.

# %%
compilers = samples.compiled()
print(compilers["function"])
lines = compilers["XLA"]["text"].splitlines()
shown = [line for line in lines if "%divide.1 =" in line or "%multiply.1 =" in line]
print(*(line.split(", metadata")[0] for line in shown), sep="\n")

# %% [markdown]
# XLA divides 1 by each row's sum, and multiplies: 1,024 divisions instead of a million. On paper nothing has changed.
# How many results change on a machine? Guess first.

# %%
h, s = rng.random((1024, 1024), np.float32), rng.random((1024, 1), np.float32) + 1
changed = (h / s != h * (1 / s)).mean()
print(f"{changed:.0%} of the results differ, each in its last bit")

# %% [markdown]
# About a quarter. Was XLA allowed to do this? That depends on what it promises. This lab makes the strictest promise
# first: *not one bit changes, for any input.* (All NaNs count as one value.)

# %% [markdown]
# ## Part 1 · Not one bit
#
# A compiler rewrites a graph in **passes**. A pass takes a graph and returns another one that computes the same with
# less work. Our graphs are lab 07's rows, with three more operators, and they run in order:
#
# - `("read", (b,))` and `("write", (b, x))` use a *buffer* b, memory that outlives the run;
# - `("random", (x,))` draws new numbers in x's shape, and so moves the generator on.
#
# `execute(rows, outputs, feeds)` returns all that can be seen from outside: the outputs, then memory and generator.

# %%
rows = [("placeholder", "x"), ("buffer", "b"), ("constant", 2.0), ("multiply", (0, 2)),
        ("multiply", (0, 2)), ("write", (1, 3)), ("random", (0,)), ("add", (3, 4)), ("sin", (7,))]
outputs = [7]
ax = graphs.draw(rows, [7, 5, 6, 8], names={7: "output"}, title="What of this is needed?")
figures.describe(ax, "x times 2 twice; their sum is the output; a write, a random, a dead sine.")

# %% [markdown]
# ### Exercise 1.1 · eliminate_dead_code
#
# Remove what nobody can see. An output is seen. What else is?

# %% tags=["hole"]
def eliminate_dead_code(rows, outputs):
    """(rows, outputs) of the same program without dead operators.

    An operator that is in EFFECTS has to stay, and so has what it needs. All others that the
    outputs do not need have to go. graphs.chosen(rows, outputs, numbers) keeps the rows of these
    numbers and renumbers them. About seven lines.
    """
    # BEGIN SOLUTION
    needed = set(outputs)
    for i in reversed(range(len(rows))):
        op, content = rows[i]
        if op in EFFECTS:
            needed.add(i)
        if i in needed and op not in LEAVES:
            needed.update(content)
    return graphs.chosen(rows, outputs, needed)
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.compiler.expected import passes as oracle

for case in oracle.dead_code_cases(rng):
    oracle.judge("eliminate_dead_code", eliminate_dead_code, case, rng)
print("eliminate_dead_code keeps every bit of 300 random programs, and no operator too many")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Walk the rows backwards. When you come to a row, all its readers have been there before.
# </details>
#
# ### Exercise 1.2 · eliminate_common_subexpressions
#
# Two operators of the same kind with the same inputs compute the same value. Keep the first. When are two reads of one
# buffer the same, and two constants?
#
# <details><summary>Someone writes that <code>a = b; b = c</code> has a common subexpression. True?</summary>
#
# No: nothing is computed twice. Nor is it copy propagation to write `a = c`, because a is the *old* b. After
# `b = c; a = b` it would be.
# </details>

# %% tags=["hole"]
def eliminate_common_subexpressions(rows, outputs):
    """(rows, outputs) of the same program, where no operator is computed twice.

    An operator is a second one if op and inputs are those of an earlier one, or if op is in
    COMMUTATIVE and they are swapped. Equal placeholders, buffers and constants (a number or an
    array: np.asarray(c, float).tobytes() are its bits) are one, too. Operators in EFFECTS all stay,
    and a read stays if there is a write since the earlier one. About thirteen lines.
    """
    # BEGIN SOLUTION
    new, place, known, writes = [], [], {}, 0
    for op, content in rows:
        if op == "constant":
            key = op, np.shape(content), np.asarray(content, float).tobytes()
        elif op in LEAVES:
            key = op, content
        else:
            content = tuple(place[i] for i in content)
            key = op, tuple(sorted(content)) if op in COMMUTATIVE else content
        if op == "read":
            key += (writes,)
        writes += op == "write"
        if op in EFFECTS or key not in known:
            known[key] = len(new)
            new.append((op, content))
        place.append(known[key])
    return new, [place[i] for i in outputs]
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.compiler.expected import passes as oracle

for case in oracle.subexpression_cases(rng):
    oracle.judge("eliminate_common_subexpressions", eliminate_common_subexpressions, case, rng)
print("eliminate_common_subexpressions keeps every bit of 300 random programs, and few operators")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Build a new list of rows. For each old row, remember its number in the new list, and translate inputs *before* you
# compare them.
# </details>
# <details><summary>Hint 2</summary>
#
# A dict from a key to a new row. What must be in the key of a constant, so that 0.0 and −0.0 differ? And of a read?
# </details>
#
# ### Exercise 1.3 · fold_constants
#
# What needs no input can be computed now, once. And some operators give their input back. But (x + 3) + 4 must stay:
# floating-point addition rounds, so it is not associative. Which of x + 0, x − 0, x · 1, x · 0 and x − x may go? Mind
# −0.0, infinity and NaN.

# %% tags=["hole"]
def fold_constants(rows, outputs):
    """(rows, outputs) of the same program, with fewer operators.

    An operator on constants becomes a constant: evaluate(op, *values). (Not read, write, random.) And
    what reads an operator that gives back its input, bit for bit, for every input, reads that input
    instead: a product or quotient with the number 1; a sum or difference with one of 0.0 and -0.0
    (which?); two negatives. Dead operators may stay. About sixteen lines.
    """
    # BEGIN SOLUTION
    new, place = [], []
    neutral = {"multiply": 1.0, "divide": 1.0, "subtract": 0.0, "add": -0.0}

    def is_neutral(i, op):
        kind, value = new[i]
        return kind == "constant" and same_bits(np.float64(value), np.float64(neutral[op]))

    for op, content in rows:
        if op not in LEAVES:
            content = tuple(place[i] for i in content)
            a, b = content[0], content[-1]
            if all(new[i][0] == "constant" for i in content) and op not in ("read", *EFFECTS):
                op, content = "constant", evaluate(op, *(new[i][1] for i in content))
            elif op == "negative" and new[a][0] == "negative":
                place.append(new[a][1][0])
                continue
            elif op in neutral and (is_neutral(b, op) or op in COMMUTATIVE and is_neutral(a, op)):
                place.append(a if is_neutral(b, op) else b)
                continue
        place.append(len(new))
        new.append((op, content))
    return new, [place[i] for i in outputs]
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.compiler.expected import passes as oracle

with np.errstate(all="ignore"):
    for case in oracle.constant_cases(rng):
        oracle.judge("fold_constants", fold_constants, case, rng)
print("fold_constants keeps every bit of 300 random programs, and folds what can be folded")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Make a table: operator, number, which side. Try each with x = −0.0. `same_bits` tells 0.0 from −0.0, `==` does not. And
# an array of ones may stretch x.
# </details>
#
# Now take a graph from lab 07's engine: yours, if you solved that lab in `labs/`, or ours. A function calls `gelu` twice,
# and `gradients` adds the backward graph. (Nothing in it is dead, unless one of your passes leaves it behind.)

# %%
from common.lessons.compiler.expected import engine

def gelu(x):
    return 0.5 * x * (1.0 + ((2.0 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x)).tanh())

names, whose = engine.engine()
x = names["Node"]("placeholder", name="x")
f = (gelu(x) * 1.0 + x * gelu(x)).sum()

# %%
wanted = [f, *names["gradients"](f, [x])]
program = graphs.as_rows(names["topological_order"](wanted), wanted)
print(f"from {whose} engine: {graphs.operators(program[0])} operators")
for optimize in (fold_constants, eliminate_common_subexpressions, eliminate_dead_code):
    program = optimize(*program)
    print(f"after {optimize.__name__}: {graphs.operators(program[0])}")

# %% [markdown]
# **Your turn.** Choose rewrites. How few operators can you reach before an input refutes you?

# %% tags=["nbval-ignore-output"]
widget.rewrites()

# %% [markdown]
# **A rewrite that holds for real numbers is a conjecture about floating point. −0.0, infinity, NaN and the last bit
# refute most of them.**
#
# ## Part 2 · Refute a rewrite
#
# The checks above refuted wrong passes with a *counterexample*. Now you write that judge, in two steps: find an input
# at which two programs differ, then shrink the program until one sees why.
#
# ### Exercise 2.1 · counterexample
#
# Numbers near 1 refute little. Which numbers do? And two values may have to meet: x equal to y, say.

# %% tags=["hole"]
def counterexample(first, second):
    """Feeds {name: array} at which two programs differ in a bit, or None if you find none.

    first, second: (rows, outputs). Programs differ if execute(*program, feeds) does; all names in
    graphs.names(first, second) need a value. The arrays: float64, all of one shape (n,), n at most
    10,000. Equal programs must give None. About eight lines.
    """
    # BEGIN SOLUTION
    hard = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.7e308, 5e-324, 0.1, 3.0]
    draw = np.random.default_rng(0)
    for _ in range(10):
        feeds = {}
        for name in graphs.names(first, second):
            plain = draw.normal(size=400) * 10.0 ** draw.integers(-9, 9, 400)
            feeds[name] = np.where(draw.random(400) < 0.6, draw.choice(hard, 400), plain)
        if not same_bits(execute(*first, feeds), execute(*second, feeds)):
            return feeds
    return None
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.compiler.expected import equivalence as oracle

for pair in oracle.pairs(rng):
    feeds = counterexample(pair.first, pair.second)
    oracle.judge_pair(pair, feeds)
print("counterexample refutes 12 wrong rewrites and accepts 22 right ones")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Draw each element from a list of hard numbers, or at random with magnitudes from 10⁻⁹ to 10⁹. Hundreds of elements
# cost no more than one.
# </details>
#
# That no counterexample was found proves nothing. But a test that includes the hard numbers has refuted every wrong pass
# that we know.
#
# ### Exercise 2.2 · minify
#
# A bug report with a thousand operators helps nobody. PyTorch ships a *minifier* for its compiler: it leaves out
# operators as long as the rest still fails. The result is **1-minimal** if no single operator can be left out any more.
# `graphs.without(rows, outputs, i)` gives the programs without operator i: one for each of its inputs, which takes its
# place.

# %% tags=["hole"]
def minify(rows, outputs, fails):
    """(rows, outputs) of a 1-minimal program that still fails.

    fails(rows, outputs) is True for the program given. It may be False for a program from which
    an operator was left out, and True again after one more. About seven lines.
    """
    # BEGIN SOLUTION
    smaller = rows, outputs
    while smaller:
        rows, outputs = smaller
        operators = [i for i, (op, _) in enumerate(rows) if op not in LEAVES]
        candidates = (less for i in operators for less in graphs.without(rows, outputs, i))
        smaller = next((less for less in candidates if fails(*less)), None)
    return rows, outputs
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.compiler.expected import equivalence as oracle

for failing in oracle.failing_programs(rng):
    answer = minify_on(*failing.program, failing.bug)
    oracle.judge_minified(failing, answer)
print("minify gives 1-minimal programs that fail, for four bugs and 16 programs")

# %% [markdown]
# <details><summary>Hint</summary>
#
# After each success, start again with the smaller program: what could not go before may go now.
# </details>
#
# Together: a pass claims that a / b is a · (1/b). What is the smallest program that shows that it is wrong?

# %%
fails, draw = functools.partial(buggy_passes.fails, "divides by multiplying"), np.random.default_rng(1)
cases = [graphs.random_program(draw, 30, effects=False) for _ in range(30)]
cases = [eliminate_dead_code(rows, outputs[:1]) for rows, outputs in cases]
failing = max((case for case in cases if fails(*case)), key=lambda case: graphs.operators(case[0]))
small = minify(*failing, fails)
print("fails:   ", graphs.formula(*failing))
print("minified:", graphs.formula(*small))

# %% [markdown]
# **A test refutes, a minifier explains. Neither proves.**
#
# ## Part 3 · One kernel per chain
#
# Parts 1 and 2 saved operators. On a GPU, element-wise operators cost their *bytes* (lab 04). So put a chain of them
# into one kernel. What stops a chain?
#
# - A *reduction* needs whole rows, so no element of its result is ready in time.
# - A value with two readers would be computed twice, or stored anyway.
# - A value of another shape needs another grid.
#
# So an element-wise operator joins its reader if it has only one, and if this reader is element-wise too and has the same
# shape.

# %% tags=["setup", "shown"]
TRITON = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "divide": "{} / {}",
    "negative": "-{}", "exp": "tl.exp({})", "log": "tl.log({})", "sin": "tl.sin({})",
    "cos": "tl.cos({})", "tanh": "2 * tl.sigmoid(2 * {}) - 1",
    "relu": "tl.where({0} < 0, 0.0, {0})", "step": "tl.where({} > 0, 1.0, 0.0)",
}

# %% [markdown]
# ### Exercise 3.1 · fuse_elementwise
#
# First choose the groups. Then emit the source of a kernel for one group. Element i of an (N, M) result stands in row
# i // M and column i % M: so an array of shape (M,) is read at `i % COLUMNS`. What about (N, 1)?

# %% tags=["hole"]
def fusion_groups(rows, outputs, shapes):
    """The operators in groups, each a kernel: a list of lists of row numbers, in an order that runs.

    shapes[i]: the shape of row i. Each operator is in one group. An operator in ELEMENTWISE is in the
    group of the one row that reads it, if there is just one, of ELEMENTWISE and of the same shape, and
    if it is no output itself. All others begin a group. About ten lines.
    """
    # BEGIN SOLUTION
    group = {}
    for i in reversed(range(len(rows))):
        if rows[i][0] in LEAVES:
            continue
        group[i] = i
        readers = {j for j in range(len(rows)) if i in graphs.inputs(rows[j])}
        if len(readers) == 1 and i not in outputs:
            reader, = readers
            fusible = rows[i][0] in ELEMENTWISE and rows[reader][0] in ELEMENTWISE
            if fusible and shapes[i] == shapes[reader]:
                group[i] = group[reader]
    return [[i for i in sorted(group) if group[i] == last] for last in sorted(set(group.values()))]
    # END SOLUTION


def fuse_elementwise(rows, group, shapes):
    """The source of @triton.jit `fused`, which computes the last row of a group: a str.

    Parameters: a pointer for each row that the group reads (in ascending order; constants, which are
    numbers, are written into the source), `out`, then n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr.
    n: elements of the result, which is (n / COLUMNS, COLUMNS) or (COLUMNS,), without gaps. What is read
    has that shape, or (COLUMNS,), or (n / COLUMNS, 1). Program p stores elements p * BLOCK on. One load
    per pointer. TRITON has the operators. About sixteen lines.
    """
    # BEGIN SOLUTION
    last = group[-1]
    reads = sorted({j for i in group for j in rows[i][1]} - set(group))
    arrays = [j for j in reads if rows[j][0] != "constant"]
    pointers = ", ".join(f"p{j}" for j in arrays)
    lines = [f"def fused({pointers}, out, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):",
             "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"]
    for j in reads:
        if j not in arrays:
            lines.append(f"    v{j} = {float(rows[j][1])!r}")
            continue
        column = shapes[j] == (*shapes[last][:-1], 1)
        place = "i" if shapes[j] == shapes[last] else "i // COLUMNS" if column else "i % COLUMNS"
        lines.append(f"    v{j} = tl.load(p{j} + {place}, mask=i < n)")
    for i in group:
        op, content = rows[i]
        lines.append(f"    v{i} = {TRITON[op].format(*(f'v{j}' for j in content))}")
    lines.append(f"    tl.store(out + i, v{last}, mask=i < n)")
    return "@triton.jit\n" + "\n".join(lines) + "\n"
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.compiler.expected import fusion as oracle

for sentence, graph in oracle.group_cases(rng):
    groups = fusion_groups(*graph)
    oracle.judge_groups(sentence, graph, groups)
print("fusion_groups makes as few kernels as the rule allows, for 300 random graphs")

# %% tags=["check"] points=3
from common.lessons.compiler.expected import fusion as oracle

for graph, group in oracle.kernel_cases(rng):
    text = fuse_elementwise(graph[0], group, graph[2])
    oracle.judge_kernel(fuse_elementwise, graph, group, text, rng)
print("fuse_elementwise emits kernels that are right, and load and store each element once")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write the kernel for x · s + b by hand first. Which of its lines depend on the graph?
# </details>
# <details><summary>Hint 2</summary>
#
# One line per load, one line `v7 = ...` per operator, one store. Python prints −0.5 as `-0.5`: `repr` of a float is
# source.
# </details>

# %%
from common.lessons.compiler import emitted

rows, feeds = emitted.elementwise_chain(4), emitted.feeds(16, 256)
shapes = emitted.shapes_of(rows, feeds)
(group,) = fusion_groups(rows, [len(rows) - 1], shapes)
print(graphs.formula(rows, [len(rows) - 1]), "\n")
print(fuse_elementwise(rows, group, shapes))

# %% [markdown]
# ## Predict, then measure
#
# A chain of k operators on x (N, M), with b (M,) and s (N, 1), as above. How many bytes do k kernels move, and how many
# does one? Count requested bytes, per element of x: each load or store takes 4. (A broadcast operand is requested for each
# element, too.) In this chain, two of three operators have a second array.

# %%
# BEGIN SOLUTION
def bytes_per_element(arrays_read):
    """(k kernels, one kernel): requested bytes per element. arrays_read: by each operator."""
    return 4 * sum(n + 1 for n in arrays_read), 4 * (3 + 1)
# END SOLUTION

# %%
lengths, lines, dots = np.arange(3, 13), [], []
for rows in map(emitted.elementwise_chain, lengths.tolist()):
    shapes, alone = emitted.shapes_of(rows, feeds), [[i] for i in range(4, len(rows))]
    reads = [sum(rows[j][0] != "constant" for j in rows[i][1]) for i, in alone]
    lines.append(bytes_per_element(reads))
    both = alone, fusion_groups(rows, [len(rows) - 1], shapes)
    counted = [emitted.requested(fuse_elementwise, rows, groups, shapes, feeds) for groups in both]
    dots.append(np.array(counted) / feeds["x"].numel())

# %%
(unfused_line, fused_line), (unfused, fused) = np.transpose(lines), np.transpose(dots)
ledger.predict("bytes: 12 operators in 12 kernels / in one", unfused_line[-1] / fused_line[-1], "times")
ledger.counted("bytes: 12 operators in 12 kernels / in one", unfused[-1] / fused[-1], "times")
ax = figures.predicted_and_measured(lengths,
    {"one kernel per operator": unfused_line, "fused": fused_line},
    {"one kernel per operator": unfused, "fused": fused}, dots_are="counted", xlabel="operators k",
    ylabel="bytes requested per element", title="A chain of k element-wise operators")
figures.describe(ax, "Bytes of k kernels grow with k, from 32 to 116; fused they stay at 16.")

# %% [markdown]
# The lines hit every dot: bytes are counted exactly. Fused, three arrays are read and one is written, however long the
# chain is. From memory, b and s cost almost nothing (their rows stay in cache), so a GPU moves about 8 bytes per element.
#
# On an H200, 2²⁶ elements take 129 µs for 3 to 7 operators: as long as a copy. Then sin, exp and the second tanh add 13,
# 5 and 21 µs, because the GPU now computes for longer than it moves bytes. At 12 operators it reaches 77 % of the copy's
# bandwidth, and 1.22 times the speed of `torch.compile` (`benchmarks/fusion.md`).

# %% [markdown]
# ### Three compilers, one function
#
# What did XLA, TVM and Inductor fuse in the function at the top, tanh(2x + b) divided by its row's sum? The texts ship
# with the course. Inductor's is made anew here if this machine has a C++ compiler.

# %% tags=["nbval-ignore-output"]
from common.lessons.compiler import compiler_texts as texts

for name, version, line in texts.kernels():
    print(f"{name:9} {version:24} {line}")

# %% [markdown]
# | | XLA | TVM | Inductor |
# | --- | --- | --- | --- |
# | kernels | 4 | 3 | 1 |
# | fused | multiply, add, tanh; reciprocal and product apart | multiply, add, tanh; sum; divide | all five, sum included |
# | emitted | HLO, then machine code | loops (TIR), to be scheduled | C++ with vectors |
# | division | h · (1/s): other bits | h / s | h / s |
#
# Inductor computes a row's tanh and sum, keeps the row in a buffer of 4 KB, and divides. It adds 16 partial sums in another
# order than NumPy: no compiler here promises the bits of a sum.
#
# **Fusion changes where values live, not what they are. It ends where a reduction, a second reader or another shape
# begins.**

# %% [markdown]
# ## Part 4 · Find the rules
#
# Who says which rewrites exist? In TensorFlow, people had written 53,000 lines of them, says the paper on
# [TASO](https://doi.org/10.1145/3341301.3359630) (Jia and others, 2019). TASO finds them by itself. It enumerates all small graphs
# and runs them on random inputs. Graphs with equal results are *candidates*.
#
# Floats would round. So compute with integers modulo the prime p = 2³¹ − 1. Two different polynomials of degree d agree at
# a random point with probability at most d/p (Schwartz and Zippel). An expression here is a nested tuple:
# `("matmul", "x", ("transpose", "y"))`.

# %%
x, y = identities.random_matrices(rng, draws=2), identities.random_matrices(rng, draws=2)
product = identities.apply("matmul", x, y)
print(x.shape, x.dtype, product[0, 0])
print(np.array_equal(identities.apply("transpose", product),
      identities.apply("matmul", identities.apply("transpose", y), identities.apply("transpose", x))))

# %% [markdown]
# ### Exercise 4.1 · discover
#
# Grow expressions from x, y and z, smallest first. If an expression's *fingerprint* (the bytes of its value) is that of an
# earlier expression, you have a rule. Else keep the expression and build larger ones from it: what equals a smaller
# expression is never built upon. And x + y = y + x is the same rule as z + y = y + z: rename by order of appearance, and
# keep one.

# %% tags=["hole"]
def discover(most=3):
    """Rules, as a list of (expression, smaller or earlier expression), of expressions that are equal.

    Expressions have the names x, y, z, the operators add, matmul and transpose, at most `most` of them.
    Take identities.random_matrices(generator, draws=2) for each name. identities.names_in(expression)
    lists names from left to right, identities.renamed(expression, {old: new}) renames. No two rules
    may differ in names alone. About eighteen lines.
    """
    # BEGIN SOLUTION
    draw = np.random.default_rng(0)
    values = {name: identities.random_matrices(draw, draws=2) for name in "xyz"}
    known = {value.tobytes(): name for name, value in values.items()}
    levels, rules = [list("xyz")], {}
    for size in range(1, most + 1):
        candidates = [("transpose", a) for a in levels[-1]]
        for k in range(size):
            candidates += [(op, a, b) for op in ("add", "matmul")
                           for a in levels[k] for b in levels[size - 1 - k]]
        levels.append([])
        for new in candidates:
            op, *inputs = new
            values[new] = identities.apply(op, *(values[x] for x in inputs))
            equal = known.setdefault(values[new].tobytes(), new)
            if equal is new:
                levels[-1].append(new)
            else:
                order = dict(zip(identities.names_in(("pair", new, equal)), "xyz"))
                rules[identities.renamed(new, order), identities.renamed(equal, order)] = True
    return list(rules)
    # END SOLUTION

# %% tags=["check"] points=3
from common.lessons.compiler.expected import rules as oracle

rules = discover()
oracle.judge_rules(rules)
print("discover finds the eight laws of add, matmul and transpose; all rules are proved, none is twice")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# An expression of three operators is an operator on expressions whose sizes add up to two.
# </details>
# <details><summary>Hint 2</summary>
#
# Keep the value of each expression in a dict. Then a new one costs one operator, not three.
# </details>
#
# How far can you trust this? You compared every pair of m expressions. Each pair differs by a polynomial of degree at most
# 4, so a false match has probability at most 4/p per draw. (Someone writes 2⁻³¹, about 1/p. True? x · x and x agree at 0
# *and* at 1.) Then the check *proved* each rule: add, matmul and transpose
# are linear in each input, so multiply everything out and compare the sums of products.

# %%
rules, m, p = discover(), 3_000, identities.PRIME  # m: expressions, rounded up
print(f"{len(rules)} rules, {sum(map(identities.proved, rules))} of them proved")
pairs = m**2 / 2
print(f"a false match: at most {pairs * 4 / p:.1%} with one draw, {pairs * (4 / p) ** 2:.0e} with two")
laws = identities.essential(rules)
print(*(f"{identities.text(left):20} = {identities.text(right)}" for left, right in laws), sep="\n")

# %% [markdown]
# These few laws imply all others. Now use them. x @ z + w + y @ z has two products. Greedy rewriting takes a step only if
# it makes the graph cheaper. Is there such a step?

# %%
from common.lessons.compiler.expected import rules as oracle

cheap = ("add", ("add", ("matmul", "x", "z"), "w"), ("matmul", "y", "z"))
print("given ", identities.cost(cheap), identities.text(cheap))
stuck = identities.greedy(cheap, laws)
print("greedy", identities.cost(stuck), identities.text(stuck))
best, looked_at = oracle.cheapest(cheap, laws)
print("search", identities.cost(best), identities.text(best), f"({looked_at} expressions looked at)")

# %% [markdown]
# No: the two products must first become neighbours, and that step saves nothing. TASO's search keeps graphs that are up to
# 5 % more expensive than the best, for this reason. Ours also keeps graphs of equal cost. Greedy doesn't.
#
# **Random inputs find rules, algebra proves them, and the best rewrite may begin with a step that gains nothing.**

# %% [markdown]
# ## Part 5 · When must you compile again?
#
# So far somebody gave us a graph. Where does it come from? `jax.jit` runs your Python function once, on stand-ins that
# write down what is done with them. That is called *tracing*. (`torch.compile` interprets the function's bytecode, to the
# same end.) But Python may look at its arguments, and take another way next time:

# %%
noted = graphs.Tape()
x = noted.placeholder("x0", np.ones((3, 4)))
capture.gated(x, noted.constant(2.0))  # if x.sum() > 0: x * y, else x - y
print(noted.rows, "\nbranches:", noted.branches)
y = noted.placeholder("x1", np.ones((10, 4)))
capture.mean_by_hand(y)  # x.sum() / float(x.shape[0])
print(f"x1 is row {y.row}; Python read the shapes of {noted.shapes}:", noted.rows[-2:])

# %% [markdown]
# The 10 has become a constant of the program. For 11 rows this program is *stale*. So a compiler keeps **guards** with each
# program: conditions under which it is right. With too few guards, results are wrong. With too many, each call compiles.

# %% [markdown]
# ### Exercise 5.1 · trace
#
# Write a tracer and the lookup in its cache. A *Python number* that is used becomes a constant, so guard its value. An
# array is guarded by dtype and sizes, but kernels are tuned per **bucket** of the first size: 1, 2, 3–4, 5–8, 9–16 and so
# on, to the next power of two. Where Python has read a shape, guard the exact shapes of all arrays that it was computed
# from. A branch was decided by a row: compute that row again. An argument that is not used has no guard.

# %% tags=["hole"]
def described(argument, exact):
    """What a guard compares: of a number its type and value, of an array its dtype and sizes.

    exact: whether the first size counts itself, and not only its bucket. About four lines.
    """
    # BEGIN SOLUTION
    if not isinstance(argument, np.ndarray):
        return type(argument).__name__, argument
    first, *others = argument.shape
    return str(argument.dtype), first if exact else 1 << (first - 1).bit_length(), *others
    # END SOLUTION


def trace(function, arguments):
    """(rows, outputs, guards) of a call of function(*arguments), which gives one value.

    Array i becomes tape.placeholder(f"x{i}", array), a number tape.constant(number). The function's
    result and these have .row, the number of their row. After the call, tape.rows has all rows;
    tape.branches lists (row, truth), tape.shapes and tape.numbers are the rows of which Python read the
    shape or the number. graphs.ancestors(rows, numbers) are the rows that these are computed from,
    themselves included. guards: any lists, tuples, strings and numbers. About ten lines.
    """
    # BEGIN SOLUTION
    tape = graphs.Tape()
    given = [tape.placeholder(f"x{i}", a) if isinstance(a, np.ndarray) else tape.constant(a)
             for i, a in enumerate(arguments)]
    outputs = [function(*given).row]
    exact = graphs.ancestors(tape.rows, tape.shapes)
    branches = [row for row, _ in tape.branches]
    used = graphs.ancestors(tape.rows, [*outputs, *branches, *tape.shapes, *tape.numbers])
    guards = [(i, x.row in exact, described(a, x.row in exact))
              for i, (x, a) in enumerate(zip(given, arguments)) if x.row in used]
    return tape.rows, outputs, (guards, tape.branches)
    # END SOLUTION


def lookup(cache, arguments):
    """The index of a program in the cache that is right for these arguments, or None.

    cache: list of what trace() gave. execute(rows, [row], feeds)[0] is the value of a row, where feeds
    is {f"x{i}": array i}. About nine lines.
    """
    # BEGIN SOLUTION
    feeds = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    for number, (rows, _, (guards, branches)) in enumerate(cache):
        if all(described(arguments[i], exact) == seen for i, exact, seen in guards):
            values = execute(rows, [row for row, _ in branches], feeds)
            if all(bool(value) == truth for value, (_, truth) in zip(values, branches)):
                return number
    return None
    # END SOLUTION

# %% tags=["check"] points=4
from common.lessons.compiler.expected import tracing as oracle

for name, calls in oracle.sequences(rng):
    compiled = oracle.judge_calls(name, calls, trace_on, lookup)
oracle.by_guards(lookup)
print("trace and lookup: 8 functions; compiled when it must be, and only then")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# An argument is used if its row is among the ancestors of the output, of a branch, or of a row that Python has read.
# </details>
# <details><summary>Hint 2</summary>
#
# Check the guards of shapes and numbers first. A branch's row can only be computed for arrays that fit.
# </details>
#
# Next to each other: what your cache does, and what `torch.compile` says for the same calls.

# %% tags=["nbval-ignore-output"]
rows_of, cache = [100, 100, 120, 130, 100, 100, 100], []
calls = [(np.ones((n, 4)), scale, unused) for n, scale, unused in
         zip(rows_of, [2.0, 2.0, 2.0, 2.0, 3.0, 2.5, 2.0], [1, 99, 1, 1, 1, 1, 1])]
for call, theirs in zip(calls, capture.torch_calls(capture.scaled, calls)):
    ours = lookup(cache, call)
    cache += [trace(capture.scaled, call)] if ours is None else []
    said = "compiles" if ours is None else "runs"
    print(f"{len(call[0])} rows, scale {call[1]}: ours {said:8}  PyTorch {theirs}")

# %% [markdown]
# <details><summary>What you should see, and why</summary>
#
# Both ignore the unused argument. At the second size, PyTorch stops guarding the number 100 and makes the size *dynamic*:
# one program for all sizes. The same happens to the scale. So PyTorch compiles at the first change, and we compile once per
# bucket and once per number. Where the branch depends on data, PyTorch does not guard the result: it ends the graph before
# the `if`, lets Python decide, and goes on with a second graph (a *graph break*).
# </details>
#
# **A compiled program is a claim with conditions. Guard all that Python looked at, and nothing else.**
#
# ## Where it is used
#
# - [PyTorch 2](https://docs.pytorch.org/assets/pytorch2-2.pdf): Dynamo traces and guards, Inductor fuses.
#   `TORCH_LOGS=recompiles` prints the guard that failed.
# - [TASO](https://doi.org/10.1145/3341301.3359630), [PET](https://www.usenix.org/conference/osdi21/presentation/wang-haojie)
#   and [egg](https://egraphs-good.github.io) search with rules.
# - [Csmith](https://github.com/csmith-project/csmith) tests C compilers with random programs,
#   [C-Reduce](https://github.com/csmith-project/creduce) minifies them.
#
# *Limits of ours*: no loops, no aliasing between buffers, and fusion that never recomputes.

# %% [markdown]
# ## Done
#
# Grade your lab with `make grade LAB=08`. What follows is optional.

# %% [markdown]
# ## Further
#
# Six things that compilers also do: they change weights, they are tested by their users, they search, they correct
# what is partly wrong, they break graphs, and they record launches. All of it is optional.

# %% tags=["driver"]
def judged(source):
    """What test_rewrite says of a pass: "" if it accepts it."""
    return clinic.verdict(test_rewrite, source)

def searched(expression, rules, most=1500):
    """What cheapest() finds, if it calls identities.rewrites at most so many times."""
    with identities.at_most(most):
        return cheapest(expression, rules)

def corrections_of(name, shape):
    """corrections() of a pair of partial_equivalence.PAIRS."""
    return corrections(*partial_equivalence.PAIRS[name], shape)

# %% [markdown]
# ### Exercise 6.1 · fold_batch_norm (optional)
#
# After training, a batch norm is two numbers per channel: it scales, and it shifts. A convolution before it is linear, and
# can do both. So fold the batch norm into the convolution's weights. This does round, so the promise is weaker here: *equal to
# rounding*. Two new operators on images x (N, C, H, W):
#
# - `("convolve", (x, weight, bias))`, weight (O, C, k, k) and bias (O,), without padding;
# - `("batch_norm", (x, gain, shift, mean, variance))`: gain · (x − mean) / √(variance + ε) + shift, per channel.
#
# Why must the statistics be constants? What if somebody else reads the convolution?

# %% tags=["hole"]
def fold_batch_norm(rows, outputs):
    """(rows, outputs) of the same program, where no batch norm is left that could be folded.

    A batch norm can be folded into the convolution that it reads if nobody else reads that, if it is
    no output, and if all weights and statistics are constants (arrays). No convolution is added.
    Other rows may read the same constants. ε is graphs.BATCH_NORM_EPSILON. No row is in EFFECTS, and
    dead operators may stay. About eighteen lines.
    """
    # BEGIN SOLUTION
    new, place, readers = [], [], []
    read = [*outputs, *(i for row in rows for i in graphs.inputs(row))]
    for old, (op, content) in enumerate(rows):
        if op not in LEAVES:
            content = tuple(place[i] for i in content)
        if op == "batch_norm" and new[content[0]][0] == "convolve" and readers[content[0]] == 1:
            image, *parts = *new[content[0]][1], *content[1:]
            if all(new[i][0] == "constant" for i in parts):
                weight, bias, gain, shift, mean, variance = (new[i][1] for i in parts)
                scale = gain / np.sqrt(variance + graphs.BATCH_NORM_EPSILON)
                new.append(("constant", weight * scale[:, None, None, None]))
                new.append(("constant", (bias - mean) * scale + shift))
                readers += [1, 1]
                op, content = "convolve", (image, len(new) - 2, len(new) - 1)
        place.append(len(new))
        new.append((op, content))
        readers.append(read.count(old))
    outputs = [place[i] for i in outputs]
    return graphs.chosen(new, outputs, graphs.ancestors(new, outputs))
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.compiler.expected import convolutions as oracle

for network in oracle.networks(rng):
    oracle.judge_folded(fold_batch_norm, network, rng)
print("fold_batch_norm folds what can be folded in 33 networks, to rounding, and nothing else")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Write the batch norm as scale · x + rest, per channel. Then scale · (weight ∗ x + bias) + rest is a convolution. Which axis
# of weight is the channel that comes out?
# </details>
#
# PyTorch has this pass, too: `torch.nn.utils.fusion.fuse_conv_bn_weights`. Does yours give the same weights? In float32, how
# much does the rounding matter?

# %%
network = next(oracle.networks(rng)).program
folded, _ = fold_batch_norm(*network)
weight, bias, *statistics = (torch.tensor(c) for op, c in network[0] if op == "constant")
gain, shift, mean, variance = statistics
theirs, _ = torch.nn.utils.fusion.fuse_conv_bn_weights(
    weight, bias, mean, variance, graphs.BATCH_NORM_EPSILON, gain, shift)
ours = torch.tensor(next(c for op, c in folded if op == "constant"))
print(f"largest relative difference from PyTorch's weights: {(ours / theirs - 1).abs().max():.0e}")

# %% [markdown]
# ### Exercise 6.2 · test_rewrite (optional)
#
# A clinic. Thirty people have each written a pass, `candidate(rows, outputs)`, in the language of Part 1. Eight are right:
# every bit stays, and so do the lists that they are given. (They may leave a program as it is.) Write the test that tells.
# It should refuse at least 18 of the 22 wrong ones.

# %% tags=["hole"]
def test_rewrite(candidate):
    """Raises AssertionError if the candidate is wrong, and returns nothing.

    graphs.random_program(generator) draws a program with effects, graphs.random_feeds(generator, names)
    its inputs. But some mistakes need a program of your own. About fifteen lines.
    """
    # BEGIN SOLUTION
    draw = np.random.default_rng(0)
    x, y, b = ("placeholder", "x"), ("placeholder", "y"), ("buffer", "b")
    programs = [graphs.random_program(draw) for _ in range(150)]
    programs += [
        ([x, y, ("subtract", (0, 1)), ("negative", (2,))], [3, 0, 3]),
        ([x, ("add", (0, 0)), ("subtract", (1, 0))], [2]),
        ([x, y, ("exp", (0,)), ("exp", (1,)), ("multiply", (2, 3))], [4]),
        ([x, y, b, ("write", (2, 0)), ("write", (2, 1)), ("write", (2, 0)), ("sin", (0,))], [6]),
        ([x, ("constant", 0.1), ("constant", 3.0), ("add", (1, 2)), ("multiply", (0, 3))], [4]),
    ]
    for rows, outputs in programs:
        given = list(rows), list(outputs)
        after = candidate(*given)
        assert given == (rows, outputs), "the candidate changed what it was given"
        feeds = graphs.random_feeds(draw, graphs.names((rows, outputs)), 100)
        assert same_bits(execute(rows, outputs, feeds), execute(*after, feeds)), "a bit has changed"
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
print(clinic.score("rewrite", judged, par=18, rng=rng))

# %% [markdown]
# <details><summary>Hint: where do wrong passes hide?</summary>
#
# In inputs: the hard numbers of 2.1, and x equal to y. In programs: an output that is asked for twice, two writes of one
# value with another between, −(a − b), (x + x) − x. And in what a candidate does to its arguments.
# </details>
#
# ### Exercise 6.3 · cheapest (optional)
#
# In Part 4 our search took steps that gain nothing. That is not always enough: (x + y) @ z + x @ w + y @ v has three
# products. Two are enough, but every way there leads through *four*. How would you search, so that you find it, and still
# end?

# %% tags=["hole"]
def cheapest(expression, rules, most=1500):
    """The cheapest expression that you find, of those that equal the expression by these rules.

    identities.cost(expression) is its cost: what occurs twice in it is computed once.
    identities.rewrites(expression, rules) are all that one rule makes of it, in one step. Call it
    `most` times at most. The best way may lead through 1.4 times the best cost so far. About twelve
    lines.
    """
    # BEGIN SOLUTION
    found, seen, waiting = expression, {expression}, [expression]
    for _ in range(most):
        if not waiting:
            break
        current = min(waiting, key=identities.cost)
        waiting.remove(current)
        found = min(found, current, key=identities.cost)
        for new in identities.rewrites(current, rules):
            if new not in seen and identities.cost(new) <= 1.4 * identities.cost(found):
                seen.add(new)
                waiting.append(new)
    return found
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
from common.lessons.compiler.expected import rules as oracle

for task in oracle.tasks(rng):
    oracle.judge_search(task, searched(task.expression, oracle.LAWS))
print("cheapest beats greedy rewriting on 6 expressions, and every answer is proved equal")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Keep two things: all expressions that you have met, and those whose rewrites you have not looked at. Which of these should come
# next? Leave out what costs too much. When does the search end?
# </details>

# %%
uphill = oracle.UPHILL
print("given ", identities.cost(uphill), identities.text(uphill))
ways = {"greedy": identities.greedy(uphill, laws), "Part 4": oracle.cheapest(uphill, laws)[0]}
for name, found in (ways | {"yours ": cheapest(uphill, oracle.LAWS)}).items():
    print(name, identities.cost(found), identities.text(found))

# %% [markdown]
# TASO keeps what costs at most 1.05 times the best: it would miss this one, too. *egg* (Willsey and others, 2021) takes
# another way. It stores all equal expressions at once, in a graph of classes, applies all rules until nothing is new, and
# picks the cheapest at the end. Then no order of steps can be wrong, but the graph may grow without end.

# %% [markdown]
# ### Exercise 6.4 · corrections (optional)
#
# Must a substitute be right everywhere? PET also takes *partly equivalent* ones, and computes the wrong places again. For
# example, to sum the last 16 numbers at each place of a row takes 15 additions. With running sums c, `c - np.roll(c, 16)`
# takes two, for any window. But `roll` brings the end of a row to its beginning, so some sums are wrong.
#
# Which ones? Do not read the programs: run them, on numbers modulo p as in Part 4. Then cover the wrong places with boxes,
# because each box is a launch of the original. Which inputs would hide a difference?

# %% tags=["hole"]
def corrections(original, substitute, shape):
    """[(top, bottom, left, right), ...]: boxes of all places where two programs can differ.

    original, substitute: functions of an array of this shape (rows, columns), uint64, of numbers
    modulo identities.PRIME, to another one. A box has rows top to bottom - 1, and columns left to
    right - 1. Each place where results can differ is in one box, and no other place is in any. No two
    boxes may touch so that they are one box. No boxes: []. About thirteen lines.
    """
    # BEGIN SOLUTION
    x = np.random.default_rng(0).integers(0, identities.PRIME, shape, np.uint64)
    differ = original(x) != substitute(x)
    boxes, begun = [], {}  # begun: {(left, right): top} of the boxes that the row above belongs to
    for row in range(shape[0] + 1):
        line = differ[row] if row < shape[0] else np.zeros(shape[1], bool)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], line, [False]]))).tolist()
        runs = set(zip(edges[::2], edges[1::2]))
        for run in set(begun) - runs:
            boxes.append((begun.pop(run), row, *run))
        for run in runs - set(begun):
            begun[run] = row
    return boxes
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.compiler.expected import substitutes as oracle

for name, shape in oracle.pairs(rng):
    boxes = corrections_of(name, shape)
    oracle.judge_boxes(name, shape, boxes, rng)
print("corrections covers all wrong places of six substitutes on 42 shapes, and no others")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Zeros, ones, small or equal numbers, and rows that read the same from both ends hide differences. What is left?
# </details>
# <details><summary>Hint 2</summary>
#
# Go row by row. The wrong places of a row are runs. If the row above has the same run, its box grows by one row. Else a box
# ends, or begins.
# </details>

# %%
x = rng.integers(0, identities.PRIME, (64, 4096), np.uint64)
boxes = corrections(*partial_equivalence.PAIRS["window"], x.shape)
print(*partial_equivalence.sums(x, boxes), f"in {len(boxes)} box", sep="\n")
print(f"a wrong place is missed: at most {x.size / identities.PRIME:.2%}")

# %% [markdown]
# How sure is this? Each result is a polynomial in the inputs. Where two of degree d differ, a random input hides it with
# probability at most d/p: here d is 1, and there are 262,144 places. PET tests fewer places. Where results are sums over
# the same ranges, they form a box, and a few places decide for all of it.
#
# **A substitute may be wrong, if you know where, and if the correction costs less than it saves.**

# %% [markdown]
# ### Graph breaks
#
# Dynamo ends a graph where Python asks for something that the graph can't know in advance. Python then goes on by itself,
# until the next graph begins. Here are three of six functions. Into how many graphs does each of the six fall? Read,
# guess, then count.

# %%
from common.lessons.compiler import graph_breaks

print(graph_breaks.text("asks_for_data", "asks_for_shape", "selects"))

# %%
# BEGIN SOLUTION
graphs_expected = {"straight": 1, "asks_for_data": 2, "asks_for_shape": 1, "selects": 1,
                   "reads_a_number": 2, "prints": 2}
# END SOLUTION

# %% tags=["nbval-ignore-output"]
for name, guess in graphs_expected.items():
    counted, reason = graph_breaks.breaks(name)
    print(f"{name:15} {counted} graphs (you: {guess})  {reason}")

# %% [markdown]
# <details><summary>Why</summary>
#
# A shape is known while tracing: it becomes a guard, as yours did in 5.1. A number in a tensor is not known before the
# graph has run, so `if y.sum() > 0` and `.item()` break it. `print` is no operator. But where both sides of a branch are
# cheap, `torch.where` computes both and selects, and nothing breaks.
# </details>
#
# A break costs twice. No operator is fused across it, and the host waits for the GPU before it knows what to launch next.
# `torch.compile(f, fullgraph=True)` makes each break an error.

# %% [markdown]
# ### CUDA graphs
#
# A small kernel takes less time than its launch (lab 02). A *CUDA graph* records the launches of a whole program once,
# with all their arguments, and replays them by one call. It is made by running the program once, and nothing of Python is
# in it. So it forbids what a recording can't hold: other addresses, other shapes, and a host that waits for a result. What
# will a replay compute if you bind a new tensor to the name of the input?

# %% tags=["nbval-ignore-output"]
from common.lessons.compiler import cuda_graphs

print(*cuda_graphs.lines(), sep="\n")

# %% [markdown]
# <details><summary>What a GPU shows</summary>
#
# The replay still reads the old address: its result is stale, and nothing warns. So one copies new inputs into the recorded
# tensor. The `if` can't be recorded at all: CUDA reports an error. `torch.compile(mode="reduce-overhead")` records for you.
# It copies inputs, keeps one recording per shape, and gives up recording where a graph mutates its inputs.
# </details>
#
# **A recording is a compiled program that holds for one set of addresses, and nothing guards them.**
