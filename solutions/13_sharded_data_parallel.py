# %% [markdown]
# # 13 · Sharded data parallel
#
# **How do you stop storing everything p times?**
#
# After this lab you can
#
# - cut the optimizer, the gradients and the weights over p ranks, and train as one device does;
# - say what a rank holds at each moment, and count it;
# - predict when the additional communication is free.
#
# You need labs 11 and 12, and no GPU. The core path takes about 170 minutes.
#
# Write your answers in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
import functools

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from common import figures, ledger
from common.checks import agree, clinic, expect, no_fault, remark
from common.lessons.sharded_data_parallel import fsdp_units as units
from common.lessons.sharded_data_parallel.fsdp_units import weights_of
from common.training import replicas
from common.training.adam import adam
from nogpu import ranks

# %% tags=["setup"]
figures.use_style()
torch.set_default_dtype(torch.float64)  # so that "the same weights" can mean ten digits
rng = np.random.default_rng()
MACHINE = {"alpha_s": 1e-7, "beta_s_per_byte": 4e-9, "flops_per_s": 1e9}
gpus = torch.cuda.device_count()
REAL = {"machine": "nccl" if gpus > 1 else "gloo", "world_size": min(gpus, 4) if gpus > 1 else 2}
CLOSE = {"rtol": 1e-10, "atol": 1e-12}
digit_shards = functools.partial(replicas.digit_shards, rng)  # [(images (n, 64), digits (n,))] by rank
text_shards = functools.partial(replicas.text_shards, rng)  # [(characters (n, 16), those that follow)]

# %% [markdown]
# Estimated minutes per exercise: 1.1 10, 1.2 20, 2.1 25, 2.2 15, 3.1 15, 3.2 35, 4.1 15, 5.1 15, and 20 for reading.
#
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 11: which two collectives is an all-reduce made of, and how many bytes does a rank send in each?</summary>
#
# A reduce-scatter and then an all-gather. In each, a rank sends (p − 1)/p of the vector.
# </details>
#
# <details><summary>Lab 12: what does each of p data-parallel ranks hold that all others hold, too?</summary>
#
# The weights, their gradients after the sum, and the state of the optimizer.
# </details>

# %% [markdown]
# ## Everything, p times
#
# Here four ranks train a network of eight layers by data parallelism, as in lab 12, but with Adam. Adam keeps two numbers for
# each weight: a running mean m of the gradient, and a running mean v of its square. The runtime looks at each rank's live
# tensors and sorts their bytes into categories.

# %% tags=["driver", "shown"]
def replicated_step(dist, flats, shard):
    """A data-parallel step with Adam. flats: the weights of each layer, flat."""
    parts = units.units(dist, "deep", [flat.requires_grad_() for flat in flats])
    moments = [[torch.zeros_like(flat), torch.zeros_like(flat)] for flat in flats]  # m and v
    ranks.label("optimizer", moments)
    x = shard[0]
    for unit in parts:
        unit.full = unit.shard
        x = unit(x)
    nn.functional.cross_entropy(x, shard[1]).backward()
    for unit, (m, v) in zip(parts, moments):
        dist.all_reduce(unit.full.grad)
        adam(unit.full, unit.full.grad / dist.get_world_size(), m, v, 1)

# The check of exercise 1.2 runs this on every rank. You may skip it.

def optimizer_step(dist, weights, gradient, state, step):
    """[weights, state] after a step of shard_optimizer_state."""
    ranks.label("weights", weights), ranks.label("gradients", gradient)
    shard_optimizer_state(dist, weights, gradient, state, step)
    ranks.label("optimizer", state)
    return [weights, state]

# %%
four = digit_shards([4] * 4)
whole = ranks.run(replicated_step, weights_of("deep", 1), ranks.each(four), **MACHINE).trace
ax = units.draw_categories(whole, "Data parallel: four ranks hold the same")
figures.describe(ax, "Four equal bars: each rank holds weights, gradients and twice as much for Adam.")

# %% [markdown]
# Four ranks have four times the memory, and use it for one model. In real training a weight takes 2 bytes in bf16, its gradient
# 2, and the optimizer 12: a copy in fp32, m and v. These 16 bytes per weight make 1,120 GB for a model of 70 billion weights.
# No device has that. But no rank *needs* all of it at once, either.

# %% [markdown]
# ## Part 1 · The optimizer
#
# Adam treats each weight by itself. So a rank can update a part of the weights alone, if it has their m, v and summed gradients.
# Cut the flat vector of n weights into p **shards** of equal length ⌈n/p⌉, one for each rank. Where p does not divide n, the
# last shards are filled up with zeros, the **padding**.
#
# ### Exercise 1.1 · own_shard
#
# Cut this rank's shard. A slice would be a view, and a view keeps the whole vector in memory.

