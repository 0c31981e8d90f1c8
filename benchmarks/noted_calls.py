"""Notes on calls: what the functions of a lab's cells return, and what they do to their arguments.

`noting` compiles a cell so that its functions tell `came` when they are called and `left` what
they return; they remain plain functions with the same lines. Kernels, whose text is what runs, and
generators stay as they are. No note keeps an argument alive.
"""

import ast
import ctypes
import sys
import weakref
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch

MOST_CALLS = 100  # of one function; what later calls return is not noted
MOST_BYTES = 1 << 20  # of a storage whose changes are looked for
MOST_LEAVES = 64  # of a value, and of the arguments of a call
MOST_NUMBERS = 500  # of a value, which are compared with the solution's


class Value(NamedTuple):
    """Checksums of a returned value: all bits, four digits in their order, and in any order."""

    exact: int
    near: int
    bag: int


@dataclass
class Notes:
    """kinds: what was returned and changed, in words. values: of each function's calls."""

    kinds: set[str] = field(default_factory=set)
    values: dict[str, list[Value]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)


class Leaf(NamedTuple):
    """An array among a call's arguments, before the call."""

    place: str
    array: weakref.ref
    pointer: int
    checksum: int | None


class Call(NamedTuple):
    """A call that has not returned."""

    name: str
    leaves: list[Leaf]


NOTES = Notes()


def noting(source: str, filename: str) -> ast.Module:
    """The tree of a cell whose functions note their calls."""
    tree = ast.parse(source, filename)
    for node in tree.body:
        for function in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(function, ast.FunctionDef) and _is_plain(function):
                owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                _note(function, owner + function.name)
    return ast.fix_missing_locations(tree)


def came(name: str, arguments: Sequence[Any]) -> Call | None:
    """Notes a call by a check, a driver or our own code; None for one by a student's cell."""
    caller = sys._getframe(1).f_back
    file = caller.f_code.co_filename if caller else ""
    if file.startswith("<") and not file.startswith("<driver "):
        return None
    NOTES.calls[name] += 1
    if NOTES.calls[name] > MOST_CALLS:
        return None
    leaves = []
    for place, array in _arrays(arguments):
        pointer, size = _storage(array)
        leaves.append(Leaf(place, weakref.ref(array), pointer, _checksum(pointer, size)))
    return Call(name, leaves)


def left(call: Call | None, value: Any) -> Any:
    """Notes what a call returned, and returns it."""
    if call is not None:
        NOTES.kinds.add(f"{call.name} returns {described(value)}")
        NOTES.values.setdefault(call.name, []).append(_value(value))
        given = {_storage(array)[0] for _, array in _arrays([value])}
        for place, array, pointer, checksum in call.leaves:
            if pointer in given:
                NOTES.kinds.add(f"{call.name} returns memory of argument {place}")
            if (now := array()) is not None and _checksum(*_storage(now)) != checksum:
                NOTES.kinds.add(f"{call.name} changes argument {place}")
    return value


def described(value: Any, depth: int = 3) -> str:
    """The kind of a value: types, dtypes, and how arrays lie in memory."""
    name = type(value).__name__
    if isinstance(value, torch.Tensor):
        return f"{name}({_tensor_kind(value)})"
    if isinstance(value, np.ndarray):
        flags = value.flags
        lies = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "strided"
        owns = "own" if flags.owndata else "view"
        return f"{name}({value.dtype}, {lies}, {owns}, writeable={flags.writeable})"
    if not depth or not isinstance(value, (list, tuple, set, frozenset, dict)):
        return name
    items = [*value, *value.values()] if isinstance(value, dict) else list(value)
    inner = {described(item, depth - 1) for item in items[:MOST_LEAVES]}
    return f"{name}[{', '.join(sorted(inner))}]"


def _tensor_kind(tensor: torch.Tensor) -> str:
    if tensor.layout != torch.strided or tensor.is_meta:
        return f"{tensor.dtype}, {tensor.layout}"
    lies = "C" if tensor.is_contiguous() else "expanded" if 0 in tensor.stride() else "strided"
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize
    owns = "all of its storage" if whole else "a part of its storage"
    graph = "graph" if tensor.grad_fn is not None else f"grad={tensor.requires_grad}"
    return f"{tensor.dtype}, {lies}, {owns}, {graph}"


