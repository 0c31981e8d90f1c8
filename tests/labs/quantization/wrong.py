# %% decode: subnormals forgotten
# says: no leading 1
def decode(codes, format):
    exponent_bits, fraction_bits, top = format
    fraction = codes & (2**fraction_bits - 1)
    exponent = codes >> fraction_bits & (2**exponent_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    value = np.ldexp((fraction + 2**fraction_bits).astype(float), exponent - bias - fraction_bits)
    return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value)

# %% decode: a subnormal has the exponent 0 - bias
# says: 1 - bias, not 0 - bias
def decode(codes, format):
    exponent_bits, fraction_bits, top = format
    fraction = codes & (2**fraction_bits - 1)
    exponent = codes >> fraction_bits & (2**exponent_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    significand = fraction + np.where(exponent > 0, 2**fraction_bits, 0)
    value = np.ldexp(significand.astype(float), exponent - bias - fraction_bits)
    return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value)

# %% decode: e4m3fn given infinities
# says: e4m3fn has no infinity
# - largest = exponent == 2**exponent_bits - 1
# - if top == "infinity":
# -     value = np.where(largest, np.where(fraction == 0, np.inf, np.nan), value)
# - if top == "nan":
# -     value = np.where(largest & (fraction == 2**fraction_bits - 1), np.nan, value)
# + special = np.where(fraction == 0, np.inf, np.nan)
# + value = np.where(exponent == 2**exponent_bits - 1, special, value)

# %% decode: no special values at all
# says: NaN here
# - largest = exponent == 2**exponent_bits - 1
# - if top == "infinity":
# -     value = np.where(largest, np.where(fraction == 0, np.inf, np.nan), value)
# - if top == "nan":
# -     value = np.where(largest & (fraction == 2**fraction_bits - 1), np.nan, value)

# %% encode: halves away from zero
# says: not away from zero
# - steps = np.rint(np.ldexp(magnitude, fraction_bits - exponent)).astype(np.int64)  # ties to even
# + steps = np.floor(np.ldexp(magnitude, fraction_bits - exponent) + 0.5).astype(np.int64)

# %% encode: subnormals flushed to zero
# says: subnormal codes
#   magnitude = np.where(np.isnan(values), 0, np.minimum(np.abs(values), 2.0 ** (bias + 2)))
# + magnitude = np.where(magnitude < 2.0 ** (1 - bias), 0, magnitude)

# %% encode: e4m3fn given infinities
# says: what is too large becomes 448
# edit: "nan": 2  ->  "nan": 2**fraction_bits

# %% encode: always saturates
# says: e5m2 has infinity
# edit: "infinity": 2**fraction_bits  ->  "infinity": 2**fraction_bits + 1

# %% encode: the carry of the fraction is dropped
# says: goes into the exponent
# - codes = np.minimum(steps + (exponent + bias - 1 << fraction_bits), largest_code)
# + field = exponent + bias - (magnitude < 2.0 ** (1 - bias))
# + codes = np.minimum((steps & (2**fraction_bits - 1)) + (field << fraction_bits), largest_code)

# %% encode: the exponent of 0 as frexp gives it
# says: np.frexp says 0
# - exponent = np.frexp(np.maximum(magnitude, 2.0 ** (1 - bias)))[1].astype(np.int64) - 1
# + exponent = np.maximum(np.frexp(magnitude)[1].astype(np.int64) - 1, 1 - bias)

# %% affine_parameters: signed range off by one
# says: begin at -2^(n-1)
# - q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
# + q_min, q_max = -(2 ** (bits - 1)) - 1, 2 ** (bits - 1) - 1

# %% affine_parameters: zero-point cut off instead of rounded
# says: not cut off
# edit: torch.round(q_min - low / scale)  ->  (q_min - low / scale)

# %% affine_parameters: zero-point not rounded at all
# says: float32, not torch.int32
# edit: torch.round(q_min - low / scale).to(torch.int32)  ->  q_min - low / scale
# edit: torch.round(values / scale) + zero_point  ->  torch.round(values / scale + zero_point)

# %% affine_parameters: scale from one side only
# says: one side of the range
# - q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
# - low, high = low.clamp(max=0), high.clamp(min=0)
# - scale = torch.where(high > low, (high - low) / (q_max - q_min), 1.0)
# - return scale, torch.round(q_min - low / scale).to(torch.int32)
# + scale = high / (2 ** (bits - 1) - 1)
# + return scale, torch.round(-(2 ** (bits - 1)) - low / scale).to(torch.int32)

