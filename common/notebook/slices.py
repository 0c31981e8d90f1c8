"""Program slices of a notebook: the statements of its cells that a piece of code depends on.

A cell may print, plot, write files and define a helper. A slice of it holds the helper alone. What
a statement sets and reads is read from its text (Python's ast and symtable); nothing is executed.
"""

import ast
import builtins
import functools
import re
import symtable
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__builtins__"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.With, ast.Match)
IN_PLACE = {  # library functions that change what they are given
    *("shuffle", "heapify", "heappush", "heappop", "heapreplace", "insort", "insort_left"),
    *("insort_right", "setattr", "delattr", "fill_diagonal", "put", "copyto", "place", "putmask"),
    "next",
}
SETTINGS = {  # library functions that change how others work
    *("set_default_dtype", "setrecursionlimit", "seterr", "set_num_threads", "manual_seed"),
}
NONE: frozenset[int] = frozenset()
NO_NAMES: frozenset[str] = frozenset()
MOST = 10_000  # statements of a notebook that are looked at
ORDER = {"iter": 0, "test": 0, "items": 0, "subject": 0, "target": 0.5}  # before other parts
IMPORTS = (ast.Import, ast.ImportFrom)
AT_ONCE = {"listcomp", "setcomp", "dictcomp", "genexpr"}  # scopes that are no functions to call
STAR = "*"  # what `from module import *` sets: nobody knows without importing it


@dataclass(frozen=True)
class Effects:
    """What calling a function does to others than its own variables."""

    sets: frozenset[str]  # of global variables
    changes: frozenset[str]
    changes_arguments: bool


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement at the top level of a cell. Its names are those of global variables."""

    node: ast.stmt
    sets: frozenset[str]
    changes: frozenset[str]  # what it may change in place
    reads: frozenset[str]
    reads_later: frozenset[str]  # when a function in it is called
    always: bool  # whether it sets its names whatever happens
    effects: Mapping[str, Effects] = field(default_factory=dict)  # of the functions in it
    calls: tuple[tuple[str, frozenset[str]], ...] = ()  # (function, names given to it), at once
    registers: frozenset[str] = NO_NAMES  # the objects whose methods decorate what it defines

    @functools.cached_property
    def patches(self) -> frozenset[str]:
        """The names of which it sets an attribute or an item: torch.x = 1, setattr(C, "x", 1).

        Not what functions do when they are called.
        """
        return frozenset(_patched(self.node))

    @functools.cached_property
    def text(self) -> str:
        """The statement in Python's own style."""
        return ast.unparse(self.node)


@functools.lru_cache(maxsize=2000)
def statements(text: str) -> tuple[Statement, ...]:
    """The statements of a cell; SyntaxError, ValueError, RecursionError, MemoryError as ast's."""
    return tuple(map(_statement, ast.parse(text).body[:MOST]))


def _statement(node: ast.stmt) -> Statement:
    table = symtable.symtable(ast.unparse(_without_await(node)), "<cell>", "exec")
    sets = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    sets |= {
        n.target.id for n in at_once(node) if isinstance(n, ast.NamedExpr)
    }  # in comprehensions
    if any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(node)):
        sets.add(STAR)
    reads, later = _read(table)
    now = list(at_once(node))
    if isinstance(node, COMPOUND):
        reads = _read_unset([node], set())
    changes = {name for n in now for name in _changed(n)}
    calls = [call for n in now for call in _calls(n)]
    changes |= {name for function, given in calls if function in IN_PLACE for name in given}
    return Statement(
        node=node,
        sets=frozenset(sets),
        changes=frozenset(changes),
        reads=frozenset(reads | _grown(node) | changes - sets),
        reads_later=frozenset(later),
        always=not isinstance(node, COMPOUND),
        effects={n.name: _effects(n) for n in ast.walk(node) if isinstance(n, FUNCTIONS[:2])},
        calls=tuple(calls),
        registers=frozenset(_registers(node)),
    )


def _read(table: symtable.SymbolTable) -> tuple[set[str], set[str]]:
    """The global names that a scope and those in it read: (at once, when a function is called)."""
    is_module = table.get_type() == "module"
    now = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced()
        and (is_module or symbol.is_global())
        or symbol.is_declared_global()  # x += 1 reads it, which is not noted
    }
    later: set[str] = set()
    for child in table.get_children():
        child_now, child_later = _read(child)
        later |= child_later
        if child.get_type() == "function" and child.get_name() not in AT_ONCE:
            later |= child_now
        else:
            now |= child_now
    return now, later


