"""What the warps of a compiled kernel request, as the hardware's counters see it."""

from dataclasses import dataclass, field

from common.kernels.memory import WARP, sectors
from common.tiles.costs import Kind, Traffic
from common.tiles.ptx.spaces import Global, Lanes
from common.tiles.ptx.text import Place

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
        for argument, _, indices in memory.parts("load", lanes.addresses, size):
            requests, touched = sectors(warps[indices], lanes.addresses[indices], size=1)
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
