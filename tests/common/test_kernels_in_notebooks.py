"""A kernel in a notebook is counted as the grader counts it: refused by the same sentence."""

import ast
from textwrap import indent

import numpy as np
import pytest

from common.hardware import device
from common.notebook import notebook_file as notebooks
from nogpu.kernels import linecache_text

device.prepare_triton()

from common.notebook.kernel_text import text_of  # noqa: E402
from common.notebook.magics import as_python  # noqa: E402
from nogpu import simt, tiles  # noqa: E402

START = {
    "simt": "import math, numpy as np\nfrom numba import float32\nfrom nogpu.simt import cuda",
    "tiles": "import triton\nimport triton.language as tl",
}
KERNEL = {
    "simt": "@cuda.jit\ndef kernel(out):\n    t = cuda.local.array(4, float32)\n    out[0] = VALUE",
    "tiles": "@triton.jit\ndef kernel(out):\n    tl.store(out, VALUE)",
}


class Shell:
    """As IPython's: it executes cells and keeps their texts."""

    def __init__(self, monkeypatch):
        self.user_ns = {"In": [], "get_ipython": lambda: self}
        monkeypatch.setattr(notebooks, "shell", lambda: self)

    def run(self, cell):
        magic, _, rest = cell.partition("\n")
        text = f"get_ipython().run_cell_magic('time', '', {rest!r})" if "%%" in magic else cell
        self.user_ns["In"].append(text)
        name = f"<cell {len(self.user_ns['In'])}>"
        linecache_text.remember(name, text)
        exec(compile(text, name, "exec"), self.user_ns)

    def run_cell_magic(self, magic, line, cell):
        exec(compile(ast.parse(cell), "<timed exec>", "exec"), self.user_ns)


def outcome(package, kernel):
    """What a launch stores, or the sentence that refuses it. kernel: a function that gives it."""
    out = np.zeros(1, np.float32)
    try:
        if package == "simt":
            simt.count(kernel(), 1, 1, out)
        else:
            tiles.count(kernel(), (1,), out)
    except simt.KernelError as refusal:
        return str(refusal)
    return float(out[0])


def both(package, cells, monkeypatch):
    """(the outcome in a notebook, the grader's)."""
    cells, shell = [START[package], *cells], Shell(monkeypatch)
    for cell in cells:
        shell.run(cell)
    here = outcome(package, lambda: shell.user_ns["kernel"])
    compiled = {"simt": simt, "tiles": tiles}[package].compile_source
    text = text_of(tuple(map(as_python, cells)), "kernel")
    assert text is not None
    return here, outcome(package, lambda: compiled(text, "kernel"))


def using(package, value):
    return KERNEL[package].replace("VALUE", value)


TWICE = "is set by more than one statement"


