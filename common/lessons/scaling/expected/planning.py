"""What lab 16's checks compare with: our own planner, and steps on simulated ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from common.lessons.pipeline_parallel import expected as schedules
from common.lessons.pipeline_parallel import pipelines
from common.lessons.scaling import cluster_model, plan_figures
from common.lessons.scaling.cluster_model import Cluster, Layout, Model, Value, chosen
from nogpu import ranks


def mfu(model: Model, tokens_per_s: float, peak_flops_per_s: float, counts: str = "model") -> float:
    """The share of the peak, as sources count FLOPs."""
    attention = 12 * model.layers * model.hidden * model.seq
    layers = 6 * model.layers * model.layer_weights + attention
    if counts == "causal":
        layers -= attention / 2
    if counts == "hardware":
        layers *= 4 / 3
    return tokens_per_s * (layers + 6 * model.end_weights) / peak_flops_per_s


def mfu_mistakes(model: Model, tokens_per_s: float, peak_flops_per_s: float) -> dict[str, float]:
    """What known mistakes give, {sentence: share}."""
    rate = tokens_per_s / peak_flops_per_s
    right = mfu(model, tokens_per_s, peak_flops_per_s)
    one = 12 * model.hidden * model.seq
    kinds = ("model", "causal", "hardware")
    return {
        **{
            f"This is the {kind} count.": mfu(model, tokens_per_s, peak_flops_per_s, kind)
            for kind in kinds
        },
        "The embedding is a look-up: of the ends, only the scores multiply.": rate
        * (6 * model.weights + model.layers * one),
        "These are percent; a share is wanted.": 100 * right,
        "A token costs 6 FLOPs per weight: backward costs twice the forward pass.": right
        - 4 * rate * (model.layers * model.layer_weights + model.end_weights),
        "layer_weights are those of one layer: there are model.layers of them.": right
        - 6 * rate * (model.layers - 1) * model.layer_weights,
        "12·h·s is the attention of one layer: there are model.layers of them.": right
        - rate * (model.layers - 1) * one,
        "The scores are left out: they cost 6 FLOPs per weight, too.": right
        - 6 * rate * model.end_weights,
        "Only the layers are computed again, not the scores.": mfu(
            model, tokens_per_s, peak_flops_per_s, "hardware"
        )
        + 2 * rate * model.end_weights,
    }


def random_rate(rng: np.random.Generator, model: Model) -> tuple[float, float]:
    """(tokens per second and GPU, its peak), of a share below one in each count."""
    peak = float(rng.uniform(1e14, 1e15))
    return float(rng.uniform(0.2, 0.6)) / mfu(model, 1.0, peak), peak


def ring_s(cluster: Cluster, size: Value, stride: Value, sent: Value) -> Value:
    """Seconds of an all-reduce of `sent` bytes on a ring."""
    rate = cluster_model.bandwidth(cluster, size, stride)
    return 2 * (size - 1) * (cluster.latency_s + sent / size / rate)


def slot_s(model: Model, cluster: Cluster, layout: Layout) -> tuple[Value, Value]:
    """Seconds that a microbatch takes: (on the slowest stage, on all stages together)."""
    work = cluster_model.work(model, cluster, layout)
    again = {"none": 0, "selective": work.attention_s, "full": work.forward_s}
    messages = chosen(layout.recompute, {"none": 4, "selective": 4, "full": 6})
    waiting = np.where(layout.overlap, cluster.exposed, 1)
    messages_s = messages * waiting * ring_s(cluster, layout.tensor, 1, work.message_bytes)
    layer_s = work.forward_s + work.backward_s + chosen(layout.recompute, again) + messages_s
    most, last = cluster_model.stage_layers(model, layout)
    slowest_s = np.maximum(most * layer_s, last * layer_s + work.ends_s)
    return slowest_s, model.layers * layer_s + work.ends_s


def step_time_s(
    model: Model, cluster: Cluster, layout: Layout, owners: Value = None, hops: float = 1.0
) -> Value:
    """Seconds of a training step. For mistakes: other owners of the same weights, fewer hops."""
    work = cluster_model.work(model, cluster, layout)
    slowest_s, all_s = slot_s(model, cluster, layout)
    hop_s = hops * cluster_model.hop_s(cluster, layout, work)
    filling_s = (all_s - slowest_s + 2 * (layout.pipeline - 1) * hop_s) / layout.chunks
    pipeline_s = layout.microbatches * (slowest_s + layout.chunks * hop_s)
    pipeline_s = pipeline_s + layout.bubble * filling_s
    weights = model.layers / layout.pipeline * work.layer_weights + work.end_weights
    if owners is None:
        owners = layout.data * layout.context
    shards = np.asarray(layout.shards)
    parts = np.where(shards > 2, cluster_model.fetches(model, layout), 1)
    gathered_s = parts * ring_s(cluster, owners, layout.tensor, 2 * weights / parts) / 2
    reduced_s = ring_s(cluster, owners, layout.tensor, 4 * weights) / 2
    sent_s = np.where(shards > 0, gathered_s + reduced_s, 2 * reduced_s)
    sent_s = np.where(shards > 2, 3 * layout.microbatches * gathered_s, sent_s)
    hidden_s = np.where(shards > 2, pipeline_s, pipeline_s / 2)
    overlapped_s = np.maximum(sent_s - hidden_s, 0)
    overlapped_s = overlapped_s + cluster.exposed * (sent_s - overlapped_s)
    waiting_s = np.where(layout.overlap, overlapped_s, sent_s)
    owned = weights / np.where(shards > 0, owners, 1)
    optimizer_s = (30 * owned + 6 * weights) / cluster.memory_bytes_per_s
    nodes = np.maximum(1, layout.gpus / cluster.gpus_per_node)
    return (pipeline_s + waiting_s + optimizer_s) * (1 + cluster.stragglers * np.log2(nodes))


def memory_bytes(model: Model, layout: Layout) -> Value:
    """Bytes that the fullest GPU needs."""
    owners, p = layout.data * layout.context, layout.pipeline
    shards = np.asarray(layout.shards)
    layers = np.ceil(model.layers / p)
    ends = np.where((np.asarray(p) > 1) | np.asarray(model.tied), 1, 2) * model.end_weights
    weights = (layers * model.layer_weights + ends) / layout.tensor
    each = 12 / np.where(shards > 0, owners, 1)  # master, and two moments, in fp32
    each = each + 2 / np.where(shards > 1, owners, 1) + 2 / np.where(shards > 2, owners, 1)
    fetched = np.where(shards > 2, 4 * model.layer_weights / layout.tensor, 0)
    kept, scores, given = cluster_model.kept_bytes(model, layout)
    per_layer = chosen(layout.recompute, {"none": kept, "selective": kept - scores, "full": given})
    again = chosen(layout.recompute, {"none": 0, "selective": scores, "full": kept})
    early = np.where(np.asarray(layout.chunks) > 1, 1 + (p - 1) / (p * layout.chunks), 1)
    first = layers * per_layer * np.minimum(layout.microbatches, p) * early
    last = layers * per_layer * early + cluster_model.score_bytes(model, layout)
    activations = np.maximum(first, last) + again
    held = each * weights + fetched + activations
    return cluster_model.FRAGMENTS * held + cluster_model.DRIVER_BYTES


# The same steps on the simulated ranks of labs 11 to 15.


def on_tensor_ranks(model: Model, cluster: Cluster, layout: Layout) -> float:
    """Seconds of a step of tensor ranks, which add up their parts of each layer's outputs."""
    work = cluster_model.work(model, cluster, layout)

    def step(dist: Any) -> None:
        import torch

        part = torch.zeros(int(work.message_bytes) // 8, dtype=torch.float64)
        passes = [float(work.forward_s), float(work.backward_s)]
        if layout.recompute == "full":
            passes.append(float(work.forward_s))
        for _ in range(model.layers):
            for seconds in passes:
                ranks.compute(seconds)
                dist.all_reduce(part)
                dist.all_reduce(part)
        ranks.compute(float(work.ends_s))

    return _simulated(step, cluster, int(layout.tensor))


def on_data_ranks(model: Model, cluster: Cluster, layout: Layout) -> float:
    """Seconds of a step of data ranks, which average their gradients in fp32 at the end."""
    work = cluster_model.work(model, cluster, layout)
    layer_s = float(work.forward_s + work.backward_s)

    def step(dist: Any) -> None:
        import torch

        for _ in range(int(layout.microbatches)):
            ranks.compute(model.layers * layer_s + float(work.ends_s))
        weights = int(model.layers * work.layer_weights + work.end_weights)
        dist.all_reduce(torch.zeros(weights, dtype=torch.float32))

    return _simulated(step, cluster, int(layout.data))


def on_stages(model: Model, cluster: Cluster, layout: Layout) -> float:
    """Seconds of a step of a pipeline's stages in 1F1B, whose last stage also has the scores."""
    work = cluster_model.work(model, cluster, layout)
    layers = model.layers // int(layout.pipeline)
    seconds = [
        {"F": layers * float(work.forward_s), "B": layers * float(work.backward_s)}
        for _ in range(int(layout.pipeline))
    ]
    seconds[-1]["B"] += float(work.ends_s)
    order = schedules.one_f_one_b
    tasks = pipelines.on_stages(order, int(layout.pipeline), int(layout.microbatches))
    return pipelines.played(tasks, seconds).time_s


def random_model(rng: np.random.Generator, most: int = 4) -> Model:
    """A small model whose sizes are multiples of eight, so that all of them can be cut.

    most: how many times the least width and length it may have.
    """
    heads, layers = 8, 8 * int(rng.integers(1, most))
    hidden, seq = (64 * int(factor) for factor in rng.integers(1, most + 1, 2))
    shape = layers, hidden, heads, heads, 4 * hidden, 128 * int(rng.integers(1, 9)), seq
    return Model(*shape, gated=bool(rng.integers(2)), tied=bool(rng.integers(2)))


def cheapest(model: Model, cluster: Cluster, batch: int) -> tuple[float, Layout | None]:
    """(seconds, layout) of the best layout that fits; infinity and None if none fits."""
    every = cluster_model.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    fit = cluster_model.fits(memory_bytes(model, every), cluster)
    step_s = np.where(fit, step_time_s(model, cluster, every), np.inf)
    best = int(np.argmin(step_s))
    return (float(step_s[best]), every[best]) if np.isfinite(step_s[best]) else (np.inf, None)


def _simulated(step: Any, cluster: Cluster, size: int) -> float:
    costs: dict[str, Any] = {
        "alpha_s": cluster.latency_s,
        "beta_s_per_byte": 1 / cluster.node_bytes_per_s,
    }
    return ranks.run(step, world_size=size, live_bytes=False, **costs).time_s


def fields(*objects: Model | Cluster | Layout) -> Sequence[dict[str, Any]]:
    """These objects as data, which can cross to another process."""
    return [dict(vars(each)) for each in objects]


# The cases of lab 16's checks.


def memory_cases() -> dict[str, Layout]:
    """Layouts in which one thing at a time decides about memory."""
    fused = {"batch": 64, "attention": "softmax"}
    return {
        "one GPU": Layout(batch=8, microbatch=4),
        "tensor ranks": Layout(tensor=4, batch=8, microbatch=4),
        "tensor ranks in stages": Layout(4, 8, 1, batch=64, microbatch=8),
        "Adam's state over data ranks, beside tensor ranks": Layout(2, 1, 8, shards=1, batch=64),
        "gradients, too": Layout(2, 1, 8, shards=2, batch=64),
        "weights, too": Layout(1, 1, 8, shards=3, batch=64, microbatch=2),
        "context ranks hold the same weights": Layout(1, 1, 2, 4, shards=1, batch=64),
        "stages": Layout(1, 4, 2, microbatch=4, **fused),
        "fewer microbatches than stages": Layout(1, 4, 1, batch=2),
        "layers that don't divide by stages": Layout(1, 5, 1, batch=20),
        "chunks": Layout(1, 4, 2, chunks=2, **fused),
        "full recomputation": Layout(1, 4, 2, recompute="full", microbatch=8, **fused),
        "selective recomputation": Layout(1, 2, 2, recompute="selective", microbatch=8, **fused),
    }


def memory_mistakes(model: Model, layout: Layout) -> dict[str, float]:
    """What known mistakes give."""
    import dataclasses

    right = float(memory_bytes(model, layout))
    plain = dataclasses.replace(layout, shards=0)
    states = float(memory_bytes(model, plain)) - right
    owners = layout.data * layout.context
    mistakes = {}
    if layout.shards == 1:
        per_rank = states / (1 - 1 / owners)
        wider = owners * layout.tensor
        mistakes["Tensor ranks hold different weights: cut Adam's state over data ranks only."] = (
            right + states - per_rank * (1 - 1 / wider)
        )
        mistakes["Context ranks hold the same weights as data ranks do."] = (
            right + states - per_rank * (1 - 1 / layout.data)
        )
    one = dataclasses.replace(layout, batch=layout.data * layout.microbatch)
    few = "In 1F1B, the first stage holds as many microbatches as there are stages, if it has them."
    mistakes[few] = float(memory_bytes(model, one))
    if layout.shards == 0:
        mistakes |= _weight_mistakes(model, layout, right)
    kept, scores, _ = cluster_model.kept_bytes(model, layout)
    missing = float(chosen(layout.recompute, {"none": 0, "selective": scores, "full": kept}))
    again = "While one layer is computed again, its missing part is there, too."
    mistakes[again] = right - cluster_model.FRAGMENTS * missing
    driver = "The driver's bytes have no fragments: add them after the factor."
    mistakes[driver] = right + (cluster_model.FRAGMENTS - 1) * cluster_model.DRIVER_BYTES
    return {text: x for text, x in mistakes.items() if abs(x / right - 1) > 1e-5}


def _weight_mistakes(model: Model, layout: Layout, right: float) -> dict[str, float]:
    """Wrong counts of weights, of which each needs 16 bytes: nothing is sharded."""
    p, t = layout.pipeline, layout.tensor
    end, layers = model.end_weights, np.ceil(model.layers / p) * model.layer_weights
    both = p == 1 and not model.tied
    per_weight = 16 * cluster_model.FRAGMENTS
    found = {
        "Tensor ranks hold a part of each weight: divide by them.": per_weight
        * (layers + (2 if both else 1) * end)
        * (1 - 1 / t),
        "Tensor ranks cut the ends, too.": per_weight * end * (2 if both else 1) * (1 - 1 / t),
        "Here a gradient has 2 bytes.": 2
        * cluster_model.FRAGMENTS
        * (layers + (1 + both) * end)
        / t,
    }
    if both:
        found["The only stage has both ends, if they are not tied."] = -per_weight * end / t
    elif p > 1:
        found["Of several stages, one has the embedding and another one the scores."] = (
            per_weight * end / t
        )
    return {text: float(right + more) for text, more in found.items()}


def simulated_cases(
    rng: np.random.Generator,
) -> dict[str, tuple[tuple[Model, Cluster, Layout], float]]:
    """{name: (model, simulated cluster and layout, the seconds that simulated ranks took)}."""
    full: Any = {"batch": 2, "microbatch": 2, "recompute": "full"}
    kinds = {
        "two tensor ranks": (Layout(tensor=2, batch=2, microbatch=2), on_tensor_ranks),
        "eight tensor ranks": (Layout(tensor=8, batch=4, microbatch=4), on_tensor_ranks),
        "tensor ranks that recompute": (Layout(tensor=4, **full), on_tensor_ranks),
        "eight replicas": (Layout(data=8, batch=8), on_data_ranks),
        "two replicas, four microbatches": (Layout(data=2, batch=16, microbatch=2), on_data_ranks),
        "four stages": (Layout(pipeline=4, batch=12), on_stages),
        "eight stages, one microbatch": (Layout(pipeline=8, batch=1), on_stages),
        "one GPU": (Layout(batch=4), on_stages),
    }
    cases = {}
    for name, (layout, simulated) in kinds.items():
        free = simulated == on_stages  # messages between stages cost nothing here
        wire = (0.0, 0.0) if free else 10.0 ** rng.uniform([-6, -10], [-4, -9])
        model = random_model(rng, most=2)  # the ranks send its messages, element by element
        cluster = Cluster.simulated(8, *map(float, wire))
        cases[name] = (model, cluster, layout), simulated(model, cluster, layout)
    return cases


RATES = (
    *("matmul_flops_per_s", "attention_flops_per_s", "memory_bytes_per_s"),
    *("node_bytes_per_s", "network_bytes_per_s"),
)


def other_rates(rng: np.random.Generator, cluster: Cluster, most: float) -> Cluster:
    """A cluster whose rates are up to `most` times as high or as low: nobody knows its times."""
    import dataclasses

    factors = most ** rng.uniform(-1, 1, len(RATES))
    rates = {name: getattr(cluster, name) * f for name, f in zip(RATES, factors, strict=True)}
    return dataclasses.replace(cluster, **rates)


def elsewhere(
    rng: np.random.Generator, some: Sequence[plan_figures.Run]
) -> tuple[list[Sequence[dict[str, Any]]], list[float]]:
    """(30 of these runs on other hardware, as data; the seconds that our planner gives).

    What a published run took can be looked up. What it would have taken elsewhere can't.
    """
    chosen_runs = [some[int(i)] for i in rng.choice(len(some), 30, replace=False)]
    moved = [(run.model, other_rates(rng, run.cluster, 3), run.layout) for run in chosen_runs]
    return [fields(*case) for case in moved], [float(step_time_s(*case)) for case in moved]


def elsewhere_fault(got: Sequence[float], want: Sequence[float]) -> str:
    """What is wrong with the seconds of such runs; "" if the median is at most 15 % off."""
    with np.errstate(all="ignore"):
        error = float(np.median(np.abs(np.asarray(got, float) / want - 1)))
    if error <= 0.15:
        return ""
    return (
        "step_time_s of published runs, moved to hardware of other rates: the median is "
        f"{error:.0%} off our planner's, 15 % will do. Does it use the cluster's fields?"
    )


def real_cases(rng: np.random.Generator) -> dict[str, tuple[Model, Cluster, Layout]]:
    """Layouts of real models, in each of which one part of the step counts.

    The rates of their clusters are a few percent off the real ones.
    """
    gpt, llama = (
        Model(96, 12_288, 96, 96, 49_152, 51_200, 2048),
        Model(126, 16_384, 128, 8, 53_248, 128_256, 8192, gated=True, tied=False),
    )
    small = Model(24, 2048, 16, 16, 8192, 131_072, 2048)
    a100, h100 = Cluster.of("A100", 1024), Cluster.of("H100", 16_384)
    slow = Cluster.of("A100", 1024, 8, 1e9)
    softmax: Any = {"attention": "softmax", "recompute": "selective", "sequence_parallel": True}
    cases = {
        "tensor ranks on two nodes": (gpt, a100, Layout(16, 1, 64, batch=256)),
        "chunks": (gpt, a100, Layout(8, 8, 16, batch=256, chunks=3, **softmax)),
        "a large vocabulary on two stages": (small, a100, Layout(1, 2, 8, batch=64, microbatch=2)),
        "a last stage with fewer layers": (
            small,
            a100,
            Layout(1, 2, 8, batch=64, microbatch=2, balanced=True),
        ),
        "layers that don't divide": (llama, h100, Layout(8, 16, 128, batch=2048, overlap=True)),
        "sharded optimizer": (gpt, a100, Layout(8, 8, 16, batch=128, shards=1)),
        "sharded weights": (gpt, a100, Layout(1, 1, 512, batch=1024, shards=3, overlap=True)),
        "sharded weights, not overlapped": (gpt, a100, Layout(1, 1, 512, batch=1024, shards=3)),
        "overlapped gradients": (gpt, a100, Layout(8, 1, 128, batch=128, overlap=True)),
        "zero-bubble schedule": (gpt, a100, Layout(8, 8, 16, batch=256, bubble=1 / 3)),
        "context ranks": (llama, h100, Layout(8, 16, 8, 8, batch=64, overlap=True)),
        "chunks on a slow network": (gpt, slow, Layout(8, 8, 16, batch=128, chunks=4)),
        "a quarter of a node": (small, a100, Layout(2, 1, 1, batch=8, microbatch=2)),
    }
    return {
        name: (model, other_rates(rng, cluster, 1.05), layout)
        for name, (model, cluster, layout) in cases.items()
    }


def step_mistakes(model: Model, cluster: Cluster, layout: Layout) -> dict[str, float]:
    """What known mistakes give, where that differs from the right answer."""
    import dataclasses

    right = float(step_time_s(model, cluster, layout))

    def other(at: Any = None, **fields: Any) -> float:
        return float(step_time_s(model, at or cluster, dataclasses.replace(layout, **fields)))

    near = dataclasses.replace(cluster, network_bytes_per_s=cluster.node_bytes_per_s)
    far = dataclasses.replace(cluster, exposed=1.0)
    found = {
        "Of overlapped messages, only a part is waited for.": other(far),
        "Messages that don't overlap are waited for in full.": other(overlap=True),
        "Between nodes, rings are slower: mind the stride.": other(near),
        "Chunks divide the time in which the pipeline fills.": other(chunks=1),
        "A recomputed forward pass repeats its time and its messages.": other(recompute="none"),
        "layout.bubble scales the time in which the pipeline fills.": other(bubble=1.0),
        "Context ranks hold the same weights as data ranks: their gradients add up, too.": float(
            step_time_s(model, cluster, layout, owners=layout.data)
        ),
        "Stages wait for messages: cluster_model.hop_s.": float(
            step_time_s(model, cluster, layout, hops=0.0)
        ),
        "A part of a node has no stragglers: take at least one node.": right
        * (1 + cluster.stragglers * np.log2(layout.gpus / cluster.gpus_per_node)),
    }
    return {text: wrong for text, wrong in found.items() if abs(wrong / right - 1) > 1e-5}


def plan_cases(rng: np.random.Generator) -> dict[str, tuple[Model, Cluster, int]]:
    """Clusters to plan for, each a little different in each run; on the last one nothing fits."""
    small = Model(24, 2048, 16, 16, 8192, 50_304, 2048)
    large = Model(80, 8192, 64, 8, 28_672, 128_256, 8192, gated=True, tied=False)
    cases = {
        "1.3 B on 64 A100s": (small, Cluster.of("A100", 64), 256),
        "70 B on 256 H100s": (large, Cluster.of("H100", 256), 512),
        "70 B on a slow network": (large, Cluster.of("H100", 256, 8, 3e9), 256),
        "70 B on 64 H100s, little memory": (large, Cluster.of("A100-40GB", 64), 64),
        "the course's model on 8 simulated ranks": (Model.of_course(), Cluster.simulated(8), 8),
        "70 B on 8 A100s": (large, Cluster.of("A100", 8), 8),
    }
    return {
        name: (model, other_rates(rng, cluster, 1.5), batch)
        for name, (model, cluster, batch) in cases.items()
    }


def plan_fault(layout: Layout, model: Model, cluster: Cluster, batch: int) -> str:
    """What is wrong with a plan, beyond its time; "" if nothing."""
    if layout.gpus != cluster.gpus:
        return f"{layout.gpus} GPUs are used, {cluster.gpus} are there"
    if layout.batch != batch:
        return f"the batch is {layout.batch}, {batch} sequences are wanted"
    if not cluster_model.fits(memory_bytes(model, layout), cluster):
        return f"it needs {memory_bytes(model, layout) / 1e9:.0f} GB per GPU and does not fit"
    return ""