# %% tags=["hole"]
def own_shard(flat, rank, world_size):
    """This rank's shard (⌈n/p⌉,) of a flat vector (n,): new memory, with zeros after the vector's end.

    A shard may lie beyond the end and have zeros only. About four lines.
    """
    # BEGIN SOLUTION
    size = -(-len(flat) // world_size)
    shard = flat.new_zeros(size)
    part = flat[rank * size:(rank + 1) * size]
    shard[:len(part)] = part
    return shard
    # END SOLUTION

# %% tags=["check"]
from common.lessons.sharded_data_parallel.expected import shards as oracle

for n, p in [(11, 4), (2, 4), (5, 4), (8, 1), (8, 4), *rng.integers([1, 1], [20, 7], (20, 2)).tolist()]:
    flat = torch.tensor(rng.normal(size=n))
    for rank in range(p):
        want, wrong = oracle.cut(flat.clone(), p)[rank], oracle.shard_mistakes(flat.clone(), rank, p)
        got, case = own_shard(flat.clone(), rank, p), f"own_shard of {n} numbers, rank {rank} of {p}"
        agree(got, want, case, mistakes=wrong)
        expect(p == 1 or got.untyped_storage().nbytes() <= want.nbytes,
               f"{case}: this is a view, and it keeps all {n} numbers in memory. Return a copy.")
print("own_shard: equal lengths, zeros at the end, and no view")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# How long is a shard, and how many of its numbers exist?
# </details>
# <details><summary>Hint: the idea</summary>
#
# ⌈n/p⌉ numbers. Begin with zeros, and copy what the slice of the vector has. Slices beyond the end are short or
# empty, not wrong.
# </details>
#
# ### Exercise 1.2 · shard_optimizer_state
#
# Write a step with a sharded optimizer (ZeRO-1). All ranks have all weights, and each has a whole gradient, of its own share of
# the loss. Afterwards all ranks have the new weights, but each keeps m and v of *its* shard only. `adam` changes weights, m and
# v in place.
#
# Send no more than data parallelism does. An all-reduce followed by an all-gather would send half as much again.

# %% tags=["hole"]
def shard_optimizer_state(dist, weights, gradient, state, step):
    """A step of Adam; leaves the new weights in `weights`, on all ranks.

    weights, gradient: (n,); the sum of all ranks' gradients is wanted. state: {} before the first step,
    then {"m": ..., "v": ...} of this rank's shard, (⌈n/p⌉,) each. step: 1, 2, ...
    Use own_shard and adam(weights, gradient, m, v, step). About eleven lines.
    """
    # BEGIN SOLUTION
    p, n = dist.get_world_size(), len(weights)
    shard = own_shard(weights, dist.get_rank(), p)
    if not state:
        state.update(m=torch.zeros_like(shard), v=torch.zeros_like(shard))
    whole = weights.new_zeros(p * len(shard))
    whole[:n] = gradient
    total = torch.empty_like(shard)
    dist.reduce_scatter_tensor(total, whole)
    adam(shard, total, state["m"], state["v"], step)
    dist.all_gather_into_tensor(whole, shard)
    weights.copy_(whole[:n])
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.sharded_data_parallel.expected import shards as oracle

for n, p in ((11, 4), (12, 3), (3, 4), (5, 1)):
    one_device = oracle.AdamRun(rng, n, p)
    for step in (1, 2, 3):
        arguments, want, wrong = one_device.step(step)  # changes what ranks keep between steps
        result = ranks.run(optimizer_step, *arguments, world_size=p)
        said = one_device.state_fault([state for _, state in result.returns])
        expect(not said, said)
        for (got, _), known, rank in zip(result.returns, wrong, range(p)):
            agree(got, want, f"weights of rank {rank} of {p}, step {step}", **CLOSE, mistakes=known)
        no_fault(one_device.bytes_fault(result.trace))
print("shard_optimizer_state: one device's weights, a shard's m and v, and the bytes of an all-reduce")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which half of an all-reduce gives each rank the sum of its own shard? Which half spreads the new weights? Pad the gradient to
# p·⌈n/p⌉ numbers first.
# </details>
#
# The check changes m and v between two steps, in the shards that your function returned. A rank that kept a second copy
# somewhere would now use the wrong one. Per weight, a rank holds 2 + 2 + 12/p bytes: **4 + 12/p**, and it sends as many bytes as
# before.
#
# **An all-reduce is two halves, and the optimizer fits between them.**

# %% [markdown]
# ## Part 2 · The gradients
#
# If a rank updates one shard only, why should it keep the gradient of all others? In ZeRO-2, a gradient is reduce-scattered as
# soon as backward has it, and its memory is free again. Weights are grouped into **units**, here a layer each. While a unit's
# gradient is on its way, the next one is computed, as in lab 12.
#
# A weight that two layers share (a **tied** weight, such as an embedding that also scores) is in one unit. Its gradient is
# complete when both layers have added to it.

# %% tags=["driver"]
# What the checks of this part run on every rank. You may skip it.

def hooks_on(groups):
    """How many hooks these groups' tensors call when their gradients are complete."""
    return sum(len(w._post_accumulate_grad_hooks or ()) for group in groups for w in group)

def units_backward(dist, kind, flats, batches, total, given):
    """[shards, hooks left] after shard_gradients for each batch."""
    groups = [[part.clone().requires_grad_() for part in flat.tensor_split(2)] for flat in flats]
    ranks.label("weights", groups), ranks.label("gradients", given)
    parts = units.units(dist, kind, flats)
    own = list(dict.fromkeys(parts))
    groups = [groups[unit.number] for unit in own]
    hooks = hooks_on(groups)
    for x, targets in batches:
        for unit, group in zip(own, groups):
            unit.full = torch.cat(group)
        for unit in parts:
            x = unit(x)
        for unit in own:
            unit.full = None
        loss = nn.functional.cross_entropy(x, targets, reduction="sum") / total
        shard_gradients(dist, loss, groups, given)
    return [given, hooks_on(groups) - hooks]

def many_gradients(dist, count, steps):
    """The hooks that shard_gradients leaves on weights of 4 MiB, with new shards in each step."""
    groups = [[torch.ones(units.TABLE_BYTES // 8, requires_grad=True)] for _ in range(count)]
    for _ in range(steps):
        shards = [torch.zeros(len(w) // dist.get_world_size()) for w, in groups]
        loss = torch.stack([w[:8].sum() for w, in groups]).sum()
        shard_gradients(dist, loss, groups, shards)
        dist.barrier()
    return hooks_on(groups)

def clipped(dist, shards, sizes, most):
    """[the norm, the shards afterwards] of clip_shards."""
    return [clip_shards(dist, shards, sizes, most), shards]

# %% [markdown]
# ### Exercise 2.1 · shard_gradients
#
# Run backward. When the last gradient of a unit is there, reduce-scatter the unit, add the result to this rank's shard, and drop
# the unit's gradients. The function is called once per microbatch, and the shards add up. Leave no hook behind.

# %% tags=["hole"]
def shard_gradients(dist, loss, groups, shards):
    """Backward; adds to each shard this rank's part of the sum over ranks of a unit's gradient.

    loss: this rank's share. groups: by unit, its list of weights, each in one unit; flat and in this
    order they have n numbers. shards: by unit, (⌈n/p⌉,), with the sum of earlier microbatches.
    Afterwards every w.grad is None. About eighteen lines.
    """
    # BEGIN SOLUTION
    p, hooks = dist.get_world_size(), []

    def starter(group, shard):
        missing = len(group)

        def arrived(_):
            nonlocal missing
            missing -= 1
            if missing == 0:
                flat = torch.cat([w.grad.flatten() for w in group])
                whole = shard.new_zeros(p * len(shard))
                whole[:len(flat)] = flat
                for w in group:
                    w.grad = None
                own = torch.empty_like(shard)
                dist.reduce_scatter_tensor(own, whole)
                shard.add_(own)
        return arrived

    for group, shard in zip(groups, shards):
        arrived = starter(group, shard)
        hooks += [w.register_post_accumulate_grad_hook(arrived) for w in group]
    loss.backward()
    for hook in hooks:
        hook.remove()
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
from common.lessons.sharded_data_parallel.expected import shards as oracle

for kind, p, k in (("perceptron", 3, 1), ("tied", 2, 2), ("perceptron", 4, 2)):
    batches = digit_shards(rng.integers(1, 5, p * k))
    case, *data = oracle.backward_gradients(rng, kind, batches, p)
    result = ranks.run(units_backward, kind, *data, world_size=p)
    for rank in range(p):
        said = f"gradient shards, {kind} model, rank {rank} of {p}, microbatches: {k}"
        agree(result.returns[rank][0], case.want[rank], said, **CLOSE, mistakes=case.mistakes[rank])
    no_fault(oracle.bytes_fault(result.trace.bytes, k * case.bytes, k * case.bytes))
print("shard_gradients: one device's gradients, with tied weights, padding and microbatches")

# %% tags=["check"] limit_s=30
from common.lessons.sharded_data_parallel.expected import shards as oracle

flats, batches = weights_of("deep", 1), digit_shards([4] * 4)
own, want = list(zip(batches)), oracle.gradients("deep", flats, batches, [1 / 4] * 4)
given = [[torch.zeros(-(-len(flat) // 4)) for flat in flats] for _ in range(4)]
result = ranks.run(units_backward, "deep", flats, ranks.each(own), 16, ranks.each(given), **MACHINE)
agree(oracle.whole([shards for shards, _ in result.returns], want), want, "gradients", **CLOSE)
calls = [call.name for call in result.trace.calls(0)]
expect(calls == ["reduce_scatter"] * len(flats), f"rank 0 calls {calls}; one for each unit is enough")
result = ranks.run(many_gradients, 8, 3, world_size=2, held=True)  # 8 weights of 4 MiB, 3 steps
no_fault(oracle.gradients_fault(result.trace, hooks=result.returns[0]))
remark(not result.returns[0], f"{result.returns[0]} hooks are left. Remove each of them.")
print("shard_gradients: one reduce-scatter per unit, and no gradient kept whole")

# %% [markdown]
# <details><summary>Hint</summary>
#
# It is `backward_overlapped` of lab 12 with another collective. A counter per unit tells when its last gradient is there.
# </details>

# %% [markdown]
# ### The norm of what nobody has
#
# Large gradients are clipped by the norm of *all* gradients together. No rank has them all. And what stands in the padding may be
# anything: a buffer from `torch.empty` holds old numbers there.
#
# ### Exercise 2.2 · clip_shards
#
# Find the global norm with one all-reduce of one number. If it exceeds `most`, scale all shards by most/norm.

# %% tags=["hole"]
def clip_shards(dist, shards, sizes, most):
    """Scales the shards so that the whole gradient's norm is at most `most`; returns the norm before.

    shards: by unit, (⌈n/p⌉,), changed in place; sizes: by unit, n. What stands in the padding is not
    defined. The norm is a float. About eight lines.
    """
    # BEGIN SOLUTION
    total = torch.zeros(1)
    for shard, size in zip(shards, sizes):
        real = shard[:max(0, size - dist.get_rank() * len(shard))]
        total += (real * real).sum()
    dist.all_reduce(total)
    norm = total.sqrt().item()
    if norm > most:
        for shard in shards:
            shard *= most / norm
    return norm
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.sharded_data_parallel.expected import shards as oracle

for p, sizes, most in ((4, [11, 2, 5], 1.0), (3, [7, 9], 6.0), (1, [5], 0.5), (2, [3, 3, 4], 0.1)):
    case = oracle.Norms(rng, sizes, p, most)
    result = ranks.run(clipped, case.copies(), sizes, most, world_size=p)
    for rank, (got, _) in enumerate(result.returns):
        said = f"the norm of units of {sizes} numbers, rank {rank} of {p}"
        agree(got, case.norm, said, rtol=1e-10, mistakes=case.mistakes[rank])
    agree(case.joined([shards for _, shards in result.returns]), case.want,
          f"units of norm {case.norm:.3g}, clipped to {most:g}", **CLOSE, mistakes=case.scaled)
    one, sent = 16 * (p - 1), result.trace.bytes  # summed; below: by unit, or gathered
    expect(sent in (one, one * len(sizes), p * one // 2), f"{sent} B: one number per rank is enough")
print("clip_shards: the norm of all shards, and of no padding")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# How many numbers of my shard are no padding?
# </details>
# <details><summary>Hint: the idea</summary>
#
# At most n − rank · ⌈n/p⌉, and never fewer than none. Sum their squares over all units before the one
# all-reduce. The root comes last.
# </details>
#
# With ZeRO-2, a rank holds 2 + 2/p + 12/p bytes per weight: **2 + 14/p**. It sends as much as data parallelism, if it uses
# one microbatch per step.
#
# **A gradient is needed whole for a moment only: sum it, keep your shard, forget the rest.**

# %% [markdown]
# ## Part 3 · The weights
#
# A unit's weights are needed twice in a step: when forward computes it, and when backward does. In between, p − 1 of p shards can
# live elsewhere. This is ZeRO-3, or *fully sharded data parallel* (FSDP): gather a unit's weights, compute, release them.
#
# A `Unit` of the course has `unit.shard`, this rank's weights; `unit.gradient`, the shard of their gradient; and `unit.full`, all
# its weights while they are gathered, else None. `unit(x)` computes with `unit.full`.

# %% tags=["driver"]
# What the checks of this part run on every rank. You may skip it.

def primitives(dist, shard, gradient, given):
    """[gathered weights, unit.gradient, whether unit.full is None after release]."""
    unit, mark = units.Unit(0, nn.Identity(), shard, given[0]), units.marker(dist)
    gathering = gather_parameters(dist, unit)
    assert gathering is not None, "gather_parameters returned None: return the collective's handle"
    mark(0)  # the network sees whether this comes before what was started is done
    ranks.compute(1.0)
    gathering.wait()
    gathered = unit.full.clone()
    release(unit)
    arrived = reduce_scatter_gradients(dist, unit, gradient)
    assert callable(arrived), f"reduce_scatter_gradients returned {arrived}: return a function"
    mark(1)
    ranks.compute(1.0)
    arrived()
    return [gathered, unit.gradient, unit.full is None]

def released(dist, count):
    """Gathers and releases so many units of 4 MiB, and still has the tensors, as others might."""
    kept = []
    for unit in units.tables(dist, count):
        gather_parameters(dist, unit).wait()
        kept.append(unit.full)
        release(unit)
        dist.barrier()

def both_passes(dist, count):
    """(Whether a graph is left after forward, the units still gathered then, [the output's sum,
    those of the gradient shards]) of units of 4 MiB."""
    parts = units.tables(dist, count)
    ys, inputs = forward_units(dist, parts, [torch.ones(2, 8)])
    graph, left = ys[0].requires_grad, [unit.number for unit in parts if unit.full is not None]
    backward_units(dist, parts, inputs, [torch.ones(2, 8)])
    sums = [ys[0].sum().item(), *(unit.gradient.sum().item() for unit in parts)]
    return graph, left or [unit.number for unit in parts if unit.full is not None], sums

def forward_pass(dist, kind, shards, xs):
    """[outputs, inputs of each unit]."""
    parts = units.units(dist, kind, shards, marked=True)
    ys, inputs = forward_units(dist, parts, xs)
    return [[y.detach() for y in ys], [[x.detach() for x in own] for own in inputs]]

def backward_pass(dist, kind, shards, inputs, slopes, given):
    """Gradient shards by unit."""
    slots = dict(zip(dict.fromkeys(unit.number for unit in units.units(dist, kind, shards)), given))
    parts = units.units(dist, kind, shards, [slots.get(i) for i in range(len(shards))], marked=True)
    backward_units(dist, parts, inputs, slopes)
    return [unit.gradient for unit in dict.fromkeys(parts)]

def trained(dist, kind, shards, batches, most, k=2):
    """(losses, norms, this rank's shards) of steps with your functions, each of k microbatches.

    batches: by step, (inputs, targets, rows of all ranks).
    """
    parts = units.units(dist, kind, shards, [torch.zeros_like(shard) for shard in shards])
    own, losses, norms = list(dict.fromkeys(parts)), [], []
    moments = [[torch.zeros_like(unit.shard), torch.zeros_like(unit.shard)] for unit in own]  # m and v
    ranks.label("optimizer", moments)
    for step, (inputs, targets, total) in enumerate(batches, 1):
        with ranks.span("forward"):
            ys, kept = forward_units(dist, parts, list(inputs.tensor_split(k)))
        loss, slopes = torch.zeros(1), []
        for y, target in zip(ys, targets.tensor_split(k)):
            y = y.detach().requires_grad_()
            part = nn.functional.cross_entropy(y.flatten(0, -2), target.flatten()) * len(y) / total
            slopes += torch.autograd.grad(part, y)
            loss += part.detach()
        del ys, y
        with ranks.span("backward"):
            backward_units(dist, parts, kept, slopes)
        norms.append(clip_shards(dist, [u.gradient for u in own], [u.size for u in own], most))
        for unit, (m, v) in zip(own, moments):
            adam(unit.shard, unit.gradient, m, v, step)
            unit.gradient.zero_()
        dist.all_reduce(loss)
        losses.append(loss.item())
    return losses, norms, [unit.shard for unit in own]

# %% [markdown]
# ### Exercise 3.1 · gather_parameters
#
# Write the three pieces. Both collectives only *start*, so that a unit can travel while another one computes.

# %% tags=["hole"]
def gather_parameters(dist, unit):
    """Starts to gather the unit's weights into unit.full, a new tensor (p·⌈n/p⌉,); returns the handle.

    About two lines.
    """
    # BEGIN SOLUTION
    unit.full = unit.shard.new_empty(dist.get_world_size() * len(unit.shard))
    return dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)
    # END SOLUTION

def release(unit):
    """Frees the gathered weights; unit.full is None afterwards. About two lines.

    Somebody else may still hold the tensor: resize its untyped_storage() to 0 bytes.
    """
    # BEGIN SOLUTION
    unit.full.untyped_storage().resize_(0)
    unit.full = None
    # END SOLUTION

def reduce_scatter_gradients(dist, unit, gradient):
    """Starts to sum the unit's gradient (p·⌈n/p⌉,) over ranks.

    Returns a function without arguments, which waits and adds this rank's part to unit.gradient.
    About six lines.
    """
    # BEGIN SOLUTION
    own = torch.empty_like(unit.gradient)
    work = dist.reduce_scatter_tensor(own, gradient, async_op=True)

    def arrived():
        work.wait()
        unit.gradient += own
    return arrived
    # END SOLUTION

# %% tags=["check"] limit_s=30
from common.lessons.sharded_data_parallel.expected import shards as oracle

for p, size in ((4, 3), (1, 4), (3, 1)):
    shards, case, data = oracle.one_unit(rng, p, size)
    result = ranks.run(primitives, *data, world_size=p, alpha_s=0.1, beta_s_per_byte=0.0)
    for rank in range(p):
        (full, gradient, is_none), wrong = result.returns[rank], case.mistakes[rank]
        agree(full, shards.flatten(), f"unit.full on rank {rank} of {p}")
        agree([gradient], case.want[rank], f"[unit.gradient], rank {rank}", **CLOSE, mistakes=wrong)
        expect(is_none, "release: unit.full must be None afterwards")
    no_fault(oracle.unit_fault(result.trace, case.bytes))
no_fault(oracle.release_fault(ranks.run(released, 8, world_size=2, held=True).trace))
print("gather_parameters, release, reduce_scatter_gradients")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# `async_op=True` returns a handle at once (else None). Who waits for it, and when?
# </details>
# <details><summary>Hint: the idea</summary>
#
# `gather_parameters` hands it to its caller. `reduce_scatter_gradients` returns a function, defined inside,
# that waits and then adds. Both collectives need a tensor that is there to write into.
# </details>
#
# ### One unit ahead
#
# If a rank gathers a unit only when it needs it, it waits for the wire in every unit. If it gathers all units at the start, it
# never waits, but then it holds the whole model. The compromise is **prefetch**: while a unit computes, the next one travels, and
# no other.
#
# Backward could use what autograd saved in forward. But autograd would save the gathered weights. So forward keeps only each
# unit's *input*, and backward computes the unit again (activation checkpointing).
#
# With several microbatches, gather each unit once, and compute all microbatches with it. Then accumulation does not gather again.

# %% [markdown]
# ### Exercise 3.2 · forward_units
#
# Write both passes. `release` a unit as soon as it has computed, and in backward start its reduce-scatter then. Call the function
# that this returns one unit later, or at the end. `torch.autograd.grad(y, [unit.full, x], slope)` gives both gradients. The first
# unit's input may be integers, and needs no gradient.

# %% tags=["hole"]
def forward_units(dist, units, xs):
    """(outputs, inputs): by microbatch, and for each unit by microbatch. No graph and no weights stay.

    units: in the order of forward; xs: the inputs of the first unit, by microbatch. When a unit
    computes, it and the next one are gathered, or on their way, and no other. About twelve lines.
    """
    # BEGIN SOLUTION
    inputs, work = [], gather_parameters(dist, units[0])
    for i, unit in enumerate(units):
        work.wait()
        if i + 1 < len(units):
            work = gather_parameters(dist, units[i + 1])
        inputs.append(xs)
        with torch.no_grad():
            xs = [unit(x) for x in xs]
        release(unit)
    return xs, inputs
    # END SOLUTION

def backward_units(dist, units, inputs, slopes):
    """Adds to each unit.gradient this rank's shard of the sum over ranks and microbatches.

    inputs: as forward_units gives them. slopes: the gradient of the loss by each output. Gathers one
    unit ahead, as forward does, in the other direction. A unit may be used twice. About twenty lines.
    """
    # BEGIN SOLUTION
    slopes, arrived = list(slopes), None
    work = gather_parameters(dist, units[-1])
    for i in reversed(range(len(units))):
        unit = units[i]
        work.wait()
        if i:
            work = gather_parameters(dist, units[i - 1])
        full, total = unit.full.requires_grad_(), None
        for j, x in enumerate(inputs[i]):
            wanted = [full, x.requires_grad_()] if i else [full]
            y = unit(x)
            if arrived:  # backward needs the memory of the last unit's whole gradient
                arrived()
                arrived = None
            gradients = torch.autograd.grad(y, wanted, slopes[j])
            total = gradients[0] if total is None else total.add_(gradients[0])
            slopes[j] = gradients[-1]
        del full, gradients, y
        release(unit)
        arrived = reduce_scatter_gradients(dist, unit, total)
        del total
    arrived()
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
from common.lessons.sharded_data_parallel.expected import shards as oracle

for kind, p, k in (("perceptron", 3, 2), ("tied", 2, 1), ("perceptron", 1, 1)):
    xs = [[images for images, _ in digit_shards(rng.integers(1, 4, k))] for _ in range(p)]
    parts, want, outputs = oracle.forward_case(kind, weights_of(kind, int(rng.integers(1000))), xs)
    result = ranks.run(forward_pass, kind, parts, ranks.each(xs), world_size=p)
    for rank in range(p):
        case = f"(outputs, inputs), {kind} model, rank {rank} of {p}"
        wrong = oracle.kept_otherwise(*want[rank])
        agree(result.returns[rank], want[rank], case, **CLOSE, mistakes=wrong)
    no_fault(oracle.events_fault(result.trace, kind, False, outputs))
print("forward_units: one device's outputs, each unit gathered once, one unit ahead")

# %% tags=["check"] points=2 limit_s=30
from common.lessons.sharded_data_parallel.expected import shards as oracle

for kind, p, k in (("perceptron", 3, 2), ("tied", 2, 1), ("perceptron", 1, 1)):
    xs = [[images for images, _ in digit_shards(rng.integers(1, 4, k))] for _ in range(p)]
    data, case, outputs = oracle.backward_case(rng, kind, xs)  # with other weights than in forward
    result = ranks.run(backward_pass, kind, *data, world_size=p)
    for rank in range(p):
        said = f"gradient shards of the {kind} model, rank {rank} of {p}"
        agree(result.returns[rank], case.want[rank], said, **CLOSE, mistakes=case.mistakes[rank])
    no_fault(oracle.events_fault(result.trace, kind, True, outputs))
print("backward_units: one device's gradients, gathered anew, one unit ahead")

# %% tags=["check"] points=2 limit_s=30
from common.lessons.sharded_data_parallel.expected import shards as oracle

for kind, p in (("perceptron", 3), ("tied", 2), ("characters", 2)):
    flats, most = weights_of(kind, int(rng.integers(1000))), float(rng.uniform(0.3, 0.6))
    steps = oracle.drawn_steps(rng, kind, p)
    losses, norms, want = oracle.trained(kind, flats, steps, most)
    data = oracle.by_rank(flats, p), ranks.each(oracle.batches(steps)), most
    result = ranks.run(trained, kind, *data, world_size=p)
    for got in result.returns:
        agree(list(got[:2]), [losses, norms], f"[losses, norms], {kind} model, {p} ranks", **CLOSE)
    got = oracle.whole([shards for *_, shards in result.returns], want)
    agree(got, want, f"weights of the {kind} model, {p} ranks, after 3 steps", **CLOSE)
print("FSDP: losses, norms and weights of one device, with padding, tied weights and clipping")

# %% tags=["check"] limit_s=30
from common.lessons.sharded_data_parallel.expected import shards as oracle

result = ranks.run(both_passes, 10, world_size=2, held=True)  # 10 units of 4 MiB
graph, left, sums = result.returns[0]
agree(sums, [16.0, *[32.0] * 10], "[sum of the output, of each gradient shard] of rank 0")
no_fault(oracle.units_fault(result.trace, graph, left),
         draw=lambda: units.draw_gathered({"of yours": result.trace}))
remark(not graph, "forward_units leaves a graph, which keeps all activations: use torch.no_grad().")
remark(not left, f"Units {left} are still gathered after a pass. Release each unit, the last one, too.")
print("FSDP: of ten units of 4 MiB, a rank holds its shards, and two whole units at a time")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Start with the plain loop: gather, wait, compute, release. Then move the gather of the next unit to before the computation.
# In backward, `unit.full.requires_grad_()` makes the gathered weights a leaf.
# </details>
#
# <details><summary>My gradients are right, and a check says that weights stay</summary>
#
# Who still holds them? A graph does: forward without `torch.no_grad()`. A local variable does, until the loop assigns it again.
# </details>

# %% [markdown]
# ### Clinic: four programs that are right
#
# All four compute the right gradients, and a test of values accepts them. Here are the gathered weights that rank 0 of each
# holds in one step of eight layers. Only one of them is healthy. Which? And what is wrong with the others?

# %%
from common.lessons.sharded_data_parallel.expected import gathering

shown = gathering.traces(digit_shards([8] * 4), MACHINE)
axes = units.draw_gathered(shown)
figures.describe(axes[0], "Gathered bytes of four programs over time: one low, the others higher.")

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# - **A** gathers everything at once, in both passes: all 238 kB are there before the first unit computes.
# - **B** never releases: the staircase climbs through forward, and backward starts at the top.
# - **C** is healthy: two units at a time, in both directions.
# - **D** gathers two units ahead: it holds three at a time and waits no less.
#
# There is a fifth disease that this picture can't show: weights that are gathered twice per pass. They cost bytes on the wire,
# and no memory.
# </details>

# %% [markdown]
# ### Predict, then count
#
# How many bytes does a rank hold while a unit computes? Weights, gradient, m and v are shards: 4 · 8/p bytes per weight. Add the
# gathered units: this one and the next. In backward, the gradient of the unit before is still on the wire: whole, and its summed
# shard. Predict all sixteen computations of a step, and count them on 1, 2, 4 and 8 ranks.

# %%
sizes = [len(flat) for flat in weights_of("deep", 1)]

def predicted_bytes(i, backward, p):  # that a rank holds while unit i computes
    # BEGIN SOLUTION
    full = [8 * units.padded(size, p) for size in sizes]
    gathered = full[max(0, i - 1):i + 1] if backward else full[i:i + 2]
    on_the_wire = full[i + 1:i + 2] if backward else []
    return 4 * sum(full) // p + sum(gathered) + sum(on_the_wire) * (p + 1) // p
    # END SOLUTION

share = predicted_bytes(2, False, 8) / predicted_bytes(2, False, 1)
ledger.guess("FSDP: bytes held on 8 ranks / on one", share, "times")

# %%
order = [(unit, False) for unit in range(8)] + [(unit, True) for unit in reversed(range(8))]
counts = {p: units.held(trained, digit_shards([8] * p), MACHINE) for p in (1, 2, 4, 8)}
lines = {f"p = {p}": [predicted_bytes(*which, p) for which in order] for p in counts}
ax = figures.predicted_and_measured(range(16), lines, {f"p = {p}": counts[p] for p in counts},
    yunit="B", xlabel="computation: units 0 to 7, and back", ylabel="bytes held", dots_are="counted",
    title="Eight ranks hold a fifth of what one holds, not an eighth")
ax.set_ylim(0, None)
figures.describe(ax, "Bytes held by 1, 2, 4, 8 ranks over a step: the dots lie on the lines.")

# %% [markdown]
# The dots lie on the lines; neither contains activations. The last dot is lower: it is counted when the sum of the unit before has
# arrived. Eight ranks hold more than an eighth: two gathered units stay, whatever p is. Smaller units would lower this floor, and
# cost more α.
#
# A rank holds **16/p** bytes per weight, and two units. It gathers twice and reduce-scatters once: **3** times the weights cross,
# where data parallelism sends 2. Now choose a stage. **Your target: 13 billion weights on devices of 80 GB, with traffic 2 and
# as few ranks as possible.** (This needs no exercise solved.)

# %% tags=["nbval-ignore-output"]
ledger.measured("FSDP: bytes held on 8 ranks / on one", counts[8][2] / counts[1][2], "times")

# %% tags=["nbval-ignore-output"]
units.budget()

# %% [markdown]
# **Sharding everything costs 1.5 times the traffic, not p times.**
#
# ## Part 4 · When is it free?
#
# "If the total computation time exceeds FSDP's total communication time, then FSDP's communication can be fully overlapped." On a
# slide, someone computes both times for 70 billion weights on 4,000 GPUs, twice:
#
# | | communication | compute |
# | --- | --- | --- |
# | first line | 70 · 10⁹ · 2 · 3 / 200 · 10⁹ | 70 · 10⁹ · 6 · 4 · 10⁶ / 200 · 10¹² / 4000 |
# | second line | 70 · 10⁹ · 2 · 3 / 100 · 10⁹ | 70 · 10⁹ · 6 · 8 · 10⁶ / 200 · 10¹² / 4000 |
#
# Both lines end in "= 2.1 seconds". Can both be right?

# %% [markdown]
# ### Exercise 4.1 · communication_hidden
#
# Write both times for any machine. Then find how many tokens a rank needs until compute takes as long as communication. The number
# of weights cancels.
#
# <details><summary>Hint: a question</summary>
#
# How often does a weight travel in a step of FSDP, and what does a ring add to that?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Three times: gathered twice, and its gradient scattered once. A ring sends (p − 1)/p of the bytes. Then set
# both times equal, and divide the tokens by p.
# </details>

# %% tags=["hole"]
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    """(seconds of compute, seconds of communication) of a step of FSDP, on one rank.

    tokens: of the whole batch. flops_per_s, bytes_per_s: of one device, and of its link. itemsize:
    bytes per weight on the wire. flops: per weight and token. Collectives are rings. About three lines.
    """
    # BEGIN SOLUTION
    compute_s = flops * weights * tokens / world_size / flops_per_s
    communication_s = 3 * (world_size - 1) / world_size * weights * itemsize / bytes_per_s
    return compute_s, communication_s
    # END SOLUTION

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    """The tokens per rank, a float, from which compute hides the communication. About one line."""
    # BEGIN SOLUTION
    return 3 * (world_size - 1) / world_size * itemsize / bytes_per_s * flops_per_s / flops
    # END SOLUTION

# %% tags=["check"]
from common.checks import as_tuple
from common.lessons.sharded_data_parallel.expected import shards as oracle

for case in range(12):
    n, p, tokens = 10 ** rng.uniform(6, 12), int(rng.integers(2, 5000)), 1e6 * rng.uniform(1, 9)
    how = 10 ** rng.uniform(12, 15), 10 ** rng.uniform(9, 12), *((4, 8.0), (4, 6.0), ())[case % 3]
    want = oracle.seconds(n, tokens, p, *how)
    got, said = as_tuple(step_seconds(n, tokens, p, *how)), oracle.seconds_mistakes(want, p)
    agree(got, want, f"step_seconds({n:.6g}, {tokens:.6g}, {p}, {how})", rtol=1e-9, mistakes=said)
    compute_s, wire_s = oracle.seconds(1.0, float(p), p, *how)  # of one weight and one token per rank
    agree(communication_hidden(p, *how), wire_s / compute_s, f"communication_hidden({p}, {how})",
          rtol=1e-9, mistakes=oracle.tokens_mistakes(wire_s / compute_s, p))
print("communication_hidden: both times, and the tokens where they are equal")

# %%
for tokens, link in ((4e6, 200e9), (8e6, 100e9)):
    compute_s, communication_s = step_seconds(70e9, tokens, 4000, 200e12, link)
    print(f"{tokens:.0e} tokens, {link / 1e9:.0f} GB/s: compute {compute_s:.2f} s, "
          f"communication {communication_s:.2f} s, "
          f"hidden from {communication_hidden(4000, 200e12, link):.0f} tokens per GPU on")

# %% [markdown]
# The second line is 4.2 seconds, both times. It is balanced, too: half the bandwidth needs twice the tokens. In bf16 and for many
# ranks, the formula becomes FLOP/s divided by bytes/s: 1,000 or 2,000 tokens per GPU. More GPUs at the same batch mean fewer tokens
# for each, and at some point the wire is no longer hidden.
#
# Now predict a step of our eight layers on four simulated ranks, as the larger of the two times, and run it. A "token" is a row
# here. We compute forward twice, so a weight takes 8 FLOPs per row.

# %%
def predicted_s(rows):
    # BEGIN SOLUTION
    bytes_per_s = 1 / MACHINE["beta_s_per_byte"]
    return max(step_seconds(sum(sizes), 4 * rows, 4, MACHINE["flops_per_s"], bytes_per_s, 8, 8))
    # END SOLUTION

# %%
rows = [1, 2, 4, 8, 12, 16, 24, 32]
counted_s = [units.step_s(trained, digit_shards([n] * 4), MACHINE) for n in rows]
ax = figures.predicted_and_measured(rows, predicted_s, counted_s, yunit="s",
    xlabel="rows per rank", ylabel="time of a step", dots_are="virtual time",
    title="Below some 9 rows per rank, the wire sets the time")
ax.set_ylim(0, None)
figures.describe(ax, "The predicted time is flat up to 9 rows and then rises; the dots are close.")

# %%
ledger.guess("FSDP step, 8 rows per rank", predicted_s(8), "s")
ledger.measured("FSDP step, 8 rows per rank", counted_s[3], "s")
misses = [f"{n} rows: {(got / predicted_s(n) - 1):+.0%}" for n, got in zip(rows, counted_s)]
print("counted, compared with predicted:", ", ".join(misses))

# %% [markdown]
# The prediction misses most, by 17 %, where both times are close. The first gather and the last reduce-scatter
# have nothing to hide under. Forward has a third of the communication, but only a quarter of the compute, because backward computes
# forward again. And our backward waits early for the sum of the unit before, to have its memory. Waiting later would miss by 8 %,
# with one more whole gradient in memory. For many rows the prediction is 2 % too high: the first unit needs no gradient of its
# input.
#
# **A rank needs as many tokens as its device computes FLOPs per byte of its wire.**

# %% [markdown]
# ## Part 5 · Shard in a node, copy between nodes
#
# GPUs of one node have fast links, and between nodes the wire is slower. Full sharding gathers every unit through the slow links,
# twice per step. **Hybrid sharding** cuts the weights over the GPUs of a node only, and each node holds a copy. Then gathers stay
# inside. Between nodes, only the *shard* of the gradient crosses.
#
# This needs groups of ranks. `ranks.mesh(dist, node=2, gpu=4)` makes them with `dist.new_group`: `groups["gpu"]` has the four ranks
# of this node, and `groups["node"]` the ranks with the same place in each node. All collectives take `group=`.

# %% tags=["driver"]
# What the check runs on every rank. You may skip it.

def hybrid(dist, gradient, nodes, per_node):
    """[the shard, the norm, the gradient and the shard afterwards] on a mesh."""
    groups = ranks.mesh(dist, node=nodes, gpu=per_node)
    shard = hybrid_shard(dist, groups, gradient)
    return [shard.clone(), hybrid_norm(dist, groups, shard), gradient, shard]

def exchanged(dist, size, per_node, is_hybrid):
    """What one unit sends in a step: two gathers, and the sum of its gradient."""
    p = dist.get_world_size()
    groups = ranks.mesh(dist, node=p // per_node, gpu=per_node)
    group = groups["gpu"] if is_hybrid else None
    shard = torch.zeros(size // dist.get_world_size(group))
    full = torch.zeros(size)
    for _ in range(2):
        dist.all_gather_into_tensor(full, shard, group=group)
    if is_hybrid:
        return hybrid_shard(dist, groups, full)
    dist.reduce_scatter_tensor(shard, full)

# %% [markdown]
# ### Exercise 5.1 · hybrid_shard
#
# Sum a unit's gradient over *all* ranks, so that each rank ends with the shard that it holds within its node. Send as little as you
# can between nodes. And what is the norm of the whole gradient now?
#
# <details><summary>Hint: a question</summary>
#
# A node's ranks hold all shards together. What should be small before it crosses to other nodes?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Sum and cut within the node first, then sum only your shard across nodes. For the norm: which ranks hold
# different shards, and which hold copies?
# </details>

# %% tags=["hole"]
def hybrid_shard(dist, groups, gradient):
    """This rank's shard (n/s,) of the sum over all ranks of gradient (n,), which stays as it is.

    groups: {"node": ..., "gpu": ...}, as ranks.mesh makes them; s: ranks of the group "gpu", which
    divides n. About five lines.
    """
    # BEGIN SOLUTION
    size = len(gradient) // dist.get_world_size(groups["gpu"])
    shard = gradient.new_empty(size)
    dist.reduce_scatter_tensor(shard, gradient, group=groups["gpu"])
    dist.all_reduce(shard, group=groups["node"])
    return shard
    # END SOLUTION

def hybrid_norm(dist, groups, shard):
    """The norm of the whole gradient, a float, from what hybrid_shard returns. About three lines."""
    # BEGIN SOLUTION
    total = (shard * shard).sum().reshape(1)
    dist.all_reduce(total, group=groups["gpu"])
    return total.sqrt().item()
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.sharded_data_parallel.expected import shards as oracle

for nodes, per_node, n in ((3, 2, 18), (2, 2, 16), (1, 3, 9), (2, 1, 8)):
    p, gradients = nodes * per_node, torch.tensor(rng.normal(size=(nodes * per_node, n)))
    wants = [oracle.hybrid(gradients, rank, nodes, per_node) for rank in range(p)]
    result = ranks.run(hybrid, ranks.each(list(gradients.clone())), nodes, per_node, world_size=p)
    for rank, (want, want_norm, *wrong) in enumerate(wants):
        (shard, norm, *after), case = result.returns[rank], f"rank {rank}, {nodes} nodes of {per_node}"
        agree(shard, want, f"hybrid_shard, {case}", **CLOSE, mistakes=wrong[0])
        agree(norm, want_norm, f"hybrid_norm, {case}", rtol=1e-10, mistakes=wrong[1])
        no_fault(oracle.changed_fault(after, gradients[rank], shard))
    no_fault(oracle.crossing_fault(result.trace, nodes, per_node, n))
print("hybrid_shard and hybrid_norm: the sum and the norm of all ranks, and only shards between nodes")

# %%
wires = {"inside": (1e-6, 1 / 400e9), "between": (1e-5, 1 / 50e9)}
for name, is_hybrid in (("full sharding", False), ("hybrid sharding", True)):
    trace = ranks.run(exchanged, 1 << 20, 4, is_hybrid, world_size=8, live_bytes=False,
                      **ranks.nodes(8, 4, **wires)).trace
    print(f"{name:15}: {trace.bytes_between_nodes(4) / 1e6:6.1f} MB between nodes, "
          f"{trace.bytes / 1e6:6.1f} MB in all, {trace.time_s * 1e3:.2f} ms for a unit of 8 MB")

# %% [markdown]
# Hybrid sharding sends fewer bytes between nodes, and takes less time. The price is memory: 16 bytes per weight are divided by the
# ranks of a *node*, not by all. (In the full ring of 8 ranks only two links cross nodes, but the slowest link sets the pace of all.)
#
# **Put the heavy traffic on the fast links, and only sums of shards on the slow ones.**

# %% [markdown]
# ## The language model on real processes
#
# The same functions run on real processes: gloo here, NCCL where there are GPUs. The course's language model, with two blocks,
# reads the novel in shards of unequal size. Its units are the embedding, the blocks and the scores.

# %% tags=["nbval-ignore-output"]
from common.lessons.sharded_data_parallel.expected import shards as oracle

flats, p = weights_of("language", 1), REAL["world_size"]
steps = [text_shards([6, 10, 4, 8][:p]) for _ in range(5)]
losses, norms, want = oracle.trained("language", flats, steps, 1.0)
data = oracle.by_rank(flats, p), ranks.each(batches := oracle.batches(steps)), 1.0
real = ranks.run(trained, "language", *data, **REAL)
apart = max(abs(a - b) for own in real.returns for a, b in zip(own[0], losses))
print(f"{REAL['machine']}: losses {losses[0]:.3f} to {losses[-1]:.3f}, {apart:.0e} from one device's")

# %% [markdown]
# ## Where it is used
#
# - Rajbhandari et al., *ZeRO* (2020): the three stages, and where the 16 bytes come from.
# - PyTorch's `fully_shard` (FSDP2): a unit is a module that you name; it prefetches as you did, and keeps no padding in the optimizer.
# - Zhao et al., *PyTorch FSDP* (2023): prefetch, rate limits, hybrid sharding. Llama 3 was trained with FSDP as one of four axes.
#
# *Limits of ours*: forward is always computed again; a unit's weights are one dtype; and the gradient of a unit is summed on one
# stream with the gathers, while PyTorch uses two.

# %% [markdown]
# ## Done
#
# `make grade LAB=13` grades your lab.

# %% [markdown]
# ## Further
#
# The rest is optional.

# %% tags=["driver"]
def judged(source):
    """What test_global_norm says of a program: "" if it accepts it."""
    return clinic.verdict(test_global_norm, source)

# %% [markdown]
# ### Exercise 6.1 · shard_pieces (optional)
#
# A checkpoint was saved by p ranks, each its own shard of n numbers, and q ranks load it. What does a new rank read? It should read
# no number that it does not need, and no padding.

# %% tags=["hole"]
def shard_pieces(n, p, rank, q):
    """[(old rank, start, stop), ...]: what this rank of q reads of the shards of p ranks, in order.

    Together the pieces are this rank's shard of n numbers, without padding; [] if it has padding only.
    About seven lines.
    """
    # BEGIN SOLUTION
    old, new = -(-n // p), -(-n // q)
    place, end, found = rank * new, min(n, (rank + 1) * new), []
    while place < end:
        owner, start = divmod(place, old)
        stop = min(old, start + end - place)
        found.append((owner, start, stop))
        place += stop - start
    return found
    # END SOLUTION

# %% tags=["check"]
from common.lessons.sharded_data_parallel.expected import shards as oracle

cases = [(12, 4, 2), (11, 4, 3), (3, 2, 4), (7, 1, 1), (5, 4, 1), (2, 4, 4)]
for n, p, q in [*cases, *rng.integers(1, 20, (40, 3)).tolist()]:
    for rank in range(q):
        want = oracle.pieces(n, p, rank, q)
        agree(shard_pieces(n, p, rank, q), want, f"shard_pieces({n}, {p}, {rank}, {q})",
              mistakes=oracle.piece_mistakes(n, p, rank, q))
print("shard_pieces: every number read once, from the shard that has it, and no padding")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# My new shard is a stretch of the vector. Which old shard holds its first number, and from where on?
# </details>
# <details><summary>Hint: the idea</summary>
#
# `divmod` by the old size gives both. Take as much as the old shard or my stretch still has, whichever ends
# first, and go on from there. The stretch ends at n.
# </details>
#
# ### Exercise 6.2 · test_global_norm (optional)
#
# Now you write the check of exercise 2.2. `candidate(dist, shards, sizes)` returns the norm of all shards together, on every rank.
# What stands in the padding is not defined. Run one with `ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns`.
# A rank's shards are a list. We have fourteen wrong programs, and par is 12.

# %% tags=["hole"]
def test_global_norm(candidate):
    """Raises AssertionError if the candidate is wrong, and returns nothing. About ten lines."""
    # BEGIN SOLUTION
    for p, sizes in ((1, [5]), (2, [4]), (3, [7, 1, 12]), (4, [2, 9]), (5, [10, 3])):
        flats = [torch.tensor(rng.normal(0, 3, n)) for n in sizes]
        shards = [[own_shard(flat, r, p) for flat in flats] for r in range(p)]
        for r, own in enumerate(shards):
            for shard, n in zip(own, sizes):
                shard[max(0, n - r * len(shard)):] = 7.0
        want = torch.cat(flats).norm().item()
        for got in ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns:
            assert abs(got - want) < 1e-9 * want, f"{p} ranks, sizes {sizes}"
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=60
print(clinic.score("global_norm", judged, par=12, rng=rng))

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# What do wrong programs get wrong? Think of padding, of several units, of one rank, of the root, and of ranks
# that differ.
# </details>
# <details><summary>Hint: the idea</summary>
#
# Make the vectors yourself, cut them with `own_shard`, and write large numbers into the padding. Use sizes that
# p does not divide, several units, and compare every rank's answer with the norm of all vectors.
# </details>
#
# ### Against PyTorch's
#
# `fully_shard` wraps a model, unit by unit. Compare the losses of the language model. On two GPUs or more, `make bench-gpus`
# compares the time of a step and the peak of memory, on a model with 8 blocks of width 4,096.

# %% tags=["driver"]
def library_losses(dist, flats, batches, most):
    """Losses of steps with fully_shard and PyTorch's own Adam."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    kind = "cuda" if torch.cuda.is_available() and dist.get_backend() == "nccl" else "cpu"
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    pieces, losses = units.modules("language"), []
    for piece, flat in zip(pieces, flats):
        nn.utils.vector_to_parameters(flat, piece.parameters())
        fully_shard(piece, mesh=mesh)
    model = fully_shard(nn.Sequential(*pieces), mesh=mesh)
    update = torch.optim.Adam(model.parameters(), 0.01, (0.9, 0.99), 1e-8)
    for inputs, targets, total in batches:
        y = model(inputs)
        share = nn.functional.cross_entropy(y.flatten(0, -2), targets.flatten()) * len(y) / total
        (share * dist.get_world_size()).backward()  # fully_shard divides by p
        nn.utils.clip_grad_norm_(model.parameters(), most)
        update.step(), update.zero_grad()
        whole = share.detach().clone()
        dist.all_reduce(whole)
        losses.append(whole.item())
    return losses

# %% tags=["nbval-ignore-output"]
theirs = ranks.run(library_losses, flats, ranks.each(batches), 1.0, noted=False, **REAL).returns[0]
ours = real.returns[0][0]
for step, (a, b) in enumerate(zip(ours, theirs), 1):
    print(f"step {step}: ours {a:.9f}, fully_shard {b:.9f}")

# %% [markdown]
# ### A harder question
#
# FSDP over 1,000 GPUs gathers every unit through 1,000 ranks. A ring then has 999 rounds, and each pays α. At which size of a unit is
# α as expensive as β, and what would you change?
#
# <details><summary>Answer</summary>
#
# A round takes α + β·n/p. With α = 10 µs and 1/β = 200 GB/s, they are equal at n/p = 2 MB, so n = 2 GB for p = 1,000. Units of
# real models are smaller, so α dominates. Use trees or several levels (within the node, then between nodes), hybrid sharding, or larger
# units, which hold more memory.
# </details>
