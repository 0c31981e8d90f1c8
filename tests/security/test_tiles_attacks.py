"""Attempts to forge a kernel's counts, to escape from it, or to write what a GPU would refuse."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from common.hardware import device
from common.paths import ROOT

device.prepare_triton()

from nogpu import tiles  # noqa: E402

SIGNATURE = "@triton.jit\ndef kernel(x, out, n, N: tl.constexpr):\n"
INDEX = "    i = tl.program_id(0) * N + tl.arange(0, N)\n"


def body(*lines):
    """The text of a kernel with these lines."""
    return SIGNATURE + INDEX + "".join(f"    {line}\n" for line in lines)


STORE = "tl.store(out + i, tl.load(x + i))"
REFUSED = [  # (title, words of the refusal, text)
    ("a dunder attribute", "cannot reach .__class__", body("y = x.__class__")),
    (
        "a chain of dunder attributes",
        "cannot call .__subclasses__",
        body("y = ().__class__.__base__.__subclasses__()"),
    ),
    (
        "the globals of a function of Triton's",
        "cannot reach .__globals__",
        body("y = tl.load.__globals__"),
    ),
    ("Triton's core module", "tl.core is not known", body("y = tl.core")),
    ("a walk through Triton's core module", "cannot reach .sys", body("y = tl.core.sys.T")),
    ("Triton's standard library's module", "tl.standard is not known", body("y = tl.standard")),
    (
        "inline assembly",
        "tl.inline_asm_elementwise is not known",
        body("y = tl.inline_asm_elementwise('', '', [x], tl.int32, True, 1)"),
    ),
    ("a library of the device's", "cannot reach .cuda", body("y = tl.extra.cuda")),
    (
        "a function mapped over a block",
        "tl.map_elementwise is not known",
        body("y = tl.map_elementwise(x, x)"),
    ),
    ("a type from a text", "tl.str_to_ty is not known", body("y = tl.str_to_ty('*fp32', None)")),
    ("the interpreter's numbers behind a block", "cannot reach .handle", body("y = i.handle")),
    ("the interpreter's array behind a block", "cannot reach .data", body("y = i.handle.data")),
    (
        "Python's function behind a helper",
        "is a function; it has to be called",
        "@triton.jit\ndef helper(a):\n    return a\n" + body("y = helper.T"),
    ),
    (
        "Triton's own keyword",
        "_semantic is Triton's own",
        body("y = tl.load(x + i, _semantic=None)"),
    ),
    ("keywords from a dictionary", "a starred expression", body("y = tl.load(x + i, **n)")),
    ("arguments from a tuple", "a starred expression", body("y = tl.load(*(x,))")),
    ("getattr", "getattr, which is not defined", body("y = getattr(x, 'handle')")),
    ("eval", "eval, which is not defined", body("y = eval('1')")),
    ("open", "open, which is not defined", body("y = open('counts', 'w')")),
    (
        "an import by its function",
        "does not begin with two underscores",
        body("y = __import__('os')"),
    ),
    ("the built-in names", "does not begin with two underscores", body("y = __builtins__")),
    (
        "a function of the rewritten kernel's",
        "does not begin with two underscores",
        body("y = __value(3)"),
    ),
    ("an import in the kernel", "cannot contain an import", body("import os")),
    (
        "the interpreter's builder",
        "interpreter_builder, which is not defined",
        body("y = interpreter_builder"),
    ),
    ("the recorder", "recorder, which is not defined", body("recorder(0)")),
    ("NumPy", "np, which is not defined", body("y = np")),
    ("the module of the language as a value", "tl is not a value", body("t = tl")),
    ("a function of the language as a value", "tl.load has to be called", body("load = tl.load")),
    ("a method as a value", ".store has to be called", body("y = i.store")),
    ("a variable called", "cannot be called", body("f = i", "y = f(1)")),
    ("the result of a call called", "cannot be called", body("y = tl.cdiv(n, 2)(3)")),
    (
        "a method of Python's texts",
        "cannot call .format",
        body("tl.static_print('{0.__class__}'.format(x))"),
    ),
    ("an f-string", "an f-string", body("y = f'{x.handle}'")),
    (
        "tl as a parameter",
        "tl is taken",
        "@triton.jit\ndef kernel(tl, out, n, N):\n    tl.store(out, 1)\n",
    ),
    ("tl as a variable", "tl is taken", body("tl = 3")),
    ("range as a variable", "range is taken", body("range = 3")),
    ("tl as the variable of a loop", "tl is taken", body("for tl in range(3):", "    pass")),
    ("an attribute assigned", "assigns to names", body("x.dtype = 3")),
    ("an element assigned", "assigns to names", body("x[0] = 3")),
    ("an attribute changed in place", "assigns to names", body("x.dtype += 3")),
    ("an element of a tuple of targets", "assigns to names", body("y, x.dtype = 3, 4")),
    (
        "an expression as a default",
        "a parameter's default",
        "@triton.jit\ndef kernel(x, out, n, N=open('counts')):\n    pass\n",
    ),
    (
        "an expression as an annotation",
        "has the annotation",
        "@triton.jit\ndef kernel(x: open('counts'), out, n, N):\n    pass\n",
    ),
    (
        "an expression as what is returned",
        "no return annotation",
        "@triton.jit\ndef kernel(x, out, n, N) -> open('counts'):\n    pass\n",
    ),
    (
        "an expression as a variable's annotation",
        "the only annotation is tl.constexpr",
        body("y: open('counts') = 3"),
    ),
    (
        "a decorator of the student's own",
        "the decorator evil",
        "@evil\n@triton.jit\ndef kernel(x, out, n, N):\n    pass\n",
    ),
    (
        "autotuning",
        "the decorator triton.autotune",
        "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef kernel(x, out, n, N):\n    pass\n",
    ),
    ("no decorator", "no decorator", "def kernel(x, out, n, N):\n    pass\n"),
    (
        "a Python function called",
        "no decorator",
        "def helper():\n    return open('counts')\n" + body("y = helper()"),
    ),
    ("a class called", "is not a constant", "class Helper:\n    pass\n" + body("y = Helper()")),
    ("a constant made by a call", "is not a constant", "C = open('counts')\n" + body("y = C")),
    (
        "a constant in a tl.constexpr made by a call",
        "is not a constant",
        "C = tl.constexpr(open('counts'))\n" + body("y = C"),
    ),
    ("a constant made of itself", "nested too deeply", "C = tl.constexpr(C + 1)\n" + body("y = C")),
    ("a constant that is no tl.constexpr", "C = tl.constexpr(3)", "C = 3\n" + body("y = C")),
    (
        "a constant of 80 bits",
        "64 bits at most",
        "C = tl.constexpr(2 * 604462909807314587353088)\n" + body("y = C"),
    ),
    (
        "a constant defined twice",
        "is set by more than one statement",
        "C = tl.constexpr(3)\nC = tl.constexpr(4)\n" + body("y = C"),
    ),
    (
        "a constant changed in place",
        "is set by more than one statement",
        "C = tl.constexpr(3)\nC += 1\n" + body("y = C"),
    ),
    ("an integer of 80 bits", "64 bits at most", body("y = 604462909807314587353088")),
    ("complex numbers", "cannot hold", body("y = 3j")),
    ("bytes", "cannot hold", body("y = b'3'")),
    (
        "recursion",
        "calls itself",
        "@triton.jit\ndef helper(a):\n    return helper(a)\n" + body("y = helper(n)"),
    ),
    ("a lambda given to tl.reduce", "a lambda", body("y = tl.reduce(i, 0, lambda a, b: a)")),
    (
        "Triton's function given to tl.reduce",
        "tl.load has to be called",
        body("y = tl.reduce(i, 0, tl.load)"),
    ),
    ("a loop over a block", "a kernel's for loop", body("for y in i:", "    pass")),
    (
        "deep nesting",
        "nested too deeply",
        body("y = " + "(" * 70 + "n" + ")" * 70 + "".join("+1" for _ in range(90))),
    ),
    (
        "an address made of a number",
        "computed from no argument",
        body("y = tl.load((i + 4096).to(tl.int64).to(tl.pointer_type(tl.float32)))"),
    ),
    ("an address before an array", "element -1 of x", body("y = tl.load(x - 1 + i * 0)")),
    (
        "an address far from an array",
        "of x, which has 64",
        body("y = tl.load(x + i.to(tl.int64) * 0 + 1000000000000)"),
    ),
    (
        "an address between elements",
        "not a multiple of 4",
        body("y = tl.load((x.to(tl.int64) + 2 + i * 0).to(tl.pointer_type(tl.float32)))"),
    ),
    (
        "a store to what is read-only",
        "read-only",
        body("tl.store(table + i * 0, 1)").replace("(x,", "(table,"),
    ),
    ("break", "cannot contain break", body("while n > 0:", "    break")),
    ("continue", "cannot contain continue", body("for k in range(3):", "    continue")),
    ("a dictionary", "a dictionary", body("y = {}")),
    ("a list comprehension", "a comprehension", body("y = [k for k in range(3)]")),
    ("a function in a kernel", "cannot define a function", body("def f():", "    pass")),
    (
        "a return within a loop",
        "return from within a loop",
        body("for k in range(3):", "    return"),
    ),
    ("a comparison of three", "compares two things", body("y = 0 <= i < n")),
    ("two targets", "one name at a time", body("y = z = 3")),
    ("the operator @", "tl.dot(a, b)", body("y = i @ i")),
    ("a block as a condition", "neither true nor false", body("if i > 3:", "    pass")),
    ("a block of 100 elements", "power of", body("y = tl.zeros((100,), tl.float32)")),
    ("a range of 100 elements", "power of", body("y = tl.arange(0, 100)")),
    ("a range known only at run time", "constexpr", body("y = tl.arange(0, n)")),
    ("a block too large", "exceeds triton maximum", body("y = tl.zeros((2048, 1024), tl.float32)")),
    (
        "a product of two blocks too small",
        "K >= 16",
        body("y = tl.dot(tl.zeros((16, 8), tl.float16), tl.zeros((8, 16), tl.float16))"),
    ),
    ("a variable with no value", "y", body("if n > 1000:", "    y = 1", "z = y")),
    ("a division by zero", "ZeroDivisionError", body("y: tl.constexpr = 1 // 0")),
    ("a constant of a billion digits", "64 at most", body("y: tl.constexpr = 9 ** 9 ** 9")),
    ("a constant of a billion bits", "64 at most", body("y: tl.constexpr = 1 << 10000000000")),
    ("a constant of 128 bits", "64 bits at most", body("y: tl.constexpr = 3 ** 60")),
    (
        "a constant that grows in a product",
        "64 bits at most",
        body("y: tl.constexpr = (1 << 62) * (1 << 62)"),
    ),
    (
        "a text of ten gigabytes",
        "for numbers and blocks",
        body("y: tl.constexpr = 'a' * 10000000000"),
    ),
    (
        "a text of ten gigabytes, formatted",
        "for numbers and blocks",
        body("y: tl.constexpr = '%10000000000d' % 3"),
    ),
    (
        "a tuple of a billion numbers",
        "for numbers and blocks",
        body("y: tl.constexpr = (1, 2) * 1000000000"),
    ),
    ("a list of a billion numbers", "for numbers and blocks", body("y = [1] * 1000000000")),
    (
        "a tuple that doubles",
        "64 parts at most",
        body("t = (1, 2)", "for k in tl.static_range(40):", "    t = t + t"),
    ),
    (
        "a text that doubles",
        "64 parts at most",
        body(
            "t: tl.constexpr = 'a'", "for k in tl.static_range(40):", "    t: tl.constexpr = t + t"
        ),
    ),
    (
        "a tuple of tuples that doubles",
        "a tuple of tuples of tuples",
        body("t = (1, 2)", "for k in tl.static_range(40):", "    t = (t, t)"),
    ),
    (
        "a default of 80 bits",
        "64 bits at most",
        "@triton.jit\ndef kernel(x, out, n, N=604462909807314587353088):\n    pass\n",
    ),
    (
        "an outer constant of a billion digits",
        "exponent is at most 64",
        "C = tl.constexpr(9 ** 9 ** 9)\n" + body("y = C"),
    ),
    (
        "an outer constant that is complex",
        "is not a constant",
        "C = tl.constexpr((-1) ** 0.5)\n" + body("y = C"),
    ),
    ("an endless loop", "does a loop never end", body("while n > 0:", "    pass")),
    (
        "a loop of a billion turns, unrolled",
        "does a loop never end",
        body("for k in tl.static_range(10**9):", "    pass"),
    ),
    (
        "a loop that waits for another program",
        "wait for another program",
        body("while tl.load(x + N) > 0:", "    pass").replace(INDEX, ""),
    ),
    (
        "an endless loop in what is reduced",
        "does a loop never end",
        "@triton.jit\ndef first(a, b):\n    while a == a:\n        a = a\n    return a\n"
        + body("y = tl.reduce(i, 0, first)"),
    ),
    (
        "functions that double in number",
        "50 functions at most",
        "@triton.jit\ndef f0(a):\n    return a\n"
        + "".join(
            f"@triton.jit\ndef f{k}(a):\n    return f{k - 1}(a) + f{max(k - 2, 0)}(a)\n"
            for k in range(1, 60)
        )
        + body("y = f59(n)"),
    ),
]
HARMLESS = [  # (title, text): it may run, and costs what any kernel does
    (
        "unchecked text in a docstring",
        '@triton.jit\ndef kernel(x, out, n, N: tl.constexpr):\n    """\n'
        '    def kernel(x, out, n, N):\n        open("counts")\n    # """\n'
        + INDEX
        + f"    {STORE}\n",
    ),
    ("line separators that only some readers know", "# \u2028 \x0c\n" + body(STORE)),
    ("tl imported as another module", "import os as tl\n" + body(STORE)),
    (
        "Python that the kernel does not use",
        "import os\nconfigs = [open]\ndef host(x):\n    return eval('x')\n" + body(STORE),
    ),
    (
        "names of the counters' own",
        body(
            "recorder = 1",
            "here = 2",
            "where = 3",
            "sources = 4",
            "builder = 5",
            "semantic = 6",
            "interpreter_semantic = 7",
            STORE,
        ),
    ),
    (
        "a helper named as a built-in function",
        "@triton.jit\ndef min(a, b):\n    return a\n" + body("y = min(n, 3)", STORE),
    ),
    (
        "an address computed as a number",
        body(
            "p = (x.to(tl.int64) + 4 * i).to(tl.pointer_type(tl.float32))",
            "tl.store(out + i, tl.load(p))",
        ),
    ),
]


