"""Live bytes: what this machine's memory holds during a step, as PyTorch's allocations show it.

A storage counts once, however many views of it there are, from the operation that makes it until it
is freed. `Watch` sorts storages into categories; `saved` lists what autograd keeps for backward.
"""

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from common import language_model
from common.checks import expect
from nogpu.ranks.dispatch import DispatchMode

CATEGORIES = ("weights", "gradients", "optimizer", "activations", "workspace")
Point = dict[str, int]


def saved(call: Callable[..., Any], *inputs: Any, besides: Iterable[Tensor] = ()) -> list[Any]:
    """[(shape, bytes of its storage), ...] of what autograd keeps of this call.

    Each storage once, at the first tensor that it was saved as; without those of `besides`.
    """
    known = {tensor.untyped_storage()._cdata for tensor in besides}
    found: list[Any] = []
    held = []  # storages live until the end: a freed one's address may be given away again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            known.add(storage._cdata)
            found.append((tuple(tensor.shape), storage.nbytes()))
        held.append(storage)
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call(*inputs)
    return found


def saved_bytes(call: Callable[..., Any], *inputs: Any, besides: Iterable[Tensor] = ()) -> int:
    """Bytes that autograd keeps of this call."""
    return sum(count for _, count in saved(call, *inputs, besides=besides))


class Watch(DispatchMode):
    """Sees each operation within a with-block, and what is live after it.

    points: [{category: bytes}], one per change. Tensors that backward will need are activations
    from the operation that saves them on; what nothing is known about is workspace.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        super().__init__()
        self.live: dict[int, tuple[Any, int, str]] = {}
        self.totals: Point = dict.fromkeys(CATEGORIES, 0)
        self.points: list[Point] = [dict(self.totals)]
        self.marks: dict[str, int] = {}
        self.idle_bytes: int | None = None  # what the allocator held for nobody at the peak
        self.most_bytes = 0
        self.parameters = list(model.parameters())
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor)
        self.label("weights", self.parameters)
        self.label("weights", model.buffers())
        self.label("gradients", [w.grad for w in self.parameters if w.grad is not None])
        if optimizer:
            states = [value for state in optimizer.state.values() for value in state.values()]
            self.label("optimizer", [value for value in states if isinstance(value, Tensor)])

    def label(self, category: str, tensors: Iterable[Tensor]) -> None:
        """Counts these tensors' storages in a category."""
        for tensor in tensors:
            self._hold(tensor, category)

    def mark(self, name: str) -> None:
        """Names this moment; marks: {name: number of the point}."""
        self.marks[name] = len(self.points) - 1

    @property
    def peak(self) -> Point:
        """What was live when most was live."""
        return max(self.points, key=lambda point: sum(point.values()))

    @property
    def held(self) -> Point:
        """The peak, and what the allocator held for nobody at that moment, if it says so."""
        idle = {} if self.idle_bytes is None else {"fragmentation": self.idle_bytes}
        return self.peak | idle

    @property
    def peak_bytes(self) -> int:
        return sum(self.peak.values())

    def most(self, category: str) -> int:
        """The most bytes of one category."""
        return max(point[category] for point in self.points)

    def __enter__(self) -> "Watch":
        self.handles = [
            w.register_post_accumulate_grad_hook(lambda w: self.label("gradients", [w.grad]))
            for w in self.parameters
        ]
        self.points = [dict(self.totals)]
        self.hooks.__enter__()
        super().__enter__()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)
        self.hooks.__exit__(exc_type, exc_val, exc_tb)
        for handle in self.handles:
            handle.remove()

    def executed(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor):
                self._hold(value, None)

    def _save(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if self.live.get(storage._cdata, (0, 0, "workspace"))[2] == "workspace":
            self._hold(tensor, "activations")
        return tensor.detach()

    def _hold(self, tensor: Tensor, category: str | None) -> None:
        storage = tensor.untyped_storage()
        key, count = storage._cdata, storage.nbytes()
        reference, old_count, old = self.live.get(key, (None, 0, category or "workspace"))
        if reference is None:
            reference = weakref.ref(storage, lambda _: self._free(key))
        if (count, category or old) != (old_count, old):
            self.totals[old] -= old_count
            self.totals[category or old] += count
            self.live[key] = reference, count, category or old
            self.points.append(dict(self.totals))
            if sum(self.totals.values()) > self.most_bytes:
                self.most_bytes = sum(self.totals.values())
                self.idle_bytes = idle_bytes()

    def _free(self, key: int) -> None:
        if key in self.live:
            _, count, category = self.live.pop(key)
            self.totals[category] -= count
            self.points.append(dict(self.totals))


# Pictures


def draw(watch: Watch, title: str, unit: float = 1e6) -> Axes:
    """Axes with the live bytes of each category, one above the other, at each change."""
    ax = plt.subplots(figsize=(7.4, 3.4))[1]
    layers = [[point[name] / unit for point in watch.points] for name in CATEGORIES]
    ax.stackplot(range(len(watch.points)), layers, labels=CATEGORIES, linewidth=0)
    top = watch.peak_bytes / unit
    ax.set(xlabel="allocations and frees", ylabel="MB", title=title, ylim=(0, 1.3 * top))
    for name, place in watch.marks.items():
        ax.axvline(place, color="#555555", linewidth=0.8, linestyle=(0, (3, 3)))
        ax.annotate(name, (place, 1.16 * top), (4, 0), textcoords="offset points", size=9)
    ax.margins(x=0)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def draw_bars(bars: Mapping[str, Mapping[str, float]], title: str, unit: float = 1e6) -> Axes:
    """Axes with one bar per name, its categories side by side. bars: {name: {category: bytes}}."""
    ax = plt.subplots(figsize=(7.4, 1.2 + 0.5 * len(bars)))[1]
    names = list(bars)
    starts = [0.0] * len(names)
    for place, category in enumerate((*CATEGORIES, "fragmentation")):
        counts = [bars[name].get(category, 0) / unit for name in names]
        if not any(counts):
            continue
        ax.barh(names, counts, left=starts, color=f"C{place}", label=category)
        starts = [start + count for start, count in zip(starts, counts, strict=True)]
    ax.set(xlabel="MB" if unit == 1e6 else "GB", title=title)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.legend(ncols=6, loc="upper center", bbox_to_anchor=(0.45, -0.42), fontsize=8.5)
    return ax


def idle_bytes() -> int | None:
    """Bytes that the allocator holds at this moment for nobody; None if it does not say.

    On a GPU: PyTorch's, what is reserved and not allocated. Without one: the C library's, what is
    free inside its heaps (glibc's mallinfo2, all arenas of the process).
    """
    if torch.cuda.is_available():
        stats = torch.cuda.memory_stats()
        reserved, allocated = (f"{name}_bytes.all.current" for name in ("reserved", "allocated"))
        return int(stats.get(reserved, 0) - stats.get(allocated, 0))
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None) if os.name == "posix" else None
    if mallinfo2 is None:
        return None
    mallinfo2.restype = _MallInfo
    return int(mallinfo2().fordblks)


