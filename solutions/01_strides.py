# %% [markdown]
# # 01 · Strides
#
# **How can a transpose cost nothing, and why is the next line then slow?**
#
# At the end of this lab you can
#
# - say where in memory each element of a view is;
# - tell a view from a copy, and fix the error that `view` raises;
# - count the cache lines that a loop fetches, and reorder it.
#
# You need first steps in PyTorch or NumPy. About 145 minutes: 25 of reading, and by exercise 12, 14, 14, 18, 25, 18, 9 and
# 8.
#
# Write your answers in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
import math

import matplotlib.pyplot as plt
import numpy as np
import torch

from common import figures, language_model, ledger, samples
from common.checks import agree, clinic
from common.figures import memory_drawings, views
from common.hardware import timing
from common.lessons.strides import caches, widget

figures.use_style()
rng = np.random.default_rng()
torch.set_num_threads(1)  # so that every copy is made by one core

# %% tags=["setup"]
def shortcuts(name):
    """The names by which your function asks a library for the answer: the check refuses it then."""
    return views.shortcuts(globals()[name])

# %% [markdown]
# ## See it
#
# We transpose a matrix of 67 MB, we copy it, and we copy its transpose. Guess first: how do the three times compare?

# %% tags=["nbval-ignore-output"]
x = torch.rand(4096, 4096)
y = torch.empty_like(x)
lines = {"x.T": lambda: x.T, "y.copy_(x)": lambda: y.copy_(x), "y.copy_(x.T)": lambda: y.copy_(x.T)}
times_s = {line: timing.measure(call).median_s for line, call in lines.items()}
memory_drawings.times(times_s, title="Time of one call, each for 67 MB")
plt.show()

# %% [markdown]
# No memory delivers 67 MB in a few microseconds, so the transpose moved nothing. Yet copying the transpose took several
# times as long as copying the original, though both move the same 67 MB.
#
# One fact explains both: **a tensor is not its numbers.** It is a short recipe for finding them.

# %% [markdown]
# ## Part 1 · The recipe: shape, strides, offset
#
# The numbers of a tensor lie one after another in its *storage*, a single row of memory cells. The tensor itself holds
# a *shape*, one *stride* per axis, and an *offset*:
#
# $$\text{position of } (i, j, \ldots) \;=\; \text{offset} + i \cdot \text{strides}[0] + j \cdot \text{strides}[1] + \ldots$$
#
# A stride says how many cells further the next element along that axis lies. In the figure, each square shows the
# position of its cell, and equal colours are the same cell. `x.T` reads the storage of `x` with exchanged strides.

# %%
x = torch.arange(12).view(3, 4)
print("strides:", x.stride(), x.T.stride())
print("same storage:", x.untyped_storage().data_ptr() == x.T.untyped_storage().data_ptr())
ax = memory_drawings.buffer({"x": views.of(x), "x.T": views.of(x.T)})
figures.describe(ax, "A 3 × 4 matrix and its 4 × 3 transpose, which read the same twelve cells.")
plt.show()

# %% [markdown]
# ### Exercise 1.1 · row_major_strides
#
# A fresh tensor is *row-major*: its elements lie in the order of their indices, the last index counting fastest, without
# gaps. So the last axis has stride 1, and a step along any other axis skips all that the axes after it span. (A single
# number has the shape `()` and no strides.)

# %% tags=["hole"]
def row_major_strides(shape):
    """Strides, in elements, of a row-major tensor of this shape: a tuple of ints.

    shape: tuple of ints. Not allowed: to make such a tensor and ask for its strides.
    About five lines.
    """
    # BEGIN SOLUTION
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
    # END SOLUTION

# %% tags=["check"]
from common.lessons.strides import expected as oracle

oracle.by_hand("row_major_strides", shortcuts("row_major_strides"))
for case in oracle.fresh(rng):
    oracle.agree_strides(case, row_major_strides(*case[0]))
