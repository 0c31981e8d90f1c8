# %% [markdown]
# Known wrong answers of lab 05, one cell each.

# %% matmul_kernel: the sum in fp16
# says: sum in float32
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float16)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total += tl.dot(x, y).to(tl.float16)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: no mask along K
# says: reaches beyond K
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M), other=0.0)
        y = tl.load(b_tile, mask=(n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: masked by the size of a block, not by what is left of K
# says: reaches beyond K
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: the last step wins
# says: add up all of them
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: the pointers stay where they are
# says: move on along K
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: A's strides taken for those of a row-major matrix
# says: use their strides
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * K + k[None, :]
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: all strides taken for those of row-major matrices
# says: use their strides
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * K + k[None, :]
    b_tile = b + k[:, None] * N + n[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * N
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * N + n[None, :]
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: C stored by the strides of a transposed C
# says: use the strides of c
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cn + n[None, :] * stride_cm
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: the store is not masked
# says: mask the store
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty))

# %% matmul_kernel: both operands loaded twice
# says: bytes loaded
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: B is not masked along K
# says: in both matrices
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """A tile of C = A B; program p computes tile p, row by row. About sixteen lines.

    a, b, c: (M, K), (K, N), (M, N); the strides count elements. No size need divide by its block.
    """
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=n[None, :] < N, other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: the columns of B are not masked
# says: are outside
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """A tile of C = A B; program p computes tile p, row by row. About sixteen lines.

    a, b, c: (M, K), (K, N), (M, N); the strides count elements. No size need divide by its block.
    """
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=k[:, None] < K - start, other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: the last, shorter step left out
# says: shorter step is missing
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """A tile of C = A B; program p computes tile p, row by row. About sixteen lines.

    a, b, c: (M, K), (K, N), (M, N); the strides count elements. No size need divide by its block.
    """
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K // BLOCK_K * BLOCK_K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: moved along by BLOCK_K, whatever the stride
# says: 7 of 12 programs, a transposed
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """A tile of C = A B; program p computes tile p, row by row. About sixteen lines.

    a, b, c: (M, K), (K, N), (M, N); the strides count elements. No size need divide by its block.
    """
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_kernel: tiles numbered down the columns
# says: down the columns
@triton.jit
def matmul_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """A tile of C = A B; program p computes tile p, row by row. About sixteen lines.

    a, b, c: (M, K), (K, N), (M, N); the strides count elements. No size need divide by its block.
    """
    rows = tl.cdiv(M, BLOCK_M)
    m = tl.program_id(0) % rows * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) // rows * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% grouped_order: the last band taken to be whole
# says: this skips tiles
def grouped_order(program, rows, columns, group):
    first = program // (group * columns) * group  # row where this program's band begins
    height = group
    place = program % (group * columns)
    return first + place % height, place // height

# %% grouped_order: along the rows of a band
# says: this goes along its rows
def grouped_order(program, rows, columns, group):
    first = program // (group * columns) * group
    place = program % (group * columns)
    return first + place // columns, place % columns

# %% grouped_order: row by row
# says: want [
def grouped_order(program, rows, columns, group):
    return divmod(program, columns)

# %% grouped_order: column before row
# says: (column, row)
def grouped_order(program, rows, columns, group):
    first = program // (group * columns) * group  # row where this program's band begins
    height = min(rows - first, group)
    place = program % (group * columns)
    return place // height, first + place % height

# %% matmul_bias_gelu_kernel: tiles row by row
# says: They went row by row
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_bias_gelu_kernel: the last band taken to be whole
# says: this skips tiles
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = GROUP
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_bias_gelu_kernel: the bias added at every step
# says: not at every step along K
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        if EPILOGUE:
            total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_bias_gelu_kernel: GELU before the bias
# says: first the bias
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
        total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_bias_gelu_kernel: no GELU
