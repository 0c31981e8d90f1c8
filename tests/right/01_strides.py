# %% row_major_strides: products of the sizes behind
def row_major_strides(shape):
    return tuple(math.prod(shape[axis + 1:]) for axis in range(len(shape)))

# %% row_major_strides: accumulate
def row_major_strides(shape):
    from itertools import accumulate
    from operator import mul
    return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1] if shape else ()

# %% row_major_strides: recursive
def row_major_strides(shape):
    if len(shape) == 0:
        return ()
    rest = row_major_strides(shape[1:])
    return (shape[1] * rest[0] if rest else 1, *rest)

# %% row_major_strides: NumPy's cumulative product
def row_major_strides(shape):
    return tuple(int(n) for n in np.cumprod((1, *shape[:0:-1]))[::-1]) if shape else ()

# %% row_major_strides: NumPy's ints in a torch.Size
def row_major_strides(shape):
    steps = np.ones(len(shape), dtype=np.int64)
    for axis in range(len(shape) - 2, -1, -1):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    return torch.Size(steps.tolist())

# %% row_major_strides: at least 1 per size, as PyTorch does
def row_major_strides(shape):
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)

# %% row_major_strides: insert at the front
def row_major_strides(shape):
    strides = ()
    for i in range(len(shape)):
        strides = (math.prod(shape[len(shape) - i:]),) + strides
    return strides

# %% sliced: len of a range
def sliced(view, axis, start, stop, step=1):
    shape, strides, offset = view
    count = len(range(start, stop, step))
    return ((*shape[:axis], count, *shape[axis + 1:]),
            (*strides[:axis], step * strides[axis], *strides[axis + 1:]), offset + start * strides[axis])

# %% sliced: rounding up by hand, lists
def sliced(view, axis, start, stop, step=1):
    shape, strides = [list(part) for part in view[:2]]
    offset = view[2] + strides[axis] * start
    shape[axis] = (stop - start + step - 1) // step
    strides[axis] = strides[axis] * step
    return shape, strides, offset

