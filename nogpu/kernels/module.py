"""What the statements of a text bind: functions, constants, imports. None of it is run."""

import ast
from collections.abc import Iterator

from nogpu.kernels.errors import KernelError
from nogpu.kernels.source import Source

SHORT = {"np": "numpy", "nb": "numba"}  # of modules that a text may use without an import


class Module:
    """The statements at the top of a text, by the names that they bind."""

    def __init__(self, whole: Source) -> None:
        self.whole = whole
        self.bound: dict[str, list[ast.stmt]] = {}
        for node in whole.tree().body:
            for name in _names_bound(node):
                nodes = self.bound.setdefault(name, [])
                if all(ast.unparse(node) != ast.unparse(other) for other in nodes):
                    nodes.append(node)  # a cell that was executed twice is one

    def statement(self, name: str) -> ast.stmt | None:
        """The statement that binds a name, None if none does; KernelError if several do."""
        nodes = self.bound.get(name, [])
        if len(nodes) > 1:
            self.whole.refuse(
                nodes[-1],
                f"{name} is set by more than one statement; a kernel can use only what a single "
                f"statement sets, as {name} = a number",
            )
        return nodes[0] if nodes else None

    def assigned(self, name: str) -> ast.expr | None:
        """The expression that the name stands for: b of `a = b`. None if it is set otherwise."""
        node = self.statement(name)
        if isinstance(node, ast.AnnAssign):
            return node.value
        if not isinstance(node, ast.Assign):
            return None
        for target in node.targets:
            if isinstance(target, ast.Name):
                return node.value
            value = node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                names = [part.id if isinstance(part, ast.Name) else "" for part in target.elts]
                if name in names and len(names) == len(value.elts):
                    return value.elts[names.index(name)]
        return None

    def dotted(self, node: ast.AST) -> str:
        """What a.b means by the text's imports: math.sqrt of m.sqrt after `import math as m`.

        "" if it is another expression, or if the text sets the name in another way.
        """
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return base and f"{base}.{node.attr}"
        if not isinstance(node, ast.Name):
            return ""
        if node.id not in self.bound:
            return SHORT.get(node.id, node.id)
        statement = self.statement(node.id)
        return dict(imported(statement)).get(node.id, "") if statement else ""


def imported(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """(name, what it means with its module) of the names that an import binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (first, first)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{'.' * node.level}{node.module}.{alias.name}"


def undefined(name: str, module: Module) -> KernelError:
    """The error for a function that a text does not define."""
    functions = [
        bound for bound, nodes in module.bound.items() if isinstance(nodes[-1], ast.FunctionDef)
    ]
    return KernelError(
        f"{name} is not defined; the text defines {', '.join(functions) or 'no function'}"
    )


def _names_bound(node: ast.stmt) -> list[str]:
    """The names that a statement binds, without those inside of functions and classes."""
    names: list[str] = []
    todo: list[ast.AST] = [node]  # not recursive: an expression may be nested deeply
    while todo:
        part = todo.pop()
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(part.name)
            continue
        if isinstance(part, (ast.Import, ast.ImportFrom)):
            names += [name for name, _ in imported(part)]
        elif isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del)):
            names.append(part.id)
        todo += ast.iter_child_nodes(part)
    return list(dict.fromkeys(names))
