"""What a rank records of itself: its clock, what it computes, its live tensors."""

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Literal, TypedDict

import torch
from torch.utils._pytree import tree_leaves

from nogpu.ranks.dispatch import DispatchMode

TimedName = tuple[str, float, float]  # a name, and when it started and ended
Category = Literal["weights", "gradients", "optimizer", "gathered", "buffers"]
CATEGORIES: tuple[Category, ...] = ("weights", "gradients", "optimizer", "gathered", "buffers")
OTHER = CATEGORIES.index("buffers")  # what nothing is known about: activations, temporary results


class Report(TypedDict):
    """What a rank recorded of itself, as plain data.

    live_bytes: (time_s, bytes) at each change. live_by_category: the same with the bytes in each of
    CATEGORIES. peak_by_category: the most bytes of each, at whatever time. held_bytes: live bytes
    at the beginning of each call of dist.
    """

    compute: list[TimedName]
    spans: list[TimedName]
    live_bytes: list[tuple[float, int]]
    live_by_category: list[tuple[float, list[int]]]
    peak_by_category: list[int]
    held_bytes: list[int]


_of_thread = threading.local()
_of_process: "Recorder | None" = None


def set_process(recorder: "Recorder | None") -> None:
    """Make this the Recorder of all threads, autograd's too, in a process that is a rank."""
    global _of_process
    _of_process = recorder


def current() -> "Recorder | None":
    """The Recorder of the rank that runs here; None outside of a run."""
    return getattr(_of_thread, "recorder", None) or _of_process


def compute(seconds: float, name: str | None = None) -> None:
    """Takes this much of the rank's time as computation: virtual, or a sleep in real processes.

    name: what the timeline calls it; the name of the enclosing `span` if None. Outside of a run it
    does nothing.
    """
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"seconds: {seconds}; it must be a number from 0 on")
    if recorder := current():
        recorder.compute(float(seconds), name)


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """Names what the rank does in the with-block.

    It goes into trace.spans, and compute within it takes its name.
    """
    recorder = current()
    if recorder is None:
        yield
        return
    start = recorder.mark()
    recorder.names.append(name)
    try:
        yield
    finally:
        recorder.names.pop()
        recorder.look()
        recorder.spans.append((name, start, recorder.mark()))


def label(category: Category, values: Any) -> None:
    """Counts the storages of these tensors, and of modules, in this category from now on.

    A driver of the course calls it. What a rank gathers, the gradients of weights, and what a
    reduce-scatter takes and leaves get their category by themselves. Outside of a run it does
    nothing.
    """
    if category not in CATEGORIES:
        raise ValueError(f"category: {category!r}; there are {', '.join(CATEGORIES)}")
    if recorder := current():
        recorder.label_storages(CATEGORIES.index(category), values)


