# %% matmul_kernel: the sum in fp16
# says: sum in float32
# edit: tl.float32  ->  tl.float16
# edit: total = tl.dot(x, y, total)  ->  total += tl.dot(x, y).to(tl.float16)

# %% matmul_kernel: no mask along K
# says: reaches beyond K
# edit: (m[:, None] < M) & (k[None, :] < K - start)  ->  (m[:, None] < M)
# edit: (k[:, None] < K - start) & (n[None, :] < N)  ->  (n[None, :] < N)

# %% matmul_kernel: masked by the size of a block, not by what is left of K
# says: reaches beyond K
# edit (2 places): K - start  ->  K

# %% matmul_kernel: the last step wins
# says: add up all of them
# edit: tl.dot(x, y, total)  ->  tl.dot(x, y)

# %% matmul_kernel: the pointers stay where they are
# says: move on along K
# - a_tile += BLOCK_K * stride_ak
# - b_tile += BLOCK_K * stride_bk

# %% matmul_kernel: A's strides taken for those of a row-major matrix
# says: use their strides
# edit: a + m[:, None] * stride_am + k[None, :] * stride_ak  ->  a + m[:, None] * K + k[None, :]
# edit: BLOCK_K * stride_ak  ->  BLOCK_K

# %% matmul_kernel: all strides taken for those of row-major matrices
# says: use their strides
# edit: a + m[:, None] * stride_am + k[None, :] * stride_ak  ->  a + m[:, None] * K + k[None, :]
# edit: b + k[:, None] * stride_bk + n[None, :] * stride_bn  ->  b + k[:, None] * N + n[None, :]
# edit: BLOCK_K * stride_ak  ->  BLOCK_K
# edit: BLOCK_K * stride_bk  ->  BLOCK_K * N
# edit: c + m[:, None] * stride_cm + n[None, :] * stride_cn  ->  c + m[:, None] * N + n[None, :]

# %% matmul_kernel: C stored by the strides of a transposed C
# says: use the strides of c
# - c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
# + c_tile = c + m[:, None] * stride_cn + n[None, :] * stride_cm

# %% matmul_kernel: the store is not masked
# says: mask the store
# - tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)
# + tl.store(c_tile, total.to(c.dtype.element_ty))

# %% matmul_kernel: both operands loaded twice
# says: bytes loaded
#   total = tl.dot(x, y, total)
# + x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)

# %% matmul_kernel: B is not masked along K
# says: in both matrices
# edit: (k[:, None] < K - start) & (n[None, :] < N)  ->  n[None, :] < N

# %% matmul_kernel: the columns of B are not masked
# says: are outside
# edit: (k[:, None] < K - start) & (n[None, :] < N)  ->  k[:, None] < K - start

# %% matmul_kernel: the last, shorter step left out
# says: the last step is missing
# edit: range(0, K, BLOCK_K)  ->  range(0, K // BLOCK_K * BLOCK_K, BLOCK_K)

# %% matmul_kernel: moved along by BLOCK_K, whatever the stride
# says: 7 of 12 programs
# edit: BLOCK_K * stride_ak  ->  BLOCK_K

# %% matmul_kernel: tiles numbered down the columns
# says: down the columns
# - columns = tl.cdiv(N, BLOCK_N)
# - m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
# - n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
# + rows = tl.cdiv(M, BLOCK_M)
# + m = tl.program_id(0) % rows * BLOCK_M + tl.arange(0, BLOCK_M)
# + n = tl.program_id(0) // rows * BLOCK_N + tl.arange(0, BLOCK_N)

# %% grouped_order: the last band taken to be whole
# says: this skips tiles
# edit: min(rows - first, group)  ->  group

# %% grouped_order: along the rows of a band
# says: this goes along its rows
# - height = min(rows - first, group)
# edit: first + place % height, place // height  ->  first + place // columns, place % columns

# %% grouped_order: row by row
# says: want [
def grouped_order(program, rows, columns, group):
    return divmod(program, columns)

# %% grouped_order: column before row
# says: (column, row)
# edit: first + place % height, place // height  ->  place // height, first + place % height

# %% matmul_bias_gelu_kernel: tiles row by row
# says: They went row by row
# edit: (first + place % height) * BLOCK_M  ->  tl.program_id(0) // columns * BLOCK_M
# edit: place // height  ->  tl.program_id(0) % columns

# %% matmul_bias_gelu_kernel: the last band taken to be whole
# says: this skips tiles
# edit: min(rows - first, GROUP)  ->  GROUP

# %% matmul_bias_gelu_kernel: the bias added at every step
# says: not at every step along K
#   total = tl.dot(x, y, total)
# + if EPILOGUE:
# +     total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
# ...
# - total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
#   total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% matmul_bias_gelu_kernel: GELU before the bias
# says: first the bias
#   if EPILOGUE:
# +     total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
# ...
#   total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
# - total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% matmul_bias_gelu_kernel: no GELU
# says: GELU is missing
# - total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% matmul_bias_gelu_kernel: no bias
# says: bias is missing
# - total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]

# %% matmul_bias_gelu_kernel: the bias along rows
# says: not for its rows
# - total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
# + total += tl.load(bias + m, mask=m < N, other=0.0)[:, None]

