# %% [markdown]
# # 03 · CUDA kernels
#
# **What does one GPU thread do, and what do 32 of them cost together?**
#
# After this lab you can
#
# - write a kernel, which thousands of threads run;
# - say what 32 of them cost: sectors, wavefronts, divergent branches;
# - load each number once, and hide the wait for it.
#
# You need labs 01 and 02. It takes about 210 minutes: 25 for Part 1, 30 each for 2, 3, 4 and 6, 65 for Part 5. (Estimated: two
# minutes per line to write, one per cell.)
#
# Without a GPU, a simulator runs kernels and counts. Write your answers in the cells marked as exercises. The grader reads
# only those.

# %% tags=["setup"]
import numpy as np
from numba import float32, int32, uint32

from common import figures, language_model, ledger
from common.checks import agree, expect
from common.hardware import device, timing
from common.lessons.cuda_kernels.launches import SMS, blocks_of, clean, par, result
from nogpu import cuda, simt

figures.use_style()
rng = np.random.default_rng()
TILE = 16

def floats(*shape):
    return rng.standard_normal(shape, np.float32)

# %% [markdown]
# ## Same product, more memory
#
# Here are two *kernels*: programs that thousands of GPU *threads* run at once. Each thread computes one element of a matrix
# product. They differ in one thing: which of a thread's two coordinates is the row. Both do the same arithmetic and load
# equally many numbers. Memory delivers *sectors* of 32 bytes. Guess how many sectors each kernel asks for, then run the three
# cells.

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
simt.side_by_side(*reports);

# %% [markdown]
# **Same answer, four times the sectors.** Threads run in groups of 32, called *warps*. The 32 *lanes* of a warp execute
# one instruction together. What they load with it is one *request*, and each panel shows one. A row is one sector of eight
# words. The number in a cell is the lane that wants it (×16: sixteen lanes). Grey cells were fetched but never used.
#
# In `matmul_naive`, the lanes of half a warp want the same word of `a`. In `matmul_swapped`, they want words that lie a whole
# row apart (lab 01).
#
# **You write for one thread, and pay for 32.**

# %% [markdown]
# ## Part 1 · One thread
#
# A kernel is launched on a *grid* of *blocks* of threads: `kernel[grid, block](...)`. It is written for one thread, which
# asks where it is:
#
# - `cuda.threadIdx.x`: its place in its block;
# - `cuda.blockIdx.x`: its block's place in the grid;
# - `cuda.blockDim.x`: the number of threads per block.
#
# `cuda.grid(1)` is `blockIdx.x * blockDim.x + threadIdx.x`. A kernel returns nothing: it stores into an array.
#
# ### Exercise 1.1 · vector_add
#
# Eight blocks of 128 make 1,024 threads. If there are 1,000 elements, what would the last 24 threads do?

# %% tags=["hole"]
@cuda.jit
def vector_add(x, y, out):
    """out[i] = x[i] + y[i], one element per thread; threads past the end do nothing. About three lines.

    Launched with blocks of 128 threads, and enough blocks to give each element a thread.
    """
    # BEGIN SOLUTION
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]
    # END SOLUTION

