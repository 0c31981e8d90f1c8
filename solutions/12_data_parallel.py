# %% [markdown]
# # 12 · Data parallel
#
# **How do you make one line of SGD run on p devices, and hide the wire?**
#
# At the end of this lab you can
#
# - train on p devices and end with the weights that one device gets, for any cut of the batch;
# - send gradients in buckets while backward still computes, and predict how long a step takes;
# - say what data parallelism changes without being asked (batch norm), and mend it.
#
# You need labs 07 and 11; no GPU. About 120 minutes.
#
# Where a cell ends in `raise NotImplementedError`, you write; the cell below it checks. What you want counted stands in
# the hole's cell.

# %% tags=["setup"]
import itertools
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from common import figures, ledger, ranks, samples
from common.checks import agree

figures.use_style()
torch.set_default_dtype(torch.float64)  # so that "the same weights" can mean ten digits
rng = np.random.default_rng()

# %% [markdown]
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 11: p ranks agree on a sum of n bytes by a ring. In how many rounds, and how long does that take with
# α seconds a message and β a byte?</summary>
#
# 2(p − 1) rounds of n/p bytes each: 2(p − 1)(α + β·n/p).
# </details>
#
# <details><summary>Lab 07: reverse mode walks the graph backwards. Of which layer's weights is the gradient known
# first, and of which last?</summary>
#
# The last layer's first, the first layer's last. In between there is work to do: part 3 lives on that.
# </details>

# %% [markdown]
# Our data are the digits of lab 07 and the novel, cut into **shards**, one for each rank; our models a network of eight
# layers and a small transformer that predicts the next character. `MACHINE` is four small computers with a small wire
# between them: about the proportions of a large computer.
#
# As in lab 11, `ranks.run(f, ..., world_size=p)` calls `f(dist, ...)` on p simulated ranks, in virtual time; an argument
# in `ranks.each` differs by rank. New: PyTorch's operations take time, too, and `ranks.span` names a stretch of it.

# %% tags=["setup"]
MACHINE = {"alpha_s": 1e-5, "beta_s_per_byte": 4e-9, "flops_per_s": 1e9}

def digit_shards(rows):
    """[(images (n, 64), digits (n,))], one pair for each n of rows, no image twice."""
    (images, digits), ends = map(torch.tensor, samples.digits()), np.cumsum(rows)
    parts = np.split(rng.permutation(len(digits))[:ends[-1]], ends[:-1])
    return [(images[part].flatten(1).double() / 16, digits[part]) for part in parts]

def text_shards(rows, context=16):
    """[(characters (n, context), the ones that follow each)], one pair for each n of rows, as ASCII."""
    text = torch.tensor(list(samples.novel().encode()))
    starts = [torch.tensor(rng.integers(0, len(text) - context, (n, 1))) for n in rows]
    return [(text[s + torch.arange(context)], text[s + torch.arange(1, context + 1)]) for s in starts]

# %% tags=["setup"]
def perceptron(seed, width=64, layers=8):
    torch.manual_seed(seed)
    sizes = [64] + [width] * (layers - 1) + [10]
    made = [layer for n, m in itertools.pairwise(sizes) for layer in (nn.Linear(n, m), nn.Tanh())]
    return nn.Sequential(*made[:-1])

class Embedding(nn.Embedding):
    def forward(self, tokens):  # (B, T) -> (B, T, D); the upper half of the codes tells the place
        return super().forward(tokens) + self.weight[128 + torch.arange(tokens.shape[1])]

class CausalLayer(nn.TransformerEncoderLayer):
    def forward(self, x):  # (B, T, D) -> (B, T, D)
        return super().forward(x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1))

# %% tags=["setup"]
def transformer(seed, width=32):
    torch.manual_seed(seed)
    form = {"dim_feedforward": 4 * width, "dropout": 0.0, "batch_first": True, "norm_first": True}
    layers = [CausalLayer(width, nhead=2, **form) for _ in range(2)]
    return nn.Sequential(Embedding(160, width), *layers, nn.LayerNorm(width), nn.Linear(width, 128))

MODELS = {"perceptron": perceptron, "transformer": transformer}
LAYERS = [[2 * i + 1, 2 * i] for i in range(8)][::-1]  # the perceptron's parameters, a bucket a layer

def flattened(tensors):  # all their numbers in one tensor
    return torch.cat([tensor.detach().flatten() for tensor in tensors])

def mean_loss(model, shard):  # cross-entropy, averaged over the shard's rows
    inputs, targets = shard
    return nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())

# %% tags=["setup"]
def sgd(parameters, rate):  # one step downhill; the gradients are used up
    with torch.no_grad():
        for w in parameters:
            w -= rate * w.grad
            w.grad = None

def one_device(model, shards, shares, steps=3, rate=0.1):
    """Flat weights after some steps on one device: each shard's mean loss counts by its share."""
    for _ in range(steps):
        sum(share * mean_loss(model, shard) for share, shard in zip(shares, shards)).backward()
        sgd(model.parameters(), rate)
    return flattened(model.parameters())

# %% [markdown]
# ## One line, four devices
#
# In the lecture that this lab grew from, a training loop becomes data-parallel by one line: after backward, all-reduce each
# parameter's gradient. Four ranks, each with 32 images of its own and a copy of the network. Here is one step.

# %%
def lecture_step(dist, shard):
    model = perceptron(seed=1)
    with ranks.span("forward"):
        loss = mean_loss(model, shard)
    with ranks.span("backward"):
        loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)  # the line

# %%
four = ranks.each(digit_shards([32] * 4))
first_try = ranks.run(lecture_step, four, world_size=4, **MACHINE).trace
first_try.draw(title="One step: compute, then send");
print(f"{first_try.bubble:.0%} of the step, no rank computes")

# %% [markdown]
# While the ranks compute, the wire is empty; while the wire is busy, nobody computes. And the weights are wrong: as it
# stands, the line adds up four means. This lab mends the sum first and hides the wire then, with the same bytes.
#
# ## Part 1 · The weights of one device
#
# The aim is strict: after any number of steps, every rank's weights are those that *one* device gets from the whole
# batch, up to rounding. First the batch is cut. The lecture gives each rank `batch_size // world_size` rows. What becomes
# of a batch of 130 on four ranks?

