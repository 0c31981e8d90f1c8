"""What multi_gpu.py runs on each rank: a solution's function and its peer, compared, then in turns.

Each race takes dist, the functions of its lab, the rounds and its sizes. It returns the seconds of
each name, the same on all ranks.
"""

import copy
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from common.language_model import transformer
from common.lessons.pipeline_parallel import pipelines
from common.lessons.sharded_data_parallel import fsdp_units
from nogpu import ranks

# Of a norm; a wrong sum or scale is off by much more.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-2}
MICROBATCHES = 16

Times = dict[str, float]  # {name: seconds}
Step = Callable[[torch.Tensor, torch.Tensor], object]  # of a batch: inputs and targets


def race(
    dist: Any,
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    repeats: int = 1,
    before: Callable[[], object] = lambda: None,
) -> Times:
    """Seconds of each call on the slowest rank: medians over rounds in which the calls take turns.

    repeats: calls in a row, of which a round measures the mean. before: called ahead of each
    round's calls, and not timed.
    """
    times_s: dict[str, list[float]] = {name: [] for name in calls}
    for _, (name, call) in itertools.product(range(1 + rounds), calls.items()):
        before()
        dist.barrier()
        start_s = now_s()
        for _ in range(repeats):
            call()
        times_s[name].append((now_s() - start_s) / repeats)
    after_warm_up = [times[1:] for times in times_s.values()]
    slowest_s = torch.tensor(after_warm_up, dtype=torch.float64)
    dist.all_reduce(slowest_s, op=dist.ReduceOp.MAX)
    return dict(zip(times_s, slowest_s.median(1).values.tolist(), strict=True))


