"""The types of a kernel's values, and the type of an operator's result: Numba's rules for CUDA.

A float32 times a float32 is a float32. A float32 times the literal 2.0 is a float64, because the
literal is a float64, and on a GPU that is a slow instruction. Whole numbers of any width become
64 bits wide when they are added, as in Numba. The tests compare every rule here with what Numba
infers when it compiles for a GPU.
"""

import functools
from dataclasses import dataclass

import numpy as np

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
SCALARS = ("bool", *INTEGERS, *FLOATS)

Span = tuple[int, int]  # the smallest and the largest value of a whole number


@dataclass(frozen=True)
class Array:
    """An array's type: what its elements are and where they lie. Strides count elements.

    A length in shape is None where only the run knows it (a slice). It then travels with the
    pointer.
    """

    dtype: str
    space: str  # global, shared, local or constant
    shape: tuple[int | None, ...]
    strides: tuple[int, ...]
    writable: bool = True


@dataclass(frozen=True)
class Tuple:
    """The type of a few numbers that travel together, such as cuda.grid(2) or a shape."""

    items: tuple[str, ...]


Type = str | Array | Tuple | None  # a scalar's name; None: of no value


def leaves(kind: Type) -> tuple[str, ...]:
    """The types of the numbers that hold a value: of an array, its pointer and open lengths."""
    if isinstance(kind, Array):
        return ("int64",) * (1 + kind.shape.count(None))
    if isinstance(kind, Tuple):
        return tuple(leaf for item in kind.items for leaf in leaves(item))
    return () if kind is None else (kind,)


def describe(kind: Type) -> str:
    """A type as a message names it."""
    if isinstance(kind, Array):
        return f"a {len(kind.shape)}-dimensional {kind.dtype} array in {kind.space} memory"
    return "a tuple" if isinstance(kind, Tuple) else "nothing" if kind is None else kind


def is_integer(name: str) -> bool:
    """True for the types that count as whole numbers in arithmetic, bool among them."""
    return name in INTEGERS or name == "bool"


def is_float(name: str) -> bool:
    return name in FLOATS


def itemsize(name: str) -> int:
    """Size of one element, in bytes."""
    return np.dtype(name).itemsize


def limits(name: str) -> Span:
    """(smallest, largest) value of an integer type."""
    if name == "bool":
        return 0, 1
    width = itemsize(name) * 8
    return (
        (0, 2**width - 1) if name.startswith("u") else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
    )


def span(operator: str, left: Span, right: Span) -> Span | None:
    """The span of a whole-number operation's result, or None if it is not followed."""
    (a, b), (c, d) = left, right
    if operator == "+":
        return a + c, b + d
    if operator == "-":
        return a - d, b - c
    if operator == "*":
        products = a * c, a * d, b * c, b * d
        return min(products), max(products)
    if operator == "//":
        return (a // c, b // c) if c == d and c > 0 else (-max(abs(a), abs(b)), max(abs(a), abs(b)))
    if operator == "%" and c == d and c > 0:
        return 0, min(b, c - 1) if a >= 0 else c - 1
    if operator == "&" and max(a, c) >= 0:
        return 0, min(high for low, high in (left, right) if low >= 0)
    return _span_of_bits(operator, left, right)


def _span_of_bits(operator: str, left: Span, right: Span) -> Span | None:
    (a, b), (c, d) = left, right
    if operator in ("&", "|", "^"):
        width = max(bound.bit_length() for bound in (a, b, c, d))
        return (0 if min(a, c) >= 0 else -(2**width)), 2**width - 1
    if operator == "<<" and c == d and 0 <= c < 64:
        return a << c, b << c
    if operator == ">>" and c == d and 0 <= c < 64:
        return a >> c, b >> c
    return None


@functools.cache
def common(first: str, second: str) -> str:
    """The type that holds both where two branches meet: NumPy's promotion."""
    return np.promote_types(first, second).name


def arithmetic(operator: str, first: str, second: str) -> str:
    """The type of `first operator second`, for + - * / // % and **."""
    if is_integer(first) and is_integer(second):
        if operator == "/":
            return "float64"
        return "uint64" if first.startswith("u") and second.startswith("u") else "int64"
    if operator == "**" and is_float(first) and is_integer(second):
        return "float64" if first == "float64" else "float32"
    floats = {_beside(first, second), _beside(second, first)}
    if "float64" in floats:
        return "float64"
    return "float16" if floats == {"float16"} and operator in ("+", "-", "*", "/") else "float32"


def _beside(name: str, other: str) -> str:
    """The floating-point type that an operand is converted to, given the other operand."""
    if is_float(name):
        return name
    if other == "float16" and name in ("bool", "int8"):
        return "float16"
    return (
        "float32"
        if name in ("bool", "int8", "int16", "uint8") and other != "float64"
        else "float64"
    )


def bitwise(first: str, second: str, shift: bool = False) -> str | None:
    """The type of `first & second`, |, ^, << or >>; None if one of them is not a whole number."""
    if not (is_integer(first) and is_integer(second)):
        return None
    if first == second == "bool" and not shift:
        return "bool"
    if shift:
        return "uint64" if first.startswith("u") else "int64"
    return arithmetic("+", first, second)


def of_function(name: str, first: str, second: str) -> str:
    """The type of a function of two numbers in math: pow, atan2, fmod, hypot or copysign."""
    small = ("bool", "int8", "int16", "uint8", "float16", "float32")
    if name in ("atan2", "hypot") and is_integer(first) and is_integer(second):
        return "float64"
    if (
        name == "pow"
        and first in small
        and (second == "int32" or (first, second) == ("float32", "uint16"))
    ):
        return "float32"
    return "float32" if first in small and second in small else "float64"


def of_range(kinds: list[str]) -> str:
    """The type of a loop's variable, from the types of range's arguments."""
    if all(kind in ("bool", "int8", "int16", "int32", "uint8", "uint16") for kind in kinds):
        return "int32"
    return "uint64" if all(kind.startswith("u") for kind in kinds) else "int64"
