"""The virtual time of computation: each product takes its FLOPs, forward and backward."""

import pytest
import torch
from torch.nn import functional
from torch.utils import flop_counter

from nogpu import ranks

ON_CPU = [
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward,
]


def time_s(function, *tensors):
    """Of one rank whose machine computes a FLOP in a second."""
    return ranks.run(lambda dist, *given: function(*given), *tensors, flops_per_s=1.0).time_s


def heads(*shape):
    return torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["this PyTorch's counter", "one without attention on a CPU"])
def registry(request, monkeypatch):
    if request.param != "this PyTorch's counter":
        for operator in ON_CPU:
            monkeypatch.delitem(flop_counter.flop_registry, operator, raising=False)


@pytest.mark.parametrize("queries, keys, width", [(8, 8, 4), (5, 9, 16), (1, 7, 8)])
def test_attention_takes_both_its_products(registry, queries, keys, width):
    q, k, v = heads(queries, width), heads(keys, width), heads(keys, width)
    product = 2 * 2 * 3 * queries * keys * width
    assert time_s(functional.scaled_dot_product_attention, q, k, v) == 2 * product

    def backward(*leaves):
        leaves = [leaf.requires_grad_() for leaf in leaves]
        functional.scaled_dot_product_attention(*leaves).sum().backward()

    assert time_s(backward, q, k, v) == (2 + 5) * product  # the scores are computed again


def test_attention_without_heads_costs_the_same(registry):
    q = heads(8, 4)[0, 0]
    assert time_s(functional.scaled_dot_product_attention, q, q, q) == 2 * 2 * 8 * 8 * 4


@pytest.mark.parametrize(
    "function, shapes, want",
    [
        (torch.mv, [(5, 7), (7,)], 2 * 5 * 7),
        (torch.matmul, [(7,), (7, 5)], 2 * 5 * 7),
        (torch.dot, [(9,), (9,)], 2 * 9),
        (torch.addmv, [(5,), (5, 7), (7,)], 2 * 5 * 7),
        (torch.addbmm, [(5, 6), (4, 5, 7), (4, 7, 6)], 2 * 4 * 5 * 7 * 6),
        (torch.mm, [(5, 7), (7, 6)], 2 * 5 * 7 * 6),
        (functional.linear, [(5, 7), (6, 7), (6,)], 2 * 5 * 7 * 6),
        (functional.conv1d, [(2, 3, 8), (4, 3, 3)], 2 * 2 * 4 * 6 * 3 * 3),
        (torch.add, [(5,), (5,)], 0),
    ],
)
def test_a_product_takes_its_flops(function, shapes, want):
    assert time_s(function, *(torch.ones(shape) for shape in shapes)) == want
