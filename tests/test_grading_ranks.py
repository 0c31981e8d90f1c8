"""Ranks in the grader: a worker each, the grader the network; the same verdict, counts and messages as in the notebook."""

import linecache

import pytest
import torch

from common import ranks
from grading import score
from grading.source.holes import Answer
from grading.source.labs import parse
from grading.worker.client import ForkServer
from grading.worker.errors import WorkerEnded, student_error
from grading.worker.remote import Remote
from grading.worker.session import Session
from tests import test_ranks
from tests.in_one_process import score_together
from tests.test_ranks_errors import DEADLOCKS, cell

SETUP = "import torch\nfrom common import ranks\n"


@pytest.fixture(scope="module")
def fork_server():
    fork_server = ForkServer("common.ranks.remote")
    yield fork_server
    fork_server.close()


@pytest.fixture
def remote(fork_server):
    """Makes a Remote of a text that defines f."""
    sessions = []

    def make(text, limit_s=60):
        session = Session(fork_server, [("setup", SETUP), ("f", text)])
        session.allow(limit_s)
        sessions.append(session)
        return Remote(session, "f", text)

    yield make
    for session in sessions:
        session.close()


def text_of(function):
    """The source of a function at a module's top level, as a cell that calls it f."""
    import inspect

    return inspect.getsource(function).replace(f"def {function.__name__}(", "def f(")


@pytest.mark.parametrize(
    "function, args, options",
    [
        (test_ranks.every_function, (5,), {"world_size": 3}),
        (test_ranks.every_function, (0,), {"world_size": 1}),
        (test_ranks.random_program, (2, 25), {"world_size": 4}),
        (test_ranks.one_collective, ("all_reduce", 12), {"world_size": 4, **ranks.nodes(4, 2)}),
    ],
)
def test_the_grader_counts_what_the_notebook_counts(remote, function, args, options):
    here, there = (ranks.run(f, *args, **options) for f in (function, remote(text_of(function))))
    assert there.trace.self_reported == ["compute", "spans", "live_bytes"]
    there.trace.self_reported = []
    for name, value in here.trace.as_dict().items():
        if name not in ("messages", "collectives"):
            assert there.trace.as_dict()[name] == value, name
    assert [
        (m.src, m.dst, m.bytes, m.start_s, m.end_s, m.what, m.depth) for m in there.trace.messages
    ] == [(m.src, m.dst, m.bytes, m.start_s, m.end_s, m.what, m.depth) for m in here.trace.messages]
    assert str(here.returns) == str(there.returns)


AUTOGRAD = """
def f(dist, w, x):
    w = torch.nn.Parameter(w)
    works = []
    w.register_post_accumulate_grad_hook(lambda p: works.append(dist.all_reduce(p.grad, async_op=True)))
    with ranks.span("forward"):
        loss = torch.tanh(x @ w).sum()
    with ranks.span("backward"):
        loss.backward()
        ranks.compute(1e-3)
    for work in works:
        work.wait()
    return w.detach() - 0.1 * w.grad
"""


def test_compute_spans_and_live_bytes_are_the_same(remote):
    names = {"torch": torch, "ranks": ranks, "__name__": "__main__"}
    exec(compile(AUTOGRAD, "<f>", "exec"), names)
    x = ranks.each([torch.full((3, 4), float(r)) for r in range(2)])
    runs = [
        ranks.run(f, torch.ones(4, 2), x, world_size=2, flops_per_s=1e9)
        for f in (names["f"], remote(AUTOGRAD))
    ]
    runs[1].trace.self_reported = []
    assert runs[0].trace == runs[1].trace and torch.equal(runs[0].returns[0], runs[1].returns[1])


FOUND = [
    title
    for title, case in DEADLOCKS.items()
    if issubclass(case[1], ranks.RanksError) and title != "an exit"
]


@pytest.mark.parametrize("title", FOUND)
def test_what_goes_wrong_is_told_in_the_same_words(remote, title):
    with pytest.raises(DEADLOCKS[title][1]) as here:
        ranks.run(cell(title), world_size=3)
    with pytest.raises(DEADLOCKS[title][1]) as there:
        ranks.run(remote("".join(linecache.getlines(f"<{title}>"))), world_size=3)
    assert str(here.value) == str(there.value) and student_error(there.value).text == str(
        there.value
    )


def test_ranks_of_one_run_share_nothing_and_arguments_stay(remote):
    f = remote(
        "seen = []\ndef f(dist, x):\n    seen.append(dist.get_rank())\n    x += 1\n    dist.barrier()\n    return seen, x"
    )
    x = torch.zeros(2)
    returns = ranks.run(f, x, world_size=3).returns
    assert (
        [seen for seen, _ in returns] == [[0], [1], [2]]
        and x.tolist() == [0, 0]
        and returns[2][1].tolist() == [1, 1]
    )


