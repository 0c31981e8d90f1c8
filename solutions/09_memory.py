# %% [markdown]
# # 09 · Memory
#
# **Where did 80 GB go?**
#
# After this lab you can
#
# - predict to the byte what a training step keeps, and when;
# - trade memory for time: compute again, swap to the host, use 16 bits;
# - plan buffers, checkpoints and copies, and prove that your plans hold.
#
# You need lab 07, and no GPU. The core path takes about 190 minutes.
#
# Write your answers in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
import functools

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F

from common import figures, graphs, language_model, ledger
from common.checks import agree, clinic, expect, no_fault, remark
from common.lessons.memory import arena, blocks, chains, memory_profile
from common.lessons.memory import precision, recomputed, swapping, symbolic

# %% tags=["setup"]
figures.use_style()
rng = np.random.default_rng()
BATCH, N, WIDTH, HEADS, HIDDEN, LAYERS = 8, 128, 128, 4, 512, 4  # of the language model
tokens = torch.from_numpy(language_model.tokens(0, BATCH * N + 1))
batch = tokens[:-1].view(BATCH, N), tokens[1:].view(BATCH, N)

# %% [markdown]
# Estimated minutes per exercise: 1.1 10, 1.2 20, 2.1 20, 2.2 30, 3.1 20, 3.2 35, 4.1 20, 4.2 15, and 20 for reading.
#
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 01: x has a million numbers. How many bytes does x.reshape(1000, 1000).T take?</summary>
#
# None. It is a view: other strides over the same storage.
# </details>
#
# <details><summary>Lab 07: the adjoint of y = tanh(x) is g · (1 − y²). Which value of the forward pass does backward read?</summary>
#
# y, not x. So y must be kept until then.
# </details>

# %% [markdown]
# ## One step, byte by byte
#
# Here the course's language model takes one step of Adam. PyTorch's allocations are watched, and each storage is sorted: weights,
# gradients, the optimizer's state, **activations** (what forward keeps for backward), and the rest, the workspace.

# %% tags=["nbval-ignore-output"]
model = language_model.module(trained=False)
adam = torch.optim.Adam(model.parameters(), 1e-3)
watch = memory_profile.step(model, adam, batch)
ax = memory_profile.draw(watch, "One training step of the language model")
figures.describe(ax, "Activations rise through forward to most of the peak and fall in backward.")
print(f"peak {watch.peak_bytes / 1e6:.1f} MB, weights {watch.peak['weights'] / 1e6:.1f} MB")

# %% [markdown]
# The weights are a small part. A model that fits on a GPU for *inference* may therefore be far too large for training: inference
# frees each activation at once. It can't free weights.
#
# Why this mountain? You will predict it, and then flatten it.

# %% [markdown]
# ## Part 1 · What a step holds
#
# | bytes per weight | weights | gradients | optimizer |
# | --- | --- | --- | --- |
# | everything in float32 | 4 | 4 | 4 for each number that it keeps |
# | mixed precision | 2 (bf16) | 2 | the same, and a copy of the weights in float32 |
#
# Plain SGD keeps nothing per weight, SGD with momentum keeps one number, Adam two. Small updates would round away in bf16. That is
# why mixed precision needs the copy.

# %% [markdown]
# ### Exercise 1.1 · training_memory
#
# What does training hold, before the first activation?
#
# <details><summary>Hint: a question</summary>
#
# Which of the three numbers depend on the precision, and which on the optimizer only?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Adam keeps two float32 numbers per weight, momentum one, and SGD none. With mixed precision the optimizer also
# holds the master weights.
# </details>

