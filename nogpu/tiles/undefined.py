"""Elements that hold no value: what a load leaves where its mask is False and no other= was given.

On a GPU they are whatever was in a register. Here an Undefined takes the array's place among the
interpreter's numbers: it marks such elements, and what is computed from them. tl.where and masks
choose elements that are defined; then the marks are gone. A marked element that reaches memory, an
address, a mask or a branch is an error that names the load.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Never

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from nogpu.kernels.errors import KernelError

MOVING = {np.broadcast_to, np.transpose, np.expand_dims, np.concatenate, np.stack, np.flip}
SHAPED_LIKE = {np.zeros_like, np.ones_like, np.full_like, np.empty_like}
Marks = np.ndarray | np.bool_


class Undefined(NDArrayOperatorsMixin):
    """An array with undefined elements. marks: which ones; cause: what left them undefined."""

    def __init__(self, values: np.ndarray, marks: Marks, cause: str) -> None:
        self.values = values
        self.marks = np.broadcast_to(marks, values.shape)
        self.cause = cause

    dtype = property(lambda self: self.values.dtype)
    itemsize = property(lambda self: self.values.itemsize)
    shape = property(lambda self: self.values.shape)
    size = property(lambda self: self.values.size)
    ndim = property(lambda self: self.values.ndim)

    def refuse(self, what: str) -> Never:
        """Raise KernelError. what: the kernel does with undefined elements."""
        raise KernelError(
            f"{what}: {self.cause}; their value is undefined, on a GPU it can be anything"
        )

    def item(self) -> Never:
        """Refuse: what happens next depends on this number."""
        self.refuse("a branch, a loop or an assertion depends on undefined elements")

    all = __bool__ = __index__ = item

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.values, dtype)

    def __str__(self) -> str:
        return str(self.values)

    def __getitem__(self, index: Any) -> Any:
        return defined_or_not(np.asarray(self.values[index]), self.marks[index], self.cause)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[index] = values_of(value)

    def sum(self) -> "Undefined":
        return everywhere(self.values.sum(), [self])

    def copy(self) -> "Undefined":
        return Undefined(self.values.copy(), self.marks, self.cause)

    def astype(self, *dtype: Any, **options: Any) -> Any:
        return defined_or_not(self.values.astype(*dtype, **options), self.marks, self.cause)

    def view(self, dtype: Any) -> Any:
        return defined_or_not(self.values.view(dtype), self.marks, self.cause)

    def reshape(self, *shape: Any) -> Any:
        return defined_or_not(self.values.reshape(*shape), self.marks.reshape(*shape), self.cause)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        if method != "__call__":
            return NotImplemented
        values = ufunc(*map(values_of, inputs), **options)
        return defined_or_not(values, _marks_after(ufunc, inputs), _cause(inputs))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, arguments: tuple, options: dict[str, Any]
    ) -> Any:
        if function in SHAPED_LIKE:
            return function(*map(values_of, arguments), **options)
        if function in MOVING:
            return _moved(function, *arguments, **options)
        if function in BY_ELEMENT:
            return BY_ELEMENT[function](*arguments, **options)
        return everywhere(function(*map(values_of, arguments), **options), arguments)


def defined_or_not(values: np.ndarray, marks: Marks, cause: str | None) -> Any:
    """The values; an Undefined if some of them are marked."""
    return Undefined(values, marks, cause or "") if np.any(marks) else values


def check(values: Any, mask: np.ndarray | None, what: str) -> None:
    """KernelError if the mask (None: all True) lets undefined elements through. what: as refuse."""
    if isinstance(values, Undefined):
        reached = values.marks if mask is None else values.marks & mask
        if reached.any():
            values.refuse(what)


def values_of(thing: Any) -> Any:
    """The values of an Undefined; of anything else, itself."""
    return thing.values if isinstance(thing, Undefined) else thing


def marks_of(thing: Any) -> Marks:
    """Which elements are undefined."""
    return thing.marks if isinstance(thing, Undefined) else np.False_


def everywhere(result: Any, arguments: Sequence[Any]) -> Any:
    """A result of undefined elements, all of it undefined: nothing says which part is."""
    if isinstance(result, tuple):
        return tuple(everywhere(part, arguments) for part in result)
    return Undefined(np.asarray(result), np.True_, _cause(arguments) or "")


def poison(dtype: np.dtype) -> float:
    """What an undefined element holds: NaN (0xFFFF is one of bf16), or the largest number."""
    if dtype.kind == "f":
        return np.nan
    return True if dtype.kind == "b" else np.iinfo(dtype).max


def either(things: Sequence[Any]) -> tuple[Marks, str | None]:
    """(marks, cause) of an elementwise result: undefined where one of the things is."""
    return functools.reduce(np.logical_or, map(marks_of, things)), _cause(things)


def reduced(marks: Marks, axis: int | None, keep_dims: bool) -> Marks:
    """The marks after a reduction over an axis, or over all."""
    return np.any(marks, axis=axis, keepdims=bool(keep_dims))


def scanned(marks: Marks, axis: int, reverse: bool) -> Marks:
    """The marks after a scan along an axis: from the first undefined element on."""
    if reverse:
        return np.flip(np.logical_or.accumulate(np.flip(marks, axis), axis=axis), axis)
    return np.logical_or.accumulate(marks, axis=axis)


# NumPy's functions of arrays of which some are Undefined


def _where(condition: Any, yes: Any, no: Any) -> Any:
    chosen = np.where(values_of(condition), marks_of(yes), marks_of(no))
    values = np.where(values_of(condition), values_of(yes), values_of(no))
    return defined_or_not(values, marks_of(condition) | chosen, _cause((condition, yes, no)))


def _clip(*arguments: Any) -> Any:
    return defined_or_not(np.clip(*map(values_of, arguments)), *either(arguments))


def _take_along_axis(source: Any, indices: Any, axis: int) -> Any:
    """An element is undefined if the one that is taken is, or if its index is."""
    marks = np.broadcast_to(marks_of(source), source.shape)
    known = np.where(marks_of(indices), 0, values_of(indices))
    taken = np.take_along_axis(marks, known, axis) | marks_of(indices)
    values = np.take_along_axis(values_of(source), known, axis)
    return defined_or_not(values, taken, _cause((source, indices)))


BY_ELEMENT = {np.where: _where, np.clip: _clip, np.take_along_axis: _take_along_axis}


def _moved(function: Callable[..., Any], first: Any, *others: Any, **options: Any) -> Any:
    """The result of a function that moves or repeats elements: so it moves the marks, too."""
    if isinstance(first, list):
        values = [values_of(array) for array in first]
        marks = [np.broadcast_to(marks_of(array), array.shape) for array in first]
        cause = _cause(first)
    else:
        values, marks, cause = values_of(first), marks_of(first), _cause([first])
    moved = function(values, *others, **options), function(marks, *others, **options)
    return defined_or_not(*moved, cause)


def _cause(things: Sequence[Any]) -> str | None:
    return next((thing.cause for thing in things if isinstance(thing, Undefined)), None)


def _marks_after(ufunc: np.ufunc, inputs: tuple) -> Marks:
    """Where a result is undefined: where an operand is, unless the other operand decides."""
    if ufunc is np.matmul:
        left, right = (np.broadcast_to(marks_of(block), block.shape) for block in inputs)
        return left.any(-1, keepdims=True) | right.any(-2, keepdims=True)
    marks, _ = either(inputs)
    whole = all(values_of(block).dtype.kind in "iub" for block in inputs if hasattr(block, "dtype"))
    if ufunc in (np.bitwise_and, np.logical_and) or (ufunc is np.multiply and whole):
        for block in inputs:
            marks = marks & (marks_of(block) | (values_of(block) != 0))
    elif ufunc is np.bitwise_or:
        for block in inputs:
            marks = marks & (marks_of(block) | (np.invert(values_of(block)) != 0))
    return marks
