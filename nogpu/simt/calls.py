"""Calls in a kernel, and the table of the functions that it may call."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Never, Protocol

from nogpu.simt import dtypes
from nogpu.simt.frame import Frame
from nogpu.simt.operators import exact
from nogpu.simt.values import Number, Static, Value


class Evaluator(Protocol):
    """What a call needs of the translation of expressions."""

    frame: Frame

    def meaning(self, node: ast.expr) -> Value | Static:
        """What an expression stands for."""
        ...

    def expression(self, node: ast.expr) -> Value:
        """The value of an expression; KernelError if it is not a value."""
        ...

    def number(self, node: ast.expr) -> Number:
        """The value of an expression; KernelError if it is not one number."""
        ...


@dataclass(frozen=True)
class Call:
    """A call of one of the functions in the table."""

    evaluator: Evaluator
    node: ast.Call
    function: str  # by its dotted name: cuda.syncthreads

    @property
    def frame(self) -> Frame:
        return self.evaluator.frame

    @property
    def name(self) -> str:
        """The last part of the function's name: syncthreads."""
        return self.function.rpartition(".")[2]

    @property
    def text(self) -> str:
        """The function as written."""
        return ast.unparse(self.node.func)

    def refuse(self, sentence: str) -> Never:
        """Raise KernelError with this sentence about the call's line."""
        self.frame.refuse(self.node, sentence)

    def arguments(self, names: Sequence[str]) -> list[ast.expr]:
        """The nodes of the arguments, in the order of these names. All are required."""
        given = dict(zip(names, self.node.args, strict=False))
        for keyword in self.node.keywords:
            if keyword.arg is None or keyword.arg not in names or keyword.arg in given:
                self.refuse(f"`{self.text}` takes ({', '.join(names)})")
            given[keyword.arg] = keyword.value
        if len(self.node.args) > len(names) or len(given) != len(names):
            self.refuse(
                f"`{self.text}` takes ({', '.join(names)}), and "
                f"{len(self.node.args) + len(self.node.keywords)} arguments were given"
            )
        return [given[name] for name in names]

    def numbers(self, *counts: int) -> list[Number]:
        """The values of the arguments, all numbers, of one of these counts."""
        if self.node.keywords or len(self.node.args) not in counts:
            takes = " or ".join(map(str, counts))
            self.refuse(f"`{self.text}` takes {takes} arguments, without names")
        return [self.evaluator.number(argument) for argument in self.node.args]

    def whole(self, value: Number, what: str) -> str:
        """Code of a number that must be whole."""
        if value.type not in dtypes.INTEGERS:
            self.refuse(
                f"{what} is a whole number, and this is {value.type}; convert it with int(...)"
            )
        return exact(self.frame, value).code


class Builtins(dict[str, Callable[[Call], Value]]):
    """How each function that a kernel may call is translated, by its dotted name."""

    def __call__(self, *names: str) -> Callable[[Callable[[Call], Value]], Callable[[Call], Value]]:
        """The decorator of a function that translates calls of these names."""

        def enter(translate: Callable[[Call], Value]) -> Callable[[Call], Value]:
            self.update(dict.fromkeys(names, translate))
            return translate

        return enter
