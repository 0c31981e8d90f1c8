"""Names that an answer uses, read from its text: in the grader, and by the same rules here."""

import pytest

from common.checks import static_names
from common.checks.static_names import names_used
from nogpu.kernels import linecache_text

SETUP = "import torch, numpy as np\nfrom common.figures import views; from common import ledger\n"


@pytest.mark.parametrize(
    "cell, used, unused",
    [
        ("def f(x):\n    return x.chunk(2)", {"chunk"}, {"torch", "x", "f"}),
        ("def f(x):\n    return torch.empty(x).stride()", {"torch", "empty", "stride"}, {"x"}),
        ("def f(x):\n    chunk = x[0]\n    return [chunk for chunk in x]", set(), {"chunk"}),
        ("def f(chunk, *stride):\n    return chunk", set(), {"chunk", "stride"}),
        (
            "def g(x):\n    return np.zeros(x).strides\ndef f(x):\n    return g(x)",
            {"strides"},
            {"g"},
        ),
        ("cut = torch.chunk\ndef f(x):\n    return cut(x, 2)", {"chunk", "torch"}, {"cut"}),
        ("def f(x):\n    from torch import chunk as c\n    return c(x)", {"chunk"}, {"c"}),
        ("def f(x):\n    return getattr(x, 'str' + 'ide')()", {"getattr"}, {"stride"}),
        (
            "def f(x):\n    match x:\n        case np.ndarray(strides=s):\n            return s",
            {"strides"},
            {"s"},
        ),
        ("class V:\n    stride: int = 1\ndef f(x):\n    return V().stride", set(), {"stride"}),
        (
            "from collections import namedtuple\nV = namedtuple('V', 'of stride')\n"
            "def f(x):\n    v = V(1, 2)\n    return v.of",
            {"namedtuple"},
            {"of"},
        ),
        ("def f(x):\n    v = x()\n    v.of = 1\n    return v.of", {"of"}, set()),
        ("from numpy import *\ndef f(x):\n    return empty(x)", {"numpy", "empty"}, {"x"}),
        ("def f(x):\n    return views.of(x)", {"common", "views", "of"}, {"ledger"}),
    ],
)
def test_names_used_are_those_that_a_function_does_not_set_itself(cell, used, unused):
    found = names_used((SETUP, cell), "f")
    assert used <= found
    assert not unused & found


OWN = "class Own:\n    stride = 1\n"
WAYS = {  # a cell that defines f: what it uses of static_names.INSIDE
    "def f(x): return x.__reduce__()[1][0]": {"__reduce__"},
    "import pkgutil\ndef f(x): return pkgutil.iter_modules()": {"pkgutil"},
    "def f(x):\n    import array as a\n    return a.array('b')": {"import array"},
    "import string\ndef f(x): return string.Formatter()": {"Formatter"},
    "def f(x): return ('{0.str' + 'ide}').format(x)": {"str.format"},
    "def f(x): return '{0.stride}'.format(x)": {"str.format"},
    "def f(x): return '{} {:.3f}'.format(x, x)": set(),
    "run = compile\ndef f(x): return run(x, '', 'eval')": {"compile()"},
    "import re\ndef f(x): return re.compile(x).sub('', x)": set(),
    "import torch\ndef f(x): return torch._utils.x": {"private _utils"},
    "import torch\ndef f(x): return torch._foreach_mul(x, 2)": set(),
    "def f(x): return x._replace(y=1)": set(),
    "class C:\n    __array_interface__ = {}\ndef f(x): return C()": {"private __array_interface__"},
    "class C:\n    def __init__(self): ...\ndef f(x): return C.__name__": set(),
    "def f(x): return type('C', (), {'__array_interface__': x})": {"private __array_interface__"},
    "def f(x): return __loader__.load_module('gc')": {"private __loader__"},
    "def f(x): return 1\ndef g():\n    import sys\n    sys._getframe()\ng()": {"_getframe"},
    "def f(x): return 1\ndef g():\n    import sys\n    sys._getframe()": set(),
    "def f(x): return 1\nprint(dir())": set(),  # it is executed, and f does not see it
}


@pytest.mark.parametrize("cell, found", WAYS.items(), ids=WAYS)
def test_ways_around_a_name_are_seen_in_the_grader_and_in_a_notebook(cell, found):
    assert static_names.chosen(names_used((cell,), "f"), static_names.INSIDE) == found
    linecache_text.remember("<a cell>", cell)
    notebook: dict = {"__name__": "__main__"}
    exec(compile(cell, "<a cell>", "exec"), notebook)
    assert static_names.looks_inside(notebook["f"]) == sorted(found)


@pytest.mark.parametrize(
    "cell, is_seen",
    [
        (f"{OWN}def f(x):\n    o = Own()\n    return o.stride", False),
        (f"{OWN}def f(x):\n    o = Own()\n    o = x\n    return o.stride", True),
        (f"{OWN}def f(o):\n    return o.stride, Own", True),
        (f"{OWN}def f(x):\n    o = Own()\n    return [o.stride for o in x]", True),
        (f"import torch\n{OWN}Own = torch.empty\ndef f(x):\n    return Own(x).stride", True),
        ("class Own(Tensor):\n    pass\ndef f(x):\n    return Own(x).stride", True),
        (f"{OWN}    def __new__(cls, x): return x\ndef f(x):\n    return Own(x).stride", True),
        (f"@wrapped\n{OWN}def f(x):\n    return Own(x).stride", True),
        (
            f"from dataclasses import dataclass\n@dataclass\n{OWN}def f(x): return Own().stride",
            False,
        ),
        (f"{OWN}def f(x, Own=min):\n    return Own(x).stride", True),
        (
            f"{OWN}def g():\n    global Own\n    Own = min\ndef f(x):\n    return Own(x).stride",
            True,
        ),
        ("def namedtuple(*x): ...\nO = namedtuple('stride')\ndef f(x): return O().stride", True),
    ],
)
def test_an_attribute_is_left_out_only_where_its_object_is_seen_to_be_of_a_class_of_the_cells(
    cell, is_seen
):
    assert ("stride" in names_used((cell,), "f")) == is_seen


def test_a_notebook_follows_what_its_other_cells_define():
    cells = [
        "import torch\ncut = torch.chunk\nimport pkgutil as p",
        "def helper(x): return x.stride()",
        "def f(x): return cut(helper(x)), p",
    ]
    notebook: dict = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        linecache_text.remember(f"<cell {number}>", cell)
        exec(compile(cell, f"<cell {number}>", "exec"), notebook)
    found = static_names.names_in(
        notebook["f"], {"torch", "chunk", "stride", "pkgutil", static_names.IMPORT}
    )
    assert found == ["chunk", "pkgutil", "stride", "torch"]
