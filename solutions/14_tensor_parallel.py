# %% [markdown]
# # 14 · Tensor parallel
#
# **A layer does not fit on one device. How do you cut it, and what has to cross, forward and backward?**
#
# At the end of this lab you can
#
# - cut linear layers, attention and the loss over p ranks, and get one device's gradients;
# - say of every value who holds what, and which collective that calls for;
# - count a layer's bytes and a rank's activations, and predict when a cut layer pays.
#
# You need labs 07, 11 and 12; no GPU. About 120 minutes.
#
# Where a cell ends in `raise NotImplementedError`, you write; the cell below it checks. What you want counted stands in
# the hole's cell.

# %% tags=["setup"]
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F

from common import figures, ledger, ranks, samples
from common.checks import agree

figures.use_style()
torch.set_default_dtype(torch.float64)  # so that "the same gradients" can mean ten digits
rng = np.random.default_rng()

# %% [markdown]
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 11: how many bytes does a rank send in a ring all-reduce of n bytes, and of which two collectives
# is it made?</summary>
#
# 2(p−1)/p · n: a reduce-scatter, then an all-gather, (p−1)/p · n each. Part 4 takes the two apart.
# </details>
#
# <details><summary>Lab 12: in data parallel training, what is different on each rank, and what is added?</summary>
#
# The samples, so the gradients of the weights; those are averaged. Here the samples are the same and the weights differ.
# What is added, then? That is this lab's question.
# </details>

# %% [markdown]
# `drawn` makes tensors for demos and checks, `pieces` cuts them. `differentiated` is one device's answer. `both_ways` runs
# a function of p simulated ranks without and with its backward, and tells what a rank sends in each direction.

# %% tags=["setup"]
CLOSE = {"rtol": 1e-10, "atol": 1e-10}

def drawn(*shapes, scale=1.0):
    """A tensor of each of these shapes, normally distributed."""
    return [torch.tensor(rng.normal(0, scale, shape)) for shape in shapes]

def pieces(x, p, dim=0):
    """x cut into p along dim: a list by rank."""
    return [part.clone(memory_format=torch.contiguous_format) for part in x.chunk(p, dim)]

def differentiated(function, *values, **options):
    """[y = function(*values), gradient by each value of half the sum of y²]."""
    leaves = [value.clone().requires_grad_() for value in values]
    y = function(*leaves, **options)
    return [y.detach(), *torch.autograd.grad(y, leaves, y.detach())]

# %% tags=["setup"]
def both_ways(function, *args, p):
    """((bytes that a rank sends forward, and backward), what the function returns by rank)."""
    forward, both = (ranks.run(function, *args, way, world_size=p) for way in ("forward", "both"))
    sent = max(forward.trace.bytes_sent)
    return (sent, max(both.trace.bytes_sent) - sent), both.returns

def mlps_on_one_device(x, *weights, times=1, normed=False):
    """Blocks x + mlp(x), or x + mlp(norm(x)), with the last bias added so many times."""
    for *norm, w1, b1, w2, b2 in zip(*[iter(weights)] * (6 if normed else 4)):
        z = F.layer_norm(x, x.shape[1:], *norm) if normed else x
        x = x + F.linear(F.gelu(F.linear(z, w1, b1)), w2, times * b2)
    return x

# %% tags=["setup"]
def each_agrees(got, want, case, names=None, mistakes=None):
    """agree, one by one, of lists by rank or by name, so that a message says which one differs."""
    for i, (ours, wanted) in enumerate(zip(got, want, strict=True)):
        wrong = {says: values[i] for says, values in (mistakes or {}).items()}
        agree(ours, wanted, f"{case}, {names[i] if names else f'rank {i}'}", **CLOSE, mistakes=wrong)

def slopes_of(*weights):
    """What each_agrees calls the gradients of x and of two blocks' weights."""
    return ["∂x", *(f"∂{name} of block {block}" for block in (1, 2) for name in weights)]

MLP = slopes_of("w1", "b1", "w2", "b2")

# %% [markdown]
# ## The loss is right and the gradient is not
#
# Six blocks, each y = x + GELU(x W₁ᵀ) W₂ᵀ (PyTorch stores a layer's weights as (out, in)). Each of four ranks holds a
# quarter of the rows of every W₁ and the same quarter of the columns of every W₂: a quarter of the hidden units. All
# have the same x. What comes out on a rank is *its* units' share of the sum, so an all-reduce adds the shares, and the
# next block begins.
#
# The three collectives, as functions of a tensor:

# %% tags=["driver"]
def all_reduce(dist, x):
    """The sum of x over all ranks; x stays as it is."""
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total

def all_gather(dist, x):
    """(p·n, ...), the rows of all ranks in order, from (n, ...) on each."""
    rows = x.new_empty(dist.get_world_size() * len(x), *x.shape[1:])
    dist.all_gather_into_tensor(rows, x.contiguous())
    return rows