class Recorder(DispatchMode):
    """Sees each operation of PyTorch on its rank.

    Its FLOPs move the clock; its results are live until they are freed.
    """

    def __init__(
        self, flops_per_s: float | None = None, live_bytes: bool = True, held: bool = False
    ) -> None:
        super().__init__()
        self.flops_per_s, self.counts_live = flops_per_s, live_bytes
        self.clock_s = 0.0
        self.names: list[str] = []  # of the spans that we are in
        self.computed: list[tuple[str, Any, Any]] = []  # (name, mark at its start, at its end)
        self.spans: list[tuple[str, Any, Any]] = []
        self.live: dict[int, tuple[weakref.ref, int]] = {}  # by storage: itself, and its bytes
        self.total = 0
        self.points: list[tuple[float, int]] = [(0.0, 0)]
        self.category: dict[int, int] = {}  # by storage; OTHER if it is not here
        self.totals = [0] * len(CATEGORIES)
        self.peaks = [0] * len(CATEGORIES)
        self.category_points: list[tuple[float, list[int]]] = [(0.0, [0] * len(CATEGORIES))]
        self.counts_held, self.held = held, list[int]()
        self.weights: list[weakref.ref] = []  # whose gradients are to be found
        self.paused = self.closed = False
        self.modules = len(sys.modules)

    def now_s(self) -> float:
        """The rank's clock."""
        return self.clock_s

    def mark(self) -> Any:
        """Now, in a form that a subclass turns into seconds in its report."""
        return self.now_s()

    def compute(self, seconds: float, name: str | None = None) -> None:
        """Moves the clock over a piece of computation.

        Pieces of one name that follow each other are one.
        """
        name = self.label(name)
        start_s, self.clock_s = self.clock_s, self.clock_s + seconds
        last = self.computed[-1] if self.computed else None
        if last and last[0] == name and last[2] == start_s:
            self.computed[-1] = (name, last[1], self.clock_s)
        elif seconds:
            self.computed.append((name, start_s, self.clock_s))

    def label(self, name: str | None) -> str:
        """What computation is called: this name, that of the span around it, or nothing."""
        if name is not None:
            return name
        return self.names[-1] if self.names else ""

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Ignores what happens in the with-block: a message's copies are not the rank's memory."""
        old, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = old

    @contextlib.contextmanager
    def watching(self, arguments: Any) -> Iterator[None]:
        """The rank's function runs in this; arguments: its tensors are live from the start."""
        _of_thread.recorder = self
        try:
            if not (self.counts_live or self.flops_per_s):
                yield
                return
            self.hold(arguments)
            with self:
                yield
        finally:
            self.closed = self.paused = True
            _of_thread.recorder = None

    def hold(self, values: Any) -> None:
        """Counts the tensors among these values, and those of modules, as live."""
        for tensor in _tensors(values):
            self._hold(tensor)

    def label_storages(self, category: int, values: Any, only_others: bool = False) -> None:
        """Moves the storages of these values into a category; see `label`.

        only_others: leaves those alone that are in a category already.
        """
        if not self.counts_live or self.closed:
            return
        for tensor in _tensors(values):
            self._hold(tensor)
            key = tensor.untyped_storage()._cdata
            if key in self.live and not (only_others and key in self.category):
                self._move(key, category)
            if category == CATEGORIES.index("weights") and tensor.requires_grad and tensor.is_leaf:
                self.weights.append(weakref.ref(tensor))
                tensor.register_post_accumulate_grad_hook(lambda _: self._find_gradients())

    def exchanged(self, name: str, brought: Any, out: Any) -> None:
        """Labels what a collective takes and leaves, unless a driver has labelled it."""
        if name == "all_gather":
            self.label_storages(CATEGORIES.index("gathered"), out, only_others=True)
        if name == "reduce_scatter":
            self.label_storages(CATEGORIES.index("gradients"), [brought, out], only_others=True)

    def begin(self) -> None:
        """Looks at what is live when a call of dist begins."""
        self.look()
        if self.counts_held:
            self.held.append(self.total)

    def look(self) -> None:
        """Finds storages that were resized, which is not an operation of PyTorch's."""
        self._find_gradients()
        for key, (reference, count) in list(self.live.items()) if self.counts_live else ():
            storage = reference()
            if storage is not None and storage.nbytes() != count:
                self._change(key, reference, storage.nbytes())

    def report(self) -> Report:
        """What the rank recorded."""
        return {
            "compute": self.computed,
            "spans": self.spans,
            "live_bytes": self.points,
            "live_by_category": self.category_points,
            "peak_by_category": self.peaks,
            "held_bytes": self.held,
        }

    def executed(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        if len(sys.modules) != self.modules:
            # The imports of this operation left cycles behind that hold the callers' frames.
            gc.collect()
            self.modules = len(sys.modules)
        if not self.paused:
            if self.flops_per_s:
                from nogpu.ranks import flops  # imports much

                if count := flops.of(func, args, kwargs, result):
                    self.compute(count / self.flops_per_s)
            if self.counts_live:
                several = result if isinstance(result, (tuple, list)) else (result,)
                for value in (*args, *several):
                    if isinstance(value, torch.Tensor):
                        self._hold(value)

    def _hold(self, tensor: torch.Tensor) -> None:
        if (
            not self.counts_live
            or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
            or tensor.layout is not torch.strided  # a sparse tensor has no storage of its own
            or tensor.is_meta
        ):
            return
        storage = tensor.untyped_storage()
        key, count = storage._cdata, storage.nbytes()
        known = self.live.get(key)
        if known is None:
            self._change(key, weakref.ref(storage, lambda _: self._free(key)), count)
        elif known[1] != count:
            self._change(key, known[0], count)

    def _find_gradients(self) -> None:
        for weight in self.weights:
            if (tensor := weight()) is not None and tensor.grad is not None:
                self.label_storages(CATEGORIES.index("gradients"), tensor.grad, only_others=True)

    def _change(self, key: int, reference: weakref.ref, count: int) -> None:
        more = count - (self.live[key][1] if key in self.live else 0)
        self.live[key] = reference, count
        self._add(self.category.get(key, OTHER), more)

    def _move(self, key: int, category: int) -> None:
        """Counts a live storage in another category."""
        old, count = self.category.get(key, OTHER), self.live[key][1]
        self.category[key] = category
        if old != category:
            self.totals[old] -= count
            self.total -= count
            self._add(category, count)

    def _free(self, key: int) -> None:
        if not self.closed and key in self.live:
            self._add(self.category.pop(key, OTHER), -self.live.pop(key)[1])

    def _add(self, category: int, count: int) -> None:
        self.total += count
        self.totals[category] += count
        self.peaks[category] = max(self.peaks[category], self.totals[category])
        now_s = self.now_s()
        _append(self.points, now_s, self.total, int)
        _append(self.category_points, now_s, [*self.totals], sum)


def _append(points: list[tuple[float, Any]], now_s: float, value: Any, size: Any) -> None:
    """Adds a point; of several at one time, the largest and the last are kept."""
    if len(points) > 1 and points[-2][0] == points[-1][0] == now_s:
        points[-2:] = [max(points[-1], points[-2], key=lambda at: size(at[1])), (now_s, value)]
    elif points[-1] != (now_s, value):
        points.append((now_s, value))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """The tensors among these values, and those of modules."""
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.nn.Module):
            yield from (*leaf.parameters(), *leaf.buffers())
        elif isinstance(leaf, torch.Tensor):
            yield leaf
