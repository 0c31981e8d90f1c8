# %% eager_bytes: elements, not bytes
# says: itemsize bytes
def eager_bytes(rows, columns, itemsize):
    return 8 * rows * columns + 4 * rows


def least_bytes(rows, columns, itemsize):
    return 2 * rows * columns

# %% eager_bytes: the vectors forgotten
# says: the vectors are missing
def eager_bytes(rows, columns, itemsize):
    return itemsize * 8 * rows * columns


def least_bytes(rows, columns, itemsize):
    return itemsize * 2 * rows * columns

# %% eager_bytes: the vectors written but never read
# says: read again
def eager_bytes(rows, columns, itemsize):
    return itemsize * (8 * rows * columns + 2 * rows)


def least_bytes(rows, columns, itemsize):
    return itemsize * 2 * rows * columns

# %% eager_bytes: reads only
# says: writes its result, too
def eager_bytes(rows, columns, itemsize):
    return itemsize * (5 * rows * columns + 2 * rows)


def least_bytes(rows, columns, itemsize):
    return itemsize * 2 * rows * columns

# %% eager_bytes: the least leaves out the result
# says: two transfers
def eager_bytes(rows, columns, itemsize):
    return itemsize * (8 * rows * columns + 4 * rows)


def least_bytes(rows, columns, itemsize):
    return itemsize * rows * columns

# %% eager_bytes: the vectors as long as a row
# says: gave
def eager_bytes(rows, columns, itemsize):
    return itemsize * (8 * rows * columns + 4 * columns)


def least_bytes(rows, columns, itemsize):
    return itemsize * 2 * rows * columns

# %% add: mask left out
# says: which has
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))

# %% add: mask left out of the store
# says: stores element
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n))

# %% add: all programs do the first block
# says: where does program_id come in
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

# %% add: an element at a time
# says: a whole block each
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    for k in range(BLOCK):
        i = tl.program_id(0) * BLOCK + k
        tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

# %% add: the first program does everything
# says: load imbalance
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    if tl.program_id(0) == 0:
        for first in range(0, n, BLOCK):
            i = first + tl.arange(0, BLOCK)
            tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

# %% add: the first program does everything in one request, the others ask for nothing
# says: its own block
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, 2048)
    mine = (i < n) & (tl.program_id(0) == 0)
    tl.store(out + i, tl.load(x + i, mask=mine) + tl.load(y + i, mask=mine), mask=mine)

# %% add: the store's indices are clamped, not masked
# says: loads masked-off elements without other=; their value is undefined
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + tl.minimum(i, n - 1), total)

# %% add: blocks that overlap by one
# says: elements differ
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

# %% add: the mask lets one element too many in
# says: which has
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i <= n) + tl.load(y + i, mask=i <= n), mask=i <= n)

# %% add: an atomic update
# says: two loads and a store a program
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)
    tl.atomic_add(out + i, tl.load(y + i, mask=i < n), mask=i < n)

# %% softmax_rows: masked lanes are 0
# says: masked lane must not count
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=0.0).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: no maximum
# says: subtract the row's maximum
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values)
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: the first element in place of the maximum
# says: subtract the row's maximum
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf")).to(tl.float32)
    first = tl.load(x + row * x_stride).to(tl.float32)
    numerator = tl.exp(values - first)
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: masked lanes hold no value
# says: loads masked-off elements without other=; their value is undefined
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: program 0 does all rows
# says: load imbalance
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        for row in range(tl.num_programs(0)):
            values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf")).to(tl.float32)
            numerator = tl.exp(values - tl.max(values, 0))
            tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: masked lanes are 0 in the maximum
# says: its own
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=0.0).to(tl.float32)
    numerator = tl.where(lane < columns, tl.exp(values - tl.max(values, 0)), 0.0)
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: masked lanes are a large negative number
# says: must be -inf
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=-1e4).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: the number of columns taken for the stride
# says: x_stride elements apart
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + lane, mask=lane < columns, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: the stride of x for y, as in the notes
# says: of y, which has
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * x_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: mask left out of the load
# says: of x, which has
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_rows: the sum forgotten
# says: divide by the sum
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf")).to(tl.float32)
    tl.store(y + row * y_stride + lane, tl.exp(values - tl.max(values, 0)), mask=lane < columns)

