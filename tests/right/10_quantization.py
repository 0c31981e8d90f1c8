# %% decode: number by number, with Python's integers
def decode(codes, format):
    exponent_bits, fraction_bits, top = format
    numbers = []
    for code in codes.tolist():
        sign = -1.0 if code >> (exponent_bits + fraction_bits) else 1.0
        exponent, fraction = divmod(code % 2 ** (exponent_bits + fraction_bits), 2**fraction_bits)
        is_last = exponent == 2**exponent_bits - 1
        if top == "infinity" and is_last:
            number = float("nan") if fraction else float("inf")
        elif top == "nan" and is_last and fraction == 2**fraction_bits - 1:
            number = float("nan")
        elif exponent == 0:
            number = fraction * 2.0 ** (2 - 2 ** (exponent_bits - 1) - fraction_bits)
        else:
            number = (1 + fraction / 2**fraction_bits) * 2.0 ** (exponent - 2 ** (exponent_bits - 1) + 1)
        numbers.append(sign * number)
    return np.array(numbers, dtype=float)

# %% decode: a table of all magnitudes, and a look-up
def decode(codes, format):
    e, f, top = format
    field, fraction = np.divmod(np.arange(2 ** (e + f)), 2**f)
    table = (fraction / 2**f + (field > 0)) * np.exp2(np.maximum(field, 1) - 2.0 ** (e - 1) + 1)
    if top == "infinity":
        table[field == 2**e - 1] = np.nan
        table[(2**e - 1) << f] = np.inf
    if top == "nan":
        table[-1] = np.nan
    return np.where(codes >= 2 ** (e + f), -1.0, 1.0) * table[codes % 2 ** (e + f)]

# %% encode: a table of the numbers, and a search
def encode(values, format):
    e, f, top = format
    count = 2 ** (e + f) - {"infinity": 2**f, "nan": 1, "finite": 0}[top]
    numbers = decode(np.arange(count), format)
    if top == "infinity":
        numbers = np.append(numbers, 2 * numbers[-1] - numbers[-2])
    size = np.where(np.isnan(values), 0, np.abs(values))
    right = np.searchsorted(numbers, size).clip(1, len(numbers) - 1)
    left = right - 1
    nearer_left = size - numbers[left] < numbers[right] - size
    tie = size - numbers[left] == numbers[right] - size
    codes = np.where(nearer_left | (tie & (left % 2 == 0)), left, right)
    codes = np.where(np.isnan(values), 2 ** (e + f) - 1, codes)
    return (codes + np.signbit(values) * 2 ** (e + f)).astype(np.int64)

# %% encode: bits of float64, shifted, with a sticky bit
def encode(values, format):
    e, f, top = format
    result = []
    for value in values.tolist():
        sign = 2 ** (e + f) if math_copysign(value) < 0 else 0
        value = abs(value)
        most = 2 ** (e + f) - {"infinity": 2**f, "nan": 2, "finite": 1}[top]
        if value != value:
            result.append(sign + 2 ** (e + f) - 1)
            continue
        if value == float("inf"):
            result.append(sign + most)
            continue
        numerator, denominator = value.as_integer_ratio()
        exponent = numerator.bit_length() - denominator.bit_length() - 1 if value else -1100
        while value and 2.0 ** (exponent + 1) <= value:
            exponent += 1
        exponent = max(exponent, 2 - 2 ** (e - 1))
        shift = f - exponent
        top_, bottom = (numerator << shift, denominator) if shift >= 0 else (numerator, denominator << -shift)
        n, rest = divmod(top_, bottom)
        n += 2 * rest > bottom or (2 * rest == bottom and n % 2 == 1)
        code = n + ((exponent + 2 ** (e - 1) - 2) << f)
        result.append(sign + min(code, most))
    return np.array(result, dtype=np.int64)


def math_copysign(value):
    return float(np.copysign(1.0, value))

# %% affine_parameters: torch.minimum, floor(x + 1/2), and NumPy
def affine_parameters(low, high, bits):
    zero = torch.zeros_like(low)
    low, high = torch.minimum(low, zero), torch.maximum(high, zero)
    width = high - low
    scale = torch.where(width == 0, torch.ones_like(width), width / (2**bits - 1))
    zero_point = torch.floor(-low / scale + 0.5) - 2 ** (bits - 1)
    return scale, zero_point.int()


def quantize(values, scale, zero_point, bits):
    half = 2 ** (bits - 1)
    codes = np.clip(np.floor((values / scale).numpy() + 0.5) + np.asarray(zero_point), -half, half - 1)
    return torch.from_numpy(codes).to(torch.int8)


def dequantize(codes, scale, zero_point):
    return (codes.float() - zero_point) * scale

