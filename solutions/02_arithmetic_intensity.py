# %% [markdown]
# # 02 · Arithmetic intensity
#
# **Compute, memory or overhead: where does the time go?**
#
# After this lab you can
#
# - predict an operation's best speed from its FLOPs and bytes;
# - tell whether arithmetic, memory or overhead limits it, and what helps;
# - write a benchmark that can be trusted, and a test for benchmarks.
#
# You need lab 01; no GPU. About 150 minutes: 40 to read and measure, and for the exercises of the seven parts 12,
# 5, 12, 12, 15, 35 and 19.
#
# Write your answers in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
from time import perf_counter

import numpy as np
import torch

from common import figures, ledger
from common.checks import agree, clinic, expect
from common.figures.memory_drawings import compare
from common.hardware import device, timing
from common.ledger import machine
from common.lessons.arithmetic_intensity import elementwise, operations, rooflines
from nogpu import cuda, simt

figures.use_style()
rng = np.random.default_rng()

# %% [markdown]
# **Recall** (lab 01). `x` is a row-major float32 tensor of shape (1024, 1024). How many bytes does `x.T` move? How many
# does `x.T.contiguous()` move?
#
# <details><summary>Answer</summary>
#
# `x.T` moves none: it has the same storage, with the strides exchanged. The copy reads 4 MiB and writes 4 MiB.
# </details>
#
# ## See it
#
# Here are three operations. Each of them does some additions and multiplications. These are *floating-point operations*,
# or **FLOPs**. FLOPs divided by the time give a rate in FLOP/s. Guess before you run the cell: by what factor do the
# three rates differ?

# %% tags=["nbval-ignore-output"]
where, size = ("cuda", 8192) if device.has_gpu() else ("cpu", 2048)
a, b, c, one = *torch.rand(3, size, size, device=where), torch.ones(1, device=where)
three = {"multiply two matrices": (2 * size**3, lambda: torch.mm(a, b, out=c)),
         "add two matrices": (size**2, lambda: torch.add(a, b, out=c)),
         "add to one number": (1, lambda: one.add_(1.0))}
for name, (flops, function) in three.items():
    time_s = timing.measure(function).median_s
    print(f"{name:22}{ledger.show(time_s, 's'):>10}{ledger.show(flops / time_s, 'FLOP/s'):>16}")

# %% [markdown]
# One machine, but rates that differ by many powers of ten. The product kept the arithmetic units busy:
# **compute**. The addition waited for its numbers: **memory**. The single number waited for Python and PyTorch to start:
# **overhead**.
#
# ## Part 1 · Count
#
# **FLOPs.** Each element of a matrix product is a dot product. If it has length n, it takes n multiplications and n
# additions. (The first addition adds to zero. Hardware does both in one instruction: we count two.)
#
# **Bytes** between memory and chip: each input is read once, each output is written once. Many programs move more.
#
# ### Exercise 1.1 · matmul_flops
#
# Count a matrix product. Then count five other operations.

# %% tags=["hole"]
def matmul_flops(m, n, p):
    """FLOPs of an (m, n) matrix times an (n, p) matrix, as an int. One line."""
    # BEGIN SOLUTION
    return 2 * m * n * p
    # END SOLUTION


def matmul_bytes(m, n, p, itemsize):
    """Least bytes that this product moves, as an int. One line. itemsize: bytes per element."""
    # BEGIN SOLUTION
    return itemsize * (m * n + n * p + m * p)
    # END SOLUTION


def operation_counts(n, itemsize):
    """{name: (FLOPs, least bytes)} of five operations on x and y, of n elements each. Five entries.

    "add": x + y, a new tensor. "dot product": of x and y, one number. "scale in place": x *= 3.
    "softmax of rows": of x, a new tensor. Per element it takes a maximum, a subtraction, an
    exponential, a sum and a division. By convention each of them counts as one FLOP.
    "layer norm of rows": of x, a new tensor. It takes seven FLOPs per element.
    """
    # BEGIN SOLUTION
    return {
        "add": (n, 3 * n * itemsize),
        "dot product": (2 * n, 2 * n * itemsize),
        "scale in place": (n, 2 * n * itemsize),
        "softmax of rows": (5 * n, 2 * n * itemsize),
        "layer norm of rows": (7 * n, 2 * n * itemsize),
    }
    # END SOLUTION

# %% tags=["check"]
from common.lessons.arithmetic_intensity import expected as oracle

shapes = [(3, 5, 7), (1, 64, 1), (3203, 65537, 1031), (9, 1, 2), *rng.integers(1, 65, (28, 3)).tolist()]
for (m, n, p), size in zip(shapes, [4, 2, 8, 1] * 8, strict=True):
    flops, moved = oracle.product(m, n, p, size)  # as PyTorch counts them
    agree(matmul_flops(m, n, p), flops, f"matmul_flops({m}, {n}, {p})",
          mistakes=oracle.flops_mistakes(m, n, p))
    agree(matmul_bytes(m, n, p, size), moved, f"matmul_bytes({m}, {n}, {p}, {size})",
          mistakes=oracle.bytes_mistakes(m, n, p, size))
print("matmul_flops and matmul_bytes agree with PyTorch on 32 products")

# %% tags=["check"]
for n, size in (10_000, 4), (4096, 2), *rng.integers((5000, 1), (10**6, 9), (9, 2)).tolist():
    want, case = oracle.operation_counts(n, size), f"operation_counts({n}, {size})"
    got = operation_counts(n, size)
    expect(isinstance(got, dict), f"{case} gave {type(got).__name__}, want a dict.")
    expect(set(got) == set(want), f"{case} has the keys {sorted(got)}. Missing, or not wanted: "
           f"{sorted(set(got) ^ set(want))}.")
    for name in want:  # a result of one number, or one number per row, may count or not
        pair = tuple(got[name]) if isinstance(got[name], list) else got[name]
        agree(pair, want[name], f'{case}["{name}"]', rtol=0.002,
              mistakes=oracle.operation_mistakes(name, n, size))
print("operation_counts: five operations, eleven sizes")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which tensors does each operation read, and which does it write? How large is its result?
# </details>
# <details><summary>Hint: the idea</summary>
#
# `x + y` moves 3n elements: x, y and the sum. A dot product writes one number.
# </details>
#
# The **arithmetic intensity** of an operation is its FLOPs per byte moved. The *language model* that runs through this
# course has 836,736 weights, and was trained on one novel. One of its matrices widens a token's 128 numbers to 512. How does
# the intensity grow with the number of tokens?

# %%
from common import language_model

config = language_model.CONFIG
for tokens in (1, 8, 128, 1024, 8192):
    shape = tokens, config.width, config.hidden
    intensity = matmul_flops(*shape) / matmul_bytes(*shape, itemsize=4)
    print(f"{tokens:5} tokens × ({config.width} × {config.hidden}): {intensity:6.2f} FLOP/byte")
