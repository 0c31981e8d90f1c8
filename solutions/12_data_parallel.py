# %% [markdown]
# # 12 · Data parallel
#
# **How do p devices take one step of SGD together, and hide the wire?**
#
# After this lab you can
#
# - train on p devices and end with the weights that one device gets, for any cut of the batch;
# - send gradients in buckets while backward still computes, and predict how long a step takes;
# - say what data parallelism changes without being asked (batch norm), and fix it.
#
# You need labs 07 and 11, and no GPU. The core path takes about 160 minutes.
#
# Write your answers in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
import functools
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from common import figures, ledger
from common.checks import agree, expect
from common.figures.memory_drawings import compare
from common.training import replicas
from common.training.replicas import MODELS, flattened, mean_loss, perceptron, sgd, transformer
from nogpu import ranks

# %% tags=["setup"]
figures.use_style()
torch.set_default_dtype(torch.float64)  # so that "the same weights" can mean ten digits
rng = np.random.default_rng()
MACHINE = {"alpha_s": 1e-5, "beta_s_per_byte": 4e-9, "flops_per_s": 1e9}
LAYERS = [[2 * i + 1, 2 * i] for i in range(8)][::-1]  # the perceptron's parameters, a bucket per layer

COPY = "These rows are a copy; a slice is a view, and costs nothing."
digit_shards = functools.partial(replicas.digit_shards, rng)  # [(images (n, 64), digits (n,))] by rank
text_shards = functools.partial(replicas.text_shards, rng)  # [(characters (n, 16), those that follow)]

# %% [markdown]
# Minutes: 1.1 10, 1.2 5, 1.3 15, 2.1 20, 3.1 35, 3.2 10, 3.3 15, 4.1 25, and 25 for reading.
#
# **Recall.** Answer, then unfold.
#
# <details><summary>Lab 11: how long does a ring of p ranks need for n bytes (α per message, β per byte)?</summary>
#
# 2(p − 1) rounds of n/p bytes each: 2(p − 1)(α + β·n/p).
# </details>
#
# <details><summary>Lab 07: in reverse mode, which layer's gradient is known first, and which last?</summary>
#
# The last layer's is known first, and the first layer's last. Part 3 uses the time in between.
# </details>
#
# We train a network of eight layers on lab 07's digits, and a small copy of the course's language model on the novel. The
# batch is cut into **shards**, one per rank. `MACHINE` is four small computers and a small wire.
#
# `ranks.run(f, ..., world_size=p)` calls `f(dist, ...)` on p simulated ranks. An argument in `ranks.each`
# differs by rank. New: operations take time too, and `ranks.span` names a stretch of it.

# %% [markdown]
# ## One line, four devices
#
# Someone says: a training loop becomes data-parallel by one line. After backward, all-reduce the gradient of each parameter.
# Here is one step of four ranks. Each rank has 32 images of its own and a copy of the network.

# %%
def one_line_step(dist, shard):
    model = perceptron(seed=1)
    with ranks.span("forward"):
        loss = mean_loss(model, shard)
    with ranks.span("backward"):
        loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)  # the line

# %%
four = ranks.each(digit_shards([32] * 4))
first_try = ranks.run(one_line_step, four, world_size=4, **MACHINE).trace
ax = first_try.draw(title=f"Compute, then send: no rank computes in {first_try.bubble:.0%} of the step")
figures.describe(ax, "Four ranks compute forward and backward, and then only messages follow.")

# %% [markdown]
# While the ranks compute, the wire is empty. While the wire is busy, no rank computes. And the weights are wrong, because
# this line adds up four means. In this lab you fix the sum first, and then you hide the wire, with the same bytes.
#
# ## Part 1 · The weights of one device
#
# The aim is strict: after any number of steps, the weights of every rank are those that *one* device gets from the whole
# batch, up to rounding. First, cut the batch. If each rank gets `batch_size // world_size` rows, what happens to a batch of
# 130 on four ranks?

# %% tags=["driver"]
# What the checks of this part run on every rank. You may skip it.

def begun(dist, seed):
    """(parameters and count of steps, flat; a large number) of a rank after broadcast_parameters.

    seed: this rank's; no rank knows another's.
    """
    counts = [torch.tensor(seed), torch.tensor([2**60 + 1 + 2 * seed])]
    tensors = [*perceptron(seed).parameters(), *counts]
    places, trained = zip(*((tensor.data_ptr(), tensor.requires_grad) for tensor in tensors))
    held = [tensor.detach() for tensor in tensors]  # the storages that an optimizer would hold
    broadcast_parameters(dist, list(tensors))
    moved = places != tuple(tensor.data_ptr() for tensor in tensors)
    assert not moved, "a tensor has a new storage; write into the old one"
    same = trained == tuple(tensor.requires_grad for tensor in tensors)
    assert same, "a tensor's requires_grad changed: backward would give it no gradient"
    return flattened(held[:-1]), held[-1].item()

def averaged(dist, shards, seed, rate=0.1):
    """Weights, flat, after a step with average_gradients on each of these shards."""
    model = perceptron(seed)
    for shard in shards:
        if len(shard[0]):
            mean_loss(model, shard).backward()
        else:
            for w in model.parameters():
                w.grad = torch.zeros_like(w)
        before = flattened(model.parameters())
        average_gradients(dist, list(model.parameters()), len(shard[0]))
        kept = torch.equal(before, flattened(model.parameters()))
        assert kept, "average_gradients changed the weights: change p.grad only"
        sgd(model.parameters(), rate)
    return flattened(model.parameters())

# %% [markdown]
# ### Exercise 1.1 · shard_batch
#
# Cut a batch into contiguous shards. Each row is in exactly one shard. The sizes are as equal as possible: the first
# `rows % world_size` ranks take one more row.

# %% tags=["hole"]
def shard_batch(batch, rank, world_size):
    """This rank's rows of the batch: a view, empty if there are fewer rows than ranks.

    batch: a tensor, rows along its first dimension. Compute the slice yourself: torch.tensor_split,
    torch.chunk and numpy.array_split are not allowed. About three lines.
    """
    # BEGIN SOLUTION
    rows, more = divmod(len(batch), world_size)
    start = rank * rows + min(rank, more)
    return batch[start:start + rows + (rank < more)]
    # END SOLUTION

# %% tags=["check"]
from common.lessons.data_parallel import expected as oracle