# %% quantize_groups: a loop over rows and groups
def quantize_groups(weight, bits, group):
    most = 2 ** (bits - 1) - 1
    codes = torch.zeros(weight.shape, dtype=torch.int8)
    scales = torch.ones(weight.shape[0], (weight.shape[1] + group - 1) // group)
    for row in range(weight.shape[0]):
        for g in range(scales.shape[1]):
            piece = weight[row, g * group:(g + 1) * group]
            if piece.abs().max() > 0:
                scales[row, g] = piece.abs().max() / most
            codes[row, g * group:(g + 1) * group] = torch.round(piece / scales[row, g]).to(torch.int8)
    return codes, scales


def dequantize_groups(codes, scales, group):
    columns = torch.arange(codes.shape[1]) // group
    return codes.float() * scales[:, columns]


def bits_per_weight(columns, bits, group, scale_bits=16):
    return (columns * bits + (columns + group - 1) // group * scale_bits) / columns

# %% quantize_groups: rows stacked from lists
def quantize_groups(weight, bits, group):
    most = 2 ** (bits - 1) - 1
    scales = torch.stack([torch.stack([piece.abs().max() for piece in row.split(group)]) for row in weight]) / most
    scales[scales == 0] = 1
    steps = torch.repeat_interleave(scales, group, 1)[:, :weight.shape[1]]
    return (weight / steps).round().clamp(-most, most).char(), scales


def dequantize_groups(codes, scales, group):
    pieces = [piece * scales[:, i:i + 1] for i, piece in enumerate(codes.split(group, 1))]
    return torch.cat(pieces, 1)


def bits_per_weight(columns, bits, group, scale_bits=16):
    return bits + scale_bits * len(range(0, columns, group)) / columns

# %% test_quantize: properties only, without a loop over groups
def test_quantize(candidate):
    for size in (1.0, 2.0**-20, 2.0**12):
        for columns, group, bits in ((12, 4, 4), (11, 4, 3), (5, 8, 8), (33, 32, 2)):
            weight = torch.randn(6, columns) * size * torch.tensor([[1.0], [3], [10], [1], [0], [2]])
            weight[3] = -weight[3].abs()
            keep = weight.clone()
            codes, scales = candidate(weight, bits, group)
            most = 2 ** (bits - 1) - 1
            assert torch.equal(keep, weight) and codes.dtype == torch.int8 and codes.shape == weight.shape
            assert scales.shape == (6, -(-columns // group))
            assert codes.abs().max() <= most
            wide = scales.repeat_interleave(group, 1)[:, :columns]
            assert ((codes * wide - weight).abs() <= 0.51 * wide).all()
            tops = torch.stack([piece.abs().amax(1) for piece in codes.split(group, 1)], 1)
            assert ((tops == most) | (tops == 0)).all()
            assert (scales[4] == 1).all()

# %% test_quantize: a few cases by hand
def test_quantize(candidate):
    weight = torch.tensor([[1.0, -7.0, 3.4, 0.0, 0.0, 14.0], [2.1, 4.0, 6.9, 70.0, 7.0, 1.0]])
    for size in (1.0, 1e-5, 1e5):
        scaled = weight * size
        codes, scales = candidate(scaled, 4, 2)
        want = torch.tensor([[1.0, 3.4 / 7, 2.0], [4 / 7, 10.0, 1.0]]) * size
        torch.testing.assert_close(scales, want, rtol=1e-4, atol=0)
        if codes.tolist() != [[1, -7, 7, 0, 0, 7], [4, 7, 1, 7, 7, 1]]:
            raise AssertionError("codes")
        assert torch.equal(scaled, weight * size)
        assert codes.dtype == torch.int8
        codes, scales = candidate(weight[:, :5] * size, 3, 4)
        torch.testing.assert_close(scales, torch.tensor([[7 / 3 * size, 1.0], [70 / 3 * size, 7 / 3 * size]]), rtol=1e-4, atol=0)

# %% equalised: unit by unit
def equalised(incoming, bias, outgoing):
    incoming, bias, outgoing = incoming.clone(), bias.clone(), outgoing.clone()
    for unit in range(len(bias)):
        row, column = incoming[unit].abs().max(), outgoing[:, unit].abs().max()
        if row > 0 and column > 0:
            middle = torch.sqrt(row * column)
            incoming[unit] *= middle / row
            bias[unit] *= middle / row
            outgoing[:, unit] *= middle / column
    return incoming, bias, outgoing

# %% equalised: powers in float64, with nan_to_num
def equalised(incoming, bias, outgoing):
    ratio = outgoing.double().abs().amax(0) / incoming.double().abs().amax(1)
    factor = torch.where(torch.isfinite(ratio) & (ratio > 0), ratio**0.5, torch.tensor(1.0).double())
    return ((incoming * factor.unsqueeze(1)).float(), (bias * factor).float(), (outgoing / factor).float())

# %% integer_matmul: int64, einsum, and sums by products with ones
def weight_terms(w, w_zero, x_zero):
    rows, depth = w.shape
    return (-x_zero * (w.long() - w_zero) @ torch.ones(depth, dtype=torch.int64)).int()


def integer_matmul(products, x, w_zero, terms):
    ones = torch.ones(1, x.shape[0], dtype=torch.int32)
    return products + terms.reshape(-1, 1) - (w_zero * (ones @ x.int())).int()

# %% integer_matmul: with NumPy
def weight_terms(w, w_zero, x_zero):
    return torch.from_numpy((-x_zero * (w.numpy().astype(np.int64) - w_zero).sum(axis=1)).astype(np.int32))


def integer_matmul(products, x, w_zero, terms):
    return (products.long() - w_zero * x.sum(dim=0) + terms[:, None].long()).int()

# %% int4_matvec_kernel: the magic number 2**23
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
            number = ((words >> 4 * i) & 15 | 0x4B000000).to(tl.float32, bitcast=True) - 8388616.0
            products += number * x_i[None, :]
        total += tl.sum(tl.reshape(products, (ROWS, STEP, WORDS)), 2) * scale
    tl.store(y + row, tl.sum(total, 1))

# %% requantize: frexp and Python's integers
def fixed_point(multiplier):
    fraction, exponent = np.frexp(multiplier)
    m = int(round(float(fraction) * 2**31))
    shift = 31 - int(exponent)
    if m == 2**31:
        m, shift = m // 2, shift - 1
    return m, shift


def requantize(sums, m, shift, zero_point):
    codes = [(2 * total * m + 2**shift) // 2 ** (shift + 1) + zero_point for total in sums.flatten().tolist()]
    codes = torch.tensor([min(127, max(-128, code)) for code in codes]).to(torch.int8)
    return codes.view(sums.shape)

# %% calibrated_range: sorted by hand
def calibrated_range(batches, method):
    if method == "average":
        low, high = float(batches[0].min()), float(batches[0].max())
        for batch in batches[1:]:
            low += 0.1 * (float(batch.min()) - low)
            high += 0.1 * (float(batch.max()) - high)
        return low, high
    values = np.sort(np.concatenate([batch.numpy().ravel() for batch in batches]).astype(float))
    if method == "minmax":
        return float(values[0]), float(values[-1])
    places = np.array([0.001, 0.999]) * (len(values) - 1)
    low, high = np.interp(places, np.arange(len(values)), values)
    return float(low), float(high)

# %% error_aware: the inverse is updated after each column, without a Cholesky factor
def error_aware(weight, inputs, scales, bits):
    most, columns = 2 ** (bits - 1) - 1, weight.shape[1]
    hessian = inputs.double().T @ inputs.double()
    inverse = torch.linalg.inv(hessian + 0.01 * hessian.diagonal().mean() * torch.eye(columns))
    rest, codes = weight.double().clone(), []
    for k in range(columns):
        code = torch.clamp(torch.round(rest[:, k:k + 1] / scales), -most, most)
        error = rest[:, k:k + 1] - code * scales
        rest = rest - error / inverse[k, k] * inverse[k]
        inverse = inverse - torch.outer(inverse[:, k], inverse[k]) / inverse[k, k]
        codes.append(code)
    return torch.cat(codes, 1).to(torch.int8)

# %% two_level_scales: row by row
def two_level_scales(scales, bits):
    most, integers, gammas = 2**bits - 1, [], []
    for row in scales:
        gamma = row.max() / most
        gammas.append(gamma)
        integers.append(torch.clamp(torch.floor(row / gamma + 0.5), 1, most))
    return torch.stack(integers).to(torch.uint8), torch.stack(gammas)[:, None]

# %% kmeans_codebook: cdist and one_hot
def kmeans_codebook(values, bits):
    flat, size = values.reshape(-1, 1), 2**bits
    start, end = values.min(), values.max()
    book = start + (end - start) * torch.arange(size) / (size - 1)
    while True:
        entries = torch.cdist(flat, book[:, None]).argmin(1)
        members = F.one_hot(entries, size).double()
        counts = members.sum(0)
        means = (members * flat.double()).sum(0) / counts.clamp(min=1)
        new = torch.where(counts > 0, means.float(), book)
        if torch.allclose(new, book, rtol=0, atol=0):
            return book, entries.reshape(values.shape)
        book = new


def codebook_gradient(gradient, entries, size):
    return torch.stack([gradient[entries == entry].sum() for entry in range(size)])
