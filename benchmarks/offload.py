"""Swapping what autograd saves to the host's memory, and back before it is needed."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

SMALL = 1 << 20  # bytes: what is smaller stays on the GPU
BEHIND = 2  # layers whose copies may be on the way when the next one computes
AHEAD = 2  # layers that are fetched ahead of backward


class Entry:
    """One storage that was swapped: its bytes on the device, on the host, or on both."""

    there: Any
    here: Any
    arrived: Any

    def __init__(self, storage: Any, device: torch.device) -> None:
        self.there = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
        self.here = self.arrived = None


class Swap:
    """Offloads what chosen layers save, on streams of its own. On a CPU it only copies."""

    def __init__(self, parameters: Iterable[nn.Parameter], device: torch.device) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"
        self.fixed = {w.untyped_storage()._cdata for w in parameters}
        self.layers: dict[int, dict[int, Entry]] = {}
        self.free: dict[int, list[Tensor]] = {}  # pinned buffers, by size
        if self.on_gpu:
            self.out, self.back = torch.cuda.Stream(), torch.cuda.Stream()

    def run(self, number: int, layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The layer's output; what it saves for backward goes to the host."""
        entries: dict[int, Entry] = {}
        self.layers[number] = entries
        pack = functools.partial(self._pack, entries)
        with torch.autograd.graph.saved_tensors_hooks(pack, self._unpack):
            y = layer(x)
        self._leave(entries)
        return y

    def watch(self, number: int, y: Tensor) -> None:
        """When backward comes to this layer: frees the one above, and fetches those below."""
        y.register_hook(functools.partial(self._entering, number))

    def forget(self, number: int) -> None:
        """Frees the device's memory of a layer whose copies have ended."""
        for entry in self.layers.get(number, {}).values():
            if self.on_gpu and entry.there is not None:
                entry.arrived.synchronize()
            entry.there = None

    def _pack(self, entries: dict[int, Entry], tensor: Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.nbytes() < SMALL * self.on_gpu or storage._cdata in self.fixed:
            return tensor
        entry = entries.setdefault(storage._cdata, Entry(storage, self.device))
        return entry, tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        entry: Entry
        entry, dtype, size, stride, offset = packed
        if entry.there is None:
            self._fetch(entry)
        if self.on_gpu:
            torch.cuda.current_stream().wait_event(entry.arrived)
        view = torch.empty(0, dtype=dtype, device=self.device)
        there: Any = entry.there
        return view.set_(there.untyped_storage(), offset, size, stride)

    def _leave(self, entries: dict[int, Entry]) -> None:
        """Starts to copy to the host."""
        if self.on_gpu:
            self.out.wait_stream(torch.cuda.current_stream())
        for entry in entries.values():
            entry.here = self._buffer(entry.there.nbytes)
            self._copy(entry, entry.here, entry.there, "out")

    def _fetch(self, entry: Entry) -> None:
        """Starts to copy back, into memory that the compute stream has given away."""
        entry.there = torch.empty(entry.here.nbytes, dtype=torch.uint8, device=self.device)
        if self.on_gpu:
            self.back.wait_stream(torch.cuda.current_stream())
        self._copy(entry, entry.there, entry.here, "back")

    def _copy(self, entry: Entry, to: Tensor, source: Tensor, stream: str) -> None:
        if not self.on_gpu:
            to.copy_(source)
            return
        with torch.cuda.stream(getattr(self, stream)):
            to.copy_(source, non_blocking=True)
            entry.arrived = torch.cuda.Event()
            entry.arrived.record()

    def _buffer(self, size: int) -> Tensor:
        free = self.free.setdefault(size, [])
        return free.pop() if free else torch.empty(size, dtype=torch.uint8, pin_memory=self.on_gpu)

    def _entering(self, number: int, _: Tensor) -> None:
        for entry in self.layers.pop(number + 1, {}).values():
            self.free[entry.here.nbytes].append(entry.here)
            entry.there = None
        for below in range(number, number - AHEAD - 1, -1):
            for entry in self.layers.get(below, {}).values():
                if entry.there is None:
                    self._fetch(entry)

    def end(self) -> None:
        """After backward: frees the first layer's entries."""
        for entries in self.layers.values():
            for entry in entries.values():
                self.free[entry.here.nbytes].append(entry.here)
                entry.there = None
        self.layers.clear()
