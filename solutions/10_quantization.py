# %% [markdown]
# # 10 · Quantization
#
# **How few bits can a number be?**
#
# After this lab you can
# - read and write every number format from fp32 to fp4 by hand, and say which gradients each of them loses;
# - turn float arithmetic into integer arithmetic, with scales and zero-points, and predict the error it makes;
# - say how fast 4-bit weights can be at most, and write the kernel that comes near it.
#
# *Needs* labs 01, 02, 04 and 07. *Takes* about 150 minutes. Every cell runs on a laptop; with a GPU, the last figure measures it.
#
# What you want counted stands in the hole's cell: the grader reads those cells and no others.

# %% tags=["setup"]
import math
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F

from common import device, drawings, figures, ledger, samples, timing
from common.checks import agree

figures.use_style()
rng = np.random.default_rng()
torch.set_num_threads(1)  # the matrices are small: threads would only wait for each other

# %% tags=["driver"]
device.prepare_triton()  # before anything imports Triton: without a GPU, it interprets part 5's kernel

# %% [markdown]
# **Recall 1** (lab 02). A vector is multiplied by an 8192 × 8192 matrix of bf16 numbers on a GPU that reads 4.28 TB/s and computes
# 700 TFLOP/s. How long must it take? What would twice the FLOP/s change?
#
# <details><summary>Answer</summary>
#
# 2 · 8192² bytes take 31 µs to read; 2 · 8192² FLOP take 0.2 µs. Memory decides, so twice the FLOP/s changes nothing. Half the bytes
# would halve the time.
# </details>
#
# **Recall 2** (lab 07). A parameter is used by a thousand elements of the result. What is its gradient?
#
# <details><summary>Answer</summary>
#
# The sum of the thousand gradients that flow back to it.
# </details>

# %% [markdown]
# ## See it
#
# A network learns to read handwritten digits: 64 pixels in, ten scores out, 17,000 weights in three matrices. Like most networks it
# computes in fp32, 32 bits a number.

# %%
images, targets = samples.digits()
order = np.random.default_rng(0).permutation(len(targets))
pixels, targets = torch.tensor(images[order]).reshape(-1, 64) / 16, torch.tensor(targets[order])

def network(Linear=torch.nn.Linear, ReLU=torch.nn.ReLU):
    torch.manual_seed(0)
    return torch.nn.Sequential(Linear(64, 128), ReLU(), Linear(128, 64), ReLU(), Linear(64, 10))

# %%
net = network()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(300):
    batch = torch.randint(1297, (128,))
    optimizer.zero_grad()
    F.cross_entropy(net(pixels[batch]), targets[batch]).backward()
    optimizer.step()

# %% [markdown]
# Now take bits away: allow each matrix only a few evenly spaced values, and round every weight to the nearest. With b bits, as integers
# from −(2ᵇ⁻¹ − 1) to 2ᵇ⁻¹ − 1 times a step. Nothing is trained again. Before you run the second cell: at how many bits does it break?

# %%
def accuracy(model):
    return 100 * (model(pixels[1297:]).argmax(1) == targets[1297:]).float().mean().item()

def accuracy_with(change, *arguments):
    model = network()
    for layer, trained in zip(model[::2], net[::2], strict=True):
        layer.weight.data, layer.bias.data = change(trained.weight.data, *arguments), trained.bias.data
    return accuracy(model)

# %%
def naive(weight, bits):
    step = weight.abs().max() / (2 ** (bits - 1) - 1)
    return torch.round(weight / step) * step

bits, ax = [16, 12, 8, 7, 6, 5, 4, 3, 2], plt.subplots()[1]
ax.plot(bits, [accuracy_with(naive, b) for b in bits], "o", label="digits read correctly (%)")
ax.axhline(accuracy(net), color=figures.QUIET, linestyle=":", label="the same with 32 bits")
ax.set(title="Nothing, nothing, then everything", xlabel="bits a weight", xlim=(17, 1), ylim=(0, 105))
ax.legend(loc="lower left");

# %% [markdown]
# Down to four bits, or three, nothing happens; at two it is over. This lab moves the cliff, and collects what the missing bits are
# worth: in bytes, in time, and in the circuits that an integer does not need. Two questions run through it.
#
# *Which* numbers should the 2ᵇ codes stand for? And can we compute on the codes *without* turning them back into numbers?
#
# ## Part 1 · A number is a code
#
# Bits mean nothing until a *format* says which number each code stands for. A floating-point code has three fields, from the top: a sign
# bit, the exponent bits, the fraction bits.

# %% [markdown]
# With f fraction bits, and bias = 2^(exponent bits − 1) − 1, the fields mean
#
# $$\pm\,(1 + \text{fraction}/2^f) \cdot 2^{\,\text{exponent} - \text{bias}} \quad \text{where exponent} \ge 1$$
# $$\pm\,(0 + \text{fraction}/2^f) \cdot 2^{\,1 - \text{bias}} \quad \text{where exponent} = 0$$
#
# For example, fp16 `0 10000 1000000000` is (1 + 512/1024) · 2^(16 − 15) = 3. The second line are the *subnormals*: the smallest normal
# exponent, without the leading 1. They fill the gap around 0 evenly. What the largest exponent (all ones) is for differs from format to
# format:

# %% tags=["setup"]
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
# Write that as code. It will settle three claims of the lecture notes that this course grew from: the fp16 code `1 10001 1100000000` is
# −7.1; a NaN is a subnormal; and fp32's subnormals are fraction · 2^(exponent − 127), where fraction stands for our fraction / 2^f, the
# smallest of them 2⁻¹⁴⁹.

# %% tags=["hole"]
def decode(codes, format):
    """Numbers, float64 array, that these codes stand for.

    codes: int64 array. format: (exponent_bits, fraction_bits, top), as in FORMATS. About twelve lines.
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
for name, want in {"fp16": 2.0**-24, "fp32": 2.0**-149, "e4m3fn": 2.0**-9}.items():
    got, hidden = decode(np.array([1]), FORMATS[name]), 2 ** FORMATS[name][1]
    agree(got, np.array([want]), f"decode([1], {name})", mistakes={
        "With exponent 0 there is no leading 1: a subnormal.": np.array([want * (hidden + 1) / 2]),
        "A subnormal has the exponent 1 - bias, not 0 - bias as in the notes.": np.array([want / 2])})
print("decode reads the smallest subnormal of three formats")

# %% tags=["check"]
cases = [
    ("fp16", 0b1_10001_1100000000, -7.0, -7.1, "1.75 times 2^(17 - 15) is 7, not the notes' 7.1."),
    ("bf16", 0x7FC0, np.nan, 1.5 * 2.0**128, "The largest exponent with a fraction is NaN here."),
    ("e4m3fn", 0x7E, 448.0, np.nan, "e4m3fn has no infinity, and only all ones is NaN."),
    ("e4m3fn", 0x78, 256.0, np.inf, "e4m3fn has no infinity: this is a number."),
    ("e2m1", 0b0_11_0, 4.0, np.inf, "e2m1 has neither infinity nor NaN: all 16 codes are numbers.")]
for name, code, want, wrong, mistake in cases:
    got = decode(np.array([code]), FORMATS[name])
    agree(got, np.array([want]), f"decode([{code:#x}], {name})", mistakes={mistake: np.array([wrong])})
print("decode reads five codes that are easy to get wrong")

# %% tags=["check"]
for name, dtype in DTYPES.items():
    width = 8 * dtype.itemsize
    codes = np.arange(2**width)
    want = torch.from_numpy(codes.astype(f"uint{width}")).view(dtype).double().numpy()
    agree(decode(codes, FORMATS[name]), want, f"decode(all {len(codes):,} codes, {name})")
agree(decode(np.arange(0), FORMATS["fp16"]), np.zeros(0), "decode of no codes")
print("decode agrees with PyTorch on every code of fp16, bf16, e5m2 and e4m3fn")

# %% tags=["check"]
magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # the table in the microscaling specification
want = np.array(magnitudes + [-magnitude for magnitude in magnitudes])
agree(decode(np.arange(16), FORMATS["e2m1"]), want, "decode(all 16 codes, e2m1)")
codes = np.array([0b0_000_01, 0b0_001_00, 0b1_111_11])  # fp6: least subnormal, least normal, largest
want = np.array([0.0625, 0.25, -28.0])  # as the specification has them
agree(decode(codes, (3, 2, "finite")), want, "decode([1, 4, 63], (3, 2, 'finite'))")
print("decode agrees with the tables of fp4 and fp6")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Shift and mask: `codes >> fraction_bits & (2**exponent_bits - 1)` is the exponent field. As an integer, the significand is
# `fraction`, plus `2**fraction_bits` if the exponent is not 0. `np.ldexp(significand.astype(float), e)` multiplies by 2ᵉ without rounding.
# </details>
#
# All three claims are off: the code is −7; a NaN has the *largest* exponent; and the formula gives 2⁻¹⁵⁰, so its exponent must be −126.
#
# Here is every number of three 4-bit formats: an integer, e2m1, and e3m0, all exponent. A float is a grid whose step grows with the number.
# Where the grid should be dense is a choice.

# %%
grids = {"int4": np.arange(-8, 8), "e2m1": decode(np.arange(16), FORMATS["e2m1"])}
grids["e3m0"] = decode(np.arange(16), (3, 0, "finite"))
ax = plt.subplots(figsize=(7.2, 1.9))[1]
for row, grid in enumerate(grids.values()):
    ax.plot(grid, np.full(16, -row), "|", markersize=18, markeredgewidth=2, markeredgecolor=f"C{row}")
ax.set(title="Sixteen codes, three choices", xlabel="number", ylim=(-2.6, 0.6))
ax.set_yticks([0, -1, -2], grids);

# %% [markdown]
# ### Exercise 1.2 · encode
#
# Now the other way: the code of the nearest number. Halfway between two, take the even code: rounding halves always up would let sums
# drift. What is too large becomes infinity where there is one (from half a step beyond the largest number on, as if there were one more),
# else the largest number. NaN becomes any NaN.
#
# Without its sign, a code grows with its number. So if a fraction rounds up to 2, the carry runs into the exponent and is right there.

# %% tags=["hole"]
def encode(values, format):
    """Codes, int64 array, of the nearest numbers of this format; ties go to the even code.

    values: float64 array; infinities may occur, and NaN in formats that have it. About twelve lines.
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
for name, value, want, wrong, mistake in [
    ("fp16", 1 + 2.0**-11, 0x3C00, 0x3C01, "Halfway cases go to the even code, not away from zero."),
    ("fp16", 2 - 2.0**-12, 0x4000, 0x3C00, "This rounds up to 2: the carry belongs into the exponent."),
    ("fp16", 2.0**-24, 1, 0, "Numbers below the smallest normal one have subnormal codes."),
    ("fp16", 0.0, 0, 0x3400, "np.frexp says 0 for the exponent of 0: take the smallest normal one's."),
    ("fp16", -0.0, 0x8000, 0, "The sign of zero is kept."),
    ("e5m2", 61440.0, 0x7C, 0x7B, "Half a step beyond its largest number, e5m2 rounds to infinity."),
    ("e4m3fn", -np.inf, 0xFE, 0xF8, "e4m3fn has no infinity: what is too large becomes 448."),
    ("e4m3fn", 1e9, 0x7E, 0x7F, "What is too large becomes 448 in e4m3fn, not NaN.")]:
    got = encode(np.array([value]), FORMATS[name])
    agree(got, np.array([want]), f"encode([{value}], {name})", mistakes={mistake: np.array([wrong])})
