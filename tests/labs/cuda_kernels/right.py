# %% vector_add: indices written out, and an early return
@cuda.jit
def vector_add(x, y, out):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i >= x.shape[0]:
        return
    out[i] = x[i] + y[i]

# %% vector_add: a loop in strides of the grid
@cuda.jit
def vector_add(x, y, out):
    for i in range(cuda.grid(1), len(out), cuda.gridsize(1)):
        out[i] = x[i] + y[i]

# %% vector_add: through a device function
@cuda.jit(device=True)
def added(p, q):
    return p + q


@cuda.jit
def vector_add(x, y, out):
    i = cuda.grid(1)
    n = x.size
    if not i > n - 1:
        out[i] = added(x[i], y[i])

# %% matrix_add_doubled: no device function, indices written out
@cuda.jit(device=True)
def doubled(value):
    return value + value


@cuda.jit
def matrix_add_doubled(a, b, c):
    x = cuda.threadIdx.x + cuda.blockIdx.x * cuda.blockDim.x
    y = cuda.threadIdx.y + cuda.blockIdx.y * cuda.blockDim.y
    rows, columns = a.shape
    if y < rows:
        if x < columns:
            c[y, x] = a[y, x] + b[y, x] + b[y, x]

# %% matrix_add_doubled: one axis of numbers, divided again
@cuda.jit(device=True)
def doubled(value):
    return value * float32(2)


@cuda.jit
def matrix_add_doubled(a, b, c):
    j, i = cuda.grid(2)
    if i >= a.shape[0] or j >= a.shape[1]:
        return
    c[i, j] = doubled(b[i, j]) + a[i, j]

