# %% eager_bytes: elements, not bytes
# says: itemsize bytes
# edit: itemsize * (reductions +  ->  (reductions +
# edit: itemsize * 2 * rows * columns  ->  2 * rows * columns

# %% eager_bytes: the vectors forgotten
# says: the vectors are missing
# edit: matrix, vector = rows * columns, rows  ->  matrix, vector = rows * columns, 0

# %% eager_bytes: the vectors written but never read
# says: a later one reads it
# edit: 2 * (matrix + vector + matrix)  ->  2 * (matrix + matrix)

# %% eager_bytes: reads only
# says: also writes its result
# edit: reductions + with_vector + 2 * matrix  ->  5 * matrix + 2 * vector

# %% eager_bytes: the least leaves out the result
# says: two transfers
# edit: itemsize * 2 * rows * columns  ->  itemsize * rows * columns

# %% eager_bytes: the vectors as long as a row
# says: one number per row, not one per column
# edit: matrix, vector = rows * columns, rows  ->  matrix, vector = rows * columns, columns

# %% softmax_rows: masked lanes are 0
# says: masked lane must not count
# edit: other=float("-inf")  ->  other=0.0

# %% softmax_rows: no maximum
# says: overflows and e^-1000 is 0
# edit: tl.exp(values - tl.max(values, 0))  ->  tl.exp(values)

# %% softmax_rows: the first element in place of the maximum
# says: a row that rises from 0 to 8000
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
# says: a row that is -10,000 everywhere
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
# says: 22 loads, 11 stores
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
# says: the first block is all -inf
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
# says: a masked lane must not count
# edit: mask=inside, other=float("-inf")  ->  mask=inside, other=0.0

# %% softmax_online: three reads
# says: two reads and one write will do
#       higher = tl.maximum(maximum, values)
# -     shift = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - (-inf) would be NaN
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
# says: y is written 2 times
#   maximum = higher
# + tl.store(y_row + first + lane, values, mask=inside)
# edit: tl.load(x_row + first + lane, mask=inside)  ->  tl.load(y_row + first + lane, mask=inside)

# %% softmax_online: the second loop ends a block early
# says: elements differ
# edit: for back in range(0, columns, BLOCK)  ->  for back in range(BLOCK, columns, BLOCK)

# %% softmax_online: no maximum
# says: overflows and e^-1000 is 0
# - higher = tl.maximum(maximum, values)
# - shift = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - (-inf) would be NaN
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
# says: two reads and one write per row
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
# says: the sign is wrong
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
# says: sees its own key, too
# edit: key <= row % queries + keys - queries  ->  key < row % queries + keys - queries

# %% softmax_masked_scaled: the heads forgotten
# says: row r is query r % queries
# edit: key <= row % queries + keys - queries  ->  (key <= row + keys - queries) & (key < keys)

# %% softmax_masked_scaled: nothing stored where the mask hides
# says: y is 0: store that, too
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
# says: are visible
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
# says: at once, neighbouring rows need
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
# says: at once, neighbouring rows need
# - row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
# + row = tl.program_id(0) + tl.num_programs(0) * tl.arange(0, ROWS)[:, None]

# %% softmax_tile: masked lanes are 0
# says: a masked lane must not count
# edit: other=float("-inf")  ->  other=0.0

# %% eager_bytes: writes only
# says: also reads its inputs
# edit: reductions + with_vector + 2 * matrix  ->  3 * matrix + 2 * vector

# %% differences: mask left out
# says: which has
# edit: tl.load(x + at, mask=inside)  ->  tl.load(x + at)
# edit: - before, mask=inside)  ->  - before)

# %% differences: mask left out of the store
# says: stores element
# edit: - before, mask=inside)  ->  - before)

# %% differences: the element before the first is loaded
# says: loads element -1 of x
# edit: inside & (at > 0)  ->  inside

# %% differences: all programs do the first block
# says: where does program_id come in
# edit: tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  ->  tl.arange(0, BLOCK)

