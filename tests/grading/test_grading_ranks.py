"""Ranks in the grader, one worker each: verdicts, counts and messages as in the notebook."""

import linecache
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from grading import score
from grading.source.holes import Answer
from grading.source.labs import parse
from grading.worker.errors import WorkerEnded, student_error
from grading.worker.fork_server import ForkServer
from grading.worker.packing import Packer
from grading.worker.ranks import SELF_REPORTED
from grading.worker.remote import Remote
from grading.worker.session import Session
from nogpu import ranks
from nogpu.ranks import operations
from nogpu.ranks.call_site import CallSite
from nogpu.ranks.conductor import ConductorLink
from nogpu.ranks.link import QUESTIONS
from nogpu.ranks.remote import WireLink
from tests.in_one_process import score_together
from tests.nogpu import test_ranks
from tests.nogpu.test_ranks_errors import DEADLOCKS, cell

SETUP = "import torch\nfrom nogpu import ranks\n"


@pytest.fixture(scope="module")
def fork_server():
    fork_server = ForkServer("nogpu.ranks.remote")
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


def reported_text(error):
    report = student_error(error)
    assert report is not None
    return report.text


def text_of(function):
    """The source of a function at a module's top level, as a cell that calls it f."""
    import inspect

    return inspect.getsource(function).replace(f"def {function.__name__}(", "def f(")


@pytest.mark.slow
@pytest.mark.parametrize(
    "function, args, options",
    [
        (test_ranks.every_message, (5,), {"world_size": 3}),
        (test_ranks.every_reduction, (5,), {"world_size": 3}),
        (test_ranks.every_exchange, (5,), {"world_size": 3}),
        (test_ranks.every_message, (0,), {"world_size": 1}),
        (test_ranks.every_reduction, (0,), {"world_size": 1}),
        (test_ranks.every_exchange, (0,), {"world_size": 1}),
        (test_ranks.random_program, (2, 25), {"world_size": 4}),
        (test_ranks.one_collective, ("all_reduce", 12), {"world_size": 4, **ranks.nodes(4, 2)}),
    ],
)
def test_the_grader_counts_what_the_notebook_counts(remote, function, args, options):
    here, there = (ranks.run(f, *args, **options) for f in (function, remote(text_of(function))))
    assert there.trace.self_reported == SELF_REPORTED
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
    def start(p):
        works.append(dist.all_reduce(p.grad, async_op=True))
    w.register_post_accumulate_grad_hook(start)
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
    names: dict[str, Any] = {"torch": torch, "ranks": ranks, "__name__": "__main__"}
    exec(compile(AUTOGRAD, "<f>", "exec"), names)
    x = ranks.each([torch.full((3, 4), float(r)) for r in range(2)])
    runs = [
        ranks.run(f, torch.ones(4, 2), x, world_size=2, flops_per_s=1e9)
        for f in (names["f"], remote(AUTOGRAD))
    ]
    runs[1].trace.self_reported = []
    assert runs[0].trace == runs[1].trace and torch.equal(runs[0].returns[0], runs[1].returns[1])


BETWEEN_RANKS = [
    title
    for title, case in DEADLOCKS.items()
    if issubclass(case[1], ranks.RanksError) and title != "an exit"
]


@pytest.mark.parametrize("title", BETWEEN_RANKS)
def test_what_goes_wrong_is_reported_in_the_same_words(remote, title):
    with pytest.raises(DEADLOCKS[title][1]) as here:
        ranks.run(cell(title), world_size=3)
    with pytest.raises(DEADLOCKS[title][1]) as there:
        ranks.run(remote("".join(linecache.getlines(f"<{title}>"))), world_size=3)
    assert str(here.value) == str(there.value) == reported_text(there.value)


def test_ranks_of_one_run_share_nothing_and_arguments_stay(remote):
    f = remote(
        "seen = []\ndef f(dist, x):\n    seen.append(dist.get_rank())\n    x += 1\n"
        "    dist.barrier()\n    return seen, x"
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
        ("__ask__('post', 1.0, [{}])", ValueError, "kind is not one of Send, Receive, Collective"),
        ("__ask__('close')", ValueError, "asks nothing called 'close'"),
        (
            "__ask__('wait', 1.0, [0, 1, 2, 3])",
            ValueError,
            "rank 1 asks for another rank's request",
        ),
        ("__ask__('post', -1.0, [])", ValueError, "to -1.0"),
        ("__ask__('wait', 1.0, [99])", ValueError, "asks for a request that does not exist"),
        ("__ask__('wait', 'soon', [0])", ValueError, "malformed question: wait"),
        (
            "__ask__('new_group', [0, 9])",
            ValueError,
            "ranks: [0, 9]; they must be different numbers",
        ),
        ("__ask__('race')", ValueError, "malformed question: race"),
        ("return object()", TypeError, "can't cross"),
    ],
)
def test_what_one_rank_does_wrong_ends_the_run(remote, body, kind, says):
    f = remote(
        "def f(dist):\n    x = torch.zeros(2)\n    work = dist.irecv(x, 1 - dist.get_rank())\n"
        f"    dist.barrier()\n    if dist.get_rank() == 1:\n        {body}\n    work.wait()"
    )
    with pytest.raises(kind) as raised:
        ranks.run(f, world_size=2)
    assert says in reported_text(raised.value)


