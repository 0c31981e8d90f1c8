"""Views: what they read, and that the random ones are what the checks of lab 01 need."""

import functools
import math

import numpy as np
import pytest
import torch

from common.figures import views


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(12).view(3, 4).T,
        torch.arange(30).view(5, 6)[1::2, 2:],
        torch.tensor(7),
        torch.arange(3).expand(2, 3),
        torch.empty(2, 0, 3, dtype=torch.int64),
    ],
)
def test_positions_are_what_pytorch_reads_from_a_storage_of_addresses(x):
    got = views.positions(views.of(x))
    assert got.shape == x.shape
    if x.numel():
        flat = torch.as_strided(x, (x.untyped_storage().nbytes() // 8,), (1,), 0)
        assert torch.equal(flat[got], x)
        assert views.of(got) == views.of(x), "it is such a view itself"


def test_viewed_is_none_where_only_a_copy_has_the_shape():
    x = torch.arange(6).view(2, 3)
    flat = views.viewed(x, (6,))
    assert flat is not None and flat.tolist() == [0, 1, 2, 3, 4, 5]
    assert views.viewed(x.T, (6,)) is None


def test_a_case_names_the_view_that_came_and_pytorchs():
    x = torch.arange(6).view(2, 3)
    assert views.case("f(x)", 7, x.T) == "f(x) gave 7, PyTorch ((3, 2), (1, 3), 0): reading it"
    assert views.case("f(x)", None, None) == "f(x) gave None, PyTorch None: reading it"


def test_none_reads_nothing():
    assert views.positions(None) is None


@pytest.mark.parametrize(
    "view",
    [
        [],
        3,
        "abc",
        float("nan"),
        ((2,), (1, 1), 0),
        ((2,), (1.0,), 0),
        ((2,), (1,), None),
        ((-1,), (1,), 0),
    ],
)
def test_what_is_not_a_view_is_named(view):
    with pytest.raises(ValueError, match="a view is .shape, strides, offset."):
        views.positions(view)


@pytest.mark.parametrize(
    "view", [((2,), (-1,), 3), ((1 << 14, 2), (1, 1), 0), ((2,), (1,), -1), ((2,), (1,), 1 << 60)]
)
def test_a_view_that_leaves_the_storage_is_refused(view):
    with pytest.raises(ValueError, match="positions 0 to 16,383"):
        views.positions(view)


@pytest.mark.parametrize("smallest", [0, 1])
def test_random_views_are_of_all_kinds(smallest):
    rng = np.random.default_rng(0)
    drawn = [views.random_view(rng, trial % 5, smallest=smallest) for trial in range(2000)]
    tensors = [views.positions(view) for view in drawn]
    assert {len(view[0]) for view in drawn} == set(range(5))
    assert {size for shape, *_ in drawn for size in shape} == set(range(smallest, 6))
    assert any(0 in shape for shape, *_ in drawn) == (smallest == 0)
    assert any(0 in strides for _, strides, _ in drawn), "broadcast"
    assert max(int(x.max()) for x in tensors if x.numel()) <= 627
    assert 0.2 < np.mean([x.is_contiguous() for x in tensors if x.dim() > 1]) < 0.8


def test_random_slices_lie_in_their_axis():
    rng = np.random.default_rng(0)
    for smallest in (0, 1):
        for _ in range(300):
            axis, start, stop, step = views.random_slice(
                rng, ((3, 5), (5, 1), 0), smallest=smallest
            )
            assert 0 <= start <= stop - smallest <= (3, 5)[axis] - smallest and 1 <= step <= 3


def test_random_shapes_have_the_elements_asked_for():
    rng = np.random.default_rng(0)
    for elements in [0, 1, 2, 7, 24, 360]:
        shapes = {views.random_shape(rng, elements) for _ in range(50)}
        assert {math.prod(shape) for shape in shapes} == {elements}
        assert len(shapes) > 1 and max(map(len, shapes)) <= 6


def strides_of_a_new_tensor(shape):
    return torch.empty(shape).stride()


def through_a_helper(shape):
    return strides_of_a_new_tensor(shape)


def of_an_array(shape):
    import numpy

    return [numpy.zeros(shape).strides for _ in range(1)][0]


def by_a_pattern(shape):
    match np.empty(shape):
        case np.ndarray(strides=steps):
            return steps


def by_hand(shape):
    strides = [1]
    for size in shape[:0:-1]:
        strides.append(int(np.prod([strides[-1], size])))
    return tuple(strides)


def by_lru_cache(lines):
    from functools import lru_cache

    return lru_cache(3)


@pytest.mark.parametrize(
    "function, found",
    [
        (strides_of_a_new_tensor, ["stride"]),
        (through_a_helper, ["stride"]),
        (functools.lru_cache(through_a_helper), ["stride"]),
        (of_an_array, ["strides"]),
        (by_a_pattern, ["ndarray", "strides"]),
        (by_lru_cache, ["lru_cache"]),
        (by_hand, []),
        (len, []),
    ],
)
def test_shortcuts_are_what_a_library_is_asked_for(function, found):
    assert views.shortcuts(function) == found
