"""Products of any shape: right for all sizes and strides, and the plans that the model chooses."""

import itertools

import pytest
import torch
from torch.nn import functional

from common.hardware import device

device.prepare_triton()

from triton.runtime.errors import OutOfResources  # noqa: E402

from common.lessons.triton_matmul import any_shape_matmul  # noqa: E402


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


PLANS = [
    None,
    any_shape_matmul.Plan(64, 64, 64, 4, 3, 2, False),
    any_shape_matmul.Plan(64, 32, 64, 4, 3, 1, True),
    any_shape_matmul.Plan(64, 64, 64, 4, 3, 2, False, rest=32),
    any_shape_matmul.Plan(64, 32, 64, 4, 3, 1, True, turned=True),
    any_shape_matmul.Plan(64, 64, 64, 4, 3, 2, False, rest=16, turned=True),
]


@pytest.mark.slow
@pytest.mark.parametrize("m, n, k", [(64, 64, 64), (101, 93, 121), (16, 40, 400), (1, 1, 1)])
def test_any_shape_and_strides(m, n, k):
    bias = random(n)
    for (a, b), plan in itertools.product(matrices(m, n, k), PLANS):
        want = a.float() @ b.float()
        torch.testing.assert_close(
            any_shape_matmul.product(a, b, None, plan).float(), want, atol=2e-2, rtol=2e-3
        )
        want = functional.gelu(want + bias.float(), approximate="tanh")
        got = any_shape_matmul.product(a, b, bias, plan)
        assert got.is_contiguous() and got.dtype == a.dtype
        torch.testing.assert_close(got.float(), want, atol=2e-2, rtol=2e-3)


def test_nothing_to_add_or_to_compute():
    assert any_shape_matmul.product(random(0, 3), random(3, 5)).shape == (0, 5)
    assert (any_shape_matmul.product(random(4, 0), random(0, 5)) == 0).all()
    bias = random(5)
    want = functional.gelu(bias, approximate="tanh").expand(4, 5)
    torch.testing.assert_close(any_shape_matmul.product(random(4, 0), random(0, 5), bias), want)


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
        any_shape_matmul.product(a, b, bias)


def test_what_the_copy_engine_fetches():
    x = random(16, 24)
    assert any_shape_matmul.how(x) == any_shape_matmul.AS_IS
    assert any_shape_matmul.how(x.T) == any_shape_matmul.TURNED
    assert any_shape_matmul.how(x[:, 8:]) == any_shape_matmul.AS_IS
    for other in (x[:, 1:], random(16, 23), x[:, ::2], x.T[::2], random(1, 8).expand(8, 8)):
        assert any_shape_matmul.how(other) == any_shape_matmul.BY_NUMBER
        copy = any_shape_matmul.with_aligned_rows(other)[0]
        assert any_shape_matmul.how(copy) == any_shape_matmul.AS_IS and bool((copy == other).all())


def test_few_tiles_are_shared_and_many_are_large():
    def plan(*shape):
        return any_shape_matmul.plan_for(any_shape_matmul.Shape(*shape))[0]

    assert plan(128, 8192, 8192).parts > 1  # 32 tiles of 128 × 256, for 132 multiprocessors
    assert plan(64, 64, 16384).parts > 8
    small, large = plan(1024, 1024, 1024), plan(8192, 8192, 8192)
    assert small.block_m * small.block_n < large.block_m * large.block_n == 128 * 256
    assert large.parts == 1


def test_what_is_measured_differs_and_begins_with_the_best():
    best = any_shape_matmul.ranked(any_shape_matmul.Shape(1000, 1000, 4000))
    chosen = any_shape_matmul.different(best)
    assert chosen[:2] == best[:2]
    assert len({(*plan[:4], plan.rest) for plan in chosen}) >= 6
    assert len(set(chosen)) == len(chosen) == 8
    times = [
        any_shape_matmul.predicted_s(plan, any_shape_matmul.Shape(1000, 1000, 4000))
        for plan in best
    ]
    assert times == sorted(times)


def test_a_shortlist_begins_with_the_best_and_has_both_ways_to_load_odd_rows():
    for m, n, k in ((99, 121, 25), (2407, 71, 21), (17, 149, 2707), (4659, 801, 99)):
        shape = any_shape_matmul.Shape(m, n, k, 2 * (m * k + k * n))
        chosen = any_shape_matmul.shortlist(shape)
        assert chosen[0] == any_shape_matmul.plan_for(shape)[0]
        assert {plan.by_number for plan in chosen} == {False, True}
        assert len(set(chosen)) == len(chosen) == 8
        for by_number in False, True:
            some = [plan for plan in any_shape_matmul.ranked(shape) if plan.by_number == by_number]
            assert some[0] in chosen


