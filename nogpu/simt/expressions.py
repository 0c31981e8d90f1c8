"""Expressions of a kernel: what each stands for."""

import ast
from typing import Never

from nogpu.simt import arithmetic, arrays, atomics, dtypes, functions, threads, waits
from nogpu.simt.calls import Call
from nogpu.simt.code import Block
from nogpu.simt.elements import Element, cut, indices, lengths, load, row
from nogpu.simt.frame import Frame
from nogpu.simt.names import MAX_TUPLE, outside, part
from nogpu.simt.operators import OPERATORS, atom, cast, exact, joined, negated, operate
from nogpu.simt.program import Kind
from nogpu.simt.values import (
    ArrayValue,
    Builtin,
    DeviceFunction,
    Dtype,
    Number,
    Static,
    Table,
    TupleValue,
    Value,
    constant,
    either,
    held,
    integer,
    tuple_of,
    variables,
)

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
BUILTINS = {
    **functions.builtin,
    **threads.builtin,
    **waits.builtin,
    **atomics.builtin,
    **arrays.builtin,
}
OF_NUMPY = {"minimum": "min", "maximum": "max", "abs": "abs", "power": "pow"}
ABSENT = {
    "activemask": "only the hardware knows which lanes are active together; give the mask that "
    "you mean",
    "lanemask_lt": "write (1 << cuda.laneid) - 1",
}
OF_CUDA = (
    "it knows grid, gridsize, the indices, shared, local, const, atomic, the barriers "
    "syncthreads and syncwarp, the fences, shfl_*_sync, the votes, popc, clz, ffs and brev"
)


