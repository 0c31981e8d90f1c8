"""Tensors that are cut over ranks: pieces, gradients through messages, and what a rank sends."""

import functools
import reprlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from common.checks import agree, near_miss
from common.figures import memory_drawings
from nogpu import ranks

if TYPE_CHECKING:
    import ipywidgets
    from matplotlib.axes import Axes

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
NEARLY = (
    "Nearly right. Are digits lost on the way? All numbers keep their dtype, float64 here. "
    "(Or is a small constant, such as eps, another one?)"
)
BLOCKS, RANKS = 6, 4  # of the experiment
Function = Callable[[Tensor], Tensor]


class TwoWay(torch.autograd.Function):
    """A value that goes forward through one function, and its gradient back through another."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Function, backward: Function) -> Tensor:
        ctx.way_back = backward
        return _tensor(forward(x), "forward")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _tensor(ctx.way_back(gradients[0]), "backward"), None, None


def _tensor(value: Any, way: str) -> Tensor:
    """The value, if it is a tensor: PyTorch would complain of something else, and much later."""
    if isinstance(value, Tensor):
        return value
    raise TypeError(
        f"the function for {way} in two_way gave {reprlib.repr(value)} instead of a tensor. "
        "(dist.all_reduce changes its tensor and returns None.)"
    )


def two_way(x: Tensor, forward: Function, backward: Function) -> Tensor:
    """forward(x), whose gradient comes back through `backward`."""
    return TwoWay.apply(x, forward, backward)


def same(x: Tensor) -> Tensor:
    """x."""
    return x


def pieces(x: Tensor, p: int, dim: int = 0) -> list[Tensor]:
    """x cut into p along dim: a list by rank."""
    return [part.clone(memory_format=torch.contiguous_format) for part in x.chunk(p, dim)]


def both_ways(
    function: Callable[..., Any], *args: Any, p: int
) -> tuple[tuple[int, int], list[Any]]:
    """((bytes that a rank sends forward, and backward), what the function returns by rank)."""
    forward, both = (ranks.run(function, *args, way, world_size=p) for way in ("forward", "both"))
    sent = max(forward.trace.bytes_sent)
    return (sent, max(both.trace.bytes_sent) - sent), both.returns


def each_agrees(
    got: Sequence[Any],
    want: Sequence[Any],
    case: str,
    names: Sequence[str] | None = None,
    mistakes: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """agree, one by one, of lists by rank or by name, so that a message says which one differs."""
    for i, (ours, wanted) in enumerate(zip(got, want, strict=True)):
        wrong = {says: values[i] for says, values in (mistakes or {}).items()}
        wrong |= near_miss(ours, wanted, NEARLY, 1e-4)
        name = names[i] if names else f"rank {i}"
        draw = functools.partial(memory_drawings.compare, ours, wanted, title=f"{case}, {name}")
        if isinstance(wanted, Tensor) and not wanted.ndim:
            draw = None  # a picture says nothing of one number
        agree(ours, wanted, f"{case}, {name}", **CLOSE, mistakes=wrong, draw=draw)


def slopes_of(*weights: str) -> list[str]:
    """What each_agrees calls the gradients of x and of two blocks' weights."""
    return ["∂x", *(f"∂{name} of block {block}" for block in (1, 2) for name in weights)]