# says: GELU is missing
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_bias_gelu_kernel: no bias
# says: bias is missing
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_bias_gelu_kernel: the bias along rows
# says: not for its rows
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total += tl.load(bias + m, mask=m < N, other=0.0)[:, None]
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_bias_gelu_kernel: the product stored and loaded again
# says: bytes of C loaded
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    at = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    if EPILOGUE:
        tl.store(at, total.to(c.dtype.element_ty), mask=inside)
        total = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_bias_gelu_kernel: the bias read without the epilogue
# says: leave it alone
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    more = tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    if EPILOGUE:
        total += more
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% matmul_bias_gelu_kernel: the exponent has the wrong sign
# says: exponent has a minus
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    """A tile of C = A B, with EPILOGUE of gelu(A B + bias), in bands of GROUP rows. About 24 lines.

    bias: (N,), contiguous. The rest as in matmul_kernel.
    """
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
        total = total / (1 + tl.exp(1.5957691 * (total + 0.044715 * total * total * total)))
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% resident_programs: the system's shared memory forgotten
# says: 1,024 bytes
def resident_programs(config):
    threads = 32 * config["num_warps"]
    pair = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    shared_bytes = config["num_stages"] * 2 * pair
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums + sums // 2 + 30
    if shared_bytes > 232_448 or registers > 255:
        return 0
    return min(233_472 // shared_bytes, 65_536 // (registers * threads), 2048 // threads)

# %% matmul_bias_gelu_kernel: the columns of B are taken for neighbours
# says: gelu(A B + bias) with
@triton.jit
def matmul_bias_gelu_kernel(a, b, bias, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                            stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    """A tile of C = A B, with EPILOGUE of gelu(A B + bias), in bands of GROUP rows. About 24 lines.

    bias: (N,), contiguous. The rest as in matmul_kernel.
    """
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // (GROUP * columns) * GROUP  # row of tiles where the band begins
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a_tile, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0)
        y = tl.load(b_tile, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if EPILOGUE:
        total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
        total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_tile, total.to(c.dtype.element_ty), mask=inside)

# %% resident_programs: what fits to the byte does not fit
# says: to the byte
def resident_programs(config):
    threads = 32 * config["num_warps"]
    pair = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    shared_bytes = config["num_stages"] * 2 * pair
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums + sums // 2 + 30
    if shared_bytes > 232_448 or registers > 255:
        return 0
    programs = 1
    while (programs + 1) * (shared_bytes + 1024) < 233_472 and (programs + 1) * registers * threads <= 65_536:
        programs += 1
    return programs

# %% resident_programs: one stage
# says: for each stage
def resident_programs(config):
    threads = 32 * config["num_warps"]
    pair = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    shared_bytes = 2 * pair
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums + sums // 2 + 30
    if shared_bytes > 232_448 or registers > 255:
        return 0
    return min(233_472 // (shared_bytes + 1024), 65_536 // (registers * threads), 2048 // threads)

# %% resident_programs: float32 tiles
# says: 16 bits
def resident_programs(config):
    threads = 32 * config["num_warps"]
    pair = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    shared_bytes = config["num_stages"] * 4 * pair
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums + sums // 2 + 30
    if shared_bytes > 232_448 or registers > 255:
        return 0
    return min(233_472 // (shared_bytes + 1024), 65_536 // (registers * threads), 2048 // threads)

# %% resident_programs: no limit on a thread's registers
# says: 255 registers
def resident_programs(config):
    threads = 32 * config["num_warps"]
    pair = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    shared_bytes = config["num_stages"] * 2 * pair
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums + sums // 2 + 30
    if shared_bytes > 232_448:
        return 0
    return min(233_472 // (shared_bytes + 1024), 65_536 // (registers * threads), 2048 // threads)

# %% resident_programs: sums only
# says: Sums are not all
def resident_programs(config):
    threads = 32 * config["num_warps"]
    pair = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    shared_bytes = config["num_stages"] * 2 * pair
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums
    if shared_bytes > 232_448 or registers > 255:
        return 0
    return min(233_472 // (shared_bytes + 1024), 65_536 // (registers * threads), 2048 // threads)

# %% resident_programs: a warp taken for a thread
# says: a warp has 32 threads
def resident_programs(config):
    """How many programs run on one multiprocessor at a time, an int; 0 if one alone breaks a limit.

    config: dict with the names in CONFIG. About eight lines.
    """
    threads = config["num_warps"]
    pair = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    shared_bytes = config["num_stages"] * 2 * pair
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums + sums // 2 + 30
    if shared_bytes > 232_448 or registers > 255:
        return 0
    return min(233_472 // (shared_bytes + 1024), 65_536 // (registers * threads))

# %% resident_programs: half of the sums in place of the sums
# says: half as many besides
def resident_programs(config):
    """How many programs run on one multiprocessor at a time, an int; 0 if one alone breaks a limit.

    config: dict with the names in CONFIG. About eight lines.
    """
    threads = 32 * config["num_warps"]
    pair = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
    shared_bytes = config["num_stages"] * 2 * pair
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums // 2 + 30
    if shared_bytes > 232_448 or registers > 255:
        return 0
    return min(233_472 // (shared_bytes + 1024), 65_536 // (registers * threads))

# %% cost_model: waves not rounded up
# says: for half of it: as long
def cost_model(config, shape):
    programs = resident_programs(config)
    if programs == 0:
        return math.inf
    m, n, k, _, _, stages = (config[name] for name in CONFIG)
    waves = math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs)
    compute_s = programs * 2 * m * n * k / (PEAK / PROCESSORS)
    load_s = programs * 2 * (m + n) * k / (L2_BANDWIDTH / PROCESSORS)
    wait_s = LATENCY_S / max(1, stages - 1)
    return waves * math.ceil(shape[2] / k) * (max(compute_s, load_s) + wait_s)

# %% cost_model: tiles rounded down
# says: another wave
def cost_model(config, shape):
    programs = resident_programs(config)
    if programs == 0:
        return math.inf
    m, n, k, _, _, stages = (config[name] for name in CONFIG)
    waves = math.ceil((shape[0] // m) * (shape[1] // n) / (PROCESSORS * programs))
    compute_s = programs * 2 * m * n * k / (PEAK / PROCESSORS)
    load_s = programs * 2 * (m + n) * k / (L2_BANDWIDTH / PROCESSORS)
    wait_s = LATENCY_S / max(1, stages - 1)
    return waves * math.ceil(shape[2] / k) * (max(compute_s, load_s) + wait_s)

# %% cost_model: K left out
# says: twice the K
def cost_model(config, shape):
    programs = resident_programs(config)
    if programs == 0:
        return math.inf
    m, n, k, _, _, stages = (config[name] for name in CONFIG)
    waves = math.ceil(math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs))
    compute_s = programs * 2 * m * n * k / (PEAK / PROCESSORS)
    load_s = programs * 2 * (m + n) * k / (L2_BANDWIDTH / PROCESSORS)
    wait_s = LATENCY_S / max(1, stages - 1)
    return waves * 64 * (max(compute_s, load_s) + wait_s)

# %% cost_model: what does not fit gets a time
# says: does not fit
def cost_model(config, shape):
    programs = resident_programs(config)
    programs = max(programs, 1)
    m, n, k, _, _, stages = (config[name] for name in CONFIG)
    waves = math.ceil(math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs))
    compute_s = programs * 2 * m * n * k / (PEAK / PROCESSORS)
    load_s = programs * 2 * (m + n) * k / (L2_BANDWIDTH / PROCESSORS)
    wait_s = LATENCY_S / max(1, stages - 1)
    return waves * math.ceil(shape[2] / k) * (max(compute_s, load_s) + wait_s)

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
def cost_model(config, shape):
    programs = resident_programs(config)
    if programs == 0:
        return math.inf
    m, n, k, _, _, stages = (config[name] for name in CONFIG)
    waves = math.ceil(math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs))
    compute_s = programs * 2 * m * n * k / (PEAK / PROCESSORS)
    load_s = programs * 2 * (m + n) * k / (L2_BANDWIDTH / PROCESSORS)
    wait_s = 0
    return waves * math.ceil(shape[2] / k) * (max(compute_s, load_s) + wait_s)

# %% cost_model: each multiprocessor has all of PEAK
# says: PEAK and L2_BANDWIDTH allow
def cost_model(config, shape):
    """Seconds that matmul_bias_gelu_kernel is predicted to take; inf where resident_programs is 0.

    config: dict with the names in CONFIG. shape: (M, N, K), in 16-bit numbers. About twelve lines.
    """
    programs = resident_programs(config)
    if programs == 0:
        return math.inf
    m, n, k, _, _, stages = (config[name] for name in CONFIG)
    waves = math.ceil(math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs))
    compute_s = programs * 2 * m * n * k / PEAK
    load_s = programs * 2 * (m + n) * k / (L2_BANDWIDTH / PROCESSORS)
    wait_s = LATENCY_S / max(1, stages - 1)
    return waves * math.ceil(shape[2] / k) * (max(compute_s, load_s) + wait_s)

# %% cost_model: numbers counted as bytes
# says: PEAK and L2_BANDWIDTH allow
def cost_model(config, shape):
    """Seconds that matmul_bias_gelu_kernel is predicted to take; inf where resident_programs is 0.

    config: dict with the names in CONFIG. shape: (M, N, K), in 16-bit numbers. About twelve lines.
    """
    programs = resident_programs(config)
    if programs == 0:
        return math.inf
    m, n, k, _, _, stages = (config[name] for name in CONFIG)
    waves = math.ceil(math.ceil(shape[0] / m) * math.ceil(shape[1] / n) / (PROCESSORS * programs))
    compute_s = programs * 2 * m * n * k / (PEAK / PROCESSORS)
    load_s = programs * (m + n) * k / (L2_BANDWIDTH / PROCESSORS)
    wait_s = LATENCY_S / max(1, stages - 1)
    return waves * math.ceil(shape[2] / k) * (max(compute_s, load_s) + wait_s)

# %% next_to_measure: measures the best one again
# says: has been measured
def next_to_measure(features, model_s, measured_s):
    known = ~np.isnan(measured_s)
    x = np.column_stack([np.ones(len(features)), features])
    y = np.log(measured_s[known] / model_s[known])
    weights = np.linalg.solve(x[known].T @ x[known] + 0.1 * np.eye(x.shape[1]), x[known].T @ y)
    corrected_s = model_s * np.exp(x @ weights)
    return int(np.where(known, measured_s, np.inf).argmin())

# %% next_to_measure: trusts the model
# says: correct the model
def next_to_measure(features, model_s, measured_s):
    known = ~np.isnan(measured_s)
    x = np.column_stack([np.ones(len(features)), features])
    y = np.log(measured_s[known] / model_s[known])
    weights = np.linalg.solve(x[known].T @ x[known] + 0.1 * np.eye(x.shape[1]), x[known].T @ y)
    corrected_s = model_s
    return int(np.where(known, np.inf, corrected_s).argmin())

# %% next_to_measure: the slowest
# says: 25 of 40 measured
def next_to_measure(features, model_s, measured_s):
    known = ~np.isnan(measured_s)
    x = np.column_stack([np.ones(len(features)), features])
    y = np.log(measured_s[known] / model_s[known])
    weights = np.linalg.solve(x[known].T @ x[known] + 0.1 * np.eye(x.shape[1]), x[known].T @ y)
    corrected_s = model_s * np.exp(x @ weights)
    return int(np.where(known, -np.inf, corrected_s).argmax())

# %% next_to_measure: the place among those not measured
# says: its place among all
def next_to_measure(features, model_s, measured_s):
    """Index, an int, of the configuration to measure next: the fastest by the corrected model.

    features: (configurations, d). model_s: seconds that a model predicts. measured_s: NaN where not
    measured yet; at least one is, and one is not. Float64 arrays. About seven lines.
    """
    known = ~np.isnan(measured_s)
    x = np.column_stack([np.ones(len(features)), features])
    y = np.log(measured_s[known] / model_s[known])
    weights = np.linalg.solve(x[known].T @ x[known] + 0.1 * np.eye(x.shape[1]), x[known].T @ y)
    corrected_s = model_s * np.exp(x @ weights)
    return int(corrected_s[~known].argmin())

# %% next_to_measure: the model left out
# says: 25 of 40 measured
def next_to_measure(features, model_s, measured_s):
    """Index, an int, of the configuration to measure next: the fastest by the corrected model.

    features: (configurations, d). model_s: seconds that a model predicts. measured_s: NaN where not
    measured yet; at least one is, and one is not. Float64 arrays. About seven lines.
    """
    known = ~np.isnan(measured_s)
    x = np.column_stack([np.ones(len(features)), features])
    y = np.log(measured_s[known] / model_s[known])
    weights = np.linalg.solve(x[known].T @ x[known] + 0.1 * np.eye(x.shape[1]), x[known].T @ y)
    corrected_s = np.exp(x @ weights)
    return int(np.where(known, np.inf, corrected_s).argmin())

# %% persistent_matmul_kernel: one tile a program
# says: one tile: go on
@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.program_id(0) + 1):
        first = tile // (GROUP * columns) * GROUP
        height = min(rows - first, GROUP)
        place = tile % (GROUP * columns)
        m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        if EPILOGUE:
            column = n + tl.arange(0, BLOCK_N)
            total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
            total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
        c.store([m, n], total.to(c.dtype))

# %% persistent_matmul_kernel: one sum for all tiles of a program
# says: a new sum for each tile
@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        first = tile // (GROUP * columns) * GROUP
        height = min(rows - first, GROUP)
        place = tile % (GROUP * columns)
        m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        if EPILOGUE:
            column = n + tl.arange(0, BLOCK_N)
            total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
            total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
        c.store([m, n], total.to(c.dtype))

# %% persistent_matmul_kernel: the last band taken to be whole
# says: 15 tiles of
@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        first = tile // (GROUP * columns) * GROUP
        height = GROUP
        place = tile % (GROUP * columns)
        m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        if EPILOGUE:
            column = n + tl.arange(0, BLOCK_N)
            total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
            total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
        c.store([m, n], total.to(c.dtype))

# %% persistent_matmul_kernel: the epilogue forgotten
# says: Bias and GELU are missing
@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        first = tile // (GROUP * columns) * GROUP
        height = min(rows - first, GROUP)
        place = tile % (GROUP * columns)
        m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        if False:
            column = n + tl.arange(0, BLOCK_N)
            total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
            total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
        c.store([m, n], total.to(c.dtype))

# %% persistent_matmul_kernel: the bias read beyond its end
# says: loads element 56 of bias, which has 56 elements
@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        first = tile // (GROUP * columns) * GROUP
        height = min(rows - first, GROUP)
        place = tile % (GROUP * columns)
        m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        if EPILOGUE:
            column = n + tl.arange(0, BLOCK_N)
            total += tl.load(bias + column, mask=column <= N, other=0.0)[None, :]
            total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
        c.store([m, n], total.to(c.dtype))

# %% persistent_matmul_kernel: tiles row by row
# says: all go row by row
@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        m, n = tile // columns * BLOCK_M, tile % columns * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        if EPILOGUE:
            column = n + tl.arange(0, BLOCK_N)
            total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
            total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
        c.store([m, n], total.to(c.dtype))

# %% persistent_matmul_kernel: tiles column by column
# says: all tiles go column by column
@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        m, n = tile % rows * BLOCK_M, tile // rows * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        if EPILOGUE:
            column = n + tl.arange(0, BLOCK_N)
            total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
            total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
        c.store([m, n], total.to(c.dtype))

# %% persistent_matmul_kernel: tiles that follow each other to one program
# says: tiles 0, 4, 8 here, and not 0, 1, 2
@triton.jit
def persistent_matmul_kernel(a, b, bias, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    each = tl.cdiv(rows * columns, tl.num_programs(0))
    for tile in tl.range(tl.program_id(0) * each, min((tl.program_id(0) + 1) * each, rows * columns), flatten=True):
        first = tile // (GROUP * columns) * GROUP
        height = min(rows - first, GROUP)
        place = tile % (GROUP * columns)
        m, n = (first + place % height) * BLOCK_M, place // height * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        if EPILOGUE:
            column = n + tl.arange(0, BLOCK_N)
            total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
            total = total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))
        c.store([m, n], total.to(c.dtype))

# %% wide_matmul_kernel: the second sum not stored
# says: columns of MORE are missing
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
    first = tl.program_id(0) // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    row, n = first + place % height, place // height * (BLOCK_N + MORE)
    i, m = row % ALIKE, row // ALIKE * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    more = tl.zeros((BLOCK_M, MORE), tl.float32)
    for k in range(-(i * K % BLOCK_K), K, BLOCK_K):
        x = a.load([i, m, k]).reshape(BLOCK_M, BLOCK_K)
        total = tl.dot(x, b.load([k, n]), total)
        more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
    if EPILOGUE:
        total = biased_gelu(total, bias, n, N, BLOCK_N)
        more = biased_gelu(more, bias, n + BLOCK_N, N, MORE)
    c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    column = n + tl.arange(0, COLUMNS)
    total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
    return total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% wide_matmul_kernel: the second sum's bias from the first columns
# says: a bias of their own
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
    first = tl.program_id(0) // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    row, n = first + place % height, place // height * (BLOCK_N + MORE)
    i, m = row % ALIKE, row // ALIKE * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    more = tl.zeros((BLOCK_M, MORE), tl.float32)
    for k in range(-(i * K % BLOCK_K), K, BLOCK_K):
        x = a.load([i, m, k]).reshape(BLOCK_M, BLOCK_K)
        total = tl.dot(x, b.load([k, n]), total)
        more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
    if EPILOGUE:
        total = biased_gelu(total, bias, n, N, BLOCK_N)
        more = biased_gelu(more, bias, n, N, MORE)
    c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))
    c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    column = n + tl.arange(0, COLUMNS)
    total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
    return total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% wide_matmul_kernel: windows along K from the next line on