def _is_plain(function: ast.FunctionDef) -> bool:
    """Whether it runs as Python, and returns once."""
    inside = list(_own_nodes(function))
    return not any("jit" in ast.unparse(each) for each in function.decorator_list) and not any(
        isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)) for node in inside
    )


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes within, without those of functions and classes defined within."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from _own_nodes(child)


def _note(function: ast.FunctionDef, name: str) -> None:
    """Adds the two calls to a function's tree."""
    args = function.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    names = [ast.Name(arg.arg, ast.Load()) for arg in named if arg is not None]
    call = ast.Name("__call__", ast.Load())
    for node in _own_nodes(function):
        if isinstance(node, ast.Return):
            node.value = _called("__left__", call, node.value or ast.Constant(None))
    begins = _called("__came__", ast.Constant(name), ast.Tuple([*names], ast.Load()))
    first = ast.Assign([ast.Name("__call__", ast.Store())], begins)
    last = ast.Return(_called("__left__", call, ast.Constant(None)))
    ast.copy_location(first, function.body[0])
    ast.copy_location(last, function.body[-1])
    function.body = [first, *function.body, last]


def _called(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [*arguments], [])


def _arrays(values: Any, place: str = "", depth: int = 3) -> list[tuple[str, Any]]:
    """(place, array) of the arrays and tensors in lists, tuples and dicts."""
    found: list[tuple[str, Any]] = []
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in list(items)[:MOST_LEAVES]:
        inner = f"{place}[{key}]" if place and isinstance(values, dict) else place or str(key)
        if isinstance(value, np.ndarray) or _has_bytes(value):
            found.append((inner, value))
        elif depth and isinstance(value, (list, tuple, dict)):
            found += _arrays(value, inner, depth - 1)
    return found[:MOST_LEAVES]


def _has_bytes(value: Any) -> bool:
    """Whether this is a plain tensor in this machine's memory."""
    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    return plain and value.layout == torch.strided and value.device.type == "cpu"


def _storage(array: Any) -> tuple[int, int]:
    """(address, bytes) of the memory that an array is a part of."""
    if isinstance(array, torch.Tensor):
        storage = array.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    while isinstance(array.base, np.ndarray):
        array = array.base
    dense = array.flags.c_contiguous or array.flags.f_contiguous
    return array.__array_interface__["data"][0], array.nbytes if dense else 0


def _checksum(pointer: int, size: int) -> int | None:
    """Of memory; None if there is too much of it, or none."""
    if not pointer or not 0 < size <= MOST_BYTES:
        return None
    return zlib.crc32((ctypes.c_char * size).from_address(pointer))


def _value(value: Any) -> Value:
    """Checksums of a value. No operation of PyTorch takes place: some checks count those."""
    leaves = list(islice(_numbers(value), MOST_NUMBERS))
    digits = [f"{x:.4g}" if isinstance(x, (int, float)) else str(x) for x in leaves]
    exact, near, bag = map(repr, (leaves, digits, sorted(digits)))
    return Value(*(zlib.crc32(text.encode()) for text in (exact, near, bag)))


def _numbers(value: Any, depth: int = 4) -> Iterator[Any]:
    """The numbers and texts that a value is made of; the names of other types."""
    if _has_bytes(value):
        value = _as_numpy(value)
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind in "biufc":
            yield from np.ravel(value)[:MOST_NUMBERS].tolist()
        else:
            yield str(value.dtype)
    elif isinstance(value, (list, tuple, set, frozenset, dict)) and depth:
        pairs = value.items() if isinstance(value, dict) else value
        items = sorted(pairs, key=repr) if isinstance(value, (set, frozenset)) else list(pairs)
        for item in items[:MOST_NUMBERS]:
            yield from _numbers(item, depth - 1)
    elif value is None or isinstance(value, (bool, int, float, str, bytes)):
        yield value
    else:
        yield type(value).__name__


def _as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory as an array of NumPy; formats that NumPy lacks as whole numbers."""
    storage = tensor.untyped_storage()
    name = str(tensor.dtype).removeprefix("torch.")
    known = name if name in np.sctypeDict else f"uint{8 * tensor.itemsize}"
    if not storage.data_ptr() or not tensor.numel() or tensor.itemsize > 16:
        return np.zeros(0)
    buffer = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    strides = [step * tensor.itemsize for step in tensor.stride()]
    offset = tensor.storage_offset() * tensor.itemsize
    return np.ndarray(tuple(tensor.shape), known, memoryview(buffer), offset, strides)
