"""What instructions of PTX compute: on arrays of (programs, threads), or on one number for all.

Registers are unsigned arrays of their width, predicates are bools. A result that is not computed
here (what tensor cores and approximate functions give) is None, and so is what is made of it.
"""

import functools
from collections.abc import Callable, Iterable

import numpy as np

Bits = np.ndarray  # or a NumPy number, which does the same
Operation = Callable[..., Bits]
Value = Bits | None  # None: not known

WIDTHS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
KINDS = {"b": "u", "u": "u", "s": "i", "f": "f"}
DOUBLE = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}
COMPARISONS: dict[str, Operation] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
ROUNDINGS: dict[str, Operation] = {
    "rzi": np.trunc,
    "rni": np.rint,
    "rmi": np.floor,
    "rpi": np.ceil,
}
COMBINED: dict[str, Operation] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def all_known(values: Iterable[Value]) -> list[Bits] | None:
    """The values, or None if one of them is not known."""
    found = []
    for value in values:
        if value is None:
            return None
        found.append(value)
    return found


def bits_of(kind: str) -> int:
    """The width of a type such as s32 or bf16x2 in bits; 1 of a predicate."""
    if kind == "pred":
        return 1
    width, _, parts = kind.lstrip("bfsu").partition("x")
    return int(width) * int(parts or 1)


def unsigned(kind: str) -> type[np.generic]:
    """The dtype in which a register of this type is kept."""
    return np.bool_ if kind == "pred" else WIDTHS[bits_of(kind)]


def read(value: Bits, kind: str) -> Bits:
    """The bits as numbers of a type: its width is cut or filled with zeros."""
    if kind == "pred":
        return value
    dtype = np.dtype(f"{KINDS[kind[0]]}{bits_of(kind) // 8}")
    return value.astype(unsigned(kind)).view(dtype)


def written(value: Bits, kind: str) -> Bits:
    """Numbers as the bits of a register of a type."""
    if kind == "pred":
        return value
    dtype = np.dtype(f"{KINDS[kind[0]]}{bits_of(kind) // 8}")
    return np.asarray(value).astype(dtype).view(unsigned(kind))


def known(kind: str) -> bool:
    """Whether numbers of this type are computed here."""
    return kind == "pred" or (
        kind[0] in KINDS and kind[1:].isdigit() and (kind[0] != "f" or bits_of(kind) >= 32)
    )


def _high(a: Bits, b: Bits) -> Bits:
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}8")
        return (a.astype(wide) * b.astype(wide)) >> wide.type(8 * a.dtype.itemsize)
    product = np.asarray(a).astype(object) * np.asarray(b).astype(object)
    return (product >> 64).astype(a.dtype)


def _quotient(a: Bits, b: Bits) -> Bits:
    """a / b towards zero; all ones where b is 0."""
    if a.dtype.kind == "f":
        return a / b
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // divisor
    if a.dtype.kind == "i":
        inexact = (quotient * divisor != a) & ((a < 0) != (divisor < 0))
        quotient = quotient + inexact
    return np.where(b == 0, ~b.dtype.type(0), quotient).astype(a.dtype)


def _remainder(a: Bits, b: Bits) -> Bits:
    return np.where(b == 0, a, a - _quotient(a, b) * b).astype(a.dtype)


def _shifted_left(a: Bits, amount: Bits) -> Bits:
    width = 8 * a.dtype.itemsize
    by = np.minimum(amount, width - 1).astype(a.dtype)
    return np.where(amount >= width, a.dtype.type(0), a << by)


def _shifted_right(a: Bits, amount: Bits) -> Bits:
    width = 8 * a.dtype.itemsize
    by = np.minimum(amount, width - 1).astype(a.dtype)
    shifted = a >> by
    return shifted if a.dtype.kind == "i" else np.where(amount >= width, a.dtype.type(0), shifted)


def _field(a: Bits, start: Bits, length: Bits) -> Bits:
    """bfe: `length` bits from bit `start` on, with the sign of the last of them if a has one."""
    wide = np.asarray(a).astype(f"{a.dtype.kind}8")
    start, length = ((part & part.dtype.type(255)).astype(wide.dtype) for part in (start, length))
    moved = wide >> np.minimum(start, wide.dtype.type(63))
    left = np.where(length == 0, 0, 64 - np.minimum(length, wide.dtype.type(64))).astype(wide.dtype)
    return np.where(length == 0, 0, (moved << left) >> left).astype(a.dtype)


def _inserted(a: Bits, b: Bits, start: Bits, length: Bits) -> Bits:
    """bfi: the low `length` bits of a in b, from bit `start` on."""
    start, length = (
        np.asarray(part).astype(np.uint64) & np.uint64(255) for part in (start, length)
    )
    ones = _shifted_left(np.ones_like(length), length) - np.uint64(1)
    mask = _shifted_left(ones, start).astype(a.dtype)
    moved = _shifted_left(np.asarray(a).astype(np.uint64), start).astype(a.dtype)
    return (b & ~mask) | (moved & mask)


