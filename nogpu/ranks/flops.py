"""Floating-point operations of what PyTorch dispatches to.

PyTorch's own flop counter knows most products. Which operators it knows depends on its version:
2.15 knows attention on a CPU, older ones need not, and 2.15 does not know products with a vector.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import flop_counter

aten = torch.ops.aten
Count = Callable[..., int]
Shape = torch.Size


def _of_shapes(count: Callable[..., int]) -> Count:
    """A count of operators' tensors made from one of their shapes, as PyTorch's own are."""

    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        return count(*(each.shape for each in args if isinstance(each, torch.Tensor)))

    return counted


def _mv(matrix: Shape, vector: Shape) -> int:
    return 2 * matrix.numel()


def _dot(a: Shape, b: Shape) -> int:
    return 2 * a.numel()


def _addmv(added: Shape, matrix: Shape, vector: Shape) -> int:
    return _mv(matrix, vector)


def _addbmm(added: Shape, a: Shape, b: Shape) -> int:
    return 2 * a.numel() * b[-1]


def _attention(query: Shape, key: Shape, value: Shape, *mask: Shape) -> int:
    return flop_counter.sdpa_flop_count(query, key, value)


def _attention_backward(gradient: Shape, query: Shape, key: Shape, value: Shape, *_: Shape) -> int:
    return flop_counter.sdpa_backward_flop_count(gradient, query, key, value)


@functools.cache
def ours() -> dict[Any, Count]:
    """{operator: what counts its FLOPs}, of what PyTorch's counter may lack."""
    counts = {
        aten.mv: _mv,
        aten.addmv: _addmv,
        aten.dot: _dot,
        aten.vdot: _dot,
        aten.addbmm: _addbmm,
        aten._scaled_dot_product_flash_attention_for_cpu: _attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    }
    return {name: _of_shapes(count) for name, count in counts.items()}


def of(operator: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> int:
    """The FLOPs of one call: 0 for what is no product. operator: such as aten.mm.default.

    As in PyTorch's counter, attention counts all pairs of a query and a key, also where a mask
    leaves some out.
    """
    name = operator._overloadpacket
    count = flop_counter.flop_registry.get(name) or ours().get(name)
    return count(*args, **kwargs, out_val=result) if count else 0
