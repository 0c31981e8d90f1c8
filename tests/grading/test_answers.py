"""What an honest student's notebook may look like: it is graded as the notebook showed it.

Each shape is executed from top to bottom by IPython, as Run All does, and graded. Both verdicts on
its first exercise must be the same.
"""

import contextlib
import io
import json
import time
import types

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from common.notebook import grader_preview, slices
from common.notebook.magics import as_python
from grading import score
from grading.source import answers, build, holes, labs, release
from grading.source.answers import StudentCell
from grading.source.holes import Answer
from grading.source.labs import parse
from grading.worker.allowance import Allowance
from grading.worker.fork_server import ForkServer
from grading.worker.session import Session
from tests.mini_lab import SOURCE, mini_lab

LAB = mini_lab()
SOLUTION = {name: Answer(text) for name, text in LAB.solution.items()}
DOUBLE = LAB.exercise("double")
SETUP = next(cell.source for cell in LAB.cells if "setup" in cell.tags)
DRIVER = next(cell.source for cell in LAB.cells if "driver" in cell.tags)
CHECK = DOUBLE.checks[0].source
ANSWER = "def double(x):\n    return my_sum(x, x)"
HELPER = "def my_sum(a, b):\n    return a + b"
GOOD = "def double(x):\n    return x + x"

