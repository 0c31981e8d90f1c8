"""Products of any shape: right for all sizes and strides, and the plans that the model chooses."""

import functools
import itertools

import pytest
import torch
from torch.nn import functional

from common import device

device.prepare_triton()

from common.lessons import products  # noqa: E402


@pytest.fixture(autouse=True)
def h200(monkeypatch):
    monkeypatch.setattr(device, "multiprocessors", lambda: 132)


def random(*shape, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def matrices(m, n, k):
    """Operands of a product, in rows, turned, and with gaps."""
    yield random(m, k), random(k, n)
    yield random(k, m).T, random(n, k).T
    yield random(m, 2 * k)[:, ::2], random(k + 1, n + 3)[1:, 3:]


PLANS = [None, products.Plan(64, 64, 64, 4, 3, 2, False), products.Plan(64, 32, 64, 4, 3, 1, True)]


@pytest.mark.parametrize("m, n, k", [(64, 64, 64), (101, 93, 121), (16, 40, 400), (1, 1, 1)])
def test_any_shape_and_strides(m, n, k):
    bias = random(n)
    for (a, b), plan in itertools.product(matrices(m, n, k), PLANS):
        want = a.float() @ b.float()
        torch.testing.assert_close(
            products.product(a, b, None, plan).float(), want, atol=2e-2, rtol=2e-3
        )
        want = functional.gelu(want + bias.float(), approximate="tanh")
        got = products.product(a, b, bias, plan)
        assert got.is_contiguous() and got.dtype == a.dtype
        torch.testing.assert_close(got.float(), want, atol=2e-2, rtol=2e-3)


def test_nothing_to_add_or_to_compute():
    assert products.product(random(0, 3), random(3, 5)).shape == (0, 5)
    assert (products.product(random(4, 0), random(0, 5)) == 0).all()
    bias = random(5)
    want = functional.gelu(bias, approximate="tanh").expand(4, 5)
    torch.testing.assert_close(products.product(random(4, 0), random(0, 5), bias), want)


@pytest.mark.parametrize(
    "a, b, bias, sentence",
    [
        (random(2, 3), random(2, 3), None, r"A \(2, 3\) and B \(2, 3\) have no product"),
        (random(3), random(3, 3), None, r"A \(3,\) and B \(3, 3\) have no product"),
        (random(2, 3).float(), random(3, 2).float(), None, "both must be fp16, or both bf16"),
        (
            random(2, 3),
            random(3, 2),
            random(3),
            r"bias is \(3,\); it has a number per column, \(2,",
        ),
    ],
)
def test_others_are_refused_in_a_sentence(a, b, bias, sentence):
    with pytest.raises(ValueError, match=sentence):
        products.product(a, b, bias)


def test_what_the_copy_engine_fetches():
    x = random(16, 24)
    assert products.how(x) == products.AS_IS
    assert products.how(x.T) == products.TURNED
    assert products.how(x[:, 8:]) == products.AS_IS
    for other in (x[:, 1:], random(16, 23), x[:, ::2], x.T[::2], random(1, 8).expand(8, 8)):
        assert products.how(other) == products.BY_NUMBER
        copy = products.with_aligned_rows(other)
        assert products.how(copy) == products.AS_IS and bool((copy == other).all())


def test_few_tiles_are_shared_and_many_are_large():
    def plan(*shape):
        return products.plan_for(products.Shape(*shape))[0]

    assert plan(128, 8192, 8192).parts > 1  # 32 tiles of 128 × 256, for 132 multiprocessors
    assert plan(64, 64, 16384).parts > 8
    small, large = plan(1024, 1024, 1024), plan(8192, 8192, 8192)
    assert small.block_m * small.block_n < large.block_m * large.block_n == 128 * 256
    assert large.parts == 1


def test_what_is_measured_differs_and_begins_with_the_best():
    best = products.ranked(products.Shape(1000, 1000, 4000))
    chosen = products.different(best)
    assert chosen[:2] == best[:2]
    assert len({plan[:4] for plan in chosen}) >= 4 and len(set(chosen)) == len(chosen) == 5
    times = [products.predicted_s(plan, products.Shape(1000, 1000, 4000)) for plan in best]
    assert times == sorted(times)


def test_the_fastest_way_is_measured_once_and_kept(monkeypatch):
    monkeypatch.setattr(products, "KEPT", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    times = {"a": 3.0, "b": 1.0, "c": 2.0}
    measured = []
    monkeypatch.setattr(
        products, "measured_s", lambda call: measured.append(call()) or times[call()]
    )
    ways = {name: functools.partial(str, name) for name in times}
    assert products.fastest(("key",), ways) == "b"
    assert products.fastest(("key",), ways) == "b"
    assert measured == ["a", "b", "c"]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert products.fastest(("another",), ways) == "a"


def test_a_plan_fits_into_shared_memory():
    for kilobytes in (64, 99, 163, 227):
        for plan in products.plans(products.Shape(512, 512, 4096, 1), kilobytes << 10):
            pair = 2 * (plan.block_m + plan.block_n) * plan.block_k
            assert plan.stages >= 2
            assert plan.stages * pair < kilobytes << 10