# %% tags=["hole"]
def training_memory(parameters, optimizer, precision):
    """{"weights": bytes, "gradients": bytes, "optimizer": bytes}.

    parameters: how many weights. optimizer: "sgd", "momentum" or "adam". precision: "fp32" or
    "mixed". About six lines.
    """
    # BEGIN SOLUTION
    each = 4 if precision == "fp32" else 2
    state = 4 * {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    if precision == "mixed":
        state += 4
    weights = each * parameters
    return {"weights": weights, "gradients": weights, "optimizer": state * parameters}
    # END SOLUTION

# %% tags=["check"]
from common.lessons.memory import expected as oracle

for case in oracle.memory_cases(rng):
    agree(training_memory(*case.args), case.want, case.text, mistakes=case.mistakes)
print("training_memory: three optimizers, two precisions")

# %%
for name, count in (("the language model", 836_736), ("Llama 3 8B", 8e9), ("GPT-3", 175e9)):
    for kind in ("fp32", "mixed"):
        bytes_held = sum(training_memory(count, "adam", kind).values())
        print(f"{name}, Adam, {kind}: {bytes_held / 1e9:,.3f} GB, {bytes_held / count:.0f} per weight")

# %% [markdown]
# With Adam, both rows give 16 bytes per weight. So mixed precision saves nothing here. It saves time, and half of the activations.
# A model of 5 billion weights fills 80 GB before it has read one token.
#
# Now the mountain. Backward needs values of forward, and which ones depends on the operator:
#
# | operator | its backward reads |
# | --- | --- |
# | matmul, multiply | both inputs |
# | square, gelu | its input |
# | tanh, rsqrt, log_softmax, log_sum_exp | its output |
# | attention | query, key, value, and its output |
# | pick (the loss at the targets) | the targets |
# | add, mean, view | nothing |

# %% [markdown]
# ### Exercise 1.2 · activation_bytes
#
# A graph comes as rows, as in lab 07: `(op, inputs)`. A `placeholder` is an input, a `constant` is a weight, which you counted above.
# A `view` has no memory of its own, but while it is needed, *all* of the storage behind it stays.

# %% tags=["hole"]
# Which inputs, by number, an operator's backward reads, and whether it reads the output; else nothing.
KEEPS = {"matmul": (0, 1), "multiply": (0, 1), "square": (0,), "gelu": (0,), "pick": (1,),
         "tanh": ("output",), "rsqrt": ("output",), "log_softmax": ("output",),
         "log_sum_exp": ("output",), "attention": (0, 1, 2, "output")}

def activation_bytes(rows, sizes):
    """Bytes that forward keeps for backward, without weights.

    rows: [(op, inputs), ...], inputs being numbers of earlier rows, or the name of a leaf; sizes:
    bytes of each row's value. What two operators need is kept once. About ten lines.
    """
    # BEGIN SOLUTION
    def storage(i):
        while rows[i][0] == "view":
            i = rows[i][1][0]
        return i

    kept = set()
    for i, (op, inputs) in enumerate(rows):
        for which in KEEPS.get(op, ()):
            kept.add(storage(i if which == "output" else inputs[which]))
    return sum(sizes[i] for i in kept if rows[i][0] != "constant")
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.memory import expected as oracle

for case in oracle.activation_cases(rng):
    agree(activation_bytes(*case.args), case.want, case.text, mistakes=case.mistakes)
print("activation_bytes: what PyTorch saves, to the byte, of 30 random graphs, a block and the loss")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Collect row numbers in a set. Before you add a row, follow its views down to the row that has the storage.
# </details>
#
# PyTorch tells what it saves, through *saved-tensor hooks*. Predict its bytes for one block, then look.

# %%
sizes = [1, 2, 4, 8, 16]
predicted = [activation_bytes(*blocks.block(b, N, WIDTH, HEADS, HIDDEN)) for b in sizes]
xs = [torch.randn(b, N, WIDTH, requires_grad=True) for b in sizes]
saved = [memory_profile.saved_bytes(model[1], x, besides=model[1].parameters()) for x in xs]
ax = figures.predicted_and_measured(sizes, predicted, saved, xlabel="texts in a batch", yunit="B",
    ylabel="kept by one block", title="What a block keeps for its backward")
figures.describe(ax, "The bytes grow with the batch; the dots lie on the line.")

# %% tags=["nbval-ignore-output"]
ledger.guess("kept by a block, 16 texts", predicted[-1], "B")
ledger.measured("kept by a block, 16 texts", saved[-1], "B")
print(f"one block keeps {saved[3] / xs[3].nbytes:.2f} times its input")

# %% [markdown]
# A block keeps 18 times its input, and the prediction is exact on a CPU. (On a GPU the norm is one fused operator, which keeps its input
# and one number per row: 16 times.) The query, the key and the value are views of one storage: count them as three, and the
# prediction is wrong.
#
# **Activations grow with the batch. Weights don't.**

# %% [markdown]
# ## Part 2 · Lifetimes
#
# A value is *live* from the moment when its operator begins until its last reader has ended. The same graph in another order has
# other lifetimes, and another peak.

# %% [markdown]
# ### Exercise 2.1 · peak_live
#
# Compute the lifetimes of a graph that runs in a given order, and the most bytes that are live at once.
#
# <details><summary>Hint: a question</summary>
#
# A value is made at its own place in the order. Which row decides when it may be freed?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Go through the order once: the last row that reads a value overwrites the place that you noted before. Outputs
# get the last place of all. Then add up, for each place, the sizes of what is live there.
# </details>

# %% tags=["hole"]
def lifetimes(rows, order, outputs):
    """{row: (first, last)}: the places in `order` between which the row's value is live, both included.

    order: the rows that run, each once. A value is live while its own row and all that read it run; the
    outputs stay to the end. Leaves are not in `order`: they belong to the caller.
    graphs.inputs(rows[i]) are the rows that row i reads. About nine lines.
    """
    # BEGIN SOLUTION
    found = {}
    for place, i in enumerate(order):
        found[i] = (place, place)
        for j in graphs.inputs(rows[i]):
            if j in found:
                found[j] = (found[j][0], place)
    for i in outputs:
        if i in found:
            found[i] = (found[i][0], len(order) - 1)
    return found
    # END SOLUTION

def peak_live(rows, sizes, order, outputs):
    """The most bytes that are live at once. Leaves don't count. About three lines."""
    # BEGIN SOLUTION
    spans = lifetimes(rows, order, outputs)
    return max(sum(sizes[i] for i, (first, last) in spans.items() if first <= place <= last)
               for place in range(len(order)))
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.memory import expected as oracle

for case in oracle.lifetime_cases(rng):
    rows, sizes, order, outputs = case.args
    want, peak, wrong, wrong_peaks = case.want
    agree(lifetimes(rows, order, outputs), want, f"lifetimes of {case.text}", mistakes=wrong)
    agree(peak_live(*case.args), peak, f"peak_live of {case.text}", mistakes=wrong_peaks)
print("lifetimes and peak_live: 30 random graphs in random orders")

# %%
rows, sizes = arena.training_graph([64, 256, 16, 128, 10], 32)
order = [i for i, (op, _) in enumerate(rows) if op != "placeholder"]
outputs = [i for i in order if rows[i][0] == "matmul" and rows[rows[i][1][0]][0] == "transpose"]
peaks = [peak_live(rows, sizes, arena.drawn_order(np.random.default_rng(seed), rows), outputs)
         for seed in range(200)]
print(f"{len(rows)} rows; written order {peak_live(rows, sizes, order, outputs):,} bytes,",
      f"200 random orders {min(peaks):,} to {max(peaks):,}")

# %% [markdown]
# The order alone changes the peak: each of the random orders needs more than the written one. Which order is best? In general this
# question is NP-hard. Frameworks use simple rules: a depth-first order, and gradients as soon as possible.
#
# The peak is a lower bound. To reach it, buffers must also *lie* well. A compiler that knows all lifetimes gives each buffer an offset in
# one **arena**, allocated once. Buffers that are never live at the same time may share bytes.

# %% [markdown]
# ### Exercise 2.2 · plan_buffers
#
# Place the buffers. The check replays your plan in poisoned memory: each buffer writes its number into its bytes, reads it back in each
# of its steps, and leaves poison. Stay within 10 % of the best arena that we find by search, on each of 200 graphs.

# %% tags=["hole"]
def plan_buffers(lifetimes):
    """[offset, ...]: where in the arena each buffer begins, in bytes.

    lifetimes: [(bytes, first, last), ...]; a buffer is live in steps first to last, both included. Two
    buffers that are live in a common step may not overlap. What may help: arena.live_bytes(lifetimes),
    a list of the live bytes in each step, and arena.arena_bytes(lifetimes, offsets), where the arena
    ends. About twenty-five lines.
    """
    # BEGIN SOLUTION
    def placed(order):
        offsets = [0] * len(lifetimes)
        done = []
        for i in order:
            size, first, last = lifetimes[i]
            others = sorted((offsets[j], lifetimes[j][0]) for j in done
                            if lifetimes[j][1] <= last and first <= lifetimes[j][2])
            at = 0
            for other, its_size in others:
                if other - at >= size:
                    break
                at = max(at, other + its_size)
            offsets[i] = at
            done.append(i)
        return offsets

    low = max(arena.live_bytes(lifetimes), default=0)
    order = sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i][0])
    plan, draw = placed(order), np.random.default_rng(0)
    for _ in range(500):
        if arena.arena_bytes(lifetimes, plan) == low:
            break
        other = list(order)
        a, b = draw.integers(0, len(order), 2)
        other.insert(b, other.pop(a))
        if arena.arena_bytes(lifetimes, placed(other)) <= arena.arena_bytes(lifetimes, plan):
            order, plan = other, placed(other)
    return plan
    # END SOLUTION

