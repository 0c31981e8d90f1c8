# %% [markdown]
# # 15 · Pipeline parallel
#
# **A model is cut by layers over p devices. How do you keep them all busy?**
#
# At the end of this lab you can
#
# - train one model on p stages, forward and backward, with the gradients of one device;
# - predict a schedule's bubble and memory, and see both on a timeline: GPipe, 1F1B, zero-bubble;
# - say what more stages do to the bubble at a fixed global batch, for two readings of the question.
#
# You need labs 07, 11 and 12; no GPU. About 120 minutes.
#
# Where a cell ends in `raise NotImplementedError`, you write; the cell below it checks. What you want counted stands in
# its cell.

# %% tags=["setup"]
import functools
import itertools

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from common import figures, ledger, ranks, samples
from common.checks import agree

figures.use_style()
torch.set_default_dtype(torch.float64)  # so that "the same gradients" can mean ten digits
rng = np.random.default_rng()

# %% [markdown]
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 11: two neighbours both call `recv`, then `send`. What happens?</summary>
#
# Nothing, for ever: each waits for what the other would send afterwards. `isend` and `irecv` begin a message and return.
# </details>
#
# <details><summary>Lab 07: what must the forward pass of a layer y = x Wᵀ keep for its backward pass, and which two
# products does that make?</summary>
#
# x and W. The input's gradient is ∂y W, the weight's is ∂yᵀ x: each costs what the forward product costs.
# </details>

# %% [markdown]
# ## Four devices, and one at work
#
# A model too large for one GPU is cut by layers: stage 0 has the first ones, stage 3 the last. Stage 1 can't begin before
# stage 0 is done, and backward goes the other way.
#
# A stage's work is a list of **tasks**: `("F", 0)` is forward of microbatch 0. `"B"`, backward, takes twice as long (two
# products a layer, not one); our clock says 1 and 2 ms. (`"I"` and `"W"` are its two halves, for part 3.) `played` says when
# each task runs if every stage does its list in order, each task as soon as it can.

# %% tags=["setup"]
SECONDS = {"F": 1e-3, "B": 2e-3, "I": 1e-3, "W": 1e-3}
FREE = {"alpha_s": 0.0, "beta_s_per_byte": 0.0, "live_bytes": False}  # messages take no time
CLOSE = {"rtol": 1e-10, "atol": 1e-13}
ROWS = 32  # of a microbatch

def gpipe(stage, stages, microbatches):
    """This stage's tasks: forward of all microbatches, then backward of all."""
    return [(kind, i) for kind in "FB" for i in range(microbatches)]

def needed(stage, kind, i, stages):
    """The tasks (stage, kind, microbatch) that must be over before this one begins."""
    wanted = {"F": [(stage - 1, "F")], "B": [(stage, "F"), (stage + 1, "B")],
              "I": [(stage, "F"), (stage + 1, "I")], "W": [(stage, "I")]}[kind]
    return [(s, k, i) for s, k in wanted if 0 <= s < stages]

# %% tags=["setup"]
def played(tasks, seconds=SECONDS):
    """The ranks.Trace of stages that do these lists of tasks; messages take no time."""
    p, left, spans, over_s, free_s = len(tasks), list(map(list, tasks)), [], {}, [0.0] * len(tasks)
    while any(left):
        ready = [s for s in range(p) if left[s] and all(n in over_s for n in needed(s, *left[s][0], p))]
        assert ready, f"no stage can go on; what is left:\n{written(left)}"
        for s in ready:
            kind, i = left[s].pop(0)
            start_s = max([free_s[s], *(over_s[n] for n in needed(s, kind, i, p))])
            free_s[s] = over_s[s, kind, i] = start_s + seconds[kind]
            spans.append(ranks.Span(s, f"{kind}{i}", start_s, free_s[s]))
    return ranks.Trace(p, end_s=free_s, compute=spans)

# %% tags=["setup"]
def on_stages(schedule, stages, microbatches):  # the schedule's lists of tasks, by stage
    return [schedule(stage, stages, microbatches) for stage in range(stages)]

def written(tasks):  # as lines "stage 0:  F0 F1 B0 B1"
    lines = (" ".join(f"{kind}{i}" for kind, i in own) for own in tasks)
    return "\n".join(f"stage {stage}:  {line}" for stage, line in enumerate(lines))

def insist(tasks, kinds, microbatches, case):  # refuses all but each kind of each microbatch once
    tuples = type(tasks) is list and all(type(task) is tuple for task in tasks)
    assert tuples, f"{case} gave {tasks!r}, want a list of tuples (kind, i)"
    want = sorted((kind, i) for kind in kinds for i in range(microbatches))
    assert sorted(tasks) == want, f"{case}: each of {kinds} once a microbatch; got {tasks}"

def live(tasks, last="B"):  # the most microbatches held at once; last: the task that lets go of them
    return max(itertools.accumulate((kind == "F") - (kind == last) for kind, _ in tasks), default=0)

# %%
_, axes = plt.subplots(2, figsize=(7.2, 4.4))
for m, ax in zip((1, 4), axes, strict=True):
    trace = played(on_stages(gpipe, 4, m), SECONDS if m == 1 else {"F": 0.25e-3, "B": 0.5e-3})
    cut = "One batch" if m == 1 else f"The same batch as {m} microbatches"
    trace.draw(ax=ax, until_s=0.012, title=f"{cut}: {trace.bubble:.0%} of the time idle")

# %% [markdown]
# The grey is the **bubble**: time that is paid for and not used. One batch leaves one of four devices at work. Cut into
# **microbatches**, the same work takes less than half as long: stage 1 begins when the first quarter is there.
#
# Three questions: where to cut the model, in which order a stage does its tasks, and what it must keep meanwhile.
#
# Two models will go through our pipelines: a perceptron with one layer a stage, and this transformer, which reads a novel
# character by character. It is a list of nine layers: an embedding, seven blocks, a head; no more of it matters here.

