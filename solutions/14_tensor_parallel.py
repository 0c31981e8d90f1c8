# %% [markdown]
# # 14 · Tensor parallel
#
# **A layer does not fit on one device. How do you cut it, and what has to cross, forward and backward?**
#
# At the end of this lab you can
#
# - cut linear layers, attention and the loss over p ranks, and get the gradients of one device;
# - say for every value which rank holds what, and which collective follows from that;
# - count a layer's bytes and a rank's activations, and predict when a cut layer pays.
#
# You need labs 07, 11 and 12, and no GPU. The core path takes about 160 minutes.
#
# Write your answers in the cells that raise `NotImplementedError`. The grader reads only those.

# %% tags=["setup"]
import functools

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F

from common import figures, language_model, ledger
from common.checks import agree, expect, remark
from common.lessons.tensor_parallel import sharding
from common.lessons.tensor_parallel.sharding import both_ways, each_agrees, pieces
from common.lessons.tensor_parallel.sharding import same, sequence_shards, two_way
from nogpu import ranks

# %% tags=["setup"]
figures.use_style()
torch.set_default_dtype(torch.float64)  # so that "the same gradients" can mean ten digits
rng = np.random.default_rng()
gelu = functools.partial(F.gelu, approximate="tanh")  # the language model's

def drawn(*shapes, scale=1.0):
    """A tensor of each of these shapes, normally distributed."""
    return [torch.tensor(rng.normal(0, scale, shape)) for shape in shapes]

# %% [markdown]
# Minutes per exercise, estimated from the lines of our solution: 1.1 20, 2.1 15, 2.2 20, 3.1 25, 3.2 25, 4.1 20, 4.2 10,
# and 25 for reading.

# %% [markdown]
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 11: how many bytes does a rank send in a ring all-reduce of n bytes? Which two collectives is it
# made of?</summary>
#
# 2(p−1)/p · n bytes. It is a reduce-scatter and then an all-gather, of (p−1)/p · n bytes each.
# </details>
#
# <details><summary>Lab 12: in data-parallel training, what differs between ranks, and what is added?</summary>
#
# The samples differ, and so do the gradients of the weights. Those are averaged. In this lab the samples are the same and
# the weights differ.
# </details>

# %% [markdown]
# ## The loss is right and the gradient is wrong
#
# Take six blocks, each y = x + GELU(x W₁ᵀ) W₂ᵀ. (PyTorch stores a layer's weights as (out, in).) Each of four ranks holds a
# quarter of the rows of every W₁ and the same quarter of the columns of every W₂. That is a quarter of the hidden units.
# All ranks have the same x. Each rank computes its units' share of the sum, an all-reduce adds the shares, and the next
# block begins.
#
# Autograd does not see messages. Here we let it pass gradients through each block's two ends as they come.

# %%
one, four, errors = sharding.six_blocks(entrance="same", exit="same")
print("loss on one device:", one)
print("loss on four ranks:", four)
ax = sharding.draw_errors(errors, "Relative error of the gradient of rank 0's part of W₁")
figures.describe(ax, "The gradient is exact in the last block and far off in the five before it.")

# %% [markdown]
# The loss agrees to the last digits, and so does the last block's gradient. All others are far off. The training would not
# crash. It would learn, only worse. A test with one block would have passed.
#
# Something is missing in backward. You will find it in part 2. First you need the collectives, as functions of a tensor:

# %% tags=["driver", "shown"]
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
# ## Part 1 · One layer, cut
#
# To cut one operator over devices is *intra-op* parallelism. The simplest plan cuts every layer by its outputs. Rank r
# computes D/p of the D units, and an all-gather puts the columns of all ranks side by side before the next layer. Someone
# writes: "backward pass I'm going to skip because that's kind of annoying to do". It is one collective. Three layouts
# suffice:
#
# | layout | on rank r |
# | --- | --- |
# | **sharded** | its rows, or its columns |
# | **replicated** | everything, the same on all ranks |
# | **partial** | a term of full size; the value is the sum over ranks |

# %% [markdown]
# The checks run your functions through the cell below, with one function per exercise. You may skip it. The loss is always
# half the sum of squares of the output, because its gradient is then the output itself.

# %% tags=["driver"]
def derived(y, leaves, way):
    """[y, gradient by each leaf of half the sum of y²] if way is "both"."""
    if way == "both":
        return [y.detach(), *torch.autograd.grad(y, leaves, y.detach(), materialize_grads=True)]

def gathered_layers(dist, x, weights, way):
    """[this rank's columns, gradients of x and of its weights] of layers with tanh between them."""
    leaves = [t.requires_grad_() for t in (x, *weights)]
    for w in weights[:-1]:
        x = gather_columns(dist, torch.tanh(F.linear(x, w)))
    return derived(F.linear(x, weights[-1]), leaves, way)

def crossed(dist, name, x, g):
    """[the operator's value, the gradient by x when the value's is g, x afterwards, g afterwards]."""
    x.requires_grad_()
    y = {"copied": copied, "summed": summed}[name](dist, x)
    slope = torch.autograd.grad(y, x, g)[0]
    return [y.detach(), slope, x.detach(), g]

def mlp_blocks(dist, x, blocks, way):
    """[output, gradients of x and of this rank's shards] of blocks x + mlp(x)."""
    leaves, y = [x], x
    for block in blocks:
        leaves += block
    for leaf in leaves:
        leaf.requires_grad_()
    for block in blocks:
        y = y + mlp(dist, y, *block)
    return derived(y, leaves, way)

def attention_block(dist, x, weights, heads, way):
    """[x + attention(x), gradients of x and of this rank's shards]."""
    leaves = [t.requires_grad_() for t in (x, *weights)]
    return derived(x + attention(dist, x, *weights, heads), leaves, way)

def entropy(dist, logits, targets, way):
    """[mean loss, gradient by this rank's logits of half its square, logits and targets afterwards]."""
    logits.requires_grad_()
    result = derived(cross_entropy(dist, logits, targets), [logits], way)
    return result and [*result, logits.detach(), targets]

def sequence_blocks(dist, x, weights, way):
    """[output, gradients of x and of the weights] of blocks of 6 weights: this rank's tokens."""
    leaves, y = [t.requires_grad_() for t in (x, *weights)], x
    for first in range(0, len(weights), 6):
        y = sequence_mlp(dist, y, *weights[first:first + 6])
    return derived(y, leaves, way)

# %% [markdown]
# ### Exercise 1.1 · gather_columns
#
# Write the all-gather of this plan, with its way back. `two_way(x, forward, backward)` is forward(x), and a gradient of it
# goes through `backward`. Forward turns columns into a replicated value. Backward, each rank receives a gradient for *all*
# columns, but only from its own units of the next layer. Which columns does this rank need, and from whom?

