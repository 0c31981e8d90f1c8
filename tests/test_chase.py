"""Chains of dependent fetches: common.lessons.chase."""

from common.lessons import chase


def test_the_lines_are_one_cycle():
    following, place, steps = chase._cycle(), 0, 0
    while steps == 0 or place:
        place, steps = following[place], steps + 1
        assert place % chase.LINE == 0
    assert steps == chase.LINES


def test_chains_in_flight_hide_each_other_s_latency():
    assert chase.time_per_round_s(8, rounds=2000) < 8 * chase.time_per_round_s(1, rounds=2000)
