"""What a kernel is made of: its text, and the constants and other functions that it uses. None of it is run here."""

import ast
import functools
import inspect
import textwrap
from dataclasses import dataclass, field
from types import CodeType

from common.kernels.constants import value_of
from common.kernels.errors import KernelError
from common.kernels.source import Source, source_of
from common.tiles import language

MAX_FUNCTIONS = 50
KERNEL_FILE = "<kernel "  # the name of the file of an interpreted kernel's code begins so


def is_kernel_code(code: CodeType) -> bool:
    """Whether this is the code of an interpreted kernel, not Triton's own."""
    return code.co_filename.startswith(KERNEL_FILE)


@dataclass(frozen=True)
class Dtype:
    """One of Triton's dtypes, by its name."""

    name: str


def resolved(value, tl):
    """A constant as the kernel sees it: Dtype("float32") is tl.float32."""
    if isinstance(value, tuple):
        return tuple(resolved(item, tl) for item in value)
    return getattr(tl, value.name) if isinstance(value, Dtype) else value


@dataclass
class Function:
    """A function in the kernel language, checked. It is plain data: it can cross to another process."""

    source: Source
    constants: dict = field(default_factory=dict)  # name: number, tuple or Dtype
    functions: dict = field(default_factory=dict)  # name: Function

    @property
    def name(self):
        """What the function is called."""
        return self.source.name

    def definition(self):
        """Its syntax tree (an ast.FunctionDef without decorators), with the line numbers of where it stands."""
        return _definition(self.source)

    def parameters(self):
        """{parameter: whether it is a tl.constexpr}."""
        return {
            argument.arg: argument.annotation is not None
            and "constexpr" in ast.unparse(argument.annotation)
            for argument in self.definition().args.args
        }

    def closure(self):
        """This function and all that it calls, each once, what is called before what calls it."""
        found = {}

        def collect(function) -> None:
            for each in function.functions.values():
                if id(each) not in found:
                    collect(each)
            found[id(function)] = function

        collect(self)
        return list(found.values())


def _definition(source):
    nodes = [
        node
        for node in source.tree().body
        if isinstance(node, ast.FunctionDef) and node.name == source.name
    ]
    if not nodes:
        raise KernelError(f"{source.name} is not written with def")
    nodes[-1].decorator_list = []
    return nodes[-1]


class Resolver:
    """From a function's name to a checked Function with all that it uses."""

    def __init__(self, look_up) -> None:
        self.look_up = look_up  # (name, Source that uses it, whether it is called) -> a Source with its Resolver, or a constant
        self.found = {}

    def function(self, source):
        """The Function of a source; KernelError if it, or one that it calls, is outside of the kernel language."""
        if source.name in self.found:
            known = self.found[source.name]
            if known is None:
                raise KernelError(f"{source.name} calls itself, which a kernel cannot")
            return known
        self.found[source.name] = None
        if len(self.found) > MAX_FUNCTIONS:
            raise KernelError(f"a kernel is made of {MAX_FUNCTIONS} functions at most")
        node = _definition(source)
        function = Function(source)
        for name, called in language.check(node, source).items():
            thing = self.look_up(name, source, called)
            if isinstance(thing, tuple) and thing and isinstance(thing[0], Resolver):
                if not called:
                    source.refuse(node, f"{name} is a function; it has to be called")
                function.functions[name] = thing[0].function(thing[1])
            elif called:
                source.refuse(node, f"{name} is called, and is no @triton.jit function")
            else:
                function.constants[name] = thing
        self.found[source.name] = function
        return function


# --- from Python functions


def of_python(jitted):
    """The Function of a @triton.jit function."""
    return _resolver(jitted.fn, {}).function(source_of(jitted.fn, "tiles"))


def _resolver(function, known):
    """The Resolver for what a Python function's globals and closure hold. known: {id of a namespace: Resolver}."""
    namespace = function.__globals__
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def look_up(name, source, called):
        if name in closure:
            value = closure[name].cell_contents
        elif name in namespace:
            value = namespace[name]
        else:
            raise KernelError(
                f"{source.name} uses {name}, which is not defined{language.advice(name)}"
            )
        if is_jitted(value):
            return _resolver(value.fn, known), source_of(value.fn, "tiles")
        return checked_constant(name, value, source)

    key = id(namespace), tuple(closure)
    return known.setdefault(key, Resolver(look_up))


def is_jitted(thing):
    """Whether this is a @triton.jit function, compiled or interpreted."""
    return type(thing).__name__ in ("JITFunction", "InterpretedFunction") and inspect.isfunction(
        thing.fn
    )


def checked_constant(name, value, source):
    """The value of a constant that Triton lets a kernel read: a tl.constexpr or a dtype; KernelError if it is another thing."""
    kind = type(value)
    if kind.__module__ == "triton.language.core" and kind.__name__ == "constexpr":
        return plain(name, value.value)
    if kind.__module__ == "triton.language.core" and kind.__name__ == "dtype":
        return plain(name, value)
    if isinstance(value, (bool, int, float, tuple)):
        raise KernelError(PLAIN.format(function=source.name, name=name, value=value))
    raise KernelError(
        f"{source.name} uses {name}, a {kind.__name__}; a kernel has tl.*, its parameters, @triton.jit functions "
        "and constants made by tl.constexpr"
    )


