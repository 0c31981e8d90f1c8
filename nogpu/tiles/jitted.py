"""Kernels from Python: the Function of a @triton.jit function."""

import inspect
import math
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from nogpu.kernels.errors import KernelError
from nogpu.kernels.source import Source, source_of, text_elsewhere
from nogpu.tiles.constants import Constant, plain
from nogpu.tiles.functions import NO_CONSTANT, Callee, Function, Resolver, undefined_name
from nogpu.tiles.text import of_text

Namespace = tuple[int, tuple[str, ...]]  # id of a function's globals, the names in its closure


def of_python(jitted: Any) -> Function:
    """The Function of a @triton.jit function; in a notebook as a grader reads it from the cells."""
    if found := text_elsewhere(jitted, jitted.fn):
        return of_text(*found, None)
    return _resolver(jitted.fn, {}).function(source_of(jitted.fn, "tiles"))


def is_jitted(thing: Any) -> bool:
    """Whether this is a @triton.jit function, compiled or interpreted."""
    return type(thing).__name__ in ("JITFunction", "InterpretedFunction") and inspect.isfunction(
        thing.fn
    )


def _resolver(function: FunctionType, known: dict[Namespace, Resolver]) -> Resolver:
    """The Resolver for what a Python function's globals and closure hold."""
    namespace = function.__globals__
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def look_up(name: str, source: Source, called: bool) -> Callee | Constant:
        if name in closure:
            value = closure[name].cell_contents
        elif name in namespace:
            value = namespace[name]
        else:
            raise undefined_name(name, source)
        if is_jitted(value):
            return Callee(_resolver(value.fn, known), source_of(value.fn, "tiles"))
        return _constant(name, value, source)

    return known.setdefault((id(namespace), tuple(closure)), Resolver(look_up))


def _constant(name: str, value: Any, source: Source) -> Constant:
    """The value of a constant that Triton lets a kernel read: a tl.constexpr or a dtype."""
    kind = type(value)
    if kind.__module__ == "triton.language.core" and kind.__name__ in ("constexpr", "dtype"):
        return plain(name, value)
    if isinstance(value, (bool, int, float, tuple)):
        finite = not isinstance(value, float) or math.isfinite(value)
        written = repr(value) if finite else f'float("{value}")'
        raise KernelError(NO_CONSTANT.format(function=source.name, name=name, value=written))
    raise KernelError(
        f"{source.name} uses {name}, a {kind.__name__}; a kernel has tl.*, its parameters, "
        "@triton.jit functions and constants made by tl.constexpr"
    )


@dataclass(frozen=True)
class Kernel:
    """A kernel whose text has been checked; tiles.count runs it."""

    function: Function

    @property
    def __name__(self) -> str:
        return self.function.name


def as_kernel(kernel: Any) -> Kernel:
    """The Kernel of a @triton.jit function, or of what compile_source gives."""
    if isinstance(kernel, Kernel):
        return kernel
    if is_jitted(kernel):
        return Kernel(of_python(kernel))
    if is_jitted(getattr(kernel, "fn", None)):
        raise KernelError(
            f"the kernel is wrapped by {type(kernel).__name__}; give the @triton.jit function "
            "itself (.fn) and the constants of one configuration"
        )
    raise KernelError(f"{kernel!r} is not a @triton.jit function")
