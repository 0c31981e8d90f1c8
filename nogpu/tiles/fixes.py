"""What Triton's interpreter gets wrong, put right for every launch in this process.

- It holds bf16 numbers as 16-bit integers, and computes with them as integers.
- What a comparison gives has the dtype of what is compared: a mask that is a number repeated fails.
- A sum of whole numbers that outgrows its dtype is an error; on a GPU it wraps.
- A load of one element takes other=0 for no other at all.
- A method of a block, x.exp(), fails where the function, tl.exp(x), does not.
- The index of the largest of NaNs alone is an error; a maximum of them is a warning.
- Under NumPy 2.4 a loop's bound cannot be a number that is known only at run time.
- For each operation it makes a table of all dtypes, to look one of them up.
- It computes each operation on integers a second time, for a check that it then leaves out.

Only `triton_interpreter.interpreter()` imports this module, once it knows the interpreter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, ReduceScanOpInterface, TensorHandle

from nogpu.kernels.errors import KernelError
from nogpu.tiles import language, once, undefined
from nogpu.tiles.dtypes import from_bf16, to_bf16
from nogpu.tiles.functions import is_kernel_code
from nogpu.tiles.undefined import Marks, Undefined, values_of

LOGICAL = {np.bitwise_and, np.bitwise_or, np.bitwise_xor}
BITWISE = {*LOGICAL, np.left_shift, np.right_shift}
_patch_lang_tensor = interpreter._patch_lang_tensor
_get_np_dtype = interpreter._get_np_dtype
_np_dtypes: dict[str, np.dtype] = {}  # by the name of Triton's
Operation = Callable[..., Any]  # one of NumPy's functions


def install() -> None:
    """Put the classes below where Triton's interpreter looks for its own."""
    use(CourseBuilder())
    semantic = interpreter.interpreter_semantic
    semantic.load = functools.partial(load, semantic.load, semantic)
    interpreter.TritonSemantic = semantic_for  # type: ignore - a function in place of the class
    interpreter.ReduceOps = CourseReduceOps
    interpreter.ScanOps = CourseScanOps
    interpreter._patch_lang_tensor = patch_tensor
    interpreter._get_np_dtype = np_dtype
    once.install(semantic)


def semantic_for(builder: InterpreterBuilder) -> TritonSemantic:
    """The semantic with our fixes: Triton 3.6 makes one for each function of its language."""
    ours = builder is interpreter.interpreter_builder
    return interpreter.interpreter_semantic if ours else TritonSemantic(builder)


def use(builder: CourseBuilder) -> None:
    """Make this the builder that carries out a kernel's operations."""
    interpreter.interpreter_builder = builder
    interpreter.interpreter_semantic.builder = builder


def np_dtype(tt_dtype: tl.dtype) -> np.dtype:
    """NumPy's dtype in which the interpreter holds numbers of this one."""
    name = str(tt_dtype.name)
    if name not in _np_dtypes:
        _np_dtypes[name] = _get_np_dtype(tt_dtype)
    return _np_dtypes[name]


class _Number(tl.tensor):
    """One number that is true even if it is 0, as any number is where Triton asks for one."""

    def __bool__(self) -> bool:
        return True


def load(
    original: Operation, semantic: Any, ptr: Any, mask: Any, other: Any, *rest: Any
) -> tl.tensor:
    """What Triton's load gives, also for one element with other=0."""
    if other is not None and not ptr.type.is_block() and not other.type.is_block():
        kind = ptr.type.scalar.element_ty
        number = semantic.cast(other, tl.int8 if kind == tl.int1 else kind)
        other = _Number(number.handle, number.type)
    return original(ptr, mask, other, *rest)


def is_bf16(handle: TensorHandle) -> bool:
    """Whether the numbers are bf16."""
    return handle.dtype.scalar == tl.bfloat16


def in_float32(handle: TensorHandle) -> TensorHandle:
    """Numbers of bf16 as float32; others as they are."""
    return TensorHandle(from_bf16(handle.data), tl.float32) if is_bf16(handle) else handle


def in_bf16(numbers: np.ndarray) -> TensorHandle:
    """Numbers rounded to bf16; the results of a comparison stay booleans."""
    return TensorHandle(numbers if numbers.dtype == bool else to_bf16(numbers), tl.bfloat16)


