"""What a kernel, or one of its lines, cost."""

from dataclasses import dataclass, field, fields
from typing import Any, Self

from nogpu.simt import dtypes
from nogpu.simt.counters import Counts
from nogpu.simt.program import ACCESSES, Kind, Site


@dataclass
class Traffic:
    """Accesses to memory: warp instructions, and the bytes that threads asked for."""

    requests: int = 0
    bytes: int = 0

    def __iadd__(self, other: Self) -> Self:
        for name in (column.name for column in fields(self)):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


@dataclass
class GlobalTraffic(Traffic):
    """Accesses to global memory, and the sectors of 32 bytes that they took."""

    sectors: int = 0


@dataclass
class SharedTraffic(Traffic):
    """Accesses to shared memory, and the wavefronts (passes) that they took."""

    wavefronts: int = 0


@dataclass
class ConstantTraffic(Traffic):
    """Loads from constant memory."""


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
    atomics: int = 0  # updates: one per thread
    divergent_branches: int = 0  # times that the lanes of a warp went both ways
    flops: int = 0  # floating-point operations of all threads; a function of math counts as one

    def add(self, site: Site, counts: Counts) -> None:
        """Add what was counted at one site."""
        if site.kind in ACCESSES:
            total = getattr(self, f"{site.space}_{site.kind.value}s")
            traffic = type(total)(counts.requests, counts.threads * dtypes.itemsize(site.dtype))
            if isinstance(traffic, GlobalTraffic):
                traffic.sectors = counts.sectors
            elif isinstance(traffic, SharedTraffic):
                traffic.wavefronts = counts.wavefronts
            total += traffic
            self.atomics += counts.threads if site.kind is Kind.ATOMIC else 0
        self.divergent_branches += counts.divergent

    def traffic(self) -> dict[str, Traffic]:
        """The traffic by name, of those kinds that the kernel or line has."""
        kinds = {name: getattr(self, name) for name in TRAFFIC}
        return {name: traffic for name, traffic in kinds.items() if traffic.requests}


TRAFFIC = {
    "global_loads": GlobalTraffic,
    "global_stores": GlobalTraffic,
    "global_atomics": GlobalTraffic,
    "shared_loads": SharedTraffic,
    "shared_stores": SharedTraffic,
    "shared_atomics": SharedTraffic,
    "constant_loads": ConstantTraffic,
}


def from_dict(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of Costs, from what asdict made of them."""
    return {
        name: TRAFFIC[name](**value) if name in TRAFFIC else value for name, value in data.items()
    }


@dataclass
class LineCosts(Costs):
    """What one line of a kernel, or of a device function, cost."""

    function: str = ""
    number: int = 0
    text: str = ""
