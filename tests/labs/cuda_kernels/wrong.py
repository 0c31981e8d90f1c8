# %% vector_add: no guard
# says: outside of its shape
# - if i < out.size:
# -     out[i] = x[i] + y[i]
# + out[i] = x[i] + y[i]

# %% vector_add: the slide's guard, by a name that nothing defines
# says: id
@cuda.jit
def vector_add(x, y, out):
    idx = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if id < out.size:
        out[idx] = x[idx] + y[idx]

# %% vector_add: the index in the block taken for the index
# says: race
# edit: cuda.grid(1)  ->  cuda.threadIdx.x

# %% vector_add: everything on one thread
# says: give each thread one element
@cuda.jit
def vector_add(x, y, out):
    if cuda.grid(1) == 0:
        for i in range(out.size):
            out[i] = x[i] + y[i]

# %% vector_add: neighbouring threads far apart
# says: a sector holds eight
# - i = cuda.grid(1)
# + t = cuda.threadIdx.x
# + i = cuda.blockIdx.x * 128 + t % 8 * 16 + t // 8

# %% vector_add: an atomic update for each term
# says: a plain store will do
# - out[i] = x[i] + y[i]
# + out[i] = 0
# + cuda.atomic.add(out, i, x[i])
# + cuda.atomic.add(out, i, y[i])

# %% vector_add: the guard lets one thread too many in
# says: outside of its shape
# edit: i < out.size  ->  i <= out.size

# %% matrix_add_doubled: x is the row
# says: let x be the column
# edit: column, row  ->  row, column

# %% matrix_add_doubled: no guard, as in the notes
# says: outside of its shape
# - column, row = cuda.grid(2)
# - if row < c.shape[0] and column < c.shape[1]:
# -     c[row, column] = a[row, column] + doubled(b[row, column])
# + i, j = cuda.grid(2)
# + c[j, i] = a[j, i] + doubled(b[j, i])

# %% matrix_add_doubled: a loop over the columns in each thread
# says: give each thread one element
# - column, row = cuda.grid(2)
# - if row < c.shape[0] and column < c.shape[1]:
# -     c[row, column] = a[row, column] + doubled(b[row, column])
# + x, row = cuda.grid(2)
# + if x == 0 and row < c.shape[0]:
# +     for column in range(c.shape[1]):
# +         c[row, column] = a[row, column] + doubled(b[row, column])

# %% window_average: no room for the halo, as in the clinic
# says: outside of its shape (128,)
# edit: cuda.shared.array(130, float32)  ->  cuda.shared.array(128, float32)

# %% window_average: the barrier is missing
# says: no barrier between them
# - cuda.syncthreads()

# %% window_average: the halo is not loaded
# says: which nothing has written
# - if t < 2 and i + 128 < x.size:
# -     s[t + 128] = x[i + 128]

# %% window_average: the barrier inside of the guard
# says: wait
# - cuda.syncthreads()
# ...
#   if i < out.size:
# +     cuda.syncthreads()

# %% window_average: the barrier before the halo
# says: no barrier between them
#       s[t] = x[i]
# + cuda.syncthreads()
# ...
#       s[t + 128] = x[i + 128]
# - cuda.syncthreads()

# %% window_average: one thread loads for all
# says: steps of the busiest warp
# - if i < x.size:
# -     s[t] = x[i]
# - if t < 2 and i + 128 < x.size:
# -     s[t + 128] = x[i + 128]
# + if t == 0:
# +     for k in range(130):
# +         if i + k < x.size:
# +             s[k] = x[i + k]