# %% tags=["check"] points=3 limit_s=30
from common.lessons.memory import expected as oracle

for buffers in oracle.arena_cases(rng, plan_buffers):
    best, low = oracle.best_arena(rng, buffers), max(arena.live_bytes(buffers), default=0)
    offsets, case = oracle.listed(plan_buffers(list(buffers))), f"plan_buffers({oracle.short(buffers)})"
    draw = functools.partial(oracle.draw_plan, buffers, offsets)
    bad = oracle.plan_fault(buffers, offsets)
    expect(not bad, f"{case} gave {offsets!r:.90}: {bad}", draw=draw)
    size, why = arena.arena_bytes(buffers, offsets), oracle.waste(buffers, offsets)
    said = f"{case}: an arena of {size} bytes; {best} are enough, for {low} live bytes. {why}"
    expect(size <= 1.1 * best, said, draw=draw)
print("plan_buffers: 200 plans, replayed in poisoned memory, within 10 % of the best found")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Place one buffer after another. For each, list those already placed that are live in a common step, by offset, and take the first
# gap that is large enough. In which order? Large ones are hard to place late. If the arena is larger than the most live bytes, move one
# buffer to another place in the order, and keep the better plan. How often?
# </details>

# %%
live_in = lifetimes(rows, order, outputs)
buffers = [(sizes[i], *live_in[i]) for i in order]
ax = arena.draw(buffers, plan_buffers(buffers), "A training step in one arena")
figures.describe(ax, "Rectangles of buffers fill the area below the arena's end without overlap.")

# %% [markdown]
# **A peak has two causes: what is live, and where it lies.** The second one is called *fragmentation*. PyTorch's allocator does not know
# lifetimes in advance, so it must guess.

# %% [markdown]
# ## Part 3 · Forget, and compute again
#
# Of a chain of N equal layers, keep only each k-th activation. Backward then computes a segment's activations again, from the one that was
# kept, just before it needs them.

# %% [markdown]
# ### Exercise 3.1 · checkpoint_every
#
# Write the plan as a list of tasks. `("F", i)` reads activation i and makes i + 1, `("D", i)` drops activation i, and `("B", i)`
# is the backward of layer i: it reads activation i, and frees it. Our runtime plays the plan, and counts. It leaves out activation n, the
# result of the last layer.
#
# Then say what that is worth. Count the peak from backward on, without forward's one more: `step_peak(9, 3, 0)` is 5. The optimizer has a
# peak of its own: PyTorch's Adam, if not fused, makes temporary copies of all weights, when no activation is left.
#
# <details><summary>Hint: a question</summary>
#
# In the first forward pass, which activations may you drop as soon as they have been read?
# </details>
# <details><summary>Hint: the idea</summary>
#
# All whose number k does not divide. Backward goes through the stretches of k layers from the end. Each stretch
# is computed again from its checkpoint, but which of its layers need not be?
# </details>

# %% tags=["hole"]
def checkpoint_every(n, k):
    """[task, ...] for layers 0 to n − 1; only activations 0, k, 2k, ... stay until their backward.

    At most ⌈n/k⌉ + k − 1 activations are live in backward, and one more in forward. No layer
    computes more than twice. About nine lines.
    """
    # BEGIN SOLUTION
    tasks = []
    for i in range(n):
        tasks.append(("F", i))
        if i % k:
            tasks.append(("D", i))
    for start in reversed(range(0, n, k)):
        stop = min(start + k, n)
        tasks += [("F", i) for i in range(start, stop - 1)]
        tasks += [("B", i) for i in reversed(range(start, stop))]
    return tasks
    # END SOLUTION

