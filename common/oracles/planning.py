"""What lab 16's checks compare with: our own planner, and steps on simulated ranks."""

from __future__ import annotations

import numpy as np

from common.lessons import planning
from common.lessons.planning import Cluster, Layout, Model, Value


def ring_s(cluster: Cluster, size: Value, stride: Value, sent: Value, times: float = 2) -> Value:
    """Seconds of an all-reduce of `sent` bytes on a ring; times=1: one of its two halves."""
    rate = planning.bandwidth(cluster, size, stride)
    return times * (size - 1) * (cluster.latency_s + sent / size / rate)


def slot_s(model: Model, cluster: Cluster, layout: Layout) -> tuple[Value, Value, Value]:
    """Seconds that a microbatch takes: (on the slowest stage, on the mean stage, one hop)."""
    work = planning.work(model, cluster, layout)
    again = np.where(np.asarray(layout.recompute) == "full", work.forward_s, 0)
    again = np.where(np.asarray(layout.recompute) == "selective", work.attention_s, again)
    shared_s = ring_s(cluster, layout.tensor, 1, work.message_bytes)
    messages = np.where(np.asarray(layout.recompute) == "full", 6, 4)
    waiting = np.where(layout.overlap, cluster.exposed, 1)
    layer_s = work.forward_s + work.backward_s + again + messages * waiting * shared_s
    mean = model.layers / layout.pipeline
    most, least = np.ceil(mean), np.floor(mean)
    slowest_s = np.maximum(most * layer_s, least * layer_s + work.ends_s)
    return slowest_s, mean * layer_s + work.ends_s / layout.pipeline, hop_s(cluster, layout, work)


def hop_s(cluster: Cluster, layout: Layout, work: planning.Work) -> Value:
    """Seconds of a message from stage to stage; 0 if there is one stage."""
    apart = layout.tensor * layout.data * layout.context
    near = apart * layout.pipeline <= cluster.gpus_per_node
    rate = np.where(near, cluster.node_bytes_per_s, cluster.network_bytes_per_s)
    parted = np.asarray(layout.sequence_parallel) | (np.asarray(layout.kernels) == "fused")
    sent = work.message_bytes / np.where(parted, layout.tensor, 1)
    return np.where(np.asarray(layout.pipeline) > 1, sent / rate + cluster.latency_s, 0)


def step_time_s(model: Model, cluster: Cluster, layout: Layout) -> Value:
    """Seconds of a training step."""
    slowest_s, mean_s, hop = slot_s(model, cluster, layout)
    p, m = layout.pipeline, layout.microbatches
    slot = slowest_s + layout.chunks * hop
    pipeline_s = m * slot + (p - 1) / layout.chunks * layout.bubble * (mean_s + 2 * hop)
    work = planning.work(model, cluster, layout)
    weights = model.layers / p * work.layer_weights + work.end_weights
    ranks = layout.data * layout.context
    gathered_s = ring_s(cluster, ranks, layout.tensor, 2 * weights, 1)
    reduced_s = ring_s(cluster, ranks, layout.tensor, layout.gradient_bytes * weights, 1)
    plain_s = np.where(np.asarray(layout.shards) > 0, gathered_s + reduced_s, 2 * reduced_s)
    waiting = np.where(layout.overlap, cluster.exposed, 1)
    gradients_s = np.maximum(
        waiting * plain_s, plain_s - np.where(layout.overlap, pipeline_s / 2, 0)
    )
    fetched_s = m * 3 * gathered_s  # all weights twice, and their gradients
    shorter_s = np.minimum(fetched_s, pipeline_s)
    fetching_s = np.maximum(fetched_s, pipeline_s) + waiting * shorter_s
    whole = np.asarray(layout.shards) == 3
    owned = weights / np.where(np.asarray(layout.shards) > 0, ranks, 1)
    optimizer_s = (30 * owned + 6 * weights) / cluster.memory_bytes_per_s
    step = np.where(whole, fetching_s, pipeline_s + gradients_s) + optimizer_s
    nodes = np.maximum(1, layout.gpus / cluster.gpus_per_node)
    return step * (1 + cluster.stragglers * np.log2(nodes))


def memory_bytes(model: Model, layout: Layout) -> Value:
    """Bytes that the fullest GPU needs."""
    ranks, p, m = layout.data * layout.context, layout.pipeline, layout.microbatches
    ends = np.where((np.asarray(p) > 1) | model.tied, 1, 2) * model.end_weights
    mine = (np.ceil(model.layers / p) * model.layer_weights + ends) / layout.tensor
    shards = np.asarray(layout.shards)
    state = (12 / np.where(shards > 0, ranks, 1)) + (2 / np.where(shards > 1, ranks, 1))
    state = (state + 2 / np.where(shards > 2, ranks, 1)) * mine
    unsharded = np.where(shards > 2, 4 * model.layer_weights / layout.tensor, 0)
    kept, scores, given = planning.kept_bytes(model, layout)
    recompute = np.asarray(layout.recompute)
    each = np.where(
        recompute == "full", given, np.where(recompute == "selective", kept - scores, kept)
    )
    early = np.where(np.asarray(layout.chunks) > 1, 1 + (p - 1) / (p * layout.chunks), 1)
    flying = np.minimum(m, p) * early
    per_stage = np.ceil(model.layers / p)
    again = np.where(recompute == "full", kept, scores)
    first = each * per_stage * flying + again
    last = (
        each * per_stage * np.where(np.asarray(p) > 1, early, flying)
        + planning.score_bytes(model, layout)
        + again
    )
    return 1.05 * (state + unsharded + np.maximum(first, last)) + 2e9
