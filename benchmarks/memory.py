"""The course's transformer, made wide, under a cap on a GPU's memory; and a fused block.

    python benchmarks/memory.py [FILE]     prints the tables, writes them (benchmarks/memory.md)
    python benchmarks/memory.py --small    the same programs, small, without a table; on any machine

Weights, gradients and Adam's moments are in bf16: 8 bytes per weight. The cap is 60 % of what plain
training needs at its peak, enforced by PyTorch's allocator. Speeds are tokens per second over five
steps after two that are not counted.
"""

import contextlib
import functools
import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from benchmarks import fused_block, solved
from benchmarks.offload import BEHIND, Swap
from common import language_model
from common.hardware import device, timing
from common.language_model.transformer import EPSILON

FILE = Path(__file__).with_suffix(".md")
SMALL = "--small" in sys.argv
WIDE = {"vocabulary": 128, "context": 1024, "width": 4096, "layers": 8, "heads": 32}
TINY = {"vocabulary": 128, "context": 32, "width": 64, "layers": 3, "heads": 4}
SIZES = TINY if SMALL else WIDE
BATCH = 2 if SMALL else 32
CAP, MARGIN = 0.6, 0.03  # of plain training's peak; of the cap, for fragmentation
STEPS = 1 if SMALL else 5
WHERE = torch.device("cuda" if device.has_gpu() else "cpu")
TYPE = torch.float64 if SMALL else torch.bfloat16
FUSED = (64, 32, 96, 200) if SMALL else (16384, 2048, 8192, 128256)  # tokens, width, hidden, words

again = functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
Piece = Callable[[Tensor], Tensor]
Segment = tuple[int, int]


