"""No check of a lab wants what comes from the student's side (see flows)."""

import pytest

from grading.source import labs
from tests import flows

# Flows that are sound, and why: the wanted value is a property of the answer itself.
SOUND = {
    ("05", "logsumexp_matmul"): {"truth"},  # of the student's own counterexample, in float64
    ("10", "encode"): {"want[first]"},  # the first place at which the codes differ from ours
    ("10", "affine_parameters"): {"before"},  # a copy, made before the call
    ("10", "kmeans_codebook"): {"nearest", "mean"},  # a codebook at rest, whichever it is
    ("16", "outer_step"): {"owns[rank]"},  # each rank got a copy of it
}
HEAD = """\
# %% tags=["setup"]
from common import ranks, simt
from common.checks import agree, remark

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

# %% tags=["check"]
"""
REFUSED = {
    "the answer itself": "agree(1, f(1), 'f')",
    "a driver": "want = driven(1)\nagree(f(1), want, 'f')",
    "through a name": "y = f(1)\nz = y + 1\nagree(f(1), z, 'f')",
    "through a loop": "for i in range(2):\n    agree(f(1), y, 'f')\n    y = f(2)",
    "through an item": "table = [0]\ntable[0] = f(1)\nagree(f(1), table, 'f')",
    "added to": "want = 1\nwant += f(1)\nagree(f(1), 1, 'f')",
    "through a walrus": "print(y := f(1))\nagree(f(1), y, 'f')",
    "in place": "x = [1]\nin_place(f, x)(x)\nagree(f(1), sum(x), 'f')",
    "a view": "x = [1]\ny = x[0:]\nin_place(f, x)(x)\nagree(f(1), y, 'f')",
    "the base of a view": "x = [1]\ny = x[0:]\nin_place(f, y)(y)\nagree(f(1), x, 'f')",
    "a launch": "x = [1]\nsimt.count(f, 1, 32, x)\nwant = sum(x)\nagree(x, want, 'f')",
    "a run of ranks": "want = ranks.run(driven).returns\nagree(f(1), want, 'f')",
    "the clock": "t = ranks.run(driven).time_s\nagree(t, 1.0, 'f')",
    "live tensors": "assert ranks.run(driven).trace.peak_live_bytes < 9",
    "computation": "trace = ranks.run(driven).trace\nn = sum(trace.compute_s)\nagree(n, 1, 'f')",
}
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
