"""The kernel language: which Python a Triton kernel may be written in.

Triton compiles a kernel from its syntax tree; its interpreter runs it as Python, and takes much that the compiler refuses.
`check` lets through only what stands in `ALLOWED` and in the lists of names below. Everything else is refused by one sentence
that names the line. What passes can do nothing but compute: every name in it is a variable of its own, a number, `tl`, or
another such function.
"""

import ast

from common.kernels import language

BUILTINS = ("range", "min", "max", "float", "int", "len", "print")
RESERVED = {"tl", "triton", *BUILTINS}
DTYPES = {
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8e4nv",
    "float8e5",
}
FUNCTIONS = {  # tl.*
    "abs",
    "advance",
    "arange",
    "argmax",
    "argmin",
    "associative_scan",
    "assume",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "broadcast",
    "broadcast_to",
    "cast",
    "cat",
    "cdiv",
    "ceil",
    "clamp",
    "cos",
    "cumprod",
    "cumsum",
    "debug_barrier",
    "device_assert",
    "device_print",
    "div_rn",
    "dot",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "fdiv",
    "flip",
    "floor",
    "fma",
    "full",
    "gather",
    "histogram",
    "interleave",
    "join",
    "load",
    "load_tensor_descriptor",
    "log",
    "log2",
    "make_block_ptr",
    "make_tensor_descriptor",
    "max",
    "max_constancy",
    "max_contiguous",
    "maximum",
    "min",
    "minimum",
    "multiple_of",
    "num_programs",
    "permute",
    "philox",
    "pointer_type",
    "program_id",
    "rand",
    "rand4x",
    "randint",
    "randint4x",
    "randn",
    "randn4x",
    "range",
    "ravel",
    "reduce",
    "reduce_or",
    "reshape",
    "rsqrt",
    "sigmoid",
    "sin",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "sqrt_rn",
    "static_assert",
    "static_print",
    "static_range",
    "store",
    "store_tensor_descriptor",
    "sum",
    "swizzle2d",
    "topk",
    "trans",
    "umulhi",
    "view",
    "where",
    "xor_sum",
    "zeros",
    "zeros_like",
}
MATH = {
    "abs",
    "ceil",
    "cos",
    "div_rn",
    "erf",
    "exp",
    "exp2",
    "fdiv",
    "floor",
    "fma",
    "log",
    "log2",
    "rsqrt",
    "sin",
    "sqrt",
    "sqrt_rn",
    "umulhi",
}  # tl.math.*
HOST = {"cdiv", "next_power_of_2"}  # triton.*, of constants
METHODS = {  # of blocks, numbers, dtypes and descriptors
    "abs",
    "argmax",
    "argmin",
    "associative_scan",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "broadcast_to",
    "cast",
    "cdiv",
    "ceil",
    "cos",
    "cumprod",
    "cumsum",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "flip",
    "floor",
    "gather",
    "histogram",
    "is_floating",
    "item",
    "load",
    "log",
    "log2",
    "logical_and",
    "logical_or",
    "max",
    "min",
    "permute",
    "ravel",
    "reduce",
    "reduce_or",
    "reshape",
    "rsqrt",
    "scatter",
    "sigmoid",
    "sin",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "sqrt_rn",
    "store",
    "sum",
    "to",
    "trans",
    "view",
    "xor_sum",
}
ATTRIBUTES = {
    "T",
    "type",
    "dtype",
    "shape",
    "element_ty",
    "scalar",
    "primitive_bitwidth",
    "block_shape",
    "numel",
}
ADVICE = {  # names that Triton's language lacks, and what to write
    **{
        name: f"tl.{name}(x)"
        for name in ("abs", "exp", "log", "sqrt", "sin", "cos", "floor", "ceil")
    },
    **{name: f"x.to(tl.{name})" for name in DTYPES},
    "is_fp16": "x.dtype == tl.float16",
    "is_bf16": "x.dtype == tl.bfloat16",
    "is_fp32": "x.dtype == tl.float32",
    "sum": "tl.sum(x, axis)",
    "mean": "tl.sum(x, axis) / count",
    "round": "tl.floor(x + 0.5)",
    "bool": "x != 0",
    "pow": "x * x, or tl.exp2(y * tl.log2(x))",
    "tanh": "2 * tl.sigmoid(2 * x) - 1",
    "relu": "tl.maximum(x, 0)",
    "any": "tl.max(mask.to(tl.int32), axis)",
    "all": "tl.min(mask.to(tl.int32), axis)",
    "syncthreads": "tl.debug_barrier()",
    "full_like": "tl.full(x.shape, value, x.dtype)",
    "constexpr": "name: tl.constexpr = value, in a line of its own",
    "value": "the constant's name alone",
}
TAKES_FUNCTION = {"reduce", "associative_scan"}

