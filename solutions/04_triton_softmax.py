# %% [markdown]
# # 04 · Softmax in Triton
#
# **How do you move each byte exactly once?**
#
# After this lab you can
# - count the bytes that a chain of operations moves, and fuse the chain until each byte is moved once;
# - write kernels in Triton: blocks of pointers, masks, reductions, rows that don't fit into a block;
# - take the maximum and the sum of a row in a single pass, the rewrite that FlashAttention stands on.
#
# *Needs* labs 01 to 03. *Takes* about 120 minutes. Every cell runs on a laptop; with a GPU, the last figure measures.
#
# What you want counted stands in the hole's cell: the grader reads those cells and no others.

# %% tags=["setup"]
import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from common import device, figures, ledger, machine, tiles, timing
from common.checks import agree

figures.use_style()
rng = np.random.default_rng()

# %% tags=["driver"]
device.prepare_triton()  # before anything imports Triton: without a GPU, it interprets the kernels
import triton
import triton.language as tl

# %% tags=["setup"]
F32, BF16 = torch.float32, torch.bfloat16
ROUNDING = {F32: 1e-5, BF16: 2.0**-7}  # allowed, relative: some steps of fp32, one of bf16


def random_rows(rows, columns, dtype):
    """Random rows out of a wider matrix, whose stride is not the number of columns; and an empty y."""
    wide = torch.from_numpy(3 * rng.standard_normal((rows, columns + 2)) - 1).to(dtype)
    return wide[:, :columns], torch.full((rows, columns), torch.nan, dtype=dtype)


def eager_causal(x, scale):
    """Causal softmax of scale * x, (heads, queries, keys), in 3 kernels; the last query sees all."""
    visible = torch.ones(x.shape[1:], dtype=torch.bool).tril(x.shape[2] - x.shape[1])
    return (x * scale).masked_fill(~visible, -torch.inf).softmax(2)

# %% tags=["setup"]
class BytesMoved(TorchDispatchMode):
    """Adds up the bytes of inputs and result of each operation that PyTorch executes meanwhile."""

    total = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self.total += sum(t.nbytes for t in (*args, result) if isinstance(t, torch.Tensor))
        return result


def bytes_moved(function, *args):
    """Bytes that function(*args) moves, operation by operation."""
    with BytesMoved() as moved:
        function(*args)
    return moved.total

# %% tags=["setup"]
def own_share(report, most, what):
    """Asserts that no program of a launch moves more than `most` bytes."""
    who, moved, imbalance = report.busiest.program[0], report.busiest.bytes, report.imbalance
    longest = f"; load imbalance {imbalance:.3g}: a launch lasts as long as its busiest program"
    assert moved <= most, f"program {who} moves {moved} bytes, and {most} will do: {what}" \
        + longest * (imbalance > 1)

# %% [markdown]
# **Recall 1** (lab 02). Softmax does about five FLOPs an element. A GPU does 67 · 10¹² FLOP/s in fp32 and moves 4.28 · 10¹² bytes a
# second. What limits it?
#
# <details><summary>Answer</summary>
#
# An element is read and written: 8 bytes, 5 FLOPs, an intensity of 0.6 FLOP/byte. The ridge is at 67 / 4.28 = 16. Memory limits, by
# far, so only bytes count.
# </details>
#
# **Recall 2** (lab 03). A warp's 32 threads each load one float. How many sectors is that at best, and at worst?
#
# <details><summary>Answer</summary>
#
# 128 bytes in a row are 4 sectors of 32 bytes. Thirty-two floats far apart are 32 sectors: eight times the traffic.
# </details>

# %% [markdown]
# ## See it
#
# Softmax turns a row of scores into weights that are positive and add up to 1:
#
# $$y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}} \qquad m = \max_j x_j$$
#
# (Why subtract m? It changes nothing on paper, but $e^{89}$ is infinite in fp32.) Written down in PyTorch it is five operations, each
# of them a *kernel*, a function that runs on the GPU. `torch.softmax` does the same sums in one. How much slower are the five?

# %% tags=["setup"]
def eager(x):
    """softmax of each row of x, in five kernels."""
    maximum = x.amax(1, keepdim=True)
    shifted = x - maximum
    numerator = shifted.exp()
    total = numerator.sum(1, keepdim=True)
    return numerator / total

# %% tags=["nbval-ignore-output"]
where, count = ("cuda", 2**16) if device.has_gpu() else ("cpu", 2**11)
x = torch.randn(count, 4096, device=where)
eager_s = timing.measure(eager, x, min_time_s=0.5).median_s
one_s = timing.measure(torch.softmax, x, 1, min_time_s=0.5).median_s
print("five kernels ", ledger.show(eager_s, "s"))
print("torch.softmax", ledger.show(one_s, "s"))

# %% [markdown]
# Same arithmetic, same result. What was saved? And is `torch.softmax` the end of it? You will write the kernel yourself, and see how
# near it comes to the limit: to read x once, write y once, and be done when a copy would be.
#
# ## Part 1 · Count first
#
# A kernel can't leave anything in the registers for the next one. So each of the five reads its inputs from memory and writes its result
# there: x has M rows of N elements, `maximum` and `total` have M.
#
# ### Exercise 1.1 · eager_bytes
#
# Write down what the five lines of `eager` move, and the least that any softmax must move.

# %% tags=["hole"]
def eager_bytes(rows, columns, itemsize):
    """Bytes that the five kernels of `eager` read and write together, as an int. About four lines.

    itemsize: bytes an element. Each kernel reads each of its inputs once and writes its result once.
    """
    # BEGIN SOLUTION
    matrix, vector = rows * columns, rows
    reductions = 2 * (matrix + vector)  # amax, sum: a matrix read, a vector written
    with_vector = 2 * (matrix + vector + matrix)  # subtraction, division
    return itemsize * (reductions + with_vector + 2 * matrix)  # exp
    # END SOLUTION


def least_bytes(rows, columns, itemsize):
    """Bytes that any softmax must move, as an int: x read once, y written once. One line."""
    # BEGIN SOLUTION
    return itemsize * 2 * rows * columns
    # END SOLUTION

# %% tags=["check"]
for dtype in (torch.float32, torch.bfloat16) * 10:
    (m, n), size = rng.integers(2, 99, 2).tolist(), dtype.itemsize
    matrix, vector = m * n * size, m * size
    moved = bytes_moved(eager, torch.zeros(m, n, dtype=dtype))
    agree(eager_bytes(m, n, size), moved, f"eager_bytes({m}, {n}, {size})", mistakes={
        "That counts elements; each takes itemsize bytes.": moved // size,
        "The vectors are missing: two are written, and two are read.": 8 * matrix,
        "maximum and total are read again, each by a later kernel.": 8 * matrix + 2 * vector,
        "Those are the reads: each kernel writes its result, too.": 5 * matrix + 2 * vector})
    mistakes = {"x is read, and y is written: two transfers.": matrix}
    agree(least_bytes(m, n, size), 2 * matrix, f"least_bytes({m}, {n}, {size})", mistakes=mistakes)
