"""What crosses between a notebook and its ranks: copies of objects, and of the notebook's classes.

cloudpickle keeps one copy of such a class per process, and sets its attributes again whenever it
unpickles the class. Ranks of one process would then share what a class holds, and what a process
returns would change the notebook's class.
"""

import contextlib
import io
import pickle
import sys
from collections.abc import Mapping
from typing import Any

import torch
from cloudpickle import cloudpickle

# once_differentiable uses this module, and Python can't import it: so it would cross as a copy.
sys.modules.setdefault("torch._C._functions", torch._C._functions)


class Copies(pickle.Unpickler):
    """For a rank: all classes are new.

    originals: for each new class, the one in this process that it is a copy of.
    """

    def __init__(self, packed: bytes) -> None:
        super().__init__(io.BytesIO(packed))
        self.originals: dict[type, type] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Like pickle's."""
        value = super().find_class(module, name)
        return self._new_class if value is cloudpickle._make_skeleton_class else value

    def _new_class(self, *arguments: Any) -> type:
        *others, number, extra = arguments
        make: Any = cloudpickle._make_skeleton_class
        made = make(*others, None, extra)
        self.originals[made] = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(number, made)
        return made


class Returns(pickle.Unpickler):
    """For the notebook: its own classes are used, and stay as they are."""

    def __init__(self, packed: bytes) -> None:
        super().__init__(io.BytesIO(packed))
        self.known: set[type] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Like pickle's."""
        value = super().find_class(module, name)
        if value is cloudpickle._make_skeleton_class:
            return self._class
        return self._set if value is cloudpickle._class_setstate else value

    def _class(self, *arguments: Any) -> type:
        own = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(arguments[-2])
        if own is None:
            return cloudpickle._make_skeleton_class(*arguments)
        self.known.add(own)
        return own

    def _set(self, made: type, state: Any) -> type:
        return made if made in self.known else cloudpickle._class_setstate(made, state)


def returned(value: Any, originals: Mapping[type, type]) -> Any:
    """The value, with instances of copied classes turned into instances of the originals."""
    seen, left = set(), [value] if originals else []
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if type(item) in originals:
            with contextlib.suppress(TypeError):  # some classes don't allow it
                object.__setattr__(item, "__class__", originals[type(item)])
            left += getattr(item, "__dict__", {}).values()
        if isinstance(item, BaseException):
            left += item.args
        elif isinstance(item, dict):
            left += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            left += item
    return value