def launch(text):
    """(Report, out) of a launch of this kernel by two programs of 32 elements."""
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    if "(table," in text:
        x.flags.writeable = False
    return tiles.count(tiles.compile_source(text, "kernel"), (2,), x, out, 64, N=32), out


@pytest.mark.parametrize("title, words, text", REFUSED, ids=[case[0] for case in REFUSED])
def test_an_attack_is_refused(title, words, text, monkeypatch):
    monkeypatch.setattr("nogpu.tiles.runtime.MAX_TURNS", 1000)
    with pytest.raises((tiles.KernelError, tiles.OutOfBoundsError)) as caught:
        launch(text)
    assert words in str(caught.value)
    assert re.search(r"line \d+|kernel", str(caught.value))


@pytest.mark.parametrize("title, text", HARMLESS, ids=[case[0] for case in HARMLESS])
def test_an_attack_is_harmless(title, text):
    report, out = launch(text)
    assert np.array_equal(out, np.arange(64))
    assert report.loads.sectors == report.stores.sectors == 8


def test_there_are_many_attacks():
    assert len(REFUSED) + len(HARMLESS) >= 40


WITHIN_30_SECONDS = """
import resource
import sys
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
from nogpu import tiles
try:
    tiles.compile_source(sys.stdin.read(), "kernel")
except tiles.KernelError:
    print("refused", end="")
"""


