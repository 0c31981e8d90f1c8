"""The first cache of this machine, and the walks and copies that lab 01 counts and times."""

import numpy as np
import pytest

from common.figures import views
from common.lessons.strides import caches


def test_the_cache_s_description_is_read(monkeypatch, tmp_path):
    described = {
        "index0": ("1", "Instruction", "64", "64", "16"),
        "index1": ("1", "Data", "64", "128", "4"),
        "index2": ("2", "Unified", "64", "2048", "16"),
    }
    names = ("level", "type", "coherency_line_size", "number_of_sets", "ways_of_associativity")
    for folder, values in described.items():
        (tmp_path / folder).mkdir()
        for name, value in zip(names, values, strict=True):
            (tmp_path / folder / name).write_text(f"{value}\n")
    monkeypatch.setattr(caches, "DESCRIPTIONS", tmp_path)
    assert caches.first() == (128, 4)
    (tmp_path / "index1" / "number_of_sets").unlink()
    assert caches.first() == caches.USUAL


@pytest.mark.parametrize(
    "view", [((3, 4), (4, 1), 5), ((4, 3), (1, 40), 0), ((2, 2, 3), (0, 50, 7), 1), ((), (), 99)]
)
@pytest.mark.parametrize("itemsize", [1, 4, 64])
def test_the_lines_of_a_walk_are_those_of_its_positions(view, itemsize):
    want = (views.positions(view).flatten() * itemsize // 64).tolist()
    assert caches.lines_of(view, itemsize) == want


def test_a_copy_visits_the_lines_of_both_storages_in_turn():
    lines = caches.copy_lines(((2,), (16,), 0), ((2,), (32,), 16), 4)
    other = caches.OTHER_STORAGE
    assert lines == [1, other, 3, other + 1]


def test_a_copy_is_of_the_views_elements_in_their_order():
    n = 6
    to = ((2, 3, 3, 2), (18, 2, 6, 1), 0)
    by = ((2, 3, 3, 2), (3, 12, 1, 6), 0)
    source, target = caches._storages(n)
    source[:] = np.arange(n * n)
    assert caches.copy_s(n, to, by) > 0
    assert np.array_equal(target.reshape(n, n), source.reshape(n, n).T)
    caches._storages.cache_clear()


def test_steps_that_miss_the_first_cache_take_longer():
    hit_ns, miss_ns = caches.hit_and_miss_ns()
    assert 0 < hit_ns < miss_ns
