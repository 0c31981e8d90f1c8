# %% eager_bytes: elements, not bytes
# says: itemsize bytes
# edit: itemsize * (reductions +  ->  (reductions +
# edit: itemsize * 2 * rows * columns  ->  2 * rows * columns

# %% eager_bytes: the vectors forgotten
# says: the vectors are missing
# edit: matrix, vector = rows * columns, rows  ->  matrix, vector = rows * columns, 0

# %% eager_bytes: the vectors written but never read
# says: read again
# edit: 2 * (matrix + vector + matrix)  ->  2 * (matrix + matrix)

# %% eager_bytes: reads only
# says: writes its result, too
# edit: reductions + with_vector + 2 * matrix  ->  5 * matrix + 2 * vector

# %% eager_bytes: the least leaves out the result
# says: two transfers
# edit: itemsize * 2 * rows * columns  ->  itemsize * rows * columns

# %% eager_bytes: the vectors as long as a row
# says: gave
# edit: matrix, vector = rows * columns, rows  ->  matrix, vector = rows * columns, columns

# %% add: mask left out
# says: which has
# - total = tl.load(x + element, mask=inside) + tl.load(y + element, mask=inside)
# - tl.store(out + element, total, mask=inside)
# + total = tl.load(x + element) + tl.load(y + element)
# + tl.store(out + element, total)

# %% add: mask left out of the store
# says: stores element
# edit: tl.store(out + element, total, mask=inside)  ->  tl.store(out + element, total)

# %% add: all programs do the first block
# says: where does program_id come in
# edit: tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  ->  tl.arange(0, BLOCK)

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
# edit: tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  ->  tl.arange(0, 2048)
# edit: element < n  ->  (element < n) & (tl.program_id(0) == 0)

# %% add: the store's indices are clamped, not masked
# says: loads masked-off elements without other=; their value is undefined
# - tl.store(out + element, total, mask=inside)
# + tl.store(out + tl.minimum(element, n - 1), total)

# %% add: blocks that overlap by one
# says: elements differ
# edit: tl.program_id(0) * BLOCK  ->  tl.program_id(0) * (BLOCK - 1)

# %% add: the mask lets one element too many in
# says: which has
# edit: element < n  ->  element <= n

# %% add: an atomic update
# says: two loads and a store a program
# - total = tl.load(x + element, mask=inside) + tl.load(y + element, mask=inside)
# - tl.store(out + element, total, mask=inside)
# + tl.store(out + element, tl.load(x + element, mask=inside), mask=inside)
# + tl.atomic_add(out + element, tl.load(y + element, mask=inside), mask=inside)

# %% softmax_rows: masked lanes are 0
# says: masked lane must not count
# edit: other=float("-inf")  ->  other=0.0

# %% softmax_rows: no maximum
# says: subtract the row's maximum
# edit: tl.exp(values - tl.max(values, 0))  ->  tl.exp(values)

# %% softmax_rows: the first element in place of the maximum
# says: subtract the row's maximum
# edit: tl.max(values, 0)  ->  tl.load(x + row * x_stride).to(tl.float32)

# %% softmax_rows: masked lanes hold no value
# says: loads masked-off elements without other=; their value is undefined
# edit: mask=inside, other=float("-inf")  ->  mask=inside

# %% softmax_rows: program 0 does all rows
# says: load imbalance
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        for row in range(tl.num_programs(0)):
            inside = lane < columns
            values = tl.load(x + row * x_stride + lane, mask=inside, other=float("-inf"))
            numerator = tl.exp(values.to(tl.float32) - tl.max(values.to(tl.float32), 0))
            tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=inside)

# %% softmax_rows: masked lanes are 0 in the maximum
# says: its own
# edit: other=float("-inf")  ->  other=0.0
# - numerator = tl.exp(values - tl.max(values, 0))
# + numerator = tl.where(inside, tl.exp(values - tl.max(values, 0)), 0.0)

# %% softmax_rows: masked lanes are a large negative number
# says: must be -inf
# edit: other=float("-inf")  ->  other=-1e4

