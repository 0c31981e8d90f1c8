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
def decode(codes, format):
    exponent_bits, fraction_bits, top = format
    fraction = codes & (2**fraction_bits - 1)
    exponent = codes >> fraction_bits & (2**exponent_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    significand = fraction + np.where(exponent > 0, 2**fraction_bits, 0)
    value = np.ldexp(significand.astype(float), np.maximum(exponent, 1) - bias - fraction_bits)
    value = np.where(exponent == 2**exponent_bits - 1, np.where(fraction == 0, np.inf, np.nan), value)
    return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value)

# %% decode: no special values at all
# says: NaN here
def decode(codes, format):
    exponent_bits, fraction_bits, top = format
    fraction = codes & (2**fraction_bits - 1)
    exponent = codes >> fraction_bits & (2**exponent_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    significand = fraction + np.where(exponent > 0, 2**fraction_bits, 0)
    value = np.ldexp(significand.astype(float), np.maximum(exponent, 1) - bias - fraction_bits)
    return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value)

# %% encode: halves away from zero
# says: not away from zero
def encode(values, format):
    exponent_bits, fraction_bits, top = format
    bias = 2 ** (exponent_bits - 1) - 1
    largest_code = 2 ** (exponent_bits + fraction_bits) - {"infinity": 2**fraction_bits, "nan": 2, "finite": 1}[top]
    magnitude = np.where(np.isnan(values), 0, np.minimum(np.abs(values), 2.0 ** (bias + 2)))
    exponent = np.frexp(np.maximum(magnitude, 2.0 ** (1 - bias)))[1].astype(np.int64) - 1
    steps = np.floor(np.ldexp(magnitude, fraction_bits - exponent) + 0.5).astype(np.int64)
    codes = np.minimum(steps + (exponent + bias - 1 << fraction_bits), largest_code)
    codes = np.where(np.isnan(values), 2 ** (exponent_bits + fraction_bits) - 1, codes)
    return codes + np.where(np.signbit(values), 2 ** (exponent_bits + fraction_bits), 0)

# %% encode: subnormals flushed to zero
# says: subnormal codes
def encode(values, format):
    exponent_bits, fraction_bits, top = format
    bias = 2 ** (exponent_bits - 1) - 1
    largest_code = 2 ** (exponent_bits + fraction_bits) - {"infinity": 2**fraction_bits, "nan": 2, "finite": 1}[top]
    magnitude = np.where(np.isnan(values), 0, np.minimum(np.abs(values), 2.0 ** (bias + 2)))
    magnitude = np.where(magnitude < 2.0 ** (1 - bias), 0, magnitude)
    exponent = np.frexp(np.maximum(magnitude, 2.0 ** (1 - bias)))[1].astype(np.int64) - 1
    steps = np.rint(np.ldexp(magnitude, fraction_bits - exponent)).astype(np.int64)
    codes = np.minimum(steps + (exponent + bias - 1 << fraction_bits), largest_code)
    codes = np.where(np.isnan(values), 2 ** (exponent_bits + fraction_bits) - 1, codes)
    return codes + np.where(np.signbit(values), 2 ** (exponent_bits + fraction_bits), 0)

# %% encode: e4m3fn given infinities
# says: what is too large becomes 448
def encode(values, format):
    exponent_bits, fraction_bits, top = format
    bias = 2 ** (exponent_bits - 1) - 1
    largest_code = 2 ** (exponent_bits + fraction_bits) - {"infinity": 2**fraction_bits, "nan": 2**fraction_bits, "finite": 1}[top]
    magnitude = np.where(np.isnan(values), 0, np.minimum(np.abs(values), 2.0 ** (bias + 2)))
    exponent = np.frexp(np.maximum(magnitude, 2.0 ** (1 - bias)))[1].astype(np.int64) - 1
    steps = np.rint(np.ldexp(magnitude, fraction_bits - exponent)).astype(np.int64)
    codes = np.minimum(steps + (exponent + bias - 1 << fraction_bits), largest_code)
    codes = np.where(np.isnan(values), 2 ** (exponent_bits + fraction_bits) - 1, codes)
    return codes + np.where(np.signbit(values), 2 ** (exponent_bits + fraction_bits), 0)

