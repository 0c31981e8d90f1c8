"""What XLA, TVM and Inductor emit for one function: texts that ship, and Inductor's made anew."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

from common import samples

KERNEL = {  # a line of each compiler's text that begins a kernel
    "XLA": r"^ +(?:ROOT )?%(\w+) = .* fusion\((.*?)\), kind=(\w+)",
    "TVM": r"^ +def (\w+)\((.*?)\):",
    "Inductor": r"^(\w+) = async_compile\.(\w+)\(",
}


def kernels() -> Iterator[tuple[str, str, str]]:
    """(compiler, version, kernel) for each kernel that the compilers emit for the function."""
    shipped: dict[str, Any] = samples.compiled()
    for name, pattern in KERNEL.items():
        text, version = shipped[name]["text"], shipped[name]["version"]
        if name == "Inductor":
            live = inductor()
            text, version = (live[0], live[1]) if live else (text, version)
        for line in text.splitlines():
            if (found := re.search(pattern, line)) and found[1] != "main":
                yield name, version, found[1]


def inductor() -> tuple[str, str] | None:
    """(what Inductor emits on this machine, its version), if it can compile here."""
    import torch

    if not torch.cuda.is_available() and shutil.which("g++") is None:
        return None
    from torch._inductor.utils import run_and_get_code

    def f(x: Any, b: Any) -> Any:
        h = torch.tanh(2 * x + b)
        return h / h.sum(1, keepdim=True)

    where = "cuda" if torch.cuda.is_available() else "cpu"
    x, b = torch.ones(1024, 1024, device=where), torch.ones(1024, device=where)
    try:
        _, (code, *_) = run_and_get_code(torch.compile(f, dynamic=False), x, b)
    except Exception:  # a compiler that is there and does not work: the text that ships will do
        return None
    return code, f"torch {torch.__version__}, here"
