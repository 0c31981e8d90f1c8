# %% one_tile_kernel: transposed twice
# edit: tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION)  ->  tl.trans(tl.dot(tl.trans(tl.load(b + at)), tl.trans(tl.load(a + at)), input_precision=PRECISION))

# %% one_tile_kernel: adds to zeros
# edit: tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION)  ->  tl.dot(tl.load(a + at), tl.load(b + at), tl.zeros((SIZE, SIZE), tl.float32), input_precision=PRECISION)

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

# %% matmul_kernel: loads without other, then where
# edit: x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)  ->  x = tl.where(k[None, :] < K - start, tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start)), 0.0)

# %% grouped_order: sorted by band, column, row
def grouped_order(program, rows, columns, group):
    every = [(row, column) for row in range(rows) for column in range(columns)]
    return sorted(every, key=lambda tile: (tile[0] // group, tile[1], tile[0]))[program]

# %% matmul_bias_gelu_kernel: exp2 and factors
# edit: total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))  ->  total / (1 + tl.exp2(-2.3022082 * total * (1 + 0.044715 * total * total)))

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

# %% corrected_s: no penalty on the intercept
# edit: 0.1 * np.eye(x.shape[1])  ->  0.1 * np.diag([0.0] + [1.0] * features.shape[1])

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

# %% one_tile_kernel: one row of addresses, reshaped
@triton.jit
def one_tile_kernel(a, b, c, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    at = tl.reshape(tl.arange(0, SIZE * SIZE), (SIZE, SIZE))
    x, y = tl.load(a + at), tl.load(b + at)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    total += tl.dot(x, y, input_precision=PRECISION, out_dtype=tl.float32)
    tl.store(c + at, total)

# %% matmul_kernel: descriptors' order: a tile's pointers from its corner, and 64-bit offsets everywhere
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    program, columns = tl.program_id(0).to(tl.int64), tl.cdiv(N, BLOCK_N)
    row = program // columns
    column = program - row * columns
    i, j, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    left_m, left_n = M - row * BLOCK_M, N - column * BLOCK_N
    a += row * BLOCK_M * stride_am
    b += column * BLOCK_N * stride_bn
    c += row * BLOCK_M * stride_cm + column * BLOCK_N * stride_cn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    left_k = K
    while left_k > 0:
        x = tl.load(a + i[:, None] * stride_am + k[None, :] * stride_ak,
                    mask=(i[:, None] < left_m) & (k[None, :] < left_k), other=0.0)
        y = tl.load(b + k[:, None] * stride_bk + j[None, :] * stride_bn,
                    mask=(k[:, None] < left_k) & (j[None, :] < left_n), other=0.0)
        total += tl.dot(x, y)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
        left_k -= BLOCK_K
    tl.store(c + i[:, None] * stride_cm + j[None, :] * stride_cn, total.to(c.dtype.element_ty),
             mask=(i[:, None] < left_m) & (j[None, :] < left_n))

# %% cost_model: from FLOP and bytes of the whole wave
def cost_model(config, shape):
    r = resident_programs(config)
    if not r:
        return math.inf
    M, N, K = shape
    bm, bn, bk, stages = (config[key] for key in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages"))
    tiles_of = lambda a, b: (a + b - 1) // b
    count = tiles_of(M, bm) * tiles_of(N, bn)
    r = min(r, tiles_of(count, PROCESSORS))
    wave = PROCESSORS * r
    flops, moved = wave * 2 * bm * bn * bk, wave * 2 * (bm + bn) * bk
    own = LATENCY_S + (flops / PEAK + moved / L2) / r
    step = sorted([flops / PEAK, moved / L2, own / stages])[-1]
    return tiles_of(count, wave) * (START_S + tiles_of(K, bk) * step)

# %% autotuned: all of a configuration's constants by name
def autotuned(kernel, configs):
    def made(BLOCK_M, BLOCK_N, BLOCK_K, GROUP, num_warps, num_stages):
        constants = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP=GROUP)
        return triton.Config(constants, num_stages=num_stages, num_warps=num_warps)

    return triton.autotune(configs=[made(**config) for config in configs], key=["N", "K", "M"])(kernel)

# %% test_matmul: cases from a table, compared by float64
def test_matmul(candidate):
    generator = torch.Generator().manual_seed(5)
    sizes = (1, 15, 16, 17, 33, 64, 80)
    for number in range(60):
        m, n, k = (sizes[i] for i in torch.randint(7, (3,), generator=generator))
        a = torch.randn(k, m, generator=generator).half().T * 2.0 ** (number % 3 * 8 - 14)
        b = torch.randn(n, k, generator=generator).half().T
        kept = a.clone()
        c = candidate(a, b)
        if c.dtype != torch.float32 or list(c.shape) != [m, n] or not torch.equal(a, kept):
            raise AssertionError("form")
        wrong = (c.double() - a.double() @ b.double()).abs()
        if not (wrong <= 1e-5 * (a.double().abs() @ b.double().abs())).all():
            raise AssertionError("values")
    large = torch.full((16, 400), 200.0).half()
    assert torch.equal(candidate(large, large.T), torch.full((16, 16), 400 * 200.0**2))

# %% test_matmul: whole numbers, which must be exact
def test_matmul(candidate):
    random = np.random.default_rng(3)
    for m, n, k in [(1, 1, 1), (1, 1, 33), (16, 48, 17), (48, 16, 32), (80, 33, 64), (80, 80, 16), (17, 40, 31)] * 2:
        a = torch.tensor(random.integers(-2000, 2000, (m, 2 * k))).half()[:, ::2]
        b = torch.tensor(random.integers(-3, 4, (n, k))).half().T
        for x in (a, a / 2**30):
            kept = x.clone()
            c = candidate(x, b)
            assert torch.equal(c, (x.double() @ b.double()).float())
            assert c.dtype is torch.float32 and torch.equal(kept, x)
    assert candidate(torch.full((16, 16), torch.nan).half(), torch.ones(16, 16).half()).isnan().all()

# %% corrected_s: the normal equations, summed measurement by measurement
def corrected_s(features, model_s, measured_s):
    d = features.shape[1] + 1
    left, right = 0.1 * np.identity(d), np.zeros(d)
    for row, guess, truth in zip(features, model_s, measured_s):
        if truth == truth:
            x = np.r_[1.0, row]
            left += np.outer(x, x)
            right += x * math.log(truth / guess)
    weights = np.linalg.inv(left) @ right
    return np.array([guess * math.exp(weights[0] + row @ weights[1:])
                     for row, guess in zip(features, model_s)])

# %% corrected_s: in PyTorch
def corrected_s(features, model_s, measured_s):
    x = torch.cat([torch.ones(len(features), 1), torch.tensor(features)], 1).double()
    model, measured = torch.tensor(model_s), torch.tensor(measured_s)
    known = ~measured.isnan()
    y = (measured / model).log()[known]
    inverse = torch.linalg.inv(x[known].mT @ x[known] + torch.eye(x.shape[1]) / 10)
    return (model * (x @ (inverse @ x[known].mT @ y)).exp()).numpy()

# %% logsumexp_matmul: shifts as NumPy, by einsum
def logsumexp_matmul(a, b):
    r = np.maximum(a.numpy().max(1), -1e30)
    c = np.maximum(b.numpy().max(0), -1e30)
    left_, right_ = np.exp(a.numpy() - r[:, None]), np.exp(b.numpy() - c)
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(np.einsum("ik,kj->ij", left_, right_, optimize=True)) + r[:, None] + c)


left = torch.tensor([[0.0, -300.0], [-300.0, 0.0]])
right = torch.tensor([[-300.0, 1.0], [0.0, 2.0]])

# %% logsumexp_matmul: in two's powers, nothing of -inf touched
def logsumexp_matmul(a, b):
    top = lambda x, axis: torch.nan_to_num(x.max(axis, keepdim=True).values, neginf=0.0)
    r, c = top(a, 1), top(b, 0)
    powers = lambda x: torch.exp2(x * 1.4426950408889634)
    return (powers(a - r).mm(powers(b - c))).log2().mul(0.6931471805599453).add(r).add(c)


left = torch.zeros(3, 2)
left[:, 1] = -150
right = left.T.flip(0)

# %% split_k_kernel: a part's steps with the remainder spread, by a while loop
@triton.jit
def split_k_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                   SPLIT: tl.constexpr):
    row, column = tl.program_id(0) // tl.cdiv(N, BLOCK_N), tl.program_id(0) % tl.cdiv(N, BLOCK_N)
    i, j = row * BLOCK_M + tl.arange(0, BLOCK_M), column * BLOCK_N + tl.arange(0, BLOCK_N)
    steps, part = tl.cdiv(K, BLOCK_K), tl.program_id(1)
    step, end = part * steps // SPLIT, (part + 1) * steps // SPLIT
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    while step < end:
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        x = tl.load(a + i[:, None] * stride_am + k[None, :] * stride_ak,
                    mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * stride_bk + j[None, :] * stride_bn,
                    mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        total += tl.dot(x, y)
        step += 1
    tl.atomic_add(c + i[:, None] * stride_cm + j[None, :] * stride_cn, total,
                  mask=(i[:, None] < M) & (j[None, :] < N), sem="relaxed")

# %% persistent_matmul_kernel: a while loop, and a helper for the order
@triton.jit
def place_of(tile, rows, columns, GROUP: tl.constexpr):
    first = tile // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    return first + tile % (GROUP * columns) % height, tile % (GROUP * columns) // height


@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns, tile = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), tl.program_id(0)
    while tile < rows * columns:
        row, column = place_of(tile, rows, columns, GROUP)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            x = a.load([row * BLOCK_M, step * BLOCK_K])
            total += tl.dot(x, b.load([step * BLOCK_K, column * BLOCK_N]))
        if EPILOGUE:
            j = column * BLOCK_N + tl.arange(0, BLOCK_N)
            z = total + tl.load(bias + j, mask=j < N, other=0.0).to(tl.float32)[None, :]
            total = z * tl.sigmoid(1.5957691 * (z + 0.044715 * z * z * z))
        c.store([row * BLOCK_M, column * BLOCK_N], total.to(c.dtype))
        tile += tl.num_programs(0)

# %% persistent_matmul_kernel: the bias is where the sum begins
# - total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
# + total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
# + if EPILOGUE:
# +     column = n + tl.arange(0, BLOCK_N)
# +     total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
# ...
# - column = n + tl.arange(0, BLOCK_N)
# - total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
#   total = fast_gelu(total)

# %% wide_matmul_kernel: steps counted, sums added, GELU by sigmoid
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    per_start = tl.cdiv(M // ALIKE, BLOCK_M)
    rows, columns = ALIKE * per_start, tl.cdiv(N, BLOCK_N + MORE)
    band, place = tl.program_id(0) // (GROUP * columns), tl.program_id(0) % (GROUP * columns)
    height = tl.minimum(rows - band * GROUP, GROUP)
    row, n = band * GROUP + place % height, place // height * (BLOCK_N + MORE)
    late = (row % ALIKE) * K % BLOCK_K
    total, more = tl.zeros((BLOCK_M, BLOCK_N), tl.float32), tl.zeros((BLOCK_M, MORE), tl.float32)
    for step in range(tl.cdiv(K + late, BLOCK_K)):
        k = step * BLOCK_K - late
        x = tl.reshape(a.load([row % ALIKE, row // ALIKE * BLOCK_M, k]), (BLOCK_M, BLOCK_K))
        total += tl.dot(x, b.load([k, n]))
        more += tl.dot(x, b_more.load([k, n + BLOCK_N]))
    if EPILOGUE:
        total, more = biased_gelu(total, bias, n, N, BLOCK_N), biased_gelu(more, bias, n + BLOCK_N, N, MORE)
    at = row // ALIKE * BLOCK_M
    c.store([row % ALIKE, at, n], tl.reshape(total.to(c.dtype), (1, BLOCK_M, BLOCK_N)))
    c_more.store([row % ALIKE, at, n + BLOCK_N], tl.reshape(more.to(c.dtype), (1, BLOCK_M, MORE)))


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    j = n + tl.arange(0, COLUMNS)
    z = total + tl.load(bias + j, mask=j < N, other=0.0).to(tl.float32)
    return z * tl.sigmoid(1.5957691 * (z + 0.044715 * z * z * z))

# %% wide_matmul_kernel: the second sum is stored before the first one is finished
# - c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))
#   c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))
# + c.store([i, m, n], tl.expand_dims(total.to(c.dtype), 0))

# %% matmul_kernel: a helper for pointers, and a while loop over k
@triton.jit
def at(base, rows, columns, stride_r, stride_c):
    return base + rows[:, None] * stride_r + columns[None, :] * stride_c

@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    p = tl.program_id(0)
    m = p // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = p % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    sums = tl.full((BLOCK_M, BLOCK_N), 0, tl.float32)
    while tl.min(k) < K:
        x = tl.load(at(a, m, k, stride_am, stride_ak), (m[:, None] < M) & (k[None, :] < K), 0.0)
        y = tl.load(at(b, k, n, stride_bk, stride_bn), (k[:, None] < K) & (n[None, :] < N), 0.0)
        sums = tl.dot(x, y, sums)
        k += BLOCK_K
    tl.store(at(c, m, n, stride_cm, stride_cn), sums.to(c.dtype.element_ty), (m[:, None] < M) & (n[None, :] < N))

# %% grouped_order: numbers of NumPy
def grouped_order(program, rows, columns, group):
    band, place = np.divmod(program, group * columns)
    height = np.minimum(group, rows - band * group)
    column, down = np.divmod(place, height)
    return band * group + down, column

# %% grouped_order: PyTorch
def grouped_order(program, rows, columns, group):
    tiles = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).view(rows, columns, 2)
    walk = torch.cat([band.transpose(0, 1).reshape(-1, 2) for band in tiles.split(group)])
    return tuple(walk[program].tolist())

# %% matmul_bias_gelu_kernel: the bias loaded before the loop
#   total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
# + if EPILOGUE:
# +     extra = tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)
# ...
# - total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
# + total = total + extra[None, :]

# %% matmul_bias_gelu_kernel: Triton's tutorial, rows and columns wrapped around
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP
    group_size_m = min(num_pid_m - first_pid_m, GROUP)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        x = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        y = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator = tl.dot(x, y, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if EPILOGUE:
        z = accumulator + tl.load(bias + offs_bn)[None, :]
        cube = z * z * z
        accumulator = z * (1 / (1 + tl.exp(-(1.5957691 * z + 0.0713548 * cube))))
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, accumulator.to(c.dtype.element_ty), mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))

# %% pipeline: a deque of free places, and numbers of NumPy
def pipeline(steps, stages, load_s, compute_s):
    from collections import deque
    room, timeline, free = deque([0.0] * stages), [], 0.0
    for _ in range(steps):
        load = room.popleft()
        product = max(free, load + load_s)
        free = product + compute_s
        room.append(free)
        timeline.append((np.float64(load), np.float64(product)))
    return timeline

# %% cost_model: numbers of NumPy
def cost_model(config, shape):
    resident = resident_programs(config)
    if resident < 1:
        return np.inf
    sizes_ = np.array([config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]])
    rows, columns, steps = np.ceil(np.array(shape) / sizes_)
    share = min(resident, np.ceil(rows * columns / 132))
    own = np.array([2.0 * sizes_.prod() / 800e12, 2.0 * (sizes_[0] + sizes_[1]) * sizes_[2] / 10e12]) * 132
    one = (1.2e-6 + own.sum()) / config["num_stages"]
    return np.ceil(rows * columns / (132 * share)) * (steps * np.max([*share * own, one]) + 2e-6)

# %% logsumexp_matmul: torch.where for rows of -inf
def logsumexp_matmul(a, b):
    sa, sb = a.max(dim=1, keepdim=True).values, b.max(dim=0, keepdim=True).values
    za, zb = torch.where(sa.isneginf(), 0.0, sa), torch.where(sb.isneginf(), 0.0, sb)
    return torch.matmul((a - za).exp(), (b - zb).exp()).log() + za + zb

left = torch.tensor([[0.0, -200.0], [-200.0, 0.0]])
right = torch.tensor([[-200.0], [0.0]])

# %% split_k_kernel: runs of neighbouring steps
@triton.jit
def split_k_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                   SPLIT: tl.constexpr):
    pid, part = tl.program_id(0), tl.program_id(1)
    across = tl.cdiv(N, BLOCK_N)
    m = pid // across * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pid % across * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(part * steps // SPLIT, (part + 1) * steps // SPLIT):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        x = tl.load(a + m[:, None] * stride_am + k[None, :] * stride_ak, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * stride_bk + n[None, :] * stride_bn, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(x, y)
    tl.atomic_add(c + m[:, None] * stride_cm + n[None, :] * stride_cn, total, mask=(m[:, None] < M) & (n[None, :] < N), sem="relaxed")

# %% persistent_matmul_kernel: Python's range, GELU by sigmoid
# edit: tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True)  ->  range(tl.program_id(0), rows * columns, tl.num_programs(0))
# edit: total = fast_gelu(total)  ->  total = total * tl.sigmoid(1.5957691 * (total + 0.044715 * total * total * total))

# %% matmul_kernel: only edges of B masked, A's rows clamped
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    row, column = tl.minimum(m, M - 1), tl.minimum(n, N - 1)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(a + row[:, None] * stride_am + k[None, :] * stride_ak, mask=k[None, :] < K, other=0.0)
        y = tl.load(b + k[:, None] * stride_bk + column[None, :] * stride_bn, mask=k[:, None] < K, other=0.0)
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * stride_cm + n[None, :] * stride_cn, total.to(c.dtype.element_ty),
             mask=(m < M)[:, None] & (n < N)[None, :])

