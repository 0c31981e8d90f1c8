"""Networks of convolutions and batch norms, and a judge of what folds them: lab 08."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common import graphs
from common.checks import agree, expect
from common.graphs import LEAVES, Program, Row, evaluate
from common.lessons.compiler.expected.passes import expect_program, reference_dead_code

Fold = Callable[[list[Row], list[int]], Program]
X: Row = ("placeholder", "x")
CHANNELS, SIZE = 3, 8


@dataclass(frozen=True)
class Network:
    """A program, how many operators a right pass leaves at most, and what it is about."""

    program: Program
    fewest: int
    about: str


class _Builder:
    """Rows, made one layer after the other."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.rows = rng, [X]

    def add(self, op: str, *content: int) -> int:
        self.rows.append((op, content))
        return len(self.rows) - 1

    def constant(self, array: Any) -> int:
        self.rows.append(("constant", array))
        return len(self.rows) - 1

    def weights(self, outputs: int = CHANNELS, inputs: int = CHANNELS, size: int = 2) -> int:
        return self.constant(self.rng.normal(size=(outputs, inputs, size, size)))

    def vector(self, channels: int = CHANNELS) -> int:
        return self.constant(self.rng.normal(size=channels))

    def statistics(self, channels: int = CHANNELS) -> tuple[int, ...]:
        """Rows of gain, shift, mean and variance: gains of both signs, and tiny variances."""
        gain, shift, mean = (self.vector(channels) for _ in range(3))
        return gain, shift, mean, self.constant(10.0 ** self.rng.uniform(-5, 1, channels))

    def convolve(
        self, x: int, outputs: int = CHANNELS, inputs: int = CHANNELS, size: int = 2
    ) -> int:
        return self.add("convolve", x, self.weights(outputs, inputs, size), self.vector(outputs))

    def normed(self, x: int, channels: int = CHANNELS) -> int:
        return self.add("batch_norm", x, *self.statistics(channels))

    def network(self, outputs: Sequence[int], fewest: int, about: str) -> Network:
        return Network((self.rows, list(outputs)), fewest, about)


def networks(rng: np.random.Generator) -> Iterator[Network]:
    """Each for one mistake; then random chains."""
    yield from _folded(rng)
    yield from _kept(rng)
    for _ in range(20):
        yield _random(rng)


def _folded(rng: np.random.Generator) -> Iterator[Network]:
    for outputs, inputs, size in ((3, 3, 2), (5, 3, 3), (1, 3, 1)):
        made = _Builder(rng)
        made.normed(made.convolve(0, outputs, inputs, size), outputs)
        about = f"a convolution of {inputs} channels to {outputs}"
        yield made.network([len(made.rows) - 1], 1, about)
    made = _Builder(rng)
    first = made.normed(made.convolve(0))
    last = made.normed(made.convolve(made.add("relu", first)))
    yield made.network([last], 3, "two layers, with a relu between them")
    made = _Builder(rng)
    last = made.normed(made.normed(made.convolve(0)))
    yield made.network([last], 1, "a batch norm after a batch norm")
    made = _Builder(rng)
    weights, bias = made.weights(), made.vector()
    ends = [made.normed(made.add("convolve", 0, weights, bias)) for _ in range(2)]
    yield made.network(ends, 2, "two convolutions share their weights: change a copy of them")
    made = _Builder(rng)
    stats = made.statistics()
    ends = [made.add("batch_norm", made.convolve(0), *stats) for _ in range(2)]
    yield made.network(ends, 2, "two batch norms share their statistics")


def _kept(rng: np.random.Generator) -> Iterator[Network]:
    made = _Builder(rng)
    conv = made.convolve(0)
    yield made.network([made.normed(conv), conv], 2, "the convolution is an output, too")
    made = _Builder(rng)
    conv = made.convolve(0)
    total = made.add("add", made.normed(conv), conv)
    yield made.network([total], 3, "another operator reads the convolution, too")
    made = _Builder(rng)
    yield made.network([made.normed(0)], 1, "there is no convolution before this batch norm")
    made = _Builder(rng)
    middle = made.add("relu", made.convolve(0))
    yield made.network([made.normed(middle)], 3, "a relu stands between the two")
    made = _Builder(rng)
    gain, shift, mean, _ = made.statistics()
    conv = made.convolve(0)
    made.rows.append(("placeholder", "variance"))
    last = made.add("batch_norm", conv, gain, shift, mean, len(made.rows) - 1)
    yield made.network([last], 2, "the variance is an input of the program, and not known yet")
    made = _Builder(rng)
    made.rows.append(("placeholder", "weight"))
    conv = made.add("convolve", 0, len(made.rows) - 1, made.vector())
    yield made.network([made.normed(conv)], 2, "the weights are an input, and not known yet")


def _random(rng: np.random.Generator) -> Network:
    """A chain of layers with a residual sum here and there; what can be folded is counted."""
    made = _Builder(rng)
    x, fewest = 0, 0
    for _ in range(int(rng.integers(2, 5))):
        conv = made.convolve(x, size=1)
        shared = rng.random() < 0.3
        x = made.normed(conv)
        fewest += 1
        if shared:
            x = made.add("add", x, conv)
            fewest += 2
        if rng.random() < 0.5:
            x = made.add("relu", x)
            fewest += 1
    return made.network([x], fewest, "a random network")


def judge_folded(fold: Fold, network: Network, rng: np.random.Generator) -> None:
    """Expects the same results to rounding, few operators, and not one convolution more."""
    rows, outputs = network.program
    answer = fold([(op, np.copy(c) if op == "constant" else c) for op, c in rows], list(outputs))
    text = graphs.formula(rows, outputs)
    case = f"fold_batch_norm of `{text}` ({network.about})"
    program = expect_program(case, answer)
    unknown = set(graphs.names(program)) - set(graphs.names(network.program))
    expect(not unknown, f"{case} reads {unknown}, which the program did not read.")
    given = feeds(rng, graphs.names(network.program))
    want = _results(network.program, given)
    try:
        got = _results(program, given)
    except (ValueError, TypeError, IndexError) as problem:
        raise AssertionError(f"{case} gave a program that does not run: {problem}") from None
    agree(got, want, f"{case}: its results", rtol=1e-8, atol=1e-8 * _largest(want))
    program = reference_dead_code(*program)  # a pass may leave what is dead to another one
    few = graphs.operators(program[0]), sum(op == "convolve" for op, _ in program[0])
    most = network.fewest, sum(op == "convolve" for op, _ in rows)
    expect(few[1] <= most[1], f"{case} leaves {few[1]} convolutions; there were {most[1]}.")
    expect(few[0] <= most[0], f"{case} leaves {few[0]} operators, want at most {most[0]}.")


def feeds(rng: np.random.Generator, names: Sequence[str]) -> dict[str, np.ndarray]:
    """x (2, C, SIZE, SIZE), and what else a program of `networks` may read."""
    known = {
        "x": rng.normal(size=(2, CHANNELS, SIZE, SIZE)),
        "variance": rng.uniform(0.1, 2, CHANNELS),
        "weight": rng.normal(size=(CHANNELS, CHANNELS, 2, 2)),
    }
    return {name: known[name] for name in names}


def _results(program: Program, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    rows, outputs = program
    values: list[Any] = []
    for op, content in rows:
        if op in LEAVES:
            values.append(given[content] if op == "placeholder" else np.asarray(content))
        else:
            values.append(evaluate(op, *(values[i] for i in content)))
    return [np.asarray(values[i]) for i in outputs]


def _largest(arrays: Sequence[np.ndarray]) -> float:
    return max(float(np.abs(x).max()) for x in arrays)
