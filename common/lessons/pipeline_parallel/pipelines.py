"""The clock of a pipeline: when each stage does its tasks, if each stage does its list in order.

A task is ("F", i), the forward pass of microbatch i, ("B", i), its backward pass, or ("W", i), its
weight gradients, where they are put off. In an interleaved schedule it has a third entry, the chunk
of layers: chunk c of rank r is stage c·p + r.
"""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from common.checks import expect, is_whole
from nogpu import ranks

if TYPE_CHECKING:
    import ipywidgets
    import torch
    from matplotlib.axes import Axes
    from torch import nn

Task = tuple[Any, ...]  # (kind, microbatch) or (kind, microbatch, chunk)
Tasks = list[list[Task]]  # by rank
Schedule = Callable[[int, int, int], list[Task]]  # (stage, stages, microbatches): its tasks
Seconds = Mapping[str, float]

TOGETHER: Seconds = {"F": 1e-3, "B": 2e-3}  # backward is two products per layer, forward one
APART: Seconds = {"F": 1e-3, "B": 1e-3, "W": 1e-3}  # with the weight gradients as tasks


def on_stages(schedule: Schedule, stages: int, microbatches: int) -> Tasks:
    """The schedule's lists of tasks, by stage."""
    return [schedule(stage, stages, microbatches) for stage in range(stages)]


def seconds_of(tasks: Tasks) -> Seconds:
    """The course's clock: 1 ms for each task, 2 ms for a backward with its weight gradients."""
    return APART if any(task[0] == "W" for own in tasks for task in own) else TOGETHER


def played(tasks: Tasks, seconds: Seconds | Sequence[Seconds] | None = None) -> ranks.Trace:
    """The Trace of ranks that do these lists of tasks, each task as soon as it can.

    seconds: of each kind of task, for all ranks or by rank. Messages take no time. AssertionError
    if no rank can go on.
    """
    p = len(tasks)
    seconds = seconds or seconds_of(tasks)
    by_rank = [seconds] * p if isinstance(seconds, Mapping) else seconds
    stages = p * (1 + max((_chunk(task) for own in tasks for task in own), default=0))
    left, spans, free_s = [list(own) for own in tasks], [], [0.0] * p
    over_s: dict[Task, float] = {}  # (stage, kind, microbatch): when it was over
    while any(left):
        went_on = False
        for rank in range(p):
            while left[rank]:
                (kind, i), chunk = left[rank][0][:2], _chunk(left[rank][0])
                stage = chunk * p + rank
                before = [over_s.get(task) for task in _needed(stage, kind, i, stages)]
                if None in before:
                    break
                start_s = max([free_s[rank], *(time_s for time_s in before if time_s is not None)])
                free_s[rank] = over_s[stage, kind, i] = start_s + by_rank[rank][kind]
                name = f"{kind}{i}.{chunk}" if stages > p else f"{kind}{i}"
                spans.append(ranks.Span(rank, name, start_s, free_s[rank]))
                del left[rank][0]
                went_on = True
        expect(went_on, f"No stage can go on. These tasks are left:\n{written(left)}")
    return ranks.Trace(p, end_s=free_s, compute=spans)


def _chunk(task: Task) -> int:
    return task[2] if len(task) == 3 else 0


def _needed(stage: int, kind: str, i: int, stages: int) -> list[Task]:
    """The tasks (stage, kind, microbatch) that must be over before this one begins."""
    wanted = {
        "F": [(stage - 1, "F")],
        "B": [(stage, "F"), (stage + 1, "B")],
        "W": [(stage, "B")],
    }[kind]
    return [(s, k, i) for s, k in wanted if 0 <= s < stages]


def written(tasks: Tasks) -> str:
    """The lists as lines, "stage 0:  F0 F1 B0 B1"."""
    lines = (" ".join(map(_name, own)) for own in tasks)
    return "\n".join(f"stage {stage}:  {line}" for stage, line in enumerate(lines))


def _name(task: Task) -> str:
    """("F", 0) as "F0", and ("F", 0, 1), of chunk 1, as "F0.1"."""
    return "".join(map(str, task[:2])) + "".join(f".{chunk}" for chunk in task[2:])


