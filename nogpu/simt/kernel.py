"""Kernels: from a Python function to a launch and its report."""

import ast
import builtins
import functools
import inspect
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Never, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from greenlet import getcurrent

from nogpu.kernels.errors import ERRORS, KernelError, LaunchError
from nogpu.kernels.launch import MAX_GRID, Lengths, Size, three_lengths
from nogpu.kernels.source import source_of
from nogpu.simt import report
from nogpu.simt.counters import Recorder
from nogpu.simt.dtypes import Type
from nogpu.simt.memory import Argument, GlobalMemory, argument_of
from nogpu.simt.program import Function, Program
from nogpu.simt.report import Report
from nogpu.simt.schedule import OutsideError, Schedule
from nogpu.simt.spaces import Spaces
from nogpu.simt.translate import Compiler

MAX_THREADS = 1024
MAX_LAUNCHED = (
    100_000_000  # threads: minutes of a small kernel, and more than a laptop's arrays hold
)
MAX_BLOCK = 1024, 1024, 64
HARMLESS = {  # Numba's options that do not change what a kernel computes
    "device",
    "fastmath",
    "opt",
    "lineinfo",
    "debug",
    "inline",
    "forceinline",
    "cache",
    "max_registers",
    "launch_bounds",
}


P = ParamSpec("P")
R = TypeVar("R")


def _errors_alone(method: Callable[P, R]) -> Callable[P, R]:
    """Raise an error of the kernel without the simulator's frames, which tell a reader nothing."""

    @functools.wraps(method)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return method(*arguments, **options)
        except (*ERRORS, NotImplementedError) as error:
            raise error.with_traceback(None) from None

    return call


