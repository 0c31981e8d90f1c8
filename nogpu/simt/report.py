"""The report of a launch: what it cost, line by line, and its races."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nogpu.kernels.table import Column, size_text, text_table, tuples
from nogpu.simt import costs, tuning
from nogpu.simt.accesses import Accesses, joined
from nogpu.simt.costs import Costs, GlobalTraffic, LineCosts, SharedTraffic, Traffic
from nogpu.simt.counters import Recorder, Unwritten
from nogpu.simt.findings import Race, UnwrittenRead
from nogpu.simt.memory import GlobalMemory
from nogpu.simt.program import Program
from nogpu.simt.schedule import indices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VERBS = "reads", "writes", "updates atomically"
COUNTS = "requests", "bytes", "sectors", "wavefronts", "per request"
TEXT_WIDTH = 40


@dataclass
class Report(Costs):
    """What one launch cost. print(report) shows a table; report.draw() a block's accesses.

    steps: warp instructions, as written, of the busiest warp: operations, accesses, calls and
    branches, each once for the warp however many of its lanes take part. all_steps: of all warps
    together.
    """

    kernel: str = ""
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    seed: int = 0
    steps: int = 0
    all_steps: int = 0
    wide_loads: int = 0  # of the traced block: see tuning
    early_loads: int = 0
    changed_arrays: int = 0  # of NumPy, among the arguments
    lines: list[LineCosts] = field(default_factory=list)  # that access memory or branch
    races: list[Race] = field(default_factory=list)
    unwritten: list[UnwrittenRead] = field(default_factory=list)
    # For drawing
    trace: Accesses | None = None  # of one block
    origins: dict[str, int] = field(default_factory=dict)  # the place where each array begins
    program: Program | None = field(default=None, repr=False)

    def line(self, number: int) -> LineCosts:
        """The costs of the line with this number."""
        for line in self.lines:
            if line.number == number:
                return line
        raise ValueError(
            f"line {number} accesses no memory and does not branch; those that do are "
            f"{', '.join(str(line.number) for line in self.lines)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, which can cross to another process; without the drawings."""
        data = asdict(replace(self, trace=None, program=None))
        for name in ("trace", "program", "origins"):
            del data[name]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Report:
        """The report that as_dict made this of. Lists in place of tuples, as in JSON, are taken."""
        lists = {
            "lines": [LineCosts(**costs.from_dict(line)) for line in data["lines"]],
            "races": [Race(**_tuples(race)) for race in data["races"]],
            "unwritten": [UnwrittenRead(**_tuples(read)) for read in data["unwritten"]],
        }
        sizes = {name: tuples(data[name]) for name in ("grid", "block")}
        return cls(**costs.from_dict({**data, **lists, **sizes}))

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__

    def draw(self, line: int | None = None, **options: Any) -> list[Axes]:
        """Axes that show a line's accesses, or a whole block's: see draw.accesses."""
        from nogpu.simt import draw

        sites = self.program.sites if self.program else []
        return draw.accesses(self.trace, sites, self.origins, line, **options)


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {name: tuples(value) for name, value in data.items()}


def make(recorder: Recorder, name: str, memory: GlobalMemory, seed: int) -> Report:
    """The Report of a launch that has ended."""
    recorder.finish()
    program = recorder.program
    report = Report(kernel=name, grid=program.grid, block=program.block, seed=seed, program=program)
    report.steps, report.all_steps = int(recorder.steps.max()), int(recorder.steps.sum())
    lines = _lines(recorder, report)
    report.flops = sum(line.flops for line in lines)
    report.lines = [
        line for line in lines if line.divergent_branches or line.flops or line.traffic()
    ]
    report.origins = {argument.name: argument.pointer for argument in memory.arguments}
    places = Places(program, memory)
    report.races = [places.race(rows, words) for rows, words in recorder.races.examples.values()]
    report.unwritten = [places.unwritten(read) for read in recorder.unwritten.values()]
    report.trace = joined(recorder.trace) if recorder.trace else None
    report.wide_loads = tuning.wide_loads(report.trace, program.sites)
    report.early_loads = tuning.early_loads(report.trace, program.sites)
    return report