def _read_unset(nodes: Iterable[ast.AST], is_set: set[str]) -> set[str]:
    """The names that statements read before they set them. is_set: grows by what they set."""
    unset: set[str] = set()
    for node in nodes:
        if not isinstance(node, COMPOUND):
            unset |= _unset_here(node, is_set)
            continue
        for _, part in sorted(ast.iter_fields(node), key=lambda item: ORDER.get(item[0], 1)):
            parts = part if isinstance(part, list) else [part]
            unset |= _read_unset([n for n in parts if isinstance(n, ast.AST)], is_set)
    return unset


def _unset_here(node: ast.AST, is_set: set[str]) -> set[str]:
    """The same of a simple statement, an expression, or a part of a compound statement."""
    if isinstance(node, (ast.ExceptHandler, ast.withitem, ast.match_case)):
        is_set |= {part for part in (getattr(node, "name", None),) if part}
        return _read_unset(ast.iter_child_nodes(node), is_set)
    if isinstance(node, ast.stmt):
        statement = _statement(node)
        reads, sets = statement.reads, statement.sets
    else:
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        patterns = (getattr(n, key, None) for n in ast.walk(node) for key in ("name", "rest"))
        sets = {n.id for n in names if isinstance(n.ctx, ast.Store)} | set(filter(None, patterns))
        reads = {n.id for n in names if isinstance(n.ctx, ast.Load)} - sets
    unset = reads - is_set
    is_set |= sets
    return set(unset)


def _grown(node: ast.AST) -> set[str]:
    """What x += 1 reads."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


class _NoAwait(ast.NodeTransformer):
    """Makes an await at the top level, which notebooks allow, plain: symtable refuses it."""

    def visit_Await(self, node: ast.Await) -> ast.expr:
        return self.visit(node.value)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self.generic_visit(ast.For(**dict(ast.iter_fields(node))))

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return self.generic_visit(ast.With(**dict(ast.iter_fields(node))))

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.is_async = 0
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node


def _without_await(node: ast.stmt) -> ast.Module:
    if not any(isinstance(n, ast.Await) or "Async" in type(n).__name__ for n in ast.walk(node)):
        return ast.Module([node], [])
    copied = ast.parse(ast.unparse(node))
    return ast.fix_missing_locations(_NoAwait().visit(copied))


def at_once(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are executed with a statement: all but the bodies of functions."""
    yield node
    inner = ast.iter_child_nodes(node)
    if isinstance(node, FUNCTIONS[:2]):
        inner = iter([*node.decorator_list, node.args])
    elif isinstance(node, ast.Lambda):
        inner = iter([node.args])
    for child in inner:
        yield from at_once(child)


def _changed(node: ast.AST) -> Iterator[str]:
    """The names whose objects a node changes: x[i] = 1, x.y += 1, del x[i], x.append(1)."""
    if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
        yield from _root(node)
    elif isinstance(node, ast.Expr):
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            yield from _root(call.func)


def _patched(node: ast.stmt) -> Iterator[str]:
    for part in at_once(node):
        if isinstance(part, (ast.Subscript, ast.Attribute)) and not isinstance(part.ctx, ast.Load):
            yield from _root(part)
        elif isinstance(part, ast.Call) and _last(part.func) in ("setattr", "delattr"):
            for argument in part.args[:1]:
                yield from _root(argument)


def _root(node: ast.AST) -> Iterator[str]:
    """The variable that x[1].y[2] begins with."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _effects(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Effects:
    inner = [n for part in function.body for n in ast.walk(part)]
    shared = {name for n in inner if isinstance(n, ast.Global) for name in n.names}
    changed = {name for n in inner for name in _changed(n)}
    parameters = {n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)}
    own = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - shared
    changes = frozenset(changed - parameters - own)
    return Effects(frozenset(shared), changes, bool(changed & parameters))


def _calls(node: ast.AST) -> Iterator[tuple[str, frozenset[str]]]:
    """(function, the variables it is given) of the functions that a node calls."""
    if isinstance(node, ast.Call):
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        names = frozenset(part.id for part in given if isinstance(part, ast.Name))
        yield _last(node.func), names
    elif isinstance(node, (*FUNCTIONS[:2], ast.ClassDef)):
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            yield _last(called), frozenset()


def _registers(node: ast.AST) -> Iterator[str]:
    """The variables that the decorators of a function or class begin with: x of @x.f(...)."""
    for decorator in getattr(node, "decorator_list", []):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute):
            yield from _root(called)


def _last(node: ast.AST) -> str:
    """The last name of a.b.c."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class Slice:
    """What a piece of code needs of a notebook's other cells."""

    places: tuple[int, ...]  # of the statements, in the notebook's order
    unknown: tuple[str, ...]  # names that no statement sets


