"""Normal forms: Python code without what has no effect, and in one of several ways to write it.

Two answers that do the same in the same way have nearly one normal form, whatever they call their
variables and however many idle statements stand between the others. It is for comparison, not for
execution: it may compute in another order, and leaves out what shows only in an error.
"""

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import Any, cast

SMALLEST = 8  # nodes of a piece: smaller ones are in all answers
DEEPEST = 40  # nodes in one another, where the whole is too deep
ROUNDS = 8  # wrappers in wrappers, variables for variables: what is longer stays
IDLE = frozenset(  # functions that change nothing
    {"abs", "all", "any", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list"}
    | {"max", "min", "print", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum"}
    | {"tuple", "type", "zip"}
)
MARKED = re.compile("\0([^\0]*)\0")
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
COMMUTATIVE = (ast.Add, ast.Mult)
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}
Block = list[ast.stmt]
Function = (ast.FunctionDef, ast.AsyncFunctionDef)
Acting = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
Nothing = (ast.Pass, ast.Import, ast.ImportFrom)


def pieces(cells: Sequence[str]) -> list[tuple[str, range]]:
    """(text, its lines): each statement of the cells' normal form, and each larger part of one.

    The lines are counted through all cells. A cell that can't be parsed has no pieces.
    """
    try:
        return _written(_normal(_parsed(cells)))
    except RecursionError:  # a deep expression, or a chain of variables put into one another
        return _written(_Plain().visit(_cut(_parsed(cells))))


def _parsed(cells: Sequence[str]) -> ast.Module:
    tree, line = ast.Module([], []), 0
    for cell in cells:
        try:
            body = ast.parse(cell).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            body = []
        tree.body += [ast.increment_lineno(node, line) for node in body]
        line += cell.count("\n") + 1
    return tree


def _cut(tree: ast.Module) -> ast.Module:
    """The tree without what is too deep in it."""
    left: list[tuple[ast.AST, int]] = [(tree, 0)]
    while left:
        node, depth = left.pop()
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and depth > DEEPEST:
                setattr(node, field, ast.Constant(None))
            elif isinstance(value, list) and depth > DEEPEST:
                setattr(node, field, [])
            else:
                parts = value if isinstance(value, list) else [value]
                left += [(part, depth + 1) for part in parts if isinstance(part, ast.AST)]
    return tree


def _normal(tree: ast.Module) -> ast.Module:
    """The tree in its normal form, in its own nodes."""
    _Plain().visit(tree)
    for _ in range(ROUNDS):
        for function in _functions(tree):
            _settle(function)
        wrappers = {one.name for one in _functions(tree, nested=True) if _is_identity(one)}
        if not wrappers:
            break
        _Unwrapped(wrappers).visit(tree)
    return tree


class _Plain(ast.NodeTransformer):
    """Each statement in one way, and none that has no effect, whatever stands around it."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        before = copy.deepcopy(node.target)
        before.ctx = ast.Load()
        value = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
        return self.visit(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_Assert(self, node: ast.Assert) -> ast.AST | None:
        return self.visit(ast.copy_location(ast.Expr(node.test), node))

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        self.generic_visit(node)
        return None if _is_idle(node.value) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1 and type(node.ops[0]) in FLIPPED:
            node.left, node.comparators = node.comparators[0], [node.left]
            node.ops = [FLIPPED[type(node.ops[0])]()]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        while _is_not(node.test):
            node.test = cast(ast.UnaryOp, node.test).operand
            node.body, node.orelse = node.orelse, node.body
        return node

    def visit_If(self, node: ast.If) -> ast.AST | Block | None:
        self.generic_visit(node)
        while _is_not(node.test) and node.orelse:
            node.test = cast(ast.UnaryOp, node.test).operand
            node.body, node.orelse = node.orelse, node.body
        constant = _constant(node.test)
        if constant is not None:
            return node.body if constant else node.orelse
        if not any(isinstance(part, ast.Name | ast.Call) for part in _walk(node.test)):
            return node.body + node.orelse
        return node if node.body or node.orelse or not _is_idle(node.test) else None

    def visit_While(self, node: ast.While) -> ast.AST | Block:
        self.generic_visit(node)
        return node.orelse if _constant(node.test) is False else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Assign([ast.Name(name)], ast.Lambda(arguments, value)):
                body: Block = [ast.copy_location(ast.Return(value), node)]
                return ast.copy_location(ast.FunctionDef(name, arguments, body, []), node)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, Nothing):
            return None  # type: ignore[return-value]
        if isinstance(node, Function):
            node.returns = None
        return super().generic_visit(node)


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_idle(node: ast.AST) -> bool:
    """Whether an expression changes nothing."""
    acting = (part for part in _walk(node) if isinstance(part, Acting))
    return all(
        isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in IDLE
        for part in acting
    )


def _constant(node: ast.expr) -> bool | None:
    """Whether a test of a constant holds; None for others."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if _is_not(node):
        known = _constant(cast(ast.UnaryOp, node).operand)
        return None if known is None else not known
    return None


def _functions(tree: ast.AST, nested: bool = False) -> Iterator[ast.FunctionDef]:
    """The functions, methods too; with nested, those in functions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield cast(ast.FunctionDef, node)
        if isinstance(node, ast.stmt) and (nested or not isinstance(node, Function)):
            yield from _functions(node, nested)


def _is_identity(function: ast.FunctionDef) -> bool:
    arguments = function.args.args
    match function.body:
        case [ast.Return(ast.Name(name))] if arguments and not function.decorator_list:
            return name == arguments[0].arg
    return False


class _Unwrapped(ast.NodeTransformer):
    """Without calls of functions that give back their argument."""

    def __init__(self, wrappers: Set[str]) -> None:
        self.wrappers = wrappers

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_wrapper = isinstance(node.func, ast.Name) and node.func.id in self.wrappers
        is_alone = len(node.args) == 1 and not node.keywords
        return node.args[0] if is_wrapper and is_alone else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        self.generic_visit(node)
        return None if _is_identity(node) else node


def _settle(function: ast.FunctionDef) -> None:
    """Variables that stand for one thing are replaced by it, and dead ones left out."""
    for _ in range(ROUNDS):
        inlined = _Inlined(function)
        if inlined.gone:
            inlined.visit(function)
        if not _alive(function, set()) and not inlined.gone:
            return


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all in it, as ast.walk, in another order and half the time."""
    left = [node]
    while left:
        part = left.pop()
        yield part
        for field in part._fields:
            value = getattr(part, field, None)
            if isinstance(value, ast.AST):
                left.append(value)
            elif isinstance(value, list):
                left += [one for one in value if isinstance(one, ast.AST)]


def _reads(node: ast.AST) -> Counter[str]:
    return Counter(
        part.id
        for part in _walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    )


class _Inlined(ast.NodeTransformer):
    """Each variable that is set once and read once, or that is another name, by its value."""

    def __init__(self, function: ast.FunctionDef) -> None:
        parts = list(_walk(function))
        stored: Counter[str] = Counter()
        reads: Counter[str] = Counter()
        kept: set[str] = set()
        for part in parts:
            if isinstance(part, ast.Name):
                (reads if isinstance(part.ctx, ast.Load) else stored)[part.id] += 1
            elif isinstance(part, ast.arg):
                stored[part.arg] += 1
            elif isinstance(part, ast.Global | ast.Nonlocal):
                kept.update(part.names)
        self.once: dict[str, ast.expr] = {}
        self.same: dict[str, ast.Name | ast.Constant] = {}
        for part in parts:
            match part:
                case ast.Assign([ast.Name(name)], value) if stored[name] == 1 and name not in kept:
                    is_name = isinstance(value, ast.Name) and stored[value.id] <= 1
                    if isinstance(value, ast.Constant) or is_name:
                        self.same[name] = cast(ast.Name | ast.Constant, value)
                    elif reads[name] == 1:
                        self.once[name] = value
        self.gone = self.once.keys() | self.same.keys()

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return node
        if node.id in self.once:
            return self.visit(self.once.pop(node.id))
        seen = 0
        while node.id in self.same and seen < ROUNDS:
            seen += 1
            new = self.same[node.id]
            if isinstance(new, ast.Constant):
                return ast.copy_location(ast.Constant(new.value), node)
            node = ast.copy_location(ast.Name(new.id, ast.Load()), node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        match node.targets:
            case [ast.Name(name)] if name in self.gone:
                return None
        return self.generic_visit(node)


def _alive(function: ast.FunctionDef, around: Set[str]) -> bool:
    """Leaves out what no statement of a function reads; whether there was something.

    around: names that are read elsewhere.
    """
    always = set(around)
    for part in _walk(function):
        if isinstance(part, ast.Global | ast.Nonlocal):
            always.update(part.names)
        elif isinstance(part, (*Function, ast.Lambda, ast.ClassDef)) and part is not function:
            always.update(_reads(part))
    live = _Live(always)
    function.body, _ = live.block(function.body, set())
    return live.has_changed


class _Live:
    """Blocks without variables that nobody reads later, and those that only the next line reads."""

    def __init__(self, always: Set[str]) -> None:
        self.always = always
        self.has_changed = False

    def block(self, block: Block, after: set[str]) -> tuple[Block, set[str]]:
        """(what remains, the names that it reads). after: the names read after it."""
        kept: Block = []
        beyond = after  # the names read after the statement kept last
        for node in reversed(block):
            names = _assigned(node)
            if names and names.isdisjoint(after | self.always):
                self.has_changed = True
                value = cast(ast.Assign, node).value
                if _is_idle(value):
                    continue
                node = ast.copy_location(ast.Expr(value), node)
            elif (
                names
                and kept
                and names.isdisjoint(beyond | self.always)
                and _put_into(cast(ast.Assign, node), kept[-1])
            ):
                self.has_changed = True
                after = (after - names) | _reads(cast(ast.Assign, node).value).keys()
                continue
            before = self.before(node, after)
            kept.append(node)
            beyond, after = after, before
        return kept[::-1], after

    def before(self, node: ast.stmt, after: set[str]) -> set[str]:
        """The names that are read from this statement on; its blocks lose what is dead."""
        if isinstance(node, Function):
            self.has_changed |= _alive(cast(ast.FunctionDef, node), self.always)
        blocks = [field for field in BLOCKS if getattr(node, field, None)]
        if not blocks or isinstance(node, (*Function, ast.ClassDef, ast.Match)):
            rest = set() if isinstance(node, ast.Return) else after - _assigned(node)
            return rest | _reads(node).keys()
        is_straight = isinstance(node, ast.If | ast.With)
        end = after if is_straight else after | _reads(node).keys()
        found = set(end)
        for field in blocks:
            if field == "handlers":
                continue
            inner, live = self.block(getattr(node, field), end)
            setattr(node, field, inner)
            found |= live
        heads = [getattr(node, "test", None), *getattr(node, "items", [])]
        return found.union(*(_reads(head).keys() for head in heads if head))


def _put_into(assignment: ast.Assign, node: ast.stmt) -> bool:
    """Replaces the one use of a variable in the next statement by its value, if that is all."""
    target, head = assignment.targets[0], _head(node)
    if not isinstance(target, ast.Name) or len(assignment.targets) > 1 or head is None:
        return False
    if not _reads(head)[target.id] == 1 == _reads(node)[target.id]:
        return False
    _Replaced(target.id, assignment.value).visit(node)
    return True


class _Replaced(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_it = node.id == self.name and isinstance(node.ctx, ast.Load)
        return self.value if is_it else node


def _assigned(node: ast.stmt) -> set[str]:
    """The names that an assignment sets, if it sets nothing else."""
    if not isinstance(node, ast.Assign):
        return set()
    names: set[str] = set()
    for target in node.targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        for part in parts:
            if not isinstance(part, ast.Name):
                return set()
            names.add(part.id)
    return names


def _head(node: ast.stmt) -> ast.AST | None:
    """What a statement computes once, before anything else."""
    if isinstance(node, ast.If):
        return node.test
    if isinstance(node, ast.For):
        return node.iter
    if isinstance(node, ast.Return | ast.Assign | ast.Expr | ast.Raise):
        return node
    return None


def _written(tree: ast.Module) -> list[tuple[str, range]]:
    found: list[tuple[str, range]] = []
    for node in _walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, (*Function, ast.ClassDef)):
            text = _Text()
            text.of(node)
            found += text.pieces
    return found


class _Text:
    """The text of a node with its names numbered by first use; pieces: its larger parts'."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, range]] = []

    def of(self, node: Any) -> tuple[str, int]:
        """(its text with names in marks, how many nodes it has)."""
        if isinstance(node, ast.Name | ast.arg):
            return f"\0{node.id if isinstance(node, ast.Name) else node.arg}\0", 1
        if isinstance(node, list):
            parts = [self.of(part) for part in node]
            return f"[{','.join(text for text, _ in parts)}]", sum(size for _, size in parts)
        if isinstance(node, ast.Constant):  # hashed: repr refuses numbers of 5,000 digits
            return f"{type(node.value).__name__}({hash(node.value)})", 1
        if not isinstance(node, ast.AST):
            return repr(node), 1
        parts = [self.of(value) for field, value in ast.iter_fields(node) if _is_own(node, field)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, COMMUTATIVE):
            parts.sort(key=lambda part: MARKED.sub("", part[0]))
        text = f"{type(node).__name__}({' '.join(text for text, _ in parts)})"
        if not isinstance(node, ast.expr | ast.stmt):
            return text, sum(size for _, size in parts)
        size = 1 + sum(size for _, size in parts)
        if size >= SMALLEST and not isinstance(node, ast.Expr):
            self.pieces.append((_numbered(text), _span(node)))
        return text, size


def _is_own(node: ast.AST, field: str) -> bool:
    """Whether a field says what the node is, and is not the statements in it."""
    if field in ("ctx", "kind", "type_comment"):
        return False
    return not (isinstance(node, ast.stmt) and field in BLOCKS)


def _numbered(text: str) -> str:
    numbers: dict[str, str] = {}
    return MARKED.sub(lambda name: numbers.setdefault(name[1], f"n{len(numbers)}"), text)


def _span(node: ast.expr | ast.stmt) -> range:
    """The lines of a node, without those of the statements in it."""
    first = getattr(node, "lineno", 0)
    if isinstance(node, ast.stmt) and getattr(node, "body", None):
        return range(first, first + 1)
    return range(first, (getattr(node, "end_lineno", None) or first) + 1)
