# %% row_major_strides: strides in bytes
# says: count bytes
# edit: strides, step = [], 1  ->  strides, step = [], 4

# %% row_major_strides: column-major
# says: column-major
# edit: reversed(shape)  ->  shape
# edit: reversed(strides)  ->  strides

# %% row_major_strides: the last axis first
# says: the last axis stands first
# edit: reversed(strides)  ->  strides

# %% row_major_strides: the product includes the axis itself
# says: includes its own size
def row_major_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        step *= size
        strides.append(step)
    return tuple(reversed(strides))

# %% row_major_strides: divides by the sizes, which may be 0
# says: division
def row_major_strides(shape):
    strides, rest = [], math.prod(shape)
    for size in shape:
        rest //= size
        strides.append(rest)
    return tuple(strides)

# %% row_major_strides: a list
# says: a list, not a tuple
def row_major_strides(shape):
    return [math.prod(shape[axis + 1:]) for axis in range(len(shape))]

# %% element_offset: the offset is left out
# says: the offset was left out
def element_offset(index, strides, offset):
    return sum(i * stride for i, stride in zip(index, strides, strict=True))

# %% element_offset: strides taken from the last to the first
# says: in its own place
# edit: zip(index, strides)  ->  zip(index, reversed(strides), strict=True)

# %% element_offset: the offset is counted in strides
# says: add it as it is, once
def element_offset(index, strides, offset):
    return sum((i + offset) * stride for i, stride in zip(index, strides, strict=True))

# %% permuted: the inverse permutation
# says: the inverse
# - return tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order), offset
# + places = [order.index(axis) for axis in range(len(order))]
# + return tuple(shape[axis] for axis in places), tuple(strides[axis] for axis in places), offset

# %% permuted: the strides stay behind
# says: the strides stayed
# edit: tuple(strides[axis] for axis in order)  ->  strides

# %% permuted: the offset is lost
# says: the offset stays
def permuted(view, order):
    shape, strides, _ = view
    return tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order), 0

# %% sliced: offset and shape only, as the lecture notes have it
# says: into the stride
def sliced(view, axis, start, stop, step=1):
    shape, strides, offset = list(view[0]), view[1], view[2]
    shape[axis] = math.ceil((stop - start) / step)
    return tuple(shape), strides, offset + start * strides[axis]

# %% sliced: the offset stays
# says: the offset did not move
# - offset += start * strides[axis]

# %% sliced: the length is rounded down
# says: rounded down
# edit: math.ceil((stop - start) / step)  ->  (stop - start) // step

# %% sliced: the offset counts the step's stride
# says: reading it gave
# - offset += start * strides[axis]
# ...
# - return tuple(shape), tuple(strides), offset
# + return tuple(shape), tuple(strides), offset + start * strides[axis]

# %% broadcasted: a size that is not 1 is stretched
# says: only a length of 1
# -     if old not in (1, new):
# -         raise ValueError(f"an axis of length {old} cannot become {new} long")

# %% broadcasted: leading axes are dropped
# says: only a length of 1
# - if new_axes < 0:
# -     raise ValueError(f"{old_shape} has more axes than {shape}")
# ...
# - for old, stride, new in zip(old_shape, old_strides, shape[new_axes:]):
# + kept = old_shape[-len(shape):], old_strides[-len(shape):]
# + for old, stride, new in zip(*kept, shape[max(new_axes, 0):]):
# edit: f"an axis of length {old} cannot become {new} long"  ->  "lengths differ"
# edit: tuple(shape)  ->  shape

# %% broadcasted: every axis has stride 0
# says: reading it gave
# edit: stride if old == new else 0  ->  0

# %% broadcasted: a stretched axis keeps its stride
# says: has stride 0
# edit: stride if old == new else 0  ->  stride

# %% sliding_windows: the last window is missing
# says: one too few
# edit: (shape[axis] - size) // step + 1  ->  (shape[axis] - size) // step

# %% sliding_windows: the windows do not overlap
# says: too far apart
# edit: strides[axis] *= step  ->  strides[axis] *= step * size

# %% sliding_windows: the step runs within the window, too
# says: neighbours
# - within = strides[axis]
# edit: (*strides, within)  ->  (*strides, strides[axis])

# %% is_contiguous: trips on axes of length 1
# says: along an axis of length 1
# edit: size > 1 and stride != step  ->  stride != step

# %% is_contiguous: only asks whether strides fall
# says: falling strides are not enough
def is_contiguous(view):
    shape, strides, _ = view
    long = [stride for size, stride in zip(shape, strides, strict=True) if size > 1]
    return 0 in shape or long == sorted(long, reverse=True)

# %% is_contiguous: a view that starts later is not
# says: the offset does not count
# edit: shape, strides, _ = view  ->  shape, strides, offset = view
#       step *= size
# - return True
# + return offset == 0

