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

# %% attention_bytes: recursive in the blocks
def attention_bytes(n, d, itemsize, block_q):
    def walked(left):
        if left <= 0:
            return 0
        rows = min(left, block_q)
        return (2 * rows + 2 * n) * d * itemsize + 4 * rows + walked(left - block_q)
    return 4 * n * (n + d) * itemsize, sum(walked(part) for part in _parts(n, block_q))


def _parts(n, block_q):
    whole, rest = divmod(n, block_q)
    return [block_q] * whole + [rest] * (rest > 0)

# %% merge: a list; the smaller is added to the larger
def merge(left, right):
    (m, s, o), (n, t, u) = left, right
    first = (m >= n)
    top, low = np.where(first, m, n), np.where(first, n, m)
    factor = np.where(low == -np.inf, 0.0, np.exp(low - np.where(top == -np.inf, 0.0, top)))
    a, b = np.where(first, 1.0, factor), np.where(first, factor, 1.0)
    return [top, a * s + b * t, a[:, None] * o + b[:, None] * u]

# %% merge: in torch
def merge(left, right):
    (m, s, o), (n, t, u) = ([torch.from_numpy(x) for x in part] for part in (left, right))
    top = torch.maximum(m, n)
    shift = top.nan_to_num(neginf=0.0)
    a, b = (m - shift).exp(), (n - shift).exp()
    return tuple(x.numpy() for x in (top, a * s + b * t, a.unsqueeze(1) * o + b.unsqueeze(1) * u))

# %% merge: NaN replaced after the subtraction
def merge(left, right):
    (m, s, o), (n, t, u) = left, right
    top = np.maximum(m, n)
    with np.errstate(invalid="ignore"):
        a, b = (np.nan_to_num(np.exp(x - top), nan=0.0) for x in (m, n))
    return top, a * s + b * t, (a * o.T + b * u.T).T

# %% flash_forward: causal tiles above the diagonal are not loaded
# - for start in range(0, N_K, BLOCK_K):
# + last = N_K
# + if CAUSAL:
# +     last = tl.maximum(0, tl.minimum(N_K, (tl.program_id(0) + 1) * BLOCK_Q + N_K - N_Q))
# + for start in range(0, last, BLOCK_K):

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

# %% flash_forward: whole tiles in one loop, the others in a second one
# - for start in range(0, N_K, BLOCK_K):
# + for turn in range(0, tl.cdiv(N_K, BLOCK_K)):
# +     start = turn * BLOCK_K
# ...
# - x = tl.where(visible, x, float("-inf"))
# + if CAUSAL or start + BLOCK_K > N_K:
# +     x = tl.where(visible, x, float("-inf"))

# %% flash_forward: a while loop, maxima with their dimension kept
# - for start in range(0, N_K, BLOCK_K):
# + start = 0
# + while start < N_K:
# ...
# -     top = tl.maximum(m, tl.max(x, 1))
# +     start += BLOCK_K
# +     top = tl.maximum(m, tl.reshape(tl.max(x, axis=1, keep_dims=True), (BLOCK_Q,)))

# %% sliding_window: torch's functions and methods
def sliding_window(b, h, i, j):
    return torch.logical_and(i.ge(j), (i - j).lt(WINDOW))


def prefix(b, h, i, j):
    return torch.logical_or(i.ge(j), j.lt(PREFIX))


def documents(b, h, i, j):
    other = torch.logical_xor(i.lt(STARTS[1]), j.lt(STARTS[1]))
    other = torch.logical_or(other, torch.logical_xor(i.lt(STARTS[2]), j.lt(STARTS[2])))
    return torch.logical_and(torch.logical_not(other), i.ge(j))


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

# %% sliding_window: by distances and sums
def sliding_window(b, h, i, j):
    back = i - j
    return (back * (WINDOW - 1 - back)) >= 0


def prefix(b, h, i, j):
    return j < torch.clamp(i + 1, min=PREFIX)


def documents(b, h, i, j):
    same = i == i
    for start in STARTS:
        same = same & ~((i >= start) ^ (j >= start))
    return same & (j <= i)


