"""Triton's interpreter: only this module, `fixes` and `counting_builder` use what is private to it.

Triton's language calls a builder for each operation of a kernel; the interpreter's builder computes
with NumPy. `fixes` derives a builder from it, without its errors, for all launches in this process.
`counting_builder` derives another from that one, for the time of a counted launch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu.kernels.errors import KernelError
from nogpu.tiles.dtypes import TL_NAME
from nogpu.tiles.functions import is_kernel_code

if TYPE_CHECKING:
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    from nogpu.kernels.source import Source
    from nogpu.tiles.arrays import Described
    from nogpu.tiles.counters import Recorder
    from nogpu.tiles.counting_builder import CountingBuilder
    from nogpu.tiles.memory import Argument

NEEDED = (
    "InterpreterBuilder", "InterpretedFunction", "TensorHandle", "ReduceScanOpInterface",
    "ReduceOps", "ScanOps", "interpreter_builder", "interpreter_semantic", "_implicit_cvt",
    "_patch_lang", "_patch_lang_tensor", "_get_np_dtype",
)  # fmt: skip
METHODS = (
    "create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas",
    "create_dot", "create_fma", "binary_op", "unary_op", "ternary_op", "cast_impl",
    "set_grid_idx", "set_grid_dim", "create_splat", "create_unsplat", "create_erf",
    "create_umulhi", "create_fp_to_fp", "create_make_range", "create_broadcast", "create_cat",
    "create_join",
)  # fmt: skip


def interprets() -> bool:
    """Whether Triton, in this process, interprets kernels."""
    try:
        import triton
    except ImportError as error:
        raise RuntimeError(
            f"Triton cannot be imported ({error}); it is made for Linux: pip install triton"
        ) from error
    return bool(triton.knobs.runtime.interpret)


def interpreter() -> ModuleType:
    """Triton's interpreter module with our fixes; RuntimeError if it is not one that we know."""
    try:
        from triton.runtime import interpreter as module
    except ImportError as error:
        raise _unknown(str(error)) from error
    missing = [name for name in NEEDED if not hasattr(module, name)]
    missing = missing or [name for name in METHODS if not hasattr(module.InterpreterBuilder, name)]
    if missing:
        raise _unknown(f"it has no {', '.join(missing)}")
    from nogpu.tiles import fixes

    if not isinstance(module.interpreter_builder, fixes.CourseBuilder):
        fixes.install()
    return module


def _unknown(why: str) -> RuntimeError:
    import triton

    return RuntimeError(
        "the counters know the interpreters of the Tritons in pyproject.toml's range, and cannot "
        f"attach to Triton {triton.__version__}: {why}"
    )


# A kernel's arguments


def pointer(argument: Argument) -> tl.tensor:
    """The tl.tensor that stands for an array's address in a kernel."""
    import triton.language as tl

    if argument.dtype not in TL_NAME:
        raise KernelError(
            f"{argument.name} has dtype {argument.dtype}; Triton takes {', '.join(TL_NAME)}"
        )
    kind = tl.pointer_type(getattr(tl, TL_NAME[argument.dtype]))
    handle = interpreter().TensorHandle(np.array([argument.address], np.uint64), kind)
    return tl.tensor(handle, kind)


def descriptor(base: tl.tensor, described: Described) -> Any:
    """What stands in a kernel for a tensor descriptor made by the host. base: from pointer()."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    # Its __init__ checks a tensor; the caller has made these checks.
    host = TensorDescriptor.__new__(TensorDescriptor)
    vars(host).update(vars(described), base=base)
    return interpreter()._implicit_cvt(host)


def number(value: float | None) -> tl.tensor | None:
    """The tl.tensor of a number that a kernel is given; None stays None."""
    return interpreter().interpreter_semantic.to_tensor(value, False)


# A counted launch


@contextmanager
def counting(
    kernel: InterpretedFunction, sources: dict[str, Source], recorder: Recorder
) -> Iterator[CountingBuilder]:
    """Triton's language interpreted by a CountingBuilder."""
    module = interpreter()
    import triton.language as tl

    from nogpu.tiles import fixes
    from nogpu.tiles.counting_builder import CountingBuilder

    fixed = module.interpreter_builder
    scopes = []
    builder = CountingBuilder(recorder, sources)
    fixes.use(builder)  # before the patches: those of Triton 3.6 keep the builder that they find
    try:
        scopes += [module._patch_lang(kernel.fn), module._patch_lang(tl.sum.fn)]
        scopes[0].set_attr(tl.tensor, "__bool__", _truth)
        scopes[0].set_attr(module.InterpretedFunction, "__call__", _call)
        yield builder
    finally:
        fixes.use(fixed)
        for scope in reversed(scopes):
            scope.restore()


def _call(self: InterpretedFunction, *arguments: Any, **options: Any) -> Any:
    """A call of one jitted function by another; the language is patched already."""
    return self.rewrite()(*arguments, **options)


def _truth(self: tl.tensor) -> bool:
    """Whether a number is not zero. Triton's own code may ask a block; a kernel may not."""
    data = self.handle.data
    if data.size == 1:
        return bool(data.item())
    if is_kernel_code(sys._getframe(1).f_code):
        raise KernelError(
            f"a block of shape {tuple(data.shape)} is neither true nor false: "
            "use tl.where, or a mask"
        )
    return True