# %% softmax_rows: loaded again for each use
# says: one load and one store
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    maximum = tl.max(tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf")).to(tl.float32), 0)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - maximum)
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_online: the sum is not rescaled
# says: multiply the old sum by e^(old - new)
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = float("-inf"), 0.0
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        maximum = tl.maximum(maximum, tl.max(block, 0))
        total += tl.sum(tl.exp(block - tl.where(maximum == float("-inf"), 0.0, maximum)), 0)
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp(block - maximum) / total, mask=j < columns)

# %% softmax_online: NaN after a first block of -inf
# says: your first block is all -inf
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = float("-inf"), 0.0
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(maximum, tl.max(block, 0))
        total = total * tl.exp(maximum - higher) + tl.sum(tl.exp(block - higher), 0)
        maximum = higher
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp(block - maximum) / total, mask=j < columns)

# %% softmax_online: masked lanes are 0
# says: a masked lane counts
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = float("-inf"), 0.0
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=0.0).to(tl.float32)
        higher = tl.maximum(maximum, tl.max(block, 0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(maximum - shift) + tl.sum(tl.exp(block - shift), 0)
        maximum = higher
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp(block - maximum) / total, mask=j < columns)

# %% softmax_online: three reads
# says: 2 and 1 will do
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = float("-inf"), 0.0
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        maximum = tl.maximum(maximum, tl.max(block, 0))
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp(block - maximum), 0)
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp(block - maximum) / total, mask=j < columns)

# %% softmax_online: program 0 does all rows
# says: load imbalance
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    if tl.program_id(0) == 0:
        for row in range(tl.num_programs(0)):
            maximum, total = float("-inf"), 0.0
            for first in range(0, columns, BLOCK):
                j = first + tl.arange(0, BLOCK)
                block = tl.load(x + row * x_stride + j, mask=j < columns, other=float("-inf")).to(tl.float32)
                higher = tl.maximum(maximum, tl.max(block, 0))
                shift = tl.where(higher == float("-inf"), 0.0, higher)
                total = total * tl.exp(maximum - shift) + tl.sum(tl.exp(block - shift), 0)
                maximum = higher
            for first in range(0, columns, BLOCK):
                j = first + tl.arange(0, BLOCK)
                block = tl.load(x + row * x_stride + j, mask=j < columns).to(tl.float32)
                tl.store(y + row * y_stride + j, tl.exp(block - maximum) / total, mask=j < columns)

