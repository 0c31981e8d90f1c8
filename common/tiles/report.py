"""What a launch cost: counts by array and by line, races, and a table of it all."""

from dataclasses import asdict, astuple, dataclass, field, replace

from common.kernels.table import plain_text, size_text, tuples

KINDS = {"loads": "load", "stores": "store", "atomics": "atomic"}
NOTABLE = 1.5  # a load imbalance that the table tells; a last block that is not full, of a few, makes less
DONE = {"load": "loads", "store": "stores", "atomic": "updates atomically"}


@dataclass
class Traffic:
    """Accesses of programs: requests (a program's tl.load is one), elements asked for and elements masked off, bytes of those
    asked for, and the distinct sectors of 32 bytes in each request, summed."""

    requests: int = 0
    elements: int = 0
    masked: int = 0
    bytes: int = 0
    sectors: int = 0

    def add(self, requests, elements, masked, bytes, sectors) -> None:
        """Adds these numbers."""
        self.requests += requests
        self.elements += elements
        self.masked += masked
        self.bytes += bytes
        self.sectors += sectors


@dataclass
class Access:
    """What one line's loads, stores or atomic updates of one array cost."""

    function: str
    line: int
    text: str
    array: str
    kind: str
    traffic: Traffic = field(default_factory=Traffic)


@dataclass
class Share:
    """What one program of a launch, (x, y, z), asks for."""

    program: tuple = (0, 0, 0)
    loads: Traffic = field(default_factory=Traffic)
    stores: Traffic = field(default_factory=Traffic)
    atomics: Traffic = field(default_factory=Traffic)

    @property
    def bytes(self):
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


@dataclass(frozen=True)
class Race:
    """Two programs touch one element, at least one of them stores to it, and programs run in any order."""

    array: str
    element: int
    programs: tuple
    kinds: tuple
    lines: tuple
    elements: int  # how many elements have this race

    def __str__(self) -> str:
        sides = [
            f"program {program} {DONE[kind]} it in line {line}"
            for program, kind, line in zip(self.programs, self.kinds, self.lines, strict=True)
        ]
        more = f"; {self.elements:,} elements in all" if self.elements > 1 else ""
        return f"race on element {self.element:,} of {self.array}: {sides[0]}, {sides[1]}, and programs run in any order{more}"


@dataclass
class Request:
    """One request of a program: which elements of an array, counted from its first, it touches."""

    array: str
    kind: str
    program: tuple
    elements: object


@dataclass
class Trace:
    """All requests of a launch, for drawing. complete: whether none was left out, because they are too many."""

    strides: dict = field(default_factory=dict)  # of each array, in elements
    requests: list = field(default_factory=list)
    complete: bool = False


@dataclass
class Costs:
    """What a kernel, or one of its lines, or of its arrays, cost."""

    accesses: list = field(default_factory=list)
    dots_by_line: list = field(default_factory=list)

    def _total(self, kind):
        total = Traffic()
        for access in self.accesses:
            if access.kind == kind:
                total.add(*astuple(access.traffic))
        return total

    @property
    def loads(self):
        """The Traffic of loads."""
        return self._total("load")

    @property
    def stores(self):
        """The Traffic of stores."""
        return self._total("store")

    @property
    def atomics(self):
        """The Traffic of atomic updates."""
        return self._total("atomic")

    @property
    def dots(self):
        """The number of tl.dot calls."""
        return sum(line.calls for line in self.dots_by_line)

    @property
    def dot_flops(self):
        """The floating-point operations of tl.dot: 2·M·N·K a call."""
        return sum(line.flops for line in self.dots_by_line)


