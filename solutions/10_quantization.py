# %% [markdown]
# # 10 · Quantization
#
# **How few bits can a number be?**
#
# After this lab you can
# - read and write every number format from fp32 to fp4 by hand;
# - choose scales, and move outliers to where they do no harm;
# - multiply matrices of integer codes, and predict how fast 4-bit weights can be.
#
# *Needs* labs 01, 02 and 04. *Takes* about 210 minutes: 45 to read, and by exercise (our estimate):
#
# | 1.1 | 1.2 | 2.1 | 2.2 | 2.3 | 2.4 | 3.1 | 4.1 |
# | --- | --- | --- | --- | --- | --- | --- | --- |
# | 20 | 30 | 15 | 20 | 20 | 10 | 15 | 35 |
#
# Write your answers in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F

from common import figures, language_model, ledger
from common.checks import agree, clinic, expect
from common.hardware import device
from common.lessons.quantization import digit_reader, widget
from nogpu import tiles

figures.use_style()
rng = np.random.default_rng()
torch.set_num_threads(1)  # the matrices are small: threads would only wait for each other

# %% tags=["driver"]
device.prepare_triton()  # before anything imports Triton: without a GPU, it interprets part 4's kernel

def judged(source):
    """What your test of exercise 2.3 says of a program: "" if it accepts it."""
    return clinic.verdict(test_quantize, source)

# %% [markdown]
# ## See it
#
# A network reads handwritten digits: 64 pixels, two hidden layers, ten scores, 17,000 weights. Its *twin* rescales two units of each hidden
# layer: their incoming weights and biases are 30 times as large, their outgoing weights 30 times as small. ReLU(30z) is
# 30 ReLU(z), so the twin computes the same function.
#
# Round each weight to b bits: to an integer from −(2ᵇ⁻¹ − 1) to 2ᵇ⁻¹ − 1 times a step. Before you run the second cell: at how many bits
# does the network fail, and at how many its twin?

# %%
nets = [digit_reader.trained(seed) for seed in range(6)]
twins = [digit_reader.rescaled(net, units=[3, 17], factor=30) for net in nets]
pixels, digits = digit_reader.data()
difference = max((net(pixels) - twin(pixels)).abs().max() for net, twin in zip(nets, twins))
print(f"six networks: their scores and their twins' differ by at most {difference:.0e}")
bits = (16, 12, 8, 7, 6, 5, 4, 3, 2)

# %%
def naive(w, bits):
    step = w.abs().max() / (2 ** (bits - 1) - 1)
    return torch.round(w / step) * step

read = {"network": [digit_reader.accuracies(nets, lambda w, b=b: naive(w, b)) for b in bits],
        "its twin": [digit_reader.accuracies(twins, lambda w, b=b: naive(w, b)) for b in bits]}
figures.averages(bits, read, title="The same function, rounded: six networks and their spread",
                 xlabel="bits per weight", ylabel="digits read (%)", falling=True,
                 alt="Digits read by six networks and by their twins, against bits per weight.");

# %% [markdown]
# The network loses nothing down to four bits. Its twin misreads 5 % at six bits, and guesses at five. So *which* numbers should the 2ᵇ codes stand for? And can we compute
# with the codes *without* turning them back into numbers?
#
# ## Part 1 · A number is a code

# %% [markdown]
# A floating-point code has, from the top, a sign bit, exponent bits and f fraction bits. With bias = 2^(exponent bits − 1) − 1 they mean
#
# $$\pm\,(1 + \text{fraction}/2^f) \cdot 2^{\text{exponent} - \text{bias}} \quad \text{if exponent} \ge 1$$
# $$\pm\,(0 + \text{fraction}/2^f) \cdot 2^{1 - \text{bias}} \quad \text{if exponent} = 0$$
#
# For example, fp16 `0 10000 1000000000` is (1 + 512/1024) · 2^(16 − 15) = 3. The second line describes the *subnormals*; they fill the gap around
# 0 with even steps. What is the largest exponent (all ones) for? That differs:

# %% tags=["setup", "shown"]
FORMATS = {  # (exponent bits, fraction bits, what the largest exponent is for)
    "fp32": (8, 23, "infinity"),  # with fraction 0: infinity; with any other: NaN (IEEE 754)
    "bf16": (8, 7, "infinity"),
    "fp16": (5, 10, "infinity"),
    "e5m2": (5, 2, "infinity"),
    "e4m3fn": (4, 3, "nan"),  # for numbers, but all ones is NaN (OCP 8-bit formats, 2023)
    "e2m1": (2, 1, "finite"),  # for numbers: no infinity, no NaN (OCP microscaling formats, 2023)
}
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16,
          "e5m2": torch.float8_e5m2, "e4m3fn": torch.float8_e4m3fn}

# %% [markdown]
# ### Exercise 1.1 · decode
#
# Write these rules as code, for any shape. Someone writes: "the fp16 code `1 10001 1100000000` is −7.1; a NaN is a subnormal; and the smallest fp32 number is
# 2⁻¹⁵⁰." Your function will tell.
#
# <details><summary>Hint 1</summary>
#
# Which two operators cut a field out of an integer? How do you add the leading 1 only where it belongs?
# </details>
# <details><summary>Hint 2</summary>
#
# `codes >> fraction_bits & (2**exponent_bits - 1)` is the exponent.
# As an integer, the significand is `fraction`, plus `2**fraction_bits` if the exponent is not 0.
# `np.ldexp(significand.astype(float), e)` multiplies by 2ᵉ without rounding.
# </details>

# %% tags=["hole"]
def decode(codes, format):
    """Numbers, float64 array, that these codes stand for. A code with the sign bit and 0 is -0.

    codes: int64 array. format: (exponent_bits, fraction_bits, top), as in FORMATS. Compute with the
    fields: PyTorch's and NumPy's own conversions are not allowed. About twelve lines.
    """
    # BEGIN SOLUTION
    exponent_bits, fraction_bits, top = format
    fraction = codes & (2**fraction_bits - 1)
    exponent = codes >> fraction_bits & (2**exponent_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    significand = fraction + np.where(exponent > 0, 2**fraction_bits, 0)
    value = np.ldexp(significand.astype(float), np.maximum(exponent, 1) - bias - fraction_bits)
    largest = exponent == 2**exponent_bits - 1
    if top == "infinity":
        value = np.where(largest, np.where(fraction == 0, np.inf, np.nan), value)
    if top == "nan":
        value = np.where(largest & (fraction == 2**fraction_bits - 1), np.nan, value)
    return np.where(codes >> exponent_bits + fraction_bits & 1, -value, value)
    # END SOLUTION

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for name, code, want, mistakes in oracle.EASY_TO_GET_WRONG:
    got, case = decode(np.array([code]), FORMATS[name]), f"decode([{code:#x}], {name})"
    agree(got, np.array([want]), case, mistakes={k: np.array([wrong]) for k, wrong in mistakes.items()})
oracle.by_fields(decode)
print("decode reads six codes that are easy to get wrong")

# %% tags=["check"]
from common.checks.grader_link import in_place
from common.lessons.quantization import expected as oracle

for name, form in (FORMATS | oracle.OTHERS).items():
    if name != "fp32":  # it has four billion codes
        codes, want = np.arange(2 ** (1 + form[0] + form[1])), oracle.decoded(form)
        agree(in_place(decode, codes)(codes, form), want, f"decode(all {len(codes):,} codes, {form})")
        agree(codes, np.arange(2 ** (1 + form[0] + form[1])), f"the codes, after decode(codes, {form})")
for form in (FORMATS["e2m1"], FORMATS["fp16"]):
    oracle.agree_zeros(decode, form)
agree(decode(np.zeros((2, 0), int), FORMATS["fp16"]), np.zeros((2, 0)), "decode(codes of shape (2, 0))")
oracle.by_fields(decode)
print("decode agrees on every code of eleven formats, and gives zero its sign")

# %% tags=["check", "held-out"]
from common.lessons.quantization import expected as oracle

for _ in range(30):
    top = str(rng.choice(["finite", "infinity", "nan"]))
    form = int(rng.integers(2, 7)), int(rng.integers(0, 6)), top
    codes = rng.permutation(2 ** (1 + form[0] + form[1]))
    agree(decode(codes, form), oracle.decoded(form)[codes], f"decode(all codes, {form})")
oracle.by_fields(decode)
print("decode agrees on every code of 30 random formats")

# %% [markdown]
# <details><summary>What is true?</summary>
#
# The code is −7; a NaN has the *largest* exponent; the smallest fp32 number is 2⁻¹⁴⁹.
# </details>
#
# Training loses the gradients that its format rounds to 0. *Loss scaling* multiplies all gradients by a power of two before they are rounded,
# and divides after. **Find a format of 8 bits and a scale** with which fewer than 1 % of the digits network's gradients become 0, none becomes
# infinite, and the others have a relative error below 6 %.

# %%
model = digit_reader.trained(0).requires_grad_(True)
loss = F.cross_entropy(model(pixels), digits)
gradients = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
magnitudes = gradients[gradients != 0].abs()
widget.number_format(magnitudes.double().numpy(), most_bits=8, lost=0.01, error=0.06)

# %% [markdown]
# ### Exercise 1.2 · encode
#
# The other way: the code of the nearest number. Halfway between two, take the even code. What is too large becomes infinity in formats that have
# it, from half a step beyond the largest number on; else the largest number. NaN becomes any NaN.
#
# Without its sign, a code grows with its number. What does that say about a fraction that rounds up to 2?
#
# <details><summary>Hint 1</summary>
#
# How large is a step near a number? Counted in such steps, which integer is the number's code near?
# </details>
# <details><summary>Hint 2</summary>
#
# `np.frexp` gives the exponent, which must not fall below the smallest normal number's. Divide by the step there and round: n. A normal number's
# code is exponent field · 2^f + (n − 2^f), a subnormal's n.
# </details>

# %% tags=["hole"]
def encode(values, format):
    """Codes, int64 array, of the nearest numbers of this format; ties go to the even code.

    values: float64 array; infinities may occur in all formats, and NaN in formats that have it. A
    format has at least one fraction bit here. Compute the codes: PyTorch's and NumPy's own
    conversions are not allowed. About twelve lines.
    """
    # BEGIN SOLUTION
    exponent_bits, fraction_bits, top = format
    bias, sign = 2 ** (exponent_bits - 1) - 1, 2 ** (exponent_bits + fraction_bits)
    largest_code = sign - {"infinity": 2**fraction_bits, "nan": 2, "finite": 1}[top]
    magnitude = np.where(np.isnan(values), 0, np.minimum(np.abs(values), 2.0 ** (bias + 2)))
    exponent = np.frexp(np.maximum(magnitude, 2.0 ** (1 - bias)))[1].astype(np.int64) - 1
    steps = np.rint(np.ldexp(magnitude, fraction_bits - exponent)).astype(np.int64)  # ties to even
    # A normal number has 2**fraction_bits steps or more: the 1 that its exponent field counts from.
    codes = np.minimum(steps + (exponent + bias - 1 << fraction_bits), largest_code)
    codes = np.where(np.isnan(values), sign - 1, codes)
    return codes + np.where(np.signbit(values), sign, 0)
    # END SOLUTION

# %% tags=["check"]
cases = [("fp16", 1 + 2.0**-11, 0x3C00, 0x3C01, "A tie goes to the even code, not away from zero."),
    ("fp16", 1 + 2.0**-11 + 2.0**-40, 0x3C01, 0x3C00, "Was it cut off, or rounded twice (float32)?"),
    ("fp16", 2 - 2.0**-12, 0x4000, 0x3C00, "This rounds up to 2: the carry goes into the exponent."),
    ("fp16", 2.0**-24, 1, 0, "Numbers below the smallest normal one have subnormal codes."),
    ("fp16", 0.0, 0, 0x3400, "np.frexp says 0 for the exponent of 0: take the smallest normal one's."),
    ("e5m2", 61440.0, 0x7C, 0x7B, "Half a step beyond its largest number, e5m2 has infinity."),
    ("e4m3fn", -np.inf, 0xFE, 0xF8, "e4m3fn has no infinity: what is too large becomes 448."),
    ("e2m1", np.inf, 7, 0, "e2m1 has no infinity: what is too large becomes 6.")]
for name, value, want, wrong, mistake in cases:
    got = encode(np.array([value]), FORMATS[name])
    agree(got, np.array([want]), f"encode([{value}], {name})", mistakes={mistake: np.array([wrong])})
print("encode writes eight numbers that are easy to get wrong")

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for name, form in (FORMATS | oracle.OTHERS).items():
    if form[1] and name != "fp32":  # it has too many
        values = oracle.hard_values(form, rng)
        want, codes = oracle.encoded(values, form), encode(values.copy(), form)
        agree((codes.dtype, codes.shape), (np.dtype(np.int64), values.shape), f"form of codes, {name}")
        oracle.expect_nan(encode(np.array([np.nan]), form), form, f"encode([nan], {name})")
        first = np.flatnonzero(codes != want)[:1]
        agree(codes[first], want[first], f"encode({values[first]}, {form})", mistakes={
            "The sign is kept, that of zero, too.": want[first] ^ 2 ** (form[0] + form[1])})
agree(encode(np.array([[1.0, -2]]), FORMATS["fp16"]), np.array([[15360, 49152]]), "encode([[1, -2]])")
print("encode writes the numbers of ten formats, the points halfway, and their neighbours")

# %% tags=["check", "held-out"]
from common.lessons.quantization import expected as oracle

for name, form in (FORMATS | oracle.OTHERS).items():
    if form[1] == 0 or name == "fp32":
        continue
    codes, sign = encode(np.array([np.nan, 1.0, -1.0]), form), 2 ** (form[0] + form[1])
    one = (2 ** (form[0] - 1) - 1) * 2 ** form[1]
    agree(codes[1:], np.array([one, one + sign]), f"encode([1, -1], {name})")
    expect(oracle.is_nan(codes[:1], form), f"encode([nan], {name}) gave {codes[0]}, not a NaN's code")
print("encode knows NaN, and 1 in ten formats")

# %% tags=["check", "held-out"]
from common.lessons.quantization import expected as oracle

for _ in range(30):
    top = str(rng.choice(["finite", "infinity", "nan"]))
    form = int(rng.integers(2, 7)), int(rng.integers(1, 6)), top
    most = oracle.numbers(form)[-1]
    values = np.concatenate([oracle.hard_values(form, rng), rng.uniform(-1.2 * most, 1.2 * most, 50)])
    agree(encode(values.copy(), form), oracle.encoded(values, form), f"encode(values, {form})")
print("encode agrees with a search among the numbers of 30 formats")

# %% [markdown]
# **A format spends its bits on range or on precision.**
#
# ## Part 2 · Integers with a scale
#
# The cheapest arithmetic wants evenly spaced numbers: then the code is an integer to compute with. A *scale* S (the step) and a
# *zero-point* Z (the code of 0) place the grid:
#
# $$r = S\,(q - Z)$$
#
# Zero must be hit exactly, because padding and ReLU make a great many zeros, and errors on them would add up. So Z is an integer, and the range
# includes 0.

# %% [markdown]
# ### Exercise 2.1 · affine_parameters
#
# S = (high − low) / (q_max − q_min) and Z = round(q_min − low / S). Someone writes: "signed n-bit integers run from −2ⁿ⁻¹ − 1 to
# 2ⁿ⁻¹ − 1." Count them before you use them.
#
# Write these parameters and the two directions, `quantize` from values to codes and `dequantize` back. A value beyond the range gets the
# code at its end.

# %% tags=["hole"]
def affine_parameters(low, high, bits):
    """(scale, zero_point), float32 and int32 tensors, with which signed codes cover low to high.

    low, high: float32 tensors of one shape. The range is widened to include 0; if it then has no width,
    scale is 1. About five lines.
    """
    # BEGIN SOLUTION
    q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = torch.where(high > low, (high - low) / (q_max - q_min), 1.0)
    return scale, torch.round(q_min - low / scale).to(torch.int32)
    # END SOLUTION


def quantize(values, scale, zero_point, bits):
    """Codes, int8 tensor, nearest to float32 values. About two lines.

    scale: float32 tensor. zero_point: int32 tensor or int. Both broadcast against the values,
    which stay as they are.
    """
    # BEGIN SOLUTION
    codes = torch.round(values / scale) + zero_point
    return codes.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)
    # END SOLUTION


