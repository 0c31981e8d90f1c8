# %% [markdown]
# # 05 · Triton matmul
#
# **How do you feed a tensor core?**
#
# After this lab you can
# - write a matrix product in Triton for any shape and strides, and fuse into it what follows;
# - say from the order of its tiles what is fetched from memory more than once, and choose a better order;
# - predict which configuration is fast before you measure any, and read in the machine code what the tensor cores get.
#
# *Needs* labs 02 to 04. *Takes* about 180 minutes. Every cell runs on a laptop; a GPU is measured in the last figure.
#
# What you want counted stands in the hole's cell: the grader reads no other.

# %% tags=["setup"]
import functools
import math

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.colors import ListedColormap

from common import device, figures, ledger, machine, samples, tiles, timing
from common.checks import agree

figures.use_style()
rng = np.random.default_rng()

# %% tags=["driver"]
device.prepare_triton()  # before Triton is imported: without a GPU, it interprets our kernels
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

where = "cuda" if device.has_gpu() else "cpu"
np.seterr(over="ignore")  # what is too large for exp becomes infinity without a warning, as on a GPU

# %% tags=["setup"]
def sizes(a, b, c):
    """M, N, K and the strides of the three matrices, in the order in which kernels take them."""
    return *c.shape, a.shape[1], *a.stride(), *b.stride(), *c.stride()


def blocks(m, n, k):
    """A tile's size, as a launch takes it."""
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}


def grid(c, m, n):
    """A grid with a program for each tile of c, of m rows and n columns."""
    return (math.ceil(c.shape[0] / m) * math.ceil(c.shape[1] / n),)


def random(*shape):
    """Random numbers in fp16."""
    return torch.from_numpy(rng.standard_normal(shape)).half()

# %% tags=["setup"]
CONFIG = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP", "num_warps", "num_stages")
PROCESSORS, PEAK, L2_BANDWIDTH, LATENCY_S = 132, 800e12, 14e12, 0.4e-6  # of an H200, as in part 4
H200 = samples.matmul_configurations()  # what we measured, for those who have none
SHAPES = list(H200["cublas_us"])[:6]  # (M, N, K)
SMALL = (16, 32, 16, 2, 4, 3)  # a configuration for checks
gelu = functools.partial(F.gelu, approximate="tanh")  # PyTorch's, for part 3


def candidates(shape):
    """Configurations measured at a shape, dicts of what a launch takes, and their seconds, an array."""
    rows = [row for row in H200["rows"] if (row["M"], row["N"], row["K"]) == shape and row["time_us"]]
    configs = [{name: row[name] for name in CONFIG} for row in rows]
    return configs, np.array([1e-6 * row["time_us"] for row in rows])

# %% [markdown]
# **Recall 1** (lab 02). Two 4096 × 4096 matrices of bf16 are multiplied. How many FLOPs is that for each byte, if each matrix
# moves once? Is an H200 (990 TFLOP/s, 4.8 TB/s) bound by memory or by compute?
#
# <details><summary>Answer</summary>
#
# 2 · 4096³ FLOPs, 3 · 2 · 4096² bytes: 1,365 FLOP/byte. The ridge is at 206, so compute. But a loop over tiles reads A and B many times.
# </details>
#
# **Recall 2** (lab 04). A row of 1,000 numbers in a block of 1,024: what must the masked numbers be for its maximum? For its sum?
#
# <details><summary>Answer</summary>
#
# −∞ for the maximum, 0 for the sum: what changes nothing.
# </details>

# %% [markdown]
# ## See it
#
# A language model ends in a product: 4,096 tokens, each a vector of 4,096 numbers, times a matrix with a column for each of 65,536
# words. On an H200 we launched one Triton kernel seven times to compute it. The same kernel, the same tiles, the same
# arithmetic; every program loads the same numbers. One thing differs: *which* program computes *which* tile. Row by row, or in
# bands of 2, 4, 8, ... rows, column by column. Before you run it: what can that change?

# %%
logits = [row for row in H200["rows"] if row["N"] == 65536 and row["BLOCK_N"] == 256]
for row in logits:
    order = "row by row" if row["GROUP"] == 1 else f"bands of {row['GROUP']} rows"
    flops_per_s = 2 * row["M"] * row["N"] * row["K"] / (1e-6 * row["time_us"])
    print(f"{order:18}{row['time_us'] / 1000:6.2f} ms{flops_per_s / 1e12:6.0f} TFLOP/s")

# %% [markdown]
# A quarter more speed; not one multiplication has changed.
#
# ## Part 1 · A tile a program
#
# Lab 02's loop over tiles, in Triton: a program computes one tile of C. It walks along K, and at each step loads a tile of A and one of
# B and multiplies them with `tl.dot`. Who loads what into shared memory, and where the barriers go, is now the compiler's work; `tl.dot`
# becomes instructions for the **tensor cores**, which multiply two small matrices at once.
#
# They take 16-bit numbers, and add up products in 32 bits. They must: in fp16, 4096 ones added one by one make 2048: it has no 2049.

# %% [markdown]
# ### Exercise 1.1 · matmul_kernel
#
# C = A B for matrices of any shape and any strides. Program p computes tile p; tiles are numbered row by row, `tl.cdiv(N, BLOCK_N)` in
# a row.
#
# Where K does not divide by BLOCK_K, the last step reaches beyond K: load zeros there, of both matrices (behind a row of A stands the
# next one, and behind a matrix anything, NaN too). Where M or N does not divide, mask rows or columns, and store nothing outside.
#
# Start with pointers to the first two tiles, and move them along by BLOCK_K. Sum in float32: `total = tl.dot(x, y, total)`.

# %% tags=["hole"]
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """A tile of C = A B; program p computes tile p, row by row. About sixteen lines.

    a, b, c: (M, K), (K, N), (M, N); the strides count elements. No size need divide by its block.
    """
    # BEGIN SOLUTION
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)
    # END SOLUTION

# %% tags=["check"]
for transposed in ("a", "b", "c", "abc"):
    stored = [random(32, 32) for _ in "abc"]
    a, b, c = (x.T if name in transposed else x for name, x in zip("abc", stored))
    want, as_stored = (a.float() @ b.float()).half(), (stored[0].float() @ stored[1].float()).half()
    tiles.count(matmul_kernel, (2,), a, b, c, *sizes(a, b, c), **blocks(16, 32, 32))
    agree(c, want, f"C, {transposed} transposed, 32 × 32", rtol=1e-2, atol=1e-2, mistakes={
        "This takes a and b as they are stored, row by row: use their strides.": as_stored,
        "This is the transpose of the result: use the strides of c.": want.T})
print("matmul_kernel follows the strides of a, b and c")

# %% tags=["check"]
a, b, around = *torch.full((2, 16, 16), 300.0).half(), torch.ones(20, 40)
for c in (torch.zeros(16, 16), around[:13, :15]):
    tiles.count(matmul_kernel, (1,), a, b, c, *sizes(a, b, c), **blocks(16, 16, 16))
    case = f"sums of 16 products of 300 and 300, C of {tuple(c.shape)}"
    agree(c, torch.full(tuple(c.shape), 16 * 9e4), case, mistakes={
        "65,504 is the largest number of fp16: sum in float32.": torch.full(tuple(c.shape), torch.inf)})
assert around[13:].eq(1).all() and around[:, 15:].eq(1).all(), "it stores outside of C: mask the store"
print("matmul_kernel sums in float32, and stores nothing outside of C")

# %% tags=["check"]
for m, n, k in [(16, 32, 16), (32, 32, 64), (48, 64, 40), (33, 20, 47), (5, 40, 70)]:
    a, b, c = random(m, k + 16), random(n, k + 16).T, torch.zeros(m, n)
    a[:, k:] = b[k:] = torch.nan  # a and b are parts of larger matrices
    a, b, case = a[:, :k], b[:k], f"C with (M, N, K) = {m, n, k} and blocks of 16, 32 and 16"
    steps = [x.float() @ y.float() for x, y in zip(a.split(16, 1), b.split(16))]
    tiles.count(matmul_kernel, grid(c, 16, 32), a, b, c, *sizes(a, b, c), **blocks(16, 32, 16))
    agree(c, sum(steps), case, rtol=1e-3, atol=1e-3, mistakes={
        "The last step reaches beyond K: mask it, in both matrices.": torch.full_like(c, torch.nan),
        "The last, shorter step is missing.": sum(steps[:-1]),
        "This is the product of the last step alone: add up all of them.": steps[-1],
        "Every step multiplies the first two tiles: move on along K.": len(steps) * steps[0]})
print("matmul_kernel agrees with float32 for five shapes")

# %% tags=["check"]
step = torch.arange(80)[:, None] // 16
a, b, c = (step * torch.ones(64)).half().T, (1 + step * torch.ones(96)).half(), torch.zeros(64, 96)
report = tiles.count(matmul_kernel, (7,), a, b, c, *sizes(a, b, c), **blocks(16, 32, 16))
by_rows, by_columns = torch.arange(12).view(4, 3) < 7, torch.arange(12).view(3, 4).T < 7  # what is done
agree(c[::16, ::32], 640.0 * by_rows, "4 × 3 tiles after 7 of 12 programs, a transposed", mistakes={
    "Tiles are numbered row by row; these go down the columns.": 640.0 * by_columns})
agree(report.dots, 7 * 5, "tl.dot calls of 7 programs with 5 steps each")
agree(report.loads.bytes, 7 * 5 * 2 * (16 * 16 + 16 * 32), "bytes loaded, two tiles a step")
agree(report.stores.bytes, 7 * 4 * 16 * 32, "bytes stored")
agree(report.busiest.bytes, 5 * 2 * (16 * 16 + 16 * 32) + 4 * 16 * 32, "bytes of the busiest program")
print("matmul_kernel takes tiles row by row, loads two a step, and stores C once")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `m = row * BLOCK_M + tl.arange(0, BLOCK_M)`, n likewise, `k = tl.arange(0, BLOCK_K)`. The pointers to A's first tile are
# `a + m[:, None] * stride_am + k[None, :] * stride_ak`. In the step that begins at `start`, the columns of A with `k < K - start` exist.
# </details>
#
# What does it load? Count one product with three sizes of tiles.