# %% tags=["setup"]
class Block(nn.Module):  # attention and perceptron, each added to what came in: (B, T, D) -> (B, T, D)
    def __init__(self, width, linear):
        super().__init__()
        shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
        self.qkv, self.out, self.up, self.down = (linear(*shape, bias=False) for shape in shapes)

    def forward(self, x):
        qkv = self.qkv(nn.functional.layer_norm(x, x.shape[-1:])).unflatten(-1, (3, 2, -1))
        heads = nn.functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(nn.functional.layer_norm(x, x.shape[-1:]))))

def next_character_loss(logits, following):  # the mean cross-entropy, in nats a character
    return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())

# %% tags=["setup"]
class Embedding(nn.Embedding):
    def forward(self, tokens):  # (B, T) -> (B, T, D); the upper half of the codes tells the place
        return super().forward(tokens) + self.weight[128 + torch.arange(tokens.shape[1])]

def transformer(width=16, blocks=7, linear=nn.Linear):  # (B, T) characters -> (B, T, 128) logits
    middle = [Block(width, linear) for _ in range(blocks)]
    return nn.Sequential(Embedding(256, width), *middle, linear(width, 128, bias=False))

def passages(steps, m):  # inputs and targets: for each step m microbatches of (2, 16) characters
    text = torch.tensor(list(samples.novel().encode()))
    starts = torch.tensor(rng.integers(0, len(text) - 17, (steps, m, 2, 1)))
    return [[list(text[step + torch.arange(shift, shift + 16)]) for step in starts] for shift in (0, 1)]

def normal(*size):
    return torch.tensor(rng.normal(size=size))

# %% tags=["setup"]
def by_stage(model, cut):  # the weights of each stage's layers, as a vector
    return [nn.utils.parameters_to_vector(model[a:b].parameters()).detach() for a, b in cut]

def perceptron(weights, xs, ts):  # on one device: the loss, and the gradients of the weights
    loss = nn.functional.mse_loss(functools.reduce(lambda y, w: torch.tanh(y @ w.T), weights, xs), ts)
    return loss.detach(), list(torch.autograd.grad(loss, weights))

def one_device(model, inputs, targets, rate):  # the losses of SGD with whole batches; trains the model
    losses, weights = [], list(model.parameters())
    for xs, ys in zip(inputs, targets, strict=True):
        losses.append(next_character_loss(model(torch.cat(xs)), torch.cat(ys)))
        for weight, gradient in zip(weights, torch.autograd.grad(losses[-1], weights), strict=True):
            weight.data -= rate * gradient
    return [loss.detach() for loss in losses]

# %% [markdown]
# ## Part 1 · Stages that pass on activations and gradients
#
# A pipeline is as fast as its slowest stage, in every microbatch: all others wait for it. Layers differ (a language model's
# head, with a row for each word of its vocabulary, may cost as much as several blocks), so "the same number of layers each"
# is not the rule.
#
# ### Exercise 1.1 · partition_layers
#
# Cut a model into stages of neighbouring layers, so that the slowest stage is as fast as can be.

# %% tags=["hole"]
def partition_layers(costs, stages):
    """[(first, end)] of each stage's layers, end not included: the dearest stage is as cheap as can be.

    costs: of each layer, ints. Every stage has a layer at least. About eight lines.
    """
    # BEGIN SOLUTION
    total = [0, *itertools.accumulate(costs)]

    @functools.cache
    def best(end, stages):  # (cost of the dearest stage, cuts) of the layers before end
        if stages == 1:
            return total[end], [(0, end)]
        cuts = [(first, best(first, stages - 1)) for first in range(stages - 1, end)]
        return min((max(dearest, total[end] - total[first]), [*before, (first, end)])
                   for first, (dearest, before) in cuts)
    return best(len(costs), stages)[1]
    # END SOLUTION

