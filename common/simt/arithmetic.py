"""Arithmetic as a GPU does it under Numba, on Python's numbers: 64 bits that wrap, float32 that rounds, no exceptions.

While a kernel runs, whole numbers are Python ints and all floating-point numbers are Python floats (64 bits). A float32
operation is done in 64 bits and then rounded to 32, which for + - * / and sqrt gives exactly the 32-bit result, since 53
digits are more than twice 24. `translate` writes the common cases into the code it makes; what is longer is called here.
"""

import math

import numpy as np

LOW, HIGH, SPAN = -(2**63), 2**63, 2**64

FLOAT32 = memoryview(bytearray(4)).cast(
    "f"
)  # a number written here and read back is rounded to float32


def to_float32(x):
    """The nearest float32; from a whole number directly, not by way of float64, which would round twice."""
    if isinstance(x, int) and not -(2**53) <= x <= 2**53:
        return float(
            np.int64(x).astype(np.float32) if x < HIGH else np.uint64(x).astype(np.float32)
        )
    FLOAT32[0] = x
    return FLOAT32[0]


def to_float16(x):
    """The nearest float16."""
    with np.errstate(over="ignore"):
        return float(np.float16(x))


def to_float64(x):
    return float(x)


def wrap(x, bits=64, signed=True):
    """A whole number reduced to this many bits: what is left of it in a register."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if signed and x >> (bits - 1) else x


def truncated(x, bits=64, signed=True):
    """A floating-point number as a whole one, as a GPU converts it: toward zero, the nearest limit beyond, 0 for NaN."""
    if x != x:
        return 0
    low, high = (LOW, HIGH - 1) if signed else (0, SPAN - 1)
    whole = high if x >= high else low if x <= low else int(x)
    return wrap(whole, bits, signed)


ROUND = {"float16": to_float16, "float32": to_float32, "float64": to_float64}


def cast(x, dtype):
    """The number x as a value of this type, as an assignment to an array's element converts it."""
    if dtype in ROUND:
        return ROUND[dtype](x)
    if dtype == "bool":
        return x != 0
    bits, signed = int(dtype.lstrip("uint")), not dtype.startswith("u")
    return truncated(x, bits, signed) if isinstance(x, float) else wrap(int(x), bits, signed)


def shift_left(x, places):
    return x << places if 0 <= places < 64 else 0


def shift_right(x, places):
    return x >> (places if 0 <= places < 64 else 63 if x < 0 else 64)


def divide(x, y):
    """x / y of floating-point numbers; by zero it is infinite, or NaN."""
    if y:
        return x / y
    return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1.0, y)


def floor_divide(x, y):
    if not y:
        return divide(x, y)
    return math.nan if math.isinf(x) else x // y


def modulo(x, y):
    if not y or math.isinf(x):
        return math.nan
    return x % y


def power_of_integers(x, exponent):
    """x ** exponent in 64 bits; a negative exponent leaves a whole number only for 1 and -1."""
    if exponent < 0:
        return 0 if x not in (1, -1) else x if exponent % 2 else 1
    return pow(x, exponent, SPAN)


def power_by_squaring(x, exponent, dtype):
    """x ** exponent for a constant whole exponent: multiplications, each one rounded, as Numba writes them out."""
    rounded, result, exponent, invert = ROUND[dtype], 1.0, abs(exponent), exponent < 0
    while exponent:
        if exponent & 1:
            result = rounded(result * x)
        exponent >>= 1
        if exponent:
            x = rounded(x * x)
    return rounded(divide(1.0, result)) if invert else result


def minimum(x, y):
    """The smaller one; of a number and NaN the number, as the GPU's own instruction has it."""
    return y if y < x or x != x else x


def maximum(x, y):
    return y if y > x or x != x else x


def _total(function, numpy_function):
    """function without its exceptions: where Python raises, the infinity or NaN that NumPy gives."""

    def total(*numbers):
        try:
            return function(*numbers)
        except (ValueError, OverflowError, ZeroDivisionError):
            with np.errstate(all="ignore"):
                return float(numpy_function(*(np.float64(x) for x in numbers)))

    return total


def _whole(function):
    return _total(lambda x: float(function(x)), lambda x: x)  # of an infinity or NaN: itself


FUNCTIONS = {
    name: _total(getattr(math, name), getattr(np, numpy_name))
    for name, numpy_name in dict(
        sqrt="sqrt",
        exp="exp",
        exp2="exp2",
        expm1="expm1",
        log="log",
        log2="log2",
        log10="log10",
        log1p="log1p",
        sin="sin",
        cos="cos",
        tan="tan",
        asin="arcsin",
        acos="arccos",
        atan="arctan",
        sinh="sinh",
        cosh="cosh",
        tanh="tanh",
        asinh="arcsinh",
        acosh="arccosh",
        atanh="arctanh",
        fabs="abs",
        pow="power",
        fmod="fmod",
        atan2="arctan2",
        hypot="hypot",
        copysign="copysign",
    ).items()
}
FUNCTIONS |= {name: _whole(getattr(math, name)) for name in ("floor", "ceil", "trunc")}
FUNCTIONS |= {"erf": math.erf, "erfc": math.erfc, "cbrt": math.cbrt}
OF_TWO = ("pow", "fmod", "atan2", "hypot", "copysign")
TESTS = {"isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite}


def rounded(x):
    """round(x): the nearest whole number, halves to even."""
    return truncated(float(round(x)) if math.isfinite(x) else x) if isinstance(x, float) else x


def count_ones(x, bits):
    return (x & ((1 << bits) - 1)).bit_count()


def leading_zeros(x, bits):
    return bits - (x & ((1 << bits) - 1)).bit_length()


def first_one(x, bits):
    """Place of the lowest 1, counted from 1; 0 where there is none."""
    x &= (1 << bits) - 1
    return (x & -x).bit_length()


def reversed_bits(x, bits):
    return int(f"{x & ((1 << bits) - 1):0{bits}b}"[::-1], 2)
