"""Masks and changes of scores, written in Python, traced into functions of a Triton kernel.

    text(lambda b, h, i, j: i >= j)                      # a mask_mod
    text(lambda score, b, h, i, j: score - (i - j))      # a score_mod
    slope_text(lambda score, b, h, i, j: 3 * score)      # its derivative by the score

FlexAttention does the same with more operations: it records what a Python function does to the
tensors it is given, writes a Triton function that does it to blocks, and differentiates the record.
torch.fx records here. The slope is found in forward mode: beside each value stands its derivative.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

Mod = Callable[..., Any]
MASKS: dict[str, Mod] = {  # of lab 06's checks: (b, h, i, j): may query i see key j?
    "everything": lambda b, h, i, j: j >= 0,
    "causal": lambda b, h, i, j: i >= j,
    "a window of 7 keys": lambda b, h, i, j: (i >= j) & (i - j < 7),
    "a prefix of 5 keys": lambda b, h, i, j: (i >= j) | (j < 5),
    "documents from 0, 9 and 20": lambda b, h, i, j: (
        (i >= j) & ((i >= 9) == (j >= 9)) & ((i >= 20) == (j >= 20))
    ),
    "queries from 3 to 11 see nothing": lambda b, h, i, j: (i >= j) & ((i < 3) | (i >= 12)),
    "another window in each batch and head": lambda b, h, i, j: (i >= j) & (i - j < 2 + 3 * b + h),
}
OPERATIONS = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in {
        "add": "+", "sub": "-", "mul": "*", "multiply": "*", "subtract": "-",
        "truediv": "/", "div": "/", "divide": "/", "true_divide": "/",
        "ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!=",
        "and": "&", "or": "|", "xor": "^",
        "logical_and": "&", "logical_or": "|", "logical_xor": "^",
        "bitwise_and": "&", "bitwise_or": "|",
    }.items()},
    "neg": "-{0}", "negative": "-{0}", "pos": "{0}",
    "invert": "{0} == 0", "logical_not": "{0} == 0", "bitwise_not": "{0} == 0",
    "abs": "tl.abs({0})", "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))",
    "exp": "tl.exp(1.0 * {0})", "exp2": "tl.exp2(1.0 * {0})",
    "log": "tl.log(1.0 * {0})", "log2": "tl.log2(1.0 * {0})",
    "sqrt": "tl.sqrt(1.0 * {0})", "sin": "tl.sin(1.0 * {0})", "cos": "tl.cos(1.0 * {0})",
    "square": "{0} * {0}", "reciprocal": "1.0 / {0}", "relu": "tl.maximum({0}, 0.0)",
    "sigmoid": "tl.sigmoid(1.0 * {0})", "tanh": "2 * tl.sigmoid(2.0 * {0}) - 1",
    "cosh": "0.5 * (tl.exp(1.0 * {0}) + tl.exp(-1.0 * {0}))",
    "sinh": "0.5 * (tl.exp(1.0 * {0}) - tl.exp(-1.0 * {0}))",
    "where": "tl.where({0}, {1}, {2})",
    "maximum": "tl.maximum({0}, {1})",
    "minimum": "tl.minimum({0}, {1})",
    "clamp": "tl.minimum(tl.maximum({0}, {1}), {2})",
    "mod": "(({0} % {1}) + {1}) % {1}",  # Python's remainder; Triton's has the sign of the first
    "remainder": "(({0} % {1}) + {1}) % {1}",
    "floordiv": "({0} - (({0} % {1}) + {1}) % {1}) // {1}",
    "float": "1.0 * {0}",
}  # fmt: skip
# {operation: what each of its arguments contributes to its slope}; {d} is the argument's own slope,
# {0} and {1} are the arguments, {v} is the value.
SLOPES: dict[str, tuple[str, ...]] = {
    "neg": ("-{d}",),
    "pos": ("{d}",),
    "float": ("{d}",),
    "exp": ("{v} * {d}",),
    "exp2": ("0.6931471805599453 * {v} * {d}",),
    "log": ("{d} / {0}",),
    "log2": ("1.4426950408889634 * {d} / {0}",),
    "sqrt": ("0.5 * {d} / {v}",),
    "sin": ("tl.cos(1.0 * {0}) * {d}",),
    "cos": ("-tl.sin(1.0 * {0}) * {d}",),
    "cosh": ("0.5 * (tl.exp(1.0 * {0}) - tl.exp(-1.0 * {0})) * {d}",),
    "sinh": ("0.5 * (tl.exp(1.0 * {0}) + tl.exp(-1.0 * {0})) * {d}",),
    "square": ("2 * {0} * {d}",),
    "reciprocal": ("-{v} * {v} * {d}",),
    "relu": ("tl.where({0} > 0, {d}, 0.0)",),
    "sigmoid": ("{v} * (1 - {v}) * {d}",),
    "tanh": ("(1 - {v} * {v}) * {d}",),
    "abs": ("tl.where({0} < 0, -{d}, {d})",),
    "add": ("{d}", "{d}"),
    "sub": ("{d}", "-{d}"),
    "mul": ("{d} * {1}", "{0} * {d}"),
    "truediv": ("{d} / {1}", "-{v} * {d} / {1}"),
    "where": ("", "tl.where({0}, {d}, 0.0)", "tl.where({0}, 0.0, {d})"),
    "maximum": ("tl.where({0} >= {1}, {d}, 0.0)", "tl.where({0} >= {1}, 0.0, {d})"),
    "minimum": ("tl.where({0} <= {1}, {d}, 0.0)", "tl.where({0} <= {1}, 0.0, {d})"),
    "clamp": ("tl.where(({0} >= {1}) & ({0} <= {2}), {d}, 0.0)",),
    "mod": ("{d}",),
}
for _same, _names in {
    "truediv": ("div", "divide", "true_divide"), "add": (), "sub": ("subtract",),
    "mul": ("multiply",), "neg": ("negative",), "mod": ("remainder",),
}.items():  # fmt: skip
    SLOPES |= dict.fromkeys(_names, SLOPES[_same])
FLAT = {  # whose slope is 0, wherever it has one
    "ge", "gt", "le", "lt", "eq", "ne", "and", "or", "xor", "logical_and", "logical_or",
    "logical_xor", "bitwise_and", "bitwise_or", "invert", "logical_not", "bitwise_not", "sign",
    "floordiv",
}  # fmt: skip
MOST_FACTORS = 8  # of a power that is written as a product


def text(mod: Mod) -> str:
    """The text of a @triton.jit function that computes what this Python function does.

    mod: of (b, h, i, j) or (score, b, h, i, j): numbers of batch, head, query and key. ValueError
    if it does something that has no counterpart here, or depends on a value by `if`.
    """
    return _Text(mod).function(slope=False)


def slope_text(mod: Mod) -> str:
    """The text of the derivative of a score_mod by its score, with the same parameters."""
    return _Text(mod).function(slope=True)


class _Text:
    """The lines that compute the record of one function, and the names of its values."""

    def __init__(self, mod: Mod) -> None:
        try:
            self.module = fx.symbolic_trace(mod)
        except (fx.proxy.TraceError, TypeError) as error:
            raise ValueError(
                f"{_name(mod)} cannot be traced, because it asks for a value: {error}. "
                "Use torch.where in place of if, & in place of and"
            ) from None
        self.nodes = list(self.module.graph.nodes)
        self.mod = mod
        self.lines: list[str] = []
        self.values: dict[Any, str] = {}
        self.slopes: dict[Any, str] = {}

    def function(self, *, slope: bool) -> str:
        """The whole text."""
        parameters = [node for node in self.nodes if node.op == "placeholder"]
        for node in parameters:
            self.values[node] = node.target
        if slope:
            self.slopes[parameters[0]] = "1.0"
        for node in self.nodes:
            if node.op == "get_attr":  # a tensor that the function uses
                self.values[node] = self._value(getattr(self.module, node.target))
            if node.op in ("call_function", "call_method"):
                self._add(node)
        result = self.nodes[-1].args[0]
        returned = self.slopes.get(result, "0.0") if slope else self._value(result)
        names = ", ".join(node.target for node in parameters)
        body = "\n".join(f"    {line}" for line in [*self.lines, f"return {returned}"])
        return f"@triton.jit\ndef traced({names}):\n{body}\n"

    def _add(self, node: fx.Node) -> None:
        """The line for one operation, and one for its slope if it has one."""
        name, value = _name(node.target), f"v{len(self.values)}"
        given = self._arguments(name, node)
        arguments = [self._value(argument) for argument in given]
        formula, slopes = self._rule(name, given)
        self.lines.append(f"{value} = {formula.format(*arguments)}")
        self.values[node] = value
        terms = []
        for place, argument in enumerate(given):
            if isinstance(argument, fx.Node) and argument in self.slopes and name not in FLAT:
                term = (*slopes, *len(given) * [""])[place]
                terms += [term.format(*arguments, v=value, d=self.slopes[argument])] * bool(term)
        if terms:
            self.lines.append(f"d{value} = {' + '.join(terms)}")
            self.slopes[node] = f"d{value}"

    def _arguments(self, name: str, node: fx.Node) -> list[Any]:
        """What an operation is given, in order."""
        given = list(node.args)
        if name == "clamp":  # the one whose arguments are often given by name
            low = node.kwargs.get("min", given[1] if len(given) > 1 else None)
            high = node.kwargs.get("max", given[2] if len(given) > 2 else None)
            return [given[0], -math.inf if low is None else low, math.inf if high is None else high]
        if name not in OPERATIONS and name != "pow":
            known = ", ".join(sorted([*OPERATIONS, "pow"]))
            raise ValueError(f"{_name(self.mod)} calls {name}; a mod can be made of {known}")
        if node.kwargs:
            named = ", ".join(f"{key}=" for key in node.kwargs)
            raise ValueError(f"{_name(self.mod)} calls {name} with {named}; give it values alone")
        wanted = 2 if name == "pow" else len(set(re.findall(r"\{\d}", OPERATIONS[name])))
        if len(given) != wanted:
            raise ValueError(
                f"{_name(self.mod)} calls {name} with {len(given)} values; it takes {wanted} here"
            )
        return given

    def _rule(self, name: str, given: list[Any]) -> tuple[str, tuple[str, ...]]:
        """The formula of an operation, and its slopes."""
        if name != "pow":
            return OPERATIONS[name], SLOPES.get(name, ())
        base, exponent = given
        if isinstance(exponent, (int, float)) and exponent in range(1, MOST_FACTORS + 1):
            factors = [" * ".join(["{0}"] * n) or "1.0" for n in (int(exponent), int(exponent) - 1)]
            return factors[0], (f"{exponent} * {factors[1]} * {{d}}",)
        if isinstance(exponent, float) and exponent == 0.5:  # a root
            return OPERATIONS["sqrt"], SLOPES["sqrt"]
        if isinstance(base, (int, float)) and base > 0:
            return f"tl.exp2({math.log2(base)!r} * {{1}})", (
                "",
                f"{math.log(base)!r} * {{v}} * {{d}}",
            )
        raise ValueError(
            f"{_name(self.mod)} has a power; its exponent can be a whole number from 1 to "
            f"{MOST_FACTORS} or 0.5, or its base a number above 0"
        )

    def _value(self, argument: Any) -> str:
        if isinstance(argument, fx.Node):
            return self.values[argument]
        if isinstance(argument, torch.Tensor) and argument.numel() == 1:
            argument = argument.item()
        if isinstance(argument, (bool, int, float)):
            return f"({argument!r})" if math.isfinite(argument) else f"float('{argument}')"
        raise ValueError(f"{_name(self.mod)} uses {argument!r:.40}; a mod has numbers alone")


def _name(target: Any) -> str:
    """The name of an operation, as torch and operator have it: and_ is 'and'."""
    return str(getattr(target, "__name__", target)).strip("_")
