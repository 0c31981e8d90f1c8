"""A translated kernel: its text, the places in it that are counted, and the layout of its shared, local and constant memory."""

import ast
import functools
import math
from dataclasses import dataclass, field

from common.kernels.errors import KernelError, LaunchError
from common.kernels.source import Source
from common.simt import arithmetic, dtypes, language
from common.simt.code import layout

SHARED_LIMIT_BYTES = (
    48 * 1024
)  # of a block, without asking for more: CUDA C++ Programming Guide, compute capabilities
LOCAL_LIMIT_BYTES = 512 * 1024  # of a thread: the same
ALIGNMENT = 256  # elements; an allocation on a GPU begins at a multiple of 256 bytes
MAX_SPECIALISATIONS, MAX_CALLS = 200, 40
FILENAME = "<translated kernel>"  # by which errors find back to the kernel's lines


@dataclass(eq=False)
class Function:
    """A kernel or a device function: its syntax tree, and what the names in it that are not its own stand for."""

    name: str
    node: ast.FunctionDef
    source: Source
    lookup: object  # a function from a name to an object; KeyError where there is none

    @functools.cached_property
    def parameters(self):
        """The names of the parameters, of a function that is written in the kernel language; else KernelError."""
        language.check(self.node, self.source)
        return [parameter.arg for parameter in self.node.args.args]


@dataclass(eq=False)
class Site:
    """One place in a kernel that is counted: an access, an arm of a branch, a stretch of instructions, a wait."""

    number: int
    kind: str  # load, store, atomic; run, stay, leave; wait, call, check
    source: Source
    line: int
    space: str = ""
    dtype: str = ""
    array: str = ""
    steps: int = 0  # of a run: how many instructions it has, as written
    flops: dict = field(
        default_factory=dict
    )  # of a run: how many floating-point operations by line
    partner: "Site" = None  # of a stay: the leave


@dataclass(frozen=True)
class Region:
    """An array in shared memory: where it begins."""

    start: int
    name: str
    shape: tuple


