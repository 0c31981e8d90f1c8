"""The kernel language: which Python a Triton kernel may be written in.

Triton compiles a kernel from its syntax tree. Its interpreter runs a kernel as Python, and takes
much that the compiler refuses. `check` lets through only the nodes in `ALLOWED` and the names in
the tables below; everything else is refused by a sentence that names the line. What passes can do
nothing but compute: every name in it is a variable of its own, a number, `tl`, or another such
function.
"""

import ast

from nogpu.kernels import language
from nogpu.kernels.source import Source
from nogpu.tiles.dtypes import TL_NAMES


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BUILTINS = _names("range min max float int len print")
RESERVED = BUILTINS | {"tl", "triton"}
# tl.*
FUNCTIONS = _names("""
    abs arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_max
    atomic_min atomic_or atomic_xchg atomic_xor broadcast broadcast_to cast cat cdiv ceil clamp
    cos cumprod cumsum debug_barrier device_assert device_print div_rn dot erf exp exp2
    expand_dims fdiv flip floor fma full gather histogram interleave join load
    load_tensor_descriptor log log2 make_tensor_descriptor max max_constancy max_contiguous
    maximum min minimum multiple_of num_programs permute philox pointer_type program_id rand
    rand4x randint randint4x randn randn4x range ravel reduce reduce_or reshape rsqrt sigmoid
    sin softmax sort split sqrt sqrt_rn static_assert static_print static_range store
    store_tensor_descriptor sum swizzle2d topk trans umulhi view where xor_sum zeros zeros_like
""")
# tl.math.*
MATH = _names("""
    abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi
""")
HOST = _names("cdiv next_power_of_2")  # triton.*, of constants
# Of blocks, numbers, dtypes and descriptors.
METHODS = _names("""
    abs argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min
    atomic_or atomic_xchg atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum erf exp exp2
    expand_dims flip floor gather histogram is_floating item load log log2 logical_and
    logical_or max min permute ravel reduce reduce_or reshape rsqrt scatter sigmoid sin softmax
    sort split sqrt sqrt_rn store sum to trans view xor_sum
""")
ATTRIBUTES = _names("""
    T block_shape dtype element_ty numel primitive_bitwidth scalar shape type
""")
TAKES_FUNCTION = _names("reduce associative_scan")
CONSTEXPR = _names("tl.constexpr constexpr")
RANGES = _names("range tl.range tl.static_range")
BLOCK_POINTERS = (
    "tl.make_tensor_descriptor(...), or pointers and a mask; Triton has no block pointers from "
    "version 3.9 on"
)
ADVICE = {  # names that Triton's language lacks, and what to write
    **{name: f"tl.{name}(x)" for name in _names("abs exp log sqrt sin cos floor ceil")},
    **{name: f"x.to(tl.{name})" for name in TL_NAMES},
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
    "make_block_ptr": BLOCK_POINTERS,
    "advance": BLOCK_POINTERS,
}

LIBRARIES = _names("np numpy torch math F")  # that a notebook has, and a kernel lacks
INSTEAD = {"inf": "float('inf')", "nan": "float('nan')", "pi": "the number", "e": "the number"}

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
OPERATORS = ast.operator, ast.unaryop, ast.cmpop, ast.boolop


def advice(name: str) -> str:
    """'; write ...' for a name that Triton's language lacks, or nothing."""
    return f"; write {ADVICE[name]}" if name in ADVICE else ""


def check(function: ast.FunctionDef, source: Source) -> dict[str, bool]:
    """The names that this function takes from outside of it, and whether it calls them.

    KernelError if the function is not in the language. If it still raises NotImplementedError, as
    an exercise does before it is solved, then so does this.
    """
    language.check_written(function)
    return _Checker(function, source).free


