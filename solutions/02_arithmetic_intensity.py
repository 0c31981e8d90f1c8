# %% [markdown]
# # 02 · Arithmetic intensity
#
# **Compute, memory or overhead: where does the time go?**
#
# After this lab you can
#
# - count the FLOPs and the bytes of an operation, and say from these two how fast any machine can run it;
# - tell which of three things limits a program: arithmetic, memory traffic, or the cost of starting the work;
# - read a claim such as "60 % MFU" and know what was divided by what.
#
# You need lab 01; no GPU. About 90 minutes. Where there is a GPU, the same cells measure the GPU.
#
# Keep your whole answer in the cell of its exercise: the grader reads no other.

# %% tags=["setup"]
import itertools

import ipywidgets
import numba
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from common import device, figures, ledger, machine, timing
from common.checks import agree

figures.use_style()
rng = np.random.default_rng()

# %% [markdown]
# **Recall.** `x` is a row-major float32 tensor of shape (1024, 1024). (a) How many bytes does `x.T` move, and how many
# `x.T.contiguous()`? (b) Why is a walk down its columns slower than one along its rows?
#
# <details><summary>Answers</summary>
#
# (a) `x.T` moves none: the same storage, strides swapped. The copy reads 4 MiB and writes 4 MiB. (b) Memory comes in
# lines of 64 bytes, 16 floats. Down a column, a line that was fetched for one float may be gone from the cache before
# its neighbour's turn comes: up to 16 times the traffic for the same arithmetic.
# </details>

# %% [markdown]
# ## See it
#
# Three operations. Each does some additions and multiplications: floating-point operations, *FLOPs*. Divided by the
# time they give a rate in FLOP/s. Before you run the cell, guess: by what factor do the three rates differ?

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
# One machine, one number format, and rates that differ by a factor of about a hundred thousand; on a large GPU, of a
# hundred million. Each operation used up something else:
#
# - the product kept the arithmetic units busy: **compute**;
# - the addition waited for its numbers to arrive from memory: **memory**;
# - the single number waited for Python and PyTorch to get started: **overhead**.
#
# The lecture notes behind this course say: "In practice, it takes the same time to execute matrix addition and
# multiplication on GPUs." You have seen otherwise. In this lab you learn to predict such numbers before you measure them.

# %% [markdown]
# ## Part 1 · Count
#
# Two counts describe an operation before it meets a machine.
#
# **FLOPs.** Each element of a matrix product is a dot product. One of length n takes n multiplications and n additions,
# the first of them onto zero. (n − 1 would do; but the hardware multiplies and adds in one instruction, and everyone
# counts that as two FLOPs.)
#
# **Bytes** that must pass between memory and chip: each input is read once, and each output written once. No program
# can do with fewer. Many move more.

# %% [markdown]
# ### Exercise 1.1 · matmul_flops
#
# Count both for A @ B, where A is m × n and B is n × p.

# %% tags=["hole"]
def matmul_flops(m, n, p):
    """FLOPs of an (m, n) matrix times an (n, p) matrix, as an int. One line."""
    # BEGIN SOLUTION
    return 2 * m * n * p
    # END SOLUTION


def matmul_bytes(m, n, p, itemsize):
    """Least bytes that the product moves, as an int: both inputs read, the output written. One line.

    itemsize: bytes an element.
    """
    # BEGIN SOLUTION
    return itemsize * (m * n + n * p + m * p)
    # END SOLUTION

# %% tags=["check"] points=2
for dtype in (torch.bfloat16, torch.float32, torch.float64) * 10:
    m, n, p, size = *rng.integers(1, 65, 3).tolist(), dtype.itemsize
    # PyTorch's own count; "meta" tensors have a shape and no data.
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        a, b = torch.empty(m, n, dtype=dtype), torch.empty(n, p, dtype=dtype)
        inputs, want = a.nbytes + b.nbytes, a.nbytes + b.nbytes + (a @ b).nbytes
    agree(matmul_flops(m, n, p), counter.get_total_flops(), f"matmul_flops({m}, {n}, {p})", mistakes={
        "Additions count too.": m * n * p, "n additions: the first is onto zero.": m * p * (2 * n - 1)})
    agree(matmul_bytes(m, n, p, size), want, f"matmul_bytes({m}, {n}, {p}, {size})", mistakes={
        "That counts elements; each takes itemsize bytes.": want // size,
        "The output is missing: it has to be written.": inputs,
        "The output is only written.": want + want - inputs})
print("matmul_flops and matmul_bytes agree with PyTorch on 30 products")

# %% [markdown]
# ### Exercise 1.2 · arithmetic_intensity
#
# The **arithmetic intensity** of an operation is its FLOPs divided by the bytes it moves. The notes give two examples:
# 4/3 for the product of two 2 × 2 matrices, and 1/3 for an addition ("2 loads and one store"). Those are FLOPs per
# *element*. Memory is sold by the byte, so ours are per byte.
#
# Write the function, and the notes' two numbers per byte of float32.

# %% tags=["hole"]
def arithmetic_intensity(flops, bytes_moved):
    """FLOPs per byte. One line."""
    # BEGIN SOLUTION
    return flops / bytes_moved
    # END SOLUTION