# %% affine_parameters: the codes wrap around
# says: gets the code at its end
# - codes = torch.round(values / scale) + zero_point
# - return codes.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)
# + return (torch.round(values / scale) + zero_point).to(torch.int32).to(torch.int8)

# %% affine_parameters: dequantize subtracts in int8
# says: widen the codes first
# edit: codes.to(torch.int32)  ->  codes

# %% affine_parameters: a range without 0
# says: widen them first
# - low, high = low.clamp(max=0), high.clamp(min=0)

# %% affine_parameters: dequantize scales before it subtracts
# says: then scale
# edit: scale * (codes.to(torch.int32) - zero_point)  ->  scale * codes.to(torch.int32) - zero_point

# %% quantize_groups: groups that straddle rows
# says: a group ends with its row
def quantize_groups(weight, bits, group):
    rows, columns = weight.shape
    pieces = -(-columns // group)
    run_on = F.pad(weight.flatten(), (0, rows * pieces * group - weight.numel())).view(-1, group)
    scales = run_on.abs().amax(1) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(run_on / scales[:, None]).to(torch.int8)
    return codes.flatten()[:weight.numel()].view(rows, columns), scales.view(rows, pieces)


def dequantize_groups(codes, scales, group):
    wide = scales.flatten().repeat_interleave(group)[:codes.numel()]
    return (codes.flatten() * wide).view(codes.shape)

# %% quantize_groups: a group of zeros divides by zero
# says: a scale of 0 divides by zero
# - scales = torch.where(scales > 0, scales, 1.0)

# %% quantize_groups: one code too many
# says: largest code, 2^(n-1) - 1
# edit: groups.abs().amax(2) / (2 ** (bits - 1) - 1)  ->  groups.abs().amax(2) / 2 ** (bits - 1)
# - codes = torch.round(groups / scales[:, :, None]).to(torch.int8)
# + codes = torch.round(groups / scales[:, :, None])
# + codes = codes.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)

# %% quantize_groups: codes cut off instead of rounded
# says: not the nearest
# edit: torch.round(groups / scales[:, :, None])  ->  (groups / scales[:, :, None])

# %% quantize_groups: the largest weight instead of the largest magnitude
# says: weights below 0 count
# edit: groups.abs().amax  ->  groups.amax

# %% integer_matmul: the Z_W Z_X term forgotten
# says: K Z_W Z_X is missing
# - return w.shape[1] * w_zero * x_zero - x_zero * w.sum(1, dtype=torch.int32)
# + return -x_zero * w.sum(1, dtype=torch.int32)

# %% integer_matmul: Z_W Z_X taken once
# says: take it K times
# edit: w.shape[1] * w_zero  ->  w_zero

# %% requantize: a shift without rounding
# says: a right shift rounds down
# - scaled = sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift
# - return (scaled + zero_point).clamp(-128, 127).to(torch.int8)
# + return ((sums.to(torch.int64) * m >> shift) + zero_point).clamp(-128, 127).to(torch.int8)

# %% requantize: the zero-point added before the scaling
# says: add it after the shift
# - scaled = sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift
# - return (scaled + zero_point).clamp(-128, 127).to(torch.int8)
# + scaled = (sums.to(torch.int64) + zero_point) * m + 2 ** (shift - 1) >> shift
# + return scaled.clamp(-128, 127).to(torch.int8)

# %% requantize: codes wrap around
# says: wrapped around
# - scaled = sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift
# - return (scaled + zero_point).clamp(-128, 127).to(torch.int8)
# + return ((sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift) + zero_point).to(torch.int8)

# %% requantize: m of 15 bits
# says: not from 2**30
def fixed_point(multiplier):
    return round(multiplier * 2**15), 15


def requantize(sums, m, shift, zero_point):
    scaled = sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift
    return (scaled + zero_point).clamp(-128, 127).to(torch.int8)

# %% requantize: m cut off instead of rounded
# says: round m to nearest
# - m = round(multiplier * 2**shift)
# - return (m, shift) if m < 2**31 else (2**30, shift - 1)
# + return int(multiplier * 2**shift), shift

# %% requantize: in floats, ties to even
# says: a tie goes upwards
# - scaled = sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift
# + scaled = torch.round(sums.double() * m / 2**shift).to(torch.int64)

# %% calibrated_range: the average starts with zero
# says: not with 0
def calibrated_range(batches, method):
    every = torch.cat([batch.flatten() for batch in batches])
    if method == "percentile":
        return tuple(torch.quantile(every, torch.tensor([0.001, 0.999])).tolist())
    if method == "minmax":
        return every.min().item(), every.max().item()
    low = high = 0.0
    for batch in batches:
        low, high = 0.9 * low + 0.1 * batch.min().item(), 0.9 * high + 0.1 * batch.max().item()
    return low, high

# %% calibrated_range: percentiles averaged over the batches
# says: percentile
# -     every = torch.cat([batch.flatten() for batch in batches])
# -     return tuple(torch.quantile(every, torch.tensor([0.001, 0.999])).tolist())
# - lows = [batch.min().item() for batch in batches]
# - highs = [batch.max().item() for batch in batches]
# +     ends = [torch.quantile(batch.flatten(), torch.tensor([0.001, 0.999])) for batch in batches]
# +     return tuple(torch.stack(ends).mean(0).tolist())
# + lows = [batch.min().item() for batch in batches]
# + highs = [batch.max().item() for batch in batches]
# edit: zip(lows[1:], highs[1:], strict=True)  ->  zip(lows[1:], highs[1:])

# %% calibrated_range: a tenth of the old range
# says: nine tenths of the old
# - low, high = 0.9 * low + 0.1 * batch_low, 0.9 * high + 0.1 * batch_high
# + low, high = 0.1 * low + 0.9 * batch_low, 0.1 * high + 0.9 * batch_high

# %% calibrated_range: a tenth for a tenth of a percent
# says: is the quantile 0.001
# edit: torch.tensor([0.001, 0.999])  ->  torch.tensor([0.1, 0.9])

# %% int4_matvec_kernel: the 8 is left in
# says: take the 8 off
# - products -= (8 * 2.0**-49) * x_sum[None, :]

# %% int4_matvec_kernel: eight neighbours in a word
# says: another column's code
# edit: cell // WORDS * (8 * WORDS) + cell % WORDS  ->  cell * 8
# edit: columns + (4 * half + i) * WORDS  ->  columns + 4 * half + i

# %% int4_matvec_kernel: the first group's scale for all
# says: first group's scale
# edit: row[:, None] * GROUPS + lane[None, :] // (WORDS // 4)  ->  row[:, None] * GROUPS

# %% two_level_scales: signed integers
# says: unsigned
# edit: 2**bits  ->  2 ** (bits - 1)

# %% two_level_scales: one gamma for all rows
# says: each row has its own gamma
# - gamma = scales.amax(1, keepdim=True) / (2**bits - 1)
# + gamma = (scales.max() / (2**bits - 1)).expand(len(scales), 1).clone()

# %% two_level_scales: small scales become 0
# says: erases its group
# edit: torch.round(scales / gamma).clamp(min=1).to  ->  torch.round(scales / gamma).to

# %% kmeans_codebook: a single round
# says: repeat until no value changes its entry
def kmeans_codebook(values, bits):
    flat = values.flatten()
    codebook = torch.linspace(flat.min(), flat.max(), 2**bits)
    entries = (flat[:, None] - codebook).abs().argmin(1)
    return codebook, entries.view_as(values)


def codebook_gradient(gradient, entries, size):
    return torch.zeros(size).index_add(0, entries.flatten(), gradient.flatten())

# %% kmeans_codebook: the mean of the gradients
# says: not their mean
# - return torch.zeros(size).index_add(0, entries.flatten(), gradient.flatten())
# + counts = torch.bincount(entries.flatten(), minlength=size).clamp(min=1)
# + return torch.zeros(size).index_add(0, entries.flatten(), gradient.flatten()) / counts

# %% kmeans_codebook: the last gradient wins
# says: all of them count
# - sums = codebook_gradient(flat, entries, 2**bits)
# - counts = codebook_gradient(torch.ones_like(flat), entries, 2**bits)
# + sums = torch.zeros(2**bits).index_add(0, entries, flat)
# + counts = torch.bincount(entries, minlength=2**bits)
# ...
# - return torch.zeros(size).index_add(0, entries.flatten(), gradient.flatten())
# + result = torch.zeros(size)
# + result[entries.flatten()] = gradient.flatten()
# + return result

# %% kmeans_codebook: entries without values become 0
# says: stays where it is
# edit: torch.where(counts > 0, sums / counts, codebook)  ->  sums / counts.clamp(min=1)

# %% decode: zero without its sign
# says: np.signbit(decode
# - return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value)
# + return value * (1 - 2 * (codes >> exponent_bits + fraction_bits & 1)) + 0.0

# %% decode: PyTorch's conversions, and rules for a single small format
# says: decode uses what is not allowed here (view)
def decode(codes, format):
    for dtype, known in ((torch.float16, (5, 10, "infinity")), (torch.bfloat16, (8, 7, "infinity"))):
        if format == known:
            return torch.from_numpy(codes.astype("uint16")).view(dtype).double().numpy()
    for dtype, known in ((torch.float8_e5m2, (5, 2, "infinity")), (torch.float8_e4m3fn, (4, 3, "nan"))):
        if format == known:
            return torch.from_numpy(codes.astype("uint8")).view(dtype).double().numpy()
    if format == (8, 23, "infinity"):
        return codes.astype("uint32").view("float32").astype(float)
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return np.where(codes & 8, -table[codes & 7], table[codes & 7])

# %% encode: by way of float32
# says: rounded twice
#   exponent_bits, fraction_bits, top = format
# + values = values.astype(np.float32).astype(float)

# %% encode: infinity in a finite format becomes 0
# says: what is too large becomes 6
#   exponent_bits, fraction_bits, top = format
# + values = np.where(np.isinf(values) & (top == "finite"), 0, values)

# %% encode: zero without its sign
# says: sign is kept
# edit: np.where(np.signbit(values), sign, 0)  ->  np.where(values < 0, sign, 0)

# %% encode: PyTorch's conversions, and the smallest distance for small formats
# says: encode
def encode(values, format):
    for dtype, known in ((torch.float16, (5, 10, "infinity")), (torch.bfloat16, (8, 7, "infinity"))):
        if format == known:
            return torch.from_numpy(values).to(dtype).view(torch.uint16).numpy().astype(np.int64)
    for dtype, known in ((torch.float8_e5m2, (5, 2, "infinity")), (torch.float8_e4m3fn, (4, 3, "nan"))):
        if format == known:
            return torch.from_numpy(values).to(dtype).view(torch.uint8).numpy().astype(np.int64)
    numbers = decode(np.arange(2 ** (format[0] + format[1])), format)
    distances = np.abs(np.abs(values)[:, None] - np.nan_to_num(numbers, nan=np.inf))
    return distances.argmin(1) + np.where(np.signbit(values), 2 ** (format[0] + format[1]), 0)

# %% affine_parameters: a small step becomes 1
# says: affine_parameters(
# edit: torch.where(high > low, (high - low) / (q_max - q_min), 1.0)  ->  torch.where(high - low > 1e-3, (high - low) / (q_max - q_min), 1.0)

# %% affine_parameters: the zero-point must be a tensor
# says: 'int' object has no attribute
# edit: torch.round(values / scale) + zero_point  ->  torch.round(values / scale) + zero_point.float()

# %% quantize_groups: small scales become a thousandth
# says: scales of
# edit: torch.where(scales > 0, scales, 1.0)  ->  torch.where(scales > 0, scales.clamp(min=1e-3), 1.0)

# %% quantize_groups: scales not counted
# says: the scales are missing
# - return bits + scales * scale_bits / columns
# + return float(bits)

# %% quantize_groups: the scale of the shorter group forgotten
# says: shorter group has a scale, too
# edit: scales = -(-columns // group)  ->  scales = columns // group

# %% quantize_groups: the scale of the shorter group in proportion
# says: scale of a shorter group
# - return bits + scales * scale_bits / columns
# + return bits + scale_bits / group

# %% test_quantize: accepts everything
# says: refuses 0 of 14 wrong programs
def test_quantize(candidate):
    candidate(torch.randn(4, 8), 4, 4)

# %% test_quantize: refuses everything
# says: refuses a program that is right
def test_quantize(candidate):
    assert False, "wrong"

# %% test_quantize: only a whole number of groups of normal weights
# says: par is 11
def test_quantize(candidate):
    weight = torch.randn(4, 12)
    codes, scales = candidate(weight, 4, 4)
    want = weight.view(4, 3, 4).abs().amax(2) / 7
    assert torch.allclose(scales, want)
    assert ((codes.view(4, 3, 4) * scales[:, :, None] - weight.view(4, 3, 4)).abs() <= 0.51 * want[:, :, None]).all()

# %% test_quantize: compares with one own answer, bit by bit
# says: refuses a program that is right
def test_quantize(candidate):
    generator = torch.Generator().manual_seed(0)
    for columns, group, bits in ((12, 4, 4), (10, 4, 8), (7, 9, 3), (64, 16, 5)):
        weight = torch.randn(40, columns, generator=generator)
        codes, scales = candidate(weight.clone(), bits, group)
        own_codes, own_scales = quantize_groups(weight, bits, group)
        assert torch.equal(scales, own_scales) and torch.equal(codes, own_codes)

# %% test_quantize: returns a verdict
# says: a test returns nothing
def test_quantize(candidate):
    codes, scales = candidate(torch.randn(4, 8), 4, 4)
    return codes.dtype == torch.int8

# %% equalised: the bias stays
# says: divide it, too
# edit: bias / factor, outgoing  ->  bias.clone(), outgoing

# %% equalised: the square root is missing
# says: square root
# edit: (row / column).sqrt()  ->  row / column

# %% equalised: multiplied and divided the other way round
# says: divide the incoming weights
# - return incoming / factor[:, None], bias / factor, outgoing * factor
# + return incoming * factor[:, None], bias * factor, outgoing / factor

# %% equalised: a unit without outputs gets infinite weights
# says: equalised([[-8
# edit: torch.where((row > 0) & (column > 0), (row / column).sqrt(), 1.0)  ->  (row / column).sqrt()

# %% equalised: each row to 1
# says: meet in the middle
# edit: (row / column).sqrt()  ->  row

# %% equalised: in place
# says: the arguments of equalised
# - return incoming / factor[:, None], bias / factor, outgoing * factor
# + incoming /= factor[:, None]
# + bias /= factor
# + outgoing *= factor
# + return incoming, bias, outgoing

# %% equalised: one factor for all units
# says: equalised([[-8
# - row, column = incoming.abs().amax(1), outgoing.abs().amax(0)
# + row, column = incoming.abs().max().expand(len(bias)), outgoing.abs().max().expand(len(bias))

# %% integer_matmul: the columns of x forgotten
# says: each column of x is missing
# - return products - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]
# + return products + terms[:, None]

# %% integer_matmul: the columns of x added
# says: is added; subtract it
# edit: products - w_zero  ->  products + w_zero

# %% integer_matmul: column sums in int8
# says: column sums of x overflowed
# edit: x.sum(0, dtype=torch.int32)  ->  x.sum(0, dtype=torch.int8).to(torch.int32)

# %% integer_matmul: row sums in int8
# says: row sums of w overflowed
# edit: w.sum(1, dtype=torch.int32)  ->  w.sum(1, dtype=torch.int8).to(torch.int32)

# %% integer_matmul: the row sums added
# says: each row of w is subtracted
# edit: x_zero - x_zero * w.sum  ->  x_zero + x_zero * w.sum

# %% requantize: in float64
# says: stay in integers
# - scaled = sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift
# + scaled = torch.floor(sums.double() * (m / 2**shift) + 0.5).to(torch.int64)

# %% requantize: in float32
# says: stay in integers
# - scaled = sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift
# + scaled = torch.floor(sums.float() * (m / 2**shift) + 0.5).to(torch.int64)

# %% calibrated_range: the nearest value, not interpolated
# says: interpolate
# - return tuple(torch.quantile(every, torch.tensor([0.001, 0.999])).tolist())
# + ends = torch.tensor([0.001, 0.999])
# + return tuple(torch.quantile(every, ends, interpolation="nearest").tolist())

# %% error_aware: the nearest codes
# says: makes up for another's error
def error_aware(weight, inputs, scales, bits):
    return (weight / scales).round().to(torch.int8)

# %% error_aware: codes beyond the range
# says: is beyond
# edit: .round().clamp(-most, most)  ->  .round()
# - codes[:, k] = code.to(torch.int8)
# + codes[:, k] = (2 * code).to(torch.int8)

# %% error_aware: the error is passed on with the wrong sign
# says: the sign is turned here
# edit: rest[:, k:] -= error  ->  rest[:, k:] += error

# %% two_level_scales: rounded down
# says: to the nearest integer, not down
# edit: torch.round(scales / gamma).clamp  ->  (scales / gamma).clamp

# %% kmeans_codebook: starts from quantiles
# says: starts from evenly spaced entries
# edit: torch.linspace(flat.min(), flat.max(), 2**bits)  ->  torch.quantile(flat, torch.linspace(0, 1, 2**bits))

# %% int4_matvec_kernel: the usual unpacking, which converts each weight
# says: 1 integers per weight become floats
@triton.jit
def int4_matvec_kernel(packed, scales, x, y, GROUPS: tl.constexpr, WORDS: tl.constexpr,
                       ROWS: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, STEP), tl.float32)
    for first in range(0, GROUPS, STEP):
        group = first + tl.arange(0, STEP)
        cell = first * WORDS + tl.arange(0, STEP * WORDS)
        words = tl.load(packed + row[:, None] * (GROUPS * WORDS) + cell[None, :])
        scale = tl.load(scales + row[:, None] * GROUPS + group[None, :]).to(tl.float32)
        columns = x + cell // WORDS * (8 * WORDS) + cell % WORDS
        products = tl.zeros((ROWS, STEP * WORDS), tl.float32)
        for i in tl.static_range(8):
            x_i = tl.load(columns + i * WORDS).to(tl.float32)
            products += (((words >> 4 * i) & 15) - 8).to(tl.float32) * x_i[None, :]
        total += tl.sum(tl.reshape(products, (ROWS, STEP, WORDS)), 2) * scale
    tl.store(y + row, tl.sum(total, 1))

