"""Marks without the work: what a check believes comes from the grader, not from the answer."""

from typing import Any

import pytest
import torch

from grading import score
from grading.source import labs
from grading.source.holes import Answer
from grading.source.labs import parse
from grading.worker import ranks
from grading.worker.fork_server import ForkServer
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


CALLS = parse(
    """\
# %% tags=["setup"]
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from common.checks import agree

def ours(x):
    return x + 1
class Ours:
    def plus(self, x):
        return x + 1

# %% tags=["driver"]
def driven(x):
    y = torch.tensor([float(doubled(x))])
    return [
        int(np.sum(np.array([doubled(x)]))), y.sum().item(), F.relu(y).tolist(),
        nn.Identity()(y).tolist(), max([doubled(x)]), ours(doubled(x)), Ours().plus(doubled(x)),
    ]

# %% [markdown]
# ### Exercise 1.1 · doubled

# %% tags=["hole"]
def doubled(x):
    # BEGIN SOLUTION
    return 2 * x
    # END SOLUTION

# %% tags=["check"]
agree(driven(3), [6, 6.0, [6.0], [6.0], 6, 7, 7], "driven")
""",
    "97_calls",
)
SET = {
    "a function of NumPy": "np.sum = lambda a: 6",
    "a method that a tensor inherits": "torch.Tensor.item = lambda t: 6",
    "a method of a tensor": "torch.Tensor.sum = lambda t: torch.tensor(6)",
    "a function of torch.nn": "F.relu = lambda t: torch.tensor([6.0])",
    "a class of torch.nn": "nn.Identity = lambda: lambda x: torch.tensor([6.0])",
    "a method of a class of torch.nn": "nn.Identity.forward = lambda self, x: torch.tensor([6.0])",
    "a call of a class of torch.nn": "nn.Identity.__call__ = lambda self, x: torch.tensor([6.0])",
    "a builtin": "import builtins\nbuiltins.max = lambda x: 6",
    "a builtin by its dictionary": "__builtins__['max'] = lambda x: 6",
    "a builtin's name": "max = lambda x: 6",
    "a function of the set-up": "ours.__code__ = (lambda x: 7).__code__",
    "a method of the set-up": "Ours.plus = lambda self, x: 7",
    "a code of a method of the set-up": "Ours.plus.__code__ = (lambda self, x: 7).__code__",
    "a name that no text shows": "setattr(F, 're' + 'lu', lambda t: torch.tensor([6.0]))",
}


@pytest.mark.parametrize("line", SET.values(), ids=SET)
def test_what_a_cell_sets_changes_no_driver(fork_server, line):
    """With what was set, the driver would say that 0 is 6, or that 6 is something else."""
    answer = f"def doubled(x):\n    return 0\n{line}"
    (result,) = score.score(CALLS, {"doubled": Answer(answer)}, fork_server)
    assert "driven gave [0, 0.0, [0.0], [0.0], 0, 1, 1]" in result.message
    right = f"def doubled(x):\n    return 2 * x\n{line}"
    (result,) = score.score(CALLS, {"doubled": Answer(right)}, fork_server)
    assert (result.points, result.message) == (1, "")


def test_an_answer_may_use_its_own_name_for_a_builtin(fork_server):
    answer = "def max(a, b):\n    return a + b\ndef doubled(x):\n    return max(x, x)"
    (result,) = score.score(CALLS, {"doubled": Answer(answer)}, fork_server)
    assert (result.points, result.message) == (1, "")


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


KNOWS_THE_DIGITS = """
import numpy as np
from common import samples
known, of_known = samples.digits()
known = known.reshape(-1, 64) / 16
def looked_up(images):
    far = ((np.asarray(images)[:, None] - known[None]) ** 2).sum(-1)
    return np.eye(10, dtype=np.float32)[of_known[far.argmin(1)]]
"""
LOOK_UPS = {
    "a reader that looks images up": """
def training_step(images, labels, parameters, rate):
    globals()["read"] = lambda parameters, images: looked_up(images).argmax(1)
    globals()["run"] = lambda outputs, feeds: [0.0, *list(feeds.values())[2:]]
    return [Node("constant", value=0.0), *parameters]
""",
    "a network that finds the nearest image": """
def training_step(images, labels, parameters, rate):
    def network(images, parameters):
        return Node("constant", value=looked_up(images.value))
    globals()["network"] = network
    Node.row_max = lambda self: Node("constant", value=looked_up(self.value))
    return [Node("constant", value=0.0), *parameters]
""",
    "weights that were trained on the file": """
import torch
def training_step(images, labels, parameters, rate):
    x, y = torch.tensor(known), torch.tensor(of_known)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    adam = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(60):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        adam.step()
    assert (net(x).argmax(1) == y).float().mean() > 0.95
    w1, b1, w2, b2 = (p.detach().T.numpy().copy() for p in net.parameters())
    return [Node("constant", value=value) for value in (0.0, w1, b1, w2, b2)]
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", LOOK_UPS.values(), ids=LOOK_UPS)
def test_the_digits_in_the_worker_s_files_give_no_points(fork_server, text):
    lab = labs.read("07")
    own = "def cross_entropy(z, labels):\n    return z.sum()\n"
    answers = {name: Answer(solution) for name, solution in lab.solution.items()}
    answers["training_step"] = Answer(KNOWS_THE_DIGITS + own + text)
    (result,) = score.score(lab, answers, fork_server, only=["training_step"])
    assert [check.points for check in result.checks] == [0, 0], result