# %% matmul_bias_gelu_kernel: the product stored and loaded again
# says: bytes of C loaded
#       b_tile += BLOCK_K * stride_bk
# + inside = (m[:, None] < M) & (n[None, :] < N)
# + at = c + m[:, None] * stride_cm + n[None, :] * stride_cn
# ...
#   if EPILOGUE:
# +     tl.store(at, total.to(c.dtype.element_ty), mask=inside)
# +     total = tl.load(at, mask=inside, other=0.0).to(tl.float32)
# ...
#       total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
# - inside = (m[:, None] < M) & (n[None, :] < N)

# %% matmul_bias_gelu_kernel: the bias read without the epilogue
# says: leave it alone
#       b_tile += BLOCK_K * stride_bk
# + more = tl.load(bias + n, mask=n < N, other=0.0)[None, :]
# edit: total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]  ->  total += more

# %% matmul_bias_gelu_kernel: the exponent has the wrong sign
# says: exponent has a minus
# - total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
# + total = total / (1 + tl.exp(1.5957691 * (total + 0.044715 * total * total * total)))

# %% matmul_bias_gelu_kernel: the columns of B are taken for neighbours
# says: gelu(A B + bias) in float32 with
# edit: n[None, :] * stride_bn  ->  n[None, :]

# %% persistent_matmul_kernel: one tile a program
# says: one tile: go on
# - for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
# + for tile in tl.range(tl.program_id(0), tl.program_id(0) + 1):

# %% persistent_matmul_kernel: one sum for all tiles of a program
# says: a new sum for each tile
#   rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
# + total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
# ...
#   m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
# - total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)

# %% persistent_matmul_kernel: the last band taken to be whole
# says: 15 tiles of
# edit: min(rows - first, GROUP)  ->  GROUP

# %% persistent_matmul_kernel: the epilogue forgotten
# says: Bias and GELU are missing
# edit: if EPILOGUE:  ->  if False:

# %% persistent_matmul_kernel: the bias read beyond its end
# says: loads element 56 of bias, which has 56 elements
# edit: column < N  ->  column <= N

# %% persistent_matmul_kernel: tiles row by row
# says: all go row by row
# - first = tile // (GROUP * columns) * GROUP
# - height = min(rows - first, GROUP)
# - place = tile % (GROUP * columns)
# - m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
# + m, n = tile // columns * BLOCK_M, tile % columns * BLOCK_N

# %% persistent_matmul_kernel: tiles column by column
# says: all tiles go column by column
# - first = tile // (GROUP * columns) * GROUP
# - height = min(rows - first, GROUP)
# - place = tile % (GROUP * columns)
# - m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
# + m, n = tile % rows * BLOCK_M, tile // rows * BLOCK_N

# %% persistent_matmul_kernel: tiles that follow each other to one program
# says: tiles 0, 4, 8 here, and not 0, 1, 2
# - for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
# + each = tl.cdiv(rows * columns, tl.num_programs(0))
# + mine = tl.program_id(0) * each
# + for tile in tl.range(mine, min(mine + each, rows * columns), flatten=True):

# %% wide_matmul_kernel: the second sum not stored
# says: columns of MORE are missing
# - c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))

# %% wide_matmul_kernel: the second sum's bias from the first columns
# says: a bias of their own
# edit: biased_gelu(more, bias, n + BLOCK_N, N, MORE)  ->  biased_gelu(more, bias, n, N, MORE)

# %% wide_matmul_kernel: windows along K from the next line on
# says: first numbers of a row are missing
# edit: -(i * K % BLOCK_K)  ->  i * K % BLOCK_K

# %% wide_matmul_kernel: windows along K from the row's first number on
# says: begins within a sector costs two
# edit: -(i * K % BLOCK_K)  ->  0

# %% wide_matmul_kernel: a step before the first window
# says: tl.dot calls
# edit: range(-(i * K % BLOCK_K), K, BLOCK_K)  ->  range(-(i * K % BLOCK_K) - BLOCK_K, K, BLOCK_K)

# %% wide_matmul_kernel: the bias read beyond its end
# says: loads element 56 of bias, which has 56 elements
# edit: column < N  ->  column <= N

# %% wide_matmul_kernel: tiles row by row, without bands
# says: The tiles of a band go column by column; here all go row by row.
# - rows, columns = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
# - first = tl.program_id(0) // (GROUP * columns) * GROUP
# - height = min(rows - first, GROUP)
# - place = tl.program_id(0) % (GROUP * columns)
# - row, n = first + place % height, place // height * (BLOCK_N + MORE)
# + columns = tl.cdiv(N, BLOCK_N + MORE)
# + row, n = tl.program_id(0) // columns, tl.program_id(0) % columns * (BLOCK_N + MORE)

# %% wide_matmul_kernel: tiles column by column, without bands
# says: Bands of GROUP rows: here all tiles go column by column.
# - rows, columns = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
# - first = tl.program_id(0) // (GROUP * columns) * GROUP
# - height = min(rows - first, GROUP)
# - place = tl.program_id(0) % (GROUP * columns)
# - row, n = first + place % height, place // height * (BLOCK_N + MORE)
# + rows = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M)
# + row, n = tl.program_id(0) % rows, tl.program_id(0) // rows * (BLOCK_N + MORE)

# %% logsumexp_matmul: no shift
# says: shift first
# - row_shift = a.amax(1, keepdim=True).clamp(min=-1e30)  # -inf less -inf would be NaN
# - column_shift = b.amax(0).clamp(min=-1e30)
# + row_shift = column_shift = 0

