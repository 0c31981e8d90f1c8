# %% decode: subnormals forgotten
# says: no leading 1
def decode(codes, format):
    exponent_bits, fraction_bits, top = format
    fraction = codes & (2**fraction_bits - 1)
    exponent = codes >> fraction_bits & (2**exponent_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    value = np.ldexp((fraction + 2**fraction_bits).astype(float), exponent - bias - fraction_bits)
    return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value)

# %% decode: the notes' exponent for subnormals
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
# says: rounds to infinity
# edit: "infinity": 2**fraction_bits  ->  "infinity": 2**fraction_bits + 1

# %% encode: the carry of the fraction is dropped
# says: belongs into the exponent
# - codes = np.minimum(steps + (exponent + bias - 1 << fraction_bits), largest_code)
# + field = exponent + bias - (magnitude < 2.0 ** (1 - bias))
# + codes = np.minimum((steps & (2**fraction_bits - 1)) + (field << fraction_bits), largest_code)

# %% encode: the exponent of 0 as frexp gives it
# says: np.frexp says 0
# - exponent = np.frexp(np.maximum(magnitude, 2.0 ** (1 - bias)))[1].astype(np.int64) - 1
# + exponent = np.maximum(np.frexp(magnitude)[1].astype(np.int64) - 1, 1 - bias)

# %% largest_lost: the smallest subnormal itself
# says: a tie
def largest_lost(format):
    exponent_bits, fraction_bits, _ = format
    return 2.0 ** (2 - 2 ** (exponent_bits - 1)) / 2**fraction_bits

# %% largest_lost: subnormals forgotten
# says: subnormals are numbers too
def largest_lost(format):
    return 2.0 ** (2 - 2 ** (format[0] - 1)) / 2

# %% affine_parameters: signed range off by one, as in the notes
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

# %% bits_per_weight: scales not counted
# says: the scales are missing
def bits_per_weight(columns, bits, group, scale_bits=16):
    return float(bits)

# %% bits_per_weight: the shorter group forgotten
# says: shorter group has a scale too
def bits_per_weight(columns, bits, group, scale_bits=16):
    return bits + columns // group * scale_bits / columns

# %% bits_per_weight: the scale of the shorter group in proportion
# says: scale of a shorter group
def bits_per_weight(columns, bits, group, scale_bits=16):
    return bits + scale_bits / group

# %% integer_matmul: the Z_W Z_X term forgotten
# says: K Z_W Z_X is missing
# - return w.shape[1] * w_zero * x_zero - x_zero * w.sum(1, dtype=torch.int32)
# + return -x_zero * w.sum(1, dtype=torch.int32)

# %% integer_matmul: Z_W Z_X taken once, as in the notes
# says: take it K times
# edit: w.shape[1] * w_zero  ->  w_zero

# %% integer_matmul: the columns of x forgotten
# says: each column of x is missing
# - products = w.to(torch.int32) @ x.to(torch.int32)  # the inner loop: no zero-point
# - return products - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]
# + return w.to(torch.int32) @ x.to(torch.int32) + terms[:, None]

# %% integer_matmul: int8 accumulators
# says: overflowed 8 bits
# edit: w.to(torch.int32) @ x.to(torch.int32)  ->  (w @ x).to(torch.int32)

# %% integer_matmul: int16 accumulators
# says: overflowed 16 bits
# - products = w.to(torch.int32) @ x.to(torch.int32)  # the inner loop: no zero-point
# + products = (w.to(torch.int16) @ x.to(torch.int16)).to(torch.int32)

# %% integer_matmul: the product in float32
# says: exact to 2^24
# edit: w.to(torch.int32) @ x.to(torch.int32)  ->  (w.float() @ x.float()).to(torch.int32)

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
# says: the mean of its values
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