print("eager_bytes agrees with what PyTorch executes, for 20 matrices")

# %% [markdown]
# <details><summary>Hint</summary>
#
# A line at a time: `x.amax` reads MN and writes M; `x - maximum` reads MN + M and writes MN; and so on. (The check asks PyTorch, by
# `bytes_moved` of the set-up.)
# </details>
#
# 8 · MN + 4 · M elements against 2 · MN. If time goes with bytes, fusion is worth a factor of four. Your functions **predict** it for the
# matrix above:

# %% tags=["nbval-ignore-output"]
name = "softmax in five kernels / in one"
ledger.predict(name, eager_bytes(*x.shape, 4) / least_bytes(*x.shape, 4), "times")
ledger.measured(name, eager_s / one_s, "times")
ledger.table()

# %% [markdown]
# **A chain of elementwise operations and reductions costs its bytes. Fused into one kernel, it costs one trip to memory.**
#
# ## Part 2 · Programs that work on blocks
#
# In CUDA you write what one *thread* does, in Triton what one *program* does, with whole blocks of numbers:
#
# - `tl.program_id(0)` says which program this is; a grid of them runs, in any order.
# - `tl.arange(0, BLOCK)` is a block of indices; its length is a power of two, known at compile time.
# - A tensor comes as the address of its first element. `x + offsets` is a block of addresses; `tl.load` fetches them.
# - `tl.sum`, `tl.max` reduce a block.

# %% [markdown]
# Which of a program's threads does what, when they wait for each other, what goes through shared memory: the compiler's business. (The
# notes say that "the triton kernel will be mapped to a single block (SM) of threads". It is each *program* that becomes a block of threads,
# and an SM holds many of them.)
#
# A first kernel, and its cost. `tiles.count` launches it in Triton's interpreter and counts what its programs load and store.

# %%
@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i))

numbers, doubled = torch.arange(128.0), torch.zeros(128)
print(tiles.count(double, (4,), numbers, doubled, BLOCK=32))

# %% [markdown]
# Four programs, each with one *request* of 32 elements. That is 128 bytes or four *sectors*, lab 03's 32-byte pieces. And with 100
# numbers?

# %%
try:
    tiles.count(double, (4,), numbers[:100].clone(), torch.zeros(100), BLOCK=32)
except tiles.OutOfBoundsError as error:
    print(error)

# %% [markdown]
# On a GPU nobody tells you: the kernel reads whatever lies there, and writes over it. Hence the *mask*, a block of bools: where it is
# False nothing is loaded or stored, and a load gives `other` instead (or anything, if you name no `other`).
#
# ```python
# tl.load(x + i, mask=i < n, other=0.0)
# tl.store(out + i, value, mask=i < n)
# ```
#
# ### Exercise 2.1 · add
#
# Add two vectors of any length. Program p computes elements p · BLOCK to (p + 1) · BLOCK − 1, as far as there are any.