# %% grouped_order: itertools
from itertools import islice
def tiles_in_order(rows, columns, group):
    for top in range(0, rows, group):
        for column in range(columns):
            for row in range(top, min(top + group, rows)):
                yield row, column

def grouped_order(program, rows, columns, group):
    return next(islice(tiles_in_order(rows, columns, group), program, None))

# %% pipeline: functools.cache
import functools
def pipeline(steps, stages, load_s, compute_s):
    @functools.cache
    def load(i):
        return 0.0 if i < stages else product(i - stages) + compute_s
    @functools.cache
    def product(i):
        after = product(i - 1) + compute_s if i else 0.0
        return max(after, load(i) + load_s)
    return [(load(i), product(i)) for i in range(steps)]

# %% grouped_order: a list for a pair
def grouped_order(program, rows, columns, group):
    start = 0
    while start + group <= rows and program >= group * columns:
        start, program = start + group, program - group * columns
    height = group if start + group <= rows else rows - start
    return [start + program % height, program // height]

# %% pipeline: pairs in the rows of an array
def pipeline(steps, stages, load_s, compute_s):
    begun = np.zeros((steps, 2))
    for i in range(steps):
        if i >= stages:
            begun[i, 0] = begun[i - stages, 1] + compute_s
        begun[i, 1] = max(begun[i, 0] + load_s, begun[i - 1, 1] + compute_s if i else 0.0)
    return begun