def attention(block: Any, cheap: bool, x: Tensor) -> Tensor:
    """The first half of a block. cheap: the norm's result is computed again in backward."""

    def products(x: Tensor) -> Tensor:
        return block.query_key_value(F.rms_norm(x, x.shape[-1:], block.norm_attention, EPSILON))

    joined = again(products, x) if cheap else products(x)
    q, k, v = (
        part.unflatten(-1, (block.heads, -1)).transpose(1, 2) for part in joined.chunk(3, -1)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return x + block.projection(mixed.transpose(1, 2).flatten(2))


def hidden(block: Any, cheap: bool, x: Tensor) -> Tensor:
    """The second half. cheap: the norm's result and GELU's are computed again in backward."""

    def up(x: Tensor) -> Tensor:
        return block.up(F.rms_norm(x, x.shape[-1:], block.norm_hidden, EPSILON))

    def down(wide: Tensor) -> Tensor:
        return block.down(F.gelu(wide, approximate="tanh"))

    if cheap:
        return x + again(down, again(up, x))
    return x + down(up(x))


class Trained:
    """The model, its optimizer and its data."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        with WHERE:
            hidden_size = 4 * SIZES["width"]
            model = language_model.module(trained=False, **SIZES, hidden=hidden_size)
        self.model = model.to(TYPE)
        self.blocks: list[Any] = list(self.model)[1:-1]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4, fused=True)
        tokens = language_model.tokens(0, BATCH * SIZES["context"] + 1)
        text = torch.from_numpy(tokens).to(WHERE)
        self.inputs, self.targets = text[:-1].view(BATCH, -1), text[1:]

    def halves(self, cheap: bool) -> list[Piece]:
        return [
            functools.partial(half, block, cheap)
            for block in self.blocks
            for half in (attention, hidden)
        ]

    def loss(self, body: Piece) -> Tensor:
        scores = self.model[-1](body(self.model[0](self.inputs)))
        return F.cross_entropy(scores.flatten(0, 1), self.targets)

    def step(self, body: Piece, end: Callable[[], object] = int) -> Tensor:
        loss = self.loss(body)
        loss.backward()
        end()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def plain(trained: Trained, x: Tensor) -> Tensor:
    return in_turn(trained.blocks, x)


def each_block(trained: Trained, x: Tensor) -> Tensor:
    for block in trained.blocks:
        x = again(block, x)
    return x


def chosen(trained: Trained, segments: Sequence[Segment], x: Tensor) -> Tensor:
    """These segments of halves are computed again; of the others, what is element-wise."""
    full, cheap = trained.halves(cheap=False), trained.halves(cheap=True)
    stops = dict(segments)
    number = 0
    while number < len(full):
        stop = stops.get(number, 0)
        piece = functools.partial(in_turn, full[number:stop])
        x = again(piece, x) if stop else cheap[number](x)
        number = stop or number + 1
    return x


def in_turn(pieces: Sequence[Piece], x: Tensor) -> Tensor:
    for piece in pieces:
        x = piece(x)
    return x


def swapped(trained: Trained, swap: Swap, count: int, x: Tensor) -> Tensor:
    """The first `count` halves are offloaded; in all, what is element-wise is computed again."""
    for number, half in enumerate(trained.halves(cheap=True)):
        x = swap.run(number, half, x) if number < count else half(x)
        if x.requires_grad:
            swap.watch(number, x)
        swap.forget(number - BEHIND)
    return x


def saved_on_cpu(trained: Trained, count: int, x: Tensor) -> Tensor:
    """The same by PyTorch's own hooks, which wait for each copy."""
    for number, half in enumerate(trained.halves(cheap=True)):
        with (
            torch.autograd.graph.save_on_cpu(pin_memory=WHERE.type == "cuda")
            if number < count
            else contextlib.nullcontext()
        ):
            x = half(x)
    return x


# Predictions, in bytes


@dataclass(frozen=True)
class Model:
    """What the formulas of lab 09 say of this model."""

    unit: int  # one activation: tokens × width
    row: int  # one number in float32 per token

    @property
    def halves(self) -> list[int]:
        """Saved by each half, with all that autograd keeps."""
        heads = SIZES["heads"]
        halves = [6 * self.unit + (1 + heads) * self.row, 10 * self.unit + self.row]
        return halves * SIZES["layers"]

    @property
    def cheap(self) -> list[int]:
        """Saved by each half if what is element-wise is computed again."""
        halves = [5 * self.unit + SIZES["heads"] * self.row, 5 * self.unit]
        return halves * SIZES["layers"]

    @property
    def costs(self) -> list[float]:
        """FLOPs per token of each half's second forward, which ends before its last product."""
        width, n = SIZES["width"], SIZES["context"]
        return [2 * 3 * width**2 + 2 * n * width, 2.0 * 4 * width**2] * SIZES["layers"]

    def work(self, is_again: bool) -> int:
        """What backward of the last half makes while the most is saved: gradients.

        is_again: GELU's result was computed again. Then it is no part of what is saved, and it
        lives as long as the gradients of GELU's input and output do. (Under PyTorch's checkpoint of
        a whole block it lives as long, too.)
        """
        units = 9 if is_again else 5
        return units * self.unit + 4 * SIZES["width"] ** 2 * TYPE.itemsize


def model_sizes() -> Model:
    tokens = BATCH * SIZES["context"]
    return Model(tokens * SIZES["width"] * TYPE.itemsize, 4 * tokens)


def fixed_bytes(trained: Trained) -> int:
    """Weights and both moments. Gradients are born in backward, while activations die."""
    return 3 * sum(w.nbytes for w in trained.model.parameters())


def segments_peak(sizes: Model, segments: Iterable[Segment]) -> int:
    """The most that is saved at once."""
    stops, number, before, most = dict(segments), 0, 0, 0
    while number < len(sizes.cheap):
        stop = stops.get(number, 0)
        if stop:
            most = max(most, before + sum(sizes.halves[number:stop]))
            before += sizes.unit
        else:
            before += sizes.cheap[number]
            most = max(most, before)
        number = stop or number + 1
    return most


def halves_to_offload(sizes: Model, budget: int) -> int:
    """The fewest first halves whose absence fits the budget where backward begins."""
    counts = range(len(sizes.cheap) + 1)
    return next(count for count in counts if sum(sizes.cheap[count:]) <= budget)


# Measurements


@dataclass(frozen=True)
class Run:
    """One way to train: tokens per second, predicted and measured bytes at the peak."""

    name: str
    tokens_per_s: float
    predicted: int
    peak: int
    reserved: int
    losses: tuple[float, ...]


def synchronized() -> float:
    if WHERE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def run(
    name: str, make: Callable[[Trained], Any], predicted: Callable[[Trained], int], steps: int
) -> Run:
    """Two steps that are not timed, and `steps` that are."""
    clean()
    trained = Trained()
    body, end = make(trained)
    expected = predicted(trained)
    losses = [trained.step(body, end) for _ in range(2)]
    if WHERE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = synchronized()
    losses += [trained.step(body, end) for _ in range(steps)]
    seconds = synchronized() - start
    peak = reserved = 1
    if WHERE.type == "cuda":
        peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    speed = steps * BATCH * SIZES["context"] / seconds
    return Run(name, speed, expected, peak, reserved, tuple(float(loss) for loss in losses))


def attempt(*arguments: Any) -> Run | str:
    """A run, or what went wrong."""
    try:
        return run(*arguments)
    except torch.OutOfMemoryError:
        return f"{arguments[0]}: out of memory"


def clean() -> None:
    """Gives back what the last run left."""
    gc.collect()
    if WHERE.type == "cuda":
        torch.cuda.empty_cache()


def static(saved: int, is_again: bool = True) -> Callable[[Trained], int]:
    """The predicted peak, if at most these bytes of activations are saved at once."""
    return lambda trained: fixed_bytes(trained) + saved + model_sizes().work(is_again)


def way(body: Callable[..., Tensor], *arguments: Any) -> Callable[[Trained], Any]:
    return lambda trained: (functools.partial(body, trained, *arguments), int)


def offloaded(count: int, trained: Trained) -> Any:
    swap = Swap(trained.model.parameters(), WHERE)
    return functools.partial(swapped, trained, swap, count), swap.end


def under_a_cap() -> tuple[Run, int, list[Run | str]]:
    """Plain training, the cap, and all ways to train under it."""
    sizes = model_sizes()
    base = run("plain", way(plain), static(sum(sizes.halves), False), STEPS)
    cap = int(CAP * base.peak)
    weights = fixed_bytes(Trained())
    clean()
    budget = int(cap * (1 - MARGIN)) - weights - sizes.work(is_again=True)
    if WHERE.type == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(cap / total)
    else:
        budget = int(0.5 * sum(sizes.cheap))
    inputs = [sizes.unit] * len(sizes.cheap)
    segments = solved.solved("09")["checkpoint_best"](sizes.costs, inputs, sizes.cheap, budget)
    if segments is None:
        sys.exit(f"no choice of segments keeps {budget:,} bytes")
    count = halves_to_offload(sizes, budget)
    rest = static(sum(sizes.cheap[count:]))
    blocks = SIZES["layers"] * sizes.unit + sum(sizes.halves[:2]) - sizes.unit
    best = static(segments_peak(sizes, segments))
    swaps = functools.partial(offloaded, count)
    ways: list[Any] = [
        ("plain", way(plain), static(sum(sizes.halves), False), STEPS),
        ("torch.utils.checkpoint, each block", way(each_block), static(blocks), STEPS),
        (f"checkpoint_best: {segments}", way(chosen, segments), best, STEPS),
        (f"offload with prefetch, {count} halves", swaps, rest, STEPS),
        (f"save_on_cpu, {count} halves", way(saved_on_cpu, count), rest, 1),
    ]
    return base, cap, [attempt(*each) for each in ways]


def saved_bytes(call: Callable[[], Tensor], inputs: Iterable[Tensor]) -> tuple[int, Tensor]:
    """(bytes of the storages that autograd keeps, without these inputs; the call's result)."""
    given = {x.untyped_storage()._cdata for x in inputs}
    kept: dict[int, Any] = {}

    def pack(x: Tensor) -> Tensor:
        kept[x.untyped_storage()._cdata] = x.untyped_storage()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        y = call()
    return sum(s.nbytes() for key, s in kept.items() if key not in given), y


def fused_inputs() -> tuple[Tensor, list[Tensor], Tensor]:
    """x, the weights and the targets of the fused block."""
    tokens, width, hidden_size, words = FUSED
    torch.manual_seed(1)
    square = [(hidden_size, width), (hidden_size, width), (width, hidden_size)]
    shapes: list[tuple[int, ...]] = [(width,), *square, (width,), (words, width)]
    weights = []
    for shape in shapes:
        scale = shape[1] ** -0.5 if len(shape) == 2 else 0.0
        values = scale * torch.randn(shape, device=WHERE) if scale else torch.ones(shape).to(WHERE)
        weights.append(values.to(TYPE).requires_grad_())
    x = torch.randn(tokens, width, device=WHERE).to(TYPE).requires_grad_()
    return x, weights, torch.randint(0, words, (tokens,), device=WHERE)


def fused() -> str:
    """The fused block beside PyTorch's operators: bytes saved, milliseconds, peak."""
    x, weights, targets = fused_inputs()
    calls: list[Callable[..., Tensor]] = [fused_block.FusedBlock.apply, fused_block.eager]
    kept, peaks, gradients = [], [], []
    for call in calls:
        clean()
        if WHERE.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        count, loss = saved_bytes(functools.partial(call, x, *weights, targets), weights)
        gradients.append(torch.autograd.grad(loss, [x, *weights]))
        kept.append(count)
        peaks.append(torch.cuda.max_memory_allocated() if WHERE.type == "cuda" else 0)
        del loss
    apart = max(float((a - b).norm() / b.norm()) for a, b in zip(*gradients, strict=True))
    limit = 1e-9 if SMALL else 3e-2
    if not apart < limit:
        sys.exit(f"the fused block's gradients are {apart:.1e} from PyTorch's, {limit:.0e} allowed")
    del gradients

    def seconds(call: Callable[..., Tensor]) -> float:
        start = synchronized()
        for _ in range(STEPS):
            torch.autograd.grad(call(x, *weights, targets), [x, *weights])
        return (synchronized() - start) / STEPS

    mine_s, peer_s = timing.in_turns(seconds, *calls)
    tokens, width, hidden_size, words = FUSED
    return (
        f"Fused block, {tokens:,} tokens, width {width:,}, hidden {hidden_size:,}, "
        f"{words:,} words: it saves {kept[0] / 1e9:.3f} GB, PyTorch's operators "
        f"{kept[1] / 1e9:.3f} GB ({kept[1] / kept[0]:.1f} times as much). Forward and backward "
        f"take {mine_s * 1e3:.1f} ms and {peer_s * 1e3:.1f} ms (ratio {mine_s / peer_s:.2f}), at a "
        f"peak of {peaks[0] / 1e9:.1f} and {peaks[1] / 1e9:.1f} GB. Gradients differ by "
        f"{apart:.1e}."
    )


def table(base: Run, cap: int, runs: Iterable[Run | str]) -> str:
    lines = [
        "| under the cap | speed, of plain | peak GB | predicted | miss | reserved GB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in [base, *runs]:
        if isinstance(each, str):
            lines.append(f"| {each} | | | | | |")
            continue
        name = "plain, without a cap" if each is base else each.name
        lines.append(
            f"| {name} | {each.tokens_per_s / base.tokens_per_s:.2f} | {each.peak / 1e9:.2f} | "
            f"{each.predicted / 1e9:.2f} | {each.predicted / each.peak - 1:+.1%} | "
            f"{each.reserved / 1e9:.2f} |"
        )
        apart = max(abs(a - b) for a, b in zip(each.losses, base.losses, strict=False))
        if not apart < (1e-9 if SMALL else 0.05):
            sys.exit(f"{each.name}: losses {each.losses}, plain {base.losses}")
    tokens = f"{BATCH} × {SIZES['context']:,} tokens"
    model = f"{SIZES['layers']} blocks of width {SIZES['width']:,}, {tokens}, bf16"
    speed = f"plain training: {base.tokens_per_s:,.0f} tokens/s"
    head = f"{model}; {speed}. Cap: {cap / 1e9:.2f} GB."
    return f"{head}\n\n" + "\n".join(lines)


def main() -> None:
    if not (SMALL or device.has_gpu()):
        sys.exit("This measures on a GPU, and this machine has none. --small runs anywhere.")
    flash = sdpa_kernel(SDPBackend.FLASH_ATTENTION)
    with flash if WHERE.type == "cuda" and not SMALL else contextlib.nullcontext():
        first = table(*under_a_cap())
    origin = f"{device.name()}, torch {torch.__version__}. Made by `python benchmarks/memory.py`."
    print(first, flush=True)
    if WHERE.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)
    text = "\n\n".join([origin, first, fused()]) + "\n"
    print(text)
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    if not SMALL:
        (Path(names[0]) if names else FILE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
