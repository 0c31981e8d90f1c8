"""Where paths of a kernel meet: the types of its variables there, and what each path converts."""

import ast
from collections.abc import Iterable, Sequence

from nogpu.simt import dtypes
from nogpu.simt.code import Slot
from nogpu.simt.dtypes import Array, Tuple, Type
from nogpu.simt.frame import Env, Frame, Path
from nogpu.simt.values import converted, variables

KERNEL = 0  # the number of the kernel among the functions of its program


def meet(frame: Frame, paths: Iterable[Path], node: ast.AST) -> None:
    """Go on where these paths meet. Each converts in its slot the variables whose type differs."""
    arriving = [(path.env, path.slot) for path in paths if path.env is not None]
    if not arriving:
        frame.enter(None)
        return
    joined = joined_environment(frame, [env for env, _ in arriving], node)
    for env, slot in arriving:
        convert(frame, env, joined, slot)
    frame.enter(joined)


def joined_environment(frame: Frame, environments: Iterable[Env], node: ast.AST) -> Env:
    """The types of all variables that have a value on one of the paths."""
    joined: Env = {}
    for env in environments:
        for name, kind in env.items():
            other = joined.get(name, kind)
            joined[name] = joined_type(frame, other, kind, name, node)
    return joined


def joined_type(frame: Frame, first: Type, second: Type, name: str, node: ast.AST) -> Type:
    """The type that holds both; KernelError if there is none."""
    if first == second:
        return first
    if isinstance(first, str) and isinstance(second, str):
        return dtypes.common(first, second)
    if (
        isinstance(first, Tuple)
        and isinstance(second, Tuple)
        and len(first.items) == len(second.items)
    ):
        return Tuple(tuple(map(dtypes.common, first.items, second.items)))
    if isinstance(first, Array) and isinstance(second, Array):
        frame.refuse(
            node,
            f"{name} is another kind of array on each path that meets here; dtype, memory and "
            "shape must agree",
        )
    frame.refuse(
        node,
        f"{name} is {dtypes.describe(first)} on one path and {dtypes.describe(second)} on another",
    )


def convert(frame: Frame, have: Env, want: Env, slot: Slot) -> None:
    """Write into a path's slot the conversions of its variables."""
    for name, kind in have.items():
        codes = variables(name, kind)
        for code, new in zip(codes, _conversions(codes, kind, want[name]), strict=True):
            if new != code:
                slot.append((f"{code} = {new}", frame.writer.line))


def join_returns(frame: Frame) -> Type:
    """The type that the function returns; each return converts to it."""
    if not frame.returns:
        return None
    if frame.version == KERNEL:
        sentence = "a kernel returns nothing; it writes its results into an array"
        frame.refuse(frame.returns[0].node, sentence)
    if frame.reached or frame.returns_nothing:
        frame.refuse(
            frame.function.node,
            "every path through a device function that returns a value must return one",
        )
    kind = frame.returns[0].value.type
    for value, node, _ in frame.returns[1:]:
        kind = joined_type(frame, kind, value.type, "what is returned", node)
    for value, node, slot in frame.returns:
        codes = _conversions(value.codes, value.type, kind)
        code = codes[0] if len(codes) == 1 else f"({', '.join(codes)})"
        slot.append((f"return {code}", node.lineno))
    return kind


def _conversions(codes: Sequence[str], have: Type, want: Type) -> list[str]:
    return list(map(converted, codes, dtypes.leaves(have), dtypes.leaves(want)))