def held(tasks: Sequence[Task]) -> int:
    """The most microbatches that a stage with this list holds at once.

    A microbatch is held from its F until its last task: B, or W where weight gradients are put off.
    """
    last = "W" if any(task[0] == "W" for task in tasks) else "B"
    changes = ((task[0] == "F") - (task[0] == last) for task in tasks)
    return max(itertools.accumulate(changes), default=0)


def expect_each_once(
    tasks: object, kinds: str, microbatches: int, case: str, chunks: int | None = None
) -> None:
    """Raise AssertionError unless this is a list with each kind of each microbatch once.

    chunks: how many there are per rank; None if tasks name no chunk.
    """
    form = "(kind, i)" if chunks is None else "(kind, i, chunk)"
    if not (isinstance(tasks, list) and all(isinstance(task, tuple) for task in tasks)):
        raise AssertionError(f"{case} gave {tasks!r:.200}, want a list of tuples {form}.")
    places = [()] if chunks is None else [(chunk,) for chunk in range(chunks)]
    want = [(kind, i, *at) for kind in kinds for i in range(microbatches) for at in places]
    got = [repr(_plain(task)) for task in tasks]
    faults = {
        "lacks": [task for task in want if repr(task) not in got],
        "does twice": [task for task in want if got.count(repr(task)) > 1],
        "has also": [task for task in map(_plain, tasks) if repr(task) not in set(map(repr, want))],
    }
    for what, found in faults.items():
        names = ", ".join(kinds)
        tried = f"It gave {written([tasks])[10:]}."
        expect(
            not found,
            f"{case} {what} {found[:4]}. Each of {names} is done once per microbatch. {tried}",
        )


def _plain(task: Task) -> Task:
    """The task as a tuple of Python's own numbers and strings: those of NumPy mean the same."""
    return tuple(
        int(part) if is_whole(part) else str(part) if isinstance(part, str) else part
        for part in task
    )


def draw_beside(tasks: Tasks, wanted: Tasks, row: str = "stage") -> "Sequence[Axes]":
    """The timeline of these lists above the wanted one, which is alone if they get stuck."""
    try:
        yours = played(tasks)
    except AssertionError:
        return [played(wanted).draw(title="What was wanted", row=row)]
    return yours.draw_beside(played(wanted), row=row)


def draw_losses(alone: "Sequence[torch.Tensor]", stages: "Sequence[torch.Tensor]") -> "Axes":
    """The losses of one device as a line and those of a pipeline as dots, step by step."""
    import matplotlib.pyplot as plt
    import numpy as np

    from common import language_model

    text = language_model.tokens(0, len(language_model.text()))
    shares = np.unique(text, return_counts=True)[1] / len(text)
    ax = plt.subplots(figsize=(7.2, 2.8))[1]
    ax.plot(alone, label="one device")
    ax.plot(stages, "o", label="in stages")
    ax.axhline(-(shares * np.log(shares)).sum(), color="C2", ls=":", label="frequencies alone")
    title = "The language model learns in stages"
    ax.set(xlabel="step", ylabel="nats per character", title=title, ylim=(0, None))
    ax.legend()
    return ax


def draw_stages(
    stages: Sequence[int],
    lines: Mapping[str, Callable[[float], float]],
    dots: Mapping[str, Sequence[float]],
) -> "Axes":
    """The idle share by number of stages: predicted lines and counted dots."""
    from common import figures

    ax = figures.predicted_and_measured(
        stages,
        lines,
        dots,
        dots_are="counted",
        log="x",
        xlabel="stages p",
        ylabel="share of time idle",
        title="The same cluster, cut into more stages",
    )
    ax.set(ylim=(0, 1), xticks=stages, xticklabels=stages)
    ax.minorticks_off()
    if (legend := ax.get_legend()) is not None:
        legend.set_loc("upper left")
    return ax


# Real layers


def watched(stage: Any, prefix: str = "") -> type:
    """The class Stage, each of whose tasks is a span in the trace: "F0", after the prefix."""

    class Watched(stage):
        def forward(self, i: int, *args: Any) -> Any:
            with ranks.span(f"{prefix}F{i}"):
                return super().forward(i, *args)

        def backward(self, i: int, *args: Any) -> Any:
            with ranks.span(f"{prefix}B{i}"):
                return super().backward(i, *args)

    return Watched