# %% differences: nothing before the first element of each block
# says: in the block of the program before
# edit: inside & (at > 0)  ->  inside & (at % BLOCK > 0)

# %% differences: the first element is compared with itself
# says: out[0] is x[0] - 0
# - before = tl.load(x + at - 1, mask=inside & (at > 0), other=0.0)
# + before = tl.load(x + tl.maximum(at - 1, 0), mask=inside)

# %% differences: the last element before the first
# says: the first element has none before it
# - before = tl.load(x + at - 1, mask=inside & (at > 0), other=0.0)
# + before = tl.load(x + (at + n - 1) % n, mask=inside)

# %% differences: the wrong way round
# says: subtract the element before, not from it
# edit: tl.load(x + at, mask=inside) - before  ->  before - tl.load(x + at, mask=inside)

# %% differences: a sum
# says: adds the element before
# edit: tl.load(x + at, mask=inside) - before  ->  tl.load(x + at, mask=inside) + before

# %% differences: masked lanes hold no value
# says: loads masked-off elements without other=; their value is undefined
# edit: mask=inside & (at > 0), other=0.0  ->  mask=inside & (at > 0)

# %% differences: an element at a time
# says: each of a whole block
@triton.jit
def differences(x, out, n, BLOCK: tl.constexpr):
    for k in range(BLOCK):
        i = tl.program_id(0) * BLOCK + k
        before = tl.load(x + i - 1, mask=(i < n) & (i > 0), other=0.0)
        tl.store(out + i, tl.load(x + i, mask=i < n) - before, mask=i < n)

# %% differences: the first program does everything
# says: load imbalance
@triton.jit
def differences(x, out, n, BLOCK: tl.constexpr):
    if tl.program_id(0) == 0:
        for first in range(0, n, BLOCK):
            i = first + tl.arange(0, BLOCK)
            before = tl.load(x + i - 1, mask=(i < n) & (i > 0), other=0.0)
            tl.store(out + i, tl.load(x + i, mask=i < n) - before, mask=i < n)

# %% differences: an atomic update
# says: atomic updates by
# + tl.atomic_add(out + at, 0.0 * before, mask=inside)
#   tl.store(out + at, tl.load(x + at, mask=inside) - before, mask=inside)

# %% differences: np in a kernel
# says: a kernel has no np
# edit: other=0.0  ->  other=np.zeros(1)

# %% softmax_rows: Triton's own softmax
# says: calls tl.softmax
# - numerator = tl.exp(values - tl.max(values, 0))
# - tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 0), mask=inside)
# + tl.store(y + row * y_stride + column, tl.softmax(values), mask=inside)

# %% softmax_rows: masked lanes are the least number of fp32
# says: may be larger than the row's
# edit: other=float("-inf")  ->  other=-3.4028234e38

# %% softmax_rows: masked lanes are -1e9
# says: may be larger than the row's
# edit: other=float("-inf")  ->  other=-1e9

# %% softmax_rows: a hundredth is added to the sum
# says: elements differ
# edit: tl.sum(numerator, 0)  ->  (tl.sum(numerator, 0) + 0.01)

# %% softmax_rows: the maximum begins at 0
# says: a row that is -10,000 everywhere
# edit: tl.max(values, 0)  ->  tl.maximum(tl.max(values, 0), 0.0)

# %% softmax_rows: the power without its base
# says: differ
# edit: tl.exp(values  ->  tl.exp2(values

# %% softmax_rows: a maximum of magnitudes
# says: softmax_rows: y of a row that
# edit: tl.max(values, 0)  ->  tl.max(tl.where(inside, tl.abs(values), 0.0), 0)

# %% merge: the sums added
# says: multiply it by e^(m - the new m)
# edit: s * np.exp(m - top) + t * np.exp(n - top)  ->  s + t

# %% merge: the factor inverted
# says: which is at most 1
# - return top, s * np.exp(m - top) + t * np.exp(n - top)
# + return top, s * np.exp(min(top - m, 700.0)) + t * np.exp(min(top - n, 700.0))

