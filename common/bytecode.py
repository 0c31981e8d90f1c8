"""The compiled code of a student's function, and of what it calls."""

import dis
import inspect
import itertools
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FunctionType
from typing import Any

from common.remote import ReadRemotely

# Ways to a name that no text shows.
BY_TEXT = frozenset(
    {
        *("getattr", "getattr_static", "__getattribute__", "__dict__", "vars", "globals", "locals"),
        *("eval", "exec", "modules", "__import__", "import_module", "__builtins__", "builtins"),
        *("attrgetter", "methodcaller", "getmembers"),
    }
)
INSIDE = BY_TEXT | {
    *("__self__", "__func__", "__closure__", "cell_contents", "__globals__", "dir", "inspect"),
    *("gc", "get_referents", "get_objects", "f_locals", "_getframe"),
}


def codes(function: Callable[..., Any]) -> list[CodeType]:
    """The code of a function, of the functions of its notebook that it calls, and inside of all.

    None for a function that Python did not compile.
    """
    found: dict[FunctionType, list[CodeType]] = {}
    todo = [function]
    while todo:
        one = inspect.unwrap(todo.pop())
        if not isinstance(one, FunctionType) or one in found:
            continue
        found[one] = list(_nested(one.__code__))
        read = (one.__globals__.get(name) for code in found[one] for name in code.co_names)
        todo += [x for x in read if isinstance(x, FunctionType) and x.__module__ == one.__module__]
    return [code for own in found.values() for code in own]


def names(function: Callable[..., Any]) -> set[str]:
    """The names of globals and attributes in `codes`."""
    return {name for code in codes(function) for name in {*code.co_names, *matched(code)}}


def matched(code: CodeType) -> set[str]:
    """The attributes that `case Class(attribute=...)` reads: their names stand in a constant."""
    pairs = itertools.pairwise(dis.get_instructions(code))
    return {name for last, this in pairs if this.opname == "MATCH_CLASS" for name in last.argval}


def names_in(function: Callable[..., Any] | ReadRemotely, of: Collection[str]) -> list[str]:
    """Which of these names a function uses, itself or in what it calls of its own notebook.

    In the grader, its text is read there: the student's process could say anything.
    """
    if isinstance(function, ReadRemotely):
        return sorted(function.names_used(of))
    return sorted(names(function).intersection(of))


def looks_inside(function: Callable[..., Any] | ReadRemotely) -> list[str]:
    """The names with which a function looks into an object that it was given, past its methods."""
    return names_in(function, INSIDE)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
