# %% eager_bytes: the closed form, and NumPy's integers
def eager_bytes(rows, columns, itemsize):
    return np.int64(itemsize) * (8 * rows * columns + 4 * rows)


def least_bytes(rows, columns, itemsize):
    return int(np.prod([2, rows, columns, itemsize]))

# %% differences: clamped indices in place of a mask
@triton.jit
def differences(x, out, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    here = tl.minimum(start + tl.arange(0, BLOCK), n - 1)
    before = tl.load(x + tl.maximum(here - 1, 0))
    difference = tl.load(x + here) - tl.where(here == 0, 0.0, before)
    tl.store(out + start + tl.arange(0, BLOCK), difference, mask=start + tl.arange(0, BLOCK) < n)

# %% differences: a block of pointers is moved
@triton.jit
def differences(x, out, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK) + BLOCK * tl.program_id(0)
    x += place
    out += place
    previous = tl.load(x - 1, (place >= 1) & (place < n), 0)
    tl.store(out, tl.load(x, place < n, 0) - previous, place < n)

# %% softmax_rows: powers of two, and a reciprocal
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    p, j = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + p * x_stride + j, j < columns, -float("inf")).to(tl.float32)
    e = tl.exp2((v - tl.max(v, 0)) * 1.4426950408889634)
    tl.store(y + p * y_stride + j, e * (1.0 / tl.sum(e, 0)), j < columns)

# %% softmax_rows: filled after the load; methods; a row of -inf gives 0
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * x_stride + j, mask=j < columns, other=0.0).to(tl.float32)
    v = tl.where(j < columns, v, float("-inf"))
    top = v.max(0)
    top = tl.where(top == float("-inf"), 0.0, top)
    e = (v - top).exp()
    total = e.sum(0)
    total = tl.where(total == 0, 1.0, total)
    tl.store(y + tl.program_id(0) * y_stride + j, e / total, mask=j < columns)

# %% softmax_rows: as a tile of one row
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) + tl.arange(0, 1)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    v = tl.load(x + i * x_stride + j, mask=j < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(y + i * y_stride + j, e / tl.sum(e, 1)[:, None], mask=j < columns)

# %% merge: an empty part changes nothing; a list comes back
def merge(left, right):
    if left[1] == 0:
        return list(right)
    if right[1] == 0:
        return list(left)
    new = np.maximum(left[0], right[0])
    return [new, np.exp(left[0] - new) * left[1] + np.exp(right[0] - new) * right[1]]

# %% merge: arrays, with where
def merge(left, right):
    m, s = np.array([left, right], dtype=np.float64).T
    top = m.max()
    factor = np.exp(m - np.where(np.isinf(top), 0, top))
    return np.array([top, factor @ s])

# %% merge: in PyTorch
def merge(left, right):
    m = torch.tensor([left[0], right[0]], dtype=torch.float64)
    s = torch.tensor([left[1], right[1]], dtype=torch.float64)
    return m.max(), (s * (m - m.max()).exp().nan_to_num()).sum()

# %% softmax_online: a block of nothing is skipped, in a while loop
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total, start = float("-inf"), 0.0, 0
    while start < columns:
        j = start + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        own = tl.max(block, 0)
        if own > float("-inf"):
            new = tl.maximum(maximum, own)
            total = total * tl.exp(maximum - new) + tl.sum(tl.exp(block - new), 0)
            maximum = new
        start += BLOCK
    start = 0
    while start < columns:
        j = start + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=0.0).to(tl.float32)
        tl.store(y + j, tl.exp(block - maximum) / total, mask=j < columns)
        start += BLOCK

# %% softmax_online: the last block stays in registers: fewer reads
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    lane = tl.arange(0, BLOCK)
    last = (columns - 1) // BLOCK * BLOCK
    block = tl.load(x + last + lane, mask=last + lane < columns, other=float("-inf")).to(tl.float32)
    maximum = tl.max(block, 0)
    safe = tl.where(maximum == float("-inf"), 0.0, maximum)
    total = tl.sum(tl.exp(block - safe), 0)
    for start in range(0, last, BLOCK):
        values = tl.load(x + start + lane).to(tl.float32)
        new = tl.maximum(maximum, tl.max(values, 0))
        safe = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(maximum - safe) + tl.sum(tl.exp(values - safe), 0)
        maximum = new
    tl.store(y + last + lane, tl.exp(block - maximum) / total, mask=last + lane < columns)
    for start in range(0, last, BLOCK):
        values = tl.load(x + start + lane).to(tl.float32)
        tl.store(y + start + lane, tl.exp(values - maximum) / total)

