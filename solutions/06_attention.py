# %% [markdown]
# # 06 · Attention
#
# **Why could no compiler find FlashAttention, and what did FlexAttention abstract?**
#
# After this lab you can
# - compute attention, and its gradient, without storing a single score;
# - give a kernel a mask or a change of scores as a function, and skip the tiles that nobody sees;
# - split one query's keys among many programs, and say when that pays.
#
# *Needs* labs 02, 04 and 05. *Takes* about 210 minutes: 40 to read, and for the exercises 10, 15, 35, 15, 15, 20, 40 and 20.
#
# Write your answers in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F

from common import figures, language_model, ledger
from common.checks import agree, clinic
from common.hardware import device, operation_bytes, timing
from common.lessons.attention import flex_mods, tile_maps
from nogpu import tiles

figures.use_style()
rng = np.random.default_rng()

# %% tags=["driver"]
device.prepare_triton()  # before anything imports Triton: without a GPU, it interprets the kernels
import triton
import triton.language as tl

def kinds_of(name, queries, keys, block_q, block_k):
    """What your block_mask says of one of flex_mods.MASKS, if it holds no more than a few tiles."""
    with tile_maps.few_tiles(queries, keys, block_q, block_k) as limit:
        return block_mask(limit(flex_mods.MASKS[name]), queries, keys, block_q, block_k)


def as_text(name, slope=False):
    """One of your mods, or its slope, as the text of a Triton function: so a kernel gets it."""
    return (flex_mods.slope_text if slope else flex_mods.text)(globals()[name])


def judged(source):
    """What your test_attention says of the program with this text: "" if it accepts it."""
    return clinic.verdict(test_attention, source)

# %% tags=["setup"]
WINDOW, PREFIX, STARTS, CAP = 6, 5, (0, 7, 12), 20.0  # of the mods in part 3

# %% [markdown]
# ## See it: a matrix that nobody asked for
#
# Each token of a text has a *query*, a *key* and a *value*, vectors of d numbers. *Attention* gives each query a mean of the
# values, weighted by how well its key fits:
#
# $$O = \mathrm{softmax}\left(\frac{Q K^\top}{\sqrt d}\right) V$$
#
# Q, K, V and O have N · d numbers each. Between them stands a matrix of scores, N × N. Nobody wants it. How much memory does it take?

# %%
for n in (512, 2048, 8192, 131_072):
    wanted, scores = 4 * n * 64 * 2, n * n * 2  # one head, d = 64, bf16
    print(f"N = {n:7,}: Q, K, V, O {wanted / 1e6:7.1f} MB, scores {scores / 1e6:10,.1f} MB, "
          f"{scores / wanted:5.0f} times as much")

# %% [markdown]
# With 131,072 tokens, one head's scores take 34 GB. Yet models read that much. For years, libraries stored the scores, and no compiler
# removed them. After two exercises you know why.
#
# **Recall 1** (lab 04). A row of scores comes in two parts, with maxima m and n, and sums s and t. What is the whole sum?
#
# <details><summary>Answer</summary>
#
# With M, the larger maximum: s · e^(m − M) + t · e^(n − M).
# </details>
#
# **Recall 2** (lab 05). A program multiplies two tiles. Where should the product stay?
#
# <details><summary>Answer</summary>
#
# In registers, until nothing is left to do with it.
# </details>

# %% [markdown]
# ## Part 1 · Count first
#
# Take one head. *Unfused*, attention is three kernels: a product, a softmax, a product. Each reads its inputs and writes its result.
#
# *Fused*, one program takes a block of B_q queries. It walks along all keys and values, and keeps the scores of one tile at a time in
# registers. It writes its rows of O, and for each query one number in fp32, the *log-sum-exp* $\log \sum_j e^{x_j}$. (Part 4
# needs it.)

#
# ### Exercise 1.1 · attention_bytes
#
# What do the two move, without a mask? Scores have the same format as Q. The scale costs nothing: it is part of the product.