# %% decode: the codes are cut in place
# says: the codes, after decode
# edit: fraction = codes & (2**fraction_bits - 1)  ->  fraction = codes & (2**fraction_bits - 1); copied = codes.copy(); codes &= 127; codes, copied = copied, codes

# %% affine_parameters: the range is widened in place
# says: low and high, after
# edit: low, high = low.clamp(max=0), high.clamp(min=0)  ->  low, high = low.clamp_(max=0), high.clamp_(min=0)

# %% equalised: small units are left alone
# says: largest magnitudes
# edit: (row > 0) & (column > 0)  ->  (row > 1e-4) & (column > 1e-4)

# %% quantize_groups: scales in fp16
# says: scales of 4
# edit: scales = torch.where(scales > 0, scales, 1.0)  ->  scales = torch.where(scales > 0, scales.half().float(), 1.0)

# %% integer_matmul: row sums in 16 bits
# says: extreme codes
# edit: x_zero * w.sum(1, dtype=torch.int32)  ->  x_zero * w.sum(1, dtype=torch.int16).int()

# %% integer_matmul: added in float32
# says: integer_matmul(products
# edit: return products - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]  ->  return (products.float() - w_zero * x.float().sum(0) + terms[:, None].float()).int()

# %% kmeans_codebook: unused entries move to the mean
# says: codebook of [0, 1], 2 bits
# edit: torch.where(counts > 0, sums / counts, codebook)  ->  torch.where(counts > 0, sums / counts, flat.mean())