PLAIN = (
    "{function} uses {name}, which is not a constant for Triton: write {name} = tl.constexpr({value!r}), "
    "or give it to the kernel as a parameter"
)


def plain(name, value):
    """A constant as data: a number, a tuple of them, or a Dtype; ValueError if it is another thing."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, tuple):
        return tuple(plain(name, item) for item in value)
    text = str(getattr(value, "name", value)).removeprefix("torch.")
    text = SHORT.get(text, text)
    if text in language.DTYPES:
        return Dtype(text)
    raise ValueError(
        f"{name} is {value!r}; a kernel's constant is a number, a dtype, or a tuple of them"
    )


SHORT = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "bool": "int1",
}


# --- from text alone


def of_text(text, name, constants):
    """The Function called name in a text; nothing in the text is run as Python."""
    text = textwrap.dedent(text)
    whole = Source(name, text)
    bound = {}
    for node in whole.tree().body:
        for each in _names_bound(node):
            bound.setdefault(each, []).append(node)
    given = {each: plain(each, value) for each, value in (constants or {}).items()}

    def look_up(wanted, source, called):
        if wanted not in bound:
            if wanted in given:
                return given[wanted]
            raise KernelError(
                f"{source.name} uses {wanted}, which is not defined{language.advice(wanted)}"
            )
        node = bound[wanted][-1]
        if len(bound[wanted]) > 1:
            whole.refuse(node, f"{wanted} is defined twice; a kernel uses what is defined once")
        if isinstance(node, ast.FunctionDef):
            return resolver, _decorated(node, whole)
        return _constant(wanted, node, source, whole, lambda each: look_up(each, source, False))

    resolver = Resolver(look_up)
    if not isinstance(bound.get(name, [None])[-1], ast.FunctionDef):
        functions = [
            each for each, nodes in bound.items() if isinstance(nodes[-1], ast.FunctionDef)
        ]
        raise KernelError(
            f"{name} is not defined; the text defines {', '.join(functions) or 'no function'}"
        )
    function, source = look_up(name, whole, True)
    return function.function(source)


def _names_bound(node):
    """The names that a statement of a module binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return [
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, (ast.Store, ast.Del))
    ]


def _decorated(node, whole):
    """The Source of a function that has the decorator @triton.jit and no other."""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    if decorators not in (["triton.jit"], ["jit"], ["triton.jit()"]):
        which = f"the decorator {decorators[0]}" if decorators else "no decorator"
        whole.refuse(node, f"{node.name} has {which}; what runs as a kernel has @triton.jit alone")
    return Source(node.name, whole.text)


def _constant(name, node, source, whole, look_up):
    """The value of `name = tl.constexpr(...)` or of a dtype's other name."""
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
    ):
        value = node.value
        if (
            isinstance(value, ast.Call)
            and ast.unparse(value.func) == "tl.constexpr"
            and len(value.args) == 1
        ):
            return _value(value.args[0], whole, look_up)
        if (
            isinstance(value, ast.Attribute)
            and ast.unparse(value.value) == "tl"
            and value.attr in language.DTYPES
        ):
            return Dtype(value.attr)
        if isinstance(value, (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple)):
            raise KernelError(
                f"{whole.where(node.lineno)}: "
                + PLAIN.format(function=source.name, name=name, value=Written(ast.unparse(value)))
            )
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        whole.refuse(
            node,
            f"{source.name} uses {name}, and of what is imported a kernel has tl alone: tl.exp(x), tl.sqrt(x); "
            "what Python computes comes as NAME = tl.constexpr(a number)",
        )
    elif isinstance(node, ast.AnnAssign):
        whole.refuse(
            node, f"Triton does not take an annotated constant: write {name} = tl.constexpr(...)"
        )
    whole.refuse(
        node,
        f"{name} is not a constant that a kernel can use; one is {name} = tl.constexpr(a number), or a dtype",
    )


class Written(str):
    """A text whose repr is itself."""

    __repr__ = str.__str__


def _value(node, whole, look_up):
    """The value of a constant's expression: numbers, arithmetic on them, tuples of them, dtypes, other constants, None."""
    return value_of(node, whole, functools.partial(_other_value, look_up=look_up))


def _other_value(node, look_up):
    """(value,) of what is a constant for Triton alone; None for anything else."""
    if isinstance(node, ast.Constant) and node.value is None:
        return (None,)
    if (
        isinstance(node, ast.Attribute)
        and ast.unparse(node.value) == "tl"
        and node.attr in language.DTYPES
    ):
        return (Dtype(node.attr),)
    if isinstance(node, ast.Name):
        return (look_up(node.id),)
    if isinstance(node, ast.Call) and ast.unparse(node) in (
        "float('inf')",
        "float('-inf')",
        "float('nan')",
    ):
        return (float(node.args[0].value),)
    return None
