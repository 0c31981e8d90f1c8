# %% attention_bytes: elements, not bytes
# says: count bytes, not elements
# edit: itemsize * unfused, itemsize * fused + 4 * n  ->  unfused, fused + n

# %% attention_bytes: no log-sum-exp
# says: one number per query
# edit: itemsize * fused + 4 * n  ->  itemsize * fused

# %% attention_bytes: the log-sum-exp in the format of the inputs
# says: 4 bytes per query, whatever itemsize is
# edit: itemsize * fused + 4 * n  ->  itemsize * (fused + n)

# %% attention_bytes: keys are loaded once
# says: each block of queries loads all keys and values again
# edit: programs * 2 * vectors  ->  2 * vectors

# %% attention_bytes: rounded down
# says: round up
# edit: -(-n // block_q)  ->  max(1, n // block_q)

# %% attention_bytes: softmax only reads
# says: softmax reads the scores and writes the weights
# edit: 2 * scores +  ->  scores +

# %% attention_bytes: the unfused result is not written
# says: gave
# edit: (scores + vectors + vectors)  ->  (scores + vectors)

# %% attention_bytes: blocks of keys in place of blocks of queries
# says: gave
# edit: programs * 2 * vectors  ->  2 * d * block_q * programs

# %% merge: NaN where both parts are empty
# says: -inf - (-inf) is NaN
# edit: np.where(top == -np.inf, 0.0, top)  ->  top

# %% merge: o is not rescaled
# says: o is a sum under the old maximum, too
# edit: o * old[:, None] + u * new[:, None]  ->  o + u

# %% merge: s is not rescaled
# says: s was not rescaled
# edit: s * old + t * new  ->  s + t

# %% merge: nothing is rescaled
# says: neither sum was rescaled
# edit: s * old + t * new, o * old[:, None] + u * new[:, None]  ->  s + t, o + u

# %% merge: the result is divided
# says: divided by s once, at the very end
# - return top, s * old + t * new, o * old[:, None] + u * new[:, None]
# + total = s * old + t * new
# + return top, total, (o * old[:, None] + u * new[:, None]) / total[:, None]

# %% merge: o is taken for a mean, so it is multiplied by s and divided again
# says: o is a sum, not a mean
def merge(left, right):
    m = np.maximum(left[0], right[0])
    base = np.where(np.isneginf(m), 0, m)
    w = [np.exp(part[0] - base) * part[1] for part in (left, right)]
    s = w[0] + w[1]
    safe = np.where(s > 0, s, 1)
    o = (w[0][:, None] * left[2] + w[1][:, None] * right[2]) / safe[:, None]
    return m, s, o

# %% merge: no maximum
# says: gave
# - top = np.maximum(m, n)
# - shift = np.where(top == -np.inf, 0.0, top)  # -inf - (-inf) would be NaN
# - old, new = np.exp(m - shift), np.exp(n - shift)
# - return top, s * old + t * new, o * old[:, None] + u * new[:, None]
# + a, b = np.exp(m), np.exp(n)
# + return np.log(a + b), s * a + t * b, o * a[:, None] + u * b[:, None]

# %% merge: one maximum for all queries
# says: gave
# edit: np.maximum(m, n)  ->  np.full_like(m, max(m.max(), n.max()))

# %% merge: the smaller maximum
# says: gave
# edit: np.maximum(m, n)  ->  np.minimum(m, n)

# %% merge: the left part is changed in place
# says: merge changes its arguments
# - return top, s * old + t * new, o * old[:, None] + u * new[:, None]
# + o *= old[:, None]
# + o += u * new[:, None]
# + return top, s * old + t * new, o

# %% merge: the maximum begins at 0
# says: gave
# edit: np.maximum(m, n)  ->  np.maximum(np.maximum(m, n), 0.0)

# %% merge: the factors are swapped
# says: gave
# edit: np.exp(m - shift), np.exp(n - shift)  ->  np.exp(n - shift), np.exp(m - shift)

# %% flash_forward: o is not rescaled when the maximum moves
# says: o is a sum under the old one
# edit: total * old[:, None] + tl.dot  ->  total + tl.dot

