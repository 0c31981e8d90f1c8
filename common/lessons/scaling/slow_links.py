"""Ranks on slow links that each train for a while before they exchange anything (DiLoCo).

The model guesses the next character of the novel from the six before it: an embedding per place,
a hidden layer with tanh, scores. Its gradient is written out, so that thousands of steps take
seconds.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from common import language_model
from common.training.adam import adam
from nogpu import ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACES, HIDDEN, CHARACTERS = 6, 24, 128
SIZES = PLACES * CHARACTERS * HIDDEN, HIDDEN * CHARACTERS
SIZE = sum(SIZES)  # weights
RATE = 3e-3
HELD_OUT = 60_000  # characters at the novel's end that only the evaluation reads
STEPS, ROWS = 1000, 32  # of training; texts per step, of all ranks together
STEP_S = 1e-3  # of computing, on the simulated machine
LINK = {"alpha_s": 1e-3, "beta_s_per_byte": 1e-8}  # 100 MB/s


@dataclasses.dataclass
class Inner:
    """A rank's own training: its weights, and AdamW's state, which it never sends."""

    flat: Tensor
    rank: int
    m: Tensor
    v: Tensor
    step: int = 0

    @classmethod
    def begun(cls, rank: int) -> "Inner":
        """The same weights on all ranks."""
        flat = initial()
        return cls(flat, rank, torch.zeros_like(flat), torch.zeros_like(flat))

    def train(self, steps: int, rows: int) -> None:
        """So many steps of AdamW, on texts that no other rank draws."""
        for _ in range(steps):
            self.adam(self.gradient(rows))

    def gradient(self, rows: int) -> Tensor:
        """The gradient on this rank's next texts."""
        self.step += 1
        places = np.random.default_rng([self.rank, self.step]).integers(
            0, len(_text()) - HELD_OUT - PLACES - 1, rows
        )
        return slope(self.flat, *_windows(places))

    def adam(self, gradient: Tensor) -> None:
        """A step of Adam with this gradient."""
        adam(self.flat, gradient, self.m, self.v, self.step, RATE)


@functools.cache
def _text() -> Tensor:
    return torch.from_numpy(language_model.tokens(0, len(language_model.text())))


def _windows(places: np.ndarray) -> tuple[Tensor, Tensor]:
    """(rows, 6) indices into the table of embeddings, and the characters that follow."""
    found = _text()[torch.from_numpy(places[:, None] + np.arange(PLACES + 1))]
    return found[:, :PLACES] + CHARACTERS * torch.arange(PLACES), found[:, PLACES]


def initial() -> Tensor:
    """The weights at the beginning, (SIZE,) float32."""
    random = torch.Generator().manual_seed(16)
    parts = [torch.randn(n, generator=random, dtype=torch.float32) for n in SIZES]
    return torch.cat([parts[0] * 0.1, parts[1] * 0.1])


