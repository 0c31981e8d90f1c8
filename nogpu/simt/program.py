"""A translated kernel: its text, the places in it that are counted, and its memory."""

import ast
import functools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum
from types import CodeType
from typing import Any

from nogpu.kernels.errors import KernelError
from nogpu.kernels.launch import Size
from nogpu.kernels.source import Source
from nogpu.simt import arithmetic, language
from nogpu.simt.spaces import Spaces

FILENAME = "<translated kernel>"  # its lines in a traceback are traced to lines of the kernel


@dataclass(eq=False)
class Function:
    """A kernel or a device function: its syntax tree, and what its outside names stand for."""

    name: str
    node: ast.FunctionDef
    source: Source
    lookup: Callable[[str], object]  # KeyError for a name that is not defined

    @functools.cached_property
    def parameters(self) -> list[str]:
        """The names of the parameters; KernelError if it is not in the kernel language."""
        language.check(self.node, self.source)
        return [parameter.arg for parameter in self.node.args.args]

    @property
    def only_called(self) -> bool:
        """Whether its decorator says device=True: kernels call it, and nobody launches it."""
        options = [
            option
            for decorator in self.node.decorator_list
            if isinstance(decorator, ast.Call)
            for option in decorator.keywords
        ]
        return any(
            option.arg == "device" and isinstance(option.value, ast.Constant) and option.value.value
            for option in options
        )


class Kind(Enum):
    """What is counted, or noted, at a site."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    CHECK = "check"  # whether what is read has been written
    RUN = "run"  # a stretch of instructions
    AFTER = "after"  # a stretch after a loop
    STAY = "stay"  # a stretch in the arm of an if, or in a loop
    LEAVE = "leave"  # a stretch in the other arm, or where a loop's condition ends it
    WAIT = "wait"  # for other threads
    CALL = "call"  # of a device function


ACCESSES = Kind.LOAD, Kind.STORE, Kind.ATOMIC
STRETCHES = Kind.RUN, Kind.AFTER, Kind.STAY, Kind.LEAVE


@dataclass(eq=False)
class Site:
    """One place in a kernel that is counted."""

    number: int
    kind: Kind
    source: Source
    line: int
    # of an access
    space: str = ""
    dtype: str = ""
    array: str = ""
    # of a wait
    function: str = ""  # its name in cuda: syncthreads, shfl_sync
    # of a stretch
    steps: int = 0  # how many instructions it has, as written
    flops: dict[int, int] = field(default_factory=dict)  # floating-point operations by line
    partner: "Site | None" = None  # of a STAY: the LEAVE

    @property
    def where(self) -> str:
        """The function, the line and its text, for messages."""
        return self.source.where(self.line)


@dataclass(eq=False)
class Program:
    """A kernel translated for one set of argument types and one launch configuration."""

    grid: Size
    block: Size
    counting: bool = False
    memory: Spaces = field(default_factory=Spaces)
    sites: list[Site] = field(default_factory=list)
    # (function, name, object): what the translation took from outside
    used: list[tuple[Function, str, object]] = field(default_factory=list)
    suspends: bool = False  # its threads wait for each other
    exchanges: bool = False  # between the lanes of a warp
    fences: bool = False  # it calls cuda.threadfence, threadfence_block or threadfence_system
    text: str = ""
    lines: list[tuple[Function, int]] = field(default_factory=list)  # kernel's line of each line
    _sites: dict[Hashable, Site] = field(default_factory=dict, repr=False)

    def site(self, key: Hashable, kind: Kind, source: Source, line: int, **attributes: Any) -> Site:
        """The site with this key, the same one however often a loop's body is translated."""
        if key not in self._sites:
            self._sites[key] = Site(len(self.sites), kind, source, line, **attributes)
            self.sites.append(self._sites[key])
        return self._sites[key]

    def compiled(self, namespace: dict[str, Any]) -> Callable[..., Any]:
        """The translated kernel as a function, its names looked up in this namespace."""
        names = {**FUNCTIONS_OF_THE_PROGRAM, **namespace}
        exec(self._code, names)  # noqa: S102 (the text is written by translate, and by nobody else)
        return names["call0"]

    @functools.cached_property
    def _code(self) -> CodeType:
        try:
            return compile(self.text, FILENAME, "exec")
        except (SyntaxError, RecursionError, MemoryError) as error:  # of a hundred conditions, say
            raise KernelError(
                f"an expression of this kernel is too long ({error.args[0]}); assign parts of it "
                "to variables first"
            ) from None


def element(array: str, index: tuple[int, ...]) -> str:
    """'s[3, 4]', or 's' alone if the index is not known."""
    return f"{array}[{', '.join(map(str, index))}]" if index else array


FUNCTIONS_OF_THE_PROGRAM: dict[str, Any] = {
    "__builtins__": {"range": range, "float": float, "abs": abs},
    "inf": math.inf,
    "nan": math.nan,
    "f32": arithmetic.FLOAT32,
    **{
        name: getattr(arithmetic, name)
        for name in (
            "to_float16",
            "to_float32",
            "wrap",
            "truncated",
            "shift_left",
            "shift_right",
            "divide",
            "floor_divide",
            "modulo",
            "power_of_integers",
            "power_by_squaring",
            "minimum",
            "maximum",
            "rounded",
            "count_ones",
            "leading_zeros",
            "first_one",
            "reversed_bits",
        )
    },
    **{f"math_{name}": function for name, function in arithmetic.FUNCTIONS.items()},
    **arithmetic.TESTS,
}