# %% flash_forward: s is not rescaled
# says: multiply the old sum s by
# edit: s * old + tl.sum  ->  s + tl.sum

# %% flash_forward: neither is rescaled
# says: multiply both old sums
# edit: s * old + tl.sum  ->  s + tl.sum
# edit: total * old[:, None] + tl.dot  ->  total + tl.dot

# %% flash_forward: log-sum-exp without the maximum
# says: add m to its logarithm
# edit: m + tl.log(s)  ->  tl.log(s)

# %% flash_forward: log-sum-exp in base 2
# says: natural logarithm
# edit: m + tl.log(s)  ->  m + tl.log2(s)

# %% flash_forward: the maximum alone
# says: add the logarithm of the sum
# edit: m + tl.log(s)  ->  m

# %% flash_forward: the diagonal tile is not masked
# says: flash_forward: o of 20 queries, 45 keys
# edit: (j[None, :] <= i[:, None] + N_K - N_Q)  ->  (start <= tl.program_id(0) * BLOCK_Q + BLOCK_Q - 1 + N_K - N_Q)

# %% flash_forward: no causal mask
# says: hidden keys got weight
# edit: visible & (j[None, :] <= i[:, None] + N_K - N_Q)  ->  visible

# %% flash_forward: causal as if there were as many keys as queries
# says: compare j with i + N_K - N_Q
# edit: i[:, None] + N_K - N_Q  ->  i[:, None]

# %% flash_forward: a query does not see its own key
# says: query i sees its own key, too
# edit: <= i[:, None] + N_K - N_Q  ->  < i[:, None] + N_K - N_Q

# %% flash_forward: the mask after the exponential
# says: the mask came after the exponential
# - x = tl.where(visible, x, float("-inf"))
# + x = tl.where(j[None, :] < N_K, x, float("-inf"))
# ...
# edit: tl.dot(weights.to(values.dtype), values)  ->  tl.dot(tl.where(visible, weights, 0.0).to(values.dtype), values)

# %% flash_forward: hidden scores are 0
# says: keys past the end count
# edit: tl.where(visible, x, float("-inf"))  ->  tl.where(visible, x, 0.0)

# %% flash_forward: hidden scores are -100
# says: flash_forward: o of
# edit: tl.where(visible, x, float("-inf"))  ->  tl.where(visible, x, -100.0)

# %% flash_forward: -inf minus -inf
# says: nan
# edit: tl.where(top == float("-inf"), 0.0, top)  ->  top

# %% flash_forward: keys past the end count
# says: keys past the end count
# edit: visible = j[None, :] < N_K  ->  visible = j[None, :] >= 0

# %% flash_forward: keys read past the end
# says: of k, which has
# edit: tl.load(k + at, mask=inside, other=0.0)  ->  tl.load(k + at)

# %% flash_forward: values read past the end
# says: of v, which has
# edit: tl.load(v + at, mask=inside, other=0.0)  ->  tl.load(v + at)

# %% flash_forward: o is stored past the end
# says: of o, which has
# edit: total / s[:, None], mask=there[:, None]  ->  total / s[:, None]

# %% flash_forward: no scale
# says: multiply the scores by scale
# edit: other=0.0))) * scale  ->  other=0.0)))

# %% flash_forward: o is not divided
# says: divide o by the sum s
# edit: total / s[:, None]  ->  total

# %% flash_forward: NaN for a query that sees nothing
# says: nan
# edit: tl.where(s == 0, 1.0, s)  ->  s

# %% flash_forward: the maximum begins at 0
# says: the maximum begins at -inf
# edit: tl.full((BLOCK_Q,), float("-inf"), tl.float32)  ->  tl.zeros((BLOCK_Q,), tl.float32)

# %% flash_forward: no maximum
# says: the maximum begins at -inf
# edit: top = tl.maximum(m, tl.max(x, 1))  ->  top = tl.zeros((BLOCK_Q,), tl.float32)

# %% flash_forward: the maximum of the block alone
# says: flash_forward: lse of
# edit: tl.maximum(m, tl.max(x, 1))  ->  tl.max(x, 1)