# %% merge: the right part is always rescaled, as if it were lower
# says: the smaller maximum
# edit: s * np.exp(m - top) + t * np.exp(n - top)  ->  s + t * np.exp(n - m)

# %% merge: NaN for two empty parts
# says: both parts are empty
# - if top == -np.inf:
# -     return top, 0.0

# %% merge: an empty part gives an empty row
# says: merge((-inf, 0.0), (1.0, 2.0)) gave
# edit: top == -np.inf  ->  min(m, n) == -np.inf

# %% merge: the maximum begins at 0
# says: merge((-inf, 0.0), (-inf, 0.0)) gave
# edit: top = max(m, n)  ->  top = max(m, n, 0.0)

# %% merge: the smaller maximum
# says: merge((2.0, 1.5), (3.0, 2.0)) gave
# edit: top = max(m, n)  ->  top = min(m, n)

# %% merge: by logarithms, with the sum left behind
# says: merge((2.0, 1.5), (3.0, 2.0)) gave
# - return top, s * np.exp(m - top) + t * np.exp(n - top)
# + return top + np.log(s * np.exp(m - top) + t * np.exp(n - top)), 1.0

# %% merge: no maximum: the powers themselves
# says: gave
# - return top, s * np.exp(m - top) + t * np.exp(n - top)
# + powers = [np.exp(min(each, 600.0)) for each in (m, n, top)]
# + return top, (s * powers[0] + t * powers[1]) / powers[2]

# %% softmax_online: the maximum begins at 0
# says: the maximum begins at -inf
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = 0.0, 0.0
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

# %% softmax_online: the maximum begins at -100
# says: the maximum begins at -inf
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    maximum, total = -100.0, 0.0
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

# %% softmax_online: each lane's maximum begins at 0
# says: the maximum begins at -inf
# edit: tl.full((BLOCK,), float("-inf"), tl.float32)  ->  tl.zeros((BLOCK,), tl.float32)

# %% softmax_online: each lane's maximum begins at -1e9
# says: the maximum begins at -inf
# edit: tl.full((BLOCK,), float("-inf"), tl.float32)  ->  tl.full((BLOCK,), -1e9, tl.float32)

# %% softmax_online: lanes of nothing but -inf
# says: some lanes see nothing but -inf
# edit: tl.where(higher == float("-inf")  ->  tl.where(tl.max(higher, 0) == float("-inf")

# %% softmax_online: the lanes' sums are added as they are
# says: elements differ
# edit: tl.sum(total * tl.exp(maximum - top), 0)  ->  tl.sum(total, 0)

# %% softmax_online: the factor inverted
# says: elements differ
# edit: total * tl.exp(maximum - shift)  ->  total * tl.exp(tl.minimum(shift - maximum, 80.0))

# %% softmax_online: the whole row in one wide load
# says: need not fit into the registers
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, 128)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf"))
    values = values.to(tl.float32)
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * y_stride + lane, numerator / tl.sum(numerator, 0), mask=lane < columns)

# %% softmax_online: Triton's own softmax of a wide block
# says: calls tl.softmax
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, 128)
    values = tl.load(x + row * x_stride + lane, mask=lane < columns, other=float("-inf"))
    tl.store(y + row * y_stride + lane, tl.softmax(values.to(tl.float32)), mask=lane < columns)

# %% softmax_masked_scaled: no maximum
# says: subtract the maximum of what the query sees
# edit: tl.exp(scores - tl.max(scores, 0))  ->  tl.exp(scores)

# %% softmax_masked_scaled: the maximum before the scaling
# says: a negative scale turns the order
# - scores = tl.load(x + row * keys + key, mask=visible, other=0.0).to(tl.float32) * scale
# - scores = tl.where(visible, scores, float("-inf"))  # after the scaling: -inf times -1 is inf
# - weight = tl.exp(scores - tl.max(scores, 0))
# + scores = tl.load(x + row * keys + key, mask=visible, other=float("-inf")).to(tl.float32)
# + weight = tl.where(visible, tl.exp((scores - tl.max(scores, 0)) * scale), 0.0)