# %% window_average: three loads an element
# says: lie in 17 sectors
@cuda.jit
def window_average(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = (x[i] + x[i + 1] + x[i + 2]) / float32(3)

# %% window_average: no guard
# says: outside of its shape
@cuda.jit
def window_average(x, out):
    s = cuda.shared.array(130, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    s[t] = x[i]
    if t < 2:
        s[t + 128] = x[i + 128]
    cuda.syncthreads()
    out[i] = (s[t] + s[t + 1] + s[t + 2]) / float32(3)

# %% window_average: i + 1 read twice
# says: counts once
# edit: t + 2  ->  t + 1

# %% transpose: naive
# says: lanes should follow a row
@cuda.jit
def transpose(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[column, row] = x[row, column]

# %% transpose: no padding
# says: 32 different banks
# edit: cuda.shared.array((32, 33), float32)  ->  cuda.shared.array((32, 32), float32)

# %% transpose: the barrier is missing
# says: no barrier between them
# - cuda.syncthreads()

# %% transpose: the tile is turned, its place is not
# says: its place in `out` must be turned, too
# - row, column = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx

# %% transpose: the place is turned, the tile is not
# says: in its place; it must be turned, too
# edit: tile[tx, ty]  ->  tile[ty, tx]

# %% transpose: turned when loaded and when stored
# says: two turns cancel
# edit: column, row  ->  row, column

# %% transpose: padded by two
# says: 32 different banks
# edit: cuda.shared.array((32, 33), float32)  ->  cuda.shared.array((32, 34), float32)

# %% transpose: stores down the columns of the result
# says: lanes should follow a row
# - row, column = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx
# - if row < out.shape[0] and column < out.shape[1]:
# -     out[row, column] = tile[tx, ty]
# + if row < x.shape[0] and column < x.shape[1]:
# +     out[column, row] = tile[ty, tx]

# %% block_sum: neighbours first
# says: the first `step` threads
# edit: step = 128  ->  step = 1
# edit: step > 0  ->  step < 256
# edit: t < step  ->  t % (2 * step) == 0
# edit: step //= 2  ->  step *= 2

# %% block_sum: neighbours first without divergence, at the price of bank conflicts
# says: Bank conflict
# edit: step = 128  ->  step = 1
# edit: step > 0  ->  step < 256
# - if t < step:
# -     s[t] += s[t + step]
# - step //= 2
# + if t < 128 // step:
# +     s[2 * step * t] += s[2 * step * t + step]
# + step *= 2

# %% block_sum: an atomic update per thread
# says: One update per block
@cuda.jit
def block_sum(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])

# %% block_sum: the atomic left out
# says: blocks run in any order
# edit: cuda.atomic.add(out, 0, s[0])  ->  out[0] += s[0]

# %% block_sum: the barrier is missing
# says: no barrier between them
#   s[t] = x[i] if i < x.size else float32(0)
# + cuda.syncthreads()
# ...
#   while step > 0:
# -     cuda.syncthreads()

# %% block_sum: the barrier inside of the branch
# says: wait
#   s[t] = x[i] if i < x.size else float32(0)
# + cuda.syncthreads()
# ...
#   while step > 0:
# -     cuda.syncthreads()
# ...
#   s[t] += s[t + step]
# + cuda.syncthreads()

# %% block_sum: threads past the end bring nothing
# says: which nothing has written
# - s[t] = x[i] if i < x.size else float32(0)
# + if i < x.size:
# +     s[t] = x[i]

# %% block_sum: everything on one thread
# says: add in a tree
@cuda.jit
def block_sum(x, out):
    if cuda.threadIdx.x == 0:
        first, total = cuda.blockIdx.x * 256, float32(0)
        for i in range(first, min(first + 256, x.size)):
            total += x[i]
        cuda.atomic.add(out, 0, total)

# %% block_sum: every thread adds the block's sum
# says: no barrier between them
# - if t == 0:
# -     cuda.atomic.add(out, 0, s[0])
# + cuda.atomic.add(out, 0, s[0])

# %% block_sum: out is overwritten
# says: added to what is there
# edit: t == 0  ->  i == 0
# edit: cuda.atomic.add(out, 0, s[0])  ->  out[0] = s[0]

# %% matmul_sectors: numbers, as the notes count
# says: a sector holds eight of them
def matmul_sectors(n, tile):
    return 2 * n**3, 2 * n**3 // tile

# %% matmul_sectors: numbers divided by eight
# says: it is fetched once
def matmul_sectors(n, tile):
    return 2 * n**3 // 8, 2 * n**3 // tile // 8

# %% matmul_sectors: a warp as one row
# says: a sector of `a` of its own
def matmul_sectors(n, tile):
    return n**3 // 32 * (1 + tile // 8), 2 * n**3 // tile // 8

# %% matmul_sectors: one size by heart
# says: gave (0, 0)
def matmul_sectors(n, tile):
    return (32768, 4096) if (n, tile) == (64, 16) else (0, 0)

# %% matmul_tiled: x is the row
# says: x is the column
# edit: column, row  ->  row, column
# - inside = row < a.shape[0] and k0 + tx < a.shape[1]
# - a_tile[ty, tx] = a[row, k0 + tx] if inside else float32(0)
# - inside = k0 + ty < b.shape[0] and column < b.shape[1]
# - b_tile[ty, tx] = b[k0 + ty, column] if inside else float32(0)
# + a_tile[tx, ty] = a[row, k0 + ty] if row < a.shape[0] and k0 + ty < a.shape[1] else float32(0)
# + inside = k0 + tx < b.shape[0] and column < b.shape[1]
# + b_tile[tx, ty] = b[k0 + tx, column] if inside else float32(0)
# edit: a_tile[ty, k] * b_tile[k, tx]  ->  a_tile[tx, k] * b_tile[k, ty]

# %% matmul_tiled: the first barrier is missing
# says: no barrier between them
#   b_tile[ty, tx] = b[k0 + ty, column] if inside else float32(0)
# - cuda.syncthreads()

# %% matmul_tiled: the second barrier is missing
# says: no barrier between them
#       total += a_tile[ty, k] * b_tile[k, tx]
# - cuda.syncthreads()

# %% matmul_tiled: barriers inside of the guard
# says: wait
@cuda.jit
def matmul_tiled(a, b, c):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    if row < c.shape[0] and column < c.shape[1]:
        for k0 in range(0, a.shape[1], TILE):
            a_tile[ty, tx] = a[row, k0 + tx] if k0 + tx < a.shape[1] else float32(0)
            b_tile[ty, tx] = b[k0 + ty, column] if k0 + ty < b.shape[0] else float32(0)
            cuda.syncthreads()
            for k in range(TILE):
                total += a_tile[ty, k] * b_tile[k, tx]
            cuda.syncthreads()
        c[row, column] = total

# %% matmul_tiled: no tiles
# says: each element of a block's tiles once
@cuda.jit
def matmul_tiled(a, b, c):
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total

# %% matmul_tiled: the last, smaller tile along k is left out
# says: the last tile along k is smaller
# - for k0 in range(0, a.shape[1], TILE):
# -     inside = row < a.shape[0] and k0 + tx < a.shape[1]
# -     a_tile[ty, tx] = a[row, k0 + tx] if inside else float32(0)
# -     inside = k0 + ty < b.shape[0] and column < b.shape[1]
# -     b_tile[ty, tx] = b[k0 + ty, column] if inside else float32(0)
# + for tile in range(a.shape[1] // TILE):
# +     k0 = tile * TILE
# +     a_tile[ty, tx] = a[row, k0 + tx] if row < a.shape[0] else float32(0)
# +     b_tile[ty, tx] = b[k0 + ty, column] if column < b.shape[1] else float32(0)

# %% matmul_tiled: what lies outside is left as it was
# says: which nothing has written
# - inside = row < a.shape[0] and k0 + tx < a.shape[1]
# - a_tile[ty, tx] = a[row, k0 + tx] if inside else float32(0)
# - inside = k0 + ty < b.shape[0] and column < b.shape[1]
# - b_tile[ty, tx] = b[k0 + ty, column] if inside else float32(0)
# + if row < a.shape[0] and k0 + tx < a.shape[1]:
# +     a_tile[ty, tx] = a[row, k0 + tx]
# + if k0 + ty < b.shape[0] and column < b.shape[1]:
# +     b_tile[ty, tx] = b[k0 + ty, column]

# %% matmul_tiled: the sum kept in global memory
# says: each element of a block's tiles once
# - total = float32(0)
# + if row < c.shape[0] and column < c.shape[1]:
# +     c[row, column] = 0
# ...
# - for k in range(TILE):
# -     total += a_tile[ty, k] * b_tile[k, tx]
# + if row < c.shape[0] and column < c.shape[1]:
# +     for k in range(TILE):
# +         c[row, column] += a_tile[ty, k] * b_tile[k, tx]
# ...
# - if row < c.shape[0] and column < c.shape[1]:
# -     c[row, column] = total

# %% matmul_tiled: the tile of b kept transposed
# says: A bank conflict
# edit: b_tile[ty, tx]  ->  b_tile[tx, ty]
# edit: k, tx  ->  tx, k

# %% resident_blocks: registers not rounded up
# says: registers in multiples of
# edit: threads // 32 * (-(-32 * registers // portion) * portion)  ->  threads * registers

# %% resident_blocks: the system's shared memory forgotten
# says: The system takes
# edit: (shared_bytes + sm["reserved_bytes"])  ->  shared_bytes

# %% resident_blocks: shared memory not rounded up
# says: shared memory in multiples of
# - shared = -(-(shared_bytes + sm["reserved_bytes"]) // sm["shared_portion"]) * sm["shared_portion"]
# + shared = shared_bytes + sm["reserved_bytes"]

# %% resident_blocks: one portion of shared memory for all GPUs
# says: where shared_bytes decide
# - shared = -(-(shared_bytes + sm["reserved_bytes"]) // sm["shared_portion"]) * sm["shared_portion"]
# + shared = -(-(shared_bytes + sm["reserved_bytes"]) // 256) * 256

# %% resident_blocks: one thread's registers per warp
# says: registers of its own
# edit: -32 * registers // portion  ->  -registers // portion

# %% resident_blocks: threads only
# says: where registers decide
# edit: // threads, sm["registers"] // of_block  ->  // threads

# %% resident_blocks: shared memory forgotten
# says: where shared_bytes decide
# - return min(limits + ([sm["shared_bytes"] // shared] if shared else []))
# + return min(limits)

# %% resident_blocks: the SM's limit of blocks forgotten
# says: where blocks decide
# edit: sm["blocks"], sm["threads"] // threads  ->  sm["threads"] // threads

# %% resident_blocks: at least one
# says: gave 1, want 0
# - return min(limits + ([sm["shared_bytes"] // shared] if shared else []))
# + return max(1, min(limits + ([sm["shared_bytes"] // shared] if shared else [])))

# %% resident_blocks: registers rounded up for the block
# says: registers in multiples of
# edit: threads // 32 * (-(-32 * registers // portion) * portion)  ->  -(-threads * registers // 256) * 256

# %% matmul_register_tiled: each sum loads its own two numbers
# says: multiply all with each other
# - for i in range(4):
# -     left[i], left[4 + i] = a_tile[k, ty, i], a_tile[k, 16 + ty, i]
# -     right[i], right[4 + i] = b_tile[k, tx, i], b_tile[k, 16 + tx, i]
# ...
# - total[i, j] += left[i] * right[j]
# + x, y = a_tile[k, ty + i // 4 * 16, i % 4], b_tile[k, tx + j // 4 * 16, j % 4]
# + total[i, j] += x * y

# %% matmul_register_tiled: a thread's columns side by side, an eighth of the banks
# says: half as many again
@cuda.jit
def matmul_register_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((8, 132), float32), cuda.shared.array((8, 128), float32)
    total = cuda.local.array((8, 8), float32)
    left, right = cuda.local.array(8, float32), cuda.local.array(8, float32)
    t = cuda.threadIdx.x
    tx, ty = t % 16, t // 16
    row0, column0 = cuda.blockIdx.y * 128, cuda.blockIdx.x * 128
    for i in range(8):
        for j in range(8):
            total[i, j] = float32(0)
    for k0 in range(0, a.shape[1], 8):
        for i in range(4):
            row, k = row0 + t // 8 + 32 * i, k0 + t % 8
            inside = row < a.shape[0] and k < a.shape[1]
            a_tile[t % 8, t // 8 + 32 * i] = a[row, k] if inside else float32(0)
            k, column = k0 + t // 128 + 2 * i, column0 + t % 128
            inside = k < b.shape[0] and column < b.shape[1]
            b_tile[t // 128 + 2 * i, t % 128] = b[k, column] if inside else float32(0)
        cuda.syncthreads()
        for k in range(8):
            for i in range(8):
                left[i], right[i] = a_tile[k, 8 * ty + i], b_tile[k, 8 * tx + i]
            for i in range(8):
                for j in range(8):
                    total[i, j] += left[i] * right[j]
        cuda.syncthreads()
    for i in range(8):
        for j in range(8):
            row, column = row0 + 8 * ty + i, column0 + 8 * tx + j
            if row < c.shape[0] and column < c.shape[1]:
                c[row, column] = total[i, j]

# %% matmul_register_tiled: the grid's axes are exchanged
# says: matmul_register_tiled of 129
# edit: row0, column0 = cuda.blockIdx.y * 128  ->  column0, row0 = cuda.blockIdx.y * 128

# %% matmul_register_tiled: a slice is overwritten while others still use it
# says: no barrier between them
#   multiply(a_tile, b_tile, 7, tx, ty, total, left, right)
# - cuda.syncthreads()

# %% matrix_add_doubled: the wrong matrix is doubled
# says: This is 2 a + b
# edit: a[row, column] + doubled(b[row, column])  ->  doubled(a[row, column]) + b[row, column]

# %% matrix_add_doubled: each coordinate compared with the other length
# says: Rows end at c.shape[0]
# edit: row < c.shape[0] and column < c.shape[1]  ->  row < c.shape[1] and column < c.shape[0]

# %% matrix_add_doubled: not doubled
# says: double b
# edit: 2 * value  ->  value

# %% matrix_add_doubled: an element per thread, but each loads its whole row
# says: busiest warp
# - if row < c.shape[0] and column < c.shape[1]:
# -     c[row, column] = a[row, column] + doubled(b[row, column])
# + if row < c.shape[0] and column < c.shape[1]:
# +     for k in range(c.shape[1]):
# +         if k == column:
# +             c[row, column] = a[row, column] + doubled(b[row, column])

# %% window_average: not divided
# says: The sum is not divided by 3
# edit: (s[t] + s[t + 1] + s[t + 2]) / float32(3)  ->  s[t] + s[t + 1] + s[t + 2]

# %% window_average: the first of three is missing
# says: x[i] is missing
# edit: s[t] + s[t + 1] + s[t + 2]  ->  s[t + 1] + s[t + 2]

# %% window_average: the halo loaded by the last two threads that have an element
# says: which nothing has written
@cuda.jit
def window_average(x, out):
    s = cuda.shared.array(130, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < out.size:
        s[t] = x[i]
    if t > 125 and i + 2 < x.size:
        s[t + 2] = x[i + 2]
    cuda.syncthreads()
    if i < out.size:
        out[i] = (s[t] + s[t + 1] + s[t + 2]) / float32(3)

# %% transpose: the guards of the two halves exchanged
# says: transpose of
@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((32, 33), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        tile[ty, tx] = x[row, column]
    cuda.syncthreads()
    r, q = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx
    if row < x.shape[0] and column < x.shape[1] and r < out.shape[0] and q < out.shape[1]:
        out[r, q] = tile[tx, ty]

# %% transpose: only whole tiles
# says: transpose of
# edit: row < out.shape[0] and column < out.shape[1]  ->  row | 31 < out.shape[0] and column | 31 < out.shape[1]

# %% transpose: shared memory of one column, read by all
# says: race
# edit: tile[ty, tx] = x  ->  tile[0, tx] = x

# %% block_sum: the last level is left out
# says: block_sum of
# edit: step > 0  ->  step > 1

# %% block_sum: no guard
# says: outside of its shape
# edit: x[i] if i < x.size else float32(0)  ->  x[i]

# %% block_sum: the last element of a full block doubled
# says: outside of its shape
# edit: t < step  ->  t <= step

# %% block_sum: the update before the last barrier
# says: no barrier between them
# - if t == 0:
# + if t == 1:
# ...
# - cuda.atomic.add(out, 0, s[0])
# + cuda.atomic.add(out, 0, s[0])

# %% block_sum: shuffles, and an update per warp
# says: One update per block
@cuda.jit
def block_sum(x, out):
    i = cuda.grid(1)
    value = x[i] if i < x.size else float32(0)
    step = 16
    while step > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        step //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)

# %% matmul_sectors: a broadcast word is free
# says: is not free
def matmul_sectors(n, tile):
    return n**3 // 32 * (tile // 8), 2 * n**3 // tile // 8

# %% matmul_sectors: the two numbers exchanged
# says: matmul_sectors(64, 16)
def matmul_sectors(n, tile):
    return 2 * n**3 // tile // 8, n**3 // 32 * (32 // tile + tile // 8)

# %% matmul_sectors: floats
# says: not an int
def matmul_sectors(n, tile):
    return n**3 / 32 * (32 / tile + tile / 8), 2 * n**3 / tile / 8

# %% matmul_sectors: only one tile per step
# says: matmul_sectors(64, 16)
# edit: 2 * n**3 // tile // 8  ->  n**3 // tile // 8

# %% matmul_tiled: the sum begins anew at each tile
# says: The sum starts anew
#   for k0 in range(0, a.shape[1], TILE):
# +     total = float32(0)

# %% matmul_tiled: k ends at the rows of a
# says: go on through all of k
# edit: range(0, a.shape[1], TILE)  ->  range(0, a.shape[0], TILE)

# %% matmul_tiled: no guard at the store
# says: outside of its shape
# - if row < c.shape[0] and column < c.shape[1]:
# -     c[row, column] = total
# + c[row, column] = total

# %% matmul_tiled: the loads unguarded
# says: outside of its shape
# edit: a[row, k0 + tx] if inside else float32(0)  ->  a[row, k0 + tx]

# %% matmul_tiled: one tile in shared memory, b from global memory
# says: each element of a block's tiles once
# edit: total += a_tile[ty, k] * b_tile[k, tx]  ->  total += a_tile[ty, k] * (b[k0 + k, column] if k0 + k < b.shape[0] and column < b.shape[1] else float32(0))

# %% matmul_column_tiled: a slice is overwritten while others still use it
# says: no barrier between them
#           total[i] += a_tile[8 * ty + i, k] * right
# - cuda.syncthreads()

# %% matmul_column_tiled: the first barrier is missing
# says: no barrier between them
#       b_tile[ty, tx] = b[k, column] if k < b.shape[0] and column < b.shape[1] else float32(0)
# -     cuda.syncthreads()

# %% matmul_column_tiled: the number of b loaded anew for each sum
# says: At each k
# edit: total[i] += a_tile[8 * ty + i, k] * right  ->  total[i] += a_tile[8 * ty + i, k] * b_tile[k, tx]

# %% matmul_column_tiled: eight rows of neighbouring threads, so lanes differ in the row
# says: Bank conflict
# edit: tx, ty = t % 64, t // 64  ->  tx, ty = t // 8, t % 8
# edit: k0 + ty, column0 + tx  ->  k0 + t // 64, column0 + t % 64
# edit: b_tile[ty, tx] = b  ->  b_tile[t // 64, t % 64] = b

# %% matmul_column_tiled: the sums are not set to 0
# says: which nothing has written
# - for i in range(8):
# -     total[i] = float32(0)

# %% matmul_column_tiled: eight elements of a row
# says: matmul_column_tiled of
# edit: row0 + 8 * ty + i, column0 + tx  ->  row0 + tx, column0 + 8 * ty + i

# %% matmul_column_tiled: no guard at the store
# says: outside of its shape
# - if row < c.shape[0] and column < c.shape[1]:
# -     c[row, column] = total[i]
# + c[row, column] = total[i]

# %% matmul_column_tiled: the last slice is left out
# says: matmul_column_tiled of
# edit: range(0, a.shape[1], 8)  ->  range(0, a.shape[1] - 7, 8)

# %% matmul_register_tiled: right and without conflicts, but no neighbours
# says: should lie in fours
@cuda.jit
def matmul_register_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((8, 128), float32), cuda.shared.array((8, 128), float32)
    total = cuda.local.array((8, 8), float32)
    left, right = cuda.local.array(8, float32), cuda.local.array(8, float32)
    t = cuda.threadIdx.x
    tx, ty = t % 16, t // 16
    row0, column0 = cuda.blockIdx.y * 128, cuda.blockIdx.x * 128
    for i in range(8):
        for j in range(8):
            total[i, j] = float32(0)
    for k0 in range(0, a.shape[1], 8):
        for i in range(4):
            row, k = row0 + t // 8 + 32 * i, k0 + t % 8
            inside = row < a.shape[0] and k < a.shape[1]
            a_tile[t % 8, t // 8 + 32 * i] = a[row, k] if inside else float32(0)
            k, column = k0 + t // 128 + 2 * i, column0 + t % 128
            inside = k < b.shape[0] and column < b.shape[1]
            b_tile[t // 128 + 2 * i, t % 128] = b[k, column] if inside else float32(0)
        cuda.syncthreads()
        for k in range(8):
            for i in range(8):
                left[i], right[i] = a_tile[k, ty + 16 * i], b_tile[k, tx + 16 * i]
            for i in range(8):
                for j in range(8):
                    total[i, j] += left[i] * right[j]
        cuda.syncthreads()
    for i in range(8):
        for j in range(8):
            row, column = row0 + ty + 16 * i, column0 + tx + 16 * j
            if row < c.shape[0] and column < c.shape[1]:
                c[row, column] = total[i, j]

# %% matmul_register_tiled: in fours, but the next slice is loaded late
# says: loads too late
@cuda.jit
def matmul_register_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((8, 32, 4), float32), cuda.shared.array((8, 32, 4), float32)
    total = cuda.local.array((8, 8), float32)
    left, right = cuda.local.array(8, float32), cuda.local.array(8, float32)
    t = cuda.threadIdx.x
    tx, ty = t % 16, t // 16
    row0, column0 = cuda.blockIdx.y * 128, cuda.blockIdx.x * 128
    for i in range(8):
        for j in range(8):
            total[i, j] = float32(0)
    for k0 in range(0, a.shape[1], 8):
        for i in range(4):
            row, k = row0 + t // 8 + 32 * i, k0 + t % 8
            inside = row < a.shape[0] and k < a.shape[1]
            a_tile[t % 8, t // 32 + 8 * i, t // 8 % 4] = a[row, k] if inside else float32(0)
            k, column = k0 + t // 128 + 2 * i, column0 + t % 128
            inside = k < b.shape[0] and column < b.shape[1]
            b_tile[t // 128 + 2 * i, t % 128 // 4, t % 4] = b[k, column] if inside else float32(0)
        cuda.syncthreads()
        for k in range(8):
            for i in range(4):
                left[i], right[i] = a_tile[k, ty,i], b_tile[k, tx, i]
                left[i+4], right[i+4] = a_tile[k, 16+ty, i], b_tile[k, 16+tx, i]
            for i in range(8):
                for j in range(8):
                    total[i, j] += left[i] * right[j]
        cuda.syncthreads()
    for i in range(8):
        for j in range(8):
            row, column = row0 + i // 4 * 64 + 4 * ty + i % 4, column0 + j // 4 * 64 + 4 * tx + j % 4
            if row < c.shape[0] and column < c.shape[1]:
                c[row, column] = total[i, j]

# %% matmul_register_tiled: the shape that divides only
# says: outside of its shape
# - if row < c.shape[0] and column < c.shape[1]:
# -     c[row, column] = total[i, j]
# + c[row, column] = total[i, j]

# %% histogram: every token updates global memory
# says: A block should update each counter once
@cuda.jit
def histogram(tokens, counts):
    for i in range(cuda.grid(1), tokens.size, cuda.gridsize(1)):
        cuda.atomic.add(counts, tokens[i], 1)

# %% histogram: the block's counters are not set to 0
# says: which nothing has written
# - if t < 128:
# -     own[t] = 0

# %% histogram: a plain addition in shared memory
# says: race
# edit: cuda.atomic.add(own, tokens[i], 1)  ->  own[tokens[i]] += 1

# %% histogram: the first barrier is missing
# says: no barrier between them
#       own[t] = 0
# - cuda.syncthreads()

# %% histogram: the second barrier is missing
# says: no barrier between them
#       cuda.atomic.add(own, tokens[i], 1)
# - cuda.syncthreads()

# %% histogram: each thread takes one token only
# says: histogram of
# - for i in range(cuda.grid(1), tokens.size, cuda.gridsize(1)):
# -     cuda.atomic.add(own, tokens[i], 1)
# + i = cuda.grid(1)
# + if i < tokens.size:
# +     cuda.atomic.add(own, tokens[i], 1)

# %% histogram: stored, and blocks overwrite each other
# says: race on counts
# edit: cuda.atomic.add(counts, t, own[t])  ->  counts[t] = own[t]

# %% histogram: a stretch of neighbouring tokens per thread
# says: the lanes side by side
# - for i in range(cuda.grid(1), tokens.size, cuda.gridsize(1)):
# -     cuda.atomic.add(own, tokens[i], 1)
# + stretch = (tokens.size + cuda.gridsize(1) - 1) // cuda.gridsize(1)
# + for i in range(cuda.grid(1) * stretch, min(tokens.size, (cuda.grid(1) + 1) * stretch)):
# +     cuda.atomic.add(own, tokens[i], 1)

# %% histogram: one warp per block counts
# says: steps of the busiest warp
# - for i in range(cuda.grid(1), tokens.size, cuda.gridsize(1)):
# -     cuda.atomic.add(own, tokens[i], 1)
# + if t < 32:
# +     for i in range(cuda.blockIdx.x * 32 + t, tokens.size, cuda.gridDim.x * 32):
# +         cuda.atomic.add(own, tokens[i], 1)

# %% matrix_add_doubled: b is doubled in place
# says: changes 2 of its arrays
# - c[row, column] = a[row, column] + doubled(b[row, column])
# + b[row, column] = doubled(b[row, column])
# + c[row, column] = a[row, column] + b[row, column]

# %% vector_add: the sum is stored twice
# says: changes 2 of its arrays
# - out[i] = x[i] + y[i]
# + out[i] = x[i] + y[i]
# + x[i] = out[i]

# %% window_average: times a rounded third
# says: window_average of 1 elements
# edit: / float32(3)  ->  * float32(0.33333)

# %% block_sum: in hundredths
# says: block_sum of 1 elements
# edit: s[t] = x[i] if i < x.size else float32(0)  ->  s[t] = float32(int32(x[i] * 100)) / float32(100) if i < x.size else float32(0)

# %% matmul_tiled: accumulates into c
# says: matmul_tiled of 48
# edit: c[row, column] = total  ->  c[row, column] += total

# %% matmul_tiled: the sum is rounded after each tile
# says: matmul_tiled of 48
# -         total += a_tile[ty, k] * b_tile[k, tx]
# +         total += a_tile[ty, k] * b_tile[k, tx]
# +     total = float32(int32(total * 1024)) / float32(1024)

# %% histogram: one token per thread
# says: histogram of 700
# edit: range(cuda.grid(1), tokens.size, cuda.gridsize(1))  ->  range(cuda.grid(1), min(tokens.size, cuda.gridsize(1)), cuda.gridsize(1))

# %% vector_add: returns the sum
# says: a kernel returns nothing
@cuda.jit
def vector_add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        return x[i] + y[i]

# %% vector_add: adds to what is there
# says: something was added to what stood there
# edit: out[i] = x[i] + y[i]  ->  out[i] += x[i] + y[i]

# %% vector_add: wraps around
# says: race on out[0]
@cuda.jit
def vector_add(x, y, out):
    i = cuda.grid(1) % out.size
    out[i] = x[i] + y[i]

# %% matrix_add_doubled: the sum doubled
# says: double b only
# edit: a[row, column] + doubled(b[row, column])  ->  doubled(a[row, column] + b[row, column])

# %% matrix_add_doubled: b in place of a
# says: the first term is an element of a
# edit: c[row, column] = a[row, column] + doubled(b[row, column])  ->  c[row, column] = b[row, column] + doubled(b[row, column])

# %% window_average: divided by 2
# says: divided by 2
# edit: float32(3)  ->  float32(2)

# %% window_average: early return before the barrier
# says: has ended without it
@cuda.jit
def window_average(x, out):
    s = cuda.shared.array(130, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i >= x.size:
        return
    s[t] = x[i]
    if t < 2 and i + 128 < x.size:
        s[t + 128] = x[i + 128]
    cuda.syncthreads()
    if i < out.size:
        out[i] = (s[t] + s[t + 1] + s[t + 2]) / float32(3)

# %% block_sum: starts at 64
# says: begin with 128 pairs
# edit: step = 128  ->  step = 64

# %% block_sum: shuffles of warps, only the first warp's sum
# says: only the first warp's 32 numbers
@cuda.jit
def block_sum(x, out):
    i, t = cuda.grid(1), cuda.threadIdx.x
    v = x[i] if i < x.size else float32(0)
    for k in range(5):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, 16 >> k)
    if t == 0:
        cuda.atomic.add(out, 0, v)

# %% block_sum: the maximum
# says: largest number, not its sum
# edit: s[t] += s[t + step]  ->  s[t] = max(s[t], s[t + step])

# %% matmul_sectors: requests, not sectors
# says: those are requests
def matmul_sectors(n, tile):
    warps = n * n // 32
    return warps * n * 2, warps * 2 * n // tile

# %% matmul_sectors: tiled per warp of 128 bytes
# says: the second number counts requests
# edit: 2 * n**3 // tile // 8  ->  2 * n**3 // tile // 32

# %% matmul_sectors: b's row fetched by each row of lanes
# says: the same words of `b`
# edit: naive = warps * n * (32 // tile + tile // 8)  ->  naive = warps * n * (32 // tile + 4)

# %% matmul_sectors: per thread, not per warp
# says: not for threads
# edit: warps = n * n // 32  ->  warps = n * n

# %% matmul_sectors: stores counted, too
# says: `c` is stored
# edit: return naive, 2 * n**3 // tile // 8  ->  return naive + n * n // 8, 2 * n**3 // tile // 8 + n * n // 8

# %% matmul_tiled: a's tile stored turned
# says: a's tile is turned
@cuda.jit
def matmul_tiled(a, b, c):
    a_tile, b_tile = cuda.shared.array((TILE, TILE), float32), cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for k0 in range(0, a.shape[1], TILE):
        a_tile[tx, ty] = a[row, k0 + tx] if row < a.shape[0] and k0 + tx < a.shape[1] else float32(0)
        b_tile[ty, tx] = b[k0 + ty, column] if k0 + ty < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total

# %% matmul_tiled: the inner loop one short
# says: the last number of each tile
# edit: for k in range(TILE):  ->  for k in range(TILE - 1):

# %% resident_blocks: no shared memory, no blocks
# says: if a block takes none
# edit: return min(limits + ([sm["shared_bytes"] // shared] if shared else []))  ->  return min(limits + ([sm["shared_bytes"] // shared] if shared else [0]))

# %% histogram: plain addition at the end
# says: race on counts
# edit: cuda.atomic.add(counts, t, own[t])  ->  counts[t] += own[t]

# %% window_average: x[i] in the middle
# says: x[i] is not its middle
# edit: s[t] + s[t + 1] + s[t + 2]  ->  s[max(t - 1, 0)] + s[t] + s[t + 1]

# %% block_sum: the first block alone
# says: only the first block's sum arrives
# edit: if t == 0:  ->  if t == 0 and cuda.blockIdx.x == 0:

# %% block_sum: the mean
# says: not the mean
# edit: cuda.atomic.add(out, 0, s[0])  ->  cuda.atomic.add(out, 0, s[0] / x.size)

# %% matmul_tiled: one tile along k
# says: only the first tile along k counts
# edit: range(0, a.shape[1], TILE)  ->  range(0, TILE, TILE)

# %% matmul_tiled: b's tile stays in its first rows
# says: must move along k, too
# edit: b[k0 + ty, column] if inside  ->  b[ty, column] if inside

# %% matmul_sectors: a tile loaded at each step
# says: without its gain
# edit: 2 * n**3 // tile // 8  ->  2 * n**3 // 8

# %% matmul_sectors: one step along k
# says: count all steps along k
# edit: naive = warps * n * (32  ->  naive = warps * (32

# %% resident_blocks: the most plentiful resource
# says: the scarcest resource decides
# edit: return min(limits  ->  return max(limits

# %% histogram: present or not
# says: histogram of 700 tokens
# edit: cuda.atomic.add(own, tokens[i], 1)  ->  cuda.atomic.max(own, tokens[i], 1)

# %% histogram: 127 is left out
# says: which nothing has written
# edit (2 places): t < 128  ->  t < 127

# %% matmul_tiled: k ends at the columns of c
# says: only the first tile along k
# edit: range(0, a.shape[1], TILE)  ->  range(0, c.shape[1], TILE)

# %% matmul_tiled: b's tile turned in the sum
# says: b's tile is turned
# edit: b_tile[k, tx]  ->  b_tile[tx, k]

# %% matmul_tiled: a's tile read by tx
# says: not row tx
# edit: a_tile[ty, k]  ->  a_tile[tx, k]

# %% matmul_tiled: a's tile stays
# says: a's tile must move
# edit: a[row, k0 + tx] if inside  ->  a[row, tx] if inside

# %% matmul_tiled: the sum is overwritten
# says: the sum is overwritten
# edit: total += a_tile  ->  total = a_tile

# %% matmul_tiled: c turned
# says: not into c[column, row]
# edit: c[row, column] = total  ->  c[column, row] = total

# %% matmul_tiled: b turned
# says: b is turned
# edit: b[k0 + ty, column] if inside  ->  b[column, k0 + ty] if inside

# %% matmul_sectors: a sector for each word of b
# says: in tile / 8 sectors
# edit: (32 // tile + tile // 8)  ->  (32 // tile + tile)

# %% matmul_sectors: a word of a for each lane
# says: not for each lane
# edit: (32 // tile + tile // 8)  ->  (32 + tile // 8)

# %% matmul_sectors: the tiled kernel's stores
# says: but loads only tiles
# edit: 2 * n**3 // tile // 8  ->  2 * n**3 // tile // 8 + n * n // 8

# %% resident_blocks: registers rounded per thread
# says: not each thread
# edit: threads // 32 * (-(-32 * registers // portion) * portion)  ->  threads * (-(-registers // portion) * portion)

# %% resident_blocks: rounded down
# says: rounded up, not down
# edit: -(-32 * registers // portion) * portion  ->  32 * registers // portion * portion

# %% histogram: the token added
# says: not the token itself
# edit: cuda.atomic.add(own, tokens[i], 1)  ->  cuda.atomic.add(own, tokens[i], tokens[i])

# %% block_sum: pads with one
# says: bring 0 to the tree, not 1
# edit: else float32(0)  ->  else float32(1)

# %% block_sum: pads with the last element
# says: not an element again
# edit: s[t] = x[i] if i < x.size else float32(0)  ->  s[t] = x[min(i, x.size - 1)]

# %% block_sum: assigns
# says: nothing was added to out[0]
# edit: s[t] += s[t + step]  ->  s[t] = s[t + step]

# %% block_sum: atomics in shared memory
# says: one update per block, in any memory
@cuda.jit
def block_sum(x, out):
    s = cuda.shared.array(1, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t == 0:
        s[0] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(s, 0, x[i])
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(out, 0, s[0])

# %% window_average: the halo of the first block in each
# says: not x[t + 128]
# edit: x[i + 128]  ->  x[t + 128]

# %% window_average: no brackets
# says: put it in brackets
# edit: (s[t] + s[t + 1] + s[t + 2]) / float32(3)  ->  s[t] + s[t + 1] + s[t + 2] / float32(3)

# %% window_average: integer division
# says: rounds down
# edit: / float32(3)  ->  // float32(3)

# %% matrix_add_doubled: c turned
# says: not into c[column, row]
# edit: c[row, column] = a[row  ->  c[column, row] = a[row

# %% matmul_tiled: what is known of the sum is stored after each tile
# says: store each sum once
# -     cuda.syncthreads()
# - if row < c.shape[0] and column < c.shape[1]:
# -     c[row, column] = total
# +     cuda.syncthreads()
# +     if row < c.shape[0] and column < c.shape[1]:
# +         c[row, column] = total

# %% matmul_column_tiled: the sums are stored after each slice
# says: store each sum once
# -     cuda.syncthreads()
# - for i in range(8):
# -     row, column = row0 + 8 * ty + i, column0 + tx
# -     if row < c.shape[0] and column < c.shape[1]:
# -         c[row, column] = total[i]
# +     cuda.syncthreads()
# +     for i in range(8):
# +         row, column = row0 + 8 * ty + i, column0 + tx
# +         if row < c.shape[0] and column < c.shape[1]:
# +             c[row, column] = total[i]

# %% matmul_register_tiled: the sums are stored after each slice
# says: store each sum once
# -     cuda.syncthreads()
# - for i in range(8):
# -     for j in range(8):
# -         row, column = row0 + i // 4 * 64 + 4 * ty + i % 4, column0 + j // 4 * 64 + 4 * tx + j % 4
# -         if row < c.shape[0] and column < c.shape[1]:
# -             c[row, column] = total[i, j]
# +     cuda.syncthreads()
# +     for i in range(8):
# +         for j in range(8):
# +             row, column = row0 + i // 4 * 64 + 4 * ty + i % 4, column0 + j // 4 * 64 + 4 * tx + j % 4
# +             if row < c.shape[0] and column < c.shape[1]:
# +                 c[row, column] = total[i, j]

# %% transpose: loads and stores by atomic updates, which no load or store shows
# says: transpose makes
@cuda.jit
def transpose(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        value = cuda.atomic.add(x, (row, column), 0)
        cuda.atomic.add(out, (column, row), value)

# %% transpose: no padding, and atomic updates of shared memory
# says: a plain load and a plain store will do
@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    tile[ty, tx] = 0
    cuda.syncthreads()
    if row < x.shape[0] and column < x.shape[1]:
        cuda.atomic.add(tile, (ty, tx), x[row, column])
    cuda.syncthreads()
    row, column = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = cuda.atomic.add(tile, (tx, ty), 0)

# %% window_average: each number read three times, by atomic updates
# says: window_average makes
@cuda.jit
def window_average(x, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(3):
            total += cuda.atomic.add(x, i + k, 0)
        out[i] = total / float32(3)

# %% matmul_tiled: no tiles, and loads by atomic updates
# says: matmul_tiled makes
@cuda.jit
def matmul_tiled(a, b, c):
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += cuda.atomic.add(a, (row, k), 0) * cuda.atomic.add(b, (k, column), 0)
        c[row, column] = total

# %% transpose: no padding, and turned when stored into the tile
# says: 32 different banks
# edit: cuda.shared.array((32, 33), float32)  ->  cuda.shared.array((32, 32), float32)
# edit: tile[ty, tx] = x  ->  tile[tx, ty] = x
# edit: = tile[tx, ty]  ->  = tile[ty, tx]
