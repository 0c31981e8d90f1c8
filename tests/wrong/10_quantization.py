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

# %% encode: the exponent of 0 as frexp gives it
# says: np.frexp says 0
def encode(values, format):
    """Codes, int64 array, of the nearest numbers of this format; ties go to the even code.

    values: float64 array; infinities may occur, and NaN in formats that have it. About twelve lines.
    """
    exponent_bits, fraction_bits, top = format
    bias, sign = 2 ** (exponent_bits - 1) - 1, 2 ** (exponent_bits + fraction_bits)
    largest_code = sign - {"infinity": 2**fraction_bits, "nan": 2, "finite": 1}[top]
    magnitude = np.where(np.isnan(values), 0, np.minimum(np.abs(values), 2.0 ** (bias + 2)))
    exponent = np.maximum(np.frexp(magnitude)[1].astype(np.int64) - 1, 1 - bias)
    steps = np.rint(np.ldexp(magnitude, fraction_bits - exponent)).astype(np.int64)  # ties to even
    # A normal number has 2**fraction_bits steps or more: the 1 that its exponent field counts from.
    codes = np.minimum(steps + (exponent + bias - 1 << fraction_bits), largest_code)
    codes = np.where(np.isnan(values), sign - 1, codes)
    return codes + np.where(np.signbit(values), sign, 0)

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

# %% affine_parameters: a range without 0
# says: widen them first
def affine_parameters(low, high, bits):
    """(scale, zero_point), float32 and int32 tensors, with which signed codes cover low to high.

    low, high: float32 tensors of one shape. The range is widened to include 0; if it then has no width,
    scale is 1. About five lines.
    """
    q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scale = torch.where(high > low, (high - low) / (q_max - q_min), 1.0)
    return scale, torch.round(q_min - low / scale).to(torch.int32)


def quantize(values, scale, zero_point, bits):
    """Codes, int8 tensor, nearest to float32 values. About two lines.

    scale and zero_point broadcast against the values.
    """
    codes = torch.round(values / scale) + zero_point
    return codes.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)


def dequantize(codes, scale, zero_point):
    """The float32 values that int8 codes stand for. One line."""
    return scale * (codes.to(torch.int32) - zero_point)

# %% affine_parameters: dequantize scales before it subtracts
# says: then scale
def affine_parameters(low, high, bits):
    """(scale, zero_point), float32 and int32 tensors, with which signed codes cover low to high.

    low, high: float32 tensors of one shape. The range is widened to include 0; if it then has no width,
    scale is 1. About five lines.
    """
    q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = torch.where(high > low, (high - low) / (q_max - q_min), 1.0)
    return scale, torch.round(q_min - low / scale).to(torch.int32)


def quantize(values, scale, zero_point, bits):
    """Codes, int8 tensor, nearest to float32 values. About two lines.

    scale and zero_point broadcast against the values.
    """
    codes = torch.round(values / scale) + zero_point
    return codes.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)


def dequantize(codes, scale, zero_point):
    """The float32 values that int8 codes stand for. One line."""
    return scale * codes.to(torch.int32) - zero_point

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

