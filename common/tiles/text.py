"""Kernels from text alone, as a grader takes them: nothing of the text is run as Python."""

import ast
import textwrap
from typing import Any, Never, TypeGuard

from common.kernels.constants import value_of
from common.kernels.errors import KernelError
from common.kernels.source import Source
from common.tiles.constants import Constant, Dtype, plain
from common.tiles.dtypes import TL_NAMES
from common.tiles.functions import NO_CONSTANT, Callee, Function, Resolver, undefined_name

JIT = (["triton.jit"], ["jit"], ["triton.jit()"])
NOT_FINITE = {f"float('{name}')": float(name) for name in ("inf", "-inf", "nan")}


def of_text(text: str, name: str, constants: dict[str, Any] | None) -> Function:
    """The Function called name in a text. constants: see tiles.compile_source."""
    return _Text(text, name, constants or {}).function(name)


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
        self.constants = {given: plain(given, value) for given, value in constants.items()}
        self.resolver = Resolver(self.look_up)
        self.bound: dict[str, list[ast.stmt]] = {}
        for node in self.whole.tree().body:
            for bound in _names_bound(node):
                self.bound.setdefault(bound, []).append(node)

    def function(self, name: str) -> Function:
        functions = [
            bound for bound, nodes in self.bound.items() if isinstance(nodes[-1], ast.FunctionDef)
        ]
        callee = self.look_up(name, self.whole, True) if name in functions else None
        if not isinstance(callee, Callee):
            raise KernelError(
                f"{name} is not defined; the text defines {', '.join(functions) or 'no function'}"
            )
        return self.resolver.function(callee.source)

    def look_up(self, name: str, source: Source, called: bool) -> Callee | Constant:
        """What a name stands for in the function that uses it."""
        if name not in self.bound:
            if name in self.constants:
                return self.constants[name]
            raise undefined_name(name, source)
        node = self.bound[name][-1]
        if len(self.bound[name]) > 1:
            self.whole.refuse(
                node, f"{name} is defined twice; a kernel can use only what is defined once"
            )
        if isinstance(node, ast.FunctionDef):
            return Callee(self.resolver, _decorated(node, self.whole))
        return self._constant(name, node, source)

    def _constant(self, name: str, node: ast.stmt, source: Source) -> Constant:
        """The value of `name = tl.constexpr(...)`, or of another name for a dtype."""
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            value = node.value
            if _is_constexpr(value):
                return value_of(
                    value.args[0], self.whole, lambda part: self._other_value(part, source)
                )
            if dtype := _dtype(value):
                return dtype
            if isinstance(value, (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple)):
                reason = NO_CONSTANT.format(
                    function=source.name, name=name, value=ast.unparse(value)
                )
                self.whole.refuse(node, reason)
        _refuse_constant(name, node, source, self.whole)

    def _other_value(self, node: ast.expr, source: Source) -> tuple[Constant] | None:
        """(value,) of what is a constant for Triton alone; None for anything else."""
        if isinstance(node, ast.Constant) and node.value is None:
            return (None,)
        if dtype := _dtype(node):
            return (dtype,)
        if isinstance(node, ast.Name):
            value = self.look_up(node.id, source, False)
            if isinstance(value, Callee):
                self.whole.refuse(node, f"{node.id} is a function, and not a constant")
            return (value,)
        if ast.unparse(node) in NOT_FINITE:
            return (NOT_FINITE[ast.unparse(node)],)
        return None


def _refuse_constant(name: str, node: ast.stmt, source: Source, whole: Source) -> Never:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        whole.refuse(
            node,
            f"{source.name} uses {name}, but of the imports a kernel can use only tl: "
            "tl.exp(x), tl.sqrt(x); what Python computes comes as NAME = tl.constexpr(a number)",
        )
    if isinstance(node, ast.AnnAssign):
        whole.refuse(
            node, f"Triton does not take an annotated constant: write {name} = tl.constexpr(...)"
        )
    whole.refuse(
        node,
        f"{name} is not a constant that a kernel can use; one is {name} = tl.constexpr(a number), "
        "or a dtype",
    )


def _names_bound(node: ast.stmt) -> list[str]:
    """The names that a statement of a module binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return [
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del))
    ]


def _decorated(node: ast.FunctionDef, whole: Source) -> Source:
    """The Source of a function that has the decorator @triton.jit and no other."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    if decorators not in JIT:
        which = f"the decorator {decorators[0]}" if decorators else "no decorator"
        whole.refuse(node, f"{node.name} has {which}; a kernel has no decorator but @triton.jit")
    return Source(node.name, whole.text)


def _is_constexpr(node: ast.expr) -> TypeGuard[ast.Call]:
    """Whether this is tl.constexpr(...) of one argument."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "tl.constexpr"
        and len(node.args) == 1
    )


def _dtype(node: ast.expr) -> Dtype | None:
    """The dtype that an expression names, as tl.float32 does."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tl":
        return Dtype(node.attr) if node.attr in TL_NAMES else None
    return None