# %% logsumexp_matmul: shift of its own
# says: shift of its own
# - row_shift = a.amax(1, keepdim=True).clamp(min=-1e30)  # -inf less -inf would be NaN
# - column_shift = b.amax(0).clamp(min=-1e30)
# + row_shift, column_shift = a.max(), b.max()

# %% logsumexp_matmul: the shifts not undone
# says: Undo the shifts
# edit: + row_shift + column_shift  ->  + 0

# %% logsumexp_matmul: a row of -inf becomes NaN
# says: all -inf
# - row_shift = a.amax(1, keepdim=True).clamp(min=-1e30)  # -inf less -inf would be NaN
# - column_shift = b.amax(0).clamp(min=-1e30)
# + row_shift, column_shift = a.amax(1, keepdim=True), b.amax(0)

# %% logsumexp_matmul: the example does not underflow
# says: becomes -inf
# edit: torch.tensor([[0.0, -200.0]])  ->  torch.tensor([[0.0, -20.0]])

# %% logsumexp_matmul: a vector for a matrix
# says: right.ndim
# edit: torch.tensor([[-200.0], [0.0]])  ->  torch.tensor([-200.0, 0.0])

# %% one_tile_kernel: the transpose
# says: transpose of the product
# - tl.store(c + at, product)
# + tl.store(c + tl.trans(at), product)

# %% one_tile_kernel: b transposed
# says: b is transposed
# edit: tl.load(b + at)  ->  tl.load(b + tl.trans(at))

# %% one_tile_kernel: element by element
# says: want one tl.dot
# - product = tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION)
# + product = tl.load(a + at).to(tl.float32) * tl.load(b + at).to(tl.float32)

# %% one_tile_kernel: no tl.dot
# says: want one tl.dot
# - product = tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION)
# + x, y = tl.load(a + at).to(tl.float32), tl.load(b + at).to(tl.float32)
# + product = tl.sum(x[:, :, None] * y[None, :, :], 1)

# %% one_tile_kernel: operands in fp32
# says: not {'fp32 × fp32 + fp32'}
# edit: tl.load(a + at)  ->  tl.load(a + at).to(tl.float32)
# edit: tl.load(b + at)  ->  tl.load(b + at).to(tl.float32)

# %% one_tile_kernel: everything in fp16
# says: fp16
# edit: tl.load(a + at)  ->  tl.load(a + at).to(tl.float16)
# edit: tl.load(b + at)  ->  tl.load(b + at).to(tl.float16)

# %% one_tile_kernel: the sum in fp16
# says: not {'fp16 × fp16 + fp16'}
# edit: input_precision=PRECISION  ->  input_precision=PRECISION, out_dtype=tl.float16

# %% matmul_kernel: operands in fp32, without tensor cores
# says: leave the tiles in 16 bits
# edit: tl.dot(x, y, total)  ->  tl.dot(x.to(tl.float32), y.to(tl.float32), total, input_precision="ieee")

# %% matmul_kernel: operands in tf32
# says: leave the tiles in 16 bits
# edit: tl.dot(x, y, total)  ->  tl.dot(x.to(tl.float32), y.to(tl.float32), total)

# %% matmul_kernel: no tl.dot
# says: has no tl.dot
# edit: tl.dot(x, y, total)  ->  total + tl.sum(x.to(tl.float32)[:, :, None] * y.to(tl.float32)[None, :, :], 1)

# %% matmul_kernel: the sum rounded to fp16 at the end
# says: sum in float32
# edit: total.to(c.dtype.element_ty)  ->  total.to(tl.float16).to(c.dtype.element_ty)

# %% matmul_kernel: the sum rounded to bf16 at every step
# says: differ
# edit: tl.dot(x, y, total)  ->  tl.dot(x, y, total).to(tl.bfloat16).to(tl.float32)

# %% matmul_kernel: adds to what C held
# says: differ
#   inside = (m[:, None] < M) & (n[None, :] < N)
#   c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
# + total += tl.load(c_tile, mask=inside, other=0.0).to(tl.float32)

# %% grouped_order: bands of columns
# says: in order
def grouped_order(program, rows, columns, group):
    first = program // (group * rows) * group
    width = min(columns - first, group)
    place = program % (group * rows)
    return place // width, first + place % width

# %% grouped_order: the height of the first band for all
# says: this skips tiles
# edit: min(rows - first, group)  ->  min(rows, group)

# %% matmul_bias_gelu_kernel: the sum in fp16
# says: stay in float32
# edit: tl.zeros((BLOCK_M, BLOCK_N), tl.float32)  ->  tl.zeros((BLOCK_M, BLOCK_N), tl.float16)
# edit: total = tl.dot(x, y, total)  ->  total += tl.dot(x, y).to(tl.float16)
# edit: total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]  ->  total = (total + tl.load(bias + n, mask=n < N, other=0.0)[None, :]).to(tl.float32)

# %% matmul_bias_gelu_kernel: rounded to 16 bits before the bias
# says: stay in float32
# edit: total += tl.load  ->  total = total.to(tl.float16).to(tl.float32) + tl.load