# %% tags=["hole"]
def attention_bytes(n, d, itemsize, block_q):
    """(unfused, fused): bytes that one head loads and stores, as ints. About six lines.

    n: queries, and keys. d: numbers per vector. itemsize: bytes per number. block_q: queries per
    program of the fused kernel; the last one may have fewer. The log-sum-exp has 4 bytes per query.
    """
    # BEGIN SOLUTION
    vectors, scores = n * d, n * n
    unfused = (2 * vectors + scores) + 2 * scores + (scores + vectors + vectors)
    programs = -(-n // block_q)
    fused = vectors + programs * 2 * vectors + vectors
    return itemsize * unfused, itemsize * fused + 4 * n
    # END SOLUTION

# %% tags=["check"]
from common.lessons.attention import expected as oracle

cases = [(1, 1), (128, 64), (1000, 128), (65, 16), *rng.integers(2, 200, (8, 2)).tolist()]
for n, d in cases:
    for itemsize, block_q in ((2, 128), (4, 16)):
        want, mistakes = oracle.attention_bytes(n, d, itemsize, block_q)
        case = f"attention_bytes({n}, {d}, {itemsize}, {block_q})"
        agree(attention_bytes(n, d, itemsize, block_q), want, case, mistakes=mistakes)
print(f"attention_bytes agrees with what PyTorch executes, for {2 * len(cases)} cases")

# %% [markdown]
# <details><summary>Hint</summary>
#
# The first product reads two matrices of n · d and writes one of n · n. How many programs are there in the fused kernel, and what does
# *each* of them load?
# </details>
#
# Someone writes: "FlashAttention's memory traffic is linear in N." True? Ask your function:

# %%
for n, d in itertools.product((1024, 8192, 65_536), (64, 128)):
    unfused, fused = attention_bytes(n, d, 2, 128)
    print(f"N = {n:6,}, d = {d:3}: {unfused / 1e6:9,.0f} MB unfused, {fused / 1e6:8,.0f} MB fused: "
          f"{unfused / fused:.1f} times less")

# %% [markdown]
# Fused traffic is quadratic, too. It is 4 times smaller with d = 64, and 2 times with d = 128. Only the *storage* is linear. What else is
# gained? Neighbouring programs walk along the same keys, which come from L2 (lab 05). Unfused, the scores of a long text come from
# memory, because they fit in no cache.
#
# **Fusion doesn't make attention linear. It keeps the quadratic part, the scores, in registers and not in memory.**

# %% [markdown]
# ## Part 2 · One pass
#
# Lab 04's `merge` gave softmax one pass for its sum, but a second pass for the result. Here, the result is itself a sum, so it can
# travel along. For some of the keys, keep three things per query:
#
# - m, the largest score;
# - s, the sum of $e^{x_j - m}$;
# - o, the sum of $e^{x_j - m}\, v_j$, a vector.
#
# At the very end, o / s is the result.

#
# ### Exercise 2.1 · merge
#
# Two parts of the keys were computed apart. Merge them. A part may hold nothing that a query may see: then it has m = −∞, s = 0 and o = 0.
# So may both.

# %% tags=["hole"]
def merge(left, right):
    """(m, s, o) of some queries over both parts of the keys. About seven lines.

    left, right: the (m, s, o) of each part, NumPy arrays: m and s (queries,), o (queries, d). They
    stay as they are.
    """
    # BEGIN SOLUTION
    (m, s, o), (n, t, u) = left, right
    top = np.maximum(m, n)
    shift = np.where(top == -np.inf, 0.0, top)  # -inf - (-inf) would be NaN
    old, new = np.exp(m - shift), np.exp(n - shift)
    return top, s * old + t * new, o * old[:, None] + u * new[:, None]
    # END SOLUTION

# %% tags=["check"] points=2
from common.checks.grader_link import in_place
from common.lessons.attention import expected as oracle

for title, (a, b, c), (two, all_three) in oracle.parts(rng):
    kept, mistakes = oracle.copies(a, b, c), oracle.merge_mistakes(a, b)
    oracle.agree_part(in_place(merge, a, b)(a, b), two, f"merge: two parts of scores {title}", mistakes)
    oracle.expect_unchanged((a, b, c), kept)
    oracle.agree_part(merge(b, a), two, f"merge: two parts of scores {title}, the second one first")
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    oracle.agree_part(left, all_three, f"merge: three parts of scores {title}, from the left")
    oracle.agree_part(right, all_three, f"merge: three parts of scores {title}, from the right")
print("merge is right for parts of seven kinds, and associative: parts can come in any grouping")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# By which factor is every term of s wrong when the maximum moves? And every term of o?
# </details>
#
# <details><summary>Hint 2</summary>
#
# `old[:, None]` turns (queries,) into a column. Where the new maximum is −∞, subtract 0 in its place.
# </details>
#
# This is why no compiler found FlashAttention. Fusing loops keeps what each line computes. Here, o is first summed with *wrong* weights, and
# corrected later. That is allowed because $e^{a+b} = e^a e^b$ and because o is linear in the weights: algebra about the whole program, with
# other rounding.
#
# **Attention is a reduction with an operator of its own: (m, s, o). So it needs one pass, in any order.**

# %% [markdown]
# ### Exercise 2.2 · flash_forward
#
# Program (p, h) computes block p of head h's queries. Walk along the keys in blocks, and merge each block into m, s and o. Products are
# made by `tl.dot`, in the format of the inputs: for the second one, convert the weights.
#
# With CAUSAL, the *last* query sees all keys: query i sees key j if j ≤ i + N_K − N_Q. With more queries than keys, the first ones see
# nothing. Give those o = 0 and lse = −∞.

# %% tags=["hole"]
@triton.jit
def flash_forward(q, k, v, o, lse, N_Q, N_K, scale, CAUSAL: tl.constexpr, D: tl.constexpr,
                  BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """o = softmax(scale q k') v and its log-sum-exp, for one block of queries. About 25 lines.

    q, o: (heads, N_Q, D), k, v: (heads, N_K, D), fp32 or bf16, without gaps. lse: fp32, (heads, N_Q).
    D is a power of two; N_Q and N_K need not be multiples of their blocks. The grid is (blocks of
    queries, heads). Each block of keys and values is loaded once per program, o and lse are stored
    once, and no load takes more rows than a block has.
    """
    # BEGIN SOLUTION
    i = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    head, d = tl.program_id(1).to(tl.int64), tl.arange(0, D)
    rows, there = head * N_Q + i, i < N_Q
    queries = tl.load(q + rows[:, None] * D + d, mask=there[:, None], other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    s = tl.zeros((BLOCK_Q,), tl.float32)
    total = tl.zeros((BLOCK_Q, D), tl.float32)
    for start in range(0, N_K, BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        at, inside = (head * N_K + j)[:, None] * D + d, j[:, None] < N_K
        x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0))) * scale
        visible = j[None, :] < N_K
        if CAUSAL:
            visible = visible & (j[None, :] <= i[:, None] + N_K - N_Q)
        x = tl.where(visible, x, float("-inf"))
        top = tl.maximum(m, tl.max(x, 1))
        shift = tl.where(top == float("-inf"), 0.0, top)  # -inf - (-inf) would be NaN
        old, weights = tl.exp(m - shift), tl.exp(x - shift[:, None])
        s = s * old + tl.sum(weights, 1)
        values = tl.load(v + at, mask=inside, other=0.0)
        total = total * old[:, None] + tl.dot(weights.to(values.dtype), values)
        m = top
    s = tl.where(s == 0, 1.0, s)  # of a query that sees nothing
    tl.store(o + rows[:, None] * D + d, total / s[:, None], mask=there[:, None])
    tl.store(lse + rows, m + tl.log(s), mask=there)
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.attention import expected as oracle

for case in oracle.FORWARD:
    problem = oracle.drawn(rng, case)
    o, lse = problem.outputs()
    report = tiles.count(flash_forward, (case.blocks_q, case.heads), *oracle.single(problem), o[0],
                         lse[0], *case.sizes, CAUSAL=case.causal, **case.blocks)
    oracle.agree_forward(problem, o, lse, "flash_forward")
    oracle.expect_format(report, case)
print(f"flash_forward agrees with float64 in {len(oracle.FORWARD)} cases")

# %% tags=["check"]
from common.lessons.attention import expected as oracle

for case in (*oracle.FORWARD[1:5], *oracle.LARGE):
    problem = oracle.drawn(rng, case)
    o, lse = problem.outputs()
    report = tiles.count(flash_forward, (case.blocks_q, case.heads), *oracle.single(problem), o[0],
                         lse[0], *case.sizes, CAUSAL=case.causal, **case.blocks)
    oracle.expect_forward(report, case)
    oracle.agree_forward(problem, o, lse, "flash_forward")
print("flash_forward moves what was derived, keeps no score, and is right for 1,025 tokens")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which two masks does a tile of scores need, even without CAUSAL? What must a hidden score be *before* the exponential?
# </details>
#
# <details><summary>Hint 2</summary>
#
# The loop is `softmax_online` of lab 04 with m and s per row, and `total = total * old[:, None] + tl.dot(weights, values)`. `tl.trans(keys)` is
# a tile's transpose.
# </details>
#
# **Predict, then count.** Your formula of exercise 1.1 against your kernel:

# %%
q, k, v, o = torch.randn(4, 1, 300, 64)
lse, name = torch.empty(1, 300), "bytes of fused attention, N = 300, d = 64"
ledger.predict(name, attention_bytes(300, 64, 4, 64)[1], "bytes")
report = tiles.count(flash_forward, (5, 1), q, k, v, o, lse, 300, 300, 0.125, CAUSAL=False, D=64,
                     BLOCK_Q=64, BLOCK_K=64)
ledger.counted(name, report.loads.bytes + report.stores.bytes, "bytes")
ledger.table()

# %% [markdown]
# The formula does not miss by a byte: what a mask hides beyond token 300 is not loaded. But these are *requested* bytes. What memory delivers is
# less, since caches answer many of the repeated loads.
#
# The course's language model has four heads in each of its layers. Here are the real queries, keys and values of one layer.
# Your log-sum-exp also tells whether a query looks at one key or at many. How?

# %%
read = language_model.tokens(100_000, 32)
weights, seen = language_model.weights(), language_model.activations(read)
mixed = seen["blocks.1.normed"] @ weights["blocks.1.query_key_value"].T
q, k, v = (torch.from_numpy(x.copy()) for x in mixed.reshape(32, 3, 4, 32).transpose(1, 2, 0, 3))
o, lse = torch.empty_like(q), torch.empty(4, 32)
tiles.count(flash_forward, (2, 4), q, k, v, o, lse, 32, 32, 32**-0.5, CAUSAL=True, D=32,
            BLOCK_Q=16, BLOCK_K=16)
by_scores = torch.from_numpy(seen["blocks.1.attention"]) @ v

# %%
torch.testing.assert_close(o, by_scores, atol=1e-4, rtol=1e-3)
scores = torch.from_numpy(seen["blocks.1.scores"])
for head in range(4):  # each query's largest visible score, and the sum that its lse holds
    visible = scores[head].masked_fill(torch.ones(32, 32).triu(1) > 0, -torch.inf)
    heaviest = (visible.amax(1) - lse[head]).exp()
    print(f"head {head}: its heaviest key has {heaviest.mean():.0%} of a query's weight, on average")

# %% [markdown]
# On average, one key has 40 to 53 % of a query's weight. With equal weights it would have 13 %.
#
# ## Part 3 · Masks are functions
#
# A library had one kernel for causal masks, one for windows, one for ALiBi. In 2024, *FlexAttention* took two functions in their place:
#
# - `mask_mod(b, h, i, j)`: may query i of batch b and head h see key j?
# - `score_mod(score, b, h, i, j)`: what becomes of the score?
#
# They are written in PyTorch, and *traced*: called once with symbols that write down what happens to them. From that, a Triton function is
# made, which the kernel calls on a whole tile.

# %%
def nearby(b, h, i, j):
    return (i >= j) & (i - j < 3)

print(flex_mods.text(nearby))
i, j = torch.arange(5)[:, None], torch.arange(5)
print(nearby(0, 0, i, j).int())

# %% [markdown]
# ### Exercise 3.1 · sliding_window
#
# Write five mods. They get numbers or tensors of positions, or symbols, so use `&`, `|`, `torch.where`, `torch.tanh`, `torch.exp2`, and no `if`.
#
# Someone writes a window as `i - j <= SLIDING_WINDOW`, and ALiBi as `score + slope * (i - j)` with positive slopes. What is wrong with each?
#
# The last one, `soft_cap_slope`, is for the backward pass: the derivative of `soft_cap` by its score.

# %% tags=["hole"]
def sliding_window(b, h, i, j):
    """Causal, and only the last WINDOW keys, with the query's own. One line."""
    # BEGIN SOLUTION
    return (i >= j) & (i - j < WINDOW)
    # END SOLUTION


def prefix(b, h, i, j):
    """Causal, but everyone sees the first PREFIX keys. One line."""
    # BEGIN SOLUTION
    return (i >= j) | (j < PREFIX)
    # END SOLUTION


def documents(b, h, i, j):
    """Causal within a document; documents begin at the positions STARTS. About four lines."""
    # BEGIN SOLUTION
    visible = i >= j
    for start in STARTS:
        visible = visible & ((i >= start) == (j >= start))
    return visible
    # END SOLUTION


def alibi(score, b, h, i, j):
    """The score minus 2^-(h + 1) for each position between key and query. One line."""
    # BEGIN SOLUTION
    return score - torch.exp2(-(h + 1.0)) * (i - j)
    # END SOLUTION


def soft_cap(score, b, h, i, j):
    """CAP tanh(score / CAP): close to small scores, and never beyond CAP. One line."""
    # BEGIN SOLUTION
    return CAP * torch.tanh(score / CAP)
    # END SOLUTION


def soft_cap_slope(score, b, h, i, j):
    """The derivative of soft_cap by its score. About two lines."""
    # BEGIN SOLUTION
    return 1 - torch.tanh(score / CAP) ** 2
    # END SOLUTION

# %% tags=["check"]
from common.lessons.attention import expected as oracle

i, j = oracle.positions(24, 24)
masks = {"sliding_window": sliding_window, "prefix": prefix, "documents": documents}
for name, (want, mistakes) in oracle.masks_of(24, WINDOW, PREFIX, STARTS).items():
    agree(masks[name](0, 1, i, j), want, f"{name}: which of 24 keys 24 queries see", mistakes=mistakes)
score, near = torch.from_numpy(40 * rng.standard_normal((24, 24))), {"rtol": 1e-5, "atol": 1e-7}
mods_of_scores = {"alibi": alibi, "soft_cap": soft_cap, "soft_cap_slope": soft_cap_slope}
for name, h, want, mistakes in oracle.changed(score, CAP):
    got = mods_of_scores[name](score, 0, h, i, j)
    agree(got, want, f"{name}, head {h}: scores of ± 40", **near, mistakes=mistakes)
texts = [as_text(name) for name in (*masks, *mods_of_scores)]  # as part 3's and 4's kernels get them
print(f"{len(texts)} mods are right pair by pair, and soft_cap_slope is what differences measure")

# %% [markdown]
# <details><summary>Hint for documents</summary>
#
# Two positions are in the same document if every start has both on the same side.
# </details>
#
# PyTorch's FlexAttention takes your functions as they are. And a *top-k* mask, the k largest scores of each query: is that a mask_mod?
#
# <details><summary>Answer</summary>
#
# No. A mask_mod knows positions, not scores. A score_mod knows one score, but not the others of its row. Whether a score is among the k
# largest is a question about the whole row, which never exists at one time.
# </details>

# %%
import warnings

from torch.nn.attention.flex_attention import create_block_mask, flex_attention

qkv, made = torch.randn(3, 1, 2, 24, 16), create_block_mask(sliding_window, 1, 2, 24, 24, "cpu")
with warnings.catch_warnings(action="ignore"):  # that it isn't compiled
    theirs = flex_attention(*qkv, score_mod=soft_cap, block_mask=made)
print(flex_mods.text(sliding_window), flex_mods.slope_text(soft_cap), sep="\n")

# %% [markdown]
# Above are your mask and the slope of your soft cap, as the kernel gets them. (The slope was derived from the record, rule by rule. Lab 07 does that.)
#
# Now, not every *tile* of scores has a visible pair. One that has none can be skipped, with its loads and products. And in one where
# all pairs are visible, the mask need not be asked.

# %% [markdown]
# ### Exercise 3.2 · block_mask
#
# Sort the tiles: 0 if no pair is visible, 2 if all are, else 1. Pairs past the last query or key don't exist, so they don't count.
# Ask the mask_mod about one tile at a time, and keep none: all tiles together are the matrix that nobody asked for.

# %% tags=["hole"]
def block_mask(mask_mod, queries, keys, block_q, block_k):
    """Kinds of tiles: an int32 tensor (blocks of queries, blocks of keys). About nine lines.

    0: empty, 1: partial, 2: full. mask_mod(b, h, i, j): takes tensors i (rows, 1) and j (1, columns)
    of positions, at most block_q × block_k pairs, and gives bools that broadcast to (rows, columns).
    Ask it with b = h = 0: the mask is the same in every batch and head.
    """
    # BEGIN SOLUTION
    rows, columns = -(-queries // block_q), -(-keys // block_k)
    kinds = torch.zeros(rows, columns, dtype=torch.int32)
    for row, column in itertools.product(range(rows), range(columns)):
        i = torch.arange(row * block_q, min(queries, (row + 1) * block_q))[:, None]
        j = torch.arange(column * block_k, min(keys, (column + 1) * block_k))[None, :]
        visible = mask_mod(0, 0, i, j)
        kinds[row, column] = 2 if visible.all() else int(visible.any())
    return kinds
    # END SOLUTION

# %% tags=["check"]
from common.lessons.attention import expected as oracle

for case in oracle.kind_cases(rng):
    want, mistakes = oracle.kinds(case), oracle.kind_mistakes(case)
    sizes = case.queries, case.keys, case.block_q, case.block_k
    title = f"block_mask({case.mask}, {', '.join(map(str, sizes))})"
    agree(kinds_of(case.mask, *sizes), want, title, mistakes=mistakes,
          draw=lambda case=case, want=want: tile_maps.draw({f"wanted: {case.mask}": want}))
oracle.asks(block_mask)
print(f"block_mask sorts the tiles of {len(oracle.kind_cases(rng))} masks")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `visible.all()` and `visible.any()` also work on bools that are not yet broadcast.
# </details>
#
# **Predict.** A causal mask hides half of the pairs. With 512 tokens and tiles of 64 × 64, which part of the tiles is skipped?

# %%
# BEGIN SOLUTION
skipped = 0.5
# END SOLUTION
ledger.guess("tiles that a causal mask skips, 8 × 8", skipped, "")
made = block_mask(lambda b, h, i, j: i >= j, 512, 512, 64, 64)
ledger.counted("tiles that a causal mask skips, 8 × 8", 1 - tile_maps.share(made), "")
ledger.table()

# %% [markdown]
# <details><summary>Why not half?</summary>
#
# 28 of 64 tiles are empty, 44 %. The eight tiles on the diagonal are partial, so they are computed whole. Whoever predicted a half missed
# by a seventh. With more and smaller tiles, the diagonal weighs less.
# </details>
#
# Here are your three masks, in tiles of 2 × 2, and then a window over 1,024 tokens. Find a setting that reaches the target. Then ask: why
# not with smaller tiles, or larger ones?

# %%
yours = {"window": sliding_window, "prefix": prefix, "documents": documents}
tile_maps.draw({name: block_mask(mod, 24, 24, 2, 2) for name, mod in yours.items()});

# %% tags=["nbval-ignore-output"]
def window_kinds(width, block):
    return block_mask(lambda b, h, i, j: (i >= j) & (i - j < width), 1024, 1024, block, block)

tile_maps.widget(window_kinds)

# %% [markdown]
# ### Exercise 3.3 · flex_forward
#
# Give your kernel the functions. MASK and SCORE are called like any function: `MASK(b, h, i, j)` with a column of queries and a row of keys,
# and `SCORE(x, b, h, i, j)` after the scale. Skip tiles of kind 0, and ask MASK in tiles of kind 1 only.
#
# Two things are new. There is a batch: the grid is (blocks of queries, heads, batches). And GROUP query heads share a key head (*grouped
# queries*): query head h uses key head h // GROUP.

# %% tags=["hole"]
@triton.jit
def flex_forward(q, k, v, o, lse, kinds, N_Q, N_K, scale, GROUP: tl.constexpr, MASK: tl.constexpr,
                 SCORE: tl.constexpr, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """flash_forward with MASK and SCORE, for tiles that are not empty. About 32 lines.

    q, o: (batches, heads, N_Q, D), lse: (batches, heads, N_Q), k, v: (batches, heads // GROUP, N_K, D),
    without gaps. kinds: int32 (blocks of queries, blocks of keys), as block_mask gives it; it holds
    for all batches and heads. MASK(b, h, i, j): bools. SCORE(x, b, h, i, j): the changed scores; one
    that it makes -inf is hidden.
    """
    # BEGIN SOLUTION
    block, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    head = (b * tl.num_programs(1) + h).to(tl.int64)
    i, d = block * BLOCK_Q + tl.arange(0, BLOCK_Q), tl.arange(0, D)
    rows, there = head * N_Q + i, i < N_Q
    queries = tl.load(q + rows[:, None] * D + d, mask=there[:, None], other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    s = tl.zeros((BLOCK_Q,), tl.float32)
    total = tl.zeros((BLOCK_Q, D), tl.float32)
    blocks = tl.cdiv(N_K, BLOCK_K)
    for tile in range(0, blocks):
        kind = tl.load(kinds + block * blocks + tile)
        if kind != 0:
            j = tile * BLOCK_K + tl.arange(0, BLOCK_K)
            at, inside = (head // GROUP * N_K + j)[:, None] * D + d, j[:, None] < N_K
            x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0))) * scale
            x = SCORE(x, b, h, i[:, None], j[None, :])
            x = tl.where(j[None, :] < N_K, x, float("-inf"))
            if kind == 1:
                x = tl.where(MASK(b, h, i[:, None], j[None, :]), x, float("-inf"))
            top = tl.maximum(m, tl.max(x, 1))
            shift = tl.where(top == float("-inf"), 0.0, top)
            old, weights = tl.exp(m - shift), tl.exp(x - shift[:, None])
            s = s * old + tl.sum(weights, 1)
            values = tl.load(v + at, mask=inside, other=0.0)
            total = total * old[:, None] + tl.dot(weights.to(values.dtype), values)
            m = top
    s = tl.where(s == 0, 1.0, s)
    tl.store(o + rows[:, None] * D + d, total / s[:, None], mask=there[:, None])
    tl.store(lse + rows, m + tl.log(s), mask=there)
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.attention import expected as oracle

for case in oracle.FLEX:
    problem, made = oracle.drawn(rng, case), oracle.kinds(case)
    o, lse = problem.outputs()
    grid = case.blocks_q, case.heads, case.batch
    report = tiles.count(flex_forward, grid, problem.q, problem.k, problem.v, o, lse, made, *case.sizes,
                         **case.mods, **case.blocks)
    oracle.agree_forward(problem, o, lse, "flex_forward")
    oracle.expect_format(report, case)
print(f"flex_forward agrees with float64 under {len(oracle.FLEX)} pairs of mods")

# %% tags=["check"]
from common.lessons.attention import expected as oracle

for case in (*oracle.HARD, *oracle.SKIPS, *oracle.yours(as_text)):
    problem, made = oracle.drawn(rng, case), oracle.kinds(case)
    o, lse = problem.outputs()
    grid = case.blocks_q, case.heads, case.batch
    report = tiles.count(flex_forward, grid, problem.q, problem.k, problem.v, o, lse, made, *case.sizes,
                         **case.mods, **case.blocks)
    oracle.agree_forward(problem, o, lse, "flex_forward")
    oracle.expect_forward(report, case, made)
print("flex_forward skips empty tiles, with their loads and products, also with your mods")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Copy flash_forward. `kind = tl.load(kinds + block * tl.cdiv(N_K, BLOCK_K) + tile)` is one number: `if kind != 0:` works.
# In a tile of kind 2, keys past N_K must still be hidden.
# </details>
#
# **What FlexAttention abstracted: the loop is fixed, and two pure functions of a pair's position and score are not.**
#
# Your kernel, with your mods, against PyTorch's:

# %%
traced = {"MASK": flex_mods.text(sliding_window), "SCORE": flex_mods.text(soft_cap)}
ours, lse = torch.empty_like(theirs), torch.empty(1, 2, 24)
kinds = block_mask(sliding_window, 24, 24, 16, 16)
report = tiles.count(flex_forward, (2, 2, 1), *qkv, ours, lse, kinds, 24, 24, 0.25, GROUP=1, **traced,
                     D=16, BLOCK_Q=16, BLOCK_K=16)
torch.testing.assert_close(ours, theirs)
print(f"largest difference from PyTorch's FlexAttention: {(ours - theirs).abs().max():.1e}")

# %% [markdown]
# ## Part 4 · Backward, without the scores
#
# Training needs the gradients of Q, K and V from G, the gradient of O. Autograd would keep the weights P, N × N. But the log-sum-exp is
# enough to compute each tile again: $P = e^{Y - \mathrm{lse}}$, where X are the scaled scores and Y = SCORE(X). Then, tile by tile:
#
# $$dV = P^\top G \qquad dY = P \circ (G V^\top - \delta) \qquad dX = dY \circ \mathrm{SLOPE}(X)$$
# $$dQ = \mathrm{scale} \cdot dX\, K \qquad dK = \mathrm{scale} \cdot dX^\top Q$$
#
# δ is one number per query, $\sum_d G \circ O$: lab 04's sum in the gradient of softmax.

# %% [markdown]
# ### Exercise 4.1 · flash_backward
#
# Program (p, h, b) takes block p of the keys of *key head* h, and walks along the queries of all GROUP heads that share it. dK and dV stay in
# registers. Several programs have a part of the same rows of dQ, so add it to memory: `tl.atomic_add(dq + ..., part, mask=...)`.

# %% tags=["hole"]
@triton.jit
def flash_backward(q, k, v, g, lse, delta, dq, dk, dv, kinds, N_Q, N_K, scale, GROUP: tl.constexpr,
                   MASK: tl.constexpr, SCORE: tl.constexpr, SLOPE: tl.constexpr, D: tl.constexpr,
                   BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """dq, dk and dv of flex_forward. About 35 lines; SLOPE takes what SCORE takes.

    g, dq: like q; dq has fp32 and begins as zeros. dk, dv: like k. delta: like lse, fp32. The grid is
    (blocks of keys, key heads, batches). Each tile that is not empty is computed once per query head,
    with five products in the format of q. A query that sees nothing has lse = -inf: its gradient is 0.
    """
    # BEGIN SOLUTION
    block, key_head, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    key_heads = tl.num_programs(1)
    j, d = block * BLOCK_K + tl.arange(0, BLOCK_K), tl.arange(0, D)
    inside = j < N_K
    at_k = ((b * key_heads + key_head).to(tl.int64) * N_K + j)[:, None] * D + d
    keys = tl.load(k + at_k, mask=inside[:, None], other=0.0)
    values = tl.load(v + at_k, mask=inside[:, None], other=0.0)
    dk_sum, dv_sum = tl.zeros((BLOCK_K, D), tl.float32), tl.zeros((BLOCK_K, D), tl.float32)
    blocks_q, blocks_k = tl.cdiv(N_Q, BLOCK_Q), tl.cdiv(N_K, BLOCK_K)
    for step in range(0, GROUP * blocks_q):
        h, block_q = key_head * GROUP + step // blocks_q, step % blocks_q
        kind = tl.load(kinds + block_q * blocks_k + block)
        if kind != 0:
            i = block_q * BLOCK_Q + tl.arange(0, BLOCK_Q)
            rows, there = (b * key_heads * GROUP + h).to(tl.int64) * N_Q + i, i < N_Q
            at_q = rows[:, None] * D + d
            queries = tl.load(q + at_q, mask=there[:, None], other=0.0)
            given = tl.load(g + at_q, mask=there[:, None], other=0.0)
            total = tl.load(lse + rows, mask=there, other=float("inf"))
            mean = tl.load(delta + rows, mask=there, other=0.0)
            x = tl.dot(queries, tl.trans(keys)) * scale
            y = tl.where(inside[None, :], SCORE(x, b, h, i[:, None], j[None, :]), float("-inf"))
            if kind == 1:
                y = tl.where(MASK(b, h, i[:, None], j[None, :]), y, float("-inf"))
            visible = y > float("-inf")
            p = tl.where(visible, tl.exp(y - total[:, None]), 0.0)
            dv_sum += tl.dot(tl.trans(p).to(given.dtype), given)
            dy = p * (tl.dot(given, tl.trans(values)) - mean[:, None])
            dx = dy * SLOPE(x, b, h, i[:, None], j[None, :]) * scale
            dx = tl.where(visible, dx, 0.0).to(queries.dtype)
            dk_sum += tl.dot(tl.trans(dx), queries)
            tl.atomic_add(dq + at_q, tl.dot(dx, keys), mask=there[:, None])
    tl.store(dk + at_k, dk_sum, mask=inside[:, None])
    tl.store(dv + at_k, dv_sum, mask=inside[:, None])
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.attention import expected as oracle

for case in oracle.BACKWARD:
    problem, made = oracle.drawn(rng, case), oracle.kinds(case)
    gradients, inputs = problem.gradients(), (problem.q, problem.k, problem.v, problem.given)
    grid = case.blocks_k, case.heads // case.group, case.batch
    report = tiles.count(flash_backward, grid, *inputs, *problem.saved(), *gradients, made, *case.sizes,
                         **case.mods, SLOPE=case.slope, **case.blocks)
    oracle.agree_gradients(problem, gradients, "flash_backward")
    oracle.expect_format(report, case)
print(f"flash_backward agrees with autograd in float64 in {len(oracle.BACKWARD)} cases")

# %% tags=["check"]
from common.lessons.attention import expected as oracle

for case in (*oracle.SKIPS, *oracle.GROUPS, *oracle.yours(as_text)):
    problem, made = oracle.drawn(rng, case), oracle.kinds(case)
    gradients, inputs = problem.gradients(), (problem.q, problem.k, problem.v, problem.given)
    grid = case.blocks_k, case.heads // case.group, case.batch
    report = tiles.count(flash_backward, grid, *inputs, *problem.saved(), *gradients, made, *case.sizes,
                         **case.mods, SLOPE=case.slope, **case.blocks)
    oracle.agree_gradients(problem, gradients, "flash_backward")
    oracle.expect_backward(report, case, made)
print("flash_backward computes each visible tile once, also with your mods, and sums over the group")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Loop over `step` from 0 to GROUP · blocks of queries. Which head is it, and which block?
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two things can give NaN: lse = −∞, and rows past N_Q. Set P and dX to 0 by `tl.where` where Y is −∞, and load lse with `other=float("inf")`.
# </details>
#
# Backward computes five products per tile, forward two. So backward should take 2.5 times as long, if nothing but tensor cores counts. On an
# H200, cuDNN's takes 2.8 times as long with d = 128, and 2.6 with d = 64. The count leaves out the sums of dQ in memory.
#
# **Recomputing a tile is cheaper than loading it: arithmetic is what a GPU has most of.**

# %% [markdown]
# ## Part 5 · One query, many keys
#
# A language model that *writes* computes one token at a time. It has one query per head, and keys and values of all tokens so far, the
# *KV cache*. With bf16, two bytes are loaded per number, and each number of K and V takes part in one multiplication and one
# addition per query head that uses it.
#
# **Predict.** How many FLOPs per byte are there if each head has its own keys, if 8 heads share them, and if 64 do? (An H200's ridge is at 200.)

# %%
def intensity(group):
    """FLOPs per byte of keys and values, when `group` query heads share them. One line."""
    # BEGIN SOLUTION
    return 2 * group / 2
    # END SOLUTION

for group in (1, 8, 64):
    ledger.predict(f"decoding, {group} heads per key head", intensity(group), "FLOP/byte")

# %% [markdown]
# All of these are below the ridge. So memory sets the time: load each key once for the whole group. And there are few programs: one per key head
# can't feed 132 multiprocessors. So split the keys into parts too, one program for each, and let `merge` do the rest.
#
# ### Exercise 5.1 · decode_split
#
# `tl.dot` wants 16 rows or more. So load the GROUP queries as a block of 16 rows, of which some are masked.

# %% tags=["hole"]
@triton.jit
def decode_split(q, k, v, m, s, o, N, size, scale, GROUP: tl.constexpr, D: tl.constexpr,
                 BLOCK: tl.constexpr):
    """m, s and o of one query per head, over one part of the keys. About 24 lines.

    q: (heads, 1, D). k, v: (heads // GROUP, N, D), GROUP <= 16. Part p has the keys from p * size to
    (p + 1) * size - 1, as far as there are any. m, s: fp32 (parts, heads); o: fp32 (parts, heads, D),
    not divided by s. The grid is (parts, key heads). Each key is loaded once, BLOCK at a time.
    """
    # BEGIN SOLUTION
    part, key_head = tl.program_id(0), tl.program_id(1)
    row, d = tl.arange(0, 16), tl.arange(0, D)
    mine, head = row < GROUP, key_head * GROUP + row
    queries = tl.load(q + head[:, None] * D + d, mask=mine[:, None], other=0.0)
    top = tl.full((16,), float("-inf"), tl.float32)
    total, out = tl.zeros((16,), tl.float32), tl.zeros((16, D), tl.float32)
    end = tl.minimum((part + 1) * size, N)
    for start in range(part * size, end, BLOCK):
        j = start + tl.arange(0, BLOCK)
        at, inside = (key_head.to(tl.int64) * N + j)[:, None] * D + d, j[:, None] < end
        x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0))) * scale
        x = tl.where(j[None, :] < end, x, float("-inf"))
        higher = tl.maximum(top, tl.max(x, 1))
        old, weights = tl.exp(top - higher), tl.exp(x - higher[:, None])
        total = total * old + tl.sum(weights, 1)
        values = tl.load(v + at, mask=inside, other=0.0)
        out = out * old[:, None] + tl.dot(weights.to(values.dtype), values)
        top = higher
    place = part * tl.num_programs(1) * GROUP + head
    tl.store(m + place, top, mask=mine)
    tl.store(s + place, total, mask=mine)
    tl.store(o + place[:, None] * D + d, out, mask=mine[:, None])
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.attention import expected as oracle