# %% softmax_online: a logarithm is carried, in powers of two
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = float("-inf"), 0.0
    for start in tl.range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        new = tl.maximum(maximum, tl.max(block, 0))
        scaled = tl.where(block == float("-inf"), 0.0, tl.exp2((block - new) * 1.4426950408889634))
        factor = tl.where(maximum == float("-inf"), 0.0, tl.exp2((maximum - new) * 1.4426950408889634))
        total = total * factor + tl.sum(scaled, 0)
        maximum = new
    log_total = tl.log2(total)
    for start in tl.range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp2((block - maximum) * 1.4426950408889634 - log_total), mask=j < columns)

# %% softmax_masked_scaled: -inf is filled with the scale's sign
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    r, j = tl.program_id(0), tl.arange(0, BLOCK)
    last = r % queries + keys - queries
    fill = tl.where(scale < 0, float("inf"), float("-inf"))
    v = tl.load(x + r * keys + j, mask=j <= last, other=fill).to(tl.float32)
    s = tl.where(j <= last, v * scale, float("-inf"))
    e = tl.exp(s - tl.max(s, 0))
    tl.store(y + r * keys + j, e / tl.sum(e, 0), mask=j < keys)

# %% softmax_masked_scaled: the scale folded into powers of two
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    r, j = tl.program_id(0), tl.arange(0, BLOCK)
    visible = j < r % queries + keys - queries + 1
    s = tl.load(x + r * keys + j, mask=visible, other=0.0).to(tl.float32) * (scale * 1.4426950408889634)
    s = tl.where(visible, s, float("-inf"))
    e = tl.exp2(s - tl.max(s, 0))
    tl.store(y + r * keys + j, e / tl.sum(e, 0), mask=j < keys)

# %% softmax_masked_scaled: the extreme score is chosen by the scale's sign
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    r, j = tl.program_id(0), tl.arange(0, BLOCK)
    visible = j - keys <= r % queries - queries
    v = tl.load(x + r * keys + j, mask=visible, other=0.0).to(tl.float32)
    largest = tl.max(tl.where(visible, v, float("-inf")), 0)
    least = tl.min(tl.where(visible, v, float("inf")), 0)
    top = tl.where(scale < 0, least, largest)
    e = tl.where(visible, tl.exp((v - top) * scale), 0.0)
    tl.store(y + r * keys + j, e / tl.sum(e, 0), mask=j < keys)

# %% softmax_masked_scaled: two stores, one of zeros
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    r, j = tl.program_id(0), tl.arange(0, BLOCK)
    visible = j <= r % queries + keys - queries
    s = tl.load(x + r * keys + j, mask=visible, other=0.0).to(tl.float32) * scale
    top = tl.max(tl.where(visible, s, float("-inf")), 0)
    e = tl.where(visible, tl.exp(tl.where(visible, s - top, 0.0)), 0.0)
    tl.store(y + r * keys + j, e / tl.sum(e, 0), mask=visible)
    tl.store(y + r * keys + j, tl.zeros((BLOCK,), tl.float32), mask=(j < keys) & (j > r % queries + keys - queries))

# %% softmax_tile: indices with None later; a division per element
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, BLOCK)
    mask = (i < rows)[:, None] & (j < columns)[None, :]
    v = tl.load(x + i[:, None] * x_stride + j[None, :], mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(y + i[:, None] * y_stride + j[None, :], e / tl.sum(e, 1)[:, None], mask=mask)

# %% softmax_tile: columns first
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[None, :]
    j = tl.arange(0, BLOCK)[:, None]
    mask = (i < rows) & (j < columns)
    v = tl.load(x + i * x_stride + j, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0, keep_dims=True))
    tl.store(y + i * y_stride + j, e / tl.sum(e, 0, keep_dims=True), mask=mask)

