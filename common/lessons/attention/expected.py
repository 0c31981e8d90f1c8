"""Expected values of lab 06, and the values that well-known mistakes give.

Attention is computed in float64 with all its scores, and gradients come from float64 autograd. The
slopes of score_mods are central differences. What a chain of operations moves is observed while
PyTorch executes it. Loads and stores follow from which tiles hold a visible pair.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from common.checks import agree, expect, static_names
from common.checks.launches import plain
from common.figures import memory_drawings
from common.hardware.operation_bytes import bytes_moved
from common.lessons.attention import flex_mods as mods
from nogpu.tiles import Report

F32, BF16 = torch.float32, torch.bfloat16
NEAR = {F32: 1e-4, BF16: 2e-2}  # allowed, absolute and relative, for values of size 1
NAME = {F32: "fp32", BF16: "bf16"}
INF = float("inf")
Mistakes = dict[str, Any]  # {sentence: the value that this mistake gives}
Mod = Callable[..., Any]
Part = tuple[np.ndarray, np.ndarray, np.ndarray]


# --- masks and changes of scores; positions are whole numbers or tensors of them

MASKS = dict(mods.MASKS)
SCORES: dict[str, Mod] = {
    "unchanged": lambda score, b, h, i, j: score,
    "soft-capped": lambda score, b, h, i, j: 3.0 * torch.tanh(score / 3.0),
    "ALiBi": lambda score, b, h, i, j: score - torch.exp2(-(h + 1.0)) * (i - j),
    "scaled by batch": lambda score, b, h, i, j: score * (1.0 + b),
    "a bent line": lambda score, b, h, i, j: torch.where(score < 0, 0.3 * score, 2 * score),
    "-inf for later keys and query 5": lambda score, b, h, i, j: torch.where(
        (j > i) | (i == 5), -INF, score
    ),
}
WINDOW, PREFIX, STARTS, CAP = 6, 5, (0, 7, 12), 20.0  # as in the set-up of lab 06
YOUR_MASKS: dict[str, Mod] = {
    "your sliding_window": lambda b, h, i, j: (j <= i) & (j > i - WINDOW),
    "your prefix": lambda b, h, i, j: (j <= i) | (j < PREFIX),
    "your documents": lambda b, h, i, j: (
        (j <= i) & (torch.stack([i + j * 0 >= start for start in STARTS]).sum(0)
                    == torch.stack([j + i * 0 >= start for start in STARTS]).sum(0))
    ),
}  # fmt: skip
YOUR_SCORES: dict[str, Mod] = {
    "by your alibi": SCORES["ALiBi"],
    "by your soft_cap": lambda score, b, h, i, j: CAP * torch.tanh(score / CAP),
}
MASKS |= YOUR_MASKS
SCORES |= YOUR_SCORES


def positions(queries: int, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A column of the queries' positions and a row of the keys'."""
    return torch.arange(queries)[:, None], torch.arange(keys)[None, :]


def window(queries: int, width: int) -> torch.Tensor:
    """Which keys a query sees in a sliding window, one by one."""
    seen = torch.zeros(queries, queries, dtype=torch.bool)
    for i in range(queries):
        seen[i, max(0, i + 1 - width) : i + 1] = True
    return seen


def prefix(queries: int, length: int) -> torch.Tensor:
    """Which keys a query sees: those up to itself, and the prefix."""
    seen = torch.zeros(queries, queries, dtype=torch.bool)
    for i in range(queries):
        seen[i, : max(i + 1, length)] = True
    return seen


def documents(queries: int, starts: tuple[int, ...]) -> torch.Tensor:
    """Which keys a query sees: those of its own document up to itself."""
    seen = torch.zeros(queries, queries, dtype=torch.bool)
    for i in range(queries):
        seen[i, max(start for start in starts if start <= i) : i + 1] = True
    return seen


def masks_of(queries: int, width: int, length: int, starts: tuple[int, ...]) -> dict[str, Any]:
    """{name of a mask_mod: (what is visible, what mistakes give)}."""
    i, j = positions(queries, queries)
    causal = i >= j
    of_window = {
        "That is one key too many: a window of `WINDOW` keys includes the query's own.": window(
            queries, width + 1
        ),
        "That is one key too few: the query's own position counts.": window(queries, width - 1),
        "A query sees no key after itself.": abs(i - j) < width,
    }
    of_prefix = {
        "Each query also sees the keys up to itself.": (j < length).expand(queries, queries),
        "Prefix or causal: one of the two is enough.": causal & (j < length),
        "The prefix is PREFIX keys long: their numbers end at PREFIX - 1.": causal | (j <= length),
        "The prefix is of keys, not of queries.": causal | (i < length),
    }
    same = documents(queries, starts) | documents(queries, starts).T
    of_documents = {
        "A query sees no key after itself, in its own document either.": same,
        "A document begins AT its start: i >= start.": documents(
            queries, (0, *(start + 1 for start in starts))
        ),
        "Hide what is in another document.": causal,
    }
    return {
        "sliding_window": (window(queries, width), of_window),
        "prefix": (prefix(queries, length), of_prefix),
        "documents": (documents(queries, starts), of_documents),
    }


def slope(mod: Mod, score: torch.Tensor, step: float = 1e-5) -> torch.Tensor:
    """The derivative of a score_mod by its score, as a central difference."""
    return (mod(score + step) - mod(score - step)) / (2 * step)


def soft_capped(score: torch.Tensor, cap: float) -> tuple[torch.Tensor, Mistakes]:
    """Soft-capped scores, and what mistakes give."""
    want = cap * torch.tanh(score / cap)
    return want, {
        "Multiply by CAP again: the scores should end near CAP, not near 1.": want / cap,
        "Soft-capping divides by CAP inside of tanh.": cap * torch.tanh(score),
        "That is a hard cap: its slope is 0 beyond CAP.": score.clamp(-cap, cap),
    }


