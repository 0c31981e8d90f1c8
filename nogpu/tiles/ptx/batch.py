"""Programs that run in step: their registers, their shared memory, and where their threads are."""

from dataclasses import dataclass, field

import numpy as np

from nogpu.kernels.memory import WARP
from nogpu.tiles.ptx.arithmetic import Bits, Value, unsigned
from nogpu.tiles.ptx.spaces import Lanes, Shared
from nogpu.tiles.ptx.text import Instruction

FLOATS = {"0f": "u4", "0d": "u8"}  # how a floating-point number begins: its bits


@dataclass
class Batch:
    """Programs that run together. A register has a value per (program, thread)."""

    programs: np.ndarray  # (programs, 3): x, y, z
    threads: int
    grid: tuple[int, int, int]
    shared: Shared
    registers: dict[str, Value] = field(default_factory=dict)
    at: int = 0  # the instruction that comes next
    here: np.ndarray | None = None  # the threads that take part in it; None: all
    elsewhere: dict[int, np.ndarray] = field(default_factory=dict)  # instruction: who waits there

    def part(self, leaving: Bits, to: int) -> None:
        """Some threads go on at another instruction. Those that are behind run first."""
        here = np.broadcast_to(True if self.here is None else self.here, self.shape)
        for at, threads in ((to, here & leaving), (self.at, here & ~leaving)):
            if threads.any():
                self.elsewhere[at] = self.elsewhere.get(at, np.zeros((), bool)) | threads
        self.at = min(self.elsewhere)
        self.here = np.zeros((), bool)
        self.meet()

    def meet(self) -> None:
        """Threads that wait at this instruction go on with those that come to it."""
        if self.at in self.elsewhere:
            self.here = self.here | self.elsewhere.pop(self.at)
            if self.here.all():
                self.here = None

    @property
    def shape(self) -> tuple[int, int]:
        """(programs, threads)."""
        return len(self.programs), self.threads

    def value(self, operand: str) -> Value:
        """What a register, a special register, a symbol or a number holds."""
        if operand in self.registers:
            return self.registers[operand]
        if operand.startswith("%"):
            return self._special(*operand.split("."))
        if operand[:2] in FLOATS:
            return np.array(int(operand[2:], 16), FLOATS[operand[:2]])
        try:
            return np.array(int(operand.removesuffix("U"), 0) % 2**64, np.uint64)
        except ValueError:  # a symbol; shared memory begins at 0
            return np.zeros((), np.uint64) if operand == "global_smem" else None

    def _special(self, name: str, axis: str = "x") -> Value:
        number = "xyz".index(axis)
        thread = np.arange(self.threads, dtype=np.uint32)[None, :]
        if name == "%tid":
            return thread if axis == "x" else np.zeros((), np.uint32)
        if name == "%ntid":
            return np.array(self.threads if axis == "x" else 1, np.uint32)
        if name == "%ctaid":
            return self.programs[:, number, None].astype(np.uint32)
        if name == "%nctaid":
            return np.array(self.grid[number], np.uint32)
        if name == "%laneid":
            return thread % np.uint32(WARP)
        if name == "%warpid":
            return thread // np.uint32(WARP)
        return np.zeros((), np.uint32) if name == "%cluster_ctarank" else None

    def active(self, instruction: Instruction) -> Value:
        """Which threads take part, as bools that broadcast to (programs, threads)."""
        here = np.ones((), bool) if self.here is None else self.here
        if not instruction.predicate:
            return here
        value = self.value(instruction.predicate)
        if value is None:
            return None
        return here & (value.astype(bool) ^ instruction.negated)

    def lanes(self, active: Bits, address: Bits) -> Lanes:
        """The active threads and their addresses."""
        chosen = np.broadcast_to(active, self.shape)
        programs, threads = np.nonzero(chosen)
        return Lanes(np.broadcast_to(address, self.shape)[programs, threads], programs, threads)

    def set(self, name: str, value: Value, kind: str, active: Value) -> None:
        """Write a register, in the threads that take part."""
        if name == "_":
            return
        if value is not None:
            value = np.asarray(value).astype(unsigned(kind))
        if active is None:
            value = None
        elif not active.all():
            old = self.registers.get(name, np.zeros((), unsigned(kind)))
            if not active.any():
                value = old
            elif old is None or value is None:
                value = None
            else:
                value = np.where(active, value, old)
        self.registers[name] = value

    def set_lanes(self, name: str, found: np.ndarray | None, lanes: Lanes, size: int) -> None:
        """Write bytes (lanes, size) to a register, in these threads; None: they are not known."""
        old = self.registers.get(name, np.zeros((), f"u{size}"))
        all_of_them = lanes.programs.size == self.shape[0] * self.shape[1]
        if not lanes.programs.size:
            self.registers[name] = old
        elif found is None or (old is None and not all_of_them):
            self.registers[name] = None
        else:
            new = np.zeros(self.shape, f"u{size}")
            if old is not None:
                new[:] = old
            new[lanes.programs, lanes.threads] = np.ascontiguousarray(found).view(new.dtype)[:, 0]
            self.registers[name] = new
