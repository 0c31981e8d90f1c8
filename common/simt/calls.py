"""What a kernel may call: cuda.*, math.*, a few built-in functions, dtypes as conversions, and device functions."""

import ast
import math

from common.simt import arithmetic, dtypes
from common.simt.dtypes import Array, Tuple
from common.simt.expressions import (
    Expressions,
    Static,
    Value,
    constant,
    dtype_name,
    either,
    held,
    integer,
)

AXES = "xyz"
VOTES = {"all_sync": "bool", "any_sync": "bool", "eq_sync": "bool", "ballot_sync": "int32"}
SHUFFLES = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")
WHOLE = ("int32", "int64", "uint32", "uint64")
ATOMIC_TYPES = {
    **dict.fromkeys(
        ("add", "sub", "max", "min", "nanmax", "nanmin"), (*WHOLE, "float32", "float64")
    ),
    **dict.fromkeys(("and_", "or_", "xor", "exch", "cas", "compare_and_swap"), WHOLE),
    **dict.fromkeys(("inc", "dec"), ("uint32", "uint64")),
}
KNOWN_OF_CUDA = (
    "grid, gridsize, the indices, shared, local, const, atomic, syncthreads and its kin, syncwarp, shfl_*_sync, "
    "the votes, popc, clz, ffs and brev"
)
FENCES = ("threadfence", "threadfence_block", "threadfence_system")
BITS = {"popc": "count_ones", "clz": "leading_zeros", "ffs": "first_one", "brev": "reversed_bits"}
OF_NUMPY = {"minimum": "min", "maximum": "max", "abs": "abs", "power": "pow"}
ABSENT = {
    "activemask": "which lanes are active together is for the hardware to say; give the mask that you mean",
    "lanemask_lt": "write (1 << cuda.laneid) - 1",
}


