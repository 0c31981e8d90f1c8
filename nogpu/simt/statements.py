"""Statements of a kernel: assignments, branches, loops and returns."""

import ast
from collections.abc import Callable, Sequence

from nogpu.simt import dtypes
from nogpu.simt.elements import Element, load, store
from nogpu.simt.expressions import Expressions
from nogpu.simt.frame import Frame, Loop, Path, Return
from nogpu.simt.joins import convert, joined_environment, meet
from nogpu.simt.operators import OPERATORS, atom, cast, exact, operate
from nogpu.simt.program import Kind, Site
from nogpu.simt.values import ArrayValue, Number, TupleValue, Value, tuple_of, variable, variables

JUMPS = ast.Return, ast.Break, ast.Continue


class Statements(ast.NodeVisitor):
    """Translates the statements of one function."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.expressions = Expressions(frame)

    def translate(self, nodes: Sequence[ast.stmt]) -> None:
        """Write these statements, as far as any path leads."""
        for node in nodes:
            if not self.frame.reached:
                return
            self.frame.writer.line = node.lineno
            self.visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        pass

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.expressions.meaning(node.value)

    # Assignments

    def visit_Assign(self, node: ast.Assign) -> None:
        frame, first = self.frame, node.targets[0]
        frame.target = _name(first)
        if isinstance(node.value, ast.Tuple) and isinstance(first, ast.Tuple):
            values = self._separate_values(node, node.value, first)
        else:
            values = [self._kept(node, self.expressions.exact_expression(node.value))]
        for target in node.targets:
            self._assign(target, values, node)
        frame.target = ""

    def _kept(self, node: ast.Assign, value: Value) -> Value:
        """The value in names of its own if several targets take it.

        Otherwise assigning to the first target might change what the second one gets.
        """
        if len(node.targets) == 1 and not isinstance(node.targets[0], ast.Tuple):
            return value
        return value.renamed([self.frame.writer.temporary(code) for code in value.codes])

    def _separate_values(
        self, node: ast.Assign, values: ast.Tuple, targets: ast.Tuple
    ) -> list[Value]:
        """The values of a, b = x, y: all are computed before the first is assigned."""
        kept = []
        for i, item in enumerate(values.elts):
            self.frame.target = _name(targets.elts[i]) if i < len(targets.elts) else ""
            kept.append(self._kept(node, self.expressions.exact_expression(item)))
        return kept

    def _assign(self, target: ast.expr, values: Sequence[Value], node: ast.stmt) -> None:
        if isinstance(target, ast.Tuple):
            if len(values) == 1 and isinstance(values[0], TupleValue):
                values = values[0].items
            if len(values) != len(target.elts):
                self.frame.refuse(
                    node, f"{len(target.elts)} names on the left, {len(values)} values on the right"
                )
            for part, value in zip(target.elts, values, strict=True):
                self._assign(part, [value], node)
        elif isinstance(target, ast.Name):
            self._assign_name(target.id, values, node)
        elif isinstance(target, ast.Subscript):
            store(self.frame, self._element(target, node), values[0])
        else:
            self.frame.refuse(node, "a kernel assigns to names and to elements of arrays")

    def _assign_name(self, name: str, values: Sequence[Value], node: ast.stmt) -> None:
        frame = self.frame
        numbers = [value for value in values if isinstance(value, Number)]
        if len(numbers) < len(values) > 1:
            frame.refuse(node, "a tuple in a kernel holds numbers")
        value = values[0] if len(values) == 1 else tuple_of(numbers)
        if value.type is None:
            text = ast.unparse(node.value) if isinstance(node, ast.Assign) else name
            frame.refuse(node, f"`{text}` gives no value")
        names = variables(name, value.type)
        for variable_name, code in zip(names, value.codes, strict=True):
            frame.writer.emit(f"{variable_name} = {code}")
        frame.env[name] = value.type
        if name in frame.single:
            known = value.renamed(names)
            # In a branch it may never be assigned, and using it is then an error.
            frame.known[name] = known if frame.writer.depth == 1 else known.not_constant()

    def _element(self, target: ast.Subscript, node: ast.stmt) -> Element:
        """The element that an assignment writes."""
        array = self.expressions.expression(target.value)
        if not isinstance(array, ArrayValue) or isinstance(target.slice, ast.Slice):
            self.frame.refuse(node, f"`{ast.unparse(target)}` is not an element of an array")
        element = self.expressions.element(target, array)
        needed = len(array.type.shape)
        if len(element.indices) != needed:
            self.frame.refuse(node, f"`{ast.unparse(target)}` needs {needed} indices")
        return element

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        frame, number = self.frame, self.expressions.number
        operator = OPERATORS[type(node.op)]
        if isinstance(node.target, ast.Subscript):
            element = self._element(node.target, node)
            old = load(frame, element)
            store(frame, element, operate(frame, operator, old, number(node.value), node))
        else:
            old = number(ast.copy_location(ast.Name(_name(node.target), ast.Load()), node))
            value = operate(frame, operator, old, number(node.value), node)
            self._assign(node.target, [exact(frame, value)], node)

    def visit_Return(self, node: ast.Return) -> None:
        frame, value = self.frame, node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            frame.returns_nothing = True
            frame.writer.emit("return")
        else:
            result = self.expressions.exact_expression(value)
            frame.returns.append(Return(result, node, frame.writer.slot()))
        frame.enter(None)

    # Branches

    def visit_If(self, node: ast.If) -> None:
        frame, writer = self.frame, self.frame.writer
        test = self.expressions.truth(node.test)
        frame.step()
        before, run = dict(frame.env), frame.run
        writer.emit(f"if {test}:")
        with writer.indented():
            stay, then = self._arm(node.body, node, Kind.STAY)
        frame.enter(before)
        writer.emit("else:")
        with writer.indented():
            stay.partner, otherwise = self._arm(node.orelse, node, Kind.LEAVE)
        meet(frame, [then, otherwise], node)
        frame.run = run
        if frame.reached and _contains(node, JUMPS):
            frame.open_run(node, Kind.RUN)  # some threads that were here before may not be here now

    def _arm(self, statements: Sequence[ast.stmt], node: ast.If, kind: Kind) -> tuple[Site, Path]:
        run = self.frame.open_run(node, kind)
        self.translate(statements)
        return run, self.frame.path_here()

    # Loops

    def visit_While(self, node: ast.While) -> None:
        frame, writer = self.frame, self.frame.writer
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)

        def write(loop: Loop) -> None:
            writer.emit("while True:")
            with writer.indented():
                self._begin_iteration(loop)
                leave = None
                if not endless:
                    frame.open_run(node, Kind.RUN)
                    test = self.expressions.truth(node.test)
                    frame.step()
                    writer.emit(f"if not {writer.simple(test)}:")
                    with writer.indented():
                        leave = self._leave(node, loop, frame.key)
                        writer.emit("break")
                frame.open_run(node, Kind.STAY).partner = leave
                frame.step(endless)
                self._body(node, loop)

        self._loop(node, write)

    def visit_For(self, node: ast.For) -> None:
        frame, writer = self.frame, self.frame.writer
        name = _name(node.target)
        if isinstance(node.iter, ast.Call):
            counter, numbers = self._over_range(node.iter, name)
        else:
            counter, numbers = self._over_tuple(node.iter, name)
        if name in frame.single:
            frame.known[name] = counter

        def write(loop: Loop) -> None:
            writer.emit(f"for {counter.code} in {numbers}:")
            with writer.indented():
                self._begin_iteration(loop)
                frame.env[name] = counter.type
                stay = frame.open_run(node, Kind.STAY)
                frame.step()
                self._body(node, loop)
            writer.emit("else:")
            with writer.indented():
                frame.enter(dict(loop.head))
                key = f"d{loop.number}[n{loop.number} + 1] + t" if frame.program.counting else ""
                stay.partner = self._leave(node, loop, key)

        self._loop(node, write)

    def _over_range(self, node: ast.Call, name: str) -> tuple[Number, str]:
        """The variable of a loop over range(...), and code of the numbers that it takes."""
        frame = self.frame
        values = [self.expressions.number(argument) for argument in node.args]
        if not 1 <= len(values) <= 3 or node.keywords:
            frame.refuse(node, "range takes 1 to 3 numbers")
        for value in values:
            if not dtypes.is_integer(value.type):
                frame.refuse(
                    node,
                    f"range takes whole numbers, and `{ast.unparse(node)}` has {value.type}",
                )
        kind = dtypes.of_range([value.type for value in values])
        values = [atom(frame, cast(frame, value, kind)) for value in values]
        numbers = f"range({', '.join(value.code for value in values)})"
        return Number(kind, variable(name), None, _range_span(values)), numbers

    def _over_tuple(self, node: ast.expr, name: str) -> tuple[Number, str]:
        """The same for a tuple, whose numbers have one type, as Numba requires."""
        value = self.expressions.expression(node)
        if not isinstance(value, TupleValue):
            self.frame.refuse(
                node,
                "a loop is over range(...) or a tuple, and "
                f"`{ast.unparse(node)}` is {dtypes.describe(value.type)}",
            )
        items = [atom(self.frame, item) for item in value.items]
        kind, *others = dict.fromkeys(item.type for item in items)
        if others:
            self.frame.refuse(
                node,
                f"a loop is over numbers of one type, and `{ast.unparse(node)}` has {kind} and "
                f"{others[0]}",
            )
        spans = [item.span for item in items if item.span]
        span = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
        numbers = f"({', '.join(item.code for item in items)},)"
        return Number(kind, variable(name), None, span), numbers

    def _loop(self, node: ast.For | ast.While, write: Callable[[Loop], None]) -> None:
        """Write a loop, again and again until the types at its head no longer change."""
        frame, writer = self.frame, self.frame.writer
        before, outer = dict(frame.env), (frame.path, frame.key, frame.run)
        entry = writer.slot()
        loop = Loop(writer.unique(), dict(before))
        while True:
            frame.path, frame.key, frame.run = outer
            writer.line = node.lineno
            with writer.captured() as block:
                loop.back, loop.out = [], []
                frame.loops.append(loop)
                frame.enter(dict(loop.head))
                if frame.program.counting:
                    writer.emit(f"d{loop.number} = paths[{frame.path}]; n{loop.number} = -1")
                write(loop)
                frame.loops.pop()
            back = [(path.env, path.slot) for path in loop.back if path.env is not None]
            head = joined_environment(frame, [before, *(env for env, _ in back)], node)
            if head == loop.head:
                break
            loop.head = head
        for env, slot in [(before, entry), *back]:
            convert(frame, env, head, slot)
        writer.block.extend(block)
        frame.path, frame.key, frame.run = outer
        meet(frame, loop.out, node)
        if frame.reached and _contains(node, ast.Return):
            frame.open_run(node, Kind.AFTER)

    def _begin_iteration(self, loop: Loop) -> None:
        """Number the iteration, and with it the key of what this thread does in it."""
        frame, number = self.frame, loop.number
        if frame.program.counting:
            frame.writer.emit(
                f"n{number} += 1; p{number} = d{number}[n{number}]; k{number} = p{number} + t"
            )
            frame.path, frame.key = f"p{number}", f"k{number}"

    def _body(self, node: ast.For | ast.While, loop: Loop) -> None:
        self.translate(node.body)
        if self.frame.reached:
            loop.back.append(self.frame.path_here())

    def _leave(self, node: ast.For | ast.While, loop: Loop, key: str) -> Site:
        """Where the loop's condition ends it: noted, so that lanes that leave early are seen."""
        frame = self.frame
        run = frame.site(node, Kind.LEAVE)
        if frame.program.counting:
            frame.writer.emit(f"keys{run.number}.append({key})")
        loop.out.append(Path(dict(frame.env), frame.writer.slot()))
        return run

    def visit_Break(self, node: ast.Break) -> None:
        self._innermost(node).out.append(self.frame.path_here())
        self.frame.writer.emit("break")
        self.frame.enter(None)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._innermost(node).back.append(self.frame.path_here())
        self.frame.writer.emit("continue")
        self.frame.enter(None)

    def _innermost(self, node: ast.stmt) -> Loop:
        if not self.frame.loops:
            self.frame.refuse(node, f"{ast.unparse(node)} is outside of a loop")
        return self.frame.loops[-1]


def _name(target: ast.expr) -> str:
    """The name that is assigned to, or "" for another target."""
    return target.id if isinstance(target, ast.Name) else ""


def _contains(node: ast.AST, kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> bool:
    return any(isinstance(part, kinds) for part in ast.walk(node))


def _range_span(values: list[Number]) -> dtypes.Span:
    """The smallest and the largest number of range(*values)."""
    spans = [value.span or dtypes.limits(value.type) for value in values]
    low, high = spans[0]
    if len(spans) == 1:
        return 0, max(high - 1, 0)
    step = values[2].constant if len(values) == 3 else 1
    if step is not None and step > 0:
        return low, max(spans[1][1] - 1, low)
    return min(low, spans[1][0]), max(high, spans[1][1])