agree(len(row_major_strides((2, 0, 3))), 3, "len(row_major_strides((2, 0, 3)))")
print("row_major_strides agrees with PyTorch on 100 shapes")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In a tensor of shape (2, 3, 4), how many cells does one step along each axis skip?
# </details>
# <details><summary>Hint 2</summary>
#
# Go through the sizes from the last to the first. Keep the product of those that you have passed.
# </details>
#
# ---
#
# **Question.** Someone writes that `M.strides()` gives (24, 12, 4, 1). Bytes or elements? Which shape?
#
# <details><summary>Answer</summary>
#
# Elements: float32 counted in bytes would end in 4. Ratios of neighbours are sizes: (?, 2, 3, 4). PyTorch has the method `M.stride()`, in elements. NumPy has the attribute `M.strides`, in **bytes**. ([Whose claims we test](../docs/sources.md).)
# </details>
#
# Now one photograph, read by four recipes. Which strides will mirror it at its diagonal? Which will shrink it?

# %%
photograph = torch.from_numpy(samples.photograph())  # (256, 256)
recipes = [((256, 256), (256, 1), 0), ((256, 256), (1, 256), 0),
           ((64, 64), (1024, 4), 0), ((90, 90), (256, 1), 30 * 256 + 90)]
axes = memory_drawings.pictures({"shape {}\nstrides {}\noffset {}".format(*r): photograph.as_strided(*r)
                          for r in recipes})
figures.describe(axes, "A photograph, read by the four recipes that stand above the pictures.")
plt.show()

# %% [markdown]
# **A tensor is a storage and a recipe: shape, strides and offset. The position of an element is a dot product.**
#
# ## Part 2 · Views: a new recipe for the same storage
#
# From here on, a *view* is the tuple `(shape, strides, offset)`, and you write functions from view to view. None of them
# touches the storage, so none costs more for a larger tensor. The first reorders the axes: (1, 0) transposes.

# %% tags=["setup", "shown"]
def permuted(view, order):
    """The view with its axes reordered: axis k of the result is axis order[k] of the view."""
    shape, strides, offset = view
    return tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order), offset

# %% [markdown]
# The widget permutes a tensor and then slices its first axis: `x.permute(order)[start::step]`. **Three puzzles:** find
# settings that give these strides and offsets.

# %% tags=["nbval-ignore-output"]
widget.permuted_and_sliced()

# %% [markdown]
# ### Exercise 2.1 · sliced
#
# Keep the indices `start`, `start + step`, ... below `stop` of one axis, as `x[start:stop:step]` does.

# %% tags=["hole"]
def sliced(view, axis, start, stop, step=1):
    """The view of every step-th index from start to before stop of one axis, (shape, strides, offset).

    0 <= start <= stop <= shape[axis], step >= 1. Not allowed: to slice a tensor or an array and ask
    for its strides. About six lines.
    """
    # BEGIN SOLUTION
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    shape[axis] = math.ceil((stop - start) / step)
    offset += start * strides[axis]
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.strides import expected as oracle

oracle.by_hand("sliced", shortcuts("sliced"))
for case in oracle.sliced(rng):
    oracle.agree_view("sliced", case, sliced(*case[0]))
print("sliced agrees with PyTorch on 200 slices")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In `x[1:6:2]`, which cell comes first? How far is it to the second? How many are there? And in `x[1:5:2]`?
# </details>
# <details><summary>Hint 2</summary>
#
# One size, one stride and the offset change. The size rounds up.
# </details>
#
# ---
#
# Two strides that no fresh tensor has. **Stride 0**: a step along this axis stays where it is, so that three rows can see
# the same bias. **A stride used twice**: the step to the next window and the step within a window both go to the next cell.

# %%
bias = torch.arange(8)
ax = memory_drawings.buffer({"bias": views.of(bias), "bias.expand(3, 8)": views.of(bias.expand(3, 8)),
                      "bias.unfold(0, 3, 1)": views.of(bias.unfold(0, 3, 1))})
figures.describe(ax, "Eight cells; three equal rows by stride 0; six windows of three that overlap.")
plt.show()

# %% [markdown]
# ### Exercise 2.2 · sliding_windows
#
# Along one axis, take every `step`-th window of `size` neighbours. That axis now counts the windows. A new axis, the
# last one, runs within the window. (PyTorch's `x.unfold(axis, size, step)`, drawn above.)
#
# Below, your function makes **the training examples of the small language model** that runs through all labs: 128
# characters of a novel to read and, shifted by one, 128 to predict. It also makes the 3 × 3 windows that a convolution
# multiplies.
#
# <details><summary>Hint 1</summary>
#
# Seven cells, `x.unfold(0, 3, 2)`. Where does each window begin?
# </details>
# <details><summary>Hint 2</summary>
#
# The old axis counts the windows: its stride grows `step` times. The new axis keeps the old stride.
# </details>

