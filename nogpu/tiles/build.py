"""From a checked Function to what Triton's interpreter runs.

A kernel is rewritten where Python means something else than Triton's compiler does: an assigned
number becomes a tl.tensor, the variable of a loop is one, what a loop changes keeps its type, and
`and`, `or` and `not` work on blocks. It sees the names in `runtime`, and no others.
"""

import ast
import functools
import itertools
from collections.abc import Iterable
from types import CodeType, TracebackType
from typing import Any

from nogpu.kernels.source import Source
from nogpu.tiles import triton_interpreter
from nogpu.tiles.constants import resolved
from nogpu.tiles.functions import KERNEL_FILE, Function
from nogpu.tiles.runtime import MAY_GROW_HUGE, Runtime

kernel_numbers = itertools.count()


class Built:
    """An interpreted kernel, and the Source of each of its functions by the name of its file."""

    def __init__(self, function: Function, given: Iterable[Function] = ()) -> None:
        """given: functions that the kernel is given as constants; `made` holds them by id."""
        module = triton_interpreter.interpreter()
        import triton.language as tl

        self.sources: dict[str, Source] = {}
        self.runtime = Runtime(tl, module.interpreter_semantic)
        made: dict[int, Any] = {}
        for part in [part for whole in (function, *given) for part in whole.closure()]:
            namespace = self.runtime.names()
            namespace |= {name: resolved(value, tl) for name, value in part.constants.items()}
            namespace |= {name: made[id(called)] for name, called in part.functions.items()}
            code = _compiled(part.source)
            self.sources[code.co_filename] = part.source
            exec(code, namespace)  # noqa: S102 - `language` has checked the tree
            compiled = namespace[part.name]
            made[id(part)] = module.InterpretedFunction(compiled)
            made[id(part)].rewritten_fn[compiled] = compiled  # so that Triton does not rewrite it
        self.made = made
        self.kernel = made[id(function)]

    def place(self, traceback: TracebackType | None) -> tuple[Source, int] | None:
        """(Source, line) of the innermost line of the kernel in a traceback, or None."""
        innermost = None
        while traceback is not None:
            source = self.sources.get(traceback.tb_frame.f_code.co_filename)
            if source:
                innermost = source, traceback.tb_lineno
            traceback = traceback.tb_next
        return innermost


@functools.lru_cache(maxsize=200)  # a check launches its kernel many times
def _compiled(source: Source) -> CodeType:
    """What defines the rewritten function, in a file of its own."""
    definition = Function(source).definition()
    tree = ast.fix_missing_locations(ast.Module([_Rewriter().visit(definition)], []))
    return compile(tree, f"{KERNEL_FILE}{next(kernel_numbers)}>", "exec")


class _Rewriter(ast.NodeTransformer):
    """Writes calls of the functions in `runtime` where Python's own meaning would be wrong."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for argument in node.args.args:
            argument.annotation = None
        node.returns = None
        self.loops = itertools.count()
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        # An unrolled loop's turns follow each other as text: types may change.
        unrolled = ast.unparse(node.iter).startswith("tl.static_range(")
        return self.generic_visit(node) if unrolled else self._keeping_types(node)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        return self._keeping_types(node)

    def _keeping_types(self, node: ast.For | ast.While) -> list[ast.stmt]:
        """The loop; after each turn of it, its variables must have the types they had before it."""
        names = sorted(
            {
                part.id
                for statement in node.body
                for part in ast.walk(statement)
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
        )
        types = f"__types{next(self.loops)}"
        self.generic_visit(node)
        variables = [_later(node, ast.Name(name, ast.Load())) for name in names]
        before = ast.Assign([ast.Name(types, ast.Store())], _call(node, "__types", *variables))
        turn = ast.Expr(_call(node, "__turn"))
        texts = ast.Tuple([ast.Constant(name) for name in names], ast.Load())
        old_types = ast.Name(types, ast.Load())
        after = ast.Expr(_call(node, "__check_types", texts, old_types, *variables))
        node.body = [ast.copy_location(turn, node), *node.body, ast.copy_location(after, node)]
        return [ast.copy_location(before, node), node]

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        node.value = _call(node, "__value", self.visit(node.value))
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        if node.value:
            node.value = _call(node, "__limited", self.visit(node.value))
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        left = ast.copy_location(ast.Name(ast.unparse(node.target), ast.Load()), node)
        value = ast.copy_location(ast.BinOp(left, node.op, node.value), node)
        return self.visit(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        name = "__and" if isinstance(node.op, ast.And) else "__or"
        first, *others = (self.visit(value) for value in node.values)
        for other in others:
            first = _call(node, name, first, _later(node, other))
        return first

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = type(node.op).__name__
        return _call(node, f"__{name}", node.left, node.right) if name in MAY_GROW_HUGE else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call(node, "__not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        name = {"tl.range": "range", "tl.static_range": "__static_range"}.get(
            ast.unparse(node.func) if isinstance(node.func, ast.Attribute) else ""
        )
        if name:
            node.func = ast.copy_location(ast.Name(name, ast.Load()), node)
        return node


NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _later(node: ast.AST, expression: ast.expr) -> ast.Lambda:
    """A lambda that computes the expression when it is called."""
    return ast.copy_location(ast.Lambda(NO_ARGUMENTS, expression), node)


def _call(node: ast.AST, name: str, *arguments: ast.expr) -> ast.Call:
    function = ast.copy_location(ast.Name(name, ast.Load()), node)
    return ast.copy_location(ast.Call(function, list(arguments), []), node)
