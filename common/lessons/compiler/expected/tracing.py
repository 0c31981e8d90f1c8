"""Sequences of calls to a function that is compiled when it must be, and not otherwise: lab 08."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from common import graphs
from common.checks import agree, expect, is_whole, show, static_names
from common.graphs import execute, valid

Trace = Callable[..., Any]
Lookup = Callable[..., Any]
Array = Callable[..., np.ndarray]  # random, of this shape
FIRST, AGAIN = "It is the first call", "Nothing that matters has changed"


@dataclass(frozen=True)
class Call:
    """A call: whether it must be compiled, and why, or why not."""

    arguments: tuple[Any, ...]
    compiles: bool
    why: str


def truth(name: str, arguments: tuple[Any, ...]) -> np.ndarray:
    """What a function of common.lessons.compiler.capture gives."""
    x, *rest = arguments
    return np.asarray(
        {
            "scaled": lambda scale, _: np.tanh(x * scale),
            "gated": lambda y: x * y if x.sum() > 0 else x - y,
            "gated_twice": lambda y: (x if x.sum() > 0 else -x) + (y if y.sum() > 0 else -y),
            "mean_by_hand": lambda: x.sum() / len(x),
            "repeated": lambda times: _repeated(x, times),
            "normalized": lambda weight: x / (x * x).sum(-1, keepdims=True) * weight,
            "chosen_by_number": lambda mode: np.sin(x) if mode > 2 else np.cos(x),
            "mean_of_products": lambda y: (x * y).sum() / len(x * y),
        }[name](*rest)
    )


def _repeated(x: np.ndarray, times: int) -> np.ndarray:
    y = x
    for _ in range(times):
        y = y * x + 1
    return y


def sequences(rng: np.random.Generator) -> Iterator[tuple[str, list[Call]]]:
    """(function, calls), each call with the reason why it is compiled, or why not.

    Between them, earlier calls come again, as they are drawn: so the number of a call says nothing.
    """

    def array(*shape: int) -> np.ndarray:
        return rng.uniform(0.5, 1.5, shape)

    for name, calls in (
        ("scaled", _scaled_calls),
        ("gated", _gated_calls),
        ("gated_twice", _twice_gated_calls),
        ("mean_by_hand", _mean_calls),
        ("repeated", _repeated_calls),
        ("normalized", _normalized_calls),
        ("chosen_by_number", _chosen_calls),
        ("mean_of_products", _product_calls),
    ):
        yield name, list(_with_repeats(list(calls(array)), rng))


def _with_repeats(calls: list[Call], rng: np.random.Generator) -> Iterator[Call]:
    for number, call in enumerate(calls, 1):
        yield call
        for earlier in rng.integers(number, size=rng.integers(3)):
            yield Call(calls[earlier].arguments, False, AGAIN)


def _gated_calls(array: Array) -> Iterator[Call]:
    yield Call((array(5, 3), array(3)), True, FIRST)
    yield Call((-array(5, 3), array(3)), True, "The branch was the other one")
    yield Call((array(6, 3), array(3)), False, AGAIN)
    yield Call((-array(8, 3), array(3)), False, AGAIN)


def _twice_gated_calls(array: Array) -> Iterator[Call]:
    yield Call((-array(5, 3), -array(3)), True, FIRST)
    yield Call((-array(5, 3), array(3)), True, "The second branch was the other one")
    yield Call((array(5, 3), -array(3)), True, "The first branch was the other one")
    yield Call((-array(7, 3), array(3)), False, AGAIN)
    yield Call((array(5, 3), array(3)), True, "Neither program took both of these branches")


def _mean_calls(array: Array) -> Iterator[Call]:
    read = "Python has read the shape, so its number is a part of the program"
    yield Call((array(10, 2),), True, FIRST)
    yield Call((array(11, 2),), True, read)
    yield Call((array(10, 2),), False, AGAIN)


def _repeated_calls(array: Array) -> Iterator[Call]:
    counted = "Python has counted to another number"
    yield Call((array(4), 3), True, FIRST)
    yield Call((array(4), 5), True, counted)
    yield Call((array(4), 3), False, AGAIN)
    yield Call((array(4), 0), True, counted)


def _normalized_calls(array: Array) -> Iterator[Call]:
    small = "A weight of one element is another bucket than of 4"
    yield Call((array(20, 4), array(4)), True, FIRST)
    yield Call((array(31, 4), array(4)), False, "17 to 32 rows are one bucket")
    yield Call((array(16, 4), array(4)), True, "9 to 16 rows are another bucket than 17 to 32")
    yield Call((array(20, 4), array(1)), True, small)


def _chosen_calls(array: Array) -> Iterator[Call]:
    yield Call((array(4), 1), True, FIRST)
    yield Call((array(4), 3), True, "The number decides about the branch")
    yield Call((array(4), 1), False, AGAIN)
    yield Call((array(3), 3), False, AGAIN)


def _product_calls(array: Array) -> Iterator[Call]:
    deep = "Python has read the shape of x * y, which x and y decide"
    yield Call((array(1, 2), array(9, 2)), True, FIRST)
    yield Call((array(1, 2), array(10, 2)), True, deep)
    yield Call((array(1, 2), array(9, 2)), False, AGAIN)


def _scaled_calls(array: Array) -> Iterator[Call]:
    yield Call((array(100, 4), 2.0, 1), True, FIRST)
    yield Call((array(100, 4), 2.0, 7), False, "The function never uses its last argument")
    yield Call((array(100, 4), 2.0, array(9)), False, "The function never uses its last argument")
    yield Call((array(120, 4), 2.0, 1), False, "65 to 128 rows are one bucket")
    yield Call((array(65, 4), 2.0, 1), False, "65 to 128 rows are one bucket")
    yield Call((array(128, 4), 2.0, 1), False, "65 to 128 rows are one bucket")
    yield Call((array(129, 4), 2.0, 1), True, "129 rows are in the next bucket")
    yield Call((array(64, 4), 2.0, 1), True, "64 rows are in the bucket before")
    yield Call((array(100, 4), 3.0, 1), True, "The number 2.0 was a part of the program")
    yield Call((array(100, 4), 2.0, 1), False, "An older entry of the cache fits")
    yield Call((array(100, 5), 2.0, 1), True, "Only the first axis has buckets")
    yield Call((array(100), 2.0, 1), True, "An array with one axis is another program")
    yield Call((array(100, 4).astype(np.float32), 2.0, 1), True, "float32 is another dtype")


def by_guards(lookup: Lookup) -> None:
    """Raise AssertionError if lookup knows the functions that were traced."""
    used = static_names.names_in(lookup, {"capture", "FUNCTIONS"})
    expect(
        not used, f"lookup uses {static_names.listed(used)}. It has only the guards to decide by."
    )


def judge_calls(name: str, calls: list[Call], trace: Trace, lookup: Lookup) -> int:
    """How often the function is compiled; expects that each result is right, and no call more."""
    cache: list[Any] = []
    compiled = 0
    for number, call in enumerate(calls, 1):
        want = truth(name, call.arguments)
        case = f"{name}, call {number}: {_text(call.arguments)}"
        found = lookup(list(cache), call.arguments)
        is_index = is_whole(found) and 0 <= found < len(cache)
        expect(
            found is None or is_index,
            f"{case}: lookup gave {show(found)}, want an index of the cache or None.",
        )
        if found is None:
            extra = f"{case} is compiled again, though it needs not be. {call.why}."
            expect(call.compiles, extra)
            entry = trace(name, call.arguments)
            expect(
                isinstance(entry, (tuple, list)) and len(entry) == 3,
                f"{case}: trace gave {show(entry)}, want (rows, outputs, guards).",
            )
            cache.append(tuple(entry))
            found, compiled = len(cache) - 1, compiled + 1
            said = ""
        else:
            said = f"A stale program ran. {call.why}.\n" if call.compiles else ""
            got = _ran(case, said, cache[found], call.arguments)
            stale = said and _differ(got, want)
            expect(not stale, f"{said}{case} gave {show(got)}, want {show(want)}.")
            expect(not said, f"{case} was not compiled. {call.why}.")
        agree(_ran(case, said, cache[found], call.arguments), want, f"{said}{case}", rtol=1e-6)
    return compiled


def _differ(got: np.ndarray, want: np.ndarray) -> bool:
    return got.shape != want.shape or got.dtype != want.dtype or not np.allclose(got, want)


def _ran(case: str, said: str, entry: Any, arguments: tuple[Any, ...]) -> np.ndarray:
    """What the program of this entry gives for these arguments."""
    feeds = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    try:
        rows, outputs = valid(entry[0], entry[1])
        unknown = set(graphs.names((rows, outputs))) - set(feeds)
        expect(not unknown, f"{said}{case}: the program reads {unknown}, which are no arrays.")
        got, *_ = execute(rows, outputs, feeds)
    except ValueError as problem:
        raise AssertionError(f"{said}{case}: the program does not run: {problem}.") from None
    return got


def _text(arguments: tuple[Any, ...]) -> str:
    shown = [f"{a.dtype} {a.shape}" if isinstance(a, np.ndarray) else repr(a) for a in arguments]
    return ", ".join(shown)