# %% window_average: the halo's size as a sum, loaded by the last two threads
@cuda.jit
def window_average(x, out):
    s = cuda.shared.array(128 + 2, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < x.size:
        s[t] = x[i]
    if t >= 126 and i + 2 < x.size:
        s[t + 2] = x[i + 2]
    cuda.syncthreads()
    if i + 2 < x.size:
        out[i] = (s[t] + s[t + 1] + s[t + 2]) * float32(1 / 3)

# %% window_average: a loop loads, zeros outside, and the store is early
@cuda.jit
def window_average(x, out):
    s = cuda.shared.array(130, float32)
    first, t = cuda.blockIdx.x * 128, cuda.threadIdx.x
    for k in range(t, 130, 128):
        s[k] = x[first + k] if first + k < x.size else float32(0)
    cuda.syncthreads()
    if first + t >= out.size:
        return
    total = float32(0)
    for k in range(3):
        total += s[t + k]
    out[first + t] = total / float32(3)

# %% transpose: the tile turned when stored, padding as a sum
@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((32, 32 + 1), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    j, i = cuda.blockIdx.x * 32, cuda.blockIdx.y * 32
    if i + ty < x.shape[0] and j + tx < x.shape[1]:
        tile[tx, ty] = x[i + ty, j + tx]
    cuda.syncthreads()
    if j + ty < out.shape[0] and i + tx < out.shape[1]:
        out[j + ty, i + tx] = tile[ty, tx]

# %% transpose: no padding, but columns exchanged by exclusive or
@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        tile[ty, tx ^ ty] = x[row, column]
    cuda.syncthreads()
    row, column = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = tile[tx, ty ^ tx]

# %% transpose: a flat tile of 32 * 33 words
@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array(32 * 33, float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        tile[ty * 33 + tx] = x[row, column]
    cuda.syncthreads()
    row, column = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = tile[tx * 33 + ty]

# %% block_sum: a for loop over levels, thread 0 after a last barrier
@cuda.jit
def block_sum(x, out):
    s = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < x.size:
        s[t] = x[i]
    else:
        s[t] = 0
    cuda.syncthreads()
    for level in range(8):
        half = 128 >> level
        if t < half:
            s[t] = s[t] + s[t + half]
        cuda.syncthreads()
    if t < 1:
        cuda.atomic.add(out, 0, s[0])

# %% block_sum: shuffles in each warp, then in the first one
@cuda.jit
def block_sum(x, out):
    s = cuda.shared.array(8, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    value = x[i] if i < x.size else float32(0)
    for k in range(5):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, 1 << k)
    if t % 32 == 0:
        s[t // 32] = value
    cuda.syncthreads()
    if t < 32:
        value = s[t] if t < 8 else float32(0)
        for k in range(3):
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, 4 >> k)
        if t == 0:
            cuda.atomic.add(out, 0, value)

# %% matmul_sectors: from bytes
def matmul_sectors(n, tile):
    per_warp = {8: 5, 16: 4, 32: 5}[tile]
    return n * (n * n // 32) * per_warp, int(2 * n**3 / tile * 4 / 32)

# %% matmul_tiled: the inner loop ends where the matrices end
@cuda.jit
def matmul_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((TILE, TILE), float32), cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for k0 in range(0, a.shape[1], TILE):
        if row < a.shape[0] and k0 + tx < a.shape[1]:
            a_tile[ty, tx] = a[row, k0 + tx]
        if k0 + ty < b.shape[0] and column < b.shape[1]:
            b_tile[ty, tx] = b[k0 + ty, column]
        cuda.syncthreads()
        if row < c.shape[0] and column < c.shape[1]:
            for k in range(min(TILE, a.shape[1] - k0)):
                total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total

# %% resident_blocks: one block after another
def resident_blocks(threads, registers, shared_bytes, sm):
    import math

    portion = sm["register_portion"]
    warp = math.ceil(registers * 32 / portion) * portion
    shared = math.ceil((shared_bytes + sm["reserved_bytes"]) / sm["shared_portion"]) * sm["shared_portion"]
    blocks = 0
    while (
        blocks < sm["blocks"]
        and (blocks + 1) * threads <= sm["threads"]
        and (blocks + 1) * (threads // 32) * warp <= sm["registers"]
        and (blocks + 1) * shared <= sm["shared_bytes"]
    ):
        blocks += 1
    return blocks

# %% resident_blocks: with NumPy
def resident_blocks(threads, registers, shared_bytes, sm):
    portions = np.array([sm["register_portion"], sm["shared_portion"]])
    asked = np.array([32 * registers, shared_bytes + sm["reserved_bytes"]])
    warp, shared = (asked + portions - 1) // portions * portions
    return min(
        sm["blocks"],
        sm["threads"] // threads,
        sm["registers"] // (warp * (threads // 32)),
        sm["shared_bytes"] // max(shared, 1),
    )

# %% matmul_column_tiled: the tile of a transposed, threads in two axes of numbers
@cuda.jit
def matmul_column_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((8, 65), float32), cuda.shared.array((8, 64), float32)
    s = cuda.local.array(8, float32)
    t = cuda.threadIdx.x
    column, group = cuda.blockIdx.x * 64 + t % 64, t // 64
    first = cuda.blockIdx.y * 64
    for i in range(8):
        s[i] = 0
    for p in range((a.shape[1] + 7) // 8):
        i, k = first + t // 8, 8 * p + t % 8
        a_tile[t % 8, t // 8] = 0
        if i < a.shape[0] and k < a.shape[1]:
            a_tile[t % 8, t // 8] = a[i, k]
        b_tile[group, t % 64] = 0
        if 8 * p + group < b.shape[0] and column < b.shape[1]:
            b_tile[group, t % 64] = b[8 * p + group, column]
        cuda.syncthreads()
        for k in range(8):
            factor = b_tile[k, t % 64]
            for i in range(8):
                s[i] += factor * a_tile[k, 8 * group + i]
        cuda.syncthreads()
    for i in range(8):
        if first + 8 * group + i < c.shape[0] and column < c.shape[1]:
            c[first + 8 * group + i, column] = s[i]

# %% matmul_column_tiled: rows eight apart
@cuda.jit
def matmul_column_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((64, 8), float32), cuda.shared.array((8, 64), float32)
    total = cuda.local.array(8, float32)
    t = cuda.threadIdx.x
    tx, ty = t % 64, t // 64
    row0, column0 = cuda.blockIdx.y * 64, cuda.blockIdx.x * 64
    for i in range(8):
        total[i] = float32(0)
    k0 = 0
    while k0 < a.shape[1]:
        row, k = row0 + t // 8, k0 + t % 8
        a_tile[t // 8, t % 8] = a[row, k] if row < a.shape[0] and k < a.shape[1] else float32(0)
        k, column = k0 + ty, column0 + tx
        b_tile[ty, tx] = b[k, column] if k < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(8):
            right = b_tile[k, tx]
            for i in range(8):
                total[i] += a_tile[ty + 8 * i, k] * right
        cuda.syncthreads()
        k0 += 8
    for i in range(8):
        row, column = row0 + ty + 8 * i, column0 + tx
        if row < c.shape[0] and column < c.shape[1]:
            c[row, column] = total[i]

# %% matmul_register_tiled: two tiles in turns, and one barrier per slice
@cuda.jit
def matmul_register_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((2, 8, 132), float32), cuda.shared.array((2, 8, 128), float32)
    total = cuda.local.array((8, 8), float32)
    left, right = cuda.local.array(8, float32), cuda.local.array(8, float32)
    t = cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    tx, ty = warp % 2 * 8 + lane % 8, warp // 2 * 4 + lane // 8
    row0, column0 = cuda.blockIdx.y * 128, cuda.blockIdx.x * 128
    for i in range(8):
        for j in range(8):
            total[i, j] = 0
    steps = (a.shape[1] + 7) // 8
    for step in range(steps + 1):
        here, there = step % 2, 1 - step % 2
        if step < steps:
            for i in range(4):
                row, k = row0 + t // 8 + 32 * i, 8 * step + t % 8
                inside = row < a.shape[0] and k < a.shape[1]
                a_tile[here, t % 8, t // 8 + 32 * i] = a[row, k] if inside else float32(0)
                k, column = 8 * step + t // 128 + 2 * i, column0 + t % 128
                inside = k < b.shape[0] and column < b.shape[1]
                b_tile[here, t // 128 + 2 * i, t % 128] = b[k, column] if inside else float32(0)
        if step > 0:
            for k in range(8):
                for i in range(4):
                    left[i], left[4 + i] = a_tile[there, k, 4 * ty + i], a_tile[there, k, 64 + 4 * ty + i]
                    right[i], right[4 + i] = b_tile[there, k, 4 * tx + i], b_tile[there, k, 64 + 4 * tx + i]
                for i in range(8):
                    for j in range(8):
                        total[i, j] += left[i] * right[j]
        cuda.syncthreads()
    for i in range(8):
        for j in range(8):
            row, column = row0 + i // 4 * 64 + 4 * ty + i % 4, column0 + j // 4 * 64 + 4 * tx + j % 4
            if row < c.shape[0] and column < c.shape[1]:
                c[row, column] = total[i, j]

# %% histogram: every thread clears and adds what it finds, counters in a loop
@cuda.jit
def histogram(tokens, counts):
    s = cuda.shared.array(128, int32)
    for v in range(cuda.threadIdx.x, 128, 256):
        s[v] = 0
    cuda.syncthreads()
    i = cuda.blockIdx.x * 256 + cuda.threadIdx.x
    while i < tokens.size:
        cuda.atomic.add(s, tokens[i], 1)
        i += 256 * cuda.gridDim.x
    cuda.syncthreads()
    for v in range(cuda.threadIdx.x, 128, 256):
        if s[v] > 0:
            cuda.atomic.add(counts, v, s[v])

# %% vector_add: a while loop over the grid, through locals
@cuda.jit
def vector_add(x, y, out):
    i = cuda.threadIdx.x + cuda.blockDim.x * cuda.blockIdx.x
    while i < out.size:
        left, right = x[i], y[i]
        total = left + right
        out[i] = total
        i += cuda.blockDim.x * cuda.gridDim.x

# %% matrix_add_doubled: strides over the grid in both axes
@cuda.jit(device=True)
def doubled(value):
    return 2 * value


@cuda.jit
def matrix_add_doubled(a, b, c):
    x0, y0 = cuda.grid(2)
    dx, dy = cuda.gridsize(2)
    for y in range(y0, c.shape[0], dy):
        for x in range(x0, c.shape[1], dx):
            c[y, x] = a[y, x] + doubled(b[y, x])

# %% window_average: warp shuffles, the last two lanes from shared memory
@cuda.jit
def window_average(x, out):
    edge = cuda.shared.array((5, 2), float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    mine = x[i] if i < x.size else float32(0)
    if lane < 2:
        edge[warp, lane] = mine
    if t < 2:
        edge[4, t] = x[i + 128] if i + 128 < x.size else float32(0)
    cuda.syncthreads()
    one = cuda.shfl_down_sync(0xFFFFFFFF, mine, 1)
    two = cuda.shfl_down_sync(0xFFFFFFFF, mine, 2)
    if lane == 31:
        one = edge[warp + 1, 0]
        two = edge[warp + 1, 1]
    if lane == 30:
        two = edge[warp + 1, 0]
    if i < out.size:
        out[i] = (mine + one + two) / float32(3)

# %% window_average: sums in float64, halo loaded by the second warp
@cuda.jit
def window_average(x, out):
    s = cuda.shared.array(130, float32)
    first, t = cuda.blockIdx.x * cuda.blockDim.x, cuda.threadIdx.x
    if first + t < x.shape[0]:
        s[t] = x[first + t]
    if 32 <= t < 34 and first + 96 + t < x.shape[0]:
        s[96 + t] = x[first + 96 + t]
    cuda.syncthreads()
    if first + t + 2 < x.shape[0]:
        out[first + t] = (s[t] + s[t + 1] + s[t + 2]) / 3.0

# %% block_sum: one warp adds eight rows, then shuffles
@cuda.jit
def block_sum(x, out):
    s, t = cuda.shared.array((8, 32), float32), cuda.threadIdx.x
    i = cuda.grid(1)
    s[t // 32, t % 32] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if t < 32:
        value = float32(0)
        for row in range(8):
            value += s[row, t]
        for k in (16, 8, 4, 2, 1):
            value += cuda.shfl_xor_sync(0xFFFFFFFF, value, k)
        if t == 0:
            cuda.atomic.add(out, 0, value)

# %% matmul_tiled: b's tile stored turned and padded
@cuda.jit
def matmul_tiled(a, b, c):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, 17), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE + ty, cuda.blockIdx.x * TILE + tx
    total = float32(0)
    k0 = 0
    while k0 < a.shape[1]:
        a_tile[ty, tx] = float32(0)
        b_tile[tx, ty] = float32(0)
        if row < a.shape[0] and k0 + tx < a.shape[1]:
            a_tile[ty, tx] = a[row, k0 + tx]
        if k0 + ty < b.shape[0] and column < b.shape[1]:
            b_tile[tx, ty] = b[k0 + ty, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[ty, k] * b_tile[tx, k]
        cuda.syncthreads()
        k0 += TILE
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total

# %% matmul_register_tiled: a's tile in rows of fours, the sums in two halves of rows
@cuda.jit
def matmul_register_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((8, 33, 4), float32), cuda.shared.array((8, 32, 4), float32)
    upper, lower = cuda.local.array((4, 8), float32), cuda.local.array((4, 8), float32)
    right = cuda.local.array(8, float32)
    a_next, b_next = cuda.local.array(4, float32), cuda.local.array(4, float32)
    t = cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    tx, ty = warp % 2 * 8 + lane % 8, warp // 2 * 4 + lane // 8
    row0, column0 = cuda.blockIdx.y * 128, cuda.blockIdx.x * 128
    a_row, a_k, b_k, b_column = t // 8, t % 8, t // 128, t % 128
    for i in range(4):
        for j in range(8):
            upper[i, j] = float32(0)
            lower[i, j] = float32(0)
    for i in range(4):
        row, k = row0 + a_row + 32 * i, a_k
        a_next[i] = a[row, k] if row < a.shape[0] and k < a.shape[1] else float32(0)
        k, column = b_k + 2 * i, column0 + b_column
        b_next[i] = b[k, column] if k < b.shape[0] and column < b.shape[1] else float32(0)
    k0 = 0
    while k0 < a.shape[1]:
        for i in range(4):
            a_tile[a_k, a_row // 4 + 8 * i, a_row % 4] = a_next[i]
            b_tile[b_k + 2 * i, b_column // 4, b_column % 4] = b_next[i]
        cuda.syncthreads()
        k0 += 8
        for i in range(4):
            row, k = row0 + a_row + 32 * i, k0 + a_k
            a_next[i] = a[row, k] if row < a.shape[0] and k < a.shape[1] else float32(0)
            k, column = k0 + b_k + 2 * i, column0 + b_column
            b_next[i] = b[k, column] if k < b.shape[0] and column < b.shape[1] else float32(0)
        for k in range(8):
            for j in range(4):
                right[j], right[4 + j] = b_tile[k, tx, j], b_tile[k, 16 + tx, j]
            for i in range(4):
                first, second = a_tile[k, ty, i], a_tile[k, 16 + ty, i]
                for j in range(8):
                    upper[i, j] += first * right[j]
                    lower[i, j] += second * right[j]
        cuda.syncthreads()
    for i in range(4):
        for j in range(8):
            row, column = row0 + 4 * ty + i, column0 + j // 4 * 64 + 4 * tx + j % 4
            if column < c.shape[1]:
                if row < c.shape[0]:
                    c[row, column] = upper[i, j]
                if row + 64 < c.shape[0]:
                    c[row + 64, column] = lower[i, j]

# %% histogram: counters set and added by all threads, two steps at a time
@cuda.jit
def histogram(tokens, counts):
    own = cuda.shared.array(128, int32)
    t, step = cuda.threadIdx.x, cuda.gridsize(1)
    if t >= 128:
        own[t - 128] = int32(0)
    cuda.syncthreads()
    i = cuda.grid(1)
    while i < tokens.size:
        cuda.atomic.add(own, tokens[i], 1)
        if i + step < tokens.size:
            cuda.atomic.add(own, tokens[i + step], 1)
        i += 2 * step
    cuda.syncthreads()
    if t >= 128:
        cuda.atomic.add(counts, t - 128, own[t - 128])

# %% matmul_tiled: one array for both tiles
@cuda.jit
def matmul_tiled(a, b, c):
    s = cuda.shared.array((2, TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for k0 in range(0, a.shape[1], TILE):
        s[0, ty, tx] = a[row, k0 + tx] if row < a.shape[0] and k0 + tx < a.shape[1] else float32(0)
        s[1, ty, tx] = b[k0 + ty, column] if k0 + ty < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += s[0, ty, k] * s[1, k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total

# %% matmul_column_tiled: eight variables in place of an array
@cuda.jit
def matmul_column_tiled(a, b, c):
    p, q = cuda.shared.array((64, 8), float32), cuda.shared.array((8, 64), float32)
    t = cuda.threadIdx.x
    tx, ty = t % 64, 8 * (t // 64)
    r0, c0 = 64 * cuda.blockIdx.y, 64 * cuda.blockIdx.x
    s0, s1, s2, s3 = float32(0), float32(0), float32(0), float32(0)
    s4, s5, s6, s7 = float32(0), float32(0), float32(0), float32(0)
    for k0 in range(0, a.shape[1], 8):
        row, k = r0 + t // 8, k0 + t % 8
        p[t // 8, t % 8] = a[row, k] if row < a.shape[0] and k < a.shape[1] else float32(0)
        k, column = k0 + t // 64, c0 + tx
        q[t // 64, tx] = b[k, column] if k < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(8):
            v = q[k, tx]
            s0 += p[ty, k] * v
            s1 += p[ty + 1, k] * v
            s2 += p[ty + 2, k] * v
            s3 += p[ty + 3, k] * v
            s4 += p[ty + 4, k] * v
            s5 += p[ty + 5, k] * v
            s6 += p[ty + 6, k] * v
            s7 += p[ty + 7, k] * v
        cuda.syncthreads()
    store(c, r0 + ty, c0 + tx, s0)
    store(c, r0 + ty + 1, c0 + tx, s1)
    store(c, r0 + ty + 2, c0 + tx, s2)
    store(c, r0 + ty + 3, c0 + tx, s3)
    store(c, r0 + ty + 4, c0 + tx, s4)
    store(c, r0 + ty + 5, c0 + tx, s5)
    store(c, r0 + ty + 6, c0 + tx, s6)
    store(c, r0 + ty + 7, c0 + tx, s7)
@cuda.jit(device=True)
def store(c, row, column, value):
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = value

# %% block_sum: two shared arrays used in turns
@cuda.jit
def block_sum(x, out):
    a = cuda.shared.array(256, float32)
    b = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    a[t] = x[i] if i < x.size else float32(0)
    step, turn = 128, 0
    while step > 0:
        cuda.syncthreads()
        if t < step and turn == 0:
            b[t] = a[t] + a[t + step]
        if t < step and turn == 1:
            a[t] = b[t] + b[t + step]
        turn = 1 - turn
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, a[0])

# %% block_sum: sums in a second array, copied back at each level
@cuda.jit
def block_sum(x, out):
    s = cuda.shared.array(256, float32)
    sums = cuda.shared.array(128, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    s[t] = 0.0
    if i < x.size:
        s[t] = x[i]
    step = 128
    while step > 0:
        cuda.syncthreads()
        if t < step:
            sums[t] = s[t] + s[t + step]
        cuda.syncthreads()
        if t < step:
            s[t] = sums[t]
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, s[0])

# %% window_average: shuffles where neighbours have it, edges from shared memory
@cuda.jit
def window_average(x, out):
    s = cuda.shared.array(132, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    mine = x[i] if i < x.size else float32(0)
    s[t] = mine
    if t < 2:
        s[128 + t] = x[i + 128] if i + 128 < x.size else float32(0)
    cuda.syncthreads()
    if i < out.size:
        out[i] = (mine + s[t + 1] + s[t + 2]) / 3

# %% block_sum: warp shuffles, then shared memory
@cuda.jit
def block_sum(x, out):
    s = cuda.shared.array(8, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    value = x[i] if i < x.size else float32(0)
    offset = 16
    while offset > 0:
        value += cuda.shfl_down_sync(0xffffffff, value, offset)
        offset //= 2
    if t % 32 == 0:
        s[t // 32] = value
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for k in range(8):
            total += s[k]
        cuda.atomic.add(out, 0, total)

# %% matmul_sectors: by a count of sets
def matmul_sectors(n, tile):
    naive = 0
    lanes = [divmod(t, tile) for t in range(32)]
    for k in range(8):
        naive += len({("a", y, (y * n + k) // 8) for y, x in lanes}) + len({("b", x // 8) for y, x in lanes})
    naive = naive * n // 8 * (n * n // 32)
    return naive, n * n // 4 * (n // tile)

# %% resident_blocks: NumPy
def resident_blocks(threads, registers, shared_bytes, sm):
    need = np.array([1, threads, 0, shared_bytes + sm["reserved_bytes"]])
    need[2] = threads // 32 * np.ceil(32 * registers / sm["register_portion"]) * sm["register_portion"]
    need[3] = np.ceil(need[3] / sm["shared_portion"]) * sm["shared_portion"]
    have = np.array([sm[k] for k in ("blocks", "threads", "registers", "shared_bytes")])
    return int((have[need > 0] // need[need > 0]).min())

# %% matrix_add_doubled: the coordinates in a tuple
@cuda.jit(device=True)
def doubled(value):
    return value + value
@cuda.jit
def matrix_add_doubled(a, b, c):
    x, y = cuda.grid(2)
    place = y, x
    if place[0] < b.shape[0] and place[1] < b.shape[1]:
        c[place] = doubled(b[place]) + a[place]

# %% transpose: two half tiles of 16 rows
@cuda.jit
def transpose(x, out):
    upper, lower = cuda.shared.array((16, 33), float32), cuda.shared.array((16, 33), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    j, i = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        if ty < 16:
            upper[ty, tx] = x[i, j]
        else:
            lower[ty - 16, tx] = x[i, j]
    cuda.syncthreads()
    i, j = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = upper[tx, ty] if tx < 16 else lower[tx - 16, ty]

# %% matmul_tiled: barrier at the start of each step, partial sums per tile
@cuda.jit
def matmul_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((TILE, TILE), float32), cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    k0 = 0
    while k0 < b.shape[0]:
        cuda.syncthreads()
        a_tile[ty, tx] = a[row, k0 + tx] if row < a.shape[0] and k0 + tx < a.shape[1] else float32(0)
        b_tile[ty, tx] = b[k0 + ty, column] if k0 + ty < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        part = float32(0)
        for k in range(TILE - 1, -1, -1):
            part += b_tile[k, tx] * a_tile[ty, k]
        total += part
        k0 += TILE
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total

# %% histogram: subtracts minus one
@cuda.jit
def histogram(tokens, counts):
    own, t = cuda.shared.array(128, int32), cuda.threadIdx.x
    if t < 128:
        own[t] = int32(0)
    cuda.syncthreads()
    for i in range(cuda.grid(1), len(tokens), cuda.gridsize(1)):
        cuda.atomic.sub(own, tokens[i], -1)
    cuda.syncthreads()
    if t < 128:
        cuda.atomic.add(counts, t, own[t])

# %% matmul_sectors: a list
def matmul_sectors(n, tile):
    return [n * n * n * (32 // tile + tile // 8) // 32, 2 * n**3 // tile // 8]

# %% matrix_add_doubled: a constant with a type
# edit: 2 * value  ->  TWO * value
# + TWO = float32(2)
#   @cuda.jit(device=True)
