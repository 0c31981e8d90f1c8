"""Floating-point operations of what PyTorch dispatches to.

PyTorch's own flop counter knows most products. Which operators it knows depends on its version:
2.15 knows attention on a CPU, older ones need not, and 2.15 does not know products with a vector.
"""

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
# Operators that take the same arguments as one that PyTorch's counter knows, and cost as much.
ALIKE = {
    aten.addbmm: aten.baddbmm,
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        aten._scaled_dot_product_flash_attention_backward
    ),
}
# Products with a vector: the place of the argument of which each element is multiplied and added.
WITH_VECTOR = {aten.mv: 0, aten.dot: 0, aten.vdot: 0, aten.addmv: 1}


def of(operator: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> int:
    """The FLOPs of one call: 0 for what is no product. operator: such as aten.mm.default.

    As in PyTorch's counter, attention counts all pairs of a query and a key, also where a mask
    leaves some out.
    """
    name = operator._overloadpacket
    if name in WITH_VECTOR:
        return 2 * args[WITH_VECTOR[name]].numel()
    count = flop_registry.get(name) or flop_registry.get(ALIKE.get(name))
    return count(*args, **kwargs, out_val=result) if count else 0
