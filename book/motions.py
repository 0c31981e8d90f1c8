"""Figures that move: the labs' own drawings for each value of one number, chosen with a slider."""

import functools
import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from numba import cuda

from benchmarks.solved import solved
from common import figures
from common.lessons.pipeline_parallel import pipelines
from common.lessons.triton_matmul import pictures as matmul
from common.lessons.triton_softmax import rescaling
from nogpu import simt
from nogpu.ranks import ring

NAMES = {"one_f_one_b": "1F1B", "zb_h1": "ZB-H1"}
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "course"}


@cuda.jit
def strided(x: Any, y: Any, stride: int) -> None:
    """Lane t reads number t · stride."""
    t = cuda.threadIdx.x
    value = x[t * stride]
    y[t] = value


@dataclass(frozen=True)
class Motion:
    """One figure: draw(value) draws it and returns (label, alternative text)."""

    name: str
    title: str
    says: str  # what to look at, a few sentences
    lab: str
    what: str  # what the slider chooses
    values: Sequence[int]
    first: int  # the value of the still picture
    draw: Callable[[int], tuple[str, str]]
    after: str  # the words of the lab's cell below which the figure stands, too


Frame = tuple[str, str, str]  # file in the site's folder, label, alternative text


def warp(stride: int) -> tuple[str, str]:
    """The sectors that a warp's load takes if its lanes read numbers this far apart."""
    memory, out = np.zeros(32 * 32, np.float32), np.zeros(32, np.float32)
    report = simt.count(strided, 1, 32, memory, out, stride)
    report.draw()
    label = f"stride {stride}"
    sectors = report.global_loads.sectors
    return label, f"With {label}, a warp's load of 32 numbers takes {sectors} sectors of 32 bytes."


def around_the_ring(rounds: int) -> tuple[str, str]:
    """Five ranks after this many rounds of a ring's reduce-scatter."""
    ring.draw(5, -1, -1, rounds)
    done = ring.own_chunks_complete(ring.after(5, -1, -1, rounds))
    label = f"{rounds} of 4 rounds"
    return label, f"Five ranks after {label}: {done} of them hold their own chunk of the sum."


@functools.cache
def _lab_15() -> dict[str, Any]:
    return solved("15")


def schedules(stages: int) -> tuple[str, str]:
    """1F1B and ZB-H1 on this many stages, with twice as many microbatches."""
    axes = plt.subplots(2, figsize=(7.2, 1.4 + 0.62 * stages), sharex=True)[1]
    lab = _lab_15()
    traces = [
        pipelines.played(pipelines.on_stages(lab[name], stages, 2 * stages)) for name in NAMES
    ]
    shares = [f"{trace.bubble:.0%}" for trace in traces]
    until_s = max(trace.time_s for trace in traces)
    for ax, trace, name, share in zip(axes, traces, NAMES.values(), shares, strict=True):
        trace.draw(ax=ax, until_s=until_s, title=f"{name}: {share} idle", row="stage")
    label = f"{stages} stages"
    return label, f"{label}, {2 * stages} microbatches: 1F1B idles {shares[0]}, ZB-H1 {shares[1]}."


def arriving(blocks: int) -> tuple[str, str]:
    """The maximum and the sum of a row of which this many blocks have arrived."""
    taken = rescaling.draw("random", 8, arrived=blocks)
    label = f"{blocks} of 8 blocks"
    return label, f"After {label} the sum was rescaled {taken.rescaled} times."


