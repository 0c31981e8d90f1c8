"""What a launch cost: counts by memory space and by line, races, and a table of it all."""

from dataclasses import asdict, dataclass, field, fields, replace

from common.kernels.table import plain_text, size_text, tuples
from common.simt import dtypes
from common.simt.counters import joined
from common.simt.program import ACCESSES, Kind, element

VERBS = ("reads", "writes", "updates atomically")


@dataclass
class GlobalTraffic:
    """Accesses to global memory: warp instructions, bytes that threads asked for, sectors of 32 bytes that this took."""

    requests: int = 0
    bytes: int = 0
    sectors: int = 0

    def __iadd__(self, other):
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


@dataclass
class SharedTraffic:
    """Accesses to shared memory: warp instructions, bytes that threads asked for, wavefronts (passes) that this took."""

    requests: int = 0
    bytes: int = 0
    wavefronts: int = 0

    __iadd__ = GlobalTraffic.__iadd__


@dataclass
class ConstantTraffic:
    """Loads from constant memory: warp instructions, bytes that threads asked for."""

    requests: int = 0
    bytes: int = 0

    __iadd__ = GlobalTraffic.__iadd__


@dataclass
class Costs:
    """What a kernel, or one of its lines, cost."""

    global_loads: GlobalTraffic = field(default_factory=GlobalTraffic)
    global_stores: GlobalTraffic = field(default_factory=GlobalTraffic)
    global_atomics: GlobalTraffic = field(default_factory=GlobalTraffic)
    shared_loads: SharedTraffic = field(default_factory=SharedTraffic)
    shared_stores: SharedTraffic = field(default_factory=SharedTraffic)
    shared_atomics: SharedTraffic = field(default_factory=SharedTraffic)
    constant_loads: ConstantTraffic = field(default_factory=ConstantTraffic)
    atomics: int = 0  # updates, one a thread
    divergent_branches: int = 0  # times that the lanes of a warp went both ways
    flops: int = 0  # floating-point operations of all threads; a function of math counts as one

    def add(self, site, counts) -> None:
        """Adds what was counted at one site."""
        if site.kind in ACCESSES:
            traffic = getattr(self, f"{site.space}_{site.kind.value}s")
            moved = counts.threads * dtypes.itemsize(site.dtype)
            traffic += type(traffic)(
                counts.requests,
                moved,
                *{"global": [counts.sectors], "shared": [counts.wavefronts]}.get(site.space, []),
            )
            self.atomics += counts.threads if site.kind is Kind.ATOMIC else 0
        self.divergent_branches += counts.divergent


TRAFFIC = [each.name for each in fields(Costs)][:7]


@dataclass
class LineCosts(Costs):
    """What one line of a kernel, or of a device function, cost."""

    function: str = ""
    number: int = 0
    text: str = ""


@dataclass(frozen=True)
class Race:
    """Two threads touch one word, at least one of them writes, and nothing orders them."""

    space: str
    array: str
    index: tuple
    blocks: tuple  # of the two threads
    threads: tuple
    verbs: tuple
    lines: tuple
    words: int  # how many words have this race, of those that were looked at

    def __str__(self) -> str:
        same_block = self.blocks[0] == self.blocks[1]
        sides = [
            f"thread {thread}{'' if same_block else f' of block {block}'} {verb} it in line {line}"
            for thread, block, verb, line in zip(
                self.threads, self.blocks, self.verbs, self.lines, strict=True
            )
        ]
        why = (
            f"no barrier between them (block {self.blocks[0]})"
            if same_block
            else "and blocks run in any order"
        )
        more = f"; {self.words:,} words in all" if self.words > 1 else ""
        return f"race on {element(self.array, self.index)} in {self.space} memory: {sides[0]}, {sides[1]}, {why}{more}"


