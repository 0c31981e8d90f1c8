"""What a planner says, in pictures: predicted and published, where MFU goes, the best layouts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from common import samples
from common.checks import open_exercise
from common.lessons.scaling import cluster_model, published_runs
from common.lessons.scaling.cluster_model import Cluster, Layout, Model
from common.lessons.scaling.published_runs import Run

if TYPE_CHECKING:
    import ipywidgets
    from matplotlib.axes import Axes

Step = Callable[[Model, Cluster, Layout], Any]
Memory = Callable[[Model, Layout], Any]
MODELS = {
    "1.3 B": Model(24, 2048, 16, 16, 8192, 50_304, 2048),
    "Llama 3 8B": Model(32, 4096, 32, 8, 14_336, 128_256, 8192, gated=True, tied=False),
    "Llama 3 70B": Model(80, 8192, 64, 8, 28_672, 128_256, 8192, gated=True, tied=False),
    "GPT-3 175B": Model(96, 12_288, 96, 96, 49_152, 51_200, 2048),
    "Llama 3 405B": Model(126, 16_384, 128, 8, 53_248, 128_256, 8192, gated=True, tied=False),
}


@functools.cache
def published() -> list[Run]:
    """The published runs that say enough for a planner: dense, tier A, 16 bits."""
    found = []
    for row in map(published_runs.tidy, samples.published_runs()["rows"]):
        if row["tier"] == "A" and published_runs.in_16_bits(row):
            try:
                found.append(published_runs.run_of(row))
            except ValueError:
                continue  # the lab's first figure says how many, and why
    return found


def named() -> dict[str, Run]:
    """The same, by id."""
    return {run.row["id"]: run for run in published()}


def short(source: str) -> str:
    """A source's name for a figure."""
    names = ("SC21", "Korthikanti", "Llama 3", "Megatron-Core", "TorchTitan", "llm-foundry")
    names += ("nanotron", "Zero Bubble", "BLOOM", "Hagemann")
    return next((name for name in names if name in source), source.split(" (")[0])


class Sheet(NamedTuple):
    """A planner's marks on the published runs."""

    median_error: float
    rank_correlation: float  # median over sweeps of six and more layouts
    memory_right: float


def marks(step_s: Sequence[float], needed_bytes: Sequence[float]) -> Sheet:
    """The marks of these predictions, one for each run of `published`."""
    some = published()
    real = np.array([run.step_s or np.nan for run in some])
    predicted = np.asarray(step_s, float)
    ratio = np.abs(predicted / real - 1)[~np.isnan(real)]
    if not np.isfinite(ratio).all():
        return Sheet(np.inf, -1.0, 0.0)
    sweeps: dict[Any, list[int]] = {}
    for i, run in enumerate(some):
        if run.step_s:
            sweeps.setdefault((run.model, run.cluster, run.layout.batch), []).append(i)
    ranks = [_rank(real[i], predicted[i]) for i in sweeps.values() if len(i) >= 6]
    known = [i for i, run in enumerate(some) if run.fits is not None]
    right = [
        bool(cluster_model.fits(needed_bytes[i], some[i].cluster)) == some[i].fits for i in known
    ]
    return Sheet(float(np.median(ratio)), float(np.median(ranks)), float(np.mean(right)))