# %% matmul_bias_gelu_kernel: rounded to 16 bits before GELU
# says: stay in float32
# - total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
# + total = total.to(tl.float16).to(tl.float32)
# + total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% matmul_bias_gelu_kernel: stored in fp16, whatever C is
# says: stay in float32
# edit: total.to(c.dtype.element_ty)  ->  total.to(tl.float16)

# %% matmul_bias_gelu_kernel: operands in fp32
# says: leave the tiles in 16 bits
# edit: tl.dot(x, y, total)  ->  tl.dot(x.to(tl.float32), y.to(tl.float32), total)

# %% matmul_bias_gelu_kernel: GELU with erf
# says: GELU with erf
# edit: total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))  ->  total * 0.5 * (1 + tl.erf(total * 0.70710678))

# %% matmul_bias_gelu_kernel: overflow in GELU
# says: overflows
# - total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
# + e = tl.exp(1.5957691 * (total + 0.044715 * total * total * total))
# + total = total * e / (1 + e)

# %% pipeline: room for one step more
# says: one step more
# edit: i >= stages  ->  i > stages
# edit: begun[i - stages][1]  ->  begun[i - stages - 1][1]

# %% pipeline: loads one after the other
# says: only a free place
# - load = begun[i - stages][1] + compute_s if i >= stages else 0.0
# + load = begun[i - stages][1] + compute_s if i >= stages else 0.0
# + load = max(load, begun[-1][0] + load_s if begun else 0.0)

# %% pipeline: products don't wait for each other
# says: waits for the product before
# edit: max(load + load_s, free)  ->  load + load_s

# %% pipeline: a place is free when its product begins
# says: free only when its product has ended
# edit: begun[i - stages][1] + compute_s  ->  begun[i - stages][1]

# %% pipeline: all loads begin at once
# says: pipeline(
# - load = begun[i - stages][1] + compute_s if i >= stages else 0.0
# + load = 0.0

# %% pipeline: nothing overlaps
# says: pipeline(
# - load = begun[i - stages][1] + compute_s if i >= stages else 0.0
# + load = free

# %% pipeline: when things end, not when they begin
# says: These are the ends
# edit: begun.append((load, product))  ->  begun.append((load + load_s, product + compute_s))
# edit: begun[i - stages][1] + compute_s  ->  begun[i - stages][1]

# %% cost_model: waves not rounded up
# says: takes as long as a full one
# edit: math.ceil(tile_count / (PROCESSORS * programs))  ->  tile_count / (PROCESSORS * programs)

# %% cost_model: tiles rounded down
# says: second wave
# edit: math.ceil(shape[0] / m) * math.ceil(shape[1] / n)  ->  (shape[0] // m) * (shape[1] // n)

# %% cost_model: K left out
# says: products decide
# edit: math.ceil(shape[2] / k)  ->  64

# %% cost_model: what does not fit gets a time
# says: does not fit
# - if resident_programs(config) == 0:
# -     return math.inf
# edit: min(resident_programs(config), math.ceil(tile_count / PROCESSORS))  ->  max(1, min(resident_programs(config), math.ceil(tile_count / PROCESSORS)))

# %% cost_model: products alone
# says: own wait decides
# edit: max(programs * product_s, programs * load_s, own_s)  ->  programs * product_s

# %% cost_model: loads left out
# says: loads decide
# edit: max(programs * product_s, programs * load_s, own_s)  ->  max(programs * product_s, own_s)

# %% cost_model: products left out
# says: products decide
# edit: max(programs * product_s, programs * load_s, own_s)  ->  max(programs * load_s, own_s)

# %% cost_model: the pipeline left out
# says: own wait decides
# edit: max(programs * product_s, programs * load_s, own_s)  ->  max(programs * product_s, programs * load_s)

# %% cost_model: the sum of the three times
# says: take the longest
# edit: max(programs * product_s, programs * load_s, own_s)  ->  sum([programs * product_s, programs * load_s, own_s])

# %% cost_model: one program per multiprocessor
# says: loads decide
# edit: min(resident_programs(config), math.ceil(tile_count / PROCESSORS))  ->  1

# %% cost_model: as many programs as fit, whether or not there are tiles
# says: no more than there are tiles
# edit: min(resident_programs(config), math.ceil(tile_count / PROCESSORS))  ->  resident_programs(config)

# %% cost_model: each program has a multiprocessor's speed
# says: share a multiprocessor
# edit: max(programs * product_s, programs * load_s, own_s)  ->  max(product_s, load_s, own_s)

# %% cost_model: one stage
# says: products decide
# edit: / stages  ->  / 1

# %% cost_model: num_stages - 1 share the wait
# says: in µs
# edit: / stages  ->  / max(1, stages - 1)

# %% cost_model: START_S left out
# says: START_S is missing
# edit: a_step_s + START_S  ->  a_step_s

# %% cost_model: START_S at every step
# says: once per wave, not per step
# edit: math.ceil(shape[2] / k) * a_step_s + START_S  ->  math.ceil(shape[2] / k) * (a_step_s + START_S)

# %% cost_model: each multiprocessor has all of PEAK
# says: a 132nd of PEAK
# edit: PEAK / PROCESSORS  ->  PEAK

# %% cost_model: numbers counted as bytes
# says: own wait decides
# edit: 2 * (m + n) * k  ->  (m + n) * k

# %% autotuned: warps and stages among the constants
# says: they are no constants
# - tried = [triton.Config({name: config[name] for name in CONFIG[:4]}, num_warps=config["num_warps"],
# -                        num_stages=config["num_stages"]) for config in configs]
# + tried = [triton.Config(dict(config)) for config in configs]