# %% encode: always saturates
# says: rounds to infinity
def encode(values, format):
    exponent_bits, fraction_bits, top = format
    bias = 2 ** (exponent_bits - 1) - 1
    largest_code = 2 ** (exponent_bits + fraction_bits) - {"infinity": 2**fraction_bits + 1, "nan": 2, "finite": 1}[top]
    magnitude = np.where(np.isnan(values), 0, np.minimum(np.abs(values), 2.0 ** (bias + 2)))
    exponent = np.frexp(np.maximum(magnitude, 2.0 ** (1 - bias)))[1].astype(np.int64) - 1
    steps = np.rint(np.ldexp(magnitude, fraction_bits - exponent)).astype(np.int64)
    codes = np.minimum(steps + (exponent + bias - 1 << fraction_bits), largest_code)
    codes = np.where(np.isnan(values), 2 ** (exponent_bits + fraction_bits) - 1, codes)
    return codes + np.where(np.signbit(values), 2 ** (exponent_bits + fraction_bits), 0)

# %% encode: the carry of the fraction is dropped
# says: belongs into the exponent
def encode(values, format):
    exponent_bits, fraction_bits, top = format
    bias = 2 ** (exponent_bits - 1) - 1
    largest_code = 2 ** (exponent_bits + fraction_bits) - {"infinity": 2**fraction_bits, "nan": 2, "finite": 1}[top]
    magnitude = np.where(np.isnan(values), 0, np.minimum(np.abs(values), 2.0 ** (bias + 2)))
    exponent = np.frexp(np.maximum(magnitude, 2.0 ** (1 - bias)))[1].astype(np.int64) - 1
    steps = np.rint(np.ldexp(magnitude, fraction_bits - exponent)).astype(np.int64)
    field = exponent + bias - (magnitude < 2.0 ** (1 - bias))
    codes = np.minimum((steps & (2**fraction_bits - 1)) + (field << fraction_bits), largest_code)
    codes = np.where(np.isnan(values), 2 ** (exponent_bits + fraction_bits) - 1, codes)
    return codes + np.where(np.signbit(values), 2 ** (exponent_bits + fraction_bits), 0)

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
def affine_parameters(low, high, bits):
    q_min, q_max = -(2 ** (bits - 1)) - 1, 2 ** (bits - 1) - 1
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = torch.where(high > low, (high - low) / (q_max - q_min), 1.0)
    return scale, torch.round(q_min - low / scale).to(torch.int32)


def quantize(values, scale, zero_point, bits):
    return (torch.round(values / scale) + zero_point).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)


def dequantize(codes, scale, zero_point):
    return scale * (codes.to(torch.int32) - zero_point)

# %% affine_parameters: zero-point cut off instead of rounded
# says: not cut off
def affine_parameters(low, high, bits):
    q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = torch.where(high > low, (high - low) / (q_max - q_min), 1.0)
    return scale, (q_min - low / scale).to(torch.int32)


def quantize(values, scale, zero_point, bits):
    return (torch.round(values / scale) + zero_point).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)


def dequantize(codes, scale, zero_point):
    return scale * (codes.to(torch.int32) - zero_point)

# %% affine_parameters: zero-point not rounded at all
# says: float32, not torch.int32
def affine_parameters(low, high, bits):
    q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = torch.where(high > low, (high - low) / (q_max - q_min), 1.0)
    return scale, q_min - low / scale


def quantize(values, scale, zero_point, bits):
    return torch.round(values / scale + zero_point).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)


def dequantize(codes, scale, zero_point):
    return scale * (codes.to(torch.int32) - zero_point)

# %% affine_parameters: scale from one side only
# says: one side of the range
def affine_parameters(low, high, bits):
    scale = high / (2 ** (bits - 1) - 1)
    return scale, torch.round(-(2 ** (bits - 1)) - low / scale).to(torch.int32)


def quantize(values, scale, zero_point, bits):
    return (torch.round(values / scale) + zero_point).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)


def dequantize(codes, scale, zero_point):
    return scale * (codes.to(torch.int32) - zero_point)

# %% affine_parameters: the codes wrap around
# says: gets the code at its end
def affine_parameters(low, high, bits):
    q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = torch.where(high > low, (high - low) / (q_max - q_min), 1.0)
    return scale, torch.round(q_min - low / scale).to(torch.int32)