class _Checker(ast.NodeVisitor):
    """A walk over one function. loops: how many loops the current statement is in."""

    def __init__(self, function: ast.FunctionDef, source: Source) -> None:
        self.refuse = source.refuse
        self.source = source
        self.free: dict[str, bool] = {}  # name: whether it is called, or given to tl.reduce
        self.loops = 0
        self._check_parameters(function)
        language.nodes_of(function.body, source)
        stored = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self.local = {argument.arg for argument in function.args.args} | stored
        # Constants that the launch gives: they may be functions.
        self.given = {part.arg for part in function.args.args if part.annotation} - stored
        for name in self.local:
            self._check_new_name(name, function)
        for default in function.args.defaults:
            self._check_default(default)
        for statement in function.body:
            self.visit(statement)

    def _check_parameters(self, function: ast.FunctionDef) -> None:
        arguments = function.args
        if function.returns or getattr(function, "type_params", None):
            self.refuse(function, "a kernel has no return annotation, and no type parameters")
        self._check_new_name(function.name, function)
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
            self.refuse(function, "a kernel's parameters are plain names, with no stars")
        for argument in arguments.args:
            if argument.annotation and ast.unparse(argument.annotation) not in CONSTEXPR:
                self.refuse(
                    function,
                    f"{argument.arg} has the annotation {ast.unparse(argument.annotation)}; "
                    "the one that Triton knows is tl.constexpr",
                )

    def _check_new_name(self, name: str, node: ast.AST) -> None:
        language.check_underscores(name, node, self.source)
        if name in RESERVED:
            self.refuse(node, f"{name} is taken; choose another name")

    def _check_default(self, node: ast.expr) -> None:
        inner = node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = node.operand
        if not isinstance(inner, ast.Constant) or not isinstance(
            inner.value, (int, float, str, type(None))
        ):
            self.refuse(node, "a parameter's default is a number, a text, True, False or None")
        self.visit_Constant(inner)

    def visit(self, node: ast.AST) -> None:
        """Check a statement or an expression, and what is in it."""
        self._check_allowed(node, node)
        if not isinstance(node, ALLOWED):
            self.refuse(
                node,
                f"a kernel cannot contain {type(node).__name__}; it has blocks, numbers, tl.*, "
                "if, for and while",
            )
        super().visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, OPERATORS):
                self._check_allowed(child, node)
            elif not isinstance(child, ast.expr_context):
                self.visit(child)

    def _check_allowed(self, part: ast.AST, node: ast.AST) -> None:
        """KernelError if REFUSED has a sentence for a part of the node, or for the node itself."""
        for kind, sentence in REFUSED.items():
            if isinstance(part, kind):
                self.refuse(node, f"a kernel cannot contain {sentence}")

    # Statements

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.refuse(
            node,
            f"a kernel cannot define a function; write {node.name} before it, decorated with "
            "@triton.jit",
        )

    def visit_Return(self, node: ast.Return) -> None:
        if self.loops:
            self.refuse(node, "a kernel cannot return from within a loop")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            self.refuse(node, "a kernel assigns to one name at a time")
        self._check_target(node.targets[0], node)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._check_target(node.target, node)
        self._check_allowed(node.op, node)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if ast.unparse(node.annotation) not in CONSTEXPR or node.value is None:
            self.refuse(node, "the only annotation is tl.constexpr: name: tl.constexpr = value")
        self._check_target(node.target, node)
        self.visit(node.value)

    def _check_target(self, target: ast.expr, node: ast.stmt) -> None:
        for name in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(name, ast.Starred):
                self.visit(name)
            if not isinstance(name, ast.Name):
                self.refuse(
                    node,
                    "a kernel assigns to names; write to memory with tl.store(pointer, value)",
                )

    def visit_For(self, node: ast.For) -> None:
        counts = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) in RANGES
        if not counts or not isinstance(node.target, ast.Name) or node.orelse:
            self.refuse(
                node,
                "a kernel's for loop is `for name in range(...)`, tl.range or tl.static_range, "
                "without else",
            )
        self._visit_loop(node.iter, node.body)

    def visit_While(self, node: ast.While) -> None:
        if node.orelse:
            self.refuse(node, "a loop with else is outside of the kernel language")
        self._visit_loop(node.test, node.body)

    def _visit_loop(self, head: ast.expr, body: list[ast.stmt]) -> None:
        self.visit(head)
        self.loops += 1
        for statement in body:
            self.visit(statement)
        self.loops -= 1

    def visit_Expr(self, node: ast.Expr) -> None:
        if language.is_text(node):
            return
        if not isinstance(node.value, (ast.Call, *REFUSED)):
            self.refuse(
                node,
                "nothing uses what this line computes; a statement assigns, stores, calls or "
                "controls",
            )
        self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        self.visit(node.test)
        message = node.msg
        is_text = isinstance(message, ast.Constant) and isinstance(message.value, str)
        if message and not is_text:
            self.refuse(node, "the message of an assert is a text")

    # Expressions

    def visit_Constant(self, node: ast.Constant) -> None:
        language.check_bits(node.value, node, self.source)
        if not isinstance(node.value, (int, float, str, type(None))):
            self.refuse(
                node,
                f"a kernel cannot hold {ast.unparse(node)}; its constants are numbers, True, "
                "False and None",
            )

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) > 1:
            self.refuse(node, "a kernel compares two things at a time: (a <= b) & (b < c)")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in RESERVED:
            usage = f"{node.id}(...)" if node.id in BUILTINS else f"{node.id}.name"
            self.refuse(node, f"{node.id} is not a value here; write {usage}")
        self._use(node.id, node, called=False)

    def _use(self, name: str, node: ast.AST, called: bool) -> None:
        language.check_underscores(name, node, self.source)
        if name not in self.local:
            self.free[name] = self.free.get(name, called) and called

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base, name = _base(node), node.attr
        self._check_library(node)
        if base == "tl":
            if name in FUNCTIONS:
                self.refuse(node, f"tl.{name} has to be called: tl.{name}(...)")
            if name not in TL_NAMES:
                self._refuse_unknown(node, name)
        elif base == "tl.PropagateNan":
            if name not in ("ALL", "NONE"):
                self.refuse(node, f"tl.PropagateNan has ALL and NONE, and no {name}")
        elif base in ("tl.math", "triton"):
            self.refuse(node, f"{base}.{name} has to be called, or is not known here")
        elif name in METHODS:
            self.refuse(node, f".{name} has to be called: .{name}(...)")
        elif name not in ATTRIBUTES:
            known = f"; a block has {', '.join(sorted(ATTRIBUTES))}, and methods"
            self.refuse(node, f"a kernel cannot reach .{name}{advice(name) or known}")
        else:
            self.visit(node.value)

    def _check_library(self, node: ast.Attribute) -> None:
        """KernelError if the attribute is one of a library's that no kernel can reach."""
        library = node.value
        if isinstance(library, ast.Name) and library.id in LIBRARIES - self.local:
            write = INSTEAD.get(node.attr) or (
                f"tl.{node.attr}" if node.attr in FUNCTIONS else "tl"
            )
            self.refuse(
                node,
                f"{library.id}.{node.attr}: a kernel has no {library.id}; write {write}",
            )

    def _refuse_unknown(self, node: ast.AST, name: str) -> None:
        self.refuse(
            node,
            f"tl.{name} is not known here: it is not one of Triton's functions for kernels, or "
            f"not one that every version has and its interpreter can run{advice(name)}",
        )

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute):
            self._check_method(function, node)
        elif not isinstance(function, ast.Name) or function.id in self.local - self.given:
            self.refuse(
                node,
                f"`{ast.unparse(function)}` cannot be called; tl.*, methods, @triton.jit "
                "functions and parameters that are tl.constexpr can",
            )
        elif function.id not in BUILTINS | self.given:
            self._use(function.id, node, called=True)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(
                    node, "a kernel cannot contain a starred expression; write the items out"
                )
            elif keyword.arg.startswith("_"):
                self.refuse(node, f"{keyword.arg} is Triton's own; a kernel leaves it out")
        takes_function = isinstance(function, ast.Attribute) and function.attr in TAKES_FUNCTION
        for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
            own = isinstance(value, ast.Name) and value.id in self.local | RESERVED
            if takes_function and isinstance(value, ast.Name) and not own:
                self._use(value.id, value, called=True)
            else:
                self.visit(value)

    def _check_method(self, function: ast.Attribute, node: ast.Call) -> None:
        base, name = _base(function), function.attr
        self._check_library(function)
        if base == "tl" and name not in FUNCTIONS:
            self._refuse_unknown(node, name)
        known = {"tl": FUNCTIONS, "tl.math": MATH, "triton": HOST}.get(base)
        if known is not None:
            if name not in known:
                others = f"; {base} has {', '.join(sorted(known))}"
                self.refuse(
                    node, f"{base}.{name} cannot be used in a kernel{advice(name) or others}"
                )
        elif name not in METHODS:
            others = f"; a block has {', '.join(sorted(METHODS))}"
            self.refuse(node, f"a kernel cannot call .{name}{advice(name) or others}")
        else:
            self.visit(function.value)


def _base(node: ast.Attribute) -> str:
    """'tl', 'tl.math', 'tl.PropagateNan' or 'triton' if the attribute is one of theirs, else ''."""
    text = ast.unparse(node.value) if isinstance(node.value, (ast.Name, ast.Attribute)) else ""
    return text if text in ("tl", "tl.math", "tl.PropagateNan", "triton") else ""