# %% tags=["hole"]
def gather_columns(dist, x):
    """(N, D), the columns of all ranks side by side, from (N, D/p) on each; it has a gradient.

    Use two_way. The functions of the cell above cut rows, so transpose; or take dist.all_gather and
    dist.reduce_scatter, which want lists of contiguous tensors. Two to eleven lines.
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
from common.lessons.tensor_parallel import expected as oracle

x, *weights = drawn((3, 8), (8, 8), (8, 8), (8, 8))
want = oracle.differentiated(oracle.gathered_layers, x, *weights)
for p in (1, 2, 4):
    parts, n = list(zip(*(pieces(w, p) for w in weights))), 2 * (p - 1) * 3 * 8 * 8 // p
    wrong = oracle.gathered_otherwise(x, weights, want, p)
    sent, got = both_ways(gathered_layers, x, ranks.each(parts), p=p)
    agree(sent, (n, n), f"gather_columns: a rank sends (bytes forward, bytes backward), p = {p}:",
          mistakes=oracle.gathers_otherwise(n))
    got = oracle.joined_layers(got)
    each_agrees(got, want, f"gather_columns in three layers, p = {p}", oracle.GATHERED, wrong)
print("gather_columns: three layers, forward and backward, on 1, 2 and 4 ranks")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For your columns, what does each rank's gradient hold, and what must happen to these parts?
# </details>
# <details><summary>Hint 2</summary>
#
# `gradient.chunk(p, 1)` gives the columns by rank. `dist.reduce_scatter(own, parts)` adds part r of all ranks into rank
# r's `own`.
# </details>
#
# Forward and backward send the same (p−1)/p · n bytes per layer, where n is the whole activation. Each rank is left with a
# partial sum for the gradient of the first x, and the check added these up.
#
# **The gradient of an all-gather is a reduce-scatter: what was copied p times comes back in p parts, to be added.**

# %% [markdown]
# ## Part 2 · Two layers, one all-reduce
#
# This plan gathers after *every* layer. A transformer's MLP has the widths D → 4D → D, so it gathers 4D numbers per token
# and then D. An all-reduce costs two gathers, so that is 2.5 all-reduces of D numbers. Can it be done with one?
#
# Cut W₁ by its outputs (**column-parallel**). Each rank then has whole hidden units, and GELU works unit by unit. Cut W₂ by
# its *inputs* (**row-parallel**). Each rank feeds the units that it has, and nothing is gathered.
#
# ```
#              W₁ by outputs               W₂ by inputs
# x ──copied──▶ x W₁ᵣᵀ + b₁ᵣ ──GELU──▶ h ──▶ h W₂ᵣᵀ ──summed──▶ + b₂
# replicated              sharded            partial         replicated
# ```

# %% [markdown]
# Two operators frame this region: `copied` at its entrance and `summed` at its exit. Forward they are clear: x enters as it
# is, and an all-reduce adds what comes out. Backward, each of the two may pass a gradient as it is or all-reduce it. Here
# are the six blocks of the beginning again. **Find the setting in which all six have one device's gradients**, and say why
# before you go on.

# %%
sharding.way_back()

# %% [markdown]
# ### Exercise 2.1 · copied
#
# Write the pair that you found. Both take and return tensors of the same shape. Other code may hold the tensors that you
# were given, also in backward, so they must stay as they were.

# %% tags=["hole"]
def copied(dist, x):
    """x, which all ranks have, on its way into a region.

    Its gradient is one device's, the same on all ranks. One line.
    """
    # BEGIN SOLUTION
    return two_way(x, same, lambda gradient: all_reduce(dist, gradient))
    # END SOLUTION

def summed(dist, x):
    """The sum over ranks of x, on all of them: the way out of a region.

    Its gradient is one device's. One line.
    """
    # BEGIN SOLUTION
    return two_way(x, lambda x: all_reduce(dist, x), same)
    # END SOLUTION

# %% tags=["check"]
from common.lessons.tensor_parallel import expected as oracle

names = "value, gradient, x after, incoming gradient after".split(", ")
for p in (1, 2, 3, 4):
    shape = tuple(rng.integers(1, 5, int(rng.integers(1, 4))).tolist())
    (x, g), xs, gs = drawn(shape, shape), drawn(*p * [shape]), drawn(*p * [shape])
    parts = (x, ranks.each(gs)), (ranks.each(xs), g)
    wants = oracle.copied(x, gs), oracle.summed(xs, g)
    for name, both, (want, wrong) in zip(("copied", "summed"), parts, wants):
        result = ranks.run(crossed, name, *both, world_size=p)
        each_agrees(result.returns[-1], want, f"{name}, {p} ranks", names, wrong)
        expect(not (fault := oracle.sums_fault(result.trace, x.numel())), fault)
print("copied and summed, forward and backward, on 1 to 4 ranks")

# %% [markdown]
# <details><summary>Hint</summary>
#
# x fans out to p users. What happens to adjoints there? What does a sum do to them? (`dist.all_reduce` returns None.)
# </details>
#
# Each rank used the whole x, but only for its own units, so it knows only *its* units' part of ∂loss/∂x. In the words of
# lab 07, x fans out to p users, and the adjoints of a fan-out are added. The users live on p devices, so the addition is a
# collective. The sum at the exit is the opposite case: every rank has the whole gradient of the sum already, and each
# term's gradient is the same.
#
# **A replicated value's gradient is a partial sum, so the way into a region needs an all-reduce backward.**

# %% [markdown]
# ### Exercise 2.2 · mlp
#
# Write an MLP with one all-reduce forward and one backward. First cut the weights (PyTorch's layout: w1 (4D, D), b1 (4D,),
# w2 (D, 4D), b2 (D,)). A rank gets 1/p of both matrices and of b1, and all of b2. Then compute. Where do you add b2?

# %% tags=["hole"]
def shard_mlp(w1, b1, w2, b2, rank, world_size):
    """[w1 (4D/p, D), b1 (4D/p,), w2 (D, 4D/p), b2 (D,)] as this rank holds them. About three lines."""
    # BEGIN SOLUTION
    own = [w1.chunk(world_size)[rank], b1.chunk(world_size)[rank], w2.chunk(world_size, 1)[rank], b2]
    return [w.clone(memory_format=torch.contiguous_format) for w in own]
    # END SOLUTION

def mlp(dist, x, w1, b1, w2, b2):
    """gelu(x W₁ᵀ + b₁) W₂ᵀ + b₂ (N, D) on all ranks, from x (N, D) on all and this rank's shards.

    `gelu` is the one of the set-up cell. About two lines.
    """
    # BEGIN SOLUTION
    h = gelu(F.linear(copied(dist, x), w1, b1))
    return summed(dist, F.linear(h, w2)) + b2
    # END SOLUTION

# %% tags=["check"]
from common.lessons.tensor_parallel import expected as oracle

for p in (1, 2, 4):
    x, *weights = drawn((3, 8), *2 * [(32, 8), 32, (8, 32), 8])
    want, wrong = oracle.mlps(x, *weights), oracle.mlps_otherwise(x, weights, p)
    parts = [[shard_mlp(*weights[:4], r, p), shard_mlp(*weights[4:], r, p)] for r in range(p)]
    sizes = [[w.numel() for w in second] for _, second in parts]
    agree(sizes, p * [[256 // p, 32 // p, 256 // p, 8]], f"elements of [w1, b1, w2, b2], p = {p}:")
    (sent, _), got = both_ways(mlp_blocks, x, ranks.each(parts), p=p)
    n = 2 * 2 * (p - 1) * 192 // p
    agree(sent, n, f"mlp: bytes sent forward, p = {p}:", mistakes=oracle.mlp_bytes(n))
    each_agrees([y[0] for y in got], p * [want], f"output of two mlp blocks, p = {p}", mistakes=wrong)
print("mlp: two blocks forward, one all-reduce each, on 1, 2 and 4 ranks")

# %% tags=["check"] points=2
from common.lessons.tensor_parallel import expected as oracle

for p in (1, 2, 4):
    x, *ws = drawn((3, 8), *2 * [(32, 8), 32, (8, 32), 8])
    _, slope, *gs = oracle.differentiated(oracle.mlps, x, *ws)
    parts, want = oracle.cut(shard_mlp, ws, gs, p)
    (_, sent), got = both_ways(mlp_blocks, x, ranks.each(parts), p=p)
    agree(sent, 4 * (p - 1) * 192 // p, f"mlp: bytes backward, p = {p}:", mistakes=oracle.crossing(p))
    for rank, shards in enumerate(want):
        goal, names = [slope, *shards[0], *shards[1]], sharding.slopes_of("w1", "b1", "w2", "b2")
        wrong = {"It is 1/p of that: b2 / p before the sum? Add b2 after it.": [g / p for g in goal]}
        each_agrees(got[rank][1:], goal, f"mlp, rank {rank} of {p}", names, wrong)
print("mlp: two blocks backward, one all-reduce each; gradients of one device, to the input")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which rows of w1 and which columns of w2 belong to the same hidden unit?
# </details>
# <details><summary>Hint 2</summary>
#
# Chunk w1 and b1 by rows, w2 by columns. Enter with `copied`, leave with `summed`. b2 comes once.
# </details>
#
# Add b₂ and apply GELU where their input is whole. For GELU that is between the two products, where a rank has whole units.
# For b₂ it is after the sum. Only a *linear* operation may be applied to each term of a sum.
#
# The gathers of part 1 would send (p−1)/p · (4n + n) numbers forward, with n = N·D, and this MLP sends 2(p−1)/p · n.
# Backward costs as much again. Count both:

# %%
x, w1, b1, w2, b2 = drawn((16, 16), (64, 16), 64, (16, 64), 16)
for p in (2, 4, 8):
    layers = ranks.each(list(zip(w1.chunk(p), w2.chunk(p), p * [torch.eye(16)])))
    parts = ranks.each([[shard_mlp(w1, b1, w2, b2, r, p)] for r in range(p)])
    gathers, pair = (sum(both_ways(*run, p=p)[0]) for run in (
        (gathered_layers, x, layers), (mlp_blocks, x, parts)))
    print(f"p = {p}: gathers {gathers:,} bytes, copied and summed {pair:,}: 1/{gathers / pair}")

# %% [markdown]
# **Cut the first layer by its outputs and the second by its inputs: the hidden units never cross, and one all-reduce in
# each direction is enough.**

# %% [markdown]
# ## Part 3 · The language model, cut
#
# Attention has the same form. The projections to q, k and v are one layer D → 3D, which you cut by its outputs. A head
# needs only its own q, k and v. The output projection is cut by its inputs. So the unit that goes to a rank is a *head*.
#
# But PyTorch, like our language model, stacks q, k and v of all heads into one matrix (3D, D): first all queries, then all
# keys, then all values. A quarter of *its* rows holds queries and some keys.

# %% [markdown]
# ### Exercise 3.1 · attention
#
# Write causal self-attention of one text of T tokens, with heads/p heads on each rank and one all-reduce in each direction.
# First cut the weights. Rank r has heads r·heads/p to (r+1)·heads/p − 1, and its w_in is again [queries; keys; values], of
# its own heads. `F.scaled_dot_product_attention` takes and gives (1, heads, T, d), and scales by 1/√d.

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
    """Causal self-attention (T, D) on all ranks, from x (T, D) on all and this rank's shards.

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
from common.lessons.tensor_parallel import expected as oracle

