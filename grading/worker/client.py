"""The grader's side: the client that asks a worker."""

from __future__ import annotations

import builtins
import functools
import signal
from collections.abc import Callable, Sequence
from typing import Any, Literal

from common.hardware.process_memory import Resident
from grading.worker.allowance import LOOK_S, Allowance, Meter
from grading.worker.errors import StudentError, WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.limits import MAX_EXECUTED_BYTES, MAX_TEXT
from grading.worker.packing import Packed, Packer
from grading.worker.transport import (
    Admit,
    OverLimitError,
    SocketTransport,
    WireClosed,
    WireError,
    WireTimeout,
)
from grading.worker.wire import Wire

Request = Literal["execute", "call", "rank", "fetch", "count"]
Serve = Callable[..., Any]  # answers what a worker asks: serve(what, *args)


class WorkerClient:
    """The grader's end of a fresh worker: a process that executes cells and calls what they define.

    pid: None when it has ended.
    """

    def __init__(self, fork_server: ForkServer) -> None:
        self.fork_server = fork_server
        self.pid: int | None
        forked = fork_server.fork()
        self.pid, ours, self.parent = forked
        self.meter = Meter(
            functools.partial(fork_server.processor_s, forked.pid, forked.parent),
            functools.partial(fork_server.is_asleep, forked.pid, forked.parent),
        )
        self.wire = Wire(SocketTransport(ours))

    def request(
        self,
        kind: Request,
        *request: Any,
        allowance: Allowance | None,
        serve: Serve | None = None,
        in_place: Sequence[Any] = (),
        admit: Admit | None = None,
    ) -> Any:
        """What the worker answers. What it raised there is raised here (see StudentError).

        kind: "execute" (source, name), "call" (name, args, kwargs as pairs, drivers), "rank" (name,
        args, drivers), "fetch" (name, drivers) or "count" (package, text, name, args,
        options); drivers: [(text, name)] of those to execute first. allowance: the time that it may
        take; None for no limit. serve: answers what the worker asks meanwhile. in_place: the
        arguments that the call may change here; of all others the worker has copies. admit: is
        asked before anything that it sends is read.
        """
        self.wire.transport.admit = _admit_little if kind == "execute" else admit
        packer = Packer()
        header, buffers = packer.pack(request)  # raises here if the check gives what can't cross
        header["in_place"] = packer.change_only(in_place)
        self.meter.begin(allowance)
        try:
            answer, packed = self._exchange(kind, (header, buffers), serve)
            value = (packer if answer != "refused" else Packer()).unpack(*packed)
            error = _rebuilt(value) if answer != "value" else None
        except (WireTimeout, WireClosed, OverLimitError) as problem:
            raise self._ended(problem) from None
        except (ValueError, LookupError, TypeError) as problem:
            self.end()
            reason = str(problem)[:MAX_TEXT]  # it may repeat what came
            raise WorkerEnded("died", f"sent a malformed answer ({reason})") from None
        except BaseException:  # the check was stopped: this answer would be taken for the next one
            self.end()
            raise
        self.meter.settle(LOOK_S)
        if error:
            raise error
        return value

    def held_bytes(self) -> int:
        """See ForkServer.held_bytes; 0 after its end."""
        return 0 if self.pid is None else self.fork_server.held_bytes(self.pid)

    def resident(self) -> Resident:
        """What it has in memory, without its children; zeros after its end."""
        return Resident(0, 0) if self.pid is None else self.fork_server.resident(self.pid)

    def end(self) -> int | None:
        """Ends the process; returns its exit code, or minus the signal that ended it."""
        if self.pid is None:
            return None
        self.meter.settle()
        self.wire.transport.close()
        pid, self.pid = self.pid, None
        return self.fork_server.end(pid, self.parent)

    def _ended(self, problem: Exception) -> WorkerEnded:
        """Ends the process, and says why."""
        code = self.end()
        if isinstance(problem, WireTimeout):
            return WorkerEnded("timeout", "took too long and was stopped")
        if isinstance(problem, WireClosed):
            return WorkerEnded("died", f"ended its process ({_in_words(code)})")
        return WorkerEnded("died", str(problem))

    def _exchange(self, kind: str, packed: Packed, serve: Serve | None) -> tuple[str, Packed]:
        """The kind and value of a request's answer; what the worker asks meanwhile is served."""
        self.wire.send(kind, packed, self.meter)
        answer, packed = self.wire.receive(self.meter)
        while answer == "ask":
            what, args = Packer().unpack(*packed)
            self.wire.send(*_reply(serve, what, args), self.meter)
            answer, packed = self.wire.receive(self.meter)
        if answer not in ("value", "error", "refused"):
            raise WireError(f"an answer of kind {answer!r}")
        return answer, packed


def _admit_little(_header_bytes: int, frame_bytes: int) -> None:
    """A cell that was executed answers nothing but an exception's text."""
    if frame_bytes > MAX_EXECUTED_BYTES:
        raise OverLimitError(f"sent {frame_bytes / 1e6:.0f} MB unasked")


def _reply(serve: Serve | None, what: str, args: Sequence[Any]) -> tuple[str, Packed]:
    """The kind and value that answer a worker's question."""
    try:
        if serve is None:
            raise ValueError(f"nothing answers {what!r} here")
        return "value", Packer().pack(serve(what, *args))
    except Exception as error:
        kind = type(error)
        name = kind.__name__ if kind.__module__ == "builtins" else "ValueError"
        return "error", Packer().pack({"type": name, "text": str(error)})


def _rebuilt(report: Any) -> Exception:
    """The exception that a worker reported; WireError if the report is malformed."""
    error = StudentError(report["type"], report["text"], report["line"], report["code"])
    texts = (error.kind, error.text, error.code or "")
    are_texts = all(type(text) is str and len(text) <= MAX_TEXT for text in texts)
    if not are_texts or type(error.line) not in (int, type(None)):
        raise WireError("a malformed report of an exception")
    kind = getattr(builtins, error.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise WireError(f"an exception {error.kind!r}")
    if not issubclass(kind, Exception) or issubclass(kind, (StopIteration, StopAsyncIteration)):
        kind = RuntimeError  # sys.exit() must not end the grader, nor StopIteration a check's loop
    try:
        raised = kind(error.text)
    except TypeError:  # UnicodeDecodeError, for one, takes more than a text
        raised = ValueError(error.text)
    raised.__cause__ = error
    return raised


def _in_words(code: int | None) -> str:
    """How a process ended."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return {
            "SIGSEGV": "segmentation fault: an access outside of an array?",
            "SIGKILL": "killed: out of memory?",
            "SIGABRT": "aborted: a corrupted heap?",
        }.get(name, name)
    return f"exit code {code}"
