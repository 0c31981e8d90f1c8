# %% [markdown]
# # 15 · Pipeline parallel
#
# **A model is cut by layers over p devices. How do you keep all of them busy?**
#
# At the end of this lab you can
#
# - train one model on p stages, with exactly the gradients of one device;
# - predict the idle time and the memory of a schedule (GPipe, 1F1B, zero-bubble), and see both on a timeline;
# - say what more stages do to the idle time, and why real GPUs idle more than predicted.
#
# You need labs 07, 11 and 12, and no GPU. The core path takes about 150 minutes.
#
# Write your answers in the cells that raise `NotImplementedError`. The grader reads only those.

# %% tags=["setup"]
import functools
import itertools

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from common import figures, language_model, ledger
from common.checks import agree, clinic, expect, remark
from common.figures.memory_drawings import compare
from common.lessons.pipeline_parallel import pipelines
from common.lessons.pipeline_parallel.pipelines import held, on_stages, played, written
from nogpu import ranks

# %% tags=["setup"]
figures.use_style()
torch.set_default_dtype(torch.float64)  # so that "the same gradients" can mean ten digits
rng = np.random.default_rng()
FREE = {"alpha_s": 0.0, "beta_s_per_byte": 0.0, "live_bytes": False}  # messages take no time
CLOSE = {"rtol": 1e-10, "atol": 1e-13}
DIVIDE = "Divide the loss by the number of microbatches: autograd adds up m means."
ROWS = 32  # of a microbatch

def normal(*size):
    return torch.tensor(rng.normal(size=size))

# %% [markdown]
# Minutes per exercise, estimated from the lines of our solution: 1.1 15, 1.2 15, 1.3 35, 2.1 15, 2.2 15, 2.3 10, 3.1 10,
# 3.2 15, and 20 for reading.
#
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 11: two neighbours both call <code>recv</code> first and <code>send</code>
# afterwards. What happens?</summary>
#
# They wait for ever. `isend` and `irecv` begin a message and return.
# </details>
#
# <details><summary>Lab 07: what must the forward pass of y = x Wᵀ keep, and which two products does backward compute?</summary>
#
# It keeps x and W. Backward computes ∂y W and ∂yᵀ x. Each costs as much as the forward product.
# </details>

# %% [markdown]
# ## Four devices, and one at work
#
# A model too large for one GPU can be cut by layers. Stage 0 has the first layers and stage 3 the last ones. Stage 1
# can't begin before stage 0 has finished, and backward goes the other way.
#
# The work of a stage is a list of **tasks**. `("F", 0)` is the forward pass of microbatch 0, and `("B", 0)` its backward
# pass. On our clock a forward takes 1 ms, and a backward 2 ms, because it computes two products per layer. `played` says
# when each task runs if every stage does its list as soon as it can.

# %% tags=["setup", "shown"]
def gpipe(stage, stages, microbatches):
    """This stage's tasks: the forward passes of all microbatches, then all backward passes."""
    return [(kind, i) for kind in "FB" for i in range(microbatches)]

# %%
_, axes = plt.subplots(2, figsize=(7.2, 4.4))
for m, ax in zip((1, 4), axes, strict=True):
    trace = played(on_stages(gpipe, 4, m), {"F": 1e-3 / m, "B": 2e-3 / m})
    cut = "One batch" if m == 1 else f"The same batch as {m} microbatches"
    trace.draw(ax=ax, until_s=0.012, title=f"{cut}: {trace.bubble:.0%} of the time idle", row="stage")
figures.describe(axes, "Timelines of four stages: with four microbatches they overlap.")

# %% [markdown]
# The grey area is the **bubble**: device time that is paid for and not used. Cut into four **microbatches**, the same work
# takes less than half as long, because stage 1 begins when the first quarter arrives.
#
# Three questions remain. Where do you cut the model? In which order does a stage do its tasks? What must it keep meanwhile?
#
# Two models will go through our pipelines: a perceptron with one layer per stage, and the language model of this course, a
# list of layers. Here it has an embedding, seven blocks of width 16, and the scores of the next character.

# %% tags=["setup"]
def transformer(linear=nn.Linear):  # (B, T) characters -> (B, T, 128) scores; a list of nine layers
    sizes = {"layers": 7, "width": 16, "heads": 2, "hidden": 64}
    return language_model.module(trained=False, linear=linear, **sizes)

def passages(steps, m):  # inputs and targets: for each step, m microbatches of (2, 16) characters
    starts = rng.integers(0, len(language_model.text()) - 17, (steps, m, 2))
    text = torch.from_numpy(language_model.tokens(0, len(language_model.text())))
    taken = text[torch.from_numpy(starts)[..., None] + torch.arange(17)]
    return [list(step) for step in taken[..., :-1]], [list(step) for step in taken[..., 1:]]

def by_stage(model, cut):  # the weights of each stage's layers, as one vector
    return [nn.utils.parameters_to_vector(model[a:b].parameters()).detach() for a, b in cut]

# %% tags=["driver"]
# For the checks of exercises 1.2 and 1.3. You may skip it.
def linear(weight, kind=nn.Linear):
    """A layer with this weight."""
    layer = kind(*reversed(weight.shape), bias=False)
    layer.weight = nn.Parameter(weight)
    return layer

def by_hand(weights, inputs, targets, tasks):
    """(loss, gradients) of two stages in one process; tasks: (stage, kind, i)."""
    first = Stage(nn.Sequential(linear(weights[0]), nn.Tanh()), len(inputs))
    second = Stage(nn.Sequential(linear(weights[1]), nn.Tanh()), len(inputs), nn.functional.mse_loss)
    between, shares, gradients = {}, [], {}
    for stage, kind, i in tasks:
        if kind == "F" and stage == 0:
            between[i] = first.forward(i, inputs[i])
            assert between[i].grad_fn is None, "what forward returns still has its graph: detach it"
            between[i].requires_grad_()
        elif kind == "F":
            shares.append(second.forward(i, between[i], targets[i]))
            assert shares[-1].grad_fn is None, "the share of the loss still has its graph: detach it"
        elif stage == 1:
            gradients[i] = second.backward(i)
        else:
            before = gradients[i].clone()
            first.backward(i, gradients[i])
            assert torch.equal(gradients[i], before), "backward changed dy, which it was given"
    weights = first.layers[0].weight, second.layers[0].weight
    return sum(shares), [weight.grad for weight in weights]

def one_after_another(dist, count):
    """A Stage's F and B of so many microbatches of 4 MiB: the check looks at what this rank holds."""
    stage, dy = Stage(nn.Sequential(nn.Tanh()), count), torch.ones(2**19)
    for i in range(count):
        stage.forward(i, torch.ones(2**19, requires_grad=True))
        stage.backward(i, dy)
        dist.barrier()

