"""Expressions of a kernel: each becomes a value, that is a type and the Python code that computes it.

What must happen in order (loads, calls, roundings) is written out as lines of its own, so that the code of a value can
stand anywhere. A whole number may have more than 64 bits inside one expression, since + - * & | ^ and ~ do not mind;
before anything else sees it, `exact` cuts it down to its register.
"""

import ast
import builtins
import math
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from common.simt import arithmetic, dtypes
from common.simt.code import Writer
from common.simt.dtypes import Array, Tuple
from common.simt.language import BUILTINS, DTYPES

OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
CUDA_MODULES = ("numba.cuda", "numba_cuda.numba.cuda", "common.simt.cuda")
MAX_TUPLE = 8
ADVICE = {
    "print": "; what you want to see, write into an array",
    "divmod": "; write a // b and a % b",
    **dict.fromkeys(
        ("sum", "any", "all", "sorted", "map", "zip", "enumerate", "reversed"),
        "; write a loop over range",
    ),
}


@dataclass(frozen=True)
class Value:
    """What an expression computes: its type, the code of its numbers, and what is known of it before the run."""

    type: Any  # a scalar's name, an Array, a Tuple or None
    codes: tuple
    constant: Any = None
    span: Any = None  # (smallest, largest) of a whole number, which may be wider than its type until `exact`

    @property
    def code(self):
        return self.codes[0]


@dataclass(frozen=True)
class Static:
    """What a name stands for that is no value: a module, a dtype, a device function, a built-in name."""

    kind: str
    name: str
    thing: Any = None


def constant(number, kind):
    """The value of a number known before the run."""
    number = arithmetic.cast(number, kind)
    code = repr(number)
    if kind in dtypes.FLOATS and not math.isfinite(number):
        code = "nan" if number != number else "inf" if number > 0 else "(-inf)"
    return Value(
        kind, (code,), number, (int(number), int(number)) if dtypes.is_integer(kind) else None
    )


def held(kind, *codes):
    """The value of this type that these names hold."""
    return Value(kind, codes, None, limits(kind))


def limits(kind):
    """(smallest, largest) value of a type, for each number of a tuple; None where that is not followed."""
    if isinstance(kind, Tuple):
        return tuple(limits(item) for item in kind.items)
    return dtypes.limits(kind) if isinstance(kind, str) and dtypes.is_integer(kind) else None


def integer(code, kind="int64", span=None):
    return Value(kind, (code,), None, span or dtypes.limits(kind))


def either(first, second):
    """The span of a value that is one of these two."""
    if first.span is None or second.span is None:
        return None
    return min(first.span[0], second.span[0]), max(first.span[1], second.span[1])