# %% quantize_groups: the largest weight instead of the largest magnitude
# says: weights below 0 count
def quantize_groups(weight, bits, group):
    """(codes, scales): int8 (rows, columns) and float32 (rows, groups of a row), symmetric.

    weight: float32 (rows, columns). Each `group` columns of a row have a scale, the last ones too if
    they are fewer. The scale of a group of zeros is 1. About eight lines.
    """
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group))  # zeros change no maximum
    groups = padded.view(rows, -(-columns // group), group)
    scales = groups.amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(groups / scales[:, :, None]).to(torch.int8)
    return codes.flatten(1)[:, :columns].contiguous(), scales


def dequantize_groups(codes, scales, group):
    """The float32 weights, (rows, columns), that these codes and scales stand for. One line."""
    return codes * scales.repeat_interleave(group, dim=1)[:, :codes.shape[1]]

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
    """Bits a weight, a float, scales included, in a row of `columns` weights. About two lines.

    Each `group` weights of the row have a scale; the last group may be shorter, its scale is not.
    """
    return bits + scale_bits / group

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

# %% integer_matmul: the product in float32
# says: exact to 2^24
def weight_terms(w, w_zero, x_zero):
    """What the product owes to the weights and the zero-points alone: int32 tensor (rows,).

    w: int8 codes (rows, K). w_zero, x_zero: ints. About two lines.
    """
    return w.shape[1] * w_zero * x_zero - x_zero * w.sum(1, dtype=torch.int32)


def integer_matmul(w, x, w_zero, terms):
    """The sum over k of (w - w_zero)(x - x_zero): int32 tensor (rows, columns). About three lines.

    w, x: int8 codes (rows, K) and (K, columns). terms: weight_terms of w, which know x_zero.
    """
    products = (w.float() @ x.float()).to(torch.int32)  # the inner loop: no zero-point
    return products - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]

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

# %% requantize: in floats, ties to even
# says: a tie goes upwards
def fixed_point(multiplier):
    """(m, shift), ints: m / 2**shift is as near to the multiplier as 2**30 <= m < 2**31 allows.

    multiplier: float, 0 < multiplier < 1. About five lines.
    """
    shift = 30
    while multiplier * 2**shift < 2**30:
        shift += 1
    m = round(multiplier * 2**shift)
    return (m, shift) if m < 2**31 else (2**30, shift - 1)


def requantize(sums, m, shift, zero_point):
    """int8 codes: sums · m / 2**shift rounded to nearest, + zero_point, cut to -128 ... 127. No floats.

    sums: int32 tensor. About three lines.
    """
    scaled = torch.round(sums.double() * m / 2**shift).to(torch.int64)
    return (scaled + zero_point).clamp(-128, 127).to(torch.int8)

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

# %% calibrated_range: a tenth of the old range
# says: nine tenths of the old
def calibrated_range(batches, method):
    """(low, high), floats: the range of the activations.

    batches: list of float32 tensors. method: "minmax", "average" (of the extremes, 0.9 old + 0.1 new)
    or "percentile" (0.1 and 99.9 of all values; torch.quantile). About twelve lines.
    """
    if method == "percentile":
        every = torch.cat([batch.flatten() for batch in batches])
        return tuple(torch.quantile(every, torch.tensor([0.001, 0.999])).tolist())
    lows = [batch.min().item() for batch in batches]
    highs = [batch.max().item() for batch in batches]
    if method == "minmax":
        return min(lows), max(highs)
    low, high = lows[0], highs[0]
    for batch_low, batch_high in zip(lows[1:], highs[1:], strict=True):
        low, high = 0.1 * low + 0.9 * batch_low, 0.1 * high + 0.9 * batch_high
    return low, high

# %% calibrated_range: a tenth for a tenth of a percent
# says: is the quantile 0.001
def calibrated_range(batches, method):
    """(low, high), floats: the range of the activations.

    batches: list of float32 tensors. method: "minmax", "average" (of the extremes, 0.9 old + 0.1 new)
    or "percentile" (0.1 and 99.9 of all values; torch.quantile). About twelve lines.
    """
    if method == "percentile":
        every = torch.cat([batch.flatten() for batch in batches])
        return tuple(torch.quantile(every, torch.tensor([0.1, 0.9])).tolist())
    lows = [batch.min().item() for batch in batches]
    highs = [batch.max().item() for batch in batches]
    if method == "minmax":
        return min(lows), max(highs)
    low, high = lows[0], highs[0]
    for batch_low, batch_high in zip(lows[1:], highs[1:], strict=True):
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

# %% kmeans_codebook: entries without values become 0
# says: stays where it is
def kmeans_codebook(values, bits):
    """(codebook, entries): float32 (2**bits,), and for each value the index (int64) of its nearest.

    values: float32 tensor. An entry that no value is nearest to stays where it is. About ten lines.
    """
    flat = values.flatten()
    codebook, before = torch.linspace(flat.min(), flat.max(), 2**bits), None
    while True:
        entries = (flat[:, None] - codebook).abs().argmin(1)
        if before is not None and torch.equal(entries, before):
            return codebook, entries.view_as(values)
        sums = codebook_gradient(flat, entries, 2**bits)
        counts = codebook_gradient(torch.ones_like(flat), entries, 2**bits)
        codebook, before = sums / counts.clamp(min=1), entries


def codebook_gradient(gradient, entries, size):
    """Gradient of each codebook entry, float32 (size,): the sum over its weights. One line.

    gradient: of the loss to each weight. entries: the entry that each weight uses, of the same shape.
    """
    return torch.zeros(size).index_add(0, entries.flatten(), gradient.flatten())