def _rank(real: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's rank correlation; 0 for a planner that cannot tell layouts apart."""
    places = [
        np.array([(np.sum(x < v) + np.sum(x <= v)) / 2 for v in x]) for x in (real, predicted)
    ]
    first, second = (place - place.mean() for place in places)
    spread = np.sqrt((first**2).sum() * (second**2).sum())
    return float((first * second).sum() / spread) if spread else 0.0


def draw_runs(predicted_s: Sequence[float]) -> Axes:
    """Published step times over predicted ones, by source; the line is where they agree."""
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(7.2, 4.6))
    groups: dict[str, list[tuple[float, float]]] = {}
    for run, predicted in zip(published(), predicted_s, strict=True):
        if run.step_s:
            groups.setdefault(short(run.source), []).append((float(predicted), run.step_s))
    # The source with the most runs is drawn first, so that its dots cover no others.
    for place, (name, points) in enumerate(
        sorted(groups.items(), key=lambda group: -len(group[1]))
    ):
        x, y = np.array(points).T
        error = np.median(np.abs(x / y - 1))
        style: dict[str, Any] = {"color": f"C{place % 6}", "markeredgewidth": 0, "alpha": 0.75}
        label = f"{name}: {100 * error:.0f} % ({len(x)} runs)"
        ax.plot(y, y / x, "os^Dv<>PX*"[place], markersize=5, label=label, ls="none", **style)
    ax.axhline(1, color="black", linewidth=1, zorder=0)
    ax.axhspan(1 / 1.2, 1.2, color="0.9", zorder=-1)
    ax.set(xscale="log", xlabel="published seconds per step", ylabel="published / predicted")
    ax.set(title="Published over predicted seconds; grey: 20 % off")
    ax.legend(title="median error", loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def draw_memory(needed_bytes: Sequence[float]) -> Axes:
    """Where a source reports the peak of memory: reported over predicted."""
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(4.6, 3.6))
    groups: dict[str, list[tuple[float, float]]] = {}
    for run, needed in zip(published(), needed_bytes, strict=True):
        measured = run.row["measured"]
        peak = measured.get("peak_mem_gb") or 1.074 * (measured.get("peak_mem_gib") or 0)
        if peak:
            groups.setdefault(short(run.source), []).append((float(needed) / 1e9, peak))
    for (name, points), mark in zip(groups.items(), "os^D", strict=False):
        x, y = np.array(points).T
        label = f"{name} ({len(x)} runs)"
        ax.plot(x, y, mark, markersize=4, alpha=0.6, label=label, linestyle="none")
    ax.plot([0, 100], [0, 100], color="black", linewidth=1, zorder=0)
    ax.set(xlabel="predicted (GB)", ylabel="reported peak (GB)", title="Memory of a GPU")
    ax.legend()
    return ax


# Where the peak goes: the step is timed on a cluster that has no losses, then with one more each.


def waterfall(
    step_time_s: Step, model: Model, cluster: Cluster, layout: Layout
) -> dict[str, float]:
    """{cause: share of the peak that it takes}, then "MFU": what is left. They add up to 1."""
    free: Any = {
        "matmul_flops_per_s": cluster.peak_flops_per_s,
        "attention_flops_per_s": cluster.peak_flops_per_s,
        "processors": 0,
        "memory_bytes_per_s": np.inf,
        "node_bytes_per_s": np.inf,
        "network_bytes_per_s": np.inf,
        "latency_s": 0.0,
        "launch_s": 0.0,
        "elementwise_bytes": 0.0,
        "stragglers": 0.0,
    }
    plain = {"recompute": "none", "bubble": 0.0}
    steps: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("matmuls below the peak", {"matmul_flops_per_s": 0, "processors": 0}, {}),
        ("attention", {"attention_flops_per_s": 0}, {}),
        ("memory: norms, optimizer", {"memory_bytes_per_s": 0, "elementwise_bytes": 0}, {}),
        ("recomputation", {}, {"recompute": 0}),
        ("bubble", {}, {"bubble": 0}),
        ("messages in a node", {"node_bytes_per_s": 0, "latency_s": 0}, {}),
        ("messages between nodes", {"network_bytes_per_s": 0}, {}),
        ("launches, stragglers", {"launch_s": 0, "stragglers": 0}, {}),
    ]
    flops = published_runs.model_flops(model) * layout.batch * model.seq
    ideal_s = flops / (cluster.peak_flops_per_s * cluster.gpus)
    shares, left = {}, 1.0
    for cause, real, chosen in [("half of attention skipped", {}, {}), *steps]:
        free |= {field: getattr(cluster, field) for field in real}
        plain |= {field: getattr(layout, field) for field in chosen}
        now_on = dataclasses.replace(cluster, **free), dataclasses.replace(layout, **plain)
        share = float(ideal_s / step_time_s(model, *now_on))
        shares[cause], left = left - share, share
    return {**shares, "MFU": left}