class Expressions(Writer):
    """Translates expressions; `translate.Translator` adds the statements and `calls.Calls` what a kernel may call."""

    def expression(self, node):
        """The value of an expression."""
        value = self.meaning(node)
        if isinstance(value, Static) and value.kind == "table":
            self.refuse(
                node,
                f"{value.name} is an array from outside: give it as an argument, or read it through "
                f"cuda.const.array_like({value.name})",
            )
        if isinstance(value, Static):
            self.refuse(node, f"{value.name} is not a number here; call it, or take a part of it")
        return value

    def number(self, node):
        """The value of an expression that must be one number."""
        value = self.expression(node)
        if not isinstance(value.type, str):
            self.refuse(
                node,
                f"`{ast.unparse(node)}` is {dtypes.describe(value.type)} where one number is needed",
            )
        return value

    def meaning(self, node):
        """What an expression stands for: a Value or a Static."""
        return getattr(self, f"_{type(node).__name__}")(node)

    def refuse(self, node, sentence) -> None:
        self.function.source.refuse(node, sentence)

    def exact(self, value):
        """The same value in the range of its type: a whole number that outgrew its register wraps."""
        if (
            not isinstance(value.type, str)
            or value.span is None
            or within(value.span, limits(value.type))
        ):
            return value
        name = self.temporary(value.code)
        if value.type == "uint64":
            low, high, rest = 0, arithmetic.SPAN, ", 64, False"
        else:
            low, high, rest = arithmetic.LOW, arithmetic.HIGH, ""
        self.emit(f"if not {low} <= {name} < {high}: {name} = wrap({name}{rest})")
        return integer(name, value.type)

    def atom(self, value):
        """The same number, exact, as a name or a literal."""
        value = self.exact(value)
        return replace(value, codes=(self.simple(value.code),))

    def rounded(self, code, kind):
        """The value of a floating-point operation of this type, done in 64 bits."""
        if kind == "float64":
            return Value(kind, (f"({code})",))
        if kind == "float16":
            return Value(kind, (self.temporary(f"to_float16({code})"),))
        self.emit(f"f32[0] = {code}")
        return Value(kind, (self.temporary("f32[0]"),))

    def cast(self, value, kind):
        """The value converted to another scalar type."""
        if value.constant is not None:
            return constant(value.constant, kind)
        value = self.exact(value)
        if value.type == kind:
            return value
        if kind in dtypes.FLOATS:
            return self._cast_to_float(value, kind)
        if kind == "bool":
            return integer(f"({value.code} != 0)", "bool")
        width, signed = dtypes.itemsize(kind) * 8, not kind.startswith("u")
        if value.type in dtypes.FLOATS:
            return integer(self.temporary(f"truncated({value.code}, {width}, {signed})"), kind)
        if within(value.span, limits(kind)):
            return replace(value, type=kind)
        return integer(self.temporary(f"wrap({value.code}, {width}, {signed})"), kind)

    def _cast_to_float(self, value, kind):
        order = dtypes.FLOATS.index
        if value.type in dtypes.FLOATS and order(value.type) < order(kind):
            return Value(kind, value.codes)
        if kind == "float64":
            return Value(kind, (f"float({value.code})",))
        if kind == "float32" and value.span and not within(value.span, (-(2**53), 2**53)):
            return Value(kind, (self.temporary(f"to_float32({value.code})"),))
        return self.rounded(value.code, kind)

    def truth(self, value, node):
        """Code that is true where the value is."""
        if not isinstance(value.type, str):
            self.refuse(
                node,
                f"`{ast.unparse(node)}` is {dtypes.describe(value.type)}; a condition is a number",
            )
        return self.exact(value).code

    # --- names and constants

    def _Constant(self, node):
        number = node.value
        if number is None:
            self.refuse(node, "None is not a number; a kernel's values are numbers")
        if isinstance(number, bool):
            return constant(number, "bool")
        if isinstance(number, int):
            return constant(number, "int64" if number < arithmetic.HIGH else "uint64")
        return constant(number, "float64")

    def _Name(self, node):
        name = node.id
        if name in self.locals:
            if name not in self.env:
                self.refuse(node, f"{name} has no value yet in this line")
            kind = self.env[name]
            codes = tuple(variable(name, i) for i in range(len(dtypes.leaves(kind))))
            return Value(kind, codes, *self.known.get(name, (None, limits(kind))))
        try:
            thing = self.function.lookup(name)
        except KeyError:
            self.refuse(
                node,
                f"{name} is not defined; a kernel knows its parameters, its variables, constants, device "
                "functions, cuda and math",
            )
        self.program.used.append((self.function, name, thing))
        return self._outside(node, name, thing)

    def _outside(self, node, name, thing):
        """What an object from outside of the kernel means in it."""
        if isinstance(thing, (bool, np.bool_)):
            return constant(bool(thing), "bool")
        if isinstance(thing, (np.integer, np.floating)) and thing.dtype.name in dtypes.SCALARS:
            return constant(thing.item(), thing.dtype.name)
        if type(thing) is int and -(2**63) <= thing < 2**64:
            return constant(thing, "int64" if thing < 2**63 else "uint64")
        if type(thing) is float:
            return constant(thing, "float64")
        if (
            type(thing) is tuple
            and len(thing) <= MAX_TUPLE
            and all(type(item) in (int, float, bool) for item in thing)
        ):
            return self._tuple([self._outside(node, name, item) for item in thing])
        if isinstance(thing, ModuleType):
            return self._module(node, name, thing.__name__)
        if dtype_name(thing):
            return Static("dtype", dtype_name(thing))
        if isinstance(thing, np.ndarray):
            return Static("table", name, thing)
        own_name = getattr(thing, "__name__", None)
        if own_name and getattr(math, own_name, None) is thing:
            return Static("name", f"math.{own_name}")
        if own_name in BUILTINS and getattr(builtins, own_name) is thing:
            return Static("name", own_name)
        if own_name and getattr(builtins, own_name, None) is thing:
            self.refuse(
                node,
                f"{name} is Python's own; a kernel has {', '.join(BUILTINS)}{ADVICE.get(name, '')}",
            )
        function = self.program.device_function(thing)
        if function is None:
            self.refuse(
                node,
                f"{name} is a {type(thing).__name__}; from outside a kernel may use numbers of 64 bits, "
                "dtypes, device functions decorated with @cuda.jit(device=True), cuda and math",
            )
        return Static("function", name, function)

    def _module(self, node, name, module):
        if module in CUDA_MODULES:
            return Static("module", "cuda")
        if module in ("math", "numpy", "numba", "numba.types", "numba.core.types"):
            return Static(
                "module", {"numba.types": "numba", "numba.core.types": "numba"}.get(module, module)
            )
        self.refuse(node, f"a kernel cannot use the module {name}; it has cuda and math")

    def _Attribute(self, node):
        base = self.meaning(node.value)
        if isinstance(base, Static):
            return self._attribute_of_static(node, base)
        if isinstance(base.type, Array):
            return self._attribute_of_array(node, base)
        self.refuse(
            node,
            f"`{ast.unparse(node.value)}` is {dtypes.describe(base.type)} and has no .{node.attr}",
        )

    def _attribute_of_static(self, node, base):
        dotted = f"{base.name}.{node.attr}"
        if dotted in ("numba.cuda", "numba.types"):
            return Static("module", dotted.split(".")[1].replace("types", "numba"))
        if base.name in ("numpy", "numba") and dtype_name(node.attr):
            return Static("dtype", dtype_name(node.attr))
        if base.name in ("numpy", "math") and node.attr in ("pi", "e", "inf", "nan", "tau"):
            return constant(getattr(math, node.attr), "float64")
        value = self.coordinate(dotted)
        return Static("name", dotted) if value is None else value

    def _attribute_of_array(self, node, base):
        array, lengths = base.type, self.lengths(base)
        if node.attr == "shape":
            return self._tuple(lengths)
        if node.attr == "size":
            if None not in array.shape:
                size = math.prod(array.shape)
                return integer(str(size), span=(size, size))
            return integer("(" + " * ".join(length.code for length in lengths) + ")")
        if node.attr == "ndim":
            return constant(len(array.shape), "int64")
        if node.attr == "dtype":
            return Static("dtype", array.dtype)
        self.refuse(
            node, f"an array in a kernel has .shape, .size, .ndim and .dtype, and no .{node.attr}"
        )

    def lengths(self, base):
        """The values of an array's shape."""
        loose = iter(base.codes[1:])
        return [
            integer(next(loose), span=(0, 2**63 - 1))
            if length is None
            else integer(str(length), span=(length, length))
            for length in base.type.shape
        ]

    def _Tuple(self, node):
        items = [self.number(item) for item in node.elts]
        if not 1 <= len(items) <= MAX_TUPLE:
            self.refuse(
                node,
                f"a tuple in a kernel has 1 to {MAX_TUPLE} numbers; for more, cuda.local.array(size, dtype)",
            )
        return self._tuple([self.exact(item) for item in items])

    def _tuple(self, items):
        constants = tuple(item.constant for item in items)
        return Value(
            Tuple(tuple(item.type for item in items)),
            tuple(item.code for item in items),
            None if None in constants else constants,
            tuple(item.span for item in items),
        )

    def items(self, value):
        """The values in a tuple."""
        constants = value.constant or (None,) * len(value.codes)
        return [
            Value(*each)
            for each in zip(
                value.type.items,
                ((code,) for code in value.codes),
                constants,
                value.span,
                strict=True,
            )
        ]

    # --- operators

    def _BinOp(self, node):
        left, right = self.number(node.left), self.number(node.right)
        return self.operate(OPERATORS[type(node.op)], left, right, node)

    def operate(self, operator, left, right, node):
        """The value of `left operator right`."""
        self.steps += 1
        if operator in ("&", "|", "^", "<<", ">>"):
            return self._bitwise(operator, left, right, node)
        kind = dtypes.arithmetic(operator, left.type, right.type)
        if dtypes.is_integer(kind):
            return self._integer_operation(operator, kind, left, right)
        self.count_flop()
        if operator == "**" and isinstance(right.constant, int) and abs(right.constant) <= 0x10000:
            base = self.cast(left, kind)
            return Value(
                kind,
                (self.temporary(f"power_by_squaring({base.code}, {right.constant}, {kind!r})"),),
            )
        if kind != "float16":  # float16 is computed in float64 too, and rounded once
            left, right = (
                side if side.type == "float16" else self.cast(side, kind) for side in (left, right)
            )
        left, right = self.exact(left), self.exact(right)
        if operator in "+-*":
            return self.rounded(f"{left.code} {operator} {right.code}", kind)
        if operator == "/" and right.constant:
            return self.rounded(f"{left.code} / {right.code}", kind)
        if operator == "/":
            over, under = self.atom(left).code, self.atom(right).code
            return self.rounded(f"{over} / {under} if {under} else divide({over}, {under})", kind)
        name = {"//": "floor_divide", "%": "modulo", "**": "math_pow"}[operator]
        return self.rounded(f"{name}({left.code}, {right.code})", kind)

    def _integer_operation(self, operator, kind, left, right):
        if operator in "+-*":
            return integer(
                f"({left.code} {operator} {right.code})",
                kind,
                dtypes.span(operator, left.span, right.span),
            )
        left, right = self.cast(left, kind), self.cast(right, kind)
        if operator == "**":
            return integer(
                self.temporary(f"power_of_integers({left.code}, {right.code})"), kind, (0, 2**64)
            )
        # Python's own rounding, toward minus infinity, is Numba's; a zero below is an error of the thread, told by explain
        name = self.temporary(f"{left.code} {operator} {right.code}")
        return integer(name, kind, dtypes.span(operator, left.span, right.span))

    def _bitwise(self, operator, left, right, node):
        shift = operator in ("<<", ">>")
        kind = dtypes.bitwise(left.type, right.type, shift)
        if kind is None:
            self.refuse(
                node, f"{operator} works on whole numbers; these are {left.type} and {right.type}"
            )
        if not shift:
            return integer(
                f"({left.code} {operator} {right.code})",
                kind,
                dtypes.span(operator, left.span, right.span),
            )
        left, right = self.cast(left, kind), self.exact(right)
        if right.constant is not None and 0 <= right.constant < 64:
            return integer(
                f"({left.code} {operator} {right.constant})",
                kind,
                dtypes.span(operator, left.span, right.span),
            )
        name = "shift_left" if operator == "<<" else "shift_right"
        return integer(
            self.temporary(f"{name}({left.code}, {right.code})"), kind, (-(2**128), 2**128)
        )

    def _UnaryOp(self, node):
        value = self.number(node.operand)
        if isinstance(node.op, ast.Not):
            self.steps += 1
            return integer(f"(not {self.exact(value).code})", "bool")
        whole = dtypes.is_integer(value.type)
        kind = ("uint64" if value.type.startswith("u") else "int64") if whole else value.type
        if isinstance(node.op, ast.USub) and value.constant is not None:
            return constant(-value.constant, kind)
        if isinstance(node.op, ast.UAdd):
            return replace(value, type=kind)
        self.steps += 1
        if not whole:
            if isinstance(node.op, ast.Invert):
                self.refuse(node, f"~ works on whole numbers; this is {value.type}")
            return Value(kind, (f"(-{value.code})",))
        if isinstance(node.op, ast.Invert) and value.type == "bool":
            return integer(f"(not {value.code})", "bool")
        sign, shift = ("-", 0) if isinstance(node.op, ast.USub) else ("~", 1)
        result = integer(
            f"({sign}{value.code})", kind, (-value.span[1] - shift, -value.span[0] - shift)
        )
        if value.type in ("bool", kind):
            return result
        return replace(
            self.cast(result, value.type), type=kind
        )  # Numba does this before it widens: -uint8(1) is 255

    def _Compare(self, node):
        self.steps += len(node.ops)
        sides, blocks = [], []
        for i, side in enumerate((node.left, *node.comparators)):
            with self.captured() as block:
                sides.append(self.exact(self.number(side)))
            if i < 2:
                self.block.extend(block)
            else:
                blocks.append(block)  # computed only if the comparisons before it hold
        if any(dtypes.is_float(side.type) for side in sides):
            sides = [
                self.cast(side, "float64") if dtypes.is_integer(side.type) else side
                for side in sides
            ]
        operators = [COMPARISONS[type(operator)] for operator in node.ops]
        if not any(blocks):
            code = sides[0].code + "".join(
                f" {each} {side.code}" for each, side in zip(operators, sides[1:], strict=True)
            )
            return integer(f"({code})", "bool")
        return self._comparison_in_steps(sides, operators, blocks)

    def _comparison_in_steps(self, sides, operators, blocks):
        """a < b < c[i]: what stands later is loaded only where the comparisons before it hold."""
        middle = self.simple(sides[1].code)
        result = self.temporary(f"{sides[0].code} {operators[0]} {middle}")
        outer = self.block
        for side, operator, block in zip(sides[2:], operators[1:], blocks, strict=True):
            self.emit(f"if {result}:")
            self.block.append(block)
            self.block = block
            code = self.simple(side.code)
            self.emit(f"{result} = {middle} {operator} {code}")
            middle = code
        self.block = outer
        return integer(result, "bool")

    def _BoolOp(self, node):
        self.steps += len(node.values) - 1
        value = self.number(node.values[0])
        for other in node.values[1:]:
            value = self._either(value, other, isinstance(node.op, ast.And), node)
        return value

    def _either(self, first, other, is_and, node):
        """`first and other`: other is computed only where first does not decide."""
        with self.captured() as block:
            second = self.exact(self.number(other))
        kind = dtypes.common(first.type, second.type)
        first = self.exact(first)
        if not block and kind == first.type == second.type:
            return Value(
                kind,
                (f"({first.code} {'and' if is_and else 'or'} {second.code})",),
                None,
                either(first, second),
            )
        result = self.temporary(self._joined(first, kind))
        block.append((f"{result} = {self._joined(second, kind)}", self.line))
        self.emit(f"if {result}:" if is_and else f"if not {result}:")
        self.block.append(block)
        return Value(kind, (result,), None, either(first, second))

    def _IfExp(self, node):
        self.steps += 1
        condition = self.truth(self.number(node.test), node.test)
        with self.captured() as then:
            first = self.exact(self.number(node.body))
        with self.captured() as otherwise:
            second = self.exact(self.number(node.orelse))
        kind, span = dtypes.common(first.type, second.type), either(first, second)
        first, second = self._joined(first, kind), self._joined(second, kind)
        if not then and not otherwise:
            return Value(kind, (f"({first} if {condition} else {second})",), None, span)
        result = f"t{self.unique()}"
        self.emit(f"if {condition}:")
        self.block.append(then)
        then.append((f"{result} = {first}", self.line))
        self.emit("else:")
        self.block.append(otherwise)
        otherwise.append((f"{result} = {second}", self.line))
        return Value(kind, (result,), None, span)

    def _joined(self, value, kind):
        """Code of an exact value where two branches meet in this type."""
        return converted(value.code, value.type, kind)

    # --- elements of arrays

    def _Subscript(self, node):
        base = self.expression(node.value)
        if isinstance(base.type, Tuple):
            return self._item(node, base)
        if not isinstance(base.type, Array):
            self.refuse(
                node,
                f"`{ast.unparse(node.value)}` is {dtypes.describe(base.type)} and cannot be indexed",
            )
        if isinstance(node.slice, ast.Slice):
            return self._slice(node, base)
        indices = self.indices(node, base, node.slice)
        if len(indices) < len(base.type.shape):
            return self._row(node, base, indices)
        return self.load(node, base, indices)

    def _Slice(self, node) -> None:
        self.refuse(
            node,
            "a slice stands alone: a[first:last] of an array of one dimension; a row is a[i], an element a[i, j]",
        )

    def _item(self, node, base):
        index = self.number(node.slice).constant
        items = self.items(base)
        if type(index) is not int or not -len(items) <= index < len(items):
            self.refuse(
                node, f"a tuple of {len(items)} is indexed by a constant from 0 to {len(items) - 1}"
            )
        return items[index]

    def indices(self, node, base, index):
        """The atoms of an index, checked for number and type."""
        value = self.expression(index)
        values = self.items(value) if isinstance(value.type, Tuple) else [value]
        for item in values:
            if (
                not isinstance(item.type, str)
                or not dtypes.is_integer(item.type)
                or item.type == "bool"
            ):
                self.refuse(
                    node,
                    f"an index is a whole number, and `{ast.unparse(index)}` is {dtypes.describe(item.type)}",
                )
        if len(values) > len(base.type.shape):
            self.refuse(
                node,
                f"`{ast.unparse(node)}` has {len(values)} indices for {dtypes.describe(base.type)}",
            )
        return [self.atom(item) for item in values]

    def position(self, node, base, indices):
        """Code of the place in its memory that these indices lead to, after a check that they are inside."""
        lengths = [length.code for length in self.lengths(base)]
        checks = [
            check
            for each in zip(indices, self.lengths(base), strict=False)
            if (check := _inside(*each))
        ]
        if checks:
            numbers = ", ".join(i.code for i in indices)
            self.emit(
                f"if not ({' and '.join(checks)}): "
                f"raise Outside({ast.unparse(node.value)!r}, ({numbers},), ({', '.join(lengths)},))"
            )
        terms = [base.code] + [
            index.code if stride == 1 else f"{index.code} * {stride}"
            for index, stride in zip(indices, base.type.strides, strict=False)
            if stride and index.constant != 0
        ]
        return " + ".join(terms)

    def _row(self, node, base, indices):
        """a[i] of an array of two dimensions: an array of one, at a place further on."""
        array, count = base.type, len(indices)
        place = self.temporary(self.position(node, base, indices))
        row = Array(
            array.dtype, array.space, array.shape[count:], array.strides[count:], array.writable
        )
        return Value(row, (place, *base.codes[1:]))

    def _slice(self, node, base):
        array, cut = base.type, node.slice
        if len(array.shape) != 1 or cut.step is not None:
            self.refuse(
                node,
                "a slice in a kernel is a[first:last] of an array of one dimension; else use indices",
            )
        length = self.lengths(base)[0].code
        low, high = (
            default if part is None else self._bound(node, part)
            for part, default in ((cut.lower, "0"), (cut.upper, length))
        )
        self.emit(
            f"if not 0 <= {low} <= {high} <= {length}: "
            f"raise Outside({ast.unparse(node.value)!r}, (({low}, {high}),), ({length},))"
        )
        place = self.temporary(f"{base.code} + {low} * {array.strides[0]}")
        view = Array(array.dtype, array.space, (None,), array.strides, array.writable)
        return Value(view, (place, self.temporary(f"{high} - {low}")))

    def _bound(self, node, part):
        value = self.number(part)
        if not dtypes.is_integer(value.type):
            self.refuse(
                node,
                f"a slice is bounded by whole numbers, and `{ast.unparse(part)}` is {value.type}",
            )
        return self.atom(value).code

    def load(self, node, base, indices):
        """The value of one element, read here."""
        array, place = base.type, self.place(node, base, indices, "load")
        name = self.temporary(f"{array.space}_cells[{place}]")
        self.check_written(node, base, place, name)
        return held(array.dtype, name)

    def store(self, node, base, indices, value) -> None:
        """Writes one element, converted to the array's type."""
        array = base.type
        if not array.writable or array.space == "constant":
            self.refuse(node, f"`{ast.unparse(node.value)}` can only be read")
        if isinstance(value.type, str):
            code = self.cast(value, array.dtype).code
        else:
            self.refuse(
                node, f"an element is one number, and this is {dtypes.describe(value.type)}"
            )
        place = self.place(node, base, indices, "store")
        self.emit(f"{array.space}_cells[{place}] = {code}")

    def place(self, node, base, indices, kind):
        """Code of an element's place; where it counts, the access is logged."""
        self.steps += 1
        array, place = base.type, self.position(node, base, indices)
        if not self.program.counting or array.space == "local":
            return place if kind != "atomic" else self.simple(place)
        site = self.program.site(
            self, node, kind, space=array.space, dtype=array.dtype, array=ast.unparse(node.value)
        )
        place = self.simple(place)
        self.emit(f"keys{site.number}.append({self.key})")
        self.emit(f"places{site.number}.append({place})")
        return place

    def check_written(self, node, base, place, name) -> None:
        """Shared and local memory holds nothing until something is written: reading that is a mistake."""
        if base.type.space in ("shared", "local"):
            site = self.program.site(
                self,
                node,
                "check",
                space=base.type.space,
                dtype=base.type.dtype,
                array=ast.unparse(node.value),
            )
            self.emit(f"if {name} is None: {name} = unwritten({site.number}, {place})")


