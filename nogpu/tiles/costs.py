"""What accesses, races and tl.dot of a launch are, as plain data."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["load", "store", "atomic", "copy"]
Program = tuple[int, int, int]
DONE = {"load": "loads", "store": "stores", "atomic": "updates atomically", "copy": "copies"}


@dataclass
class Traffic:
    """Accesses of programs. sectors: the distinct ones of 32 bytes in each request, summed.

    Of the atomics of warps, an address that several lanes update counts once for each of them.
    """

    requests: int = 0  # a program's tl.load is one
    elements: int = 0  # that requests ask for
    masked: int = 0  # elements that are masked off
    bytes: int = 0  # that requests ask for
    sectors: int = 0
    empty: int = 0  # copies of a warp (cp.async) that copy nothing, as all is masked off

    def add(self, other: "Traffic") -> None:
        """Add the numbers of another Traffic."""
        self.requests += other.requests
        self.elements += other.elements
        self.masked += other.masked
        self.bytes += other.bytes
        self.sectors += other.sectors
        self.empty += other.empty


@dataclass
class Access:
    """What one line's loads, stores or atomic updates of one array cost."""

    function: str
    line: int
    text: str
    array: str
    kind: Kind
    traffic: Traffic = field(default_factory=Traffic)


@dataclass
class Share:
    """What one program of a launch, (x, y, z), asks for."""

    program: Program = (0, 0, 0)
    loads: Traffic = field(default_factory=Traffic)
    stores: Traffic = field(default_factory=Traffic)
    atomics: Traffic = field(default_factory=Traffic)

    @property
    def bytes(self) -> int:
        """Bytes of all that it asks for."""
        return self.loads.bytes + self.stores.bytes + self.atomics.bytes


@dataclass
class Dots:
    """What one line's tl.dot calls compute."""

    function: str
    line: int
    text: str
    calls: int = 0
    flops: int = 0
    formats: list[str] = field(default_factory=list)  # of operands and sum: "fp16 × fp16 + fp32"
    precisions: list[str] = field(default_factory=list)  # input_precision, as in "tf32"


@dataclass(frozen=True)
class Race:
    """Two programs, which run in any order, touch one element, and at least one stores to it."""

    array: str
    element: int
    programs: tuple[Program, Program]
    kinds: tuple[Kind, Kind]
    lines: tuple[int, int]
    elements: int  # how many elements have this race

    def __str__(self) -> str:
        sides = ", ".join(
            f"program {program} {DONE[kind]} it in line {line}"
            for program, kind, line in zip(self.programs, self.kinds, self.lines, strict=True)
        )
        more = f"; {self.elements:,} elements in all" if self.elements > 1 else ""
        return (
            f"race on element {self.element:,} of {self.array}: {sides}, "
            f"and programs run in any order{more}"
        )


@dataclass
class Request:
    """One request of a program: which elements of an array, counted from its first, it touches."""

    array: str
    kind: Kind
    program: Program
    elements: "np.ndarray"


@dataclass
class Trace:
    """All requests of a launch, for drawing. complete: whether they are not too many to keep."""

    strides: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by array, in elements
    requests: list[Request] = field(default_factory=list)
    complete: bool = False


@dataclass
class Costs:
    """What a kernel cost, or one of its lines, or of its arrays."""

    accesses: list[Access] = field(default_factory=list)
    dots_by_line: list[Dots] = field(default_factory=list)

    def total(self, kind: Kind) -> Traffic:
        """The Traffic of accesses of one kind."""
        total = Traffic()
        for access in self.accesses:
            if access.kind == kind:
                total.add(access.traffic)
        return total

    @property
    def loads(self) -> Traffic:
        """The Traffic of loads."""
        return self.total("load")

    @property
    def stores(self) -> Traffic:
        """The Traffic of stores."""
        return self.total("store")

    @property
    def atomics(self) -> Traffic:
        """The Traffic of atomic updates."""
        return self.total("atomic")

    @property
    def copies(self) -> Traffic:
        """The Traffic of asynchronous copies to shared memory, which only a compiled kernel has."""
        return self.total("copy")

    @property
    def dots(self) -> int:
        """The number of tl.dot calls."""
        return sum(line.calls for line in self.dots_by_line)

    @property
    def dot_flops(self) -> int:
        """The floating-point operations of tl.dot: 2·M·N·K per call."""
        return sum(line.flops for line in self.dots_by_line)

    @property
    def dot_formats(self) -> set[str]:
        """The formats in which tl.dot multiplies and adds: {"fp16 × fp16 + fp32"}."""
        return {formats for line in self.dots_by_line for formats in line.formats}

    @property
    def dot_precisions(self) -> set[str]:
        """What tl.dot got as its input_precision: {"tf32"}, which is Triton's default."""
        return {precision for line in self.dots_by_line for precision in line.precisions}
