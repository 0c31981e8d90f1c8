"""From a kernel's syntax tree to the Python that runs it: types are inferred, accesses counted, barriers made switches.

This is a small compiler. Like Numba it translates a kernel once for the types of its arguments (here also for their
shapes, the grid and the block), follows the type of each variable along the paths of the program, and joins types where
paths meet. The kernel

    i = cuda.grid(1)
    if i < out.size:
        out[i] = 2 * x[i]

becomes a function that one thread runs; with counting on, it notes at each access which instruction this was (a number for
the thread and the iterations of the loops around it) and which place in memory:

    v_i = (bx * 128 + tx)
    if (v_i < 1000):
        keys1.append(k0)                                             # the thread came here,
        if not (v_i < 1000): raise Outside('x', (v_i,), (1000,))
        t1 = v_x + v_i
        keys2.append(k0)
        places2.append(t1)                                           # read this place,
        t2 = global_cells[t1]
        f32[0] = (2.0 * t2)                                          # multiplied and rounded to float32 ...
        t3 = f32[0]

kernel.translated(grid, block, *arguments) returns this text for any kernel.
"""

import ast
from collections import Counter
from dataclasses import replace

from common.simt import dtypes
from common.simt.calls import Calls
from common.simt.dtypes import Array, Tuple
from common.simt.expressions import OPERATORS, converted, variable

JUMPS = (ast.Return, ast.Break, ast.Continue)


