"""The course's language model on a mesh of ranks: data × pipeline × tensor, from the labs' pieces.

`use` holds the pieces by name: functions and classes of earlier labs, the reader's or ours
(see `earlier_pieces`). Rank numbers count the tensor axis first: neighbours exchange most.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import language_model
from common.language_model import CONFIG, EPSILON, Config
from common.training.adam import adam as adam_step
from nogpu import ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Use = Mapping[str, Any]
Weights = dict[str, Tensor]
adam = functools.partial(adam_step, rate=2e-3)
LENGTH, MOST = 32, 1.0  # tokens of a text; the norm to which gradients are clipped
SHORT, LONGEST = 8, 1 << 24  # numbers of a short message, and of a long one at most
CHAIN = 8  # messages that are timed in a row: a step's messages follow each other, too
EVERY = 2  # of the blocks' activations, each second one is kept
SHARED = ("positions", "norm_attention", "norm_hidden", "norm")  # whole on every tensor rank
CUT_BY_INPUTS = ("projection", "down")


class Mesh(NamedTuple):
    """How many ranks along each axis."""

    data: int = 1
    pipeline: int = 1
    tensor: int = 1

    @property
    def size(self) -> int:
        """All ranks."""
        return self.data * self.pipeline * self.tensor

    def place(self, rank: int) -> "Mesh":
        """(data, pipeline, tensor): where a rank is."""
        rest, tensor = divmod(rank, self.tensor)
        return Mesh(*divmod(rest, self.pipeline), tensor)

    def rank(self, data: int, pipeline: int, tensor: int) -> int:
        """The rank at a place."""
        return (data * self.pipeline + pipeline) * self.tensor + tensor

    def __str__(self) -> str:
        return f"{self.data} × {self.pipeline} × {self.tensor}"


class Within:
    """torch.distributed within a group, where a rank's number is its place in the group.

    ring: an all-reduce made of sends and receives, in place of the library's.
    """

    def __init__(self, dist: Any, group: Any, members: Sequence[int], ring: Any = None) -> None:
        self._dist, self._group, self._members, self._ring = dist, group, members, ring
        self.ReduceOp = dist.ReduceOp

    def get_rank(self) -> int:
        """This rank's place."""
        return self._members.index(self._dist.get_rank())

    def get_world_size(self) -> int:
        """Ranks of the group."""
        return len(self._members)

    def isend(self, tensor: Tensor, peer: int, group: Any = None) -> Any:
        """Like torch.distributed's."""
        return self._dist.isend(tensor, self._members[peer], group=group or self._group)

    def irecv(self, tensor: Tensor, peer: int, group: Any = None) -> Any:
        """Like torch.distributed's."""
        return self._dist.irecv(tensor, self._members[peer], group=group or self._group)

    def send(self, tensor: Tensor, peer: int) -> None:
        """Like torch.distributed's."""
        self.isend(tensor, peer).wait()

    def recv(self, tensor: Tensor, peer: int) -> None:
        """Like torch.distributed's."""
        self.irecv(tensor, peer).wait()

    def P2POp(self, op: Any, tensor: Tensor, peer: int) -> Any:  # as torch's
        """Like torch.distributed's."""
        kind = self._dist.isend if op == self.isend else self._dist.irecv
        return self._dist.P2POp(kind, tensor, self._members[peer], group=self._group)

    def batch_isend_irecv(self, ops: list[Any]) -> Any:
        """Like torch.distributed's."""
        return self._dist.batch_isend_irecv(ops)

    def all_gather_into_tensor(self, out: Tensor, x: Tensor, async_op: bool = False) -> Any:
        """Like torch.distributed's."""
        return self._dist.all_gather_into_tensor(out, x, group=self._group, async_op=async_op)

    def all_reduce(self, x: Tensor, op: Any = None) -> None:
        """Like torch.distributed's; a sum goes round the ring."""
        if len(self._members) == 1:
            return
        if self._ring is not None and op is None:
            flat = x.reshape(-1).clone()
            x.copy_(self._ring(self, flat).view(x.shape))
        else:
            self._dist.all_reduce(x, op=op or self.ReduceOp.SUM, group=self._group)


# The model, cut


def named_weights(config: Config = CONFIG) -> Weights:
    """{name: whole weight} of the course's model, untrained, in the default dtype."""
    from common.language_model import transformer

    torch.manual_seed(16)
    model = language_model.module(trained=False, **dataclasses.asdict(config))
    return {name: weight.detach().clone() for name, weight in transformer.named(model)}


