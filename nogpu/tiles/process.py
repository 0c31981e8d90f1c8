"""A second process, for what Triton does not do in this one.

Triton either interprets kernels or compiles them, as the environment said when it was imported.
"""

import atexit
import contextlib
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar, cast

P = ParamSpec("P")
Result = TypeVar("Result")

FOLDER = Path(__file__).resolve().parents[2]  # from which Python imports this package


class TritonProcess:
    """A Python process that answers calls. interpret: whether Triton interprets kernels there.

    concurrent.futures' pool of one process will not do: it imports this process's __main__ again (a
    script without a guard would start over), needs semaphores, which a sandbox may not have, and
    its process outlives this one if this one is killed. This process ends when its pipe closes.
    """

    def __init__(self, interpret: bool) -> None:
        environment = {
            name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"
        }
        paths = [str(FOLDER), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        if interpret:
            environment["TRITON_INTERPRET"] = "1"
        self.parent = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nogpu.tiles.process"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt from the keyboard reaches this process alone
        )
        self.questions = cast(BinaryIO, self.process.stdin)
        self.answers = cast(BinaryIO, self.process.stdout)
        atexit.register(self.end)

    @property
    def alive(self) -> bool:
        """Whether it runs, and this process started it: a fork does not inherit it."""
        return self.parent == os.getpid() and self.process.poll() is None

    def call(
        self, function: Callable[P, Result], *arguments: P.args, **options: P.kwargs
    ) -> Result:
        """What the function returns there. What it raises and prints is raised and printed here."""
        try:
            pickle.dump((function, arguments, options), self.questions)
            self.questions.flush()
            answer, error, printed = pickle.load(self.answers)  # noqa: S301 - from our own process
        except (EOFError, BrokenPipeError):
            self.end()
            raise RuntimeError("the process that runs Triton for this one has died") from None
        except BaseException:  # after an interrupt, half an answer may be left in the pipe
            self.end()
            raise
        print(printed, end="")
        if error is not None:
            raise error
        return answer

    def end(self) -> None:
        """End the process."""
        if self.alive:
            self.process.kill()
            self.process.wait()


_processes: dict[bool, TritonProcess] = {}


def process_for(interpret: bool) -> TritonProcess:
    """The process that interprets, or the one that compiles; the first call starts it."""
    if interpret not in _processes or not _processes[interpret].alive:
        _processes[interpret] = TritonProcess(interpret)
    return _processes[interpret]


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer calls until there are no more."""
    while True:
        try:
            function, arguments, options = pickle.load(questions)  # noqa: S301 - from our parent
        except EOFError:
            return
        answer, error = None, None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                answer = function(*arguments, **options)
            except Exception as failure:
                error = _sendable(failure)
        answers.write(pickle.dumps((answer, error, printed.getvalue())))
        answers.flush()


def _sendable(error: Exception) -> Exception:
    """An error of a class that the other process knows, without what caused it."""
    if type(error).__module__ in ("builtins", "nogpu.kernels.errors"):
        return type(error)(*map(str, error.args))
    return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints goes to stderr, and not into the pipe
    serve(sys.stdin.buffer, pipe)