def step_peak(n, k, copies):
    """The peak of a whole step, in activations, if the optimizer needs `copies` for a moment.

    What is held all the time is not counted. About one line.
    """
    # BEGIN SOLUTION
    return max(-(-n // k) + k - 1, copies)
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.memory import expected as oracle

for n, k in [(9, 3), (25, 5), (7, 3), (5, 1), (4, 4), *rng.integers([2, 1], [30, 9], (12, 2)).tolist()]:
    tasks, case = checkpoint_every(n, k), f"checkpoint_every({n}, {k})"
    plan, most = chains.played(tasks, n, case), -(-n // k) + k - 1
    expect(plan.peak <= most, oracle.peak_said(tasks, plan, n, k, case))
    no_fault(oracle.forward_fault(plan, most, case))
    expect(max(plan.computed) <= 2, f"{case}: the layers compute {plan.computed} times, want at most 2")
    for copies in (0, most, int(rng.integers(1, 60))):
        agree(step_peak(n, k, copies), max(most, copies), f"step_peak({n}, {k}, {copies})",
              mistakes=oracle.step_mistakes(n, k, copies))
print("checkpoint_every: ⌈n/k⌉ + k − 1 activations, and at most one more forward pass")

# %%
n, ks = 36, [1, 2, 3, 4, 6, 9, 12, 18, 36]
plans = [chains.played(checkpoint_every(n, k), n, f"k = {k}") for k in ks]
ax = figures.predicted_and_measured(ks, lambda k: n / k + k - 1, [plan.peak for plan in plans],
    xlabel="layers per segment k", ylabel="live activations", dots_are="played",
    title="36 layers: the peak is lowest at k = √36")
figures.describe(ax, "The line falls from 36 at k = 1 to 11 at k = 6, and rises to 36 again.")

# %% [markdown]
# **√N segments: the memory of 2√N layers, for one more forward pass.** A training step is one part forward and two parts backward, so it
# takes 4/3 of the time.
#
# But layers are not equal. Some keep much and cost little, and with enough memory you need not drop all of them. So choose: each
# layer keeps all that it saves, or belongs to a segment that keeps only its first layer's *input*.

# %% [markdown]
# ### Exercise 3.2 · checkpoint_best
#
# Find the cheapest choice within a budget, exactly. While backward is in some layer, later layers hold nothing any more. So while
# a segment is computed again, two things count: what the earlier layers keep, and all that this segment saves.
#
# Dynamic programming: walk over the layers from the first. A *state* is (bytes kept so far, cost so far, segments so far). Of two
# states at the same layer, when can you forget one?

# %% tags=["hole"]
def checkpoint_best(costs, inputs, saved, budget):
    """[(start, stop), ...]: the segments to compute again, in order; None if nothing fits.

    costs[i]: time to compute layer i again; inputs[i]: bytes of its input; saved[i]: bytes that it
    saves, its input among them. At most `budget` bytes may be saved at once, and the costs of all
    layers in segments are to be the least in sum. A segment may have one layer. About twenty lines.
    """
    # BEGIN SOLUTION
    n = len(costs)
    states = [[] for _ in range(n + 1)]  # at layer i: (kept, cost, segments)
    states[0] = [(0, 0, [])]
    for i in range(n):
        least = float("inf")
        for kept, cost, segments in sorted(states[i]):
            if cost >= least:
                continue  # another state keeps less and costs less
            least = cost
            if kept + saved[i] <= budget:
                states[i + 1].append((kept + saved[i], cost, segments))
            inside = 0
            for stop in range(i + 1, n + 1):
                inside += saved[stop - 1]
                cost += costs[stop - 1]
                if kept + inside <= budget:
                    states[stop].append((kept + inputs[i], cost, [*segments, (i, stop)]))
    return min(states[n], key=lambda state: state[1])[2] if states[n] else None
    # END SOLUTION

# %% tags=["check"] points=3 limit_s=20
from common.lessons.memory import expected as oracle

for case in oracle.chain_cases(rng):
    costs, inputs, saved, budget = case.args
    got = checkpoint_best(*map(list, case.args[:3]), budget)
    if None in (case.want, got):
        agree(got, case.want, case.text, mistakes=case.mistakes)
        continue
    said = f"{case.text} gave {got!r:.90}"
    expect(not (bad := chains.segments_fault(got, len(costs))), f"{said}: {bad}")
    expect(chains.segments_peak(inputs, saved, got) <= budget, oracle.over(case.args, got, said))
    expect(chains.segments_cost(costs, got) == case.want, oracle.dear(case, got, said))
print("checkpoint_best: as cheap as the best of all choices, within the budget, on 60 chains")

# %% [markdown]
# <details><summary>Hint</summary>
#
# From a state at layer i there are two kinds of steps. Keep layer i: kept grows by saved[i]. Or begin a segment that stops at any later
# layer: it must fit now, kept + all that it saves, but afterwards it keeps inputs[i] only.
# </details>
#
# Does PyTorch agree? A network of unequal layers runs under `torch.utils.checkpoint`, with your segments.

# %%
widths = [64, 512, 96, 256, 32, 384, 128, 64, 320, 48]
torch.manual_seed(0)
layers = chains.unequal(widths)
inputs = [4 * 256 * m for m in widths[:-1]]
saved = [a + 4 * 256 * m for a, m in zip(inputs, widths[1:])]  # its input, and what GELU reads
costs = [2 * 256 * n * m for n, m in zip(widths, widths[1:])]

# %%
budgets = np.linspace(0.5, 1, 9) * sum(saved)
choices = [checkpoint_best(costs, inputs, saved, int(budget)) for budget in budgets]
peaks = [chains.segments_peak(inputs, saved, choice) for choice in choices]
x = torch.randn(256, widths[0], requires_grad=True)
measured = [chains.measured_peak(layers, choice, x) for choice in choices]
again = [chains.segments_cost(costs, choice) / sum(costs) for choice in choices]

# %%
ax = figures.predicted_and_measured(again, peaks, measured, xlabel="share of forward computed again",
    ylabel="saved at once", yunit="B", title="Nine unequal layers under torch.utils.checkpoint")
figures.describe(ax, "The peak falls as more is computed again; the dots lie on the line.")
print("misses:", ", ".join(f"{got / want - 1:+.1%}" for got, want in zip(measured, peaks)))

# %% [markdown]
# For this chain the prediction is exact. Is it for the language model, whose four blocks are equal, and save 18 times their input each?

# %% tags=["nbval-ignore-output"]
x = torch.randn(BATCH, N, WIDTH, requires_grad=True)
saved = [activation_bytes(*blocks.block(BATCH, N, WIDTH, HEADS, HIDDEN))] * LAYERS
for share in (1, 0.75, 0.5, 0.3):
    choice = checkpoint_best([1] * LAYERS, [x.nbytes] * LAYERS, saved, int(share * sum(saved)))
    want = chains.segments_peak([x.nbytes] * LAYERS, saved, choice)
    got = chains.measured_peak(list(model[1:-1]), choice, x)
    print(f"{share:4.0%} {choice}: {want / 1e6:.1f} MB predicted; miss {got / want - 1:+.1%}")

# %% [markdown]
# It is. With two of its four blocks computed again, the model keeps half as much.
#
# **Your turn, with numbers.** Find the cheapest choice within the budget. *Keep* a layer, compute it *again*, or join it to the segment
# before it (*with last*).

# %% tags=["nbval-ignore-output"]
chain = [4, 9, 2, 6, 3, 8], [4, 8, 2, 6, 8, 4], [12, 10, 8, 14, 12, 20]
chains.game(*chain, 48)

# %% [markdown]
# ## Part 4 · Fewer bits, and another memory
#
# Activations in 16 bits take half the bytes. bf16 has float32's range. fp16 has not: its smallest number is 6·10⁻⁸, and what is
# below half of that becomes zero. Gradients are often that small. **Loss scaling** multiplies the loss by a large number, so all
# gradients grow with it. Afterwards they are divided, in float32. If the scale is too large, a gradient becomes infinite or NaN. Then
# this step must be *skipped*, as if it had never been.

# %% tags=["driver"]
# The check of 4.1 runs this: a small network in float16, with momentum. You may skip it.

def scaled_steps(master, batches, factors, state, interval):
    """[[weights, moments, scale, stepped], ...] after each step. factors: of the loss, by step."""
    master, state, told = [w.clone() for w in master], dict(state), []
    momentum = precision.Momentum(master)
    for (x, targets), factor in zip(batches, factors):
        loss = functools.partial(precision.loss, x, targets, factor)
        stepped = loss_scaled_step(loss, master, momentum.update, state, interval)
        stepped = stepped.item() if isinstance(stepped, torch.Tensor) else stepped
        told.append([[w.clone() for w in master], [m.clone() for m in momentum.moments],
                     state["scale"], stepped])
    return told

# %% [markdown]
# ### Exercise 4.1 · loss_scaled_step
#
# Write the step that `torch.amp.GradScaler` does for you. The *master weights* are in float32.
#
# <details><summary>Hint: a question</summary>
#
# The scale multiplies the loss. Where must it be taken out again, and in which precision?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Differentiate the scaled loss by the float16 copies. Turn the gradients into float32 before you divide, else
# small ones vanish again. Then look for values that are not finite, before anything changes.
# </details>

# %% tags=["hole"]
def loss_scaled_step(loss, master, update, state, interval):
    """One step in float16. Returns whether the weights were updated.

    loss(weights): float32, of a list of float16 weights. master: list of float32 weights.
    update(gradients): changes master and the moments, given float32 gradients. state: {"scale": float,
    "good": int}, changed in place. After a gradient that is not finite: no update, half the scale,
    good = 0. Else good grows by 1; when it reaches interval, the scale doubles and good = 0. About
    fourteen lines.
    """
    # BEGIN SOLUTION
    weights = [w.half().requires_grad_() for w in master]
    gradients = torch.autograd.grad(loss(weights) * state["scale"], weights)
    gradients = [g.float() / state["scale"] for g in gradients]
    if not all(g.isfinite().all() for g in gradients):
        state["scale"] /= 2
        state["good"] = 0
        return False
    update(gradients)
    state["good"] += 1
    if state["good"] == interval:
        state["scale"] *= 2
        state["good"] = 0
    return True
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=20
from common.lessons.memory import expected as oracle

for case in oracle.scaling_cases(rng):
    got = scaled_steps(*case.args)
    for step, want in enumerate(case.want):
        said = f"[weights, moments, scale, stepped] after step {step} of {case.text}"
        agree(got[step], want, said, rtol=1e-5, atol=1e-9, mistakes=case.mistakes(step))
print("loss_scaled_step: as torch.amp.GradScaler, step by step, with overflows")

# %%
curves = precision.curves(loss_scaled_step, steps=60)
ax = precision.draw(curves)
figures.describe(ax, "fp32, bf16 and, some steps later, scaled fp16 fall alike; plain fp16 stays flat.")
print("skipped steps:", {name: curve.skipped for name, curve in curves.items()})

# %% [markdown]
# The task's loss is tiny (multiplied by 10⁻⁵), so that fp16's gradients vanish without scaling. Scaled, it falls as
# fp32 and bf16 do, but eight steps later: in these the scale came down, and nothing else happened.
#
# **A skipped step changes nothing but the scale: not the weights, and not the moments.**
#
# ### Swap
#
# The host has more memory than the device, and a link to it: 55 GB/s each way on an H200's host. Copies run next to the compute. So send
# activations away while forward goes on, and fetch them back before backward needs them.

# %% [markdown]
# ### Exercise 4.2 · swap_schedule
#
# Write the tasks in the order in which the host issues them: `("F", i)` and `("B", i)` compute; `("out", i)` copies activation i to the host
# and then frees it; `("in", i)` fetches it. Each direction does one copy at a time. A copy begins no earlier than the compute task
# that was issued last. A task that needs memory waits for room. Which layers leave? When do you fetch them?
#
# <details><summary>Hint: a question</summary>
#
# An activation that backward needs last can stay away longest. Whose is it?
# </details>
# <details><summary>Hint: the idea</summary>
#
# That of layer 0. So the first layers leave, as many as it takes until the rest fits. Issue each copy out right
# after its forward. A fetch waits for room by itself: what happens if you issue all of them before the first
# backward?
# </details>

# %% tags=["hole"]
def swap_schedule(forward_s, backward_s, sizes, bytes_per_s, room):
    """[task, ...] of a step that never holds more than `room` bytes of activations, and is fast.

    forward_s, backward_s, sizes: by layer, seconds of F and of B, and bytes of its activation; layers
    are alike, but not equal. F and in need room for the layer's bytes. About ten lines.
    """
    # BEGIN SOLUTION
    n, away = len(sizes), 0
    while sum(sizes[away:]) > room:
        away += 1
    tasks = []
    for i in range(n):
        tasks.append(("F", i))
        if i < away:
            tasks.append(("out", i))
    tasks += [("in", i) for i in reversed(range(away))]
    tasks += [("B", i) for i in reversed(range(n))]
    return tasks
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.memory import expected as oracle

for case in oracle.swap_cases(rng):
    got = swap_schedule(*case.args)
    run = swapping.played(got, case.machine, case.text)
    draw = functools.partial(swapping.draw, run, case.machine, case.text)
    expect(run.duration_s <= 1.1 * case.want, oracle.slow(case, got, run), draw=draw)
print("swap_schedule: within the room, and within 10 % of the best time found")

# %%
machine = swapping.Machine((10e-3,) * 8, (20e-3,) * 8, (int(500e6),) * 8, 55e9, int(2e9))
run = swapping.played(swap_schedule(*machine.data), machine, "8 layers")
title = f"8 layers in half the memory: {run.duration_s / machine.compute_s:.2f} times the compute"
axes = swapping.draw(run, machine, title)
figures.describe(axes, "Copies leave below forward, come back below backward; bytes stay under a line.")

# %% [markdown]
# A layer with half the compute per byte would wait for the link. The ratio decides, as it did in lab 02: FLOPs per byte of activation
# grow with the model's width.
#
# **Fetch in the order of use, and before the use.**

# %% [markdown]
# ## Where did it go?
#
# Predict the whole step of the language model, category by category, and measure it on your machine: on its GPU, if it has one. The last
# category is fragmentation: what the allocator holds for nobody at the peak. A perfect plan would have none.

# %%
def predicted_step(texts):
    """{category: bytes} at the peak, early in backward: at the last norm, or the product before it."""
    # BEGIN SOLUTION
    on_gpu, x = torch.cuda.is_available(), 4 * texts * N * WIDTH  # there, a norm is one operator
    block = activation_bytes(*blocks.block(texts, N, WIDTH, HEADS, HIDDEN, fused_norm=on_gpu))
    norm, product = (x, (2 if on_gpu else 5) * x), (0, x + 4 * HIDDEN * (texts * N + WIDTH))
    held, (kept, workspace) = training_memory(836_736, "adam", "fp32"), max(norm, product, key=sum)
    return {"weights": held["weights"], "optimizer": held["optimizer"],
            "activations": LAYERS * block + kept, "workspace": workspace}
    # END SOLUTION

# %% tags=["nbval-ignore-output"]
watch = memory_profile.step_here(batch)
guess, held = predicted_step(BATCH), watch.held
ledger.guess("peak of a training step", sum(guess.values()), "B")
ledger.measured("peak of a training step", watch.peak_bytes, "B")
ax = memory_profile.draw_bars({"predicted": guess, "measured": held}, "Where did the memory go?")
figures.describe(ax, "Two bars: activations are most of both; the measured one has fragmentation.")
print({key: f"{guess.get(key, 0) / 1e6:.1f} and {n / 1e6:.1f} MB" for key, n in held.items()})

# %% [markdown]
# What the step *needs* was predicted within 1 %. (The missing 0.1 MB are the first gradients, those of the scores.) On a CPU
# the peak is at the last norm, of five operators. On a GPU, where a norm is one, it is the product before. But the allocator
# *holds* more. On a GPU this is what `memory_stats()` calls reserved, minus what is allocated (`empty_cache()` returns whole blocks, but not gaps in others). On
# Linux without a GPU it is what lies free in the C library's heaps.
#
# **Live bytes are yours. Bytes that are held for nobody are the allocator's, and they count against the 80 GB too.**

# %% [markdown]
# ## Where it is used
#
# - [Chen et al. 2016](https://arxiv.org/abs/1604.06174), *Training Deep Nets with Sublinear Memory Cost*: √N.
# - `torch.utils.checkpoint`; selective checkpoints in Megatron-LM ([Korthikanti et al. 2022](https://arxiv.org/abs/2205.05198)) keep
#   what is dear to compute.
# - [Micikevicius et al. 2018](https://arxiv.org/abs/1710.03740), *Mixed Precision Training*: master weights and loss scaling.
# - [Rhu et al. 2016](https://arxiv.org/abs/1602.08124), *vDNN*: swap with prefetch.
#
# *Limits of ours*: layers form a chain, and a buffer never moves. Real graphs have branches, and allocators of servers page.

# %% [markdown]
# ## Done
#
# `make grade LAB=09` grades your lab.

# %% [markdown]
# ## Further
#
# The rest is optional.

# %% tags=["driver"]
# The checks below run these. You may skip the cell.

def again_results(kind, seed, inputs, slope):
    """[value, gradients, random numbers before and after backward, bytes saved] of checkpointed.

    The function doubles its first input from backward on, so the gradients tell when it ran.
    """
    function, inputs = recomputed.Scaled(kind), [x.clone().requires_grad_() for x in inputs]
    saved = memory_profile.saved_bytes(checkpointed, function, *inputs)
    torch.manual_seed(seed)
    y = checkpointed(function, *inputs)
    before, function.scale = torch.rand(2), torch.tensor(2.0)
    y.backward(slope)
    return [y.detach(), [x.grad for x in inputs], [before, torch.rand(2)], saved]

def accumulated_results(weights, microbatches):
    """[the gradients of each update] of accumulated_step, and the most graphs alive at once."""
    calls, room = [], max(len(targets) for _, targets in microbatches)
    loss = memory_profile.CountedLoss(recomputed.token_loss, room)
    def update(gradients):
        calls.append([g.detach().clone() for g in gradients])
    accumulated_step(loss, [w.clone() for w in weights], microbatches, update)
    return calls, loss.most

def fused_flops(x, targets, *weights):
    """FLOPs of products in fused_forward and fused_backward."""
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False) as counter:
        _, saved = fused_forward(x, targets, *weights)
        fused_backward(saved, *weights)
    return counter.get_total_flops()

def plan_judged(source):
    """What test_plan says of a program: "" if it accepts it."""
    return clinic.verdict(test_plan, source)

# %% [markdown]
# ### Exercise 5.1 · checkpointed (optional)
#
# What does `torch.utils.checkpoint` do? Write it as a `torch.autograd.Function`. Forward runs without a graph, and saves its inputs. Backward
# computes again, with a graph, and differentiates that. Dropout draws random numbers: the second time it must draw *the same*. And
# for the rest of the program, random numbers go on as if nothing had happened.

# %% tags=["hole"]
def checkpointed(function, *inputs):
    """function(*inputs), a tensor, of which autograd saves the inputs only.

    inputs: tensors. Random numbers come from the CPU: torch.get_rng_state, torch.set_rng_state,
    torch.random.fork_rng(devices=[]). Define a Function in this cell. About sixteen lines.
    """
    # BEGIN SOLUTION
    return Again.apply(function, *inputs)


class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *inputs):
        ctx.function, ctx.state = function, torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx, slope):
        inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.state)
            y = ctx.function(*inputs)
        return None, *torch.autograd.grad(y, inputs, slope)
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.memory import expected as oracle