print("encode writes eight numbers that are easy to get wrong")

# %% tags=["check"]
for name, dtype in DTYPES.items():
    integer = torch.uint8 if dtype.itemsize == 1 else torch.uint16
    every = torch.arange(2 ** (8 * dtype.itemsize)).to(integer).view(dtype).float()
    every = every[every.isfinite()].sort().values
    between = (every[1:] + every[:-1]) / 2
    beside = [between.nextafter(every[1:]), between.nextafter(every[:-1])]
    spread = rng.standard_normal(5000) * 2.0 ** rng.integers(-140, 120, 5000)
    values = torch.cat([every, between, *beside, torch.from_numpy(spread).float()])
    values = values[values.abs() <= (448 if name == "e4m3fn" else torch.inf)]  # above, versions differ
    want = values.to(dtype).view(integer).numpy().astype(np.int64)
    agree(encode(values.double().numpy(), FORMATS[name]), want, f"encode({len(want):,} values, {name})")
print("encode agrees with PyTorch on every number, every halfway case and its neighbours")

# %% tags=["check"]
for name, dtype in DTYPES.items():
    codes, width = encode(np.array([np.nan, 1.0]), FORMATS[name]), 8 * dtype.itemsize
    agree((codes.dtype, codes.shape), (np.dtype(np.int64), (2,)), f"dtype and shape of codes of {name}")
    assert 0 <= codes.min() and codes.max() < 2**width, f"encode([nan, 1], {name}) gave {codes}"
    numbers = torch.from_numpy(codes.astype(f"uint{width}")).view(dtype).float()
    agree(numbers, torch.tensor([np.nan, 1.0]), f"encode([nan, 1], {name}), read by PyTorch")
fp6 = encode(np.array([0.07, 0.1, -27.0, 99.0]), (3, 2, "finite"))
want = np.array([1, 2, 0b1_111_11, 0b0_111_11])
agree(fp6, want, "encode([0.07, 0.1, -27, 99], (3, 2, 'finite'))")
print("encode knows NaN, and a format that PyTorch lacks")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `np.frexp` gives the exponent; never let it fall below that of the smallest normal number. Multiply by
# 2^(fraction bits − exponent), round with `np.rint`, and you have an integer n. A normal number has n ≥ 2^f, and
# exponent field · 2^f + (n − 2^f) is its code; a subnormal number's code is n itself. One formula gives both.
# </details>

# %% tags=["check", "held-out"]
for _ in range(30):
    exponent_bits, fraction_bits = int(rng.integers(2, 5)), int(rng.integers(0, 4))
    least, numbers = 2 - 2 ** (exponent_bits - 1) - fraction_bits, []
    for exponent in range(2**exponent_bits):
        for fraction in range(2**fraction_bits):
            hidden = 2**fraction_bits if exponent else 0
            numbers.append(Fraction(2) ** (least + max(exponent, 1) - 1) * (hidden + fraction))
    form, codes = (exponent_bits, fraction_bits, "finite"), range(len(numbers))
    want = np.array([float(number) for number in numbers])
    agree(decode(np.array(codes), form), want, f"decode(all codes, {form})")
    values = rng.uniform(0, 1.2 * float(numbers[-1]), 20)
    distances = [[abs(number - Fraction(value)) for number in numbers] for value in values.tolist()]
    agree(encode(values, form), np.argmin(distances, 1), f"encode({values}, {form})")
print("decode and encode agree with exact fractions in 30 formats")

# %% [markdown]
# ### Exercise 1.3 · largest_lost
#
# Training in 16 bits stores gradients in 16 bits, and gradients are small. A **prediction**, before anything is measured: which
# magnitudes does a format turn into zero? Give the largest of them, for any format.

# %% tags=["hole"]
def largest_lost(format):
    """Largest magnitude, a float, that the format rounds to zero. About three lines.

    format: (exponent_bits, fraction_bits, top), as in FORMATS.
    """
    # BEGIN SOLUTION
    exponent_bits, fraction_bits, _ = format
    smallest_normal = 2.0 ** (2 - 2 ** (exponent_bits - 1))
    return smallest_normal / 2**fraction_bits / 2
    # END SOLUTION

# %% tags=["check"]
smallest = {"fp32": float(np.nextafter(np.float32(0), np.float32(1))), "e2m1": 0.5}
for name, dtype in DTYPES.items():
    one = torch.tensor([1], dtype=torch.uint8 if dtype.itemsize == 1 else torch.uint16)
    smallest[name] = float(one.view(dtype).double())
for name, number in smallest.items():
    half_normal = number * 2 ** FORMATS[name][1] / 2
    agree(largest_lost(FORMATS[name]), number / 2, f"largest_lost({name})", mistakes={
        "This is the smallest number above 0; half of it is a tie, and the code of 0 is even.": number,
        "This is half of the smallest normal number; subnormals are numbers too.": half_normal,
        "A subnormal has the exponent 1 - bias, not 0 - bias.": number / 4})
print("largest_lost agrees with PyTorch and NumPy in six formats")

# %% [markdown]
# So 2⁻¹⁵⁰, a number by the notes' formula, is exactly the largest that fp32 loses.
#
# Now real gradients, those of the digits network. *Loss scaling* multiplies the loss, and so every gradient, by a power of two before
# the gradients are rounded, and divides after it. Your formula draws the lines, PyTorch's own rounding the dots.

# %%
loss = F.cross_entropy(net(pixels[:1297]), targets[:1297])
gradients = torch.autograd.grad(loss, list(net.parameters()))
sizes = torch.cat([gradient[gradient != 0].abs() for gradient in gradients])
scales, predicted, measured = 2.0 ** np.arange(0, 25, 2), {}, {}
for name, dtype in DTYPES.items():
    limit = largest_lost(FORMATS[name])
    predicted[name] = [100 * (sizes * scale <= limit).float().mean().item() for scale in scales]
    measured[name] = [100 * ((sizes * scale).to(dtype) == 0).float().mean().item() for scale in scales]

