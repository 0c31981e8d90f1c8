"""A check's variables beside the student's: in the notebook, both are globals of one namespace.

A check may say `size = 3` where the student has a helper `size`, which the answer calls.
"""

import ast
from collections.abc import Iterable, Set

from common.notebook import slices

OWN = "_check_{}"


class Apart(ast.NodeTransformer):
    """IPython's transformer of cells: gives a check's variables other names than the student's."""

    def __init__(self) -> None:
        self.names: Set[str] = frozenset()  # to change in the cell that runs now
        self.changed: set[str] = set()  # so far: a check may read what one above it has set

    def begin(self, check: str, theirs: Iterable[str]) -> None:
        """Before a check runs. check: its text. theirs: those of the student's cells."""
        nodes = [statement.node for statement in slices.parsed(check)]
        sets = {name for statement in slices.parsed(check) for name in statement.sets}
        imported = {
            (alias.asname or alias.name).partition(".")[0]
            for node in nodes
            for part in ast.walk(node)
            if isinstance(part, slices.IMPORTS)
            for alias in part.names
        }
        own = {name for text in theirs for s in slices.parsed(text) for name in s.sets}
        self.changed |= (sets - imported) & own
        self.names = self.changed - imported

    def end(self) -> None:
        """After it: other cells stay as they are."""
        self.names = frozenset()

    def visit(self, node: ast.AST) -> ast.AST:
        if not self.names:
            return node
        if not isinstance(node, (ast.alias, ast.keyword)):
            for field in ("id", "arg", "name"):
                if (name := getattr(node, field, None)) in self.names:
                    setattr(node, field, OWN.format(name))
        return self.generic_visit(node)