@dataclass(frozen=True)
class UnwrittenRead:
    """A thread read shared or local memory that nothing had written."""

    array: str
    index: tuple
    block: tuple
    thread: tuple
    line: int
    times: int

    def __str__(self) -> str:
        return (
            f"thread {self.thread} of block {self.block} reads {element(self.array, self.index)} in line "
            f"{self.line}, which nothing has written"
            + (f"; {self.times:,} such reads in all" if self.times > 1 else "")
        )


@dataclass
class Report(Costs):
    """What one launch cost. print(report) shows a table; report.draw() a block's accesses.

    steps: warp instructions, as written, of the busiest warp: operations, accesses, calls and branches, each once for the
    warp however many of its lanes take part. all_steps: of all warps together.
    """

    kernel: str = ""
    grid: tuple = ()
    block: tuple = ()
    seed: int = 0
    steps: int = 0
    all_steps: int = 0
    lines: list = field(
        default_factory=list
    )  # a LineCosts for each line that accesses memory or branches
    races: list = field(default_factory=list)
    unwritten: list = field(default_factory=list)
    trace: list = field(
        default_factory=list
    )  # an Accesses (see counters) of one block, for drawing
    origins: dict = field(
        default_factory=dict
    )  # of each array in global memory: the place where it begins
    program: object = field(default=None, repr=False)

    def line(self, number):
        """The costs of the line with this number."""
        for line in self.lines:
            if line.number == number:
                return line
        raise ValueError(
            f"line {number} accesses no memory and does not branch; those that do are "
            f"{', '.join(str(line.number) for line in self.lines)}"
        )

    def as_dict(self):
        """The report as numbers, strings, lists and dicts, without what only drawing needs: it can cross to another process."""
        return {
            name: value
            for name, value in asdict(replace(self, trace=[], program=None)).items()
            if name not in ("trace", "program", "origins")
        }

    @classmethod
    def from_dict(cls, data):
        """The report that as_dict made this of (lists in place of tuples, as JSON has them, are taken too)."""
        numbers = {name: _traffic(name, value) for name, value in data.items()}
        numbers["lines"] = [
            LineCosts(**{name: _traffic(name, value) for name, value in line.items()})
            for line in data["lines"]
        ]
        numbers["races"] = [
            Race(**{name: tuples(value) for name, value in race.items()}) for race in data["races"]
        ]
        numbers["unwritten"] = [
            UnwrittenRead(**{name: tuples(value) for name, value in read.items()})
            for read in data["unwritten"]
        ]
        return cls(
            **{
                name: tuples(value) if name in ("grid", "block") else value
                for name, value in numbers.items()
            }
        )

    def __str__(self) -> str:
        return table_text(self)

    __repr__ = __str__

    def draw(self, line=None, **options):
        """Axes with the sectors or banks of a warp instruction in this line, or a whole block's accesses: see draw.report."""
        from common.simt import draw

        return draw.report(self, line, **options)


def _traffic(name, value):
    kinds = {"global": GlobalTraffic, "shared": SharedTraffic, "constant": ConstantTraffic}
    return kinds[name.partition("_")[0]](**value) if name in TRAFFIC else value


def make(recorder, name, memory, seed, schedule):
    """The Report of a launch that has ended."""
    recorder.flush()
    recorder.races_between_blocks()
    program = recorder.program
    report = Report(kernel=name, grid=program.grid, block=program.block, seed=seed, program=program)
    report.steps, report.all_steps = int(recorder.steps.max()), int(recorder.steps.sum())
    lines = {}

    def line_of(site, number):
        key = site.source.name, number
        return lines.setdefault(
            key, LineCosts(function=key[0], number=number, text=site.source.line(number))
        )

    for site, counts in zip(program.sites, recorder.counts, strict=True):
        report.add(site, counts)
        line_of(site, site.line).add(site, counts)
        for number, flops in site.flops.items():
            line_of(site, number).flops += flops * counts.threads
    report.flops = sum(line.flops for line in lines.values())
    report.lines = [lines[key] for key in sorted(lines) if any(_interesting(lines[key]))]
    report.origins = {argument.name: argument.pointer for argument in memory.arguments}
    names = Names(program, memory)
    blocks = _blocks(program.grid)
    report.races = [
        _race(names, schedule, blocks, rows, words) for rows, words in recorder.races.values()
    ]
    report.unwritten = [
        UnwrittenRead(
            *names.of(site.space, place, site.array),
            blocks[block],
            schedule.threads[thread],
            site.line,
            times,
        )
        for site, place, block, thread, times in recorder.unwritten.values()
    ]
    if recorder.trace:
        report.trace = joined(recorder.trace)
    return report


