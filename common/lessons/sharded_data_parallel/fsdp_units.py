"""Units: pieces of a model whose weights are one flat vector, of which each rank keeps a shard."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn
from torch.func import functional_call

from common import language_model
from common.training.replicas import Shard, flattened
from nogpu import ranks

if TYPE_CHECKING:
    import ipywidgets

WIDTHS = (64, 23, 17, 21, 10)  # of the perceptron: no two of its layers have equally many weights
INSTANT_S = 1e-12  # after what happens at a time, and before what happens next
WIDE = [64] * 8  # inputs of the eight layers
TABLE_BYTES = 4 << 20  # of a unit that stands out from all else that a process holds
BYTES = {  # per weight on each of p ranks: itself and its gradient in bf16; in fp32 a copy, m and v
    0: lambda p: (2.0, 2.0, 12.0),
    1: lambda p: (2.0, 2.0, 12 / p),
    2: lambda p: (2.0, 2 / p, 12 / p),
    3: lambda p: (2 / p, 2 / p, 12 / p),
}
STAGES = {0: "data parallel", 1: "ZeRO-1", 2: "ZeRO-2", 3: "ZeRO-3 (FSDP)"}
TRAFFIC = {0: 2, 1: 2, 2: 2, 3: 3}  # bytes on the wire over bytes of the weights, for many ranks

Mark = Callable[..., None]  # mark(*numbers)


class Unit:
    """A piece of a model on one rank: unit(x) computes it with the gathered weights.

    shard: this rank's weights, (⌈size / p⌉,). gradient: the shard of their gradient. size: how many
    weights the unit has, without padding. full: all its weights, padded, while they are gathered;
    else None.
    """

    def __init__(
        self,
        number: int,
        module: nn.Module,
        shard: Tensor,
        gradient: Tensor | None,
        mark: Mark | None = None,
    ) -> None:
        self.number, self.module, self.shard, self.mark = number, module, shard, mark
        self.shapes = {name: weight.shape for name, weight in module.named_parameters()}
        self.size = sum(shape.numel() for shape in self.shapes.values())
        self.gradient: Any = gradient
        self.full: Any = None

    def __call__(self, x: Tensor) -> Tensor:
        """The output for this input."""
        if self.full is None or not self.full.untyped_storage().nbytes():
            raise ValueError(f"unit {self.number} computes, but its weights are not gathered")
        sizes = [shape.numel() for shape in self.shapes.values()]
        *parts, _ = self.full.split([*sizes, len(self.full) - self.size])  # the last is padding
        views = [part.view(shape) for part, shape in zip(parts, self.shapes.values(), strict=True)]
        y = functional_call(self.module, dict(zip(self.shapes, views, strict=True)), (x,))
        if self.mark:
            self.mark(self.number, *digest(y))
        return y


def digest(output: Tensor) -> tuple[float, float]:
    """Two numbers that nobody knows before this output is computed."""
    values = output.detach().double()
    return values.sum().item(), values.square().sum().item()


def modules(kind: str) -> list[nn.Module]:
    """The pieces of a model: "perceptron", "tied" (its layers 1 and 3 are one), or "language".

    "characters" has integers as its input, as "language" does, and is as small as the perceptron.
    """
    if kind == "language":
        return list(language_model.module(trained=False, layers=2, width=32, heads=2, hidden=128))
    if kind == "tied":
        again = nn.Sequential(nn.Linear(20, 20), nn.Tanh())
        ends = nn.Sequential(nn.Linear(64, 20), nn.Tanh()), nn.Linear(20, 10)
        return [ends[0], again, nn.Sequential(nn.Linear(20, 20), nn.Tanh()), again, ends[1]]
    if kind == "characters":
        return [Characters(), nn.Sequential(nn.Linear(8, 12), nn.Tanh()), nn.Linear(12, 128)]
    widths = [*WIDE, 10] if kind == "deep" else WIDTHS
    layers: list[nn.Module] = [
        nn.Sequential(nn.Linear(n, m), nn.Tanh()) for n, m in itertools.pairwise(widths[:-1])
    ]
    return [*layers, nn.Linear(widths[-2], widths[-1])]


def weights_of(kind: str, seed: int) -> list[Tensor]:
    """Each piece's weights, flat."""
    torch.manual_seed(seed)
    return [flattened(module.parameters()) for module in modules(kind)]


def sizes_of(kind: str) -> list[int]:
    """How many weights each piece has."""
    with torch.device("meta"):
        return [sum(w.numel() for w in module.parameters()) for module in modules(kind)]


