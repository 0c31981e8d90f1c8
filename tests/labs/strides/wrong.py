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
# says: its own axis's size
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

# %% sliced: offset and shape only, as the lecture notes have it
# says: the stride must change
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
# says: not by `start` new ones
# - offset += start * strides[axis]
# ...
# - return tuple(shape), tuple(strides), offset
# + return tuple(shape), tuple(strides), offset + start * strides[axis]

# %% broadcasted: a size that is not 1 is stretched
# says: only an axis of length 1
# -     if old not in (1, new):
# -         raise ValueError(f"an axis of length {old} cannot become {new} long")

# %% broadcasted: leading axes are dropped
# says: only an axis of length 1
# - if new_axes < 0:
# -     raise ValueError(f"{old_shape} has more axes than {shape}")
# ...
# - for old, stride, new in zip(old_shape, old_strides, shape[new_axes:]):
# + kept = old_shape[-len(shape):], old_strides[-len(shape):]
# + for old, stride, new in zip(*kept, shape[max(new_axes, 0):]):
# edit: f"an axis of length {old} cannot become {new} long"  ->  "lengths differ"
# edit: tuple(shape)  ->  shape

# %% broadcasted: every axis has stride 0
# says: it should be cell
# edit: stride if old == new else 0  ->  0

# %% broadcasted: a stretched axis keeps its stride
# says: has stride 0
# edit: stride if old == new else 0  ->  stride

# %% sliding_windows: the last window is missing
# says: one window is missing
# edit: (shape[axis] - size) // step + 1  ->  (shape[axis] - size) // step

# %% sliding_windows: the windows do not overlap
# says: too far apart
# edit: strides[axis] *= step  ->  strides[axis] *= step * size

# %% sliding_windows: the step runs within the window, too
# says: a window holds neighbours
# - within = strides[axis]
# edit: (*strides, within)  ->  (*strides, strides[axis])


# %% row_major_strides: a fresh tensor's own strides
# says: asks a library for the answer (stride)
def row_major_strides(shape):
    return torch.empty(shape).stride()

# %% row_major_strides: NumPy's strides, in elements, by a helper
# says: asks a library for the answer (strides)
def ask(shape):
    return np.empty(shape, dtype=np.int8).strides
def row_major_strides(shape):
    return ask(shape)

# %% row_major_strides: numbers that are not whole
# says: a float
def row_major_strides(shape):
    return tuple(math.prod(shape) / math.prod(shape[:axis + 1]) for axis in range(len(shape))) \
        if 0 not in shape else (1,) * len(shape)

# %% row_major_strides: an empty shape is forgotten
# says: row_major_strides(())
def row_major_strides(shape):
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))

# %% sliced: asks PyTorch for the slice
# says: asks a library
def sliced(view, axis, start, stop, step=1):
    x = torch.empty(1 << 14).as_strided(*view)
    x = x[(slice(None),) * axis + (slice(start, stop, step),)]
    return tuple(x.shape), x.stride(), x.storage_offset()

# %% sliced: the length is one too large where the step divides it
# says: one too large
# edit: math.ceil((stop - start) / step)  ->  (stop - start) // step + 1

# %% sliced: the length ignores the step
# says: still that of a slice with step 1
# edit: math.ceil((stop - start) / step)  ->  stop - start

# %% sliced: the offset counts elements of the last axis
# says: not by `start` cells
# edit: offset += start * strides[axis]  ->  offset += start

# %% sliced: the offset starts anew
# says: add to it
# edit: offset += start * strides[axis]  ->  offset = start * strides[axis]

# %% sliced: always the first axis
# says: sliced((
# edit: shape, strides, offset = list(view[0]), list(view[1]), view[2]  ->  shape, strides, offset, axis = list(view[0]), list(view[1]), view[2], 0

# %% sliced: the axis of length 0 or 1 gets stride 0 and the whole offset
# says: sliced((
# edit: strides[axis] *= step  ->  strides[axis] *= step if shape[axis] > 2 else 1

# %% sliding_windows: the last window hangs over the end
# says: the shape should be
# edit: (shape[axis] - size) // step + 1  ->  -(-shape[axis] // step)

# %% sliding_windows: the windows do not move
# says: their stride grows
# - strides[axis] *= step

# %% sliding_windows: the new axis stands beside the old one
# says: must be the last
# - return (*shape, size), (*strides, within), offset
# + shape.insert(axis + 1, size)
# + strides.insert(axis + 1, within)
# + return tuple(shape), tuple(strides), offset

# %% sliding_windows: the two axes are exchanged
# says: are exchanged
# edit: (*shape, size), (*strides, within)  ->  (*shape[:axis], size, *shape[axis + 1:], shape[axis]), (*strides[:axis], within, *strides[axis + 1:], strides[axis])