# %% flash_forward: products in fp32, which tensor cores don't make
# says: convert weights to the format of the values
# edit: tl.dot(weights.to(values.dtype), values)  ->  tl.dot(weights, values.to(tl.float32))

# %% flash_forward: products without tl.dot
# says: want products by tl.dot
# edit: tl.dot(weights.to(values.dtype), values)  ->  tl.sum(weights[:, :, None] * values.to(tl.float32)[None, :, :], 1)
# edit: tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0)))  ->  tl.sum(queries.to(tl.float32)[:, None, :] * tl.load(k + at, mask=inside, other=0.0).to(tl.float32)[None, :, :], 2)

# %% flash_forward: all keys at once, so the scores of a block are as long as the text
# says: they must not exist
# - for start in range(0, N_K, BLOCK_K):
# -     j = start + tl.arange(0, BLOCK_K)
# + for start in range(0, N_K, 2048):
# +     j = start + tl.arange(0, 2048)

# %% flash_forward: head 0 for all heads
# says: flash_forward: o of
# edit: rows, there = head * N_Q + i, i < N_Q  ->  rows, there = i, i < N_Q

# %% flash_forward: keys of head 0 for all heads
# says: flash_forward: o of 1 queries, 1 keys
# edit: (head * N_K + j)[:, None]  ->  j[:, None]

# %% flash_forward: the keys are loaded twice
# says: elements of k are loaded
# - x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0))) * scale
# + x = tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0))) * scale
# + x = tl.maximum(x, tl.dot(queries, tl.trans(tl.load(k + at, mask=inside, other=0.0))) * scale)

# %% flash_forward: a row of all scores is kept in registers, tile beside tile
# says: the scores of all keys must not exist, kept as tiles either
# - for start in range(0, N_K, BLOCK_K):
# + held = tl.zeros((BLOCK_Q, 2048), tl.float32)
# + for start in range(0, N_K, BLOCK_K):
# ...
# - top = tl.maximum(m, tl.max(x, 1))
# + place = (tl.arange(0, 2048) // BLOCK_K == start // BLOCK_K)[None, :]
# + held = tl.where(place, tl.max(x, 1)[:, None], held)
# + top = tl.maximum(m, tl.max(x, 1))

# %% flash_forward: the same in bf16
# says: the scores of all keys must not exist, kept as tiles either
# - for start in range(0, N_K, BLOCK_K):
# + held = tl.zeros((BLOCK_Q, 2048), tl.bfloat16)
# + for start in range(0, N_K, BLOCK_K):
# ...
# - top = tl.maximum(m, tl.max(x, 1))
# + place = (tl.arange(0, 2048) // BLOCK_K == start // BLOCK_K)[None, :]
# + held = tl.where(place, tl.max(x, 1)[:, None].to(tl.bfloat16), held)
# + top = tl.maximum(m, tl.max(x, 1))

# %% flash_forward: weights are kept in the room of o, tile by tile
# says: stay in registers
# - m = top
# + m = top
# + tl.store(o + rows[:, None] * D + d, total, mask=there[:, None])

# %% flash_forward: scores are kept in the room of lse
# says: stay in registers
# - m = top
# + m = top
# + tl.store(lse + rows, m, mask=there)

# %% sliding_window: one key too many, as in the notes
# says: one key too many
# edit: i - j < WINDOW  ->  i - j <= WINDOW

# %% sliding_window: one key too few
# says: one key too few
# edit: i - j < WINDOW  ->  i - j < WINDOW - 1

# %% sliding_window: to both sides
# says: sees no key after itself
# edit: (i >= j) & (i - j < WINDOW)  ->  abs(i - j) < WINDOW

# %% sliding_window: by if
# says: boolean value of tensor
# edit: return (i >= j) & (i - j < WINDOW)  ->  return i >= j and i - j < WINDOW

# %% sliding_window: the prefix alone
# says: each query also sees the keys up to itself
# edit: (i >= j) | (j < PREFIX)  ->  (i >= 0) & (j < PREFIX)