for case in oracle.again_cases(rng):
    value, gradients, numbers, saved = again_results(*case.args)
    agree(value, case.want[0], f"the value of {case.text}", rtol=1e-9)
    said = f"the gradients of {case.text} (from backward on, its first input counts twice)"
    agree(gradients, case.want[1], said, rtol=1e-9, mistakes=case.mistakes)
    agree(numbers, case.want[2], f"random numbers before and after the backward of {case.text}",
          mistakes=oracle.number_mistakes(case))
    most = sum(x.nbytes for x in case.args[2])
    remark(saved <= most, f"{case.text}: autograd keeps {saved} bytes, and the inputs have {most}.")
print("checkpointed: values and gradients as without it, with the same dropout")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# What must forward keep, besides the inputs, so that dropout draws the same numbers again?
# </details>
# <details><summary>Hint: the idea</summary>
#
# The generator's state. In backward, detach the inputs and have them require gradients. Within `fork_rng`, set
# the old state and compute with `torch.enable_grad()`. `torch.autograd.grad` does the rest.
# </details>
#
# ### Exercise 5.2 · accumulated_step (optional)
#
# A batch that does not fit is cut into **microbatches**, whose gradients are added up. Their activations live one after another. Texts have
# different lengths, so microbatches have different numbers of tokens.

