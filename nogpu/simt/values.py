"""What the expressions of a kernel stand for: values, and names that are not values.

A value is a type, the Python code that computes it, and what is known of it before the run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nogpu.simt import arithmetic, dtypes
from nogpu.simt.dtypes import Array, Span, Tuple, Type
from nogpu.simt.program import Function


@dataclass(frozen=True)
class Number:
    """One number. A whole number may be wider than its type until it is made exact."""

    type: str
    code: str
    constant: int | float | None = None
    span: Span | None = None  # the smallest and the largest value of a whole number

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.code,)

    def renamed(self, codes: Sequence[str]) -> "Number":
        """The same value, held by these names."""
        return replace(self, code=codes[0])

    def not_constant(self) -> "Number":
        """The same value without what is known of it, except for its span."""
        return replace(self, constant=None)


@dataclass(frozen=True)
class ArrayValue:
    """An array: the place where it begins, and those of its lengths that only the run knows."""

    type: Array
    code: str
    lengths: tuple[str, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.code, *self.lengths)

    def renamed(self, codes: Sequence[str]) -> "ArrayValue":
        """The same value, held by these names."""
        return replace(self, code=codes[0], lengths=tuple(codes[1:]))

    def not_constant(self) -> "ArrayValue":
        return self


@dataclass(frozen=True)
class TupleValue:
    """A few numbers that travel together."""

    items: tuple[Number, ...]

    @property
    def type(self) -> Tuple:
        return Tuple(tuple(item.type for item in self.items))

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(item.code for item in self.items)

    def renamed(self, codes: Sequence[str]) -> "TupleValue":
        """The same value, held by these names."""
        return TupleValue(
            tuple(replace(item, code=code) for item, code in zip(self.items, codes, strict=True))
        )

    def not_constant(self) -> "TupleValue":
        return TupleValue(tuple(item.not_constant() for item in self.items))


@dataclass(frozen=True)
class Nothing:
    """What a barrier or a function without a result returns."""

    type = None
    codes = ()

    def renamed(self, codes: Sequence[str]) -> "Nothing":
        return self

    def not_constant(self) -> "Nothing":
        return self


Value = Number | ArrayValue | TupleValue | Nothing


@dataclass(frozen=True)
class Module:
    """cuda, math, numpy or numba."""

    name: str


@dataclass(frozen=True)
class Builtin:
    """What a kernel may call, or take a part of, by its dotted name: cuda.grid, math.sqrt, len."""

    name: str


@dataclass(frozen=True)
class Dtype:
    """A type by its name, such as float32: it can be called, to convert a number."""

    name: str


@dataclass(frozen=True)
class Table:
    """A NumPy array outside of the kernel."""

    name: str
    array: np.ndarray


@dataclass(frozen=True)
class DeviceFunction:
    """A function decorated with @cuda.jit(device=True)."""

    name: str
    function: Function


Static = Module | Builtin | Dtype | Table | DeviceFunction


def constant(number: int | float, kind: str) -> Number:
    """A number that is known before the run."""
    number = arithmetic.cast(number, kind)
    code = repr(number)
    if kind in dtypes.FLOATS and not math.isfinite(number):
        code = "nan" if number != number else "inf" if number > 0 else "(-inf)"
    span = (int(number), int(number)) if dtypes.is_integer(kind) else None
    return Number(kind, code, number, span)


def integer(code: str, kind: str = "int64", span: Span | None = None) -> Number:
    """A whole number; of any size that its type has if no span is given."""
    return Number(kind, code, None, span or dtypes.limits(kind))


def number(kind: str, code: str) -> Number:
    """A number of this type, of which nothing is known."""
    return Number(kind, code, None, dtypes.limits(kind) if dtypes.is_integer(kind) else None)


def held(kind: Type, codes: Sequence[str]) -> Value:
    """The value of this type that these names hold."""
    if isinstance(kind, Array):
        return ArrayValue(kind, codes[0], tuple(codes[1:]))
    if isinstance(kind, Tuple):
        return TupleValue(tuple(map(number, kind.items, codes)))
    return Nothing() if kind is None else number(kind, codes[0])


def tuple_of(items: Sequence[Number]) -> TupleValue:
    """A tuple; as for Numba, its numbers are known before the run only if all of them are."""
    known = all(item.constant is not None for item in items)
    return TupleValue(tuple(item if known else item.not_constant() for item in items))


def either(kind: str, first: Number, second: Number) -> Span | None:
    """The span of a number of this type that is one of these two."""
    if not dtypes.is_integer(kind) or first.span is None or second.span is None:
        return None
    return min(first.span[0], second.span[0]), max(first.span[1], second.span[1])


def within(span: Span | None, limits: Span) -> bool:
    """Whether a span lies within these limits."""
    return span is not None and limits[0] <= span[0] and span[1] <= limits[1]


def variable(name: str, leaf: int = 0) -> str:
    """The name of a kernel's variable, or of one of its numbers, in the program that runs."""
    return f"v{leaf or ''}_{name}"


def variables(name: str, kind: Type) -> list[str]:
    """The names of all numbers of a kernel's variable of this type."""
    return [variable(name, leaf) for leaf in range(len(dtypes.leaves(kind)))]


def converted(code: str, have: str, want: str) -> str:
    """Code of a number where branches meet: only a whole number that becomes a float changes."""
    return f"float({code})" if dtypes.is_integer(have) and dtypes.is_float(want) else code