# %% tags=["hole"]
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for i < n. About four lines.

    x, y, out: n elements each. There are n / BLOCK programs, rounded up.
    """
    # BEGIN SOLUTION
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = element < n
    total = tl.load(x + element, mask=inside) + tl.load(y + element, mask=inside)
    tl.store(out + element, total, mask=inside)
    # END SOLUTION

# %% tags=["check"]
for n, block, programs in [(64, 16, 4), (100, 32, 4), (1, 16, 1), (257, 64, 5), (1000, 256, 4)]:
    x, y, out = *torch.from_numpy(rng.standard_normal((2, n))).float(), torch.full((n,), torch.nan)
    want, first = x + y, torch.cat([x[:block] + y[:block], out[block:]])
    report = tiles.count(add, (programs,), x, y, out, n, BLOCK=block)
    agree(out, want, f"out of {n} elements in blocks of {block}", mistakes={
        "Every program did the first block: where does program_id come in?": first})
    requests = [each.requests for each in (report.loads, report.stores, report.atomics)]
    assert requests == [2 * programs, programs, 0], "{} loads, {} stores and {} atomic updates; two " \
        "loads and a store a program will do, of a whole block each".format(*requests)
    own_share(report, 3 * x[:block].nbytes, "its own block")
print("add is right for five lengths, with two loads and a store a program")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)` are the program's indices, and `mask=i < n` belongs to both loads and to the store.
# </details>

# %%
x, y, out = torch.rand(3, 100)
report = tiles.count(add, (4,), x, y, out, 100, BLOCK=32)
report.draw("x");

# %% [markdown]
# Now softmax. If a row fits into a block, all between load and store happens in registers: the notes' kernel, and Triton's own first
# example.
#
# Three things decide if it is right:
#
# - what a masked lane holds (it takes part in the maximum and in the sum);
# - where a row begins: x may be a slice of a wider matrix (lab 01), so its rows are `x_stride` elements apart; y has its own stride;
# - the format: bf16 has 8 bits of precision, so compute in float32 (`.to(tl.float32)` right after the load; the store rounds).
#
# ### Exercise 2.2 · softmax_rows
#
# Write it: a program a row, one load, one store.

# %% tags=["hole"]
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    """y = softmax of each row of x; program p does row p. About seven lines.

    x, y: rows of `columns` neighbouring elements, fp32 or bf16; x_stride, y_stride: elements from
    one row to the next. BLOCK >= columns.
    """
    # BEGIN SOLUTION
    row = tl.program_id(0).to(tl.int64)  # times the stride, it may pass 2**31
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 0), mask=inside)
    # END SOLUTION

# %% tags=["check"] points=2
for rows, columns, block, dtype in [
    (3, 5, 8, F32), (4, 1, 1, F32), (2, 128, 128, BF16), (3, 33, 64, F32), (3, 600, 1024, BF16)]:
    x, y = random_rows(rows, columns, dtype)
    exact, padded = x.double(), F.pad(x.double(), (0, block - columns))
    unstrided = x.as_strided(x.shape, (columns, 1)).double()
    want, case = exact.softmax(1).to(dtype), f"y of {rows} × {columns} {dtype}, block of {block}"
    tiles.count(softmax_rows, (rows,), x, y, x.stride(0), columns, columns, BLOCK=block)
    agree(y, want, case, rtol=ROUNDING[dtype], mistakes={
        "A masked lane must not count: e^0 is 1.": padded.softmax(1)[:, :columns].to(dtype),
        "Rows of x are x_stride elements apart, not columns.": unstrided.softmax(1).to(dtype),
        "Divide by the sum of the row.": (exact - exact.amax(1, True)).exp().to(dtype)})
print("softmax_rows agrees with float64 for five shapes, each a slice of a wider matrix")

# %% tags=["check"]
x, y = torch.from_numpy(rng.standard_normal((6, 40))).float(), torch.full((6, 50), torch.nan)
x[0], x[1], x[2], x[5] = 200 * torch.arange(40), 1e4 + 10 * x[1], -1e4, x[5] - 200
x[3, 5:30] = x[4] = -torch.inf
want, naive = x.double().softmax(1).float(), x.exp() / x.exp().sum(1, keepdim=True)
tiles.count(softmax_rows, (6,), x, y, 40, 50, 40, BLOCK=64)
agree(y[:, 40:], torch.full((6, 10), torch.nan), "y's columns beyond the rows (they are not yours)")
kinds = "rising", "around 1e4", "all -1e4", "in part -inf", "all -inf", "far below 0"
for row, kind in enumerate(kinds):
    agree(y[row, :40], want[row], f"y of a row that is {kind}", rtol=1e-5, mistakes={
        "e^1000 overflows, e^-1000 is 0: subtract the row's maximum, its own, first.": naive[row],
        "A masked lane must be -inf.": F.pad(x[row], (0, 24), value=-1e4).softmax(0)[:40]})
print("softmax_rows: rows of 1e4, of equal numbers, and of -inf (NaN, as in PyTorch)")

# %% tags=["check"]
for rows, columns, block in [(7, 100, 128), (5, 64, 64)]:
    x, y = torch.rand(2, rows, columns)
    report = tiles.count(softmax_rows, (rows,), x, y, columns, columns, columns, BLOCK=block)
    agree(y, x.softmax(1), f"y of {rows} × {columns}", rtol=1e-5)
    moved, loads = report.loads.bytes + report.stores.bytes, report.loads.requests
    assert moved == 2 * x.nbytes, f"{moved} bytes for x of {x.nbytes}: one load and one store will do"
    assert loads == rows, f"{loads} loads for {rows} rows: one a row will do"
    own_share(report, 2 * x[0].nbytes, "its own row")
print("softmax_rows moves 2 · x.nbytes, in one load and one store a row")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `values = tl.load(x + row * x_stride + column, mask=column < columns, other=float("-inf")).to(tl.float32)`. Then `tl.max(values, 0)`,
# `tl.exp`, `tl.sum`, and a store with the same mask.
# </details>
#
# **A question.** The notes' kernel computes `z_ptr + row*stride + cols` for the result, with the stride of x. When is that wrong?
#
# <details><summary>Answer</summary>
#
# When x is a slice: PyTorch makes a new, gapless z for it, whose rows are closer together. The kernel writes between the rows, and
# past the end.
# </details>
#
# **Each byte once: load a block, do all the work in registers, store it.**

# %% [markdown]
# ## Part 3 · Rows wider than a block
#
# A block must fit into the registers of one multiprocessor. A row of 100,000 scores, for a language model's vocabulary, does not. So it
# comes in pieces, more than once:
#
# 1. for the maximum m,
# 2. for the sum of $e^{x_j - m}$,
# 3. for the result.
#
# Three reads and a write:

# %% tags=["driver"]
@triton.jit
def softmax_three_reads(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    """y = softmax of each row of x, a block at a time; program p does row p."""
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = float("-inf"), 0.0
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        maximum = tl.maximum(maximum, tl.max(block, 0))
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp(block - maximum), 0)
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp(block - maximum) / total, mask=j < columns)

# %% [markdown]
# Can the sum begin before the maximum is known? Take the maximum *so far*. When a larger one comes, all terms of the sum are wrong, but by
# the same factor:
#
# $$\sum_j e^{x_j - m_\text{new}} = e^{m_\text{old} - m_\text{new}} \sum_j e^{x_j - m_\text{old}}$$
#
# One multiplication mends the sum. So a pass has to carry two numbers, the maximum so far and the sum so far:
#
# $$m \leftarrow \max(m, \max_j x_j) \qquad s \leftarrow s \cdot e^{m_\text{old} - m} + \sum_j e^{x_j - m}$$
#
# with j over the block that arrives. The first two reads have become one. In NumPy:

# %%
def running(row, block):  # maximum and sum after each block
    maximum, total, states = -np.inf, 0.0, []
    for values in np.split(row, range(block, len(row), block)):
        higher = max(maximum, values.max())
        total = total * np.exp(maximum - higher) + np.exp(values - higher).sum()
        maximum = higher
        states.append((maximum, total))
    return np.array(states).T

# %%
noise, slope = np.random.default_rng(4).standard_normal(64), np.linspace(-4, 4, 64)
ROWS = {"rising": noise + slope, "random": noise, "16 times -inf": np.r_[[-np.inf] * 16, noise[16:]]}

def draw_row(ax, values, maximum, block):
    edges = np.arange(0, 64, block) - 0.5
    ax.plot(values, "o", color=figures.QUIET, markersize=4, zorder=3, label="x")
    ax.hlines(maximum, edges, edges + block, color="C0", linewidth=2.5, label="maximum so far")
    ax.set(title="The maximum moves, the sum follows", xticks=edges, xticklabels=[], ylabel="x")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))

# %%
def draw_sums(ax, values, maximum, total, block):
    middles, wanted = np.arange(block / 2, 64, block) - 0.5, np.exp(values - values.max()).sum()
    parts = np.exp(values.reshape(-1, block) - maximum[:, None]).sum(1)
    ax.bar(middles, total, 0.85 * block, color="C0", alpha=0.4, label="sum so far")
    ax.plot(middles, parts.cumsum(), "x", color="C1", markeredgecolor="C1", label="never mended")
    ax.axhline(wanted, color="C0", linestyle=":", label="of the whole row")
    ax.set(xlabel="blocks, as they arrive", ylabel="sum", xlim=(-1, 64), ylim=(0, None))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))

# %% tags=["nbval-ignore-output"]
def online(row="rising", block=8):
    maximum, total = running(ROWS[row], block)
    above, below = plt.subplots(2, 1, sharex=True)[1]
    draw_row(above, ROWS[row], maximum, block)
    draw_sums(below, ROWS[row], maximum, total, block)

online()
ipywidgets.interact(online, row=list(ROWS), block=[4, 8, 16, 32]);

# %% [markdown]
# Where the maximum moves, the bars shrink; the crosses are what you get if they don't. The last bar must end on the dotted line.
#
# Try "16 times -inf" with blocks of 8: no bars. After a block of nothing but −inf the maximum is −inf, and −inf − (−inf) is not a number.
# Such rows are common: short prompts in a batch are padded on the left, and the padding is masked.
#
# ### Exercise 3.1 · softmax_online
#
# Write it with two reads: one for maximum and sum together, one for the result. A row may begin with any number of −inf; a row of
# nothing else is NaN, as in PyTorch.

# %% tags=["hole"]
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    """y = softmax of each row of x, a block at a time; program p does row p. About eighteen lines.

    x, y, x_stride, y_stride, columns as in softmax_rows; BLOCK may be smaller than a row. Each element
    is loaded twice and stored once.
    """
    # BEGIN SOLUTION
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row = x + row * x_stride, y + row * y_stride
    lane = tl.arange(0, BLOCK)
    # A maximum and a sum a lane: the lanes meet once, after the loop, and not at every block.
    maximum = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        inside = first + lane < columns
        values = tl.load(x_row + first + lane, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(maximum, values)
        shift = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf would be NaN
        total = total * tl.exp(maximum - shift) + tl.exp(values - shift)
        maximum = higher
    top = tl.max(maximum, 0)
    scale = 1 / tl.sum(total * tl.exp(maximum - top), 0)
    for back in range(0, columns, BLOCK):
        first = (columns - 1) // BLOCK * BLOCK - back  # backwards: what came last is still in a cache
        inside = first + lane < columns
        values = tl.load(x_row + first + lane, mask=inside).to(tl.float32)
        tl.store(y_row + first + lane, tl.exp(values - top) * scale, mask=inside)
    # END SOLUTION

# %% tags=["check"] points=2
for rows, columns, block, dtype in [(3, 99, 16, F32), (2, 64, 16, BF16), (3, 5, 8, F32)]:
    x, y = random_rows(rows, columns, dtype)
    x += torch.linspace(-6, 6, columns)  # rising: the maximum moves
    exact, missing, near = x.double(), -columns % block, ROUNDING[dtype]
    parts = F.pad(exact, (0, missing), value=-torch.inf).unflatten(1, (-1, block))
    total = (parts - parts.amax(2, True).cummax(1).values).exp().sum((1, 2))
    unmended = ((exact - exact.amax(1, True)).exp() / total[:, None]).to(dtype)
    want, zeros = exact.softmax(1).to(dtype), F.pad(exact, (0, missing)).softmax(1)[:, :columns]
    tiles.count(softmax_online, (rows,), x, y, x.stride(0), columns, columns, BLOCK=block)
    agree(y, want, f"y of {rows} × {columns} {dtype}, blocks of {block}", rtol=near, mistakes={
        "A masked lane counts.": zeros.to(dtype), "Multiply the old sum by e^(old - new).": unmended})
print("softmax_online agrees with float64 for three shapes, with rows that rise")

# %% tags=["check"]
for start in (16, 20, 32, 40, 0):
    x, y = torch.from_numpy(rng.standard_normal((3, 40))).float(), torch.full((3, 40), torch.nan)
    x[:, :start] = -torch.inf
    x[1] *= 1e4
    x[2] = 7.0 if start else -torch.inf
    tiles.count(softmax_online, (3,), x, y, 40, 40, 40, BLOCK=16)
    want, blocked = x.double().softmax(1).float(), x[:, :16].amax(1, keepdim=True) == -torch.inf
    agree(y, want, f"y of rows that begin with {start} × -inf, blocks of 16", rtol=1e-5, mistakes={
        "-inf - -inf is NaN: your first block is all -inf.": want.masked_fill(blocked, torch.nan)})
print("softmax_online: rows that begin with -inf, of 1e4, of equal numbers, of -inf alone")

# %% tags=["check"]
for rows, columns, block in [(4, 100, 32), (2, 64, 64), (3, 96, 16)]:
    x, y = torch.rand(2, rows, columns)
    report = tiles.count(softmax_online, (rows,), x, y, columns, columns, columns, BLOCK=block)
    agree(y, x.softmax(1), f"y of {rows} × {columns}", rtol=1e-5)
    reads, writes = report.loads.bytes / x.nbytes, report.stores.bytes / y.nbytes
    assert (reads, writes) == (2, 1), f"x read {reads:g} times, y written {writes:g}; 2 and 1 will do"
    requests, blocks = report.loads.requests, rows * -(-columns // block)
    assert requests == 2 * blocks, f"{requests} loads for {blocks} blocks: load each twice, and whole"
    own_share(report, 3 * x[0].nbytes, "its own row")
print("softmax_online reads x twice and writes y once, in whole blocks")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take the first two loops of `softmax_three_reads` together. Per block: the new maximum; `total` times e^(old − new), plus the block's
# own sum. While the new maximum is −inf, subtract 0 instead: `tl.where(new == float("-inf"), 0.0, new)`.
# </details>
#
# (Ours keeps a maximum and a sum for each lane, and merges them after the loop, by the same formula: the threads don't wait for each
# other at every block. And it comes back from the end, which is still in a cache.)
#
# What did each rewrite save?

# %%
x, y = torch.randn(4, 1000), torch.empty(4, 1000)
for kernel, block in (softmax_three_reads, 256), (softmax_online, 256), (softmax_rows, 1024):
    report = tiles.count(kernel, (4,), x, y, 1000, 1000, 1000, BLOCK=block)
    counts = report.loads.bytes / x.nbytes, report.stores.bytes / x.nbytes, report.loads.sectors
    print("{:20} reads {:g}, writes {:g}, sectors loaded {}".format(kernel.__name__, *counts))

# %% [markdown]
# **Maximum and sum can travel together: a sum under a wrong maximum is wrong by a factor, and that can be mended.**
#
# ## Part 4 · What to fuse
#
# What has a row in registers may as well do what comes next.
#
# *The gradient.* The Jacobian $\partial y_i / \partial x_j = y_i (\delta_{ij} - y_j)$, times the gradient of the loss, $\bar y$:
#
# $$\bar x_j = \sum_i \bar y_i\, y_i\, (\delta_{ij} - y_j) = y_j \Bigl(\bar y_j - \sum_i \bar y_i\, y_i\Bigr)$$
#
# An N × N matrix that is never built: one sum a row is left of it.
#
# ### Exercise 4.1 · softmax_backward
#
# Read y and its gradient once, write x's gradient once.

# %% tags=["hole"]
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    """x_gradient from y = softmax(x) and y_gradient; program p does row p. About seven lines.

    All three have rows of `columns` elements (fp32 or bf16), without gaps. BLOCK >= columns.
    """
    # BEGIN SOLUTION
    lane = tl.arange(0, BLOCK)
    inside = lane < columns
    place = tl.program_id(0).to(tl.int64) * columns + lane
    weight = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(y_gradient + place, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(weight * gradient, 0)  # y's elements are weights that add up to 1
    tl.store(x_gradient + place, weight * (gradient - mean), mask=inside)
    # END SOLUTION

# %% tags=["check"]
for rows, columns, block, dtype in [(3, 5, 8, F32), (2, 64, 64, F32), (3, 100, 128, BF16)]:
    x, given = torch.from_numpy(rng.standard_normal((2, rows, columns))).to(dtype)
    y, got, near = x.softmax(1), torch.full_like(x, torch.nan), ROUNDING[dtype]
    wide_y, wide = y.double(), given.double()
    want = torch._softmax_backward_data(wide, wide_y, 1, wide.dtype).to(dtype)
    report = tiles.count(softmax_backward, (rows,), y, given, got, columns, BLOCK=block)
    agree(got, want, f"x_gradient, {rows} × {columns} {dtype}", rtol=near, atol=1e-6, mistakes={
        "The row's sum is missing: all outputs depend on x_j.": (wide_y * wide).to(dtype),
        "That is the Jacobian's diagonal only.": (wide_y * (1 - wide_y) * wide).to(dtype),
        "Sum y times its gradient, not the gradient.": (wide_y * (wide - wide.sum(1, True))).to(dtype)})
    own_share(report, 3 * y[0].nbytes, "two reads and a write a row")
print("softmax_backward agrees with PyTorch in float64 for three shapes, and moves each byte once")

# %% [markdown]
# *The mask.* In a language model, query i may look at the keys up to i only (*causal*). In PyTorch (`eager_causal`, in the set-up) that is
# three kernels: scale the scores, fill the forbidden ones with −inf, take the softmax; over 6 elements moved an element.
#
# In yours, scale and mask cost no byte, and save some: of N × N scores you load N(N + 1)/2.
#
# ### Exercise 4.2 · softmax_masked_scaled
#
# There may be more keys than queries: the queries are the *last* ones, and the last of them sees all keys. Heads lie below each other: row
# r is query r mod `queries`. The scale may be negative.

# %% tags=["hole"]
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    """y = softmax of scale * x under a causal mask; program p does row p. About ten lines.

    x, y: (heads * queries, keys), fp32 or bf16, no gaps; queries <= keys <= BLOCK. Query i sees keys up
    to i + keys - queries, and only these are loaded; y is 0 at the others.
    """
    # BEGIN SOLUTION
    row = tl.program_id(0).to(tl.int64)
    key = tl.arange(0, BLOCK)
    visible = key <= row % queries + keys - queries
    scores = tl.load(x + row * keys + key, mask=visible, other=0.0).to(tl.float32) * scale
    scores = tl.where(visible, scores, float("-inf"))  # after the scaling: -inf times -1 is inf
    weight = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=key < keys)
    # END SOLUTION

# %% tags=["check"] points=2
for heads, queries, keys, scale in [(1, 8, 8, 0.5), (2, 5, 9, 0.125), (3, 1, 6, 1.5), (2, 20, 20, -3)]:
    x = torch.from_numpy(3 * rng.standard_normal((heads, queries, keys))).float()
    y, seen = torch.full_like(x, torch.nan), torch.ones(queries, keys).tril(keys - queries)
    want, scaled = eager_causal(x.double(), scale).float(), scale * x
    tiles.count(softmax_masked_scaled, (heads * queries,), x, y, queries, keys, scale, BLOCK=32)
    agree(y, want, f"y of {heads} × {queries} × {keys}, scale {scale}", rtol=1e-5, mistakes={
        "Fill with -inf before the softmax, not with 0 after it.": scaled.softmax(2) * seen,
        "Masked scores must be -inf: a score of 0 counts.": (scaled * seen).softmax(2) * seen,
        "The scale is missing.": eager_causal(x, 1.0),
        "-inf times a negative scale is inf: mask after scaling.": torch.full_like(x, torch.nan),
        "The last query sees all keys.": scaled.masked_fill(seen.tril() == 0, -torch.inf).softmax(2)})
print("softmax_masked_scaled agrees with float64 for four shapes")

# %% tags=["check"]
for heads, queries, keys in [(1, 16, 16), (2, 6, 10)]:
    x, y = torch.rand(2, heads * queries, keys)
    want = eager_causal(x.view(heads, queries, keys), 1.0).view_as(x)
    report = tiles.count(softmax_masked_scaled, (len(x),), x, y, queries, keys, 1.0, BLOCK=16)
    agree(y, want, f"y of {heads} × {queries} × {keys}", rtol=1e-5)
    loaded, visible = report.loads.elements, int((want > 0).sum())
    assert loaded == visible, f"{loaded} scores loaded; {visible} are visible, no more need be loaded"
    assert report.stores.elements == x.numel(), "every element of y is stored, once"
    own_share(report, 2 * x[0].nbytes, "its own row")
print("softmax_masked_scaled loads what is visible, and no more")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two masks: `visible` for the load, `key < keys` for the store. A masked-off lane of the load gets `other`, which is then scaled like the
# rest; so put −inf in afterwards, with `tl.where`.
# </details>
#
# What PyTorch moves for the same; and which scores your programs load:

# %%
x, y = torch.randn(2, 8, 32, 32)
moved = bytes_moved(eager_causal, x, 0.125)
report = tiles.count(softmax_masked_scaled, (8 * 32,), x, y, 32, 32, 0.125, BLOCK=32)
ours = report.loads.bytes + report.stores.bytes
print(f"eager {moved / x.nbytes:.2f}, ours {ours / x.nbytes:.2f} times x.nbytes")
tiles.count(softmax_masked_scaled, (32,), x[0], y[0], 32, 32, 0.125, BLOCK=32).draw("x");

# %% [markdown]
# **What comes right before or after a memory-bound kernel is free, if it is in the kernel.**
#
# ## Part 5 · Narrow rows
#
# One program a row reads each byte once; but memory comes in sectors of 32 bytes. Sixteen rows of N floats, and the sectors that
# `softmax_rows` asks for:

# %%
for width in (1, 2, 4, 8, 64):
    x, y = torch.rand(2, 16, width)
    loads = tiles.count(softmax_rows, (16,), x, y, width, width, width, BLOCK=width).loads
    print(f"rows of {width:2}: {loads.bytes:5,} bytes wanted, {32 * loads.sectors:5,} fetched")

# %% [markdown]
# Below 8 floats, each row fetches what its neighbours fetch, too. And programs have a price: a row of 64 floats, which an H200 reads and
# writes in a tenth of a nanosecond, is hardly worth starting one. So take several rows. Blocks can have two axes:
#
# ```python
# row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)      # (ROWS,)
# column = tl.arange(0, BLOCK)                            # (BLOCK,)
# place = row[:, None] * stride + column[None, :]         # (ROWS, BLOCK)
# ```
#
# Lab 01's broadcasting. `tl.max(values, 1)` has shape (ROWS,), and `tl.max(values, 1)[:, None]` goes back with `values`.
#
# ### Exercise 5.1 · softmax_tile
#
# `softmax_rows` for ROWS rows a program. The last program may have fewer.

# %% tags=["hole"]
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """y = softmax of each row of x; program p begins with row p * ROWS. About eight lines.

    x, y, x_stride, y_stride, columns as in softmax_rows; x has `rows` rows. ROWS: a power of two.
    """
    # BEGIN SOLUTION
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 1, keep_dims=True))
    scale = 1 / tl.sum(numerator, 1, keep_dims=True)  # a division a row, not one an element
    tl.store(y + row * y_stride + column, numerator * scale, mask=inside)
    # END SOLUTION

# %% tags=["check"]
for rows, columns, many, block, dtype in [
    (7, 5, 4, 8, F32), (8, 64, 2, 64, BF16), (3, 1, 8, 1, F32), (5, 33, 4, 64, F32)]:
    (x, y), programs = random_rows(rows, columns, dtype), -(-rows // many)
    x[::2] -= 200  # e^-200 is 0 in fp32: each row needs its own maximum
    want, exact = x.double().softmax(1).to(dtype), x.double()
    columnwise = torch.cat([part.softmax(0) for part in exact.split(many)])
    sizes = {"ROWS": many, "BLOCK": block}
    tiles.count(softmax_tile, (programs,), x, y, x.stride(0), columns, rows, columns, **sizes)
    agree(y, want, f"y of {rows} × {columns} {dtype}, {sizes}", rtol=ROUNDING[dtype], mistakes={
        "Each row has its own maximum: reduce over axis 1 only.": want.masked_fill(x < -99, torch.nan),
        "These are columns that add up to 1: reduce over axis 1.": columnwise.to(dtype)})
print("softmax_tile agrees with float64 for four shapes")

# %% tags=["check"]
for rows, columns, many in [(16, 1, 8), (32, 2, 4), (24, 32, 8)]:
    (x, y), sizes = torch.rand(2, rows, columns), {"ROWS": many, "BLOCK": columns}
    programs = rows // many
    report = tiles.count(softmax_tile, (programs,), x, y, columns, columns, rows, columns, **sizes)
    agree(y, x.softmax(1), f"y of {rows} × {columns}", rtol=1e-5)
    sectors, least = report.loads.sectors, x.nbytes // 32
    assert sectors == least, f"{sectors} sectors of {rows} × {columns}, {sizes}; at once it is {least}"
    assert report.loads.requests == programs, f"{report.loads.requests} loads by {programs} programs"
    own_share(report, 2 * x[:many].nbytes, f"its own {many} rows")
print("softmax_tile loads each sector once, in one load a program, its own rows")

# %% [markdown]
# <details><summary>Hint</summary>
#
# The mask has two axes, too: `(row[:, None] < rows) & (column[None, :] < columns)`.
# </details>
#
# Now all is there for a `softmax` that takes any matrix. The next cell is ours. A program gets 4 KB or more, and so many warps (32 threads
# each) that a thread has 32 bytes: two loads of 16, the widest there are. Then enough bytes are under way at any time. For the widest rows
# two reads remain.

# %% tags=["driver"]
def launch(kernel, programs, *arguments, **options):
    """Runs a kernel; an error in it comes as it was raised."""
    try:
        with np.errstate(all="ignore"):  # where the interpreter computes with -inf, as a GPU does
            kernel[(programs,)](*arguments, **options)
    except triton.runtime.errors.InterpreterError as error:
        raise error.__cause__ from None


def warps(program_bytes):
    """Warps of a program that loads so many bytes, 32 bytes a thread; a program can have 32 at most."""
    return min(32, max(1, program_bytes // 1024))


def softmax(x):
    """softmax of each row of x, (rows, columns) in fp32, bf16 or fp16, with any strides."""
    block = triton.next_power_of_2(max(1, x.shape[1]))
    if block > 16384:
        return softmax_in_two_reads(x)
    x = x if x.stride(1) == 1 else x.contiguous()
    (rows, columns), y = x.shape, torch.empty(x.shape, dtype=x.dtype, device=x.device)
    many = max(4096 // (block * x.itemsize), 4 // x.itemsize if block < 16384 else 1)
    if x.numel():
        launch(softmax_tile, triton.cdiv(rows, many), x, y, x.stride(0), y.stride(0), rows, columns,
               ROWS=many, BLOCK=block, num_warps=warps(many * block * x.itemsize))
    return y


def softmax_in_two_reads(x):
    """softmax of each row of x, by softmax_online."""
    x = x if x.stride(1) == 1 else x.contiguous()
    (rows, columns), y = x.shape, torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        launch(softmax_online, rows, x, y, x.stride(0), y.stride(0), columns, BLOCK=16384, num_warps=32)
    return y


def softmax_gradient(y, y_gradient):
    """Gradient of x from y = softmax(x) and y's gradient, both (rows, columns)."""
    y, y_gradient = y.contiguous(), y_gradient.contiguous()
    x_gradient, block = torch.empty_like(y), triton.next_power_of_2(max(1, y.shape[1]))
    if y.numel():
        launch(softmax_backward, len(y), y, y_gradient, x_gradient, y.shape[1], BLOCK=block,
               num_warps=warps(block * y.itemsize))
    return x_gradient


