"""What a check needs to say because its calls lead to another process in the grader."""

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from common.hardware import process_memory


@runtime_checkable
class CalledRemotely(Protocol):
    """What a check of the grader gets in place of a student's function: it gets copies."""

    def call_in_place(self, changed: Sequence[Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, which may change these arguments."""

    def call_afresh(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the function in a process that has seen no earlier call."""

    def call_weighed(self, /, *args: Any) -> tuple[Any, int]:
        """The same; the most bytes that the process took meanwhile come with what it returns."""


@runtime_checkable
class ReadRemotely(Protocol):
    """What a check of the grader gets in place of a student's function: its text can be read."""

    def names_used(self, of: Collection[str]) -> set[str]:
        """What of this is in its text, or in what it uses of its notebook (see static_names)."""


def in_place(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function, for a check that looks at these arguments after the call.

    In the grader, a student's function works on copies of its arguments. Only what it changes in
    the arguments named here is changed in the check, too. In a notebook this is the function.
    """
    if isinstance(function, CalledRemotely):
        return functools.partial(function.call_in_place, arguments)
    return function


def afresh(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for a check in which all that it knows must come from its arguments.

    In the grader, it is called in a process that has executed the student's cells and has seen no
    earlier call: what another function left in a variable or a file is not there. In a notebook
    this is the function.
    """
    return function.call_afresh if isinstance(function, CalledRemotely) else function


def weighed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What a function returns, and the most bytes that its process took meanwhile.

    In the grader, it is called in a process that has seen no earlier call, and the kernel's count
    is read from outside: what the process says of itself does not matter. Pages count, so use sizes
    of hundreds of megabytes, and leave room for what a library loads.
    """
    if isinstance(function, CalledRemotely):
        return function.call_weighed(*arguments)
    return process_memory.of_call(function, *arguments)
