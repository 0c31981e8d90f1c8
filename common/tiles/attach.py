"""Where we hold on to Triton's interpreter: all that we use of what is private to it stands in this module.

While a launch is counted, the interpreter's memory operations and tl.dot go through a recorder of ours. What the interpreter
gets wrong is mended once and for all, for launches that nobody counts, too: bf16, which it holds as integers and computes with
as such, and loops over numbers known only at run time under NumPy 2.4.
"""

import sys
from contextlib import contextmanager

import numpy as np

from common.kernels.errors import KernelError
from common.tiles import undefined
from common.tiles.undefined import Undefined, values_of

NEEDED = (
    "InterpreterBuilder",
    "InterpretedFunction",
    "TensorHandle",
    "ReduceScanOpInterface",
    "ReduceOps",
    "interpreter_builder",
    "interpreter_semantic",
    "_implicit_cvt",
    "_patch_lang",
    "_patch_lang_tensor",
    "_get_np_dtype",
)
ELEMENTWISE = (
    "create_splat",
    "create_unsplat",
    "create_erf",
    "create_umulhi",
    "create_fp_to_fp",
)  # none of NumPy's functions
OPERATIONS = (
    "create_masked_load",
    "create_masked_store",
    "create_atomic_rmw",
    "create_atomic_cas",
    "create_dot",
    "create_fma",
    "binary_op",
    "unary_op",
    "ternary_op",
    "cast_impl",
    "set_grid_idx",
    "set_grid_dim",
    *ELEMENTWISE,
)
DTYPES = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float64": "float64",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "bool": "int1",
    "float8_e5m2": "float8e5",
    "float8_e4m3fn": "float8e4nv",
}
KERNEL_FILE = "<kernel "  # what the name of the file of a kernel's code begins with


def interprets():
    """Whether Triton, in this process, interprets kernels."""
    try:
        import triton
    except ImportError as error:
        raise RuntimeError(
            f"Triton cannot be imported ({error}); it is made for Linux: pip install triton"
        ) from error
    return bool(triton.knobs.runtime.interpret)


def interpreter():
    """Triton's interpreter module, mended; RuntimeError where it is not one that we know."""
    import triton

    try:
        from triton.runtime import interpreter as module
    except ImportError as error:
        raise RuntimeError(_unknown(triton, str(error))) from error
    missing = [name for name in NEEDED if not hasattr(module, name)]
    missing += [
        name for name in OPERATIONS if not missing and not hasattr(module.InterpreterBuilder, name)
    ]
    if missing:
        raise RuntimeError(_unknown(triton, f"it has no {', '.join(missing)}"))
    if not hasattr(module, "_mended_for_the_course"):
        mend(module)
        module._mended_for_the_course = True
    return module


def _unknown(triton, why) -> str:
    return f"the counters know the interpreters of Triton 3.6 and 3.7, and cannot attach to Triton {triton.__version__}: {why}"


# --- a launch


def pointer(argument):
    """The tl.tensor that stands for an array's address in a kernel."""
    import triton.language as tl

    if argument.dtype not in DTYPES:
        raise KernelError(
            f"{argument.name} has dtype {argument.dtype}; Triton takes {', '.join(DTYPES)}"
        )
    kind = tl.pointer_type(getattr(tl, DTYPES[argument.dtype]))
    return tl.tensor(
        interpreter().TensorHandle(np.array([argument.address], np.uint64), kind), kind
    )


def descriptor(base, shape, strides, block_shape, padding):
    """The tensor descriptor that stands in a kernel for one made by the host. base: as pointer returns it."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    host = TensorDescriptor.__new__(
        TensorDescriptor
    )  # its checks, of a tensor, were made by the caller
    vars(host).update(
        base=base, shape=shape, strides=strides, block_shape=block_shape, padding=padding
    )
    return interpreter()._implicit_cvt(host)


def number(value):
    """The tl.tensor of a number that a kernel is given; None stays None."""
    return interpreter().interpreter_semantic.to_tensor(value, False)


def run(built, values, grid, programs, recorder) -> None:
    """Runs these programs of a Built kernel, in this order. values: {parameter: tl.tensor or constant}."""
    module = interpreter()
    builder = module.interpreter_builder
    with attached(module, built, recorder), np.errstate(all="ignore"):
        builder.set_grid_dim(*grid)
        for program in programs:
            builder.set_grid_idx(*program)
            recorder.begin(program)
            built.loops.turns = 0
            built.kernel.fn(**values)


@contextmanager
def attached(module, built, recorder):
    """Triton's language interpreted, and its memory operations and tl.dot recorded."""
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import min_dot_size

    builder = module.interpreter_builder
    scopes = [module._patch_lang(built.kernel.fn), module._patch_lang(tl.sum.fn)]
    scopes[0].set_attr(tl.tensor, "__bool__", _truth)
    scopes[0].set_attr(module.InterpretedFunction, "__call__", _call)
    smallest = builder.codegen_fns["min_dot_size"]
    builder.codegen_fns["min_dot_size"] = min_dot_size(GPUTarget("cuda", 90, 32))
    hooks = Hooks(module, recorder, built.sources)
    vars(builder).update({name: getattr(hooks, name) for name in Hooks.NAMES})
    try:
        yield
    finally:
        for name in Hooks.NAMES:
            delattr(builder, name)
        builder.codegen_fns["min_dot_size"] = smallest
        for scope in reversed(scopes):
            scope.restore()