class CourseBuilder(InterpreterBuilder):
    """Triton's builder, whose methods compute what a kernel's operations give; with bf16 right."""

    def __init__(self) -> None:
        super().__init__()
        # Overflow is reported under `debug` only, which the interpreter leaves off.
        self.options = replace(self.options, sanitize_overflow=False)

    def get_bf16(self, value: float) -> TensorHandle:
        return in_bf16(np.array([value], np.float32))

    def cast_impl(self, src: TensorHandle, dst_type: tl.dtype) -> TensorHandle:
        numbers = in_float32(src)
        if dst_type.scalar == tl.bfloat16:
            return in_bf16(numbers.data.astype(np.float32))
        return super().cast_impl(numbers, dst_type)

    def unary_op(self, arg: TensorHandle, op: Operation) -> TensorHandle:
        if is_bf16(arg):
            return in_bf16(op(from_bf16(arg.data)))
        return super().unary_op(arg, op)

    def binary_op(self, lhs: TensorHandle, rhs: TensorHandle, op: Operation) -> TensorHandle:
        result = self._of_two(lhs, rhs, op)
        if result.data.dtype == bool:
            result.dtype = tl.int1  # Triton leaves a comparison the dtype of what is compared
        return result

    def _of_two(self, lhs: TensorHandle, rhs: TensorHandle, op: Operation) -> TensorHandle:
        if is_bf16(lhs) and op not in BITWISE:
            return in_bf16(op(from_bf16(lhs.data), from_bf16(rhs.data)))
        if op in LOGICAL and lhs.data.dtype == rhs.data.dtype == bool:
            # Triton 3.9 does it with bytes, in which True | undefined is undefined.
            return TensorHandle(op(lhs.data, rhs.data), tl.int1)
        return super().binary_op(lhs, rhs, op)

    def ternary_op(
        self, lhs: TensorHandle, rhs: TensorHandle, other: TensorHandle, op: Operation
    ) -> TensorHandle:
        if is_bf16(other) and op is not np.where:
            return in_bf16(op(*(from_bf16(handle.data) for handle in (lhs, rhs, other))))
        return super().ternary_op(lhs, rhs, other, op)

    def create_fma(self, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        result = super().create_fma(in_float32(x), in_float32(y), in_float32(z))
        return in_bf16(result.data) if is_bf16(z) else result

    def create_dot(
        self,
        a: TensorHandle,
        b: TensorHandle,
        d: TensorHandle,
        input_precision: Any,
        max_num_imprecise_acc: Any,
    ) -> TensorHandle:
        return super().create_dot(
            in_float32(a), in_float32(b), d, input_precision, max_num_imprecise_acc
        )

    def create_atomic_rmw(
        self,
        rmwOp: Any,
        ptr: TensorHandle,
        val: TensorHandle,
        mask: TensorHandle,
        sem: Any,
        scope: Any,
    ) -> TensorHandle:
        if is_bf16(val):
            raise KernelError("the interpreter has no atomic operations on bf16; a GPU has")
        return super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)


class _CourseOps(ReduceScanOpInterface):
    """A reduction or scan: of bf16 in float32; undefined where an element that goes into it is."""

    def marks_after(self, marks: Marks) -> Marks:
        """Which results are undefined, if these elements are."""
        raise NotImplementedError

    def apply(self, input: Any) -> Any:
        if not isinstance(input, tuple):
            return self.apply((input,))[0]
        handles = [block.handle for block in input]
        arrays = [handle.data for handle in handles]
        some_undefined = any(isinstance(array, Undefined) for array in arrays)
        if not some_undefined and not any(map(is_bf16, handles)):
            return super().apply(input)
        results = super().apply(tuple(map(_plain, input)))
        results = tuple(
            interpreter.interpreter_semantic.cast(result, tl.bfloat16)
            if is_bf16(handle)
            else result
            for result, handle in zip(results, handles, strict=True)
        )
        # A function of the kernel's own may well choose the elements that are defined.
        if some_undefined and not is_kernel_code(self.combine_fn.fn.__code__):
            marks, cause = undefined.either(arrays)
            for result in results:
                result.handle.data = undefined.defined_or_not(
                    result.handle.data, self.marks_after(marks), cause
                )
        return results


def _plain(block: Any) -> tl.tensor:
    """A block in float32 if it is of bf16, and without marks."""
    block = tl.tensor(TensorHandle(values_of(block.handle.data), block.handle.dtype), block.type)
    semantic = interpreter.interpreter_semantic
    return semantic.cast(block, tl.float32) if is_bf16(block.handle) else block


class CourseReduceOps(_CourseOps, interpreter.ReduceOps):
    def marks_after(self, marks: Marks) -> Marks:
        return undefined.reduced(marks, self.axis, self.keep_dims)

    def sum(self, input: tl.tensor) -> tl.tensor:
        """A sum that wraps, as on a GPU."""
        data = input.handle.data
        total = np.sum(data, axis=self.axis, keepdims=self.keep_dims, dtype=data.dtype)
        return self.to_tensor(total, input.dtype)

    def min_max(self, input: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        """The extreme, its index, or both; also of NaNs alone."""
        value, index = (NAN_SAFE.get(op, op) for op in (val_reduce_op, idx_reduce_op))
        return super().min_max(input, value, index)


def _largest_at(data: np.ndarray, **options: Any) -> Any:
    """The index of the largest number; NaN counts as the smallest."""
    return np.argmax(_without_nan(data, -np.inf), **options)


def _smallest_at(data: np.ndarray, **options: Any) -> Any:
    """The index of the smallest number; NaN counts as the largest."""
    return np.argmin(_without_nan(data, np.inf), **options)


def _without_nan(data: np.ndarray, value: float) -> np.ndarray:
    return np.where(np.isnan(data), value, data) if data.dtype.kind == "f" else data


NAN_SAFE = {  # NumPy's own refuse NaNs alone, or warn of them
    np.nanmax: np.fmax.reduce,
    np.nanmin: np.fmin.reduce,
    np.nanargmax: _largest_at,
    np.nanargmin: _smallest_at,
}


class CourseScanOps(_CourseOps, interpreter.ScanOps):
    def marks_after(self, marks: Marks) -> Marks:
        return undefined.scanned(marks, self.axis, self.reverse)


def patch_tensor(tensor: type[tl.tensor], scope: Any) -> None:
    """Patch tl.tensor as Triton does, and for what it forgets: loops' bounds, and .exp()."""
    _patch_lang_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))
    for name in sorted(language.MATH & language.METHODS):
        scope.set_attr(tensor, name, functools.partialmethod(_by_function, name))


def _by_function(block: tl.tensor, name: str, *arguments: Any) -> Any:
    """What a method gives: what tl's function of that name gives."""
    return getattr(tl, name)(block, *arguments)