class _MallInfo(ctypes.Structure):
    """struct mallinfo2 of glibc's malloc.h: ten sizes, the ninth being the bytes of free blocks."""

    _fields_: ClassVar = [
        *((f"other_{i}", ctypes.c_size_t) for i in range(8)),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]


class CountedLoss:
    """loss(weights, x, targets), and the most of its graphs that were alive at once.

    A graph is alive while it keeps its copy of x. Under torch.func, graphs are not counted.
    room: for how many tokens there is memory; AssertionError for more.
    """

    def __init__(self, loss: Callable[..., Tensor], room: int) -> None:
        self.loss, self.room, self.most = loss, room, 0
        self._copies: list[weakref.ref[Any]] = []

    def __call__(self, weights: Sequence[Tensor], x: Tensor, targets: Tensor) -> Tensor:
        expect(
            len(targets) <= self.room,
            f"loss was called with {len(targets)} tokens, and the longest microbatch has "
            f"{self.room}: memory has room for one microbatch at a time",
        )
        copy = x.clone()
        with contextlib.suppress(NotImplementedError):  # torch.func wraps tensors
            self._copies.append(weakref.ref(copy.untyped_storage()))
        self.most = max(self.most, sum(reference() is not None for reference in self._copies))
        return self.loss(weights, copy, targets)


def step_here(batch: Sequence[Tensor]) -> Watch:
    """A watched step of the language model with Adam, on this machine's GPU if it has one."""
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = language_model.module(trained=False).to(where)
    adam = torch.optim.Adam(model.parameters(), 1e-3)
    return step(model, adam, [tokens.to(where) for tokens in batch])


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Sequence[Tensor]) -> Watch:
    """A watched training step of the language model, after one that is not watched."""
    inputs, targets = batch
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        watch = Watch(model, optimizer)
        with watch:
            loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            watch.mark("backward")
            loss.backward()
            del loss
            watch.mark("optimizer")
            optimizer.step()
    return watch
