"""The kernel language: which Python a kernel may be written in.

A GPU has no lists, strings, exceptions or objects; a kernel is arithmetic, indexing and control flow. `check` walks the
syntax tree of a kernel and lets through only what stands in `ALLOWED`. Everything else is refused by one sentence that
names the line. What passes here is given types, and meaning, by `translate`: no part of a kernel is ever run as Python.
"""

import ast

from common.kernels.source import MAX_DEPTH, MAX_NESTED, MAX_NODES, is_elif

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

ALLOWED = (
    ast.FunctionDef,
    ast.arguments,
    ast.arg,
    ast.Return,
    ast.Assign,
    ast.AugAssign,
    ast.For,
    ast.While,
    ast.If,
    ast.Expr,
    ast.Pass,
    ast.Break,
    ast.Continue,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.IfExp,
    ast.Compare,
    ast.Call,
    ast.keyword,
    ast.Constant,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Name,
    ast.Tuple,
    ast.Load,
    ast.Store,
    ast.And,
    ast.Or,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
)
REFUSED = {
    ast.List: "a list; for memory of a thread's own use cuda.local.array(size, dtype)",
    ast.Dict: "a dictionary; a kernel has numbers and arrays",
    ast.Set: "a set; a kernel has numbers and arrays",
    ast.ListComp: "a comprehension; write a for loop over range",
    ast.SetComp: "a comprehension; write a for loop over range",
    ast.DictComp: "a comprehension; write a for loop over range",
    ast.GeneratorExp: "a generator; write a for loop over range",
    ast.JoinedStr: "an f-string; a kernel has numbers and arrays",
    ast.Lambda: "a lambda; write a device function, decorated with @cuda.jit(device=True)",
    ast.NamedExpr: "the walrus :=; assign in a line of its own",
    ast.Import: "an import; import before the kernel",
    ast.ImportFrom: "an import; import before the kernel",
    ast.Try: "try; a GPU has no exceptions",
    ast.Raise: "raise; a GPU has no exceptions",
    ast.Assert: "assert; a GPU has no exceptions",
    ast.With: "with; a kernel has if, for and while",
    ast.ClassDef: "a class; a kernel has numbers and arrays",
    ast.AsyncFunctionDef: "async; a kernel waits by cuda.syncthreads()",
    ast.Await: "await; a kernel waits by cuda.syncthreads()",
    ast.Yield: "yield; a kernel writes its results into an array",
    ast.YieldFrom: "yield; a kernel writes its results into an array",
    ast.Global: "global; a kernel reads constants and writes its results into an array",
    ast.Nonlocal: "nonlocal; a kernel reads constants and writes its results into an array",
    ast.Delete: "del; a variable simply goes out of use",
    ast.Starred: "a starred expression; write the items out",
    ast.AnnAssign: "an annotation; a variable's type follows from its value",
    ast.Match: "match; write if and elif",
    ast.MatMult: "the operator @; write the loops",
    ast.Is: "is; compare numbers with ==",
    ast.IsNot: "is not; compare numbers with !=",
    ast.In: "in; compare numbers with ==",
    ast.NotIn: "not in; compare numbers with !=",
}


def check(function, source) -> None:
    """Raise KernelError unless this function (an ast.FunctionDef) is written in the kernel language.

    A function that still raises NotImplementedError, as an exercise does before it is solved, raises that.
    """
    for statement in function.body:
        if (
            isinstance(statement, ast.Raise)
            and statement.exc
            and "NotImplementedError" in ast.unparse(statement.exc)
        ):
            raise NotImplementedError(f"{source.name} is not written yet")
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
    body = function.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]
    nodes = 0
    pending = [(statement, statement, 1, 0) for statement in body]
    while (
        pending
    ):  # not recursive: a deeply nested expression must not end this walk, but be refused by it
        node, line, depth, nested = pending.pop()
        nodes += 1
        line = node if hasattr(node, "lineno") else line
        nested += isinstance(node, (ast.For, ast.While, ast.If))
        if depth > MAX_DEPTH or nested > MAX_NESTED or nodes > MAX_NODES:
            source.refuse(
                line,
                f"this is nested too deeply or too long (at most {MAX_NESTED} blocks, {MAX_DEPTH} levels of an "
                f"expression, {MAX_NODES:,} parts)",
            )
        _check_node(node, line, source)
        pending += [
            (child, line, depth + 1, nested - is_elif(child, node))
            for child in ast.iter_child_nodes(node)
        ]


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
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        source.refuse(node, "an integer has 64 bits at most")
    if not (value is None or isinstance(value, (bool, int, float))):
        kind = {str: "text", bytes: "bytes", complex: "complex numbers"}.get(
            type(value), "this constant"
        )
        source.refuse(
            node,
            f"a kernel cannot hold {kind}; its constants are whole and floating-point numbers, True and False",
        )


def _check_name(name, node, source, stored=True) -> None:
    if name.startswith("__"):
        source.refuse(
            node, f"a name in a kernel does not begin with two underscores, as {name} does"
        )
    if stored and name in RESERVED:
        source.refuse(
            node,
            f"{name} is taken (it is {MODULES.get(name, 'a built-in name')}); choose another name",
        )