# %% softmax_masked_scaled: a constant in place of the maximum
# says: softmax_masked_scaled: y of
# edit: tl.exp(scores - tl.max(scores, 0))  ->  tl.exp(scores - 20)

# %% softmax_masked_scaled: hidden scores are -1000
# says: any other number can be the largest
# edit: tl.where(visible, scores, float("-inf"))  ->  tl.where(visible, scores, -1000.0)

# %% softmax_masked_scaled: hidden scores are -1e4 before the scaling
# says: softmax_masked_scaled: y of
# edit: mask=visible, other=0.0  ->  mask=visible, other=-1e4
# - scores = tl.where(visible, scores, float("-inf"))  # after the scaling: -inf times -1 is inf

# %% softmax_masked_scaled: the maximum of what is hidden, too
# says: softmax_masked_scaled: y of
# edit: tl.max(scores, 0)  ->  tl.max(tl.where(visible, scores, 0.0), 0)

# %% softmax_masked_scaled: Triton's own softmax
# says: calls tl.softmax
# - weight = tl.exp(scores - tl.max(scores, 0))
# - tl.store(y + row * keys + key, weight / tl.sum(weight, 0), mask=key < keys)
# + tl.store(y + row * keys + key, tl.softmax(scores), mask=key < keys)

# %% softmax_tile: Triton's own softmax
# says: calls tl.softmax
# - numerator = tl.exp(values - tl.max(values, 1, keep_dims=True))
# - scale = 1 / tl.sum(numerator, 1, keep_dims=True)  # one division per row, not per element
# - tl.store(y + row * y_stride + column, numerator * scale, mask=inside)
# + tl.store(y + row * y_stride + column, tl.softmax(values, 1, keep_dims=True), mask=inside)

# %% softmax_tile: no maximum
# says: softmax_tile: y of
# edit: tl.exp(values - tl.max(values, 1, keep_dims=True))  ->  tl.exp(values)

# %% softmax_tile: one sum for all rows
# says: each row has its own sum
# edit: tl.sum(numerator, 1, keep_dims=True)  ->  tl.sum(numerator)

# %% softmax_tile: the maximum begins at 0
# says: softmax_tile: y of
# edit: tl.max(values, 1, keep_dims=True)  ->  tl.maximum(tl.max(values, 1, keep_dims=True), 0.0)

# %% softmax_tile: masked lanes are -1e9
# says: may be larger than the row's
# edit: other=float("-inf")  ->  other=-1e9

# %% test_softmax: random numbers near 0 only
# says: par is 18
def test_softmax(candidate):
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    want = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    assert np.allclose(candidate(x), want)

# %% test_softmax: nothing but the sums
# says: par is 18
def test_softmax(candidate):
    x = 100 * np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    assert np.allclose(candidate(x).sum(1), 1)

# %% test_softmax: refuses everything
# says: refuses a program that is right
def test_softmax(candidate):
    assert False

# %% test_softmax: too strict
# says: refuses a program that is right
# edit: rtol=1e-4, atol=1e-30  ->  rtol=0, atol=0

# %% test_softmax: wants NaN where a right program gives numbers
# says: refuses a program that is right
# - want = power / power.sum(1, keepdims=True)
# + want = np.exp(before) / np.exp(before).sum(1, keepdims=True)

# %% test_softmax: returns its verdict instead of raising
# says: a test returns nothing
def test_softmax(candidate):
    x = np.ones((2, 3), np.float32)
    return bool(np.allclose(candidate(x), 1 / 3))

# %% cross_entropy: the loss without the target's score
# says: the target's score is subtracted
# edit: top - tl.load(x_row + chosen).to(tl.float32) + tl.log(whole)  ->  top + tl.log(whole)

# %% cross_entropy: the maximum is not added back
# says: add m to its logarithm
# edit: top - tl.load(x_row + chosen)  ->  -tl.load(x_row + chosen)

