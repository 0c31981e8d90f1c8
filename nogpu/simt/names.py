"""What names from outside of a kernel mean in it: constants, dtypes, modules, functions."""

import ast
import builtins
import math
from types import ModuleType

import numpy as np

from nogpu.simt import dtypes
from nogpu.simt.frame import Frame
from nogpu.simt.language import BUILTINS, DTYPES
from nogpu.simt.threads import coordinate
from nogpu.simt.values import (
    Builtin,
    DeviceFunction,
    Dtype,
    Module,
    Number,
    Static,
    Table,
    Value,
    constant,
    tuple_of,
)

CUDA_MODULES = ("numba.cuda", "numba_cuda.numba.cuda", "nogpu.cuda", "nogpu.simt.cuda")
MODULES = {
    **dict.fromkeys(CUDA_MODULES, "cuda"),
    "math": "math",
    "numpy": "numpy",
    **dict.fromkeys(("numba", "numba.types", "numba.core.types"), "numba"),
}
MAX_TUPLE = 8
ALIASES = {
    "bool": "bool",
    "bool_": "bool",
    "boolean": "bool",
    "intp": "int64",
    "uintp": "uint64",
    "byte": "int8",
}
ADVICE = {
    "print": "; write what you want to see into an array",
    "divmod": "; write a // b and a % b",
    **dict.fromkeys(
        ("sum", "any", "all", "sorted", "map", "zip", "enumerate", "reversed"),
        "; write a loop over range",
    ),
}


def dtype_name(thing: object) -> str:
    """The type that np.float32, a dtype, Numba's float32 or such a name stands for, or ""."""
    if isinstance(thing, str):
        return thing if thing in DTYPES and thing != "bool_" else ALIASES.get(thing, "")
    if isinstance(thing, np.dtype) or (isinstance(thing, type) and issubclass(thing, np.generic)):
        name = np.dtype(thing).name
        return name if name in dtypes.SCALARS else ""
    of_numba = type(thing).__module__.startswith(("numba.", "numba_cuda."))
    return dtype_name(str(thing)) if of_numba else ""


def outside(frame: Frame, node: ast.expr, name: str, thing: object) -> Value | Static:
    """What an object from outside of the kernel means in it."""
    number = _number(thing)
    if number is not None:
        return number
    if type(thing) is tuple and len(thing) <= MAX_TUPLE:
        items = [_number(item) for item in thing if type(item) in (int, float, bool)]
        numbers = [item for item in items if item is not None]
        if len(numbers) == len(thing):
            return tuple_of(numbers)
    if isinstance(thing, ModuleType):
        if thing.__name__ not in MODULES:
            frame.refuse(node, f"a kernel cannot use the module {name}; it has cuda and math")
        return Module(MODULES[thing.__name__])
    if dtype_name(thing):
        return Dtype(dtype_name(thing))
    if isinstance(thing, np.ndarray):
        return Table(name, thing)
    return _function(frame, node, name, thing)


def _number(thing: object) -> Number | None:
    """A number from outside, or None if it is another object, or does not fit into 64 bits."""
    if isinstance(thing, (bool, np.bool_)):
        return constant(bool(thing), "bool")
    if isinstance(thing, (np.integer, np.floating)) and thing.dtype.name in dtypes.SCALARS:
        return constant(thing.item(), thing.dtype.name)
    if type(thing) is int and -(2**63) <= thing < 2**64:
        return constant(thing, "int64" if thing < 2**63 else "uint64")
    return constant(thing, "float64") if type(thing) is float else None


def _function(frame: Frame, node: ast.expr, name: str, thing: object) -> Static:
    own_name = getattr(thing, "__name__", None)
    if own_name and getattr(math, own_name, None) is thing:
        return Builtin(f"math.{own_name}")
    if own_name in BUILTINS and getattr(builtins, own_name) is thing:
        return Builtin(own_name)
    if own_name and getattr(builtins, own_name, None) is thing:
        frame.refuse(
            node,
            f"{name} is Python's own; a kernel has {', '.join(BUILTINS)}{ADVICE.get(name, '')}",
        )
    function = frame.functions.find(thing)
    if function is None:
        frame.refuse(
            node,
            f"{name} is a {type(thing).__name__}; from outside a kernel may use numbers of 64 "
            "bits, dtypes, device functions decorated with @cuda.jit(device=True), cuda and math",
        )
    return DeviceFunction(name, function)


def part(frame: Frame, base: Static, name: str) -> Value | Static:
    """What base.name means: a part of a module, or of what a module holds."""
    dotted = f"{base.name}.{name}"
    if dotted in ("numba.cuda", "numba.types"):
        return Module(MODULES[dotted])
    if base.name in ("numpy", "numba") and dtype_name(name):
        return Dtype(dtype_name(name))
    if base.name in ("numpy", "math") and name in ("pi", "e", "inf", "nan", "tau"):
        return constant(getattr(math, name), "float64")
    value = coordinate(frame.program, dotted)
    return Builtin(dotted) if value is None else value
