"""The course's own functions as they were before a student's cell ran: drivers call no others.

A cell can set any attribute of any module in its process: common.views.helper, a method of a class,
a function's code. Before a driver runs, what was set is taken back. This is asked at each of its
calls, so only the names that the cells set are looked at. A program that wants to can still hide
from this; so no point depends on what a driver says of itself.
"""

import dis
import sys
from collections.abc import Iterable
from operator import attrgetter, is_
from types import CodeType, FunctionType, ModuleType
from typing import Any

from common.bytecode import BY_TEXT

COURSE = "common"
SETS = {dis.opmap["STORE_ATTR"], dis.opmap["DELETE_ATTR"]}
ANY = "*"  # in a set of names: a name that no text shows
SETTERS = BY_TEXT | {"setattr", "delattr", "__setattr__", "__delattr__", "patch", "gc", "ctypes"}
SETTERS |= {"__setstate__", "loads", "inspect"}
OTHERS = ("torch", "triton", "triton.runtime", "triton.runtime.autotuner")
OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")


class Originals:
    """What modules and classes held when this was made, as far as it can be called."""

    def __init__(self) -> None:
        modules = [m for name, m in list(sys.modules.items()) if _is_watched(name)]
        self.held: list[tuple[Any, dict[str, Any]]] = []
        self.functions: list[FunctionType] = []
        for module in filter(lambda m: isinstance(m, ModuleType), modules):
            callables = {k: v for k, v in vars(module).items() if callable(v)}
            self.held.append((module, callables))
            if module.__name__.partition(".")[0] == COURSE:
                own = [v for v in callables.values() if _is_of(v, module)]
                self._keep_inside(own)
        self.parts = {name: [getattr(f, name) for f in self.functions] for name in OF_FUNCTIONS}
        self.watched_held: list[tuple[Any, dict[str, Any]]] = []
        self.watched_parts: dict[str, list[Any]] = {}
        self.watched: frozenset[str] = frozenset()

    def watch(self, names: frozenset[str]) -> None:
        """Also looks at these names from now on."""
        if names <= self.watched:
            return
        self.watched |= names

        def is_watched(name: str) -> bool:
            return name in self.watched or ANY in self.watched

        held = [(h, {k: v for k, v in own.items() if is_watched(k)}) for h, own in self.held]
        self.watched_held = [(holder, own) for holder, own in held if own]
        self.watched_parts = {name: own for name, own in self.parts.items() if is_watched(name)}

    def _keep_inside(self, own: list[Any]) -> None:
        """The methods of classes, and all functions."""
        self.functions += [value for value in own if isinstance(value, FunctionType)]
        for kind in (value for value in own if isinstance(value, type)):
            methods = {k: v for k, v in vars(kind).items() if _is_method(v)}
            self.held.append((kind, methods))
            self.functions += [v for v in methods.values() if isinstance(v, FunctionType)]

    def restore(self) -> None:
        """Takes back what was set since."""
        for holder, held in self.watched_held:
            now = vars(holder)
            if not _are_same(map(now.get, held), held.values()):
                for name, value in held.items():
                    if now.get(name) is not value:
                        setattr(holder, name, value)
        for name, held in self.watched_parts.items():
            if not _are_same(map(attrgetter(name), self.functions), held):
                for function, value in zip(self.functions, held, strict=True):
                    setattr(function, name, value)


def _are_same(now: Iterable[Any], held: Iterable[Any]) -> bool:
    """Whether each is the very object that was held. No loop of Python's: each call asks it."""
    return all(map(is_, now, held))


def names_set(code: CodeType) -> frozenset[str]:
    """The attributes that a cell, or a function in it, may set; with ANY if its text can't tell."""
    if SETTERS & set(code.co_names):
        return frozenset({ANY})
    own: set[str] = set()
    if SETS.intersection(code.co_code[::2]):  # asked for each cell, and the rest is slow
        operations = dis.get_instructions(code)
        own = {operation.argval for operation in operations if operation.opcode in SETS}
    inner = (names_set(part) for part in code.co_consts if isinstance(part, CodeType))
    return frozenset(own).union(*inner)


def _is_watched(name: str) -> bool:
    return name == COURSE or name.startswith(f"{COURSE}.") or name in OTHERS


def _is_of(value: Any, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _is_method(value: Any) -> bool:
    return isinstance(value, (FunctionType, property, staticmethod, classmethod))