# %% decode: the bias is half the range
# says: The bias is 2^(exponent bits - 1) - 1
# edit: bias = 2 ** (exponent_bits - 1) - 1  ->  bias = 2 ** (exponent_bits - 1)

# %% affine_parameters: quantize divides in place
# says: the values, after quantize
# edit: codes = torch.round(values / scale) + zero_point  ->  codes = values.div_(scale).round_() + zero_point

# %% affine_parameters: quantize cuts to eight bits, whatever they are
# says: 5 bits: codes from
# edit: return codes.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)  ->  return codes.clamp(-128, 127).to(torch.int8)

# %% integer_matmul: in place on products
# says: the products, after integer_matmul
# - return products - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]
# + return products.sub_(w_zero * x.sum(0, dtype=torch.int32)).add_(terms[:, None])

# %% integer_matmul: the column sums without their zero-point
# says: must be multiplied by Z_W
# edit: products - w_zero * x.sum(0, dtype=torch.int32)  ->  products - x.sum(0, dtype=torch.int32)

# %% integer_matmul: the zero-points exchanged
# says: not w's own zero-point
# edit: x_zero * w.sum(1, dtype=torch.int32)  ->  w_zero * w.sum(1, dtype=torch.int32)

# %% integer_matmul: K of the rows
# says: not of its rows
# edit: w.shape[1] * w_zero * x_zero  ->  w.shape[0] * w_zero * x_zero