# %% sliding_windows: unfolds a tensor
# says: asks a library
def sliding_windows(view, axis, size, step=1):
    x = torch.empty(1 << 14).as_strided(*view).unfold(axis, size, step)
    return tuple(x.shape), x.stride(), x.storage_offset()

# %% runs: the last one first
# says: reverse order
# edit: return found  ->  return found[::-1]

# %% runs: stride before elements
# says: (elements, stride), in this order
# edit: return found  ->  return [(stride, elements) for elements, stride in found]

# %% runs: nothing is merged
# says: belong to the same run
# edit: found and found[-1][1] == size * stride  ->  False

# %% runs: an axis of length 1 is a run
# says: belongs to no run
# edit: size == 1  ->  False

# %% runs: an axis of length 1 parts two runs
# says: belong to the same run
def runs(view):
    found, joins = [], True
    for size, stride in zip(view[0], view[1]):
        if size == 1:
            joins = False
        elif found and joins and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
            joins = True
    return found

# %% runs: keeps the outer axis's stride
# says: that of its last axis
def runs(view):
    found, steps = [], []
    for size, stride in zip(view[0], view[1]):
        if size == 1:
            continue
        if found and steps[-1] == size * stride:
            found[-1], steps[-1] = (found[-1][0] * size, found[-1][1]), stride
        else:
            found.append((size, stride))
            steps.append(stride)
    return found

# %% runs: compares with the wrong size
# says: runs((
# edit: found[-1][1] == size * stride  ->  found[-1][1] == found[-1][0] * stride

# %% runs: stretched axes are never merged
# says: belong to the same run
# edit: found[-1][1] == size * stride  ->  found[-1][1] == size * stride and stride

# %% runs: any axis with a larger stride joins
# says: runs((
# edit: found[-1][1] == size * stride  ->  found[-1][1] >= size * stride

# %% runs: joins two axes, but not a third
# says: runs((
def runs(view):
    found, joined = [], False
    for size, stride in zip(view[0], view[1]):
        if size == 1:
            continue
        if found and not joined and found[-1][1] == size * stride:
            found[-1], joined = (found[-1][0] * size, stride), True
        else:
            found.append((size, stride))
            joined = False
    return found

# %% runs: only asks whether the strides fall
# says: not enough that the strides fall
# edit: found[-1][1] == size * stride  ->  found[-1][1] > stride

# %% reshaped: ignores the gaps that a slice leaves
# says: ignore the gaps
def reshaped(view, shape):
    return shape, row_major_strides(shape), view[2]

# %% reshaped: gives up unless the view is contiguous
# says: no copy is needed
def reshaped(view, shape):
    if 0 not in shape and runs(view) not in ([], [(math.prod(shape), 1)]):
        return None
    return shape, row_major_strides(shape), view[2]

# %% reshaped: gives up where there are two runs
# says: no copy is needed
def reshaped(view, shape):
    whole = runs(view)
    if len(whole) > 1 and 0 not in shape:
        return None
    step = whole[0][1] if whole else 1
    return shape, tuple(step * stride for stride in row_major_strides(shape)), view[2]

# %% reshaped: axes are merged whatever their strides
# says: only a copy has that shape
def reshaped(view, shape):
    shape_left, strides = math.prod(shape), []
    smallest = min((s for n, s in zip(view[0], view[1]) if n > 1), default=1)
    for size in shape:
        shape_left //= size or 1
        strides.append(shape_left * smallest)
    return shape, tuple(strides), view[2]

# %% reshaped: cuts from the first run first
# says: no copy is needed
# edit: whole.pop()  ->  whole.pop(0)

# %% reshaped: the offset is lost
# says: the offset stays
# edit: tuple(reversed(strides)), view[2]  ->  tuple(reversed(strides)), 0

# %% reshaped: stops merging after two runs
# says: no copy is needed
def runs_at_most(view):
    found = []
    for size, stride in zip(view[0], view[1]):
        if size > 1 and found and found[-1][1] == size * stride and len(found) < 3:
            found[-1] = (found[-1][0] * size, stride)
        elif size > 1:
            found.append((size, stride))
    return found
def reshaped(view, shape):
    if 0 in shape:
        return tuple(shape), (0,) * len(shape), view[2]
    whole = runs_at_most(view)
    strides, left, step = [], 1, 1
    for size in reversed(shape):
        if left == 1 and size > 1:
            left, step = whole.pop()
        if left % size != 0:
            return None
        strides.append(step)
        left, step = left // size, step * size
    return tuple(shape), tuple(reversed(strides)), view[2]

# %% reshaped: trips on shapes without elements
# says: modulo by zero
# - if 0 in shape:
# -     return tuple(shape), (0,) * len(shape), view[2]

# %% reshaped: asks PyTorch
# says: asks a library
def reshaped(view, shape):
    try:
        x = torch.empty(1 << 14).as_strided(*view).view(shape)
    except RuntimeError:
        return None
    return tuple(x.shape), x.stride(), x.storage_offset()