cases = [(11, 4, 2), (2, 4), (0, 3, 2), (8, 1, 3, 2), (13, 6, 2), (7, 5)]
for n, p, *rest in [*cases, *rng.integers([0, 1, 1], [20, 7, 4], (30, 3)).tolist()]:
    turned = torch.tensor(rng.normal(size=(*rest, n))).movedim(-1, 0)
    for batch in (turned, turned.contiguous()):
        for rank in reversed(range(p)):
            want, wrong = oracle.shard(batch, rank, p)
            got, is_view = replicas.sharded(shard_batch, batch, rank, p)
            agree(got, want, f"a batch {tuple(batch.shape)}, shard {rank} of {p}", mistakes=wrong)
            expect(is_view, COPY)
agree(replicas.splits(shard_batch), [], "what shard_batch calls (torch.tensor_split is not allowed)")
print("shard_batch: every row in one shard, sizes as equal as can be")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# With 11 rows on 4 ranks, where does each shard begin?
# </details>
# <details><summary>Hint 2</summary>
#
# At 0, 3, 6 and 9: `rank` times the common size, and one more for each longer shard before it.
# </details>
#
# Next, all ranks must begin with the same weights. Someone says: "with the same random seed, you'll be fine." True? Usually.
# But one rank may have drawn more random numbers than the others, or may have restarted from a checkpoint. Averaging
# gradients never brings such ranks together, because equal steps keep the distance.
#
# ### Exercise 1.2 · broadcast_parameters
#
# Leave rank 0's values in the tensors of every rank. Do it in place, because an optimizer may already hold the tensors.

# %% tags=["hole"]
def broadcast_parameters(dist, tensors):
    """Leaves rank 0's values in the tensors of every rank, in place.

    tensors: list of parameters and buffers, of any shape and dtype. Each value is sent p − 1 times,
    once to each other rank. About two lines.
    """
    # BEGIN SOLUTION
    for tensor in tensors:
        dist.broadcast(tensor.data, src=0)  # .data: autograd need not know
    # END SOLUTION

# %% tags=["check"]
from common.lessons.data_parallel import expected as oracle

for p in (3, 1, 5):
    seeds = rng.choice(1000, p, replace=False).tolist()
    (want, whole), wrong = oracle.broadcast(seeds)
    result, sent = ranks.run(begun, ranks.each(seeds), world_size=p), (want.nbytes + 8) * (p - 1)
    for rank, (got, large) in enumerate(result.returns):
        agree(got, want, f"the tensors of rank {rank} of {p}", rtol=1e-12, mistakes=wrong[rank])
        agree(large, whole, f"a whole number in the tensors of rank {rank} of {p}", mistakes={
            "A float64 holds 53 bits: send each tensor in its own dtype.": int(float(whole))})
    agree(result.trace.bytes, sent, "the bytes sent: each tensor to p − 1 ranks", mistakes={
        "An all-reduce sends twice the bytes of a broadcast.": 2 * sent})
print("broadcast_parameters: every rank holds rank 0's values")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which collective gives one rank's values to all? Does autograd have to know?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Broadcast each tensor from rank 0. `tensor.data` is the same memory, without autograd, and integers may
# travel, too.
# </details>
#
# ### What should be averaged?
#
# `op=AVG` divides the sum of p gradients by p. With shards of 33, 33, 32 and 32 rows, a row of a small shard would count 3 %
# more than the others. In language models the difference is larger, because sequences have different lengths.
#
# ### Exercise 1.3 · average_gradients
#
# Each rank has called backward on *its own* mean loss. Make every `p.grad` the gradient of the mean over *all rows of all
# ranks*. Use one all-reduce per parameter, and a small one for what a rank can't know by itself.

# %% tags=["hole"]
def average_gradients(dist, parameters, rows):
    """Leaves in every p.grad the gradient of the mean loss over the rows of all ranks.

    rows: how many rows this rank's gradients are the mean of. Other ranks may have more or fewer, or
    no row at all; a rank without rows has gradients of zeros. About five lines.
    """
    # BEGIN SOLUTION
    total = torch.tensor([float(rows)])
    dist.all_reduce(total)
    for p in parameters:
        p.grad *= rows / total.item()
        dist.all_reduce(p.grad)
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
from common.checks import no_fault
from common.lessons.data_parallel import expected as oracle

for turns in ([(rng.permutation(9)[:3] + 1).tolist() for _ in "ab"], [[3, 0, 4, 2], [3, 5, 1, 1]]):
    seed, shards, p = int(rng.integers(1000)), [digit_shards(rows) for rows in turns], len(turns[0])
    want, wrong = oracle.averaged(seed, shards, turns)
    result = ranks.run(averaged, ranks.each(list(zip(*shards))), seed, world_size=p)
    case = f"weights, shards of {turns[0]} rows, then of {turns[1]}"
    for rank, got in enumerate(result.returns):
        mistakes = wrong[rank] | oracle.rounded(got, want, "perceptron", seed)
        agree(got, want, f"{case}, on rank {rank}", rtol=1e-9, atol=1e-10, mistakes=mistakes)
    no_fault(oracle.averaging_fault(result.trace, want.nbytes))
print("average_gradients: the weights of one device, on unequal shards")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# If this rank has 3 of all 10 rows, which part of the wanted mean is its own?
# </details>
# <details><summary>Hint 2</summary>
#
# Three tenths of its gradient. So first all-reduce the number of rows, then weight, then sum.
# </details>
#
# ### Clinic: the run that stops at step 3
#
# "It trains on one GPU. On four it stops: no error, 100 % load, and nothing happens." Somebody had added a guard against bad
# batches. NCCL says nothing for ten minutes. Our simulated ranks report it at once. Say what happened before you unfold.

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
# Rank 2 met a NaN and skipped the step, with its all-reduces. The others wait in theirs. (With more steps, the *next*
# all-reduces of rank 2 would answer them: it would stay one step behind, without any error.)
#
# All ranks must decide alike whether they call a collective. All-reduce the flag first, or take part with zero rows and
# gradients of zeros. A layer that only the data of some ranks pass through hangs in the same way. DDP's answer is
# `find_unused_parameters=True`.
# </details>
#
# **The gradient of a mean is a weighted sum over ranks: weight by rows, add up, and p devices act as one.**

