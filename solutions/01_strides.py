# %% [markdown]
# # 01 · Strides
#
# **How can a transpose cost nothing, and why is the next line then slow?**
#
# At the end of this lab you can
#
# - say which cell of memory each element of a view is;
# - tell a view from a copy before you run the line, and mend the error that `view` raises;
# - count the cache lines that a loop fetches, and so say which order is slow.
#
# Needs first steps in PyTorch or NumPy; no GPU. About 75 minutes.
#
# Where a cell says `raise NotImplementedError` or `= ...`, you write; the next cell checks. Keep your whole answer in
# that cell: the grader reads no other.

# %% tags=["setup"]
import contextlib
import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import torch

from common import drawings, figures, ledger, samples, timing, views, widgets
from common.checks import agree

figures.use_style()
rng = np.random.default_rng()

# %% [markdown]
# ## See it
#
# A matrix of 4096 × 4096 float32 numbers takes 67 MB. We transpose it; we copy it into a second matrix; and we copy its
# transpose into that second matrix. The two copies move the same 67 MB.

# %% tags=["nbval-ignore-output"]
x = torch.rand(4096, 4096)
y = torch.empty_like(x)
print("x.T          ", timing.measure(lambda: x.T))
print("y.copy_(x)   ", timing.measure(y.copy_, x))
print("y.copy_(x.T) ", timing.measure(y.copy_, x.T))

# %% [markdown]
# The transpose took about a microsecond. To move 67 MB in that time, a memory would have to deliver 67 terabytes a second, so
# nothing was moved. But something was changed: to copy the transpose, the same numbers into the same place, took longer than
# to copy the original. (How much longer depends on the machine, and on what else it is doing.)
#
# One fact explains both, the free transpose and the slow copy: **a tensor is not its numbers.** It is a short recipe for
# finding them.

# %% [markdown]
# ## Part 1 · The recipe: shape, strides, offset
#
# The numbers of a tensor lie one after another in its *storage*, a single row of memory cells. The tensor itself holds
# a *shape*, one *stride* for each axis, and an *offset*:
#
# $$\text{position of } (i, j, \ldots) \;=\; \text{offset} + i \cdot \text{strides}[0] + j \cdot \text{strides}[1] + \ldots$$
#
# A stride is how many cells further the next element along that axis lies. In the figure, each square shows the position
# of its cell in the storage, and equal colours are the same cell: `x.T` reads the storage of `x`, with the two strides
# swapped.

# %%
x = torch.arange(12).view(3, 4)
print("strides:", x.stride(), x.T.stride())
print("same storage:", x.data_ptr() == x.T.data_ptr())
drawings.buffer({"x": views.of(x), "x.T": views.of(x.T)})
plt.show()

# %% [markdown]
# ### Exercise 1.1 · row_major_strides
#
# A fresh tensor is laid out *row-major*: elements in the order of their indices, the last index counting fastest, without
# gaps. So the last axis has stride 1, and each other axis must step over everything that the axes after it span. Which
# strides does a row-major tensor of a given shape have? (A single number has the shape `()`, and no strides.)

# %% tags=["hole"]
def row_major_strides(shape):
    """Strides, in elements, of a row-major tensor of this shape: a tuple of ints.

    shape: tuple of ints. About four lines.
    """
    # BEGIN SOLUTION
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
    # END SOLUTION

