"""Marks without the work: what a check believes comes from the grader, not from the answer."""

from typing import Any

import pytest
import torch

from grading import score
from grading.source.holes import Answer
from grading.source.labs import parse
from grading.worker import ranks
from grading.worker.client import ForkServer
from grading.worker.session import Session

LAB = parse(
    """\
# %% tags=["setup"]
import numpy as np

from common.checks import agree

rng = np.random.default_rng()
def ours(x):
    return x + 1

# %% tags=["driver"]
OFFSET = 1
def driven(x):
    return [ours(doubled(x)), OFFSET, helped(x)]
def helped(x):
    return "ours"

# %% [markdown]
# ### Exercise 1.1 · doubled

# %% tags=["hole"]
def doubled(x):
    # BEGIN SOLUTION
    return 2 * x
    # END SOLUTION

# %% tags=["check"]
x = rng.integers(1, 9, 3)
y = doubled(x)
agree(y, 2 * x, "doubled, whose want comes late")

# %% tags=["check"]
rows = [[1, 2], [3]]
doubled(np.ones(1))
order = doubled(rows)
agree(len(order), 2 * len(rows), "of a list")

# %% tags=["check"]
agree(driven(3), [7, 1, "ours"], "driven(3)")
print("doubled")
""",
    "97_unearned",
)


@pytest.fixture(scope="module")
def fork_server():
    server = ForkServer(bare=True)
    yield server
    server.close()


def points(fork_server, text):
    (result,) = score.score(LAB, {"doubled": Answer(text)}, fork_server)
    return result.points


@pytest.mark.parametrize(
    "text, most",
    [
        ("def doubled(x):\n    return 2 * x", 3),
        ("def doubled(x):\n    x[:] = 0\n    return 0 * x", 0),  # the want was zero, too
        ("def doubled(x):\n    x.clear()\n    return []", 0),
        ("import sys\ndef doubled(x):\n    x *= 0\n    return x", 0),
        (
            "def doubled(x):\n    globals()['driven'] = lambda x: [7, 1, 'ours']\n    return None",
            0,
        ),
        ("driven = lambda x: [7, 1, 'ours']\ndef doubled(x):\n    return None", 0),
        ("ours = lambda x: 7\ndef doubled(x):\n    return 0", 0),
        ("def doubled(x):\n    return 2 * x\nOFFSET = 5\ndef helped(x):\n    return 5", 3),
        (
            "def doubled(x):\n    driven.__code__ = (lambda x: [7, 1, 'ours']).__code__\n"
            "    return None",
            0,
        ),
    ],
)
def test_points_are_for_the_work_alone(fork_server, text, most):
    assert points(fork_server, text) == most


def test_a_rank_that_changes_its_own_list_of_allowed_calls_is_refused(fork_server):
    cell = """
import torch
def cheat(dist, x, name):
    dist._names = {"all_reduce", "send", "new_group", *dist._names}
    getattr(dist, name)(*([x] if name == "all_reduce" else [x, 1] if name == "send" else [[0]]))
    return x
def allowed(dist, x):
    me = dist.get_rank()
    both = [dist.P2POp(dist.isend, x, 1 - me), dist.P2POp(dist.irecv, x.clone(), 1 - me)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return x
"""
    one = Session(fork_server, [("cell", cell)])
    one.allow(60)
    options: dict[str, Any] = dict.fromkeys(["seed", "flops_per_s"]) | {
        "live_bytes": False,
        "world_size": 2,
    }
    options |= {"alpha_s": 0.0, "beta_s_per_byte": 0.0, "timeout_s": 60.0}
    options["only"] = ["batch_isend_irecv", "isend", "irecv"]
    try:
        for name in ("all_reduce", "send", "new_group"):
            with pytest.raises(ValueError, match=f"this dist has no {name}"):
                ranks.run(one, "cheat", [torch.ones(3), name], **options)
        assert len(ranks.run(one, "allowed", [torch.ones(3)], **options).returns) == 2
    finally:
        one.close()
