"""Functions as a kernel's constants; and how large the blocks of values get."""

import json

import pytest
import torch

from common.hardware import device

device.prepare_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from nogpu import tiles  # noqa: E402

STEP = tl.constexpr(3.0)
TEXT = """@triton.jit
def half(x):
    return x / 2

@triton.jit
def less(x):
    return half(x) - 1
"""


@triton.jit
def stepped(x):
    return x + STEP


@triton.jit
def mapped(x, out, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, F(tl.load(x + i)))


@triton.jit
def mapped_twice(x, out, F: tl.constexpr, G: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    y = F(tl.load(x + i))
    if N > 4:
        y = G(y)
    tl.store(out + i, y)


@triton.jit
def into_itself(x, F: tl.constexpr):
    F(x, F)


@triton.jit
def calls_an_array(x):
    x(1)


@pytest.mark.parametrize(
    "function, want",
    [
        (stepped, lambda x: x + 3),
        (TEXT, lambda x: x / 2 - 1),
        (tiles.compile_source(TEXT, "half"), lambda x: x / 2),
    ],
    ids=["a @triton.jit function", "a text, whose last function it is", "a checked function"],
)
def test_a_constant_may_be_a_function(function, want):
    x, out = torch.arange(8.0), torch.zeros(8)
    report = tiles.count(mapped, (1,), x, out, F=function, N=8)
    assert torch.equal(out, want(x)) and report.loads.elements == 8


def test_two_functions_keep_their_places():
    x, out = torch.arange(8.0), torch.zeros(8)
    tiles.count(mapped_twice, (1,), x, out, stepped, TEXT, 8)
    assert torch.equal(out, (x + 3) / 2 - 1)
    tiles.count(mapped_twice, (1,), x, out, TEXT, stepped, N=8)
    assert torch.equal(out, x / 2 - 1 + 3)
    tiles.count(mapped_twice, (1,), x, out, F=TEXT, G=TEXT, N=8)
    assert torch.equal(out, (x / 2 - 1) / 2 - 1)


def test_a_function_from_text_is_compiled_with_its_kernel():
    report = tiles.count(mapped, (1,), torch.zeros(64), torch.zeros(64), F=TEXT, N=64)
    assert report.compiled.loads.bytes >= 256 and report.compiled.stores.bytes == 256


@pytest.mark.parametrize(
    "function, words",
    [
        ("@triton.jit\nclass A:\n    pass", "a function given as text defines none"),
        ("@triton.jit", "this is not Python"),
        ("@triton.jit\ndef f(x):\n    return open(x)", "f uses open, which is not defined"),
        ("@triton.jit\ndef f(x):\n    return x.__class__", "a kernel cannot reach .__class__"),
        ("@triton.jit\ndef f(x):\n    return f(x)", "calls itself"),
        ("@triton.jit\ndef f(x, y):\n    return x", "missing 1 required positional argument"),
        ("tanh", "'str' object is not callable"),
        (3, "'int' object is not callable"),
        (mapped, "missing 3 required positional arguments"),
    ],
)
def test_what_is_no_function_of_the_kernel_language_is_refused(function, words):
    with pytest.raises(tiles.KernelError, match=words):
        tiles.count(mapped, (1,), torch.zeros(8), torch.zeros(8), F=function, N=8)


def test_a_function_of_python_is_no_constant():
    for function in (len, lambda x: x, tl.exp):
        with pytest.raises(ValueError, match="F is <"):
            tiles.count(mapped, (1,), torch.zeros(8), torch.zeros(8), F=function, N=8)


def test_a_function_is_given_as_a_constant_only():
    with pytest.raises(tiles.KernelError, match="`x` cannot be called; .* are tl.constexpr can"):
        tiles.count(calls_an_array, (1,), torch.zeros(8))
    with pytest.raises(tiles.KernelError, match="x is a "):
        tiles.count(mapped, (1,), stepped, torch.zeros(8), F=stepped, N=8)


def test_a_kernel_that_calls_itself_by_a_constant_ends():
    with pytest.raises(tiles.KernelError, match="RecursionError"):
        tiles.count(into_itself, (1,), torch.zeros(8), F=into_itself)


# --- the largest block


@triton.jit
def outer(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    y = tl.load(x + i)
    tl.store(out + i, tl.sum(y[:, None] * y[None, :], 1))


@triton.jit
def joined(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.sum(tl.join(tl.load(x + i), tl.load(x + i)), 1))


@triton.jit
def kept(x, out, N: tl.constexpr):
    held = tl.zeros((N, 64), tl.bfloat16)
    tl.store(out + tl.arange(0, N), tl.load(x + tl.arange(0, N)) + tl.sum(held, 1))


@pytest.mark.parametrize(
    "kernel, want", [(outer, 256), (joined, 32), (kept, 1024)], ids=["outer", "joined", "kept"]
)
def test_the_largest_block_of_values_is_reported(kernel, want):
    report = tiles.count(kernel, (2,), torch.ones(16), torch.zeros(16), N=16)
    assert report.largest_tile == want
    again = tiles.Report.from_dict(json.loads(json.dumps(report.as_dict())))
    assert again.largest_tile == want