# %%
a, b, c = random(128, 128), random(128, 128), torch.zeros(128, 128).half()
for side in (32, 64, 128):
    report = tiles.count(matmul_kernel, grid(c, side, side), a, b, c, *sizes(a, b, c),
                         **blocks(side, side, 32))
    print(f"tiles of {side:3}: {report.loads.bytes:7,} bytes, {report.loads.sectors:5,} sectors, "
          f"{report.dot_flops / report.loads.bytes:.0f} FLOP/byte")
print(report)

# %% [markdown]
# Half a tile's side is its intensity, with 2 bytes a number. Tiles of 128 × 256 have 85 FLOP/byte; fed from memory, an H200 would want
# 206. They can't grow much: the sums fill the registers. So not every load may go to memory.
#
# **The size of a tile says how often each number is loaded. Something else says from where.**

# %% [markdown]
# ## Part 2 · The order of tiles is a cache
#
# Programs start in the order of their numbers, and where one ends, the next begins. Those that run at the same time are a **wave**:
# with tiles of 128 × 256, one on each of an H200's 132 multiprocessors. They walk along K together, and what one of them loads from
# memory lies in the L2 cache (50 MB, shared by all) when another one asks for it a moment later.
#
# So memory delivers what a wave loads *without repetition*: a strip of A for each row of tiles that it touches, a strip of B for
# each column.

# %% [markdown]
# Here is the first wave of the product above, of 32 × 256 tiles. At the left stands A, above stands B; what the wave needs is in colour.

# %%
def draw_wave(order, rows, columns, title, ax):
    edge, start = 1 + columns // 50, 2 + columns // 50 * 2  # of A and B; where C begins
    shown = np.pad(np.ones((rows, columns)), (start, 0))
    shown[start:, :edge] = shown[:edge, start:] = 1
    i, j = start + np.array([order(program) for program in range(min(PROCESSORS, rows * columns))]).T
    shown[i, :edge], shown[:edge, j], shown[i, j] = 2, 3, 4
    ax.imshow(shown, cmap=ListedColormap(["white", "#dddddd", "C1", "C2", "C0"]), vmax=4)
    ax.set_title(f"{title}; strips: {sum(shown[:, 0] == 2)} of A, {sum(shown[0] == 3)} of B")

