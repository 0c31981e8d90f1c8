"""From the requests of a launch's programs to what they cost, and to races between programs."""

from typing import NamedTuple

import numpy as np

from nogpu.kernels.errors import KernelError
from nogpu.kernels.source import Source
from nogpu.tiles.costs import Access, Dots, Kind, Program, Race, Request, Share, Trace, Traffic
from nogpu.tiles.memory import Argument, Memory, sector_count
from nogpu.tiles.report import Report

MOST_TRACED = 4_000_000  # elements; 16 MB
Where = tuple[Source, int]  # a line of the kernel


class Site(NamedTuple):
    """A line that accesses an array. array: "" if the address comes from no array."""

    kind: Kind
    array: str
    where: Where


class RaceKey(NamedTuple):
    """Two sites that race on an array, the earlier one first."""

    argument: Argument
    kinds: tuple[Kind, Kind]
    sites: tuple[int, int]


class RaceElements(NamedTuple):
    """Elements of one race, as indices in their buffer, and the numbers of the two programs."""

    elements: np.ndarray
    programs: tuple[int, int]


class Recorder:
    """Counts what the programs of one launch ask for."""

    def __init__(self, memory: Memory, grid: Program) -> None:
        self.memory = memory
        self.grid = grid
        self.program = (0, 0, 0)
        self.number = 0  # of the program, x fastest
        self.share = _no_traffic()  # of the program
        self.busiest = Share()
        self.busiest_rank = (-1, 0)
        self.sites: dict[Site, tuple[int, Traffic]] = {}  # with its number
        self.dots: dict[Where, Dots] = {}
        self.conversions = 0
        self.selects = 0
        self.largest_tile = 0  # elements
        self.races: dict[RaceKey, list[RaceElements]] = {}
        self.trace: list[Request] = []
        self.traced = 0  # elements

    def begin(self, program: Program) -> None:
        """Note which program runs from now on."""
        x, y, z = self.program = program
        self.number = x + self.grid[0] * (y + self.grid[1] * z)
        self.share = _no_traffic()

    def end(self) -> None:
        """Keep the share of the program that has just run, if it is the largest so far."""
        moved = sum(traffic.bytes for traffic in self.share.values())
        rank = moved, -self.number  # of equal shares the first one, in any order of programs
        if rank > self.busiest_rank:
            self.busiest_rank = rank
            self.busiest = Share(self.program, *self.share.values())

    def access(
        self,
        kind: Kind,
        addresses: np.ndarray,
        mask: np.ndarray | None,
        itemsize: int,
        where: Where,
    ) -> np.ndarray:
        """Count one request. Returns the addresses in this process; OutOfBoundsError if outside.

        mask: booleans, or None if nothing is masked off.
        """
        wanted = addresses.reshape(-1) if mask is None else addresses[mask]
        masked = addresses.size - wanted.size
        self.tile(addresses.size)
        local = np.zeros_like(wanted)
        if not wanted.size:
            owner = self.memory.owner(addresses.flat[0])
            self._add(Site(kind, owner.name if owner else "", where), Traffic(1, 0, masked))
        else:
            for argument, offsets, indices in self.memory.resolve(kind, wanted, itemsize):
                if kind != "load" and not argument.writable:
                    raise KernelError(f"stores to {argument.name}, which is read-only")
                size = offsets.size
                traffic = Traffic(1, size, masked, size * itemsize, sector_count(offsets))
                site = self._add(Site(kind, argument.name, where), traffic)
                self._touch(kind, argument, offsets, itemsize, site)
                self._trace(kind, argument, offsets)
                local[indices] = offsets.view(np.uint64) + np.uint64(argument.storage)
                masked = 0  # counted once
        if mask is None:
            return local.reshape(addresses.shape)
        unmasked = np.zeros_like(addresses)
        unmasked[mask] = local
        return unmasked

    def dot(self, flops: int, formats: str, precision: str, where: Where) -> None:
        """Count one tl.dot."""
        dots = self.dots.setdefault(where, Dots(*_line(where)))
        dots.calls += 1
        dots.flops += flops
        if formats not in dots.formats:
            dots.formats.append(formats)
        if precision not in dots.precisions:
            dots.precisions.append(precision)

    def tile(self, elements: int) -> None:
        """Note the size of a block of values."""
        self.largest_tile = max(self.largest_tile, elements)

    def _add(self, site: Site, traffic: Traffic) -> int:
        """Add to the traffic of a site, and to that of the program. Returns the site's number."""
        if site not in self.sites:
            self.sites[site] = len(self.sites), Traffic()
        number, total = self.sites[site]
        total.add(traffic)
        self.share[site.kind].add(traffic)
        return number

    def _touch(
        self, kind: Kind, argument: Argument, offsets: np.ndarray, itemsize: int, site: int
    ) -> None:
        """Note which elements a request touches, and what races with it."""
        buffer = self.memory.buffers[argument]
        elements = (offsets + (argument.storage - buffer.low)) // buffer.itemsize
        if itemsize > buffer.itemsize:
            parts = np.arange(itemsize // buffer.itemsize)
            elements = (elements[:, None] + parts).reshape(-1)
        for race in buffer.touch(kind, self.number, site, elements):
            key = RaceKey(argument, (race.kind, kind), (race.site, site))
            programs = race.program, self.number
            self.races.setdefault(key, []).append(RaceElements(race.elements, programs))

    def _trace(self, kind: Kind, argument: Argument, offsets: np.ndarray) -> None:
        """Keep which elements a request touches, for drawing, while they are not too many."""
        self.traced += offsets.size
        if self.traced <= MOST_TRACED:
            elements = (offsets - (argument.start - argument.storage)) // argument.itemsize
            self.trace.append(Request(argument.name, kind, self.program, elements.astype(np.int32)))

    def report(self, kernel: str, seed: int) -> Report:
        """The Report of the launch."""
        arguments = self.memory.arguments
        return Report(
            accesses=[
                Access(*_line(site.where), site.array, site.kind, traffic)
                for site, (_, traffic) in self.sites.items()
            ],
            dots_by_line=list(self.dots.values()),
            kernel=kernel,
            conversions=self.conversions,
            selects=self.selects,
            largest_tile=self.largest_tile,
            grid=self.grid,
            seed=seed,
            arrays={argument.name: argument.shape for argument in arguments},
            races=[self._race(key, elements) for key, elements in self.races.items()],
            busiest=self.busiest,
            trace=Trace(
                {argument.name: argument.strides for argument in arguments},
                self.trace,
                self.traced <= MOST_TRACED,
            ),
        )

    def _race(self, key: RaceKey, parts: list[RaceElements]) -> Race:
        argument, kinds, (earlier, later) = key
        buffer = self.memory.buffers[argument]
        first = int(parts[0].elements[0]) * buffer.itemsize + buffer.low - argument.start
        sites = list(self.sites)
        programs = parts[0].programs
        return Race(
            argument.name,
            first // argument.itemsize,
            (self._program(programs[0]), self._program(programs[1])),
            kinds,
            (sites[earlier].where[1], sites[later].where[1]),
            len(np.unique(np.concatenate([part.elements for part in parts]))),
        )

    def _program(self, number: int) -> Program:
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)


def _no_traffic() -> dict[Kind, Traffic]:
    return {"load": Traffic(), "store": Traffic(), "atomic": Traffic()}


def _line(where: Where) -> tuple[str, int, str]:
    """(function, line, text) of a line of the kernel."""
    source, line = where
    return source.name, line, source.line(line)
