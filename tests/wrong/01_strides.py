# %% row_major_strides: strides in bytes
# says: count bytes
def row_major_strides(shape):
    strides, step = [], 4
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))

# %% row_major_strides: column-major
# says: column-major
def row_major_strides(shape):
    strides, step = [], 1
    for size in shape:
        strides.append(step)
        step *= size
    return tuple(strides)

# %% row_major_strides: the last axis first
# says: the last axis stands first
def row_major_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(strides)

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
def element_offset(index, strides, offset):
    return offset + sum(i * stride for i, stride in zip(index, reversed(strides), strict=True))

# %% element_offset: the offset is counted in strides
# says: add it as it is, once
def element_offset(index, strides, offset):
    return sum((i + offset) * stride for i, stride in zip(index, strides, strict=True))

# %% permuted: the inverse permutation
# says: the inverse
def permuted(view, order):
    shape, strides, offset = view
    places = [order.index(axis) for axis in range(len(order))]
    return tuple(shape[axis] for axis in places), tuple(strides[axis] for axis in places), offset

# %% permuted: the strides stay behind
# says: the strides stayed
def permuted(view, order):
    shape, strides, offset = view
    return tuple(shape[axis] for axis in order), strides, offset

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
def sliced(view, axis, start, stop, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    shape[axis] = math.ceil((stop - start) / step)
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset

# %% sliced: the length is rounded down
# says: rounded down
def sliced(view, axis, start, stop, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    shape[axis] = (stop - start) // step
    offset += start * strides[axis]
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset

# %% sliced: the offset counts the step's stride
# says: reading it gave
def sliced(view, axis, start, stop, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    shape[axis] = math.ceil((stop - start) / step)
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset + start * strides[axis]

# %% broadcasted: a size that is not 1 is stretched
# says: only a length of 1
def broadcasted(view, shape):
    old_shape, old_strides, offset = view
    new_axes = len(shape) - len(old_shape)
    if new_axes < 0:
        raise ValueError("too few axes")
    kept = zip(old_shape, old_strides, shape[new_axes:], strict=True)
    return shape, (0,) * new_axes + tuple(stride if old == new else 0 for old, stride, new in kept), offset

# %% broadcasted: leading axes are dropped
# says: only a length of 1
def broadcasted(view, shape):
    old_shape, old_strides, offset = view
    new_axes = len(shape) - len(old_shape)
    strides = [0] * new_axes
    for old, stride, new in zip(old_shape[-len(shape):], old_strides[-len(shape):], shape[max(new_axes, 0):]):
        if old not in (1, new):
            raise ValueError("lengths differ")
        strides.append(stride if old == new else 0)
    return shape, tuple(strides), offset

# %% broadcasted: every axis has stride 0
# says: reading it gave
def broadcasted(view, shape):
    old_shape, _, offset = view
    new_axes = len(shape) - len(old_shape)
    if new_axes < 0 or any(old not in (1, new) for old, new in zip(old_shape, shape[new_axes:], strict=True)):
        raise ValueError("lengths differ")
    return shape, (0,) * len(shape), offset

# %% broadcasted: a stretched axis keeps its stride
# says: has stride 0
def broadcasted(view, shape):
    old_shape, old_strides, offset = view
    new_axes = len(shape) - len(old_shape)
    if new_axes < 0 or any(old not in (1, new) for old, new in zip(old_shape, shape[new_axes:], strict=True)):
        raise ValueError("lengths differ")
    return shape, (0,) * new_axes + old_strides, offset

# %% sliding_windows: the last window is missing
# says: one too few
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    within = strides[axis]
    shape[axis] = (shape[axis] - size) // step
    strides[axis] *= step
    return (*shape, size), (*strides, within), offset

# %% sliding_windows: the windows do not overlap
# says: too far apart
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    within = strides[axis]
    shape[axis] = (shape[axis] - size) // step + 1
    strides[axis] *= step * size
    return (*shape, size), (*strides, within), offset

# %% sliding_windows: the step runs within the window, too
# says: neighbours
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    shape[axis] = (shape[axis] - size) // step + 1
    strides[axis] *= step
    return (*shape, size), (*strides, strides[axis]), offset

# %% is_contiguous: trips on axes of length 1
# says: along an axis of length 1
def is_contiguous(view):
    shape, strides, _ = view
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if stride != step and 0 not in shape:
            return False
        step *= size
    return True

# %% is_contiguous: only asks whether strides fall
# says: falling strides are not enough
def is_contiguous(view):
    shape, strides, _ = view
    long = [stride for size, stride in zip(shape, strides, strict=True) if size > 1]
    return 0 in shape or long == sorted(long, reverse=True)

# %% is_contiguous: a view that starts later is not
# says: the offset does not count
def is_contiguous(view):
    shape, strides, offset = view
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != step and 0 not in shape:
            return False
        step *= size
    return offset == 0

# %% is_contiguous: without elements it is not
# says: without elements
def is_contiguous(view):
    shape, strides, _ = view
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return 0 not in shape

# %% reshaped: ignores the gaps that a slice leaves
# says: ignore the gaps
def reshaped(view, shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return shape, tuple(reversed(strides)), view[2]

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
def reshaped(view, shape):
    if 0 in shape:
        return shape, (0,) * len(shape), view[2]
    runs = [(1, 1)]
    for size, stride in zip(view[0], view[1], strict=True):
        if runs[-1][1] == size * stride:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    strides, left, step = [], 1, 1
    for size in reversed(shape):
        if left == 1 and size > 1:
            left, step = runs.pop()
        if left % size != 0:
            return None
        strides.append(step)
        left, step = left // size, step * size
    return shape, tuple(reversed(strides)), view[2]

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
def cache_line_fetches(view, itemsize, cache_lines):
    shape, strides, offset = view
    cache, fetches = {}, 0
    for index in itertools.product(*map(range, shape)):
        line = (offset + sum(i * s for i, s in zip(index, strides, strict=True))) * itemsize // 64
        if line not in cache:
            fetches += 1
            if len(cache) == cache_lines:
                del cache[next(iter(cache))]
            cache[line] = None
    return fetches

# %% cache_line_fetches: the most recently used goes
# says: not the least
def cache_line_fetches(view, itemsize, cache_lines):
    shape, strides, offset = view
    cache, fetches = {}, 0
    for index in itertools.product(*map(range, shape)):
        line = (offset + sum(i * s for i, s in zip(index, strides, strict=True))) * itemsize // 64
        if line in cache:
            del cache[line]
        else:
            fetches += 1
            if len(cache) == cache_lines:
                cache.popitem()
        cache[line] = None
    return fetches

# %% cache_line_fetches: nothing is ever dropped
# says: nothing ever leaves
def cache_line_fetches(view, itemsize, cache_lines):
    shape, strides, offset = view
    return len({(offset + sum(i * s for i, s in zip(index, strides, strict=True))) * itemsize // 64
                for index in itertools.product(*map(range, shape))})

# %% cache_line_fetches: room for one line too few
# says: one line too few
def cache_line_fetches(view, itemsize, cache_lines):
    shape, strides, offset = view
    cache, fetches = {}, 0
    for index in itertools.product(*map(range, shape)):
        line = (offset + sum(i * s for i, s in zip(index, strides, strict=True))) * itemsize // 64
        if line in cache:
            del cache[line]
        else:
            fetches += 1
        cache[line] = None
        if len(cache) == cache_lines:
            del cache[next(iter(cache))]
    return fetches

# %% cache_line_fetches: lines of 64 elements
# says: not 64 elements
def cache_line_fetches(view, itemsize, cache_lines):
    shape, strides, offset = view
    cache, fetches = {}, 0
    for index in itertools.product(*map(range, shape)):
        line = (offset + sum(i * s for i, s in zip(index, strides, strict=True))) // 64
        if line in cache:
            del cache[line]
        else:
            fetches += 1
            if len(cache) == cache_lines:
                del cache[next(iter(cache))]
        cache[line] = None
    return fetches

# %% cache_line_fetches: first index fastest
# says: the last index changes fastest
def cache_line_fetches(view, itemsize, cache_lines):
    shape, strides, offset = view
    cache, fetches = {}, 0
    for index in itertools.product(*map(range, reversed(shape))):
        line = (offset + sum(i * s for i, s in zip(reversed(index), strides, strict=True))) * itemsize // 64
        if line in cache:
            del cache[line]
        else:
            fetches += 1
            if len(cache) == cache_lines:
                del cache[next(iter(cache))]
        cache[line] = None
    return fetches

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
def cache_line_fetches(view, itemsize, cache_lines):
    shape, strides, _ = view
    cache, fetches = {}, 0
    for index in itertools.product(*map(range, shape)):
        line = sum(i * s for i, s in zip(index, strides, strict=True)) * itemsize // 64
        if line in cache:
            del cache[line]
        else:
            fetches += 1
            if len(cache) == cache_lines:
                del cache[next(iter(cache))]
        cache[line] = None
    return fetches

# %% predicted_fetches: as if all had room
# says: if all lines had room
predicted_fetches = 1797

# %% predicted_fetches: some lines survive to the next pixel
# says: survive until
predicted_fetches = 64 * 1797 - 63 * 512

# %% predicted_fetches: one a pixel
# says: visits all the images
predicted_fetches = 64
