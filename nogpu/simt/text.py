"""Kernels from text alone, none of which is run as Python: how a grader runs untrusted code."""

import ast
import builtins
import functools
import math
import textwrap
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from nogpu.kernels.constants import NUMBERS, value_of
from nogpu.kernels.module import Module, imported, undefined
from nogpu.kernels.source import Source, text_elsewhere
from nogpu.simt import cuda, language
from nogpu.simt.kernel import Kernel, as_kernel
from nogpu.simt.names import CUDA_MODULES, MODULES, dtype_name
from nogpu.simt.program import Function

IMPORTED: dict[str, object] = {
    **dict.fromkeys(CUDA_MODULES, cuda),
    "math": math,
    "numpy": np,
    **{name: ModuleType(name) for name, module in MODULES.items() if module == "numba"},
}
PREDEFINED: dict[str, object] = {
    "cuda": cuda,
    "math": math,
    "np": np,
    "numpy": np,
    "numba": IMPORTED["numba"],
    **{name: getattr(builtins, name) for name in language.BUILTINS},
    **{name: np.dtype(name.rstrip("_")) for name in language.DTYPES},
}
HOLDS = "a kernel's cell holds functions, constants (NAME = number) and imports"


class _Text:
    """The functions and constants of a text."""

    def __init__(self, whole: Source, constants: Mapping[str, Any]) -> None:
        self.constants = dict(constants)
        self.module = Module(whole)
        self.known: dict[str, object] = {}  # what names of the text mean
        self.pending: set[str] = set()
        for node in whole.tree().body:
            if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
                whole.refuse(node, HOLDS)
        for name in language.RESERVED & self.module.bound.keys():
            self._check_reserved(name)

    def lookup(self, name: str) -> object:
        """What a name stands for; KeyError if it is not defined."""
        if name in self.constants:
            return self.constants[name]
        if name not in self.module.bound:
            return PREDEFINED[name]
        if name not in self.known:
            self.known[name] = self._meaning(name)
        return self.known[name]

    def _meaning(self, name: str) -> object:
        """What a name stands for that the text sets."""
        nodes = self.module.bound[name]
        imports = [meaning for node in nodes for key, meaning in imported(node) if key == name]
        if len(imports) == len(nodes):  # all of them mean the same: else it is reserved, or twice
            return self._imported(imports[0], nodes[0])
        node = self.module.statement(name)
        if isinstance(node, ast.FunctionDef):
            return self._function(node)
        value = self.module.assigned(name)
        if value is None or name in self.pending:
            self.module.whole.refuse(nodes[0], f"a kernel cannot use {name}; {HOLDS}")
        self.pending.add(name)
        meaning = value_of(value, self.module, self._other)
        self.pending.discard(name)
        return meaning

    def _function(self, node: ast.FunctionDef) -> Function:
        """A function whose decorators are the simulator's, if it has any."""
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            dotted = self.module.dotted(called)
            if dotted not in ("jit", "simt.jit", "nogpu.simt.jit", "cuda.jit") and (
                IMPORTED.get(dotted.removesuffix(".jit")) is not cuda
            ):
                self.module.whole.refuse(
                    node,
                    f"the decorator {ast.unparse(called)} is not known; a kernel has @cuda.jit",
                )
        source = Source(node.name, self.module.whole.text)
        return Function(node.name, node, source, self.lookup)

    def _imported(self, dotted: str, node: ast.AST) -> object:
        """What an import brings; KernelError if a kernel cannot use it."""
        first, _, name = dotted.rpartition(".")
        if dotted in IMPORTED:
            return IMPORTED[dotted]
        if dotted in NUMBERS:
            return NUMBERS[dotted]
        if MODULES.get(first) in ("numpy", "numba") and dtype_name(name):
            return np.dtype(dtype_name(name))
        if first == "math" and hasattr(math, name):
            return getattr(math, name)
        self.module.whole.refuse(
            node,
            f"{dotted} cannot be used in a kernel's cell; it has cuda, math, numpy and numba's "
            "dtypes",
        )

    def _other(self, node: ast.expr) -> tuple[Any] | None:
        """(value,) of a constant's name, another kernel's or a dtype; None for anything else."""
        if isinstance(node, ast.Name):
            return (self.lookup(node.id),) if self._is_known(node.id) else None
        if isinstance(node, ast.Call):
            return self._converted(node)
        first, _, name = self.module.dotted(node).rpartition(".")
        if MODULES.get(first) in ("numpy", "numba") and dtype_name(name):
            return (np.dtype(dtype_name(name)),)
        return None

    def _converted(self, node: ast.Call) -> tuple[Any] | None:
        """(number,) of float32(2) or np.int32(7); None for any other call."""
        (dtype,) = self._other(node.func) or (None,)
        if not isinstance(dtype, np.dtype) or len(node.args) != 1 or node.keywords:
            return None
        try:
            return (dtype.type(value_of(node.args[0], self.module, self._other)),)
        except (OverflowError, TypeError, ValueError):
            return None

    def _is_known(self, name: str) -> bool:
        return name in {*self.constants, *self.module.bound, *PREDEFINED}

    def _check_reserved(self, name: str) -> None:
        """KernelError unless imports give this name, and all give the same."""
        nodes = self.module.bound[name]
        for node in nodes:
            dotted = dict(imported(node)).get(name)
            if dotted is None or self._imported(dotted, node) is not self.lookup(name):
                self.module.whole.refuse(node, f"{name} is taken; choose another name")


def compile_source(source: str, name: str, constants: Mapping[str, Any] | None = None) -> Kernel:
    """The Kernel called name in a text of functions and constants, which is not run as Python.

    source: what a student's cell holds: functions (kernels and device functions), constants
    (NAME = a number, a dtype or a tuple of numbers), imports of numba, math and NumPy. constants:
    {name: number, dtype or array} that the text may use, besides cuda, math, np and the dtypes'
    names, which it may not redefine. What the kernel does not use may be any Python: it is never
    run.
    """
    whole = Source(name, textwrap.dedent(source))
    for reserved in language.RESERVED & (constants or {}).keys():
        raise ValueError(f"constants has {reserved}, a name that is taken")
    text = _Text(whole, constants or {})
    function = text.lookup(name) if name in text.module.bound else None
    if not isinstance(function, Function):
        raise undefined(name, text.module)
    _ = function.parameters  # refuses what is not in the kernel language, at once
    return Kernel(name, function)


def as_graded(thing: object) -> Kernel:
    """The Kernel of a simulator's or numba.cuda's kernel, as a grader takes it.

    In a notebook it is made from the text of the cells; elsewhere it is the kernel itself.
    """
    found = text_elsewhere(thing, getattr(thing, "py_func", None))
    return _compiled(*found) if found else as_kernel(thing)


@functools.lru_cache(maxsize=50)  # a kernel keeps its translations for the next launch
def _compiled(text: str, name: str) -> Kernel:
    return compile_source(text, name)
