"""A graph in words: its formulas in a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.graphs.rows import LEAVES, Row, ancestors, inputs

INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "matmul": "@", "greater": ">"}
MOST = 12  # formulas in a message
LARGE = 50


def formula(rows: Sequence[Row], outputs: Sequence[int]) -> str:
    """What these rows compute, as a student would type it: "v2 = sin(x); v2 * x + v2".

    An operator with several users has a name of its own.
    """
    needed = sorted(ancestors(rows, outputs))
    if len(needed) > LARGE:
        return f"a graph of {len(needed):,} nodes"
    users = {i: sum(inputs(rows[j]).count(i) for j in needed) for i in needed}
    texts: dict[int, str] = {}
    lines: list[str] = []
    for i in needed:
        op, content = rows[i]
        if op in LEAVES:
            texts[i] = _constant(content) if op == "constant" else content
            continue
        texts[i] = _operator(op, [texts[j] for j in content])
        if users[i] > 1:
            lines.append(f"v{i} = {texts[i]}")
            texts[i] = f"v{i}"
    lines += dict.fromkeys(texts[i] for i in outputs)
    if len(lines) > MOST:
        lines = [*lines[: MOST // 2], "...", *lines[-MOST // 2 :]]
    return "; ".join(lines)


def _operator(op: str, texts: Sequence[str]) -> str:
    if op not in INFIX:
        return f"{op}({', '.join(texts)})"
    left, right = (f"({text})" if " " in text else text for text in texts)
    return f"{left} {INFIX[op]} {right}"


def _constant(value: Any) -> str:
    import numpy as np

    return f"{value:g}" if np.ndim(value) == 0 else f"array of shape {np.shape(value)}"