def _interesting(line):
    return [
        line.divergent_branches,
        line.flops,
        *(getattr(line, name).requests for name in TRAFFIC),
    ]


class Names:
    """The names of places in memory."""

    def __init__(self, program, memory) -> None:
        self.program, self.memory = program, memory

    def of(self, space, place, otherwise):
        """(array's name, index) of a place in memory; a local array is known by its name alone."""
        if space == "global":
            return self.memory.name_of(place)
        return self.program.memory.shared_element(place) if space == "shared" else (otherwise, ())


def _race(names, schedule, blocks, rows, words):
    sites = [names.program.sites[number] for number in rows.site]
    array, index = names.of(sites[0].space, int(rows.place[0]), sites[0].array)
    return Race(
        sites[0].space,
        array,
        index,
        tuple(blocks[block] for block in rows.block),
        tuple(schedule.threads[thread] for thread in rows.thread),
        tuple(VERBS[kind] for kind in rows.kind),
        tuple(site.line for site in sites),
        len(words),
    )


def _blocks(grid):
    return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]


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
        title=f"{report.kernel}: grid {size_text(report.grid)}, blocks of {size_text(report.block)} threads",
    )
    for column, justify in (
        ("line", "right"),
        ("", "left"),
        ("", "left"),
        ("requests", "right"),
        ("bytes", "right"),
        ("sectors", "right"),
        ("wavefronts", "right"),
        ("a request", "right"),
    ):
        table.add_column(
            column,
            justify=justify,
            no_wrap=True,
            max_width=40 if not column else None,
            overflow="ellipsis",
        )
    for line in report.lines:
        first = True
        for name in TRAFFIC:
            if getattr(line, name).requests:
                table.add_row(
                    str(line.number) if first else "",
                    line.text if first else "",
                    *_cells(name, getattr(line, name)),
                )
                first = False
        if line.divergent_branches:
            table.add_row(
                str(line.number) if first else "",
                line.text if first else "",
                "divergent",
                f"{line.divergent_branches:,}",
                "",
                "",
                "",
                "",
            )
    table.add_section()
    for name in TRAFFIC:
        if getattr(report, name).requests:
            table.add_row("", "", *_cells(name, getattr(report, name)))
    return "\n".join([plain_text(table), *_summary(report)])


def _cells(name, traffic):
    sectors, wavefronts = getattr(traffic, "sectors", None), getattr(traffic, "wavefronts", None)
    passes = sectors if sectors is not None else wavefronts
    return (
        name.replace("_", " "),
        f"{traffic.requests:,}",
        f"{traffic.bytes:,}",
        "" if sectors is None else f"{sectors:,}",
        "" if wavefronts is None else f"{wavefronts:,}",
        "" if passes is None else f"{passes / traffic.requests:.4g}",
    )


def _summary(report):
    parts = [
        _several(report.divergent_branches, "divergent branch", "es"),
        _several(report.atomics, "atomic update", "s"),
        _several(report.flops, "floating-point operation", "s"),
        f"busiest warp: {report.steps:,} steps of {report.all_steps:,}",
    ]
    yield "; ".join(parts)
    findings = [*report.races, *report.unwritten]
    yield from (str(finding) for finding in findings) if findings else ["no races"]


def _several(count, noun, ending) -> str:
    return f"{count:,} {noun}{'' if count == 1 else ending}"