@pytest.mark.parametrize(
    "body, status, limit_s", [("os._exit(1)", "died", 60), ("while True: pass", "timeout", 2)]
)
def test_a_rank_that_dies_or_loops_ends_the_run_and_the_next_one_works(
    remote, body, status, limit_s
):
    f = remote(
        "import os\ndef f(dist, bad):\n"
        f"    if bad and dist.get_rank() == 1:\n        {body}\n    dist.barrier()",
        limit_s,
    )
    with pytest.raises(WorkerEnded) as raised:
        ranks.run(f, True, world_size=2)
    assert raised.value.status == status
    f._session.allow(60)
    assert ranks.run(f, False, world_size=2).returns == [None, None]


@pytest.mark.parametrize(
    "call, field, value",
    [
        ("send(x, 1)", "elements", 1),
        ("isend(x, 1).wait()", "dtype", torch.uint8),
        ("all_reduce(x)", "shape", (1,)),
        ("all_to_all_single(x, x + 0)", "in_bytes", [1, 1]),
    ],
)
def test_bytes_are_those_of_the_tensors(remote, call, field, value):
    """A rank whose operation states other sizes than its tensors have is refused."""
    f = remote(f"""
import torch
def f(dist):
    real = dist._link.ask
    def lie(question, *arguments):
        if question == "post":
            arguments[1][0]["{field}"] = {value}
        return real(question, *arguments)
    x = torch.zeros(100)
    if dist.get_rank() == 0:
        dist._link.ask = lie
        dist.{call}
    else:
        dist.recv(x, 0)
""")
    with pytest.raises(ValueError, match="malformed operation: "):
        ranks.run(f, world_size=2)


X = torch.zeros(2)
SEND = operations.Send("isend", CallSite(1, ""), 0, 0, 0, 2, torch.float32, X)
RECEIVE = operations.Receive("irecv", CallSite(1, ""), 0, None, 0, 2, torch.float32)
REDUCE = operations.Collective(
    "all_reduce", CallSite(1, ""), 0, "all_reduce", "sum", None, (2,), torch.float32, [], [], X
)
SCATTER = replace(REDUCE, what="scatter", name="scatter", op=None, root=1, payload=[X, X])
EXCHANGE = replace(
    REDUCE,
    what="all_to_all_single",
    name="all_to_all",
    op=None,
    shape=None,
    in_bytes=[8, 8],
    out_bytes=[8, 8],
    payload=[X, X],
)
GROUPS = {0: [0, 1], 1: [0]}


@pytest.mark.parametrize("operation", [SEND, RECEIVE, REDUCE, SCATTER, EXCHANGE])
def test_an_operation_crosses_as_data(operation):
    packer = Packer()
    data = Packer().unpack(*packer.pack(operations.as_data(operation)))
    again = operations.from_data(data, 1, GROUPS)
    assert type(again) is type(operation) and str(again) == str(operation)