def dequantize(codes, scale, zero_point):
    """The float32 values that int8 codes stand for. zero_point: int32 tensor or int. One line."""
    # BEGIN SOLUTION
    return scale * (codes.to(torch.int32) - zero_point)
    # END SOLUTION

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for case in oracle.affine_cases(rng):
    agree(affine_parameters(*case.args), case.want, case.text, rtol=1e-6, mistakes=case.mistakes)
print("affine_parameters places the grid for 100 ranges of 2, 3, 4 and 8 bits")

# %% tags=["check"]
from common.checks.grader_link import in_place

low, high = torch.tensor([[1.0], [-3.0], [0.0]]), torch.tensor([[2.55], [-2.55], [0.0]])
want = torch.tensor([[0.01], [3 / 255], [1.0]]), torch.tensor([[-128], [127], [-128]]).int()
narrow = torch.tensor([[1.55 / 255], [0.45 / 255], [1.0]]), torch.tensor([[-293], [1572], [-128]]).int()
case = "affine_parameters of 1 to 2.55, of -3 to -2.55 and of 0 to 0, in 8 bits"
before, got = [low.clone(), high.clone()], in_place(affine_parameters, low, high)(low, high, 8)
agree([low, high], before, "low and high, after affine_parameters(low, high, 8)")
agree(got, want, case, rtol=1e-6, mistakes={
    "0 is not in all of these ranges: widen them first.": narrow})
print("affine_parameters widens a range to 0, and gives one of no width the scale 1")

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for case in oracle.quantize_cases():
    agree(quantize(*case.args), case.want, case.text, mistakes=case.mistakes)
for case in oracle.dequantize_cases():
    agree(dequantize(*case.args), case.want, case.text, mistakes=case.mistakes)
print("quantize and dequantize pass some cases by hand")

# %% tags=["check", "held-out"]
from common.checks.grader_link import afresh, in_place

said = []  # by quantize, before dequantize is called
for bits in (8, 5, 4, 2):
    q_min, levels = -(2 ** (bits - 1)), 2**bits
    scale = torch.from_numpy(rng.uniform(0.01, 2, (9, 1))).float()
    zero = torch.from_numpy(rng.integers(q_min, -q_min, (9, 1))).int()
    numbers = scale * (torch.arange(q_min, -q_min) - zero)  # (9, levels): all that codes can say
    values = torch.from_numpy(rng.uniform(-0.7, 0.7, (9, 31))).float() * levels * scale
    nearest = (values[:, :, None] - numbers[:, None, :]).abs().amin(2)
    given = values.clone()
    codes = in_place(quantize, given)(given, scale, zero, bits)
    agree(given, values, "the values, after quantize(values, scale, zero_point, bits)")
    least, most = int(codes.min()), int(codes.max())
    expect(q_min <= least <= most < -q_min, f"quantize, {bits} bits: codes from {least} to {most}")
    said.append([bits, codes, scale, zero, values, nearest])
for i, (bits, codes, scale, zero, values, nearest) in enumerate(said):
    call = dequantize if i else afresh(dequantize)  # in a process that has not seen the values
    back = call(codes, scale, zero)
    case = f"the distance of dequantize(quantize(values, ..., {bits})) from the values"
    agree((back - values).abs(), nearest, case, atol=1e-4)
print("quantize picks the nearest of all codes, and dequantize says what they stand for")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which range covers both 0 and every value? A code beyond either end gets that end's code.
# </details>
#
# ### Exercise 2.2 · quantize_groups
#
# One scale for a whole matrix is set by its largest weight, and every other weight pays. So give each row a scale, or each run of g weights
# within a row (a *group*). The last group of a row may be shorter; a group never reaches into the next row. Scales are stored too:
# `bits_per_weight` counts them.
#
# Weights are centred on 0 and need no zero-point. The largest magnitude of a group gets the code ±(2ᵇ⁻¹ − 1), and −2ᵇ⁻¹ stays unused.

