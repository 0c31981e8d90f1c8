"""From the requests of the programs of a launch to what they cost, and to the races between programs."""

import numpy as np

from common.kernels.errors import KernelError
from common.tiles.memory import sector_count
from common.tiles.report import Access, Dots, Race, Report, Request, Share, Trace, Traffic

MOST_TRACED = 4_000_000  # elements; 16 MB


class Recorder:
    """Counts what the programs of one launch ask for."""

    def __init__(self, memory, grid) -> None:
        self.memory, self.grid = memory, grid
        self.program = (0, 0, 0)
        self.number = 0  # of the program, x fastest
        self.share = self.busiest = (
            None  # of this program; of the one that moved most bytes, and its number
        )
        self.accesses = {}
        self.sites = []
        self.dots = {}
        self.races = {}
        self.trace, self.traced = [], 0

    def begin(self, program) -> None:
        """Says which program runs from now on."""
        self._weigh()
        x, y, z = self.program = program
        self.number = x + self.grid[0] * (y + self.grid[1] * z)
        self.share = {"load": Traffic(), "store": Traffic(), "atomic": Traffic()}

    def _weigh(self) -> None:
        """Keeps the share of the program that has just run, if it is the largest so far."""
        if self.share is None:
            return
        rank = (
            sum(traffic.bytes for traffic in self.share.values()),
            -self.number,
        )  # the first, whatever the order they ran in
        if self.busiest is None or rank > self.busiest[0]:
            self.busiest = rank, Share(self.program, *self.share.values())

    def access(self, kind, addresses, mask, itemsize, where):
        """Counts one request, and returns the addresses in this process; OutOfBoundsError if one is outside.

        mask: booleans, or None where nothing is masked off. where: (Source, line).
        """
        wanted = addresses.reshape(-1) if mask is None else addresses[mask]
        masked = addresses.size - wanted.size
        here = np.zeros_like(wanted)
        if not wanted.size:
            owner = self.memory.owner(addresses.flat[0])
            self._add(kind, owner.name if owner else "", where, 1, 0, masked, 0, 0)
        else:
            for argument, offsets, indices in self.memory.resolve(kind, wanted, itemsize):
                if kind != "load" and not argument.writable:
                    raise KernelError(f"stores to {argument.name}, which is read-only")
                site = self._add(
                    kind,
                    argument.name,
                    where,
                    1,
                    offsets.size,
                    masked,
                    offsets.size * itemsize,
                    sector_count(offsets),
                )
                self._touch(kind, argument, offsets, itemsize, site)
                self._trace(kind, argument, offsets)
                here[indices] = offsets.view(np.uint64) + np.uint64(argument.storage)
                masked = 0
        if mask is None:
            return here.reshape(addresses.shape)
        everywhere = np.zeros_like(addresses)
        everywhere[mask] = here
        return everywhere

    def dot(self, flops, where) -> None:
        """Counts one tl.dot."""
        dots = self.dots.setdefault(where, Dots(*_line(where)))
        dots.calls += 1
        dots.flops += flops

    def _add(self, kind, array, where, *numbers):
        """Adds to the traffic of this line and array, and to that of the program; the number of the site."""
        key = kind, array, where
        if key not in self.accesses:
            self.accesses[key] = len(self.sites), Traffic()
            self.sites.append(key)
        site, traffic = self.accesses[key]
        traffic.add(*numbers)
        self.share[kind].add(*numbers)
        return site

    def _touch(self, kind, argument, offsets, itemsize, site) -> None:
        buffer = argument.buffer
        index = (offsets + (argument.storage - buffer.low)) // buffer.itemsize
        if itemsize > buffer.itemsize:
            index = (index[:, None] + np.arange(itemsize // buffer.itemsize)).reshape(-1)
        mark = (self.number << 16) + site
        for other, marks, racing in buffer.touch(kind, mark, index):
            key = argument, (other, kind), (int(marks[0]) & 0xFFFF, site)
            self.races.setdefault(key, []).append((racing, (int(marks[0]) >> 16, self.number)))

    def report(self, kernel, seed):
        """The Report of the launch."""
        self._weigh()
        accesses = [
            Access(*_line(where), array, kind, traffic)
            for (kind, array, where), (_, traffic) in self.accesses.items()
        ]
        races = [self._race(*key, found) for key, found in self.races.items()]
        return Report(
            accesses=accesses,
            dots_by_line=list(self.dots.values()),
            kernel=kernel,
            grid=self.grid,
            seed=seed,
            arrays={argument.name: argument.shape for argument in self.memory.arguments},
            races=races,
            busiest=self.busiest[1] if self.busiest else Share(),
            trace=Trace(
                {argument.name: argument.strides for argument in self.memory.arguments},
                self.trace,
                self.traced <= MOST_TRACED,
            ),
        )

    def _trace(self, kind, argument, offsets) -> None:
        """Keeps which elements a request touched, for drawing, while they are not too many."""
        self.traced += offsets.size
        if self.traced <= MOST_TRACED:
            elements = (offsets - (argument.start - argument.storage)) // argument.itemsize
            self.trace.append(Request(argument.name, kind, self.program, elements.astype(np.int32)))

    def _race(self, argument, kinds, sites, found):
        """The Race of one array between two lines. found: [(elements, as indices in their buffer; numbers of the programs)]."""
        index, programs = found[0]
        buffer = argument.buffer
        element = (
            int(index[0]) * buffer.itemsize + buffer.low - argument.start
        ) // argument.itemsize
        count = len(np.unique(np.concatenate([each for each, _ in found])))
        return Race(
            argument.name,
            element,
            tuple(self._program(number) for number in programs),
            kinds,
            tuple(self.sites[site][2][1] for site in sites),
            count,
        )

    def _program(self, number):
        return (
            number % self.grid[0],
            number // self.grid[0] % self.grid[1],
            number // (self.grid[0] * self.grid[1]),
        )


def _line(where):
    """(function, line, text) of a place in the source."""
    source, line = where
    return source.name, line, source.line(line)
