"""What a kernel is made of: its text, and the constants and other functions that it uses.

Nothing of it is run here.
"""

import ast
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType

from nogpu.kernels.errors import KernelError
from nogpu.kernels.source import Source
from nogpu.tiles import language
from nogpu.tiles.constants import Constant

MAX_FUNCTIONS = 50
KERNEL_FILE = "<kernel "  # the file name of an interpreted kernel's code begins with this
NO_CONSTANT = (
    "{function} uses {name}, which is not a constant for Triton: write "
    "{name} = tl.constexpr({value}), or give it to the kernel as a parameter"
)


def is_kernel_code(code: CodeType) -> bool:
    """Whether this is the code of an interpreted kernel, not Triton's own."""
    return code.co_filename.startswith(KERNEL_FILE)


@dataclass
class Function:
    """A function that has been checked. It is plain data: it can cross to another process."""

    source: Source
    constants: dict[str, Constant] = field(default_factory=dict)
    functions: dict[str, "Function"] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the function is called."""
        return self.source.name

    def definition(self) -> ast.FunctionDef:
        """Its syntax tree, without decorators, with the line numbers of its file."""
        return _definition(self.source)

    def parameters(self) -> dict[str, bool]:
        """{parameter: whether it is a tl.constexpr}."""
        return {
            argument.arg: argument.annotation is not None
            and "constexpr" in ast.unparse(argument.annotation)
            for argument in _checked(self.source)[0].args.args
        }

    def operations(self) -> tuple[str, ...]:
        """The names of tl's functions and of methods that it calls, also in what it calls."""
        return tuple(
            sorted(
                {
                    node.func.attr
                    for function in self.closure()
                    for node in ast.walk(_checked(function.source)[0])
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                }
            )
        )

    def closure(self) -> list["Function"]:
        """This function and all that it calls; a function comes before those that call it."""
        known: dict[int, Function] = {}

        def collect(function: Function) -> None:
            for called in function.functions.values():
                if id(called) not in known:
                    collect(called)
            known[id(function)] = function

        collect(self)
        return list(known.values())


def _definition(source: Source) -> ast.FunctionDef:
    nodes = [
        node
        for node in source.tree().body
        if isinstance(node, ast.FunctionDef) and node.name == source.name
    ]
    if not nodes:
        raise KernelError(f"{source.name} is not written with def")
    nodes[-1].decorator_list = []
    return nodes[-1]


@functools.lru_cache(maxsize=200)  # a check launches its kernel many times
def _checked(source: Source) -> tuple[ast.FunctionDef, dict[str, bool]]:
    """(the syntax tree, which nobody changes; the names from outside, and whether it calls them).

    KernelError if the function is not in the language.
    """
    node = _definition(source)
    return node, language.check(node, source)


@dataclass(frozen=True)
class Callee:
    """A function that another one names, and the Resolver for the names in it."""

    resolver: "Resolver"
    source: Source


# (name, Source that uses it, whether it is called) -> what the name stands for
LookUp = Callable[[str, Source, bool], Callee | Constant]


class Resolver:
    """From a function's source to a checked Function with all that it uses."""

    def __init__(self, look_up: LookUp) -> None:
        self.look_up = look_up
        self.known: dict[str, Function | None] = {}  # None: not finished

    def function(self, source: Source) -> Function:
        """The Function of a source; KernelError if it, or what it calls, is not in the language."""
        if source.name in self.known:
            known = self.known[source.name]
            if known is None:
                raise KernelError(f"{source.name} calls itself, which a kernel cannot")
            return known
        self.known[source.name] = None
        if len(self.known) > MAX_FUNCTIONS:
            raise KernelError(f"a kernel is made of {MAX_FUNCTIONS} functions at most")
        node, names = _checked(source)
        function = Function(source)
        for name, called in names.items():
            thing = self.look_up(name, source, called)
            if isinstance(thing, Callee):
                if not called:
                    source.refuse(node, f"{name} is a function; it has to be called")
                function.functions[name] = thing.resolver.function(thing.source)
            elif called:
                source.refuse(node, f"{name} is called, but is not a @triton.jit function")
            else:
                function.constants[name] = thing
        self.known[source.name] = function
        return function


def undefined_name(name: str, source: Source) -> KernelError:
    """The error for a name that this function uses, and that nothing defines."""
    return KernelError(f"{source.name} uses {name}, which is not defined{language.advice(name)}")