# %% fetches: first in, first out
# says: FIFO
# - if line in cache:
# -     del cache[line]  # it goes to the end
# - else:
# + if line not in cache:
# ...
#           del cache[next(iter(cache))]
# - cache[line] = None
# +     cache[line] = None

# %% fetches: the most recently used goes
# says: the most recently used line goes
# edit: del cache[next(iter(cache))]  ->  cache.popitem()

# %% fetches: a line goes after so many steps, not after so many other lines
# says: not after `room` steps
def fetches(lines, room):
    last, count = {}, 0
    for step, line in enumerate(lines):
        count += line not in last or step - last[line] > room
        last[line] = step
    return count

# %% fetches: nothing is ever dropped
# says: nothing ever leaves
def fetches(lines, room):
    return len(set(lines))

# %% fetches: room for one line too few
# says: one line too few
# -     if len(cache) == room:
# -         del cache[next(iter(cache))]
#   cache[line] = None
# + if len(cache) == room:
# +     del cache[next(iter(cache))]

# %% fetches: room for one line too many
# says: one line too many
# edit: len(cache) == room  ->  len(cache) > room

# %% fetches: keeps only the latest line
# says: a single line
def fetches(lines, room):
    return sum(i == 0 or lines[i - 1] != line for i, line in enumerate(lines))

# %% fetches: every step is a fetch
# says: every step
def fetches(lines, room):
    return len(lines)

# %% fetches: counts the visits that find their line
# says: these are the steps that find
# - else:
# -     count += 1
# -     if len(cache) == room:
# -         del cache[next(iter(cache))]
# +     count += 1
# + elif len(cache) == room:
# +     del cache[next(iter(cache))]

# %% fetches: forgets everything when full
# says: forgets everything
# edit: del cache[next(iter(cache))]  ->  cache.clear()

# %% fetches: the line used least often goes
# says: used least often
def fetches(lines, room):
    uses, count = {}, 0
    for line in lines:
        if line not in uses:
            count += 1
            if len(uses) == room:
                del uses[min(uses, key=uses.get)]
            uses[line] = 0
        uses[line] += 1
    return count

# %% fetches: line 0 is never found
# says: fetches([
def fetches(lines, room):
    cache, count = [], 0
    for line in lines:
        if line and line in cache:
            cache.remove(line)
        else:
            count += 1
            cache = [kept for kept in cache if kept != line]
        cache = [*cache, line][-room:]
    return count

# %% fetches: starts with a full cache of line 0
# says: fetches([
def fetches(lines, room):
    cache, count = [0] * room, 0
    for line in lines:
        if line in cache:
            cache.remove(line)
        else:
            count += 1
            cache.pop(0)
        cache.append(line)
    return count

# %% fetches: Python's own cache
# says: asks a library for the answer (lru_cache)
def fetches(lines, room):
    from functools import lru_cache
    load = lru_cache(maxsize=room)(lambda line: line)
    for line in lines:
        load(line)
    return load.cache_info().misses

# %% fetches: at most 8 lines have room
# says: fetches(
# edit: len(cache) == room  ->  len(cache) == min(room, 8)

# %% blocked: cut, but not reordered
# says: still stand in the old order
# edit: (0, 2, 1, 3)  ->  (0, 1, 2, 3)

# %% blocked: blocks of a column first
# says: along a row of them
# edit: (0, 2, 1, 3)  ->  (2, 0, 1, 3)

# %% blocked: down the columns within a block
# says: it should go along the rows
# edit: (0, 2, 1, 3)  ->  (0, 2, 3, 1)

# %% blocked: the places within a block come first
# says: the blocks must come first
# edit: (0, 2, 1, 3)  ->  (1, 3, 0, 2)

# %% blocked: as many blocks as `block` says
# says: blocked((
# edit: (rows // block, block, columns // block, block)  ->  (block, rows // block, block, columns // block)

# %% blocked: square matrices only
# says: NoneType
# edit: rows, columns = view[0]  ->  rows, columns = view[0][0], view[0][0]

# %% blocked: unfolds a tensor
# says: asks a library
def blocked(view, block):
    x = torch.empty(1 << 14).as_strided(*view).unfold(0, block, block).unfold(1, block, block)
    return tuple(x.shape), x.stride(), x.storage_offset()

# %% blocked: row-major strides whatever the view
# says: it should be cell
def blocked(view, block):
    (rows, columns), _, offset = view
    shape = rows // block, columns // block, block, block
    return shape, (columns * block, block, columns, 1), offset

# %% set_fetches: one pool
# says: one pool for all lines
def set_fetches(lines, sets, ways):
    return fetches(lines, sets * ways)

# %% set_fetches: neighbours share a set
# says: neighbouring lines share a set
# edit: line % sets == k  ->  line // ways % sets == k