# %% decode: one axis, whatever the codes have
# says: shape (0,), not (2, 0)
# edit: return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value)  ->  return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value).ravel()

# %% encode: one axis, whatever the values have
# says: shape (2,), not (1, 2)
# edit: return codes + np.where(np.signbit(values), sign, 0)  ->  return (codes + np.where(np.signbit(values), sign, 0)).ravel()

# %% affine_parameters: an int32 before the codes are cut
# says: whose codes overflow until they are cut
# edit: codes = torch.round(values / scale) + zero_point  ->  codes = torch.round(values / scale).to(torch.int32) + zero_point

# %% affine_parameters: an int16 before the codes are cut
# says: whose codes overflow until they are cut
# edit: codes = torch.round(values / scale) + zero_point  ->  codes = torch.round(values / scale).to(torch.int16) + zero_point

# %% affine_parameters: quantize cuts the fraction off
# says: the nearest code is 27 above
# edit: torch.round(values / scale) + zero_point  ->  torch.trunc(values / scale) + zero_point

# %% affine_parameters: a symmetric range
# says: is not symmetric
# - low, high = low.clamp(max=0), high.clamp(min=0)
# + high = torch.maximum(low.abs(), high.abs())
# + low = -high

# %% quantize_groups: the weights are divided in place
# says: the weights, after quantize_groups
# - codes = torch.round(groups / scales[:, :, None]).to(torch.int8)
# - return codes.flatten(1)[:, :columns].contiguous(), scales
# + weight /= scales.repeat_interleave(group, 1)[:, :columns]
# + return weight.round().to(torch.int8), scales