def _call(self, *arguments, **options):
    """A call of one jitted function by another; the language is patched already."""
    return self.rewrite()(*arguments, **options)


def _truth(self):
    """Whether a number is not zero. Triton's own code may ask a block; a kernel may not."""
    data = self.handle.data
    if data.size == 1:
        return bool(data.item())
    if sys._getframe(1).f_code.co_filename.startswith(KERNEL_FILE):
        raise KernelError(
            f"a block of shape {tuple(data.shape)} is neither true nor false: use tl.where, or a mask"
        )
    return True


class Hooks:
    """The builder's operations that touch memory, and tl.dot: recorded, then done as the builder does them."""

    NAMES = (
        "create_masked_load",
        "create_masked_store",
        "create_atomic_rmw",
        "create_atomic_cas",
        "create_dot",
    )

    def __init__(self, module, recorder, sources) -> None:
        self._handle, self._builder = module.TensorHandle, module.InterpreterBuilder
        self._self, self._recorder, self._sources = module.interpreter_builder, recorder, sources

    def create_masked_load(self, pointers, mask, other, *options, **more):
        places, held = self._places("load", pointers, mask)
        plain = None if other is None else self._handle(values_of(other.data), other.dtype)
        loaded = self._builder.create_masked_load(self._self, places, mask, plain, *options, **more)
        if held is not None:
            if other is None:
                loaded.data[~held] = undefined.poison(loaded.data.dtype)
                loaded.data = Undefined(
                    loaded.data, ~held, self._cause("loads masked-off elements without other=")
                )
            elif isinstance(other.data, Undefined):
                loaded.data = undefined.defined_or_not(
                    loaded.data, ~held & other.data.marks, other.data.cause
                )
        return loaded

    def create_masked_store(self, pointers, value, mask, *options, **more):
        places, held = self._places("store", pointers, mask)
        return self._builder.create_masked_store(
            self._self, places, self._stored(value, held), mask, *options, **more
        )

    def create_atomic_rmw(self, operation, pointers, value, mask, *options):
        places, held = self._places("atomic", pointers, mask)
        old = self._builder.create_atomic_rmw(
            self._self, operation, places, self._stored(value, held), mask, *options
        )
        if held is not None:
            old.data = Undefined(
                old.data,
                ~held,
                self._cause("updates no masked-off element, and gives nothing for it"),
            )
        return old

    def create_atomic_cas(self, pointers, *values_and_options):
        places, _ = self._places("atomic", pointers)
        values = [self._stored(value, None) for value in values_and_options[:2]]
        return self._builder.create_atomic_cas(self._self, places, *values, *values_and_options[2:])

    def create_dot(self, a, b, *options):
        *batch, rows, depth = a.data.shape
        self._recorder.dot(
            2 * int(np.prod(batch, initial=1)) * rows * depth * b.data.shape[-1], self._where()
        )
        return self._builder.create_dot(self._self, a, b, *options)

    def _places(self, kind, pointers, mask=None):
        """(The pointers as addresses in this process, the mask as an array or None where nothing is masked off)."""
        if mask is not None:
            mask = (
                mask.data if isinstance(mask, self._handle) else mask
            )  # of descriptors and block pointers an array
            if isinstance(mask, Undefined):
                mask.refuse(f"the mask of this {kind} depends on undefined elements")
            mask = np.broadcast_to(mask.astype(bool, copy=False), pointers.data.shape)
            mask = None if mask.all() else mask
        undefined.check(
            pointers.data, mask, f"the address of this {kind} depends on undefined elements"
        )
        addresses = np.asarray(values_of(pointers.data))
        itemsize = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        return self._handle(
            self._recorder.access(kind, addresses, mask, itemsize, self._where()), pointers.dtype
        ), mask

    def _stored(self, value, mask):
        """A value on its way to memory."""
        undefined.check(value.data, mask, "what goes to memory here depends on undefined elements")
        return self._handle(values_of(value.data), value.dtype)

    def _cause(self, what) -> str:
        source, line = self._where()
        return f"line {line} (`{source.line(line)}`) {what}"

    def _where(self):
        frame = sys._getframe(2)
        while not (source := self._sources.get(frame.f_code.co_filename)):
            frame = frame.f_back
        return source, frame.f_lineno


# --- what the interpreter gets wrong


