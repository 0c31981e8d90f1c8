# %% attention_bytes: a loop over programs
def attention_bytes(n, d, itemsize, block_q):
    fused = 0
    for start in range(0, n, block_q):
        rows = min(n, start + block_q) - start
        fused += itemsize * (rows * d + n * d + n * d + rows * d) + 4 * rows
    products = (n * d + n * d + n * n) + (n * n + n * d + n * d)
    return itemsize * (products + 2 * n * n), fused

# %% attention_bytes: the closed form, in NumPy's integers
def attention_bytes(n, d, itemsize, block_q):
    programs = math.ceil(n / block_q)
    return np.int64(itemsize) * (4 * n * n + 4 * n * d), 2 * n * d * itemsize * (1 + programs) + 4 * n

# %% merge: by logarithms of nothing
def merge(left, right):
    m = np.maximum(left[0], right[0])
    with np.errstate(invalid="ignore"):
        a = np.nan_to_num(np.exp(left[0] - m))
        b = np.nan_to_num(np.exp(right[0] - m))
    return m, a * left[1] + b * right[1], a[:, None] * left[2] + b[:, None] * right[2]

# %% merge: one query at a time
def merge(left, right):
    result = [], [], []
    for m, s, o, n, t, u in zip(*left, *right):
        top = max(m, n)
        a = 0.0 if m == -np.inf else np.exp(m - top)
        b = 0.0 if n == -np.inf else np.exp(n - top)
        for part, x in zip(result, (top, a * s + b * t, a * o + b * u)):
            part.append(x)
    return tuple(map(np.array, result))

# %% merge: a list; the smaller is added to the larger
def merge(left, right):
    (m, s, o), (n, t, u) = left, right
    first = (m >= n)
    top, low = np.where(first, m, n), np.where(first, n, m)
    factor = np.where(low == -np.inf, 0.0, np.exp(low - np.where(top == -np.inf, 0.0, top)))
    a, b = np.where(first, 1.0, factor), np.where(first, factor, 1.0)
    return [top, a * s + b * t, a[:, None] * o + b[:, None] * u]

# %% merge: m as a column
def merge(left, right):
    stacked = np.stack([left[0], right[0]])
    top = stacked.max(axis=0)
    weight = np.exp(stacked - np.where(np.isneginf(top), 0, top))
    s = (weight * np.stack([left[1], right[1]])).sum(0)
    o = np.einsum("pq,pqd->qd", weight, np.stack([left[2], right[2]]))
    return top, s, o

# %% flash_forward: powers of two
# - x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0))) * scale
# + x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0))) * (scale * 1.4426950408889634)
# ...
# edit: tl.exp(m - shift), tl.exp(x - shift[:, None])  ->  tl.exp2(m - shift), tl.exp2(x - shift[:, None])
# edit: m + tl.log(s)  ->  m * 0.6931471805599453 + tl.log(s)

# %% flash_forward: pointers move, keys are loaded transposed
@triton.jit
def flash_forward(q, k, v, o, lse, N_Q, N_K, scale, CAUSAL: tl.constexpr, D: tl.constexpr,
                  BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    head = tl.program_id(1)
    i, j, d = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K), tl.arange(0, D)
    q += head * N_Q * D
    k_tile = k + head * N_K * D + j[None, :] * D + d[:, None]
    v_tile = v + head * N_K * D + j[:, None] * D + d[None, :]
    x_q = tl.load(q + i[:, None] * D + d[None, :], mask=(i < N_Q)[:, None], other=0.0)
    m_i, l_i = tl.zeros([BLOCK_Q], tl.float32) - float("inf"), tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for start in range(0, N_K, BLOCK_K):
        ok = start + j < N_K
        s = tl.dot(x_q, tl.load(k_tile, mask=ok[None, :], other=0.0)) * scale
        s = tl.where(ok[None, :], s, float("-inf"))
        if CAUSAL:
            s = tl.where(i[:, None] + (N_K - N_Q) >= (start + j)[None, :], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.where(s == float("-inf"), 0.0, tl.exp(s - m_new[:, None]))
        alpha = tl.where(m_i == float("-inf"), 0.0, tl.exp(m_i - m_new))
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(v.dtype.element_ty), tl.load(v_tile, mask=ok[:, None], other=0.0), acc)
        m_i = m_new
        k_tile += BLOCK_K * D
        v_tile += BLOCK_K * D
    out = tl.where(l_i[:, None] > 0, acc / l_i[:, None], 0.0)
    o_tile = o + head * N_Q * D + i[:, None] * D + d[None, :]
    tl.store(o_tile, out.to(o.dtype.element_ty), mask=(i < N_Q)[:, None])
    tl.store(lse + head * N_Q + i, tl.where(l_i > 0, m_i + tl.log(l_i), float("-inf")), mask=i < N_Q)

