"""The timeline of ranks: one row per rank, with what it computes, sends and receives."""

import re
from collections.abc import Sequence
from typing import Protocol

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from nogpu.pictures import ink
from nogpu.ranks.events import Message, Span

COMPUTE = ("C0", "C2", "C4", "C5")
SEND, RECEIVE, IDLE = "C1", "C3", "#ececec"
PREDICTED = 0.44  # where its line is, below the row
MOST_ARROWS = 80


class Timeline(Protocol):
    """What is drawn of a Trace."""

    world_size: int
    machine: str
    messages: list[Message]
    compute: list[Span]

    @property
    def time_s(self) -> float: ...


def timeline(
    trace: Timeline,
    *,
    predicted: Timeline | None = None,
    title: str | None = None,
    arrows: bool | None = None,
    until_s: float | None = None,
    row: str = "rank",
    ax: Axes | None = None,
) -> Axes:
    """Axes with one row per rank: computation as wide bars, sends above, receives below.

    Computations whose names differ only in their numbers have one colour. predicted:
    another Trace, as a line below each row. arrows: whether messages are drawn from rank to rank
    (by default if there are at most 80). until_s: where the axis of time ends. row: what
    a row is called, before its number.
    """
    ax = ax or plt.subplots(figsize=(7.2, 0.9 + 0.42 * trace.world_size))[1]
    spans = [*trace.compute, *(predicted.compute if predicted else ())]
    kinds = list(dict.fromkeys(map(_kind, sorted(spans, key=lambda span: span.start_s))))
    colours = {kind: COMPUTE[i % len(COMPUTE)] for i, kind in enumerate(kinds)}
    end_s = until_s or max(trace.time_s, predicted.time_s if predicted else 0.0) or 1.0
    for rank in range(trace.world_size):
        ax.barh(rank, trace.time_s, 0.56, color=IDLE, zorder=1)
    _compute(ax, trace, colours, 0.0, 0.56)
    _messages(ax, trace, -0.4, 0.4, 0.2 if trace.compute else 0.28)
    _labels(ax, trace, colours, end_s)
    if predicted is not None:
        _prediction(ax, predicted, colours)
    if arrows if arrows is not None else not trace.compute and len(trace.messages) <= MOST_ARROWS:
        _arrows(ax, trace)
    _axes(ax, trace, title, end_s, row)
    _legend(ax, colours, trace, predicted)
    return ax


def beside(
    got: Timeline,
    wanted: Timeline,
    *,
    titles: tuple[str, str] = ("What your program did", "What was wanted"),
    until_s: float | None = None,
    arrows: bool | None = None,
    row: str = "rank",
) -> Sequence[Axes]:
    """Two timelines, one above the other, on one axis of time.

    titles: of the two. until_s: where the axis of time ends (by default when the later one ends).
    arrows, row: as for `timeline`.
    """
    traces = got, wanted
    height = sum(1.2 + 0.36 * trace.world_size for trace in traces)
    axes = plt.subplots(2, 1, figsize=(7.2, height), layout="constrained")[1]
    end_s = until_s or max(trace.time_s for trace in traces) or 1.0
    for ax, trace, title in zip(axes, traces, titles, strict=True):
        timeline(trace, title=title, until_s=end_s, arrows=arrows, ax=ax, row=row)
    return axes


def _axes(ax: Axes, trace: Timeline, title: str | None, end_s: float, row: str) -> None:
    p, simulated = trace.world_size, trace.machine == "simulated"
    ax.set(
        xlim=(0, end_s),
        ylim=(p - 0.4, -0.6),
        yticks=range(p),
        yticklabels=[f"{row} {number}" for number in range(p)],
        xlabel="virtual time" if simulated else f"time, measured on {trace.machine}",
        title=title or "",
    )
    ax.xaxis.set_major_formatter(EngFormatter("s"))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)


def _kind(span: Span) -> str:
    return re.sub(r"[\d.,: ]+$", "", span.name) or "compute"


def _compute(
    ax: Axes, trace: Timeline, colours: dict[str, str], offset: float, height: float
) -> None:
    """A trace's computation as bars, this far below the middle of each rank's row."""
    for rank in range(trace.world_size):
        for kind, colour in colours.items():
            bars = [
                (span.start_s, span.duration_s)
                for span in trace.compute
                if span.rank == rank and _kind(span) == kind
            ]
            ax.broken_barh(
                bars,
                (rank + offset - height / 2, height),
                facecolor=colour,
                edgecolor="white",
                linewidth=0.5,
                zorder=3,
            )


def _messages(ax: Axes, trace: Timeline, top: float, bottom: float, height: float) -> None:
    """A trace's sends as bars at the top of each row, its receives at the bottom."""
    for rank in range(trace.world_size):
        for side, offset, colour in (("src", top, SEND), ("dst", bottom - height, RECEIVE)):
            bars = [
                (message.start_s, message.end_s - message.start_s)
                for message in trace.messages
                if getattr(message, side) == rank
            ]
            ax.broken_barh(
                bars,
                (rank + offset, height),
                facecolor=colour,
                edgecolor="white",
                linewidth=0.4,
                zorder=4,
            )


def _labels(ax: Axes, trace: Timeline, colours: dict[str, str], end_s: float) -> None:
    """The names of computations within their bars, for the kinds that have room for them."""
    points_per_s = ax.bbox.width * 72 / ax.figure.dpi / end_s
    for kind in set(map(_kind, trace.compute)):
        spans = [span for span in trace.compute if _kind(span) == kind]
        room = points_per_s * sorted(span.duration_s for span in spans)[len(spans) // 2]
        for span in spans if room > 4.7 * len(spans[-1].name) + 1 else ():
            ax.text(
                (span.start_s + span.end_s) / 2,
                span.rank,
                span.name,
                size=7.5,
                color=ink(colours[kind]),
                ha="center",
                va="center",
                zorder=5,
                in_layout=False,  # it is within its bar: measuring a hundred takes time
            )


def _prediction(ax: Axes, predicted: Timeline, colours: dict[str, str]) -> None:
    """What was predicted, as a line below each row."""
    for rank in range(predicted.world_size):
        ax.barh(rank + PREDICTED, predicted.time_s, 0.1, color=IDLE, zorder=1)
    if predicted.compute:
        _compute(ax, predicted, colours, PREDICTED, 0.1)
    else:
        _messages(ax, predicted, PREDICTED - 0.06, PREDICTED + 0.06, 0.06)


def _arrows(ax: Axes, trace: Timeline) -> None:
    for message in trace.messages:
        ax.annotate(
            "",
            (message.end_s, message.dst + 0.26),
            (message.start_s, message.src - 0.26),
            zorder=7,
            arrowprops={
                "arrowstyle": "-|>",
                "color": "#333333",
                "linewidth": 0.7,
                "mutation_scale": 7,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )


def _legend(ax: Axes, colours: dict[str, str], trace: Timeline, predicted: Timeline | None) -> None:
    marks = [Patch(color=colour, label=kind) for kind, colour in colours.items()]
    visible = any(
        message.end_s - message.start_s > 1e-3 * trace.time_s for message in trace.messages
    )
    marks += (
        [Patch(color=SEND, label="sends"), Patch(color=RECEIVE, label="receives")]
        if visible
        else []
    )
    marks += [Patch(color=IDLE, label="idle" if trace.compute else "neither")]
    ax.legend(
        handles=marks,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        handlelength=1.0,
        handleheight=1.0,
        title="bar: measured\nline: predicted" if predicted is not None else None,
        title_fontsize=9,
        alignment="left",
    )