# says: first numbers of a row are missing
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
    first = tl.program_id(0) // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    row, n = first + place % height, place // height * (BLOCK_N + MORE)
    i, m = row % ALIKE, row // ALIKE * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    more = tl.zeros((BLOCK_M, MORE), tl.float32)
    for k in range(i * K % BLOCK_K, K, BLOCK_K):
        x = a.load([i, m, k]).reshape(BLOCK_M, BLOCK_K)
        total = tl.dot(x, b.load([k, n]), total)
        more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
    if EPILOGUE:
        total = biased_gelu(total, bias, n, N, BLOCK_N)
        more = biased_gelu(more, bias, n + BLOCK_N, N, MORE)
    c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))
    c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    column = n + tl.arange(0, COLUMNS)
    total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
    return total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% wide_matmul_kernel: windows along K from the row's first number on
# says: begins within a sector costs two
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
    first = tl.program_id(0) // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    row, n = first + place % height, place // height * (BLOCK_N + MORE)
    i, m = row % ALIKE, row // ALIKE * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    more = tl.zeros((BLOCK_M, MORE), tl.float32)
    for k in range(0, K, BLOCK_K):
        x = a.load([i, m, k]).reshape(BLOCK_M, BLOCK_K)
        total = tl.dot(x, b.load([k, n]), total)
        more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
    if EPILOGUE:
        total = biased_gelu(total, bias, n, N, BLOCK_N)
        more = biased_gelu(more, bias, n + BLOCK_N, N, MORE)
    c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))
    c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    column = n + tl.arange(0, COLUMNS)
    total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
    return total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% wide_matmul_kernel: a step before the first window
