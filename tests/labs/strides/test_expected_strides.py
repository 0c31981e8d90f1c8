"""Lab 01's expected values: the definitions agree with other programs, and no mistake is right."""

from collections import OrderedDict

import numpy as np
import pytest

from common.lessons.strides import expected as oracle

VIEWS = [oracle.sliced, oracle.windows, oracle.reshaped, oracle.blocked, oracle.broadcasted]


def by_ordered_dict(lines, room):
    cache: OrderedDict[int, None] = OrderedDict()
    count = 0
    for line in lines:
        count += line not in cache
        cache[line] = None
        cache.move_to_end(line)
        if len(cache) > room:
            cache.popitem(last=False)
    return count


def test_the_definition_of_lru_counts_what_a_cache_counts():
    rng = np.random.default_rng(0)
    for (lines, room), want, _ in oracle.fetches(rng):
        assert want == by_ordered_dict(lines, room)
    for (lines, sets, ways), want, _ in oracle.set_fetches(rng):
        parts = ([line for line in lines if line % sets == k] for k in range(sets))
        assert want == sum(by_ordered_dict(part, ways) for part in parts)


@pytest.mark.parametrize("cases, first", [(oracle.fetches, 15), (oracle.set_fetches, 9)])
def test_the_first_walk_tells_the_known_mistakes_apart(cases, first):
    _, want, mistakes = next(iter(cases(np.random.default_rng(0))))
    assert len({want, *mistakes.values()}) == len(mistakes) + 1 >= first


def test_runs_by_pytorch_are_those_of_the_rule():
    for (view,), want, _ in oracle.runs(np.random.default_rng(0)):
        found: list[tuple[int, int]] = []
        for size, stride in zip(view[0], view[1], strict=True):
            if size > 1 and found and found[-1][1] == size * stride:
                found[-1] = (found[-1][0] * size, stride)
            elif size > 1:
                found.append((size, stride))
        assert want == found


@pytest.mark.parametrize("cases", VIEWS)
def test_both_answers_are_wanted_and_small_cases_come_first(cases):
    drawn = list(cases(np.random.default_rng(0)))
    assert len(drawn) >= 60
    sizes = [want.numel() for _, want, _ in drawn if hasattr(want, "numel")]
    assert max(sizes[:3]) <= 36
    if cases in (oracle.reshaped, oracle.broadcasted):
        assert any(want is None for _, want, _ in drawn)


def test_an_answer_is_refused_with_the_sentence_of_its_mistake():
    case = (((4, 4), (4, 1), 0), 2)
    (args, want, mistakes) = next(iter(oracle.blocked(np.random.default_rng(0))))
    assert args == case
    oracle.agree_view("blocked", (args, want, mistakes), ((2, 2, 2, 2), (8, 2, 4, 1), 0))
    with pytest.raises(AssertionError, match="still stand in the old order"):
        oracle.agree_view("blocked", (args, want, mistakes), ((2, 2, 2, 2), (8, 4, 2, 1), 0))
    with pytest.raises(AssertionError, match="a view is .shape, strides, offset."):
        oracle.agree_view("blocked", (args, want, mistakes), 3)