def _scores(flat: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    table, out = flat[: SIZES[0]].view(-1, HIDDEN), flat[SIZES[0] :].view(HIDDEN, -1)
    hidden = table[inputs].sum(1).tanh_()
    return hidden, out, hidden @ out


def slope(flat: Tensor, inputs: Tensor, following: Tensor) -> Tensor:
    """The gradient of the mean cross-entropy, flat."""
    hidden, out, scores = _scores(flat, inputs)
    error = torch.softmax(scores, 1)
    error[torch.arange(len(error)), following] -= 1
    error /= len(error)
    gradient = torch.zeros_like(flat)
    torch.mm(hidden.T, error, out=gradient[SIZES[0] :].view(HIDDEN, -1))
    below = (error @ out.T) * (1 - hidden * hidden)
    table = gradient[: SIZES[0]].view(-1, HIDDEN)
    table.index_add_(0, inputs.flatten(), below.repeat_interleave(PLACES, 0))
    return gradient


def loss(flat: Tensor) -> float:
    """Nats per character on the novel's end."""
    places = len(_text()) - HELD_OUT + np.arange(0, HELD_OUT - PLACES - 1, 12)
    inputs, following = _windows(places)
    scores = _scores(flat.to(torch.float32), inputs)[2]
    return torch.nn.functional.cross_entropy(scores, following).item()


# A rank's life


def data_parallel(dist: Any, steps: int, rows: int) -> Tensor:
    """The weights after training that adds up all gradients at every step."""
    torch.set_num_threads(1)
    inner, p = Inner.begun(dist.get_rank()), dist.get_world_size()
    for _ in range(steps):
        gradient = inner.gradient(rows // p)
        ranks.compute(STEP_S, "step")
        dist.all_reduce(gradient)
        inner.adam(gradient / p)
    return inner.flat


def diloco(
    dist: Any,
    outer_step: Callable[..., None],
    every: int,
    steps: int,
    rows: int,
    away: Mapping[int, Iterable[int]] | None = None,
) -> Tensor:
    """The weights after rounds of `every` inner steps, each followed by an outer step.

    away: {rank: the rounds in which it takes no part}. When it comes back, it begins with the
    weights of the others.
    """
    torch.set_num_threads(1)
    rank, p = dist.get_rank(), dist.get_world_size()
    inner, shared = Inner.begun(rank), initial()
    momentum, left = torch.zeros_like(shared), steps
    for number in range(-(-steps // every)):
        present = number not in set((away or {}).get(rank, ()))
        inner.flat.copy_(shared)
        length = min(every, left)
        left -= length
        if present:
            inner.train(length, rows // p)
            ranks.compute(STEP_S * length, "steps")
        outer_step(dist, shared, inner.flat, momentum, present)
    return shared


def run(function: Callable[..., Any], *args: Any, p: int = 4) -> dict[str, float]:
    """{"loss", "bytes" that a rank sends, "time_s", "busy": the share of time that computes}."""
    result = ranks.run(function, *args, STEPS, ROWS, world_size=p, live_bytes=False, **LINK)
    return _measured(result)


def with_absence(outer_step: Callable[..., None], every: int, away: Any) -> dict[str, float]:
    """`run` of DiLoCo on four ranks, some of which are away in some rounds."""
    arguments = outer_step, every, STEPS, ROWS, away
    return _measured(ranks.run(diloco, *arguments, world_size=4, live_bytes=False, **LINK))


def _measured(result: ranks.Result) -> dict[str, float]:
    trace = result.trace
    return {
        "loss": loss(result.returns[0]),
        "bytes": float(max(trace.bytes_sent)),
        "time_s": trace.time_s,
        "busy": max(trace.compute_s) / trace.time_s,
    }


# Pictures


def draw_losses(
    runs: Mapping[int, Mapping[str, float]], published: Mapping[str, Any]
) -> "Sequence[Axes]":
    """Loss against bytes, by H; and the bandwidth for half the speed, ours and published.

    runs: by H; H = 1 is data parallelism.
    """
    import matplotlib.pyplot as plt

    left, right = axes = plt.subplots(1, 2, figsize=(8.6, 3.3))[1]
    sent = [run["bytes"] / 1e6 for run in runs.values()]
    left.plot(sent, [run["loss"] for run in runs.values()], "o-")
    lowest = min(run["loss"] for run in runs.values())  # its line comes down to it from both sides
    for every, x in zip(runs, sent, strict=True):
        at = x, runs[every]["loss"]
        name = f"H = {every}" if every > 1 else "data\nparallel"
        place = {"xytext": (0, -15), "ha": "center"} if at[1] == lowest else {"xytext": (4, 6)}
        left.annotate(name, at, textcoords="offset points", fontsize=9, **place)
    left.set(xscale="log", xlabel="MB that a rank sends", ylabel="nats per character")
    left.set_title("Loss against bytes")
    left.margins(0.2, 0.2)
    for place, (name, (steps, gbit)) in enumerate(_published_bandwidth(published).items(), 1):
        right.plot(steps, gbit, "s--", ms=5, color=f"C{place}", label=f"{name} (published)")
    right.plot(list(runs), half_speed_gbit(runs), "o-", color="C0", label="our model")
    right.set(xscale="log", yscale="log", xlabel="H", ylabel="Gbit/s")
    right.set_title("Bandwidth for half the speed")
    right.legend(fontsize=8, loc="lower left", framealpha=0)
    return list(axes)


def _published_bandwidth(published: Mapping[str, Any]) -> dict[str, tuple[list[int], list[float]]]:
    """{model: (H, Gbit/s for 50 % utilisation)} of Charles et al. (2025)."""
    lines: dict[str, tuple[list[int], list[float]]] = {}
    table = published["scaling_laws2025"]["table6_gbit_for_utilisation"]["rows"]
    for model, _, method, half, *_ in table:
        every, gbit = lines.setdefault(model, ([], []))
        every.append(int(method.rpartition("H=")[2]))
        gbit.append(half)
    return lines


def half_speed_gbit(runs: Mapping[int, Mapping[str, float]]) -> list[float]:
    """Gbit/s at which the counted bytes take as long as computing."""
    return [run["bytes"] * 8e-9 / (STEPS * STEP_S) for run in runs.values()]


def draw_replicas(losses: Mapping[int, float], published: Mapping[str, Any]) -> "Axes":
    """Loss by number of replicas, over that of one replica: ours and published."""
    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(7.2, 2.9))[1]
    for name, _, *own in published["scaling_laws2025"]["table4_eval_loss"]["rows"]:
        share = [100 * (value / own[0] - 1) for value in own]
        label = "published: 35M weights (top) to 2.4B" if name == "35M" else None
        ax.plot([1, 2, 4, 8], share, color="0.65", lw=1, label=label)
    first = losses[min(losses)]
    ax.plot(list(losses), [100 * (v / first - 1) for v in losses.values()], "o-", label="our model")
    ax.set(xscale="log", xticks=[1, 2, 4, 8], xticklabels=[1, 2, 4, 8], xlabel="replicas")
    ax.set(ylabel="% more loss", title="The same batch, cut over more replicas")
    ax.minorticks_off()
    ax.legend(fontsize=8)
    return ax