def test_a_product_a_little_above_128_wide_has_a_tile_of_its_width():
    wide = any_shape_matmul.shortlist(any_shape_matmul.Shape(13416, 136, 1920))
    high = any_shape_matmul.shortlist(any_shape_matmul.Shape(136, 12128, 1904))
    assert any(plan.block_n + plan.rest == 144 and not plan.turned for plan in wide)
    assert any(plan.block_n + plan.rest == 144 and plan.turned for plan in high)


class Clock:
    """A GPU's clock: each call of a way takes its seconds; calls: their names, in order."""

    def __init__(self, monkeypatch):
        self.now_s, self.calls = 0.0, []
        monkeypatch.setattr(any_shape_matmul, "KEPT", {})
        monkeypatch.setattr(any_shape_matmul, "_timed_s", self.timed_s)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    def timed_s(self, call, late=False):
        start = self.now_s
        call()
        return self.now_s - start

    def way(self, name, *seconds):
        """A way that takes so many seconds, the last of them from then on."""

        def call():
            self.now_s += seconds[min(self.calls.count(name), len(seconds) - 1)]
            self.calls.append(name)
            return name

        return call


def test_a_short_call_is_timed_in_a_row_and_a_long_one_alone(monkeypatch):
    clock = Clock(monkeypatch)
    assert any_shape_matmul.measured_s(clock.way("short", 1e-5)) == pytest.approx(1e-5)
    assert any_shape_matmul.measured_s(clock.way("1 ms", 1e-3)) == pytest.approx(1e-3)
    assert any_shape_matmul.measured_s(clock.way("long", 0.1)) == pytest.approx(0.1)
    counts = [clock.calls.count(name) for name in ("short", "1 ms", "long")]
    assert counts == [2 + 2 * 8, 2 + 2 * 4, 2 + 2 * 1]  # one compiles, one is timed, two rounds


def test_neither_compiling_nor_a_disturbed_round_decides(monkeypatch):
    clock = Clock(monkeypatch)
    compiles_long = clock.way("compiles long", 5.0, 1e-3)
    disturbed = clock.way("disturbed", 1e-3, 9e-4, 1.0, 9e-4)  # by another, in its first round
    assert any_shape_matmul.fastest(("key",), {"a": compiles_long, "b": disturbed}) == "disturbed"


def test_each_product_is_measured_for_itself_and_once(monkeypatch):
    clock = Clock(monkeypatch)
    ways = {"slow": clock.way("slow", 2e-3), "fast": clock.way("fast", 1e-3)}
    assert [any_shape_matmul.fastest((8, 8, 8), ways) for _ in range(3)] == ["fast"] * 3
    measured = len(clock.calls)
    assert clock.calls[-3:] == ["fast"] * 3 and any_shape_matmul.KEPT == {(8, 8, 8): "fast"}
    ways["slow"] = clock.way("now faster", 1e-4)
    assert any_shape_matmul.fastest((8, 8, 8), ways) == "fast" and len(clock.calls) == measured + 1
    assert any_shape_matmul.fastest((8, 8, 16), ways) == "now faster"


def test_what_does_not_fit_the_gpu_is_left_out(monkeypatch):
    clock = Clock(monkeypatch)

    def too_large():
        raise OutOfResources(300_000, 232_448, "shared memory")

    ways = {
        "too large": too_large,
        "slow": clock.way("slow", 2e-3),
        "fast": clock.way("fast", 1e-3),
    }
    assert any_shape_matmul.fastest(("key",), ways) == "fast"
    with pytest.raises(OutOfResources):
        any_shape_matmul.fastest(("another",), {"too large": too_large})


def test_while_a_graph_is_captured_nothing_is_measured_or_kept(monkeypatch):
    clock = Clock(monkeypatch)
    ways = {"first": clock.way("first", 2e-3), "fast": clock.way("fast", 1e-3)}
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert any_shape_matmul.fastest(("key",), ways) == "first"
    assert clock.calls == ["first"] and not any_shape_matmul.KEPT
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert any_shape_matmul.fastest(("key",), ways) == "fast"
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert any_shape_matmul.fastest(("key",), ways) == "fast"  # what was kept serves a graph


def test_a_plan_fits_into_shared_memory():
    for kilobytes in (64, 99, 163, 227):
        for plan in any_shape_matmul.plans(
            any_shape_matmul.Shape(512, 512, 4096, 1), kilobytes << 10
        ):
            pair = 2 * (plan.block_m + plan.block_n) * plan.block_k
            assert plan.stages >= 2
            assert plan.stages * pair < kilobytes << 10
