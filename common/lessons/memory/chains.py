"""Chains of layers whose activations are dropped and computed again: what is live, what it costs.

Layer i reads activation i and makes activation i + 1. A plan is a list of tasks: ("F", i) computes
layer i, ("D", i) drops activation i, ("B", i) is layer i's backward, which reads activation i and
frees it. The runtime here plays a plan and counts; it believes nothing else.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from common.checks import expect, is_whole

if TYPE_CHECKING:
    import ipywidgets
    import torch
    from torch import nn

Task = tuple[str, int]
Segment = tuple[int, int]
CHOICES = ["keep", "again", "with last"]  # for a layer


@dataclasses.dataclass(frozen=True)
class Played:
    """What a plan did: activations live after each task, and how often each layer computed."""

    live: list[int]
    computed: list[int]
    first_backward: int

    @property
    def peak(self) -> int:
        """The most activations that are live in backward."""
        return max(self.live[self.first_backward :], default=0)

    @property
    def forward_peak(self) -> int:
        """The most activations that are live before backward begins."""
        return max(self.live[: self.first_backward], default=0)

    @property
    def again(self) -> int:
        """Layers computed a second time, or more often."""
        return sum(self.computed) - len(self.computed)


def played(tasks: object, n: int, case: str) -> Played:
    """Plays a plan for n layers; AssertionError if it can't be done."""
    fine = isinstance(tasks, list) and all(
        isinstance(task, tuple) and len(task) == 2 and task[0] in ("F", "D", "B") for task in tasks
    )
    if not (fine and isinstance(tasks, list)):
        raise AssertionError(f"{case} gave {tasks!r:.200}, want a list of tuples like ('F', 0)")
    alive, live, computed, back, turn = {0}, [], [0] * n, n - 1, len(tasks)
    for place, (kind, i) in enumerate(tasks):
        at = f"{case}: task {place}, {(kind, i)!r}"
        expect(is_whole(i) and 0 <= i < n, f"{at}: there are layers 0 to {n - 1}")
        expect(i in alive, f"{at} needs activation {i}, which is not there{_why(tasks, place, i)}")
        if kind == "F":
            computed[i] += 1
            alive.add(i + 1)
        if kind == "B":
            expect(i == back, f"{at}: the backward of layer {back} comes first")
            expect(all(computed), f"{at}: forward has not ended")
            turn, back = min(turn, place), back - 1
            alive.discard(i + 1)
        live.append(len(alive - {n}))
        if kind != "F":
            alive.discard(i)
    expect(back < 0, f"{case}: the backward of layer {back} is missing")
    return Played(live, computed, turn)


def _why(tasks: Sequence[Task], place: int, i: int) -> str:
    before = [kind for kind, number in tasks[:place] if number == i and kind != "F"]
    return {"D": ": it was dropped", "B": ": its backward is over"}.get((before or [""])[-1], "")


def saved_over_time(
    inputs: Sequence[int], saved: Sequence[int], segments: Sequence[Segment]
) -> list[int]:
    """Bytes saved while each layer's backward begins, from the last layer to the first.

    inputs: of each layer's input; saved: of all that a layer keeps for backward, its input among
    it. Each of the segments (start, stop) keeps its first layer's input only, until its backward
    computes these layers again.
    """
    n = len(saved)
    start_of = {i: start for start, stop in segments for i in range(start, stop)}
    kept = [0 if i in start_of else saved[i] for i in range(n)]
    for start, _ in segments:
        kept[start] = inputs[start]
    counts = []
    for layer in reversed(range(n)):
        start = start_of.get(layer)
        if start is None:
            counts.append(sum(kept[: layer + 1]))
        else:
            counts.append(sum(kept[:start]) + sum(saved[start : layer + 1]))
    return counts


def segments_peak(inputs: Sequence[int], saved: Sequence[int], segments: Sequence[Segment]) -> int:
    """The most bytes that are saved at once."""
    return max(saved_over_time(inputs, saved, segments), default=0)


def segments_cost(costs: Sequence[int], segments: Sequence[Segment]) -> int:
    """What computing these segments again costs."""
    return sum(sum(costs[start:stop]) for start, stop in segments)


def segments_fault(segments: object, n: int) -> str:
    """Why this is no list of segments of n layers; "" if it is one."""
    if not isinstance(segments, list):
        return f"it is {segments!r:.100}, want a list of (start, stop)"
    end = 0
    for segment in segments:
        if not (isinstance(segment, tuple) and len(segment) == 2 and all(map(is_whole, segment))):
            return f"{segment!r:.100} is no pair (start, stop) of ints"
        if not end <= segment[0] < segment[1] <= n:
            return f"segment {segment} must be inside 0 to {n}, not empty, and after the one before"
        end = segment[1]
    return ""


