"""What a rank records of itself: its clock, what it computes, its live tensors."""

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any, TypedDict

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TimedName = tuple[str, float, float]  # a name, and when it started and ended


class Report(TypedDict):
    """What a rank recorded of itself, as plain data. live_bytes: (time_s, bytes) at each change."""

    compute: list[TimedName]
    spans: list[TimedName]
    live_bytes: list[tuple[float, int]]


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


class Recorder(TorchDispatchMode):
    """Sees each operation of PyTorch on its rank.

    Its FLOPs move the clock; its results are live until they are freed.
    """

    def __init__(self, flops_per_s: float | None = None, live_bytes: bool = True) -> None:
        super().__init__()
        self.flops_per_s, self.counts_live = flops_per_s, live_bytes
        self.clock_s = 0.0
        self.names: list[str] = []  # of the spans that we are in
        self.computed: list[tuple[str, Any, Any]] = []  # (name, mark at its start, at its end)
        self.spans: list[tuple[str, Any, Any]] = []
        self.live: dict[int, tuple[weakref.ref, int]] = {}  # by storage: itself, and its bytes
        self.total = 0
        self.points: list[tuple[float, int]] = [(0.0, 0)]
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
        for leaf in tree_leaves(values):
            if isinstance(leaf, torch.nn.Module):
                tensors = [*leaf.parameters(), *leaf.buffers()]
            else:
                tensors = [leaf] if isinstance(leaf, torch.Tensor) else []
            for tensor in tensors:
                self._hold(tensor)

    def look(self) -> None:
        """Finds storages that were resized, which is not an operation of PyTorch's."""
        for key, (reference, count) in list(self.live.items()) if self.counts_live else ():
            storage = reference()
            if storage is not None and storage.nbytes() != count:
                self._change(key, reference, storage.nbytes())

    def report(self) -> Report:
        """What the rank recorded."""
        return {"compute": self.computed, "spans": self.spans, "live_bytes": self.points}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, because PyTorch would import its compiler for this."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if len(sys.modules) != self.modules:
            # The imports of this operation left cycles behind that hold the callers' frames.
            gc.collect()
            self.modules = len(sys.modules)
        if not self.paused:
            if self.flops_per_s:
                self._count_flops(func, args, kwargs or {}, out)
            if self.counts_live:
                for value in (*args, *(out if isinstance(out, (tuple, list)) else (out,))):
                    if isinstance(value, torch.Tensor):
                        self._hold(value)
        return out

    def _count_flops(self, function: Any, args: tuple, kwargs: dict, out: Any) -> None:
        from torch.utils.flop_counter import flop_registry

        if count := flop_registry.get(function._overloadpacket):
            self.compute(count(*args, **kwargs, out_val=out) / self.flops_per_s)

    def _hold(self, tensor: torch.Tensor) -> None:
        if (
            not self.counts_live
            or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
            or tensor.layout is not torch.strided  # a sparse tensor has no storage of its own
        ):
            return
        storage = tensor.untyped_storage()
        key, count = storage._cdata, storage.nbytes()
        known = self.live.get(key)
        if known is None:
            self._change(key, weakref.ref(storage, lambda _: self._free(key)), count)
        elif known[1] != count:
            self._change(key, known[0], count)

    def _change(self, key: int, reference: weakref.ref, count: int) -> None:
        self.total += count - (self.live[key][1] if key in self.live else 0)
        self.live[key] = reference, count
        self._add_point()

    def _free(self, key: int) -> None:
        if not self.closed and key in self.live:
            self.total -= self.live.pop(key)[1]
            self._add_point()

    def _add_point(self) -> None:
        """Records the total now; of several at one time, the largest and the last are kept."""
        now_s, points = self.now_s(), self.points
        if len(points) > 1 and points[-2][0] == points[-1][0] == now_s:
            points[-2:] = [(now_s, max(points[-2][1], points[-1][1])), (now_s, self.total)]
        elif points[-1] != (now_s, self.total):
            points.append((now_s, self.total))
