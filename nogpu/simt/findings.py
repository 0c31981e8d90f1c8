"""Mistakes that a kernel makes without an error: races, and reads of unwritten memory."""

from dataclasses import dataclass

from nogpu.simt.program import element
from nogpu.simt.schedule import Index


@dataclass(frozen=True)
class Race:
    """Two threads access one word, at least one of them writes, and nothing orders them."""

    space: str
    array: str
    index: tuple[int, ...]
    blocks: tuple[Index, Index]  # of the two threads
    threads: tuple[Index, Index]
    verbs: tuple[str, str]
    lines: tuple[int, int]
    words: int  # how many words have this race, of those that were looked at
    texts: tuple[str, str] = ("", "")  # of the lines

    def __str__(self) -> str:
        same_block = self.blocks[0] == self.blocks[1]
        sides = [
            f"thread {thread}{'' if same_block else f' of block {block}'} {verb} it in line {line}"
            + (f" (`{text}`)" if text else "")
            for thread, block, verb, line, text in zip(
                self.threads, self.blocks, self.verbs, self.lines, self.texts, strict=True
            )
        ]
        why = (
            f"no barrier between them (block {self.blocks[0]})"
            if same_block
            else "and blocks run in any order"
        )
        more = f"; {self.words:,} words in all" if self.words > 1 else ""
        what = f"{element(self.array, self.index)} in {self.space} memory"
        return f"race on {what}: {sides[0]}, {sides[1]}, {why}{more}"


@dataclass(frozen=True)
class UnwrittenRead:
    """A thread read shared or local memory that nothing had written."""

    array: str
    index: tuple[int, ...]
    block: Index
    thread: Index
    line: int
    times: int

    def __str__(self) -> str:
        more = f"; {self.times:,} such reads in all" if self.times > 1 else ""
        return (
            f"thread {self.thread} of block {self.block} reads {element(self.array, self.index)} "
            f"in line {self.line}, which nothing has written{more}"
        )