class Notebook:
    """The statements of a notebook's cells, from its top to its end.

    cells: their texts; None for a cell that is left out.
    """

    def __init__(self, cells: Sequence[str | None]) -> None:
        self.cells = cells
        self.statements: list[Statement] = []
        self.cell_of: list[int] = []  # by the place of a statement
        self.sets: dict[str, list[int]] = {}  # {name: the places that set it}
        self.changes: dict[str, list[int]] = {}
        self.patches: dict[str, list[int]] = {}  # {name: the places that set an attribute of it}
        for number, text in enumerate(cells):
            if len(self.statements) < MOST:
                self.statements += parsed(text or "")
                self.cell_of += [number] * (len(self.statements) - len(self.cell_of))
        self.is_cut = len(self.statements) >= MOST
        effects = {name: e for s in self.statements for name, e in s.effects.items()}
        imported = {name for s in self.statements if isinstance(s.node, IMPORTS) for name in s.sets}
        self.settings = [place for place, s in enumerate(self.statements) if _is_setting(s)]
        aliases = _aliases(self.statements)
        for place, statement in enumerate(self.statements):
            sets, changes = set(statement.sets), set(statement.changes)
            changes |= statement.registers - imported
            for function, arguments in statement.calls:
                if effect := effects.get(function):
                    sets |= effect.sets
                    changes |= effect.changes | (arguments if effect.changes_arguments else set())
            changes |= {other for name in changes for other in aliases.get(name, ())}
            for name in sets:
                self.sets.setdefault(name, []).append(place)
            for name in changes:
                self.changes.setdefault(name, []).append(place)
            for name in statement.patches:
                self.patches.setdefault(name, []).append(place)

    def places(self, cells: Iterable[int]) -> list[int]:
        """The places of all statements in these cells."""
        return [p for cell in cells for p in range(self.first(cell), self.first(cell + 1))]

    def first(self, cell: int) -> int:
        """The place of the first statement in this cell or below it."""
        return bisect_left(self.cell_of, cell)

    def needed(
        self,
        start: Iterable[int],
        limit: int,
        given: Iterable[str] = (),
        ours: Set[int] = NONE,
        fixed: Set[str] = NO_NAMES,
        done: Set[int] = NONE,
    ) -> Slice:
        """What statements need of the others above a place; of what stands below, only the rest.

        start: the places of the statements. limit: the place at which their functions are called.
        given: names that are there if no statement sets them. fixed: names that are there whatever
        sets them. ours: the places that need not be taken along: what they set is there.
        done: those of them that are the student's: what is set in attributes of it is taken along.
        """
        first = [place for place in self.settings if place < limit and place not in ours]
        search = _Search(self, list(start), limit, BUILTINS | set(given), ours, fixed)
        search.done = done
        search.todo += [(place, limit) for place in first]
        return search.run()

    def setters(self, name: str, end: int, ours: Set[int]) -> tuple[bool, list[int]]:
        """(whether a statement above this place sets a name, the places that give it its value).

        What is changed in place of an object that our statements set stays as it is.
        """
        sets, changes = (_above(end, of.get(name, [])) for of in (self.sets, self.changes))
        last_always = next((p for p in reversed(sets) if self.statements[p].always), -1)
        last_ours = next((p for p in reversed(sets) if p in ours), -1)
        first = max(last_always, last_ours)
        theirs = [p for p in sets if p >= first and p not in ours]
        if theirs:
            theirs += [p for p in changes if p > first and p not in ours]
        return bool(sets), theirs

    def text(self, places: Iterable[int]) -> Iterator[tuple[int, str]]:
        """(cell, text) with these statements alone, in their lines of the cell."""
        by_cell: dict[int, list[ast.stmt]] = {}
        for place in sorted(places):
            by_cell.setdefault(self.cell_of[place], []).append(self.statements[place].node)
        for cell, nodes in by_cell.items():
            yield cell, _only(self.cells[cell] or "", nodes)