def layer_names(config: Config = CONFIG) -> list[list[str]]:
    """The names of each layer's weights: the embedding, the blocks, the scores."""
    blocks, named = range(config.layers), list(language_model.shapes(config))
    return [
        ["embedding", "positions"],
        *([n for n in named if n.startswith(f"blocks.{i}.")] for i in blocks),
        ["norm", "scores"],
    ]


def own_shards(use: Use, weights: Weights, rank: int, p: int, heads: int = CONFIG.heads) -> Weights:
    """The weights as one of p tensor ranks holds them: cut with lab 14's functions."""
    own = dict(weights)
    for name, w in weights.items():
        block, _, kind = name.rpartition(".")
        if kind in ("embedding", "scores"):
            own[name] = w.chunk(p)[rank].clone()
        elif kind == "query_key_value":
            out = f"{block}.projection"
            whole = w, w.new_zeros(len(w)), weights[out], w.new_zeros(w.shape[1])
            cut = use["shard_attention"](*whole, heads, rank, p)
            own[name], own[out] = cut[0], cut[2]
        elif kind == "up":
            out = f"{block}.down"
            whole = w, w.new_zeros(len(w)), weights[out], w.new_zeros(w.shape[1])
            cut = use["shard_mlp"](*whole, rank, p)
            own[name], own[out] = cut[0], cut[2]
    return own


class Part(nn.Module):
    """Some layers of the model on one tensor rank; their weights are views of one vector.

    The weights that all tensor ranks hold stand first in the vector, `replicated` numbers.
    """

    def __init__(
        self, use: Use, dist: Any, layers: Sequence[Sequence[str]], own: Weights, heads: int
    ) -> None:
        super().__init__()
        self.use, self.dist, self.names, self.heads = use, dist, layers, heads
        flat = [n for names in layers for n in names]
        order = sorted(flat, key=lambda name: not _is_shared(name))
        self.replicated = sum(own[name].numel() for name in order if _is_shared(name))
        self.shapes = {name: own[name].shape for name in order}
        self.flat = torch.cat([own[name].flatten() for name in order]).requires_grad_()

    def weights(self) -> Weights:
        """{name: its view of the vector}."""
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = self.flat.split(sizes)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in named}

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, T), or what the stage before gave (B, T, D), to (B, T, D) or own scores."""
        w = self.weights()
        blocks = [names for names in self.names if names[0].startswith("blocks")]
        if "embedding" in w:
            x = self._embedded(x, w["embedding"]) + w["positions"][: x.shape[1]]
        if blocks:
            kinds = [name.split(".")[-1] for name in blocks[0]]
            tasks = self.use["checkpoint_every"](len(blocks), EVERY)
            given = [w[f"{names[0].rpartition('.')[0]}.{k}"] for names in blocks for k in kinds]
            x = Replayed.apply(self._block, kinds, tasks, x, *given)
        if "scores" in w:
            x = F.rms_norm(x, x.shape[-1:], w["norm"], EPSILON)
            x = F.linear(self.use["copied"](self.dist, x), w["scores"])
        return x

    def _embedded(self, tokens: Tensor, table: Tensor) -> Tensor:
        local = tokens - self.dist.get_rank() * len(table)
        own = (local >= 0) & (local < len(table))
        found = table[local.clamp(0, len(table) - 1)] * own[..., None]
        return self.use["summed"](self.dist, found)

    def _block(self, x: Tensor, w: Weights) -> Tensor:
        zero, width = x.new_zeros, x.shape[-1]
        normed = F.rms_norm(x, (width,), w["norm_attention"], EPSILON)
        parts = F.linear(self.use["copied"](self.dist, normed), w["query_key_value"]).chunk(3, -1)
        own = self.heads // self.dist.get_world_size()
        q, k, v = (part.unflatten(-1, (own, -1)).transpose(1, 2) for part in parts)
        mixed = attention(self.use["merge"], q, k, v).transpose(1, 2).flatten(2)
        x = x + self.use["summed"](self.dist, F.linear(mixed, w["projection"]))
        normed, up = F.rms_norm(x, (width,), w["norm_hidden"], EPSILON), w["up"]
        hidden = normed.flatten(0, 1), up, zero(len(up)), w["down"], zero(width)
        return x + self.use["mlp"](self.dist, *hidden).view(x.shape)


class Replayed(torch.autograd.Function):
    """Blocks whose activations a plan of lab 09 keeps, drops, and computes again."""

    @staticmethod
    def forward(
        ctx: Any, block: Any, kinds: Sequence[str], tasks: Any, x: Tensor, *given: Tensor
    ) -> Tensor:
        """The last block's output; keeps what the plan has kept by then."""
        n = len(given) // len(kinds)
        first = tasks.index(("F", n - 1)) + 1
        ctx.run = Run(block, [_of(i, kinds, given) for i in range(n)], {0: x})
        for task in tasks[:first]:
            ctx.run.play(*task)
        ctx.tasks, y = tasks[first:], ctx.run.kept.pop(n)
        return y

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:  # pyrefly: ignore[bad-override]
        """The gradients of x and of all weights."""
        ctx.run.slope = slope
        for task in ctx.tasks:
            ctx.run.play(*task)
        slopes = [part for i in range(len(ctx.run.weights)) for part in ctx.run.slopes[i]]
        return None, None, None, ctx.run.slope, *slopes


