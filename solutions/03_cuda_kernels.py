# %% [markdown]
# # 03 · CUDA kernels
#
# **What does one GPU thread do, and what do 32 of them cost together?**
#
# After this lab you can
#
# - write a kernel: a function that thousands of threads run at once, each on elements of its own;
# - say what 32 threads cost together, in sectors, wavefronts and divergent branches;
# - climb from a naive matrix product to one near cuBLAS, and say what each rung saves.
#
# *Needs* labs 01 and 02. *Takes* about 150 minutes. Without a GPU kernels run in a simulator that counts; with one, the
# same cells count, and then measure.
#
# What you want counted stands in the hole's cell: the grader reads no other.

# %% tags=["setup"]
import contextlib
import operator
import pathlib

import ipywidgets
import numpy as np
from numba import float32, uint32

from common import device, figures, ledger, simt, timing
from common.checks import agree
from common.device import cuda

figures.use_style()
rng = np.random.default_rng()
TILE = 16

# %% tags=["setup"]
def floats(*shape):
    return rng.standard_normal(shape, np.float32)

def clean(report):
    """Asserts that no two threads raced, and that none read what nothing had written."""
    assert not (problems := [*report.races, *report.unwritten]), f"{report.kernel}: {problems[0]}"

def par(report, count, most, why):
    """Asserts that a launch took at most par of a count; if it took more, draws its costliest line."""
    got = operator.attrgetter(count)(report)
    if got > most and "." in count and report.trace:
        report.draw(max(report.lines, key=operator.attrgetter(count)).number)
    name = " of ".join(reversed(count.replace("_", " ").split(".")))
    assert got <= most, f"{report.kernel} took {got:,} {name}; par is {most:,}. {why}"

# %% [markdown]
# **Recall 1** (lab 01). `x` is a row-major float32 matrix of shape (1024, 1024). How many bytes lie between two neighbours
# in a row, and between two in a column?
#
# <details><summary>Answer</summary>
#
# 4 and 4,096: the stride of the last axis is 1 element, that of the first is 1024.
# </details>
#
# **Recall 2** (lab 02). A GPU moves 4.28 TB/s. How long must it take at least to add two vectors of 2²⁸ float32 numbers?
# Is that compute-bound?
#
# <details><summary>Answer</summary>
#
# Two loads and a store of 4 bytes for every addition: 12 · 2²⁸ bytes, 0.75 ms. At 1/12 FLOP/byte, memory decides.
# </details>

# %% [markdown]
# ## See it
#
# Here are two programs for a GPU. Both multiply matrices, each *thread* computing one element of the result. They differ
# in one thing: which of a thread's two coordinates is the row. So every thread does the same arithmetic and loads as many
# numbers. Memory is read in *sectors* of 32 bytes. How many does each program ask for? Guess before you run the third cell.

# %%
@cuda.jit(device=True)
def dot(a, b, row, column):
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, column]
    return total

# %%
@cuda.jit
def matmul_naive(a, b, c):
    x, y = cuda.grid(2)
    c[y, x] = dot(a, b, y, x)

@cuda.jit
def matmul_swapped(a, b, c):
    x, y = cuda.grid(2)
    c[x, y] = dot(a, b, x, y)

# %%
a, b, c = floats(64, 64), floats(64, 64), np.zeros((64, 64), np.float32)
reports = [simt.count(kernel, (4, 4), (16, 16), a, b, c) for kernel in (matmul_naive, matmul_swapped)]
for report in reports:
    loads = report.global_loads
    print(f"{report.kernel:15} {loads.sectors:7,} sectors in {loads.requests:,} requests")
print("largest difference from NumPy's product:", np.abs(c - a @ b).max())
for report in reports:
    report.draw()

# %% [markdown]
# **Same answer, four times the sectors.** Threads run in groups of 32, called *warps*. The *lanes* of a warp execute one
# instruction together, and what they load by it is one *request*. The figures show one for `a` and one for `b`, of the naive
# program, then of the swapped one. A row is a sector; a number names the lane that wants this word (×16: sixteen do); grey
# was fetched for nothing.
#
# In the first, neighbouring lanes are in one row, and want the same word of `a`. In the second, they want words that lie a
# row apart.
#
# **You write for one thread, and pay for 32.**

# %% [markdown]
# ## Part 1 · One thread
#
# A *kernel* is launched on a *grid* of *blocks* of threads: `kernel[grid, block](...)`. It is written for one thread, which
# asks where it is: `cuda.threadIdx.x` is its place in its block, `cuda.blockIdx.x` its block's in the grid, `cuda.blockDim.x`
# a block's size. `cuda.grid(1)` is `blockIdx.x * blockDim.x + threadIdx.x`. It returns nothing: it stores into an array.
#
# ### Exercise 1.1 · vector_add
#
# Eight blocks of 128 threads, for 1,000 elements, leave 24 over. A slide of the lectures behind this course computes `idx`, and
# tests `if id < N`: a slip. Untested, what would those 24 do?

# %% tags=["hole"]
@cuda.jit
def vector_add(x, y, out):
    """out[i] = x[i] + y[i], an element a thread; threads past the end do nothing. About three lines.

    Launched with blocks of 128 threads, as many blocks as give each element a thread.
    """
    # BEGIN SOLUTION
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]
    # END SOLUTION