def mend(module) -> None:
    """Puts the interpreter right where it computes something else than a GPU does, in this process and from now on."""
    import triton.language as tl

    builder, handle = module.InterpreterBuilder, module.TensorHandle
    bf16 = tl.bfloat16
    binary, unary, ternary, cast = (
        builder.binary_op,
        builder.unary_op,
        builder.ternary_op,
        builder.cast_impl,
    )
    fma, dot, rmw = builder.create_fma, builder.create_dot, builder.create_atomic_rmw
    patch_tensor = module._patch_lang_tensor

    def is_bf16(thing):
        return thing.dtype.scalar == bf16

    def wide(thing):
        return handle(from_bf16(thing.data), tl.float32) if is_bf16(thing) else thing

    def narrow(data):
        return handle(data if data.dtype == bool else to_bf16(data), bf16)

    def binary_op(self, left, right, operation):
        if is_bf16(left) and operation not in BITWISE:
            return narrow(operation(from_bf16(left.data), from_bf16(right.data)))
        return binary(self, left, right, operation)

    def unary_op(self, argument, operation):
        return (
            narrow(operation(from_bf16(argument.data)))
            if is_bf16(argument)
            else unary(self, argument, operation)
        )

    def ternary_op(self, first, second, third, operation):
        if is_bf16(third) and operation is not np.where:
            return narrow(operation(*(from_bf16(each.data) for each in (first, second, third))))
        return ternary(self, first, second, third, operation)

    def create_fma(self, x, y, z):
        return (
            narrow(fma(self, wide(x), wide(y), wide(z)).data) if is_bf16(z) else fma(self, x, y, z)
        )

    def create_dot(self, a, b, *options):
        return dot(self, wide(a), wide(b), *options)

    def cast_impl(self, source, kind):
        if kind.scalar == bf16 and not is_bf16(source):
            return handle(to_bf16(source.data.astype(np.float32)), bf16)
        return (
            cast(self, wide(source), kind)
            if kind.scalar != tl.float32 or not is_bf16(source)
            else wide(source)
        )

    def create_atomic_rmw(self, operation, pointers, value, *options):
        if is_bf16(value):
            raise KernelError("the interpreter has no atomic operations on bf16; a GPU has")
        return rmw(self, operation, pointers, value, *options)

    def apply(self, values):
        """A reduction or scan: of bf16 in float32; undefined where an element that it takes in is."""
        given = values if isinstance(values, tuple) else (values,)
        if not any(
            is_bf16(each.handle) or isinstance(each.handle.data, Undefined) for each in given
        ):
            return reduced(self, values)
        semantic = module.interpreter_semantic
        plain = (
            tl.tensor(handle(values_of(each.handle.data), each.handle.dtype), each.type)
            for each in given
        )
        plain = tuple(
            semantic.cast(each, tl.float32) if is_bf16(each.handle) else each for each in plain
        )
        done = reduced(self, plain)
        done = tuple(
            semantic.cast(each, bf16) if is_bf16(was.handle) else each
            for each, was in zip(done, given, strict=True)
        )
        own = self.combine_fn.fn.__code__.co_filename.startswith(
            KERNEL_FILE
        )  # which may well choose what is defined
        if not own and any(isinstance(each.handle.data, Undefined) for each in given):
            marks, cause = undefined.either([each.handle.data for each in given])
            marks = (
                undefined.reduced(marks, self.axis, self.keep_dims)
                if hasattr(self, "keep_dims")
                else undefined.scanned(marks, self.axis, self.reverse)
            )
            for each in done:
                each.handle.data = undefined.defined_or_not(each.handle.data, marks, cause)
        return done if isinstance(values, tuple) else done[0]

    reduced = module.ReduceScanOpInterface.apply

    def sum_(self, block):
        """A sum that wraps, as on a GPU; to_tensor refuses a whole number that outgrew its dtype."""
        data = block.handle.data
        return self.to_tensor(
            np.sum(data, axis=self.axis, keepdims=self.keep_dims, dtype=data.dtype), block.dtype
        )

    def patch_lang_tensor(tensor, scope) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def followed(method):
        """A method of the builder, element by element, whose result is undefined where an argument is."""

        def follow(self, *arguments):
            given = [getattr(each, "data", None) for each in arguments]
            if not any(isinstance(each, Undefined) for each in given):
                return method(self, *arguments)
            plain = (
                handle(each.data.values, each.dtype) if isinstance(data, Undefined) else each
                for each, data in zip(arguments, given, strict=True)
            )
            result = method(self, *plain)
            return handle(Undefined(result.data, *undefined.either(given)), result.dtype)

        return follow

    for name in ELEMENTWISE:
        setattr(builder, name, followed(getattr(builder, name)))
    for method in (
        binary_op,
        unary_op,
        ternary_op,
        create_fma,
        create_dot,
        cast_impl,
        create_atomic_rmw,
    ):
        setattr(builder, method.__name__, method)
    builder.get_bf16 = lambda self, value: handle(to_bf16(np.array([value], np.float32)), bf16)
    module.ReduceScanOpInterface.apply, module.ReduceOps.sum = apply, sum_
    module._patch_lang_tensor = patch_lang_tensor


BITWISE = {np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.left_shift, np.right_shift}


def from_bf16(bits):
    """The float32 numbers that these bf16 bits stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bf16(numbers):
    """The bits of the bf16 numbers that are nearest, the even one of two, as a GPU rounds."""
    bits = numbers.astype(np.float32, order="C").view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(numbers), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(
        np.uint16
    )