# %% softmax_online: masked lanes hold no value
# says: loads masked-off elements without other=; their value is undefined
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = float("-inf"), 0.0
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        higher = tl.maximum(maximum, tl.max(block, 0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(maximum - shift) + tl.sum(tl.exp(block - shift), 0)
        maximum = higher
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp(block - maximum) / total, mask=j < columns)

# %% softmax_online: the scores parked in y
# says: y written 2
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = float("-inf"), 0.0
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(maximum, tl.max(block, 0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(maximum - shift) + tl.sum(tl.exp(block - shift), 0)
        maximum = higher
        tl.store(y + j, block, mask=j < columns)
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(y + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp(block - maximum) / total, mask=j < columns)

# %% softmax_online: the second loop ends a block early
# says: elements differ
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = float("-inf"), 0.0
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(maximum, tl.max(block, 0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(maximum - shift) + tl.sum(tl.exp(block - shift), 0)
        maximum = higher
    for first in range(0, columns - BLOCK, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp(block - maximum) / total, mask=j < columns)

# %% softmax_online: no maximum
# says: × -inf, blocks of 16 gave
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    total = 0.0
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        total += tl.sum(tl.exp(tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)), 0)
    for first in range(0, columns, BLOCK):
        j = first + tl.arange(0, BLOCK)
        block = tl.load(x + j, mask=j < columns).to(tl.float32)
        tl.store(y + j, tl.exp(block) / total, mask=j < columns)

# %% softmax_online: the first block only
# says: elements differ
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_backward: the sum forgotten
# says: row's sum is missing
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + lane
    weight = tl.load(y + place, mask=lane < columns, other=0.0).to(tl.float32)
    gradient = tl.load(y_gradient + place, mask=lane < columns, other=0.0).to(tl.float32)
    tl.store(x_gradient + place, weight * gradient, mask=lane < columns)

# %% softmax_backward: the diagonal alone
# says: Jacobian's diagonal
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + lane
    weight = tl.load(y + place, mask=lane < columns, other=0.0).to(tl.float32)
    gradient = tl.load(y_gradient + place, mask=lane < columns, other=0.0).to(tl.float32)
    tl.store(x_gradient + place, weight * (1 - weight) * gradient, mask=lane < columns)

# %% softmax_backward: the gradient's sum without y
# says: not the gradient
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + lane
    weight = tl.load(y + place, mask=lane < columns, other=0.0).to(tl.float32)
    gradient = tl.load(y_gradient + place, mask=lane < columns, other=0.0).to(tl.float32)
    tl.store(x_gradient + place, weight * (gradient - tl.sum(gradient, 0)), mask=lane < columns)

# %% softmax_backward: y and its gradient read twice
# says: two reads and a write a row
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + lane
    weight = tl.load(y + place, mask=lane < columns, other=0.0).to(tl.float32)
    gradient = tl.load(y_gradient + place, mask=lane < columns, other=0.0).to(tl.float32)
    mean = tl.sum(weight * gradient, 0)
    weight = tl.load(y + place, mask=lane < columns, other=0.0).to(tl.float32)
    gradient = tl.load(y_gradient + place, mask=lane < columns, other=0.0).to(tl.float32)
    tl.store(x_gradient + place, weight * (gradient - mean), mask=lane < columns)

# %% softmax_backward: masked lanes hold no value
# says: loads masked-off elements without other=; their value is undefined
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + lane
    weight = tl.load(y + place, mask=lane < columns).to(tl.float32)
    gradient = tl.load(y_gradient + place, mask=lane < columns).to(tl.float32)
    tl.store(x_gradient + place, weight * (gradient - tl.sum(weight * gradient, 0)), mask=lane < columns)

# %% softmax_backward: program 0 does all rows
# says: load imbalance
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        for row in range(tl.num_programs(0)):
            place = row * columns + lane
            weight = tl.load(y + place, mask=lane < columns, other=0.0).to(tl.float32)
            gradient = tl.load(y_gradient + place, mask=lane < columns, other=0.0).to(tl.float32)
            tl.store(x_gradient + place, weight * (gradient - tl.sum(weight * gradient, 0)), mask=lane < columns)

# %% softmax_backward: rows a block apart
# says: which has
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    place = tl.program_id(0) * BLOCK + lane
    weight = tl.load(y + place, mask=lane < columns, other=0.0).to(tl.float32)
    gradient = tl.load(y_gradient + place, mask=lane < columns, other=0.0).to(tl.float32)
    tl.store(x_gradient + place, weight * (gradient - tl.sum(weight * gradient, 0)), mask=lane < columns)

# %% softmax_backward: the sign
# says: elements differ
@triton.jit
def softmax_backward(y, y_gradient, x_gradient, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + lane
    weight = tl.load(y + place, mask=lane < columns, other=0.0).to(tl.float32)
    gradient = tl.load(y_gradient + place, mask=lane < columns, other=0.0).to(tl.float32)
    tl.store(x_gradient + place, weight * (tl.sum(weight * gradient, 0) - gradient), mask=lane < columns)

# %% softmax_masked_scaled: masked after the softmax
# says: before the softmax
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row, key = tl.program_id(0), tl.arange(0, BLOCK)
    scores = tl.load(x + row * keys + key, mask=key < keys, other=0.0).to(tl.float32) * scale
    scores = tl.where(key < keys, scores, float("-inf"))
    weight = tl.exp(scores - tl.max(scores, 0))
    weight = weight / tl.sum(weight, 0)
    weight = tl.where(key <= row % queries + keys - queries, weight, 0.0)
    tl.store(y + row * keys + key, weight, mask=key < keys)

# %% softmax_masked_scaled: masked scores are 0
# says: must be -inf
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row, key = tl.program_id(0), tl.arange(0, BLOCK)
    visible = key <= row % queries + keys - queries
    scores = tl.load(x + row * keys + key, mask=visible, other=0.0).to(tl.float32) * scale
    scores = tl.where(key < keys, scores, float("-inf"))
    weight = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row * keys + key, tl.where(visible, weight / tl.sum(weight, 0), 0.0), mask=key < keys)

# %% softmax_masked_scaled: not scaled
# says: the scale is missing
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row, key = tl.program_id(0), tl.arange(0, BLOCK)
    visible = key <= row % queries + keys - queries
    scores = tl.load(x + row * keys + key, mask=visible, other=float("-inf")).to(tl.float32)
    weight = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=key < keys)

# %% softmax_masked_scaled: -inf before the scaling
# says: mask after scaling
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row, key = tl.program_id(0), tl.arange(0, BLOCK)
    visible = key <= row % queries + keys - queries
    scores = tl.load(x + row * keys + key, mask=visible, other=float("-inf")).to(tl.float32) * scale
    weight = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=key < keys)

# %% softmax_masked_scaled: the first keys instead of the last queries
# says: last query sees all keys
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row, key = tl.program_id(0), tl.arange(0, BLOCK)
    visible = key <= row % queries
    scores = tl.load(x + row * keys + key, mask=visible, other=0.0).to(tl.float32) * scale
    scores = tl.where(visible, scores, float("-inf"))
    weight = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=key < keys)

# %% softmax_masked_scaled: a query does not see its own key
# says: elements differ
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row, key = tl.program_id(0), tl.arange(0, BLOCK)
    visible = key < row % queries + keys - queries
    scores = tl.load(x + row * keys + key, mask=visible, other=0.0).to(tl.float32) * scale
    scores = tl.where(visible, scores, float("-inf"))
    weight = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=key < keys)