# %% tags=["check"]
for trial in range(100):
    shape = tuple(rng.integers(1, 6, trial // 20).tolist()) if trial else (2, 3, 4)
    want = torch.empty(shape).stride()
    agree(row_major_strides(shape), want, f"row_major_strides({shape})", mistakes={
        "These strides count bytes of float32; ours count elements.": tuple(4 * step for step in want),
        "Here the first index counts fastest (column-major).": torch.empty(shape[::-1]).stride()[::-1],
        "Each includes its own size; take those after it.": tuple(map(math.prod, zip(shape, want))),
        "These are the right strides, but the last axis stands first.": want[::-1],
    })
agree(len(row_major_strides((2, 0, 3))), 3, "len(row_major_strides((2, 0, 3)))")
print("row_major_strides agrees with PyTorch on 100 shapes")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go through the sizes from the last to the first and keep the product of those you have passed.
# </details>
#
# ---
#
# **Question.** The lecture notes that this course grew from print `M.strides()  # (24, 12, 4, 1)`, and after
# `M.permute((1, 2, 3, 0))` the strides (12, 4, 1, 24). Bytes or elements? What is the shape of `M`? What is wrong with the
# first line?
#
# <details><summary>Answer</summary>
#
# Elements: float32 counted in bytes would end in 4. Ratios of neighbours are sizes: (?, 2, 3, 4); the first size is in no
# stride. `M.strides()` exists nowhere: PyTorch has the method `M.stride()`, in elements, NumPy the attribute `M.strides`, in
# **bytes**.
# </details>

# %% [markdown]
# ### Exercise 1.2 · element_offset
#
# Now the formula itself: from an index to a position in the storage.
#
# Below the check, your formula reads three pictures from one storage, that of 1,797 real handwritten digits of 8 × 8 pixels: a
# digit; the same mirrored at its diagonal (strides swapped); every second pixel of it (strides doubled). Only the offset says
# which digit.

# %% tags=["hole"]
def element_offset(index, strides, offset):
    """Position in the storage, in elements, of the element at this index: an int.

    index, strides: tuples of ints, equally long. One line.
    """
    # BEGIN SOLUTION
    return offset + sum(i * stride for i, stride in zip(index, strides))
    # END SOLUTION

# %% tags=["check"]
for trial in range(200):
    view = views.random_view(rng, trial // 50, smallest=1) if trial else ((2, 3, 4), (12, 4, 1), 5)
    sizes, strides, offset = view
    index = tuple(int(rng.integers(size)) for size in sizes) if trial else (1, 0, 2)
    want = views.positions(view)[index].item()
    crossed = sum(i * stride for i, stride in zip(index, strides[::-1]))
    case = f"element_offset({index}, {strides}, {offset})"
    agree(element_offset(index, strides, offset), want, case, mistakes={
        "The offset was left out.": want - offset,
        "The offset is in cells already: add it as it is, once.": want - offset + offset * sum(strides),
        "Each index belongs to the stride in its own place.": offset + crossed})
print("element_offset finds what PyTorch finds in 200 views")

# %%
images, labels = samples.digits()
storage = images.reshape(-1)  # 115,008 numbers in a row

def picture(shape, strides, offset):
    index = itertools.product(range(shape[0]), range(shape[1]))
    return np.array([storage[element_offset(i, strides, offset)] for i in index]).reshape(shape)

recipes = [((8, 8), (8, 1)), ((8, 8), (1, 8)), ((4, 4), (16, 2))]  # all from offset 192: digit number 3
drawings.pictures({f"strides {strides}": picture(shape, strides, 192) for shape, strides in recipes})
plt.show()

# %% [markdown]
# **A tensor is a storage and a recipe, its shape, strides and offset; the position of an element is a dot product.**
#
# ## Part 2 · Views: a new recipe for the same storage
#
# From here on a *view* is the tuple `(shape, strides, offset)`. You write functions from view to view. None touches the
# storage, so none costs more for a larger tensor.
#
# The figure shows what PyTorch does; in the widget below it you choose. What becomes of strides and offset as you change
# `order`, `start`, `step`?
#
# (A check that fails leaves its `view` and your `got`. In a new cell: `drawings.buffer({"view": view, "mine": got})`.)

# %% tags=["nbval-ignore-output"]
drawings.permuted_and_sliced(shape=(3, 4), order=(1, 0), start=1, step=2)
plt.show()
widgets.permuted_and_sliced()

# %% [markdown]
# ### Exercise 2.1 · permuted
#
# Reorder the axes: axis `k` of the result is axis `order[k]` of the given view. A transpose is the order (1, 0).

# %% tags=["hole"]
def permuted(view, order):
    """The view with its axes reordered, (shape, strides, offset).

    order: tuple of ints, a permutation of the axes; axis k of the result is axis order[k] of the view.
    About two lines.
    """
    # BEGIN SOLUTION
    shape, strides, offset = view
    return tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order), offset
    # END SOLUTION

# %% tags=["check"]
for trial in range(200):
    view = views.random_view(rng, trial // 40) if trial else ((2, 3, 4), (12, 4, 1), 5)
    order = tuple(rng.permutation(len(view[0])).tolist()) if trial else (2, 0, 1)
    x = views.positions(view)
    want, got = x.permute(order), permuted(view, order)
    agree(views.positions(got), want, views.case(f"permuted({view}, {order})", got, want), mistakes={
        "The inverse: axis order[k] of the view becomes axis k.": x.permute(np.argsort(order).tolist()),
        "The sizes moved, the strides stayed: move both.": x.as_strided(want.shape, x.stride()),
        "The offset stays as it was.": x.as_strided(want.shape, want.stride(), 0),
    })
print("permuted agrees with PyTorch on 200 views")

# %% [markdown]
# ### Exercise 2.2 · sliced
#
# Keep the indices `start`, `start + step`, ... below `stop` of one axis, as `x[start:stop:step]` does.

# %% tags=["hole"]
def sliced(view, axis, start, stop, step=1):
    """The view of every step-th index from start to before stop of one axis, (shape, strides, offset).

    0 <= start <= stop <= shape[axis], step >= 1. About six lines.
    """
    # BEGIN SOLUTION
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    shape[axis] = math.ceil((stop - start) / step)
    offset += start * strides[axis]
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset
    # END SOLUTION

# %% tags=["check"] points=2
for trial in range(200):
    view = views.random_view(rng, 1 + trial // 50) if trial else ((5, 6), (6, 1), 3)
    axis, start, stop, step = views.random_slice(rng, view) if trial else (0, 1, 4, 2)
    x = views.positions(view)
    want = x[(slice(None),) * axis + (slice(start, stop, step),)]
    got = sliced(view, axis, start, stop, step) if step > 1 else sliced(view, axis, start, stop)
    case = views.case(f"sliced({view}, {axis}, {start}, {stop}, {step})", got, want)
    agree(views.positions(got), want, case, mistakes={
        "The step belongs into the stride, too.": want.as_strided(want.shape, x.stride()),
        "The offset did not move: begin start strides on.": x.as_strided(want.shape, want.stride()),
        "The length was rounded down; round it up.": want.narrow(axis, 0, (stop - start) // step)})
print("sliced agrees with PyTorch on 200 slices")

# %% [markdown]
# **Question.** The lecture notes: "simply changing the offsets and shape will output the slice". For which slice of a vector of
# five is that not enough?
#
# <details><summary>Answer</summary>
#
# For any with a step above 1: `x[0:5:2]` has stride 2. With stride 1 it would read elements 0, 1, 2.
# </details>
#
# ---
#
# Two strides that no fresh tensor has. **Stride 0**: to add a bias to each of 3 rows, each row must see the same numbers; a
# step along an axis with stride 0 stays where it is. **A stride used twice**: a step to the next window, and a step within the
# window, both go to the next cell.

# %%
bias = torch.arange(8)
drawings.buffer({"bias": views.of(bias), "bias.expand(3, 8)": views.of(bias.expand(3, 8)),
                 "bias.unfold(0, 3, 1)": views.of(bias.unfold(0, 3, 1))})
plt.show()

# %% [markdown]
# ### Exercise 2.3 · broadcasted
#
# Stretch a view to a shape. Shapes are aligned at their last axes. New axes come in front; an axis of length 1 may be
# stretched; every other mismatch is an error.

# %% tags=["hole"]
def broadcasted(view, shape):
    """The view stretched to this shape, (shape, strides, offset): new and stretched axes have stride 0.

    ValueError where an axis that is not 1 long would have to change its length, or where shape has
    fewer axes than the view. About eight lines.
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

# %% tags=["check"] points=2
for trial in range(200):
    view, ones = views.random_view(rng, trial // 50), (1,) * int(rng.integers(3))
    shape = tuple(size if size != 1 else int(rng.integers(4)) for size in ones + view[0])
    x, got = views.positions(view), broadcasted(view, shape)
    case = views.case(f"broadcasted({view}, {shape})", got, x.expand(shape))
    agree(views.positions(got), x.expand(shape), case, mistakes={
        "A stretched axis has stride 0.": x.as_strided(shape, (0,) * len(ones) + x.stride())})
for shape in [(4, 3), (3, 2), (3, 1), (0, 3), (3,), ()]:
    with contextlib.suppress(ValueError):  # as it should: then the AssertionError will not be reached
        got = broadcasted(((3, 3), (3, 1), 0), shape)
        raise AssertionError(f"(3, 3) to {shape}: {got}, want ValueError: only a length of 1 stretches")
print("broadcasted agrees with PyTorch on 200 views, and refuses what does not fit")

# %% [markdown]
# ### Exercise 2.4 · sliding_windows
#
# Along one axis, every `step`-th window of `size` neighbours. That axis now counts the windows; a new axis, last, runs within
# the window. (PyTorch's `x.unfold(axis, size, step)`, drawn above.)
#
# From a novel it makes every training example of a language model: 32 characters to read and, shifted by one, 32 to predict,
# in the novel's own 0.7 MB. (A small model learns from it in later labs.) From a photograph it makes the 3 × 3 windows that
# a convolution multiplies: *im2col*. Only a matrix with a window in each row has no strides here: there `reshape`
# copies. Part 3 says why.

# %% tags=["hole"]
def sliding_windows(view, axis, size, step=1):
    """The view of all whole windows along one axis, (shape, strides, offset).

    A new axis, the last, runs within the window. 1 <= size <= shape[axis], step >= 1. About six lines.
    """
    # BEGIN SOLUTION
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    within = strides[axis]
    shape[axis] = (shape[axis] - size) // step + 1
    strides[axis] *= step
    return (*shape, size), (*strides, within), offset
    # END SOLUTION

# %% tags=["check"] points=2
for trial in range(200):
    view = views.random_view(rng, 1 + trial // 70, smallest=1) if trial else ((7,), (2,), 1)
    axis, start, stop, step = views.random_slice(rng, view, smallest=1) if trial else (0, 0, 3, 2)
    x, size = views.positions(view), stop - start
    want, got = x.unfold(axis, size, step), sliding_windows(view, axis, size, step)
    case = views.case(f"sliding_windows({view}, {axis}, {size}, {step})", got, want)
    strides, apart = want.stride(), x.unfold(axis, size, step * size).stride()
    agree(views.positions(got), want, case, mistakes={
        "One too few: 5 elements hold 3 windows of 3.": want.narrow(axis, 0, want.shape[axis] - 1),
        "The windows are too far apart: step says how far, not size.": x.as_strided(want.shape, apart),
        "A window holds neighbours.": x.as_strided(want.shape, (*strides[:-1], strides[axis]))})
print("sliding_windows agrees with PyTorch on 200 views")

# %%
novel = torch.frombuffer(bytearray(samples.novel().encode()), dtype=torch.uint8)  # (684768,)
examples = novel.as_strided(*sliding_windows(views.of(novel), 0, 33))
print(tuple(examples.shape), bytes(examples[1004]), bytes(examples[1005]))
photograph = torch.from_numpy(samples.photograph())  # (256, 256)
windows = photograph.as_strided(*sliding_windows(sliding_windows(views.of(photograph), 0, 3), 1, 3))
edges = windows.reshape(-1, 9) @ torch.tensor([1.0, 0, -1, 2, 0, -2, 1, 0, -1])  # left minus right
drawings.pictures({"photograph": photograph, "its vertical edges": edges.view(254, 254).abs()})
plt.show()

# %% [markdown]
# ## Part 3 · When a copy cannot be avoided
#
# Part 2 in a sentence: **permuting, slicing, broadcasting and sliding a window are arithmetic on a few integers; the storage
# stays where it is.** But a file, the network, a C function that takes a pointer and a length: all want elements in order,
# without gaps. PyTorch calls such a tensor *contiguous*; `x.contiguous()` copies one that is not.
#
# ### Exercise 3.1 · is_contiguous
#
# Do a view's elements, in the order of their indices, lie in neighbouring cells? The offset does not matter. Nor does the
# stride of an axis of length 1: nobody steps along it. A view without elements is contiguous.

# %% tags=["hole"]
def is_contiguous(view):
    """Whether the elements, in the order of their indices, lie in neighbouring cells: True or False.

    About eight lines.
    """
    # BEGIN SOLUTION
    shape, strides, _ = view
    if 0 in shape:
        return True
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size > 1 and stride != step:
            return False
        step *= size
    return True
    # END SOLUTION

# %% tags=["check"] points=2
for trial in range(300):
    view = views.random_view(rng, trial // 60) if trial else ((2, 3), (3, 1), 4)
    (shape, strides, offset), row_major = view, torch.empty(view[0]).stride()
    want = views.positions(view).is_contiguous()
    agree(is_contiguous(view), want, f"is_contiguous({view})", mistakes={
        "Without elements, nothing can be out of place.": want and 0 not in shape,
        "Nobody steps along an axis of length 1: its stride does not count.": strides == row_major,
        "Falling strides are not enough: each must be what the axes after it span.":
            list(strides) == sorted(strides, reverse=True),
        "A view may start anywhere: the offset does not count.": want and offset == 0,
    })
print("is_contiguous agrees with PyTorch on 300 views")

# %% [markdown]
# ### Exercise 3.2 · reshaped
#
# Which other shapes can the same elements have? Look for *runs*: neighbouring axes that one stride can walk. Sizes (2, 3)
# with strides (12, 4) are a run of 6, since 12 = 3 · 4; with strides (20, 4) a gap parts them.
#
# **PyTorch's rule: no copy is needed if every new axis can be cut out of a single run.**
#
# Collect the runs (without axes of length 1). Then cut the new axes, the last first, each from the last run with elements
# left: (4, 6) from a run of 24 with stride 2 gets strides (12, 2). What would span two runs gives `None`.

# %% tags=["hole"]
def reshaped(view, shape):
    """The view in this new shape, (shape, strides, offset); None where that takes a copy.

    shape: tuple of ints, with as many elements as the view. Without elements, any strides will do.
    About 18 lines.
    """
    # BEGIN SOLUTION
    if 0 in shape:
        return tuple(shape), (0,) * len(shape), view[2]
    runs = [(1, 1)]  # (elements, stride) of axes that one stride can walk, the last axes last
    for size, stride in zip(view[0], view[1]):
        elements, outer_stride = runs[-1]
        if outer_stride == size * stride:
            runs[-1] = (elements * size, stride)
        elif size > 1:
            runs.append((size, stride))
    strides, left, step = [], 1, 1  # elements left of the run in hand, stride of what is cut next
    for size in reversed(shape):
        if left == 1 and size > 1:
            left, step = runs.pop()
        if left % size != 0:
            return None
        strides.append(step)
        left, step = left // size, step * size
    return tuple(shape), tuple(reversed(strides)), view[2]
    # END SOLUTION

# %% tags=["check"] points=4
hard = [(((3, 2), (8, 2), 1), (6,)), (((2, 3), (0, 0), 1), (6,))]  # a gap; two stretched axes are a run
for trial in range(300):
    view = views.random_view(rng, trial // 60)
    view, shape = hard.pop() if hard else (view, views.random_shape(rng, math.prod(view[0])))
    want = views.viewed(views.positions(view), shape)
    got, row_major = reshaped(view, shape), (shape, torch.empty(shape).stride(), view[2])
    unlike = want if torch.is_tensor(want) else views.positions(got)  # any view, where none is wanted
    agree(views.positions(got), want, views.case(f"reshaped({view}, {shape})", got, want), mistakes={
        "No copy needed: every new axis lies within one run.": None,
        "Row-major strides ignore the gaps of a slice, or a transpose.": views.positions(row_major),
        "Only a copy has this shape: a new axis spans two runs.": unlike})
print("reshaped agrees with PyTorch on 300 views")

# %% tags=["check", "held-out"]
view, shape = ((2,) * 6, (50, 25, 12, 6, 2, 1), 0), (4, 4, 4)  # three runs of two axes
got, want = reshaped(view, shape), views.viewed(views.positions(view), shape)
agree(views.positions(got), want, views.case(f"reshaped({view}, {shape})", got, want))
x = views.STORAGE[:2 * 3 * 4 * 5 * 2].view(2, 3, 4, 5, 2)
for order in itertools.permutations(range(5)):
    view = views.of(x.permute(order)[:, :, :, 1:])
    shape = views.random_shape(rng, math.prod(view[0]))
    want = views.viewed(views.positions(view), shape)
    got = reshaped(view, shape)
    agree(views.positions(got), want, views.case(f"reshaped({view}, {shape})", got, want))
print("reshaped agrees with PyTorch on 120 views of five axes")

# %%
x = sliced(((4, 6), (6, 1), 0), 1, 0, 4)
drawings.buffer({"x": x, "reshaped(x, (4, 2, 2))": reshaped(x, (4, 2, 2)),
                 "reshaped(x, (2, 2, 4))": reshaped(x, (2, 2, 4))})
plt.show()
print("reshaped(x, (16,)):", reshaped(x, (16,)))

# %% [markdown]
# In `x` a gap follows each row: a new axis stays within a row or steps over whole rows.
#
# <details><summary>Hint to the exercise</summary>
#
# Forward: an axis joins the last run if that run's stride is `size * stride`, else it begins one. Backward: keep how many
# elements of the run in hand are left, and the stride of the next axis cut from it.
# </details>
#
# ### Clinic: merging the heads
#
# The lecture notes call `reshape` "optimized due to strided access". Is it? Attention leaves (batch, heads, tokens, channels);
# the next layer wants (batch, tokens, heads · channels), the heads of a token side by side. Three colleagues wrote this:

# %%
B, H, T, C = 2, 4, 5, 3
heads = torch.arange(B * H * T * C).view(B, H, T, C)
one, three = heads.view(B, T, H * C), heads.transpose(1, 2).reshape(B, T, H * C)
try:
    two = heads.transpose(1, 2).view(B, T, H * C)
except RuntimeError as error:
    print("two:", error)
print("one, three, want:", one[0, 0], three[0, 0], heads[0, :, 0].flatten(), sep="\n")

# %% [markdown] tags=["answer"]
# Which one is wrong and says nothing? Why does `two` raise: which axes would have to share a stride? What does `three` cost?
#
# <!-- BEGIN SOLUTION -->
# `one` is wrong in silence: a contiguous tensor can be viewed in any shape of as many elements, and here the first row
# holds four tokens of head 0. `two` would have to walk heads and channels with a single stride, but their strides are
# (T · C, 1) = (15, 1), and 15 is not 3 · 1: two runs. `three` is right, and copies the whole tensor: each byte is read
# and written once.
# <!-- END SOLUTION -->

# %% [markdown]
# **A reshape is free while every new axis stays within one run; past that, `view` refuses and `reshape` copies without a word.**
#
# ## Part 4 · What a walk costs
#
# A processor never fetches one number. It fetches a *cache line*, 64 neighbouring bytes (16 float32), and keeps it in a *cache*
# with room for some lines. In our model, a full cache drops the *least recently used* line (LRU).
#
# To *walk* a view is to visit its elements in the order of their indices, the last index fastest. To walk a matrix by columns
# is to walk its transpose. Here: 8 × 16 float32, each row one line.

# %%
drawings.walk({"by rows": ((8, 16), (16, 1), 0), "by columns": ((16, 8), (1, 16), 0)})
plt.show()

# %% [markdown]
# ### Exercise 4.1 · cache_line_fetches
#
# By rows, a line serves 16 steps; by columns each step goes to another. With room for 8 lines the walk by columns finds each
# again in the next column: 8 fetches for 128 steps. With room for 7, the line it needs is always the one just dropped: 128
# fetches.
#
# Count the fetches of a walk. The storage begins where a line begins; the cache is empty at first. A step whose line is in the
# cache costs nothing, but makes that line the most recently used. Any other step is a fetch.

# %% tags=["hole"]
def cache_line_fetches(view, itemsize, cache_lines):
    """How many cache lines of 64 bytes a walk of the view fetches, last index fastest: an int.

    itemsize: bytes an element, a divisor of 64. cache_lines: how many lines the cache keeps, 1 or more;
    when it is full, the least recently used goes. About twelve lines.
    """
    # BEGIN SOLUTION
    shape, strides, offset = view
    cache, fetches = {}, 0  # the lines that are kept, as keys: the least recently used first
    for index in itertools.product(*map(range, shape)):
        position = offset + sum(i * stride for i, stride in zip(index, strides))
        line = position * itemsize // 64
        if line in cache:
            del cache[line]  # it goes to the end
        else:
            fetches += 1
            if len(cache) == cache_lines:
                del cache[next(iter(cache))]
        cache[line] = None
    return fetches
    # END SOLUTION

# %% tags=["check"] points=2
view = ((4, 3, 2), (24, 32, 24), 0)  # lines 0 1 2 3 4 5 1 3 3 5 5 7 3 4 5 6 7 8 4 6 6 8 8 10
agree(cache_line_fetches(view, 4, 4), 14, f"cache_line_fetches({view}, 4, 4)", mistakes={
    "A line found in the cache becomes the most recently used; here the first to come goes (FIFO).": 16,
    "The most recently used line went, not the least.": 15, "Nothing ever leaves this cache.": 10,
    "This cache keeps one line too few: it may keep 4.": 17, "Here every step counts as a fetch.": 24,
    "A line has 64 bytes, not 64 elements.": 3, "This cache keeps a single line.": 20,
    "The last index changes fastest, not the first.": 18})
rows, columns = ((256, 256), (256, 1), 0), ((256, 256), (1, 256), 0)
twice = ((2, 2, 8), (0, 16, 1), 0)  # two lines, eight steps on each, and the same again
for view, lines, want in [(twice, 2, 2), (rows, 64, 4096), (columns, 64, 65536), (columns, 512, 4096)]:
    agree(cache_line_fetches(view, 4, lines), want, f"cache_line_fetches({view}, 4, {lines})")
print("cache_line_fetches: 4,096 by rows, 65,536 by columns with 64 lines, 4,096 with 512")

# %% tags=["check"] points=2
# A step fetches, unless fewer than cache_lines other lines came since the last step on its own line.
def fetches_by_definition(lines, cache_lines):
    last, fetches = {}, 0
    for step, line in enumerate(lines):
        fetches += line not in last or len(set(lines[last[line] + 1:step])) >= cache_lines
        last[line] = step
    return fetches
for trial in range(60):
    view, itemsize = views.random_view(rng, trial // 15), 2 ** int(rng.integers(7))
    lines, room = (views.positions(view).flatten() * itemsize // 64).tolist(), int(rng.integers(1, 9))
    want, case = fetches_by_definition(lines, room), f"cache_line_fetches({view}, {itemsize}, {room})"
    agree(cache_line_fetches(view, itemsize, room), want, case)
print("cache_line_fetches agrees with the definition of LRU on 60 views")

# %% [markdown]
# <details><summary>Hint</summary>
#
# A dict keeps its keys in the order in which they came. Take a line out and put it in again, and it is last;
# `next(iter(cache))` is then the line whose last use is longest ago.
# </details>
#
# ---
#
# **Question.** The lecture notes: "Accessing columns of a matrix can be 10x slower!" For which n × n float32 and which cache does
# your count say 1 time, for which 16, and why never more?
#
# <details><summary>Answer</summary>
#
# With room for n lines, each is fetched once and serves 16 columns: 1 time. With less room, each step is a fetch: 16 times, and
# no more, since a line holds 16.
# </details>

# %% [markdown]
# ## Predict, then measure
#
# The 1,797 digits, one byte a pixel, take exactly one cache line each. To average them, someone writes
#
# ```python
# for i in range(8):
#     for j in range(8):
#         for n in range(1797):
#             total[i, j] += images[n, i, j]
# ```
#
# and the cache has room for 512 lines. A walk in the order of the storage would fetch 1,797.
#
# ### Exercise 4.2 · predicted_fetches
#
# How many lines of `images` does this loop fetch? Write a number or a product. Think before you run anything.

# %% tags=["hole"]
# BEGIN SOLUTION
predicted_fetches = 64 * 1797
# END SOLUTION

# %% tags=["check"]
from functools import lru_cache

fetch = lru_cache(maxsize=512)(lambda line: line)  # Python's own LRU cache, which counts its misses
for line in (np.arange(1797 * 64).reshape(1797, 8, 8).transpose(1, 2, 0).ravel() // 64).tolist():
    fetch(line)
agree(predicted_fetches, fetch.cache_info().misses, "predicted_fetches", mistakes={
    "So it would be if all lines had room. But 1,797 are more than 512.": 1797,
    "Did 512 lines survive until the next pixel? By then 1,796 others came.": 64 * 1797 - 63 * 512,
    "One fetch for each pixel? For each pixel the loop visits all the images.": 64})
print("predicted_fetches: functools.lru_cache counts the same")

# %% [markdown]
# Now the stopwatch: one compiled loop walks n × n matrices by rows and by columns, the same instructions with other strides.
# (PyTorch's own sum would not do: it reorders the axes, so that `x.T.sum()` is as fast as `x.sum()`.)
#
# How many times longer will the walk by columns take? A common processor has room for 512 lines (32 KiB) in its first cache and
# for 16,384 (1 MiB) in a larger, slower second one. Your function predicts for either. What is your own guess for n = 4096?

# %% tags=["nbval-ignore-output"]
import numba


@numba.njit
def largest(storage, shape, strides):
    best = storage[0]
    for i in range(shape[0]):
        for j in range(shape[1]):
            best = max(best, storage[i * strides[0] + j * strides[1]])
    return best

# %%
def predicted_slowdown(n, cache_lines):
    rows, columns = ((n, 32), (n, 1), 0), ((32, n), (1, n), 0)  # 32 columns: the others repeat them
    return cache_line_fetches(columns, 4, cache_lines) / cache_line_fetches(rows, 4, cache_lines)

def measured_slowdown(n):
    storage, strides = rng.random(n * n, dtype=np.float32), [(n, 1), (1, n)]
    runs = [timing.measure(largest, storage, (n, n), s, min_time_s=0.05) for s in strides]
    rows, columns = (min(run.times_s) for run in runs)  # the runs that nothing else disturbed
    return columns / rows

# %% tags=["nbval-ignore-output"]
sizes = [n + more for n in (64, 128, 256, 512, 1024, 2048, 4096) for more in (0, 16)]
times, is_power = np.array([measured_slowdown(n) for n in sizes]), np.array([True, False] * 7)
predicted = {f"{room:,} lines": [predicted_slowdown(n, room) for n in sizes] for room in (512, 16384)}
groups = {"n = 64, 128, ..., 4096": is_power, "16 more": ~is_power}
measured = {name: np.where(group, times, np.nan) for name, group in groups.items()}
figures.predicted_and_measured(sizes, predicted, measured, log="xy", title="Powers of two cost more",
                               xlabel="n, of n × n float32", ylabel="by columns / by rows: lines, time")
plt.show()

# %% [markdown]
# For small n, lines and dots agree; then the dots climb from the lower line to the upper, or beyond. What the first cache has
# lost, the second still has, a few nanoseconds away, and the processor fetches several lines at once. By rows it even fetches ahead:
# arithmetic, not memory, sets the pace. For large n each row lies on another page, and translating addresses costs, too. Our
# model has one cache, no overlap, no pages. And why can 16 columns more make the walk several times faster? See the
# harder question.
#
# **A stride costs nothing until you walk along it; then each element may cost a cache line.**

# %% tags=["nbval-ignore-output"]
pixel_by_pixel = permuted(((1797, 8, 8), (64, 8, 1), 0), (1, 2, 0))
ledger.predict("digits pixel by pixel", predicted_fetches, "lines")
ledger.counted("digits pixel by pixel", cache_line_fetches(pixel_by_pixel, 1, 512), "lines")
ledger.predict("by columns / by rows, n = 4096", predicted["512 lines"][sizes.index(4096)], "times")
ledger.measured("by columns / by rows, n = 4096", times[sizes.index(4096)], "times")
ledger.table()

# %% [markdown]
# ## Where it is used
#
# - PyTorch: `TensorImpl` holds sizes, strides and offset; `computeStride` (ATen/TensorUtils.cpp) is `reshaped`;
#   `TensorIterator` reorders and merges axes before a loop, so that `x.T.sum()` and `x.T + 1` walk in the storage's order;
#   `channels_last` is a permutation of strides.
# - NumPy counts strides in bytes and allows negative ones (`x[::-1]`); its `reshape` is `_attempt_nocopy_reshape`.
# - einops' `rearrange` is reshape, transpose, reshape. `torch.nn.functional.unfold` copies im2col out; `Tensor.unfold` is the
#   view (Chellapilla et al. 2006 made im2col known).
# - LRU by distances, as in the check: Mattson et al. 1970.
#
# Unlike PyTorch, ours guards neither bounds nor writes through overlapping elements.

# %% [markdown]
# ## Done
#
# `python -m grading 01` grades this notebook.
#
# **A harder question.** A cache is divided into *sets*: line k may lie only in set k mod S, and a set keeps 8 lines. How many
# lines of a column can 1 MiB with S = 2,048 hold for n = 1024, and for n = 1040?
#
# <details><summary>Answer</summary>
#
# Rows are n/16 lines apart. For 1024 that is 64: a column meets 2,048/64 = 32 sets, room for 256 lines of 1,024, and each step
# is a fetch. For 1040 it is 65, without a common factor with 2,048: all sets, all lines. So people pad matrices.
# </details>