# %% autotuned: Triton's defaults for warps and stages
# says: were not replaced
# - tried = [triton.Config({name: config[name] for name in CONFIG[:4]}, num_warps=config["num_warps"],
# -                        num_stages=config["num_stages"]) for config in configs]
# + tried = [triton.Config({name: config[name] for name in CONFIG[:4]}) for config in configs]

# %% autotuned: K is missing in the key
# says: want M, N and K
# edit: key=["M", "N", "K"]  ->  key=["M", "N"]

# %% autotuned: searches for each new stride
# says: want M, N and K
# edit: key=["M", "N", "K"]  ->  key=["M", "N", "K", "stride_am"]

# %% autotuned: the first configuration only
# says: given 5
# edit: configs=tried  ->  configs=tried[:1]

# %% test_matmul: accepts everything
# says: refuses 0 of 19
def test_matmul(candidate):
    pass

# %% test_matmul: refuses everything
# says: refuses a program that is right
def test_matmul(candidate):
    raise AssertionError("wrong")

# %% test_matmul: returns its verdict
# says: a test returns nothing
def test_matmul(candidate):
    a, b = torch.randn(32, 48).half(), torch.randn(48, 80).half()
    return bool(torch.allclose(candidate(a, b), a.float() @ b.float(), atol=1e-3))

# %% test_matmul: one comfortable case
# says: par is 16
def test_matmul(candidate):
    a, b = torch.randn(64, 64).half(), torch.randn(64, 64).half()
    torch.testing.assert_close(candidate(a, b), a.float() @ b.float(), rtol=1e-2, atol=1e-1)

# %% test_matmul: wants the last bit
# says: refuses a program that is right
def test_matmul(candidate):
    for m, n, k in [(16, 16, 16), (33, 20, 47), (5, 40, 70)]:
        a, b = torch.randn(m, k).half(), torch.randn(k, n).half()
        assert torch.equal(candidate(a, b), (a.double() @ b.double()).float())

# %% test_matmul: writes to the candidate's arguments only afterwards
# says: par is 16
def test_matmul(candidate):
    a, b = torch.randn(16, 16).half(), torch.randn(16, 16).half()
    c = candidate(a, b)
    assert c.shape == (16, 16) and (c - a.float() @ b.float()).abs().max() < 1e-3

# %% corrected_s: trusts the model
# says: correct it
# edit: model_s * np.exp(x @ weights)  ->  model_s

# %% corrected_s: the model left out
# says: multiply the model by it
# edit: model_s * np.exp(x @ weights)  ->  np.exp(x @ weights)

# %% corrected_s: upside down
# says: upside down
# edit: np.exp(x @ weights)  ->  np.exp(-x @ weights)

# %% corrected_s: no penalty
# says: The penalty is missing
# edit: 0.1 * np.eye(x.shape[1])  ->  1e-9 * np.eye(x.shape[1])

# %% corrected_s: no column of ones
# says: a column of ones, which is missing
# edit: [np.ones(len(features)), features]  ->  [features]

# %% split_k_kernel: every program adds everything
# says: each should add a part
# edit: tl.program_id(1) * BLOCK_K  ->  0
# edit (3 places): SPLIT * BLOCK_K  ->  BLOCK_K

# %% split_k_kernel: stores its part
# says: tl.atomic_add
# - tl.atomic_add(c + m[:, None] * stride_cm + n[None, :] * stride_cn, total, mask=inside)
# + tl.store(c + m[:, None] * stride_cm + n[None, :] * stride_cn, total, mask=inside)

# %% split_k_kernel: one step per program
# says: go on along K
# edit: range(0, K - part, SPLIT * BLOCK_K)  ->  range(0, 1)

# %% split_k_kernel: not masked by its own part
# says: of fives
# edit (2 places): K - start  ->  K

# %% split_k_kernel: rows of B masked in the first part and in the first step, but not in later ones
# says: (33, 20, 166), SPLIT = 3
# edit: (k[:, None] < K - start) & (n  ->  ((k[:, None] < K - start) | (part * start > 0)) & (n

# %% split_k_kernel: the first part takes everything
# says: one program has more
# edit: tl.program_id(1) * BLOCK_K  ->  0
# edit: range(0, K - part, SPLIT * BLOCK_K)  ->  range(0, K * (tl.program_id(1) == 0), BLOCK_K)
# edit: SPLIT * BLOCK_K * stride_ak  ->  BLOCK_K * stride_ak
# edit: SPLIT * BLOCK_K * stride_bk  ->  BLOCK_K * stride_bk

# %% persistent_matmul_kernel: rounded before the epilogue
# says: stay in float32
# edit: total += tl.load(  ->  total = total.to(tl.float16).to(tl.float32) + tl.load(

# %% persistent_matmul_kernel: operands in fp32
# says: leave the tiles in 16 bits
# edit: a.load([m, k]), b.load([k, n])  ->  a.load([m, k]).to(tl.float32), b.load([k, n]).to(tl.float32)

# %% cost_model: steps rounded down
# says: one step more, which is almost empty
# edit: shape[2] / k  ->  shape[2] // k

