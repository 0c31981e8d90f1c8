"""A function of one element, run for all of them: elementwise, of lab 02."""

import numpy as np
import torch

from common.lessons.arithmetic_intensity import elementwise
from nogpu import cuda


@cuda.jit(device=True)
def added(x, i, number, times):
    value = x[i]
    for _ in range(times):
        value += number
    x[i] = value


def test_every_element_is_visited_once_and_the_format_stays():
    x = torch.arange(1000, dtype=torch.float32)
    program = elementwise.element(added)
    program(x, np.float32(0.5), 3)
    program(x, np.float32(0.5), 1)
    assert torch.equal(x, torch.arange(1000, dtype=torch.float32) + 2)


def test_passes_are_measured_where_they_are_few():
    found = elementwise.compared(added, torch.ones(8), np.float32(1), [1, 32])
    assert list(found) == ["fused", "unfused"]
    assert min(found["fused"]) > 0
    assert found["unfused"][0] > 0
    assert np.isnan(found["unfused"][1])


def test_the_doubling_is_read_between_dots_or_led_on():
    assert elementwise.doubling([1, 2, 4], [1.0, 1.0, 3.0]) == 3
    assert elementwise.doubling([1, 2, 4], [1.0, 1.0, 1.5]) == 6