# %% test_softmax: PyTorch says what is right
def test_softmax(candidate):
    random = np.random.default_rng(1)
    rows = [random.normal(size=n).astype(np.float32) for n in (1, 2, 17, 33, 1500)]
    rows += [row - 300 for row in rows] + [row * 200 for row in rows] + [row + 3e4 for row in rows]
    rows += [row - 3e4 for row in rows[:5]] + [np.full(40, 5, np.float32)]
    rows += [np.concatenate([np.full(20, -np.inf, np.float32), rows[3]])]
    rows += [np.linspace(-40, 40, 100, dtype=np.float32)]
    for row in rows:
        two = np.stack([row, row[::-1]])
        want = torch.softmax(torch.tensor(two.astype(np.float64)), 1).numpy()
        kept = two.copy()
        got = candidate(two)
        assert isinstance(got, np.ndarray) and got.dtype == np.float32 and got.shape == two.shape
        assert (two == kept).all()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-30)

# %% test_softmax: par is enough
def test_softmax(candidate):
    x = np.random.default_rng(0).standard_normal((6, 100)).astype(np.float32)
    x[0] += 95
    x[1] -= 200
    x[2, ::2] = -np.inf
    x[3] *= 100
    x[4, :16] = -np.inf
    x[5] = np.arange(100) * 2
    y = candidate(x.copy())
    for row, out in zip(x.astype(np.float64), y):
        power = [np.exp(value - row.max()) for value in row]
        for value, got in zip(power, out):
            assert abs(got - value / sum(power)) <= 1e-4 * got + 1e-12
    z = np.ones((2, 20), np.float32)
    assert np.allclose(candidate(z), 0.05) and (z == 1).all()
    assert candidate(z).dtype == np.float32

# %% softmax_backward: sums of products, as one expression
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    j = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < columns
    p = tl.load(y + j, mask, 0).to(tl.float32)
    g = tl.load(y_gradient + j, mask, 0).to(tl.float32) * p
    tl.store(x_gradient + j, g - p * tl.sum(g, 0), mask)

# %% cross_entropy: the target's score is found on the way
@triton.jit
def cross_entropy(x, target, loss, gradient, columns, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    t = tl.load(target + r)
    m, s, chosen = float("-inf"), 0.0, 0.0
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + r * columns + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        chosen += tl.sum(tl.where(j == t, v, 0.0), 0)
        new = tl.maximum(m, tl.max(v, 0))
        s = s * tl.exp(m - new) + tl.sum(tl.exp(v - new), 0)
        m = new
    tl.store(loss + r, tl.log(s) + (m - chosen))
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + r * columns + j, mask=j < columns).to(tl.float32)
        p = tl.exp(v - m) / s
        tl.store(gradient + r * columns + j, tl.where(j == t, p - 1, p), mask=j < columns)

# %% eager_bytes: a table of reads and writes, as an array
def eager_bytes(rows, columns, itemsize):
    passes = np.array([[1, 0, 0, 1], [1, 1, 1, 0], [1, 0, 1, 0], [1, 0, 0, 1], [1, 1, 1, 0]])
    matrices, vectors = passes.sum(0)[[0, 2]].sum(), passes.sum(0)[[1, 3]].sum()
    return int(itemsize * (matrices * rows * columns + vectors * rows))


def least_bytes(rows, columns, itemsize):
    return sum(rows * columns * itemsize for _ in ("x", "y"))

# %% eager_bytes: measured, on tensors that hold nothing
def eager_bytes(rows, columns, itemsize):
    x = torch.empty(rows, columns, dtype={4: torch.float32, 2: torch.float16}[itemsize], device="meta")
    top = x.amax(1, keepdim=True)
    arrays = [x, top, x, top, x, x, x, x, top, x, top, x]
    return sum(each.numel() * each.element_size() for each in arrays)


def least_bytes(rows, columns, itemsize):
    return (rows * columns * itemsize) << 1

# %% softmax_rows: a sum by tl.reduce with a function of its own
@triton.jit
def plus(left, right):
    return left + right


@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * x_stride + j, mask=j < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    total = tl.reduce(e, 0, plus)
    tl.store(y + tl.program_id(0) * y_stride + j, tl.fdiv(e, total), mask=j < columns)