# %% softmax_rows: the number of columns taken for the stride
# says: x_stride elements apart
# edit: row * x_stride  ->  row * columns
# edit: row * y_stride  ->  row * columns

# %% softmax_rows: the stride of x for y, as in the notes
# says: of y, which has
# edit: row * y_stride  ->  row * x_stride

# %% softmax_rows: mask left out of the load
# says: of x, which has
# edit: x_stride + column, mask=inside, other=float("-inf")  ->  x_stride + column

# %% softmax_rows: the sum forgotten
# says: divide by the sum
# edit: numerator / tl.sum(numerator, 0)  ->  numerator

# %% softmax_rows: loaded again for each use
# says: one load and one store
# - numerator = tl.exp(values - tl.max(values, 0))
# + again = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
# + numerator = tl.exp(values - tl.max(again, 0))

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
# edit: mask=inside, other=float("-inf")  ->  mask=inside, other=0.0

# %% softmax_online: three reads
# says: 2 and 1 will do
#       higher = tl.maximum(maximum, values)
# -     shift = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf would be NaN
# -     total = total * tl.exp(maximum - shift) + tl.exp(values - shift)
#       maximum = higher
#   top = tl.max(maximum, 0)
# - scale = 1 / tl.sum(total * tl.exp(maximum - top), 0)
# + for first in range(0, columns, BLOCK):
# +     inside = first + lane < columns
# +     values = tl.load(x_row + first + lane, mask=inside, other=float("-inf")).to(tl.float32)
# +     total += tl.exp(values - top)
# + scale = 1 / tl.sum(total, 0)

# %% softmax_online: program 0 does all rows
# says: load imbalance
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    if tl.program_id(0) == 0:
        for row in range(tl.num_programs(0)):
            maximum, total = float("-inf"), 0.0
            for first in range(0, columns, BLOCK):
                j = first + tl.arange(0, BLOCK)
                block = tl.load(x + row * x_stride + j, mask=j < columns, other=float("-inf"))
                block = block.to(tl.float32)
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
# edit: mask=inside, other=float("-inf")  ->  mask=inside

# %% softmax_online: the scores parked in y
# says: y written 2
#   maximum = higher
# + tl.store(y_row + first + lane, values, mask=inside)
# edit: tl.load(x_row + first + lane, mask=inside)  ->  tl.load(y_row + first + lane, mask=inside)

# %% softmax_online: the second loop ends a block early
# says: elements differ
# edit: for back in range(0, columns, BLOCK)  ->  for back in range(BLOCK, columns, BLOCK)

# %% softmax_online: no maximum
# says: × -inf, blocks of 16 gave
# - higher = tl.maximum(maximum, values)
# - shift = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf would be NaN
# - total = total * tl.exp(maximum - shift) + tl.exp(values - shift)
# - maximum = higher
# + total += tl.exp(values)
# ...
# - top = tl.max(maximum, 0)
# - scale = 1 / tl.sum(total * tl.exp(maximum - top), 0)
# + top, scale = 0.0, 1 / tl.sum(total, 0)

# %% softmax_online: the first block only
# says: elements differ
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf"))
    values = values.to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_backward: the sum forgotten
# says: row's sum is missing
# edit: weight * (gradient - mean)  ->  weight * gradient

# %% softmax_backward: the diagonal alone
# says: Jacobian's diagonal
# edit: weight * (gradient - mean)  ->  weight * (1 - weight) * gradient

# %% softmax_backward: the gradient's sum without y
# says: not the gradient
# edit: tl.sum(weight * gradient, 0)  ->  tl.sum(gradient, 0)

# %% softmax_backward: y and its gradient read twice
# says: two reads and a write a row
#   mean = tl.sum(weight * gradient, 0)  # y's elements are weights that add up to 1
# + weight = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
# + gradient = tl.load(y_gradient + place, mask=inside, other=0.0).to(tl.float32)

