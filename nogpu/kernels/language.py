"""The part of Python that both kernel languages allow, and the sentences by which both refuse.

Each language extends ALLOWED and refused(...) by its own.
"""

import ast
from collections.abc import Sequence

from nogpu.kernels.source import Source

MAX_NODES, MAX_DEPTH, MAX_NESTED = 20_000, 60, 12

ALLOWED: tuple[type[ast.AST], ...] = (
    ast.FunctionDef,
    ast.arguments,
    ast.arg,
    ast.Return,
    ast.Assign,
    ast.AugAssign,
    ast.For,
    ast.While,
    ast.If,
    ast.Expr,
    ast.Pass,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.IfExp,
    ast.Compare,
    ast.Call,
    ast.keyword,
    ast.Constant,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Name,
    ast.Tuple,
    ast.Load,
    ast.Store,
    ast.And,
    ast.Or,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
)


def refused(values: str, results: str, function: str) -> dict[type[ast.AST], str]:
    """What completes "a kernel cannot contain ..." for each refused kind of node.

    values: what a kernel computes with. results: by what it returns them. function: how to write
    a function that a kernel calls.
    """
    return {
        ast.Dict: f"a dictionary; a kernel has {values}",
        ast.Set: f"a set; a kernel has {values}",
        ast.ListComp: "a comprehension; write a for loop over range",
        ast.SetComp: "a comprehension; write a for loop over range",
        ast.DictComp: "a comprehension; write a for loop over range",
        ast.GeneratorExp: "a generator; write a for loop over range",
        ast.JoinedStr: f"an f-string; a kernel has {values}",
        ast.Lambda: f"a lambda; write {function}",
        ast.NamedExpr: "the walrus :=; assign in a line of its own",
        ast.Import: "an import; import before the kernel",
        ast.ImportFrom: "an import; import before the kernel",
        ast.Try: "try; a GPU has no exceptions",
        ast.Raise: "raise; a GPU has no exceptions",
        ast.With: "with; a kernel has if, for and while",
        ast.ClassDef: f"a class; a kernel has {values}",
        ast.AsyncFunctionDef: "async; a kernel is a plain function",
        ast.Await: "await; a kernel is a plain function",
        ast.Yield: f"yield; a kernel writes its results {results}",
        ast.YieldFrom: f"yield; a kernel writes its results {results}",
        ast.Global: f"global; a kernel writes its results {results}",
        ast.Nonlocal: f"nonlocal; a kernel writes its results {results}",
        ast.Delete: "del; leave the line out: a kernel's variables take no memory that del frees",
        ast.Starred: "a starred expression; write the items out",
        ast.Match: "match; write if and elif",
        ast.In: "in; compare with ==",
        ast.NotIn: "not in; compare with !=",
    }


def check_written(function: ast.FunctionDef) -> None:
    """Raise NotImplementedError if the function still raises it, as an unsolved exercise does."""
    for statement in function.body:
        if (
            isinstance(statement, ast.Raise)
            and statement.exc
            and "NotImplementedError" in ast.unparse(statement.exc)
        ):
            raise NotImplementedError(f"{function.name} is not written yet")


def nodes_of(statements: Sequence[ast.stmt], source: Source) -> list[tuple[ast.AST, ast.AST]]:
    """(node, node that has its line) of all that these statements contain; KernelError if too much.

    Not recursive: a deeply nested expression must be refused, and not overflow the stack here.
    """
    nodes: list[tuple[ast.AST, ast.AST]] = []
    pending: list[tuple[ast.AST, ast.AST, int, int]] = [
        (statement, statement, 1, 0) for statement in statements
    ]
    while pending:
        node, line, depth, nested = pending.pop()
        line = node if hasattr(node, "lineno") else line
        nodes.append((node, line))
        nested += isinstance(node, (ast.For, ast.While, ast.If))
        if depth > MAX_DEPTH or nested > MAX_NESTED or len(nodes) > MAX_NODES:
            source.refuse(
                line,
                f"this is nested too deeply or too long (at most {MAX_NESTED} blocks, {MAX_DEPTH} "
                f"levels of an expression, {MAX_NODES:,} parts)",
            )
        pending += [
            (child, line, depth + 1, nested - is_elif(child, node))
            for child in ast.iter_child_nodes(node)
        ]
    return nodes


def is_elif(node: ast.AST, parent: ast.AST) -> bool:
    """Whether a node is an elif of its parent: deeper in the tree, but not in the text."""
    return isinstance(node, ast.If) and isinstance(parent, ast.If) and parent.orelse == [node]


def is_text(statement: ast.AST) -> bool:
    """Whether a statement is only a text: a docstring."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def check_underscores(name: str, node: ast.AST, source: Source) -> None:
    """KernelError for a name such as __import__."""
    if name.startswith("__"):
        source.refuse(
            node, f"a name in a kernel does not begin with two underscores, as {name} does"
        )


def check_bits(value: object, node: ast.AST, source: Source) -> None:
    """KernelError for an integer that does not fit into 64 bits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        source.refuse(node, "an integer has 64 bits at most")