def reduce_scatter(dist, x):
    """(n/p, ...), this rank's rows of the sum of x (n, ...) over all ranks."""
    rows = x.new_empty(len(x) // dist.get_world_size(), *x.shape[1:])
    dist.reduce_scatter_tensor(rows, x.contiguous())
    return rows

# %% [markdown]
# Autograd does not see messages, so we tell it what to do on the way back. `two_way(x, forward, backward)` is
# forward(x), and a gradient of it goes through `backward`. For a sum of four terms that seems easy: each term's gradient
# is the gradient of the sum, the *same*.

# %% tags=["driver"]
class TwoWay(torch.autograd.Function):
    """A value that goes forward through one function, and its gradient back through another."""
    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.way_back = backward
        return forward(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.way_back(gradient), None, None

def two_way(x, forward, backward):
    """forward(x), whose gradient comes back through `backward`."""
    return TwoWay.apply(x, forward, backward)

def same(x):
    """x."""
    return x

# %%
def loss_and_gradients(dist, x, blocks, target):
    weights = [w.requires_grad_() for block in blocks for w in block]
    for w1, w2 in blocks:
        share = F.linear(F.gelu(F.linear(x, w1)), w2)
        x = x + two_way(share, lambda share: all_reduce(dist, share), same)
    loss = (x - target).square().mean()
    return loss.item(), torch.autograd.grad(loss, weights)

# %%
x, target, *weights = drawn((32, 16), (32, 16), *6 * [(64, 16), (16, 64)])
blocks = [(w1 / 4, w2 / 8) for w1, w2 in zip(weights[::2], weights[1::2])]
def cut(p):
    return ranks.each([[(w1.chunk(p)[r], w2.chunk(p, 1)[r]) for w1, w2 in blocks] for r in range(p)])
one, four = (ranks.run(loss_and_gradients, x, cut(p), target, world_size=p).returns for p in (1, 4))
print("loss on one device:", one[0][0])
print("loss on four ranks:", *(loss for loss, _ in four))

# %%
wants = [w.chunk(4)[0] for w in one[0][1][::2]]  # of each W1, what rank 0 has
errors = [float((got - want).norm() / want.norm()) for got, want in zip(four[0][1][::2], wants)]
_, ax = plt.subplots(figsize=(7.2, 2.6))
ax.plot(range(1, 7), errors, "o", color="C1", clip_on=False)
ax.set(xlabel="block", ylabel="relative error", ylim=(0, None), title="Gradient of rank 0's part of W₁")
ax.axhline(0, color="C0", zorder=1);

# %% [markdown]
# The loss agrees to the last digits. So does the last block's gradient. All others are far off. The training would not
# crash; it would learn, worse. Had we tested one block, we should have shipped it.
#
# What is missing crosses in the other direction. Take one block, no `x +`, and look at the gradient of its *input*:

# %%
def input_gradient(dist, x, w1, w2, g):
    share = F.linear(F.gelu(F.linear(x.requires_grad_(), w1)), w2)
    y = two_way(share, lambda share: all_reduce(dist, share), same)
    return torch.autograd.grad(y, x, g)[0]


# %%
shards = [ranks.each([pair[i] for (pair, *_) in cut(4).values]) for i in (0, 1)]
parts = ranks.run(input_gradient, x, *shards, target).returns
want = ranks.run(input_gradient, x, *blocks[0], target, world_size=1).returns[0]
print("by rank:", [f"{part[0, 0]:.4f}" for part in parts])
print(f"added: {sum(parts)[0, 0]:.4f}, on one device: {want[0, 0]:.4f}")

# %% [markdown]
# Each rank used the whole x, but for its own units only, so it knows only *its* units' part of ∂loss/∂x. **A replicated
# value's gradient is a partial sum.** In lab 07's words: x fans out to p users, and adjoints of a fan-out are added.
# The users live on p devices, so the addition is a collective.

# %% [markdown]
# ## Part 1 · One layer, cut
#
# To cut one operator over devices is *intra-op* parallelism. The lecture that this lab grew from cuts every layer by its
# outputs: of D units, rank r computes D/p, and an all-gather puts the columns of all ranks side by side before the next
# layer. Then: "backward pass I'm going to skip because that's kind of annoying to do". It is one collective. Three layouts
# are all we need:
#
# | layout | on rank r |
# | --- | --- |
# | **sharded** | its rows, or its columns |
# | **replicated** | everything, the same on all ranks |
# | **partial** | a term, of full size: the value is the sum over ranks |

# %% [markdown]
# The checks run your functions through the cell below, one function an exercise; you may skip it. Each takes half the
# sum of squares of the output for a loss, whose gradient by the output is the output.

# %% tags=["driver"]
def derived(y, leaves, way):
    """[y, gradient by each leaf of half the sum of y²] if way is "both"."""
    if way == "both":
        return [y.detach(), *torch.autograd.grad(y, leaves, y.detach())]

def gathered_layers(dist, x, weights, way):
    """[this rank's columns, gradients of x and of its weights] of the lecture's network."""
    leaves = [t.requires_grad_() for t in (x, *weights)]
    for w in weights[:-1]:
        x = gather_columns(dist, torch.tanh(F.linear(x, w)))
    return derived(F.linear(x, weights[-1]), leaves, way)

def crossed(dist, name, x, g):
    """[the operator's value, the gradient by x when the value's is g, x afterwards]."""
    x.requires_grad_()
    y = {"copied": copied, "summed": summed}[name](dist, x)
    return [y.detach(), torch.autograd.grad(y, x, g)[0], x.detach()]

def mlp_blocks(dist, x, blocks, way):
    """[output, gradients of x and of this rank's shards] of blocks x + mlp(x)."""
    y, leaves = x.requires_grad_(), [x, *(w.requires_grad_() for block in blocks for w in block)]
    for block in blocks:
        y = y + mlp(dist, y, *block)
    return derived(y, leaves, way)

def attention_block(dist, x, weights, heads, way):
    """[x + attention(x), gradients of x and of this rank's shards]."""
    leaves = [t.requires_grad_() for t in (x, *weights)]
    return derived(x + attention(dist, x, *weights, heads), leaves, way)

def entropy(dist, logits, targets, way):
    """[mean loss, gradient by this rank's logits of half its square]."""
    logits.requires_grad_()
    return derived(cross_entropy(dist, logits, targets), [logits], way)

def sequence_blocks(dist, x, weights, way):
    """[output, gradients of x and of the weights] of blocks of 6 weights: this rank's tokens."""
    leaves, y = [t.requires_grad_() for t in (x, *weights)], x
    for block in zip(*[iter(weights)] * 6):
        y = sequence_mlp(dist, y, *block)
    return derived(y, leaves, way)

def linear(dist, x, w, b, way):
    """[GatheredLinear's output, gradients of x, w and b]."""
    leaves = [t.requires_grad_() for t in (x, w, b)]
    return derived(GatheredLinear.apply(dist, *leaves), leaves, way)

# %% [markdown]
# ### Exercise 1.1 · gather_columns
#
# The all-gather of the lecture, with its way back. Forward: columns → replicated. The gradient that comes back is, on
# each rank, a partial sum for *all* columns: the next layer used them all for its own units. This rank needs its own
# columns of the sum, and nothing else.

# %% tags=["hole"]
def gather_columns(dist, x):
    """(N, D), the columns of all ranks side by side, from (N, D/p) on each; it has a gradient.

    Use dist.all_gather and dist.reduce_scatter (they want contiguous tensors) and two_way.
    About eleven lines.
    """
    # BEGIN SOLUTION
    p = dist.get_world_size()

    def gather(x):
        shards = [torch.empty_like(x) for _ in range(p)]
        dist.all_gather(shards, x.contiguous())
        return torch.cat(shards, 1)

    def back(gradient):
        parts = [part.contiguous() for part in gradient.chunk(p, 1)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts)
        return own

    return two_way(x, gather, back)
    # END SOLUTION

# %% tags=["check"] points=2
x, *weights = drawn((3, 8), (8, 8), (8, 8), (8, 8))
want = differentiated(lambda x, a, b, c: ((x @ a.T).tanh() @ b.T).tanh() @ c.T, x, *weights)
for p in (1, 2, 4):
    parts, n = list(zip(*(pieces(w, p) for w in weights))), 2 * (p - 1) * 3 * 8 * 8 // p
    sent, got = both_ways(gathered_layers, x, ranks.each(parts), p=p)
    agree(sent, (n, n), f"(bytes forward, bytes backward) that a rank sends, p = {p}:", mistakes={
        "Nobody adds the ranks' parts: the gradient of what you gathered is a partial sum.": (n, 0),
        "All-reduce, then cut? It adds columns which are then thrown away.": (n, 2 * n)})
    got = [torch.cat([g[0] for g in got], 1), sum(g[1] for g in got), *map(torch.cat, [*zip(*got)][2:])]
    each_agrees(got, want, f"three layers, p = {p}", ["output", "∂x (added)", "∂w1", "∂w2", "∂w3"], {
        "The sum, not the mean.": [want[0], want[1] / p**2, want[2] / p**2, want[3] / p, want[4]]})
print("gather_columns: three of the lecture's layers, forward and backward, on 1, 2 and 4 ranks")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `gradient.chunk(p, 1)` are the columns by rank. `dist.reduce_scatter(own, parts)` adds part r of all ranks into rank
# r's `own`.
# </details>
#
# Forward and backward send the same, (p−1)/p · n bytes a layer where n is the whole activation: gather and scatter are
# each other's mirror image. The gradient of the very first x is left as a partial sum on each rank; the check added it.
#
# **The gradient of an all-gather is a reduce-scatter: what was copied p times comes back in p parts, to be added.**

# %% [markdown]
# ## Part 2 · Two layers, one all-reduce
#
# The lecture gathers after *every* layer. A transformer's MLP is D → 4D → D: an all-gather of 4D numbers a token, then one
# of D. In all-reduces of D numbers (two gathers' worth each), that is 2.5. How few can it be?
#
# Cut W₁ by its outputs (**column-parallel**, after the columns of x W₁ᵀ): each rank has whole hidden units, and GELU,
# which works unit by unit, needs nobody. Then cut W₂ by its *inputs* (**row-parallel**): each rank feeds the units that
# it has. Nothing is gathered; what comes out is a partial sum.

# %% [markdown]
# ```
#              W₁ by outputs               W₂ by inputs
# x ──copied──▶ x W₁ᵣᵀ + b₁ᵣ ──GELU──▶ h ──▶ h W₂ᵣᵀ ──summed──▶ + b₂
# replicated              sharded            partial         replicated
# ```
#
# Two operators frame the region (Megatron-LM calls them f and g). Inside it, a replicated value's gradient is partial;
# outside we want whole gradients again, so that layer norms and residuals work as on one device.

# %% [markdown]
# ### Exercise 2.1 · copied
#
# Write the pair.
#
# - `copied`, into the region: replicated → replicated. Its gradient arrives in partial sums and leaves as their total.
# - `summed`, out of it: partial → replicated. Its gradient arrives whole, the same on all ranks.

# %% tags=["hole"]
def copied(dist, x):
    """x, which all ranks have; its gradient is the sum of what comes back on all ranks. One line."""
    # BEGIN SOLUTION
    return two_way(x, same, lambda gradient: all_reduce(dist, gradient))
    # END SOLUTION

def summed(dist, x):
    """The sum over ranks of x, on all of them; its gradient, which all have, goes to each. One line."""
    # BEGIN SOLUTION
    return two_way(x, lambda x: all_reduce(dist, x), same)
    # END SOLUTION

# %% tags=["check"]
for p in (1, 2, 3, 4):
    shape = tuple(rng.integers(1, 5, int(rng.integers(1, 4))).tolist())
    (x, g), xs, gs = drawn(shape, shape), drawn(*p * [shape]), drawn(*p * [shape])
    got = ranks.run(crossed, "copied", x, ranks.each(gs), world_size=p).returns[-1]
    each_agrees(got, [x, sum(gs), x], f"copied, {p} ranks", ["value", "gradient", "x after"], {
        "Each rank's gradient is that of its own use of x: add them all.": [x, gs[-1], x],
        "Add x over ranks and you have p of it: it is there already.": [p * x, gs[-1], x]})
    got = ranks.run(crossed, "summed", ranks.each(xs), g, world_size=p).returns[-1]
    each_agrees(got, [sum(xs), g, xs[-1]], f"summed, {p} ranks", ["value", "gradient", "x after"], {
        "x must stay as it was: autograd and others may hold it.": [sum(xs), g, sum(xs)],
        "All ranks have the whole gradient: added, it is p times too large.": [sum(xs), p * g, xs[-1]]})
print("copied and summed, forward and backward, on 1 to 4 ranks")

# %% [markdown]
# ### Exercise 2.2 · mlp
#
# An MLP with one all-reduce forward and one backward. First cut the weights (PyTorch's layout: w1 (4D, D), b1 (4D,), w2
# (D, 4D), b2 (D,)): of each matrix and of b1 a rank gets 1/p, of b2 everything. Then compute. Where does b2 belong?

# %% tags=["hole"]
def shard_mlp(w1, b1, w2, b2, rank, world_size):
    """[w1, b1, w2, b2] as this rank holds them. About three lines."""
    # BEGIN SOLUTION
    own = [w1.chunk(world_size)[rank], b1.chunk(world_size)[rank], w2.chunk(world_size, 1)[rank], b2]
    return [w.clone(memory_format=torch.contiguous_format) for w in own]
    # END SOLUTION

def mlp(dist, x, w1, b1, w2, b2):
    """GELU(x W₁ᵀ + b₁) W₂ᵀ + b₂ (N, D) on all ranks, from x (N, D) on all and this rank's shards.

    About two lines.
    """
    # BEGIN SOLUTION
    h = F.gelu(F.linear(copied(dist, x), w1, b1))
    return summed(dist, F.linear(h, w2)) + b2
    # END SOLUTION

# %% tags=["check"]
for p in (1, 2, 4):
    x, *weights = drawn((3, 8), *2 * [(32, 8), 32, (8, 32), 8])
    want, biased = (mlps_on_one_device(x, *weights, times=times) for times in (1, p))
    parts = [[shard_mlp(*weights[i:i + 4], r, p) for i in (0, 4)] for r in range(p)]
    sizes = [[w.numel() for w in part[1]] for part in parts]
    agree(sizes, p * [[256 // p, 32 // p, 256 // p, 8]], f"elements of [w1, b1, w2, b2], p = {p}:")
    (sent, _), got = both_ways(mlp_blocks, x, ranks.each(parts), p=p)
    agree(sent, n := 2 * 2 * (p - 1) * 192 // p, f"bytes sent forward, p = {p}:", mistakes={
        "Hidden units cross? GELU(a + b) is not GELU(a) + GELU(b): cut w1 by units.": 9 * n // 2})
    each_agrees([y[0] for y in got], p * [want], f"output of two blocks, p = {p}", mistakes={
        "b2 is added p times: once on each rank before the sum.": p * [biased]})
print("mlp: two blocks forward, one all-reduce each, on 1, 2 and 4 ranks")

# %% tags=["check"] points=2
for p in (1, 2, 4):
    x, *ws = drawn((3, 8), *2 * [(32, 8), 32, (8, 32), 8])
    _, slope, *gs = differentiated(mlps_on_one_device, x, *ws)
    parts, want = ([[shard_mlp(*w[i:i + 4], r, p) for i in (0, 4)] for r in range(p)] for w in (ws, gs))
    (_, sent), got = both_ways(mlp_blocks, x, ranks.each(parts), p=p)
    agree(sent, 4 * (p - 1) * 192 // p, f"bytes sent backward, p = {p}:", mistakes={
        "Nothing crosses: each rank has its own units' part of x's gradient, and nobody adds.": 0,
        "More than ∂x crosses: after the sum, b2's gradient is whole.": 4 * (p - 1) * 256 // p})
    for rank, shards in enumerate(want):
        each_agrees(got[rank][1:], goal := [slope, *sum(shards, [])], f"rank {rank} of {p}", MLP, {
            "It is 1/p of that: b2 / p before the sum? Add b2 after it.": [g / p for g in goal]})
print("mlp: two blocks backward, one all-reduce each; gradients of one device, to the input")

# %% [markdown]
# Where is the bias b₂ added, and where is GELU applied? Each where its input is whole: GELU between the two products,
# where a rank has whole units; b₂ after the sum. Only what is *linear* may be done to a term of a sum.
#
# Numbers that a rank sends forward, with n = N·D: the lecture's gathers (p−1)/p · (4n + n), this MLP 2(p−1)/p · n. Count:

# %%
n, d, by_003, by_pair, sizes = 16, 16, [], [], [2, 4, 8]
x, w1, b1, w2, b2 = drawn((n, d), (4 * d, d), (4 * d,), (d, 4 * d), (d,))
for p in sizes:
    ws, w2s, parts = w1.chunk(p), w2.chunk(p), [[shard_mlp(w1, b1, w2, b2, r, p)] for r in range(p)]
    layers = ranks.each([[ws[r], w2s[r], torch.eye(d)] for r in range(p)])  # both layers, gathered
    by_003.append(both_ways(gathered_layers, x, layers, p=p)[0])
    by_pair.append(both_ways(mlp_blocks, x, ranks.each(parts), p=p)[0])

# %%
counted = {"a gather a layer": np.sum(by_003, 1), "copied and summed": np.sum(by_pair, 1)}
lines = {"a gather a layer": lambda p: 2 * (p - 1) / p * 5 * n * d * 8,
         "copied and summed": lambda p: 4 * (p - 1) / p * n * d * 8}
figures.predicted_and_measured(sizes, lines, counted, dots_are="counted", xlabel="ranks", yunit="B",
    ylabel="sent by a rank", title="An MLP of D = 16, 16 tokens, forward and backward").set_ylim(0);

# %% [markdown]
# **Cut the first layer by its outputs and the second by its inputs: the hidden units never cross, and one all-reduce
# each way is all.**

# %% [markdown]
# ## Part 3 · A transformer
#
# Attention has the same form: the projections to q, k, v are one layer D → 3D, cut by its outputs; a head needs only
# its own q, k, v; the output projection is cut by its inputs. So the unit that goes to a rank is a *head*.
#
# But PyTorch stacks q, k and v of all heads into one matrix, (3D, D): first all queries, then all keys, then all values.
# A quarter of *its* rows is queries and some keys.

# %% tags=["setup"]
def attention_on_one_device(x, w_in, b_in, w_out, b_out, heads=4, times=1, causal=True):
    """x + PyTorch's attention (T, D), with the last bias added so many times."""
    mask = torch.ones(len(x), len(x), dtype=torch.bool).triu(1) if causal else None
    return x + F.multi_head_attention_forward(
        x, x, x, x.shape[1], heads, w_in, b_in, None, None, False, 0.0, w_out, times * b_out,
        attn_mask=mask, need_weights=False)[0]

# %% [markdown]
# ### Exercise 3.1 · attention
#
# Causal self-attention of one text of T tokens, heads/p heads on each rank, one all-reduce each way. First the cut: rank
# r has heads r·heads/p to (r+1)·heads/p − 1, and its w_in is again [queries; keys; values], of its heads.
# `F.scaled_dot_product_attention` takes and gives (1, heads, T, d), and scales by 1/√d.

# %% tags=["hole"]
def shard_attention(w_in, b_in, w_out, b_out, heads, rank, world_size):
    """[w_in (3D/p, D), b_in (3D/p,), w_out (D, D/p), b_out (D,)] as this rank holds them.

    w_in (3D, D), w_out (D, D). About six lines.
    """
    # BEGIN SOLUTION
    def of_own_heads(w):
        return w.unflatten(0, (3, heads, -1)).chunk(world_size, 1)[rank].flatten(0, 2)

    own = [of_own_heads(w_in), of_own_heads(b_in), w_out.chunk(world_size, 1)[rank], b_out]
    return [w.clone(memory_format=torch.contiguous_format) for w in own]
    # END SOLUTION

def attention(dist, x, w_in, b_in, w_out, b_out, heads):
    """Causal self-attention (T, D), on all ranks, from x (T, D) on all and this rank's shards.

    heads: of all ranks together. About six lines.
    """
    # BEGIN SOLUTION
    qkv = F.linear(copied(dist, x), w_in, b_in)
    qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1)  # (T, 3, own heads, d)
    q, k, v = qkv.permute(1, 2, 0, 3).unsqueeze(1)  # (1, own heads, T, d) each
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
    return summed(dist, F.linear(y.transpose(0, 1).flatten(1), w_out)) + b_out
    # END SOLUTION

# %% tags=["check"] points=2
for p in (1, 2, 4):
    x, *weights = drawn((5, 16), (48, 16), 48, (16, 16), 16, scale=0.5)
    parts = [shard_attention(*weights, 4, r, p) for r in range(p)]
    want = [weights[0][torch.arange(48).view(3, p, -1)[:, r].flatten()] for r in range(p)]
    each_agrees([part[0] for part in parts], want, f"w_in, p = {p}", mistakes={
        "Rank 0 has queries and no values: cut each of q, k, v by heads.": pieces(weights[0], p)})
    got = ranks.run(attention_block, x, ranks.each(parts), 4, "both", world_size=p).returns
    cases = (1, True), (p, True), (1, False)
    want, biased, open_ = (attention_on_one_device(x, *weights, 4, *case) for case in cases)
    each_agrees([y[0] for y in got], p * [want], f"x + attention, p = {p}", mistakes={
        "b_out is added p times.": p * [biased], "Token t may not look at t + 1: causal.": p * [open_]})
print("attention: by heads, as PyTorch's, on 1, 2 and 4 ranks")

# %% tags=["check"] points=2
for p in (1, 2, 4):
    x, *weights = drawn((5, 16), (48, 16), 48, (16, 16), 16, scale=0.5)
    _, slope, *slopes = differentiated(attention_on_one_device, x, *weights)
    parts, want = ([shard_attention(*ws, 4, r, p) for r in range(p)] for ws in (weights, slopes))
    sent, got = both_ways(attention_block, x, ranks.each(parts), 4, p=p)
    n = 2 * (p - 1) * 80 * 8 // p
    agree(sent, (n, n), f"(bytes forward, bytes backward) that a rank sends, p = {p}:", mistakes={
        "Nothing crosses backward: x is copied, its gradient is a partial sum.": (n, 0)})
    for rank, shards in enumerate(want):
        each_agrees(got[rank][1:], [slope, *shards], f"rank {rank} of {p}",
                    ["∂x", "∂w_in", "∂b_in", "∂w_out", "∂b_out"])
print("attention: one all-reduce each way, the gradients of one device")

# %% [markdown]
# ### The widest layer
#
# The last layer gives a logit to each of V words. Llama 3 (Meta, 2024) has V = 128,256 and 8,192 tokens a text: 4.2 GB
# of logits in fp32. Cut by words, each rank has V/p logits of each token. To gather them would be to pay for all of
# them. But the loss needs little of them, for a token with target y:
#
# ℓ = log Σᵥ exp(zᵥ − m) − (z_y − m), with m = maxᵥ zᵥ
#
# Three numbers a token.

# %% tags=["driver"]
# A transformer made of your functions; the last check trains it. Look at `embedded`, skip the rest.

def embedded(dist, tokens, table):
    """The tokens' rows (T, D) of a table, V/p rows a rank: one rank finds a token, the others add 0."""
    local = tokens - dist.get_rank() * len(table)
    own = (local >= 0) & (local < len(table))
    return summed(dist, table[local.clamp(0, len(table) - 1)] * own[:, None])

def transformer_block(dist, x, weights, heads):
    """A transformer's block (T, D), its 12 weights in torch.nn.TransformerEncoderLayer's order."""
    x = x + attention(dist, F.layer_norm(x, x.shape[1:], *weights[8:10]), *weights[:4], heads)
    return x + mlp(dist, F.layer_norm(x, x.shape[1:], *weights[10:]), *weights[4:8])

def network_loss(dist, tokens, table, positions, *blocks, heads):
    """Mean loss of predicting each token from those before it.

    table: this rank's V/p rows, for words in and out; blocks: 12 weights each.
    """
    x = embedded(dist, tokens[:-1], table) + positions
    for block in zip(*[iter(blocks)] * 12):
        x = transformer_block(dist, x, block, heads)
    x = F.layer_norm(x, x.shape[1:])
    return cross_entropy(dist, F.linear(copied(dist, x), table), tokens[1:])

def shard_network(weights, heads, rank, world_size):
    """The weights of network_loss as this rank holds them."""
    table, positions, *blocks = weights
    shards = [table.chunk(world_size)[rank].clone(), positions]
    for block in zip(*[iter(blocks)] * 12):
        shards += shard_attention(*block[:4], heads, rank, world_size)
        shards += [*shard_mlp(*block[4:8], rank, world_size), *block[8:]]
    return shards

def trained(dist, texts, weights, heads, rate):
    """(losses, this rank's weights) after a step of gradient descent on each text."""
    losses, weights = [], [w.requires_grad_() for w in weights]
    for tokens in texts:
        losses.append(network_loss(dist, tokens, *weights, heads=heads))
        slopes = torch.autograd.grad(losses[-1], weights)
        weights = [(w - rate * g).detach().requires_grad_() for w, g in zip(weights, slopes)]
    return [loss.item() for loss in losses], [w.detach() for w in weights]

# %% tags=["setup"]
FORM = {"dropout": 0.0, "activation": F.gelu, "batch_first": True, "norm_first": True}
NETWORK = ["table", "positions"] + 2 * [*torch.nn.TransformerEncoderLayer(4, 1).state_dict()]

def loss_on_one_device(tokens, heads, table, positions, *blocks):
    """network_loss, on PyTorch's own layers."""
    x, d = table[tokens[:-1]] + positions, table.shape[1]
    layer = torch.nn.TransformerEncoderLayer(d, heads, 4 * d, **FORM)
    for block in zip(*[iter(blocks)] * 12):
        mask = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        x = torch.func.functional_call(layer, dict(zip(layer.state_dict(), block)), (x, mask))
    return F.cross_entropy(F.linear(F.layer_norm(x, (d,)), table), tokens[1:])

# %% tags=["setup"]
def trained_on_one_device(texts, weights, heads, rate):
    """(losses, weights) as `trained`."""
    losses = []
    for tokens in texts:
        leaves = [w.clone().requires_grad_() for w in weights]
        losses.append(loss_on_one_device(tokens, heads, *leaves))
        slopes = torch.autograd.grad(losses[-1], leaves)
        weights = [w - rate * g for w, g in zip(weights, slopes)]
    return [loss.item() for loss in losses], weights

# %% tags=["setup"]
def drawn_texts(count, length):
    """Pieces of the novel, `length` characters and the next one, as ASCII."""
    text = torch.tensor(list(samples.novel().encode()))
    return [text[i:i + length + 1].clone() for i in rng.integers(0, len(text) - length, count).tolist()]

def drawn_network(d, length, blocks=2, words=128):
    """The weights of network_loss, whole."""
    block = [(3 * d, d), 3 * d, (d, d), d, (4 * d, d), 4 * d, (d, 4 * d), d, d, d, d, d]
    weights = drawn((words, d), (length, d), *blocks * block, scale=0.1)
    return [w + (i > 1 and (i - 2) % 12 in (8, 10)) for i, w in enumerate(weights)]  # gains are about 1

# %% [markdown]
# ### Exercise 3.2 · cross_entropy
#
# The loss from each rank's logits, words in order of rank: three all-reduces of T numbers, and backward none: with
# `summed`, each rank finds softmax − one-hot for its own words. The maximum needs no gradient: take it of
# `logits.detach()` with `dist.all_reduce(..., op=dist.ReduceOp.MAX)`. A target is on one rank only; the others add 0,
# as in `embedded` above.

# %% tags=["hole"]
def cross_entropy(dist, logits, targets):
    """Mean cross-entropy over T tokens, on all ranks.

    logits (T, V/p): this rank's words; targets (T,): from 0 to V − 1, the same on all ranks.
    About nine lines.
    """
    # BEGIN SOLUTION
    most = logits.detach().max(1).values
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    z = logits - most[:, None]
    total = summed(dist, z.exp().sum(1))
    local = targets - dist.get_rank() * z.shape[1]
    own = (local >= 0) & (local < z.shape[1])
    z_target = z.gather(1, local.clamp(0, z.shape[1] - 1)[:, None])[:, 0]
    return (total.log() - summed(dist, z_target * own)).mean()
    # END SOLUTION

# %% tags=["check"] points=2
for p in (1, 2, 4):
    z, y = drawn((8, 24), scale=3)[0] + 800, torch.tensor(rng.integers(0, 24, 8))
    want, parts = F.cross_entropy(z, y), pieces(z, p, 1)
    got = ranks.run(entropy, ranks.each(parts), y, "both", world_size=p).returns
    own_max = torch.cat([part - part.max(1, keepdim=True).values for part in parts], 1)
    alone = [(part.logsumexp(1) - z.gather(1, y[:, None])[:, 0]).mean() for part in parts]
    each_agrees([g[0] for g in got], p * [want], f"loss, logits near 800, p = {p}", mistakes={
        "The rank's own words only: the sum of a softmax runs over all words.": alone,
        "The maximum is the rank's own: all must subtract the same.": p * [F.cross_entropy(own_max, y)],
        "Subtract the maximum from the target's logit, too.": p * [want - z.max(1).values.mean()],
        "The sum over tokens, not the mean.": p * [8 * want]})
print("cross_entropy: PyTorch's loss, on 1, 2 and 4 ranks")

# %% tags=["check"]
for p in (1, 2, 4):
    z, y = drawn((8, 24), scale=3)[0], torch.tensor(rng.integers(0, 24, 8))
    _, slope = differentiated(F.cross_entropy, z, target=y)
    (sent, back), got = both_ways(entropy, ranks.each(pieces(z, p, 1)), y, p=p)
    each_agrees([g[1] for g in got], pieces(slope, p, 1), f"gradient, p = {p}", mistakes={
        "p times too large: all ranks have the loss's whole gradient.": pieces(p * slope, p, 1)})
    most = 3 * 2 * (p - 1) * 8 * 8 // p
    assert sent + back <= most, f"a rank sends {sent} + {back} bytes, want {most}: no logit need cross"
print("cross_entropy: PyTorch's gradient; three numbers a token cross")

# %% tags=["check"] points=2 limit_s=30
texts, weights = drawn_texts(3, 12), drawn_network(16, 12)
losses, want = trained_on_one_device(texts, weights, 4, 0.5)
for p in (1, 2, 4):
    parts = [shard_network(weights, 4, r, p) for r in range(p)]
    goal = [shard_network(want, 4, r, p) for r in range(p)]
    got = ranks.run(trained, texts, ranks.each(parts), 4, 0.5, world_size=p).returns
    each_agrees([g[0] for g in got], p * [losses], f"losses of 3 steps on the novel, p = {p}")
    for rank in range(p):
        each_agrees(got[rank][1], goal[rank], f"after 3 steps, rank {rank} of {p}", NETWORK)
print("a transformer on the novel: 3 steps, the losses and weights of one device, on 1, 2 and 4 ranks")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `z.gather(1, index[:, None])[:, 0]` reads one logit a row. A target of another rank would be out of range: clamp the
# index, and multiply what you read by 0.
# </details>

# %%
texts, weights = drawn_texts(40, 32), drawn_network(32, 32)
parts = ranks.each([shard_network(weights, 4, r, 4) for r in range(4)])
one, _ = trained_on_one_device(texts, weights, 4, 0.3)
four = ranks.run(trained, texts, parts, 4, 0.3, live_bytes=False).returns[0][0]

# %%
print(f"largest difference of losses: {max(abs(a - b) for a, b in zip(one, four)):.1e}")
_, ax = plt.subplots()
ax.plot(one, label="one device")
ax.plot(four, "o", color="C1", label="4 ranks")
ax.set(xlabel="step", ylabel="loss (nats a character)", title="A transformer reads Pride and Prejudice")
ax.legend();

# %% [markdown]
# ### Clinic: it hangs, on some texts
#
# A colleague saves a message: only ranks that *have* a target call the all-reduce. It worked for weeks. Find out why
# it stops, before you unfold.

# %%
def thrifty_target_logit(dist, logits, targets):
    local = targets - dist.get_rank() * logits.shape[1]
    own = (local >= 0) & (local < logits.shape[1])
    return summed(dist, logits[own, local[own]].sum()) if own.any() else torch.tensor(0.0)

# %%
for targets in ([0, 5, 10, 15], [0, 5, 6, 7]):
    try:
        print(targets, ranks.run(thrifty_target_logit, torch.ones(4, 4), torch.tensor(targets)).returns)
    except ranks.DeadlockError as error:
        print(targets, error)

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# A collective is called by all ranks of the group or by none. With the second text, ranks 2 and 3 have no target and go
# on to whatever collective comes next; here they return. On real machines the others wait until a watchdog ends the run
# after some minutes, in a line that is right. No collective under an `if` whose condition differs by rank.
# </details>
#
# **Heads, hidden units, words: cut what is independent, and sum where it meets.**

# %% [markdown]
# ## Part 4 · Take the all-reduce apart
#
# Between the regions (layer norm, residual, dropout) each rank does the same work on the same x, and keeps the same
# activations. An all-reduce is a reduce-scatter and an all-gather (lab 11). **Sequence parallelism** puts that work in
# between:

# %% [markdown]
# ```
# all-reduce:   ... partial ──all-reduce──▶ replicated x + ..., norm ──▶ ...
# sequence:     ... partial ──reduce-scatter──▶ own tokens: x + ..., norm ──all-gather──▶ ...
# ```
#
# The same bytes, and what is kept outside the regions shrinks by p. But mind what is replicated *now*: a norm's gain is
# the same on all ranks, and each uses it for its own tokens.

# %% tags=["setup"]
def sequence_shards(x, weights, p):
    """(x, weights) by rank, for blocks of 6 weights: gain, offset, w1, b1, w2, b2."""
    dims = [None, None, 0, 0, 1, None] * (len(weights) // 6)
    parts = [p * [w] if dim is None else pieces(w, p, dim) for w, dim in zip(weights, dims)]
    return pieces(x, p), [list(part) for part in zip(*parts)]

def terms_of(want, rank, returned):
    """A rank's gradients where all ranks' add up to the one that is wanted, None elsewhere."""
    by_name = zip(*(gradients for _, *gradients in returned))
    return [terms[rank] if torch.allclose(sum(terms), w) else None for terms, w in zip(by_name, want)]

# %% [markdown]
# ### Exercise 4.1 · sequence_mlp
#
# `gathered` and `scattered` replace `copied` and `summed`; write the block with them. Which weights are used for this
# rank's tokens only? Their gradients are partial sums.

# %% tags=["hole"]
def gathered(dist, x):
    """(T, D), the tokens of all ranks, from this rank's (T/p, D), and its way back. One line."""
    # BEGIN SOLUTION
    return two_way(x, lambda x: all_gather(dist, x), lambda gradient: reduce_scatter(dist, gradient))
    # END SOLUTION

def scattered(dist, x):
    """(T/p, D), this rank's tokens of the sum over ranks of x (T, D), and its way back. One line."""
    # BEGIN SOLUTION
    return two_way(x, lambda x: reduce_scatter(dist, x), lambda gradient: all_gather(dist, gradient))
    # END SOLUTION

def sequence_mlp(dist, x, gain, offset, w1, b1, w2, b2):
    """x + MLP(norm(x)) (T/p, D), for this rank's tokens.

    x (T/p, D); gain, offset, b2 (D,): whole on all ranks; w1, b1, w2: as in mlp. Use F.layer_norm.
    About four lines.
    """
    # BEGIN SOLUTION
    gain, offset, b2 = (copied(dist, w) for w in (gain, offset, b2))
    normed = F.layer_norm(x, x.shape[1:], gain, offset)
    h = F.gelu(F.linear(gathered(dist, normed), w1, b1))
    return x + scattered(dist, F.linear(h, w2)) + b2
    # END SOLUTION

# %% tags=["check"] points=2
for p in (1, 2, 4):
    x, *weights = drawn((8, 8), *2 * [8, 8, (32, 8), 32, (8, 32), 8])
    y, *slopes = differentiated(mlps_on_one_device, x, *weights, normed=True)
    xs, parts = map(ranks.each, sequence_shards(x, weights, p))
    got = ranks.run(sequence_blocks, xs, parts, "both", world_size=p).returns
    each_agrees([g[0] for g in got], pieces(y, p), f"tokens, p = {p}")
    want = [[slope, *shards] for slope, shards in zip(*sequence_shards(slopes[0], slopes[1:], p))]
    for rank, goal in enumerate(want):
        names, terms = slopes_of("gain", "offset", "w1", "b1", "w2", "b2"), terms_of(goal, rank, got)
        each_agrees(got[rank][1:], goal, f"rank {rank} of {p}", names, {
            "Its own tokens only: a replicated weight's gradient is partial, too.": terms})
print("sequence_mlp: two blocks, the output and gradients of one device, on 1, 2 and 4 ranks")

# %% tags=["check"]
for p in (1, 2, 4):
    x, *weights = drawn((64, 16), *2 * [16, 16, (64, 16), 64, (16, 64), 16])
    xs, parts = map(ranks.each, sequence_shards(x, weights, p))
    (forward, back), _ = both_ways(sequence_blocks, xs, parts, p=p)
    n, small = 2 * 2 * (p - 1) * 8192 // p, 2 * 3 * 2 * (p - 1) * 128 // p  # small: norms and b2
    agree(forward, n, f"bytes that a rank sends forward, two blocks, p = {p}:")
    assert back <= n + small, f"backward: {back} bytes, want {n}, and {small} for norms and b2"
    trace = ranks.run(sequence_blocks, xs, parts, "forward", world_size=p).trace
    live = (max(trace.peak_live_bytes) - sum(w.nbytes for w in parts.values[0])) / 8192
    assert live <= 4 + 21 / p, f"p = {p}: {live:.1f} T·D numbers are live: norm before you gather"
print("sequence_mlp: an all-reduce's bytes; outside the region, a rank keeps its own tokens only")

# %% [markdown]
# One thing is still whole on every rank: the gathered norm, which W₁'s gradient needs. It could be gathered *again* in
# backward. A block then sends five gathers' worth in place of four, 5/4 of the bytes, to keep 1/p of that activation.
# And the wire need not cost time: the product for x's gradient does not need the gathered x, and that for W₁'s gradient
# does not need the wire.

# %% [markdown]
# ### Exercise 4.2 · GatheredLinear
#
# `gathered` and a linear layer in one, which keeps x's shard and hides the wire: in backward, the gather is under way
# during the first product, the reduce-scatter during the second. `dist.all_gather_into_tensor(whole, shard,
# async_op=True)` returns a handle; `wait()` before you use what comes. The same for `dist.reduce_scatter_tensor`.

# %% tags=["hole"]
class GatheredLinear(torch.autograd.Function):
    """A linear layer of gathered tokens that keeps its own: GatheredLinear.apply(dist, x, w, b)."""

    @staticmethod
    def forward(ctx, dist, x, w, b):
        """(T, H) for all tokens, from this rank's x (T/p, D), its w (H, D) and b (H,). Three lines."""
        # BEGIN SOLUTION
        ctx.dist = dist
        ctx.save_for_backward(x, w)
        return F.linear(all_gather(dist, x), w, b)
        # END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        """(None, x's gradient (T/p, D), w's, b's), from the output's (T, H). About nine lines."""
        # BEGIN SOLUTION
        dist, (x, w) = ctx.dist, ctx.saved_tensors
        whole = x.new_empty(len(gradient), x.shape[1])
        work = dist.all_gather_into_tensor(whole, x.contiguous(), async_op=True)
        partial, slope = gradient @ w, torch.empty_like(x)
        work.wait()
        work = dist.reduce_scatter_tensor(slope, partial, async_op=True)
        slopes = gradient.T @ whole, gradient.sum(0)
        work.wait()
        return None, slope, *slopes
        # END SOLUTION

# %% tags=["check"] points=2
for p in (1, 2, 4):
    x, w, b = drawn((64, 32), (64 * p, 32), 64 * p)
    y, *slopes = differentiated(F.linear, x, w, b)
    sent, got = both_ways(linear, *(ranks.each(pieces(t, p)) for t in (x, w, b)), p=p)
    want = [list(parts) for parts in zip(pieces(y, p, 1), *(pieces(slope, p) for slope in slopes))]
    for rank in range(p):
        each_agrees(got[rank], want[rank], f"rank {rank} of {p}", ["output", "∂x", "∂w", "∂b"], {
            "Were the gathered tokens there? wait() before you use them.": [0 * w for w in want[rank]]})
    n = (p - 1) * 64 * 32 * 8 // p
    agree(sent, (n, 2 * n), f"(bytes forward, bytes backward) that a rank sends, p = {p}:", mistakes={
        "The gathered x was kept: keep the shard, and gather it again.": (n, n)})
print("GatheredLinear: the gradients of one device, for one more gather in backward")

# %% tags=["check"]
product_s, gather_s = 2 * 64 * 32 * 64 / 1e9, 3 * (1e-5 + 1e-10 * 16 * 32 * 8)
x, w, b = (ranks.each(drawn(*4 * [shape])) for shape in ((16, 32), (64, 32), 64))
trace = ranks.run(linear, x, w, b, "both", world_size=4, flops_per_s=1e9).trace
agree(trace.compute_s, 4 * [3 * product_s], "seconds of three products by rank:", rtol=1e-6)
shown = round((trace.time_s - 3 * product_s) / gather_s, 1)  # in gathers
agree(shown, 1.0, "time without compute, in gathers (the forward one can't be hidden):", mistakes={
    "Nothing is hidden: begin each with async_op=True, compute, then wait.": 3.0,
    "One is hidden, one is not: which product needs what?": 2.0})
x, w, b = (ranks.each(drawn(*4 * [shape])) for shape in ((64, 32), (8, 32), 8))
peak = max(ranks.run(linear, x, w, b, "both", world_size=4).trace.peak_live_bytes)
assert peak < 215_104, f"{peak:,} live bytes, want some 184,000: was the gathered x kept, too?"
print("GatheredLinear: both collectives of backward are hidden, and only the shard is kept")

# %% [markdown]
# Put it into the block, and compare what three ways keep for backward on a rank, for blocks of T·D = n numbers:
#
# - tensor parallel: x and the norm's output, whole; two times 4n/p hidden units: 2n + 8n/p a block;
# - sequence parallel: n + 9n/p, since x is cut and the gathered norm is not;
# - with `GatheredLinear`: 10n/p. Everything shrinks by p.

# %%
def lean_mlp(dist, x, *weights):
    *norm, b2 = (copied(dist, weights[i]) for i in (0, 1, 5))
    h = F.gelu(GatheredLinear.apply(dist, F.layer_norm(x, x.shape[1:], *norm), *weights[2:4]))
    return x + scattered(dist, F.linear(h, weights[4])) + b2

def whole_mlp(dist, x, gain, offset, *weights):
    return x + mlp(dist, F.layer_norm(x, x.shape[1:], gain, offset), *weights)

# %%
BLOCKS = {"tensor parallel": whole_mlp, "sequence parallel": sequence_mlp, "shards kept": lean_mlp}
def held(dist, name, x, weights):
    for t in (x, *weights):
        t.requires_grad_()
    for _ in range(8):
        x = BLOCKS[name](dist, x, *weights)
    return x  # and with it, the graph

# %%
def kept(name, p, t=64, d=64):
    x, *weights = drawn((t, d), d, d, (4 * d, d), 4 * d, (d, 4 * d), d)
    xs, parts = sequence_shards(x, weights, p)
    xs = p * [x] if name == "tensor parallel" else xs
    trace = ranks.run(held, name, ranks.each(xs), ranks.each(parts), world_size=p).trace
    return (trace.live_bytes[0][-1][1] - sum(w.nbytes for w in parts[0])) / (8 * x.nbytes)  # a block

sizes = [1, 2, 4, 8]
counted = {name: [kept(name, p) for p in sizes] for name in BLOCKS}

# %%
of_p = {"tensor parallel": lambda p: 2 + 8 / p, "sequence parallel": lambda p: 1 + 9 / p,
        "shards kept": lambda p: 10 / p}
figures.predicted_and_measured(sizes, of_p, counted, dots_are="counted", xlabel="ranks",
    ylabel="a block, in T·D numbers", title="Activations that a rank keeps for backward").set_ylim(0);

# %% [markdown]
# The price is bytes, not time, where products are long enough to hide them. Below, one block on the simulated machine:
# above each row what a rank sends, below it what it receives.

# %%
def step(dist, name, x, weights):
    leaves = [t.requires_grad_() for t in (x, *weights)]
    return derived(BLOCKS[name](dist, *leaves), leaves, "both")

# %%
x, *weights = drawn((64, 32), 32, 32, (128, 32), 128, (32, 128), 32)
xs, parts = map(ranks.each, sequence_shards(x, weights, 4))
machine = {"flops_per_s": 2e9, "alpha_s": 1e-6, "beta_s_per_byte": 3e-9}
traces = {name: ranks.run(step, name, xs, parts, **machine).trace for name in list(BLOCKS)[1:]}
_, axes = plt.subplots(2, figsize=(7.2, 4.6), sharex=True)
for ax, (name, trace) in zip(axes, traces.items()):
    trace.draw(ax=ax, title=f"{name}: a block", until_s=max(each.time_s for each in traces.values()))
axes[0].set_xlabel("");

# %% [markdown]
# **Sequence parallelism is free in bytes; keeping shards only costs 5/4 of them, and can hide what it costs.**
#
# ### Who chooses the collective?
#
# You chose `copied`, `summed`, `gathered`, `scattered`, by asking each time: what is there, and what is wanted? The
# lecture shows JAX, where you say only how each array is laid out and "the JAX compiler handles the rest". It can, because
# the answer is a table.

# %% tags=["driver"]
def moved(dist, x, have, want):
    """x as this rank holds it in the layout `want`, by the collective that collective_for names."""
    name, p, dims = collective_for(have, want), dist.get_world_size(), {"rows": 0, "columns": 1}
    if name not in ("nothing", "slice", "all-gather", "all-reduce", "reduce-scatter", "all-to-all"):
        raise ValueError(f"collective_for({have!r}, {want!r}) is {name!r}, which is none of the six")
    if name in ("reduce-scatter", "all-to-all"):
        parts = torch.stack(x.chunk(p, dims[want]))
        if name == "reduce-scatter":
            return reduce_scatter(dist, parts)[0]
        came = torch.empty_like(parts)
        dist.all_to_all_single(came, parts)
        return torch.cat(came.unbind(), dims[have])
    if name == "all-gather":
        x = torch.cat(all_gather(dist, x[None]).unbind(), dims[have])
    if name == "all-reduce":
        x = all_reduce(dist, x)
    if name != "nothing" and want in dims:  # slice, or more came than was wanted
        x = x.chunk(p, dims[want])[dist.get_rank()].contiguous()
    return x

# %% [markdown]
# ### Exercise 4.3 · collective_for
#
# Write the table. Layouts of a matrix: `"replicated"`, `"partial"`, `"rows"`, `"columns"` (sharded by these). Name the
# way from one to the other that sends least: `"nothing"`, `"slice"` (keep a part of what you have), `"all-gather"`,
# `"all-reduce"`, `"reduce-scatter"` or `"all-to-all"`.

# %% tags=["hole"]
def collective_for(have, want):
    """The name of the way from one layout to another; want is not "partial".

    About seven lines.
    """
    # BEGIN SOLUTION
    if have == want:
        return "nothing"
    if have == "partial":
        return "all-reduce" if want == "replicated" else "reduce-scatter"
    if have == "replicated":
        return "slice"
    return "all-gather" if want == "replicated" else "all-to-all"
    # END SOLUTION

# %% tags=["check"]
LAYOUTS, parts = ("replicated", "partial", "rows", "columns"), drawn(*4 * [(8, 8)])
x = sum(parts)
for have in LAYOUTS:
    for want in ("replicated", "rows", "columns"):
        laid = dict(zip(LAYOUTS, (4 * [x], parts, pieces(x, 4), pieces(x, 4, 1))))
        run = ranks.run(moved, ranks.each(laid[have]), have, want)
        each_agrees(run.returns, laid[want], f"{have} → {want}")
        gathers = {"partial": 1 + (want == "replicated"), "replicated": 0, want: 0}
        least = 384 * gathers.get(have, 1 if want == "replicated" else 1 / 4)
        sent = max(run.trace.bytes_sent)
        assert sent == least, f"{have} → {want}: {sent} bytes a rank; {least:.0f} are enough"
print("collective_for: twelve ways, each arrives, each with the fewest bytes")

# %% [markdown]
# All of this lab is now one table. A value has a layout, and so has its gradient; each moves by `collective_for`.
#
# | operator | value | gradient, on its way back |
# | --- | --- | --- |
# | `copied` | replicated → replicated: nothing | partial → replicated: all-reduce |
# | `summed` | partial → replicated: all-reduce | replicated → replicated: nothing |
# | `gathered` | rows → replicated: all-gather | partial → rows: reduce-scatter |
# | `scattered` | partial → rows: reduce-scatter | rows → replicated: all-gather |
#
# **Say what each rank has and what it needs: the collective follows, and its gradient's does too.**

# %% [markdown]
# ## Predict, then measure
#
# An MLP of width D on T tokens: forward and backward are 48·T·D² FLOPs over p ranks, and two all-reduces of T·D numbers.
# Four H200s, bf16: cuBLAS reaches 690 TFLOP/s on 8192³, NCCL's all-reduce a bus bandwidth of 354 GB/s (both measured on
# such a machine: the bandwidth divides 2(p−1)/p · n bytes by the time). What share of the time is communication at D =
# 8192?

# %%
# BEGIN SOLUTION
tokens, width, p = 4096, 8192, 4
compute_s = 48 * tokens * width**2 / p / 690e12
communication_s = 2 * 2 * (p - 1) / p * tokens * width * 2 / 354e9
share = communication_s / (compute_s + communication_s)
# END SOLUTION
NUMBER = "tensor-parallel MLP, D = 8192, 4 H200s: share of communication"
ledger.predict(NUMBER, share, "")

# %% [markdown]
# T cancels; only D, p and the machine count. So a small machine can stand for the large one: 1/128 of its FLOP/s at 1/128
# of its width. (Our numbers have 8 bytes, so a byte costs a quarter.) Beside it, ranks on four nodes, joined by 400
# Gbit/s = 50 GB/s each (NVIDIA's data sheet of ConnectX-7).

# %%
def shares(bandwidth_b_s, widths):
    machine = {"alpha_s": 0.0, "beta_s_per_byte": 0.25 / bandwidth_b_s, "flops_per_s": 690e12 / 128}
    for d in widths:
        x, *weights = drawn((16, d), (4 * d, d), 4 * d, (d, 4 * d), d)
        parts = ranks.each([[shard_mlp(*weights, r, 4)] for r in range(4)])
        yield ranks.run(mlp_blocks, x, parts, "both", live_bytes=False, **machine).trace.bubble

links = {"NVLink, 354 GB/s": 354e9, "between nodes, 50 GB/s": 50e9}
predicted = {name: lambda d, b=b: 1 / (1 + 12 * d * b / (3 * 2 * 690e12)) for name, b in links.items()}

# %%
widths = np.array([8, 16, 32, 64, 128])
simulated = {name: list(shares(b, widths)) for name, b in links.items()}
ledger.counted(NUMBER, simulated["NVLink, 354 GB/s"][3], "")
ax = figures.predicted_and_measured(128 * widths, predicted, simulated, dots_are="simulated", log="x",
    xlabel="width D", ylabel="share of the time", title="The wider, the less communication: p = 4")
ax.set(ylim=(0, 1), xticks=128 * widths, xticklabels=128 * widths);

# %% [markdown]
# Inside a node, wide layers pay; between nodes, at D = 8192, the wire takes more than four tenths of the time. So tensor
# parallelism stays inside a node, and labs 12, 13 and 15 go between nodes.
#
# ### On real devices
#
# The same functions on processes: NCCL where there are several GPUs, gloo elsewhere. Communication is what the time is
# shorter without it. The line is 1/(1 + c·D), with c from the last dot. On a CPU narrow layers lie above it: a message
# costs α however short it is. On H200s D = 1024 lies below: launching its kernels takes longer than running
# them; the wire hides under that.

# %% tags=["nbval-ignore-output"]
gpus = torch.cuda.device_count()
machine, p = ("nccl" if gpus > 1 else "gloo"), 4 if gpus >= 4 else 2
texts, weights = drawn_texts(3, 12), drawn_network(16, 12)
parts = ranks.each([shard_network(weights, 4, r, p) for r in range(p)])
real, simulated = (ranks.run(trained, texts, parts, 4, 0.5, world_size=p, machine=each).returns[0][0]
                   for each in (machine, "simulated"))
print(f"{p} ranks, {machine}: losses {[round(loss, 6) for loss in real]}")
print(f"largest difference to simulated ranks: {max(abs(a - b) for a, b in zip(real, simulated)):.1e}")

# %% tags=["driver"]
class Silent:
    """A dist on which nothing crosses: the time that is left is compute."""
    def __init__(self, dist):
        self.get_world_size = dist.get_world_size

    def all_reduce(self, x):
        """Nothing."""

def mlp_seconds(dist, tokens, width, dtype, repeats=12):
    """[median seconds of an MLP's forward and backward, the same with nothing sent], turn by turn."""
    hidden, times_s = 4 * width // dist.get_world_size(), ([], [])
    sizes = (tokens, width), (hidden, width), (hidden,), (width, hidden), (width,)
    x, *weights = ((torch.randn(size, dtype=dtype) * width**-0.5).requires_grad_() for size in sizes)
    for i in range(2 * repeats):
        dist.barrier()
        synchronize(x)
        start_s = time.perf_counter()
        y = mlp(Silent(dist) if i % 2 else dist, x, *weights)
        y.backward(y.detach())
        synchronize(x)
        times_s[i % 2].append(time.perf_counter() - start_s)
    return [sorted(times[2:])[repeats // 2 - 1] for times in times_s]  # the first two warm up

def synchronize(x):
    """Waits until the GPU is done, if x is on one."""
    if x.is_cuda:
        torch.cuda.synchronize()

# %% tags=["nbval-ignore-output"]
cpu = [128, 256, 512], 256, torch.float32
sizes, tokens, dtype = cpu if machine == "gloo" else ([1024, 2048, 4096, 8192], 4096, torch.bfloat16)
options = {"world_size": p, "machine": machine, "noted": False}
runs = [ranks.run(mlp_seconds, tokens, width, dtype, **options).returns for width in sizes]
slowest_s = [np.max(run, axis=0) for run in runs]  # (with messages, without), by width
measured = [float(1 - silent_s / whole_s) for whole_s, silent_s in slowest_s]
for width, part, (whole_s, _) in zip(sizes, measured, slowest_s):
    print(f"D = {width}: {part:.0%} of {whole_s * 1e3:.2f} ms")

# %% tags=["nbval-ignore-output"]
lines = {f"{p} ranks, {machine}": lambda d: 1 / (1 + d / sizes[-1] * (1 / measured[-1] - 1))}
if machine == "nccl" and p == 4:
    lines["NVLink, 354 GB/s"] = predicted["NVLink, 354 GB/s"]
    ledger.measured(NUMBER, measured[-1], "")
ax = figures.predicted_and_measured(sizes, lines, {f"{p} ranks, {machine}": measured}, log="x",
    xlabel="width D", ylabel="share of the time", title="The wider, the less communication: measured")
ax.set(ylim=(0, 1), xticks=sizes, xticklabels=sizes);

# %% [markdown]
# ## Where it is used
#
# - **Megatron-LM**: your four operators are `mappings.py` of its `tensor_parallel`, `GatheredLinear` its
#   `LinearWithGradAccumulationAndAsyncCommunication`. Shoeybi et al. (2019); sequence parallelism and the 5/4:
#   Korthikanti et al., *Reducing activation recomputation* (2022).
# - **PyTorch**: `parallelize_module` with `ColwiseParallel`, `RowwiseParallel`, `SequenceParallel`; `loss_parallel` is your
#   `cross_entropy`. DTensor's layouts are `Replicate`, `Shard(dim)` and `Partial`, its collectives from a table like yours.
# - **JAX**: in `jax.shard_map` an array's type tells whether it varies over ranks; the cast `pvary` is `copied`.
#
# *Limits of ours*: one text at a time, no dropout (each rank needs its own random numbers inside the region, the same
# ones outside), p divides the heads, T and V.
#
# ## Done

# %%
ledger.table()

# %% [markdown]
# Grade your lab with `python -m grading 14`.

# %% [markdown]
# **A harder question.** Without sequence parallelism half of the wire can hide, too. Which, and under what?
#
# <details><summary>Answer</summary>
#
# Backward, `copied`'s all-reduce carries x's gradient, for which W₁'s does not wait. Make `copied` and the linear layer
# one `torch.autograd.Function`, as in 4.2: `gx = g @ w`, `all_reduce(gx, async_op=True)`, `gw = g.T @ x`, `wait()`.
# Forward, the norm needs the whole sum: nothing to hide under, unless one half of the tokens travels while the other
# computes. A transformer's block, width 8192, 4096 tokens, bf16, on four H200s: 10.3 ms with your `copied`, 10.0 so,
# 8.6 with nothing sent; PyTorch's `parallelize_module` 10.7.
# </details>