# %% sliding_window: prefix and causal
# says: one of the two is enough
# edit: (i >= j) | (j < PREFIX)  ->  (i >= j) & (j < PREFIX)

# %% sliding_window: the prefix is too long
# says: numbers end at PREFIX - 1
# edit: j < PREFIX  ->  j <= PREFIX

# %% sliding_window: a prefix of queries
# says: of keys, not of queries
# edit: (j < PREFIX)  ->  (i < PREFIX)

# %% sliding_window: documents are not causal
# says: in its own document either
# edit: visible = i >= j  ->  visible = (i >= 0) & (j >= 0)

# %% sliding_window: documents see those before them
# says: hide what is in another document
# edit: visible & ((i >= start) == (j >= start))  ->  visible

# %% sliding_window: a document begins after its start
# says: a document begins at its start
# edit: (i >= start) == (j >= start)  ->  (i > start) == (j > start)

# %% sliding_window: ALiBi rewards distance, as in the notes
# says: rewards distance
# edit: score - torch.exp2  ->  score + torch.exp2

# %% sliding_window: ALiBi's slopes begin at 1
# says: head 0 has the slope 1/2
# edit: -(h + 1.0)  ->  -(h + 0.0)

# %% sliding_window: ALiBi with one slope
# says: the slope depends on the head
# edit: torch.exp2(-(h + 1.0))  ->  0.5

# %% sliding_window: the cap is not multiplied
# says: multiply by CAP again
# edit: return CAP * torch.tanh  ->  return torch.tanh

# %% sliding_window: a hard cap
# says: that is a hard cap
# edit: CAP * torch.tanh(score / CAP)  ->  score.clamp(-CAP, CAP)

# %% sliding_window: the cap is not divided
# says: divides by CAP inside
# edit: CAP * torch.tanh(score / CAP)  ->  CAP * torch.tanh(score)

# %% sliding_window: the value in place of the slope
# says: wanted is its derivative
# edit: 1 - torch.tanh(score / CAP) ** 2  ->  soft_cap(score, b, h, i, j)

# %% sliding_window: the chain rule forgotten
# says: CAP in front cancels
# edit: 1 - torch.tanh(score / CAP) ** 2  ->  (1 - torch.tanh(score / CAP) ** 2) / CAP

# %% sliding_window: the slope of tanh without its square
# says: the derivative of tanh
# edit: torch.tanh(score / CAP) ** 2  ->  torch.tanh(score / CAP)

# %% sliding_window: the slope at the score itself
# says: score / CAP in the derivative
# edit: torch.tanh(score / CAP) ** 2  ->  torch.tanh(score) ** 2

# %% block_mask: the N × N matrix that nobody asked for
# says: a mask_mod is asked about one tile at a time
# - visible = mask_mod(0, 0, i, j)
# + all_i, all_j = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
# + visible = mask_mod(0, 0, all_i, all_j).expand(queries, keys)[i, j]

# %% block_mask: all tiles are kept, which is the same matrix
# says: together they are the matrix that nobody asked for
def block_mask(mask_mod, queries, keys, block_q, block_k):
    tiles = [[mask_mod(0, 0, i[:, None], j[None, :]) for j in torch.arange(keys).split(block_k)]
             for i in torch.arange(queries).split(block_q)]
    return torch.tensor([[int(tile.any()) + int(tile.all()) for tile in row] for row in tiles],
                        dtype=torch.int32)

# %% block_mask: a matrix of bf16, filled tile by tile
# says: (torch.bfloat16) is made
def block_mask(mask_mod, queries, keys, block_q, block_k):
    seen = torch.zeros(queries, keys, dtype=torch.bfloat16)
    for i in torch.arange(queries).split(block_q):
        for j in torch.arange(keys).split(block_k):
            seen[i[0] : i[-1] + 1, j[0] : j[-1] + 1] = mask_mod(0, 0, i[:, None], j[None, :])
    return torch.tensor([[int(tile.any()) + int(tile.all()) for tile in row.split(block_k, 1)]
                         for row in seen.split(block_q)], dtype=torch.int32)

