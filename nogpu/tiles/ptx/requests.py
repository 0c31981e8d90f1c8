"""What the warps of a compiled kernel request, as the hardware's counters see it."""

from dataclasses import dataclass, field

import numpy as np

from nogpu.kernels.memory import WARP, sectors
from nogpu.tiles.costs import Kind, Traffic
from nogpu.tiles.ptx.spaces import Global, Lanes
from nogpu.tiles.ptx.text import Place

Site = tuple[Kind, str, Place]  # the array's name


@dataclass
class Requests:
    """The traffic of each site."""

    sites: dict[Site, Traffic] = field(default_factory=dict)

    def add(
        self,
        kind: Kind,
        place: Place,
        memory: Global,
        lanes: Lanes,
        shape: tuple[int, int],
        size: int,
    ) -> None:
        """Count one instruction: a request for each warp with a lane that takes part.

        lanes: those that do. shape: (programs, threads). size: bytes that each lane asks for.
        """
        if not lanes.programs.size:
            return
        programs, threads = shape
        warps = lanes.programs * -(-threads // WARP) + lanes.threads // WARP
        off = programs * threads - warps.size
        rounds = warps * WARP
        if kind == "atomic":
            rounds = rounds + _turns(warps, lanes.addresses)
        for argument, _, indices in memory.parts("load", lanes.addresses, size):
            requests, _ = sectors(warps[indices], lanes.addresses[indices], size=1)
            _, touched = sectors(rounds[indices], lanes.addresses[indices], size=1)
            elements = max(1, size // argument.itemsize)
            traffic = Traffic(
                requests=requests,
                elements=indices.size * elements,
                masked=off * elements,
                bytes=indices.size * size,
                sectors=touched,
            )
            self.sites.setdefault((kind, argument.name, place), Traffic()).add(traffic)
            off = 0  # counted once

    def add_empty(self, place: Place, memory: Global, lanes: Lanes, wanted: np.ndarray) -> None:
        """Count the copies of warps that copy nothing. wanted: whether each of the lanes does."""
        warps = lanes.programs << 32 | lanes.threads // WARP
        empty = np.setdiff1d(warps, warps[wanted]).size
        owner = memory.memory.owner(int(lanes.addresses[0])) if empty else None
        if owner is not None:
            self.sites.setdefault(("copy", owner.name, place), Traffic()).empty += empty


def _turns(warps: np.ndarray, addresses: np.ndarray) -> np.ndarray:
    """For each lane, how many lanes of its warp before it update the same address."""
    order = np.lexsort((addresses, warps))
    first = np.ones(order.size, bool)
    first[1:] = (np.diff(warps[order]) != 0) | (np.diff(addresses[order]) != 0)
    position = np.arange(order.size)
    turns = np.empty(order.size, int)
    turns[order] = position - np.maximum.accumulate(np.where(first, position, 0))
    return turns