for name, (flops, moved) in operation_counts(10**6, itemsize=4).items():
    print(f"{name:>26}: {flops / moved:6.2f} FLOP/byte")

# %% [markdown]
# For one token, each weight is fetched for two FLOPs. For many tokens, a weight that was fetched once serves all of them.
#
# **A matrix product's intensity grows with its sides; the shortest one limits it. An elementwise operation's never grows.**
#
# ## Part 2 · The roofline
#
# A machine has two speed limits. Its *peak* is the most FLOP/s that it can do. Its *bandwidth* is the most bytes per second
# that its memory can move. Both work at once. Drawn against intensity, the limits look like a roof.
#
# The next cell measures your machine's limits, and lists data sheets below. (tf32 is fp32 rounded for the matrix units.)

# %% tags=["nbval-ignore-output"]
here = machine.profile()  # kept in machine.json for later labs
form = here.format  # fp32 (32 bits) on a CPU; bf16 or fp16 (16 bits) on a GPU
dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[form]
limits = here.flops_per_s[form], here.bandwidth_bytes_per_s
n, k = (2**27, 8192) if device.has_gpu() else (7 * 2**20, 1536)
x, y = torch.rand(2, n, device=where, dtype=dtype)
machine.table(here, *machine.DATA_SHEETS.values())

# %% [markdown]
# ### Exercise 2.1 · attainable_flops_per_s
#
# Write the roof, and the **ridge point**: the intensity where its two sides meet.
#
# <details><summary>Hint: a question</summary>
#
# How many FLOPs can be done with the bytes that arrive in one second?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Intensity × bandwidth. The lower of the two limits holds.
# </details>

# %% tags=["hole"]
def attainable_flops_per_s(intensity, peak_flops_per_s, bandwidth_bytes_per_s):
    """The most FLOP/s that an operation of this intensity (FLOP/byte) can reach. One line."""
    # BEGIN SOLUTION
    return min(peak_flops_per_s, intensity * bandwidth_bytes_per_s)
    # END SOLUTION


def ridge_point(peak_flops_per_s, bandwidth_bytes_per_s):
    """Intensity, in FLOP/byte, from which on compute is the limit. One line."""
    # BEGIN SOLUTION
    return peak_flops_per_s / bandwidth_bytes_per_s
    # END SOLUTION

# %% tags=["check"]
from common.lessons.arithmetic_intensity import expected as oracle

by_hand = [(1e12, 1e9, 1e12, 1e10), (1e9, 1e9, 1e12, 1e10)]  # right of the ridge, and left of it
for flops, moved, peak, bandwidth in by_hand + (10 ** rng.uniform(6, 13, (48, 4))).tolist():
    want, mistakes = oracle.roofline(flops, moved, peak, bandwidth)
    case, roof = f"({flops / moved:.3g}, {peak:.3g}, {bandwidth:.3g})", (peak, bandwidth, flops / moved)
    got = attainable_flops_per_s(flops / moved, peak, bandwidth)
    agree(got, want, f"attainable_flops_per_s{case}", rtol=1e-9, mistakes=mistakes,
          draw=lambda: rooflines.roof(*roof, got, want))
    ridge, mistakes = oracle.ridge(peak, bandwidth)
    agree(ridge_point(peak, bandwidth), ridge, f"ridge_point({peak:.3g}, {bandwidth:.3g})",
          rtol=1e-9, mistakes=mistakes)
print("attainable_flops_per_s and ridge_point: 50 operations, none faster than its slower half")

# %%
w, rows = torch.rand(k, k, device=where, dtype=dtype), x.view(-1, 1024)
calls = {"add": (torch.add, x, y), "dot product": (torch.dot, x, y),
         "scale in place": (torch.Tensor.mul_, x, 1.0), "softmax of rows": (torch.softmax, rows, -1),
         "layer norm of rows": (torch.layer_norm, rows, (1024,), *rows[:2])}
counts = operation_counts(n, x.itemsize)
for m, p in (64, 64), (k, 1), (k, 8), (k, 64), (k, k):
    calls[f"{m} × {m} by {m} × {p}"] = torch.mm, w[:m, :m].clone(), w[:m, :p].clone()
    counts[f"{m} × {m} by {m} × {p}"] = matmul_flops(m, m, p), matmul_bytes(m, m, p, x.itemsize)

# %% [markdown]
# **Predict.** Ten operations now take their place under your roof: the five that you counted, and five products. Someone
# writes: "Linear layers, and layer normalization with large batches, are limited by arithmetic." True? Which part of the
# peak does your roof allow layer norm? Type a formula, or a number from 0 to 1. It goes into your ledger, `ledger.json`.

# %%
# BEGIN SOLUTION
layer_norm_part = attainable_flops_per_s(7 / (2 * x.itemsize), *limits) / limits[0]
# END SOLUTION
ledger.guess("layer norm: part of the peak", layer_norm_part, "of peak")

# %% tags=["nbval-ignore-output"]
# The caches are emptied before each call, because we count the bytes that come from memory.
times_s = {name: timing.measure(*call, min_time_s=0.1, cold_cache=True).median_s
           for name, call in calls.items()}
points = {name: (flops / moved, flops / times_s[name]) for name, (flops, moved) in counts.items()}
ledger.measured("layer norm: part of the peak", points["layer norm of rows"][1] / limits[0], "of peak")
ax = figures.roofline(lambda intensity: attainable_flops_per_s(intensity, *limits), points,
                      ridge=ridge_point(*limits), title=f"Ten operations in {form} on {here.device}")
figures.describe(ax, "A roofline with ten dots. The elementwise operations lie on its slope or below.")

# %% [markdown]
# No operation can rise above the slope while its bytes come from memory. Layer norm stays far below: in our runs it reached 30
# to 45 % of what its bytes allow. So neither arithmetic nor memory limits it. This *program* does, and lab 04 writes better
# ones. Products with more columns climb along the slope in nearly the same time. Past the ridge they are **compute-bound**. Why does the 64 ×
# 64 product lie so low? Part 5 finds out.
#
# **Left of the ridge, save bytes. Right of it, save FLOPs.**
#
# ## Part 3 · Tiles
#
# To read each input only once, a fast memory must hold everything. Real ones hold tiles.

# %% [markdown]
# ### Exercise 3.1 · tiled_matmul_bytes
#
# A tile of C stays in fast memory, while tiles of A and B pass by. Count the bytes that this loop moves between slow and fast
# memory, for n × n matrices.
#
# ```
# for each tile of rows, i:
#     for each tile of columns, j:
#         C[i, j] = 0                        # in fast memory
#         for each tile k of the inner side:
#             load A[i, k] and B[k, j]       # from slow memory
#             C[i, j] += A[i, k] @ B[k, j]
#         store C[i, j]                      # to slow memory
# ```
#
# Tiles are t × t. At the edge they may be smaller, and move only what is there.