def quantize(values, scale, zero_point, bits):
    return (torch.round(values / scale) + zero_point).to(torch.int32).to(torch.int8)


def dequantize(codes, scale, zero_point):
    return scale * (codes.to(torch.int32) - zero_point)

# %% affine_parameters: dequantize subtracts in int8
# says: widen the codes first
def affine_parameters(low, high, bits):
    q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = torch.where(high > low, (high - low) / (q_max - q_min), 1.0)
    return scale, torch.round(q_min - low / scale).to(torch.int32)


def quantize(values, scale, zero_point, bits):
    return (torch.round(values / scale) + zero_point).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)


def dequantize(codes, scale, zero_point):
    return scale * (codes - zero_point)

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
    return (codes.flatten() * scales.flatten().repeat_interleave(group)[:codes.numel()]).view(codes.shape)

# %% quantize_groups: a group of zeros divides by zero
# says: a scale of 0 divides by zero
def quantize_groups(weight, bits, group):
    rows, columns = weight.shape
    groups = F.pad(weight, (0, -columns % group)).view(rows, -(-columns // group), group)
    scales = groups.abs().amax(2) / (2 ** (bits - 1) - 1)
    codes = torch.round(groups / scales[:, :, None]).to(torch.int8)
    return codes.flatten(1)[:, :columns].contiguous(), scales


def dequantize_groups(codes, scales, group):
    return codes * scales.repeat_interleave(group, dim=1)[:, :codes.shape[1]]

# %% quantize_groups: one code too many
# says: largest code, 2^(n-1) - 1
def quantize_groups(weight, bits, group):
    rows, columns = weight.shape
    groups = F.pad(weight, (0, -columns % group)).view(rows, -(-columns // group), group)
    scales = groups.abs().amax(2) / 2 ** (bits - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(groups / scales[:, :, None]).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)
    return codes.flatten(1)[:, :columns].contiguous(), scales


def dequantize_groups(codes, scales, group):
    return codes * scales.repeat_interleave(group, dim=1)[:, :codes.shape[1]]

# %% quantize_groups: codes cut off instead of rounded
# says: not the nearest
def quantize_groups(weight, bits, group):
    rows, columns = weight.shape
    groups = F.pad(weight, (0, -columns % group)).view(rows, -(-columns // group), group)
    scales = groups.abs().amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = (groups / scales[:, :, None]).to(torch.int8)
    return codes.flatten(1)[:, :columns].contiguous(), scales


def dequantize_groups(codes, scales, group):
    return codes * scales.repeat_interleave(group, dim=1)[:, :codes.shape[1]]

# %% bits_per_weight: scales not counted
# says: the scales are missing
def bits_per_weight(columns, bits, group, scale_bits=16):
    return float(bits)

# %% bits_per_weight: the shorter group forgotten
# says: shorter group has a scale too
def bits_per_weight(columns, bits, group, scale_bits=16):
    return bits + columns // group * scale_bits / columns

# %% integer_matmul: the Z_W Z_X term forgotten
# says: K Z_W Z_X is missing
def weight_terms(w, w_zero, x_zero):
    return -x_zero * w.sum(1, dtype=torch.int32)


def integer_matmul(w, x, w_zero, terms):
    return w.to(torch.int32) @ x.to(torch.int32) - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]

# %% integer_matmul: Z_W Z_X taken once, as in the notes
# says: take it K times
def weight_terms(w, w_zero, x_zero):
    return w_zero * x_zero - x_zero * w.sum(1, dtype=torch.int32)


def integer_matmul(w, x, w_zero, terms):
    return w.to(torch.int32) @ x.to(torch.int32) - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]

# %% integer_matmul: the columns of x forgotten
# says: each column of x is missing
def weight_terms(w, w_zero, x_zero):
    return w.shape[1] * w_zero * x_zero - x_zero * w.sum(1, dtype=torch.int32)


def integer_matmul(w, x, w_zero, terms):
    return w.to(torch.int32) @ x.to(torch.int32) + terms[:, None]

# %% integer_matmul: int8 accumulators
# says: overflowed 8 bits
def weight_terms(w, w_zero, x_zero):
    return w.shape[1] * w_zero * x_zero - x_zero * w.sum(1, dtype=torch.int32)


def integer_matmul(w, x, w_zero, terms):
    return (w @ x).to(torch.int32) - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]

# %% integer_matmul: int16 accumulators
# says: overflowed 16 bits
def weight_terms(w, w_zero, x_zero):
    return w.shape[1] * w_zero * x_zero - x_zero * w.sum(1, dtype=torch.int32)


def integer_matmul(w, x, w_zero, terms):
    return (w.to(torch.int16) @ x.to(torch.int16)).to(torch.int32) - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]

# %% requantize: a shift without rounding
# says: a right shift rounds down
def fixed_point(multiplier):
    shift = 30
    while multiplier * 2**shift < 2**30:
        shift += 1
    m = round(multiplier * 2**shift)
    return (m, shift) if m < 2**31 else (2**30, shift - 1)


def requantize(sums, m, shift, zero_point):
    return ((sums.to(torch.int64) * m >> shift) + zero_point).clamp(-128, 127).to(torch.int8)

# %% requantize: the zero-point added before the scaling
# says: add it after the shift
def fixed_point(multiplier):
    shift = 30
    while multiplier * 2**shift < 2**30:
        shift += 1
    m = round(multiplier * 2**shift)
    return (m, shift) if m < 2**31 else (2**30, shift - 1)


def requantize(sums, m, shift, zero_point):
    return ((sums.to(torch.int64) + zero_point) * m + 2 ** (shift - 1) >> shift).clamp(-128, 127).to(torch.int8)

# %% requantize: codes wrap around
# says: wrapped around
def fixed_point(multiplier):
    shift = 30
    while multiplier * 2**shift < 2**30:
        shift += 1
    m = round(multiplier * 2**shift)
    return (m, shift) if m < 2**31 else (2**30, shift - 1)


def requantize(sums, m, shift, zero_point):
    return ((sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift) + zero_point).to(torch.int8)

# %% requantize: m of 15 bits
# says: not from 2**30
def fixed_point(multiplier):
    return round(multiplier * 2**15), 15


def requantize(sums, m, shift, zero_point):
    return ((sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift) + zero_point).clamp(-128, 127).to(torch.int8)

# %% requantize: m cut off instead of rounded
# says: round m to nearest
def fixed_point(multiplier):
    shift = 30
    while multiplier * 2**shift < 2**30:
        shift += 1
    return int(multiplier * 2**shift), shift


def requantize(sums, m, shift, zero_point):
    return ((sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift) + zero_point).clamp(-128, 127).to(torch.int8)

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
def calibrated_range(batches, method):
    if method == "percentile":
        ends = [torch.quantile(batch.flatten(), torch.tensor([0.001, 0.999])) for batch in batches]
        return tuple(torch.stack(ends).mean(0).tolist())
    lows, highs = [batch.min().item() for batch in batches], [batch.max().item() for batch in batches]
    if method == "minmax":
        return min(lows), max(highs)
    low, high = lows[0], highs[0]
    for batch_low, batch_high in zip(lows[1:], highs[1:]):
        low, high = 0.9 * low + 0.1 * batch_low, 0.9 * high + 0.1 * batch_high
    return low, high

# %% int4_matvec_kernel: the 8 is left in
# says: take the 8 off
@triton.jit
def int4_matvec_kernel(packed, scales, x, y, GROUPS: tl.constexpr, WORDS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    word = tl.arange(0, WORDS)
    total = tl.zeros((ROWS, STEP, WORDS), tl.float32)
    for first in range(0, GROUPS, STEP):
        group = first + tl.arange(0, STEP)
        words = tl.load(packed + row[:, None, None] * (GROUPS * WORDS) + (group[:, None] * WORDS + word[None, :])[None])
        scale = tl.load(scales + row[:, None] * GROUPS + group[None, :]).to(tl.float32)
        for i in tl.static_range(8):
            x_i = tl.load(x + group[:, None] * (8 * WORDS) + i * WORDS + word[None, :]).to(tl.float32)
            total += ((words >> 4 * i) & 15).to(tl.float32) * x_i[None] * scale[:, :, None]
    tl.store(y + row, tl.sum(tl.sum(total, 2), 1))

# %% int4_matvec_kernel: eight neighbours in a word
# says: another column's code
@triton.jit
def int4_matvec_kernel(packed, scales, x, y, GROUPS: tl.constexpr, WORDS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    word = tl.arange(0, WORDS)
    total = tl.zeros((ROWS, STEP, WORDS), tl.float32)
    for first in range(0, GROUPS, STEP):
        group = first + tl.arange(0, STEP)
        words = tl.load(packed + row[:, None, None] * (GROUPS * WORDS) + (group[:, None] * WORDS + word[None, :])[None])
        scale = tl.load(scales + row[:, None] * GROUPS + group[None, :]).to(tl.float32)
        for i in tl.static_range(8):
            x_i = tl.load(x + group[:, None] * (8 * WORDS) + 8 * word[None, :] + i).to(tl.float32)
            total += (((words >> 4 * i) & 15) - 8).to(tl.float32) * x_i[None] * scale[:, :, None]
    tl.store(y + row, tl.sum(tl.sum(total, 2), 1))

# %% int4_matvec_kernel: the first group's scale for all
# says: first group's scale
@triton.jit
def int4_matvec_kernel(packed, scales, x, y, GROUPS: tl.constexpr, WORDS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    word = tl.arange(0, WORDS)
    total = tl.zeros((ROWS, STEP, WORDS), tl.float32)
    for first in range(0, GROUPS, STEP):
        group = first + tl.arange(0, STEP)
        words = tl.load(packed + row[:, None, None] * (GROUPS * WORDS) + (group[:, None] * WORDS + word[None, :])[None])
        scale = tl.load(scales + row * GROUPS).to(tl.float32)
        for i in tl.static_range(8):
            x_i = tl.load(x + group[:, None] * (8 * WORDS) + i * WORDS + word[None, :]).to(tl.float32)
            total += (((words >> 4 * i) & 15) - 8).to(tl.float32) * x_i[None] * scale[:, None, None]
    tl.store(y + row, tl.sum(tl.sum(total, 2), 1))

# %% two_level_scales: signed integers
# says: unsigned
def two_level_scales(scales, bits):
    gamma = scales.amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.round(scales / gamma).clamp(min=1).to(torch.uint8), gamma

# %% two_level_scales: one gamma for all rows
# says: each row has its own gamma
def two_level_scales(scales, bits):
    gamma = (scales.max() / (2**bits - 1)).expand(len(scales), 1).clone()
    return torch.round(scales / gamma).clamp(min=1).to(torch.uint8), gamma

# %% two_level_scales: small scales become 0
# says: erases its group
def two_level_scales(scales, bits):
    gamma = scales.amax(1, keepdim=True) / (2**bits - 1)
    return torch.round(scales / gamma).to(torch.uint8), gamma

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
def kmeans_codebook(values, bits):
    flat = values.flatten()
    codebook, before = torch.linspace(flat.min(), flat.max(), 2**bits), None
    while True:
        entries = (flat[:, None] - codebook).abs().argmin(1)
        if before is not None and torch.equal(entries, before):
            return codebook, entries.view_as(values)
        counts = torch.bincount(entries, minlength=2**bits)
        means = torch.zeros(2**bits).index_add(0, entries, flat) / counts
        codebook, before = torch.where(counts > 0, means, codebook), entries


def codebook_gradient(gradient, entries, size):
    counts = torch.bincount(entries.flatten(), minlength=size).clamp(min=1)
    return torch.zeros(size).index_add(0, entries.flatten(), gradient.flatten()) / counts

# %% kmeans_codebook: the last gradient wins
# says: all of them count
def kmeans_codebook(values, bits):
    flat = values.flatten()
    codebook, before = torch.linspace(flat.min(), flat.max(), 2**bits), None
    while True:
        entries = (flat[:, None] - codebook).abs().argmin(1)
        if before is not None and torch.equal(entries, before):
            return codebook, entries.view_as(values)
        counts = torch.bincount(entries, minlength=2**bits)
        means = torch.zeros(2**bits).index_add(0, entries, flat) / counts
        codebook, before = torch.where(counts > 0, means, codebook), entries


def codebook_gradient(gradient, entries, size):
    result = torch.zeros(size)
    result[entries.flatten()] = gradient.flatten()
    return result