class Translator(Calls):
    """Translates the statements of one function for one set of argument types."""

    def __init__(self, program, function, version) -> None:
        super().__init__()
        self.program, self.function, self.version = program, function, version
        self.env = {}  # the type of each variable at this point; None where no path leads here
        self.known = {}  # (number known before the run, span) of variables that are assigned in one place only
        self.loops = []  # of each loop around this point: (environments at continue, environments at break)
        self.returns, self.returns_nothing = (
            [],
            False,
        )  # (type, codes, node, slot) of each return of a value
        self.target = ""  # the name that this statement assigns to
        self.path, self.key = "p0", "k0"
        self.run = None

    # steps count into the stretch of instructions that is being written
    steps = property(
        lambda self: self.run.steps, lambda self, value: setattr(self.run, "steps", value)
    )

    def count_flop(self) -> None:
        """One more floating-point operation in this line of the stretch that is being written."""
        self.run.flops[self.line] = self.run.flops.get(self.line, 0) + 1

    def translate(self, types):
        """Writes the function; the type that it returns."""
        node = self.function.node
        parameters = self.function.parameters
        stored = Counter(
            name.id
            for name in ast.walk(node)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        )
        self.locals = {*parameters, *stored}
        self.single = {
            name for name, count in stored.items() if count == 1 and name not in parameters
        }
        self.env = dict(zip(parameters, types, strict=True))
        names = [
            variable(name, i)
            for name, kind in self.env.items()
            for i in range(len(dtypes.leaves(kind)))
        ]
        self.line = node.lineno
        self.emit(f"def call{self.version}({', '.join(['c', 'p0', *names])}):")
        with self.indented():
            self.emit("t, tx, ty, tz, bx, by, bz, local_cells = c")
            if self.program.counting:
                self.emit("k0 = p0 + t")
            self.open_run(node, "run")
            self.statements(node.body)
            return self._join_returns()

    def _join_returns(self):
        if not self.returns:
            return None
        if self.env is not None or self.returns_nothing:
            self.refuse(
                self.function.node,
                "every path through a device function that returns a value must return one",
            )
        kind = self.returns[0][0]
        for other, _, node, _ in self.returns[1:]:
            kind = self._joined_type(kind, other, "what is returned", node)
        for have, codes, node, slot in self.returns:
            codes = [
                converted(*each)
                for each in zip(codes, dtypes.leaves(have), dtypes.leaves(kind), strict=True)
            ]
            slot.append(
                (
                    f"return {codes[0] if len(codes) == 1 else '(' + ', '.join(codes) + ')'}",
                    node.lineno,
                )
            )
        return kind

    def statements(self, nodes) -> None:
        for node in nodes:
            if self.env is None:
                return
            self.line = node.lineno
            getattr(self, f"_{type(node).__name__}")(node)

    # --- counting where threads go

    def open_run(self, node, kind):
        """A stretch of instructions begins here: whoever comes by is noted, and what is written next counts into it."""
        self.run = self.program.site(self, node, kind)
        self.run.steps, self.run.flops = 0, {}
        if self.program.counting:
            self.emit(f"keys{self.run.number}.append({self.key})")
        return self.run

    # --- statements

    def _Pass(self, node) -> None:
        pass

    def _Expr(self, node) -> None:
        if isinstance(node.value, ast.Call):
            self.meaning(node.value)

    def _Assign(self, node) -> None:
        self.target = node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
        if isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple):
            values = self._separate_values(node)
        else:
            values = [self._steady(node, self.exact(self.expression(node.value)))]
        for target in node.targets:
            self._assign(target, values, node)
        self.target = ""

    def _steady(self, node, value):
        """The value in names of its own where several targets take it, so that the first does not change the second."""
        if len(node.targets) == 1 and not isinstance(node.targets[0], ast.Tuple):
            return value
        return replace(value, codes=tuple(self.temporary(code) for code in value.codes))

    def _separate_values(self, node):
        """The values of a, b = x, y, which may be arrays, all computed before the first is assigned."""
        values, names = [], node.targets[0].elts
        for i, item in enumerate(node.value.elts):
            self.target = names[i].id if i < len(names) and isinstance(names[i], ast.Name) else ""
            values.append(self._steady(node, self.exact(self.expression(item))))
        return values

    def _assign(self, target, values, node) -> None:
        if isinstance(target, ast.Tuple):
            if len(values) == 1 and isinstance(values[0].type, Tuple):
                values = self.items(values[0])
            if len(values) != len(target.elts):
                self.refuse(
                    node, f"{len(target.elts)} names on the left, {len(values)} values on the right"
                )
            for part, value in zip(target.elts, values, strict=True):
                self._assign(part, [value], node)
        elif isinstance(target, ast.Name):
            value = values[0] if len(values) == 1 else self._tuple(values)
            if value.type is None:
                self.refuse(node, f"`{ast.unparse(node.value)}` gives no value")
            for i, code in enumerate(value.codes):
                self.emit(f"{variable(target.id, i)} = {code}")
            self.env[target.id] = value.type
            if target.id in self.single:
                always = (
                    self.depth == 1
                )  # in a branch it may never be assigned, and using it is then an error
                self.known[target.id] = value.constant if always else None, value.span
        elif isinstance(target, ast.Subscript):
            self._store(target, values[0], node)
        else:
            self.refuse(node, "a kernel assigns to names and to elements of arrays")

    def _store(self, target, value, node) -> None:
        base = self.expression(target.value)
        if not isinstance(base.type, Array) or isinstance(target.slice, ast.Slice):
            self.refuse(node, f"`{ast.unparse(target)}` is no element of an array")
        indices = self.indices(target, base, target.slice)
        if len(indices) != len(base.type.shape):
            self.refuse(node, f"`{ast.unparse(target)}` needs {len(base.type.shape)} indices")
        self.store(target, base, indices, value)

    def _AugAssign(self, node) -> None:
        operator = OPERATORS[type(node.op)]
        if isinstance(node.target, ast.Name):
            name = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
            value = self.operate(operator, self.number(name), self.number(node.value), node)
            self._assign(node.target, [self.exact(value)], node)
            return
        base = self.expression(node.target.value)
        if not isinstance(base.type, Array) or isinstance(node.target.slice, ast.Slice):
            self.refuse(node, f"`{ast.unparse(node.target)}` is no element of an array")
        indices = self.indices(node.target, base, node.target.slice)
        if len(indices) != len(base.type.shape):
            self.refuse(node, f"`{ast.unparse(node.target)}` needs {len(base.type.shape)} indices")
        old = self.load(node.target, base, indices)
        value = self.operate(operator, old, self.number(node.value), node)
        self.store(node.target, base, indices, value)

    def _Return(self, node) -> None:
        if node.value is None or (
            isinstance(node.value, ast.Constant) and node.value.value is None
        ):
            self.returns_nothing = True
            self.emit("return")
        else:
            value = self.exact(self.expression(node.value))
            self.returns.append((value.type, value.codes, node, self.slot()))
        self.env = None

    def _If(self, node) -> None:
        test = self.truth(self.number(node.test), node.test)
        self.steps += 1
        before, run = dict(self.env), self.run
        self.emit(f"if {test}:")
        with self.indented():
            stay = self._arm(node.body, node, "stay")
        then_env, then_slot = self.env, self.last_slot
        self.env = before
        self.emit("else:")
        with self.indented():
            stay.partner = self._arm(node.orelse, node, "leave")
        self.env = self._meet([(then_env, then_slot), (self.env, self.last_slot)], node)
        self.run = run
        if self.env is not None and any(isinstance(part, JUMPS) for part in ast.walk(node)):
            self.open_run(node, "run")  # not everyone who was here before is here now

    def _arm(self, statements, node, kind):
        run = self.open_run(node, kind)
        self.statements(statements)
        self.last_slot = self.slot()
        return run

    def _While(self, node) -> None:
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)

        def write(loop) -> None:
            self.emit("while True:")
            with self.indented():
                self._iteration(loop)
                if not endless:
                    self.open_run(node, "run")
                    test = self.truth(self.number(node.test), node.test)
                    self.steps += 1
                    self.emit(f"if not {self.simple(test)}:")
                    with self.indented():
                        leave = self._leave(node, loop, self.key)
                        self.emit("break")
                stay = self.open_run(node, "stay")
                stay.partner = None if endless else leave
                self.steps += endless
                self._body(node, loop)

        self._loop(node, write)

    def _For(self, node) -> None:
        kind, counted, span = (
            self._over_range if isinstance(node.iter, ast.Call) else self._over_tuple
        )(node.iter)
        name = node.target.id
        if name in self.single:
            self.known[name] = None, span

        def write(loop) -> None:
            self.emit(f"for {variable(name)} in {counted}:")
            with self.indented():
                self._iteration(loop)
                self.env[name] = kind
                stay = self.open_run(node, "stay")
                self.steps += 1
                self._body(node, loop)
            self.emit("else:")
            with self.indented():
                self.env = dict(loop.head)
                key = f"d{loop.number}[n{loop.number} + 1] + t" if self.program.counting else ""
                stay.partner = self._leave(node, loop, key)

        self._loop(node, write)

    def _over_range(self, node):
        """(type of its numbers, what Python loops over, their span) of range(...)."""
        values = [self.number(argument) for argument in node.args]
        if not 1 <= len(values) <= 3 or node.keywords:
            self.refuse(node, "range takes 1 to 3 numbers")
        if not all(dtypes.is_integer(value.type) for value in values):
            self.refuse(
                node,
                f"range takes whole numbers, and `{ast.unparse(node)}` has "
                f"{next(value.type for value in values if not dtypes.is_integer(value.type))}",
            )
        kind = _range_type([value.type for value in values])
        values = [self.atom(self.cast(value, kind)) for value in values]
        return kind, f"range({', '.join(value.code for value in values)})", _range_span(values)

    def _over_tuple(self, node):
        """The same of a tuple, whose numbers have one type, as Numba wants it."""
        value = self.expression(node)
        if not isinstance(value.type, Tuple):
            self.refuse(
                node,
                "a loop is over range(...) or a tuple, and "
                f"`{ast.unparse(node)}` is {dtypes.describe(value.type)}",
            )
        items = [self.atom(item) for item in self.items(value)]
        kind, *others = dict.fromkeys(item.type for item in items)
        if others:
            self.refuse(
                node,
                f"a loop is over numbers of one type, and `{ast.unparse(node)}` has {kind} and {others[0]}",
            )
        span = (
            (min(item.span[0] for item in items), max(item.span[1] for item in items))
            if dtypes.is_integer(kind)
            else None
        )
        return kind, f"({', '.join(item.code for item in items)},)", span

    def _loop(self, node, write) -> None:
        """Writes a loop, again and again until the types of its variables at its head no longer change."""
        before, outer = dict(self.env), (self.path, self.key, self.run)
        entry = self.slot()
        loop = Loop(self.unique(), dict(before))
        while True:
            self.path, self.key, self.run = outer
            self.line = node.lineno
            with self.captured() as block:
                loop.back, loop.out = [], []
                self.loops.append(loop)
                self.env = dict(loop.head)
                if self.program.counting:
                    self.emit(f"d{loop.number} = paths[{self.path}]; n{loop.number} = -1")
                write(loop)
                self.loops.pop()
            head = self._joined_environment([before, *(env for env, _ in loop.back)], node)
            if head == loop.head:
                break
            loop.head = head
        self._convert(before, head, entry)
        for env, slot in loop.back:
            self._convert(env, head, slot)
        self.block.extend(block)
        self.path, self.key, self.run = outer
        self.env = self._meet(loop.out, node)
        if self.env is not None and any(isinstance(part, ast.Return) for part in ast.walk(node)):
            self.open_run(node, "after")

    def _iteration(self, loop) -> None:
        """At the top of each iteration: its number, and with it the key of what this thread does in it."""
        if self.program.counting:
            number = loop.number
            self.emit(
                f"n{number} += 1; p{number} = d{number}[n{number}]; k{number} = p{number} + t"
            )
            self.path, self.key = f"p{number}", f"k{number}"

    def _body(self, node, loop) -> None:
        self.statements(node.body)
        if self.env is not None:
            loop.back.append((self.env, self.slot()))

    def _leave(self, node, loop, key):
        """Where a loop ends because its condition does: noted, so that lanes that leave early are seen."""
        run = self.program.site(self, node, "leave")
        if self.program.counting:
            self.emit(f"keys{run.number}.append({key})")
        loop.out.append((dict(self.env), self.slot()))
        return run

    def _Break(self, node) -> None:
        self._in_loop(node)
        self.loops[-1].out.append((self.env, self.slot()))
        self.emit("break")
        self.env = None

    def _in_loop(self, node) -> None:
        if not self.loops:
            self.refuse(node, f"{ast.unparse(node)} stands outside of a loop")

    def _Continue(self, node) -> None:
        self._in_loop(node)
        self.loops[-1].back.append((self.env, self.slot()))
        self.emit("continue")
        self.env = None

    # --- where paths meet

    def _meet(self, paths, node):
        """The types where these paths (environment, slot) meet; each converts what it must in its slot."""
        paths = [(env, slot) for env, slot in paths if env is not None]
        if not paths:
            return None
        joined = self._joined_environment([env for env, _ in paths], node)
        for env, slot in paths:
            self._convert(env, joined, slot)
        return joined

    def _joined_environment(self, environments, node):
        joined = {}
        for env in environments:
            for name, kind in env.items():
                joined[name] = (
                    self._joined_type(joined[name], kind, name, node) if name in joined else kind
                )
        return joined

    def _joined_type(self, first, second, name, node):
        if first == second:
            return first
        if isinstance(first, str) and isinstance(second, str):
            return dtypes.common(first, second)
        if (
            isinstance(first, Tuple)
            and isinstance(second, Tuple)
            and len(first.items) == len(second.items)
        ):
            return Tuple(
                tuple(dtypes.common(*pair) for pair in zip(first.items, second.items, strict=True))
            )
        if isinstance(first, Array) and isinstance(second, Array):
            self.refuse(
                node,
                f"{name} is another kind of array on each path that meets here; dtype, memory and shape must "
                "agree",
            )
        self.refuse(
            node,
            f"{name} is {dtypes.describe(first)} on one path and {dtypes.describe(second)} on another",
        )

    def _convert(self, have, want, slot) -> None:
        for name, kind in have.items():
            for i, (old, new) in enumerate(
                zip(dtypes.leaves(kind), dtypes.leaves(want[name]), strict=True)
            ):
                code = variable(name, i)
                if converted(code, old, new) != code:
                    slot.append((f"{code} = {converted(code, old, new)}", self.line))


class Loop:
    """A loop that is being written: the types at its head, and the paths back to it and out of it."""

    def __init__(self, number, head) -> None:
        self.number, self.head, self.back, self.out = number, head, [], []


def _range_span(values):
    """(smallest, largest) number that range(*values) counts through."""
    (low, high), *rest = [value.span for value in values]
    if not rest:
        return 0, max(high - 1, 0)
    step = values[2].constant if len(values) == 3 else 1
    if step is not None and step > 0:
        return low, max(rest[0][1] - 1, low)
    return min(low, rest[0][0]), max(high, rest[0][1])


def _range_type(kinds) -> str:
    if all(kind in ("bool", "int8", "int16", "int32", "uint8", "uint16") for kind in kinds):
        return "int32"
    return "uint64" if all(kind.startswith("u") for kind in kinds) else "int64"