# says: tl.dot calls
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
    first = tl.program_id(0) // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    row, n = first + place % height, place // height * (BLOCK_N + MORE)
    i, m = row % ALIKE, row // ALIKE * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    more = tl.zeros((BLOCK_M, MORE), tl.float32)
    for k in range(-(i * K % BLOCK_K) - BLOCK_K, K, BLOCK_K):
        x = a.load([i, m, k]).reshape(BLOCK_M, BLOCK_K)
        total = tl.dot(x, b.load([k, n]), total)
        more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
    if EPILOGUE:
        total = biased_gelu(total, bias, n, N, BLOCK_N)
        more = biased_gelu(more, bias, n + BLOCK_N, N, MORE)
    c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))
    c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    column = n + tl.arange(0, COLUMNS)
    total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
    return total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% wide_matmul_kernel: the bias read beyond its end
# says: loads element 56 of bias, which has 56 elements
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows, columns = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M), tl.cdiv(N, BLOCK_N + MORE)
    first = tl.program_id(0) // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    place = tl.program_id(0) % (GROUP * columns)
    row, n = first + place % height, place // height * (BLOCK_N + MORE)
    i, m = row % ALIKE, row // ALIKE * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    more = tl.zeros((BLOCK_M, MORE), tl.float32)
    for k in range(-(i * K % BLOCK_K), K, BLOCK_K):
        x = a.load([i, m, k]).reshape(BLOCK_M, BLOCK_K)
        total = tl.dot(x, b.load([k, n]), total)
        more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
    if EPILOGUE:
        total = biased_gelu(total, bias, n, N, BLOCK_N)
        more = biased_gelu(more, bias, n + BLOCK_N, N, MORE)
    c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))
    c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    column = n + tl.arange(0, COLUMNS)
    total += tl.load(bias + column, mask=column <= N, other=0.0)[None, :]
    return total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% wide_matmul_kernel: tiles row by row, without bands
