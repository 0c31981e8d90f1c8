"""Instructions that access memory."""

import numpy as np

from nogpu.kernels.memory import WARP
from nogpu.tiles.costs import Kind
from nogpu.tiles.ptx.arithmetic import REDUCTIONS, Bits, Value, all_known, bits_of, read
from nogpu.tiles.ptx.batch import Batch
from nogpu.tiles.ptx.requests import Requests
from nogpu.tiles.ptx.spaces import Global, Lanes, as_bytes
from nogpu.tiles.ptx.text import Address, Instruction, Operand

UPDATES = REDUCTIONS | {"exch": lambda _, new: new}


class UnknownError(Exception):
    """What is accessed depends on something that is not computed here, or is not counted here."""


class Accesses:
    """Runs them for the programs of one launch, and counts those to global memory."""

    def __init__(self, parameters: dict[str, Bits], memory: Global, requests: Requests) -> None:
        self.parameters = parameters
        self.memory = memory
        self.requests = requests

    def run(self, batch: Batch, instruction: Instruction, active: Bits) -> None:
        """Run one instruction. UnknownError says what is not known about it."""
        base, *rest = instruction.name
        shared = any(part.startswith("shared") for part in rest)
        if base == "ld" and "param" in rest:
            self._parameter(batch, instruction, active)
        elif base in ("ld", "st") and "local" in rest:
            raise UnknownError("the kernel keeps registers in local memory, which is not followed")
        elif base == "ld":
            self._load(batch, instruction, active, shared)
        elif base == "st":
            self._store(batch, instruction, active, shared)
        elif base in ("atom", "red") and "async" not in rest:
            self._update(batch, instruction, active, shared)
        elif base == "cp" and rest[:1] == ["async"] and "bulk" not in rest:
            if rest[1] in ("ca", "cg"):
                self._copy(batch, instruction, active)
        elif base in ("ldmatrix", "stmatrix") and rest[-1] == "b16" and "m8n8" in rest:
            _move_matrices(batch, instruction)
        else:
            raise UnknownError(f"`{instruction}` is not a request of a warp that is counted here")

    def _parameter(self, batch: Batch, instruction: Instruction, active: Bits) -> None:
        target, address = instruction.operands
        if not isinstance(address, Address) or address.base not in self.parameters:
            raise UnknownError("a tensor descriptor's elements are not requested by warps")
        batch.set(str(target), self.parameters[address.base], instruction.name[-1], active)

    def _load(self, batch: Batch, instruction: Instruction, active: Bits, shared: bool) -> None:
        target, address = instruction.operands[:2]
        names = target if isinstance(target, tuple) else (str(target),)
        size = bits_of(instruction.name[-1]) // 8
        lanes = _lanes(batch, address, active)
        if shared:
            found = batch.shared.read(lanes, size * len(names))
        else:
            self._count("load", batch, instruction, lanes, size * len(names))
            found = self.memory.read(lanes.addresses, size * len(names))
        for number, name in enumerate(names):
            part = None if found is None else found[:, number * size : (number + 1) * size]
            batch.set_lanes(name, part, lanes, size)

    def _store(self, batch: Batch, instruction: Instruction, active: Bits, shared: bool) -> None:
        address, source = instruction.operands[:2]
        names = source if isinstance(source, tuple) else (str(source),)
        size = bits_of(instruction.name[-1]) // 8
        lanes = _lanes(batch, address, active)
        if not shared:
            self._count("store", batch, instruction, lanes, size * len(names))
        for number, name in enumerate(names):
            values = as_bytes(_of(batch, name, lanes, size), size)
            at = lanes._replace(addresses=lanes.addresses + number * size)
            if shared:
                batch.shared.write(at, values, size)
            else:
                self.memory.write("store", at.addresses, values, size)

    def _copy(self, batch: Batch, instruction: Instruction, active: Bits) -> None:
        """cp.async: bytes from global to shared memory; the last operand says how many are read."""
        to, source, size, *read_bytes = instruction.operands
        number = int(str(size), 0)
        room = _lanes(batch, to, active)
        batch.shared.write(room, np.zeros((room.programs.size, number), np.uint8), number)
        wanted: Value = batch.value(str(read_bytes[0])) if read_bytes else np.array(number)
        if wanted is None:
            raise UnknownError("a mask depends on numbers that are not computed here")
        some = active & (wanted != 0)
        asked = _lanes(batch, source, active)
        if asked.programs.size:
            copied = np.broadcast_to(some, batch.shape)[asked.programs, asked.threads]
            self.requests.add_empty(instruction.place, self.memory, asked, copied)
        lanes, room = _lanes(batch, source, some), _lanes(batch, to, some)
        self._count("copy", batch, instruction, lanes, number)
        batch.shared.write(room, self.memory.read(lanes.addresses, number), number)

    def _update(self, batch: Batch, instruction: Instruction, active: Bits, shared: bool) -> None:
        """atom, which gives the value before, and red, which does not."""
        gives = instruction.name[0] == "atom"
        address, *sources = instruction.operands[gives:]
        kind = instruction.name[-1]
        parts = sources[0] if isinstance(sources[0], tuple) else (str(sources[0]),)
        size = bits_of(kind) // 8
        lanes = _lanes(batch, address, active)
        if not shared:
            self._count("atomic", batch, instruction, lanes, size * len(parts))
            if kind in ("f16", "bf16") and len(parts) == 1:
                # No GPU adds one 16-bit float: it loads the word, then compares and swaps.
                word = lanes._replace(addresses=lanes.addresses // 4 * 4)
                self._count("load", batch, instruction, word, size)
        before = None
        if len(parts) == 1 and kind[0] in "bus" and kind[1:].isdigit():
            before = self._updated(batch, instruction, lanes, shared)
        elif shared:
            batch.shared.write(lanes, None, size)
        else:
            self.memory.write("atomic", lanes.addresses, None, size * len(parts))
        if gives:
            target = instruction.operands[0]
            for name in target if isinstance(target, tuple) else (str(target),):
                batch.set_lanes(name, before, lanes, size)

    def _updated(
        self, batch: Batch, instruction: Instruction, lanes: Lanes, shared: bool
    ) -> np.ndarray | None:
        """The bytes (lanes, size) before each update of whole numbers, thread by thread."""
        address, *sources = instruction.operands[instruction.name[0] == "atom" :]
        kind, size = instruction.name[-1], bits_of(instruction.name[-1]) // 8
        values = all_known(_of(batch, str(source), lanes, size) for source in sources)
        change = next((UPDATES[part] for part in instruction.name if part in UPDATES), None)
        before = np.zeros((lanes.programs.size, size), np.uint8)
        for lane in range(lanes.programs.size):
            one = Lanes(*(part[lane : lane + 1] for part in lanes))
            old = batch.shared.read(one, size) if shared else self.memory.read(one.addresses, size)
            stored = None
            if old is not None and values is not None:
                before[lane] = old[0]
                number = read(old.view(f"u{size}")[0], kind)
                given = [read(value[lane : lane + 1], kind) for value in values]
                if change is not None:
                    new = change(number, given[0])
                else:  # cas
                    new = np.where(number == given[0], given[1], number)
                stored = as_bytes(new.astype(number.dtype), size)
            if shared:
                batch.shared.write(one, stored, size)
            else:
                self.memory.write("atomic", one.addresses, stored, size)
            if stored is None:
                return None
        return before

    def _count(
        self, kind: Kind, batch: Batch, instruction: Instruction, lanes: Lanes, size: int
    ) -> None:
        self.requests.add(kind, instruction.place, self.memory, lanes, batch.shape, size)


def _move_matrices(batch: Batch, instruction: Instruction) -> None:
    """ldmatrix and stmatrix: 8 × 8 elements of 16 bits between shared memory and a warp's lanes.

    Lane 8 i + r gives the address of row r of matrix i, of 16 bytes. Lane 4 r + c holds elements
    2 c and 2 c + 1 of row r; with .trans, of column r.
    """
    loads = instruction.name[0] == "ldmatrix"
    names, address = instruction.operands[:: 1 if loads else -1]
    names = names if isinstance(names, tuple) else (str(names),)
    lanes = _lanes(batch, address, np.ones((), bool))
    programs, threads = batch.shape
    rows = lanes.addresses.reshape(programs, threads // WARP, WARP)
    lane = np.arange(WARP)
    for number, name in enumerate(names):
        halves = []
        for half in range(2):  # the address of each lane's first and second element
            row, column = lane // 4, lane % 4 * 2 + half
            if "trans" in instruction.name:
                row, column = column, row
            at = rows[:, :, 8 * number + row] + 2 * column
            halves.append(lanes._replace(addresses=at.reshape(-1)))
        if loads:
            found = [batch.shared.read(half, 2) for half in halves]
            known = [part for part in found if part is not None]
            both = np.concatenate(known, axis=1) if len(known) == len(found) else None
            batch.set_lanes(name, both, lanes, 4)
        else:
            values = as_bytes(_of(batch, name, lanes, 4), 4)
            for place, half in enumerate(halves):
                part = None if values is None else values[:, 2 * place : 2 * place + 2]
                batch.shared.write(half, part, 2)


def _lanes(batch: Batch, address: Operand, active: Bits) -> Lanes:
    """The threads that take part, and their addresses."""
    if not isinstance(address, Address):
        raise UnknownError(f"{address} is no address that is followed here")
    base = batch.value(address.base)
    if base is None:
        raise UnknownError("an address depends on numbers that are not computed here")
    return batch.lanes(active, base.astype(np.int64) + address.offset)


def _of(batch: Batch, name: str, lanes: Lanes, size: int) -> Value:
    """What a register holds in these threads, as numbers of `size` bytes."""
    value = batch.value(name)
    if value is None:
        return None
    each = np.broadcast_to(value.astype(f"u{size}"), batch.shape)
    return each[lanes.programs, lanes.threads]
