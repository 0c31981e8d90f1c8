"""How much a GPU reads when each thread waits for one load before it starts the next one.

A chain is a walk through an array of links, where each load gives the place of the next one. A
kernel follows as many chains per thread as loads should be under way at once. By Little's law it
reads that many bytes per wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common import figures
from common.hardware import timing
from nogpu import cuda

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes

LENGTH, STEPS = 2**29, 512  # 2 GB of links: no cache holds them
LINK_BYTES, WARP, BLOCK = 4, 32, 64


@cuda.jit
def follow_four(links: Any, out: Any, steps: int) -> None:
    """A kernel whose threads follow four chains each."""
    i, threads = cuda.grid(1), cuda.gridsize(1)
    j, k, m = i + threads, i + 2 * threads, i + 3 * threads
    for _ in range(steps):
        i, j, k, m = links[i], links[j], links[k], links[m]
    out[cuda.grid(1)] = i + j + k + m


@dataclass(frozen=True)
class Chains:
    """Links in a GPU's memory, and what the GPU does with them."""

    links: torch.Tensor
    processors: int  # SMs
    wait_s: float  # of a single warp, from one load to the next
    copy_bytes_per_s: float

    def rate(self, kernel: Any, loads: int, warps: int) -> float:
        """Bytes per second, measured. loads: per warp at once. warps: per SM, an even number."""
        blocks = self.processors * warps * WARP // BLOCK
        read = blocks * BLOCK * loads * STEPS * LINK_BYTES
        return read / _time_s(kernel, blocks, BLOCK, self.links)

    def rates(self, kernel: Any, loads: int, warps: Sequence[int]) -> list[float]:
        """Bytes per second for each number of warps."""
        return [self.rate(kernel, loads, number) for number in warps]

    def predicted(self, loads: int, warps: int) -> float:
        """Bytes per second by Little's law, and no more than a copy moves."""
        under_way = self.processors * warps * loads * WARP * LINK_BYTES
        return min(under_way / self.wait_s, self.copy_bytes_per_s)


def chains(kernel: Any) -> Chains:
    """The links, and this GPU's numbers. kernel(links, out, steps) follows a chain per thread."""
    import torch

    links = make_links(LENGTH, STEPS, "cuda")
    half = links[: LENGTH // 2]
    copy_s = timing.measure(torch.empty_like(half).copy_, half, cold_cache=True).median_s
    wait_s = _time_s(kernel, 1, WARP, links) / STEPS
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    return Chains(links, processors, wait_s, 2 * half.nbytes / copy_s)


def draw(gpu: Chains, warps: Sequence[int], loads: dict[str, int], dots: Sequence[Any]) -> Axes:
    """Axes with what Little's law predicts as lines, and measured rates as dots.

    loads: {name: loads at once per warp}. dots: the measured rates of each, for these warps.
    """
    lines = {name: [gpu.predicted(count, n) for n in warps] for name, count in loads.items()}
    ax = figures.predicted_and_measured(
        warps,
        lines,
        dict(zip(loads, dots, strict=True)),
        log="xy",
        xlabel="warps per SM",
        ylabel="read from memory",
        yunit="B/s",
        title=f"A lone warp waits {1e9 * gpu.wait_s:.0f} ns; a copy moves "
        f"{gpu.copy_bytes_per_s / 1e12:.3g} TB/s",
    )
    ax.set_xticks(warps, [str(number) for number in warps])
    ends = ", ".join(
        f"{values[-1] / 1e12:.3g} TB/s for {name}" for name, values in zip(loads, dots, strict=True)
    )
    figures.describe(ax, f"Bytes read per second over warps per SM; with {warps[-1]}: {ends}.")
    return ax


def make_links(length: int, steps: int, device: str) -> torch.Tensor:
    """links[i] is the place that follows i: so far behind it that threads share no cache line.

    length: a power of two. The links lead around the array once in this many steps.
    """
    import torch

    links = torch.arange(length, dtype=torch.int32, device=device)
    return links.add_(length // steps).bitwise_and_(length - 1)


def _time_s(kernel: Any, blocks: int, threads: int, links: torch.Tensor) -> float:
    import torch

    out = torch.zeros(blocks * threads, dtype=torch.int32, device=links.device)
    launch = kernel[blocks, threads]
    return timing.measure(launch, links, out, STEPS, cold_cache=True).median_s
