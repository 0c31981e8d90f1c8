"""What an interpreted kernel calls where Python means something else than Triton's compiler.

`build` writes the calls into the kernel.
"""

import builtins
import functools
import operator
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from nogpu.kernels.errors import KernelError

MAX_TURNS = 100_000  # of loops in one program; an interpreted turn with a load takes 0.1 ms
MAX_ITEMS = 64  # of a tuple
MAY_GROW_HUGE = {
    "Mult": operator.mul,
    "Mod": operator.mod,
    "Pow": operator.pow,
    "LShift": operator.lshift,
}


class Runtime:
    """The names that every kernel knows, and how many turns its loops have made in this program."""

    def __init__(self, tl: ModuleType, semantic: Any) -> None:
        self.tl = tl
        self.semantic = semantic  # Triton's: it makes a tensor of a number
        self.turns = 0

    def names(self) -> dict[str, Any]:
        """Every name that a rewritten kernel finds; no kernel's own begins with two underscores."""
        return {
            "__builtins__": {},
            "tl": self.tl,
            "triton": SimpleNamespace(cdiv=cdiv, next_power_of_2=next_power_of_2),
            "range": self.range,
            "min": self.min,
            "max": self.max,
            "float": lambda thing: float(constant(thing)),
            "int": lambda thing: int(constant(thing)),
            "len": len,
            "print": lambda *things: self.tl.device_print(*things),
            "__value": self.value,
            "__limited": limited,
            "__and": self.logical_and,
            "__or": self.logical_or,
            "__not": self.logical_not,
            "__static_range": self.static_range,
            "__turn": self.turn,
            "__types": self.types,
            "__check_types": self.check_types,
            **{f"__{name}": bounded(operate) for name, operate in MAY_GROW_HUGE.items()},
        }

    def is_tensor(self, thing: Any) -> bool:
        return isinstance(thing, self.tl.tensor)

    def value(self, thing: Any, levels: int = 3) -> Any:
        """What a variable holds after an assignment: a tl.tensor, or a tuple of them."""
        limited(thing)
        if not isinstance(thing, tuple):
            return self.semantic.to_tensor(thing, False)
        if not levels:
            raise KernelError("a tuple of tuples of tuples: a kernel has numbers and blocks")
        return tuple(self.value(item, levels - 1) for item in thing)

    # Operators

    def logical_and(self, left: Any, right: Callable[[], Any]) -> Any:
        if not self.is_tensor(left):
            return left and right()
        other = right()
        if self.is_tensor(other):
            return left.logical_and(other)
        return left if other else other

    def logical_or(self, left: Any, right: Callable[[], Any]) -> Any:
        if not self.is_tensor(left):
            return left or right()
        other = right()
        if self.is_tensor(other):
            return left.logical_or(other)
        return other if other else left

    def logical_not(self, thing: Any) -> Any:
        return self.semantic.not_(thing) if self.is_tensor(thing) else not thing

    def min(self, *things: Any) -> Any:
        return self._extreme(things, builtins.min, "minimum")

    def max(self, *things: Any) -> Any:
        return self._extreme(things, builtins.max, "maximum")

    def _extreme(self, things: tuple, of_numbers: Callable, of_blocks: str) -> Any:
        things = things[0] if len(things) == 1 and isinstance(things[0], tuple) else things
        if any(map(self.is_tensor, things)):
            return functools.reduce(getattr(self.tl, of_blocks), things)
        return of_numbers(things)

    # Loops

    def range(self, *bounds: Any, **options: Any) -> Iterator[Any]:
        numbers = builtins.range(*map(whole, bounds))
        return (self.semantic.to_tensor(number, False) for number in numbers)

    def static_range(self, *bounds: Any, step: Any = 1) -> Iterator[int]:
        start, end, step = {1: (0, *bounds, step), 2: (*bounds, step)}.get(len(bounds), bounds)
        for number in builtins.range(constant(start), constant(end), constant(step)):
            self.turn()
            yield number

    def turn(self) -> None:
        """Count a turn of a loop."""
        self.turns += 1
        if self.turns > MAX_TURNS:
            raise KernelError(
                f"more than {MAX_TURNS:,} turns of loops in one program: does a loop never end, "
                "or wait for another program? Here programs run one after the other"
            )

    def types(self, *variables: Callable[[], Any]) -> list[Any]:
        """The types of variables; None for one that has no value yet, or is not a tl.tensor."""
        return [self._type(variable) for variable in variables]

    def _type(self, variable: Callable[[], Any]) -> Any:
        try:
            thing = variable()
        except NameError:
            return None
        return thing.type if self.is_tensor(thing) else None

    def check_types(
        self, names: tuple[str, ...], before: list[Any], *variables: Callable[[], Any]
    ) -> None:
        """KernelError if a turn has changed a variable's type, which Triton's compiler refuses."""
        for name, old, new in zip(names, before, self.types(*variables), strict=True):
            if old is not None and new is not None and old != new:
                was, becomes = described(old), described(new)
                raise KernelError(
                    f"{name} is {was} before this loop and {becomes} after a turn of it; on a "
                    f"GPU a loop keeps types: begin with {becomes}, or convert with .to(...)"
                )


def limited(thing: Any) -> Any:
    """The thing itself; KernelError if it is a tuple or a text of too many parts."""
    if isinstance(thing, (str, tuple, list)) and len(thing) > MAX_ITEMS:
        raise KernelError(f"a tuple or a text has {MAX_ITEMS} parts at most")
    return thing


def bounded(operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator that refuses to make a huge number, tuple or text."""

    def apply(left: Any, right: Any) -> Any:
        if isinstance(left, (str, tuple, list)) or isinstance(right, (str, tuple, list)):
            raise KernelError("*, %, ** and << are for numbers and blocks")
        grows = operate in (operator.pow, operator.lshift) and not isinstance(left, float)
        if grows and isinstance(right, int) and not -64 <= right <= 64:
            raise KernelError("a power or a shift is by 64 at most")
        result = operate(left, right)
        if isinstance(result, int) and not -(2**63) <= result < 2**64:
            raise KernelError("an integer has 64 bits at most")
        return result

    return apply


def cdiv(x: Any, y: Any) -> Any:
    return -(-constant(x) // constant(y))


def next_power_of_2(n: Any) -> int:
    return 1 << (constant(n) - 1).bit_length()


def constant(thing: Any) -> Any:
    """A number that is known when a kernel is compiled."""
    if hasattr(thing, "handle"):
        raise KernelError(
            "Triton needs a tl.constexpr here, and this number is known only at run time; "
            "on such a number, use tl.cdiv(x, y), x.to(tl.float32) or x.to(tl.int32)"
        )
    return thing


def whole(bound: Any) -> int:
    """A loop's bound as an int."""
    if hasattr(bound, "handle"):
        if bound.handle.data.size != 1 or not bound.dtype.is_int():
            raise KernelError(
                "a loop's bound is one whole number, and this is a block, or not a whole number"
            )
        return int(bound.handle.data.item())
    if not isinstance(bound, int):
        raise KernelError(f"a loop's bound is a whole number, and {bound!r} is not")
    return bound


def described(kind: Any) -> str:
    """A Triton type in words: "fp32", "a block of fp32 of shape [16, 16]"."""
    if kind.is_block():
        return f"a block of {kind.element_ty} of shape {[int(size) for size in kind.shape]}"
    return str(kind)
