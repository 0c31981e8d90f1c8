"""Arrays in a kernel: their lengths, rows, slices, and loads and stores of their elements."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from nogpu.simt import dtypes
from nogpu.simt.dtypes import Array
from nogpu.simt.frame import Frame
from nogpu.simt.operators import atom, cast
from nogpu.simt.program import Kind
from nogpu.simt.values import ArrayValue, Number, TupleValue, Value, integer, number

MAX_LENGTH = 2**63 - 1


@dataclass(frozen=True)
class Element:
    """An element of an array: the node that accesses it, and the array's name for messages."""

    node: ast.expr
    name: str
    array: ArrayValue
    indices: Sequence[Number]

    @property
    def type(self) -> Array:
        return self.array.type


def lengths(array: ArrayValue) -> list[Number]:
    """The numbers in an array's shape."""
    of_the_run = iter(array.lengths)
    return [
        integer(next(of_the_run), span=(0, MAX_LENGTH))
        if length is None
        else integer(str(length), span=(length, length))
        for length in array.type.shape
    ]


def indices(
    frame: Frame, node: ast.expr, array: ArrayValue, index: Value, text: str
) -> list[Number]:
    """The numbers of an index, each as a name or a literal. text: the index as written."""
    values = index.items if isinstance(index, TupleValue) else (index,)
    numbers: list[Number] = []
    for value in values:
        if not isinstance(value, Number) or value.type not in dtypes.INTEGERS:
            described = dtypes.describe(value.type)
            frame.refuse(node, f"an index is a whole number, and `{text}` is {described}")
        numbers.append(value)
    if len(numbers) > len(array.type.shape):
        frame.refuse(
            node,
            f"`{ast.unparse(node)}` has {len(numbers)} indices for {dtypes.describe(array.type)}",
        )
    return [atom(frame, value) for value in numbers]


def position(frame: Frame, element: Element) -> str:
    """Code of the place that the indices lead to, after a check that they are inside."""
    array, shape = element.array, lengths(element.array)
    checks = [
        check
        for index, length in zip(element.indices, shape, strict=False)
        if (check := _inside(index, length))
    ]
    if checks:
        numbers = ", ".join(index.code for index in element.indices)
        limits = ", ".join(length.code for length in shape)
        frame.writer.emit(
            f"if not ({' and '.join(checks)}): "
            f"raise OutsideError({element.name!r}, ({numbers},), ({limits},))"
        )
    terms = [array.code] + [
        index.code if stride == 1 else f"{index.code} * {stride}"
        for index, stride in zip(element.indices, array.type.strides, strict=False)
        if stride and index.constant != 0
    ]
    return " + ".join(terms)


def _inside(index: Number, length: Number) -> str:
    """Code that is true if an index is inside; "" if that is known before the run."""
    if index.span is None or length.span is None:
        return f"0 <= {index.code} < {length.code}"
    low, high = index.span[0] < 0, index.span[1] >= length.span[0]
    if not low and not high:
        return ""
    return f"{'0 <= ' if low else ''}{index.code}{f' < {length.code}' if high else ''}"


def row(frame: Frame, element: Element) -> ArrayValue:
    """a[i] of an array of two dimensions: an array of one dimension."""
    array, count = element.type, len(element.indices)
    place = frame.writer.temporary(position(frame, element))
    kind = Array(
        array.dtype, array.space, array.shape[count:], array.strides[count:], array.writable
    )
    return ArrayValue(kind, place, element.array.lengths)


def cut(frame: Frame, name: str, array: ArrayValue, low: str, high: str) -> ArrayValue:
    """a[low:high] of an array of one dimension. low, high: code of the bounds."""
    writer, kind = frame.writer, array.type
    length = lengths(array)[0].code
    writer.emit(
        f"if not 0 <= {low} <= {high} <= {length}: "
        f"raise OutsideError({name!r}, (({low}, {high}),), ({length},))"
    )
    place = writer.temporary(f"{array.code} + {low} * {kind.strides[0]}")
    view = Array(kind.dtype, kind.space, (None,), kind.strides, kind.writable)
    return ArrayValue(view, place, (writer.temporary(f"{high} - {low}"),))


def load(frame: Frame, element: Element) -> Number:
    """The value of an element, read here."""
    place = accessed(frame, element, Kind.LOAD)
    name = frame.writer.temporary(f"{element.type.space}_cells[{place}]")
    check_written(frame, element, place, name)
    return number(element.type.dtype, name)


def store(frame: Frame, element: Element, value: Value) -> None:
    """Write an element, converted to the array's type."""
    array = element.type
    if not array.writable or array.space == "constant":
        frame.refuse(element.node, f"`{element.name}` can only be read")
    if not isinstance(value, Number):
        frame.refuse(
            element.node, f"an element is one number, and this is {dtypes.describe(value.type)}"
        )
    code = cast(frame, value, array.dtype).code
    place = accessed(frame, element, Kind.STORE)
    frame.writer.emit(f"{array.space}_cells[{place}] = {code}")


def accessed(frame: Frame, element: Element, kind: Kind) -> str:
    """Code of an element's place. If the program counts, the access is logged."""
    frame.step()
    writer, place = frame.writer, position(frame, element)
    if not frame.program.counting or element.type.space == "local":
        return place if kind is not Kind.ATOMIC else writer.simple(place)
    site = frame.site(element.node, kind, **_attributes(element))
    place = writer.simple(place)
    writer.emit(f"keys{site.number}.append({frame.key})")
    writer.emit(f"places{site.number}.append({place})")
    return place


def check_written(frame: Frame, element: Element, place: str, name: str) -> None:
    """Shared and local memory holds nothing until it is written: reading it before is a mistake."""
    if element.type.space in ("shared", "local"):
        site = frame.site(element.node, Kind.CHECK, **_attributes(element))
        frame.writer.emit(f"if {name} is None: {name} = unwritten({site.number}, {place})")


def _attributes(element: Element) -> dict[str, str]:
    return {"space": element.type.space, "dtype": element.type.dtype, "array": element.name}