# %% sliced: a named tuple
from collections import namedtuple
V = namedtuple("V", "shape strides offset")
def sliced(view, axis, start, stop, step=1):
    v = V(*view)
    sizes, steps = np.array(v.shape), np.array(v.strides)
    sizes[axis] = -((start - stop) // step)
    offset = v.offset + start * v.strides[axis]
    steps[axis] *= step
    result = V(tuple(sizes.tolist()), tuple(steps.tolist()), offset)
    return result.shape, result.strides, result.offset

# %% sliced: enumerate
def sliced(view, axis, start, stop, step=1):
    shape = tuple(-(-(stop - start) // step) if k == axis else n for k, n in enumerate(view[0]))
    strides = tuple(s * step if k == axis else s for k, s in enumerate(view[1]))
    return shape, strides, view[2] + start * view[1][axis]

# %% sliced: NumPy's ints
def sliced(view, axis, start, stop, step=1):
    shape, strides = np.array(view[0], int), np.array(view[1], int)
    offset = view[2] + start * strides[axis]
    shape[axis] = np.ceil((stop - start) / step)
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset

# %% sliding_windows: from sliced
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = sliced(view, axis, 0, view[0][axis] - size + 1, step)
    return (*shape, size), (*strides, view[1][axis]), offset

# %% sliding_windows: lists
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = view
    shape, strides = list(shape) + [size], list(strides) + [strides[axis]]
    shape[axis] = len(range(0, shape[axis] - size + 1, step))
    strides[axis] = step * strides[axis]
    return shape, strides, offset

# %% sliding_windows: copies of tuples
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = view
    n = (shape[axis] - size + step) // step
    return (shape[:axis] + (n,) + shape[axis + 1:] + (size,),
            strides[:axis] + (strides[axis] * step,) + strides[axis + 1:] + (strides[axis],), offset)

# %% runs: from the back
def runs(view):
    found = []
    for size, stride in list(zip(view[0], view[1]))[::-1]:
        if size == 1:
            continue
        if found and stride == found[0][0] * found[0][1]:
            found[0] = (size * found[0][0], found[0][1])
        else:
            found.insert(0, (size, stride))
    return found

# %% runs: a tuple of lists
def runs(view):
    axes = [[n, s] for n, s in zip(view[0], view[1]) if n != 1]
    i = 0
    while i + 1 < len(axes):
        (n, s), (m, t) = axes[i], axes[i + 1]
        if s == m * t:
            axes[i:i + 2] = [[n * m, t]]
        else:
            i += 1
    return tuple(axes)

# %% runs: recursive
def runs(view):
    def merged(axes):
        if len(axes) < 2:
            return axes
        *front, (n, s), (m, t) = axes
        return merged([*front, (n * m, t)]) if s == m * t else [*merged([*front, (n, s)]), (m, t)]
    return merged([(n, s) for n, s in zip(view[0], view[1]) if n > 1])

# %% runs: reduce
def runs(view):
    from functools import reduce
    def join(found, axis):
        size, stride = axis
        if found and found[-1][1] == size * stride:
            return [*found[:-1], (found[-1][0] * size, stride)]
        return [*found, axis]
    return reduce(join, ((n, s) for n, s in zip(*view[:2]) if n > 1), [])

# %% runs: with NumPy
def runs(view):
    sizes, strides = (np.array(part, dtype=int) for part in view[:2])
    sizes, strides = sizes[sizes > 1], strides[sizes > 1]
    if len(sizes) == 0:
        return []
    ends = np.flatnonzero(np.append(strides[:-1] != sizes[1:] * strides[1:], True))
    starts = np.append(0, ends[:-1] + 1)
    return [(int(np.prod(sizes[a:b + 1])), int(strides[b])) for a, b in zip(starts, ends)]

# %% reshaped: without runs, as PyTorch does it
def reshaped(view, shape):
    if math.prod(shape) == 0:
        return shape, row_major_strides(shape), view[2]
    old = [(n, s) for n, s in zip(view[0], view[1])]
    new, strides, chunk = list(shape), [0] * len(shape), 1
    at, base = len(new) - 1, old[-1][1] if old else 1
    for d in range(len(old) - 1, -1, -1):
        chunk *= old[d][0]
        if d == 0 or (old[d - 1][0] != 1 and old[d - 1][1] != chunk * base):
            taken = 1
            while at >= 0 and (taken < chunk or new[at] == 1):
                strides[at] = taken * base
                taken *= new[at]
                at -= 1
            if taken != chunk:
                return None
            if d > 0:
                chunk, base = 1, old[d - 1][1]
    while at >= 0:
        strides[at] = 1
        at -= 1
    return tuple(shape), tuple(strides), view[2]

# %% reshaped: from the front, with row-major strides per run
def reshaped(view, shape):
    if 0 in shape:
        return shape, (1,) * len(shape), view[2]
    strides, axis = [], 0
    for elements, stride in runs(view):
        part, product = [], 1
        while product < elements and axis < len(shape):
            part.append(shape[axis])
            product *= shape[axis]
            axis += 1
        if product != elements:
            return None
        strides += [stride * s for s in row_major_strides(tuple(part))]
    strides += [7] * (len(shape) - axis)  # of length 1
    return shape, tuple(strides), view[2]

# %% reshaped: reads every position and fits strides to them
def reshaped(view, shape):
    import itertools
    cells = [view[2] + sum(i * s for i, s in zip(index, view[1]))
             for index in itertools.product(*map(range, view[0]))]
    if not cells:
        return shape, (0,) * len(shape), 0
    steps = row_major_strides(shape)
    strides = [cells[step] - cells[0] if n > 1 else 0 for n, step in zip(shape, steps)]
    ours = [cells[0] + sum(i * s for i, s in zip(index, strides))
            for index in itertools.product(*map(range, shape))]
    return (shape, tuple(strides), cells[0]) if ours == cells else None

# %% reshaped: a generator and an exception
def reshaped(view, shape):
    if 0 in shape:
        return tuple(shape), tuple([0] * len(shape)), view[2]
    stack, out = runs(view)[:], []
    for n in shape[::-1]:
        if n == 1:
            out.insert(0, 0)
            continue
        elements, stride = stack[-1]
        if elements % n:
            return
        out.insert(0, stride)
        stack[-1] = (elements // n, stride * n)
        if stack[-1][0] == 1:
            stack.pop()
    return tuple(shape), tuple(out), view[2]

# %% fetches: an ordered dict
def fetches(lines, room):
    from collections import OrderedDict
    cache, count = OrderedDict(), 0
    for line in lines:
        if line in cache:
            cache.move_to_end(line)
            continue
        count += 1
        cache[line] = 1
        if len(cache) > room:
            cache.popitem(last=False)
    return count

# %% fetches: a list that is cut
def fetches(lines, room):
    cache, count = [], 0
    for line in lines:
        count += line not in cache
        cache = ([line] + [kept for kept in cache if kept != line])[:room]
    return count

# %% fetches: time stamps
def fetches(lines, room):
    used, count = {}, 0
    for now, line in enumerate(lines):
        if line not in used:
            count += 1
            if len(used) == room:
                del used[min(used, key=used.get)]
        used[line] = now
    return count

# %% fetches: a deque
def fetches(lines, room):
    from collections import deque
    cache, count = deque(maxlen=room), 0
    for line in lines:
        if line in cache:
            cache.remove(line)
        else:
            count += 1
        cache.append(line)
    return count

# %% fetches: how many other lines came since
def fetches(lines, room):
    order, count = [], 0
    for line in lines:
        distance = order.index(line) if line in order else len(lines) + room
        count += distance >= room
        if line in order:
            order.remove(line)
        order.insert(0, line)
    return count

# %% fetches: NumPy's ages
def fetches(lines, room):
    if not lines:
        return 0
    names, where = np.unique(lines, return_inverse=True)
    last = np.full(len(names), -1)
    count = 0
    for step, line in enumerate(where):
        if last[line] < 0 or (last > last[line]).sum() >= room:
            count += 1
        last[line] = step
    return np.int64(count)

# %% fetches: recursive on the end of the walk, no cache at all
def fetches(lines, room):
    count, before = 0, {}
    for step, line in enumerate(lines):
        start = before.get(line)
        if start is None:
            count += 1
        else:
            others = set()
            for other in lines[start + 1:step]:
                others.add(other)
                if len(others) >= room:
                    count += 1
                    break
        before[line] = step
    return count

# %% fetches: eats its argument
def fetches(lines, room):
    lines.reverse()
    cache, count = [], 0
    while lines:
        line = lines.pop()
        if line in cache:
            cache.remove(line)
        else:
            count += 1
        cache = [*cache, line][-room:]
    return count

# %% blocked: strides by hand
def blocked(view, block):
    (rows, columns), (down, right), offset = view
    return ((rows // block, columns // block, block, block),
            (down * block, right * block, down, right), offset)

# %% blocked: sliding windows twice
def blocked(view, block):
    return sliding_windows(sliding_windows(view, 0, block, block), 1, block, block)

# %% blocked: split one axis after the other
def blocked(view, block):
    (r, c), (s, t), offset = view
    shape = (r // block, block, c // block, block)
    strides = (s * block, s, t * block, t)
    order = [0, 2, 1, 3]
    return [shape[k] for k in order], [strides[k] for k in order], offset

# %% set_fetches: a dict of walks
def set_fetches(lines, sets, ways):
    walks = {}
    for line in lines:
        walks.setdefault(line % sets, []).append(line)
    return sum(fetches(walk, ways) for walk in walks.values())

# %% set_fetches: sets of its own
def set_fetches(lines, sets, ways):
    cache, count = [[] for _ in range(sets)], 0
    for line in lines:
        own = cache[line % sets]
        if line in own:
            own.remove(line)
        else:
            count += 1
            if len(own) == ways:
                own.pop(0)
        own.append(line)
    return count

# %% set_fetches: NumPy, and line // sets as a name within the set
def set_fetches(lines, sets, ways):
    lines = np.array(lines, dtype=int)
    return int(sum(fetches((lines[lines % sets == k] // sets).tolist(), ways) for k in range(sets)))

# %% set_fetches: sorted by set
def set_fetches(lines, sets, ways):
    from itertools import groupby
    by_set = sorted(lines, key=lambda line: line % sets)
    return sum(fetches(list(part), ways) for _, part in groupby(by_set, key=lambda line: line % sets))

# %% broadcasted: from the back
def broadcasted(view, shape):
    from itertools import zip_longest
    if len(shape) < len(view[0]):
        raise ValueError("fewer axes")
    strides = []
    for new, old, stride in zip_longest(shape[::-1], view[0][::-1], view[1][::-1], fillvalue=1):
        if old == new and len(strides) < len(view[0]):
            strides.insert(0, stride)
        elif old == 1:
            strides.insert(0, 0)
        else:
            raise ValueError(f"{old} is not {new}")
    return shape, strides, view[2]

# %% broadcasted: padded with ones
def broadcasted(view, shape):
    more = len(shape) - len(view[0])
    old, strides = (1,) * more + view[0], (0,) * more + view[1]
    if more < 0 or any(o != 1 and o != n for o, n in zip(old, shape)):
        raise ValueError("shapes do not fit")
    return shape, tuple(0 if o == 1 else s for o, s in zip(old, strides)), view[2]

# %% test_fetches: short walks by hand
def test_fetches(candidate):
    assert candidate([], 1) == 0
    assert candidate([0, 1, 0, 2, 0, 1], 2) == 4
    assert candidate([0, 1, 2, 0, 3, 0, 1], 3) == 5
    assert candidate([5, 5, 5, 6], 4) == 2
    assert candidate([0, 0, 0, 1, 1, 1, 0, 0, 1], 2) == 2
    assert candidate([1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6], 6) == 6
    assert candidate([1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6], 5) == 12
    assert candidate([1, 1, 1, 2, 3, 1, 2, 3], 2) == 6
    assert candidate([9, 1, 9, 2, 9, 3, 9, 1], 3) == 5

# %% test_fetches: distances
def test_fetches(candidate):
    draw = np.random.default_rng(5)
    for _ in range(100):
        lines = draw.integers(0, 7, 30).tolist()
        room = int(draw.integers(1, 8))
        want = sum(line not in lines[:i] or len(set(lines[i - lines[:i][::-1].index(line):i])) >= room
                   for i, line in enumerate(lines))
        assert candidate(lines, room) == want

# %% reshaped: a new axis of length 1 takes the next run early
# edit: left == 1 and size > 1  ->  left == 1 and whole

# %% fetches: a class
class Cache:
    def __init__(self, room):
        self.room, self.kept, self.misses = room, {}, 0
    def visit(self, line):
        if line in self.kept:
            self.kept[line] = self.kept.pop(line)
            return
        self.misses += 1
        if len(self.kept) >= self.room:
            self.kept.pop(next(iter(self.kept)))
        self.kept[line] = True
def fetches(lines, room):
    cache = Cache(room)
    for line in lines:
        cache.visit(line)
    return cache.misses

# %% runs: from the back, with a while
def runs(view):
    axes = [(n, s) for n, s in zip(view[0], view[1]) if n > 1]
    found = []
    while axes:
        n, s = axes.pop()
        while axes and axes[-1][1] == n * s:
            n *= axes.pop()[0]
        found.append((n, s))
    return found[::-1]

# %% sliding_windows: the stride of a single window is any
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    count, within = (shape[axis] - size) // step + 1, strides[axis]
    shape[axis], strides[axis] = count, within * step if count > 1 else 0
    return tuple(shape + [size]), tuple(strides + [within]), offset

# %% sliced: the offset of nothing stays
def sliced(view, axis, start, stop, step=1):
    shape, strides, offset = list(view[0]), list(view[1]), view[2]
    shape[axis] = len(range(start, stop, step))
    if shape[axis]:
        offset += start * strides[axis]
    strides[axis] *= step
    return shape, strides, offset

# %% row_major_strides: a dict of products, read in order
def row_major_strides(shape):
    from functools import reduce
    skips = {axis: reduce(lambda a, b: a * b, shape[axis + 1:], 1) for axis in range(len(shape))}
    return tuple(skips.values())

# %% row_major_strides: a namedtuple of strides
def row_major_strides(shape):
    from collections import namedtuple
    Strides = namedtuple("Strides", [f"axis{k}" for k in range(len(shape))])
    strides = [1] * len(shape)
    for k in range(len(shape) - 1, 0, -1):
        strides[k - 1] = strides[k] * shape[k]
    return Strides(*strides)

# %% sliced: returns the named tuple itself
from typing import NamedTuple
class V(NamedTuple):
    shape: tuple
    strides: tuple
    offset: int
def sliced(view, axis, start, stop, step=1):
    v = V(*view)
    n = sum(1 for _ in range(start, stop, step))
    return v._replace(
        shape=v.shape[:axis] + (n,) + v.shape[axis + 1:],
        strides=v.strides[:axis] + (v.strides[axis] * step,) + v.strides[axis + 1:],
        offset=v.offset + start * v.strides[axis],
    )

# %% sliced: first cut, then stride, as two views
def sliced(view, axis, start, stop, step=1):
    def cut(view):
        shape, strides, offset = view
        shape = [stop - start if k == axis else n for k, n in enumerate(shape)]
        return shape, strides, offset + strides[axis] * start
    def every(view):
        shape, strides, offset = view
        shape[axis] = (shape[axis] + step - 1) // step
        return tuple(shape), tuple(s * step if k == axis else s for k, s in enumerate(strides)), offset
    return every(cut(view))

# %% sliding_windows: a class with methods
class Walk:
    def __init__(self, shape, strides, offset):
        self.axes, self.offset = list(zip(shape, strides)), offset
    def unfold(self, axis, size, step):
        n, s = self.axes[axis]
        self.axes[axis] = len(range(0, n - size + 1, step)), s * step
        self.axes.append((size, s))
        return self
    def view(self):
        shape, strides = zip(*self.axes)
        return shape, strides, self.offset
def sliding_windows(view, axis, size, step=1):
    return Walk(*view).unfold(axis, size, step).view()

# %% sliding_windows: NumPy's arrays as shape and strides
def sliding_windows(view, axis, size, step=1):
    shape = np.append(np.array(view[0], dtype=np.int64), size)
    strides = np.append(np.array(view[1], dtype=np.int64), view[1][axis])
    shape[axis] = np.floor((shape[axis] - size) / step) + 1
    strides[axis] *= step
    return shape, strides, view[2]

# %% runs: a generator, and lookahead
def runs(view):
    def merged():
        axes = [axis for axis in zip(view[0], view[1]) if axis[0] != 1]
        count = 1
        for i, (size, stride) in enumerate(axes):
            count *= size
            if i + 1 == len(axes) or stride != axes[i + 1][0] * axes[i + 1][1]:
                yield count, stride
                count = 1
    return list(merged())

# %% runs: tensors as lists of axes
def runs(view):
    sizes, strides = torch.tensor(view[0], dtype=torch.int64), torch.tensor(view[1], dtype=torch.int64)
    kept = sizes != 1
    sizes, strides = sizes[kept].tolist(), strides[kept].tolist()
    out = []
    for n, s in zip(sizes, strides):
        if out and out[-1][1] == n * s:
            n *= out.pop()[0]
        out.append((n, s))
    return out

# %% reshaped: recursive, from the back
def reshaped(view, shape):
    def cut(whole, shape):
        if not shape:
            return () if not whole else None
        *front, n = shape
        if n == 1:
            rest = cut(whole, front)
            return None if rest is None else (*rest, 0)
        if not whole or whole[-1][0] % n:
            return None
        left, stride = whole[-1][0] // n, whole[-1][1]
        rest = cut(whole[:-1] + ([(left, stride * n)] if left > 1 else []), front)
        return None if rest is None else (*rest, stride)
    if 0 in shape:
        return shape, tuple(1 for _ in shape), view[2]
    strides = cut(list(runs(view)), list(shape))
    return None if strides is None else (shape, strides, view[2])

# %% reshaped: common refinement of old and new products
def reshaped(view, shape):
    total = math.prod(shape)
    if total == 0:
        return shape, (0,) * len(shape), 0
    ends, position = {}, total
    for elements, stride in runs(view):
        position //= elements
        ends[position] = (elements, stride)   # this run covers products position .. position*elements
    strides, below = [], 1
    for n in reversed(shape):
        if n == 1:
            strides.append(1)
            continue
        start = max(p for p in ends if p <= below)
        elements, stride = ends[start]
        if below % start or below * n > start * elements or (start * elements) % (below * n):
            return None
        strides.append(below // start * stride)
        below *= n
    return shape, tuple(strides[::-1]), view[2]

# %% fetches: a heap with outdated entries
def fetches(lines, room):
    import heapq
    heap, last, kept, count = [], {}, set(), 0
    for now, line in enumerate(lines):
        if line not in kept:
            count += 1
            while len(kept) >= room:
                when, old = heapq.heappop(heap)
                if old in kept and last[old] == when:
                    kept.discard(old)
            kept.add(line)
        last[line] = now
        heapq.heappush(heap, (now, line))
    return count

# %% fetches: a linked list
def fetches(lines, room):
    after, before = {"end": "end"}, {"end": "end"}
    def unlink(line):
        a, b = before.pop(line), after.pop(line)
        after[a], before[b] = b, a
    count = 0
    for line in lines:
        if line in after:
            unlink(line)
        else:
            count += 1
            if len(after) > room:
                unlink(after["end"])
        a = before["end"]
        after[a], before[line], after[line], before["end"] = line, a, "end", line
    return count

# %% blocked: by sliced, and axes put together
def blocked(view, block):
    rows, columns = view[0]
    (_, (down, _), _), (_, (_, right), _) = sliced(view, 0, 0, rows, block), sliced(view, 1, 0, columns, block)
    return ((rows // block, columns // block, block, block), (down, right, *view[1]), view[2])

# %% blocked: a single permutation after two reshapes of one axis
def blocked(view, block):
    (r, c), _, _ = view
    rows_cut = reshaped(view, (r // block, block, c))
    both = reshaped(rows_cut, (r // block, block, c // block, block))
    shape, strides, offset = both
    swap = [0, 2, 1, 3]
    return tuple(map(shape.__getitem__, swap)), tuple(map(strides.__getitem__, swap)), offset

# %% set_fetches: one dictionary per set, ages
def set_fetches(lines, sets, ways):
    from collections import defaultdict
    used, count = defaultdict(dict), 0
    for now, line in enumerate(lines):
        tags = used[line % sets]
        tag = line // sets
        if tag not in tags:
            count += 1
            if len(tags) >= ways:
                tags.pop(min(tags, key=tags.__getitem__))
        tags[tag] = now
    return count

# %% set_fetches: recursion over the sets
def set_fetches(lines, sets, ways, first=0):
    if first == sets:
        return 0
    mine = list(filter(lambda line: line % sets == first, lines))
    return (fetches(mine, ways) if mine else 0) + set_fetches(lines, sets, ways, first + 1)

# %% broadcasted: by negative axes
def broadcasted(view, shape):
    sizes, steps, offset = view
    if len(shape) < len(sizes):
        raise ValueError("too few axes")
    strides = [0] * len(shape)
    for k in range(1, len(sizes) + 1):
        if sizes[-k] == shape[-k]:
            strides[-k] = steps[-k]
        elif sizes[-k] != 1:
            raise ValueError("only ones are stretched")
    return tuple(shape), tuple(strides), offset

# %% broadcasted: one axis at a time, by recursion
def broadcasted(view, shape):
    sizes, steps, offset = view
    if not shape:
        if sizes:
            raise ValueError("an axis is left over")
        return (), (), offset
    if not sizes:
        front, strides, _ = broadcasted(((), (), offset), shape[:-1])
        return (*front, shape[-1]), (*strides, 0), offset
    if sizes[-1] != shape[-1] and sizes[-1] != 1:
        raise ValueError(f"{sizes[-1]} to {shape[-1]}")
    front, strides, _ = broadcasted((sizes[:-1], steps[:-1], offset), shape[:-1])
    return (*front, shape[-1]), (*strides, steps[-1] if sizes[-1] == shape[-1] else 0), offset

# %% test_fetches: compared with my own
def test_fetches(candidate):
    walks = np.random.default_rng(0).integers(0, 9, (50, 40)).tolist()
    for room, walk in enumerate(walks):
        assert candidate(list(walk), room % 9 + 1) == fetches(walk, room % 9 + 1), (walk, room)

# %% test_fetches: laws, no counts typed in
def test_fetches(candidate):
    rng = np.random.default_rng(3)
    for _ in range(40):
        walk = rng.integers(0, 6, 25).tolist()
        counts = [candidate(list(walk), room) for room in range(1, 8)]
        assert counts[0] == sum(a != b for a, b in zip([None, *walk], walk))
        assert counts[5] == counts[6] == len(set(walk))
        assert all(a >= b for a, b in zip(counts, counts[1:]))
        once = [line for a, line in zip([None, *walk], walk) if a != line]
        for room in range(1, 7):
            assert candidate(once, room) == counts[room - 1]
            renamed = [7 * line for line in walk]
            assert candidate(renamed, room) == counts[room - 1]
            head = walk[:12]
            seen = head + list(dict.fromkeys(head[::-1]))[:room]
            assert candidate(seen, room) == candidate(list(head), room)

# %% runs: divide and conquer
def runs(view):
    shape, strides, offset = view
    if len(shape) <= 1:
        return [(n, s) for n, s in zip(shape, strides) if n > 1]
    half = len(shape) // 2
    left = runs((shape[:half], strides[:half], offset))
    right = runs((shape[half:], strides[half:], offset))
    if left and right:
        # the outer axis of the right part decides
        first = next((n, s) for n, s in zip(shape[half:], strides[half:]) if n > 1)
        if left[-1][1] == first[0] * first[1]:
            return left[:-1] + [(left[-1][0] * right[0][0], right[0][1])] + right[1:]
    return left + right

# %% reshaped: digits of each unit index
def reshaped(view, shape):
    if 0 in shape or 0 in view[0]:
        return tuple(shape), row_major_strides(shape), view[2]
    def cell(k):
        at = view[2]
        for n, s in zip(view[0][::-1], view[1][::-1]):
            k, i = divmod(k, n)
            at += i * s
        return at
    strides = tuple(cell(step) - view[2] if n > 1 else 0 for n, step in zip(shape, row_major_strides(shape)))
    for k in range(math.prod(shape)):
        rest, at = k, view[2]
        for n, s in zip(shape[::-1], strides[::-1]):
            rest, i = divmod(rest, n)
            at += i * s
        if at != cell(k):
            return None
    return tuple(shape), strides, view[2]

# %% reshaped: prime factors as the common axes
def reshaped(view, shape):
    def primes(n):
        out, p = [], 2
        while n > 1:
            while n % p == 0:
                out.append(p)
                n //= p
            p += 1
        return out
    if 0 in shape:
        return list(shape), [5] * len(shape), view[2]
    pieces = []
    for n, s in runs(view):
        pieces.append((n, s))
    out = []
    for n in reversed(shape):
        if n == 1:
            out.append(1)
            continue
        m, s = pieces.pop()
        left = list(primes(m))
        for p in primes(n):
            if p not in left:
                return None
            left.remove(p)
        out.append(s)
        if math.prod(left) > 1:
            pieces.append((math.prod(left), s * n))
    return list(shape), out[::-1], view[2]

# %% fetches: Fenwick tree of last visits
def fetches(lines, room):
    n = len(lines)
    tree = [0] * (n + 1)
    def add(i, v):
        i += 1
        while i <= n:
            tree[i] += v
            i += i & -i
    def below(i):
        total = 0
        while i > 0:
            total += tree[i]
            i -= i & -i
        return total
    last, count = {}, 0
    for now, line in enumerate(lines):
        if line not in last:
            count += 1
        else:
            others = below(now) - below(last[line] + 1)
            count += others >= room
            add(last[line], -1)
        add(now, 1)
        last[line] = now
    return count

# %% fetches: NumPy array of lines and of times
def fetches(lines, room):
    where, when = np.full(room, -1), np.arange(-room, 0)
    count = 0
    for now, line in enumerate(lines):
        found = np.flatnonzero(where == line)
        slot = found[0] if found.size else np.argmin(when)
        count += not found.size
        where[slot], when[slot] = line, now
    return int(count)

# %% set_fetches: one walk per set, joined with disjoint fillers
def set_fetches(lines, sets, ways):
    joined, filler, extra = [], -1, 0
    for k in range(sets):
        joined += [line for line in lines if line % sets == k]
        for _ in range(ways):
            joined.append(filler)
            filler -= 1
            extra += 1
    return fetches(joined, ways) - extra

# %% blocked: torch's integers
def blocked(view, block):
    steps = torch.tensor(view[1])
    return (view[0][0] // block, view[0][1] // block, block, block), torch.cat([steps * block, steps]), view[2]

# %% broadcasted: a subclass of ValueError
class BroadcastError(ValueError):
    pass
def broadcasted(view, shape):
    sizes, steps, offset = view
    if len(sizes) > len(shape):
        raise BroadcastError("fewer axes")
    sizes, steps = [1] * (len(shape) - len(sizes)) + list(sizes), [0] * (len(shape) - len(steps)) + list(steps)
    for i, n in enumerate(shape):
        if sizes[i] != n:
            if sizes[i] != 1:
                raise BroadcastError(f"{sizes[i]} to {n}")
            steps[i] = 0
    return tuple(shape), tuple(steps), offset

# %% test_fetches: a larger room never fetches more
def test_fetches(candidate):
    r = np.random.default_rng(11)
    for _ in range(20):
        walk = r.integers(0, 9, 50).tolist()
        counts = [candidate(list(walk), room) for room in range(1, 12)]
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] == len(set(walk))
        assert counts[0] == 1 + sum(a != b for a, b in zip(walk, walk[1:]))
        assert counts == [fetches(list(walk), room) for room in range(1, 12)]

# %% row_major_strides: exact fractions
from fractions import Fraction
def row_major_strides(shape):
    if 0 in shape:
        return tuple(0 for _ in shape)
    whole, out = Fraction(math.prod(shape)), []
    for n in shape:
        whole /= n
        out.append(int(whole))
    return tuple(out)

# %% row_major_strides: positional matching
def row_major_strides(shape):
    match shape:
        case ():
            return ()
        case (_,):
            return (1,)
        case (_, *rest):
            behind = row_major_strides(tuple(rest))
            return (rest[0] * behind[0],) + behind

# %% sliced: matrix arithmetic of affine maps
def sliced(view, axis, start, stop, step=1):
    d = len(view[0])
    A, b = np.eye(d, dtype=int), np.zeros(d, dtype=int)
    A[axis, axis], b[axis] = step, start
    s = np.array(view[1], dtype=int)
    shape = np.array(view[0])
    shape[axis] = np.arange(start, stop, step).size
    return tuple(shape.tolist()), tuple((s @ A).tolist()), int(view[2] + s @ b)

# %% sliced: by slice.indices
def sliced(view, axis, start, stop, step=1):
    (shape, strides, offset), n = view, view[0][axis]
    picked = range(*slice(start, stop, step).indices(n))
    f = lambda part, new: tuple(new if i == axis else old for i, old in enumerate(part))
    return f(shape, len(picked)), f(strides, strides[axis] * step), offset + picked.start * strides[axis]

# %% sliding_windows: whole windows counted one by one
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = view
    count, first = 0, 0
    while first + size <= shape[axis]:
        count, first = count + 1, first + step
    front, (_, *back) = shape[:axis], shape[axis:]
    sfront, (s, *sback) = strides[:axis], strides[axis:]
    return front + (count, *back, size), sfront + (s * step, *sback, s), offset

# %% runs: groupby on breaks
def runs(view):
    from itertools import accumulate, groupby
    axes = [(n, s) for n, s in zip(*view[:2]) if n != 1]
    breaks = [0, *accumulate(a[1] != b[0] * b[1] for a, b in zip(axes, axes[1:]))]
    out = []
    for _, group in groupby(zip(breaks, axes), key=lambda pair: pair[0]):
        members = [axis for _, axis in group]
        out.append((math.prod(n for n, _ in members), members[-1][1]))
    return out

# %% runs: a torch tensor's rows as ints
def runs(view):
    found = []
    for size, stride in zip(view[0], view[1]):
        if size != 1:
            found.append(torch.tensor([size, stride]))
            while len(found) > 1 and int(found[-2][1]) == int(found[-1][0] * found[-1][1]):
                last = found.pop()
                found[-1] = torch.stack([found[-1][0] * last[0], last[1]])
    return [(int(n), int(s)) for n, s in found]

# %% reshaped: factor every run into ones and regroup by cumulative products
def reshaped(view, shape):
    if 0 in shape:
        return shape, (1,) * len(shape), view[2]
    whole = runs(view)
    marks, total = {1}, 1
    for n, _ in reversed(whole):
        total *= n
        marks.add(total)
    strides, done = [], 1
    for n in shape[::-1]:
        low = max(m for m in marks if m <= done)
        inside = [s for (m, s), end in zip(reversed(whole), np.cumprod([r[0] for r in reversed(whole)])) if end > done]
        s = inside[0] if inside else 1
        if n > 1 and done % low:
            return None
        strides.append(s * (done // low))
        if any(done < m < done * n for m in marks):
            return None
        done *= n
    # every mark must be reached by a product
    ends, p = {1}, 1
    for n in shape[::-1]:
        p *= n
        ends.add(p)
    return (shape, tuple(int(s) for s in strides[::-1]), view[2]) if marks <= ends else None

# %% reshaped: NumPy position table and differences
def reshaped(view, shape):
    cells = np.full((), view[2], dtype=int)
    for n, s in zip(view[0], view[1]):
        cells = cells[..., None] + np.arange(n) * s
    cells = cells.reshape(shape)
    if cells.size == 0:
        return shape, (0,) * len(shape), 0
    steps = []
    for k, n in enumerate(shape):
        d = np.diff(cells, axis=k)
        if n > 1 and (d != d.flat[0]).any():
            return None
        steps.append(int(d.flat[0]) if n > 1 else 0)
    return shape, tuple(steps), int(cells.flat[0])

# %% fetches: string of characters
def fetches(lines, room):
    cache, count = "", 0
    for line in map(chr, lines):
        if line in cache:
            cache = cache.replace(line, "") + line
        else:
            count += 1
            cache = (cache + line)[-room:]
    return count

# %% fetches: sum over a generator with state
def fetches(lines, room):
    def misses():
        recent = {}
        for line in lines:
            yield recent.pop(line, 1)
            recent[line] = 0
            if len(recent) > room:
                recent.pop(next(iter(recent)))
    return sum(misses())

# %% fetches: bisect on sorted times
def fetches(lines, room):
    import bisect
    times, last, count = [], {}, 0
    for t, line in enumerate(lines):
        if line in last:
            k = bisect.bisect_left(times, last[line])
            count += len(times) - 1 - k >= room
            del times[k]
        else:
            count += 1
        times.append(t)
        last[line] = t
    return count

# %% blocked: affine with NumPy kron
def blocked(view, block):
    shape, strides = np.array(view[0]), np.array(view[1])
    outer = np.kron([block, 1], strides)
    return (*(shape // block).tolist(), block, block), tuple(outer.tolist()), view[2]

# %% set_fetches: recency over the walk
def set_fetches(lines, sets, ways):
    misses = 0
    for i, line in enumerate(lines):
        seen = set()
        for old in reversed(lines[:i]):
            if old == line:
                break
            if old % sets == line % sets:
                seen.add(old)
        else:
            misses += 1
            continue
        misses += len(seen) >= ways
    return misses

# %% test_fetches: all short walks
def test_fetches(candidate):
    from itertools import product
    for walk in product(range(4), repeat=6):
        order, want = [], 0
        for line in walk:
            want += line not in order
            order = [x for x in order if x != line][-1:] + [line]
        assert candidate(list(walk), 2) == want

# %% test_fetches: raises ValueError
def test_fetches(candidate):
    walk = [1, 5, 0, 3, 0, 5, 3, 3, 1, 5, 1, 3, 3, 0]
    if candidate(walk, 3) != 6:
        raise ValueError("not an LRU cache")