# %% cross_entropy: the sign of the loss
# says: so it is positive
# edit: tl.store(loss + row, top - tl.load  ->  tl.store(loss + row, -top + tl.load
# edit: + tl.log(whole)  ->  - tl.log(whole)

# %% cross_entropy: nothing is subtracted at the target
# says: subtract 1 at the target.
# edit: tl.where(column == chosen, weight - 1, weight)  ->  weight

# %% cross_entropy: the target's gradient is 0
# says: not the target's own weight
# edit: weight - 1, weight  ->  0.0, weight

# %% cross_entropy: the sign of the gradient
# says: lowers the loss
# edit: column == chosen, weight - 1, weight  ->  column == chosen, 1 - weight, -weight

# %% cross_entropy: divided by the number of rows
# says: don't divide by the rows
# edit: + column, slope, mask  ->  + column, slope / tl.num_programs(0), mask

# %% cross_entropy: three reads
# says: two reads and one write will do
#   top = tl.max(maximum, 0)
# + for first in range(0, columns, BLOCK):
# +     values = tl.load(x_row + first + lane, mask=first + lane < columns, other=float("-inf"))
# +     top = tl.maximum(top, tl.max(values.to(tl.float32), 0))

# %% cross_entropy: no maximum
# says: cross_entropy: loss of 4 × 99
# edit: top = tl.max(maximum, 0)  ->  top = 0.0

# %% cross_entropy: the maximum begins at 0
# says: cross_entropy: loss of 4 × 99
# edit: tl.full((BLOCK,), float("-inf"), tl.float32)  ->  tl.zeros((BLOCK,), tl.float32)

# %% softmax_masked_scaled: hidden scores are -1e9
# says: any other number can be the largest
# edit: tl.where(visible, scores, float("-inf"))  ->  tl.where(visible, scores, -1e9)

# %% softmax_masked_scaled: the scale's magnitude
# says: scale -32.0
# edit: .to(tl.float32) * scale  ->  .to(tl.float32) * tl.abs(scale)

# %% softmax_masked_scaled: writes its scores back into x
# says: stores for
#   weight = tl.exp(scores - tl.max(scores, 0))
# + tl.store(x + row * keys + key, scores, mask=visible)

# %% softmax_rows: writes its powers into x, too
# says: 22 stores
#   numerator = tl.exp(values - tl.max(values, 0))
# + tl.store(x + row * x_stride + column, numerator, mask=inside)

# %% softmax_tile: writes its powers into x, too
# says: stores and 0 atomic
#   numerator = tl.exp(values - tl.max(values, 1, keep_dims=True))
# + tl.store(x + row * x_stride + column, numerator, mask=inside)

# %% softmax_backward: writes its products into y, too
# says: two reads and one write per row
#   mean = tl.sum(weight * gradient, 0)  # y's elements are weights that add up to 1
# + tl.store(y + place, weight * gradient, mask=inside)

# %% test_softmax: its tolerance hides small weights
# says: par is 18
def test_softmax(candidate):
    random = np.random.default_rng(0)
    x = random.standard_normal((5, 100)).astype(np.float32)
    x[0] *= 100
    x[1] -= 200
    x[2] += 1e4
    x[3, ::3] = -np.inf
    want = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    assert np.allclose(candidate(x), want / want.sum(1, keepdims=True), atol=1e-2)

# %% softmax_rows: x is zeroed, and y is right for zeros
# says: softmax_rows: y of
# - values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
# + tl.store(x + row * x_stride + column, tl.zeros((BLOCK,), tl.float32), mask=inside)
# + values = tl.where(inside, 0.0, float("-inf"))

# %% softmax_online: the sum is kept as a logarithm
# says: m + log(s) rounds the logarithm off
@triton.jit
def softmax_online(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * x_stride
    y += tl.program_id(0) * y_stride
    lse = float("-inf")
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        m = tl.max(v, 0)
        if m > float("-inf"):
            own = m + tl.log(tl.sum(tl.exp(v - m), 0))
            top = tl.maximum(lse, own)
            lse = top + tl.log(tl.exp(lse - top) + tl.exp(own - top))
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + j, mask=j < columns, other=float("-inf")).to(tl.float32)
        tl.store(y + j, tl.exp(v - lse), mask=j < columns)