for case in oracle.DECODING:
    problem, got, want = oracle.decoded(rng, case)
    grid, numbers = (case.parts, case.heads // case.group), (case.keys, case.size, case.d**-0.5)
    report = tiles.count(decode_split, grid, *oracle.single(problem), *got, *numbers,
                         GROUP=case.group, D=case.d, BLOCK=case.block)
    oracle.agree_decoded(got, want, case)
    oracle.expect_decoding(report, case)
print(f"decode_split agrees with float64 in {len(oracle.DECODING)} cases, and loads each key once")

# %% [markdown]
# <details><summary>Hint</summary>
#
# It is the loop of flash_forward, from `part * size` to the smaller of `(part + 1) * size` and N. A part without keys stores m = −∞, s = 0, o = 0:
# what the variables began with.
# </details>
#
# Your kernel, and your `merge`, whatever the number of parts:

# %%
q, k, v = torch.randn(8, 1, 64), *torch.randn(2, 2, 500, 64)
want = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)[:, 0]
for parts in (1, 3, 16):
    (m, s), o, sizes = torch.empty(2, parts, 8), torch.empty(parts, 8, 64), (500, -(-500 // parts))
    report = tiles.count(decode_split, (parts, 2), q, k, v, m, s, o, *sizes, 0.125, 4, 64, 32)
    whole = list(itertools.accumulate(zip(m.numpy(), s.numpy(), o.numpy()), merge))[-1]
    error = np.abs(whole[2] / whole[1][:, None] - want.numpy()).max()
    print(f"{report.programs:2} programs load {report.array('k').loads.bytes:,} B; error {error:.0e}")

# %%
for group in (1, 8):  # heads per key head
    q, k, v = torch.randn(8, 1, 64), *torch.randn(2, 8 // group, 128, 64)
    m, s, o = torch.empty(1, 8), torch.empty(1, 8), torch.empty(1, 8, 64)
    report = tiles.count(decode_split, (1, 8 // group), q, k, v, m, s, o, 128, 128, 0.125, GROUP=group,
                         D=64, BLOCK=32)
    moved = (report.array("k").loads.bytes + report.array("v").loads.bytes) / 2  # as bf16
    ledger.counted(f"decoding, {group} heads per key head", 4 * 8 * 128 * 64 / moved, "FLOP/byte")
ledger.table()

# %% [markdown]
# The counted intensities are the predicted ones: the work is fixed, and bytes fall by the size of the group. (Softmax takes a few FLOPs more, which
# we left out. `tl.dot` always multiplies 16 rows, but tensor cores are idle anyway.) Even 64 heads stay below the ridge.
#
# **Decoding is limited by memory: share each key among the heads that use it, and split the keys until every multiprocessor is busy.**

# %% [markdown]
# ## Predict, then measure
#
# Lines: your `attention_bytes`. Dots: what was counted, while PyTorch executed the unfused chain, and while your kernel ran.

# %%
def unfused(q, transposed_k, v):
    return torch.mm(torch.softmax(torch.mm(q, transposed_k), 1), v)

def counted(n):
    (q, k, v, o), lse = torch.randn(4, 1, n, 64), torch.empty(1, n)
    report = tiles.count(flash_forward, (-(-n // 128), 1), q, k, v, o, lse, n, n, 0.125, CAUSAL=False,
                         D=64, BLOCK_Q=128, BLOCK_K=128)
    moved = operation_bytes.bytes_moved(unfused, q[0], k[0].T, v[0])
    return {"unfused": moved, "fused": report.loads.bytes + report.stores.bytes}

# %%
widths = [64, 128, 200, 320, 512, 700]
dots, lines = [counted(n) for n in widths], [attention_bytes(n, 64, 4, 128) for n in widths]
ax = figures.predicted_and_measured(
    widths, {"unfused": [line[0] for line in lines], "fused": [line[1] for line in lines]},
    {name: [dot[name] for dot in dots] for name in dots[0]}, xlabel="tokens (d = 64, fp32)",
    ylabel="bytes loaded and stored", yunit="B", log="xy", dots_are="counted", title="Attention: bytes")
figures.describe(ax, "Bytes of attention by tokens: lines predicted, dots counted, two series.")

# %% [markdown]
# The dots lie on the lines, and both lines bend to the same slope: quadratic. Up to N = 128, one program does it all: the fused line is
# linear. The gap at 700 tokens is a factor of 3.4; the limit for long texts is 4.
#
# Bytes are not yet speed. On one H200 (bf16, causal, batch 4, 16 heads, 8,192 tokens, forward), in TFLOP/s:
#
# | | d = 128 | d = 64 |
# | --- | --- | --- |
# | FlashAttention-2 | 328 | 293 |
# | FlexAttention, compiled | 404 | 363 |
# | cuDNN | 544 | 420 |
# | the course's own kernel, in Gluon | 538 | 416 |
# | the solution of exercise 3.3 | 330 | 257 |
#
# Yours waits for each softmax; the fast ones overlap it with products.

# %% tags=["nbval-ignore-output"]
ledger.constant("bytes of fused attention / unfused, d = 64", lines[-1][1] / lines[-1][0], "times",
                "lab 06, counted, N = 700, 128 queries per program")
ledger.table()

# %% [markdown]
# ## Done
#
# `make grade LAB=06` grades your lab.
#
# You can now read FlashAttention (Dao and others, 2022): its loop is yours. In FlexAttention, a BlockMask is your `kinds` as lists. Ring
# attention and flash decoding use `merge`.
#
# **Limits of ours.** `kinds` holds for all heads, there is no dropout, and mods have numbers alone. The course's kernels for an H200 overlap
# softmax with products: `benchmarks/hopper_attention.py`.

# %% [markdown]
# ## Further
#
# No other lab needs what follows: a test of tests, pages of keys, and a key that is not there.
#
# ### Exercise 6.1 · test_attention (optional)
#
# Which inputs broke a kernel of yours? Write the check that finds such mistakes. It meets 29 programs in NumPy, right and wrong ones, under
# neutral names. Accept every right one, and refuse at least 20 of the 23 wrong ones.

# %% tags=["hole"]
def test_attention(candidate):
    """Raise AssertionError if `candidate` is no causal attention, else return nothing. 20 lines.

    candidate(q, k, v) should give softmax(q k' / sqrt(d)) v as a new float32 array (n, d). q: (n, d),
    k, v: (m, d), float32, n <= m. Query i sees the keys up to i + m - n. Arguments stay as they were.
    Errors up to 1e-3 are allowed.
    """
    # BEGIN SOLUTION
    random = np.random.default_rng(0)
    for n, m, d in ((5, 5, 4), (33, 50, 16), (1, 20, 8), (40, 40, 32)):
        for change in ("none", "rising", "below", "above", "apart"):
            q, k, v = (random.standard_normal((rows, d)).astype(np.float32) for rows in (n, m, m))
            if change == "rising":
                k *= np.linspace(0.1, 20, m, dtype=np.float32)[:, None]
            elif change != "none":
                level = {"below": -300.0, "above": 300.0, "apart": 300.0}[change] * d**0.5 / 10
                k[:, 0], q[:, 0] = 10, level
                q[::2, 0] *= -1 if change == "apart" else 1
            before = [x.copy() for x in (q, k, v)]
            got = candidate(q, k, v)
            x = before[0].astype(float) @ before[1].T / d**0.5
            x[np.arange(m) > np.arange(n)[:, None] + m - n] = -np.inf
            weight = np.exp(x - x.max(1, keepdims=True))
            want = weight @ before[2] / weight.sum(1, keepdims=True)
            assert all(map(np.array_equal, before, (q, k, v))), "it changes an argument"
            assert got.dtype == np.float32 and got.shape == want.shape, "another kind of array"
            assert np.allclose(got, want, rtol=1e-3, atol=1e-3), "wrong numbers"
    # END SOLUTION

# %% tags=["check"] points=2
print(clinic.score("attention", judged, par=20, rng=rng))

# %% [markdown]
# <details><summary>Hint</summary>
#
# More keys than queries; scores far above 0, far below, rising, and in each row elsewhere; sizes that fill no block; two values of d.
# </details>
#
# *Pages.* A server writes many texts at once, of unknown lengths. It can't reserve memory for the longest. So the KV cache comes in
# *pages* of BLOCK keys, handed out when needed. A *table* lists a text's pages in order. Where the last page is not full, it holds what another
# text left there.

# %% [markdown]
# ### Exercise 6.2 · decode_paged (optional)
#
# Write `decode_split` for pages: a part has `size` pages.

# %% tags=["hole"]
@triton.jit
def decode_paged(q, k, v, table, m, s, o, N, size, scale, GROUP: tl.constexpr, D: tl.constexpr,
                 BLOCK: tl.constexpr):
    """decode_split where keys 0 to BLOCK - 1 lie in page table[0], and so on. About 24 lines.

    k, v: (pages, heads // GROUP, BLOCK, D). table: int32, as many pages as N keys need. Part p has the
    pages table[p * size] to table[(p + 1) * size - 1], as far as there are any.
    """
    # BEGIN SOLUTION
    part, key_head = tl.program_id(0), tl.program_id(1)
    row, d, place = tl.arange(0, 16), tl.arange(0, D), tl.arange(0, BLOCK)
    mine, head = row < GROUP, key_head * GROUP + row
    queries = tl.load(q + head[:, None] * D + d, mask=mine[:, None], other=0.0)
    top = tl.full((16,), float("-inf"), tl.float32)
    total, out = tl.zeros((16,), tl.float32), tl.zeros((16, D), tl.float32)
    for entry in range(part * size, tl.minimum((part + 1) * size, tl.cdiv(N, BLOCK))):
        page = tl.load(table + entry).to(tl.int64)
        inside = entry * BLOCK + place < N
        at = ((page * tl.num_programs(1) + key_head) * BLOCK + place)[:, None] * D + d
        x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside[:, None], other=0.0))) * scale
        x = tl.where(inside[None, :], x, float("-inf"))
        higher = tl.maximum(top, tl.max(x, 1))
        old, weights = tl.exp(top - higher), tl.exp(x - higher[:, None])
        total = total * old + tl.sum(weights, 1)
        values = tl.load(v + at, mask=inside[:, None], other=0.0)
        out = out * old[:, None] + tl.dot(weights.to(values.dtype), values)
        top = higher
    at = part * tl.num_programs(1) * GROUP + head
    tl.store(m + at, top, mask=mine)
    tl.store(s + at, total, mask=mine)
    tl.store(o + at[:, None] * D + d, out, mask=mine[:, None])
    # END SOLUTION

# %% tags=["check"]
from common.lessons.attention import expected as oracle

for case in oracle.PAGED:
    problem, got, want = oracle.decoded(rng, case)
    k, v, table = oracle.pages(rng, problem, case)
    grid, numbers = (case.parts, case.heads // case.group), (case.keys, case.size // case.block)
    report = tiles.count(decode_paged, grid, problem.q[0], k, v, table, *got, *numbers, case.d**-0.5,
                         GROUP=case.group, D=case.d, BLOCK=case.block)
    oracle.agree_decoded(got, want, case, "decode_paged")
    oracle.expect_decoding(report, case)
print("decode_paged follows its table, and what another text left behind does not leak")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# In `decode_split`, key j lies in row j. Where does it lie now?
# </details>
# <details><summary>Hint: the idea</summary>
#
# The loop runs over entries of the table: load the page's number first. Inside a page, `place` takes the role
# of the row, and the mask compares entry · BLOCK + place with N.
# </details>
#
# *Sinks.* Softmax makes every query look at something. Trained models dump the weight they don't need on the first token, and a window that
# drops this token breaks them. Some models (gpt-oss, 2025) give each head one more score in its place, a *sink*, which has no value. What is left
# for the others?

# %% [markdown]
# ### Exercise 6.3 · with_sink (optional)
#
# You have o and lse of attention without a sink. No kernel is needed.

# %% tags=["hole"]
def with_sink(o, lse, sink):
    """o of attention whose softmax has the score `sink` in each row, with no value. One or two lines.

    o: tensor (heads, queries, d). lse: (heads, queries), -inf where nothing is seen. sink: (heads,).
    """
    # BEGIN SOLUTION
    return o * torch.sigmoid(lse - sink[:, None])[..., None]
    # END SOLUTION

# %% tags=["check"]
from common.lessons.attention import expected as oracle

for level in (0.0, -1000.0, 1000.0):
    o, lse, sink, want, mistakes = oracle.sink(rng, level)
    case = f"with_sink: scores and sinks around {level:g}"
    agree(with_sink(o, lse, sink), want, case, rtol=1e-6, atol=1e-9, mistakes=mistakes)
print("with_sink gives the sink its share")

# %% [markdown]
# <details><summary>Hint</summary>
#
# The old sum is $e^{\mathrm{lse}}$, and the new one is larger by $e^{\mathrm{sink}}$. Which function of lse − sink is their quotient?
# </details>
#
# **A harder question.** Causal programs have unequal work: the last block of queries walks along all keys, the first along one block. In which order
# would you start them?
#
# <details><summary>Answer</summary>
#
# The longest first. Let 64 programs of 1 to 64 tiles run on 8 multiprocessors. In the order of the queries, the longest program begins last, and
# the others wait for it: 288 tiles of time. In the opposite order the short programs fill the gaps: 260, an eighth of all tiles.
# </details>
