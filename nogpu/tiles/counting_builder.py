"""What is counted in a launch: what goes to memory, every tl.dot, and integers made floats.

It also follows elements that hold no value (see `undefined`), from the load that left them so.
Only `triton_interpreter.counting()` imports this module, once it knows the interpreter.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import min_dot_size
from triton.runtime.interpreter import TensorHandle

from nogpu.kernels.source import Source
from nogpu.tiles import undefined
from nogpu.tiles.costs import Kind
from nogpu.tiles.counters import Recorder
from nogpu.tiles.fixes import CourseBuilder
from nogpu.tiles.undefined import Undefined, defined_or_not, values_of


class CountingBuilder(CourseBuilder):
    """The builder of one counted launch. sources: of the kernel's functions, by their files."""

    def __init__(self, recorder: Recorder, sources: dict[str, Source]) -> None:
        super().__init__()
        self.codegen_fns["min_dot_size"] = min_dot_size(GPUTarget("cuda", 90, 32))
        self._recorder = recorder
        self._sources = sources

    # Memory, tl.dot, integers that become floats, and how large blocks get: recorded.
    # hints: about caches; Triton 3.9 has one argument for them, older ones have two.

    def create_masked_load(
        self,
        ptrs: TensorHandle,
        mask: Any,
        other: TensorHandle | None,
        *hints: Any,
        **named_hints: Any,
    ) -> TensorHandle:
        addresses, allowed = self._access("load", ptrs, mask)
        filling = None if other is None else TensorHandle(values_of(other.data), other.dtype)
        loaded = super().create_masked_load(addresses, mask, filling, *hints, **named_hints)
        if allowed is not None:
            loaded.data = self._partly_loaded(loaded.data, ~allowed, other)
        return loaded

    def _partly_loaded(
        self, values: np.ndarray, masked: np.ndarray, other: TensorHandle | None
    ) -> Any:
        """Loaded values, of which the masked elements are undefined without a value for them."""
        if other is None:
            values[masked] = undefined.poison(values.dtype)
            cause = self._cause("loads masked-off elements without other=")
            return defined_or_not(values, masked, cause)
        if isinstance(other.data, Undefined):
            return defined_or_not(values, masked & other.data.marks, other.data.cause)
        return values

    def create_masked_store(
        self,
        ptrs: TensorHandle,
        value: TensorHandle,
        mask: Any,
        *hints: Any,
        **named_hints: Any,
    ) -> Any:
        addresses, allowed = self._access("store", ptrs, mask)
        stored = _stored(value, allowed)
        return super().create_masked_store(addresses, stored, mask, *hints, **named_hints)

    def create_atomic_rmw(
        self,
        rmwOp: Any,
        ptr: TensorHandle,
        val: TensorHandle,
        mask: TensorHandle,
        sem: Any,
        scope: Any,
    ) -> TensorHandle:
        addresses, allowed = self._access("atomic", ptr, mask)
        stored = _stored(val, allowed)
        old = super().create_atomic_rmw(rmwOp, addresses, stored, mask, sem, scope)
        if allowed is not None:
            cause = self._cause("updates no masked-off element, and gives nothing for it")
            old.data = defined_or_not(old.data, ~allowed, cause)
        return old

    def create_atomic_cas(
        self, ptr: TensorHandle, cmp: TensorHandle, val: TensorHandle, sem: Any, scope: Any
    ) -> TensorHandle:
        addresses, _ = self._access("atomic", ptr)
        return super().create_atomic_cas(addresses, _stored(cmp), _stored(val), sem, scope)

    def create_dot(
        self,
        a: TensorHandle,
        b: TensorHandle,
        d: TensorHandle,
        input_precision: Any,
        max_num_imprecise_acc: Any,
    ) -> TensorHandle:
        *batch, rows, depth = a.data.shape
        flops = 2 * int(np.prod(batch, initial=1)) * rows * depth * b.data.shape[-1]
        left, right, total = (handle.dtype.scalar for handle in (a, b, d))
        precision = input_precision.name.lower()
        self._recorder.dot(flops, f"{left} × {right} + {total}", precision, self._where())
        return super().create_dot(a, b, d, input_precision, max_num_imprecise_acc)

    def cast_impl(self, src: TensorHandle, dst_type: tl.dtype) -> TensorHandle:
        if src.dtype.scalar.is_int() and dst_type.scalar.is_floating():
            self._recorder.conversions += src.data.size
        return super().cast_impl(src, dst_type)

    def create_select(  # type: ignore - Triton's is a lambda
        self, cond: TensorHandle, lhs: TensorHandle, rhs: TensorHandle
    ) -> TensorHandle:
        self._recorder.selects += lhs.data.size
        return self.ternary_op(cond, lhs, rhs, np.where)

    # Blocks get larger by these alone; all other operations keep a size or reduce it

    def create_make_range(self, ret_ty: tl.dtype, start: int, stop: int) -> TensorHandle:
        return self._noted(super().create_make_range(ret_ty, start, stop))

    def create_broadcast(self, arg: TensorHandle, shape: Any) -> TensorHandle:
        return self._noted(super().create_broadcast(arg, shape))

    def create_cat(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self._noted(super().create_cat(lhs, rhs))

    def create_join(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self._noted(super().create_join(lhs, rhs))

    def _noted(self, handle: TensorHandle) -> TensorHandle:
        """The same handle; its size is recorded."""
        self._recorder.tile(handle.data.size)
        return handle

    def _access(
        self, kind: Kind, pointers: TensorHandle, mask: Any = None
    ) -> tuple[TensorHandle, np.ndarray | None]:
        """Record a request. Returns its addresses in this process, and its mask if it has any."""
        if mask is not None:  # an array if the pointer is a block pointer or a descriptor
            mask = mask.data if isinstance(mask, TensorHandle) else mask
            if isinstance(mask, Undefined):
                mask.refuse(f"the mask of this {kind} depends on undefined elements")
            mask = np.broadcast_to(mask.astype(bool, copy=False), pointers.data.shape)
            mask = None if mask.all() else mask
        what = f"the address of this {kind} depends on undefined elements"
        undefined.check(pointers.data, mask, what)
        wanted = np.asarray(values_of(pointers.data))
        itemsize = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        addresses = self._recorder.access(kind, wanted, mask, itemsize, self._where())
        return TensorHandle(addresses, pointers.dtype), mask

    def _cause(self, what: str) -> str:
        source, line = self._where()
        return f"line {line} (`{source.line(line)}`) {what}"

    def _where(self) -> tuple[Source, int]:
        """The source and the line that the kernel is at."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if source := self._sources.get(frame.f_code.co_filename):
                return source, frame.f_lineno
            frame = frame.f_back
        raise AssertionError("no line of the kernel calls this")

    # Operations that NumPy's functions do not compute: undefined where an argument is

    def create_splat(self, ret_ty: tl.dtype, arg: TensorHandle) -> TensorHandle:
        return self._noted(_followed(super().create_splat, ret_ty, arg))

    def create_unsplat(self, arg: TensorHandle) -> TensorHandle:
        return _followed(super().create_unsplat, arg)

    def create_erf(self, arg: TensorHandle) -> TensorHandle:
        return _followed(super().create_erf, arg)

    def create_umulhi(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return _followed(super().create_umulhi, lhs, rhs)

    def create_fma(self, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        return _followed(super().create_fma, x, y, z)

    def create_fp_to_fp(
        self, src: TensorHandle, dst_type: tl.dtype, rounding_mode: Any
    ) -> TensorHandle:
        return _followed(super().create_fp_to_fp, src, dst_type, rounding_mode)


def _stored(value: TensorHandle, mask: np.ndarray | None = None) -> TensorHandle:
    """A value on its way to memory; KernelError if an element that goes there is undefined."""
    undefined.check(value.data, mask, "what goes to memory here depends on undefined elements")
    return TensorHandle(values_of(value.data), value.dtype)


def _followed(method: Callable[..., TensorHandle], *arguments: Any) -> TensorHandle:
    """The result of a method that works element by element, undefined where an argument is."""
    arrays = [getattr(argument, "data", None) for argument in arguments]
    if not any(isinstance(array, Undefined) for array in arrays):
        return method(*arguments)
    plain = (
        TensorHandle(array.values, argument.dtype) if isinstance(array, Undefined) else argument
        for argument, array in zip(arguments, arrays, strict=True)
    )
    result = method(*plain)
    return TensorHandle(defined_or_not(result.data, *undefined.either(arrays)), result.dtype)