# %% block_mask: partial and full are exchanged
# says: full is 2, and partial is 1
# edit: kinds[row, column] = 2 if visible.all() else int(visible.any())  ->  kinds[row, column] = 1 if visible.all() else 2 * int(visible.any())

# %% block_mask: only the corners are asked
# says: a tile's corners
# edit: visible = mask_mod(0, 0, i, j)  ->  visible = mask_mod(0, 0, i[[0, -1]], j[:, [0, -1]])

# %% block_mask: partial tiles are skipped
# says: one visible pair is not empty
# edit: 2 if visible.all() else int(visible.any())  ->  2 if visible.all() else 0

# %% block_mask: pairs past the end are hidden
# says: all pairs that exist
# edit: 2 if visible.all() else  ->  2 if visible.all() and (row + 1) * block_q <= queries and (column + 1) * block_k <= keys else

# %% block_mask: the last tiles are left out
# says: round up
# edit: rows, columns = -(-queries // block_q), -(-keys // block_k)  ->  rows, columns = queries // block_q, keys // block_k

# %% block_mask: rows and columns exchanged
# says: rows are blocks of queries
# edit: return kinds  ->  return kinds.T.contiguous()

# %% block_mask: bools
# says: not torch.int32
# edit: return kinds  ->  return kinds > 0

# %% flex_forward: SCORE is not applied
# says: SCORE was not applied
# - x = SCORE(x, b, h, i[:, None], j[None, :])

# %% flex_forward: SCORE before the scale
# says: flex_forward: o of 30 queries
# edit: other=0.0))) * scale  ->  other=0.0)))
# edit: x = SCORE(x, b, h, i[:, None], j[None, :])  ->  x = SCORE(x, b, h, i[:, None], j[None, :]) * scale

# %% flex_forward: MASK is not asked
# says: hidden keys got weight
# edit: if kind == 1:  ->  if kind == 3:

# %% flex_forward: MASK is asked in full tiles alone
# says: hidden keys got weight
# edit: if kind == 1:  ->  if kind == 2:

# %% flex_forward: empty tiles are computed
# says: all keys of tiles that are not empty
# edit: if kind != 0:  ->  if kind != 3:
# edit: if kind == 1:  ->  if kind != 2:

# %% flex_forward: only full tiles are computed
# says: flex_forward: o of
# edit: if kind != 0:  ->  if kind == 2:

# %% flex_forward: i and j are exchanged
# says: flex_forward: o of 33 queries
# edit: MASK(b, h, i[:, None], j[None, :])  ->  MASK(b, h, j[None, :], i[:, None])

# %% flex_forward: query and key exchanged in SCORE
# says: scores ALiBi
# edit: SCORE(x, b, h, i[:, None], j[None, :])  ->  SCORE(x, b, h, j[None, :], i[:, None])

# %% flex_forward: positions within the tile
# says: flex_forward: o of
# edit: MASK(b, h, i[:, None], j[None, :])  ->  MASK(b, h, (i % BLOCK_Q)[:, None], (j % BLOCK_K)[None, :])

# %% flex_forward: the first batch only
# says: flex_forward: o of 33 queries
# edit: (b * tl.num_programs(1) + h).to(tl.int64)  ->  h.to(tl.int64)

# %% flex_forward: batch 0 for the mods
# says: flex_forward: o of 33 queries
# edit: SCORE(x, b, h,  ->  SCORE(x, 0, h,
# edit: MASK(b, h,  ->  MASK(0, h,

# %% flex_forward: head and batch exchanged in the mods
# says: flex_forward: o of
# edit: SCORE(x, b, h,  ->  SCORE(x, h, b,
# edit: MASK(b, h,  ->  MASK(h, b,

# %% flex_forward: the key head of another group
# says: flex_forward
# edit: head // GROUP * N_K  ->  head % (tl.num_programs(1) // GROUP) * N_K

# %% flex_forward: as if each head had its own keys
# says: of k, which has
# edit: head // GROUP * N_K  ->  head * N_K

