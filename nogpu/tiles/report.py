"""What a launch cost: counts by array and by line, races, and a table of it all."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nogpu.kernels.table import Column, size_text, text_table, tuples
from nogpu.tiles.costs import Access, Costs, Dots, Kind, Program, Race, Share, Trace, Traffic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS: dict[str, Kind] = {"loads": "load", "stores": "store", "atomics": "atomic"}
VERBS = {"load": "loads", "store": "stores", "atomic": "atomics", "copy": "copies"}
NOTABLE = 1.5  # of the load; a last block that is not full causes less, unless there are few blocks


@dataclass
class Counts(Costs):
    """What one launch of a kernel cost."""

    kernel: str = ""
    grid: Program = (0, 0, 0)
    arrays: dict[str, tuple[int, ...]] = field(default_factory=dict)  # name: shape

    @property
    def programs(self) -> int:
        """The number of programs launched."""
        x, y, z = self.grid
        return x * y * z

    def array(self, name: str) -> Costs:
        """The Costs of one array, by the name of the kernel's parameter."""
        if name not in self.arrays:
            raise ValueError(
                f"{name} is not an array of {self.kernel}; its arrays are {', '.join(self.arrays)}"
            )
        return Costs([access for access in self.accesses if access.array == name])

    def line(self, number: int) -> Costs:
        """The Costs of the line with this number."""
        costs = Costs(
            [access for access in self.accesses if access.line == number],
            [dots for dots in self.dots_by_line if dots.line == number],
        )
        if not costs.accesses and not costs.dots_by_line:
            lines = {access.line for access in self.accesses}
            lines |= {dots.line for dots in self.dots_by_line}
            raise ValueError(
                f"line {number} accesses no memory and has no tl.dot; those that do are "
                + ", ".join(map(str, sorted(lines)))
            )
        return costs