# Real layers


def unequal(widths: Sequence[int]) -> "list[nn.Module]":
    """Layers of a network: a matrix and a GELU each."""
    from torch import nn

    return [
        nn.Sequential(nn.Linear(n, m, bias=False), nn.GELU()) for n, m in itertools.pairwise(widths)
    ]


def run(layers: "Sequence[nn.Module]", segments: Sequence[Segment], x: "torch.Tensor") -> Any:
    """The output of layers in turn; these segments under torch.utils.checkpoint."""
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    stops = dict(segments)
    number = 0
    while number < len(layers):
        stop = stops.get(number, 0)
        piece = nn.Sequential(*layers[number : stop or number + 1])
        x = checkpoint(piece, x, use_reentrant=True) if stop else piece(x)
        number = stop or number + 1
    return x


def measured_peak(
    layers: "Sequence[nn.Module]", segments: Sequence[Segment], x: "torch.Tensor"
) -> int:
    """The most bytes that autograd saves at once, in forward and backward, without weights."""
    from torch import nn

    from common.lessons.memory import memory_profile as live

    with live.Watch(nn.Sequential(*layers)) as watch:
        watch.label("activations", [x])
        run(layers, segments, x).sum().backward()
    return watch.most("activations")


# Pictures


def draw_plans(plans: dict[str, Played], title: str) -> Axes:
    """Axes with the live activations of several plans, task by task of their backward."""
    ax = plt.subplots(figsize=(7.4, 3.2))[1]
    for place, (name, plan) in enumerate(plans.items()):
        counts = plan.live
        style: Any = {"where": "post", "color": f"C{place}", "linestyle": ["-", "--", ":"][place]}
        label = f"{name}: peak {plan.peak}, {plan.again} layers again"
        ax.step(range(len(counts)), counts, label=label, **style)
    ax.set(xlabel="tasks", ylabel="live activations", title=title, ylim=(0, None))
    ax.legend()
    return ax


def draw_segments(
    costs: Sequence[int],
    inputs: Sequence[int],
    saved: Sequence[int],
    segments: Sequence[Segment],
    budget: int,
    least: int | None = None,
) -> Axes:
    """Axes with the bytes saved during backward, under a budget. least: the best cost known."""
    counts = saved_over_time(inputs, saved, segments)
    cost, n = segments_cost(costs, segments), len(saved)
    ax = plt.subplots(figsize=(7.4, 2.6))[1]
    colors = ["C1" if any(a <= i < b for a, b in segments) else "C0" for i in range(n)]
    ax.bar([str(i) for i in reversed(range(n))], counts, color=colors[::-1])
    ax.axhline(budget, color="C3", linestyle="--")
    fits = max(counts) <= budget
    state = "does not fit" if not fits else "target reached" if cost == least else "fits"
    ax.set(
        xlabel="backward of layer (orange: computed again)",
        ylabel="MB saved",
        title=f"{max(counts)} of {budget} MB, {cost} ms more: {state}",
    )
    return ax


def segments_of(choices: Iterable[str]) -> list[Segment]:
    """The segments that one of CHOICES for each layer makes."""
    segments: list[Segment] = []
    for i, choice in enumerate(choices):
        if choice == "with last" and segments and segments[-1][1] == i:
            segments[-1] = segments[-1][0], i + 1
        elif choice != "keep":
            segments.append((i, i + 1))
    return segments


def game(
    costs: Sequence[int], inputs: Sequence[int], saved: Sequence[int], budget: int
) -> "ipywidgets.VBox":
    """Choose what each layer does; the target is the least time that fits the budget."""
    import ipywidgets

    every = map(segments_of, itertools.product(CHOICES, repeat=len(costs)))
    fitting = (some for some in every if segments_peak(inputs, saved, some) <= budget)
    least = min(segments_cost(costs, some) for some in fitting)
    rows = [
        ipywidgets.Dropdown(
            options=CHOICES[: 3 if i else 2],
            description=f"{i}: {costs[i]} ms, {saved[i]} MB",
            style={"description_width": "110px"},
            layout={"width": "230px"},
        )
        for i in range(len(costs))
    ]

    def draw(**chosen: str) -> None:
        draw_segments(costs, inputs, saved, segments_of(chosen.values()), budget, least)
        plt.show()

    picture = ipywidgets.interactive_output(draw, {f"l{i}": row for i, row in enumerate(rows)})
    picture.layout.min_height = "260px"
    box = ipywidgets.GridBox(rows, layout={"grid_template_columns": "repeat(3, 240px)"})
    return ipywidgets.VBox([box, picture])