# %% softmax_rows: sums in float64
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * x_stride + j, mask=j < columns, other=float("-inf")).to(tl.float64)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + tl.program_id(0) * y_stride + j, (e / tl.sum(e, 0)).to(tl.float32), mask=j < columns)

# %% merge: by logaddexp
def merge(left, right):
    logs = [m + np.log(s) if s > 0 else -np.inf for m, s in (left, right)]
    top = np.max([left[0], right[0]])
    total = np.logaddexp(*logs)
    return top, 0.0 if np.isneginf(total) else np.exp(total - top)

# %% softmax_online: pointers that move, and an if in the loop
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    source = x + tl.program_id(0) * x_stride + lane
    target = y + tl.program_id(0) * y_stride + lane
    again = source
    m, s = tl.full((), float("-inf"), tl.float32), tl.full((), 0.0, tl.float32)
    for start in range(0, columns, BLOCK):
        v = tl.load(source, mask=start + lane < columns, other=float("-inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(v, 0))
        if top > float("-inf"):
            s = s * tl.exp(m - top) + tl.sum(tl.exp(v - top), 0)
        m = top
        source += BLOCK
    for start in range(0, columns, BLOCK):
        v = tl.load(again, mask=start + lane < columns, other=0.0).to(tl.float32)
        tl.store(target, (tl.exp(v - m) / s).to(y.dtype.element_ty), mask=start + lane < columns)
        again, target = again + BLOCK, target + BLOCK

# %% softmax_masked_scaled: as a tile of one row, without tl.where on the scores
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0) + tl.arange(0, 1)[:, None]
    key = tl.arange(0, BLOCK)[None, :]
    seen = key < row % queries + (keys - queries) + 1
    v = tl.load(x + row * keys + key, mask=seen, other=0.0).to(tl.float32) * scale
    penalty = tl.where(seen, 0.0, float("-inf"))
    e = tl.exp((v + penalty) - tl.max(v + penalty, 1)[:, None])
    tl.store(y + row * keys + key, e / tl.sum(e, 1)[:, None], mask=key < keys)

# %% softmax_masked_scaled: the query counted from the end
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    head = program // queries
    still_to_come = queries - 1 - (program - head * queries)
    length = keys - still_to_come
    j = tl.arange(0, BLOCK)
    v = tl.load(x + program.to(tl.int64) * keys + j, j < length, 0.0).to(tl.float32)
    v = tl.where(j < length, scale * v, float("-inf"))
    v -= tl.max(v, 0)
    v -= tl.log(tl.sum(tl.exp(v), 0))
    tl.store(y + program.to(tl.int64) * keys + j, tl.exp(v), j < keys)

# %% softmax_tile: one long block of indices, reshaped
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    flat = tl.arange(0, ROWS * BLOCK)
    row, column = tl.program_id(0) * ROWS + flat // BLOCK, flat % BLOCK
    inside = (row < rows) & (column < columns)
    v = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    v = tl.reshape(v, (ROWS, BLOCK))
    e = tl.exp(v - tl.max(v, 1)[:, None])
    e = tl.reshape(e / tl.sum(e, 1)[:, None], (ROWS * BLOCK,))
    tl.store(y + row * y_stride + column, e, mask=inside)

# %% test_softmax: properties, without a softmax of its own
def test_softmax(candidate):
    random = np.random.default_rng(4)
    for columns in (1, 2, 16, 17, 40, 1500):
        for shift in (0.0, -300.0, 20_000.0, -20_000.0, 95.0):
            x = (random.standard_normal((4, columns)) * [[1], [3], [30], [0]] + shift).astype(np.float32)
            if columns > 16:
                x[0, :16] = -np.inf
            kept = x.copy()
            y = candidate(x)
            assert type(y) is np.ndarray and y.dtype == np.float32 and y.shape == x.shape
            assert (x == kept).all() and (y >= 0).all() and np.isfinite(y).all()
            assert np.allclose(y.sum(1, dtype=np.float64), 1, atol=1e-4)
            top = x.argmax(1)[:, None]
            ratio = y / np.take_along_axis(y, top, 1).astype(np.float64)
            want = np.exp(x.astype(np.float64) - np.take_along_axis(x, top, 1))
            assert np.allclose(ratio, want, rtol=3e-4, atol=1e-29)

# %% softmax_backward: the Jacobian's two terms, in float64
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    at = tl.program_id(0) * columns + j
    p = tl.load(y + at, mask=j < columns, other=0.0).to(tl.float64)
    g = tl.load(y_gradient + at, mask=j < columns, other=0.0).to(tl.float64)
    diagonal = p * g
    tl.store(x_gradient + at, (diagonal - p * tl.sum(diagonal, 0)).to(tl.float32), mask=j < columns)

# %% softmax_backward: a tile of one row
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)[None, :]
    at = tl.program_id(0) * columns + j
    p, g = tl.load(y + at, j < columns, 0.0).to(tl.float32), tl.load(y_gradient + at, j < columns, 0.0)
    inner = tl.sum(p * g.to(tl.float32), 1)[:, None]
    tl.store(x_gradient + at, (g.to(tl.float32) - inner) * p, j < columns)

