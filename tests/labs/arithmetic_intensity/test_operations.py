"""What PyTorch runs during a call: common.lessons.arithmetic_intensity.operations."""

import torch

from common.lessons.arithmetic_intensity import operations


def test_a_product_and_a_sum_are_counted_and_a_view_is_not():
    a, b = torch.rand(3, 5), torch.rand(7, 5)
    product, total = operations.recorded(lambda: (a @ b.T) + 1)
    assert (product.name, product.flops, product.bytes_moved) == (
        "mm",
        2 * 3 * 5 * 7,
        4 * (15 + 35 + 21),
    )
    assert (total.flops, total.bytes_moved) == (21, 2 * 4 * 21)


def test_a_copy_computes_nothing_and_a_stretched_tensor_moves_its_storage():
    x = torch.rand(1, 8)
    (copy,) = operations.recorded(lambda: x.expand(100, 8).clone())
    assert (copy.flops, copy.bytes_moved) == (0, 4 * 8 + 4 * 800)


def test_the_backward_pass_is_recorded_too():
    x, w = torch.rand(4, 6), torch.rand(6, 2, requires_grad=True)
    rows = operations.recorded(lambda: (x @ w).sum().backward())
    assert [row.flops for row in rows if row.name == "mm"] == [2 * 4 * 6 * 2] * 2
