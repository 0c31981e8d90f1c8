"""The labs' kernels fit on every GPU that students have, as the labs configure them.

They are compiled for each compute capability; no GPU is needed. What was found of each is kept in
benchmarks/cards.json, so that only what has changed is compiled here, and a few others again.
"""

import os
import subprocess
import sys

import pytest

from common.hardware import device
from common.hardware.gpu_limits import LIMITS
from common.paths import ROOT

device.prepare_triton()


@pytest.mark.slow("solutions/*.py")
def test_the_kernels_fit():
    """In a process of its own, where Triton does not interpret."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(ROOT / "benchmarks" / "cards.py"), "--brief"]
    result = subprocess.run(
        [*command, "--again", "6", "--limit", "60"],
        env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def test_what_does_not_fit_is_a_problem_unless_the_lab_leaves_it_out():
    from benchmarks import cards, chosen

    def kernel(name, optional):
        return chosen.Threads(name, (), 256, "", 75, optional)

    launches = [kernel("a", False), kernel("b", True), kernel("c", True)]
    large = cards.Needs(256, 100_000, 64, 0)
    needs = dict(zip((each.digest for each in launches), (large, large), strict=False))
    needs[launches[2].digest] = cards.Needs(0, 0, 0, 0, "no such instruction")
    found = cards.problems(launches, needs, LIMITS[75])
    assert len(found) == 2 and "100000" in found[0] and "no such instruction" in found[1]
    assert not cards.problems(launches[:2], needs, LIMITS[80])
    assert cards.fits(large, LIMITS[80]) and not cards.fits(
        large._replace(registers=257), LIMITS[80]
    )


@pytest.mark.parametrize("capability", LIMITS)
def test_plans_for_any_shape_fit_where_there_is_a_copy_engine(capability):
    from common.lessons.triton_matmul import any_shape_matmul

    room = LIMITS[capability].shared_bytes
    for plan in any_shape_matmul.plans(any_shape_matmul.Shape(512, 512, 4096, 1), room):
        pairs = plan.stages * 2 * (plan.block_m + plan.block_n) * plan.block_k
        assert pairs + 2048 < room
