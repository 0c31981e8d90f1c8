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
# says: shorter step is missing
# edit: range(0, K, BLOCK_K)  ->  range(0, K // BLOCK_K * BLOCK_K, BLOCK_K)

# %% matmul_kernel: moved along by BLOCK_K, whatever the stride
# says: 7 of 12 programs, a transposed
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

# %% resident_programs: the system's shared memory forgotten
# says: 1,024 bytes
# edit: 233_472 // (shared_bytes + 1024)  ->  233_472 // shared_bytes

# %% matmul_bias_gelu_kernel: the columns of B are taken for neighbours
# says: gelu(A B + bias) with
# edit: n[None, :] * stride_bn  ->  n[None, :]

# %% resident_programs: what fits to the byte does not fit
# says: to the byte
# - return min(233_472 // (shared_bytes + 1024), 65_536 // (registers * threads))
# + programs = 1
# + while ((programs + 1) * (shared_bytes + 1024) < 233_472
# +        and (programs + 1) * registers * threads <= 65_536):
# +     programs += 1
# + return programs

# %% resident_programs: one stage
# says: for each stage
# edit: config["num_stages"] * 2  ->  2

# %% resident_programs: float32 tiles
# says: 16 bits
# edit: config["num_stages"] * 2  ->  config["num_stages"] * 4

# %% resident_programs: no limit on a thread's registers
# says: 255 registers
# edit: shared_bytes > 232_448 or registers > 255  ->  shared_bytes > 232_448

# %% resident_programs: sums only
# says: Sums are not all
# edit: sums + sums // 2 + 30  ->  sums

# %% resident_programs: a warp taken for a thread
# says: a warp has 32 threads
# edit: 32 * config["num_warps"]  ->  config["num_warps"]

# %% resident_programs: half of the sums in place of the sums
# says: half as many besides
# edit: sums + sums // 2  ->  sums // 2

# %% cost_model: waves not rounded up
# says: for half of it: as long
# - waves = math.ceil(math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs))
# + waves = math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs)

# %% cost_model: tiles rounded down
# says: another wave
# edit: math.ceil(shape[0] / m) * math.ceil(shape[1] / n)  ->  (shape[0] // m) * (shape[1] // n)

# %% cost_model: K left out
# says: twice the K
# edit: math.ceil(shape[2] / k)  ->  64

# %% cost_model: what does not fit gets a time
# says: does not fit
# - if programs == 0:
# -     return math.inf
# + programs = max(programs, 1)

# %% cost_model: FLOPs alone
# says: PEAK and L2_BANDWIDTH allow
def cost_model(config, shape):
    programs = resident_programs(config)
    if programs == 0:
        return math.inf
    m, n, k = (config[name] for name in CONFIG[:3])
    waves = math.ceil(math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs))
    return waves * programs * 2 * m * n * shape[2] * PROCESSORS / PEAK

# %% cost_model: what is on its way does not matter
# says: mean regret
# edit: LATENCY_S / max(1, stages - 1)  ->  0

# %% cost_model: each multiprocessor has all of PEAK
# says: PEAK and L2_BANDWIDTH allow
# edit: programs * 2 * m * n * k / (PEAK / PROCESSORS)  ->  programs * 2 * m * n * k / PEAK

# %% cost_model: numbers counted as bytes
# says: PEAK and L2_BANDWIDTH allow
# edit: programs * 2 * (m + n)  ->  programs * (m + n)

# %% next_to_measure: measures the best one again
# says: has been measured
# edit: np.where(known, np.inf, corrected_s)  ->  np.where(known, measured_s, np.inf)

# %% next_to_measure: trusts the model
# says: correct the model
# edit: model_s * np.exp(x @ weights)  ->  model_s

# %% next_to_measure: the slowest
# says: 25 of 40 measured
# - return int(np.where(known, np.inf, corrected_s).argmin())
# + return int(np.where(known, -np.inf, corrected_s).argmax())

# %% next_to_measure: the place among those not measured
# says: its place among all
# edit: np.where(known, np.inf, corrected_s)  ->  corrected_s[~known]

# %% next_to_measure: the model left out
# says: 25 of 40 measured
# edit: model_s * np.exp(x @ weights)  ->  np.exp(x @ weights)

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