@dataclass(eq=False)
class Program:
    """A kernel translated for one set of argument types and one launch configuration, with the functions it calls."""

    grid: tuple
    block: tuple
    counting: bool = False
    dynamic_bytes: int = 0
    device_function: object = None  # a function from an object to a Function, or None
    sites: list = field(default_factory=list)
    texts: list = field(default_factory=list)  # a Block of lines for each function
    used: list = field(
        default_factory=list
    )  # (function, name, object): what the translation took from outside
    shared: list = field(default_factory=list)
    shared_size: int = 0
    shared_bytes: int = 0
    local_size: int = 0
    local_bytes: int = 0
    constants: list = field(default_factory=list)  # the numbers in constant memory
    suspends: bool = False
    exchanges: bool = False  # between the lanes of a warp
    fences: bool = False  # it calls threadfence or its kin

    def __post_init__(self):
        self._known, self._stack, self._sites, self._places, self._kept = {}, [], {}, {}, {}
        self.lines = []  # (function, kernel's line) of each line of text

    def translate(self, function, types) -> None:
        """Translates the kernel and everything that it calls."""
        _, kind = self.specialise(function, types)
        if kind is not None:
            function.source.refuse(
                function.node, "a kernel returns nothing; it writes its results into an array"
            )
        lines = []
        for function, block in self.texts:
            for text, line in layout(block):
                lines.append(text)
                self.lines.append((function, line))
        self.text = "\n".join(lines) + "\n"

    def specialise(self, function, types, node=None, caller=None):
        """The number of a function translated for these types, and the type that it returns."""
        if function in self._stack:
            caller.refuse(
                node, f"{function.name} calls itself; a kernel has no recursion, write a loop"
            )
        from common.simt.translate import Translator  # which needs this module first

        if len(self._stack) >= MAX_CALLS:
            caller.refuse(node, f"functions call each other more than {MAX_CALLS} deep")
        key = function, types
        if key not in self._known:
            if len(self._known) >= MAX_SPECIALISATIONS:
                function.source.refuse(
                    function.node,
                    f"the kernel needs more than {MAX_SPECIALISATIONS} versions of functions",
                )
            self._stack.append(function)
            translator = Translator(self, function, len(self.texts))
            self.texts.append((function, translator.block))
            self._known[key] = translator.version, translator.translate(types)
            self._stack.pop()
        return self._known[key]

    def site(self, translator, node, kind, **attributes):
        """The counted place of this kind at this node: the same one, however often the node is translated."""
        key = translator.version, id(node), kind
        if key not in self._sites:
            self._sites[key] = Site(
                len(self.sites), kind, translator.function.source, node.lineno, **attributes
            )
            self.sites.append(self._sites[key])
        return self._sites[key]

    def kept(self, node, made):
        """A node that was made for this one: the first one made, however often."""
        return self._kept.setdefault(id(node), made)

    def reserve_shared(self, translator, node, shape, dtype, size):
        """Where a shared array begins: one array for each call of cuda.shared.array in the text."""
        key = translator.version, id(node)
        if key not in self._places:
            self._places[key] = self._shared_region(translator.target or "shared", shape, size)
            self.shared_bytes += size * dtypes.itemsize(dtype)
            if self.shared_bytes + self.dynamic_bytes > SHARED_LIMIT_BYTES:
                raise LaunchError(
                    f"{translator.function.source.where(node.lineno)}: with this array a block uses "
                    f"{self.shared_bytes + self.dynamic_bytes:,} bytes of shared memory; it may have "
                    f"{SHARED_LIMIT_BYTES:,}"
                )
        return self._places[key]

    def _shared_region(self, name, shape, size):
        start = self.shared_size
        self.shared.append(Region(start, name, tuple(shape)))
        self.shared_size += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        return start

    def shared_element(self, place):
        """(array's name, index) of a place in shared memory."""
        region = next(each for each in reversed(self.shared) if each.start <= place)
        index, rest = [], place - region.start
        for length in reversed(region.shape):
            index.insert(0, rest % length)
            rest //= length
        return region.name, tuple(index)

    def dynamic_place(self, translator, node, dtype):
        """Where dynamic shared memory begins: the same place for all arrays of size 0, as on a GPU."""
        taken = self._places.setdefault("dynamic", dtype)
        if taken != dtype:
            translator.refuse(
                node,
                f"the dynamic shared memory already holds {taken}; the simulator keeps one dtype in it",
            )
        if "place" not in self._places:
            count = self.dynamic_bytes // dtypes.itemsize(dtype)
            self._places["place"] = self._shared_region(
                translator.target or "shared", (count,), count
            )
        return self._places["place"]

    def reserve_local(self, translator, node, dtype, size):
        """Where a local array begins among its thread's numbers; without recursion every array has one place."""
        key = translator.version, id(node)
        if key not in self._places:
            self._places[key] = self.local_size
            self.local_size += size
            self.local_bytes += size * dtypes.itemsize(dtype)
            if self.local_bytes > LOCAL_LIMIT_BYTES:
                raise LaunchError(
                    f"{translator.function.source.where(node.lineno)}: a thread's local arrays hold "
                    f"{self.local_bytes:,} bytes with this one; they may hold {LOCAL_LIMIT_BYTES:,}"
                )
        return self._places[key]

    def reserve_constant(self, translator, node, name, table):
        """Where a constant array begins."""
        if ("constant", name) not in self._places:
            self._places["constant", name] = len(self.constants)
            values = table.reshape(-1).tolist()
            self.constants += values + [0] * (-len(values) % ALIGNMENT)
        return self._places["constant", name]

    def compiled(self, namespace):
        """The translated kernel as a function, its names looked up in this namespace."""
        names = {**FUNCTIONS_OF_THE_PROGRAM, **namespace}
        exec(self._code, names)
        return names["call0"]

    @functools.cached_property
    def _code(self):
        try:
            return compile(self.text, FILENAME, "exec")
        except (
            SyntaxError,
            RecursionError,
            MemoryError,
        ) as error:  # of a hundred conditions in one, say
            raise KernelError(
                f"an expression of this kernel is too long ({error.args[0]}); assign parts of it first"
            ) from None


FUNCTIONS_OF_THE_PROGRAM = {
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