# %%
print("lost without a scale:", {name: f"{shares[0]:.1f} %" for name, shares in measured.items()})
figures.predicted_and_measured(
    scales, predicted, measured, log="x", xlabel="loss scale", ylabel="gradients that become zero (%)",
    title="What a format loses, and what loss scaling brings back");

# %% [markdown]
# bf16 has fp32's exponent and loses nothing. fp16 needs a scale; too large a one makes the largest gradients infinite. So trainers double
# the scale from time to time; when a gradient overflows, they skip that step and halve it.
#
# ### Clinic: nothing is lost, nothing is learned
#
# The same program trains once in fp32, once in bf16. In bf16 hardly more gradients are zero than in fp32 (those are ReLU's), and yet
# the loss stays far higher. The counters are of the last step; a weight is *still* if its gradient is not zero and the step left it as it
# was. What is wrong?

# %%
def sgd_step(model, weights):
    batch = torch.randint(1297, (64,))
    loss = F.cross_entropy(model(pixels[batch].to(model[0].weight.dtype)), targets[batch])
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    for parameter, weight, gradient in zip(model.parameters(), weights, gradients, strict=True):
        weight -= 0.02 * gradient
        parameter.data.copy_(weight)
    return loss.item(), gradients

# %%
def train(dtype, keep):
    model = network().to(dtype)
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
# update is larger than about 2⁻⁹ of it. The cure is a *master copy* of the weights in fp32, which takes the updates and is rounded to bf16
# for the next step. Forward and backward still run in bf16, as the next cell does.
# </details>

# %% tags=["nbval-ignore-output"]
train(torch.bfloat16, keep=torch.Tensor.float)  # updates copies in fp32

# %% [markdown]
# **A format spends its bits on range or on precision. Gradients need range, updates need precision, and no 16 bits have enough of both.**
#
# ## Part 2 · Integers with a scale
#
# Floats are one way to place 2ᵇ numbers. The cheapest arithmetic wants them evenly spaced, so that the code is an integer to compute
# with. A *scale* S and a *zero-point* Z place the grid:
#
# $$r = S\,(q - Z)$$
#
# S is the step, Z the code that stands for 0. Zero must be hit exactly: padding and ReLU make a great many zeros, and errors on them
# would add up. So Z is an integer, and the range includes 0.

# %% [markdown]
# ### Exercise 2.1 · affine_parameters
#
# The notes give S = (high − low) / (q_max − q_min) and Z = round(q_min − low / S), which is right. They also give the signed n-bit
# integers as −2ⁿ⁻¹ − 1 to 2ⁿ⁻¹ − 1. Count those before you use them.
#
# Write these parameters and the two directions: `quantize` from values to codes, `dequantize` back. A value beyond the range gets the
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

    scale and zero_point broadcast against the values.
    """
    # BEGIN SOLUTION
    codes = torch.round(values / scale) + zero_point
    return codes.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).to(torch.int8)
    # END SOLUTION


def dequantize(codes, scale, zero_point):
    """The float32 values that int8 codes stand for. One line."""
    # BEGIN SOLUTION
    return scale * (codes.to(torch.int32) - zero_point)
    # END SOLUTION

# %% tags=["check"]
for bits in (8, 4, 3, 2) * 5:
    steps, q_min = 2**bits - 1, -(2 ** (bits - 1))
    scale = torch.from_numpy(2.0 ** rng.integers(-8, 4, 5)).float()
    below = torch.from_numpy(rng.integers(0, steps, 5) + rng.choice([0.25, 0.75], 5)).float()  # zero
    low, high = -below * scale, (steps - below) * scale
    wide, side = scale * steps / (steps + 1), high / (-q_min - 1)
    want, case = (scale, (q_min + below).round().int()), f"affine_parameters({low}, {high}, {bits})"
    agree(affine_parameters(low.clone(), high.clone(), bits), want, case, rtol=1e-6, mistakes={
        "Signed integers of n bits begin at -2^(n-1).": (wide, (q_min - 1 - low / wide).round().int()),
        "The zero-point is the nearest integer, not cut off.": (scale, (q_min + below).int()),
        "This scale comes from one side of the range.": (side, (q_min - low / side).round().int())})
print("affine_parameters places the grid for 100 ranges of 2, 3, 4 and 8 bits")

# %% tags=["check"]
low, high = torch.tensor([[1.0], [-3.0], [0.0]]), torch.tensor([[2.55], [-2.55], [0.0]])
want = torch.tensor([[0.01], [3 / 255], [1.0]]), torch.tensor([[-128], [127], [-128]]).int()
narrow = torch.tensor([[1.55 / 255], [0.45 / 255], [1.0]]), torch.tensor([[-293], [1572], [-128]]).int()
case = "affine_parameters of 1 to 2.55, of -3 to -2.55 and of 0 to 0, in 8 bits"
agree(affine_parameters(low, high, 8), want, case, rtol=1e-6, mistakes={
    "0 is not in all of these ranges: widen them first.": narrow})
print("affine_parameters widens a range to 0, and gives one of no width the scale 1")

# %% tags=["check"]
zero, int8 = torch.tensor(-100).int(), lambda *codes: torch.tensor(codes).to(torch.int8)
got = quantize(torch.tensor([100.0, -100.0, 0.0, 13.1]), torch.tensor(0.5), zero, 8)
agree(got, int8(100, -128, -100, -74), "quantize([100, -100, 0, 13.1], 0.5, -100, 8)", mistakes={
    "What lies beyond the range gets the code at its end.": int8(100, -44, -100, -74),
    "The zero-point is added: it is the code of 0.": int8(127, -100, 100, 126)})
got = dequantize(int8(100, -128, 0), torch.tensor(0.5), zero)
agree(got, torch.tensor([100.0, -14.0, 50.0]), "dequantize([100, -128, 0], 0.5, -100)", mistakes={
    "int8 minus int32 may wrap: widen the codes first.": torch.tensor([-28.0, -14.0, 50.0]),
    "The zero-point is subtracted: it is the code of 0.": torch.tensor([0.0, -114.0, -50.0]),
    "First subtract the zero-point, then scale.": torch.tensor([150.0, 36.0, 100.0])})
print("quantize and dequantize pass some cases by hand")

# %% tags=["check"]
for bits in (8, 5, 4, 2):
    q_min, levels = -(2 ** (bits - 1)), 2**bits
    scale = torch.from_numpy(rng.uniform(0.01, 2, (9, 1))).float()
    zero = torch.from_numpy(rng.integers(q_min, -q_min, (9, 1))).int()
    numbers = scale * (torch.arange(q_min, -q_min) - zero)  # (9, levels): all that codes can say
    values = torch.from_numpy(rng.uniform(-0.7, 0.7, (9, 31))).float() * levels * scale
    nearest = (values[:, :, None] - numbers[:, None, :]).abs().amin(2)
    codes = quantize(values.clone(), scale, zero, bits)
    least, most = int(codes.min()), int(codes.max())
    assert q_min <= least and most < -q_min, f"codes of {bits} bits: {least} to {most}, out of range"
    agree((dequantize(codes, scale, zero) - values).abs(), nearest, f"error of {bits} bits", atol=1e-4)
print("quantize picks the nearest of all codes, and dequantize says what they stand for")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `low.clamp(max=0)` and `high.clamp(min=0)` widen the range. Rows, channels and groups need no loop: `scale` of shape (rows, 1) broadcasts
# against values of shape (rows, columns).
# </details>

# %%
photograph = torch.from_numpy(samples.photograph())[48:112, 84:148]
drawn = {"32 bits": photograph}
for bits, title in ((4, "4 bits"), (2, "2 bits"), (1, "1 bit")):
    scale, zero_point = affine_parameters(photograph.min(), photograph.max(), bits)
    drawn[title] = dequantize(quantize(photograph, scale, zero_point, bits), scale, zero_point)
drawings.pictures(drawn)
plt.show()

# %% [markdown]
# ### Exercise 2.2 · quantize_groups
#
# One scale for a whole matrix is set by its largest weight, and every other weight pays. So give each row (*channel*) a scale, or each
# run of g weights within a row (*group*). The last group of a row may be shorter; a group never reaches into the next row.
#
# The notes say that "Z_W follows a normal distribution and can be approximated as 0". It is the *weights* that are about normal, centred
# on 0, and so need no zero-point. Here Z = 0, the largest magnitude of a group gets the code ±(2ᵇ⁻¹ − 1), and −2ᵇ⁻¹ stays unused.

# %% tags=["hole"]
def quantize_groups(weight, bits, group):
    """(codes, scales): int8 (rows, columns) and float32 (rows, groups of a row), symmetric.

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

