"""Widgets for the course's drawings. Each only chooses arguments: the drawing works without it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common import drawings, views

if TYPE_CHECKING:
    import ipywidgets

SHAPES = ((12,), (3, 4), (2, 3, 4))
PUZZLES = (((8, 1), 4), ((2, 4), 1), ((3, 12, 4), 1))  # (strides, offset) to be found


def permuted_and_sliced() -> ipywidgets.VBox:
    """Choose a shape, the order of its axes, and a slice of the first, for the drawing.

    Each of PUZZLES gets a mark as soon as the settings give its strides and offset.
    """
    import ipywidgets

    solved: set[int] = set()
    puzzles = ipywidgets.HTML()

    names = [(" × ".join(map(str, shape)), shape) for shape in SHAPES]
    shape = ipywidgets.Dropdown(options=names, value=(3, 4), description="shape")
    order = ipywidgets.Dropdown(description="order")
    start = ipywidgets.IntSlider(value=0, min=0, max=2, description="start")
    step = ipywidgets.IntSlider(value=1, min=1, max=3, description="step")

    def offer_orders(_: object = None) -> None:
        orders = list(itertools.permutations(range(len(shape.value))))
        order.options, order.value = [(str(o).replace(",)", ")"), o) for o in orders], orders[-1]

    def draw(order: tuple[int, ...], start: int, step: int) -> None:
        import matplotlib.pyplot as plt

        drawings.permuted_and_sliced(shape.value, order, start, step)
        plt.show()
        x = views.STORAGE[: math.prod(shape.value)].view(shape.value)
        reached = views.of(x.permute(order)[start::step])[1:]
        solved.update(i for i, puzzle in enumerate(PUZZLES) if puzzle == reached)
        puzzles.value = puzzle_list(solved)

    offer_orders()
    shape.observe(offer_orders, names="value")
    picture = ipywidgets.interactive_output(draw, {"order": order, "start": start, "step": step})
    picture.layout.min_height = (
        "335px"  # of the tallest picture, so that the page below does not jump
    )
    return ipywidgets.VBox(
        [puzzles, ipywidgets.HBox([shape, order]), ipywidgets.HBox([start, step]), picture]
    )


def puzzle_list(solved: Collection[int]) -> str:
    """The puzzles as HTML, with a mark on each that is solved."""
    items = (
        f"{'✅' if i in solved else '⬜'} strides {strides}, offset {offset}"
        for i, (strides, offset) in enumerate(PUZZLES)
    )
    done = " &nbsp; <b>All three found.</b>" if len(solved) == len(PUZZLES) else ""
    return " &nbsp; ".join(items) + done


def ring_by_rounds(p: int = 4) -> ipywidgets.VBox:
    """Choose which chunk each rank sends first and next, and step through the rounds of a ring."""
    import ipywidgets

    from common.ranks import ring

    firsts = [
        (f"chunk r {sign} {shift}" if shift else "chunk r", shift if sign == "+" else -shift)
        for sign, shift in (("+", 1), ("+", 0), ("−", 1), ("−", 2))
    ]
    first = ipywidgets.Dropdown(options=firsts, value=0, description="first")
    steps = [("the one after it", 1), ("the one before it", -1)]
    step = ipywidgets.Dropdown(options=steps, value=1, description="next")
    rounds = ipywidgets.IntSlider(value=0, min=0, max=p - 1, description="rounds")
    verdict = ipywidgets.HTML()

    def draw(first: int, step: int, rounds: int) -> None:
        import matplotlib.pyplot as plt

        complete = ring.own_chunks_complete(ring.after(p, first, step, rounds))
        reached = "Target reached!" if complete == p else "The target is not reached yet."
        verdict.value = (
            f"<b>{reached}</b> After {rounds} of {p - 1} rounds, {complete} of {p} ranks hold "
            "their own chunk of the sum."
        )
        ring.draw(p, first, step, rounds)
        plt.show()

    chosen = {"first": first, "step": step, "rounds": rounds}
    picture = ipywidgets.interactive_output(draw, chosen)
    picture.layout.min_height = "190px"
    return ipywidgets.VBox([ipywidgets.HBox([first, step, rounds]), verdict, picture])


def format_report(
    magnitudes: np.ndarray, exponent_bits: int, fraction_bits: int, power: int
) -> tuple[float, float, float]:
    """(share that becomes 0, share that becomes infinite, relative error of the others).

    magnitudes: positive numbers, which are first multiplied by 2**power. The format has infinity,
    as those of IEEE 754. The error is the root of the mean square.
    """
    least = 2 - 2 ** (exponent_bits - 1) - fraction_bits
    steps = 2.0 ** (least + np.maximum(np.arange(2**exponent_bits - 1) - 1, 0))
    numbers = np.concatenate([[0.0], np.cumsum(np.repeat(steps, 2**fraction_bits))])
    scaled = magnitudes * 2.0**power
    nearest = numbers[np.searchsorted((numbers[1:] + numbers[:-1]) / 2, scaled)]
    kept = (nearest > 0) & (nearest < numbers[-1])
    error = nearest[kept] / scaled[kept] - 1
    root = float(np.sqrt(np.mean(error**2))) if kept.any() else 1.0
    return float(np.mean(nearest == 0)), float(np.mean(nearest == numbers[-1])), root


def number_format(
    magnitudes: np.ndarray, *, most_bits: int, lost: float, error: float
) -> ipywidgets.VBox:
    """Choose a format and a power of two: which of these numbers does the format keep?

    The target: at most most_bits bits, at most these shares of lost numbers and of relative error,
    and no number that becomes infinite.
    """
    import ipywidgets

    calm = {"continuous_update": False}  # one drawing per move, not one per step of it
    exponent = ipywidgets.IntSlider(value=2, min=2, max=6, description="exponent", **calm)
    fraction = ipywidgets.IntSlider(value=5, min=0, max=10, description="fraction", **calm)
    power = ipywidgets.IntSlider(value=0, min=0, max=24, description="scale 2^", **calm)
    verdict = ipywidgets.HTML()

    def draw(exponent: int, fraction: int, power: int) -> None:
        bits, shares = 1 + exponent + fraction, format_report(magnitudes, exponent, fraction, power)
        good = bits <= most_bits and shares[0] < lost and shares[1] == 0 and shares[2] < error
        verdict.value = (
            f"<b>{'Target reached!' if good else 'The target is not reached yet.'}</b> "
            f"{bits} bits: {shares[0]:.1%} become 0, {shares[1]:.2%} infinite; "
            f"the others are {shares[2]:.1%} off."
        )
        _draw_range(magnitudes * 2.0**power, exponent, fraction)

    chosen = {"exponent": exponent, "fraction": fraction, "power": power}
    picture = ipywidgets.interactive_output(draw, chosen)
    picture.layout.min_height = "230px"
    return ipywidgets.VBox([ipywidgets.HBox([exponent, fraction, power]), verdict, picture])


def _draw_range(scaled: np.ndarray, exponent_bits: int, fraction_bits: int) -> None:
    """Shows the numbers' powers of two, and between which of them the format has numbers."""
    import matplotlib.pyplot as plt

    from common import figures

    bias = 2 ** (exponent_bits - 1) - 1
    ax = plt.subplots(figsize=(7.2, 2.1))[1]
    ax.hist(np.log2(scaled), bins=list(range(-45, 21)), color="C0")
    normal, lowest = 1 - bias, -bias - fraction_bits
    ax.axvspan(normal, bias + 1, color="C1", alpha=0.25, label="normal numbers")
    ax.axvspan(lowest, normal, color="C2", alpha=0.25, label="subnormals")
    ax.set(title="What the format keeps", xlabel="power of two of the gradient times the scale")
    ax.set(xlim=(-45, 20), ylabel="gradients")
    ax.legend(loc="upper left")
    figures.describe(
        ax,
        "A histogram of the gradients' powers of two, and the ranges of normal numbers and of "
        "subnormals of the chosen format.",
    )
    plt.show()