# %% softmax_rows: the powers rounded to 16 bits
# says: softmax_rows: y of
# edit: numerator = tl.exp(values - tl.max(values, 0))  ->  numerator = tl.exp(values - tl.max(values, 0)).to(tl.float16).to(tl.float32)

# %% softmax_rows: powers of two, whose exponents are rounded in the row's format
# says: softmax_rows: y of
#   values = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
# + values = (values * 1.4426950408889634).to(x.dtype.element_ty).to(tl.float32)
# edit: tl.exp(values - tl.max(values, 0))  ->  tl.exp2(values - tl.max(values, 0))

# %% softmax_rows: the sum of the values, not of their powers
# says: softmax_rows: y of
# edit: numerator / tl.sum(numerator, 0)  ->  numerator / tl.sum(tl.where(inside, values, 0.0), 0)

# %% softmax_online: the second pass takes the last block's maximum
# says: softmax_online: y of
# edit: top = tl.max(maximum, 0)  ->  top = tl.max(values, 0)

# %% softmax_online: a number beyond the row is stored
# says: softmax_online
# edit: tl.store(y_row + first + lane, tl.exp(values - top) * scale, mask=inside)  ->  tl.store(y_row + first + lane, tl.exp(values - top) * scale)

# %% softmax_masked_scaled: the row of keys taken for the query
# says: softmax_masked_scaled: y of
# edit: row % queries + keys - queries  ->  row % keys + keys - queries

# %% softmax_masked_scaled: scaled twice
# says: softmax_masked_scaled: y of
# edit: scores = tl.where(visible, scores, float("-inf"))  ->  scores = tl.where(visible, scores * scale, float("-inf"))

# %% softmax_masked_scaled: stores a whole block
# says: softmax_masked_scaled
# edit: mask=key < keys  ->  mask=key < BLOCK

# %% softmax_tile: rows without gaps
# says: Rows of x are x_stride elements apart
# edit: x + row * x_stride  ->  x + row * columns

# %% softmax_tile: the mean of the sums of its rows
# says: softmax_tile: y of
# edit: scale = 1 / tl.sum(numerator, 1, keep_dims=True)  ->  scale = ROWS / tl.sum(tl.sum(numerator, 1, keep_dims=True), 0, keep_dims=True)

# %% softmax_backward: the mean in place of the sum
# says: softmax_backward: x_gradient
# edit: mean = tl.sum(weight * gradient, 0)  ->  mean = tl.sum(weight * gradient, 0) / columns

# %% softmax_backward: y's weight twice
# says: softmax_backward: x_gradient
# edit: weight * (gradient - mean)  ->  weight * weight * (gradient - mean)

# %% merge: the part with the larger maximum wins
# says: merge(
def merge(left, right):
    return max(left, right)

# %% merge: the sum before the maximum
# says: merge(
# edit: return top, s * np.exp(m - top) + t * np.exp(n - top)  ->  return s * np.exp(m - top) + t * np.exp(n - top), top

# %% merge: no part may be far below 0
# says: merge(
# edit: if top == -np.inf:  ->  if top < -1e3:

# %% eager_bytes: x is read twice at least
# says: read only once
# edit: itemsize * 2 * rows * columns  ->  itemsize * 3 * rows * columns

# %% differences: a block's first element is compared with the one after it
# says: differences: out of
# edit: x + at - 1, mask=inside & (at > 0)  ->  x + at - 1 + 2 * (at % BLOCK == 0), mask=inside & (at > 0) & (at + 1 < n)

# %% test_softmax: accepts whatever adds up and is positive
# says: 18
def test_softmax(candidate):
    x = np.random.default_rng(0).standard_normal((6, 100)).astype(np.float32) * 30
    y = candidate(x.copy())
    assert (y >= 0).all() and np.allclose(y.sum(1), 1, atol=1e-3)