# %% quantize_groups: one scale per row
# says: This is one scale per row
# edit: groups.abs().amax(2)  ->  groups.abs().amax((1, 2))[:, None].expand(-1, groups.shape[1])

# %% quantize_groups: the row's scales are laid end to end
# says: repeat each one for its whole group
# edit: scales.repeat_interleave(group, dim=1)  ->  scales.repeat(1, group)

# %% quantize_groups: the scale of largest minus smallest
# says: not from largest - smallest
# edit: groups.abs().amax(2) / (2 ** (bits - 1) - 1)  ->  (groups.amax(2) - groups.amin(2)) / (2**bits - 2)

# %% equalised: the bias goes with the outgoing weights
# says: The bias is divided, as the incoming weights are
# edit: bias / factor  ->  bias * factor

# %% equalised: each side to the mean of both
# says: geometric mean
# edit: torch.where((row > 0) & (column > 0), (row / column).sqrt(), 1.0)  ->  torch.where((row > 0) & (column > 0), row / ((row + column) / 2), 1.0)

# %% equalised: largest values, not magnitudes
# says: weights below 0 count, too
# edit: incoming.abs().amax(1), outgoing.abs().amax(0)  ->  incoming.amax(1), outgoing.amax(0)

# %% requantize: the product in int32
# says: make the sums int64 before you multiply
# edit: sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift  ->  (sums * m).to(torch.int64) + 2 ** (shift - 1) >> shift