@dataclasses.dataclass
class Run:
    """Where a plan is: the activations that are kept, and the gradient so far."""

    block: Callable[[Tensor, Weights], Tensor]
    weights: list[Weights]
    kept: dict[int, Tensor]
    slope: Tensor | None = None
    slopes: dict[int, tuple[Tensor, ...]] = dataclasses.field(default_factory=dict)

    def play(self, kind: str, i: int) -> None:
        """("F", i): activation i + 1; ("D", i): drops activation i; ("B", i): its gradient."""
        if kind == "F":
            with torch.no_grad():
                self.kept[i + 1] = self.block(self.kept[i], self.weights[i])
        elif kind == "D":
            self.kept.pop(i, None)
        else:
            x = self.kept.pop(i).detach().requires_grad_()
            weights = {name: w.detach().requires_grad_() for name, w in self.weights[i].items()}
            with torch.enable_grad():
                y = self.block(x, weights)
            self.slope, *own = torch.autograd.grad(y, [x, *weights.values()], self.slope)
            self.slopes[i] = tuple(own)


def _of(i: int, kinds: Sequence[str], given: Sequence[Tensor]) -> Weights:
    """The weights of block i, by kind."""
    return dict(zip(kinds, given[i * len(kinds) : (i + 1) * len(kinds)], strict=True))