# %% tags=["driver"]
# What the checks of this part run on every rank. You may skip it.

def begun(dist, seed):
    """A rank's parameters and count of steps, flat: apart at first, then after broadcast_parameters."""
    rank = dist.get_rank()
    tensors = [*perceptron(seed + rank).parameters(), torch.tensor([10 + rank])]
    broadcast_parameters(dist, list(tensors))
    return flattened(tensors)

def averaged(dist, shard, seed, steps=3, rate=0.1):
    """Weights, flat, after some steps with average_gradients."""
    model = perceptron(seed)
    for _ in range(steps):
        mean_loss(model, shard).backward()
        average_gradients(dist, list(model.parameters()), len(shard[0]))
        sgd(model.parameters(), rate)
    return flattened(model.parameters())

# %% [markdown]
# ### Exercise 1.1 · shard_batch
#
# Cut a batch into contiguous shards, all rows in exactly one of them, their sizes as equal as can be: the first
# `rows % world_size` ranks take one row more.

# %% tags=["hole"]
def shard_batch(batch, rank, world_size):
    """This rank's rows of the batch: a view.

    batch: a tensor, rows along its first dimension. About three lines.
    """
    # BEGIN SOLUTION
    rows, more = divmod(len(batch), world_size)
    start = rank * rows + min(rank, more)
    return batch[start:start + rows + (rank < more)]
    # END SOLUTION

# %% tags=["check"]
for n, p in [(11, 4), *rng.integers([0, 1], [20, 7], (30, 2)).tolist()]:
    batch, rows = torch.tensor(rng.normal(size=(n, 2))), n // p
    for rank in reversed(range(p)):
        want = batch.clone().tensor_split(p)[rank].clone()
        few, many = (batch[rank * rows:][:m].clone() for m in (rows, n if rank == p - 1 else rows))
        agree(got := shard_batch(batch, rank, p), want, f"{n} rows, shard {rank} of {p}", mistakes={
            "With n // p rows for each, the last rows of the batch are nobody's.": few,
            "All that was left over went to the last rank: the others will wait for it.": many,
            "These rows are dealt out like cards: a shard is contiguous.": batch[rank::p].clone()})
        same = got.untyped_storage().data_ptr() == batch.untyped_storage().data_ptr()
        assert same or not len(got), "These rows are a copy; a slice is a view, and costs nothing."
print("shard_batch: every row in one shard, sizes as equal as can be")

# %% [markdown]
# Then all ranks must begin alike. The lecture: "as long as you initialize all the parameters and they're using the same random
# seed, you'll be fine." Usually so. But one rank may have drawn more numbers than the others (it augmented an image), or
# was restarted from a checkpoint. Averaging the gradients never brings such ranks together: equal steps keep the
# distance.
#
# ### Exercise 1.2 · broadcast_parameters
#
# Leave rank 0's values in every rank's tensors, in place: an optimizer may hold them already.

# %% tags=["hole"]
def broadcast_parameters(dist, tensors):
    """Leaves rank 0's values in the tensors of every rank, in place.

    tensors: list of parameters and buffers, of any dtype. About two lines.
    """
    # BEGIN SOLUTION
    for tensor in tensors:
        dist.broadcast(tensor.data, src=0)  # .data: autograd need not know
    # END SOLUTION