# %% [markdown]
# ## Part 2 · Fewer messages
#
# From now on, the loss of each rank is its *share*: its summed loss divided by the number of rows of the whole batch. Then the
# gradient that we want is a plain **sum** over ranks. (PyTorch's `DistributedDataParallel`, DDP, always divides by p, so give
# it p times the share.)
#
# An all-reduce of n bytes takes 2(p − 1)(α + β·n/p). For a bias of 64 numbers, almost all of this is α. So gradients travel
# in **buckets**: several gradients in one flat buffer. The order is that of backward: the *last* layer comes first.

# %% tags=["driver"]
# What the checks of this part run on every rank. You may skip it.

def planned(sizes, bucket_bytes):
    """buckets_of() tensors of these sizes in bytes, as numbers of tensors."""
    dtypes = [torch.float32, torch.float64, torch.float16]
    tensors = [torch.empty(size, dtype=torch.uint8).view(dtypes[size % 3]) for size in sizes]
    number = {id(tensor): i for i, tensor in enumerate(tensors)}
    plan = [[number[id(tensor)] for tensor in bucket] for bucket in buckets_of(tensors, bucket_bytes)]
    assert [*map(id, tensors)] == [*number], "buckets_of changed the list that it was given"
    return plan

def picked(parameters, plan):
    """Buckets of parameters, of a plan of their numbers."""
    return [[parameters[i] for i in bucket] for bucket in plan]

def summed(dist, shard, total, plan, seed):
    """Gradients, flat, of a transformer after sum_in_buckets. total: rows of all ranks."""
    model = transformer(seed)
    (mean_loss(model, shard) * len(shard[0]) / total).backward()
    buckets = picked(list(model.parameters()), plan)
    sum_in_buckets(dist, buckets)
    kept = [*map(len, buckets)] == [*map(len, plan)]
    assert kept, "sum_in_buckets changed the buckets that it was given: the next step needs them"
    return flattened(p.grad for p in model.parameters())

# %% [markdown]
# ### Exercise 2.1 · sum_in_buckets
#
# Write two functions. `buckets_of` packs parameters in reverse order, and opens a new bucket when the next parameter would not
# fit. A parameter larger than a bucket gets a bucket of its own. `sum_in_buckets` flattens the gradients of each bucket into
# one tensor, sums it over ranks, and cuts it up again.
#
# <details><summary>Hint 1</summary>
#
# How much room is left in the newest bucket? How do you cut a flat tensor into its parts?
# </details>
# <details><summary>Hint 2</summary>
#
# Count the room down while you go through `reversed(parameters)`. `flat.split(sizes)` gives views; `view_as` shapes them.
# </details>

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
    """Leaves in every p.grad its sum over ranks, with one all-reduce per bucket. About five lines."""
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
    case = f"buckets_of tensors of {sizes} bytes, at most {most} per bucket, gave tensors {buckets}"
    expect(all(buckets), f"{case}: a bucket is empty")
    expect(sum(buckets, []) == list(range(len(sizes)))[::-1], f"{case}: not each once, last used first")
    full = [sum(sizes[i] for i in bucket) for bucket in buckets]
    over = [bucket for bucket, size in zip(buckets, full) if size > most and len(bucket) > 1]
    expect(not over, f"{case}: {over[:1]} holds too many bytes (p.nbytes is a tensor's size)")
    early = [b for a, b, size in zip(buckets, buckets[1:], full) if size + sizes[b[0]] <= most]
    expect(not early, f"{case}: the first of {early[:1]} would have fitted into the bucket before")
print("buckets_of: 100 random models")

# %% tags=["check"] points=2
from common.lessons.data_parallel import expected as oracle

seed, shards = int(rng.integers(1000)), text_shards([2, 1, 3])
want, wrong = oracle.summed(seed, shards)
plan = [list(range(a, b))[::-1] for a, b in ((11, 16), (7, 11), (2, 7), (0, 2))]
result = ranks.run(summed, ranks.each(shards), 6, plan, seed, world_size=3)
for got, own in zip(result.returns, wrong):
    mistakes = own | oracle.lost(got, want)
    agree(got, want, "a transformer's gradients, summed", rtol=1e-9, atol=1e-12, mistakes=mistakes)
calls, sent = len(result.trace.collectives) / 3, result.trace.bytes / 4
expect(calls == 4, f"{calls:g} collectives per rank for 4 buckets: one all-reduce for each")
agree(sent, float(want.nbytes), "bytes through a ring: gradients and nothing else")
print("sum_in_buckets: a transformer's gradients, one all-reduce per bucket")

# %%
parameters = list(transformer(1).parameters())
text = ranks.each(text_shards([4] * 4))
for name, most in (("one parameter", 1), ("40 kB", 40_000), ("everything", 10**9)):
    plan = planned([p.nbytes for p in parameters], most)
    trace = ranks.run(summed, text, 16, plan, 1, world_size=4, **MACHINE).trace
    print(f"{name:13} per bucket: {trace.rounds:3} rounds, {trace.bytes:,} bytes, {trace.time_s:.5f} s")

# %% [markdown]
# The bytes are the same, and the rounds are fewer. If that were all, one bucket would be best.
#
# **A message costs α, whatever it carries, so let small gradients travel together.**
#
# ## Part 3 · Hide the wire
#
# Backward finishes the gradient of the last layer first and never touches it again. So its all-reduce could run while the
# rest is computed. You need two tools. `dist.all_reduce(tensor, async_op=True)` only *starts* it and returns a handle; the
# tensor is yours again after `handle.wait()`. And autograd calls a **hook** when the gradient of a leaf is complete:

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
        is_one = [*map(id, bucket)] in [[*map(id, own)] for own in picked(parameters, plan)]
        assert is_one, "update takes one of the buckets, as it is: a list of its parameters"
        assert all(p.grad is not None for p in bucket), "update was called twice for a bucket"
        ranks.compute(update_s, "update")
        sgd(bucket, rate)
    for _ in range(steps):
        with ranks.span("forward"):
            loss = mean_loss(model, shard) * len(shard[0]) / total
        with ranks.span("backward"):
            buckets = picked(parameters, plan)
            reported_when_early(backward_overlapped, dist, loss, buckets, update)
        updated = all(p.grad is None for p in parameters)
        assert updated, "update was not called for every bucket"
        kept = [*map(len, buckets)] == [*map(len, plan)]
        assert kept, "backward_overlapped changed the buckets that it was given"
        left = any(p._post_accumulate_grad_hooks for p in parameters)
        assert not left, "a hook is still there after the step: each step would add one more"
    return flattened(parameters)

