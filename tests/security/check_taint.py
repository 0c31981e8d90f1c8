"""What a check wants must not come from the student's side: who taints what, read from its text.

The student's side is what holes and drivers define (in the grader, calls into another process), and
each argument that a call may have changed: those that `in_place` names, and all that goes with a
kernel into a launch. What is computed from them is tainted, too. A tainted value may be what a
check got, but not what it wants, and no condition may compare two of them. Nor may a check that
gives points look at what a rank reports of itself: its clock, its computation, its live tensors.

The reading follows assignments, and joins what branches and loops may have done. What it can't read
is a problem: a check says what it does in plain statements.
"""

import ast
import copy
import functools
import importlib
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from common.paths import COURSE, ROOT, compared_with
from grading.source.labs import Cell, Lab

# Kinds of taint.
STUDENT = "student"  # what holes and drivers gave
TOUCHED = "touched"  # an argument that a call may have changed
CALLABLE = "callable"  # a hole or driver itself, which others can call
KERNEL = "kernel"  # the same, of a kernel: it stores into what it is launched with
REPORTED = "reported"  # what a rank says of itself
COUNTED = "counted"  # what the grader has counted of the student's work
Kinds = frozenset[str]
NONE: Kinds = frozenset()
THEIRS = {STUDENT, TOUCHED}

WANTED = ("want", "goal", "expected", "truth")  # how names and parameters of wanted values begin
TOLERANCES = ("rtol", "atol")
CHECKS = {"agree": 1}  # functions that compare, and which argument is the wanted one
ASSERTS = {"expect": 0}  # functions that assert, and which argument is the condition
LAUNCHES = {("simt", "count"), ("tiles", "count")}  # they count; their tuples are grids
COPYING = {"run", "both_ways"}  # they give each rank copies
KERNELS = ("@triton.jit", "@cuda.jit")
QUIET = {"remark", "print"}  # they decide no points
ONLY_CALLED = {"agree", "expect", "in_place", "count", "run"}  # not given other names
UNREADABLE = {
    *("eval", "exec", "globals", "locals", "setattr", "delattr", "testing"),
    *("__dict__", "call_in_place", "attrgetter"),
}
# What gives new memory, or none. Everything else may give a view of what it got.
FRESH = {
    *("clone", "deepcopy", "array", "tensor", "item", "tolist", "len", "sum", "range"),
    *("int", "float", "bool", "str", "max", "min", "abs", "round", "repr", "any", "all"),
    *("mean", "exp", "log", "matmul", "prod", "sqrt", "dot", "softmax", "cross_entropy", "cumsum"),
    *("full", "zeros", "ones", "empty", "arange", "rand", "randn", "linspace", "eye", "new_empty"),
    *("zeros_like", "empty_like", "full_like", "ones_like", "numel", "size"),
    *("masked_fill", "argmax", "argmin", "amax", "amin", "norm", "std", "var", "floor", "ceil"),
}
PUTS = {"append", "extend", "insert", "update", "setdefault", "add"}
READS = {"zip", "enumerate", "list", "tuple", "len", "sum", "max", "min", "range", "isinstance"}
# Functions of ours that prove what they pass on: see their docstrings.
PROVED = {"cut", "cut_model"}
METADATA = {"dtype", "shape", "ndim", "nbytes", "itemsize"}  # of what was touched: as they were
SELF_REPORTED = {
    "compute", "compute_s", "compute_named", "bytes_during_compute", "spans", "spans_named",
    "bubble", "idle_share", "live_bytes_at", "peak_live_bytes", "live_bytes", "time_s", "start_s",
    "end_s",
}  # fmt: skip
TIMES_OF_MESSAGES = {
    "start_s",
    "end_s",
}  # the network orders messages by them, and asks for no more
READABLE = (
    ast.Import, ast.ImportFrom, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Assert,
    ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef, ast.Return, ast.Pass, ast.Break,
    ast.Continue, ast.Delete, ast.Raise,
)  # fmt: skip
COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