# %% flex_forward: keys past the end in a full tile
# says: flex_forward: o of 33 queries
# - x = tl.where(j[None, :] < N_K, x, float("-inf"))
#   if kind == 1:
# -     x = tl.where(MASK(b, h, i[:, None], j[None, :]), x, float("-inf"))
# +     x = tl.where(MASK(b, h, i[:, None], j[None, :]) & (j[None, :] < N_K), x, float("-inf"))

# %% flex_forward: NaN where the first tile hides a row
# says: nan
# edit: tl.where(top == float("-inf"), 0.0, top)  ->  top

# %% flex_forward: the mask after the exponential
# says: the mask came after the exponential
# -     if kind == 1:
# -         x = tl.where(MASK(b, h, i[:, None], j[None, :]), x, float("-inf"))
#       top = tl.maximum(m, tl.max(x, 1))
# ...
# -     values = tl.load(v + at, mask=inside, other=0.0)
# +     values = tl.load(v + at, mask=inside, other=0.0)
# +     if kind == 1:
# +         weights = tl.where(MASK(b, h, i[:, None], j[None, :]), weights, 0.0)

# %% flex_forward: the mask is added as a large number
# says: flex_forward: o of
# edit: tl.where(MASK(b, h, i[:, None], j[None, :]), x, float("-inf"))  ->  tl.where(MASK(b, h, i[:, None], j[None, :]), x, -1e4)

# %% flex_forward: o is not rescaled
# says: o is a sum under the old one
# edit: total * old[:, None] + tl.dot  ->  total + tl.dot

# %% flex_forward: kinds read as a square
# says: flex_forward
# edit: kinds + block * blocks + tile  ->  kinds + tile * blocks + block

# %% flash_backward: the value of SCORE in place of its slope
# says: needs its slope
# edit: SLOPE(x, b, h, i[:, None], j[None, :]) * scale  ->  SCORE(x, b, h, i[:, None], j[None, :]) * scale

# %% flash_backward: no slope
# says: SCORE's slope is missing
# edit: dy * SLOPE(x, b, h, i[:, None], j[None, :]) * scale  ->  dy * scale

# %% flash_backward: the slope at the changed score
# says: before SCORE changed it
# edit: SLOPE(x, b, h, i[:, None], j[None, :])  ->  SLOPE(SCORE(x, b, h, i[:, None], j[None, :]), b, h, i[:, None], j[None, :])

# %% flash_backward: weights from the scores as they were
# says: apply SCORE, then subtract lse
# edit: tl.where(inside[None, :], SCORE(x, b, h, i[:, None], j[None, :]), float("-inf"))  ->  tl.where(inside[None, :], x, float("-inf"))

# %% flash_backward: delta is not subtracted
# says: subtract delta from dp
# edit: tl.dot(given, tl.trans(values)) - mean[:, None]  ->  tl.dot(given, tl.trans(values))

# %% flash_backward: no scale
# says: multiply by scale
# edit: SLOPE(x, b, h, i[:, None], j[None, :]) * scale  ->  SLOPE(x, b, h, i[:, None], j[None, :])

# %% flash_backward: one query head of the group
# says: sum over the GROUP heads
# edit: range(0, GROUP * blocks_q)  ->  range(0, blocks_q)

# %% flash_backward: dK and dV of the last query head
# says: flash_backward: dv of
# - kind = tl.load(kinds + block_q * blocks_k + block)
# + kind = tl.load(kinds + block_q * blocks_k + block)
# + if block_q == 0:
# +     dk_sum = tl.zeros((BLOCK_K, D), tl.float32)
# +     dv_sum = tl.zeros((BLOCK_K, D), tl.float32)

# %% flash_backward: dQ is stored, not added
# says: flash_backward
# edit: tl.atomic_add(dq + at_q, tl.dot(dx, keys), mask=there[:, None])  ->  tl.store(dq + at_q, tl.dot(dx, keys), mask=there[:, None])

# %% flash_backward: dQ is loaded, added and stored
# says: elements of dq are stored, and 0 are due
# edit: tl.atomic_add(dq + at_q, tl.dot(dx, keys), mask=there[:, None])  ->  tl.store(dq + at_q, tl.load(dq + at_q, mask=there[:, None], other=0.0) + tl.dot(dx, keys), mask=there[:, None])

