"""Random kernels: the simulator computes what Numba's own computes, and refuses none of them."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SEEDS = range(60)
HEAD = """
import math
from numba import float64

@cuda.jit(device=True)
def distance(a, b):
    if a > b:
        return a - b
    return b * 0.5

"""


class Writer(random.Random):
    """Writes a random kernel.

    Its whole numbers are i, q, n, u, its floating-point ones v, w, s, its arrays x, out, shared.
    """

    def whole(self, depth):
        """A whole-number expression, kept small: where it overflows, Python differs from a GPU."""
        if depth == 0 or self.random() < 0.2:
            return self.choice(["i", "q", "3", "-2", "7", "n", "u"])
        a, b = self.whole(depth - 1), self.whole(depth - 1)
        return self.choice(
            [
                f"({a} + {b})",
                f"({a} - {b})",
                f"({a} * {b} % 1000)",
                f"({a} // {self.choice([2, 3, -3, 5])})",
                f"(-{a})",
                f"(~{a})",
                f"({a} % {self.choice([2, 7, -3])})",
                f"({a} & {b})",
                f"({a} | {b})",
                f"({a} ^ {b})",
                f"({a} << 3) % 5003",
                f"({a} >> {self.choice([0, 1, 2])})",
                f"min({a}, {b})",
                f"max({a}, {b}, 2)",
                f"abs({a})",
                f"({a} if {self.condition(depth - 1)} else {b})",
                f"int({self.real(depth - 1)})",
            ]
        )

    def real(self, depth):
        """An expression that is a floating-point number."""
        if depth == 0 or self.random() < 0.2:
            return self.choice(["x[i]", "v", "s", "0.5", "-1.25", "x[(i + q) % 32]", "w"])
        a, b = self.real(depth - 1), self.real(depth - 1)
        return self.choice(
            [
                f"({a} + {b})",
                f"({a} - {b})",
                f"({a} * {b})",
                f"({a} / ({b} * {b} + 1.0))",
                f"min({a}, {b})",
                f"max({a}, {b})",
                f"(-{a})",
                f"math.sqrt(abs({a}))",
                f"math.floor({a})",
                f"({a} // 0.75)",
                f"({a} % 0.75)",
                f"({a}) ** 2",
                f"({a} if {self.condition(depth - 1)} else {b})",
                f"({a} + {self.whole(depth - 1)})",
                f"distance({a}, {b})",
            ]
        )

    def condition(self, depth):
        """A comparison, or several."""
        make = self.choice([self.whole, self.real])
        left, operator = make(max(depth, 0)), self.choice(["<", "<=", ">", ">=", "==", "!="])
        text = f"{left} {operator} {make(max(depth, 0))}"
        if depth > 0 and self.random() < 0.4:
            text = f"({text} {self.choice(['and', 'or'])} {self.condition(depth - 1)})"
        return f"not ({text})" if self.random() < 0.2 else text

    def statements(self, depth, indent):
        """Lines of one to three statements."""
        lines, space = [], "    " * indent
        for _ in range(self.randint(1, 3)):
            kind = self.random()
            if kind < 0.7 or not depth:
                lines.append(space + self.simple())
            elif kind < 0.85:
                lines += [
                    f"{space}if {self.condition(1)}:",
                    *self.statements(depth - 1, indent + 1),
                ]
                if self.random() < 0.3:
                    lines += [
                        f"{space}elif {self.condition(1)}:",
                        *self.statements(depth - 1, indent + 1),
                    ]
                if self.random() < 0.6:
                    lines += [f"{space}else:", *self.statements(depth - 1, indent + 1)]
            else:
                numbers = self.choice(
                    [
                        "range(4)",
                        "range(1, 6, 2)",
                        "range(5, 0, -2)",
                        "range(i % 5)",
                        "range(u % 4)",
                        "range(-3, 3)",
                        "(4, 1, -2)",
                        "(i % 5, u % 4, q)",
                    ]
                )
                lines += [f"{space}for q in {numbers}:", *self.statements(depth - 1, indent + 1)]
                if self.random() < 0.4:
                    lines += [
                        f"{space}    if {self.condition(1)}:",
                        f"{space}        {self.choice(['break', 'continue'])}",
                    ]
                lines += self.statements(0, indent + 1)
        return lines

    def simple(self):
        """An assignment or a store."""
        return self.choice(
            [
                f"u = {self.whole(2)} % 1009",
                f"v = {self.real(2)}",
                f"w, v = v, {self.real(1)}",
                f"v {self.choice(['+=', '-=', '*='])} {self.real(1)}",
                f"out[i] += {self.real(2)}",
                f"u {self.choice(['+=', '-=', '^=', '|=', '&=', '%='])} {self.choice([3, 5, 7])}",
            ]
        )

    def kernel(self):
        """The text of a kernel with a barrier in it."""
        place = self.choice(["15 - t", "(t + 3) % 16", "t ^ 1", "t // 2"])
        lines = [
            "@cuda.jit",
            "def kernel(x, out, n, s):",
            "    i = cuda.grid(1)",
            "    t = cuda.threadIdx.x",
            "    q, u, v, w = 1, i, x[i], s",
            "    shared = cuda.shared.array(16, float64)",
            *self.statements(2, 1),
            "    shared[t] = v",
            "    cuda.syncthreads()",
            f"    v = shared[{place}]",
            *self.statements(2, 1),
            "    out[i] += v + u + w + q",
        ]
        return "\n".join(lines) + "\n"


def results(module, folder):
    """What each seed's kernel leaves in out, where cuda comes from this module."""
    computed = []
    for seed in SEEDS:
        path = Path(folder) / f"{module.replace('.', '_')}_{seed}.py"
        path.write_text(f"from {module} import cuda\n{HEAD}{Writer(seed).kernel()}")
        names = {}
        exec(compile(path.read_text(), path, "exec"), names)
        x, out = np.random.default_rng(seed).standard_normal(32) * 3, np.zeros(32)
        with np.errstate(all="ignore"):
            names["kernel"][2, 16](x, out, 11, 0.75)
        computed.append(out.tolist())
    return computed


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The results of Numba's simulator: in another process, because Numba decides at its import."""
    run = subprocess.run(
        [sys.executable, __file__, tmp_path_factory.mktemp("numba")],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)


@pytest.mark.slow
def test_random_kernels_compute_what_numbas_simulator_computes(expected, tmp_path):
    computed = results("nogpu.simt", tmp_path)
    for seed, ours, theirs in zip(SEEDS, computed, expected, strict=True):
        np.testing.assert_allclose(
            ours, theirs, rtol=1e-9, err_msg=f"seed {seed}:\n{Writer(seed).kernel()}"
        )


if __name__ == "__main__":
    print(json.dumps(results("numba", sys.argv[1])))