# %% row_sums: what shares the row's first 16 bytes is counted
# says: first 16 bytes may hold elements of the row before
# edit: inside = (at >= begin) & (at < begin + columns)  ->  inside = at < begin + columns

# %% row_sums: what shares the row's last 16 bytes is counted
# says: last 16 bytes may hold elements of the next row
# edit: inside = (at >= begin) & (at < begin + columns)  ->  inside = at >= begin

# %% row_sums: begins with element 0
# says: begins at element `start`
# edit: begin = start + tl.program_id(0) * columns  ->  begin = tl.program_id(0) * columns

# %% row_sums: element by element
# says: 16 bytes per thread
@triton.jit
def row_sums(x, out, start, columns, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    values = tl.load(x + start + tl.program_id(0) * columns + lane, mask=lane < columns, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(values, 0))

# %% row_sums: the load's mask ends within four elements
# says: 16 bytes per thread
# edit: end = tl.cdiv(begin + columns, 4) * 4  ->  end = begin + columns

# %% row_sums: more of the next row than it needs
# says: bytes loaded
# edit: end = tl.cdiv(begin + columns, 4) * 4  ->  end = tl.minimum(tl.cdiv(begin + columns, 32) * 32, (start + tl.num_programs(0) * columns + 3) // 4 * 4)

# %% merge: the larger of the two sums
# says: add the two rescaled sums
# edit: s * np.exp(m - top) + t * np.exp(n - top)  ->  max(s * np.exp(m - top), t * np.exp(n - top))

# %% merge: powers of two
# says: is e, not 2
# edit: s * np.exp(m - top) + t * np.exp(n - top)  ->  s * 2.0 ** (m - top) + t * 2.0 ** (n - top)

# %% merge: the sum before the maximum, as a pair of e to the sum
# says: not m plus its logarithm
# edit: return top, s * np.exp(m - top) + t * np.exp(n - top)  ->  return top, top + np.log(s * np.exp(m - top) + t * np.exp(n - top))

# %% merge: an empty row has a sum of 1
# says: merge((-inf, 0.0), (-inf, 0.0)) gave
# edit: return top, 0.0  ->  return top, 1.0

# %% softmax_rows: multiplied by log2(e) before the maximum is known
# says: subtract the maximum first, then multiply
# edit: .to(tl.float32)  ->  .to(tl.float32) * 1.4426950408889634
# edit: tl.exp(  ->  tl.exp2(

# %% softmax_rows: the mean in place of the maximum
# says: softmax_rows: y of
# edit: tl.max(values, 0)  ->  tl.sum(tl.where(inside, values, 0.0), 0) / columns

# %% softmax_rows: differences below -20 are cut
# says: softmax_rows: y of
# edit: values - tl.max(values, 0)  ->  tl.maximum(values - tl.max(values, 0), -20.0)

# %% softmax_masked_scaled: divided by the scale
# says: don't divide by it
# edit: .to(tl.float32) * scale  ->  .to(tl.float32) / scale

# %% softmax_backward: the difference alone
# says: multiplied by its own y
# edit: weight * (gradient - mean)  ->  gradient - mean

# %% cross_entropy: the logarithm to base 2
# says: the natural logarithm
# edit: tl.log(whole)  ->  tl.log2(whole)

# %% cross_entropy: -1 at the target
# says: its weight minus 1, not -1
# edit: tl.where(column == chosen, weight - 1, weight)  ->  tl.where(column == chosen, -1.0, weight)

# %% row_sums: begins at a rest that the compiler does not see
# says: write n // 4 * 4
# edit: begin // 4 * 4  ->  begin - begin % 4

# %% eager_bytes: exp moves nothing
# says: exp is missing
# edit: reductions + with_vector + 2 * matrix  ->  reductions + with_vector

# %% differences: program p begins with element p
# says: begins with element p * BLOCK
# edit: tl.program_id(0) * BLOCK  ->  tl.program_id(0)

# %% softmax_rows: the maximum is subtracted from the power
# says: inside of exp
# edit: tl.exp(values - tl.max(values, 0))  ->  tl.exp(values) - tl.max(values, 0)

# %% softmax_rows: divided, and rounded to bf16
# says: as if rounded to 16 bits
# edit: numerator / tl.sum(numerator, 0)  ->  (numerator / tl.sum(numerator, 0)).to(tl.bfloat16)

# %% softmax_rows: returned, not stored
# says: nothing was stored
# - tl.store(y + row * y_stride + column, numerator / tl.sum(numerator, 0), mask=inside)
# + return numerator / tl.sum(numerator, 0)

# %% merge: each sum by the other part's factor
# says: these are swapped
# edit: s * np.exp(m - top) + t * np.exp(n - top)  ->  s * np.exp(n - top) + t * np.exp(m - top)

# %% softmax_online: the second pass without the maximum
# says: subtracts the maximum, too
# edit: tl.exp(values - top) * scale  ->  tl.exp(values) * scale

# %% softmax_online: the sum of the last block
# says: the last block alone
# edit: total * tl.exp(maximum - shift) + tl.exp(values - shift)  ->  tl.exp(values - shift)

# %% softmax_masked_scaled: the head taken for the query
# says: r // queries is its head
# edit: row % queries  ->  row // queries

# %% softmax_masked_scaled: the future is seen, not the past
# says: what comes after it
# edit: key <= row % queries + keys - queries  ->  (key >= row % queries + keys - queries) & (key < keys)

# %% softmax_tile: program p begins with row p
# says: begins with row p * ROWS
# edit: tl.program_id(0).to(tl.int64) * ROWS  ->  tl.program_id(0).to(tl.int64)

# %% softmax_tile: a maximum per row without its axis
# says: goes with the tile as a column
# edit: tl.max(values, 1, keep_dims=True)  ->  tl.max(values, 1)

# %% softmax_backward: the row's sum without y
# says: Both terms are multiplied
# edit: weight * (gradient - mean)  ->  weight * gradient - mean

# %% cross_entropy: the first row's target for all
# says: a target of its own
# edit: tl.load(target + row)  ->  tl.load(target)

# %% cross_entropy: the logarithm of a weight that may be 0
# says: subtract before you take the logarithm
# edit: top - tl.load(x_row + chosen).to(tl.float32) + tl.log(whole)  ->  -tl.log(tl.exp(tl.load(x_row + chosen).to(tl.float32) - top) / whole)

# %% row_sums: the columns rounded up, not the row's end
# says: these rows end too early
# edit: end = tl.cdiv(begin + columns, 4) * 4  ->  end = begin // 4 * 4 + tl.cdiv(columns, 4) * 4

# %% row_sums: begins at a number whose last bits are cut off
# says: not n - n % 4 or n & -4
# edit: begin // 4 * 4  ->  (begin & -4)

# %% row_sums: the row is read by atomic updates, one element at a time
# says: row_sums makes
@triton.jit
def row_sums(x, out, start, columns, BLOCK: tl.constexpr):
    p, j = tl.program_id(0), tl.arange(0, BLOCK)
    row = tl.atomic_add(x + start + p * columns + j, tl.zeros((BLOCK,), tl.float32), mask=j < columns)
    tl.store(out + p, tl.sum(tl.where(j < columns, row, 0.0), 0))

# %% test_softmax: the program's text is read, and a class of its own has the same names
# says: looks at a program's text (inspect, linecache)
import inspect
class Mine:
    getsource = linecache = 1
def test_softmax(candidate, kind=Mine):
    assert "max" in "".join(inspect.linecache.getlines("<program>"))

# %% softmax_rows: stores zeros up to the next row
# says: y's columns beyond its rows
# edit: numerator / tl.sum(numerator, 0), mask=inside  ->  numerator / tl.sum(numerator, 0), mask=column < y_stride