SHAPES = {  # the cells between set-up and the end; None stands for the check
    "the answer alone": [GOOD, None],
    "a helper in a cell above": [HELPER, ANSWER, None],
    "a helper in a cell below the answer": [ANSWER, HELPER, None],
    "a helper of a helper": [
        "def one(x):\n    return x * 1",
        "def my_sum(a, b):\n    return one(a) + one(b)",
        ANSWER,
        None,
    ],
    "helpers that call each other": [
        "def f(a, b, n=2):\n    return g(a, b, n - 1)\n"
        "def g(a, b, n):\n    return f(a, b, n) if n else a + b",
        "my_sum = f",
        ANSWER,
        None,
    ],
    "an import in a cell of its own": [
        "import operator",
        "def double(x):\n    return operator.add(x, x)",
        None,
    ],
    "from an import, under another name": [
        "from operator import add as plus",
        "def double(x):\n    return plus(x, x)",
        None,
    ],
    "a star import": [
        "from operator import *",
        "def double(x):\n    return add(x, x)",
        None,
    ],
    "two star imports": [
        "from math import *\nfrom operator import *",
        "def double(x):\n    return mul(x, int(floor(2.5)))",
        None,
    ],
    "a module's part imported elsewhere": [
        "import collections.abc",
        "def double(x):\n    assert not isinstance(x, collections.abc.Mapping)\n    return x + x",
        None,
    ],
    "an import inside try": [
        "try:\n    import no_such_module as op\nexcept ImportError:\n    import operator as op",
        "def double(x):\n    return op.add(x, x)",
        None,
    ],
    "what is set in a class": [
        "class K:\n    pass",
        "K.two = 2",
        "double = lambda x: K.two * x",
        None,
    ],
    "a method that comes later": [
        "class K:\n    pass",
        "def add(self, x):\n    return x + x",
        "K.add = add",
        "def double(x):\n    return K().add(x)",
        None,
    ],
    "an item of a class's table": [
        "class Box:\n    items = {}",
        "Box.items['two'] = 2",
        "def double(x):\n    return Box.items['two'] * x",
        None,
    ],
    "what is set in the answer itself": [
        "def double(x):\n    return double.k * x",
        "double.k = 2",
        None,
    ],
    "a register of types": [
        "import functools\n@functools.singledispatch\ndef g(x):\n    return x + x",
        "@g.register\ndef _(x: int):\n    return 2 * x",
        "def double(x):\n    return g(x)",
        None,
    ],
    "an awaited constant": [
        "async def two():\n    return 2",
        "TWO = await two()",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "a constant": ["TWO = 2", "def double(x):\n    return TWO * x", None],
    "a constant with a type": ["TWO: int = 2", "def double(x):\n    return TWO * x", None],
    "two constants at once": [
        "ONE, (TWO, *_) = 1, (2, 3)",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "a constant that grows": ["TWO = 1\nTWO += 1", "def double(x):\n    return TWO * x", None],
    "a constant that grows in another cell": [
        "TWO = 1",
        "TWO += 1",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "a constant that grows in the answer's cell": [
        "TWO = 1",
        "TWO += 1\ndef double(x):\n    return TWO * x",
        None,
    ],
    "a constant that was computed with an older one": [
        "N = 2\nTABLE = [N * i for i in range(9)]\nN = 7",
        "def double(x):\n    return TABLE[1] * x + (N - 7)",
        None,
    ],
    "a constant that changes after the answer": [
        "TWO = 3",
        "def double(x):\n    return TWO * x",
        "TWO = 2",
        None,
        "TWO = 4",
    ],
    "a constant computed from data": [
        "DATA = np.arange(6.0).reshape(2, 3)",
        "COLUMNS = DATA.sum(0)\nTWO = int((COLUMNS[1] - COLUMNS[0]) / DATA[0, 1])",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "a table that is filled in a loop": [
        "table = {}\nfor i in range(3):\n    table[i] = i",
        "def double(x):\n    return table[2] * x",
        None,
    ],
    "a list that is appended to in another cell": [
        "factors = []",
        "factors.append(2)",
        "def double(x):\n    return factors[0] * x",
        None,
    ],
    "a list that a function fills": [
        "factors = []\ndef fill(x):\n    x.append(2)",
        "fill(factors)",
        "def double(x):\n    return factors[0] * x",
        None,
    ],
    "a list that is sorted in place by a library": [
        "import heapq\nfactors = [3, 2]",
        "heapq.heapify(factors)",
        "def double(x):\n    return factors[0] * x",
        None,
    ],
    "a global that a function sets": [
        "def begin():\n    global two\n    two = 2",
        "begin()",
        "def double(x):\n    return two * x",
        None,
    ],
    "a function defined in a loop": [
        "times = {}\nfor n in (1, 2, 3):\n    def multiply(x, n=n):\n        return n * x\n"
        "    times[n] = multiply",
        "def double(x):\n    return times[2](x)",
        None,
    ],
    "a lambda with a name": [
        "twice = lambda x: x + x",
        "def double(x):\n    return twice(x)",
        None,
    ],
    "the answer is a lambda": ["double = lambda x: x + x", None],
    "the answer is a partial function": [
        "import functools, operator",
        "double = functools.partial(operator.mul, 2)",
        None,
    ],
    "the answer is another function's name": [
        HELPER,
        "def f(x):\n    return my_sum(x, x)",
        "double = f",
        None,
    ],
    "the answer is wrapped in a later cell": [
        "def double(x):\n    return x",
        "import functools\ndouble = (lambda f: functools.wraps(f)(lambda x: 2 * f(x)))(double)",
        None,
    ],
    "a decorator": [
        "def twice(f):\n    return lambda x: 2 * f(x)",
        "@twice\ndef double(x):\n    return x",
        None,
    ],
    "a decorator with an argument": [
        "import functools\ndef times(n):\n    def wrap(f):\n        @functools.wraps(f)\n"
        "        def inner(x):\n            return n * f(x)\n        return inner\n    return wrap",
        "@times(2)\ndef double(x):\n    return x",
        None,
    ],
    "a decorator that registers": [
        "REGISTRY = {}\ndef register(f):\n    REGISTRY[f.__name__] = f\n    return f",
        "@register\ndef twice(x):\n    return x + x",
        "def double(x):\n    return REGISTRY['twice'](x)",
        None,
    ],
    "a class": [
        "class Twice:\n    factor = 2\n    def __call__(self, x):\n        return self.factor * x",
        "def double(x):\n    return Twice()(x)",
        None,
    ],
    "a class with a base in another cell": [
        "class Base:\n    factor = 1\n    def __call__(self, x):\n        return self.factor * x",
        "class Twice(Base):\n    factor = 2",
        "def double(x):\n    return Twice()(x)",
        None,
    ],
    "a data class, and a method added later": [
        "from dataclasses import dataclass\n@dataclass\nclass Times:\n    n: int = 2",
        "Times.apply = lambda self, x: self.n * x",
        "def double(x):\n    return Times().apply(x)",
        None,
    ],
    "a helper named as a builtin": [
        "def sum(a, b):\n    return a + b",
        "def double(x):\n    return sum(x, x)",
        None,
    ],
    "a helper named as a driver": [
        "def count(x):\n    return x + x",
        "def double(x):\n    return count(x)",
        None,
    ],
    "a name of the set-up that means something else": [
        "torch = 2",
        "def double(x):\n    return torch * x",
        "import torch",
        None,
    ],
    "a helper that a later exercise defines again": [
        HELPER,
        ANSWER,
        None,
        "def my_sum(a, b):\n    return 0",
        "def scale_(x, factor):\n    my_sum(0, 0)\n    x *= factor",
    ],
    "a helper in the cell of an earlier try": [
        "def my_sum(a, b):\n    return a + b\ndef double(x):\n    return 0",
        ANSWER,
        None,
    ],
    "a helper in a cell that also prints, plots and writes": [
        "print('hello'); ONE = 1\n" + HELPER + "\nopen('no/such/folder', 'w')",
        ANSWER,
        None,
    ],
    "a def inside if": [
        "DEBUG = False",
        "if not DEBUG:\n    " + GOOD.replace("\n", "\n    "),
        None,
    ],
    "a def inside else": [
        "if torch.cuda.is_available() and False:\n    pass\nelse:\n    "
        + GOOD.replace("\n", "\n    "),
        None,
    ],
    "a def inside try": [
        "try:\n    " + GOOD.replace("\n", "\n    ") + "\nfinally:\n    pass",
        None,
    ],
    "a def inside with": [
        "import contextlib\nwith contextlib.suppress(ValueError):\n    "
        + GOOD.replace("\n", "\n    "),
        None,
    ],
    "a scratch redefinition at the end": [GOOD, None, "def double(x):\n    pass"],
    "a scratch value of the same name at the end": [GOOD, None, "double = 3"],
    "a scratch redefinition with an error at the end": [GOOD, None, "def double(x:\n    pass"],
    "the definition that was wrong, then a right one": ["def double(x):\n    return 0", GOOD, None],
    "the right definition, then a wrong one": [GOOD, "def double(x):\n    return 0", None],
    "the untouched stub above": [DOUBLE.stub, GOOD, None],
    "display in the answer's cell": [GOOD + "\ndisplay(double(3))", None],
    "display in the function": ["def double(x):\n    display(x)\n    return x + x", None],
    "get_ipython in the answer's cell": [
        "get_ipython().run_line_magic('pwd', '')\n" + GOOD,
        None,
    ],
    "magics above the answer": ["%pwd\n%precision 3\n" + GOOD, None],
    "a timed cell": ["%%time\n" + GOOD, None],
    "a timed statement that sets a name": [
        "%time TWO = 2",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "a timed statement in the function": [
        "def double(x):\n    %time 1 + 1\n    return x + x",
        None,
    ],
    "shell lines": ["!true\nfiles = !echo a\n" + GOOD, None],
    "a shell line in the function": ["def double(x):\n    !true\n    return x + x", None],
    "help": [GOOD + "\ndouble?\n?double\ndouble??", None],
    "an indented cell": ["    " + GOOD.replace("\n", "\n    "), None],
    "prompts that were copied": [">>> def double(x):\n...     return x + x", None],
    "await at the top level": ["import asyncio\nawait asyncio.sleep(0)\n" + GOOD, None],
    "await for a constant": [
        "import asyncio\nasync def two():\n    await asyncio.sleep(0)\n    return 2",
        "TWO = await two()",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "an asynchronous comprehension": [
        "async def numbers():\n    for i in range(3):\n        yield i",
        "TABLE = [i async for i in numbers()]",
        "def double(x):\n    return TABLE[2] * x",
        None,
    ],
    "a walrus": ["print(TWO := 2)", "def double(x):\n    return TWO * x", None],
    "match": [
        "match (1, 2):\n    case (_, TWO):\n        pass",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "a demo's variable": [
        "scratch = torch.ones(2)",
        "def double(x):\n    return x * int(scratch.sum())",
        None,
    ],
    "a local name like a global one": [
        "y = 1 / 3",
        "def double(x):\n    y = x + x\n    return y",
        None,
    ],
    "a name that a comprehension has for itself": [
        "i = open",
        "def double(x):\n    return x * sum(i for i in (0, 2))",
        None,
    ],
    "a magic and a helper together": [
        "%%time\ndef my_sum(a, b): return a + b",
        ANSWER,
        None,
    ],
    "a helper that reads a constant at two times": [
        "N = 1",
        "def times(x):\n    return N * x",
        "TABLE = [times(i) for i in range(3)]",
        "N = 2",
        "def double(x):\n    return TABLE[1] * times(x)",
        None,
        "N = 3",
    ],
    "an object whose method reads a constant": [
        "class Times:\n    def __call__(self, x):\n        return N * x",
        "times = Times()",
        "N = 2",
        "def double(x):\n    return times(x)",
        None,
    ],
    "a type alias": [
        "from collections.abc import Callable\nVector = np.ndarray | torch.Tensor",
        "def double(x: Vector) -> Vector:\n    return x + x",
        None,
    ],
    "annotations of names that are nowhere, by a future import above": [
        "from __future__ import annotations",
        "def double(x: Nowhere) -> Nobody:\n    return x + x",
        None,
    ],
    "a future import in the answer's cell": [
        "from __future__ import annotations\n\ndef double(x: Nowhere):\n    return x + x",
        None,
    ],
    "a future import in a helper's cell": [
        "from __future__ import annotations\ndef my_sum(a: Nowhere, b):\n    return a + b",
        "def double(x):\n    return my_sum(x, x)",
        None,
    ],
    "a default computed from a constant": [
        "ONE = 1",
        "def double(x, n=ONE + 1):\n    return n * x",
        None,
    ],
    "a default that a function gives": [
        "def two():\n    return 2",
        "def double(x, *, n=two()):\n    return n * x",
        None,
    ],
    "constants below the answer": ["def double(x):\n    return TWO * x", "TWO = 2", None],
    "Colab's form": [
        '#@title A constant { run: "auto" }\nTWO = 2 #@param {type:"integer"}',
        "#@title My answer\ndef double(x):\n    return TWO * x",
        None,
    ],
    "a counter that a global statement grows": [
        "calls = 0",
        "def double(x):\n    global calls\n    calls += 1\n    return x + x",
        None,
    ],
    "a closure with nonlocal": [
        "def counted(f):\n    n = 0\n    def inner(x):\n        nonlocal n\n"
        "        n += 1\n        return f(x)\n    return inner",
        "@counted\ndef double(x):\n    return x + x",
        None,
    ],
    "a generic function registered in two cells": [
        "import functools\n@functools.singledispatch\ndef twice(x):\n    return 2 * x",
        "@twice.register\ndef _(x: torch.Tensor):\n    return x + x",
        "def double(x):\n    return twice(x)",
        None,
    ],
    "an overload": [
        "import typing",
        "@typing.overload\ndef double(x: int) -> int: ...\n@typing.overload\n"
        "def double(x: float) -> float: ...\ndef double(x):\n    return x + x",
        None,
    ],
    "an enum": [
        "import enum\nclass Factor(enum.IntEnum):\n    TWO = 2",
        "def double(x):\n    return int(Factor.TWO) * x",
        None,
    ],
    "a named tuple": [
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int = 1\n    b: int = 2",
        "def double(x):\n    return Pair().b * x",
        None,
    ],
    "a metaclass": [
        "class Meta(type):\n    def __call__(cls, x):\n        return x + x",
        "class double(metaclass=Meta):\n    pass",
        None,
    ],
    "a guard of __main__": [
        'if __name__ == "__main__":\n    def double(x):\n        return x + x',
        None,
    ],
    "a def inside if True": ["if True:\n    def double(x):\n        return x + x", None],
    "a def inside for": ["for _ in range(1):\n    def double(x):\n        return x + x", None],
    "a def inside while": [
        "while True:\n    def double(x):\n        return x + x\n    break",
        None,
    ],
    "an attribute of the function itself": [
        "def double(x):\n    return double.factor * x",
        "double.factor = 2",
        None,
    ],
    "an attribute of a helper": [
        "def helper(x):\n    return helper.factor * x\nhelper.factor = 2",
        "def double(x):\n    return helper(x)",
        None,
    ],
    "a static method": [
        "class Twice:\n    @staticmethod\n    def of(x):\n        return x + x",
        "double = Twice.of",
        None,
    ],
    "a bound method": [
        "class Times:\n    def __init__(self, n):\n        self.n = n\n"
        "    def of(self, x):\n        return self.n * x",
        "double = Times(2).of",
        None,
    ],
    "an annotated lambda": [
        "from typing import Callable",
        "double: Callable = lambda x: x + x",
        None,
    ],
    "a conditional lambda": ["double = (lambda x: x + x) if torch else None", None],
    "a partial of a helper with a constant": [
        "import functools\nTWO = 2\ndef times(n, x):\n    return n * x",
        "double = functools.partial(times, TWO)",
        None,
    ],
    "a name that was deleted": [
        "tmp = 3\nTWO = tmp - 1\ndel tmp",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "a helper that was deleted and defined again": [
        "def my_sum(a, b):\n    return 0",
        "del my_sum",
        "def my_sum(a, b):\n    return a + b",
        "def double(x):\n    return my_sum(x, x)",
        None,
    ],
    "a helper that was deleted": [
        "def my_sum(a, b):\n    return a + b",
        "del my_sum",
        "def double(x):\n    return my_sum(x, x)",
        None,
    ],
    "a walrus in a comprehension": [
        "TABLE = [last := i for i in range(3)]",
        "def double(x):\n    return last * x",
        None,
    ],
    "a default dtype": [
        "torch.set_default_dtype(torch.float64)",
        "def double(x):\n    return x * (2 if torch.get_default_dtype() == torch.float64 else 3)",
        None,
    ],
    "a captured cell": ["%%capture out\ndef double(x):\n    return x + x", None],
    "a timed cell with options": [
        "%%time\nTWO = 2",
        "%%capture --no-stderr\ndef double(x):\n    return TWO * x",
        None,
    ],
    "pip above the answer": ["%pip --version\n!true\ndef double(x):\n    return x + x", None],
    "a name with accents": ["größe = 2", "def double(x):\n    return größe * x", None],
    "a cached recursion": [
        "import functools\n@functools.cache\ndef factor(n):\n"
        "    return n if n < 2 else factor(n - 1) + 1",
        "def double(x):\n    return factor(2) * x",
        None,
    ],
    "a class that holds the answer's helper, with super": [
        "class A:\n    def f(self, x):\n        return x",
        "class B(A):\n    def f(self, x):\n        return super().f(x) + x",
        "def double(x):\n    return B().f(x)",
        None,
    ],
    "a context manager of one's own": [
        "import contextlib\n@contextlib.contextmanager\ndef factor():\n    yield 2",
        "def double(x):\n    with factor() as n:\n        return n * x",
        None,
    ],
    "a star in the assignment of a helper": [
        "one, *rest = (lambda x: x), (lambda x: x + x)",
        "def double(x):\n    return rest[0](x)",
        None,
    ],
    "a try with else": [
        "try:\n    import operator\nexcept ImportError:\n    plus = None\nelse:\n"
        "    plus = operator.add",
        "def double(x):\n    return plus(x, x)",
        None,
    ],
    "an assertion of one's own between": [
        "def my_sum(a, b):\n    return a + b\nassert my_sum(1, 1) == 2",
        "def double(x):\n    return my_sum(x, x)\nassert double(2) == 4",
        None,
    ],
    "a figure between": [
        "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])\n"
        "TWO = len(ax.lines) + 1",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "a dict of functions": [
        "OPS = {'plus': lambda a, b: a + b}\nOPS['twice'] = lambda x: OPS['plus'](x, x)",
        "def double(x):\n    return OPS['twice'](x)",
        None,
    ],
    "a dict that update fills": [
        "OPS = {}",
        "OPS.update(n=2)",
        "def double(x):\n    return OPS['n'] * x",
        None,
    ],
    "a generator that is asked in another cell": [
        "numbers = iter([1, 2, 3])",
        "next(numbers)",
        "TWO = next(numbers)",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "the result of a cell, Out": [
        "TWO = (lambda: 2)()",
        "def double(x):\n    return TWO * x;",
        "double(2);",
        None,
    ],
    "a doctest in the docstring": [
        'def double(x):\n    """Twice x.\n\n    >>> double(2)\n    4\n    """\n'
        "    return x + x\nimport doctest",
        None,
    ],
    "an answer in a class body's namespace": [
        "class Answers:\n    def double(x):\n        return x + x",
        "double = Answers.double",
        None,
    ],
    "a loop's variable": [
        "for TWO in range(3):\n    pass",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "with as": [
        "import io\nwith io.StringIO('2') as file:\n    TWO = int(file.read())",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "setattr on an object": [
        "import types\nspace = types.SimpleNamespace()\nsetattr(space, 'n', 2)",
        "def double(x):\n    return space.n * x",
        None,
    ],
    "a list sorted by a method through an alias": [
        "a = [2, 3, 1]\nb = a\nb.sort()",
        "def double(x):\n    return a[1] * x",
        None,
    ],
    "a generic function registered by an object of another cell": [
        "import functools\n@functools.singledispatch\ndef twice(x):\n"
        "    return x + x + (isinstance(x, torch.Tensor) and 1)",
        "@twice.register(torch.Tensor)\ndef of_tensor(x):\n    return x + x",
        "def double(x):\n    return twice(x)",
        None,
    ],
    "an instance that can be called": [
        "class Doubler:\n    def __call__(self, x):\n        return x + x\ndouble = Doubler()",
        None,
    ],
    "a generic protocol": [
        "from typing import Generic, Protocol, TypeVar\nT = TypeVar('T')",
        "class Twice(Protocol[T]):\n    def __call__(self, x: T) -> T: ...",
        "class Doubler(Generic[T]):\n    def __call__(self, x: T) -> T:\n        return x + x",
        "double: Twice = Doubler()",
        None,
    ],
    "a decorator that keeps the name": [
        "import functools\ndef logged(f):\n    @functools.wraps(f)\n    def g(*a):\n"
        "        return f(*a)\n    return g",
        "@logged\n" + GOOD,
        None,
    ],
    "a method of an object that a function makes": [
        "def made():\n    k = 2\n    class C:\n        def f(self, x):\n            return k * x\n"
        "    return C()",
        "double = made().f",
        None,
    ],
    "a descriptor": [
        "class D:\n    def __get__(self, one, kind=None):\n        return 2",
        "class C:\n    two = D()",
        "def double(x):\n    return C.two * x",
        None,
    ],
    "a variable of the context": [
        "import contextvars\nTWO = contextvars.ContextVar('TWO', default=2)",
        "def double(x):\n    return x * TWO.get()",
        None,
    ],
    "a lambda of a list": [
        "many = [lambda x, k=k: x * k for k in range(3)]",
        "double = many[2]",
        None,
    ],
    "a module that may be missing": [
        "try:\n    import not_there as lib\nexcept ImportError:\n    lib = None",
        "def double(x):\n    return x + x if lib is None else lib.double(x)",
        None,
    ],
    "a pool of threads": [
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)",
        "def double(x):\n    return pool.submit(lambda: x + x).result()",
        None,
    ],
    "carriage returns alone": [GOOD.replace("\n", "\r"), None],
    "a form feed": ["\f\n" + GOOD, None],
    "a space that is no space": ["def double(x):\n    return x +\u200b x", None],
    "a helper deleted after the check": [HELPER, ANSWER, None, "del my_sum"],
    "a cell of bash": ["%%bash\necho hi", GOOD, None],
    "a missing helper": [ANSWER, None],
    "an assertion that fails below the answer": [GOOD + "\nassert double(2) == 5", None],
    "a call that ends the cell of the answer": [GOOD + "\nimport sys\nsys.exit()", None],
    "a cell that fails above the answer's definition": ["1 / 0\n" + GOOD, None],
    # What a text does not show. The grader executes all cells if it has to.
    "a list that a comprehension fills": [
        "t = []",
        "[t.append(i) for i in range(3)]",
        "def double(x):\n    return t[2] * x",
        None,
    ],
    "what is taken from a list": [
        "t = [1, 2, 3]",
        "last = t.pop()",
        "def double(x):\n    return t[-1] * x",
        None,
    ],
    "rows that grow in a loop": [
        "table = [[], []]",
        "for row in table:\n    row.append(2)",
        "def double(x):\n    return table[0][0] * x",
        None,
    ],
    "an array that is the output": [
        "h = np.zeros(3, int)",
        "np.add(1, [1, 1, 1], out=h)\nnp.add.at(h, [1], 0)",
        "def double(x):\n    return x * int(h[1])",
        None,
    ],
    "instances that register themselves": [
        "class Rule:\n    known = {}\n    def __init__(self, key, f):\n        Rule.known[key] = f",
        "Rule('two', lambda x: x + x)",
        "def double(x):\n    return Rule.known['two'](x)",
        None,
    ],
    "a helper that is found by its name": [
        "def rule_two(x):\n    return x + x",
        "def double(x):\n    return globals()['rule_' + 'two'](x)",
        None,
    ],
    "a seeded generator": [
        "np.random.seed(3)",
        "R = np.random.rand()",
        "def double(x):\n    return (2 if R == np.random.RandomState(3).rand() else 3) * x",
        None,
    ],
    "a helper made by exec, which is called": [
        "exec('def my_sum(a, b): return a + b')",
        ANSWER,
        None,
    ],
    "cells that fail between": [
        "1 / 0",
        "globals()['TWO'] = 2",
        "import sys; sys.exit()",
        "def double(x):\n    return TWO * x",
        None,
    ],
    "what is filled below the check": [
        "t = []",
        "def double(x):\n    return t[0] * x",
        None,
        "[t.append(i) for i in (2,)]",
    ],
    # Helpers with the names of other exercises.
    "an import with the name of a later exercise": [
        "from collections import Counter",
        "def double(x):\n    return x * Counter('aa')['a']",
        None,
    ],
    "a helper with the name of a later exercise": [
        "def scale_(x):\n    return x + x",
        "def double(x):\n    return scale_(x)",
        None,
    ],
    "a helper that fails": ["my_sum = 1 / 0", ANSWER, None],
    "a helper made by exec": [
        "exec('def hidden(a): return 3')",
        "def double(x):\n    return 0",
        None,
    ],
}


@pytest.fixture(scope="module")
def fork_server():
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


def cells_of(shape, *more):
    texts = [SETUP, *(CHECK if text is None else text for text in shape), *more]
    return [StudentCell("code", text) for text in texts]


def graded(fork_server, cells, exercise="double"):
    found = answers.find(LAB, cells)
    results = score.score(LAB, found, fork_server, only=[exercise])
    return results[0]


def notebook_passes(cells):
    """Whether the check passes where IPython executes these cells from top to bottom."""
    shell = InteractiveShell()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        passed = False
        for cell in cells:
            result = shell.run_cell(cell.text, store_history=False)
            if cell.text == CHECK:
                passed = result.success
    return passed


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_an_answer_is_graded_as_the_notebook_showed_it(fork_server, shape):
    cells = cells_of(shape)
    result = graded(fork_server, cells)
    assert (result.points == result.max_points) == notebook_passes(cells), result


def test_the_checks_of_a_built_notebook_are_known(fork_server):
    """A build adds a title to each of them."""
    built = build.lab_notebook(LAB.filled({"double": GOOD}))
    cells = [StudentCell(cell.cell_type, cell.source) for cell in built.cells]
    place = next(i for i, cell in enumerate(cells) if "agree(double(x)" in cell.text)
    scratch = StudentCell("code", "def double(x):\n    return 0")
    assert graded(fork_server, [*cells[: place + 1], scratch, *cells[place + 1 :]]).points == 3


@pytest.mark.parametrize(
    "shell",
    ["from IPython import get_ipython\nget_ipython()", "import IPython as I\nI.get_ipython()"],
)
def test_ipython_gives_a_shell_where_there_is_none(fork_server, shell):
    cells = cells_of([f"{shell}.run_line_magic('pwd', '')\n{GOOD}", None])
    assert graded(fork_server, cells).status == "passed"


def test_functions_of_one_exercise_may_be_in_several_cells(fork_server):
    pair = parse(PAIR, "99_pair")
    flops, other = "def flops(n):\n    return 2 * n", "def moved(n):\n    return flops(n) * 2"
    for cells in (
        [flops, other],
        [other, flops],
        [pair.exercise("flops").stub, flops, other],
        [pair.exercise("flops").stub, other, flops],
        [flops, pair.exercise("flops").stub, other],
        [flops + "\n" + other],
    ):
        found = answers.find(pair, [StudentCell("code", text) for text in cells])
        assert score.score(pair, found, fork_server)[0].status == "passed", cells
    for cells in ([flops], [flops, pair.exercise("flops").stub]):
        found = answers.find(pair, [StudentCell("code", text) for text in cells])
        result = score.score(pair, found, fork_server)[0]
        assert (result.status, result.points) == ("partly passed", 1), result
        assert "KeyError" not in result.message, result


PAIR = """\
# %% [markdown]
# ### Exercise 1.1 · flops
# Two functions.

# %% tags=["hole"]
def flops(n):
    # BEGIN SOLUTION
    return 2 * n
    # END SOLUTION

def moved(n):
    # BEGIN SOLUTION
    return 4 * n
    # END SOLUTION

# %% tags=["check"]
assert flops(3) == 6

# %% tags=["check"]
assert moved(3) == 12
"""


def test_what_is_set_in_an_earlier_answer_is_taken_along(fork_server):
    """An attribute that a cell of its own adds to a class or function of an earlier exercise."""
    counter = (
        "class Counter:\n    count = 0\n    def step(self):\n        self.count += double.step\n"
    )
    counter += "        return self.count"
    cells = cells_of([GOOD, None, "double.step = 1", "double.step += 1", counter])
    found = answers.find(LAB, cells)
    assert score.score(LAB, found, fork_server, only=["Counter"])[0].status == "passed"
    assert found["double"].needed == ()


def test_other_cells_have_no_side_effects(fork_server, tmp_path):
    mark = tmp_path / "mark"
    effect = f"open({str(mark)!r}, 'w').close()"
    cells = cells_of([f"{effect}; TWO = 2; {effect}\n{effect}\nimport time; time.sleep(99)", None])
    cells += [StudentCell("code", "def double(x):\n    return TWO * x")]
    found = answers.find(LAB, cells)["double"]
    assert found.needed == ("TWO = 2\n\n",)
    assert graded(fork_server, cells).status == "passed" and not mark.exists()


def test_all_cells_are_executed_only_if_some_are_left_out(fork_server, monkeypatch):
    built = build.lab_notebook(LAB.filled({"double": "def double(x):\n    return x * x"}))
    cells = [StudentCell(cell.cell_type, cell.source) for cell in built.cells]
    found = answers.find(LAB, cells)
    assert not any(answer.left_out for answer in found.values())
    assert "course" not in str([answer.whole for answer in found.values()])
    forks = []
    monkeypatch.setattr(score, "Session", lambda *a: forks.append(a) or Session(*a))
    assert score.score(LAB, found, fork_server)[0].status == "failed" and len(forks) == 1
    for answer, count in ((GOOD, 1), ("def double(x):\n    return x * x", 2)):
        forks.clear()
        graded(fork_server, cells_of(["print(1)", answer, None]))
        assert len(forks) == count


def test_all_cells_share_the_notebook_s_time(fork_server, monkeypatch):
    sessions = []

    class Short(Session):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.cells_together = Allowance(0.5, within=self.notebook)
            sessions.append(self)

    monkeypatch.setattr(score, "Session", Short)
    fill = "import time\ntime.sleep(9)\n[t.append(i) for i in (2,)]"
    cells = cells_of(["t = []", fill, "def double(x):\n    return t[0] * x", None])
    assert graded(fork_server, cells).points == 0
    assert sessions[1].cells_together.left_s <= 0 and sessions[1].notebook.taken_s < 3


def test_what_students_read_is_said_after_all_cells_too(fork_server):
    """Else they would read of a mistake that they did not make."""
    answer = "def double(x):\n    assert x is not 21\n    return t[0] * x"
    found = answers.find(LAB, cells_of(["t = []", "[t.append(i) for i in (2,)]", answer, None]))
    results = score.score(LAB, found, fork_server, only=["double"])
    (told,) = score.told(LAB, found, fork_server, results)
    assert told.status == "partly passed" and "a held-out case failed" in told.to_student


def test_a_check_merged_into_the_answer_s_cell_is_left_out(fork_server):
    """With Shift+M. Its oracle is not there where the students' code runs."""
    oracle = "from common.lessons.strides import expected\n"
    lab = parse(
        SOURCE.replace("for n in (0", f"{oracle}assert expected\nimport copy\nfor n in (0"),
        "99_mini",
    )
    check = lab.exercise("double").checks[0].source
    helper = "from math import floor\nx = 3\n"
    for text in (f"{helper}{GOOD}\n\n{check}", f"{GOOD}\n\n# Mine\n{check}\nprint(1)"):
        found = answers.find(lab, [StudentCell("code", text)])["double"]
        left = found.text or ""
        assert "expected" not in left and ("floor" in left) == (helper in text)
        assert score.score(lab, {**SOLUTION, "double": found}, fork_server)[0].points == 3
    copied = "def double(x):\n    return copy.copy(x) + x"  # what the check imports is there
    found = answers.find(lab, [StudentCell("code", text) for text in (check, copied, check)])
    assert found["double"].needed[-1].strip() == "import copy"


def test_a_check_that_reads_what_another_check_imports_is_left_out_too():
    """02's second check of 1.1 reads the oracle that the first one imports."""
    lab = labs.read("02")
    first = lab.exercises[0]
    merged = "\n".join([lab.solution[first.name], *(check.source for check in first.checks)])
    found = answers.find(lab, [StudentCell("code", merged)])[first.name]
    assert "expected" not in (found.text or "") and "def matmul_flops" in (found.text or "")


def test_an_answer_may_be_in_a_cell_that_the_build_added(fork_server):
    """A student has merged cells, or all of them."""
    built = build.lab_notebook(LAB).cells
    (added,) = [cell.source for cell in built if cell.source.startswith("# COLAB: ")]
    found = answers.find(LAB, [StudentCell("code", f"{added}\n{GOOD}")])
    (result,) = score.score(
        LAB, SOLUTION | {"double": found["double"]}, fork_server, only=["double"]
    )
    assert result.points == result.max_points, result


def test_an_earlier_exercise_can_be_improved_below_its_check(fork_server):
    """A later answer has what its check saw."""
    better = "def double(x, start=0):\n    return start + 2 * x"
    counter = LAB.solution["Counter"].replace("double(1)", "double(1, start=0)")
    found = answers.find(LAB, cells_of([GOOD, None, better, counter]))
    (double, *_, last) = score.score(LAB, found, fork_server)
    assert double.status == last.status == "passed", last


def test_a_helper_below_the_check_counts_if_there_is_no_other(fork_server):
    """The student has executed the check again, below the helper."""
    assert graded(fork_server, cells_of([ANSWER, None], HELPER)).status == "passed"
    wrong = "def my_sum(a, b):\n    return 0"
    assert graded(fork_server, cells_of([HELPER, ANSWER, None], wrong)).status == "passed"


@pytest.mark.parametrize(
    "cells, says",
    [
        ([ANSWER], "a cell above the check sets this name"),
        (["my_sum = open('data.txt').read()", ANSWER], "that sets it raised FileNotFoundError"),
        (["import helpers_of_mine as my_sum", ANSWER], "raised ModuleNotFoundError"),
        (["files = !ls", "def double(x):\n    return x * len(files)"], "nothing runs `ls`"),
        (["%time 1 +", "def double(x):\n    return x + x"], ""),
    ],
)
def test_what_the_grader_can_not_take_gets_its_reason(fork_server, cells, says):
    result = graded(fork_server, cells_of([*cells, None]))
    assert says in result.message, result


@pytest.mark.parametrize(
    "cells, says",
    [
        (["%run my_sum.py", ANSWER], "The grader will not see `my_sum`"),
        (["exec('my_sum = max')", ANSWER], ""),  # all cells are executed if need be
        (["files = !ls", "def double(x):\n    return len(files)"], "no shell command"),
        (["n = input()", "def double(x):\n    return n * x"], "types nothing"),
        (["import mine", "def double(x):\n    return mine.f(x)"], "does not have mine.py"),
        ([HELPER, ANSWER], ""),
        (["files = !ls", GOOD], ""),
        (["torch.two = 2", "def double(x):\n    return x * torch.two"], ""),
        (["%%time\n" + GOOD], ""),
        (["%%capture\n" + HELPER, "def double(x):\n    !true\n    return my_sum(x, x)"], ""),
        (["%time my_sum = max", ANSWER], ""),
        (["TWO = len(open('two.txt').read())", "def double(x):\n    return x * TWO"], "two.txt"),
        (["import pandas as pd\npd.read_csv('two.txt')\n" + GOOD], "does not have two.txt"),
        (["open('two.txt', 'w').write('2')\n" + GOOD], ""),
        (["open('/etc/passwd').read(); open('no.txt')\n" + GOOD], ""),
        (["import torch as t", "def double(x):\n    return t.add(x, x)"], ""),
    ],
)
def test_the_notebook_says_below_a_check_what_the_grader_will_not_see(
    monkeypatch, tmp_path, cells, says
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.txt").write_text("ab")
    modules = {"mine": types.SimpleNamespace(__file__=str(tmp_path / "mine.py")), "torch": torch}
    history = [as_python(text) for text in [SETUP, *cells, CHECK]]
    told = list(grader_preview.sentences(history, {"my_sum", "double", "x"}, modules))
    assert len(told) == bool(says) and says in "".join(told), told


def test_the_notebook_says_which_packages_the_grader_does_not_have(monkeypatch):
    """Colab has many more than the course installs."""
    installed = {"tqdm": ["tqdm"], "PIL": ["pillow"], "torch": ["torch"]}
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: installed)
    grader_preview._is_foreign.cache_clear()
    modules = {name: types.SimpleNamespace(__file__=None) for name in (*installed, "math")}
    imports = "import math, torch, PIL, not_there\nfrom tqdm.auto import tqdm"
    answer = "def double(x):\n    return [torch, math, PIL, not_there, tqdm] and x + x"
    told = list(grader_preview.sentences([SETUP, imports, answer, CHECK], {"double", "x"}, modules))
    grader_preview._is_foreign.cache_clear()
    assert told == ["The grader does not have the package tqdm: write this answer without it."]


TITLE = "# Check 1 of 1.1 double (2 points): run me\n"
SHOWN = "%%time\ndef double(x):\n    return int(shown.stdout) * x"


def test_a_check_s_variables_do_not_overwrite_the_student_s():
    """The grader's check has its own process; in a notebook, both are one namespace."""
    shell = InteractiveShell.instance()
    helpers = "def n(x):\n    return x + x\nwant = {}"
    answer = "def double(x):\n    want[0] = n(x)\n    return want[0]"
    after = (
        "assert n(2) == 4 and 0 in want and x is not None and '_' not in globals()['n'].__name__"
    )
    try:
        grader_preview.watch(shell)
        with contextlib.redirect_stdout(io.StringIO()) as screen:
            for text in (SETUP, helpers, answer, TITLE + CHECK, after, TITLE + CHECK, after):
                assert shell.run_cell(text, store_history=True).success, screen.getvalue()
    finally:
        InteractiveShell.clear_instance()


@pytest.mark.parametrize("name", labs.names())
def test_the_cells_of_a_notebook_are_recognised(name):
    """A check by its first line, or by its tag; a demonstration, whatever a student guessed."""
    lab = labs.read(name)
    built = build.lab_notebook(lab.filled(lab.solution)).cells
    texts = [(cell.cell_type, cell.source.replace(" = ...", " = 3")) for cell in built]
    found = answers.find(lab, [StudentCell(*text) for text in texts])
    assert not [key for key, answer in found.items() if answer.left_out]
    for cell in [cell for cell in built if cell.cell_type == "code"]:
        is_check = "check" in cell.metadata.get("tags", ())
        assert grader_preview.is_check(cell.source) == is_check, cell.source


def test_a_check_is_recognised_by_its_tag_and_knows_its_limit(monkeypatch, tmp_path):
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "07_autodiff.ipynb"))
    check = next(c for e in labs.read("07").exercises for c in e.checks if c.limit_s != 10)
    cell = {"source": [check.source], "metadata": {"tags": ["check"]}, "cell_type": "code"}
    (tmp_path / "07_autodiff.ipynb").write_text(json.dumps({"cells": [cell]}))
    assert grader_preview.is_check(check.source) and not grader_preview.is_check("x = 1")
    assert grader_preview.limit_s(TITLE + check.source) == check.limit_s
    monkeypatch.delenv("JPY_SESSION_NAME")  # nbclient does not tell a kernel its notebook
    assert grader_preview.limit_s(TITLE + check.source) == check.limit_s
    assert grader_preview.limit_s("x = no check's") == 10
    assert not list(grader_preview.slow(check.source, check.limit_s / 2))
    (told,) = grader_preview.slow(check.source, check.limit_s / 2 + 1)
    assert f"stops an answer after {check.limit_s:g} s" in told


def test_a_notebook_s_check_says_it_at_once():
    """With IPython's own events, as in Jupyter."""
    shell = InteractiveShell.instance()
    try:
        grader_preview.watch(shell)
        with contextlib.redirect_stdout(io.StringIO()) as screen:
            for text in (SETUP, "%%capture shown\nprint(2)", SHOWN, TITLE + CHECK):
                assert shell.run_cell(text, store_history=True).success
        assert screen.getvalue().count("The grader will not see `shown`") == 1
        assert screen.getvalue().count("The grader") == 1
    finally:
        InteractiveShell.clear_instance()


@pytest.mark.parametrize("name", labs.names())
def test_no_solution_is_said_to_have_what_the_grader_will_not_see(name):
    cells, names = [], set()
    for cell in labs.read(name).cells:
        if cell.kind == "code":
            cells.append(holes.solved(cell.source))
            names |= {n for s in slices.parsed(cells[-1]) for n in s.sets}
        if "check" in cell.tags:
            assert list(grader_preview.sentences(cells, names, {})) == []


def test_a_student_s_own_grader_says_that_held_out_checks_are_left(fork_server):
    """A release holds no held-out checks."""
    released = parse(release.stripped(LAB), LAB.name)
    solution = {name: Answer(text) for name, text in LAB.solution.items()}
    results = score.score(released, solution, fork_server)
    assert [r.status for r in results] == ["visible checks passed", *["passed"] * 3]
    assert results[0].message == "The held-out ones run when you are graded."
    wrong = solution | {"double": Answer("def double(x):\n    return x * x")}
    assert score.score(released, wrong, fork_server)[0].status == "failed"


@pytest.mark.slow
def test_an_answer_s_cells_are_read_in_seconds_whatever_they_hold():
    for text in (
        "x = 1\n" * 200_000,
        "\n".join(f"x{i} = x{i - 1} + 1" for i in range(1, 15_000)),
        "if x: pass\n" + "elif x: pass\n" * 3000,
        "(" * 5000,
        "x = " + "-" * 50_000 + "1",
    ):
        began = time.process_time()
        answers.find(LAB, [StudentCell("code", text), StudentCell("code", ANSWER)])
        assert time.process_time() - began < 15


def test_an_answer_below_too_many_statements_gets_its_reason(fork_server):
    for many in (["x = 1"] * slices.MOST, ["x = 1\n" * slices.MOST]):
        result = graded(fork_server, cells_of([*many, GOOD, None]))
        assert result.status == "error" and "more than 10,000 statements" in result.message