class Kernel:
    """A kernel (or device function) for the simulator: kernel[grid, block](*arguments)."""

    def __init__(
        self,
        name: str,
        function: Function | KernelError,
        py_func: Callable[..., Any] | None = None,
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self.py_func = py_func  # as Numba calls the Python function; None if there is only a text
        self._function = function
        self._programs: dict[tuple[Any, ...], Program] = {}

    @property
    def function(self) -> Function:
        """What it was made from; KernelError if the function's source was not found."""
        if isinstance(self._function, KernelError):
            raise self._function
        return self._function

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"

    def __call__(self, *arguments: Any) -> Never:
        raise LaunchError(f"say how many threads run it: {self.__name__}[grid, block](...)")

    def __getitem__(self, configuration: Any) -> Callable[..., None]:
        """The kernel with a launch configuration: [grid, block, stream, shared_bytes].

        The last two may be left out.
        """
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            raise LaunchError(
                "a launch configuration is [grid, block] or [grid, block, stream, shared_bytes], "
                f"and {configuration!r} is not"
            )
        grid, block, _, shared_bytes = (*configuration, 0, 0)[:4]
        return functools.partial(self.launch, grid, block, shared_bytes=shared_bytes)

    @_errors_alone
    def launch(
        self,
        grid: Lengths,
        block: Lengths,
        *arguments: Any,
        shared_bytes: int = 0,
        seed: int | None = None,
    ) -> None:
        """Run the kernel.

        seed: of the order in which blocks and warps run; a different one each time if None.
        """
        program, values = self._prepared(grid, block, arguments, shared_bytes, counting=False)
        _run(program, values, _seed(seed), None)

    @_errors_alone
    def count(
        self,
        grid: Lengths,
        block: Lengths,
        *arguments: Any,
        shared_bytes: int = 0,
        seed: int | None = None,
        traced_block: int = 0,
    ) -> Report:
        """Run the kernel and return its Report."""
        program, values = self._prepared(grid, block, arguments, shared_bytes, counting=True)
        recorder, seed = Recorder(program, traced_block), _seed(seed)
        memory = _run(program, values, seed, recorder)
        return report.make(recorder, self.__name__, memory, seed)

    def translated(
        self,
        grid: Lengths,
        block: Lengths,
        *arguments: Any,
        shared_bytes: int = 0,
        counting: bool = True,
    ) -> str:
        """The Python text that the simulator runs for these arguments."""
        return self._prepared(grid, block, arguments, shared_bytes, counting)[0].text

    def _prepared(
        self,
        grid: Lengths,
        block: Lengths,
        arguments: Sequence[Any],
        shared_bytes: int,
        counting: bool,
    ) -> tuple[Program, list[Any]]:
        """The translated kernel, and what it is given: Arguments and numbers."""
        sizes = three_lengths("grid", grid, 1, MAX_GRID), _block(block)
        launched = math.prod(sizes[0]) * math.prod(sizes[1])
        if launched > MAX_LAUNCHED:
            raise LaunchError(
                f"grid {sizes[0]} of blocks {sizes[1]} has {launched:,} threads; the simulator, "
                f"which runs less than a million per second, is given {MAX_LAUNCHED:,} at most. "
                "A grid is counted in blocks, not in elements"
            )
        parameters = self.function.parameters
        if self.function.only_called:
            raise LaunchError(
                f"{self.__name__} is a device function (device=True), which only kernels call; "
                "to launch it, write @cuda.jit above it"
            )
        if len(parameters) != len(arguments):
            raise LaunchError(
                f"{self.__name__} takes {len(parameters)} arguments ({', '.join(parameters)}), and "
                f"{len(arguments)} were given"
            )
        pairs = list(map(argument_of, parameters, arguments))
        types = tuple(kind for kind, _ in pairs)
        return self._program(*sizes, types, shared_bytes, counting), [value for _, value in pairs]

    def _program(
        self, grid: Size, block: Size, types: tuple[Type, ...], shared_bytes: int, counting: bool
    ) -> Program:
        """The translated kernel, from the last time if nothing that it uses has changed."""
        key = grid, block, types, shared_bytes, counting
        program = self._programs.get(key)
        if program is None or any(
            _looked_up(function, name) is not thing for function, name, thing in program.used
        ):
            program = Program(grid, block, counting, Spaces(shared_bytes))
            Compiler(program, as_function).compile(self.function, types)
            self._programs[key] = program
        return program


def _run(
    program: Program, values: Sequence[Any], seed: int, recorder: Recorder | None
) -> GlobalMemory:
    """Run a translated kernel. What it leaves in memory is copied into the arrays."""
    memory = GlobalMemory([value for value in values if isinstance(value, Argument)])
    numbers = [value.pointer if isinstance(value, Argument) else value for value in values]
    shared_cells: list[Any] = []
    schedule = Schedule(program, numbers, shared_cells, seed, recorder)
    kernel = program.compiled(
        {
            "global_cells": memory.cells,
            "shared_cells": shared_cells,
            "constant_cells": program.memory.constants,
            "suspend": getcurrent().switch,
            "OutsideError": OutsideError,
            "unwritten": schedule.unwritten,
            "fence": schedule.fence,
            **(recorder.namespace() if recorder else {}),
        }
    )
    try:
        schedule.run(kernel)
    finally:
        memory.write_back()
    return memory


def _seed(seed: int | None) -> int:
    return random.randrange(2**32) if seed is None else seed  # noqa: S311 (an order, not a secret)


def _looked_up(function: Function, name: str) -> object:
    try:
        return function.lookup(name)
    except KeyError:
        return KeyError  # which no kernel can have used


def _block(lengths: Lengths) -> Size:
    size = three_lengths("block", lengths, 1, MAX_BLOCK)
    threads = size[0] * size[1] * size[2]
    if threads > MAX_THREADS:
        raise LaunchError(
            f"block {size} has {threads:,} threads; a block has {MAX_THREADS:,} at most"
        )
    return size


# From Python functions


def jit(function: Any = None, **options: Any) -> Any:
    """The decorator @jit, @jit() or @jit(device=True): a kernel for the simulator.

    Numba's options that do not change what a kernel computes are taken and ignored.
    """
    unknown = options.keys() - HARMLESS
    if unknown or isinstance(function, (str, tuple, list)):
        what = f"the option {sorted(unknown)[0]}" if unknown else "a signature"
        raise KernelError(
            f"the simulator does not know {what} of jit; write @cuda.jit or @cuda.jit(device=True)"
        )
    if function is None:
        return lambda function: jit(function, **options)
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise KernelError(
            f"{function!r} is not a function with a name; a kernel is written with def"
        )
    return _kernel_of(function)


def _kernel_of(function: Callable[..., Any]) -> Kernel:
    """The Kernel of a Python function. An error in it is raised at a launch, as by Numba."""
    try:
        return Kernel(function.__name__, _from_python(function), function)
    except KernelError as problem:
        return Kernel(function.__name__, problem, function)


def as_kernel(thing: object) -> Kernel:
    """The Kernel of a simulator's or numba.cuda's kernel."""
    if isinstance(thing, Kernel):
        return thing
    function = getattr(thing, "py_func", None)
    if not inspect.isfunction(function):
        raise KernelError(f"{thing!r} is not a kernel; decorate the function with @cuda.jit")
    if function not in _kernels_of_numba:
        _kernels_of_numba[function] = _kernel_of(function)
    return _kernels_of_numba[function]


_kernels_of_numba: WeakKeyDictionary[Callable[..., Any], Kernel] = WeakKeyDictionary()


def as_function(thing: object) -> Function | None:
    """The Function of a decorated device function; None for any other object."""
    if isinstance(thing, Function):
        return thing
    if isinstance(thing, Kernel) or inspect.isfunction(getattr(thing, "py_func", None)):
        return as_kernel(thing).function
    return None


def _from_python(function: Callable[..., Any]) -> Function:
    """The Function of a Python function, from its source."""
    source = source_of(function, "simt")
    node = source.tree().body[0]
    if not isinstance(node, ast.FunctionDef):
        source.refuse(node, "a kernel is written with def")
    return Function(function.__name__, node, source, _lookup(function))


def _lookup(function: Callable[..., Any]) -> Callable[[str], object]:
    """What the names in a function stand for. It holds no reference to the function itself."""
    code, cells = function.__code__, function.__closure__ or ()
    closure = dict(zip(code.co_freevars, cells, strict=True))
    namespace = function.__globals__

    def lookup(name: str) -> object:
        if name in closure:
            return closure[name].cell_contents
        return namespace[name] if name in namespace else vars(builtins)[name]

    return lookup
