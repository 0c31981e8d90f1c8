"""No check of a lab wants what comes from the student's side (see flows)."""

import pytest

from common.paths import ROOT
from grading.source import labs
from tests.security import check_taint as flows

# Flows that are sound, and why: the wanted value is a property of the answer itself.
SOUND = {
    ("05", "logsumexp_matmul"): {"truth"},  # of the student's own counterexample, in float64
    ("07", "topological_order"): {"len(order) == len(set(order))"},  # no node twice
    ("07", "dual"): {"case.want"},  # beside the arguments that the call may change
    ("09", "plan_buffers"): {"size <= 1.1 * best"},  # for buffers with which the answer is bad
    ("10", "encode"): {"want[first]"},  # the first place at which the codes differ from ours
    ("10", "affine_parameters"): {"before", "nearest"},  # a copy; kept in one list with codes
    ("10", "kmeans_codebook"): {"nearest", "mean"},  # a codebook at rest, whichever it is
    ("15", "partition_layers"): {"given == costs"},  # a list of numbers, and its copy
    ("16", "outer_step"): {"owns[rank]"},  # each rank got a copy of it
}
HEAD = """\
# %% tags=["setup"]
import math

import numpy as np
import torch
from nogpu import ranks, simt, tiles
from common.checks import agree, expect, nearly, no_fault, remark
from common.lessons.data_parallel import expected
from common.checks.grader_link import afresh, in_place

# %% [markdown]
# ### Exercise 1.1 · f

# %% tags=["hole"]
def f(x):
    # BEGIN SOLUTION
    return x
    # END SOLUTION

# %% tags=["driver"]
def driven(dist):
    return f(1)

# %% tags=["driver"]
@triton.jit
def kernel(x):
    tl.store(x, 1)

# %% tags=["check"]
"""
REFUSED = dict(
    block.split("\n", 1)
    for block in (ROOT / "tests" / "security" / "check_taint.txt")
    .read_text()
    .strip()
    .split("\n\n%% ")[1:]
)
ACCEPTED = {
    "before the call": "x = [1]\nwant = sum(x)\nagree(f(x), want, 'f')",
    "copies": "x = [1]\ny = f(x)\nagree(y, sum(x), 'f')",
    "before the launch": "x = [1]\nwant = sum(x)\nsimt.count(f, 1, 32, x)\nagree(x, want, 'f')",
    "rebound": "y = f(1)\ny = 2\nagree(f(1), y, 'f')",
    "a choice between two of ours": "got = f(1)\nwant = 1 if got > 2 else 2\nagree(got, want, 'f')",
    "a remark": "remark(ranks.run(driven).time_s < 1, 'slow')",
    "a picture": "got = ranks.run(driven)\nagree(got.returns, 1, 'f', draw=lambda: got.time_s)",
}


def found(check):
    lab = labs.parse(f"{HEAD}{check}\n", "99_flows")
    return flows.problems(lab, lab.exercises[0].checks[0])


@pytest.mark.parametrize("check", REFUSED.values(), ids=REFUSED)
def test_a_flow_from_the_student_s_side_is_found(check):
    assert found(check)


@pytest.mark.parametrize("check", ACCEPTED.values(), ids=ACCEPTED)
def test_a_sound_check_is_let_pass(check):
    assert not found(check)


@pytest.mark.parametrize("name", labs.names())
def test_no_check_of_a_lab_wants_what_comes_from_the_student_s_side(name):
    lab, unsound = labs.read(name), []
    for exercise in lab.exercises:
        sound = SOUND.get((name[:2], exercise.name), set())
        for check in exercise.checks:
            unsound += [
                f"{exercise.label}: {problem}"
                for problem in flows.problems(lab, check)
                if problem.rpartition(": ")[2] not in sound
                and not any(f"`{s}`" in problem for s in sound)
            ]
    assert not unsound, "\n".join(unsound)