# %% softmax_backward: masked lanes hold no value
# says: loads masked-off elements without other=; their value is undefined
# edit (2 places): mask=inside, other=0.0  ->  mask=inside

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
            mean = tl.sum(weight * gradient, 0)
            tl.store(x_gradient + place, weight * (gradient - mean), mask=lane < columns)

# %% softmax_backward: rows a block apart
# says: which has
# edit: tl.program_id(0).to(tl.int64) * columns  ->  tl.program_id(0).to(tl.int64) * BLOCK

# %% softmax_backward: the sign
# says: elements differ
# edit: weight * (gradient - mean)  ->  weight * (mean - gradient)

# %% softmax_masked_scaled: masked after the softmax
# says: before the softmax
# edit: mask=visible, other=0.0  ->  mask=key < keys, other=0.0
# edit: tl.where(visible, scores, float("-inf"))  ->  tl.where(key < keys, scores, float("-inf"))
# edit: weight / tl.sum(weight, 0)  ->  tl.where(visible, weight / tl.sum(weight, 0), 0.0)

# %% softmax_masked_scaled: masked scores are 0
# says: must be -inf
# edit: tl.where(visible, scores, float("-inf"))  ->  tl.where(key < keys, scores, float("-inf"))
# edit: weight / tl.sum(weight, 0)  ->  tl.where(visible, weight / tl.sum(weight, 0), 0.0)

# %% softmax_masked_scaled: not scaled
# says: the scale is missing
# edit: .to(tl.float32) * scale  ->  .to(tl.float32)

# %% softmax_masked_scaled: -inf before the scaling
# says: mask after scaling
# edit: mask=visible, other=0.0  ->  mask=visible, other=float("-inf")
# - scores = tl.where(visible, scores, float("-inf"))  # after the scaling: -inf times -1 is inf

# %% softmax_masked_scaled: the first keys instead of the last queries
# says: last query sees all keys
# edit: key <= row % queries + keys - queries  ->  key <= row % queries

# %% softmax_masked_scaled: a query does not see its own key
# says: elements differ
# edit: key <= row % queries + keys - queries  ->  key < row % queries + keys - queries

# %% softmax_masked_scaled: the heads forgotten
# says: elements differ
# edit: key <= row % queries + keys - queries  ->  (key <= row + keys - queries) & (key < keys)

# %% softmax_masked_scaled: nothing stored where the mask hides
# says: elements differ
# edit: mask=key < keys  ->  mask=visible

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
# edit: mask=visible, other=0.0  ->  mask=key < keys, other=0.0

# %% softmax_tile: one maximum for all rows
# says: own maximum
# edit: tl.max(values, 1, keep_dims=True)  ->  tl.max(values)

# %% softmax_tile: reduces over the columns
# says: reduce over axis 1
# edit: tl.max(values, 1, keep_dims=True)  ->  tl.max(values, 0, keep_dims=True)
# edit: tl.sum(numerator, 1, keep_dims=True)  ->  tl.sum(numerator, 0, keep_dims=True)

# %% softmax_tile: the rows are not masked
# says: which has
# edit: (row < rows) & (column < columns)  ->  column < columns

# %% softmax_tile: a row at a time
# says: at once it is
@triton.jit
def softmax_tile(x, y, x_stride, y_stride, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for k in range(ROWS):
        row = tl.program_id(0) * ROWS + k
        inside = (column < columns) & (row < rows)
        values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf"))
        values = values.to(tl.float32)
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
            values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf"))
            numerator = tl.exp(values.to(tl.float32) - tl.max(values.to(tl.float32), 1)[:, None])
            numerator /= tl.sum(numerator, 1)[:, None]
            tl.store(y + row * y_stride + column, numerator, mask=inside)

# %% softmax_tile: a program's rows far apart
# says: at once it is
# - row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
# + row = tl.program_id(0) + tl.num_programs(0) * tl.arange(0, ROWS)[:, None]

# %% softmax_tile: masked lanes are 0
# says: elements differ
# edit: other=float("-inf")  ->  other=0.0