# %% tags=["hole"]
def tiled_matmul_bytes(n, tile, itemsize):
    """Bytes that the tiled loop loads and stores for (n, n) matrices, as an int. About two lines.

    tile: side of a tile, 1 or more; it may be larger than n.
    """
    # BEGIN SOLUTION
    # All of A passes once for each tile of columns of C, all of B once for each tile of rows.
    passes = -(-n // tile)
    return itemsize * (2 * n * n * passes + n * n)
    # END SOLUTION

# %% tags=["check"] points=3
from common.lessons.arithmetic_intensity import expected as oracle

by_hand = [(17, 5, 2), (16, 4, 4), (1, 1, 1), (5, 99, 8), (9, 1, 2), (401, 400, 4)]
for n, tile, size in by_hand + rng.integers((10, 2, 2), (40, 9, 9), (40, 3)).tolist():
    inputs, output = oracle.tile_traffic(n, tile, size)  # added up tile by tile
    agree(tiled_matmul_bytes(n, tile, size), inputs + output,
          f"tiled_matmul_bytes({n}, {tile}, {size})", mistakes=oracle.tile_mistakes(n, tile, size),
          draw=lambda: rooflines.tiles(n, tile))
print("tiled_matmul_bytes agrees with 46 loops, counted tile by tile")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Follow one tile of A. For how many tiles of C is it loaded?
# </details>
# <details><summary>Hint: the idea</summary>
#
# All of A passes once for each tile of columns. How often does B pass? In Python, `-(-n // t)` is n/t rounded up.
# </details>
#
# Your function draws the line. The dots come from a product that really runs tile by tile, and adds up the bytes of its
# tiles.

# %%
from common.lessons.arithmetic_intensity import memory_hierarchy

n, sides = 256, (16, 24, 32, 48, 64, 96, 128, 192, 256)
ax = figures.predicted_and_measured(
    sides, [matmul_flops(n, n, n) / tiled_matmul_bytes(n, side, 4) for side in sides],
    [matmul_flops(n, n, n) / memory_hierarchy.counted_bytes(n, side) for side in sides],
    dots_are="counted", log="xy", xlabel="side of a tile (elements)", ylabel="intensity (FLOP/byte)",
    title="A larger tile does more arithmetic per byte")
figures.describe(ax, "The intensity grows with the tile's side, with a flat step from 128 to 192.")

# %% [markdown]
# **How large must a tile be, and where must it fit?** An A100 has two fast memories: 40 MB of L2 for the whole chip, and
# 164 KB of shared memory in each multiprocessor. So a product is tiled twice, and there are two roofs: one for the bytes
# that come from memory, and one for those that come from L2.
#
# *Target:* reach all 312 TFLOP/s with the smallest tiles that do.

# %% tags=["nbval-ignore-output"]
memory_hierarchy.draw(l2_side=64, shared_side=64)
memory_hierarchy.widget()

# %% [markdown]
# <details><summary>What you find</summary>
#
# Tiles of 128 in shared memory suffice for L2's bandwidth, and tiles of 512 in L2 for memory's.
# </details>
#
# **Tiles of side t cut the slow memory's traffic to 1/t. The size of the fast memory limits t.**
#
# ## Part 4 · How many multiplications are free?
#
# An A100 does 10 · 10¹² multiplications per second (its 19.5 TFLOP/s count an addition with each), and moves 2 · 10¹² bytes.
# How many times can a program multiply each element before it takes twice as long? *Unfused*, each multiplication is
# a pass over memory. *Fused*, an element is loaded once, multiplied in a register, and stored once.

# %% tags=["driver"]
@cuda.jit
def each_element(x, factor, repeat):
    i = cuda.grid(1)  # a GPU starts one thread per element; this one has element i
    if i < x.size:
        fused(x, i, factor, repeat)

# %% [markdown]
# ### Exercise 4.1 · fused
#
# Write the fused program for one element. `each_element` runs it for all of them as a kernel: a function on a GPU. The check
# runs this kernel in a simulator, which counts loads and stores.
#
# Then: while memory is busy with one element, how many multiplications fit into that time? And into `slowdown` times that
# time, if the slower of the two decides?

# %% tags=["hole"]
@cuda.jit(device=True)
def fused(x, i, factor, repeat):
    """Multiply x[i] by factor, `repeat` times, with one load and one store. About four lines.

    Multiply in a loop (not by factor ** repeat), so that each product is rounded to float32.
    """
    # BEGIN SOLUTION
    value = x[i]
    for _ in range(repeat):
        value *= factor
    x[i] = value
    # END SOLUTION


def free_multiplications(multiplications_per_s, bandwidth_bytes_per_s, itemsize, slowdown=1):
    """Multiplications per element, a float, that fit into slowdown times memory's time. Two lines.

    The fused program: each element is read once and written once.
    """
    # BEGIN SOLUTION
    memory_s = 2 * itemsize / bandwidth_bytes_per_s
    return slowdown * memory_s * multiplications_per_s
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.arithmetic_intensity import expected as oracle

for n, repeat, factor in (100, 3, 1.7), (64, 40, 1.01), (33, 1, 3.0), (1, 3, -1.3), (40, 0, 2.0):
    x, warps = rng.random(n, np.float32) + 1, -(-n // 32)  # 32 threads load or store together
    want, mistakes = oracle.multiplied(x, factor, repeat), oracle.fused_mistakes(x, factor, repeat)
    report = simt.count(each_element, warps, 32, x, np.float32(factor), repeat)
    case = f"fused, {repeat} multiplications of each of {n} elements,"
    made = report.global_loads, report.global_stores, report.global_atomics
    for what, count, most in zip(("load", "store", "atomic update"), made, (warps, warps, 0)):
        says = f"{case} has {count.requests / warps:.0f} {what}s per element, want {most / warps:.0f}. "
        expect(count.requests <= most, f"{says}Keep the value in a variable.", draw=report.draw)
    agree(x, want, case, mistakes=mistakes, draw=lambda got=x, want=want: compare(got, want))
print("fused: one load and one store per element, for up to 40 multiplications")

# %% tags=["check"] points=2
cases = [(0.25, 1e-12, 16, 2.5), *((40.0, 4e-12, 4, slowdown) for slowdown in (1, 3, 2))]  # an A100
for in_balance, picoseconds, slowdown in rng.uniform((1, 1, 2.1), (99, 999, 4), (30, 3)).tolist():
    cases.append((in_balance, picoseconds * 1e-12, int(rng.integers(3, 9)), slowdown))
for in_balance, element_s, size, slowdown in cases:
    rate, bandwidth, mistakes = oracle.balanced(in_balance, element_s, size, slowdown)
    case = f"free_multiplications({rate:.3g}, {bandwidth:.3g}, {size}, {slowdown:.3g})"
    got = free_multiplications(rate, bandwidth, size, slowdown)
    agree(got, in_balance * slowdown, case, rtol=1e-9, mistakes=mistakes)
print("free_multiplications: 40 on an A100, 80 for twice the time, and 30 random machines")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Where is the value between two multiplications? Which of your lines touch memory?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Load `x[i]` into a variable, loop, store it. Memory takes 2 · itemsize / bandwidth per element.
# </details>
#
# **Predict**, with your own function: from how many multiplications on does your fused program take twice as long? Both
# ceilings are measured on their own: the bandwidth in Part 2, and the rate of multiplications by a loop that never touches
# memory. Numba compiles your function for all cores of the CPU, or for the GPU. (There, `torch.compile` fuses too, with
# several elements per thread.)

# %% tags=["nbval-ignore-output"]
x, factor = torch.ones(2**28 if device.has_gpu() else 2**25, device=where), np.float32(1.0000001)
multiplications_per_s = machine.multiplications_per_s()
in_balance = free_multiplications(multiplications_per_s, here.bandwidth_bytes_per_s, itemsize=4)
one_pass_s = 2 * x.nbytes / here.bandwidth_bytes_per_s
predicted = {"fused": lambda repeat: one_pass_s * max(1, repeat / in_balance),
             "unfused": lambda repeat: one_pass_s * repeat}
ledger.predict("multiplications that double the time", 2 * in_balance, "multiplications")

# %% tags=["nbval-ignore-output"]
repeats = (1, 2, 4, 8, 16, 32, 64, 96, 128)
measured = elementwise.compared(fused, x, factor, repeats)
doubling = elementwise.doubling(repeats, measured["fused"])
ledger.measured("multiplications that double the time", doubling, "multiplications")
ax = figures.predicted_and_measured(
    repeats, predicted, measured, log="xy", yunit="s", xlabel="multiplications of each element",
    ylabel="time", title=f"Predicted: the first {in_balance:.0f} multiplications are free")
figures.describe(ax, "Fused, the time stays level and then rises. Unfused, it rises from the start.")

# %% [markdown]
# By how much did the corner miss? It is round, because memory and arithmetic disturb each other. Further right, a CPU's dots
# rise above the line: each multiplication waits for the one before it. That is *latency*.
#
# On an H200, the level dots lay at 1.6 times the line. Each thread asks for only 4 bytes, and that keeps too little on its
# way. `torch.compile` hit the line, except at its corner. The first dot is too high, so twice its time is reached later than predicted. (If no dot
# takes twice as long, we extrapolate the last two.)

# %% [markdown]
# **While memory is the limit, arithmetic is free. Fusion turns many trips to memory into one.**
#
# ## Part 5 · Overhead, and a diagnosis
#
# Before anything moves, Python and PyTorch must start the operation. `here.overhead_s` is the time of `mul_` on one element: in
# place, so it is about the least that an operation costs. A GPU computes while the CPU starts the next operation. So **the
# slowest of the three is the time**. (On a CPU they add up.)
#
# ### Exercise 5.1 · diagnosis
#
# Write the model. Then turn it into a doctor: from an operation's two counts and its measured time, say what limits it.

# %% tags=["hole"]
def predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    """Seconds that an operation takes, by the model above. One line."""
    # BEGIN SOLUTION
    return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
    # END SOLUTION


def diagnosis(flops, bytes_moved, time_s, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    """One of five words for an operation that took time_s. About seven lines.

    "compute", "memory" or "overhead": the slowest of the three, if it explains half of time_s or
    more. "none": if it explains less than half. "impossible": if it alone takes over 5 % longer
    than time_s.
    """
    # BEGIN SOLUTION
    parts_s = {
        "compute": flops / peak_flops_per_s,
        "memory": bytes_moved / bandwidth_bytes_per_s,
        "overhead": overhead_s,
    }
    limit = max(parts_s, key=parts_s.get)
    if parts_s[limit] > 1.05 * time_s:
        return "impossible"
    return limit if parts_s[limit] >= time_s / 2 else "none"
    # END SOLUTION

# %% tags=["check"]
from common.lessons.arithmetic_intensity import expected as oracle

by_hand = [[7e-3, 4e-3, 2e-3], [2e-3, 7e-3, 4e-3], [4e-3, 2e-3, 7e-3]]
for parts_s in by_hand + (10 ** rng.uniform(-6, -2, (50, 3))).tolist():
    peak, bandwidth = (10 ** rng.uniform(9, 15, 2)).tolist()
    want, mistakes = oracle.slowest(*parts_s, peak / bandwidth)
    got = predicted_time_s(parts_s[0] * peak, parts_s[1] * bandwidth, peak, bandwidth, parts_s[2])
    case = "predicted_time_s: compute {:.2g} s, memory {:.2g} s, overhead {:.2g} s:".format(*parts_s)
    agree(got, want, case, rtol=1e-9, mistakes=mistakes)
print("predicted_time_s: 53 operations")

# %% tags=["check"] points=2
peak, bandwidth, overhead_s = oracle.MACHINE
for story, flops, moved, time_s, want in oracle.patients(rng):
    mistakes = oracle.diagnosis_mistakes(flops, moved, time_s)
    case = f"diagnosis of {story} ({oracle.parts(flops, moved)}) that took {time_s:.2g} s"
    more, wider = (2.0 ** rng.integers(-3, 4, 2)).tolist()  # of the operation, and of the machine
    got = diagnosis(more * flops, wider * moved, time_s, more * peak, wider * bandwidth, overhead_s)
    agree(got, want, case, mistakes=mistakes,
          draw=lambda: rooflines.parts(oracle.parts_s(flops, moved), time_s, f"Parts of {story}"))
print("diagnosis: 16 stories and 60 random operations")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which of the three times is the largest? With which two limits do you compare it?
# </details>
# <details><summary>Hint: the idea</summary>
#
# `max(parts_s, key=parts_s.get)` names the largest entry of a dict. First ask whether it is impossible.
# </details>
#
# **Predict.** From how many float32 on does `x.mul_(2)` take twice as long as for a single one? Guess first, in the next
# cell. Then your model draws its line.

# %%
slow = here.flops_per_s["fp32"], here.bandwidth_bytes_per_s, here.overhead_s
# BEGIN SOLUTION
guess = 2 * here.overhead_s * here.bandwidth_bytes_per_s / 8  # read and write: 8 bytes per element
# END SOLUTION
ledger.guess("elements for which mul_ takes twice as long as for one", guess, "elements")

# %% tags=["nbval-ignore-output"]
lengths = [4**i for i in range(15 if device.has_gpu() else 13)]
mul_s = [timing.measure(x[:length].mul_, 1.0, min_time_s=0.1).median_s for length in lengths]
doubling = np.interp(2 * mul_s[0], np.maximum.accumulate(mul_s), lengths)
ledger.measured("elements for which mul_ takes twice as long as for one", doubling, "elements")
ax = figures.predicted_and_measured(
    lengths, lambda n: predicted_time_s(n, 8 * n, *slow), mul_s, log="xy", yunit="s",
    xlabel="elements", ylabel="time of x.mul_", title="A small tensor costs as much as an empty one")
figures.describe(ax, "The time is level up to a size, and then grows with the number of elements.")

# %% [markdown]
# Where dots lie below the line, the tensor stays in a cache, which is faster than memory. So the time may double later than the
# model says (on an H200, it doubled 3 % earlier to 10 % later). Where a CPU's dots jump above the line, PyTorch has split the work among threads, and
# the slowest thread sets the time.
#
# A tensor that keeps a laptop busy may take a GPU less time than the launch does.
#
# Now let your doctor see the ten operations of Part 2. As overhead it gets what the same clock shows for one element.

# %% tags=["nbval-ignore-output"]
one = torch.ones(1, device=where, dtype=dtype)
least_s = timing.measure(torch.Tensor.mul_, one, 1.0, min_time_s=0.1, cold_cache=True).median_s
for name, (flops, moved) in counts.items():
    share = predicted_time_s(flops, moved, *limits, least_s) / times_s[name]
    word = diagnosis(flops, moved, times_s[name], *limits, least_s)
    print(f"{name:26} {ledger.show(times_s[name], 's'):>8}, {share:4.0%} explained: {word}")

# %% [markdown]
# For "none" (on an H200, only layer norm), ask how much is **in flight**. To keep memory busy, bandwidth × latency bytes must
# be on their way (*Little's law*): there 4.8 TB/s × 0.6 µs, almost 3 MB. A 64 × 64 product takes
# little longer than one element: overhead.
#
# | diagnosis | what helps |
# | --- | --- |
# | compute | fewer FLOPs |
# | memory | fewer bytes |
# | overhead | fewer launches: fuse, batch |
# | none | more in flight, fewer passes |
# | impossible | a better clock, count or ceiling |
#
# **The slowest part sets the time. If it explains too little, look for latency.**
#
# ## Part 6 · Trust no clock
#
# Someone reports these rates of `fused`. Find two mistakes (one on GPUs only).

# %% tags=["nbval-ignore-output"]
program, flops = elementwise.element(fused), 24 * x.numel()
for call in ("first call", "second call"):
    started = perf_counter()
    program(x, factor, 24)
    print(f"{call}: {ledger.show(flops / (perf_counter() - started), 'FLOP/s')}")
print("ceiling:", ledger.show(multiplications_per_s, "FLOP/s"))

# %% tags=["driver"]
from common.lessons.arithmetic_intensity.fake_device import FakeDevice

def timed(first_s, later_s, launch_s, repeats):
    """What median_time_s finds for a fake device."""
    fake = FakeDevice(first_s, later_s, launch_s)
    return median_time_s(fake.call, fake.clock, fake.synchronize, repeats)

def judged(source):
    """What test_benchmark says of a program: "" if it accepts it."""
    return clinic.verdict(test_benchmark, source)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first call compiled the program. On a GPU, the second call only *queued* it: the clock stopped before the work was done.
# On an H200, memory allows 13 TFLOP/s at most.
# </details>
#
# ### Exercise 6.1 · median_time_s
#
# Write a benchmark. We test it on a device with known times and a clock of its own: `FakeDevice(first_s, later_s, launch_s)`.
# Its `call()` takes launch_s, queues some work, and returns. The first work takes first_s, and the later ones take the times
# in later_s in turn. `synchronize()` waits until all work is done. `clock()` gives the seconds so far. An
# interrupted call moves a mean, not a median.

# %% tags=["hole"]
def median_time_s(call, clock, synchronize, repeats):
    """Median over `repeats` calls of the seconds from before call() until its work is done.

    Warm up first: call at least once, and wait. Of an even number of times, the median is the mean
    of the middle two. About nine lines.
    """
    # BEGIN SOLUTION
    call()
    synchronize()
    times_s = []
    for _ in range(repeats):
        started = clock()
        call()
        synchronize()
        times_s.append(clock() - started)
    return float(np.median(times_s))
    # END SOLUTION

# %% tags=["check"] points=2
from common.checks.static_names import looks_inside
from common.lessons.arithmetic_intensity import expected as oracle

for first_s, later_s, launch_s in oracle.fake_devices(rng):
    want, mistakes = oracle.median_s(first_s, later_s, launch_s)
    case = f"median_time_s on FakeDevice({first_s}, {later_s}, {launch_s}), repeats={len(later_s)},"
    got = timed(first_s, later_s, launch_s, len(later_s))
    agree(got, want, case, rtol=1e-6, mistakes=mistakes,
          draw=lambda: rooflines.calls(later_s, launch_s, got, want))
agree(looks_inside(median_time_s), [], "what looks into the device (measure: call, clock, synchronize)")
print("median_time_s finds the median time of 13 fake devices")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# When is a call's work done? What is special about the first call?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Call once and synchronize. Then per repeat: clock, call, synchronize, clock.
# </details>
#
# ### Exercise 6.2 · test_benchmark
#
# **Clinic.** Colleagues send you their versions of `median_time_s`. Some are right, though they look different from yours.
# The others have one fault each. Write a test that tells them apart. Your score is the number of wrong programs that it
# refuses while it accepts all right ones.

# %% tags=["hole"]
def test_benchmark(candidate):
    """Raise AssertionError if candidate(call, clock, synchronize, repeats) is a wrong benchmark.

    Let it measure fake devices whose median time you know: FakeDevice(first_s, later_s, launch_s).
    Right ones may warm up more than once. About six lines.
    """
    # BEGIN SOLUTION
    for repeats in (4, 6):  # unsorted times, most of them short, and a slow first call
        later_s = np.random.default_rng(repeats).exponential(size=repeats)
        launch_s = later_s.min()
        fake = FakeDevice(later_s.sum(), later_s, launch_s)
        got = candidate(fake.call, fake.clock, fake.synchronize, repeats)
        assert np.isclose(got, np.median(later_s) + launch_s), f"{later_s}: got {got}"
    # END SOLUTION

# %% tags=["check"] points=3
print(clinic.score("benchmark", judged, par=15, rng=rng))

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Take each line out of your own `median_time_s` in turn. Which fake device notices?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Try unsorted times with a very slow one among them, a launch that takes time, an odd and an even number of calls.
# </details>
#
# **A benchmark warms up, waits, and takes the median. A rate above the roof is never good news.**
#
# ## Part 7 · A training step of the language model
#
# The FLOPs of a training step are those of its matrix products. For a layer Y = XW, the backward pass takes two products of
# the same size: dX = dY·Wᵀ and dW = Xᵀ·dY. So **a backward pass costs two forward passes**.

# %% [markdown]
# ### Exercise 7.1 · transformer_flops
#
# Count a training step from its shapes. (The rest is below one percent in a large model.) A transformer's layer has
#
# - *attention:* queries, keys, values and output, each a width × width matrix for every token. Then the scores: each query
#   times each key of its sequence, where all pairs count, masked or not. Then the scores times the values.
# - *a feedforward network:* from width to feedforward, and back.
#
# At the end, one matrix turns each token into a score for each word of the vocabulary. The embedding at the start is a
# lookup: no FLOPs.

# %% tags=["hole"]
def transformer_flops(batch, sequence, layers, width, feedforward, vocabulary):
    """FLOPs of one training step (forward and backward), as an int. About seven lines.

    batch: sequences; sequence: tokens in each. The number of heads doesn't matter.
    """
    # BEGIN SOLUTION
    tokens = batch * sequence
    projections = 4 * matmul_flops(tokens, width, width)
    # Scores, then values; the heads share the width.
    attention = 2 * batch * matmul_flops(sequence, width, sequence)
    network = 2 * matmul_flops(tokens, width, feedforward)
    forward = layers * (projections + attention + network) + matmul_flops(tokens, width, vocabulary)
    return 3 * forward
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.arithmetic_intensity import expected as oracle

low, high = (2, 2, 1, 11, 0, 0), (6, 6, 2, 40, 1, 1)
for shape in (5, 7, 1, 11, 0, 0), *rng.integers(low, high, (4, 6)).tolist():
    want = oracle.training_flops(*shape)  # no feedforward network, no vocabulary: only attention
    agree(transformer_flops(*shape), want, f"transformer_flops{tuple(shape)}",
          mistakes=oracle.transformer_mistakes(*shape))
print("transformer_flops agrees with PyTorch's counter on 5 attention layers")

# %% tags=["check"] points=2
low, high = (2, 1, 2, 1, 1, 1), (6, 6, 5, 20, 20, 20)
for shape in (4, 5, 3, 4, 7, 8), (1, 1, 1, 1, 1, 1), *rng.integers(low, high, (5, 6)).tolist():
    want = oracle.training_flops(*shape)
    agree(transformer_flops(*shape), want, f"transformer_flops{tuple(shape)}",
          mistakes=oracle.transformer_mistakes(*shape))
want, shape = oracle.language_model_flops(batch=3)
agree(transformer_flops(*shape), want, f"transformer_flops{shape}, the language model,")
print("transformer_flops agrees with PyTorch's counter on 7 transformers and the language model")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which products are made for all tokens, and which within one sequence?
# </details>
# <details><summary>Hint: the idea</summary>
#
# A weight that is applied to every token: `matmul_flops(batch * sequence, width, ...)`. The scores of a sequence are a
# (sequence, width) matrix times a (width, sequence) one. Heads change nothing, since each has its share of the width.
# </details>
#
# Everyone's shortcut is **6·N·D**: six FLOPs, two forward and four backward, for each of N weights and each of D tokens. Here
# is your count against it, for the shape of GPT-3.

# %%
layers, width, feedforward, vocabulary = 96, 12288, 4 * 12288, 50257
weights = layers * (4 * width**2 + 2 * width * feedforward) + width * vocabulary
for sequence in (512, 2048, 8192, 32768, 131072):
    flops = transformer_flops(1, sequence, layers, width, feedforward, vocabulary)
    ratio = flops / (6 * weights * sequence)
    print(f"{sequence:6} tokens: {ratio:.3f} times 6·N·D, with N = {weights / 1e9:.0f} billion")

# %% [markdown]
# **A weight costs six FLOPs per token. Attention comes on top, and grows with the sequence.**
#
# **Predict, then measure.** How long does a training step of the course's language model take, from 1 to 32 sequences? We
# record its operations, each with its FLOPs and bytes, and your `predicted_time_s` adds up their times. Guess before you run
# the cells: will 8 sequences take 8 times as long as one?

# %%
model, batches = language_model.module().to(where), (1, 2, 4, 8, 16, 32)
def step(batch):
    text = torch.tensor(language_model.tokens(0, batch * 128)).view(batch, 128).to(where)
    torch.nn.functional.cross_entropy(model(text).flatten(0, 1), text.flatten()).backward()

step(1)  # from now on there are gradients, to which each step adds its own
steps = [operations.recorded(lambda batch=batch: step(batch)) for batch in batches]
predicted_s = [sum(predicted_time_s(op.flops, op.bytes_moved, *slow) for op in ops) for ops in steps]
ledger.predict("step of the language model, 8 sequences", predicted_s[3], "s")

# %% tags=["nbval-ignore-output"]
wait = torch.cuda.synchronize if device.has_gpu() else (lambda: None)
step_s = [median_time_s(lambda batch=batch: step(batch), perf_counter, wait, 5) for batch in batches]
ledger.measured("step of the language model, 8 sequences", step_s[3], "s")
ax = figures.predicted_and_measured(
    batches, predicted_s, step_s, log="xy", yunit="s", xlabel="sequences per step",
    ylabel="time of a step", title="A training step, predicted operation by operation")
figures.describe(ax, "Predicted and measured time of a step, from 1 to 32 sequences.")

# %% tags=["nbval-ignore-output"]
for batch, time_s, ops, total_s in zip(batches, step_s, steps, predicted_s, strict=True):
    shares = dict.fromkeys(("compute", "memory", "overhead"), 0.0)
    for op in ops:
        op_s = predicted_time_s(op.flops, op.bytes_moved, *slow)
        shares[diagnosis(op.flops, op.bytes_moved, op_s, *slow)] += op_s / total_s
    mfu = transformer_flops(batch, 128, 4, 128, 512, 128) / time_s / here.flops_per_s["fp32"]
    shown = (f"{what} {part:4.0%}" for what, part in shares.items())
    print(f"batch of {batch:2}, MFU {mfu:5.1%}:", *shown)

# %% [markdown]
# MFU is the **model FLOPs utilisation**: the FLOPs needed, divided by time × peak. Published runs use the data sheet's peak
# for *dense* matrices, and large models reach 40 to 60 %.
#
# By how much did your line miss? On a CPU, many operations reach only a part of their roof. On an H200, 32 sequences took
# only a sixth longer than one: overhead, as predicted. Yet our dots lay at four to seven times the line. A model's operations cost more than
# `mul_`: they allocate results and are recorded for the backward pass.
#
# **Find out which of the three takes the time, before you improve anything.**

# %% tags=["nbval-ignore-output"]
source = f"{here.source} on {here.device}"
ledger.constant("memory bandwidth", here.bandwidth_bytes_per_s, "B/s", source)
ledger.constant(f"peak of {form} matmul", here.flops_per_s[form], "FLOP/s", source)
ledger.constant("overhead of an operation", here.overhead_s, "s", source)
figures.describe(ledger.figure(), "Each outcome over its prediction, as a dot; a line marks 1.")
ledger.table()

# %% [markdown]
# ## Done
#
# Your machine's constants are in your ledger now, for later labs to plan with. Grade the lab with `make grade LAB=02`.

# %% [markdown]
# ## Further
#
# Everything from here on is optional.
#
# ### CUDA graphs
#
# What helps against overhead? Fewer launches (fusion), larger operations (batches), or a **CUDA graph**. A graph records many
# launches, and replays them with a single one.

# %% tags=["nbval-ignore-output"]
few = torch.ones(1024, device=where)
def hundred():
    for _ in range(100):
        few.mul_(1.0)
print("100 launches one by one:", ledger.show(timing.measure(hundred).median_s, "s"))
if device.has_gpu():
    print("100 launches as a graph:", ledger.show(timing.in_graph_s(hundred), "s"))

# %% [markdown]
# In our runs on an H200, a graph took 90 to 110 µs for 100 launches that take 600 to 1,000 µs one by one.
#
# To save memory, activations (the layers' outputs, kept for the backward pass) may be dropped and computed again (lab 09). The
# hardware does these FLOPs, but the model didn't ask for them. **Hardware FLOPs utilisation** (HFU) counts them, and MFU does
# not.

# %% [markdown]
# ### Exercise 8.1 · hfu (optional)
#
# Write MFU and HFU. Then correct two numbers. Someone writes that FlashAttention "took the MFU value to 60%! A100 has 312 TFLOP/s, so
# we are using ~160". And a slide gives the H100's bf16 peak as 1,979 TFLOP/s, with an asterisk: *with sparsity*, for matrices of
# which half of the entries are zeros.

# %% tags=["hole"]
def mfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    """Model FLOPs utilisation of a training step, as a fraction. One line.

    forward_flops: of one forward pass. recomputed: the part of it that is computed again, 0 to 1.
    """
    # BEGIN SOLUTION
    return 3 * forward_flops / time_s / peak_flops_per_s
    # END SOLUTION


def hfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    """Hardware FLOPs utilisation of the same step, as a fraction. One line."""
    # BEGIN SOLUTION
    return (3 + recomputed) * forward_flops / time_s / peak_flops_per_s
    # END SOLUTION


# In FLOP/s: 60 % of the A100's bf16 peak, and the bf16 peak of an H100 for dense matrices.
# BEGIN SOLUTION
a100_at_60_percent = 0.6 * 312e12
h100_dense_peak = 1979e12 / 2
# END SOLUTION

# %% tags=["check"]
from common.lessons.arithmetic_intensity import expected as oracle

for layers in range(10, 0, -1):
    shape = layers, *rng.integers(1, 20, 2).tolist(), int(rng.integers(1, layers + 1))
    forward, model_flops, all_flops = oracle.recomputing(*shape)  # as PyTorch counts them
    part, time_s, peak = shape[-1] / layers, rng.uniform(0.1, 9), 10 ** rng.uniform(6, 9)
    case, most = f"({forward}, {part:.2f}, {time_s:.3g}, {peak:.3g})", peak * time_s
    agree(mfu(forward, part, time_s, peak), model_flops / most, f"mfu{case}", rtol=1e-9,
          mistakes=oracle.mfu_mistakes(forward, part, most))
    agree(hfu(forward, part, time_s, peak), all_flops / most, f"hfu{case}", rtol=1e-9,
          mistakes=oracle.hfu_mistakes(forward, part, most))
print("mfu and hfu agree with PyTorch's counter on 10 stacks of layers, parts of them recomputed")

# %% tags=["check"]
for name, got in (("a100_at_60_percent", a100_at_60_percent), ("h100_dense_peak", h100_dense_peak)):
    want, mistakes = oracle.PUT_RIGHT[name]
    agree(got, want, name, rtol=0.01, mistakes=mistakes)
print("both numbers are right now")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Backward costs as much as two forward passes. How many passes does a step take? How many does the processor
# compute if it repeats a part of one?
# </details>
# <details><summary>Hint: the idea</summary>
#
# MFU counts what the model needs, and HFU what the hardware did. Only the recomputed part makes a difference.
# </details>
#
# **Predict, then measure.** A small transformer is trained twice: keeping all activations, and recomputing every layer. If
# arithmetic takes the time, by what factor is the second slower? Use your formulas.

# %%
# BEGIN SOLUTION
slowdown = hfu(1.0, 1.0, 1.0, 1.0) / hfu(1.0, 0.0, 1.0, 1.0)  # four passes instead of three
# END SOLUTION
ledger.guess("training step, all recomputed / all kept", slowdown, "times")
from torch.utils.checkpoint import checkpoint

# %%
batch, sequence, layers, width = (8, 1024, 8, 2048) if device.has_gpu() else (4, 128, 4, 256)
layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
body = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(where, dtype)
def train(recompute):
    x = torch.rand(batch, sequence, width, device=where, dtype=dtype, requires_grad=True)
    for layer in body.layers:
        x = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
    x.sum().backward()

# %% tags=["nbval-ignore-output"]
forward_flops = transformer_flops(batch, sequence, layers, width, 4 * width, 0) / 3
train_s = [timing.measure(train, recompute, min_time_s=0.5).median_s for recompute in (False, True)]
for part, time_s in enumerate(train_s):
    use = forward_flops, part, time_s, here.flops_per_s[form]
    print(f"{part:4.0%} recomputed: {ledger.show(time_s, 's')} per step, "
          f"MFU {mfu(*use):.0%}, HFU {hfu(*use):.0%}")
ledger.measured("training step, all recomputed / all kept", train_s[1] / train_s[0], "times")

# %% [markdown]
# On an H200, the formulas' factor was right within 2 %. MFU falls, since the same step takes longer. HFU hardly moves: the
# machine is as busy as before, with work that the model didn't ask for. MFU says how soon the training is done, and HFU whether the machine idles.
#
# ### Latency, measured
#
# Part 5 used **Little's law**: bytes in flight = bandwidth × latency. A processor that waits for each fetch before it starts the
# next one has a single line of 64 bytes in flight, and gets a small part of the bandwidth.

# %% [markdown]
# ### Exercise 8.2 · loads_in_flight (optional)
#
# What bandwidth does a given number of bytes in flight reach? And how many loads must each thread of a GPU have in flight, so that together
# they keep memory busy? On an H200 (4.8 TB/s, 0.6 µs, 132 × 2048 threads), is one float32 per thread enough?

# %% tags=["hole"]
def bandwidth_in_flight(bytes_in_flight, latency_s, bandwidth_bytes_per_s):
    """Bytes per second that arrive if so many are on their way at any time. One line."""
    # BEGIN SOLUTION
    return min(bandwidth_bytes_per_s, bytes_in_flight / latency_s)
    # END SOLUTION


def loads_in_flight(bandwidth_bytes_per_s, latency_s, threads, itemsize):
    """Least number of loads, an int, that each thread must keep in flight. About two lines.

    itemsize: bytes per load.
    """
    # BEGIN SOLUTION
    needed_bytes = bandwidth_bytes_per_s * latency_s
    return int(-(-needed_bytes // (threads * itemsize)))
    # END SOLUTION

# %% tags=["check"]
from common.lessons.arithmetic_intensity import expected as oracle

by_hand, more = [(64, 1e-7, 1e12), (1e7, 1e-6, 4e12), (64, 0.3, 4e12)], rng.uniform(1, 8, (9, 3))
for in_flight, latency, bandwidth in by_hand + (more * (1e6, 1e-6, 1e12)).tolist():
    want, mistakes = oracle.arriving(in_flight, latency, bandwidth)
    agree(bandwidth_in_flight(in_flight, latency, bandwidth), want, rtol=1e-9, mistakes=mistakes,
          case=f"bandwidth_in_flight({in_flight:.3g}, {latency:.3g}, {bandwidth:.3g})")
threads = [132 * 2048, *rng.integers(1000, 300_000, 20).tolist()]
cases = [(4.8e12, 6e-7, many, size) for many, size in zip(threads, [4, 16, 1] * 7, strict=True)]
for case in (*cases, (2.0**42, 2.0**-20, 2**18, 4)):  # powers of two: it comes out even
    want, mistakes = oracle.loads(*case)
    agree(loads_in_flight(*case), want, f"loads_in_flight{case}", mistakes=mistakes)
print("bandwidth_in_flight and loads_in_flight: 34 cases")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# If 1 MB is always on its way, and each byte travels for 1 µs, how many bytes arrive per second? (Little's
# law.)
# </details>
# <details><summary>Hint: the idea</summary>
#
# Memory can't give more than its bandwidth. For the second function, solve the formula for the bytes in
# flight. How many of them does one load by all threads bring? Round up.
# </details>
#
# One float32 per thread is not enough, even with all threads that fit. Each thread must have three such loads in flight, or one load of 16 bytes. That is
# why fast kernels give each thread several elements.
#
# Now measure it on your CPU. A *chain* fetches an address, finds the next address there, and fetches that. Chains that don't
# depend on each other can be in flight together. The line is Little's law with the latency of a single chain.

# %% tags=["nbval-ignore-output"]
from common.lessons.arithmetic_intensity import pointer_chase

latency_s, chains = pointer_chase.time_per_round_s(1), (2, 4, 8, 16, 32, 64)
ax = figures.predicted_and_measured(
    chains, lambda many: bandwidth_in_flight(64 * many, latency_s, np.inf),
    [64 * many / pointer_chase.time_per_round_s(many) for many in chains], log="xy", yunit="B/s",
    xlabel="chains", ylabel="rate", title=f"A latency of {1e9 * latency_s:.0f} ns, hidden by chains")
figures.describe(ax, "The rate grows with the number of chains, and then levels off.")

# %% [markdown]
# The dots follow the line at first. Where they level off, one core has as many fetches in flight as it can: about ten to fifty.
#
# The chains lie in an array four times as large as the last cache, up to 2 GiB. So almost every fetch goes to memory. A dot above
# the line means that a fetch took less time than the single chain's.
#
# ### What no count predicts
#
# Do the *contents* of a tensor change the speed of a matrix product? And one row more, or less?

# %% tags=["nbval-ignore-output"]
tries = (torch.zeros, k), (torch.rand, k), (torch.randn, k), (torch.randn, k - 1), (torch.randn, k + 1)
for contents, n in tries:
    m = contents(n, n, device=where, dtype=dtype)
    rate = matmul_flops(n, n, n) / timing.measure(torch.mm, m, m).median_s
    print(f"torch.{contents.__name__:5} {n} × {n}: {ledger.show(rate, 'FLOP/s')}")

# %% [markdown]
# A transistor takes power when it switches, and zeros make few of them switch. A GPU at its power limit lowers its clock: in our runs, an
# H200 was 10 to 15 % slower on normal random numbers than on zeros. So never benchmark on zeros. (A CPU mostly has power to
# spare. There, expect noise.)
#
# For one more row of elements, a whole row of tiles is computed. Also, rows of 8,191 or 8,193 bf16 numbers don't start at multiples of 16
# bytes, as wide loads need: an H200 fell to about a fifth for both. Hence padded vocabularies, such as 50,304 entries instead of
# 50,257.

# %% [markdown]
# **A harder question.** A language model writes one token at a time for each of B users. Every weight (bf16) is read once per
# step, and serves B tokens. From which B on does one more user cost time on an H100? And what else is read for each user, that
# the others don't share?
#
# <details><summary>Answer</summary>
#
# A weight of 2 bytes serves 2B FLOPs: B FLOP/byte. This reaches the ridge point at B = 989.5 / 3.35 ≈ 295. Each user also has keys and values of all earlier tokens (the *KV
# cache*). Their intensity is 1 FLOP/byte for any B, or g if g query heads share them (*grouped queries*).
# </details>

# %% [markdown]
# **And a third roof.** Two H200s multiply matrices together. NVLink takes 450 GB/s from one to the other. From how many FLOPs per
# byte sent on does the link cost no time?
#
# <details><summary>Answer</summary>
#
# 989.5 / 0.45 ≈ 2,200 FLOPs per byte, if messages overlap with arithmetic. Labs 11 to 15 work under this roof.
# </details>

# %% [markdown]
# ## Where it is used
#
# - *Roofline:* [Williams, Waterman and Patterson, 2009](https://doi.org/10.1145/1498765.1498785). The A100's caches: NVIDIA's
#   white paper.
# - *Where time goes:* [Ivanov et al., 2021](https://arxiv.org/abs/2007.00072): in BERT, matrix products are 99.8 % of the FLOPs
#   and 61 % of the time. [Horace He, 2022](https://horace.io/brrr_intro.html).
# - *MFU and HFU:* [Chowdhery et al., 2022](https://arxiv.org/abs/2204.02311), and nanoGPT's `estimate_mfu`.
#   *6·N·D:* [Kaplan et al., 2020](https://arxiv.org/abs/2001.08361).
# - *PyTorch:* `torch.utils.flop_counter`, which checked you.
#
# Limits of our model: one memory at a time, perfect overlap, all FLOPs alike.
