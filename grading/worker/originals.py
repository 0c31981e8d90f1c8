"""What the names that a student's cells set meant before: drivers call nothing else.

A cell can set any attribute of any module in its process: a function of common, torch.matmul, a
method of a class, a function's code. Before a driver runs, what was set is taken back. This is
asked at each of its calls, so only the names that the cells set are looked at. A program that wants
to can still hide from this; so no point depends on what a driver says of itself.
"""

import dis
import sys
from collections.abc import Iterable, Mapping
from operator import attrgetter, is_
from types import CodeType, FunctionType, ModuleType
from typing import Any

from common.checks.static_names import BY_TEXT
from common.paths import COURSE

SETS = {dis.opmap["STORE_ATTR"], dis.opmap["DELETE_ATTR"]}
ANY = "*"  # in a set of names: a name that no text shows
SETTERS = BY_TEXT | {"setattr", "delattr", "__setattr__", "__delattr__", "patch", "gc", "ctypes"}
SETTERS |= {"__setstate__", "loads", "inspect"}
OTHERS = {  # what else drivers call; its classes and functions are looked into
    *("builtins", "math", "numpy", "torch", "torch.autograd", "torch.nn", "torch.nn.functional"),
    *("torch.optim", "triton", "triton.runtime", "triton.runtime.autotuner"),
}
OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")


class Originals:
    """What modules, classes and functions held before a cell set names of theirs."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.held: list[tuple[Any, dict[str, Any]]] = []
        self.parts: dict[str, tuple[list[FunctionType], list[Any]]] = {
            name: ([], []) for name in OF_FUNCTIONS
        }

    def watch(self, names: frozenset[str], setup: Iterable[Any]) -> None:
        """Also looks at these names from now on. setup: what cells of ours have defined."""
        new = names - self.names
        if not new:
            return
        self.restore()  # so that what is held now is ours, too
        self.names |= new
        modules = [m for m in list(sys.modules.values()) if isinstance(m, ModuleType)]
        for module in modules:
            held = _callables(vars(module), new, of_course=_is_ours(module))
            self.held += [(module, held)] if held else []
        ours = [value for m in modules if _is_ours(m) for value in list(vars(m).values())]
        self._look_into([*ours, *setup], new)

    def add(self, values: Iterable[Any]) -> None:
        """Also looks into what another cell of ours has defined."""
        self._look_into(values, self.names)

    def _look_into(self, values: Iterable[Any], names: frozenset[str]) -> None:
        """The methods of classes, and the code of all functions."""
        classes = dict.fromkeys(value for value in values if isinstance(value, type))
        functions = [value for value in values if isinstance(value, FunctionType)]
        for kind in classes:
            held = _methods(kind, names)
            self.held += [(kind, held)] if held else []
            functions += [value for value in vars(kind).values() if isinstance(value, FunctionType)]
        for part in OF_FUNCTIONS if ANY in names else names.intersection(OF_FUNCTIONS):
            watched, were = self.parts[part]
            watched += functions
            were += map(attrgetter(part), functions)

    def restore(self) -> None:
        """Takes back what was set since."""
        for holder, held in self.held:
            now = vars(holder)
            if not _are_same(map(now.get, held), held.values()):
                _take_back(holder, held)
        for part, (functions, held) in self.parts.items():
            if not _are_same(map(attrgetter(part), functions), held):
                for function, value in zip(functions, held, strict=True):
                    setattr(function, part, value)


def _take_back(holder: Any, held: Mapping[str, Any]) -> None:
    for name, value in held.items():
        if vars(holder).get(name) is value:
            continue
        if value is None:
            delattr(holder, name)
        else:
            setattr(holder, name, value)


def _callables(own: Mapping[str, Any], names: frozenset[str], of_course: bool) -> dict[str, Any]:
    """What can be called of these names, in a module. A name that no text shows: of_course's."""
    if ANY in names:
        return {k: v for k, v in own.items() if callable(v)} if of_course else {}
    return {name: value for name in names if callable(value := own.get(name))}


def _methods(kind: type, names: frozenset[str]) -> dict[str, Any]:
    """A class's methods of these names; None for one that only its bases have."""
    own = vars(kind)
    if ANY in names:
        return {name: value for name, value in own.items() if _is_method(value)}
    return {
        name: own.get(name)
        for name in names
        if _is_method(own.get(name)) or (name not in own and hasattr(kind, name))
    }


def _is_ours(module: ModuleType) -> bool:
    name = module.__name__
    return name.partition(".")[0] in COURSE or name in OTHERS


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


def _is_method(value: Any) -> bool:
    return isinstance(value, (FunctionType, property, staticmethod, classmethod))