def wave(programs: int) -> tuple[str, str]:
    """The tiles of C that the first programs compute, row by row and in bands."""
    orders = {
        "Row by row": lambda program: divmod(program, 256),
        "In bands of 8 rows": lambda program: (program % 8, program // 8),
    }
    matmul.waves(orders, 32, 256, programs)
    label = f"{programs} programs"
    strips = 1 + programs, min(programs, 8) + -(-programs // 8)
    return label, f"{label} need {strips[0]} strips row by row, and {strips[1]} in bands of 8 rows."


MOTIONS = (
    Motion(
        "warp",
        "A warp's sectors, by stride",
        "A warp is 32 lanes that load together. Memory delivers sectors of 32 bytes, which is 8 "
        "numbers. Neighbours share a sector until the stride reaches 8. From there on, each lane "
        "pays for a sector of its own and uses an eighth of it.",
        "03_cuda_kernels",
        "stride between lanes",
        (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32),
        4,
        warp,
        "**Same answer, four times the sectors.**",
    ),
    Motion(
        "softmax",
        "A softmax of a row that arrives in blocks",
        "The sum of the exponentials is kept relative to the maximum so far. When the maximum "
        "moves, the sum is rescaled. The crosses show the sum without rescaling, which is wrong.",
        "04_triton_softmax",
        "blocks that have arrived",
        range(1, 9),
        4,
        arriving,
        "widget.rescaling()",
    ),
    Motion(
        "waves",
        "Tiles of a product, in two orders",
        "Programs start in order. What they load without repetition are strips of A and of B. Row "
        "by row, each program needs a strip of B of its own. In bands of 8 rows they share.",
        "05_triton_matmul",
        "programs",
        (1, *range(12, 133, 12)),
        132,
        wave,
        "pictures.waves(",
    ),
    Motion(
        "ring",
        "A sum that travels round a ring",
        "In each round every rank sends one partial sum to its neighbour, which adds its own part. "
        "After p − 1 rounds each rank holds one chunk of the whole sum, and all links were busy "
        "all the time.",
        "11_collectives",
        "rounds",
        range(5),
        2,
        around_the_ring,
        "widget.ring_by_rounds()",
    ),
    Motion(
        "schedules",
        "1F1B and ZB-H1, by the number of stages",
        "Both schedules run twice as many microbatches as there are stages. ZB-H1 splits backward "
        "in two, and fills the gaps with the half that nobody waits for.",
        "15_pipeline_parallel",
        "stages",
        range(2, 9),
        4,
        schedules,
        "The counted shares are the predicted ones",
    ),
)


def drawn(folder: Path) -> dict[str, list[Frame]]:
    """Draw the pictures into folder/extra, which Sphinx copies: {motion's name: its frames}."""
    pictures = folder / "extra" / "moving"
    pictures.mkdir(parents=True)
    with mpl.rc_context():
        figures.use_style()
        mpl.rcParams.update(STYLE)
        return {m.name: [_frame(m, value, pictures) for value in m.values] for m in MOTIONS}


def write(folder: Path, frames: Mapping[str, Sequence[Frame]]) -> None:
    """Write the page moving.md."""
    parts = [
        "# Figures that move",
        "Each figure is the lab's own drawing for several values of one "
        "number. Move the slider (the arrow keys work, too), or press *Play*.",
    ]
    for motion in MOTIONS:
        link = f"[Lab {motion.lab[:2]}](labs/{motion.lab}.ipynb)"
        says = f"{motion.says} {link} counts it."
        parts += [f"## {motion.title}", says, _html(motion, frames[motion.name])]
    (folder / "moving.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def of_lab(lab: str, frames: Mapping[str, Sequence[Frame]]) -> dict[str, str]:
    """{words of a cell: the figure that stands below it}, for a page in the folder labs."""
    shown = {}
    for motion in MOTIONS:
        if motion.lab == lab:
            here = [(f"../{file}", label, text) for file, label, text in frames[motion.name]]
            says = f"**{motion.title}.** Move the slider, or press *Play*. {motion.says}"
            shown[motion.after] = f"{says}\n\n{_html(motion, here)}"
    return shown


def _frame(motion: Motion, value: int, pictures: Path) -> Frame:
    """Draw one picture: (its file as the page names it, label, alternative text)."""
    label, alternative = motion.draw(value)
    file = pictures / f"{motion.name}-{value}.svg"
    plt.savefig(file, format="svg", metadata={"Date": None})
    plt.close("all")
    return f"moving/{file.name}", label, alternative


def _html(motion: Motion, frames: Sequence[Frame]) -> str:
    """The figure with a still picture, and what the script needs to move it."""
    first = list(motion.values).index(motion.first)
    file, _, alternative = frames[first]
    data = html.escape(json.dumps(frames))
    return (
        f'<figure class="motion" data-what="{motion.what}" data-first="{first}" '
        f'data-frames="{data}">\n<img src="{file}" alt="{html.escape(alternative)}">\n</figure>'
    )