ALIASES = {
    "bool": "bool",
    "bool_": "bool",
    "boolean": "bool",
    "intp": "int64",
    "uintp": "uint64",
    "byte": "int8",
}


def dtype_name(thing):
    """The scalar type that an object (np.float32, a dtype, Numba's float32, or such a name) stands for, or ""."""
    if isinstance(thing, str):
        return thing if thing in DTYPES and thing != "bool_" else ALIASES.get(thing, "")
    if isinstance(thing, np.dtype) or (isinstance(thing, type) and issubclass(thing, np.generic)):
        name = np.dtype(thing).name
        return name if name in dtypes.SCALARS else ""
    return (
        dtype_name(str(thing))
        if type(thing).__module__.startswith(("numba.", "numba_cuda."))
        else ""
    )


def within(span, limits):
    """Whether a span lies within these limits."""
    return span is not None and limits[0] <= span[0] and span[1] <= limits[1]


def _inside(index, length) -> str:
    """Code that is true where an index is inside of a length, or "" where that is known before the run."""
    low, high = index.span[0] < 0, index.span[1] >= length.span[0]
    return (
        f"{'0 <= ' if low else ''}{index.code}{f' < {length.code}' if high else ''}"
        if low or high
        else ""
    )


def variable(name, leaf=0) -> str:
    """The name, in the program that runs, of a kernel's variable (of one of its numbers, where it has several)."""
    return f"v{leaf or ''}_{name}"


def converted(code, have, want):
    """Code of a number where branches meet: only a whole number that becomes a floating-point one changes."""
    return f"float({code})" if dtypes.is_integer(have) and dtypes.is_float(want) else code