# %% tags=["hole"]
def sliding_windows(view, axis, size, step=1):
    """The view of all whole windows along one axis, (shape, strides, offset).

    A new axis, the last, runs within the window. 1 <= size <= shape[axis], step >= 1.
    Not allowed: to unfold a tensor or an array and ask for its strides. About six lines.
    """
    # BEGIN SOLUTION
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    within = strides[axis]
    shape[axis] = (shape[axis] - size) // step + 1
    strides[axis] *= step
    return (*shape, size), (*strides, within), offset
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.strides import expected as oracle

oracle.by_hand("sliding_windows", shortcuts("sliding_windows"))
for case in oracle.windows(rng):
    oracle.agree_view("sliding_windows", case, sliding_windows(*case[0]))
print("sliding_windows agrees with PyTorch on 200 views")

# %%
novel = torch.frombuffer(bytearray(samples.novel().encode()), dtype=torch.uint8)  # (684768,)
examples = novel.as_strided(*sliding_windows(views.of(novel), 0, language_model.CONFIG.context + 1))
print(f"{len(examples):,} examples:", bytes(examples[1004]), bytes(examples[1005]), sep="\n")
windows = photograph.as_strided(*sliding_windows(sliding_windows(views.of(photograph), 0, 3), 1, 3))
edges = (windows * torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])).sum((2, 3)).abs()  # (254, 254)
axes = memory_drawings.pictures({"photograph": photograph, "its vertical edges": edges})
figures.describe(axes, "A photograph of a man with a camera, and its vertical edges, found by windows.")
plt.show()

# %% [markdown]
# **Permuting, slicing, broadcasting and sliding a window are arithmetic on a few integers. The storage stays where it is.**
#
# ## Part 3 · When a copy cannot be avoided
#
# ### Exercise 3.1 · runs
#
# Which other shapes can the same elements have without a copy? That depends on the *runs*: groups of neighbouring axes
# that one stride can walk. Sizes (2, 3) with strides (12, 4) are one run, because three steps of 4 lead to the next row.
# With strides (20, 4), a gap follows each row: two runs.
#
# List the runs, as few as possible. An axis of length 1 belongs to no run and separates none: nobody steps along it.

# %% tags=["hole"]
def runs(view):
    """The runs of a view that has elements: a list of pairs (elements, stride), the outer run first.

    The stride of a run is the step to its next element. Axes of length 1 are left out.
    For example, sizes (5, 2, 1, 3) with strides (100, 12, 7, 4) give [(5, 100), (6, 4)].
    Not allowed: to ask a tensor or an array. About nine lines.
    """
    # BEGIN SOLUTION
    found = []
    for size, stride in zip(view[0], view[1]):
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.strides import expected as oracle

oracle.by_hand("runs", shortcuts("runs"))
for case in oracle.runs(rng):
    oracle.agree_runs(case, runs(*case[0]))
print("runs agrees with what PyTorch can flatten in 200 views")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Sizes (5, 2, 3), strides (36, 6, 2). Where do three steps of 2 lead? And one step of 6? And two steps of 6, one of 36?
# </details>
# <details><summary>Hint 2</summary>
#
# Go forward. An axis joins the last run if that run's stride is `size * stride` of this axis.
# </details>
#
# ---
#
# **Question.** A tensor whose elements lie in order, without gaps, is called *contiguous*. What are its runs?
#
# <details><summary>Answer</summary>
#
# One, with stride 1 (or none, if all sizes are 1). With another stride, it is not contiguous, but `view(-1)` still works.
# </details>

# %% [markdown]
# ### Exercise 3.2 · reshaped
#
# **PyTorch's rule: no copy is needed if every new axis can be cut out of a single run.**
#
# Cut the new axes from the last to the first, each from the last run with elements left. For example, cut (4, 6) from a
# run of 24 with stride 2. First, the axis of 6 gets stride 2. Then 4 elements are left, 12 cells apart, so the axis of 4
# gets stride 12. If an axis would span two runs, the answer is `None`.

