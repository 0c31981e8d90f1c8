"""What a failed check shows of values."""

import numpy as np
import pytest
import torch

from common import checks
from common.checks import WhenWrong, agree, expect, no_fault, show


def test_arrays_in_a_list_are_shown_by_shape_and_small_ones_whole():
    shown = show([torch.ones(2, 3), torch.zeros(2), (np.float64(1.5), np.arange(9))])
    assert shown == (
        "[float32 tensor of shape (2, 3), float32 tensor of shape (2,) [0., 0.], "
        "(1.5, int64 array of shape (9,))]"
    )


def test_the_first_difference_in_a_list_of_tensors_is_reported():
    with pytest.raises(
        AssertionError, match=r"at \[1\]: 9 of 9 elements differ, first at \[0\] 0\.0, want 1\.0"
    ) as failed:
        agree([torch.ones(8, 3), torch.zeros(9)], [torch.ones(8, 3), torch.ones(9)], "f(x)")
    assert len(str(failed.value)) < 250


@pytest.mark.parametrize(
    "got, want, difference",
    [
        (None, 1.0, "None, not a number"),
        (None, (1,), "None, not a tuple"),
        (1, True, "an int, not a bool"),
        (2.0, 2, "a float, not an int"),
        ([1], (1,), "a list, not a tuple"),
        (None, torch.ones(1), "None, not a tensor"),
    ],
)
def test_another_type_is_named_with_its_article(got, want, difference):
    with pytest.raises(AssertionError, match=rf"\({difference}\)\.$"):
        agree(got, want, "f(x)")


@pytest.mark.parametrize("wanted", [True, False])
def test_a_failed_check_draws_in_a_notebook_and_nowhere_else(monkeypatch, wanted):
    monkeypatch.setattr(checks.Pictures, "wanted", wanted)
    drawn = []
    with pytest.raises(AssertionError, match="f\\(x\\) gave 1"):
        agree(1, 2, "f(x)", draw=lambda: drawn.append("agree"))
    with pytest.raises(AssertionError, match="too many"):
        expect(3 < 2, "too many", draw=lambda: drawn.append("expect"))
    with pytest.raises(AssertionError, match="one too few"):
        no_fault("one too few", draw=lambda: drawn.append("no_fault"))
    agree(1, 1, "f(x)", draw=lambda: drawn.append("nothing failed"))
    expect(True, "", draw=lambda: drawn.append("nothing failed"))
    no_fault("", draw=lambda: drawn.append("nothing failed"))
    assert drawn == ["agree", "expect", "no_fault"] * wanted


def test_a_picture_that_cannot_be_drawn_does_not_hide_the_message(monkeypatch):
    monkeypatch.setattr(checks.Pictures, "wanted", True)
    with pytest.raises(AssertionError, match="too many"):
        expect(False, "too many", draw=lambda: 1 / 0)
    monkeypatch.setattr(checks.Pictures, "must_work", True)
    with pytest.raises(ZeroDivisionError):
        expect(False, "too many", draw=lambda: 1 / 0)


def test_a_function_that_returns_nothing_is_asked_for_its_return():
    with pytest.raises(AssertionError, match="is a `return` missing") as failed:
        agree(None, (1, 2), "f(1)")
    assert str(failed.value).splitlines()[1] == "f(1) gave None, want (1, 2) (None, not a tuple)."


def test_numbers_that_lost_digits_are_nearly_those_wanted():
    want = torch.tensor([1.0, 1 / 3, 2.0], dtype=torch.float64)
    rounded = want.bfloat16()
    assert checks.nearly(rounded, want) and checks.nearly([rounded, 0.999], [want, 1.0])
    assert not checks.nearly(rounded, want, 1e-4) and not checks.nearly(want + 0.1, want)
    others = (want[:2], want.tolist(), None, 1.0, [want, want])
    assert not any(checks.nearly(other, want) for other in others)
    assert not checks.nearly([rounded], [want, want]) and not checks.nearly("1", 1.0)
    assert checks.nearly(want[:0], want[:0]) and not checks.nearly(want * float("nan"), want)


def test_mistakes_that_cost_time_are_computed_once_and_only_after_a_difference():
    computed = []

    def mistakes():
        computed.append(True)
        return {"Two is even.": 2}

    wrong = WhenWrong(mistakes) | {"Three is odd.": 3}
    agree(1, 1, "f()", mistakes=wrong)
    assert not computed
    for got, says in ((2, "Two is even."), (3, "Three is odd.")):
        with pytest.raises(AssertionError, match=says):
            agree(got, 1, "f()", mistakes=wrong)
    assert len(computed) == 1 and wrong["Two is even."] == 2