MALFORMED = [
    (SEND, {"kind": "Request"}, "its kind is not one of"),
    (SEND, {"kind": ["Send"]}, "its kind is not one of"),
    (SEND, {"bytes": 0}, "a Send has what, call_site, group, peer"),
    (SEND, {"what": "irecv"}, "what is not one of send, isend"),
    (SEND, {"call_site": (1,)}, "call_site"),
    (SEND, {"call_site": (-1, "")}, "call_site"),
    (SEND, {"call_site": (1, X)}, "call_site"),
    (SEND, {"group": 2}, "group is not the number of a group"),
    (SEND, {"group": [0]}, "group is not the number of a group"),
    (SEND, {"group": 1}, "rank 1 is not in group 1"),
    (SEND, {"peer": 9}, "rank 1 can't exchange a message with rank 9"),
    (SEND, {"peer": 1}, "rank 1 can't exchange a message with rank 1"),
    (SEND, {"peer": True}, "peer is not a rank"),
    (SEND, {"peer": None}, "peer is not a rank"),
    (SEND, {"tag": -1}, "tag is not"),
    (SEND, {"elements": 1}, "the tensor does not have the elements and dtype"),
    (SEND, {"elements": 2.0}, "elements is not"),
    (SEND, {"dtype": torch.float64}, "the tensor does not have the elements and dtype"),
    (SEND, {"dtype": "float32"}, "dtype is not a dtype"),
    (SEND, {"payload": None}, "the tensor does not have the elements and dtype"),
    (RECEIVE, {"what": "recv_any"}, "what is not one of recv, irecv"),
    (RECEIVE, {"peer": X}, "peer is not a rank"),
    (RECEIVE, {"elements": -1}, "elements is not"),
    (RECEIVE, {"payload": X}, "a Receive has what, call_site"),
    (REDUCE, {"name": "all_gossip"}, "name is not one of barrier, broadcast"),
    (REDUCE, {"name": X}, "name is not one of barrier, broadcast"),
    (REDUCE, {"what": "reduce"}, "what is not one of all_reduce"),
    (REDUCE, {"op": None}, "op is not one of sum"),
    (REDUCE, {"op": "mean"}, "op is not one of sum"),
    (REDUCE, {"root": 0}, "all_reduce has no root"),
    (REDUCE, {"dtype": None}, "dtype is not a dtype"),
    (REDUCE, {"dtype": torch.int32}, "the tensors do not have the shape and dtype"),
    (REDUCE, {"shape": [2]}, "shape is not a tensor's shape"),
    (REDUCE, {"shape": (-2,)}, "shape is not a tensor's shape"),
    (REDUCE, {"shape": (1,)}, "the tensors do not have the shape and dtype"),
    (REDUCE, {"in_bytes": [8, 8]}, "lists of 0 sizes"),
    (REDUCE, {"payload": None}, "the tensors do not have the shape and dtype"),
    (REDUCE, {"payload": [X]}, "the tensors do not have the shape and dtype"),
    (SCATTER, {"root": 2}, "root is not a rank of the group"),
    (SCATTER, {"root": 0}, "the tensors do not have the shape and dtype"),
    (SCATTER, {"payload": [X]}, "the tensors do not have the shape and dtype"),
    (SCATTER, {"payload": [X, torch.zeros(3)]}, "the tensors do not have the shape and dtype"),
    (EXCHANGE, {"shape": (2,)}, "shape is not a tensor's shape"),
    (EXCHANGE, {"out_bytes": [8]}, "lists of 2 sizes"),
    (EXCHANGE, {"in_bytes": [8, 4]}, "the tensors do not have the shape and dtype"),
    (EXCHANGE, {"payload": [X, X.int()]}, "the tensors do not have the shape and dtype"),
]


@pytest.mark.parametrize("operation, change, says", MALFORMED)
def test_a_malformed_operation_is_refused(operation, change, says):
    with pytest.raises(ValueError, match=f"^malformed operation: .*{re.escape(says)}"):
        operations.from_data({**operations.as_data(operation), **change}, 1, GROUPS)


@pytest.mark.parametrize("data", [None, [], "Send", {}, {"kind": "Send"}])
def test_malformed_operations_are_refused(data):
    with pytest.raises(ValueError, match="^malformed operation: "):
        operations.from_data(data, 0, GROUPS)


def test_a_rank_asks_what_a_link_answers():
    assert {"post", "wait", "test", "sender", "new_group", "race"} == QUESTIONS
    for link in (ConductorLink, WireLink):
        assert all(callable(getattr(link, question)) for question in QUESTIONS)


LAB = parse(
    '''\
# %% tags=["setup"]
import numpy as np
import torch

from nogpu import ranks

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
    sent = result.trace.bytes_sent
    assert max(sent) <= 2 * (p - 1) * -(-3 // p) * 8, f"{sent} bytes"
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
            "def total(dist, x):\n"
            "    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]\n"
            "    dist.all_gather(parts, x)\n"
            "    return sum(parts)",
            "failed",
            "[72, 72, 72, 72] bytes",
        ),
        ("def total(dist, x):\n    dist.recv(x, 0)", "failed", "recv: rank 0 is this rank itself"),
        (
            "def total(dist, x):\n    p = dist.get_world_size()\n"
            "    if p > 1:\n        dist.send(x, (dist.get_rank() + 1) % p)\n    return x",
            "failed",
            "total raised DeadlockError: deadlock: rank 0 → rank 1 → rank 0, "
            "each waits for the next",
        ),
    ],
)
def test_a_lab_s_check_scores_ranks(fork_server, text, status, says):
    result = score.score(LAB, {"total": Answer(text)}, fork_server)[0]
    assert result.status == status and says in result.message
    together = score_together(LAB, {"total": Answer(text)}, fork_server, ["total"])["total"]
    assert (together is None) == (status == "passed")