def attention(merge: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of (B, H, T, D), from two parts of the keys that `merge` of lab 06 joins.

    On a GPU it is PyTorch's own: lab 06's `merge` takes NumPy's arrays.
    """
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return Merged.apply(merge, q, k, v)


class Merged(torch.autograd.Function):
    """Attention whose result over all keys is merged from those of parts; it keeps no scores."""

    @staticmethod
    def forward(ctx: Any, merge: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(B, H, T, D)."""
        halves = (slice(0, k.shape[2] // 2), slice(k.shape[2] // 2, None))
        m, s, o = (torch.from_numpy(x) for x in merge(*(_part(q, k, v, keys) for keys in halves)))
        y = (o / s[:, None]).view(q.shape).to(q.dtype)
        ctx.save_for_backward(q, k, v, y, (m + s.log()).view(q.shape[:3]).to(q.dtype))
        return y

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:  # pyrefly: ignore[bad-override]
        """The gradients, from the scores computed again."""
        q, k, v, y, total = ctx.saved_tensors
        p = torch.exp(_scores(q, k, slice(None)) - total[..., None])
        dx = p * (slope @ v.mT - (slope * y).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
        return None, dx @ k, dx.mT @ q, p.mT @ slope


def _scores(q: Tensor, k: Tensor, keys: slice) -> Tensor:
    """Scaled scores of some of the keys; −∞ for those after the query."""
    x = q @ k[:, :, keys].mT * q.shape[-1] ** -0.5
    places = torch.arange(k.shape[2])
    return x.masked_fill(places[keys] > places[:, None], float("-inf"))


def _part(q: Tensor, k: Tensor, v: Tensor, keys: slice) -> tuple[np.ndarray, ...]:
    """(m, s, o) of all queries over some of the keys, as lab 06 has them."""
    x = _scores(q, k, keys)
    m = x.amax(-1)
    weights = torch.exp(x - m.clamp(min=torch.finfo(m.dtype).min)[..., None])
    found = m.flatten(), weights.sum(-1).flatten(), (weights @ v[:, :, keys]).flatten(0, 2)
    return tuple(part.numpy() for part in found)


def _is_shared(name: str) -> bool:
    return name.rpartition(".")[2] in SHARED


class Sharded:
    """A rank's part of the model, of which it keeps only its shard between two steps (lab 13)."""

    def __init__(self, use: Use, dist: Any, part: Part) -> None:
        self.use, self.dist, self.part, self.size = use, dist, part, part.flat.numel()
        self.shard: Tensor = part.flat.detach()  # as a Unit of lab 13 has it, and `full`
        self.full: Any = None
        self.scatter()

    def gather(self) -> None:
        """All of its weights."""
        self.use["gather_parameters"](self.dist, self).wait()
        self.part.flat = self.full[: self.size].requires_grad_()

    def scatter(self) -> None:
        """Its shard of the weights, and nothing else."""
        place = self.dist.get_rank(), self.dist.get_world_size()
        self.shard = self.use["own_shard"](self.part.flat.detach(), *place)
        if self.full is not None:
            self.use["release"](self)


def costs(config: Config = CONFIG) -> list[int]:
    """The weights that each layer multiplies with: what `partition_layers` cuts by."""
    shapes = language_model.shapes(config)
    return [
        sum(int(np.prod(shapes[n])) for n in names if n != "embedding" and not _is_shared(n))
        for names in layer_names(config)
    ]


# Training


def texts(steps: int, rows: int, length: int = LENGTH) -> list[tuple[Tensor, Tensor]]:
    """[(characters (rows, length), those that follow)], a pair per step, from the novel."""
    from common.training import replicas

    random = np.random.default_rng(16)
    return [replicas.text_shards(random, [rows], length)[0] for _ in range(steps)]


def trained(dist: Any, *arguments: Any) -> dict[str, Any]:
    """A rank's life: {"losses", "norms", "weights": its own by name, "seconds": of each step}."""
    return list(life(dist, *arguments))[-1]


def life(
    dist: Any,
    use: Use,
    update: Callable[..., float],
    mesh: Mesh,
    weights: Weights,
    batches: Sequence[tuple[Tensor, Tensor]],
    microbatches: int,
    config: Config = CONFIG,
) -> Iterator[dict[str, Any]]:
    """What `trained` tells, after each step."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")  # GPUs may use TF32; float64 stays as it is
    here, groups = mesh.place(dist.get_rank()), ranks.mesh(dist, **mesh._asdict())
    pipe, links = _pipeline(dist, mesh, groups)
    part, unit = _own_part(dist, use, mesh, groups, weights, config)
    is_last = here.pipeline == mesh.pipeline - 1

    def loss(scores: Tensor, following: Tensor) -> Tensor:
        return use["cross_entropy"](part.dist, scores.flatten(0, 1), following.flatten())

    tasks = use["one_f_one_b"](here.pipeline, mesh.pipeline, microbatches)
    state: dict[str, Tensor] = {}
    told: dict[str, list[float]] = {"losses": [], "norms": [], "seconds": []}
    for step, batch in enumerate(batches, 1):
        start_s = time.perf_counter()
        rows = [use["shard_batch"](t, here.data, mesh.data) for t in batch]
        inputs, targets = (list(t.tensor_split(microbatches)) for t in rows)
        like = torch.empty(*inputs[0].shape, config.width)
        unit.gather()
        stage = use["Stage"](part, microbatches, loss if is_last else None)
        share = use["run_stage"](pipe, stage, tasks, inputs, targets, like, links)
        told["norms"].append(_updated(dist, groups, part, update, state, step))
        unit.scatter()
        told["losses"].append(_mean_loss(dist, share, mesh))
        told["seconds"].append(time.perf_counter() - start_s)
        yield {"seconds": told["seconds"]}
    unit.gather()
    named = {name: w.detach().clone() for name, w in part.weights().items()}
    yield {**told, "weights": named, "state": sum(t.numel() for t in state.values())}


def _own_part(
    dist: Any, use: Use, mesh: Mesh, groups: Any, weights: Weights, config: Config
) -> tuple[Part, Sharded]:
    """A rank's part of the model, and what keeps its shard of it."""
    here = mesh.place(dist.get_rank())
    members = [mesh.rank(here.data, here.pipeline, t) for t in range(mesh.tensor)]
    tensor = Within(dist, groups["tensor"], members, use.get("ring_all_reduce"))
    cut = use["partition_layers"](costs(config), mesh.pipeline)[here.pipeline]
    own = own_shards(use, weights, here.tensor, mesh.tensor, config.heads)
    part = Part(use, tensor, layer_names(config)[slice(*cut)], own, config.heads)
    replicas = [mesh.rank(d, here.pipeline, here.tensor) for d in range(mesh.data)]
    return part, Sharded(use, Within(dist, groups["data"], replicas), part)


def _pipeline(dist: Any, mesh: Mesh, groups: Mapping[str, Any]) -> tuple[Within, dict]:
    """(dist within this rank's pipeline, a group for each direction between two neighbours)."""
    here, links = mesh.place(dist.get_rank()), {}
    for data in range(mesh.data):
        for tensor in range(mesh.tensor):
            line = [mesh.rank(data, stage, tensor) for stage in range(mesh.pipeline)]
            for s in range(mesh.pipeline - 1):
                for way in ((s, s + 1), (s + 1, s)):
                    group = dist.new_group([line[s], line[s + 1]])
                    if (data, tensor) == (here.data, here.tensor):
                        links[way] = group
    members = [mesh.rank(here.data, stage, here.tensor) for stage in range(mesh.pipeline)]
    return Within(dist, groups["pipeline"], members), links


def _updated(
    dist: Any, groups: Any, part: Part, update: Any, state: dict[str, Tensor], step: int
) -> float:
    """Adam's step on this rank's weights, padded so that they divide; the gradient's norm."""
    data = dist.get_world_size(groups["data"])
    n = part.flat.numel()
    gradient = part.flat.grad if part.flat.grad is not None else torch.zeros_like(part.flat)
    more = -n % data
    weights, slope = (F.pad(t.detach(), (0, more)) for t in (part.flat, gradient / data))
    norm = update(dist, groups, weights, slope, state, step, part.replicated, MOST)
    with torch.no_grad():
        part.flat.copy_(weights[:n])
    part.flat.grad = None
    return norm


def _mean_loss(dist: Any, share: Tensor | None, mesh: Mesh) -> float:
    """The loss of the whole batch, on all ranks: the last stages of all pipelines know it."""
    total = torch.zeros(1) if share is None else share.detach().reshape(1) / mesh.tensor
    dist.all_reduce(total)
    return total.item() / mesh.data


def one_device(
    weights: Weights, batches: Sequence[tuple[Tensor, Tensor]], config: Config = CONFIG
) -> dict[str, Any]:
    """{"losses", "norms", "weights"} of the same training on one device, without any piece."""
    from common.language_model import transformer

    torch.set_num_threads(1)  # as on the ranks: two would wait for each other on a busy machine
    model = language_model.module(trained=False, **dataclasses.asdict(config))
    named = dict(transformer.named(model))
    with torch.no_grad():
        for name, weight in named.items():
            weight.copy_(weights[name])
    moments = {name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in named.items()}
    losses, norms = [], []
    for step, (inputs, following) in enumerate(batches, 1):
        loss = F.cross_entropy(model(inputs).flatten(0, 1), following.flatten())
        slopes = torch.autograd.grad(loss, list(named.values()))
        norm = torch.cat([slope.flatten() for slope in slopes]).norm().item()
        for (name, w), slope in zip(named.items(), slopes, strict=True):
            adam(w, slope * min(1.0, MOST / norm), *moments[name], step)
        losses.append(loss.item())
        norms.append(norm)
    return {"losses": losses, "norms": norms, "weights": {n: w.detach() for n, w in named.items()}}


def apart(
    mesh: Mesh,
    returns: Sequence[Mapping[str, Any]],
    use: Use,
    want: Weights,
    config: Config = CONFIG,
) -> float:
    """How far the weights on any rank are from one device's, at most."""
    most = 0.0
    for rank, told in enumerate(returns):
        cut = own_shards(use, want, mesh.place(rank).tensor, mesh.tensor, config.heads)
        for name, w in told["weights"].items():
            most = max(most, float((w.cpu() - cut[name]).abs().max()))
    return most


def run(
    use: Use,
    update: Any,
    mesh: Mesh,
    steps: int = 4,
    rows: int = 8,
    microbatches: int = 2,
    config: Config = CONFIG,
    length: int = LENGTH,
    each: Callable[..., Any] = trained,
    **options: Any,
) -> ranks.Result:
    """Training on a mesh: simulated by default, machine="gloo" or "nccl" in options.

    A replica with fewer texts than microbatches has one microbatch per text. each: what a rank does
    with them.
    """
    microbatches = min(microbatches, rows // mesh.data)
    weights, batches = named_weights(config), texts(steps, rows, length)
    arguments = use, update, mesh, weights, batches, microbatches, config
    return ranks.run(each, *arguments, world_size=mesh.size, live_bytes=False, **options)


# How long a step takes


class Speeds(NamedTuple):
    """What a prediction needs to know of a mesh, measured while all of its ranks are busy."""

    compute_s: float  # of a step without its messages, on the slowest rank
    alpha_s: float  # of a message
    bytes_per_s: float  # of a message


class Muted:
    """torch.distributed whose messages take no time: a rank does its own part, and nothing arrives.

    What a rank computes then means nothing, but it computes as much as with messages.
    """

    def __init__(self, dist: Any) -> None:
        self.ReduceOp, self._rank = dist.ReduceOp, dist.get_rank()
        self._all = list(range(dist.get_world_size()))

    def get_rank(self, group: Any = None) -> int:
        """Its place in a group, which is a list of ranks."""
        return (group or self._all).index(self._rank)

    def get_world_size(self, group: Any = None) -> int:
        """Ranks of a group."""
        return len(group or self._all)

    def new_group(self, members: Sequence[int]) -> list[int]:
        """A list of ranks."""
        return list(members)

    def all_reduce(self, x: Tensor, op: Any = None, group: Any = None) -> None:
        """x stays as it is."""

    def reduce_scatter_tensor(self, out: Tensor, x: Tensor, group: Any = None, **_: Any) -> Any:
        """Its own part."""
        return self.reduce_scatter(out, x.chunk(self.get_world_size(group)), group)

    def reduce_scatter(self, out: Tensor, parts: Sequence[Tensor], group: Any = None) -> Any:
        """The same, from a list."""
        out.copy_(parts[self.get_rank(group)])
        return self

    def all_gather_into_tensor(self, out: Tensor, x: Tensor, group: Any = None, **_: Any) -> Any:
        """Its own part in the place of all."""
        return self.all_gather(out.chunk(self.get_world_size(group)), x)

    def all_gather(self, outs: Sequence[Tensor], x: Tensor, group: Any = None) -> Any:
        """The same, into a list."""
        for out in outs:
            out.copy_(x)
        return self

    def isend(self, tensor: Tensor, peer: int, group: Any = None) -> Any:
        """Nothing is sent."""
        return self

    def irecv(self, tensor: Tensor, peer: int, group: Any = None) -> Any:
        """Ones."""
        tensor.fill_(1.0)
        return self

    send, recv = isend, irecv

    def P2POp(self, op: Any, tensor: Tensor, peer: int, group: Any = None) -> Any:  # as torch's
        """A message, made at once."""
        return op(tensor, peer)

    def batch_isend_irecv(self, ops: list[Any]) -> list[Any]:
        """They are done."""
        return ops

    def wait(self) -> None:
        """It is there."""


def in_turns(
    use: Use, update: Any, mesh: Mesh, steps: int = 8, **options: Any
) -> tuple[Speeds, float]:
    """(what a prediction for the mesh needs, the seconds of a step of the mesh). options: of run.

    All ranks take a step without messages, then they pass tensors round, then they take a step, and
    so on in turns: whatever else runs on the machine slows all three. The first turn warms up. In
    each of the others, what was measured predicts the step beside it, and of all turns the one
    counts whose step over prediction is the middle one. So a load that comes and goes is in both.
    """
    result = run(use, update, mesh, steps, each=turns, **options)
    slowest = np.array([np.array(told)[1:] for told in result.returns]).max(0).tolist()
    found = [(Speeds(*known), together_s) for *known, together_s in slowest]
    names = ("rows", "microbatches", "config", "length")
    shape = {name: options[name] for name in names if name in options}
    ratios = [step_s / sum(predicted_s(mesh, known, **shape).values()) for known, step_s in found]
    return found[int(np.argsort(ratios)[len(ratios) // 2])]


def turns(
    dist: Any, use: Use, update: Any, mesh: Mesh, weights: Weights, batches: Any, *rest: Any
) -> list[list[float]]:
    """By turn: what a prediction needs to know, and the seconds of a step."""
    muted, together = (
        life(d, use, update, mesh, weights, batches, *rest) for d in (Muted(dist), dist)
    )
    found, long = [], long_message(mesh, batches[0][0].shape, *rest)
    for _ in batches:
        dist.barrier()
        own_s = next(muted)["seconds"][-1]
        messages = message_speeds(dist, long)
        dist.barrier()
        found.append([own_s, *messages, next(together)["seconds"][-1]])
    return found


def long_message(
    mesh: Mesh, shape: Sequence[int], microbatches: int, config: Config = CONFIG
) -> int:
    """Numbers of the messages that take most of a step's bytes. shape: of a batch's texts."""
    activations = shape[0] * shape[1] * config.width // (mesh.data * microbatches)
    if mesh.tensor > 1:
        size = activations // mesh.tensor
    elif mesh.pipeline > 1:
        size = activations
    else:
        size = language_model.parameter_count(config) // mesh.data
    return min(max(size, 1000 * SHORT), LONGEST)


def message_speeds(dist: Any, long: int) -> tuple[float, float]:
    """(seconds of a short message, bytes per second): all ranks pass tensors on, round a ring."""
    from common.lessons.tensor_parallel import sharding

    me, p = dist.get_rank(), dist.get_world_size()
    tensors = [torch.zeros(2, size) for size in (SHORT, long)]

    def chain(sent: Tensor, got: Tensor) -> None:
        after, before = (me + 1) % p, (me - 1) % p
        for _ in range(CHAIN):
            ops = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, got, before)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()

    works = [lambda pair=pair: chain(*pair) for pair in tensors]
    short_s, long_s = (s / CHAIN for s in sharding.median_s(dist, tensors[0], works, 3))
    more_bytes = (long - SHORT) * tensors[0].element_size()
    return short_s, more_bytes / max(long_s - short_s, 0.1 * long_s)


def predicted_s(
    mesh: Mesh,
    known: Speeds,
    rows: int = 8,
    microbatches: int = 2,
    config: Config = CONFIG,
    length: int = LENGTH,
) -> dict[str, float]:
    """{part: seconds} of a step: compute, bubble, and the messages along each axis of the mesh.

    A block has two sums over tensor ranks each time that it is computed, and two in its gradient.
    The embedding and the gradient of the scores have one each, and the loss three of short rows.
    """
    d, p, t = mesh
    itemsize, microbatches = torch.get_default_dtype().itemsize, min(microbatches, rows // d)
    share = _largest_share(costs(config), p)
    rank_bytes = length * config.width * itemsize * rows / d  # of a layer's activations, per step

    def ring_s(n: int, size: float, rounds: int) -> float:
        """Rounds of n ranks that pass on 1/n of a tensor."""
        return rounds * (known.alpha_s + size / n / known.bytes_per_s) if n > 1 else 0.0

    sums = 2 * (_forwards(config.layers // p) + config.layers / p) + (2 if p == 1 else 1)
    tensor_s = sums * microbatches * ring_s(t, rank_bytes / microbatches, 2 * (t - 1))
    tensor_s += 3 * microbatches * ring_s(t, 0, 2 * (t - 1))
    activation_s = known.alpha_s + rank_bytes / microbatches / known.bytes_per_s
    weights = language_model.parameter_count(config) * share / t * itemsize
    bubble = (p - 1) / microbatches
    return {
        "compute": known.compute_s,
        "bubble": bubble * (known.compute_s + tensor_s),
        "tensor": tensor_s,
        "pipeline": (microbatches - 1 + 2 * (p - 1)) * activation_s if p > 1 else 0.0,
        "data": ring_s(d, weights, 3 * (d - 1)),  # gathered, summed up, and gathered again
        "norm, loss": 2 * ring_s(mesh.size, 0, 2 * (mesh.size - 1)),
    }


def _forwards(blocks: int) -> int:
    """How many times blocks are computed in a step that keeps each second activation.

    Each once in forward, and once for its gradient; those whose output is not kept once more.
    """
    return 3 * blocks - -(-blocks // EVERY)


def _largest_share(costs: Sequence[int], stages: int) -> float:
    """The share of the most expensive stage, in the best cut."""
    from itertools import combinations, pairwise

    ends = ((0, *cut, len(costs)) for cut in combinations(range(1, len(costs)), stages - 1))
    most = min(max(sum(costs[a:b]) for a, b in pairwise(cut)) for cut in ends)
    return most / sum(costs)


# The end of the course


def accepting(update: Any) -> Callable[[str, Use], bool]:
    """What pieces.collect asks of a lab's pieces: int4 codes are close; all others train a mesh."""

    def accept(lab: str, use: Use) -> bool:
        if lab != "10":
            return agrees(use, update)
        weight = torch.randn(6, 64, dtype=torch.float32)
        codes, scales = use["quantize_groups"](weight, 4, 32)
        got = use["dequantize_groups"](codes, scales, 32)
        room = 0.51 * scales.repeat_interleave(32, 1)
        return bool(((got - weight).abs() <= room).all() and codes.abs().max() <= 7)

    return accept


def agrees(use: Use, update: Any) -> bool:
    """Whether these pieces train on 2 × 2 × 2 ranks as one device does."""
    mesh, config = Mesh(2, 2, 2), Config(width=16, hidden=32, layers=2, heads=2)
    result = run(use, update, mesh, 1, 4, 2, config, 8)
    want = one_device(named_weights(config), texts(1, 4, 8), config)["weights"]
    return apart(mesh, result.returns, use, want, config) < 1e-10


def draw_training(losses: Mapping[str, Sequence[float]], one: Sequence[float]) -> "Axes":
    """The losses of one device as a line and those of each mesh as dots."""
    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(7.2, 2.8))[1]
    steps = range(1, len(one) + 1)
    ax.plot(steps, one, color="0.3", label="one device")
    for place, (name, own) in enumerate(losses.items()):
        size = 13 - 4 * place
        ax.plot(steps, own, "o", ms=size, mfc="none", mec=f"C{place}", mew=2, label=name)
    ax.set(xlabel="step", ylabel="nats per character", xticks=list(steps))
    ax.set_title("Every mesh takes the steps of one device")
    ax.legend(title="data × pipeline × tensor")
    return ax


def draw_steps(
    predicted: Mapping[str, Mapping[str, float]], measured: Mapping[str, float]
) -> "Axes":
    """The parts of each predicted step as a bar, and what was measured as a dot."""
    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(7.2, 1.2 + 0.5 * len(predicted)))[1]
    left = dict.fromkeys(predicted, 0.0)
    for place, part in enumerate(next(iter(predicted.values()))):
        widths = [1e3 * parts[part] for parts in predicted.values()]
        starts = [left[name] for name in predicted]
        ax.barh(list(predicted), widths, left=starts, color=f"C{place}", alpha=0.75, label=part)
        left = {name: a + b for name, a, b in zip(predicted, starts, widths, strict=True)}
    ax.plot([1e3 * measured[name] for name in predicted], list(predicted), "ko", label="measured")
    ax.set(xlabel="ms per step", ylabel="data × pipeline × tensor", xlim=(0, None))
    ax.set_title("A step: predicted parts, and the measured time")
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.legend(ncols=2, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return ax


NAMES = {
    "06": "attention: parts of the keys, merged",
    "09": "memory: which activations to keep",
    "10": "quantization: groups of 4 bits",
    "11": "collectives: the ring",
    "12": "data parallel: shards of a batch",
    "13": "sharded data parallel: gather, release",
    "14": "tensor parallel: regions, MLP, loss",
    "15": "pipeline: stages, 1F1B",
    "16": "scaling: the mesh's optimizer",
}


def facts(
    differences: Mapping[str, float],
    steps: Mapping[str, tuple[Mapping[str, float], float]],
    same_tokens: bool,
    speed_up: float,
) -> dict[str, str]:
    """{what: its line on the certificate}."""
    from common.hardware import device

    shares = [
        f"{name}: {measured_s / sum(parts.values()):.2f}"
        for name, (parts, measured_s) in steps.items()
    ]
    text = "the plain model's" if same_tokens else "NOT the plain model's"
    return {
        "data × pipeline × tensor": f"{', '.join(differences)} ranks",
        "against one device": f"weights differ by {max(differences.values()):.0e} at most",
        "machine": device.name(),
        "step / prediction": ", ".join(shares),
        "text": f"256 tokens, {text}, {speed_up:.1f} times as fast",
    }


def certificate(origin: Mapping[str, str], facts: Mapping[str, str]) -> "Axes":
    """Which pieces are the reader's, what they did, and how good the reader's predictions were."""
    import matplotlib.pyplot as plt

    from common import ledger

    lines = len(origin) + len(facts) + 1
    ax = plt.subplots(figsize=(8.0, 1.4 + 0.29 * lines))[1]
    high = 0.78 / (lines + 0.5)
    ax.set_axis_off()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.add_patch(plt.Rectangle((0.005, 0.005), 0.99, 0.99, fill=False, lw=2.5, ec="C0"))
    ax.text(0.5, 0.92, "One model, trained with your pieces", ha="center", size=16, weight="bold")
    yours = sum(whose == "yours" for whose in origin.values())
    ax.text(0.5, 0.85, f"{yours} of {len(origin)} pieces are yours", ha="center", size=11)
    for place, (lab, whose) in enumerate(origin.items()):
        y, own = 0.78 - high * place, whose == "yours"
        mark, colour = ("✓", "C2") if own else ("○", "0.5")
        ax.text(0.05, y, mark, color=colour, size=12, weight="bold")
        ax.text(0.09, y, f"{lab}  {NAMES.get(lab, '')}", size=10)
        ax.text(0.52, y, whose, size=9, color=colour)
    below = 0.78 - high * (len(origin) + 0.5)
    ax.plot([0.04, 0.96], [below + 0.6 * high] * 2, color="0.8", lw=0.8)
    for place, (name, fact) in enumerate({**facts, "calibration": ledger.summary()}.items()):
        ax.text(0.05, below - high * (place + 0.3), name, size=10, color="0.4")
        ax.text(0.3, below - high * (place + 0.3), fact, size=10)
    return ax
