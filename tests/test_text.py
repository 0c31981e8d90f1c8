"""Names that an answer uses, read from its text."""

import pytest

from grading.worker.text import names_used

SETUP = "import torch\nimport numpy as np\nfrom common import views, ledger\n"


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
        ("V = namedtuple('V', 'of stride')\ndef f(x):\n    return V(1, 2).of", set(), {"of"}),
        ("def f(x):\n    v = x()\n    v.of = 1\n    return v.of", set(), {"of"}),
        ("def f(x):\n    return views.of(x)", {"common", "views", "of"}, {"ledger"}),
    ],
)
def test_names_used_are_those_that_a_function_does_not_set_itself(cell, used, unused):
    found = names_used((SETUP, cell), "f")
    assert used <= found
    assert not unused & found