ALLOWED = (*language.ALLOWED, ast.AnnAssign, ast.Assert, ast.List)
REFUSED = {
    **language.refused(
        values="blocks and numbers",
        results="by tl.store",
        function="a function of its own, decorated with @triton.jit",
    ),
    ast.Break: "break; a block's loop runs to its end, or is a while loop",
    ast.Continue: "continue; mask the elements off, or use if",
    ast.MatMult: "the operator @; a product of blocks is tl.dot(a, b)",
}


def advice(name) -> str:
    """'; write ...' for a name that Triton's language lacks, or nothing."""
    return f"; write {ADVICE[name]}" if name in ADVICE else ""


def check(function, source):
    """The names that this function (an ast.FunctionDef) takes from outside of it; KernelError if it is not in the language.

    A function that still raises NotImplementedError, as an exercise does before it is solved, raises that.
    """
    language.check_written(function)
    return _Checker(function, source).free


class _Checker:
    """A walk over one function."""

    def __init__(self, function, source) -> None:
        self.source = source
        self.free = {}  # name: whether it is called, or given to tl.reduce
        self._check_parameters(function)
        language.nodes_of(function.body, source)
        self.local = {argument.arg for argument in function.args.args}
        self.local |= {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for name in self.local:
            self._check_new_name(name, function)
        for default in function.args.defaults:
            self._check_default(default)
        for statement in function.body:
            self._visit(statement, loops=0)

    def refuse(self, node, sentence) -> None:
        self.source.refuse(node, sentence)

    def _check_parameters(self, function) -> None:
        arguments = function.args
        if function.returns or getattr(function, "type_params", None):
            self.refuse(
                function, "a kernel has no annotation of what it returns, and no type parameters"
            )
        self._check_new_name(function.name, function)
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
            self.refuse(function, "a kernel's parameters are plain names, with no stars")
        for argument in arguments.args:
            if argument.annotation and ast.unparse(argument.annotation) not in (
                "tl.constexpr",
                "constexpr",
            ):
                self.refuse(
                    function,
                    f"{argument.arg} has the annotation {ast.unparse(argument.annotation)}; the one that "
                    "Triton knows is tl.constexpr",
                )

    def _check_new_name(self, name, node) -> None:
        language.check_underscores(name, node, self.source)
        if name in RESERVED:
            self.refuse(node, f"{name} is taken; choose another name")

    def _check_default(self, node) -> None:
        inner = (
            node.operand
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
            else node
        )
        if not isinstance(inner, ast.Constant) or not isinstance(
            inner.value, (int, float, str, type(None))
        ):
            self.refuse(node, "a parameter's default is a number, a text, True, False or None")
        self._visit_Constant(inner, 0)

    def _visit(self, node, loops) -> None:
        """Checks a statement or an expression, and what is in it."""
        for kind, sentence in REFUSED.items():
            if isinstance(node, kind):
                self.refuse(node, f"a kernel cannot contain {sentence}")
        if not isinstance(node, ALLOWED):
            self.refuse(
                node,
                f"a kernel cannot contain {type(node).__name__}; it has blocks, numbers, tl.*, if, for and while",
            )
        special = getattr(self, "_visit_" + type(node).__name__, None)
        if special:
            special(node, loops)
        else:
            self._visit_children(node, loops)

    def _visit_children(self, node, loops) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr_context):
                self._visit_operator(child, node) if isinstance(child, OPERATORS) else self._visit(
                    child, loops
                )

    def _visit_operator(self, operator, node) -> None:
        for kind, sentence in REFUSED.items():
            if isinstance(operator, kind):
                self.refuse(node, f"a kernel cannot contain {sentence}")

    # --- statements

    def _visit_FunctionDef(self, node, loops) -> None:
        self.refuse(
            node,
            f"a kernel cannot define a function; write {node.name} before it, decorated with @triton.jit",
        )

    def _visit_Return(self, node, loops) -> None:
        if loops:
            self.refuse(node, "a kernel cannot return from within a loop")
        self._visit_children(node, loops)

    def _visit_Assign(self, node, loops) -> None:
        if len(node.targets) > 1:
            self.refuse(node, "a kernel assigns to one name at a time")
        self._check_target(node.targets[0], node)
        self._visit(node.value, loops)

    def _visit_AugAssign(self, node, loops) -> None:
        self._check_target(node.target, node)
        self._visit_operator(node.op, node)
        self._visit(node.value, loops)

    def _visit_AnnAssign(self, node, loops) -> None:
        if ast.unparse(node.annotation) not in ("tl.constexpr", "constexpr") or node.value is None:
            self.refuse(
                node, "the annotation that Triton knows is tl.constexpr: name: tl.constexpr = value"
            )
        self._check_target(node.target, node)
        self._visit(node.value, loops)

    def _check_target(self, target, node) -> None:
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        for each in targets:
            if isinstance(each, ast.Starred):
                self._visit(each, 0)
            if not isinstance(each, ast.Name):
                self.refuse(
                    node,
                    "a kernel assigns to names; what goes to memory goes by tl.store(pointer, value)",
                )

    def _visit_For(self, node, loops) -> None:
        call = node.iter
        known = isinstance(call, ast.Call) and ast.unparse(call.func) in (
            "range",
            "tl.range",
            "tl.static_range",
        )
        if not known or not isinstance(node.target, ast.Name) or node.orelse:
            self.refuse(
                node,
                "a kernel's for loop is `for name in range(...)`, tl.range or tl.static_range, without else",
            )
        self._visit(call, loops)
        for statement in node.body:
            self._visit(statement, loops + 1)

    def _visit_While(self, node, loops) -> None:
        if node.orelse:
            self.refuse(node, "a loop with else is outside of the kernel language")
        self._visit(node.test, loops)
        for statement in node.body:
            self._visit(statement, loops + 1)

    def _visit_Expr(self, node, loops) -> None:
        if language.is_text(node):
            return
        if not isinstance(node.value, (ast.Call, *REFUSED)):
            self.refuse(
                node,
                "this line computes what nothing uses; a statement assigns, stores, calls or controls",
            )
        self._visit(node.value, loops)

    def _visit_Assert(self, node, loops) -> None:
        self._visit(node.test, loops)
        if node.msg and not (
            isinstance(node.msg, ast.Constant) and isinstance(node.msg.value, str)
        ):
            self.refuse(node, "the message of an assert is a text")

    # --- expressions

    def _visit_Constant(self, node, loops) -> None:
        language.check_bits(node.value, node, self.source)
        if not isinstance(node.value, (int, float, str, type(None))):
            self.refuse(
                node,
                f"a kernel cannot hold {ast.unparse(node)}; its constants are numbers, True, False and None",
            )

    def _visit_Compare(self, node, loops) -> None:
        if len(node.ops) > 1:
            self.refuse(node, "a kernel compares two things at a time: (a <= b) & (b < c)")
        self._visit_children(node, loops)

    def _visit_Name(self, node, loops) -> None:
        if node.id in RESERVED:
            self.refuse(
                node,
                f"{node.id} is not a value here; write {node.id}."
                + ("..." if node.id == "tl" else "(...)"),
            )
        self._use(node.id, node, called=False)

    def _use(self, name, node, called) -> None:
        language.check_underscores(name, node, self.source)
        if name not in self.local:
            self.free[name] = self.free.get(name, called) and called

    def _visit_Attribute(self, node, loops) -> None:
        base, name = _base(node), node.attr
        if base == "tl":
            if name in FUNCTIONS:
                self.refuse(node, f"tl.{name} has to be called: tl.{name}(...)")
            if name not in DTYPES:
                self._refuse_unknown(node, name)
        elif base == "tl.PropagateNan":
            if name not in ("ALL", "NONE"):
                self.refuse(node, f"tl.PropagateNan has ALL and NONE, and no {name}")
        elif base in ("tl.math", "triton"):
            self.refuse(node, f"{base}.{name} has to be called, or is not known here")
        elif name not in ATTRIBUTES:
            self.refuse(
                node,
                f"a kernel cannot reach .{name}"
                + (advice(name) or f"; a block has {', '.join(sorted(ATTRIBUTES))}, and methods")
                if name not in METHODS
                else f".{name} has to be called: .{name}(...)",
            )
        else:
            self._visit(node.value, loops)

    def _refuse_unknown(self, node, name) -> None:
        self.refuse(
            node,
            f"tl.{name} is not known here: it is none of Triton's functions for kernels, or none that its "
            f"interpreter can run{advice(name)}",
        )

    def _visit_Call(self, node, loops) -> None:
        function = node.func
        name = (
            function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
        )
        if isinstance(function, ast.Attribute):
            self._check_method(node, _base(function), name, loops)
        elif not isinstance(function, ast.Name) or name in self.local:
            self.refuse(
                node,
                f"`{ast.unparse(function)}` cannot be called; tl.*, methods and @triton.jit functions can",
            )
        elif name not in BUILTINS:
            self._use(name, node, called=True)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(
                    node, "a kernel cannot contain a starred expression; write the items out"
                )
            if keyword.arg.startswith("_"):
                self.refuse(node, f"{keyword.arg} is Triton's own; a kernel leaves it out")
        takes_function = isinstance(function, ast.Attribute) and name in TAKES_FUNCTION
        for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if (
                takes_function
                and isinstance(value, ast.Name)
                and value.id not in self.local | RESERVED
            ):
                self._use(value.id, value, called=True)
            else:
                self._visit(value, loops)

    def _check_method(self, node, base, name, loops) -> None:
        known = {"tl": FUNCTIONS, "tl.math": MATH, "triton": HOST}.get(base)
        if known is not None:
            if name not in known:
                if base == "tl":
                    self._refuse_unknown(node, name)
                self.refuse(
                    node,
                    f"{base}.{name} cannot be used in a kernel"
                    + (advice(name) or f"; {base} has {', '.join(sorted(known))}"),
                )
        elif name not in METHODS:
            self.refuse(
                node,
                f"a kernel cannot call .{name}"
                + (advice(name) or f"; a block has {', '.join(sorted(METHODS))}"),
            )
        else:
            self._visit(node.func.value, loops)


OPERATORS = ast.operator, ast.unaryop, ast.cmpop, ast.boolop


def _base(node):
    """'tl', 'tl.math', 'tl.PropagateNan' or 'triton' where the attribute is one of theirs, else None."""
    text = ast.unparse(node.value) if isinstance(node.value, (ast.Name, ast.Attribute)) else ""
    return text if text in ("tl", "tl.math", "tl.PropagateNan", "triton") else None
