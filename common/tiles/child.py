"""Other processes for what this one's Triton does not do: it interprets or compiles, as its environment said at its import."""

import atexit
import contextlib
import ctypes
import importlib
import io
import os
import pickle
import subprocess
import sys
from dataclasses import replace

from common.paths import ROOT

ALIGNED = 256  # bytes; what a GPU's memory comes in, at least


class Child:
    """A Python process that answers calls. interpret: whether Triton interprets kernels there, or compiles them."""

    def __init__(self, interpret) -> None:
        environment = {
            name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"
        }
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(ROOT), environment.get("PYTHONPATH")])
        )
        if interpret:
            environment["TRITON_INTERPRET"] = "1"
        self.parent = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "common.tiles.child"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        atexit.register(self.end)

    @property
    def alive(self):
        """Whether it runs, and is this process's own, not that of one which this was forked from."""
        return self.parent == os.getpid() and self.process.poll() is None

    def call(self, module, name, *arguments):
        """What the function `name` of a module returns there; what it raises is raised here, what it prints printed here."""
        try:
            pickle.dump((module, name, arguments), self.process.stdin)
            self.process.stdin.flush()
            answer, error, printed = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError):
            self.end()
            raise RuntimeError("the process that runs Triton for this one has died") from None
        except BaseException:  # interrupted: half an answer may be on its way
            self.end()
            raise
        print(printed, end="")
        if error is not None:
            raise error
        return answer

    def end(self) -> None:
        """Ends the process."""
        if self.alive:
            self.process.kill()
            self.process.wait()


_children = {}


def child(interpret):
    """The Child that interprets, or the one that compiles: started at the first call, ended when this process ends."""
    if interpret not in _children or not _children[interpret].alive:
        _children[interpret] = Child(interpret)
    return _children[interpret]


def count(launch, arrays):
    """The Report of a launch, run by a process where Triton interprets; the arrays are changed here."""
    from common.tiles.memory import Memory

    arguments = Memory(arrays.arguments()).arguments
    buffers = list({id(argument.buffer): argument.buffer for argument in arguments}.values())
    contents = [ctypes.string_at(buffer.low, buffer.high - buffer.low) for buffer in buffers]
    # Addresses there: from the beginning of each argument's buffer, whose number goes with it.
    sent = [
        (
            replace(
                argument,
                storage=argument.storage - argument.buffer.low,
                start=argument.start - argument.buffer.low,
                buffer=None,
            ),
            buffers.index(argument.buffer),
        )
        for argument in arguments
    ]
    report, changed = child(interpret=True).call(
        "common.tiles.child", "counted", launch, sent, contents
    )
    for buffer, content in zip(buffers, changed, strict=True):
        if content is not None:
            ctypes.memmove(buffer.low, content, len(content))
    arrays.write_back()
    return report


def counted(launch, sent, contents):
    """(the Report of a launch, of each buffer its contents or None where nothing changed), in the process that interprets."""
    from common.tiles import kernel

    room = [ctypes.create_string_buffer(len(content) + ALIGNED) for content in contents]
    lows = [-(-ctypes.addressof(each) // ALIGNED) * ALIGNED for each in room]
    for low, content in zip(lows, contents, strict=True):
        ctypes.memmove(low, content, len(content))
    report = kernel.run(
        launch,
        Received(
            [
                replace(
                    argument,
                    storage=argument.storage + lows[number],
                    start=argument.start + lows[number],
                )
                for argument, number in sent
            ]
        ),
    )
    after = [
        ctypes.string_at(low, len(content)) for low, content in zip(lows, contents, strict=True)
    ]
    return report, [new if new != old else None for new, old in zip(after, contents, strict=True)]


class Received:
    """Arrays that came from another process; they are sent back whole."""

    def __init__(self, arguments) -> None:
        self._arguments = arguments

    def arguments(self):
        """The Arguments, in the order of their numbers."""
        return self._arguments

    def write_back(self) -> None:
        """Nothing: the other process does that."""


def serve(questions, answers) -> None:
    """Answers calls until there are no more."""
    while True:
        try:
            module, name, arguments = pickle.load(questions)
        except EOFError:
            return
        answer, error = None, None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                answer = getattr(importlib.import_module(module), name)(*arguments)
            except Exception as failure:
                error = _plain(failure)
        answers.write(pickle.dumps((answer, error, printed.getvalue())))
        answers.flush()


def _plain(error):
    """An error as one that can be sent: of a class that the other process knows, without what caused it."""
    if type(error).__module__ in ("builtins", "common.kernels.errors"):
        return type(error)(*map(str, error.args))
    return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints does not get into the pipe
    serve(sys.stdin.buffer, pipe)
