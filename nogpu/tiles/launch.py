"""A launch as plain data, and how it runs in this process, where Triton interprets."""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nogpu.kernels.errors import KernelError, OutOfBoundsError
from nogpu.tiles import triton_interpreter
from nogpu.tiles.arrays import Arrays, Placed
from nogpu.tiles.build import Built
from nogpu.tiles.constants import resolved
from nogpu.tiles.costs import Program
from nogpu.tiles.counters import Recorder
from nogpu.tiles.functions import Function
from nogpu.tiles.memory import Memory
from nogpu.tiles.report import Report

ADVICE = {  # what Triton's interpreter says: what to write
    "for ** or pow()": "a power is x * x, or tl.exp2(y * tl.log2(x))",
    "'int' object is not iterable": "an element of an array is tl.load(x + i); a block is indexed "
    "by None and : alone, x[:, None], and its elements have no numbers",
    "data-type of size 32 to data-type of size 1": "`not` is for bools; compare with 0",
    "unexpected type fp": "// and the operators of bits are for whole numbers; tl.floor(x / y)",
    "has no len()": "x.shape[0]",
    "incompatible dimensions": "x[:, None] makes a column of a block, and x[None, :] a row; "
    "tl.max(tile, 1) has one number per row, and goes with the tile as a column",
    "must be 16-byte aligned": "a descriptor's load takes row and column of the tile's first "
    "element, not the tile's number",
    "must be of type tl.constexpr": "the length of a block is a constant, like BLOCK",
    "must have type `constexpr": "a block's shape is made of constants: NAME: tl.constexpr = ...",
}


@dataclass
class Launch:
    """A launch without the contents of its arrays: it can cross to another process."""

    function: Function
    values: dict[str, Any]  # parameter: number, constant, or a Placed (see arrays)
    grid: Program
    seed: int


def run(launch: Launch, arrays: Arrays) -> Report:
    """The Report of a launch, run by Triton's interpreter in this process."""
    built = Built(launch.function, [v for v in launch.values.values() if isinstance(v, Function)])
    memory = Memory(arrays.arguments())
    recorder = Recorder(memory, launch.grid)
    values = _values(launch, memory, built)
    try:
        _interpret(built, values, launch.grid, _shuffled(launch), recorder)
    except Exception as error:
        raise _located(error, built, recorder) from None
    finally:
        arrays.write_back()
    report = recorder.report(launch.function.name, launch.seed)
    return replace(report, operations=launch.function.operations())


def _shuffled(launch: Launch) -> list[Program]:
    """All programs, in the order in which they run."""
    x, y, z = map(range, launch.grid)
    programs = [(i, j, k) for k in z for j in y for i in x]
    random.Random(launch.seed).shuffle(programs)  # noqa: S311 - an order, not a secret
    return programs


def _interpret(
    built: Built,
    values: dict[str, Any],
    grid: Program,
    programs: Iterable[Program],
    recorder: Recorder,
) -> None:
    counting = triton_interpreter.counting(built.kernel, built.sources, recorder)
    with counting as builder, np.errstate(all="ignore"):
        builder.set_grid_dim(*grid)
        for program in programs:
            builder.set_grid_idx(*program)
            recorder.begin(program)
            built.runtime.turns = 0
            built.kernel.fn(**values)
            recorder.end()


def _values(launch: Launch, memory: Memory, built: Built) -> dict[str, Any]:
    """{parameter: what Triton's interpreter takes}."""
    import triton.language as tl

    values = {}
    for name, constant in launch.function.parameters().items():
        value = launch.values[name]
        if isinstance(value, Function):
            values[name] = built.made[id(value)]
        elif constant:
            values[name] = resolved(value, tl)
        elif isinstance(value, Placed):
            values[name] = _array(value, memory)
        else:
            values[name] = triton_interpreter.number(value)
    return values


def _array(placed: Placed, memory: Memory) -> Any:
    """The pointer that stands for an array, or its descriptor."""
    pointer = triton_interpreter.pointer(memory.arguments[placed.number])
    if placed.descriptor is None:
        return pointer
    return triton_interpreter.descriptor(pointer, placed.descriptor)


def _located(error: Exception, built: Built, recorder: Recorder) -> Exception:
    """The error that says where in the kernel another one happened, and in which program."""
    where = f"program {recorder.program}: "
    if place := built.place(error.__traceback__):
        source, line = place
        where = f"{source.where(line)}, {where}"
    if isinstance(error, OutOfBoundsError):
        return OutOfBoundsError(f"{where}{error.args[0]}")
    text = error.args[0] if isinstance(error, KernelError) else _sentence(error)
    return KernelError(f"{where}{text}")


def _sentence(error: Exception) -> str:
    text = re.sub(r"'constexpr\[(\d+)\]'", r"\1", str(error))  # a block's shape as numbers
    text += next((f" ({advice})" for words, advice in ADVICE.items() if words in text), "")
    if isinstance(error, (AssertionError, ValueError, TypeError)) and text:
        return text
    return f"{type(error).__name__}" + (f": {text}" if text else "")