# %% test_matmul: contiguous arguments only
# says: par is 16
#   for scale in (1, 300, 2**-12):
# -     a, b = (scale * torch.randn(k, m)).half().T, torch.randn(n, k).half().T
# +     a, b = (scale * torch.randn(m, k)).half(), torch.randn(k, n).half()
# edit: [(1, 1, 1), (16, 16, 16), (32, 48, 64), (80, 33, 47), (5, 40, 17)]  ->  [(16, 16, 16), (32, 48, 64)]

# %% matmul_bias_gelu_kernel: A is masked one number too late
# says: reaches beyond K
# edit: (k[None, :] < K - start), other=0.0)  ->  (k[None, :] <= K - start), other=0.0)

# %% split_k_kernel: B's rows are neighbours
# says: C of fives
# edit: b + k[:, None] * stride_bk + n[None, :] * stride_bn  ->  b + k[:, None] + n[None, :] * stride_bn

# %% matmul_kernel: each pair of tiles multiplied twice
# says: multiply each pair of tiles once
# edit: total = tl.dot(x, y, total)  ->  total = (tl.dot(x, y, total) + tl.dot(x, y, total)) / 2

# %% matmul_bias_gelu_kernel: each pair of tiles multiplied twice
# says: multiply each pair of tiles once
# edit: total = tl.dot(x, y, total)  ->  total = tl.dot(x, y, total) + 0 * tl.dot(x, y)

# %% logsumexp_matmul: an exponential for each of M × N × K
# says: took room for 2 × M × N × K numbers
def logsumexp_matmul(a, b):
    row = a.amax(1, keepdim=True).clamp(min=-1e30)
    column = b.amax(0).clamp(min=-1e30)
    return torch.exp((a - row)[:, :, None] + (b - column)).sum(1).log() + row + column


left = torch.tensor([[0.0, -200.0]])
right = torch.tensor([[-200.0], [0.0]])

# %% logsumexp_matmul: products of each pair, added without a matmul
# says: took room for 1 × M × N × K numbers
def logsumexp_matmul(a, b):
    row = a.amax(1, keepdim=True).clamp(min=-1e30)
    column = b.amax(0).clamp(min=-1e30)
    pairs = torch.exp(a - row)[:, :, None] * torch.exp(b - column)[None]
    return pairs.sum(1).log() + row + column


left = torch.tensor([[0.0, -200.0]])
right = torch.tensor([[-200.0], [0.0]])

# %% logsumexp_matmul: PyTorch's own, without a matmul
# says: none above -1000 becomes -inf
def logsumexp_matmul(a, b):
    return torch.stack([torch.logsumexp(row[:, None] + b, 0) for row in a])


left = torch.tensor([[0.0, -200.0]])
right = torch.tensor([[-200.0], [0.0]])

# %% grouped_order: a float
# says: int
# edit: return first + place % height, place // height  ->  return first + place % height, place / height

# %% cost_model: the wait counted for each program that shares the multiprocessor
# says: cost_model
# edit: own_s = (LATENCY_S + load_s + product_s) / stages  ->  own_s = programs * (LATENCY_S + load_s + product_s) / stages

# %% cost_model: the last, partial wave's programs only
# says: cost_model
# edit: waves = math.ceil(tile_count / (PROCESSORS * programs))  ->  waves = max(1.0, tile_count / (PROCESSORS * programs))

# %% autotuned: the key names the blocks
# says: want M, N and K
# edit: key=["M", "N", "K"]  ->  key=["M", "N", "K", "BLOCK_M"]

# %% corrected_s: logarithms base 2
# says: not that to base 2
# edit: y = np.log(measured_s[known] / model_s[known])  ->  y = np.log2(measured_s[known] / model_s[known])