def draw_waterfall(shares: dict[str, float], title: str, ax: Axes | None = None) -> Axes:
    """The peak, and what each cause takes of it."""
    import matplotlib.pyplot as plt

    ax = ax or plt.subplots(figsize=(7.2, 3.2))[1]
    top = 1.0
    for i, (cause, share) in enumerate(shares.items()):
        last = cause == "MFU"
        ax.barh(i, share, left=0 if last else top - share, color="C0" if last else "C3")
        right = share if last else max(top, top - share)
        text = f"{share:.1%}" if last else f"{0 - round(share, 3):+.1%}".replace("-", "−")
        ax.text(right + 0.01, i, text, va="center")
        top -= share
    ax.set_yticks(range(len(shares)), list(shares))
    ax.invert_yaxis()
    ax.set(xlim=(0, 1.2), xlabel="share of the data sheet's peak", title=title)
    return ax


def runner_up(
    step_time_s: Step, memory_bytes: Memory, model: Model, cluster: Cluster, batch: int
) -> list[tuple[float, Layout]]:
    """(seconds, layout) of the best layouts that fit, one for each way to divide the GPUs."""
    sizes = cluster.gpus, batch, cluster.gpus_per_node
    candidates = cluster_model.layouts(model, *sizes)
    step_s = step_time_s(model, cluster, candidates)
    too_large = ~cluster_model.fits(memory_bytes(model, candidates), cluster)
    found: dict[Any, tuple[float, Layout]] = {}
    for i in np.argsort(step_s + np.where(too_large, np.inf, 0))[:400]:
        one = candidates[int(i)]
        way = one.tensor, one.pipeline, one.data, one.context
        if not too_large[i] and np.isfinite(step_s[i]):
            found.setdefault(way, (float(step_s[i]), one))
    return list(found.values())


def words(layout: Layout) -> str:
    """A layout in a line."""
    axes = f"tensor {layout.tensor} × pipeline {layout.pipeline} × data {layout.data}"
    context = f" × context {layout.context}" if layout.context > 1 else ""
    return (
        f"{axes}{context}, microbatches of {layout.microbatch}, {layout.chunks} chunks, "
        f"recompute {layout.recompute}, shards {layout.shards}"
    )


def show_plan(
    step_time_s: Step, memory_bytes: Memory, model: Model, cluster: Cluster, batch: int
) -> None:
    """Prints the best layouts of a cluster and draws where the best one's MFU goes."""
    import matplotlib.pyplot as plt

    try:
        best = runner_up(step_time_s, memory_bytes, model, cluster, batch)
    except ValueError as problem:
        print(problem)
        return
    if not best:
        print("No layout fits into the memory of these GPUs.")
        return
    for place, (seconds, layout) in zip(("best", "runner-up"), best, strict=False):
        print(
            f"{place}: {seconds:.2f} s, {memory_bytes(model, layout) / 1e9:.0f} GB: {words(layout)}"
        )
    shares = waterfall(step_time_s, model, cluster, best[0][1])
    draw_waterfall(shares, f"{cluster.gpus:,} × {cluster.name}: MFU {shares['MFU']:.0%}")
    plt.show()