def soft_cap_slope(score: torch.Tensor, cap: float) -> tuple[torch.Tensor, Mistakes]:
    """Its slope by central differences, and what mistakes give."""
    want = slope(lambda x: soft_capped(x, cap)[0], score)
    return want, {
        "That is the capped score itself; wanted is its derivative.": soft_capped(score, cap)[0],
        "By the chain rule, CAP and 1 / CAP cancel.": want * cap,
        "By the chain rule, CAP in front cancels 1 / CAP inside.": want / cap,
        "The derivative of tanh(x) is 1 - tanh(x)².": 1 - torch.tanh(score / cap),
        "tanh takes score / CAP in the derivative, too.": 1 - torch.tanh(score) ** 2,
    }


def changed(
    score: torch.Tensor, cap: float
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, Mistakes]]:
    """(name of a score_mod or slope, head, what it gives, what mistakes give)."""
    for h in torch.arange(3):
        yield "alibi", h, *alibi(score, int(h), len(score))
    yield "soft_cap", h, *soft_capped(score, cap)
    yield "soft_cap_slope", h, *soft_cap_slope(score, cap)


def alibi(score: torch.Tensor, h: int, n: int) -> tuple[torch.Tensor, Mistakes]:
    """Scores with ALiBi, and what mistakes give. score: (n, n)."""
    i, j = positions(n, n)
    far, slope = (i - j).double(), 0.5 ** (h + 1)
    return score - slope * far, {
        "That rewards distance: a key that is far away should lose.": score + slope * far,
        "The slope depends on the head: 2^-(h + 1).": score - 0.5 * far,
        "Head 0 has the slope 1/2: 2^-(h + 1).": score - 2 * slope * far,
    }


# --- bytes


def attention_bytes(
    n: int, d: int, itemsize: int, block_q: int
) -> tuple[tuple[int, int], Mistakes]:
    """(unfused, fused) bytes of one head, and what mistakes give."""
    dtype = {4: F32, 2: BF16}[itemsize]
    q, k, v = (torch.zeros(n, d, dtype=dtype) for _ in range(3))
    scores = torch.zeros(n, n, dtype=dtype)
    unfused = (
        bytes_moved(torch.mm, q, k.T)
        + bytes_moved(lambda x: torch.softmax(x, 1), scores)
        + bytes_moved(torch.mm, scores, v)
    )
    rows = [min(block_q, n - start) for start in range(0, n, block_q)]
    moved = sum((2 * row + 2 * n) * d * itemsize + 4 * row for row in rows)
    once = (4 * n * d) * itemsize + 4 * n
    return (unfused, moved), {
        "The log-sum-exp is stored in fp32: 4 bytes per query, whatever itemsize is.": (
            unfused, moved + (itemsize - 4) * n,
        ),
        "The log-sum-exp is stored, too: one number per query.": (unfused, moved - 4 * n),
        "Each block of queries loads all keys and values again.": (unfused, once),
        "Count bytes, not elements.": (
            unfused // itemsize, (moved - 4 * n) // itemsize + n,
        ),
        "Softmax reads the scores and writes the weights: N² each.": (
            unfused - n * n * itemsize, moved,
        ),
        "The last block of queries may not be full, but it exists: round up.": (
            unfused, moved - 2 * n * d * itemsize * (n % block_q > 0),
        ),
    }  # fmt: skip


# --- merge


def part_of(scores: np.ndarray, values: np.ndarray) -> Part:
    """(m, s, o) of queries over some keys: o is the sum of e^(score - m) times the values."""
    m = scores.max(1, initial=-INF)
    power = np.exp(scores - np.where(m == -INF, 0.0, m)[:, None])
    return m, power.sum(1), power @ values


def parts(rng: np.random.Generator) -> Iterator[tuple[str, list[Part], tuple[Part, Part]]]:
    """(what is special, three parts of some keys, the part of the first two and of all)."""
    kinds: dict[str, Any] = {
        "around 0": lambda x: x,
        "that rise by 800": lambda x: x + np.linspace(0, 800, x.shape[1]),
        "that fall by 800": lambda x: x - np.linspace(0, 800, x.shape[1]),
        "around -2,000": lambda x: x - 2000,
        "whose first keys are all hidden": lambda x: np.where(np.arange(x.shape[1]) < 8, -INF, x),
        "whose last keys are all hidden": lambda x: np.where(np.arange(x.shape[1]) > 7, -INF, x),
        "of which row 1 sees nothing": lambda x: np.where(np.arange(3)[:, None] == 1, -INF, x),
    }
    for title, change in kinds.items():
        scores, values = change(rng.standard_normal((3, 12))), rng.standard_normal((12, 4))
        cuts = [(0, 4), (4, 8), (8, 12)]
        pieces = [part_of(scores[:, a:b], values[a:b]) for a, b in cuts]
        yield title, pieces, (part_of(scores[:, :8], values[:8]), part_of(scores, values))


def copies(*pieces: Part) -> list[list[np.ndarray]]:
    """Copies of parts."""
    return [[x.copy() for x in part] for part in pieces]


def expect_unchanged(pieces: Any, before: list[list[np.ndarray]]) -> None:
    """Raise AssertionError if a part is not what it was."""
    same = all(
        np.array_equal(x, y, equal_nan=True)
        for part, kept in zip(pieces, before, strict=True)
        for x, y in zip(part, kept, strict=True)
    )
    expect(same, "merge changes its arguments: another part may need them again.")


def merge_mistakes(left: Part, right: Part) -> dict[str, Part]:
    """What mistakes give for two parts."""
    (m, s, o), (n, t, u) = left, right
    top = np.maximum(m, n)
    safe = np.where(top == -INF, 0.0, top)
    with np.errstate(all="ignore"):
        a, b = np.exp(m - safe), np.exp(n - safe)
        c, d = np.exp(m - top), np.exp(n - top)
        total, both = a * s + b * t, a[:, None] * o + b[:, None] * u
        means = (a * s)[:, None] * o + (b * t)[:, None] * u
        some = np.where(total > 0, total, 1.0)[:, None]
        return {
            "-inf - (-inf) is NaN: both parts may be empty.": (
                top, c * s + d * t, c[:, None] * o + d[:, None] * u,
            ),
            "o is a sum under the old maximum, too: rescale it like s.": (top, total, o + u),
            "s was not rescaled: multiply it by e^(old - new).": (top, s + t, both),
            "Neither sum was rescaled: multiply by e^(old - new).": (top, s + t, o + u),
            "o stays a sum; it is divided by s once, at the very end.": (
                top, total, both / total[:, None],
            ),
            "o is a sum, not a mean: do not multiply it by s, nor divide it by s.": (
                top, total, means / some,
            ),
            "The new maximum is the larger one.": (np.minimum(m, n), total, both),
        }  # fmt: skip


