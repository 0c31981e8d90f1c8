"""What Triton's interpreter gets wrong, fix by fix: bf16, sums that wrap, bounds of loops."""

import numpy as np
import pytest
import torch

from common.hardware import device

device.prepare_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from nogpu import tiles  # noqa: E402
from nogpu.tiles import dtypes, triton_interpreter  # noqa: E402

interpreter = triton_interpreter.interpreter()
builder = interpreter.interpreter_builder
INTERPRETED = pytest.mark.skipif(
    not triton_interpreter.interprets(), reason="Triton compiles here, and takes no CPU tensor"
)


def handle(numbers, kind):
    """Numbers as the interpreter holds them."""
    numbers = np.array(numbers, np.float32)
    data = dtypes.to_bf16(numbers) if kind == tl.bfloat16 else numbers
    return interpreter.TensorHandle(data, kind)


def bf16(*numbers):
    return handle(numbers, tl.bfloat16)


def numbers_of(result):
    """The numbers of a bf16 result."""
    assert result.dtype == tl.bfloat16 and result.data.dtype == np.uint16
    return dtypes.from_bf16(result.data).tolist()


def test_a_constant_of_bf16():
    assert numbers_of(builder.get_bf16(-1.5)) == [-1.5]


def test_an_operation_of_one_number():
    assert numbers_of(builder.unary_op(bf16(4, 9), np.sqrt)) == [2, 3]


def test_an_operation_of_two_numbers_rounds_to_bf16():
    assert numbers_of(builder.binary_op(bf16(1.5, 256), bf16(2, 1), np.add)) == [3.5, 256]


def test_a_comparison_gives_booleans():
    for kind in (tl.bfloat16, tl.float32):
        less = builder.binary_op(handle([-2, 3], kind), handle([1, 1], kind), np.less)
        assert less.data.tolist() == [True, False] and less.dtype == tl.int1
        assert builder.cast_impl(less, tl.float32).data.tolist() == [1, 0]
        one = builder.binary_op(handle([1], kind), handle([1], kind), np.equal)
        assert builder.create_splat(tl.block_type(tl.int1, [2]), one).data.tolist() == [True, True]


def test_operations_of_bits_work_on_the_bits():
    bits = builder.binary_op(bf16(-2), bf16(-2), np.bitwise_xor)
    assert bits.data.tolist() == [0]


def test_an_operation_of_three_numbers():
    assert numbers_of(builder.ternary_op(bf16(-5, 5), bf16(-1, -1), bf16(2, 2), np.clip)) == [-1, 2]


def test_where_chooses_bits():
    condition = interpreter.TensorHandle(np.array([True, False]), tl.int1)
    chosen = builder.ternary_op(condition, bf16(-5, 5), bf16(1, 2), np.where)
    assert numbers_of(chosen) == [-5, 2]


def test_fma_rounds_once():
    """255 * 255 = 65025, and bf16's nearest number is 65024."""
    assert numbers_of(builder.create_fma(bf16(255), bf16(255), bf16(-65024))) == [1]
    wide = builder.create_fma(bf16(2), bf16(3), handle([0.125], tl.float32))
    assert wide.dtype == tl.float32 and wide.data.tolist() == [6.125]


def test_a_dot_of_bf16_adds_in_float32():
    sums = handle([[0.25]], tl.float32)
    product = builder.create_dot(
        handle([[256, 1]], tl.bfloat16), handle([[1], [1]], tl.bfloat16), sums, None, 0
    )
    assert product.dtype == tl.float32 and product.data.tolist() == [[257.25]]


@pytest.mark.parametrize("kind, want", [(tl.float32, 2.5), (tl.float16, 2.5), (tl.int32, 2)])
def test_a_cast_from_bf16(kind, want):
    cast = builder.cast_impl(bf16(2.5), kind)
    assert cast.dtype == kind and cast.data.tolist() == [want]


def test_a_cast_to_bf16_rounds_to_the_nearest():
    assert numbers_of(builder.cast_impl(handle([1.0078125, 257], tl.float32), tl.bfloat16)) == [
        1.0078125,
        256,
    ]
    assert numbers_of(builder.cast_impl(bf16(2.5), tl.bfloat16)) == [2.5]


def test_atomic_operations_on_bf16_are_refused():
    with pytest.raises(tiles.KernelError, match="no atomic operations on bf16"):
        builder.create_atomic_rmw(None, None, bf16(1), None, None, None)