@pytest.mark.parametrize(
    "text",
    [
        SIGNATURE + "    y = " + "-" * 200 + "1\n",
        SIGNATURE + "    y = " + "-" * 5000 + "1\n",
        SIGNATURE + "    y = " + "+".join(["1"] * 5000) + "\n",
        SIGNATURE + "    y = 1\n" * 20_000,
        SIGNATURE + "    y = 1\0\n",
        "C = tl.constexpr(" + "+".join(["1"] * 5000) + ")\n" + SIGNATURE + "    y = C\n",
    ],
    ids=["signs", "more signs", "a long sum", "many lines", "a zero byte", "a long constant"],
)
def test_a_text_that_would_exhaust_the_checker_is_refused_soon(text):
    child = subprocess.run(
        [sys.executable, "-c", WITHIN_30_SECONDS],
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdout == "refused", child.stderr[-500:]


def test_every_name_of_the_language_exists_in_triton():
    import triton
    import triton.language as tl

    from nogpu.tiles import dtypes, language

    assert not [name for name in language.FUNCTIONS if not hasattr(tl, name)]
    assert not [name for name in dtypes.TL_NAMES if not hasattr(tl, name)]
    assert not [name for name in language.MATH if not hasattr(tl.math, name)]
    assert not [name for name in language.HOST if not hasattr(triton, name)]