WALKED = [
    ("placeholder", "x"),
    ("placeholder", "y"),
    ("multiply", (0, 1)),
    ("sin", (0,)),
    ("add", (2, 3)),
]


def backward_walk() -> ipywidgets.VBox:
    """Backward through f = x·y + sin x, step by step; the target is an adjoint of x near 0."""
    import ipywidgets

    ends: dict[str, Any] = {"min": -3, "max": 3, "step": 0.1, "continuous_update": False}
    x = ipywidgets.FloatSlider(value=2, description="x", **ends)
    y = ipywidgets.FloatSlider(value=3, description="y", **ends)
    steps = ipywidgets.IntSlider(value=0, min=0, max=3, description="step back")
    says = ipywidgets.HTML()

    def draw(x: float, y: float, steps: int) -> None:
        import matplotlib.pyplot as plt

        from common import graphs

        walk = graphs.walk(WALKED, {"x": x, "y": y})
        graphs.draw_walk(WALKED, walk, steps)
        says.value = about_x(x, y, walk.arrived[steps].get(0, []))
        plt.show()

    chosen = {"x": x, "y": y, "steps": steps}
    picture = ipywidgets.interactive_output(draw, chosen)
    picture.layout.min_height = "250px"
    return ipywidgets.VBox([ipywidgets.HBox([x, y, steps]), says, picture])