def reported_when_early(function, *args):
    """Calls it; a gradient that is None where a hook reads it gets a better message than Python's."""
    try:
        function(*args)
    except (AttributeError, TypeError) as error:
        if "NoneType" in str(error) and "wait" not in str(error):
            raise ValueError(f"a bucket was sent before its gradients were there: {error}") from error
        raise

def on_top(dist):
    """The gradient of 2·w on every rank, where w.grad was 1 before."""
    w, got = torch.ones(1, requires_grad=True), []
    w.grad = torch.ones(1)
    backward_overlapped(dist, 2 * w.sum(), [[w]], lambda bucket: got.append(bucket[0].grad.item()))
    return got

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
            kept = len(microbatches) == k
            assert kept, "accumulated_step changed the list of microbatches that it was given"
    return flattened(model.parameters())

def stepped(sizes, **wire):
    """(seconds of a step by step_time_s, a function of the bucket's size; counted ones, by size)."""
    parameter_bytes = [p.nbytes for p in perceptron(1).parameters()]
    def trace(size, **wire):
        step = ("perceptron", four, 128, planned(parameter_bytes, size), 1, 1)
        return ranks.run(overlapped, *step, world_size=4, **MACHINE | wire).trace
    free = trace(1, alpha_s=0.0, beta_s_per_byte=0.0)  # a bucket for each parameter, the last first
    starts_s = [call.start_s for call in free.collectives if call.rank == 0]
    def predicted_s(size):
        plan = planned(parameter_bytes, size)
        ready_s = [starts_s[sum(map(len, plan[:i + 1])) - 1] for i in range(len(plan))]
        bucket_bytes = [sum(parameter_bytes[i] for i in bucket) for bucket in plan]
        return step_time_s(ready_s, bucket_bytes, 4, **wire)
    return predicted_s, [trace(size, **wire).time_s for size in sizes]

def timed_step(ready_s, bucket_bytes, world_size, wire):
    """step_time_s, which must leave its lists as they are."""
    given = [*ready_s], [*bucket_bytes]
    seconds = step_time_s(*given, world_size, **wire)
    assert given == (ready_s, bucket_bytes), "step_time_s changed the lists that it was given"
    return seconds

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
# Run backward. Start the all-reduce of each bucket when the last of its gradients is there. Afterwards, wait for the buckets in
# the order in which they were started. As soon as one has arrived, call `update(bucket)`, because weights can be updated
# while later buckets are on the wire. Leave no hook behind: the function is called once per step.

