"""Replays a check that an answer passed: sends its frames again, and compares the replies.

What a check sends follows from the lab, the seed and the answers that it gets. So an answer that
gives, call by call, the same bytes as one that passed would pass, too. At the first answer that
differs the check itself runs: it gets the answers that were already given, and goes on from there.
So right answers cost only the worker's time, and no answer is called more often than without
replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

from grading.worker.allowance import Meter
from grading.worker.limits import MAX_TAPE_BYTES, MAX_TAPES_BYTES
from grading.worker.transport import Admit, Frame, Transport, WireClosed, WireError, WireTimeout


class Diverged(BaseException):
    """A check sent something else this time: it depends on more than lab, seed and answers."""


Tape = Sequence[tuple[Frame, Frame]]  # (what the grader sent, what came)
Facts = Sequence[Hashable]  # what a check has asked of an answer's text
Prompts = Sequence[tuple[Frame, Frame | Exception]]  # an exception: what the transport raised


class Tapes:
    """The exchanges of checks that passed, by what the check depends on."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Tape, Facts] | None] = {}
        self._bytes = 0

    def keep(self, key: Hashable, tape: Tape, facts: Facts = ()) -> None:
        """Keeps the exchanges of a check that passed, while there is room.

        facts: what the check has asked of the answer's text.
        """
        size = sum(sent.size + came.size for sent, came in tape)
        if key in self._kept or size > MAX_TAPE_BYTES or self._bytes + size > MAX_TAPES_BYTES:
            return
        self._bytes += size
        self._kept[key] = tape, tuple(facts)

    def facts(self, key: Hashable) -> Facts:
        """What the check of this tape has asked of the answer's text."""
        kept = self._kept.get(key)
        return kept[1] if kept else ()

    def get(self, key: Hashable) -> Tape | None:
        kept = self._kept.get(key)
        return kept[0] if kept else None

    def spoil(self, key: Hashable) -> None:
        """Marks a check that can't be repeated."""
        self._kept[key] = None


class Around:
    """What the transports here leave to the one that they stand around."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def admit(self) -> Admit | None:
        """What is asked before a frame is read: the other transport's."""
        return self._transport.admit

    @admit.setter
    def admit(self, admit: Admit | None) -> None:
        self._transport.admit = admit

    def has_unread(self) -> bool:
        return self._transport.has_unread()

    def close(self) -> None:
        self._transport.close()


class Recording(Around):
    """A transport that records what another one sends and receives."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._sent = Frame(b"", [])
        self.tape: list[tuple[Frame, Frame]] = []

    def send(self, frame: Frame, meter: Meter | None = None) -> None:
        self._transport.send(frame, meter)
        self._sent = _kept(frame)

    def receive(self, meter: Meter | None = None) -> Frame:
        frame = self._transport.receive(meter)
        self.tape.append((self._sent, _kept(frame)))
        return frame


class Prompting(Around):
    """A transport for a check that was replayed in part: it first gives the recorded answers."""

    def __init__(self, transport: Transport, prompts: Prompts) -> None:
        super().__init__(transport)
        self.left = deque(prompts)

    def send(self, frame: Frame, meter: Meter | None = None) -> None:
        if not self.left:
            self._transport.send(frame, meter)
        elif not _same(frame, self.left[0][0]):
            raise Diverged

    def receive(self, meter: Meter | None = None) -> Frame:
        if not self.left:
            return self._transport.receive(meter)
        _, came = self.left.popleft()
        if isinstance(came, Exception):
            raise came
        return _kept(came)  # the check may change what it gets

    def has_unread(self) -> bool:
        return not self.left and super().has_unread()


def replay(transport: Transport, tape: Tape, meter: Meter | None) -> Prompts | None:
    """None if the worker answers as on the tape; else what came, up to the first that differs."""
    transport.admit = None  # what was admitted last, of a cell, is no limit for a call's answer
    for place, (sent, expected) in enumerate(tape):
        try:
            transport.send(sent, meter)
            came = transport.receive(meter)
        except (WireClosed, WireError, WireTimeout) as problem:
            return [*tape[:place], (sent, problem)]
        if not _same(came, expected):
            return [*tape[:place], (sent, _kept(came))]
    return None


def _kept(frame: Frame) -> Frame:
    """A copy that no change in place reaches."""
    return Frame(frame.header, [buffer.copy() for buffer in frame.buffers])


def _same(one: Frame, other: Frame) -> bool:
    """Whether two frames are equal byte for byte."""
    return one.header == other.header and _bytes(one) == _bytes(other)


def _bytes(frame: Frame) -> list[bytes]:
    return [buffer.tobytes() for buffer in frame.buffers]