def causal_softmax(x, scale):
    """Causal softmax of scale * x, (heads, queries, keys)."""
    x = x.contiguous()
    (heads, queries, keys), y = x.shape, torch.empty_like(x)
    block = triton.next_power_of_2(max(1, keys))
    if x.numel():
        launch(softmax_masked_scaled, heads * queries, x, y, queries, keys, float(scale), BLOCK=block,
               num_warps=warps(block * x.itemsize))
    return y


class Softmax(torch.autograd.Function):
    """softmax, with its gradient: an operation of PyTorch's."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(y := softmax(x))
        return y

    @staticmethod
    def backward(context, gradient):
        return softmax_gradient(*context.saved_tensors, gradient)

# %%
for shape in [(5, 1), (3, 1000), (1, 20_000), (0, 7), (7, 0)]:
    x = torch.randn(shape, device=where, requires_grad=True)
    for each in x, x[:, 1:], x.flip(0).T[:9], x.bfloat16():
        ours, theirs = Softmax.apply(each), torch.softmax(each, 1)
        given = torch.rand_like(ours)
        gradients = [torch.autograd.grad(y, each, given)[0] for y in (ours, theirs)]
        torch.testing.assert_close((ours, gradients[0]), (theirs, gradients[1]))

# %% [markdown]
# **Clinic.** A colleague needs the softmax of *columns*: one program a column. The result is right, each element is loaded once and stored
# once, and yet on a GPU it is several times slower than `softmax_rows`. Read the report: why? And what would you change?

# %%
@triton.jit
def softmax_columns(x, y, rows, columns, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK) * columns + tl.program_id(0)
    values = tl.load(x + place, mask=tl.arange(0, BLOCK) < rows, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + place, powers / tl.sum(powers, 0), mask=tl.arange(0, BLOCK) < rows)

print(tiles.count(softmax_columns, (64,), *torch.rand(2, 64, 64), 64, 64, BLOCK=64))

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# The last column: 64 sectors a request, for 64 elements. A program uses 4 of a sector's 32 bytes; the other 28 belong to the columns beside
# it, whose programs fetch the same sector again. Eight times the traffic. Give a program 8 columns or more, as `softmax_tile` does with
# rows: a block of BLOCK × 8 elements, reduced over the first axis, uses each sector whole.
# </details>
#
# **Memory is sold by the sector: give a program whole sectors, and enough of them.**

# %% [markdown]
# ## Part 6 · The last steps
#
# For those who want more; nothing to write. On an H200 your `softmax` runs at 94 to 101 % of the speed of a copy for rows of 1 k to 16 k;
# for 64 k, at 73 % in fp32 and 63 % in bf16. What is in the way?
#
# *Rows of 64 k* are read twice. The second read comes mostly from L2, at a price. So don't read again: keep the row in
# the registers of *several* programs. Each takes the maximum and the sum of its part, tells the others, and waits for theirs. To merge
# these pairs is Part 3's formula once more.

# %% [markdown]
# Maximum and sum go out in one word of 64 bits, so that nobody reads half of it; 0 means not yet. Such a kernel hangs unless the programs
# of a row run at the same time. A GPU starts them in order, and it goes well; the interpreter runs one after the other, and would wait
# forever.
#
# *Rows in bf16* (94 % at 16 k): registers have 4 bytes. A bf16 is unpacked as it arrives, so they hold half as many bytes as in fp32. So
# load pairs of bf16 as words, and unpack at each use: bf16 is the upper half of fp32, a shift is enough.

# %% [markdown]
# *Between kernels* nothing is read. The words that say "not yet" must be set to 0 first, by a kernel that moves next to nothing; and the next
# kernel starts when that one has ended. An H100 can start it earlier (*programmatic dependent launch*): it loads its part of x, which was there
# before, and waits with `gdc_wait` only where it needs the zeros. That makes 94 % of a copy 97 (fp32), and 90.5 % 91 (bf16).

# %% tags=["driver"]
from triton.language.extra.cuda import gdc_wait


@triton.jit
def merged(told, part, maximum, total, PARTS: tl.constexpr, EARLY: tl.constexpr):
    """Maximum and sum of a row from its parts': tells the others this part's, and waits for theirs."""
    upper, lower = maximum.to(tl.uint32, bitcast=True), total.to(tl.uint32, bitcast=True)
    if EARLY:
        gdc_wait()  # until the zeros are there
    tl.atomic_xchg(told + part, (upper.to(tl.uint64) << 32) | lower.to(tl.uint64), sem="relaxed")
    words = tl.load(told + tl.arange(0, PARTS), volatile=True)
    while tl.min((words != 0).to(tl.int32), 0) == 0:
        words = tl.load(told + tl.arange(0, PARTS), volatile=True)
    maxima = (words >> 32).to(tl.uint32).to(tl.float32, bitcast=True)
    totals = words.to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.max(maxima, 0), tl.sum(totals * tl.exp(maxima - tl.max(maxima, 0)), 0)


@triton.jit
def softmax_parts(x, y, told, x_stride, y_stride, columns, PARTS: tl.constexpr, BLOCK: tl.constexpr,
                  EARLY: tl.constexpr):
    """y = softmax of each row of x, by PARTS programs; told: uint64 zeros, PARTS a row."""
    row, part = (tl.program_id(0) // PARTS).to(tl.int64), tl.program_id(0) % PARTS
    column = part * BLOCK + tl.arange(0, BLOCK)
    mine = column < columns
    values = tl.load(x + row * x_stride + column, mask=mine, other=float("-inf")).to(tl.float32)
    own = tl.max(values, 0)
    numerator = tl.exp(values - tl.where(own == float("-inf"), 0.0, own))
    maximum, total = merged(told + row * PARTS, part, own, tl.sum(numerator, 0), PARTS, EARLY)
    tl.store(y + row * y_stride + column, numerator * (tl.exp(own - maximum) / total), mask=mine)

# %% tags=["driver"]
@triton.jit
def low(words, shift):
    """The lower bf16 of each word, in fp32; shift is 16."""
    return (words << shift).to(tl.float32, bitcast=True)


@triton.jit
def high(words, shift):
    """The upper bf16 of each word, in fp32; shift is 16."""
    return ((words >> shift) << 16).to(tl.float32, bitcast=True)


@triton.jit
def power(values, maximum):
    """exp(values - maximum) of bf16 values, in two instructions each.

    The base is log2(e) in 16 bits: the product with a bf16, which has 8, is exact. Beyond 2e38 it would
    overflow; but there any two bf16 are so far apart that a base of 1/1024 does.
    """
    base = tl.where(tl.abs(maximum) > 2e38, 0.0009765625, 1.44268798828125)
    return tl.exp2(tl.fma(values, base, -(maximum * base)))


@triton.jit
def softmax_pairs(x, y, told, x_stride, y_stride, words, first, second,
                  PARTS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """softmax_parts for pairs of bf16, uint32. first, second: 16, which the compiler must not know.

    It would unpack once and keep the result, 8 bytes a pair, if it saw that each unpacking is the same.
    """
    row, part = (tl.program_id(0) // PARTS).to(tl.int64), tl.program_id(0) % PARTS
    column = part * BLOCK + tl.arange(0, BLOCK)
    mine = column < words
    pairs = tl.load(x + row * x_stride + column, mask=mine, other=0xFF80FF80)  # two -inf
    own = tl.max(tl.maximum(low(pairs, 16), high(pairs, 16)), 0)
    least = tl.where(own == float("-inf"), 0.0, own)
    maximum, total = own, tl.sum(power(low(pairs, first), least) + power(high(pairs, first), least), 0)
    if PARTS > 1:
        maximum, total = merged(told + row * PARTS, part, own, total, PARTS, EARLY)
    scale = 1 / total
    lower = (power(low(pairs, second), maximum) * scale).to(tl.bfloat16)
    upper = (power(high(pairs, second), maximum) * scale).to(tl.bfloat16)
    lower, upper = lower.to(tl.uint16, bitcast=True), upper.to(tl.uint16, bitcast=True)
    result = lower.to(tl.uint32) | (upper.to(tl.uint32) << 16)
    tl.store(y + row * y_stride + column, result, mask=mine)


def launch_parts(kernel, x, y, *shifts, block, **options):
    """Runs softmax_parts or softmax_pairs with as many programs a row as it takes."""
    rows, columns = x.shape
    parts = triton.next_power_of_2(triton.cdiv(columns, block))
    told = torch.zeros(rows * parts, dtype=torch.uint64, device=x.device) if parts > 1 else x
    early = parts > 1 and device.starts_early()
    launch(kernel, rows * parts, x, y, told, x.stride(0), y.stride(0), columns, *shifts,
           PARTS=parts, BLOCK=block, EARLY=early, launch_pdl=early, **options)


def fast_softmax(x):
    """softmax(x), by the two kernels above where they are faster; they need a GPU."""
    columns, y = x.shape[1], torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.is_cuda or not x.numel() or x.stride(1) != 1 or columns * x.itemsize <= 2**14:
        return softmax(x)
    if x.dtype == torch.bfloat16 and columns % 2 == x.stride(0) % 2 == x.data_ptr() % 4 == 0:
        # As measured: one program for a row that fits, else small ones, of few registers a thread.
        sizes = {"block": 8192, "num_warps": 16} if columns <= 16384 else {
            "block": 1024, "num_warps": 2}
        launch_parts(softmax_pairs, x.view(torch.uint32), y.view(torch.uint32), 16, 16, **sizes)
    elif columns > 16384:
        launch_parts(softmax_parts, x, y, block=4096, num_warps=4)
    else:
        return softmax(x)
    return y

# %%
for dtype in (torch.float32, torch.bfloat16):  # without a GPU, this tries softmax_online once more
    x = torch.randn(3, 40_002, device=where).to(dtype)
    x[1, :30_000], x[2, 7:], x[0, 5] = -torch.inf, 100, 3e38
    for each in x, x[:, 2:], x[:, 1:]:
        torch.testing.assert_close(fast_softmax(each), torch.softmax(each, 1))

# %% [markdown]
# ## Predict, then measure
#
# Your formulas draw the lines. One is missing: what does `softmax_online` move?

# %%
def online_bytes(rows, columns, itemsize):
    """Bytes that softmax_online loads and stores, as an int. One line."""
    # BEGIN SOLUTION
    return itemsize * 3 * rows * columns
    # END SOLUTION


predicted = {"five kernels": eager_bytes, "two reads": online_bytes, "each byte once": least_bytes}


def launches(width):  # of eight rows; name: kernel, programs, sizes, blocks
    return {"two reads": (softmax_online, 8, (width,), {"BLOCK": 1024}),
            "each byte once": (softmax_tile, 1, (8, width), {"ROWS": 8, "BLOCK": width}),
            "one row a program": (softmax_rows, 8, (width,), {"BLOCK": width})}

# %%
def counted(width):  # bytes of the sectors / bytes of x
    x, y = torch.randn(2, 8, width)
    counts = {"five kernels": bytes_moved(eager, x)}
    for name, (kernel, programs, sizes, blocks) in launches(width).items():
        report = tiles.count(kernel, (programs,), x, y, width, width, *sizes, **blocks)
        counts[name] = 32 * (report.loads.sectors + report.stores.sectors)
    return {name: count / x.nbytes for name, count in counts.items()}

# %%
def measured(width):  # bytes of x and y / time
    torch.compiler.reset()  # it gives up after eight shapes
    x = torch.randn(2**28 // width, width, device="cuda")
    calls = {"five kernels": eager, "two reads": softmax_in_two_reads, "each byte once": fast_softmax}
    calls |= {"torch.softmax": lambda x: torch.softmax(x, 1), "torch.compile": torch.compile(eager)}
    times_s = {name: timing.measure(call, x).median_s for name, call in calls.items()}
    return {name: 2 * x.nbytes / time_s for name, time_s in times_s.items()}

# %% tags=["nbval-ignore-output"]
here, widths = machine.profile(), 2 ** np.arange(8, 17) if device.has_gpu() else 4 ** np.arange(8)
lines = {name: count(1, widths, 4) / (4 * widths) for name, count in predicted.items()}
if device.has_gpu():  # bytes of x and y / time, at the machine's bandwidth
    lines = {name: 2 / moved * here.bandwidth_bytes_per_s for name, moved in lines.items()}
widths = widths.tolist()
dots = [measured(width) if device.has_gpu() else counted(width) for width in widths]

# %% tags=["nbval-ignore-output"]
dots_of = {name: [dot[name] for dot in dots] for name in dots[0]}
axes = {"xlabel": "elements a row (fp32)", "title": "Softmax of rows: each byte once is best"} | (
    {"ylabel": "bytes of x and y / time", "yunit": "B/s", "log": "x"} if device.has_gpu() else
    {"ylabel": "bytes moved / bytes of x", "dots_are": "counted", "log": "xy"})
ax = figures.predicted_and_measured(widths, lines, dots_of, **axes)
ax.set_xticks(widths, [f"{width // 1024} k" if width >= 1024 else width for width in widths]);

# %% [markdown]
# *Without a GPU*, dots are counted, in sectors: below eight floats, a program that takes one row fetches more than its line says. *On a
# GPU*, "each byte once" is `fast_softmax`. "Two reads" is faster than its line: we counted what programs ask for, not what memory
# delivers, and the second read begins with what is still in L2.

# %% [markdown]
# Measured on one H200 with 2²⁸ elements, speed over that of a copy:
#
# | rows of | 1 k | 4 k | 16 k | 64 k |
# | --- | --- | --- | --- | --- |
# | fp32, `torch.softmax` | 0.96 | 0.61 | 0.79 | 0.48 |
# | fp32, `torch.compile` | 0.99 | 0.79 | 0.84 | 0.65 |
# | fp32, `fast_softmax` | 1.00 | 0.98 | 0.99 | 0.97 |
# | bf16, `torch.softmax` | 0.64 | 0.31 | 0.53 | 0.52 |
# | bf16, `torch.compile` | 1.00 | 0.41 | 0.45 | 0.46 |
# | bf16, `fast_softmax` | 1.00 | 0.99 | 0.98 | 0.90 |

# %% tags=["nbval-ignore-output"]
name = "softmax_online of 4,096 columns: bytes moved / bytes of x"
ledger.predict(name, online_bytes(1, 4096, 4) / (4 * 4096), "times")
ledger.counted(name, counted(4096)["two reads"], "times")
if device.has_gpu():
    ledger.predict("softmax of 4,096 columns", here.bandwidth_bytes_per_s, "B/s")
    ledger.measured("softmax of 4,096 columns", dots[widths.index(4096)]["each byte once"], "B/s")
ledger.constant("bytes of a fused softmax / bytes of x", 2, "times", "lab 04, counted")
ledger.table()

# %% [markdown]
# ## Where it is used
#
# - *Triton*: Tillet, Kung and Cox (2019). `torch.compile` writes its GPU kernels in it. The notes: "since it is not as flexible as CUDA,
#   achieving very high-performance is not possible with Triton". You have seen seven lines run at the speed of a copy.
# - *Online softmax*: Milakov and Gimelshein (2018); FlashAttention (Dao et al., 2022) carries the output along.
# - *Fused causal softmax*: Megatron-LM's kernels; *fused cross-entropy* over the vocabulary: Liger Kernel (2024).
#
# **Limits of ours.** Softmax over the last axis only; no dropout; up to 2²⁰ elements in one block, Triton's limit. Sectors requested are not
# memory traffic: caches stand between.

# %% [markdown]
# ## Done
#
# `python -m grading 04` grades your lab.
#
# **Harder.** Cross-entropy needs one number of each row of scores: $\log \sum_j e^{x_j} - x_t$ for the target t. What must it move, forward?
# And backward, where the gradient is softmax(x) minus 1 at t? What does that say about storing softmax's result?
#
# <details><summary>Answer</summary>
#
# Forward it reads x, MN elements, and writes M numbers, the rows' log-sum-exp. With these, backward reads x and writes the gradient,
# 2 · MN, and computes softmax again on the way. Storing it would add MN written.
# </details>