# %% tags=["check"] points=2
for n in (1, 128, int(rng.integers(300, 1000))):
    x, y, out = floats(n), floats(n), np.full(n, np.nan, np.float32)
    want = x + y
    report = simt.count(vector_add, -(-n // 128), 128, x, y, out)
    clean(report)
    agree(out, want, f"vector_add of {n} elements")
    par(report, "steps", 40, "That is the busiest warp's: give each thread one element.")
    par(report, "atomics", 0, "No two threads have one element of `out`: a plain store will do.")
    par(report, "global_loads.sectors", 2 * -(-n // 8),
        "Neighbouring threads should load neighbouring elements: eight to a sector.")
print("vector_add: three lengths, every sector loaded once")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `i = cuda.grid(1)`, and everything else only `if i < out.size`. Without the guard a GPU reads and writes whatever lies
# behind the vectors; the simulator says which thread does.
# </details>
#
# `simt.count(kernel, grid, block, ...)` launches a kernel in the simulator; its report shows what that cost, line by line.

# %%
report = simt.count(vector_add, 8, 128, floats(1000), floats(1000), np.zeros(1000, np.float32))
print(report)

# %% [markdown]
# The last warp *diverges* at the guard: 8 of its lanes go in, 24 don't. *Steps* are the instructions of the busiest warp, as
# written. They are scored, too: a kernel can have few sectors because one thread does everything, while all others wait.
#
# ### Exercise 1.2 · matrix_add_doubled
#
# Grids and blocks have up to three axes. In a block x runs fastest: **a warp is 32 threads that follow each other along x**,
# then along y. The lecture notes add a 6 × 12 matrix to another one, doubled, with 72 threads in blocks of (4, 3), x first.
# Write it for any shape. Which coordinate should be the column?

# %% tags=["hole"]
@cuda.jit(device=True)
def doubled(value):
    """Twice a value: a device function, which kernels may call."""
    return 2 * value


@cuda.jit
def matrix_add_doubled(a, b, c):
    """c = a + 2 b for matrices, an element a thread. About three lines.

    Launched with enough blocks: the grid's x covers the columns, its y the rows.
    """
    # BEGIN SOLUTION
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = a[row, column] + doubled(b[row, column])
    # END SOLUTION

# %% tags=["check"] points=2
odd = (2 * rng.integers(10, 25, 2) + 1).tolist()
for (rows, columns), (x, y) in [((64, 64), (32, 4)), ((6, 12), (4, 3)), (odd, (16, 8))]:
    a, b, c = floats(rows, columns), floats(rows, columns), np.full((rows, columns), np.nan, np.float32)
    want = a + 2 * b
    report = simt.count(matrix_add_doubled, (-(-columns // x), -(-rows // y)), (x, y), a, b, c)
    clean(report)
    agree(c, want, f"matrix_add_doubled of {rows} × {columns}, blocks ({x}, {y})", rtol=1e-5, atol=1e-6)
    par(report, "steps", 60, "That is the busiest warp's: give each thread one element.")
    par(report, "global_loads.sectors", 1024 if columns == 64 else 2 * rows * columns,
        "Lanes of a warp differ in x, and elements of a row are neighbours: let x be the column.")
print("matrix_add_doubled: three shapes, the notes' 72 threads among them")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `column, row = cuda.grid(2)`: x comes first. Guard both.
# </details>
#
# **One thread, one element, one guard; and x is the axis along which memory runs.**
#
# ## Part 2 · Thirty-two threads
#
# A *window average* takes three numbers for each result. The notes' loop for one processor reads `input[i + 1]` twice and
# `input[i + 2]` never; their kernel, below, does it right. (By a plain `3` Numba divides in float64, slower on any GPU.)
#
# Predict: how many sectors do 128 threads, a block, load? A request for 32 neighbouring float32 numbers is 128 bytes. The
# vector begins where a sector does.

# %%
@cuda.jit
def window_average_naive(x, out):
    i = cuda.grid(1)
    out[i] = (x[i] + x[i + 1] + x[i + 2]) / float32(3)

# BEGIN SOLUTION
sectors = 4 * (4 + 5 + 5)  # a warp's x[i + 1] and x[i + 2] begin inside of a sector
# END SOLUTION
ledger.predict("window average: sectors a block of 128 loads", sectors, "sectors")

# %%
report = simt.count(window_average_naive, 1, 128, floats(130), np.zeros(128, np.float32))
ledger.counted("window average: sectors a block of 128 loads", report.global_loads.sectors, "sectors")
print(report.global_loads)
report.draw();

# %% [markdown]
# 56, not 48. "Each element is read thrice", as the notes say, and besides, a shifted request touches a fifth sector. Yet
# the 130 numbers lie in 17 sectors.
#
# A block can load them once into its **shared memory**: a small array on the chip that all its threads see, gone when the
# block ends. Whoever reads what another thread has written must wait for it at a **barrier**, `cuda.syncthreads()`, which
# all threads of the block must reach. The notes' second kernel does that.
#
# ### Clinic: the notes' kernel
#
# Read it, then run the second cell. What is wrong?

# %%
@cuda.jit
def window_average_notes(x, out):
    support, i, t = cuda.shared.array(128, float32), cuda.grid(1), cuda.threadIdx.x
    support[t] = x[i]
    if t < 2:
        support[128 + t] = x[i + 128]
    cuda.syncthreads()
    out[i] = (support[t] + support[t + 1] + support[t + 2]) / float32(3)

# %%
try:
    simt.count(window_average_notes, 1, 128, floats(130), np.zeros(128, np.float32), seed=0)
except IndexError as error:
    print(error)

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# 128 threads need 130 numbers. The last two, the *halo*, belong to the next block as well. The array has room for 128. A GPU
# says nothing: the two land in whatever comes next in shared memory, often nothing, and the result is right until someone
# declares a second array. And there is no guard: the length must be a multiple of 128.
# </details>
#
# ### Exercise 2.1 · window_average
#
# Mend both. The size of a shared array is a constant: a number written out, or a constant's name.

# %% tags=["hole"]
@cuda.jit
def window_average(x, out):
    """out[i] = (x[i] + x[i + 1] + x[i + 2]) / 3; a block loads each number once. About nine lines.

    x is two longer than out. Launched with blocks of 128 threads, enough for each element of out.
    """
    # BEGIN SOLUTION
    s = cuda.shared.array(130, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < x.size:
        s[t] = x[i]
    if t < 2 and i + 128 < x.size:
        s[t + 128] = x[i + 128]
    cuda.syncthreads()
    if i < out.size:
        out[i] = (s[t] + s[t + 1] + s[t + 2]) / float32(3)
    # END SOLUTION

# %% tags=["check"] points=3
for n in (1, 256, *rng.integers(129, 1000, 3).tolist()):
    x, out, blocks = floats(n + 2), np.full(n, np.nan, np.float32), -(-n // 128)
    want, twice = (x[:-2] + x[1:-1] + x[2:]) / np.float32(3), (x[:-2] + 2 * x[1:-1]) / np.float32(3)
    report = simt.count(window_average, blocks, 128, x, out)
    clean(report)
    agree(out, want, f"window_average of {n} elements", rtol=1e-5, atol=1e-6, mistakes={
        "x[i + 1] counts once, and x[i + 2] too.": twice})
    par(report, "steps", 100, "That is the busiest warp's: each thread computes one element.")
    par(report, "global_loads.sectors", 17 * blocks, "130 numbers lie in 17 sectors: load each of "
        "them from global memory once a block, and the rest from shared memory.")
print("window_average: five lengths, 17 sectors a block")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two guards: a thread may have something to load (`i < x.size`) though it has nothing to store (`i < out.size`). The barrier
# stands outside of both: a thread that never reaches it is waited for in vain.
# </details>
#
# **A request costs the sectors that it touches. What a block needs more than once belongs into shared memory, behind a
# barrier.**
#
# ## Part 3 · Thirty-two banks
#
# A transpose has no arithmetic. Either its loads run along rows or its stores do:

# %%
@cuda.jit
def transpose_naive(x, out):
    i, j = cuda.grid(2)
    out[i, j] = x[j, i]

report = simt.count(transpose_naive, (2, 2), (32, 32), floats(64, 64), np.zeros((64, 64), np.float32))
print(report)

# %% [markdown]
# A store takes 32 sectors. Shared memory helps: load a tile of 32 × 32 along its rows, pass a barrier, store it along the
# rows of the result. Between them, the tile is read down its columns.
#
# Shared memory has 32 *banks*: word w is in bank w mod 32. In one *wavefront* each bank delivers one word, to any number of
# lanes. Lanes that want different words of one bank wait for each other: a *bank conflict*.
#
# Lane t reads word `t * stride`: for stride 2, two words from each even bank, two wavefronts. Which strides cost most, which
# nothing? Predict 3, 8, 32 and 33, then try.

# %% tags=["nbval-ignore-output"]
@cuda.jit
def read_strided(stride):  # what lies in s does not matter, only where
    s, t = cuda.shared.array(2048, float32), cuda.threadIdx.x
    _ = s[t * stride]

def banks(stride=2):
    simt.count(read_strided, 1, 32, stride).draw()

banks()
ipywidgets.interact(banks, stride=ipywidgets.IntSlider(8, 0, 40, continuous_update=False));

# %% [markdown]
# Odd strides are free. A stride of 32, which is a column of a tile with 32 columns, takes 32 wavefronts; 33 takes one. So does
# 0: one word, for all.
#
# ### Exercise 3.1 · transpose
#
# Loads along rows, stores along rows, and no bank conflict.

# %% tags=["hole"]
@cuda.jit
def transpose(x, out):
    """out = x.T, through shared memory. About nine lines.

    Launched with blocks of (32, 32) threads: the grid's x covers the columns of x, its y the rows of x.
    """
    # BEGIN SOLUTION
    tile = cuda.shared.array((32, 33), float32)  # the empty column moves the rows to other banks
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        tile[ty, tx] = x[row, column]
    cuda.syncthreads()
    row, column = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = tile[tx, ty]
    # END SOLUTION

# %% tags=["check"] points=2
for rows, columns in ((64, 64), (40, 96), (2 * rng.integers(17, 35, 2) + 1).tolist()):
    x, out = floats(rows, columns), np.zeros((columns, rows), np.float32)
    want, tiles = x.T.copy(), x.reshape(2, 32, 2, 32) if rows == columns == 64 else x[None, None]
    report = simt.count(transpose, (-(-columns // 32), -(-rows // 32)), (32, 32), x, out)
    clean(report)
    agree(out, want, f"transpose of {rows} × {columns}", mistakes={
        "This is x itself: two turns cancel.": x,
        "Each tile is turned; its place in `out` must be turned, too.":
            tiles.transpose(0, 3, 2, 1).reshape(columns, rows),
        "Each tile is in its place; it must be turned, too.":
            tiles.transpose(2, 1, 0, 3).reshape(columns, rows)})
print("transpose: three shapes")

# %% tags=["check"] points=2
rows, columns = (8 * rng.integers(5, 13, 2)).tolist()
x, out = floats(rows, columns), np.zeros((columns, rows), np.float32)
want = x.T.copy()
report = simt.count(transpose, (-(-columns // 32), -(-rows // 32)), (32, 32), x, out)
agree(out, want, f"transpose of {rows} × {columns}")
for access in ("global_loads", "global_stores"):
    par(report, f"{access}.sectors", rows * columns // 8, "Both ways, lanes should follow a row.")
for access in ("shared_loads", "shared_stores"):
    par(report, f"{access}.wavefronts", getattr(report, access).requests,
        "A bank conflict: a column of the tile should lie in 32 different banks.")
print("transpose: no sector and no wavefront too many")

# %% [markdown]
# <details><summary>Hint</summary>
#
# The second half starts from coordinates of its own: the block at (x, y) of the grid stores the tile whose first row in
# `out` is `blockIdx.x * 32`. There thread (tx, ty) stores `tile[tx, ty]`. Rows of 33 words put a column into 32 banks.
# </details>
#
# Your column of the tile, and your store:

# %%
report = simt.count(transpose, (2, 2), (32, 32), floats(64, 64), np.zeros((64, 64), np.float32))
report.draw(next(line.number for line in report.lines if line.global_stores.requests));

# %% [markdown]
# **Shared memory serves 32 banks a wavefront. A column is free if its stride is odd.**
#
# ## Part 4 · One instruction for 32
#
# A warp has one instruction at a time. Where its lanes disagree about an `if`, it *diverges*: it goes through both branches,
# one after the other, some lanes idle in each. The notes say that this costs a factor of 8 at most. Does it?

# %%
@cuda.jit
def one_by_one(x, out):
    for lane in range(32):
        if lane == cuda.threadIdx.x:
            out[lane] = x[lane]

report = simt.count(one_by_one, 1, 32, floats(32), np.zeros(32, np.float32))
print(f"{report.global_loads.requests} requests, {report.divergent_branches} divergent branches")

# %% [markdown]
# It can cost 32: a warp has 32 lanes. (Eight is what a CPU's vector unit has.)
#
# To add up an array, each block adds up 256 numbers as a *tree*: 128 threads add two numbers each, then 64, then 32 ... Which
# threads? The first idea is every second one, then every fourth: a sum stays where its pair was. In how many of the 8 warps
# do the lanes disagree, at each level?
#
# Then thread 0 adds the block's sum to `out` by an *atomic* update. Blocks run in any order, and two that do `out[0] += ...`
# may read the same old value: one sum is lost.

# %%
@cuda.jit(device=True)
def add_interleaved(s, t):
    for level in range(8):
        cuda.syncthreads()
        if t % (2 << level) == 0:
            s[t] += s[t + (1 << level)]

# %%
@cuda.jit
def block_sum_interleaved(x, out):
    partial, t = cuda.shared.array(256, float32), cuda.threadIdx.x
    partial[t] = x[cuda.grid(1)]
    add_interleaved(partial, t)
    if t == 0:
        cuda.atomic.add(out, 0, partial[0])

print(simt.count(block_sum_interleaved, 1, 256, floats(256), np.zeros(1, np.float32)))

# %% [markdown]
# 47 times at the tree's `if`: all 8 warps at each of the first five levels, then 4, 2 and 1.
#
# ### Exercise 4.1 · block_sum
#
# Choose the threads so that the lanes of a warp agree: whole warps work, or don't. Only the last 32 threads need to disagree,
# at five levels.

# %% tags=["hole"]
@cuda.jit
def block_sum(x, out):
    """Adds the sum of x to out[0], with one atomic update a block. About eleven lines.

    Launched with blocks of 256 threads, enough for each element of x, which has any length.
    """
    # BEGIN SOLUTION
    s = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    s[t] = x[i] if i < x.size else float32(0)
    step = 128
    while step > 0:
        cuda.syncthreads()
        if t < step:
            s[t] += s[t + step]
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, s[0])
    # END SOLUTION

# %% tags=["check"] points=3
for n in (1, 512, int(rng.integers(600, 1200))):
    x, out, blocks = rng.random(n, np.float32), np.ones(1, np.float32), -(-n // 256)
    want = np.float32([1 + x.sum(dtype=np.float64)])
    report = simt.count(block_sum, blocks, 256, x, out)
    clean(report)
    agree(out, want, f"block_sum of {n} elements, added to 1", rtol=1e-5)
    par(report, "atomics", blocks, "One update a block: they wait for each other.")
    par(report, "steps", 250, "That is the busiest warp's: add in a tree, 128 pairs at once.")
    par(report, "divergent_branches", 10 * blocks, "Let the first `step` threads work.")
    par(report, "shared_loads.wavefronts", report.shared_loads.requests,
        "A bank conflict: neighbouring threads should add neighbouring words.")
print("block_sum: three lengths, at most 10 divergent branches a block")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Thread t adds `s[t + step]` to `s[t]` if `t < step`, for step = 128, 64, ... 1, with a barrier before each. Threads past the
# end bring a 0, and take part in every barrier.
# </details>
#
# It can be none at all: the lanes of a warp can read each other's *registers*, by a *shuffle*, without shared memory. Below,
# each lane gets the `value` of the lane `step` above it. (0xFFFFFFFF has a bit for each lane that takes part: all 32.)

# %%
@cuda.jit
def warp_sum(x, out):
    value, step = x[cuda.grid(1)], 16
    while step > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        step //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)

# %%
x = floats(256)
for kernel in (block_sum_interleaved, block_sum, warp_sum):
    report = simt.count(kernel, 1, 256, x, np.zeros(1, np.float32))
    last = 8 if kernel == warp_sum else 1  # the `if` before the atomic update
    print(f"{report.kernel:22} {report.divergent_branches - last:2} divergent branches in the sum, "
          f"busiest warp {report.steps:3} steps, atomic updates: {report.atomics}")

# %% [markdown]
# ### Clinic: right for ten years
#
# The notes call `__syncthreads()` a failsafe, for threads hardly run apart. Older code went further: "the lanes of a warp
# go in step, so 32 threads need no barrier". That was right on every GPU until 2017.

# %%
@cuda.jit
def in_step(x, out):
    s, t = cuda.shared.array(32, float32), cuda.threadIdx.x
    s[t] = x[t]
    for level in range(5):
        if t < 16 >> level:
            s[t] += s[t + (16 >> level)]
    out[t] = s[t]

# %%
x, out = np.ones(32, np.float32), np.zeros(32, np.float32)
report = simt.count(in_step, 1, 32, x, out, seed=0)
print("sum of 32 ones:", out[0])
print(report.races[0])

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# Since Volta (2017) each lane has a program counter of its own, and nothing makes lanes meet again after a branch. Here lane 0
# ran ahead and read `s[16]` before lane 16 had written it; the simulator gives NaN for that. `cuda.syncwarp()` before each
# step mends it; a shuffle waits by itself.
#
# A barrier is no failsafe. It is the only thing that puts one thread's store before another's load. Without it a program
# is wrong even when its result is right, and the simulator reports the race either way.
# </details>
#
# **Lanes that disagree take turns. Threads that share data meet at a barrier, always.**

# %% [markdown]
# ## Part 5 · Tiles
#
# Back to the matrix product. Each of the n² threads of the naive kernel loads 2n numbers: 2n³ in all. If a block of L × L
# threads brings tiles of L × L numbers into shared memory, each number that it loads serves L threads: 2n³/L.
#
# ### Exercise 5.1 · matmul_sectors
#
# Those are numbers; a warp pays for sectors. Predict both kernels' sectors for n × n matrices and blocks of (tile, tile)
# threads. Tile is 8, 16 or 32, and n a multiple of it. A warp then lies in 32/tile rows.

# %% tags=["hole"]
def matmul_sectors(n, tile):
    """(naive, tiled): sectors loaded by matmul_naive, and by a kernel with tiles in shared memory.

    Two ints, for (n, n) matrices of float32. About four lines.
    """
    # BEGIN SOLUTION
    warps = n * n // 32
    # At each k, a warp wants a word of `a` in 32/tile rows, and tile neighbouring words of `b`.
    naive = warps * n * (32 // tile + tile // 8)
    return naive, 2 * n**3 // tile // 8  # a row of a tile fills its sectors
    # END SOLUTION

# %% tags=["check"] points=2
for tile, n in ((16, 64), *((tile, tile * int(rng.integers(1, 9))) for tile in (8, 16, 32) * 2)):
    row, column = np.divmod(np.arange(tile * tile).reshape(-1, 32), tile)  # of each warp of a block
    a = sum(len(np.unique((warp * n + k) // 8)) for warp in row for k in range(n))
    b = sum(len(np.unique((k * n + warp) // 8)) for warp in column for k in range(n))
    a_tile = sum(len(np.unique(warp // 8)) for warp in row * n + column)
    blocks, loads = (n // tile) ** 2, 2 * n**3
    want = blocks * (a + b), 2 * blocks * n // tile * a_tile
    agree(matmul_sectors(n, tile), want, f"matmul_sectors({n}, {tile})", mistakes={
        "Those are numbers; a sector holds eight of them.": (loads, loads // tile),
        "Lanes of one row want one word of `a`: it is fetched once.": (loads // 8, want[1]),
        "Lanes of two rows want two sectors of `a`.": (blocks * (len(row) * n + b), want[1])})
print("matmul_sectors agrees with a count of every request's sectors")

# %% [markdown]
# <details><summary>Hint</summary>
#
# For each k, a warp of the naive kernel makes two requests. For `a`: one word in each of its rows, a sector each. For `b`:
# `tile` neighbouring words, the same ones in each of its rows. A tile's rows are whole sectors.
# </details>

# %%
for tile in (8, 16, 32):
    naive, tiled = matmul_sectors(64, tile)
    print(f"tiles of {tile:2}: {naive:,} and {tiled:,} sectors, {naive / tiled:g} times fewer")
    if tile == 16:
        ledger.predict("64 × 64 matmul, tiles of 16: sectors saved", naive / tiled, "times")

# %% [markdown]
# ### Exercise 5.2 · matmul_tiled
#
# Write it; the set-up says `TILE = 16`. The tiles of `a` and `b` march along k. They need *two* barriers a step: one before
# the tiles are used, one before they are overwritten. Matrices have any shape: what lies outside counts as 0.

# %% tags=["hole"]
@cuda.jit
def matmul_tiled(a, b, c):
    """c = a @ b, with tiles of (TILE, TILE) elements in shared memory. About sixteen lines.

    Launched with blocks of (TILE, TILE) threads: the grid's x covers the columns of c, its y the rows.
    """
    # BEGIN SOLUTION
    a_tile, b_tile = cuda.shared.array((TILE, TILE), float32), cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for k0 in range(0, a.shape[1], TILE):
        inside = row < a.shape[0] and k0 + tx < a.shape[1]
        a_tile[ty, tx] = a[row, k0 + tx] if inside else float32(0)
        inside = k0 + ty < b.shape[0] and column < b.shape[1]
        b_tile[ty, tx] = b[k0 + ty, column] if inside else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total
    # END SOLUTION

# %% tags=["check"] points=4
for m, n, k in ((48, 48, 48), (2 * rng.integers(9, 20, 3) + 1).tolist(), (3, 50, 20)):
    a, b, c = floats(m, k), floats(k, n), np.full((m, n), np.nan, np.float32)
    want, (rows, columns) = a @ b, (-(-m // TILE), -(-n // TILE))
    report = simt.count(matmul_tiled, (columns, rows), (TILE, TILE), a, b, c)
    clean(report)
    agree(c, want, f"matmul_tiled of {m} × {k} and {k} × {n}", rtol=1e-4, atol=1e-4)
    par(report, "global_loads.sectors", 2 * n**3 // TILE // 8 if n == k == 48 else 2 * m * n * k,
        "Load each element of a block's tiles once, the lanes along a row: x is the column.")
    par(report, "steps", 30 * (k + TILE), "That is the busiest warp's: an element a thread.")
    par(report, "shared_loads.wavefronts", report.shared_loads.requests, "A bank conflict.")
print("matmul_tiled: three shapes, each tile loaded once a block")

# %% [markdown]
# <details><summary>Hint</summary>
#
# In each step thread (tx, ty) loads one element of each tile: `a[row, k0 + tx]` and `b[k0 + ty, column]`, or 0 outside. Then it
# adds `a_tile[ty, k] * b_tile[k, tx]` for TILE values of k. Guard the store at the end, never a barrier.
# </details>
#
# Your formula is the line, the counters of both kernels are the dots.

# %%
sizes, counted = (16, 32, 48, 64), {"naive": [], "tiled": []}
for n in sizes:
    a, b, c = floats(n, n), floats(n, n), np.zeros((n, n), np.float32)
    for name, kernel in (("naive", matmul_naive), ("tiled", matmul_tiled)):
        report = simt.count(kernel, (n // TILE, n // TILE), (TILE, TILE), a, b, c)
        counted[name].append(report.global_loads.sectors)
saved = counted["naive"][-1] / counted["tiled"][-1]
ledger.counted("64 × 64 matmul, tiles of 16: sectors saved", saved, "times")

# %%
naive, tiled = zip(*(matmul_sectors(n, TILE) for n in sizes), strict=True)
ax = figures.predicted_and_measured(
    sizes, {"naive": naive, "tiled": tiled}, counted, dots_are="counted", log="xy",
    ylabel="sectors loaded", xlabel="side of the matrices (elements)",
    title="Tiles of 16 save a factor of eight")
ax.set_xticks(sizes, sizes);

# %% [markdown]
# The notes have three such kernels. All three define `ybase` twice, and never `xbase`. Besides:
#
# <details><summary>The second keeps V × V sums in registers, and loads V numbers of A and V of B for each k. Are these N·V²
# loads a thread, as the notes count?</summary>
#
# 2·N·V; V² is what it computes with them. N²/V² threads load 2N³/V in all, the figure that they end with.
# </details>
#
# <details><summary>The third declares <code>sA</code> and <code>sB</code> in shared memory. What does it save?</summary>
#
# Nothing: it never uses them.
# </details>
#
# **Tiles trade global loads for shared ones. In sectors they gain less than in numbers, for a warp shares already.**

# %% [markdown]
# ## Part 6 · Who hides the wait?
#
# A load from global memory takes hundreds of cycles. A processor's core would wait. A GPU's, the *streaming multiprocessor*
# (SM), holds many warps, and each cycle goes on with some that are ready: they hide the wait of the others, if there are
# enough of them.
#
# A block becomes *resident* on an SM when there is room for all of it: its threads, registers, shared memory. It stays until it
# ends; then the next one comes. The blocks that fit at once are a *wave*.

# %% tags=["setup"]
SMS = {  # CUDA programming guide, compute capabilities 5.2 and 9.0
    "GTX 980": {"threads": 2048, "blocks": 32, "registers": 2**16, "shared_bytes": 96 << 10,
                "reserved_bytes": 0},
    "H200": {"threads": 2048, "blocks": 32, "registers": 2**16, "shared_bytes": 228 << 10,
             "reserved_bytes": 1024},
}

# %% [markdown]
# ### Exercise 6.1 · resident_blocks
#
# Each resource limits the number of blocks. Registers come in portions: a warp takes a multiple of 256.

# %% tags=["hole"]
def resident_blocks(threads, registers, shared_bytes, sm):
    """Blocks that one SM holds at a time, an int; 0 where not even one fits. About five lines.

    threads: of a block, a multiple of 128. registers: of a thread. shared_bytes: of a block; the system
    takes sm["reserved_bytes"] more for each. sm: one of SMS.
    """
    # BEGIN SOLUTION
    registers_of_block = threads // 32 * (-(-32 * registers // 256) * 256)
    limits = [sm["blocks"], sm["threads"] // threads, sm["registers"] // registers_of_block]
    shared_bytes += sm["reserved_bytes"]
    return min(limits + ([sm["shared_bytes"] // shared_bytes] if shared_bytes else []))
    # END SOLUTION

# %% tags=["check"] points=2
def most(sm, threads, registers, shared):  # blocks, and which resource decides
    takes = {"blocks": 1, "threads": threads, "registers": threads * registers, "shared_bytes": shared}
    return min((max(n for n in range(34) if n * takes[name] <= sm[name]), name) for name in takes)

kernels = [("H200", 8, 128, 16, 0), ("H200", 32, 128, 32, 14336)] + [
    (sm, 32, *(rng.integers((1, 16, 0), (9, 256, 40000)) * (128, 1, 1)).tolist()) for sm in 99 * [*SMS]]
for name, blocks, threads, registers, shared in kernels:
    sm, taken = SMS[name] | {"blocks": blocks}, shared + SMS[name]["reserved_bytes"]
    want, decides = most(sm, threads, -(-registers // 8) * 8, taken)
    case = f"resident_blocks{threads, registers, shared} on a {name} for {blocks} blocks"
    agree(resident_blocks(threads, registers, shared, sm), want, f"{case}, where {decides} decide,",
        mistakes={"A warp takes a multiple of 256 registers.": most(sm, threads, registers, taken)[0]})
print("resident_blocks: 200 kernels on two GPUs, filled block by block")

# %% [markdown]
# <details><summary>Hint</summary>
#
# The least of four numbers: the SM's blocks, and for threads, registers and shared memory what the SM has `//` what a block
# takes. `-(-n // 256) * 256` rounds up.
# </details>
#
# The notes run their window kernel, 128 threads with 8 registers each and 520 bytes of shared memory, on the 16 SMs of a
# GTX 980, for 2²⁰ elements. And what if a thread takes more registers, as `matmul_register_tiled` will?

# %%
blocks = 16 * resident_blocks(128, 8, 520, SMS["GTX 980"])
print(f"GTX 980: {blocks} resident blocks, {2**20 // 128 / blocks:g} waves")
for registers in (32, 64, 128):
    blocks = resident_blocks(256, registers, 8320, SMS["H200"])
    print(f"H200, 256 threads of {registers} registers: {blocks} blocks, {8 * blocks} of 64 warps")

# %% [markdown]
# <details><summary>A question: the notes give an H100 144 SMs. One that you can buy reports 132. Why?</summary>
#
# 144 are on the die. Chips with a few broken ones are sold, too, all with the same number switched on: *floor sweeping*,
# as the lecture calls it. It decides how many blocks fill the GPU: 1,152 blocks at 8 an SM are one wave on 144 SMs, and two
# on 132, the second nearly empty.
# </details>
#
# **Warps hide each other's waits. Registers and shared memory decide how many there are.**

# %% [markdown]
# ### Exercise 6.2 · matmul_register_tiled (optional)
#
# `matmul_tiled` loads two numbers from shared memory for each multiplication. Let a thread compute 8 × 8 elements, and 16
# loads serve 64 multiplications: the same idea, one memory nearer. A block of 256 threads then computes 128 × 128 elements, in
# slices of 8 along k. Few such warps fit on an SM, but each has 64 sums that needn't wait for each other.

# %% tags=["hole"]
@cuda.jit(device=True)
def element(x, row, column):
    """x[row, column], or 0 outside of x."""
    # BEGIN SOLUTION
    row, column = uint32(row), uint32(column)  # never negative: no instruction to look for that
    if row < uint32(x.shape[0]) and column < uint32(x.shape[1]):
        return x[row, column]
    return float32(0)
    # END SOLUTION


@cuda.jit(device=True)
def multiply(a_tile, b_tile, k, tx, ty, total, left, right):
    """Adds to the thread's 8 × 8 sums the products at k: 16 loads, 64 multiplications."""
    # BEGIN SOLUTION
    for i in range(4):
        left[i], left[4 + i] = a_tile[k, ty, i], a_tile[k, 16 + ty, i]
        right[i], right[4 + i] = b_tile[k, tx, i], b_tile[k, 16 + tx, i]
    for i in range(8):
        for j in range(8):
            total[i, j] += left[i] * right[j]
    # END SOLUTION


@cuda.jit
def matmul_register_tiled(a, b, c):
    """c = a @ b, 8 × 8 elements a thread. About forty lines.

    Launched with blocks of 256 threads (one axis), each for 128 × 128 elements: the grid's x covers the
    columns of c, its y the rows.
    """
    # BEGIN SOLUTION
    # Rows of fours: the compiler can load 16 bytes at once. A 33rd four moves the rows to other banks.
    a_tile, b_tile = cuda.shared.array((8, 33, 4), float32), cuda.shared.array((8, 32, 4), float32)
    # Local arrays become registers where every index is known to the compiler.
    total = cuda.local.array((8, 8), float32)
    left, right = cuda.local.array(8, float32), cuda.local.array(8, float32)
    a_next, b_next = cuda.local.array(4, float32), cuda.local.array(4, float32)
    t = cuda.threadIdx.x
    lane, warp = t & 31, t >> 5  # a warp is 4 × 8 threads, a block 4 × 2 warps
    tx, ty = (warp & 1) * 8 + (lane & 7), (warp >> 1) * 4 + (lane >> 3)
    row0, column0 = cuda.blockIdx.y * 128, cuda.blockIdx.x * 128
    a_row, a_k, b_k, b_column = t >> 3, t & 7, t >> 7, t & 127  # what the thread loads
    for i in range(8):
        for j in range(8):
            total[i, j] = float32(0)
    for i in range(4):
        a_next[i] = element(a, row0 + a_row + 32 * i, a_k)
        b_next[i] = element(b, b_k + 2 * i, column0 + b_column)
    for k0 in range(8, a.shape[1] + 8, 8):
        for i in range(4):
            a_tile[a_k, (a_row >> 2) + 8 * i, a_row & 3] = a_next[i]
            b_tile[b_k + 2 * i, b_column >> 2, b_column & 3] = b_next[i]
        cuda.syncthreads()
        if k0 < a.shape[1]:  # the next slice is on its way while this one is used
            for i in range(4):
                a_next[i] = element(a, row0 + a_row + 32 * i, k0 + a_k)
                b_next[i] = element(b, k0 + b_k + 2 * i, column0 + b_column)
        # Written out: the compiler would keep a loop of this size, with its counter and its addresses.
        multiply(a_tile, b_tile, 0, tx, ty, total, left, right)
        multiply(a_tile, b_tile, 1, tx, ty, total, left, right)
        multiply(a_tile, b_tile, 2, tx, ty, total, left, right)
        multiply(a_tile, b_tile, 3, tx, ty, total, left, right)
        multiply(a_tile, b_tile, 4, tx, ty, total, left, right)
        multiply(a_tile, b_tile, 5, tx, ty, total, left, right)
        multiply(a_tile, b_tile, 6, tx, ty, total, left, right)
        multiply(a_tile, b_tile, 7, tx, ty, total, left, right)
        cuda.syncthreads()
    for i in range(8):
        for j in range(8):
            row, column = row0 + i // 4 * 64 + 4 * ty + i % 4, column0 + j // 4 * 64 + 4 * tx + j % 4
            if row < c.shape[0] and column < c.shape[1]:
                c[row, column] = total[i, j]
    # END SOLUTION

# %% tags=["check"] points=2
for m, n, k in ((256, 128, 24), (*rng.integers((9, 129), (129, 160)).tolist(), 27)):
    a, b, c = floats(m, k), floats(k, n), np.full((m, n), np.nan, np.float32)
    want, (x, y) = a @ b, (-(-n // 128), -(-m // 128))
    report = simt.count(matmul_register_tiled, (x, y), 256, a, b, c)
    clean(report)
    agree(c, want, f"matmul_register_tiled of {m} × {k} and {k} × {n}", rtol=1e-4, atol=1e-4)
    steps = x * y * -(-k // 8) * 8  # along k, of all blocks; rows of an odd length take more sectors
    par(report, "global_loads.sectors", steps * (32 if k == 24 else 64), "A step takes 256 numbers.")
    par(report, "shared_loads.requests", steps * 128,
        "At each k, a thread should load 8 numbers of each tile, and multiply all with each other.")
    par(report, "shared_loads.wavefronts", steps * 192, "Bank conflicts: half as many again are par.")
print("matmul_register_tiled: two shapes, shared loads down by eight")

# %% [markdown]
# <details><summary>Hint</summary>
#
# First make it right: 64 sums in `cuda.local.array((8, 8), float32)`; tiles of (8, 128), that of `a` transposed, a thread
# loading 4 elements of each; 8 + 8 numbers at each k. Then the banks: thread (tx, ty) of 16 × 16 may have rows 4·ty to
# 4·ty + 3, and those 64 below; columns alike.
# </details>

# %% [markdown]
# ## Predict, then measure
#
# The ladder in counts: what a product of 128 × 16 and 16 × 128 asks of the two memories.

# %%
a, b, c = floats(128, 16), floats(16, 128), np.zeros((128, 128), np.float32)
RUNGS = {"indices swapped": (matmul_swapped, 16, (16, 16)), "naive": (matmul_naive, 16, (16, 16)),
         "tiled": (matmul_tiled, 16, (16, 16)), "register-tiled": (matmul_register_tiled, 128, 256)}
counts = {}
for name, (kernel, tile, block) in RUNGS.items():
    with contextlib.suppress(NotImplementedError):  # a rung that is not written yet is left out
        counts[name] = simt.count(kernel, (128 // tile, 128 // tile), block, a, b, c)

# %%
sectors = {name: report.global_loads.sectors for name, report in counts.items()}
figures.ladder(sectors, xlabel="sectors loaded", title="Each rung asks less of global memory")
wavefronts = {name: report.shared_loads.wavefronts for name, report in counts.items()}
figures.ladder(wavefronts, xlabel="wavefronts loaded", title="The last one spares shared memory, too");

# %% [markdown]
# Now the clock. Which rung gains most over the one before? And how near does the best one come to cuBLAS, NVIDIA's own library?
# Write down its share, from 0 to 1. (Without a GPU, the answer of an H200 stands below.)

# %%
# BEGIN SOLUTION
share = 0.7
# END SOLUTION
ledger.predict("fp32 matmul: best rung / cuBLAS", share, "times")

# %%
def measured_ladder(n=4096):
    import torch
    a, b, c = torch.randn(3, n, n, device="cuda")
    arrays = [cuda.as_cuda_array(matrix) for matrix in (a, b, c)]
    times_s = {name: timing.measure(kernel[(n // tile, n // tile), block], *arrays).median_s
               for name, (kernel, tile, block) in RUNGS.items() if name in counts}
    peer_s = timing.measure(torch.mm, a, b).median_s
    return {name: 2e-12 * n**3 / time_s for name, time_s in times_s.items()}, 2e-12 * n**3 / peer_s

# %% tags=["nbval-ignore-output"]
if device.has_gpu():
    rates, peer = measured_ladder()
    best = max(rates.values())
    ledger.measured("fp32 matmul: best rung / cuBLAS", best / peer, "times")
    ledger.constant("fp32 matmul, my own", 1e12 * best, "FLOP/s", device.name())
    figures.ladder(rates, ceiling=("cuBLAS", peer), xlabel="TFLOP/s", title="fp32 matmul, 4096³")
else:
    print("The clock needs a GPU: solutions/03_cuda_kernels.ipynb has the figure of an H200.")

# %% [markdown]
# What each step of ours was worth on an H200, at 4096³, as a share of cuBLAS: `matmul_tiled` 0.16 with tiles of 32; 8 × 8
# elements a thread, in fours, 0.58; the next slice loaded early, 0.66; the loop over k written out, and indices that are never
# negative, 0.83. The guards for any shape leave 0.82.

# %% [markdown]
# ## Is the simulator right?
#
# Its rules are simple: a request's sectors are the different 32-byte pieces that it touches; its wavefronts, the most
# different words in one bank. NVIDIA's profiler, Nsight Compute, reads the same figures from counters in the hardware. Below
# are both, for this lab's kernels and others, on an H200. Where they differ, the compiler did what the source doesn't say. We
# count the source.
#
# Sectors are what is *asked for*, not what DRAM delivers: caches answer most of the naive kernel's requests. So the clock's
# gains are not the counters' gains.

# %%
table = (pathlib.Path(figures.__file__).parents[1] / "benchmarks" / "simt_hardware.md").read_text()
rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:2] == "| "][2:]
here, there = ([int(row[side].replace(",", "")) for row in rows] for side in (2, 3))
figures.predicted_and_measured(
    here, here, there, dots_are="Nsight Compute, on an H200", log="xy", xlabel="simulator",
    ylabel="hardware", title=f"{sum(map(operator.eq, here, there))} of {len(rows)} counters are equal")
for kernel, why in sorted({(row[0], row[4]) for row in rows if row[2] != row[3]}):
    print(f"{kernel}: {why}")

# %% [markdown]
# ## Where it is used
#
# - *The ladder*: Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra" (2008), found that registers are its last
#   rung. NVIDIA's CUTLASS has tiles for blocks, for warps and for threads.
# - *The tree*: Harris, "Optimizing parallel reduction in CUDA" (2007). *The transpose*: Ruetsch and Micikevicius (2009).
# - *PyTorch*: its elementwise kernels (`aten/src/ATen/native/cuda/CUDALoops.cuh`) have blocks of 128 threads, several elements
#   a thread, and a guard for the last block.
#
# Limits of our counting: no caches and no time. Limits of our ladder: the tensor cores are idle; lab 05 feeds them.

# %% [markdown]
# ## Done
#
# Grade the lab with `python -m grading 03`.
#
# **A harder question.** An SM issues four warp instructions and delivers one wavefront of shared memory a cycle. In
# `matmul_tiled` each multiplication-addition of a warp takes two loads, of a wavefront each. What share of the peak can it
# reach at most? And the last rung?
#
# <details><summary>Answer</summary>
#
# Half a multiplication-addition a cycle, instead of four: an eighth. (With tiles of 32, an H200 reaches 8.1 of its 67
# TFLOP/s.) In the last rung 16 loads serve 64: four a cycle. Shared memory is no limit any more, if nothing else takes its
# time.
# </details>

# %% tags=["nbval-ignore-output"]
ledger.figure()
ledger.table()
