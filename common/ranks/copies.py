"""What crosses between a notebook and its ranks: copies of objects, and of the classes that the notebook defines.

cloudpickle has one copy of such a class in a process, and sets its attributes anew whenever the class comes by: ranks of one
process would share what a class holds, and what a process returns would change the notebook's class.
"""

import contextlib
import io
import pickle

from cloudpickle import cloudpickle


class Copies(pickle.Unpickler):
    """For a rank: all classes are new. originals: {new class: the one in this process that it is a copy of}."""

    def __init__(self, packed) -> None:
        super().__init__(io.BytesIO(packed))
        self.originals = {}

    def find_class(self, module, name):
        """As pickle's."""
        found = super().find_class(module, name)
        return self._new_class if found is cloudpickle._make_skeleton_class else found

    def _new_class(self, *arguments):
        *others, number, extra = arguments
        made = cloudpickle._make_skeleton_class(*others, None, extra)
        self.originals[made] = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(number, made)
        return made


class Returns(pickle.Unpickler):
    """For the notebook: its own classes are found, and stay as they are."""

    def __init__(self, packed) -> None:
        super().__init__(io.BytesIO(packed))
        self.known = set()

    def find_class(self, module, name):
        """As pickle's."""
        found = super().find_class(module, name)
        if found is cloudpickle._make_skeleton_class:
            return self._class
        return self._set if found is cloudpickle._class_setstate else found

    def _class(self, *arguments):
        own = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(arguments[-2])
        if own is None:
            return cloudpickle._make_skeleton_class(*arguments)
        self.known.add(own)
        return own

    def _set(self, made, state):
        return made if made in self.known else cloudpickle._class_setstate(made, state)


def returned(value, originals):
    """The value, in which instances of copied classes have become the originals'."""
    seen, left = set(), [value] if originals else []
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if type(each) in originals:
            with contextlib.suppress(TypeError):  # some classes don't allow it
                object.__setattr__(each, "__class__", originals[type(each)])
            left += getattr(each, "__dict__", {}).values()
        if isinstance(each, BaseException):
            left += each.args
        elif isinstance(each, dict):
            left += [*each.keys(), *each.values()]
        elif isinstance(each, (list, tuple, set, frozenset)):
            left += each
    return value
