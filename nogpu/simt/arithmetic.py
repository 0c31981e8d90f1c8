"""Arithmetic as a GPU does it under Numba, on Python's numbers.

Whole numbers wrap at 64 bits, float32 is rounded, and there are no exceptions. While a kernel runs,
whole numbers are Python ints and all floating-point numbers are Python floats (64 bits). A float32
operation is done in 64 bits and then rounded to 32. For + - * / and sqrt this gives exactly the
32-bit result, because 53 digits are more than twice 24. `operators` writes the common cases into
the code of the kernel, and calls of these functions for the others.
"""

import math
from collections.abc import Callable

import numpy as np

LOW, HIGH, SPAN = -(2**63), 2**63, 2**64

# A number written here and read back is rounded to float32
FLOAT32 = memoryview(bytearray(4)).cast("f")


def to_float32(x: float) -> float:
    """The nearest float32. A whole number is not converted to float64 first: it rounds twice."""
    if isinstance(x, int) and not -(2**53) <= x <= 2**53:
        return float(
            np.int64(x).astype(np.float32) if x < HIGH else np.uint64(x).astype(np.float32)
        )
    FLOAT32[0] = x
    return FLOAT32[0]


def to_float16(x: float) -> float:
    """The nearest float16."""
    with np.errstate(over="ignore"):
        return float(np.float16(x))


def to_float64(x: float) -> float:
    return float(x)


def wrap(x: int, bits: int = 64, signed: bool = True) -> int:
    """A whole number reduced to this many bits, as in a register."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if signed and x >> (bits - 1) else x


def truncated(x: float, bits: int = 64, signed: bool = True) -> int:
    """A floating-point number as a whole one, as a GPU converts it.

    It is rounded toward zero. Beyond the limits the result is the nearest limit, for NaN it is 0.
    """
    if x != x:
        return 0
    low, high = (LOW, HIGH - 1) if signed else (0, SPAN - 1)
    whole = high if x >= high else low if x <= low else int(x)
    return wrap(whole, bits, signed)


ROUND: dict[str, Callable[[float], float]] = {
    "float16": to_float16,
    "float32": to_float32,
    "float64": to_float64,
}


def cast(x: float, dtype: str) -> int | float:
    """The number x converted to this type, as by an assignment to an array's element."""
    if dtype in ROUND:
        return ROUND[dtype](x)
    if dtype == "bool":
        return x != 0
    bits, signed = int(dtype.lstrip("uint")), not dtype.startswith("u")
    return truncated(x, bits, signed) if isinstance(x, float) else wrap(int(x), bits, signed)


def shift_left(x: int, places: int) -> int:
    return x << places if 0 <= places < 64 else 0


def shift_right(x: int, places: int) -> int:
    return x >> (places if 0 <= places < 64 else 63 if x < 0 else 64)


def divide(x: float, y: float) -> float:
    """x / y of floating-point numbers; by zero it is infinite, or NaN."""
    if y:
        return x / y
    return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1.0, y)


def floor_divide(x: float, y: float) -> float:
    if not y:
        return divide(x, y)
    return math.nan if math.isinf(x) else x // y


def modulo(x: float, y: float) -> float:
    if not y or math.isinf(x):
        return math.nan
    return x % y


def power_of_integers(x: int, exponent: int) -> int:
    """x ** exponent in 64 bits; a negative exponent leaves a whole number only for 1 and -1."""
    if exponent < 0:
        return 0 if x not in (1, -1) else x if exponent % 2 else 1
    return pow(x, exponent, SPAN)


def power_by_squaring(x: float, exponent: int, dtype: str) -> float:
    """x ** exponent for a constant whole exponent: multiplications, each rounded, as in Numba."""
    rounded, result, invert = ROUND[dtype], 1.0, exponent < 0
    exponent = abs(exponent)
    while exponent:
        if exponent & 1:
            result = rounded(result * x)
        exponent >>= 1
        if exponent:
            x = rounded(x * x)
    return rounded(divide(1.0, result)) if invert else result


def minimum(x: float, y: float) -> float:
    """The smaller one; of a number and NaN the number, as the GPU's own instruction gives it."""
    return y if y < x or x != x else x


def maximum(x: float, y: float) -> float:
    return y if y > x or x != x else x


def _total(
    function: Callable[..., float], numpy_function: Callable[..., float]
) -> Callable[..., float]:
    """function without its exceptions: where Python raises, the infinity or NaN of NumPy."""

    def total(*numbers: float) -> float:
        try:
            return function(*numbers)
        except (ValueError, OverflowError, ZeroDivisionError):
            with np.errstate(all="ignore"):
                return float(numpy_function(*(np.float64(x) for x in numbers)))

    return total


def _whole(function: Callable[[float], int]) -> Callable[..., float]:
    return _total(lambda x: float(function(x)), lambda x: x)  # an infinity or NaN stays itself


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


def rounded(x: float) -> int:
    """round(x): the nearest whole number, halves to even."""
    return truncated(float(round(x)) if math.isfinite(x) else x) if isinstance(x, float) else x


def count_ones(x: int, bits: int) -> int:
    return (x & ((1 << bits) - 1)).bit_count()


def leading_zeros(x: int, bits: int) -> int:
    return bits - (x & ((1 << bits) - 1)).bit_length()


def first_one(x: int, bits: int) -> int:
    """The position of the lowest bit that is 1, counted from 1; 0 if all are 0."""
    x &= (1 << bits) - 1
    return (x & -x).bit_length()


def reversed_bits(x: int, bits: int) -> int:
    return int(f"{x & ((1 << bits) - 1):0{bits}b}"[::-1], 2)