def marked_stage(dist, weight, inputs, targets, tasks):
    """(loss, gradient, calls) of a Stage whose numbers tell in which order its methods were called."""
    class Marked(TimedStage):
        mark = 1.0

        def forward(self, i, x, target=None):
            return super().forward(i, x, target) * self.mark

        def backward(self, i, dy=None):
            dx = super().backward(i, dy)
            return dx if dx is None else dx * self.mark

        def local(self, kind, i):
            super().local(kind, i)
            self.mark *= 1.5
            for w in self.layers.parameters():
                w.grad = w.grad if w.grad is None else w.grad * 1.5

    last = dist.get_rank() == dist.get_world_size() - 1
    layers = nn.Sequential(linear(weight), nn.Tanh())
    stage = Marked(layers, 2, nn.functional.mse_loss if last else None)
    outputs = torch.zeros(ROWS, len(weight), dtype=weight.dtype)
    loss = run_stage(dist, stage, tasks, inputs, targets, outputs)
    return loss, layers[0].weight.grad, stage.done

# %% [markdown]
# ## Part 1 · Stages that pass on activations and gradients
#
# A pipeline is as fast as its slowest stage, because in every microbatch all other stages wait for it. Layers differ: the
# last layer of a language model has one row for each word of the vocabulary, and may cost as much as several blocks. So "the
# same number of layers per stage" is not the rule.
#
# ### Exercise 1.1 · partition_layers
#
# Cut a model into stages of neighbouring layers, so that the most expensive stage costs as little as possible.

# %% tags=["hole"]
def partition_layers(costs, stages):
    """[(first, end)], the layers of each stage; layer `end` belongs to the next stage.

    costs: one int per layer, 0 or more. Every stage gets at least one layer. If several cuts are
    equally good, return any of them. About eight lines.
    """
    # BEGIN SOLUTION
    total = [0, *itertools.accumulate(costs)]

    @functools.cache
    def best(end, stages):  # (cost of the most expensive stage, cuts) of the layers before end
        if stages == 1:
            return total[end], [(0, end)]
        cuts = [(first, best(first, stages - 1)) for first in range(stages - 1, end)]
        return min((max(cost, total[end] - total[first]), [*before, (first, end)])
                   for first, (cost, before) in cuts)
    return best(len(costs), stages)[1]
    # END SOLUTION

# %% tags=["check"]
from common.checks.grader_link import in_place
from common.lessons.pipeline_parallel import expected as oracle