# %% tags=["hole"]
def reshaped(view, shape):
    """The view in this new shape, (shape, strides, offset); None where that takes a copy.

    shape: tuple of ints, with as many elements as the view. Without elements, any strides will do.
    Your `runs` may help. Not allowed: to ask a tensor or an array. About 13 lines.
    """
    # BEGIN SOLUTION
    if 0 in shape:
        return tuple(shape), (0,) * len(shape), view[2]
    whole = list(runs(view))
    strides, left, step = [], 1, 1  # elements left of the run in hand, stride of what is cut next
    for size in reversed(shape):
        if left == 1 and size > 1:
            left, step = whole.pop()
        if left % size != 0:
            return None
        strides.append(step)
        left, step = left // size, step * size
    return tuple(shape), tuple(reversed(strides)), view[2]
    # END SOLUTION

# %% tags=["check"] points=4
from common.lessons.strides import expected as oracle

oracle.by_hand("reshaped", shortcuts("reshaped"))
for case in [*oracle.reshaped(rng), *oracle.five_axes(rng)]:
    oracle.agree_view("reshaped", case, reshaped(*case[0]))
print("reshaped agrees with PyTorch on 420 views")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Runs [(4, 6), (4, 1)], new shape (2, 2, 4). Which run does the last axis use up? What is left for the others?
# </details>
# <details><summary>Hint 2</summary>
#
# Keep two numbers: how many elements of the run are left, and the stride of the next axis. A cut divides the first by `size`
# and multiplies the second by it.
# </details>
# <details><summary>Hint 3</summary>
#
# Loop over `reversed(shape)`. If one element is left and `size > 1`, take the next run from the end. If `size` does not
# divide what is left, return None.
# </details>

# %%
x = sliced(((4, 6), (6, 1), 0), 1, 0, 4)
ax = memory_drawings.buffer({"x": x, "reshaped(x, (4, 2, 2))": reshaped(x, (4, 2, 2)),
                      "reshaped(x, (2, 2, 4))": reshaped(x, (2, 2, 4))})
figures.describe(ax, "A 4 × 4 matrix with gaps after its rows, and two reshapes that need no copy.")
plt.show()
print("reshaped(x, (16,)):", reshaped(x, (16,)))

# %% [markdown]
# In `x` a gap follows each row. So a new axis may stay within a row or step over whole rows, but not both.
#
# ### Clinic: merging the heads
#
# The attention of our language model leaves a tensor (batch, 4 heads, tokens, 32 channels). The next layer wants (batch,
# tokens, 128), the heads of a token side by side. Three colleagues wrote this. (Each number is its own position in `heads`.)

# %%
B, H, T, C = 2, language_model.CONFIG.heads, 5, language_model.CONFIG.head
heads = torch.arange(B * H * T * C).view(B, H, T, C)
one, three = heads.view(B, T, H * C), heads.transpose(1, 2).reshape(B, T, H * C)
try:
    two = heads.transpose(1, 2).view(B, T, H * C)
except RuntimeError as error:
    print("two:", error)
print("every 16th channel:", one[0, 0, ::16].tolist(), three[0, 0, ::16].tolist(), sep="\n")

# %% [markdown] tags=["answer"]
# Which one is wrong and says nothing? Why does `two` raise? What does `three` cost?
#
# <!-- BEGIN SOLUTION -->
# `one` is wrong in silence: its first row holds four tokens of head 0. `two` would walk heads and channels with a single
# stride, but theirs are (160, 1), and 160 is not 32 · 1: two runs. `three` is right, and copies the whole tensor.
# <!-- END SOLUTION -->

# %% [markdown]
# **View or copy?** Decide for each line before you run the cell.

# %%
x = torch.arange(24).view(4, 6)
made = {"x[1:3]": x[1:3], "x[[1, 2]]": x[[1, 2]], "x[x > 5]": x[x > 5], "x.flatten()": x.flatten(),
        "x.T.flatten()": x.T.flatten(), "x.contiguous()": x.contiguous(),
        "x.T.contiguous()": x.T.contiguous(), "x[:, :4].reshape(16)": x[:, :4].reshape(16)}
for line, tensor in made.items():
    shared = tensor.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    print(f"{line:26}", "view" if shared else "copy")

# %% [markdown]
# **A reshape is free while every new axis stays within one run. Past that, `view` refuses, and `reshape` copies silently.**
#
# ## Part 4 · What a walk costs
#
# A processor never fetches one number. It fetches a *cache line* of 64 neighbouring bytes (16 float32) and keeps it in a
# *cache*. When our cache is full, it drops the *least recently used* line (LRU).
#
# To *walk* a view is to visit its elements in the order of their indices, the last one fastest. Below are
# 8 × 16 float32, one line per row. A coloured dot is a fetch. A grey dot finds its line in the cache.