for p in (1, 2, 4):
    x, *weights = drawn((5, 16), (48, 16), 48, (16, 16), 16, scale=0.5)
    want, wrong = oracle.attention(x, *weights), oracle.attention_otherwise(x, weights, p)
    cut, parts = oracle.own_heads(weights[0], p), [shard_attention(*weights, 4, r, p) for r in range(p)]
    each_agrees([part[0] for part in parts], cut, f"shard_attention: w_in, p = {p}",
                mistakes=oracle.heads_otherwise(weights[0], p))
    got = ranks.run(attention_block, x, ranks.each(parts), 4, "both", world_size=p).returns
    each_agrees([y[0] for y in got], p * [want], f"x + attention, p = {p}", mistakes=wrong)
print("attention: by heads, as PyTorch's, on 1, 2 and 4 ranks")

# %% tags=["check"] points=2
from common.lessons.tensor_parallel import expected as oracle

for p in (1, 2, 4):
    x, *weights = drawn((5, 16), (48, 16), 48, (16, 16), 16, scale=0.5)
    _, slope, *slopes = oracle.differentiated(oracle.attention, x, *weights, heads=2 * p)
    parts, want = oracle.cut(shard_attention, weights, slopes, p, 2 * p)
    sent, got = both_ways(attention_block, x, ranks.each(parts), 2 * p, p=p)
    n, names = 2 * (p - 1) * 80 * 8 // p, ["∂x", "∂w_in", "∂b_in", "∂w_out", "∂b_out"]
    agree(sent, (n, n), f"attention: a rank sends (bytes forward, bytes backward), p = {p}:",
          mistakes=oracle.heads_crossing(n, p))
    for rank, goal in enumerate([slope, *shards] for shards in want):
        each_agrees(got[rank][1:], goal, f"attention, rank {rank} of {p}", names, oracle.a_pth(goal, p))
print("attention: one all-reduce each way, the gradients of one device")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# If w_in's rows had the three axes (3, heads, d), along which would you cut?
# </details>
# <details><summary>Hint 2</summary>
#
# Along the heads: unflatten, chunk, flatten. Both functions need these axes, for the weights and for q, k and v.
# </details>
#
# ### The widest layer
#
# The last layer gives a logit to each of V words. Llama 3 (Meta, 2024) has V = 128,256 and texts of 8,192 tokens. That is
# 4.2 GB of logits in fp32. Cut by words, each rank has V/p logits per token. Gathering them would mean paying for all of
# them. But the loss of a token with target y needs only little of them:
#
# ℓ = log Σᵥ exp(zᵥ − m) − (z_y − m), with m = maxᵥ zᵥ
#
# That is three numbers per token.

# %% tags=["driver"]
# The course's language model, made of your functions. Look at `embedded`, and skip the rest.

def embedded(dist, tokens, table):
    """The tokens' rows (T, D) of a table, V/p rows per rank: one rank finds it, the others add 0."""
    local = tokens - dist.get_rank() * len(table)
    own = (local >= 0) & (local < len(table))
    return summed(dist, table[local.clamp(0, len(table) - 1)] * own[:, None])