@triton.jit
def sums(x, out, counts, totals, N: tl.constexpr):
    i = tl.arange(0, N)
    block = tl.load(x + i)
    tl.store(out + i, tl.cumsum(block, axis=0))
    tl.store(out + N, tl.sum(block, axis=0))
    tl.store(totals, tl.sum(tl.load(counts + i), axis=0))


@INTERPRETED
def test_sums_are_of_float32_and_whole_ones_wrap():
    x, out = torch.full((64,), 1.0).bfloat16(), torch.zeros(65, dtype=torch.bfloat16)
    counts, totals = torch.full((64,), 2**31 - 1, dtype=torch.int32), torch.zeros(1).int()
    x[0] = 256
    sums[(1,)](x, out, counts, totals, N=64)  # pyrefly: ignore[bad-argument-type] - a constexpr
    assert out[-1] == torch.tensor(256.0 + 63).bfloat16()
    assert torch.equal(out[:-1], (256.0 + torch.arange(64)).bfloat16())
    assert totals.item() == -64


@triton.jit
def places(x, out, N: tl.constexpr):
    rows, columns = tl.arange(0, 2)[:, None], tl.arange(0, N)[None, :]
    block = tl.load(x + rows * N + columns)
    tl.store(out + tl.arange(0, 2), tl.argmax(block, 1))
    tl.store(out + 2 + tl.arange(0, 2), tl.argmin(block, 1))


@INTERPRETED
def test_nans_alone_have_a_first_one():
    x, out = torch.tensor([[3.0, 1, 2, 4], [torch.nan] * 4]), torch.full((4,), -1)
    places[(1,)](x, out, N=4)  # pyrefly: ignore[bad-argument-type] - a constexpr
    assert out.tolist() == [3, 0, 1, 0]


@triton.jit
def turns(out, n):
    for i in range(n):
        tl.store(out + i, i)


@INTERPRETED
def test_a_number_known_at_run_time_bounds_a_loop():
    out = torch.zeros(4)
    turns[(1,)](out, 3)
    assert out.tolist() == [0, 1, 2, 0]


def test_the_fixed_builder_is_installed_once():
    assert triton_interpreter.interpreter().interpreter_builder is builder
    assert interpreter.interpreter_semantic.builder is builder


@triton.jit
def exponentials(x, y):
    i = tl.arange(0, 4)
    tl.store(y + i, tl.load(x + i).exp())


def test_a_block_has_the_methods_that_tl_has_as_functions():
    x, y = torch.arange(4.0), torch.zeros(4)
    report = tiles.count(exponentials, (1,), x, y)
    torch.testing.assert_close(y, x.exp())
    assert report.operations == ("arange", "exp", "load", "store")


@triton.jit
def in_large_units(x, y):
    i = tl.arange(0, 4)
    tl.store(y + i, tl.load(x + i) * 2.0**100)


def test_a_float_may_have_a_large_power():
    x, y = torch.arange(4.0), torch.zeros(4)
    tiles.count(in_large_units, (1,), x, y)
    torch.testing.assert_close(y, x * 2.0**100)


@triton.jit
def converted_and_reread(x, y):
    i = tl.arange(0, 4)
    whole = tl.load(x + i)
    tl.store(y + i, whole.to(tl.float32) + whole.to(tl.float32, bitcast=True) + whole * 0.5)


def test_integers_that_become_floats_are_counted_and_bitcasts_are_not():
    report = tiles.count(converted_and_reread, (2,), torch.arange(4).int(), torch.zeros(4))
    assert report.conversions == 2 * 2 * 4
    assert tiles.Report.from_dict(report.as_dict()) == report


@triton.jit
def one_before(x, y):
    i = tl.program_id(0)
    tl.store(y + i, tl.load(x + i - 1, mask=i > 0, other=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_load_of_one_element_may_be_filled_with_0(dtype):
    x, y = torch.ones(3, dtype=dtype), torch.ones(3, dtype=dtype)
    tiles.count(one_before, (3,), x, y)
    assert y.tolist() == [0, 1, 1]


@triton.jit
def chosen(x, y):
    i = tl.arange(0, 4)
    tl.store(y + i, tl.where(i < 2, tl.load(x + i), 0.0))


def test_elements_that_where_chooses_are_counted():
    report = tiles.count(chosen, (2,), torch.ones(4), torch.zeros(4))
    assert report.selects == 2 * 4
    assert tiles.Report.from_dict(report.as_dict()) == report