def units(
    dist: Any,
    kind: str,
    shards: Sequence[Tensor],
    gradients: Sequence[Tensor] | None = None,
    marked: bool = False,
) -> list[Unit]:
    """The units of a model, one for each shard of this rank; a tied piece is one unit.

    gradients: by shard; None: not yet. marked: whether each computation leaves a mark among the
    collectives of the trace, so that a check sees what was gathered before. The digest of the
    output is in the mark: who makes a mark by hand must have computed by then.
    """
    mark = marker(dist) if marked else None
    slots = gradients or [None] * len(shards)
    with torch.device("meta"):
        pieces = modules(kind)
    made = {
        id(piece): Unit(number, piece, shard, slots[number], mark)
        for number, (piece, shard) in reversed(list(enumerate(zip(pieces, shards, strict=True))))
    }
    ranks.label("weights", list(shards))
    ranks.label("gradients", gradients)
    return [made[id(piece)] for piece in pieces]


class Table(nn.Module):
    """Many weights that hardly compute, so that its memory is that of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(TABLE_BYTES // 64, 8))

    def forward(self, x: Tensor) -> Tensor:
        """x (rows, 8), times the first rows of weights."""
        return x * self.weight[: len(x)]


class Characters(nn.Module):
    """A row of weights per character. (To make an nn.Embedding on "meta" takes seconds.)"""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(128, 8).uniform_(-1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(..., 8) from the characters' numbers x (...)."""
        return self.weight[x]


class Unchanged(list[Unit]):
    """Units whose shards stay as they are: a loop over them raises at the first that changed."""

    def __iter__(self) -> Iterator[Unit]:
        for unit in super().__iter__():
            shard, version = unit.shard, unit.shard._version
            yield unit
            if unit.shard is not shard or shard._version != version:
                raise ValueError("release must leave unit.shard as it is: it frees unit.full only")


def tables(dist: Any, count: int) -> list[Unit]:
    """Units of TABLE_BYTES each, with this rank's shards of weights and gradient."""
    with torch.device("meta"):
        pieces = [Table() for _ in range(count)]
    size = TABLE_BYTES // 8 // dist.get_world_size()
    shards = [torch.full((size,), 1.0 + dist.get_rank()) for _ in pieces]
    made = Unchanged(
        Unit(number, piece, shard, torch.zeros_like(shard))
        for number, (piece, shard) in enumerate(zip(pieces, shards, strict=True))
    )
    ranks.label("weights", shards)
    ranks.label("gradients", [unit.gradient for unit in made])
    return made


def marker(dist: Any) -> Mark:
    """mark(*numbers): a broadcast of these numbers within a group of this rank alone."""
    rank = dist.get_rank()
    alone = [dist.new_group([other]) for other in range(dist.get_world_size())][rank]

    def mark(*numbers: float) -> None:
        dist.broadcast(torch.tensor(numbers, dtype=torch.float64), rank, group=alone)

    return mark