def model_logits(dist, tokens, weights, heads):
    """This rank's logits (T, V/p), from its shards of the weights by name."""
    x = embedded(dist, tokens, weights["embedding"]) + weights["positions"][:len(tokens)]
    layers = sum(name.endswith(".up") for name in weights)
    for i in range(layers):
        w = {name.split(".")[-1]: w for name, w in weights.items() if name.startswith(f"blocks.{i}.")}
        into, up, zero = w["query_key_value"], w["up"], x.new_zeros  # the model has no biases
        normed = F.rms_norm(x, x.shape[1:], w["norm_attention"], language_model.EPSILON)
        own = into, zero(len(into)), w["projection"], zero(x.shape[1])
        x = x + attention(dist, normed, *own, heads)
        normed = F.rms_norm(x, x.shape[1:], w["norm_hidden"], language_model.EPSILON)
        x = x + mlp(dist, normed, up, zero(len(up)), w["down"], zero(x.shape[1]))
    normed = F.rms_norm(x, x.shape[1:], weights["norm"], language_model.EPSILON)
    return F.linear(copied(dist, normed), weights["scores"])

def shard_model(weights, heads, rank, world_size):
    """The weights by name, as this rank holds them."""
    own = dict(weights)
    for name, w in weights.items():
        block, _, kind = name.rpartition(".")
        if kind in ("embedding", "scores"):
            own[name] = w.chunk(world_size)[rank].clone()
        if kind in ("query_key_value", "up"):
            after = block + (".down" if kind == "up" else ".projection")
            whole = w, w.new_zeros(len(w)), weights[after], w.new_zeros(w.shape[1])
            cut = shard_mlp(*whole, rank, world_size) if kind == "up" else shard_attention(
                *whole, heads, rank, world_size)
            own[name], own[after] = cut[0], cut[2]
    return own

def trained(dist, texts, weights, heads, rate):
    """(losses, this rank's weights by name) after a step of gradient descent on each text."""
    losses, weights = [], {name: w.requires_grad_() for name, w in weights.items()}
    for tokens in texts:
        logits = model_logits(dist, tokens[:-1], weights, heads)
        losses.append(cross_entropy(dist, logits, tokens[1:]))
        slopes = torch.autograd.grad(losses[-1], list(weights.values()))
        weights = {name: (w - rate * slope).detach().requires_grad_()
                   for (name, w), slope in zip(weights.items(), slopes)}
    return [loss.item() for loss in losses], {name: w.detach() for name, w in weights.items()}

def continued(dist, tokens, weights, heads, count):
    """The codes of `count` characters that the model writes after these."""
    chance = torch.Generator().manual_seed(14)  # the same on all ranks, so that they draw the same
    for _ in range(count):
        logits = model_logits(dist, tokens[-language_model.CONFIG.context:], weights, heads)
        odds = torch.softmax(gather_columns(dist, logits[-1:]) / 0.5, 1)
        tokens = torch.cat([tokens, torch.multinomial(odds[0], 1, generator=chance)])
    return tokens[-count:].tolist()

# %% [markdown]
# ### Exercise 3.2 · cross_entropy
#
# Compute the loss from each rank's logits. The words are in order of rank. Forward takes three all-reduces of T numbers.
# Backward takes none: with `summed`, each rank finds softmax − one-hot for its own words. The maximum needs no gradient, so
# take it of `logits.detach()` with `dist.all_reduce(..., op=dist.ReduceOp.MAX)`. A target is on one rank only. The others
# add 0, as in `embedded` above.

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
from common.lessons.tensor_parallel import expected as oracle

for p in (1, 2, 4):
    y = torch.tensor(rng.permutation([0, 5, 6, 11, 12, 17, 18, 23]))  # both sides of each boundary
    z = oracle.hard_logits(drawn((8, 24), scale=3)[0], y)
    want, wrong, parts = F.cross_entropy(z, y), oracle.entropy_otherwise(z, y, p), pieces(z, p, 1)
    got = ranks.run(entropy, ranks.each(parts), y.clone(), "both", world_size=p).returns
    each_agrees([g[0] for g in got], p * [want], f"cross_entropy, p = {p}", mistakes=wrong)
    each_agrees([g[2] for g in got], pieces(z, p, 1), f"logits after cross_entropy, p = {p}", mistakes={
        "They must stay as they were: logits.data -= m changes the caller's.": oracle.lowered(z, p)})
    each_agrees([g[3] for g in got], p * [y], f"targets after cross_entropy (unchanged), p = {p}")
print("cross_entropy: PyTorch's loss, on 1, 2 and 4 ranks")

# %% tags=["check"]
from common.lessons.tensor_parallel import expected as oracle

for p in (1, 2, 4):
    z, y = drawn((8, 24), scale=3)[0], torch.tensor(rng.permutation([0, 5, 6, 11, 12, 17, 18, 23]))
    _, slope = oracle.differentiated(F.cross_entropy, z, target=y)
    (sent, back), got = both_ways(entropy, ranks.each(pieces(z, p, 1)), y, p=p)
    each_agrees([g[1] for g in got], pieces(slope, p, 1), f"cross_entropy's slope, p = {p}",
                mistakes=oracle.slopes_otherwise(z, y, slope, p))
    expect(not (said := oracle.entropy_fault(sent, back, p)), said)
print("cross_entropy: PyTorch's gradient; three numbers per token cross")

# %% tags=["check"] points=2 limit_s=30
from common.lessons.tensor_parallel import expected as oracle

texts = [torch.from_numpy(language_model.tokens(i, 13)) for i in rng.integers(0, 600_000, 3).tolist()]
weights = oracle.drawn_model(rng)
losses, want = oracle.trained(texts, weights, 0.5)
for p in (1, 2, 4):
    parts, goal = oracle.cut_model(shard_model, weights, want, 4, p)
    got = ranks.run(trained, texts, ranks.each(parts), 4, 0.5, world_size=p).returns
    each_agrees([g[0] for g in got], p * [losses], f"losses of 3 steps on the novel, p = {p}")
    for rank in range(p):
        after = [got[rank][1][name] for name in want]
        each_agrees(after, goal[rank].values(), f"after 3 steps, rank {rank} of {p}", list(want))
print("the language model: 3 steps with the losses and weights of one device, on 1, 2 and 4 ranks")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which three numbers per token must all ranks know? What do ranks without the target add?
# </details>
# <details><summary>Hint 2</summary>
#
# `z.gather(1, index[:, None])[:, 0]` reads one logit per row. A target of another rank would be out of range. Clamp the
# index, and multiply what you read by 0.
# </details>
#
# Now cut the trained language model of this course over four ranks, compare its loss with one device's, and let the four
# ranks write together:

# %%
model = {name: torch.from_numpy(w).double() for name, w in language_model.weights().items()}
parts = ranks.each([shard_model(model, 4, r, 4) for r in range(4)])
tokens = torch.from_numpy(language_model.tokens(650_000, 129))
(loss,), _ = ranks.run(trained, [tokens], parts, 4, 0.0, live_bytes=False).returns[0]
print(f"loss on four ranks {loss:.6f}, on one device {language_model.loss(tokens.numpy()):.6f}")
start = torch.from_numpy(language_model.tokens(650_000, 60))
written = ranks.run(continued, start, parts, 4, 100, live_bytes=False).returns
print(bytes(start.tolist()).decode(), "[...]", bytes(written[0]).decode(), sep="")