def _lines(recorder: Recorder, report: Report) -> list[LineCosts]:
    """The costs of each line, sorted by function and number; they are added to the report, too."""
    lines: dict[tuple[str, int], LineCosts] = {}
    for site, counts in zip(recorder.program.sites, recorder.counts, strict=True):
        report.add(site, counts)
        for number in (site.line, *site.flops):
            key = site.source.name, number
            if key not in lines:
                lines[key] = LineCosts(
                    function=key[0], number=number, text=site.source.line(number)
                )
        lines[site.source.name, site.line].add(site, counts)
        for number, flops in site.flops.items():
            lines[site.source.name, number].flops += flops * counts.threads
    return [lines[key] for key in sorted(lines)]


class Places:
    """What the numbers of places, blocks and threads stand for."""

    def __init__(self, program: Program, memory: GlobalMemory) -> None:
        self.program, self.memory = program, memory
        self.blocks, self.threads = indices(program.grid), indices(program.block)

    def name(self, space: str, place: int, array: str) -> tuple[str, tuple[int, ...]]:
        """(array's name, index) of a place in memory. Of a local array the index is not known."""
        if space == "global":
            return self.memory.name_of(place)
        return self.program.memory.shared_element(place) if space == "shared" else (array, ())

    def race(self, rows: Accesses, words: set[int]) -> Race:
        """rows: the two accesses of an example. words: the places that have this race."""
        first, second = (self.program.sites[number] for number in rows.site)
        array, index = self.name(first.space, int(rows.place[0]), first.array)
        one, other = range(2)
        return Race(
            first.space,
            array,
            index,
            blocks=(self.blocks[rows.block[one]], self.blocks[rows.block[other]]),
            threads=(self.threads[rows.thread[one]], self.threads[rows.thread[other]]),
            verbs=(VERBS[rows.kind[one]], VERBS[rows.kind[other]]),
            lines=(first.line, second.line),
            words=len(words),
            texts=(first.source.line(first.line), second.source.line(second.line)),
        )

    def unwritten(self, read: Unwritten) -> UnwrittenRead:
        site = read.site
        array, index = self.name(site.space, read.place, site.array)
        block, thread = self.blocks[read.block], self.threads[read.thread]
        return UnwrittenRead(array, index, block, thread, site.line, read.times)


# The table


COLUMNS = [
    *(Column("line"), Column("", TEXT_WIDTH), Column("", TEXT_WIDTH)),
    *map(Column, COUNTS),
]


def _text(report: Report) -> str:
    sizes = f"grid {size_text(report.grid)}, blocks of {size_text(report.block)} threads"
    totals = [
        ["", "" if number else "total", *_cells(name, traffic)]
        for number, (name, traffic) in enumerate(report.traffic().items())
    ]
    lines = [row for line in report.lines for row in _rows(line)]
    table = text_table(f"{report.kernel}: {sizes}", COLUMNS, lines, totals)
    return "\n".join([table, *_summary(report)])


def _rows(line: LineCosts) -> Iterator[list[str]]:
    """A line of the kernel: a row for each kind of access, and one for divergent branches."""
    cells = [_cells(name, traffic) for name, traffic in line.traffic().items()]
    if line.divergent_branches:
        cells.append(["divergent", f"{line.divergent_branches:,}", *[""] * (len(COUNTS) - 1)])
    for number, counts in enumerate(cells):
        yield [*(["", ""] if number else [str(line.number), line.text]), *counts]


def _cells(name: str, traffic: Traffic) -> list[str]:
    sectors = traffic.sectors if isinstance(traffic, GlobalTraffic) else None
    wavefronts = traffic.wavefronts if isinstance(traffic, SharedTraffic) else None
    passes = wavefronts if sectors is None else sectors
    return [
        name.replace("_", " "),
        f"{traffic.requests:,}",
        f"{traffic.bytes:,}",
        "" if sectors is None else f"{sectors:,}",
        "" if wavefronts is None else f"{wavefronts:,}",
        "" if passes is None else f"{passes / traffic.requests:.4g}",
    ]


def _summary(report: Report) -> Iterator[str]:
    parts = [
        _several(report.divergent_branches, "divergent branch", "es"),
        _several(report.atomics, "atomic update", "s"),
        _several(report.flops, "floating-point operation", "s"),
        f"busiest warp: {report.steps:,} steps of {report.all_steps:,}",
    ]
    yield "; ".join(parts)
    findings = [*report.races, *report.unwritten]
    yield from map(str, findings) if findings else ["no races"]


def _several(count: int, noun: str, ending: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else ending}"
