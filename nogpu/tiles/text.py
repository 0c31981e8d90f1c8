"""Kernels from text alone, as a grader takes them: nothing of the text is run as Python."""

import ast
import textwrap
from typing import Any, Never

from nogpu.kernels.constants import FUNCTIONS, value_of
from nogpu.kernels.errors import KernelError
from nogpu.kernels.module import Module, undefined
from nogpu.kernels.source import Source
from nogpu.tiles.constants import Constant, Dtype, plain
from nogpu.tiles.dtypes import TL_NAMES
from nogpu.tiles.functions import NO_CONSTANT, Callee, Function, Resolver, undefined_name

JIT = (["triton.jit"], ["jit"], ["triton.jit()"])
CONSTEXPR = ("tl.constexpr", "triton.language.constexpr", "constexpr")


def of_text(text: str, name: str, constants: dict[str, Any] | None) -> Function:
    """The Function called name in a text. constants: see tiles.compile_source."""
    try:
        return _Text(text, name, constants or {}).function(name)
    except RecursionError:
        raise KernelError(f"{name}: this is nested too deeply") from None


def of_last(text: str) -> Function:
    """The Function that a text of @triton.jit functions defines last."""
    whole = Source("a function given as text", textwrap.dedent(text))
    names = [node.name for node in whole.tree().body if isinstance(node, ast.FunctionDef)]
    if not names:
        raise KernelError(f"a function given as text defines none: {text:.60}")
    return of_text(text, names[-1], None)


class _Text:
    """The functions and constants of a text."""

    def __init__(self, text: str, name: str, constants: dict[str, Any]) -> None:
        self.whole = Source(name, textwrap.dedent(text))
        self.module = Module(self.whole)
        self.constants = {given: plain(given, value) for given, value in constants.items()}
        self.resolver = Resolver(self.look_up)

    def function(self, name: str) -> Function:
        is_bound = name in self.module.bound
        callee = self.look_up(name, self.whole, True) if is_bound else None
        if not isinstance(callee, Callee):
            raise undefined(name, self.module)
        return self.resolver.function(callee.source)

    def look_up(self, name: str, source: Source, called: bool) -> Callee | Constant:
        """What a name stands for in the function that uses it."""
        node = self.module.statement(name)
        if node is None:
            if name in self.constants:
                return self.constants[name]
            raise undefined_name(name, source)
        if isinstance(node, ast.FunctionDef):
            return Callee(self.resolver, _decorated(node, self.whole))
        value = self.module.assigned(name)
        if isinstance(value, ast.Name) and value.id in self.module.bound:
            return self.look_up(value.id, source, called)
        return self._constant(name, node, value, source)

    def _constant(
        self, name: str, node: ast.stmt, value: ast.expr | None, source: Source
    ) -> Constant:
        """The value of `name = tl.constexpr(...)`, or of another name for a dtype."""
        if isinstance(node, ast.AnnAssign):
            self.whole.refuse(
                node,
                f"Triton does not take an annotated constant: write {name} = tl.constexpr(...)",
            )
        if value is not None:
            if isinstance(value, ast.Call) and self._is_constexpr(value):
                return value_of(
                    value.args[0], self.module, lambda part: self._other_value(part, source)
                )
            if dtype := _dtype(value):
                return dtype
            is_computed = (
                isinstance(value, ast.Call) and self.module.dotted(value.func) in FUNCTIONS
            )
            if is_computed or isinstance(value, (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple)):
                reason = NO_CONSTANT.format(
                    function=source.name, name=name, value=ast.unparse(value)
                )
                self.whole.refuse(node, reason)
        _refuse_constant(name, node, source, self.whole)

    def _is_constexpr(self, node: ast.Call) -> bool:
        """Whether this is tl.constexpr(...) of one argument."""
        return self.module.dotted(node.func) in CONSTEXPR and len(node.args) == 1

    def _other_value(self, node: ast.expr, source: Source) -> tuple[Constant] | None:
        """(value,) of what is a constant for Triton alone; None for anything else."""
        if isinstance(node, ast.Constant) and node.value is None:
            return (None,)
        if dtype := _dtype(node):
            return (dtype,)
        if not isinstance(node, ast.Name):
            return None
        value = self.module.assigned(node.id)
        if value is None:
            known = node.id in self.constants or not self.module.bound.get(node.id)
            thing = self.look_up(node.id, source, False) if known else None
            return None if thing is None or isinstance(thing, Callee) else (thing,)
        if isinstance(value, ast.Call) and self._is_constexpr(value):
            value = value.args[0]
        return (value_of(value, self.module, lambda part: self._other_value(part, source)),)


def _refuse_constant(name: str, node: ast.stmt, source: Source, whole: Source) -> Never:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        whole.refuse(
            node,
            f"{source.name} uses {name}, but of the imports a kernel can use only tl: "
            "tl.exp(x), tl.sqrt(x); what Python computes comes as NAME = tl.constexpr(a number)",
        )
    whole.refuse(
        node,
        f"{name} is not a constant that a kernel can use; one is {name} = tl.constexpr(a number), "
        "or a dtype",
    )


def _decorated(node: ast.FunctionDef, whole: Source) -> Source:
    """The Source of a function that has the decorator @triton.jit and no other."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    if decorators not in JIT:
        which = f"the decorator {decorators[0]}" if decorators else "no decorator"
        whole.refuse(node, f"{node.name} has {which}; a kernel has no decorator but @triton.jit")
    return Source(node.name, whole.text)


def _dtype(node: ast.expr) -> Dtype | None:
    """The dtype that an expression names, as tl.float32 does."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tl":
        return Dtype(node.attr) if node.attr in TL_NAMES else None
    return None