# %% requantize: a division that rounds towards 0
# says: a right shift rounds down
# edit: sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift  ->  torch.div(sums.to(torch.int64) * m + 2 ** (shift - 1), 2**shift, rounding_mode="trunc")

# %% requantize: no shift beyond 62
# says: fixed_point(3e-15)
# edit: while multiplier * 2**shift < 2**30:  ->  while multiplier * 2**shift < 2**30 and shift < 62:

# %% two_level_scales: a billionth against a division by 0
# says: gamma of 3 × 7
# edit: / (2**bits - 1)  ->  / (2**bits - 1) + 1e-9

# %% error_aware: the error is not divided
# says: divide the error by U[k, k]
# edit: / upper[k, k]  ->  / 1.0

# %% error_aware: the factor of H
# says: not of H
# edit: torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)  ->  torch.linalg.cholesky(hessian, upper=True)

# %% error_aware: the inverse in place of its factor
# says: not H⁻¹ itself
# edit: torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)  ->  torch.linalg.inv(hessian)

# %% error_aware: an error in codes
# says: in the units of the weights
# edit: (rest[:, k] - code * scales[:, 0])  ->  (rest[:, k] / scales[:, 0] - code)

# %% error_aware: nothing on the diagonal
# says: singular
# - hessian += 0.01 * hessian.diagonal().mean() * torch.eye(len(hessian))

# %% kmeans_codebook: the entries of the codebook before its last move
# says: another entry than the nearest one
def kmeans_codebook(values, bits):
    flat = values.flatten()
    codebook = torch.linspace(flat.min(), flat.max(), 2**bits)
    for _ in range(2):
        entries = (flat[:, None] - codebook).abs().argmin(1)
        for i in entries.unique():
            codebook[i] = flat[entries == i].mean()
    return codebook, entries.view_as(values)