def about_x(x: float, y: float, arrived: Sequence[float]) -> str:
    """What has arrived at x, and whether the target is reached."""
    if len(arrived) < 2:
        return f"At x, {len(arrived)} of 2 adjoints have arrived: step back."
    text = f"x̄ = {arrived[0]:.2f} + {arrived[1]:.2f} = {sum(arrived):.2f}"
    if abs(sum(arrived)) >= 0.05 or not (x and y):
        return f"{text}. Wanted: less than 0.05 in size, where neither x nor y is 0."
    return f"<b>{text}: reached.</b> Two paths cancel: f does not feel a small move of x."


def rescaling() -> ipywidgets.VBox:
    """Find a pass over a row, in small blocks, that rescales the sum at most once."""
    import ipywidgets

    from common import rescaling

    row = ipywidgets.Dropdown(options=list(rescaling.ROWS), value="random", description="row")
    block = ipywidgets.SelectionSlider(options=rescaling.BLOCKS, value=8, description="block")
    backwards = ipywidgets.Checkbox(description="from the end")
    said = ipywidgets.HTML()

    def draw(row: str, block: int, backwards: bool) -> None:
        import matplotlib.pyplot as plt

        times = rescaling.draw(row, block, backwards).rescaled
        plt.show()
        said.value = f"The sum was rescaled {times} times. " + (
            "<b>Target reached.</b> Why does this setting need so little?"
            if row == "rising" and block <= 8 and times <= 1
            else "<b>Target:</b> the rising row, in blocks of 8 or 4, rescaled at most once."
        )

    controls = {"row": row, "block": block, "backwards": backwards}
    picture = ipywidgets.interactive_output(draw, controls)
    picture.layout.min_height = "380px"
    return ipywidgets.VBox([ipywidgets.HBox([row, block, backwards]), said, picture])