# says: The tiles of a band go column by column; here all go row by row.
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    columns = tl.cdiv(N, BLOCK_N + MORE)
    row, n = tl.program_id(0) // columns, tl.program_id(0) % columns * (BLOCK_N + MORE)
    i, m = row % ALIKE, row // ALIKE * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    more = tl.zeros((BLOCK_M, MORE), tl.float32)
    for k in range(-(i * K % BLOCK_K), K, BLOCK_K):
        x = a.load([i, m, k]).reshape(BLOCK_M, BLOCK_K)
        total = tl.dot(x, b.load([k, n]), total)
        more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
    if EPILOGUE:
        total = biased_gelu(total, bias, n, N, BLOCK_N)
        more = biased_gelu(more, bias, n + BLOCK_N, N, MORE)
    c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))
    c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    column = n + tl.arange(0, COLUMNS)
    total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
    return total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% wide_matmul_kernel: tiles column by column, without bands
# says: Bands of GROUP rows: here all tiles go column by column.
@triton.jit
def wide_matmul_kernel(a, b, b_more, bias, c, c_more, M, N, K, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MORE: tl.constexpr,
                       ALIKE: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr):
    rows = ALIKE * tl.cdiv(M // ALIKE, BLOCK_M)
    row, n = tl.program_id(0) % rows, tl.program_id(0) // rows * (BLOCK_N + MORE)
    i, m = row % ALIKE, row // ALIKE * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    more = tl.zeros((BLOCK_M, MORE), tl.float32)
    for k in range(-(i * K % BLOCK_K), K, BLOCK_K):
        x = a.load([i, m, k]).reshape(BLOCK_M, BLOCK_K)
        total = tl.dot(x, b.load([k, n]), total)
        more = tl.dot(x, b_more.load([k, n + BLOCK_N]), more)
    if EPILOGUE:
        total = biased_gelu(total, bias, n, N, BLOCK_N)
        more = biased_gelu(more, bias, n + BLOCK_N, N, MORE)
    c.store([i, m, n], total.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N))
    c_more.store([i, m, n + BLOCK_N], more.to(c.dtype).reshape(1, BLOCK_M, MORE))