# %% tags=["hole"]
def backward_overlapped(dist, loss, buckets, update):
    """Backward, with the gradients summed over ranks while it runs.

    loss: this rank's share. buckets: lists of parameters, in any order, whose p.grad may hold gradients
    of earlier microbatches: backward adds to them. update(bucket) is called once for each bucket, when
    its p.grad hold their sums over ranks. About twenty lines.
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
from common.lessons.data_parallel import expected as oracle

for kind, cut, rows in (("perceptron", digit_shards, [3, 1, 2]), ("transformer", text_shards, [3, 1])):
    seed, shards = int(rng.integers(1000)), cut(rows)
    want, wrong = oracle.overlapped(kind, seed, shards, rows)
    plan, options = oracle.plan(rng, kind), {"world_size": len(rows), "seed": None}
    result = ranks.run(overlapped, kind, ranks.each(shards), sum(rows), plan, seed, **options)
    for got, own in zip(result.returns, wrong):
        case, mistakes = f"weights of a {kind}, buckets {plan}", oracle.rounded(got, want, kind, seed)
        agree(got, want, case, rtol=1e-8, atol=1e-10, mistakes=own | mistakes)
print("backward_overlapped: the weights of one device, for a perceptron and a transformer")

# %% tags=["check"] limit_s=30
from common.lessons.data_parallel import expected as oracle

# The bucket that comes first in LAYERS[::-1] is complete last.
shards = digit_shards([32] * 4)
one_step = ("perceptron", ranks.each(shards), 128, LAYERS[::-1], 1, 1, 0.1, 2e-4)
result = ranks.run(overlapped, *one_step, world_size=4, **MACHINE)
calls, drawn = len(result.trace.collectives), lambda: result.trace.draw(title="Your step")
expect(calls == 4 * 8, f"{calls} collectives on 4 ranks; one all-reduce for each of 8 buckets makes 32")
agree(result.trace.bytes, 6 * 238_160, "the bytes of a ring, for gradients of 238,160 bytes")
oracle.agree_step(result.returns, shards)
oracle.remark_overlap(result.trace, drawn)
print("backward_overlapped: each gradient goes once, in 8 all-reduces")

# %% tags=["check"]
from common.checks import remark

got = ranks.run(on_top, world_size=3).returns
case = "w.grad in update: the loss is 2·w on 3 ranks, and w.grad was 1 before"
agree(got, [[9.0]] * 3, case, mistakes={
    "backward adds to p.grad: keep what was there before.": [[6.0]] * 3})
step = ("perceptron", ranks.each(digit_shards([32] * 4)), 128, LAYERS, 1, 1)
slow = ranks.run(overlapped, *step, world_size=4, **MACHINE | {"beta_s_per_byte": 4e-8}).trace
computed_s = slow.compute_s[0]
end_s = max([span.end_s for span in slow.compute_named("backward")], default=0.0)
remark(end_s <= 1.001 * computed_s, "On a slow wire, backward waits for messages: wait afterwards.",
       draw=lambda: slow.draw(title="Your step on a slow wire"))
print("backward_overlapped: earlier gradients are kept and summed")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How can a hook know that its gradient is the last one of its bucket?
# </details>
# <details><summary>Hint 2</summary>
#
# Each bucket needs a count of the gradients that are still missing, and a hook that lowers it. A function that makes the hook
# (`def starter(bucket): ... return arrived`) gives every bucket a count of its own. A hook made in a loop would see the last
# bucket of the loop, because Python closes over variables, not values.
# </details>

# %%
trace = ranks.run(overlapped, "perceptron", four, 128, LAYERS, 1, 1, world_size=4, **MACHINE).trace
ax = trace.draw(title="The same step, the wire under backward", until_s=first_try.time_s)
figures.describe(ax, "The messages now run under backward, and the step ends earlier.")
inside = sum(trace.bytes_during_compute("backward")) / trace.bytes
print(f"{first_try.time_s * 1e3:.1f} ms before, {trace.time_s * 1e3:.1f} ms now;",
      f"{inside:.0%} of the bytes under backward")

# %% [markdown]
# Only the gradient of the first layer, which comes last, is not hidden. It never is. (The buckets of DDP hold 25 MB, and the
# first one holds 1 MB, so that the wire starts early.)
#
# ### Gradient accumulation
#
# A batch too large for memory is processed in **microbatches**. Backward adds to `p.grad` k times before one update, and frees
# the activations of each microbatch. Summing over ranks each time would also be right, at k times the bytes.
#
# ### Exercise 3.2 · accumulated_step
#
# Only the last microbatch needs the wire (DDP calls this `no_sync()`). Hold the graph of one microbatch at a time.

# %% tags=["hole"]
def accumulated_step(dist, share_of, microbatches, buckets, update):
    """A step over one or more microbatches: each gradient once on the wire, under the last backward.

    share_of(microbatch): its part of the loss; the parts add up to the rank's share. buckets, update:
    as in backward_overlapped. About four lines.
    """
    # BEGIN SOLUTION
    *first, last = microbatches
    for microbatch in first:
        share_of(microbatch).backward()
    backward_overlapped(dist, share_of(last), buckets, update)
    # END SOLUTION

# %% tags=["check"] limit_s=30
from common.lessons.data_parallel import expected as oracle

for k in (4, 2, 1):
    seed, shards = int(rng.integers(1000)), digit_shards([8, 12, 10])
    want, wrong = oracle.accumulated(seed, shards, k)
    result = ranks.run(accumulated, ranks.each(shards), 30, k, LAYERS, seed, world_size=3)
    for got in result.returns:
        agree(got, want, f"weights, microbatches: {k}", rtol=1e-8, atol=1e-10, mistakes=wrong)
print("accumulated_step: the weights of one device")

# %% tags=["check"] limit_s=30
from common.checks import remark
from common.lessons.data_parallel import expected as oracle

shards = digit_shards([256] * 3)
result = ranks.run(accumulated, ranks.each(shards), 768, 4, LAYERS, 1, 1, world_size=3, **MACHINE)
trace = result.trace
expect(trace.bytes == 952_640, f"{trace.bytes:,} bytes; each gradient once on the wire: 952,640")
oracle.agree_step(result.returns, shards)
inside, live = sum(trace.bytes_during_compute("step")) / trace.bytes, max(trace.peak_live_bytes)
remark(inside >= 0.8, f"{inside:.0%} of the bytes went while a rank computed: use the last backward",
       draw=lambda: trace.draw(title="Your step"))
remark(live <= 1.3e6, f"{live:,} bytes live; 920,000 are enough: one microbatch's graph at a time")
print("accumulated_step: each gradient once on the wire")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which microbatches may leave their gradients where they are?
# </details>
# <details><summary>Hint 2</summary>
#
# All but the last: plain `backward()`. The last one goes through `backward_overlapped`.
# </details>
#
# ### How large should a bucket be?
#
# Small buckets start early, but each one pays α. One large bucket pays α once, but starts when backward ends. The best size
# lies in between, and you can compute it.
#
# ### Exercise 3.3 · step_time_s
#
# Bucket i is ready at `ready_s[i]`. The wire carries one bucket after the other, each as a ring all-reduce, and none before it
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
from common.lessons.data_parallel import expected as oracle

hand_made = [(3, [1, 3, 0.5]), (5, [0.3]), (2, [2, 0, 0])]  # waits, in all-reduces
for p, waits in [*hand_made, *((p, rng.uniform(0, 2, 3 + p % 2)) for p in (2, 3, 4, 5, 7) * 2)]:
    ready_s, sizes, wire = oracle.step(rng, p, waits)
    want, wrong = oracle.step_times(ready_s, sizes, p, **wire)
    case = f"step_time_s({ready_s}, {sizes}, {p}, **{wire})"
    got = timed_step(ready_s, sizes, p, wire)
    agree(got, want, case, rtol=1e-9, mistakes=wrong | oracle.lost(got, want))
print("step_time_s agrees with simulated ranks")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A bucket is ready, but the wire is busy. When does its all-reduce begin?
# </details>
# <details><summary>Hint 2</summary>
#
# At the later of two times. Keep the time at which the wire becomes free, and go through the buckets.
# </details>
#
# Now predict the step of the eight layers for each size of bucket, and then run it. A run with a free wire tells when the
# buckets are ready.

# %%
sizes = [400, 5_000, 34_000, 68_000, 102_000, 136_000, 272_000]
predicted_s, counted_s = stepped(sizes, alpha_s=4e-5, beta_s_per_byte=6e-9)
ax = figures.predicted_and_measured(sizes, predicted_s, counted_s, log="x", xunit="B", yunit="s",
    xlabel="bytes per bucket, at most", ylabel="time of a step", dots_are="virtual time",
    title="Small buckets pay α, large ones hide nothing")
ax.set_ylim(0, 9e-3)
figures.describe(ax, "The step time falls to a plateau at 34 kB, and rises by steps for large buckets.")

# %% [markdown]
# The dots lie on the prediction, because our ranks have exactly the α and β of the formula. The line has steps: a size matters
# only when one more gradient fits. From 34 to 100 kB it is almost flat. After that it goes up and down: what counts is how much
# is left for the last bucket, which nothing hides.
#
# **Your target: a step of at most 5.90 ms, on a wire with a larger α.** Which sizes reach it? (You need no solution for this.)

# %% tags=["nbval-ignore-output"]
replicas.explorer()

# %% [markdown]
# **Send early, in pieces that are just large enough. Then only the last bucket is not hidden, as long as backward takes
# longer than the wire.**
#
# ## Part 4 · What the shards should have known
#
# The parameters are the same on all ranks. But batch norm depends on the data: it subtracts the mean of each feature *over the
# batch*, and divides by the standard deviation. On p ranks, each rank takes the mean of its own shard. That is another
# function than on one device, and the smaller the shard, the larger the difference.

# %%
x = 0.05 * torch.randn(32, 1) + torch.linspace(-2, 2, 32)[:, None]  # rows that come nearly sorted
whole = nn.functional.batch_norm(x, None, None, training=True)
apart = torch.cat([nn.functional.batch_norm(part, None, None, training=True) for part in x.chunk(4)])
ax = plt.subplots(figsize=(7.2, 2.6))[1]
ax.plot(whole.flatten(), "o", label="one device")
ax.plot(apart.flatten(), "o", mfc="none", mec="C1", mew=1.5, label="four ranks, each by itself")
ax.set(xlabel="row", ylabel="normalised", ylim=(-3, 3.9), title="A ramp, in one piece and in four")
figures.describe(ax.legend(ncols=2).axes, "One ramp on one device, four sawteeth on four ranks.")

# %% tags=["driver"]
# What the checks of this part run on every rank. You may skip it.

def summed_over_ranks(dist, x, adjoint):
    """[the sum, x afterwards, the gradient of x, the adjoint afterwards] of SumOverRanks."""
    kept = x.clone().requires_grad_()
    total = SumOverRanks.apply(kept, dist)
    gradient = torch.autograd.grad(total, kept, adjoint)[0]
    return [total.detach(), kept.detach(), gradient, adjoint]

def normalised(dist, x, slopes, eps=1e-5):
    """[y, gradient of the sum of all ranks' slopes · y by x] of batch_norm on this rank's rows."""
    x = x.clone().requires_grad_()
    y = batch_norm(dist, x, eps)
    (y * slopes).sum().backward()
    return [y.detach(), x.grad]

# %% [markdown]
# ### Exercise 4.1 · batch_norm
#
# Forward needs sums over all rows of all ranks: first for the mean, then for the variance. But such a sum is part of the graph,
# because what every rank computes from it depends on *this* rank's x. So what is the adjoint of x, if `total = Σ over ranks
# of x`, and rank r's adjoint of its total is aᵣ? Write that as an `autograd.Function`. The rest is ordinary PyTorch.

# %% tags=["hole"]
class SumOverRanks(torch.autograd.Function):
    """The sum over ranks of a tensor, with its gradient."""

    @staticmethod
    def forward(ctx, x, dist):
        """The sum over ranks of x: a new tensor; x stays as it was. About four lines."""
        # BEGIN SOLUTION
        ctx.dist, total = dist, x.clone()
        dist.all_reduce(total)
        return total
        # END SOLUTION

    @staticmethod
    def backward(ctx, adjoint):
        """(the adjoint of x, None for dist); `adjoint` stays as it was. About three lines."""
        # BEGIN SOLUTION
        total = adjoint.clone()  # every rank's loss saw this rank's x
        ctx.dist.all_reduce(total)
        return total, None
        # END SOLUTION

def batch_norm(dist, x, eps=1e-5):
    """x (rows, features) normalised by mean and variance (dividing by the rows) over all ranks' rows.

    SumOverRanks.apply(tensor, dist) sums; at most two calls. Ranks may have unequal numbers of rows.
    The mean may be large beside the deviations, where Σx²/n − mean² would lose all digits. About six
    lines.
    """
    # BEGIN SOLUTION
    rows = torch.full((x.shape[1],), float(len(x)), dtype=x.dtype, device=x.device)
    total, rows = SumOverRanks.apply(torch.stack([x.sum(0), rows]), dist)
    deviation = x - total / rows
    variance = SumOverRanks.apply((deviation * deviation).sum(0), dist) / rows
    return deviation * (variance + eps).rsqrt()
    # END SOLUTION

# %% tags=["check"]
from common.lessons.data_parallel import expected as oracle

for mean, eps, hint in ((1, 1e-5, ""), (1, 0.5, " with eps = 0.5"), (1e6, 1e-5, " with a mean of 10⁶")):
    rows, tiny = rng.permutation([1, 3, 5]).tolist(), 1e-9 * mean**0.5
    x = torch.tensor(rng.normal(mean, 2, (9, int(rng.integers(1, 5)))))
    y, wrong = oracle.batch_norm(x, rows, eps)
    each, case = ranks.each([part.clone() for part in x.split(rows)]), f"batch_norm{hint}, {rows} rows"
    result = ranks.run(normalised, each, each, eps, world_size=3, only=oracle.COLLECTIVES)
    got, calls = torch.cat([out for out, _ in result.returns]), len(result.trace.collectives) / 3
    wrong |= oracle.blurred(got, y)
    agree(got, y, case, rtol=tiny, atol=tiny, mistakes=wrong, draw=lambda: compare(got, y))
    expect(calls <= 4, f"{calls:g} collectives per rank: two forward and two backward are enough")
print("batch_norm: the outputs of one device")

# %% tags=["check"]
from common.lessons.data_parallel import expected as oracle

names = ("the sum", "x afterwards", "the gradient of x", "the adjoint afterwards")
for p, *shape in ((4, 2, 3), (3, 1), (2, 5), (2, 2, 1, 4), (1, 3)):
    xs, gs = torch.tensor(rng.normal(size=(2, p, *shape)))
    wants, wrong = oracle.summed_over_ranks(xs, gs)
    got = ranks.run(summed_over_ranks, *map(ranks.each, (list(xs), list(gs))), world_size=p).returns
    for rank, i in np.ndindex(p, len(names)):
        case, (ours, want) = f"{names[i]}, {tuple(shape)}", (got[rank][i], wants[rank][i])
        mistakes = wrong[rank][i] | oracle.lost(ours, want)
        case = f"SumOverRanks on rank {rank} of {p}: {case}"
        agree(ours, want, case, rtol=1e-9, atol=1e-12, mistakes=mistakes)
print("SumOverRanks: sums both ways, and changes nothing that it was given")

# %% tags=["check"]
from common.lessons.data_parallel import expected as oracle

for rows, features, eps in ([3, 1, 5], 3, 1e-5), ([1, 4], 1, 1e-5), ([2, 3, 1, 4], 2, 0.5), ([6], 4, 1):
    x, slopes = torch.tensor(rng.normal(1, 2, (2, sum(rows), features)))
    wants, wrong = oracle.batch_norm_gradients(x, slopes, rows, eps)
    parts = [ranks.each([part.clone() for part in t.split(rows)]) for t in (x, slopes)]
    result = ranks.run(normalised, *parts, eps, world_size=len(rows), only=oracle.COLLECTIVES)
    for rank, ((_, got), want) in enumerate(zip(result.returns, wants)):
        case = f"x's gradient on rank {rank} of {len(rows)}, features: {features}"
        wrong[rank] |= oracle.blurred(got, want)
        agree(got, want, case, rtol=1e-9, atol=1e-10, mistakes=wrong[rank])
    expect(not (fault := oracle.sums_fault(result.trace, 4 * features)), fault)
print("batch_norm: the gradients of one device")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which ranks' losses does this rank's x change, and through which value?
# </details>
# <details><summary>Hint 2</summary>
#
# All of them, through the total. The adjoint of x is the sum of all aᵣ: another all-reduce. Lab 14 uses this pair in every layer.
# </details>
#
# PyTorch's `SyncBatchNorm` merges the means and variances of the ranks by their counts. What else looks across rows?
# Contrastive losses, the balance of experts, and clipping by the norm of the gradient.
#
# **Data parallelism leaves a program unchanged exactly where rows don't meet.**
#
# ## Predict, then measure
#
# First, the same function runs on real processes: gloo here, NCCL where there are GPUs. The language model reads the novel for
# 20 steps, in shards of unequal size.

# %% tags=["nbval-ignore-output"]
gpus = torch.cuda.device_count()
p = min(gpus, 4) if gpus > 1 else 2
real = {"machine": "nccl" if gpus > 1 else "gloo", "world_size": p}

# %% tags=["nbval-ignore-output"]
rows = [12, 20, 16, 8][:p]
shards = text_shards(rows)
plan = planned([w.nbytes for w in parameters], 40_000)
result = ranks.run(overlapped, "transformer", ranks.each(shards), sum(rows), plan, 1, 20, **real)
from common.lessons.data_parallel.expected import one_device
want = one_device(transformer(1), shards, [n / sum(rows) for n in rows], steps=20)
apart = max((got - want).abs().max().item() for got in result.returns)
print(f"{real['machine']}, 20 steps: at most {apart:.0e} from the weights of one device")

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
    wire_s = stopwatch(dist, {x.nbytes: functools.partial(dist.all_reduce, x) for x in (small, large)})
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

# %% [markdown]
# Then time a step with 16 gradients, sent in 1, 2, 4, 8 or 16 buckets. Here, backward only *waits*, for as long as the wire
# needs for all of them; a real step follows under Further. First measure the wire: all-reduces of a small and of a large
# tensor give its α and β.

# %% tags=["nbval-ignore-output"]
counts, total_bytes = [1, 2, 4, 8, 16], 2**30 if gpus > 1 else 2**24
small_s, large_s, steps_s = ranks.run(bucket_race, total_bytes, counts, noted=False, **real).returns[0]
alpha_s, beta_s = small_s / (2 * (p - 1)), (large_s - small_s) / (2 * (p - 1)) * p / total_bytes
source = f"lab 12, measured: {p} processes on {real['machine']}"
ledger.constant("all-reduce, small", small_s, "s", source)
ledger.constant("all-reduce, bytes of gradient over time", total_bytes / large_s, "B/s", source)
print(f"α = {alpha_s * 1e6:.0f} µs per message, β = {beta_s * 1e9:.4f} ns per byte, "
      f"{large_s * 1e3:.1f} ms for all {total_bytes >> 20} MiB")

# %%
# Predict: how long do k buckets take? Bucket i of k is ready at large_s * (i + 1) / k.
def predicted_s(k):
    # BEGIN SOLUTION
    ready_s = [large_s * (i + 1) / k for i in range(k)]
    return step_time_s(ready_s, [total_bytes / k] * k, p, alpha_s, beta_s)
    # END SOLUTION
ledger.guess("a step with overlap / without, 16 buckets", predicted_s(16) / predicted_s(1), "times")

# %% tags=["nbval-ignore-output"]
ax = figures.predicted_and_measured(counts, list(map(predicted_s, counts)), list(steps_s.values()),
    log="x", yunit="s", xlabel="buckets", ylabel="time of a step",
    title=f"{p} processes on {real['machine']}: backward as long as the wire")
ax.set(xticks=counts, xticklabels=counts, ylim=(0, None))
figures.describe(ax, "Time of a step against the number of buckets, predicted and measured.")
ledger.measured("a step with overlap / without, 16 buckets", steps_s[16] / steps_s[1], "times")
ledger.table()

# %% [markdown]
# On two H200s, four buckets were best, as predicted, and the prediction was 2 to 7 % too low (on another pair, up to 30 %): to
# start an all-reduce costs the host some time, which the formula leaves out. A real backward loses more, because the kernel of an all-reduce takes
# multiprocessors from it. On a laptop the processes share the cores with their messages. There the measured curve may rise
# where the predicted one still falls.

# %% [markdown]
# ## Where it is used
#
# - Li et al., *PyTorch Distributed: Experiences on accelerating data parallel training* (2020): buckets, hooks, reverse order;
#   `torch/csrc/distributed/c10d/reducer.cpp`. Sergeev and Del Balso's *Horovod* (2018).
# - Goyal et al., *Accurate, large minibatch SGD* (2017): what a batch p times larger does to the learning rate.
# - *Scaling*: the wire must not take longer than backward. The bytes per rank stay at 2(p − 1)/p gradients, and computing
#   shrinks with the rows per rank. So the batch size decides.
#
# *Limits of ours*: if one rank fails, all stop. Every rank holds all weights, gradients and optimizer states.

# %% [markdown]
# ## Done
#
# `make grade LAB=12` grades your lab.

# %% [markdown]
# ## Further
#
# The rest is optional.

# %% tags=["driver"]
def clipped(dist, gradients, rows, most):
    """[the norm, the gradients afterwards] of clip_gradients."""
    parameters = [torch.zeros_like(gradient, requires_grad=True) for gradient in gradients]
    for p, gradient in zip(parameters, gradients):
        p.grad = gradient.clone()
    norm = clip_gradients(dist, parameters, rows, most)
    return [norm, [p.grad for p in parameters]]
# %% [markdown]
# ### Exercise 5.1 · clip_gradients (optional)
#
# Large gradients are clipped by the *global* norm: the norm of all gradients together, as one long vector. Someone clips each
# rank's gradients before the sum. Is that the same? It is not: a rank's own gradient may be long where the mean is short.

# %% tags=["hole"]
def clip_gradients(dist, parameters, rows, most):
    """Averages p.grad over all rows of all ranks, then scales them so that their global norm is at most
    `most`; returns the norm before, a float.

    rows: as in average_gradients, which you may call. PyTorch's clip_grad_norm_ and
    clip_grads_with_norm_ are not allowed. All gradients are zero? Then they stay zero. About six lines.
    """
    # BEGIN SOLUTION
    average_gradients(dist, parameters, rows)
    norm = sum((p.grad * p.grad).sum() for p in parameters).sqrt().item()
    if norm > most:
        for p in parameters:
            p.grad *= most / norm
    return norm
    # END SOLUTION

# %% tags=["check"]
from common.lessons.data_parallel import expected as oracle

for scale, most in (5.0, 1.0), (0.01, 1.0), (0.0, 1.0), (3.0, 0.5), (1e5, 1.0), (3e5, 0.7), (1e6, 3.0):
    rows, values = rng.permutation([3, 1, 2]).tolist(), torch.tensor(scale * rng.normal(size=(3, 17)))
    parts = [[value[:12].reshape(4, 3).clone(), value[12:].clone()] for value in values]
    norm, want, lengths, mistakes = oracle.clip(parts, rows, most)
    result = ranks.run(clipped, ranks.each(parts), ranks.each(rows), most, world_size=3)
    for (length, got), own in zip(result.returns, lengths):
        agree(length, norm, "the norm before clipping", rtol=1e-9, atol=1e-15, mistakes=own)
        wrong = mistakes | oracle.lost(got, want)
        agree(got, want, f"gradients clipped to {most}", mistakes=wrong, **oracle.close(norm))
agree(replicas.clips(clip_gradients), [], "what clips (the library's functions are not allowed)")
print("clip_gradients: the same on all ranks, after the sum")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# When is the gradient complete: before the all-reduce, or after it?
# </details>
# <details><summary>Hint: the idea</summary>
#
# After it. All ranks then hold the same gradients, so the norm needs no message. It is one root of one sum of
# squares over all tensors.
# </details>
#
# ### Why do the checks use plain SGD?
#
# A test must be able to fail. Adam divides each gradient by its own running size, so a gradient that is four times too long makes
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
# ### Gradients in 16 bits
#
# Many systems send gradients in bf16, which halves the bytes. But where is the sum formed? A ring adds one rank after the other.
# If each partial sum is rounded to bf16, the error grows with the number of ranks.

# %%
for p_sum in (4, 64, 512):
    parts = torch.randn(p_sum, 10_000) + 0.1
    total = parts[0].bfloat16()
    for part in parts[1:]:
        total = total + part.bfloat16()  # each partial sum is rounded to 8 bits of fraction
    once = parts.bfloat16().float().sum(0)
    errors = [(x.double() - parts.sum(0)).norm() / parts.sum(0).norm() for x in (total, once)]
    print(f"{p_sum:3} ranks: error {errors[0]:.2%} with partial sums in bf16, {errors[1]:.2%} in fp32")

# %% [markdown]
# So send bf16 if you like, but add in fp32. The rounding of the ranks' own gradients averages out, as the last column shows.
# The rounding of partial sums does not: they grow with the number of ranks, and each one is rounded again. So large systems
# offer fp32 for this sum alone: `reduce_dtype` in PyTorch's `MixedPrecisionPolicy`, and Megatron's
# `--accumulate-allreduce-grads-in-fp32`.

# %% [markdown]
# ### Which random numbers are the same on all ranks?
#
# Dropout, shuffling and initial weights draw random numbers. Which of the three need the same seed on all ranks, and which
# another seed on each?
#
# <details><summary>Answer</summary>
#
# - *Initial weights*: the same on all ranks. (`broadcast_parameters` makes sure.)
# - *Shuffling*: the same permutation on all ranks, and each takes its own part of it. Otherwise two ranks read the same rows,
#   and nobody reads others.
# - *Dropout*: another seed on each rank. With equal seeds, all ranks drop the same units, and this noise no longer averages
#   out over ranks.
# </details>

# %% [markdown]
# ### Against PyTorch's
#
# A real step against `torch.nn.parallel.DistributedDataParallel`: forward, backward and SGD. On GPUs, the model has eight layers
# of 8192 × 8192 in bf16, with 1024 rows per rank: one bucket of 134 MB per layer. Without GPUs it has four layers of
# 512 × 512. The cores of a laptop compute *and* carry the messages, so read the order of the bars on GPUs only.

# %% tags=["driver"]
DDP = "DistributedDataParallel"
KINDS = ("no communication", "after backward", "overlapped", DDP, f"{DDP}, bucket views")

def step_of(dist, kind, model, rate=1e-6):
    """A function of a batch that makes one step. kind: "no communication", "after backward", ..."""
    parameters, p = list(model.parameters()), dist.get_world_size()
    def update(bucket):
        with torch.no_grad():
            torch._foreach_add_(bucket, [q.grad for q in bucket], alpha=-rate)
        for q in bucket:
            q.grad = None
    options = {"gradient_as_bucket_view": "views" in kind}
    whole = nn.parallel.DistributedDataParallel(model, **options) if DDP in kind else model
    def step(x, y):
        loss = nn.functional.mse_loss(whole(x), y) / (1 if DDP in kind else p)
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
    for kind in KINDS:
        model = nn.Sequential()
        for _ in range(layers):
            model.append(nn.Linear(width, width, bias=False, dtype=dtype)).append(nn.ReLU())
        step = step_of(dist, kind, model)
        steps[kind] = lambda step=step: step(*batch)
    return stopwatch(dist, steps)

# %% tags=["nbval-ignore-output"]
size = (8192, 8, 1024, torch.bfloat16) if gpus > 1 else (512, 4, 64, torch.float32)
step_s = ranks.run(race, *size, noted=False, **real).returns[0]
ax = figures.ladder({name: s * 1e3 for name, s in step_s.items()}, xlabel="milliseconds per step",
    title=f"A step of {size[1]} layers of {size[0]}² on {p} processes ({real['machine']})")
figures.describe(ax, "Milliseconds per step: no communication, after backward, overlapped, and DDP.")

# %% [markdown]
# On four H200s (`make bench-gpus`) our step took 8.21 ms, DDP 9.49 ms, and DDP with `gradient_as_bucket_view=True` 8.92 ms. So
# almost half of the lead is a default: without this option DDP copies each gradient into its bucket and back. (On two H200s it
# is a third.) The rest has another cause: we update the weights of a bucket as soon as it has arrived, and DDP's optimizer
# starts after the last one.

# %% [markdown]
# ### A harder question
#
# The wire takes three times as long as backward. Overlap saves at most a quarter. What else can be
# computed while gradients travel, without changing the weights by a bit?
#
# <details><summary>Answer</summary>
#
# The *next forward*, layer by layer. It needs the weights of the first layer first, and these arrive last. So do not send in
# the order of readiness: cut gradients small, and let those of the first layers overtake (ByteScheduler, 2019). Or send
# less, or compute more per step: accumulate.
# </details>