# %% flash_backward: NaN for a query that sees nothing
# says: nan
# edit: p = tl.where(visible, tl.exp(y - total[:, None]), 0.0)  ->  p = tl.exp(y - total[:, None])

# %% flash_backward: no mask
# says: flash_backward: dv of
# edit: if kind == 1:  ->  if kind == 3:

# %% flash_backward: empty tiles are computed
# says: what each tile that is not empty needs
# edit: if kind != 0:  ->  if kind != 3:
# edit: if kind == 1:  ->  if kind != 2:

# %% flash_backward: rows past the end are read
# says: of q, which has
# edit: tl.load(q + at_q, mask=there[:, None], other=0.0)  ->  tl.load(q + at_q)

# %% flash_backward: the weights are not transposed
# says: flash_backward: dv of
# edit: tl.dot(tl.trans(p).to(given.dtype), given)  ->  tl.dot(p.to(given.dtype), given)

# %% flash_backward: products in fp32
# says: want products by tl.dot
# edit: tl.dot(tl.trans(p).to(given.dtype), given)  ->  tl.dot(tl.trans(p), given.to(tl.float32))

# %% flash_backward: dK is divided by the group
# says: don't average
# edit: tl.store(dk + at_k, dk_sum, mask=inside[:, None])  ->  tl.store(dk + at_k, dk_sum / GROUP, mask=inside[:, None])

# %% flash_backward: the head's number within the group
# says: flash_backward: dv of
# edit: h, block_q = key_head * GROUP + step // blocks_q  ->  h, block_q = step // blocks_q + key_head * 0

# %% flash_backward: six products, the scores twice
# says: five products per tile
# edit: dx = dy * SLOPE(x, b, h,  ->  dx = dy * SLOPE(tl.dot(queries, tl.trans(keys)) * scale, b, h,

# %% flash_backward: masked by dX only
# says: flash_backward: dv of
# - if kind == 1:
# -     y = tl.where(MASK(b, h, i[:, None], j[None, :]), y, float("-inf"))
#   visible = y > float("-inf")
# ...
# edit: tl.where(visible, dx, 0.0)  ->  tl.where(visible & MASK(b, h, i[:, None], j[None, :]), dx, 0.0)

# %% decode_split: o is divided
# says: o stays a sum
# edit: tl.store(o + place[:, None] * D + d, out,  ->  tl.store(o + place[:, None] * D + d, out / tl.where(total == 0, 1.0, total)[:, None],

# %% decode_split: the log-sum-exp for m
# says: decode_split: m of
# edit: tl.store(m + place, top, mask=mine)  ->  tl.store(m + place, top + tl.log(total), mask=mine)

# %% decode_split: all parts take all keys
# says: decode_split: m of
# edit: range(part * size, end, BLOCK)  ->  range(0, N, BLOCK)
# edit: end = tl.minimum((part + 1) * size, N)  ->  end = N

# %% decode_split: a part reads into the next one
# says: decode_split: m of
# edit (2 places): < end  ->  < N

# %% decode_split: the last part reads past the end
# says: of k, which has
# edit: tl.minimum((part + 1) * size, N)  ->  (part + 1) * size

# %% decode_split: each query head loads the keys again
# says: share each key that is loaded
@triton.jit
def decode_split(q, k, v, m, s, o, N, size, scale, GROUP: tl.constexpr, D: tl.constexpr,
                 BLOCK: tl.constexpr):
    part, key_head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    end = tl.minimum((part + 1) * size, N)
    for member in range(0, GROUP):
        head = key_head * GROUP + member
        query = tl.load(q + head * D + d).to(tl.float32)
        top = tl.full((1,), float("-inf"), tl.float32)
        total = tl.zeros((1,), tl.float32)
        out = tl.zeros((D,), tl.float32)
        for start in range(part * size, end, BLOCK):
            j = start + tl.arange(0, BLOCK)
            at, inside = (key_head * N + j)[:, None] * D + d, j[:, None] < end
            x = tl.sum(tl.load(k + at, mask=inside, other=0.0).to(tl.float32) * query[None, :], 1) * scale
            x = tl.where(j < end, x, float("-inf"))
            higher = tl.maximum(top, tl.max(x, 0))
            old, weights = tl.exp(top - higher), tl.exp(x - higher)
            total = total * old + tl.sum(weights, 0)
            values = tl.load(v + at, mask=inside, other=0.0).to(tl.float32)
            out = out * old + tl.sum(weights[:, None] * values, 0)
            top = higher
        place = part * tl.num_programs(1) * GROUP + head
        tl.store(m + place + tl.arange(0, 1), top)
        tl.store(s + place + tl.arange(0, 1), total)
        tl.store(o + place * D + d, out)

