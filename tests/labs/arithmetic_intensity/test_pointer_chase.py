"""Chains of dependent fetches: common.lessons.arithmetic_intensity.pointer_chase."""

import pytest

from common.lessons.arithmetic_intensity import pointer_chase


@pytest.fixture(autouse=True)
def _of_a_small_cache(monkeypatch):
    monkeypatch.setattr(pointer_chase, "LEAST_LINES", 2**12)
    monkeypatch.setattr(pointer_chase, "last_cache_bytes", lambda: 2**20)
    for kept in (pointer_chase._order, pointer_chase._cycle):
        kept.cache_clear()
    yield
    for kept in (pointer_chase._order, pointer_chase._cycle):
        kept.cache_clear()


def test_the_last_cache_is_the_largest_that_is_described(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(pointer_chase, "CACHES", tmp_path)
    assert pointer_chase.last_cache_bytes() == 2**25
    for index, size in enumerate(("32K", "307200K", "unknown")):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "size").write_text(f"{size}\n")
    assert pointer_chase.last_cache_bytes() == 300 * 2**20


def test_the_lines_are_one_cycle():
    following, place, steps = pointer_chase._cycle(), 0, 0
    while steps == 0 or place:
        place, steps = following[place], steps + 1
        assert place % pointer_chase.LINE == 0
    assert steps == 4 * 2**20 // 64


def test_chains_in_flight_hide_each_other_s_latency():
    assert pointer_chase.time_per_round_s(8, rounds=2000) < 8 * pointer_chase.time_per_round_s(
        1, rounds=2000
    )