@triton.jit
def biased_gelu(total, bias, n, N, COLUMNS: tl.constexpr):
    column = n + tl.arange(0, COLUMNS)
    total += tl.load(bias + column, mask=column < N, other=0.0)[None, :]
    return total / (1 + tl.exp(-1.5957691 * (total + 0.044715 * total * total * total)))

# %% logsumexp_matmul: no shift
# says: shift first
def logsumexp_matmul(a, b):
    return torch.log(torch.exp(a) @ torch.exp(b))


left = torch.tensor([[0.0, -200.0]])
right = torch.tensor([[-200.0], [0.0]])

# %% logsumexp_matmul: shift of its own
# says: shift of its own
def logsumexp_matmul(a, b):
    return torch.log(torch.exp(a - a.max()) @ torch.exp(b - b.max())) + a.max() + b.max()


left = torch.tensor([[0.0, -200.0]])
right = torch.tensor([[-200.0], [0.0]])

# %% logsumexp_matmul: the shifts not undone
# says: Undo the shifts
def logsumexp_matmul(a, b):
    return torch.log(torch.exp(a - a.amax(1, keepdim=True)) @ torch.exp(b - b.amax(0)))


left = torch.tensor([[0.0, -200.0]])
right = torch.tensor([[-200.0], [0.0]])