def _permuted(a: Bits, b: Bits, selector: Bits) -> Bits:
    """prmt: four bytes of a and b, as the selector's four digits say; digit + 8 gives the sign."""
    pair = np.asarray(a).astype(np.uint64) | (np.asarray(b).astype(np.uint64) << np.uint64(32))
    result = np.zeros(np.broadcast(a, b, selector).shape, np.uint64)
    for place in range(4):
        digit = (np.asarray(selector).astype(np.uint64) >> np.uint64(4 * place)) & np.uint64(15)
        byte = (pair >> ((digit & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        sign = np.where(byte >= 128, np.uint64(255), np.uint64(0))
        byte = np.where(digit >= 8, sign, byte)
        result |= byte << np.uint64(8 * place)
    return result.astype(np.uint32)


def _looked_up(a: Bits, b: Bits, c: Bits, table: Bits) -> Bits:
    """lop3: each bit of the result is the table's bit that a, b and c have the number of."""
    result = np.zeros(np.broadcast(a, b, c).shape, np.uint32)
    for number in range(8):
        if int(table) >> number & 1:
            terms = [
                part if number >> place & 1 else ~part for part, place in ((a, 2), (b, 1), (c, 0))
            ]
            result = result | (terms[0] & terms[1] & terms[2])
    return result


def _funnel(left: bool) -> Operation:
    def shifted(low: Bits, high: Bits, amount: Bits) -> Bits:
        pair = np.asarray(low).astype(np.uint64) | (
            np.asarray(high).astype(np.uint64) << np.uint64(32)
        )
        by = np.asarray(amount).astype(np.uint64) & np.uint64(31)
        moved = (pair << by) >> np.uint64(32) if left else pair >> by
        return moved.astype(np.uint32)

    return shifted


def _leading_zeros(a: Bits) -> Bits:
    width = 8 * a.dtype.itemsize
    places = np.asarray(a)[..., None] >> np.arange(width, dtype=a.dtype)
    return (width - (places != 0).sum(-1)).astype(np.uint32)


SAME: dict[str, Operation] = {  # operands and result have the type that the name ends with
    "add": np.add,
    "sub": np.subtract,
    "mul.lo": np.multiply,
    "mul.hi": _high,
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.hi": lambda a, b, c: _high(a, b) + c,
    "fma": lambda a, b, c: a * b + c,
    "div": _quotient,
    "rem": _remainder,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "neg": np.negative,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "mov": lambda a: a,
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
}
COUNTED: dict[str, Operation] = {  # the last operands are numbers of 32 bits
    "shl": _shifted_left,
    "shr": _shifted_right,
    "bfe": _field,
    "bfi": _inserted,
    "prmt": _permuted,
    "lop3": _looked_up,
    "popc": lambda a: np.bitwise_count(a).astype(np.uint32),
    "clz": _leading_zeros,
    "shf.l": _funnel(left=True),
    "shf.r": _funnel(left=False),
}
TYPED = {"bfe": 1, "shl": 1, "shr": 1, "bfi": 2, "popc": 1, "clz": 1}  # operands of the name's type


@functools.cache
def operation(name: tuple[str, ...]) -> tuple[Operation, list[str], str] | None:
    """(function, the operands' types, the result's type) of an instruction; None if not known."""
    base, kind = name[0], name[-1]
    if kind == "f32x2":
        each = operation((*name[:-1], "f32"))
        return each and (_paired(each[0]), ["b64"], "b64")
    if not known(kind):
        return None
    half = next((part for part in name[1:-1] if part in ("lo", "hi", "wide", "l", "r")), "")
    if half == "wide":
        wide = DOUBLE[kind]
        if base == "mul":
            return _widened(np.multiply, wide), [kind, kind], wide
        return _widened(lambda a, b, c: a * b + c, wide), [kind, kind, wide], wide
    key = f"{base}.{half}" if f"{base}.{half}" in SAME | COUNTED else base
    if key == "mul" and kind[0] == "f":
        return np.multiply, [kind], kind
    if base == "not":
        return (np.logical_not if kind == "pred" else np.bitwise_not), [kind], kind
    if key in SAME:
        return SAME[key], [kind], kind
    if key in COUNTED:
        result = "b32" if key in ("popc", "clz") else kind
        return COUNTED[key], [kind] * TYPED.get(key, 0) + ["b32"] * 4, result
    return None


def _paired(function: Operation) -> Operation:
    """The same function of both floats in registers of 64 bits."""

    def of_both(*parts: Bits) -> Bits:
        pairs = [
            np.ascontiguousarray(np.asarray(part)[..., None]).view(np.float32) for part in parts
        ]
        return np.ascontiguousarray(function(*pairs)).view(np.uint64)[..., 0]

    return of_both


def _widened(function: Operation, wide: str) -> Operation:
    dtype = np.dtype(f"{KINDS[wide[0]]}{bits_of(wide) // 8}")
    return lambda *parts: function(*(np.asarray(part).astype(dtype) for part in parts))


def converted(value: Bits, to: str, origin: str, modes: tuple[str, ...]) -> Value:
    """cvt: the value as another type."""
    if not (known(to) and known(origin)):
        return None
    number = read(value, origin)
    if origin[0] == "f":
        for mode in ROUNDINGS.keys() & set(modes):
            number = ROUNDINGS[mode](number)
        if to[0] != "f":  # out of range it is the nearest number, and 0 for NaN
            info = np.iinfo(np.dtype(f"{KINDS[to[0]]}{bits_of(to) // 8}"))
            number = np.clip(np.nan_to_num(number, nan=0.0), float(info.min), float(info.max))
    return written(number, to)