# %% [markdown]
# ### Clinic: it hangs on some texts
#
# A colleague saves a message: only ranks that *have* a target call the all-reduce. It worked for weeks. Find out why it
# stops before you unfold.

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
# Either all ranks of a group call a collective, or none does. With the second text, ranks 2 and 3 have no target and go on
# to the next collective, whatever it is. Here they return. On real machines the others wait until a watchdog ends the run
# after some minutes, and it blames a line that is right. Never put a collective under an `if` whose condition differs by
# rank.
# </details>
#
# **Heads, hidden units, words: cut what is independent, and sum where it meets.**

# %% [markdown]
# ## Part 4 · Take the all-reduce apart
#
# Between the regions (layer norm, residual, dropout) each rank does the same work on the same x, and keeps the same
# activations. An all-reduce is a reduce-scatter and an all-gather. **Sequence parallelism** puts that work in between:
#
# ```
# all-reduce:   ... partial ──all-reduce──▶ replicated x + ..., norm ──▶ ...
# sequence:     ... partial ──reduce-scatter──▶ own tokens: x + ..., norm ──all-gather──▶ ...
# ```
#
# It sends the same bytes, and what a rank keeps outside the regions shrinks by p. But look at what is replicated *now*. All
# ranks have the same gain of a norm, and each uses it for its own tokens.

# %% [markdown]
# ### Exercise 4.1 · sequence_mlp
#
# `gathered` and `scattered` replace `copied` and `summed`. Find their ways back, and write the block with them. Which
# weights are used for this rank's tokens only? What does that make of their gradients?

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
    h = gelu(F.linear(gathered(dist, normed), w1, b1))
    return x + scattered(dist, F.linear(h, w2)) + b2
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.tensor_parallel import expected as oracle

for p in (1, 2, 4):
    x, *weights = drawn((8, 8), *2 * [8, 8, (32, 8), 32, (8, 32), 8])
    tokens, want, wrong = oracle.sequence(x, weights, p)
    xs, parts = map(ranks.each, sequence_shards(x, weights, p))
    got = ranks.run(sequence_blocks, xs, parts, "both", world_size=p).returns
    each_agrees([g[0] for g in got], tokens, f"sequence_mlp: tokens, p = {p}", mistakes=wrong)
    for rank, goal in enumerate(want):
        wrong = oracle.terms_of(goal, rank, got) | oracle.sequence_back(x, weights, p, rank)
        each_agrees(got[rank][1:], goal, f"sequence_mlp, rank {rank} of {p}", oracle.SEQUENCE, wrong)
print("sequence_mlp: two blocks, the output and gradients of one device, on 1, 2 and 4 ranks")

# %% tags=["check"] limit_s=30
from common.lessons.tensor_parallel import expected as oracle

for p in (2, 8):
    x, *weights = drawn((64, 16), *2 * [16, 16, (64, 16), 64, (16, 64), 16])
    xs, parts = map(ranks.each, sequence_shards(x, weights, p))
    sent, got = both_ways(sequence_blocks, xs, parts, p=p)
    n, small = 2 * 2 * (p - 1) * 8192 // p, 2 * 3 * 2 * (p - 1) * 128 // p  # small: norms and b2
    agree(sent, (n, n + small), f"sequence_mlp: bytes forward and back (norms and b2, too), p = {p}:")
    each_agrees([y[0] for y in got], oracle.sequence(x, weights, p)[0], f"sequence_mlp, p = {p}")
    trace = ranks.run(sequence_blocks, xs, parts, "forward", world_size=p).trace
    live = (max(trace.peak_live_bytes) - sum(w.nbytes for w in parts.values[0])) / 8192
    remark(live <= 3.75 + 24 / p, oracle.live_whole(live, p))
print("sequence_mlp: an all-reduce's bytes")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Part 1 said what the gradient of an all-gather is. And the other way round? Which weights see only some of the tokens?
# </details>
# <details><summary>Hint 2</summary>
#
# Each of the two goes back by the other's collective. gain, offset and b2 have partial gradients: `copied` adds them.
# </details>
#
# The block sends no more bytes, but it sends more messages. `copied` of gain, offset and b2 makes three small all-reduces
# per block in backward, and each costs α. Megatron-LM adds up these gradients once per step, after backward.
#
# ### Who chooses the collective?
#
# You chose `copied`, `summed`, `gathered` and `scattered`, by asking each time: what is there, and what is wanted? In JAX
# you only say how each array is laid out, and the compiler chooses. It can, because the answer is a table.

# %% tags=["driver"]
def moved(dist, x, have, want):
    """x as this rank holds it in the layout `want`, by the collective that collective_for names."""
    name, p, dims = collective_for(have, want), dist.get_world_size(), {"rows": 0, "columns": 1}
    possible = {"nothing": True, "slice": want in dims, "all-gather": have in dims,
                "all-reduce": True, "reduce-scatter": want in dims,
                "all-to-all": have in dims and want in dims}
    if not isinstance(name, str) or name not in possible:
        raise ValueError(f"collective_for({have!r}, {want!r}) is {name!r}, which is none of the six")
    if not possible[name]:
        raise ValueError(f"collective_for({have!r}, {want!r}) is {name!r}, which can't do that: "
                         "all-to-all turns rows into columns or back, all-gather starts from "
                         "rows or columns, slice and reduce-scatter end in rows or columns")
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
# ### Exercise 4.2 · collective_for
#
# Write the table. The layouts of a matrix are `"replicated"`, `"partial"`, `"rows"` and `"columns"` (sharded by these).
# Name the way from one to the other that sends least: `"nothing"`, `"slice"` (keep a part of what you have),
# `"all-gather"`, `"all-reduce"`, `"reduce-scatter"` or `"all-to-all"`.

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
laid = dict(zip(LAYOUTS, (4 * [sum(parts)], parts, pieces(sum(parts), 4), pieces(sum(parts), 4, 1))))
for have in LAYOUTS:
    for want in ("replicated", "rows", "columns"):
        run = ranks.run(moved, ranks.each(laid[have]), have, want)
        case = f"collective_for: {have} → {want} by {collective_for(have, want)!r:.20}"
        each_agrees(run.returns, laid[want], case)
        gathers = {"partial": 1 + (want == "replicated"), "replicated": 0, want: 0}
        least = 384 * gathers.get(have, 1 if want == "replicated" else 1 / 4)
        sent = max(run.trace.bytes_sent)
        expect(sent == least, f"{have} → {want}: {sent} bytes per rank; {least:.0f} are enough")
print("collective_for: twelve ways, each arrives, each with the fewest bytes")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Who already has all of what is wanted? Who has to add? Who only has to swap?
# </details>
#
# Here is the whole lab in one table. A value has a layout, and so has its gradient. Each moves by `collective_for`.
#
# | operator | value | gradient, on its way back |
# | --- | --- | --- |
# | `copied` | replicated → replicated: nothing | partial → replicated: all-reduce |
# | `summed` | partial → replicated: all-reduce | replicated → replicated: nothing |
# | `gathered` | rows → replicated: all-gather | partial → rows: reduce-scatter |
# | `scattered` | partial → rows: reduce-scatter | rows → replicated: all-gather |
#
# **Say what each rank has and what it needs: the collective follows, and its gradient's collective does too.**