class _Search:
    """A walk from statements to all that they need. The arguments: of Notebook.needed."""

    def __init__(
        self,
        notebook: Notebook,
        start: list[int],
        limit: int,
        given: Set[str],
        ours: Set[int],
        fixed: Set[str],
    ) -> None:
        self.notebook, self.limit, self.given = notebook, limit, given
        self.ours, self.fixed = ours, fixed
        self.done: Set[int] = NONE
        self.start = frozenset(start)
        self.todo = [(place, limit) for place in start]
        self.seen: set[tuple[int, int]] = set()
        self.asked: dict[str, bool] = {}  # whether a statement sets the name

    def run(self) -> Slice:
        self._follow()
        for name in self._unknown():  # out of order: Run All would not find it
            self._look(name, len(self.notebook.statements))
        self._follow()
        stars = _above(self.limit, self.notebook.sets.get(STAR, []))
        if stars and self._unknown():
            self.todo += [(place, self.limit) for place in stars]
            self._follow()
        unknown = () if stars else tuple(self._unknown())
        places = {place for place, _ in self.seen} - self.start
        return Slice(tuple(sorted(places)), unknown)

    def _follow(self) -> None:
        """Takes what the statements need. todo: (place, when its functions are called)."""
        while self.todo:
            if (step := self.todo.pop()) in self.seen:
                continue
            self.seen.add(step)
            place, called = step
            statement = self.notebook.statements[place]
            self.asked |= dict.fromkeys(statement.sets, True)
            for name in sorted(statement.reads):
                self._look(name, place, self.limit)
            for name in sorted(statement.reads_later):
                self._look(name, called)

    def _look(self, name: str, end: int, *also_called: int) -> None:
        """Takes what sets a name above a place, and is called there."""
        last_done = max((p for p in self.notebook.sets.get(name, ()) if p in self.done), default=-1)
        if 0 <= last_done < end:
            late = self.notebook.patches.get(name, ())
            self.todo += [(p, end) for p in late if last_done < p < end and p not in self.ours]
        if name in self.fixed:
            return
        found, places = self.notebook.setters(name, end, self.ours)
        self.asked[name] = found or self.asked.get(name, False)
        self.todo += [(place, called) for place in places for called in (end, *also_called)]

    def _unknown(self) -> list[str]:
        return [n for n, found in self.asked.items() if not found and n not in self.given]


def _is_setting(statement: Statement) -> bool:
    call = statement.node.value if isinstance(statement.node, ast.Expr) else None
    return isinstance(call, ast.Call) and _last(call.func) in SETTINGS


def _aliases(statements: Iterable[Statement]) -> dict[str, set[str]]:
    """{variable: others that are the same object somewhere}: b = a."""
    same: dict[str, set[str]] = {}
    for statement in statements:
        node = statement.node
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            group = {node.value.id, *statement.sets}
            group |= {other for name in group for other in same.get(name, ())}
            same |= dict.fromkeys(group, group)
    return same


def parsed(text: str) -> tuple[Statement, ...]:
    """The statements of a cell; none if Python can't parse it."""
    try:
        return statements(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _above(end: int, places: Sequence[int]) -> list[int]:
    return list(places[: bisect_left(places, end)])


def _only(text: str, nodes: Sequence[ast.stmt]) -> str:
    """The text with these statements alone; each stays in its lines."""
    lines = re.split(r"\r\n|\r|\n", text)
    kept = [""] * len(lines)
    for node in nodes:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        last = node.end_lineno or first
        whole = lines[first - 1 : last]
        alone = "\n".join(whole).strip()
        if _same(alone, node):
            kept[first - 1 : last] = whole
        else:  # it shares a line with another statement
            kept[first - 1] = "; ".join(filter(None, [kept[first - 1], ast.unparse(node)]))
    return "\n".join(kept)


def _same(text: str, node: ast.stmt) -> bool:
    try:
        return [ast.dump(n) for n in ast.parse(text).body] == [ast.dump(node)]
    except (SyntaxError, ValueError):
        return False