@dataclass
class Warps(Counts):
    """What the warps of the compiled kernel request: the figures of a GPU's counters.

    A request is one instruction of a warp; `loads` go to registers, and `copies` (cp.async) to
    shared memory.
    """

    num_warps: int = 4  # of a program
    num_stages: int = 3
    capability: int = 90

    def as_dict(self) -> dict[str, Any]:
        """The counts as numbers, texts, lists and dicts: they can become JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Warps":
        """The counts that as_dict made this of; lists may stand for tuples, as in JSON."""
        rest = {name: data[name] for name in ("kernel", "num_warps", "num_stages", "capability")}
        return cls(
            accesses=[_access(**access) for access in data["accesses"]],
            grid=tuples(data["grid"]),
            arrays={name: tuples(shape) for name, shape in data["arrays"].items()},
            **rest,
        )

    def __str__(self) -> str:
        return _table(
            f"{self.kernel}, compiled for capability {self.capability / 10:.1f}: "
            f"{self.programs:,} programs of {self.num_warps} warps",
            self,
        )

    __repr__ = __str__


@dataclass
class Report(Counts):
    """What one launch cost. print(report) shows a table; report.draw(array) a picture."""

    seed: int = 0
    races: list[Race] = field(default_factory=list)
    busiest: Share = field(default_factory=Share)  # that moves most bytes; the first of several
    operations: tuple[str, ...] = ()  # what its text calls: exp for tl.exp and for x.exp
    conversions: int = 0  # elements of integers that became floats; bitcasts do not count
    selects: int = 0  # elements that tl.where chose
    largest_tile: int = 0  # elements of the largest block of values that a program makes
    trace: Trace = field(default_factory=Trace, repr=False, compare=False)
    compile: Callable[[], Warps] | None = field(default=None, repr=False, compare=False)
    warps: Warps | None = field(default=None, repr=False, compare=False)

    @property
    def compiled(self) -> Warps:
        """What the warps of the compiled kernel request. The first use compiles it.

        num_warps, num_stages and capability (90: Hopper) are those that tiles.count was given.
        """
        if self.warps is None:
            if self.compile is None:
                raise ValueError(f"this report of {self.kernel} does not hold its launch")
            self.warps = self.compile()
        return self.warps

    @property
    def imbalance(self) -> float:
        """Load imbalance: bytes of the busiest program over the mean of all programs.

        It is 1 if all programs move the same, and at most the number of programs.
        """
        moved = self.loads.bytes + self.stores.bytes + self.atomics.bytes
        return self.busiest.bytes * self.programs / moved if moved else 1.0

    def as_dict(self) -> dict[str, Any]:
        """The report as numbers, texts, lists and dicts, without its trace: it can become JSON."""
        data = asdict(replace(self, trace=Trace(), compile=None))
        del data["trace"], data["compile"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Report":
        """The report that as_dict made this of; lists may stand for tuples, as in JSON."""
        busiest = data["busiest"]
        return cls(
            accesses=[_access(**access) for access in data["accesses"]],
            dots_by_line=[Dots(**dots) for dots in data["dots_by_line"]],
            kernel=data["kernel"],
            grid=tuples(data["grid"]),
            seed=data["seed"],
            arrays={name: tuples(shape) for name, shape in data["arrays"].items()},
            races=[
                Race(**{name: tuples(value) for name, value in race.items()})
                for race in data["races"]
            ],
            busiest=Share(
                tuples(busiest["program"]), *(Traffic(**busiest[kinds]) for kinds in KINDS)
            ),
            operations=tuple(data["operations"]),
            conversions=data["conversions"],
            selects=data["selects"],
            largest_tile=data["largest_tile"],
            warps=Warps.from_dict(data["warps"]) if data.get("warps") else None,
        )

    def __str__(self) -> str:
        return table_text(self)

    __repr__ = __str__

    def draw(self, array: str, kind: Kind = "load", program: int | tuple | None = None) -> "Axes":
        """Axes with the elements of an array, and which program touches which: see draw.array."""
        from nogpu.tiles import draw

        self.array(array)  # refuses another name
        return draw.array(self.trace, array, self.arrays[array], self.grid, kind, program)


def _access(traffic: dict[str, int], **rest: Any) -> Access:
    return Access(**rest, traffic=Traffic(**traffic))


def table_text(report: Report) -> str:
    """The report as a table in plain text."""
    title = f"{report.kernel}: {report.programs:,} programs, grid {size_text(report.grid)}"
    return "\n".join([_table(title, report), *_summary(report)])


COLUMNS = [
    *(Column("line"), Column("", 44), Column("", 44)),  # the line's text, what it accesses
    *map(Column, ("requests", "elements", "masked", "bytes", "sectors", "per request")),
]


def _table(title: str, counts: Counts) -> str:
    rows, shown = [], None
    for access in sorted(counts.accesses, key=lambda access: (access.function, access.line)):
        line = access.function, access.line
        where = [str(access.line), access.text] if line != shown else ["", ""]
        shown = line
        rows.append([*where, f"{VERBS[access.kind]} {access.array}", *_cells(access.traffic)])
    kinds = {name: counts.total(kind) for name, kind in (KINDS | {"copies": "copy"}).items()}
    totals = [["", "", name, *_cells(total)] for name, total in kinds.items() if total.requests]
    return text_table(title, COLUMNS, rows, totals)


def _cells(traffic: Traffic) -> list[str]:
    numbers = traffic.requests, traffic.elements, traffic.masked, traffic.bytes, traffic.sectors
    return [*(f"{number:,}" for number in numbers), f"{traffic.sectors / traffic.requests:.4g}"]


def _summary(report: Report) -> Iterator[str]:
    """The lines below the table."""
    if report.imbalance >= NOTABLE:
        yield (
            f"load imbalance {report.imbalance:.3g}: program {report.busiest.program} moves "
            f"{report.busiest.bytes:,} bytes, {report.imbalance:.3g} times the mean of the "
            f"{report.programs:,}"
        )
    if report.dots:
        yield f"{report.dots:,} tl.dot, {report.dot_flops:,} floating-point operations"
    yield from (str(race) for race in report.races) if report.races else ["no races"]