# %% tags=["check"]
p, seed = int(rng.integers(3, 6)), int(rng.integers(1000))
own = [flattened([*perceptron(seed + r).parameters(), torch.tensor([10 + r])]) for r in range(p)]
mean = sum(own) / p
result = ranks.run(begun, seed, world_size=p)
for rank, got in enumerate(result.returns):
    agree(got, own[0], f"the tensors of rank {rank} of {p}", rtol=1e-12, mistakes={
        "They are still this rank's own.": own[rank], "They are rank p − 1's.": own[-1],
        "The count of steps is still this rank's own.": torch.cat([own[0][:-1], own[rank][-1:]]),
        "They are the mean over all ranks.": torch.cat([mean[:-1], mean[-1:] // 1])})
sent, once = result.trace.bytes, own[0].nbytes * (p - 1)
assert sent <= once, f"{sent:,} bytes were sent; each tensor, to p − 1 ranks: {once:,}"
print("broadcast_parameters: every rank holds rank 0's values")

# %% [markdown]
# ### What should be averaged?
#
# The lecture averages with `op=AVG`: the gradients of p means, summed, over p. With shards of 33, 33, 32 and 32 rows a row of the
# small shards would count 3 % more than others. In language models it is worse: sequences of different lengths make
# unequal numbers of tokens the rule.
#
# ### Exercise 1.3 · average_gradients
#
# Each rank has called backward on *its* mean loss. Make every `p.grad` the gradient of the mean over *all rows of all
# ranks*. One all-reduce a parameter, and a small one for what a rank can't know by itself.

# %% tags=["hole"]
def average_gradients(dist, parameters, rows):
    """Leaves in every p.grad the gradient of the mean loss over the rows of all ranks.

    rows: how many rows this rank's gradients are the mean of; other ranks may have more or fewer.
    About five lines.
    """
    # BEGIN SOLUTION
    total = torch.tensor([float(rows)])
    dist.all_reduce(total)
    for p in parameters:
        p.grad *= rows / total.item()
        dist.all_reduce(p.grad)
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
seed, rows = int(rng.integers(1000)), (rng.permutation(9)[:3] + 1).tolist()
shards, shares = digit_shards(rows), np.divide(rows, sum(rows))
mistakes = {"Each is the sum of the ranks' means: p times too long a step.": [1] * 3,
            "It is the mean of the ranks' means, though their numbers of rows differ.": [1 / 3] * 3,
            "Weighed by rows, but never divided by the rows of all.": rows}
want, *wrong = [one_device(perceptron(seed), shards, s) for s in [shares, *mistakes.values()]]
result, wrong = ranks.run(averaged, ranks.each(shards), seed, world_size=3), dict(zip(mistakes, wrong))
for got in result.returns:
    agree(got, want, f"weights, shards of {rows} rows", rtol=1e-9, atol=1e-10, mistakes=wrong)
sent, most = result.trace.bytes, 3 * 4 * (want.nbytes + 512)
assert sent <= most, f"{sent:,} bytes in 3 steps; one all-reduce a parameter makes {most:,}"
print("average_gradients: the weights of one device, on unequal shards")

# %% [markdown]
# ### Why plain SGD?
#
# A test must be able to fail. Adam divides each gradient by its own running size: a gradient four times too long makes
# the same step. Train one network with the mean and one with the sum over four ranks, and see how far apart they end.

# %%
def drift(optimizer, rate):
    models = [perceptron(seed=1), perceptron(seed=1)]
    for model, times in zip(models, (1, 4)):  # 4: summed over four ranks
        update = optimizer(model.parameters(), rate)
        for _ in range(20):
            update.zero_grad(), (times * mean_loss(model, four.values[0])).backward(), update.step()
    mean, total = (flattened(model.parameters()) for model in models)
    return f"{(total - mean).norm() / mean.norm():.2%} of the weights"

# %% tags=["nbval-ignore-output"]
print("apart, with SGD:", drift(torch.optim.SGD, 0.1), " with Adam:", drift(torch.optim.Adam, 0.001))

# %% [markdown]
# ### Clinic: the run that stops at step 3
#
# "On one GPU it trains. On four it stops: no error, 100 % load, nothing happens." Somebody had put in a guard against
# bad batches. NCCL says nothing for ten minutes; our simulated ranks tell at once. Say what happened before you unfold.

# %%
def guarded(dist, shard):
    model = perceptron(seed=1)
    for step in range(4):
        broken = np.nan if (step, dist.get_rank()) == (3, 2) else 1.0
        loss = mean_loss(model, (shard[0] * broken, shard[1]))
        if loss.isfinite():
            loss.backward()
            [dist.all_reduce(p.grad) for p in model.parameters()]

# %%
try:
    ranks.run(guarded, four, world_size=4)
except ranks.DeadlockError as error:
    print(error)

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# Rank 2 met a NaN, skipped the step, and with it the all-reduces; the others wait in theirs. (With more steps, rank 2's
# *next* would have answered them: a step behind for ever, and no error.)
#
# Whatever decides whether a collective is called must be the same on all ranks: all-reduce the flag first, or take part
# with zero rows and gradients of zeros (not NaN). A layer that only some ranks' data pass through hangs so, too
# (`find_unused_parameters=True` is DDP's answer).
# </details>
#
# **A gradient of a mean is a weighted sum over ranks: weigh by rows, add up, and the p devices are one.**

# %% [markdown]
# ## Part 2 · Fewer messages
#
# From now on each rank's loss is its *share*: its summed loss over the number of rows of the whole batch. Then the
# gradient wanted is a plain **sum** over ranks. (PyTorch's `DistributedDataParallel`, DDP, always divides by p: give it p
# times the share.)
#
# An all-reduce of n bytes takes 2(p − 1)(α + β·n/p). For a bias of 64 numbers, α is nearly all of it. A transformer has
# a dozen tensors a layer, eight of them small. So gradients travel in **buckets**: several in one flat buffer. Their
# order is that of backward: the *last* layer's first.

# %% tags=["driver"]
# What the checks of this part run on every rank. You may skip it.

def planned(sizes, bucket_bytes):
    """buckets_of() tensors of these sizes in bytes, as numbers of tensors."""
    tensors = [torch.empty(size // 8) for size in sizes]
    number = {id(tensor): i for i, tensor in enumerate(tensors)}
    return [[number[id(tensor)] for tensor in bucket] for bucket in buckets_of(tensors, bucket_bytes)]

def picked(parameters, plan):
    """Buckets of parameters, of a plan of their numbers."""
    return [[parameters[i] for i in bucket] for bucket in plan]

def summed(dist, shard, total, plan, seed):
    """Gradients, flat, of a transformer after sum_in_buckets. total: rows of all ranks."""
    model = transformer(seed)
    (mean_loss(model, shard) * len(shard[0]) / total).backward()
    sum_in_buckets(dist, picked(list(model.parameters()), plan))
    return flattened(p.grad for p in model.parameters())

# %% [markdown]
# ### Exercise 2.1 · sum_in_buckets
#
# Two functions. `buckets_of` packs parameters, in reverse order, and opens a new bucket when the next one would not fit;
# what is larger than a bucket gets one to itself. `sum_in_buckets` flattens each bucket's gradients into one tensor,
# sums it over ranks, and cuts it up again.

# %% tags=["hole"]
def buckets_of(parameters, bucket_bytes):
    """Lists of parameters, in reverse order: buckets of at most bucket_bytes, or of one parameter.

    parameters: list of tensors, in the order in which forward uses them; p.nbytes is a tensor's size.
    About seven lines.
    """
    # BEGIN SOLUTION
    buckets, room = [], 0
    for p in reversed(parameters):
        if not buckets or p.nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(p)
        room -= p.nbytes
    return buckets
    # END SOLUTION

def sum_in_buckets(dist, buckets):
    """Leaves in every p.grad its sum over ranks, with one all-reduce a bucket. About five lines."""
    # BEGIN SOLUTION
    for bucket in buckets:
        flat = torch.cat([p.grad.flatten() for p in bucket])
        dist.all_reduce(flat)
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p)
    # END SOLUTION

# %% tags=["check"]
for _ in range(100):
    sizes, most = (8 * rng.integers(1, 20, rng.integers(1, 9))).tolist(), int(8 * rng.integers(1, 60))
    buckets = planned(sizes, most)
    case = f"buckets_of tensors of {sizes} bytes, at most {most} a bucket, gave tensors {buckets}"
    assert all(buckets), f"{case}: a bucket is empty"
    assert sum(buckets, []) == list(range(len(sizes)))[::-1], f"{case}: not each once, last used first"
    full = [sum(sizes[i] for i in bucket) for bucket in buckets]
    over = [bucket for bucket, size in zip(buckets, full) if size > most and len(bucket) > 1]
    assert not over, f"{case}: {over[0]} holds too many bytes (a number takes 8)"
    early = [b for a, b, size in zip(buckets, buckets[1:], full) if size + sizes[b[0]] <= most]
    assert not early, f"{case}: tensor {early[0][0]} would have fitted into the bucket before"
print("buckets_of: 100 random models")

# %% tags=["check"] points=2
shards, model = text_shards([2, 1, 3]), transformer(seed := int(rng.integers(1000)))
sum(mean_loss(model, shard) * n / 6 for shard, n in zip(shards, [2, 1, 3])).backward()
want = flattened(p.grad for p in model.parameters())
plan = [list(range(a, b))[::-1] for a, b in ((20, 29), (11, 20), (5, 11), (0, 5))]
result = ranks.run(summed, ranks.each(shards), 6, plan, seed, world_size=3)
wrong = {"The sum is wanted: each loss was divided by all rows before.": want / 3}
for got in result.returns:
    agree(got, want, "a transformer's gradients, summed", rtol=1e-9, atol=1e-12, mistakes=wrong)
calls, sent = len(result.trace.collectives) / 3, result.trace.bytes / 4
assert calls == 4, f"{calls:g} collectives on a rank for 4 buckets: one all-reduce for each"
assert sent <= want.nbytes, f"{sent:,.0f} bytes through a ring: more than gradients"
print("sum_in_buckets: a transformer's gradients, one all-reduce a bucket")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.cat` makes one flat tensor, `flat.split(sizes)` cuts it, `view_as` gives a piece its shape. A view is enough: if
# `p.grad` *is* the piece of the flat tensor, nothing need be copied back.
# </details>

# %%
parameters = list(transformer(1).parameters())
text = ranks.each(text_shards([4] * 4))
for name, most in (("one parameter", 1), ("40 kB", 40_000), ("everything", 10**9)):
    plan = planned([p.nbytes for p in parameters], most)
    trace = ranks.run(summed, text, 16, plan, 1, world_size=4, **MACHINE).trace
    print(f"{name:13} a bucket: {trace.rounds:3} rounds, {trace.bytes:,} bytes, {trace.time_s:.5f} s")

# %% [markdown]
# The same bytes, fewer rounds. If that were all, one bucket would be best.
#
# **A message costs α whatever it carries: small gradients travel together.**
#
# ## Part 3 · Hide the wire
#
# Backward finishes the last layer's gradient first and never touches it again. Its all-reduce could go while the rest
# is computed. Two tools: `dist.all_reduce(tensor, async_op=True)` only *starts* it and returns a handle; the tensor is
# yours again after `handle.wait()`. And autograd calls a **hook** when a leaf's gradient is complete:

# %%
layers = perceptron(seed=1, layers=3)
hooks = [p.register_post_accumulate_grad_hook(lambda p, name=name: print(name, tuple(p.grad.shape)))
         for name, p in layers.named_parameters()]
mean_loss(layers, digit_shards([8])[0]).backward()
for hook in hooks:
    hook.remove()

# %% tags=["driver"]
# What the checks of this part run on every rank. You may skip it.

def overlapped(dist, kind, shard, total, plan, seed, steps=3, rate=0.1, update_s=0.0):
    """Weights, flat, after steps with backward_overlapped. plan: numbers of parameters, by bucket."""
    with torch.device("cpu"):  # any machine draws the same weights
        model = MODELS[kind](seed)
    parameters = list(model.to(shard[0].device).parameters())
    def update(bucket):
        ranks.compute(update_s, "update")
        sgd(bucket, rate)
    for _ in range(steps):
        with ranks.span("forward"):
            loss = mean_loss(model, shard) * len(shard[0]) / total
        with ranks.span("backward"):
            told_when_early(backward_overlapped, dist, loss, picked(parameters, plan), update)
        updated = all(p.grad is None for p in parameters)
        assert updated, "update was not called for every bucket"
        left = any(p._post_accumulate_grad_hooks for p in parameters)
        assert not left, "a hook is still there after the step: each step would add one more"
    return flattened(parameters)

def told_when_early(function, *args):
    """Calls it; a gradient that is None where a hook reads it gets a better message than Python's."""
    try:
        function(*args)
    except (AttributeError, TypeError) as error:
        if "NoneType" in str(error):
            raise ValueError(f"a bucket was sent before its gradients were there: {error}") from error
        raise

def accumulated(dist, shard, total, k, plan, seed, steps=2, rate=0.1):
    """Weights, flat, after some steps over k microbatches each."""
    model = perceptron(seed)
    microbatches = list(zip(*(part.tensor_split(k) for part in shard)))
    def share_of(microbatch):
        return mean_loss(model, microbatch) * len(microbatch[0]) / total
    def update(bucket):
        sgd(bucket, rate)
    for _ in range(steps):
        with ranks.span("step"):
            buckets = picked(list(model.parameters()), plan)
            accumulated_step(dist, share_of, microbatches, buckets, update)
    return flattened(model.parameters())

def timed(dist, ready_s, bucket_bytes):
    """Computes until each bucket is ready, and sends it."""
    works, now_s = [], 0.0
    for until_s, size in zip(ready_s, bucket_bytes):
        ranks.compute(until_s - now_s, "backward")
        now_s = until_s
        works.append(dist.all_reduce(torch.zeros(size // 8), async_op=True))
    for work in works:
        work.wait()

# %% [markdown]
# ### Exercise 3.1 · backward_overlapped
#
# Run backward, start each bucket's all-reduce when the last of its gradients is there, and afterwards wait for the
# buckets in the order in which they were started. As soon as one has arrived, call `update(bucket)`: weights can be
# updated while later buckets are on the wire. Leave no hook behind: the function is called once a step.

# %% tags=["hole"]
def backward_overlapped(dist, loss, buckets, update):
    """Backward, with the gradients summed over ranks while it runs.

    loss: this rank's share. buckets: lists of parameters. update(bucket) is called once for each
    bucket when its p.grad hold their sums over ranks. About twenty lines.
    """
    # BEGIN SOLUTION
    on_the_wire, hooks = [], []

    def starter(bucket):
        missing = len(bucket)

        def arrived(_):
            nonlocal missing
            missing -= 1
            if missing == 0:
                grads = [p.grad.flatten() for p in bucket]
                flat = torch.cat(grads) if len(grads) > 1 else grads[0]  # one alone need not be copied
                on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
        return arrived

    for bucket in buckets:
        arrived = starter(bucket)
        hooks += [p.register_post_accumulate_grad_hook(arrived) for p in bucket]
    loss.backward()
    for hook in hooks:
        hook.remove()
    for bucket, flat, work in on_the_wire:
        work.wait()
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p)
        update(bucket)
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
for kind, cut, rows in (("perceptron", digit_shards, [3, 1, 2]), ("transformer", text_shards, [3, 1])):
    seed, shards, n, p = int(rng.integers(1000)), cut(rows), sum(rows), len(rows)
    want, wrong = [one_device(MODELS[kind](seed), shards, np.divide(rows, m)) for m in (n, n * p)]
    number = np.arange(len([*MODELS[kind](seed).parameters()]))[::-1]
    plan = [part.tolist() for part in np.split(number, [1, *sorted(rng.choice(number[:-2], 3, False))])]
    result = ranks.run(overlapped, kind, ranks.each(shards), n, plan, seed, world_size=p, seed=None)
    for got, shard, m in zip(result.returns, shards, rows):
        alone = one_device(MODELS[kind](seed), [shard], [m / n])
        agree(got, want, f"weights of a {kind}, buckets {plan}", rtol=1e-8, atol=1e-10, mistakes={
            "The sum is wanted, not the mean: each loss is a share already.": wrong,
            "Each rank used its own gradients: cut the sum up, into p.grad, before update.": alone})
print("backward_overlapped: the weights of one device, for a perceptron and a transformer")

# %% tags=["check"] points=3 limit_s=30
one_step = ("perceptron", ranks.each(digit_shards([32] * 4)), 128, LAYERS, 1, 1, 0.1, 2e-4)
trace = ranks.run(overlapped, *one_step, world_size=4, **MACHINE).trace
computed_s = 2 * 32 * 64 * (20 * 64 + 3 * 10) / 1e9 + 8 * 2e-4  # the first layer needs no gradient by x
calls, sent = len(trace.collectives), trace.bytes
assert calls == 4 * 8, f"{calls} collectives on 4 ranks; one all-reduce for each of 8 buckets makes 32"
assert sent == 6 * 238_160, f"{sent:,} bytes for gradients of 238,160 bytes: 1,428,960 through a ring"
agree(trace.compute_s, [computed_s] * 4, "seconds that the ranks computed", rtol=1e-6)
share = sum(trace.bytes_during_compute("backward")) / trace.bytes
assert share >= 0.8, f"{share:.0%} of the bytes went while backward computed, want 80 %: who waits?"
first, last = trace.compute_named("update", 0)[0].start_s, max(m.end_s for m in trace.messages)
assert first < last, "no update began before the last bucket had arrived: update each as it comes"
print("backward_overlapped: at least 80 % of the bytes go while backward computes")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Each bucket needs a count of gradients that are still missing, and a hook that lowers it. A function that makes the
# hook (`def starter(bucket): ... return arrived`) gives every bucket its own count; a hook made in a loop would see the
# loop's last bucket (Python closes over variables, not values).
# </details>

# %%
trace = ranks.run(overlapped, "perceptron", four, 128, LAYERS, 1, 1, world_size=4, **MACHINE).trace
trace.draw(title="The same step, the wire under backward", until_s=first_try.time_s);
inside = sum(trace.bytes_during_compute("backward")) / trace.bytes
print(f"{first_try.time_s * 1e3:.1f} ms before, {trace.time_s * 1e3:.1f} ms now;",
      f"{inside:.0%} of the bytes under backward")

# %% [markdown]
# Only the first layer's gradient, which comes last, is left in the open. It always is. (DDP's buckets hold 25 MB, the
# first one 1 MB, to get the wire going early; all ranks send them in one order.)
#
# ### Gradient accumulation
#
# A batch too large for memory is worked off in **microbatches**: backward adds to `p.grad`, k times, before one update,
# and frees that microbatch's activations. Summing over ranks each time would be right too, at k times the bytes.
#
# ### Exercise 3.2 · accumulated_step
#
# All microbatches but the last are this rank's own business (DDP's `no_sync()`). Hold one microbatch's graph at a time.

# %% tags=["hole"]
def accumulated_step(dist, share_of, microbatches, buckets, update):
    """A step over several microbatches, with each gradient once on the wire, under the last backward.

    share_of(microbatch): its part of the loss, to be added up. The others as in backward_overlapped.
    About four lines.
    """
    # BEGIN SOLUTION
    *first, last = microbatches
    for microbatch in first:
        share_of(microbatch).backward()
    backward_overlapped(dist, share_of(last), buckets, update)
    # END SOLUTION

# %% tags=["check"] limit_s=30
k, seed, shards = int(rng.integers(2, 4)), int(rng.integers(1000)), digit_shards([8, 12, 10])
micro = [pair for shard in shards for pair in zip(*(part.tensor_split(k) for part in shard))]
shares, number = np.array([len(part) for _, part in micro]) / 30, np.arange(3 * k) % k
times = {"": 1, "Summed over ranks before all were in, they are summed again.": 3.0 ** (k - 1 - number),
         "Only the last microbatch counts here.": number == k - 1,
         "The last one counts twice.": 1 + (number == k - 1), "Divided by k? Shares add up.": 1 / k}
weights = {says: one_device(perceptron(seed), micro, shares * m, steps=2) for says, m in times.items()}
result = ranks.run(accumulated, ranks.each(shards), 30, k, LAYERS, seed, world_size=3)
for got in result.returns:
    case = f"weights after 2 steps of {k} microbatches"
    agree(got, weights[""], case, rtol=1e-8, atol=1e-10, mistakes=weights)
print("accumulated_step: the weights of one device")

# %% tags=["check"] limit_s=30
shards = digit_shards([256] * 3)
trace = ranks.run(accumulated, ranks.each(shards), 768, 4, LAYERS, 1, 1, world_size=3, **MACHINE).trace
assert trace.bytes <= 4 * 238_160, f"{trace.bytes:,} bytes; each gradient once on the wire: 952,640"
inside = sum(trace.bytes_during_compute("step")) / trace.bytes
assert inside >= 0.8, f"{inside:.0%} of the bytes went while a rank computed: use the last backward"
live = max(trace.peak_live_bytes)
assert live <= 1.3e6, f"{live:,} bytes live; 920,000 will do: one microbatch's graph at a time"
print("accumulated_step: each gradient once on the wire, under the last backward")

# %% [markdown]
# ### How large should a bucket be?
#
# Small buckets start early but pay α each; one large bucket pays α once but starts when backward ends. The best lies in
# between, and you can compute it.
#
# ### Exercise 3.3 · step_time_s
#
# Bucket i is ready at `ready_s[i]`. The wire takes one bucket after the other, each as a ring all-reduce, none before it
# is ready. When has the last one arrived?

# %% tags=["hole"]
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    """Seconds until the last bucket has arrived.

    ready_s, bucket_bytes: lists, by bucket, in the order of sending. About four lines.
    """
    # BEGIN SOLUTION
    end_s = 0.0
    for ready, size in zip(ready_s, bucket_bytes):
        message_s = alpha_s + beta_s_per_byte * size / world_size
        end_s = max(end_s, ready) + 2 * (world_size - 1) * message_s
    return end_s
    # END SOLUTION

# %% tags=["check"]
for _ in range(12):
    p, n = rng.integers([2, 2], [6, 5]).tolist()
    wire = {"alpha_s": rng.uniform(1e-6, 1e-4), "beta_s_per_byte": rng.uniform(1e-6, 1e-4)}
    sizes = (8 * p * rng.integers(1, 5, n)).tolist()
    each_s = [2 * (p - 1) * (wire["alpha_s"] + wire["beta_s_per_byte"] * size / p) for size in sizes]
    ready_s = np.cumsum(rng.uniform(0, 2, n) * each_s).tolist()
    want = ranks.run(timed, ready_s, sizes, world_size=p, **wire).time_s
    got = step_time_s(list(ready_s), list(sizes), p, **wire)
    agree(got, want, f"step_time_s({ready_s}, {sizes}, {p}, **{wire})", rtol=1e-9, mistakes={
        "Two buckets can't be on the wire at once.": max(map(sum, zip(ready_s, each_s))),
        "Nothing is hidden here: backward and wire are added up.": ready_s[-1] + sum(each_s)})
print("step_time_s agrees with simulated ranks")

# %% [markdown]
# Predict the step of the eight layers for each size of bucket, then run it. When the buckets are ready we read off a run
# with a free wire.

# %%
wire = {"alpha_s": 4e-5, "beta_s_per_byte": 6e-9}
free = {"alpha_s": 0.0, "beta_s_per_byte": 0.0}
def stepped(plan, wire):
    machine = MACHINE | wire
    return ranks.run(overlapped, "perceptron", four, 128, plan, 1, 1, world_size=4, **machine).trace

# %%
parameter_bytes = [p.nbytes for p in perceptron(1).parameters()]
sizes, predicted_s, counted_s = [400, 5_000, 34_000, 68_000, 102_000, 136_000, 272_000], [], []
for plan in (planned(parameter_bytes, size) for size in sizes):
    ready_s = [call.start_s for call in stepped(plan, free).collectives if call.rank == 0]
    bucket_bytes = [sum(parameter_bytes[i] for i in bucket) for bucket in plan]
    predicted_s.append(step_time_s(ready_s, bucket_bytes, 4, **wire))
    counted_s.append(stepped(plan, wire).time_s)

# %%
figures.predicted_and_measured(sizes, predicted_s, counted_s, log="x", xunit="B", yunit="s",
    xlabel="bytes in a bucket, at most", ylabel="time of a step", dots_are="virtual time",
    title="Small buckets pay α, large ones hide nothing");

# %% [markdown]
# The bump on the right (100 kB) is no mistake: what counts is how much ends up in the last bucket, which nothing hides.
#
# **Send early, in pieces just large enough: then the wire is hidden but for the last bucket, as long as backward takes
# longer.**

# %% [markdown]
# ## Part 4 · What the shards should have known
#
# A student asks in the lecture: the parameters are the same on all ranks, but what of batch norm, which depends on the data? "I
# don't know exactly how you would do that off the top of my head." You are about to.
#
# Batch norm subtracts each feature's mean *over the batch* and divides by its standard deviation. On p ranks, each takes
# its own shard's: another function than on one device, noisier the smaller the shard.

# %%
x = torch.randn(32, 1) + torch.linspace(-2, 2, 32)[:, None]  # rows that come nearly sorted
whole = nn.functional.batch_norm(x, None, None, training=True)
apart = torch.cat([nn.functional.batch_norm(part, None, None, training=True) for part in x.chunk(4)])
ax = plt.subplots(figsize=(7.2, 2.6))[1]
ax.plot(whole.flatten(), "o", label="one device")
ax.plot(apart.flatten(), "o", mfc="none", mec="C1", mew=1.5, label="four ranks, each by itself")
ax.set(xlabel="row", ylabel="normalised", ylim=(-3, 3.9), title="Normalised in one piece and in four")
ax.legend(loc="upper left", ncols=2);

# %% tags=["driver"]
# What the checks of this part run on every rank. You may skip it.

def normalised(dist, x, slopes):
    """[y, gradient of the sum of all ranks' slopes · y by x] of batch_norm on this rank's rows."""
    x = x.clone().requires_grad_()
    y = batch_norm(dist, x)
    (y * slopes).sum().backward()
    return [y.detach(), x.grad]

# %% [markdown]
# ### Exercise 4.1 · batch_norm
#
# Forward needs sums over all rows of all ranks: Σx, Σx² and the number of rows, in one all-reduce. But that sum is part
# of the graph: what every rank computes from it depends on *this* rank's x. So what is the adjoint of x, if
# `total = Σ over ranks of x` and rank r's adjoint of its total is aᵣ? Write that as an `autograd.Function`; the rest is
# ordinary PyTorch.

# %% tags=["hole"]
class SumOverRanks(torch.autograd.Function):
    """The sum over ranks of a tensor, with its gradient."""

    @staticmethod
    def forward(ctx, x, dist):
        """The sum over ranks of x, a new tensor. About four lines."""
        # BEGIN SOLUTION
        ctx.dist, total = dist, x.clone()
        dist.all_reduce(total)
        return total
        # END SOLUTION

    @staticmethod
    def backward(ctx, adjoint):
        """(the adjoint of x, None for dist). About three lines."""
        # BEGIN SOLUTION
        total = adjoint.clone()  # every rank's loss saw this rank's x
        ctx.dist.all_reduce(total)
        return total, None
        # END SOLUTION

def batch_norm(dist, x, eps=1e-5):
    """x (rows, features) normalised by mean and variance (dividing by the rows) over all ranks' rows.

    SumOverRanks.apply(tensor, dist) sums; ranks may have unequal numbers of rows. About six lines.
    """
    # BEGIN SOLUTION
    rows = torch.full((1, x.shape[1]), float(len(x)), dtype=x.dtype, device=x.device)
    sums = torch.stack([x.sum(0), (x * x).sum(0), rows[0]])
    total, squares, rows = SumOverRanks.apply(sums, dist)
    mean = total / rows
    variance = squares / rows - mean * mean
    return (x - mean) * (variance + eps).rsqrt()
    # END SOLUTION

# %% tags=["check"]
rows, features = (rng.permutation(5)[:3] + 2).tolist(), int(rng.integers(2, 5))
x = torch.tensor(rng.normal(1, 2, (sum(rows), features)))
parts, normal = [part.clone() for part in x.split(rows)], nn.functional.batch_norm
y, alone = normal(x, None, None, training=True), [normal(x, None, None, training=True) for x in parts]
result = ranks.run(normalised, ranks.each(parts), ranks.each(parts), world_size=3)
calls = len(result.trace.collectives) / 3
for rank, want in enumerate(y.split(rows)):
    case, wrong = f"batch_norm on rank {rank}, shards of {rows} rows", alone[rank]
    agree(result.returns[rank][0], want.clone(), case, rtol=1e-8, atol=1e-10, mistakes={
        "Each rank used the mean and variance of its own rows.": wrong})
assert calls <= 2, f"{calls:g} collectives on a rank: all sums in one tensor make one each way"
print("batch_norm: the outputs of one device")

# %% tags=["check"]
rows = (rng.permutation(5)[:3] + 2).tolist()
x, slopes = torch.tensor(rng.normal(1, 2, (2, sum(rows), 3)))
parts = [ranks.each([part.clone() for part in t.split(rows)]) for t in (x, slopes)]
fixed = (slopes / (x.var(0, correction=0) + 1e-5).sqrt()).split(rows)
y = nn.functional.batch_norm(x.requires_grad_(), None, None, training=True)
lone = [torch.autograd.grad(each.sum(), x, retain_graph=True)[0] for each in (y * slopes).split(rows)]
got = [returned[1] for returned in ranks.run(normalised, *parts, world_size=3).returns]
for rank, want in enumerate(sum(lone).split(rows)):
    agree(got[rank], want.clone(), f"x's gradient on rank {rank}", rtol=1e-7, atol=1e-9, mistakes={
        "Only this rank's own loss is in it: the others' saw its x, too.": lone[rank].split(rows)[rank],
        "Mean and variance depend on x: they are taken for constants here.": fixed[rank]})
print("batch_norm: the gradients of one device")

# %% [markdown]
# <details><summary>Hint</summary>
#
# The adjoint of x is the sum of all aᵣ: another all-reduce. Lab 14 lives on this pair.
# </details>
#
# PyTorch's `SyncBatchNorm` merges the ranks' means and variances: Σx² loses digits where the mean is large. Layer norm
# and RMS norm look at one row only. What else looks across rows? Contrastive losses, load balancing of experts, clipping
# by the norm of the gradient (clip *after* the sum).
#
# **Data parallelism leaves a program unchanged exactly where rows don't meet.**
#
# ## Predict, then measure
#
# First the same function on real processes: gloo here, NCCL where there are GPUs. The transformer reads the novel for 20
# steps, in shards of unequal size.

# %% tags=["nbval-ignore-output"]
gpus = torch.cuda.device_count()
p = min(gpus, 4) if gpus > 1 else 2
real = {"machine": "nccl" if gpus > 1 else "gloo", "world_size": p}

# %% tags=["nbval-ignore-output"]
rows = [12, 20, 16, 8][:p]
shards = text_shards(rows)
plan = planned([w.nbytes for w in parameters], 40_000)
result = ranks.run(overlapped, "transformer", ranks.each(shards), sum(rows), plan, 1, 20, **real)
want = one_device(transformer(1), shards, [n / sum(rows) for n in rows], steps=20)
apart = max((got - want).abs().max().item() for got in result.returns)
print(f"{real['machine']}, 20 steps: at most {apart:.0e} from the weights of one device")

# %% [markdown]
# Then a step with 16 gradients, sent in 1, 2, 4, 8 or 16 buckets. The wire's own α and β come from all-reduces of a small
# and a large tensor, and backward is made as long as the wire needs for all of it. One bucket overlaps nothing. Which
# share of its time do 16 take? Would fewer be better? Write down your guess.

# %%
# BEGIN SOLUTION
# Backward and wire take as long as each other: 1 + 1 without overlap; with k buckets 1 + 1/k.
share = (1 + 1 / 16) / 2
# END SOLUTION
ledger.predict("a step with overlap / without, 16 buckets", share, "times")

# %% tags=["driver"]
def stopwatch(dist, functions, turns=7):
    """{name: seconds of a call of functions[name]}: the median over turns, of the slowest rank."""
    seconds = {name: [] for name in functions}
    for name in [*functions] * (turns + 2):  # turn by turn
        dist.barrier()
        start_s = now_s()
        functions[name]()
        seconds[name].append(now_s() - start_s)
    median_s = torch.tensor([np.median(times[2:]) for times in seconds.values()])
    dist.all_reduce(median_s, op=dist.ReduceOp.MAX)
    return dict(zip(seconds, median_s.tolist()))

def now_s():
    """The time, once the GPU has done all that it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()

def bucket_race(dist, total_bytes, counts):
    """[seconds of a small all-reduce, of a large one, {buckets: seconds of a step}]."""
    small, large = torch.zeros(1), torch.zeros(total_bytes // 8)
    wire_s = stopwatch(dist, {x.nbytes: lambda x=x: dist.all_reduce(x) for x in (small, large)})
    def step(buckets):
        works = []
        for part in large.chunk(buckets):
            until_s = time.perf_counter() + wire_s[large.nbytes] / buckets
            while (left_s := until_s - time.perf_counter()) > 0:  # backward
                time.sleep(left_s / 2 if left_s > 1e-3 else 0)
            works.append(dist.all_reduce(part, async_op=True))
        for work in works:
            work.wait()
    return [*wire_s.values(), stopwatch(dist, {k: lambda k=k: step(k) for k in counts})]

# %% tags=["nbval-ignore-output"]
counts, total_bytes = [1, 2, 4, 8, 16], 2**30 if gpus > 1 else 2**24
small_s, large_s, steps_s = ranks.run(bucket_race, total_bytes, counts, noted=False, **real).returns[0]
messages = 2 * (p - 1)
alpha_s, beta_s = small_s / messages, (large_s - small_s) / messages * p / total_bytes
def predicted_s(k):
    ready_s = [large_s * (i + 1) / k for i in range(k)]
    return step_time_s(ready_s, [total_bytes / k] * k, p, alpha_s, beta_s)

# %% tags=["nbval-ignore-output"]
ax = figures.predicted_and_measured(counts, list(map(predicted_s, counts)), list(steps_s.values()),
    log="x", yunit="s", xlabel="buckets", ylabel="time of a step",
    title=f"{p} processes on {real['machine']}: backward as long as the wire")
ax.set_xticks(counts, counts)
ledger.measured("a step with overlap / without, 16 buckets", steps_s[16] / steps_s[1], "times")

# %% [markdown]
# ### Against PyTorch's
#
# Last, a real step against `torch.nn.parallel.DistributedDataParallel`: forward, backward, SGD. On GPUs eight layers of
# 8192 × 8192 in bf16 with 1024 rows a rank: 134 MB of gradient a layer, a bucket each. Here four layers of 512 × 512.
# Both cores of a laptop compute *and* carry the messages, so there is little to hide behind: read the order of the bars
# on GPUs only.

# %% tags=["driver"]
def step_of(dist, kind, model, rate=1e-6):
    """A function of a batch that makes one step. kind: "no communication", "after backward", ..."""
    parameters, p = list(model.parameters()), dist.get_world_size()
    def update(bucket):
        with torch.no_grad():
            torch._foreach_add_(bucket, [q.grad for q in bucket], alpha=-rate)
        for q in bucket:
            q.grad = None
    whole = nn.parallel.DistributedDataParallel(model) if kind == "DistributedDataParallel" else model
    def step(x, y):
        loss = nn.functional.mse_loss(whole(x), y) / (1 if kind == "DistributedDataParallel" else p)
        if kind == "overlapped":
            return backward_overlapped(dist, loss, buckets_of(parameters, 2**20), update)
        loss.backward()
        if kind == "after backward":
            sum_in_buckets(dist, buckets_of(parameters, 1))
        return update(parameters)
    return step

def race(dist, width, layers, rows, dtype):
    """{kind: seconds of a step}."""
    batch, steps = [torch.randn(rows, width, dtype=dtype) for _ in range(2)], {}
    for kind in ("no communication", "after backward", "overlapped", "DistributedDataParallel"):
        linear = [nn.Linear(width, width, bias=False, dtype=dtype) for _ in range(layers)]
        model = nn.Sequential(*(layer for pair in zip(linear, [nn.ReLU()] * layers) for layer in pair))
        step = step_of(dist, kind, model)
        steps[kind] = lambda step=step: step(*batch)
    return stopwatch(dist, steps)

# %% tags=["nbval-ignore-output"]
size = (8192, 8, 1024, torch.bfloat16) if gpus > 1 else (512, 4, 64, torch.float32)
step_s = ranks.run(race, *size, noted=False, **real).returns[0]
figures.ladder({name: s * 1e3 for name, s in step_s.items()}, xlabel="milliseconds a step",
    title=f"A step of {size[1]} layers of {size[0]}² on {p} processes ({real['machine']})");

# %% [markdown]
# ## Where it is used
#
# - Li et al., *PyTorch Distributed: Experiences on accelerating data parallel training* (2020): buckets, hooks, reverse
#   order; `torch/csrc/distributed/c10d/reducer.cpp`. Sergeev and Del Balso's *Horovod* (2018).
# - Goyal et al., *Accurate, large minibatch SGD* (2017): what a batch p times larger does to the learning rate, and the
#   mistakes of this lab.
# - *Scaling*: the wire must take no longer than backward. Bytes stay at 2(p − 1)/p gradients a rank; computing shrinks
#   with the rows a rank has. So the batch size decides (lab 16).
#
# *Limits of ours*: one rank fails and all stop; every rank holds everything (lab 13).
#
# ## Done

# %% tags=["nbval-ignore-output"]
source = f"lab 12, measured: {p} processes on {real['machine']}"
hidden = (step_s["after backward"] - step_s["overlapped"]) / step_s["after backward"]
ledger.constant("share of a data-parallel step saved by overlap", hidden, "", source)
ledger.constant("all-reduce, small", small_s, "s", source)
ledger.constant("all-reduce, bytes of gradient over time", total_bytes / large_s, "B/s", source)
ledger.table()

# %% [markdown]
# Grade your lab with `python -m grading 12`.
#
# **A harder question.** The wire takes three times as long as backward. Overlap saves at most a quarter. What else can be
# computed while gradients travel, without changing the weights by a bit?
#
# <details><summary>Answer</summary>
#
# The *next forward*, layer by layer: it needs the first layer's weights first, and these arrive last. So don't send in
# the order of readiness: cut them small, and let the first layers' pieces overtake (ByteScheduler, 2019). Otherwise send
# less (lab 13 sends halves at other times), or compute more a step: accumulate.
# </details>
