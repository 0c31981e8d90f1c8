"""The simulator's types and numbers compared with Numba's.

The types are compared with its typing rules for CUDA, the numbers with its code for the CPU.
"""

import itertools
import math
import operator
import warnings

import numba
import numpy as np
import pytest
from numba import cuda as numba_cuda
from numba import float32, int8, int32, int64, njit, uint8, uint32, uint64
from numba.cuda.types import float16  # pyrefly: ignore[missing-module-attribute] - it is there

from nogpu import simt
from nogpu.simt import arithmetic, dtypes
from nogpu.simt import cuda as simt_cuda
from nogpu.simt.program import Program
from nogpu.simt.translate import Compiler

OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
BITWISE = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}


@pytest.fixture(scope="module")
def typing_context():
    from numba.cuda.descriptor import cuda_target

    cuda_target.typing_context.refresh()
    return cuda_target.typing_context


def numba_type(name):
    return {"bool": numba.boolean, "float16": float16}.get(name) or getattr(numba.types, name)


def numba_result(context, function, *names):
    try:
        return str(
            context.resolve_function_type(function, tuple(map(numba_type, names)), {}).return_type
        )
    except (
        numba.errors.NumbaError,
        AttributeError,
    ):  # None, or refused: there is no such operation
        return None


@pytest.mark.parametrize("symbol", OPERATORS)
def test_arithmetic_has_numbas_types(symbol, typing_context):
    for first, second in itertools.product(dtypes.SCALARS, repeat=2):
        if symbol == "**" and first == "bool":
            continue  # Numba makes True ** int32 a float32, and no other power of True
        want = numba_result(typing_context, OPERATORS[symbol], first, second)
        assert dtypes.arithmetic(symbol, first, second) == want, (first, symbol, second)


@pytest.mark.parametrize("symbol", BITWISE)
def test_bitwise_operations_have_numbas_types(symbol, typing_context):
    for first, second in itertools.product(dtypes.SCALARS, repeat=2):
        want = numba_result(typing_context, BITWISE[symbol], first, second)
        assert dtypes.bitwise(first, second, symbol in ("<<", ">>")) == want, (
            first,
            symbol,
            second,
        )


def test_paths_meet_in_numbas_types(typing_context):
    for first, second in itertools.product(dtypes.SCALARS, repeat=2):
        want = typing_context.unify_types(numba_type(first), numba_type(second))
        assert dtypes.common(first, second) == str(want), (first, second)


def test_functions_of_two_numbers_have_numbas_types(typing_context):
    for first, second in itertools.product(dtypes.SCALARS, repeat=2):
        for function in (math.atan2, math.fmod, math.copysign, math.pow, math.hypot):
            want = numba_result(typing_context, function, first, second)
            assert dtypes.of_function(function.__name__, first, second) == want, (
                function,
                first,
                second,
            )


# Of x (an element), i (an int64) and f (a float64 argument): what Numba infers for the whole.
EXPRESSIONS = [
    "x + 1",
    "x * 2.0",
    "-x",
    "abs(x)",
    "int(x)",
    "float32(x)",
    "x if i > 0 else 0",
    "x and 1.0",
    "min(x, i)",
    "max(x, f, 1)",
    "cuda.grid(1)",
    "cuda.threadIdx.x",
    "cuda.threadIdx.x * x",
    "cuda.blockDim.x + cuda.gridDim.x",
    "i % 2",
    "i // 2 * x",
    "x ** 2",
    "x ** 0.5",
    "round(x)",
    "x > i",
    "0 <= i < 5",
    "not x",
    "math.sqrt(x)",
    "math.floor(x)",
    "cuda.gridsize(1)",
    "a.shape[0]",
    "len(a)",
    "a.size * x",
    "1 << i",
    "math.pow(x, 2)",
    "bool(x)",
    "math.isnan(x)",
    "~i",
    "cuda.laneid + 0",
    "cuda.ballot_sync(-1, i)",
    "cuda.any_sync(-1, i)",
    "cuda.shfl_xor_sync(-1, f, 1)",
    "cuda.match_any_sync(-1, i)",
    "+x",
    "cuda.popc(i)",
    "cuda.clz(i)",
    "cuda.ffs(i)",
    "cuda.brev(i)",
    "cuda.syncthreads_count(i)",
    "math.pi",
    "pow(x, 2)",
]


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_expressions_have_numbas_types(dtype):
    for expression in EXPRESSIONS:
        text = f"def f(a, i, f):\n    x = a[0]\n    return {expression}\n"
        names = {"cuda": numba_cuda, "math": math, "float32": float32}
        exec(text, names)
        signature = (numba_type(dtype)[:], int64, numba.float64)
        want = str(
            numba_cuda.compile(names["f"], signature, device=True, cc=(9, 0), abi="numba")[1]
        )
        assert returned_type(text, dtype) == want, expression


