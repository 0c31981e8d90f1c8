"""Expected values of lab 01: by PyTorch, and by definitions that would be too slow to use.

Each generator yields (arguments, what is wanted, mistakes), where mistakes is {sentence: what this
mistake gives}. Small cases and hard ones come first, then random ones.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from common.checks import WhenWrong, agree, expect, is_whole, report, show
from common.checks import static_names as uses
from common.figures import memory_drawings, views
from common.figures.views import View

LARGE = 3 << 40  # a stride that is too large for 32 bits
ALL_DIFFER = [  # with room for 4 lines, each known mistake gives another number
    *(4, 5, 4, 0, 1, 2, 4, 1, 0, 1, 0, 3, 4, 0, 3, 5, 5, 4, 3, 5, 1, 3, 5, 7, 1, 5, 5, 7, 5)
]
SETS_DIFFER = [  # so it is here with 3 sets of 2 ways
    *(8, 12, 4, 9, 0, 9, 10, 13, 3, 4, 0, 6, 6, 10, 2, 1, 7, 0, 8, 3, 0, 1, 2, 13)
]

Joins = Callable[[tuple[int, int], int, int], bool]
JOINS: dict[str, Joins] = {  # sentence: the wrong rule by which an axis joins the last run
    "It is not enough that the strides fall: compare the outer one with size * stride.": (
        lambda run, size, stride: run[1] > stride
    ),
    "Equal strides make no run (unless they are 0): the rows overlap.": (
        lambda run, size, stride: run[1] in (size * stride, stride)
    ),
    "Compare with this axis's size, not with the elements of the run before.": (
        lambda run, size, stride: run[1] == run[0] * stride
    ),
}
CUTS = {  # sentence: by which rule `_cut` cuts
    "The last new axis is cut from the last run, not from the first one.": "first run",
    "What is left has the stride `step * size`, not `size`.": "only size",
    "What is left has a larger stride: multiply `step` by `size` after each cut.": "same step",
}

Case = tuple[tuple[Any, ...], Any, Mapping[str, Any]]


def by_hand(name: str, used: Sequence[str]) -> None:
    """Raise AssertionError if the function of this name asks a library for what is not allowed."""
    counts = name in ("fetches", "set_fetches")  # only there is a cache the answer
    used = [answer for answer in used if counts or answer != "lru_cache"]
    own = " An attribute of your own class needs another name." * bool(views.ANSWERS & {*used})
    expect(
        not used,
        f"{name} asks a library for the answer ({uses.listed(used)}). Compute it yourself: "
        f"the docstring says what is not allowed.{own}",
    )


def agree_view(name: str, case: Case, got: object) -> None:
    """Raise AssertionError unless `got` is a view that reads the same cells as the wanted one.

    case: (arguments, positions that PyTorch reads or None, mistakes).
    """
    args, want, mistakes = case
    call = f"{name}({', '.join(map(str, args))})"
    if isinstance(want, tuple):
        _agree_numbers(call, want, got)
        return
    try:
        read = views.positions(got)
    except ValueError as problem:
        text = f"{call}: {problem}"
        if want is None:
            text += ". Return None where only a copy has that shape"
        raise AssertionError(f"{text}.") from None
    if _same(read, want):
        return
    yours = None if read is None else views.of(read)
    wanted = None if want is None else views.of(want)
    sentences = [sentence for sentence, wrong in mistakes.items() if _same(read, wrong)]
    mistake = sentences[0] if len(sentences) == 1 else ""  # two would be a guess
    shown = str(wanted or "None: only a copy has that shape")
    text = report(call, str(yours), shown, mistake=mistake)
    if read is not None and want is not None:
        text += f"\n{_first_difference(read, want)}"
    expect(False, text, draw=lambda: memory_drawings.wanted_and_yours(wanted, yours))


def _agree_numbers(call: str, want: View, got: object) -> None:
    """Raise AssertionError unless `got` is this view, whose cells are too many for `positions`."""
    try:
        yours = views.parts(got)
    except ValueError as problem:
        raise AssertionError(f"{call}: {problem}.") from None
    if yours != want:
        fits = [bits for bits in (16, 32) if _numbers(want, bits) == _numbers(yours)]
        sentence = f"Some of the numbers need more than {max(fits, default=0)} bits: use ints."
        mistake = sentence if fits else ""
        expect(False, report(call, str(yours), str(want), mistake=mistake))


def _numbers(view: View, bits: int = 64) -> list[int]:
    """All numbers of a view, as they are when only so many bits are kept."""
    numbers = (*view[0], *view[1], view[2])
    half = 1 << bits - 1
    return [(number + half) % (2 * half) - half for number in numbers]


def _same(read: torch.Tensor | None, want: torch.Tensor | None) -> bool:
    if read is None or want is None:
        return read is want
    return read.shape == want.shape and torch.equal(read, want)


def _first_difference(read: torch.Tensor, want: torch.Tensor) -> str:
    if read.shape != want.shape:
        return f"The shape should be {tuple(want.shape)}."
    index = tuple(torch.nonzero(read != want)[0].tolist())
    return (
        f"Its element {index} is cell {read[index].item()}; it should be cell {want[index].item()}."
    )


def fresh(rng: np.random.Generator) -> Iterator[Case]:
    """Strides of fresh tensors. (Without elements, any strides of the right number will do.)"""
    large = (2, 131071, 65537, 1048573)  # too many elements for 32 bits, or for a float64
    shapes = [(2, 3, 4), (5,), (), (3, 1, 2), (1, 1), (7, 2), (2, 3, 2, 1, 3, 2), large]
    shapes += [tuple(rng.integers(1, 6, trial // 20).tolist()) for trial in range(92)]
    for shape in shapes:
        want = torch.empty(shape, device="meta").stride()
        mistakes = {
            "These strides count bytes of float32. Ours count elements.": tuple(
                4 * step for step in want
            ),
            "Here the first index counts fastest (column-major).": torch.empty(
                shape[::-1], device="meta"
            ).stride()[::-1],
            "Each stride includes its own axis's size. Take only the sizes after it.": tuple(
                map(math.prod, zip(shape, want, strict=True))
            ),
            "These are the right strides, but the last axis stands first.": want[::-1],
            "Multiply the sizes after the axis; here they are added.": tuple(
                sum(shape[axis + 1 :]) or 1 for axis in range(len(shape))
            ),
            "These are products up to the axis, itself included. Take the sizes after it.": tuple(
                itertools.accumulate(shape, operator.mul)
            ),
            "Here the product of all sizes is divided by the axis's own size only.": tuple(
                math.prod(shape) // size for size in shape
            ),
            "All sizes after the axis count, not only the next one.": (*shape[1:], 1)[: len(shape)],
            "A float64 has 53 bits, too few for this product. Compute with ints.": tuple(
                int(math.prod(map(float, reversed(shape[axis + 1 :]))))
                for axis in range(len(shape))
            ),
        }
        yield (shape,), want, mistakes
    yield ((2, 0, 3),), None, {}


def agree_strides(case: Case, got: object) -> None:
    """Raise AssertionError unless these are the strides of a fresh tensor of the case's shape."""
    (shape,), want, mistakes = case
    if want is None:
        _agree_without_elements(shape, got)
        return
    fits = isinstance(got, tuple) and len(got) == len(shape)
    small = fits and all(isinstance(step, int) and 0 <= step < 30 for step in got)
    yours = (shape, got, 0) if small else None
    draw = functools.partial(memory_drawings.wanted_and_yours, (shape, want, 0), yours)
    drawn = draw if math.prod(shape) < views.CELLS else None
    agree(got, want, f"row_major_strides({shape})", mistakes=mistakes, draw=drawn)