def fed_tensor_cores(
    machine: Callable[[int, int, int], tuple[float, float]], target: float, most_kb: int
) -> ipywidgets.VBox:
    """Choose tiles and stages so that the tensor cores are busy, with little shared memory.

    machine: (seconds of a load, seconds of a product) for BLOCK_M, BLOCK_N and BLOCK_K. target: the
    part of the time in which they have to multiply. most_kb: how many KiB may be used.
    """
    import ipywidgets

    from common.tiles import matmul

    sizes = [(64, 64), (128, 128), (128, 256)]
    names = [(f"{m} × {n}", (m, n)) for m, n in sizes]
    tile = ipywidgets.Dropdown(options=names, value=(128, 128), description="tile")
    depth = ipywidgets.Dropdown(options=[32, 64, 128], value=64, description="BLOCK_K")
    stages = ipywidgets.IntSlider(value=2, min=1, max=8, description="stages")
    says = ipywidgets.HTML()

    def draw(tile: tuple[int, int], depth: int, stages: int) -> None:
        import matplotlib.pyplot as plt

        load_s, compute_s = machine(*tile, depth)
        share, kb = matmul.settled(stages, load_s, compute_s), 2 * sum(tile) * depth * stages / 1024
        reached = share >= target and kb <= most_kb
        says.value = (
            f"<b>{'Reached!' if reached else 'Not yet.'}</b> The tensor cores multiply {share:.0%} "
            f"of the time, with {kb:.0f} KiB (target: {target:.0%}, with at most {most_kb} KiB)."
        )
        title = f"Tiles of {tile[0]} × {tile[1]}, {depth} deep, {stages} stages"
        steps = matmul.steps_of(12, stages, load_s, compute_s)
        matmul.pipeline({title: steps}, load_s, compute_s)
        plt.show()

    chosen = {"tile": tile, "depth": depth, "stages": stages}
    picture = ipywidgets.interactive_output(draw, chosen)
    picture.layout.min_height = "300px"  # so that the page below does not jump
    return ipywidgets.VBox([ipywidgets.HBox([tile, depth, stages]), says, picture])


def bank_conflicts(read_column: Any) -> ipywidgets.VBox:
    """Choose how many words a row of a tile takes; see what a load of its column costs.

    read_column(pitch): a kernel in which each lane reads one number of the column. The target is
    the smallest pitch with room for 32 numbers, and one wavefront.
    """
    import ipywidgets

    pitch = ipywidgets.IntSlider(
        value=30, min=28, max=40, description="pitch", continuous_update=False
    )
    said = ipywidgets.HTML()

    def draw(pitch: int) -> None:
        import matplotlib.pyplot as plt

        from common import simt

        report = simt.count(read_column, 1, 32, pitch)
        report.draw()
        plt.show()
        said.value = _judged(pitch, report.shared_loads.wavefronts)

    picture = ipywidgets.interactive_output(draw, {"pitch": pitch})
    picture.layout.min_height = "130px"
    return ipywidgets.VBox([pitch, said, picture])


def _judged(pitch: int, wavefronts: int) -> str:
    """What the widget says about a column of a tile with this pitch."""
    if pitch < 32:
        return f"A row of 32 numbers does not fit into {pitch} words."
    if wavefronts > 1:
        return f"{wavefronts} wavefronts: lanes wait for each other. Not yet."
    if pitch > 33:
        return "One wavefront, but a smaller pitch would do."
    return f"<b>Reached:</b> with {pitch} words per row, a column takes one wavefront."


def rewrites() -> ipywidgets.VBox:
    """Choose rewritings of a program: how few operators are left before an input refutes one?"""
    import ipywidgets

    from common.lessons import rewriting

    boxes = [
        ipywidgets.Checkbox(value=False, description=name, indent=False) for name in rewriting.RULES
    ]
    verdict = ipywidgets.HTML()

    def draw(**chosen: bool) -> None:
        import matplotlib.pyplot as plt

        rules = [name for name in rewriting.RULES if chosen[name]]
        verdict.value = f"<b>{rewriting.verdict(rules)}</b>"
        rewriting.draw(rules)
        plt.show()

    picture = ipywidgets.interactive_output(draw, {box.description: box for box in boxes})
    picture.layout.min_height = "240px"
    return ipywidgets.VBox(
        [ipywidgets.HBox(boxes[:4]), ipywidgets.HBox(boxes[4:]), verdict, picture]
    )