# %% tags=["check"] points=2
for n in (1, 128, 129, int(rng.integers(300, 1000))):
    x, y, out = floats(n), floats(n), np.full(n, np.nan, np.float32)
    want = x + y
    report = simt.count(vector_add, *blocks_of(128, n), 128, x, y, out)
    clean(report)
    result(out, want, f"vector_add of {n} elements")
    par(report, "steps", 40, "Give each thread one element.")
    par(report, "global_loads.sectors", 2 * -(-n // 8),
        "Let neighbouring threads load neighbouring elements: a sector holds eight.")
print("vector_add: four lengths, every sector loaded once")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which expression numbers the threads of all blocks? Which of these numbers have no element?
# </details>
# <details><summary>Hint: the shape</summary>
#
# One line for the number, then the load, the sum and the store under an `if`. Without the `if`, a GPU reads and writes whatever
# lies behind the vectors. The simulator says which thread does.
# </details>
#
# `simt.count(kernel, grid, block, ...)` launches a kernel in the simulator. Its report says what each line cost.

# %%
report = simt.count(vector_add, 8, 128, floats(1000), floats(1000), np.zeros(1000, np.float32))
print(report)

# %% [markdown]
# The last warp *diverges* at the `if`: 8 of its lanes go in, and 24 don't. *Steps* are the instructions of the busiest warp,
# as written. They count, too: if one thread does everything, sectors are few, but all others wait.
#
# ### Exercise 1.2 · matrix_add_doubled
#
# Grids and blocks have up to three axes. **A warp is 32 threads that follow each other along x**, then along y. Which
# coordinate should be the column?

# %% tags=["hole"]
@cuda.jit(device=True)
def doubled(value):
    """Twice a value: a device function, which kernels may call."""
    return 2 * value


@cuda.jit
def matrix_add_doubled(a, b, c):
    """c = a + 2 b for matrices of any shape, one element per thread. About three lines.

    Launched with enough blocks: the grid's x covers the columns, its y the rows.
    """
    # BEGIN SOLUTION
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = a[row, column] + doubled(b[row, column])
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.cuda_kernels import expected as oracle

odd = (int(2 * rng.integers(20, 25) + 1), int(2 * rng.integers(10, 20) + 1))
for (rows, columns), (x, y) in ((64, 64), (32, 4)), ((6, 12), (4, 3)), (odd, (16, 8)):
    a, b, c = floats(rows, columns), floats(rows, columns), np.full((rows, columns), np.nan, np.float32)
    want, mistakes = oracle.matrix_add_doubled(a, b, c)
    report = simt.count(matrix_add_doubled, (-(-columns // x), -(-rows // y)), (x, y), a, b, c)
    clean(report)
    result(c, want, f"matrix_add_doubled of {rows} × {columns}", atol=1e-5, mistakes=mistakes)
    par(report, "steps", 60, "Give each thread one element.")
    sectors = 1536 if columns == 64 else 3 * rows * columns
    par(report, "global_loads.sectors", sectors, "Lanes differ in x: let x be the column.")
print("matrix_add_doubled: three shapes, lanes along the rows")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# `cuda.grid(2)` gives two numbers. Which one comes first?
# </details>
# <details><summary>Hint: the shape</summary>
#
# As in 1.1, with two numbers, and an `if` that tests both.
# </details>
#
# **One thread, one element, one test; and x is the axis along which memory runs.**
#
# ## Part 2 · Thirty-two threads
#
# A *window average* takes three neighbouring numbers for each result. (`float32(3)` because a plain `3` would make Numba
# divide in float64.) Predict how many sectors one block of 128 threads loads. A request for 32 neighbouring float32 numbers
# is 128 bytes, and the vector begins where a sector begins.

# %%
@cuda.jit
def window_average_naive(x, out):
    i = cuda.grid(1)
    out[i] = (x[i] + x[i + 1] + x[i + 2]) / float32(3)

# BEGIN SOLUTION
sectors = 4 * (4 + 5 + 5)  # a warp's x[i + 1] and x[i + 2] begin inside a sector
# END SOLUTION
ledger.guess("window average: sectors per block of 128", sectors, "sectors")

# %%
report = simt.count(window_average_naive, 1, 128, floats(130), np.zeros(128, np.float32))
ledger.counted("window average: sectors per block of 128", report.global_loads.sectors, "sectors")
print(report.global_loads)
simt.side_by_side(report);

# %% [markdown]
# <details><summary>Why that many?</summary>
#
# 56 sectors, not 48. Each number is loaded three times, and a request that begins inside a sector touches five sectors, not
# four. Yet the 130 numbers lie in 17.
# </details>
#
# A block can load them once into its **shared memory**: a small array on the chip that all its threads see, gone when the
# block ends. A thread that reads what another one wrote must first wait at a **barrier**, `cuda.syncthreads()`, which all
# threads of the block must reach.
#
# ### Clinic: someone's kernel
#
# Someone writes this kernel. Is it right? Read it before you run the second cell.

# %%
@cuda.jit
def window_average_someones(x, out):
    support, i, t = cuda.shared.array(128, float32), cuda.grid(1), cuda.threadIdx.x
    support[t] = x[i]
    if t < 2:
        support[128 + t] = x[i + 128]
    cuda.syncthreads()
    out[i] = (support[t] + support[t + 1] + support[t + 2]) / float32(3)

# %%
try:
    simt.count(window_average_someones, 1, 128, floats(130), np.zeros(128, np.float32), seed=0)
except IndexError as error:
    print(error)

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# 128 threads need 130 numbers. The array has no room for the last two, the *halo*. A GPU says nothing. They land in whatever
# comes next in shared memory, and the result is right until someone declares a second array. Nor does anything test for the
# end of `out`: its length must be a multiple of 128.
# </details>
#
# ### Exercise 2.1 · window_average
#
# Fix both. The size of a shared array is a number written out (`16`, `16 + 2`) or a constant's name.

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
from common.lessons.cuda_kernels import expected as oracle

for n in (1, 256, 127, 129, int(rng.integers(130, 1000))):
    x, out, blocks = floats(n + 2), np.full(n, np.nan, np.float32), -(-n // 128)
    want, mistakes = oracle.window_average(x)
    report = simt.count(window_average, blocks, 128, x, out)
    clean(report)
    result(out, want, f"window_average of {n} elements", rtol=1e-6, atol=1e-6, mistakes=mistakes)
    par(report, "global_loads.sectors", 17 * blocks,
        "The 130 numbers of a block lie in 17 sectors: load each one once, lanes side by side.")
    par(report, "steps", 60, "Let all threads load, not one.")
print("window_average: five lengths, 17 sectors per block")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which two numbers does nobody load if thread t loads number t? Who could load them?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Threads 0 and 1 load a second number each, 128 places further on. There are three guards: one per load, and one for the store.
# </details>
# <details><summary>Hint: the shape</summary>
#
# Two guarded loads into shared memory, a barrier without any `if` around it, a guarded store.
# </details>
#
# **What one thread wrote, another may read after a barrier. So global memory is asked once.**
#
# ## Part 3 · Thirty-two banks
#
# Lab 01 transposed a matrix for free, by its strides. To *store* a transpose is not free. Which is costly below, the
# load or the store?

# %%
@cuda.jit
def transpose_naive(x, out):
    i, j = cuda.grid(2)
    out[i, j] = x[j, i]

report = simt.count(transpose_naive, (2, 2), (32, 32), floats(64, 64), np.zeros((64, 64), np.float32))
print(report)

# %% [markdown]
# One store takes 32 sectors. Shared memory helps: load a tile of 32 × 32 along its rows, wait at a barrier, and store it along
# the rows of the result. In between, the tile is read down its columns.
#
# Shared memory has 32 *banks*: word w is in bank w mod 32. In one *wavefront*, each bank delivers one word, to any number of
# lanes. Lanes that want different words of one bank take turns: a *bank conflict*.
#
# **Your target:** a tile's row takes `pitch` words. To read a column, lane t reads word `t * pitch`. Find the smallest pitch with
# room for 32 numbers and one wavefront per column.

# %% tags=["nbval-ignore-output"]
@cuda.jit
def read_column(pitch):  # what lies in the tile does not matter, only where
    tile, t = cuda.shared.array(2048, float32), cuda.threadIdx.x
    _ = tile[t * pitch]

simt.count(read_column, 1, 32, 36).draw()
from common.lessons.cuda_kernels import widget

widget.bank_conflicts(read_column)

# %% [markdown]
# ### Exercise 3.1 · transpose
#
# Load along rows, store along rows, without bank conflicts.

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
from common.lessons.cuda_kernels import expected as oracle

for rows, columns in ((64, 64), (40, 96), (1, 33), (2 * rng.integers(17, 35, 2) + 1).tolist()):
    x, out = floats(rows, columns), np.zeros((columns, rows), np.float32)
    want, mistakes = oracle.transpose(x)
    report = simt.count(transpose, blocks_of(32, columns, rows), (32, 32), x, out)
    clean(report)
    result(out, want, f"transpose of {rows} × {columns}", mistakes=mistakes)
print("transpose: four shapes")

# %% tags=["check"] points=2
rows, columns = (8 * rng.integers(5, 13, 2)).tolist()
x, out = floats(rows, columns), np.zeros((columns, rows), np.float32)
want = np.array(x.T)
report = simt.count(transpose, blocks_of(32, columns, rows), (32, 32), x, out)
clean(report)
result(out, want, f"transpose of {rows} × {columns}")
for access in ("global_loads", "global_stores"):
    par(report, f"{access}.sectors", rows * columns // 8, "Both ways, lanes should follow a row.")
for access in ("shared_loads", "shared_stores"):
    par(report, f"{access}.wavefronts", getattr(report, access).requests,
        "A bank conflict: a column of the tile should lie in 32 different banks.")
print("transpose: no sector and no wavefront too many")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# The block at (x, y) of the grid loads one tile. Where in `out` does this tile begin?
# </details>
# <details><summary>Hint: the idea</summary>
#
# After the barrier, compute a new row and column, from `blockIdx.x * 32` and `blockIdx.y * 32`. Lanes still differ in x, so
# x is the column again.
# </details>
# <details><summary>Hint: the shape</summary>
#
# Guarded load, barrier, two new coordinates, guarded store. The tile's indices are exchanged in one of the two, and the tile
# has the pitch that you found.
# </details>
#
# **Shared memory delivers a word from each of 32 banks at once. A column is free if its stride is odd.**
#
# ## Part 4 · One instruction for 32
#
# A warp has one instruction at a time. Where its lanes disagree about an `if`, it *diverges*: it goes through both branches,
# one after the other, and some lanes idle in each. That can cost a factor of 32.

# %% [markdown]
# To add up an array, each block adds up 256 numbers as a *tree*. Here are two for 8 numbers; `0+1` means that thread 0
# adds number 1 to its own:
#
# - neighbours first: `0+1 2+3 4+5 6+7`, then `0+2 4+6`, then `0+4`;
# - halves first: `0+4 1+5 2+6 3+7`, then `0+2 1+3`, then `0+1`.
#
# In a tree of 256 numbers with neighbours first, how often do the lanes of a warp disagree?

# %%
@cuda.jit
def block_sum_neighbours(x, out):
    s, t = cuda.shared.array(256, float32), cuda.threadIdx.x
    s[t] = x[t]
    for level in range(8):
        cuda.syncthreads()
        if t % (2 << level) == 0:
            s[t] += s[t + (1 << level)]

# %%
report = simt.count(block_sum_neighbours, 1, 256, floats(256), np.zeros(1, np.float32))
print(f"{report.divergent_branches} divergent branches, {report.steps} steps of the busiest warp")

# %% [markdown]
# <details><summary>Why that many?</summary>
#
# Threads 0, 2, 4 ... work first: half of the lanes in each of the 8 warps. So all 8 warps diverge at each of the first five
# levels. Then 4, 2 and 1 do.
# </details>
#
# ### Exercise 4.1 · block_sum
#
# Choose the threads so that the lanes of a warp agree. Only the last 32 numbers need a warp that diverges, at five levels. Then
# one thread adds the block's sum to `out` by an *atomic* update, `cuda.atomic.add(array, index, value)`. Blocks run in any order, and two
# that do `out[0] += ...` may read the same old value, so one sum is lost.

# %% tags=["hole"]
@cuda.jit
def block_sum(x, out):
    """Adds the sum of x to out[0], with one atomic update per block. About eleven lines.

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
from common.lessons.cuda_kernels import expected as oracle

for n in (1, 512, 257, int(rng.integers(600, 1200))):
    x, out, blocks = rng.random(n, np.float32), np.ones(1, np.float32), -(-n // 256)
    want, mistakes = oracle.block_sum(x, out)
    report = simt.count(block_sum, blocks, 256, x, out)
    clean(report, atomics=True)
    result(out, want, f"block_sum of {n} elements, added to 1", rtol=1e-5, mistakes=mistakes)
    par(report, "atomics", blocks, "One update per block, in any memory: they wait for each other.")
    par(report, "steps", 250, "Add in a tree, 128 pairs at once.")
    par(report, "divergent_branches", 14 * blocks, "Let the first `step` threads work, halves first.")
    par(report, "shared_loads.wavefronts", report.shared_loads.requests, "Bank conflict.")
print("block_sum: four lengths, at most 14 divergent branches per block")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# What should a thread past the end of `x` bring to the tree?
# </details>
# <details><summary>Hint: the idea</summary>
#
# At each level, the first `step` threads add what lies `step` places further on. `step` halves. All threads meet before each
# level.
# </details>
# <details><summary>Hint: the shape</summary>
#
# A load or a 0; a loop over `step` with a barrier and an `if`; thread 0's atomic update.
# </details>
#
# ### Clinic: right for years
#
# Someone writes: "the lanes of a warp run in step, so 32 threads need no barrier". True?

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
# It was never promised. With `s` declared `volatile`, so that the compiler kept no `s[t]` in a register, it happened to work
# until 2017. Since then, each lane has its own program counter. Here, lanes read words that others had not
# written yet. The simulator then gives NaN, and names a word.
#
# Only synchronisation orders one thread's store before another's load: a barrier, a `cuda.syncwarp()`, a shuffle, or a fence
# with an atomic update. Without it, a program is wrong even if its result is right. Here, `cuda.syncwarp()` before each
# level fixes it.
# </details>
#
# **Lanes that disagree take turns. Threads that share data synchronise, always.**

# %% [markdown]
# ## Part 5 · Tiles
#
# Each of the n² threads of the naive matrix product loads 2n numbers: 2n³ in all. Let a block of L × L threads bring tiles of
# L × L numbers into shared memory:
#
#     for each pair of tiles along k:
#         each thread loads one number of a's tile and one of b's
#         barrier; L multiplications and additions per thread; barrier
#
# Each number then serves L threads: 2n³/L loads.
#
# ### Exercise 5.1 · matmul_sectors
#
# That counts numbers, but a warp pays for sectors. Predict both kernels' sectors. A warp lies in 32/tile rows of a block.

# %% tags=["hole"]
def matmul_sectors(n, tile):
    """(naive, tiled): sectors loaded by matmul_naive, and by a kernel with tiles in shared memory.

    Two ints, for (n, n) matrices of float32 and blocks of (tile, tile) threads. About four lines.
    tile is 8, 16 or 32, and n is a multiple of it.
    """
    # BEGIN SOLUTION
    warps = n * n // 32
    # At each k, a warp wants a word of `a` in 32/tile rows, and tile neighbouring words of `b`.
    naive = warps * n * (32 // tile + tile // 8)
    return naive, 2 * n**3 // tile // 8  # a row of a tile fills its sectors
    # END SOLUTION

# %% tags=["check"] points=2
from common.checks import as_tuple
from common.lessons.cuda_kernels import expected as oracle

random = [(tile, tile * int(rng.integers(1, 9))) for tile in (8, 16, 32)]
for tile, n in (16, 64), (8, 8), (32, 64), *random:
    want = oracle.matmul_sectors(n, tile)
    agree(as_tuple(matmul_sectors(n, tile)), want, f"matmul_sectors({n}, {tile})",
        mistakes=oracle.mistaken_sectors(n, tile))
print("matmul_sectors agrees with a count of every request's sectors")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# At one k, how many different words of `a` does a warp of the naive kernel want? How many of `b`? In how many sectors?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Of `a`, one word in each of its rows, a sector each. Of `b`, `tile` neighbouring words, the same ones for each of its rows.
# A tile's rows are whole sectors.
# </details>
#
# ### Exercise 5.2 · matmul_tiled
#
# Write it; the set-up says `TILE = 16`. It needs *two* barriers per step: one before the tiles are used, and one before they
# are overwritten. Matrices have any shape, and what lies outside counts as 0.

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
from common.lessons.cuda_kernels import expected as oracle

for m, n, k in (48, 48, 48), (40, 5, 39), (3, 50, 20), (2 * rng.integers(9, 20, 3) + 1).tolist():
    a, b, c = floats(m, k), floats(k, n), np.full((m, n), np.nan, np.float32)
    want, mistakes = oracle.matmul(a, b, TILE)
    report = clean(simt.count(matmul_tiled, blocks_of(TILE, n, m), (TILE, TILE), a, b, c))
    result(c, want, f"matmul_tiled of {m} × {k} and {k} × {n}", atol=1e-4, mistakes=mistakes)
    par(report, "global_loads.sectors", 2 * n**3 // TILE // 8 if n == k == 48 else 2 * m * n * k,
        "Load each element of a block's tiles once, the lanes along a row: x is the column.")
    par(report, "steps", 30 * (k + TILE), "Give each thread one element.")
    par(report, "shared_loads.wavefronts", report.shared_loads.requests, "A bank conflict.")
    par(report, "global_stores.bytes", c.nbytes, "Store each sum once, when it is complete.")
print("matmul_tiled: four shapes, each tile loaded once per block")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which element of `a`'s tile, and which of `b`'s, should thread (tx, ty) load, so that lanes follow rows in both?
# </details>
# <details><summary>Hint: the idea</summary>
#
# In `a`, its row is fixed, and the column moves with k. In `b`, its column is fixed, and the row moves. What lies outside is
# stored as 0, so that the inner loop needs no test.
# </details>
# <details><summary>Hint: the shape</summary>
#
# A loop over `k0` with two guarded loads, a barrier, an inner loop over TILE, a barrier. Guard the store at the end, never a
# barrier.
# </details>
#
# Your formula is the line. The counters of both kernels are the dots.

# %%
sizes, kernels = (16, 32, 48, 64), {"naive": matmul_naive, "tiled": matmul_tiled}
counted = {name: [] for name in kernels}
for n in sizes:
    a, b, c = floats(n, n), floats(n, n), np.zeros((n, n), np.float32)
    for name, kernel in kernels.items():
        report = simt.count(kernel, (n // TILE, n // TILE), (TILE, TILE), a, b, c)
        counted[name].append(report.global_loads.sectors)

# %%
naive, tiled = zip(*(matmul_sectors(n, TILE) for n in sizes), strict=True)
ax = figures.predicted_and_measured(
    sizes, {"naive": naive, "tiled": tiled}, counted, dots_are="counted", log="xy",
    ylabel="sectors loaded", xlabel="side of the matrices (elements)", title="Sectors of two products")
ax.set_xticks(sizes, sizes)
figures.describe(ax, "Sectors of the naive and the tiled product: counted dots on both lines.")

# %% [markdown]
# The *language model* that runs through this course multiplies matrices, too. In each of its four layers, a `projection` takes
# what attention has mixed, 128 numbers per token, to 128 others. Here are the first 16 tokens of its novel. It sees 128
# tokens at once: how many sectors do they take?

# %%
kept, weights = language_model.activations(language_model.tokens(0, 16)), language_model.weights()
mixed, projection = kept["blocks.0.mixed"], np.ascontiguousarray(weights["blocks.0.projection"].T)
out = np.zeros((16, 128), np.float32)
report = simt.count(matmul_tiled, (8, 1), (TILE, TILE), mixed, projection, out)
print(f"16 tokens: {report.global_loads.sectors:,} sectors; 128: {matmul_sectors(128, 16)[1]:,}")
print("largest difference from the model's own product:", np.abs(out - mixed @ projection).max())

# %% [markdown]
# Now the clock. `matmul_naive` loads 4.25 times fewer sectors than `matmul_swapped`, and your `matmul_tiled` 8 times fewer than
# `matmul_naive`. How many times faster is each than the one before, for 4096 × 4096 on a GPU? (Without a GPU, the executed
# solution has the figure of an H200.)

# %%
RUNGS = {"indices swapped": (matmul_swapped, 16, (16, 16)), "naive": (matmul_naive, 16, (16, 16)),
         "tiled": (matmul_tiled, TILE, (TILE, TILE))}
# BEGIN SOLUTION
faster = 4.25, 8
# END SOLUTION
STEPS = "naive over swapped", "tiled over naive"
for step, factor in zip(STEPS, faster, strict=True):
    ledger.guess(f"matmul: {step}", factor, "times")

# %% tags=["nbval-ignore-output"]
if device.has_gpu():
    measured = timing.matmul_tflops(RUNGS)
    swapped, naive, tiled = measured.values()
    for step, factor in zip(STEPS, (naive / swapped, tiled / naive), strict=True):
        ledger.measured(f"matmul: {step}", factor, "times")
    figures.ladder(measured, xlabel="TFLOP/s", title=f"fp32 matmul, 4096³, {device.name()}")
ledger.table()

# %% [markdown]
# <details><summary>What an H200 says, and why</summary>
#
# About 1.4 times and 6 times: a third and three quarters of what the sectors promise. Sectors are what a kernel *asks for*.
# Caches answer most of what the first two ask, so fewer sectors save less time. In the last step, the work on shared
# memory takes time as well.
# </details>
#
# **Tiles trade global loads for shared ones. In sectors they gain less than in numbers, because the lanes of a warp share already.**

# %% [markdown]
# ## Part 6 · Who hides the wait?
#
# A load from global memory takes hundreds of cycles. A GPU's processor, the *streaming multiprocessor* (SM), holds many warps.
# In each cycle it continues warps that are ready, while others wait.
#
# A block becomes *resident* on an SM when there is room for all of it: its threads, registers and shared memory. It stays until
# it ends. Then the next one comes.
#
# ### Exercise 6.1 · resident_blocks
#
# Each resource limits the number of blocks. Registers and shared memory are handed out in portions.

# %% tags=["hole"]
def resident_blocks(threads, registers, shared_bytes, sm):
    """How many blocks one SM holds at a time, an int; 0 if not even one fits. About six lines.

    threads: per block, a multiple of 128. registers: per thread. shared_bytes: per block. sm: one of
    SMS. A warp takes a multiple of sm["register_portion"] registers. The system takes
    sm["reserved_bytes"] of shared memory for each block, and the sum is rounded up to a multiple of
    sm["shared_portion"].
    """
    # BEGIN SOLUTION
    portion = sm["register_portion"]
    of_block = threads // 32 * (-(-32 * registers // portion) * portion)
    limits = [sm["blocks"], sm["threads"] // threads, sm["registers"] // of_block]
    shared = -(-(shared_bytes + sm["reserved_bytes"]) // sm["shared_portion"]) * sm["shared_portion"]
    return min(limits + ([sm["shared_bytes"] // shared] if shared else []))
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.cuda_kernels import expected as oracle

by_hand = [("H200", 32, 128, 32, 14336), ("GTX 980", 32, 128, 16, 19500), ("H200", 32, 128, 16, 20096),
           ("GTX 980", 8, 128, 16, 0), ("GTX 980", 32, 1024, 255, 0), ("GTX 980", 32, 128, 43, 0)]
lows, highs = (1, 16, 0), (9, 256, 40000)
random = [(sm, 32, *(rng.integers(lows, highs) * (128, 1, 1)).tolist()) for sm in 60 * [*SMS]]
for name, blocks, *block in by_hand + random:
    sm = SMS[name] | {"blocks": blocks}
    want, decides, picture = oracle.resident_blocks(*block, sm)
    case = f"resident_blocks{tuple(block)} on a {name} for {blocks} blocks, where {decides} decide,"
    mistakes = oracle.mistaken_blocks(*block, sm)
    agree(resident_blocks(*block, sm), want, case, mistakes=mistakes, draw=picture)
print("resident_blocks: 126 kernels on two GPUs")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# For each of four resources: how much does the SM have, and how much does one block take?
# </details>
# <details><summary>Hint: the shape</summary>
#
# The least of four quotients. `-(-n // 256) * 256` rounds n up to a multiple of 256. Shared memory sets no limit if a block
# takes none.
# </details>

# %%
from nogpu.simt import occupancy

for registers in (32, 64, 128):
    blocks = resident_blocks(256, registers, 8320, SMS["H200"])
    print(f"H200, 256 threads of {registers:3} registers: {blocks} blocks, {8 * blocks} of 64 warps")
takes = {"blocks": 1, "threads": 256, "registers": 256 * 128, "shared_bytes": 8320 + 1024}
occupancy.draw(takes, SMS["H200"], blocks, "Blocks of 256 threads with 128 registers each, on an H200");

# %% [markdown]
# The last line is the fastest kernel of this lab (in Further). It has a quarter of the warps that an SM can hold. So how many
# are enough?
#
# **Little's law** (lab 02): bytes in flight = bytes per second × seconds of wait. Suppose that each warp has one load in flight, 32
# lanes × 4 bytes, and waits 600 ns for it. What do 132 SMs with 64 warps each read, in bytes per second? A copy runs at
# 4.28 TB/s on an H200, in our fastest run (labs 04 and 05 use this number, too).

# %%
# BEGIN SOLUTION
rate = 132 * 64 * 32 * 4 / 600e-9
# END SOLUTION
ledger.guess("64 warps per SM, one load each", rate, "B/s")

# %%
from common.lessons.cuda_kernels import latency

@cuda.jit
def follow(links, out, steps):  # each load gives the next one's place: a thread has one in flight
    i = cuda.grid(1)
    for _ in range(steps):
        i = links[i]
    out[cuda.grid(1)] = i

# %% tags=["nbval-ignore-output"]
WARPS = 2, 4, 8, 16, 32, 64
if device.has_gpu():
    gpu = latency.chains(follow)  # measures the wait of one warp, and the rate of a copy
    dots = gpu.rates(follow, 1, WARPS), gpu.rates(latency.follow_four, 4, WARPS)
    ledger.measured("64 warps per SM, one load each", dots[0][-1], "B/s")
    latency.draw(gpu, WARPS, {"one load per warp": 1, "four at once": 4}, dots)
else:
    print("The clock needs a GPU: the executed solution has the figure of an H200.")

# %% [markdown]
# <details><summary>What it shows</summary>
#
# The lines are drawn from a lone warp's wait and a copy's rate. On an H200:
#
# - A lone warp waits 378 ns, not 600. So 1.8 TB/s was too low: it is 2.4.
# - One load per warp: the dots are 5 % below the line at 2 warps and 15 % at 64, and never reach the roof. A busy memory answers later.
# - Four at once: up to 32 warps, they are 20 to 30 % below, since a warp waits for the slowest load. With 64 warps they pass the
#   roof by 5 %: a copy also writes, which is slower.
# </details>
#
# **Warps hide each other's waits, and so do independent loads. Registers and shared memory decide how many warps there are.**

# %% [markdown]
# ## Done
#
# Grade the lab with `make grade LAB=03`.

# %% [markdown]
# ## Further
#
# All of it is optional: the last two rungs of the ladder (60 minutes for 7.1, two hours for 7.2), a histogram (30 minutes), the
# simulator against the hardware, and where all this is used.

# %% [markdown]
# `matmul_tiled` loads two numbers from shared memory for each multiplication. Let each thread compute *several* elements of
# `c` (*thread coarsening*). Then a number that it has loaded serves all of them: the idea of Part 5, one level of memory closer. The
# sums live in registers.
#
# ### Exercise 7.1 · matmul_column_tiled (optional)
#
# Eight elements below each other share a number of `b`. So nine loads serve eight multiplications. `cuda.local.array(8, float32)`
# holds the sums: the compiler keeps it in registers if it knows every index, as in `for i in range(8)`.

# %% tags=["hole"]
@cuda.jit
def matmul_column_tiled(a, b, c):
    """c = a @ b, 8 elements of a column per thread. About twenty-five lines.

    Launched with blocks of 512 threads (one axis), each for 64 × 64 elements: the grid's x covers the
    columns of c, its y the rows. Slices along k are 8 wide: each thread loads one number per tile.
    """
    # BEGIN SOLUTION
    a_tile, b_tile = cuda.shared.array((64, 8), float32), cuda.shared.array((8, 64), float32)
    total = cuda.local.array(8, float32)
    t = cuda.threadIdx.x
    tx, ty = t % 64, t // 64  # the thread's column of the block, and its group of eight rows
    row0, column0 = cuda.blockIdx.y * 64, cuda.blockIdx.x * 64
    for i in range(8):
        total[i] = float32(0)
    for k0 in range(0, a.shape[1], 8):
        row, k = row0 + t // 8, k0 + t % 8
        a_tile[t // 8, t % 8] = a[row, k] if row < a.shape[0] and k < a.shape[1] else float32(0)
        k, column = k0 + ty, column0 + tx
        b_tile[ty, tx] = b[k, column] if k < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(8):
            right = b_tile[k, tx]
            for i in range(8):
                total[i] += a_tile[8 * ty + i, k] * right
        cuda.syncthreads()
    for i in range(8):
        row, column = row0 + 8 * ty + i, column0 + tx
        if row < c.shape[0] and column < c.shape[1]:
            c[row, column] = total[i]
    # END SOLUTION

# %% tags=["check"] points=2
for m, n, k in ((64, 128, 24), (65, 3, 9), (*rng.integers((9, 65), (65, 90)).tolist(), 13)):
    a, b, c = floats(m, k), floats(k, n), np.full((m, n), np.nan, np.float32)
    want, (x, y) = a @ b, blocks_of(64, n, m)
    report = simt.count(matmul_column_tiled, (x, y), 512, a, b, c)
    clean(report)
    result(c, want, f"matmul_column_tiled of {m} × {k} and {k} × {n}", rtol=1e-4, atol=1e-4)
    warps = 16 * x * y * -(-k // 8)  # times slices of 8 along k
    par(report, "global_loads.sectors", warps * (8 if k == 24 else 16), "A slice takes 64 numbers.")
    par(report, "shared_loads.requests", warps * 80, "At each k, load one number of b and eight of a.")
    par(report, "shared_loads.wavefronts", warps * 80, "Bank conflicts: lanes share a row.")
    par(report, "global_stores.bytes", c.nbytes, "Store each sum once, when it is complete.")
print("matmul_column_tiled: three shapes, nine loads for eight multiplications")

# %% [markdown]
# <details><summary>Hint: the idea</summary>
#
# Thread t has column t mod 64 of the block, and eight rows from 8 · (t // 64) on. So a warp has 32 neighbouring columns and one
# group of rows: a load of `b_tile` takes 32 banks, and a load of `a_tile` one word for all.
# </details>
# <details><summary>Hint: the shape</summary>
#
# `matmul_tiled` with 8 sums: set them to 0; per slice, load `a_tile[t // 8, t % 8]` and `b_tile[t // 64, t % 64]`; barrier; for
# each k, one number of `b_tile` into a variable and a loop over the sums; barrier; store 8 elements.
# </details>

# %% [markdown]
# ### Exercise 7.2 · matmul_register_tiled (optional)
#
# With 8 × 8 elements per thread, 16 loads serve 64 multiplications. First make it right, then count loads, then tune it. Four
# ideas make a plain kernel three times as fast on an H200:
#
# - rows and columns of a thread in groups of four neighbours: one instruction can load 16 bytes;
# - a 33rd group of four in each row of `a_tile`, which moves rows to other banks;
# - the next slice loaded into registers before this one is used;
# - indices that the compiler knows to be positive (`uint32`).

# %% tags=["hole"]
@cuda.jit(device=True)
def element(x, row, column):
    """x[row, column], or 0 outside of x."""
    # BEGIN SOLUTION
    row, column = uint32(row), uint32(column)  # never negative: no instruction tests for that
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
    """c = a @ b, 8 × 8 elements per thread. About forty lines; the two functions above are only a help.

    Launched with blocks of 256 threads (one axis), each for 128 × 128 elements: the grid's x covers
    the columns of c, its y the rows.
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
        if k0 < a.shape[1]:  # the next slice is in flight while this one is used
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

# %% tags=["check"] limit_s=30
for m, n, k in ((128, 128, 16), (129, 5, 3), (*rng.integers((9, 129), (129, 160)).tolist(), 27)):
    a, b, c = floats(m, k), floats(k, n), np.full((m, n), np.nan, np.float32)
    want = a @ b
    report = simt.count(matmul_register_tiled, blocks_of(128, n, m), 256, a, b, c)
    clean(report)
    result(c, want, f"matmul_register_tiled of {m} × {k} and {k} × {n}", rtol=1e-4, atol=1e-4)
print("matmul_register_tiled: three shapes are right")

# %% tags=["check"] limit_s=30
a, b, c = floats(256, 24), floats(24, 128), np.full((256, 128), np.nan, np.float32)
want = a @ b
report = simt.count(matmul_register_tiled, (1, 2), 256, a, b, c)
clean(report)
result(c, want, "matmul_register_tiled of 256 × 24 and 24 × 128", rtol=1e-4, atol=1e-4)
warps = 2 * 8 * 3  # times slices of 8 along k
par(report, "global_loads.sectors", warps * 32, "A slice takes 256 numbers per warp.")
par(report, "shared_loads.requests", warps * 128,
    "At each k, a thread should load 8 numbers of each tile, and multiply all with each other.")
par(report, "shared_loads.wavefronts", warps * 192, "Bank conflicts: half as many again are par.")
par(report, "global_stores.bytes", c.nbytes, "Store each sum once, when it is complete.")
print("matmul_register_tiled: shared loads down by eight")

# %% tags=["check"] limit_s=30
a, b, c = floats(128, 40), floats(40, 128), np.full((128, 128), np.nan, np.float32)
want = a @ b
report = simt.count(matmul_register_tiled, 1, 256, a, b, c)
clean(report)
result(c, want, "matmul_register_tiled of 128 × 40 and 40 × 128", rtol=1e-4, atol=1e-4)
par(report, "wide_loads", 8 * 5 * 40, "The numbers that a thread loads should lie in fours, "
    "side by side in shared memory: then one instruction loads 16 bytes.")
expect(2 * report.early_loads >= report.global_loads.requests,
    f"matmul_register_tiled loads too late: while it multiplies, {report.early_loads} of its "
    f"{report.global_loads.requests} global requests are in flight. Load the next slice before.")
print("matmul_register_tiled: wide loads, and early ones")

# %% [markdown]
# <details><summary>Hint: the sums</summary>
#
# 64 sums in `cuda.local.array((8, 8), float32)`; tiles of (8, 128), that of `a` transposed; each thread loads 4 elements of
# each. At each k it loads 8 + 8 numbers into local arrays and multiplies all with each other.
# </details>
# <details><summary>Hint: the banks</summary>
#
# Thread (tx, ty) of 16 × 16 takes rows 4·ty to 4·ty + 3, and those 64 below; columns alike. A tile of shape (8, 32, 4) has an
# index for each four, so the compiler sees that they are neighbours. Let a warp be 4 × 8 threads.
# </details>

# %% [markdown]
# <details><summary>Hint: the early loads</summary>
#
# Keep the next slice in local arrays: load it right after the barrier, before you multiply; store it into the tiles after the
# second barrier.
# </details>

# %% [markdown]
# ## The ladder
#
# First in counts: what a product of 128 × 16 and 16 × 128 asks of the two memories.

# %%
MORE = {"8 × 1 per thread": (matmul_column_tiled, 64, 512),
        "8 × 8 per thread": (matmul_register_tiled, 128, 256)}
a, b, c = floats(128, 16), floats(16, 128), np.zeros((128, 128), np.float32)
import contextlib

counts = {}
for name, (kernel, tile, block) in (RUNGS | MORE).items():
    with contextlib.suppress(NotImplementedError):  # a rung that is not written yet is left out
        counts[name] = simt.count(kernel, (128 // tile, 128 // tile), block, a, b, c)

# %%
loads = {name: report.global_loads.sectors for name, report in counts.items()}
shared = {name: report.shared_loads.wavefronts for name, report in counts.items()}
for memory, what, asked in (("global", "sectors", loads), ("shared", "wavefronts", shared)):
    asked = {name: number for name, number in asked.items() if number}
    title = f"What each kernel asks of {memory} memory"
    figures.ladder(asked, xlabel=f"{what} loaded", title=title, log=True)

# %% [markdown]
# Now the clock. Is each rung faster than the one before? And how near does the best one come to cuBLAS, NVIDIA's own
# library? Write down its share, from 0 to 1.

# %%
# BEGIN SOLUTION
share = 0.7
# END SOLUTION
ledger.guess("fp32 matmul: best rung / cuBLAS", share, "times")

# %% tags=["nbval-ignore-output"]
if device.has_gpu():
    peer = timing.cublas_tflops()
    measured = timing.matmul_tflops({name: (RUNGS | MORE)[name] for name in counts})
    best = max(measured.values())
    ledger.measured("fp32 matmul: best rung / cuBLAS", best / peer, "times")
    ledger.constant("fp32 matmul, my own", 1e12 * best, "FLOP/s", device.name())
    title = f"fp32 matmul, 4096³, {device.name()}"
    figures.ladder(measured, ceiling=("cuBLAS", peer), xlabel="TFLOP/s", title=title)

# %% [markdown]
# <details><summary>What each step was worth on an H200</summary>
#
# Speeds at 4096³, as shares of cuBLAS's. Those of the kernels between the rungs were measured while we wrote the last one.
#
# | kernel | share |
# | --- | --- |
# | `matmul_tiled`, tiles of 16 | 0.15 |
# | 8 × 1 elements per thread | 0.15 |
# | 8 × 8, plain | 0.27 |
# | 8 × 8, in fours | 0.58 |
# | and the next slice loaded early | 0.66 |
# | and the loop over k written out, indices never negative | 0.83 |
# | and guards for any shape (the last rung) | 0.82 |
#
# We predicted 0.7, and measured 0.82. Writing out the loop, with `uint32` indices, gained a quarter: more than we thought.
# </details>
#
# <details><summary>What we tried, and what did not help (an H100, where the last rung reaches 0.82)</summary>
#
# Of the loop's 655 instructions, 512 multiply: 78 %. In each of these kernels the part was larger, but all were slower:
#
# | kernel | multiply | share |
# | --- | --- | --- |
# | two slices in shared memory, one barrier per slice | 79 % | 0.77 |
# | each thread loads four neighbours of a row | 80 % | 0.70 |
# | both, with indices of 64 bits | 85 % | 0.68 |
# | 16 × 8 elements per thread | 81 % | 0.66 |
#
# They need more registers or more sectors, or fewer warps fit on an SM. A count of instructions alone does not predict a time.
# </details>
#
# <details><summary>What helped, but not from Numba</summary>
#
# On an H200, copies from global to shared memory that bypass the registers (`cp.async`, an instruction that Numba doesn't offer)
# helped a little. With three slices in flight, 82 % of the instructions multiply, and the share rose from 0.826 to 0.856.
# </details>

# %% [markdown]
# <details><summary>Why is 8 × 1 no faster than tiles?</summary>
#
# It asks for a quarter of the sectors, and for fewer wavefronts. But for every 8 steps of k, instead of 16, it computes
# indices and guards anew and meets at two barriers. With `uint32` indices its share is 0.20; without guards at the loads it
# is 0.17. What the barriers cost, we did not measure.
# </details>

# %% [markdown]
# ### Exercise 7.3 · histogram (optional)
#
# How often does each of 128 characters occur in the novel of the language model? If every thread updates one of 128 counters
# in global memory, threads of all blocks wait for each other. Count in shared memory first: then each block updates each
# counter once.

# %% tags=["hole"]
@cuda.jit
def histogram(tokens, counts):
    """Adds to counts[v], for each v from 0 to 127, how often v occurs in tokens. About ten lines.

    tokens, counts: int32. Launched with blocks of 256 threads, which may be fewer than there are
    tokens: a thread takes every cuda.gridsize(1)-th token.
    """
    # BEGIN SOLUTION
    own, t = cuda.shared.array(128, int32), cuda.threadIdx.x
    if t < 128:
        own[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), tokens.size, cuda.gridsize(1)):
        cuda.atomic.add(own, tokens[i], 1)
    cuda.syncthreads()
    if t < 128:
        cuda.atomic.add(counts, t, own[t])
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.cuda_kernels import expected as oracle

for n, blocks, high in (700, 2, 1), (1, 1, 128), (1024, 1, 128), (rng.integers(2000, 3000), 3, 128):
    tokens, counts = rng.integers(0, high, n, np.int32), np.ones(128, np.int32)
    tokens[0] = 127
    want, mistakes = oracle.histogram(tokens, counts)
    report = simt.count(histogram, blocks, 256, tokens, counts)
    clean(report, atomics=True)
    result(counts, want, f"histogram of {n} tokens, added to ones", mistakes=mistakes)
    par(report, "global_atomics.requests", 4 * blocks, "A block should update each counter once.")
    par(report, "global_loads.sectors", -(-n // 8), "Load each token once, the lanes side by side.")
    par(report, "steps", 60 + 15 * -(-n // (256 * blocks)), "Share the tokens among all threads.")
print("histogram: four lengths, one global update per counter and block")

# %% [markdown]
# <details><summary>Hint: the shape</summary>
#
# 128 threads set the block's counters to 0; barrier; a loop from `cuda.grid(1)` in steps of `cuda.gridsize(1)`, with an atomic
# update of shared memory; barrier; 128 threads add the block's counters to `counts`.
# </details>

# %%
tokens, counts = language_model.tokens(0, 20_000).astype(np.int32), np.zeros(128, np.int32)
histogram[8, 256](tokens, counts)
order = np.argsort(-counts)[:12]
print("  ".join(f"{chr(v)!r} {counts[v]:,}" for v in order))

# %% [markdown]
# ## Is the simulator right?
#
# Its rules are simple: a request's sectors are the different 32-byte pieces that it touches; its wavefronts are the largest
# number of different words in one bank. NVIDIA's profiler, Nsight Compute, reads the same figures from counters in the hardware. Here are
# both, for this lab's kernels and others, on an H200. They differ where the compiler merged loads. The simulator counts
# loads as written.

# %%
from common.lessons.cuda_kernels import counted_and_measured

rows = counted_and_measured.rows()
for why in sorted({f"{row.kernel}: {row.why}" for row in rows if row.why != "equal"}):
    print(why)
counted_and_measured.draw();

# %% [markdown]
# ## Where it is used
#
# - *The ladder*: Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra" (2008), found that registers are its last
#   rung. NVIDIA's CUTLASS has tiles for blocks, for warps and for threads.
# - *The tree*: Harris, "Optimizing parallel reduction in CUDA" (2007). *The transpose*: Ruetsch and Micikevicius (2009).
# - *PyTorch*: its elementwise kernels (`aten/src/ATen/native/cuda/CUDALoops.cuh`) have blocks of 128 threads, several elements
#   per thread, and a guard for the last block.
#
# Limits of our counting: no caches and no time. Limits of our ladder: the tensor cores are idle; lab 05 feeds them.

# %% [markdown]
# **A harder question.** An SM issues four warp instructions and delivers one wavefront of shared memory per cycle. In
# `matmul_tiled`, each multiplication-addition of a warp takes two loads, of one wavefront each. What share of the peak can it
# reach at most? And the last rung?
#
# <details><summary>Answer</summary>
#
# Half a multiplication-addition per cycle, instead of four: an eighth. (The compiler merges some loads of `a_tile`, which makes
# it a sixth, or 11 of an H200's 67 TFLOP/s. It reaches about 8.) In the last rung 16 loads serve 64: four per cycle. Shared
# memory is no limit any more, if nothing else takes its time.
# </details>

# %% tags=["nbval-ignore-output"]
ledger.figure()
ledger.table()