@pytest.mark.parametrize(
    "body, kind, says",
    [
        ("raise KeyError('w')", KeyError, "'w' (on rank 1)"),
        ("raise NotImplementedError", NotImplementedError, "(on rank 1)"),
        ("__ask__('post', 1.0, [{}])", KeyError, "kind"),
        ("__ask__('close')", ValueError, "asks nothing called 'close'"),
        (
            "__ask__('wait', 1.0, [0, 1, 2, 3])",
            ValueError,
            "rank 1 asks for what is another rank's",
        ),
        ("__ask__('post', -1.0, [])", ValueError, "to -1.0"),
        (
            "__ask__('post', 1.0, [{'kind': 'send', 'what': 's', 'where': (1, ''), 'peer': 9, 'payload': x}])",
            ValueError,
            "with rank 9",
        ),
        ("return object()", TypeError, "can't cross"),
    ],
)
def test_what_one_rank_does_wrong_ends_the_run(remote, body, kind, says):
    f = remote(
        "def f(dist):\n    x = torch.zeros(2)\n    work = dist.irecv(x, 1 - dist.get_rank())\n    dist.barrier()\n    if dist.get_rank() == 1:\n"
        f"        {body}\n    work.wait()"
    )
    with pytest.raises(kind) as raised:
        ranks.run(f, world_size=2)
    assert says in student_error(raised.value).text


@pytest.mark.parametrize(
    "body, status, limit_s", [("os._exit(1)", "died", 60), ("while True: pass", "timeout", 2)]
)
def test_a_rank_that_dies_or_loops_ends_the_run_and_the_next_one_works(
    remote, body, status, limit_s
):
    f = remote(
        f"import os\ndef f(dist, bad):\n    if bad and dist.get_rank() == 1:\n        {body}\n    dist.barrier()",
        limit_s,
    )
    with pytest.raises(WorkerEnded) as raised:
        ranks.run(f, True, world_size=2)
    assert raised.value.status == status
    f._session.allow(60)
    assert ranks.run(f, False, world_size=2).returns == [None, None]


def test_bytes_are_those_that_were_sent(remote):
    """What a rank says of an operation counts for nothing where the tensor says otherwise."""
    f = remote("""
import torch
def f(dist):
    real = dist._link.post
    def lie(time_s, operations):
        for operation in operations:
            operation["elements"] = operation["itemsize"] = operation["bytes"] = 1
        return real(time_s, operations)
    dist._link.post = lie
    x = torch.zeros(100)
    if dist.get_rank() == 0:
        dist.isend(x, 1).wait()
    else:
        dist._link.post = real
        dist.recv(x, 0)
        dist._link.post = lie
    dist.all_reduce(x)
""")
    with pytest.raises(
        ValueError, match="all_reduce: what came is not of the shape and dtype that were told"
    ):
        ranks.run(f, world_size=2)


LAB = parse(
    '''\
# %% tags=["setup"]
import numpy as np
import torch

from common import ranks

rng = np.random.default_rng()

# %% [markdown]
# ### Exercise 1.1 · total

# %% tags=["hole"]
def total(dist, x):
    """The sum of x over ranks."""
    # BEGIN SOLUTION
    dist.all_reduce(x)
    return x
    # END SOLUTION

# %% tags=["check"] limit_s=60
for p in (1, 2, 4):
    xs = [torch.from_numpy(rng.standard_normal(3)) for _ in range(p)]
    result = ranks.run(total, ranks.each(xs), world_size=p)
    assert all(torch.allclose(got, sum(xs)) for got in result.returns), "the sum"
    assert max(result.trace.bytes_sent) <= 2 * (p - 1) * -(-3 // p) * 8, f"{result.trace.bytes_sent} bytes"
''',
    "98_ranks",
)


@pytest.mark.parametrize(
    "text, status, says",
    [
        (LAB.solution["total"], "passed", ""),
        (LAB.exercise("total").stub, "not attempted", ""),
        ("def total(dist, x):\n    return x", "failed", "the sum"),
        (
            "def total(dist, x):\n    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]\n    dist.all_gather(parts, x)\n"
            "    return sum(parts)",
            "failed",
            "[72, 72, 72, 72] bytes",
        ),
        ("def total(dist, x):\n    dist.recv(x, 0)", "failed", "recv: rank 0 is this rank itself"),
        (
            "def total(dist, x):\n    p = dist.get_world_size()\n    dist.send(x, (dist.get_rank() + 1) % p) if p > 1 else None\n    return x",
            "failed",
            "total raised DeadlockError: deadlock: rank 0 → rank 1 → rank 0, each waits for the next",
        ),
    ],
)
def test_a_lab_s_check_scores_ranks(fork_server, text, status, says):
    result = score.score(LAB, {"total": Answer(text)}, fork_server)[0]
    assert result.status == status and says in result.message
    together = score_together(LAB, {"total": Answer(text)}, fork_server, ["total"])["total"]
    assert (together is None) == (status == "passed")
