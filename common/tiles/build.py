"""From a checked Function to what Triton's interpreter runs.

A kernel is rewritten where Python means another thing than Triton's compiler does: an assigned number becomes a tl.tensor, the
variable of a loop is one, `and`, `or` and `not` work on blocks. It sees the names that the language knows, and no others.
"""

import ast
import builtins
import functools
import itertools
from types import SimpleNamespace

from common.simt.errors import KernelError
from common.tiles import attach
from common.tiles.functions import resolved

numbers = itertools.count()


class Built:
    """An interpreted kernel, and the Source of each function in it by the name of its code's file."""

    def __init__(self, function):
        import triton.language as tl
        self.sources, made = {}, {}
        module = attach.interpreter()
        for each in function.closure():
            namespace = {**_namespace(module, tl), **{name: resolved(value, tl) for name, value in each.constants.items()},
                         **{name: made[id(called)] for name, called in each.functions.items()}}
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
        return self.generic_visit(node)

    def visit_Assign(self, node):
        node.value = _call(node, "__value", self.visit(node.value))
        return node

    def visit_AugAssign(self, node):
        left = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        value = ast.copy_location(ast.BinOp(left, node.op, node.value), node)
        return self.visit(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_BoolOp(self, node):
        name = "__and" if isinstance(node.op, ast.And) else "__or"
        first, *others = (self.visit(value) for value in node.values)
        for other in others:
            first = _call(node, name, first, ast.copy_location(ast.Lambda(NO_ARGUMENTS, other), node))
        return first

    def visit_UnaryOp(self, node):
        node = self.generic_visit(node)
        return _call(node, "__not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Call(self, node):
        node = self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) in ("tl.range", "tl.static_range"):
            name = "range" if node.func.attr == "range" else "__static_range"
            node.func = ast.copy_location(ast.Name(name, ast.Load()), node)
        return node


NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _call(node, name, *arguments):
    return ast.copy_location(ast.Call(ast.copy_location(ast.Name(name, ast.Load()), node), list(arguments), []), node)


def _namespace(module, tl):
    """The names that every kernel knows."""
    semantic = module.interpreter_semantic

    def value(thing):
        if isinstance(thing, tuple):
            return tuple(value(item) for item in thing)
        return semantic.to_tensor(thing, False)

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

    def loop(*bounds, **options):
        return (semantic.to_tensor(number) for number in builtins.range(*map(whole, bounds)))

    def static_loop(*bounds, step=1):
        start, end, step = {1: (0, *bounds, step), 2: (*bounds, step)}.get(len(bounds), bounds)
        return builtins.range(constant(start), constant(end), constant(step))

    def constant(thing):
        if is_tensor(thing):
            raise KernelError("a number known only at run time stands where Triton needs a tl.constexpr")
        return thing

    def smallest_or_largest(builtin, block):
        def choose(*things):
            things = things[0] if len(things) == 1 and isinstance(things[0], tuple) else things
            if any(map(is_tensor, things)):
                return functools.reduce(lambda left, right: getattr(tl, block)(left, right), things)
            return builtin(things)
        return choose

    return {"__builtins__": {}, "tl": tl, "__value": value, "__and": both, "__or": either, "__not": opposite, "range": loop,
            "__static_range": static_loop,
            "min": smallest_or_largest(min, "minimum"), "max": smallest_or_largest(max, "maximum"),
            "float": lambda thing: float(constant(thing)), "int": lambda thing: int(constant(thing)), "len": len,
            "print": lambda *things: tl.device_print(*things),
            "triton": SimpleNamespace(cdiv=lambda x, y: -(-constant(x) // constant(y)),
                                      next_power_of_2=lambda n: 1 << (constant(n) - 1).bit_length())}


def whole(bound):
    """A loop's bound as an int."""
    if hasattr(bound, "handle"):
        if bound.handle.data.size != 1 or not bound.dtype.is_int():
            raise KernelError("a loop's bound is one whole number, and this is a block or no whole number")
        return int(bound.handle.data.item())
    if not isinstance(bound, int):
        raise KernelError(f"a loop's bound is a whole number, and {bound!r} is not")
    return bound
