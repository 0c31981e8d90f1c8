"""The state of one function that is being translated for one set of argument types."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Never, Protocol

from nogpu.simt.code import Slot, Writer
from nogpu.simt.dtypes import Type
from nogpu.simt.program import Function, Kind, Program, Site
from nogpu.simt.values import Value

Env = dict[str, Type]  # the type of each variable at one point


class Path(NamedTuple):
    """A way to a place where paths meet."""

    env: Env | None  # None if the path does not get there
    slot: Slot  # for what the path must convert


@dataclass(eq=False)
class Loop:
    """A loop that is being written."""

    number: int
    head: Env  # the types at its head
    back: list[Path] = field(default_factory=list)
    out: list[Path] = field(default_factory=list)


class Return(NamedTuple):
    """A return of a value."""

    value: Value
    node: ast.Return
    slot: Slot


class Functions(Protocol):
    """Where a function's translation finds the device functions that it calls."""

    def find(self, thing: object) -> Function | None:
        """The Function of an object from outside, or None if it is not a device function."""
        ...

    def specialise(
        self, function: Function, types: tuple[Type, ...], refuse: Callable[[str], Never]
    ) -> tuple[int, Type]:
        """The number of the function translated for these types, and the type that it returns.

        refuse: raises KernelError with a sentence about the call.
        """
        ...


@dataclass(eq=False)
class Frame:
    """The state of one function's translation."""

    program: Program
    functions: Functions
    function: Function
    version: int  # the function's number in the program
    env: Env
    names: set[str]  # all its parameters and variables
    single: set[str]  # its variables that are assigned in one place only
    known: dict[str, Value] = field(default_factory=dict)  # what these hold
    writer: Writer = field(default_factory=Writer)
    reached: bool = True  # whether any path leads to this point
    target: str = ""  # the name that this statement assigns to
    # The code of this point's path (the iterations of the loops around it), and of its key
    # (the path and the thread).
    path: str = "p0"
    key: str = "k0"
    loops: list[Loop] = field(default_factory=list)  # around this point
    returns: list[Return] = field(default_factory=list)
    returns_nothing: bool = False

    def __post_init__(self) -> None:
        self.run = Site(-1, Kind.RUN, self.function.source, 0)  # until open_run

    def refuse(self, node: ast.AST, sentence: str) -> Never:
        """Raise KernelError with this sentence about the line of this node."""
        self.function.source.refuse(node, sentence)

    # Paths

    def enter(self, env: Env | None) -> None:
        """Go on from a point with these types; None if no path leads there."""
        self.reached = env is not None
        self.env = env or {}

    def path_here(self) -> Path:
        """The path that ends here."""
        return Path(self.env if self.reached else None, self.writer.slot())

    # Counting

    def site(self, node: ast.stmt | ast.expr, kind: Kind, **attributes: str) -> Site:
        """The site of this kind at this node. attributes: of the Site."""
        key = self.version, id(node), kind
        source = self.function.source
        return self.program.site(key, kind, source, node.lineno, **attributes)

    def open_run(self, node: ast.stmt, kind: Kind) -> Site:
        """Begin a stretch of instructions: threads that come here are noted, and steps counted."""
        self.run = self.site(node, kind)
        self.run.steps, self.run.flops = 0, {}
        if self.program.counting:
            self.writer.emit(f"keys{self.run.number}.append({self.key})")
        return self.run

    def step(self, count: int = 1) -> None:
        """Add instructions to the stretch that is being written."""
        self.run.steps += count

    def count_flop(self) -> None:
        """Add a floating-point operation in this line to the stretch that is being written."""
        flops, line = self.run.flops, self.writer.line
        flops[line] = flops.get(line, 0) + 1