# In float32, per byte: the product of two 2 × 2 matrices, and an addition.
# BEGIN SOLUTION
product_2x2 = arithmetic_intensity(16, 12 * 4)
addition = arithmetic_intensity(1, 3 * 4)
# END SOLUTION

# %% tags=["check"]
for _ in range(20):
    intensity, moved = rng.uniform(0.01, 1000), rng.uniform(10, 1e6)
    flops, case = intensity * moved, f"arithmetic_intensity({intensity * moved}, {moved})"
    agree(arithmetic_intensity(flops, moved), intensity, case, rtol=1e-9, mistakes={
        "These are bytes per FLOP: turn the fraction round.": 1 / intensity})
per_element = "That is per element, as in the notes; a float32 has 4 bytes."
agree(product_2x2, 1 / 3, "product_2x2", rtol=0.01, mistakes={per_element: 4 / 3})
agree(addition, 1 / 12, "addition", rtol=0.01, mistakes={per_element: 1 / 3})
print("arithmetic_intensity: 20 random cases, and the notes' two numbers per byte")

# %% [markdown]
# Now let the matrices grow.

# %%
for n in (2, 16, 128, 1024, 8192):
    square = arithmetic_intensity(matmul_flops(n, n, n), matmul_bytes(n, n, n, itemsize=4))
    vector = arithmetic_intensity(matmul_flops(n, n, 1), matmul_bytes(n, n, 1, itemsize=4))
    print(f"n = {n:4}: matrix × matrix {square:7.2f} FLOP/byte, "
          f"matrix × vector {vector:.2f}, addition {addition:.3f}")

# %% [markdown]
# In a square product FLOPs grow as n³ and bytes as n², so the intensity is n/6 in float32. A matrix times a vector stays
# at 1/2, however large it is: each weight is fetched for two FLOPs. That is what a language model does for each token
# that it writes.
#
# **The intensity of a matrix product grows with its shortest side. That of an elementwise operation never grows.**

# %% [markdown]
# ## Part 2 · Tiles
#
# "Each input is read once" needs a fast memory that holds everything. Caches are smaller. So a matmul goes tile by
# tile: a tile of C stays in fast memory, while the tiles of A and B that it needs pass by.
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
# Real chips nest it: memory, L2, L1, registers.