# %% is_contiguous: without elements it is not
# says: without elements
#   if 0 in shape:
# -     return True
# +     return False

# %% reshaped: ignores the gaps that a slice leaves
# says: ignore the gaps
def reshaped(view, shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return shape, tuple(reversed(strides)), view[2]

# %% reshaped: stretched axes are never merged
# says: no copy needed
# edit: outer_stride == size * stride  ->  outer_stride == size * stride and stride

# %% reshaped: stops merging after two runs
# says: want int64 tensor
# edit: outer_stride == size * stride  ->  outer_stride == size * stride and len(runs) < 4

# %% reshaped: gives up unless the view is contiguous
# says: no copy needed
def reshaped(view, shape):
    strides, step = [], 1
    for size, stride in zip(reversed(view[0]), reversed(view[1]), strict=True):
        if size > 1 and stride != step and 0 not in shape:
            return None
        step *= size
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return shape, tuple(reversed(strides)), view[2]

# %% reshaped: an axis of length 1 parts two runs
# says: no copy needed
# edit: tuple(shape), (0,) * len(shape), view[2]  ->  shape, (0,) * len(shape), view[2]
# - for size, stride in zip(view[0], view[1]):
# -     elements, outer_stride = runs[-1]
# -     if outer_stride == size * stride:
# -         runs[-1] = (elements * size, stride)
# -     elif size > 1:
# + for size, stride in zip(view[0], view[1], strict=True):
# +     if runs[-1][1] == size * stride:
# +         runs[-1] = (runs[-1][0] * size, stride)
# +     else:
# edit: tuple(shape)  ->  shape

# %% reshaped: axes are merged whatever their strides
# says: only a copy
def reshaped(view, shape):
    shape_left, strides = math.prod(shape), []
    smallest = min((s for n, s in zip(view[0], view[1], strict=True) if n > 1), default=1)
    for size in shape:
        shape_left //= size or 1
        strides.append(shape_left * smallest)
    return shape, tuple(strides), view[2]

# %% cache_line_fetches: first in, first out
# says: FIFO
# - if line in cache:
# -     del cache[line]  # it goes to the end
# - else:
# + if line not in cache:
# ...
#           del cache[next(iter(cache))]
# - cache[line] = None
# +     cache[line] = None

# %% cache_line_fetches: the most recently used goes
# says: not the least
# edit: del cache[next(iter(cache))]  ->  cache.popitem()

# %% cache_line_fetches: a line goes after so many steps, not after so many other lines
# says: gave 4, want 2
def cache_line_fetches(view, itemsize, cache_lines):
    last, fetches = {}, 0
    for step, line in enumerate((views.positions(view).flatten() * itemsize // 64).tolist()):
        fetches += line not in last or step - last[line] > cache_lines
        last[line] = step
    return fetches

# %% cache_line_fetches: nothing is ever dropped
# says: nothing ever leaves
def cache_line_fetches(view, itemsize, cache_lines):
    shape, strides, offset = view
    return len({(offset + sum(i * s for i, s in zip(index, strides, strict=True))) * itemsize // 64
                for index in itertools.product(*map(range, shape))})

# %% cache_line_fetches: room for one line too few
# says: one line too few
# -     if len(cache) == cache_lines:
# -         del cache[next(iter(cache))]
#   cache[line] = None
# + if len(cache) == cache_lines:
# +     del cache[next(iter(cache))]

# %% cache_line_fetches: lines of 64 elements
# says: not 64 elements
# edit: position * itemsize // 64  ->  position // 64

# %% cache_line_fetches: first index fastest
# says: the last index changes fastest
# edit: itertools.product(*map(range, shape))  ->  itertools.product(*map(range, reversed(shape)))
# edit: zip(index, strides)  ->  zip(reversed(index), strides)

# %% cache_line_fetches: keeps only the latest line
# says: a single line
def cache_line_fetches(view, itemsize, cache_lines):
    lines = views.positions(view).flatten() * itemsize // 64
    return min(len(lines), 1) + int((lines[1:] != lines[:-1]).sum())

# %% cache_line_fetches: every step is a fetch
# says: every step
def cache_line_fetches(view, itemsize, cache_lines):
    return math.prod(view[0])

# %% cache_line_fetches: the offset is left out
# says: cache_line_fetches((
# edit: offset + sum(  ->  sum(

# %% predicted_fetches: as if all had room
# says: if all lines had room
# edit: predicted_fetches = 64 * 1797  ->  predicted_fetches = 1797

# %% predicted_fetches: some lines survive to the next pixel
# says: survive until
# edit: predicted_fetches = 64 * 1797  ->  predicted_fetches = 64 * 1797 - 63 * 512

# %% predicted_fetches: one a pixel
# says: visits all the images
# edit: predicted_fetches = 64 * 1797  ->  predicted_fetches = 64