class Expressions(ast.NodeVisitor):
    """Translates the expressions of one function."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def meaning(self, node: ast.expr) -> Value | Static:
        """What an expression stands for."""
        return self.visit(node)

    def expression(self, node: ast.expr) -> Value:
        """The value of an expression; KernelError if it is not a value."""
        value = self.meaning(node)
        if isinstance(value, Table):
            self.frame.refuse(
                node,
                f"{value.name} is an array from outside: give it as an argument, or read it "
                f"through cuda.const.array_like({value.name})",
            )
        if isinstance(value, Static):
            self.frame.refuse(
                node, f"{value.name} is not a number here; call it, or take a part of it"
            )
        return value

    def number(self, node: ast.expr) -> Number:
        """The value of an expression; KernelError if it is not one number."""
        value = self.expression(node)
        if not isinstance(value, Number):
            self.frame.refuse(
                node,
                f"`{ast.unparse(node)}` is {dtypes.describe(value.type)} where one number is "
                "needed",
            )
        return value

    def truth(self, node: ast.expr) -> str:
        """Code that is true if a condition is."""
        return exact(self.frame, self.number(node)).code

    def element(self, node: ast.Subscript, array: ArrayValue) -> Element:
        """The element, or the row, that an array's subscript names."""
        index = self.expression(node.slice)
        places = indices(self.frame, node, array, index, ast.unparse(node.slice))
        return Element(node, ast.unparse(node.value), array, places)

    # Names and constants

    def visit_Constant(self, node: ast.Constant) -> Number:
        value = node.value
        if isinstance(value, bool):
            return constant(value, "bool")
        if isinstance(value, int):
            return constant(value, "int64" if value < arithmetic.HIGH else "uint64")
        if isinstance(value, float):
            return constant(value, "float64")
        self.frame.refuse(node, f"{value} is not a number; a kernel's values are numbers")

    def visit_Name(self, node: ast.Name) -> Value | Static:
        frame, name = self.frame, node.id
        if name in frame.names:
            if name not in frame.env:
                frame.refuse(node, f"{name} has no value yet in this line")
            kind, known = frame.env[name], frame.known.get(name)
            return known if known and known.type == kind else held(kind, variables(name, kind))
        try:
            thing = frame.function.lookup(name)
        except KeyError:
            frame.refuse(
                node,
                f"{name} is not defined; a kernel knows its parameters, its variables, constants, "
                "device functions, cuda and math",
            )
        frame.program.used.append((frame.function, name, thing))
        return outside(frame, node, name, thing)

    def visit_Attribute(self, node: ast.Attribute) -> Value | Static:
        base = self.meaning(node.value)
        if isinstance(base, Static):
            return part(self.frame, base, node.attr)
        if isinstance(base, ArrayValue):
            return self._part_of_array(node, base)
        self.frame.refuse(
            node,
            f"`{ast.unparse(node.value)}` is {dtypes.describe(base.type)} and has no .{node.attr}",
        )

    def _part_of_array(self, node: ast.Attribute, base: ArrayValue) -> Value | Static:
        shape = lengths(base)
        if node.attr == "shape":
            return tuple_of(shape)
        if node.attr == "size":
            size = 1
            for length in base.type.shape:
                if length is None:
                    return integer("(" + " * ".join(number.code for number in shape) + ")")
                size *= length
            return integer(str(size), span=(size, size))
        if node.attr == "ndim":
            return constant(len(shape), "int64")
        if node.attr == "dtype":
            return Dtype(base.type.dtype)
        self.frame.refuse(
            node, f"an array in a kernel has .shape, .size, .ndim and .dtype, and no .{node.attr}"
        )

    def visit_Tuple(self, node: ast.Tuple) -> TupleValue:
        items = [self.number(item) for item in node.elts]
        if not 1 <= len(items) <= MAX_TUPLE:
            self.frame.refuse(
                node,
                f"a tuple in a kernel has 1 to {MAX_TUPLE} numbers; for more, "
                "cuda.local.array(size, dtype)",
            )
        return tuple_of([exact(self.frame, item) for item in items])

    # Operators

    def visit_BinOp(self, node: ast.BinOp) -> Number:
        left, right = self.number(node.left), self.number(node.right)
        return operate(self.frame, OPERATORS[type(node.op)], left, right, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Number:
        return negated(self.frame, self.number(node.operand), node)

    def visit_Compare(self, node: ast.Compare) -> Number:
        frame = self.frame
        frame.step(len(node.ops))
        sides, blocks = [], []
        for i, side in enumerate((node.left, *node.comparators)):
            with frame.writer.captured() as block:
                sides.append(exact(frame, self.number(side)))
            if i < 2:
                frame.writer.block.extend(block)
            else:
                blocks.append(block)  # computed only if the comparisons before it hold
        if any(dtypes.is_float(side.type) for side in sides):
            sides = [
                cast(frame, side, "float64") if dtypes.is_integer(side.type) else side
                for side in sides
            ]
        operators = [COMPARISONS[type(operator)] for operator in node.ops]
        if any(blocks):
            return self._compare_in_steps(sides, operators, blocks)
        code = sides[0].code + "".join(
            f" {operator} {side.code}" for operator, side in zip(operators, sides[1:], strict=True)
        )
        return integer(f"({code})", "bool")

    def _compare_in_steps(
        self, sides: list[Number], operators: list[str], blocks: list[Block]
    ) -> Number:
        """a < b < c[i]: c[i] is loaded only if a < b holds."""
        writer = self.frame.writer
        middle = writer.simple(sides[1].code)
        result = writer.temporary(f"{sides[0].code} {operators[0]} {middle}")
        outer = writer.block
        for side, operator, block in zip(sides[2:], operators[1:], blocks, strict=True):
            writer.emit(f"if {result}:")
            writer.block.append(block)
            writer.block = block
            code = writer.simple(side.code)
            writer.emit(f"{result} = {middle} {operator} {code}")
            middle = code
        writer.block = outer
        return integer(result, "bool")

    def visit_BoolOp(self, node: ast.BoolOp) -> Number:
        self.frame.step(len(node.values) - 1)
        value = self.number(node.values[0])
        for other in node.values[1:]:
            value = self._and_or(value, other, isinstance(node.op, ast.And))
        return value

    def _and_or(self, first: Number, other: ast.expr, is_and: bool) -> Number:
        """`first and other`: other is computed only if first does not decide."""
        frame, writer = self.frame, self.frame.writer
        with writer.captured() as block:
            second = exact(frame, self.number(other))
        kind = dtypes.common(first.type, second.type)
        first = exact(frame, first)
        span = either(kind, first, second)
        if not block and kind == first.type == second.type:
            code = f"({first.code} {'and' if is_and else 'or'} {second.code})"
            return Number(kind, code, None, span)
        result = writer.temporary(joined(frame, first, kind))
        block.append((f"{result} = {joined(frame, second, kind)}", writer.line))
        writer.emit(f"if {result}:" if is_and else f"if not {result}:")
        writer.block.append(block)
        return Number(kind, result, None, span)

    def visit_IfExp(self, node: ast.IfExp) -> Number:
        frame, writer = self.frame, self.frame.writer
        frame.step()
        condition = self.truth(node.test)
        with writer.captured() as then:
            first = exact(frame, self.number(node.body))
        with writer.captured() as otherwise:
            second = exact(frame, self.number(node.orelse))
        kind = dtypes.common(first.type, second.type)
        span = either(kind, first, second)
        codes = joined(frame, first, kind), joined(frame, second, kind)
        if not then and not otherwise:
            return Number(kind, f"({codes[0]} if {condition} else {codes[1]})", None, span)
        result = f"t{writer.unique()}"
        for head, block, code in zip(
            (f"if {condition}:", "else:"), (then, otherwise), codes, strict=True
        ):
            writer.emit(head)
            block.append((f"{result} = {code}", writer.line))
            writer.block.append(block)
        return Number(kind, result, None, span)

    # Elements of arrays

    def visit_Subscript(self, node: ast.Subscript) -> Value:
        base = self.expression(node.value)
        if isinstance(base, TupleValue):
            return self._item(node, base)
        if not isinstance(base, ArrayValue):
            self.frame.refuse(
                node,
                f"`{ast.unparse(node.value)}` is {dtypes.describe(base.type)} and cannot be "
                "indexed",
            )
        if isinstance(node.slice, ast.Slice):
            return self._slice(node, node.slice, base)
        element = self.element(node, base)
        if len(element.indices) < len(base.type.shape):
            return row(self.frame, element)
        return load(self.frame, element)

    def visit_Slice(self, node: ast.Slice) -> Never:
        self.frame.refuse(
            node,
            "a slice stands alone: a[first:last] of an array of one dimension; a row is a[i], an "
            "element a[i, j]",
        )

    def _item(self, node: ast.Subscript, base: TupleValue) -> Number:
        index, count = self.number(node.slice).constant, len(base.items)
        if type(index) is not int or not -count <= index < count:
            self.frame.refuse(
                node, f"a tuple of {count} is indexed by a constant from 0 to {count - 1}"
            )
        return base.items[index]

    def _slice(self, node: ast.Subscript, bounds: ast.Slice, array: ArrayValue) -> ArrayValue:
        if len(array.type.shape) != 1 or bounds.step is not None:
            self.frame.refuse(
                node,
                "a slice in a kernel is a[first:last] of an array of one dimension; otherwise use "
                "indices",
            )
        low = self._bound(node, bounds.lower) if bounds.lower else "0"
        high = self._bound(node, bounds.upper) if bounds.upper else lengths(array)[0].code
        return cut(self.frame, ast.unparse(node.value), array, low, high)

    def _bound(self, node: ast.Subscript, bound: ast.expr) -> str:
        value = self.number(bound)
        if not dtypes.is_integer(value.type):
            self.frame.refuse(
                node,
                f"a slice is bounded by whole numbers, and `{ast.unparse(bound)}` is {value.type}",
            )
        return atom(self.frame, value).code

    # Calls

    def visit_Call(self, node: ast.Call) -> Value:
        callee = self.meaning(node.func)
        if isinstance(callee, Dtype):
            (value,) = Call(self, node, callee.name).numbers(1)
            return cast(self.frame, value, callee.name)
        if isinstance(callee, DeviceFunction):
            return self._call_device_function(Call(self, node, callee.name), callee)
        if isinstance(callee, Builtin):
            if callee.name in BUILTINS:
                return BUILTINS[callee.name](Call(self, node, callee.name))
            self._refuse_unknown(node, callee.name)
        self.frame.refuse(node, f"`{ast.unparse(node.func)}` is not a function")

    def _refuse_unknown(self, node: ast.Call, function: str) -> Never:
        module, _, name = function.rpartition(".")
        instead = OF_NUMPY.get(name, f"math.{name}" if f"math.{name}" in BUILTINS else "")
        advice = (
            "it knows the thread's indices, shared, local and constant arrays, barriers, atomics, "
            "warp shuffles and votes, and the functions of math"
        )
        if module == "cuda":
            advice = ABSENT.get(name, OF_CUDA)
        elif module == "numpy" and instead:
            advice = f"a thread has single numbers: {instead}(...)"
        self.frame.refuse(node, f"{function} is not known to the simulator; {advice}")

    def _call_device_function(self, call: Call, callee: DeviceFunction) -> Value:
        frame, writer, function = self.frame, self.frame.writer, callee.function
        values = [
            self.exact_expression(argument) for argument in call.arguments(function.parameters)
        ]
        frame.step()
        types = tuple(value.type for value in values)
        number, kind = frame.functions.specialise(function, types, call.refuse)
        path = "0"
        if frame.program.counting:
            site = frame.site(call.node, Kind.CALL)
            path = f"paths[{frame.path}][{-1 - site.number}]"
        codes = ", ".join(["c", path, *(code for value in values for code in value.codes)])
        result = writer.temporary(f"call{number}({codes})")
        count = len(dtypes.leaves(kind))
        if count == 1:
            return held(kind, [result])
        return held(kind, [writer.temporary(f"{result}[{i}]") for i in range(count)])

    def exact_expression(self, node: ast.expr) -> Value:
        """The value of an expression; a whole number is reduced to its register."""
        value = self.expression(node)
        return exact(self.frame, value) if isinstance(value, Number) else value
