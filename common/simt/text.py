"""Kernels from text alone, none of which is run as Python: how a grader runs untrusted code."""

import ast
import builtins
import functools
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from common.kernels.constants import value_of
from common.kernels.errors import KernelError
from common.kernels.source import Source
from common.simt import cuda, language
from common.simt.kernel import Kernel
from common.simt.program import Function


@dataclass
class Module:
    """The functions and constants of a text, none of it run as Python."""

    constants: dict[str, Any]
    functions: dict[str, Function] = field(default_factory=dict)

    def lookup(self, name: str) -> object:
        """What a name stands for; KeyError if it is not defined."""
        if name in self.functions:
            return self.functions[name]
        if name in self.constants:
            return self.constants[name]
        return PREDEFINED[name]


PREDEFINED: dict[str, object] = {
    "cuda": cuda,
    "math": math,
    "np": np,
    "numpy": np,
    **{name: getattr(builtins, name) for name in language.BUILTINS},
    **{name: np.dtype(name.rstrip("_")) for name in language.DTYPES},
}
IMPORTS = {"math", "numpy", "numba", "numba.cuda", "common.device", "common.simt", "common"}


def compile_source(source: str, name: str, constants: Mapping[str, Any] | None = None) -> Kernel:
    """The Kernel called name in a text of functions and constants, which is not run as Python.

    source: what a student's cell holds: functions (kernels and device functions), constants
    (NAME = a number, a dtype or a tuple of numbers), imports of numba, math and NumPy. constants:
    {name: number, dtype or array} that the text may use, besides cuda, math, np and the dtypes'
    names, which it may not redefine. Functions that the kernel does not call may be any Python:
    they are never run.
    """
    text = textwrap.dedent(source)
    whole = Source(name, text)
    module = Module(dict(constants or {}))
    for reserved in language.RESERVED & module.constants.keys():
        raise ValueError(f"constants has {reserved}, a name that is taken")
    for node in whole.tree().body:
        _take(node, module, whole)
    if name not in module.functions:
        raise KernelError(
            f"{name} is not defined; the text defines "
            f"{', '.join(module.functions) or 'no function'}"
        )
    function = module.functions[name]
    _ = function.parameters  # refuses what is not in the kernel language, at once
    return Kernel(name, function)


def _take(node: ast.stmt, module: Module, whole: Source) -> None:
    """Take one statement of a module into it."""
    if isinstance(node, ast.FunctionDef):
        _take_function(node, module, whole)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        _check_import(node, whole)
    elif (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
    ):
        _check_new_name(node, node.targets[0].id, module, whole)
        other = functools.partial(_other_constant, module=module)
        module.constants[node.targets[0].id] = value_of(node.value, whole, other)
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        whole.refuse(node, "a kernel's cell holds functions, constants (NAME = number) and imports")


def _take_function(node: ast.FunctionDef, module: Module, whole: Source) -> None:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called) not in ("cuda.jit", "simt.jit", "jit"):
            whole.refuse(
                node, f"the decorator {ast.unparse(called)} is not known; a kernel has @cuda.jit"
            )
    _check_new_name(node, node.name, module, whole)
    source = Source(node.name, whole.text)
    module.functions[node.name] = Function(node.name, node, source, module.lookup)


def _check_import(node: ast.Import | ast.ImportFrom, whole: Source) -> None:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
    for imported in names:
        if imported not in IMPORTS:
            whole.refuse(
                node,
                f"{imported} cannot be used in a kernel's cell; it has cuda, math, numpy and "
                "numba's dtypes",
            )
    for name in (alias.asname or alias.name for alias in node.names):
        if name not in language.RESERVED:
            whole.refuse(
                node,
                f"{name} cannot be imported here; cuda, math, np and the dtypes are already there",
            )


def _check_new_name(node: ast.stmt, name: str, module: Module, whole: Source) -> None:
    if name in language.RESERVED or name in module.constants:
        whole.refuse(node, f"{name} is taken; choose another name")
    if name.startswith("__"):
        whole.refuse(node, f"a name does not begin with two underscores, as {name} does")


def _other_constant(node: ast.expr, module: Module) -> tuple[Any] | None:
    """(value,) of a constant's name or a dtype; None for anything else."""
    if isinstance(node, ast.Name) and node.id in module.constants:
        return (module.constants[node.id],)
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in language.DTYPES and (
            isinstance(node, ast.Name) or ast.unparse(node.value) in ("np", "numpy", "numba")
        ):
            return (np.dtype(name.rstrip("_")),)
    return None