cases = [([1, 1, 1, 1, 1, 1, 9], 4), ([1, 5, 5], 2), ([9, 1, 1], 3), ([3, 3], 1), ([0, 3, 0, 2, 2], 3)]
cases += [(rng.integers(1, 20, n).tolist(), n // 2 + 1) for n in rng.integers(1, 10, 27).tolist()]
for costs, p in [([4, 1, 5, 9, 2], 3), *cases]:
    given, case = [*costs], f"partition_layers({costs}, {p})"
    got = in_place(partition_layers, given)(given, p)
    expect(given == costs, f"{case} changed the list of costs that it was given")
    problem = oracle.cut_problem(got, costs, p)
    expect(not problem, f"{case} gave {got}: {problem}", draw=lambda: oracle.draw_cut(got, costs, p))
print("partition_layers: 33 models, no better cut")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Suppose that you know where the last stage begins. Which question is left?
# </details>
# <details><summary>Hint 2</summary>
#
# Try every place where the last stage may begin. The layers before that place are the same question with one stage less.
# `functools.cache` keeps you from asking it twice.
# </details>
#
# Now cut the language model. A linear layer does two FLOPs per weight and character, so its number of weights tells its cost.
# The embedding only looks up rows.

# %%
costs = [sum(part.weight.numel() for part in layer.modules() if isinstance(part, nn.Linear))
         for layer in transformer()]
print("costs: ", *costs)
print("stages:", *partition_layers(costs, 4))

# %% [markdown]
# ### What a stage does with one microbatch
#
# Forward computes `y = layers(x)`, and y goes to the next stage. Autograd's graph ends there, so stages pass gradients on
# themselves: the next stage sends ∂loss/∂y. `y.backward(dy)` adds to the gradients of this stage's weights, and it leaves
# ∂loss/∂x in `x.grad`.
#
# The optimizer wants the gradient of the *mean* loss over the batch, but autograd adds up the gradients of microbatches.
# What must happen to a microbatch's loss?
#
# ### Exercise 1.2 · Stage
#
# Write forward and backward of one microbatch. Several microbatches are on their way at once, and backward must find the
# activations of its own.
#
# <details><summary>Hint 1</summary>
#
# What does `backward(i)` need that only `forward(i)` had?
# </details>
# <details><summary>Hint 2</summary>
#
# x, and y with its graph: keep both under i, and take them out again. Divide a mean by the number of microbatches.
# </details>

# %% tags=["hole"]
class Stage:
    """Some of a model's layers, and what backward needs of the microbatches that are on their way."""

    def __init__(self, layers, microbatches, loss=None):
        """loss: of (output, target), a mean over the microbatch; None except on the last stage."""
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        """The output for microbatch i, without its graph; on the last stage, its share of the loss.

        The shares of all microbatches add up to the mean loss over the batch. Keep in `self.kept`
        what backward needs. About five lines.
        """
        # BEGIN SOLUTION
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target) / self.microbatches
        self.kept[i] = x, y
        return y.detach()
        # END SOLUTION

    def backward(self, i, dy=None):
        """∂loss/∂x of microbatch i, or None if x needs no gradient; the microbatch is then forgotten.

        Adds to the gradients of the weights. dy: ∂loss/∂y from the next stage; None on the last stage.
        Three lines.
        """
        # BEGIN SOLUTION
        x, y = self.kept.pop(i)
        y.backward(dy)
        return x.grad
        # END SOLUTION

    def local(self, kind, i):
        """A task without messages. Part 3 has one: "W", the weight gradients that layers put off."""
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% tags=["check"] points=2
from common.lessons.pipeline_parallel import expected as oracle

for case in ("equal microbatches", "distinct microbatches (does each find its own activations?)"):
    w, xs, ts = normal(2, 5, 5), *normal(2, 1 if case[0] == "e" else 4, 2, 5).expand(2, 4, 2, 5)
    loss, want = oracle.perceptron(w, xs, ts)
    with oracle.hint(oracle.IN_STAGE):
        got = by_hand(*map(list, (w.clone(), xs.clone(), ts.clone())), oracle.BY_HAND)
    agree(got[0], loss, f"{case}: the sum of the shares", mistakes=oracle.shares(DIVIDE, loss), **CLOSE)
    wrong = oracle.of_stages(DIVIDE, w, xs, want, got[1])
    agree(got[1], want, f"{case}: gradients", mistakes=wrong, **CLOSE,
          draw=lambda: compare(torch.cat(got[1]), torch.cat(want), title="gradients by stage"))
oracle.expect_forgotten(ranks.run(one_after_another, 8, world_size=1, held=True).trace)
print("Stage: loss and gradients of one device, and nothing left over")

# %% tags=["driver"]
# What runs on each rank from here on: perceptron_stage. It calls your run_stage.
class TimedStage(Stage):
    """A Stage that notes its calls. They take their time on the clock, `slower` times."""

    seconds, slower = pipelines.TOGETHER, 1

    def __init__(self, *options):
        super().__init__(*options)
        self.done = []

    def forward(self, i, x, target=None):
        self.done.append(("F", i))
        ranks.compute(self.slower * self.seconds["F"], f"F{i}")
        return super().forward(i, x, target)

    def backward(self, i, dy=None):
        self.done.append(("B", i))
        ranks.compute(self.slower * self.seconds["B"], f"B{i}")
        return super().backward(i, dy)

    def local(self, kind, i):
        self.done.append((kind, i))
        ranks.compute(self.slower * self.seconds.get(kind, 0.0), f"{kind}{i}")
        super().local(kind, i)

def open_links(dist):
    """{(src, dst): process group} of neighbours, one for each direction."""
    ways = []
    for stage in range(dist.get_world_size() - 1):
        ways += [(stage, stage + 1), (stage + 1, stage)]
    return {way: dist.new_group(list(way)) for way in ways}

def perceptron_stage(dist, weight, inputs, targets, tasks, slower=1, steps=1, linked=True):
    """(loss, gradient, the calls of its Stage) on this rank, whose layers have these weights.

    weight: (n, n), or (layers, n, n). inputs, targets: m of (ROWS, n), None where not used.
    """
    last, m = dist.get_rank() == dist.get_world_size() - 1, 1 + max(i for _, i in tasks)
    kind = LinearApart if ("W", 0) in tasks else nn.Linear
    n = weight.shape[-1]
    layers = nn.Sequential()
    for w in weight.reshape(-1, n, n):
        layers.append(linear(w, kind)).append(nn.Tanh())
    stage = TimedStage(layers, m, nn.functional.mse_loss if last else None)
    stage.seconds, stage.slower = pipelines.seconds_of([tasks]), slower
    given, like, links = list(tasks), torch.zeros(ROWS, n, dtype=weight.dtype), [open_links(dist)]
    for _ in range(steps):
        stage.layers.zero_grad()
        loss = run_stage(dist, stage, tasks, inputs, targets, like, *links[:linked])
    assert tasks == given, "run_stage changed the list of tasks that it was given"
    gradients = [w.grad for w in stage.layers.parameters()]
    return loss, torch.stack(gradients).reshape(weight.shape), stage.done

def perceptron_data(p, m, n=4, layers=1):
    """[weights, inputs, targets], by rank: its own layers' weights, and what it needs of the data."""
    x, y = torch.randn(2, m, ROWS, n)
    weights = torch.randn(p, layers, n, n) / n
    return [list(weights), [list(x)] + [None] * (p - 1), [None] * (p - 1) + [list(y)]]

class Waiting:
    """dist, whose isend returns only when the message has arrived: for a broken pipeline."""

    def __init__(self, dist):
        self.get_rank, self.get_world_size = dist.get_rank, dist.get_world_size
        self.new_group, self.irecv, self.begin = dist.new_group, dist.irecv, dist.isend

    def isend(self, tensor, dst, group):
        work = self.begin(tensor, dst, group=group)
        work.wait()
        return work

def waiting_stage(dist, *data):
    """perceptron_stage, whose isend waits."""
    return perceptron_stage(Waiting(dist), *data)

# %% [markdown]
# ### Who sends when
#
# Now each rank is a stage. `perceptron_stage` gives each rank its layer. Only rank 0 has inputs, and only the last rank has
# targets. NCCL carries the messages of one process group one after another, and an activation on its way down must not wait
# for a gradient on its way up. Therefore `links` has one group for each direction.
#
# ### Exercise 1.3 · run_stage
#
# Do the tasks of a rank. `isend` begins a message and returns, so no stage waits to send. The tensor must stay unchanged
# until `wait()` returns. When does that `wait()` cost nothing? (A microbatch's gradient can't come back before its
# activation has arrived.)

# %% tags=["hole"]
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    """Does this rank's tasks in order; returns the batch's loss on the last rank, None on the others.

    stage: a Stage. tasks: ("F", i) takes inputs[i] on the first rank; on others it takes what the rank
    before sends, and this tensor must require a gradient. The last rank has targets[i]. ("B", i) takes
    the gradient that the next rank sends. A task of another kind needs no message: call
    stage.local(kind, i). like: every message has its shape and dtype. links: {(src, dst): group}, the
    group= of each message; without links, group=None. Every isend needs its wait(), at the latest
    before the end. What was sent must not stay in memory to the end. About 25 lines.
    """
    # BEGIN SOLUTION
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    sent, loss = {}, None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    def send(tensor, dst, name):
        if name in sent:
            sent.pop(name).wait()
        sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                send(y, me + 1, i)
            else:
                loss = y if loss is None else loss + y
        elif kind == "B":
            dy = None if me == last else received(me + 1)
            if me < last:
                sent.pop(i).wait()  # its gradient is here, so it has arrived
            dx = stage.backward(i, dy)
            if me > 0:
                send(dx, me - 1, "gradient")
        else:
            stage.local(kind, i)
    for work in sent.values():
        work.wait()
    return loss
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.pipeline_parallel import expected as oracle

for name, schedule, p in ("GPipe", gpipe, 3), ("1F1B", oracle.one_f_one_b, 3), ("one stage", gpipe, 1):
    w, xs, ts, none = normal(p, 5, 5), normal(4, ROWS, 5), normal(4, ROWS, 5), [None] * (p - 1)
    loss, want, wrong = oracle.in_stages(w, xs, ts)
    data = [list(w), [list(xs), *none], [*none, list(ts)], tasks := on_stages(schedule, p, 4)]
    with oracle.hint(oracle.ON_RANKS):
        ran = ranks.run(perceptron_stage, *map(ranks.each, data), world_size=p, **FREE)
    losses, gradients, _ = map(list, zip(*ran.returns, strict=True))
    agree(gradients, want, f"{name}: {oracle.BY_STAGE}", mistakes=wrong, **CLOSE)
    agree(losses, loss, f"{name}: the sum of the shares", mistakes=oracle.averaged(loss, 4), **CLOSE)
    oracle.remark_time(ran, tasks, name)
print("run_stage: gradients and loss of one device")

# %% tags=["check"]
from common.lessons.pipeline_parallel import expected as oracle

w, xs, ts = (normal(2, *sizes).float() for sizes in ((4, 4), (ROWS, 4), (ROWS, 4)))
tasks = [oracle.tasks_of(text) for text in ("F0 X0 F1 X1 B0 X2 B1 X3", "F0 X0 B0 X1 F1 X2 B1 X3")]
data = [ranks.each(each) for each in ([*w], [[*xs], None], [None, [*ts]], tasks)]
want, case = oracle.marked(w, xs, ts, tasks), "gradients and losses, no links, tasks F, B, X, which"
with oracle.hint(oracle.NO_LINKS):
    result = ranks.run(marked_stage, *data, world_size=2, **FREE)
losses, gradients, done = map(list, zip(*result.returns, strict=True))
agree([gradients, losses], want, f"{case} leave their order in the numbers", rtol=1e-4, atol=1e-6,
      mistakes=oracle.calls_behind([gradients, losses], done, tasks))
oracle.remark_calls(done, tasks)
print("run_stage: other tasks are done in their place, without links, too")

# %% tags=["check"]
from common.lessons.pipeline_parallel import expected as oracle

w, (xs, ts), peaks = normal(2, 4, 4), normal(2, 16, ROWS, 4), []
for m in (4, 16):
    data = [list(w), [list(xs[:m]), None], [None, list(ts[:m])], on_stages(oracle.one_f_one_b, 2, m)]
    ran = ranks.run(perceptron_stage, *map(ranks.each, data), world_size=2)
    trace, want = ran.trace, oracle.in_stages(w, xs[:m], ts[:m])[1]
    sent = [sum(m.bytes for m in trace.messages if m.group == 1 + m.src == link) for link in (1, 2)]
    agree(sent, [m * xs[0].nbytes] * 2, "the bytes on the links down and up")
    agree([own for _, own, _ in ran.returns], want, f"gradients of {m} microbatches", **CLOSE)
    peaks.append([most - trace.live_bytes_at(r, 0.0) for r, most in enumerate(trace.peak_live_bytes)])
oracle.remark_memory(trace, peaks, xs[0].nbytes)
print("run_stage: each microbatch crosses each link once, both ways")

# %% tags=["check", "held-out"]
m, p, n = int(rng.integers(1, 6)), int(rng.integers(4, 6)), int(rng.integers(2, 6))
weights, xs, ts, none = normal(p, n, n), normal(m, ROWS, n), normal(m, ROWS, n), [None] * (p - 1)
_, want = oracle.perceptron(weights, xs, ts)
data = [list(weights), [list(xs), *none], [*none, list(ts)], on_stages(gpipe, p, m)]
result = ranks.run(perceptron_stage, *map(ranks.each, data), world_size=p, **FREE)
agree([own for _, own, _ in result.returns], want, f"{p} stages, {m} microbatches", **CLOSE)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which later event proves that an activation has arrived at the next stage?
# </details>
# <details><summary>Hint 2</summary>
#
# Keep the handle of each activation's `isend` under its microbatch, and wait for it in the backward pass of that
# microbatch. For gradients, wait for the one before when you send the next. At the end, wait for what is left. A received
# tensor is a leaf of the graph, so you may call `requires_grad_()` on it.
# </details>
#
# So far messages took no time. Now a message takes a tenth of a forward. The bars show what the ranks did (rank s runs stage
# s), and the thin lines below show what `played` predicts without messages.

# %%
tasks = on_stages(gpipe, 4, 8)
result = ranks.run(perceptron_stage, *map(ranks.each, [*perceptron_data(4, 8), tasks]), alpha_s=1e-4)
title = f"GPipe: {result.trace.bubble:.1%} idle, {played(tasks).bubble:.1%} without messages"
ax = result.trace.draw(predicted=played(tasks), row="stage", title=title)
figures.describe(ax, "Timeline of GPipe with messages, and the prediction without them as thin lines.")

# %% [markdown]
# The prediction is too low, because a stage receives before each task, and these waits add up along the pipeline.
#
# How large is the bubble? Count the slots in which a stage waits, in the forward half and in the backward half. You will
# need the formula in exercise 2.3. **With enough microbatches the bubble becomes small, but GPipe keeps the activations of
# all m microbatches until backward begins.**

# %% [markdown]
# ## Part 2 · One forward, one backward
#
# The last stage can run backward of microbatch 0 at once, and then forget its activations. In **1F1B**, a stage runs just
# enough forwards for the first gradient to come back, then a forward and a backward in turn, then the backwards that are
# left. With p = 3 and m = 4:
#
# ```
# stage 0:  F0 F1 F2 B0 F3 B1 B2 B3
# stage 1:  F0 F1 B0 F2 B1 F3 B2 B3
# stage 2:  F0 B0 F1 B1 F2 B2 F3 B3
# ```
#
# ### Exercise 2.1 · one_f_one_b
#
# A stage holds at most min(m, p − stage) microbatches, and the whole takes as long as GPipe.
#
# <details><summary>Hint 1</summary>
#
# How many forwards does each stage run before it alternates, in the example? And if m is smaller?
# </details>
# <details><summary>Hint 2</summary>
#
# p − 1 − stage, but never more than m. Then, for each backward, one forward before it while any are left.
# </details>

# %% tags=["hole"]
def one_f_one_b(stage, stages, microbatches):
    """This stage's tasks in 1F1B: a list of tuples ("F", i) and ("B", i).

    There may be fewer microbatches than stages. About six lines.
    """
    # BEGIN SOLUTION
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.pipeline_parallel import expected as oracle

for p, m in [(4, 8), (3, 4), (1, 3), (4, 2), (5, 1), *rng.integers(1, 10, (20, 2)).tolist()]:
    tasks = on_stages(one_f_one_b, p, m)
    problem = oracle.one_f_one_b_problem(tasks, m, f"one_f_one_b with p = {p} and m = {m}")
    wanted = on_stages(oracle.one_f_one_b, p, m)
    expect(not problem, problem, draw=lambda: pipelines.draw_beside(tasks, wanted))
print("one_f_one_b: the time of GPipe, and at most p − stage microbatches held")

# %%
_, ax = plt.subplots(figsize=(7.2, 2.8))
for colour, name, schedule, count in ("C0", "GPipe", gpipe, 16), ("C1", "1F1B", one_f_one_b, 3):
    data = [*perceptron_data(4, 16, layers=16), on_stages(schedule, 4, 16)]
    points = np.array(ranks.run(perceptron_stage, *map(ranks.each, data)).trace.live_bytes[1])
    ax.step(*(points * [1e3, 1e-3]).T, where="post", color=colour, label=name)
    ax.axhline(count * 17 * ROWS * 4 * 8e-3, color=colour, linestyle=":", label=f"{count} microbatches")
ax.set(xlabel="virtual time (ms)", ylabel="live tensors (kB)", ylim=(0, 400), title="Memory of stage 1")
figures.describe(ax.legend(ncols=4).axes, "GPipe climbs to 16 microbatches, 1F1B stays near three.")

# %% [markdown]
# Both schedules take the same time and give the same gradients. The dotted lines are predictions: one input and 16 layers'
# outputs per microbatch held. The steps peak about 10 to 15 kB above them. That is what the prediction leaves out: the
# weights, their gradients, and the messages on their way. It does not grow with m.
#
# **A broken pipeline.** Suppose that `isend` returned only when its message has arrived. Which of the two schedules would
# hang? Decide before you run the cell.

# %%
for schedule in (gpipe, one_f_one_b):
    try:
        data = [*perceptron_data(3, 4), on_stages(schedule, 3, 4)]
        result = ranks.run(waiting_stage, *map(ranks.each, data), world_size=3)
        print(f"{schedule.__name__}: {result.time_s:.4f} s")
    except ranks.DeadlockError as error:
        print(f"{schedule.__name__}: {error}")

# %% [markdown]
# GPipe gets through, because while activations flow, all messages flow down. In 1F1B, a stage that sends an activation down
# waits for its neighbour, and this neighbour waits to send a gradient up. **1F1B takes as long as GPipe and holds p
# microbatches instead of m. Its messages cross, so no stage may wait to send.**

# %% tags=["driver"]
def judged(source):
    """What your test says of the program with this text: "" if it accepts it."""
    return clinic.verdict(test_schedule, source)

# %% [markdown]
# ### Exercise 2.2 · test_schedule
#
# How would you notice that a schedule is *almost* 1F1B? Write a test. We run it on 3 right programs and on 13 wrong ones, and
# it must refuse at least 11 of the wrong ones (that is par). Many faults show up only for some numbers of stages and
# microbatches.

# %% tags=["hole"]
def test_schedule(candidate):
    """Raises AssertionError unless `candidate` is a correct 1F1B, for any stages and microbatches.

    candidate(stage, stages, microbatches) gives a list of tasks. Correct: each F and B is done exactly
    once per microbatch, the pipeline does not hang, it takes as long as GPipe, and stage s holds at
    most min(m, p − s) microbatches. You can use on_stages(candidate, p, m), held(tasks of one stage)
    and played(tasks).time_s, in seconds; played raises AssertionError if no stage can go on. About
    eight lines.
    """
    # BEGIN SOLUTION
    for p, m in [(1, 3), (2, 1), (4, 2), (3, 3), (3, 4), (4, 12)]:
        tasks = on_stages(candidate, p, m)
        for stage, own in enumerate(tasks):
            assert sorted(own) == [(kind, i) for kind in "BF" for i in range(m)], f"{p}, {m}: {own}"
            assert held(own) <= min(m, p - stage), f"stage {stage} of {p} holds {held(own)}"
        assert played(tasks).time_s < (m + p - 1) * 3e-3 + 1e-9, f"{p}, {m}: too slow"
    # END SOLUTION

# %% tags=["check"]
print(clinic.score("schedule", judged, par=11, rng=rng))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which numbers of stages and microbatches are special?
# </details>
# <details><summary>Hint 2</summary>
#
# One stage, one microbatch, fewer microbatches than stages, many more. Check the tasks, what is held, and the time.
# </details>
#
# ### More stages at the same global batch
#
# Someone asks: *how does the bubble change with more pipeline stages, if global batch and model stay the same? A: it grows a
# lot. B: it grows slightly or not at all. C: it shrinks a lot.*
#
# A step's batch is divided among **replicas** of the model, each with p stages. As p grows, either the number of GPUs stays
# the same, with fewer replicas and more microbatches for each, or the number of replicas stays the same, with p times as
# many GPUs.
#
# ### Exercise 2.3 · bubble
#
# Compute the share of idle time for either reading.
#
# <details><summary>Hint</summary>
#
# How many microbatches does one replica get? Then which formula of this part applies?
# </details>

# %% tags=["hole"]
def bubble(stages, batch, gpus=None, replicas=None):
    """The share of its time that 1F1B idles, from 0 to 1.

    batch: microbatches per step, of all replicas together. Either `gpus` is given, the number of all
    GPUs, or `replicas`. About four lines.
    """
    # BEGIN SOLUTION
    if replicas is None:
        replicas = gpus / stages
    microbatches = batch / replicas
    return (stages - 1) / (microbatches + stages - 1)
    # END SOLUTION

# %% tags=["check"]
from common.lessons.pipeline_parallel import expected as oracle

for p, copies, m in [(4, 5, 5), (1, 3, 2), *rng.integers(1, 9, (28, 3)).tolist()]:
    want = 1 - 3e-3 * m / played(on_stages(gpipe, p, m)).time_s
    for same in ({"gpus": p * copies}, {"replicas": copies}):
        case, wrong = f"bubble({p}, {m * copies}, **{same})", oracle.bubbles_otherwise(p, m, copies)
        agree(bubble(p, m * copies, **same), want, case, rtol=1e-9, atol=1e-12, mistakes=wrong)
print("bubble agrees with 30 timelines, with GPUs held and with replicas held")

# %%
# Predict. A cluster of 32 GPUs has 16 replicas of 2 stages, and a step has 128 microbatches. How many
# times as large is the bubble with 32 stages on the same GPUs, and how many times with 16 replicas?
GPUS_HELD = functools.partial(bubble, batch=128, gpus=32)  # functions of the number of stages
REPLICAS_HELD = functools.partial(bubble, batch=128, replicas=16)
# BEGIN SOLUTION
times_gpus_held = GPUS_HELD(32) / GPUS_HELD(2)
times_replicas_held = REPLICAS_HELD(32) / REPLICAS_HELD(2)
# END SOLUTION
ledger.guess("bubble × from 2 to 32 stages, GPUs held", times_gpus_held, "times")
ledger.guess("bubble × from 2 to 32 stages, replicas held", times_replicas_held, "times")

# %%
per_replica, dots = {"replicas held": lambda p: 128 // 16, "GPUs held": lambda p: 128 * p // 32}, {}
for name, m in per_replica.items():
    dots[name] = [played(on_stages(one_f_one_b, p, m(p))).bubble for p in (2, 4, 8, 16, 32)]
    ledger.counted(f"bubble × from 2 to 32 stages, {name}", dots[name][-1] / dots[name][0], "times")
lines = {"replicas held": REPLICAS_HELD, "GPUs held": GPUS_HELD}
ax = pipelines.draw_stages((2, 4, 8, 16, 32), lines, dots)
ends = ", ".join(f"with {name} to {shares[-1]:.2f}" for name, shares in dots.items())
figures.describe(ax, f"The idle share from 2 to 32 stages: {ends}.")

# %% [markdown]
# The lines meet the counted dots exactly. With the GPUs held, each replica has m = k·p microbatches, where k is the batch per
# GPU. The bubble (p − 1)/(kp + p − 1) stays below 1/(k + 1), here 0.2: that is between A and B. With the replicas held, it
# grows to 0.79: that is A. C is never true. **More stages on the same GPUs cost a bounded bubble. More GPUs for more stages
# cost almost everything.**

# %% tags=["driver"]
# For part 3: a layer whose backward comes in two halves, which you write below.
class LinearApart(nn.Linear):
    """A linear layer whose weight gets its gradient later: by one weight_gradient() per backward."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.put_off = []

    def forward(self, x):
        return MatmulApart.apply(x, self.weight, self.put_off)

    def weight_gradient(self):
        add_weight_gradient(*self.put_off.pop(0))

def halves(dist, weight, inputs, gradients, first):
    """[outputs, input gradients, weight gradient so far after each weight_gradient()].

    first: whether it is the model's first layer, whose inputs need no gradient.
    """
    layer = linear(weight, LinearApart)
    inputs, so_far = [x.requires_grad_(not first) for x in inputs], []
    outputs = [layer(x) for x in inputs]
    with ranks.span("B"):
        for y, dy in zip(outputs, gradients, strict=True):
            y.backward(dy)
    with ranks.span("W"):
        for _ in inputs:
            layer.weight_gradient()
            so_far.append(layer.weight.grad.clone())
    return [[y.detach() for y in outputs], [x.grad for x in inputs], so_far]

# %% [markdown]
# ## Part 3 · Weight gradients can wait
#
# The backward pass of a layer is two products. ∂x = ∂y W is urgent, because the stage before waits. ∂W = ∂yᵀ x is not: nobody
# needs it before the optimizer's step. **Zero-bubble** schedules (Qi et al., 2023) make two tasks of them: `"B"` now
# computes only ∂x, and `"W"` computes ∂W. An idle stage does a `"W"`.
#
# ### Exercise 3.1 · MatmulApart
#
# To separate the products, write the backward pass yourself: `backward` of a `torch.autograd.Function` gets ∂y and returns a
# gradient for each argument of `forward`, or None. Later, `add_weight_gradient` is called once for each entry of `put_off`,
# the oldest entry first.

# %% tags=["hole"]
class MatmulApart(torch.autograd.Function):
    """x Wᵀ, whose backward puts off the weight's gradient."""

    @staticmethod
    def forward(ctx, x, weight, put_off):
        """x (..., inputs), weight (outputs, inputs), put_off a list -> (..., outputs)."""
        ctx.save_for_backward(x, weight)
        ctx.put_off = put_off
        return x @ weight.T

    @staticmethod
    def backward(ctx, dy):
        """(∂loss/∂x, None, None); appends the tuple (weight, x, dy) to put_off. About three lines."""
        # BEGIN SOLUTION
        x, weight = ctx.saved_tensors
        ctx.put_off.append((weight, x, dy))
        return dy @ weight, None, None
        # END SOLUTION

def add_weight_gradient(weight, x, dy):
    """Adds ∂loss/∂weight to weight.grad, which is None at first. x (..., inputs), dy (..., outputs)."""
    # BEGIN SOLUTION
    gradient = dy.flatten(0, -2).T @ x.flatten(0, -2)
    weight.grad = gradient if weight.grad is None else weight.grad + gradient
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.pipeline_parallel import expected as oracle

for first, rows in ((False, (4,)), (False, (2, 3)), (False, (2, 1, 3)), (True, (6,))):
    weight, xs, dys = normal(7, 5), normal(3, *rows, 5), normal(3, *rows, 7)
    products, sums, wrong = oracle.halves(weight, xs, dys, first)
    with oracle.hint(oracle.APART):
        result = ranks.run(halves, weight, list(xs), list(dys), first, world_size=1, flops_per_s=1e9)
    agree(result.returns[0][:2], products, "outputs and input gradients", **CLOSE)
    wrong |= oracle.lost(result.returns[0][2], sums)
    agree(result.returns[0][2], sums, "weight.grad after each W", mistakes=wrong, **CLOSE)
    oracle.remark_flops(result.trace, most=2 * xs[0].numel() * 7 * 3)
print("MatmulApart: gradients as autograd's, the weight's after each W")

# %% tags=["driver"]
# What trains a stage of the language model, and what runs schedules and real layers on processes.
def transformer_stage(dist, weights, layers, tasks, inputs, targets, rate):
    """[losses, trained weights as one vector] of this rank: layers (first, end) of the language model.

    weights: a vector. inputs, targets: a list of m microbatches for each step, None where not used.
    """
    last, m = dist.get_rank() == dist.get_world_size() - 1, 1 + max(i for _, i in tasks)
    part = transformer(LinearApart if ("W", 0) in tasks else nn.Linear)[layers[0]:layers[1]]
    nn.utils.vector_to_parameters(weights, part.parameters())
    stage = TimedStage(part, m, next_character_loss if last else None)
    stage.seconds, losses, links = pipelines.seconds_of([tasks]), [], open_links(dist)
    for xs, ys in zip(inputs, targets, strict=True):
        part.zero_grad()
        losses.append(run_stage(dist, stage, tasks, xs, ys, torch.zeros(2, 16, 16), links))
        with torch.no_grad():
            for weight in part.parameters():
                weight -= rate * weight.grad
    return [losses, nn.utils.parameters_to_vector(part.parameters()).detach()]

def next_character_loss(scores, following):
    """The mean cross-entropy in nats per character."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())

def asleep(tasks, machine):
    """(measured, predicted): the Traces of a step on processes whose tasks sleep 20 times as long."""
    p = len(tasks)
    data = [*map(ranks.each, [*perceptron_data(p, 8), tasks]), 20, 2]  # the first step connects
    trace = ranks.run(perceptron_stage, *data, machine=machine, world_size=p).trace
    by_rank = [trace.compute_named("*", rank)[-len(own):] for rank, own in enumerate(tasks)]
    zero_s = min(spans[0].start_s for spans in by_rank)
    spans = [ranks.Span(span.rank, span.name, span.start_s - zero_s, span.end_s - zero_s)
             for span in itertools.chain(*by_rank)]
    step = ranks.Trace(p, machine, [max(span.end_s for span in spans)] * p, compute=spans)
    return step, played(tasks, {kind: 20 * s for kind, s in pipelines.seconds_of(tasks).items()})

def at_work(dist, tasks, blocks, size):
    """A step of real layers, through your Stage and run_stage."""
    pipelines.timed_step(dist, Stage, run_stage, open_links(dist), tasks, blocks, size)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which of the two products does the stage before wait for? What does the other one need later?
# </details>
# <details><summary>Hint 2</summary>
#
# ∂y W is wanted now. Keep (weight, x, ∂y). For ∂yᵀ x, flatten all axes but the last of both.
# </details>
#
# ### When to do what was put off
#
# With p = 4 and m = 8, 1F1B leaves each stage idle for 3(p − 1) = 9 ms of 33. If each `"W"` comes right after its `"B"`,
# the idle time falls to 2(p − 1) ms. **ZB-H1** reaches p − 1 ms within the peak memory of 1F1B: a stage holds at most p
# microbatches, each until its `"W"`.
#
# ### Exercise 3.2 · zb_h1
#
# Find such a schedule. The whole pipeline takes 3m + p − 1 ms, and no stage holds more than p microbatches at once. The second
# check trains the language model by all three schedules.

# %% tags=["hole"]
def zb_h1(stage, stages, microbatches):
    """This stage's tasks in ZB-H1: a list of tuples ("F", i), ("B", i) and ("W", i).

    There are at least as many microbatches as stages. About nine lines.
    """
    # BEGIN SOLUTION
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
        if i >= stage:
            tasks.append(("W", i - stage))
    return tasks + [("W", i) for i in range(max(0, microbatches - stage), microbatches)]
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
from common.lessons.pipeline_parallel import expected as oracle

for p, more in [(3, 1), (4, 4), (1, 1), (2, 0), (6, 0), *rng.integers(1, 8, (20, 2)).tolist()]:
    tasks = on_stages(zb_h1, p, p + more)
    problem = oracle.zb_h1_problem(tasks, p + more, f"zb_h1 with p = {p} and m = {p + more}")
    wanted = on_stages(oracle.zb_h1, p, p + more)
    expect(not problem, problem, draw=lambda: pipelines.draw_beside(tasks, wanted))
print("zb_h1: p − 1 ms idle instead of 3(p − 1), and at most p microbatches held")

# %% tags=["check"] points=2 limit_s=30
from common.lessons.pipeline_parallel import expected as oracle

model, cut, (inputs, targets) = transformer(), [(0, 3), (3, 5), (5, 7), (7, 9)], passages(2, 4)
weights = by_stage(model, cut)
want = [*oracle.one_device(model, inputs, targets, 0.1), *by_stage(model, cut)]
for schedule in (gpipe, one_f_one_b, zb_h1):
    tasks, none = on_stages(schedule, 4, 4), [[None, None]] * 3
    own = [weights, cut, tasks, [inputs, *none], [*none, targets]]
    with oracle.hint(oracle.CHARACTERS):
        result = ranks.run(transformer_stage, *map(ranks.each, own), 0.1, **FREE)
    got = [*result.returns[3][0], *(trained for _, trained in result.returns)]
    agree(got, want, f"losses and weights; {written(tasks[:1])}", rtol=1e-10, atol=1e-12)
print("The language model on four stages, three schedules: losses and weights of one device")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Keep the order of `"F"` and `"B"` of 1F1B. Which stages can afford to put off a `"W"`? Count how many microbatches each
# stage holds in 1F1B.
# </details>
# <details><summary>Hint 2</summary>
#
# 1F1B holds p − s microbatches on stage s, so s more fit. Stage s does s `"B"` without a `"W"`. Then it does the oldest `"W"`
# after each `"B"`, and the rest at the end.
# </details>

# %%
# Predict the idle shares for p = 4 and m = 8.
# BEGIN SOLUTION
share_1f1b, share_zb_h1 = bubble(4, 8, replicas=1), 3 / (3 * 8 + 3)
# END SOLUTION
ledger.guess("bubble, one_f_one_b, 4 × 8", share_1f1b, "idle")
ledger.guess("bubble, zb_h1, 4 × 8", share_zb_h1, "idle")

# %%
_, axes = plt.subplots(3, figsize=(7.2, 7), sharex=True)
for ax, schedule in zip(axes, (gpipe, one_f_one_b, zb_h1), strict=True):
    trace = played(on_stages(schedule, 4, 8))
    trace.draw(ax=ax, until_s=0.033, title=f"{schedule.__name__}: {trace.bubble:.3f} idle", row="stage")
    ax.label_outer()
    if schedule != gpipe:
        ledger.counted(f"bubble, {schedule.__name__}, 4 × 8", trace.bubble, "idle")
figures.describe(axes, "Timelines of GPipe, 1F1B and ZB-H1: each title says the idle share.")

# %% [markdown]
# The counted shares are the predicted ones, to the last digit. Now play. **Your target: four stages, less than 5 % idle, at
# most four microbatches held per stage, in at most 24 microbatches.** (The widget has schedules of its own, so it works at
# any time.)

# %% tags=["nbval-ignore-output"]
from common.lessons.pipeline_parallel.expected import SCHEDULES

pipelines.explorer(SCHEDULES)

# %% [markdown]
# GPipe holds too much, and 1F1B needs 58 microbatches for 5 %. ZB-H1 reaches the target from m = 20 on. With one stage per
# rank a single step can't idle less than p − 1 ms, because the last stage begins p − 1 forwards late. *ZB-H2* holds up to
# 2p − 1 microbatches and lets the forwards of the next step fill this hole. **Half of backward is in no hurry: done in the
# bubble, it costs nothing.**

# %% [markdown]
# ## Part 4 · Text, and real machines
#
# The language model learns the novel on four stages. The dots must lie on the line of one device. The dotted line is the
# loss of a model that knows only how frequent each character is.

# %%
from common.lessons.pipeline_parallel.expected import one_device

model, (inputs, targets), none = transformer(), passages(24, 4), [[None] * 24] * 3
cut = [(0, 3), (3, 5), (5, 7), (7, 9)]
own = [by_stage(model, cut), cut, on_stages(zb_h1, 4, 4), [inputs, *none], [*none, targets]]
losses = ranks.run(transformer_stage, *map(ranks.each, own), 0.2, **FREE).returns[3][0]
ax = pipelines.draw_losses(alone=one_device(model, inputs, targets, 0.2), stages=losses)
figures.describe(ax, "Loss against step: the dots of four stages lie on the line of one device.")

# %% [markdown]
# Next, the same functions run on four processes. Their tasks still *sleep*, for 20 and 40 ms. So this figure tests your
# messages and your order of tasks on a real machine. It does not test computation. The bars lie a little behind the lines,
# because a message between processes takes time, and a sleeper wakes late.

# %% tags=["nbval-ignore-output"]
_, axes = plt.subplots(2, figsize=(7.2, 5.4))
machine = "nccl" if torch.cuda.device_count() >= 4 else "gloo"
for ax, schedule in zip(axes, (one_f_one_b, zb_h1), strict=True):
    trace, predicted = asleep(on_stages(schedule, 4, 8), machine)
    title = f"{schedule.__name__}, asleep: {trace.bubble:.3f} idle, {predicted.bubble:.3f} predicted"
    trace.draw(ax=ax, predicted=predicted, title=title, row="stage")
figures.describe(axes, "Measured timelines of tasks that sleep lie close to their predictions.")

# %%
# Now real layers, 16 microbatches, one stage per GPU (two on a CPU). Predict the idle share of 1F1B.
stages = max(2, torch.cuda.device_count())
TASKS = on_stages(one_f_one_b, stages, 16)
# BEGIN SOLUTION
share_at_work = bubble(stages, 16, replicas=1)
# END SOLUTION
ledger.guess("bubble, 1F1B at work", share_at_work, "idle")

# %% tags=["nbval-ignore-output"]
machine, blocks, width = ("nccl", 16, 4096) if torch.cuda.device_count() > 1 else ("gloo", 4, 512)
ran = ranks.run(at_work, ranks.each(TASKS), blocks, width, machine=machine, world_size=stages)
trace, alone = pipelines.last_step(ran.trace)
title = f"1F1B at work: {trace.bubble:.3f} idle, {share_at_work:.3f} predicted"
figures.describe(trace.draw(predicted=played(TASKS, alone), title=title, row="stage"),
                 "Timeline of 1F1B with real layers; thin lines: tasks as long as by themselves.")
ledger.measured("bubble, 1F1B at work", trace.bubble, "idle")
ledger.table()

# %% [markdown]
# The measured share is larger than the formula's: on two H200s 0.079, where the formula says 0.059. On four H200s (`make
# bench-gpus`: 16 microbatches of 1,024 tokens, 16 blocks of width 8,192 per stage, bf16) the formula missed by 19 %. The
# simulation got one more cause per row:
#
# | what the simulation knows | idle |
# | --- | ---: |
# | equal stages, free messages: the formula | 0.158 |
# | each stage as fast as it is by itself | 0.164 |
# | messages as long as they are by themselves | 0.165 |
# | tasks as long as they are *within* the pipeline | 0.188 |
# | measured | 0.188 |

# %% [markdown]
# Most of the miss has one cause: **a task takes longer while other stages work than it takes alone, so measure tasks within
# the pipeline before you trust a timeline.** With 4 blocks per stage the miss was 6 %. Our step took 431 ms, and PyTorch's
# `Schedule1F1B` took 430.

# %% [markdown]
# ## Where it is used
#
# - *GPipe* (Huang et al., 2019); 1F1B in *PipeDream* and *Megatron-LM* (Narayanan et al., 2019 and 2021); *Zero Bubble*
#   (Qi et al., 2023). In `torch.distributed.pipelining`, too, a schedule is a list of actions per stage.
# - *Interleaving* (Llama 3): a rank has v thin stages. The bubble shrinks by v, and there are v times as many messages.
#   DeepSeek-V3's *DualPipe* feeds the pipeline from both ends.
# - With *recomputation* a stage keeps only its inputs and computes forward twice.
#
# **Limits of ours.** All stages are equally fast. An embedding shared by the first and the last stage would need its
# gradients summed.

# %% [markdown]
# ## Done
#
# `make grade LAB=15` grades your lab.

# %% [markdown]
# ## Further
#
# ### Exercise 5.1 · interleaved (optional)
#
# Give each rank v thin stages, called chunks. Chunk c of rank r is stage c·p + r, so a microbatch passes every rank v times.
# With tasks v times as short, the whole takes (m·v + p − 1)·3/v ms: the bubble is v times as small. A rank runs p microbatches
# through its first chunk, the same ones through its second, and so on; then the next p microbatches. Backward goes through
# the chunks in reversed order.

# %% tags=["hole"]
def interleaved(rank, stages, microbatches, chunks):
    """This rank's tasks in interleaved 1F1B: a list of tuples (kind, i, chunk), kind "F" or "B".

    stages: the number of ranks p, which divides microbatches. A rank runs at most
    2(p − rank − 1) + (chunks − 1)·p forwards ahead of its backwards. About twelve lines.
    """
    # BEGIN SOLUTION
    p, total = stages, microbatches * chunks
    ahead = min(2 * (p - rank - 1) + (chunks - 1) * p, total)

    def task(kind, k):
        turn, place = divmod(k, p * chunks)
        chunk, i = divmod(place, p)
        return kind, turn * p + i, chunk if kind == "F" else chunks - 1 - chunk

    tasks = [task("F", k) for k in range(ahead)]
    for k in range(total):
        if k + ahead < total:
            tasks.append(task("F", k + ahead))
        tasks.append(task("B", k))
    return tasks
    # END SOLUTION

# %% tags=["check"]
from common.lessons.pipeline_parallel import expected as oracle

for p, turns, v in [(4, 2, 2), (2, 1, 3), (3, 4, 1), (1, 3, 2), *rng.integers(1, 5, (12, 3)).tolist()]:
    tasks = [interleaved(rank, p, p * turns, v) for rank in range(p)]
    case = f"interleaved with p = {p}, m = {p * turns} and {v} chunks"
    problem = oracle.interleaved_problem(tasks, p * turns, v, case)
    wanted = [oracle.interleaved(rank, p, p * turns, v) for rank in range(p)]
    expect(not problem, problem, draw=lambda: pipelines.draw_beside(tasks, wanted, row="rank"))
print("interleaved: the bubble is v times as small")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which chunk and which microbatch is the k-th forward of any rank?
# </details>
# <details><summary>Hint: the idea</summary>
#
# A turn is p microbatches through all chunks, p · v tasks. Two uses of `divmod` give turn, chunk and place. The
# k-th backward is the same with the chunks reversed. Then it is 1F1B: some forwards ahead, and then one of
# each.
# </details>
#
# ### A harder question
#
# Forward takes f, backward b and a message c, and a stage receives only when it is idle. What is the idle share of 1F1B then?
#
# <details><summary>Answer</summary>
#
# A middle stage receives twice per microbatch. A step takes (m + p − 1)(f + b) + (2(m + p) − 5)c, of which m(f + b) is work.
# With two stages there is no middle stage: (m + 1)(f + b + c). Wider models help, because f grows with the square of the
# width and c grows with the width. Fewer stages help, too. More microbatches don't help against c.
# </details>

# %% [markdown]
# ### Posting receives early
#
# We also posted each receive one task early, behind a computation. 1F1B became *slower*: 487 ms instead of 431. A receive that
# waits is a kernel that waits, and it takes multiprocessors from the computation. A timeline predicts the bubble, but only a
# stopwatch tells what messages and computation cost each other.