# %% tags=["hole"]
def accumulated_step(loss, weights, microbatches, update):
    """Calls update(gradients) once: the gradients of the mean loss over all tokens.

    loss(weights, x, targets): the mean over this microbatch's tokens. weights: list of tensors.
    microbatches: [(x, targets), ...]. Only one microbatch's graph is alive at a time. About eight
    lines.
    """
    # BEGIN SOLUTION
    total = sum(len(targets) for _, targets in microbatches)
    sums = [torch.zeros_like(w) for w in weights]
    for x, targets in microbatches:
        own = [w.detach().requires_grad_() for w in weights]
        share = loss(own, x, targets) * (len(targets) / total)
        for so_far, gradient in zip(sums, torch.autograd.grad(share, own)):
            so_far += gradient
    update(sums)
    # END SOLUTION

# %% tags=["check"]
from common.lessons.memory import expected as oracle

for case in oracle.accumulation_cases(rng):
    got, graphs_alive = accumulated_results(*case.args)
    expect(len(got) == 1, f"{case.text}: update was called {len(got)} times. One batch is one step.")
    agree(got[0], case.want, f"gradients of {case.text}", rtol=1e-9, atol=1e-12, mistakes=case.mistakes)
    remark(graphs_alive <= 1, f"{case.text}: {graphs_alive} graphs are alive at once, and 1 is enough.")