# %% [markdown]
# ## Predict, then count
#
# An MLP of width D on T tokens does 48·T·D² FLOPs forward and backward, divided by p ranks. It has two all-reduces of T·D
# numbers. Take four H200s and bf16. cuBLAS reaches 690 TFLOP/s on 8192³. NCCL's all-reduce reaches a bus bandwidth of
# 354 GB/s: 2(p−1)/p · n bytes, divided by the time. (Both were measured on such a machine.) What share of the time is
# communication at D = 8192?

# %%
# BEGIN SOLUTION
tokens, width, p = 4096, 8192, 4
compute_s = 48 * tokens * width**2 / p / 690e12
communication_s = 2 * 2 * (p - 1) / p * tokens * width * 2 / 354e9
share = communication_s / (compute_s + communication_s)
# END SOLUTION
NUMBER = "tensor-parallel MLP, D = 8192, 4 H200s: share of communication"
ledger.guess(NUMBER, share, "")

# %% [markdown]
# T cancels. Only D, p and the machine matter, so a small machine can stand for the large one: 1/128 of its FLOP/s at 1/128
# of its width. (Our numbers have 8 bytes, not 2, so a byte costs a quarter as much.) The second curve has its ranks on four nodes, joined
# by 400 Gbit/s = 50 GB/s each (NVIDIA's data sheet of ConnectX-7).

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

figures.describe(ax,
    "Communication's share of the time falls with the width; between nodes, only for wider layers.")

# %% [markdown]
# The dots are simulated with your `mlp`. They lie on the lines, because the simulated machine has no other costs: no α, and
# no launches. Inside a node wide layers pay. Between nodes, at D = 8192, the wire takes more than four tenths of the time.
#
# **Tensor parallelism stays inside a node. Labs 12, 13 and 15 go between nodes.**

# %%
ledger.table()

# %% [markdown]
# ## Done
#
# `make grade LAB=14` grades your lab.

# %% [markdown]
# ## Further
#
# Everything from here on is optional. Exercise 5.1 (30 minutes) hides the messages of sequence parallelism behind
# products. In 5.2 (25 minutes) there are more ranks than key heads, and in 5.3 (30 minutes) tokens travel to their experts.
# Last come your functions on real devices.

# %% [markdown]
# One thing is still whole on every rank in 4.1: the gathered norm, which W₁'s gradient needs. It could be gathered *again*
# in backward. A block then sends five gathers instead of four, 5/4 of the bytes, to keep 1/p of that activation. And the
# wire need not cost time. The product for x's gradient does not need the gathered x, and the product for W₁'s gradient
# does not need the wire.

# %% tags=["driver"]
def linear(dist, x, w, b, way):
    """[GatheredLinear's output, gradients of x, w and b]; way "pause": a pause before backward."""
    leaves = [t.requires_grad_() for t in (x, w, b)]
    y = GatheredLinear.apply(dist, *leaves)
    if way == "pause":
        ranks.compute(1e-3)
    return derived(y, leaves, way)

# %% [markdown]
# ### Exercise 5.1 · GatheredLinear (optional)
#
# Write `gathered` and a linear layer in one. It keeps x's shard and hides the wire: in backward, the gather is under way
# during the first product, and the reduce-scatter during the second. `dist.all_gather_into_tensor(whole, shard,
# async_op=True)` returns a handle. Call its `wait()` before you use what comes. `dist.reduce_scatter_tensor` works the
# same way.

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
from common.lessons.tensor_parallel import expected as oracle

for p in (1, 2, 4):
    x, w, b = drawn((64, 32), (64 * p, 32), 64 * p)
    y, *slopes = oracle.differentiated(F.linear, x, w, b)
    sent, got = both_ways(linear, *(ranks.each(pieces(t, p)) for t in (x, w, b)), p=p)
    want = list(zip(pieces(y, p, 1), *(pieces(slope, p) for slope in slopes)))
    names, wrong = ["output", "∂x", "∂w", "∂b"], oracle.linear_otherwise(want, w, b)
    for rank in range(p):
        each_agrees(got[rank], want[rank], f"GatheredLinear, rank {rank} of {p}", names, wrong[rank])
    n = (p - 1) * 64 * 32 * 8 // p
    agree(sent, (n, 2 * n), f"GatheredLinear: bytes (there, back), p = {p}:", mistakes=oracle.kept(n))
print("GatheredLinear: the gradients of one device, for one more gather in backward")

# %% tags=["check"] points=0
product_s, gather_s = 2 * 64 * 32 * 64 / 1e9, 3 * (1e-5 + 1e-10 * 16 * 32 * 8)
x, w, b = (ranks.each(drawn(*4 * [shape])) for shape in ((16, 32), (64, 32), 64))
trace = ranks.run(linear, x, w, b, "both", world_size=4, flops_per_s=1e9).trace
shown = round((trace.time_s - 3 * product_s) / gather_s, 1)  # in gathers
why = {3.0: "Nothing is hidden: begin each with async_op=True, compute, then wait.",
       2.0: "One is hidden, one is not: which product needs what?"}.get(shown, "")
remark(shown == 1.0, f"time without compute: {shown} gathers, want 1. {why}", draw=trace.draw)
trace = ranks.run(linear, x, w, b, "pause").trace
kept = trace.live_bytes_at(0, trace.time_s - 5e-4)
remark(kept < 62_000, f"{kept:,} bytes live before backward: was the gathered x kept, too?")
print("GatheredLinear: any remarks above say what is not hidden, or kept too long")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which product of backward needs the gathered x, and which does not?
# </details>
# <details><summary>Hint: the idea</summary>
#
# The weight's gradient does. So start the gather, compute the product for x's gradient, wait. Then start the
# reduce-scatter, compute the rest, wait.
# </details>
#
# Put it into the block, and compare what a rank keeps for backward in three ways. A block has T·D = n numbers.
#
# - Tensor parallel keeps x and the norm's output whole, and 4n/p hidden units twice: 2n + 8n/p per block.
# - Sequence parallel keeps n + 9n/p, since x is cut and the gathered norm is not.
# - With `GatheredLinear` it is 10n/p. Everything shrinks by p.

# %%
def lean_mlp(dist, x, *weights):
    *norm, b2 = (copied(dist, weights[i]) for i in (0, 1, 5))
    h = gelu(GatheredLinear.apply(dist, F.layer_norm(x, x.shape[1:], *norm), *weights[2:4]))
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
ax = figures.predicted_and_measured(sizes, of_p, counted, dots_are="counted", xlabel="ranks",
    ylabel="a block, in T·D numbers", title="Activations that a rank keeps for backward")
ax.set_ylim(0)

figures.describe(ax, "What a rank keeps per block falls with p, to zero only if shards are kept.")

# %% [markdown]
# The dots lie up to 0.16 above the lines. Our eight blocks keep the last output as well, and a norm keeps two numbers per
# token.
#
# The price is bytes, and not time, if products are long enough to hide them. Below is one block on the simulated machine.
# What a rank sends stands above its row, and what it receives below.

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
    trace.draw(ax=ax, title=f"Block, {name}", until_s=traces["sequence parallel"].time_s).label_outer()
figures.describe(axes, "With shards kept, messages of backward lie under products.")