# %%
axes = plt.subplots(2, 1, figsize=(7.2, 3.2))[1]
draw_wave(lambda program: divmod(program, 256), 32, 256, "Row by row", axes[0])
draw_wave(lambda program: (program % 8, program // 8), 32, 256, "In bands of 8 rows", axes[1])
for ax in axes:
    ax.axis("off")

# %% [markdown]
# The same 132 tiles of work, from 133 strips or from 25. Row by row, all of B passes by for each row of tiles: 537 MB, which no L2
# holds until it is needed again.
#
# ### Exercise 2.1 · grouped_order
#
# Which tile does a program compute, in bands? A *band* is `group` rows of tiles; the last one may have fewer. Bands follow each other; within a
# band, go down the first column, then down the next.
#
# Use `//`, `%` and `min` on ints: in exercise 3.1 the same lines go into a kernel.

# %% tags=["hole"]
def grouped_order(program, rows, columns, group):
    """(row, column), two ints, of the tile that this program computes, in bands of group rows.

    program: an int from 0 to rows * columns - 1; there are that many tiles. About five lines.
    """
    # BEGIN SOLUTION
    first = program // (group * columns) * group  # row where this program's band begins
    height = min(rows - first, group)
    place = program % (group * columns)
    return first + place % height, place // height
    # END SOLUTION

# %% tags=["check"]
for rows, columns, group in [(8, 6, 4), (7, 5, 3), (5, 4, 8), *rng.integers(1, 12, (9, 3)).tolist()]:
    every, band = range(rows * columns), group * columns
    bands = [range(rows)[first:first + group] for first in range(0, rows, group)]
    want = [(row, column) for band in bands for column in range(columns) for row in band]
    case = f"the tiles of {rows} × {columns} in bands of {group}, in order"
    agree([grouped_order(program, rows, columns, group) for program in every], want, case, mistakes={
        "The last band may have fewer rows: this skips tiles, and makes up others.":
            [(p // band * group + p % group, p % band // group) for p in every],
        "Go down a column of the band, then down the next: this goes along its rows.":
            [(row, column) for band in bands for row in band for column in range(columns)],
        "These are (column, row).": [tile[::-1] for tile in want]})
print("grouped_order visits every tile once, band by band, in 12 grids")

# %% [markdown]
# <details><summary>Hint</summary>
#
# A whole band has `group * columns` tiles, so band number `program // (group * columns)` begins at that many times `group` rows. Its
# height is `min(rows - first, group)`, and the place within it `program % (group * columns)`.
# </details>
#
# Look at other bands (in a notebook that runs, move the sliders):

# %% tags=["nbval-ignore-output"]
def first_wave(group=8, rows=32, columns=64):
    order, ax = lambda program: grouped_order(program, rows, columns, group), plt.subplots()[1]
    draw_wave(order, rows, columns, f"Bands of {group}", ax)
    ax.axis("off")
    plt.show()

ipywidgets.interact(first_wave, group=(1, 32), rows=(1, 64), columns=(8, 256));

# %% [markdown]
# And count. The strips of A here have 128 rows of 4096 numbers, 1 MiB; those of B have 256 columns, 2 MiB.
#
# **Predict.** Which band height loads least? With 132 programs as a rectangle of g rows, a wave takes g strips of A, and 132/g of B.

# %%
# BEGIN SOLUTION
best_group = round(math.sqrt(2 * 132))
# END SOLUTION
ledger.predict("band height that loads least in a wave", best_group, "rows of tiles")

# %%
def wave_bytes(group, rows, columns, wave=0, a_strip=2**20, b_strip=2**21):
    programs = range(wave * PROCESSORS, min((wave + 1) * PROCESSORS, rows * columns))
    touched = [grouped_order(program, rows, columns, group) for program in programs]
    return len({row for row, _ in touched}) * a_strip + len({column for _, column in touched}) * b_strip

loaded = {group: wave_bytes(group, 32, 256) for group in range(1, 33)}
ledger.counted("band height that loads least in a wave", min(loaded, key=loaded.get), "rows of tiles")
for group in (1, 2, 4, 8, min(loaded, key=loaded.get), 32):
    print(f"bands of {group:2}: the first wave loads {loaded[group] / 1e6:4.0f} MB")

# %% [markdown]
# Now time. A wave takes the longer of two times: that of its arithmetic, at the best speed in the table, and that of its bytes, at
# the 4.28 TB/s with which an H200 copies. The line is made of your order; the dots are what you saw at the start.

# %%
waves = range(math.ceil(32 * 256 / PROCESSORS))
groups, times_ms = zip(*((row["GROUP"], row["time_us"] / 1000) for row in logits))

def predicted_ms(group):
    memory_ms = [1e3 * wave_bytes(group, 32, 256, wave) / 4.28e12 for wave in waves]
    return sum(max(wave_ms, min(times_ms) / len(waves)) for wave_ms in memory_ms)

figures.predicted_and_measured(
    groups, [predicted_ms(group) for group in groups], times_ms, log="x", ylabel="time (ms)",
    xlabel="rows of tiles in a band", title="From four rows on, order is free (H200)").set_ylim(0, 5);

# %% [markdown]
# Row by row, memory is the limit: the left end. From 2 rows on the line says arithmetic. At 1 and 2 rows the dots are a tenth above it: the
# line takes memory at its best, and loads that hide completely behind multiplications. From 4 rows on a better order buys nothing more.
#
# **What runs at the same time should need the same data. The order of the tiles decides that: a cache policy, in four lines of integers.**

# %% [markdown]
# ## Part 3 · The epilogue
#
# A product seldom stands alone in a network: a bias is added, and an activation follows. Eager PyTorch stores the product, loads it, adds the
# bias, stores, loads, applies GELU, stores. A compiler fuses the last two. But while `total` is in registers, both cost no bytes at all.
# Such an end of a kernel is its *epilogue*. A library has those that somebody wrote; yours can have any.
#
# $$\mathrm{gelu}(x) = x \,/\, \bigl(1 + e^{-1.5957691\,(x + 0.044715\,x^3)}\bigr)$$
#
# This is the form of GPT-2 ("tanh" in PyTorch). The one with erf differs by less than 0.0005.

# %% [markdown]
# ### Exercise 3.1 · matmul_bias_gelu_kernel
#
# Your kernel again, with two things more. The tiles come in the order of exercise 2.1. And with `EPILOGUE` it stores
# gelu(A B + bias), where `bias` has a number for each column of C; without, C = A B, and leaves `bias` alone. (The
# compiler sees a constant, and drops the branch.)
#
# Copy the lines of both exercises into this cell: a kernel can't call a Python function.

# %% tags=["hole"]
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    """A tile of C = A B, with EPILOGUE of gelu(A B + bias), in bands of GROUP rows. About 24 lines.

    bias: (N,), contiguous. The rest as in matmul_kernel.
    """
    # BEGIN SOLUTION
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)
    # END SOLUTION

# %% tags=["check"]
for rows, columns, group, programs in [(4, 3, 2, 5), (5, 3, 2, 14), (3, 4, 8, 7)]:
    m, n, i, j = 16 * rows - 5, 16 * columns, torch.arange(rows)[:, None], torch.arange(columns)
    a, b, c = torch.ones(m, 16).half(), torch.ones(16, n).half(), torch.zeros(m, n)
    tiles.count(matmul_bias_gelu_kernel, (programs,), a, b, b, c, *sizes(a, b, c), **blocks(16, 16, 16),
                GROUP=group, EPILOGUE=False)
    begin, height = i // group * group, (rows - i // group * group).clamp(max=group)  # of a row's band
    number, tall = (begin * columns + j * h + i % group for h in (height, group))  # of a tile's program
    case = f"{rows} × {columns} tiles after {programs} programs, in bands of {group}"
    agree(c[::16, ::16], 16.0 * (number < programs), case, mistakes={
        "They went row by row.": 16.0 * (i * columns + j < programs),
        "The last band may have fewer rows: this skips tiles.": 16.0 * (tall < programs)})
print("matmul_bias_gelu_kernel takes the tiles in bands")

# %% tags=["check"]
for m, n, k in [(40, 40, 40), (32, 48, 48), (20, 33, 40), (16, 48, 16)]:
    a, b = random(2 * m, 2 * k)[::2, ::2], random(2 * k, 2 * n)[::2, ::2]  # no stride is 1
    bias, c, product, steps = random(n), torch.zeros(n, m).half().T, a.float() @ b.float(), -(-k // 16)
    tiles.count(matmul_bias_gelu_kernel, grid(c, 16, 16), a, b, bias, c, *sizes(a, b, c),
                **blocks(16, 16, 16), GROUP=2, EPILOGUE=True)
    want, case = gelu(product + bias).half(), f"gelu(A B + bias) with (M, N, K) = {m, n, k}"
    wrong = {"Add the bias once, not at every step along K.": gelu(product + steps * bias),
             "bias is for the columns of C, not for its rows.": gelu(product + bias[:m, None]),
             "First the bias, then GELU.": gelu(product) + bias, "GELU is missing.": product + bias,
             "The bias is missing.": gelu(product), "The exponent has a minus.": -gelu(-product - bias)}
    agree(c, want, case, rtol=4e-3, atol=4e-3, mistakes={name: x.half() for name, x in wrong.items()})
print("matmul_bias_gelu_kernel agrees with PyTorch for four shapes")

# %% tags=["check"]
a, b, bias, c = (torch.ones(shape).half() for shape in ((48, 32), (32, 64), (64,), (48, 64)))
for fused in (True, False):
    report = tiles.count(matmul_bias_gelu_kernel, (12,), a, b, bias, c, *sizes(a, b, c),
                         **blocks(16, 16, 16), GROUP=2, EPILOGUE=fused)
    want = gelu(torch.full((48, 64), 33.0)) if fused else torch.full((48, 64), 32.0)
    agree(c, want.half(), f"C of ones, EPILOGUE={fused}")
    agree(report.array("c").loads.bytes, 0, "bytes of C loaded")
    agree(report.stores.bytes, c.nbytes, "bytes of C stored")
    agree(report.array("bias").loads.bytes, 384 * fused, f"bytes of bias, EPILOGUE={fused}", mistakes={
        "Load it once, not at every step.": 768, "Without EPILOGUE, leave it alone.": 384})
    agree(report.array("a").loads.bytes, 12 * 2 * 512, "bytes of A loaded, two steps a program")
print("matmul_bias_gelu_kernel loads the bias once a program, and C never")

# %% [markdown]
# <details><summary>Hint</summary>
#
# After the loop, under `if EPILOGUE:`, add `tl.load(bias + n, mask=n < N, other=0.0)[None, :]`, and apply GELU to `total`.
# (x³ is `x * x * x`: Triton has no `**`.)
# </details>
#
# What does it save? Count it, beside an epilogue in a kernel of its own (PyTorch's compiler does that after cuBLAS):

# %%
a, b, bias, c = random(96, 64), random(64, 96), random(96), torch.zeros(96, 96).half()
for fused in (True, False):
    report = tiles.count(matmul_bias_gelu_kernel, (9,), a, b, bias, c, *sizes(a, b, c),
                         **blocks(32, 32, 32), GROUP=8, EPILOGUE=fused)
    again = 0 if fused else 2 * c.nbytes  # C loaded and stored once more
    moved = report.loads.bytes + report.stores.bytes + again
    print(f"{'fused' if fused else 'apart'}: {moved:,} bytes, of C {report.stores.bytes + again:,}")

# %% [markdown]
# How much time is that? The product takes 2·M·N·K FLOPs, and what is saved is 4·M·N bytes. At an H200's 700 TFLOP/s and 4.28 TB/s that is
# 1 + 327/K times as fast: 2.28 times at K = 256, 1.08 times at 4096.
#
# **An epilogue is free while the result is in registers. It saves a round trip of C: the shorter the sums, the more that is.**

# %% [markdown]
# ## Part 4 · Which configuration?
#
# Tiles, the depth of a step, warps, stages: your kernel has thousands of configurations, and which is fastest differs from shape to
# shape. On an H200 we measured fifty for each of six shapes (`benchmarks/matmul_configurations.py`):

# %%
for shape in SHAPES:
    configs, times_s = candidates(shape)
    best, least_s = tuple(configs[times_s.argmin()].values()), times_s.min()
    print(f"{' × '.join(map(str, shape)):19} {1e6 * least_s:6.1f} µs with {best}; median "
          f"{np.median(times_s) / least_s:.1f}, slowest {times_s.max() / least_s:.0f} times that")

# %% [markdown]
# Large tiles win, until there are too few of them: at 1024 × 5120, tiles of 128 × 256 make 160, and the second wave is mostly empty.
#
# To measure them all is what `triton.autotune` does: minutes, for each new shape. A **cost model** predicts instead. First: how many
# programs run on a multiprocessor at a time?

# %% [markdown]
# ### Exercise 4.1 · resident_programs
#
# Lab 03's `resident_blocks`, for our kernel in 16-bit numbers:
#
# - *Shared memory*: `num_stages` pairs of tiles of A and B (one is multiplied while the others are on their way), and 1,024 bytes for the
#   system. A program may have 232,448 bytes besides those 1,024; a multiprocessor has 233,472.
# - *Registers*: the threads, 32 a warp, share out the tile's float32 sums. Besides its sums a thread needs half as many registers, and 30,
#   for addresses and masks. It may have 255 (beyond, sums would go to memory); a multiprocessor has 65,536.
#
# (The limit of 2,048 threads never decides here.)

# %% tags=["hole"]
def resident_programs(config):
    """How many programs run on one multiprocessor at a time, an int; 0 if one alone breaks a limit.

    config: dict with the names in CONFIG. About eight lines.
    """
    # BEGIN SOLUTION
    threads = 32 * config["num_warps"]
    pair = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    shared_bytes = config["num_stages"] * 2 * pair
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums + sums // 2 + 30
    if shared_bytes > 232_448 or registers > 255:
        return 0
    return min(233_472 // (shared_bytes + 1024), 65_536 // (registers * threads))
    # END SOLUTION

# %% tags=["check"]
for values, want, wrong in [
        ((64, 256, 32, 8, 4, 2), 2, {0: "A warp has 32 threads.",
                                     4: "Sums are not all: add half as many, and 30.",
                                     5: "A thread has its sums, half as many besides, and 30."}),
        ((128, 256, 64, 8, 8, 3), 1, {0: "These numbers have 16 bits, 2 bytes."}),
        ((128, 128, 64, 8, 8, 4), 1, {2: "Shared memory holds a pair of tiles for each stage."}),
        ((64, 64, 64, 8, 2, 2), 6, {7: "Each program needs 1,024 bytes for the system, too."}),
        ((64, 64, 32, 8, 4, 7), 4, {3: "Four programs fill the shared memory to the byte: they fit."}),
        ((128, 256, 64, 8, 4, 2), 0, {1: "A thread may have 255 registers."})]:
    got, mistakes = resident_programs(dict(zip(CONFIG, values))), {says: n for n, says in wrong.items()}
    agree(got, want, f"resident_programs of {values}", mistakes=mistakes)
print("resident_programs is right for six configurations that are easy to get wrong")

# %% tags=["check"]
for trial in range(200):
    m, n, k, warps, stages = (2 ** rng.integers((5, 5, 4, 0, 0), (9, 9, 8, 5, 3))).tolist()
    threads, shared_bytes = 32 * warps, (stages + trial % 3) * (m * k + k * n) * 2
    sums, config = m * n // threads, dict(zip(CONFIG, (m, n, k, 8, warps, stages + trial % 3)))
    registers, programs = sums + sums // 2 + 30, 0
    alone = shared_bytes <= 232_448 and registers <= 255
    needs = {233_472: shared_bytes + 1024, 65_536: registers * threads}
    while alone and all((programs + 1) * need <= limit for limit, need in needs.items()):
        programs += 1
    agree(resident_programs(config), programs, f"resident_programs({config})")
print("resident_programs agrees with counting up, for 200 configurations")

# %% [markdown]
# Is it so? Compile the kernel for an H200, with no GPU, and ask. (`tiles.compiled` has Triton compile in a process of its own.)

# %%
for values in [(128, 256, 64, 8, 8, 3), (128, 128, 64, 8, 4, 3), (64, 64, 64, 8, 4, 4)]:
    config, x = dict(zip(CONFIG, values)), torch.empty(128, 128, dtype=torch.bfloat16)
    code = tiles.compiled(matmul_bias_gelu_kernel, *(x,) * 4, *sizes(x, x, x), EPILOGUE=False, **config)
    sums = config["BLOCK_M"] * config["BLOCK_N"] // (32 * config["num_warps"])
    print(f"{values}: {code.shared_bytes:,} bytes of shared memory, {code.registers} registers "
          f"with {sums} sums in them; {resident_programs(config)} at a time")

# %% [markdown]
# ### Exercise 4.2 · cost_model
#
# Predict seconds. The programs that run at a time are a wave; one that is not full takes as long. In a step along K, a multiprocessor's
# programs multiply tiles and load others meanwhile: the slower counts. It has a 132nd of `PEAK` and of `L2_BANDWIDTH`. And a step waits: a load
# takes `LATENCY_S`, and num_stages − 1 share the wait (a single stage waits in full). 800 TFLOP/s, 14 TB/s and 0.4 µs fit our H200's
# table.
#
# Times within a factor of two will do: the order counts. The score is **regret**: the time of your pick, over that of the best.

# %% tags=["hole"]
def cost_model(config, shape):
    """Seconds that matmul_bias_gelu_kernel is predicted to take; inf where resident_programs is 0.

    config: dict with the names in CONFIG. shape: (M, N, K), in 16-bit numbers. About twelve lines.
    """
    # BEGIN SOLUTION
    programs = resident_programs(config)
    if programs == 0:
        return math.inf
    m, n, k, _, _, stages = (config[name] for name in CONFIG)
    waves = math.ceil(math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs))
    compute_s = programs * 2 * m * n * k / (PEAK / PROCESSORS)
    load_s = programs * 2 * (m + n) * k / (L2_BANDWIDTH / PROCESSORS)
    wait_s = LATENCY_S / max(1, stages - 1)
    return waves * math.ceil(shape[2] / k) * (max(compute_s, load_s) + wait_s)
    # END SOLUTION

# %% tags=["check"]
for m, n, warps, stages, programs in [(128, 256, 8, 3, 1), (128, 128, 4, 3, 2), (32, 64, 4, 4, 4)]:
    config, k = dict(zip(CONFIG, (m, n, 64, 8, warps, stages))), int(rng.integers(50, 200)) * 64
    wave = m * PROCESSORS * programs  # rows of a full wave, with one column of tiles
    least = max(2 * wave * n * k / PEAK, 2 * PROCESSORS * programs * (m + n) * k / L2_BANDWIDTH)
    half, full, above, deeper = (cost_model(config, shape) for shape in [
        (wave // (2 * programs), n, k), (wave, n, k), (wave // 2 + 1, n + 1, k), (wave, n, 2 * k)])
    case = f"cost_model({config}, ({wave}, {n}, {k})), a full wave,"
    assert half > 0.9 * full / programs, f"{case} gave {full}, and {half} for half of it: as long"
    assert above > 1.2 * full, f"{case} gave {full}, and {above} for two tiles more: another wave"
    assert 1.7 * full < deeper < 2.2 * full, f"{case} gave {full}, {deeper} for twice the K: not twice"
    assert 0.999 * least < full < 0.1, f"{case} gave {full}: PEAK and L2_BANDWIDTH allow {least:.2g} s"
print("cost_model counts waves and steps, and is not faster than the H200")

# %% tags=["check"] points=2
regrets, huge = {}, dict(zip(CONFIG, (128, 128, 64, 8, 8, 40)))
agree(cost_model(huge, (64, 64, 64)), math.inf, "the cost of what does not fit")
for shape in SHAPES:
    configs, times_s = candidates(shape)
    predicted_s = np.array([cost_model(config, shape) for config in configs])
    regrets[shape] = float(times_s[predicted_s.argmin()] / times_s.min())
    off = np.median(times_s / predicted_s)
    assert 0.5 < off < 2, f"{shape}: the H200 takes {off:.3g} times as long as predicted (the median)"
mean, worst = math.prod(regrets.values()) ** (1 / 6), max(regrets, key=regrets.get)
assert mean <= 1.08, (f"mean regret {mean:.2f}, want 1.08 (par 1.04); {regrets[worst]:.2f} at {worst}: "
                      "what has the best configuration there that your pick has not?")
print("cost_model picks configurations within 8 % of the best, on average")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `waves * steps * (max(compute_s, load_s) + wait_s)`. A multiprocessor's programs multiply `programs * 2 * m * n * k` in a step, at
# `PEAK / PROCESSORS`, and load `programs * (m + n) * k` numbers of 2 bytes.
# </details>
#
# Line: what the model says. Dots: the H200.

# %%
axes = plt.subplots(1, 2, figsize=(7.2, 3.6))[1]
for shape, ax in zip([SHAPES[0], SHAPES[4]], axes):
    configs, times_s = candidates(shape)
    predicted_s = np.array([cost_model(config, shape) for config in configs])
    fits = np.isfinite(predicted_s)
    figures.predicted_and_measured(predicted_s[fits], lambda x: x, times_s[fits], log="xy", xunit="s",
                                   yunit="s", xlabel="time, as the model says", ylabel="time",
                                   title=" × ".join(map(str, shape)), ax=ax)

# %% tags=["setup"]
def features_of(configs):
    """Logarithms of the configurations' numbers, with mean 0 and spread 1: (configurations, 5)."""
    x = np.log2([[config[name] for name in CONFIG if name != "GROUP"] for config in configs])
    return (x - x.mean(0)) / x.std(0)

# %% [markdown]
# The model is off by a tenth, typically, and nearly right about what is best. What it has wrong it can be taught.
#
# ### Exercise 4.3 · next_to_measure
#
# *Measure few, learn, choose*: a few measurements tell how the model is off. (AutoTVM, which the notes name, learns from them with trees;
# here least squares will do.) Let y = log(measured / model), and X a column of ones and the features, for those that
# were measured. Fit y ≈ X w with a penalty on large weights,
#
# $$w = (X^T X + 0.1\, I)^{-1} X^T y$$
#
# correct all predictions by it, and pick the fastest that is not measured yet.

# %% tags=["hole"]
def next_to_measure(features, model_s, measured_s):
    """Index, an int, of the configuration to measure next: the fastest by the corrected model.

    features: (configurations, d). model_s: seconds that a model predicts. measured_s: NaN where not
    measured yet; at least one is, and one is not. Float64 arrays. About seven lines.
    """
    # BEGIN SOLUTION
    known = ~np.isnan(measured_s)
    x = np.column_stack([np.ones(len(features)), features])
    y = np.log(measured_s[known] / model_s[known])
    weights = np.linalg.solve(x[known].T @ x[known] + 0.1 * np.eye(x.shape[1]), x[known].T @ y)
    corrected_s = model_s * np.exp(x @ weights)
    return int(np.where(known, np.inf, corrected_s).argmin())
    # END SOLUTION

# %% tags=["check"]
for _ in range(30):
    features, places, lead = rng.standard_normal((40, 4)), np.arange(40), 1.0
    while lead < 1.1:  # until the fastest of the rest is 10 % faster than the next
        model_s, (known, rest) = np.exp(rng.normal(-9, 0.9, 40)), np.split(rng.permutation(40), [25])
        times_s = model_s * np.exp(0.7 + features @ rng.normal(0, 0.5, 4))
        best, lead = rest[times_s[rest].argmin()], np.divide(*np.sort(times_s[rest])[[1, 0]])
    got = next_to_measure(features, model_s.copy(), np.where(np.isin(places, known), times_s, np.nan))
    agree(got, int(best), "next_to_measure with 25 of 40 measured", mistakes={
        "This one has been measured.": int(known[times_s[known].argmin()]),
        "This is the model's own choice: correct the model.": int(rest[model_s[rest].argmin()]),
        "This is its place among those not measured: say its place among all.": int(sum(rest < best))})
print("next_to_measure learns what thirty models have wrong")

# %% tags=["check"]
for shape in SHAPES:
    configs, times_s = candidates(shape)
    model_s, measured_s = np.full(len(times_s), np.median(times_s)), np.full(len(times_s), np.nan)
    index, tried = int(times_s.argmax()), set()  # begin with the slowest
    for _ in range(15):
        measured_s[index] = times_s[index]
        tried.add(index)
        index = next_to_measure(features_of(configs), model_s.copy(), measured_s.copy())
    regret = np.nanmin(measured_s) / times_s.min()
    assert regret <= 1.1, f"{shape}: the best of 15 takes {regret:.2f} times the least, want 1.1"
    agree(len(tried), 15, f"configurations that are different among 15 measured, {shape}")
print("next_to_measure finds good configurations in 15 measurements, from a model that knows nothing")

# %% [markdown]
# And from yours? The line is what to expect of measuring at random; the dots start from your model.

# %%
def search(shape, configs, times_s):
    model_s, best = np.array([min(cost_model(config, shape), 1.0) for config in configs]), []
    measured_s, index = np.full(len(times_s), np.nan), int(model_s.argmin())
    for _ in range(12):
        measured_s[index] = times_s[index]
        best.append(np.nanmin(measured_s) / times_s.min())
        index = next_to_measure(features_of(configs), model_s, measured_s)
    return best

# %%
def at_random(times_s):
    draws = np.random.default_rng(0).permuted(np.tile(times_s, (2000, 1)), axis=1)
    return np.minimum.accumulate(draws, axis=1).mean(0)[:12] / times_s.min()

expected = np.mean([at_random(candidates(shape)[1]) for shape in SHAPES], 0)
found = np.mean([search(shape, *candidates(shape)) for shape in SHAPES], 0)
figures.predicted_and_measured(
    range(1, 13), {"at random": expected}, {"from your model": found}, ylabel="mean regret (× best)",
    xlabel="configurations measured", title="Measure few, learn, choose");

# %% [markdown]
# ### Clinic
#
# Somebody's autotuner runs each configuration once, takes the time, and keeps the fastest. Three of its decisions, from our table. What is
# wrong?

# %%
for shape in SHAPES[:3]:
    rows = [row for row in H200["rows"] if (row["M"], row["N"], row["K"]) == shape and row["time_us"]]
    pick = min(rows, key=lambda row: row["compile_s"] + 1e-6 * row["time_us"])
    slower = pick["time_us"] / min(row["time_us"] for row in rows)
    print(f"{shape}: picks {tuple(pick[name] for name in CONFIG)}, {slower:.0f} times the best's time")

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# The first call compiles: a second, where a run takes microseconds. It picks what compiles fastest, a small tile. Call once before the
# clock starts. Then take the median of several runs, wait for the GPU, and have the caches as your program finds
# them. `triton.autotune` does all that, once for each new value of its `key`: don't let that be the exact length of every sentence.
# </details>
#
# **Predict, to leave out what can't be fast; measure what is left; and measure the run, not the compiler.**

# %% [markdown]
# ## Part 5 · Read the machine code
#
# Are the tensor cores used? PTX, NVIDIA's assembly language, says it by name. On an H100 or H200 it is `wgmma`: a *warpgroup*,
# 128 threads, multiplies 64 × 16 by 16 × N numbers of 16 bits (N up to 256), read straight from shared memory. Without tensor cores it
# is `fma`: one thread multiplies two numbers, and adds.
#
# **Predict.** The kernel below multiplies two 64 × 64 matrices with 128 threads. How many `wgmma` in bf16? How many `fma` in each
# thread, if there are no tensor cores?

# %%
@triton.jit
def one_dot(a, b, c, PRECISION: tl.constexpr):
    i = tl.arange(0, 64)
    at = i[:, None] * 64 + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION))

# %%
# BEGIN SOLUTION
wgmma_count = 64 // 16
fma_count = 64**3 // 128
# END SOLUTION
ledger.predict("a 64³ product in bf16", wgmma_count, "wgmma")
ledger.predict("a 64³ product in fp32, by a thread", fma_count, "fma")

# %%
wgmma, fma = {}, {}
for kind in ("float8_e4m3fn tf32", "bfloat16 tf32", "float32 tf32", "float32 tf32x3", "float32 ieee"):
    x, y = torch.empty(64, 64, dtype=getattr(torch, kind.split()[0])), torch.empty(64, 64)
    code = tiles.compiled(one_dot, x, x, y, PRECISION=kind.split()[1])
    wgmma[kind], fma[kind] = code.instructions("wgmma.mma_async"), code.instructions("fma.rn.f32")
    print(f"{kind:20} {wgmma[kind]:4} wgmma.mma_async {fma[kind]:6} fma.rn.f32")
ledger.counted("a 64³ product in bf16", wgmma["bfloat16 tf32"], "wgmma")
ledger.counted("a 64³ product in fp32, by a thread", fma["float32 ieee"], "fma")

# %% [markdown]
# For fp32 there is a choice. `tf32`, Triton's default, rounds what comes in to 10 bits of fraction, for tensor cores. `tf32x3` adds two
# products with what was cut off, and is nearly exact. `ieee` is exact, and gets none. On an H200 cuBLAS reaches 728 TFLOP/s in bf16,
# 363 in tf32, 51 in fp32.
#
# **Look for the instruction. A kernel that misses it is right, and fourteen times slower.**
#
# ## Part 6 · The hardware lottery
#
# "Anything that can't be fit into a matmul will be 15x slower", the notes say. 15 is 990 over 67, an H100's TFLOP/s with tensor cores and
# without.

# %% [markdown]
# Which of many vectors is nearest? In the L2 distance there is a matmul, in the L1 distance there is none: no algebra parts x from y
# inside |x − y|.
#
# $$\sum_k (x_k - y_k)^2 = \sum_k x_k^2 + \sum_k y_k^2 - 2 \sum_k x_k y_k \qquad\qquad \sum_k |x_k - y_k|$$
#
# Both take three operations a coordinate. The second is not harder; nobody built hardware for it. (The first has a price, too: for close
# vectors, large numbers cancel.)

# %% tags=["nbval-ignore-output"]
def squared_distances(x, y):
    return x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T

x, y = torch.randn(2, 8192 if device.has_gpu() else 1000, 256, device=where)
l2_s = timing.measure(squared_distances, x, y).median_s
l1_s = timing.measure(lambda: torch.cdist(x, y, p=1)).median_s
print(f"L2 {ledger.show(l2_s, 's')}, L1 {ledger.show(l1_s, 's')}: {l1_s / l2_s:.0f} times as long")

# %% [markdown]
# On an H200, 94 ms against 1.3. The chip's part in that is 1.5 ms (three operations at 33 TFLOP/s) against 0.05 (L2's product, on tensor
# cores). The rest is software's: nobody tuned a kernel for what loses.
#
# Another that lost: products of probabilities, held as logarithms. To multiply is to add, and to add is
#
# $$c_{ij} = \log \sum_k e^{\,a_{ik} + b_{kj}}$$
#
# "If someone would implement a fast log-space MM it would be amazing. Been failing to do this for years", Sasha Rush wrote in
# 2021. But $e^{a + b}$ is $e^a e^b$: it *is* a matmul, if only nothing overflows.

# %% [markdown]
# ### Exercise 6.1 · logsumexp_matmul
#
# Shift each row of a, and each column of b, by its largest number: now no exponential is above 1. Multiply, take the logarithm, undo the
# shifts. A row of −∞ (probability 0) has no finite number to shift by; its result is −∞.
#
# Then show where it fails: give matrices `left` and `right` for which yours says −∞, though the truth is above −1000.

# %% tags=["hole"]
def logsumexp_matmul(a, b):
    """c, float32 (M, N): c[i, j] = logsumexp over k of a[i, k] + b[k, j], by one matmul.

    a: (M, K), b: (K, N), float32; -inf may occur, inf and NaN don't. About four lines.
    """
    # BEGIN SOLUTION
    row_shift = a.amax(1, keepdim=True).clamp(min=-1e30)  # -inf less -inf would be NaN
    column_shift = b.amax(0).clamp(min=-1e30)
    return torch.log(torch.exp(a - row_shift) @ torch.exp(b - column_shift)) + row_shift + column_shift
    # END SOLUTION


# float32 matrices for which logsumexp_matmul has -inf where the truth is above -1000.
# BEGIN SOLUTION
left = torch.tensor([[0.0, -200.0]])
right = torch.tensor([[-200.0], [0.0]])
# END SOLUTION

# %% tags=["check"]
for m, n, k, size in [(5, 4, 7, 1), (1, 1, 1, 300), (3, 8, 2, 300), (20, 30, 40, 60)]:
    a, b = (torch.from_numpy(rng.uniform(-3, 3, shape)).float() for shape in ((m, k), (k, n)))
    a += torch.from_numpy(rng.uniform(-size, size, (m, 1))).float()
    b += torch.from_numpy(rng.uniform(-size, size, n)).float()
    want = torch.logsumexp((a[:, :, None] + b).double(), 1).float()
    bare, one_shift = torch.exp(a) @ torch.exp(b), torch.exp(a - a.max()) @ torch.exp(b - b.max())
    case = f"logsumexp_matmul of {m} × {k} and {k} × {n}, rows and columns moved by up to {size}"
    agree(logsumexp_matmul(a.clone(), b.clone()), want, case, rtol=1e-4, atol=1e-4, mistakes={
        "exp overflows, and underflows: shift first.": bare.log(),
        "Each row and each column needs a shift of its own.": one_shift.log() + a.max() + b.max(),
        "Undo the shifts.": want - a.amax(1, keepdim=True) - b.amax(0)})
print("logsumexp_matmul agrees with float64 for four sizes")

# %% tags=["check"]
for row in (0, 2):
    a, b = random(3, 4).float(), random(4, 5).float()
    a[row], a[1, 2], b[:, 1] = -torch.inf, -torch.inf, -torch.inf
    want, case = torch.logsumexp(a[:, :, None] + b, 1), f"a[{row}] and b[:, 1] all -inf"
    agree(logsumexp_matmul(a, b), want, case, rtol=1e-4, atol=1e-5)
for name, value in {"left": left, "right": right}.items():
    agree(getattr(value, "dtype", value), torch.float32, f"{name}.dtype")
    agree(value.ndim, 2, f"{name}.ndim")
truth = torch.logsumexp((left[:, :, None] + right).double(), 1)
lost = torch.isneginf(logsumexp_matmul(left, right)) & (truth > -1000)
assert lost.any(), f"left, right: of {truth.flatten().tolist()[:4]}, none above -1000 becomes -inf"
print("logsumexp_matmul keeps rows of -inf; left and right show where it underflows")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `a.amax(1, keepdim=True)` is −∞ for a row of −∞, and −∞ − (−∞) is NaN: `clamp` it. It fails where a's row and b's column are
# largest at *different* k: then each product has one factor that underflows.
# </details>

# %% tags=["nbval-ignore-output"]
a, b = torch.randn(2, n := 512 if device.has_gpu() else 128, n, device=where)
exact_s = timing.measure(lambda: torch.logsumexp(a[:, :, None] + b, 1)).median_s
matmul_s = timing.measure(logsumexp_matmul, a, b).median_s
print(f"every exponential {ledger.show(exact_s, 's')}, by a matmul {ledger.show(matmul_s, 's')}")

# %% [markdown]
# It is safe while the spread of a row's numbers and that of a column's make less than some 87: e^−87 is about the smallest normal
# float32. Beyond, kernels shift each *tile* by its own maximum, and rescale the sums when the maximum moves: lab 04's running sum, which
# in lab 06 becomes attention.
#
# **What is written as a matmul is fast. So look for the matmul in it.**

# %% [markdown]
# ## Part 7 · As fast as the library
#
# On an H200 such a kernel reaches 0.95 of cuBLAS's speed at 4096³, and 0.04 at 1000 × 5000 × 3000 (M × N × K). What is missing?
#
# **Pointers.** A warp loads fast when each thread takes 16 bytes at once. Triton sees that a stride of 4096 divides by 16, and does;
# for 3000 and 5000 it does not know, and each thread loads 2 bytes. And for each element there is an address, and a mask.

# %% [markdown]
# **Descriptors.** An H100 has a unit that copies tiles by itself (*TMA*). It is told a matrix's address, shape and
# strides once, in a *descriptor*, then "the tile at row m, column k". What is outside arrives as zeros.
#
# **Persistent programs.** When a program ends, its multiprocessor idles while the tile is stored and the next program's first tiles are on their
# way. So launch 132 programs, and let each compute many tiles: p, p + 132, ... With `flatten=True` the compiler makes one loop of that over
# tiles and that along K: the next tile's loads start before this one is done.
#
# The next cells, ours, make the descriptors.

# %% tags=["setup"]
def described(x, tile):
    """What a descriptor of a matrix is made of."""
    return x, [*x.shape], [*x.stride()], tile


def persistent_launch(a, b, bias, c, config):
    """Arguments and options of persistent_matmul_kernel."""
    m, n, k = (config[name] for name in CONFIG[:3])
    a_tiles, b_tiles, c_tiles = described(a, [m, k]), described(b, [k, n]), described(c, [m, n])
    arrays = a_tiles, b_tiles, a if bias is None else bias, c_tiles
    return (*arrays, *c.shape, a.shape[1]), config | {"EPILOGUE": bias is not None}

# %% tags=["driver"]
def launch_described(kernel, programs, arguments, options, describe=TensorDescriptor):
    """Launches a kernel, with descriptors in place of the tuples that they are made of."""
    given = [describe(*each) if isinstance(each, tuple) else each for each in arguments]
    try:
        kernel[programs](*given, **options)
    except triton.runtime.errors.InterpreterError as error:
        raise error.__cause__ from None  # the error in the kernel, as it was raised


def launch_persistent(a, b, bias, c, programs, config):
    """Launches persistent_matmul_kernel: c = A B, or gelu(A B + bias) where bias is not None."""
    launch_described(persistent_matmul_kernel, (programs,), *persistent_launch(a, b, bias, c, config))


def persistent_matmul(a, b, bias, programs, config):
    """A B, or gelu(A B + bias) where bias is not None, by that many programs."""
    c = torch.full((len(a), b.shape[1]), torch.nan, dtype=a.dtype, device=where)
    bias = None if bias is None else bias.to(where)
    launch_persistent(a.to(where), b.to(where), bias, c, programs, config)
    return c.cpu()

# %% [markdown]
# **A cheaper GELU.** Nothing hides the end of a tile, and GELU is most of it: a multiprocessor does 128 multiplications a cycle, but 16 of exp2
# or 1/√x, and `x / (1 + tl.exp(...))` makes 17 instructions an element, two of those 16 a cycle. The next cell, ours, makes 12, 1.5 of them: exp2
# with its constants multiplied in, and one 1/√(a b), squared, in place of the divisions by a and by b.

# %% tags=["driver"]
@triton.jit
def fast_gelu(x):
    """gelu(x) of a tile in float32."""
    left, right = tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))
    # At most 60: a b must not overflow.
    a = 1 + tl.exp2(tl.minimum(left * (-2.3022082 - 0.10294324 * left * left), 60.0))
    b = 1 + tl.exp2(tl.minimum(right * (-2.3022082 - 0.10294324 * right * right), 60.0))
    root = tl.rsqrt(a * b)
    return tl.reshape(tl.join(left * b * (root * root), right * a * (root * root)), x.shape)

# %% [markdown]
# ### Exercise 7.1 · persistent_matmul_kernel
#
# Write it. `a.load([m, k])` is the tile of A at row m, column k; `c.store([m, n], tile)` stores one of C. The loop over tiles is
# `for tile in tl.range(tl.program_id(0), ..., tl.num_programs(0), flatten=True)`. No masks, but for the bias.

# %% tags=["hole"]
@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    """The tiles of C, as in matmul_bias_gelu_kernel: program p computes p, p + tl.num_programs(0), ...

    a, b, c: descriptors, with tiles of (BLOCK_M, BLOCK_K), (BLOCK_K, BLOCK_N) and (BLOCK_M, BLOCK_N).
    About fifteen lines.
    """
    # BEGIN SOLUTION
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        first = tile // (GROUP * columns) * GROUP
        height = min(rows - first, GROUP)
        place = tile % (GROUP * columns)
        m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        if EPILOGUE:
            column = n + tl.arange(0, BLOCK_N)
            total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
            total = fast_gelu(total)
        c.store([m, n], total.to(c.dtype))
    # END SOLUTION

# %% tags=["check"]
order = [(row, column) for band in ((0, 1), (2, 3), (4,)) for column in range(3) for row in band]
for programs in (1, 2, 5, 15):
    a, b, config = torch.ones(80, 16).half(), torch.ones(16, 96).half(), dict(zip(CONFIG, SMALL))
    got, (once, summed) = persistent_matmul(a, b, None, programs, config), torch.zeros(2, 5, 3).half()
    for number, tile in enumerate(order):
        once[tile] = 16 if number < programs else torch.nan
        summed[tile] = 16 * (1 + number // programs)
    want, case = torch.full((5, 3), 16.0).half(), f"15 tiles of a product of ones, {programs} programs"
    agree(got[::16, ::32], want, case, mistakes={
        "Start a new sum for each tile.": summed, "Each program computes one tile: go on.": once})
print("persistent_matmul_kernel computes each of 15 tiles by itself")

# %% tags=["check"]
for m, n, k, programs in [(16, 32, 48, 1), (70, 56, 40, 3), (40, 96, 16, 4), (80, 64, 32, 20)]:
    a, b, bias, config = random(m, k), random(k, n), random(n), dict(zip(CONFIG, SMALL)) | {"GROUP": 3}
    product, close = a.float() @ b.float(), {"rtol": 4e-3, "atol": 4e-3}
    case = f"{m} × {k} by {k} × {n}: {-(-m // 16) * -(-n // 32)} tiles, {programs} programs"
    agree(persistent_matmul(a, b, None, programs, config), product.half(), case, **close)
    got = persistent_matmul(a, b, bias, programs, config)
    agree(got, gelu(product + bias).half(), f"{case}, with bias and GELU", **close, mistakes={
        "Bias and GELU are missing.": product.half(), "The bias is missing.": gelu(product).half(),
        "GELU is missing.": (product + bias).half()})
print("persistent_matmul_kernel agrees with PyTorch, with fewer programs than tiles and with more")

# %% tags=["check"]
a, b, bias, c = (torch.ones(shape).half() for shape in ((70, 40), (40, 56), (56,), (70, 56)))
given, options = persistent_launch(a, b, bias, c, dict(zip(CONFIG, SMALL)))
report = tiles.count(persistent_matmul_kernel, (3,), *given, **options)
agree(report.stores.bytes, c.nbytes, "bytes of C stored")
agree(report.dots, 10 * 3, "tl.dot calls: 10 tiles, 3 steps each")
agree(report.array("bias").loads.bytes, 5 * bias.nbytes, "bytes of bias loaded, for 5 rows of tiles")
print("persistent_matmul_kernel multiplies and stores each tile once")

# %% tags=["check"]
a, b, bias, c = (torch.ones(shape).half() for shape in ((70, 40), (40, 56), (56,), (70, 56)))
given, options = persistent_launch(a, b, bias, c, dict(zip(CONFIG, SMALL)) | {"GROUP": 3})
report = tiles.count(persistent_matmul_kernel, (4,), *given, **options)
def moved(*sizes):
    return sum(2 * (40 * (rows + columns) + columns + rows * columns) for rows, columns in sizes)
large, narrow, low = (16, 32), (16, 24), (6, 32)
agree(report.busiest.bytes, moved(large, narrow, narrow), "bytes of the busiest program", mistakes={
    "The tiles of a band go column by column; here all go row by row.": moved(large, large, low),
    "Bands of GROUP rows: here all tiles go column by column.": moved(large, low, narrow),
    "Program 0 computes tiles 0, 4, 8 here, and not 0, 1, 2.": moved(large, large, large)})
print("persistent_matmul_kernel takes tiles in bands, each program every fourth")

# %% [markdown]
# <details><summary>Hint</summary>
#
# The loop along K shrinks to `total = tl.dot(a.load([m, k]), b.load([k, n]), total)` and stands inside the loop over tiles. The lines of the order take
# `tile` in place of `tl.program_id(0)`.
# </details>

# %% [markdown]
# **One wave.** 1000 × 5000 is 8 × 20 tiles of 128 × 256: 160, two waves, the second mostly empty. Blocks have powers of two. But
# 256 + 64 = 320 columns make 8 × 16 = 128 tiles.
#
# **One line.** Memory is read in lines of 128 bytes, and TMA fetches a tile row by row: 64 numbers of A's row, 128 bytes. Do they lie in one
# line? In A of 1000 × 3000, a row takes 6,000 bytes, and each begins 16 bytes earlier in its line than the row before it. Row i + 8 begins
# where row i does.

# %%
def lines(rows, k):
    """How many lines of 128 bytes hold 64 numbers of 16 bits, from column k on, in these rows of A."""
    first_byte = 2 * (3000 * rows + k)
    return ((first_byte + 127) // 128 - first_byte // 128 + 1).sum()

print("128 rows in order:", lines(np.arange(128), 0), "lines")
print("Rows 5, 13, 21, ...:", lines(5 + 8 * np.arange(125), -(5 * 3000 % 64)), "lines for 125 rows")

# %% [markdown]
# So let a tile's rows stand 8 apart, and let the windows along K begin where a line does, a little before the row: what is outside arrives as
# zeros. A descriptor can say it: A as (8, 125, 3000), where [i, m] is row 8 m + i. `a.load([i, m, k])` is a tile of shape
# (1, BLOCK_M, BLOCK_K); `.reshape(BLOCK_M, BLOCK_K)` makes a matrix of it. The next cells, ours, make such descriptors; `alike` is the 8.

# %% tags=["setup"]
def apart(x, alike, tile):
    """What makes a descriptor of x as (alike, rows / alike, columns): [i, m] is row alike · m + i."""
    (rows, columns), stride = x.shape, x.stride(0)
    return x, [alike, rows // alike, columns], [stride, alike * stride, 1], [1, *tile]

# %% tags=["setup"]
def wide_launch(a, b, bias, c, config, more, alike):
    """Grid, arguments and options of wide_matmul_kernel, a program for each tile."""
    m, n, k = (config[name] for name in CONFIG[:3])
    b_tiles, b_more = (described(b, [k, width]) for width in (n, more))
    c_tiles, c_more = (apart(c, alike, [m, width]) for width in (n, more))
    programs = alike * math.ceil(len(a) / alike / m) * math.ceil(c.shape[1] / (n + more))
    arrays = apart(a, alike, [m, k]), b_tiles, b_more, a if bias is None else bias, c_tiles, c_more
    options = config | {"MORE": more, "ALIKE": alike, "EPILOGUE": bias is not None}
    return (programs,), (*arrays, *c.shape, a.shape[1]), options

# %% tags=["driver"]
def launch_wide(a, b, bias, c, config, more, alike):
    """Launches wide_matmul_kernel."""
    launch_described(wide_matmul_kernel, *wide_launch(a, b, bias, c, config, more, alike))


def wide_matmul(a, b, bias, config, more, alike):
    """A B, or gelu(A B + bias) where bias is not None."""
    c = torch.full((len(a), b.shape[1]), torch.nan, dtype=a.dtype, device=where)
    bias = None if bias is None else bias.to(where)
    launch_wide(a.to(where), b.to(where), bias, c, config, more, alike)
    return c.cpu()

# %% [markdown]
# ### Exercise 7.2 · wide_matmul_kernel (optional)
#
# Write a kernel with *two* sums that share each tile of A: of BLOCK_N columns, and of the `MORE` columns after them. One wave needs no loop
# over tiles: a program computes one. C has ALIKE · cdiv(M / ALIKE, BLOCK_M) rows of tiles; the r-th holds rows i, i + ALIKE, ... of C, where
# i = r % ALIKE, from the (r // ALIKE · BLOCK_M)-th of these on. These begin i · K % BLOCK_K numbers after a line does: let k begin
# at −(i · K % BLOCK_K).

# %% tags=["hole"]
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    """A tile of C, BLOCK_M × (BLOCK_N + MORE), in bands of GROUP rows of tiles. About twenty lines.

    a, c, c_more: descriptors of (ALIKE, M / ALIKE, ...); tiles of (1, BLOCK_M, BLOCK_K), (1, BLOCK_M,
    BLOCK_N), (1, BLOCK_M, MORE). b, b_more: tiles of (BLOCK_K, BLOCK_N), (BLOCK_K, MORE).
    """
    # BEGIN SOLUTION
    rows, columns = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
    first = tl.program_id(0) // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    row, n = first + place % height, place // height * (BLOCK_N + MORE)
    i, m = row % ALIKE, row // ALIKE * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    more = tl.zeros((BLOCK_M, MORE), tl.float32)
    for k in range(-(i * K % BLOCK_K), K, BLOCK_K):
        x = a.load([i, m, k]).reshape(BLOCK_M, BLOCK_K)
        total = tl.dot(x, b.load([k, n]), total)
        more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
    if EPILOGUE:
        total = biased_gelu(total, bias, n, N, BLOCK_N)
        more = biased_gelu(more, bias, n + BLOCK_N, N, MORE)
    c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))
    c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))
    # END SOLUTION


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    """gelu(total + bias), for COLUMNS columns from n on. Two or three lines."""
    # BEGIN SOLUTION
    column = n + tl.arange(0, COLUMNS)
    return fast_gelu(total + tl.load(bias + column, mask=column < N, other=0.0)[None, :])
    # END SOLUTION

# %% tags=["check"]
for m, n, k, alike in [(16, 48, 16, 1), (70, 96, 40, 1), (40, 144, 24, 8), (36, 96, 40, 4)]:
    a, b, config = random(m, k), random(k, n), dict(zip(CONFIG, SMALL)) | {"GROUP": 3}
    product = a.float() @ b.float()
    case = f"{m} × {k} by {k} × {n} in tiles of 16 × (32 + 16), rows {alike} apart"
    narrow, starts = product.half(), torch.arange(m)[:, None] % alike * k % 16
    narrow[:, [j for j in range(n) if j % 48 >= 32]] = torch.nan
    late = (a * (torch.arange(k) >= starts)).float() @ b.float()
    got = wide_matmul(a, b, None, config, 16, alike)
    agree(got, product.half(), case, rtol=4e-3, atol=4e-3, mistakes={
        "The columns of MORE are missing.": narrow,
        "k begins after 0: the first numbers of a row are missing.": late.half()})
print("wide_matmul_kernel agrees with PyTorch, for rows in order and 4 and 8 apart")

# %% tags=["check"]
for m, n, k, alike in [(16, 48, 16, 1), (70, 56, 40, 2), (40, 144, 24, 8)]:
    a, b, bias, config = random(m, k), random(k, n), random(n), dict(zip(CONFIG, SMALL))
    product, case = a.float() @ b.float(), f"{m} × {k} by {k} × {n} in tiles of 16 × (32 + 16)"
    first = product + bias[[j - 32 * (j % 48 >= 32) for j in range(n)]]
    want, got = gelu(product + bias).half(), wide_matmul(a, b, bias, config, 16, alike)
    agree(got, want, f"{case}, with bias and GELU", rtol=4e-3, atol=4e-3, mistakes={
        "The columns of MORE have a bias of their own.": gelu(first).half()})
print("wide_matmul_kernel agrees with PyTorch, with bias and GELU")

# %% tags=["check"]
a, b, c = (torch.ones(shape).half() for shape in ((64, 16), (16, 96), (64, 96)))
_, given, options = wide_launch(a, b, None, c, dict(zip(CONFIG, SMALL)) | {"GROUP": 3}, 16, 1)
tiles.count(wide_matmul_kernel, (4,), *given, **options)
agree((c != 1).int()[::16, ::48], torch.tensor([[1, 1], [1, 0], [1, 0], [0, 0]]).int(),
      "which of 4 × 2 tiles programs 0 to 3 computed, in bands of 3 rows", mistakes={
          "The tiles of a band go column by column; here all go row by row.":
              torch.tensor([[1, 1], [1, 1], [0, 0], [0, 0]]).int(),
          "Bands of GROUP rows: here all tiles go column by column.": torch.tensor([[1, 0]] * 4).int()})
print("wide_matmul_kernel takes tiles in bands")

# %% tags=["check"]
for m, n, k, alike in [(32, 56, 40, 2), (36, 96, 40, 4), (40, 144, 24, 8)]:
    a, b, bias, c = (torch.ones(shape).half() for shape in ((m, k), (k, n), (n,), (m, n)))
    columns, late = math.ceil(n / 48), np.arange(m) % alike * k % 16
    programs, given, options = wide_launch(a, b, bias, c, dict(zip(CONFIG, SMALL)), 16, alike)
    report, steps = tiles.count(wide_matmul_kernel, programs, *given, **options), -(-(k + late) // 16)
    case = f"A's sectors, of 16 numbers, rows {alike} apart"
    agree(report.array("a").loads.sectors, columns * int(steps.sum()), case, mistakes={
        "A window that begins within a sector costs two: let k begin at −(i · K % BLOCK_K).":
            columns * (m * math.ceil(k / 16) + int((late > 0).sum()) * (k // 16))})
    want = 2 * columns * int(steps[:alike].sum()), c.nbytes
    agree((report.dots, report.stores.bytes), want, "tl.dot calls, two a step, and bytes of C stored")
print("wide_matmul_kernel loads whole sectors of A, and stores C once")

# %% [markdown]
# **One warp loads.** Your eight warps do everything: in each step they wait for tiles, start two products, wait for those of the step before,
# and ask for the tiles of a later step; Triton has all eight meet at four barriers for that. Let a ninth warp ask, and the eight only wait
# and multiply: *warp specialization*. Then a program must say which warps do what, and who waits for whom. *Gluon*, the level below
# Triton, has words for it. The next cells, ours, are your kernel once more, for an H100 or H200: the same tiles, the same sums.

# %% [markdown]
# Four *slots* of shared memory (*stages*) hold the tiles of four steps, and each has two *mbarriers*: no meeting of all threads, as in lab 03, but
# counters. `full`: the loading warp says how many bytes to expect, TMA counts them as they arrive, and at the last, whoever waits goes on.
# `empty`: once all eight have read a slot, they *arrive* there as one, and the loading warp goes on. A slot is used in turns (*phases*);
# a barrier knows only odd from even: `wait(barrier, turn % 2)` returns once that turn has ended. For a new barrier turn −1 has: at first,
# all slots are empty.

# %% tags=["driver"]
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor


@gluon.jit
def load_steps(a, b, b_more, a_slots, b_slots, more_slots, full, empty, i, m, n, first, steps):
    """The loading warp: has each step's tiles fetched, once a slot is empty."""
    SLOTS: gl.constexpr = a_slots.shape[0]
    for step in range(steps):
        slot, turn, k = step % SLOTS, step // SLOTS, first + step * b.block_shape[0]
        here = full.index(slot)
        mbarrier.wait(empty.index(slot), (turn + 1) % 2)  # the turn before this one
        mbarrier.expect(here, a.block_type.nbytes + b.block_type.nbytes + b_more.block_type.nbytes)
        tma.async_copy_global_to_shared(a, [i, m, k], here, a_slots.index(slot))
        tma.async_copy_global_to_shared(b, [k, n], here, b_slots.index(slot))
        tma.async_copy_global_to_shared(b_more, [k, n + b.block_shape[1]], here, more_slots.index(slot))

# %% [markdown]
# The tensor cores multiply on their own, too: `warpgroup_mma`, part 5's `wgmma`, only starts them, and `warpgroup_mma_wait(2, ...)` waits until
# no more than two products are on their way, those of this step. Then the step before is done, and its slot is empty.

# %% tags=["driver"]
@gluon.jit
def zeros(ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Zeros, spread over the registers of eight warps as wgmma adds to them: 16 rows a warp."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, COLUMNS, 16])
    return gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)


@gluon.jit
def multiply_steps(a_slots, b_slots, more_slots, full, empty, steps):
    """The eight multiplying warps: the two sums."""
    SLOTS: gl.constexpr = a_slots.shape[0]
    BLOCK_M: gl.constexpr = a_slots.shape[2]
    total, more = zeros(BLOCK_M, b_slots.shape[2]), zeros(BLOCK_M, more_slots.shape[2])
    for step in range(steps):
        slot, before = step % SLOTS, (step + SLOTS - 1) % SLOTS
        mbarrier.wait(full.index(slot), step // SLOTS % 2)
        x = a_slots.index(slot).reshape([BLOCK_M, a_slots.shape[3]])
        total = hopper.warpgroup_mma(x, b_slots.index(slot), total, is_async=True)
        more = hopper.warpgroup_mma(x, more_slots.index(slot), more, is_async=True)
        total, more = hopper.warpgroup_mma_wait(2, deps=(total, more))
        mbarrier.arrive(empty.index(before), pred=step > 0)
    return hopper.warpgroup_mma_wait(0, deps=(total, more))

# %% tags=["driver"]
@gluon.jit
def store_sum(total, tile, c, i, m, n, bias, N, EPILOGUE: gl.constexpr):
    """Has a sum, with its epilogue, written to C from this tile of shared memory."""
    if EPILOGUE:
        column = n + gl.arange(0, total.shape[1], gl.SliceLayout(0, total.type.layout))
        own = gl.load(bias + column, mask=column < N, other=0.0)
        total = gl.convert_layout(fast_gelu(total + own.expand_dims(0)), total.type.layout)
    tile.reshape([c.block_shape[1], c.block_shape[2]]).store(total.to(c.dtype))
    hopper.fence_async_shared()  # what warps wrote, TMA may read
    tma.async_copy_shared_to_global(c, [i, m, n], tile)


@gluon.jit
def specialized_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: gl.constexpr,
                              BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, MORE: gl.constexpr,
                              ALIKE: gl.constexpr, GROUP: gl.constexpr, SLOTS: gl.constexpr,
                              EPILOGUE: gl.constexpr):
    """wide_matmul_kernel, by eight warps that multiply and one that loads; for an H100 or H200."""
    rows, columns = ALIKE * gl.cdiv(M // ALIKE, BLOCK_M), gl.cdiv(N, BLOCK_N + MORE)
    band = gl.program_id(0) // (GROUP * columns) * GROUP
    height = gl.minimum(rows - band, GROUP)
    place = gl.program_id(0) % (GROUP * columns)
    row, n = band + place % height, place // height * (BLOCK_N + MORE)
    m, i = row // ALIKE * BLOCK_M, row % ALIKE
    first = -(i * K % BLOCK_K)
    steps = gl.cdiv(K - first, BLOCK_K)
    a_slots = gl.allocate_shared_memory(a.dtype, [SLOTS, 1, BLOCK_M, BLOCK_K], a.layout)
    b_slots = gl.allocate_shared_memory(b.dtype, [SLOTS, BLOCK_K, BLOCK_N], b.layout)
    more_slots = gl.allocate_shared_memory(b.dtype, [SLOTS, BLOCK_K, MORE], b_more.layout)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)  # one arrival: expect; then the bytes
        mbarrier.init(empty.index(slot), count=1)  # the eight arrive as one
    total, more = gl.warp_specialize([
        (multiply_steps, (a_slots, b_slots, more_slots, full, empty, steps)),
        (load_steps, (a, b, b_more, a_slots, b_slots, more_slots, full, empty, i, m, n, first, steps)),
    ], [1], [24])  # one warp more, of 24 registers a thread (and three idle: warps come in fours)
    # Both before the first is stored from: else they would share memory that TMA still reads.
    tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    more_tile = gl.allocate_shared_memory(c.dtype, c_more.block_shape, c_more.layout)
    store_sum(total, tile, c, i, m, n, bias, N, EPILOGUE)
    store_sum(more, more_tile, c_more, i, m, n + BLOCK_N, bias, N, EPILOGUE)
    tma.store_wait(0)


@functools.cache
def layout(*block):
    """How TMA lays a tile of 16-bit numbers out in shared memory."""
    return gl.NVMMASharedLayout.get_default_for(list(block), gl.bfloat16)


def described_for_gluon(x, shape, strides, block):
    """A descriptor for Gluon, which asks for the layout."""
    return GluonDescriptor(x, shape, strides, block, layout(*block))


def launch_specialized(a, b, bias, c, config, more, alike):
    """Launches specialized_matmul_kernel."""
    programs, arguments, options = wide_launch(a, b, bias, c, config, more, alike)
    options |= {"SLOTS": config["num_stages"]}
    launch_described(specialized_matmul_kernel, programs, arguments, options, described_for_gluon)


@functools.cache
def on_hopper():
    """Whether kernels are compiled for an H100 or H200."""
    return device.compute_capability()[0] == 9

# %% [markdown]
# Which width? The time goes by the area that whole waves have, full or not. And how many programs are persistent? A wave of 128 is 8 whole columns
# of a band of 16 rows; 132 are no multiple. Where both need as many waves, `matmul`, the last function of this lab, takes 128. Four
# multiprocessors then rest, and a GPU at its limit of 700 W gives their power to the others: 1 to 2 % of the time at 4096³.

# %% tags=["driver"]
def area_paid(m, n, width):
    """Elements of C that whole waves of tiles of 128 × width have."""
    tiles = math.ceil(m / 128) * math.ceil(n / width)
    return math.ceil(tiles / PROCESSORS) * PROCESSORS * 128 * width


def persistent_programs(tiles, band=16):
    """As many as whole columns of a band have tiles, or PROCESSORS where that saves a wave."""
    whole = PROCESSORS // band * band
    return whole if math.ceil(tiles / whole) == math.ceil(tiles / PROCESSORS) else PROCESSORS


def rows_alike(m, k):
    """Every how many rows of A begin at the same place of a line; 1 where their tiles would be more."""
    alike = 64 // math.gcd(64, k)
    more_tiles = alike * math.ceil(m / alike / 128) > math.ceil(m / 128)
    return 1 if m % alike or more_tiles else alike


def matmul(a, b, bias=None, launch=None):
    """A B, or gelu(A B + bias), on a GPU; 16-bit numbers, rows that begin at multiples of 16 bytes.

    launch: what launches tiles of 320 columns; if None, ours on an H100 or H200, elsewhere yours.
    """
    config = dict(zip(CONFIG, (128, 256, 64, 16, 8, 3)))
    launch = launch or (launch_specialized if on_hopper() else launch_wide)
    c = torch.empty(len(a), b.shape[1], dtype=a.dtype, device=a.device)
    if area_paid(*c.shape, 320) < area_paid(*c.shape, 256):
        try:
            launch(a, b, bias, c, config | {"num_stages": 4}, 64, rows_alike(*a.shape))
            return c
        except triton.CompilationError:
            if launch is launch_specialized:
                raise
            # The optional exercise is not solved: 256 columns do.
    launch_persistent(a, b, bias, c, persistent_programs(*grid(c, 128, 256)), config)
    return c


def matmul_bias_gelu(a, b, bias):
    """gelu(A B + bias), fused, on a GPU."""
    return matmul(a, b, bias)

# %% [markdown]
# **Predict, then measure.** On a GPU: the line is the machine's peak, times the part of C in the area that whole waves pay for; the dots are
# `matmul`, with your kernels (for the last shape, on an H100 or H200, with ours), and cuBLAS, in a CUDA graph, where no launch is paid.
# Without a GPU: the line is the formula for what a wave loads; the dots are counted from your order.

# %%
PRODUCTS = [(4096, 4096, 4096), (8192, 8192, 8192), (4000, 4096, 4096), (8192, 2048, 4096),
            (4096, 11008, 4096), (1000, 5000, 3000)]

def flops_per_s(functions, shape):
    m, n, k = shape
    a, b = (torch.randn(*size, device=where).bfloat16() for size in ((m, k), (k, n)))
    calls = [functools.partial(function, a, b) for function in functions]
    # In turns: a GPU that is hot, or at its limit of power, is slower for all.
    return 2 * m * n * k / np.array(timing.in_turns(timing.in_graph_s, *calls))

# %%
def draw_speed(peak):
    limits = [peak * m * n / min(area_paid(m, n, 256), area_paid(m, n, 320)) for m, n, _ in PRODUCTS]
    speeds = np.array([flops_per_s((matmul, torch.mm), shape) for shape in PRODUCTS])
    ax = figures.predicted_and_measured(
        range(6), {"ours": limits}, {"ours": speeds[:, 0], "cuBLAS": speeds[:, 1]}, xlabel="M × N × K",
        ylabel="speed", yunit="FLOP/s", title=f"{device.name()}: our matmul beside cuBLAS")
    ax.lines[-1].set_xdata([x + 0.12 for x in range(6)])  # cuBLAS's dots, beside ours
    ax.set(ylim=(0, None), xticks=range(6), xticklabels=["\n".join(map(str, s)) for s in PRODUCTS])

# %% tags=["nbval-ignore-output"]
def draw_waves():
    groups = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    strips_mb = {"128 × 128": (1.05, 1.05), "128 × 256": (1.05, 2.1)}  # of A and B
    formula = {name: [g * a + 132 / g * b for g in groups] for name, (a, b) in strips_mb.items()}
    counted = {name: [wave_bytes(g, 64, 512, 0, *mb) for g in groups] for name, mb in strips_mb.items()}
    figures.predicted_and_measured(groups, formula, counted, dots_are="counted", log="xy", ylabel="MB",
                                   xlabel="rows of tiles in a band", title="What 132 programs load")

draw_speed(machine.profile().flops_per_s["bf16"]) if device.has_gpu() else draw_waves();

# %% [markdown]
# The last shape once more: your kernel of exercise 7.2 (where it isn't solved, tiles of 256 columns), ours, and cuBLAS. What does a warp that loads
# bring?

# %% tags=["nbval-ignore-output"]
if on_hopper():
    yours = functools.partial(matmul, launch=launch_wide)
    calls = {"yours": yours, "a warp loads": matmul, "cuBLAS": torch.mm}
    for name, speed in zip(calls, flops_per_s(calls.values(), PRODUCTS[-1])):
        print(f"{name:14}{2e6 * math.prod(PRODUCTS[-1]) / speed:5.1f} µs")
else:
    print("There is no H100 or H200 here; what an H200 took stands below.")

# %% tags=["nbval-ignore-output"]
shape = (4096, 11008, 4096)
if device.has_gpu():
    speed, source = flops_per_s([matmul], shape)[0], f"lab 05, measured on {device.name()}"
else:
    speed, source = 2 * math.prod(shape) / candidates(shape)[1].min(), "lab 05, measured on an H200"
ledger.constant("bf16 matmul, large matrices", speed, "FLOP/s", source)
ledger.table()

# %% [markdown]
# On an H200 (`make bench`, Triton 3.7): 1.00, 1.03, 1.00, 1.00 and 1.05 of cuBLAS's speed, 0.96 for the last shape (1.00 in another run). With bias
# and GELU 1.01 to 1.10 times `torch.compile`'s. The last shape, step by step: tiles of 256 columns 81 µs, of 320 columns 56 to 62, with rows 8
# apart 54 to 57, with a warp that loads 50 to 52; cuBLAS 48 to 50. Without a CUDA graph so short a product waits for its launch: Python takes
# 0.1 ms and more for five descriptors.

# %% [markdown]
# What is left? A row of B takes 10,000 bytes, no multiple of 128 either, and a tile's rows of B must hold the same columns, wherever lines
# begin: most fetches cost two lines (with padded rows, 132 tiles of 256 columns took 38 µs, not 47). cuBLAS runs
# `nvjet_sm90_tst_160x256_64x3_2x1`, says a profiler: tiles of 256 × 160, no power of two, in *clusters* of 2 programs, for which one fetch
# fills both. Clusters without a loading warp did not help: 56 to 58 µs.
#
# **Tiles feed a tensor core that are large, shared, on their way early, and as many as there are places for them.**

# %% [markdown]
# ## Where it is used
#
# - The bands are from Triton's tutorial on matmul; CUTLASS calls it *threadblock swizzling*. cuBLAS chooses among hundreds of kernels by a model
#   of its own.
# - AutoTVM: Chen et al., *Learning to Optimize Tensor Programs* (2018). PyTorch's Inductor measures some dozen configurations
#   (`max-autotune`), and fuses epilogues as you did.
# - *The Hardware Lottery*: Sara Hooker (2020). The slides "15x" and the log-space matmul: Horace He (2024).
# - Loading and multiplying warps: *producers* and *consumers* in CUTLASS; FlashAttention-3 (Shah et al., 2024) is made of them.
# - The notes of 2024 say that "achieving very high-performance is not possible with Triton". For these shapes it is, once with Gluon's help.

# %% [markdown]
# **Limits of ours.** With few tiles and long sums (512 × 512 × 65,536), one wave is mostly empty whatever the width; then several programs must
# share a tile's sum (*split-K*, *stream-K*). Descriptors ask for rows that begin at multiples of 16 bytes. And the next GPUs do it
# otherwise: on a B200 the sums live in a memory of the tensor core's own, so that tiles of 256 × 256 cost no registers.

# %% [markdown]
# ## Done
#
# `python -m grading 05` grades your lab.
#
# **Harder.** With split-K, s programs share a tile: each sums K/s products, and adds its part to C in memory, in float32. What does
# it bring and cost for 512 × 512 × 65,536, with tiles of 128 × 128 on 132 multiprocessors?
#
# <details><summary>Answer</summary>
#
# 16 tiles keep 16 multiprocessors busy. s = 8 makes it 128, nearly eight times as fast: 50 µs at 700 TFLOP/s. The price: 8 · 512² · 4 bytes
# = 8 MB of atomic additions in place of 0.5 MB stored, 2 µs; C must be zero before, and the last bits depend on the order of the
# additions.
# </details>