# %% decode_split: o is not rescaled
# says: decode_split: o of
# edit: out * old[:, None] + tl.dot  ->  out + tl.dot

# %% decode_split: s is not rescaled
# says: decode_split: s of
# edit: total * old + tl.sum  ->  total + tl.sum

# %% decode_split: heads before parts
# says: decode_split: m of
# edit: part * tl.num_programs(1) * GROUP + head  ->  head * tl.num_programs(0) + part

# %% decode_split: the maximum begins at 0
# says: decode_split: m of
# edit: tl.full((16,), float("-inf"), tl.float32)  ->  tl.zeros((16,), tl.float32)

# %% decode_split: no scale
# says: decode_split: m of
# edit: other=0.0))) * scale  ->  other=0.0)))

# %% test_attention: only well-behaved numbers
# says: par is 20
def test_attention(candidate):
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((8, 4)).astype(np.float32) for _ in range(3))
    x = np.where(np.tri(8) > 0, q @ k.T / 2, -np.inf)
    want = np.exp(x) @ v / np.exp(x).sum(1, keepdims=True)
    assert np.allclose(candidate(q, k, v), want, atol=1e-3)

# %% test_attention: nothing is accepted
# says: refuses a program that is right
def test_attention(candidate):
    assert False, "no"

# %% decode_paged: the table is not used
# says: decode_paged
# edit: tl.load(table + entry).to(tl.int64)  ->  entry.to(tl.int64)

# %% decode_paged: what another text left behind leaks
# says: nan
# edit: inside = entry * BLOCK + place < N  ->  inside = place < BLOCK

# %% decode_paged: pages counted from the part's first
# says: decode_paged: m of
# edit: tl.load(table + entry)  ->  tl.load(table + entry - part * size)

# %% with_sink: the sink's own share
# says: that is the sink's share
# edit: torch.sigmoid(lse - sink[:, None])  ->  torch.sigmoid(sink[:, None] - lse)

# %% with_sink: overflows
# says: nan
# edit: torch.sigmoid(lse - sink[:, None])  ->  (torch.exp(lse) / (torch.exp(lse) + torch.exp(sink[:, None])))

# %% with_sink: no sink
# says: the sink takes nothing here
# edit: o * torch.sigmoid(lse - sink[:, None])[..., None]  ->  o

# %% block_mask: the mask_mod without its limit
# says: block_mask uses what is not allowed here (__closure__, cell_contents). Ask the mask_mod
def block_mask(mask_mod, queries, keys, block_q, block_k):
    raw = next(c.cell_contents for c in mask_mod.__closure__ if callable(c.cell_contents))
    seen = np.broadcast_to(np.asarray(raw(0, 0, np.arange(queries)[:, None], np.arange(keys)[None])), (queries, keys))
    seen = np.pad(seen.astype(np.int8) + 1, ((0, -queries % block_q), (0, -keys % block_k)))
    tiles = seen.reshape(seen.shape[0] // block_q, block_q, -1, block_k)
    some, every = (tiles == 2).any((1, 3)), (tiles != 1).all((1, 3))
    return torch.from_numpy(some.astype(np.int32) + every.astype(np.int32))

# %% test_attention: the program's text is found in an error's frame
# says: looks at a program's text (__traceback__, co_consts, f_code, tb_frame, tb_next)
def test_attention(candidate):
    try:
        candidate(None, None, None)
    except Exception as error:
        assert 2 in error.__traceback__.tb_next.tb_frame.f_code.co_consts