@dataclass
class State:
    """What is known at a place: the taint of names, and whose memory a name may share."""

    kinds: dict[str, Kinds] = field(default_factory=dict)
    aliases: dict[str, set[str]] = field(default_factory=dict)

    def join(self, other: "State") -> None:
        for name, kinds in other.kinds.items():
            self.kinds[name] = self.kinds.get(name, NONE) | kinds
        for name, others in other.aliases.items():
            self.aliases[name] = self.aliases.get(name, set()) | others


@dataclass
class Flow:
    """The reading of one check. remote: what the student's side defines."""

    remote: dict[str, Kinds]
    ours: set[str] = field(default_factory=set)  # functions of the set-up
    scored: bool = True  # whether the check gives points
    state: State = field(default_factory=State)
    modules: dict[str, str] = field(default_factory=dict)  # local name -> module
    objects: set[str] = field(default_factory=set)  # what functions of the course have made
    problems: list[str] = field(default_factory=list)

    def run(self, source: str) -> list[str]:
        """The problems of one check cell, each as a sentence."""
        self._block(ast.parse(source).body)
        return list(dict.fromkeys(self.problems))

    # Statements

    def _block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if not isinstance(node, READABLE):
            self._problem(f"a check can't have a {type(node).__name__}", node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imports(node)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            self._assignment(node)
        elif isinstance(node, (ast.For, ast.While)):
            self._loop(node)
        elif isinstance(node, (ast.If, ast.Try)):
            self._branches(node)
        elif isinstance(node, ast.With):
            for item in node.items:
                self._look_at(item.context_expr)
                if item.optional_vars:
                    self._assign(item.optional_vars, item.context_expr)
            self._block(node.body)
        elif isinstance(node, ast.FunctionDef):
            self._function(node)
        else:
            self._simple(node)

    def _simple(self, node: ast.stmt) -> None:
        """An expression, an assertion, and what changes no name."""
        self._look_at(node)
        if isinstance(node, ast.Assert):
            self._condition(node.test)
        if self.scored and isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            path = _called(node.value)
            reports = (self._module(path), path[-1]) in reporting()
            if reports and not path[-1].startswith("remark"):
                self._problem("a rank's report on itself gives points", node)

    def _assignment(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
        if node.value is None:
            return
        self._look_at(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._names_are_read_well(target)
            self._assign(target, node.value, adds=isinstance(node, ast.AugAssign))

    def _loop(self, node: ast.For | ast.While) -> None:
        for _ in range(3):  # what the loop's end taints reaches its beginning
            before = copy.deepcopy(self.state)
            if isinstance(node, ast.For):
                self._look_at(node.iter)
                self._assign_items(node.target, node.iter)
            else:
                self._look_at(node.test)
            self._block(node.body)
            self.state.join(before)
        self._block(node.orelse)

    def _branches(self, node: ast.If | ast.Try) -> None:
        bodies = [node.body, node.orelse]
        if isinstance(node, ast.If):
            self._look_at(node.test)
            self._condition(node.test)
        else:
            bodies = [node.body + node.orelse, *(handler.body for handler in node.handlers)]
        before, after = self.state, State()
        for body in [*bodies, []] if isinstance(node, ast.Try) else bodies:
            self.state = copy.deepcopy(before)
            self._block(body)
            after.join(self.state)
        self.state = after
        self._block(getattr(node, "finalbody", []))

    def _function(self, node: ast.FunctionDef) -> None:
        """Its body is read with clean arguments; its name is tainted by all that it reads."""
        outside = copy.deepcopy(self.state)
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                self.state.kinds[argument.arg] = NONE
        self._block(node.body)
        read = [n for n in ast.walk(node) if isinstance(n, ast.expr)]
        kinds = NONE.union(*(self.kinds(each) for each in read))
        if any(isinstance(each, ast.Attribute) and each.attr in SELF_REPORTED for each in read):
            kinds |= {REPORTED}
        self.state = outside
        self.state.kinds[node.name] = kinds

    # Assignments

    def imports(self, node: ast.Import | ast.ImportFrom) -> None:
        """Notes what modules and functions are called here."""
        for alias in node.names:
            local = alias.asname or alias.name
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            self.modules[local] = start + alias.name

    def _assign_items(self, target: ast.expr, items: ast.expr) -> None:
        """The target of a loop; the rows of a literal table taint by column, those of zip, too."""
        if isinstance(items, ast.Call) and isinstance(target, ast.Tuple):
            name, parts = _called(items)[-1], target.elts
            if name == "enumerate" and len(parts) == 2 and items.args:
                self._assign(parts[0], ast.Constant(0))
                return self._assign_items(parts[1], items.args[0])
            if name == "zip" and len(parts) == len(items.args):
                for part, own in zip(parts, items.args, strict=True):
                    self._assign_items(part, own)
                return None
        rows = items.elts if isinstance(items, (ast.List, ast.Tuple)) else []
        columns = target.elts if isinstance(target, ast.Tuple) else []
        if (
            not rows
            or not columns
            or not all(isinstance(row, ast.Tuple) and len(row.elts) == len(columns) for row in rows)
        ):
            return self._assign(target, items)
        for i, column in enumerate(columns):
            cells = [row.elts[i] for row in rows if isinstance(row, ast.Tuple)]
            self._assign(column, ast.List(cells, ast.Load()))

    def _assign(self, target: ast.expr, value: ast.expr, adds: bool = False) -> None:
        pairs = _pairs(target, value)
        if pairs != [(target, value)]:
            known = [(self.kinds(of), self._shared(of)) for _, of in pairs]
            for (part, of), (kinds, shared) in zip(pairs, known, strict=True):
                if isinstance(part, (ast.Tuple, ast.List)):
                    self._assign(part, of, adds)
                else:
                    self._bind(part, of, kinds, shared, adds)
            return
        self._bind(target, value, self.kinds(value), self._shared(value), adds)

    def _bind(
        self, target: ast.expr, value: ast.expr, kinds: Kinds, shared: set[str], adds: bool
    ) -> None:
        for name in _names(target):
            wanted = name.startswith(WANTED) and kinds & THEIRS
            if isinstance(target, (ast.Subscript, ast.Attribute)) or adds:
                self._taint({name}, kinds)
                if wanted:
                    self._problem(f"`{name}` gets a part from the student's side", value)
                continue
            self.state.kinds[name] = kinds
            self.state.aliases[name] = shared - {name}
            one = value.elt if isinstance(value, (ast.GeneratorExp, ast.ListComp)) else value
            made = isinstance(one, ast.Call) and self._module(_called(one)).startswith(COURSE)
            (self.objects.add if made and not kinds else self.objects.discard)(name)
            if wanted:
                self._problem(f"`{name}` is computed from the student's side", value)

    def _taint(self, names: set[str], kinds: Iterable[str]) -> None:
        for name in names:
            self.state.kinds[name] = self.state.kinds.get(name, NONE).union(kinds)

    # Calls

    def _look_at(self, node: ast.AST) -> None:
        """Checks the calls in a statement, and notes which names they may have changed."""
        self._names_are_read_well(node)
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr):
                self._assign(inner.target, inner.value)
        for call, own in _calls(node):
            outside = copy.deepcopy(self.state) if own else self.state
            for part in own:
                self._assign_items(part.target, part.iter)
            self._check(call)
            self.state = outside
        for call, _ in _calls(node):
            self._touch(self._touched(call))
            self._changes(call)

    def _check(self, call: ast.Call) -> None:
        """What a call of ours wants, and what it asserts."""
        name = _called(call)[-1]
        if name in {*CHECKS, *ASSERTS} and any(isinstance(a, ast.Starred) for a in call.args[:2]):
            self._problem(f"`{name}` gets arguments that can't be read", call)
        for what, argument in self._wanted_arguments(call):
            if self.kinds(argument):
                self._problem(f"{what} gets what comes from the student's side", argument)
        if name in ASSERTS and call.args:
            self._condition(call.args[ASSERTS[name]])
        shown = [*call.args, *(k.value for k in call.keywords if k.arg != "draw")]
        reported = any(REPORTED in self.kinds(argument) for argument in shown)
        if self.scored and name in {*CHECKS, *ASSERTS, "no_fault"} and reported:
            self._problem("a rank's report on itself gives points", call)

    def _condition(self, test: ast.expr) -> None:
        """No part of it compares two things of the student's side."""
        for node in _inside(test):
            sides: list[ast.expr] = []
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                sides = [node.left, node.right]
            elif isinstance(node, ast.Call) and self._compares(node):
                sides = [*node.args]
                if isinstance(node.func, ast.Attribute) and _called(node)[0] not in self.modules:
                    sides.append(node.func.value)
            tainted = [bool(self.kinds(side) & THEIRS) for side in sides]
            if len(sides) > 1 and all(tainted) and not self._is_remote_call(node):
                self._problem("a condition compares two things of the student's side", node)
        if self.scored and REPORTED in self.kinds(test):
            self._problem("a rank's report on itself gives points", test)

    def _is_launch(self, call: ast.Call) -> bool:
        path = _called(call)
        of_ours = self._module(path) in ("nogpu.simt", "nogpu.tiles") and path[-1] == "count"
        return of_ours or tuple(path[-2:]) in LAUNCHES

    def _compares(self, call: ast.Call) -> bool:
        """Whether a call may compare its arguments; those of ours know what is wanted."""
        path = _called(call)
        return path[-1] not in READS and not self._module(path).startswith(COURSE)

    def _is_remote_call(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and CALLABLE in self.kinds(node.func)

    def _names_are_read_well(self, node: ast.AST) -> None:
        """What can't be followed: text that is run, and other names for what compares."""
        called = {id(call.func) for call, _ in _calls(node, lambdas=True)}
        for inner in ast.walk(node):
            name = getattr(inner, "id", None) or getattr(inner, "attr", None)
            if name in UNREADABLE:
                self._problem(f"a check can't use `{name}`", inner)
            is_ours = isinstance(inner, (ast.Name, ast.Attribute)) and self._must_be_called(inner)
            if is_ours and id(inner) not in called:
                self._problem(f"`{name}` is called by its own name only", inner)

    def _must_be_called(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether this is one of the functions that are not given other names."""
        path = _path(node)
        module = self._module(path)
        return module.startswith(COURSE) and path[-1] in ONLY_CALLED

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
            if keyword.arg and keyword.arg.startswith((*WANTED, *TOLERANCES)):
                yield f"`{name}` ({keyword.arg}=)", keyword.value

    def _module(self, path: list[str]) -> str:
        """The module of what is called by this path; "" if it was not imported."""
        module = self.modules.get(path[0], "")
        return module.rpartition(".")[0] if len(path) == 1 else module

    def _parameters(self, call: ast.Call) -> list[str]:
        """The names of the parameters of a function of the course that is called."""
        function = _function_of(self._module(_called(call)), _called(call)[-1])
        return list(inspect.signature(function).parameters) if function else []

    # Who changes what

    def _touched(self, call: ast.Call) -> set[str]:
        """The names of the arguments that a call may change."""
        path = _called(call)
        by_grid = isinstance(call.func, ast.Subscript) and KERNEL in self.kinds(call.func)
        if path[-1] in {*CHECKS, *ASSERTS, *COPYING, *QUIET}:
            return set()
        arguments = [*call.args]  # keywords are a kernel's constants
        is_launch = by_grid or any(KERNEL in self.kinds(each) for each in arguments)
        if self._is_launch(call):
            arguments = [each for each in arguments if not isinstance(each, ast.Tuple)]
        if is_launch or path[-1] == "in_place" or self._is_launch(call):
            return {name for argument in arguments for name in self._shared(argument)}
        return set()

    def _touch(self, names: set[str]) -> None:
        """What shares memory with these: what they are views of, and all views of that."""
        bases = set(names)
        while (
            more := {other for name in bases for other in self.state.aliases.get(name, ())} - bases
        ):
            bases |= more
        while more := {n for n, others in self.state.aliases.items() if others & bases} - bases:
            bases |= more
        self._taint(bases - self.remote.keys(), {TOUCHED})

    def _changes(self, call: ast.Call) -> None:
        """What is put into something taints it: x.append(y), np.copyto(x, y), np.add(y, out=x)."""
        path = _called(call)
        arguments = [*call.args, *(k.value for k in call.keywords if k.arg != "out")]
        kinds = NONE.union(*map(self.kinds, arguments), NONE) - {CALLABLE, KERNEL}
        into = [k.value for k in call.keywords if k.arg == "out"]
        if path[-1] in ("copyto", "put", "place", "putmask", "fill_diagonal"):
            into += call.args[:1]
        if isinstance(call.func, ast.Attribute) and path[0] not in self.modules:
            into += [call.func.value] if path[-1] in PUTS or path[0] not in self.objects else []
        self._taint({name for each in into for name in _names(each)} - self.remote.keys(), kinds)

    def _shared(self, node: ast.AST) -> set[str]:
        """The names whose memory the value of an expression may share."""
        if isinstance(node, ast.Name):
            return {node.id} - self.modules.keys()
        if isinstance(node, (ast.Constant, ast.BinOp, ast.Compare, ast.JoinedStr, ast.Lambda)):
            return set()
        if isinstance(node, ast.Attribute) and node.attr in METADATA:
            return set()
        if isinstance(node, ast.Call):
            path = _called(node)
            if path[-1] in FRESH | self.ours or self._module(path).startswith(COURSE):
                return set()
            if isinstance(node.func, ast.Attribute) and path[0] in self.ours:
                return set()
            if isinstance(node.func, ast.Attribute) and path[0] not in self.modules:
                return self._shared(node.func.value)
            return set().union(*map(self._shared, [*node.args, *node.keywords]), set())
        if isinstance(node, ast.IfExp):
            return self._shared(node.body) | self._shared(node.orelse)
        if isinstance(node, ast.Subscript):
            return self._shared(node.value)
        if isinstance(node, COMPREHENSIONS):
            own = {name for part in node.generators for name in _names(part.target)}
            shared = set().union(*map(self._shared, _results(node)))
            iterated = self._shared(node.generators[0].iter) if shared & own else set()
            return shared - own | iterated
        return set().union(*map(self._shared, ast.iter_child_nodes(node)), set())

    # Taint

    def kinds(self, node: ast.AST) -> Kinds:
        """The taint of a value; a condition alone passes none on."""
        if isinstance(node, ast.Name):
            if node.id in self.state.kinds:
                return self.state.kinds[node.id]
            return self.remote.get(node.id, NONE)
        if isinstance(node, ast.IfExp):
            return self.kinds(node.body) | self.kinds(node.orelse)
        if isinstance(node, COMPREHENSIONS):
            return self._of_comprehension(node)
        inside = NONE.union(*map(self.kinds, ast.iter_child_nodes(node)), NONE)
        if isinstance(node, ast.Attribute):
            if node.attr in METADATA:
                return inside - {TOUCHED}
            if node.attr == "trace" and inside:
                return inside - {STUDENT} | {COUNTED}
            return inside | ({REPORTED} if node.attr in SELF_REPORTED and inside else NONE)
        if isinstance(node, ast.Call):
            return self._of_call(node, inside)
        return inside

    def _of_call(self, call: ast.Call, inside: Kinds) -> Kinds:
        path = _called(call)
        module = self._module(path)
        if path[-1] == "getattr" and len(call.args) > 1:
            name = getattr(call.args[1], "value", None)
            if inside and (name is None or name in SELF_REPORTED):
                return inside | {REPORTED}
        if path[-1] in PROVED and module.startswith(COURSE):
            return NONE
        if inside and (module, path[-1]) in reporting():
            inside |= {REPORTED}
        if self._is_launch(call):
            return frozenset({COUNTED})
        return inside - {CALLABLE, KERNEL}

    def _of_comprehension(self, node: Any) -> Kinds:
        """Its own names hide others of the same name."""
        outside = copy.deepcopy(self.state)
        for part in node.generators:
            self._assign_items(part.target, part.iter)
        kinds = NONE.union(*map(self.kinds, _results(node)))
        kinds |= NONE.union(*(self.kinds(part.iter) for part in node.generators))
        self.state = outside
        return kinds

    def _problem(self, text: str, node: ast.AST) -> None:
        self.problems.append(f"{text}: {ast.unparse(node)}")


def problems(lab: Lab, check: Cell) -> list[str]:
    """The flows in a check from the student's side to what it wants."""
    remote = {
        name: frozenset({STUDENT, CALLABLE}) | ({KERNEL} if _is_kernel(cell) else NONE)
        for cell in lab.cells
        if cell.tags & {"hole", "driver"}
        for name in cell.names
    }
    setup = "\n".join(cell.source for cell in lab.cells if "setup" in cell.tags)
    ours = {name for cell in lab.cells if "setup" in cell.tags for name in cell.names}
    flow = Flow(remote, ours, scored=bool(check.points))
    for node in ast.parse(setup).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            flow.imports(node)
    return flow.run(check.source)


def _is_kernel(cell: Cell) -> bool:
    return any(decorator in cell.source for decorator in KERNELS)


@functools.cache
def reporting() -> frozenset[tuple[str, str]]:
    """(module, function) of those in the labs' `expected` that read what a rank reports of itself.

    They read it from what they are given, or they call one that does.
    """
    functions: dict[tuple[str, str], ast.FunctionDef] = {}
    for module in compared_with():
        path = ROOT / f"{module.replace('.', '/')}.py"
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                functions[module, node.name] = node
    found = {key for key, node in functions.items() if _reads_a_report(node)}
    grown = True
    while grown:
        callers = {
            (module, name)
            for (module, name), node in functions.items()
            if any((module, _called(call)[-1]) in found for call, _ in _calls(node, lambdas=True))
        }
        grown, found = bool(callers - found), found | callers
    return frozenset(found)


def _reads_a_report(function: ast.FunctionDef) -> bool:
    """Whether a function reads such an attribute of one of its parameters."""
    given = {
        node.arg
        for node in ast.walk(function.args)
        if isinstance(node, ast.arg) and node.annotation
        if any(kind in ast.unparse(node.annotation) for kind in ("Trace", "Result"))
    }
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in SELF_REPORTED - TIMES_OF_MESSAGES
        and _path(node)[0] in given
        for node in ast.walk(function)
    )


def _function_of(module: str, name: str) -> Any:
    """A function of the course; None for all else."""
    if not module.startswith(COURSE):
        return None
    try:
        function = getattr(importlib.import_module(module), name)
        inspect.signature(function)
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    return function


def _names(target: ast.AST) -> list[str]:
    """The names that an assignment to this changes."""
    if isinstance(target, (ast.Subscript, ast.Attribute, ast.Starred)):
        return _names(target.value)
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """(target, value) of each part of an assignment to a tuple."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        return [(target, value)]
    is_star = any(isinstance(part, ast.Starred) for part in target.elts)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        stars = [part for part in (*target.elts, *value.elts) if isinstance(part, ast.Starred)]
        if not stars:
            return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)] if is_star else [(part, value) for part in target.elts]


def _results(node: Any) -> list[ast.expr]:
    """What a comprehension collects."""
    return [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all in it, without what stands in a lambda, which is for pictures."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda):
            yield from _inside(child)


def _calls(
    node: ast.AST, lambdas: bool = False, own: tuple[ast.comprehension, ...] = ()
) -> list[tuple[ast.Call, tuple[ast.comprehension, ...]]]:
    """The calls in an expression, each with the comprehensions in which it stands."""
    found = [(node, own)] if isinstance(node, ast.Call) else []
    if isinstance(node, COMPREHENSIONS):
        own = (*own, *node.generators)
    for child in ast.iter_child_nodes(node):
        if lambdas or not isinstance(child, ast.Lambda):
            found += _calls(child, lambdas, own)
    return found


def _path(node: ast.AST) -> list[str]:
    """["oracle", "agree_view"] of oracle.agree_view; it begins with "" if that is no name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return parts[::-1]


def _called(call: ast.Call) -> list[str]:
    """The path of what is called."""
    return _path(call.func)