# %% [markdown]
# **Sequence parallelism is free in bytes. Keeping only shards costs 5/4 of them, and can hide what it costs.**

# %% tags=["driver"]
def grouped_block(dist, x, weights, key_heads, d, way):
    """[x + grouped_attention(x), gradients of x and of this rank's shards]."""
    leaves, p = [t.requires_grad_() for t in (x, *weights)], dist.get_world_size()
    share = max(p // key_heads, 1)  # ranks that hold the same key heads
    groups = [dist.new_group(list(range(i, i + share))) for i in range(0, p, share)]
    y = grouped_attention(dist, *leaves, d, groups[dist.get_rank() // share])
    return derived(x + y, leaves, way)

def experts(dist, x, choice, w1, w2, way):
    """[the experts' outputs for this rank's tokens, gradients of x, w1 and w2, x and choice after]."""
    leaves = [t.requires_grad_() for t in (x, w1, w2)]
    rows, ticket = dispatch(dist, x, choice)
    result = derived(combine(dist, F.linear(gelu(F.linear(rows, w1)), w2), ticket), leaves, way)
    return result and [*result, x.detach(), choice]

# %% [markdown]
# ### Exercise 5.2 · grouped_attention (optional)
#
# Today's models have fewer key heads than query heads: Llama 3 70B (Meta, 2024) has 64 query heads and 8 key heads, each
# with its value head. Query head h uses key head h // (64/8). On 16 ranks, two ranks need the same key head, so both hold
# it. What is the gradient of its weights on each of them?
#
# Either p divides the number of key heads, or this number divides p. Here are no biases.

# %% tags=["hole"]
def shard_grouped(w_q, w_k, w_v, w_out, key_heads, rank, world_size):
    """[w_q (D/p, D), w_k, w_v, w_out (D, D/p)] as this rank holds them. About six lines.

    w_q, w_out (D, D); w_k, w_v (key_heads·d, D), of which a rank holds the heads that it needs.
    """
    # BEGIN SOLUTION
    first, own = rank * key_heads // world_size, max(key_heads // world_size, 1)

    def needed(w):
        return w.unflatten(0, (key_heads, -1))[first:first + own].flatten(0, 1).clone()

    w_out = w_out.chunk(world_size, 1)[rank].clone(memory_format=torch.contiguous_format)
    return [w_q.chunk(world_size)[rank].clone(), needed(w_k), needed(w_v), w_out]
    # END SOLUTION

def grouped_attention(dist, x, w_q, w_k, w_v, w_out, d, group):
    """Causal attention (T, D) on all ranks, from x (T, D) on all and this rank's shards.

    d: the width of a head. group: the ranks with this rank's key heads, for
    dist.all_reduce(..., group=group). `enable_gqa=True` lets F.scaled_dot_product_attention take
    fewer key heads than query heads. About eleven lines.
    """
    # BEGIN SOLUTION
    def over_group(gradient):
        total = gradient.clone()
        dist.all_reduce(total, group=group)
        return total

    x = copied(dist, x)
    w_k, w_v = (two_way(w, same, over_group) for w in (w_k, w_v))
    q, k, v = (F.linear(x, w).view(1, len(x), -1, d).transpose(1, 2) for w in (w_q, w_k, w_v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0]
    return summed(dist, F.linear(y.transpose(0, 1).flatten(1), w_out))
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.tensor_parallel import expected as oracle

for p, kv in ((1, 2), (2, 4), (4, 4), (4, 2), (4, 1)):
    x, *whole = drawn((5, 32), (32, 32), (4 * kv, 32), (4 * kv, 32), (32, 32), scale=0.5)
    want, alone = oracle.grouped(x, whole, kv, p)
    parts = [shard_grouped(*whole, kv, r, p) for r in range(p)]
    sent, got = both_ways(grouped_block, x, ranks.each(parts), kv, 4, p=p)
    for rank in range(p):
        case = f"grouped_attention, {kv} key heads, rank {rank} of {p}"
        each_agrees(got[rank], want[rank], case, oracle.GROUPED, alone[rank])
    most = 2 * (p - 1) * 5 * 32 * 8 // p
    agree(sent[0], most, f"grouped_attention: bytes sent forward, {kv} key heads, p = {p}:")
print("grouped_attention: more ranks than key heads, gradients of one device")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `copied`, but for a weight and over a part of the ranks. The ranks of `group` use one key head for different query heads.
# </details>
#
# A key head on two ranks is computed twice, and its keys are cached twice. That is the price of more ranks than key heads.
#
# **Whatever several ranks hold and use for different work, a weight too, needs its gradient added over these ranks.**

# %% [markdown]
# ### Exercise 5.3 · dispatch (optional)
#
# In a *mixture of experts* each token goes through one of several MLPs, its expert. Here rank r holds expert r, and each
# rank has some tokens. `dispatch` sends each token to its expert's rank, and `combine` brings the results home. At first
# no rank knows how many tokens will come, so the ranks tell each other.
#
# `dist.all_to_all_single(got, rows, took, gave)` sends the first gave[0] rows to rank 0, the next gave[1] to rank 1, etc.
# It fills `got` with took[r] rows from each rank r. Without the two lists, all parts are equal. What is the way back?

# %% tags=["hole"]
def dispatch(dist, x, choice):
    """(rows, ticket): all ranks' tokens for this rank's expert, and whatever `combine` needs.

    x (n, D): this rank's tokens, as many as it has, perhaps none; choice (n,): the expert of each.
    It has a gradient. About fourteen lines, with a function that `combine` uses, too.
    """
    # BEGIN SOLUTION
    gave = choice.bincount(minlength=dist.get_world_size())
    took = torch.empty_like(gave)
    dist.all_to_all_single(took, gave)
    order, gave, took = choice.argsort(), gave.tolist(), took.tolist()
    return exchanged(dist, x[order], gave, took), (order, gave, took)

def exchanged(dist, x, gave, took):
    def move(rows, gave, took):
        got = rows.new_empty(sum(took), rows.shape[1])
        dist.all_to_all_single(got, rows.contiguous(), took, gave)
        return got

    return two_way(x, lambda x: move(x, gave, took), lambda gradient: move(gradient, took, gave))
    # END SOLUTION

def combine(dist, rows, ticket):
    """(n, D), the results for this rank's tokens in their order, from its expert's rows.

    rows: the expert's results for what dispatch gave, in that order. Two lines.
    """
    # BEGIN SOLUTION
    order, gave, took = ticket
    return exchanged(dist, rows, took, gave)[order.argsort()]
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.tensor_parallel import expected as oracle

for p, counts in ((1, [5]), (2, [7, 4]), (4, [6, 0, 9, 5]), (4, [3, 8, 1, 7])):
    xs, (w1, w2) = drawn(*((n, 32) for n in counts)), drawn((p, 16, 32), (p, 32, 16))
    choices = [torch.tensor(rng.integers(0, p, n)) for n in counts]
    choices[-1][:] = p - 1  # one rank's tokens all choose one expert
    want, rows = oracle.experts(xs, choices, w1, w2), oracle.rows_sent(choices) * 32 * 8
    (sent, back), got = both_ways(experts, *map(ranks.each, (xs, choices, list(w1), list(w2))), p=p)
    for rank in range(p):
        each_agrees(got[rank], want[rank], f"experts, rank {rank} of {p}", oracle.EXPERTS)
    expect(sent - rows in [k * p - k for k in (4, 8, 4 * p, 8 * p)] and back == rows,  # and counts
           f"dispatch, combine: {sent} bytes forward, {back} back; the rows have {rows}")
print("dispatch and combine: each token to its expert and home, and its gradient, too")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Sort the tokens by expert (`argsort`), and count them (`bincount`). An all-to-all of the counts tells each rank what will
# come. Backward, each row's gradient returns to where the row came from: the same all-to-all with its lists exchanged.
# </details>
#
# `combine` *is* `dispatch`'s way back. Rank by rank, an all-to-all is a table that says which rows go where, and its
# transpose sends them home. Now let half of all tokens choose expert 0:

# %%
x, w1, w2 = (ranks.each(drawn(*4 * [shape])) for shape in ((64, 32), (128, 32), (32, 128)))
even = torch.arange(64) % 4
for name, choice in {"even": even, "half choose expert 0": even * (torch.arange(64) % 8 > 2)}.items():
    trace = ranks.run(experts, x, choice, w1, w2, "both", flops_per_s=1e10, beta_s_per_byte=1e-10).trace
    print(f"{name}: {trace.time_s * 1e6:.0f} µs, {trace.bubble:.0%} of the time idle")

# %% [markdown]
# Expert 0 now has twice its share of the tokens, and the step takes 1.7 times as long. Models therefore balance their
# experts in training: with a term of the loss (Switch Transformer, Fedus et al., 2021), or with a bias per expert
# (DeepSeek-V3, 2024).
#
# **Experts move tokens in place of weights, and the fullest rank sets the pace.**

# %% [markdown]
# ### On real devices (optional)
#
# The same functions run on processes, with NCCL where there are several GPUs and with gloo elsewhere. First the trained
# language model takes three steps on them.

# %% tags=["nbval-ignore-output"]
gpus = torch.cuda.device_count()
machine, p = ("nccl" if gpus > 1 else "gloo"), 4 if gpus >= 4 else 2
texts = [torch.from_numpy(language_model.tokens(start, 65)) for start in (650_000, 660_000, 670_000)]
parts = ranks.each([shard_model(model, 4, r, p) for r in range(p)])
real, simulated = (ranks.run(trained, texts, parts, 4, 0.1, world_size=p, machine=each).returns[0][0]
                   for each in (machine, "simulated"))
print(f"{p} ranks, {machine}: losses {[round(loss, 6) for loss in real]}")
print(f"largest difference to simulated ranks: {max(abs(a - b) for a, b in zip(real, simulated)):.1e}")

# %% [markdown]
# Now the time of your `mlp`. Communication is the time with messages minus the time without. For the line we measure two
# speeds of this machine on *other* work, a large square product and a large all-reduce, and put them into the formula above.
# No dot is used to draw it.

# %% tags=["driver"]
def mlp_seconds(dist, tokens, width, dtype):
    """[median seconds of mlp's forward and backward, the same with nothing sent] on this rank."""
    hidden = 4 * width // dist.get_world_size()
    sizes = (tokens, width), (hidden, width), (hidden,), (width, hidden), (width,)
    x, *weights = ((torch.randn(size, dtype=dtype) * width**-0.5).requires_grad_() for size in sizes)

    def step(dist):
        y = mlp(dist, x, *weights)
        y.backward(y.detach())

    works = (lambda: step(dist), lambda: step(sharding.Silent(dist)))
    return sharding.median_s(dist, x, works, 10)

# %% tags=["nbval-ignore-output"]
cpu = [128, 256, 512], 256, torch.float32
sizes, tokens, dtype = cpu if machine == "gloo" else ([1024, 2048, 4096, 8192], 16384, torch.bfloat16)
options = {"world_size": p, "machine": machine, "noted": False}
runs = [ranks.run(mlp_seconds, tokens, width, dtype, **options).returns for width in sizes]
slowest_s = [np.max(run, axis=0) for run in runs]  # (with messages, without), by width
measured = [float(1 - silent_s / whole_s) for whole_s, silent_s in slowest_s]
flops, bus_b_s = np.min(ranks.run(sharding.speeds, sizes[-1], dtype, **options).returns, axis=0)

# %% tags=["nbval-ignore-output"]
def share(d):
    return 1 / (1 + 12 * d * bus_b_s / ((p - 1) * dtype.itemsize * flops))

for width, part, (whole_s, _) in zip(sizes, measured, slowest_s):
    print(f"D = {width}: {whole_s * 1e3:.2f} ms, communication {part:.0%}, line {share(width):.0%}")
if machine == "nccl" and p == 4:
    ledger.measured(NUMBER, measured[-1], "")

# %% tags=["nbval-ignore-output"]
name = f"{p} ranks, {machine}"
ax = figures.predicted_and_measured(sizes, {name: share}, {name: measured}, log="x",
    xlabel="width D", ylabel="share of the time", title="Communication's share of your mlp's time")
ax.set(ylim=(0, 1), xticks=sizes, xticklabels=sizes)
figures.describe(ax, "The share of communication by width: measured dots, and a line from two speeds.")

# %% [markdown]
# Where do the dots miss? On a CPU a message costs α however short it is, and ranks share the cores, so the dots of narrow
# layers need not lie on the line. On GPUs the formula assumes the speed of large products. In narrow layers products are
# slower, and the host needs time to launch kernels. The run without messages pays for both as well, so communication's
# share falls *below* the line there.

# %% [markdown]
# ## Where it is used
#
# - **Megatron-LM**: your four operators are `mappings.py` of its `tensor_parallel`. `GatheredLinear` is its
#   `LinearWithGradAccumulationAndAsyncCommunication`. Shoeybi et al. (2019) cut the layers; Korthikanti et al., *Reducing
#   activation recomputation* (2022), added sequence parallelism and the 5/4.
# - **PyTorch**: `parallelize_module` with `ColwiseParallel`, `RowwiseParallel` and `SequenceParallel`. `loss_parallel` is
#   your `cross_entropy`. DTensor's layouts are `Replicate`, `Shard(dim)` and `Partial`; it finds its collectives in a table
#   like yours.
# - **JAX**: in `jax.shard_map` an array's type tells whether it varies over ranks. The cast `jax.lax.pcast(x, axis,
#   to="varying")` is `copied`.

# %% [markdown]
# *Limits of ours*: one text at a time; no dropout (each rank needs its own random numbers inside the region, and the same
# ones outside); p divides the heads, T and V.

# %% [markdown]
# **A harder question.** Without sequence parallelism, half of the wire can hide, too. Which half, and under what?
#
# <details><summary>Answer</summary>
#
# In backward, `copied`'s all-reduce carries x's gradient, and W₁'s gradient does not wait for it. Make `copied` and the
# linear layer one `torch.autograd.Function`, as in 5.1: `gx = g @ w`, `all_reduce(gx, async_op=True)`, `gw = g.T @ x`,
# `wait()`. Forward, the norm needs the whole sum, so there is nothing to hide under, unless one half of the tokens travels
# while the other computes. `docs/measured.md` compares this block with PyTorch's `parallelize_module` on four H200s.
# </details>