def returned_type(text, dtype):
    """The type that the simulator infers for a device function's result."""
    function = simt.compile_source(text, "f").function
    compiler = Compiler(Program((1, 1, 1), (1, 1, 1)), lambda thing: None)
    kernel = simt.compile_source("def kernel():\n    pass\n", "kernel").function
    compiler.specialise(kernel, (), pytest.fail)  # a program's first function is its kernel
    kind = dtypes.Array(dtype, "global", (4,), (1,))
    return compiler.specialise(function, (kind, "int64", "float64"), pytest.fail)[1]


# --- numbers, bit for bit against Numba's compiled code


def float_operations(x, y, out):
    i = 0
    for k in range(x.size):
        a, b = x[k], y[k]
        out[i] = a + b
        out[i + 1] = a - b
        out[i + 2] = a * b
        out[i + 3] = a / b
        out[i + 4] = a * b + a
        out[i + 5] = a * 3.0 - b / 7
        out[i + 6] = math.sqrt(abs(a))
        out[i + 7] = a**2
        out[i + 8] = a**3 + b**-2
        out[i + 9] = -a if a < b else a
        out[i + 10] = a // b
        out[i + 11] = a % b
        out[i + 12] = k * a
        out[i + 13] = math.fabs(a) - math.copysign(b, a)
        out[i + 14] = (a > 0) + (b > 0)
        out[i + 15] = 1 / (a - a)
        i += 16


def integer_operations(x, y, out):
    i = 0
    for k in range(x.size):
        a, b = x[k], y[k]
        out[i] = a + b
        out[i + 1] = a * b
        out[i + 2] = a * b * a * b + a
        out[i + 3] = a // b
        out[i + 4] = a % b
        out[i + 5] = (a << 7) ^ b
        out[i + 6] = a >> 3
        out[i + 7] = a & b | 5
        out[i + 8] = ~a - b
        out[i + 9] = -a
        out[i + 10] = abs(a)
        out[i + 11] = a**3
        out[i + 12] = a / 2.5
        out[i + 13] = (a * a * a) >> 5
        out[i + 14] = (a * a * a) // 3 + (a * b * b) % 7
        out[i + 15] = int(float(a) / 3) + (a * a * b > b)
        i += 16


def joined_types(x, y, out):
    n = x.size
    acc = 0
    low = x[0]
    mixed = 0
    for k in range(n):
        acc += x[k]
        low = min(low, y[k])
        if k % 3 == 0:  # noqa: SIM108 (the branch is what is tested)
            mixed = x[k]
        else:
            mixed = k
        if y[k] < 0:
            continue
        acc = acc * mixed + k
        value = x[k]
        value = value * y[k]
        out[k] = value * value + mixed
        if k == n - 2:
            break
    out[n] = acc
    out[n + 1] = low
    k = 0
    while True:
        k += 1
        acc /= 2
        if acc < 1 and k > 3:
            break
    out[n + 2] = acc + k


