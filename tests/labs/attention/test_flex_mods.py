"""Mods of lab 06 as texts: they compute what the Python functions compute, and their slopes."""

import math
import operator
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from common.hardware import device

device.prepare_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from common.lessons.attention import expected as oracle  # noqa: E402
from common.lessons.attention import flex_mods  # noqa: E402
from nogpu import tiles  # noqa: E402


@triton.jit
def masked(out, b, h, MASK: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    seen = tl.where(MASK(b, h, i, j), tl.full((N, N), 1, tl.int32), 0)
    tl.store(out + i * N + j, seen)


@triton.jit
def scored(x, out, slopes, b, h, SCORE: tl.constexpr, SLOPE: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    score = tl.load(x + i * N + j)
    tl.store(out + i * N + j, SCORE(score, b, h, i, j))
    tl.store(slopes + i * N + j, tl.zeros((N, N), tl.float32) + SLOPE(score, b, h, i, j))


def seen_by(mod, b=0, h=0, n=32):
    out = torch.zeros(n, n, dtype=torch.int32)
    tiles.count(masked, (1,), out, b, h, MASK=flex_mods.text(mod), N=n)
    return out.bool()


def changed_by(mod, x, b=0, h=1):
    out, slopes = torch.zeros_like(x), torch.zeros_like(x)
    texts = {"SCORE": flex_mods.text(mod), "SLOPE": flex_mods.slope_text(mod)}
    tiles.count(scored, (1,), x, out, slopes, b, h, **texts, N=len(x))
    return out, slopes


def places(n):
    return torch.arange(n)[:, None], torch.arange(n)[None, :]


@pytest.mark.parametrize("name", flex_mods.MASKS)
def test_a_mask_is_the_same_as_a_text(name):
    for b, h in ((0, 0), (1, 2)):
        want = flex_mods.MASKS[name](torch.tensor(b), torch.tensor(h), *places(32)).expand(32, 32)
        assert torch.equal(seen_by(flex_mods.MASKS[name], b, h), want)


@pytest.mark.parametrize("name", oracle.SCORES)
def test_a_change_of_scores_and_its_slope_are_the_same_as_texts(name):
    change, x = oracle.SCORES[name], 8 * torch.randn(32, 32)
    out, slopes = changed_by(change, x)
    exact = x.double().requires_grad_()
    want = change(exact, torch.tensor(0), torch.tensor(1), *places(32))
    torch.testing.assert_close(out, want.float(), rtol=1e-5, atol=1e-5)
    (slope,) = torch.autograd.grad(want.masked_fill(want == -math.inf, 0).sum(), exact)
    torch.testing.assert_close(slopes, slope.float(), rtol=1e-5, atol=1e-5)


SMOOTH: dict[str, Any] = {
    "neg": lambda x: -x,
    "negative": torch.negative,
    "pos": lambda x: +x,
    "float": lambda x: x.float(),
    "abs": abs,
    "sign": lambda x: x * torch.sign(x),
    "exp": torch.exp,
    "exp2": lambda x: torch.exp2(x),
    "log": lambda x: torch.log(abs(x) + 1),
    "log2": lambda x: (abs(x) + 1).log2(),
    "sqrt": lambda x: (abs(x) + 1).sqrt(),
    "sin": torch.sin,
    "cos": torch.cos,
    "square": torch.square,
    "reciprocal": lambda x: torch.reciprocal(x * x + 1),
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "cosh": torch.cosh,
    "sinh": torch.sinh,
    "maximum": lambda x: torch.maximum(x, -2 * x),
    "minimum": lambda x: torch.minimum(x, 0.5 * x),
    "clamp": lambda x: torch.clamp(x, -0.5, 0.75),
    "clamp by name": lambda x: x.clamp(max=0.5),
    "mod": lambda x: x % 0.7,
    "remainder": lambda x: torch.remainder(x, 0.7),
    "pow": lambda x: x**3,
    "pow of a number": lambda x: 2.5 ** (x / 2),
    "a root": lambda x: (x * x + 1) ** 0.5,
    "truediv": lambda x: 1 / (x * x + 1),
    "div": lambda x: x.div(3),
    "divide": lambda x: torch.divide(x, x * x + 1),
    "true_divide": lambda x: torch.true_divide(x, 2),
    "multiply": lambda x: torch.multiply(x, x),
    "subtract": lambda x: x.subtract(1),
    "add": lambda x: torch.add(x, x),
    "mul": lambda x: x.mul(x).mul(0.1),
    "sub": lambda x: 1 - x,
    "where": lambda x: torch.where(x > 0, x, 3 * x),
    "a tensor of one number": lambda x: torch.maximum(x, torch.tensor(0.25)),
    "sums": lambda x: sum(x * n for n in range(3)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_each_operation_and_its_slope(name):
    x = torch.randn(16, 16)
    out, slopes = changed_by(lambda score, b, h, i, j: SMOOTH[name](score), x)
    exact = x.double().requires_grad_()
    want = SMOOTH[name](exact)
    torch.testing.assert_close(out, want.float(), rtol=1e-4, atol=1e-5, check_dtype=False)
    (slope,) = torch.autograd.grad(want.double().sum(), exact)
    torch.testing.assert_close(slopes, slope.float(), rtol=1e-4, atol=1e-5)


BOTH = {
    **{name: getattr(operator, name) for name in ("ge", "gt", "le", "lt", "eq", "ne")},
    "and": lambda i, j: (i > 3) & (j > 3),
    "or": lambda i, j: (i > 3) | (j > 3),
    "xor": lambda i, j: (i > 3) ^ (j > 3),
    "invert": lambda i, j: ~(i > j),
    "logical_and": lambda i, j: torch.logical_and(i > 3, j > 3),
    "logical_or": lambda i, j: torch.logical_or(i > 3, j > 3),
    "logical_xor": lambda i, j: torch.logical_xor(i > 3, j > 3),
    "logical_not": lambda i, j: torch.logical_not(i > j),
    "bitwise_and": lambda i, j: torch.bitwise_and(i > 3, j > 3),
    "bitwise_or": lambda i, j: torch.bitwise_or(i > 3, j > 3),
    "bitwise_not": lambda i, j: torch.bitwise_not(i > j),
    "the remainder of a negative number": lambda i, j: (i - j) % 5 == 2,
    "floordiv": lambda i, j: (i - j) // 4 == -2,
    "methods": lambda i, j: i.ge(j).logical_and(i.sub(j).lt(4)),
}


@pytest.mark.parametrize("name", BOTH)
def test_each_comparison(name):
    want = BOTH[name](*places(32)).expand(32, 32)
    assert torch.equal(seen_by(lambda b, h, i, j: BOTH[name](i, j)), want)


def test_a_kernel_with_all_operations_compiles():
    def score(x, b, h, i, j):
        for number, make in enumerate(SMOOTH.values()):
            x = x + make(x) * (1 + number)
        return x

    def mask(b, h, i, j):
        seen = i >= j
        for make in BOTH.values():
            seen = seen ^ make(i, j)
        return seen

    x, out = torch.randn(16, 16), torch.zeros(16, 16, dtype=torch.int32)
    texts = {"SCORE": flex_mods.text(score), "SLOPE": flex_mods.slope_text(score)}
    made = tiles.compiled(scored, x, x, x, 0, 1, **texts, N=16)
    assert "ex2.approx" in made.ptx
    text = flex_mods.text(mask)
    assert "setp" in tiles.compiled(masked, out, 0, 1, MASK=text, N=16).ptx
    tiles.count(masked, (1,), out, 0, 1, MASK=text, N=16)
    want = mask(0, 1, *places(16)).expand(16, 16)
    assert torch.equal(out.bool(), want)


def test_each_operation_is_tried_and_has_a_slope_or_is_flat():
    tried = {*SMOOTH, *BOTH}
    assert set(flex_mods.OPERATIONS) <= tried, set(flex_mods.OPERATIONS) - tried
    assert flex_mods.SLOPES.keys() | flex_mods.FLAT == flex_mods.OPERATIONS.keys()
    assert not flex_mods.SLOPES.keys() & flex_mods.FLAT


def by_if(score, b, h, i, j):
    return score if h > 1 else -score


@pytest.mark.parametrize(
    "mod, words",
    [
        (by_if, "by_if cannot be traced, because it asks for a value"),
        (lambda s, b, h, i, j: s * (i > 1 and j > 1), "Use torch.where in place of if, &"),
        (lambda s, b, h, i, j: s.cumsum(0), "calls cumsum; a mod can be made of abs, add"),
        (lambda s, b, h, i, j: s.softmax(0), "calls softmax"),
        (lambda s, b, h, i, j: s + torch.arange(3)[0] * i.shape[0], "calls getattr"),
        (lambda s, b, h, i, j: torch.add(s, i, alpha=2), "calls add with alpha="),
        (lambda s, b, h, i, j: torch.div(s, 2, rounding_mode="floor"), "with rounding_mode="),
        (lambda s, b, h, i, j: s * torch.tensor([1.0, 2.0]), "a mod has numbers alone"),
        (lambda s, b, h, i, j: torch.where(s > 1), "calls where with 1 values; it takes 3 here"),
        (lambda s, b, h, i, j: s**i, "has a power"),
        (lambda s, b, h, i, j: s**2.5, "has a power"),
        (lambda s, b, h, i, j: (s, s), "a mod has numbers alone"),
        (lambda s, b, h, i, j: "text", "a mod has numbers alone"),
    ],
)
def test_what_no_kernel_can_have_is_refused_in_a_sentence(mod, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        flex_mods.text(mod)


def test_a_mod_that_is_not_written_says_so():
    def nothing(score, b, h, i, j):
        raise NotImplementedError("not written yet")

    with pytest.raises(NotImplementedError, match="not written yet"):
        flex_mods.text(nothing)


def test_a_text_is_read_as_it_is_written():
    assert flex_mods.text(lambda b, h, i, j: i >= j) == (
        "@triton.jit\ndef traced(b, h, i, j):\n    v4 = i >= j\n    return v4\n"
    )
    slope = flex_mods.slope_text(lambda score, b, h, i, j: score * 3)
    assert slope.endswith("    v5 = score * (3)\n    dv5 = 1.0 * (3)\n    return dv5\n")
    assert flex_mods.slope_text(lambda score, b, h, i, j: i - j).endswith("return 0.0\n")


def by_flex_attention(problem):
    """(o, lse) by PyTorch's FlexAttention, in float64 on the CPU."""
    case = problem.case
    shape = case.batch, case.heads, case.queries, case.keys
    with warnings.catch_warnings(action="ignore"):  # that it isn't compiled
        return flex_attention(
            *(x.double() for x in (problem.q, problem.k, problem.v)),
            score_mod=oracle.SCORES[case.score],
            block_mask=create_block_mask(oracle.MASKS[case.mask], *shape, device="cpu"),
            scale=case.d**-0.5,
            enable_gqa=case.group > 1,
            return_lse=True,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        case
        for case in (*oracle.FLEX, *oracle.HARD, *oracle.yours(lambda name, slope=False: name))
        if not case.large
    ],
    ids=str,
)
def test_the_oracle_agrees_with_flex_attention(case):
    problem = oracle.drawn(np.random.default_rng(0), case)
    o, lse = oracle.exact(problem)
    theirs, their_lse = by_flex_attention(problem)
    torch.testing.assert_close(o, theirs, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(lse, their_lse, rtol=1e-6, atol=1e-9)


def test_mods_that_are_not_written_are_left_out_of_later_exercises():
    def not_written(name, slope=False):
        raise NotImplementedError(name)

    assert oracle.yours(not_written) == []
    given = oracle.yours(lambda name, slope=False: name + "'" * slope)
    assert given[0].mods["MASK"] == "sliding_window" and given[0].slope == "soft_cap_slope"
    assert given[1].slope == "alibi'" and given[2].mods["SCORE"] == "soft_cap"