def now_s() -> float:
    """The time, once the GPU has done all its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def validate(got: Iterable[torch.Tensor], want: Iterable[torch.Tensor], what: str) -> None:
    """Raise AssertionError unless tensors are close: a wrong answer gets no time."""
    for number, (mine, right) in enumerate(zip(got, want, strict=True)):
        error = float((mine.float() - right.float()).norm() / right.float().norm())
        assert error < TOLERANCE[mine.dtype], (
            f"{what}: relative error {error:.1e} in tensor {number}"
        )


def all_reduce(
    dist: Any, lab: SimpleNamespace, rounds: int, size: int, sizes: Sequence[int]
) -> tuple[Times, dict[int, float]]:
    """Lab 11. Also {bytes: seconds} of single rounds of messages, for the lab's α and β."""
    torch.manual_seed(dist.get_rank())
    x, groups = torch.randn(size // 4), [dist.new_group() for _ in range(8)]
    calls = {
        "rings": lambda x: lab.rings_all_reduce(dist, x, groups),
        "ring": functools.partial(lab.ring_all_reduce, dist),
        "library": dist.all_reduce,
    }
    dist.all_reduce(want := x.clone())
    validate([calls["rings"](x.clone()), calls["ring"](x.clone())], [want, want], "all-reduce")
    calls = {name: functools.partial(call, x) for name, call in calls.items()}
    times_s = race(dist, calls, rounds, repeats=10, before=x.normal_)  # sums of sums would overflow
    messages = {
        str(count): functools.partial(lab.one_round, dist, torch.zeros(count // 4))
        for count in sizes
    }
    messages_s = race(dist, messages, rounds, repeats=10)
    return times_s, dict(zip(sizes, messages_s.values(), strict=True))


def data_parallel(
    dist: Any,
    lab: SimpleNamespace,
    rounds: int,
    width: int,
    layers: int,
    rows: int,
    dtype: torch.dtype,
) -> Times:
    """Lab 12: a step, with gradients summed under backward."""
    steps: dict[str, Callable[[nn.Module, float], Step]] = {
        "ours": lambda model, rate: lab.step_of(dist, "overlapped", model, rate),
        "DDP": ddp_step,
        "DDP, bucket views": functools.partial(ddp_step, gradient_as_bucket_view=True),
    }
    torch.manual_seed(1 + dist.get_rank())
    batch = torch.randn(2, rows, width, dtype=dtype)

    def change(name: str) -> list[torch.Tensor]:
        """The change of the weights by a step that is far larger than their rounding."""
        model = perceptron(width, layers, dtype)
        before = [weight.detach().clone() for weight in model.parameters()]
        steps[name](model, 0.2 * width)(*batch)
        return [
            weight.detach() - old for weight, old in zip(model.parameters(), before, strict=True)
        ]

    validate(change("ours"), change("DDP"), "data parallel, the weights' change in a step")
    made = {name: make(perceptron(width, layers, dtype), 1e-6) for name, make in steps.items()}
    return race(
        dist,
        {name: functools.partial(step, *batch) for name, step in made.items()},
        rounds,
        repeats=10,
    )


def sharded(
    dist: Any,
    lab: SimpleNamespace,
    rounds: int,
    width: int,
    blocks: int,
    rows: int,
    tokens: int,
    dtype: torch.dtype,
) -> tuple[Times, dict[str, int]]:
    """Lab 13: forward and backward of a transformer's blocks, whose weights are cut over ranks.

    Also {name: the most bytes on this GPU during a step, beyond those before}, 0 without a GPU.
    """
    torch.manual_seed(1 + dist.get_rank())
    x = torch.randn(rows, tokens, width, dtype=dtype)
    share = 2 / (x.numel() * dist.get_world_size())
    parts = sharded_units(dist, transformer_blocks(width, blocks, dtype))
    model = fully_sharded(dist, transformer_blocks(width, blocks, dtype))

    def ours() -> None:
        (y,), inputs = lab.forward_units(dist, parts, [x])
        lab.backward_units(dist, parts, inputs, [y * share])

    def peer() -> None:
        (model(x).square().sum() / x.numel()).backward()  # fully_shard divides by the ranks

    ours(), peer()
    for unit, block in zip(parts, model, strict=True):
        whole = unit.gradient.new_empty(dist.get_world_size() * len(unit.gradient))
        dist.all_gather_into_tensor(whole, unit.gradient)
        grads: list[Any] = [weight.grad for weight in block.parameters()]
        want = torch.cat([grad.full_tensor().flatten() for grad in grads])
        validate([whole[: unit.size]], [want], "sharded, a unit's gradient")
    calls = {"ours": ours, "fully_shard": peer}
    return race(dist, calls, rounds), {name: peak_bytes(call) for name, call in calls.items()}


def transformer_blocks(width: int, blocks: int, dtype: torch.dtype) -> list[nn.Module]:
    """Blocks of the course's language model, the same on all ranks."""
    torch.manual_seed(0)
    heads = width // 64
    return [transformer.Block(width, heads, 4 * width).to(dtype) for _ in range(blocks)]


def sharded_units(dist: Any, pieces: Iterable[nn.Module]) -> list[fsdp_units.Unit]:
    """A unit of lab 13 for each piece, with this rank's shard of its weights."""
    p, made = dist.get_world_size(), []
    for number, piece in enumerate(pieces):
        flat = torch.cat([weight.detach().flatten() for weight in piece.parameters()])
        padded = F.pad(flat, (0, fsdp_units.padded(len(flat), p) - len(flat)))
        shard = padded.view(p, -1)[dist.get_rank()].clone()
        made.append(LeanUnit(number, piece.to("meta"), shard, torch.zeros_like(shard)))
    return made


class LeanUnit(fsdp_units.Unit):
    """A unit that computes for backward no product that only the unit's output needs.

    Nobody reads the output there. PyTorch's checkpoints stop there, too.
    """

    needed: int | None = None  # products before the last tensor that backward reads

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return super().__call__(x)
        with Products(self.needed) as products:
            if self.needed is not None:
                return super().__call__(x)
            with torch.autograd.graph.saved_tensors_hooks(products.note, lambda saved: saved):
                output = super().__call__(x)
        self.needed = products.needed
        return output


class Products(TorchDispatchMode):
    """Counts matrix products; those after the first `needed` give uninitialised numbers."""

    def __init__(self, needed: int | None) -> None:
        super().__init__()
        self.skips, self.needed, self.count = needed is not None, needed or 0, 0

    def note(self, saved: torch.Tensor) -> torch.Tensor:
        """For a hook: backward needs what was computed so far."""
        self.needed = self.count
        return saved.detach()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.mm.default:
            return func(*args, **(kwargs or {}))
        self.count += 1
        if self.skips and self.count > self.needed:
            return args[0].new_empty(len(args[0]), args[1].shape[1])
        return func(*args)


def fully_sharded(dist: Any, pieces: Iterable[nn.Module]) -> Any:
    """PyTorch's own: a unit per piece, which computes forward again in backward."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    wrapped: list[Any] = [fully_shard(checkpoint_wrapper(piece), mesh=mesh) for piece in pieces]
    return fully_shard(nn.Sequential(*wrapped), mesh=mesh)


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes on this GPU during a call, beyond those before; 0 without a GPU."""
    if not torch.cuda.is_available():
        return 0
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def perceptron(width: int, layers: int, dtype: torch.dtype) -> nn.Sequential:
    """Layers of width × width with ReLU, the same on all ranks; activations keep their size."""
    torch.manual_seed(0)
    linear = [nn.Linear(width, width, bias=False, dtype=dtype) for _ in range(layers)]
    for layer in linear:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return nn.Sequential(*itertools.chain(*zip(linear, [nn.ReLU()] * layers, strict=True)))


def ddp_step(model: nn.Module, rate: float, **options: Any) -> Step:
    """A function of a batch that makes one step of SGD, as PyTorch's tutorial does."""
    whole = nn.parallel.DistributedDataParallel(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        F.mse_loss(whole(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def tensor_parallel(
    dist: Any,
    lab: SimpleNamespace,
    rounds: int,
    width: int,
    heads: int,
    tokens: int,
    dtype: torch.dtype,
) -> Times:
    """Lab 14: a transformer's block, forward and backward."""
    block, (x, dy) = Block(width, heads, dtype), torch.randn(2, tokens, width, dtype=dtype)
    shards = functools.partial(
        shards_of_lab, lab, heads=heads, rank=dist.get_rank(), p=dist.get_world_size()
    )
    weights = [weight.requires_grad_() for weight in shards(block.parameters())]
    exact = copy.deepcopy(block).float()
    y, dx, *slopes = both_ways(exact, x.float(), list(exact.parameters()), dy.float())
    parallelize(block, x.device.type, dist.get_world_size())
    calls = {
        "ours": lambda: both_ways(
            lambda x: block_of_lab(dist, lab, x, weights, heads), x, weights, dy
        ),
        "peer": lambda: both_ways(block, x, list(block.parameters()), dy),
    }
    want = [y, dx, *shards(slopes)]
    validate(calls["ours"](), want, "tensor parallel, compared with one device's float32")
    validate(calls["peer"]()[:2], [y, dx], "parallelize_module, compared with one device's float32")
    del exact, slopes, want
    return race(dist, calls, rounds, repeats=5)


def block_of_lab(
    dist: Any, lab: SimpleNamespace, x: torch.Tensor, weights: Sequence[torch.Tensor], heads: int
) -> torch.Tensor:
    """A transformer's block (T, D) from lab 14's two halves; weights: those of shards_of_lab."""
    gain1, offset1, gain2, offset2 = weights[8:]
    normed = F.layer_norm(x, x.shape[1:], gain1, offset1)
    x = x + lab.attention(dist, normed, *weights[:4], heads)
    normed = F.layer_norm(x, x.shape[1:], gain2, offset2)
    return x + lab.mlp(dist, normed, *weights[4:8])


def shards_of_lab(
    lab: SimpleNamespace, whole: Iterable[torch.Tensor], heads: int, rank: int, p: int
) -> list[torch.Tensor]:
    """This rank's shards of a Block's parameters; the lab's rows of w are (3, heads, d)."""
    w, b, *others = whole
    w, b = (
        rows.detach().unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2) for rows in (w, b)
    )
    own = (
        lab.shard_attention(w, b, *others[:2], heads, rank, p),
        lab.shard_mlp(*others[2:6], rank, p),
        others[6:],
    )
    return [shard.detach().clone() for shard in itertools.chain(*own)]


def parallelize(block: nn.Module, device: str, p: int) -> None:
    """Shards a Block by PyTorch's own means."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        ParallelStyle,
        RowwiseParallel,
        parallelize_module,
    )

    columns, rows = ColwiseParallel(), RowwiseParallel()
    plan: dict[str, ParallelStyle] = {"qkv": columns, "out": rows, "up": columns, "down": rows}
    parallelize_module(block, init_device_mesh(device, (p,)), plan)


class Block(nn.Module):
    """A transformer's block (T, D) for parallelize_module.

    qkv's rows are (heads, 3, d), so that a rank's rows are whole heads.
    """

    def __init__(self, width: int, heads: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.head = width // heads
        sizes = (width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)
        self.qkv, self.out, self.up, self.down = (nn.Linear(*size, dtype=dtype) for size in sizes)
        self.norm1, self.norm2 = (nn.LayerNorm(width, dtype=dtype) for _ in range(2))
        for vector in (weight for weight in self.parameters() if weight.dim() == 1):
            nn.init.normal_(vector)  # a bias that is added twice must show

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (-1, 3, self.head))
        heads = F.scaled_dot_product_attention(
            *qkv.permute(2, 1, 0, 3).unsqueeze(1), is_causal=True
        )[0]
        x = x + self.out(heads.transpose(0, 1).flatten(1))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def both_ways(
    function: Callable[[torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    dy: torch.Tensor,
) -> list[torch.Tensor]:
    """[y, the gradients by x and by each weight]."""
    x = x.detach().requires_grad_()
    y = function(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *weights], dy)]


def pipeline(
    dist: Any,
    lab: SimpleNamespace,
    rounds: int,
    width: int,
    blocks: int,
    rows: int,
    dtype: torch.dtype,
    peer: bool = True,
) -> Times:
    """Lab 15: a step of 1F1B, and PyTorch's if peer; then the parts of a step.

    Also the seconds of a message by itself. In the trace: spans "alone F0", ... of the stage by
    itself, and "F0", ... within each "step", which all ranks begin at the same instant.
    """
    own = Pipe(dist, lab, width, blocks, rows, dtype)
    times_s = against_schedule(dist, own, rounds) if peer else {}
    hops = {"message": lambda: there_and_back(dist, own.links, own.xs[0])}
    message_s = race(dist, hops, rounds, repeats=10)["message"]
    own.alone()
    inputs = own.with_gradients()
    for _ in range(1 + rounds):
        dist.all_reduce(torch.zeros(1))  # GPUs' clocks drift apart; this ends on all at once
        with ranks.span("step"):
            own.step(pipelines.watched(lab.Stage), inputs)
    return times_s | {"message": message_s / (2 * (dist.get_world_size() - 1))}


class Pipe:
    """This rank's layers, data and links in 1F1B."""

    def __init__(
        self,
        dist: Any,
        lab: SimpleNamespace,
        width: int,
        blocks: int,
        rows: int,
        dtype: torch.dtype,
    ) -> None:
        rank, p = dist.get_rank(), dist.get_world_size()
        self.dist, self.lab, self.last = dist, lab, rank == p - 1
        self.loss = F.mse_loss if self.last else None
        self.tasks, self.links = lab.one_f_one_b(rank, p, MICROBATCHES), lab.open_links(dist)
        torch.manual_seed(rank)
        self.layers = nn.Sequential(*(Perceptron(width, dtype) for _ in range(blocks)))
        self.xs, self.ts = torch.randn(2, MICROBATCHES, rows, width, dtype=dtype)

    def step(self, kind: type, inputs: Iterable[torch.Tensor]) -> Any:
        """The loss of a step, on the last rank, with Stages of this kind."""
        self.layers.zero_grad()
        stage = kind(self.layers, MICROBATCHES, self.loss)
        return self.lab.run_stage(
            self.dist, stage, self.tasks, inputs, self.ts, torch.empty_like(self.xs[0]), self.links
        )

    def with_gradients(self) -> list[torch.Tensor]:
        """The inputs, which require gradients: without, the first stage would have less work."""
        return [x.detach().requires_grad_() for x in self.xs]

    def alone(self) -> None:
        """Each microbatch forward and backward, with no messages."""
        stage = pipelines.watched(self.lab.Stage, "alone ")(self.layers, MICROBATCHES, self.loss)
        for i, x in enumerate(self.with_gradients()):
            y = stage.forward(i, x, self.ts[i])
            stage.backward(i, None if self.last else y)


def against_schedule(dist: Any, own: Pipe, rounds: int) -> Times:
    """{name: seconds} of our step and of Schedule1F1B's, with the same layers and data."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, p, m = dist.get_rank(), dist.get_world_size(), MICROBATCHES
    losses: list[torch.Tensor] = []
    stage = PipelineStage(own.layers, rank, p, own.xs.device)
    schedule = Schedule1F1B(stage, m, lambda y, t: F.mse_loss(y, t) / m, scale_grads=False)

    def peer() -> torch.Tensor | None:
        own.layers.zero_grad()
        targets: dict[str, Any] = (
            {"target": own.ts.flatten(0, 1), "losses": losses} if own.last else {}
        )
        schedule.step(*([own.xs.flatten(0, 1)] if rank == 0 else []), **targets)
        total: Any = sum(losses)
        return total.detach() if own.last else None

    def results(step: Callable[[], Any]) -> list[Any]:
        loss = step()
        return [*([loss] if own.last else []), *(weight.grad for weight in own.layers.parameters())]

    ours = functools.partial(own.step, own.lab.Stage, own.xs)
    validate(results(ours), results(peer), "pipeline, loss and gradients")
    return race(dist, {"ours": ours, "peer": peer}, rounds)


def there_and_back(dist: Any, links: Mapping[Any, Any], tensor: torch.Tensor) -> None:
    """A message from the first rank to the last and back, as the lab's stages do: 2(p − 1) hops."""
    me, works = dist.get_rank(), []
    down = [(rank, rank + 1) for rank in range(dist.get_world_size() - 1)]
    for src, dst in [*down, *((dst, src) for src, dst in reversed(down))]:
        if me == src:
            works.append(dist.isend(tensor, dst, group=links[src, dst]))
        elif me == dst:
            dist.irecv(torch.empty_like(tensor), src, group=links[src, dst]).wait()
    for work in works:
        work.wait()


class Perceptron(nn.Module):
    """x + MLP(x), (rows, width)."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.up, self.down = (
            nn.Linear(*size, bias=False, dtype=dtype)
            for size in ((width, 4 * width), (4 * width, width))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(x)))


def timed_pipeline(dist: Any, lab: SimpleNamespace, seconds: Mapping[str, float]) -> None:
    """A step of 1F1B whose tasks only take these seconds, {"F0": s, ...}: for simulated ranks."""
    rank, p, nothing = dist.get_rank(), dist.get_world_size(), [None] * len(seconds)
    lab.run_stage(
        dist,
        Timed(seconds),
        lab.one_f_one_b(rank, p, len(seconds) // 2),
        nothing,
        nothing,
        torch.zeros(1),
        lab.open_links(dist),
    )


class Timed:
    """A Stage without layers."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.seconds = seconds

    def forward(self, i: int, *_: Any) -> torch.Tensor:
        return self._take(f"F{i}")

    def backward(self, i: int, *_: Any) -> torch.Tensor:
        return self._take(f"B{i}")

    def weight_gradients(self, i: int) -> None:
        pass

    def _take(self, task: str) -> torch.Tensor:
        ranks.compute(self.seconds[task], task)
        return torch.zeros(1)
