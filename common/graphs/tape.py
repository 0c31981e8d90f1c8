"""What PyTorch has recorded: its graph of a tensor, as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from common.graphs.rows import Row

if TYPE_CHECKING:
    from torch import Tensor


def torch_tape(output: Tensor, leaves: Mapping[str, Tensor]) -> list[Row]:
    """The nodes behind output.grad_fn, each after its inputs: ("MulBackward0", (0, 1)).

    leaves: {name: a tensor that requires a gradient}, which become placeholders.
    """
    names = {id(leaf): name for name, leaf in leaves.items()}
    rows: list[Row] = []
    number: dict[Any, int] = {}
    stack: list[tuple[Any, bool]] = [(output.grad_fn, False)]
    while stack:
        function, inputs_are_listed = stack.pop()
        inputs = [x for x, _ in function.next_functions if x is not None]
        if function in number:
            continue
        if not inputs_are_listed:
            stack += [(function, True), *((x, False) for x in reversed(inputs))]
            continue
        number[function] = len(rows)
        variable = getattr(function, "variable", None)
        if variable is not None:
            rows.append(("placeholder", names.get(id(variable), "?")))
        else:
            rows.append((function.name(), tuple(number[x] for x in inputs)))
    return rows