# %%
rows, columns = ((8, 16), (16, 1), 0), ((16, 8), (1, 16), 0)
walks = {"by rows, room for 7": rows} | {f"by columns, room for {room}": columns for room in (8, 7)}
axes = memory_drawings.walk(walks, rooms=[7, 8, 7])
figures.describe(axes, "By rows 8 fetches; by columns 8 with room for 8 lines, 128 with room for 7.")
plt.show()

# %% [markdown]
# ### Exercise 4.1 · fetches
#
# With room for 7, the line that the walk by columns needs next is always the one that was just dropped.
#
# Now a walk is the list of the lines that its steps visit. Count its fetches, with a cache that is empty at first. A visit
# to a line in the cache costs nothing, but makes this line the most recently used one. Any other visit is a fetch.

# %% tags=["hole"]
def fetches(lines, room):
    """How many visits fetch their line: an int.

    lines: list of ints, the line that each step visits. room: how many lines the cache keeps, 1 or
    more; when it is full, the least recently used one goes.
    Not allowed: functools.lru_cache, which does it all. About ten lines.
    """
    # BEGIN SOLUTION
    cache, count = {}, 0  # the lines that are kept, as keys: the least recently used first
    for line in lines:
        if line in cache:
            del cache[line]  # it goes to the end
        else:
            count += 1
            if len(cache) == room:
                del cache[next(iter(cache))]
        cache[line] = None
    return count
    # END SOLUTION

# %% tags=["check"] points=3
from copy import deepcopy

from common.lessons.strides import expected as oracle

oracle.by_hand("fetches", shortcuts("fetches"))
for case in oracle.fetches(rng):
    oracle.agree_count("fetches", case, fetches(*deepcopy(case[0])))
