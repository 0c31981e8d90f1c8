"""Which names a student's function uses, read from the text of its cells: nothing is executed.

A student's process could say anything about itself.
"""

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator

from common import slices

HIDDEN = "."  # stands for what statements put into the attributes of objects; it is no name
SETTERS = {"setattr", "__setattr__", "__dict__", "vars", "modules"}
MAKERS = {"namedtuple", "NamedTuple", "make_dataclass"}  # functions that make a class from names


@functools.lru_cache(maxsize=100)  # a check that is replayed asks again
def names_used(texts: tuple[str, ...], name: str) -> frozenset[str]:
    """The names that a function reads, itself or in what it uses of these texts.

    They are names of globals that the texts do not set, of attributes, and of what is imported.
    Attributes that the texts themselves name, as fields of a class do, are left out. What a
    statement hides in another object's attribute counts as used: any function may find it there.
    """
    statements: dict[str, list[slices.Statement]] = defaultdict(list)
    for text in texts:
        for statement in slices.parsed(text):
            for each in (HIDDEN, *statement.sets) if _hides(statement.node) else statement.sets:
                statements[each].append(statement)
    used: set[str] = set()
    attributes: set[str] = set()
    own: set[str] = set()
    todo, known = [name, HIDDEN], {name}
    while todo:
        asked = todo.pop()
        for statement in statements.get(asked, ()):
            if isinstance(statement.node, slices.IMPORTS):
                used |= set(_imported(statement.node, asked))
                continue
            read = statement.reads | statement.reads_later
            used |= read.difference(statements)
            todo += read - known
            known |= read
            for part in ast.walk(statement.node):
                if isinstance(part, slices.IMPORTS):
                    used |= set(_imported(part))
                elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load):
                    attributes.add(part.attr)
                elif isinstance(part, ast.MatchClass):
                    attributes |= set(part.kwd_attrs)
                own |= set(_given(part))
    return frozenset(used | attributes - own)


def _hides(node: ast.stmt) -> bool:
    """Whether a statement outside of functions and classes may set an attribute of an object."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, *slices.IMPORTS)):
        return False
    return any(
        isinstance(part, ast.Attribute)
        and not isinstance(part.ctx, ast.Load)
        or getattr(part, "id", getattr(part, "attr", "")) in SETTERS
        for part in ast.walk(node)
    )


def _imported(node: ast.Import | ast.ImportFrom, name: str | None = None) -> Iterator[str]:
    """What a statement imports, with the packages it comes from. name: only under this name."""
    for alias in node.names:
        if name in (None, slices.STAR, alias.asname or alias.name.split(".")[0]):
            yield from alias.name.split(".")
            yield from (getattr(node, "module", None) or "").split(".")


def _given(node: ast.AST) -> Iterator[str]:
    """Names that a piece of text gives to attributes: in a class, by assignment, by keyword."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.Call):
        yield from (keyword.arg for keyword in node.keywords if keyword.arg)
        if getattr(node.func, "id", getattr(node.func, "attr", "")) in MAKERS:
            texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
            yield from (name for text in texts for name in re.findall(r"\w+", str(text)))
    elif isinstance(node, ast.ClassDef):
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield statement.name
            targets = getattr(statement, "targets", [getattr(statement, "target", None)])
            yield from (target.id for target in targets if isinstance(target, ast.Name))
