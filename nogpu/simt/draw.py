"""Figures of what one block accessed: sectors, banks, and which thread accessed which element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nogpu import pictures
from nogpu.kernels.memory import SECTOR_BYTES
from nogpu.pictures import QUIET, ink
from nogpu.simt import dtypes
from nogpu.simt.accesses import Accesses, select
from nogpu.simt.lanes import WARP
from nogpu.simt.program import Kind, Site
from nogpu.simt.traffic import BANKS, WORD_BYTES, halves

LANE_COLOURS = plt.get_cmap("viridis")(np.linspace(0.05, 0.97, WARP))
UNUSED = (0.93, 0.93, 0.93, 1.0)
CELL_IN, LABEL_IN, TITLE_IN, MOST_ROWS = 0.21, 1.15, 0.62, 32
PANEL_IN, HEAD_IN = 4.2, 0.34  # of a figure with several panels
VERBS = {Kind.LOAD: "load", Kind.STORE: "store", Kind.ATOMIC: "atomic update"}


def accesses(
    trace: Accesses | None,
    sites: Sequence[Site],
    origins: dict[str, int],
    line: int | None = None,
    *,
    warp: int = 0,
    request: int = 0,
    whole_block: bool = False,
) -> list[Axes]:
    """Axes for each access in this line of the kernel (the first that accesses memory, if None).

    They show one warp instruction (number `request` of this warp there): in global memory the
    sectors that it fetches, in shared memory the banks that serve it. With whole_block=True they
    show every access of the block: which thread accessed which element. The block is the one that
    count(..., traced_block=...) named, block 0 by default.

    trace: the block's accesses. sites: of the kernel. origins: the place where each array begins.
    """
    if trace is None:
        raise ValueError(
            "the traced block accessed no memory; count(..., traced_block=number) chooses another "
            "one"
        )
    sites = _sites(trace, sites, line)
    if whole_block:
        return _block(trace, sites, origins)
    drawn = []
    for site in sites:
        lanes, places = _instruction(trace, site, warp, request)
        if site.space == "global":
            drawn.append(sectors(site, lanes, places, origins.get(site.array, 0)))
        else:
            drawn.append(banks(site, lanes, places))
    return drawn


def _block(trace: Accesses, sites: Sequence[Site], origins: dict[str, int]) -> list[Axes]:
    """Axes with every access of the block at each of these sites."""
    figure, axes = plt.subplots(
        1, len(sites), figsize=(max(4.2, 3.6 * len(sites)), 3.6), squeeze=False
    )
    for ax, site in zip(axes[0], sites, strict=True):
        addresses(trace, site, origins.get(site.array, 0), ax)
    names = ", ".join(f"{VERBS[site.kind]}s of {site.array}" for site in sites)
    pictures.describe(figure, f"Which thread of the block accesses which element: {names}.")
    return list(axes[0])


def side_by_side(*reports: Any) -> Figure:
    """A figure with the first line that accesses memory of each kernel, a row per kernel.

    Each panel shows what one warp instruction asks of global memory, as accesses() does.
    """
    rows: list[tuple[str, list[tuple[Site, np.ndarray, np.ndarray, int]]]] = []
    for report in reports:
        if report.trace is None or report.program is None:
            raise ValueError(f"{report.kernel} accessed no memory, or was counted elsewhere")
        sites = _sites(report.trace, report.program.sites, None)
        panels = [
            (site, *_instruction(report.trace, site, 0, 0), report.origins.get(site.array, 0))
            for site in sites
        ]
        for first in range(0, len(panels), 2):
            rows.append((report.kernel if first == 0 else "", panels[first : first + 2]))
    heights = [
        _height_in(max(map(_sector_rows, panels))) + HEAD_IN * (kernel != "")
        for kernel, panels in rows
    ]
    width, height = max(len(panels) for _, panels in rows) * PANEL_IN, sum(heights)
    figure, top = plt.figure(figsize=(width, height)), height
    figure.set_layout_engine("none")
    for (kernel, panels), below in zip(rows, heights, strict=True):
        figure.text(0.1 / width, (top - 0.22) / height, kernel, size=11, weight="bold")
        for column, panel in enumerate(panels):
            tall = _height_in(_sector_rows(panel))
            box = column * PANEL_IN, top - HEAD_IN * (kernel != "") - tall, PANEL_IN, tall
            left, bottom, wide, high = box
            ax = figure.add_axes((left / width, bottom / height, wide / width, high / height))
            sectors(*panel, ax=ax)
        top -= below
    counts = "".join(
        (f"; {kernel}: " if kernel else ", ")
        + ", ".join(f"{site[0].array} {_sector_rows(site)}" for site in panels)
        for kernel, panels in rows
    ).removeprefix("; ")
    pictures.describe(figure, f"Sectors that one access of a warp touches, by array. {counts}.")
    return figure


def _sector_rows(panel: tuple[Site, np.ndarray, np.ndarray, int]) -> int:
    site, _, places, _ = panel
    touched = np.unique(places * dtypes.itemsize(site.dtype) // SECTOR_BYTES)
    return min(len(touched), MOST_ROWS)


def _height_in(rows: int) -> float:
    return rows * CELL_IN + TITLE_IN


def _sites(trace: Accesses, sites: Sequence[Site], line: int | None) -> list[Site]:
    """The sites where this line accesses memory, in the order of the source."""
    logged = [sites[number] for number in np.unique(trace.site)]
    line = logged[0].line if line is None else line
    chosen = [site for site in logged if site.line == line]
    if not chosen:
        lines = ", ".join(str(number) for number in sorted({site.line for site in logged}))
        raise ValueError(
            f"line {line} accesses no memory in the traced block; the lines that do are {lines}"
        )
    return chosen


def _instruction(
    trace: Accesses, site: Site, warp: int, request: int
) -> tuple[np.ndarray, np.ndarray]:
    """(lanes, places) of one warp instruction."""
    rows = select(trace, (trace.site == site.number) & (trace.thread // WARP == warp))
    keys = np.unique(rows.key // WARP)
    if request >= len(keys):
        raise ValueError(
            f"warp {warp} executes this access {len(keys)} times; there is no request {request}"
        )
    rows = select(rows, rows.key // WARP == keys[request])
    return rows.thread % WARP, rows.place


def sectors(
    site: Site, lanes: np.ndarray, places: np.ndarray, origin: int, ax: Axes | None = None
) -> Axes:
    """Axes with the sectors that one warp instruction touches, one per row.

    They show which lane wants which word, and what nobody wants. origin: the place where the
    array begins.
    """
    size = dtypes.itemsize(site.dtype)
    touched, row = np.unique(places * size // SECTOR_BYTES, return_inverse=True)
    across = SECTOR_BYTES // size
    shown = min(len(touched), MOST_ROWS)
    ax = _canvas(across * (2 if size > 4 else 1), shown, labelled=True, ax=ax)
    width = 2 if size > 4 else 1
    used = np.zeros((len(touched), across), bool)
    used[row, places % across] = True
    for y, x in zip(*np.nonzero(~used[:shown]), strict=True):
        _cell(ax, x * width, shown - 1 - y, UNUSED, "", width)
    _lanes(ax, lanes, places % across, row, shown, width)
    for y, sector in enumerate(touched[:shown]):
        ax.text(
            -0.3,
            shown - 0.5 - y,
            f"byte {sector * SECTOR_BYTES - origin * size:,}",
            size=8,
            ha="right",
            va="center",
            color=QUIET,
        )
    plural, more = "s" * (len(touched) > 1), f" ({shown} shown)" if shown < len(touched) else ""
    _caption(
        ax,
        shown,
        f"{site.array}: one {VERBS[site.kind]} of a warp touches {len(touched)} sector{plural}"
        + more,
        f"{np.count_nonzero(used) * size} of {len(touched) * SECTOR_BYTES} bytes used; numbers are "
        "lanes",
    )
    return ax


def banks(site: Site, lanes: np.ndarray, places: np.ndarray) -> Axes:
    """Axes with the 32 banks of shared memory, and above each its words, one per wavefront."""
    size = dtypes.itemsize(site.dtype)
    first = places * size // WORD_BYTES
    half = halves(np.zeros_like(lanes), lanes, places, size)
    lanes, words, half = (np.repeat(column, max(1, size // 4)) for column in (lanes, first, half))
    if size > WORD_BYTES:
        words[1::2] += 1
    unique, which = np.unique(np.stack([half, words]), axis=1, return_inverse=True)
    which, rows = which.reshape(-1), 0
    height = np.zeros(len(unique[0]), int)
    for group in np.unique(half):  # the second half-warp's words above the first's
        members, below = np.flatnonzero(unique[0] == group), rows
        bank = unique[1, members] % BANKS
        for i, member in enumerate(members):
            height[member] = below + np.count_nonzero(bank[:i] == bank[i])
        rows = int(height.max()) + 1
    ax = _canvas(BANKS, rows + 1, labelled=False)
    _lanes(ax, lanes, words % BANKS, rows - 1 - height[which], rows, 1, lift=1)
    for bank in range(BANKS):
        _cell(ax, bank, 0, "white", bank)
    _caption(
        ax,
        rows + 1,
        f"{site.array}: one {VERBS[site.kind]} of a warp takes {rows} wavefront{'s' * (rows > 1)}",
        "bottom row: the banks; above each the lanes whose words it delivers, "
        + ("lanes 16 to 31 after the others" if half.any() else "one word after another"),
    )
    return ax


def addresses(trace: Accesses, site: Site, origin: int, ax: Axes) -> None:
    """Show every access at one site: which thread accessed which element."""
    rows = select(trace, trace.site == site.number)
    if site.space != "global":
        origin = int(rows.place.min())
    ax.scatter(
        rows.thread, rows.place - origin, c=LANE_COLOURS[rows.thread % WARP], s=7, linewidths=0
    )
    ax.set(
        title=f"{site.array}: {VERBS[site.kind]}s of a block",
        xlabel="thread (colour: its lane)",
        ylabel="element",
    )
    ax.locator_params(axis="y", integer=True, min_n_ticks=1)
    threads = int(rows.thread.max()) + 1
    ax.set_xticks(range(0, threads + 1, WARP * -(-threads // (6 * WARP))))


def _canvas(columns: int, rows: int, labelled: bool, ax: Axes | None = None) -> Axes:
    left = LABEL_IN if labelled else 0.05
    width_in, height_in = left + max(columns * CELL_IN, 5.2) + 0.05, _height_in(rows)
    if ax is None:
        figure = plt.figure(figsize=(width_in, height_in))
        figure.set_layout_engine("none")
        ax = figure.add_axes((0, 0, 1, 1))
    else:
        width_in = PANEL_IN
    ax.set(
        xlim=(-left / CELL_IN, (width_in - left) / CELL_IN), ylim=(-0.1, height_in / CELL_IN - 0.1)
    )
    ax.axis("off")
    return ax


def _cell(ax: Axes, x: float, y: float, colour: Any, text: object, width: int = 1) -> None:
    ax.add_collection(
        PatchCollection(
            [Rectangle((x, y), width, 1)], facecolors=[colour], edgecolors="#bbbbbb", linewidths=0.5
        )
    )
    if text != "":
        ax.text(
            x + width / 2,
            y + 0.47,
            str(text),
            size=6.5,
            ha="center",
            va="center",
            color=ink(colour),
        )


def _lanes(
    ax: Axes,
    lanes: np.ndarray,
    columns: np.ndarray,
    rows: np.ndarray,
    shown: int,
    width: int,
    lift: int = 0,
) -> None:
    """Cells with the lanes that want them: one lane's number, or how many lanes."""
    wanted: dict[tuple[int, int], list[int]] = {}
    for lane, column, row in zip(lanes.tolist(), columns.tolist(), rows.tolist(), strict=True):
        wanted.setdefault((column, row), []).append(lane)
    for (column, row), who in wanted.items():
        if row < shown:
            label = who[0] if len(who) == 1 else f"×{len(who)}"
            _cell(ax, column * width, shown - 1 - row + lift, LANE_COLOURS[who[0]], label, width)


def _caption(ax: Axes, rows: int, title: str, text: str) -> None:
    pictures.describe(ax, f"Picture of a warp's access. {title}; {text}.")
    left = ax.get_xlim()[0] + 0.3
    ax.text(left, rows + 1.65, title, size=10, weight="bold", va="center")
    ax.text(left, rows + 0.7, text, size=8, va="center", color=QUIET)
