"""Frames between the grader and a worker: a header and buffers of raw bytes, over a socket."""

from __future__ import annotations

import functools
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from grading.worker.allowance import LOOK_S, Meter
from grading.worker.limits import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    MAX_STORAGES,
    READ_AHEAD_BYTES,
)

START = struct.Struct("<IQ")  # of a frame: how many parts, how long the first
PAUSE_S = 0.002  # after which a program that sleeps between two writes is asleep


class WireError(ValueError):
    """What came over the wire is malformed, or too large."""


class WireClosed(Exception):
    """The other side is gone."""


class WireTimeout(Exception):
    """The other side did not read or write in time."""


class OverLimitError(Exception):
    """The other side sends more than it may. The text goes on a sentence about it."""


Admit = Callable[[int, int], None]  # (bytes of the header, of the frame): raises OverLimitError


@dataclass(eq=False)
class Frame:
    """One message. buffers: arrays of uint8."""

    header: bytes
    buffers: Sequence[np.ndarray]

    @functools.cached_property
    def parts(self) -> list[bytes | np.ndarray]:
        """What is sent, in order; WireError if it is too large."""
        lengths = [len(self.header), *map(len, self.buffers)]
        total = sum(lengths)
        for count, most, what in (
            (lengths[0], MAX_HEADER_BYTES, "bytes of plain values"),
            (total, MAX_FRAME_BYTES, "bytes"),
            (len(lengths), MAX_STORAGES, "arrays"),
        ):
            if count > most:
                raise WireError(f"{count:,} {what} are too many to send (the limit is {most:,})")
        start = struct.pack(f"<I{len(lengths)}Q", len(lengths), *lengths) + self.header
        if total < READ_AHEAD_BYTES:
            return [start + b"".join(buffer.tobytes() for buffer in self.buffers)]
        return [start, *self.buffers]

    @property
    def size(self) -> int:
        """How many bytes are sent."""
        return 4 + 8 * (1 + len(self.buffers)) + len(self.header) + sum(map(len, self.buffers))


class Transport(Protocol):
    """Exchanges frames with the other process. A meter says how long to wait for it."""

    def send(self, frame: Frame, meter: Meter | None = None) -> None: ...

    def receive(self, meter: Meter | None = None) -> Frame: ...

    def has_unread(self) -> bool:
        """Whether something came that nothing has asked for."""
        ...

    def close(self) -> None: ...

    @property
    def admit(self) -> Admit | None:
        """What is asked before a frame is read."""
        ...

    @admit.setter
    def admit(self, admit: Admit | None) -> None: ...


class SocketTransport:
    """A transport over a connected stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.admit: Admit | None = None
        self._unread = b""

    def send(self, frame: Frame, meter: Meter | None = None) -> None:
        for part in frame.parts:
            view = memoryview(part) if isinstance(part, bytes) else part.data
            while view:
                view = view[self._on_time(meter, self.socket.send, view) :]

    def receive(self, meter: Meter | None = None) -> Frame:
        count, first = START.unpack(self._bytes(START.size, meter))
        if not 1 <= count <= MAX_STORAGES:
            raise WireError(f"a frame of {count} parts")
        lengths: tuple[int, ...] = ()  # of the buffers
        if count > 1:
            lengths = struct.unpack(f"<{count - 1}Q", self._bytes(8 * (count - 1), meter))
        total = first + sum(lengths)
        if first > MAX_HEADER_BYTES:
            raise WireError(f"{first:,} bytes of plain values (the limit is {MAX_HEADER_BYTES:,})")
        if total > MAX_FRAME_BYTES:
            raise WireError(f"a frame of {total:,} bytes (the limit is {MAX_FRAME_BYTES:,})")
        if self.admit:
            self.admit(first, total)
        header = self._bytes(first, meter)
        return Frame(header, [self._array(length, meter) for length in lengths])

    def has_unread(self) -> bool:
        if self._unread or not select.select([self.socket], [], [], 0)[0]:
            return bool(self._unread)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))  # nothing: the other side is gone
        except OSError:
            return False

    def close(self) -> None:
        self.socket.close()

    def _bytes(self, count: int, meter: Meter | None) -> bytes:
        """The next bytes; what else has come by then is kept for the next call."""
        if not self._unread and count < READ_AHEAD_BYTES:
            self._unread = self._on_time(meter, self.socket.recv, READ_AHEAD_BYTES)
        if len(self._unread) < count:
            return self._array(count, meter).tobytes()
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def _array(self, count: int, meter: Meter | None) -> np.ndarray:
        """The next bytes, in writable memory of their own."""
        buffer = np.empty(count, np.uint8)
        view, done = buffer.data, min(count, len(self._unread))
        view[:done], self._unread = self._unread[:done], self._unread[done:]
        while done < count:
            done += self._on_time(meter, self.socket.recv_into, view[done:])
        return buffer

    def _on_time(self, meter: Meter | None, action: Callable[[Any], Any], argument: Any) -> Any:
        """What the socket has done; the worker is looked at while it does nothing."""
        while True:
            patience_s = meter.patience_s if meter else None
            if patience_s == 0:
                raise WireTimeout
            if patience_s != self.socket.gettimeout():  # setting it costs a system call
                self.socket.settimeout(patience_s)
            began_s = time.monotonic()
            try:
                done = action(argument)
            except TimeoutError:
                done = None
            except OSError:
                raise WireClosed from None
            if meter:
                meter.waited_s += time.monotonic() - began_s
            if meter and (done is None or meter.waited_s > LOOK_S):
                if done is not None:
                    # An answer that comes byte by byte is looked at as well. Its sender has just
                    # written; if it sleeps between two bytes, it is asleep a moment later.
                    time.sleep(PAUSE_S)
                meter.look()
            if done is not None:
                break
        if not done:
            raise WireClosed
        return done
