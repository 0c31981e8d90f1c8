"""The kernel language: which Python a kernel may be written in.

A GPU has no lists, strings, exceptions or objects. A kernel is arithmetic, indexing and control
flow. `check` walks the syntax tree of a kernel and lets through only the nodes in `ALLOWED`. Every
other node is refused by a sentence that names the line. What passes gets types and meaning in
`translate`: no part of a kernel is ever run as Python.
"""

import ast

from nogpu.kernels import language
from nogpu.kernels.language import check_underscores, is_text
from nogpu.kernels.source import Source
from nogpu.simt import dtypes

MODULES = {"cuda": "numba.cuda", "math": "math", "np": "numpy", "numpy": "numpy", "numba": "numba"}
BUILTINS = ("range", "len", "min", "max", "abs", "round", "pow", "int", "float", "bool")
DTYPES = "bool_", *dtypes.INTEGERS, *dtypes.FLOATS
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


def check(function: ast.FunctionDef, source: Source) -> None:
    """Raise KernelError unless this function is written in the kernel language.

    A function that still raises NotImplementedError, as an exercise does before it is solved,
    raises that.
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
        sentence = _refusal(node)
        if sentence:
            source.refuse(line, sentence)
        if isinstance(node, ast.Constant):
            _check_constant(node, source)
        elif isinstance(node, ast.Name):
            _check_name(node.id, node, source, stored=isinstance(node.ctx, ast.Store))


def _refusal(node: ast.AST) -> str | None:
    """Why a kernel cannot contain this node, or None if it can."""
    for kind, sentence in REFUSED.items():
        if isinstance(node, kind):
            return f"a kernel cannot contain {sentence}"
    if not isinstance(node, ALLOWED):
        return (
            f"a kernel cannot contain {type(node).__name__}; it has numbers, arrays, arithmetic, "
            "if, for over range or a tuple, while, cuda.*, math.* and device functions"
        )
    if isinstance(node, ast.FunctionDef):
        return (
            f"a kernel cannot define a function; write {node.name} before it, decorated with "
            "@cuda.jit(device=True)"
        )
    if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
        return (
            f"a kernel cannot reach {node.attr}; it has cuda.*, math.*, and .shape, .size and "
            ".ndim of arrays"
        )
    if isinstance(node, (ast.For, ast.While)) and node.orelse:
        return "a loop with else is outside of the kernel language; set a variable before break"
    if isinstance(node, ast.For) and not _is_counted(node):
        return "a kernel's for loop is `for name in range(...)`, or over a tuple of numbers"
    if isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Call, *REFUSED)):
        return (
            "nothing uses what this line computes; a statement assigns, stores, calls or controls"
        )
    return None


def _is_counted(loop: ast.For) -> bool:
    """Whether a for loop is over range(...), or over what may turn out to be a tuple."""
    over = loop.iter
    if isinstance(over, ast.Call):
        known = isinstance(over.func, ast.Name) and over.func.id == "range"
    else:
        known = isinstance(over, (ast.Tuple, ast.Name, ast.Attribute))
    return known and isinstance(loop.target, ast.Name)


def _check_constant(node: ast.Constant, source: Source) -> None:
    value = node.value
    language.check_bits(value, node, source)
    if not (value is None or isinstance(value, (bool, int, float))):
        kinds: dict[type, str] = {str: "text", bytes: "bytes", complex: "complex numbers"}
        source.refuse(
            node,
            f"a kernel cannot hold {kinds.get(type(value), 'this constant')}; its constants are "
            "whole and floating-point numbers, True and False",
        )


def _check_name(name: str, node: ast.AST, source: Source, stored: bool = True) -> None:
    check_underscores(name, node, source)
    if stored and name in RESERVED:
        source.refuse(
            node,
            f"{name} is taken (it is {MODULES.get(name, 'a built-in name')}); choose another name",
        )
