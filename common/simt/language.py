"""The kernel language: which Python a kernel may be written in.

A GPU has no lists, strings, exceptions or objects; a kernel is arithmetic, indexing and control flow. `check` walks the
syntax tree of a kernel and lets through only what stands in `ALLOWED`. Everything else is refused by one sentence that
names the line. What passes here is given types, and meaning, by `translate`: no part of a kernel is ever run as Python.
"""

import ast

from common.kernels import language
from common.kernels.language import check_underscores, is_text

MODULES = {"cuda": "numba.cuda", "math": "math", "np": "numpy", "numpy": "numpy", "numba": "numba"}
BUILTINS = ("range", "len", "min", "max", "abs", "round", "pow", "int", "float", "bool")
DTYPES = (
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
RESERVED = {*MODULES, *BUILTINS, *DTYPES}

ALLOWED = (*language.ALLOWED, ast.Break, ast.Continue)
REFUSED = {
    **language.refused(
        values="numbers and arrays",
        results="into an array",
        function="a device function, decorated with @cuda.jit(device=True)",
    ),
    ast.List: "a list; for memory of a thread's own use cuda.local.array(size, dtype)",
    ast.Assert: "assert; a GPU has no exceptions",
    ast.AnnAssign: "an annotation; a variable's type follows from its value",
    ast.MatMult: "the operator @; write the loops",
    ast.Is: "is; compare numbers with ==",
    ast.IsNot: "is not; compare numbers with !=",
}


def check(function, source) -> None:
    """Raise KernelError unless this function (an ast.FunctionDef) is written in the kernel language.

    A function that still raises NotImplementedError, as an exercise does before it is solved, raises that.
    """
    language.check_written(function)
    arguments = function.args
    if (
        arguments.vararg
        or arguments.kwarg
        or arguments.kwonlyargs
        or arguments.posonlyargs
        or arguments.defaults
    ):
        source.refuse(
            function, "a kernel's parameters are plain names, with no defaults and no stars"
        )
    for name in [function.name, *(argument.arg for argument in arguments.args)]:
        _check_name(name, function, source)
    body = function.body[is_text(function.body[0]) :]
    for node, line in language.nodes_of(body, source):
        _check_node(node, line, source)


def _check_node(node, line, source) -> None:
    for kind, sentence in REFUSED.items():
        if isinstance(node, kind):
            source.refuse(line, f"a kernel cannot contain {sentence}")
    if not isinstance(node, ALLOWED):
        source.refuse(
            line,
            f"a kernel cannot contain {type(node).__name__}; it has numbers, arrays, arithmetic, if, for over "
            "range or a tuple, while, cuda.*, math.* and device functions",
        )
    if isinstance(node, ast.FunctionDef):
        source.refuse(
            line,
            f"a kernel cannot define a function; write {node.name} before it, decorated with "
            "@cuda.jit(device=True)",
        )
    if isinstance(node, ast.Constant):
        _check_constant(node, source)
    elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
        source.refuse(
            line,
            f"a kernel cannot reach {node.attr}; it has cuda.*, math.*, and .shape, .size and .ndim of arrays",
        )
    elif isinstance(node, ast.Name):
        _check_name(node.id, node, source, stored=isinstance(node.ctx, ast.Store))
    elif isinstance(node, (ast.For, ast.While)) and node.orelse:
        source.refuse(
            line, "a loop with else is outside of the kernel language; set a variable before break"
        )
    elif isinstance(node, ast.For) and not (
        isinstance(node.target, ast.Name) and _is_counted(node.iter)
    ):
        source.refuse(
            line, "a kernel's for loop is `for name in range(...)`, or over a tuple of numbers"
        )
    elif isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Call, *REFUSED)):
        source.refuse(
            line,
            "this line computes what nothing uses; a statement assigns, stores, calls or controls",
        )


def _is_counted(node):
    """Whether a for loop can be over this: range(...), or what may turn out to be a tuple."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "range"
    return isinstance(node, (ast.Tuple, ast.Name, ast.Attribute))


def _check_constant(node, source) -> None:
    value = node.value
    language.check_bits(value, node, source)
    if not (value is None or isinstance(value, (bool, int, float))):
        kind = {str: "text", bytes: "bytes", complex: "complex numbers"}.get(
            type(value), "this constant"
        )
        source.refuse(
            node,
            f"a kernel cannot hold {kind}; its constants are whole and floating-point numbers, True and False",
        )


def _check_name(name, node, source, stored=True) -> None:
    check_underscores(name, node, source)
    if stored and name in RESERVED:
        source.refuse(
            node,
            f"{name} is taken (it is {MODULES.get(name, 'a built-in name')}); choose another name",
        )