print("accumulated_step: the gradients of the whole batch, weighted by tokens")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# A microbatch of 10 tokens and one of 30 both give a mean. Which part of the mean over all tokens is each?
# </details>
# <details><summary>Hint: the idea</summary>
#
# A quarter and three quarters. Weight each loss by its share before you differentiate it, and add into one list
# of sums, so that no graph outlives its microbatch.
# </details>
#
# ### Exercise 5.3 · fused_block (optional)
#
# The end of a language model: norm, gated hidden layer, norm, scores, cross-entropy. With a large vocabulary, the scores
# dwarf all else. Write forward and backward by hand, and save at least 5 times fewer bytes than PyTorch does. But compute no
# *product* again: only what is elementwise.
#
# The gradient of a mean cross-entropy by the scores is (softmax − one at the target) / tokens. Forward knows it already.

# %% tags=["hole"]
def fused_forward(x, targets, gain, gate, up, down, last_gain, scores):
    """(loss, [tensors to save]); the loss is recomputed.block_loss(x, gain, ..., scores, targets).

    x: (tokens, width); gate, up: (width, hidden); down: (hidden, width); scores: (width, words). About
    seventeen lines.
    """
    # BEGIN SOLUTION
    normed = recomputed.norm(x, gain)
    g, u = normed @ gate, normed @ up
    h = x + (F.silu(g) * u) @ down
    with torch.enable_grad():
        own, own_gain = h.detach().requires_grad_(), last_gain.detach().requires_grad_()
        last = recomputed.norm(own, own_gain)
    log_p = (last.detach() @ scores).log_softmax(-1)
    rows = torch.arange(len(x))
    loss = -log_p[rows, targets].mean()
    d_values = log_p.exp_()
    d_values[rows, targets] -= 1
    d_values /= len(x)
    d_scores = last.detach().T @ d_values
    d_h, d_last_gain = torch.autograd.grad(last, [own, own_gain], d_values @ scores.T)
    return loss, [x, g, u, d_h, d_last_gain, d_scores]
    # END SOLUTION

