"""From a checked Function to what Triton's interpreter runs.

A kernel is rewritten where Python means another thing than Triton's compiler does: an assigned number becomes a tl.tensor, the
variable of a loop is one, what a loop changes keeps its type, `and`, `or` and `not` work on blocks. It sees the names that the
language knows, and no others.
"""

import ast
import builtins
import functools
import itertools
import operator
from types import SimpleNamespace

from common.kernels.errors import KernelError
from common.tiles import attach
from common.tiles.functions import resolved

MAX_TURNS = (
    100_000  # of loops, in one program; an interpreted turn that loads something takes 0.1 ms
)
MAX_ITEMS = 64  # of a tuple
BOUNDED = {
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}  # may grow huge
numbers = itertools.count()


class Built:
    """An interpreted kernel, and the Source of each function in it by the name of its code's file."""

    def __init__(self, function) -> None:
        import triton.language as tl

        self.sources, made = {}, {}
        module = attach.interpreter()
        self.loops = Loops(tl, module.interpreter_semantic)
        for each in function.closure():
            namespace = {
                **_namespace(module, tl),
                **self.loops.names(),
                **{name: resolved(value, tl) for name, value in each.constants.items()},
                **{name: made[id(called)] for name, called in each.functions.items()},
            }
            file = f"{attach.KERNEL_FILE}{next(numbers)}>"
            self.sources[file] = each.source
            made[id(each)] = _interpreted(module, _compiled(each, file, namespace))
        self.kernel = made[id(function)]

    def place(self, traceback):
        """(Source, line) of the innermost line of the kernel in a traceback, or None."""
        found = None
        while traceback is not None:
            source = self.sources.get(traceback.tb_frame.f_code.co_filename)
            found = (source, traceback.tb_lineno) if source else found
            traceback = traceback.tb_next
        return found


def _compiled(function, file, namespace):
    tree = ast.fix_missing_locations(ast.Module([_Rewriter().visit(function.definition())], []))
    exec(compile(tree, file, "exec"), namespace)
    return namespace[function.name]


def _interpreted(module, function):
    interpreted = module.InterpretedFunction(function)
    interpreted.rewritten_fn[function] = function  # it is rewritten already
    return interpreted