@dataclass
class Report(Costs):
    """What one launch cost. print(report) shows a table; report.draw(array) which program touched which elements."""

    kernel: str = ""
    grid: tuple = ()
    seed: int = 0
    arrays: dict = field(default_factory=dict)  # of each array: its shape
    races: list = field(default_factory=list)
    busiest: Share = field(
        default_factory=Share
    )  # the program that moves most bytes, the first of several
    trace: Trace = field(default_factory=Trace, repr=False, compare=False)

    @property
    def programs(self):
        """The number of programs launched."""
        x, y, z = self.grid
        return x * y * z

    @property
    def imbalance(self):
        """Load imbalance: bytes of the busiest program over the mean of all; 1 where all move the same, at most `programs`."""
        moved = self.loads.bytes + self.stores.bytes + self.atomics.bytes
        return self.busiest.bytes * self.programs / moved if moved else 1.0

    def array(self, name):
        """The Costs of one array, by the name of the kernel's parameter."""
        if name not in self.arrays:
            raise ValueError(
                f"{name} is no array of {self.kernel}; those are {', '.join(self.arrays)}"
            )
        return Costs([access for access in self.accesses if access.array == name])

    def line(self, number):
        """The Costs of the line with this number."""
        costs = Costs(
            [access for access in self.accesses if access.line == number],
            [dots for dots in self.dots_by_line if dots.line == number],
        )
        if not costs.accesses and not costs.dots_by_line:
            known = ", ".join(
                map(str, sorted({each.line for each in [*self.accesses, *self.dots_by_line]}))
            )
            raise ValueError(
                f"line {number} accesses no memory and has no tl.dot; those that do are {known}"
            )
        return costs

    def as_dict(self):
        """The report as numbers, strings, lists and dicts, without what only drawing needs: it can cross to another process."""
        data = asdict(replace(self, trace=Trace()))
        del data["trace"]
        return data

    @classmethod
    def from_dict(cls, data):
        """The report that as_dict made this of (lists in place of tuples, as JSON has them, are taken too)."""
        return cls(
            accesses=[
                Access(**{**access, "traffic": Traffic(**access["traffic"])})
                for access in data["accesses"]
            ],
            dots_by_line=[Dots(**dots) for dots in data["dots_by_line"]],
            kernel=data["kernel"],
            grid=tuple(data["grid"]),
            seed=data["seed"],
            arrays={name: tuple(shape) for name, shape in data["arrays"].items()},
            races=[
                Race(**{name: tuples(value) for name, value in race.items()})
                for race in data["races"]
            ],
            busiest=Share(
                tuple(data["busiest"]["program"]),
                *(Traffic(**data["busiest"][kind]) for kind in KINDS),
            ),
        )

    def __str__(self) -> str:
        return table_text(self)

    __repr__ = __str__

    def draw(self, array, kind="load", program=None):
        """Axes with the elements of an array, and which program touches which: see draw.array."""
        from common.tiles import draw

        return draw.array(self, array, kind, program)


# --- the table


def table_text(report):
    """The report as a table in plain text."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        title_justify="left",
        title_style="bold",
        title=f"{report.kernel}: {report.programs:,} programs, grid {size_text(report.grid)}",
    )
    for column, justify in (
        ("line", "right"),
        ("", "left"),
        ("", "left"),
        ("requests", "right"),
        ("elements", "right"),
        ("masked", "right"),
        ("bytes", "right"),
        ("sectors", "right"),
        ("a request", "right"),
    ):
        table.add_column(
            column,
            justify=justify,
            no_wrap=True,
            max_width=44 if not column else None,
            overflow="ellipsis",
        )
    shown = None
    for access in sorted(report.accesses, key=lambda each: (each.function, each.line)):
        where = (
            [str(access.line), access.text] if (access.function, access.line) != shown else ["", ""]
        )
        shown = access.function, access.line
        table.add_row(*where, f"{access.kind}s {access.array}", *_cells(access.traffic))
    table.add_section()
    for name in KINDS:
        if getattr(report, name).requests:
            table.add_row("", "", name, *_cells(getattr(report, name)))
    return "\n".join([plain_text(table), *_summary(report)])


def _cells(traffic):
    numbers = traffic.requests, traffic.elements, traffic.masked, traffic.bytes, traffic.sectors
    return *(f"{number:,}" for number in numbers), f"{traffic.sectors / traffic.requests:.4g}"


def _summary(report):
    if report.imbalance >= NOTABLE:
        yield (
            f"load imbalance {report.imbalance:.3g}: program {report.busiest.program} moves {report.busiest.bytes:,} bytes, "
            f"{report.imbalance:.3g} times the mean of the {report.programs:,}"
        )
    if report.dots:
        yield f"{report.dots:,} tl.dot, {report.dot_flops:,} floating-point operations"
    yield from (str(race) for race in report.races) if report.races else ["no races"]
