"""What a check wants must not come from the student's side: who taints what, read from its text.

The student's side is what holes and drivers define (in the grader, calls into another process), and
each argument that a call may have changed: those that `in_place` names, and a kernel's arrays. What
is computed from them is tainted, too. A tainted value may be what a check got, but not what it
wants. Nor may a check that gives points look at what a rank reports of itself: its clock, its
computation, its live tensors.

The reading is flow-sensitive for assignments and loops. It takes each call for a new value, except
those in VIEWS, whose results share memory with their arguments.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from grading.source.labs import Cell, Lab

LAUNCHES = {("simt", "count"), ("tiles", "count")}
WANTED = ("want", "goal", "expected", "truth")  # how names and parameters of wanted values begin
CHECKS = {"agree": 1}  # functions that compare, and which argument is the wanted one
VIEWS = {
    "T", "view", "reshape", "flatten", "ravel", "expand", "split", "tensor_split", "chunk",
    "unbind", "squeeze", "unsqueeze", "detach", "numpy", "from_numpy", "permute", "transpose",
    "list", "tuple", "zip", "dict", "asarray", "narrow", "unfold", "reversed",
}  # fmt: skip
# Functions of ours that prove what they pass on: see their docstrings.
PROVED = {"cut", "cut_model"}
METADATA = {"dtype", "shape", "ndim"}  # the check has compared them, or chosen them
COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
QUIET = ("remark", "print", "append", "extend")  # they decide no points
SELF_REPORTED = {
    "compute", "compute_s", "compute_named", "bytes_during_compute", "spans", "spans_named",
    "bubble", "idle_share", "live_bytes_at", "peak_live_bytes", "time_s",
}  # fmt: skip


@dataclass
class Flow:
    """What is known after each statement. aliases: name -> the names whose memory it may share."""

    remote: set[str]
    tainted: set[str] = field(default_factory=set)
    aliases: dict[str, set[str]] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)  # local name -> module
    problems: list[str] = field(default_factory=list)

    def run(self, source: str) -> list[str]:
        """The problems of one check cell, each as a sentence."""
        for statement in ast.parse(source).body:
            self._statement(statement)
        return list(dict.fromkeys(self.problems))

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._imports(node)
        elif isinstance(node, ast.For):
            for _ in range(2):  # what the loop's end taints reaches its beginning
                self._assign_items(node.target, node.iter)
                if isinstance(node.iter, (ast.List, ast.Tuple)):  # of numbers and dtypes
                    self.aliases |= {name: set() for name in _names(node.target)}
                for inner in node.body:
                    self._statement(inner)
        elif isinstance(node, (ast.If, ast.While, ast.With, ast.Try)):
            for name in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(node, name, []):
                    for statement in (
                        inner.body if isinstance(inner, ast.ExceptHandler) else [inner]
                    ):
                        self._statement(statement)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value:
            self._look_at(node.value)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self._assign(target, node.value, isinstance(node, ast.AugAssign))
        else:
            self._look_at(node)

    def _assign_items(self, target: ast.expr, items: ast.expr) -> None:
        """The target of a loop; the rows of a literal table taint by column."""
        rows = items.elts if isinstance(items, (ast.List, ast.Tuple)) else []
        columns = target.elts if isinstance(target, ast.Tuple) else []
        if (
            not rows
            or not columns
            or not all(isinstance(row, ast.Tuple) and len(row.elts) == len(columns) for row in rows)
        ):
            self._assign(target, items)
            return
        for i, column in enumerate(columns):
            cells = [row.elts[i] for row in rows if isinstance(row, ast.Tuple)]
            self._assign(column, ast.List(cells, ast.Load()))

    def _imports(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            local = alias.asname or alias.name
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            self.modules[local] = start + alias.name

    def _assign(self, target: ast.expr, value: ast.expr, adds: bool = False) -> None:
        pairs = _pairs(target, value)
        if pairs != [(target, value)]:
            for part, of in pairs:
                self._assign(part, of, adds)
            return
        tainted = self._is_tainted(value)
        for name in _names(target):
            if isinstance(target, ast.Subscript) or adds:
                self.tainted |= {name} if tainted else set()
                if tainted and name.startswith(WANTED):
                    self._problem(f"`{name}` gets a part from the student's side", value)
                continue
            (self.tainted.add if tainted else self.tainted.discard)(name)
            self.remote.discard(name)
            self.aliases[name] = self._shared(value) - {name}
            if tainted and name.startswith(WANTED):
                self._problem(f"`{name}` is computed from the student's side", value)

    def _look_at(self, node: ast.AST) -> None:
        """Checks the calls in a statement, and notes which names they may have changed."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr):
                self._assign(inner.target, inner.value)
        for call in _calls(node):
            for what, argument in self._wanted_arguments(call):
                if self._is_tainted(argument):
                    self._problem(f"{what} gets what comes from the student's side", argument)
        for call in _calls(node):
            self._touch(self._touched(call))

    def _wanted_arguments(self, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        name = _called(call)[-1]
        wanted = CHECKS.get(name)
        parameters = [] if wanted is not None else self._parameters(call)
        for i, argument in enumerate(call.args):
            if isinstance(argument, ast.Starred):
                break
            if i == wanted or (i < len(parameters) and parameters[i].startswith(WANTED)):
                yield f"`{name}` (argument {i + 1})", argument
        for keyword in call.keywords:
            if keyword.arg and keyword.arg.startswith(WANTED):
                yield f"`{name}` ({keyword.arg}=)", keyword.value

    def _parameters(self, call: ast.Call) -> list[str]:
        """The names of the parameters of a function of the course that is called."""
        path = _called(call)
        module, function = self.modules.get(path[0], ""), path[-1]
        if len(path) == 1:
            module = module.rpartition(".")[0]
        if not module.startswith("common"):
            return []
        try:
            return list(
                inspect.signature(getattr(importlib.import_module(module), function)).parameters
            )
        except (ImportError, AttributeError, TypeError, ValueError):
            return []

    def _touched(self, call: ast.Call) -> set[str]:
        """The names of the arguments that a call may change."""
        path = tuple(_called(call)[-2:])
        if path in LAUNCHES or path[-1] == "in_place":  # keywords are a kernel's constants
            arguments = [each for each in call.args if not isinstance(each, ast.Tuple)]  # a grid
            return {name for argument in arguments for name in self._shared(argument)}
        return set()

    def _touch(self, names: set[str]) -> None:
        grown = True
        while grown:
            shared = {name for name, others in self.aliases.items() if others & names}
            shared |= {other for name in names for other in self.aliases.get(name, ())}
            grown, names = bool(shared - names), names | shared
        self.tainted |= names - self.remote

    def _shared(self, node: ast.AST) -> set[str]:
        """The names whose memory the value of an expression may share."""
        if isinstance(node, ast.Name):
            return {node.id} - self.modules.keys()
        if isinstance(node, ast.Attribute):
            return self._shared(node.value) if node.attr in VIEWS else set()
        if isinstance(node, ast.Call):
            path = _called(node)
            if path[-1] not in VIEWS or self.modules.get(path[0], "").startswith("common"):
                return set()
            parts: list[ast.AST] = [*node.args]
            if isinstance(node.func, ast.Attribute):
                parts.append(node.func.value)
            return set().union(*map(self._shared, parts)) if parts else set()
        if isinstance(node, (ast.Constant, ast.BinOp, ast.Compare, ast.JoinedStr, ast.Lambda)):
            return set()
        if isinstance(node, ast.IfExp):
            return self._shared(node.body) | self._shared(node.orelse)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            own = {name for part in node.generators for name in _names(part.target)}
            shared = self._shared(node.elt)
            iterated = self._shared(node.generators[0].iter) if shared & own else set()
            return shared - own | iterated
        if isinstance(node, ast.Subscript):
            return self._shared(node.value)
        if isinstance(node, (ast.Tuple, ast.List, ast.Starred, ast.Dict)):
            return set().union(
                *(self._shared(child) for child in ast.iter_child_nodes(node)), set()
            )
        return set()

    def _is_tainted(self, node: ast.AST) -> bool:
        """Whether a value comes from the student's side; a condition alone passes no value on."""
        if isinstance(node, ast.Name):
            return node.id in self.tainted or node.id in self.remote
        if isinstance(node, ast.Lambda):
            return False  # a picture
        if isinstance(node, ast.IfExp):
            return self._is_tainted(node.body) or self._is_tainted(node.orelse)
        if isinstance(node, ast.Attribute) and node.attr in METADATA:
            return False
        if isinstance(node, ast.Call) and _called(node)[-1] in PROVED:
            return False
        if isinstance(node, COMPREHENSIONS):
            return self._is_tainted_comprehension(node)
        return any(self._is_tainted(child) for child in ast.iter_child_nodes(node))

    def _is_tainted_comprehension(self, node: Any) -> bool:
        """Its own names hide others of the same name."""
        own = {name for part in node.generators for name in _names(part.target)}
        if any(self._is_tainted(part.iter) for part in node.generators):
            return True
        inside = Flow(self.remote - own, self.tainted - own)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return any(map(inside._is_tainted, parts))

    def _problem(self, text: str, node: ast.AST) -> None:
        self.problems.append(f"{text}: {ast.unparse(node)}")


def problems(lab: Lab, check: Cell) -> list[str]:
    """The flows in a check from the student's side to what it wants."""
    remote = {name for cell in lab.cells if cell.tags & {"hole", "driver"} for name in cell.names}
    setup = "\n".join(cell.source for cell in lab.cells if "setup" in cell.tags)
    flow = Flow(remote)
    for node in ast.parse(setup).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            flow._imports(node)
    found = flow.run(check.source)
    return found + (self_reported(check, remote) if check.points else [])


def self_reported(check: Cell, remote: set[str]) -> list[str]:
    """What of a rank's report on itself decides points: `remark` may look at it, and pictures."""
    flow, found, reported = Flow(remote), [], set()
    flow.run(check.source)

    def reports(node: ast.AST) -> bool:
        if isinstance(node, ast.Lambda):
            return False
        if isinstance(node, ast.Name) and node.id in reported:
            return True
        if isinstance(node, ast.Attribute) and node.attr in SELF_REPORTED:
            return flow._is_tainted(node.value)
        return any(map(reports, ast.iter_child_nodes(node)))

    for node in ast.walk(ast.parse(check.source)):
        if isinstance(node, ast.Assign):
            pairs = _pairs(node.targets[0], node.value)
            reported |= {n for target, value in pairs if reports(value) for n in _names(target)}
        elif isinstance(node, ast.Call) and _called(node)[-1] in ("append", "extend"):
            reported |= {n for a in node.args if reports(a) for n in _names(node.func)}
    for node in ast.walk(ast.parse(check.source)):
        if isinstance(node, (ast.Expr, ast.Assert)) and reports(node):
            call = node.value if isinstance(node, ast.Expr) else None
            if not isinstance(call, ast.Call) or _called(call)[-1] not in QUIET:
                found.append(f"a rank's report on itself gives points: {ast.unparse(node)[:80]}")
    return found


def _names(target: ast.AST) -> list[str]:
    if isinstance(target, ast.Subscript):
        return _names(target.value)
    if isinstance(target, ast.Attribute):
        return _names(target.value)
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """(target, value) of each part of an assignment to a tuple."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        return [(target, value)]
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)] if _is_star(target) else [(part, value) for part in target.elts]


def _is_star(target: ast.Tuple | ast.List) -> bool:
    return any(isinstance(part, ast.Starred) for part in target.elts)


def _calls(node: ast.AST) -> list[ast.Call]:
    """The calls in an expression, without those in a lambda, which are for pictures."""
    found = [node] if isinstance(node, ast.Call) else []
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda):
            found += _calls(child)
    return found


def _called(call: ast.Call) -> list[str]:
    """["oracle", "agree_view"] of oracle.agree_view(...); [""] if it is no name."""
    parts, node = [], call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return parts[::-1]