@pytest.mark.parametrize(
    "package, cells, want",
    [
        ("simt", ["N = 1 << 8", using("simt", "N")], 256),
        ("simt", ["N = max(3, 7) + min([5, 4])", using("simt", "N")], 11),
        ("simt", ["import math as m\nN = m.isqrt(1089)", using("simt", "N")], 33),
        ("simt", [f"from math import isqrt\nN = isqrt(1089)\n{using('simt', 'N')}"], 33),
        ("simt", [f"N = int(33)\n{using('simt', 'N')}"], 33),
        ("simt", ["N = float('inf')", using("simt", "N")], np.inf),
        ("simt", ["N = float32(3)\nM = np.int32(np.log2(16))", using("simt", "N + M")], 7),
        ("tiles", ["import numpy as np\nN = tl.constexpr(np.log2(8))", using("tiles", "N")], 3),
        ("simt", ["N: int = ~5 & 0xF ^ 1 | 4 >> 1", using("simt", "N")], (~5 & 0xF ^ 1 | 4 >> 1)),
        ("simt", ["N = M = 7\nA, B = N, 2 * M", using("simt", "B % 4")], 2),
        ("simt", ["N = 16", "N = 32", using("simt", "N")], 32),
        ("simt", ["N = 16", "M = N // 2", "N = 16", using("simt", "N + M")], 24),
        ("simt", ["N = 0\nfor i in range(130): N += 1", using("simt", "N")], TWICE),
        ("simt", ["N = [1]", using("simt", "N[0]")], "`[1]` is not a constant"),
        ("simt", ["N = max(2**k for k in range(9))", using("simt", "N")], "is not a constant"),
        ("simt", ["N = math.factorial(5)", using("simt", "N")], "is not a constant"),
        ("simt", ["import numba as nb", using("simt", "nb.float32(3)")], 3),
        ("simt", ["from numba import float32 as f4", using("simt", "f4(3)")], 3),
        ("simt", ["f4 = np.float32", using("simt", "f4(3)")], 3),
        ("simt", ["from math import pi, sqrt", using("simt", "sqrt(pi / pi)")], 1),
        ("simt", ["import torch", using("simt", "torch.pi")], "torch cannot be used"),
        (
            "simt",
            ["@cuda.jit(device=True)\ndef f(x):\n    return x + N", "N = 1", using("simt", "f(2)")],
            3,
        ),
        ("simt", ["def noted(f): return f", "@noted\n" + using("simt", "1")], "decorator noted"),
        (
            "simt",
            [
                f"def made(n):\n{indent(using('simt', 'n'), '    ')}\n    return kernel",
                "kernel = made(7)",
            ],
            "is not a constant",
        ),
        ("simt", [f"%%time\n{using('simt', '3')}"], 3),
        ("tiles", ["N = tl.constexpr(float('-inf'))", using("tiles", "N")], -np.inf),
        ("tiles", ["N = float('-inf')", using("tiles", "N")], "tl.constexpr(float('-inf'))"),
        ("tiles", ["M = 1 << 3", "N = tl.constexpr(M + 1)", using("tiles", "N")], 9),
        ("tiles", ["N = tl.constexpr(2)", "M = tl.constexpr(N * 4)", using("tiles", "M")], 8),
        (
            "tiles",
            ["import math\nN = tl.constexpr(math.log2(math.e))", using("tiles", "N")],
            np.float32(1.442695),
        ),
        ("tiles", ["N: tl.constexpr = 3", using("tiles", "N")], "annotated constant"),
        ("tiles", ["N = 3", using("tiles", "N")], "write N = tl.constexpr(3)"),
        ("tiles", ["def noted(f): return f", "@noted\n" + using("tiles", "1")], "decorator noted"),
        ("tiles", [f"%%time\n{using('tiles', '3')}"], 3),
    ],
)
def test_a_notebook_and_the_grader_say_the_same_of_a_kernel(package, cells, want, monkeypatch):
    here, there = both(package, cells, monkeypatch)
    assert here == there
    assert str(want) in here if isinstance(here, str) else here == want


def test_a_kernel_that_no_name_stands_for_any_more_is_counted_as_it_is(monkeypatch):
    shell = Shell(monkeypatch)
    for cell in (START["simt"], "N = 3", using("simt", "N")):
        shell.run(cell)
    older = shell.user_ns["kernel"]
    shell.run(f"{using('simt', 'N + 1')}\nN = 4")
    assert outcome("simt", lambda: older) == 4
    assert outcome("simt", lambda: shell.user_ns["kernel"]) == 5


def test_the_names_of_a_check_are_not_a_kernel_s(monkeypatch):
    shell = Shell(monkeypatch)
    for cell in (START["simt"], "N = 3", using("simt", "N"), "# Check of 1.1: run me\nN = 4"):
        shell.run(cell)
    assert outcome("simt", lambda: shell.user_ns["kernel"]) == 3


def test_a_hidden_source_says_what_hides_it():
    names = {}
    exec("def kernel(x):\n    x[0] = 1\n", names)
    with pytest.raises(simt.KernelError, match=r"a magic such as %%time hides it"):
        simt.jit(names["kernel"])[1, 1](np.zeros(1))