# %% tags=["check"]
for rows, columns, group in [(4, 6, 4), (3, 10, 8), (5, 9, 2)]:
    weight = torch.from_numpy(rng.normal(0, rng.uniform(1, 9, (rows, 1)), (rows, columns))).float()
    tops = [piece.amax(1) / 7 for piece in weight.split(group, 1)]
    want = torch.stack([piece.abs().amax(1) / 7 for piece in weight.split(group, 1)], 1)
    on = F.pad(weight.flatten(), (0, want.numel() * group - weight.numel()))
    on = on.view(rows, len(tops), group).abs().amax(2) / 7
    _, scales = quantize_groups(weight.clone(), 4, group)
    agree(scales, want, f"scales of {rows} × {columns}, groups of {group}", rtol=1e-6, mistakes={
        "A group ends with its row: the next row is not in it.": torch.where(on > 0, on, 1.0),
        "Weights below 0 count, too.": torch.stack([torch.where(top > 0, top, 1.0) for top in tops], 1),
        "The largest magnitude gets the largest code, 2^(n-1) - 1.": want * 7 / 8})
print("quantize_groups keeps its groups within rows")

# %% tags=["check"]
cases = [(5, 9, 8, 4), (3, 7, 7, 8), (1, 1, 9, 3), (2, 9, 2, 2), (0, 5, 2, 4)]
for rows, columns, group, bits in cases:
    weight = torch.from_numpy(rng.standard_normal((rows, columns))).float()
    weight[:1, :group] = 0
    pieces = [weight[:, first:first + group].abs().amax(1) for first in range(0, columns, group)]
    raw = torch.stack(pieces, 1) / (2 ** (bits - 1) - 1)
    want, case = torch.where(raw > 0, raw, 1.0), f"scales of {rows} × {columns}, groups of {group}"
    _, scales = quantize_groups(weight.clone(), bits, group)
    agree(scales, want, f"{case}, {bits} bits, the first group 0", rtol=1e-6, mistakes={
        "A group of zeros has scale 1: a scale of 0 divides by zero.": raw})
print("quantize_groups gives each group its scale, for five shapes")

