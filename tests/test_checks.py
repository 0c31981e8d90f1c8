"""What a failed check shows of values."""

import numpy as np
import pytest
import torch

from common.checks import agree, show


def test_arrays_in_a_list_are_shown_by_shape_and_small_ones_whole():
    shown = show([torch.ones(2, 3), torch.zeros(2), (np.float64(1.5), np.arange(9))])
    assert shown == ("[float32 tensor of shape (2, 3), float32 tensor of shape (2,) [0., 0.], (1.5, int64 array of shape (9,))]")


def test_the_first_difference_in_a_list_of_tensors_is_told():
    with pytest.raises(AssertionError, match=r"at \[1\]: 9 of 9 elements differ, first at \[0\] 0\.0, want 1\.0") as failed:
        agree([torch.ones(8, 3), torch.zeros(9)], [torch.ones(8, 3), torch.ones(9)], "f(x)")
    assert len(str(failed.value)) < 250