def run_both(function, dtype, out_dtype, x, y, size):
    want = np.zeros(size, out_dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        njit(function, error_model="numpy")(x, y, want)
    for counting in (False, True):
        got = np.zeros(size, out_dtype)
        kernel = simt_cuda.jit(function)
        kernel.count(1, 1, x, y, got) if counting else kernel[1, 1](x, y, got)
        same = (got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")) | (
            np.isnan(got) & np.isnan(want)
        )
        assert same.all(), [(int(i), got[i], want[i]) for i in np.flatnonzero(~same)]


@pytest.mark.parametrize(
    "dtype, out_dtype", [("float32", "float32"), ("float32", "float64"), ("float64", "float64")]
)
@pytest.mark.parametrize("function", [float_operations, joined_types])
def test_floating_point_numbers_are_numbas(function, dtype, out_dtype):
    rng = np.random.default_rng(1)
    x, y = (10.0 ** rng.uniform(-9, 9, (2, 60)) * rng.choice([-1, 1], (2, 60))).astype(dtype)
    x[:6], y[:6] = [0, -0.0, np.inf, 1e38, 1e-42, 3], [1, 2, 1, 1e38, 1e-3, 0.5]
    run_both(function, dtype, out_dtype, x, y, 16 * 60)


@pytest.mark.parametrize(
    "dtype, out_dtype",
    [
        ("int32", "int64"),
        ("int64", "int64"),
        ("int64", "int32"),
        ("int32", "float32"),
        ("uint32", "uint64"),
        ("uint8", "int64"),
    ],
)
def test_whole_numbers_are_numbas(dtype, out_dtype):
    rng = np.random.default_rng(2)
    limits = np.iinfo(dtype)
    x, y = rng.integers(limits.min, limits.max, (2, 40), dtype)
    x[:4], y[:8] = [0, limits.max, limits.min, 1], [1, 7, limits.max, 2, 3, 1, 5, 11]
    # Converting a float64 outside of an integer's range is undefined on a CPU; a GPU gives the
    # nearest limit.
    if out_dtype != "int64":
        x, y = x % 1000, y % 900 + 1
    run_both(integer_operations, dtype, out_dtype, x, np.where(y == 0, 1, y).astype(dtype), 16 * 40)


def test_float16_is_stored_and_rounded():
    def kernel(x, out):
        out[0] = x[0] * x[1]
        out[1] = x[0] + x[2] * x[2]
        out[2] = x[0] * 1.0

    x = np.array([1.001, 3.3, 0.1, 7], np.float16)
    out = np.zeros(3, np.float16)
    simt_cuda.jit(kernel)[1, 1](x, out)
    np.testing.assert_array_equal(
        out, np.array([x[0] * x[1], x[0] + x[2] * x[2], x[0]], np.float16)
    )


@pytest.mark.parametrize(
    "value", [2**24 + 1, 2**53 + 1, 2**62 + 2**38 + 1, -(2**61) - 1, 2**64 - 1]
)
def test_a_whole_number_becomes_the_nearest_float32(value):
    integer = np.int64 if value < 2**63 else np.uint64
    assert arithmetic.to_float32(value) == float(integer(value).astype(np.float32))


@pytest.mark.parametrize("value", [0.0, -2.9, 2.9, 1e30, -1e30, math.inf, -math.inf, math.nan])
def test_a_float_becomes_a_whole_number_as_on_a_gpu(value):
    want = (
        0
        if value != value
        else min(max(math.trunc(value) if math.isfinite(value) else value, -(2**63)), 2**63 - 1)
    )
    assert arithmetic.truncated(value) == want


def test_minimum_of_a_number_and_nan_is_the_number():
    assert arithmetic.minimum(math.nan, 1.0) == arithmetic.minimum(1.0, math.nan) == 1.0
    assert arithmetic.maximum(math.nan, 1.0) == arithmetic.maximum(1.0, math.nan) == 1.0


def test_functions_give_infinity_where_python_raises():
    f = arithmetic.FUNCTIONS
    assert f["exp"](1e4) == math.inf and f["log"](0.0) == -math.inf and math.isnan(f["sqrt"](-1.0))
    assert (
        f["pow"](0.0, -1.0) == math.inf
        and math.isnan(f["pow"](-8.0, 1 / 3))
        and f["floor"](math.inf) == math.inf
    )
    assert (
        math.isnan(f["fmod"](1.0, 0.0)) and f["tanh"](1e9) == 1.0 and math.isnan(f["sin"](math.inf))
    )


def test_conversions_wrap():
    def kernel(x, out):
        out[0] = int8(x[0])
        out[1] = uint8(x[0])
        out[2] = int32(x[1])
        out[3] = uint32(x[1])
        out[4] = int64(uint64(x[2]))
        out[5] = x[0] * x[1] * x[2] * x[0]

    x = np.array([300, 2**40 + 2**31, -5], np.int64)
    out = np.zeros(6, np.int64)
    simt_cuda.jit(kernel)[1, 1](x, out)
    product = (300 * 300 * (2**40 + 2**31) * -5 + 2**63) % 2**64 - 2**63
    assert out.tolist() == [44, 44, -(2**31), 2**31, -5, product]