# %% tags=["check"]
cases = [(4, 6, 4, 4), (3, 7, 7, 8), (1, 1, 9, 3), (2, 9, 2, 2), (6, 9, 8, 3)]
for rows, columns, group, bits in cases:
    weight = torch.from_numpy(rng.standard_normal((rows, columns))).float()
    codes, scales = quantize_groups(weight.clone(), bits, group)
    case = f"{rows} × {columns}, {bits} bits, groups of {group}"
    agree((codes.dtype, tuple(codes.shape)), (torch.int8, (rows, columns)), f"form of codes, {case}")
    agree(tuple(scales.shape), (rows, -(-columns // group)), f"shape of scales, {case}")
    steps = torch.stack([scales[:, column // group] for column in range(columns)], 1)
    assert (weight - codes * steps).abs().le(0.501 * steps).all(), f"codes are not the nearest, {case}"
    agree(dequantize_groups(codes, scales, group), codes * steps, f"weights back, {case}", rtol=1e-6)
print("quantize_groups picks the nearest codes, and dequantize_groups reads them, for five shapes")

# %% [markdown]
# How large is the error? If a value falls anywhere within a step of width S, its rounding error is spread evenly from −S/2 to S/2, and
# the mean of its square is S²/12. That predicts the error from the scales alone: the lines. The dots are the errors of the network's middle
# layer, measured.

# %%
def errors(weight, bits, group):
    weight = weight.view(1, -1) if group > 128 else weight  # one scale: a single long row
    codes, scales = quantize_groups(weight, bits, group)
    error = dequantize_groups(codes, scales, group) - weight
    return (scales.square().mean() / 12).sqrt().item(), error.square().mean().sqrt().item()

kinds, bits = {"one scale": 8192, "one a row": 128, "one a group of 16": 16}, range(2, 9)
both = {kind: [errors(net[2].weight.detach(), b, group) for b in bits] for kind, group in kinds.items()}

# %%
predicted, measured = ({kind: [e[i] for e in pairs] for kind, pairs in both.items()} for i in (0, 1))
figures.predicted_and_measured(
    bits, predicted, measured, log="y", xlabel="bits a weight", ylabel="error (root mean square)",
    title="A bit halves the error; so may a better scale", ax=plt.subplots(figsize=(7.2, 3.6))[1]);

# %% [markdown]
# The line holds down to three bits; at two there are three numbers, most weights round to 0, and the error is no longer spread evenly.
#
# **The largest number in a group sets the error of all others. Smaller groups cost scales and buy bits.**

# %% [markdown]
# ### Exercise 2.3 · bits_per_weight
#
# What do the scales cost? Give the bits of a row of weights, its scales counted in, divided by its number of weights. You will need it
# twice: to compare formats fairly, and to **predict**, before anything is measured, how fast 4-bit weights can be.

# %% tags=["hole"]
def bits_per_weight(columns, bits, group, scale_bits=16):
    """Bits a weight, a float, scales included, in a row of `columns` weights. About two lines.

    Each `group` weights of the row have a scale; the last group may be shorter, its scale is not.
    """
    # BEGIN SOLUTION
    scales = -(-columns // group)
    return bits + scales * scale_bits / columns
    # END SOLUTION

# %% tags=["check"]
for _ in range(100):
    columns, bits, scale_bits = (int(rng.integers(2, end)) for end in (500, 17, 33))
    group = int(rng.integers(1, columns))
    pieces = [len(range(columns)[first:first + group]) for first in range(0, columns, group)]
    want = float(Fraction(sum(scale_bits + bits * piece for piece in pieces), columns))
    case = f"bits_per_weight({columns}, {bits}, {group}, {scale_bits})"
    agree(bits_per_weight(columns, bits, group, scale_bits), want, case, rtol=1e-12, mistakes={
        "The scales are missing.": float(bits),
        "The last, shorter group has a scale too.": bits + columns // group * scale_bits / columns,
        "The scale of a shorter group is as large as another's.": bits + scale_bits / group})
agree([bits_per_weight(8192, 4, 128), bits_per_weight(5, 4, 128)], [4.125, 7.2], "8192 and 5 columns")
print("bits_per_weight counts the scales of 102 rows")

# %% [markdown]
# ## Part 3 · Arithmetic on codes
#
# Put r = S(q − Z) into the product of a weight matrix and an activation matrix:
#
# $$\sum_k w_{nk}\,x_{km} \;=\; S_W S_X \sum_k (q^W_{nk} - Z_W)(q^X_{km} - Z_X)$$
#
# An integer unit could do this sum, were it not for the zero-points: q − Z runs from −255 to 255. That is nine bits, and the hardware
# multiplies eight by eight. So multiply out:
#
# $$\sum_k q^W q^X \;-\; Z_W \sum_k q^X \;-\; Z_X \sum_k q^W \;+\; K\,Z_W Z_X$$
#
# Only the first sum multiplies in its inner loop, and it has no zero-point.

# %% [markdown]
# ### Exercise 3.1 · integer_matmul
#
# The last two terms know the weights alone: `weight_terms` computes them once, when the model is loaded. `integer_matmul` does the rest,
# and is not even told Z_X. The notes have the last term as Z_W Z_X; the sum over k takes it K times.
#
# The product of two codes takes 16 bits, and a sum of thousands of products more: accumulate in int32, whatever the inputs are.

# %% tags=["hole"]
def weight_terms(w, w_zero, x_zero):
    """What the product owes to the weights and the zero-points alone: int32 tensor (rows,).

    w: int8 codes (rows, K). w_zero, x_zero: ints. About two lines.
    """
    # BEGIN SOLUTION
    return w.shape[1] * w_zero * x_zero - x_zero * w.sum(1, dtype=torch.int32)
    # END SOLUTION


def integer_matmul(w, x, w_zero, terms):
    """The sum over k of (w - w_zero)(x - x_zero): int32 tensor (rows, columns). About three lines.

    w, x: int8 codes (rows, K) and (K, columns). terms: weight_terms of w, which know x_zero.
    """
    # BEGIN SOLUTION
    products = w.to(torch.int32) @ x.to(torch.int32)  # the inner loop: no zero-point
    return products - w_zero * x.sum(0, dtype=torch.int32) + terms[:, None]
    # END SOLUTION

# %% tags=["check"]
for rows, depth in [(2, 3), (1, 1), (5, 0), (0, 4), (3, 700), (17, 33)]:
    w = torch.from_numpy(rng.integers(-128, 128, (rows, depth)))
    w_zero, x_zero = (rng.integers(3, 100, 2) * rng.choice([-1, 1], 2)).tolist()
    want, product = ((w - w_zero) * -x_zero).sum(1).int(), w_zero * x_zero  # want: for an x of zeros
    got = weight_terms(w.to(torch.int8), w_zero, x_zero)
    agree(got, want, f"weight_terms(w {rows} × {depth}, {w_zero}, {x_zero})", mistakes={
        "The term K Z_W Z_X is missing.": want - depth * product,
        "Z_W Z_X is in every one of the K summands: take it K times.": want - (depth - 1) * product,
        "Z_X times the sum of each row of w is subtracted.": want + 2 * x_zero * w.sum(1).int()})
print("weight_terms is exact for six shapes")

# %% tags=["check"]
for m, k, n in [(2, 3, 4), (1, 1, 1), (5, 0, 3), (0, 4, 2), (3, 3000, 2), (17, 33, 9)]:
    w, x = (torch.from_numpy(rng.integers(k // 14 - 128, 128, shape)) for shape in ((m, k), (k, n)))
    w_zero, x_zero = (rng.integers(3, 100, 2) * rng.choice([-1, 1], 2)).tolist()
    want, raw = ((w - w_zero) @ (x - x_zero)).int(), (w @ x).int()
    terms, sums = ((w - w_zero) * -x_zero).sum(1).int(), w_zero * x.sum(0).int()
    got = integer_matmul(w.to(torch.int8), x.to(torch.int8), w_zero, terms)
    agree(got, want, f"integer_matmul({m} × {k}, {k} × {n}, {w_zero}, ...)", mistakes={
        "The sum overflowed 8 bits: accumulate in int32.": want - raw + raw.to(torch.int8),
        "The sum overflowed 16 bits: accumulate in int32.": want - raw + raw.to(torch.int16),
        "float32 is exact to 2^24 only: stay in int32.": want - raw + (w.float() @ x.float()).int(),
        "Z_W times the sum of each column of x is missing.": want + sums})
print("integer_matmul is exact for six shapes, both zero-points other than 0")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `w.sum(1, dtype=torch.int32)` sums a row without overflow. For `weight_terms`, set x to zeros in the formula above and see what is left:
# the third and the fourth term.
# </details>

# %% tags=["check", "held-out"]
for fill in (-128, 127):
    w = torch.full((2, 4000), fill)
    x = torch.from_numpy(rng.choice([-128, 127], (4000, 3), p=[0.1, 0.9]))
    w_zero, x_zero = int(rng.integers(100, 128)), -int(rng.integers(100, 129))
    want, codes = ((w - w_zero) @ (x - x_zero)).int(), w.to(torch.int8)
    got = integer_matmul(codes, x.to(torch.int8), w_zero, weight_terms(codes, w_zero, x_zero))
    agree(got, want, f"integer_matmul of extreme codes, K = 4000, zero-points {w_zero} and {x_zero}")
print("integer_matmul is exact at the ends of the range")

# %% [markdown]
# ### Exercise 3.2 · requantize
#
# The result is an integer in units of S_W S_X; the next layer wants int8 codes in units of S_Y. That is a multiplication by
# M = S_W S_X / S_Y, in practice between 0 and 1, and + Z_Y. A chip without floats writes M ≈ m / 2^shift with an integer m of 31 bits
# (2³⁰ ≤ m < 2³¹), multiplies in 64 bits, and shifts right.
#
# A right shift rounds down. Add half of what the last place is worth before it, and it rounds to the nearest, a tie upwards.

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
    """int8 codes: sums · m / 2**shift rounded to nearest, + zero_point, cut to -128 ... 127. No floats.

    sums: int32 tensor. About three lines.
    """
    # BEGIN SOLUTION
    scaled = sums.to(torch.int64) * m + 2 ** (shift - 1) >> shift
    return (scaled + zero_point).clamp(-128, 127).to(torch.int8)
    # END SOLUTION

# %% tags=["check"]
drawn = np.exp(rng.uniform(np.log(1e-6), 0, 60)).tolist()
for multiplier in [0.5, 2.0**-20, 1 - 2.0**-40, 0.75, *drawn]:
    m, shift = fixed_point(multiplier)
    agree((type(m), type(shift)), (int, int), f"types of fixed_point({multiplier})")
    assert 2**30 <= m < 2**31, f"fixed_point({multiplier}) gave m = {m}, not from 2**30 to 2**31 - 1"
    error = abs(Fraction(m) / Fraction(2) ** shift / Fraction(multiplier) - 1)
    assert error <= Fraction(1, 2**31), f"fixed_point({multiplier}) gave {m}: round m to nearest"
print("fixed_point is right to 31 bits for 64 multipliers")

# %% tags=["check"]
for _ in range(40):
    m, shift = int(rng.integers(2**30, 2**31)), int(rng.integers(31, 50))
    zero = int(rng.choice([-1, 1]) * rng.integers(5, 28))
    sums = torch.from_numpy(rng.uniform(-100, 100, 20) * min(2.0**shift / m, 2.0**24)).int()
    exact, half = [Fraction(total * m, 2**shift) for total in sums.tolist()], Fraction(1, 2)
    want, down = ([math.floor(number + add) + zero for number in exact] for add in (half, 0))
    early = [math.floor(number + Fraction(zero * m, 2**shift) + half) for number in exact]
    want, down, early = (torch.tensor(codes).to(torch.int8) for codes in (want, down, early))
    agree(requantize(sums, m, shift, zero), want, f"requantize(sums, {m}, {shift}, {zero})", mistakes={
        "A right shift rounds down: add half of the last place first.": down,
        "The zero-point is in output steps: add it after the shift.": early})
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

# %% [markdown]
# <details><summary>Hint</summary>
#
# Raise `shift` until `multiplier * 2**shift` is at least 2³⁰, then round it; if that gives 2³¹ exactly, halve it and lower the shift.
# In `requantize`, convert the sums to int64 first: the product takes 62 bits. `(a + 2 ** (shift - 1)) >> shift` rounds to nearest.
# </details>

# %% [markdown]
# Now a whole layer in integers. If its output's range starts at 0, the zero-point is −128, and cutting to int8 cuts off everything
# negative: that is ReLU, for nothing. The bias is an int32 in units of S_W S_X; it joins the weight terms. And Z_W = 0, so the term
# with the columns of x is gone too.
#
# The second cell compares with the same codes multiplied in floating point.

# %%
def integer_layer(x, x_scale, x_zero, layer, y_scale, y_zero):
    w_scale = layer.weight.detach().abs().max() / 127
    w = quantize(layer.weight.detach(), w_scale, 0, 8)
    bias = torch.round(layer.bias.detach() / (w_scale * x_scale)).to(torch.int32)
    sums = integer_matmul(w, x.T, 0, weight_terms(w, 0, x_zero) + bias)
    m, shift = fixed_point((w_scale * x_scale / y_scale).item())
    return requantize(sums, m, shift, y_zero).T

# %%
weight, bias = net[0].weight.detach(), net[0].bias.detach()
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
# **Zero-points leave the inner loop: what is left is integers times integers, and one multiplication and shift at the end.**
#
# ## Part 4 · What range does an activation have?
#
# Weights are known; activations come with each input. Their range is fixed beforehand, from a *calibration set* of real inputs:
#
# - *min-max*: the smallest and the largest value ever seen;
# - *moving average*: each batch's extremes, smoothed from batch to batch;
# - *percentile*: the rarest values are cut off on both sides. They get the code at the end; all others get smaller steps.

# %% [markdown]
# ### Exercise 4.1 · calibrated_range
#
# Write all three. The moving average starts with the first batch's extremes, then takes over a tenth of each further batch's:
# low ← 0.9 · low + 0.1 · (this batch's). The percentile is of all values together, 0.1 % cut off at either end.

# %% tags=["hole"]
def calibrated_range(batches, method):
    """(low, high), floats: the range of the activations.

    batches: list of float32 tensors. method: "minmax", "average" (of the extremes, 0.9 old + 0.1 new)
    or "percentile" (0.1 and 99.9 of all values; torch.quantile). About twelve lines.
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
# Clipping is a trade. The lines are the rounding error S/√12 that follows from each range; the dots are the error of the network's first
# hidden layer. At 8 bits the percentile's dot lies far above its line: that is what clipping costs. At 4 bits its smaller steps win. (Most
# dots are a little low: a sixth of these values are exact zeros, and zero has no error.)

# %%
def calibrated(values, method, bits=8):
    low, high = map(torch.tensor, calibrated_range(list(values.split(64)), method))
    scale, zero_point = affine_parameters(low, high, bits)
    return scale, int(zero_point)

def error(values, scale, zero_point, bits):
    codes = quantize(values, scale, zero_point, bits)
    return (dequantize(codes, scale, zero_point) - values).square().mean().sqrt().item()

# %%
hidden, bits = F.relu(net[0](pixels[:1297])).detach(), range(2, 9)
methods = "minmax", "average", "percentile"
grids = {method: [calibrated(hidden, method, b) for b in bits] for method in methods}
predicted = {method: [scale.item() / 12**0.5 for scale, _ in grids[method]] for method in methods}
measured = {method: [error(hidden, *grids[method][b - 2], b) for b in bits] for method in methods}
figures.predicted_and_measured(
    bits, predicted, measured, log="y", xlabel="bits an activation", ylabel="error (root mean square)",
    title="Cut off the rarest values? It depends on the bits", ax=plt.subplots(figsize=(7.2, 3.6))[1]);

# %% [markdown]
# Now the whole network on integers, from pixels to scores, with ranges from the training set. The codes of the scores are in order like
# the scores, so the answer is the largest code.

# %%
def integer_network(x, method):
    values, grid = pixels[:1297], (torch.tensor(1 / 255), -128)
    codes = quantize(x, *grid, 8)
    for i in (0, 2, 4):
        values, x_grid = net[i:i + 2](values).detach(), grid
        grid = calibrated(values, method)
        codes = integer_layer(codes, *x_grid, net[i], *grid)
    return codes

# %%
for method in methods:
    right = integer_network(pixels[1297:], method).argmax(1) == targets[1297:]
    print(f"int8, {method:10} {100 * right.float().mean():.1f} %      float32 {accuracy(net):.1f} %")

# %% [markdown]
# And the first figure again: how few bits? Weights of 8 bits down to 2, with their fp16 scales counted in, at three granularities.
# Nothing is trained again. The numbers at the dots are bits.

# %%
def rounded(weight, bits, group):
    rows = weight.reshape(1, -1) if group > 128 else weight  # one scale a matrix: a single long row
    codes, scales = quantize_groups(rows, bits, group)
    return dequantize_groups(codes, scales, group).view_as(weight)

def kilobytes(bits, group):
    weights = [layer.weight.reshape(1, -1) if group > 128 else layer.weight for layer in net[::2]]
    return sum(w.numel() * bits_per_weight(w.shape[1], bits, group) for w in weights) / 8e3

# %%
def point(bits, group):
    return bits, kilobytes(bits, group), 100 - accuracy_with(rounded, bits, group)

kinds = {"one scale a matrix": 8192, "one a row": 128, "one a group of 32": 32}
points = {kind: [point(bits, group) for bits in (8, 6, 5, 4, 3, 2)] for kind, group in kinds.items()}
points["fp32"] = [(32, kilobytes(32, 8192), 100 - accuracy(net))]
frame = {"xscale": "log", "xlabel": "weights and scales (KB)", "xticks": [5, 10, 20, 50],
         "yscale": "log", "ylabel": "digits misread (%)", "yticks": [2, 5, 10, 20, 50]}

# %%
ax = plt.subplots(subplot_kw=frame | {"title": "Down to four bits, nothing is lost"})[1]
for (kind, dots), above in zip(points.items(), (-14, 6, 16, 6)):  # the numbers, in points
    line, = ax.plot([size for _, size, _ in dots], [share for *_, share in dots], "o-", label=kind)
    style = {"ha": "center", "size": 8, "color": line.get_color(), "textcoords": "offset points"}
    for bits, *place in dots:
        ax.annotate(bits, place, (0, above), bbox={"fc": "w", "lw": 0, "pad": 1}, **style)
plt.setp([ax.xaxis, ax.yaxis], major_formatter="{x:g}", minor_locator=plt.NullLocator())
ax.legend(handlelength=2.4);

# %% [markdown]
# **Four bits a weight cost nothing here, three little; at two, all depends on how near the scales are to their weights.** (Our rows have
# 64 or 128 weights, so a row is already a small group. In a language model it has thousands, and outliers among them.)
#
# ## Part 5 · Four bits, and four times the speed
#
# For each token, a language model multiplies each of its matrices by one vector. Lab 02 says what that costs: the bytes of the weights.
# So 4-bit weights should be nearly four times as fast as bf16, *if* the kernel unpacks them as fast as memory delivers.

# %% [markdown]
# An H200 reads the 34 MB of 8192² such weights in 8 µs, in which its 132 multiprocessors issue about four instructions a weight (each
# 128 a cycle, at 1.98 GHz). To shift, mask, subtract 8, convert to float, multiply and add takes 5.3, counted in the machine code.
#
# Part 1 knows better. Read an integer n < 2²³ as an fp32 code: its exponent is 0, so it is the *subnormal* n · 2⁻¹⁴⁹, exactly. And a
# *nibble*, four bits, can be masked *where it stands*:
#
# $$\text{word} \mathbin{\&} (15 \ll 4i) \;\text{ read as fp32} \;=\; \text{nibble} \cdot 2^{4i - 149} \qquad (i \le 4)$$

# %% [markdown]
# Multiply that by x · 2^(100 − 4i), and every product is nibble · x · 2⁻⁴⁹: one mask and one multiply-add a weight (3.2 instructions with
# all that is around them). Nibbles 4 to 7 would reach into the exponent; shift the word right by 12 first, and they stand at places 1 to 4.
#
# A stored nibble is the code plus 8. That 8 is a zero-point, and you know where it goes: out of the inner loop, as 8 times a sum of x that
# all rows share.
#
# The next cell is ours: it packs the weights and launches your kernel.

# %% tags=["driver"]
import triton
import triton.language as tl


def pack_int4(codes, group):
    """int32 words (rows, columns / 8), each of eight codes plus 8.

    Nibble i (bits 4 i to 4 i + 3) of word c of a group is the group's column i * group / 8 + c.
    """
    nibbles = (codes.to(torch.int64) + 8).view(len(codes), -1, 8, group // 8)
    words = (nibbles << 4 * torch.arange(8, device=codes.device)[:, None]).sum(2)
    return words.to(torch.int32).view(len(codes), -1)


def launch(packed, scales, x, y):
    """Launches the kernel below: a program for each 8 rows, 256 words of each row a step."""
    (rows, groups), words = scales.shape, packed.shape[1] // scales.shape[1]
    sizes = {"ROWS": math.gcd(rows, 8), "STEP": math.gcd(groups, max(1, 256 // words))}
    grid = (rows // sizes["ROWS"],)
    try:
        int4_matvec_kernel[grid](packed, scales, x, y, GROUPS=groups, WORDS=words, **sizes, num_warps=2)
    except triton.runtime.errors.InterpreterError as error:
        raise error.__cause__ from None  # the error in the kernel, as it was raised


def int4_matvec(codes, scales, x):
    """y = W x, float32 (rows,), with W = codes * scales by groups; scales and x in bf16."""
    where = "cuda" if device.has_gpu() else "cpu"
    packed = pack_int4(codes, codes.shape[1] // scales.shape[1]).to(where)
    y = torch.empty(len(codes), device=where)
    launch(packed, scales.bfloat16().to(where), x.bfloat16().to(where), y)
    return y.cpu()

# %% [markdown]
# ### Exercise 5.1 · int4_matvec_kernel
#
# Write the kernel: y = W x with 4-bit codes in groups, packed as `pack_int4` says. The usual way of unpacking is right too; the one with
# subnormals is faster. Without a GPU, Triton's interpreter runs it.
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
    total = tl.zeros((ROWS, CELLS // 4), tl.float32)  # a sum a lane: lanes are added once, at the end
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

# %% tags=["check"]
for group in (32, 128):
    codes = torch.from_numpy(rng.integers(-8, 8, (8, 2 * group))).to(torch.int8)
    scales = torch.from_numpy(rng.uniform(0.5, 2, (8, 2))).bfloat16().float()
    column = int(rng.integers(group + 1, 2 * group - 1))
    other = group + column % 8 * (group // 8) + (column - group) // 8
    want, x = codes[:, column] * scales[:, 1], F.one_hot(torch.tensor(column), 2 * group).float()
    got = int4_matvec(codes, scales, x)
    agree(got, want, f"x = 1 in column {column}, groups of {group}: y", rtol=1e-5, atol=1e-6, mistakes={
        "A nibble is the code plus 8: take the 8 off again.": want + 8 * scales[:, 1],
        "This is another column's code: see pack_int4.": codes[:, other] * scales[:, 1],
        "This is the first group's scale: each group has its own.": codes[:, column] * scales[:, 0]})
print("int4_matvec_kernel finds the code and the scale of a single column")

# %% tags=["check"]
for rows, groups, group in [(3, 3, 32), (16, 4, 64), (8, 2, 256), (24, 20, 128)]:
    codes = torch.from_numpy(rng.integers(-8, 8, (rows, groups * group))).to(torch.int8)
    scales = torch.from_numpy(rng.uniform(0.5, 2, (rows, groups))).bfloat16().float()
    x = torch.from_numpy(rng.standard_normal(groups * group)).bfloat16().float()
    want = (codes * scales.repeat_interleave(group, 1)).double() @ x.double()
    got, tolerance = int4_matvec(codes, scales, x), 1e-4 * float(want.abs().mean())
    agree(got, want.float(), f"y for {rows} rows of {groups} groups of {group}", atol=tolerance)
print("int4_matvec_kernel agrees with float64 for four shapes")

# %% [markdown]
# <details><summary>Hint</summary>
#
# First write it the usual way, with `((words >> 4 * i) & 15) - 8` for i in `tl.static_range(8)`, and pass the check. Then replace the
# conversion: `(words & (15 << 4 * i)).to(tl.float32, bitcast=True)`. Word number `cell` of a row is word `cell % WORDS` of group
# `cell // WORDS`, and its nibble i belongs to column `cell // WORDS * 8 * WORDS + i * WORDS + cell % WORDS`.
# </details>
#
# The **prediction** is yours: 16 / bits_per_weight. On a GPU the dots are cuBLAS's time with bf16 weights over your kernel's, with a cold
# cache (4-bit weights of this size would fit into it). Without one they are counted: the bytes of weights, scales, x and y, bf16 over
# int4.

# %%
def operands(group, rows, columns, where):
    weight, x = torch.randn(rows, columns, device=where), torch.randn(columns, device=where).bfloat16()
    codes, scales = quantize_groups(weight, 4, group)
    int4 = pack_int4(codes, group), scales.bfloat16(), x, torch.empty(rows, device=where)
    return (weight.bfloat16(), x), int4

# %%
def speedup(bf16, int4):
    if not device.has_gpu():  # of the bytes, the result's included
        return (sum(t.nbytes for t in bf16) + 2 * len(bf16[0])) / sum(t.nbytes for t in int4)
    calls = (torch.mv, *bf16), (launch, *int4)
    bf16_s, int4_s = (timing.measure(*call, cold_cache=True).median_s for call in calls)
    return bf16_s / int4_s

# %% tags=["nbval-ignore-output"]
shape = (8192, 8192, "cuda") if device.has_gpu() else (1024, 4096, "cpu")
groups, of = [32, 64, 128, 256, 512], "time" if device.has_gpu() else "bytes"
predicted = [16 / bits_per_weight(8192, 4, group) for group in groups]
measured = [speedup(*operands(group, *shape)) for group in groups]
ax = figures.predicted_and_measured(
    groups, predicted, measured, log="x", xlabel="weights a scale", ylabel=f"bf16's {of} / int4's {of}",
    dots_are="measured" if of == "time" else "counted", title="A matrix times one vector, in four bits")
ax.set(ylim=(0, 4.2), xticks=groups, xticklabels=groups);

# %% tags=["nbval-ignore-output"]
name = "speed-up of int4 over bf16, one vector, groups of 128"
ledger.predict(name, predicted[2], "times")
(ledger.measured if device.has_gpu() else ledger.counted)(name, measured[2], "times")
weight_bytes = bits_per_weight(8192, 4, 128) / 8
ledger.constant("int4 weight with its scale, groups of 128", weight_bytes, "B", "lab 10, counted")
ledger.table()

# %% [markdown]
# The bytes allow 3.88 times with groups of 128. On an H200 in one CUDA graph, with no launch to pay, ours takes 12.7 µs and bf16
# 33.9: 2.66 times; 3.1 with 28,672 rows. Where is the rest? To load the words and do nothing else takes 9.3 µs; the arithmetic with
# no load of x, 11.7. The two overlap, but badly: a program must wait for a tile before it can unpack it.
# (Ours adds up four neighbouring words before it multiplies by their scale, and all else once, at the end. Adding up at each step took
# 20.8 µs.)

# %% [markdown]
# **The last steps, ours: tensor cores.** Your kernel spends three instructions on each weight. Read as *bf16*, a nibble where it stands is a
# subnormal too: n · 2⁻¹³³ in bits 0 to 3, n · 2⁻¹²⁹ in bits 4 to 7. So *one* mask makes *two* weights of a word, and a tensor core multiplies
# 16 × 16 of them by eight vectors in one instruction. We have one, eight times: seven results are thrown away, and cost
# nothing that is scarce. That makes 2.1 instructions a weight. Packed in the order in which a warp's registers hold such a
# tile, weights are used where they were loaded.

# %% tags=["driver"]
def pack_tiles(codes, scales):
    """(words, scales) for tensor_core_kernel. A row has 8 parts; of one 16 × 128 make 1 KB.

    Nibble i of half h of a row's word 4 t + 2 p + q is column 64 p + 16 i + 4 t + 2 q + h of these 128.
    """
    tiles = len(codes) // 16
    nibbles = (codes.long() + 8).view(tiles, 16, 8, -1, 2, 4, 4, 2, 2)  # row, part, step, p, i, t, q, h
    i, h = (torch.arange(count, device=codes.device) for count in (4, 2))
    words = (nibbles << 4 * i[:, None, None, None] + 16 * h).sum((5, 8))
    words = words.permute(0, 2, 3, 1, 5, 4, 6).to(torch.int32).contiguous()  # part, step, row, t, p, q
    scales = scales.bfloat16().view(tiles, 16, 8, -1).permute(0, 2, 3, 1).contiguous()
    if codes.is_cuda:
        torch.cuda.synchronize()  # the kernel may load them before it waits for anything
    return words, scales


@triton.jit
def as_bf16(words):
    """bf16 (8, 16, 16) of words (8, 16, 8): of each its low half, then its high half."""
    halves = tl.join(words.to(tl.int16), (words >> 16).to(tl.int16))
    return tl.reshape(halves, (8, 16, 16)).to(tl.bfloat16, bitcast=True)

# %% tags=["driver"]
@triton.jit
def step_products(words, x):
    """float32 (8, 16, 8), in 2**-33: 16 rows of 8 parts times 128 numbers of x, all eight the same."""
    words = tl.permute(tl.reshape(words, (2, 8, 8, 16)), (1, 0, 2, 3))  # in place
    first, last = tl.split(tl.permute(tl.reshape(words, (8, 16, 4, 2, 2)), (0, 1, 2, 4, 3)))
    eight = as_bf16(tl.reshape(first, (8, 16, 8)) & 0 | -0x7FF77FF8)  # 0x8008 twice: the code's -8
    large = tl.full((1, 1), 2.0**100, tl.float32).to(tl.bfloat16)  # keeps the sums normal
    none = tl.zeros((8, 16, 8), tl.float32)
    low, high, zero = none, none, none
    for k in tl.static_range(8):
        bits = tl.reshape(first if k < 4 else last, (8, 16, 8)) >> (k // 2 % 2 * 8)
        weights = as_bf16(bits & (0x000F000F << k % 2 * 4))
        vectors = tl.broadcast_to((tl.load(x + 16 * k) * large)[:, :, None], (8, 16, 8))
        if k % 2:
            high = tl.dot(weights, vectors, high)
        else:
            low = tl.dot(weights, vectors, low)
        zero = tl.dot(eight, vectors, zero)
    return low + high * 0.0625 + zero

# %% [markdown]
# **Never let memory idle.** The kernel loads the weights of the next step before it computes with those of this one. And between two kernels
# nothing is loaded: an empty kernel takes 1.2 µs in a graph, a tenth of our time. So let each kernel start while the one before ends
# (*programmatic dependent launch*). Until `gdc_wait` it may do what does not depend on that one: load its first weights, but not x.

# %% tags=["driver"]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def tensor_core_kernel(words, scales, x, y, COLUMNS: tl.constexpr, GROUP: tl.constexpr,
                       EARLY: tl.constexpr):
    """y = W x, 16 rows a program, eight warps. words, scales: of pack_tiles; x: bf16; y: float32."""
    if EARLY:
        gdc_launch_dependents()
    PART: tl.constexpr = COLUMNS // 8
    m, row, part = tl.arange(0, 128), tl.arange(0, 16)[None, :], tl.arange(0, 8)[:, None]
    words += tl.program_id(0) * (2 * COLUMNS) + tl.arange(0, 16)[None, :]
    words += (m // 8 % 8 * (2 * PART) + (m // 64 * 8 + m % 8) * 16)[:, None]  # part, row
    scales += tl.program_id(0) * (16 * COLUMNS // GROUP) + part * (16 * PART // GROUP) + row
    x += part * PART + row
    next_words, next_scale = tl.load(words, eviction_policy="evict_first"), tl.load(scales)
    if EARLY:
        gdc_wait()
    total = tl.zeros((8, 16, 8), tl.float32)
    for column in range(0, PART, 128):
        now, scale, later = next_words, next_scale.to(tl.float32), column + 128
        left = later < PART
        next_words = tl.load(words + 2 * later, mask=left, other=0, eviction_policy="evict_first")
        next_scale = tl.load(scales + later // GROUP * 16, mask=left, other=0)
        total += step_products(now, x + column) * scale[:, :, None]
    one = tl.sum(tl.where(tl.arange(0, 8)[None, None, :] == 0, total, 0), 2)
    tl.store(y + tl.program_id(0) * 16 + tl.arange(0, 16), tl.sum(one, 0) * 2.0**33)


def launch_tiles(words, scales, x, y, early=True):
    """y = W x. Multiples: rows of 16, groups of 128, columns of 8 groups. early: where the GPU can."""
    early = early and device.starts_early()
    sizes = {"COLUMNS": len(x), "GROUP": len(x) * len(y) // scales.numel(), "EARLY": early}
    tensor_core_kernel[(len(y) // 16,)](words, scales, x, y, **sizes, num_warps=8, num_stages=1,
                                        launch_pdl=early)

# %%
rows, columns, where = (8192, 8192, "cuda") if device.has_gpu() else (32, 2048, "cpu")
weight, x = torch.randn(rows, columns, device=where), torch.randn(columns, device=where).bfloat16()
codes, scales = quantize_groups(weight, 4, 128)
want = dequantize_groups(codes, scales.bfloat16().double(), 128) @ x.double()
y = torch.empty(rows, device=where)
launch_tiles(*pack_tiles(codes, scales), x, y)
print(f"largest error: {(y - want).abs().max() / want.std():.0e} of the results' spread")

# %% [markdown]
# | 8192 × 8192, groups of 128, H200 | µs | bf16's time / its |
# | --- | --- | --- |
# | cuBLAS, bf16 | 33.9 | 1 |
# | the usual unpacking | 18.3 | 1.85 |
# | exercise 5.1 | 12.7 | 2.66 |
# | tensor cores | 12.1 | 2.80 |
# | the same, started early | 11.1 | 3.06 |
# | to load the words and do nothing | 9.3 | 3.6 |
# | bytes / bandwidth | 8.1 | 4.16 |

# %% [markdown]
# Ours took 15 µs when each load of x touched eight lines of L1, and 16 to 19 with weights that waited in shared memory for a barrier: many
# warps, each on its own, hide more than a pipeline that they share. 4,096 rows make too few of them: 1.9 times at 14,336 columns, where
# exercise 5.1 reaches 2.3.

# %% [markdown]
# **Memory-bound work is as fast as its numbers are small, if unpacking keeps up; and a code that *is* a number needs no unpacking.**
#
# ## Part 6 · For those who want more
#
# Both exercises are optional. The first makes groups cheaper, the second gives up the even grid.

# %% [markdown]
# ### Exercise 6.1 · two_level_scales (optional)
#
# A group of 16 with an fp16 scale costs a whole bit a weight. *Two levels*: r = γ · s · q, with an unsigned integer s of few bits for each
# group, and one float γ for each row, such that the largest scale of the row gets the largest integer. An s of 0 would erase its group:
# the least is 1.

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
for rows, groups, bits in [(5, 16, 4), (1, 1, 8), (3, 7, 6), (4, 40, 2)]:
    scales = torch.from_numpy(np.exp(rng.normal(0, 1.5, (rows, groups)))).float()
    integers, gamma = two_level_scales(scales.clone(), bits)
    top = torch.tensor([[max(row)] for row in scales.tolist()])
    agree(gamma, top / (2**bits - 1), f"gamma of {rows} × {groups}, {bits} bits", rtol=1e-6, mistakes={
        "The integers are unsigned: the largest is 2^bits - 1.": top / (2 ** (bits - 1) - 1),
        "Each row has its own gamma.": top.max().expand(rows, 1) / (2**bits - 1)})
    agree((integers.dtype, tuple(integers.shape)), (torch.uint8, (rows, groups)), "form of integers")
    assert int(integers.min()) >= 1, "an integer is 0, which erases its group: the least is 1"
    near = (gamma * integers - scales).abs().le(0.501 * gamma) | (integers == 1)
    assert near.all(), f"some integers of {rows} × {groups} scales, {bits} bits, are not the nearest"
print("two_level_scales keeps every scale to half a step of its row's gamma")

# %%
weight = net[2].weight.detach()
codes, scales = quantize_groups(weight, 4, 16)
integers, gamma = two_level_scales(scales, 4)
sizes = {"fp16": bits_per_weight(128, 4, 16), "4-bit": bits_per_weight(128, 4, 16, 4) + 16 / 128}
for (kind, bits), used in zip(sizes.items(), (scales, gamma * integers)):
    spread = (dequantize_groups(codes, used, 16) - weight).std()
    print(f"{kind:5} scales: {bits:.3f} bits a weight, error {spread / weight.std():.1%} of the spread")

# %% [markdown]
# ### Exercise 6.2 · kmeans_codebook (optional)
#
# If codes index a table, the table may hold any numbers: put them where the weights are. *k-means*: start from 2ᵇ entries evenly spaced from
# the smallest weight to the largest; give each weight the nearest; move each entry to the mean of its weights; repeat until no weight
# changes its entry.
#
# The table can be trained. An entry is used by thousands of weights, so its gradient is the *sum* of theirs (recall 2).

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
    nearest, case = (values[..., None] - codebook).abs().amin(-1), f"{shape} values, {bits} bits"
    agree((codebook[entries] - values).abs(), nearest, f"distance to the entries, {case}", atol=1e-6)
    for entry in entries.unique().tolist():
        mean = values[entries == entry].mean()
        agree(codebook[entry], mean, f"entry {entry}, the mean of its values", rtol=1e-4, atol=1e-5)
print("kmeans_codebook is at rest for four sets of values")

# %% tags=["check"]
for bits in (1, 2, 3, 4):
    values = torch.from_numpy(rng.standard_normal(400) ** 3).float()
    codebook, entries = kmeans_codebook(values.clone(), bits)
    even = torch.linspace(values.min(), values.max(), 2**bits)
    even_error = (values[:, None] - even).square().amin(1).sum()
    own_error = (codebook[entries] - values).square().sum()
    assert own_error <= 1.0001 * even_error, f"{2**bits} evenly spaced entries are nearer to the values"
alone = kmeans_codebook(torch.tensor([0.0, 1.0]), 2)[0]
agree(alone, torch.linspace(0, 1, 4), "codebook of [0, 1], 2 bits", rtol=1e-6, mistakes={
    "An entry that no value is nearest to stays where it is.": torch.tensor([0.0, 0.0, 0.0, 1.0])})
print("kmeans_codebook is never worse than an even grid, and leaves unused entries alone")

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
    loss = F.cross_entropy(model(pixels[:1297]), targets[:1297])
    gradients = torch.autograd.grad(loss, list(books))
    for (codebook, entries), gradient in zip(books.values(), gradients, strict=True):
        codebook -= 0.01 * codebook_gradient(gradient, entries, len(codebook))

# %% tags=["nbval-ignore-output"]
model = network()
model.load_state_dict(net.state_dict())
books = {layer.weight: kmeans_codebook(layer.weight.data, 2) for layer in model[::2]}
for step in range(201):
    finetune(model, books)
    if step % 100 == 0:
        print(f"2-bit codebooks, {step:3} steps of training: {accuracy(model):.1f} %")

# %% [markdown]
# Two bits a weight, and twelve trained numbers for 17,000 weights. The price: a table look-up for each weight, and arithmetic that stays
# in floating point.

# %% [markdown]
# ## Where it is used
#
# - Parts 2 to 4: Jacob et al., *Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference* (2018);
#   TensorFlow Lite. Loss scaling: Micikevicius et al., *Mixed Precision Training* (2018).
# - *LLM.int8()* (Dettmers et al. 2022) keeps the few columns of activations with outliers in fp16. *GPTQ* (2022) chooses codes so that a
#   layer's *output* is right; *AWQ* (2023) scales up weights that meet large activations. Both usually ship int4 in groups of 128, not
#   "tensor-wise", as the notes have it.
# - k-means: Han et al., *Deep Compression* (2016). Kernels: Marlin (in vLLM), torchao, PyTorch's `_weight_int4pack_mm`; `torch._int_mm` is the
#   sum that stays in the inner loop.

# %% [markdown]
# - Two levels: *VS-Quant* (Dai et al. 2021), llama.cpp's `Q4_K`. The OCP *microscaling* formats (2023) have blocks of 32 with a power of two as
#   scale. The notes know of no successful model with 4-bit floats; OpenAI's gpt-oss (2025) was released in such a format, e2m1 in blocks of 32.
#
# **Limits of ours.** Each weight is rounded by itself, whatever the layer computes with it. Ten digits are easy, and have no outliers. Our kernel
# takes one vector; for many, tensor cores must do the products, and the codes are unpacked on the way there.

# %% [markdown]
# ## Done
#
# `python -m grading 10` grades your lab.
#
# **Harder.** From how many vectors at once (batch size) do 4-bit weights bring no speed any more on an H200, with products in bf16?
#
# <details><summary>Answer</summary>
#
# With B vectors there are 2B FLOP a weight: B FLOP/byte for bf16 weights, 16B/4.125 ≈ 3.9B for int4. The ridge is at 700 TFLOP/s / 4.28 TB/s =
# 164 FLOP/byte. Up to B = 42 both are memory-bound, and int4 is 3.9 times as fast. Then int4 is compute-bound and bf16 catches up; from B = 164
# on they are equal, and unpacking is pure cost.
# </details>