# %% [markdown]
# ### Exercise 2.1 · tiled_matmul_bytes
#
# Count the bytes that this loop moves between slow and fast memory, for n × n matrices. Tiles are t × t. Where t does
# not divide n, those at the edge are smaller, and move only what is there.

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
for low, high in [((10, 2, 2), (40, 9, 9)), ((1, 1, 1), (40, 50, 9))] * 30:
    n, tile, size = rng.integers(low, high).tolist()
    sides = [len(range(n)[start:start + tile]) for start in range(0, n, tile)]  # of tiles along an axis
    inputs = size * sum(i * k + k * j for i in sides for j in sides for k in sides)
    matrix, tiles, case = size * n * n, len(sides), f"tiled_matmul_bytes({n}, {tile}, {size})"
    agree(tiled_matmul_bytes(n, tile, size), inputs + matrix, case, mistakes={
        "The last tile passes, too: round the number of tiles up.": 2 * matrix * (n // tile) + matrix,
        "That counts elements, not bytes.": (inputs + matrix) // size, "C is missing.": inputs,
        "C stays in fast memory: it is stored once, not at every step.": inputs + matrix * tiles,
        "Tiles at the edge are smaller than the rest.": size * tile**2 * (2 * tiles**3 + tiles**2),
        "A and B both pass; that counts one of them.": inputs // 2 + matrix})
print("tiled_matmul_bytes agrees with 60 loops, counted tile by tile")

# %% [markdown]
# <details><summary>Hint</summary>
#
# A row of tiles of A is loaded again for every tile of columns of C. So how often does all of A pass? In Python,
# `-(-n // t)` is n/t rounded up.
# </details>
#
# Use it. Your function draws the line. The dots come from a tiled matmul that really runs, and adds up the bytes of the
# tiles that it takes.

# %%
def counted_bytes(n, tile):
    a, b, moved = torch.rand(n, n), torch.rand(n, n), 0
    for rows, columns in itertools.product(a.split(tile), b.split(tile, dim=1)):
        pairs = list(zip(rows.split(tile, dim=1), columns.split(tile), strict=True))
        c = sum(a_tile @ b_tile for a_tile, b_tile in pairs)
        moved += sum(a_tile.nbytes + b_tile.nbytes for a_tile, b_tile in pairs) + c.nbytes
    return moved

# %%
n, tiles = 256, (16, 24, 32, 48, 64, 96, 128, 192, 256)
def tile_intensity(n, tile, itemsize):
    return arithmetic_intensity(matmul_flops(n, n, n), tiled_matmul_bytes(n, tile, itemsize))
figures.predicted_and_measured(
    tiles, [tile_intensity(n, tile, 4) for tile in tiles],
    [arithmetic_intensity(matmul_flops(n, n, n), counted_bytes(n, tile)) for tile in tiles],
    dots_are="counted", log="xy", xlabel="side of a tile (elements)", ylabel="intensity (FLOP/byte)",
    title="The larger the tile, the more arithmetic for each byte");

# %% [markdown]
# The line is flat where a larger tile saves nothing: 256 takes two tiles of 128, and two of 192.
#
# **A question.** The notes say that with cache tiling "the arithmetic intensity decreases since there is more load and
# store". You have just seen it grow. Which bytes did the notes count?
#
# <details><summary>Answer</summary>
#
# All of them: tiling adds copies between cache and registers. But intensity is per byte of *one* memory, and the slow
# one limits. There, an element that was loaded serves t multiplications, not one.
# </details>
#
# **Tiles of side t cut the traffic of the slow memory to 1/t. The size of the fast memory limits t.**

# %% [markdown]
# ## Part 3 · The roofline
#
# A machine has two speeds. Its arithmetic units do at most so many FLOP/s, its *peak*; its memory moves at most so many
# bytes/s, its *bandwidth*. An operation can beat neither. Drawn against intensity, the two limits look like a roof.
#
# The next cell measures both on your machine, once, and keeps them in `machine.json` for later labs. Then it sets data
# sheets beside them. The columns are number formats: fp32 has 32 bits, bf16 and fp16 have 16, fp8 has 8; tf32
# is fp32 rounded for the matrix units. Which machine has the most FLOPs for each byte of bandwidth?

# %% tags=["nbval-ignore-output"]
here = machine.profile()
machine.table(here, *machine.DATA_SHEETS.values())

# %% [markdown]
# ### Exercise 3.1 · attainable_flops_per_s
#
# Write the roof, and the **ridge point**: the intensity where its two sides meet.

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

# %% tags=["check"] points=2
for _ in range(50):
    flops, moved, peak, bandwidth = (10 ** rng.uniform(6, 13, 4)).tolist()
    compute_s, memory_s = flops / peak, moved / bandwidth
    want = flops / max(compute_s, memory_s)  # both go on at the same time: the slower one decides
    case = f"attainable_flops_per_s({flops / moved:.3g}, {peak:.3g}, {bandwidth:.3g})"
    agree(attainable_flops_per_s(flops / moved, peak, bandwidth), want, case, rtol=1e-9, mistakes={
        "That breaks one of the two limits: the lower one holds.": flops / min(compute_s, memory_s),
        "The times don't add: arithmetic goes on while memory moves.": flops / (compute_s + memory_s)})
    agree(ridge_point(peak, bandwidth), peak / bandwidth, f"ridge_point({peak:.3g}, {bandwidth:.3g})",
          rtol=1e-9, mistakes={"That is in bytes per FLOP: turn the fraction round.": bandwidth / peak})
print("attainable_flops_per_s and ridge_point: 50 operations, none faster than its slower half")

# %% tags=["nbval-ignore-output"]
for peaks in (here, *machine.DATA_SHEETS.values()):
    ridge = ridge_point(peaks.flops_per_s[peaks.format], peaks.bandwidth_bytes_per_s)
    print(f"{peaks.device:24} is memory-bound below {ridge:3.0f} FLOP/byte in {peaks.format}")

# %% [markdown]
# Now ten real operations. The data first: two vectors of n elements and a k × k matrix, in the format that the matrix
# units of your machine are built for. Then a table with what you would count by hand, and with what your functions
# count. An exponential is taken for one FLOP (a convention: it takes several instructions). So softmax does five FLOPs
# an element: maximum, subtraction, exponential, sum, division. Layer norm does seven: four for mean and variance, three
# to scale and shift.

# %%
n, k = (2**27, 8192) if device.has_gpu() else (7 * 2**20, 1536)
form = here.format  # fp32 on a CPU; bf16, or fp16, on a GPU
dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[form]
x, y = torch.rand(2, n, device=where, dtype=dtype)
w = torch.rand(k, k, device=where, dtype=dtype)
rows, itemsize = x.view(-1, 1024), x.itemsize
limits = here.flops_per_s[form], here.bandwidth_bytes_per_s

# %%
# name: (function, arguments, FLOPs, bytes)
operations = {"add": (torch.add, (x, y), n, 3 * x.nbytes),
              "dot product": (torch.dot, (x, y), 2 * n, 2 * x.nbytes),
              "scale in place": (torch.Tensor.mul_, (x, 1.0), n, 2 * x.nbytes),
              "softmax of rows": (torch.softmax, (rows, -1), 5 * n, 2 * x.nbytes),
              "layer norm of rows": (torch.layer_norm, (rows, (1024,), *rows[:2]), 7 * n, 2 * x.nbytes)}
for m, p in ((64, 64), (k, 1), (k, 8), (k, 64), (k, k)):
    counts = matmul_flops(m, m, p), matmul_bytes(m, m, p, itemsize)
    operations[f"{m} × {m} by {m} × {p}"] = torch.mm, (w[:m, :m].clone(), w[:m, :p].clone()), *counts

# %% [markdown]
# **Predict.** The notes say that "linear layers (and layer normalization with large batches) are limited by arithmetic
# operations". What part of the peak will layer norm reach on your machine? Type a number from 0 to 1, or a formula. It
# goes into your ledger, `ledger.json`, next to what you measure.

# %%
# BEGIN SOLUTION
layer_norm_part = attainable_flops_per_s(7 / (2 * itemsize), *limits) / limits[0]
# END SOLUTION
ledger.predict("layer norm: part of the peak", layer_norm_part, "of peak")

# %% tags=["nbval-ignore-output"]
points = {}
for name, (function, arguments, flops, bytes_moved) in operations.items():
    # With cold caches, for we count the bytes that come from memory.
    time_s = timing.measure(function, *arguments, min_time_s=0.1, cold_cache=True).median_s
    points[name] = (arithmetic_intensity(flops, bytes_moved), flops / time_s)
ledger.measured("layer norm: part of the peak", points["layer norm of rows"][1] / limits[0], "of peak")
figures.roofline(lambda intensity: attainable_flops_per_s(intensity, *limits), points,
                 ridge=ridge_point(*limits), title=f"Ten operations in {form} on {here.device}");

# %% [markdown]
# What streams through memory lies along the slope or below, layer norm too: **memory-bound**. So does a matrix times a
# column. More columns carry it up for free; past the ridge it is **compute-bound**. The 64 × 64 product is far
# below: **overhead**.
#
# A dot below moved more than we counted (a CPU reads an output's lines before it writes them), or left memory waiting.
# One above was cached, or the roof was measured on a busy machine.
#
# **Left of the ridge, save bytes. Right of it, save FLOPs. Far below the roof, save launches.**
#
# How large must a tile be to reach the peak, if it comes straight from memory?

# %%
def tile_on_roofline(name="H100", side=64):
    peaks = machine.DATA_SHEETS.get(name, here)
    limits = peaks.flops_per_s[peaks.format], peaks.bandwidth_bytes_per_s
    intensity = tile_intensity(8192, side, itemsize=4 if peaks.format == "fp32" else 2)
    reached = f"at most {attainable_flops_per_s(intensity, *limits) / limits[0]:.1%} of the peak"
    figures.roofline(lambda i: attainable_flops_per_s(i, *limits), ridge=ridge_point(*limits),
                     title=f"{peaks.device}, tiles of {side}: {reached}").axvline(intensity, color="C1")
tile_on_roofline()

# %% tags=["nbval-ignore-output"]
sides = ipywidgets.SelectionSlider(options=[2**i for i in range(11)], value=64)
ipywidgets.interact(tile_on_roofline, name=["this machine", *machine.DATA_SHEETS], side=sides);

# %% [markdown]
# ## Part 4 · The first forty multiplications
#
# A question from the lecture behind this course (Horace He, 2024). An A100 does about 10 · 10¹² float32 multiplications
# a second, and moves 2 · 10¹² bytes a second. How often can this loop multiply, *fused* into one kernel (a function that
# runs on the GPU), before the kernel takes twice as long? Fused: an element is loaded once, multiplied in a register,
# and stored once.
#
# ```python
# def f(x):
#     for _ in range(repeat):
#         x = x * 2
#     return x
# ```
#
# (Why 10, if the data sheet says 19.5? It counts an instruction that multiplies *and* adds. A multiplication
# alone takes the same instruction.)

# %% [markdown]
# ### Exercise 4.1 · free_multiplications
#
# While memory is busy with one element, the arithmetic units have nothing else to do. How many multiplications fit into
# that time? And into `slowdown` times that time, if the slower of the two decides?

# %% tags=["hole"]
def free_multiplications(multiplications_per_s, bandwidth_bytes_per_s, itemsize, slowdown=1):
    """Multiplications an element, a float, that fit into slowdown times memory's time. About two lines.

    Each element is read once and written once. Memory and arithmetic work at the same time.
    """
    # BEGIN SOLUTION
    memory_s = 2 * itemsize / bandwidth_bytes_per_s
    return slowdown * memory_s * multiplications_per_s
    # END SOLUTION

# %% tags=["check"] points=2
cases = [(rng.uniform(1, 99), rng.uniform(1e-12, 1e-9), int(rng.integers(3, 9)), rng.uniform(2.1, 4))
         for _ in range(30)]
cases += [(40.0, 4e-12, 4, 1), (40.0, 4e-12, 4, 2)]  # the A100: in balance at 40, twice the time at 80
for in_balance, element_s, size, slowdown in cases:
    rate, bandwidth, want = in_balance / element_s, 2 * size / element_s, in_balance * slowdown
    case = f"free_multiplications({rate:.3g}, {bandwidth:.3g}, {size}, {slowdown:.3g})"
    agree(free_multiplications(rate, bandwidth, size, slowdown), want, case, rtol=1e-9, mistakes={
        "Each element is read and written: two transfers.": want / 2,
        "slowdown is left out.": in_balance,
        "Count bytes: an element has itemsize of them.": want / size,
        "The times don't add: arithmetic goes on while memory moves.": want - in_balance})
print("free_multiplications: 40 on an A100, 80 for twice the time, and 30 random machines")

# %% [markdown]
# Forty multiplications cost as much as one. Try it on your machine. `x * 2` would soon overflow; we multiply by a number
# just above 1. A compiler may not fold these products into one, for float32 rounds after each. (If one did, the dots
# would stay flat: keep an eye on that.)
#
# Unfused, each multiplication is a pass over memory. To fuse them takes a compiler: `torch.compile` on a GPU; on a CPU
# Numba, which needs no C++ compiler, for the same loop.

# %%
FACTOR = 1.0000001
x = torch.ones(2**28 if device.has_gpu() else 2**24, device=where)

def unfused(x, repeat):
    for _ in range(repeat):
        x.mul_(FACTOR)

def fused(repeat):
    return torch.compile(lambda x: unfused(x, repeat)) if device.has_gpu() else fused_on_cpu(repeat)

# %%
def fused_on_cpu(repeat):
    @numba.njit(parallel=True)
    def loop(x):
        for i in numba.prange(x.size):
            for _ in range(repeat):
                x[i] *= numba.float32(FACTOR)  # the compiler keeps x[i] in a register
    return lambda x: loop(x.numpy())

# %% [markdown]
# **Predict**, with your own function: from how many multiplications on does the fused kernel take twice as long here?
# (Measuring it on a CPU passes over 67 MB a thousand times: some twenty seconds.)

# %%
# A multiplication takes the place of a multiplication and an addition.
multiplications_per_s = here.flops_per_s["fp32"] / 2
in_balance = free_multiplications(multiplications_per_s, here.bandwidth_bytes_per_s, itemsize=4)
one_pass_s = 2 * x.nbytes / here.bandwidth_bytes_per_s
predicted = {"fused": lambda repeat: one_pass_s * max(1, repeat / in_balance),
             "unfused": lambda repeat: one_pass_s * repeat}
ledger.predict("multiplications that double the time", 2 * in_balance, "multiplications")

# %% tags=["nbval-ignore-output"]
repeats = (1, 8, 16, 32, 64, 128) + (256,) * device.has_gpu()
measured = {"fused": [timing.measure(fused(i), x, min_time_s=0.1).median_s for i in repeats],
            "unfused": [timing.measure(unfused, x, i, min_time_s=0.05).median_s for i in repeats]}
doubling = np.interp(2 * measured["fused"][0], measured["fused"], repeats)
ledger.measured("multiplications that double the time", doubling, "multiplications")
figures.predicted_and_measured(
    repeats, predicted, measured, log="xy", yunit="s", xlabel="multiplications of each element",
    ylabel="time", title=f"The first {in_balance:.0f} multiplications are free");

# %% [markdown]
# The fused dots stay level, then turn up: from there on every multiplication is paid for. The gap between the two lines
# is what fusion saves: trips to memory, not arithmetic, of which both do the same.
#
# **While memory is the limit, arithmetic is free. Fusion makes one trip to memory out of many.**

# %% [markdown]
# ## Part 5 · Overhead
#
# Before anything moves, an operation has to be started: Python finds the method, PyTorch picks the kernel, the driver
# puts it into a queue. `here.overhead_s` is that cost: the time of one operation on one element, one after another.
#
# On a GPU the CPU runs ahead, and starts the next operations while the GPU still computes. So of overhead and work only
# the slower one shows. (On a CPU they add up; but where one is much larger, that is the same.) Three times compete, and
# **the slowest of the three is the time.**

# %% [markdown]
# ### Exercise 5.1 · predicted_time_s
#
# Write this model in a line. Then solve it for the size at which memory takes as long as the launch.

# %% tags=["hole"]
def predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    """Seconds that an operation takes: compute, memory or overhead, whichever is slowest. One line."""
    # BEGIN SOLUTION
    return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
    # END SOLUTION


def launch_bound_elements(bytes_per_element, bandwidth_bytes_per_s, overhead_s):
    """Number of elements, as a float, up to which the launch takes longer than memory. One line."""
    # BEGIN SOLUTION
    return overhead_s * bandwidth_bytes_per_s / bytes_per_element
    # END SOLUTION

# %% tags=["check"]
for _ in range(50):
    compute_s, memory_s, overhead_s = times_s = (10 ** rng.uniform(-6, -2, 3)).tolist()
    peak, bandwidth = (10 ** rng.uniform(9, 15, 2)).tolist()
    case = "predicted_time_s: compute {:.2g} s, memory {:.2g} s, overhead {:.2g} s".format(*times_s)
    got = predicted_time_s(compute_s * peak, memory_s * bandwidth, peak, bandwidth, overhead_s)
    agree(got, max(times_s), case, rtol=1e-9, mistakes={
        "The three overlap: don't add them.": sum(times_s),
        "The slowest decides, not the fastest.": min(times_s),
        "Overhead overlaps, too: don't add it.": max(compute_s, memory_s) + overhead_s,
        "Overhead is left out.": max(compute_s, memory_s)})
print("predicted_time_s: 50 operations")

# %% tags=["check"]
for _ in range(50):
    elements, overhead_s, size = rng.uniform(1, 1e7), 10 ** rng.uniform(-6, -2), int(rng.integers(2, 9))
    bandwidth = elements * size / overhead_s
    case = f"launch_bound_elements({size}, {bandwidth:.3g}, {overhead_s:.3g})"
    agree(launch_bound_elements(size, bandwidth, overhead_s), elements, case, rtol=1e-9, mistakes={
        "Those are bytes: how many elements is that?": elements * size})
print("launch_bound_elements: 50 machines")

# %% [markdown]
# **Guess**, before you compute it: from how many float32 on does `x.mul_(2)` take twice as long as for a single one?

# %%
# BEGIN SOLUTION
guess = 1_000_000 if device.has_gpu() else 10_000
# END SOLUTION
ledger.predict("elements for which mul_ takes twice as long as for one", guess, "elements")

# %% tags=["nbval-ignore-output"]
sizes = [4**i for i in range(15 if device.has_gpu() else 13)]
times_s = [timing.measure(x[:size].mul_, FACTOR, min_time_s=0.1).median_s for size in sizes]
doubling = np.interp(2 * times_s[0], times_s, sizes)
ledger.measured("elements for which mul_ takes twice as long as for one", doubling, "elements")

# %% tags=["nbval-ignore-output"]
limits = here.flops_per_s["fp32"], here.bandwidth_bytes_per_s, here.overhead_s
ax = figures.predicted_and_measured(
    sizes, lambda n: predicted_time_s(n, 8 * n, *limits), times_s, log="xy", yunit="s",
    xlabel="elements", ylabel="time of x.mul_", title="A small tensor costs as much as none")
ax.axvline(launch_bound_elements(8, *limits[1:]), color=figures.QUIET, linestyle=":");

# %% [markdown]
# Left of the dotted line you pay for the launch, right of it for the work. Where dots dip below the line, the tensor
# fits into a cache, which is faster than memory. Where they leap above it on a busy CPU, PyTorch has split the work
# among threads, and one waits for another.
#
# A large GPU's dotted line stands hundreds of times further right than a laptop's: its memory is much faster, its
# launches are not. So small operations waste it.
#
# What helps? Fewer launches (fusion), larger operations (batches), or a **CUDA graph**: it records many launches, and
# replays them with a single one.

# %% tags=["nbval-ignore-output"]
few = torch.ones(1024, device=where)
if device.has_gpu():
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        unfused(few, 100)
    for name, call in ("one by one", lambda: unfused(few, 100)), ("as a graph", graph.replay):
        print(f"100 launches {name}: {ledger.show(timing.measure(call).median_s, 's')}")
else:
    print("CUDA graphs need a GPU. On an H200, 100 launches took 634 µs one by one, 94 µs as a graph.")

# %% [markdown]
# **Clinic.** Someone reports these rates for the fused kernel of Part 4, and blames the hardware for the difference
# between the first two. There are two mistakes; the second shows on a GPU only. Which?

# %% tags=["nbval-ignore-output"]
from time import perf_counter

kernel, flops = fused(24), 24 * x.numel()
for call in ("first call:", "second call:"):
    started = perf_counter()
    kernel(x)
    print(f"{call:12} {ledger.show(flops / (perf_counter() - started), 'FLOP/s')}")
print("measured:   ", ledger.show(flops / timing.measure(kernel, x).median_s, "FLOP/s"))

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# *No warm-up*: the first call compiles the kernel, and the compiler is what was timed. *No synchronisation*: on a GPU the
# call returns once the kernel is queued, so that the second call timed the queue, and reports more than the roof
# allows. `timing.measure` calls once before it starts the clock, waits for the GPU before it stops it, and takes the median
# of many calls. A rate above the roof is never good news: the clock, the count or the roof is wrong.
# </details>
#
# **Below some size you pay for the launch, whatever you launch. A benchmark warms up, waits, and repeats.**

# %% [markdown]
# ## Part 6 · How well is the machine used?
#
# For a whole training step one number is customary. **Model FLOPs utilisation** (MFU): the FLOPs that the model
# needs for the step, divided by the step's time and by the machine's peak. It needs a forward and a backward pass; the
# backward pass costs two forward passes, one for the gradients of the inputs, one for those of the weights.
#
# To save memory, activations (the layers' outputs, kept for the backward pass) may be dropped and computed again (lab
# 09). The hardware does these FLOPs, but the model didn't ask for them: **hardware FLOPs utilisation** (HFU) counts
# them, MFU doesn't.

# %% [markdown]
# ### Exercise 6.1 · mfu
#
# Write both. Then put two numbers right. In the notes, FlashAttention "took the MFU value to 60%! A100 has 312 FLOPs
# [TFLOP/s], so we are using ~160": are we? And a slide of the lecture gives the H100's bf16 peak as 1,979 TFLOP/s, with an
# asterisk: that is *with sparsity*, for matrices of which half of the entries are zeros. What is it for dense ones?

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
for _ in range(20):
    batch, width = rng.integers(1, 40, 2).tolist()
    # PyTorch counts a forward and a backward pass.
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        torch.nn.Linear(width, width)(torch.empty(batch, width, requires_grad=True)).sum().backward()
    forward, step = 2 * batch * width**2, counter.get_total_flops()
    part, time_s, peak = rng.uniform(0.1, 1), rng.uniform(0.1, 9), 10 ** rng.uniform(6, 9)
    most, case = peak * time_s, f"mfu({forward}, {part:.2f}, {time_s:.3g}, {peak:.3g})"
    agree(mfu(forward, part, time_s, peak), step / most, case, rtol=1e-9, mistakes={
        "Recomputing counts in HFU only: the model didn't ask for it.": (step + part * forward) / most,
        "The backward pass is missing: it costs two forward passes.": forward / most,
        "The backward pass costs two forward passes, not one.": 2 * forward / most})
print("mfu agrees with PyTorch's counter on 20 layers")

# %% tags=["check"]
for layers in range(1, 11):
    batch, width, again = *rng.integers(1, 20, 2).tolist(), int(rng.integers(layers + 1))
    x, linear = torch.rand(batch, width, requires_grad=True), torch.nn.Linear(width, width)
    with FlopCounterMode(display=False) as counter, set_checkpoint_early_stop(False):
        for i in range(layers):  # `again` of them are computed again in the backward pass
            x = checkpoint(linear, x, use_reentrant=False) if i < again else linear(x)
        x.sum().backward()
    forward, part, time_s = 2 * layers * batch * width**2, again / layers, rng.uniform(0.1, 9)
    most, case = 1e6 * time_s, f"hfu({forward}, {part:.2f}, {time_s:.3g}, 1e6)"
    agree(hfu(forward, part, time_s, 1e6), counter.get_total_flops() / most, case, rtol=1e-9, mistakes={
        "Recomputation is missing: the hardware does it, and HFU counts it.": 3 * forward / most})
print("hfu agrees with PyTorch's counter on 10 stacks of layers, some of them checkpointed")

# %% tags=["check"]
agree(a100_at_60_percent, 187.2e12, "a100_at_60_percent", rtol=0.01, mistakes={
    "The notes' 160 is 51 % of 312.": 160e12, "In FLOP/s, please, not in TFLOP/s.": 187.2,
    "312 is dense already: it needs no halving.": 93.6e12})
agree(h100_dense_peak, 989.5e12, "h100_dense_peak", rtol=0.01, mistakes={
    "That is the rate with sparsity: half of the products are skipped.": 1979e12,
    "In FLOP/s, please, not in TFLOP/s.": 989.5})
print("both numbers are right now")

# %% [markdown]
# ### Exercise 6.2 · transformer_flops
#
# Count a transformer's training step from its shapes: all its matrix products, forward and backward. (In a large
# model the rest is below one percent.) A layer has
#
# - attention: queries, keys, values and output, each a width × width matrix applied to every token; the scores, each
#   query with each key of its sequence (count all pairs, masked or not); and the scores times the values;
# - a feedforward network: from width to feedforward, and back.
#
# In the end a matrix turns each token into one score for each word of the vocabulary. The embedding in the beginning is a
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
for heads in (1, 2, 3, 4):
    b, s, d = *rng.integers(2, 6, 2).tolist(), heads * int(rng.integers(11, 16))
    with torch.device("meta"), FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        x = torch.empty(b, s, d, requires_grad=True)
        torch.nn.MultiheadAttention(d, heads, batch_first=True)(x, x, x)[0].sum().backward()
    # No feedforward network, no vocabulary: what is left is attention.
    want, case = counter.get_total_flops(), f"transformer_flops({b}, {s}, 1, {d}, 0, 0)"
    agree(transformer_flops(b, s, 1, d, 0, 0), want, case, mistakes={
        "Four projections: queries, keys, values and output.": want - 6 * b * s * d * d,
        **{f"Scores, scores times values: {i} missing.": want - 6 * i * b * s * s * d for i in (1, 2)},
        "Each query meets the keys of its own sequence only.": want + 12 * b * s * s * (b - 1) * d,
        **{f"A backward pass costs two forward passes, not {i}.": (1 + i) * want // 3 for i in (0, 1)}})
print("transformer_flops agrees with PyTorch's counter on 4 attention layers")

# %% tags=["check"] points=2
for heads in (1, 1, 2, 2, 3, 4):
    b, s, n, d, f, v = shape = tuple((heads * rng.integers(1, 6, 6)).tolist())
    with torch.device("meta"), FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        layer = torch.nn.TransformerEncoderLayer(d, heads, f, dropout=0.0, batch_first=True)
        body = torch.nn.TransformerEncoder(layer, n, enable_nested_tensor=False)
        torch.nn.Linear(d, v)(body(torch.empty(b, s, d, requires_grad=True))).sum().backward()
    want = counter.get_total_flops()
    agree(transformer_flops(*shape), want, f"transformer_flops{shape}", mistakes={
        "The vocabulary is missing: a matrix for each token, in the end.": want - 6 * b * s * d * v,
        "The vocabulary comes once, not in each layer.": want + (n - 1) * 6 * b * s * d * v,
        "The feedforward network has two matrices.": want - 6 * b * s * n * d * f})
print("transformer_flops agrees with PyTorch's counter on 6 transformers")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Weights applied to every token: `matmul_flops(batch * sequence, width, ...)`. The scores of a sequence are a (sequence,
# width) matrix times a (width, sequence) one; heads change nothing, for each has its share of the width.
# </details>
#
# Everyone's shortcut is **6·N·D**: six FLOPs, two forward and four backward, for each of N weights and each of D tokens.
# Here it is against your count, for the shape of GPT-3 and ever longer sequences.

# %%
layers, width, feedforward, vocabulary = 96, 12288, 4 * 12288, 50257
weights = layers * (4 * width**2 + 2 * width * feedforward) + width * vocabulary
for sequence in (512, 2048, 8192, 32768, 131072):
    flops = transformer_flops(1, sequence, layers, width, feedforward, vocabulary)
    ratio = flops / (6 * weights * sequence)
    print(f"{sequence:6} tokens: {ratio:.3f} times 6·N·D, with N = {weights / 1e9:.0f} billion")

# %% [markdown]
# Attention adds a part of about sequence / (6 · width). **A weight costs six FLOPs a token; attention comes on top, and
# grows with the sequence.**
#
# ## Predict, then measure
#
# A small transformer is trained twice: keeping all activations, and recomputing every layer. If arithmetic is what takes
# the time, by what factor is the second slower? Use your formulas.

# %%
# BEGIN SOLUTION
slowdown = hfu(1.0, 1.0, 1.0, 1.0) / hfu(1.0, 0.0, 1.0, 1.0)  # four passes instead of three
# END SOLUTION
ledger.predict("training step, all recomputed / all kept", slowdown, "times")

# %%
batch, sequence, layers, width = (8, 1024, 8, 2048) if device.has_gpu() else (4, 128, 4, 256)
layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
body = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(where, dtype)
def step(recompute):
    x = torch.rand(batch, sequence, width, device=where, dtype=dtype, requires_grad=True)
    for layer in body.layers:
        x = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
    x.sum().backward()

# %% tags=["nbval-ignore-output"]
forward_flops = transformer_flops(batch, sequence, layers, width, 4 * width, 0) / 3
times_s = [timing.measure(step, recompute, min_time_s=0.5).median_s for recompute in (False, True)]
for part, time_s in enumerate(times_s):
    use = forward_flops, part, time_s, here.flops_per_s[form]
    print(f"{part:4.0%} recomputed: {ledger.show(time_s, 's')} a step, "
          f"MFU {mfu(*use):.0%}, HFU {hfu(*use):.0%}")
ledger.measured("training step, all recomputed / all kept", times_s[1] / times_s[0], "times")

# %% [markdown]
# MFU falls, for the same step takes longer. HFU hardly moves: the machine is as busy as before, with work that the model
# didn't ask for. MFU tells how soon the training is done, HFU whether the machine idles. (We divided by the peak that you
# measured with one large matmul; published figures divide by the data sheet's, and are lower.)
#
# ## What no count predicts
#
# Do the *contents* of a tensor change the speed of a matmul? And one row more, or less?

# %% tags=["nbval-ignore-output"]
tries = (torch.zeros, k), (torch.rand, k), (torch.randn, k), (torch.randn, k - 1), (torch.randn, k + 1)
for contents, n in tries:
    m = contents(n, n, device=where, dtype=dtype)
    rate = matmul_flops(n, n, n) / timing.measure(torch.mm, m, m).median_s
    print(f"torch.{contents.__name__:5} {n} × {n}: {ledger.show(rate, 'FLOP/s')}")

# %% [markdown]
# A transistor takes power when it switches; zeros switch few. A GPU at its power limit lowers its clock. The lecture shows 295 TFLOP/s for zeros, 268 for uniform, 257 for normal numbers; an H200 did 773, 745, 701.
# So never benchmark on zeros. (A CPU mostly has power to spare; there, expect noise.)
#
# One row more, and a row of tiles is computed for it. Rows of 8,193 bf16 numbers don't start at multiples of 16
# bytes, as wide loads need. An H200 fell from 701 to 149 TFLOP/s. Hence padded vocabularies: nanoGPT's has 50,304
# entries, a multiple of 64, not 50,257.

# %% [markdown]
# ## Where it is used
#
# - *Roofline*: Williams, Waterman and Patterson (Communications of the ACM, 2009). Nsight Compute draws one for every
#   kernel.
# - *Where time goes*: Ivanov et al., "Data movement is all you need" (2021): in BERT, matrix products are 99.8 % of the
#   FLOPs and 61 % of the time. Horace He, "Making deep learning go brrrr" (2022).
# - *MFU*: Chowdhery et al., PaLM (2022); nanoGPT's `estimate_mfu`. *HFU*: Korthikanti et al. (2022). *6·N·D*: Kaplan et
#   al. (2020).
# - *PyTorch*: `torch.utils.flop_counter`, which checked you; `torch.compile`, which fuses.
#
# Limits of our model: one memory, perfect overlap, no latency, all FLOPs alike.

# %% [markdown]
# ## Done
#
# The constants of your machine go into your ledger, for later labs to plan with. The figure shows how good your
# predictions were. Grade the lab with `python -m grading 02`.
#
# **A harder question.** A language model writes one token at a time for each of B users. Every weight (bf16) is read once
# a step, and serves B tokens. From which B on does one more user cost time on an H100? And what else is read for each
# user, that the others don't share? (Lab 06 takes it up.)

# %% tags=["nbval-ignore-output"]
source = f"{here.source} on {here.device}"
ledger.constant("memory bandwidth", here.bandwidth_bytes_per_s, "B/s", source)
ledger.constant(f"peak of {form} matmul", here.flops_per_s[form], "FLOP/s", source)
ledger.constant("overhead of an operation", here.overhead_s, "s", source)
ledger.constants()

# %% tags=["nbval-ignore-output"]
ledger.figure()
ledger.table()
