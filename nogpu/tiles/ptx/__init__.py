"""What the warps of a compiled kernel request, from running its PTX on arrays of threads.

The compiler decides which thread holds which elements, how many of them one instruction loads, and
what it copies to shared memory ahead of its use. All of that can be read off the PTX that it makes
for any GPU, on any machine. `requested` runs it: `text` reads the instructions, `arithmetic` and
`lanes` compute, `spaces` and `access` are the memory, `batch` are the threads, `machine` runs them,
and `requests` counts.
"""

import numpy as np

from nogpu.tiles.ptx.arithmetic import Bits, bits_of
from nogpu.tiles.ptx.machine import Machine, RefusedError
from nogpu.tiles.ptx.requests import Requests
from nogpu.tiles.ptx.spaces import Global
from nogpu.tiles.ptx.text import Code, Place, parsed

__all__ = ["Code", "Place", "RefusedError", "Requests", "parsed", "requested"]


def requested(
    code: Code,
    values: list[int | float],
    memory: Global,
    grid: tuple[int, int, int],
    shared_bytes: int,
) -> Requests:
    """What the warps of all programs request. values: of the first parameters, in order.

    The parameters after them are memory that the runtime provides for debugging; they get 0.
    RefusedError says what can't be counted, and where.
    """
    given = dict(zip((name for name, _ in code.parameters), values, strict=False))
    parameters = {
        name: _bits(given.get(name, 0), kind) for name, kind in code.parameters if kind != "array"
    }
    return Machine(code, parameters, memory, shared_bytes).run(grid)


def _bits(value: int | float, kind: str) -> Bits:
    size = bits_of(kind) // 8
    if isinstance(value, float):
        return np.array(value, f"f{size}").view(f"u{size}")
    return np.array(value % 2 ** (8 * size), f"u{size}")
