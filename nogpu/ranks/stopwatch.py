"""The recorder of a rank that is a process: computing is sleeping, and times are measured."""

import contextlib
import functools
import time
from collections.abc import Iterator
from typing import Any

import torch

from nogpu.ranks import recorder
from nogpu.ranks.recorder import Recorder, Report


class Stopwatch(Recorder):
    """The Recorder of a process."""

    def __init__(self, live_bytes: bool = False) -> None:
        super().__init__(None, live_bytes)
        self.started_s = time.time()

    def start(self, started_s: float) -> None:
        """Counts from started_s, on time.time's clock, which the processes of a host share."""
        self.started_s = started_s

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.time() - self.started_s

    def read(self, mark: Any) -> float:
        """Seconds from the start to a mark."""
        return mark

    def compute(self, seconds: float, name: str | None = None) -> None:
        """Takes this long."""
        start = self.mark()
        self.sleep(seconds)
        self.computed.append((self.label(name), start, self.mark()))

    def sleep(self, seconds: float) -> None:
        """Keeps the processor busy."""
        time.sleep(seconds)

    @contextlib.contextmanager
    def watching(self, arguments: Any) -> Iterator[None]:
        """The rank's function runs in this, and autograd's threads too."""
        recorder.set_process(self)
        try:
            with super().watching(arguments):
                yield
        finally:
            recorder.set_process(None)

    def report(self) -> Report:
        """What the rank recorded, with times in seconds."""
        compute, spans = (
            [(name, self.read(start), self.read(end)) for name, start, end in marked]
            for marked in (self.computed, self.spans)
        )
        report = super().report()
        report["compute"], report["spans"] = compute, spans
        return report


class CudaStopwatch(Stopwatch):
    """The Recorder of a process with a GPU: times are when the GPU's stream comes to a point."""

    def start(self, started_s: float) -> None:
        """Counts from now, with the GPU idle; started_s is the same instant on the host."""
        torch.cuda.synchronize()
        super().start(started_s)
        self.late_s = super().now_s()
        self.zero = self.mark()
        torch.cuda.reset_peak_memory_stats()
        self.points = [(0.0, torch.cuda.memory_allocated())]

    def mark(self) -> torch.cuda.Event:
        """Now on the current stream: an event."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def read(self, mark: Any) -> float:
        """Seconds from the start until the stream came to a mark."""
        return self.late_s + 1e-3 * self.zero.elapsed_time(mark)

    def sleep(self, seconds: float) -> None:
        """Keeps the GPU busy."""
        torch.cuda._sleep(int(seconds * cycles_per_s()))

    def report(self) -> Report:
        """What the rank recorded; its memory is what the allocator held at first and at most."""
        torch.cuda.synchronize()
        if not self.counts_live:
            self.points.append((self.now_s(), torch.cuda.max_memory_allocated()))
        return super().report()


@functools.cache
def cycles_per_s(cycles: int = 20_000_000) -> float:
    """The rate of the clock that torch.cuda._sleep counts, measured once."""
    torch.cuda._sleep(cycles)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / (1e-3 * start.elapsed_time(end))