# %% softmax_masked_scaled: the heads forgotten
# says: elements differ
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row, key = tl.program_id(0), tl.arange(0, BLOCK)
    visible = (key <= row + keys - queries) & (key < keys)
    scores = tl.load(x + row * keys + key, mask=visible, other=0.0).to(tl.float32) * scale
    scores = tl.where(visible, scores, float("-inf"))
    weight = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=key < keys)

# %% softmax_masked_scaled: nothing stored where the mask hides
# says: elements differ
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row, key = tl.program_id(0), tl.arange(0, BLOCK)
    visible = key <= row % queries + keys - queries
    scores = tl.load(x + row * keys + key, mask=visible, other=0.0).to(tl.float32) * scale
    scores = tl.where(visible, scores, float("-inf"))
    weight = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=visible)

# %% softmax_masked_scaled: program 0 does all rows
# says: load imbalance
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    key = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        for row in range(tl.num_programs(0)):
            visible = key <= row % queries + keys - queries
            scores = tl.load(x + row * keys + key, mask=visible, other=0.0).to(tl.float32) * scale
            scores = tl.where(visible, scores, float("-inf"))
            weight = tl.exp(scores - tl.max(scores, 0))
            tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=key < keys)

# %% softmax_masked_scaled: loads what the mask hides
# says: no more need be loaded
@triton.jit
def softmax_masked_scaled(x, y, queries, keys, scale, BLOCK: tl.constexpr):
    row, key = tl.program_id(0), tl.arange(0, BLOCK)
    scores = tl.load(x + row * keys + key, mask=key < keys, other=0.0).to(tl.float32) * scale
    scores = tl.where(key <= row % queries + keys - queries, scores, float("-inf"))
    weight = tl.exp(scores - tl.max(scores, 0))
    tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=key < keys)

# %% softmax_tile: one maximum for all rows
# says: own maximum
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values))
    tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 1)[:, None], mask=inside)

# %% softmax_tile: reduces over the columns
# says: reduce over axis 1
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0)[None, :])
    tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 0)[None, :], mask=inside)

# %% softmax_tile: the rows are not masked
# says: which has
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = column < columns
    values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 1)[:, None])
    tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 1)[:, None], mask=inside)

# %% softmax_tile: a row at a time
# says: at once it is
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for k in range(ROWS):
        row = tl.program_id(0) * ROWS + k
        inside = (column < columns) & (row < rows)
        values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
        numerator = tl.exp(values - tl.max(values, 0))
        tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 0), mask=inside)

# %% softmax_tile: program 0 does all rows
# says: load imbalance
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)[None, :]
    if tl.program_id(0) == 0:
        for first in range(0, rows, ROWS):
            row = first + tl.arange(0, ROWS)[:, None]
            inside = (row < rows) & (column < columns)
            values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
            numerator = tl.exp(values - tl.max(values, 1)[:, None])
            tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 1)[:, None], mask=inside)

# %% softmax_tile: a program's rows far apart
# says: at once it is
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) + tl.num_programs(0) * tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 1)[:, None])
    tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 1)[:, None], mask=inside)

# %% softmax_tile: masked lanes are 0
# says: elements differ
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    values = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 1)[:, None])
    tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 1)[:, None], mask=inside)
