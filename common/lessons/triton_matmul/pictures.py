"""A matrix product in tiles: the arguments of its launches, and pictures of what happens.

The pictures show a tile and its strips, orders of tiles, pipelines, predicted and measured times.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator
from torch import Tensor

from common import figures
from common.figures import QUIET

EMPTY, A, B, C = "#e8e8e8", "C1", "C2", "C0"
PROCESSORS = 132  # of an H200
Tile = tuple[int, int]
Step = tuple[float, float]  # when a step's load begins, and when its product begins


def sizes(a: Tensor, b: Tensor, c: Tensor) -> tuple[int, ...]:
    """M, N, K and the strides of the three matrices, in the order in which lab 05's kernels do."""
    return *c.shape, a.shape[1], *a.stride(), *b.stride(), *c.stride()


def blocks(m: int, n: int, k: int) -> dict[str, int]:
    """The sizes of tiles, as a launch takes them."""
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}


def grid(c: Tensor, m: int, n: int) -> tuple[int]:
    """A grid with a program for each tile of c, of m rows and n columns."""
    return (math.ceil(c.shape[0] / m) * math.ceil(c.shape[1] / n),)


def resident_programs(config: Mapping[str, int]) -> int:
    """How many programs run on one multiprocessor of an H200; 0 if one alone breaks a limit.

    config: BLOCK_M, BLOCK_N, BLOCK_K, num_warps and num_stages of lab 05's kernel in 16-bit
    numbers. Its registers are estimated: a thread's sums, half as many for addresses, and 30.
    """
    threads = 32 * config["num_warps"]
    pair_bytes = 2 * (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]  # of A and of B
    shared_bytes = config["num_stages"] * pair_bytes
    sums = config["BLOCK_M"] * config["BLOCK_N"] // threads
    registers = sums + sums // 2 + 30
    if shared_bytes > 232_448 or registers > 255:
        return 0
    return min(233_472 // (shared_bytes + 1024), 65_536 // (registers * threads))


def strips() -> Figure:
    """A tile of C, its strip of A and its strip of B, and the two tiles of one step along K."""
    figure, ax = plt.subplots(figsize=(7.2, 3.9))
    matrices = {"A": (0, 0, 5, 4), "B": (5.6, 4.6, 6, 5), "C": (5.6, 0, 6, 4)}
    for name, (x, y, width, height) in matrices.items():
        ax.add_patch(Rectangle((x, y), width, height, fc=EMPTY, ec="white"))
        ax.text(x + 0.12, y + height - 0.12, name, va="top", weight="bold", size=13)
    for x, y, width, height, colour, alpha in [
        (0, 2, 5, 1, A, 0.35),
        (2, 2, 1, 1, A, 1),
        (8.6, 4.6, 1, 5, B, 0.35),
        (8.6, 6.6, 1, 1, B, 1),
        (8.6, 2, 1, 1, C, 1),
    ]:
        ax.add_patch(Rectangle((x, y), width, height, fc=colour, alpha=alpha, lw=0))
    arrow: dict[str, Any] = {"arrowstyle": "->", "color": "#333333", "lw": 1.5}
    ax.annotate("", (4.7, 1.75), (0.2, 1.75), arrowprops=arrow)
    ax.annotate("", (8.35, 4.8), (8.35, 9.4), arrowprops=arrow)
    style: dict[str, Any] = {"size": 9, "color": "#333333"}
    ax.text(2.4, 1.65, "k, in steps of BLOCK_K", va="top", ha="center", **style)
    ax.text(8.25, 7.1, "k", va="center", ha="right", **style)
    ax.text(2.5, 3.1, "BLOCK_K", ha="center", **style)
    ax.text(9.75, 7.1, "BLOCK_K × BLOCK_N", va="center", **style)
    ax.text(9.75, 2.5, "BLOCK_M × BLOCK_N:\none program's tile", va="center", **style)
    ax.set(xlim=(-0.1, 12.6), ylim=(-0.1, 9.7), aspect="equal")
    ax.set_title("One program: a tile of C, from a strip of A and a strip of B")
    ax.axis("off")
    return figure


def waves(
    orders: Mapping[str, Callable[[int], Tile]], rows: int, columns: int, programs: int = PROCESSORS
) -> Figure:
    """The tiles of C of the first wave in each order, and the strips of A and B that they need.

    orders: {title: a function from a program's number to its (row, column)}.
    """
    figure, axes = plt.subplots(len(orders), 1, figsize=(7.2, 1.75 * len(orders)), squeeze=False)
    for ax, (title, order) in zip(axes[:, 0], orders.items(), strict=True):
        tiles = [order(program) for program in range(min(programs, rows * columns))]
        _wave(ax, tiles, rows, columns, title)
    return figure


def _wave(ax: Axes, tiles: Sequence[Tile], rows: int, columns: int, title: str) -> None:
    edge, band = max(2, columns // 40), max(1, rows // 10)  # the widths of A and B as drawn
    left, top = 2 * edge, 2 * band
    shown = np.zeros((rows + top, columns + left))
    shown[top:, :edge] = shown[:band, left:] = shown[top:, left:] = 1
    i, j = np.array(tiles).T
    shown[top + i, :edge], shown[:band, left + j], shown[top + i, left + j] = 2, 3, 4
    colours = ListedColormap(["white", EMPTY, A, B, C])
    ax.imshow(shown, cmap=colours, vmin=0, vmax=4, aspect="auto", interpolation="nearest")
    ax.set_title(f"{title}; strips: {len(set(i))} of A, {len(set(j))} of B")
    place: dict[str, Any] = {"ha": "center", "va": "center", "weight": "bold", "size": 9}
    ax.text(edge / 2 - 0.5, top + rows * 0.9, "A", **place)
    ax.text(left + columns * 0.98, band / 2 - 0.5, "B", **place)
    ax.text(left + columns * 0.98, top + rows * 0.9, "C", **place)
    ax.axis("off")


def order(orders: Mapping[str, Sequence[Any]], rows: int, columns: int) -> Figure:
    """Which program computes which tile, in each of these orders side by side.

    orders: {title: the (row, column) of program 0, 1, ...}; what lies outside is not drawn.
    """
    size = min(3.4, 0.5 * columns + 0.4), min(3.4, 0.4 * rows + 0.6)
    figure, axes = plt.subplots(
        1, len(orders), figsize=(size[0] * len(orders), size[1]), squeeze=False
    )
    for ax, (title, tiles) in zip(axes[0], orders.items(), strict=True):
        number = np.full((rows, columns), -1)
        for program, tile in enumerate(tiles):
            row, column = tile if isinstance(tile, tuple) and len(tile) == 2 else (-1, -1)
            if row in range(rows) and column in range(columns):
                number[row, column] = program
        ax.imshow(np.where(number < 0, np.nan, number), cmap="cividis", vmin=0, vmax=rows * columns)
        for (row, column), program in np.ndenumerate(number):
            colour = "white" if 0 <= program < rows * columns / 2 else "#333333"
            text = "-" if program < 0 else str(program)
            ax.text(column, row, text, ha="center", va="center", size=8, color=colour)
        ax.set(title=title, xlabel="column of tiles", xticks=[], yticks=[])
        ax.set_ylabel("row of tiles")
        ax.grid(visible=False)
    return figure


def pipeline(
    timelines: Mapping[str, Sequence[Step]], load_s: float, compute_s: float, last: int = 12
) -> Figure:
    """When each step's tiles are on their way, and when they are multiplied.

    timelines: {title: [(when a step's load begins, when its product begins), ...]}.
    """
    heights = 0.7 + 0.15 * last
    figure, axes = plt.subplots(
        len(timelines), 1, figsize=(7.2, heights * len(timelines)), sharex=True, squeeze=False
    )
    unit, name = (1e-6, "time (µs)") if load_s + compute_s < 1e-3 else (1.0, "time")
    for ax, (title, steps) in zip(axes[:, 0], timelines.items(), strict=True):
        load, product = np.array(list(steps)[:last], float).reshape(-1, 2).T / unit
        number = np.arange(len(load))
        ax.barh(number, load_s / unit, left=load, height=0.75, color=B, label="load on its way")
        ax.barh(number, compute_s / unit, left=product, height=0.75, color=C, label="product")
        ax.set(title=title, ylabel="step along K", ylim=(last - 0.3, -0.7))
        ax.set_yticks(range(0, last, 2))
    axes[0, 0].legend(loc="upper right")
    axes[-1, 0].set_xlabel(name)
    return figure


def busy(steps: Sequence[Step], compute_s: float) -> float:
    """The part of the time in which the tensor cores multiply, once the pipeline is full."""
    half = len(steps) // 2
    return half * compute_s / (steps[-1][1] - steps[-1 - half][1])


def settled(stages: int, load_s: float, compute_s: float) -> float:
    """`busy` for a long pipeline."""
    return busy(steps_of(20 * stages, stages, load_s, compute_s), compute_s)


def steps_of(steps: int, stages: int, load_s: float, compute_s: float) -> list[Step]:
    """A pipeline's timeline: each slot of shared memory is loaded, multiplied, loaded again."""
    slots, free, timeline = [0.0] * stages, 0.0, []
    for step in range(steps):
        load = slots[step % stages]
        product = max(free, load + load_s)
        timeline.append((load, product))
        slots[step % stages] = free = product + compute_s
    return timeline


def by_stages(lines: Mapping[str, Any], dots: Mapping[str, Any]) -> Axes:
    """Predicted and measured time of one wave of tiles, with 1, 2, ... stages. {label: seconds}."""
    stages = range(1, 1 + len(next(iter(lines.values()))))
    title = "One wave of tiles on an H200: stages feed the tensor cores"
    ax = figures.predicted_and_measured(
        stages, lines, dots, log="y", yunit="s", xlabel="num_stages", ylabel="time", title=title
    )
    ax.set_xticks(stages)
    figures.describe(
        ax,
        "Time by number of stages for steps of 32 and 64: both fall steeply up to four stages and "
        "then level off; the dots lie below the lines with one stage, and above them with eight.",
    )
    return ax


def predictions(shown: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Measured against predicted time of configurations, with the model's pick and the best.

    shown: {title: (predicted seconds, measured seconds)}.
    """
    figure, axes = plt.subplots(1, len(shown), figsize=(9.6, 3.6))
    regrets = []
    for ax, (title, (predicted_s, times_s)) in zip(axes, shown.items(), strict=True):
        pick, best = predicted_s.argmin(), times_s.argmin()
        regrets.append(f"{times_s[pick] / times_s[best]:.2f}")
        fits = np.isfinite(predicted_s)
        both = np.concatenate([predicted_s[fits], times_s[fits]])
        ax.plot([both.min(), both.max()], [both.min(), both.max()], color=QUIET, linewidth=1)
        ax.plot(predicted_s[fits], times_s[fits], "o", color="C0", markersize=4)
        ax.plot(predicted_s[pick], times_s[pick], "D", color="C1", markersize=9, label="pick")
        ax.plot(predicted_s[best], times_s[best], "*", color="C2", markersize=14, label="best")
        ax.set(title=title, xlabel=f"predicted (pick: {regrets[-1]} × best)", ylabel="measured")
        figures.scale(ax, "x", True, "s")
        figures.scale(ax, "y", True, "s")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes[0].legend(loc="upper left")
    figures.describe(
        figure,
        f"Measured against predicted time of all configurations at {', '.join(shown)}. The dots "
        f"follow the diagonal. The picks take {', '.join(regrets)} times the best time.",
    )
    return figure


def at_random(times_s: np.ndarray, count: int) -> np.ndarray:
    """The expected regret after 1, 2, ..., count measurements at random."""
    draws = np.random.default_rng(0).permuted(np.tile(times_s, (1000, 1)), axis=1)
    return np.minimum.accumulate(draws, axis=1).mean(0)[:count] / times_s.min()


def searches(found: Mapping[str, Sequence[Any]], random: Sequence[Any]) -> Axes:
    """Mean regret after 1, 2, ... measurements: of searches, and expected at random.

    found: {search: its regrets at each shape}. random: those expected at random.
    """
    expected = np.mean(random, 0).tolist()
    dots = {name: np.mean(regrets, 0).tolist() for name, regrets in found.items()}
    ax = figures.predicted_and_measured(
        range(1, 1 + len(expected)),
        {"at random": expected},
        dots,
        xlabel="configurations measured",
        ylabel="mean regret (× best)",
        title="Measure few, learn, choose",
    )
    ax.set(xticks=range(1, 1 + len(expected)), ylim=(0.95, None))
    if legend := ax.get_legend():
        legend.set_title("line: expected, dots: found")
    first = ", ".join(f"{name} {regret[0]:.2f}" for name, regret in dots.items())
    figures.describe(
        ax,
        f"Mean regret by measurements, {len(expected)} in all. After the first: at random "
        f"{expected[0]:.2f}, {first}. The better the start, the nearer they stay to 1.",
    )
    return ax


def loaded_by_waves(groups: Sequence[int], formula: Any, counted: Any) -> Axes:
    """Megabytes that the first wave loads, by the rows of tiles in a band."""
    ax = figures.predicted_and_measured(
        groups,
        formula,
        counted,
        dots_are="counted",
        log="xy",
        xlabel="rows of tiles in a band",
        ylabel="MB",
        title="What 132 programs load",
    )
    figures.describe(ax, "Loads of the first wave by rows per band: least near 12 rows per band.")
    return ax


def speeds(
    shapes: Sequence[tuple[int, ...]], limits: Sequence[float], measured: np.ndarray, device: str
) -> Figure:
    """FLOP/s of ours and cuBLAS at these shapes, with the predicted limit, and their ratio.

    measured: (shapes, 2), ours and cuBLAS.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), sharey=True)
    place, names = np.arange(len(shapes)), [" × ".join(map(str, shape)) for shape in shapes]
    bar: dict[str, Any] = {"color": "C0", "markeredgecolor": "C0", "markeredgewidth": 2}
    left.plot(np.asarray(limits) / 1e12, place, "|", markersize=18, label="predicted", **bar)
    left.plot(measured[:, 0] / 1e12, place - 0.12, "o", color="C0", label="ours")
    left.plot(measured[:, 1] / 1e12, place + 0.12, "s", color="C1", label="cuBLAS")
    left.set(yticks=place, yticklabels=names, xlabel="TFLOP/s", title=f"Speed on {device}")
    left.set_xlim(left=0.7 * float(np.min([*measured.flat, *limits])) / 1e12)
    left.legend(loc="lower left")
    ratio = measured[:, 0] / measured[:, 1]
    right.barh(place, ratio - 1, left=1, height=0.5, color="C0")
    for y, value in enumerate(ratio):
        beside: dict[str, Any] = {"ha": "right" if value < 1 else "left", "va": "center", "size": 9}
        shift = -4 if value < 1 else 4
        right.annotate(f"{value:.2f}", (value, y), (shift, 0), textcoords="offset points", **beside)
    right.axvline(1, color="C1")
    right.set(xlabel="our speed over cuBLAS's", title="Ratio", xlim=(0.85, 1.2))
    left.invert_yaxis()
    figures.describe(
        figure,
        "Speed of our matmul and of cuBLAS at six shapes, with a predicted limit, and their ratio, "
        + ", ".join(f"{value:.2f}" for value in ratio),
    )
    return figure