def timed_step(
    dist: Any, stage: Any, run_stage: Any, links: Any, tasks: list[Task], blocks: int, size: int
) -> None:
    """A rank of a pipeline of real layers; each of its tasks is a span in the trace.

    stage, run_stage: the student's. blocks: perceptrons of this width per stage; a microbatch is
    (size, size). First each microbatch passes by itself ("alone F0"); then there are two steps, of
    which the first one warms up.
    """
    import torch

    torch.manual_seed(dist.get_rank())
    torch.set_num_threads(1)  # on CPUs, ranks share the cores
    m, last = 1 + max(i for _, i in tasks), dist.get_rank() == dist.get_world_size() - 1
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    layers = _blocks(blocks, size, dtype)
    loss = torch.nn.functional.mse_loss if last else None
    xs, ts = torch.randn(2, m, size, size, dtype=dtype)
    inputs = [x.detach().requires_grad_() for x in xs]  # the first stage works as much as others
    alone = watched(stage, "alone ")(layers, m, loss)
    for i, x in enumerate(inputs):
        y = alone.forward(i, x, ts[i])
        alone.backward(i, None if last else y)
    for _ in range(2):
        layers.zero_grad()
        dist.all_reduce(torch.zeros(1))  # all begin at one instant
        with ranks.span("step"):
            like = torch.empty_like(xs[0])
            run_stage(dist, watched(stage)(layers, m, loss), tasks, inputs, ts, like, links)


def _blocks(count: int, width: int, dtype: "torch.dtype") -> "nn.Sequential":
    from torch import nn

    layers: list[nn.Module] = []
    for _ in range(count):
        layers += [nn.Linear(width, width, bias=False, dtype=dtype), nn.GELU()]
    return nn.Sequential(*layers)


def last_step(trace: ranks.Trace) -> tuple[ranks.Trace, list[dict[str, float]]]:
    """(the last step of timed_step as a Trace, {kind: seconds of a task by itself} by rank)."""
    spans, alone = [], []
    for rank in range(trace.world_size):
        step = trace.spans_named("step", rank)[-1]
        for kind in "FB":
            spans += [
                ranks.Span(rank, span.name, span.start_s - step.start_s, span.end_s - step.start_s)
                for span in trace.spans_named(f"{kind}*", rank)
                if step.start_s <= span.start_s < step.end_s
            ]
        alone.append(
            {
                kind: statistics.median(
                    span.duration_s for span in trace.spans_named(f"alone {kind}*", rank)
                )
                for kind in "FB"
            }
        )
    zero_s, end_s = min(span.start_s for span in spans), max(span.end_s for span in spans)
    spans = [
        ranks.Span(span.rank, span.name, span.start_s - zero_s, span.end_s - zero_s)
        for span in spans
    ]
    p = trace.world_size
    return ranks.Trace(p, trace.machine, [end_s - zero_s] * p, compute=spans), alone


# The widget


def explorer(
    schedules: Mapping[str, Schedule], *, idle: float = 0.05, holds: int = 4, microbatches: int = 24
) -> "ipywidgets.VBox":
    """Choose a schedule, stages and microbatches; the widget says when the target is reached.

    The target: with four stages, idle less than this share of the time, while a stage holds at most
    this many microbatches, in at most this many microbatches per step.
    """
    import ipywidgets
    import matplotlib.pyplot as plt

    calm = {"continuous_update": False}  # one drawing per move, not one per step of it
    name = ipywidgets.Dropdown(options=list(schedules), description="schedule")
    stages = ipywidgets.IntSlider(4, 2, 8, description="stages", **calm)
    count = ipywidgets.IntSlider(8, 8, 32, description="microbatches", **calm)

    def draw(name: str, stages: int, count: int) -> None:
        tasks = on_stages(schedules[name], stages, count)
        trace, most = played(tasks), max(map(held, tasks))
        reached = stages == 4 and trace.bubble < idle and most <= holds and count <= microbatches
        target = f"target: four stages, idle under {idle:.0%}, at most {holds} held, "
        target += f"at most {microbatches} microbatches: {'reached' if reached else 'not yet'}"
        title = f"{name}: idle {trace.bubble:.1%}, a stage holds at most {most}\n({target})"
        trace.draw(title=title, row="stage")
        plt.show()

    picture = ipywidgets.interactive_output(draw, {"name": name, "stages": stages, "count": count})
    return ipywidgets.VBox([ipywidgets.HBox([name, stages, count]), picture])