# %% tags=["check"]
cases = [([1, 1, 1, 1, 1, 1, 1, 9], 4), ([1, 5, 5], 2), ([9, 1, 1], 3)]
cases += [(rng.integers(1, 20, n).tolist(), n // 2 + 1) for n in rng.integers(1, 10, 29).tolist()]
for costs, p in cases:
    got, case = partition_layers(list(costs), p), f"partition_layers({costs}, {p})"
    ends = [(0, *cuts, len(costs)) for cuts in itertools.combinations(range(1, len(costs)), p - 1)]
    every = [list(itertools.pairwise(each)) for each in ends]
    assert isinstance(got, list) and got in every, f"{case} gave {got}; want tuples, runs of neighbours"
    mine, *others = (max(sum(costs[a:b]) for a, b in cut) for cut in [got, *every])
    even = [(len(costs) * s // p, len(costs) * (s + 1) // p) for s in range(p)]
    why = "\nThat is the same number of layers each; count their costs." if got == even else ""
    assert mine == min(others), f"{case} gave {got}: dearest {mine}, could be {min(others)}.{why}"
print("partition_layers: 32 models, no better cut")

# %% [markdown]
# <details><summary>Hint</summary>
#
# For the last stage try every place where it may begin. What is before that is the same question with one stage less.
# `functools.cache` keeps you from asking it twice.
# </details>
#
# Our transformer's cut. A linear layer does two FLOPs a weight and character, so weights tell costs; the embedding only
# looks up.

# %%
costs = [sum(part.weight.numel() for part in layer.modules() if isinstance(part, nn.Linear))
         for layer in transformer()]
print("costs: ", *costs)
print("stages:", *partition_layers(costs, 4))

# %% tags=["driver"]
# For the check of exercise 1.2: two stages in one process, walked through a list of tasks.
def linear(weight, kind=nn.Linear):
    """A layer with this weight."""
    layer = kind(*reversed(weight.shape), bias=False)
    layer.weight = nn.Parameter(weight)
    return layer

def by_hand(weights, inputs, targets, tasks):
    """(loss, gradients, microbatches still kept) of two stages here; tasks: (stage, kind, i)."""
    first = Stage(nn.Sequential(linear(weights[0]), nn.Tanh()), len(inputs))
    second = Stage(nn.Sequential(linear(weights[1]), nn.Tanh()), len(inputs), nn.functional.mse_loss)
    between, shares, gradients = {}, [], {}
    for stage, kind, i in tasks:
        if kind == "F" and stage == 0:
            between[i] = first.forward(i, inputs[i])
            assert between[i].grad_fn is None, "what forward returns still has its graph: cut it off"
            between[i].requires_grad_()
        elif kind == "F":
            shares.append(second.forward(i, between[i], targets[i]))
        elif stage == 1:
            gradients[i] = second.backward(i)
        else:
            first.backward(i, gradients[i])
    weights = first.layers[0].weight, second.layers[0].weight
    return sum(shares), [weight.grad for weight in weights], [len(first.kept), len(second.kept)]

# %% [markdown]
# ### What a stage does with one microbatch
#
# Forward: `y = layers(x)`, and y goes to the next stage. Autograd's graph ends there; none leads from device to device. So
# backward is handed over: the next stage sends ∂loss/∂y, `y.backward(dy)` adds to the gradients of this stage's weights, and
# leaves ∂loss/∂x in `x.grad` for the stage before.
#
# The optimizer wants the gradient of the *mean* loss over the batch. Each microbatch runs backward by itself, and autograd
# adds up: a sum of m means.
#
# ### Exercise 1.2 · Stage
#
# Forward and backward of one microbatch. Several are on their way at once; backward must find its own.

# %% tags=["hole"]
class Stage:
    """Some of a model's layers, and what backward needs of the microbatches that are on their way."""

    def __init__(self, layers, microbatches, loss=None):
        """loss: of (output, target), a mean over the microbatch; None but on the last stage."""
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        """The output for microbatch i, without its graph; on the last stage, its share of the loss.

        Keeps what backward needs. About five lines.
        """
        # BEGIN SOLUTION
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target) / self.microbatches
        self.kept[i] = x, y
        return y.detach()
        # END SOLUTION

    def backward(self, i, dy=None):
        """∂loss/∂x of microbatch i (None if x needs none), which is then forgotten.

        Adds to the weights' gradients. dy: ∂loss/∂y from the next stage, None on the last. Three lines.
        """
        # BEGIN SOLUTION
        x, y = self.kept.pop(i)
        y.backward(dy)
        return x.grad
        # END SOLUTION

    def weight_gradients(self, i):
        """Adds the gradients that the layers have put off: for part 3."""
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% tags=["check"] points=2
m, order = 4, "0F0 0F1 0F2 0F3 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 0B0 0B1 0B2 0B3"
tasks = [(int(stage), kind, int(i)) for stage, kind, i in order.split()]
for case in ("equal microbatches", "distinct microbatches (does each find its own activations?)"):
    weights, data = list(normal(2, 5, 5).requires_grad_()), (normal(m, 2, 5), normal(m, 2, 5))
    xs, ts = (each[:1].repeat(m, 1, 1) if case[0] == "e" else each for each in data)
    loss, want = perceptron(weights, xs, ts)
    got = by_hand([weight.detach() for weight in weights], list(xs), list(ts), tasks)
    agree(got[2], [0, 0], f"{case}: microbatches kept (each must be forgotten after its backward)")
    wrong = "Divide by m: autograd adds up m means."
    agree(got[0], loss, f"{case}: the loss", mistakes={wrong: m * loss}, **CLOSE)
    agree(got[1], want, f"{case}: gradients", mistakes={wrong: [m * each for each in want]}, **CLOSE)
print("Stage: loss and gradients of one device, and nothing left over")

# %% tags=["driver"]
# What runs on each rank from here on: perceptron_stage. It calls your run_stage.
class TimedStage(Stage):
    """A Stage whose tasks take their time. split: the weights' gradients are tasks of their own."""
    split, slower = False, 1

    def __init__(self, *options):
        super().__init__(*options)
        self.finished = []  # the microbatches whose weight_gradients were asked for

    def forward(self, i, x, target=None):
        ranks.compute(self.slower * SECONDS["F"], f"F{i}")
        return super().forward(i, x, target)

    def backward(self, i, dy=None):
        kind = "I" if self.split else "B"
        ranks.compute(self.slower * SECONDS[kind], f"{kind}{i}")
        return super().backward(i, dy)

    def weight_gradients(self, i):
        if self.split:
            ranks.compute(self.slower * SECONDS["W"], f"W{i}")
        super().weight_gradients(i)
        self.finished.append(i)

def open_links(dist):
    """{(src, dst): process group} of neighbours, one for each way."""
    ways = [(s + a, s + 1 - a) for s in range(dist.get_world_size() - 1) for a in (0, 1)]
    return {way: dist.new_group(list(way)) for way in ways}

def perceptron_stage(dist, weight, inputs, targets, tasks, apart=False, slower=1, steps=1):
    """(loss, gradient, microbatches finished) on this rank, whose layer has this weight (n, n).

    inputs, targets: m of (ROWS, n), None where not used. apart: with the LinearApart of part 3.
    """
    last, m = dist.get_rank() == dist.get_world_size() - 1, 1 + max(i for _, i in tasks)
    layer = linear(weight, LinearApart if apart else nn.Linear)
    stage = TimedStage(nn.Sequential(layer, nn.Tanh()), m, nn.functional.mse_loss if last else None)
    stage.split, stage.slower, links = ("W", 0) in tasks, slower, open_links(dist)
    for _ in range(steps):
        layer.zero_grad()
        loss = run_stage(dist, stage, tasks, inputs, targets, torch.zeros(ROWS, len(weight)), links)
    return loss, layer.weight.grad, stage.finished

def perceptron_data(p, m, n=4):
    """[weights, inputs, targets], by rank: its own layer's weight, and what it needs of the data."""
    x, y = torch.randn(2, m, ROWS, n)
    return [list(torch.randn(p, n, n) / n), [list(x)] + [None] * (p - 1), [None] * (p - 1) + [list(y)]]

class Waiting:
    """dist, whose isend returns only when the message has arrived: for a clinic."""

    def __init__(self, dist):
        self.get_rank, self.get_world_size = dist.get_rank, dist.get_world_size
        self.new_group, self.irecv, self.begin = dist.new_group, dist.irecv, dist.isend

    def isend(self, tensor, dst, group):
        work = self.begin(tensor, dst, group=group)
        work.wait()
        return work

def waiting_stage(dist, *data):
    """perceptron_stage, with no isend that deserves the name."""
    return perceptron_stage(Waiting(dist), *data)

# %% [markdown]
# ### Who sends when
#
# Now each rank is a stage. `perceptron_stage` gives it its layer; only rank 0 has inputs, only the last has targets.
# `TimedStage` lets tasks take our 1 and 2 ms. NCCL carries the messages of a process group one after another, and an
# activation on its way down must not wait for a gradient going up: `links` has a group for each way.
#
# ### Exercise 1.3 · run_stage
#
# Run a rank's tasks. `isend` begins a message and returns: no stage waits to send. Its tensor must stay as it is until
# `wait()`. When is that free? A microbatch's gradient can't come back before its activation has arrived.

# %% tags=["hole"]
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    """Does this rank's tasks, in order; the batch's loss on the last rank, None on the others.

    stage: a Stage. tasks: "F" takes inputs[i] on the first rank, on others what the rank before sends,
    which must require a gradient; the last rank has targets[i]. "B" and "I" take the gradient that the
    next rank sends. "B" and "W" end with stage.weight_gradients(i), "I" leaves it out. like: every
    message has its shape and dtype. links: {(src, dst): group}, for each message's group=; without
    links, group=None. About 25 lines.
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
        elif kind in "BI":
            dy = None if me == last else received(me + 1)
            if me < last:
                sent.pop(i).wait()  # its gradient is here, so it has arrived
            dx = stage.backward(i, dy)
            if me > 0:
                send(dx, me - 1, "gradient")
        if kind in "BW":
            stage.weight_gradients(i)
    for work in sent.values():
        work.wait()
    return loss
    # END SOLUTION

# %% tags=["check"] points=2
woven = ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]
woven = [[(kind, int(i)) for kind, i in line.split()] for line in woven]
for name, tasks in {"GPipe": on_stages(gpipe, 3, 4), "F and B in turn": woven}.items():
    w, xs, ts = list(normal(3, 5, 5).requires_grad_()), normal(4, ROWS, 5), normal(4, ROWS, 5)
    loss, want = perceptron(w, xs, ts)
    data = [[each.detach() for each in w], [list(xs), None, None], [None, None, list(ts)], tasks]
    ran = ranks.run(perceptron_stage, *map(ranks.each, data), world_size=3, **FREE)
    losses, gradients, _ = map(list, zip(*ran.returns, strict=True))
    agree(gradients, want, f"{name}: gradients, by stage (no tensor used twice?)", **CLOSE)
    agree(losses, [None, None, loss], f"{name}: the sum of the shares, by stage", **CLOSE)
    agree([ran.time_s, *ran.trace.compute_s], [18e-3] + [12e-3] * 3, f"{name}: time, work", rtol=1e-9)
print("run_stage: gradients and loss of one device, in the time that the order of tasks takes")

# %% tags=["check"]
apart = [[("F", 0), ("F", 1), ("I", 0), ("W", 0), ("I", 1), ("W", 1)],
         [("F", 0), ("I", 0), ("F", 1), ("I", 1), ("W", 0), ("W", 1)]]
for name, tasks in {"B": on_stages(gpipe, 2, 2), "I and W": apart}.items():
    data = [list(normal(2, 4, 4)), [list(normal(2, ROWS, 4)), None], [None, list(normal(2, ROWS, 4))]]
    result = ranks.run(perceptron_stage, *map(ranks.each, [*data, tasks]), world_size=2, **FREE)
    case = f"tasks F, {name}: the i of the calls of stage.weight_gradients(i), by stage"
    agree([finished for *_, finished in result.returns], [[0, 1]] * 2, case, mistakes={
        "It is for the end of a B and of a W.": [[]] * 2,
        "I leaves it to W.": [[0, 0, 1, 1], [0, 1, 0, 1]]})
    agree(result.trace.compute_s, [6e-3] * 2, f"tasks F, {name}: seconds of work, by stage", rtol=1e-9)
print("run_stage: weight gradients with each B or W, and only there")

# %% tags=["check"]
weights, xs, ts, peaks = list(normal(2, 4, 4)), normal(16, ROWS, 4), normal(16, ROWS, 4), []
for m in (4, 16):
    turns = [(kind, i) for i in range(m) for kind in "FB"]
    ahead = [("F", 0)] + [(kind, i + (kind == "F")) for kind, i in turns if (kind, i) != ("F", m - 1)]
    data = map(ranks.each, [weights, [list(xs[:m]), None], [None, list(ts[:m])], [ahead, turns]])
    trace = ranks.run(perceptron_stage, *data, world_size=2).trace
    sent = [sum(m.bytes for m in trace.messages if m.group == 1 + m.src == link) for link in (1, 2)]
    assert sent == [m * xs[0].nbytes] * 2, f"bytes on links down, up: {sent}, want {m} tensors each"
    peaks.append([most - trace.live_bytes_at(r, 0.0) for r, most in enumerate(trace.peak_live_bytes)])
more = max(many - few for few, many in zip(*peaks, strict=True))
assert more < xs[0].nbytes, f"{more:,} bytes more for 16 than for 4: what must not stay to the end?"
print("run_stage: sixteen microbatches take no more memory than four")

# %% tags=["check", "held-out"]
m, p, n = int(rng.integers(1, 6)), int(rng.integers(4, 6)), int(rng.integers(2, 6))
leaves, xs, ts = list(normal(p, n, n).requires_grad_()), normal(m, ROWS, n), normal(m, ROWS, n)
(_, want), none = perceptron(leaves, xs, ts), [None] * (p - 1)
weights = [leaf.detach() for leaf in leaves]
data = [weights, [list(xs), *none], [*none, list(ts)], on_stages(gpipe, p, m)]
result = ranks.run(perceptron_stage, *map(ranks.each, data), world_size=p, **FREE)
agree([own for _, own, _ in result.returns], want, f"{p} stages, {m} microbatches", **CLOSE)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Keep the handle of each activation's `isend` under its microbatch, and wait for it in that microbatch's backward. For
# gradients, wait for the one before when you send the next. At the end wait for what is left. A received tensor is a leaf:
# `requires_grad_()` is yours to call.
# </details>
#
# Messages took no time so far. Here one takes a tenth of a forward. The bars are what our ranks did, the lines below them
# what `played` says without messages.

# %%
tasks = on_stages(gpipe, 4, 8)
result = ranks.run(perceptron_stage, *map(ranks.each, [*perceptron_data(4, 8), tasks]), alpha_s=1e-4)
result.trace.draw(predicted=played(tasks), title=f"GPipe: {result.trace.bubble:.1%} idle, "
                  f"{played(tasks).bubble:.1%} without messages");

# %% [markdown]
# GPipe idles (p − 1)/(m + p − 1) of the time: p − 1 slots of m + p − 1, in the forward half and in the backward half
# alike. **With enough microbatches the bubble goes away; but GPipe keeps the activations of all m until backward begins.**

# %% [markdown]
# ## Part 2 · One forward, one backward
#
# The last stage can run backward of microbatch 0 at once, and is rid of its activations. In **1F1B** a stage runs just
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
# A stage holds at most min(m, p − stage) microbatches. The time is GPipe's.

# %% tags=["hole"]
def one_f_one_b(stage, stages, microbatches):
    """This stage's tasks in 1F1B: a list of ("F", i) and ("B", i).

    About six lines.
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
for p, m in [(4, 8), (3, 4), (1, 3), (4, 2), *rng.integers(1, 10, (20, 2)).tolist()]:
    tasks, case = on_stages(one_f_one_b, p, m), f"one_f_one_b, p = {p}, m = {m}"
    for stage, own in enumerate(tasks):
        insist(own, "FB", m, f"{case}, stage {stage}")
        most = min(m, p - stage)
        why = "that is GPipe" if live(own) == m > most + 1 else "run p − stage − 1 forwards ahead"
        assert live(own) <= most, f"{case}: stage {stage} holds {live(own)} at once, want {most}: {why}"
    time_s, want_s = played(tasks).time_s, (m + p - 1) * 3e-3
    why = "no stage runs ahead of another" if abs(time_s - m * p * 3e-3) < 1e-9 else "too few ahead?"
    took = f"takes {time_s * 1e3:.0f} ms, want {want_s * 1e3:.0f}: {why}\n{written(tasks)}"
    assert abs(time_s - want_s) < 1e-9, f"{case} {took}"
print("one_f_one_b: the time of GPipe, and at most p − stage microbatches held")

# %%
_, ax = plt.subplots(figsize=(7.2, 2.8))
for colour, name, schedule, held in ("C0", "GPipe", gpipe, 16), ("C1", "1F1B", one_f_one_b, 3):
    data = map(ranks.each, [*perceptron_data(4, 16), on_stages(schedule, 4, 16)])
    points = np.array(ranks.run(perceptron_stage, *data).trace.live_bytes[1]) * [1e3, 1e-3]
    ax.step(*points.T, where="post", color=colour, label=name)
    ax.axhline(held * 2 * ROWS * 4 * 8e-3, color=colour, linestyle=":", label=f"{held} microbatches")
ax.set(xlabel="virtual time (ms)", ylabel="live tensors (kB)", ylim=(0, 50), title="In stage 1 of 4")
ax.legend(ncols=4);

# %% [markdown]
# Same time, same gradients; stage 1 holds three microbatches (an input and an output each), and, whatever m is, 3 to 4 kB of
# weights and messages. GPipe's answer to its own memory is to keep only a stage's input and compute forward twice (lab 09).
#
# **A clinic.** Replace `isend` by `send` in your mind: the stage waits until its message has arrived.

# %%
for schedule in (gpipe, one_f_one_b):
    try:
        data = [*perceptron_data(3, 4), on_stages(schedule, 3, 4)]
        result = ranks.run(waiting_stage, *map(ranks.each, data), world_size=3)
        print(f"{schedule.__name__}: {result.time_s:.4f} s")
    except ranks.DeadlockError as error:
        print(f"{schedule.__name__}: {error}")

# %% [markdown]
# GPipe gets away with it: while activations flow, all flow down. In 1F1B a stage that sends an activation down waits for
# its neighbour, who waits to send a gradient up. **1F1B takes GPipe's time and holds p microbatches instead of m; its
# messages cross, so no stage may wait to send.**

# %% [markdown]
# ### More stages at the same global batch
#
# A question from the notes (000): *how does increasing pipeline parallelism affect the bubble? A: it grows a lot; B:
# slightly or not at all; C: it shrinks a lot. Global batch and model are the same.*
#
# A step's batch is divided among **replicas** of the model, each of p stages. So while p grows, one of two things is held:
# the number of GPUs (fewer replicas then, and more microbatches for each), or the number of replicas (p times as many GPUs
# then).
#
# ### Exercise 2.2 · bubble
#
# The share of idle time, for either reading.

# %% tags=["hole"]
def bubble(stages, batch, gpus=None, replicas=None):
    """The share of its time that 1F1B idles, from 0 to 1.

    batch: microbatches in a step, of all replicas together. One is given: gpus, in all, or replicas.
    About four lines.
    """
    # BEGIN SOLUTION
    if replicas is None:
        replicas = gpus / stages
    microbatches = batch / replicas
    return (stages - 1) / (microbatches + stages - 1)
    # END SOLUTION

# %% tags=["check"]
for p, copies, m in [(4, 2, 6), *rng.integers(1, 9, (29, 3)).tolist()]:
    want = 1 - 3e-3 * m / played(on_stages(gpipe, p, m)).time_s
    for held in ({"gpus": p * copies}, {"replicas": copies}):
        wrong = {"That is idle over busy time; want it over all time.": (p - 1) / m,
                 "p − 1 slots are idle, of m + p − 1.": p / (m + p),
                 "A replica runs only its part of the batch.": (p - 1) / (m * copies + p - 1),
                 "A GPU is no replica; a replica has `stages` of them.": (p - 1) / (m / p + p - 1)}
        case = f"bubble({p}, {m * copies}, **{held})"
        agree(bubble(p, m * copies, **held), want, case, rtol=1e-9, atol=1e-12, mistakes=wrong)
print("bubble agrees with 30 timelines, GPUs held and replicas held")

# %%
# Predict: a batch of 32 microbatches, and from 2 stages to 8. How many times as large does the bubble
# get on 8 GPUs, and how many times with one replica?
# BEGIN SOLUTION
times_gpus_held = bubble(8, 32, gpus=8) / bubble(2, 32, gpus=8)
times_replicas_held = bubble(8, 32, replicas=1) / bubble(2, 32, replicas=1)
# END SOLUTION
ledger.predict("bubble × from 2 to 8, GPUs held", times_gpus_held, "times")
ledger.predict("bubble × from 2 to 8, replicas held", times_replicas_held, "times")

# %%
cases = {"GPUs held": [(2, 8), (4, 16), (8, 32)], "replicas held": [(2, 32), (4, 32), (8, 32)]}  # p, m
dots, held = {}, {"GPUs held": {"gpus": 8}, "replicas held": {"replicas": 1}}
for name, own in cases.items():
    dots[name] = [played(on_stages(one_f_one_b, p, m)).bubble for p, m in own]
    ledger.counted(f"bubble × from 2 to 8, {name}", dots[name][-1] / dots[name][0], "times")
lines = {name: functools.partial(bubble, batch=32, **held[name]) for name in cases}
figures.predicted_and_measured([2, 4, 8], lines, dots, dots_are="counted", xlabel="stages p",
    ylabel="share of time idle", title="GPUs held, stages cost little").set_ylim(0, 0.2);

# %% [markdown]
# GPUs held: a replica has m = k·p microbatches, k = batch/GPUs, and the bubble (p − 1)/(kp + p − 1) stays below 1/(k + 1),
# here 0.2. That is B. Replicas held: it grows almost like p. That is A. C is never true.
#
# The notes hold batch and model, and say neither. But there stages *replace* replicas, on a cluster where FSDP's traffic
# has become too much: GPUs held, answer B. **More stages on the same GPUs cost little bubble; more GPUs for more stages
# cost a lot.**

# %% tags=["driver"]
# For part 3: a layer whose backward comes in two halves, which you write below.
class LinearApart(nn.Linear):
    """A linear layer whose weight gets its gradient later: by a weight_gradient() for each backward."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.put_off = []

    def forward(self, x):
        return MatmulApart.apply(x, self.weight, self.put_off)

    def weight_gradient(self):
        add_weight_gradient(*self.put_off.pop(0))

def halves(dist, weight, inputs, gradients):
    """[outputs, input gradients, weight gradient] of a LinearApart; spans "I" and "W"."""
    layer = linear(weight, LinearApart)
    inputs = [x.requires_grad_() for x in inputs]
    outputs = [layer(x) for x in inputs]
    with ranks.span("I"):
        for y, dy in zip(outputs, gradients, strict=True):
            y.backward(dy)
    with ranks.span("W"):
        for _ in inputs:
            layer.weight_gradient()
    return [[y.detach() for y in outputs], [x.grad for x in inputs], layer.weight.grad]

# %% [markdown]
# ## Part 3 · Weight gradients can wait
#
# Backward of a layer is two products. ∂x = ∂y W is urgent: the stage before waits for it. ∂W = ∂yᵀ x is not: nobody needs
# it before the optimizer's step. **Zero-bubble** schedules (Qi et al., 2023) make tasks of them, `"I"` and `"W"`, and a
# stage that would idle does a `"W"`.
#
# ### Exercise 3.1 · MatmulApart
#
# Autograd computes both at once. To part them, write backward yourself: in a `torch.autograd.Function` it gets ∂y and
# returns a gradient for each argument of `forward`, or None. Later `add_weight_gradient` is called for each entry of
# `put_off`.

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
        """(∂loss/∂x, None, None); appends (weight, x, dy) to put_off. About three lines."""
        # BEGIN SOLUTION
        x, weight = ctx.saved_tensors
        ctx.put_off.append((weight, x, dy))
        return dy @ weight, None, None
        # END SOLUTION

def add_weight_gradient(weight, x, dy):
    """Adds ∂loss/∂weight to weight.grad, None at first. x (..., inputs), dy (..., outputs)."""
    # BEGIN SOLUTION
    gradient = dy.flatten(0, -2).T @ x.flatten(0, -2)
    weight.grad = gradient if weight.grad is None else weight.grad + gradient
    # END SOLUTION

# %% tags=["check"] points=2
for rows in ((4,), (2, 3)):
    weight, xs, dys = normal(7, 5), normal(3, *rows, 5), normal(3, *rows, 7)
    each = [dy.flatten(0, -2).T @ x.flatten(0, -2) for x, dy in zip(xs, dys, strict=True)]
    want, flops = [list(xs @ weight.T), list(dys @ weight)], 3 * 2 * xs[0].numel() * 7
    result = ranks.run(halves, weight, list(xs), list(dys), world_size=1, flops_per_s=1e9)
    agree(result.returns[0][:2], want, "outputs and input gradients", **CLOSE)
    wrong = {"Add to weight.grad.": each[-1], "backward returns None for the weight.": 2 * sum(each)}
    agree(result.returns[0][2], sum(each), "the weight's gradient", mistakes=wrong, **CLOSE)
    time_s = [sum(span.duration_s for span in result.trace.compute_named(half)) for half in "IW"]
    agree([round(1e9 * half) for half in time_s], [flops, flops], "FLOPs in I and in W", mistakes={
        "The weight's product is made in backward already: put it off.": [2 * flops, 0]})
print("MatmulApart: half of the FLOPs in I, half in W, gradients as autograd's")

# %% tags=["driver"]
# What trains a stage of the transformer, and what draws schedules and runs them on processes.
def transformer_stage(dist, weights, layers, tasks, inputs, targets, rate):
    """[losses, trained weights as one vector] of this rank: a (first, end) of the transformer's layers.

    weights: a vector. inputs, targets: a list of m microbatches for each step, None where not used.
    """
    last, m = dist.get_rank() == dist.get_world_size() - 1, 1 + max(i for _, i in tasks)
    part = transformer(linear=LinearApart)[layers[0]:layers[1]]
    nn.utils.vector_to_parameters(weights, part.parameters())
    stage = TimedStage(part, m, next_character_loss if last else None)
    stage.split, losses, links = ("W", 0) in tasks, [], open_links(dist)
    for xs, ys in zip(inputs, targets, strict=True):
        part.zero_grad()
        losses.append(run_stage(dist, stage, tasks, xs, ys, torch.zeros(2, 16, 16), links))
        with torch.no_grad():
            for weight in part.parameters():
                weight -= rate * weight.grad
    return [losses, nn.utils.parameters_to_vector(part.parameters()).detach()]

def schedules():
    """{name: schedule}."""
    return {"GPipe": gpipe, "1F1B": one_f_one_b, "ZB-H1": zb_h1}

def compared(stages=4, microbatches=8):
    """Draws the timelines of the three, one below the other."""
    _, axes = plt.subplots(3, figsize=(7.2, 1.5 + 1.1 * stages), sharex=True)
    for ax, (name, schedule) in zip(axes, schedules().items(), strict=True):
        trace = played(on_stages(schedule, stages, microbatches))
        end_s = 3e-3 * (microbatches + stages - 1)
        trace.draw(ax=ax, until_s=end_s, title=f"{name}: {trace.bubble:.3f} idle")
        ax.set_xlabel("virtual time" if name == "ZB-H1" else "")

def measured(tasks, apart):
    """(measured on processes, predicted): the Traces of a step whose tasks take 20 times as long."""
    p = len(tasks)
    machine = "nccl" if torch.cuda.device_count() >= p else "gloo"
    data = [*map(ranks.each, [*perceptron_data(p, 8), tasks]), apart, 20, 2]  # a first step connects
    trace = ranks.run(perceptron_stage, *data, machine=machine, world_size=p).trace
    by_rank = [trace.compute_named("*", rank)[-len(own):] for rank, own in enumerate(tasks)]
    zero_s = min(spans[0].start_s for spans in by_rank)
    spans = [ranks.Span(span.rank, span.name, span.start_s - zero_s, span.end_s - zero_s)
             for span in itertools.chain(*by_rank)]
    step = ranks.Trace(p, machine, [max(span.end_s for span in spans)] * p, compute=spans)
    return step, played(tasks, {kind: 20 * time_s for kind, time_s in SECONDS.items()})

# %% [markdown]
# ### When to do what was put off
#
# 1F1B idles 3(p − 1) ms a stage; with each `"W"` right after its `"I"`, 2(p − 1). **ZB-H1** keeps the order of `"F"` and
# `"I"`, and 1F1B's peak: p microbatches, each held until its `"W"`. Later stages may put off more: stage s
# does s `"I"` without a `"W"`, then after each the oldest, the rest at the end:
#
# ```
# stage 0:  F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3
# stage 2:  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
# ```
#
# ### Exercise 3.2 · zb_h1
#
# The second check trains the transformer by all three schedules.

# %% tags=["hole"]
def zb_h1(stage, stages, microbatches):
    """This stage's tasks in ZB-H1: a list of ("F", i), ("I", i) and ("W", i).

    microbatches: at least as many as stages. About nine lines.
    """
    # BEGIN SOLUTION
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("I", i))
        if i >= stage:
            tasks.append(("W", i - stage))
    return tasks + [("W", i) for i in range(max(0, microbatches - stage), microbatches)]
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
for p, more in [(3, 1), (4, 4), (1, 1), (2, 0), *rng.integers(1, 8, (20, 2)).tolist()]:
    tasks, case, m = on_stages(zb_h1, p, p + more), f"zb_h1, p = {p}, m = {p + more}", p + more
    for stage, own in enumerate(tasks):
        insist(own, "FIW", m, f"{case}, stage {stage}")
        held = live(own, "W")
        assert held <= p, f"{case}: stage {stage} holds {held} until their W, want {p}: W sooner"
    time_s, want_s = played(tasks).time_s, (3 * m + p - 1) * 1e-3
    at_once = abs(time_s - want_s - (p - 1) * 1e-3) < 1e-9
    why = "that is with each W right after its I" if at_once else "stage s puts off s W"
    took = f"takes {time_s * 1e3:.0f} ms, want {want_s * 1e3:.0f}: {why}\n{written(tasks)}"
    assert abs(time_s - want_s) < 1e-9, f"{case} {took}"
print("zb_h1: p − 1 idle instead of 3(p − 1), at 1F1B's peak of p microbatches")

# %% tags=["check"] points=2 limit_s=30
model, cut, (inputs, targets) = transformer(), [(0, 3), (3, 5), (5, 7), (7, 9)], passages(2, 4)
weights = by_stage(model, cut)
want = [*one_device(model, inputs, targets, 0.1), *by_stage(model, cut)]
for schedule in (gpipe, one_f_one_b, zb_h1):
    tasks, none = on_stages(schedule, 4, 4), [[None, None]] * 3
    own = [weights, cut, tasks, [inputs, *none], [*none, targets]]
    result = ranks.run(transformer_stage, *map(ranks.each, own), 0.1, **FREE)
    got = [*result.returns[3][0], *(trained for _, trained in result.returns)]
    agree(got, want, f"losses and weights by stage; stage 0: {tasks[0]}", rtol=1e-10, atol=1e-12)
print("A transformer on four stages, three schedules: losses and weights of one device to ten digits")

# %%
# Predict the idle shares for p = 4 and m = 8.
# BEGIN SOLUTION
share_1f1b, share_zb_h1 = 3 / (8 + 3), 3 / (3 * 8 + 3)
# END SOLUTION
ledger.predict("bubble, 1F1B, 4 × 8", share_1f1b, "idle")
ledger.predict("bubble, ZB-H1, 4 × 8", share_zb_h1, "idle")

# %% tags=["nbval-ignore-output"]
compared()
for name in ("1F1B", "ZB-H1"):
    share = played(on_stages(schedules()[name], 4, 8)).bubble
    ledger.counted(f"bubble, {name}, 4 × 8", share, "idle")
more = ipywidgets.IntSlider(8, 8, 24, style={"description_width": "initial"})
ipywidgets.interact(compared, stages=(2, 8), microbatches=more);

# %% [markdown]
# ZB-H1 idles p − 1 ms a stage, and a step by itself can't do better: the last stage begins p − 1 forwards late. *ZB-H2*
# holds up to 2p − 1 microbatches and moves the hole to the end, where the next step's forwards fill it: zero, but only
# across steps, at twice the memory, with an optimizer that waits for nobody. **Half of backward is in no hurry: done in the
# bubble, it costs nothing.**
#
# ## Part 4 · Text, and real machines
#
# The transformer learns the novel on four stages. Then the same functions run on processes, with tasks of 20 and 40 ms:
# NCCL on four GPUs, else gloo.

# %%
model, (inputs, targets), none = transformer(), passages(24, 4), [[None] * 24] * 3
cut = [(0, 3), (3, 5), (5, 7), (7, 9)]
own = [by_stage(model, cut), cut, on_stages(zb_h1, 4, 4), [inputs, *none], [*none, targets]]
losses = ranks.run(transformer_stage, *map(ranks.each, own), 0.2, **FREE).returns[3][0]
alone = one_device(model, inputs, targets, 0.2)
figures.predicted_and_measured(range(24), {"one device": alone}, {"four stages, ZB-H1": losses},
    xlabel="step", ylabel="nats a character", dots_are="simulated",
    title="A transformer reads a novel").set_ylim(0, None);

# %% tags=["nbval-ignore-output"]
_, axes = plt.subplots(2, figsize=(7.2, 5.4))
for ax, name in zip(axes, ("1F1B", "ZB-H1"), strict=True):
    trace, predicted = measured(on_stages(schedules()[name], 4, 8), name == "ZB-H1")
    title = f"{name}: {trace.bubble:.3f} idle, {predicted.bubble:.3f} predicted"
    trace.draw(ax=ax, predicted=predicted, title=title)
    ledger.measured(f"bubble, {name}, 4 × 8", trace.bubble, "idle")
plt.show()
ledger.table()

# %% [markdown]
# And real layers? On four H200s (`make bench-gpus`: 16 microbatches of 1,024 tokens, four perceptron blocks of width 8,192
# a stage, bf16) a step of our 1F1B takes 431 ms, PyTorch's `Schedule1F1B` 430. Idle: 0.167; the formula says 0.158,
# `played`, with measured tasks and messages, 0.167. With weight gradients added by `addmm_`, 1F1B took 378 ms, ZB-H1 360.
#
# Posting each receive one task early, behind a computation, made 1F1B *slower*: 487 ms. A receive that waits is a kernel
# that waits, and takes processors from the computation. **A timeline predicts the bubble; what messages and computation
# cost each other, only a stopwatch tells.**

# %% [markdown]
# ## Where it is used
#
# - *GPipe* (Huang et al., 2019); 1F1B in *PipeDream* and *Megatron-LM* (Narayanan et al., 2019, 2021); *Zero Bubble Pipeline
#   Parallelism* (Qi et al., 2023). In `torch.distributed.pipelining`, too, a schedule is a list of actions a stage.
# - *Interleaving* (Megatron): a rank has v thin stages; the bubble shrinks by v, the messages grow by v. DeepSeek-V3's
#   *DualPipe* feeds the pipeline from both ends.
#
# **Limits of ours.** All stages are equally fast. An embedding shared by first and last stage would need its gradients
# summed. A layer used twice in a forward would confuse our list of what was put off.

# %% [markdown]
# ## Done
#
# `python -m grading 15` grades your lab.
#
# **A harder question.** Forward takes f, backward b, a message c, and a stage receives only when it is idle. What is the
# idle share of 1F1B then?
#
# <details><summary>Answer</summary>
#
# A middle stage receives twice for each microbatch: a step takes (m + p − 1)(f + b) + (2(m + p) − 5)c, of which m(f + b)
# is work. Two stages have none in the middle: (m + 1)(f + b + c). Wider models help (f grows with the width squared, c
# with the width), and fewer stages; more microbatches don't help against c.
# </details>
