"""Kernels: from a Python function to a launch and its report."""

import ast
import builtins
import functools
import inspect
import random
from typing import Never

from greenlet import getcurrent

from common.kernels.errors import ERRORS, KernelError, LaunchError
from common.kernels.launch import MAX_GRID, three_lengths
from common.kernels.source import source_of
from common.simt import arithmetic, report
from common.simt.counters import Recorder
from common.simt.memory import Argument, GlobalMemory, argument_of
from common.simt.program import Function, Program, element
from common.simt.schedule import OutsideError, Schedule, UnwrittenReadError
from common.simt.spaces import Spaces
from common.simt.translate import Compiler

MAX_THREADS, MAX_BLOCK = 1024, (1024, 1024, 64)
POISON = 0xCDCDCDCD  # what a read of unwritten memory gives while counting; NaN for floating-point numbers
HARMLESS = {
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


class Kernel:
    """A kernel (or device function) that runs in the simulator: kernel[grid, block](*arguments)."""

    def __init__(self, name, function=None, problem=None) -> None:
        self.__name__ = self.__qualname__ = name
        self._function, self._problem = function, problem
        self._programs = {}

    @property
    def function(self):
        """What it was made from; KernelError if the function's source could not be had."""
        if self._problem:
            raise self._problem
        return self._function

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"

    def __call__(self, *arguments):
        raise LaunchError(f"say how many threads run it: {self.__name__}[grid, block](...)")

    def __getitem__(self, configuration):
        """The kernel with a launch configuration: [grid, block], [grid, block, stream, shared_bytes]."""
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            raise LaunchError(
                f"a launch configuration is [grid, block] or [grid, block, stream, shared_bytes], and "
                f"{configuration!r} is not"
            )
        grid, block, _, shared_bytes = (*configuration, *(0, 0)[len(configuration) - 2 :])
        return functools.partial(self.launch, grid, block, shared_bytes=shared_bytes)

    def launch(self, grid, block, *arguments, shared_bytes=0, seed=None) -> None:
        """Runs the kernel. seed: of the order in which blocks and warps run; another one each time if None."""
        self._run_or_say(grid, block, arguments, shared_bytes, seed, counting=False)

    def count(self, grid, block, *arguments, shared_bytes=0, seed=None, traced_block=0):
        """Runs the kernel and returns its Report."""
        return self._run_or_say(grid, block, arguments, shared_bytes, seed, True, traced_block)

    def translated(self, grid, block, *arguments, shared_bytes=0, counting=True):
        """The Python text that the simulator runs for these arguments."""
        types, _ = self._arguments(arguments)
        return self._program(
            _size("grid", grid), _size("block", block), types, shared_bytes, counting
        ).text

    def _run_or_say(self, *options, **more):
        """Runs the kernel; an error of the kernel comes without the simulator's own frames, which say nothing to a reader."""
        try:
            return self._run(*options, **more)
        except (*ERRORS, NotImplementedError) as error:
            raise error.with_traceback(None) from None

    def _run(self, grid, block, arguments, shared_bytes, seed, counting, traced_block=0):
        grid, block = _size("grid", grid), _size("block", block)
        types, values = self._arguments(arguments)
        program = self._program(grid, block, types, shared_bytes, counting)
        memory = GlobalMemory([value for value in values if isinstance(value, Argument)])
        seed = random.randrange(2**32) if seed is None else seed
        recorder = Recorder(program, traced_block) if counting else None
        shared_cells = []
        names = {
            "global_cells": memory.cells,
            "shared_cells": shared_cells,
            "constant_cells": program.memory.constants,
            "suspend": getcurrent().switch,
            "OutsideError": OutsideError,
            "unwritten": _unwritten_refused(program),
            **(recorder.namespace() if counting else {}),
        }
        kernel = program.compiled(names)
        numbers = [value.pointer if isinstance(value, Argument) else value for value in values]
        schedule = Schedule(program, kernel, numbers, shared_cells, seed, recorder)
        if counting:
            kernel.__globals__["unwritten"] = _unwritten_noted(program, recorder, schedule)
            kernel.__globals__["fence"] = lambda all_: recorder.fence(
                schedule.block_number, schedule.thread, all_
            )
        try:
            schedule.run()
        finally:
            memory.write_back()
        return report.make(recorder, self.__name__, memory, seed, schedule) if counting else None

    def _arguments(self, arguments):
        parameters = self.function.parameters
        if len(parameters) != len(arguments):
            raise LaunchError(
                f"{self.__name__} takes {len(parameters)} arguments ({', '.join(parameters)}), and "
                f"{len(arguments)} were given"
            )
        pairs = [
            argument_of(name, thing) for name, thing in zip(parameters, arguments, strict=True)
        ]
        return tuple(kind for kind, _ in pairs), [value for _, value in pairs]

    def _program(self, grid, block, types, shared_bytes, counting):
        """The translated kernel, from the last time if nothing that it depends on has changed."""
        key = grid, block, types, shared_bytes, counting
        program = self._programs.get(key)
        if program is None or any(
            _looked_up(function, name) is not thing for function, name, thing in program.used
        ):
            program = Program(grid, block, counting, Spaces(shared_bytes))
            Compiler(program, as_function).compile(self.function, types)
            self._programs[key] = program
        return program


def _looked_up(function, name):
    try:
        return function.lookup(name)
    except KeyError:
        return KeyError  # which no kernel can have used


def _unwritten_refused(program):
    def unwritten(number, place) -> Never:
        site = program.sites[number]
        shared = site.space == "shared"
        raise UnwrittenReadError(
            element(*program.memory.shared_element(place)) if shared else site.array, site.space
        )

    return unwritten


def _unwritten_noted(program, recorder, schedule):
    """While counting, a read of what nothing wrote is noted, and the thread goes on with a number that shows."""

    def unwritten(number, place):
        site = program.sites[number]
        here = site, place, schedule.block_number, schedule.thread, 0
        _, first_place, first_block, thread, times = recorder.unwritten.get(number, here)
        recorder.unwritten[number] = site, first_place, first_block, thread, times + 1
        return (
            float("nan") if site.dtype.startswith("float") else arithmetic.cast(POISON, site.dtype)
        )

    return unwritten


def _size(name, lengths):
    size = three_lengths(name, lengths, 1, MAX_GRID if name == "grid" else MAX_BLOCK)
    if name == "block" and size[0] * size[1] * size[2] > MAX_THREADS:
        raise LaunchError(
            f"block {size} has {size[0] * size[1] * size[2]:,} threads; a block has {MAX_THREADS:,} at most"
        )
    return size


# --- from Python functions


def jit(function=None, **options):
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
        raise KernelError(f"{function!r} is no function with a name; a kernel is written with def")
    return _kernel_of(function)


def _kernel_of(function):
    """The Kernel of a Python function; what is wrong with it is said when it is launched, as Numba does."""
    try:
        return Kernel(function.__name__, _from_python(function))
    except KernelError as problem:
        return Kernel(function.__name__, problem=problem)


def as_kernel(thing):
    """The Kernel of a simulator's or numba.cuda's kernel."""
    if isinstance(thing, Kernel):
        return thing
    function = getattr(thing, "py_func", None)
    if not inspect.isfunction(function):
        raise KernelError(f"{thing!r} is no kernel; decorate the function with @cuda.jit")
    if function not in _numba_kernels:
        _numba_kernels[function] = _kernel_of(function)
    return _numba_kernels[function]


_numba_kernels = {}


def as_function(thing):
    """The Function of an object that a kernel calls: a decorated device function; None for anything else."""
    if isinstance(thing, Function):
        return thing
    if isinstance(thing, Kernel) or inspect.isfunction(getattr(thing, "py_func", None)):
        return as_kernel(thing).function
    return None


def _from_python(function):
    """The Function of a Python function, from its source."""
    source = source_of(function, "simt")
    node = source.tree().body[0]
    if not isinstance(node, ast.FunctionDef):
        source.refuse(node, "a kernel is written with def")

    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def lookup(name):
        if name in closure:
            return closure[name].cell_contents
        return function.__globals__[name] if name in function.__globals__ else vars(builtins)[name]

    return Function(function.__name__, node, source, lookup)