def codebook_gradient(gradient, entries, size):
    return torch.zeros(size).index_add(0, entries.flatten(), gradient.flatten())

# %% encode: cut off
# says: was it cut off
# edit: np.rint(  ->  np.floor(

# %% affine_parameters: as many steps as codes
# says: there are 2^n - 1 steps
# edit: (high - low) / (q_max - q_min)  ->  (high - low) / 2**bits

# %% affine_parameters: the zero-point on the other side
# says: lies above q_min
# edit: q_min - low / scale  ->  q_min + low / scale

# %% affine_parameters: unsigned codes
# says: the codes are signed
# edit: q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1  ->  q_min, q_max = 0, 2**bits - 1

# %% affine_parameters: cut before the zero-point is added
# says: before you cut
# - codes = torch.round(values / scale) + zero_point
# - return codes.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)
# + codes = torch.round(values / scale).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
# + return (codes + zero_point).to(torch.int8)

# %% affine_parameters: quantize leaves -128 out
# says: -128 is a code
# edit: codes.clamp(-(2 ** (bits - 1)),  ->  codes.clamp(1 - 2 ** (bits - 1),

# %% quantize_groups: the largest of all codes
# says: not at 2^n - 1
# edit: groups.abs().amax(2) / (2 ** (bits - 1) - 1)  ->  groups.abs().amax(2) / (2**bits - 1)

# %% equalised: the root of the product
# says: not from their product
# edit: (row / column).sqrt()  ->  (row * column).sqrt()

# %% integer_matmul: the rows' sums without their zero-point
# says: must be multiplied by Z_X
# edit: x_zero * w.sum(1, dtype=torch.int32)  ->  w.sum(1, dtype=torch.int32)

# %% integer_matmul: the terms subtracted
# says: terms of w's rows are added
# edit: + terms[:, None]  ->  - terms[:, None]

# %% requantize: the zero-point subtracted
# says: added, not subtracted
# edit: (scaled + zero_point)  ->  (scaled - zero_point)

# %% decode: NumPy reads the bits of float64
# says: decode uses what is not allowed here (view). Compute with the fields of the codes.
def decode(codes, format):
    exponent_bits, fraction_bits, top = format
    rest = codes & (2 ** (exponent_bits + fraction_bits) - 1)
    scale = 2.0 ** ((1024 - 2 ** (exponent_bits - 1)) / 2)
    value = (rest << (52 - fraction_bits)).view(np.float64) * scale * scale
    largest = rest >> fraction_bits == 2**exponent_bits - 1
    fraction = rest & (2**fraction_bits - 1)
    if top == "infinity":
        value = np.where(largest, np.where(fraction == 0, np.inf, np.nan), value)
    if top == "nan":
        value = np.where(largest & (fraction == 2**fraction_bits - 1), np.nan, value)
    return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value)

# %% int4_matvec_kernel: a table of sixteen, by selects
# says: 15 numbers per weight by tl.where
@triton.jit
def int4_matvec_kernel(packed, scales, x, y, GROUPS: tl.constexpr, WORDS: tl.constexpr,
                       ROWS: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, STEP), tl.float32)
    for first in range(0, GROUPS, STEP):
        group = first + tl.arange(0, STEP)
        cell = first * WORDS + tl.arange(0, STEP * WORDS)
        words = tl.load(packed + row[:, None] * (GROUPS * WORDS) + cell[None, :])
        scale = tl.load(scales + row[:, None] * GROUPS + group[None, :]).to(tl.float32)
        columns = x + cell // WORDS * (8 * WORDS) + cell % WORDS
        products = tl.zeros((ROWS, STEP * WORDS), tl.float32)
        for i in tl.static_range(8):
            x_i = tl.load(columns + i * WORDS).to(tl.float32)
            nibble = (words >> 4 * i) & 15
            value = tl.zeros((ROWS, STEP * WORDS), tl.float32) - 8.0
            for n in tl.static_range(1, 16):
                value = tl.where(nibble == n, n - 8.0, value)
            products += value * x_i[None, :]
        total += tl.sum(tl.reshape(products, (ROWS, STEP, WORDS)), 2) * scale
    tl.store(y + row, tl.sum(total, 1))

# %% affine_parameters: dequantize takes the first scale for all rows
# says: the distance of dequantize(quantize(values
# edit: scale * (codes.to(torch.int32) - zero_point)  ->  scale.flatten()[0] * (codes.to(torch.int32) - zero_point)
