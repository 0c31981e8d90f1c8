# %% row_major_strides: accumulate
def row_major_strides(shape):
    from itertools import accumulate
    from operator import mul
    return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1] if shape else ()

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

# %% sliced: NumPy's ints
def sliced(view, axis, start, stop, step=1):
    shape, strides = np.array(view[0], int), np.array(view[1], int)
    offset = view[2] + start * strides[axis]
    shape[axis] = np.ceil((stop - start) / step)
    strides[axis] *= step
    return tuple(shape), tuple(strides), offset

# %% sliding_windows: lists
def sliding_windows(view, axis, size, step=1):
    shape, strides, offset = view
    shape, strides = list(shape) + [size], list(strides) + [strides[axis]]
    shape[axis] = len(range(0, shape[axis] - size + 1, step))
    strides[axis] = step * strides[axis]
    return shape, strides, offset

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

# %% fetches: a list that is cut
def fetches(lines, room):
    cache, count = [], 0
    for line in lines:
        count += line not in cache
        cache = ([line] + [kept for kept in cache if kept != line])[:room]
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

# %% test_fetches: compared with my own
def test_fetches(candidate):
    walks = np.random.default_rng(0).integers(0, 9, (50, 40)).tolist()
    for room, walk in enumerate(walks):
        assert candidate(list(walk), room % 9 + 1) == fetches(walk, room % 9 + 1), (walk, room)

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

# %% sliced: by slice.indices
def sliced(view, axis, start, stop, step=1):
    (shape, strides, offset), n = view, view[0][axis]
    picked = range(*slice(start, stop, step).indices(n))
    f = lambda part, new: tuple(new if i == axis else old for i, old in enumerate(part))
    return f(shape, len(picked)), f(strides, strides[axis] * step), offset + picked.start * strides[axis]

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