def alibi(score, b, h, i, j):
    return score + (j - i) / 2 ** (h + 1)


def soft_cap(score, b, h, i, j):
    return CAP * (2 * torch.sigmoid(2 * score / CAP) - 1)


def soft_cap_slope(score, b, h, i, j):
    part = torch.sigmoid(2 * score / CAP)
    return 4 * part * (1 - part)

# %% sliding_window: by cases
def sliding_window(b, h, i, j):
    return torch.where(j > i, j < i, i - j < WINDOW)


def prefix(b, h, i, j):
    return torch.where(j < PREFIX, j >= 0, j <= i)


def documents(b, h, i, j):
    seen = i < 0
    for start, end in zip(STARTS, (*STARTS[1:], 10**9)):
        seen = seen | ((i >= start) & (i < end) & (j >= start) & (j < end))
    return seen & (i >= j)


def alibi(score, b, h, i, j):
    slope = 0.5 ** (h + 1)
    return score - slope * i + slope * j


def soft_cap(score, b, h, i, j):
    power = torch.exp(-2 * torch.abs(score) / CAP)
    positive = CAP * (1 - power) / (1 + power)
    return torch.where(score < 0, -positive, positive)


def soft_cap_slope(score, b, h, i, j):
    power = torch.exp(-2 * abs(score) / CAP)
    return 4 * power / (1 + power) ** 2

# %% sliding_window: the mods call each other
def causal(b, h, i, j):
    return ~(i < j)


def sliding_window(b, h, i, j):
    return causal(b, h, i, j) & causal(b, h, j, i - WINDOW + 1)


def prefix(b, h, i, j):
    return causal(b, h, i, j) | causal(b, h, PREFIX - 1, j)


def document_of(position):
    return sum((position >= start) * 1 for start in STARTS)


def documents(b, h, i, j):
    return (document_of(i) == document_of(j)) & causal(b, h, i, j)


def alibi(score, b, h, i, j):
    return torch.sub(score, torch.mul(i - j, torch.exp2(-1.0 - h)))


def soft_cap(score, b, h, i, j):
    return (score / CAP).tanh() * CAP


def soft_cap_slope(score, b, h, i, j):
    return torch.sub(1, torch.square(torch.tanh(score / CAP)))

# %% sliding_window: comparisons as numbers
def sliding_window(b, h, i, j):
    return ((i >= j) * 1 + (i < j + WINDOW) * 1) == 2


def prefix(b, h, i, j):
    return (i >= j).float() + (j < PREFIX).float() > 0.5


def documents(b, h, i, j):
    seen = i >= j
    for start in STARTS[1:]:
        seen = seen & ((i < start) == (j < start))
    return seen


def alibi(score, b, h, i, j):
    return score - torch.exp2(-(1 + h) * 1.0) * torch.where(i >= j, abs(i - j), -abs(i - j))


def soft_cap(score, b, h, i, j):
    return torch.mul(torch.tanh(torch.div(score, CAP)), CAP)


def soft_cap_slope(score, b, h, i, j):
    x = score / CAP
    return (1 - x.tanh()) * (1 + x.tanh())

# %% sliding_window: no mask is built of one comparison alone
def sliding_window(b, h, i, j):
    return ~((j > i) | (j <= i - WINDOW))


def prefix(b, h, i, j):
    return torch.logical_not((j > i) & (j >= PREFIX))


def documents(b, h, i, j):
    crossed = j > i
    for start in STARTS:
        crossed = crossed | ((i >= start) & (j < start))
    return ~crossed


def alibi(score, b, h, i, j):
    return score - (i - j) * torch.exp(-(h + 1) * math.log(2))


def soft_cap(score, b, h, i, j):
    up, down = torch.exp(score / CAP), torch.exp(-score / CAP)
    return CAP * (up - down) / (up + down)


def soft_cap_slope(score, b, h, i, j):
    up, down = torch.exp(score / CAP), torch.exp(-score / CAP)
    return 4 / (up + down) ** 2

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