# %% flash_forward: causal tiles above the diagonal are not loaded
# - for start in range(0, N_K, BLOCK_K):
# + last = N_K
# + if CAUSAL:
# +     last = tl.maximum(0, tl.minimum(N_K, (tl.program_id(0) + 1) * BLOCK_Q + N_K - N_Q))
# + for start in range(0, last, BLOCK_K):

# %% flash_forward: keys from the last block to the first
# edit: for start in range(0, N_K, BLOCK_K):  ->  for back in range(0, tl.cdiv(N_K, BLOCK_K)):
# -     j = start + tl.arange(0, BLOCK_K)
# +     j = (tl.cdiv(N_K, BLOCK_K) - 1 - back) * BLOCK_K + tl.arange(0, BLOCK_K)

# %% flash_forward: with a helper of its own
@triton.jit
def merged(m, s, total, x, values):
    top = tl.maximum(m, tl.max(x, 1))
    safe = tl.where(top == float("-inf"), 0.0, top)
    old, weights = tl.exp(m - safe), tl.exp(x - safe[:, None])
    total = total * old[:, None] + tl.dot(weights.to(values.dtype), values)
    return top, s * old + tl.sum(weights, 1), total


@triton.jit
def flash_forward(q, k, v, o, lse, N_Q, N_K, scale, CAUSAL: tl.constexpr, D: tl.constexpr,
                  BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    head, d = tl.program_id(1), tl.arange(0, D)[None, :]
    i = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    at_q = (head * N_Q + i)[:, None] * D + d
    queries = tl.load(q + at_q, mask=i[:, None] < N_Q, other=0.0)
    m = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    s = tl.full((BLOCK_Q,), 0.0, tl.float32)
    total = tl.full((BLOCK_Q, D), 0.0, tl.float32)
    for block in range(tl.cdiv(N_K, BLOCK_K)):
        j = block * BLOCK_K + tl.arange(0, BLOCK_K)
        at = (head * N_K + j)[:, None] * D + d
        keys = tl.load(k + at, mask=j[:, None] < N_K, other=0.0)
        values = tl.load(v + at, mask=j[:, None] < N_K, other=0.0)
        hidden = (j >= N_K)[None, :]
        if CAUSAL:
            hidden = hidden | (j[None, :] - i[:, None] > N_K - N_Q)
        x = tl.where(hidden, float("-inf"), scale * tl.dot(queries, keys.T))
        m, s, total = merged(m, s, total, x, values)
    whole = tl.maximum(s, 1e-30)
    tl.store(o + at_q, tl.where(s[:, None] == 0, 0.0, total / whole[:, None]), mask=i[:, None] < N_Q)
    tl.store(lse + head * N_Q + i, tl.where(s == 0, float("-inf"), m + tl.log(whole)), mask=i < N_Q)

# %% sliding_window: torch's functions and methods
def sliding_window(b, h, i, j):
    return torch.logical_and(i.ge(j), (i - j).lt(WINDOW))


def prefix(b, h, i, j):
    return torch.logical_or(i.ge(j), j.lt(PREFIX).expand(i.shape[0], j.shape[1]))


def documents(b, h, i, j):
    starts = torch.tensor(STARTS)
    number_i = torch.searchsorted(starts, i.contiguous(), right=True)
    number_j = torch.searchsorted(starts, j.contiguous(), right=True)
    return torch.logical_and(number_i == number_j, i >= j)


def alibi(score, b, h, i, j):
    return score + 2.0 ** (-h - 1.0) * (j - i)


def soft_cap(score, b, h, i, j):
    return score.div(CAP).tanh().mul(CAP)


def soft_cap_slope(score, b, h, i, j):
    return 1 / torch.cosh(score / CAP) ** 2

# %% sliding_window: numbers of documents by where; the slope by the cap
def sliding_window(b, h, i, j):
    distance = i - j
    return (distance >= 0) & (distance <= WINDOW - 1)


def prefix(b, h, i, j):
    return (j <= i) | (j <= PREFIX - 1)


def documents(b, h, i, j):
    a = sum(torch.where(i >= start, 1, 0) for start in STARTS)
    c = sum(torch.where(j >= start, 1, 0) for start in STARTS)
    return (a == c) & (j <= i)


def alibi(score, b, h, i, j):
    return score - (i - j) * torch.exp2(-h - 1.0)


def soft_cap(score, b, h, i, j):
    power = torch.exp(-2 * torch.abs(score) / CAP)
    return torch.sign(score) * CAP * (1 - power) / (1 + power)


def soft_cap_slope(score, b, h, i, j):
    ratio = soft_cap(score, b, h, i, j) / CAP
    return (1 - ratio) * (1 + ratio)

# %% block_mask: counts what is visible
def block_mask(mask_mod, queries, keys, block_q, block_k):
    rows = []
    for top in range(0, queries, block_q):
        row = []
        for left in range(0, keys, block_k):
            i = torch.arange(top, min(top + block_q, queries)).reshape(-1, 1)
            j = torch.arange(left, min(left + block_k, keys)).reshape(1, -1)
            visible = torch.broadcast_to(mask_mod(0, 0, i, j), (i.numel(), j.numel()))
            count = int(visible.sum())
            row.append(0 if count == 0 else 2 if count == visible.numel() else 1)
        rows.append(row)
    return torch.tensor(rows, dtype=torch.int32)

# %% block_mask: split positions; any plus all
def block_mask(mask_mod, queries, keys, block_q, block_k):
    tiles = [[mask_mod(0, 0, i[:, None], j[None, :]) for j in torch.arange(keys).split(block_k)]
             for i in torch.arange(queries).split(block_q)]
    return torch.tensor([[int(tile.any()) + int(tile.all()) for tile in row] for row in tiles],
                        dtype=torch.int32)

# %% block_mask: one query at a time
def block_mask(mask_mod, queries, keys, block_q, block_k):
    zero = torch.tensor(0)
    made = np.zeros((math.ceil(queries / block_q), math.ceil(keys / block_k)), np.int32)
    for row in range(made.shape[0]):
        for column in range(made.shape[1]):
            j = torch.arange(column * block_k, min(keys, column * block_k + block_k))[None]
            seen = [mask_mod(zero, zero, torch.tensor([[i]]), j).flatten().tolist()
                    for i in range(row * block_q, min(queries, row * block_q + block_q))]
            flat = sum(seen, [])
            made[row, column] = any(flat) + all(flat)
    return torch.from_numpy(made)

# %% flex_forward: the mask in full tiles, too
# edit: if kind == 1:  ->  if kind > 0:

# %% flex_forward: bounds in the mask, other names for what is stored
# - x = tl.where(j[None, :] < N_K, x, float("-inf"))
#   if kind == 1:
# -     x = tl.where(MASK(b, h, i[:, None], j[None, :]), x, float("-inf"))
# +     x = tl.where(MASK(b, h, i[:, None], j[None, :]), x, -float("inf"))
# + x += tl.where(j < N_K, 0.0, -float("inf"))[None, :]

# %% flex_forward: values are loaded beside the keys
# - x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0))) * scale
# + keys = tl.load(k + at, mask=inside, other=0.0)
# + values = tl.load(v + at, mask=inside, other=0.0)
# + x = scale * tl.dot(queries, keys.T)
# ...
# -     values = tl.load(v + at, mask=inside, other=0.0)
#       total = total * old[:, None] + tl.dot(weights.to(values.dtype), values)

# %% flex_forward: two passes over the kinds, full tiles first
# - for tile in range(0, blocks):
# -     kind = tl.load(kinds + block * blocks + tile)
# -     if kind != 0:
# + for turn in range(0, 2 * blocks):
# +     tile, wanted = turn % blocks, 2 - turn // blocks
# +     kind = tl.load(kinds + block * blocks + tile)
# +     if kind == wanted:

# %% flex_forward: weights by where, and a division at the end by cases
# - s = tl.where(s == 0, 1.0, s)
# - tl.store(o + rows[:, None] * D + d, total / s[:, None], mask=there[:, None])
# - tl.store(lse + rows, m + tl.log(s), mask=there)
# + result = tl.where(s[:, None] > 0, total / s[:, None], 0.0)
# + tl.store(o + rows[:, None] * D + d, result.to(o.dtype.element_ty), mask=there[:, None])
# + tl.store(lse + rows, tl.where(s > 0, m + tl.log(s), float("-inf")), mask=there)

# %% flash_backward: loops over heads and blocks
# - for step in range(0, GROUP * blocks_q):
# -     h, block_q = key_head * GROUP + step // blocks_q, step % blocks_q
# + for step in range(0, GROUP * blocks_q):
# +     h, block_q = key_head * GROUP + step % GROUP, step // GROUP

# %% flash_backward: scale at the end
# edit: SLOPE(x, b, h, i[:, None], j[None, :]) * scale  ->  SLOPE(x, b, h, i[:, None], j[None, :])
# edit: tl.dot(dx, keys), mask=there[:, None]  ->  tl.dot(dx, keys) * scale, mask=there[:, None]
# edit: tl.store(dk + at_k, dk_sum, mask  ->  tl.store(dk + at_k, dk_sum * scale, mask

# %% flash_backward: tiles transposed
# - x = tl.dot(queries, tl.trans(keys)) * scale
# + x = tl.trans(tl.dot(keys, tl.trans(queries))) * scale
# ...
# edit: dv_sum += tl.dot(tl.trans(p).to(given.dtype), given)  ->  dv_sum = tl.dot(tl.trans(p.to(given.dtype)), given, dv_sum)

# %% flash_backward: queries from the last block to the first, scores with their own dtype
# edit: step // blocks_q, step % blocks_q  ->  step // blocks_q, blocks_q - 1 - step % blocks_q

# %% flash_backward: the mask as a factor
# - p = tl.where(visible, tl.exp(y - total[:, None]), 0.0)
# + top = tl.where(total == float("-inf"), 0.0, total)
# + p = tl.exp(y - top[:, None])

# %% decode_split: sums in place of dots
@triton.jit
def decode_split(q, k, v, m, s, o, N, size, scale, GROUP: tl.constexpr, D: tl.constexpr,
                 BLOCK: tl.constexpr):
    part, key_head = tl.program_id(0), tl.program_id(1)
    row, d = tl.arange(0, 16), tl.arange(0, D)
    mine, head = row < GROUP, key_head * GROUP + row
    x_q = tl.load(q + head[:, None] * D + d[None, :], mask=mine[:, None], other=0.0).to(tl.float32)
    top = tl.full((16,), float("-inf"), tl.float32)
    total, out = tl.zeros((16,), tl.float32), tl.zeros((16, D), tl.float32)
    last = tl.minimum(N, part * size + size)
    for start in range(part * size, last, BLOCK):
        j = start + tl.arange(0, BLOCK)
        at = (key_head * N + j)[:, None] * D + d[None, :]
        keys = tl.load(k + at, mask=(j < last)[:, None], other=0.0).to(tl.float32)
        values = tl.load(v + at, mask=(j < last)[:, None], other=0.0).to(tl.float32)
        x = tl.sum(x_q[:, None, :] * keys[None, :, :], 2) * scale
        x = tl.where((j < last)[None, :], x, float("-inf"))
        higher = tl.maximum(top, tl.max(x, 1))
        weights, old = tl.exp(x - higher[:, None]), tl.exp(top - higher)
        total = total * old + tl.sum(weights, 1)
        out = out * old[:, None] + tl.sum(weights[:, :, None] * values[None, :, :], 1)
        top = higher
    heads = tl.num_programs(1) * GROUP
    tl.store(m + part * heads + head, top, mask=mine)
    tl.store(s + part * heads + head, total, mask=mine)
    tl.store(o + (part * heads + head)[:, None] * D + d[None, :], out, mask=mine[:, None])

# %% decode_split: a loop over blocks of the part
# - for start in range(part * size, end, BLOCK):
# -     j = start + tl.arange(0, BLOCK)
# + for block in range(0, tl.cdiv(end - part * size, BLOCK)):
# +     j = part * size + block * BLOCK + tl.arange(0, BLOCK)

# %% decode_split: powers of two
# edit: other=0.0))) * scale  ->  other=0.0))) * scale * 1.4426950408889634
# edit: tl.exp(top - higher), tl.exp(x - higher[:, None])  ->  tl.exp2(top - higher), tl.exp2(x - higher[:, None])
# edit: tl.store(m + place, top, mask=mine)  ->  tl.store(m + place, top * 0.6931471805599453, mask=mine)

# %% with_sink: one more column
def with_sink(o, lse, sink):
    both = torch.stack([lse, sink[:, None].expand(lse.shape)], -1)
    return o * both.softmax(-1)[..., :1]

# %% with_sink: logaddexp
def with_sink(o, lse, sink):
    return o * torch.exp(lse - torch.logaddexp(lse, sink[:, None])).unsqueeze(-1)

# %% test_attention: by PyTorch, with many sizes
def test_attention(candidate):
    for seed, (n, m, d) in enumerate([(1, 1, 2), (7, 7, 4), (20, 37, 16), (17, 17, 9), (3, 64, 32)]):
        for level in (0, 1, -1, 2):
            random = np.random.default_rng(seed)
            q, k, v = (random.standard_normal((rows, d)).astype(np.float32) for rows in (n, m, m))
            k *= np.linspace(1, 30, m, dtype=np.float32)[:, None] if level == 0 else 1
            if level:
                k[:, 0], q[:, 0] = 20, 15 * d**0.5 * (1 if level == 1 else -1)
                q[: n // 2, 0] *= -1 if level == 2 else 1
            kept = [torch.tensor(x.copy()).double() for x in (q, k, v)]
            seen = torch.ones(n, m, dtype=torch.bool).tril(m - n)
            want = F.scaled_dot_product_attention(*kept, attn_mask=seen).numpy()
            got = candidate(q, k, v)
            assert got.dtype == np.float32
            assert got.shape == (n, d)
            assert np.allclose(got, want, rtol=1e-3, atol=1e-3)
            for x, y in zip((q, k, v), kept):
                assert np.array_equal(x, y.numpy().astype(np.float32))
