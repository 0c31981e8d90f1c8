"""common.hardware.timing: the median is of real calls, after a warm-up, in blocks."""

import time

import pytest

from common.hardware import timing
from common.hardware.timing import Measurement


def test_median_and_spread_ignore_one_slow_call():
    measurement = Measurement((1.0, 1.1, 1.2, 1.3, 99.0))
    assert measurement.median_s == 1.2
    assert measurement.spread_s == pytest.approx(0.2)


@pytest.mark.parametrize("cold_cache", [False, True])
def test_a_call_that_sleeps_takes_as_long_as_it_sleeps(cold_cache, monkeypatch):
    monkeypatch.setattr(timing, "EVICTION_BYTES", 2**20)
    measurement = timing.measure(time.sleep, 0.005, min_time_s=0.03, cold_cache=cold_cache)
    assert len(measurement.times_s) >= 3 and measurement.median_s >= 0.005


@pytest.fixture
def clock(monkeypatch):
    """The clock that timing reads. Only its own sleep moves it: other programs do not count."""

    class Clock:
        now_s = 0.0

        def __call__(self):
            return self.now_s

        def sleep(self, time_s):
            self.now_s += time_s

    clock = Clock()
    monkeypatch.setattr("torch.utils.benchmark.timer", clock)
    monkeypatch.setattr("timeit.default_timer", clock)
    return clock


@pytest.mark.parametrize("cold_cache", [False, True])
def test_the_first_call_is_a_warm_up(clock, cold_cache, monkeypatch):
    monkeypatch.setattr(timing, "EVICTION_BYTES", 2**20)
    calls = []

    def compiles_first():
        calls.append(None)
        clock.sleep(0.2 if len(calls) == 1 else 0.001)

    assert max(
        timing.measure(compiles_first, min_time_s=0.01, cold_cache=cold_cache).times_s
    ) == pytest.approx(0.001)


def test_a_fast_function_is_called_many_times_per_block(clock):
    measurement = timing.measure(clock.sleep, 1e-6, min_time_s=0.01)
    assert measurement.median_s == pytest.approx(1e-6) and 15 <= len(measurement.times_s) <= 25


def test_an_error_of_the_function_is_its_own():
    with pytest.raises(ZeroDivisionError):
        timing.measure(lambda: 1 / 0)


def test_it_reads_as_a_time():
    assert (
        str(Measurement((0.00123, 0.00123)))
        == "1.23 ms (half of the calls within 0.00 s of each other)"
    )


def test_calls_take_turns_and_each_has_the_median_of_its_own_times():
    asked, times_s = [], iter([1, 20, 3, 40, 2, 99])

    def clock(call):
        asked.append(call)
        return next(times_s)

    assert timing.in_turns(clock, "ours", "theirs", rounds=3) == [2, 40]
    assert asked == ["ours", "theirs"] * 3