# %% block_mask: smallest and largest answer
def block_mask(mask_mod, queries, keys, block_q, block_k):
    made = torch.empty(math.ceil(queries / block_q), math.ceil(keys / block_k), dtype=torch.int32)
    for (row, column), _ in np.ndenumerate(made.numpy()):
        i = torch.arange(queries)[row * block_q :][:block_q].view(-1, 1)
        j = torch.arange(keys)[column * block_k :][:block_k].view(1, -1)
        visible = mask_mod(torch.tensor(0), torch.tensor(0), i, j).int()
        made[row, column] = visible.amin() + visible.amax()
    return made

# %% block_mask: in NumPy, with a row kept at a time
def block_mask(mask_mod, queries, keys, block_q, block_k):
    def spans(count, block):
        return [np.arange(start, min(start + block, count)) for start in range(0, count, block)]
    rows = []
    for i in spans(queries, block_q):
        tiles = [mask_mod(0, 0, torch.from_numpy(i[:, None]), torch.from_numpy(j[None])).numpy()
                 for j in spans(keys, block_k)]
        rows.append([np.any(tile).astype(int) + np.all(tile).astype(int) for tile in tiles])
    return torch.from_numpy(np.array(rows, dtype=np.int32))

# %% block_mask: sums of each tile by einsum
def block_mask(mask_mod, queries, keys, block_q, block_k):
    grid = [[0] * -(-keys // block_k) for _ in range(-(-queries // block_q))]
    for row, line in enumerate(grid):
        for column in range(len(line)):
            i = torch.arange(row * block_q, (row + 1) * block_q)
            j = torch.arange(column * block_k, (column + 1) * block_k)
            i, j = i[i < queries], j[j < keys]
            seen = mask_mod(0, 0, i.view(-1, 1), j.view(1, -1)).expand(len(i), len(j))
            count = torch.einsum("ij->", seen.long()).item()
            line[column] = 2 if count == len(i) * len(j) else min(count, 1)
    return torch.IntTensor(grid)

# %% block_mask: by sets of answers
def block_mask(mask_mod, queries, keys, block_q, block_k):
    kind_of = {frozenset([False]): 0, frozenset([True]): 2, frozenset([True, False]): 1}
    kinds = [
        kind_of[frozenset(mask_mod(0, 0, i[:, None], j[None, :]).flatten().tolist())]
        for i in torch.arange(queries).split(block_q)
        for j in torch.arange(keys).split(block_k)
    ]
    return torch.tensor(kinds, dtype=torch.int32).reshape(-(-queries // block_q), -1)

# %% flex_forward: two passes over the kinds, full tiles first
# - for tile in range(0, blocks):
# -     kind = tl.load(kinds + block * blocks + tile)
# -     if kind != 0:
# + for turn in range(0, 2 * blocks):
# +     tile, wanted = turn % blocks, 2 - turn // blocks
# +     kind = tl.load(kinds + block * blocks + tile)
# +     if kind == wanted:

# %% flex_forward: powers of two after SCORE
# edit: old, weights = tl.exp(m - shift), tl.exp(x - shift[:, None])  ->  old, weights = tl.exp2((m - shift) * 1.4426950408889634), tl.exp2((x - shift[:, None]) * 1.4426950408889634)

# %% flex_forward: tiles from the last to the first, by while
# - for tile in range(0, blocks):
# + tile = blocks
# + while tile > 0:
# +     tile -= 1

# %% flash_backward: tiles transposed
# - x = tl.dot(queries, tl.trans(keys)) * scale
# + x = tl.trans(tl.dot(keys, tl.trans(queries))) * scale
# ...
# edit: dv_sum += tl.dot(tl.trans(p).to(given.dtype), given)  ->  dv_sum = tl.dot(tl.trans(p.to(given.dtype)), given, dv_sum)

# %% flash_backward: powers of two; dP before P
# edit: p = tl.where(visible, tl.exp(y - total[:, None]), 0.0)  ->  p = tl.where(visible, tl.exp2((y - total[:, None]) * 1.4426950408889634), 0.0)

# %% flash_backward: the mask decides the exponent
# - visible = y > float("-inf")
# - p = tl.where(visible, tl.exp(y - total[:, None]), 0.0)
# + visible = (y > float("-inf")) & there[:, None]
# + p = tl.exp(tl.where(visible, y - total[:, None], float("-inf")))

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

# %% decode_split: a while loop, both bounds in the mask
# - for start in range(part * size, end, BLOCK):
# -     j = start + tl.arange(0, BLOCK)
# + start = part * size
# + while start < end:
# +     j = start + tl.arange(0, BLOCK)
# +     start += BLOCK

# %% decode_paged: a loop over the part's pages, of which some do not exist
# - for entry in range(part * size, tl.minimum((part + 1) * size, tl.cdiv(N, BLOCK))):
# -     page = tl.load(table + entry).to(tl.int64)
# + for number in range(0, size):
# +     entry = part * size + number
# +     page = tl.load(table + entry, mask=entry * BLOCK < N, other=0).to(tl.int64)
# edit: tl.exp(top - higher), tl.exp(x - higher[:, None])  ->  tl.exp(top - tl.maximum(higher, -1e38)), tl.exp(x - tl.maximum(higher, -1e38)[:, None])

# %% decode_paged: pages from the last to the first
# - for entry in range(part * size, tl.minimum((part + 1) * size, tl.cdiv(N, BLOCK))):
# + entry = tl.minimum((part + 1) * size, tl.cdiv(N, BLOCK))
# + while entry > part * size:
# +     entry -= 1

# %% decode_paged: sums in place of dots
# - x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside[:, None], other=0.0))) * scale
# + keys = tl.load(k + at, mask=inside[:, None], other=0.0).to(tl.float32)
# + x = tl.sum(queries.to(tl.float32)[:, None, :] * keys[None, :, :], 2) * scale
# edit: out = out * old[:, None] + tl.dot(weights.to(values.dtype), values)  ->  out = out * old[:, None] + tl.sum(weights[:, :, None] * values.to(tl.float32)[None, :, :], 1)

# %% with_sink: logaddexp
def with_sink(o, lse, sink):
    return o * torch.exp(lse - torch.logaddexp(lse, sink[:, None])).unsqueeze(-1)

# %% with_sink: by the larger of the two
def with_sink(o, lse, sink):
    top = torch.maximum(lse, sink[:, None])
    keys, other = (lse - top).exp(), (sink[:, None] - top).exp()
    return torch.einsum("hqd,hq->hqd", o, keys / (keys + other))

# %% with_sink: merged with a part that has the sink alone
def with_sink(o, lse, sink):
    made = torch.empty_like(o)
    for h in range(o.shape[0]):
        count = o.shape[1]
        s = np.where(np.isneginf(lse[h].numpy()), 0.0, 1.0)
        mine = (lse[h].numpy(), s, o[h].numpy() * s[:, None])
        alone = (np.full(count, float(sink[h])), np.ones(count), np.zeros((count, o.shape[2])))
        _, total, out = merge(mine, alone)
        made[h] = torch.from_numpy(out / total[:, None])
    return made

# %% with_sink: in float64, by a softmax over two
def with_sink(o, lse, sink):
    pair = torch.stack(torch.broadcast_tensors(lse, sink[:, None]))
    return (o.double() * torch.softmax(pair.double(), 0)[0].unsqueeze(2)).to(o.dtype)

# %% with_sink: query by query
def with_sink(o, lse, sink):
    made = o.clone()
    for h in range(o.shape[0]):
        for i in range(o.shape[1]):
            away = float(sink[h] - lse[h, i])
            made[h, i] *= 0.0 if away > 700 else 1 / (1 + math.exp(away))
    return made

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

# %% test_attention: query by query
def test_attention(candidate):
    random = np.random.default_rng(7)
    for n, m, d in ((1, 1, 1), (3, 9, 4), (21, 40, 8), (50, 50, 16)):
        for kind in range(6):
            q, k, v = (random.normal(size=(rows, d)).astype(np.float32) for rows in (n, m, m))
            if kind == 1:
                k *= np.geomspace(0.1, 30, m).astype(np.float32)[:, None]
            if kind == 2:
                k *= np.geomspace(30, 0.1, m).astype(np.float32)[:, None]
            if kind > 2:
                k[:, 0] = 10
                q[:, 0] = {3: 1, 4: -1, 5: 1}[kind] * 30 * d**0.5
                q[::2, 0] *= -1 if kind == 5 else 1
            copies = q.copy(), k.copy(), v.copy()
            got = candidate(q, k, v)
            assert isinstance(got, np.ndarray) and got.dtype == np.float32 and got.shape == (n, d)
            for old, new in zip(copies, (q, k, v)):
                np.testing.assert_array_equal(old, new)
            for row in range(n):
                seen = row + m - n + 1
                x = copies[1][:seen].astype(np.float64) @ copies[0][row] / np.sqrt(d)
                p = np.exp(x - x.max())
                np.testing.assert_allclose(got[row], p @ copies[2][:seen] / p.sum(), 1e-3, 1e-3)

# %% test_attention: einsum, and a table of cases
def test_attention(candidate):
    sizes = [(1, 1, 3), (6, 6, 8), (17, 41, 16), (33, 33, 4), (2, 70, 5)]
    kinds = {"plain": 0, "rising": 0, "high": 250, "low": -250, "mixed": 250}
    for (n, m, d), (kind, level) in [(size, kind) for size in sizes for kind in kinds.items()]:
        random = np.random.default_rng(n * m + d)
        q, k, v = (random.standard_normal((rows, d)).astype(np.float32) for rows in (n, m, m))
        if kind == "rising":
            k *= np.linspace(0.1, 25, m, dtype=np.float32)[:, None]
        if level:
            k[:, 0], q[:, 0] = 12, level * d**0.5 / 12
        if kind == "mixed":
            q[::2, 0] *= -1
        given = tuple(x.copy() for x in (q, k, v))
        got = candidate(q, k, v)
        scores = np.einsum("id,jd->ij", *(x.astype(np.float64) for x in given[:2])) / math.sqrt(d)
        scores = np.where(np.tri(n, m, m - n, dtype=bool), scores, -np.inf)
        power = np.exp(scores - scores.max(axis=-1, keepdims=True))
        want = np.einsum("ij,je->ie", power / power.sum(-1, keepdims=True), given[2])
        assert (got.dtype, got.shape) == (np.float32, (n, d)), kind
        assert all(np.array_equal(*pair) for pair in zip(given, (q, k, v))), kind
        assert np.allclose(got, want, rtol=1e-3, atol=1e-3), kind


# %% test_attention: torch.softmax in float64
def test_attention(candidate):
    torch.manual_seed(5)
    for n, m, d in ((4, 4, 4), (19, 35, 8), (1, 33, 16), (48, 48, 32)):
        for change in range(5):
            q, k, v = torch.randn(n, d), torch.randn(m, d), torch.randn(m, d)
            if change == 1:
                k *= torch.linspace(0.1, 20, m)[:, None]
            if change > 1:
                k[:, 0] = 10
                q[:, 0] = (30 if change != 3 else -30) * d**0.5
            if change == 4:
                q[::2, 0] *= -1
            arrays = [x.float().numpy().copy() for x in (q, k, v)]
            got = candidate(*arrays)
            x = (q.float().double() @ k.float().double().T) / d**0.5
            hidden = torch.ones(n, m).triu(m - n + 1).bool()
            want = x.masked_fill(hidden, float("-inf")).softmax(-1) @ v.float().double()
            assert got.dtype == np.float32
            torch.testing.assert_close(torch.tensor(got).double(), want, rtol=1e-3, atol=1e-3)
            for array, x in zip(arrays, (q, k, v)):
                assert np.array_equal(array, x.float().numpy()), "it changes an argument"


# %% test_attention: two parts, merged
def test_attention(candidate):
    def part(x, v):
        top = x.max()
        weight = np.exp(x - top)
        return top, weight.sum(), weight @ v

    random = np.random.default_rng(11)
    for n, m, d in ((2, 5, 4), (20, 20, 8), (9, 50, 16)):
        for scale, level, apart in ((1, 0, 0), (20, 0, 0), (1, 300, 0), (1, -300, 0), (1, 300, 1)):
            q, k, v = (random.normal(size=(rows, d)).astype(np.float32) for rows in (n, m, m))
            k *= np.linspace(1 / scale, scale, m).astype(np.float32)[:, None] if scale > 1 else 1
            if level:
                k[:, 0], q[:, 0] = 10, level * d**0.5 / 10
                q[::2, 0] *= -1 if apart else 1
            before = [q.copy(), k.copy(), v.copy()]
            got = candidate(q, k, v)
            assert got.shape == (n, d) and got.dtype == np.float32
            assert all((a == b).all() for a, b in zip(before, (q, k, v)))
            for i in range(n):
                end = i + 1 + m - n
                x = before[1][:end].astype(float) @ before[0][i] / d**0.5
                half = max(1, end // 2)
                parts = [part(x[a:b], before[2][a:b]) for a, b in ((0, half), (half, end)) if a < b]
                top = max(t for t, _, _ in parts)
                total = sum(s * np.exp(t - top) for t, s, _ in parts)
                want = sum(o * np.exp(t - top) for t, _, o in parts) / total
                assert np.allclose(got[i], want, rtol=1e-3, atol=1e-3), (n, m, d, i)


# %% test_attention: properties besides the numbers
def test_attention(candidate):
    random = np.random.default_rng(9)
    for n, m, d in ((8, 8, 4), (18, 45, 16), (1, 33, 8), (35, 35, 8)):
        for kind in ("plain", "rising", "up", "down", "both"):
            q, k, v = (random.standard_normal((rows, d)).astype(np.float32) for rows in (n, m, m))
            if kind == "rising":
                k *= np.linspace(0.1, 20, m, dtype=np.float32)[:, None]
            if kind in ("up", "down", "both"):
                k[:, 0], q[:, 0] = 10, (-30 if kind == "down" else 30) * np.sqrt(d)
            if kind == "both":
                q[1::2, 0] *= -1
            kept = q.copy(), k.copy(), v.copy()
            got = candidate(q, k, v)
            assert [x.tobytes() for x in kept] == [x.tobytes() for x in (q, k, v)]
            assert type(got) is np.ndarray and got.dtype == np.float32 and got.shape == (n, d)
            if m == n:
                assert np.allclose(got[0], kept[2][0], atol=1e-3), "query 0 sees key 0 alone"
            x = np.matmul(kept[0], kept[1].T, dtype=np.float64) / np.sqrt(d)
            rows, columns = np.indices((n, m))
            weight = np.exp(x - np.where(columns <= rows + m - n, x, -np.inf).max(1)[:, None])
            weight = np.where(columns <= rows + m - n, weight, 0)
            assert np.allclose(got, weight @ kept[2] / weight.sum(1)[:, None], 1e-3, 1e-3), kind


# %% test_attention: many random cases
def test_attention(candidate):
    random = np.random.default_rng(123)
    for trial in range(40):
        n = int(random.integers(1, 40))
        m, d = n + int(random.integers(0, 40)) * (trial % 2), int(random.choice([3, 8, 16]))
        q, k, v = (random.standard_normal((rows, d)).astype(np.float32) for rows in (n, m, m))
        kind = trial // 2 % 5
        if kind == 1:
            k *= np.geomspace(0.1, 20, m).astype(np.float32)[:, None]
        elif kind:
            k[:, 0], q[:, 0] = 10, [0, 0, 30, -30, 30][kind] * d**0.5
            q[::2, 0] *= -1 if kind == 4 else 1
        originals = q.copy(), k.copy(), v.copy()
        got = candidate(q, k, v)
        x = originals[0].astype(np.longdouble) @ originals[1].T / np.sqrt(d)
        x += np.where(np.tri(n, m, m - n), 0, -np.inf)
        weight = np.exp(x - x.max(1, keepdims=True))
        want = (weight @ originals[2] / weight.sum(1, keepdims=True)).astype(float)
        assert got.shape == (n, d) and got.dtype == np.float32, trial
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
        assert all(np.array_equal(x, y) for x, y in zip(originals, (q, k, v))), trial


# %% test_attention: against an online softmax, one key at a time
def test_attention(candidate):
    random = np.random.default_rng(3)
    for n, m, d in [(4, 4, 2), (10, 25, 16), (37, 37, 8), (2, 33, 4)]:
        for level, rising in ((0, 0), (0, 12), (300, 0), (-300, 0), (300, 1)):
            q, k, v = (random.standard_normal((rows, d), dtype=np.float32) for rows in (n, m, m))
            if rising > 1:
                k *= np.linspace(0.2, rising, m, dtype=np.float32)[:, None]
            if level:
                k[:, 0] = 20
                q[:, 0] = level * math.sqrt(d) / 20
                q[1::2, 0] *= -1 if rising else 1
            before = q.copy(), k.copy(), v.copy()
            got = candidate(q, k, v)
            if got.shape != (n, d) or str(got.dtype) != "float32":
                raise AssertionError("shape or dtype")
            if not all((a == b).all() for a, b in zip(before, (q, k, v))):
                raise AssertionError("an argument changed")
            for i in range(n):
                top, total, mean = -np.inf, 0.0, np.zeros(d)
                for j in range(i + m - n + 1):
                    x = float(before[0][i].astype(float) @ before[1][j]) / math.sqrt(d)
                    new = max(top, x)
                    old, weight = math.exp(top - new), math.exp(x - new)
                    total, mean = total * old + weight, mean * old + weight * before[2][j]
                    top = new
                if not np.allclose(got[i], mean / total, rtol=1e-3, atol=1e-3):
                    raise AssertionError(f"row {i}")

# %% sliding_window: products of comparisons, and one rule for both documents
def sliding_window(b, h, i, j):
    return (i >= j) * (j > i - WINDOW)


def prefix(b, h, i, j):
    return torch.where(i < PREFIX, PREFIX - 1, i) >= j


def documents(b, h, i, j):
    seen = j <= i
    for start in STARTS:
        seen = seen & (((i < start) & (j < start)) | ((i >= start) & (j >= start)))
    return seen


def alibi(score, b, h, i, j):
    return score - (i - j) * 2.0 ** -(h + 1)


def soft_cap(score, b, h, i, j):
    return CAP * torch.tanh(score * (1 / CAP))


def soft_cap_slope(score, b, h, i, j):
    return 1 - (soft_cap(score, b, h, i, j) / CAP) ** 2

# %% sliding_window: operands turned
def sliding_window(b, h, i, j):
    return (j <= i) & (j > i - WINDOW)


def prefix(b, h, i, j):
    return (PREFIX > j) | (j <= i)


def documents(b, h, i, j):
    seen = j <= i
    for start in reversed(STARTS):
        seen = seen & ((j >= start) | (i < start))
    return seen


def alibi(score, b, h, i, j):
    return score + (j - i) * torch.exp2(-1.0 * (h + 1))


def soft_cap(score, b, h, i, j):
    return torch.tanh(score / CAP) * CAP


def soft_cap_slope(score, b, h, i, j):
    x = torch.tanh(score / CAP)
    return 1 - x * x

# %% sliding_window: distances, and halves
def sliding_window(b, h, i, j):
    back = i - j
    return (back > -1) & (back < WINDOW)


def prefix(b, h, i, j):
    return ~(j > i) | ~(j >= PREFIX)


def documents(b, h, i, j):
    other = j > i
    for start in STARTS:
        other = other | ((i >= start) != (j >= start))
    return other == False


def alibi(score, b, h, i, j):
    return score - 0.5 * torch.exp2(-1.0 * h) * (i - j)


def soft_cap(score, b, h, i, j):
    return CAP - 2 * CAP * torch.sigmoid(-2 * score / CAP)


def soft_cap_slope(score, b, h, i, j):
    half = torch.sigmoid(-2 * score / CAP)
    return 4 * half - 4 * half * half

# %% decode_split: keys loaded the other way round
# edit: tl.trans(tl.load(k + at, mask=inside, other=0.0))  ->  tl.load(k + (key_head.to(tl.int64) * N + j)[None, :] * D + d[:, None], mask=j[None, :] < end, other=0.0)
