"""Instructions beyond arithmetic: moves, choices, and what the lanes of a warp exchange."""

from collections.abc import Callable

import numpy as np

from nogpu.kernels.memory import WARP
from nogpu.tiles.ptx import arithmetic
from nogpu.tiles.ptx.arithmetic import COMBINED, COMPARISONS, REDUCTIONS, Bits, Value, bits_of, read
from nogpu.tiles.ptx.batch import Batch
from nogpu.tiles.ptx.text import Instruction


def run(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    """Run one instruction. Returns whether it is one of these."""
    handler = HANDLERS.get(instruction.name[0])
    return handler is not None and handler(batch, instruction, active)


def _move(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    """mov and cvta; mov also joins registers to a wider one, and cuts it."""
    target, source = instruction.operands
    kind = instruction.name[-1]
    if isinstance(source, tuple):
        width = bits_of(kind) // len(source)
        parts = arithmetic.all_known(batch.value(name) for name in source)
        joined: Value = None
        if parts is not None:
            joined = np.zeros((), np.uint64)
            for number, part in enumerate(parts):
                low = read(part, f"b{width}").astype(np.uint64)
                joined = joined | (low << np.uint64(number * width))
        batch.set(str(target), joined, kind, active)
    elif isinstance(target, tuple):
        width = bits_of(kind) // len(target)
        value = batch.value(str(source))
        for number, name in enumerate(target):
            part = None
            if value is not None:
                part = value.astype(np.uint64) >> np.uint64(number * width)
            batch.set(name, part, f"b{width}", active)
    else:
        batch.set(str(target), batch.value(str(source)), kind, active)
    return True


def _compare(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    target, first, second, *third = map(str, instruction.operands)
    kind, comparison = instruction.name[-1], instruction.name[1]
    a, b = batch.value(first), batch.value(second)
    if a is None or b is None or comparison not in COMPARISONS or not arithmetic.known(kind):
        return False
    value = COMPARISONS[comparison](read(a, kind), read(b, kind))
    if third:
        other = batch.value(third[0].removeprefix("!"))
        if other is None:
            return False
        other = ~other.astype(bool) if third[0].startswith("!") else other.astype(bool)
        value = COMBINED[instruction.name[2]](value, other)
    batch.set(target, value, "pred", active)
    return True


def _select(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    target, first, second, chooser = map(str, instruction.operands)
    chosen, a, b = batch.value(chooser), batch.value(first), batch.value(second)
    if chosen is None:
        return False
    if chosen.all() or not chosen.any():
        value = a if chosen.all() else b
    else:
        value = None if a is None or b is None else np.where(chosen, a, b)
    batch.set(target, value, instruction.name[-1], active)
    return True


def _convert(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    target, *sources = map(str, instruction.operands)
    *modes, to, origin = instruction.name[1:]
    value = batch.value(sources[0])
    if value is None or len(sources) > 1:
        return False
    found = arithmetic.converted(value, to, origin, tuple(modes))
    if found is None:
        return False
    batch.set(target, found, to, active)
    return True


def _shuffle(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    target, *operands = map(str, instruction.operands)
    value, by, limit = (batch.value(operand) for operand in operands[:3])
    if value is None or by is None or limit is None:
        return False
    lane = np.arange(batch.threads, dtype=np.int64)[None, :] % WARP
    by, limit = by.astype(np.int64), limit.astype(np.int64)
    fixed, last = (limit >> 8) & 31, limit & 31
    end = (lane & fixed) | (last & ~fixed & 31)
    mode = instruction.name[2]
    if mode == "up":
        place = lane - by
        inside = place >= end
    else:
        place = {"down": lane + by, "bfly": lane ^ by, "idx": (lane & fixed) | (by & ~fixed)}[mode]
        inside = place <= end
    place = np.where(inside, place, lane) + np.arange(batch.threads)[None, :] // WARP * WARP
    each = np.broadcast_to(value, batch.shape)
    moved = np.take_along_axis(each, np.broadcast_to(place, batch.shape), axis=1)
    batch.set(target, moved, instruction.name[-1], active)
    return True


def _warps(batch: Batch, value: Bits) -> np.ndarray:
    """The values as (programs, warps, lanes)."""
    return np.broadcast_to(value, batch.shape).reshape(batch.shape[0], -1, WARP)


def _spread(batch: Batch, value: np.ndarray) -> np.ndarray:
    """A value per warp, for each of its threads."""
    return np.repeat(value, WARP, axis=1)


def _reduce(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    target, source = map(str, instruction.operands[:2])
    value, kind = batch.value(source), instruction.name[-1]
    if value is None or not arithmetic.known(kind):
        return False
    function = REDUCTIONS[instruction.name[2]]
    reduced = function.reduce(read(_warps(batch, value), kind), axis=2)
    batch.set(target, arithmetic.written(_spread(batch, reduced), kind), kind, active)
    return True


def _vote(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    target, source = map(str, instruction.operands[:2])
    value = batch.value(source.removeprefix("!"))
    if value is None:
        return False
    asked = _warps(batch, value.astype(bool) ^ source.startswith("!"))
    mode, kind = instruction.name[2], instruction.name[-1]
    if mode == "ballot":
        answer: np.ndarray = (asked * (np.uint64(1) << np.arange(WARP, dtype=np.uint64))).sum(2)
    elif mode in ("any", "all"):
        answer = np.asarray(asked.any(2) if mode == "any" else asked.all(2))
    else:
        return False
    batch.set(target, _spread(batch, answer), kind, active)
    return True


def _elect(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    """elect.sync d|p: p is true in the first lane of each warp."""
    first = np.arange(batch.threads)[None, :] % WARP == 0
    batch.set(str(instruction.operands[0]).rsplit("|")[-1], first, "pred", active)
    return True


def _wait(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    """A barrier in shared memory: what is waited for has been done."""
    if instruction.name[1] in ("try_wait", "test_wait"):
        batch.set(str(instruction.operands[0]), np.ones((), bool), "pred", active)
    return True


HANDLERS: dict[str, Callable[[Batch, Instruction, Bits], bool]] = {
    "mov": _move,
    "cvta": _move,
    "setp": _compare,
    "selp": _select,
    "cvt": _convert,
    "shfl": _shuffle,
    "redux": _reduce,
    "vote": _vote,
    "elect": _elect,
    "mbarrier": _wait,
}