def fused_backward(saved, gain, gate, up, down, last_gain, scores):
    """[the gradients of the loss by x, gain, gate, up, down, last_gain, scores].

    About fourteen lines.
    """
    # BEGIN SOLUTION
    x, g, u, d_h, d_last_gain, d_scores = saved
    with torch.enable_grad():
        x, gain = x.detach().requires_grad_(), gain.detach().requires_grad_()
        normed = recomputed.norm(x, gain)
    product = F.silu(g) * u
    d_product = d_h @ down.T
    s = torch.sigmoid(g)
    d_g, d_u = d_product * u * (s + g * s * (1 - s)), d_product * g * s
    d_x, d_gain = torch.autograd.grad(normed, [x, gain], d_g @ gate.T + d_u @ up.T)
    normed = normed.detach()
    return [d_x + d_h, d_gain, normed.T @ d_g, normed.T @ d_u, product.T @ d_h, d_last_gain, d_scores]
    # END SOLUTION

def fused_block(x, targets, *weights):
    """(loss, gradients), by your two functions."""
    loss, saved = fused_forward(x, targets, *weights)
    return loss, fused_backward(saved, *weights)

# %% tags=["check"] points=3
from common.checks.grader_link import afresh
from common.lessons.memory import expected as oracle

for tokens_, width, hidden, words in ((128, 8, 16, 400), (5, 4, 6, 9)):
    case, other = (oracle.fused_case(rng, tokens_, width, hidden, words) for _ in range(2))
    loss, saved = fused_forward(*case.copies())
    agree(loss, case.loss, f"the loss of {case.text}", rtol=1e-9)
    no_fault(case.saved_fault(saved))
    fused_forward(*other.copies())  # another block comes between
    got = afresh(fused_backward)(saved, *case.copies()[2:])
    agree(got, case.gradients, f"gradients of {case.text}", **case.close, mistakes=case.mistakes)
    remark(fused_flops(*case.copies()) <= case.flops, f"{case.text}: a product is computed again.")
print("fused_block: PyTorch's gradients, at a fifth of the bytes or less, and no product again")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which gradients can forward compute at once, because the loss is the last operator?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Those of the scores, and through them those of the last norm and of its input. So the largest tensor need not
# be saved. Of the gated layer, keep what the products gave, and compute silu and its slope again.
# </details>
#
# ### Exercise 5.4 · test_plan (optional)
#
# Now you write the replay. `candidate(lifetimes)` returns offsets, as in exercise 2.2. It may waste memory, but it must be safe. We have
# fourteen wrong programs, and par is 13.

# %% tags=["hole"]
def test_plan(candidate):
    """Raises AssertionError if the candidate's plans are wrong. About fourteen lines."""
    # BEGIN SOLUTION
    for seed in range(30):
        lifetimes = arena.drawn_lifetimes(np.random.default_rng(seed), 4 + seed // 2)
        offsets = candidate(list(lifetimes))
        assert len(offsets) == len(lifetimes), "an offset is missing"
        memory = {}
        for step in range(1 + max(last for _, _, last in lifetimes)):
            for i, (size, first, _) in enumerate(lifetimes):
                assert type(offsets[i]) is int and offsets[i] >= 0, "no offset of a byte"
                if first == step:
                    memory.update(dict.fromkeys(range(offsets[i], offsets[i] + size), i))
            for i, (size, first, last) in enumerate(lifetimes):
                if first <= step <= last:
                    for byte in range(offsets[i], offsets[i] + size):
                        assert memory[byte] == i, f"buffer {i} was overwritten"
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
print(clinic.score("plan", plan_judged, par=13, rng=rng))

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# How would you see that a plan is unsafe, if you could watch every byte?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Play the plan: when a buffer begins, write its number into each of its bytes. While it lives, all its bytes
# must still hold that number. Draw many plans, short and long, with buffers that end where others begin.
# </details>

# %% [markdown]
# ### One plan for every batch size
#
# A compiler may not know the batch size b. Then sizes hold a *symbol*: an activation takes a multiple of b bytes, a weight's
# gradient a fixed number, and an offset is `fixed + per_text · b`. Can one plan serve every b? First fit must now prove that a
# gap is large enough for each b ≥ 1. If all sizes are multiples of b, the larger of two is the same for each b. But 100 and 10·b
# have no such order. A buffer above both must begin at 90 + 10·b.
#
# Before you run it: for which b does this cost most?

# %%
buffers = symbolic.training([64, 256, 16, 128, 10])
offsets = symbolic.plan(buffers)
ax = symbolic.draw(buffers, offsets, plan_buffers, "One plan for every batch size has its price")
figures.describe(ax, "A plan for each size stays at 1; one plan for all rises to 1.4 and falls again.")
print(*(f"{at[0]} + {at[1]} · b" for at in sorted(set(offsets))[-4:]), sep="\n")

# %% [markdown]
# The best such plan that we found costs most where the fixed sizes and the growing ones are about equal: 41 % at 32 texts. Far from
# there, one kind dwarfs the other.
# So many systems compile once per size instead (XLA; CUDA graphs, one per batch size), or plan for the largest size.

# %% [markdown]
# ### On a GPU
#
# `make bench-memory` trains the course's transformer, with blocks of width 4,096, under a cap 40 % below what plain training needs. It
# compares your `checkpoint_best` and the swap with `torch.utils.checkpoint`, and the fused block with PyTorch's operators.
# [What was measured](../docs/measured.md) has the table: on an H200, 0.91 of plain training's speed with `checkpoint_best`, 0.90
# with the swap, 0.82 with a checkpoint of each block. All peaks were predicted within 0.4 %.

# %% [markdown]
# ### A harder question
#
# Checkpoints within checkpoints: a segment that is computed again may itself keep only some of its activations. How few activations can a
# chain of N layers live with, and what does that cost?
#
# <details><summary>Answer</summary>
#
# Cut the chain in two, again and again. Then log₂ N activations are enough, and forward is computed about log₂ N times (Griewank's
# *revolve* is the exact optimum, for a given number of activations). √N with one more forward pass is what training uses.
# </details>