lines = [line for column in range(128) for line in range(column // 16, 1024, 8)]
for room, want in [(64, 16384), (127, 16384), (128, 1024), (512, 1024)]:
    agree(fetches(list(lines), room), want, f"fetches(lines of 128 × 128 float32 by columns, {room})")
print("fetches agrees with the definition of LRU on 80 walks")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In which order could you keep the lines, so that you always know which one goes?
# </details>
# <details><summary>Hint 2</summary>
#
# A dict keeps its keys in the order in which they came. A line that is taken out and put in again is the last one.
# `next(iter(cache))` is the first.
# </details>
#
# ---
#
# **Question.** Someone writes: "Accessing columns of a matrix can be 10x slower!" For float32, when is the slowdown in your
# count 1, when 16, and why never more?
#
# <details><summary>Answer</summary>
#
# With room for one line per row, each line is fetched once: 1. With less room, each step is a fetch: 16, since a line holds
# 16 numbers.
# </details>

# %% [markdown]
# **Guess.** 1,797 images have 8 × 8 pixels of one byte, so each image is exactly one line. To average them, someone loops
# over the pixels, and for each pixel over all images. The cache has room for 512 lines. How many lines does the loop fetch?
# (A walk in the order of the storage fetches 1,797.)

# %%
# BEGIN SOLUTION
guess = 64 * 1797
# END SOLUTION
ledger.guess("digits pixel by pixel", guess, "lines")
pixel_by_pixel = permuted(((1797, 8, 8), (64, 8, 1), 0), (1, 2, 0))
counted = fetches(caches.lines_of(pixel_by_pixel, 1), 512)
ledger.counted("digits pixel by pixel", counted, "lines")
print(f"{counted:,} lines")

# %% [markdown]
# <details><summary>Why?</summary>
#
# All of them, for each pixel: 64 · 1,797. Before the loop comes back to an image, 1,796 others have passed. The cache
# holds less than a third of them.
# </details>
#
# ### Exercise 4.2 · blocked
#
# Back to the slow copy. A simple loop reads `x` by columns and writes `y` by rows. If a column has more lines than the
# cache, each read is a fetch. The cure is another order: block by block, so that a line is used up while it is in the
# cache. And an order of visits is a view! Write the view whose walk takes a matrix block by block.

# %% tags=["hole"]
def blocked(view, block):
    """The view of a matrix in blocks, with shape (rows / block, columns / block, block, block).

    Its walk takes the blocks row by row, and each block row by row. block divides both sizes.
    Your earlier functions may help. Not allowed: to ask a tensor or an array. About two lines.
    """
    # BEGIN SOLUTION
    rows, columns = view[0]
    cut = reshaped(view, (rows // block, block, columns // block, block))
    return permuted(cut, (0, 2, 1, 3))
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.strides import expected as oracle

oracle.by_hand("blocked", shortcuts("blocked"))
for case in oracle.blocked(rng):
    oracle.agree_view("blocked", case, blocked(*case[0]))
print("blocked agrees with PyTorch on 60 matrices")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which four indices name an element of a block? Which of them changes first in the walk?
# </details>
# <details><summary>Hint 2</summary>
#
# Cut each of the two axes into two, as `reshaped` does. Then bring the four axes into the right order.
# </details>
#
# ---
#
# First we count the lines that are read and written, for 256 × 256 float32 and room for 64 lines. Then the stopwatch: a
# compiled loop copies the transpose of 67 MB by your views. Which block will be best in the count?

# %% tags=["nbval-ignore-output"]
def transposition(n, block):  # (view to write, view to read)
    return blocked(((n, n), (n, 1), 0), block), blocked(((n, n), (1, n), 0), block)

blocks, rows = [4, 8, 16, 32, 64, 128, 256], ((4096, 4096), (4096, 1), 0)
lines = {b: caches.copy_lines(*transposition(256, b), 4) for b in [1, 2, *blocks]}
counts = {b: fetches(lines[b], 64) / 256**2 for b in lines}
times_s = {b: caches.copy_s(4096, *transposition(4096, b)) for b in [*blocks, 4096]}
memory_drawings.by_block(counts, times_s, caches.copy_s(4096, rows, rows), 4096)
plt.show()

# %% [markdown]
# <details><summary>What the count says</summary>
#
# Blocks of 16 and 32 are best: a transposed copy then fetches no more than a straight one. Smaller blocks waste part of
# each line. Blocks of 64 and more do not fit into 64 lines.
# </details>
#
# <details><summary>What the stopwatch says</summary>
#
# Small and large blocks are slow. On an H200's host, blocks of 64 were best, but took twice as long as the
# straight copy, and blocks of 4 took longer than no blocks. The count omits the cost of short loops, the second cache,
# and what Part 5 is about.
# </details>

# %% [markdown]
# **A stride costs nothing until you walk along it. Then each element may cost a cache line, unless you walk in blocks.**
#
# ## Part 5 · Predict, then measure
#
# One thing is still wrong with our model of the cache. We copy the transpose of a smaller matrix without blocks, then with
# 16 more rows and columns. In both, a column has more lines than most first caches. So 16 numbers take 17 fetches, where
# a straight copy has 2. And the stopwatch?

# %% tags=["nbval-ignore-output"]
for n in (1024, 1040):
    straight, by_columns = ((n, n), (n, 1), 0), ((n, n), (1, n), 0)
    slowdown = caches.copy_s(n, straight, by_columns) / caches.copy_s(n, straight, straight)
    print(f"n = {n}: the transposed copy takes {slowdown:.1f} times as long as the straight one")

# %% [markdown]
# The extra columns remove most of the slowdown: on an H200's host, 5.5 to 5.9 became 1.2 to 1.3. The count says
# 17 / 2 = 8.5 for both.
#
# A real cache is divided into *sets*. Line k may lie only in set `k mod sets`, and each set has room for a few lines, its
# *ways*. Each set is a small LRU cache of its own. If rows have 64 lines, a column visits the lines 0, 64, 128, ... With 64
# sets, they all want set 0:

# %% tags=["nbval-ignore-output"]
sets, ways = caches.first()
print(f"The first cache here: {sets} sets × {ways} ways = {sets * ways} lines of 64 bytes")
columns = {f"rows of {wide} lines": [wide * row for row in range(20)] for wide in (64, 65)}
axes = memory_drawings.lines_per_set(columns, sets, ways)
figures.describe(axes, "Twenty lines 64 apart crowd into few sets; 65 apart, each has its own set.")
plt.show()

# %% [markdown]
# ### Exercise 5.1 · set_fetches
#
# Count the fetches of a walk with such a cache.

# %% tags=["hole"]
def set_fetches(lines, sets, ways):
    """How many visits fetch their line: an int. Each set is an LRU cache with room for `ways` lines.

    lines: list of ints; line k may lie only in set k mod sets. Your `fetches` may help.
    Not allowed: functools.lru_cache. About two lines.
    """
    # BEGIN SOLUTION
    parts = [[line for line in lines if line % sets == k] for k in range(sets)]
    return sum(fetches(part, ways) for part in parts)
    # END SOLUTION

# %% tags=["check"] points=2
from copy import deepcopy

from common.lessons.strides import expected as oracle

oracle.by_hand("set_fetches", shortcuts("set_fetches"))
for case in oracle.set_fetches(rng):
    oracle.agree_count("set_fetches", case, set_fetches(*deepcopy(case[0])))
print("set_fetches agrees with the definition of LRU, set by set, on 60 walks")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Can a line of one set ever drop a line of another set?
# </details>
# <details><summary>Hint 2</summary>
#
# It can't. So split the walk into one walk per set.
# </details>
#
# ---
#
# **Guess.** A matrix has as many lines per row as your first cache has sets (printed above). We walk down its first column
# again and again. Up to which height of the column are there no fetches after the first round?

# %%
# BEGIN SOLUTION
guess = ways
# END SOLUTION
ledger.guess("height of a column that fits, rows of S lines", guess, "rows")

# %% [markdown]
# A stopwatch sees single fetches only if each step waits for the one before it. So each line of our column holds the
# address of the next one. What does a step cost? Two other walks tell us: over eight lines (all found), and over four times
# the cache's lines, shuffled (hardly any found). These two times and your count make the lines in the figure. The dots are
# columns of growing height.

# %% tags=["nbval-ignore-output"]
hit_ns, miss_ns = caches.hit_and_miss_ns()

def predicted_ns(lines):
    fetched = set_fetches(lines * 2, sets, ways) - set_fetches(lines, sets, ways)  # of the second round
    return hit_ns + fetched / len(lines) * (miss_ns - hit_ns)

heights, names = range(2, 41), {wide: f"rows of {wide} lines" for wide in (sets, sets + 1)}
walks = {names[wide]: [[wide * row for row in range(height)] for height in heights] for wide in names}
predicted = {name: [predicted_ns(lines) for lines in columns] for name, columns in walks.items()}
measured = {name: [caches.step_ns(lines) for lines in columns] for name, columns in walks.items()}

# %% tags=["nbval-ignore-output"]
ax = figures.predicted_and_measured(
    heights, predicted, measured, xlabel="numbers in the column", ylabel="ns per step",
    title=f"Down a column, again and again: a cache of {sets * ways} lines")
ax.set_ylim(0)
said = (f"{name}: {dots[0]:.1f} ns at height 2, {dots[-1]:.1f} ns at height 40."
        for name, dots in measured.items())
figures.describe(ax, " ".join(["Time per step against the height, predicted and measured.", *said]))
plt.show()

# %% tags=["nbval-ignore-output"]
for name in names.values():
    miss = np.median(abs(np.divide(measured[name], predicted[name]) - 1))
    print(f"{name}: half of the dots miss the line by less than {miss:.0%}")
fits = sum(t < (hit_ns + miss_ns) / 2 for t in measured[names[sets]]) + 1  # the first height is 2
ledger.measured("height of a column that fits, rows of S lines", fits, "rows")
ledger.table()

# %% [markdown]
# No dot was used to draw the lines. Most lie close, but not at the edge, which the medians hide. (In the table, a
# column fits if its dot is nearer to the lower level.)
#
# <details><summary>By how much did the lines miss?</summary>
#
# On an H200's host (12 ways), height 11 took a third to a half longer than predicted, and 12 almost twice as long: 11 rows
# fit. Height 13 took a tenth less: real caches only approximate LRU. Beyond, dots missed by up to 9 %: the second
# cache's time varies with the place. We don't know why padded rows missed by up to 11 %.
# </details>
#
# With one more line per row, columns of hundreds of numbers fit. The larger second cache has sets, too: it could hold the
# column of 1040 numbers, but not that of 1024. So people *pad* matrices.
#
# **How many lines a cache holds says little. Where they may lie decides whether a walk fits.**

# %% [markdown]
# ## Done
#
# The last cell saves and grades this notebook.
#
# **A harder question.** You want the fetches of one walk for *every* room from 1 to 512. Must you count 512 times?
#
# <details><summary>Answer</summary>
#
# No. For each visit, count the other lines since the last visit to the same line. Every cache with more room than that finds
# it, and no other does. So one pass gives a histogram that answers for every room.
# </details>

# %% [markdown]
# ## Further
#
# ### Where it is used
#
# - PyTorch: `computeStride` (ATen/TensorUtils.cpp) is `reshaped`. `TensorIterator` merges runs and reorders axes before a
#   loop, so `x.T.sum()` walks in the storage's order. `channels_last` is a permutation of strides.
# - NumPy allows negative strides: `x[::-1]` is a view there, but PyTorch's `flip` copies.
# - Fast matrix multiplications copy blocks into order first, as your tiles will in labs 03 to 05.
#
# Unlike PyTorch, our functions guard neither bounds nor writes. Whoever writes into a view writes into the original.
# `bias.expand(3, 8).add_(1)` would add 3 to each cell, so PyTorch refuses it.

# %% [markdown]
# Two optional exercises follow: the rules of broadcasting, and a test of other people's caches.
#
# ### Exercise 6.1 · broadcasted (optional)
#
# Stretch a view to a shape. Shapes are aligned at their last axes. New axes come in front. An axis of length 1 may be
# stretched, and every other mismatch is an error.

# %% tags=["hole"]
def broadcasted(view, shape):
    """The view stretched to this shape, (shape, strides, offset): new and stretched axes have stride 0.

    ValueError where an axis that is not 1 long would have to change its length, or where shape has
    fewer axes than the view. Not allowed: to ask a tensor or an array. About eight lines.
    """
    # BEGIN SOLUTION
    old_shape, old_strides, offset = view
    new_axes = len(shape) - len(old_shape)
    if new_axes < 0:
        raise ValueError(f"{old_shape} has more axes than {shape}")
    strides = [0] * new_axes
    for old, stride, new in zip(old_shape, old_strides, shape[new_axes:]):
        if old not in (1, new):
            raise ValueError(f"an axis of length {old} cannot become {new} long")
        strides.append(stride if old == new else 0)
    return tuple(shape), tuple(strides), offset
    # END SOLUTION

# %% tags=["check"]
from common.lessons.strides import expected as oracle

oracle.by_hand("broadcasted", shortcuts("broadcasted"))
for case in oracle.broadcasted(rng):
    try:
        got = broadcasted(*case[0])
    except ValueError as error:
        got = error
    oracle.agree_broadcast(case, got)
print("broadcasted agrees with PyTorch on 200 views, and refuses what does not fit")

# %% tags=["driver"]
def judged(source):
    """What test_fetches says of a program: "" if it accepts it."""
    return clinic.verdict(test_fetches, source)

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# A new axis, and an axis that is stretched, show the same element at every index. Which stride does that?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Put a 0 in front for each new axis. Then walk along the old axes and the last axes of the new shape together.
# Is an axis of length 1 that stays 1 long stretched?
# </details>
#
# ### Exercise 6.2 · test_fetches (optional)
#
# **Test the test.** Other people wrote `fetches(lines, room)`, too. Some of their programs are right, and some have a bug.
# Write a test that tells them apart. We run it on programs that you cannot see. It must accept all right ones and refuse at
# least 12 of the 16 wrong ones. Which short walk reveals the mistakes that one can make in Exercise 4.1?
#
# <details><summary>Hint: a question</summary>
#
# Which mistakes can one make? An old line may be thrown out in the wrong order, too early, too late, or not at
# all.
# </details>
# <details><summary>Hint: the idea</summary>
#
# One walk can hold many questions: lines that return at once, after `room` others, and after more. Also use
# line 0, and compare one number.
# </details>

# %% tags=["hole"]
def test_fetches(candidate):
    """Raises AssertionError if candidate(lines, room) does not count the fetches of an LRU cache.

    candidate: a function with the signature of `fetches`. Lines may be any ints from 0 on.
    """
    # BEGIN SOLUTION
    walk = [1, 5, 0, 3, 0, 5, 3, 3, 1, 5, 1, 3, 3, 0]  # short returns, long ones, a line 0
    assert candidate(walk, 3) == 6
    # END SOLUTION

# %% tags=["check"] points=2
print(clinic.score("fetches", judged, par=12, rng=rng))
