"""What fences and atomic updates order in random kernels: the definition, computed plainly, agrees.

The definition is the docstring of nogpu/simt/order.py.
"""

import itertools
import random
from dataclasses import dataclass

import numpy as np
import pytest

from nogpu import simt

THREADS = [
    (block, thread) for block in (0, 1) for thread in (0, 1, 32)
]  # two lanes of a warp, and another warp
STAGES, DATA, WORDS = 2, 6, 2


@dataclass(frozen=True)
class Step:
    """One line of a thread.

    array: data (d0, d1, ...) or words for updates (w0, w1). One is drawn for a fence, too, which
    does not use it.
    """

    block: int
    thread: int
    stage: int
    place: int
    kind: str
    array: str
    number: int


def random_steps(rng):
    steps = []
    for (block, thread), stage in itertools.product(THREADS, range(STAGES)):
        for place in range(rng.choice([0, 2, 5, 9])):
            kind = rng.choices(
                ["write", "read", "update", "fence", "block fence"], [2, 2, 4, 4, 1]
            )[0]
            of_words = kind == "update" or kind == "read" and rng.random() < 0.1
            array = f"w{rng.randrange(WORDS)}" if of_words else f"d{rng.randrange(DATA)}"
            steps.append(Step(block, thread, stage, place, kind, array, len(steps)))
    return steps


def text_of(steps):
    written = {
        "write": "{array}[0] = 1",
        "read": "out[{number}] = {array}[0]",
        "fence": "cuda.threadfence()",
        "update": "seen[{number}] = cuda.atomic.add({array}, 0, 1)",
        "block fence": "cuda.threadfence_block()",
    }
    arrays = [f"d{i}" for i in range(DATA)] + [f"w{i}" for i in range(WORDS)]
    lines = [
        f"def kernel({', '.join(arrays)}, seen, out):",
        "    b, t = cuda.blockIdx.x, cuda.threadIdx.x",
    ]
    for stage in range(STAGES):
        for block, thread in THREADS:
            lines.append(f"    if b == {block} and t == {thread}:\n        pass")
            lines += [
                "        " + written[step.kind].format(**vars(step))
                for step in steps
                if (step.block, step.thread, step.stage) == (block, thread, stage)
            ]
        lines.append("    cuda.syncthreads()")
    return "\n".join(lines)


def follows(one, other):
    """Whether `other` comes after `one` by the order of its thread, or by a barrier."""
    same_thread = one.thread == other.thread and (one.stage, one.place) < (other.stage, other.place)
    return one.block == other.block and (same_thread or one.stage < other.stage)


def handed_over(one, other, steps, seen):
    updates = [step for step in steps if step.kind == "update"]
    fences = [
        step
        for step in steps
        if step.kind == "fence" or step.kind == "block fence" and one.block == other.block
    ]
    return any(
        first.array == second.array
        and seen[first.number] < seen[second.number]
        and (second == other or follows(second, other))
        and any(follows(fence, first) and (first == one or follows(one, fence)) for fence in fences)
        for first, second in itertools.product(updates, updates)
    )


def conflict(one, other):
    kinds = {one.kind, other.kind}
    return (
        one.array == other.array
        and kinds <= {"read", "write", "update"}
        and ("write" in kinds or kinds == {"read", "update"})
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_races_are_those_of_the_definition(seed):
    steps = random_steps(random.Random(seed))
    seen = np.full(len(steps), -1)
    arrays = [np.zeros(1, np.int64) for _ in range(DATA + WORDS)]
    races = simt.count(
        simt.compile_source(text_of(steps), "kernel"),
        2,
        64,
        *arrays,
        seen,
        np.zeros(len(steps)),
        seed=seed,
    ).races

    def ordered(*pair):
        return any(follows(x, y) or handed_over(x, y, steps, seen) for x, y in (pair, pair[::-1]))

    wanted = {
        (one.array, one.block == other.block)
        for one, other in itertools.combinations(steps, 2)
        if (one.block, one.thread) != (other.block, other.thread)
        and conflict(one, other)
        and not ordered(one, other)
    }
    assert {(race.array, race.blocks[0] == race.blocks[1]) for race in races} == wanted