def _agree_without_elements(shape: tuple[int, ...], got: object) -> None:
    """Raise AssertionError unless these are strides: a tuple with one int, any, per axis."""
    fits = isinstance(got, tuple) and len(got) == len(shape) and all(map(is_whole, got))
    expect(
        fits,
        f"row_major_strides({shape}) gave {show(got)}, want a tuple of {len(shape)} ints: any, "
        "since there is no element to step to.",
    )


def sliced(rng: np.random.Generator) -> Iterator[Case]:
    """(view, axis, start, stop[, step]): what PyTorch's slices read."""
    hand = [
        (((6,), (1,), 0), 0, 1, 4, 1),
        (((6,), (1,), 0), 0, 1, 6, 2),
        (((6,), (1,), 2), 0, 0, 6, 2),  # the step divides the length
        (((5, 6), (6, 1), 3), 0, 1, 4, 2),
        (((5, 6), (6, 1), 3), 1, 0, 5, 3),
        (((4, 5), (1, 4), 2), 0, 2, 4, 1),  # a transpose's strides are not row-major
        (((6, 5), (1, 6), 0), 0, 2, 2, 1),  # nothing is left
        (((3, 4), (0, 2), 1), 1, 3, 4, 3),
    ]
    for trial in range(200):
        if trial < len(hand):
            view, axis, start, stop, step = hand[trial]
        else:
            view = views.random_view(rng, 1 + trial // 50)
            axis, start, stop, step = views.random_slice(rng, view)
        args = (view, axis, start, stop, *([step] if step > 1 else []))
        want, mistakes = _sliced(view, axis, start, stop, step)
        yield args, want, mistakes
    large = ((70_001, 3), (LARGE, 2), 5)
    yield (large, 0, 10, 70_000, 7), ((9999, 3), (7 * LARGE, 2), 5 + 10 * LARGE), {}


def _sliced(
    view: View, axis: int, start: int, stop: int, step: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    x = views.positions(view)
    want = x[(slice(None),) * axis + (slice(start, stop, step),)]
    old, new = x.stride(), want.stride()

    def strided(stride: int) -> torch.Tensor:
        """The slice with another stride along the axis."""
        return want.as_strided(want.shape, [*old[:axis], stride, *old[axis + 1 :]])

    mistakes = {
        "The stride must change, too: one step of the slice is `step` old steps.": (
            strided(old[axis])
        ),
        "The new stride is the old one times `step`, not `step` itself.": strided(step),
        "The new stride is the old one times `step`, not divided by it.": (
            strided(old[axis] // step)
        ),
    }
    fresh = math.prod(x.shape[axis + 1 :])  # what the stride of a fresh tensor would be
    offsets = {
        "The offset did not move. Where is the element at index `start`?": -start * old[axis],
        "The offset moves by `start` old strides, not by `start` new ones.": (
            start * (step - 1) * old[axis]
        ),
        "The offset moves by `start` strides of the axis, not by `start` cells.": (
            start - start * old[axis]
        ),
        "The view has an offset already: add to it.": -view[2],
        "The offset moves by strides of the view, not by those of a fresh tensor.": (
            start * (fresh - old[axis])
        ),
    }
    mistakes |= {sentence: _moved(want, cells) for sentence, cells in offsets.items()}
    for sentence, length in _wrong_lengths(x.shape[axis], start, stop, step).items():
        shape = [*want.shape[:axis], length, *want.shape[axis + 1 :]]
        mistakes[sentence] = want.as_strided(shape, new)
    return want, mistakes


def _wrong_lengths(size: int, start: int, stop: int, step: int) -> dict[str, int]:
    lengths = {
        "The length was rounded down. How many of 0, 2, 4 lie below 5?": (stop - start) // step,
        "The length is one too large when the step divides stop - start.": (
            (stop - start) // step + 1
        ),
        "The length is still that of a slice with step 1.": stop - start,
        "The length comes from start, stop and step, not from the axis.": -(-size // step),
        "Only `start` was divided by `step`. Put `stop - start` into parentheses.": (
            math.ceil(stop - start / step)
        ),
    }
    counts = list(lengths.values())
    return {sentence: n for sentence, n in lengths.items() if counts.count(n) == 1}


def _moved(x: torch.Tensor, cells: int) -> torch.Tensor:
    """The same view of STORAGE, beginning so many cells later."""
    return x.as_strided(x.shape, x.stride(), int(x.storage_offset()) + cells)


def windows(rng: np.random.Generator) -> Iterator[Case]:
    """(view, axis, size[, step]): what Tensor.unfold reads."""
    hand = [
        (((5,), (1,), 0), 0, 3, 1),
        (((7,), (2,), 1), 0, 3, 2),
        (((4, 3), (3, 1), 0), 0, 2, 1),
        (((4, 5), (1, 4), 2), 1, 5, 3),
        (((6,), (1,), 0), 0, 1, 2),
    ]
    for trial in range(200):
        if trial < len(hand):
            view, axis, size, step = hand[trial]
        else:
            view = views.random_view(rng, 1 + trial // 70, smallest=1)
            axis, start, stop, step = views.random_slice(rng, view, smallest=1)
            size = stop - start
        x = views.positions(view)
        want = x.unfold(axis, size, step)
        args = (view, axis, size, *([step] if step > 1 else []))
        yield args, want, _wrong_windows(x, axis, size, step)
    large = ((3, 70_001), (2, LARGE), 5)
    yield (large, 1, 3, 7), ((3, 10_000, 3), (2, 7 * LARGE, LARGE), 5), {}


def _wrong_windows(x: torch.Tensor, axis: int, size: int, step: int) -> dict[str, torch.Tensor]:
    want = x.unfold(axis, size, step)
    strides, apart = want.stride(), x.unfold(axis, size, step * size).stride()
    return {
        "One window is missing: 5 elements hold 3 windows of 3.": (
            want.narrow(axis, 0, want.shape[axis] - 1)
        ),
        **_counts(want, x.shape[axis], axis, size, step),
        "The windows are too far apart: `step` says how far, not `size`.": (
            x.as_strided(want.shape, apart)
        ),
        "A window holds neighbours: within it, the stride is the old one.": (
            x.as_strided(want.shape, (*strides[:-1], strides[axis]))
        ),
        "Within a window, the stride is the axis's old one, not always 1.": (
            x.as_strided(want.shape, (*strides[:-1], 1))
        ),
        "The windows are `step` elements apart: their stride grows.": (
            x.as_strided(want.shape, (*strides[:axis], x.stride(axis), *strides[axis + 1 :]))
        ),
        "The new axis, within the window, must be the last.": want.movedim(-1, axis + 1),
        "The two axes are exchanged: the old axis counts windows, the last runs within.": (
            want.transpose(axis, -1)
        ),
    }


def _counts(
    want: torch.Tensor, length: int, axis: int, size: int, step: int
) -> dict[str, torch.Tensor]:
    """{sentence: so many windows as this mistake counts}."""
    rounded_up = -(-(length - size) // step) + 1
    counts = {
        "That is the number of windows with step 1.": length - size + 1,
        "Round down: a window that ends beyond the axis is none.": rounded_up,
        "The last window must end within the axis: take `size` into account.": -(-length // step),
        "Only `size` was divided by `step`. Put the difference into parentheses.": (
            length - size // step + 1
        ),
        "Take `size` away before you divide by `step`.": length // step - size + 1,
    }
    shape, strides = list(want.shape), want.stride()
    wrong = {}
    for sentence, count in counts.items():
        if count >= 0 and count != want.shape[axis]:
            wrong[sentence] = want.as_strided([*shape[:axis], count, *shape[axis + 1 :]], strides)
    return wrong


def broadcasted(rng: np.random.Generator) -> Iterator[Case]:
    """(view, shape): what Tensor.expand reads."""
    hand = [
        (((3,), (1,), 0), (2, 3)),
        (((3, 1), (1, 1), 0), (3, 2)),
        (((2, 1), (1, 9), 5), (2, 1)),
        (((1,), (7,), 3), (0,)),
        (((2,), (1,), 0), (2, 2)),
        (((), (), 4), (2, 2)),
        (((0,), (1,), 0), (2, 0)),
    ]
    for trial in range(200):
        if trial < len(hand):
            view, shape = hand[trial]
        else:
            view, ones = views.random_view(rng, trial // 50), (1,) * int(rng.integers(3))
            shape = tuple(size if size != 1 else int(rng.integers(4)) for size in ones + view[0])
        x = views.positions(view)
        missing = len(shape) - x.ndim
        mistakes = {
            "A stretched axis has stride 0.": x.as_strided(shape, (0,) * missing + x.stride()),
        }
        yield (view, shape), x.expand(shape), mistakes
    yield (((3, 1), (LARGE, 1), LARGE), (2, 3, 4)), ((2, 3, 4), (0, LARGE, 0), LARGE), {}
    for shape in [(4, 3), (3, 2), (3, 1), (0, 3), (3,), (), (3, 3, 1)]:
        yield (((3, 3), (3, 1), 0), shape), None, {}
    yield (((2, 0), (1, 1), 0), (2, 3)), None, {}
    for view, shape in ((((1, 3), (3, 1), 0), (3,)), (((1, 1), (1, 1), 2), ())):
        yield (view, shape), None, {}  # an axis of length 1 is not left out, either


def agree_broadcast(case: Case, got: object) -> None:
    """As `agree_view`. got: a view, or the ValueError that came; wanted where the case has None."""
    args, want, _ = case
    call = f"broadcasted({args[0]}, {args[1]})"
    if want is None:
        expect(
            isinstance(got, ValueError),
            f"{call} gave {got!r:.200}, want ValueError: only an axis of length 1 can be "
            "stretched, and none can be left out.",
        )
    elif isinstance(got, ValueError):
        wanted = want if isinstance(want, tuple) else views.of(want)
        expect(
            False,
            f"{call} raised ValueError: {got}. Want {wanted}. Are the shapes aligned at "
            "their last axes?",
        )
    else:
        agree_view("broadcasted", case, got)


def runs(rng: np.random.Generator) -> Iterator[Case]:
    """(view,): runs by asking PyTorch which neighbouring axes it can flatten."""
    hand = [
        ((2, 3), (3, 1), 0),
        ((2, 3), (12, 4), 0),
        ((2, 3), (20, 4), 0),
        ((2, 3), (13, 4), 0),  # a gap that is shorter than a step
        ((3, 2), (1, 3), 5),
        ((2, 1, 3), (3, 9, 1), 0),
        ((2, 3), (0, 0), 1),
        ((1, 4, 1), (7, 2, 7), 0),
        ((2, 3, 4), (12, 4, 1), 0),
        ((2, 3, 4), (30, 5, 1), 0),
        ((2, 2, 2, 2), (50, 25, 6, 3), 0),
        ((1, 1), (5, 5), 2),
        ((), (), 3),
        ((3, 2), (1, 1), 0),  # windows that overlap
        ((4, 3, 2), (2, 1, 1), 1),
    ]
    for trial in range(200):
        view = hand[trial] if trial < len(hand) else _overlapping(rng, trial // 40, smallest=1)
        if trial >= len(hand) and trial % 3 == 0:
            shape, strides, offset = view  # neighbours that are stretched
            view = ((*shape, 2, 3), (*strides, 0, 0), offset)
        yield (view,), _runs(view), _wrong_runs(view)
    large = ((5, 2, 3), (7 * LARGE, 3 * LARGE, LARGE), 0)
    yield (large,), [(5, 7 * LARGE), (6, LARGE)], {}


def _overlapping(rng: np.random.Generator, axes: int, *, smallest: int = 0) -> View:
    """A random view; one in four has windows along one of its axes."""
    view = views.random_view(rng, axes, smallest=smallest)
    long = [axis for axis, size in enumerate(view[0]) if size > 2]
    if not long or rng.integers(4):
        return view
    axis = int(rng.choice(long))
    return views.of(views.positions(view).unfold(axis, 2, int(rng.integers(1, 3))))


def _runs(view: View) -> list[tuple[int, int]]:
    x = views.positions(view).squeeze()
    found: list[tuple[int, int]] = []
    first = 0
    for axis in range(x.ndim):
        last = axis + 1 == x.ndim
        if last or views.viewed(x, _flattened(x.shape, first, axis + 1)) is None:
            found.append((math.prod(x.shape[first : axis + 1]), x.stride(axis)))
            first = axis + 1
    return found


def _flattened(shape: Sequence[int], first: int, last: int) -> list[int]:
    """The shape with the axes from first to last, included, as one."""
    return [*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]]


def _wrong_runs(view: View) -> dict[str, Any]:
    x = views.positions(view).squeeze()
    right = _runs(view)
    with_ones: list[tuple[int, int]] = []
    for size, stride in zip(view[0], view[1], strict=True):
        if with_ones and with_ones[-1][1] == size * stride:
            with_ones[-1] = (with_ones[-1][0] * size, stride)
        else:
            with_ones.append((size, stride))
    outer, first = [], 0
    for elements, _ in right:
        outer.append((elements, x.stride(first)))
        covered = 1
        while covered < elements:
            covered *= x.shape[first]
            first += 1
    wrong = {
        "The runs stand in the reverse order: the last axes belong at the end.": right[::-1],
        "A run is (elements, stride), in this order.": [run[::-1] for run in right],
        "Neighbouring axes that one stride can walk belong to the same run.": (
            list(zip(x.shape, x.stride(), strict=True))
        ),
        "An axis of length 1 belongs to no run, and separates none.": with_ones,
        "The stride of a run is that of its last axis: the step to the next element.": outer,
        "A single element makes no run: nobody steps along an axis of length 1.": [(1, 1)],
    }
    others = {sentence: _joined(view, joins) for sentence, joins in JOINS.items()} | {
        "The last run is missing.": right[:-1],
        "Axes with stride 0 are runs like any others.": [run for run in right if run[1]],
    }
    found = [right, *wrong.values(), *others.values()]
    return wrong | {text: runs for text, runs in others.items() if found.count(runs) == 1}


def _joined(view: View, joins: Joins) -> list[tuple[int, int]]:
    """The runs if an axis joins the last run by this rule."""
    found: list[tuple[int, int]] = []
    for size, stride in zip(view[0], view[1], strict=True):
        if size == 1:
            continue
        if found and joins(found[-1], size, stride):
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found


def agree_runs(case: Case, got: object) -> None:
    """Raise AssertionError unless the runs are right. Lists and tuples of pairs are equal here."""
    (view,), want, mistakes = case
    if isinstance(got, (list, tuple)) and all(isinstance(run, (list, tuple)) for run in got):
        got = [tuple(run) for run in got]
    mistakes = {sentence: wrong for sentence, wrong in mistakes.items() if wrong != want}
    if isinstance(got, list) and all(map(_is_run, got)):
        joined = "Join two axes only if the outer stride is exactly size * stride of the inner one."
        apart = "Neighbouring axes that one stride can walk belong to the same run."
        said = {len(want) - 1: joined, len(want) + 1: apart}
        mistakes[said.get(len(got), "")] = got
    small = max(view[1], default=0) < LARGE
    draw = functools.partial(_draw_runs, view, want, got) if small else None
    agree(got, want, f"runs({view})", mistakes=mistakes, draw=draw)


def _draw_runs(view: View, want: Sequence[tuple[int, int]], got: object) -> None:
    """The view, its runs one by one, and those that came (if they can be read)."""
    drawn: dict[str, View] = {"view": view}
    for title, found in (("wanted", want), ("yours", got)):
        for i, run in enumerate(found if isinstance(found, list) else []):
            if _is_run(run):
                drawn[f"{title}, run {i}"] = ((run[0],), (run[1],), view[2])
    memory_drawings.buffer(drawn)


def _is_run(run: object) -> bool:
    """Whether it is (elements, stride) and small enough to be drawn."""
    return (
        isinstance(run, tuple)
        and len(run) == 2
        and all(isinstance(number, int) and 0 <= number < 100 for number in run)
    )


def reshaped(rng: np.random.Generator) -> Iterator[Case]:
    """(view, shape): what Tensor.view reads; None where it refuses."""
    hand = [
        (((2, 3), (3, 1), 0), (6,)),
        (((2, 3), (1, 2), 0), (6,)),
        (((6,), (2,), 1), (2, 3)),
        (((3, 2), (8, 2), 1), (6,)),  # a gap
        (((3, 2), (8, 2), 1), (3, 1, 2)),
        (((2, 3), (0, 0), 1), (6,)),  # two stretched axes are one run
        (((2, 1, 3), (3, 9, 1), 0), (6,)),
        (((4, 4), (6, 1), 0), (2, 2, 4)),
        (((4, 4), (6, 1), 0), (2, 8)),
        (((6, 4), (8, 1), 0), (4, 6)),
        (((2, 6), (24, 4), 0), (4, 3)),  # sizes fit, but a new axis spans two runs
        (((), (), 3), (1, 1)),
        (((1, 1), (5, 5), 2), ()),
        (((2, 0), (1, 1), 0), (0, 3)),
        (((2,) * 6, (50, 25, 12, 6, 2, 1), 0), (4, 4, 4)),  # three runs of two axes
        (((3, 2), (1, 1), 0), (6,)),  # windows that overlap
        (((3, 4), (1, 1), 0), (3, 2, 2)),
        (((2, 2, 2), (2, 4, 1), 0), (8,)),  # its first and its last cell are where they should be
    ]
    for trial in range(300):
        if trial < len(hand):
            view, shape = hand[trial]
        else:
            view = _overlapping(rng, trial // 60)
            shape = views.random_shape(rng, math.prod(view[0]))
        yield (view, shape), *_reshaped(view, shape)
    large = ((2, 3, 2), (7 * LARGE, 2 * LARGE, LARGE), 5)
    yield (large, (2, 2, 3)), ((2, 2, 3), (7 * LARGE, 3 * LARGE, LARGE), 5), {}


def _reshaped(view: View, shape: tuple[int, ...]) -> tuple[torch.Tensor | None, dict[str, Any]]:
    x = views.positions(view)
    want = views.viewed(x, shape)
    mistakes: dict[str, torch.Tensor | None] = {
        "Row-major strides ignore the gaps of a slice, or a transpose.": (
            x.as_strided(shape, torch.empty(shape).stride())
        )
    }
    if want is not None:
        mistakes["No copy is needed: every new axis lies within one run."] = None
        turned = want.stride()[::-1]
        if sum(n * stride for n, stride in zip(shape, turned, strict=True)) < views.CELLS // 2:
            sentence = "The strides stand in the order in which they were cut: the last axis first."
            mistakes[sentence] = want.as_strided(shape, turned)
        if want.numel():
            sentence = "A reshape begins at the same cell: the offset stays."
            mistakes[sentence] = _moved(want, -view[2])
        cuts = {sentence: _cut(view, shape, rule) for sentence, rule in CUTS.items()}
        mistakes |= {sentence: cut for sentence, cut in cuts.items() if cut is not None}
    return want, mistakes


def _cut(view: View, shape: tuple[int, ...], rule: str) -> torch.Tensor | None:
    """What `reshaped` reads if it cuts by a wrong rule; None if nothing can be read."""
    whole, strides, left, step = _runs(view), [], 1, 1
    if 0 in shape:
        return None
    for size in reversed(shape):
        if left == 1 and size > 1:
            left, step = whole.pop(0 if rule == "first run" else -1)
        if left % size:
            return None
        strides.append(step)
        left //= size
        step = {"only size": size, "same step": step}.get(rule, step * size)
    reach = sum(size * stride for size, stride in zip(shape, reversed(strides), strict=True))
    fits = view[2] + reach < views.CELLS
    return views.positions((shape, tuple(reversed(strides)), view[2])) if fits else None


def five_axes(rng: np.random.Generator) -> Iterator[Case]:
    """Views of five axes in every order, with a gap, in a random new shape."""
    x = views.STORAGE[: 2 * 3 * 4 * 5 * 2].view(2, 3, 4, 5, 2)
    for order in itertools.permutations(range(5)):
        view = views.of(x.permute(order)[:, :, :, 1:])
        shape = views.random_shape(rng, math.prod(view[0]))
        yield (view, shape), *_reshaped(view, shape)


def blocked(rng: np.random.Generator) -> Iterator[Case]:
    """(view, block): blocks by unfolding both axes."""
    hand = [
        (((4, 4), (4, 1), 0), 2),
        (((4, 6), (6, 1), 0), 2),
        (((6, 4), (1, 6), 0), 2),
        (((4, 4), (6, 1), 3), 4),
        (((2, 3), (3, 1), 0), 1),
        (((4, 4), (0, 1), 2), 2),
    ]
    for trial in range(60):
        if trial < len(hand):
            view, block = hand[trial]
        else:
            block, down, right = (int(n) for n in rng.integers(1, 5, 3))
            gap = int(rng.integers(3))
            shape, width = (block * down, block * right), block * right + gap
            view = (shape, (width, 1), int(rng.integers(4)))
            if rng.integers(2):
                view = (shape[::-1], (1, width), view[2])
        want = views.positions(view).unfold(0, block, block).unfold(1, block, block)
        mistakes = {
            "The sizes are cut, but the axes still stand in the old order.": want.transpose(1, 2),
            "The walk goes down the blocks of a column first; it should go along a row of them.": (
                want.transpose(0, 1)
            ),
            "Within a block, the walk goes down the columns; it should go along the rows.": (
                want.transpose(2, 3)
            ),
            "The blocks must come first, and the places within a block last.": (
                want.permute(2, 3, 0, 1)
            ),
        }
        yield (view, block), want, mistakes
    wide = ((4, 6), (LARGE, 1 << 20), 5)
    yield (wide, 2), ((2, 3, 2, 2), (2 * LARGE, 2 << 20, LARGE, 1 << 20), 5), {}


def fetches(rng: np.random.Generator) -> Iterator[Case]:
    """(lines, room): how many visits of an LRU cache fetch, by its definition."""
    hand: list[tuple[list[int], int]] = [
        (ALL_DIFFER, 4),
        ([3, 3, 3, 5], 2),
        ([0, 1, 2, 0, 1, 2], 2),
        ([0] * 8 + [1] * 8 + [0] * 8 + [1] * 8, 2),
        ([7, 8, 7, 9, 7, 8], 1),
        ([0, 1, 0, 2, 0, 3, 0, 4, 0], 2),
        ([0, 1, 0, 2, 3, 0], 3),  # line 0 is found while the cache is not full
        ([0, 1, 0, 2, 3, 4, 0], 4),
        ([], 3),
        ([70_000, 4_464, 70_000, 4_464, 70_001, 4_465, 70_000], 2),  # equal in their last 16 bits
        (list(range(40)) * 2, 40),
        (list(range(40)) * 2, 39),
        (list(range(600)) * 2, 600),
    ]
    for trial in range(79):
        if trial < len(hand):
            lines, room = hand[trial]
        else:
            different, room = int(rng.integers(1, 12)), int(rng.integers(1, 9))
            lines = rng.integers(0, different, int(rng.integers(1, 60))).tolist()
        want = fetches_by_definition(lines, room)
        yield (lines, room), want, _distinct(_wrong_fetches, [*lines], room)
    never = "This is the count if nothing ever leaves the cache."
    yield (list(range(2000)) * 2, 1999), 4000, {never: 2000}


def fetches_by_definition(lines: Sequence[int], room: int, sets: int = 1) -> int:
    """Visits that fetch: since the last visit to the same line, `room` others of its set came."""
    last: dict[int, int] = {}
    count = 0
    for step, line in enumerate(lines):
        between = lines[last[line] + 1 : step] if line in last else ()
        others = {other for other in between if other % sets == line % sets}
        count += line not in last or len(others) >= room
        last[line] = step
    return count


def _wrong_fetches(lines: Sequence[int], room: int) -> dict[str, int]:
    want = fetches_by_definition(lines, room)
    rules = {
        "This is the count if the line that came first goes first (FIFO). A line that is found "
        "must become the most recently used.": "first in",
        "This is the count if the most recently used line goes. The least recently used one "
        "should go.": "latest",
        "This is the count if the line used least often goes (LFU). The one used least recently "
        "should go.": "often",
        "This is the count if a full cache forgets everything. Only one line should go.": "all",
        "This is the count if a line that is found becomes the most recently used only when the "
        "cache is full. It should do so at once.": "late",
        "This is the count if the line with the smallest number goes. The least recently used one "
        "should go.": "smallest",
    }
    return {sentence: _with_rule(lines, room, rule) for sentence, rule in rules.items()} | {
        "This is the count if nothing ever leaves the cache.": len(set(lines)),
        "This is the count of a cache that keeps one line too few: look for the line before you "
        "make room.": fetches_by_definition(lines, room - 1),
        "This is the count of a cache that keeps one line too many: make room before the new "
        "line comes in.": fetches_by_definition(lines, room + 1),
        "A line goes after `room` other lines, not after `room` steps.": _by_steps(lines, room),
        "Here every step counts as a fetch.": len(lines),
        "These are the steps that find their line. Count the others.": len(lines) - want,
        "This is the count of a cache that keeps a single line.": fetches_by_definition(lines, 1),
        "The first visit to a line is a fetch, too.": want - len(set(lines)),
        "The visits that fill the empty cache are fetches, too.": (
            want - min(room, len(set(lines)))
        ),
    }


def _with_rule(lines: Sequence[int], room: int, rule: str) -> int:
    """Fetches of a cache that drops by a wrong rule."""
    cache: list[int] = []
    uses: dict[int, int] = {}
    count = 0
    for line in lines:
        uses[line] = uses.get(line, 0) + 1 if line in cache else 1
        if line in cache:
            if rule == "latest" or (rule == "late" and len(cache) >= room):
                cache.remove(line)
                cache.append(line)
            continue
        count += 1
        if len(cache) >= room:
            _drop(cache, uses, rule)
        cache.append(line)
    return count


def _drop(cache: list[int], uses: dict[int, int], rule: str) -> None:
    """Remove by a wrong rule one line of a cache whose oldest line stands first, or all."""
    if rule == "all":
        cache.clear()
    elif rule == "often":
        cache.remove(min(cache, key=lambda kept: uses[kept]))
    elif rule == "smallest":
        cache.remove(min(cache))
    else:
        cache.pop(-1 if rule == "latest" else 0)


def _by_steps(lines: Sequence[int], room: int) -> int:
    last: dict[int, int] = {}
    count = 0
    for step, line in enumerate(lines):
        count += line not in last or step - last[line] > room
        last[line] = step
    return count


def set_fetches(rng: np.random.Generator) -> Iterator[Case]:
    """(lines, sets, ways): fetches of a cache whose sets each are a small LRU cache."""
    hand: list[tuple[list[int], int, int]] = [
        (SETS_DIFFER, 3, 2),
        ([0, 2, 4, 0, 2, 4], 2, 2),
        ([0, 1, 2, 3, 0, 1, 2, 3], 2, 2),
        ([64 * row for row in range(13)] * 3, 64, 12),
        ([65 * row for row in range(13)] * 3, 64, 12),
        ([5, 2, 5, 9, 5, 2], 1, 2),
        (list(range(200)) * 2, 100, 2),
        ([70_000, 4_464, 70_000, 4_464, 70_000], 2, 1),  # equal in their last 16 bits
    ]
    for trial in range(60):
        if trial < len(hand):
            lines, sets, ways = hand[trial]
        else:
            sets, ways = int(rng.integers(1, 6)), int(rng.integers(1, 5))
            lines = rng.integers(0, 24, int(rng.integers(1, 80))).tolist()
        want = fetches_by_definition(lines, ways, sets)
        mistakes = _distinct(_wrong_set_fetches, [*lines], sets, ways)
        yield (lines, sets, ways), want, mistakes


def _wrong_set_fetches(lines: Sequence[int], sets: int, ways: int) -> dict[str, int]:
    parts = [[line for line in lines if line % sets == k] for k in range(sets)]
    neighbours = [[line for line in lines if line // ways % sets == k] for k in range(sets)]
    return {
        "This is the count of one pool for all lines. A line may lie only in its own set.": (
            fetches_by_definition(lines, sets * ways)
        ),
        "Each set keeps `ways` lines, whatever the number of sets.": (
            fetches_by_definition(lines, max(1, ways // sets), sets)
        ),
        "This is the count of a single set, with room for `ways` lines.": (
            fetches_by_definition(lines, ways)
        ),
        "This is the count if neighbouring lines share a set. Line k lies in set k mod sets.": (
            sum(fetches_by_definition(part, ways) for part in neighbours)
        ),
        "This is the largest number of fetches of any set. Add those of all sets.": (
            max(fetches_by_definition(part, ways) for part in parts)
        ),
        "Sets and ways are exchanged.": fetches_by_definition(lines, sets, ways),
        "This is the count if each set keeps one line too many.": (
            fetches_by_definition(lines, ways + 1, sets)
        ),
        "Every set sees only its own lines. Here each of them saw the whole walk.": (
            sets * fetches_by_definition(lines, ways)
        ),
        "This is the count if no line is ever dropped. A set keeps `ways` lines, no more.": (
            len(set(lines))
        ),
    }


def _distinct(mistakes_of: Callable[..., dict[str, int]], *case: Any) -> WhenWrong:
    """Of mistakes_of(*case), what no other one looks like: to name one of several is a guess."""

    def distinct() -> dict[str, int]:
        mistakes = mistakes_of(*case)
        values = list(mistakes.values())
        return {sentence: wrong for sentence, wrong in mistakes.items() if values.count(wrong) == 1}

    return WhenWrong(distinct)


def agree_count(name: str, case: Case, got: object) -> None:
    """Raise AssertionError unless the number of fetches is right: of (lines, [sets,] room)."""
    (lines, *rest), want, mistakes = case
    short = f"{lines}" if len(lines) <= 30 else f"[{str(lines[:12])[1:-1]}, ...]"
    call = f"{name}({short}, {', '.join(map(str, rest))})"
    sets = rest[0] if len(rest) == 2 else 1
    drawn = 0 <= max(lines, default=-1) < 2000  # a row of the figure for each line
    draw = functools.partial(_draw_visits, lines, rest[-1], sets, got) if drawn else None
    agree(got, want, call, mistakes=mistakes, draw=draw)


def _draw_visits(lines: Sequence[int], room: int, sets: int, got: object) -> None:
    """The visits that fetch, and under the title how many came."""
    ax = memory_drawings.visits(lines, room, sets=sets)
    ax.set_title(f"{ax.get_title('left')}; you count {show(got)}", loc="left")