class _Rewriter(ast.NodeTransformer):
    """Puts calls of the functions below, whose names no kernel can have, where Python's own meaning would be wrong."""

    def visit_FunctionDef(self, node):
        for argument in node.args.args:
            argument.annotation = None
        node.returns = None
        self.loops = itertools.count()
        return self.generic_visit(node)

    def visit_For(self, node):
        unrolled = (
            ast.unparse(node.iter.func) == "tl.static_range"
        )  # its turns follow each other as text: types may change
        return self.generic_visit(node) if unrolled else self._keeping_types(node)

    def visit_While(self, node):
        return self._keeping_types(node)

    def _keeping_types(self, node):
        """The loop, and after each turn of it a look at the types that its variables had before."""
        names = sorted(
            {
                each.id
                for statement in node.body
                for each in ast.walk(statement)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
        )
        kinds = f"__kinds{next(self.loops)}"
        self.generic_visit(node)
        looks = [_later(node, ast.Name(name, ast.Load())) for name in names]
        before = ast.Assign([ast.Name(kinds, ast.Store())], _call(node, "__kinds", *looks))
        turn = ast.copy_location(ast.Expr(_call(node, "__turn")), node)
        after = _call(
            node, "__kept", ast.Constant(tuple(names)), ast.Name(kinds, ast.Load()), *looks
        )
        node.body = [turn, *node.body, ast.copy_location(ast.Expr(after), node)]
        return [ast.copy_location(before, node), node]

    def visit_Assign(self, node):
        node.value = _call(node, "__value", self.visit(node.value))
        return node

    def visit_AnnAssign(self, node):
        node.value = _call(node, "__small", self.visit(node.value))
        return node

    def visit_AugAssign(self, node):
        left = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        value = ast.copy_location(ast.BinOp(left, node.op, node.value), node)
        return self.visit(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_BoolOp(self, node):
        name = "__and" if isinstance(node.op, ast.And) else "__or"
        first, *others = (self.visit(value) for value in node.values)
        for other in others:
            first = _call(node, name, first, _later(node, other))
        return first

    def visit_BinOp(self, node):
        node = self.generic_visit(node)
        return (
            _call(node, f"__{type(node.op).__name__}", node.left, node.right)
            if type(node.op) in BOUNDED
            else node
        )

    def visit_UnaryOp(self, node):
        node = self.generic_visit(node)
        return _call(node, "__not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Call(self, node):
        node = self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) in (
            "tl.range",
            "tl.static_range",
        ):
            name = "range" if node.func.attr == "range" else "__static_range"
            node.func = ast.copy_location(ast.Name(name, ast.Load()), node)
        return node


NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _later(node, expression):
    return ast.copy_location(ast.Lambda(NO_ARGUMENTS, expression), node)


def _call(node, name, *arguments):
    return ast.copy_location(
        ast.Call(ast.copy_location(ast.Name(name, ast.Load()), node), list(arguments), []), node
    )


def _namespace(module, tl):
    """The names that every kernel knows."""
    semantic = module.interpreter_semantic

    def value(thing, levels=3):
        small(thing)
        if not isinstance(thing, tuple):
            return semantic.to_tensor(thing, False)
        if not levels:
            raise KernelError("a tuple of tuples of tuples: a kernel has numbers and blocks")
        return tuple(value(item, levels - 1) for item in thing)

    def small(thing):
        if isinstance(thing, (str, tuple, list)) and len(thing) > MAX_ITEMS:
            raise KernelError(f"a tuple or a text has {MAX_ITEMS} parts at most")
        return thing

    def is_tensor(thing):
        return isinstance(thing, tl.tensor)

    def both(left, right):
        if not is_tensor(left):
            return left and right()
        right = right()
        return left.logical_and(right) if is_tensor(right) else (left if right else right)

    def either(left, right):
        if not is_tensor(left):
            return left or right()
        right = right()
        return left.logical_or(right) if is_tensor(right) else (right if right else left)

    def opposite(thing):
        return semantic.not_(thing) if is_tensor(thing) else not thing

    def bounded(operate):
        def apply(left, right):
            if isinstance(left, (str, tuple, list)) or isinstance(right, (str, tuple, list)):
                raise KernelError("*, %, ** and << are for numbers and blocks")
            if (
                operate in (operator.pow, operator.lshift)
                and isinstance(right, int)
                and not -64 <= right <= 64
            ):
                raise KernelError("a power or a shift is by 64 at most")
            result = operate(left, right)
            if isinstance(result, int) and not -(2**63) <= result < 2**64:
                raise KernelError("an integer has 64 bits at most")
            return result

        return apply

    def smallest_or_largest(builtin, block):
        def choose(*things):
            things = things[0] if len(things) == 1 and isinstance(things[0], tuple) else things
            if any(map(is_tensor, things)):
                return functools.reduce(lambda left, right: getattr(tl, block)(left, right), things)
            return builtin(things)

        return choose

    return {
        "__builtins__": {},
        "tl": tl,
        "__value": value,
        "__small": small,
        "__and": both,
        "__or": either,
        "__not": opposite,
        **{f"__{kind.__name__}": bounded(operate) for kind, operate in BOUNDED.items()},
        "min": smallest_or_largest(min, "minimum"),
        "max": smallest_or_largest(max, "maximum"),
        "float": lambda thing: float(constant(thing)),
        "int": lambda thing: int(constant(thing)),
        "len": len,
        "print": lambda *things: tl.device_print(*things),
        "triton": SimpleNamespace(
            cdiv=lambda x, y: -(-constant(x) // constant(y)),
            next_power_of_2=lambda n: 1 << (constant(n) - 1).bit_length(),
        ),
    }


class Loops:
    """What the loops of an interpreted kernel are made of, and how many turns they have made in this program."""

    def __init__(self, tl, semantic) -> None:
        self.tl, self.semantic, self.turns = tl, semantic, 0

    def names(self):
        """The names under which a rewritten kernel finds it."""
        return {
            "range": self.range,
            "__static_range": self.static_range,
            "__turn": self.turn,
            "__kinds": self.kinds,
            "__kept": self.kept,
        }

    def range(self, *bounds, **options):
        return (
            self.semantic.to_tensor(number, False) for number in builtins.range(*map(whole, bounds))
        )

    def static_range(self, *bounds, step=1):
        start, end, step = {1: (0, *bounds, step), 2: (*bounds, step)}.get(len(bounds), bounds)
        for number in builtins.range(constant(start), constant(end), constant(step)):
            self.turn()
            yield number

    def turn(self) -> None:
        """Counts a turn."""
        self.turns += 1
        if self.turns > MAX_TURNS:
            raise KernelError(
                f"more than {MAX_TURNS:,} turns of loops in one program: does a loop never end, or wait for "
                "another program? Here programs run one after the other"
            )

    def kinds(self, *looks):
        """The types of variables; None where one has no value yet, or is no tl.tensor."""
        return [self._kind(look) for look in looks]

    def _kind(self, look):
        try:
            thing = look()
        except NameError:
            return None
        return thing.type if isinstance(thing, self.tl.tensor) else None

    def kept(self, names, before, *looks) -> None:
        """KernelError where a turn has changed a variable's type, which Triton's compiler refuses."""
        for name, was, now in zip(names, before, self.kinds(*looks), strict=True):
            if was is not None and now is not None and was != now:
                raise KernelError(
                    f"{name} is {described(was)} before this loop and {described(now)} after a turn of it; on a "
                    f"GPU a loop keeps types: begin with {described(now)}, or convert with .to(...)"
                )


def constant(thing):
    """A number that is known when a kernel is compiled."""
    if hasattr(thing, "handle"):
        raise KernelError(
            "a number known only at run time stands where Triton needs a tl.constexpr; what it takes is "
            "tl.cdiv(x, y), x.to(tl.float32), x.to(tl.int32)"
        )
    return thing


def described(kind):
    """A Triton type in words: "fp32", "a block of fp32 of shape [16, 16]"."""
    return (
        f"a block of {kind.element_ty} of shape {[int(size) for size in kind.shape]}"
        if kind.is_block()
        else str(kind)
    )


def whole(bound):
    """A loop's bound as an int."""
    if hasattr(bound, "handle"):
        if bound.handle.data.size != 1 or not bound.dtype.is_int():
            raise KernelError(
                "a loop's bound is one whole number, and this is a block or no whole number"
            )
        return int(bound.handle.data.item())
    if not isinstance(bound, int):
        raise KernelError(f"a loop's bound is a whole number, and {bound!r} is not")
    return bound
