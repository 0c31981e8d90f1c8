"""The code of our drivers, in which builtins are Python's own, whatever the student calls so."""

import ast
import builtins
import functools
from types import CodeType

from nogpu.kernels import linecache_text

BUILTINS = frozenset(dir(builtins))
OWN_BUILTINS = "__course_builtins__"  # the name of their module, in the namespace of a worker


@functools.cache
def compiled(source: str, filename: str, hidden: frozenset[str]) -> CodeType:
    """A driver's code. hidden: the builtins whose names the student has given to something else.

    The student's functions share the driver's namespace, and may rely on what they named so.
    """
    linecache_text.remember(filename, source)
    if not hidden:
        return compile(source, filename, "exec")
    tree = ast.parse(source)
    if names := hidden - _bound(tree):
        tree = _Unhidden(names).visit(tree)
    return compile(tree, filename, "exec")


def _bound(tree: ast.AST) -> set[str]:
    """The names to which a text itself gives a meaning, at any place."""
    bound = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
    return bound


class _Unhidden(ast.NodeTransformer):
    """Reads builtins of these names from their module."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names:
            return node
        module = ast.copy_location(ast.Name(OWN_BUILTINS, ast.Load()), node)
        return ast.copy_location(ast.Attribute(module, node.id, ast.Load()), node)