# %% tags=["hole"]
def quantize_groups(weight, bits, group):
    """(codes, scales): int8 (rows, columns) and float32 (rows, groups per row), symmetric.

    weight: float32 (rows, columns). Each `group` columns of a row have a scale, the last ones too if
    they are fewer. The scale of a group of zeros is 1. About eight lines.
    """
    # BEGIN SOLUTION
    rows, columns = weight.shape
    padded = F.pad(weight, (0, -columns % group))  # zeros change no maximum
    groups = padded.view(rows, -(-columns // group), group)
    scales = groups.abs().amax(2) / (2 ** (bits - 1) - 1)
    scales = torch.where(scales > 0, scales, 1.0)
    codes = torch.round(groups / scales[:, :, None]).to(torch.int8)
    return codes.flatten(1)[:, :columns].contiguous(), scales
    # END SOLUTION


def dequantize_groups(codes, scales, group):
    """The float32 weights, (rows, columns), that these codes and scales stand for. One line."""
    # BEGIN SOLUTION
    return codes * scales.repeat_interleave(group, dim=1)[:, :codes.shape[1]]
    # END SOLUTION


def bits_per_weight(columns, bits, group, scale_bits=16):
    """Bits per weight, a float, scales included, in a row of `columns` weights. About two lines.

    The last group may be shorter; its scale is not.
    """
    # BEGIN SOLUTION
    scales = -(-columns // group)
    return bits + scales * scale_bits / columns
    # END SOLUTION

# %% tags=["check"]
from common.checks.grader_link import in_place
from common.figures import memory_drawings
from common.lessons.quantization import expected as oracle

for rows, columns, group, power in [(4, 8, 4, 0), (3, 10, 8, -30), (5, 9, 2, 10), (2, 7, 9, -15)]:
    weight = oracle.uneven_rows(rng, rows, columns) * 2.0**power
    want, mistakes, before = *oracle.scales_of_four_bits(weight, group), weight.clone()
    _, scales = in_place(quantize_groups, weight)(weight, 4, group)
    case, title = f"scales of {rows} × {columns}, groups of {group}", "scales by row"
    agree(scales, want, case, rtol=1e-6, mistakes=mistakes,
          draw=lambda got=scales, want=want: memory_drawings.compare(got, want, title=title))
    agree(weight, before, "the weights, after quantize_groups(weight, 4, group)")
print("quantize_groups keeps its groups within rows, for weights of all sizes")

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for rows, columns, group, bits in oracle.SHAPES:
    weight, case = oracle.uneven_rows(rng, rows, columns, group), f"{rows} × {columns}, {bits} bits"
    want = oracle.group_scales(weight, bits, group)
    codes, scales = quantize_groups(weight.clone(), bits, group)
    agree((codes.dtype, tuple(codes.shape)), (torch.int8, (rows, columns)), f"form of codes, {case}")
    zero = {"A group of zeros has scale 1: a scale of 0 divides by zero.": want * (want != 1)}
    agree(scales, want, f"scales, {case}, the first group 0", rtol=1e-6, mistakes=zero)
    oracle.expect_nearest(weight, codes, scales, group)
    given, back, confused = oracle.to_restore(rng, want, columns, group)
    agree(dequantize_groups(given, want, group), back, f"back, {case}", rtol=1e-6, mistakes=confused)
print("quantize_groups picks the nearest codes, and dequantize_groups reads them, for five shapes")

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for _ in range(100):
    columns, bits, scale_bits = (int(rng.integers(2, end)) for end in (500, 17, 33))
    group = int(rng.integers(1, columns // 2 + 1))
    want = oracle.bits_per_weight(columns, bits, group, scale_bits)
    case = f"bits_per_weight({columns}, {bits}, {group}, {scale_bits})"
    agree(bits_per_weight(columns, bits, group, scale_bits), want, case, rtol=1e-12, mistakes={
        "The scales are missing.": float(bits),
        "The last, shorter group has a scale, too.": bits + columns // group * scale_bits / columns,
        "The scale of a shorter group is as large as another's.": bits + scale_bits / group})
agree([bits_per_weight(8192, 4, 128), bits_per_weight(5, 4, 128)], [4.125, 7.2], "8192 and 5 columns")
print("bits_per_weight counts the scales of 102 rows")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How can every row consist of whole groups, without changing any group's maximum?
# </details>
# <details><summary>Hint 2</summary>
#
# Pad the columns with zeros (`F.pad`), and view the rows as (rows, groups, group). At the end, cut the codes back.
# </details>
#
# How large is the error? If a value falls anywhere within a step of width S, its rounding error is spread evenly from −S/2 to S/2, and the mean
# of its square is S²/12. That **predicts** the error from the scales alone: the lines. The dots are measured, on the twin's middle layer.

# %%
def errors(weight, bits, group):
    weight = weight.view(1, -1) if group > 128 else weight  # one scale per matrix: a single long row
    codes, scales = quantize_groups(weight, bits, group)
    error = dequantize_groups(codes, scales, group) - weight
    return (scales.square().mean() / 12).sqrt().item(), error.square().mean().sqrt().item()

kinds, bits = {"one per 16 weights": 16, "one per row": 128, "one per matrix": 8192}, range(2, 9)
both = {kind: np.transpose([errors(twins[0][2].weight, b, group) for b in bits])
        for kind, group in kinds.items()}

# %%
predicted = {kind: list(lines) for kind, (lines, _) in both.items()}
measured = {kind: list(dots) for kind, (_, dots) in both.items()}
ax = figures.predicted_and_measured(
    bits, predicted, measured, log="y", xlabel="bits per weight", ylabel="error (root mean square)",
    title="Do the scales alone predict the error?", ax=plt.subplots(figsize=(7.2, 3.6))[1])
missed = {kind: max(np.divide(predicted[kind], measured[kind])) for kind in kinds}
figures.describe(ax, "Predicted over measured error, at most: "
                     + ", ".join(f"{kind} {times:.1f}" for kind, times in missed.items()))

# %% [markdown]
# The lines miss by at most 8 %, but with one scale per matrix by up to 5.6 times: at 2 bits, 99 % of the weights round to 0.
#
# **The largest number in a group sets the error of all others.**
#
# ### Exercise 2.3 · test_quantize
#
# A clinic. Our hidden `quantize_groups` are right or wrong. Write the test that tells them apart: it accepts all right programs (some round ties
# the other way, or have another last bit in their scales) and refuses at least eleven of fourteen wrong ones.
#
# <details><summary>Hint 1</summary>
#
# Go through exercise 2.2 sentence by sentence. Which input breaks a program that forgot this one?
# </details>
# <details><summary>Hint 2</summary>
#
# Test form, scales, and errors (half a step at most). Choose inputs at the edge of each rule.
# </details>

# %% tags=["hole"]
def test_quantize(candidate):
    """Raises AssertionError if candidate is not a right quantize_groups; otherwise returns None.

    candidate(weight, bits, group) gives (codes, scales) as exercise 2.2 describes. About fifteen lines.
    """
    # BEGIN SOLUTION
    generator = torch.Generator().manual_seed(0)
    for rows, columns, group, bits in [(4, 12, 4, 4), (3, 10, 4, 8), (5, 7, 9, 3), (1, 40, 32, 5)]:
        for size in (1.0, 1e-6, 1e4):
            weight = size * torch.randn(rows, columns, generator=generator)
            weight[0, :group] = 0
            weight[-1, -1] = -5 * size  # the largest magnitude is negative, in a last group
            before = weight.clone()
            codes, scales = candidate(weight, bits, group)
            assert torch.equal(weight, before), "the weights were changed"
            assert codes.dtype == torch.int8 and codes.shape == weight.shape
            assert scales.dtype == torch.float32 and scales.shape == (rows, -(-columns // group))
            for i in range(rows):
                for g in range(scales.shape[1]):
                    part = weight[i, g * group:(g + 1) * group]
                    want = part.abs().max() / (2 ** (bits - 1) - 1) if part.any() else torch.tensor(1.0)
                    assert (scales[i, g] - want).abs() <= 1e-5 * want
                    error = codes[i, g * group:(g + 1) * group] * scales[i, g] - part
                    assert (error.abs() <= 0.501 * want).all()
    # END SOLUTION

# %% tags=["check"]
print(clinic.score("quantize", judged, par=11, rng=rng))

# %% [markdown]
# ### Exercise 2.4 · equalised
#
# The twin's outliers come only from rescaled units. Before you round, rescale them again: divide each hidden unit's incoming weights and bias
# by a factor and multiply its outgoing weights by it, such that the largest magnitudes of the two become equal. (For the activations of language
# models, this is called *SmoothQuant*.)

# %% tags=["hole"]
def equalised(incoming, bias, outgoing):
    """(incoming, bias, outgoing): new tensors of a network that computes the same function.

    incoming: float32 (units, inputs). bias: (units,). outgoing: (outputs, units). Afterwards the
    largest magnitudes of row u of incoming and of column u of outgoing are equal. A unit where one of
    them is 0 stays as it is. About five lines.
    """
    # BEGIN SOLUTION
    row, column = incoming.abs().amax(1), outgoing.abs().amax(0)
    factor = torch.where((row > 0) & (column > 0), (row / column).sqrt(), 1.0)
    return incoming / factor[:, None], bias / factor, outgoing * factor
    # END SOLUTION

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

incoming, bias = torch.tensor([[-8.0, 1.0], [0.0, 0.0], [1.0, 3.0]]), torch.tensor([4.0, 5.0, 6.0])
outgoing = torch.tensor([[0.5, 7.0, 0.0], [-0.25, 1.0, 0.0]])
want = (torch.tensor([[-2.0, 0.25], [0.0, 0.0], [1.0, 3.0]]), torch.tensor([1.0, 5.0, 6.0]),
        torch.tensor([[2.0, 7.0, 0.0], [-1.0, 1.0, 0.0]]))
case = "equalised([[-8, 1], [0, 0], [1, 3]], [4, 5, 6], [[0.5, 7, 0], [-0.25, 1, 0]])"
mistakes = oracle.equalised_mistakes(incoming, bias, outgoing)
agree(equalised(incoming, bias, outgoing), want, case, rtol=1e-5, mistakes=mistakes)
print("equalised leaves units without inputs or outputs alone")

# %% tags=["check"]
from common.checks.grader_link import in_place
from common.lessons.quantization import expected as oracle

for units, inputs, outputs, power in [(5, 7, 4, 0), (1, 1, 1, 3), (9, 3, 6, 10), (4, 8, 2, -20)]:
    three, x = oracle.hidden_layer(rng, units, inputs, outputs, 2.0**power), oracle.samples(rng, inputs)
    want, tops, before = oracle.scores(*three, x), oracle.tops(*three), [part.clone() for part in three]
    got, shapes = in_place(equalised, *three)(*three), [tuple(part.shape) for part in before]
    agree(list(three), before, "the arguments of equalised, after the call")
    agree([tuple(part.shape) for part in got], shapes, "shapes of what equalised gave")
    agree([got[0].abs().amax(1), got[2].abs().amax(0)], [tops, tops], "largest magnitudes", rtol=1e-4)
    atol = 1e-4 * float(want.abs().max())
    agree(oracle.scores(*got, x), want, "scores of the equalised network", atol=atol)
print("equalised keeps the function and makes the largest magnitudes equal, for four networks")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A unit's largest incoming weight is 8, its largest outgoing weight ½. What must both become?
# </details>
# <details><summary>Hint 2</summary>
#
# 2, their geometric mean. So divide by 4: the square root of what, in general?
# </details>
#
# The first figure again, for the twins, with the scales counted in. **Predict**: which curves survive at four bits?

# %%
def rounded(weight, bits, group):
    rows = weight.reshape(1, -1) if group > 128 else weight  # one scale per matrix: a single long row
    codes, scales = quantize_groups(rows, bits, group)
    return dequantize_groups(codes, scales, group).view_as(weight)

smoothed = [digit_reader.rewired(twin, equalised) for twin in twins]
kinds = {"one per matrix": (twins, 8192), "the same, equalised first": (smoothed, 8192),
         "one per row": (twins, 128), "one per 32 weights": (twins, 32)}

# %%
bits, wrong, sizes = (8, 6, 5, 4, 3, 2), {}, {}
for kind, (which, group) in kinds.items():
    right = [digit_reader.accuracies(which, lambda w, b=b, g=group: rounded(w, b, g)) for b in bits]
    wrong[kind] = 100 - np.array(right)
    sizes[kind] = [bits_per_weight(max(128, group), b, group) for b in bits]
figures.averages(sizes, wrong, title="What four rescaled units cost", log="y", falling=True,
                 xlabel="bits per weight, scales included", ylabel="digits misread (%)",
                 alt=f"Digits misread at 4 bits (%): {[round(x[3].mean()) for x in wrong.values()]}");

# %% [markdown]
# All but one survive. At four bits, a scale per row, a scale per group and equalised units misread 2 to 3 %; one scale per matrix
# misreads 91 %. Equalised, it is as good as a scale per row down to four bits, and fails at two.
#
# Must the sixteen numbers be evenly spaced? Your formats have e2m1: 0, ½, 1, 1½, 2, 3, 4, 6 and the same below 0. `as_fp4` scales like
# `quantize_groups`, but rounds with your `encode`. **Predict**: for which groups is it better than int4, on weights of the language model (nearly
# normal), and on numbers with heavy tails (Student's t with 3 degrees of freedom)?

# %%
def as_int4(rows, group):
    return dequantize_groups(*quantize_groups(rows, 4, group), group)

def as_fp4(rows, group):
    tops = rows.reshape(-1, group).abs().amax(1, keepdim=True) / 6  # 6: the largest number of e2m1
    codes = encode((rows.reshape(-1, group) / tops).double().numpy(), FORMATS["e2m1"])
    return (torch.from_numpy(decode(codes, FORMATS["e2m1"])) * tops).float().view_as(rows)

# %%
groups, weights = [16, 32, 64, 128, 256], language_model.weights()
rows = {"heavy tails": torch.tensor(np.random.default_rng(0).standard_t(3, (64, 1024))).float(),
        "language model": torch.tensor(weights["blocks.0.up"]).view(-1, 1024)}
error = {f"{kind}, {grid.__name__[3:]}": [[((grid(w, g) - w).std() / w.std()).item()] for g in groups]
         for kind, w in rows.items() for grid in (as_int4, as_fp4)}
figures.averages(groups, error, title="Evenly spaced, or denser around 0?", log="xy",
                 xlabel="weights per scale", ylabel="error / spread of the weights",
                 alt="Errors of int4 and fp4 by group: heavy tails, and the language model.");

# %%
text = [language_model.tokens(620_000 + 3_000 * i, 129) for i in range(20)]  # not trained on these
print(f"fp32: loss {np.mean([language_model.loss(part) for part in text]):.3f} nats per character")
for grid, group in ((as_int4, 16), (as_fp4, 16), (as_int4, 128), (as_fp4, 128)):
    tensors = {name: torch.tensor(w) for name, w in weights.items()}
    changed = {name: (grid(w, group) if w.ndim == 2 else w).numpy() for name, w in tensors.items()}
    loss = np.mean([language_model.loss(part, changed) for part in text])
    bits = bits_per_weight(128, 4, group)
    print(f"{grid.__name__}, groups of {group:3}, {bits:.3f} bits: loss {loss:.3f}")

# %% [markdown]
# On the model's weights, int4 wins in groups of 16 and 32, fp4 from 64 on; with heavy tails, fp4 always. There, the largest weight is far from
# all others. The model's loss follows.
#
# **Outliers set the scale. Give them their own group, move them, or use a grid that is dense where the others are.**
#
# ## Part 3 · Arithmetic on codes
#
# Put r = S(q − Z) into the product of weights and activations:
#
# $$\sum_k w_{nk}\,x_{km} \;=\; S_W S_X \sum_k (q^W_{nk} - Z_W)(q^X_{km} - Z_X)$$
#
# An integer unit multiplies int8 by int8. But q − Z runs from −255 to 255: nine bits.

# %% [markdown]
# ### Exercise 3.1 · integer_matmul
#
# Multiply the bracket out. Only one of the four terms multiplies q by q in its inner loop; the unit has computed it for you (`products`). Two of the
# others know the weights alone: `weight_terms` computes them once, when the model is loaded. `integer_matmul` puts all together. It is
# never told Z_X or the weights.
#
# <details><summary>Hint 1</summary>
#
# Which factors don't depend on k? They can leave their sums.
# </details>
# <details><summary>Hint 2</summary>
#
# Σ q^W q^X − Z_W Σ q^X − Z_X Σ q^W + Σ Z_W Z_X. How many summands has the last sum?
# </details>

# %% tags=["hole"]
def weight_terms(w, w_zero, x_zero):
    """What the product owes to the weights and the zero-points alone: int32 tensor (rows,).

    w: int8 codes (rows, K). w_zero, x_zero: ints. About two lines.
    """
    # BEGIN SOLUTION
    return w.shape[1] * w_zero * x_zero - x_zero * w.sum(1, dtype=torch.int32)
    # END SOLUTION


def integer_matmul(products, x, w_zero, terms):
    """The sum over k of (w - w_zero)(x - x_zero): int32 tensor (rows, columns). One or two lines.

    products: int32 (rows, columns), the sum over k of w · x; it stays as it is. x: int8 codes
    (K, columns). terms: weight_terms of the weights, which know x_zero.
    """
    # BEGIN SOLUTION
    return products - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]
    # END SOLUTION

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for rows, depth in [(2, 3), (1, 1), (5, 0), (0, 4), (3, 700), (17, 33)]:
    w = torch.from_numpy(rng.integers(-128, 128, (rows, depth)))
    w_zero, x_zero = (rng.integers(3, 100, 2) * rng.choice([-1, 1], 2)).tolist()
    want, mistakes = oracle.weight_terms(w, w_zero, x_zero)
    got = weight_terms(w.to(torch.int8), w_zero, x_zero)
    agree(got, want, f"weight_terms(w {rows} × {depth}, {w_zero}, {x_zero})", mistakes=mistakes)
print("weight_terms is exact for six shapes")

# %% tags=["check"]
from common.checks.grader_link import in_place
from common.lessons.quantization import expected as oracle

for m, k, n in [(2, 3, 4), (1, 1, 1), (5, 0, 3), (0, 4, 2), (3, 3000, 2), (9, 33, 9)]:
    w, x = (torch.from_numpy(rng.integers(k // 14 - 128, 128, shape)) for shape in ((m, k), (k, n)))
    w_zero, x_zero = (rng.integers(3, 100, 2) * rng.choice([-1, 1], 2)).tolist()
    products, (terms, _) = (w @ x).int(), oracle.weight_terms(w, w_zero, x_zero)
    want, mistakes = oracle.integer_matmul(w, x, w_zero, x_zero)
    got = in_place(integer_matmul, products)(products, x.to(torch.int8), w_zero, terms)
    agree(products, (w @ x).int(), "the products, after integer_matmul")
    case = f"integer_matmul(products {m} × {n}, x {k} × {n}, {w_zero}, ...)"
    agree(got, want, case, mistakes=mistakes)
print("integer_matmul is exact for six shapes, both zero-points other than 0")

# %% tags=["check", "held-out"]
for fill in (-128, 127):
    w = torch.full((2, 4000), fill)
    x = torch.from_numpy(rng.choice([-128, 127], (4000, 3), p=[0.1, 0.9]))
    w_zero, x_zero = int(rng.integers(100, 128)), -int(rng.integers(100, 129))
    want, codes = ((w - w_zero) @ (x - x_zero)).int(), w.to(torch.int8)
    products = (w @ x).int()
    got = integer_matmul(products, x.to(torch.int8), w_zero, weight_terms(codes, w_zero, x_zero))
    agree(got, want, f"integer_matmul of extreme codes, K = 4000, zero-points {w_zero} and {x_zero}")
print("integer_matmul is exact at the ends of the range")

# %% [markdown]
# The whole network on int8 codes, weights and activations, with the range of each layer's input taken from the batch itself:

# %%
def int8_layer(layer, x):
    x_scale, x_zero = affine_parameters(x.min(), x.max(), 8)
    w_scale, w_zero = affine_parameters(layer.weight.min(), layer.weight.max(), 8)
    w, codes = quantize(layer.weight, w_scale, w_zero, 8), quantize(x, x_scale, x_zero, 8).T
    terms = weight_terms(w, int(w_zero), int(x_zero))
    products = w.int() @ codes.int()  # what the integer unit does
    sums = integer_matmul(products, codes, int(w_zero), terms)
    return w_scale * x_scale * sums.T + layer.bias

# %%
def int8_network(net, x):
    return int8_layer(net[4], F.relu(int8_layer(net[2], F.relu(int8_layer(net[0], x)))))

for kind, group in {"networks": nets, "twins": twins, "equalised twins": smoothed}.items():
    real = np.mean([digit_reader.accuracy(net) for net in group])
    in_int8 = [digit_reader.accuracy(lambda x, net=net: int8_network(net, x)) for net in group]
    print(f"{kind:16} float32 {real:.1f} %   int8 {np.mean(in_int8):.1f} %")

# %% [markdown]
# Only the twins lose: 0.6 points. What do integers save? Energy in a 45 nm chip, in picojoules (newer chips need less, in similar proportions):
#
# | | fp32 | int8, added in int32 |
# | --- | --- | --- |
# | multiply and add | 4.6 | 0.3 |
# | fetch one number from DRAM | 640 | 160 |
#
# **Predict**: by which factor does int8 lower the energy if each weight is used once per fetch (one token of a language model), and if
# it is used 1,000 times?
#
# <details><summary>Answer</summary>
#
# Once: 644.6 / 160.3 = 4.0: only the fetch counts. 1,000 times: 5.24 / 0.46 = 11: mostly arithmetic.
# </details>
#
# **Zero-points leave the inner loop: what is left is integers times integers.**

# %% [markdown]
# ## Part 4 · Four bits: how much faster?
#
# **Recall** (lab 02). For each token, a language model multiplies each matrix by one vector. How long must an H200 (4.28 TB/s) take for 8192 × 8192
# bf16 weights? With 4.125 bits?
#
# <details><summary>Answer</summary>
#
# 31 µs to read 2 · 8192² bytes; in 4.125 bits 8.1 µs, *if* the kernel unpacks that fast.
# </details>
#
# The usual unpacking shifts, masks, subtracts 8 and converts. Part 1 knows better. Read as an fp32 code, an integer n < 2²³ is the *subnormal*
# n · 2⁻¹⁴⁹. So mask a *nibble*, four bits, *where it stands*: for i ≤ 4, word & (15 << 4i) is nibble · 2^(4i − 149).

# %% [markdown]
# Multiply that by x · 2^(100 − 4i): each product is nibble · x · 2⁻⁴⁹, with one mask and one multiply-add per weight. Nibbles 5 to 7 would reach into
# the exponent. So for nibbles 4 to 7, first shift the word right by 12: then they stand at places 1 to 4. (A compiler that flushes subnormals to 0 would break this;
# Triton's does not.)
#
# A stored nibble is the code plus 8: a zero-point. You know where it goes: out of the inner loop, as 8 times a sum of x that all rows share.

# %% tags=["driver"]
import triton
import triton.language as tl

from common.lessons.quantization import int4


def pack_int4(codes, group):
    """int32 words (rows, columns / 8), each of eight codes plus 8.

    Nibble i (bits 4 i to 4 i + 3) of word c of a group is the group's column i * group / 8 + c.
    """
    nibbles = (codes.to(torch.int64) + 8).view(len(codes), -1, 8, group // 8)
    words = (nibbles << 4 * torch.arange(8, device=codes.device)[:, None]).sum(2)
    return words.to(torch.int32).view(len(codes), -1)


def int4_matvec(codes, scales, x):
    """y = W x, float32 (rows,), with W = codes * scales by groups; scales and x in bf16."""
    packed = pack_int4(codes, codes.shape[1] // scales.shape[1])
    return int4.matvec(int4_matvec_kernel, packed, scales, x)

# %% [markdown]
# ### Exercise 4.1 · int4_matvec_kernel
#
# Write the kernel: y = W x with 4-bit codes in groups, packed as `pack_int4` says. Without a GPU, Triton's interpreter runs it. The usual
# unpacking passes the first check. The second counts integers that become floats: with subnormals, none do.
#
# Each step takes a tile of words, (ROWS, STEP · WORDS): some rows, and in each of them STEP groups of WORDS words. For each of the eight
# nibbles load the numbers of x that belong to these columns. Sum over the words of a group (`tl.reshape` to three axes, `tl.sum`), then
# multiply by the scales, (ROWS, STEP). Load in bf16, compute in float32.

# %% tags=["hole"]
@triton.jit
def int4_matvec_kernel(packed, scales, x, y, GROUPS: tl.constexpr, WORDS: tl.constexpr,
                       ROWS: tl.constexpr, STEP: tl.constexpr):
    """y (rows,) float32 = W x, for the ROWS rows of this program. About twenty lines.

    packed: int32 (rows, GROUPS * WORDS). scales: bf16 (rows, GROUPS). x: bf16 (GROUPS * 8 * WORDS,).
    All row-major. ROWS divides the rows, STEP divides GROUPS.
    """
    # BEGIN SOLUTION
    CELLS: tl.constexpr = STEP * WORDS  # words of a row in a step
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, CELLS // 4), tl.float32)  # one sum per lane; lanes are added at the end
    for first in range(0, GROUPS * WORDS, CELLS):
        cell = first + tl.arange(0, CELLS)
        lane = first // 4 + tl.arange(0, CELLS // 4)  # a lane loads four words, 16 bytes, of one group
        words = tl.load(packed + row[:, None] * (GROUPS * WORDS) + cell[None, :],
                        eviction_policy="evict_first")  # read once: leave the cache to x
        scale = tl.load(scales + row[:, None] * GROUPS + lane[None, :] // (WORDS // 4)).to(tl.float32)
        columns = x + cell // WORDS * (8 * WORDS) + cell % WORDS  # of nibble 0
        products = tl.zeros((ROWS, CELLS), tl.float32)  # in units of 2**-49
        x_sum = tl.zeros((CELLS,), tl.float32)
        for half in tl.static_range(2):
            bits = words >> 12 * half
            for i in tl.static_range(4):
                x_i = tl.load(columns + (4 * half + i) * WORDS).to(tl.float32)
                nibble = (bits & (15 << 4 * (i + half))).to(tl.float32, bitcast=True)
                products += nibble * (x_i * 2.0 ** (100 - 4 * (i + half)))[None, :]
                x_sum += x_i
        products -= (8 * 2.0**-49) * x_sum[None, :]
        total += tl.sum(tl.reshape(products, (ROWS, CELLS // 4, 4)), 2) * scale
    tl.store(y + row, tl.sum(total, 1) * 2.0**49)
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.quantization import expected as oracle

for codes, scales, x, case in oracle.matvec_cases(rng):
    got = oracle.counted(int4_matvec_kernel, codes, scales, x)
    agree(got, case.want, case.text, rtol=1e-5, atol=case.atol, mistakes=case.mistakes)
print("int4_matvec_kernel reads each single column, and agrees with float64 for four shapes")

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for rows, groups, group in [(8, 4, 32), (16, 2, 128)]:
    packed, scales, x, want = oracle.packed_product(rng, rows, groups, group)
    sizes = {"GROUPS": groups, "WORDS": group // 8, "ROWS": 8, "STEP": 2}
    y = torch.zeros(rows)
    report = tiles.count(int4_matvec_kernel, (rows // 8,), packed, scales, x, y, **sizes)
    agree(y, want, f"y, counted, for {rows} rows of {groups} groups of {group}", atol=1e-3)
    each, chosen = (n / (rows * groups * group) for n in (report.conversions, report.selects))
    advice = "A nibble that is read as a subnormal needs no conversion."
    expect(each <= 0.25, f"int4_matvec_kernel: {each:g} integers per weight become floats. {advice}")
    expect(chosen <= 4, f"int4_matvec_kernel: {chosen:g} numbers per weight by tl.where. {advice}")
print("int4_matvec_kernel converts no weight from integer to float")

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write down one row of two groups. Which columns do the nibbles of its first word belong to?
# </details>
# <details><summary>Hint 2</summary>
#
# The usual way has `((words >> 4 * i) & 15) - 8` for i in `tl.static_range(8)`. The other one has
# `(words & (15 << 4 * i)).to(tl.float32, bitcast=True)`. Word number `cell` of a row is word `cell % WORDS` of group `cell // WORDS`, and its
# nibble i belongs to column `cell // WORDS * 8 * WORDS + i * WORDS + cell % WORDS`.
# </details>
#
# **The prediction.** Let the compiler translate your kernel for an H200 (it needs no GPU for that), and count the instructions per weight in the
# loop. A multiprocessor issues 128 lanes per cycle, but has only 64 for integers (shifts, masks, conversions). So three times limit the
# kernel: memory's, the integer lanes', and issue's. If all overlap perfectly, it takes the longest. If memory and arithmetic alternate, it takes
# memory's plus the longer of the other two.

# %%
counts = int4.per_weight(int4_matvec_kernel)  # instructions in the loop, per weight
weights, lanes_per_s = 8192**2, 132 * 1.98e9  # multiprocessors times cycles per second
limits_us = {"memory": weights * bits_per_weight(8192, 4, 128) / 8 / 4.28e6,
             "integer lanes": weights * counts["integer"] / (64 * lanes_per_s) * 1e6,
             "issue": weights * counts["all"] / (128 * lanes_per_s) * 1e6}
arithmetic_us = max(limits_us["integer lanes"], limits_us["issue"])
least, most = max(limits_us.values()), limits_us["memory"] + arithmetic_us
print({name: round(us, 1) for name, us in limits_us.items()}, f"so {least:.1f} to {most:.1f} µs")

# %% tags=["nbval-ignore-output"]
groups, of = [32, 64, 128, 256, 512], "time" if device.has_gpu() else "bytes"
predicted = [16 / bits_per_weight(8192, 4, group) for group in groups]
measured = [int4.speedup(int4_matvec_kernel, quantize_groups, pack_int4, group) for group in groups]
ax = figures.predicted_and_measured(
    groups, predicted, measured, log="x", xlabel="weights per scale", ylabel=f"bf16's {of} / int4's",
    dots_are="measured" if of == "time" else "counted", title="What bytes allow, and what is reached")
ax.set(ylim=(0, 4.2), xticks=groups, xticklabels=groups)
figures.describe(ax, f"The {of} of bf16 weights over int4's, and the line 16 over bits per weight.")

# %% tags=["nbval-ignore-output"]
name = "speed-up of int4 over bf16, one vector, groups of 128"
ledger.predict(name, predicted[2], "times")
record = ledger.measured if device.has_gpu() else ledger.counted
record(name, measured[2], "times")
weight_bytes = bits_per_weight(8192, 4, 128) / 8
ledger.constant("int4 weight with its scale, groups of 128", weight_bytes, "B", "lab 10, counted")
ledger.table()

# %% [markdown]
# On an H200, the dots lie 32 to 40 % below the line: it counts bytes only. Our two kernels (8192 × 8192, groups of 128; bf16: 33.9 µs):
#
# | unpacking | instructions per weight | integer ones | predicted | measured |
# | --- | --- | --- | --- | --- |
# | usual | 5.2 | 3.7 | 14.9 to 22.9 µs | 18.3 µs |
# | subnormals | 3.0 | 1.4 | 8.1 to 14.2 µs | 12.7 µs |
# | none (loads alone) | | | 8.1 µs | 9.3 µs |
#
# Both lie between perfect overlap and none: each program waits, then unpacks.
#
# **Memory-bound work is as fast as its numbers are small, if unpacking keeps up; and a code that *is* a number needs no unpacking.**

# %% [markdown]
# ## Done
#
# `make grade LAB=10` grades your lab.
#
# **Harder.** From how many vectors at once (batch size) do 4-bit weights bring no speed any more on an H200, with products in bf16 at 700 TFLOP/s?
#
# <details><summary>Answer</summary>
#
# With B vectors there are 2B FLOP per weight: B FLOP/byte for bf16 weights, 16B/4.125 ≈ 3.9B for int4. The ridge is at 700 TFLOP/s / 4.28 TB/s =
# 164 FLOP/byte. Up to B = 42 both are memory-bound, and int4 is 3.9 times as fast. Then int4 is compute-bound and bf16 catches up; from B = 164
# on they are equal, and unpacking is pure cost.
# </details>

# %% [markdown]
# ## Further
#
# All of this is optional: formats in training, integers without any float, activations, better rounding, cheaper scales, tables of numbers, and
# our own kernel on tensor cores.
#
# ### Gradients in 16 bits
#
# Which gradients does a format turn into zero, and which into infinity? The largest magnitude that becomes 0 is half the smallest number (a tie, and
# the code of 0 is even): `decode([1]) / 2`. That draws the lines; PyTorch's own rounding draws the dots.

# %%
net, scales = nets[0], 2.0 ** np.arange(0, 25, 2)
sizes = gradients[gradients != 0].abs()
predicted, measured = {}, {}
for name, dtype in DTYPES.items():
    limit = decode(np.array([1]), FORMATS[name])[0] / 2
    predicted[name] = [100 * (sizes * scale <= limit).float().mean().item() for scale in scales]
    measured[name] = [100 * ((sizes * scale).to(dtype) == 0).float().mean().item() for scale in scales]
infinite = {power: ((sizes * 2.0**power).half() == torch.inf).float().mean() for power in (20, 22, 24)}

# %%
print({f"fp16, 2^{power}": f"{100 * share:.2f} % infinite" for power, share in infinite.items()})
ax = figures.predicted_and_measured(
    scales, predicted, measured, log="x", xlabel="loss scale", ylabel="gradients that become zero (%)",
    title="What a format loses, and what loss scaling brings back")
ax.set_yscale("symlog", linthresh=0.01)
ax.set(ylim=(-0.003, 100), yticks=[0, 0.01, 0.1, 1, 10, 100], yticklabels=[0, 0.01, 0.1, 1, 10, 100])
figures.describe(ax, "Lost gradients: none in bf16; fp16, e5m2 and e4m3fn need ever larger scales.")

# %% [markdown]
# All dots lie on the lines. bf16 has fp32's exponent and loses nothing. Unscaled, fp16 loses 1 %, e5m2 8 %, and e4m3fn most. A scale helps, but
# too large a one makes fp16's largest gradients infinite: 0.1 % of them at 2²². So trainers double the scale
# from time to time; when a gradient overflows, they skip that step and halve it. (For these digits, the lost gradients do not matter.)

# %% [markdown]
# ### Clinic: nothing is lost, nothing is learned
#
# The same program trains once in fp32, once in bf16. In fp32, some gradients are zero because of ReLU. In bf16, the share of zeros is only 2 to 8
# percentage points larger, yet the loss stays far higher. A weight is *still* if its gradient is not zero and the step left it as it was. What is
# wrong?

# %%
def sgd_step(model, weights):
    batch = torch.randint(1297, (64,))
    loss = F.cross_entropy(model(pixels[batch].to(model[0].weight.dtype)), digits[batch])
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    for parameter, weight, gradient in zip(model.parameters(), weights, gradients, strict=True):
        weight -= 0.02 * gradient
        parameter.data.copy_(weight)
    return loss.item(), gradients

# %%
def train(dtype, keep):
    model = digit_reader.network().to(dtype)
    weights = [keep(parameter.data) for parameter in model.parameters()]
    for _ in range(1000):
        loss, gradients = sgd_step(model, weights)
    zero = torch.cat([g.flatten() == 0 for g in gradients]).float().mean()
    still = torch.cat([(w - 0.02 * g == w)[g != 0] for w, g in zip(weights, gradients)]).float().mean()
    print(f"{dtype!s:15} loss {loss:.2f}   zero gradients {zero:.0%}   other weights still {still:.0%}")

# %% tags=["nbval-ignore-output"]
train(torch.float32, keep=torch.Tensor.detach)  # updates the model's own weights
train(torch.bfloat16, keep=torch.Tensor.detach)

# %% [markdown]
# <details><summary>Diagnosis</summary>
#
# The gradients survive, the *updates* do not. bf16 has 8 significant bits: `weight - 0.02 * gradient` rounds back to `weight` unless the
# update is larger than about 2⁻⁹ of it. One remedy is a *master copy* of the weights in fp32, which takes the updates and is rounded to bf16
# for the next step. Forward and backward still run in bf16, as the next cell does. (The other is *stochastic rounding*: round up with a
# probability equal to the fraction, so that small updates count on average.)
# </details>

# %% tags=["nbval-ignore-output"]
train(torch.bfloat16, keep=torch.Tensor.float)  # updates copies in fp32

# %% [markdown]
# **Gradients need range, updates need precision, and no 16 bits have enough of both.**
#
# ### Exercise 5.1 · requantize (optional)
#
# The result of `integer_matmul` is in units of S_W S_X; the next layer wants int8 codes in units of S_Y. That is a multiplication by
# M = S_W S_X / S_Y, between 0 and 1, and + Z_Y. A chip without floats writes M ≈ m / 2^shift, 2³⁰ ≤ m < 2³¹, multiplies in 64 bits, and shifts right. Add half of what the last place is worth before the shift, and it rounds to the
# nearest, a tie upwards. Floats do not: near a tie, their last bit decides.
#
# <details><summary>Hint</summary>
#
# Raise `shift` until `multiplier * 2**shift` is at least 2³⁰, then round it; if that gives 2³¹, halve it and lower the shift. The product takes
# 62 bits: int64.
# </details>

# %% tags=["hole"]
def fixed_point(multiplier):
    """(m, shift), ints: m / 2**shift is as near to the multiplier as 2**30 <= m < 2**31 allows.

    multiplier: float, 0 < multiplier < 1. About five lines.
    """
    # BEGIN SOLUTION
    shift = 30
    while multiplier * 2**shift < 2**30:
        shift += 1
    m = round(multiplier * 2**shift)
    return (m, shift) if m < 2**31 else (2**30, shift - 1)
    # END SOLUTION


def requantize(sums, m, shift, zero_point):
    """int8 codes: sums · m / 2**shift rounded to nearest, + zero_point, cut to -128 ... 127.

    sums: int32 tensor. Integers only: floats are not allowed, and some sums find them out. About
    three lines.
    """
    # BEGIN SOLUTION
    scaled = sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift
    return (scaled + zero_point).clamp(-128, 127).to(torch.int8)
    # END SOLUTION

# %% tags=["check"]
from fractions import Fraction

from common.checks import is_whole

drawn = np.exp(rng.uniform(np.log(1e-6), 0, 60)).tolist()
for multiplier in [0.5, 2.0**-20, 1 - 2.0**-40, 3e-15, *drawn]:
    m, shift = fixed_point(multiplier)
    are_whole = is_whole(m) and is_whole(shift)
    expect(are_whole, f"fixed_point({multiplier}) gave {m!r} and {shift!r}, want two ints")
    m, shift = int(m), int(shift)
    expect(2**30 <= m < 2**31, f"fixed_point({multiplier}) gave m = {m}, not from 2**30 to 2**31 - 1")
    error = abs(Fraction(m) / Fraction(2) ** shift / Fraction(multiplier) - 1)
    expect(error <= Fraction(1, 2**31), f"fixed_point({multiplier}) gave {m}: round m to nearest")
print("fixed_point is right to 31 bits for 64 multipliers")

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for _ in range(40):
    m, shift = int(rng.integers(2**30, 2**31)), int(rng.integers(31, 50))
    zero = int(rng.choice([-1, 1]) * rng.integers(5, 28))
    sums = torch.from_numpy(rng.uniform(-100, 100, 20) * min(2.0**shift / m, 2.0**24)).int()
    want, mistakes = oracle.requantized(sums, m, shift, zero)
    case = f"requantize(sums, {m}, {shift}, {zero})"
    agree(requantize(sums, m, shift, zero), want, case, mistakes=mistakes)
print("requantize rounds 800 sums as exact fractions do")

# %% tags=["check"]
sums = torch.tensor([-(2**31), -1000, -300, -2, 0, 6, 300, 1000, 2**31 - 1]).int()
want = torch.tensor([-128, -128, -128, 4, 5, 10, 127, 127, 127]).to(torch.int8)
even = torch.tensor([-128, -128, -128, 3, 5, 9, 127, 127, 127]).to(torch.int8)
wrapped = torch.tensor([5, 23, 36, 4, 5, 10, -26, -13, 4]).to(torch.int8)
agree(requantize(sums, 3 * 2**29, 31, 5), want, f"requantize({sums}, 3 * 2**29, 31, 5)", mistakes={
    "A tie goes upwards: -1.5 becomes -1, and 4.5 becomes 5.": even,
    "Beyond int8 the codes stop at -128 and 127; these wrapped around.": wrapped})
print("requantize stops at the ends of int8, and rounds a tie upwards")

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

for m, shift, total in oracle.NEAR_TIES:
    want, up = oracle.requantized(torch.tensor([total]).int(), m, shift, 5)[0], 6 + (total * m >> shift)
    got = requantize(torch.tensor([total]).int(), m, shift, 5)
    agree(got, want, f"requantize([{total}], {m}, {shift}, 5)", mistakes={
        "Just below a tie, a float rounds up: stay in integers.": torch.tensor([up]).to(torch.int8)})
print("requantize is right for sums just below a tie, where floats are not")

# %% [markdown]
# Now a whole layer in integers. If its output's range starts at 0, the zero-point is −128, and cutting to int8 cuts off everything
# negative: that is ReLU, for free. The bias is an int32 in units of S_W S_X; it joins the weight terms. And Z_W = 0.
#
# The second cell compares with the same codes multiplied in floating point.

# %%
def integer_layer(x, x_scale, x_zero, layer, y_scale, y_zero):
    w_scale = layer.weight.abs().max() / 127
    w = quantize(layer.weight, w_scale, 0, 8)
    bias = torch.round(layer.bias / (w_scale * x_scale)).to(torch.int32)
    sums = integer_matmul(w.int() @ x.T.int(), x.T, 0, weight_terms(w, 0, x_zero) + bias)
    m, shift = fixed_point((w_scale * x_scale / y_scale).item())
    return requantize(sums, m, shift, y_zero).T

# %%
weight, bias = net[0].weight, net[0].bias
w_scale, x_scale, y_scale = weight.abs().max() / 127, torch.tensor(1 / 255), net[0](pixels).max() / 255
x = quantize(pixels[1297:], x_scale, -128, 8)
w_real = dequantize(quantize(weight, w_scale, 0, 8), w_scale, 0)
real = F.relu(F.linear(dequantize(x, x_scale, -128), w_real, bias))
off = integer_layer(x, x_scale, -128, net[0], y_scale, -128).int() - quantize(real, y_scale, -128, 8)
shares = {step: f"{(off == step).float().mean():.2%}" for step in (-2, -1, 0, 1, 2)}
print(shares, "of 64,000 outputs are off by so many steps")

# %% [markdown]
# Integers and floats agree to one step, and nearly always exactly.
#
# ### Exercise 5.2 · calibrated_range (optional)
#
# Weights are known; activations come with each input. Their range is fixed beforehand, from a *calibration set* of real inputs:
#
# - *min-max*: the smallest and the largest value ever seen;
# - *moving average*: starts with the first batch's extremes, then low ← 0.9 · low + 0.1 · (this batch's), and likewise high;
# - *percentile*: 0.1 % of all values together are cut off at either end. They get the code at the end; all others get smaller steps.

# %% tags=["hole"]
def calibrated_range(batches, method):
    """(low, high), floats: the range of the activations.

    batches: list of float32 tensors. method: "minmax", "average" (of the extremes, 0.9 old + 0.1 new)
    or "percentile" (0.1 and 99.9 of all values, with linear interpolation). About twelve lines.
    """
    # BEGIN SOLUTION
    if method == "percentile":
        every = torch.cat([batch.flatten() for batch in batches])
        return tuple(torch.quantile(every, torch.tensor([0.001, 0.999])).tolist())
    lows = [batch.min().item() for batch in batches]
    highs = [batch.max().item() for batch in batches]
    if method == "minmax":
        return min(lows), max(highs)
    low, high = lows[0], highs[0]
    for batch_low, batch_high in zip(lows[1:], highs[1:], strict=True):
        low, high = 0.9 * low + 0.1 * batch_low, 0.9 * high + 0.1 * batch_high
    return low, high
    # END SOLUTION

# %% tags=["check"]
for shapes in [[(40, 5)] * 10, [(1,)], [(300,), (7, 3), (2, 2, 2)]]:
    drawn = [rng.standard_normal(shape) ** 3 + rng.uniform(-1, 1) for shape in shapes]
    batches = [torch.from_numpy(batch).float() for batch in drawn]
    every = torch.cat([batch.flatten() for batch in batches]).double().numpy()
    for method, ends in {"minmax": [0, 100], "percentile": [0.1, 99.9]}.items():
        want, case = tuple(np.percentile(every, ends).tolist()), f"({len(shapes)} batches, {method!r})"
        got = calibrated_range([batch.clone() for batch in batches], method)
        agree(got, want, f"calibrated_range{case}", rtol=1e-4, atol=1e-6, mistakes={
            "This is the nearest value; interpolate linearly between the two nearest ones.":
            tuple(np.percentile(every, ends, method="nearest").tolist()),
            "0.1 % is the quantile 0.001.": tuple(np.quantile(every, [0.1, 0.9]).tolist())})
print("calibrated_range agrees with NumPy: minmax and percentile")

# %% tags=["check"]
for count in (1, 2, 3, 10, 30):
    batches = [torch.from_numpy(rng.standard_normal((6, 5)) + 1).float() for _ in range(count)]
    ends = np.array([[batch.min().item(), batch.max().item()] for batch in batches])
    ages = np.arange(count)[::-1]
    from_zero = 0.1 * 0.9**ages @ ends  # had it begun with 0
    swapped = 0.9 * 0.1**ages @ ends + 0.1**count * ends[0]
    want = tuple((from_zero + 0.9**count * ends[0]).tolist())
    got = calibrated_range([batch.clone() for batch in batches], "average")
    agree(got, want, f"calibrated_range({count} batches, 'average')", rtol=1e-5, atol=1e-6, mistakes={
        "The average starts with the first batch's extremes, not with 0.": tuple(from_zero.tolist()),
        "Nine tenths of the old range stay; a tenth is new.": tuple(swapped.tolist())})
print("calibrated_range agrees with the closed form of a moving average")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which of the three methods need only each batch's two extremes?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Min-max and the moving average. The percentile looks at all values together: join the flattened batches first.
# `torch.quantile` interpolates linearly.
# </details>
#
# Clipping is a trade. Here is the error of the first hidden layer's activations by each method, over that of min-max. **Predict** first: at which bits
# does the percentile win?

# %%
def calibrated(values, method, bits=8):
    low, high = map(torch.tensor, calibrated_range(list(values.split(64)), method))
    scale, zero_point = affine_parameters(low, high, bits)
    return scale, int(zero_point)

def error_of(values, scale, zero_point, bits):
    codes = quantize(values, scale, zero_point, bits)
    return (dequantize(codes, scale, zero_point) - values).square().mean().sqrt().item()

# %%
hidden, bits = F.relu(net[0](pixels[:1297])), range(2, 9)
of_method = {method: [error_of(hidden, *calibrated(hidden, method, b), b) for b in bits]
             for method in ("minmax", "average", "percentile")}
ratios = {method: np.divide(own, of_method["minmax"])[:, None] for method, own in of_method.items()}
figures.averages(bits, ratios, title="Cut off the rarest values? It depends on the bits",
                 xlabel="bits per activation", ylabel="error / error of minmax",
                 alt="Percentile errs 16 % less than min-max at 2 bits, but 60 % more at 8 bits.");

# %% [markdown]
# Up to 6 bits, the percentile's smaller steps win: its error is 9 to 16 % below min-max's. At 7 bits its clipping already costs more than the steps
# save, and at 8 bits its error is 60 % larger. The moving average clips less. It wins by 7 to 9 % up to 7 bits, and by nearly nothing at 8.
#
# Now the whole network on integers, from pixels to scores, with ranges from the training set. The codes of the scores are in order like
# the scores, so the answer is the largest code. (All three methods read the test within a digit or two of float32.)

# %%
def integer_network(x, method):
    values, grid = pixels[:1297], (torch.tensor(1 / 255), -128)
    codes = quantize(x, *grid, 8)
    for i in (0, 2, 4):
        values, x_grid = net[i:i + 2](values), grid
        grid = calibrated(values, method)
        codes = integer_layer(codes, *x_grid, net[i], *grid)
    return codes

# %%
for method in ("minmax", "average", "percentile"):
    right = digit_reader.accuracy(lambda x, method=method: integer_network(x, method).int())
    print(f"int8, {method:10} {right:.1f} %      float32 {digit_reader.accuracy(net):.1f} %")

# %% [markdown]
# ### Exercise 5.3 · error_aware (optional)
#
# Rounding each weight to the nearest code makes each *weight* right. What should be right is the layer's *output*. So round the columns one after
# another, and after each, change the later columns such that they make up for its error, as far as the inputs allow.
#
# With H = XᵀX for inputs X, plus a hundredth of its mean diagonal on the diagonal, let U be the upper Cholesky factor of H⁻¹ (UᵀU = H⁻¹). If
# rounding column k leaves e, weight minus number, the best change of a later column j is −e · U[k, j] / U[k, k].
#
# <details><summary>Hint: a question</summary>
#
# After column k is rounded, which columns may still change?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Those after k. Work on a float64 copy of the weights: round its column k, divide the error by U[k, k], and
# subtract the error times row k of U from the columns from k on. `torch.linalg.cholesky(..., upper=True)` gives
# U.
# </details>

# %% tags=["hole"]
def error_aware(weight, inputs, scales, bits):
    """int8 codes (rows, columns), symmetric, with which the layer's output is nearly right.

    weight: float32 (rows, columns). inputs: float32 (samples, columns). scales: float32 (rows, 1).
    Codes run from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1. Compute in float64. About ten lines.
    """
    # BEGIN SOLUTION
    most, hessian = 2 ** (bits - 1) - 1, inputs.double().T @ inputs.double()
    hessian += 0.01 * hessian.diagonal().mean() * torch.eye(len(hessian))
    upper = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)
    rest, codes = weight.double().clone(), torch.zeros(weight.shape, dtype=torch.int8)
    for k in range(weight.shape[1]):
        code = (rest[:, k] / scales[:, 0]).round().clamp(-most, most)
        error = (rest[:, k] - code * scales[:, 0]) / upper[k, k]
        rest[:, k:] -= error[:, None] * upper[k, k:]
        codes[:, k] = code.to(torch.int8)
    return codes
    # END SOLUTION

# %% tags=["check"]
from common.lessons.quantization import expected as oracle

layers = []
for rows, columns, bits in [(96, 40, 4), (68, 46, 3), (64, 31, 4), (48, 64, 2)]:
    inputs = oracle.correlated(rng, 400, columns)
    weight, most = torch.from_numpy(rng.standard_normal((rows, columns))).float(), 2 ** (bits - 1) - 1
    scales = weight.abs().amax(1, keepdim=True) / most
    codes, case = error_aware(weight.clone(), inputs.clone(), scales.clone(), bits), f"{bits} bits"
    agree((codes.dtype, tuple(codes.shape)), (torch.int8, (rows, columns)), f"form of codes, {case}")
    expect(int(codes.int().abs().max()) <= most, f"error_aware, {case}: a code is beyond ±{most}")
    layers.append((codes, weight, inputs, scales, bits))
oracle.expect_error_aware(layers)
print("error_aware leaves less than half of the output error of plain rounding, over four layers")

# %%
def with_codes(net, bits, aware):
    changed, x = digit_reader.rescaled(net, [], 1), pixels[:1297]
    for layer in digit_reader.linear(changed):
        scales = layer.weight.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        codes = error_aware(layer.weight, x, scales, bits) if aware else (layer.weight / scales).round()
        layer.weight.data = codes * scales
        x = F.relu(layer(x))
    return digit_reader.accuracy(changed)

# %%
for bits in (4, 3, 2):
    shares = {aware: [with_codes(net, bits, aware) for net in nets] for aware in (False, True)}
    plain, own = (f"{np.mean(read):.1f} ± {np.std(read):.1f} %" for read in shares.values())
    print(f"{bits} bits, one scale per row: nearest {plain}, error-aware {own}")

# %% [markdown]
# At two bits, with three numbers per row, error-aware rounding brings back nearly all that plain rounding lost, and nothing was trained.
#
# **Round so that the output is right, not the weights.**
#
# ### Train through the rounding
#
# Or train the network while its weights are rounded, so that the loss sees what rounding does. But rounding is a staircase: its derivative is 0
# almost everywhere, and the weights learn nothing. The *straight-through estimator* pretends that this derivative is 1. **Predict**: how many digits
# do networks of two bits read after 100 steps, with derivative 0, and with 1?

# %%
def by_rows(weight, bits, slope):
    step = weight.detach().abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.round(weight / step) * step + slope * (weight - weight.detach())  # plus 0

def scores(net, x, bits, slope=0):
    for layer, b in zip(digit_reader.linear(net), bits):
        x = F.linear(F.relu(x), by_rows(layer.weight, b, slope), layer.bias)
    return x

# %%
def tuned(net, bits, slope):
    model = digit_reader.rescaled(net, [], 1).requires_grad_(True)  # a copy
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(scores(model, pixels[:1297], bits, slope), digits[:1297]).backward()
        optimizer.step()
    return digit_reader.accuracy(lambda x: scores(model, x, bits))

# %% tags=["nbval-ignore-output"]
for slope in (0, 1):
    right = [tuned(net, (2, 2, 2), slope) for net in nets[:3]]
    print(f"two bits, trained with derivative {slope}: {np.mean(right):.1f} ± {np.std(right):.1f} %")

# %% [markdown]
# With derivative 0, only the biases learn: about 90 %. Straight through, the weights settle where their *rounded* values are right: 97 %, within a
# point of float32. (Without any training: 75 %.)
#
# ### Bits where they matter
#
# Layers need not have the same bits. These have 8,192, 8,192 and 640 weights. **Predict**: at two bits each, which layer should get a third bit?

# %%
def digits_read(bits):
    return np.mean([digit_reader.accuracy(lambda x, net=net: scores(net, x, bits)) for net in nets])

for bits in ((2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3), (3, 2, 3), (3, 3, 3), (3, 3, 4)):
    mean = np.dot(bits, [8192, 8192, 640]) / 17_024
    print(f"{bits}: {mean:.2f} bits per weight, {digits_read(bits):.1f} % read")

# %% [markdown]
# The last one: 640 weights of three bits cost 0.04 bits per weight on average, and bring back two thirds of the lost digits. The errors of a
# last layer reach the answer directly. So language models often keep their first and last matrices in 8 or 16 bits.

# %% [markdown]
# ### Exercise 6.1 · two_level_scales (optional)
#
# In groups of 16, fp16 scales cost a whole bit per weight. *Two levels*: r = γ · s · q, with an unsigned integer s of few bits per group, and one
# float γ per row, such that the largest scale of the row gets the largest integer. An s of 0 would erase its group: the least is 1.
#
# <details><summary>Hint: a question</summary>
#
# Which γ makes the largest scale of a row the largest integer?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Divide the largest scale by 2ᵇ − 1. Then divide all scales of the row by γ, round, and let none fall below 1.
# </details>

# %% tags=["hole"]
def two_level_scales(scales, bits):
    """(integers, gamma), uint8 (rows, groups) and float32 (rows, 1): gamma * integers near the scales.

    scales: positive float32 (rows, groups), at least one group. The integers run from 1 to 2**bits - 1.
    About three lines.
    """
    # BEGIN SOLUTION
    gamma = scales.amax(1, keepdim=True) / (2**bits - 1)
    return torch.round(scales / gamma).clamp(min=1).to(torch.uint8), gamma
    # END SOLUTION

# %% tags=["check"]
for rows, groups, bits, size in [(5, 16, 4, 1), (1, 1, 8, 1), (3, 7, 6, 2.0**-30), (4, 40, 2, 1e4)]:
    scales = torch.from_numpy(size * np.exp(rng.normal(0, 1.5, (rows, groups)))).float()
    top, (integers, gamma) = scales.amax(1, keepdim=True), two_level_scales(scales.clone(), bits)
    agree(gamma, top / (2**bits - 1), f"gamma of {rows} × {groups}, {bits} bits", rtol=1e-6, mistakes={
        "The integers are unsigned, up to 2^bits - 1.": top / (2 ** (bits - 1) - 1),
        "Each row has its own gamma.": top.max().expand(rows, 1) / (2**bits - 1)})
    exact = scales.double() / top * (2**bits - 1)
    want = exact.round().clamp(min=1).to(torch.uint8)
    agree(integers, want, f"integers of {rows} × {groups} scales, {bits} bits", mistakes={
        "Round to the nearest integer, not down.": exact.clamp(min=1).to(torch.uint8),
        "An integer of 0 erases its group: the least is 1.": exact.round().to(torch.uint8)})
print("two_level_scales keeps every scale to half a step of its row's gamma")

# %%
weight = net[2].weight
codes, scales = quantize_groups(weight, 4, 16)
integers, gamma = two_level_scales(scales, 4)
sizes = {"fp16": bits_per_weight(128, 4, 16), "4-bit": bits_per_weight(128, 4, 16, 4) + 16 / 128}
for (kind, bits), used in zip(sizes.items(), (scales, gamma * integers)):
    spread = (dequantize_groups(codes, used, 16) - weight).std()
    print(f"{kind:5} scales: {bits:.3f} bits, error {spread / weight.std():.1%} of the spread")

# %% [markdown]
# Integer scales save 0.6 bits per weight, and the error grows only from 8.0 % to 8.4 % of the spread.
#
# ### Exercise 6.2 · kmeans_codebook (optional)
#
# If codes index a table, the table may hold any numbers: put them where the weights are. *k-means*: start from 2ᵇ entries evenly spaced from
# the smallest weight to the largest; give each weight the nearest; move each entry to the mean of its weights; repeat until no weight
# changes its entry.
#
# The table can be trained. An entry is used by thousands of weights, so its gradient is the *sum* of theirs (lab 07).
#
# <details><summary>Hint: a question</summary>
#
# Which entry is nearest to each value, for all values at once?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Make a table of distances, (values, entries), and take the `argmin` along the entries. The mean of an entry's
# values is a sum divided by a count, and your `codebook_gradient` can compute both. Stop when no index has
# changed.
# </details>

# %% tags=["hole"]
def kmeans_codebook(values, bits):
    """(codebook, entries): float32 (2**bits,), and for each value the index (int64) of its nearest.

    values: float32 tensor. An entry that no value is nearest to stays where it is. About ten lines.
    """
    # BEGIN SOLUTION
    flat = values.flatten()
    codebook, before = torch.linspace(flat.min(), flat.max(), 2**bits), None
    while True:
        entries = (flat[:, None] - codebook).abs().argmin(1)
        if before is not None and torch.equal(entries, before):
            return codebook, entries.view_as(values)
        sums = codebook_gradient(flat, entries, 2**bits)
        counts = codebook_gradient(torch.ones_like(flat), entries, 2**bits)
        codebook, before = torch.where(counts > 0, sums / counts, codebook), entries
    # END SOLUTION


def codebook_gradient(gradient, entries, size):
    """Gradient of each codebook entry, float32 (size,): the sum over its weights. One line.

    gradient: of the loss to each weight. entries: the entry that each weight uses, of the same shape.
    """
    # BEGIN SOLUTION
    return torch.zeros(size).index_add(0, entries.flatten(), gradient.flatten())
    # END SOLUTION

# %% tags=["check"]
for shape, bits in [((40, 6), 2), ((7,), 3), ((300, 5), 4), ((1, 1), 2)]:
    values = torch.from_numpy(rng.standard_normal(shape) + 3 * rng.integers(0, 2, shape)).float()
    codebook, entries = kmeans_codebook(values.clone(), bits)
    agree((codebook.dtype, tuple(codebook.shape)), (torch.float32, (2**bits,)), "form of the codebook")
    agree((entries.dtype, tuple(entries.shape)), (torch.int64, shape), "form of the entries")
    own, nearest = (codebook[entries] - values).abs(), (values[..., None] - codebook).abs().amin(-1)
    agree(own, nearest, f"distance, {shape} values, {bits} bits", atol=1e-6, mistakes={
        "Some values have another entry than the nearest one of the codebook that you return.": own})
    for entry in entries.unique().tolist():
        mean, case = values[entries == entry].mean(), f"entry {entry}, {bits} bits (a mean: "
        agree(codebook[entry], mean, case + "repeat until no value changes its entry)", atol=3e-4)
print("kmeans_codebook is at rest for four sets of values")

# %% tags=["check"]
for bits in (1, 2, 3, 4):
    values = torch.from_numpy(rng.standard_normal(400) ** 3).float()
    codebook, entries = kmeans_codebook(values.clone(), bits)
    even = torch.linspace(values.min(), values.max(), 2**bits)
    even_error = (values[:, None] - even).square().amin(1).sum()
    own_error = (codebook[entries] - values).square().sum()
    expect(own_error <= 1.0001 * even_error, f"{2**bits} evenly spaced entries are nearer")
alone = kmeans_codebook(torch.tensor([0.0, 1.0]), 2)[0]
agree(alone, torch.linspace(0, 1, 4), "codebook of [0, 1], 2 bits", rtol=1e-6, mistakes={
    "An entry that no value is nearest to stays where it is.": torch.tensor([0.0, 0.0, 0.0, 1.0])})
print("kmeans_codebook is never worse than an even grid, and leaves unused entries alone")

# %% tags=["check"]
values = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 60.0])
got = kmeans_codebook(values.clone(), 1)[0]
agree(got, torch.tensor([3.0, 60.0]), "codebook of [0, ..., 6, 60], 1 bit")
got, want = kmeans_codebook(values.clone(), 2)[0], torch.tensor([3.0, 20.0, 40.0, 60.0])
agree(got, want, "codebook of [0, ..., 6, 60], 2 bits (starts from evenly spaced entries)", rtol=1e-6)
print("kmeans_codebook starts from evenly spaced entries")

# %% tags=["check"]
for shape, size in [((40, 6), 4), ((7,), 8), ((1, 1), 2), ((0,), 4)]:
    entries = torch.from_numpy(rng.integers(0, size, shape))
    gradient = torch.from_numpy(rng.standard_normal(shape)).float()
    leaf, last = torch.zeros(size, requires_grad=True), torch.zeros(size)
    want = torch.autograd.grad(leaf[entries], leaf, gradient)[0]
    last[entries.flatten()] = gradient.flatten()
    counts = torch.bincount(entries.flatten(), minlength=size).clamp(min=1)
    got = codebook_gradient(gradient, entries, size)
    agree(got, want, f"gradient of {size} entries, {shape} weights", rtol=1e-4, atol=1e-5, mistakes={
        "An entry's gradient is the sum over its weights, not their mean.": want / counts,
        "Here the last weight of an entry wins; all of them count.": last})
print("codebook_gradient agrees with autograd for four shapes")

# %%
def finetune(model, books):
    for weight, (codebook, entries) in books.items():
        weight.data = codebook[entries]
    loss = F.cross_entropy(model(pixels[:1297]), digits[:1297])
    gradients = torch.autograd.grad(loss, list(books))
    for (codebook, entries), gradient in zip(books.values(), gradients, strict=True):
        codebook -= 0.01 * codebook_gradient(gradient, entries, len(codebook))

# %% tags=["nbval-ignore-output"]
model = digit_reader.rescaled(net, [], 1).requires_grad_(True)  # a copy
books = {layer.weight: kmeans_codebook(layer.weight.data, 2) for layer in digit_reader.linear(model)}
for step in range(201):
    finetune(model, books)
    if step % 100 == 0:
        print(f"2-bit codebooks, {step:3} steps of training: {digit_reader.accuracy(model):.1f} %")

# %% [markdown]
# Two bits per weight, and twelve trained numbers for 17,000 weights: k-means alone reads 96 %, and training brings back the 97 % of float32. The price: a table look-up for each weight, and arithmetic that stays
# in floating point.

# %% [markdown]
# ### Our kernel on tensor cores
#
# Your kernel spends three instructions on each weight. Read as *bf16*, a nibble where it stands is n · 2⁻¹³³ in bits 0 to 3, and n · 2⁻¹²⁹ in bits 4 to
# 7. (There, n ≥ 8 reaches the exponent, but the smallest normal numbers have the subnormals' step.) So *one* mask makes *two* weights, and
# a tensor core multiplies 16 × 16 of them by eight vectors in one instruction. We repeat our one vector eight times. Seven of the eight results are
# wasted, but the tensor cores are idle anyway. That makes 2.1 instructions per weight.

# %% tags=["nbval-ignore-output"]
rows, columns, where = (8192, 8192, "cuda") if device.has_gpu() else (32, 2048, "cpu")
weight, x = torch.randn(rows, columns, device=where), torch.randn(columns, device=where).bfloat16()
codes, scales = quantize_groups(weight, 4, 128)
want = dequantize_groups(codes, scales.bfloat16().double(), 128) @ x.double()
y = torch.empty(rows, device=where)
int4.launch_tiles(*int4.pack_tiles(codes, scales), x, y)
print(f"largest error: {(y - want).abs().max() / want.std():.0e} of the results' spread")

# %% [markdown]
# The kernel is in `common/lessons/quantization/int4.py`. It loads the next weights before it computes, and starts while the last kernel ends.
#
# | 8192 × 8192, groups of 128, H200 | µs | bf16's time / its |
# | --- | --- | --- |
# | cuBLAS, bf16 | 33.9 | 1 |
# | the usual unpacking | 18.3 | 1.85 |
# | 4.1 | 12.7 | 2.66 |
# | tensor cores | 12.1 | 2.80 |
# | the same, started early | 11.1 | 3.06 |
# | and four sums side by side | 10.8 | 3.17 |
# | loads of the words alone | 9.3 | 3.6 |
# | bytes / bandwidth | 8.1 | 4.2 |

# %% [markdown]
# The codes' −8 multiply the sum of x. That sum was one chain of eight products, each of which waited for the one before. Now two chains run side by
# side, which is worth 3 % here. A matrix of 4096 × 4096 gains more: 5.5 µs became 4.3. It has only two programs per multiprocessor, too few to hide the
# waiting. So its programs also keep the weights of four steps on their way (`int4.way_of`).
#
# The table's products ran in one CUDA graph, the ledger's alone. Its last row exceeds 16 / 4.125 = 3.88: cuBLAS itself reaches 3.96 of the 4.28 TB/s.

# %% [markdown]
# ### Where it is used
#
# - Integer arithmetic with scales and zero-points: Jacob et al., *Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
#   Inference* (2018); TensorFlow Lite. Loss scaling: Micikevicius et al., *Mixed Precision Training* (2018). Energy: Horowitz, *Computing's Energy
#   Problem* (2014).
# - Equalised units: Nagel et al. (2019); *SmoothQuant* (2023). *LLM.int8()* (2022) keeps the few columns of activations with outliers in fp16.
#   Error-aware rounding is *GPTQ* (2022); *AWQ* (2023) scales up weights that meet large activations. Both usually ship int4 in groups of 128.

# %% [markdown]
# - Tables: *Deep Compression* (2016). Two levels: *VS-Quant* (2021), llama.cpp's `Q4_K`. Kernels: Marlin (in vLLM), torchao, PyTorch's
#   `_weight_int4pack_mm`; `torch._int_mm` is the product that stays in the inner loop.
# - The OCP *microscaling* formats (2023) have blocks of 32 numbers with a power of two as scale. gpt-oss (2025) was released in e2m1 with such blocks.
#
# **Limits of ours.** The twin's outliers are made by hand. Our kernel takes one vector; for many, tensor cores must do the products, and the codes are
# unpacked on the way there. Activations got one scale per tensor; language models use one per token, and keep the attention's cache in 8 or 4 bits, too.