def sequence_shards(
    x: Tensor, weights: Sequence[Tensor], p: int
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """(x, weights) by rank, for blocks of 6 weights: gain, offset, w1, b1, w2, b2."""
    dims = [None, None, 0, 0, 1, None] * (len(weights) // 6)
    parts = [
        p * [w] if dim is None else pieces(w, p, dim) for w, dim in zip(weights, dims, strict=True)
    ]
    return pieces(x, p), [list(part) for part in zip(*parts, strict=True)]


# The experiment: six blocks, cut over four ranks, with a way back to choose


@functools.cache
def six_blocks(entrance: str, exit: str) -> tuple[float, float, list[float]]:
    """(loss on one device, loss on four ranks, relative error of each block's gradient of W₁).

    entrance, exit: what happens backward where x enters a cut block, and where its output leaves
    it: "same", the gradient passes as it is, or "all_reduce", it is added over all ranks.
    """
    random = torch.Generator().manual_seed(14)
    x, target = (torch.randn(32, 16, generator=random, dtype=torch.float64) for _ in range(2))
    blocks = [
        (
            torch.randn(64, 16, generator=random, dtype=torch.float64) / 4,
            torch.randn(16, 64, generator=random, dtype=torch.float64) / 8,
        )
        for _ in range(BLOCKS)
    ]
    one, four = (
        ranks.run(
            _loss_and_gradients,
            x,
            ranks.each(
                [[(pieces(a, p)[r], pieces(b, p, 1)[r]) for a, b in blocks] for r in range(p)]
            ),
            target,
            (entrance, exit),
            world_size=p,
            live_bytes=False,
        ).returns[0]
        for p in (1, RANKS)
    )
    wants = [w.chunk(RANKS)[0] for w in one[1]]
    errors = [
        float((got - want).norm() / want.norm()) for got, want in zip(four[1], wants, strict=True)
    ]
    return one[0], four[0], errors


def _loss_and_gradients(
    dist: Any, x: Tensor, blocks: Any, target: Tensor, back: tuple[str, str]
) -> tuple[float, list[Tensor]]:
    def all_reduce(x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    entrance, exit = ({"same": same, "all_reduce": all_reduce}[name] for name in back)
    weights = [w1.requires_grad_() for w1, _ in blocks]
    for w1, w2 in blocks:
        share = F.linear(F.gelu(F.linear(two_way(x, same, entrance), w1)), w2)
        x = x + two_way(share, all_reduce, exit)
    loss = (x - target).square().mean()
    return loss.item(), list(torch.autograd.grad(loss, weights))


def draw_errors(errors: Sequence[float], title: str) -> "Axes":
    """The relative error of each block's gradient, on a logarithmic axis."""
    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(7.2, 2.6))[1]
    shown = [max(error, 1e-16) for error in errors]
    ax.plot(range(1, len(shown) + 1), shown, "o", color="C1", clip_on=False)
    ax.set(xlabel="block", ylabel="relative error", yscale="log", ylim=(1e-17, 1e2), title=title)
    return ax


def way_back() -> "ipywidgets.VBox":
    """Choose what happens backward at both ends of a cut block; find where all gradients agree."""
    import ipywidgets
    import matplotlib.pyplot as plt

    ends = [
        ipywidgets.Dropdown(options=("same", "all_reduce"), description=end)
        for end in ("entrance", "exit")
    ]

    def draw(entrance: str, exit: str) -> None:
        errors = six_blocks(entrance, exit)[2]
        right = sum(error < 1e-9 for error in errors)
        reached = "reached" if right == len(errors) else "not yet"
        draw_errors(
            errors,
            f"{right} of {len(errors)} blocks have one device's gradient (target: all; {reached})",
        )
        plt.show()

    picture = ipywidgets.interactive_output(draw, {"entrance": ends[0], "exit": ends[1]})
    picture.layout.min_height = "260px"
    return ipywidgets.VBox([ipywidgets.HBox(ends), picture])


# Real devices


class Silent:
    """A dist on which nothing crosses: the time that is left is compute."""

    def __init__(self, dist: Any) -> None:
        self.get_world_size, self.get_rank = dist.get_world_size, dist.get_rank

    def all_reduce(self, x: Tensor) -> None:
        """Nothing."""


def median_s(
    dist: Any, x: Tensor, works: Sequence[Callable[[], object]], repeats: int
) -> list[float]:
    """The median seconds of each of these, done turn by turn; x tells the device."""
    times_s: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 2):
        for own_s, work in zip(times_s, works, strict=True):
            dist.barrier()
            _synchronize(x)
            start_s = time.perf_counter()
            work()
            _synchronize(x)
            own_s.append(time.perf_counter() - start_s)
    return [statistics.median(own_s[2:]) for own_s in times_s]  # the first two warm up


def speeds(dist: Any, width: int, dtype: torch.dtype) -> list[float]:
    """[FLOP/s of a square product, bus bandwidth in bytes/s of an all-reduce of a matrix]."""
    p = dist.get_world_size()
    a, b, message = torch.randn(3, width, width, dtype=dtype)
    works = (lambda: a @ b, lambda: dist.all_reduce(message))
    product_s, message_s = median_s(dist, a, works, 8)
    return [2 * width**3 / product_s, 2 * (p - 1) / p * message.nbytes / message_s]


def _synchronize(x: Tensor) -> None:
    """Waits until the GPU is done, if x is on one."""
    if x.is_cuda:
        torch.cuda.synchronize()
