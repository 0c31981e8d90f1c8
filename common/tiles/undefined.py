"""Elements that hold no value: what a load leaves where its mask is False and no other= was given.

On a GPU they are whatever was in a register. Here an Undefined takes the array's place among the interpreter's numbers: it
marks such elements, and what is computed from them. tl.where and masks choose what is defined, and the marks are gone; a marked
element that reaches memory, an address, a mask or a branch is an error that names the load.
"""

import functools
from typing import Never

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from common.kernels.errors import KernelError

SHAPING = {np.broadcast_to, np.transpose, np.expand_dims, np.concatenate, np.stack, np.flip}
ALIKE = {np.zeros_like, np.ones_like, np.full_like, np.empty_like}


class Undefined(NDArrayOperatorsMixin):
    """An array of which some elements are undefined. marks: of each, whether it is; cause: what left it so, for a message."""

    def __init__(self, values, marks, cause) -> None:
        self.values, self.marks, self.cause = values, np.broadcast_to(marks, values.shape), cause

    dtype = property(lambda self: self.values.dtype)
    itemsize = property(lambda self: self.values.itemsize)
    shape = property(lambda self: self.values.shape)
    size = property(lambda self: self.values.size)
    ndim = property(lambda self: self.values.ndim)

    def refuse(self, what) -> Never:
        """Raises KernelError: what the kernel does with undefined elements."""
        raise KernelError(
            f"{what}: {self.cause}; their value is undefined, on a GPU it can be anything"
        )

    def item(self) -> None:
        """Nothing: a number is wanted here, which decides what happens next."""
        self.refuse("a branch, a loop or an assertion depends on undefined elements")

    all = __bool__ = __index__ = item

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __str__(self) -> str:
        return str(self.values)

    def __getitem__(self, index):
        return defined_or_not(np.asarray(self.values[index]), self.marks[index], self.cause)

    def __setitem__(self, index, value) -> None:
        self.values[index] = values_of(value)

    def copy(self):
        return Undefined(self.values.copy(), self.marks, self.cause)

    def astype(self, *dtype, **options):
        return defined_or_not(self.values.astype(*dtype, **options), self.marks, self.cause)

    def view(self, dtype):
        return defined_or_not(self.values.view(dtype), self.marks, self.cause)

    def reshape(self, *shape):
        return defined_or_not(self.values.reshape(*shape), self.marks.reshape(*shape), self.cause)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if method != "__call__":
            return NotImplemented
        return defined_or_not(
            ufunc(*map(values_of, inputs), **options), _marks_after(ufunc, inputs), _cause(inputs)
        )

    def __array_function__(self, function, types, arguments, options):
        if function in ALIKE:
            return function(*map(values_of, arguments), **options)
        if function is np.where:
            condition, yes, no = arguments
            marks = marks_of(condition) | np.where(
                values_of(condition), marks_of(yes), marks_of(no)
            )
            return defined_or_not(np.where(*map(values_of, arguments)), marks, _cause(arguments))
        if function is np.clip:
            return defined_or_not(np.clip(*map(values_of, arguments)), *either(arguments))
        if function is np.take_along_axis:
            return _taken(*arguments, **options)
        if function in SHAPING:
            first, *others = arguments
            several = isinstance(first, list)
            given = first if several else [first]
            values, marks = (
                [values_of(each) for each in given],
                [np.broadcast_to(marks_of(each), each.shape) for each in given],
            )
            values, marks = (
                function(each if several else each[0], *others, **options)
                for each in (values, marks)
            )
            return defined_or_not(values, marks, _cause(given))
        return everywhere(function(*map(values_of, arguments), **options), arguments)


def defined_or_not(values, marks, cause):
    """The values; an Undefined where some of them are marked."""
    return Undefined(values, marks, cause) if np.any(marks) else values


def check(values, mask, what) -> None:
    """Raises KernelError where the mask (None: everywhere) lets an undefined element through. what: the kernel does with it."""
    if (
        isinstance(values, Undefined)
        and (values.marks if mask is None else values.marks & mask).any()
    ):
        values.refuse(what)


def values_of(thing):
    """The values of an Undefined; of anything else, itself."""
    return thing.values if isinstance(thing, Undefined) else thing


def marks_of(thing):
    """Which elements are undefined."""
    return thing.marks if isinstance(thing, Undefined) else np.False_


def everywhere(result, arguments):
    """The result of a function that is not followed element by element, of arguments that are undefined in part: as a whole."""
    if isinstance(result, tuple):
        return tuple(everywhere(each, arguments) for each in result)
    return Undefined(np.asarray(result), np.True_, _cause(arguments))


def poison(dtype):
    """What an undefined element holds, where nothing follows it: NaN (0xFFFF is one of bf16), or the largest number."""
    return np.nan if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def either(things):
    """(marks, cause) of what is computed element by element from these: undefined where one of them is."""
    return functools.reduce(np.logical_or, map(marks_of, things)), _cause(things)


def reduced(marks, axis, keep_dims):
    """The marks after a reduction over an axis, or over all."""
    return np.any(marks, axis=axis, keepdims=bool(keep_dims))


def scanned(marks, axis, reverse):
    """The marks after a scan along an axis: from the first undefined element on."""
    if reverse:
        return np.flip(np.logical_or.accumulate(np.flip(marks, axis), axis=axis), axis)
    return np.logical_or.accumulate(marks, axis=axis)


def _taken(source, indices, axis):
    """np.take_along_axis: what is taken may be undefined, or from where."""
    places = np.where(marks_of(indices), 0, values_of(indices))
    marks = np.take_along_axis(
        np.broadcast_to(marks_of(source), source.shape), places, axis
    ) | marks_of(indices)
    return defined_or_not(
        np.take_along_axis(values_of(source), places, axis), marks, _cause((source, indices))
    )


def _cause(things):
    return next((thing.cause for thing in things if isinstance(thing, Undefined)), None)


def _marks_after(ufunc, inputs):
    """Which elements of the result are undefined: where an operand is, unless the other one decides."""
    if ufunc is np.matmul:
        left, right = (np.broadcast_to(marks_of(each), each.shape) for each in inputs)
        return left.any(-1, keepdims=True) | right.any(-2, keepdims=True)
    marks, _ = either(inputs)
    whole = all(values_of(each).dtype.kind in "iub" for each in inputs if hasattr(each, "dtype"))
    if ufunc is np.bitwise_and or (ufunc is np.multiply and whole):
        for each in inputs:
            marks = marks & (marks_of(each) | (values_of(each) != 0))
    elif ufunc is np.bitwise_or:
        for each in inputs:
            marks = marks & (marks_of(each) | (np.invert(values_of(each)) != 0))
    return marks
