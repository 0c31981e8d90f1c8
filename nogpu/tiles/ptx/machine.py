"""Runs a compiled kernel's PTX on arrays of threads, to see what its warps request.

All programs take each step together, until they part at a branch. Only what decides addresses has
to be computed: what tensor cores and approximate functions give is not known, and an address, a
mask or a branch that depends on it is refused.
"""

from typing import Never

import numpy as np

from nogpu.tiles.ptx import access, arithmetic, lanes
from nogpu.tiles.ptx.arithmetic import Bits, Value, read, written
from nogpu.tiles.ptx.batch import Batch
from nogpu.tiles.ptx.requests import Requests
from nogpu.tiles.ptx.spaces import Global, Shared
from nogpu.tiles.ptx.text import Address, Code, Instruction, Place

MOST_THREADS = 1 << 15  # that run in step
MOST_STEPS = 1_000_000  # of one program
IGNORED = {  # what orders memory, and what waits for it: here each instruction is done at once
    *("bar", "barrier", "membar", "fence", "nanosleep", "griddepcontrol", "prefetch", "pragma"),
    *("setmaxnreg", "discard", "createpolicy", "applypriority"),
}
MEMORY = {  # what accesses memory, or does more than write registers
    *("ld", "st", "atom", "red", "cp", "ldmatrix", "stmatrix"),
    *("call", "trap", "tensormap", "multimem"),
}


class RefusedError(Exception):
    """What can't be counted, and where it stands in the kernel's text."""

    def __init__(self, sentence: str, place: Place) -> None:
        super().__init__(sentence)
        self.place = place


class Machine:
    """Runs one launch of a kernel."""

    def __init__(
        self, code: Code, parameters: dict[str, Bits], memory: Global, shared_bytes: int
    ) -> None:
        self.code = code
        self.shared_bytes = shared_bytes
        self.accesses = access.Accesses(parameters, memory, Requests())

    def run(self, grid: tuple[int, int, int]) -> Requests:
        """Run all programs. Returns what their warps requested."""
        programs = np.indices(grid).reshape(3, -1).T
        together = max(1, MOST_THREADS // self.code.threads)
        for first in range(0, len(programs), together):
            some = programs[first : first + together]
            shared = Shared(len(some), self.shared_bytes)
            self._run(Batch(some, self.code.threads, grid, shared))
        return self.accesses.requests

    def _run(self, batch: Batch) -> None:
        steps = 0
        while batch.at < len(self.code.instructions):
            batch.meet()
            instruction = self.code.instructions[batch.at]
            batch.at += 1
            steps += 1
            if steps > MOST_STEPS:
                _refuse(instruction, f"a program takes more than {MOST_STEPS:,} steps")
            if instruction.name[0] in ("bra", "ret", "exit"):
                self._branch(batch, instruction)
            elif instruction.name[0] not in IGNORED:
                self._step(batch, instruction)

    def _branch(self, batch: Batch, instruction: Instruction) -> None:
        leaving = batch.active(instruction)
        if leaving is None:
            self._skip(batch, instruction)
            return
        if leaving.any():
            end = len(self.code.instructions)
            to = self.code.labels[str(instruction.operands[0])] if instruction.operands else end
            batch.part(leaving, to)

    def _skip(self, batch: Batch, instruction: Instruction) -> None:
        """Leave out what a branch may leave out, if that only computes; its results are unknown."""
        end = self.code.labels[str(instruction.operands[0])] if instruction.operands else 0
        skipped = self.code.instructions[batch.at : end]
        labels = self.code.labels.values()
        if not skipped or any(
            each.name[0] in MEMORY | IGNORED | {"bra", "ret", "exit"} for each in skipped
        ):
            _refuse(instruction, "a branch depends on numbers that are not computed here")
        if any(batch.at < label < end for label in labels):
            _refuse(instruction, "a branch depends on numbers that are not computed here")
        for each in skipped:
            _forget(batch, each)
        batch.at = end

    def _step(self, batch: Batch, instruction: Instruction) -> None:
        active = batch.active(instruction)
        base = instruction.name[0]
        try:
            if base in MEMORY:
                if active is None:
                    raise access.UnknownError(
                        "a mask depends on numbers that are not computed here"
                    )
                self.accesses.run(batch, instruction, active)
            elif active is None or not _computed(batch, instruction, active):
                _forget(batch, instruction)
        except access.UnknownError as error:
            _refuse(instruction, str(error))


def _computed(batch: Batch, instruction: Instruction, active: Bits) -> bool:
    """Compute what the instruction writes. Returns whether that is done here."""
    if lanes.run(batch, instruction, active):
        return True
    known = arithmetic.operation(instruction.name)
    if known is None or not all(isinstance(each, str) for each in instruction.operands):
        return False
    function, kinds, result = known
    target, *operands = map(str, instruction.operands)
    values = arithmetic.all_known(batch.value(operand) for operand in operands)
    value: Value = None
    if values is not None:
        kinds = kinds * len(values) if len(kinds) == 1 else kinds
        numbers = [read(each, kind) for each, kind in zip(values, kinds, strict=False)]
        with np.errstate(all="ignore"):
            value = written(function(*numbers), result)
    batch.set(target, value, result, active)
    return True


def _forget(batch: Batch, instruction: Instruction) -> None:
    """Note that what the instruction writes, a register or several, is not known."""
    target = instruction.operands[0] if instruction.operands else ()
    if isinstance(target, Address):
        if instruction.name[0] not in ("tcgen05", "mbarrier", "wgmma"):
            _refuse(instruction, f"`{instruction}` is not counted here")
        return
    for name in target if isinstance(target, tuple) else (target,):
        if name[0] not in "-0123456789":
            batch.registers[name] = None


def _refuse(instruction: Instruction, sentence: str) -> Never:
    raise RefusedError(sentence, instruction.place)