# %% logsumexp_matmul: a row of -inf becomes NaN
# says: all -inf
def logsumexp_matmul(a, b):
    row_shift, column_shift = a.amax(1, keepdim=True), b.amax(0)
    return torch.log(torch.exp(a - row_shift) @ torch.exp(b - column_shift)) + row_shift + column_shift


left = torch.tensor([[0.0, -200.0]])
right = torch.tensor([[-200.0], [0.0]])

# %% logsumexp_matmul: the example does not underflow
# says: becomes -inf
def logsumexp_matmul(a, b):
    """c, float32 (M, N): c[i, j] = logsumexp over k of a[i, k] + b[k, j], by one matmul.

    a: (M, K), b: (K, N), float32; -inf may occur, inf and NaN don't. About four lines.
    """
    row_shift = a.amax(1, keepdim=True).clamp(min=-1e30)  # -inf less -inf would be NaN
    column_shift = b.amax(0).clamp(min=-1e30)
    return torch.log(torch.exp(a - row_shift) @ torch.exp(b - column_shift)) + row_shift + column_shift


# float32 matrices for which logsumexp_matmul has -inf where the truth is above -1000.
left = torch.tensor([[0.0, -20.0]])
right = torch.tensor([[-200.0], [0.0]])

# %% logsumexp_matmul: a vector for a matrix
# says: right.ndim
def logsumexp_matmul(a, b):
    """c, float32 (M, N): c[i, j] = logsumexp over k of a[i, k] + b[k, j], by one matmul.

    a: (M, K), b: (K, N), float32; -inf may occur, inf and NaN don't. About four lines.
    """
    row_shift = a.amax(1, keepdim=True).clamp(min=-1e30)  # -inf less -inf would be NaN
    column_shift = b.amax(0).clamp(min=-1e30)
    return torch.log(torch.exp(a - row_shift) @ torch.exp(b - column_shift)) + row_shift + column_shift


# float32 matrices for which logsumexp_matmul has -inf where the truth is above -1000.
left = torch.tensor([[0.0, -200.0]])
right = torch.tensor([-200.0, 0.0])
