"""What lab 16 plans with: a model, a cluster, a layout, and the work of one microbatch on one GPU.

Every field of a Layout may be a number or an array: then all results are arrays, one entry for each
layout, and thousands of layouts cost as much as one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import numpy as np

from common.lessons.scaling.chips import DOMAINS, Chip, chip

Value = Any  # a number, or an array of numbers with one entry per layout


class Shares(NamedTuple):
    """The four constants that benchmarks/planner.py --fit fits to published runs."""

    matmul: float = 0.9  # of the best matmul's rate, that matmuls reach in training
    hot: float = 0.873  # of it, on GPUs whose clock falls under load: over 1 TFLOP/s per watt
    flash: float = 0.58  # of the matmuls' rate, that fused attention reaches
    eager: float = 1.48  # bytes that eager kernels move, over those of fused kernels


SHARES = Shares()
# What is assumed: from the labs named, or because it is small.
MEMORY_SHARE = 0.8  # of the memory's rate, that elementwise kernels reach (lab 04)
ELEMENTWISE_BYTES = 1.3  # over the fewest that a block must move
EXPOSED = 0.3  # the share of overlapped messages that is waited for (lab 12)
# NCCL's protocol takes a fifth of a link: https://github.com/NVIDIA/nccl-tests/issues/212.
LINK_SHARE = 0.8
# Of a ring's round: NCCL's tuner counts 3.4 µs within a node and 14 µs between nodes, and the
# planner Calculon (https://github.com/calculon-ai/calculon) takes 10 µs on A100s.
LATENCY_S = 10e-6
STRAGGLERS = 0.005  # how much longer a step takes each time that the nodes double
LAUNCH_S = 6e-6  # of a kernel (lab 02)

FRAGMENTS = 1.05  # memory taken over memory used
DRIVER_BYTES = 2e9  # of the driver, of libraries and of buffers for messages
TILE = 128  # rows and columns of a matmul's tile (lab 05)


@dataclasses.dataclass(frozen=True)
class Model:
    """A dense transformer's shape, and the length of its sequences."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int
    gated: bool = False  # three matrices in the hidden layer instead of two
    tied: bool = True  # one matrix for the embedding and for the scores

    @property
    def head(self) -> float:
        """Numbers per head."""
        return self.hidden / self.heads

    @property
    def layer_weights(self) -> Value:
        """Weights of a layer's matrices."""
        attention = 2 * self.hidden**2 + 2 * self.hidden * self.kv_heads * self.head
        return attention + np.where(self.gated, 3, 2) * self.hidden * self.ffn

    @property
    def end_weights(self) -> float:
        """Weights of the matrix of scores, and of the embedding."""
        return self.vocab * self.hidden

    @property
    def weights(self) -> Value:
        """Weights of all matrices."""
        return self.layers * self.layer_weights + np.where(self.tied, 1, 2) * self.end_weights

    @classmethod
    def of_course(cls, seq: int = 128) -> Model:
        """The course's own language model."""
        from common.language_model import CONFIG as c

        return cls(c.layers, c.width, c.heads, c.heads, c.hidden, c.vocabulary, seq, tied=False)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """GPUs and their links. Rates are per second and GPU; links count one direction."""

    name: str
    gpus: int
    gpus_per_node: int  # whose links are fast
    peak_flops_per_s: float  # of the data sheet: what MFU is a share of
    matmul_flops_per_s: float
    attention_flops_per_s: float
    memory_bytes_per_s: float
    memory_bytes: float
    node_bytes_per_s: float  # within a node
    network_bytes_per_s: float  # between nodes
    latency_s: float = LATENCY_S
    launch_s: float = LAUNCH_S
    elementwise_bytes: float = ELEMENTWISE_BYTES
    stragglers: float = STRAGGLERS
    exposed: float = EXPOSED
    eager_bytes: float = SHARES.eager
    processors: int = 0  # that share out the tiles of a matmul; 0: any shape is equally fast

    @classmethod
    def of(
        cls,
        name: str,
        gpus: int,
        gpus_per_node: int = 8,
        network_bytes_per_s: float | None = None,
        shares: Shares = SHARES,
        peak_flops_per_s: float | None = None,
    ) -> Cluster:
        """A cluster of the GPUs with this name, by their data sheets and the shares above.

        peak_flops_per_s: for a chip that has no data sheet here.
        """
        sheet = chip(name, peak_flops_per_s)
        matmul = sheet.best_matmul_flops_per_s * shares.matmul * (shares.hot if _hot(sheet) else 1)
        return cls(
            sheet.name,
            gpus,
            max(gpus_per_node, DOMAINS.get(sheet.name, 1)),
            sheet.peak_flops_per_s,
            matmul,
            shares.flash * matmul,
            MEMORY_SHARE * sheet.memory_bytes_per_s,
            sheet.memory_bytes,
            LINK_SHARE * sheet.node_bytes_per_s,
            LINK_SHARE * (network_bytes_per_s or sheet.network_bytes_per_s),
            eager_bytes=shares.eager,
            processors=sheet.processors,
        )

    @classmethod
    def simulated(
        cls,
        gpus: int,
        alpha_s: float = 10e-6,
        beta_s_per_byte: float = 1e-10,
        flops_per_s: float = 1e12,
        memory_bytes: float = 1e12,
    ) -> Cluster:
        """The machine of `ranks.run`: one node, messages of α + β·bytes, and nothing else costs."""
        rate = 1 / beta_s_per_byte if beta_s_per_byte else np.inf
        speed = flops_per_s, flops_per_s, flops_per_s, np.inf
        costs = {"elementwise_bytes": 0.0, "stragglers": 0.0, "exposed": 1.0, "launch_s": 0.0}
        return cls(
            "simulated", gpus, gpus, *speed, memory_bytes, rate, rate, latency_s=alpha_s, **costs
        )

    def with_ledger(self, constants: dict[str, Any]) -> Cluster:
        """This cluster with what the reader measured: ledger.read()["constants"]."""
        mine = {name: entry["value"] for name, entry in constants.items()}
        matmul = mine.get("bf16 matmul, large matrices")
        given = {
            "matmul_flops_per_s": matmul,
            "attention_flops_per_s": matmul and SHARES.flash * matmul,
            "memory_bytes_per_s": mine.get("memory bandwidth"),
            "node_bytes_per_s": mine.get("bandwidth of a port, 1/β"),
            "latency_s": mine.get("latency of a round, α"),
        }
        measured = {field: value for field, value in given.items() if value}
        return dataclasses.replace(self, name=f"{self.name}, my constants", **measured)


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a batch is spread over GPUs. A field may be an array, with one entry per layout."""

    tensor: Value = 1
    pipeline: Value = 1
    data: Value = 1
    context: Value = 1
    batch: Value = 1  # sequences per step
    microbatch: Value = 1  # sequences per microbatch
    chunks: Value = 1  # of layers per stage: more than one in an interleaved schedule
    recompute: Value = "none"  # "none", "selective" or "full"
    shards: Value = 0  # over data ranks: 1 the optimizer, 2 also gradients, 3 also weights
    sequence_parallel: Value = False
    attention: Value = "flash"  # "flash1" is older; "softmax" stores the scores; so does "torch"
    kernels: Value = "fused"  # elementwise: "fused", "eager", or "unfused" with norms in fp32
    overlap: Value = False  # messages of tensor pairs and of gradients run beside the computation
    bubble: Value = 1.0  # of the schedule, over that of 1F1B
    balanced: Value = False  # the last stage has fewer layers, because it also has the scores
    deepspeed: Value = False  # fetches each matrix by itself, and stages send what all ranks have
    half: Value = False  # "selective" computes half of a layer again (FSDP), not its attention

    @property
    def gpus(self) -> Value:
        """GPUs that hold the layout."""
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def microbatches(self) -> Value:
        """Microbatches per pipeline and step."""
        return self.batch / (self.data * self.microbatch)

    def __len__(self) -> int:
        """How many layouts these are."""
        return max(np.size(value) for value in vars(self).values())

    def __getitem__(self, i: int) -> Layout:
        """One of several layouts."""
        picked = {
            name: np.broadcast_to(value, len(self))[i].item() if np.size(value) > 1 else value
            for name, value in vars(self).items()
        }
        return Layout(**picked)


class Work(NamedTuple):
    """What one microbatch costs one GPU, without messages. Seconds; bytes; weights."""

    forward_s: Value  # of one layer
    backward_s: Value
    attention_s: Value  # of forward_s, what "selective" computes twice
    ends_s: Value  # of embedding, scores and loss, forward and backward: on the last stage
    message_bytes: Value  # a layer's activations, which tensor pairs add and stages pass on
    layer_weights: Value  # of one layer on this GPU
    end_weights: Value


def chosen(key: Value, table: dict[str, Value]) -> Value:
    """The entry of a table with this key; the key and the entries may be arrays."""
    if isinstance(key, str):
        return table.get(key, 0.0) + 0.0
    return functools.reduce(
        lambda so_far, name: np.where(np.asarray(key) == name, table[name], so_far), table, 0.0
    )


def work(model: Model, cluster: Cluster, layout: Layout) -> Work:
    """What one microbatch costs one GPU, from the matmuls, the attention and the bytes it moves."""
    try:
        return _work_of_one(model, cluster, layout)
    except TypeError:  # fields are arrays, which can't be looked up
        return _work(model, cluster, layout)


@functools.lru_cache(maxsize=10_000)  # a step's time, its parts and a check ask for the same layout
def _work_of_one(model: Model, cluster: Cluster, layout: Layout) -> Work:
    return _work(model, cluster, layout)


def _work(model: Model, cluster: Cluster, layout: Layout) -> Work:
    """See work."""
    t, h = layout.tensor, model.hidden
    tokens = layout.microbatch * model.seq / layout.context
    grouped = (model.heads + 2 * model.kv_heads) * model.head / t
    wide = np.where(model.gated, 2, 1) * model.ffn / t
    products = [
        (tokens, grouped, h),
        (tokens, h, h / t),
        (tokens, wide, h),
        (tokens, h, model.ffn / t),
    ]
    forward_s = sum(_matmul_s(cluster, *shape) for shape in products)
    backward_s = sum(_backward_s(cluster, *shape) for shape in products)
    attention_s, attention_backward_s = _attention_s(model, cluster, layout, tokens)
    moved_s = _elementwise_bytes(model, cluster, layout, tokens) / cluster.memory_bytes_per_s
    launched_s = cluster.launch_s * np.where(np.asarray(layout.kernels) == "fused", 25, 40)
    scores = (tokens, model.vocab / t, h)
    loss_s = 24 * tokens * model.vocab / t / cluster.memory_bytes_per_s
    forward_s = np.maximum(forward_s + attention_s + moved_s, launched_s)
    return Work(
        forward_s,
        np.maximum(backward_s + attention_backward_s + 1.7 * moved_s, 2 * launched_s),
        np.where(layout.half, forward_s / 2, attention_s),
        _matmul_s(cluster, *scores) + _backward_s(cluster, *scores) + loss_s,
        2 * tokens * h,
        model.layer_weights / t,
        model.end_weights / t,
    )


def bandwidth(cluster: Cluster, size: Value, stride: Value) -> Value:
    """Bytes per second and GPU of a ring of `size` GPUs, which are `stride` GPUs apart.

    Within a node it runs over the node's links. Between nodes, the ranks of a node that belong to
    the ring share its work, each with its own port.
    """
    local = np.clip(cluster.gpus_per_node / stride, 1, size)
    between = np.minimum(cluster.node_bytes_per_s, cluster.network_bytes_per_s * local)
    inside = size * stride <= cluster.gpus_per_node
    return np.where(inside, cluster.node_bytes_per_s, between)


def stage_layers(model: Model, layout: Layout) -> tuple[Value, Value]:
    """(layers of the largest stage, layers of the last one, which also has the ends)."""
    p, ends = np.asarray(layout.pipeline), model.end_weights / model.layer_weights  # in layers
    last = np.floor(np.maximum(model.layers - (p - 1) * ends, 0) / p)
    most = np.ceil((model.layers - last) / np.maximum(p - 1, 1))
    balanced = np.asarray(layout.balanced) & (p > 1)
    even = model.layers / p
    return np.where(balanced, most, np.ceil(even)), np.where(balanced, last, np.floor(even))


def fetches(model: Model, layout: Layout) -> Value:
    """Messages in which a rank fetches all of its weights, if they are sharded."""
    matrices = np.where(model.gated, 5, 4)
    return 1 + model.layers / layout.pipeline * np.where(layout.deepspeed, matrices, 1)


def hop_s(cluster: Cluster, layout: Layout, work: Work) -> Value:
    """Seconds of a message from stage to stage; 0 if there is one stage.

    Fused stacks send each tensor rank's part, and gather it on the next stage (SC21).
    """
    apart = layout.tensor * layout.data * layout.context
    near = apart * layout.pipeline <= cluster.gpus_per_node
    rate = np.where(near, cluster.node_bytes_per_s, cluster.network_bytes_per_s)
    fused = (np.asarray(layout.kernels) == "fused") & ~np.asarray(layout.deepspeed, bool)
    parted = np.asarray(layout.sequence_parallel) | fused
    sent = work.message_bytes / np.where(parted, layout.tensor, 1)
    return np.where(np.asarray(layout.pipeline) > 1, sent / rate + cluster.latency_s, 0)


def kept_bytes(model: Model, layout: Layout) -> tuple[Value, Value, Value]:
    """(all, scores of the attention, input): bytes that a layer keeps of a microbatch for backward.

    The second is a part of the first: what "selective" recomputation does not keep.
    """
    t = layout.tensor
    tokens = layout.microbatch * model.seq / layout.context
    split = np.where(layout.sequence_parallel, t, 1)
    whole = chosen(layout.kernels, {"fused": 8, "eager": 8, "unfused": 24})  # norms and residuals
    gated = chosen(layout.kernels, {"fused": 3, "eager": 4, "unfused": 4})
    stored = np.where(model.gated, gated, 2)
    hidden = 2 * stored * model.ffn / model.hidden
    parted = 4 + 4 * model.kv_heads / model.heads + hidden
    per_score = chosen(layout.attention, {"flash": 0, "flash1": 0, "softmax": 5, "torch": 10})
    scores = per_score * tokens * model.seq * model.heads / t
    kept = tokens * model.hidden * (whole / split + parted / t) + scores
    scores = np.where(layout.half, kept / 2, scores)
    return kept, scores, 2 * tokens * model.hidden / split


def score_bytes(model: Model, layout: Layout) -> Value:
    """Bytes of the vocabulary's scores and of their gradients, for a microbatch on the last stage.

    Fused kernels compute the loss from the ranks' own parts. Eager ones gather all of it, in fp32.
    """
    tokens = layout.microbatch * model.seq / layout.context
    gathers = (np.asarray(layout.kernels) != "fused") & (np.asarray(layout.tensor) > 1)
    return tokens * model.vocab * np.where(gathers, 16, 6 / layout.tensor)


def layouts(model: Model, gpus: int, batch: int, gpus_per_node: int = 8) -> Layout:
    """All layouts that use all of these GPUs: a Layout of arrays."""
    columns = [
        (t, p, gpus // (t * p * c), c, micro, v, recompute, shards, t > 1 and split)
        for t in _powers(min(gpus_per_node, model.kv_heads))
        for p in range(1, model.layers + 1)
        for c in _powers(model.seq // 4096)
        if gpus % (t * p * c) == 0
        for micro in _powers(batch)
        if batch % (gpus // (t * p * c) * micro) == 0
        for v in range(1, min(8, -(-model.layers // p) if p > 1 else 1) + 1)
        for recompute, shards in itertools.product(("none", "selective", "full"), (0, 1, 2, 3))
        if shards < 2 or p == 1
        for split in ((True, False) if t > 1 else (False,))
    ]
    if not columns:
        raise ValueError(f"a batch of {batch} sequences fits no layout of {gpus} GPUs")
    t, p, d, c, micro, v, recompute, shards, split = map(np.array, zip(*columns, strict=True))
    return Layout(t, p, d, c, batch, micro, v, recompute, shards, split, overlap=True)


def fits(needed_bytes: Value, cluster: Cluster) -> Any:
    """Whether so many bytes fit on a GPU. A GPU of "80 GB" has 80 GiB, less one for its driver."""
    return needed_bytes <= 1.06 * cluster.memory_bytes


def made(fields: dict[str, Any]) -> Model | Cluster | Layout:
    """The Model, Cluster or Layout with these fields: vars() of one, which can be sent as data."""
    kinds = (("seq", Model), ("memory_bytes", Cluster), ("microbatch", Layout))
    return next(kind(**fields) for field, kind in kinds if field in fields)


def _hot(sheet: Chip) -> bool:
    """Whether its clock falls under load: 1 TFLOP/s per watt and more."""
    return sheet.peak_flops_per_s / sheet.watts > 1e12


def _matmul_s(cluster: Cluster, m: Value, n: Value, k: Value) -> Value:
    """Seconds of an (m, k) × (k, n) product: whole tiles, and half a wave of tiles without work.

    A simulated GPU has no tiles: all shapes are equally fast.
    """
    processors = np.maximum(cluster.processors, 1)
    waves = np.ceil(m / TILE) * np.ceil(n / TILE) / processors + 0.5
    deep = 64 * np.ceil(k / 64) + 64  # of whole slices, and one to fill the pipeline of a tile
    tiled = waves * processors * TILE**2 * 2 * deep * np.maximum(_misaligned(n), _misaligned(k))
    flops = np.where(np.asarray(cluster.processors) > 0, tiled, 2 * m * n * k)
    return flops / cluster.matmul_flops_per_s


def _misaligned(row: Value) -> Value:
    """How many times as long a product takes whose rows have so many numbers.

    Rows of whole 128-byte lines are fastest. Others touch five sectors where four would do, and
    rows that are not multiples of 16 bytes are read in smaller pieces.
    """
    return np.where(row % 8 != 0, 2, np.where(row % 64 != 0, 1.25, 1))


def _backward_s(cluster: Cluster, m: Value, n: Value, k: Value) -> Value:
    """Seconds of the two products that backward computes for an (m, k) × (k, n) product."""
    return _matmul_s(cluster, m, k, n) + _matmul_s(cluster, k, n, m)


def _attention_s(
    model: Model, cluster: Cluster, layout: Layout, tokens: Value
) -> tuple[Value, Value]:
    """Seconds of the attention's core, forward and backward.

    Fused kernels skip the upper triangle and compute the scores again in backward: five products
    instead of four. Others compute the whole square and write it to memory several times. Context
    ranks pass keys and values round a ring, and their gradients in backward.
    """
    square = 4 * tokens * model.seq * model.hidden / layout.tensor  # FLOPs
    slow = chosen(layout.attention, {"flash": 1, "flash1": 2, "softmax": 1, "torch": 1})
    old = np.where(
        (np.asarray(layout.kernels) != "fused") & (cluster.peak_flops_per_s > 9e14), 0.75, 1
    )
    real = np.asarray(cluster.processors) > 0
    narrow = np.where(real & (np.asarray(model.head) <= 64), 1.3, 1)
    fused_s = square / 2 * slow * narrow / (cluster.attention_flops_per_s * old)
    moved = chosen(layout.attention, {"flash": 0, "flash1": 0, "softmax": 13, "torch": 30})
    moved_s = moved * tokens * model.seq * model.heads / layout.tensor / cluster.memory_bytes_per_s
    padded = np.where(real, 64 * np.ceil(model.head / 64) / model.head, 1)
    # Without 16-byte rows, batched products ran without tensor cores: 78 of an A100's 312 TFLOP/s.
    padded = padded * np.where(real & (np.asarray(model.head) % 8 != 0), 4, 1)
    batched_s = square * padded / (0.5 * cluster.matmul_flops_per_s)
    keys = 4 * tokens * model.kv_heads * model.head / layout.tensor  # bytes, with the values
    ring = bandwidth(cluster, layout.context, layout.tensor)
    passed_s = cluster.exposed * (layout.context - 1) * (cluster.latency_s + keys / ring)
    fused = moved == 0
    backward = np.where(real, 2.5 * 1.1, 2.5)
    return (
        np.where(fused, fused_s, batched_s + moved_s) + passed_s,
        np.where(fused, backward * fused_s, 2 * batched_s + 1.3 * moved_s) + 2 * passed_s,
    )


def _elementwise_bytes(model: Model, cluster: Cluster, layout: Layout, tokens: Value) -> Value:
    """Bytes that a layer's norms, activations and additions move in forward."""
    split = np.where(layout.sequence_parallel, layout.tensor, 1)
    whole = chosen(layout.kernels, {"fused": 26, "eager": 26, "unfused": 26 + 64})
    parted = 8 + 4 * np.where(model.gated, 2, 1) * model.ffn / model.hidden
    eager = np.where(np.asarray(layout.kernels) == "fused", 1, cluster.eager_bytes)
    per_number = cluster.elementwise_bytes * eager * (whole / split + parted / layout.tensor)
    return tokens * model.hidden * per_number


def _powers(most: int) -> list[int]:
    return [2**i for i in range(max(1, most).bit_length())]
