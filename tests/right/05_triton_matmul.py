# %% one_tile_kernel: row and column named apart
@triton.jit
def one_tile_kernel(a, b, c, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    row = tl.arange(0, SIZE)[:, None]
    column = tl.arange(0, SIZE)[None, :]
    left = tl.load(a + SIZE * row + column)
    right = tl.load(b + SIZE * row + column)
    tl.store(c + SIZE * row + column, tl.dot(left, right, input_precision=PRECISION))

# %% one_tile_kernel: transposed twice
# edit: tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION)  ->  tl.trans(tl.dot(tl.trans(tl.load(b + at)), tl.trans(tl.load(a + at)), input_precision=PRECISION))

# %% one_tile_kernel: adds to zeros
# edit: tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION)  ->  tl.dot(tl.load(a + at), tl.load(b + at), tl.zeros((SIZE, SIZE), tl.float32), input_precision=PRECISION)

# %% one_tile_kernel: block pointers
@triton.jit
def one_tile_kernel(a, b, c, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    x = tl.load(tl.make_block_ptr(a, (SIZE, SIZE), (SIZE, 1), (0, 0), (SIZE, SIZE), (1, 0)))
    y = tl.load(tl.make_block_ptr(b, (SIZE, SIZE), (SIZE, 1), (0, 0), (SIZE, SIZE), (1, 0)))
    at = tl.make_block_ptr(c, (SIZE, SIZE), (SIZE, 1), (0, 0), (SIZE, SIZE), (1, 0))
    tl.store(at, tl.dot(x, y, input_precision=PRECISION))

# %% matmul_kernel: Triton's tutorial, rows and columns wrapped around
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid = tl.program_id(0)
    pid_m, pid_n = pid // tl.cdiv(N, BLOCK_N), pid % tl.cdiv(N, BLOCK_N)
    rm = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    rn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    rk = tl.arange(0, BLOCK_K)
    ap = a + rm[:, None] * stride_am + rk[None, :] * stride_ak
    bp = b + rk[:, None] * stride_bk + rn[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        x = tl.load(ap, mask=rk[None, :] < K - k * BLOCK_K, other=0.0)
        y = tl.load(bp, mask=rk[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(x, y, acc)
        ap += BLOCK_K * stride_ak
        bp += BLOCK_K * stride_bk
    cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(c + stride_cm * cm[:, None] + stride_cn * cn[None, :], acc.to(c.dtype.element_ty),
             mask=(cm[:, None] < M) & (cn[None, :] < N))

# %% matmul_kernel: pointers computed anew at every step
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    row, column = tl.program_id(0) // columns, tl.program_id(0) % columns
    m = (row * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    n = (column * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        x = tl.load(a + m * stride_am + k[None, :] * stride_ak, mask=(m < M) & (k[None, :] < K), other=0)
        y = tl.load(b + k[:, None] * stride_bk + n * stride_bn, mask=(k[:, None] < K) & (n < N), other=0)
        total += tl.dot(x, y)
    tl.store(c + m * stride_cm + n * stride_cn, total.to(c.dtype.element_ty), mask=(m < M) & (n < N))

# %% matmul_kernel: block pointers with boundary checks
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m, n = tl.program_id(0) // columns * BLOCK_M, tl.program_id(0) % columns * BLOCK_N
    ap = tl.make_block_ptr(a, (M, K), (stride_am, stride_ak), (m, 0), (BLOCK_M, BLOCK_K), (1, 0))
    bp = tl.make_block_ptr(b, (K, N), (stride_bk, stride_bn), (0, n), (BLOCK_K, BLOCK_N), (1, 0))
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(ap, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(bp, boundary_check=(0, 1), padding_option="zero")
        total = tl.dot(x, y, total)
        ap = tl.advance(ap, (0, BLOCK_K))
        bp = tl.advance(bp, (BLOCK_K, 0))
    cp = tl.make_block_ptr(c, (M, N), (stride_cm, stride_cn), (m, n), (BLOCK_M, BLOCK_N), (1, 0))
    tl.store(cp, total.to(c.dtype.element_ty), boundary_check=(0, 1))

# %% matmul_kernel: a while loop, and 64-bit offsets
# - for start in range(0, K, BLOCK_K):
# + start = 0
# + while start < K:
# ...
#       b_tile += BLOCK_K * stride_bk
# +     start += BLOCK_K
# edit: a + m[:, None] * stride_am  ->  a + m[:, None].to(tl.int64) * stride_am

# %% matmul_kernel: the product of the transposes
# edit: total = tl.dot(x, y, total)  ->  total += tl.trans(tl.dot(tl.trans(y), tl.trans(x)))

# %% matmul_kernel: loads without other, then where
# edit: x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)  ->  x = tl.where(k[None, :] < K - start, tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start)), 0.0)

# %% matmul_kernel: the last step peeled
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    whole = K // BLOCK_K * BLOCK_K
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, whole, BLOCK_K):
        x = tl.load(a + m[:, None] * stride_am + (start + k)[None, :] * stride_ak,
                    mask=(m < M)[:, None], other=0.0)
        y = tl.load(b + (start + k)[:, None] * stride_bk + n[None, :] * stride_bn,
                    mask=(n < N)[None, :], other=0.0)
        total = tl.dot(x, y, total)
    if whole < K:
        rest = (whole + k) < K
        x = tl.load(a + m[:, None] * stride_am + (whole + k)[None, :] * stride_ak,
                    mask=(m < M)[:, None] & rest[None, :], other=0.0)
        y = tl.load(b + (whole + k)[:, None] * stride_bk + n[None, :] * stride_bn,
                    mask=(n < N)[None, :] & rest[:, None], other=0.0)
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * stride_cm + n[None, :] * stride_cn, total.to(c.dtype.element_ty),
             mask=(m < M)[:, None] & (n < N)[None, :])

# %% grouped_order: divmod
def grouped_order(program, rows, columns, group):
    band, place = divmod(program, group * columns)
    height = min(group, rows - band * group)
    column, row = divmod(place, height)
    return band * group + row, column

# %% grouped_order: a list of all tiles
def grouped_order(program, rows, columns, group):
    tiles = []
    for first in range(0, rows, group):
        for column in range(columns):
            for row in range(first, min(first + group, rows)):
                tiles.append((row, column))
    return tiles[program]

# %% grouped_order: sorted by band, column, row
def grouped_order(program, rows, columns, group):
    every = [(row, column) for row in range(rows) for column in range(columns)]
    return sorted(every, key=lambda tile: (tile[0] // group, tile[1], tile[0]))[program]

# %% grouped_order: band by band, in a loop
def grouped_order(program, rows, columns, group):
    first = 0
    while program >= group * columns and first + group < rows:
        program -= group * columns
        first += group
    height = min(group, rows - first)
    return (first + program % height, program // height)

# %% matmul_bias_gelu_kernel: a helper for the order, tanh by sigmoid
@triton.jit
def tile_of(program, rows, columns, GROUP: tl.constexpr):
    band = program // (GROUP * columns)
    height = min(rows - band * GROUP, GROUP)
    place = program - band * GROUP * columns
    return band * GROUP + place % height, place // height


@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    row, column = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a + m[:, None] * stride_am + (start + k)[None, :] * stride_ak,
                    mask=(m[:, None] < M) & ((start + k)[None, :] < K), other=0.0)
        y = tl.load(b + (start + k)[:, None] * stride_bk + n[None, :] * stride_bn,
                    mask=((start + k)[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    if EPILOGUE:
        z = total + tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        total = z * tl.sigmoid(1.5957691 * (z + 0.044715 * z * z * z))
    tl.store(c + m[:, None] * stride_cm + n[None, :] * stride_cn, total.to(c.dtype.element_ty),
             mask=(m[:, None] < M) & (n[None, :] < N))

# %% matmul_bias_gelu_kernel: exp2 and factors
# edit: total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))  ->  total / (1 + tl.exp2(-2.3022082 * total * (1 + 0.044715 * total * total)))

# %% matmul_bias_gelu_kernel: the bias first, in the sum
# - total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
# + total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
# + if EPILOGUE:
# +     total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
# ...
# - total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
#   total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% pipeline: a simulation with slots
def pipeline(steps, stages, load_s, compute_s):
    slots, busy_until, out = [0] * stages, 0, []
    for step in range(steps):
        load = slots[step % stages]
        product = max(load + load_s, busy_until)
        busy_until = product + compute_s
        slots[step % stages] = busy_until
        out.append((load, product))
    return out

# %% pipeline: two recursive functions
def pipeline(steps, stages, load_s, compute_s):
    @functools.cache
    def load(i):
        return 0.0 if i < stages else product(i - stages) + compute_s

    @functools.cache
    def product(i):
        arrived = load(i) + load_s
        return arrived if i == 0 else max(arrived, product(i - 1) + compute_s)

    return [(load(i), product(i)) for i in range(steps)]

# %% pipeline: NumPy arrays
def pipeline(steps, stages, load_s, compute_s):
    loads, products = np.zeros(steps), np.zeros(steps)
    for i in range(steps):
        if i >= stages:
            loads[i] = products[i - stages] + compute_s
        products[i] = loads[i] + load_s
        if i > 0:
            products[i] = max(products[i], products[i - 1] + compute_s)
    return list(zip(loads, products))

# %% cost_model: by waves of one
def cost_model(config, shape):
    resident = resident_programs(config)
    if not resident:
        return float("inf")
    rows, columns = -(-shape[0] // config["BLOCK_M"]), -(-shape[1] // config["BLOCK_N"])
    each = -(-rows * columns // PROCESSORS)
    r = resident if each > resident else each
    flops = 2 * config["BLOCK_M"] * config["BLOCK_N"] * config["BLOCK_K"]
    moved = 2 * config["BLOCK_K"] * (config["BLOCK_M"] + config["BLOCK_N"])
    product, load = flops * PROCESSORS / PEAK, moved * PROCESSORS / L2
    step = max([r * product, r * load, (LATENCY_S + load + product) / config["num_stages"]])
    steps = -(-shape[2] // config["BLOCK_K"])
    return -(-each // r) * (steps * step + START_S)

# %% cost_model: in NumPy
def cost_model(config, shape):
    m, n, k, _, warps, stages = np.array([config[name] for name in CONFIG])
    r = resident_programs(config)
    if r == 0:
        return np.inf
    tiles_ = np.ceil(shape[0] / m) * np.ceil(shape[1] / n)
    r = min(r, np.ceil(tiles_ / PROCESSORS))
    product, load = 2 * m * n * k * PROCESSORS / PEAK, 2 * (m + n) * k * PROCESSORS / L2
    step = np.max([r * product, r * load, (LATENCY_S + load + product) / stages])
    return float(np.ceil(tiles_ / PROCESSORS / r) * (np.ceil(shape[2] / k) * step + START_S))

# %% autotuned: a copy without warps and stages
def autotuned(kernel, configs):
    tried = []
    for config in configs:
        constants = dict(config)
        warps, stages = constants.pop("num_warps"), constants.pop("num_stages")
        tried.append(triton.Config(constants, num_warps=warps, num_stages=stages))
    return triton.autotune(tried, ["K", "N", "M"])(kernel)

# %% autotuned: as a decorator of a kernel
def autotuned(kernel, configs):
    decorate = triton.autotune(
        configs=[triton.Config(kwargs={n: c[n] for n in c if n.isupper()}, num_stages=c["num_stages"],
                               num_warps=c["num_warps"]) for c in configs], key=["M", "N", "K"])
    return decorate(kernel)

# %% test_matmul: few cases, one after the other
def test_matmul(candidate):
    def check(a, b):
        want = a.double() @ b.double()
        first = candidate(a.clone(memory_format=torch.preserve_format), b)
        assert first.dtype == torch.float32
        torch.testing.assert_close(first.double(), want, rtol=1e-4, atol=1e-4, equal_nan=True)

    torch.manual_seed(1)
    for m, n, k in [(16, 16, 16), (16, 16, 17), (40, 24, 33), (80, 48, 64), (80, 48, 64)]:
        check(torch.randn(m, k).half(), torch.randn(k, n).half())
        check(torch.randn(k, m).half().T, torch.randn(n, k).half().T)
        check(2.0**-16 * torch.ones(m, k).half(), torch.randn(k, n).half() * 1000)
    check(torch.full((16, 16), float("nan")).half(), torch.ones(16, 16).half())

# %% corrected_s: least squares with rows for the penalty
def corrected_s(features, model_s, measured_s):
    known = np.isfinite(measured_s)
    ones = np.ones((len(features), 1))
    x = np.hstack([ones, features])
    left = np.vstack([x[known], np.sqrt(0.1) * np.eye(x.shape[1])])
    right = np.r_[np.log(measured_s[known] / model_s[known]), np.zeros(x.shape[1])]
    return np.exp(np.log(model_s) + x @ np.linalg.lstsq(left, right, rcond=None)[0])

# %% corrected_s: no penalty on the intercept
# edit: 0.1 * np.eye(x.shape[1])  ->  0.1 * np.diag([0.0] + [1.0] * features.shape[1])

# %% logsumexp_matmul: in float64
def logsumexp_matmul(a, b):
    row, column = a.max(1, keepdim=True).values, b.max(0, keepdim=True).values
    row = torch.where(torch.isinf(row), 0.0, row).double()
    column = torch.where(torch.isinf(column), 0.0, column).double()
    return (((a - row).exp() @ (b - column).exp()).log() + row + column).float()


left = torch.tensor([[0.0, -800.0]])
right = torch.tensor([[-800.0], [0.0]])

# %% split_k_kernel: neighbouring steps to one program
@triton.jit
def split_k_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                   SPLIT: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    each = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K
    begin = tl.program_id(1) * each
    end = min(begin + each, K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(begin, end, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(a + m[:, None] * stride_am + k[None, :] * stride_ak,
                    mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * stride_bk + n[None, :] * stride_bn,
                    mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    tl.atomic_add(c + m[:, None] * stride_cm + n[None, :] * stride_cn, total,
                  mask=(m[:, None] < M) & (n[None, :] < N))