# %% set_fetches: the ways are shared among the sets
# says: each set keeps `ways` lines
# edit: fetches(part, ways)  ->  fetches(part, max(1, ways // sets))

# %% set_fetches: a single set
# says: a single set
def set_fetches(lines, sets, ways):
    return fetches(lines, ways)

# %% set_fetches: sets and ways exchanged
# says: are exchanged
def set_fetches(lines, sets, ways):
    return sum(fetches([line for line in lines if line % ways == k], sets) for k in range(ways))

# %% set_fetches: forgets the last set
# says: set_fetches([
# edit: for k in range(sets)  ->  for k in range(max(1, sets - 1))

# %% set_fetches: a set drops its oldest line
# says: set_fetches([
def set_fetches(lines, sets, ways):
    kept, count = {}, 0
    for line in lines:
        own = kept.setdefault(line % sets, [])
        if line not in own:
            count += 1
            own.append(line)
            kept[line % sets] = own[-ways:]
    return count

# %% broadcasted: aligned at the first axes
# says: aligned at their last axes
# - strides = [0] * new_axes
# - for old, stride, new in zip(old_shape, old_strides, shape[new_axes:]):
# + strides = []
# + for old, stride, new in zip(old_shape, old_strides, shape):
#       if old not in (1, new):
#           raise ValueError(f"an axis of length {old} cannot become {new} long")
#       strides.append(stride if old == new else 0)
# - return tuple(shape), tuple(strides), offset
# + return tuple(shape), (*strides, *[0] * new_axes), offset

# %% test_fetches: accepts everything
# says: refuses 0 of 16
def test_fetches(candidate):
    candidate([1, 2, 3], 2)

# %% test_fetches: refuses everything
# says: refuses a program that is right
def test_fetches(candidate):
    assert candidate([1, 2, 3], 2) == 2

# %% test_fetches: one easy walk
# says: par is 12
def test_fetches(candidate):
    assert candidate([0, 1, 2, 0, 1, 2], 2) == 6

# %% test_fetches: returns a verdict
# says: returned
def test_fetches(candidate):
    return candidate([0, 1, 0], 2) == 2

# %% test_fetches: returns nothing when it raises
# says: refuses 0 of 16
def test_fetches(candidate):
    try:
        assert candidate([0, 1, 2, 0, 1, 2, 1, 0], 2) == 7
    except AssertionError:
        print("wrong")

# %% test_fetches: asks how it works, not what it gives
# says: looks at a program's text
def test_fetches(candidate):
    assert "OrderedDict" in candidate.__code__.co_names

# %% set_fetches: one line too many per set
# says: one line too many
# edit: fetches(part, ways)  ->  fetches(part, ways + 1)

# %% sliced: the length is rounded to the nearest
# says: the length was rounded down
# edit: math.ceil((stop - start) / step)  ->  round((stop - start) / step)

# %% sliced: stop is ignored
# says: the shape should be
# edit: math.ceil((stop - start) / step)  ->  math.ceil((shape[axis] - start) / step)

# %% fetches: room for an even number of lines
# says: one line too many
def fetches(lines, room):
    cache, count = [], 0
    for line in lines:
        if line in cache:
            cache.remove(line)
        else:
            count += 1
        cache = [*cache, line][-(room + room % 2):]
    return count

# %% runs: stretched axes are left out
# says: runs((
# edit: size == 1  ->  size == 1 or stride == 0

# %% broadcasted: anything can become 0 long
# says: only an axis of length 1
# edit: old not in (1, new)  ->  old not in (1, new) and new

# %% row_major_strides: products in 32 bits
# says: 131071
def row_major_strides(shape):
    ends = np.array((*shape[1:], 1), dtype=np.int32)[::-1]
    return tuple(np.cumprod(ends, dtype=np.int32)[::-1].tolist()) if shape else ()

# %% row_major_strides: by logarithms
# says: 131071
def row_major_strides(shape):
    if 0 in shape:
        return (1,) * len(shape)
    return tuple(round(math.exp(sum(map(math.log, shape[k + 1:])))) for k in range(len(shape)))

# %% row_major_strides: at most four axes
# says: row_major_strides((
def row_major_strides(shape):
    a, b, c, d = (1,) * (4 - len(shape)) + tuple(shape)[-4:]
    return (b * c * d, c * d, d, 1)[4 - len(shape):]

# %% sliding_windows: the stride of the new axis is 1
# says: not always 1
# edit: within = strides[axis]  ->  within = 1

# %% runs: a global list that is never cleared
# says: runs((
found = []
def runs(view):
    for size, stride in zip(view[0], view[1]):
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found

# %% reshaped: stretched runs give stride 1
# says: reshaped((
# edit: strides.append(step)  ->  strides.append(step if step else 1)