def widget(step_time_s: Step, memory_bytes: Memory, ours: tuple[Step, Memory]) -> ipywidgets.VBox:
    """Choose model, GPUs, network and batch: the best layout, the runner-up, and where MFU goes.

    ours: what plans while an exercise is open.
    """
    import ipywidgets

    def one_of(values: Any, value: Any, name: str) -> ipywidgets.SelectionSlider:
        return ipywidgets.SelectionSlider(options=values, value=value, description=name)

    chosen = {
        "model": ipywidgets.Dropdown(
            options=list(MODELS), value="Llama 3 70B", description="model"
        ),
        "chip": ipywidgets.Dropdown(
            options=["A100", "H100", "H200", "GB200", "MI300X"], value="H100", description="GPU"
        ),
        "gpus": one_of([2**i for i in range(3, 15)], 1024, "GPUs"),
        "gigabits": one_of([25, 100, 200, 400, 800], 400, "Gb/s per GPU"),
        "batch": one_of([2**i for i in range(5, 14)], 1024, "sequences"),
    }

    def show(model: str, chip: str, gpus: int, gigabits: int, batch: int) -> None:
        cluster = Cluster.of(chip, gpus, 8, gigabits * published_runs.GIGABIT)
        try:
            show_plan(step_time_s, memory_bytes, MODELS[model], cluster, batch)
        except NotImplementedError as is_open:
            print(f"{open_exercise(is_open)} is open: this plan is the course's.")
            show_plan(*ours, MODELS[model], cluster, batch)

    picture = ipywidgets.interactive_output(show, chosen)
    picture.layout.min_height = "360px"
    return ipywidgets.VBox([*chosen.values(), picture])


def draw_sweep(text: str = "Hagemann", gpus: int = 256) -> Axes:
    """Seconds per step of one model on one cluster, by the layouts that were tried."""
    import matplotlib.pyplot as plt

    sweep = [run for run in published() if text in run.source and run.cluster.gpus == gpus]
    timed = [(run.layout.tensor, run.layout.pipeline, run.step_s) for run in sweep if run.step_s]
    ways = sorted({(tensor, stages) for tensor, stages, _ in timed})
    _, ax = plt.subplots(figsize=(7.2, 2.8))
    for x, way in enumerate(ways):
        times = [seconds for *one, seconds in timed if tuple(one) == way]
        beside = x + 0.05 * np.arange(len(times)) - 0.025 * (len(times) - 1)
        ax.plot(beside, sorted(times), "o", color="C0", markersize=5, markeredgewidth=0)
    names = [f"{tensor} × {stages}" for tensor, stages in ways]
    ax.set_xticks(range(len(ways)), names)
    ax.set(ylim=(0, None), xlabel="tensor ranks × stages", ylabel="seconds per step")
    ax.set_title(f"{len(timed)} layouts of one model on {gpus} GPUs")
    return ax


def print_stated_over_own(mfu: Callable[..., float]) -> None:
    """For each source that states a time and a rate: the rate over that of its own time."""
    found: dict[str, list[tuple[float, str]]] = {}
    for run in published():
        stated = run.row["measured"]
        share = stated.get("mfu")
        if stated.get("tflops_per_gpu"):
            share = stated["tflops_per_gpu"] / run.row["hardware"]["peak_bf16_tflops"]
        if run.step_s and share and (stated.get("step_time_s") or stated.get("tokens_per_s")):
            kind = str(stated.get("tflops_kind")).partition(" ")[0]
            rate = run.layout.batch * run.model.seq / run.step_s / run.cluster.gpus
            convention = kind if kind == "hardware" else "model"
            own = mfu(run.model, rate, run.cluster.peak_flops_per_s, convention)
            found.setdefault(short(run.source), []).append((share / own, run.row["id"][:28]))
    for source, ratios in found.items():
        (low, which), middle = min(ratios), np.median([ratio for ratio, _ in ratios])
        print(f"{source:12} {len(ratios):4} runs state {middle:.3f}; the least {low:.3f} ({which})")


def four_cases(constants: dict[str, Any]) -> dict[str, tuple[Model, Cluster, int]]:
    """Llama 3's 70 B on 256 GPUs: as it is, and with one thing changed; {case: (..., batch)}."""
    usual = Cluster.of("H100", 256)
    clusters = {
        "as it is": (usual, 512),
        "a batch of 64": (usual, 64),
        "25 Gb/s": (Cluster.of("H100", 256, 8, 25 * published_runs.GIGABIT), 512),
        "GB200": (Cluster.of("GB200", 256), 512),
        "H200": (Cluster.of("H200", 256), 512),
        "my constants": (usual.with_ledger(constants), 512),
    }
    return {name: (MODELS["Llama 3 70B"], *case) for name, case in clusters.items()}