# %% split_k_kernel: the last part takes what is left over
# says: one program has more
@triton.jit
def split_k_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                   SPLIT: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    first = tl.program_id(1) * (steps // SPLIT)
    last = first + steps // SPLIT
    if tl.program_id(1) == SPLIT - 1:
        last = steps
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(first, last):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        x = tl.load(a + m[:, None] * stride_am + k[None, :] * stride_ak,
                    mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * stride_bk + n[None, :] * stride_bn,
                    mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    tl.atomic_add(c + m[:, None] * stride_cm + n[None, :] * stride_cn, total,
                  mask=(m[:, None] < M) & (n[None, :] < N))

# %% matmul_kernel: the tiles rounded to bf16
# says: Leave the tiles in 16 bits
# edit: total = tl.dot(x, y, total)  ->  total = tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16), total)

# %% test_matmul: a loose tolerance
# says: of 19
def test_matmul(candidate):
    for m, n, k in [(1, 1, 1), (16, 16, 16), (32, 48, 64), (80, 33, 47), (5, 40, 17)]:
        a, b = torch.randn(k, m).half().T, torch.randn(n, k).half().T
        assert torch.allclose(candidate(a, b), a.float() @ b.float(), atol=10)

# %% one_tile_kernel: PRECISION is ignored
# says: give it PRECISION
# edit: input_precision=PRECISION  ->  input_precision="ieee"

# %% one_tile_kernel: the default precision
# says: give it PRECISION
# edit: , input_precision=PRECISION)  ->  )

# %% one_tile_kernel: stores zeros to a
# says: store to c only
#   tl.store(c + at, product)
# + tl.store(a + at, tl.zeros((SIZE, SIZE), tl.float32).to(a.dtype.element_ty))

# %% one_tile_kernel: adds to what c held
# says: store the product, do not add
# edit: tl.store(c + at, product)  ->  tl.store(c + at, product + tl.load(c + at))

# %% matmul_kernel: bf16 tiles converted to fp16
# says: these matrices are bf16
# edit: total = tl.dot(x, y, total)  ->  total = tl.dot(x.to(tl.float16), y.to(tl.float16), total)

# %% matmul_kernel: blocks of 32 columns taken for granted
# says: blocks of [32, 16, 32]
# edit: n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)  ->  n = tl.program_id(0) % columns * 32 + tl.arange(0, BLOCK_N)

# %% matmul_kernel: NaN filtered, not masked along K
# says: mask it, in both matrices
# edit: & (k[None, :] < K - start)  ->  & (k[None, :] < K - start + BLOCK_K)
# edit: (k[:, None] < K - start) & (n  ->  (k[:, None] < K - start + BLOCK_K) & (n
# edit: total = tl.dot(x, y, total)  ->  total = tl.dot(tl.where(x != x, 0.0, x), tl.where(y != y, 0.0, y), total)

# %% matmul_bias_gelu_kernel: bf16 tiles converted to fp16
# says: these matrices are bf16
# edit: total = tl.dot(x, y, total)  ->  total = tl.dot(x.to(tl.float16), y.to(tl.float16), total)

# %% matmul_bias_gelu_kernel: bands of two rows, whatever GROUP is
# says: tiles after 5 programs
# edit: GROUP * columns) * GROUP  ->  2 * columns) * 2
# edit: % (GROUP * columns)  ->  % (2 * columns)
# edit: min(rows - first, GROUP)  ->  min(rows - first, 2)

# %% cost_model: bands change the time
# says: GROUP = 1
# edit: return waves * (math.ceil(shape[2] / k) * a_step_s + START_S)  ->  return waves * (math.ceil(shape[2] / k) * a_step_s + START_S) * (1 + 0.3 / config["GROUP"])

# %% cost_model: tiles counted by area
# says: most of the last ones empty
# edit: tile_count = math.ceil(shape[0] / m) * math.ceil(shape[1] / n)  ->  tile_count = math.ceil(shape[0] * shape[1] / (m * n))

# %% autotuned: takes warps and stages out of the caller's dicts
# says: autotuned changed the configurations
# edit: config["num_warps"]  ->  config.pop("num_warps")
# edit: config["num_stages"]  ->  config.pop("num_stages")

# %% autotuned: BLOCK_M for both sides
# says: what the kernel tries
# edit: {name: config[name] for name in CONFIG[:4]}  ->  {name: config[name] for name in CONFIG[:4]} | {"BLOCK_N": config["BLOCK_M"]}

# %% corrected_s: float32
# says: only its first digits right
# edit: known = ~np.isnan(measured_s)  ->  known, features, model_s = ~np.isnan(measured_s), features.astype(np.float32), model_s.astype(np.float32)
# edit: return model_s * np.exp(x @ weights)  ->  return (model_s * np.exp(x @ weights)).astype(np.float32).astype(np.float64)

# %% corrected_s: fills the caller's measurements
# says: changed its argument number 3
# edit: known = ~np.isnan(measured_s)  ->  known = ~np.isnan(measured_s); measured_s[~known] = 1.0

# %% corrected_s: corrects the caller's model in place
# says: changed its argument number 2
# edit: return model_s * np.exp(x @ weights)  ->  model_s *= np.exp(x @ weights); return model_s

# %% logsumexp_matmul: shifts the caller's a
# says: changed its argument number 1
# edit: torch.exp(a - row_shift)  ->  torch.exp(a.sub_(row_shift))

# %% split_k_kernel: bf16 tiles converted to fp16
# says: these matrices are bf16
# edit: total = tl.dot(x, y, total)  ->  total = tl.dot(x.to(tl.float16), y.to(tl.float16), total)

# %% persistent_matmul_kernel: bf16 tiles converted to fp16
# says: these matrices are bf16
# edit: total = tl.dot(a.load([m, k]), b.load([k, n]), total)  ->  total = tl.dot(a.load([m, k]).to(tl.float16), b.load([k, n]).to(tl.float16), total)

# %% persistent_matmul_kernel: bands of two rows, whatever GROUP is
# says: bytes of the busiest program
# edit: GROUP * columns) * GROUP  ->  2 * columns) * 2
# edit: % (GROUP * columns)  ->  % (2 * columns)
# edit: min(rows - first, GROUP)  ->  min(rows - first, 2)

# %% grouped_order: a snake, down one column and up the next
# says: This is a snake: every column
def grouped_order(program, rows, columns, group):
    first = program // (group * columns) * group
    height = min(rows - first, group)
    place = program % (group * columns)
    row, column = place % height, place // height
    return first + (height - 1 - row if column % 2 else row), column

# %% grouped_order: a snake of bands
# says: This is a snake of bands
def grouped_order(program, rows, columns, group):
    first = program // (group * columns) * group
    height = min(rows - first, group)
    place = program % (group * columns)
    column = place // height
    return first + place % height, columns - 1 - column if first // group % 2 else column

# %% grouped_order: rows within the band
# says: add the band's first row
# edit: return first + place % height  ->  return place % height

# %% cost_model: START_S once for all waves
# says: three short waves, each with its start
# edit: waves * (math.ceil(shape[2] / k) * a_step_s + START_S)  ->  waves * math.ceil(shape[2] / k) * a_step_s + START_S

# %% one_tile_kernel: b a in place of a b
# says: This is b a
# edit: tl.dot(tl.load(a + at), tl.load(b + at)  ->  tl.dot(tl.load(b + at), tl.load(a + at)

# %% matmul_kernel: the narrower tiles of each row left out
# says: round N / BLOCK_N up
# edit: columns = tl.cdiv(N, BLOCK_N)  ->  columns = N // BLOCK_N

# %% matmul_kernel: tiles one row apart
# says: not one row
# edit: tl.program_id(0) // columns * BLOCK_M  ->  tl.program_id(0) // columns

# %% matmul_kernel: only A's pointers move
# says: pointers to B stay where they are
# - b_tile += BLOCK_K * stride_bk

# %% matmul_kernel: the sum is added twice per step
# says: adds to total already
# edit: total = tl.dot(x, y, total)  ->  total += tl.dot(x, y, total)

# %% grouped_order: a band has group * rows tiles
# says: not group * rows
# edit: program // (group * columns) * group  ->  program // (group * rows) * group
# edit: program % (group * columns)  ->  program % (group * rows)

# %% grouped_order: all bands taken to be as high as this one
# says: bands above it are whole
# edit: place = program % (group * columns)  ->  place = program % (height * columns)

# %% matmul_bias_gelu_kernel: all bands taken to be as high as this one
# says: in bands of 5
# edit: place = tl.program_id(0) % (GROUP * columns)  ->  place = tl.program_id(0) % (height * columns)

# %% matmul_bias_gelu_kernel: each tile has the bias of the first columns
# says: Column n has bias[n]
# edit: tl.load(bias + n, mask=n < N, other=0.0)[None, :]  ->  tl.load(bias + tl.arange(0, BLOCK_N))[None, :]

# %% matmul_bias_gelu_kernel: a square in place of the cube
# says: x³, not x²
# edit: total * total * total)))  ->  total * total)))

# %% matmul_bias_gelu_kernel: the epilogue without being asked
# says: EPILOGUE is False here
# edit: if EPILOGUE:  ->  if True:

# %% pipeline: a load waits for the product before
# says: not for that of step i - 1
# edit: begun[i - stages][1] + compute_s  ->  begun[i - 1][1] + compute_s

# %% cost_model: each step waits for the whole latency
# says: LATENCY_S is divided
# edit: (LATENCY_S + load_s + product_s) / stages  ->  LATENCY_S + (load_s + product_s) / stages

# %% cost_model: waves of 132 programs
# says: 132 R programs
# edit: math.ceil(tile_count / (PROCESSORS * programs))  ->  math.ceil(tile_count / PROCESSORS)

# %% autotuned: stages for warps, and warps for stages
# says: are swapped
# edit: num_warps=config["num_warps"]  ->  num_warps=config["num_stages"]
# edit: num_stages=config["num_stages"]  ->  num_stages=config["num_warps"]

# %% corrected_s: a ratio where a logarithm belongs
# says: here it is the ratio itself
# edit: np.log(measured_s[known] / model_s[known])  ->  measured_s[known] / model_s[known]

# %% corrected_s: a penalty of 1
# says: here it is I
# edit: 0.1 * np.eye  ->  np.eye

# %% corrected_s: corrects only what was measured
# says: correct all, not only those
# edit: return model_s * np.exp(x @ weights)  ->  return model_s[known] * np.exp(x[known] @ weights)

# %% logsumexp_matmul: one of two shifts undone
# says: that of b's columns is still in it
# edit: + row_shift + column_shift  ->  + row_shift

# %% split_k_kernel: parts that are no whole steps
# says: parts overlap
# edit: tl.program_id(1) * BLOCK_K  ->  tl.program_id(1) * (K // SPLIT)
# edit: range(0, K - part, SPLIT * BLOCK_K)  ->  range(0, K // SPLIT, BLOCK_K)
# edit: SPLIT * BLOCK_K * stride_ak  ->  BLOCK_K * stride_ak
# edit: SPLIT * BLOCK_K * stride_bk  ->  BLOCK_K * stride_bk

# %% split_k_kernel: each part moves on by one step
# says: not by BLOCK_K
# edit: a_tile += SPLIT * BLOCK_K * stride_ak  ->  a_tile += BLOCK_K * stride_ak
# edit: b_tile += SPLIT * BLOCK_K * stride_bk  ->  b_tile += BLOCK_K * stride_bk

# %% persistent_matmul_kernel: tiles loaded by their numbers
# says: not the tile's number
# edit: m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N  ->  m, n = first + place % height, place // height

# %% wide_matmul_kernel: the first columns loaded twice
# says: first columns once more
# edit: b_more.load([k, n + BLOCK_N])  ->  b_more.load([k, n])

# %% wide_matmul_kernel: all bands taken to be as high as this one
# says: in bands of 3
# edit: place = tl.program_id(0) % (GROUP * columns)  ->  place = tl.program_id(0) % (height * columns)

# %% pipeline: the course's, by a text
# says: pipeline uses what is not allowed here (getattr). Write a pipeline of your own.
def pipeline(steps, stages, load_s, compute_s):
    return getattr(pictures, "steps" + "_of")(steps, stages, load_s, compute_s)
