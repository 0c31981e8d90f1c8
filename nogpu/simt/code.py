"""Python being written: lines that remember which line of the kernel they came from."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

SIMPLE = re.compile(r"-?\w+(\.\d+)?")


class Block(list):
    """Lines that are indented once more: (text, line number), Blocks and Slots."""


class Slot(list):
    """Lines filled in later: what one branch must convert is known only after the other one."""


class Writer:
    """Writes one function of the simulated program."""

    def __init__(self) -> None:
        self.block = Block()
        self.line = 0  # of the kernel
        self.depth = 0
        self._names = 0

    def emit(self, text: str) -> None:
        self.block.append((text, self.line))

    def slot(self) -> Slot:
        """A place here for lines to come."""
        slot = Slot()
        self.block.append(slot)
        return slot

    @contextmanager
    def captured(self) -> Iterator[Block]:
        """Lines written in this `with` go into a block of their own, for the caller to place."""
        outer, self.block = self.block, Block()
        try:
            yield self.block
        finally:
            self.block = outer

    @contextmanager
    def indented(self) -> Iterator[Block]:
        """Lines written in this `with` are indented once more."""
        self.depth += 1
        with self.captured() as block:
            yield block
        self.depth -= 1
        if not any(True for _ in layout(block)):
            block.append(("pass", self.line))
        self.block.append(block)

    def unique(self) -> int:
        """A number that no other name of this function has."""
        self._names += 1
        return self._names

    def temporary(self, code: str) -> str:
        """A name that holds what this code computes here."""
        name = f"t{self.unique()}"
        self.emit(f"{name} = {code}")
        return name

    def simple(self, code: str) -> str:
        """The code itself if it is a name or a number, else a temporary for it."""
        return code if SIMPLE.fullmatch(code) else self.temporary(code)


def layout(block: list, depth: int = 0) -> Iterator[tuple[str, int]]:
    """The lines of a block in order, as (text with its indentation, line number)."""
    for entry in block:
        if isinstance(entry, Block):
            yield from layout(entry, depth + 1)
        elif isinstance(entry, Slot):
            yield from layout(entry, depth)
        else:
            text, line = entry
            yield " " * depth + text, line
