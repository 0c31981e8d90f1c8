"""From a kernel's syntax tree to the Python that runs it.

This is a small compiler. Like Numba it translates a kernel once for the types of its arguments
(here also for their shapes, the grid and the block), follows the type of each variable along the
paths of the program, and joins types where paths meet. The kernel

    i = cuda.grid(1)
    if i < out.size:
        out[i] = 2 * x[i]

becomes a function that one thread runs. If it counts, it logs at each access which instruction
this was (a number for the thread and the iterations of the loops around it) and which place in
memory:

    v_i = (bx * 128 + tx)
    if (v_i < 1000):
        keys1.append(k0)                                  # the thread came here,
        if not (v_i < 1000): raise OutsideError('x', (v_i,), (1000,))
        t1 = v_x + v_i
        keys2.append(k0)
        places2.append(t1)                                # read this place,
        t2 = global_cells[t1]
        f32[0] = (2.0 * t2)                               # multiplied and rounded to float32 ...
        t3 = f32[0]

kernel.translated(grid, block, *arguments) returns this text for any kernel.
"""

import ast
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Never

from nogpu.simt.code import Block, layout
from nogpu.simt.dtypes import Type
from nogpu.simt.frame import Frame
from nogpu.simt.joins import join_returns
from nogpu.simt.program import Function, Kind, Program
from nogpu.simt.statements import Statements
from nogpu.simt.values import variables

MAX_SPECIALISATIONS, MAX_CALLS = 200, 40


class Compiler:
    """Translates a kernel, and the device functions that it calls, into a program."""

    def __init__(self, program: Program, find: Callable[[object], Function | None]) -> None:
        self.program = program
        self._find = find
        self._known: dict[tuple[Function, tuple[Type, ...]], tuple[int, Type]] = {}
        self._calls: list[Function] = []  # that are being translated, the kernel first
        self._texts: list[tuple[Function, Block]] = []

    def compile(self, kernel: Function, types: tuple[Type, ...]) -> None:
        """Write the text of the program."""
        self.specialise(kernel, types, partial(kernel.source.refuse, kernel.node))
        texts = []
        for function, block in self._texts:
            for text, line in layout(block):
                texts.append(text)
                self.program.lines.append((function, line))
        self.program.text = "\n".join(texts) + "\n"

    def find(self, thing: object) -> Function | None:
        """The Function of an object from outside, or None if it is not a device function."""
        return self._find(thing)

    def specialise(
        self, function: Function, types: tuple[Type, ...], refuse: Callable[[str], Never]
    ) -> tuple[int, Type]:
        """The number of a function translated for these types, and the type that it returns."""
        if function in self._calls:
            refuse(f"{function.name} calls itself; a kernel has no recursion, write a loop")
        if len(self._calls) >= MAX_CALLS:
            refuse(f"functions call each other more than {MAX_CALLS} deep")
        key = function, types
        if key not in self._known:
            if len(self._known) >= MAX_SPECIALISATIONS:
                function.source.refuse(
                    function.node,
                    f"the kernel needs more than {MAX_SPECIALISATIONS} versions of functions",
                )
            self._calls.append(function)
            version = len(self._texts)
            frame = self._frame(function, types, version)
            self._texts.append((function, frame.writer.block))
            self._known[key] = version, _translate(frame, types)
            self._calls.pop()
        return self._known[key]

    def _frame(self, function: Function, types: tuple[Type, ...], version: int) -> Frame:
        parameters = function.parameters
        stored = Counter(
            name.id
            for name in ast.walk(function.node)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        )
        once = {name for name, count in stored.items() if count == 1}
        return Frame(
            self.program,
            self,
            function,
            version,
            env=dict(zip(parameters, types, strict=True)),
            names={*parameters, *stored},
            single=once - {*parameters},
        )


def _translate(frame: Frame, types: tuple[Type, ...]) -> Type:
    """Write the function; return the type that it returns."""
    node, writer = frame.function.node, frame.writer
    parameters = zip(frame.function.parameters, types, strict=True)
    names = [code for name, kind in parameters for code in variables(name, kind)]
    writer.line = node.lineno
    writer.emit(f"def call{frame.version}({', '.join(['c', 'p0', *names])}):")
    with writer.indented():
        writer.emit("t, tx, ty, tz, bx, by, bz, local_cells = c")
        if frame.program.counting:
            writer.emit("k0 = p0 + t")
        frame.open_run(node, Kind.RUN)
        Statements(frame).translate(node.body)
        return join_returns(frame)