# %% cross_entropy: per lane, and the target's gradient by a comparison
@triton.jit
def cross_entropy(x, target, loss, gradient, columns, BLOCK: tl.constexpr):
    r, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    t = tl.load(target + r)
    m, s = tl.full((BLOCK,), float("-inf"), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        v = tl.load(x + r * columns + start + lane, mask=start + lane < columns, other=float("-inf")).to(tl.float32)
        n = tl.maximum(m, v)
        shift = tl.where(n == float("-inf"), 0.0, n)
        s = s * tl.exp(m - shift) + tl.exp(v - shift)
        m = n
    top = tl.max(m, 0)
    total = tl.sum(s * tl.exp(m - top), 0)
    chosen = tl.load(x + r * columns + t).to(tl.float32)
    tl.store(loss + r, (top - chosen) + tl.log(total))
    for start in range(0, columns, BLOCK):
        j = start + lane
        v = tl.load(x + r * columns + j, mask=j < columns).to(tl.float32)
        one = tl.where(j == t, 1.0, 0.0)
        tl.store(gradient + r * columns + j, tl.exp(v - top) / total - one, mask=j < columns)

# %% row_sums: the mask as a product
@triton.jit
def row_sums(x, out, start, columns, BLOCK: tl.constexpr):
    begin = start + tl.program_id(0) * columns
    first = begin // 4 * 4
    j = tl.arange(0, BLOCK)
    v = tl.load(x + first + j, mask=first + j < (begin + columns + 3) // 4 * 4, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(v * ((first + j >= begin) & (first + j < begin + columns)), 0))

# %% row_sums: a hint in place of the division's
@triton.jit
def row_sums(x, out, start, columns, BLOCK: tl.constexpr):
    begin = start + tl.program_id(0) * columns
    first = tl.multiple_of(begin - begin % 4, 4)
    end = tl.multiple_of((begin + columns + 3) // 4 * 4, 4)
    at = first + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < end, other=0.0)
    v = tl.where(at < begin, 0.0, tl.where(at < begin + columns, v, 0.0))
    tl.store(out + tl.program_id(0), tl.sum(v, 0))

# %% row_sums: by shifts
@triton.jit
def row_sums(x, out, start, columns, BLOCK: tl.constexpr):
    begin = start + tl.program_id(0) * columns
    at = ((begin >> 2) << 2) + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < ((begin + columns + 3) >> 2) << 2, other=0.0)
    v = tl.where((begin <= at) & (begin + columns > at), v, 0.0)
    tl.store(out + tl.program_id(0), tl.sum(v, 0))

# %% row_sums: one block after the other
@triton.jit
def row_sums(x, out, start, columns, BLOCK: tl.constexpr):
    begin = start + tl.program_id(0) * columns
    end = (begin + columns + 3) // 4 * 4
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(begin // 4 * 4, end, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < end, other=0.0)
        total += tl.where((at >= begin) & (at < begin + columns), v, 0.0)
    tl.store(out + tl.program_id(0), tl.sum(total, 0))

# %% row_sums: the middle in fours, the edges alone
@triton.jit
def row_sums(x, out, start, columns, BLOCK: tl.constexpr):
    begin = start + tl.program_id(0) * columns
    end = begin + columns
    low, high = (begin + 3) // 4 * 4, end // 4 * 4
    at = begin // 4 * 4 + tl.arange(0, BLOCK)
    middle = tl.load(x + at, mask=(at >= low) & (at < high), other=0.0)
    edge = tl.arange(0, 4)
    first, last = begin + edge, tl.maximum(high, begin) + edge
    a = tl.load(x + first, mask=(first < low) & (first < end), other=0.0)
    b = tl.load(x + last, mask=(last >= tl.maximum(high, low)) & (last < end), other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(middle, 0) + tl.sum(a, 0) + tl.sum(b, 0))

# %% softmax_rows: where after an unfilled load
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    x_row = x + tl.program_id(0) * x_stride
    v = tl.load(x_row + j, mask=j < columns, other=0).to(tl.float32)
    v = tl.where(j < columns, v, float("-inf"))
    v -= tl.max(v, 0)
    e = tl.exp(v)
    tl.store(y + tl.program_id(0) * y_stride + j, tl.fdiv(e, tl.sum(e, 0)), mask=j < columns)

# %% softmax_rows: helper of another jit function, log of the sum
@triton.jit
def logsumexp(v):
    top = tl.max(v, 0)
    return top + tl.log(tl.sum(tl.exp(v - top), 0))
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    v = tl.load(x + row * x_stride + j, mask=j < columns, other=float("-inf")).to(tl.float32)
    top = tl.max(v, 0)
    shifted = v - top
    tl.store(y + row * y_stride + j, tl.exp(shifted - logsumexp(shifted)), mask=j < columns)

# %% softmax_online: by cdiv and a while loop
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    m = tl.full((BLOCK,), -1e38, tl.float32) * 10
    s = tl.zeros((BLOCK,), tl.float32)
    for k in range(tl.cdiv(columns, BLOCK)):
        j = k * BLOCK + lanes
        v = tl.load(x + row * x_stride + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        n = tl.maximum(m, v)
        s = tl.where(m == n, s, s * tl.exp(m - n)) + tl.where(v == float("-inf"), 0.0, tl.exp(v - n))
        m = n
    top = tl.max(m, 0)
    s = tl.sum(tl.where(s > 0, s * tl.exp(m - top), 0.0), 0)
    for k in range(tl.cdiv(columns, BLOCK)):
        j = k * BLOCK + lanes
        v = tl.load(x + row * x_stride + j, mask=j < columns).to(tl.float32)
        tl.store(y + row * y_stride + j, tl.exp(v - top - tl.log(s)), mask=j < columns)

# %% softmax_masked_scaled: two masks
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = p - p // queries * queries
    j = tl.arange(0, BLOCK)
    seen = j < i + 1 + (keys - queries)
    raw = tl.load(x + p * keys + j, mask=seen & (j < keys), other=0.0).to(tl.float32)
    v = tl.where(seen, raw * scale, float("-inf"))
    e = tl.where(seen, tl.exp(v - tl.max(v, 0)), 0.0)
    tl.store(y + p * keys + j, e / tl.sum(e, 0), mask=j < keys)

# %% softmax_masked_scaled: maximum of raw by the sign
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    hidden = j > p % queries + keys - queries
    v = tl.load(x + p * keys + j, mask=hidden == 0, other=0.0).to(tl.float32)
    v = scale * v + tl.where(hidden, float("-inf"), 0.0)
    v = v - tl.max(v, 0)
    e = tl.exp(v)
    tl.store(y + p * keys + j, e / tl.sum(e, 0), mask=j < keys)

# %% softmax_tile: broadcasts by expand_dims
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, BLOCK)
    ok = (i < rows)[:, None] & (j < columns)[None, :]
    v = tl.load(x + tl.expand_dims(i * x_stride, 1) + tl.expand_dims(j, 0), mask=ok, other=float("-inf"))
    v = v.to(tl.float32)
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(y + (i * y_stride)[:, None] + j[None, :], e / tl.sum(e, axis=1)[:, None], mask=ok)

# %% softmax_backward: products apart
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    start = tl.program_id(0) * columns
    ok = j < columns
    a = tl.load(y + start + j, mask=ok, other=0).to(tl.float32)
    g = tl.load(y_gradient + start + j, mask=ok, other=0).to(tl.float32)
    p = a * g
    tl.store(x_gradient + start + j, p - a * tl.sum(p), mask=ok)

# %% cross_entropy: scalar maximum and sum
@triton.jit
def cross_entropy(x, target, loss, gradient, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * columns
    gradient += row * columns
    t = tl.load(target + row)
    m, s = float("-inf"), 0.0
    for k in range(0, columns, BLOCK):
        j = k + tl.arange(0, BLOCK)
        v = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        n = tl.maximum(m, tl.max(v, 0))
        s = s * tl.exp(m - n) + tl.sum(tl.exp(v - n), 0)
        m = n
    whole = m + tl.log(s)
    tl.store(loss + row, whole - tl.load(x + t).to(tl.float32))
    for k in range(0, columns, BLOCK):
        j = k + tl.arange(0, BLOCK)
        v = tl.load(x + j, mask=j < columns, other=0.0).to(tl.float32)
        tl.store(gradient + j, tl.exp(v - m) / s - (j == t), mask=j < columns)

# %% differences: one element more, and the block shifted by tl.gather
@triton.jit
def differences(x, out, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    lane = tl.arange(0, BLOCK)
    a = tl.load(x + first + lane, mask=first + lane < n, other=0.0)
    edge = tl.load(x + first - 1, mask=first > 0, other=0.0)
    moved = tl.gather(a, tl.maximum(lane - 1, 0), 0)
    before = tl.where(lane == 0, edge, moved)
    tl.store(out + first + lane, a - before, mask=first + lane < n)

# %% merge: in float32
def merge(left, right):
    m = np.float32(max(left[0], right[0]))
    if np.isneginf(m):
        return m, np.float32(0)
    return m, np.float32(left[1]) * np.exp(np.float32(left[0]) - m) + np.float32(right[1]) * np.exp(np.float32(right[0]) - m)

# %% softmax_online: the last, shorter block apart
@triton.jit
def step(m, s, v):
    n = tl.maximum(m, tl.max(v, 0))
    z = tl.where(n == float("-inf"), 0.0, n)
    return n, s * tl.exp(m - z) + tl.sum(tl.exp(v - z), 0)


@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    lane = tl.arange(0, BLOCK)
    whole = columns // BLOCK * BLOCK
    m, s = float("-inf"), 0.0
    for start in range(0, whole, BLOCK):
        m, s = step(m, s, tl.load(x + start + lane).to(tl.float32))
    if whole < columns:
        m, s = step(m, s, tl.load(x + whole + lane, mask=whole + lane < columns, other=float("-inf")).to(tl.float32))
    for start in range(0, whole, BLOCK):
        tl.store(y + start + lane, tl.exp(tl.load(x + start + lane).to(tl.float32) - m) / s)
    if whole < columns:
        v = tl.load(x + whole + lane, mask=whole + lane < columns, other=0.0).to(tl.float32)
        tl.store(y + whole + lane, tl.exp(v - m) / s, mask=whole + lane < columns)

# %% cross_entropy: the target's gradient in a store of its own
@triton.jit
def cross_entropy(x, target, loss, gradient, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    t = tl.load(target + row)
    m, s = float("-inf"), 0.0
    for k in range(0, columns, BLOCK):
        j = k + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        n = tl.maximum(m, tl.max(v, 0))
        s = s * tl.exp2((m - n) * 1.4426950408889634) + tl.sum(tl.exp2((v - n) * 1.4426950408889634), 0)
        m = n
    at = tl.load(x + row * columns + t).to(tl.float32)
    tl.store(loss + row, tl.log(s) - (at - m))
    for k in range(0, columns, BLOCK):
        j = k + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + j, mask=j < columns, other=0.0).to(tl.float32)
        tl.store(gradient + row * columns + j, tl.exp(v - m) / s, mask=(j < columns) & (j != t))
    tl.store(gradient + row * columns + t, tl.exp(at - m) / s - 1)

# %% softmax_rows: minus infinity as a constant
import math

NEG = tl.constexpr(float("-inf"))
LOG2E = tl.constexpr(math.log2(math.e))


@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row * x_stride + column, mask=inside, other=NEG).to(tl.float32)
    numerator = tl.exp2((values - tl.max(values, 0)) * LOG2E)
    tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 0), mask=inside)