def agree_part(got: Any, want: Part, case: str, mistakes: dict[str, Part] | None = None) -> None:
    """Compare (m, s, o)."""
    expect(
        isinstance(got, (tuple, list)) and len(got) == 3,
        f"{case} gave {got!r:.80}, not a tuple (m, s, o).",
    )
    made = tuple(np.asarray(x, dtype=np.float64) for x in got)
    agree(made, want, case, rtol=1e-9, atol=1e-12, mistakes=mistakes)


# --- attention


@dataclass(frozen=True)
class Case:
    """Sizes and kinds of one attention that is computed."""

    queries: int
    keys: int
    d: int = 16
    heads: int = 2
    group: int = 1  # query heads per key head
    batch: int = 1
    block_q: int = 16
    block_k: int = 16
    dtype: torch.dtype = F32
    causal: bool = False  # the last query sees all keys
    mask: str = "everything"
    score: str = "unchanged"
    spread: float = 1.0  # of the scores
    shift: float = 0.0  # of all scores
    texts: tuple[str, str, str] = ("", "", "")  # of MASK, SCORE and SLOPE, if the student's

    def __str__(self) -> str:
        what = f"{self.queries} queries, {self.keys} keys, d = {self.d}, {NAME[self.dtype]}"
        if self.group > 1:
            what += f", {self.group} query heads per key head"
        if self.causal:
            what += ", causal"
        if self.mask != "everything":
            what += f", mask: {self.mask}"
        if self.score != "unchanged":
            what += f", scores {self.score}"
        if self.shift or self.spread > 10:
            what += f", scores of {self.shift:g} ± {self.spread:g}"
        return what

    @property
    def blocks_q(self) -> int:
        return -(-self.queries // self.block_q)

    @property
    def blocks_k(self) -> int:
        return -(-self.keys // self.block_k)

    @property
    def large(self) -> bool:
        """Whether it takes too long to compute what each mistake would give."""
        return self.queries * self.keys > 10_000

    @property
    def sizes(self) -> tuple[int, int, float]:
        """N_Q, N_K and the scale, as kernels take them."""
        return self.queries, self.keys, self.d**-0.5

    @property
    def blocks(self) -> dict[str, int]:
        """The constants that every kernel has."""
        return {"D": self.d, "BLOCK_Q": self.block_q, "BLOCK_K": self.block_k}

    @property
    def mods(self) -> dict[str, Any]:
        """The constants of a kernel with mods."""
        mask, change, _ = self.texts
        return {
            "GROUP": self.group,
            "MASK": mask or mods.text(MASKS[self.mask]),
            "SCORE": change or mods.text(SCORES[self.score]),
        }

    @property
    def slope(self) -> str:
        """The text of the slope of the change of scores."""
        return self.texts[2] or mods.slope_text(SCORES[self.score])


FORWARD = [
    Case(1, 1),
    Case(33, 33, spread=4),
    Case(33, 20, block_q=32),
    Case(40, 24, heads=1, spread=3, shift=-200),
    Case(20, 45, causal=True),
    Case(45, 20, causal=True),  # the first 25 queries see nothing
    Case(40, 40, d=64, heads=1, spread=100, causal=True),
    Case(24, 50, heads=1, spread=3, dtype=BF16, causal=True),
]
LARGE = [
    Case(127, 127, d=128, heads=1, block_q=64, block_k=64, causal=True),
    Case(1025, 1025, heads=1, block_q=256, block_k=256),
]
FLEX = [
    Case(33, 33, mask="causal", batch=2),
    Case(30, 50, mask="everything", score="soft-capped", group=2, spread=4),
    Case(40, 40, mask="a window of 7 keys", heads=4, group=4, spread=4),
    Case(48, 48, mask="a prefix of 5 keys", score="ALiBi", heads=2),
    Case(40, 40, mask="documents from 0, 9 and 20", heads=1, dtype=BF16),
    Case(33, 33, mask="queries from 3 to 11 see nothing", score="scaled by batch", batch=2),
    Case(33, 33, mask="another window in each batch and head", batch=2, heads=2, group=2),
    Case(1, 1, mask="causal"),
    Case(50, 30, mask="a prefix of 5 keys", heads=1, spread=4),
    Case(40, 33, score="-inf for later keys and query 5", heads=1),
]
HARD = [
    Case(40, 40, d=64, heads=8, group=8, mask="a window of 7 keys", block_q=32, block_k=32),
    Case(40, 40, mask="causal", spread=100, heads=1),
    Case(33, 40, mask="everything", heads=1, shift=-200, score="a bent line"),
    Case(64, 64, mask="a window of 7 keys", heads=1, spread=3),
    Case(127, 127, d=128, mask="causal", score="soft-capped", heads=1, block_q=64, block_k=64),
    Case(1025, 1025, mask="a window of 7 keys", heads=1, block_q=256, block_k=256),
]
BACKWARD = [
    Case(20, 20, mask="causal", heads=2),
    Case(20, 37, mask="everything", score="soft-capped", heads=4, group=2, spread=4),
    Case(33, 33, mask="a window of 7 keys", score="a bent line", heads=1, batch=2),
    Case(20, 20, mask="queries from 3 to 11 see nothing", heads=1),
    Case(20, 20, mask="causal", score="ALiBi", heads=2, dtype=BF16),
    Case(24, 24, mask="causal", heads=1, spread=100),
    Case(1, 1, mask="causal", heads=1),
    Case(40, 33, score="-inf for later keys and query 5", heads=1),
    Case(
        33,
        33,
        mask="another window in each batch and head",
        heads=4,
        group=4,
        batch=2,
        block_q=32,
        block_k=32,
    ),
]
SKIPS = [
    Case(64, 64, mask="causal", heads=1),
    Case(64, 64, mask="a window of 7 keys", heads=2, group=2),
    Case(48, 48, mask="documents from 0, 9 and 20", heads=1),
    Case(48, 48, mask="a prefix of 5 keys", heads=1),
]
GROUPS = [
    Case(33, 20, mask="everything", score="soft-capped", heads=8, group=8, d=16),
    Case(20, 33, d=64, mask="causal", score="ALiBi", heads=2),
    Case(127, 127, d=128, mask="causal", heads=1, block_q=64, block_k=64),
    Case(513, 513, mask="a window of 7 keys", heads=1, block_q=256, block_k=256),
]


def yours(traced: Callable[..., str]) -> list[Case]:
    """Cases whose mods are the student's. traced(name): a mod as the text of a Triton function.

    There are none before the mods are written: their own exercise says so.
    """
    try:
        window, prefix, documents, alibi, cap, slope = map(traced, YOURS)
    except NotImplementedError:
        return []
    return [
        Case(40, 40, mask="your sliding_window", score="by your soft_cap", spread=20,
             heads=4, group=2, block_q=32, block_k=32, texts=(window, cap, slope)),
        Case(30, 45, mask="your prefix", score="by your alibi", batch=2,
             block_q=32, block_k=32, texts=(prefix, alibi, traced("alibi", slope=True))),
        Case(33, 33, mask="your documents", score="by your soft_cap", heads=1,
             texts=(documents, cap, traced("soft_cap", slope=True))),
    ]  # fmt: skip


YOURS = ("sliding_window", "prefix", "documents", "alibi", "soft_cap", "soft_cap_slope")


@dataclass
class Problem:
    """The tensors of one case: what is wanted is computed from these. given: the gradient of o.

    Each kernel gets copies: it may write into all arrays of its launch.
    """

    case: Case
    tensors: dict[str, torch.Tensor]

    @property
    def q(self) -> torch.Tensor:
        """A copy; so are k, v and given."""
        return self.tensors["q"].clone()

    @property
    def k(self) -> torch.Tensor:
        return self.tensors["k"].clone()

    @property
    def v(self) -> torch.Tensor:
        return self.tensors["v"].clone()

    @property
    def given(self) -> torch.Tensor:
        return self.tensors["given"].clone()

    def outputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """o and lse before the kernel has run."""
        return torch.full_like(self.q, torch.nan), torch.full(self.q.shape[:-1], torch.nan)

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """dq, in fp32 and 0, dk and dv before the kernel has run."""
        dk, dv = (torch.full_like(x, torch.nan) for x in (self.k, self.v))
        return torch.zeros(self.q.shape), dk, dv

    def saved(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The right lse, and delta, the mean of a row's dp: the sum over d of given times o."""
        o, lse = exact(self)
        return lse.float(), (self.given.double() * o).sum(-1).float()


def drawn(rng: np.random.Generator, case: Case) -> Problem:
    """Random tensors (batch, heads, positions, d) for a case."""
    key_heads = case.heads // case.group

    def normal(heads: int, count: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal((case.batch, heads, count, case.d)))

    q, k, v = (
        normal(case.heads, case.queries), normal(key_heads, case.keys), normal(key_heads, case.keys)
    )  # fmt: skip
    given = normal(case.heads, case.queries)
    q *= case.spread
    if case.shift:
        root = (abs(case.shift) * case.d**0.5) ** 0.5
        q[..., 0], k[..., 0] = root * np.sign(case.shift), root
    tensors = {"q": q, "k": k, "v": v, "given": given}
    return Problem(case, {name: x.to(case.dtype) for name, x in tensors.items()})


def single(problem: Problem) -> list[torch.Tensor]:
    """Copies of q, k and v of the only batch: (heads, positions, d)."""
    return [x[0] for x in (problem.q, problem.k, problem.v)]


def scores_of(problem: Problem, inputs: Any = None, change: Mod | None = None) -> torch.Tensor:
    """Changed scores in float64, -inf where nothing is visible."""
    case = problem.case
    q, k = (x.double() for x in (inputs or (problem.q, problem.k))[:2])
    k = k.repeat_interleave(case.group, 1)
    x = (q @ k.mT) * case.d**-0.5
    x = (change or SCORES[case.score])(x, *_places(case))
    return x.masked_fill(~visible(case), -torch.inf)


def visible(case: Case) -> torch.Tensor:
    """Which pairs are visible: bools (batch, heads, queries, keys)."""
    if case.causal:
        i, j = positions(case.queries, case.keys)
        seen = j <= i + case.keys - case.queries
    else:
        seen = MASKS[case.mask](*_places(case))
    return seen.expand(case.batch, case.heads, case.queries, case.keys)


def _finished(x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse) of scores; a query that sees nothing has 0 and -inf."""
    lse = x.logsumexp(-1)
    safe = lse.masked_fill(lse == -torch.inf, 0.0)
    return (x - safe[..., None]).exp() @ v, lse


def exact(problem: Problem, inputs: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse) in float64."""
    v = (inputs or (0, 0, problem.v))[2].double().repeat_interleave(problem.case.group, 1)
    return _finished(scores_of(problem, inputs), v)


def _in_blocks(
    x: torch.Tensor, v: torch.Tensor, block: int, *, scale_s: bool = True, scale_o: bool = True
) -> torch.Tensor:
    """o in blocks of keys, where sums may be left as they are when the maximum moves."""
    m = torch.full(x.shape[:-1], -torch.inf, dtype=x.dtype)
    s, o = torch.zeros_like(m), torch.zeros_like(x[..., :1] * v[..., :1, :])
    for start in range(0, x.shape[-1], block):
        part = x[..., start : start + block]
        top = torch.maximum(m, part.amax(-1))
        shift = top.masked_fill(top == -torch.inf, 0.0)
        old, p = (m - shift).exp(), (part - shift[..., None]).exp()
        s = (s * old if scale_s else s) + p.sum(-1)
        o = (o * old[..., None] if scale_o else o) + p @ v[..., start : start + block, :]
        m = top
    return o / s.masked_fill(s == 0, 1.0)[..., None]


def forward_mistakes(problem: Problem) -> tuple[Mistakes, Mistakes]:
    """What mistakes give for o and for lse."""
    x, v = scores_of(problem), problem.v.double().repeat_interleave(problem.case.group, 1)
    return _loop_mistakes(problem, x, v) | _mask_mistakes(problem, x, v), _lse_mistakes(problem, x)


def _loop_mistakes(problem: Problem, x: torch.Tensor, v: torch.Tensor) -> Mistakes:
    """What mistakes in the loop's sums give for o."""
    case = problem.case
    top, total = _sum_of(x)
    block = case.block_k
    plain = scores_of(problem, change=SCORES["unchanged"])
    below = "The maximum begins at -inf: any other start is above the scores of some query."
    return {
        "When the maximum moves, o is a sum under the old one: multiply it, too.": (
            _in_blocks(x, v, block, scale_o=False)
        ),
        "When the maximum moves, multiply the old sum s by e^(old - new).": _in_blocks(
            x, v, block, scale_s=False
        ),
        "When the maximum moves, multiply both old sums by e^(old - new).": _in_blocks(
            x, v, block, scale_s=False, scale_o=False
        ),
        "Divide o by the sum s, once, after the loop.": _finished(x, v)[0] * total[..., None],
        "Multiply the scores by scale.": _finished(x * case.d**0.5, v)[0],
        "SCORE was not applied.": _finished(plain, v)[0],
        **({below: torch.zeros_like(v[..., :1, :] * x[..., :1])} if case.shift < -100 else {}),
    }


def _mask_mistakes(problem: Problem, x: torch.Tensor, v: torch.Tensor) -> Mistakes:
    """What mistakes with masks give for o."""
    case = problem.case
    seen = visible(case)
    everything = replace(problem, case=_seeing_all(case))
    whole = scores_of(everything).masked_fill(~_computed(case), -torch.inf)
    i, j = positions(case.queries, case.keys)
    rest = -case.keys % case.block_k
    padded, longer = F.pad(x, (0, rest)), F.pad(v, (0, 0, 0, rest))
    before = whole.masked_fill(j >= i + case.keys - case.queries, -torch.inf)
    made = {
        "Hidden keys got weight: where is the mask?": whole,
        "Hide with -inf: a score of 0 has the weight e^0.": whole.masked_fill(~seen, 0.0),
        "The last query sees all keys: compare j with i + N_K - N_Q.": whole.masked_fill(
            j > i, -torch.inf
        ),
        "Query i sees its own key, too.": before,
    }
    after = (whole - whole.logsumexp(-1, keepdim=True)).exp() * seen
    return {
        "Keys past the end count: their scores must be -inf.": _finished(padded, longer)[0],
        "The mask came after the exponential: hidden keys are in the sum.": after @ v,
        **{text: _finished(scores, v)[0] for text, scores in made.items()},
    }


def _computed(case: Case) -> torch.Tensor:
    """Which pairs lie in tiles that are not empty; all, if tiles are not sorted."""
    if case.mask == "everything":
        return torch.ones(case.queries, case.keys, dtype=torch.bool)
    wide = kinds(case).repeat_interleave(case.block_q, 0).repeat_interleave(case.block_k, 1)
    return wide[: case.queries, : case.keys] > 0


def _lse_mistakes(problem: Problem, x: torch.Tensor) -> Mistakes:
    """What mistakes give for the log-sum-exp."""
    lse = x.logsumexp(-1)
    top, total = _sum_of(x)
    return {
        "The sum is of e^(score - m): add m to its logarithm.": total.log(),
        "Multiply the scores by scale.": (x * problem.case.d**0.5).logsumexp(-1),
        "That is the maximum: add the logarithm of the sum.": x.amax(-1),
        "That is the sum: store m + log(s).": total,
        "Use the natural logarithm, as e^x does.": top + total.log2(),
        "A query that sees nothing has lse = -inf.": lse.masked_fill(lse == -torch.inf, 0.0),
    }


def _sum_of(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(the maximum of each row, or 0, and the sum of e^(x - maximum))."""
    top = x.amax(-1)
    top = top.masked_fill(top == -torch.inf, 0.0)
    return top, (x - top[..., None]).exp().sum(-1)


def _seeing_all(case: Case) -> Case:
    return replace(case, causal=False, mask="everything")


def agree_forward(problem: Problem, o: torch.Tensor, lse: torch.Tensor, name: str) -> None:
    """Compare o and lse with float64."""
    case = problem.case
    want, total = (x.reshape(got.shape) for x, got in zip(exact(problem), (o, lse), strict=True))
    near = NEAR[case.dtype]
    right = _close(o, want, near) and _close(lse, total, near)
    of_o, of_lse = ({}, {}) if right or case.large else forward_mistakes(problem)
    of_o = {text: x.reshape(o.shape).to(o.dtype) for text, x in of_o.items()}
    of_lse = {text: x.reshape(lse.shape).float() for text, x in of_lse.items()}
    _agree(o, want.to(o.dtype), f"{name}: o of {case}", near, of_o)
    _agree(lse, total.float(), f"{name}: lse of {case}", near, of_lse)


def _close(got: torch.Tensor, want: torch.Tensor, near: float) -> bool:
    """Whether mistakes need not be computed, because there is none."""
    return torch.allclose(got.double(), want.double(), rtol=near, atol=near)


def _agree(got: Any, want: torch.Tensor, case: str, near: float, mistakes: Mistakes) -> None:
    agree(
        got, want, case, rtol=near, atol=near, mistakes=mistakes,
        draw=lambda: memory_drawings.compare(got.flatten(0, -2), want.flatten(0, -2), title=case),
    )  # fmt: skip


def agree_gradients(problem: Problem, gradients: Any, name: str) -> None:
    """Compare dq, dk and dv with float64 autograd."""
    inputs = [x.double().requires_grad_() for x in (problem.q, problem.k, problem.v)]
    o, _ = exact(problem, inputs)
    wants = torch.autograd.grad(o, inputs, problem.given.double())
    near = 4 * NEAR[problem.case.dtype] * max(1.0, problem.case.spread)
    right = all(_close(got, want, near) for got, want in zip(gradients, wants, strict=True))
    all_mistakes = {} if right or problem.case.large else gradient_mistakes(problem)
    for which, got, want in zip(
        ("dv", "dk", "dq"), reversed(gradients), reversed(wants), strict=True
    ):
        mistakes = {text: x.to(got.dtype) for text, x in all_mistakes.get(which, {}).items()}
        _agree(got, want.to(got.dtype), f"{name}: {which} of {problem.case}", near, mistakes)


@dataclass
class _Backward:
    """The steps of a right backward pass, in float64, over all heads."""

    x: torch.Tensor  # scaled scores
    y: torch.Tensor  # changed
    p: torch.Tensor  # weights
    dp: torch.Tensor
    delta: torch.Tensor
    slope: torch.Tensor
    lse: torch.Tensor


def _steps(problem: Problem) -> _Backward:
    case, given = problem.case, problem.given.double()
    k, v = (x.double().repeat_interleave(case.group, 1) for x in (problem.k, problem.v))
    hidden, o = scores_of(problem), exact(problem)[0]
    lse = hidden.logsumexp(-1, keepdim=True)
    p = (hidden - lse.masked_fill(lse == -torch.inf, 0.0)).exp()
    x = problem.q.double() @ k.mT * case.d**-0.5
    y = SCORES[case.score](x, *_places(case)).nan_to_num(neginf=0.0)  # hidden: its weight is 0
    delta = (given * o).sum(-1, keepdim=True)
    return _Backward(x, y, p, given @ v.mT, delta, _slope_at(case, x), lse)


def gradient_mistakes(problem: Problem) -> dict[str, Mistakes]:
    """{gradient: what mistakes give}."""
    case, at = problem.case, _steps(problem)
    q, scale, given = problem.q.double(), case.d**-0.5, problem.given.double()
    k = problem.k.double().repeat_interleave(case.group, 1)
    dy = at.p * (at.dp - at.delta)
    faults = {
        "SCORE's slope is missing: multiply by SLOPE(x, ...).": dy * scale,
        "That is SCORE's value; the chain rule needs its slope.": dy * at.y * scale,
        "SLOPE takes the score before SCORE changed it.": dy * _slope_at(case, at.y) * scale,
        "Multiply by scale: the scores are scale times the product.": dy * at.slope,
        "Subtract delta from dp.": at.p * at.dp * at.slope * scale,
        "Delta is subtracted from dp, not added.": at.p * (at.dp + at.delta) * at.slope * scale,
        "The sign is wrong.": -dy * at.slope * scale,
    }
    hidden = at.x.masked_fill(~visible(case), -torch.inf)
    weights = (hidden - at.lse).exp()
    right_k, right_v = (dy * at.slope * scale).mT @ q, at.p.mT @ given
    return {
        "dq": {text: dx @ k for text, dx in faults.items()},
        "dk": {text: _summed(dx.mT @ q, case.group) for text, dx in faults.items()}
        | _group_mistakes(right_k, case.group),
        "dv": {
            "Weights come from the changed scores: apply SCORE, then subtract lse.": _summed(
                weights.mT @ given, case.group
            )
        }
        | _group_mistakes(right_v, case.group),
    }


def _summed(wide: torch.Tensor, group: int, which: slice = slice(None)) -> torch.Tensor:
    """The sum over the query heads that share a key head, or over some of them."""
    return wide.unflatten(1, (-1, group))[:, :, which].sum(2)


def _group_mistakes(wide: torch.Tensor, group: int) -> Mistakes:
    """What mistakes give where key heads are shared."""
    if group == 1:
        return {}
    one = "That is {} query head's part: sum over the GROUP heads that share these keys."
    return {
        one.format("the first"): _summed(wide, group, slice(0, 1)),
        one.format("the last"): _summed(wide, group, slice(group - 1, group)),
        "Sum over the group, don't average.": _summed(wide, group) / group,
    }


def _places(case: Case) -> tuple[torch.Tensor, ...]:
    """b, h, i and j, which broadcast to the scores' shape."""
    b = torch.arange(case.batch)[:, None, None, None]
    return b, torch.arange(case.heads)[:, None, None], *positions(case.queries, case.keys)


def _slope_at(case: Case, x: torch.Tensor) -> torch.Tensor:
    """The slope of a case's change of scores at x, by float64 autograd."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(SCORES[case.score](x, *_places(case)).sum(), x)[0]


# --- tiles


def kinds(case: Case) -> torch.Tensor:
    """0, 1, 2 for an empty, partial and full tile, over all batches and heads: int32."""
    seen = visible(case)
    made = torch.zeros(case.blocks_q, case.blocks_k, dtype=torch.int32)
    for row, column in itertools.product(range(case.blocks_q), range(case.blocks_k)):
        tile = seen[..., row * case.block_q : (row + 1) * case.block_q,
                    column * case.block_k : (column + 1) * case.block_k]  # fmt: skip
        made[row, column] = 2 if tile.all() else int(tile.any())
    return made


KINDS = [
    Case(64, 64, mask="causal"),
    Case(1025, 127, mask="a window of 7 keys", block_q=128, block_k=32),
    Case(64, 64, mask="a window of 7 keys", block_q=8, block_k=16),
    Case(50, 41, mask="a prefix of 5 keys"),
    Case(45, 45, mask="documents from 0, 9 and 20", block_q=5, block_k=4),
    Case(33, 70, mask="everything", block_q=32),
    Case(40, 40, mask="queries from 3 to 11 see nothing", block_q=4, block_k=4),
    Case(1, 1, mask="causal"),
]


def kind_cases(rng: np.random.Generator) -> list[Case]:
    """KINDS, and three of random sizes."""
    found = list(KINDS)
    for mask in ("causal", "a window of 7 keys", "a prefix of 5 keys"):
        queries, keys, rows, columns = rng.integers([20, 20, 3, 3], [60, 60, 12, 12]).tolist()
        found.append(Case(queries, keys, mask=mask, block_q=rows, block_k=columns))
    return found


def asks(function: Callable[..., Any]) -> None:
    """Raise AssertionError if block_mask looks into its mask_mod."""
    static_names.expect_none(
        "block_mask", function, static_names.INSIDE, "Ask the mask_mod, tile by tile."
    )


def kind_mistakes(case: Case) -> Mistakes:
    """What mistakes give for the kinds of tiles."""
    right = kinds(case)
    seen = visible(case)[0, 0]
    corners = torch.zeros_like(right)
    first = torch.zeros_like(right)
    for row, column in itertools.product(range(case.blocks_q), range(case.blocks_k)):
        tile = seen[row * case.block_q : (row + 1) * case.block_q,
                    column * case.block_k : (column + 1) * case.block_k]  # fmt: skip
        found = [bool(tile[a, b]) for a in (0, -1) for b in (0, -1)]
        corners[row, column] = 2 if all(found) else int(any(found))
        first[row, column] = 2 if tile.all() else 0
    ragged = right.clone()
    if case.queries % case.block_q:
        ragged[-1] = ragged[-1].clamp(max=1)
    if case.keys % case.block_k:
        ragged[:, -1] = ragged[:, -1].clamp(max=1)
    floor = right[: case.queries // case.block_q, : case.keys // case.block_k]
    return {
        "A tile is full if all pairs that exist are visible: there are none past the end.": ragged,
        "The last tiles may be smaller, but they exist: round up.": floor,
        "Full is 2, and partial is 1.": torch.where(right > 0, 3 - right, right),
        "A tile's corners don't say it all: a window or a document may lie between them.": corners,
        "A tile with one visible pair is not empty.": first,
        "Rows are blocks of queries, columns are blocks of keys.": right.T.contiguous(),
    }


# --- costs


def expect_forward(report: Report, case: Case, made: torch.Tensor | None = None) -> None:
    """Raise AssertionError unless loads and stores are the derived counts. made: kinds of tiles."""
    plain(report)
    copies = case.batch * case.heads
    rows = _lengths(case.queries, case.block_q)
    columns = torch.tensor(_lengths(case.keys, case.block_k))
    tiles = torch.ones(len(rows), len(columns)) if made is None else (made > 0)
    keys = int((tiles * columns).sum()) * case.d * copies
    queries = case.queries * case.d * copies
    some = "of tiles that are not empty" if made is not None else "for each block of queries"
    _expect_loads(report, {"q": queries, "k": keys, "v": keys}, f"all keys {some}, once")
    _expect_widths(report, {"q": case.block_q, "k": case.block_k, "v": case.block_k}, case.d)
    _expect_stores(report, {"o": queries, "lse": case.queries * copies})
    _expect_tiles(report, case)
    flops = 4 * int(tiles.sum()) * copies * case.block_q * case.block_k * case.d
    expect(
        report.dot_flops <= flops,
        f"{report.kernel}: {report.dot_flops:,} FLOPs in tl.dot, and {flops:,} will do: two "
        "products per tile.",
    )
    expect_format(report, case)


def expect_backward(report: Report, case: Case, made: torch.Tensor) -> None:
    """The same for the backward pass."""
    copies = case.batch * case.heads
    rows = torch.tensor(_lengths(case.queries, case.block_q))[:, None]
    tiles = made > 0
    queries = int((tiles * rows).sum()) * copies
    keys = case.keys * case.d * copies // case.group
    want = {"q": queries * case.d, "g": queries * case.d, "k": keys, "v": keys}
    want |= {"lse": queries, "delta": queries}
    _expect_loads(report, want, "what each tile that is not empty needs, once")
    widths = {"q": case.block_q, "g": case.block_q, "k": case.block_k, "v": case.block_k}
    _expect_widths(report, widths, case.d)
    _expect_stores(report, {"dk": keys, "dv": keys})
    _expect_tiles(report, case)
    added = report.atomics.elements
    expect(
        added == queries * case.d,
        f"{report.kernel}: {added:,} numbers are added to dq; {queries * case.d:,} are due: "
        "those of each tile that is not empty, once, by tl.atomic_add.",
    )
    flops = 10 * int(tiles.sum()) * copies * case.block_q * case.block_k * case.d
    expect(
        report.dot_flops <= flops,
        f"{report.kernel}: {report.dot_flops:,} FLOPs in tl.dot, and {flops:,} will do: five "
        "products per tile.",
    )
    expect_format(report, case)


def expect_format(report: Report, case: Case) -> None:
    """Raise AssertionError unless products are made by tl.dot in the inputs' format."""
    want = {f"{NAME[case.dtype]} × {NAME[case.dtype]} + fp32"}
    expect(
        report.dot_formats == want
        or (not report.dot_formats and not report.dots and _nothing(case)),
        f"{report.kernel}: want products by tl.dot of {want}, not {report.dot_formats or 'none'}. "
        "Tensor cores multiply 16-bit tiles: convert weights to the format of the values.",
    )


def _nothing(case: Case) -> bool:
    return not visible(case).any()


def _lengths(count: int, block: int) -> list[int]:
    return [min(block, count - start) for start in range(0, count, block)]


def _expect_loads(report: Report, want: dict[str, int], why: str) -> None:
    for name, most in want.items():
        loaded = report.array(name).loads.elements
        expect(
            loaded <= most,
            f"{report.kernel}: {loaded:,} elements of {name} are loaded, and {most:,} will do: "
            f"{why}.",
            draw=lambda name=name: report.draw(name),
        )


def _expect_widths(report: Report, want: dict[str, int], d: int) -> None:
    for name, rows in want.items():
        loads = report.array(name).loads
        lanes = (loads.elements + loads.masked) / max(1, loads.requests)
        expect(
            lanes <= rows * d,
            f"{report.kernel}: a load of {name} takes {lanes / d:,.0f} rows, a block has {rows}. "
            "With all keys at once, scores are as long as the text: they must not exist.",
        )


def _expect_tiles(report: Report, case: Case) -> None:
    """Raise AssertionError if a program holds a block of values that is larger than its tiles."""
    sides = sorted((case.block_q, case.block_k, case.d))
    most = 2 * sides[1] * sides[2]  # two of them may be joined
    expect(
        report.largest_tile <= most,
        f"{report.kernel}: a block of {report.largest_tile:,} values is in registers; its tiles "
        f"have {most // 2:,} at most. The scores of all keys must not exist, kept as tiles either.",
    )


def _expect_stores(report: Report, want: dict[str, int]) -> None:
    for name in report.arrays:
        stored, due = report.array(name).stores.elements, want.get(name, 0)
        expect(
            stored == due,
            f"{report.kernel}: {stored:,} elements of {name} are stored, and {due:,} are due. "
            "Scores and sums stay in registers; results are stored once, after the loop.",
        )


# --- decoding


@dataclass(frozen=True)
class Decoding:
    """One query per head, and keys in parts."""

    keys: int
    parts: int
    heads: int
    group: int
    d: int = 16
    block: int = 16
    dtype: torch.dtype = F32
    shift: float = 0.0
    spread: float = 1.0
    paged: bool = False  # each part has whole pages of `block` keys

    @property
    def size(self) -> int:
        """Keys per part; the last parts may have fewer, or none."""
        share = -(-self.keys // self.parts)
        return -(-share // self.block) * self.block if self.paged else share

    def __str__(self) -> str:
        return (
            f"{self.keys} keys in {self.parts} parts of {self.size}, {self.heads} heads, "
            f"{self.group} per key head, d = {self.d}, {NAME[self.dtype]}"
        )


DECODING = [
    Decoding(64, 2, 4, 4),
    Decoding(33, 8, 4, 2),
    Decoding(100, 3, 8, 8, d=64),
    Decoding(45, 4, 2, 1),
    Decoding(50, 3, 8, 4, shift=-200),
    Decoding(40, 2, 4, 4, dtype=BF16),
    Decoding(1, 1, 1, 1),
    Decoding(127, 2, 4, 4, d=128, block=64),
    Decoding(1025, 5, 2, 1, block=64),
    Decoding(40, 3, 4, 2, spread=100),
]


def decoded(rng: np.random.Generator, case: Decoding) -> tuple[Problem, list[torch.Tensor], Any]:
    """(the tensors, m, s and o before the kernel has run, what they should become)."""
    sizes = Case(1, case.keys, case.d, case.heads, case.group, dtype=case.dtype, shift=case.shift,
                 spread=case.spread, block_k=case.block)  # fmt: skip
    problem = drawn(rng, sizes)
    x = scores_of(problem)[0, :, 0]
    v = problem.v[0].double().repeat_interleave(case.group, 0)
    wants = []
    for part in range(case.parts):
        own = slice(part * case.size, max(part * case.size, min((part + 1) * case.size, case.keys)))
        rows = [part_of(x[h : h + 1, own].numpy(), v[h, own].numpy()) for h in range(case.heads)]
        wants.append([np.concatenate(piece) for piece in zip(*rows, strict=True)])
    want = [torch.from_numpy(np.stack(piece)).float() for piece in zip(*wants, strict=True)]
    return problem, [torch.full_like(piece, torch.nan) for piece in want], want


def agree_decoded(
    got: list[torch.Tensor], want: list[torch.Tensor], case: Decoding, kernel: str = "decode_split"
) -> None:
    """Compare m, s and o of each part."""
    near = NEAR[case.dtype] * max(1.0, abs(case.shift) / 20, case.spread / 20)
    total = want[1].masked_fill(want[1] == 0, 1.0)[..., None]
    of = {
        "m": {"A part without keys has m = -inf.": want[0].masked_fill(want[0] == -INF, 0.0)},
        "s": {"s is a sum of e^(score - m).": want[0] + want[1].log()},
        "o": {"o stays a sum: merge needs it under the same maximum as s.": want[2] / total},
    }
    for name, made, due in zip("mso", got, want, strict=True):
        mistakes = of[name]
        agree(made, due, f"{kernel}: {name} of {case}", rtol=near, atol=near, mistakes=mistakes)


def expect_decoding(report: Report, case: Decoding) -> None:
    """Raise AssertionError unless each key is loaded once, for all the heads that share it."""
    plain(report)
    keys = case.keys * case.d * case.heads // case.group
    why = f"the {case.group} query heads of a key head share each key that is loaded"
    queries = case.heads * case.d * case.parts
    _expect_loads(report, {"k": keys, "v": keys}, why)
    _expect_loads(report, {"q": queries}, "each part loads each query once")
    _expect_widths(report, {"k": case.block, "v": case.block}, case.d)
    rows = case.heads * case.parts
    _expect_stores(report, {"m": rows, "s": rows, "o": rows * case.d})


PAGED = [
    Decoding(64, 2, 4, 4, paged=True),
    Decoding(45, 2, 4, 2, paged=True),
    Decoding(10, 1, 2, 1, paged=True),
    Decoding(90, 4, 8, 8, paged=True),
    Decoding(1, 1, 1, 1, paged=True),
    Decoding(127, 3, 4, 4, d=64, shift=-200, paged=True),
    Decoding(1025, 4, 4, 2, d=128, block=64, paged=True),
    Decoding(40, 2, 4, 2, dtype=BF16, paged=True),
    Decoding(50, 2, 2, 1, spread=100, paged=True),
]


def pages(
    rng: np.random.Generator, problem: Problem, case: Decoding
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(k, v, table): keys and values in shuffled pages; NaN where no key of this text lies."""
    count = -(-case.keys // case.block)
    order = torch.from_numpy(rng.permutation(count + 3)[:count].astype(np.int32))
    made = []
    for x in (problem.k[0], problem.v[0]):
        held = torch.full((count + 3, len(x), case.block, case.d), torch.nan, dtype=x.dtype)
        for entry, page in enumerate(order.tolist()):
            part = x[:, entry * case.block : (entry + 1) * case.block]
            held[page, :, : part.shape[1]] = part
        made.append(held)
    return made[0], made[1], order


def sink(
    rng: np.random.Generator, level: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Mistakes]:
    """(o, lse, sink, what o becomes, what mistakes give); query 0 sees nothing."""
    x = torch.from_numpy(rng.standard_normal((2, 3, 5)) + level)
    x[:, 0] = -torch.inf
    v = torch.from_numpy(rng.standard_normal((2, 5, 4)))
    own = torch.from_numpy(rng.standard_normal(2) + level)
    o, lse = _finished(x, v)
    wider = torch.cat([x, own[:, None, None].expand(2, 3, 1)], -1)
    want = wider.softmax(-1)[..., :-1] @ v
    doubled = torch.cat([wider, wider[..., -1:]], -1).softmax(-1)[..., :-2] @ v
    return o, lse, own, want, {
        "That is the sink's share: the keys keep the rest.": o - want,
        "The sink was counted twice.": doubled,
        "The sink takes nothing here.": o,
    }  # fmt: skip
