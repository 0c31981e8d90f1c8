"""Which names a student's function uses, read from the text of its cells: nothing is executed.

A student's process could say anything about itself.
"""

import ast
import functools
from collections.abc import Iterator

from common import slices


@functools.lru_cache(maxsize=100)  # a check that is replayed asks again
def names_used(texts: tuple[str, ...], name: str) -> frozenset[str]:
    """The names in the statements that set a name, and in those that set what these read."""
    statements: dict[str, list[ast.stmt]] = {}
    for text in texts:
        for statement in slices.parsed(text):
            for each in statement.sets:
                statements.setdefault(each, []).append(statement.node)
    used: set[str] = set()
    todo, known = [name], {name}
    while todo:
        for node in statements.get(todo.pop(), ()):
            read = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            used |= read | set(_others(node))
            todo += read - known
            known |= read
    return frozenset(used)


def _others(node: ast.stmt) -> Iterator[str]:
    """Names of attributes, and of what is imported."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.alias):
            yield from part.name.split(".")
        elif isinstance(part, ast.ImportFrom):
            yield from (part.module or "").split(".")
