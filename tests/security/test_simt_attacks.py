"""Attempts to forge counts or to escape from a kernel; attacks/simt.txt holds them."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from common.paths import ROOT
from nogpu import simt
from nogpu.simt import language
from nogpu.simt.program import FUNCTIONS_OF_THE_PROGRAM

COMPILE = """
import resource
import sys
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
import numpy as np
from nogpu import simt
try:
    simt.compile_source(sys.stdin.read(), "kernel")[1, 1](np.zeros(1), np.zeros(1))
    print("ran", end="")
except simt.KernelError:
    print("refused", end="")
"""
TEXT = (Path(__file__).parent / "attacks" / "simt.txt").read_text()
CASES = [case.split("\n", 2) for case in re.split(r"^%% ", TEXT, flags=re.MULTILINE)[1:]]


@pytest.mark.parametrize("title, promise, text", CASES, ids=[case[0] for case in CASES])
def test_an_attack_is_refused_or_harmless(title, promise, text):
    kind, _, promise = promise.partition(": ")
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    constants = {"TABLE": np.ones(4, np.float32)}
    if kind == "same":  # it may run, with this outcome, and must cost the same as any kernel
        simt.count(simt.compile_source(text, "kernel", constants), 2, 32, x, out)
        assert eval(promise, {"x": x, "out": out})
        return
    with pytest.raises((simt.KernelError, simt.LaunchError, simt.OutOfBoundsError)) as caught:
        simt.compile_source(text, "kernel", constants)[2, 32](x, out)
    assert promise in str(caught.value)
    assert re.search(r"line \d+", str(caught.value))


def test_every_node_of_pythons_grammar_is_allowed_or_refused_with_advice():
    nodes = [
        kind
        for kind in vars(ast).values()
        if isinstance(kind, type)
        and issubclass(kind, (ast.expr, ast.stmt, ast.operator))
        and kind.__subclasses__() == []
        and kind.__module__ == "ast"
        and not kind.__name__.startswith(("Num", "Str", "Bytes"))
    ]
    for kind in nodes:
        if kind.__name__ in (
            "NameConstant",
            "Ellipsis",
            "Slice",
            "Suite",
            "TypeAlias",
            "TryStar",
            "FormattedValue",
            "AsyncFor",
            "AsyncWith",
            "Interpolation",
            "TemplateStr",
            "Index",
            "ExtSlice",
            "AugLoad",
            "AugStore",
            "Param",
        ):
            continue
        assert issubclass(kind, language.ALLOWED) or kind in language.REFUSED, kind


def test_a_translated_kernel_knows_no_builtins_but_three():
    assert set(FUNCTIONS_OF_THE_PROGRAM["__builtins__"]) == {"range", "float", "abs"}


@pytest.mark.parametrize(
    "text",
    [
        "def kernel(x, out):\n    out[0] = " + "(" * 150 + "1" + ")" * 150,
        "def kernel(x, out):\n    out[0] = " + "-" * 5000 + "1",
        "def kernel(x, out):\n    out[0] = " + "+".join(["1"] * 5000),
        "def kernel(x, out):\n" + "    out[0] = 1\n" * 20_000,
        "def kernel(x, out):\n    out[0] = 1\0",
        "def f0(a):\n    return a + 1\n"
        + "".join(
            f"def f{k}(a):\n    return f{k - 1}(a) + f{k - 1}(a * 1.0)\n" for k in range(1, 300)
        )
        + "def kernel(x, out):\n    out[0] = f299(1)\n",
    ],
)
def test_a_text_that_would_exhaust_the_compiler_is_refused_or_compiled_soon(text):
    child = subprocess.run(
        [sys.executable, "-c", COMPILE], input=text, capture_output=True, text=True, cwd=ROOT
    )
    assert child.stdout in ("refused", "ran"), child.stderr[-500:]


def test_an_endless_loop_is_noticed_while_counting(monkeypatch):
    monkeypatch.setattr("nogpu.simt.counters.MAX_PATHS", 1000)
    kernel = simt.compile_source(
        "def kernel(out):\n    k = 0\n    while k >= 0:\n        k = k + 1\n", "kernel"
    )
    with pytest.raises(simt.ThreadError, match="does it never end"):
        simt.count(kernel, 1, 1, np.zeros(1))