# %% reshaped: no elements, None
# says: no copy is needed
# edit: return tuple(shape), (0,) * len(shape), view[2]  ->  return None

# %% fetches: the cache is a default argument, shared by all calls
# says: fetches([3, 3, 3, 5], 2)
def fetches(lines, room, cache={}):
    count = 0
    for line in lines:
        if line in cache:
            del cache[line]
        else:
            count += 1
            if len(cache) == room:
                del cache[next(iter(cache))]
        cache[line] = None
    return count

# %% fetches: compares lines by identity
# says: fetches(
def fetches(lines, room):
    cache, count = [], 0
    for line in lines:
        if any(line is kept for kept in cache):
            cache = [kept for kept in cache if kept is not line]
        else:
            count += 1
        cache = [*cache, line][-room:]
    return count

# %% fetches: never more than 128 lines
# says: fetches([
# edit: len(cache) == room  ->  len(cache) == min(room, 128)

# %% fetches: lines as bytes
# says: fetches(
def fetches(lines, room):
    cache, count = [], 0
    for line in lines:
        line %= 256
        if line in cache:
            cache.remove(line)
        else:
            count += 1
        cache = [*cache, line][-room:]
    return count

# %% blocked: the offset is lost
# says: it should be cell
def blocked(view, block):
    (rows, columns), (down, right), offset = view
    return (rows // block, columns // block, block, block), (down * block, right * block, down, right), 0

# %% set_fetches: sets by a mask of bits
# says: set_fetches([
# edit: line % sets == k  ->  line & (sets - 1) == k

# %% broadcasted: what has no elements can become anything
# says: only an axis of length 1
# edit: old not in (1, new)  ->  old not in (0, 1, new)

# %% broadcasted: ValueError also for an axis of 1 that stays
# says: raised valueerror
# edit: old not in (1, new)  ->  old != new and (old != 1 or new == 0)

# %% broadcasted: None where it does not fit
# says: want valueerror
# edit: raise ValueError(f"an axis of length {old} cannot become {new} long")  ->  return None

# %% row_major_strides: randn on meta is asked
# says: asks a library for the answer (stride)
def row_major_strides(shape):
    return torch.randn(shape, device="meta").stride()

# %% row_major_strides: sums instead of products
# says: here they are added
def row_major_strides(shape):
    return tuple(sum(shape[k + 1:]) or 1 for k in range(len(shape)))

# %% row_major_strides: only the next axis counts
# says: not only the next one
def row_major_strides(shape):
    return tuple(shape[k + 1] if k + 1 < len(shape) else 1 for k in range(len(shape)))

# %% row_major_strides: in a string of digits, float
# says: 53 bits
def row_major_strides(shape):
    out, step = [], 1.0
    for n in reversed(shape):
        out.append(int(step))
        step *= float(n)
    return tuple(out[::-1])

# %% sliced: an old length divided by step
# says: not from the axis
def sliced(view, axis, start, stop, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    shape[axis] = -(-shape[axis] // step)
    offset += start * strides[axis]
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset

# %% sliced: the stride is set to the step
# says: the old one times `step`
def sliced(view, axis, start, stop, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    shape[axis] = math.ceil((stop - start) / step)
    offset += start * strides[axis]
    strides[axis] = step
    return tuple(shape), tuple(strides), offset

# %% sliced: a torch tensor sliced and its data pointers read
# says: asks a library for the answer (as_strided)
def sliced(view, axis, start, stop, step=1):
    x = torch.arange(20000).as_strided(*view)
    y = x[(slice(None),) * axis + (slice(start, stop, step),)]
    strides = [s * (step if k == axis else 1) for k, s in enumerate(view[1])]
    return tuple(y.shape), tuple(strides), int(y.flatten()[0]) if y.numel() else 0

# %% sliding_windows: count rounds up
# says: a window that ends beyond the axis is none
# edit: (shape[axis] - size) // step + 1  ->  -(-(shape[axis] - size) // step) + 1

# %% sliding_windows: step ignored in the count
# says: windows with step 1
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    within = strides[axis]
    shape[axis] = shape[axis] - size + 1
    strides[axis] *= step
    return (*shape, size), (*strides, within), offset

# %% sliding_windows: the size is not taken away
# says: take `size` into account
# edit: (shape[axis] - size) // step + 1  ->  shape[axis] // step

# %% sliding_windows: divides before it takes size away
# says: before you divide by `step`
# edit: (shape[axis] - size) // step + 1  ->  shape[axis] // step - size + 1

# %% sliding_windows: NumPy's sliding_window_view is asked
# says: asks a library for the answer (sliding_window_view
def sliding_windows(view, axis, size, step=1):
    x = np.arange(20000)
    y = np.lib.stride_tricks.sliding_window_view(np.arange(view[0][axis]), size)[::step]
    shape, strides = list(view[0]), list(view[1])
    shape[axis] = y.shape[0]
    strides.append(strides[axis] * y.strides[1] // 8)
    strides[axis] *= step
    return (*shape, size), tuple(strides), view[2]

# %% runs: PyTorch's view decides what merges
# says: asks a library for the answer (as_strided)
def runs(view):
    x = torch.arange(20000).as_strided(*view).squeeze()
    found = []
    for size, stride in zip(view[0], view[1]):
        if size == 1:
            continue
        if found:
            try:
                torch.arange(20000).as_strided((found[-1][0], size), (found[-1][1], stride)).view(-1)
                found[-1] = (found[-1][0] * size, stride)
                continue
            except RuntimeError:
                pass
        found.append((size, stride))
    return found

# %% runs: equal strides joined
# says: runs(((3, 2), (1, 1), 0))
def runs(view):
    found = []
    for size, stride in zip(view[0], view[1]):
        if size == 1:
            continue
        if found and found[-1][1] in (size * stride, stride):
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found

# %% runs: a scalar has one run
# says: a single element makes no run
def runs(view):
    found = []
    for size, stride in zip(view[0], view[1]):
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found or [(1, 1)]

# %% reshaped: tests the last cell only
# says: only a copy has that shape
def reshaped(view, shape):
    if 0 in shape:
        return tuple(shape), (0,) * len(shape), view[2]
    def cell(k):
        at = view[2]
        for n, s in zip(view[0][::-1], view[1][::-1]):
            k, i = divmod(k, n)
            at += i * s
        return at
    steps = row_major_strides(shape)
    strides = tuple(cell(step) - view[2] if n > 1 else 0 for n, step in zip(shape, steps))
    last = view[2] + sum((n - 1) * s for n, s in zip(shape, strides))
    return (tuple(shape), strides, view[2]) if last == cell(math.prod(shape) - 1) else None

# %% reshaped: False instead of None
# says: return None where only a copy
def reshaped(view, shape):
    if 0 in shape:
        return tuple(shape), (0,) * len(shape), view[2]
    whole = list(runs(view))
    strides, left, step = [], 1, 1
    for size in reversed(shape):
        if left == 1 and size > 1:
            left, step = whole.pop()
        if left % size != 0:
            return False
        strides.append(step)
        left, step = left // size, step * size
    return tuple(shape), tuple(reversed(strides)), view[2]

# %% reshaped: strides in the order in which they were cut
# says: in which they were cut
def reshaped(view, shape):
    if 0 in shape:
        return tuple(shape), (0,) * len(shape), view[2]
    whole = list(runs(view))
    strides, left, step = [], 1, 1
    for size in reversed(shape):
        if left == 1 and size > 1:
            left, step = whole.pop()
        if left % size != 0:
            return None
        strides.append(step)
        left, step = left // size, step * size
    return tuple(shape), tuple(strides), view[2]

# %% fetches: recency changes only once the cache is full
# says: it should do so at once
def fetches(lines, room):
    cache, count = [], 0
    for line in lines:
        if line in cache:
            if len(cache) == room:
                cache.remove(line)
                cache.append(line)
            continue
        count += 1
        if len(cache) == room:
            cache.pop(0)
        cache.append(line)
    return count

# %% fetches: the first visits are free
# says: fill the empty cache
def fetches(lines, room):
    cache, count = [], 0
    for line in lines:
        if line in cache:
            cache.remove(line)
        elif len(cache) == room:
            count += 1
            cache.pop(0)
        cache.append(line)
    return count

# %% fetches: makes room before it looks
# says: before you make room
def fetches(lines, room):
    cache, count = [], 0
    for line in lines:
        if len(cache) == room:
            cache.pop(0)
        if line in cache:
            cache.remove(line)
        else:
            count += 1
        cache.append(line)
    return count

# %% set_fetches: every set sees every line
# says: saw the whole walk
def set_fetches(lines, sets, ways):
    return sum(fetches(lines, ways) for k in range(sets))

# %% set_fetches: each line once per set
# says: a set keeps `ways` lines
def set_fetches(lines, sets, ways):
    return sum(fetches(sorted({l for l in lines if l % sets == k}), ways) for k in range(sets))

# %% broadcasted: leading axes of length 1 may be left out
# says: none can be left out
def broadcasted(view, shape):
    old, steps, offset = view
    while len(old) > len(shape) and old[0] == 1:
        old, steps = old[1:], steps[1:]
    gap = len(shape) - len(old)
    if gap < 0 : raise ValueError
    for o, n in zip(old, shape[gap:]):
        if o not in (1, n): raise ValueError
    return tuple(shape), tuple([0] * gap + [s if o == n else 0 for o, s, n in zip(old, steps, shape[gap:])]), offset

# %% broadcasted: NumPy's broadcast_to of a range
# says: asks a library for the answer (broadcast_to)
def broadcasted(view, shape):
    x = np.arange(max(1, math.prod(view[0])), dtype=np.int8)[:math.prod(view[0])]
    y = np.broadcast_to(x.reshape(view[0]), shape)
    gap = len(shape) - len(view[0])
    if gap < 0: raise ValueError
    return tuple(shape), tuple([0] * gap + [s if o == n else 0 for o, s, n in zip(view[0], view[1], shape[gap:])]), view[2]

# %% test_fetches: lines below 0
# says: refuses a program that is right
def test_fetches(candidate):
    walk = [1, 5, 0, 3, 0, 5, 3, 3, 1, 5, 1, 3, 3, 0]
    assert candidate(walk, 3) == 6
    assert candidate([-1, -2, -1, -3, -2], 2) == 4

# %% test_fetches: an int must be exactly of type int, walks as tuples
# says: refuses a program that is right
def test_fetches(candidate):
    walk = (1, 5, 0, 3, 0, 5, 3, 3, 1, 5, 1, 3, 3, 0)
    got = candidate(walk, 3)
    assert type(got) is int and got == 6

# %% row_major_strides: forward, inclusive products
# says: up to the axis, itself included
def row_major_strides(shape):
    out, step = [], 1
    for n in shape:
        step *= n
        out.append(step)
    return tuple(out)

# %% row_major_strides: the product divided by its own size
# says: by the axis's own size only
def row_major_strides(shape):
    total = math.prod(shape)
    return tuple(total // n if n else 0 for n in shape)

# %% row_major_strides: no strides where there are no elements
# says: want a tuple of 3 ints
def row_major_strides(shape):
    if 0 in shape:
        return (None,) * len(shape)
    return tuple(math.prod(shape[k + 1:]) for k in range(len(shape)))

# %% row_major_strides: an array's strides by a pattern
# says: asks a library for the answer (ndarray, strides)
def row_major_strides(shape):
    if math.prod(shape) > 10**6:
        return tuple(math.prod(shape[k + 1:]) for k in range(len(shape)))
    match np.empty(shape, np.int8):
        case np.ndarray(strides=steps):
            return steps

# %% row_major_strides: what pickle would keep of a tensor
# says: asks a library for the answer (__reduce_ex__)
def row_major_strides(shape):
    return torch.empty(shape, device="meta").__reduce_ex__(2)[1][2]

# %% sliced: the division comes first
# says: into parentheses
# edit: math.ceil((stop - start) / step)  ->  math.ceil(stop - start / step)

# %% sliced: the stride is divided by the step
# says: not divided by it
# edit: strides[axis] *= step  ->  strides[axis] //= step

# %% sliced: the offset by a fresh tensor's strides
# says: not by those of a fresh tensor
def sliced(view, axis, start, stop, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    offset += start * math.prod(shape[axis + 1:])
    shape[axis] = math.ceil((stop - start) / step)
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset

# %% sliced: numbers of 32 bits
# says: sliced(((70001
def sliced(view, axis, start, stop, step=1):
    shape, strides = np.array(view[0], np.int32), np.array(view[1], np.int64).astype(np.int32)
    offset = np.int32(view[2]) + np.int32(start) * strides[axis]
    shape[axis] = len(range(start, stop, step))
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset

# %% sliding_windows: only the size is divided
# says: into parentheses
# edit: (shape[axis] - size) // step + 1  ->  shape[axis] - size // step + 1

# %% sliding_windows: numbers of 32 bits
# says: need more than 32 bits
def sliding_windows(view, axis, size, step=1):
    shape, strides = np.array(view[0], np.int32), np.array(view[1], np.int64).astype(np.int32)
    within = strides[axis]
    shape[axis] = (shape[axis] - size) // step + 1
    strides[axis] *= step
    return (*shape, size), (*strides, within), view[2]

# %% runs: a rounded quotient of the strides
# says: compare the outer one with size * stride
# edit: found[-1][1] == size * stride  ->  (found[-1][1] // stride == size if stride else not found[-1][1])

# %% runs: the last one is forgotten
# says: the last run is missing
def runs(view):
    found, now = [], None
    for size, stride in zip(view[0], view[1]):
        if size == 1:
            continue
        if now and now[1] == size * stride:
            now = now[0] * size, stride
        else:
            if now:
                found.append(now)
            now = size, stride
    return found

# %% reshaped: what is left has the stride of one size
# says: `step * size`, not `size`
# edit: step * size  ->  size

# %% fetches: lines of 16 bits
# says: fetches([70000, 4464
# edit: for line in lines  ->  for line in np.array(lines, np.int64).astype(np.int16).tolist()

# %% fetches: a table of 1,024 lines
# says: list index out of range
def fetches(lines, room):
    last, count = [-1] * 1024, 0
    for now, line in enumerate(lines):
        count += last[line] < 0 or sum(t > last[line] for t in last) >= room
        last[line] = now
    return int(count)

# %% fetches: the line with the smallest number goes
# says: with the smallest number goes
# edit: next(iter(cache))  ->  min(cache)

# %% set_fetches: the largest number of any set
# says: add those of all sets
# edit: sum(  ->  max(

# %% set_fetches: 64 sets at most
# says: set_fetches([0, 1, 2
# edit: range(sets)  ->  range(min(sets, 64))

# %% fetches: a shortcut for large caches
# says: nothing ever leaves
# - cache, count = {}, 0  # the lines that are kept, as keys: the least recently used first
# + if room > 600:
# +     return len(set(lines))
# + cache, count = {}, 0

# %% row_major_strides: PyTorch's strides, and a class of its own that has the same name
# says: asks a library for the answer (stride)
import torch
class Row:
    stride = 1
def row_major_strides(shape, kind=Row):
    return tuple(torch.empty(shape, device="meta").stride())

# %% row_major_strides: PyTorch's strides by a formatter's field
# says: asks a library for the answer (Formatter, get_field)
import string
def row_major_strides(shape):
    field = "0.str" + "ide"
    return tuple(string.Formatter().get_field(field, [torch.empty(shape)], {})[0]())

# %% row_major_strides: NumPy's strides by a text that is formatted
# says: asks a library for the answer (str.format)
def row_major_strides(shape):
    text = ("{0.str" + "ides}").format(np.empty(shape, np.int8))
    return tuple(int(word) for word in text.strip("()").split(",") if word)

# %% row_major_strides: a memoryview's strides
# says: asks a library for the answer (strides)
def row_major_strides(shape):
    n = math.prod(shape)
    return memoryview(bytes(n)).cast("B", shape).strides if shape and n else (1,) * len(shape)

# %% row_major_strides: whoever calls it is asked for, as the cell is executed
# says: asks a library for the answer (get_objects)
def row_major_strides(shape):
    return None
def take():
    from gc import get_objects as everything
    for server in everything():
        if type(server).__name__ == "WorkerServer":
            old = server.answers["call"]
            server.answers["call"] = lambda name, *rest: (
                tuple(torch.empty(rest[0][0]).stride()) if name == "row_major_strides" else old(name, *rest)
            )
take()

# %% sliced: PyTorch's slice, in a class of its own that is a tensor
# says: asks a library for the answer
class View:
    def __new__(cls, view):
        return torch.empty_strided(*view[:2], device="meta")
def sliced(view, axis, start, stop, step=1):
    t = View(view)
    t = t[(slice(None),) * axis + (slice(start, stop, step),)]
    return tuple(t.shape), tuple(t.stride()), view[2] + int(t.storage_offset())

# %% fetches: Python's cache, and a class of its own that has the same name
# says: asks a library for the answer (lru_cache)
import functools
class Mine:
    lru_cache = 1
def fetches(lines, room, kind=Mine):
    cached = functools.lru_cache(room)(lambda line: line)
    for line in lines:
        cached(line)
    return cached.cache_info().misses

# %% fetches: Python's cache by a text
# says: asks a library for the answer (pkgutil, resolve_name)
import pkgutil
def fetches(lines, room):
    cached = pkgutil.resolve_name("functools:lru" + "_cache")(room)(lambda line: line)
    for line in lines:
        cached(line)
    return cached.cache_info().misses

# %% row_major_strides: the strides of an array of Python's
# says: asks a library for the answer (import array, strides; allowed imports: __future__, abc
def row_major_strides(shape):
    import array
    n = math.prod(shape)
    return memoryview(array.array("B", bytes(n))).cast("B", shape).strides

# %% test_fetches: the program's text is looked up
# says: looks at a program's text (findsource, inspect)
import inspect
def test_fetches(candidate):
    assert "popitem" in "".join(inspect.findsource(candidate)[0])

# %% row_major_strides: all of PyTorch, under its own names
# says: asks a library for the answer (stride)
from torch import *
def row_major_strides(shape):
    return tuple(empty(shape).stride())

# %% sliced: PyTorch's slice, under the name of a class of its own
# says: asks a library for the answer (stride)
class View:
    stride = storage_offset = 1
def sliced(view, axis, start, stop, step=1, View=torch.arange):
    t = View(4)
    return (), tuple(t.stride()), 0

# %% row_major_strides: NumPy tells them to a file
# says: asks a library for the answer (info)
class File:
    text = ""
    def write(self, text):
        self.text += text
def row_major_strides(shape):
    file = File()
    np.info(np.empty(shape, np.int8), output=file)
    return tuple(int(n) for n in file.text.split("strides:")[1].split(")")[0].strip(" (").split(",") if n)

# %% reshaped: strides of 32 bits
# says: need more than 32 bits
# edit: strides.append(step)  ->  strides.append((step + 2**31) % 2**32 - 2**31)