class Calls(Expressions):
    """Translates calls; adds to Expressions what a kernel has names for."""

    def coordinate(self, dotted):
        """The value of cuda.threadIdx.x and its kin, or None."""
        program, (_, _, rest) = self.program, dotted.partition("cuda.")
        if rest == "laneid":
            return integer("(t & 31)", "int32", (0, 31))
        if rest == "warpsize":
            return constant(32, "int32")
        name, _, axis = rest.rpartition(".")
        if len(axis) != 1 or axis not in AXES:
            return None
        block, grid = program.block[AXES.index(axis)], program.grid[AXES.index(axis)]
        code, low, high = {
            "threadIdx": (f"t{axis}", 0, block - 1),
            "blockIdx": (f"b{axis}", 0, grid - 1),
            "blockDim": (str(block), block, block),
            "gridDim": (str(grid), grid, grid),
        }.get(name, (None, 0, 0))
        return code and integer(code, "int32", (low, high))

    def _Call(self, node):
        callee = self.meaning(node.func)
        if not isinstance(callee, Static) or callee.kind == "module":
            self.refuse(node, f"`{ast.unparse(node.func)}` is no function")
        if callee.kind == "dtype":
            (value,) = self.numbers(node, 1)
            return self.cast(value, callee.name)
        if callee.kind == "function":
            return self.call_device_function(node, callee.thing)
        module, _, name = callee.name.rpartition(".")
        if module == "math" and (name in arithmetic.FUNCTIONS or name in arithmetic.TESTS):
            return self._math(node, name)
        method = getattr(self, "_call_" + callee.name.replace(".", "_"), None)
        if method:
            return method(node)
        if module == "cuda":
            return self._cuda(node, name)
        if module == "cuda.atomic" and name in ATOMIC_TYPES:
            return self._atomic(node, name)
        instead = OF_NUMPY.get(name, f"math.{name}" if name in arithmetic.FUNCTIONS else "")
        if module == "numpy" and instead:
            self.refuse(
                node,
                f"{callee.name} is not known to the simulator; a thread has single numbers: {instead}(...)",
            )
        self.refuse(
            node,
            f"{callee.name} is not known to the simulator; it knows the thread's indices, shared, local and "
            "constant arrays, barriers, atomics, warp shuffles and votes, and the functions of math",
        )

    def arguments(self, node, names):
        """The nodes of a call's arguments by name; all are wanted."""
        given = dict(zip(names, node.args, strict=False))
        for keyword in node.keywords:
            if keyword.arg not in names or keyword.arg in given:
                self.refuse(node, f"`{ast.unparse(node.func)}` takes ({', '.join(names)})")
            given[keyword.arg] = keyword.value
        if len(node.args) > len(names) or len(given) != len(names):
            self.refuse(
                node,
                f"`{ast.unparse(node.func)}` takes ({', '.join(names)}), and "
                f"{len(node.args) + len(node.keywords)} arguments were given",
            )
        return [given[name] for name in names]

    def numbers(self, node, *counts):
        """The values of a call's arguments, all numbers, of one of these counts."""
        if node.keywords or len(node.args) not in counts:
            self.refuse(
                node,
                f"`{ast.unparse(node.func)}` takes {' or '.join(map(str, counts))} arguments, without names",
            )
        return [self.number(argument) for argument in node.args]

    def whole(self, node, value, what):
        """Code of a value that must be a whole number."""
        if not dtypes.is_integer(value.type) or value.type == "bool":
            self.refuse(
                node,
                f"{what} is a whole number, and this is {value.type}; convert it with int(...)",
            )
        return self.exact(value).code

    # --- built-in functions and math

    def _call_len(self, node):
        (argument,) = self.arguments(node, ["array"])
        value = self.expression(argument)
        if isinstance(value.type, Tuple):
            return constant(len(value.type.items), "int64")
        if not isinstance(value.type, Array):
            self.refuse(node, "len is for arrays")
        return self.lengths(value)[0]

    def _call_range(self, node) -> None:
        self.refuse(node, "range belongs into `for name in range(...)`")

    def _call_int(self, node):
        (value,) = self.numbers(node, 1)
        return self.cast(value, value.type if value.type in dtypes.INTEGERS else "int64")

    def _call_float(self, node):
        (value,) = self.numbers(node, 1)
        return value if value.type in dtypes.FLOATS else self.cast(value, "float64")

    def _call_bool(self, node):
        (value,) = self.numbers(node, 1)
        return self.cast(value, "bool")

    def _call_abs(self, node):
        (value,) = self.numbers(node, 1)
        self.steps += 1
        if value.type in dtypes.FLOATS:
            return Value(value.type, (f"abs({value.code})",))
        kind = "int64" if value.type == "bool" else value.type
        value = self.exact(value)
        return self.cast(
            integer(f"abs({value.code})", "int64", (0, max(map(abs, value.span)))), kind
        )

    def _call_round(self, node):
        (value,) = self.numbers(node, 1)
        self.steps += 1
        return integer(self.temporary(f"rounded({self.exact(value).code})"))

    def _call_pow(self, node):
        left, right = self.numbers(node, 2)
        return self.operate("**", left, right, node)

    def _call_min(self, node):
        return self._extreme(node, "minimum")

    def _call_max(self, node):
        return self._extreme(node, "maximum")

    def _extreme(self, node, name):
        if len(node.args) < 2:
            self.refuse(
                node, f"{node.func.id} takes two numbers or more; over an array, write a loop"
            )
        result, *others = self.numbers(node, len(node.args))
        for other in others:
            self.steps += 1
            kind = dtypes.common(result.type, other.type)
            first, second = (self._joined(self.exact(side), kind) for side in (result, other))
            span = either(result, other)
            if span:
                choose = min if name == "minimum" else max
                span = choose(result.span[0], other.span[0]), choose(result.span[1], other.span[1])
            result = Value(kind, (self.temporary(f"{name}({first}, {second})"),), None, span)
        return result

    def _math(self, node, name):
        values = self.numbers(node, 2 if name in arithmetic.OF_TWO else 1)
        self.steps += 1
        if name in arithmetic.TESTS:
            return integer(f"{name}({self.cast(values[0], 'float64').code})", "bool")
        self.count_flop()
        if len(values) == 1 and values[0].type == "float16":
            self.refuse(
                node,
                f"math.{name} does not take a float16; convert it, float32({ast.unparse(node.args[0])})",
            )
        kind = values[0].type if values[0].type == "float32" else "float64"
        if len(values) == 2:
            kind = dtypes.of_function(name, values[0].type, values[1].type)
        codes = ", ".join(self.cast(value, kind).code for value in values)
        return self.rounded(f"math_{name}({codes})", kind)

    # --- cuda.*

    def _call_cuda_grid(self, node):
        grid, block = self.program.grid, self.program.block
        return self._over_axes(
            node,
            lambda axis, i: integer(
                f"(b{axis} * {block[i]} + t{axis})", span=(0, grid[i] * block[i] - 1)
            ),
        )

    def _call_cuda_gridsize(self, node):
        sizes = [
            grid * block for grid, block in zip(self.program.grid, self.program.block, strict=True)
        ]
        return self._over_axes(
            node, lambda axis, i: integer(str(sizes[i]), span=(sizes[i], sizes[i]))
        )

    def _over_axes(self, node, value):
        (count,) = self.numbers(node, 1)
        if type(count.constant) is not int or not 1 <= count.constant <= 3:
            self.refuse(node, f"`{ast.unparse(node.func)}` takes 1, 2 or 3, written as a number")
        values = [value(axis, i) for i, axis in enumerate(AXES[: count.constant])]
        return values[0] if len(values) == 1 else self._tuple(values)

    def _cuda(self, node, name):
        if name in VOTES:
            mask, predicate = self.numbers(node, 2)
            if not dtypes.is_integer(predicate.type):
                self.refuse(
                    node,
                    f"the predicate of cuda.{name} is a whole number or a bool, and this is {predicate.type}",
                )
            return self._exchange(node, name, mask, predicate, VOTES[name])
        if name in SHUFFLES:
            return self._shuffle(node, name)
        if name in ("match_any_sync", "match_all_sync"):
            mask, value = self.numbers(node, 2)
            return self._exchange(
                node,
                name,
                mask,
                value,
                "int32" if name == "match_any_sync" else Tuple(("int32", "bool")),
            )
        if name in BITS:
            return self._bits(node, name)
        if name in FENCES:
            self.numbers(node, 0)
            self.steps += 1
            self.program.fences = True
            if self.program.counting:
                self.emit(f"fence({name != 'threadfence_block'})")
            return Value(None, ())
        advice = ABSENT.get(name, f"it knows {KNOWN_OF_CUDA}")
        self.refuse(node, f"cuda.{name} is not known to the simulator; {advice}")

    def _bits(self, node, name):
        (value,) = self.numbers(node, 1)
        self.steps += 1
        code = self.whole(node, value, f"the argument of cuda.{name}")
        width = dtypes.itemsize(value.type) * 8
        if name == "brev":  # Numba's takes a uint64, or what is left of anything else in 32 bits
            width = 64 if value.type == "uint64" else 32
        result = self.temporary(f"{BITS[name]}({code}, {width})")
        return integer(
            result,
            {"brev": "uint64" if width == 64 else "uint32", "ffs": "uint32"}.get(name, value.type),
        )

    # --- waiting for each other

    def suspend(self, node, name, *codes):
        """The thread stops here and hands these values to the scheduler; code of what it gets back."""
        self.steps += 1
        self.program.suspends = True
        site = self.program.site(self, node, "wait", array=name)
        return self.temporary(f"suspend(({', '.join([str(site.number), self.path, *codes])},))")

    def _call_cuda_syncthreads(self, node):
        self.numbers(node, 0)
        self.suspend(node, "syncthreads")
        return Value(None, ())

    def _counting_barrier(self, node):
        (predicate,) = self.numbers(node, 1)
        name = node.func.attr
        return integer(
            self.suspend(node, name, self.whole(node, predicate, f"the predicate of cuda.{name}")),
            "int32",
        )

    _call_cuda_syncthreads_count = _call_cuda_syncthreads_and = _call_cuda_syncthreads_or = (
        _counting_barrier
    )

    def _call_cuda_syncwarp(self, node):
        mask = self.numbers(node, 0, 1)
        self.program.exchanges = True
        self.suspend(node, "syncwarp", self._mask(node, *mask) if mask else str(2**32 - 1))
        return Value(None, ())

    def _mask(self, node, mask) -> str:
        return f"{self.whole(node, mask, 'the mask of lanes')} & 4294967295"

    def _exchange(self, node, name, mask, value, kind, *codes):
        self.program.exchanges = True
        code = self.exact(value).code
        result = self.suspend(node, name, self._mask(node, mask), code, *codes)
        if isinstance(kind, Tuple):
            return held(kind, f"{result}[0]", f"{result}[1]")
        return held(kind, result)

    def _shuffle(self, node, name):
        mask, value, other = self.numbers(node, 3)
        if value.type not in ("int32", "int64", "float32", "float64"):
            self.refuse(
                node,
                f"cuda.{name} moves int32, int64, float32 and float64, and this is {value.type}; convert it",
            )
        source = self.whole(node, other, f"the third argument of cuda.{name}")
        return self._exchange(node, name, mask, value, value.type, source)

    # --- atomics

    def _atomic(self, node, name):
        names = ["ary", "idx", "val"]
        if name in ("cas", "compare_and_swap"):
            names = ["ary", "idx", "old", "val"] if name == "cas" else ["ary", "old", "val"]
        given = dict(zip(names, self.arguments(node, names), strict=True))
        base = self.expression(given["ary"])
        if (
            not isinstance(base.type, Array)
            or base.type.space not in ("global", "shared")
            or not base.type.writable
        ):
            self.refuse(node, f"cuda.atomic.{name} works on an array in global or shared memory")
        if base.type.dtype not in ATOMIC_TYPES[name]:
            self.refuse(
                node,
                f"cuda.atomic.{name} works on {', '.join(ATOMIC_TYPES[name])}, and this array holds "
                f"{base.type.dtype}",
            )
        indices = self.indices(node, base, given.get("idx", ast.Constant(0, lineno=node.lineno)))
        if len(indices) != len(base.type.shape):
            self.refuse(
                node, f"cuda.atomic.{name} needs {len(base.type.shape)} indices here, as a tuple"
            )
        operands = [
            self.cast(self.number(given[key]), base.type.dtype)
            for key in ("old", "val")
            if key in given
        ]
        access = self.program.kept(
            node, ast.copy_location(ast.Subscript(given["ary"], given.get("idx")), node)
        )
        place = self.place(access, base, indices, "atomic")
        cells = f"{base.type.space}_cells"
        old = self.temporary(f"{cells}[{place}]")
        self.check_written(access, base, place, old)
        old = held(base.type.dtype, old)
        new = self.cast(self._updated(name, old, operands, node), base.type.dtype)
        self.emit(f"{cells}[{place}] = {new.code}")
        return old

    def _updated(self, name, old, operands, node):
        """The value that an atomic leaves behind."""
        value, kind = operands[-1], old.type
        operator = {"add": "+", "sub": "-", "and_": "&", "or_": "|", "xor": "^"}.get(name)
        if operator:
            return self.operate(operator, old, value, node)
        if name in ("max", "min", "nanmax", "nanmin"):
            return Value(
                kind, (f"{name.removeprefix('nan')}imum({old.code}, {value.code})",), None, old.span
            )
        if name in ("cas", "compare_and_swap"):
            return Value(
                kind,
                (f"({value.code} if {old.code} == {operands[0].code} else {old.code})",),
                None,
                old.span,
            )
        if name == "inc":
            return Value(
                kind, (f"(0 if {old.code} >= {value.code} else {old.code} + 1)",), None, old.span
            )
        if name == "dec":
            return Value(
                kind,
                (f"({value.code} if not 0 < {old.code} <= {value.code} else {old.code} - 1)",),
                None,
                old.span,
            )
        return value  # exch

    # --- memory

    def _array_call(self, node):
        shape_node, dtype_node = self.arguments(node, ["shape", "dtype"])
        dtype = self.meaning(dtype_node)
        name = (
            dtype.name
            if isinstance(dtype, Static) and dtype.kind == "dtype"
            else dtype_name(getattr(dtype, "name", ""))
        )
        if not name:
            self.refuse(node, f"`{ast.unparse(dtype_node)}` is no dtype; name one, such as float32")
        shape = self.expression(shape_node).constant
        shape = shape if type(shape) is tuple else (shape,)
        if not all(type(length) is int and length >= 0 for length in shape):
            self.refuse(
                node,
                f"the shape `{ast.unparse(shape_node)}` must be numbers known before the run, each written out "
                "or a constant's name; Numba computes nothing here, so write PITCH = TILE + 1 before the kernel",
            )
        return shape, name

    def _call_cuda_shared_array(self, node):
        shape, dtype = self._array_call(node)
        if shape == (0,):
            count = self.program.dynamic_bytes // dtypes.itemsize(dtype)
            place = self.program.dynamic_place(self, node, dtype)
            return self._fresh_array(dtype, "shared", (count,), place)
        size = math.prod(shape)
        place = self.program.reserve_shared(self, node, shape, dtype, size)
        return self._fresh_array(dtype, "shared", shape, place)

    def _call_cuda_local_array(self, node):
        shape, dtype = self._array_call(node)
        return self._fresh_array(
            dtype, "local", shape, self.program.reserve_local(self, node, dtype, math.prod(shape))
        )

    def _call_cuda_const_array_like(self, node):
        (argument,) = self.arguments(node, ["ary"])
        table = self.meaning(argument)
        if (
            not isinstance(table, Static)
            or table.kind != "table"
            or table.thing.dtype.name not in dtypes.SCALARS
        ):
            self.refuse(
                node, "cuda.const.array_like takes a NumPy array that stands outside of the kernel"
            )
        place = self.program.reserve_constant(self, node, table.name, table.thing)
        return self._fresh_array(table.thing.dtype.name, "constant", table.thing.shape, place)

    def _fresh_array(self, dtype, space, shape, place):
        strides = [1]
        for length in reversed(shape[1:]):
            strides.insert(0, strides[0] * length)
        return Value(Array(dtype, space, tuple(shape), tuple(strides)), (str(place),))

    # --- device functions

    def call_device_function(self, node, function):
        """The value that a device function returns, called here with arguments of these types."""
        values = [
            self.exact(self.expression(argument))
            for argument in self.arguments(node, function.parameters)
        ]
        self.steps += 1
        number, kind = self.program.specialise(
            function, tuple(value.type for value in values), node, self
        )
        codes = [code for value in values for code in value.codes]
        if self.program.counting:
            site = self.program.site(self, node, "call")
            path = f"paths[{self.path}][{-1 - site.number}]"
        else:
            path = "0"
        result = self.temporary(f"call{number}({', '.join(['c', path, *codes])})")
        kinds = dtypes.leaves(kind)
        if len(kinds) == 1:
            return held(kind, result)
        return held(kind, *(self.temporary(f"{result}[{i}]") for i in range(len(kinds))))