def events(trace: ranks.Trace, rank: int, sizes: Sequence[int]) -> list[tuple[str, int]]:
    """[("gather", unit), ("compute", unit), ("reduce", unit), ...] of a rank, as they came.

    sizes: numbers of each unit; all differ. An event that fits no unit has the number -1.
    """
    p = trace.world_size
    number = {-(-size // p): i for i, size in enumerate(sizes)}
    named = {"all_gather": "gather", "reduce_scatter": "reduce"}
    found = []
    for call in trace.calls(rank):
        if call.name == "broadcast" and call.group:
            found.append(("compute", int(call.values[0]) if call.values else -1))
        elif call.name in named:
            found.append((named[call.name], number.get(call.bytes // 8, -1)))
    return found


# Pictures


def draw_categories(trace: ranks.Trace, title: str) -> Axes:
    """A bar per rank: what is live when most is live, one category beside the other."""
    ax = plt.subplots(figsize=(7.2, 0.9 + 0.36 * trace.world_size))[1]
    points = [max(own, key=_total)[1] for own in trace.live_by_category]
    left = [0.0] * len(points)
    for place, category in enumerate(points[0]):
        counts = [own[category] / 1e3 for own in points]
        if any(counts):
            names = [f"rank {rank}" for rank in range(len(points))]
            ax.barh(names, counts, left=left, color=f"C{place}", label=category)
        left = [start + n for start, n in zip(left, counts, strict=True)]
    ax.set(xlabel="kB, when most is live", title=title)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.32))
    return ax


def _total(point: tuple[float, Mapping[str, int]]) -> int:
    return sum(point[1].values())


def draw_gathered(traces: Mapping[str, ranks.Trace]) -> Sequence[Axes]:
    """The bytes of gathered weights on rank 0 over time, a panel per trace."""
    size = 7.2, 1.1 * len(traces) + 0.6
    axes = plt.subplots(len(traces), 1, figsize=size, sharex=True, squeeze=False)[1][:, 0]
    top = max(trace.peak_by_category[0]["gathered"] for trace in traces.values()) / 1e3
    for ax, (name, trace) in zip(axes, traces.items(), strict=True):
        points = trace.live_by_category[0]
        times = [time_s * 1e3 for time_s, _ in points]
        ax.step(times, [counts["gathered"] / 1e3 for _, counts in points], where="post", color="C3")
        ax.set(ylabel="kB", ylim=(0, 1.2 * top), title=f"program {name}")
    axes[-1].set_xlabel("virtual time (ms)")
    return list(axes)


def draw_budget(
    stage: int, p: int, billions: float, room_gb: float, least: tuple[int, int]
) -> Axes:
    """Bytes per rank of a model at this stage on p ranks, beside the room of a device."""
    parts = dict(zip(("weights", "gradients", "optimizer"), BYTES[stage](p), strict=True))
    ax = plt.subplots(figsize=(7.2, 1.7))[1]
    left = 0.0
    for place, (name, count) in enumerate(parts.items()):
        ax.barh(0, billions * count, left=left, color=f"C{place}", label=name)
        left += billions * count
    ax.axvline(room_gb, color="C3", linestyle="--")
    reached = (stage, p) == least
    state = "target reached" if reached else "fits" if left <= room_gb else "does not fit"
    title = (
        f"{STAGES[stage]}, {p} ranks: {left:.0f} GB, traffic {TRAFFIC[stage]} × weights: {state}"
    )
    ax.set(yticks=(), xlim=(0, 220), xlabel="GB per rank", title=title)
    ax.legend(ncols=3, loc="upper right")
    return ax


def budget(billions: float = 13, room_gb: float = 80) -> "ipywidgets.VBox":
    """Choose a stage and the number of ranks; the target is the fewest ranks at traffic 2."""
    import ipywidgets

    fitting = (
        (p, stage)
        for p in (1, 2, 4, 8, 16, 32, 64)
        for stage in BYTES
        if TRAFFIC[stage] == 2 and billions * sum(BYTES[stage](p)) <= room_gb
    )
    p, stage = min(fitting)
    kinds = ipywidgets.Dropdown(options=[(name, n) for n, name in STAGES.items()])
    count = ipywidgets.SelectionSlider(options=[1, 2, 4, 8, 16, 32, 64], description="ranks")

    def draw(kind: int, ranks_: int) -> None:
        draw_budget(kind, ranks_, billions, room_gb, (stage, p))
        plt.show()

    picture = ipywidgets.interactive_output(draw, {"kind": kinds, "ranks_": count})
    picture.layout.min_height = "190px"
    return ipywidgets.VBox([ipywidgets.HBox([kinds, count]), picture])


def padded(size: int, p: int) -> int:
    """How many numbers p equal shards of a vector of this size have."""
    return math.ceil(size / p) * p


# Runs of the notebook's own functions


def run(
    train: Callable[..., Any], data: Sequence[Shard], machine: Mapping[str, Any], **options: Any
) -> ranks.Trace:
    """The trace of one step of the eight layers. data: this step's rows, by rank."""
    p, total = len(data), sum(len(inputs) for inputs, _ in data)
    flats = weights_of("deep", 1)
    shards = [
        [nn.functional.pad(flat, (0, padded(len(flat), p) - len(flat))) for flat in flats]
        for _ in data
    ]
    own = [[flat.view(p, -1)[rank].clone() for flat in flats] for rank, flats in enumerate(shards)]
    batches = [[(*rows, total)] for rows in data]
    arguments = "deep", ranks.each(own), ranks.each(batches), 1.0, 1
    return ranks.run(train, *arguments, world_size=p, **machine, **options).trace


def step_s(train: Callable[..., Any], data: Sequence[Shard], machine: Mapping[str, Any]) -> float:
    """Virtual seconds of a step."""
    return run(train, data, machine, live_bytes=False).time_s


def held(train: Callable[..., Any], data: Sequence[Shard], machine: Mapping[str, Any]) -> list[int]:
    """Bytes that rank 0 holds while each unit computes, forward and backward, without activations.

    Of `train`, which gathers one unit ahead: a unit computes after the next gather has begun.
    """
    trace = run(train, data, machine)
    forward, backward = (trace.spans_named(name, 0)[0] for name in ("forward", "backward"))
    points, instants = trace.live_by_category[0], []
    for span in (forward, backward):
        starts = [call.start_s for call in trace.calls(0) if span.start_s <= call.start_s]
        names = [call.name for call in trace.calls(0) if span.start_s <= call.start_s]
        gathers = [s for s, name in zip(starts, names, strict=True) if name == "all_gather"]
        sums = [s for s, name in zip(starts, names, strict=True) if name == "reduce_scatter"]
        end_s = forward.end_s if span is forward else sums[len(WIDE) - 1]
        instants += [s + INSTANT_S for s in gathers[1 : len(WIDE)]] + [end_s - INSTANT_S]
    return [_at(points, time_s) for time_s in instants]


def _at(points: Sequence[tuple[float, Mapping[str, int]]], time_s: float) -> int:
    """Bytes at this time of all that is not a buffer."""
    counts = [counts for at_s, counts in points if at_s <= time_s][-1]
    return sum(counts.values()) - counts["buffers"]
