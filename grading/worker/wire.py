"""Messages between the grader and a worker: a kind ("call", "value", ...) and a packed value."""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Iterator
from typing import Any

from grading.worker.allowance import Meter
from grading.worker.packing import Packed
from grading.worker.transport import Frame, Transport, WireError

encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
decode = json.JSONDecoder().decode


class Wire:
    """One end of the connection. A meter says how long to wait; None means for ever."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def send(self, kind: str, packed: Packed, meter: Meter | None = None) -> None:
        header, buffers = packed
        text = encode({"kind": kind, **header})
        if "\\ud" in text and not _is_text(header):
            raise ValueError("text with half of a surrogate pair can't cross")
        self.transport.send(Frame(text.encode(), buffers), meter)

    def receive(self, meter: Meter | None = None) -> tuple[str, Packed]:
        """The next message: its kind, and what Packer.unpack takes."""
        frame = self.transport.receive(meter)
        try:
            text = frame.header.decode()
            header = _read(text)
            if "\\u" in text and not _is_text(header):
                raise ValueError("half of a surrogate pair")
            kind = header.pop("kind")
            if type(kind) is not str:
                raise ValueError("its kind is not text")
        except (ValueError, RecursionError, AttributeError, LookupError) as error:
            raise WireError(f"a malformed header: {error}") from None
        return kind, (header, frame.buffers)

    @contextlib.contextmanager
    def over(self, transport: Transport) -> Iterator[None]:
        """Sends and receives over another transport in the meantime."""
        before, self.transport = self.transport, transport
        try:
            yield
        finally:
            self.transport = before


def _is_text(header: Any) -> bool:
    """Whether this holds whole characters alone: half of a surrogate pair is in no file."""
    try:
        json.dumps(header, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _read(text: str) -> Any:
    """What the JSON text says.

    The garbage collector is off meanwhile. It would look at all that was read so far again and
    again, and many small lists would take a quarter more time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return decode(text)
    finally:
        if collects:
            gc.enable()
